"""Which cells a program touches, found by running its index expressions alone."""

from __future__ import annotations

from collections.abc import Mapping
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
    walk_condition,
)
from looptrans.ir.evaluate import Evaluator, Unknown
from looptrans.ir.index import Index
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
)

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

    def __post_init__(self) -> None:
        self._evaluator = Evaluator(self.sizes, self._element)

    def run(self, program: Program) -> None:
        """Go through a program and its contracts.

        Raises:
            ZeroDivisionError: An index expression divides by zero.
        """
        for contract in program.contracts:
            for variables in self._instances(contract.generators, {}):
                for part in walk_condition(contract.condition):
                    if isinstance(part, Relation):
                        self._index(part.left, variables)
                        self._index(part.right, variables)
        self._body(program.body, {})

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
                for value in self._range(generator.range.start, generator.range.stop, outer)[
                    :: abs(generator.range.step)
                ]
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
                    for value in range(start, stop, node.range.step):
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
