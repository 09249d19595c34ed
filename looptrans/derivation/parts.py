"""A loop in parts: each part's result from the empty one on, then all of them joined in order.

for p in range(0, 4):
m_part[p, i] = -inf                   ⊥
for j in range(…):                    the iterations of part p
m_part[p, i] = max(m_part[p, i], …)
for p in range(0, 4):
m_ip = max(m[i], m_part[p, i])        state . part
…
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.algebra.operator import Operator
from looptrans.algebra.recurrence import Recurrence
from looptrans.derivation.bodies import (
    flow,
    labels_of,
    position_of,
    ranges_in,
    rest_of,
    worked_out,
)
from looptrans.derivation.guards import (
    conditions,
    neutral,
    next_values,
    require_proved,
    unguarded,
)
from looptrans.derivation.joining import (
    empty_side,
    join_updates,
    joined_cells,
)
from looptrans.derivation.loop import expected, loop_read, operator_for
from looptrans.derivation.reading import as_written
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.derivation.writing import Update, Writer, done, inputs_written, suffix_of
from looptrans.ir.affine import difference, extremum, product, quotient, total
from looptrans.ir.index import Arith, Index, Int, Var
from looptrans.ir.listing import access_text
from looptrans.ir.program import Declaration, If, Loop, Node, Program
from looptrans.ir.value import Access, Create, Range, Whole
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import loops as all_loops
from looptrans.transforms.accesses import listed
from looptrans.transforms.extents import extents_of
from looptrans.transforms.nest import (
    RangeNotFound,
    fresh_name,
    loops_around,
    replace_at,
    statements_in,
)


def in_parts(program: Program, loop: str, parts: int) -> DerivationStep:
    """Compute a loop in parts that know nothing of each other, and join their results in order.

    Args:
        program: The program.
        loop: The loop; it carries a fold with a proved operator.
        parts: How many parts there are; some may be empty.

    Raises:
        NotDone: There is no operator, or something could not be shown.
    """
    if parts < 1:
        raise NotDone(f"there cannot be {parts} parts")
    step, guarded = unguarded(loop_read(program, loop))
    found = operator_for(program, loop, step)
    operator = found.operator
    if operator.is_extended or len(found.recurrence.states) != len(step.states):
        raise NotDone(f"a part of {loop} has results beside the state")
    if step.range.step != 1:
        raise NotDone(f"{loop} does not count by one")
    guards = conditions(next_values(step), step, operator)
    cells = tuple(state.access for state in step.states)
    rest = rest_of(program, loop, flow(program), cells, labels_of(step))
    position, node = position_of(program, loop)
    writer = Writer(replace_at(program, position, (replace(node, body=rest.body),)))
    part = fresh_name(writer.program, "p")
    ranges = ranges_in(program, labels_of(step))
    storage = _storage(program, writer, step, part, parts)
    declared = tuple(
        Declaration(cell.array, Create("empty", shape)) for cell, shape in storage.values()
    )
    partial = _with_cells(step, operator, {name: cell for name, (cell, _) in storage.items()})
    around = [path.variable for path in loops_around(program, position)]
    starts: list[Node] = []
    for state in partial.states:
        start: Node = writer.assign(state.access, state.initial)
        for variable in reversed(state.over):
            start = Loop(variable, ranges[variable], (start,))
        starts.append(start)
    known = worked_out((rest,), rest.body, step.loop)
    updates = next_values(partial)
    extra, given, updates = inputs_written(partial, updates, known, writer, around)
    written: tuple[Node, ...] = writer.updates(
        tuple(
            Update(s.name, s.access, s.over, updates[s.name], s.statements[0], guards.get(s.name))
            for s in partial.states
        ),
        given,
        ranges,
        suffix_of(*around, step.loop),
    )
    made: tuple[Node, ...] = (*extra, *written)
    if step.condition is not None:
        made = (If(step.condition, made),)
    bounds = part_range(node.range, Var(part), parts)
    inner = replace(node, range=bounds, body=(*rest.body, *made), leading=())
    numbers = {c.state: n for n, c in enumerate(operator.components, 1)}
    places = {numbers[name]: cell for name, (cell, _) in storage.items()}
    joins, of_parts = join_updates(step, operator, places, guarded=True)
    joins = tuple(replace(update, label="") for update in joins)
    joined = writer.updates(joins, of_parts, ranges, suffix_of(*around, part))
    every = Range(Int(0), Int(parts))
    loops = (
        Loop(part, every, (*starts, inner), leading=node.leading),
        Loop(part, every, joined),
    )
    whole = replace_at(writer.program, position, loops)
    first = tuple(n for n in whole.body if isinstance(n, Declaration))
    others = tuple(n for n in whole.body if not isinstance(n, Declaration))
    final = done(replace(whole, body=(*first, *declared, *others)))
    again = as_written(
        final,
        f"{step.loop}@{statements_in(made)[-1]}",
        expected(partial, guards),
        bounds=bounds,
        condition=step.condition,
    )
    if parts == 1:
        # A loop that runs once carries nothing; its body is read in the company of a second part.
        twin = in_parts(program, loop, 2)
        if _bodies(twin.after, part)[-1] != _bodies(final, part)[-1]:
            raise NotDone("the joining of one part is not that of two")
        joining = twin.laws[-1]
    else:
        joining = as_written(
            final,
            f"{part}@{statements_in(joined)[-1]}",
            joined_cells(step, joins, of_parts),
            bounds=every,
        )
    laws = []
    if guards:
        # Refuted, it only says that the empty part cannot be told apart in this way.
        laws.append(require_proved(neutral(step, operator, guards), decisive=False))
    laws.append(require_proved(empty_side(step, operator)))
    names = [access_text(state.access) for state in step.states]
    if guarded and set(guarded) != set(guards):
        raise NotDone("the empty prefix is guarded in another way")
    return DerivationStep(
        f"split {step.loop} into {parts} {'part' if parts == 1 else 'parts'}, each with its own "
        f"{listed(names)}, and join them in order",
        "parts",
        (loop, parts),
        program,
        final,
        _certificates(node.range, parts, step.loop),
        (*laws, again, joining),
        found,
    )


def _bodies(program: Program, variable: str) -> list[tuple[Node, ...]]:
    """Return the bodies of the loops with a variable, in order of the text."""
    return [node.body for node in all_loops(program) if node.variable == variable]


def part_range(bounds: Range, part: Index, parts: int) -> Range:
    """Return the iterations of one part, all parts as long as the longest but the last ones."""
    if parts == 1:
        return bounds
    length = difference(bounds.stop, bounds.start)
    each = quotient(total(length, parts - 1), parts)
    start, stop = _ahead(bounds, part, each), _ahead(bounds, total(part, 1), each)
    return Range(start, extremum("min", (stop, bounds.stop)))


def _ahead(bounds: Range, part: Index, each: Index) -> Index:
    if isinstance(part, Int):
        return total(bounds.start, product(part.value, each))
    ahead: Index = Arith("*", part, each)
    return ahead if bounds.start == Int(0) else Arith("+", bounds.start, ahead)


def _certificates(bounds: Range, parts: int, loop: str) -> tuple[Certificate, ...]:
    """Say that the parts are the loop, in order, and that results are equal over the reals."""
    return (
        Certificate(
            "order",
            f"the parts are the iterations of {loop}, in order, each in one part",
            "legal",
            f"part p ends where part p + 1 begins, the first begins where {loop} does, and the "
            f"length of a part is that of {loop} divided by {parts}, rounded up",
        ),
        Certificate(
            "rounding",
            "the results are equal over the reals, not bit for bit",
            "legal",
            "each part is summed up by itself",
        ),
    )


def _storage(
    program: Program, writer: Writer, step: Recurrence, part: str, parts: int
) -> dict[str, tuple[Access, tuple[Index, ...]]]:
    """Return where the results of parts live: an element of the state for each part."""
    found: dict[str, tuple[Access, tuple[Index, ...]]] = {}
    for state in step.states:
        if any(isinstance(s, Whole) for s in state.access.subscripts):
            raise NotDone(f"{access_text(state.access)} is a whole row")
        array = program.array(state.access.array)
        try:
            own = extents_of(program, array)
        except RangeNotFound as error:
            raise NotDone(f"the extents of {array.name} are not known: {error}") from None
        shape = (Int(parts), *own)
        name = writer.array(f"{array.name.replace('.', '_')}_part", shape, array.element)
        found[state.name] = (Access(name, (Var(part), *state.access.subscripts)), shape)
    return found


def _with_cells(step: Recurrence, operator: Operator, cells: dict[str, Access]) -> Recurrence:
    """Return the recurrence of one part: over cells of its own, from ⊥ on."""
    nothing = {c.state: c.identity for c in operator.components}
    return replace(
        step,
        states=tuple(
            replace(state, access=cells[state.name], initial=nothing[state.name])
            for state in step.states
        ),
    )
