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

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from looptrans.adjoint.reading.closed_nodes import ClosedNodes, NotClosed, is_logarithm
from looptrans.adjoint.reading.kept_values import keep
from looptrans.adjoint.reading.nested_folds import outermost_of_a_fold
from looptrans.adjoint.rewriting.unread import without_unread
from looptrans.algebra.certificate import certificate_of, ir_certificate
from looptrans.algebra.iterations.assembly import assembled, flow_of, iteration_of
from looptrans.algebra.iterations.edges import NoRecurrence, edges_of
from looptrans.algebra.iterations.infinities import without_tests
from looptrans.algebra.iterations.iteration import Iteration
from looptrans.algebra.iterations.powers_added import with_powers_added
from looptrans.algebra.iterations.recurrence import Recurrence, StateVariable
from looptrans.algebra.operators.closed import ClosedFold, closed_fold
from looptrans.algebra.operators.finding import Finding, find_operator, with_counter
from looptrans.algebra.operators.tried import refused_text, tried_text
from looptrans.algebra.positional.bound import kept_apart
from looptrans.algebra.positional.cells import mentions
from looptrans.algebra.positional.values import names_of
from looptrans.frontend import parse
from looptrans.ir.facts import DependenceReport
from looptrans.ir.listing import access_text, listing
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.source import Source
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Read,
    Real,
    Select,
    Value,
    cells_read,
    walk_value,
)
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import touched
from looptrans.transforms.editing.tree import (
    LoopPath,
    Position,
    block_at,
    loop_name,
    loop_paths,
    replace_at,
)


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


def with_logarithms_closed(program: Program) -> Closing | None:
    """Put its closed form in the place of a loop that carries the logarithm of a sum of powers.

        for j: t = log(exp(L) + exp(x[j]))              for j: top = max(top, x[j])
               O = O * exp(L - t) + exp(x[j] - t) * v   for j: l = l + exp(x[j] - top)
               L = t                                    L = top + log(l)
                                                        for j: O = O + exp(x[j] - L) * v

    Returns:
        The first one that is written so that no power is too large; None where there is none. What
        comes out may run, for its powers are so, too, and what nothing reads any more is gone.
    """
    for path in loop_paths(program):
        if not _has_logarithms(path.loop):
            continue
        try:
            fold = _fold(program, path, flow_of(program))
            if fold is not None and fold.is_below and not fold.around:
                made = _closed(program, fold, logarithms=True)
                if made is not None:
                    numbers = {a.name for a in program.arrays if not a.rank and a.role == "local"}
                    after = without_unread(_begun_once(made.after, made.exchange), numbers)
                    return replace(made, after=after)
        except (NoRecurrence, NotClosed):
            continue
    return None


def _begun_once(program: Program, exchange: Exchange) -> Program:
    """Leave out what sets scalars in front of a closed form that sets them itself.

    L = sink[h]                      top = sink[h]
    top = L                          for j: top = max(top, x[j])
    for j: top = max(top, x[j])  ->  l = exp(sink[h] - top)
    l = exp(L - top)                 …
    …                                L = top + log(l)
    L = top + log(l)
    """
    *outer, number = exchange.position
    for name in exchange.states:
        cell = Read(Access(name, ()))
        block = block_at(program, (*outer, number))
        touching = [n for n, node in enumerate(block) if name in touched((node,))]
        first = max((n for n in touching if n < number), default=None)
        inside = [n for n in touching if number <= n < number + exchange.count]
        if program.array(name).rank or first is None or not inside:
            continue
        last = next((n for n in inside if _sets(block[n], cell)), None)
        match block[first]:
            case Assign(targets=(target,), values=(value,)) if target == cell.access:
                given = cells_read(value)
            case _:
                continue
        if last is None or any(program.array(access.array).role != "input" for access in given):
            continue
        if not all(isinstance(block[n], Assign) for n in inside if n < last):
            continue

        def change(part: Value, cell: Read = cell, value: Value = value) -> Value | None:
            return value if part == cell else None

        for n in inside:
            node = block[n]
            if n <= last and isinstance(node, Assign):
                new = tuple(replaced(each, change) for each in node.values)
                program = replace_at(program, (*outer, n), (replace(node, values=new),))
        program = replace_at(program, (*outer, first), ())
        number -= 1
    return program


def _sets(node: Node, cell: Read) -> bool:
    return isinstance(node, Assign) and cell.access in node.targets


def _has_logarithms(loop: Loop) -> bool:
    """Tell whether a loop sets a cell that it has looked at, with a logarithm on the way."""
    own = list(_own(loop.body))
    values = [value for node in own for value in node.values]
    read = {part.access for each in values for part in walk_value(each) if isinstance(part, Read)}
    return any(
        isinstance(part, Call) and part.function == "log"
        for each in values
        for part in walk_value(each)
    ) and any(
        target in read and not mentions(target, loop.variable)
        for node in own
        for target in node.targets
    )


def _own(body: tuple[Node, ...]) -> Iterator[Assign]:
    """Yield the statements of a block that stand in no loop of it."""
    for node in body:
        match node:
            case Assign():
                yield node
            case If():
                yield from _own((*node.body, *node.orelse))
            case _:
                pass


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
        is_below: Whether a logarithm of powers is written so that none of them is too large.
    """

    path: LoopPath
    around: tuple[Loop, ...]
    name: str
    iteration: Iteration
    step: Recurrence
    is_below: bool


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
    is_below = any(_is_below(state.update) for state in step.states)
    plain = without_tests(step)
    updates = {s.name: with_powers_added(plain.get(s.name, s.update)) for s in step.states}
    step = replace(step, states=tuple(replace(s, update=updates[s.name]) for s in step.states))
    iteration.loop = kept.written(iteration, step)
    around = () if nest is None else nest.around
    return _Fold(path, around, name, iteration, step, is_below)


def _is_below(update: Value) -> bool:
    """Tell whether there is a logarithm in a value, and a choice of the larger of two numbers."""
    parts = list(walk_value(update))
    called = {part.function for part in parts if isinstance(part, Call)}
    chosen = bool({"max", "min", "abs"} & called) or any(isinstance(p, Select) for p in parts)
    return "log" in called and chosen


def _closed(program: Program, found: _Fold, *, logarithms: bool = False) -> Closing | None:
    """Return a loop in its closed form; None where it is to have logarithms, and has none."""
    path, step = found.path, found.step
    if step.is_scan:
        raise NotClosed(f"{step.read_inside[0]} looks at {_cells(step)} in between")
    inside = (step.loop, *(loop.variable for loop in found.around))
    moving = (s.access for s in step.states if any(mentions(s.access, v) for v in inside))
    if (access := next(moving, None)) is not None:
        raise NotClosed(f"{access_text(access)} is another cell in each iteration")
    finding, fold = _folded(step)
    if fold.law.answer != "proved":
        raise NotClosed(f"the closed form of {_cells(step)} is not proved")
    if any(component.monoid == "*" for component in fold.components):
        raise NotClosed(f"{_cells(step)} gathers a product, whose factors may be zero")
    if logarithms and not any(map(is_logarithm, fold.components)):
        return None
    writing = ClosedNodes(
        program, found.iteration, step, finding, fold, found.around, found.is_below
    )
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
