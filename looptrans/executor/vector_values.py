"""Values of many iterations as Python closures, and writes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from looptrans.executor.errors import NoValue, Trap
from looptrans.executor.lanes import Lanes, spread
from looptrans.executor.operations import different_lengths
from looptrans.executor.vector_machine import ValueCode, Vectors
from looptrans.executor.vector_operations import (
    Mask,
    Value,
    binary_operation,
    chosen,
    comparison,
    extremum,
    function_operation,
    ordered_sum,
)
from looptrans.ir.condition import Condition
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
    Range,
    Read,
    Real,
    Reduce,
    Select,
    Unary,
    Whole,
    rank_of,
)
from looptrans.ir.value import Value as Expression

Taken = Callable[[Value, Mask, int], None]


def compile_value(machine: Vectors, value: Expression) -> ValueCode:
    """Compile a value: a number, or an array with every axis and then the value's dimensions."""
    match value:
        case Const(number):
            constant = machine.real(number) if isinstance(number, float) else number
            return lambda: constant
        case IndexValue(index):
            code = machine.index(index)
            return lambda: spread(code())
        case Real(name):
            real = machine.real(machine.inputs.reals[name])
            return lambda: real
        case Read(access):
            return _read(machine, access)
        case Unary(op, operand):
            return _unary(machine, op, operand)
        case Binary("@", left, right):
            return _inner_product(machine, left, right)
        case Binary():
            return _binary(machine, value)
        case Compare(op, left, right):
            a, b = machine.value(left), machine.value(right)
            compare = comparison(op, machine.real, nearly=machine.random is not None)
            return lambda: compare(a(), b())
        case Holds(condition):
            return machine.test(condition)
        case Select(condition, yes, no):
            return _select(machine, condition, yes, no)
        case Call(("max" | "min" | "sum") as name, (row,)):
            return _of_row(machine, name, row)
        case Call():
            return _call(machine, value)
        case Reduce():
            return _reduce(machine, value)
        case Create():
            return _create(machine, value)


def compile_write(machine: Vectors, target: Access, value: Expression) -> Callable[[Value], None]:
    """Compile a write of a value to a target."""
    store, rank = machine.stores[target.array], rank_of(value)
    if not target.subscripts:

        def write_scalar(made: Value) -> None:
            if rank:
                shape = np.shape(made)[np.ndim(made) - rank :]
                raise Trap(
                    NoValue, f"a row of shape {shape} is stored into the number {store.name!r}"
                )
            own = np.array(made) if isinstance(made, np.ndarray) else made
            store.write_scalar(own, machine.mask, tuple(machine.lanes))

        return write_scalar
    if rank and not target.indices and store.is_local:
        return lambda made: store.rename(made, rank, machine.mask, tuple(machine.lanes))
    cell = _place(machine, target)
    if rank and not target.rank:
        return _not_a_row(store.name, rank)
    return lambda made: store.write(cell(), made, rank, machine.mask, tuple(machine.lanes))


def _not_a_row(name: str, rank: int) -> Callable[[Value], None]:
    def write(made: Value) -> None:
        shape = np.shape(made)[np.ndim(made) - rank :]
        raise Trap(NoValue, f"a row of shape {shape} is stored into the number {name!r}")

    return write


def _place(machine: Vectors, access: Access) -> Callable[[], list[Lanes | None]]:
    codes = [
        None if isinstance(subscript, Whole) else machine.index(subscript)
        for subscript in access.subscripts
    ]
    return lambda: [None if code is None else code() for code in codes]


def _read(machine: Vectors, access: Access) -> ValueCode:
    store = machine.stores[access.array]
    if not access.subscripts:
        return lambda: store.read_whole(machine.mask)
    cell = _place(machine, access)
    return lambda: store.read(cell(), machine.mask)


def lifted(value: Value, dimensions: int) -> Value:
    """Return a number in each lane as one that goes with every element of a row."""
    if dimensions == 0 or np.ndim(value) == 0:
        return value
    return value.reshape((*value.shape, *(1,) * dimensions))


def _rows(machine: Vectors, operands: tuple[Expression, ...]) -> Callable[[], list[Value]]:
    """Compile operands that are brought to the highest rank among them."""
    codes, ranks = [machine.value(each) for each in operands], [rank_of(each) for each in operands]
    rank = max(ranks, default=0)
    if rank == 0:
        return lambda: [code() for code in codes]

    def run() -> list[Value]:
        values = [code() for code in codes]
        shapes = {
            np.shape(value)[np.ndim(value) - own :]
            for value, own in zip(values, ranks, strict=True)
            if own
        }
        if len(shapes) > 1:
            raise different_lengths(*sorted(shapes))
        return [lifted(value, rank - own) for value, own in zip(values, ranks, strict=True)]

    return run


