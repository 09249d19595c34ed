"""Values of many iterations as torch computes them, so that it knows their derivatives.

An operation under a mask is made with 1 in the lanes that do not run: what autograd gives those is
then 0 times a number, never 0 times an infinity. Of a choice each branch is made under the mask of
its condition, whether it is written `a if c else b` or `where(c, a, b)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from looptrans.executor.vector_operations import (
    Mask,
    binary_operation,
    comparison,
    extremum,
    function_operation,
)
from looptrans.executor.vector_values import compile_value, lifted
from looptrans.ir.condition import Condition, Data
from looptrans.ir.monoids import OF_NOTHING
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Compare,
    Const,
    Create,
    Generator,
    Holds,
    IndexValue,
    Read,
    Real,
    Reduce,
    Select,
    Unary,
    Whole,
    rank_of,
)
from looptrans.ir.value import Value as Expression
from looptrans.runtime.differentiated.store import Number, as_mask, as_numbers, as_tensor, selected
from looptrans.runtime.differentiated.sums import in_order

if TYPE_CHECKING:
    from looptrans.runtime.differentiated.machine import Gradients

Code = Callable[[], Number]
Taken = Callable[[Number, Mask], None]

_SMOOTH = {
    "exp": torch.exp,
    "exp2": torch.exp2,
    "log": torch.log,
    "log2": torch.log2,
    "sqrt": torch.sqrt,
    "abs": torch.abs,
    "tanh": torch.tanh,
    "sin": torch.sin,
    "cos": torch.cos,
}
_SAME = ("copy", "float")
_ROUNDED = ("float64", "float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2")
_ARITHMETIC: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "+": torch.add,
    "-": torch.sub,
    "*": torch.mul,
    "/": torch.div,
    "**": torch.pow,
    "%": torch.remainder,
    "//": lambda a, b: torch.floor_divide(a.detach(), b.detach()),
}


def compile_differentiable(machine: Gradients, value: Expression) -> Code:
    """Compile a value: a number, or a tensor with every axis and then the value's dimensions."""
    match value:
        case Const(number) if isinstance(number, float):
            constant = torch.tensor(number, dtype=machine.tensor_type)
            return lambda: constant
        case Const() | IndexValue():
            return compile_value(machine, value)
        case Real(name):
            return lambda: machine.real_parameter(name)
        case Read(access):
            return _read(machine, access)
        case Unary(op, operand):
            return _unary(machine, op, operand)
        case Binary("@", left, right):
            product = machine.value(Binary("*", left, right))
            return lambda: _row_sum(machine, product())
        case Binary():
            return _operation(machine, value)
        case Compare(op, left, right):
            return _compared(machine, op, left, right)
        case Holds(condition):
            return machine.test(condition)
        case Select(condition, yes, no):
            return _select(machine, condition, yes, no)
        case Call("where", (condition_value, yes, no)):
            chosen_by = (
                condition_value.condition
                if isinstance(condition_value, Holds)
                else Data(condition_value)
            )
            if rank_of(condition_value):
                return _by_element(machine, condition_value, yes, no)
            return _select(machine, chosen_by, yes, no)
        case Call(("max" | "min" | "sum") as name, (row,)):
            return _of_row(machine, name, row)
        case Call():
            return _call(machine, value)
        case Reduce():
            return _reduce(machine, value)
        case Create():
            return _create(machine, value)


def _read(machine: Gradients, access: Access) -> Code:
    store = machine.stores[access.array]
    if not access.subscripts:
        return lambda: store.read_whole(machine.mask)
    codes = [None if isinstance(s, Whole) else machine.index(s) for s in access.subscripts]
    return lambda: store.read([None if code is None else code() for code in codes], machine.mask)


def _operands(
    machine: Gradients, expressions: tuple[Expression, ...]
) -> Callable[[], list[Number]]:
    """Compile operands that are brought to the highest rank among them."""
    codes, ranks = [machine.value(e) for e in expressions], [rank_of(e) for e in expressions]
    rank = max(ranks, default=0)
    if rank == 0:
        return lambda: [code() for code in codes]
    return lambda: [lifted(code(), rank - own) for code, own in zip(codes, ranks, strict=True)]


def _are_exact(values: list[Number]) -> bool:
    """Whether values have no derivative: integers and truth values."""
    return not any(isinstance(value, torch.Tensor) for value in values)


