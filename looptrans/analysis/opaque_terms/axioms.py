"""What is known of opaque terms: equal for equal arguments, and what contracts and arithmetic add.

Two terms of one function say, for arguments a, b and values v, w:

    any array                      a = b  implies  v = w
    `f[b] <= f[b + 1]`             a < b  implies  v <= w        (within the contract's range)
    `f[b] < f[b + 1]`              a < b  implies  v + (b - a) <= w
    `f[b] + g[b] <= f[b + 1]`      a < b  implies  v + g[a] <= w        where f never falls
    `f[b] != f[c]` for b != c      a != b implies  v != w
    `x // P`                       a < b  implies  v <= w, and v = w only where b - a < P
    `x * P`, P > 0                 a < b  implies  v + P <= w; v + d * P = w for the least d that
                                   b - a may be, v + e * P <= w for the next

Pairwise facts are complete for uninterpreted functions (Ackermann's reduction): values that obey
them belong to some array.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations, islice, product
from math import gcd
from typing import Literal, TypeAlias

import islpy as isl

from looptrans.analysis.isl_model.formula import TRUE, conjunction, disjunction
from looptrans.analysis.isl_model.model import Model
from looptrans.analysis.opaque_terms.contract_forms import (
    Injective,
    Monotone,
    Room,
    as_injective,
    as_monotone,
)
from looptrans.ir.affine import form_of
from looptrans.ir.condition import compared, conjuncts
from looptrans.ir.index import Index, Opaque, Param, Var, opaque_terms
from looptrans.ir.program import Contract
from looptrans.ir.rising import rises, why_positive

# How many choices there may be before one of each rank is left out.
MOST_CHOICES = (8, 5, 3)
_NAME = re.compile(r"[a-z]+\d+")


@dataclass(frozen=True, slots=True)
class Term:
    """An opaque term of an instance, in the names of a formula.

    Attributes:
        function: The array, or the arithmetic it stands for.
        arguments: Its arguments, as formulas.
        value: The name of the dimension that holds its value.
        pattern: The term as the listing has it.
    """

    function: str
    arguments: tuple[str, ...]
    value: str
    pattern: Opaque


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the variables whose terms are asked about.

    Attributes:
        dims: The names of all dimensions of the formula.
        facts: What holds of them, opaque terms left out.
    """

    dims: tuple[str, ...]
    facts: tuple[str, ...] = ()

    def allows(self, model: Model, formula: str) -> bool:
        """Tell whether a formula may hold; what has other variables in it is not looked at."""
        used = _names(formula) & set(self.dims)
        others = set(self.dims) - used
        facts = [fact for fact in self.facts if not others & _names(fact)]
        dims = ", ".join(name for name in self.dims if name in used)
        text = f"{model.prefix}{{ [{dims}] : {conjunction([*facts, formula])} }}"
        return _is_possible(text)


@lru_cache(maxsize=4096)
def _names(formula: str) -> frozenset[str]:
    return frozenset(_NAME.findall(formula))


@lru_cache(maxsize=4096)
def _is_possible(text: str) -> bool:
    return not isl.Set(text).is_empty()


Order: TypeAlias = Literal["equal", "less", "greater"]
Orders: TypeAlias = frozenset[Order]


