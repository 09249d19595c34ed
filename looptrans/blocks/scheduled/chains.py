"""Sums over two variables that are products of products of matrices.

    sum over r and e of q[i, e] * a[j, r] * b[r, e]    ->    sum over r of (sum over e of q * b) * a

Keys of low rank and bilinear forms are such: in one sum of three factors no two are a product of
matrices, and a program would go over r one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from looptrans.algebra.positional.values import factors_in
from looptrans.ir.value import Binary, Reduce, Value, free_variables


def as_chain(value: Reduce, dims: Sequence[str]) -> Reduce | None:
    """Return a sum over two variables as one of sums, both products of matrices, if it is one.

    The first product is that of the first factor: all kernels have to round the same one, whichever
    dimensions are rows of theirs, or differences of such sums do not cancel.

    Args:
        value: The sum.
        dims: The names of the dimensions of the block.
    """
    value = of_all_variables(value)
    factors = factors_in(value.body)
    if value.function != "sum" or len(value.generators) != 2 or len(factors) < 3:
        return None
    variables = [generator.variable for generator in value.generators]
    own = [set(free_variables(factor)) & {*dims, *variables} for factor in factors]
    for over, other in (variables, variables[::-1]):
        inside = [each - {over} for each in own if over in each]
        outside = [each - {other} for each in own if over not in each]
        found = frozenset().union(*inside)
        if (
            over in own[0]
            and other in found
            and len(found) == 2
            and all(len(each) <= 1 for each in (*inside, *outside))
            and len((found - {other}).union(*outside)) == 2
            and any(other in each for each in own if over not in each)
        ):
            mine = [f for f, each in zip(factors, own, strict=True) if over in each]
            rest = [f for f, each in zip(factors, own, strict=True) if over not in each]
            one, two = (next(g for g in value.generators if g.variable == v) for v in (over, other))
            first: Value = Reduce("sum", (one,), reduce(_times, mine))
            return replace(value, generators=(two,), body=reduce(_times, rest, first))
    return None


def _times(left: Value, right: Value) -> Value:
    return Binary("*", left, right)


def of_all_variables(value: Reduce) -> Reduce:
    """Return a sum of sums as one over the variables of both."""
    inner = value.body
    if isinstance(inner, Reduce) and value.function == inner.function == "sum":
        flat = of_all_variables(inner)
        return replace(flat, generators=(*value.generators, *flat.generators))
    return value
