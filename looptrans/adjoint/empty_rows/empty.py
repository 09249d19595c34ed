"""What a listing says of rows without an element, in one form.

    if m[i] == -inf: O[i, d] = 0                        O[i, d] = X[i, d] / l[i]
    else: O[i, d] = X[i, d] / l[i]             ->
    L[i] = m[i] + log(l[i] if l[i] > 0 else 1)          L[i] = m[i] + log(l[i])

A sum of exponentials is never negative, and where it is 0 it has no terms. Where it was taken
relative to its maximum, that is -inf there, and elsewhere the sum is 1 at least: so all these
guards ask one thing. What is divided by the sum and has its terms as factors is nothing where it
has none, and nothing is differentiated there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from looptrans.adjoint.empty_rows.idle import Held, Idle, Unguarded, reads_data
from looptrans.adjoint.empty_rows.nothing import Nothing, is_weighed
from looptrans.adjoint.equations.definitions import System
from looptrans.adjoint.exponentials.tops import Total, counts, is_lowest
from looptrans.algebra.positional.cells import value_moved
from looptrans.algebra.positional.values import MINUS_INFINITY, ZERO, is_number
from looptrans.ir.condition import (
    MIRRORED,
    Condition,
    Data,
    Every,
    Not,
    Some,
    conjunction,
    negation,
)
from looptrans.ir.monoids import OF_NOTHING
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Compare,
    Const,
    Read,
    Reduce,
    Select,
    Value,
    condition_of,
    walk_value,
)

_MOST_GUARDS = 3
_LEAST = 1.0  # what a sum relative to its maximum is at least


def guards_in_one_form(
    system: System, totals: dict[str, Total], outputs: frozenset[str]
) -> tuple[tuple[Unguarded, ...], tuple[Held, ...]]:
    """Let all guards against rows without an element ask one thing, and leave out idle ones.

    Args:
        system: The definitions, which are changed.
        totals: The sums of exponentials.
        outputs: The definitions of the outputs: what they hold is handed over.

    Returns:
        Which guards were left out, and the quotients that outputs hold some of.
    """
    nothing = Nothing(system, totals)
    form, idle = _Form(nothing, outputs), Idle(nothing, outputs)
    found: list[Unguarded] = []
    held: list[Held] = []
    for name in list(system.definitions):
        if name not in system.definitions:
            continue  # nothing reads it any more
        definition = system.definitions[name]
        value = form.asked(definition.value)
        if not definition.has_reduction:
            value = form.chosen(form.plain(value))
        if value != definition.value:
            definition = system.add(replace(definition, value=value))
        if name in outputs and isinstance(value, Select):
            unguarded = tuple(idle.without_guard(definition, value))
            found += unguarded
            held += () if unguarded else idle.apart(definition, value)
    return tuple(found), tuple(held)


@dataclass(frozen=True, slots=True)
class _Form:
    nothing: Nothing
    outputs: frozenset[str]

    # Guards that ask one thing

    def asked(self, value: Value) -> Value:
        """Return a value whose guards against empty sums are `sum > 0` or its opposite."""

        def change(part: Value) -> Value | None:
            match part:
                case Select(condition, chosen, otherwise):
                    guard = self._guard(condition)
                    return Select(guard, self.asked(chosen), self.asked(otherwise))
                case Call("where", (condition, chosen, otherwise)):
                    return self.asked(Select(condition_of(condition), chosen, otherwise))
                case Reduce(function, bound, body):
                    bound = tuple(replace(g, condition=self._guard(g.condition)) for g in bound)
                    return Reduce(function, bound, self.asked(body))
                case Call("max", (Read(access), Const() as least)) | Call(
                    "max", (Const() as least, Read(access))
                ):
                    total = self.nothing.totals.get(access.array)
                    if total and total.top and 0.0 < float(least.value) <= _LEAST:
                        return Select(total.guard(access.indices), Read(access), least)
            return None

        return replaced(value, change)

    def _guard(self, condition: Condition) -> Condition:
        match condition:
            case Not(part):
                return negation(self._guard(part))
            case Every(parts):
                return conjunction(*map(self._guard, parts))
            case Some(parts):
                return Some(tuple(map(self._guard, parts)))
            case Data(Compare(op, left, Read() as right)):
                return self._compared(MIRRORED[op], right, left) or condition
            case Data(Compare(op, Read() as left, right)):
                return self._compared(op, left, right) or condition
        return condition

    def _compared(self, op: str, left: Read, right: Value) -> Condition | None:
        """Return what a comparison asks of a sum of exponentials, or of its maximum."""
        name, subscripts = left.access.array, left.access.indices
        if is_lowest(right):
            tops = [each for each in self.nothing.totals.values() if each.top == name]
            if not tops or op not in (">", "!=", "<=", "=="):
                return None
            guard = tops[0].guard(tops[0].at_top(subscripts))
            return guard if op in (">", "!=") else Not(guard)
        found = self._asking(left.access)
        if found is None or not isinstance(right, Const):
            return None
        guard, is_one = found
        least = float(right.value)
        if op in (">", "<="):
            asks = least == 0.0 or (is_one and 0.0 < least < _LEAST)
        elif op in (">=", "<"):
            asks = is_one and 0.0 < least <= _LEAST
        else:
            asks = least == 0.0
        if not asks:
            return None
        return guard if op in (">", ">=", "!=") else Not(guard)

    def _asking(self, access: Access) -> tuple[Condition, bool] | None:
        """Return what it asks that a cell is positive, and whether it is 1 at least then."""
        total = self.nothing.totals.get(access.array)
        if total is not None:
            return total.guard(access.indices), total.top is not None
        if access.array not in self.nothing.system.definitions:
            return None
        for each in self.nothing.totals.values():
            # Without a maximum a sum may be 0 though it has terms.
            if each.top is not None and counts(self.nothing.system, access, each):
                return each.guard(access.indices), True
        return None

    # Choices by one guard made one

    def plain(self, value: Value) -> Value:
        """Return a value that reads no numbers, and no copies of other cells."""

        def change(part: Value) -> Value | None:
            if not isinstance(part, Read) or part.access.array in self.outputs:
                return None
            definition = self.nothing.system.definitions.get(part.access.array)
            if definition is None or not isinstance(definition.value, Const | Read):
                return None
            here = dict(zip(definition.variables, part.access.indices, strict=True))
            return value_moved(definition.value, here)

        return _folded(replaced(value, change))

    def chosen(self, value: Value) -> Value:
        """Return a value with choices by one guard that stand in each other made one."""
        guards = self._guards(value)
        if len(guards) > _MOST_GUARDS:
            return value
        for guard, times in guards.items():
            if times == 1 and not isinstance(value, Select) and not self.nothing.asked_of(guard):
                continue  # a term that is chosen: `S + (0 if ok else -inf)` is a mask
            one, other = self._under(value, guard), self._under(value, negation(guard))
            same = Select(guard, one, other), Select(negation(guard), other, one)
            if one == other or value not in same:
                value = one if one == other else same[0]
        return value

    def _guards(self, value: Value) -> Counter[Condition]:
        """Return the conditions by which a value is chosen, and how many times.

        Those of what it reads are among them where they ask whether a sum has terms.
        """
        found: Counter[Condition] = Counter()
        for part in walk_value(value):
            choice = self._choice(part.access) if isinstance(part, Read) else part
            if isinstance(choice, Select):
                guard = _bare(choice.condition)
                if choice is part or self.nothing.asked_of(guard):
                    found[guard] += 1
        return found

    def _choice(self, access: Access) -> Select | None:
        """Return what is read, where it is a choice and not handed over."""
        definition = self.nothing.system.definitions.get(access.array)
        if definition is None or not isinstance(definition.value, Select):
            return None
        if definition.has_reduction or definition.name in self.outputs:
            return None
        here = dict(zip(definition.variables, access.indices, strict=True))
        value = value_moved(definition.value, here)
        assert isinstance(value, Select)
        return value

    def _under(self, value: Value, given: Condition) -> Value:
        """Return what a value is where a condition holds."""
        both = given, negation(given)

        def change(part: Value) -> Value | None:
            match part:
                case Select(condition, chosen, otherwise) if condition in both:
                    return self._under(chosen if condition == given else otherwise, given)
                case Read(access):
                    choice = self._choice(access)
                    if choice is not None and choice.condition in both:
                        return self._under(choice, given)
                    return self._of_nothing(access, given)
                case Reduce():
                    return part
            return None

        return _folded(replaced(value, change))

    def _of_nothing(self, access: Access, given: Condition) -> Value | None:
        """Return what is read, where a condition holds under which nothing is gathered."""
        definition = self.nothing.system.definitions.get(access.array)
        if definition is None or not isinstance(definition.value, Reduce):
            return None
        if self.nothing.has_no_terms(access, given):
            return Const(OF_NOTHING[definition.value.function])
        guard = negation(given)
        for total in self.nothing.totals.values():
            if total.top == access.array and total.guard(total.at_top(access.indices)) == guard:
                return MINUS_INFINITY
        divisor = self.nothing.asked_of(guard)
        return (
            ZERO
            if divisor is not None and is_weighed(self.nothing.system, access, divisor)
            else None
        )


def _bare(condition: Condition) -> Condition:
    return condition.part if isinstance(condition, Not) else condition


def _folded(value: Value) -> Value:
    """Do sums and products with 0 and with minus infinity."""
    match value:
        case Select(condition, chosen, otherwise):
            return Select(condition, _folded(chosen), _folded(otherwise))
        case Binary(op, first, second):
            left, right = _folded(first), _folded(second)
        case _:
            return value
    zeros = is_number(left, 0.0), is_number(right, 0.0)
    if (op == "*" and any(zeros)) or (op == "/" and zeros[0]):
        return ZERO
    if op == "+" and any(zeros):
        return right if zeros[0] else left
    if op == "+" and any(map(is_lowest, (left, right))) and not any(map(reads_data, (left, right))):
        return MINUS_INFINITY
    return Binary(op, left, right)