@dataclass(slots=True)
class Axioms:
    """The facts about the opaque terms of one program."""

    model: Model
    monotone: dict[str, list[Monotone]]
    injective: dict[str, list[Injective]]
    pointwise: list[Contract]
    room: list[Room] = field(default_factory=list)
    _said: dict[tuple[tuple[Term, ...], Known], str] = field(default_factory=dict)

    def about(self, terms: list[Term], known: Known) -> str:
        """Say what is known about the values of some terms.

        Each fact about two terms is a choice (equal arguments or not) unless it is known which, and
        choices multiply: of many, the most telling are taken. Leaving some out allows more, never
        less.
        """
        key = (tuple(terms), known)
        if key not in self._said:
            self._said[key] = self._about(terms, known)
        return self._said[key]

    def _about(self, terms: list[Term], known: Known) -> str:
        parts = [self._alone(term, known) for term in terms]
        pairs = []
        for first, second in combinations(terms, 2):
            if first.function != second.function or first.function in self.model.contents:
                continue
            orders = self._compared(first, second, known)
            if len(orders) == 1:
                parts.append(self._together(first, second, orders, known))
                parts += self._between(first, second, orders, terms)
            elif orders:
                pairs.append((first, second, orders))
        pairs.sort(key=lambda pair: self._rank(pair[0], pair[1]))
        telling = pairs
        if len(pairs) > MOST_CHOICES[0]:
            telling = [
                pair
                for number, pair in enumerate(pairs)
                if number < MOST_CHOICES[self._rank(pair[0], pair[1])]
            ]
        parts += [self._together(*pair, known) for pair in telling]
        parts += islice(self._instances(terms), max(0, MOST_CHOICES[0] - len(telling)))
        return conjunction(part for part in parts if part != TRUE)

    def _compared(self, first: Term, second: Term, known: Known) -> Orders:
        """Return how the arguments of two terms may lie to each other.

        Of several arguments it is only asked whether they may differ, which is `less`.
        """
        found: set[Order] = set()
        if known.allows(self.model, conjunction(_equal(first, second))):
            found.add("equal")
        if len(first.arguments) != 1:
            if known.allows(self.model, _different(first, second)):
                found.add("less")
            return frozenset(found)
        a, b = first.arguments[0], second.arguments[0]
        if known.allows(self.model, f"{a} < {b}"):
            found.add("less")
        if known.allows(self.model, f"{a} > {b}"):
            found.add("greater")
        return frozenset(found)

    def _between(
        self, first: Term, second: Term, orders: Orders, terms: list[Term]
    ) -> Iterator[str]:
        """Say how far apart two terms are whose order is known, by the lengths between them."""
        if "equal" in orders:
            return
        low, high = (first, second) if "less" in orders else (second, first)
        a, b = low.arguments[0], high.arguments[0]
        values = {(t.function, t.arguments): t.value for t in terms}
        for room in self.room:
            # From the next argument on it must not fall, as far as the higher one.
            rising = [m for m in self.monotone.get(room.function, []) if not m.falling]
            if room.function != low.function or not rising:
                continue
            at = (Var(room.variable),)
            added: list[str] = []
            for term, factor in room.least.terms.items():
                assert isinstance(term, Opaque)
                value = values.get((term.array, (a,)))
                if value is None or term.arguments != at:
                    break
                added.append(f"{factor} * {value}")
            else:
                sum_ = " + ".join([low.value, *added, str(room.least.constant)])
                inside = f"{self._size(room.low)} <= {a} and {b} <= {self._size(room.high)}"
                for m in rising:
                    kept = f"{self._size(m.low)} <= {a} + 1 and {b} <= {self._size(m.high)}"
                    yield f"not ({inside} and {kept}) or {sum_} <= {high.value}"

    def _rank(self, first: Term, second: Term) -> int:
        """Order pairs of terms by how much is known of them."""
        function = first.function
        if function in self.monotone or function in self.injective:
            return 0
        if function in self.model.normalizer.arithmetic:
            return 0
        return 1 if first.pattern == second.pattern else 2

    def apart(self, terms: list[Term], known: Known) -> list[Term]:
        """Return terms without those that have the arguments of an earlier one."""
        kept: list[Term] = []
        for term in terms:
            same = (other for other in kept if other.function == term.function)
            if not any(self._compared(other, term, known) == {"equal"} for other in same):
                kept.append(term)
        return kept

    def determined(self, term: Term, known: list[Term]) -> str:
        """Say that a term has the value of a known one, and which."""
        if term.function in self.model.contents:
            return self._listed(term)
        same = [other for other in known if other.function == term.function]
        # Choices multiply; a term of the same form is the one whose arguments can be equal.
        same = [other for other in same if other.pattern == term.pattern] or same[: MOST_CHOICES[2]]
        options = [
            conjunction([*_equal(term, other), f"{term.value} = {other.value}"]) for other in same
        ]
        if term.function in self.monotone or self._is(term, "//"):
            for low, high in product(same, same):
                if low is not high:
                    options.append(self._squeezed(term, low, high))
        return disjunction(options)

    def _squeezed(self, term: Term, low: Term, high: Term) -> str:
        """Between two arguments with one value, a monotone function has that value."""
        parts = [
            f"{low.arguments[0]} <= {term.arguments[0]}",
            f"{term.arguments[0]} <= {high.arguments[0]}",
            f"{low.value} = {high.value}",
            f"{term.value} = {low.value}",
        ]
        ranges = [
            conjunction([self._inside(m, low.arguments[0]), self._inside(m, high.arguments[0])])
            for m in self.monotone.get(term.function, [])
        ]
        if ranges:
            parts.append(disjunction(ranges))
        return conjunction(parts)

    def _inside(self, fact: Monotone, argument: str) -> str:
        low, high = self._size(fact.low), self._size(fact.high)
        return f"{low} <= {argument} and {argument} <= {high}"

    def _size(self, index: Index) -> str:
        return self.model.notation({}).index(index)

    def _is(self, term: Term, op: str) -> bool:
        arithmetic = self.model.normalizer.arithmetic.get(term.function)
        return arithmetic is not None and arithmetic.op == op

    def _listed(self, term: Term) -> str:
        """The value of a term of an array whose contents are given."""
        return disjunction(
            conjunction(
                [
                    *(f"{a} = {at}" for a, at in zip(term.arguments, cell, strict=True)),
                    f"{term.value} = {value}",
                ]
            )
            for cell, value in self.model.contents[term.function].items()
        )

    def _signs(self, index: Index, known: Known) -> dict[int, str]:
        """Return the signs a size may have where all that is known holds, and how to say so.

        A parameter that multiplies is a size, and not negative; the difference of two may be.
        """
        size = self._size(index)
        signs = {1: f"{size} >= 1", 0: f"{size} = 0"}
        if not isinstance(index, Param):
            signs[-1] = f"{size} <= -1"
        facts = conjunction([self.model.context, *known.facts])
        dims = ", ".join(known.dims)
        return {
            sign: text
            for sign, text in signs.items()
            if _is_possible(f"{self.model.prefix}{{ [{dims}] : {conjunction([facts, text])} }}")
        }

    def _multiple(self, term: Term, known: Known) -> str:
        """What a multiple of a size is: of the sign of both, and no less than either."""
        index = self.model.normalizer.arithmetic[term.function].size
        size, options = self._size(index), []
        x, v = term.arguments[0], term.value
        for sign, text in self._signs(index, known).items():
            s = f"{sign} * ({size})"
            cases = (
                f"({x} < 0 and {sign} * {v} <= 1 + ({x}) - {s}) or ({x} = 0 and {v} = 0) or "
                f"({x} > 0 and {sign} * {v} >= {s} + ({x}) - 1)"
            )
            options.append(conjunction([text, f"{v} = 0" if sign == 0 else cases]))
        return disjunction(options)

    def _multiples(self, low: Term, high: Term, known: Known) -> str:
        """What holds of two multiples of a size where the factor of `low` is the smaller one."""
        index = self.model.normalizer.arithmetic[low.function].size
        size, options = self._size(index), []
        a, b = low.arguments[0], high.arguments[0]
        least, step = _steps(low.pattern.arguments[0], high.pattern.arguments[0])
        following = least + step
        for sign, text in self._signs(index, known).items():
            more = f"{sign} * ({high.value} - {low.value})"
            s = f"{sign} * ({size})"
            cases = (
                f"({b} - ({a}) = {least} and {more} = {least} * {s}) or "
                f"({b} - ({a}) >= {following} and {more} >= {following} * {s} and "
                f"{more} >= {least} * {s} + {b} - ({a}) - {least})"
            )
            same = f"{high.value} = {low.value}"
            options.append(conjunction([text, same if sign == 0 else cases]))
        return disjunction(options)

    def _alone(self, term: Term, known: Known) -> str:
        if term.function in self.model.contents:
            return self._listed(term)
        parts: list[str] = []
        if term.function in self.model.value_ranges:
            low, high = self.model.value_ranges[term.function]
            parts.append(f"{self._size(low)} <= {term.value}")
            parts.append(f"{term.value} < {self._size(high)}")
        arithmetic = self.model.normalizer.arithmetic.get(term.function)
        if arithmetic is not None and arithmetic.op == "*":
            parts.append(self._multiple(term, known))
        elif arithmetic is not None:
            size, argument = self._size(arithmetic.size), term.arguments[0]
            parts.append(f"{size} >= 1")
            match arithmetic.op:
                case "%":
                    parts.append(f"0 <= {term.value} and {term.value} < {size}")
                    parts.append(
                        f"({argument} < 0) or ({argument} >= {size} and {term.value} <= {argument})"
                        f" or ({argument} < {size} and {term.value} = {argument})"
                    )
                case "//":
                    parts.append(
                        f"({argument} < 0 and {term.value} < 0 and {term.value} >= {argument}) or "
                        f"(0 <= {argument} and {argument} < {size} and {term.value} = 0) or "
                        f"({argument} >= {size} and 1 <= {term.value} and "
                        f"{term.value} <= {argument})"
                    )
        return conjunction(parts)

    def _together(self, first: Term, second: Term, orders: Orders, known: Known) -> str:
        options = []
        if "equal" in orders:
            options.append(conjunction([*_equal(first, second), f"{first.value} = {second.value}"]))
        if len(first.arguments) != 1:
            options += [_different(first, second)] if "less" in orders else []
            return disjunction(options)
        if "less" in orders:
            options.append(self._ordered(first, second, known))
        if "greater" in orders:
            options.append(self._ordered(second, first, known))
        return disjunction(options)

    def _ordered(self, low: Term, high: Term, known: Known) -> str:
        """What holds where the argument of `low` is less than that of `high`."""
        a, b, v, w = low.arguments[0], high.arguments[0], low.value, high.value
        parts = [f"{a} < {b}"]
        for fact in self.monotone.get(low.function, []):
            lower, upper = (w, v) if fact.falling else (v, w)
            bound = f"{lower} + ({b} - {a}) <= {upper}" if fact.strict else f"{lower} <= {upper}"
            below, above = self._size(fact.low), self._size(fact.high)
            outside = (f"{a} < {below}", f"{b} > {above}")
            beyond = [each for each in outside if known.allows(self.model, f"{a} < {b} and {each}")]
            parts.append(disjunction([bound, *beyond]))
        for injective in self.injective.get(low.function, []):
            low_end, high_end = self._size(injective.low), self._size(injective.high)
            outside = (f"{a} < {low_end}", f"{b} >= {high_end}")
            beyond = [each for each in outside if known.allows(self.model, f"{a} < {b} and {each}")]
            parts.append(disjunction([f"{v} != {w}", *beyond]))
        arithmetic = self.model.normalizer.arithmetic.get(low.function)
        if arithmetic is not None:
            size = self._size(arithmetic.size)
            match arithmetic.op:
                case "//":
                    parts.append(f"{v} < {w} or ({v} = {w} and {b} - {a} < {size})")
                case "*":
                    parts.append(self._multiples(low, high, known))
                case _:
                    parts.append(f"{b} - {a} >= {size} or {v} != {w}")
        return conjunction(parts)

    def _instances(self, terms: list[Term]) -> Iterator[str]:
        """Contracts that speak of single elements, at every combination of terms they fit."""
        for contract in self.pointwise:
            patterns = list(
                dict.fromkeys(
                    term for side in compared(contract.condition) for term in opaque_terms(side)
                )
            )
            candidates = [[t for t in terms if t.function == p.array] for p in patterns]
            for chosen in product(*candidates):
                yield self._instance(contract, patterns, chosen)

    def _instance(
        self, contract: Contract, patterns: list[Opaque], chosen: tuple[Term, ...]
    ) -> str:
        """The contract for generators that give the chosen terms their arguments."""
        names = {g.variable: f"y{number}" for number, g in enumerate(contract.generators)}
        values = {p: term.value for p, term in zip(patterns, chosen, strict=True)}
        notation = self.model.notation(names, values)
        premises = [
            f"{notation.index(argument)} = {given}"
            for pattern, term in zip(patterns, chosen, strict=True)
            for argument, given in zip(pattern.arguments, term.arguments, strict=True)
        ]
        for generator in contract.generators:
            premises.append(notation.bounds(names[generator.variable], generator.range))
            premises.append(notation.condition(generator.condition))
        violated = notation.condition(contract.condition, negated=True)
        body = conjunction([*premises, violated])
        if not names:
            return f"not ({body})"
        return f"not (exists ({', '.join(names.values())} : {body}))"


