"""Whole rows written out: every value of a program is a number then.

q_i = Q[i]                     for e in range(0, E): q_i[e] = Q[i, e]
S_ij = q_i @ k_j        ->     S_ij = sum(q_i[e] * k_j[e] for e in range(0, E))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from looptrans.derivation.step import NotDone
from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import Index, Int, Param, Var
from looptrans.ir.listing import access_text, value_text
from looptrans.ir.monoids import Folding
from looptrans.ir.program import Array, Assign, Atomic, BlockReduce, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced, replaced_in_condition
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Create,
    Generator,
    Range,
    Read,
    Reduce,
    Select,
    Value,
    Whole,
    rank_of,
    reductions,
    walk_value,
)
from looptrans.ir.walk import accesses, assignments, loops_in, nodes
from looptrans.transforms.editing.finish import finished

Execution: TypeAlias = Literal["sequential", "parallel"]


class RowsStay(NotDone):
    """A row that cannot be written out.

    Attributes:
        label: The statement.
    """

    def __init__(self, reason: str, label: str) -> None:
        super().__init__(reason)
        self.label = label


def scalar_form(program: Program, execution: Execution = "sequential") -> Program:
    """Return a program that means the same and has no whole rows.

    Args:
        program: The program.
        execution: How the loops over elements run.

    Raises:
        RowsStay: It cannot be told how long a row is.
    """
    if not any(_has_rows(node) for node in nodes(program.body)):
        return program
    writer = _Writer(program, execution)
    body = writer.body(program.body)
    arrays = tuple(
        replace(array, shape=writer.shapes.get(array.name, array.shape)) for array in program.arrays
    )
    return replace(program, body=body, arrays=arrays)


def without_rows_that_move(program: Program) -> Program:
    """Return a program without whole rows, where one of them hangs on what it was before.

        O[i] += p * V[j]    ->    for d in range(0, D): O[i, d] += p * V[j, d]

    As it is where the length of a row is not told.
    """
    moving = any(
        isinstance(node, Assign)
        and any(t.rank and Read(t) in walk_value(v) for t in node.targets for v in node.values)
        for node in nodes(program.body)
    )
    if not moving:
        return program
    try:
        return finished(scalar_form(program), {})[0]
    except RowsStay:
        return program


def _has_rows(node: Node) -> bool:
    return isinstance(node, Assign | If) and any(each.access.rank for each in accesses(node))


@dataclass(slots=True)
class _Writer:
    program: Program
    execution: Execution
    shapes: dict[str, tuple[Index | None, ...]] = field(default_factory=dict)
    names: dict[Index, str] = field(default_factory=dict)
    label: str = ""

    def body(self, body: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(self._node(node) for node in body)

    def _node(self, node: Node) -> Node:
        if isinstance(node, Assign | If):
            self.label = node.label or ""
        match node:
            case Assign():
                return self._assign(node)
            case If():
                return replace(
                    node,
                    condition=replaced_in_condition(node.condition, self._number),
                    body=self.body(node.body),
                    orelse=self.body(node.orelse),
                )
            case Loop() | Atomic() | BlockReduce():
                return replace(node, body=self.body(node.body))
            case _:
                return node

    def _assign(self, node: Assign) -> Node:
        for value in node.values:
            if isinstance(value, Create):
                made = f"{node.label} makes an array where it stands, {value_text(value)}"
                raise RowsStay(f"{made}; kernels have those made before the nest", node.label)
        values = tuple(replaced(value, self._number) for value in node.values)
        ranks = {target.rank for target in node.targets}
        if ranks == {0}:
            return replace(node, values=values)
        if ranks != {1}:
            raise RowsStay(f"{node.label} sets rows of several dimensions at once", node.label)
        extent = self._extent(node)
        for target in node.targets:
            self._shape(target, extent)
        variable = self._variable(extent)
        inner = replace(
            node,
            targets=tuple(_at(target, variable) for target in node.targets),
            values=tuple(self._element(value, variable) for value in values),
        )
        return Loop(variable, Range(Int(0), extent), (inner,), self.execution)

    def _shape(self, target: Access, extent: Index) -> None:
        array = self.program.array(target.array)
        shape = self.shapes.get(array.name, array.shape)
        self.shapes[array.name] = tuple(
            extent if isinstance(subscript, Whole) and known is None else known
            for subscript, known in zip(target.subscripts, shape, strict=True)
        )

    def _extent(self, node: Assign) -> Index:
        parts = [*node.values, *(Read(target) for target in node.targets)]
        for value in parts:
            for found in self._extents(value):
                return found
        raise self._of_unknown_length(node.label, parts)

    def _of_unknown_length(self, label: str, values: Iterable[Value]) -> RowsStay:
        """Say which row is of a length that nothing tells, and what to declare."""
        reads = [p for v in values for p in walk_value(v) if isinstance(p, Read) and p.access.rank]
        arrays = [self.program.array(read.access.array) for read in reads]
        told = next((a for a in (*arrays, *self.program.arrays) if _is_undeclared(a)), None)
        remedy = told and f'; declare its shape, {told.name}: Float[Array, "…"]'
        row = access_text(reads[0].access)
        reason = f"{label}: it is not known how long the row {row} is{remedy or ''}"
        return RowsStay(reason, label)

    def _extents(self, value: Value) -> Iterator[Index]:
        for part in walk_value(value):
            if isinstance(part, Read):
                array = self.program.array(part.access.array)
                shape = self.shapes.get(array.name, array.shape)
                for subscript, extent in zip(part.access.subscripts, shape, strict=True):
                    if isinstance(subscript, Whole) and extent is not None:
                        yield extent

    def _variable(self, extent: Index) -> str:
        """Return the variable for the rows of one length: the size's name in small letters."""
        if extent not in self.names:
            stem = extent.name.lower() if isinstance(extent, Param) else "e"
            taken = {array.name for array in self.program.arrays}
            taken |= {parameter.name for parameter in self.program.parameters}
            taken |= {n.variable for n in loops_in(self.program.body)}
            taken |= set(self.names.values())
            taken |= {
                name
                for node in assignments(self.program.body)
                for value in node.values
                for part in reductions(value)
                for name in (g.variable for g in part.generators)
            }
            name, number = stem, 1
            while name in taken:
                number += 1
                name = f"{stem}_{number}"
            self.names[extent] = name
        return self.names[extent]

    def _number(self, value: Value) -> Value | None:
        """Return what a reduction of rows is as a sum over their elements; None for the rest."""
        match value:
            case Binary("@", left, right):
                return self._reduced("sum", Binary("*", left, right))
            case Call("sum" | "max" | "min" as function, (row,)) if rank_of(row) == 1:
                return self._reduced(function, row)
            case _:
                return None

    def _reduced(self, function: Folding, row: Value) -> Value:
        extent = next(self._extents(row), None)
        if extent is None:
            raise self._of_unknown_length(self.label, (row,))
        variable = self._variable(extent)
        body = self._element(replaced(row, self._number), variable)
        generator = Generator(variable, Range(Int(0), extent), ALWAYS)
        return Reduce(function, (generator,), body)

    def _element(self, value: Value, variable: str) -> Value:
        """Return one element of a row."""

        def change(part: Value) -> Value | None:
            if isinstance(part, Reduce):
                return part
            if isinstance(part, Read) and part.access.rank:
                return Read(_at(part.access, variable))
            if isinstance(part, Call) and part.function == "copy":
                return self._element(part.arguments[0], variable)
            if isinstance(part, Select):
                return Select(
                    part.condition,
                    self._element(part.chosen, variable),
                    self._element(part.otherwise, variable),
                )
            return None

        return replaced(value, change)


def _is_undeclared(array: Array) -> bool:
    return array.role == "input" and (None in array.shape or len(array.shape) != array.rank)


def _at(access: Access, variable: str) -> Access:
    """Return the access with its one whole dimension at a variable."""
    return Access(
        access.array,
        tuple(Var(variable) if isinstance(s, Whole) else s for s in access.subscripts),
    )
