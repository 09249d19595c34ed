"""Where the parts of an update stand: inside its loops, or before its sums.

for e: for i: s = sum(… if j <= i)             for i: s = sum(…) if j <= i else 0
              k = K[i, e] + b[e]         ->           for e: A[e] = A[e] + s * (K[i, e] + b[e])
              A[e] = A[e] + s * k
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.algebra.positional.values import negative
from looptrans.ir.condition import ALWAYS, Condition, conjunction, conjuncts
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Access,
    Const,
    Holds,
    Read,
    Reduce,
    Select,
    Unary,
    Value,
    condition_variables,
    free_variables,
    has_reduction,
    walk_value,
)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value worked out inside a nest: which cell of which definition."""

    name: str
    cell: Access
    value: Value


def put_in(
    scalars: dict[Access, Scalar], body: Value, conditions: tuple[Condition, ...]
) -> tuple[dict[Access, Scalar], Value]:
    """Write into an update what would keep it inside loops that no sum depends on.

    for e: for i: s = sum(…)                      for i: s = sum(…)
                  k = K[i, e] + b[e]        ->           for e: A[e] = A[e] + s * (K[i, e] + b[e])
                  A[e] = A[e] + s * k
    """
    values = [s.value for s in scalars.values() if has_reduction(s.value)]
    values += [Holds(condition) for condition in conditions]
    values += [Read(access) for access, s in scalars.items() if has_reduction(s.value)]
    needed: set[str] = set()
    stay: set[Access] = set()
    while values:
        value = values.pop()
        needed |= set(free_variables(value))
        for part in walk_value(value):
            if isinstance(part, Read) and part.access in scalars and part.access not in stay:
                stay.add(part.access)
                values += [part, scalars[part.access].value]

    def change(part: Value) -> Value | None:
        match part:
            case Unary("-", Read() as operand):
                value = change(operand)
                return None if value is None else negative(value)
            case Read(access) if access in scalars and access not in stay:
                value = scalars[access].value
                if {*free_variables(part), *free_variables(value)} <= needed:
                    return None
                return replaced(value, change)
            case _:
                return None

    left = {
        access: replace(scalar, value=replaced(scalar.value, change))
        for access, scalar in scalars.items()
        if change(Read(access)) is None
    }
    return left, replaced(body, change)


def outside_sums(value: Value, known: tuple[Condition, ...]) -> Value:
    """Ask before a sum what is the same for all its terms, and not what is known.

    sum(q[e] * k[e] for e if j <= i)    ->    sum(q[e] * k[e] for e) if j <= i else 0
    """

    def change(part: Value) -> Value | None:
        if not isinstance(part, Reduce):
            return None
        bound = {g.variable for g in part.generators}
        before: list[Condition] = []
        left = []
        for g in part.generators:
            parts = [c for c in conjuncts(g.condition) if c != ALWAYS and c not in known]
            alike = [c for c in parts if not condition_variables(c) & bound]
            if part.function == "sum":
                before += alike
                parts = [c for c in parts if c not in alike]
            left.append(replace(g, condition=conjunction(*parts)))
        found: Value = Reduce(part.function, tuple(left), outside_sums(part.body, known))
        return Select(conjunction(*before), found, Const(0.0)) if before else found

    return replaced(value, change)
