"""What a guard lets through in one iteration of a loop at most, added to the 0 that is there.

z = 0.0                                z = 0.0
for v:                           ->    for v:
    if v == y[t]: z = x[t, v]              if v == y[t]: z = z + x[t, v]

Where the guard holds for one v alone, 0 is what the statement finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TypeAlias

from looptrans.algebra.positional.values import is_number
from looptrans.ir.affine import difference, form_of
from looptrans.ir.condition import ALWAYS, Condition, Relation, conjunction, conjuncts
from looptrans.ir.index import Index, Var, lets, opaque_terms, plain, variables
from looptrans.ir.program import Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.value import (
    Access,
    Binary,
    Create,
    Range,
    Read,
    Select,
    Value,
    Whole,
    arrays_read,
)
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import nodes, targets_in
from looptrans.transforms.editing.accesses import listed

# A cell as it is known: an array and its subscripts, where these are variables of loops that have
# ended their ranges; or all of an array.
_Cell: TypeAlias = tuple[str, tuple[Index | Range, ...] | None]


@dataclass(frozen=True, slots=True)
class Picked:
    """A program that adds what a guard picks.

    Attributes:
        program: The program afterwards.
        arrays: Where it is added.
    """

    program: Program
    arrays: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"add what a guard lets through to {listed(self.arrays)}, which is 0 until then"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "what is added to is 0"
        return Certificate("storage", law, "legal", "the guard holds in one iteration at most")


def with_picks_added(program: Program) -> Picked | None:
    """Add what a guard lets through in one iteration of a loop at most.

    The cell is 0 before the loop, and nothing else writes to it.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such statement.
    """
    picking = _Picking(program)
    body = picking.body(program.body, (), frozenset())
    arrays = tuple(dict.fromkeys(picking.found))
    return Picked(replace(program, body=body), arrays) if arrays else None


@dataclass(frozen=True, slots=True)
class _Inside:
    """Where a statement stands in the loop that goes over what is picked from.

    Attributes:
        loop: That loop.
        outer: The loops around it.
        inner: The loops inside it, around the statement.
        condition: What holds at the statement.
    """

    loop: Loop
    outer: tuple[Loop, ...]
    inner: tuple[Loop, ...] = ()
    condition: Condition = ALWAYS

    def under(self, condition: Condition) -> _Inside:
        return replace(self, condition=conjunction(self.condition, condition))

    def picks(self, condition: Condition, written: Collection[str]) -> bool:
        """Tell whether a condition, here, holds in one iteration of the loop at most."""
        own = {self.loop.variable, *(loop.variable for loop in self.inner)}
        if len(own) <= len(self.inner):
            return False
        for part in conjuncts(conjunction(self.condition, condition)):
            if not isinstance(part, Relation) or part.op != "==":
                continue
            terms = form_of(difference(plain(part.left), plain(part.right))).terms
            others = [term for term in terms if term != Var(self.loop.variable)]
            if len(others) < len(terms) and all(_stays(term, own, written) for term in others):
                return True
        return False


class _Picking:
    def __init__(self, program: Program) -> None:
        targets = [target.array for target in targets_in(program.body)]
        self.found: list[str] = []
        self.writes = Counter(targets)
        self.floats = program.float_names
        self.zeros = {
            node.array
            for node in nodes(program.body)
            if isinstance(node, Declaration) and _is_zeros(node.creation)
        }

    def body(
        self, body: tuple[Node, ...], outer: tuple[Loop, ...], cleared: frozenset[_Cell]
    ) -> tuple[Node, ...]:
        """Return statements anew; some cells are 0 before them, and set nowhere else but there."""
        found: list[Node] = []
        for node in body:
            match node:
                case Loop():
                    picked = self.loop(node, outer, cleared)
                    deeper = self.body(picked.body, (*outer, node), frozenset())
                    found.append(replace(picked, body=deeper))
                case If():
                    then = self.body(node.body, outer, cleared)
                    orelse = self.body(node.orelse, outer, cleared)
                    found.append(replace(node, body=then, orelse=orelse))
                case _:
                    found.append(node)
            cell = _cleared(node, ())
            cleared = cleared if cell is None else cleared | {cell}
        return tuple(found)

    def loop(self, loop: Loop, outer: tuple[Loop, ...], cleared: frozenset[_Cell]) -> Loop:
        """Return a loop with sums for what it picks."""
        inside = _Inside(loop, outer)
        return replace(loop, body=tuple(self.picked(node, inside, cleared) for node in loop.body))

    def picked(self, node: Node, inside: _Inside, cleared: frozenset[_Cell]) -> Node:
        match node:
            case Loop():
                inner = replace(inside, inner=(*inside.inner, node))
                body = tuple(self.picked(part, inner, cleared) for part in node.body)
                return replace(node, body=body)
            case If():
                under = inside.under(node.condition)
                return replace(
                    node,
                    body=tuple(self.picked(part, under, cleared) for part in node.body),
                    orelse=tuple(self.picked(part, inside, cleared) for part in node.orelse),
                )
            case Assign(targets=(target,), values=(value,)):
                added = self.added(target, value, inside, cleared)
                return node if added is None else replace(node, values=(added,))
            case _:
                return node

    def added(
        self, target: Access, value: Value, inside: _Inside, cleared: frozenset[_Cell]
    ) -> Value | None:
        """Return a value and what is there, where it is set once at most and 0 is there."""
        own = Read(target)
        condition: Condition = ALWAYS
        match value:
            case Select(condition, chosen, otherwise) if otherwise == own:
                put = chosen
            case _:
                put = value
        if target.array in arrays_read(put) or target.array not in self.floats:
            return None
        if not inside.picks(condition, self.writes) or not self.is_zero(target, inside, cleared):
            return None
        self.found.append(target.array)
        total = Binary("+", own, put)
        return total if put is value else Select(condition, total, own)

    def is_zero(self, target: Access, inside: _Inside, cleared: frozenset[_Cell]) -> bool:
        """Tell whether a cell is 0 before the loop, and each for one iteration of loops inside."""
        own = inside.loop.variable
        if any(not isinstance(s, Whole) and own in variables(s) for s in target.subscripts):
            return False
        if not all(Var(loop.variable) in target.subscripts for loop in inside.inner):
            return False
        cells: set[_Cell] = {(target.array, None)}
        if not target.rank:
            cells.add(_cell(target, inside.inner))
        if cells & cleared:
            return self.writes[target.array] == 2
        around = all(Var(loop.variable) in target.subscripts for loop in inside.outer)
        return around and target.array in self.zeros and self.writes[target.array] == 1


def _is_zeros(creation: Create) -> bool:
    fill = creation.fill
    return creation.function == "zeros" or (fill is not None and is_number(fill, 0.0))


def _cleared(node: Node, around: tuple[Loop, ...]) -> _Cell | None:
    """Return what a statement, or a loop of nothing else, sets to 0; no indices for all of it."""
    match node:
        case Loop(body=(inner,)):
            return _cleared(inner, (*around, node))
        case Assign(targets=(target,), values=(Create() as creation,)) if not around:
            return (target.array, None) if _is_zeros(creation) else None
        case Assign(targets=(target,), values=(value,)) if is_number(value, 0.0):
            if target.rank:
                return None
            # Once each: A[d, d] for all d is not all of A.
            if all(target.subscripts.count(Var(loop.variable)) == 1 for loop in around):
                return _cell(target, around)
    return None


def _cell(target: Access, inner: tuple[Loop, ...]) -> _Cell:
    """Return a cell with the ranges of the loops around it in the place of their variables."""
    ranges: dict[Index, Range] = {Var(loop.variable): loop.range for loop in inner}
    return target.array, tuple(ranges.get(s, s) for s in target.indices)


def _stays(term: Index, changing: set[str], written: Collection[str]) -> bool:
    """Tell whether a term is the same while loops run, and while arrays are written."""
    reads = any(opaque.array in written for opaque in opaque_terms(term))
    return not (changing.intersection(variables(term)) or lets(term) or reads)
