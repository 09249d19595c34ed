"""Whether two statements compute the same from their operands.

The two are walked side by side. Everything but names of storage must agree; where index
expressions stand as numbers, as subscripts or in conditions, the pairs that must be equal are
collected for the caller, who knows which instance stands for which.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import get_args

from looptrans.ir.condition import is_data_dependent
from looptrans.ir.index import Index
from looptrans.ir.program import Assign, If
from looptrans.ir.value import Access, Const, Whole
from looptrans.ir.walk import Placed

_INDEX = get_args(Index)


class Differs(Exception):
    """The statements are not the same; the message says where."""


@dataclass(frozen=True, slots=True)
class Equal:
    """Two index expressions that must have one value wherever the statements are the same.

    Attributes:
        before: The expression of the one.
        after: The expression of the other.
        bound: The variables of sums around them, which have one value in both.
    """

    before: Index
    after: Index
    bound: tuple[str, ...]


def needed(before: Placed, after: Placed, *, same_cells: bool) -> list[Equal]:
    """Return what must be equal for two statements to be the same.

    Args:
        before: The one.
        after: The other.
        same_cells: Whether they must also access the same arrays at the same subscripts; else
            where a value is kept is of no account, only how many operands there are.

    Raises:
        Differs: They are not the same, whatever the indices are.
    """
    one, other = before.node, after.node
    found: list[Equal] = []
    if isinstance(one, If) and isinstance(other, If):
        found += _equal(one.condition, other.condition, (), same_cells)
    elif isinstance(one, Assign) and isinstance(other, Assign):
        found += _equal(one.values, other.values, (), same_cells)
        found += _equal(one.targets, other.targets, (), same_cells)
    else:
        raise Differs(f"{after.label} is a guard on one side and a statement on the other")
    found += _guards(before, after, same_cells)
    return found


def _guards(before: Placed, after: Placed, same_cells: bool) -> Iterator[Equal]:
    """Compare what only the running program can decide."""
    one = [c for c in before.conditions if is_data_dependent(c)]
    other = [c for c in after.conditions if is_data_dependent(c)]
    if len(one) != len(other):
        raise Differs(f"{after.label} no longer stands under the same data-dependent guards")
    yield from _equal(tuple(one), tuple(other), (), same_cells)


def _equal(one: object, other: object, bound: tuple[str, ...], same_cells: bool) -> Iterator[Equal]:
    if isinstance(one, _INDEX) and isinstance(other, _INDEX):
        yield Equal(one, other, bound)
    elif isinstance(one, Access) and isinstance(other, Access):
        yield from _accesses(one, other, bound, same_cells)
    elif type(one) is not type(other):
        raise Differs(f"{_kind(one)} became {_kind(other)}")
    elif isinstance(one, tuple) and isinstance(other, tuple):
        if len(one) != len(other):
            raise Differs("the number of operands changed")
        for left, right in zip(one, other, strict=True):
            yield from _equal(left, right, bound, same_cells)
            name = getattr(left, "variable", None)
            if name is not None:  # a generator binds it for what comes after
                bound = (*bound, name)
    elif is_dataclass(one) and not isinstance(one, Const):
        inside = bound
        for field in fields(one):
            if field.compare:
                left, right = getattr(one, field.name), getattr(other, field.name)
                yield from _equal(left, right, inside, same_cells)
                if field.name == "generators":
                    inside = (*inside, *(generator.variable for generator in left))
                elif field.name == "variable":
                    inside = (*inside, left)
    elif one != other:
        raise Differs(f"{one} became {other}")


def _accesses(
    one: Access, other: Access, bound: tuple[str, ...], same_cells: bool
) -> Iterator[Equal]:
    if not same_cells:
        if one.rank != other.rank:
            raise Differs(f"{one.array} is a row on one side and a number on the other")
        return
    if one.array != other.array or len(one.subscripts) != len(other.subscripts):
        raise Differs(f"{one.array} became {other.array}")
    for left, right in zip(one.subscripts, other.subscripts, strict=True):
        if isinstance(left, Whole) != isinstance(right, Whole):
            raise Differs(f"a whole dimension of {one.array} became a single index")
        if not isinstance(left, Whole) and not isinstance(right, Whole):
            yield Equal(left, right, bound)


def _kind(thing: object) -> str:
    return type(thing).__name__ if is_dataclass(thing) else repr(thing)
