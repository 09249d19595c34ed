"""Exponentials from which the logarithm of a sum of exponentials is taken off, as quotients.

lse[i] = m[i] + log(l[i])
P[i, j] = exp(S[i, j] - lse[i])        ->        P[i, j] = exp(S[i, j] - m[i]) / l[i]

So the weights of a listing that keeps one number of each row are those of one that divides, and one
thing where both are asked for: the gradient of lse is P, too.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.adjoint.equations.definitions import Definition, System
from looptrans.adjoint.exponentials.tops import totals_of
from looptrans.adjoint.exponentials.totals import EXPONENTIALS, parts_of_total
from looptrans.algebra.positional.values import add, summands
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Binary, Call, Read, Unary, Value

_Signed = tuple[int, Value]


def with_logarithms_opened(system: System) -> None:
    """Divide by sums of exponentials instead of taking their logarithms off an exponent.

    Args:
        system: The definitions, which are changed.
    """
    totals = set(totals_of(system))
    totals |= {d.name for d in system.definitions.values() if parts_of_total(system, d)}

    def is_logarithm(part: Value, function: str) -> bool:
        match part:
            case Call(name, (Read(access),)):
                return name == EXPONENTIALS[function] and access.array in totals
            case _:
                return False

    def opened(sign: int, part: Value, function: str) -> list[_Signed]:
        known = system.definitions.get(part.access.array) if isinstance(part, Read) else None
        if sign == -1 and isinstance(part, Read) and _is_sum(known):
            inner = summands(system.instance(part.access.array, part.access.indices), sign)
            if any(s == -1 and is_logarithm(each, function) for s, each in inner):
                return inner
        return [(sign, part)]

    def change(value: Value) -> Value | None:
        match value:
            case Call("exp" | "exp2" as function, (exponent,)):
                pass
            case _:
                return None
        terms = [
            each for sign, part in summands(exponent, 1) for each in opened(sign, part, function)
        ]
        below = [each for each in terms if each[0] == -1 and is_logarithm(each[1], function)]
        left = [sign_part for sign_part in terms if sign_part not in below]
        if not below or not left:
            return None
        quotient: Value = Call(function, (_added(left),))
        for _, logarithm in below:
            assert isinstance(logarithm, Call)
            quotient = Binary("/", quotient, logarithm.arguments[0])
        return quotient

    for definition in list(system.definitions.values()) if totals else ():
        value = replaced(definition.value, change)
        if value != definition.value:
            system.add(replace(definition, value=value))


def _is_sum(definition: Definition | None) -> bool:
    """Tell whether a definition is worked out from others, as a sum."""
    return definition is not None and isinstance(definition.value, Binary | Call)


def _added(terms: list[_Signed]) -> Value:
    return add(*(part if sign > 0 else Unary("-", part) for sign, part in terms))
