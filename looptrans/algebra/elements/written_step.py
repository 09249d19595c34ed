"""A loop written anew: its step in lowest terms.

    s[j] = x[j]; b = s[j]; s[j] = exp(s[j] - b)         m_new = max(m, x[j])
    n = max(m, b)                                  ->   l = l * exp(m - m_new) + exp(x[j] - m_new)
    l = l * exp(m - n) + s[j] * exp(b - n); m = n       m = m_new

Only what the loop leaves in its state is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isinf

import sympy

from looptrans.algebra.iterations.edges import NoRecurrence
from looptrans.algebra.iterations.order import inputs_of
from looptrans.algebra.iterations.recurrence import Recurrence, StateVariable
from looptrans.algebra.normal_forms.atoms import Expr, Undefined
from looptrans.algebra.normal_forms.readable import factored
from looptrans.algebra.normal_forms.terms import Terms
from looptrans.algebra.positional.values import MINUS_INFINITY, divide, names_of, put
from looptrans.frontend import parse
from looptrans.ir.condition import Condition, Data
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.listing import listing
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.source import Source
from looptrans.ir.value import (
    Access,
    Call,
    Compare,
    Const,
    Range,
    Read,
    Real,
    Select,
    Value,
    walk_value,
)
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.tree import Position, node_at, replace_at


def in_lowest_terms(
    program: Program, place: Position, step: Recurrence, ranges: Mapping[str, Range]
) -> Program | None:
    """Write a loop anew; None where that is no shorter, or cannot be done.

    Args:
        program: The program.
        place: Where the loop stands; nothing but its state is looked at elsewhere.
        step: What it does.
        ranges: Those of the loops that states are vectors over.
    """
    if not _is_writable(step):
        return None
    terms = Terms(inputs_of(step))
    given = {state.name: state.update for state in step.states}
    try:
        updates = _lowest(given, terms)
        scaled = _exponents(given, terms)
        scaled |= {terms.reduced(a + b) for a in scaled for b in scaled}
        if not _exponents(updates, terms) <= scaled:
            return None  # an exponential might become too large
    except Undefined:
        return None
    if _size(*updates.values()) >= _size(*given.values()):
        return None
    writing = _Writing(program, place, step, updates, ranges)
    if any(isinstance(p, Select) for s in step.states for p in walk_value(s.update)):
        tops = [s for s in step.states if s.initial == MINUS_INFINITY and not s.over]
        if len(tops) != 1:
            return None
        read = any(tops[0].name in names_of(u) for n, u in updates.items() if n != tops[0].name)
        if not read:
            return None
        writing.top = tops[0].name
    return writing.program_afterwards()


def where_it_holds(
    program: Program,
    place: Position,
    step: Recurrence,
    ranges: Mapping[str, Range],
    condition: Condition,
) -> Program | None:
    """Write a loop anew so that it does what it does where a condition holds, and else nothing.

    Args:
        program: The program.
        place: Where the loop stands; nothing but its state is looked at elsewhere.
        step: What it does, without the condition.
        ranges: Those of the loops that states are vectors over.
        condition: The condition, which hangs on data.
    """
    if not _is_writable(step) or step.condition is not None:
        return None
    updates = {state.name: state.update for state in step.states}
    return _Writing(program, place, step, updates, ranges, condition).program_afterwards()


def _lowest(updates: Mapping[str, Value], terms: Terms) -> dict[str, Value]:
    """Return updates in lowest terms; what is divided by another state is, in its new value."""
    forms = {name: terms.normal(update) for name, update in updates.items()}
    for form in forms.values():
        for side in sympy.fraction(form):
            for term in sympy.Add.make_args(sympy.expand(side)):
                if term.could_extract_minus_sign():
                    raise Undefined("terms multiplied out may cancel")
    found = {name: factored(form, terms) for name, form in forms.items()}
    for name, form in forms.items():
        if not _is_divided(form):
            continue
        for other, divisor in forms.items():
            product = terms.reduced(form * divisor)
            if other != name and not _is_divided(product):
                found[name] = divide(factored(product, terms), found[other])
                break
    return found


def _is_divided(form: Expr) -> bool:
    """Tell whether a normal form divides by a sum."""
    return any(factor.is_Add for factor in sympy.Mul.make_args(sympy.fraction(form)[1]))


def _exponents(updates: Mapping[str, Value], terms: Terms) -> set[Expr]:
    """Return the normal forms of what exponentials are taken of."""
    return {
        terms.normal(argument)
        for update in updates.values()
        for part in walk_value(update)
        if isinstance(part, Call) and part.function in ("exp", "exp2")
        for argument in part.arguments
    }


def _size(*values: Value) -> int:
    return sum(1 for value in values for _ in walk_value(value))


def _is_writable(step: Recurrence) -> bool:
    """Tell whether there is no choice to be lost, and every input is what an expression says.

    What is chosen only as long as a maximum is -inf is no choice among numbers; the state is left
    as it is then.
    """
    given = [item.value for item in (*step.inputs, *step.parameters)]
    made = any(isinstance(p, Read) and "@" in p.access.array for v in given for p in walk_value(v))
    choices = any(_is_choice(p) for s in step.states for p in walk_value(s.update))
    rows = any(":" in state.over for state in step.states)
    vectors = {state.name for state in step.states if state.over}
    read = {n for s in step.states for n in names_of(s.update) if n != s.name}
    return not (made or choices or rows or vectors & read)


def _is_choice(value: Value) -> bool:
    """Tell whether a value is a choice, but by what is more than an infinity."""
    match value:
        case Select(Data(Compare(_, left, right)), _, _):
            return not any(isinstance(side, Const) and isinf(side.value) for side in (left, right))
        case Select():
            return True
        case _:
            return False


@dataclass(slots=True)
class _Writing:
    program: Program
    place: Position
    step: Recurrence
    updates: Mapping[str, Value]
    ranges: Mapping[str, Range]
    condition: Condition | None = None
    top: str = ""

    def program_afterwards(self) -> Program:
        loop = node_at(self.program, self.place)
        assert isinstance(loop, Loop)
        taken: list[str] = []
        body: list[Node] = []
        names: dict[str, Value] = {s.name: Read(s.access) for s in self.step.states}
        for given in (*self.step.inputs, *self.step.parameters):
            names[given.name] = given.value
            uses = sum(names_of_all(u).count(given.name) for u in self.updates.values())
            if uses > 1 and not given.over and not isinstance(given.value, Read | Real):
                cell = self._scalar("x", taken)
                body.append(Assign("S", (cell,), (given.value,)))
                names[given.name] = Read(cell)
        ahead: dict[Value, Value] = {}
        last: list[Node] = []
        plain = sorted(
            (s for s in self.step.states if not s.over), key=lambda s: _size(self.updates[s.name])
        )
        for state in plain:
            if any(state.name in names_of(u) for n, u in self.updates.items() if n != state.name):
                update = self.updates[state.name]
                cell = self._scalar(f"{state.access.array}_new", taken)
                value = self._guarded(state, self._written(update, ahead, names), ahead)
                body.append(Assign("S", (cell,), (value,)))
                ahead[update] = Read(cell)
                last.append(self._set(state, Read(cell)))
        kept = [state for state in self.step.states if self.updates[state.name] not in ahead]
        for state in kept:
            value = self._written(self.updates[state.name], ahead, names)
            value = self._guarded(state, value, ahead)
            body.append(self._over(state, self._set(state, value)))
        made: tuple[Node, ...] = (*body, *last)
        if self.step.condition is not None:
            made = (If(self.step.condition, made, ()),)
        new = replace(loop, body=made)
        text = listing(replace_at(self.program, self.place, (new,)))
        try:
            return parse(Source(f"<{self.program.name}>", text))
        except ListingError as error:
            raise NoRecurrence(f"the loop in lowest terms is no listing: {error}") from None

    def _guarded(self, state: StateVariable, value: Value, ahead: Mapping[Value, Value]) -> Value:
        """Let a state be as it is while the greatest element so far is -inf."""
        if not self.top or state.name == self.top:
            return value
        new = ahead.get(self.updates[self.top])
        if new is None:
            raise NoRecurrence("a state is set before the greatest element is known")
        return Select(Data(Compare(">", new, MINUS_INFINITY)), value, Read(state.access))

    def _set(self, state: StateVariable, value: Value) -> Assign:
        if self.condition is not None:
            value = Select(self.condition, value, Read(state.access))
        return Assign("S", (state.access,), (value,))

    def _scalar(self, wish: str, taken: list[str]) -> Access:
        name = fresh_name(self.program, wish.replace(".", "_"), taken)
        taken.append(name)
        return Access(name, ())

    def _written(
        self, update: Value, ahead: Mapping[Value, Value], names: Mapping[str, Value]
    ) -> Value:
        return put(replaced(update, ahead.get), names)

    def _over(self, state: StateVariable, statement: Node) -> Node:
        for variable in reversed(state.over):
            statement = Loop(variable, self.ranges[variable], (statement,))
        return statement


def names_of_all(value: Value) -> list[str]:
    """Return the names a value mentions, as often as it does."""
    return [part.name for part in walk_value(value) if isinstance(part, Real)]
