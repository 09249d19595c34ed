"""Guards against rows without an element, left out where they say nothing.

    l[i] = sum(exp(S[i, j] - m[i]) if m[i] > -inf …)    l[i] = sum(exp(S[i, j] - m[i]) …)
    O[i, d] = X[i, d] / l[i] if l[i] > 0 else 0         O[i, d] = X[i, d] / l[i]
    L[i] = m[i] + log(l[i]) if l[i] > 0 else -inf  ->   L[i] = m[i] + log(l[i])

Where the sum has no terms nothing is differentiated; the outputs themselves are handed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from looptrans.adjoint.empty_rows.guards import divided, drop_unread
from looptrans.adjoint.empty_rows.nothing import Nothing, is_weighed
from looptrans.adjoint.equations.definitions import (
    Definition,
    System,
    plain_name,
    refreshed_generators,
)
from looptrans.adjoint.equations.sums import expanded, held_together
from looptrans.adjoint.exponentials.tops import is_lowest, top_of, where_chosen
from looptrans.adjoint.exponentials.totals import EXPONENTIALS
from looptrans.algebra.positional.cells import condition_moved, value_moved
from looptrans.algebra.positional.values import ZERO, is_number
from looptrans.ir.condition import Condition, Data, Not, conjunction, negation
from looptrans.ir.index import Var
from looptrans.ir.listing import value_text
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Compare,
    IndexValue,
    Read,
    Real,
    Reduce,
    Select,
    Value,
    walk_value,
)

QUOTIENT = (
    "where the divisor, a sum of exponentials, is 0, each of them is, and each is a factor of "
    "a term of what is divided: no term is left"
)
_OF_NOTHING = "where the maximum is -inf, every exponent is of nothing, and the sum has no terms"
_LOGARITHM = "where the sum of exponentials is 0, its maximum is of nothing, and is -inf"


@dataclass(frozen=True, slots=True)
class Unguarded:
    """A guard that was left out.

    Attributes:
        formula: What holds wherever anything is differentiated.
        reason: Why.
    """

    formula: str
    reason: str


@dataclass(frozen=True, slots=True)
class Held:
    """A quotient that an output is where a guard holds; it is 0 elsewhere, and the output not.

    Attributes:
        name: Its definition, which is nowhere stored itself.
        guard: The guard. Where it fails no term of the quotient is there to receive anything.
        value: The same, read from the output.
        why: What it is, and why it is 0 elsewhere.
    """

    name: str
    guard: Condition
    value: Value
    why: Unguarded


@dataclass(frozen=True, slots=True)
class Idle:
    """Leaves out guards.

    Attributes:
        nothing: Knows where sums have no terms.
        outputs: The definitions of the outputs: what they hold is handed over.
    """

    nothing: Nothing
    outputs: frozenset[str]

    @property
    def system(self) -> System:
        """The definitions."""
        return self.nothing.system

    def without_guard(self, definition: Definition, value: Select) -> Iterator[Unguarded]:
        """Let what is 0, or -inf, where a sum has no terms be what it is elsewhere."""
        for guard, one, other in _both_ways(value):
            whole = self._written_out(one)
            divisor = self.nothing.divisor(guard, whole)
            if divisor is None:
                continue
            if is_number(other, 0.0) and self._is_quotient(whole, divisor):
                reason = QUOTIENT
            elif is_lowest(other) and self._is_logarithm(whole, divisor):
                reason = _LOGARITHM
            else:
                continue
            done = self.system.add(replace(definition, value=whole))
            drop_unread(self.system, self.outputs, definition)
            yield _shown(done, reason)
            return

    def apart(self, definition: Definition, value: Select) -> Iterator[Held]:
        """Give a quotient a definition of its own, where an output is something else elsewhere.

        O[i, d] = X[i, d] / l[i] if l[i] > 0 else V[0, d]

            O_in[i, d] = X[i, d] / l[i]        O[i, d] = O_in[i, d] if l[i] > 0 else V[0, d]
        """
        for guard, one, other in _both_ways(value):
            whole = self._written_out(one)
            divisor = self.nothing.divisor(guard, whole)
            if divisor is None or not self._is_quotient(whole, divisor):
                continue
            name = self.system.names.array(f"{definition.name}_in")
            own, new = refreshed_generators(definition.indices, self.system.names)
            inner = Definition(name, own, value_moved(whole, new), label=definition.label)
            before = dict(self.system.definitions)
            self.system.definitions.clear()
            for known, each in before.items():
                if known == definition.name:
                    self.system.add(inner)
                self.system.add(each)
            cell = Read(Access(name, definition.cell.access.subscripts))
            self.system.add(replace(definition, value=Select(guard, cell, other)))
            held = Select(guard, definition.cell, ZERO)
            shown = _shown(inner)
            yield Held(name, condition_moved(guard, new), value_moved(held, new), shown)
            return

    def _written_out(self, value: Value) -> Value:
        """Return a value with what a definition that is only read says, and reciprocals put in."""
        match value:
            case Read(access) if access.array not in self.outputs:
                definition = self.system.definitions.get(access.array)
                if definition is not None and not definition.has_reduction:
                    here = dict(zip(definition.variables, access.indices, strict=True))
                    value = value_moved(definition.value, here)
        return divided(self.system, value)

    def _is_quotient(self, value: Value, divisor: Access) -> bool:
        """Tell whether each term is divided by a sum, and has terms of it as factors."""
        terms = expanded(value, self.system.names)
        for term in terms:
            factors = dict(term.factors)
            if factors.pop(Read(divisor), 0) != -1:
                return False
            weighed = [
                atom
                for atom, power in factors.items()
                if isinstance(atom, Read)
                and power == 1
                and is_weighed(self.nothing.system, atom.access, divisor)
            ]
            # Another factor would receive the quotient, which is not worked out where l is 0.
            if len(weighed) != 1 or any(reads_data(a) for a in factors if a != weighed[0]):
                return False
        return bool(terms)

    def _is_logarithm(self, value: Value, divisor: Access) -> bool:
        """Tell whether a value is a maximum and the logarithm of the sum relative to it."""
        total = self.nothing.totals[divisor.array]
        logarithm = Call(EXPONENTIALS[total.function], (Read(divisor),))
        match value:
            case Binary("+", Read(top), other) | Binary("+", other, Read(top)):
                at_top = top.array == total.top and total.at_top(top.indices) == divisor.indices
                return at_top and other == logarithm
        return False


def without_tests_of_tops(system: System) -> tuple[Unguarded, ...]:
    """Leave out of sums of exponentials that the maximum they are relative to is above -inf.

    Args:
        system: The definitions, which are changed.
    """
    found: list[Unguarded] = []
    for definition in list(system.definitions.values()):
        value = where_chosen(definition.value)
        match value:
            case Reduce(
                "sum",
                (*_, last) as bound,
                Call("exp" | "exp2", (Binary("-", _, Read() as relative_to) as exponent,)),
            ):
                parts = held_together(last.condition)
            case _:
                continue
        for part in parts:
            top = _asked_to_be_finite(part)
            if top != relative_to:
                continue
            others = conjunction(*(each for each in parts if each != part))
            inner = (*bound[:-1], replace(last, condition=others))
            if top_of(system, definition, inner, exponent)[0] is None:
                continue
            plain = replace(definition, value=Reduce("sum", inner, value.body))
            found.append(_shown(system.add(plain), _OF_NOTHING))
            break
    return tuple(found)


def _asked_to_be_finite(condition: Condition) -> Read | None:
    """Return the cell of which a condition asks that it is above minus infinity."""
    match condition:
        case Data(Compare(">" | "!=", Read() as cell, least)) if is_lowest(least):
            return cell
        case Data(Compare("<" | "!=", least, Read() as cell)) if is_lowest(least):
            return cell
        case Not(Data(Compare("==", Read() as cell, least))) if is_lowest(least):
            return cell
        case _:
            return None


def _shown(definition: Definition, reason: str = QUOTIENT) -> Unguarded:
    """Say what a definition is wherever anything is differentiated."""
    own = {v: Var(plain_name(v)) for v in definition.variables}
    cell, value = value_moved(definition.cell, own), value_moved(definition.value, own)
    return Unguarded(f"{value_text(cell)} = {value_text(value)}", reason)


def _both_ways(value: Select) -> tuple[tuple[Condition, Value, Value], ...]:
    """Return a choice as it is, and the other way round."""
    turned = negation(value.condition), value.otherwise, value.chosen
    return (value.condition, value.chosen, value.otherwise), turned


def reads_data(value: Value) -> bool:
    """Tell whether a value is no number."""
    return any(isinstance(part, Read | Real | IndexValue) for part in walk_value(value))