def _known(machine: Gradients, value: Number) -> Number:
    """Return what NumPy gave: real numbers become tensors."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind == "f":
        return as_tensor(value, machine.tensor_type)
    return value


def _ready(machine: Gradients, values: list[Number], rank: int) -> list[torch.Tensor]:
    """Return operands as real numbers of one shape, with 1 in the lanes that do not run."""
    tensors = [as_tensor(value, machine.tensor_type) for value in values]
    if machine.mask is not None:
        mask, one = as_mask(machine.mask, rank), tensors[0].new_ones(())
        tensors = [torch.where(mask, tensor, one) for tensor in tensors]
    if not machine.absolute:
        return tensors
    shape = np.broadcast_shapes(*(tensor.shape for tensor in tensors))
    return [_positive(tensor.expand(shape)) for tensor in tensors]


def _positive(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same; the derivative that comes back through it loses its sign."""
    if not tensor.requires_grad:
        return tensor
    passed = tensor.clone()
    passed.register_hook(torch.abs)  # type: ignore[no-untyped-call]  # torch has no types here
    return passed


def _unary(machine: Gradients, op: str, operand: Expression) -> Code:
    code, rank = machine.value(operand), rank_of(operand)
    minus = binary_operation("-", machine.real)

    def run() -> Number:
        value = code()
        if isinstance(value, torch.Tensor):
            return value if op == "+" else -_ready(machine, [value], rank)[0]
        if isinstance(value, np.ndarray) and value.dtype.kind == "b":
            value = value.astype(np.int64)
        return +value if op == "+" else minus(0, value, None)

    return run


def _operation(machine: Gradients, value: Binary) -> Code:
    operands, rank = _operands(machine, (value.left, value.right)), rank_of(value)
    exact, smooth = binary_operation(value.op, machine.real), _ARITHMETIC[value.op]

    def run() -> Number:
        values = operands()
        if _are_exact(values):
            mask: Mask = machine.mask
            a, b = values
            return _known(machine, exact(a, b, mask if mask is None else lifted(mask, rank)))
        return smooth(*_ready(machine, values, rank))

    return run


def _compared(machine: Gradients, op: Any, left: Expression, right: Expression) -> Code:
    operands = _operands(machine, (left, right))
    compare = comparison(op, machine.real, nearly=machine.random is not None)
    return lambda: compare(*(as_numbers(value) for value in operands()))


def _row_sum(machine: Gradients, row: Number) -> Number:
    if not isinstance(row, torch.Tensor):
        return np.sum(row, axis=-1)
    if row.shape[-1] == 0:
        return 0
    row = row.flip(-1) if machine.backwards else row
    return in_order(row.new_zeros(()), row, row.ndim - 1, machine.real).squeeze(-1)


def _of_row(machine: Gradients, name: str, row: Expression) -> Code:
    code = machine.value(row)
    if name == "sum":
        return lambda: _row_sum(machine, code())

    def run() -> Number:
        cells = code()
        if isinstance(cells, torch.Tensor):
            return _extreme(machine, name, cells, cells.ndim - 1).squeeze(-1)
        return cells.max(-1) if name == "max" else cells.min(-1)

    return run


def _call(machine: Gradients, value: Call) -> Code:
    operands, rank, name = _operands(machine, value.arguments), rank_of(value), value.function
    exact = function_operation(name, machine.real)

    def run() -> Number:
        values = operands()
        if _are_exact(values):
            mask: Mask = machine.mask
            mask = mask if mask is None else lifted(mask, rank)
            return _known(machine, exact(tuple(values), mask))
        if name in ("max", "min"):
            return _extremum(machine, name, _ready(machine, values, rank))
        (number,) = _ready(machine, values, rank)
        if name in _SMOOTH:
            return _SMOOTH[name](number)
        if name in _SAME:
            return number
        if name == "stop_gradient":
            return number.detach()
        found = _known(machine, exact((as_numbers(number),), None))
        # Rounding hands the derivative through.
        return number + (found - number).detach() if name in _ROUNDED else found

    return run


def _extremum(machine: Gradients, name: str, values: list[torch.Tensor]) -> torch.Tensor:
    """Return Python's `max` or `min`; at a tie one operand has the whole derivative."""
    result = values[0]
    for value in values[1:]:
        machine.saw_tie(result, value)
        if name == "max":
            other = value >= result if machine.last_at_ties else value > result
        else:
            other = value <= result if machine.last_at_ties else value < result
        result = torch.where(other, value, result)
    return result


def _extreme(machine: Gradients, name: str, cells: torch.Tensor, axis: int) -> torch.Tensor:
    """Return the largest or smallest number along an axis, which stays; see `_extremum`."""
    if machine.last_at_ties:
        cells = cells.flip(axis)
    found = cells.max(axis, keepdim=True) if name == "max" else cells.min(axis, keepdim=True)
    if cells.requires_grad and not machine.tied:
        there = cells == found.values
        machine.tied = bool(((there.sum(axis, keepdim=True) > 1) & found.values.isfinite()).any())
    return found.values


