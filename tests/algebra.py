"""Short ways for tests of the algebra: listings, expressions over names, and runs in parts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

import mpmath

from looptrans.algebra.iterations.assembly import recurrence
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.operators.finding import Finding, find_operator
from looptrans.algebra.operators.operator import Operator
from looptrans.algebra.positional.numbers import Number, evaluate
from looptrans.ir.index import Var
from looptrans.ir.program import Assign, Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Const, IndexValue, Read, Value
from tests.analysis import program

_FUNCTIONS = (
    *("exp", "exp2", "log", "log2", "sqrt", "sin", "cos", "tanh", "abs", "max", "min", "inf"),
    *("if", "else", "and", "or", "not"),
)


def loop(first: Sequence[str], step: Sequence[str], returned: str, more: str = "") -> Program:
    """Return `def f(x, v, a, N): first; for j in range(N): step; return returned`."""
    lines = [f"def f(x, v, a, N{more}):", *(f"    {line}" for line in first)]
    lines += ["    for j in range(N):", *(f"        {line}" for line in step)]
    return program("\n".join([*lines, f"    return {returned}", ""]))


def value(text: str) -> Value:
    """Return an expression over names as a value."""
    names = dict.fromkeys(re.findall(r"\b[a-zA-Z]\w*\b", text))
    arguments = "".join(f", {name}: float" for name in names if name not in _FUNCTIONS)
    read = program(f"def f(out_: Float[Array, '1']{arguments}):\n    out_[0] = {text}\n")
    node = read.body[0]
    assert isinstance(node, Assign)
    return node.values[0]


SUM = loop(["h = 0.0"], ["h = h + x[j]"], "h")
PRODUCT = loop(["h = 1.0"], ["h = h * x[j]"], "h")
MAXIMUM = loop(["h = -inf"], ["h = max(h, x[j])"], "h")
MINIMUM = loop(["h = inf"], ["h = min(h, x[j])"], "h")
SEVERAL = loop(
    ["h = 0.0", "k = -inf", "w = inf"],
    ["h = h + x[j]", "k = max(k, v[j])", "w = min(w, a[j])"],
    "h, k, w",
)
AFFINE = loop(["h = 0.0"], ["h = a[j] * h + x[j]"], "h")
HALVED = loop(["h = 0.0"], ["h = (h + x[j]) / 2"], "h")
LSE = loop(["h = -inf"], ["h = log(exp(h) + exp(x[j]))"], "h")
UNNORMALIZED = loop(
    ["m = -inf", "l = 0.0", "o = 0.0"],
    [
        "t = max(m, x[j])",
        "c = exp(m - t)",
        "p = exp(x[j] - t)",
        "l = l * c + p",
        "o = o * c + p * v[j]",
        "m = t",
    ],
    "m, l, o",
)
NORMALIZED = loop(
    ["m = -inf", "l = 0.0", "o = 0.0"],
    [
        "t = max(m, x[j])",
        "c = exp(m - t)",
        "p = exp(x[j] - t)",
        "n = l * c + p",
        "o = o * l * c / n + p * v[j] / n",
        "l = n",
        "m = t",
    ],
    "m, l, o",
)
LSE_AND_MEAN = loop(
    ["h = -inf", "o = 0.0"],
    ["t = log(exp(h) + exp(x[j]))", "o = o * exp(h - t) + v[j] * exp(x[j] - t)", "h = t"],
    "h, o",
)
WELFORD = loop(
    ["n = 0.0", "mean = 0.0", "M2 = 0.0"],
    [
        "n = n + 1.0",
        "d = x[j] - mean",
        "mean = mean + d / n",
        "M2 = M2 + d * (x[j] - mean)",
    ],
    "n, mean, M2",
)
WELFORD_BY_INDEX = loop(
    ["mean = 0.0", "M2 = 0.0"],
    ["d = x[j] - mean", "mean = mean + d / (j + 1)", "M2 = M2 + d * (x[j] - mean)"],
    "mean, M2",
)
COVARIANCE = loop(
    ["n = 0.0", "p = 0.0", "q = 0.0", "C = 0.0"],
    [
        "n = n + 1.0",
        "d = x[j] - p",
        "p = p + d / n",
        "q = q + (v[j] - q) / n",
        "C = C + d * (v[j] - q)",
    ],
    "n, p, q, C",
)
ARGMAX = loop(["m = -inf", "k = 0"], ["if x[j] > m:", "    m = x[j]", "    k = j"], "m, k")
VITERBI = loop(["h = -inf"], ["h = max(h + a[j], x[j])"], "h")
NORM = loop(["h = 0.0"], ["h = sqrt(h * h + x[j] * x[j])"], "h")
ROTATION = loop(
    ["u = 1.0", "w = 0.0"],
    ["q = u * x[j] - w * a[j]", "w = u * a[j] + w * x[j]", "u = q"],
    "u, w",
)
TWICE = loop(["s = 0.0", "t = 0.0"], ["s = s + x[j]", "t = t + s"], "s, t")
DECAYED = loop(
    ["m = -inf", "l = 0.0"],
    ["t = max(m, x[j])", "l = l * exp(m - t) * a[j] + exp(x[j] - t)", "m = t"],
    "m, l",
)

SPLITTABLE: dict[str, Program] = {
    "sum": SUM,
    "product": PRODUCT,
    "maximum": MAXIMUM,
    "minimum": MINIMUM,
    "several": SEVERAL,
    "affine": AFFINE,
    "halved": HALVED,
    "log-sum-exp": LSE,
    "unnormalized": UNNORMALIZED,
    "normalized": NORMALIZED,
    "log-sum-exp and mean": LSE_AND_MEAN,
    "welford": WELFORD,
    "welford by index": WELFORD_BY_INDEX,
    "covariance": COVARIANCE,
    "argmax": ARGMAX,
    "viterbi": VITERBI,
    "norm": NORM,
    "rotation": ROTATION,
    "twice": TWICE,
    "decayed": DECAYED,
}


@cache
def found(listing: Program, name: str = "j") -> Finding:
    return find_operator(recurrence(listing, name))


def operator_of(listing: Program, name: str = "j") -> Operator:
    finding = found(listing, name)
    assert finding.decision == "found", finding.tried
    assert finding.operator is not None
    return finding.operator


Data = Mapping[str, Sequence[float]]


def rows_of(step: Recurrence, data: Data, count: int) -> list[dict[str, Number]]:
    """Return the inputs of every iteration, as numbers."""
    rows = []
    for j in range(count):
        row = {}
        for given in step.inputs:
            row[given.name] = evaluate(_at(given.value, data, j), {})
        rows.append(row)
    return rows


def _at(expression: Value, data: Data, j: int) -> Value:
    def change(part: Value) -> Value | None:
        if isinstance(part, Read):
            return Const(float(data[part.access.array][j]))
        if part == IndexValue(Var("j")):
            return Const(j)
        return None

    return replaced(expression, change)


def folded(operator: Operator, rows: list[dict[str, Number]]) -> tuple[Number, ...] | None:
    """Return the result of a part, its iterations joined one by one; None for an empty part."""
    result: tuple[Number, ...] | None = None
    for row in rows:
        unit = tuple(evaluate(value, row) for value in operator.unit)
        result = unit if result is None else joined(operator, result, unit)
    return result


def joined(
    operator: Operator, a: tuple[Number, ...] | None, b: tuple[Number, ...] | None
) -> tuple[Number, ...]:
    """Join two parts; None is the empty one."""
    if a is None or b is None:
        kept = a if b is None else b
        if kept is None:
            return tuple(evaluate(value, {}) for value in operator.identity)
        return kept
    names = {f"a{n}": x for n, x in enumerate(a, 1)} | {f"b{n}": x for n, x in enumerate(b, 1)}
    result = []
    for number, component in enumerate(operator.components, 1):
        result.append(evaluate(component.combine, names))
        names[f"c{number}"] = result[-1]
    return tuple(result)


def close(a: object, b: object) -> bool:
    left, right = mpmath.mpf(a), mpmath.mpf(b)
    if mpmath.isinf(left) or mpmath.isinf(right):
        return bool(left == right)
    return bool(abs(left - right) <= 1e-9 * (1 + abs(left) + abs(right)))
