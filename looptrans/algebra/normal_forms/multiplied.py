"""Expressions as polynomials: multiplied out by exponents, as sympy does it term by term.

    (a + b) * (a - b)   ->   {(2, 0): 1, (0, 2): -1}   over a, b

`sympy.expand` makes an expression of every product on the way, and takes ten times as long.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import sympy
from sympy.polys.domains import QQ, ZZ
from sympy.polys.rings import sring

Expr: TypeAlias = Any  # sympy has no types
Ring: TypeAlias = Any
Polynomial: TypeAlias = Any


class _NoPolynomial(Exception):
    """Something is no polynomial of symbols with rational coefficients."""


def expanded(expr: Expr) -> Expr:
    """Return an expression without sums in its products, as `sympy.expand` does."""
    found = _in_one_ring((expr,))
    return sympy.expand(expr) if found is None else found[0].as_expr()


def multiplied_out(*exprs: Expr) -> list[Polynomial]:
    """Return expressions without denominators as elements of one ring of polynomials."""
    found = _in_one_ring(exprs)
    return sring(exprs)[1] if found is None else found


def _in_one_ring(exprs: tuple[Expr, ...]) -> list[Polynomial] | None:
    symbols = frozenset().union(*(expr.free_symbols for expr in exprs))
    whole = all(number.is_Integer for expr in exprs for number in expr.atoms(sympy.Number))
    if not symbols:
        return None
    ring = _ring(symbols, whole)
    places = {symbol: place for place, symbol in enumerate(ring.symbols)}
    try:
        return [_polynomial(expr, ring, places) for expr in exprs]
    except _NoPolynomial:
        return None


@lru_cache(maxsize=256)
def _ring(symbols: frozenset[Expr], whole: bool) -> Ring:
    """Return the ring over some symbols, in the order that sympy gives them."""
    ring, _ = sring(sympy.Add(*symbols))
    return ring.clone(domain=ZZ if whole else QQ)


def _polynomial(expr: Expr, ring: Ring, places: dict[Expr, int]) -> Polynomial:
    if not expr.is_Add:
        return _product(expr, ring, places)
    total: dict[tuple[int, ...], Any] = {}
    for term in expr.args:
        for exponents, factor in _product(term, ring, places).items():
            total[exponents] = total.get(exponents, 0) + factor
    return ring.from_dict(total)


def _product(expr: Expr, ring: Ring, places: dict[Expr, int]) -> Polynomial:
    """Gather symbols and numbers, and multiply by the sums."""
    exponents = [0] * len(places)
    coefficient = ring.domain.one
    sums = []
    for factor in sympy.Mul.make_args(expr):
        base, power = factor.as_base_exp()
        if factor.is_Rational:
            coefficient *= ring.domain.convert(factor)
        elif not power.is_Integer or power < 0:
            raise _NoPolynomial
        elif base in places:
            exponents[places[base]] += int(power)
        elif base.is_Add or base.is_Mul:
            sums.append(_polynomial(base, ring, places) ** int(power))
        else:
            raise _NoPolynomial
    found = ring.from_dict({tuple(exponents): coefficient})
    for each in sums:
        found = found * each
    return found
