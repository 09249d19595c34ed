"""Powers that are added below the larger of two exponents, added as they are.

    max(x, y) + log(1 + exp(-abs(x - y)))    ->    log(exp(x) + exp(y))

The first is how one writes the second so that no power is too large; over the reals, and where one
of the exponents is -inf, the two are equal. What else is said in this folder is said of the second.
"""

from __future__ import annotations

from itertools import permutations

from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Binary, Call, Const, Unary, Value


def with_powers_added(value: Value) -> Value:
    """Write logarithms of two powers that are added as such.

    Args:
        value: The value.
    """

    def change(part: Value) -> Value | None:
        if not isinstance(part, Binary) or part.op != "+":
            return None
        for larger, rest in permutations((part.left, part.right)):
            match larger, rest:
                case Call("max", (x, y)), Call("log", (Binary("+", one, other),)):
                    inner = {one, other}
                    if Const(1.0) in inner or Const(1) in inner:
                        powers = [Call("exp", (low,)) for low in _below(x, y)]
                        if inner & set(powers):
                            x, y = (replaced(each, change) for each in (x, y))
                            added = Binary("+", Call("exp", (x,)), Call("exp", (y,)))
                            return Call("log", (added,))
                case _:
                    pass
        return None

    return replaced(value, change)


def _below(x: Value, y: Value) -> list[Value]:
    """Return the ways to write how far the smaller of two numbers is below the larger."""
    pairs = list(permutations((x, y)))
    return [
        *(Unary("-", Call("abs", (Binary("-", a, b),))) for a, b in pairs),
        *(Binary("-", Call("min", a), Call("max", b)) for a in pairs for b in pairs),
    ]
