"""Extents of arrays that hold no more than what loops go through.

    s = zeros(N + 15)                       s = zeros(N)
    for j in range(0, N):          ->       for j in range(0, N):
        s[j] = X[j]                             s[j] = X[j]

An array that was made for whole blocks has room for all of the last one, of which only a part may
be there; what is said of all its cells would speak of cells that other arrays do not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from looptrans.ir.affine import difference, extremum, form_of, is_same, multiplied, sides, total
from looptrans.ir.index import Arith, Extremum, Index, Int, Param, Var, walk
from looptrans.ir.program import Array, Declaration, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.walk import live_out
from looptrans.transforms.editing.accesses import AccessSite, sites_of
from looptrans.transforms.over_blocks.block_starts import is_multiple


def with_fitting_extents(program: Program) -> Program:
    """Give arrays that nobody sees from outside the length that is looked at.

    Args:
        program: The program.
    """
    outside = live_out(program)
    for node in program.body:
        if not isinstance(node, Declaration) or node.array in outside:
            continue
        known = program.array(node.array)
        sites = sites_of(program, node.array)
        shape = [
            _length(program, number, extent, sites) or extent
            for number, extent in enumerate(known.shape)
        ]
        if sites and shape != list(known.shape):
            program = _of_shape(program, known, tuple(e for e in shape if e is not None))
    return program


def _length(
    program: Program, number: int, extent: Index | None, sites: Sequence[AccessSite]
) -> Index | None:
    """Return how much of a dimension is ever looked at, where that is plainly less."""
    found: Index | None = None
    for site in sites:
        match site.access.subscripts[number : number + 1]:
            case (Var(variable),) if extent is not None:
                loop = next((n for n in site.place.loops if n.variable == variable), None)
            case _:
                return None
        if loop is None or loop.range.start != Int(0) or loop.range.step != 1:
            return None
        ends = [size for end in sides("min", loop.range.stop) for size in _reached(end, site)]
        found = found or next(iter(ends), None)
        if found is None or found not in ends:
            return None
        spare = form_of(difference(extent, found))
        if (spare.terms or spare.constant <= 0) and not _is_of_blocks(program, extent, found):
            return None
    return found


def _is_of_blocks(program: Program, extent: Index, length: Index) -> bool:
    """Tell whether an extent is as many whole blocks as it takes for a length, or less of them."""
    match tuple(form_of(extent).terms.items()):
        case ((Extremum("min", ends), 1),) if length in ends:
            return True  # what is behind the other ends is not looked at either
        case _:
            pass
    for part in walk(extent):
        match part:
            case Arith("//", rows, width):
                count = extremum("max", (Int(0), part))
                if not any(is_same(extent, multiplied(n, width)) for n in (part, count)):
                    continue
                exact = is_same(rows, length) and is_multiple(program, length, width)
                if exact or is_same(rows, total(length, width, -1)):
                    return True
            case _:
                pass
    return False


def _reached(end: Index, site: AccessSite) -> Iterator[Index]:
    """Yield the size that an end is, or comes to at most: M where it is `i + 1`, i in range(M)."""
    if isinstance(end, Param):
        yield end
    for loop in site.place.loops:
        stop = loop.range.stop
        last = total(Var(loop.variable), 1)
        if isinstance(stop, Param) and loop.range.step == 1 and is_same(end, last):
            yield stop


def _of_shape(program: Program, array: Array, shape: tuple[Index, ...]) -> Program:
    def declared(node: Node) -> tuple[Node, ...]:
        if isinstance(node, Declaration) and node.array == array.name:
            return (replace(node, creation=replace(node.creation, shape=shape)),)
        return (node,)

    arrays = tuple(replace(a, shape=shape) if a.name == array.name else a for a in program.arrays)
    return replace(program, body=rewritten(program.body, declared), arrays=arrays)
