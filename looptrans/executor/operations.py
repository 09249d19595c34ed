"""What one operation does to scalars, and how it is carried over to rows, cell by cell."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from looptrans.executor.casts import FORMATS, rounded
from looptrans.executor.errors import NoValue, Trap
from looptrans.executor.philox import uniform
from looptrans.executor.storage import Block, Scalar, to_integer
from looptrans.ir.condition import Comparison

Operation = Callable[..., Scalar]

LONGEST_POWER = 4096

_NUMPY: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
}
_NARROWER: dict[str, type[Any]] = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
}
_COMPARISONS: dict[Comparison, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def binary_operation(op: str, real: type[Any]) -> Operation:
    """Return `+ - * / // % **` on two scalars.

    Integers stay Python integers where Python keeps them; everything else is of type `real`, so a
    division by zero gives inf or nan.
    """

    def divide(a: Scalar, b: Scalar) -> Scalar:
        if type(a) is real or type(b) is real:
            return a / b
        return real(a) / real(b)

    def floor_divide(a: Scalar, b: Scalar) -> Scalar:
        if type(a) is real or type(b) is real:
            return a // b
        return a // b if b else real(a) // real(b)

    def modulo(a: Scalar, b: Scalar) -> Scalar:
        if type(a) is real or type(b) is real:
            return a % b
        return a % b if b else real(a) % real(b)

    def power(a: Scalar, b: Scalar) -> Scalar:
        if type(a) is real or type(b) is real:
            return a**b
        small = b >= 0 and int(a).bit_length() * b <= LONGEST_POWER
        return a**b if small else real(a) ** real(b)

    operations: dict[str, Operation] = {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "/": divide,
        "//": floor_divide,
        "%": modulo,
        "**": power,
    }
    return operations[op]


def comparison(op: Comparison) -> Operation:
    """Return a comparison of two scalars; its result is a Python bool."""
    compare = _COMPARISONS[op]
    return lambda a, b: bool(compare(a, b))


def function_operation(name: str, real: type[Any]) -> Operation:
    """Return a function of the language on scalars."""
    if name in _NUMPY:
        numpy_function = _NUMPY[name]
        return lambda x: numpy_function(x if type(x) is real else real(x))
    if name in _NARROWER:
        narrow = _NARROWER[name]
        return lambda x: real(narrow(x))
    if name in FORMATS:
        target = FORMATS[name]
        return lambda x: real(rounded(float(x), target))

    def choose(condition: Scalar, chosen: Scalar, otherwise: Scalar) -> Scalar:
        result = chosen if condition else otherwise
        # An array of NumPy has one type, so `where(c, 0, 1.5)` gives a float in either case.
        mixed = type(result) is not real and real in (type(chosen), type(otherwise))
        return real(result) if mixed else result

    def draw(*numbers: Scalar) -> Scalar:
        return real(uniform(*(to_integer(number) for number in numbers)))

    def to_int32(x: Scalar) -> int:
        return (to_integer(x) + (1 << 31)) % (1 << 32) - (1 << 31)

    others: dict[str, Operation] = {
        "abs": abs,
        "float": real,
        "int": to_integer,
        "int64": to_integer,
        "int32": to_int32,
        "bool": bool,
        "max": max,
        "min": min,
        "where": choose,
        "uniform": draw,
        "stop_gradient": lambda x: x,
        "copy": lambda x: x,
    }
    return others[name]


def by_cell(operation: Operation, *operands: Scalar | Block) -> Scalar | Block:
    """Apply an operation of scalars to rows, cell by cell; a scalar goes with every cell.

    Raises:
        Trap: The rows have different lengths.
    """
    shapes = {operand.shape for operand in operands if isinstance(operand, Block)}
    if not shapes:
        return operation(*operands)
    if len(shapes) > 1:
        raise different_lengths(*sorted(shapes))
    (shape,) = shapes
    count = max(len(operand.cells) for operand in operands if isinstance(operand, Block))
    columns = [
        operand.cells if isinstance(operand, Block) else [operand] * count for operand in operands
    ]
    return Block(shape, [operation(*cells) for cells in zip(*columns, strict=True)])


def inner_product(left: Block, right: Block) -> Scalar:
    """Return `left @ right`: the products added from left to right.

    Raises:
        Trap: The rows have different lengths.
    """
    if left.shape != right.shape:
        raise different_lengths(left.shape, right.shape)
    total: Scalar = 0
    for a, b in zip(left.cells, right.cells, strict=True):
        total = total + a * b
    return total


def sum_of(row: Block) -> Scalar:
    """Return the sum of a row, from 0 and from left to right."""
    total: Scalar = 0
    for cell in row.cells:
        total = total + cell
    return total


def extremum_of(name: str, cells: list[Scalar]) -> Scalar:
    """Return Python's `max` or `min` of the cells.

    Raises:
        Trap: There are none.
    """
    if not cells:
        raise Trap(
            NoValue,
            f"{name} of nothing has no value",
            remedy=f"start from {'-inf' if name == 'max' else 'inf'} and take the {name} in a loop",
        )
    return max(cells) if name == "max" else min(cells)


def different_lengths(*shapes: tuple[int, ...]) -> Trap:
    """Return the failure of combining rows of different lengths."""
    texts = " and ".join(str(shape[0]) if len(shape) == 1 else str(shape) for shape in shapes)
    return Trap(
        NoValue,
        f"rows of different lengths are combined: {texts}",
        remedy="give arrays whose rows have the same length",
    )
