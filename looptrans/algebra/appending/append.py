"""Whether a block of iterations may be appended to a running state at once.

    for j: n = max(m, x[j])                       for blocks X of x: n = max(m, max X)
           l = l * exp(m - n) + exp(x[j] - n)  ->     l = l * exp(m - n) + sum(exp(X - n))
           m = n                                      m = n

What a state must look like stands in `appended`, what is proved of it in `append_laws`. Here the
loop is read, and it is made sure that its iterations share no cells but those of the state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.algebra.appending.append_state import AppendedState
from looptrans.algebra.appending.appended import NoForm, appended, domain_of_terms
from looptrans.algebra.appending.scanned import scanned
from looptrans.algebra.certificate import ir_certificate
from looptrans.algebra.iterations.assembly import assembled, flow_of
from looptrans.algebra.iterations.edges import NoRecurrence, Position, edges_of, loop_named
from looptrans.algebra.iterations.iteration import Iteration
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.operators.laws import Law
from looptrans.algebra.positional.cells import Family, is_own_cell
from looptrans.ir.condition import Condition
from looptrans.ir.facts import DependenceReport
from looptrans.ir.program import Assign, If, Loop, Program
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.value import Access
from looptrans.ir.verdict import Certificate, Decision
from looptrans.ir.walk import accesses, live_out, loops_in, nodes, placed


@dataclass(frozen=True, slots=True)
class Append:
    """Whether blocks of iterations of a loop may be appended.

    Attributes:
        loop: The variable of the loop.
        position: Its place in the program.
        decision: `legal`, with the laws; `illegal` where the state is looked at in between and is
            no sum, product, maximum or minimum; `unknown` where the step has another form, or a law
            could not be proved.
        reason: Why not, a phrase; empty where legal.
        recurrence: The recurrence; None where the loop cannot be read as one.
        states: For `legal`, one for each state of the recurrence, in its order.
        laws: What was proved.
        domain: Where given, over the listing's names, an iteration for which it does not hold
            changes no state: a mask written as a term of -inf.
        scanned: The arrays of states that are looked at in between: a block works out what they
            are in each of its iterations.
    """

    loop: str
    position: Position
    decision: Decision
    reason: str = ""
    recurrence: Recurrence | None = None
    states: tuple[AppendedState, ...] = ()
    laws: tuple[Law, ...] = ()
    domain: Condition | None = None
    scanned: frozenset[str] = frozenset()

    @property
    def read_inside(self) -> tuple[str, ...]:
        """The labels of statements that look at the state in between."""
        return self.recurrence.read_inside if self.recurrence is not None else ()

    def ir(self) -> tuple[Certificate, ...]:
        """Return the laws as certificates of a step."""
        return tuple(ir_certificate(law) for law in self.laws if law.is_required)


def append(program: Program, loop: str | Position, flow: DependenceReport | None = None) -> Append:
    """Decide whether blocks of iterations of a loop may be appended to its state.

    Args:
        program: The program.
        loop: The loop, `j@S7`, or its place.
        flow: The exact flow of the program; found where not given.

    Raises:
        NoRecurrence: There is no such loop.
    """
    position = loop_named(program, loop)[0] if isinstance(loop, str) else loop
    node = _loops(program)[position]
    try:
        known = flow_of(program) if flow is None else flow
        edges = edges_of(program, known, position)
        elements = {array.name: array.element for array in program.arrays}
        iteration = Iteration(node, position, edges, known.assumptions, elements)
        iteration.run()
        step = assembled(program, iteration)
    except NoRecurrence as error:
        return Append(node.variable, position, "unknown", str(error))
    undecided = Append(node.variable, position, "unknown", recurrence=step)
    shared = _shared_cell(program, iteration, step)
    if shared:
        return replace(undecided, reason=shared)
    reason = ""
    try:
        if not step.is_scan:
            states, laws = appended(step)
            domain = domain_of_terms(step, states)
            return replace(undecided, decision="legal", states=states, laws=laws, domain=domain)
    except NoForm as error:
        reason = str(error)
    try:
        states, laws, names = scanned(step)
    except NoForm as error:
        refused: Decision = "illegal" if step.is_scan else "unknown"
        return replace(undecided, decision=refused, reason=reason or str(error))
    arrays = frozenset(state.access.array for state in states if state.state.name in names)
    return replace(undecided, decision="legal", states=states, laws=laws, scanned=arrays)


def appends(program: Program, flow: DependenceReport | None = None) -> tuple[Append, ...]:
    """Decide it for every sequential loop, in the order of the text, the flow found once."""
    positions = [at for at, node in _loops(program).items() if node.execution == "sequential"]
    if not positions:
        return ()
    if flow is None:
        try:
            flow = flow_of(program)
        except NoRecurrence as error:
            return tuple(
                Append(_loops(program)[at].variable, at, "unknown", str(error)) for at in positions
            )
    return tuple(append(program, position, flow) for position in positions)


def _loops(program: Program) -> dict[Position, Loop]:
    """Return the loops around statements by their places, in the order of the text."""
    found: dict[Position, Loop] = {}
    for place in placed(program):
        found |= dict(zip(place.loop_positions, place.loops, strict=True))
    return dict(sorted(found.items()))


def _shared_cell(program: Program, iteration: Iteration, step: Recurrence) -> str:
    """Say which cells besides the state several iterations touch, one of them writing."""
    body = iteration.loop.body
    ranges = ranges_by_name(loops_in(body))
    uses: dict[str, list[Access]] = {}
    written: dict[str, None] = {}
    for node in nodes(body):
        if not (isinstance(node, Assign) or (isinstance(node, If) and node.label is not None)):
            continue
        for relation in accesses(node):
            uses.setdefault(relation.access.array, []).append(relation.access)
            if relation.is_write:
                written[relation.access.array] = None
    cells: dict[str, list[Family]] = {}
    for state in step.states:
        over = tuple((name, ranges[name]) for name in state.over if name != ":")
        cells.setdefault(state.access.array, []).append(Family(state.access, over))
    outside = live_out(program)
    outer = {
        node.variable
        for at, node in _loops(program).items()
        if at == iteration.position[: len(at)] and at != iteration.position
    }
    for array in written:
        if array in cells:
            strange = (
                use
                for use in uses[array]
                if not any(family.matched(use, ranges) is not None for family in cells[array])
            )
            other = next(strange, None)
            if other is not None:
                return f"{array} holds the state, and is touched elsewhere as well"
            continue
        if is_own_cell(uses[array], step.loop, outer):
            continue
        kinds = {edge.kind for edge in iteration.edges if edge.array == array}
        if kinds - {"within"} or array in outside:
            return f"several iterations of {step.loop} touch the same cells of {array}"
    return ""
