"""Linear inequalities over the rationals: whether some can hold together.

Fourier's and Motzkin's elimination, exact; every product of names counts as a name of its own, so
"cannot hold together" is always right, and "can" may be too cautious.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

MOST = 400


@dataclass(frozen=True, slots=True)
class Inequality:
    """`constant + sum of factor * name >= 0`, or `> 0` where it is strict."""

    terms: tuple[tuple[str, Fraction], ...]
    constant: Fraction
    strict: bool

    def factor(self, name: str) -> Fraction:
        """Return the factor of a name."""
        return dict(self.terms).get(name, Fraction(0))

    def opposite(self) -> Inequality:
        """Return the inequality that holds exactly where this one does not."""
        terms = tuple((name, -factor) for name, factor in self.terms)
        return Inequality(terms, -self.constant, not self.strict)


def can_hold(inequalities: list[Inequality]) -> bool:
    """Tell whether the inequalities may hold together; False is certain."""
    current = list(dict.fromkeys(inequalities))
    while True:
        for item in current:
            if not item.terms and (item.constant < 0 or (item.strict and item.constant == 0)):
                return False
        names = list(dict.fromkeys(name for item in current for name, _ in item.terms))
        if not names or len(current) > MOST:
            return True
        name = min(names, key=lambda n: _growth(current, n))
        current = _eliminated(current, name)


def follows(goal: Inequality, given: list[Inequality]) -> bool:
    """Tell whether an inequality follows from others; True is certain."""
    return not can_hold([*given, goal.opposite()])


def _growth(items: list[Inequality], name: str) -> int:
    above = sum(1 for item in items if item.factor(name) > 0)
    below = sum(1 for item in items if item.factor(name) < 0)
    return above * below - above - below


def _eliminated(items: list[Inequality], name: str) -> list[Inequality]:
    above = [item for item in items if item.factor(name) > 0]
    below = [item for item in items if item.factor(name) < 0]
    kept = [item for item in items if item.factor(name) == 0]
    for upper in above:
        for lower in below:
            a, b = upper.factor(name), -lower.factor(name)
            kept.append(_combined(upper, b, lower, a))
    return list(dict.fromkeys(kept))


def _combined(a: Inequality, p: Fraction, b: Inequality, q: Fraction) -> Inequality:
    total: dict[str, Fraction] = {}
    for item, weight in ((a, p), (b, q)):
        for name, factor in item.terms:
            total[name] = total.get(name, Fraction(0)) + weight * factor
    terms = tuple(sorted((name, factor) for name, factor in total.items() if factor))
    constant = p * a.constant + q * b.constant
    if terms:
        scale = abs(terms[0][1])
        terms = tuple((name, factor / scale) for name, factor in terms)
        constant /= scale
    return Inequality(terms, constant, a.strict or b.strict)