def _mask_for(machine: Vectors, rank: int) -> Mask:
    return machine.mask if machine.mask is None else lifted(machine.mask, rank)


def _unary(machine: Vectors, op: str, operand: Expression) -> ValueCode:
    code, times = machine.value(operand), binary_operation("-", machine.real)

    def run() -> Value:
        value = code()
        if isinstance(value, np.ndarray) and value.dtype.kind == "b":
            value = value.astype(np.int64)
        if op == "+":
            return +value
        # 0 - x would lose the sign of a zero.
        return -value if not isinstance(value, int) else times(0, value, None)

    return run


def _binary(machine: Vectors, value: Binary) -> ValueCode:
    operands, rank = _rows(machine, (value.left, value.right)), rank_of(value)
    operation = binary_operation(value.op, machine.real)

    def run() -> Value:
        a, b = operands()
        return operation(a, b, _mask_for(machine, rank))

    return run


def _inner_product(machine: Vectors, left: Expression, right: Expression) -> ValueCode:
    products = machine.value(Binary("*", left, right))
    return lambda: _sum_of(machine, products())


def _sum_of(machine: Vectors, row: Value) -> Value:
    """Add the elements of a row from left to right, from 0."""
    if row.shape[-1] == 0:
        return 0
    if machine.backwards:
        row = row[..., ::-1]
    total = ordered_sum(0, row, row.ndim - 1, machine.real)[..., 0]
    return total if total.ndim else total[()]


def _of_row(machine: Vectors, name: str, row: Expression) -> ValueCode:
    code = machine.value(row)
    if name == "sum":
        return lambda: _sum_of(machine, code())
    better = extremum(name, machine.real)

    def run() -> Value:
        cells = code()
        if cells.shape[-1] == 0:
            raise _nothing(name)
        result = cells[..., 0]
        for at in range(1, cells.shape[-1]):
            result = better(result, cells[..., at])
        return result

    return run


def _call(machine: Vectors, value: Call) -> ValueCode:
    operands, rank = _rows(machine, value.arguments), rank_of(value)
    operation = function_operation(value.function, machine.real)
    return lambda: operation(tuple(operands()), _mask_for(machine, rank))


def _select(machine: Vectors, condition: Condition, yes: Expression, no: Expression) -> ValueCode:
    test, first, second = machine.test(condition), machine.value(yes), machine.value(no)
    rank = max(rank_of(yes), rank_of(no))
    ranks = rank_of(yes), rank_of(no)

    def run() -> Value:
        holds = test()
        if np.ndim(holds) == 0:
            return first() if holds else second()
        made = []
        for code, wanted in ((first, holds), (second, np.logical_not(holds))):
            some, mask = machine.narrowed(wanted)
            if some:
                with machine.under(mask):
                    made.append(code())
            else:
                made.append(None)
        if made[0] is None or made[1] is None:
            return made[1] if made[0] is None else made[0]
        branches = [lifted(v, rank - own) for v, own in zip(made, ranks, strict=True)]
        return chosen(lifted(holds, rank), branches[0], branches[1], machine.real)

    return run


def _reduce(machine: Vectors, value: Reduce) -> ValueCode:
    axis = machine.nested
    machine.nested += 1
    run_generators = _generators(machine, value.generators, machine.value(value.body), axis)
    machine.nested -= 1
    if value.function != "sum":
        return _extremum(machine, value.function, axis, run_generators)

    def total() -> Value:
        found: list[Value] = [0]

        def take(parts: Value, mask: Mask, count: int) -> None:
            if mask is not None:
                parts = np.where(mask, parts, parts.dtype.type(0))
            found[0] = ordered_sum(found[0], parts, axis, machine.real)

        run_generators(take)
        return found[0]

    return total


def _extremum(
    machine: Vectors, name: str, axis: int, run_generators: Callable[[Taken], None]
) -> ValueCode:
    better = extremum(name, machine.real)

    def run() -> Value:
        found: list[Any] = [None, False]

        def take(parts: Value, mask: Mask, count: int) -> None:
            here = [slice(None)] * parts.ndim
            for at in range(count):
                here[axis] = slice(at, at + 1)
                each = parts[tuple(here)]
                seen: Any = True
                if mask is not None:
                    there = [slice(None)] * mask.ndim
                    there[axis] = slice(at, at + 1) if mask.shape[axis] > 1 else slice(None)
                    seen = mask[tuple(there)]
                if found[0] is None:
                    found[0] = each
                else:
                    new = chosen(found[1], better(found[0], each), each, machine.real)
                    found[0] = chosen(seen, new, found[0], machine.real)
                found[1] = found[1] | seen

        run_generators(take)
        empty = np.logical_not(found[1])
        if np.any(empty if machine.mask is None else empty & machine.mask):
            raise _nothing(name)
        return found[0]

    return run


