"""Building block expressions: constants folded, factors and terms taken apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Final

from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Cast,
    Dot,
    Expr,
    Load,
    Name,
    Number,
    Reduce,
    Scalar,
    Scan,
    Unary,
    Where,
    children,
    dims_of,
    kind_of,
)

LOG2E: Final = Number(math.log2(math.e))
LN2: Final = Number(math.log(2.0))
TRUE: Final = Number(True)
LARGEST: Final = (2.0 - 2.0**-23) * 2.0**127 * math.log(2.0)
"""What is larger, times log2(e), is no float32."""


def times(left: Expr, right: Expr) -> Expr:
    """Return a product; numbers are multiplied and 1 is left out."""
    if isinstance(left, Number) and isinstance(right, Number):
        return Number(left.value * right.value)
    if isinstance(left, Number):
        left, right = right, left
    if isinstance(right, Number):
        if right.value == 1:
            return left
        if isinstance(left, Binary) and left.op == "*" and isinstance(left.right, Number):
            return times(left.left, Number(left.right.value * right.value))
    return Binary("*", left, right)


def plus(left: Expr, right: Expr) -> Expr:
    """Return a sum; a negated operand becomes a difference and 0 is left out."""
    if isinstance(left, Number) and isinstance(right, Number):
        return Number(left.value + right.value)
    if _is_zero(left):
        return right
    if _is_zero(right):
        return left
    if isinstance(right, Unary) and right.op == "-":
        return Binary("-", left, right.operand)
    if isinstance(left, Unary) and left.op == "-":
        return Binary("-", right, left.operand)
    return Binary("+", left, right)


def minus(left: Expr, right: Expr) -> Expr:
    """Return a difference."""
    if isinstance(left, Number) and isinstance(right, Number):
        return Number(left.value - right.value)
    return left if _is_zero(right) else Binary("-", left, right)


def negative(operand: Expr) -> Expr:
    """Return `-operand`."""
    if isinstance(operand, Number):
        return Number(-operand.value)
    if isinstance(operand, Unary) and operand.op == "-":
        return operand.operand
    return Unary("-", operand)


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Number) and type(expr.value) is int and expr.value == 0


def total(terms: Iterable[Expr]) -> Expr:
    """Return the sum of some values, at least one."""
    return reduce(plus, terms)


def both(*conditions: Expr | None) -> Expr | None:
    """Return the conjunction of conditions, or None where there is none; each is taken once."""
    kept = list(dict.fromkeys(c for c in conditions if c is not None and c != TRUE))
    return reduce(lambda a, b: Binary("and", a, b), kept) if kept else None


def conjuncts(condition: Expr | None) -> tuple[Expr, ...]:
    """Return the parts that must all hold."""
    if condition is None:
        return ()
    if isinstance(condition, Binary) and condition.op == "and":
        return (*conjuncts(condition.left), *conjuncts(condition.right))
    return (condition,)


def extreme(op: str, parts: Iterable[Expr]) -> Expr:
    """Return the least or greatest of some values."""
    kept = list(dict.fromkeys(parts))
    return reduce(lambda a, b: Call(op, (a, b)), kept)


def rebuilt(expr: Expr, operands: tuple[Expr, ...]) -> Expr:
    """Return an expression with its operands replaced; `children` gives those it has."""
    match expr:
        case Load(array, subscripts, mask, other, kind):
            rank = len(subscripts)
            return Load(
                array, operands[:rank], None if mask is None else operands[rank], other, kind
            )
        case Unary(op, _):
            return Unary(op, *operands)
        case Cast(_, to, like):
            return Cast(operands[0], to, like)
        case Reduce(op, over, _):
            return Reduce(op, over, operands[0])
        case Scan(op, over, _, before):
            return Scan(op, over, operands[0], before, operands[1:])
        case Binary(op, _, _):
            return Binary(op, *operands)
        case Call(function, _):
            return Call(function, operands)
        case Where():
            return Where(*operands)
        case Dot(_, _, rows, columns, over, _):
            return Dot(operands[0], operands[1], rows, columns, over, *operands[2:])
        case _:
            return expr


def mentions(expr: Expr, name: str) -> bool:
    """Tell whether an expression looks at a name."""
    waiting = [expr]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, Name):
            waiting += children(part)
        elif part.name == name:
            return True
    return False


def mapped(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Replace every part for which `change` gives something, from the outside in."""
    changed = change(expr)
    if changed is not None:
        return changed
    parts = children(expr)
    return rebuilt(expr, tuple(mapped(part, change) for part in parts)) if parts else expr


def as_float(expr: Expr) -> Expr:
    """Return a value in float32: what still has an array's element type is cast."""
    if isinstance(expr, Name) and expr.holds is not None:
        return Cast(expr)
    if isinstance(expr, Load) and expr.kind == "float":
        return Cast(expr)
    if isinstance(expr, Number) and not isinstance(expr.value, float):
        return Number(float(expr.value))
    if kind_of(expr) == "bool":
        return Where(expr, Number(1.0), Number(0.0))
    if kind_of(expr) == "int":
        return Cast(expr)
    return expr


def as_number(expr: Expr) -> Expr:
    """Return a value that can be added: a truth value is 1 or 0."""
    if isinstance(expr, Number) and isinstance(expr.value, bool):
        return Number(int(expr.value))
    return Where(expr, Number(1), Number(0)) if kind_of(expr) == "bool" else expr


