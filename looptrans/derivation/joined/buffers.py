"""Arrays that iterations use one after the other, each for itself: which, and over which loops.

    for i in range(0, M):
        for j in range(0, N):
            s[j] = …              every iteration of i sets what it reads of s
        for j in range(0, N):
            O[i] = O[i] + s[j]

With a part of its own for each iteration no value has to wait in memory.
"""

from __future__ import annotations

from looptrans.ir.program import Program
from looptrans.ir.walk import live_out
from looptrans.transforms.editing.accesses import AccessSite, sites_of


def reused(program: Program) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the arrays that may be such, each with the loops around it, as one names them.

    Whether an iteration reads what another one has written is not asked here.

    Args:
        program: The program.
    """
    found = []
    outside = live_out(program)
    for array in program.arrays:
        sites = sites_of(program, array.name)
        if array.role != "local" or not array.rank or array.name in outside or not sites:
            continue
        loops = _around(sites)
        first = sites[0]
        if loops and first.relation.is_write:
            names = tuple(f"{variable}@{first.place.label}" for variable in loops)
            found.append((array.name, names))
    return tuple(found)


def _around(sites: tuple[AccessSite, ...]) -> tuple[str, ...]:
    """Return the outer loops that stand around all accesses, of none of which a write speaks.

    Nothing where one speaks of one of them: then cells are told apart already. A read may speak of
    it, as s[y[i]].
    """
    first, *others = (site.place for site in sites)
    common = []
    for loop, position in zip(first.loops, first.loop_positions, strict=True):
        if any(position not in place.loop_positions for place in others):
            break
        common.append(loop.variable)
    written = (site.access for site in sites if site.relation.is_write)
    spoken = {name for access in written for name in access.variables}
    return () if spoken & set(common) else tuple(common)
