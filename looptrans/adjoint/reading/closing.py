"""Loops that carry more than a sum, written as sums: their closed forms in their place.

    for j:                                              for j: m = max(m, x[j])
        t = max(m, x[j])                                for j: l = l + exp(x[j] - m)
        l = l * exp(m - t) + exp(x[j] - t)      ->
        m = t

What the loop leaves behind is found and proved by the algebra (`operators/closed.py`); its other
statements stay in a loop of their own. The listing that comes out is only read, to be
differentiated; what runs is the listing as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from looptrans.adjoint.reading.closed_nodes import ClosedNodes, NotClosed
from looptrans.adjoint.reading.kept_values import keep
from looptrans.adjoint.reading.nested_folds import outermost_of_a_fold
from looptrans.algebra.certificate import certificate_of, ir_certificate
from looptrans.algebra.iterations.assembly import assembled, flow_of, iteration_of
from looptrans.algebra.iterations.edges import NoRecurrence, edges_of
from looptrans.algebra.iterations.infinities import without_tests
from looptrans.algebra.iterations.iteration import Iteration
from looptrans.algebra.iterations.recurrence import Recurrence, StateVariable
from looptrans.algebra.operators.closed import ClosedFold, closed_fold
from looptrans.algebra.operators.finding import Finding, find_operator, with_counter
from looptrans.algebra.operators.tried import refused_text, tried_text
from looptrans.algebra.positional.bound import kept_apart
from looptrans.algebra.positional.values import names_of
from looptrans.frontend import parse
from looptrans.ir.facts import DependenceReport
from looptrans.ir.listing import access_text, listing
from looptrans.ir.program import Loop, Program
from looptrans.ir.source import Source
from looptrans.ir.value import Binary, Call, Real
from looptrans.ir.verdict import Certificate
from looptrans.transforms.editing.tree import LoopPath, Position, loop_name, loop_paths, replace_at


@dataclass(frozen=True, slots=True)
class Exchange:
    """One loop that became several nodes.

    Attributes:
        position: Where the loop stood.
        count: How many nodes stand there now.
        states: The arrays and scalars that hold its state.
    """

    position: Position
    count: int
    states: tuple[str, ...]

    def back(self, position: Position) -> tuple[Position, bool]:
        """Return where a node stood before, and whether it is one of the new ones."""
        depth = len(self.position) - 1
        if position[:depth] != self.position[:depth] or len(position) <= depth:
            return position, False
        first = self.position[depth]
        if position[depth] < first:
            return position, False
        if position[depth] < first + self.count:
            return self.position, True
        return (*position[:depth], position[depth] - self.count + 1, *position[depth + 1 :]), False


@dataclass(frozen=True, slots=True)
class Closing:
    """A loop in its closed form.

    Attributes:
        loop: The loop, as the listing before it calls it.
        before: The listing before.
        after: The listing with the closed form in its place.
        exchange: What stands where.
        formulas: What the loop leaves in its state, a line each.
        certificates: The laws it leans on, every one proved.
    """

    loop: str
    before: Program
    after: Program
    exchange: Exchange
    formulas: tuple[str, ...]
    certificates: tuple[Certificate, ...]


@lru_cache(maxsize=16)
def closings(program: Program) -> tuple[tuple[Closing, ...], tuple[str, ...]]:
    """Put closed forms in the place of all loops that carry more than sums, as far as they go.

    Returns:
        The closings in order, each from the listing the one before it left; and for each loop that
        has none the reason why.
    """
    found: list[Closing] = []
    reasons: dict[str, None] = {}
    current = program
    while True:
        made = _next(current, reasons)
        if made is None:
            return tuple(found), tuple(reasons)
        found.append(made)
        current = made.after


def _next(program: Program, reasons: dict[str, None]) -> Closing | None:
    try:
        flow = flow_of(program)
    except NoRecurrence as error:
        reasons[str(error)] = None
        return None
    for path in loop_paths(program):
        try:
            fold = _fold(program, path, flow)
            if fold is not None:
                return _closed(program, fold)
        except (NoRecurrence, NotClosed) as error:
            if isinstance(error, NotClosed) or _carries(program, path, flow):
                reasons[f"the loop {path.variable}: {error}"] = None
    return None


@dataclass(frozen=True, slots=True)
class _Fold:
    """A loop that carries more than sums, or a nest of loops that is one fold.

    Attributes:
        path: The loop, of a nest the outermost one.
        around: Of a nest the loops around the innermost.
        name: What the innermost loop is called.
        iteration: One iteration of it, carried out.
        step: It as a recurrence.
    """

    path: LoopPath
    around: tuple[Loop, ...]
    name: str
    iteration: Iteration
    step: Recurrence


def _fold(program: Program, path: LoopPath, flow: DependenceReport) -> _Fold | None:
    """Return the fold of a loop, or of the nest that it is the outermost loop of.

    Raises:
        NoRecurrence: It is no chain of values that can be followed.
        NotClosed: What it reads cannot be kept for later, or the nest is not one fold.
    """
    nest = outermost_of_a_fold(program, path, flow)
    inner = path if nest is None else nest.path
    name = loop_name(program, inner.position)
    iteration = iteration_of(program, name, flow if nest is None else nest.flow)
    kept = keep(program, iteration)
    step = assembled(program, iteration)
    if nest is not None:
        nest.check(step)
    if all(_is_plain(state, step) for state in step.states):
        return None
    plain = without_tests(step)
    step = replace(
        step, states=tuple(replace(s, update=plain.get(s.name, s.update)) for s in step.states)
    )
    iteration.loop = kept.written(iteration, step)
    return _Fold(path, () if nest is None else nest.around, name, iteration, step)


def _closed(program: Program, found: _Fold) -> Closing:
    path, step = found.path, found.step
    if step.is_scan:
        raise NotClosed(f"{step.read_inside[0]} looks at {_cells(step)} in between")
    finding, fold = _folded(step)
    if fold.law.answer != "proved":
        raise NotClosed(f"the closed form of {_cells(step)} is not proved")
    if any(component.monoid == "*" for component in fold.components):
        raise NotClosed(f"{_cells(step)} gathers a product, whose factors may be zero")
    writing = ClosedNodes(program, found.iteration, step, finding, fold, found.around)
    new = writing.nodes()
    changed = kept_apart(replace_at(program, path.position, new))
    after = parse(Source(f"<{program.name}>", listing(changed)))
    certificate = certificate_of(program, found.name, finding)
    return Closing(
        loop_name(program, path.position),
        program,
        after,
        Exchange(path.position, len(new), tuple(s.access.array for s in step.states)),
        writing.formulas(),
        (*certificate.ir(), ir_certificate(fold.law)),
    )


def _folded(step: Recurrence) -> tuple[Finding, ClosedFold]:
    """Find the operator of a recurrence and its closed form, with a counter where that helps."""
    finding = find_operator(step)
    if finding.operator is None:
        if finding.refusal is not None:
            verb = "has" if len(step.states) == 1 else "have"
            numbers = refused_text(finding.recurrence, finding.refusal)
            raise NotClosed(f"{_cells(step)} {verb} none: {numbers}")
        tried = tried_text(finding.recurrence, finding.tried)
        raise NotClosed(f"none was found for {_cells(step)}: {tried}")
    fold = closed_fold(finding.recurrence, finding.operator)
    counted = with_counter(step) if fold is None else None
    if counted is not None:
        finding = find_operator(counted)
        if finding.operator is not None:
            fold = closed_fold(finding.recurrence, finding.operator)
    if fold is None:
        verb = "is" if len(step.states) == 1 else "are"
        raise NotClosed(
            f"{_cells(step)} {verb} no sum, maximum or minimum, not under any map either"
        )
    return finding, fold


def _cells(step: Recurrence) -> str:
    return ", ".join(access_text(state.access) for state in step.states)


def _carries(program: Program, path: LoopPath, flow: DependenceReport) -> bool:
    """Tell whether a loop carries a value from one statement to another."""
    edges = edges_of(program, flow, path.position)
    return any(edge.kind == "carried" and edge.source != edge.sink for edge in edges)


def _is_plain(state: StateVariable, step: Recurrence) -> bool:
    """Tell whether a state only adds to itself, or is the largest or smallest so far."""
    others = {s.name for s in step.states}
    update = state.update
    while True:
        match update:
            case Real(name):
                return name == state.name
            case Binary("+", left, right):
                parts = [left, right]
            case Binary("-", left, right) if not others & set(names_of(right)):
                parts = [left]
            case Call("max" | "min", arguments) if len(arguments) > 1:
                parts = list(arguments)
            case _:
                return False
        mine = [part for part in parts if others & set(names_of(part))]
        if len(mine) != 1:
            return False
        kind = type(update)
        if not isinstance(mine[0], Real | kind):
            return False
        functions = {part.function for part in (update, mine[0]) if isinstance(part, Call)}
        if len(functions) > 1:
            return False
        update = mine[0]
