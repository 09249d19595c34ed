"""Cells that an iteration touches: when two subscripts name the same one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from looptrans.ir.affine import form_of, simplified
from looptrans.ir.condition import Condition, with_operands
from looptrans.ir.index import (
    Arith,
    Extremum,
    Index,
    Int,
    Let,
    Neg,
    Var,
    children,
    plain,
    rebuild,
    substitute,
)
from looptrans.ir.index import variables as index_variables
from looptrans.ir.rewrite import range_changed, replaced
from looptrans.ir.value import (
    Access,
    Generator,
    Holds,
    IndexValue,
    Range,
    Read,
    Reduce,
    Select,
    Value,
    Whole,
)

Linear = dict[Index | None, int]

ALL = "@"
"""How the variables begin that run over all of a dimension, and that no loop has."""


def linear(index: Index) -> Linear:
    """Return an index as whole multiples of its terms; the constant stands under None.

    What is not affine is a term of its own.
    """
    match index:
        case Int(value):
            return {None: value} if value else {}
        case Let(_, value):
            return linear(value)
        case Neg(operand):
            return _scaled(linear(operand), -1)
        case Arith("+", left, right):
            return _sum(linear(left), linear(right))
        case Arith("-", left, right):
            return _sum(linear(left), _scaled(linear(right), -1))
        case Arith("*", left, right):
            a, b = linear(left), linear(right)
            for one, other in ((a, b), (b, a)):
                if set(one) <= {None}:
                    return _scaled(other, one.get(None, 0))
            return {index: 1}
        case _:
            parts = children(index)
            return {rebuild(index, tuple(plain(part) for part in parts)) if parts else index: 1}


def _sum(a: Linear, b: Linear) -> Linear:
    total = {term: a.get(term, 0) + b.get(term, 0) for term in (*a, *b)}
    return {term: factor for term, factor in total.items() if factor}


def _scaled(a: Linear, factor: int) -> Linear:
    return {term: factor * value for term, value in a.items() if factor * value}


def same_index(a: Index, b: Index) -> bool:
    """Tell whether two indices are equal as affine expressions."""
    return linear(a) == linear(b)


def same_range(a: Range, b: Range) -> bool:
    """Tell whether two ranges are written alike."""
    return a.step == b.step and same_index(a.start, b.start) and same_index(a.stop, b.stop)


def same_cell(a: Access, b: Access) -> bool:
    """Tell whether two accesses surely name the same cell (or the same row)."""
    return a.array == b.array and all(
        isinstance(s, Whole) == isinstance(t, Whole)
        and (isinstance(s, Whole) or isinstance(t, Whole) or same_index(s, t))
        for s, t in zip(a.subscripts, b.subscripts, strict=True)
    )


def are_apart(a: Access, b: Access) -> bool:
    """Tell whether two accesses of one array are at different numbers somewhere, as dX[2, i]."""
    return any(
        isinstance(s, Int) and isinstance(t, Int) and s != t
        for s, t in zip(a.subscripts, b.subscripts, strict=False)
    )


def mentions(access: Access, variable: str) -> bool:
    """Tell whether the subscripts of an access mention a loop variable."""
    return any(variable in index_variables(index) for index in access.indices)


def is_new_each_time(access: Access, variable: str) -> bool:
    """Tell whether a subscript is affine in the variable and moves with it."""
    for index in access.indices:
        terms = linear(index)
        others = [term for term in terms if term not in (None, Var(variable))]
        if Var(variable) in terms and not any(
            term is not None and variable in index_variables(term) for term in others
        ):
            return True
    return False


def is_own_cell(uses: Sequence[Access], variable: str, outer: Collection[str]) -> bool:
    """Tell whether iterations of a loop that touch these cells never touch the same one.

    One subscript is the same in all of them, moves with the loop's variable, and depends on
    nothing else but variables of loops around it.

    Args:
        uses: Accesses to one array.
        variable: The variable of the loop.
        outer: The variables of the loops around it.
    """
    for number, subscript in enumerate(uses[0].subscripts):
        if isinstance(subscript, Whole):
            continue
        cell = Access(uses[0].array, (subscript,))
        others = index_variables(subscript)
        if (
            is_new_each_time(cell, variable)
            and set(others) <= {variable, *outer}
            and all(same_cell(cell, Access(use.array, (use.subscripts[number],))) for use in uses)
        ):
            return True
    return False


def moved(access: Access, indices: Mapping[str, Index]) -> Access:
    """Replace loop variables in the subscripts of an access."""
    return Access(
        access.array,
        tuple(s if isinstance(s, Whole) else substitute(s, indices) for s in access.subscripts),
    )


def value_moved(value: Value, indices: Mapping[str, Index]) -> Value:
    """Replace loop variables in a value; variables that a reduction binds are left alone."""

    def change(part: Value) -> Value | None:
        match part:
            case Read(access):
                return Read(moved(access, indices))
            case IndexValue(index):
                return IndexValue(substitute(index, indices))
            case Holds(condition):
                return Holds(condition_moved(condition, indices))
            case Select(condition, chosen, otherwise):
                return Select(
                    condition_moved(condition, indices),
                    value_moved(chosen, indices),
                    value_moved(otherwise, indices),
                )
            case Reduce(function, generators, body):
                bound = {g.variable for g in generators}
                inside = {name: index for name, index in indices.items() if name not in bound}
                return Reduce(
                    function,
                    tuple(
                        Generator(
                            g.variable,
                            range_changed(g.range, lambda end: substitute(end, inside)),
                            condition_moved(g.condition, inside),
                        )
                        for g in generators
                    ),
                    value_moved(body, inside),
                )
            case _:
                return None

    return replaced(value, change)


def range_moved(bounds: Range, indices: Mapping[str, Index]) -> Range:
    """Replace variables in a range."""
    if not indices:
        return bounds
    return range_changed(bounds, lambda end: simplified(substitute(end, indices)))


def condition_moved(condition: Condition, indices: Mapping[str, Index]) -> Condition:
    """Replace loop variables in a condition."""
    return with_operands(
        condition,
        index=lambda index: substitute(index, indices),
        value=lambda value: value_moved(value, indices),
    )


@dataclass(frozen=True, slots=True)
class Family:
    """A cell, or one cell for each iteration of inner loops that have ended.

    Attributes:
        access: The cell, in the variables of the inner loops.
        over: Those variables with their ranges.
    """

    access: Access
    over: tuple[tuple[str, Range], ...] = ()

    def matched(self, access: Access, ranges: Mapping[str, Range]) -> dict[str, Index] | None:
        """Return the indices of the member an access names; None if it is not surely one.

        Args:
            access: What is read.
            ranges: The ranges of the inner loops and reductions around the reading.
        """
        if access.array != self.access.array:
            return None
        bound: dict[str, Index] = {}
        over = dict(self.over)
        for mine, theirs in zip(self.access.subscripts, access.subscripts, strict=True):
            if not isinstance(mine, Var) or mine.name not in over:
                continue
            if mine.name.startswith(ALL) and not isinstance(theirs, Whole):
                bound[mine.name] = theirs
            elif isinstance(theirs, Var):
                known = ranges.get(theirs.name)
                if known is None or not same_range(known, over[mine.name]):
                    return None
                bound[mine.name] = theirs
        return bound if same_cell(moved(self.access, bound), access) else None


def is_looked_up(access: Access) -> bool:
    """Tell whether a row is looked into: one index tells the row, another one hangs on it, too.

    So is T[i, min(i - j, k)], and neither T[i, j] nor packed rows, T[start[b] + i, e].
    """
    for number, index in enumerate(access.indices):
        own = set(index_variables(index))
        others = (*access.indices[:number], *access.indices[number + 1 :])
        if len(own) > 1 and any(own & set(index_variables(other)) for other in others):
            return True
    return False


def added_up(index: Index) -> dict[str, None]:
    """Return the variables that a subscript adds up: i and j of `i - j`, `max(j - i, -k)`."""
    found: dict[str, None] = {}
    for term in form_of(index).terms:
        match term:
            case Var(name):
                found[name] = None
            case Extremum(arguments=arguments):
                for argument in arguments:
                    found |= added_up(argument)
            case _:
                pass
    return found
