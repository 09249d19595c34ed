"""Races: two accesses to one cell that nothing orders, one of them a write.

What orders two instances follows from where their statements stand and from their loop variables
(`_unordered`); so a race is found whatever order a run happened to take, and whatever numbers it
computed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from looptrans.ir.program import Assign, Atomic, Program
from looptrans.ir.verdict import Assignment
from looptrans.ir.walk import Placed, placed

Cell: TypeAlias = tuple[int, ...]
Values: TypeAlias = tuple[int, ...]
# The number of a private copy (0 for what is shared) and the subscripts; who touched that cell.
Touched: TypeAlias = dict[tuple[int, Cell], list[Values]]


@dataclass(frozen=True, slots=True)
class Touch:
    """One side of a race.

    Attributes:
        label: The statement, or the guard whose condition reads.
        iteration: The loop variables around it and their values, outermost first.
        is_write: A write, else a read.
    """

    label: str
    iteration: Assignment
    is_write: bool


@dataclass(frozen=True, slots=True)
class Race:
    """Two accesses to one cell that nothing orders.

    Attributes:
        array: The array or scalar.
        cell: Its subscripts; empty for a scalar.
        first: The access that comes first in the sequential reading.
        second: The other.
        loop: The variable of the parallel loop that leaves their order open.
    """

    array: str
    cell: Cell
    first: Touch
    second: Touch
    loop: str


class _Rank(NamedTuple):
    """Which of the examples of a race is shown: the smallest of these.

    Attributes:
        first: The iterations, counted in the order of their loops.
        second: Those of the other.
        is_half: Whether only one of the two writes.
        cell: The cell.
    """

    first: Values
    second: Values
    is_half: bool
    cell: Cell


class _Pair(NamedTuple):
    """Two statements and an array, by where they stand in the program."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    array: int


@dataclass(slots=True)
class RaceLog:
    """The races of one or more runs of a program.

    There is one for every pair of statements and array that race, in the order of the text, each
    with its earliest example.
    """

    _found: dict[_Pair, tuple[_Rank, Race]] = field(default_factory=dict)

    @property
    def races(self) -> tuple[Race, ...]:
        """The races, in the order of the statements."""
        return tuple(self._found[pair][1] for pair in sorted(self._found))

    def add(self, pair: _Pair, rank: _Rank, race: Race) -> None:
        """Note a race; of two examples the smaller one is kept."""
        if pair not in self._found or rank < self._found[pair][0]:
            self._found[pair] = rank, race


@dataclass(slots=True)
class _Kind:
    """What one statement does with one array, and to which cells in which iterations.

    Attributes:
        place: The statement.
        is_write: It writes, else reads.
        operator: The operator, where this is the cell that the update of a reducing block changes.
        reduced: The depth of the parallel loop at the end of whose phase the update is made.
        touched: The iterations that touch each cell.
    """

    place: Placed
    is_write: bool
    operator: str | None
    reduced: int | None
    touched: Touched = field(default_factory=lambda: defaultdict(list))

    def is_atomic(self, depth: int) -> bool:
        """Tell whether an atomic block inside the loop at a depth is around the access.

        An update of a reducing block takes place where the phase ends, so that only a block around
        the whole parallel loop counts.
        """
        outside = len(self.place.loop_positions[depth])
        positions = self.place.loop_positions
        inside = None if self.reduced is None else len(positions[self.reduced])
        return any(
            isinstance(section, Atomic)
            and len(position) > outside
            and (inside is None or len(position) < inside)
            for section, position in zip(
                self.place.sections, self.place.section_positions, strict=True
            )
        )


