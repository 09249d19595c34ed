"""Whether what a statement adds up is divided, or scaled, by another one."""

from __future__ import annotations

from looptrans.ir.program import Assign, Program
from looptrans.ir.value import Binary, Read, Value, arrays_read
from looptrans.ir.walk import placed


def is_scaled(program: Program, array: str) -> bool:
    """Tell whether anything but sums is made of an array, as its quotient by a sum of weights.

    Args:
        program: The nest.
        array: The array, or the scalar.
    """
    left, seen = [array], {array}
    while left:
        name = left.pop()
        for place in placed(program):
            values = place.node.values if isinstance(place.node, Assign) else ()
            if any(_is_factor(value, name) for value in values):
                return True
            if isinstance(place.node, Assign) and any(
                name in arrays_read(value) for value in values
            ):
                made = {target.array for target in place.node.targets} - seen
                left += made
                seen |= made
    return False


def _is_factor(value: Value, name: str) -> bool:
    """Tell whether an array is in a value anywhere but as a term of its sum."""
    match value:
        case Binary("+" | "-", left, right):
            return _is_factor(left, name) or _is_factor(right, name)
        case Read():
            return False
        case _:
            return name in arrays_read(value)
