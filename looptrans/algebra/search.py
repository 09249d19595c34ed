"""The search for a combine operator, which reads the step and nothing else.

State variables are taken in the order in which they depend on each other. Each is brought to one
of the forms whose composition is known:

    max(s + a, b), min(s + a, b)    joined by max and min, with the sums of the a
    a * s + b                       joined by sums, with the products of the a
    A(S, x) * s + B(S, x)           a map phi(s) = w(S) * s + r(S) is solved for that turns it into
                                    the form before: w and r in the state variables solved already
    g'(s) / h'(x) separable         the step is g^-1(g(s) + h(x)), with g found by integration
    inputs that can be read off     the step itself, put in front of a part that is one iteration
    several affine in each other    matrices

What is found is a proposal; `laws.py` proves it or it is not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, combinations_with_replacement

import sympy

from looptrans.algebra.atoms import Expr, Leaf, Undefined
from looptrans.algebra.conjugation import conjugation
from looptrans.algebra.normal import Assumptions, equality
from looptrans.algebra.numbers import Domain
from looptrans.algebra.operator import Component, Operator
from looptrans.algebra.order import all_needed, in_order, inputs_of
from looptrans.algebra.readable import factored, value_of
from looptrans.algebra.recurrence import Recurrence, StateVariable
from looptrans.algebra.terms import Terms
from looptrans.algebra.values import (
    INFINITY,
    MINUS_INFINITY,
    ONE,
    ZERO,
    add,
    divide,
    is_number,
    multiply,
    put,
    subtract,
)
from looptrans.algebra.weights import Weight, tidied
from looptrans.ir.value import Call, Const, Real, Value

Build = Callable[[Mapping[str, Value], Mapping[str, Value]], Value]
MOST_FACTORS = 5
MOST_MONOMIALS = 24


@dataclass(slots=True)
class Search:
    """A search under way.

    Attributes:
        recurrence: What an operator is looked for.
        joint: Sets of state variables to be taken together, as vectors.
        tried: What was tried and why it did not do, one phrase each.
        terms: The normal forms.
        components: The components found so far.
        act: The states after a part, as far as found.
        where: The number of the component of each solved state variable.
    """

    recurrence: Recurrence
    joint: tuple[frozenset[str], ...] = ()
    tried: list[str] = field(default_factory=list)
    terms: Terms = field(default_factory=Terms)
    components: list[Component] = field(default_factory=list)
    act: list[tuple[str, Value]] = field(default_factory=list)
    where: dict[str, int] = field(default_factory=dict)

    def run(self) -> Operator | None:
        """Return a proposal, or None; `tried` then says what was tried."""
        self.terms = Terms(inputs_of(self.recurrence))
        for group in in_order(self.recurrence, self.joint):
            try:
                done = (
                    self._vector(group)
                    if len(group) > 1 or group[0].name in {n for j in self.joint for n in j}
                    else self._single(group[0])
                )
            except Undefined as reason:
                done = self._no(group[0], f"a part of the step is not a number: {reason}")
            if not done:
                return self._together(group)
        order = [state.name for state in self.recurrence.states]
        act = tuple(sorted(self.act, key=lambda pair: self.where[pair[0]]))
        assert {name for name, _ in act} == set(order)
        return Operator(tuple(self.components), act)

    def _together(self, group: tuple[StateVariable, ...]) -> Operator | None:
        """Try once more with a variable and all it depends on taken as a vector."""
        wanted = frozenset(all_needed(self.recurrence, {state.name for state in group}))
        if len(wanted) < 2 or any(wanted <= known for known in self.joint):
            return None
        again = Search(self.recurrence, (*self.joint, wanted), self.tried)
        found = again.run()
        if found is None:
            self.tried = again.tried
        return found

    def _no(self, state: StateVariable, why: str) -> bool:
        text = f"{state.name}: {why}"
        if text not in self.tried:
            self.tried.append(text)
        return False

    def _single(self, state: StateVariable) -> bool:
        strategies = (self._extremum, self._affine, self._itself, self._conjugated)
        before = len(self.tried)
        if any(strategy(state) for strategy in strategies):
            del self.tried[before:]
            return True
        return False

    # Names.

    @property
    def _states(self) -> frozenset[str]:
        return frozenset(state.name for state in self.recurrence.states)

    def _free(self, expr: Expr) -> bool:
        """Tell whether a normal form depends on no state variable."""
        return not self.terms.names_in(expr) & self._states

    def _letters(self, letter: str) -> dict[str, Value]:
        return {name: Real(f"{letter}{number}") for name, number in self.where.items()}

    def _keep(self, state: StateVariable, component: Component, build: Build) -> bool:
        """Take a component; `build` gives its formula over the earlier part and the new one."""
        number = len(self.components) + 1
        self.where[state.name] = number
        new = {name: Real(f"c{n}") for name, n in self.where.items()}
        combined = build(self._letters("a"), new)
        self.components.append(replace(component, combine=combined))
        after: dict[str, Value] = {name: Real("t" + name[1:]) for name in self.where}
        self.act.append((state.name, build({name: Real(name) for name in self.where}, after)))
        return True

    def _coefficient(self, state: StateVariable, unit: Value, monoid: str) -> Real:
        """Take a coefficient that parts join by `+` or `*`, and return its name in a part."""
        number = len(self.components) + 1
        a, b = Real(f"a{number}"), Real(f"b{number}")
        combine = add(a, b) if monoid == "+" else multiply(a, b)
        word = "sum" if monoid == "+" else "product"
        self.components.append(
            Component(
                None,
                f"the {word} of the coefficients of {state.name}",
                unit,
                combine,
                ZERO if monoid == "+" else ONE,
            )
        )
        return b

    # max(s + a, b) and min(s + a, b)

    def _extremum(self, state: StateVariable) -> bool:
        terms = self.terms
        form = terms.normal(state.update)
        mine = terms.normal(Real(state.name))
        for symbol in sorted(form.free_symbols, key=str):
            atom = terms.meaning[symbol]
            if atom.kind != "max":
                continue
            sign = form.coeff(symbol)
            rest = terms.reduced(form - sign * symbol)
            if sign not in (1, -1) or symbol in rest.free_symbols:
                continue
            parts = [terms.reduced(sign * part + rest) for part in atom.parts]
            own = [part for part in parts if state.name in terms.names_in(part)]
            others = [part for part in parts if part not in own]
            if len(own) != 1 or not others:
                continue
            shift = terms.reduced(own[0] - mine)
            word = "max" if sign == 1 else "min"
            found = self._levelled(shift, others)
            if found is not None:
                return self._take_extremum(state, word, *found)
        return self._no(state, "it is not the greater or the smaller of itself and an input")

    def _levelled(self, shift: Expr, others: list[Expr]) -> tuple[Value, Expr, list[Expr]] | None:
        """Find a level w with which `shift` and `others` no longer depend on the state.

        max(s + A(S, x), B(S, x)) is max(w + s + a, b) - w(S') where A is w(S) - w(S') + a(x) and B
        is b(x) - w(S').
        """
        if self._free(shift) and all(map(self._free, others)):
            return ZERO, shift, others
        terms = self.terms
        inputs = {given.name for given in self.recurrence.inputs}
        old = [
            term
            for term in sympy.Add.make_args(sympy.expand(shift))
            if terms.names_in(term) & self._states <= set(self.where)
            and terms.names_in(term) & self._states
            and not terms.names_in(term) & inputs
        ]
        level = value_of(sympy.Add(*old), terms)
        updates = {s.name: s.update for s in self.recurrence.states if s.name in self.where}
        ahead = terms.normal(put(level, updates))
        along = terms.reduced(shift + ahead - terms.normal(level))
        terms_of = [terms.reduced(other + ahead) for other in others]
        if old and all(map(self._free, (along, *terms_of))):
            return level, along, terms_of
        return None

    def _take_extremum(
        self, state: StateVariable, word: str, level: Value, shift: Expr, others: list[Expr]
    ) -> bool:
        given = tuple(value_of(part, self.terms) for part in others)
        joined = given[0] if len(given) == 1 else Call(word, given)
        units = {s: self.components[n - 1].unit for s, n in self.where.items()}
        right_names = {s: Real(f"b{n}") for s, n in self.where.items()}
        moved = value_of(shift, self.terms)
        along = None if shift == 0 else self._coefficient(state, moved, "+")
        number = len(self.components) + 1
        right = Real(f"b{number}")

        def build(left: Mapping[str, Value], new: Mapping[str, Value]) -> Value:
            mine = add(left[state.name], subtract(put(level, left), put(level, new)))
            theirs = add(right, subtract(put(level, right_names), put(level, new)))
            return Call(word, (mine if along is None else add(mine, along), theirs))

        kind = f"a {'maximum' if word == 'max' else 'minimum'}"
        plain = is_number(level, 0.0)
        kind = kind if plain else f"{kind} once it is moved"
        unit = joined if plain else tidied(subtract(joined, put(level, units)))
        y = Real(f"y{number}")
        return self._keep(
            state,
            Component(
                state.name,
                kind if shift == 0 else f"{kind} that is shifted in every iteration",
                unit,
                ZERO,
                MINUS_INFINITY if word == "max" else INFINITY,
                add(Real(state.name), level) if shift == 0 else None,
                word if shift == 0 else "",
                joined if shift == 0 else None,
                subtract(y, put(level, self._letters("c"))) if shift == 0 else None,
            ),
            build,
        )

    # A * s + B

    def _affine(self, state: StateVariable) -> bool:
        terms, name = self.terms, state.name
        split = self._slope(state.update, name)
        if split is None:
            return self._no(state, "it is not a multiple of itself plus something")
        slope, rest = split
        if self._free(slope) and self._free(rest):
            if slope == 0:
                return self._last(state, rest)
            return self._take_affine(state, Weight(ZERO, ()), ZERO, slope, rest)
        updates = {s.name: s.update for s in self.recurrence.states if s.name in self.where}
        before = {s: Real(s) for s in self.where}
        slope_value, rest_value = value_of(slope, terms), value_of(rest, terms)
        for weight in self._weights(slope):
            ahead = weight.value(updates)
            factor = terms.normal(divide(multiply(slope_value, ahead), weight.value(before)))
            if not self._free(factor):
                continue
            added = terms.normal(multiply(rest_value, ahead))
            if self._free(added):
                return self._take_affine(state, weight, ZERO, factor, added)
            correction = self._correction(state, factor, added, updates)
            if correction is not None:
                return self._take_affine(state, weight, correction[0], factor, correction[1])
        return self._no(
            state,
            "no scaling w and correction r in the other variables turns w * s + r into a plain sum",
        )

    def _slope(self, update: Value, name: str) -> tuple[Expr, Expr] | None:
        terms = self.terms
        at_zero, at_one = put(update, {name: ZERO}), put(update, {name: ONE})
        try:
            rest = terms.chosen(at_zero, self._is_input)
            slope = terms.chosen(subtract(at_one, at_zero), self._is_input)
            form = terms.normal(update)
        except Undefined:
            return None
        if terms.is_zero(form - slope * terms.normal(Real(name)) - rest):
            return slope, rest
        if not self._free(slope) or not self._free(rest):
            return None
        straight = add(multiply(value_of(slope, terms), Real(name)), value_of(rest, terms))
        fits = equality(update, straight, Assumptions(terms.domain)).answer == "proved"
        return (slope, rest) if fits else None

    def _is_input(self, leaf: Leaf) -> bool:
        """Tell whether the state has no part in a condition."""
        if leaf.kind == "truth":
            return leaf.subject not in self._states
        return self._free(leaf.subject)

    def _last(self, state: StateVariable, rest: Expr) -> bool:
        number = len(self.components) + 1
        unit = value_of(rest, self.terms)
        kind = "the value of the last iteration"
        return self._keep(
            state,
            Component(state.name, kind, unit, ZERO, ZERO),
            lambda left, new: Real(f"b{number}"),
        )

    def _take_affine(
        self, state: StateVariable, weight: Weight, correction: Value, factor: Expr, added: Expr
    ) -> bool:
        """Take w * s + r with the step `factor * it + added`."""
        terms, name = self.terms, state.name
        contribution = factored(added, terms)
        plain = weight == Weight(ZERO, ()) and is_number(correction, 0.0)
        units = {s: self.components[n - 1].unit for s, n in self.where.items()}
        if plain and added == 0:
            return self._take_product(state, factor)
        along = None if factor == 1 else self._coefficient(state, factored(factor, terms), "*")
        number = len(self.components) + 1
        right = {s: Real(f"b{n}") for s, n in self.where.items()} | {name: Real(f"b{number}")}
        above = subtract(contribution, put(correction, units))
        unit = above if plain else factored(terms.normal(divide(above, weight.value(units))), terms)

        def build(left: Mapping[str, Value], new: Mapping[str, Value]) -> Value:
            scale = new if weight != Weight(ZERO, ()) else {}
            earlier = weight.times(left[name], left, scale) if scale else left[name]
            later = weight.times(right[name], right, scale) if scale else right[name]
            total = add(earlier if along is None else multiply(along, earlier), later)
            if is_number(correction, 0.0):
                return total
            return add(total, self._corrected(correction, weight, left, right, new, along))

        coordinate = add(weight.times(Real(name), {s: Real(s) for s in self.where}, {}), correction)
        summed = factor == 1
        kind = _affine_kind(plain, summed, is_number(correction, 0.0))
        inverse = divide(
            subtract(Real(f"y{number}"), put(correction, self._letters("c"))),
            weight.value(self._letters("c")),
        )
        return self._keep(
            state,
            Component(
                name,
                kind,
                unit,
                ZERO,
                ZERO,
                coordinate if summed else None,
                "+" if summed else "",
                contribution if summed else None,
                inverse if summed else None,
            ),
            build,
        )

    def _corrected(
        self,
        correction: Value,
        weight: Weight,
        left: Mapping[str, Value],
        right: Mapping[str, Value],
        new: Mapping[str, Value],
        along: Value | None,
    ) -> Value:
        """Return `(r(left) + r(right) - r(new)) / w(new)` without what cancels in it."""
        terms = self.terms
        formulas = dict(self.act) if next(iter(left.values())) == Real(next(iter(left))) else None
        known: dict[str, Value] = {}
        for state, number in self.where.items():
            if state not in left or state not in new:
                continue
            names = (
                {f"t{s[1:]}": v for s, v in known.items()}
                if formulas is not None
                else {f"c{self.where[s]}": v for s, v in known.items()}
            )
            whole = (
                formulas.get(state)
                if formulas is not None
                else self.components[number - 1].combine
                if number <= len(self.components)
                else None
            )
            if whole is not None:
                known[state] = put(whole, names)
        earlier = put(correction, left)
        total = add(earlier if along is None else multiply(along, earlier), put(correction, right))
        gap = subtract(total, put(correction, known))
        return factored(terms.normal(divide(gap, weight.value(known))), terms)

    def _take_product(self, state: StateVariable, factor: Expr) -> bool:
        number = len(self.components) + 1
        unit = factored(factor, self.terms)

        def build(left: Mapping[str, Value], new: Mapping[str, Value]) -> Value:
            del new
            return multiply(left[state.name], Real(f"b{number}"))

        mine, joined = Real(state.name), Real(f"y{number}")
        return self._keep(
            state,
            Component(state.name, "a product", unit, ZERO, ONE, mine, "*", unit, joined),
            build,
        )

    # w and r of w(S) * s + r(S)

    def _weights(self, slope: Expr) -> Iterator[Weight]:
        """Yield the products of factors of the slope that hold old state only, large ones first."""
        terms = self.terms
        top, bottom = sympy.fraction(sympy.factor(slope))
        factors: list[tuple[Expr, int]] = []
        inputs = {given.name for given in self.recurrence.inputs}
        for part, sign in ((top, 1), (bottom, -1)):
            for base, times in sympy.factor_list(part)[1]:
                names = terms.names_in(base)
                old = names & self._states
                if old and old <= set(self.where) and not names & inputs:
                    factors.append((base, sign * int(times)))
        factors = factors[:MOST_FACTORS]
        above = [item for item in factors if item[1] > 0]
        below = [item for item in factors if item[1] < 0]
        for kept in (above, factors, below):
            for size in range(len(kept), 0, -1):
                for chosen in combinations(kept, size):
                    yield self._weight(chosen)
        yield Weight(ZERO, ())

    def _weight(self, chosen: tuple[tuple[Expr, int], ...]) -> Weight:
        exponent: Expr = sympy.Integer(0)
        factors = []
        for base, times in chosen:
            atom = self.terms.meaning.get(base)
            if atom is not None and atom.kind == "exp":
                exponent += times * atom.parts[0]
            else:
                factors.append((value_of(base, self.terms), times))
        two = self.terms.normal(Call("log", (Const(2),)))
        halved = self.terms.reduced(exponent / two)
        if exponent != 0 and two not in halved.free_symbols:
            return Weight(value_of(halved, self.terms), tuple(factors), "exp2")
        return Weight(value_of(exponent, self.terms), tuple(factors))

    def _correction(
        self, state: StateVariable, factor: Expr, added: Expr, updates: Mapping[str, Value]
    ) -> tuple[Value, Expr] | None:
        """Solve `added + r(S') - factor * r(S) = b(x)` for polynomials r and b."""
        terms = self.terms
        names = [name for name in self.where if name in updates]
        symbols = {name: terms.normal(Real(name)) for name in names}
        monomials = [
            chosen
            for degree in (1, 2, 3)
            for chosen in combinations_with_replacement(names, degree)
        ]
        inputs = [terms.normal(Real(g.name)) for g in self.recurrence.inputs if not g.is_truth]
        powers = [
            sympy.Mul(*chosen)
            for degree in (0, 1, 2)
            for chosen in combinations_with_replacement(inputs, degree)
        ]
        if not names or len(monomials) + len(powers) > MOST_MONOMIALS:
            return None
        ahead = {name: terms.normal(updates[name]) for name in names}
        unknown = [sympy.Symbol(f"k{n}") for n in range(len(monomials) + len(powers))]
        total = added
        for k, chosen in zip(unknown, monomials, strict=False):
            later = sympy.Mul(*(ahead[name] for name in chosen))
            now = sympy.Mul(*(symbols[name] for name in chosen))
            total += k * (later - factor * now)
        for k, monomial in zip(unknown[len(monomials) :], powers, strict=True):
            total -= k * monomial
        top = sympy.fraction(sympy.together(total))[0]
        others = sorted(top.free_symbols - set(unknown), key=str)
        equations = sympy.Poly(sympy.expand(top), *others).coeffs() if others else [top]
        solutions = sympy.linsolve(equations, unknown)
        if not solutions:
            return None
        solution = [value.subs(dict.fromkeys(unknown, 0)) for value in next(iter(solutions))]
        r = sympy.Add(
            *(
                k * sympy.Mul(*(symbols[name] for name in chosen))
                for k, chosen in zip(solution, monomials, strict=False)
            )
        )
        b = sympy.Add(*(k * p for k, p in zip(solution[len(monomials) :], powers, strict=True)))
        del state
        return value_of(r, terms), b

    # The step itself, where the inputs can be read off its result.

    def _itself(self, state: StateVariable) -> bool:
        found = self._first_value(state)
        if found is None:
            return self._no(state, "what a single iteration leaves depends on the state before it")
        unit, nothing = found
        number = len(self.components) + 1
        units = {n: self.terms.normal(c.unit) for n, c in enumerate(self.components, 1)}
        units[number] = self.terms.normal(unit)
        inputs = {given.name for given in self.recurrence.inputs}
        used = [
            name for name in self.terms.names_in(self.terms.normal(state.update)) if name in inputs
        ]
        read: dict[str, Value] = {}
        for name in sorted(used):
            symbol = self.terms.normal(Real(name))
            places = [n for n, form in units.items() if form == symbol]
            if not places:
                return self._no(state, f"{name} cannot be read off what one iteration leaves")
            read[name] = Real(f"b{places[0]}")

        def build(left: Mapping[str, Value], new: Mapping[str, Value]) -> Value:
            del new
            return put(state.update, {**left, **read})

        kept = (list(self.components), list(self.act), dict(self.where))
        kind = "the step itself, a part's result in place of an input"
        self._keep(state, Component(state.name, kind, unit, ZERO, nothing), build)
        if self._is_associative(number):
            self._add_coordinates(state, number)
            return True
        self.components, self.act, self.where = kept
        return self._no(state, "the step itself does not join the results of parts")

    def _add_coordinates(self, state: StateVariable, number: int) -> None:
        """Give a component coordinates where its step is a sum under a map."""
        form = self.terms.normal(state.update)
        if self.terms.names_in(form) & self._states != {state.name}:
            return
        inputs = [given.name for given in self.recurrence.inputs]
        found = conjugation(form, self.terms, state.name, inputs)
        if found is not None:
            self.components[number - 1] = replace(
                self.components[number - 1],
                coordinate=put(found.map, {"y": Real(state.name)}),
                monoid="+",
                contribution=found.contribution,
                inverse=put(found.inverse, {"y": Real(f"y{number}")}),
            )

    def _first_value(self, state: StateVariable) -> tuple[Value, Value] | None:
        """Return what one iteration leaves, and what stands for no iteration."""
        nothing = {s: self.components[n - 1].identity for s, n in self.where.items()}
        for own in (state.initial, MINUS_INFINITY, ZERO, INFINITY, ONE):
            if not isinstance(own, Const):
                continue
            try:
                form = self.terms.normal(put(state.update, {**nothing, state.name: own}))
            except Undefined:
                continue
            if self._free(form) and form not in (sympy.oo, -sympy.oo):
                return value_of(form, self.terms), own
        return None

    def _is_associative(self, number: int) -> bool:
        operator = Operator(tuple(self.components), ())
        a, b, c = (operator.names(letter) for letter in "abd")
        left = operator.combined(operator.combined(a, b), c)[number - 1]
        right = operator.combined(a, operator.combined(b, c))[number - 1]
        return equality(left, right, Assumptions(self.terms.domain)).answer == "proved"

    # g^-1(g(s) + h(x))

    def _conjugated(self, state: StateVariable) -> bool:
        form = self.terms.normal(state.update)
        if self.terms.names_in(form) & self._states != {state.name}:
            return self._no(state, "it depends on other variables in no form that was tried")
        inputs = [given.name for given in self.recurrence.inputs]
        found = conjugation(form, self.terms, state.name, inputs)
        if found is None:
            return self._no(state, "no function g makes it g(s) + h(x)")
        number = len(self.components) + 1
        theirs = Real(f"b{number}")

        def build(left: Mapping[str, Value], new: Mapping[str, Value]) -> Value:
            del new
            own = put(found.map, {"y": left[state.name]})
            return tidied(put(found.inverse, {"y": add(own, put(found.map, {"y": theirs}))}))

        formula = build({state.name: Real("a")}, {})

        return self._keep(
            state,
            Component(
                state.name,
                "a sum under a map",
                tidied(put(found.inverse, {"y": found.contribution})),
                ZERO,
                _neutral(formula, theirs),
                put(found.map, {"y": Real(state.name)}),
                "+",
                found.contribution,
                put(found.inverse, {"y": Real(f"y{number}")}),
            ),
            build,
        )

    # Several variables, each affine in all of them.

    def _vector(self, group: tuple[StateVariable, ...]) -> bool:
        terms = self.terms
        names = [state.name for state in group]
        zero: dict[str, Value] = dict.fromkeys(names, ZERO)
        matrix: list[list[Expr]] = []
        rests: list[Expr] = []
        for state in group:
            form = terms.normal(state.update)
            rest = terms.normal(put(state.update, zero))
            row = [
                terms.reduced(terms.normal(put(state.update, {**zero, name: ONE})) - rest)
                for name in names
            ]
            whole = sum((f * terms.normal(Real(n)) for f, n in zip(row, names, strict=True)), rest)
            if not terms.is_zero(form - whole) or not all(map(self._free, (*row, rest))):
                return self._no(state, f"{', '.join(names)} are not affine in each other")
            matrix.append(row)
            rests.append(rest)
        varying = _varying_entries(matrix)
        entry: dict[tuple[int, int], int] = {}
        first = len(self.components) + 1
        for offset, place in enumerate(sorted(varying)):
            entry[place] = first + offset

        def at(letter: str, i: int, j: int) -> Value:
            if (i, j) in entry:
                return Real(f"{letter}{entry[i, j]}")
            return value_of(matrix[i][j], terms)

        size = range(len(names))
        for i, j in sorted(varying):
            joined = add(*(multiply(at("b", i, k), at("a", k, j)) for k in size))
            self.components.append(
                Component(
                    None,
                    f"how {names[i]} at the end depends on {names[j]} at the beginning",
                    factored(matrix[i][j], terms),
                    joined,
                    ONE if i == j else ZERO,
                )
            )
        for i, state in enumerate(group):
            number = len(self.components) + 1

            def build(
                left: Mapping[str, Value],
                new: Mapping[str, Value],
                i: int = i,
                number: int = number,
            ) -> Value:
                del new
                moved = [multiply(at("b", i, j), left[names[j]]) for j in size]
                return add(*moved, Real(f"b{number}"))

            self.where.update({n: first + len(varying) + k for k, n in enumerate(names)})
            component = Component(
                state.name, "a vector, affine", factored(rests[i], terms), ZERO, ZERO
            )
            self._keep(state, component, build)
        return True


def _neutral(formula: Value, other: Real) -> Value:
    """Return a value of `a` that leaves the other side as it is; -inf where none was found."""
    for candidate in (ZERO, MINUS_INFINITY, INFINITY, ONE):
        given = put(formula, {"a": candidate})
        assumed = Assumptions(Domain(nonnegative=frozenset({other.name})))
        if equality(given, other, assumed).answer == "proved":
            return candidate
    return MINUS_INFINITY


def _affine_kind(plain: bool, summed: bool, uncorrected: bool) -> str:
    if plain:
        return "a sum" if summed else "affine, with its coefficients' products beside it"
    first = "a sum" if summed else "affine"
    return f"{first} once it is scaled" if uncorrected else f"{first} once it is moved"


def _varying_entries(matrix: list[list[Expr]]) -> set[tuple[int, int]]:
    """Return the entries that products of such matrices do not leave as they are."""
    size = range(len(matrix))
    varying = {(i, j) for i in size for j in size if matrix[i][j] != (1 if i == j else 0)}
    while True:
        entries = [
            [sympy.Symbol(f"v{i}_{j}") if (i, j) in varying else matrix[i][j] for j in size]
            for i in size
        ]
        others = [
            [sympy.Symbol(f"u{i}_{j}") if (i, j) in varying else matrix[i][j] for j in size]
            for i in size
        ]
        more = {
            (i, j)
            for i in size
            for j in size
            if (i, j) not in varying
            and sympy.expand(sum(entries[i][k] * others[k][j] for k in size) - matrix[i][j]) != 0
        }
        if not more:
            return varying
        varying |= more
