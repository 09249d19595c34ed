"""Statements about rows written as statements about their elements.

O[i] = O[i] * a + p * V[j]    ->    O[i, t] = O[i, t] * a + p * V[j, t]    for every t
s = Q[i] @ K[j]               ->    s = sum(Q[i, t] * K[j, t] for t)
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.adjoint.reading.state import LoopAround, Place, State
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.ir.index import Index, Var
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    WHOLE,
    Access,
    Binary,
    Call,
    Generator,
    Read,
    Reduce,
    Value,
    Whole,
    rank_of,
    walk_value,
)


def by_elements(
    state: State, target: Access, value: Value, place: Place
) -> tuple[Access, Value, Place]:
    """Write a statement about a row as one about its elements."""
    value = _scalar_inside(state, value, place)
    if not target.rank:
        if rank_of(value):
            raise NotDifferentiated("a row is put into a single cell", place.label)
        return target, value, place
    if target.rank != 1:
        raise NotDifferentiated("it sets several rows at once", place.label)
    number = target.subscripts.index(WHOLE)
    if state.program.array(target.array).shape[number] is None and rank_of(value):
        state.rows[target.array, number] = _row_index(state, value, place).range.stop
    generator = state.index(target.array, number, "t")
    own = (*place.position, -1)
    loop = LoopAround(own, generator.variable, generator)
    around = replace(place.around, loops=(*place.around.loops, loop))
    here = Var(generator.variable)
    subscripts = tuple(here if isinstance(s, Whole) else s for s in target.subscripts)
    element = _element(value, here, place)
    return Access(target.array, subscripts), element, replace(place, around=around)


def _scalar_inside(state: State, value: Value, place: Place) -> Value:
    """Write products and reductions of rows as sums over an index."""

    def change(part: Value) -> Value | None:
        match part:
            case Binary("@", left, right):
                body = (left, right)
                generator = _row_index(state, part, place)
                here = Var(generator.variable)
                factors = [_element(_scalar_inside(state, p, place), here, place) for p in body]
                return Reduce("sum", (generator,), Binary("*", *factors))
            case Call("sum" | "max" | "min" as name, (row,)):
                generator = _row_index(state, row, place)
                here = Var(generator.variable)
                body_ = _element(_scalar_inside(state, row, place), here, place)
                return Reduce(name, (generator,), body_)
            case _:
                return None

    return replaced(value, change)


def _row_index(state: State, value: Value, place: Place) -> Generator:
    for part in walk_value(value):
        if isinstance(part, Read) and part.access.rank == 1:
            return state.index(part.access.array, part.access.subscripts.index(WHOLE), "t")
    raise NotDifferentiated("it is not known how long a row is", place.label)


def _element(value: Value, index: Index, place: Place) -> Value:
    def change(part: Value) -> Value | None:
        if isinstance(part, Read) and part.access.rank:
            if part.access.rank != 1:
                raise NotDifferentiated("it reads several rows at once", place.label)
            subscripts = part.access.subscripts
            cell = tuple(index if isinstance(s, Whole) else s for s in subscripts)
            return Read(Access(part.access.array, cell))
        return None

    return replaced(value, change)
