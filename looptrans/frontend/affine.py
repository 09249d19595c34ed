"""Small questions about index expressions."""

from __future__ import annotations

from looptrans.ir.index import (
    Arith,
    Index,
    Int,
    Let,
    Neg,
    children,
    opaque_terms,
    rebuild,
    variables,
)


def without_lets(index: Index) -> Index:
    """Replace every integer scalar by the index expression it stands for."""
    if isinstance(index, Let):
        return without_lets(index.value)
    operands = children(index)
    return rebuild(index, tuple(without_lets(o) for o in operands)) if operands else index


def constant_of(index: Index) -> int | None:
    """Return the integer an index expression always is, or None."""
    match index:
        case Int(value):
            return value
        case Let(_, value):
            return constant_of(value)
        case Neg(operand):
            number = constant_of(operand)
            return None if number is None else -number
        case Arith(op, left, right):
            first, second = constant_of(left), constant_of(right)
            if first is None or second is None:
                return None
            match op:
                case "+":
                    return first + second
                case "-":
                    return first - second
                case "*":
                    return first * second
                case "//":
                    return first // second if second else None
                case "%":
                    return first % second if second else None
        case _:
            return None


def is_fixed(index: Index) -> bool:
    """Tell whether an index expression has the same value throughout a run."""
    bare = without_lets(index)
    return not variables(bare) and not opaque_terms(bare)
