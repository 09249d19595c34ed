"""What orders the instances of a parallel program, as a graph, and the races that follow.

The graph has a node for every statement instance that ran, and nodes where parallel loops start,
meet at a barrier and end, and where blocks are entered and left in turn. Two instances are ordered
where a path leads from one to the other. Nothing here looks at distances, phases as numbers or
positions in the text, as `looptrans.executor.races` does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations_with_replacement

from looptrans.executor import Entry
from looptrans.ir.program import Assign, Atomic, Barrier, BlockReduce, If, Loop, Node, Program
from looptrans.ir.walk import Placed, placed

Position = tuple[int, ...]
Instance = tuple[str, tuple[int, ...]]
Conflicts = dict[tuple[str, str, str], list[tuple[Entry, Entry]]]


class Concurrency:
    """The order of the instances of one run, given what it accessed in the sequential reading."""

    def __init__(self, program: Program, entries: Iterable[Entry]) -> None:
        self.places = {place.label: place for place in placed(program)}
        self.entries = list(dict.fromkeys(entries))
        self.values: dict[tuple[Position, Position], set[int]] = defaultdict(set)
        for entry in self.entries:
            place = self.places[entry.label]
            for depth, position in enumerate(place.loop_positions):
                self.values[position, entry.iteration[:depth]].add(entry.iteration[depth])
        self.after: list[list[int]] = [[]]
        self.event: dict[Instance, int] = {}
        self.effect: dict[Instance, int] = {}
        self.phase: dict[tuple[Instance, Position], int] = {}
        self._block(program.body, (), (), 0, None)
        self.reached = self._closure()

    # The graph; every edge leads from an older node to a newer one.

    def _new(self, *before: int) -> int:
        self.after.append([])
        for each in before:
            self.after[each].append(len(self.after) - 1)
        return len(self.after) - 1

    def _closure(self) -> list[int]:
        reached = [0] * len(self.after)
        for node in reversed(range(len(self.after))):
            for each in self.after[node]:
                reached[node] |= reached[each] | 1 << each
        return reached

    def _block(
        self,
        body: tuple[Node, ...],
        base: Position,
        prefix: Position,
        last: int,
        pending: list[int] | None,
        reducing: bool = False,
    ) -> int:
        for number, node in enumerate(body):
            last = self._node(node, (*base, number), prefix, last, pending, reducing)
        return last

    def _node(
        self,
        node: Node,
        here: Position,
        prefix: Position,
        last: int,
        pending: list[int] | None,
        reducing: bool,
    ) -> int:
        match node:
            case Assign(label=label):
                last = self.event[label, prefix] = self._new(last)
                if reducing and pending is not None:
                    self.effect[label, prefix] = self._new(last)
                    pending.append(self.effect[label, prefix])
            case If(label=label):
                if label is not None:
                    last = self.event[label, prefix] = self._new(last)
                last = self._block(node.body, (*here, 1), prefix, last, pending, reducing)
                last = self._block(node.orelse, (*here, 2), prefix, last, pending, reducing)
            case Atomic() | BlockReduce():
                inside = reducing or isinstance(node, BlockReduce)
                last = self._block(node.body, here, prefix, last, pending, inside)
            case Loop(execution="parallel"):
                last = self._parallel(node, here, prefix, last)
            case Loop():
                for value in self._ordered(node, here, prefix):
                    last = self._block(node.body, here, (*prefix, value), last, pending, reducing)
            case _:
                pass
        return last

    def _ordered(self, loop: Loop, here: Position, prefix: Position) -> list[int]:
        return sorted(self.values[here, prefix], reverse=loop.range.step < 0)

    def _parallel(self, loop: Loop, here: Position, prefix: Position, last: int) -> int:
        values = self._ordered(loop, here, prefix)
        at = dict.fromkeys(values, self._new(last))
        pending: list[int] = []
        phases: list[list[tuple[int, Node]]] = [[]]
        for number, node in enumerate(loop.body):
            if isinstance(node, Barrier):
                phases.append([])
            else:
                phases[-1].append((number, node))
        for phase in phases:
            left: dict[int, int] = {}
            for value in values:
                for number, node in phase:
                    if isinstance(node, Atomic) and node.turn == loop.variable:
                        at[value] = self._new(at[value], *[left[n] for n in left if n == number])
                    at[value] = self._node(
                        node, (*here, number), (*prefix, value), at[value], pending, False
                    )
                    if isinstance(node, Atomic) and node.turn == loop.variable:
                        left[number] = at[value]
            meeting = self._new(*at.values(), *pending)
            pending.clear()
            at = dict.fromkeys(values, meeting)
        return self._new(last, *at.values())

    # Races

    def races(self) -> Conflicts:
        """The pairs that race, by the two statements, in the order of the text, and the array."""
        return self._conflicts(False)

    def meetings(self) -> Conflicts:
        """The pairs that do not race for being atomic, and come in any order."""
        return self._conflicts(True)

    def _conflicts(self, atomic: bool) -> Conflicts:
        cells: dict[object, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            cells[entry.array, self._copy(entry), entry.cell].append(entry)
        found: Conflicts = defaultdict(list)
        for entries in cells.values():
            for one, other in combinations_with_replacement(entries, 2):
                conflict = (one.is_write or other.is_write) and self._unordered(one, other)
                if conflict and self._are_atomic(one, other) == atomic:
                    pair = sorted((one, other), key=lambda e: self.places[e.label].position)
                    found[pair[0].label, pair[1].label, one.array].append((one, other))
        return found

    def _copy(self, entry: Entry) -> object:
        place = self.places[entry.label]
        own = [n for n, loop in enumerate(place.loops) if entry.array in loop.private]
        return (place.loop_positions[own[-1]], entry.iteration[: own[-1] + 1]) if own else None

    def _unordered(self, one: Entry, other: Entry) -> bool:
        operators = self._operator(one), self._operator(other)
        if operators[0] is not None and operators[0] == operators[1]:
            return False
        if self._same_phase(one, other):
            return True
        a, b = self._when(one), self._when(other)
        return a != b and not (self.reached[a] >> b & 1 or self.reached[b] >> a & 1)

    def _are_atomic(self, one: Entry, other: Entry) -> bool:
        blocks = self._atomic(one), self._atomic(other)
        return not self._same_phase(one, other) and None not in blocks and blocks[0] != blocks[1]

    def _when(self, entry: Entry) -> int:
        instance = entry.label, entry.iteration
        return self.event[instance] if self._operator(entry) is None else self.effect[instance]

    def _operator(self, entry: Entry) -> str | None:
        """The operator, where the entry is the access of an update to its cell."""
        place = self.places[entry.label]
        if (entry.label, entry.iteration) not in self.effect:
            return None
        assert isinstance(place.node, Assign)
        if place.node.targets[0].array != entry.array:
            return None
        return next(s.operator for s in place.sections if isinstance(s, BlockReduce))

    def _loop(self, place: Placed) -> int:
        """The depth of the innermost parallel loop."""
        return max(n for n, loop in enumerate(place.loops) if loop.execution == "parallel")

    def _same_phase(self, one: Entry, other: Entry) -> bool:
        """Whether one is an update, and the other happens in the phase at whose end it is made."""
        for update, beside in ((one, other), (other, one)):
            if self._operator(update) is None:
                continue
            a, b = self.places[update.label], self.places[beside.label]
            depth = self._loop(a)
            inside = a.loop_positions[: depth + 1] == b.loop_positions[: depth + 1]
            if inside and update.iteration[:depth] == beside.iteration[:depth]:
                bars = [self._bars(place, depth) for place in (a, b)]
                if bars[0] == bars[1]:
                    return True
        return False

    def _bars(self, place: Placed, depth: int) -> int:
        before = place.position[len(place.loop_positions[depth])]
        return sum(isinstance(node, Barrier) for node in place.loops[depth].body[:before])

    def _atomic(self, entry: Entry) -> object:
        """The run of an atomic block that the access is part of, None where it is in none."""
        place = self.places[entry.label]
        for section, position in zip(place.sections, place.section_positions, strict=True):
            if isinstance(section, Atomic):
                depth = sum(len(each) < len(position) for each in place.loop_positions)
                if self._operator(entry) is not None and self._loop(place) < depth:
                    return None
                return position, entry.iteration[:depth]
        return None


def example_is_among(pairs: Sequence[tuple[Entry, Entry]], touches: Sequence[object]) -> bool:
    """Whether one of the pairs consists of these (label, iteration, is_write), in either order."""
    wanted = set(touches)
    return any({(e.label, e.iteration, e.is_write) for e in pair} == wanted for pair in pairs)
