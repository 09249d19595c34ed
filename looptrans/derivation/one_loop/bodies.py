"""The body of a loop without its recurrence: what each iteration works out from its inputs alone.

for j: S[i, j] = sum(…)               S[i, j] = sum(…)      stays
m[i] = max(m[i], S[i, j])  ->  m[i] = …              goes, and is written anew
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from looptrans.algebra.iterations.assembly import assembled, flow_of, iteration_of
from looptrans.algebra.iterations.edges import NoRecurrence, loop_named
from looptrans.algebra.iterations.iteration import Iteration
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.positional.cells import is_new_each_time, mentions, moved, same_cell
from looptrans.derivation.one_loop.writing import without
from looptrans.derivation.step import NotDone
from looptrans.ir.condition import Condition, conjunction
from looptrans.ir.facts import DependenceReport
from looptrans.ir.index import Var
from looptrans.ir.listing import access_text
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.remember import remembered
from looptrans.ir.value import (
    Access,
    Const,
    IndexValue,
    Range,
    Read,
    Real,
    Value,
    arrays_tested,
    rank_of,
    walk_value,
)
from looptrans.ir.walk import (
    accesses,
    assignments,
    inner_bodies,
    live_out,
    nodes,
    placed,
    read_in,
    written_in,
)
from looptrans.transforms.editing.substitute import rename_variable
from looptrans.transforms.editing.tree import walk_positions


@dataclass(frozen=True, slots=True)
class Rest:
    """What is left of a loop's body without its recurrence.

    Attributes:
        loop: The loop.
        iteration: The iteration as it was carried out.
        body: The nodes that stay.
        gone: The labels of the statements that do not.
    """

    loop: Loop
    iteration: Iteration
    body: tuple[Node, ...]
    gone: frozenset[str]


@dataclass(frozen=True, slots=True)
class Kept:
    """The body of a loop that stays, seen from the recurrence that is written behind it.

    Attributes:
        before: What stands in front.
        inside: What is done under the guard of the recurrence, directly in front of it.
        condition: The guard, None where there is none.
    """

    before: tuple[Node, ...]
    inside: tuple[Node, ...]
    condition: Condition | None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """What is done in each iteration in which the recurrence moves."""
        return (*self.before, *self.inside)

    def with_(self, made: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return the body with the recurrence."""
        if self.condition is None:
            return (*self.nodes, *made)
        return (*self.before, If(self.condition, (*self.inside, *made)))


def kept_of(body: tuple[Node, ...], condition: Condition | None) -> Kept:
    """Take apart what stays of a body: guards at its end that are the recurrence's are opened."""
    if condition is None:
        return Kept(body, (), None)
    first = len(body)
    inside: tuple[Node, ...] = ()
    while first:
        found = _under(body[first - 1])
        if found is None or found[0] != condition:
            break
        if arrays_tested(condition) & written_in(found[1]):
            break
        inside = (*found[1], *inside)
        first -= 1
    return Kept(body[:first], inside, condition)


def _under(node: Node) -> tuple[Condition, tuple[Node, ...]] | None:
    """Return the guard of a node, guards inside one another as one, and what is behind it."""
    if not isinstance(node, If) or node.orelse:
        return None
    if len(node.body) == 1:
        inner = _under(node.body[0])
        if inner is not None:
            return conjunction(node.condition, inner[0]), inner[1]
    return node.condition, node.body


def flow(program: Program) -> DependenceReport:
    """Return the exact flow of a program.

    Raises:
        NotDone: It is not known.
    """
    try:
        return flow_of(program)
    except NoRecurrence as error:
        raise NotDone(str(error)) from None


def rest_of(
    program: Program,
    name: str,
    facts: DependenceReport,
    states: tuple[Access, ...],
    writers: Iterable[str],
    staying: tuple[Access, ...] = (),
) -> Rest:
    """Take the recurrence out of the body of a loop.

    Args:
        program: The program.
        name: The loop.
        facts: The exact flow.
        states: The cells of all states, of this loop and of others that it is made one with.
        writers: The labels of the statements that write the states.
        staying: The cells of states of this loop that are no part of the recurrence.

    Raises:
        NotDone: A statement besides looks at a state.
    """
    try:
        iteration = iteration_of(program, name, facts)
    except NoRecurrence as error:
        raise NotDone(str(error)) from None
    gone = set(writers)
    for label, values in iteration.computed:
        if any(_looks_at(value, iteration, states, staying) for value in values):
            gone.add(label)
    own = {n.label for n in assignments(iteration.loop.body)}
    gone &= own
    _require_one_value(iteration, gone)
    _require_unseen(program, iteration, gone - set(writers), states)
    targets = {
        target.array
        for node in nodes(iteration.loop.body)
        if isinstance(node, Assign) and node.label in gone
        for target in node.targets
    }

    def drop(node: Node) -> bool:
        if isinstance(node, If) and node.label is not None:
            return bool(arrays_tested(node.condition) & targets)
        return isinstance(node, Assign) and node.label in gone

    body = without(iteration.loop.body, drop)
    kept = {n.label for n in assignments(body)}
    lost = own - gone - kept
    if lost:
        # What went with a test of the state may go where only what goes as well looks at it.
        _require_unseen(program, iteration, lost, states)
        left = {
            target.array
            for node in nodes(iteration.loop.body)
            if isinstance(node, Assign) and node.label in lost
            for target in node.targets
        }
        if left & read_in(body):
            raise NotDone(f"whether {', '.join(sorted(lost))} runs depends on the state")
    return Rest(iteration.loop, iteration, body, frozenset(gone | lost))


