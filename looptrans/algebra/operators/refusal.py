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
from looptrans.algebra.positional.numbers import DIGITS, NoNumber, Number, differ, evaluate, shown
from looptrans.ir.value import Const

Row = dict[str, Number]
State = dict[str, Number]
_GRID = (0, 1, -1, 2, mpmath.mpf(1) / 2)
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

    parameters: tuple[tuple[str, str], ...]
    start: tuple[tuple[str, str], ...]
    first: tuple[tuple[tuple[str, str], ...], ...]
    second: tuple[tuple[tuple[str, str], ...], ...]
    state: tuple[tuple[str, str], ...]
    front: tuple[tuple[str, str], ...]
    outcomes: tuple[str, str, str]

    def text(self) -> str:
        """Return the numbers as a sentence."""
        name, one, other = self.outcomes
        where = f" with {_pairs(self.parameters)}" if self.parameters else ""
        return (
            f"from {_pairs(self.start)}{where}, the inputs {_rows(self.first)} and "
            f"{_rows(self.second)} both lead to {_pairs(self.state)}; with {_pairs(self.front)} "
            f"in front of each, {name} is {one} after the first and {other} after the second"
        )


def refusal(recurrence: Recurrence) -> Refusal | None:
    """Look for two parts that show that no operator on the state exists; None if none is found."""
    with mpmath.workdps(DIGITS):
        return _Trial(recurrence, Random(20240229)).run()


@dataclass(slots=True)
class _Trial:
    recurrence: Recurrence
    random: Random
    parameters: State | None = None

    def run(self) -> Refusal | None:
        names = [given.name for given in self.recurrence.inputs]
        self.parameters = {
            given.name: mpmath.mpf(1 if given.is_truth else 2)
            for given in self.recurrence.parameters
        }
        if not names:
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
        for position, given in enumerate(self.recurrence.inputs):
            if given.is_truth:
                row[given.name] = mpmath.mpf(self.random.randrange(2))
            elif number < len(_GRID):
                row[given.name] = mpmath.mpf(_GRID[(number + position + 1) % len(_GRID)])
            else:
                row[given.name] = mpmath.mpf(self.random.choice(_GRID))
        return row

    def _start(self) -> State:
        return {
            state.name: evaluate(state.initial, {})
            if isinstance(state.initial, Const)
            else mpmath.mpf(0)
            for state in self.recurrence.states
        }

    def _after(self, rows: tuple[Row, ...], state: State | None = None) -> State:
        current = self._start() if state is None else state
        for row in rows:
            point: Mapping[str, Number] = {**current, **row, **(self.parameters or {})}
            current = {s.name: evaluate(s.update, point) for s in self.recurrence.states}
        return current

    def _same_states(self) -> Iterator[tuple[tuple[Row, ...], tuple[Row, ...]]]:
        """Yield parts of small numbers that happen to reach one state."""
        reached: dict[tuple[str, ...], tuple[Row, ...]] = {}
        for number in range(_BLOCKS):
            rows = tuple(self._row(len(_GRID)) for _ in range(1 + number % 3))
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
        slots_of = [given.name for given in self.recurrence.inputs if not given.is_truth]
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
        try:
            one, other = self._after(first), self._after(second)
            if any(differ(one[name], other[name]) for name in one):
                return None
            begun = self._after((front,))
            after = self._after(first, begun), self._after(second, begun)
        except NoNumber:
            return None
        for name in one:
            a, b = after[0][name], after[1][name]
            if abs(a - b) > mpmath.mpf("1e-6") * (1 + abs(a) + abs(b)):
                return Refusal(
                    _shown(self.parameters or {}),
                    _shown(self._start()),
                    tuple(_shown(row) for row in first),
                    tuple(_shown(row) for row in second),
                    _shown(one),
                    _shown(front),
                    (name, shown(a), shown(b)),
                )
        return None


def _shown(numbers: Mapping[str, Number]) -> tuple[tuple[str, str], ...]:
    return tuple((name, shown(value)) for name, value in numbers.items())


def _pairs(pairs: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in pairs)


def _rows(rows: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    return "[" + "; ".join(_pairs(row) for row in rows) + "]"
