"""The value of an index expression where the values of its names are given."""

from __future__ import annotations

from collections.abc import Mapping

from looptrans.ir.index import Arith, Extremum, Index, Int, Let, Neg, Opaque, Param, Var


def evaluate(index: Index, values: Mapping[str, int]) -> int | None:
    """Return the value of an index expression, or None where it is not determined.

    Args:
        index: The expression.
        values: Values of loop variables and parameters by name; elements of integer arrays under
            names such as `n[0]` and `page[0, 1]`, as in `Witness.elements`.
    """
    match index:
        case Int(value):
            return value
        case Var(name) | Param(name):
            return values.get(name)
        case Let(_, value):
            return evaluate(value, values)
        case Neg(operand):
            found = evaluate(operand, values)
            return None if found is None else -found
        case Arith(op, left, right):
            return _arithmetic(op, evaluate(left, values), evaluate(right, values))
        case Extremum(op, arguments):
            numbers = [evaluate(argument, values) for argument in arguments]
            known = [number for number in numbers if number is not None]
            if len(known) < len(numbers):
                return None
            return min(known) if op == "min" else max(known)
        case Opaque(array, arguments):
            at = ", ".join(str(evaluate(argument, values)) for argument in arguments)
            return values.get(f"{array}[{at}]")


def _arithmetic(op: str, left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return None
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "//":
            return left // right if right else None
        case _:
            return left % right if right else None