def recurrence_of(program: Program, loop: str) -> Recurrence:
    """Read a loop as a recurrence.

    Raises:
        NotDone: It is none.
    """
    known = _recurrences(program)
    if loop not in known:
        try:
            known[loop] = assembled(program, iteration_of(program, loop, flow(program)))
        except NoRecurrence as error:
            known[loop] = str(error)
    found = known[loop]
    if isinstance(found, str):
        raise NotDone(found)
    return found


@remembered
def _recurrences(_: Program) -> dict[str, Recurrence | str]:
    """Return where the recurrences of a program are kept, or why there is none, by loop."""
    return {}


def _looks_at(
    value: Value, iteration: Iteration, states: tuple[Access, ...], staying: tuple[Access, ...]
) -> bool:
    for cell in iteration.states_in(value):
        if not any(same_cell(cell, other) for other in staying):
            return True
    for part in walk_value(iteration.plain(value)):
        if isinstance(part, Read) and any(same_cell(part.access, cell) for cell in states):
            return True
    return False


def _require_one_value(iteration: Iteration, gone: set[str]) -> None:
    """Require that what loops inside make is the same wherever what goes may be written again.

    for d: t = 0                        t is another number for each d, and stands behind the loop
           for k: t = t + x[k, d]       only for the last
           O[d] = O[d] + t
    """
    for position, node in walk_positions(iteration.loop.body, iteration.position):
        if not isinstance(node, Loop):
            continue
        anew = {
            found.family.access.array
            for found in iteration.found.values()
            if len(found.maker) > len(position) and found.maker[: len(position)] == position
            if not mentions(found.family.access, node.variable)
        }
        for inner in nodes(node.body):
            if isinstance(inner, Assign) and inner.label in gone:
                reads = (r.access.array for r in accesses(inner) if not r.is_write)
                array = next((name for name in reads if name in anew), None)
                if array is not None:
                    raise NotDone(
                        f"{array} takes a value of its own from every iteration of {node.variable}"
                    )


def _require_unseen(
    program: Program, iteration: Iteration, gone: set[str], states: tuple[Access, ...]
) -> None:
    """Require that nothing outside looks at what the statements that go have written."""
    seen = live_out(program)
    for node in nodes(iteration.loop.body):
        if not isinstance(node, Assign) or node.label not in gone:
            continue
        for target in node.targets:
            if _is_replaced(iteration.loop.body, node, target):
                continue
            returned = target.array in seen and not _is_set_again(program, iteration, node, target)
            sinks = [
                edge.sink
                for edge in iteration.edges
                if edge.source == node.label
                and edge.array == target.array
                and edge.kind in ("leaving", "outer", "carried")
            ]
            if returned or sinks:
                reader = "the caller" if returned else sinks[0]
                which = ", ".join(dict.fromkeys(access_text(cell) for cell in states))
                raise NotDone(
                    f"{node.label} writes {access_text(target)} for each "
                    f"{iteration.loop.variable} from {which}, and {reader} reads it: "
                    "a second pass is needed",
                    "illegal",
                )


def _is_replaced(body: tuple[Node, ...], node: Assign, target: Access) -> bool:
    """Tell whether a statement behind it in its block sets the very cell that a statement sets."""
    if any(other is node for other in body):
        behind = body[next(n for n, other in enumerate(body) if other is node) + 1 :]
        return any(isinstance(other, Assign) and target in other.targets for other in behind)
    return any(_is_replaced(inner, node, target) for n in body for inner in inner_bodies(n))


def _is_set_again(program: Program, iteration: Iteration, node: Assign, target: Access) -> bool:
    """Tell whether an iteration ends with the very cells of a statement surely set by others."""
    ranges = ranges_in(program, (node.label,))
    last = iteration.holds(target, ranges)
    if last is None or node.label in last.labels or not last.labels:
        return False
    branches = {place.label: place.branches for place in placed(program)}
    own = branches[node.label]
    # Under guards they run wherever the statement does, if theirs are around it as well.
    with_it = all(
        branches[each] and own[: len(branches[each])] == branches[each] for each in last.labels
    )
    if last.old and not with_it:
        return False
    return all(ranges_in(program, (label,)) == ranges for label in last.labels)


