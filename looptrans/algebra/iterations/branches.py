"""Branches on a new extreme, read as maxima: the classic form of an online softmax.

    if x > m: a = exp(m - x); m = x        m <- max(m, x)
    else: a = 1                            a  = exp(m - max(m, x))
    l = l * a + exp(x - m)            ->   l <- l * exp(m - max(m, x)) + exp(x - max(m, x))

Each choice is proved on both sides of the comparison, one of the two at infinity included. While
both are, `exp(m - m)` is no number: a state may read so only if its own update is none there too,
or, under a test, if it stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from looptrans.algebra.iterations.infinities import at_infinities, with_tests
from looptrans.algebra.iterations.inputs import Input
from looptrans.algebra.normal_forms.normal import equality
from looptrans.algebra.positional.numbers import Domain, NoNumber, Point, evaluate, points
from looptrans.algebra.positional.values import names_of
from looptrans.ir.condition import Condition, Data, Not, opposite
from looptrans.ir.rewrite import replaced, replaced_part
from looptrans.ir.value import Binary, Call, Compare, Const, Holds, Real, Select, Value, walk_value

POINTS = 16


def extremum(condition: Condition, chosen: Value, otherwise: Value) -> str | None:
    """Return what a ternary chooses of the two numbers that it compares: `max`, `min` or None."""
    if isinstance(condition, Not):
        return extremum(condition.part, otherwise, chosen)
    match condition:
        case Data(Compare(">" | ">=" | "<" | "<=" as op, left, right)) if (left, right) in (
            (chosen, otherwise),
            (otherwise, chosen),
        ):
            return "max" if (op[0] == ">") == (left == chosen) else "min"
        case _:
            return None


def without_branches(updates: Mapping[str, Value], inputs: Iterable[Input]) -> dict[str, Value]:
    """Return updates that say the same, with maxima for the choices that a new extreme makes.

    They come back as they are where not every choice of an extreme's can be proved to be such.

    Args:
        updates: The next value of each state.
        inputs: What their names stand for.
    """
    inputs = tuple(inputs)
    updates = {name: _unguarded(Real(name), update) for name, update in updates.items()}
    for name, update in updates.items():
        if not isinstance(update, Select):
            continue
        old, condition = Real(name), update.condition
        chosen, otherwise = update.chosen, update.otherwise
        if chosen == old:
            condition, chosen, otherwise = opposite(condition), otherwise, chosen
        which = extremum(condition, chosen, otherwise)
        if which is None or otherwise != old or name in names_of(chosen):
            continue
        branch = _Branch(condition, old, chosen, which)
        others = [value for other, value in updates.items() if other != name]
        if not any(map(branch.is_in, others)):
            continue
        made = {
            other: branch.update(Real(other), with_tests(value, inputs))
            for other, value in updates.items()
            if other != name
        }
        if None not in made.values():
            found = {k: v for k, v in made.items() if v is not None}
            return {k: found.get(k, branch.greatest) for k in updates}
    return dict(updates)


def _unguarded(old: Real, update: Value) -> Value:
    """Return an extreme that is taken once it has left its infinity; until then it is the old one.

    if t > -inf: m = t, with t = max(m, x)        ->        m = max(m, x)
    """
    if not isinstance(update, Select):
        return update
    condition, taken, kept = update.condition, update.chosen, update.otherwise
    if taken == old:
        condition, taken, kept = opposite(condition), kept, taken
    match condition, taken:
        case Data(Compare(op, left, Const(bound))), Call("max" | "min" as which, parts):
            infinity, sign = (-inf, ">") if which == "max" else (inf, "<")
            is_left = left == taken and bound == infinity and op in (sign, "!=")
            return taken if is_left and kept == old and old in parts else update
        case _:
            return update


class _Branch:
    """The choice that is made where a term exceeds a state."""

    def __init__(self, condition: Condition, old: Real, term: Value, which: str) -> None:
        self.condition, self.held = _plain(condition)
        self.old, self.term = old, term
        self.greatest = Call(which, (old, term))
        self.infinity = Const(float("-inf" if which == "max" else "inf"))
        self.seen = Data(Compare(">" if which == "max" else "<", self.greatest, self.infinity))

    def is_in(self, value: Value) -> bool:
        """Tell whether a value depends on the choice."""
        return any(
            isinstance(part, Select | Holds) and _plain(part.condition)[0] == self.condition
            for part in walk_value(value)
        )

    def update(self, state: Real, value: Value) -> Value | None:
        """Return an update of a state without the choice; None where that is not proved."""
        if not self.is_in(value):
            return value
        failed = False

        def change(part: Value) -> Value | None:
            nonlocal failed
            if not isinstance(part, Select) or _plain(part.condition)[0] != self.condition:
                return None
            made = self._joined(self._resolved(part, True), self._resolved(part, False))
            failed = failed or made is None
            return made

        made = replaced(value, change)
        if failed or self.is_in(made):
            return None
        if self._stays_at_infinity(state, value):
            return Select(self.seen, made, state)
        return made if self._is_none_at_infinity(value) else None

    def _resolved(self, value: Value, exceeds: bool) -> Value:
        """Return what a value is on one side of the comparison."""

        def change(part: Value) -> Value | None:
            if isinstance(part, Select):
                condition, held = _plain(part.condition)
                if condition == self.condition:
                    taken = part.chosen if (held == self.held) == exceeds else part.otherwise
                    return replaced(taken, change)
            return None

        return replaced(value, change)

    def _joined(self, above: Value, below: Value) -> Value | None:
        """Return a value that is the one above the state and the other below, over the maximum."""
        if above == below:
            return above
        for candidate in (
            replaced_part(above, self.term, self.greatest),
            replaced_part(below, self.old, self.greatest),
        ):
            if self._is_same(
                replaced_part(candidate, self.greatest, self.term), above, self.old
            ) and (
                self._is_same(replaced_part(candidate, self.greatest, self.old), below, self.term)
            ):
                return candidate
        match above, below:
            case Binary("+", one, two), Binary("+", three, four):
                left, right = self._joined(one, three), self._joined(two, four)
                if left is not None and right is not None:
                    return Binary("+", left, right)
        return None

    def _is_same(self, found: Value, wanted: Value, least: Value) -> bool:
        """Prove that two values are equal, also where one of what is compared is infinite."""
        if found == wanted:
            return True
        for each in (
            (found, wanted),
            (
                replaced_part(found, least, self.infinity),
                replaced_part(wanted, least, self.infinity),
            ),
        ):
            proof = equality(*each)
            if proof.answer != "proved" or proof.needs:
                return False
        return True

    def _stays_at_infinity(self, state: Real, value: Value) -> bool:
        """Tell whether a state stays as it is where its extreme and the term are infinite."""
        ends = dict.fromkeys((self.term, self.old), self.infinity.value)
        left = at_infinities(self._resolved(value, False), ends)
        if left is None:
            return False
        proof = equality(left, state)
        return proof.answer == "proved" and not proof.needs

    def _is_none_at_infinity(self, value: Value) -> bool:
        """Tell whether an update is no number where the state and the term are infinite."""
        value = self._resolved(value, False)
        compared = set(names_of(self.old, self.term))
        for part in walk_value(value):
            # A division by 0 is an infinity, which is not to be mistaken for no number.
            divides = isinstance(part, Binary) and part.op not in "+-*"
            if isinstance(part, Select | Holds | Compare) or (
                divides and compared & set(names_of(part))
            ):
                return False
        bottom = replaced_part(
            replaced_part(value, self.term, self.infinity), self.old, self.infinity
        )
        tried = [
            _is_number(bottom, point)
            for point in points(names_of(value), Domain(), POINTS)
            if _is_number(value, point)
        ]
        return bool(tried) and not any(tried)


def _is_number(value: Value, point: Point) -> bool:
    try:
        evaluate(value, point)
    except NoNumber:
        return False
    return True


def _plain(condition: Condition) -> tuple[Condition, bool]:
    """Return a condition without `not`, and whether it is to hold."""
    if isinstance(condition, Not):
        inner, held = _plain(condition.part)
        return inner, not held
    return condition, True
