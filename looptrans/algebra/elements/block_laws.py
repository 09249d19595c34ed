"""The laws by which a loop over blocks is one over their elements, and their proofs.

With B(s, X) for what a block with the elements X makes of the state s, and step(s, x) for what a
loop over the elements makes of it:

    an element more      B(s, X + [x]) = step(B(s, X), x)
    an element           B(s, [x]) = step(s, x), and step(s, x) = s where x does not count
    no element           B(s, []) = s, where a block may have none, or none that counts
    masked element       step(s, x) = s where x is -inf, if some are by their form

By induction B(s, [x, y, …, z]) = step(… step(step(s, x), y) …, z), and so on for all blocks. B is
given over what is gathered from the elements of a block; one element more adds its own term.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from math import inf, isinf
from typing import Final

import mpmath

from looptrans.algebra.iterations.edges import NoRecurrence
from looptrans.algebra.normal_forms.atoms import OO, Expr, Undefined
from looptrans.algebra.normal_forms.normal import Assumptions, equality
from looptrans.algebra.normal_forms.possible import can_all_be
from looptrans.algebra.normal_forms.terms import Terms
from looptrans.algebra.operators.laws import Equation, Law, joined
from looptrans.algebra.positional.numbers import DIGITS, Domain, NoNumber, evaluate, points
from looptrans.algebra.positional.values import MINUS_INFINITY, ZERO, is_number, names_of, put
from looptrans.ir.condition import Condition, Data, Every, Not, Relation, Some, Truth
from looptrans.ir.monoids import MONOID_OF, OF_NOTHING, Folding
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Binary, Compare, Const, Holds, Real, Value, walk_value

MOST_TRUTHS = 4
POINTS = 16
SOME: Final = Const(0.5)

Names = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Gathered:
    """Something gathered over a block.

    Attributes:
        name: What it is called.
        function: What gathers it: `sum`, `max` or `min`.
        condition: For which elements.
        body: The term of an element.
        is_masked: Whether the other elements have terms, too, but such that add nothing.
    """

    name: str
    function: Folding
    condition: Condition
    body: Value
    is_masked: bool

    @property
    def nothing(self) -> Const:
        """What it is where there is no element."""
        return Const(OF_NOTHING[self.function])

    def counts(self, truths: Names) -> bool:
        """Tell whether an element is gathered."""
        return _holds(self.condition, truths)

    def with_one_more(self, before: Value) -> Value:
        """Return it with one element more."""
        if is_number(before, OF_NOTHING[self.function]):
            return self.body
        return joined(MONOID_OF[self.function], before, self.body)


@dataclass(frozen=True, slots=True)
class BlockLaws:
    """The step of a block and that of an element, over the same names.

    Attributes:
        block: The states after a block.
        step: The states after an element.
        gathered: What is gathered over the block.
        first: What the states are at first, where that is a number.
        is_full: Whether each block surely has an element.
        masked: The names of what may be -inf by its form.
        domain: What is known of the names.
        compared: What names of truths stand for that are comparisons of index expressions.
    """

    block: Names
    step: Names
    gathered: tuple[Gathered, ...]
    first: Names
    is_full: bool
    masked: frozenset[str]
    domain: Domain
    compared: Mapping[str, Relation]

    def decided(self) -> tuple[Law, ...]:
        """Decide the laws.

        Raises:
            NoRecurrence: There are too many cases.
        """
        starts: list[Names] = [{}, self.first] if self.first else [{}]
        truths = list(self._truths())
        self._require_numbers(truths)
        more = [
            e
            for s in starts
            for t in truths
            for seen in self._seen()
            for e in self._more(t, seen, s)
        ]
        one = [e for s in starts for t in truths for e in self._one(t, s)]
        found = [
            Law("an element more", "B(s, X + [x]) = step(B(s, X), x)", tuple(more)),
            Law("an element", "B(s, [x]) = step(s, x)", tuple(one)),
        ]
        if not self.is_full or any(not self._is_counted(t) for t in truths):
            nothing = {each.name: each.nothing for each in self.gathered}
            none = [e for start in starts for t in truths for e in self._none(nothing, t, start)]
            found.append(Law("no element", "B(s, []) = s", tuple(none)))
        asked = [*self.block.values(), *self.step.values()]
        if any(_asks_for_infinity(part) for value in asked for part in walk_value(value)):
            found.append(Law("element at -inf", "it changes nothing", tuple(self._lowest(truths))))
        if self.masked:
            statement = "step(s, x) = s where x is -inf"
            found.append(Law("masked element", statement, tuple(self._masked())))
        return tuple(found)

    def _require_numbers(self, truths: list[Names]) -> None:
        """See to it that elements pass only through states that are numbers, or the first one.

        Raises:
            NoRecurrence: They may not.
        """
        infinite = [n for n, v in self.first.items() if isinstance(v, Const) and isinf(v.value)]
        for case in truths:
            if infinite and self._is_counted(case):
                for name in infinite:
                    form = self._normal(put(put(self.step[name], self.first), case))
                    if form is None or form in (OO, -OO):
                        raise NoRecurrence("an element may leave the state between the first ones")
        signs = {n for n, v in self.first.items() if isinstance(v, Const) and 0 <= v.value < inf}
        while True:
            terms = Terms(replace(self.domain, nonnegative=self.domain.nonnegative | signs))
            try:
                forms = [
                    (name, terms.normal(put(value, case)))
                    for case in truths
                    for name, value in self.step.items()
                ]
            except Undefined as reason:
                raise NoRecurrence(f"an element may leave no number: {reason}") from None
            wrong = {n for n, form in forms if n in signs and not terms.is_nonnegative(form)}
            if not wrong:
                break
            signs -= wrong
        powers = any(a.kind == "function" and a.parts[0] == "**" for a in terms.atoms)
        if terms.needs or powers:
            need = next(iter(terms.needs), "a power of the state is a number")
            raise NoRecurrence(f"it is not clear for each element that {need}")

    def _normal(self, value: Value) -> Expr | None:
        try:
            return Terms(self.domain).normal(value)
        except Undefined:
            return None

    def _truths(self) -> Iterator[Names]:
        """Yield what may be true of an element as far as something asks for it."""
        values: list[Value] = [Holds(each.condition) for each in self.gathered]
        values += [*self.step.values(), *self.block.values(), *(g.body for g in self.gathered)]
        asked = [name for name in names_of(*values) if name in self.domain.truths]
        if len(asked) > MOST_TRUTHS:
            raise NoRecurrence("the passes over a block ask too many things of an element")
        for held in product((True, False), repeat=len(asked)):
            truths = dict(zip(asked, held, strict=True))
            compared = {n: r for n, r in self.compared.items() if n in truths}
            if can_all_be((relation, truths[name]) for name, relation in compared.items()):
                yield {name: Const(value) for name, value in truths.items()}

    def _is_counted(self, truths: Names) -> bool:
        return any(each.counts(truths) for each in self.gathered)

    def _seen(self) -> Iterator[Names]:
        """Yield what may have been gathered of the elements before: nothing under a condition.

        Where nothing was gathered at all, the state is what it was.
        """
        tested = dict.fromkeys(g.condition for g in self.gathered if g.condition != Truth(True))
        for values in product((True, False), repeat=len(tested)):
            seen = dict(zip(tested, values, strict=True))
            found = {g.name: g.nothing for g in self.gathered if not seen.get(g.condition, True)}
            if len(found) < len(self.gathered):
                yield found

    def _more(self, truths: Names, seen: Names, start: Names) -> Iterator[Equation]:
        longer = dict(seen)
        for each in self.gathered:
            if each.counts(truths):
                longer[each.name] = each.with_one_more(seen.get(each.name, Real(each.name)))
        before = self._block(seen, start)
        after = self._block(longer, start)
        for name, value in after.items():
            step = put(put(self.step[name], before), truths)
            yield from self._equation(name, put(value, truths), step, start)

    def _one(self, truths: Names, start: Names) -> Iterator[Equation]:
        alone = {g.name: g.body if g.counts(truths) else g.nothing for g in self.gathered}
        as_it_is = {name: start.get(name, Real(name)) for name in self.block}
        counts = self._is_counted(truths)
        for name, value in (self._block(alone, start) if counts else as_it_is).items():
            step = put(put(self.step[name], start), truths)
            yield from self._equation(name, put(value, truths), step, start)

    def _none(self, nothing: Names, truths: Names, start: Names) -> Iterator[Equation]:
        for name, value in self._block(nothing, start).items():
            first = start.get(name, Real(name))
            yield from self._equation(name, put(value, truths), first, start)

    def _masked(self) -> Iterator[Equation]:
        for masked in sorted(self.masked):
            for name, value in self.step.items():
                for truths in self._truths():
                    left = put(value, {**truths, masked: MINUS_INFINITY})
                    yield from self._equation(name, left, Real(name), {})

    def _lowest(self, truths: list[Names]) -> Iterator[Equation]:
        """Say that an element at -inf adds nothing, at first neither."""
        for each in (g for g in self.gathered if g.function != "sum"):
            at_infinity: list[Names] = [{n: MINUS_INFINITY} for n in names_of(each.body)]
            found = [at for at in at_infinity if self._normal(put(each.body, at)) == -OO]
            if each.function == "min" or not found:
                raise NoRecurrence("an element at -inf may change the state")
            for at in found:
                for other in (g for g in self.gathered if g.function == "sum"):
                    yield self._plain(other.name, put(other.body, at), ZERO)
                for start, case in product(({}, self.first), truths):
                    for name, value in self.step.items():
                        left = put(put(put(value, start), at), case)
                        yield self._plain(name, left, start.get(name, Real(name)))

    def _plain(self, of: str, left: Value, right: Value) -> Equation:
        return Equation(of, left, right, equality(left, right, Assumptions(self.domain)))

    def _block(self, gathered: Names, start: Names) -> dict[str, Value]:
        """Return the states after a block; nothing is nothing, whatever it is scaled by."""
        masked = {g.name for g in self.gathered if g.is_masked}
        nothing = {n for n, value in gathered.items() if is_number(value, 0.0)} - masked
        infinite = {
            g.name: g.nothing
            for g in self.gathered
            if g.function != "sum" and gathered.get(g.name) == g.nothing
        }

        def change(part: Value) -> Value | None:
            match part:
                case Binary("*", _, Real(name)) if name in nothing:
                    return ZERO
                case Binary("+", _, Real(name)) if name in infinite:
                    return infinite[name]
                case _:
                    return None

        return {
            name: put(put(replaced(value, change), gathered), start)
            for name, value in self.block.items()
        }

    def _equation(self, of: str, left: Value, right: Value, start: Names) -> Iterator[Equation]:
        """Yield the equation; not where the first state gives no number in the listing either."""
        proof = equality(left, right, Assumptions(self.domain))
        if proof.answer == "proved" or not start or self._is_number(left):
            yield Equation(of, left, right, proof)

    def _is_number(self, value: Value) -> bool:
        """Tell whether a value may be a number, as far as infinities in it go."""

        def finite(part: Value) -> Value | None:
            return SOME if isinstance(part, Const) and isinf(part.value) else None

        names = names_of(value)
        known = False
        with mpmath.workdps(DIGITS):
            for point in points(names, self.domain, POINTS):
                with suppress(NoNumber):
                    evaluate(replaced(value, finite), point)
                    known = True
                    evaluate(value, point)
                    return True
        return not known


def _asks_for_infinity(value: Value) -> bool:
    match value:
        case Compare(_, left, right):
            return any(isinstance(s, Const) and isinf(s.value) for s in (left, right))
        case _:
            return False


def _holds(condition: Condition, truths: Names) -> bool:
    match condition:
        case Truth(value):
            return value
        case Data(Const(bool(value))):
            return value
        case Data(Real(name)) if name in truths:
            return truths[name] == Const(True)
        case Not(part):
            return not _holds(part, truths)
        case Every(parts):
            return all(_holds(part, truths) for part in parts)
        case Some(parts):
            return any(_holds(part, truths) for part in parts)
        case _:
            raise NoRecurrence("it is not known for which elements a pass runs")
