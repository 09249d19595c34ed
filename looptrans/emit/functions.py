"""Functions of the language in Triton: what is called, and helpers for what Triton has not.

Triton's `exp`, `log`, `sin` and `cos` are float32 approximations by the GPU's units, with errors of
a few units in the last place at moderate arguments; `sqrt_rn` is correctly rounded.
`tl.maximum` and `tl.minimum` leave out a nan where the other operand is a number.
"""

from __future__ import annotations

from collections.abc import Mapping

from looptrans.ir.monoids import Folding

# Functions of one argument that Triton has under the name given here.
DIRECT: Mapping[str, str] = {
    "exp": "tl.exp",
    "exp2": "tl.exp2",
    "log": "tl.log",
    "log2": "tl.log2",
    "sqrt": "tl.sqrt_rn",
    "rsqrt": "tl.rsqrt",
    "abs": "tl.abs",
    "sin": "tl.sin",
    "cos": "tl.cos",
    "floor": "tl.floor",
    "ceil": "tl.ceil",
}

# Functions that are joined two by two.
JOINED: Mapping[str, str] = {"max": "tl.maximum", "min": "tl.minimum"}

# Functions that change nothing in a kernel.
IDENTITY = ("stop_gradient", "copy")

# Reductions that Triton has; a product needs a helper.
REDUCTIONS: Mapping[str, str] = {"+": "tl.sum", "max": "tl.max", "min": "tl.min"}

# Scans that Triton has; those of maxima and minima need a helper.
SCANS: Mapping[str, str] = {"+": "tl.cumsum", "*": "tl.cumprod"}

# Scans that leave the element itself out.
SCANS_BEFORE: Mapping[str, str] = {
    "+": "_sums_before",
    "*": "_products_before",
    "max": "_maxima_before",
    "min": "_minima_before",
}

# How an element in memory takes part in one, without another program in between.
ATOMIC: Mapping[Folding, str] = {
    "sum": "tl.atomic_add",
    "max": "tl.atomic_max",
    "min": "tl.atomic_min",
}

