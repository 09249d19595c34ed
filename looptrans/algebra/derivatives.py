"""Whether a derivative is one, told by sympy's own differentiation.

claimed  g * exp(a)      for exp(a), where g is what the value is multiplied by
found    g * d/da exp(a)

Both are taken for a, b > 0, where every function of the language is smooth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import sympy

from looptrans.ir.value import Binary, Call, Const, Real, Unary, Value

_FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "exp": sympy.exp,
    "exp2": lambda x: 2**x,
    "log": sympy.log,
    "log2": lambda x: sympy.log(x) / sympy.log(2),
    "sqrt": sympy.sqrt,
    "tanh": sympy.tanh,
    "sin": sympy.sin,
    "cos": sympy.cos,
}
# An exponent is given as a float, and one less of it as another: 1/3 and -2/3 are meant.
MOST_BELOW: Final = 1000
NEXT_TO: Final = Fraction(1, 10**12)
SMOOTH: Final = tuple(_FUNCTIONS)


@lru_cache(maxsize=256)
def is_derivative(value: Value, name: str, factor: str, claimed: Value) -> bool:
    """Tell whether a value is the derivative of another one, times a factor.

    Args:
        value: Numbers and names under + - * / ** and the functions of `SMOOTH`.
        name: What it is differentiated by.
        factor: The name of the factor.
        claimed: What is said to be the derivative times the factor.

    Returns:
        Whether sympy shows the two to be equal; False also where it cannot tell.
    """
    found, said = _written(value), _written(claimed)
    if found is None or said is None:
        return False
    gap = _symbol(factor) * sympy.diff(found, _symbol(name)) - said
    return bool(gap == 0 or sympy.expand(gap) == 0)


def _symbol(name: str) -> Any:
    return sympy.Symbol(name, positive=True)


def _number(number: float) -> Any:
    """Return a number as a fraction; one that is next to a small one as that."""
    near = Fraction(number).limit_denominator(MOST_BELOW)
    return sympy.Rational(near if abs(near - Fraction(number)) < NEXT_TO else Fraction(number))


def _written(value: Value) -> Any:
    """Return a value as sympy writes it; None where it has a part that is not smooth."""
    match value:
        case Real(name):
            return _symbol(name)
        case Const(float() | int() as number) if number == math.log(2.0):
            return sympy.log(2)
        case Const(float() | int() as number) if math.isfinite(number):
            return _number(number)
        case Unary("-", operand):
            inner = _written(operand)
            return None if inner is None else -inner
        case Call(function, (argument,)) if function in _FUNCTIONS:
            inner = _written(argument)
            return None if inner is None else _FUNCTIONS[function](inner)
        case Binary(op, left, right) if op in ("+", "-", "*", "/", "**"):
            a, b = _written(left), _written(right)
            if a is None or b is None:
                return None
            return {
                "+": lambda: a + b,
                "-": lambda: a - b,
                "*": lambda: a * b,
                "/": lambda: a / b,
                "**": lambda: a**b,
            }[op]()
        case _:
            return None
