"""Views of a Program: its statements in place, and what each of them accesses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeGuard

from looptrans.ir.condition import (
    ALWAYS,
    Condition,
    Data,
    Every,
    Not,
    Relation,
    Some,
    conjunction,
    is_data_dependent,
    negation,
)
from looptrans.ir.domain import Domain
from looptrans.ir.index import Index, lets
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
    Section,
)
from looptrans.ir.remember import remembered, remembered_of_parts
from looptrans.ir.value import (
    Access,
    Generator,
    Holds,
    IndexValue,
    Read,
    Reduce,
    Select,
    Value,
    reductions,
    value_children,
)


@dataclass(frozen=True, slots=True)
class AccessRelation:
    """One access of a statement: which cells an instance touches, and when.

    Attributes:
        access: The array and its subscripts.
        is_write: A write, else a read.
        condition: What must hold, beside the statement's own guards, for the access to happen
            (the branch of a ternary, say).
        generators: The bound variables of reductions the access stands in.
    """

    access: Access
    is_write: bool
    condition: Condition = ALWAYS
    generators: tuple[Generator, ...] = ()

    @property
    def is_may(self) -> bool:
        """Whether only the running program knows if the access happens."""
        return is_data_dependent(self.condition) or any(
            is_data_dependent(generator.condition) for generator in self.generators
        )


@dataclass(frozen=True, slots=True)
class Placed:
    """A statement, or the data-dependent condition of a guard, with all that surrounds it.

    Attributes:
        label: `S3`, or `G1` for a condition.
        node: The statement, or the guard.
        loops: The loops around it, outermost first.
        conditions: The guards around it, outermost first, as they must hold.
        position: Its place in the tree, a number for each level; positions compare as the text
            orders them.
        loop_positions: The positions of its loops, which tell two loops apart.
        phases: For each of its loops, how many barriers of that loop stand before it.
        sections: The atomic and reducing blocks around it, outermost first.
        section_positions: Their positions.
        branches: The positions of the branches of guards around it, outermost first; the other
            branch of a guard differs in the last number, 1 or 2.
    """

    label: str
    node: Assign | If
    loops: tuple[Loop, ...]
    conditions: tuple[Condition, ...]
    position: tuple[int, ...]
    loop_positions: tuple[tuple[int, ...], ...]
    phases: tuple[int, ...] = ()
    sections: tuple[Section, ...] = ()
    section_positions: tuple[tuple[int, ...], ...] = ()
    branches: tuple[tuple[int, ...], ...] = ()

    @property
    def domain(self) -> Domain:
        """The instances that run: bounds and predicate."""
        return Domain(self.loops, self.conditions)

    @property
    def is_may(self) -> bool:
        """Whether only the running program knows if an instance of the domain runs."""
        return self.domain.is_may


@remembered
def placed(program: Program) -> tuple[Placed, ...]:
    """Return every statement and data-dependent condition in textual order."""
    return tuple(_placed(program.body, (), _Around()))


@dataclass(frozen=True, slots=True)
class _Around:
    """What surrounds a block; see `Placed`."""

    loops: tuple[Loop, ...] = ()
    conditions: tuple[Condition, ...] = ()
    loop_positions: tuple[tuple[int, ...], ...] = ()
    phases: tuple[int, ...] = ()
    sections: tuple[Section, ...] = ()
    section_positions: tuple[tuple[int, ...], ...] = ()
    branches: tuple[tuple[int, ...], ...] = ()

    def place(self, label: str, node: Assign | If, position: tuple[int, ...]) -> Placed:
        return Placed(
            label,
            node,
            self.loops,
            self.conditions,
            position,
            self.loop_positions,
            self.phases,
            self.sections,
            self.section_positions,
            self.branches,
        )


def _placed(body: tuple[Node, ...], position: tuple[int, ...], around: _Around) -> Iterator[Placed]:
    for number, node in enumerate(body):
        here = (*position, number)
        match node:
            case Assign():
                yield around.place(node.label, node, here)
            case Loop():
                inside = replace(
                    around,
                    loops=(*around.loops, node),
                    loop_positions=(*around.loop_positions, here),
                    phases=(*around.phases, 0),
                )
                yield from _placed(node.body, here, inside)
            case If():
                if node.label is not None:
                    yield around.place(node.label, node, (*here, 0))
                for branch, chosen, condition in (
                    ((*here, 1), node.body, node.condition),
                    ((*here, 2), node.orelse, negation(node.condition)),
                ):
                    inside = replace(
                        around,
                        conditions=(*around.conditions, condition),
                        branches=(*around.branches, branch),
                    )
                    yield from _placed(chosen, branch, inside)
            case Atomic() | BlockReduce():
                inside = replace(
                    around,
                    sections=(*around.sections, node),
                    section_positions=(*around.section_positions, here),
                )
                yield from _placed(node.body, here, inside)
            case Barrier():
                around = replace(around, phases=(*around.phases[:-1], around.phases[-1] + 1))
            case Declaration():
                pass


def loops(program: Program) -> tuple[Loop, ...]:
    """Return every loop in textual order."""
    return tuple(loops_in(program.body))


def is_parallel(program: Program) -> bool:
    """Tell whether a program has a parallel loop, so that it has more than one execution."""
    return any(loop.execution == "parallel" for loop in loops(program))


def inner_bodies(node: Node) -> tuple[tuple[Node, ...], ...]:
    """Return the blocks a node holds: none for a statement, two for a guard."""
    match node:
        case Loop() | Atomic() | BlockReduce():
            return (node.body,)
        case If():
            return (node.body, node.orelse)
        case _:
            return ()


def nodes(body: tuple[Node, ...]) -> Iterator[Node]:
    """Yield every node of a block in textual order, outer ones first."""
    for node in body:
        yield node
        for inner in inner_bodies(node):
            yield from nodes(inner)


def assignments(body: tuple[Node, ...]) -> list[Assign]:
    """Return the statements of a block and of all blocks in it."""
    return [node for node in nodes(body) if isinstance(node, Assign)]


def reductions_in(body: tuple[Node, ...]) -> Iterator[Reduce]:
    """Yield the sums, maxima and minima in what the statements of a block assign."""
    return (part for node in assignments(body) for v in node.values for part in reductions(v))


def sets_only(node: Node, arrays: Collection[str]) -> TypeGuard[Assign]:
    """Tell whether a node is a statement that sets nothing but some arrays."""
    return isinstance(node, Assign) and all(target.array in arrays for target in node.targets)


def loops_in(body: tuple[Node, ...]) -> list[Loop]:
    """Return the loops of a block and of all blocks in it, outer ones first."""
    return [node for node in nodes(body) if isinstance(node, Loop)]


@remembered_of_parts
def accesses(node: Assign | If) -> tuple[AccessRelation, ...]:
    """Return what a statement accesses: the reads in order of evaluation, then the writes.

    For a guard, the reads of its condition. Reads of integer arrays inside index expressions are
    opaque terms, not accesses; an integer scalar that stands in one (`Let`) is read.
    """
    found: list[AccessRelation] = []
    if isinstance(node, If):
        _condition_reads(node.condition, ALWAYS, (), found)
        return tuple(found)
    for value in node.values:
        _value_reads(value, ALWAYS, (), found)
    for target in node.targets:
        for index in target.indices:
            _index_reads(index, ALWAYS, (), found)
    found.extend(AccessRelation(target, is_write=True) for target in node.targets)
    return tuple(found)


def _index_reads(
    index: Index,
    condition: Condition,
    generators: tuple[Generator, ...],
    found: list[AccessRelation],
) -> None:
    for let in lets(index):
        found.append(AccessRelation(Access(let.name, ()), False, condition, generators))


def _condition_reads(
    tested: Condition,
    condition: Condition,
    generators: tuple[Generator, ...],
    found: list[AccessRelation],
) -> None:
    match tested:
        case Data(value):
            _value_reads(value, condition, generators, found)
        case Relation(_, left, right):
            _index_reads(left, condition, generators, found)
            _index_reads(right, condition, generators, found)
        case Not(part):
            _condition_reads(part, condition, generators, found)
        case Every(parts):
            for number, part in enumerate(parts):
                reached = conjunction(condition, *parts[:number])
                _condition_reads(part, reached, generators, found)
        case Some(parts):
            for number, part in enumerate(parts):
                reached = conjunction(condition, *(negation(p) for p in parts[:number]))
                _condition_reads(part, reached, generators, found)
        case _:
            pass


def _value_reads(
    value: Value,
    condition: Condition,
    generators: tuple[Generator, ...],
    found: list[AccessRelation],
) -> None:
    match value:
        case Read(access):
            for index in access.indices:
                _index_reads(index, condition, generators, found)
            found.append(AccessRelation(access, False, condition, generators))
        case IndexValue(index):
            _index_reads(index, condition, generators, found)
        case Holds(tested):
            _condition_reads(tested, condition, generators, found)
        case Select(tested, chosen, otherwise):
            _condition_reads(tested, condition, generators, found)
            _value_reads(chosen, conjunction(condition, tested), generators, found)
            _value_reads(otherwise, conjunction(condition, negation(tested)), generators, found)
        case Reduce(_, bound, body):
            inside = generators
            for generator in bound:
                for index in generator.range.ends:
                    _index_reads(index, condition, inside, found)
                inside = (*inside, Generator(generator.variable, generator.range, ALWAYS))
                _condition_reads(generator.condition, condition, inside, found)
                inside = (*inside[:-1], generator)
            _value_reads(body, condition, inside, found)
        case _:
            for child in value_children(value):
                _value_reads(child, condition, generators, found)


def read_by(node: Assign | If) -> set[str]:
    """Return the arrays and scalars that a statement, or the condition of a guard, reads."""
    return {relation.access.array for relation in accesses(node) if not relation.is_write}


def relations_in(body: tuple[Node, ...]) -> Iterator[AccessRelation]:
    """Yield what the statements and conditions of a block access, in textual order."""
    for node in nodes(body):
        if isinstance(node, Assign | If):
            yield from accesses(node)


def accesses_in(body: Iterable[Node]) -> Iterator[Access]:
    """Yield the cells that the statements and conditions of a block access, in textual order."""
    return (relation.access for relation in relations_in(tuple(body)))


def targets_in(body: tuple[Node, ...]) -> list[Access]:
    """Return the cells that the statements of a block write, in textual order."""
    return [target for node in assignments(body) for target in node.targets]


def read_in(body: tuple[Node, ...]) -> set[str]:
    """Return the arrays and scalars that the statements and conditions of a block read."""
    return {each.access.array for each in relations_in(body) if not each.is_write}


def written_in(body: tuple[Node, ...]) -> set[str]:
    """Return the arrays and scalars that the statements of a block write."""
    return {target.array for target in targets_in(body)}


def touched(body: tuple[Node, ...]) -> set[str]:
    """Return the arrays and scalars that a block reads or writes."""
    return read_in(body) | written_in(body)


@remembered
def written(program: Program) -> frozenset[str]:
    """Return the arrays and scalars that a program writes."""
    return frozenset(written_in(program.body))


@remembered
def live_out(program: Program) -> tuple[str, ...]:
    """Return the arrays whose last values can be seen from outside, in order of appearance.

    These are the names returned and the inputs that are written.
    """
    changed = written(program)
    return tuple(
        array.name
        for array in program.arrays
        if array.name in program.outputs or (array.role == "input" and array.name in changed)
    )