def _select(machine: Gradients, condition: Condition, yes: Expression, no: Expression) -> Code:
    test, codes = machine.test(condition), (machine.value(yes), machine.value(no))
    ranks = rank_of(yes), rank_of(no)

    def run() -> Number:
        holds = test()
        if np.ndim(holds) == 0:
            return codes[0]() if holds else codes[1]()
        made = []
        for code, wanted in zip(codes, (holds, np.logical_not(holds)), strict=True):
            some, mask = machine.narrowed(wanted)
            if some:
                with machine.under(mask):
                    made.append(code())
            else:
                made.append(None)
        if made[0] is None or made[1] is None:
            return made[1] if made[0] is None else made[0]
        rank = max(ranks)
        branches = [lifted(value, rank - own) for value, own in zip(made, ranks, strict=True)]
        return selected(lifted(holds, rank), branches[0], branches[1], machine.tensor_type)

    return run


def _by_element(machine: Gradients, condition: Expression, yes: Expression, no: Expression) -> Code:
    """Compile `where` of a row of conditions: both branches are made in every lane."""
    operands = _operands(machine, (condition, yes, no))

    def run() -> Number:
        holds, *branches = operands()
        return selected(as_numbers(holds) != 0, branches[0], branches[1], machine.tensor_type)

    return run


def _reduce(machine: Gradients, value: Reduce) -> Code:
    axis = machine.nested
    machine.nested += 1
    run_generators = _generators(machine, value.generators, machine.value(value.body), axis)
    machine.nested -= 1
    name = value.function
    exact = extremum(name, machine.real) if name != "sum" else None

    def run() -> Number:
        found: list[Number] = []
        blocks: list[torch.Tensor] = []

        def take(parts: Number, mask: Mask) -> None:
            if isinstance(parts, torch.Tensor):
                if mask is not None:
                    nothing = OF_NOTHING[name]
                    parts = torch.where(as_mask(mask), parts, parts.new_tensor(nothing))
                if name == "sum":
                    blocks.append(parts)
                else:
                    found.append(_extreme(machine, name, parts, axis))
            elif exact is None:
                parts = parts if mask is None else np.where(mask, parts, 0)
                found.append(np.sum(parts, axis=axis, keepdims=True))
            else:
                least = np.iinfo(np.int64).min if name == "max" else np.iinfo(np.int64).max
                parts = parts if mask is None else np.where(mask, parts, least)
                fold = np.max if name == "max" else np.min
                found.append(fold(parts, axis=axis, keepdims=True))

        run_generators(take)
        if blocks:
            # How long a block is must not matter, in either order.
            added = blocks[0].new_zeros(())
            for parts in reversed(blocks) if machine.backwards else blocks:
                terms = parts.flip(axis) if machine.backwards else parts
                added = in_order(added, terms, axis, machine.real)
            found.append(added)
        if not found:
            return 0
        total = found[0]
        for each in found[1:]:
            if _are_exact([total, each]):
                total = total + each if exact is None else exact(total, each)
                continue
            pair = [as_tensor(total, machine.tensor_type), as_tensor(each, machine.tensor_type)]
            total = pair[0] + pair[1] if exact is None else _extremum(machine, name, pair)
        return total

    return run


def _generators(
    machine: Gradients, generators: tuple[Generator, ...], body: Code, axis: int
) -> Callable[[Taken], None]:
    """Compile what hands over the values of all iterations, those of the last loop as an axis."""
    first, rest = generators[0], generators[1:]
    name, step, test = first.variable, first.range.step, machine.test(first.condition)
    start, stop = machine.index(first.range.start), machine.index(first.range.stop)
    inner = _generators(machine, rest, body, axis) if rest else None

    def one_by_one(take: Taken) -> None:
        assert inner is not None
        for number, present in machine.in_turn(start(), stop(), step):
            machine.frame[name] = number
            some, mask = machine.narrowed(present)
            if not some:
                continue
            with machine.under(mask):
                some, mask = machine.narrowed(test())
                if some:
                    with machine.under(mask):
                        inner(take)

    def together(take: Taken) -> None:
        for index, present in machine.ramps(start(), stop(), step, axis):
            machine.frame[name] = index
            some, mask = machine.narrowed(present)
            if not some:
                continue
            with machine.under(mask):
                some, mask = machine.narrowed(test())
                if some:
                    with machine.under(mask):
                        take(machine.along(body(), axis), mask)

    return one_by_one if rest else together


def _create(machine: Gradients, value: Create) -> Code:
    if value.function != "full":
        return compile_value(machine, value)
    assert value.fill is not None
    shape, fill, rank = machine.shape(value.shape), machine.value(value.fill), len(value.shape)

    def create() -> Number:
        extents, number = shape(), fill()
        if not isinstance(number, torch.Tensor):
            if np.ndim(number) == 0:
                return np.full(extents, number)
            return np.broadcast_to(lifted(number, rank), (*np.shape(number), *extents))
        if not number.ndim:
            return number.expand(extents)
        return lifted(number, rank).expand((*number.shape, *extents))

    return create
