"""The form in which a state takes a whole block of iterations in, found in its step.

A state is *plain*, *moved* or *picked*. With `(+)` one of +, *, max and min, x what an iteration is
given, s1 the old and t1 the new value of a state before it:

    plain    t1 = s1 (+) X(x)                      a block: t1 = s1 (+) (+)_x X(x)
    moved    t2 = s2 * A(s1, t1) + B(x, t1)        a block: t2 = s2 * A(s1, t1) + sum_x B(x, t1)
    picked   t2 = X(x) if V(x) > s1 else s2        a block: t2 = X(x) if V(x) > s1 else s2, x the
             where t1 = max(s1, V(x))                       first of those with the largest V

A moved state may have a guard, `t1 > -inf`, without which it stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from looptrans.algebra.appending.append_laws import append_laws
from looptrans.algebra.appending.append_state import AppendedState, Comparison, Pick, left_infinity
from looptrans.algebra.iterations.order import in_order, inputs_of
from looptrans.algebra.iterations.recurrence import Recurrence, StateVariable
from looptrans.algebra.normal_forms.atoms import Expr, Undefined
from looptrans.algebra.normal_forms.normal import Assumptions, equality
from looptrans.algebra.normal_forms.readable import factored, value_of
from looptrans.algebra.normal_forms.terms import Terms
from looptrans.algebra.operators.laws import Law
from looptrans.algebra.positional.values import (
    ONE,
    ZERO,
    add,
    is_number,
    multiply,
    names_of,
    put,
    without_repeats,
)
from looptrans.ir.condition import Condition, Every, conjunction, conjuncts, negation
from looptrans.ir.listing import access_text
from looptrans.ir.monoids import IDENTITIES, Monoid
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Binary, Call, Const, Holds, Real, Select, Unary, Value, walk_value


class NoForm(Exception):
    """A state has another form, or a law is not proved; the message says which."""


def appended(step: Recurrence) -> tuple[tuple[AppendedState, ...], tuple[Law, ...]]:
    """Bring the states of a recurrence into the form and prove its laws.

    Returns:
        The states in the order of the recurrence, and the laws.

    Raises:
        NoForm: A state has another form, or a law is not proved.
    """
    found: dict[str, AppendedState] = {}
    for group in in_order(step, ()):
        if len(group) > 1:
            names = " and ".join(access_text(state.access) for state in group)
            raise NoForm(f"{names} wait for each other")
        found[group[0].name] = _Form(step, found, group[0]).state()
    states = tuple(found[state.name] for state in step.states)
    for state in states:
        _require_empty_blocks(step, state)
    laws = append_laws(step, states)
    for law in laws:
        for equation in law.equations:
            if equation.proof.answer != "proved":
                cell = access_text(step.state(equation.of).access)
                raise NoForm(
                    f"that {cell} may be moved is {equation.proof.answer} "
                    f"({law.name}: {law.statement})"
                )
    return states, laws


def _require_empty_blocks(step: Recurrence, state: AppendedState) -> None:
    """Require that a block of which no iteration runs leaves a state as it is.

    There are such blocks where iterations run under a condition, or for some rows of several.

    Raises:
        NoForm: It would take an infinity from itself.
    """
    if state.factor is None or state.guard is not None:
        return
    for other in step.states:
        if other.bottom is not None and other.name in names_of(state.factor):
            raise NoForm(
                f"{access_text(state.access)} would take an infinity from itself in a block of "
                "which no iteration runs, and nothing guards it"
            )


@dataclass(slots=True)
class _Form:
    """Looks for the form of one state, those it waits for being known."""

    step: Recurrence
    before: Mapping[str, AppendedState]
    variable: StateVariable

    def state(self) -> AppendedState:
        update, conditions, guard = self._taken_apart()
        names = set(names_of(update))
        mine = self.variable.name
        waits = {n for n in names if n[0] in "st" and n != mine}
        condition = conditions[0] if conditions else None
        if len(conditions) > 1:
            condition = Every(tuple(conditions))
        if not waits:
            found = self._plain(update)
            if found is not None and guard is None:
                operator, term = found
                return AppendedState(self.variable, operator, term, None, condition)
        if isinstance(update, Select) and Real(mine) in (update.chosen, update.otherwise):
            picked = self._picked(update, condition) if guard is None else None
            if picked is None:
                raise self._no("changes under a condition on the state")
            return picked
        factor, term = self._moved(update)
        for name in sorted({"s" + name[1:] for name in waits}):
            other = self.before[name]
            if other.condition != condition:
                raise NoForm(f"{self._text} and {access_text(other.access)} move at other times")
            if other.pick is not None:
                raise NoForm(f"{self._text} waits for which {access_text(other.access)} is picked")
            if not set(other.state.over) <= set(self.variable.over):
                raise NoForm(f"{self._text} waits for the whole of {access_text(other.access)}")
        return AppendedState(self.variable, "+", term, factor, condition, guard)

    @property
    def _text(self) -> str:
        return access_text(self.variable.access)

    def _no(self, why: str) -> NoForm:
        return NoForm(f"{self._text} {why}")

    def _taken_apart(self) -> tuple[Value, list[Condition], Condition | None]:
        """Return the update over next values of others, its conditions and its guard."""
        mine = self.variable.name
        ahead: dict[Value, Value] = {
            other.update: Real("t" + other.name[1:])
            for other in self.step.states
            if other.name in self.before and not isinstance(other.update, Real | Const)
        }
        update = without_repeats(replaced(self.variable.update, ahead.get))
        conditions: list[Condition] = []
        guard: Condition | None = None
        while isinstance(update, Select) and update.otherwise == Real(mine):
            tested, given = _given_apart(update.condition)
            conditions += given
            if tested is None:
                update = without_repeats(update.chosen)
            elif guard is None and self._is_guard(tested):
                guard = tested
                update = without_repeats(update.chosen)
            else:
                update = replace(update, condition=tested)
                break
        if guard is None:
            update, guard = self._with_guard_outside(update)
        return update, conditions, guard

    def _with_guard_outside(self, update: Value) -> tuple[Value, Condition | None]:
        """Take a guard off the parts of an update: `s * (A if g else 1) + (B if g else 0)`."""
        guard = next(
            (
                part.condition
                for part in walk_value(update)
                if isinstance(part, Select) and self._is_guard(part.condition)
            ),
            None,
        )
        if guard is None:
            return update, None

        def chosen(held: bool) -> Value:
            def change(part: Value) -> Value | None:
                if isinstance(part, Select) and part.condition == guard:
                    return replaced(part.chosen if held else part.otherwise, change)
                return None

            return replaced(update, change)

        mine = Real(self.variable.name)
        if equality(chosen(held=False), mine, Assumptions(inputs_of(self.step))).answer != "proved":
            raise self._no("does not stay as it is where its guard does not hold")
        return chosen(held=True), guard

    def _is_guard(self, condition: Condition) -> bool:
        """Tell whether a condition says that extrema have left the infinity they start from."""
        return all(
            tested is not None
            and tested[0] in self.before
            and self.before[tested[0]].operator == ("max" if tested[1] < 0 else "min")
            for tested in map(left_infinity, conjuncts(condition))
        )

    def _plain(self, update: Value) -> tuple[Monoid, Value] | None:
        """Return the operator and the term of a plain state."""
        mine = Real(self.variable.name)
        added = _added(update, mine)
        if added is not None:
            return "+", added
        match update:
            case Binary("+" | "*" as op, left, right) if mine in (left, right):
                term = right if left == mine else left
                return None if mine.name in names_of(term) else (op, term)
            case Call("max" | "min" as word, arguments) if arguments.count(mine) == 1:
                others = tuple(part for part in arguments if part != mine)
                if others and mine.name not in names_of(*others):
                    return word, others[0] if len(others) == 1 else Call(word, others)
            case _:
                pass
        return self._by_normal_form(update)

    def _picked(self, update: Select, condition: Condition | None) -> AppendedState | None:
        """Return the form of a state that is set where an extremum is attained."""
        mine = Real(self.variable.name)
        term = update.chosen if update.otherwise == mine else update.otherwise
        if any(name[0] in "st" for name in names_of(term)):
            return None
        for name in sorted(
            {"s" + n[1:] for n in names_of(update) if n != mine.name} & {*self.before}
        ):
            other = self.before[name]
            if not other.is_plain or other.operator not in ("max", "min"):
                continue
            if other.condition != condition or other.state.over or self.variable.over:
                continue
            signs: tuple[Comparison, Comparison] = (">", ">=")
            for comparison in signs if other.operator == "max" else ("<", "<="):
                pick = Pick(name, other.term, comparison)
                value = Select(pick.moves(Real(name)), term, mine)
                given = put(update, {"t" + name[1:]: other.state.update})
                if equality(value, given, Assumptions(inputs_of(self.step))).answer == "proved":
                    operator = other.operator
                    return AppendedState(self.variable, operator, term, None, condition, None, pick)
        return None

    def _by_normal_form(self, update: Value) -> tuple[Monoid, Value] | None:
        terms = Terms(inputs_of(self.step))
        name = self.variable.name
        try:
            form = terms.normal(update)
            own = terms.normal(Real(name))
            for word, sign in (("max", 1), ("min", -1)):
                parts = _maximum_in(terms, sign * form)
                others = [part for part in parts if part != sign * own]
                if len(others) == len(parts) - 1 and name not in terms.names_in(sum(others)):
                    given = tuple(value_of(terms.reduced(sign * part), terms) for part in others)
                    term = given[0] if len(given) == 1 else Call(word, given)
                    return ("max" if word == "max" else "min"), term
            slope, rest = _slope(terms, form, update, name)
        except Undefined:
            return None
        if slope == 1:
            return "+", value_of(rest, terms)
        return ("*", value_of(slope, terms)) if rest == 0 else None

    def _moved(self, update: Value) -> tuple[Value, Value]:
        """Return factor and term of a moved state."""
        name = self.variable.name
        terms = Terms(inputs_of(self.step))
        try:
            slope, _ = _slope(terms, terms.normal(update), update, name)
        except Undefined as error:
            raise self._no(f"is no number times itself and a term: {error}") from None
        given = {item.name for item in self.step.inputs}
        in_factor = terms.names_in(slope)
        if in_factor & given:
            raise self._no("is multiplied by something new in every iteration")
        term = _simple(put(update, {name: ZERO}))
        if any(part[0] == "s" for part in names_of(term)):
            raise self._no("is given terms that depend on the old state")
        return factored(slope, terms), term


def _added(update: Value, mine: Real) -> Value | None:
    """Return what is added to a state, or taken from it, as it is written.

    A normal form multiplies its constants, and their product may be no floating-point number.
    """
    match update:
        case Binary("+" | "-" as op, left, right) if mine.name not in names_of(right):
            if left == mine:
                return right if op == "+" else Unary("-", right)
            rest = _added(left, mine)
            return rest and Binary(op, rest, right)
        case Binary("+", left, right) if mine.name not in names_of(left):
            if right == mine:
                return left
            rest = _added(right, mine)
            return rest and Binary("+", left, rest)
    return None


def _given_apart(condition: Condition) -> tuple[Condition | None, list[Condition]]:
    """Return what a condition asks of states, if anything, and its parts that ask nothing."""
    parts = conjuncts(condition)
    given = [p for p in parts if not any(name[0] in "st" for name in names_of(Holds(p)))]
    asked = [part for part in parts if part not in given]
    return (conjunction(*asked) if asked else None), given


def _slope(terms: Terms, form: Expr, update: Value, name: str) -> tuple[Expr, Expr]:
    """Return a and b of an update a * s + b, as normal forms.

    Raises:
        Undefined: It has not this form.
    """
    rest = terms.normal(put(update, {name: ZERO}))
    slope = terms.reduced(terms.normal(put(update, {name: ONE})) - rest)
    if name in terms.names_in(slope) or not terms.is_zero(
        terms.reduced(form - slope * terms.normal(Real(name)) - rest)
    ):
        raise Undefined("it is not linear")
    return slope, rest


def _maximum_in(terms: Terms, form: Expr) -> tuple[Expr, ...]:
    """Return the arguments of the maximum that a normal form is; none where it is none."""
    for symbol in sorted(form.free_symbols, key=str):
        atom = terms.meaning[symbol]
        rest = terms.reduced(form - symbol)
        if atom.kind == "max" and symbol not in rest.free_symbols:
            return tuple(terms.reduced(part + rest) for part in atom.parts)
    return ()


def _simple(value: Value) -> Value:
    """Leave out zeros and ones."""

    def change(part: Value) -> Value | None:
        match part:
            case Binary("+", left, right):
                return add(_simple(left), _simple(right))
            case Binary("*", left, right):
                return multiply(_simple(left), _simple(right))
            case Binary("/", left, right):
                above = _simple(left)
                return above if above == ZERO else Binary("/", above, _simple(right))
            case _:
                return None

    return replaced(value, change)


def domain_of_terms(step: Recurrence, states: tuple[AppendedState, ...]) -> Condition | None:
    """Return a condition without which an iteration changes no state; None where none is found.

    A masked iteration offers every state what changes nothing: an infinity to an extremum, and
    with that nothing to the states it guards; 0 to a sum.
    """
    values = {given.name: given.value for given in (*step.inputs, *step.parameters)}
    found: dict[str, Condition | None] = {}
    for state in states:
        if state.is_plain:
            found[state.state.name] = _mask(state, values)
    for state in states:
        if state.pick is not None:
            strict = state.pick.is_strict
            found[state.state.name] = found[state.pick.of] if strict else None
        if state.factor is not None:
            masks = [found[name] for name, _ in state.waits_for]
            found[state.state.name] = next((mask for mask in masks if mask is not None), None)
    masks = list(found.values())
    return masks[0] if masks and all(mask == masks[0] for mask in masks) else None


def _mask(state: AppendedState, values: Mapping[str, Value]) -> Condition | None:
    """Return what must hold for a plain state to be offered more than its identity."""
    term = values.get(state.term.name) if isinstance(state.term, Real) else None
    if not isinstance(term, Select):
        return None
    if is_number(term.otherwise, IDENTITIES[state.operator]):
        return term.condition
    if is_number(term.chosen, IDENTITIES[state.operator]):
        return negation(term.condition)
    return None