def _generators(
    machine: Vectors, generators: tuple[Generator, ...], body: ValueCode, axis: int
) -> Callable[[Taken], None]:
    """Compile what hands over the values of all iterations in order, the last loop as an axis."""
    loops = _loops(machine, generators, body, axis)
    return lambda take: loops(take, machine.mask)


def _loops(
    machine: Vectors, generators: tuple[Generator, ...], body: ValueCode, axis: int
) -> Callable[[Taken, Mask], None]:
    """Compile the same, told which lanes there are outside of all the loops."""
    first, rest = generators[0], generators[1:]
    name, bounds = first.variable, _bounds(machine, first.range)
    test = machine.test(first.condition)
    inner = _loops(machine, rest, body, axis) if rest else None

    def one_by_one(take: Taken, outside: Mask) -> None:
        assert inner is not None
        for index, present in machine.ramps(*bounds(), axis):
            count = machine.lanes[axis]
            machine.lanes[axis] = 1
            numbers, holds = spread(index), np.asarray(present)
            for at in range(count):
                machine.frame[name] = _single(numbers, axis, at)
                some, mask = machine.narrowed(_single(holds, axis, at))
                if not some:
                    continue
                with machine.under(mask):
                    some, mask = machine.narrowed(test())
                    if some:
                        with machine.under(mask):
                            inner(take, outside)
            machine.lanes[axis] = count

    def together(take: Taken, outside: Mask) -> None:
        for index, present in machine.ramps(*bounds(), axis):
            machine.frame[name] = index
            some, mask = machine.narrowed(present)
            if not some:
                continue
            with machine.under(mask):
                some, mask = machine.narrowed(test())
                if not some:
                    continue
                with machine.under(mask):
                    count = machine.lanes[axis]
                    parts = np.asarray(body())
                    if parts.ndim == 0:
                        parts = parts.reshape((1,) * len(machine.lanes))
                    shape = list(parts.shape)
                    shape[axis] = count
                    parts = np.broadcast_to(parts, shape)
                    take(parts, None if mask is outside else mask, count)

    return one_by_one if rest else together


def _bounds(machine: Vectors, bounds: Range) -> Callable[[], tuple[Lanes, Lanes, int]]:
    """Compile the bounds and the step of a generator, from the last iteration on if need be."""
    start, stop = machine.index(bounds.start), machine.index(bounds.stop)

    def run() -> tuple[Lanes, Lanes, int]:
        first, end, step = start(), stop(), bounds.step
        if machine.backwards and isinstance(first, int) and isinstance(end, int):
            count = len(range(first, end, step))
            return first + (count - 1) * step, first - step, -step
        return first, end, step

    return run


def _single(numbers: Value, axis: int, at: int) -> Value:
    """Return one iteration of an index, a Python integer where it is the same in every lane."""
    if np.ndim(numbers) == 0:
        return numbers.item() if isinstance(numbers, np.ndarray) else numbers
    here = [slice(None)] * numbers.ndim
    here[axis] = slice(at, at + 1) if numbers.shape[axis] > 1 else slice(None)
    part = numbers[tuple(here)]
    return part.item() if part.size == 1 else part


def _always(number: Value) -> ValueCode:
    return lambda: number


def _create(machine: Vectors, value: Create) -> ValueCode:
    shape, real = machine.shape(value.shape), machine.real
    if value.function == "full":
        assert value.fill is not None
        fill = machine.value(value.fill)
    elif value.function == "empty":
        integral = value.element is not None and "float" not in value.element
        fill = _always(0 if integral else real("nan"))
    else:
        fill = _always(real(1 if value.function == "ones" else 0))
    rank = len(value.shape)

    def create() -> Value:
        extents, number = shape(), fill()
        if np.ndim(number) == 0:
            return np.full(extents, number)
        return np.array(np.broadcast_to(lifted(number, rank), (*np.shape(number), *extents)))

    return create


def _nothing(name: str) -> Trap:
    return Trap(
        NoValue,
        f"{name} of nothing has no value",
        remedy=f"start from {'-inf' if name == 'max' else 'inf'} and take the {name} in a loop",
    )
