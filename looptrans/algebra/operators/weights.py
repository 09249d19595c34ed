"""Weights: the factors by which a state variable is scaled so that it becomes a plain sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from looptrans.algebra.normal_forms.readable import factored
from looptrans.algebra.normal_forms.terms import Terms
from looptrans.algebra.positional.values import (
    ONE,
    divide,
    is_number,
    multiply,
    power,
    put,
    subtract,
)
from looptrans.ir.value import Call, Value


@dataclass(frozen=True, slots=True)
class Weight:
    """`exp(exponent) * product of base ** power`, over state variables.

    Attributes:
        exponent: The exponent, over state variables and parameters.
        factors: The other factors with their powers.
        function: `exp`, or `exp2` for a power of two.
    """

    exponent: Value
    factors: tuple[tuple[Value, int], ...]
    function: str = "exp"

    def value(self, names: Mapping[str, Value]) -> Value:
        """Return the weight with names put in."""
        return self.times(ONE, names, {})

    def times(self, value: Value, above: Mapping[str, Value], below: Mapping[str, Value]) -> Value:
        """Return `value * weight(above) / weight(below)`; nothing below where that is empty."""
        top = [value] + [power(put(f, above), n) for f, n in self.factors if n > 0]
        bottom = [power(put(f, above), -n) for f, n in self.factors if n < 0]
        exponent = put(self.exponent, above)
        if below:
            bottom += [power(put(f, below), n) for f, n in self.factors if n > 0]
            top += [power(put(f, below), -n) for f, n in self.factors if n < 0]
            exponent = tidy(subtract(exponent, put(self.exponent, below)))
        scale = ONE if is_number(exponent, 0.0) else Call(self.function, (exponent,))
        product = multiply(*top, scale)
        return divide(product, multiply(*bottom)) if bottom else product


def tidied(value: Value) -> Value:
    """Return a value in lowest terms if it is a fraction of names, else as it is."""
    terms = Terms()
    form = terms.normal(value)
    plain = all(terms.meaning[symbol].kind == "name" for symbol in form.free_symbols)
    return factored(form, terms) if plain else value


def tidy(value: Value) -> Value:
    """Take out what the terms of a sum have in common."""
    terms = Terms()
    return factored(terms.normal(value), terms)
