"""Terms that hold an earlier result: whether they are separable, and what they are moved by.

    F(x, y) * F(u, z) = F(x, z) * F(u, y)     ->     s <- s * H(z) / H(y) + F(x, z)

An exponential `exp(x - m)` is; the sum of what has been seen goes from one maximum to the next as a
whole, and so does what it starts from, where that is such a term too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from looptrans.algebra.iterations.infinities import extremes, infinite_arrays, may_be
from looptrans.algebra.iterations.order import inputs_of
from looptrans.algebra.iterations.recurrence import Recurrence, StateVariable
from looptrans.algebra.normal_forms.atoms import Expr, Undefined, denominator
from looptrans.algebra.normal_forms.normal import Assumptions, equality
from looptrans.algebra.normal_forms.readable import factored
from looptrans.algebra.normal_forms.terms import Terms
from looptrans.algebra.operators.laws import Equation, Law, completed
from looptrans.algebra.operators.search import Search
from looptrans.algebra.other_states.change_of_state import freed_of_division
from looptrans.algebra.positional.numbers import Domain
from looptrans.algebra.positional.values import add, divide, multiply, names_of, put, subtract
from looptrans.ir.listing import access_text, value_text
from looptrans.ir.monoids import IDENTITIES
from looptrans.ir.program import Assign, If, Node, Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Binary,
    Call,
    Const,
    Read,
    Real,
    Value,
    arrays_read,
    value_children,
    walk_value,
)
from looptrans.ir.walk import accesses, nodes, written_in

Decision = Literal["fused", "refused", "unknown"]


@dataclass(frozen=True, slots=True)
class Fusion:
    """Whether loops were made into one pass.

    Attributes:
        decision: `fused`; `refused` with a law that numbers refute, or because a loop needs what
            another only has at its end; `unknown` with a reason.
        recurrence: The recurrence of the one loop, where fused.
        laws: The laws of separability and of moving, decided.
        reason: Why it was not done.
        large: Why it is done only where the update is freed of its division afterwards.
    """

    decision: Decision
    recurrence: Recurrence | None = None
    laws: tuple[Law, ...] = ()
    reason: str = ""
    large: str = ""


@dataclass(frozen=True, slots=True)
class Large:
    """A reduction that is moved by exponentials that may be too large for a number.

    Attributes:
        state: Its name.
        reason: That, as a sentence without a full stop.
        exponents: Of what exponentials are small, over states, inputs and parameters.
    """

    state: str
    reason: str
    exponents: tuple[Value, ...]

    def is_freed(self, recurrence: Recurrence) -> bool:
        """Tell whether a change of state leaves only small ones: `o * l` moves as `l` does."""
        changes = freed_of_division(recurrence)
        if not any(change.state == self.state for change in changes):
            return False
        terms = Terms(inputs_of(recurrence))
        known = {terms.reduced(terms.normal(exponent)) for exponent in self.exponents}
        update = changes[-1].recurrence.state(self.state).update
        return _exponents(update, terms) <= known


@dataclass(frozen=True, slots=True)
class Separable:
    """A reduction whose terms hold results that are still being reduced.

    Attributes:
        program: The program.
        earlier: The one pass so far.
        between: What stands from the first loop up to the later one.
        laws: What was decided on the way; more are put in.
        large: The reductions that have to be freed of a division; more are put in.
    """

    program: Program
    earlier: Recurrence
    between: tuple[Node, ...]
    laws: list[Law]
    large: list[Large] = field(default_factory=list)

    def update(self, state: StateVariable, monoid: str, term: Value) -> StateVariable | Fusion:
        """Return a reduction whose terms hold what is still being reduced, with a new update."""
        earlier = self.earlier
        results = [name for name in names_of(term) if name.startswith("y")]
        others: dict[str, Value] = {name: Real("z" + name[1:]) for name in results}
        inputs = [name for name in names_of(term) if name.startswith("x")]
        different: dict[str, Value] = {name: Real("u" + name[1:]) for name in inputs}
        domain = self._domain(results)
        there, here = put(term, others), term
        sums = monoid == "+"
        if monoid not in ("+", "max", "min"):
            return Fusion("unknown", reason="only sums, maxima and minima are moved")
        sign: Literal["*", "+"] = "*" if sums else "+"
        left = Binary(sign, here, put(put(term, others), different))
        right = Binary(sign, there, put(term, different))
        separable = Law(
            "separability",
            f"F(x, y) {sign} F(u, z) = F(x, z) {sign} F(u, y)",
            (Equation(state.name, left, right, equality(left, right, Assumptions(domain))),),
        )
        self.laws.append(separable)
        seen = self._without_extreme(results, term, monoid)
        if seen:
            return Fusion("unknown", reason=f"{access_text(state.access)} {seen}")
        if separable.answer != "proved":
            decision: Decision = "refused" if separable.answer == "refuted" else "unknown"
            return Fusion(
                decision,
                reason=f"the terms of {access_text(state.access)} are not separable",
            )
        terms = Terms(domain)
        gap = divide(there, here) if sums else subtract(there, here)
        try:
            form = terms.normal(gap)
        except Undefined as reason:
            return Fusion("unknown", reason=f"the terms have no quotient: {reason}")
        if terms.names_in(form) & set(inputs):
            return Fusion("unknown", reason="the quotient of two terms depends on the input")
        bottom = denominator(form)
        if terms.sign(bottom) == 0:
            why = f"{terms.text(bottom)} is not 0"
            return Fusion("unknown", reason=f"it is not clear for every prefix that {why}")
        factor = factored(form, terms)
        shifted = Binary(sign, here, factor)
        moving = Law(
            "moving",
            f"F(x, y) {sign} R(y, z) = F(x, z)",
            (Equation(state.name, shifted, there, equality(shifted, there, Assumptions(domain))),),
        )
        self.laws.append(moving)
        if moving.answer != "proved":
            return Fusion("unknown", reason="a term could not be moved")
        initial = self._moved_start(state, factor, others, monoid, domain) if results else None
        if isinstance(initial, Fusion):
            return initial
        unfinished = self._in_exponent(results, (term, factor))
        if unfinished:
            cell = access_text(state.access)
            why = f"{cell} would be moved by exponentials of what is not yet all of {unfinished}"
            return Fusion("unknown", reason=f"{why}: they may be too large for a number")
        old: dict[str, Value] = {}
        for name in results:
            reached = earlier.states[int(name[1:]) - 1]
            old |= {name: Real(reached.name), "z" + name[1:]: reached.update}
        ahead = {name: old["z" + name[1:]] for name in results}
        small = _small(state.update, others)
        known = {terms.reduced(terms.normal(exponent)) for exponent in small}
        if small and not _exponents(term, terms) | _exponents(factor, terms) <= known:
            cell = access_text(state.access)
            why = f"{cell} would be moved by exponentials that may be too large for a number"
            self.large.append(Large(state.name, why, tuple(put(each, old) for each in small)))
        moved_sum = put(factor, old)
        mine = Real(state.name)
        if sums:
            update = add(multiply(mine, moved_sum), put(term, ahead))
        else:
            update = Call(monoid, (add(mine, moved_sum), put(term, ahead)))
        return replace(state, update=update, initial=initial or state.initial)

    def _in_exponent(self, results: list[str], values: tuple[Value, ...]) -> str:
        """Return an earlier result that exponentials are taken of, and that is no extremum, if any.

        A maximum only rises to what it is in the end; a sum may be far off before.
        """
        taken = {name for value in values for part in _taken(value) for name in _named(part)}
        for name in results:
            state = self.earlier.states[int(name[1:]) - 1]
            if {name, "z" + name[1:]} & taken and not _only_rises(state):
                return access_text(state.access)
        return ""

    def _without_extreme(self, results: list[str], term: Value, monoid: str) -> str:
        """Return what forbids that a term is there before its maximum has left -inf, or nothing.

        A maximum of `x if ok else -inf` has seen nothing where it is masked; a term of the other
        loop must be masked there, too.
        """
        earlier = self.earlier
        infinite = infinite_arrays(self.program)
        values = {given.name: given.value for given in earlier.inputs}
        states = earlier.states
        known = extremes({s.name: s.update for s in states}, {s.name: s.bottom for s in states})
        names = {f"y{number}": state.name for number, state in enumerate(states, 1)}
        for extreme in known:
            if extreme.name not in {names[name] for name in results}:
                continue
            for name in names_of(extreme.term):
                for bound in may_be(values[name], infinite) if name in values else ():
                    at = {name: Const(bound)}
                    low = equality(put(extreme.term, at), Const(extreme.start))
                    if low.answer == "refuted":
                        continue
                    nothing = Const(IDENTITIES[monoid])
                    if equality(put(term, at), nothing).answer != "proved":
                        cell = access_text(earlier.state(extreme.name).access)
                        return f"adds terms up where {cell} has seen nothing yet"
        return ""

    def _moved_start(
        self,
        state: StateVariable,
        factor: Value,
        others: dict[str, Value],
        monoid: str,
        domain: Domain,
    ) -> Value | Fusion:
        """Return what a reduction starts from in the one pass, where that moves as its terms do.

            m = s                          m = s
            for j: m = max(m, x[j])   ->   l = 1
            l = exp(s - m)                 for j: …
            for j: l = l + exp(x[j] - m)

        Args:
            state: The reduction.
            factor: What terms of it move by.
            others: New names for the earlier results.
            monoid: `+`, `max` or `min`.
            domain: What is known of the names.
        """
        if _is(state.initial, IDENTITIES[monoid]):
            return state.initial
        text = value_text(state.initial)
        for node in nodes(self.between):
            reads = accesses(node) if isinstance(node, Assign | If) else ()
            if any(not r.is_write and r.access.array == state.access.array for r in reads):
                return Fusion(
                    "refused",
                    reason=f"{access_text(state.access)} starts from {text}, which is read before "
                    "the loop, and would be moved",
                )
        why = f"{access_text(state.access)} starts from {text}, which is not to be moved"
        refused = Fusion("refused", reason=why)
        cells = {f"y{n}": each for n, each in enumerate(self.earlier.states, 1)}
        final = {Read(each.access): Real(name) for name, each in cells.items() if name in others}

        def change(part: Value) -> Value | None:
            return final.get(part) if isinstance(part, Read) else None

        here = replaced(state.initial, change)
        if not set(others) & set(names_of(here)):
            return refused
        bare = _named_reads(here)
        there = put(bare, others)
        sums = monoid == "+"
        shifted = Binary("*" if sums else "+", bare, factor)
        law = Law(
            "moving",
            f"s(y) {'*' if sums else '+'} R(y, z) = s(z)",
            (Equation(state.name, shifted, there, equality(shifted, there, Assumptions(domain))),),
        )
        self.laws.append(law)
        first = put(here, {name: each.initial for name, each in cells.items()})
        if (arrays_read(here) | arrays_read(first)) & written_in(self.program.body):
            return refused  # it may have changed in between
        terms = Terms(domain)
        try:
            number = factored(terms.normal(_named_reads(first)), terms)
        except Undefined:
            return refused
        if law.answer != "proved" or not isinstance(number, Const):
            return refused
        return Const(float(number.value))

    def _domain(self, results: list[str]) -> Domain:
        """Return what is known of the earlier results on prefixes that are not empty."""
        earlier = self.earlier
        found = inputs_of(earlier)
        search = Search(earlier)
        proposal = search.run()
        if proposal is None:
            return found
        operator = completed(earlier, proposal)
        positive = {
            component.state
            for number, component in enumerate(operator.components, 1)
            if number in operator.positive
        }
        names = set()
        for name in results:
            if earlier.states[int(name[1:]) - 1].name in positive:
                names |= {name, "z" + name[1:]}
        return replace(found, positive=found.positive | names)


def _named(exponent: Value) -> Iterator[str]:
    """Yield the names in an exponent; what is in a logarithm is a factor."""
    match exponent:
        case Real(name):
            yield name
        case Call("log" | "log2"):
            pass
        case _:
            for part in value_children(exponent):
                yield from _named(part)


def _only_rises(state: StateVariable) -> bool:
    """Tell whether a state is the greatest or smallest of what it was and something else."""
    own = Real(state.name)
    return any(
        isinstance(part, Call) and part.function in ("max", "min") and own in part.arguments
        for part in walk_value(state.update)
    )


def _small(update: Value, others: Mapping[str, Value]) -> list[Value]:
    """Return of what exponentials are as small as the listing's own.

    In `exp(x - m) / (l + exp(s - m))` none is large where m is the largest x; what it is in lowest
    terms, `exp(x) / (exp(s) + l * exp(m))`, may be infinite above and below the line. What a sum
    is moved by from one m to the next is a quotient of two of the listing's.

    Args:
        update: The update as the listing has it.
        others: New names for the earlier results.
    """
    own = list(_taken(update))
    own += [add(one, other) for one in own for other in own]
    found = []
    for here in dict.fromkeys(own):
        there = put(here, others)
        found += [here, there, subtract(here, there), subtract(there, here)]
    return found


def _taken(value: Value) -> Iterator[Value]:
    """Yield of what exponentials are taken in a value, those of 2 as of e."""
    for part in walk_value(value):
        match part:
            case Call("exp", (exponent,)):
                yield exponent
            case Call("exp2", (exponent,)):
                yield multiply(exponent, Call("log", (Const(2.0),)))
            case _:
                pass


def _exponents(value: Value, terms: Terms) -> set[Expr]:
    """Return the normal forms of what exponentials are taken of."""
    return {terms.reduced(terms.normal(exponent)) for exponent in _taken(value)}


def _named_reads(value: Value) -> Value:
    """Give the cells and parameters that a value reads names by position."""
    names: dict[Value, Value] = {}

    def change(part: Value) -> Value | None:
        if isinstance(part, Read) or (isinstance(part, Real) and part.name[0] not in "yz"):
            return names.setdefault(part, Real(f"q{len(names) + 1}"))
        return None

    return replaced(value, change)


def _is(value: Value, number: float) -> bool:
    return isinstance(value, Const) and value.value == number
