"""Recurrences whose state cannot be the result of a part: shown with numbers.

If results of parts are states, joining `y` with a part B can depend on B only through the state
that B reaches from the start. So two parts that reach one state, and part ways after the same
iteration in front of them, show that no operator on the state exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, combinations, permutations
from random import Random

import mpmath

from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.operators.drawn import FLOATS, Drawn, NotDrawn, Row, drawn_of
from looptrans.algebra.positional.numbers import DIGITS, NoNumber, Number, differ, evaluate, shown
from looptrans.ir.value import Const

State = dict[str, Number]
Pairs = tuple[tuple[str, str], ...]
_BLOCKS = 160
_ROOTS = 60
_CALLS = 2_000


@dataclass(frozen=True, slots=True)
class Refusal:
    """Two parts that reach one state and differ behind the same iteration.

    Attributes:
        parameters: The values of the parameters.
        start: The state before the first iteration.
        first: The inputs of the iterations of the one part.
        second: Those of the other.
        state: The state both reach from the start.
        front: The inputs of the iteration put in front of both.
        outcomes: For a state variable on which they then differ: its name and its two values.
    """

    parameters: Pairs
    start: Pairs
    first: tuple[Pairs, ...]
    second: tuple[Pairs, ...]
    state: Pairs
    front: Pairs
    outcomes: tuple[str, str, str]

    def text(self, called: Mapping[str, str]) -> str:
        """Return the numbers as a sentence, under the names that some of them have."""

        def pairs(numbers: Pairs) -> str:
            return ", ".join(f"{called.get(name, name)} = {value}" for name, value in numbers)

        def rows(part: tuple[Pairs, ...]) -> str:
            return "[" + "; ".join(pairs(row) for row in part) + "]"

        name, one, other = self.outcomes
        where = f" with {pairs(self.parameters)}" if self.parameters else ""
        return (
            f"from {pairs(self.start)}{where}, the inputs {rows(self.first)} and "
            f"{rows(self.second)} both lead to {pairs(self.state)}; with {pairs(self.front)} in "
            f"front of each, {called.get(name, name)} is {one} after the first and {other} after "
            "the second"
        )


def refusal(recurrence: Recurrence) -> Refusal | None:
    """Look for two parts that show that no operator on the state exists; None if none is found."""
    with mpmath.workdps(DIGITS):
        for outer in (1, 8):
            try:
                drawn = drawn_of(recurrence, outer)
            except NotDrawn:
                return None
            found = _Trial(recurrence, drawn, Random(20240229)).run()
            if found is not None or not drawn.places:
                return found
    return None


@dataclass(slots=True)
class _Trial:
    recurrence: Recurrence
    drawn: Drawn
    random: Random

    def run(self) -> Refusal | None:
        if not self.recurrence.inputs:
            return None
        fronts = [self._row(n) for n in range(8)]
        for first, second in chain(self._same_states(), self._solved()):
            for front in fronts:
                found = self._parted(first, second, front)
                if found is not None:
                    return found
        return None

    def _row(self, number: int) -> Row:
        row: Row = {}
        for position, (name, grid) in enumerate(self.drawn.free.items()):
            if len(grid) > 2 and number < len(grid):
                row[name] = mpmath.mpf(grid[(number + position + 1) % len(grid)])
            else:
                row[name] = mpmath.mpf(self.random.choice(grid))
        return row

    def _start(self) -> State:
        return {
            state.name: evaluate(state.initial, {})
            if isinstance(state.initial, Const)
            else mpmath.mpf(0)
            for state in self.recurrence.states
        }

    def _after(self, rows: tuple[Row, ...], state: State | None = None) -> State:
        """Return what a part leaves; the iteration in front of it is the first of all."""
        current = self._start() if state is None else state
        for number, row in enumerate(rows, 1):
            current = self._next(row, number, current)
        return current

    def _next(self, row: Row, number: int, current: State) -> State:
        given = self.drawn.given(row, number)
        if given is None:
            return current
        point: Mapping[str, Number] = {**current, **given, **self.drawn.parameters}
        return {s.name: evaluate(s.update, point) for s in self.recurrence.states}

    def _same_states(self) -> Iterator[tuple[tuple[Row, ...], tuple[Row, ...]]]:
        """Yield parts of small numbers that happen to reach one state."""
        reached: dict[tuple[str, ...], tuple[Row, ...]] = {}
        for number in range(_BLOCKS):
            rows = tuple(self._row(len(FLOATS)) for _ in range(1 + number % 3))
            try:
                state = self._after(rows)
            except NoNumber:
                continue
            key = tuple(mpmath.nstr(value, 30) for value in state.values())
            if key in reached and reached[key] != rows:
                yield reached[key], rows
            reached.setdefault(key, rows)

    def _solved(self) -> Iterator[tuple[tuple[Row, ...], tuple[Row, ...]]]:
        """Yield a part, and another in turned order with numbers solved for to reach its state."""
        slots_of = [name for name, numbers in self.drawn.free.items() if numbers == FLOATS]
        tries = 0
        for length in (2, 3, 2, 3):
            first = tuple(self._row(n + 1) for n in range(length))
            for order in list(permutations(range(length)))[1:]:
                second = tuple(dict(first[n]) for n in order)
                try:
                    goal, now = self._after(first), self._after(second)
                except NoNumber:
                    continue
                open_states = [name for name in goal if differ(goal[name], now[name])]
                slots = [(n, name) for n in range(length) for name in slots_of]
                if not open_states or len(slots) <= len(open_states):
                    continue
                for chosen in combinations(slots, len(open_states)):
                    tries += 1
                    if tries > _ROOTS:
                        return
                    moved = self._moved(second, chosen, first)
                    solved = self._root(moved, chosen, goal, open_states)
                    if solved is not None:
                        yield first, solved

    def _moved(
        self, rows: tuple[Row, ...], kept: tuple[tuple[int, str], ...], first: tuple[Row, ...]
    ) -> tuple[Row, ...]:
        """Change another number too, so that the root is not the first part again."""
        found = tuple(dict(row) for row in rows)
        if found == first:
            return found
        names = {name for _, name in kept}
        for n, row in enumerate(found):
            for name in row:
                if name in names and (n, name) not in kept:
                    row[name] = row[name] + 1
                    return found
        return found

    def _root(
        self,
        rows: tuple[Row, ...],
        slots: tuple[tuple[int, str], ...],
        goal: State,
        names: list[str],
    ) -> tuple[Row, ...] | None:
        def put_in(values: tuple[Number, ...]) -> tuple[Row, ...]:
            found = tuple(dict(row) for row in rows)
            for (n, name), value in zip(slots, values, strict=True):
                found[n][name] = value
            return found

        calls = 0

        def gap(*values: Number) -> list[Number]:
            nonlocal calls
            calls += 1
            if calls > _CALLS:
                # mpmath halves a step until it helps, which it never does beside an infinity.
                raise ValueError("no root is found")
            after = self._after(put_in(values))
            return [after[name] - goal[name] for name in names]

        begin = tuple(rows[n][name] + mpmath.mpf("0.1") for n, name in slots)
        try:
            solution = mpmath.findroot(gap, begin, tol=1e-45, maxsteps=30)
        except (ValueError, ZeroDivisionError, NoNumber, TypeError):
            # A TypeError is mpmath's where it finds no pivot: steps led away from all numbers.
            return None
        values = tuple(solution) if len(slots) > 1 else (solution,)
        return put_in(
            tuple(mpmath.mpf(v) if not isinstance(v, mpmath.matrix) else v[0] for v in values)
        )

    def _parted(
        self, first: tuple[Row, ...], second: tuple[Row, ...], front: Row
    ) -> Refusal | None:
        if self.drawn.places and len(first) != len(second):
            return None  # they would be parts of other iterations
        try:
            one, other = self._after(first), self._after(second)
            if any(differ(one[name], other[name]) for name in one):
                return None
            begun = self._next(front, 0, self._start())
            after = self._after(first, begun), self._after(second, begun)
        except NoNumber:
            return None
        for name in one:
            a, b = after[0][name], after[1][name]
            if abs(a - b) > mpmath.mpf("1e-6") * (1 + abs(a) + abs(b)):
                return Refusal(
                    _shown(self.drawn.parameters),
                    _shown(self._start()),
                    tuple(_shown(self.drawn.inputs(row, n)) for n, row in enumerate(first, 1)),
                    tuple(_shown(self.drawn.inputs(row, n)) for n, row in enumerate(second, 1)),
                    _shown(one),
                    _shown(self.drawn.inputs(front, 0)),
                    (name, shown(a), shown(b)),
                )
        return None


def _shown(numbers: Mapping[str, Number]) -> Pairs:
    return tuple((name, shown(value)) for name, value in numbers.items())
