"""What iterations hand on through an array, handed on in a state besides.

    for t: h[t + 1] = a[t] * h[t] + x[t]      ->      for t: state = a[t] * state + x[t]
                                                             h[t + 1] = state

An element that the iteration before has just set need not be read again from memory, where it may
lie in another lane; what is a state of the loop stays in registers. Where elements look at each
other, the next state is made beside it:

    for t: for d: h[t + 1, d] = tanh(sum(W[d, e] * h[t, e] for e))

    for t: for d: next[d] = tanh(sum(W[d, e] * state[e] for e))
           for d: state[d] = next[d]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

from looptrans.derivation.flows import flow_of
from looptrans.derivation.opaque_tests import with_tests_as_data
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.derivation.writing import done
from looptrans.ir.affine import form_of, is_same, simplified, total
from looptrans.ir.condition import Relation, conjunction
from looptrans.ir.creation import creation_of, first_value
from looptrans.ir.index import Index, Int, Var, substitute, variables
from looptrans.ir.program import Array, Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.rewrite import rewritten, with_accesses
from looptrans.ir.step import same_names
from looptrans.ir.value import Access, Range, Read, Value, Whole
from looptrans.ir.verdict import Certificate, Verdict
from looptrans.ir.walk import live_out, placed
from looptrans.transforms.accesses import AccessSite, sites_of
from looptrans.transforms.check import check_storage
from looptrans.transforms.naming import fresh_label, fresh_name
from looptrans.transforms.nest import finished
from looptrans.transforms.tree import LoopPath

Position = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Handed:
    """An array through which iterations hand something on.

    Attributes:
        array: The array.
        loop: The loop, and where it stands.
        time: Which dimension goes with it.
        behind: What an iteration sets in it.
        alone: Whether nothing else writes the array.
        begun: Whether what else writes it says what the first iteration finds.
        late: Whether the first iteration reads nothing that one before it would have set: the state
            starts as what it may leave as it is.
    """

    array: Array
    loop: LoopPath
    time: int
    behind: Index
    alone: bool
    begun: bool
    late: bool = False

    @property
    def before(self) -> Index:
        """What the iteration before has set."""
        return self._at(total(Var(self.loop.variable), -self.loop.loop.range.step))

    @property
    def first(self) -> Index:
        """What the first iteration finds."""
        step = 0 if self.late else self.loop.loop.range.step
        return self._at(total(self.loop.loop.range.start, -step))

    def _at(self, time: Index) -> Index:
        return simplified(substitute(self.behind, {self.loop.variable: time}))

    def without_time(self, each: tuple[Index, ...]) -> tuple[Index, ...]:
        """Return subscripts or extents without that of time."""
        return (*each[: self.time], *each[self.time + 1 :])


def handed_on(program: Program) -> tuple[str, ...]:
    """Return the arrays through which iterations hand something on, that a state could keep."""
    return tuple(a.name for a in program.arrays if _handed(program, a) is not None)


def in_state(program: Program, name: str) -> DerivationStep:
    """Hand on in a state what iterations hand on through an array.

    Args:
        program: The program.
        name: The array.

    Raises:
        NotDone: They do not, or it could not be shown that the state is the same.
    """
    found = _handed(program, program.array(name))
    if found is None:
        raise NotDone(f"no iteration reads of {name} just what the one before has set")
    state = fresh_name(program, f"{name.replace('.', '_')}_state")
    beside = fresh_name(program, f"{name.replace('.', '_')}_next")
    following: str | None = None
    checked, verdict = _checked(program, found, state, None)
    if verdict.decision == "illegal":
        late = replace(found, late=True, begun=False)
        for handed, names in ((found, beside), (late, None), (late, beside)):
            made, other = _checked(program, handed, state, names)
            if other.decision == "legal":
                found, following, checked, verdict = handed, names, made, other
                break
    if verdict.decision != "legal":
        raise NotDone(f"a state for {name} is {verdict.decision}: {verdict.reason}")
    certificates = verdict.certificates or (
        Certificate("storage", "every read gets the value it got before", "legal", verdict.reason),
    )
    created = creation_of(program, name)
    fill = first_value(created) if found.alone and created is not None else None
    final = checked
    if fill is not None and not _is_written_before(checked, name, state):
        final = _with_state(program, found, (state, following), fill)
        law = f"what the first iteration finds in {name} is what it is created with"
        reason = "nothing that was written reaches it, by the flow of values"
        certificates = (*certificates, Certificate("storage", law, "legal", reason))
    text = f"hand {name} on in a state: an iteration reads what the one before has set"
    return DerivationStep(text, "state", (name,), program, done(final), certificates)


def _checked(
    program: Program, found: _Handed, state: str, following: str | None
) -> tuple[Program, Verdict]:
    made = _with_state(program, found, (state, following), None)
    seen, then = with_tests_as_data(program), with_tests_as_data(made)
    final, images = finished(then, same_names(seen, then))
    return finished(made, same_names(program, made))[0], check_storage(seen, final, images)


def _is_written_before(program: Program, array: str, state: str) -> bool:
    """Tell whether a state may start from what has been written, as by a loop around that repeats.

    for r: for t in range(r, T): h[t + 1] = a[t] * h[t]      the second r starts at h[1]
    """
    flow = flow_of(program)
    starts = {
        place.label
        for place in placed(program)
        if isinstance(place.node, Assign) and place.node.targets[0].array == state
    }
    return flow.unknown is not None or any(
        each.array == array and each.sink in starts for each in flow.dependences
    )


def _handed(program: Program, array: Array) -> _Handed | None:
    if array.role != "local" or array.element != "float" or not array.rank:
        return None
    if None in array.shape or creation_of(program, array.name) is None:
        return None
    sites = sites_of(program, array.name)
    for site in sites:
        if not site.relation.is_write or not isinstance(site.place.node, Assign):
            continue
        for position, loop in zip(site.place.loop_positions, site.place.loops, strict=True):
            path = LoopPath(loop, position)
            found = _along(array, path, site, sites)
            if found is not None:
                return found
    return None


def _along(
    array: Array, path: LoopPath, write: AccessSite, sites: tuple[AccessSite, ...]
) -> _Handed | None:
    """Return how an array is handed on along a loop, by one statement that sets it."""
    if path.loop.execution == "parallel" or path.loop.range.step not in (1, -1):
        return None
    depth = len(path.position)
    inside = [s for s in sites if s.place.position[:depth] == path.position]
    if any(isinstance(s, Whole) for each in inside for s in each.access.subscripts):
        return None
    times = [n for n, s in enumerate(write.access.indices) if path.variable in variables(s)]
    if len(times) != 1:
        return None
    behind = write.access.indices[times[0]]
    if abs(form_of(behind).terms.get(Var(path.variable), 0)) != 1:
        return None
    around = {loop.variable for loop in write.place.loops} - {path.variable}
    if around & set(variables(behind)):
        return None
    alone = all(each in inside for each in sites if each.relation.is_write)
    found = _Handed(array, path, times[0], behind, alone, begun=False)
    outside = [s for s in sites if s.relation.is_write and s not in inside]
    begun = bool(outside) and all(
        isinstance(each.place.node, Assign)
        and len(each.place.node.targets) == 1
        and not each.access.rank
        and each.place.position < path.position
        and is_same(each.access.indices[times[0]], found.first)
        for each in outside
    )
    found = replace(found, begun=begun)
    reads = [s for s in inside if not s.relation.is_write]
    for each in inside:
        own = each.access.indices
        others = found.without_time(own)
        if any(path.variable in variables(index) for index in others):
            return None
        is_behind = is_same(own[found.time], found.behind)
        if each.relation.is_write and not (is_behind and isinstance(each.place.node, Assign)):
            return None
        if not is_behind and not is_same(own[found.time], found.before):
            return None
    if not any(is_same(each.access.indices[found.time], found.before) for each in reads):
        return None
    if any(len(s.place.node.targets) > 1 for s in inside if isinstance(s.place.node, Assign)):
        return None
    return found


def _with_state(
    program: Program, found: _Handed, names: tuple[str, str | None], fill: Value | None
) -> Program:
    """Return the program with a state that starts as the first iteration would find it.

    Args:
        program: The program.
        found: What iterations hand on.
        names: The names of the state, and of the next one where it is made beside it.
        fill: What it starts from; None where it is read.
    """
    seen = fill is None or _is_seen(program, found)
    shape = found.without_time(tuple(e for e in found.array.shape if e is not None))
    own = creation_of(program, found.array.name)
    assert own is not None
    state, following = names
    body = _Stating(program, found, state, following, seen, fill, count(1)).body(program.body, ())
    if not seen:
        body = tuple(n for n in body if not _declares(n, found.array.name))
    both = (state,) if following is None else (state, following)
    creation = replace(own, shape=shape, element=None)
    made = tuple(Declaration(name, creation) for name in both) if shape else ()
    arrays = tuple(a for a in program.arrays if seen or a.name != found.array.name)
    new = tuple(Array(name, len(shape), "float", "local", shape) for name in both)
    return replace(program, arrays=(*arrays, *new), body=(*made, *body))


def _is_seen(program: Program, found: _Handed) -> bool:
    """Tell whether anything outside of the loop touches an array, or sees it in the end."""
    depth = len(found.loop.position)
    return found.array.name in live_out(program) or any(
        site.place.position[:depth] != found.loop.position
        for site in sites_of(program, found.array.name)
    )


def _declares(node: Node, name: str) -> bool:
    return isinstance(node, Declaration) and node.array == name


@dataclass(frozen=True, slots=True)
class _Stating:
    """Puts a state in the place of what iterations hand on.

    Attributes:
        program: The program.
        found: What they hand on.
        state: What the state is called.
        following: What the next state is called, where it is made beside it.
        seen: Whether the array is needed besides.
        fill: What the state starts from; None where it is read.
        numbers: Numbers for labels.
    """

    program: Program
    found: _Handed
    state: str
    following: str | None
    seen: bool
    fill: Value | None
    numbers: Iterator[int]

    def body(self, body: tuple[Node, ...], position: Position) -> tuple[Node, ...]:
        """Return a body with what the state starts from, and the loop that hands it on."""
        loop = self.found.loop.position
        made: list[Node] = []
        for number, node in enumerate(body):
            here = (*position, number)
            match node:
                case Loop() if here == loop:
                    if not self.found.begun:
                        made += self._start()
                    made.append(replace(node, body=(*self._inside(node.body), *self._moved_on())))
                case Loop() if here == loop[: len(here)]:
                    made.append(replace(node, body=self.body(node.body, here)))
                case If() if here == loop[: len(here)]:
                    then, other = node.body, node.orelse
                    if loop[len(here)] == 1:
                        then = self.body(then, (*here, 1))
                    else:
                        other = self.body(other, (*here, 2))
                    made.append(replace(node, body=then, orelse=other))
                case _ if self.found.begun and here < loop:
                    made += rewritten((node,), self._begun)
                case _:
                    made.append(node)
        return tuple(made)

    def _begun(self, node: Node) -> tuple[Node, ...]:
        """Let a statement that sets what the first iteration finds set the state, too."""
        if not isinstance(node, Assign) or node.targets[0].array != self.found.array.name:
            return (node,)
        target = Access(self.state, self.found.without_time(node.targets[0].indices))
        first = replace(node, targets=(target,), augmented=False)
        return (first, self._copy(node.targets[0], Read(target)))

    def _start(self) -> list[Node]:
        """Return what the state starts from: what the first iteration would find."""
        around, own, loops = self._cells()
        time = self.found.time
        source = Access(self.found.array.name, (*own[:time], self.found.first, *own[time:]))
        target = Access(self.state, own)
        mine = {index.name for index in own if isinstance(index, Var)}
        if self.fill is not None and own and around <= mine:
            return []  # it is created so
        node: Node = self._copy(target, self.fill or Read(source))
        if self.fill is None:
            end = self.found.array.shape[time]
            assert end is not None
            first = self.found.first
            inside = conjunction(Relation(">=", first, Int(0)), Relation("<", first, end))
            node = If(inside, (node,))
        return [_in_loops(loops, node)]

    def _moved_on(self) -> list[Node]:
        """Return that the next state is the state now, where it was made beside it."""
        if self.following is None:
            return []
        _, own, loops = self._cells()
        copy = self._copy(Access(self.state, own), Read(Access(self.following, own)))
        return [_in_loops(loops, copy)]

    def _cells(self) -> tuple[set[str], tuple[Index, ...], list[tuple[str, Index]]]:
        """Return the variables around the loop, the cells of a state, and the loops over these."""
        loop = self.found.loop.position
        site = next(
            site
            for site in sites_of(self.program, self.found.array.name)
            if site.relation.is_write and site.place.position[: len(loop)] == loop
        )
        write = site.access.indices
        loops_around = zip(site.place.loop_positions, site.place.loops, strict=True)
        around = {each.variable for at, each in loops_around if len(at) < len(loop)}
        shape = self.found.without_time(tuple(e for e in self.found.array.shape if e is not None))
        own: list[Index] = []
        loops: list[tuple[str, Index]] = []
        names: list[str] = []
        for index, extent in zip(self.found.without_time(write), shape, strict=True):
            if set(variables(index)) <= around:
                own.append(index)
                continue
            like = variables(index)[0]
            names.append(fresh_name(self.program, like, names))
            own.append(Var(names[-1]))
            loops.append((names[-1], extent))
        return around, tuple(own), loops

    def _copy(self, target: Access, value: Value) -> Assign:
        label = fresh_label(self.program)
        return Assign(f"S{int(label[1:]) + next(self.numbers)}", (target,), (value,))

    def _inside(self, body: tuple[Node, ...]) -> tuple[Node, ...]:
        made: list[Node] = []
        for node in body:
            match node:
                case Assign() if node.targets[0].array == self.found.array.name:
                    (moved,) = with_accesses((node,), self._stated)
                    assert isinstance(moved, Assign)
                    made.append(replace(moved, augmented=False))
                    if self.seen:
                        value = Read(moved.targets[0])
                        made.append(self._copy(node.targets[0], value))
                case Assign():
                    made += with_accesses((node,), self._stated)
                case Loop():
                    made.append(replace(node, body=self._inside(node.body)))
                case If():
                    (tested,) = with_accesses((replace(node, body=(), orelse=()),), self._stated)
                    assert isinstance(tested, If)
                    then, other = self._inside(node.body), self._inside(node.orelse)
                    made.append(replace(tested, body=then, orelse=other))
                case _:
                    made.append(node)
        return tuple(made)

    def _stated(self, access: Access) -> Access:
        if access.array != self.found.array.name:
            return access
        now = is_same(access.indices[self.found.time], self.found.before)
        name = self.state if now or self.following is None else self.following
        return Access(name, self.found.without_time(access.indices))


def _in_loops(loops: list[tuple[str, Index]], node: Node) -> Node:
    for name, extent in reversed(loops):
        node = Loop(name, Range(Int(0), extent), (node,))
    return node
