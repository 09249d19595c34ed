"""The derivatives that reverse mode uses, each compared with the one that sympy finds."""

from __future__ import annotations

from collections.abc import Iterable

from looptrans.adjoint.sweep.pulling import Pull
from looptrans.algebra.derivatives import SMOOTH, is_derivative
from looptrans.algebra.positional.values import ZERO
from looptrans.ir.condition import Data
from looptrans.ir.listing import value_text
from looptrans.ir.value import Binary, Call, Compare, Const, Real, Reduce, Select, Value, walk_value

# The slopes of a power, where its base is positive: where the other is 0 they are 0.
_NOT_AT_0 = {Data(Compare("!=", Real(name), ZERO)) for name in ("a", "b")}


def used_derivatives(
    values: Iterable[Value],
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Compare the derivatives of what values are made of with those that sympy finds.

    Returns:
        The operators and functions whose derivatives agree, those that choose between values and
        have none where two are equal, and those whose derivatives do not agree.
    """
    smooth: dict[str, None] = {}
    chosen: dict[str, None] = {}
    wrong: dict[str, None] = {}
    for value in values:
        for part in walk_value(value):
            match part:
                case Binary("**", _, Const() as exponent):
                    shape: Value = Binary("**", Real("a"), exponent)
                    name = value_text(shape)
                case Binary("+" | "-" | "*" | "/" | "**" as op, _, _):
                    shape, name = Binary(op, Real("a"), Real("b")), op
                case Call(function, (_,)) if function in SMOOTH:
                    shape, name = Call(function, (Real("a"),)), function
                case Call("max" | "min" | "abs" | "where" as function, _):
                    chosen[function] = None
                    continue
                case Reduce("max" | "min" as function, _, _):
                    chosen[function] = None
                    continue
                case Select():
                    chosen["if"] = None
                    continue
                case _:
                    continue
            (smooth if _agrees(shape) else wrong)[name] = None
    return tuple(smooth), tuple(chosen), tuple(wrong)


def _agrees(shape: Value) -> bool:
    """Tell whether the derivatives of a function of a and b are those that sympy finds."""
    found: dict[str, Value] = {}
    pull = Pull((shape, shape), frozenset(("a", "b")))
    for each in pull.through(shape, Real("g")):
        name = each.access.array
        if each.generators or not set(each.conditions) <= _NOT_AT_0:
            return False
        found[name] = Binary("+", found[name], each.value) if name in found else each.value
    names = [p.name for p in walk_value(shape) if isinstance(p, Real)]
    return all(is_derivative(shape, n, "g", found.get(n, ZERO)) for n in names)
