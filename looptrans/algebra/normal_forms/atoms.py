"""Atoms: what normal forms are made of, and what cases suppose of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import isnan
from typing import Any, TypeAlias

import sympy

from looptrans.algebra.normal_forms.multiplied import expanded, multiplied_out
from looptrans.algebra.normal_forms.ordering import Inequality

Expr: TypeAlias = Any  # sympy has no types


OO = sympy.oo


class Undefined(Exception):
    """A value is not a number where it is looked at: 0 / 0, inf - inf, or worse."""


class NotANumber(Undefined):
    """A value is nan where it is looked at, and no infinity of either sign."""


@dataclass(frozen=True, slots=True)
class Atom:
    """What a symbol stands for.

    Attributes:
        kind: `name`, `exp`, `log`, `max`, `root`, `select` or `function`.
        parts: Normal forms, and what else tells it from others.
    """

    kind: str
    parts: tuple[Any, ...]


def is_zero_or_one(atom: Atom) -> bool:
    """Tell whether an atom is 1 where a condition holds and 0 elsewhere, or the opposite."""
    return atom.kind == "select" and set(atom.parts[1:]) == {sympy.Integer(0), sympy.Integer(1)}


@dataclass(frozen=True, slots=True)
class Leaf:
    """Something that is true or false of a case: `expr > 0`, `expr >= 0`, `expr == 0`, a name.

    Attributes:
        kind: `gt`, `ge`, `eq` or `truth`.
        subject: The normal form, or the name.
    """

    kind: str
    subject: Any


@dataclass(frozen=True, slots=True)
class Case:
    """What is supposed of a case.

    Attributes:
        orders: Inequalities that hold.
        truths: Names of truth values, with theirs.
        equal: Names that are given by a normal form of others.
        texts: The suppositions, to be read.
    """

    orders: tuple[Inequality, ...] = ()
    truths: tuple[tuple[str, bool], ...] = ()
    equal: tuple[tuple[str, Expr], ...] = ()
    texts: tuple[str, ...] = ()


COMPARED = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def denominator(expr: Expr) -> Expr:
    """Return what a normal form divides by."""
    return sympy.fraction(expr)[1]


def cancelled(expr: Expr) -> Expr:
    """Return a rational function of symbols as a fraction in lowest terms, multiplied out."""
    top, bottom = expr.as_numer_denom()
    if bottom.is_Rational:
        return expanded(expr)
    p, q = multiplied_out(top, bottom)
    p, q = p.cancel(q)
    return p.as_expr() / q.as_expr()


def number_of(literal: float | int | bool) -> Expr:
    """Return a literal as the exact number it is written as."""
    if isinstance(literal, bool):
        return sympy.Integer(int(literal))
    if isinstance(literal, float):
        if literal in (float("inf"), float("-inf")):
            return OO if literal > 0 else -OO
        if isnan(literal):
            raise NotANumber("nan")
    fraction = Fraction(repr(literal))
    return sympy.Rational(fraction.numerator, fraction.denominator)


def product_sign(term: Expr) -> str | None:
    """Return `+`, `0+` or None for a product of powers of symbols."""
    factor, rest = term.as_coeff_Mul()
    if factor == 0:
        return "0+"
    if factor < 0:
        return None
    sign = "+"
    for part in sympy.Mul.make_args(rest):
        base, power = part.as_base_exp()
        if part == 1 or base.is_positive:
            continue
        even = power.is_Integer and power % 2 == 0 and power > 0
        if (base.is_nonnegative and power > 0) or even:
            sign = "0+"
        else:
            return None
    return sign


def leaves_of(key: tuple[Any, ...]) -> Iterator[Leaf]:
    """Yield the leaves of the condition of a choice."""
    for part in key:
        if isinstance(part, Leaf):
            yield part
        elif isinstance(part, tuple):
            yield from leaves_of(part)


def expressions_in(parts: tuple[Any, ...]) -> Iterator[Expr]:
    """Yield the normal forms among the parts of an atom."""
    for part in parts:
        if isinstance(part, sympy.Basic):
            yield part


def key_text(key: tuple[Any, ...]) -> str:
    """Return the condition of a choice to be read."""
    match key:
        case (Leaf(kind, subject), bool(sign)):
            signs = {"gt": " > 0", "ge": " >= 0", "eq": " == 0", "truth": ""}
            text = f"{subject}{signs[kind]}"
            return text if sign else f"not {text}"
        case ("not", part):
            return f"not ({key_text(part)})"
        case (word, *parts):
            return f" {word} ".join(key_text(part) for part in parts)
        case _:
            return str(key)
