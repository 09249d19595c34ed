"""Quotients of sizes that are meant to come out whole."""

from __future__ import annotations

from collections.abc import Iterator

from looptrans.ir.index import Arith, Index, variables, walk
from looptrans.ir.program import Program
from looptrans.ir.remember import remembered
from looptrans.ir.walk import accesses, placed


@remembered
def whole_quotients(program: Program) -> tuple[Arith, ...]:
    """Return the quotients that are meant to be whole and not 0.

    Q: Float[Array, "H//R"]    ->    H // R
    K[h // (H // G)]           ->    H // G

    These are extents of arguments, and what subscripts are divided by.
    """
    found = [part for extent in _extents(program) for part in _quotients(extent)]
    for index in _subscripts(program):
        for part in _quotients(index):
            found += _quotients(part.right)
    return tuple(dict.fromkeys(part for part in found if not variables(part)))


def _quotients(index: Index) -> list[Arith]:
    return [part for part in walk(index) if isinstance(part, Arith) and part.op == "//"]


def _extents(program: Program) -> Iterator[Index]:
    for array in program.arrays:
        for extent in array.shape if array.role == "input" else ():
            if extent is not None:
                yield extent


def _subscripts(program: Program) -> Iterator[Index]:
    for place in placed(program):
        for relation in accesses(place.node):
            yield from relation.access.indices
