"""In which type the operands of a matrix product are multiplied.

Q[i, e] * K[j, e]               both are elements of 16-bit inputs: multiplied as they are
exp(s - m)[i, j] * V[j, d]      at most 1: rounded to the type of V
exp(-x)[i, j] * V[j, d]         in float32 where the sum is divided: all may be too small for V's
(g * P)[i, j] * V[j, d]         in float32, unless a backward pass may round it
"""

from __future__ import annotations

from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Cast,
    Expr,
    Load,
    Name,
    Number,
    Unary,
    Where,
    children,
    kind_of,
    walk,
)
from looptrans.blocks.lowering.builder import Builder
from looptrans.blocks.lowering.magnitude import bounds, is_at_most_one, is_divided
from looptrans.blocks.scheduled.scaled import is_scaled
from looptrans.ir.program import EIGHT_BITS


def held_array(b: Builder, expr: Expr) -> str | None:
    """Return the array of input type whose elements a value is, untouched."""
    while isinstance(expr, Cast) and expr.to == "float32" and expr.like is None:
        expr = expr.operand
    found = expr.holds if isinstance(expr, Name) else None
    if isinstance(expr, Load) and expr.kind == "float":
        found = expr.array
    if found is None or found in b.exact or b.program.array(found).stated in EIGHT_BITS:
        return None
    return found


def is_rounded(b: Builder, operand: Expr) -> bool:
    """Tell whether an operand is made one of 16 bits, where it meets one that has no more."""
    if is_short(b, operand):
        return True
    if is_at_most_one(b, operand):
        return not (_fades(b, operand) and is_scaled(b.program, b.begun))
    return b.rounded and not is_divided(b, operand) and not _grows(b, operand)


def _fades(b: Builder, expr: Expr) -> bool:
    """Tell whether a value is made of a power that may be close to 0 wherever it is worked out.

    A power of what is below its own maximum is 1 somewhere.
    """
    match expr:
        case Call("exp" | "exp2", (operand,)):
            return bounds(b, operand)[1] <= 0.0 and not _is_below_maximum(b, operand)
        case Name(name):
            return name in b.defined and _fades(b, b.defined[name])
        case _:
            return any(_fades(b, part) for part in children(expr))


def _is_below_maximum(b: Builder, expr: Expr) -> bool:
    match expr:
        case Binary("-", left, Name(name)) if (left, name) in b.nonpositive:
            return True
        case Name(name):
            return name in b.defined and _is_below_maximum(b, b.defined[name])
        case _:
            return any(_is_below_maximum(b, part) for part in children(expr))


def _grows(b: Builder, expr: Expr) -> bool:
    """Tell whether a value is made of a power that may be too large for 16 bits.

    Where the logarithm of a sum that was handed over has a part in it, it is a weight. A decay that
    the inputs decide may as well be growth; over another power, as in
    x * exp(-x) / (1 + exp(-x)) ** 2, it is no larger than what it is multiplied by.
    """
    if is_at_most_one(b, expr):
        return False
    match expr:
        case Call("pow", (base, Number())):
            return _grows(b, base)
        case Call("exp" | "exp2" | "pow"):
            return not _takes_off(b, expr)
        case Call("log"):
            return False
        case Binary("/", left, right):
            return _grows(b, left) and not _grows(b, right)
        case Name(name):
            return name in b.defined and _grows(b, b.defined[name])
        case _:
            return any(_grows(b, part) for part in children(expr))


def _takes_off(b: Builder, expr: Expr) -> bool:
    """Tell whether a value is made of the logarithm of a sum that was handed over."""
    logarithms = b.rounding.logarithms if b.rounding is not None else frozenset[str]()
    left, seen = [expr], set[str]()
    while left:
        for part in walk(left.pop()):
            array = part.array if isinstance(part, Load) else None
            if isinstance(part, Name):
                array = part.holds
                if part.name in b.defined and part.name not in seen:
                    seen.add(part.name)
                    left.append(b.defined[part.name])
            if array in logarithms:
                return True
    return False


def both_rounded(b: Builder, left: Expr, right: Expr) -> str | None:
    """Return the array of input type whose type two operands get, one of them made of inputs.

    The other one may be what is handed over in float32. Not where a power may be too large for 16
    bits: such are multiplied in pairs.
    """
    if not b.rounded or any(is_divided(b, x) or _has_power(b, x) for x in (left, right)):
        return None
    return input_in(b, left) or input_in(b, right)


def _has_power(b: Builder, expr: Expr) -> bool:
    """Tell whether a value is made of a power that is not surely at most 1."""
    if is_at_most_one(b, expr):
        return False
    match expr:
        case Call("exp" | "exp2" | "pow"):
            return True
        case Name(name):
            return name in b.defined and _has_power(b, b.defined[name])
        case _:
            return any(_has_power(b, part) for part in children(expr))


def input_in(b: Builder, expr: Expr) -> str | None:
    """Return an array of input type that a value is worked out from."""
    left, seen = [expr], set[str]()
    while left:
        for part in walk(left.pop()):
            held = held_array(b, part)
            if held is not None:
                return held
            if isinstance(part, Name) and part.name in b.defined and part.name not in seen:
                seen.add(part.name)
                left.append(b.defined[part.name])
    return None


def fitting_array(b: Builder, expr: Expr) -> str | None:
    """Return an array of input type that could hold a value without rounding it.

    Its own elements, their sizes and opposites, the larger or smaller ones, and choices among them.
    """
    held = held_array(b, expr)
    if held is not None:
        return held
    match expr:
        case Cast(operand, "float32", None) | Unary("-", operand) | Call("abs", (operand,)):
            return fitting_array(b, operand)
        case Name(name) if name in b.defined:
            return fitting_array(b, b.defined[name])
        case Call("max" | "min", parts):
            return _all_fit(b, parts)
        case Where(_, chosen, otherwise):
            return _all_fit(b, (chosen, otherwise))
        case _:
            return None


def _all_fit(b: Builder, parts: tuple[Expr, ...]) -> str | None:
    arrays = [fitting_array(b, part) for part in parts if not is_short(b, part)]
    return arrays[0] if arrays and None not in arrays else None


def is_short(b: Builder, expr: Expr) -> bool:
    """Tell whether a value is one that every type of floating-point numbers of 16 bits has."""
    match expr:
        case Number(value):
            return float(value).is_integer() and abs(value) <= 256
        case Cast(operand, "float32", None):
            return is_short(b, operand)
        case Name(name) if name in b.read:
            return is_short(b, b.read[name])
        case Load(array, kind="float"):
            return b.program.array(array).stated in EIGHT_BITS
        case _ if kind_of(expr) == "int":
            low, high = bounds(b, expr)
            return low >= -256 and high <= 256
    return False


def in_type(b: Builder, expr: Expr, array: str) -> Expr:
    """Return an operand in the type of an array that could hold it."""
    if held_array(b, expr) is None:
        return Cast(expr, like=array)
    while isinstance(expr, Cast):
        expr = expr.operand
    return expr