def factors(expr: Expr) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Return what is multiplied and what is divided by."""
    match expr:
        case Binary("*", left, right) if kind_of(expr) == "float":
            (a, b), (c, d) = factors(left), factors(right)
            return (*a, *c), (*b, *d)
        case Binary("/", left, right):
            (a, b), (c, d) = factors(left), factors(right)
            return (*a, *d), (*b, *c)
        case Unary("-", operand):
            a, b = factors(operand)
            return (Number(-1.0), *a), b
        case _:
            return (expr,), ()


def product(above: Iterable[Expr], below: Iterable[Expr] = ()) -> Expr:
    """Return the quotient of two products; numbers are gathered, a sign comes first."""
    number, kept = 1.0, []
    for part in above:
        if isinstance(part, Number):
            number *= part.value
        else:
            kept.append(part)
    scalars = [part for part in kept if not dims_of(part)]
    vectors = [part for part in kept if dims_of(part)]
    below = list(below)
    scalar_below = [part for part in below if not dims_of(part)]
    for part in list(scalar_below):
        if isinstance(part, Number):
            number /= part.value
            scalar_below.remove(part)
    below = [part for part in below if dims_of(part)]
    scalar: Expr | None = None
    for part in scalars:
        scalar = part if scalar is None else times(scalar, part)
    if abs(number) != 1.0 or (scalar is None and not vectors):
        scalar = Number(abs(number)) if scalar is None else times(scalar, Number(abs(number)))
    for part in scalar_below:
        scalar = Binary("/", Number(1.0) if scalar is None else scalar, part)
    found: Expr | None = None
    for part in vectors:
        found = part if found is None else times(found, part)
    if found is None:
        assert scalar is not None
        found = scalar
    elif scalar is not None:
        found = times(found, scalar)
    for part in below:
        found = Binary("/", found, part)
    return negative(found) if number < 0 else found


def terms(expr: Expr) -> tuple[tuple[int, Expr], ...]:
    """Return the terms of a sum, each with its sign."""
    match expr:
        case Binary("+", left, right) if kind_of(expr) == "float":
            return (*terms(left), *terms(right))
        case Binary("-", left, right) if kind_of(expr) == "float":
            return (*terms(left), *((-sign, term) for sign, term in terms(right)))
        case Unary("-", operand) if kind_of(expr) == "float":
            return tuple((-sign, term) for sign, term in terms(operand))
        case _:
            return ((1, expr),)


def is_positive(expr: Expr, positive: frozenset[str] = frozenset()) -> bool:
    """Tell whether a number is surely above zero, sizes taken to be at least 1.

    Args:
        expr: The value.
        positive: Names that are known to be positive.
    """
    match expr:
        case Number(value):
            return value > 0
        case Scalar(name, kind):
            return kind == "int" or name in positive
        case Name(name):
            return name in positive
        case Binary("*" | "/" | "+", left, right):
            return is_positive(left, positive) and is_positive(right, positive)
        case Call("sqrt", (operand,)) | Cast(operand):
            return is_positive(operand, positive)
        case Call("exp" | "exp2", _):
            return True
        case _:
            return False


def value_outside(
    expr: Expr,
    known: Mapping[str, float],
    conjunct: Expr,
    finite: Callable[[Expr], bool],
    positive: frozenset[str] = frozenset(),
) -> float | None:
    """Return what a value surely is where a condition fails, or None.

    Args:
        expr: The value.
        known: Names that are known there.
        conjunct: The condition that fails.
        finite: Tells whether a value is surely finite there.
        positive: Names that are known to be positive.
    """

    def of(part: Expr) -> float | None:
        return value_outside(part, known, conjunct, finite, positive)

    match expr:
        case Number(value):
            return float(value)
        case Name(name):
            return known.get(name)
        case Load(_, _, mask, other):
            return float(other) if other is not None and conjunct in conjuncts(mask) else None
        case Cast(operand):
            return of(operand)
        case Where(condition, chosen, otherwise):
            if conjunct in conjuncts(condition):
                return of(otherwise)
            a, b = of(chosen), of(otherwise)
            return a if a == b else None
        case Unary("-", operand):
            inner = of(operand)
            return None if inner is None else -inner
        case Binary("*", left, right):
            a, b = of(left), of(right)
            if a is not None and b is not None:
                return _number(a * b)
            if (a == 0.0 and finite(right)) or (b == 0.0 and finite(left)):
                return 0.0
            return _signed(a, right, positive) if a is not None else _signed(b, left, positive)
        case Binary("/", left, right):
            a, b = of(left), of(right)
            if a == 0.0 and ((b is None and finite(expr)) or b not in (None, 0.0)):
                return 0.0
            return _signed(a, right, positive) if b is None else None
        case Binary("+" | "-" as op, left, right):
            return _sum(of(left), of(right), -1.0 if op == "-" else 1.0)
        case Call("exp" | "exp2", (operand,)):
            inner = of(operand)
            return 0.0 if inner == -math.inf else 1.0 if inner == 0.0 else None
        case Call("max" | "min" as function, arguments):
            found = [of(argument) for argument in arguments]
            if any(value is None for value in found):
                return None
            choose = max if function == "max" else min
            return choose(value for value in found if value is not None)
        case Reduce(_, _, operand):
            return of(operand) if of(operand) == 0.0 else None
        case Dot(left, right, _, _, _, None):
            zero = (of(left) == 0.0 and finite(right)) or (of(right) == 0.0 and finite(left))
            return 0.0 if zero else None
        case _:
            return None


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _signed(value: float | None, factor: Expr, positive: frozenset[str]) -> float | None:
    """Return an infinity times something positive; other products are not known."""
    if value is None or not math.isinf(value):
        return None
    return value if is_positive(factor, positive) else None


def _sum(a: float | None, b: float | None, sign: float) -> float | None:
    if a is not None and b is not None:
        return _number(a + sign * b)
    if a is not None and math.isinf(a):
        return a
    if b is not None and math.isinf(b):
        return sign * b
    return None
