"""One loop written anew: another recurrence in the place of the one it had."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from looptrans.algebra.certificate import OperatorCertificate
from looptrans.algebra.iterations.infinities import tests_infinity
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.operators.finding import find_operator
from looptrans.algebra.operators.laws import Law
from looptrans.algebra.operators.tried import refused_text, tried_text
from looptrans.algebra.positional.values import put
from looptrans.derivation.one_loop.bodies import (
    flow,
    kept_of,
    labels_of,
    position_of,
    ranges_in,
    recurrence_of,
    rest_of,
    worked_out,
)
from looptrans.derivation.one_loop.guards import next_values
from looptrans.derivation.one_loop.reading import as_written, over_listing
from looptrans.derivation.one_loop.writing import Update, Writer, done, inputs_written, suffix_of
from looptrans.derivation.step import NotDone
from looptrans.ir.condition import Condition
from looptrans.ir.listing import access_text
from looptrans.ir.program import Node, Program
from looptrans.ir.value import Access, Holds, Read, Select, Value
from looptrans.transforms.editing.accesses import listed
from looptrans.transforms.editing.tree import loops_around, replace_at, statements_in


def loop_read(program: Program, loop: str) -> Recurrence:
    """Read a loop as a recurrence that is a fold.

    Raises:
        NotDone: It is none.
    """
    return require_fold(recurrence_of(program, loop), loop)


def require_fold(step: Recurrence, loop: str) -> Recurrence:
    """Return a recurrence that is a fold.

    Raises:
        NotDone: It is none.
    """
    if step.is_scan:
        raise NotDone(
            f"{step.read_inside[0]} looks at the state of {loop} in between: it is a scan, no fold"
        )
    return step


def operator_for(program: Program, loop: str, step: Recurrence) -> OperatorCertificate:
    """Find and prove the operator of a recurrence.

    Raises:
        NotDone: There is none, or none was found.
    """
    tested = [access_text(s.access) for s in step.states if tests_infinity(s.update)]
    if tested:
        raise NotDone(
            f"{listed(tested)} in {loop} depends on whether something is an infinity, of which the "
            "algebra of numbers does not know"
        )
    finding = find_operator(step)
    if finding.operator is None:
        if finding.refusal is not None:
            numbers = refused_text(finding.recurrence, finding.refusal)
            raise NotDone(f"{loop} cannot be split: {numbers}", "illegal")
        tried = tried_text(finding.recurrence, finding.tried)
        raise NotDone(f"no operator was found that joins two parts of {loop}: {tried}")
    return OperatorCertificate(program, loop, finding.recurrence, finding.operator, finding.laws)


def with_step(
    program: Program,
    loop: str,
    step: Recurrence,
    guards: Mapping[str, Condition],
    after: Callable[[Writer], tuple[Node, ...]] | None = None,
    unread: tuple[Access, ...] = (),
    whole: Recurrence | None = None,
) -> tuple[Program, Law]:
    """Let a loop compute another recurrence over the same cells.

    Args:
        program: The program.
        loop: The loop.
        step: What it is to compute, with the cells, inputs and parameters it has now.
        guards: The guards of updates.
        after: Writes what is to stand behind the loop.
        unread: Cells that the loop need not look at any more.
        whole: What it computes now, where some states stay as they are, and are its inputs.

    Returns:
        The program, and the law that its loop computes just that.

    Raises:
        NotDone: That could not be shown.
    """
    cells = tuple(state.access for state in step.states)
    labels = labels_of(step)
    own = {state.name for state in step.states}
    others = () if whole is None else tuple(s for s in whole.states if s.name not in own)
    staying = tuple(state.access for state in others)
    rest = rest_of(program, loop, flow(program), (*cells, *unread), labels, staying)
    position, node = position_of(program, loop)
    hull = replace(node, body=rest.body)
    writer = Writer(replace_at(program, position, (hull,)))
    kept = kept_of(rest.body, step.condition)
    known = worked_out((rest,), kept.nodes, step.loop)
    around = [path.variable for path in loops_around(program, position)]
    updates = next_values(step)
    extra, given, updates = inputs_written(step, updates, known, writer, around)
    written: tuple[Node, ...] = writer.updates(
        tuple(
            Update(
                s.name,
                s.access,
                s.over,
                updates[s.name],
                s.statements[0],
                guards.get(s.name),
            )
            for s in step.states
        ),
        given,
        ranges_in(program, labels),
        suffix_of(*around, step.loop),
    )
    made: tuple[Node, ...] = (*extra, *written)
    body = kept.with_(made)
    behind = () if after is None else after(writer)
    final = done(replace_at(writer.program, position, (replace(node, body=body), *behind)))
    name = f"{step.loop}@{statements_in(made)[-1]}"
    computed = expected(step, guards)
    if whole is not None:
        computed += expected(replace(whole, states=others), {})
    law = as_written(
        final,
        name,
        computed,
        bounds=step.range,
        condition=step.condition,
        read_inside=() if whole is None else whole.read_inside,
    )
    return final, law


def expected(
    step: Recurrence, guards: Mapping[str, Condition]
) -> tuple[tuple[Access, Value, Value], ...]:
    """Return cell, initial value and guarded update of each state, over the listing's names."""
    full = {"t" + state.name[1:]: state.update for state in step.states}
    found = []
    for state in step.states:
        update = state.update
        guard = guards.get(state.name)
        if guard is not None:
            holds = put(Holds(guard), full)
            assert isinstance(holds, Holds)
            update = Select(holds.condition, update, Read(state.access))
        found.append((state.access, state.initial, over_listing(update, step)))
    return tuple(found)