# Their variables have long names, which those of a listing seldom are.
HELPERS: Mapping[str, str] = {
    "_PAIRS": """\
# How float32 operands that are made of 16-bit inputs are multiplied: in pairs of bfloat16, with an
# error of 2**-16. Triton's interpreter, which has no such pairs, multiplies float32.
_PAIRS = tl.constexpr("ieee" if triton.knobs.runtime.interpret else "bf16x3")
""",
    "_dot_widened": '''\
@triton.jit
def _dot_widened(left, right, total, kind: tl.constexpr, split: tl.constexpr):
    """A product in float32 of inputs that are widened to it, and of another operand.

    TF32, in which matrix units multiply float32, has 11 bits, all that float16 has: where inputs
    are float16 the other operand (left or right, the one that `split` names) is multiplied in two
    parts, with an error of 2**-22. Where they are bfloat16, which has 8 bits, one is enough.
    """
    if kind == tl.float32:
        return tl.dot(left, right, total, input_precision="ieee")
    elif kind == tl.bfloat16:
        return tl.dot(left, right, total)
    elif split == "left":
        high = (left.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
        # What is left of an infinity is nothing.
        low = tl.where(high == left, 0.0, left - high)
        return tl.dot(high, right, tl.dot(low, right, total))
    else:
        high = (right.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
        low = tl.where(high == right, 0.0, right - high)
        return tl.dot(left, high, tl.dot(left, low, total))
''',
    "_hidden_zeros": '''\
@triton.jit
def _hidden_zeros(rows: tl.constexpr, columns: tl.constexpr, number: tl.constexpr, size):
    """Zeros that are no constants to a compiler: it does not know that no size is negative.

    Nor that they are equal, and so one number: each has a place of its own, in steps of 16, which
    may be known to divide the size.
    """
    place = (number * rows + tl.arange(0, rows)[:, None]) * columns + tl.arange(0, columns)[None, :]
    return tl.where(place * 16 < -size, 1.0, 0.0)
''',
    "_multiply": """\
@triton.jit
def _multiply(left, right):
    return left * right
""",
    "_greater": """\
@triton.jit
def _greater(left, right):
    return tl.maximum(left, right)
""",
    "_smaller": """\
@triton.jit
def _smaller(left, right):
    return tl.minimum(left, right)
""",
    "_sums_before": '''\
@triton.jit
def _next_sum(before, total, next_before, next_total):
    return total + next_before, total + next_total


@triton.jit
def _sums_before(value, axis: tl.constexpr):
    """The sums of the elements before each; a difference of sums would lose small ones."""
    return tl.associative_scan((tl.zeros_like(value), value), axis, _next_sum)[0]
''',
    "_products_before": '''\
@triton.jit
def _next_product(before, total, next_before, next_total):
    return total * next_before, total * next_total


@triton.jit
def _products_before(value, axis: tl.constexpr):
    """The products of the elements before each; a quotient of products would have zeros below."""
    return tl.associative_scan((tl.zeros_like(value) + 1, value), axis, _next_product)[0]
''',
    "_maxima_before": '''\
@triton.jit
def _next_maximum(before, greatest, next_before, next_greatest):
    return tl.maximum(greatest, next_before), tl.maximum(greatest, next_greatest)


@triton.jit
def _maxima_before(value, axis: tl.constexpr, least: tl.constexpr):
    """The maxima of the elements before each."""
    none = tl.full(value.shape, least, value.dtype)
    return tl.associative_scan((none, value), axis, _next_maximum)[0]
''',
    "_minima_before": '''\
@triton.jit
def _next_minimum(before, least, next_before, next_least):
    return tl.minimum(least, next_before), tl.minimum(least, next_least)


@triton.jit
def _minima_before(value, axis: tl.constexpr, greatest: tl.constexpr):
    """The minima of the elements before each."""
    none = tl.full(value.shape, greatest, value.dtype)
    return tl.associative_scan((none, value), axis, _next_minimum)[0]
''',
    "_steps": '''\
@triton.jit
def _two_steps(factor, value, next_factor, next_value):
    after = tl.where(next_factor == 0, next_value, next_factor * value + next_value)
    return factor * next_factor, after


@triton.jit
def _steps(factor, value, axis: tl.constexpr):
    """What y is after each step y = factor * y + value, which begins anew where a factor is 0."""
    factor = tl.broadcast_to(factor, value.shape)
    return tl.associative_scan((factor, value), axis, _two_steps)[1]
''',
    "_steps_before": '''\
@triton.jit
def _two_before(factor, start, all_factor, value, next_factor, next_start, next_all, next_value):
    before = tl.where(next_factor == 0, next_start, next_factor * value + next_start)
    after = tl.where(next_all == 0, next_value, next_all * value + next_value)
    return all_factor * next_factor, before, all_factor * next_all, after


@triton.jit
def _steps_before(factor, value, start, axis: tl.constexpr):
    """What y is before each step y = factor * y + value; start is what it is before the first."""
    ones = tl.full(value.shape, 1, factor.dtype)
    factor, start = tl.broadcast_to(factor, value.shape), tl.broadcast_to(start, value.shape)
    return tl.associative_scan((ones, start, factor, value), axis, _two_before)[1]
''',
    "_square": """\
@triton.jit
def _square(value):
    return value * value
""",
    "_power": '''\
@triton.jit
def _power(value, times: tl.constexpr):
    """A value to the power of a positive integer."""
    result = value
    for _ in tl.static_range(times - 1):
        result = result * value
    return result
''',
    "_real_power": '''\
@triton.jit
def _real_power(value, exponent):
    """A value to any power; nan for a negative value unless the exponent is whole."""
    power = tl.exp2(exponent * tl.log2(tl.abs(value)))
    is_whole = tl.floor(exponent) == exponent
    is_odd = is_whole & (tl.floor(exponent * 0.5) * 2.0 != exponent)
    below = tl.where(is_whole, tl.where(is_odd, -power, power), float("nan"))
    return tl.where(exponent == 0, 1.0, tl.where(value < 0, below, power))
''',
    "_decay": '''\
@triton.jit
def _decay(value):
    """1 / (1 + exp(2 |value|)) in float32: a quotient takes a GPU longer than an inverse root."""
    root = tl.rsqrt(1.0 + tl.exp2(2.8853900817779268 * tl.abs(value)))
    return root * root
''',
    "_tanh": '''\
@triton.jit
def _tanh(value):
    """tanh in float32; near 0, where 1 - 2 / (1 + exp(2 |value|)) would cancel, by a polynomial."""
    square = value * value
    near = -0.05221180672175201 + square * 0.01561263267863121
    near = -0.33332597508049705 + square * (0.1331311666156151 + square * near)
    far = 1.0 - 2.0 * _decay(value)
    far = tl.where(value < 0, -far, far)
    return tl.where(square < 0.36, value + value * square * near, far)
''',
    "_tanh_slope": '''\
@triton.jit
def _tanh_slope(value):
    """1 - tanh(value) ** 2 in float32, without the difference of two numbers near 1.

    It is 0 from where on float64 cannot tell tanh(value) from 1.
    """
    decay = _decay(value)
    slope = 4.0 * decay
    return tl.where(decay > 5.6e-17, slope - slope * decay, 0.0)
''',
    "_uniform": '''\
@triton.jit
def _uniform(key, first, second, third):
    """A number in [0, 1): the first word of Philox4x32-10 at (first, second, third, 0)."""
    first = tl.cast(first, tl.uint32)
    second = tl.cast(second, tl.uint32)
    third = tl.cast(third, tl.uint32)
    word, _, _, _ = tl.philox(key, first, second, third, tl.cast(0, tl.uint32))
    return tl.random.uint_to_uniform_float(word)
''',
}
