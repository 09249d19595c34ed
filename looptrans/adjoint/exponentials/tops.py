"""Sums of exponentials, the maxima they are relative to, and when these are of anything.

l[i] = sum(exp(S[i, j] - m[i]) for j if ok[i, j])      m[i] = max(S[i, j] for j if ok[i, j])
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from looptrans.adjoint.equations.definitions import Definition, System, is_same_range
from looptrans.adjoint.equations.sums import held_together
from looptrans.algebra.positional.cells import condition_moved, range_moved, value_moved
from looptrans.algebra.positional.values import ZERO, is_number
from looptrans.ir.condition import ALWAYS, Condition, Data, Relation, conjunction, negation
from looptrans.ir.index import Index, Var
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Compare,
    Const,
    Generator,
    Read,
    Reduce,
    Select,
    Unary,
    Value,
    condition_variables,
    walk_value,
)


@dataclass(frozen=True, slots=True)
class Total:
    """A sum of exponentials.

    Attributes:
        name: Its definition.
        function: `exp` or `exp2`.
        top: The definition of the maximum that every exponent is relative to, if there is one.
        places: For each subscript of the maximum, which index of the sum it is.
    """

    name: str
    function: str
    top: str | None = None
    places: tuple[int, ...] = ()

    def guard(self, subscripts: tuple[Index, ...]) -> Condition:
        """Return the condition that the sum has terms."""
        return Data(Compare(">", Read(Access(self.name, subscripts)), ZERO))

    def at_top(self, subscripts: tuple[Index, ...]) -> tuple[Index, ...]:
        """Return the subscripts of the sum that goes with a cell of the maximum."""
        return tuple(subscripts[self.places.index(k)] for k in range(len(self.places)))


def with_terms_opened(system: System, outputs: frozenset[str]) -> None:
    """Let exponentials that are added up, and what their sum divides, stand for their names.

        w[i, j] = exp(S[i, j] - m[i])
        l[i] = sum(w[i, j] for j)              ->    l[i] = sum(exp(S[i, j] - m[i]) for j)
        O[i, d] = sum(w[i, j] * V[j, d] for j)       O[i, d] = sum(exp(S[i, j] - m[i]) * V[j, d] …)

    Args:
        system: The definitions, which are changed.
        outputs: The definitions of the outputs, which stay what they are.
    """
    names = set()
    for definition in system.definitions.values():
        match definition.value:
            case Reduce("sum", _, Read(access)) if access.array not in outputs:
                named = system.definitions.get(access.array)
                if named is not None and _is_exponential(named.value):
                    names.add(access.array)
            case _:
                pass
    for definition in list(system.definitions.values()) if names else ():
        system.add(replace(definition, value=where_chosen(definition.value)))
    _put_in(system, names)
    totals = totals_of(system)
    reciprocals = set()
    for definition in system.definitions.values():
        match definition.value:
            case Binary("/", Const(), Read(access)) if access.array in totals:
                reciprocals.add(definition.name)
            case _:
                pass
    _put_in(system, reciprocals - outputs)


def _put_in(system: System, names: set[str]) -> None:
    """Put the values of definitions in for their names, and forget these."""

    def change(part: Value) -> Value | None:
        if not isinstance(part, Read) or part.access.array not in names:
            return None
        return system.instance(part.access.array, part.access.indices)

    for name in list(system.definitions):
        # One may stand in the exponent of another.
        while names & set(system.definitions[name].reads()):
            definition = system.definitions[name]
            value = where_chosen(replaced(definition.value, change))
            system.add(replace(definition, value=value))
    for name in names:
        del system.definitions[name]


def _is_exponential(value: Value) -> bool:
    """Tell whether a value is an exponential, or is where it is not 0."""
    match value:
        case Call("exp" | "exp2"):
            return True
        case Select(_, chosen, otherwise):
            return is_number(otherwise, 0.0) and _is_exponential(chosen)
        case _:
            return False


def where_chosen(value: Value) -> Value:
    """Return a sum of what is 0 elsewhere as one of where it is not, and a maximum likewise."""
    match value:
        case Reduce("sum" | "max" as function, (*others, last), Select(condition, one, other)):
            identity = 0.0 if function == "sum" else -inf
            if is_number(one, identity):
                condition, one, other = negation(condition), other, one
            if is_number(other, identity):
                inside = replace(last, condition=conjunction(last.condition, condition))
                return where_chosen(Reduce(function, (*others, inside), one))
    return value


def totals_of(system: System) -> dict[str, Total]:
    """Return the sums of exponentials over an index, by name."""
    found = {}
    for definition in system.definitions.values():
        match definition.value:
            case Reduce("sum", bound, Call("exp" | "exp2" as function, (exponent,))):
                top = top_of(system, definition, bound, exponent)
                found[definition.name] = Total(definition.name, function, *top)
    return found


def top_of(
    system: System, total: Definition, bound: tuple[Generator, ...], exponent: Value
) -> tuple[str | None, tuple[int, ...]]:
    """Return the maximum of what exponents are made of, and which index each subscript is."""
    none: tuple[str | None, tuple[int, ...]] = None, ()
    match exponent:
        case Binary("-", inside, Read(access)) if access.array in system.definitions:
            pass
        case _:
            return none
    names = [s.name if isinstance(s, Var) else "" for s in access.indices]
    top = system.definitions[access.array]
    if sorted(names) != sorted(total.variables):
        return none
    match top.value:
        case Reduce("max", over, body) if len(over) == len(bound):
            pass
        case _:
            return none
    here: dict[str, Index] = dict(zip(top.variables, access.indices, strict=True))
    for mine, other in zip(bound, over, strict=True):
        if not is_same_range(range_moved(other.range, here), mine.range):
            return none
        here[other.variable] = Var(mine.variable)
        if condition_moved(other.condition, here) != mine.condition:
            return none
    if value_moved(body, here) != inside:
        return none
    return top.name, tuple(total.variables.index(name) for name in names)


def counts(system: System, cell: Access, total: Total) -> bool:
    """Tell whether a cell counts the terms of the same cell of a sum of exponentials."""
    one, other = system.definitions[cell.array], system.definitions[total.name]
    match one.value, other.value:
        case Reduce("sum", mine, one_each), Reduce("sum", bound, Call(_, (exponent,))):
            pass
        case _:
            return False
    if not is_number(one_each, 1.0) or len(mine) != len(bound):
        return False
    if len(one.variables) != len(other.variables):
        return False
    here: dict[str, Index] = dict(zip(one.variables, cell.indices, strict=True))
    there: dict[str, Index] = dict(zip(other.variables, cell.indices, strict=True))
    for g, own in zip(bound, mine, strict=True):
        if not is_same_range(range_moved(g.range, there), range_moved(own.range, here)):
            return False
        there[g.variable] = Var(g.variable)
        here[own.variable] = Var(g.variable)
    seen = [condition_moved(part, here) for g in mine for part in held_together(g.condition)]
    there_too = [part for g in bound for part in held_together(g.condition)]
    there_too += unmasked(system, exponent)
    wanted = [condition_moved(part, there) for part in there_too]
    return {c for c in seen if c != ALWAYS} == {c for c in wanted if c != ALWAYS}


def unmasked(system: System, exponent: Value) -> tuple[Condition, ...]:
    """Return the conditions without which an exponent is minus infinity."""
    match exponent:
        case Binary("-" | "+", left, _):
            return unmasked(system, left)
        case Read(access) if access.array in system.definitions:
            definition = system.definitions[access.array]
            if isinstance(definition.value, Select):
                here = dict(zip(definition.variables, access.indices, strict=True))
                return unmasked(system, value_moved(definition.value, here))
        case Select(condition, _, otherwise) if is_lowest(otherwise):
            return tuple(held_together(condition))
        case Select(condition, chosen, _) if is_lowest(chosen):
            return (negation(condition),)
    return ()


def is_lowest(value: Value) -> bool:
    """Tell whether a value is minus infinity."""
    match value:
        case Unary("-", operand):
            return is_number(operand, float("inf"))
        case _:
            return is_number(value, float("-inf"))


def is_surely_finite(system: System, exponent: Value) -> bool:
    """Tell whether an exponent is made of sums of products, so that none is minus infinity."""
    for part in walk_value(exponent):
        match part:
            case Read(access):
                inner = system.definitions.get(access.array)
                if inner is None:
                    return False
                if inner.has_reduction:
                    continue
                if not is_surely_finite(system, inner.value):
                    return False
            case Select():
                return False
            case _:
                pass
    return True


def needed(system: System, definition: Definition) -> tuple[Condition, ...]:
    """Return the conditions on its indices without which a maximum is one of nothing.

    Nothing is also what is minus infinity, whatever it is made of elsewhere.
    """
    if not isinstance(definition.value, Reduce):
        return ()
    own = set(definition.variables)
    conditions = [part for g in definition.value.generators for part in held_together(g.condition)]
    if isinstance(definition.value.body, Read | Select):
        conditions += unmasked(system, definition.value.body)
    return tuple(c for c in conditions if c != ALWAYS and condition_variables(c) <= own)


def implied(definition: Definition, totals: Iterable[Total]) -> tuple[Condition, ...]:
    """Return what holds of ranges and of sums of exponentials where a maximum is of anything."""
    if not isinstance(definition.value, Reduce):
        return ()
    cells = tuple(Var(v) for v in definition.variables)
    guards = [each.guard(each.at_top(cells)) for each in totals if each.top == definition.name]
    return (*guards, *runs(definition.value.generators))


def runs(bound: tuple[Generator, ...]) -> list[Condition]:
    """Return that each range is one of anything, as far as that hangs on no other variable."""
    names = {g.variable for g in bound}
    return [
        Relation("<", g.range.start, g.range.stop)
        for g in bound
        if g.range.step > 0 and not g.range.variables & names
    ]


def tested(system: System, totals: Iterable[Total]) -> frozenset[str]:
    """Return the sums, relative to no maximum, of which the listing asks whether they are 0.

    They may be 0 though they have terms, each of which is too small for a number.
    """
    return _compared(system) & {total.name for total in totals if total.top is None}


def asks(system: System, totals: Iterable[Total]) -> bool:
    """Tell whether a listing compares a sum of exponentials, or its maximum, with anything."""
    return not _compared(system).isdisjoint(n for t in totals for n in (t.name, t.top) if n)


def _compared(system: System) -> frozenset[str]:
    return frozenset(
        read.access.array
        for definition in system.definitions.values()
        for part in walk_value(definition.value)
        if isinstance(part, Compare)
        for side in (part.left, part.right)
        for read in walk_value(side)
        if isinstance(read, Read)
    )
