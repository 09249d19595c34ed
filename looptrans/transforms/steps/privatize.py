"""Privatization: each iteration of a loop gets its own copy of a local."""

from __future__ import annotations

from dataclasses import replace

from looptrans.analysis.budget import BudgetExceeded
from looptrans.analysis.cycles.iterations import iterations_of
from looptrans.ir.creation import creation_of
from looptrans.ir.index import Index, Let, children, rebuild
from looptrans.ir.program import Array, Declaration, Loop, Node, Program
from looptrans.ir.rewrite import indices_changed, with_accesses
from looptrans.ir.source import Span
from looptrans.ir.step import Step, same_names
from looptrans.ir.verdict import Verdict
from looptrans.ir.walk import live_out
from looptrans.transforms.editing.accesses import (
    AccessSite,
    find_array,
    listed,
    place_of,
    sites_of,
    sites_outside,
)
from looptrans.transforms.editing.errors import NothingToDo, TransformError
from looptrans.transforms.editing.finish import finished
from looptrans.transforms.editing.naming import fresh_name, with_array
from looptrans.transforms.editing.privacy import with_private
from looptrans.transforms.editing.tree import LoopPath, find_loop, loop_name, node_at, replace_at
from looptrans.transforms.judging.check import check_storage
from looptrans.transforms.steps.promote import can_promote


def privatize(program: Program, loop: str, *names: str) -> Step:
    """Give each iteration of a loop its own copy of locals.

        for j in range(0, N):              for j in range(0, N):
            t = 2.0 * x[j]                     private: t
            y[j] = t + t            ->         t = 2.0 * x[j]
                                               y[j] = t + t

    A copy starts without a value and ends with its iteration, so it is legal if no value of the
    local comes into an iteration from outside it, or goes out. Where the name is used outside the
    loop as well, the copies get a name of their own.

    Args:
        program: The program.
        loop: The loop.
        names: The locals; by default all that tie iterations together only by sharing the memory.

    Raises:
        TransformError: There is no such loop or local, it comes from outside, or it is used outside
            the loop as well and cannot be shown to do as well under another name.
    """
    called = f"privatize({', '.join((loop, *names))})"
    path = find_loop(program, loop)
    if names:
        for name in names:
            _require_local(program, path, find_array(program, name))
        return _private(program, path, called, names)
    try:
        names = _possible(program, path)
    except BudgetExceeded as error:
        return Step(called, program, program, Verdict("unknown", reason=str(error)), {})
    own = tuple(n for n in names if not sites_outside(program, n, path.position))
    try:
        return _private(program, path, called, names)
    except TransformError:
        if not own:
            raise
        return _private(program, path, called, own)


def _private(program: Program, path: LoopPath, called: str, names: tuple[str, ...]) -> Step:
    after = with_private(program, path.position, names)
    done, images = finished(after, same_names(program, after))
    verdict = check_storage(program, done, images)
    shared = [name for name in names if sites_outside(program, name, path.position)]
    if verdict.decision == "legal":
        for name in shared:
            _require_set(program, path, name)
    if verdict.decision != "unknown" and shared:
        renamed = _with_own_names(program, path, names, shared)
        apart, others = finished(renamed, same_names(program, renamed))
        other = check_storage(program, apart, others)
        # What stands outside may read what would be nobody's, but for the name of its own.
        if "legal" in (verdict.decision, other.decision):
            done, images = apart, others
            # Copies that nobody else reads are the same under another name.
            verdict = verdict if other.decision == "unknown" else other
    return Step(called, program, done, verdict, images)


def _possible(program: Program, path: LoopPath) -> tuple[str, ...]:
    found = iterations_of(program, path.position)
    if found.private:
        return found.private
    loop = loop_name(program, path.position)
    tied = tuple(dict.fromkeys(tie.array for tie in found.ties))
    message = f"there is nothing to privatize in the loop {loop}"
    if not tied:
        raise NothingToDo(
            message,
            place_of(path.loop),
            why="no two iterations touch a cell that one of them writes",
            remedy=f"parallelize({loop})",
        )
    inputs = program.input_names
    local = [name for name in tied if name not in inputs and name not in live_out(program)]
    raise NothingToDo(
        message,
        place_of(path.loop),
        why=f"what ties the iterations together is {listed(tied)}, whose values are needed "
        "outside an iteration",
        remedy=f"privatize({loop}, {local[0]}) shows which value"
        if local
        else f"ordered_atomics({loop}) lets the iterations take turns at {listed(tied)}",
    )


def _require_local(program: Program, path: LoopPath, array: Array) -> None:
    """Require that a name can be private at all: made by the listing, and used in the loop."""
    loop = loop_name(program, path.position)
    name = array.name
    if array.role == "input" or name in live_out(program):
        where = "comes from outside" if array.role == "input" else "is returned"
        raise TransformError(
            f"{name} {where}, and cannot be private",
            _span(sites_of(program, name)),
            why="a private copy starts without a value and ends with its iteration",
            remedy=f"keep an element of it in a local, promote({name}, {loop})"
            if can_promote(program, array, path)
            else f"use a local in the loop, and copy it to {name}",
        )
    if name in path.loop.private:
        raise NothingToDo(
            f"{name} is private to the iterations of {loop} already",
            place_of(path.loop),
            remedy="leave it out",
        )
    inside = [s for s in sites_of(program, name) if path.position in s.place.loop_positions]
    if not inside:
        raise NothingToDo(
            f"{name} is not used in the loop {loop}",
            place_of(path.loop),
            remedy="name a local that the loop sets",
        )


def _require_set(program: Program, path: LoopPath, name: str) -> None:
    """Require that the loop sets a name, whose copies would else be nothing that can be read."""
    inside = [s for s in sites_of(program, name) if path.position in s.place.loop_positions]
    if not any(site.relation.is_write for site in inside):
        raise NothingToDo(
            f"{name} is set nowhere in the loop {loop_name(program, path.position)}",
            _span(tuple(inside)),
            why="what reads it there never runs",
            remedy="name a local that the loop sets",
        )


def _with_own_names(
    program: Program, path: LoopPath, names: tuple[str, ...], shared: list[str]
) -> Program:
    """Make names private, those that are used outside the loop as well under names of their own."""
    after, position = program, path.position
    chosen = list(names)
    for name in shared:
        array = replace(find_array(program, name), name=fresh_name(after, name))
        creation = creation_of(program, name)
        made = None if creation is None else Declaration(array.name, creation)
        after, more = with_array(after, array, made)
        position = (position[0] + more, *position[1:])
        loop = _renamed(node_at(after, position), name, array.name)
        after = replace_at(after, position, (loop,))
        chosen[chosen.index(name)] = array.name
    return with_private(after, position, chosen)


def _renamed(loop: Node, old: str, new: str) -> Node:
    """Give a name that an iteration uses another one, also where bounds and subscripts name it."""

    def of_index(index: Index) -> Index:
        if isinstance(index, Let) and index.name == old:
            return Let(new, of_index(index.value))
        return rebuild(index, tuple(map(of_index, children(index))))

    assert isinstance(loop, Loop)  # its own range stands outside of the iterations
    return replace(
        loop,
        body=with_accesses(
            indices_changed(loop.body, of_index), lambda access: access.renamed(old, new)
        ),
    )


def _span(sites: tuple[AccessSite, ...]) -> Span | None:
    return place_of(sites[0].place.node) if sites else None
