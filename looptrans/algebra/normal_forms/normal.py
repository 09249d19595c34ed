"""Whether two values are equal: proved, refuted with numbers, or unknown.

proved    the normal forms are the same; or they are in every order that the arguments of the
maxima and the comparisons can have
refuted   numbers show a difference
unknown   neither; what was tried is said
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import mpmath

from looptrans.algebra.normal_forms.atoms import OO, Case, Leaf, Undefined
from looptrans.algebra.normal_forms.terms import Terms
from looptrans.algebra.positional.numbers import DIGITS, Domain, difference, shown
from looptrans.algebra.positional.values import MINUS_INFINITY, names_of, put
from looptrans.ir.value import Value

Answer = Literal["proved", "refuted", "unknown"]
MOST_CASES = 256
SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What a law takes for granted of its names.

    Attributes:
        domain: Signs and kinds of the names.
        minus_infinity: The names that are -inf.
    """

    domain: Domain = field(default_factory=Domain)
    minus_infinity: frozenset[str] = frozenset()

    def texts(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return what is assumed of some names, as phrases."""
        found = []
        for name in names:
            if name in self.minus_infinity:
                found.append(f"{name} is -inf")
            elif name in self.domain.positive:
                found.append(f"{name} is positive")
            elif name in self.domain.nonnegative:
                found.append(f"{name} is not negative")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Equality:
    """An answer to whether two values are equal.

    Attributes:
        answer: What was found.
        left: The normal form of the left side, to be read.
        right: That of the right side.
        cases: How many orders of arguments were gone through; 1 where the forms are the same.
        known: What was taken for granted of the names.
        needs: What else must hold for both sides to be numbers.
        numbers: For `refuted`, the names' values.
        values: For `refuted`, what the two sides come to.
        tried: For `unknown`, what was tried.
    """

    answer: Answer
    left: str
    right: str
    cases: int = 1
    known: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    numbers: tuple[tuple[str, str], ...] = ()
    values: tuple[str, str] | None = None
    tried: tuple[str, ...] = ()

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Everything the answer takes for granted."""
        return (*self.known, *self.needs)


def equality(left: Value, right: Value, assumed: Assumptions | None = None) -> Equality:
    """Decide whether two values are equal wherever both are defined.

    Args:
        left: A value over names.
        right: Another.
        assumed: What is known of the names.
    """
    return _decided(left, right, assumed or Assumptions())


def has_value(value: Value) -> bool:
    """Tell whether a value is a number or an infinity, and not what 0 * inf or inf - inf is."""
    try:
        Terms().normal(value)
    except Undefined:
        return False
    return True


def is_the_same(value: Value, other: Value) -> bool:
    """Tell whether a value is another one, such as a number, as far as that can be seen."""
    terms = Terms()
    try:
        return bool(terms.normal(value) == terms.normal(other))
    except Undefined:
        return False


# The laws of one operator, and the steps of one derivation, ask much the same.
@lru_cache(maxsize=2048)
def _decided(left: Value, right: Value, given: Assumptions) -> Equality:
    names = names_of(left, right)
    terms = Terms(given.domain, given.minus_infinity)
    known = given.texts(names)
    tried = []
    try:
        a, b = terms.normal(left), terms.normal(right)
        texts = terms.text(a), terms.text(b)
        needs = tuple(terms.needs)
        infinite = a in (OO, -OO) or b in (OO, -OO)
        if a == b or (not infinite and terms.is_zero(a - b)):
            return Equality("proved", *texts, known=known, needs=needs)
        if infinite:
            return Equality("refuted", *texts, known=known, needs=needs, values=texts)
        tried.append("the normal forms differ")
    except Undefined as reason:
        return Equality(
            "unknown", "", "", known=known, tried=(f"a side is not a number: {reason}",)
        )
    refutation = _refuted(left, right, given)
    if refutation is not None:
        point, x, y = refutation
        return Equality("refuted", *texts, known=known, numbers=point, values=(x, y))
    tried.append("no point that was tried shows a difference")
    try:
        cases = _by_cases(terms, left, right)
    except Undefined as reason:
        cases, why = None, f"a side is not a number: {reason}"
    else:
        why = f"not all of up to {MOST_CASES} orders of the arguments could be settled"
    if cases is not None:
        needs = tuple(terms.needs)
        return Equality("proved", *texts, cases=cases, known=known, needs=needs)
    return Equality("unknown", *texts, known=known, tried=(*tried, why))


def _refuted(
    left: Value, right: Value, given: Assumptions
) -> tuple[tuple[tuple[str, str], ...], str, str] | None:
    infinite = dict.fromkeys(given.minus_infinity, MINUS_INFINITY)
    a, b = put(left, infinite), put(right, infinite)
    found = difference(a, b, names_of(a, b), given.domain)
    if found is None:
        return None
    point, x, y = found
    with mpmath.workdps(DIGITS):
        numbers = tuple((name, shown(value)) for name, value in point.items())
        return numbers, shown(x), shown(y)


def _by_cases(terms: Terms, left: Value, right: Value) -> int | None:
    """Count the cases in all of which the two are equal; None if one is left open."""
    deadline = time.monotonic() + SECONDS
    pending = [terms.case]
    settled = 0
    while pending:
        if settled + len(pending) > MOST_CASES or time.monotonic() > deadline:
            return None
        case = pending.pop()
        terms.suppose(case)
        gap = terms.reduced(terms.normal(left) - terms.normal(right))
        if terms.is_zero(gap):
            settled += 1
            continue
        split = _split(terms, case, gap)
        if split is None:
            return None
        pending += split
    return settled


def _split(terms: Terms, case: Case, gap: object) -> list[Case] | None:
    """Return the cases in which something a normal form leaves open is decided."""
    for leaf in terms.open_leaves(gap):
        if leaf.kind == "eq":
            cases = _three_ways(terms, case, leaf)
        else:
            both = [terms.with_leaf(case, leaf, held) for held in (True, False)]
            cases = [c for c in both if c is not None]
        if cases:
            return [c for c in cases if terms.is_possible(c)]
    return None


def _three_ways(terms: Terms, case: Case, leaf: Leaf) -> list[Case]:
    less = terms.with_leaf(case, Leaf("ge", leaf.subject), False)
    more = terms.with_leaf(case, Leaf("gt", leaf.subject), True)
    same = terms.with_equal(case, leaf)
    return [] if less is None or more is None or same is None else [less, same, more]
