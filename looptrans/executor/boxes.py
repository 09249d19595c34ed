"""Which cells a program touches, found by running its index expressions alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from looptrans.executor.contracts import Integers, OutsideArray, elements
from looptrans.ir.condition import (
    Condition,
    Data,
    Every,
    Not,
    Relation,
    Some,
    approximated,
    compared,
    walk_condition,
)
from looptrans.ir.evaluate import Evaluator, Unknown
from looptrans.ir.index import Arith, Index, opaque_terms, walk
from looptrans.ir.index import variables as variables_of
from looptrans.ir.program import (
    Assign,
    Atomic,
    Barrier,
    BlockReduce,
    Declaration,
    If,
    Loop,
    Node,
    Program,
)
from looptrans.ir.value import (
    Access,
    Generator,
    Holds,
    IndexValue,
    Read,
    Reduce,
    Select,
    Value,
    Whole,
    value_children,
    walk_value,
)
from looptrans.ir.walk import accesses, loops, placed

Variables = Mapping[str, int]


@dataclass(slots=True)
class Boxes:
    """The bounding box of the subscripts of every array.

    Where a condition depends on data, both branches are taken. What depends on an integer array
    that is not known is left out.

    Attributes:
        sizes: The values of the integer parameters.
        integers: The integer arrays that are known.
        extents: For each array, one more than the largest subscript of each dimension.
    """

    sizes: Mapping[str, int]
    integers: Mapping[str, Integers]
    extents: dict[str, list[int]] = field(default_factory=dict)
    _evaluator: Evaluator = field(init=False)
    _straight: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._evaluator = Evaluator(self.sizes, self._element)

    def run(self, program: Program) -> None:
        """Go through a program and its contracts.

        Raises:
            ZeroDivisionError: An index expression divides by zero.
        """
        for contract in program.contracts:
            for variables in self._instances(contract.generators, {}):
                for side in compared(contract.condition):
                    self._index(side, variables)
        self._straight = _straight_variables(program)
        self._body(program.body, {})

    def _values(self, variable: str, values: range) -> Iterable[int]:
        """Return the values of a variable that decide: the ends, where all else is alike."""
        if variable in self._straight and len(values) > 2:
            return (values[0], values[-1])
        return values

    def _element(self, array: str, cell: tuple[int, ...]) -> int:
        self._touch(array, cell)
        if array not in self.integers:
            raise Unknown(array)
        try:
            return elements(self.integers, array, cell)
        except OutsideArray as outside:
            raise Unknown(array) from outside

    def _touch(self, array: str, cell: tuple[int | None, ...]) -> None:
        box = self.extents.setdefault(array, [0] * len(cell))
        for dimension, at in enumerate(cell):
            if at is not None:
                box[dimension] = max(box[dimension], at + 1)

    def _index(self, index: Index, variables: Variables) -> int | None:
        try:
            return self._evaluator.index(index, variables)
        except Unknown:
            return None

    def _may(self, condition: Condition, variables: Variables, *, over: bool) -> bool:
        try:
            return self._evaluator.holds(approximated(condition, over=over), variables)
        except Unknown:
            return over

    def _instances(
        self, generators: tuple[Generator, ...], variables: Variables
    ) -> list[dict[str, int]]:
        found = [dict(variables)]
        for generator in generators:
            found = [
                {**outer, generator.variable: value}
                for outer in found
                for value in self._values(
                    generator.variable,
                    self._range(generator.range.start, generator.range.stop, outer)[
                        :: abs(generator.range.step)
                    ],
                )
            ]
            for inner in found:
                self._condition(generator.condition, inner)
            found = [v for v in found if self._may(generator.condition, v, over=True)]
        return found

    def _range(self, start: Index, stop: Index, variables: Variables) -> range:
        low, high = self._index(start, variables), self._index(stop, variables)
        if low is None or high is None:
            return range(0)
        return range(low, high)

    def _body(self, body: tuple[Node, ...], variables: dict[str, int]) -> None:
        for node in body:
            match node:
                case Loop():
                    start = self._index(node.range.start, variables)
                    stop = self._index(node.range.stop, variables)
                    if start is None or stop is None:
                        continue
                    for value in self._values(node.variable, range(start, stop, node.range.step)):
                        self._body(node.body, {**variables, node.variable: value})
                case If(condition, then, otherwise):
                    self._condition(condition, variables)
                    if self._may(condition, variables, over=True):
                        self._body(then, variables)
                    if not self._may(condition, variables, over=False):
                        self._body(otherwise, variables)
                case Assign():
                    for each in node.values:
                        self._value(each, variables)
                    for target in node.targets:
                        self._access(target, variables)
                case Atomic() | BlockReduce():
                    self._body(node.body, variables)
                case Declaration() | Barrier():
                    pass

    def _access(self, access: Access, variables: Variables) -> None:
        cell = tuple(
            None if isinstance(s, Whole) else self._index(s, variables) for s in access.subscripts
        )
        self._touch(access.array, cell)

    def _condition(self, condition: Condition, variables: Variables) -> None:
        match condition:
            case Data(value):
                self._value(value, variables)
            case Relation(_, left, right):
                self._index(left, variables)
                self._index(right, variables)
            case Every(parts):
                for part in parts:
                    self._condition(part, variables)
                    if not self._may(part, variables, over=True):
                        return
            case Some(parts):
                for part in parts:
                    self._condition(part, variables)
                    if self._may(part, variables, over=False):
                        return
            case Not(part):
                self._condition(part, variables)
            case _:
                pass

    def _value(self, value: Value, variables: Variables) -> None:
        match value:
            case Read(access):
                self._access(access, variables)
            case IndexValue(index):
                self._index(index, variables)
            case Holds(condition):
                self._condition(condition, variables)
            case Select(condition, chosen, otherwise):
                self._condition(condition, variables)
                if self._may(condition, variables, over=True):
                    self._value(chosen, variables)
                if not self._may(condition, variables, over=False):
                    self._value(otherwise, variables)
            case Reduce(_, generators, body):
                for inner in self._instances(generators, variables):
                    self._value(body, inner)
            case _:
                for child in value_children(value):
                    self._value(child, variables)


def _straight_variables(program: Program) -> frozenset[str]:
    """Return the variables that stand in subscripts alone, and there as in `2 * i + j`.

    Nothing else depends on such a variable, and a subscript is largest at one of its ends.
    """
    found = {loop.variable for loop in loops(program)}
    bent: set[str] = set()
    for place in placed(program):
        bent |= set(_bending(place.node))
        for loop in place.loops:
            bent |= loop.range.variables
        for condition in place.conditions:
            bent |= set(_compared(condition))
        for relation in accesses(place.node):
            bent |= set(_compared(relation.condition))
            for generator in relation.generators:
                found.add(generator.variable)
                bent |= generator.range.variables
                bent |= set(_compared(generator.condition))
            for subscript in relation.access.subscripts:
                bent |= set() if isinstance(subscript, Whole) else set(_bent(subscript))
    return frozenset(found - bent)


def _bending(node: Assign | If) -> Iterator[str]:
    """Yield the variables that decide what numbers of a statement are read from memory."""
    if isinstance(node, If):
        yield from _compared(node.condition)
        return
    for value in node.values:
        for part in walk_value(value):
            if isinstance(part, IndexValue):
                yield from _bent(part.index)
            elif isinstance(part, Select | Holds):
                yield from _compared(part.condition)


def _compared(condition: Condition) -> Iterator[str]:
    for part in walk_condition(condition):
        if isinstance(part, Relation):
            yield from (*variables_of(part.left), *variables_of(part.right))
        elif isinstance(part, Data):
            for each in walk_value(part.value):
                if isinstance(each, IndexValue):
                    yield from _bent(each.index)


def _bent(index: Index) -> Iterator[str]:
    """Yield the variables in which an index is not straight."""
    for term in opaque_terms(index):
        for argument in term.arguments:
            yield from variables_of(argument)
    for part in walk(index):
        if isinstance(part, Arith):
            both = variables_of(part.left) and variables_of(part.right)
            if part.op == "%" or (part.op in ("*", "//") and both):
                yield from variables_of(part)