def _steps(low: Index, high: Index) -> tuple[int, int]:
    """Return the least positive difference of two arguments, and that of two such differences."""
    first, second = form_of(low), form_of(high)
    step = gcd(*first.terms.values(), *second.terms.values()) or 1
    return (second.constant - first.constant) % step or step, step


def _equal(first: Term, second: Term) -> list[str]:
    return [f"{a} = {b}" for a, b in zip(first.arguments, second.arguments, strict=True)]


def _different(first: Term, second: Term) -> str:
    return disjunction(
        f"{a} != {b}" for a, b in zip(first.arguments, second.arguments, strict=True)
    )


def axioms_of(model: Model) -> Axioms:
    """Sort a model's contracts by what they say."""
    axioms = Axioms(model, {}, {}, [])
    for contract in model.contracts:
        for condition in conjuncts(contract.condition):
            single = Contract(condition, contract.generators)
            monotone = as_monotone(single)
            injective = as_injective(single)
            for rise in rises(single):
                if not rise.least.terms or not all(isinstance(t, Opaque) for t in rise.least.terms):
                    continue
                ends = rise.range.ends
                axioms.room.append(Room(rise.array, *ends, rise.variable, rise.least))
                least = {name: low for name, (low, _) in model.value_ranges.items()}
                if why_positive(rise, model.contracts, least) is not None:
                    never_falls = Monotone(rise.array, *ends, strict=False, falling=False)
                    axioms.monotone.setdefault(rise.array, []).append(never_falls)
            if monotone is not None:
                axioms.monotone.setdefault(monotone.function, []).append(monotone)
            elif injective is not None:
                axioms.injective.setdefault(injective.function, []).append(injective)
            else:
                axioms.pointwise.append(single)
    return axioms
