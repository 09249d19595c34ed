"""States that each iteration overwrites, kept for every iteration instead.

    h = 0.0                                    h_kept[0] = 0.0
    for t in range(0, T):                      for t in range(0, T):
        h = a[t] * h + x[t]            ->          h_kept[t + 1] = a[t] * h_kept[t] + x[t]
        y[t] = h                                   y[t] = h_kept[t + 1]

That is done where an argument or a result has the dimensions of the loop and of those around it: a
state for each row of keys and each query would be more than a listing of attention has room for.
Where there is no other way a single number is kept for each of them all the same, and a note says
so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.adjoint.carried.set_in_steps import with_names_in_between
from looptrans.adjoint.written.printing import shape_text
from looptrans.analysis.kept_flow import flow_of
from looptrans.frontend import parse
from looptrans.ir.affine import about, difference, extremum, form_of, total
from looptrans.ir.creation import creation_of, first_value
from looptrans.ir.index import Arith, Index, Int, Var
from looptrans.ir.listing import index_text, listing
from looptrans.ir.program import Array, Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.rewrite import rewritten, with_accesses
from looptrans.ir.source import Source
from looptrans.ir.step import same_names
from looptrans.ir.value import Access, Create, Range, Read, Subscript
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import Placed, accesses, placed, touched, written_in
from looptrans.transforms.editing.errors import RangeNotFound
from looptrans.transforms.editing.extents import (
    Ranges,
    declared_range,
    extent,
    extreme,
    is_never_negative,
)
from looptrans.transforms.editing.naming import fresh_label, fresh_name
from looptrans.transforms.editing.tree import LoopPath, loops_around
from looptrans.transforms.judging.check import check_storage
from looptrans.transforms.steps.expand import Dimension, dimension

Position = tuple[int, ...]
_Own = TypeVar("_Own", bound=Subscript)

FEW: Final = 8
"""How many iterations are few."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A listing that keeps its states.

    Attributes:
        program: The listing with the states kept.
        names: For each state, the array that keeps it.
        certificates: What shows that the two mean the same.
    """

    program: Program
    names: tuple[tuple[str, str], ...]
    certificates: tuple[Certificate, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"keep {' and '.join(name for name, _ in self.names)} for every iteration"

    @property
    def note(self) -> str:
        """What it takes, as a sentence."""
        arrays = [self.program.array(kept) for _, kept in self.names]
        shapes = (shape_text(array.extents).replace(" ", ", ") for array in arrays)
        each = (f"{a.name} ({shape})" for a, shape in zip(arrays, shapes, strict=True))
        return f"States are kept for every iteration: {', '.join(each)}."


def with_states_kept(
    program: Program, *, anyway: bool = False, only: frozenset[str] | None = None
) -> Kept | None:
    """Keep the states of loops for every iteration, if a listing has any.

    Args:
        program: The listing.
        anyway: Whether single numbers are kept where nothing is as large, too.
        only: The states that may be kept; None for all.
    """
    found = program
    names = []
    shown = []
    for array in program.arrays:
        if array.role != "local" or array.element != "float":
            continue
        if only is not None and array.name not in only:
            continue
        made = _kept(found, array.name, anyway)
        if made is None:
            between = with_names_in_between(found, array.name)
            made = None if between is None else _kept(between, array.name, anyway)
        if made is not None:
            found, name, reason = made
            names.append((array.name, name))
            law = f"every read of {array.name} gets the value it got before"
            shown.append(Certificate("storage", law, "legal", reason))
    return Kept(found, tuple(names), tuple(shown)) if names else None


def states_without_room(program: Program) -> dict[str, str]:
    """Return the states that could be kept if anything were as large, and what that would take.

    Args:
        program: The listing.
    """
    found = {}
    for array in program.arrays:
        if array.role == "local" and array.element == "float":
            state = _state(program, array.name)
            if state is not None and array.rank and not _has_room(program, state):
                shape = _shape(program, state)
                found[array.name] = f"({shape_text(shape).replace(' ', ', ')})"
    return found


@dataclass(frozen=True, slots=True)
class _State:
    """A state: what one statement of a loop makes of it in each iteration.

    Attributes:
        array: The array, or scalar.
        loop: The loop, and where it stands.
        at: The statement that sets it.
        outer: A dimension for each loop in which it starts anew.
        order: Its own dimensions before that of time, and those behind it.
        ranges: The ranges of the loops around.
    """

    array: Array
    loop: LoopPath
    at: Position
    outer: tuple[Dimension, ...]
    order: tuple[tuple[int, ...], tuple[int, ...]]
    ranges: Ranges

    @property
    def cells(self) -> tuple[Index, Index, Index, Index]:
        """Where time starts, before and behind an iteration, and where it ends."""
        here, bounds = Var(self.loop.variable), self.loop.loop.range
        if bounds.step == 1:
            end = bounds.stop
            if bounds.start != Int(0) or form_of(end).constant < 0:  # 0, too, for range(0, N - 1)
                end = extremum("max", bounds.ends)
            return bounds.start, here, total(here, 1), end
        return total(bounds.start, 1), total(here, 1), here, total(bounds.stop, 1)

    @property
    def extent(self) -> Index | None:
        """How many states there are at most, with the first and the last one."""
        start, _, _, end = self.cells
        last = end if self.loop.loop.range.step == 1 else start
        return extreme(total(last, 1), self.ranges, "highest")

    def placed(self, own: tuple[_Own, ...], time: Index) -> tuple[_Own | Index, ...]:
        """Return subscripts, or extents, with that of time among them."""
        first, last = ([own[n] for n in part] for part in self.order)
        return (*first, time, *last)


def _kept(program: Program, name: str, anyway: bool) -> tuple[Program, str, str] | None:
    """Keep one state; return the listing, the array, and why it is the same; None without room."""
    state = _state(program, name)
    if state is None or (state.outer and name in program.outputs):  # no one last state
        return None
    begun = _with_start(program, state)
    is_filled = begun is not program
    if is_filled:
        program, state = begun, _state(begun, name) or state
    if not _has_room(program, state) and (state.array.rank or not anyway):
        return None
    shape = _shape(program, state)
    kept = fresh_name(program, f"{name}_kept")
    body = _Moving(state, kept).body(program.body, ())
    fill = creation_of(program, name)
    grown = Array(kept, len(shape), "float", "local", shape)
    creation = replace(fill, shape=shape) if fill is not None else Create("zeros", shape)
    behind: tuple[Node, ...] = ()
    if name in program.outputs:
        behind = (_last(program, state, kept),)
    else:
        body = rewritten(body, lambda n: () if _declares(n, name) else (n,))
    after = replace(
        program,
        body=(Declaration(kept, creation), *body, *behind),
        arrays=(*(a for a in program.arrays if a.name != name or behind), grown),
    )
    after = parse(Source(f"<{program.name}>", listing(after)))
    alone = _is_one_by_one(program, state)
    verdict = check_storage(program, after, same_names(program, after), tried=alone)
    if verdict.decision == "illegal" or (verdict.decision == "unknown" and not alone):
        return None
    if is_filled:
        # What it starts from is what its elements are created with.
        at = _declared_at(program, name) + (2 if behind else 1)
        after = replace(after, body=(*after.body[:at], *after.body[at + 1 :]))
        after = parse(Source(f"<{program.name}>", listing(after)))
    reason = "by the dependences of both"
    if verdict.decision == "unknown":
        reason = "from the text: each element goes its own way, and is set in every iteration"
    return after, kept, reason


def _with_start(program: Program, state: _State) -> Program:
    """Let a statement say what a state starts from, where only the declaration of it does."""
    name, array = state.array.name, state.array
    fill = creation_of(program, name)
    before = [p for p in placed(program) if p.position < state.loop.position]
    if not array.rank or any(name in written_in((p.node,)) for p in before):
        return program
    value = None if fill is None else first_value(fill)
    if value is None:
        return program
    own, loops = _loops_over(program, array)
    node: Node = Assign(fresh_label(program), (Access(name, own),), (value,))
    at = _declared_at(program, name) + 1
    body = (*program.body[:at], loops(node), *program.body[at:])
    return parse(Source(f"<{program.name}>", listing(replace(program, body=body))))


def _is_one_by_one(program: Program, state: _State) -> bool:
    """Tell whether every element of a state goes its own way, all of them in each iteration.

    Then what is read before the statement in the text is read before it when the listing runs.
    """
    name, loop = state.array.name, state.loop.position
    (place,) = [p for p in placed(program) if p.position == state.at]
    guards = [branch for branch in place.branches if len(branch) < len(loop)]
    if guards or (state.outer and state.array.rank):
        return False
    own = [
        (position, each)
        for position, each in zip(place.loop_positions, place.loops, strict=True)
        if position != loop
    ]
    assert isinstance(place.node, Assign)
    target = place.node.targets[0]
    extents = dict(zip(target.indices, state.array.extents, strict=True))
    whole = len(extents) == state.array.rank and all(
        each.range == Range(Int(0), extents.get(Var(each.variable), Int(-1)))
        for position, each in own
        if len(position) > len(loop)
    )
    for other in placed(program):
        shared = {Var(each.variable) for at, each in own if at in other.loop_positions}
        here = [n for n, index in enumerate(target.indices) if index in shared]
        for each in accesses(other.node):
            if each.access.array == name and any(
                each.access.subscripts[n] != target.subscripts[n] for n in here
            ):
                return False
    return whole


def _state(program: Program, name: str) -> _State | None:
    """Return a state that a loop hands on, set by one statement in each of its iterations."""
    array = program.array(name)
    writes = [
        place
        for place in placed(program)
        if isinstance(place.node, Assign) and any(t.array == name for t in place.node.targets)
    ]
    for place in writes:
        assert isinstance(place.node, Assign)
        others = [w for w in writes if w is not place]
        (target,) = [t for t in place.node.targets if t.array == name][:1]
        if target.rank or len(place.node.targets) > 1:
            continue
        anew = {
            position
            for other in others
            for position in other.loop_positions
            if other.position < place.position and position in place.loop_positions
        }
        paths = [
            LoopPath(loop, position)
            for position, loop in zip(place.loop_positions, place.loops, strict=True)
        ]
        subscripts = set(target.subscripts)
        own = target.variables
        over = [p for p in paths if p.position not in anew and p.variable not in own]
        if len(over) != 1 or not _hands_on(program, place, name, over[0]):
            continue
        (loop,) = over
        if any(w.position[: len(loop.position)] == loop.position for w in others):
            continue
        ranges = {
            each.variable: declared_range(program, each.loop.range)
            for each in loops_around(program, loop.position)
        }
        if loop.loop.range.step not in (1, -1):
            continue
        if not _starts_at_a_number(program, loop.loop, ranges):
            continue
        starts = [p for p in paths if p.position in anew and Var(p.variable) not in subscripts]
        if not _is_used_in(program, name, starts):
            continue
        # Where rows differ in when time starts or ends it does so in one row each time.
        ends = loop.loop.range.variables
        if not ends <= {each.variable for each in starts}:
            continue
        try:
            outer = tuple(dimension(program, path) for path in starts)
        except RangeNotFound:
            continue
        around = {p.variable for p in paths if p.position < loop.position}
        first = [n for n, s in enumerate(target.indices) if s in {Var(v) for v in around}]
        last = [n for n in range(array.rank) if n not in first]
        order = (tuple(first), tuple(last))
        found = _State(array, loop, place.position, outer, order, ranges)
        if found.extent is not None:
            return found
    return None


def _hands_on(program: Program, place: Placed, name: str, loop: LoopPath) -> bool:
    """Tell whether a loop hands a state on that is more than gathered, or is looked at inside."""
    assert isinstance(place.node, Assign)
    gathers = accumulation(place.node.targets[0], place.node.values[0]) is not None
    found = flow_of(program).dependences
    carried = [
        each.sink
        for each in found
        if each.array == name and each.source == place.label and each.carried_by == loop.variable
    ]
    inside = [
        each.label
        for each in placed(program)
        if each.position[: len(loop.position)] == loop.position and each.label != place.label
    ]
    looked_at = any(
        each.array == name and each.source == place.label and each.sink in inside for each in found
    )
    return bool(carried) and (not gathers or looked_at)


def _starts_at_a_number(program: Program, loop: Loop, ranges: Ranges) -> bool:
    """Tell whether a loop goes up from a number, or down to one from where it lies below."""
    bounds = loop.range
    if bounds.step == 1:
        return isinstance(bounds.start, Int) and bounds.start.value >= 0
    end = total(bounds.stop, 1)
    falls = difference(bounds.start, bounds.stop)
    return isinstance(end, Int) and end.value >= 0 and is_never_negative(program, falls, ranges)


def _is_used_in(program: Program, name: str, loops: list[LoopPath]) -> bool:
    """Tell whether a name is used inside some loops alone."""
    return all(
        place.position[: len(path.position)] == path.position
        for path in loops
        for place in placed(program)
        if name in touched((place.node,))
    )


def _shape(program: Program, state: _State) -> tuple[Index, ...]:
    """Return how large an array is that keeps a state for every iteration."""
    assert state.extent is not None
    shape = state.placed(state.array.extents, extent(program, state.extent))
    return (*(d.extent for d in state.outer), *shape)


def _has_room(program: Program, state: _State) -> bool:
    """Tell whether an argument or a result has what loops outside of a state go over, and time.

    Of a time of a few iterations it need not be known.
    """
    own = state.array.extents
    around = [d.extent for d in state.outer] + [own[n] for n in state.order[0]]
    time = state.extent
    assert time is not None
    if not (isinstance(time, Int) and time.value <= FEW + 1):
        around.append(time)
    wanted = Counter(map(_size, around))
    return any(
        wanted <= Counter(_size(extent) for extent in array.extents)
        for array in program.arrays
        if array.role == "input" or array.name in program.outputs
    )


def _size(extent: Index) -> str:
    """Return an extent, give or take a few; of blocks, that of what they are blocks of."""
    whole = about(extent)
    if isinstance(whole, Arith) and whole.op == "//" and isinstance(whole.right, Int):
        whole = about(whole.left)
    return index_text(whole)


def _declared_at(program: Program, name: str) -> int:
    return next(n for n, node in enumerate(program.body) if _declares(node, name))


def _declares(node: Node, name: str) -> bool:
    return isinstance(node, Declaration) and node.array == name


@dataclass(frozen=True, slots=True)
class _Moving:
    """Lets every statement use the state of its time."""

    state: _State
    kept: str

    def body(self, body: tuple[Node, ...], position: Position) -> tuple[Node, ...]:
        """Return the statements of a body, each with the states that it uses."""
        found: list[Node] = []
        for number, node in enumerate(body):
            here = (*position, number)
            read, written = self._times(here)
            reads = partial(self._cell, read)
            match node:
                case Loop():
                    found.append(replace(node, body=self.body(node.body, here)))
                case If():
                    (tested,) = with_accesses((replace(node, body=(), orelse=()),), reads)
                    assert isinstance(tested, If)
                    then, other = (
                        self.body(node.body, (*here, 1)),
                        self.body(node.orelse, (*here, 2)),
                    )
                    # Where the statement is not reached the state stays what it was.
                    if self._is_in((*here, 1)):
                        other = (*self._same(node.body, (*here, 1)), *other)
                    elif self._is_in((*here, 2)):
                        then = (*self._same(node.orelse, (*here, 2)), *then)
                    found.append(replace(tested, body=then, orelse=other))
                case Assign():
                    (moved,) = with_accesses((node,), reads)
                    assert isinstance(moved, Assign)
                    targets = tuple(self._cell(written, target) for target in node.targets)
                    found.append(replace(moved, targets=targets, augmented=False))
                case _:
                    found.append(node)
        return tuple(found)

    def _times(self, here: Position) -> tuple[Index, Index]:
        """Return the times of what is read, and of what is written, at a place."""
        start, before, behind, end = self.state.cells
        loop = self.state.loop.position
        if here[: len(loop)] == loop and len(here) > len(loop):
            return before if here <= self.state.at else behind, behind
        return (end, end) if here > loop else (start, start)

    def _cell(self, time: Index, access: Access) -> Access:
        if access.array != self.state.array.name:
            return access
        own = self.state.placed(access.subscripts, time)
        return Access(self.kept, (*(d.subscript for d in self.state.outer), *own))

    def _is_in(self, branch: Position) -> bool:
        loop = self.state.loop.position
        return self.state.at[: len(branch)] == branch and branch[: len(loop)] == loop

    def _same(self, body: tuple[Node, ...], branch: Position) -> tuple[Node, ...]:
        """Return the loops to the statement in a branch, with the state as it was in them."""
        node = body[self.state.at[len(branch)]]
        here = (*branch, self.state.at[len(branch)])
        match node:
            case Loop():
                return (replace(node, body=self._same(node.body, here)),)
            case If():
                inner = node.body if self._is_in((*here, 1)) else node.orelse
                return self._same(inner, self.state.at[: len(here) + 1])
            case Assign():
                _, before, behind, _ = self.state.cells
                cell = node.targets[0]
                value = Read(self._cell(before, cell))
                return (Assign("S", (self._cell(behind, cell),), (value,)),)
            case _:
                return ()


def _last(program: Program, state: _State, kept: str) -> Node:
    """Return loops that put the last state where the listing returns it."""
    own, loops = _loops_over(program, state.array)
    source = Access(kept, state.placed(own, state.cells[3]))
    copy = Assign(fresh_label(program), (Access(state.array.name, own),), (Read(source),))
    return loops(copy)


def _loops_over(program: Program, array: Array) -> tuple[tuple[Index, ...], Callable[[Node], Node]]:
    """Return subscripts for each element of an array, and what puts the loops around them."""
    names: list[str] = []
    for _ in array.shape:
        names.append(fresh_name(program, "x", names))

    def around(node: Node) -> Node:
        for name, each in reversed(list(zip(names, array.extents, strict=True))):
            node = Loop(name, Range(Int(0), each), (node,))
        return node

    return tuple(Var(name) for name in names), around