def renamed(body: tuple[Node, ...], old: str, new: str) -> tuple[Node, ...]:
    """Return a block with a loop variable renamed."""
    if old == new:
        return body
    return tuple(rename_variable(node, old, new) for node in body)


def worked_out(rests: Iterable[Rest], body: tuple[Node, ...], loop: str) -> dict[Value, Value]:
    """Return what single statements directly in a body have worked out, and where it is.

    Args:
        rests: The loops the body comes from.
        body: What is kept of them, one after another.
        loop: The variable they share now.
    """
    direct = {node.label: node for node in body if isinstance(node, Assign)}
    # What a name has in the end is what it was given last.
    last = {target.array: node.label for node in assignments(body) for target in node.targets}
    found: dict[Value, Value] = {}
    for rest in rests:
        here = {rest.loop.variable: Var(loop)}
        for label, values in rest.iteration.computed:
            kept = direct.get(label)
            if kept is None or len(kept.targets) != 1 or last[kept.targets[0].array] != label:
                continue
            value = _with_variable(rest.iteration.plain(values[0]), here)
            if isinstance(value, Const | Real | IndexValue) or rank_of(value) > 1:
                continue
            found.setdefault(value, Read(kept.targets[0]))
    return found


def _with_variable(value: Value, indices: dict[str, Var]) -> Value:
    from looptrans.algebra.positional.cells import value_moved

    return value_moved(value, dict(indices))


def once_each(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Leave out what repeats something earlier, where nothing has changed in between."""
    found: list[Node] = []
    for node in body:
        repeated = any(
            _is_repeated(other, node)
            and not _writes_any(found[number + 1 :], read_in((other,)) | written_in((other,)))
            for number, other in enumerate(found)
        )
        if not repeated:
            found.append(node)
    return tuple(found)


def _is_repeated(first: Node, second: Node) -> bool:
    """Tell whether the second of two nodes does what the first has done, and no more."""
    if read_in((first,)) & written_in((first,)):
        return False
    match first, second:
        case Assign(), Assign():
            return (first.targets, first.values) == (second.targets, second.values)
        case If(), If():
            one, other = _under(first), _under(second)
            if one is None or other is None or one[0] != other[0] or len(one[1]) != len(other[1]):
                return False
            return all(map(_is_repeated, one[1], other[1]))
        case _:
            return False


def _writes_any(body: list[Node], arrays: set[str]) -> bool:
    return bool(written_in(tuple(body)) & arrays)


def require_separate(rests: tuple[Rest, ...], states: tuple[Access, ...], loop: str) -> None:
    """Require that loops made one touch the same cells only where that is known to do no harm.

    A state is touched only as the cell it is; anything else that one loop writes and another
    touches is a new cell for each iteration, or lives within an iteration.

    Raises:
        NotDone: A cell may be read in another iteration than the one that writes it.
    """
    touched: list[tuple[int, Access, bool]] = []
    for number, rest in enumerate(rests):
        here = {rest.loop.variable: Var(loop)}
        for node in nodes(rest.loop.body):
            if isinstance(node, Assign) or (isinstance(node, If) and node.label is not None):
                for relation in accesses(node):
                    access = moved(relation.access, here)
                    touched.append((number, access, relation.is_write))
    cells = {cell.array: cell for cell in states}
    for array in dict.fromkeys(access.array for _, access, writes in touched if writes):
        uses = [(number, access) for number, access, _ in touched if access.array == array]
        if array in cells:
            other = next((a for _, a in uses if not same_cell(a, cells[array])), None)
            if other is not None:
                raise NotDone(
                    f"{access_text(other)} may be the cell {access_text(cells[array])} as well"
                )
            continue
        if len({number for number, _ in uses}) == 1:
            continue
        first = uses[0][1]
        if is_new_each_time(first, loop) and all(same_cell(first, a) for _, a in uses):
            continue
        kinds = {e.kind for rest in rests for e in rest.iteration.edges if e.array == array}
        if kinds - {"within"}:
            raise NotDone(f"{array} passes values from one iteration of {loop} to another")


def ranges_in(program: Program, labels: Iterable[str]) -> dict[str, Range]:
    """Return the ranges of the loops around statements."""
    wanted = set(labels)
    return {
        loop.variable: loop.range
        for place in placed(program)
        if place.label in wanted
        for loop in place.loops
    }


def labels_of(step: Recurrence) -> tuple[str, ...]:
    """Return the labels of the statements that write the states."""
    return tuple(dict.fromkeys(label for state in step.states for label in state.statements))


def position_of(program: Program, loop: str) -> tuple[tuple[int, ...], Loop]:
    """Find a loop.

    Raises:
        NotDone: There is no such loop.
    """
    try:
        return loop_named(program, loop)
    except NoRecurrence as error:
        raise NotDone(str(error)) from None
