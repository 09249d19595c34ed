"""What the operations of `looptrans.executor.operations` do, on arrays of many iterations.

A value is a Python integer or bool, a NumPy scalar of the run's type, or an array of that type,
int64 or bool. Every result is what the scalar operation gives for each element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from looptrans.executor.casts import FORMATS, Format
from looptrans.executor.errors import NoValue, Trap
from looptrans.executor.operations import LONGEST_POWER
from looptrans.executor.roundings import nearly_equal
from looptrans.ir.condition import Comparison

Value: TypeAlias = Any
Mask: TypeAlias = Any

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
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_WORD = np.uint64(0xFFFFFFFF)
# Below this many sums side by side, NumPy's running sum along the axis is faster than a loop.
FEW_LANES = 64


def kind_of(value: Value) -> str:
    """Return `f` for a real number, `i` for an integer, `b` for a bool."""
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind
    return "b" if isinstance(value, bool) else "i"


def as_real(value: Value, real: type[Any]) -> Value:
    """Return a value as a real number of the run."""
    if isinstance(value, np.ndarray):
        return value if value.dtype == real else value.astype(real)
    return value if type(value) is real else real(value)


def as_int(value: Value) -> Value:
    """Return a bool as 0 or 1, and an integer as it is."""
    if isinstance(value, np.ndarray):
        return value.astype(np.int64) if value.dtype.kind == "b" else value
    return int(value)


def alike(values: tuple[Value, ...], real: type[Any]) -> tuple[Value, ...]:
    """Return values of one type: real numbers where one is, else integers where one is."""
    kinds = {kind_of(value) for value in values}
    if "f" in kinds:
        return tuple(as_real(value, real) for value in values)
    if kinds == {"b"}:
        return values
    return tuple(as_int(value) for value in values)


def binary_operation(op: str, real: type[Any]) -> Callable[[Value, Value, Mask], Value]:
    """Return `+ - * / // % **`; the third operand says which elements are looked at."""
    exact: dict[str, Callable[[Any, Any], Any]] = {
        "+": np.add,
        "-": np.subtract,
        "*": np.multiply,
        "/": np.true_divide,
        "//": np.floor_divide,
        "%": np.remainder,
        "**": np.power,
    }
    apply = exact[op]

    def reals(a: Value, b: Value) -> Value:
        return apply(as_real(a, real), as_real(b, real))

    def run(a: Value, b: Value, mask: Mask) -> Value:
        if op == "/" or "f" in (kind_of(a), kind_of(b)):
            return reals(a, b)
        a, b = as_int(a), as_int(b)
        if op in ("//", "%"):
            zero = np.equal(b, 0)
            if not np.any(zero):
                return _python(apply(a, b))
            if not np.any(zero if mask is None else zero & mask):
                return apply(a, np.where(zero, 1, b))
            return np.where(zero, reals(a, b), apply(a, np.where(zero, 1, b)).astype(real))
        if op == "**":
            return _power(a, b, mask, reals)
        return _python(apply(a, b))

    return run


def _power(a: Value, b: Value, mask: Mask, reals: Callable[[Value, Value], Value]) -> Value:
    """Integers where Python's power of integers is one and is small enough to be kept exactly."""
    if isinstance(a, int) and isinstance(b, int):
        small = b >= 0 and a.bit_length() * b <= LONGEST_POWER
        return a**b if small else reals(a, b)
    size = np.abs(reals(a, b))
    ok = (np.asarray(b) >= 0) & (size < 2.0**62)
    if not np.all(ok if mask is None else ok | ~mask):
        return reals(a, b)
    return np.power(np.where(ok, a, 1), np.where(ok, b, 1))


def _python(number: Value) -> Value:
    return number.item() if isinstance(number, np.generic) else number


def comparison(
    op: Comparison, real: type[Any], *, nearly: bool = False
) -> Callable[[Value, Value], Value]:
    """Return a comparison; of two numbers it gives a Python bool.

    Args:
        op: Which one.
        real: The type of real numbers.
        nearly: Whether real numbers are equal that only roundings tell apart; see `nearly_equal`.
    """
    compare = _COMPARISONS[op]

    def run(a: Value, b: Value) -> Value:
        one, other = alike((a, b), real)
        if nearly and kind_of(one) == "f":
            one = np.where(nearly_equal(one, other), other, one)
        result = compare(one, other)
        return result if np.ndim(result) else bool(result)

    return run


def truth(value: Value) -> Value:
    """Return whether a value is not 0: a Python bool, or an array of them."""
    return value.astype(np.bool_) if np.ndim(value) else bool(value)


def extremum(name: str, real: type[Any]) -> Callable[[Value, Value], Value]:
    """Return Python's `max` or `min` of two: the first one unless the other is beyond it."""
    beyond = np.greater if name == "max" else np.less

    def run(a: Value, b: Value) -> Value:
        a, b = alike((a, b), real)
        if np.ndim(a) == 0 and np.ndim(b) == 0:
            return b if beyond(b, a) else a
        return np.where(beyond(b, a), b, a)

    return run


def chosen(condition: Value, yes: Value, no: Value, real: type[Any]) -> Value:
    """Return `yes` where a condition holds, else `no`, in the type both have in common."""
    yes, no = alike((yes, no), real)
    if np.ndim(condition) == 0:
        return yes if condition else no
    return np.where(condition, yes, no)


