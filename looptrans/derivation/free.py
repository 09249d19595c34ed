"""Loops whose iterations have nothing to do with each other, told from the text.

    for i: m = -inf                       every iteration of i sets its own m before it reads it,
           for j: m = max(m, x[i, j])     and y[i] is touched by that iteration only:
           y[i] = m                       i is free once m is private to it

What is said here holds; what is not said may hold as well, and is then asked of isl.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from looptrans.algebra.cells import is_own_cell
from looptrans.ir.condition import ALWAYS
from looptrans.ir.facts import DependenceReport
from looptrans.ir.index import variables as index_variables
from looptrans.ir.program import Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.walk import live_out, nodes, placed
from looptrans.transforms.accesses import AccessSite, sites_of
from looptrans.transforms.tree import LoopPath, Position, loop_paths, loops_around

_PLAIN = (Assign, Declaration, If, Loop)


@dataclass(frozen=True, slots=True)
class Free:
    """A loop whose iterations may run in any order.

    Attributes:
        path: The loop.
        private: What must be private to its iterations, in order of first appearance.
        own: The arrays whose cells each iteration has to itself.
    """

    path: LoopPath
    private: tuple[str, ...]
    own: tuple[str, ...]


def free_loops(program: Program, flow: DependenceReport) -> tuple[Free, ...] | None:
    """Return the sequential loops that carry no flow, where the text shows that they are free.

    Args:
        program: The program.
        flow: Its exact flow.

    Returns:
        The loops in the order of the text; None where the text does not tell of one of them.
    """
    carrying = _carrying(program, flow)
    found = []
    for path in loop_paths(program):
        if path.loop.execution == "sequential" and path.position not in carrying:
            each = freed(program, path)
            if each is None:
                return None
            found.append(each)
    return tuple(found)


def _carrying(program: Program, flow: DependenceReport) -> set[Position]:
    """Return the places of the loops that carry flow."""
    places = {place.label: place for place in placed(program)}
    found = set()
    for dependence in flow.dependences:
        level = next((n for n, sign in enumerate(dependence.direction) if sign != "="), None)
        if level is not None:
            found.add(places[dependence.source].loop_positions[level])
    return found


def freed(program: Program, path: LoopPath, private: Iterable[str] | None = None) -> Free | None:
    """Tell what makes a loop free; None where the text does not show that it can be.

    Args:
        program: The program.
        path: The loop.
        private: What is to be private to it; found where not given.
    """
    if not _is_plain(program.body):
        return None
    outer = {around.variable for around in loops_around(program, path.position)}
    outside = set(live_out(program))
    kept: list[str] = []
    own: list[str] = []
    for array in program.arrays:
        sites = sites_of(program, array.name)
        inside = [site for site in sites if path.position in site.place.loop_positions]
        if not any(site.relation.is_write for site in inside):
            continue
        wanted = private is not None and array.name in private
        if not wanted and is_own_cell([s.access for s in inside], path.variable, outer):
            own.append(array.name)
            continue
        if array.name in outside or len(inside) != len(sites):
            return None
        if private is not None and not wanted:
            return None
        if not _is_set_first(sites, path.position):
            return None
        kept.append(array.name)
    return Free(path, tuple(kept), tuple(own))


def _is_plain(body: tuple[Node, ...]) -> bool:
    return all(isinstance(node, _PLAIN) for node in nodes(body))


def _is_set_first(sites: tuple[AccessSite, ...], loop: Position) -> bool:
    """Tell whether every read of an array in a loop has a write before it in the same iteration."""
    writes = [s for s in sites if s.relation.is_write and loop in s.place.loop_positions]
    return all(
        any(is_overwritten(read, write) for write in writes)
        for read in sites
        if not read.relation.is_write
    )


def is_overwritten(read: AccessSite, write: AccessSite) -> bool:
    """Tell by the text whether a cell is always written just before it is read.

    The write stands before the read in a block that is around both, it always happens when the
    block runs, and both name one cell by variables of the loops around the block.
    """
    mine, other = write.place, read.place
    block = mine.position[:-1]
    named = {name for index in write.access.indices for name in index_variables(index)}
    inner = {loop.variable for loop in other.loops[len(mine.loops) :]}
    return (
        write.access == read.access
        and write.relation.condition == ALWAYS
        and not write.relation.generators
        and other.position[: len(block)] == block
        and other.position[len(block)] > mine.position[-1]
        and named <= {loop.variable for loop in mine.loops}
        and not inner & named
        and not {g.variable for g in read.relation.generators} & named
    )