@dataclass(slots=True)
class Watch:
    """Notes accesses during one run, and finds the races among them.

    Attributes:
        program: The program that runs.
    """

    program: Program
    _places: dict[str, Placed] = field(init=False)
    _exposed: frozenset[str] = field(init=False)
    _kinds: dict[tuple[str, str, bool, str | None], _Kind] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._places = {place.label: place for place in placed(self.program)}
        self._exposed = frozenset(_exposed(self._places.values()))

    def is_exposed(self, name: str) -> bool:
        """Tell whether iterations of a parallel loop may meet in a cell of it."""
        return name in self._exposed

    def touched(self, label: str, array: str, is_write: bool, operator: str | None) -> Touched:
        """Return where the accesses of a statement to an array are noted.

        Args:
            label: The statement.
            array: The array.
            is_write: Whether they are writes.
            operator: That of the reducing block, where the access is to the cell it updates.
        """
        place = self._places[label]
        reduced = None
        if operator is not None:
            parallel = [n for n, each in enumerate(place.loops) if each.execution == "parallel"]
            reduced = parallel[-1] if parallel else None
        kind = _Kind(place, is_write, operator if reduced is not None else None, reduced)
        return self._kinds.setdefault((array, label, is_write, kind.operator), kind).touched

    def report(self, log: RaceLog) -> None:
        """Add the races of the run to a log."""
        for number, array in enumerate(self.program.arrays):
            kinds = [kind for (name, *_), kind in self._kinds.items() if name == array.name]
            kinds.sort(key=lambda kind: (kind.place.position, kind.is_write))
            for at, first in enumerate(kinds):
                for second in kinds[at:]:
                    found = _earliest(array.name, first, second)
                    if found is not None:
                        pair = _Pair(first.place.position, second.place.position, number)
                        log.add(pair, *found)


def _exposed(places: Iterable[Placed]) -> Iterator[str]:
    """Yield what is written inside a parallel loop that does not stand around its private copy."""
    for place in places:
        if isinstance(place.node, Assign):
            for target in place.node.targets:
                own = [n for n, loop in enumerate(place.loops) if target.array in loop.private]
                inside = place.loops[own[-1] + 1 :] if own else place.loops
                if any(loop.execution == "parallel" for loop in inside):
                    yield target.array


# What is not ordered


class _Case(NamedTuple):
    """A way for two kinds of accesses to be unordered.

    Their iterations are equal in all shared loops above a depth. At that depth the first kind's is
    the earlier one, or the second kind's; or `any` two are unordered, whatever they are.
    """

    depth: int
    earlier: Literal["first", "second", "any"]


def _unordered(first: _Kind, second: _Kind) -> Iterator[_Case]:
    """Yield the ways in which nothing orders two accesses to one cell, one of them a write.

    Two instances that differ first in a sequential loop run in its order, two of the same iteration
    of all shared loops in the order of the text. In a parallel loop only barriers and turns order
    them. The updates of reducing blocks happen where the phase ends, so that within the phase they
    are ordered with nothing, not even with what their own iteration does.
    """
    if not (first.is_write or second.is_write):
        return
    if first.operator is not None and first.operator == second.operator:
        return
    a, b = first.place, second.place
    shared = _shared(a, b)
    reduced = [k.reduced for k in (first, second) if k.reduced is not None and k.reduced < shared]
    for depth in range(min(reduced, default=shared)):
        if a.loops[depth].execution == "sequential" or a.phases[depth] != b.phases[depth]:
            continue
        if first.is_atomic(depth) and second.is_atomic(depth):
            continue
        if not _take_turns(a, b, depth):
            yield _Case(depth, "first")
        if first is not second and not _take_turns(b, a, depth):
            yield _Case(depth, "second")
    if reduced and a.phases[min(reduced)] == b.phases[min(reduced)]:
        yield _Case(min(reduced), "any")


def _shared(a: Placed, b: Placed) -> int:
    """Return the number of loops around both."""
    count = 0
    for one, other in zip(a.loop_positions, b.loop_positions, strict=False):
        if one != other:
            break
        count += 1
    return count


