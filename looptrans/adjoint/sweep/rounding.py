"""Whether a value is rounded in the same way wherever it is worked out.

    x[i, j] * t                one product, and the same one everywhere
    x[i, j] * 0.7 * t          a loop may multiply by 0.7 * t
    x[i, j] / 1.5              a loop may multiply by 1 / 1.5
    x[i, j] / 8.0              exact in either way

Sums over loops are done in another order in each kernel.
"""

from __future__ import annotations

from math import frexp, isfinite

from looptrans.adjoint.equations.definitions import System
from looptrans.algebra.positional.cells import value_moved
from looptrans.ir.value import Binary, Const, Read, Unary, Value, free_variables, walk_value

_PAIR = 2
"""How many factors have one product."""


def is_rounded_alike(value: Value, system: System) -> bool:
    """Tell whether a value surely is the same number wherever it is worked out again."""
    for part in walk_value(value):
        match part:
            case Read(access) if access.array in system.definitions:
                inner = system.definitions[access.array]
                if inner.has_reduction or not is_rounded_alike(inner.value, system):
                    return False
            case Binary("*" | "/") if _may_be_reordered(part, system):
                return False
            case _:
                pass
    return True


def _may_be_reordered(value: Value, system: System) -> bool:
    """Tell whether numbers that elements are multiplied by may meet, or one be inverted."""
    own = set(free_variables(value))
    above, below = (
        [each for each in side if not _is_exact(each)] for side in _factors(value, system)
    )
    if any(set(free_variables(each)) < own for each in below):
        return True
    if len(above) + len(below) <= _PAIR:
        return False
    numbers = [each for each in above if set(free_variables(each)) < own]
    # Literals are one number: they are multiplied before anything is emitted.
    literals = [each for each in numbers if isinstance(each, Const)]
    return bool(below) or len(numbers) - len(literals[1:]) >= _PAIR


def _factors(value: Value, system: System) -> tuple[list[Value], list[Value]]:
    """Return what is multiplied and what is divided by, also where an element is a product."""
    match value:
        case Binary("*", left, right):
            (a, b), (c, d) = _factors(left, system), _factors(right, system)
            return [*a, *c], [*b, *d]
        case Binary("/", left, right):
            (a, b), (c, d) = _factors(left, system), _factors(right, system)
            return [*a, *d], [*b, *c]
        case Unary("-", operand):
            return _factors(operand, system)
        case Read(access) if access.array in system.definitions:
            inner = system.definitions[access.array]
            here = dict(zip(inner.variables, access.indices, strict=True))
            above, below = _factors(inner.value, system)
            if len(above) + len(below) > 1:
                return [value_moved(f, here) for f in above], [value_moved(f, here) for f in below]
            return [value], []
        case _:
            return [value], []


def _is_exact(value: Value) -> bool:
    """Tell whether a value is a power of two: a product with it is not rounded."""
    if not isinstance(value, Const) or isinstance(value.value, bool) or not isfinite(value.value):
        return False
    return abs(frexp(value.value)[0]) == 1 / 2
