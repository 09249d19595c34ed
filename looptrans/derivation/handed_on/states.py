"""What iterations hand on through an array, handed on in a state besides.

    for t: h[t + 1] = a[t] * h[t] + x[t]      ->      for t: state = a[t] * state + x[t]
                                                             h[t + 1] = state

An element that the iteration before has just set need not be read again from memory, where it may
lie in another lane; what is a state of the loop stays in registers. Where elements look at each
other, the next state is made beside it:

    for t: for d: h[t + 1, d] = tanh(sum(W[d, e] * h[t, e] for e))

    for t: for d: next[d] = tanh(sum(W[d, e] * state[e] for e))
           for d: state[d] = next[d]

What looks back further has a state for each iteration that it looks at:

    for t: h[t] = a * h[t - 1] + b * h[t - 2]    ->    for t: next = a * state + b * state_2
                                                              state_2 = state; state = next
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count, pairwise

from looptrans.analysis.kept_flow import flow_of
from looptrans.derivation.forms.opaque_tests import about, with_tests_as_data
from looptrans.derivation.handed_on.handed import Handed, handed
from looptrans.derivation.one_loop.writing import done
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.condition import Relation, conjunction
from looptrans.ir.creation import creation_of, first_value
from looptrans.ir.index import Index, Int, Var, variables
from looptrans.ir.program import Array, Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.rewrite import rewritten, with_accesses
from looptrans.ir.step import same_names
from looptrans.ir.value import Access, Range, Read, Value
from looptrans.ir.verdict import Certificate, Verdict
from looptrans.ir.walk import live_out, placed, read_in
from looptrans.transforms.editing.accesses import sites_of
from looptrans.transforms.editing.any_products import with_any_products
from looptrans.transforms.editing.finish import finished
from looptrans.transforms.editing.naming import fresh_label, fresh_name
from looptrans.transforms.editing.tree import in_loops
from looptrans.transforms.judging.check import check_storage

Position = tuple[int, ...]


def in_state(program: Program, name: str) -> DerivationStep:
    """Hand on in a state what iterations hand on through an array.

    Args:
        program: The program.
        name: The array.

    Raises:
        NotDone: They do not, or it could not be shown that the state is the same.
    """
    found = handed(program, program.array(name))
    if found is None:
        raise NotDone(f"no iteration reads of {name} just what the one before has set")
    states = [fresh_name(program, f"{name.replace('.', '_')}_state")]
    for back in range(2, found.order + 1):
        states.append(fresh_name(program, f"{states[0]}_{back}"))
    beside = fresh_name(program, f"{name.replace('.', '_')}_next")
    late = replace(found, late=True, begun=False)
    anew = replace(found, anew=True, begun=False)
    ways = [(found, None), (found, beside), (late, None), (anew, beside)]
    if found.order > 1 or found.around:
        ways = [way for way in ways if way[1] is not None]
    (found, following), *others = ways
    names = _Names(tuple(states), following)
    checked, verdict = _checked(program, found, names)
    if verdict.decision == "illegal":
        for way, following in others:
            called = replace(names, following=following)
            made, other = _checked(program, way, called)
            if other.decision == "legal":
                found, names, checked, verdict = way, called, made, other
                break
    if verdict.decision != "legal":
        raise NotDone(f"a state for {name} is {verdict.decision}: {verdict.reason}")
    certificates = verdict.certificates or (
        Certificate("storage", "every read gets the value it got before", "legal", verdict.reason),
    )
    created = creation_of(program, name)
    fill = None if created is None else first_value(created)
    final = checked
    unwritten = _unwritten(checked, name, names) if fill is not None and not found.begun else ()
    if fill is not None and unwritten:
        final = _with_state(program, found, names, dict.fromkeys(unwritten, fill))
        law = f"what {' and '.join(unwritten)} find in {name} is what it is created with"
        reason = "nothing that was written reaches it, by the flow of values"
        certificates = (*certificates, Certificate("storage", law, "legal", reason))
    text = f"hand {name} on in a state: an iteration reads what the one before has set"
    return DerivationStep(text, "state", (name,), program, done(final), certificates)


@dataclass(frozen=True, slots=True)
class _Names:
    """What states are called.

    Attributes:
        states: That of the iteration before, of the one before that, and so on.
        following: The next state, where it is made beside them.
    """

    states: tuple[str, ...]
    following: str | None

    @property
    def all(self) -> tuple[str, ...]:
        """Every one of them."""
        return self.states if self.following is None else (*self.states, self.following)


def _checked(program: Program, found: Handed, names: _Names) -> tuple[Program, Verdict]:
    made = _with_state(program, found, names, {})
    seen, then = with_tests_as_data(program), with_tests_as_data(made)
    asked = {found.array.name, *names.all}

    def alone(pair: tuple[Program, ...]) -> Verdict:
        return _judged(*(about(with_tests_as_data(each), asked) for each in pair), tried=False)

    pair = with_any_products(seen, then)
    if pair is not None:
        verdict = alone(pair)
    if pair is None or verdict.decision == "unknown":
        verdict = _judged(seen, then)
    if pair is None and verdict.decision == "unknown":
        # What integer arrays choose of other arrays does not matter to this one.
        other = alone((seen, then))
        verdict = other if other.decision == "legal" else verdict
    return finished(made, same_names(program, made))[0], verdict


def _judged(program: Program, made: Program, *, tried: bool = True) -> Verdict:
    final, images = finished(made, same_names(program, made))
    return check_storage(program, final, images, tried=tried)


def _unwritten(program: Program, array: str, names: _Names) -> tuple[str, ...]:
    """Return the states that start from nothing that has been written, whatever is repeated.

    for r: for t in range(r, T): h[t + 1] = a[t] * h[t]      the second r starts at h[1]
    """
    flow = flow_of(program)
    if flow.unknown is not None:
        return ()
    starts = {
        place.label: place.node.targets[0].array
        for place in placed(program)
        if isinstance(place.node, Assign)
        and place.node.targets[0].array in names.all
        and array in read_in((place.node,))
    }
    written = {starts.get(each.sink) for each in flow.dependences if each.array == array}
    return tuple(name for name in names.all if name in starts.values() and name not in written)


def _with_state(
    program: Program, found: Handed, names: _Names, fills: Mapping[str, Value]
) -> Program:
    """Return the program with a state that starts as the first iteration would find it.

    Args:
        program: The program.
        found: What iterations hand on.
        names: What the states are called.
        fills: What states start from that do not read it.
    """
    read = set(names.all) - {names.following} | ({names.following} if found.anew else set())
    seen = found.begun or not read <= set(fills) or _is_seen(program, found)
    shape = found.without_time(found.array.extents)
    own = creation_of(program, found.array.name)
    assert own is not None
    body = _Stating(program, found, names, seen, fills, count(1)).body(program.body, ())
    if not seen:
        body = tuple(n for n in body if not _declares(n, found.array.name))
    creation = replace(own, shape=shape, element=None)
    made = tuple(Declaration(name, creation) for name in names.all) if shape else ()
    arrays = tuple(a for a in program.arrays if seen or a.name != found.array.name)
    new = tuple(Array(name, len(shape), "float", "local", shape) for name in names.all)
    return replace(program, arrays=(*arrays, *new), body=(*made, *body))


def _is_seen(program: Program, found: Handed) -> bool:
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
        names: What the states are called.
        seen: Whether the array is needed besides.
        fills: What states start from that do not read it.
        numbers: Numbers for labels.
    """

    program: Program
    found: Handed
    names: _Names
    seen: bool
    fills: Mapping[str, Value]
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
                    parts = (*self._created(), *self._inside(node.body), *self._moved_on())
                    made.append(replace(node, body=parts))
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
        target = Access(self.names.states[0], self.found.without_time(node.targets[0].indices))
        first = replace(node, targets=(target,), augmented=False)
        return (first, self._copy(node.targets[0], Read(target)))

    def _start(self) -> list[Node]:
        """Return what the states start from: what the first iteration would find."""
        started = [*enumerate(self.names.states, 1)]
        around, own, _ = self._cells()
        mine = {index.name for index in own if isinstance(index, Var)}
        if own and around <= mine:  # what is known is what they are created with
            started = [(n, name) for n, name in started if name not in self.fills]
        return [each for n, name in started for each in self._found(name, self.found.first(n))]

    def _created(self) -> list[Node]:
        """Return that the next state is what its cells were created with, before any is set."""
        if not self.found.anew or self.names.following is None:
            return []
        return self._found(self.names.following, self.found.behind)

    def _found(self, state: str, at: Index) -> list[Node]:
        """Return that a state is what the array holds at a time, if it has cells there."""
        _, own, loops = self._cells()
        time = self.found.time
        source = Access(self.found.array.name, (*own[:time], at, *own[time:]))
        fill = self.fills.get(state)
        node: Node = self._copy(Access(state, own), fill or Read(source))
        if fill is None:
            end = self.found.array.shape[time]
            assert end is not None
            inside = conjunction(Relation(">=", at, Int(0)), Relation("<", at, end))
            node = If(inside, (node,))
        return [*in_loops(loops, node)]

    def _moved_on(self) -> list[Node]:
        """Return that the next state is the state now, and that the one before, where it is made.

        In one loop over all that they hold, the oldest first.
        """
        if self.names.following is None:
            return []
        _, own, loops = self._cells()
        both = (self.names.following, *self.names.states)
        copies = [
            self._copy(Access(to, own), Read(Access(of, own)))
            for of, to in reversed(list(pairwise(both)))
        ]
        return [*in_loops(loops, *copies)]

    def _cells(self) -> tuple[set[str], tuple[Index, ...], list[tuple[str, Range]]]:
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
        shape = self.found.without_time(self.found.array.extents)
        own: list[Index] = []
        loops: list[tuple[str, Range]] = []
        names: list[str] = []
        for index, extent in zip(self.found.without_time(write), shape, strict=True):
            if set(variables(index)) <= around:
                own.append(index)
                continue
            like = variables(index)[0]
            names.append(fresh_name(self.program, like, names))
            own.append(Var(names[-1]))
            loops.append((names[-1], Range(Int(0), extent)))
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
        back = self.found.back(access.indices[self.found.time]) or 0
        name = self.names.states[max(back - 1, 0)]
        if not back and self.names.following is not None:
            name = self.names.following
        return Access(name, self.found.without_time(access.indices))