def _take_turns(earlier: Placed, later: Placed, depth: int) -> bool:
    """Tell whether a turn of a loop puts `earlier` before `later` in every later iteration.

    The block must not stand before the one nor after the other.
    """
    loop = earlier.loops[depth]
    level = len(earlier.loop_positions[depth])
    start, end = earlier.position[level], later.position[level]
    return any(
        isinstance(node, Atomic) and node.turn == loop.variable
        for node in loop.body[start : end + 1]
    )


# Examples


def _earliest(array: str, first: _Kind, second: _Kind) -> tuple[_Rank, Race] | None:
    """Return the earliest example of a race between two kinds of accesses to an array."""
    best: tuple[_Rank, _Kind, _Kind, int] | None = None
    is_half = not (first.is_write and second.is_write)
    for case in _unordered(first, second):
        one, other = (second, first) if case.earlier == "second" else (first, second)
        falls, theirs_fall = _falls(one), _falls(other)
        for key in one.touched.keys() & other.touched.keys():
            mine, theirs = one.touched[key], other.touched[key]
            if falls:
                mine = [_flipped(one, values) for values in mine]
            if theirs_fall:
                theirs = [_flipped(other, values) for values in theirs]
            example = _least(case, mine, theirs)
            if example is None:
                continue
            early, late = one, other
            if case.earlier == "any" and not _comes_first(early, late, *example):
                early, late, example = late, early, example[::-1]
            rank = _Rank(*example, is_half, key[1])
            if best is None or rank < best[0]:
                best = rank, early, late, case.depth
    if best is None:
        return None
    rank, early, late, depth = best
    touches = _touch(early, rank.first), _touch(late, rank.second)
    return rank, Race(array, rank.cell, *touches, early.place.loops[depth].variable)


def _falls(kind: _Kind) -> bool:
    """Tell whether a loop around an access runs downwards."""
    return any(loop.range.step < 0 for loop in kind.place.loops)


def _flipped(kind: _Kind, values: Values) -> Values:
    """Negate what runs downwards, so that iterations compare in the order of their loops."""
    return tuple(
        value if loop.range.step > 0 else -value
        for loop, value in zip(kind.place.loops, values, strict=True)
    )


def _least(
    case: _Case, mine: Sequence[Values], theirs: Sequence[Values]
) -> tuple[Values, Values] | None:
    """Return the smallest two iterations that are equal above the depth, and unordered there."""
    depth = case.depth
    if depth == 0:
        return _least_here(case, mine, theirs)
    if len(mine) == len(theirs) == 1:  # most cells of most programs
        equal = mine[0][:depth] == theirs[0][:depth]
        return _least_here(case, mine, theirs) if equal else None
    groups: dict[Values, list[Values]] = defaultdict(list)
    for values in theirs:
        groups[values[:depth]].append(values)
    own: dict[Values, list[Values]] = defaultdict(list)
    for values in mine:
        if values[:depth] in groups:
            own[values[:depth]].append(values)
    found = (_least_here(case, own[above], groups[above]) for above in sorted(own))
    return next((each for each in found if each is not None), None)


def _least_here(
    case: _Case, mine: Sequence[Values], theirs: Sequence[Values]
) -> tuple[Values, Values] | None:
    least = min(mine)
    if case.earlier != "any":
        theirs = [values for values in theirs if values[case.depth] > least[case.depth]]
    return (least, min(theirs)) if theirs else None


def _comes_first(one: _Kind, other: _Kind, mine: Values, theirs: Values) -> bool:
    """Tell whether an access comes before another one in the sequential reading."""
    a, b = one.place, other.place
    for depth in range(_shared(a, b)):
        if a.phases[depth] != b.phases[depth]:
            return a.phases[depth] < b.phases[depth]
        if mine[depth] != theirs[depth]:
            return mine[depth] < theirs[depth]
    return (a.position, one.is_write) <= (b.position, other.is_write)


def _touch(kind: _Kind, counted: Values) -> Touch:
    values = _flipped(kind, counted)
    variables = [loop.variable for loop in kind.place.loops]
    return Touch(kind.place.label, tuple(zip(variables, values, strict=True)), kind.is_write)
