"""Passes over the same range made one."""

from __future__ import annotations

from dataclasses import replace

from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.other_states.fusion import fuse
from looptrans.algebra.positional.cells import same_cell
from looptrans.derivation.one_loop.bodies import (
    Rest,
    flow,
    kept_of,
    once_each,
    position_of,
    ranges_in,
    renamed,
    require_separate,
    rest_of,
    worked_out,
)
from looptrans.derivation.one_loop.reading import as_written, over_listing
from looptrans.derivation.one_loop.state import change_and_guard
from looptrans.derivation.one_loop.writing import (
    Update,
    Writer,
    done,
    inputs_written,
    suffix_of,
    with_next_values,
)
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.facts import DependenceReport
from looptrans.ir.listing import access_text
from looptrans.ir.program import Assign, Loop, Node, Program
from looptrans.ir.value import Access, Const
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import read_in, written_in
from looptrans.transforms.editing.accesses import listed
from looptrans.transforms.editing.tree import block_at, loops_around, replace_at, statements_in


def one_pass(program: Program, *loops: str) -> DerivationStep:
    """Make loops that follow each other, each waiting for the one before, into a single loop.

        for j: m[i] = max(m[i], x[j])                for j: m_ij = max(m[i], x[j])
        for j: l[i] = l[i] + exp(x[j] - m[i])   ->          l[i] = l[i] * exp(m[i] - m_ij) + …
                                                            m[i] = m_ij

    Args:
        program: The program.
        loops: The loops in the order of the text, `j@S1`, side by side in one block.

    Raises:
        NotDone: It cannot be done, or not be shown to be right.
    """
    facts = flow(program)
    fusion = fuse(program, loops, flow=facts)
    if fusion.recurrence is None:
        raise NotDone(fusion.reason, "illegal" if fusion.decision == "refused" else "unknown")
    step = fusion.recurrence
    if step.is_scan:
        raise NotDone(f"{step.read_inside[0]} looks at the state in between")
    cells = tuple(state.access for state in step.states)
    if len({cell.array for cell in cells}) < len(cells):
        raise NotDone("two of the loops reduce into the same cell")
    rests = tuple(_rest(program, name, facts, step, cells) for name in loops)
    require_separate(rests, cells, step.loop)
    before, after = _between(program, rests, step)
    writer = Writer(_without(program, rests))
    body = _body(program, rests, step, writer)
    _require_unread(body, after)
    loop = replace(rests[0].loop, body=body)
    made = _put(writer.program, rests, (*before, loop, *after))
    final = done(made)
    label = statements_in(body)[-1]
    name = f"{step.loop}@{label}"
    updates = tuple(
        (state.access, state.initial, over_listing(state.update, step)) for state in step.states
    )
    if fusion.large:
        _require_divided_once(final, name, fusion.large)
    law = as_written(final, name, updates, bounds=step.range, condition=step.condition)
    return DerivationStep(
        f"one pass instead of {len(loops)}: {_says(cells)}",
        "one pass",
        loops,
        program,
        final,
        (
            Certificate(
                "rounding",
                "the results are equal over the reals, not bit for bit",
                "legal",
                f"sums of what was seen before are moved whenever {_waited_for(step)} moves",
                step.assumptions,
            ),
        ),
        (*fusion.laws, law),
    )


def _require_divided_once(program: Program, loop: str, reason: str) -> None:
    """Require that the next step can be to divide once, behind the loop.

    Raises:
        NotDone: It cannot, and what the loop holds may be too large meanwhile.
    """
    try:
        change_and_guard(program, loop)
    except NotDone:
        raise NotDone(reason) from None


def _rest(
    program: Program,
    name: str,
    facts: DependenceReport,
    step: Recurrence,
    cells: tuple[Access, ...],
) -> Rest:
    _, loop = position_of(program, name)
    own = set(statements_in((loop,)))
    writers = [label for state in step.states for label in state.statements if label in own]
    return rest_of(program, name, facts, cells, writers)


def _says(cells: tuple[Access, ...]) -> str:
    return f"{listed([access_text(cell) for cell in cells])} move together"


def _waited_for(step: Recurrence) -> str:
    return access_text(step.states[0].access)


def _between(
    program: Program, rests: tuple[Rest, ...], step: Recurrence
) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Sort what stands between the loops into what can come before them, and what comes after."""
    block = block_at(program, rests[0].iteration.position)
    first, last = (rest.iteration.position[-1] for rest in (rests[0], rests[-1]))
    fused = {rest.iteration.position[-1] for rest in rests}
    before: list[Node] = []
    after: list[Node] = []
    passed: list[Node] = []
    for number in range(first, last + 1):
        node = block[number]
        if number in fused:
            passed.append(node)
            continue
        node = _started(node, step)
        reads, writes = read_in((node,)), written_in((node,))
        earlier = (*passed, *after)
        if not (reads | writes) & written_in(earlier) and not writes & read_in(earlier):
            before.append(node)
        else:
            after.append(node)
    return tuple(before), tuple(after)


def _started(node: Node, step: Recurrence) -> Node:
    """Return a statement that sets a state, with what the state starts from in the one pass."""
    if isinstance(node, Assign) and len(node.targets) == 1:
        for state in step.states:
            is_it = same_cell(state.access, node.targets[0]) and not state.over
            if is_it and isinstance(state.initial, Const) and node.values != (state.initial,):
                return replace(node, values=(state.initial,))
    return node


def _without(program: Program, rests: tuple[Rest, ...]) -> Program:
    """Return the program without the loops, for the names and labels that are then free."""
    position = rests[0].iteration.position
    kept = tuple(node for rest in rests for node in rest.body)
    gone = {rest.iteration.position[-1] for rest in rests}
    *outer, first = position
    without: Program = program
    for number in sorted(gone - {first}, reverse=True):
        without = replace_at(without, (*outer, number), ())
    hull = Loop(rests[0].loop.variable, rests[0].loop.range, kept)
    return replace_at(without, position, (hull,))


def _put(program: Program, rests: tuple[Rest, ...], nodes: tuple[Node, ...]) -> Program:
    """Put the one loop, and what stood between, in the place of the first of them."""
    *outer, first = rests[0].iteration.position
    result = program
    for number in range(rests[-1].iteration.position[-1] - len(rests) + 1, first, -1):
        result = replace_at(result, (*outer, number), ())
    return replace_at(result, (*outer, first), nodes)


def _require_unread(body: tuple[Node, ...], after: tuple[Node, ...]) -> None:
    shared = written_in(after) & (read_in(body) | written_in(body))
    if shared:
        raise NotDone(f"the one loop would need {sorted(shared)[0]}, which is known only after it")


def _body(
    program: Program, rests: tuple[Rest, ...], step: Recurrence, writer: Writer
) -> tuple[Node, ...]:
    """Write the body of the one loop."""
    pieces = tuple(node for r in rests for node in renamed(r.body, r.loop.variable, step.loop))
    kept = kept_of(once_each(pieces), step.condition)
    known = worked_out(rests, kept.nodes, step.loop)
    around = [path.variable for path in loops_around(program, rests[0].iteration.position)]
    updates = with_next_values({state.name: state.update for state in step.states})
    extra, given, updates = inputs_written(step, updates, known, writer, around)
    written = writer.updates(
        tuple(
            Update(s.name, s.access, s.over, updates[s.name], s.statements[0]) for s in step.states
        ),
        given,
        ranges_in(program, [label for state in step.states for label in state.statements]),
        suffix_of(*around, step.loop),
    )
    return kept.with_((*extra, *written))
