"""A listing's statements in torch, cell by cell in float64: what gradients are compared with.

It shares nothing with `looptrans.adjoint` but the reading of the listing; torch's autograd does the
differentiation.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from looptrans.executor.philox import uniform
from looptrans.ir.condition import Condition, Data, Every, Not, Relation, Some, Truth
from looptrans.ir.evaluate import ARITHMETIC
from looptrans.ir.index import Arith, Extremum, Index, Int, Let, Neg, Opaque, Param, Var
from looptrans.ir.program import Assign, Declaration, If, Loop, Node, Program
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
    Value,
    Whole,
)
from tests.analysis import program

Array = NDArray[Any]
COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def gradients(
    listing: Program,
    sizes: Mapping[str, int],
    inputs: Mapping[str, Any],
    incoming: Mapping[str, Array],
) -> dict[str, Array]:
    """Return the gradient of every float argument, for given gradients of outputs."""
    machine = Machine(listing, sizes, inputs)
    machine.run(listing.body)
    total = torch.tensor(0.0, dtype=torch.float64)
    for name, gradient in incoming.items():
        for cell in np.ndindex(*gradient.shape):
            total = total + machine.arrays[name][cell] * float(gradient[cell])
    if total.requires_grad:
        total.backward()  # type: ignore[no-untyped-call]  # torch has no types here
    return {
        name: np.zeros(tuple(leaf.shape)) if leaf.grad is None else leaf.grad.numpy()
        for name, leaf in machine.leaves.items()
    }


class Machine:
    """Runs statements; every cell is a torch number of its own."""

    def __init__(
        self, listing: Program, sizes: Mapping[str, int], inputs: Mapping[str, Any]
    ) -> None:
        self.listing = listing
        self.sizes = dict(sizes)
        self.variables: dict[str, int] = {}
        self.leaves: dict[str, torch.Tensor] = {}
        self.arrays: dict[str, dict[tuple[int, ...], Any]] = {}
        self.whole = {a.name for a in listing.arrays if a.role == "input"}
        for parameter in listing.parameters:
            if parameter.kind == "real":
                self.leaves[parameter.name] = _leaf(inputs[parameter.name])
        for array in listing.arrays:
            if array.role != "input":
                continue
            given = np.asarray(inputs[array.name])
            cells = list(np.ndindex(*given.shape))
            if array.element == "float":
                leaf = self.leaves[array.name] = _leaf(given)
                self.arrays[array.name] = {cell: leaf[cell] for cell in cells}
            else:
                self.arrays[array.name] = {cell: given[cell].item() for cell in cells}

    def index(self, index: Index) -> int:
        match index:
            case Int(value):
                return value
            case Var(name):
                return self.variables[name]
            case Param(name):
                return self.sizes[name]
            case Neg(operand):
                return -self.index(operand)
            case Arith(op, left, right):
                return ARITHMETIC[op](self.index(left), self.index(right))
            case Extremum(op, arguments):
                values = [self.index(argument) for argument in arguments]
                return min(values) if op == "min" else max(values)
            case Opaque(array, arguments):
                return int(self.arrays[array][tuple(self.index(a) for a in arguments)])
            case Let(_, value):
                return self.index(value)

    def holds(self, condition: Condition) -> bool:
        match condition:
            case Truth(value):
                return value
            case Relation(op, left, right):
                return bool(COMPARED[op](self.index(left), self.index(right)))
            case Data(value):
                return bool(self.value(value))
            case Every(parts):
                return all(self.holds(part) for part in parts)
            case Some(parts):
                return any(self.holds(part) for part in parts)
            case Not(part):
                return not self.holds(part)

    def each(self, generators: tuple[Generator, ...]) -> Iterator[None]:
        if not generators:
            yield
            return
        first = generators[0]
        bounds = first.range
        for value in range(self.index(bounds.start), self.index(bounds.stop), bounds.step):
            self.variables[first.variable] = value
            if self.holds(first.condition):
                yield from self.each(generators[1:])

    def row(self, access: Access) -> list[tuple[int, ...]]:
        """Return the cells of a row, in order."""
        fixed = [None if isinstance(s, Whole) else self.index(s) for s in access.subscripts]
        cells = self.arrays[access.array]
        return sorted(
            c for c in cells if all(f in (None, k) for f, k in zip(fixed, c, strict=True))
        )

    def assign(self, target: Access, found: Any) -> None:
        """Put a number into a cell, or a row of numbers into a row of cells."""
        cells = self.arrays.setdefault(target.array, {})
        if not target.rank:
            cells[tuple(self.index(index) for index in target.indices)] = found
            return
        made = [(k,) for k in range(len(found))] if target.array not in self.whole else None
        for number, cell in enumerate(made or self.row(target)):
            cells[cell] = found[number]

    def value(self, value: Value) -> Any:
        match value:
            case Const(literal):
                return literal
            case IndexValue(index):
                return self.index(index)
            case Real(name):
                return self.leaves[name]
            case Read(access) if access.rank:
                return torch.stack([self.arrays[access.array][c] for c in self.row(access)])
            case Read(access):
                return self.arrays[access.array][tuple(self.index(i) for i in access.indices)]
            case Unary(op, operand):
                return -self.value(operand) if op == "-" else self.value(operand)
            case Binary(op, left, right):
                a, b = _number(self.value(left)), _number(self.value(right))
                return _binary(op, a, b)
            case Compare(op, left, right):
                return bool(COMPARED[op](self.value(left), self.value(right)))
            case Holds(condition):
                return self.holds(condition)
            case Select(condition, chosen, otherwise):
                return self.value(chosen if self.holds(condition) else otherwise)
            case Call(function, arguments):
                return self.call(function, arguments)
            case Reduce(function, generators, body):
                terms = [_number(self.value(body)) for _ in self.each(generators)]
                return _reduced(function, terms)
            case Create():
                raise AssertionError

    def call(self, function: str, arguments: tuple[Value, ...]) -> Any:
        if function == "where":
            condition, chosen, otherwise = arguments
            return self.value(chosen if self.value(condition) else otherwise)
        given = [self.value(argument) for argument in arguments]
        if function == "uniform":
            return uniform(*(int(number) for number in given))
        if function in ("max", "min") and len(given) > 1:
            return _reduced(function, [_number(number) for number in given])
        number = _number(given[0])
        match function:
            case "stop_gradient":
                return number.detach()
            case "copy" | "float" | "float64" | "float32":
                return number
            case _:
                return getattr(torch, function)(number)

    def run(self, body: tuple[Node, ...]) -> None:
        for node in body:
            match node:
                case Declaration(array, creation):
                    fills = {"zeros": 0.0, "ones": 1.0, "empty": math.nan}
                    fill = fills.get(creation.function)
                    if creation.fill is not None:
                        fill = self.value(creation.fill)
                    shape = tuple(self.index(extent) for extent in creation.shape)
                    cells = {cell: _number(fill) for cell in np.ndindex(*shape)}
                    self.arrays[array] = cells
                    self.whole.add(array)
                case Loop():
                    bounds = node.range
                    ends = self.index(bounds.start), self.index(bounds.stop)
                    for value in range(*ends, bounds.step):
                        self.variables[node.variable] = value
                        self.run(node.body)
                case If():
                    self.run(node.body if self.holds(node.condition) else node.orelse)
                case Assign():
                    values = [self.value(value) for value in node.values]
                    for number, target in enumerate(node.targets):
                        found = values[number if len(values) > 1 else 0]
                        if self.listing.array(target.array).element == "float":
                            found = _number(found)
                        self.assign(target, found)
                case _:
                    raise AssertionError(node)


def _leaf(given: Any) -> torch.Tensor:
    return torch.tensor(np.asarray(given, dtype=np.float64), requires_grad=True)


def _number(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    return torch.tensor(float(value), dtype=torch.float64)


def _binary(op: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return a / b
        case "@":
            return torch.dot(a, b)
        case "**":
            return a**b
        case "//":
            return torch.floor(a / b)
        case _:
            return a - torch.floor(a / b).detach() * b


def _reduced(function: str, terms: list[torch.Tensor]) -> torch.Tensor:
    starts = {"sum": 0.0, "max": -math.inf, "min": math.inf}
    found = _number(starts[function])
    for term in terms:
        match function:
            case "sum":
                found = found + term
            case "max":
                found = torch.maximum(found, term)
            case _:
                found = torch.minimum(found, term)
    return found


def test_the_machine_differentiates_what_is_known() -> None:
    listing = program(
        'def square(x: Float[Array, "N"], a: float):\n'
        "    y = 0.0\n"
        "    for i in range(0, N):\n"
        "        y = y + a * x[i] ** 2\n"
        "    return y\n"
    )
    given = {"x": np.array([1.0, -2.0]), "a": 3.0}
    found = gradients(listing, {"N": 2}, given, {"y": np.array(2.0)})
    assert found["x"].tolist() == [12.0, -24.0]
    assert found["a"] == 10.0
