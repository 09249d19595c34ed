"""Index expressions as sums that can be compared and kept in sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from looptrans.analysis.isl_model.normal import Normalizer
from looptrans.ir.affine import Form, form_of
from looptrans.ir.index import Index, substitute

Linear: TypeAlias = tuple[int, frozenset[tuple[Index, int]]]


def linear(index: Index, normal: Normalizer, values: Mapping[str, Index] | None = None) -> Linear:
    """Return the constant and the terms, with their factors, that an index expression is a sum of.

    Args:
        index: The expression.
        normal: What brings it into normal form first.
        values: What variables stand for.
    """
    return _kept(form_of(substitute(normal.index(index), values or {})))


def summed(first: Linear, second: Linear, factor: int, constant: int) -> Linear:
    """Return `first + factor * second + constant`."""
    one, other = (Form(dict(terms), number) for number, terms in (first, second))
    return _kept(one.plus(other, factor).plus(Form({}, constant)))


def _kept(form: Form) -> Linear:
    return form.constant, frozenset(form.terms.items())