def to_integer(value: Value, mask: Mask) -> Value:
    """Truncate toward zero, as NumPy stores a float into an integer array.

    Raises:
        Trap: An element that is looked at is nan or infinite, or needs more than 64 bits.
    """
    if kind_of(value) != "f":
        return as_int(value)
    value = np.asarray(value)
    fits = np.isfinite(value) & (np.abs(value) < 2.0**63)
    wrong = ~fits if mask is None else ~fits & mask
    if np.any(wrong):
        example = float(np.broadcast_to(value, wrong.shape)[wrong][0])
        what = "does not fit in 64 bits" if np.isfinite(example) else "is no integer"
        raise Trap(NoValue, f"{example} {what}", remedy="guard the conversion")
    whole = np.where(fits, value, 0).astype(np.int64)
    return whole if whole.ndim else int(whole)


def function_operation(name: str, real: type[Any]) -> Callable[[tuple[Value, ...], Mask], Value]:
    """Return a function of the language."""
    if name in _NUMPY:
        numpy_function = _NUMPY[name]
        return lambda x, _: numpy_function(as_real(x[0], real))
    if name in _NARROWER:
        narrow = _NARROWER[name]
        return lambda x, _: as_real(as_real(as_real(x[0], real), narrow), real)
    if name in FORMATS:
        target = FORMATS[name]
        return lambda x, _: as_real(rounded(x[0], target), real)
    if name in ("max", "min"):
        first_or = extremum(name, real)

        def fold(values: tuple[Value, ...], _: Mask) -> Value:
            result = values[0]
            for value in values[1:]:
                result = first_or(result, value)
            return result

        return fold

    def absolute(x: tuple[Value, ...], _: Mask) -> Value:
        return np.abs(x[0]) if kind_of(x[0]) == "f" else _python(np.abs(as_int(x[0])))

    def to_int32(x: tuple[Value, ...], mask: Mask) -> Value:
        return (to_integer(x[0], mask) + (1 << 31)) % (1 << 32) - (1 << 31)

    def draw(x: tuple[Value, ...], mask: Mask) -> Value:
        return as_real(uniform(*(to_integer(number, mask) for number in x)), real)

    others: dict[str, Callable[[tuple[Value, ...], Mask], Value]] = {
        "abs": absolute,
        "float": lambda x, _: as_real(x[0], real),
        "int": lambda x, mask: to_integer(x[0], mask),
        "int64": lambda x, mask: to_integer(x[0], mask),
        "int32": to_int32,
        "bool": lambda x, _: truth(x[0]),
        "where": lambda x, _: chosen(truth(x[0]), x[1], x[2], real),
        "uniform": draw,
        "stop_gradient": lambda x, _: x[0],
        "copy": lambda x, _: x[0],
    }
    return others[name]


def rounded(value: Value, target: Format) -> Value:
    """Round once to the nearest number of a format; see `looptrans.executor.casts.rounded`."""
    numbers = np.asarray(value, dtype=np.float64)
    kept = np.isnan(numbers) | (numbers == 0.0)
    beyond = np.abs(numbers) >= 2 * target.largest
    plain = np.where(kept | beyond, 1.0, numbers)
    exponent = np.maximum(np.frexp(plain)[1] - 1, target.least_exponent)
    step = exponent - target.fraction_bits
    result = np.ldexp(np.rint(np.ldexp(plain, -step)), step)
    beyond |= np.abs(result) > target.largest
    result = np.copysign(np.where(beyond, target.overflow, result), numbers)
    return np.where(kept, numbers, result)[()]


def uniform(seed: Value, i: Value = 0, j: Value = 0, k: Value = 0) -> Value:
    """Return numbers in [0, 1), float32; see `looptrans.executor.philox`."""
    c0, c1, c2, c3 = (_word(each) for each in (i, j, k, 0))
    k0, k1 = _word(seed), _word(as_int(seed) >> 32)
    half = np.uint64(32)
    for _ in range(10):
        first, second = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (second >> half) ^ c1 ^ k0,
            second & _WORD,
            (first >> half) ^ c3 ^ k1,
            first & _WORD,
        )
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & _WORD, (k1 + np.uint64(0xBB67AE85)) & _WORD
    positive = np.where(c0 < np.uint64(1 << 31), c0, _WORD - c0)
    return (positive.astype(np.float32) * np.float32(4.6566127342e-10))[()]


def _word(value: Value) -> Value:
    if isinstance(value, int):
        return np.uint64(value & 0xFFFFFFFF)
    return np.asarray(value, dtype=np.int64).astype(np.uint64) & _WORD


def ordered_sum(total: Value, parts: Value, axis: int, real: type[Any]) -> Value:
    """Add the parts along an axis to a total, one after the other; the axis stays, of extent 1.

    Args:
        total: What is added to.
        parts: An array; its extent along the axis is not 0.
        axis: The axis.
        real: The type of real numbers.
    """
    count = parts.shape[axis]
    here = [slice(None)] * parts.ndim
    here[axis] = slice(0, 1)
    first = parts[tuple(here)]
    total, first = alike((total, first), real)
    parts = alike((parts, first), real)[0]
    result = total + first
    if result.size < FEW_LANES:
        here[axis] = slice(1, None)
        rest = parts[tuple(here)]
        shape = list(result.shape)
        shape[axis] = count - 1
        all_parts = np.concatenate([result, np.broadcast_to(rest, shape)], axis)
        here[axis] = slice(count - 1, count)
        return np.add.accumulate(all_parts, axis=axis)[tuple(here)]
    for at in range(1, count):
        here[axis] = slice(at, at + 1)
        np.add(result, parts[tuple(here)], out=result)
    return result
