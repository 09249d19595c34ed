"""Hoisting: a statement that every iteration repeats moves to right before the loop."""

from __future__ import annotations

from dataclasses import replace

from looptrans.ir.condition import ALWAYS, Condition, conjunction
from looptrans.ir.listing import assign_text, condition_text
from looptrans.ir.program import Assign, If, Loop, Program
from looptrans.ir.step import Step, same_names
from looptrans.ir.walk import Placed, accesses, relations_in, written_in
from looptrans.transforms.editing.accesses import is_about, listed, place_of
from looptrans.transforms.editing.errors import NoSuchStatement, TransformError
from looptrans.transforms.editing.extents import runs_at_all
from looptrans.transforms.editing.finish import finished, legible
from looptrans.transforms.editing.guards import guarded, guards_between, nodes_between, without
from looptrans.transforms.editing.privacy import moved_out
from looptrans.transforms.editing.tree import (
    LoopPath,
    find_loop,
    find_statement,
    loop_name,
    node_at,
    replace_at,
)
from looptrans.transforms.judging.check import check_storage


def hoist(program: Program, statement: str, loop: str) -> Step:
    """Move a statement from the body of a loop to right before the loop.

        for i:                            for i:
            for j:                            q_i = Q[i]     # S1
                q_i = Q[i]     # S1   ->      for j:
                s = q_i @ K[j] # S2               s = q_i @ K[j] # S2

    It is legal if the statement computes the same in all iterations, and every read then gets the
    same value. Where the loop may have no iteration, the statement is guarded by the condition that
    it has one, unless that makes no difference that can be noticed.

    Args:
        program: The program.
        statement: The label of the statement; it stands directly in the body of the loop.
        loop: The loop.

    Raises:
        TransformError: There is no such loop or statement, the statement stands elsewhere, or it
            mentions the loop's variable.
    """
    name = f"hoist({statement}, {loop})"
    path = find_loop(program, loop)
    place = find_statement(program, statement)
    guards = _hoistable(program, place, path)
    runs = runs_at_all(path.loop.range)
    step = _hoisted(name, program, place, path, guards)
    if step.verdict.decision == "legal" or runs == ALWAYS:
        return step
    return _hoisted(name, program, place, path, conjunction(runs, guards))


def _hoisted(
    name: str, program: Program, place: Placed, path: LoopPath, condition: Condition
) -> Step:
    assert isinstance(place.node, Assign)
    after = moved_out(program, path.position, [target.array for target in place.node.targets])
    after = without(after, place.position)
    loop = node_at(after, path.position)
    assert isinstance(loop, Loop)
    above = guarded(condition, (place.node,))
    after = replace_at(after, path.position, (*above, loop) if loop.body else above)
    done, images = finished(after, same_names(program, after))
    verdict = check_storage(program, done, images)
    if verdict.decision == "legal":
        done = legible(done)
    if verdict.decision == "illegal" and not verdict.help:
        verdict = replace(verdict, help=_help(program, place, path))
    return Step(name, program, done, verdict, images)


def _help(program: Program, place: Placed, path: LoopPath) -> str:
    """Say what can be done about a value that changes from one iteration to the next."""
    assert isinstance(place.node, Assign)
    written = written_in(path.loop.body)
    inside = [relation.access for relation in relations_in(path.loop.body)]
    reads = [a.access for a in accesses(place.node) if not a.is_write]
    for access in reads:
        places = {a.subscripts for a in inside if a.array == access.array}
        if access.array in written and access.subscripts and len(places) == 1:
            loop = loop_name(program, path.position)
            return f"promote({access.array}, {loop}) keeps the element in a local instead"
    return ""


def _hoistable(program: Program, place: Placed, path: LoopPath) -> Condition:
    """Require that the statement can leave the loop; return the guards that it takes along."""
    label, loop = place.label, loop_name(program, path.position)
    if not isinstance(place.node, Assign):
        raise NoSuchStatement(
            f"{label} is the condition of a guard, not a statement",
            place_of(place.node),
            why="only an assignment can be hoisted",
            remedy=f"assign the condition to a name, and hoist that out of {loop}",
        )
    if path.position not in place.loop_positions:
        around = [loop_name(program, position) for position in place.loop_positions]
        raise NoSuchStatement(
            f"{label} does not stand in the loop {loop}",
            place_of(place.node),
            why=f"it stands in {', '.join(around)}" if around else "no loop is around it",
            remedy=f"say hoist({label}, {around[-1]})" if around else "hoist another statement",
        )
    _require_only_guards(program, place, path)
    guards = guards_between(program, path.position, place.position)
    whole = If(guards, (place.node,))
    if is_about(whole, path.variable):
        what = assign_text(place.node)
        if not is_about(place.node, path.variable):
            what = f"if {condition_text(guards)}"
        raise TransformError(
            f"{label} depends on {path.variable}, and so differs from one iteration of {loop} to "
            "the next",
            place_of(place.node),
            why=f"{what} has no meaning outside the loop",
            remedy=f"hoist what does not mention {path.variable}",
        )
    return guards


def _require_only_guards(program: Program, place: Placed, path: LoopPath) -> None:
    """Require that nothing but guards on loop variables and sizes is between the two."""
    label, loop = place.label, loop_name(program, path.position)
    for node in nodes_between(program, path.position, place.position):
        match node:
            case If(label=None):
                continue
            case Loop():
                inner = loop_name(program, place.loop_positions[-1])
                what, remedy = f"in the loop {inner}", f"hoist({label}, {inner}) first"
                depth = place.loop_positions.index(path.position)
                named = [
                    m.variable for m in place.loops[depth:] if is_about(place.node, m.variable)
                ]
                if named:
                    remedy = f"hoist what does not mention {listed(named)}"
            case If():
                what = f"under {node.label}, a guard that depends on data"
                remedy = "write a ternary, x if … else …, or put the guard around the loop"
            case _:
                what, remedy = "in a block of its own", "take the statement out of the block"
        raise TransformError(
            f"{label} stands {what}, inside {loop}",
            place_of(place.node),
            why="hoisting moves a statement across one loop and guards on loop variables and sizes",
            remedy=remedy,
        )
