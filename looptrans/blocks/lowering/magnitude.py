"""Between which numbers values of a kernel surely are."""

from __future__ import annotations

import math

from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Cast,
    Expr,
    Load,
    Name,
    Number,
    Position,
    Reduce,
    Scalar,
    Unary,
    Where,
    dims_of,
    kind_of,
    walk,
)
from looptrans.blocks.lowering.builder import Builder
from looptrans.ir.affine import form_of
from looptrans.ir.index import Int
from looptrans.ir.program import NARROW, Array


def is_at_most_one(b: Builder, expr: Expr) -> bool:
    """Tell whether the size of a value is surely at most 1, so that 16 bits can hold it."""
    low, high = bounds(b, expr)
    return low >= -1.0 and high <= 1.0


def is_divided(b: Builder, expr: Expr) -> bool:
    """Tell whether a value is made of a quotient by elements that may be close to 0."""
    found: set[str] = set()
    left = [expr]
    while left:
        for part in walk(left.pop()):
            if isinstance(part, Name) and part.name in b.defined and part.name not in found:
                found.add(part.name)
                left.append(b.defined[part.name])
            if isinstance(part, Binary) and part.op == "/" and dims_of(part.right):
                low, high = bounds(b, part.right)
                if low < 1.0 and high > -1.0:
                    return True
    return False


def bounds(b: Builder, expr: Expr) -> tuple[float, float]:
    """Return two numbers between which a value surely is."""
    match expr:
        case Number(value):
            return float(value), float(value)
        case Cast(operand):
            return bounds(b, operand)
        case Name(name) if name in b.ranges:
            return b.ranges[name]
        case Name(name) if name in b.read:
            return bounds(b, b.read[name])
        case Load(name, kind="int"):
            return _of_elements(b.program.array(name))
        case Position(dim) if isinstance(dim.start, Int):
            return float(dim.start.value), math.inf
        case Scalar(name) if name in b.lengths:
            return 0.0, math.inf
        case Unary("-", operand):
            low, high = bounds(b, operand)
            return -high, -low
        case Call("abs", (operand,)):
            low, high = bounds(b, operand)
            return max(low, -high, 0.0), max(-low, high)
        case Binary("//" | "%" as op, left, right) if kind_of(expr) == "int":
            return _divided(op, bounds(b, left), bounds(b, right))
        case Call("exp" | "exp2" as function, (operand,)):
            low, high = bounds(b, operand)
            power = math.exp if function == "exp" else math.exp2
            return (power(min(low, 0.0)) if low > -700 else 0.0), (
                power(high) if high <= 0 else math.inf
            )
        case Call("tanh" | "sin" | "cos", _):
            return -1.0, 1.0
        case Call("tanh_slope", _):
            return 0.0, 1.0
        case Binary("-", left, right):
            if isinstance(right, Name) and (left, right.name) in b.nonpositive:
                return -math.inf, 0.0
            (a, c), (d, e) = bounds(b, left), bounds(b, right)
            return a - e, c - d
        case Binary("+", left, right):
            (a, c), (d, e) = bounds(b, left), bounds(b, right)
            return a + d, c + e
        case Binary("*", left, right):
            low, high = _product(bounds(b, left), bounds(b, right))
            return max(low, 0.0) if left == right else low, high
        case Reduce("+", _, operand) if bounds(b, operand)[0] >= 0:
            return 0.0, math.inf
        case Call("sqrt", (operand,)) if bounds(b, operand)[0] >= 0:
            low, high = bounds(b, operand)
            return math.sqrt(low), math.sqrt(high)
        case Binary("/", left, right):
            (a, c), (d, e) = bounds(b, left), bounds(b, right)
            if d > 0:
                return _product((a, c), (1 / e if e < math.inf else 0.0, 1 / d))
            return -math.inf, math.inf
        case Where(_, chosen, otherwise):
            (a, c), (d, e) = bounds(b, chosen), bounds(b, otherwise)
            return min(a, d), max(c, e)
        case Call("max" | "min" as function, (left, right)):
            (a, c), (d, e) = bounds(b, left), bounds(b, right)
            choose = max if function == "max" else min
            return choose(a, d), choose(c, e)
        case _:
            return -math.inf, math.inf


def _of_elements(array: Array) -> tuple[float, float]:
    """Return between which numbers the elements of an integer array are, and 0 beyond its end."""
    low, high = NARROW.get(array.stated or "", (-math.inf, math.inf))
    if array.value_range is not None:
        first, end = (form_of(each) for each in array.value_range)
        low = max(low, float(first.constant)) if first.is_constant else low
        high = min(high, float(end.constant - 1)) if end.is_constant else high
    return min(low, 0.0), max(high, 0.0)


def _divided(op: str, a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    """Return the bounds of a quotient or remainder of integers, which truncates."""
    if b[0] < 0:
        return -math.inf, math.inf
    if op == "//":
        least = max(b[0], 1.0)
        return (a[0] / least if a[0] < 0 else 0.0), (a[1] / least if a[1] > 0 else 0.0)
    most = max(b[1] - 1, 0.0)
    return (-most if a[0] < 0 else 0.0), (most if a[1] > 0 else 0.0)


def _product(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    found = [0.0 if 0.0 in (x, y) else x * y for x in a for y in b]
    return min(found), max(found)
