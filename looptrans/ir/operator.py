"""Operators that join the partial results of a reduction, each with what proves that it may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from looptrans.ir.monoids import IDENTITIES, Monoid
from looptrans.ir.value import Binary, Call, Real, Value
from looptrans.ir.verdict import Certificate

# What stands for the two values in `Operator.combine`.
LEFT: Final = Real("a")
RIGHT: Final = Real("b")


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator on numbers that partial results can be joined by.

    Attributes:
        name: What it is called; `+`, `*`, `max` and `min` are the ones listings have.
        identity: The number that changes nothing: what a partial result starts with.
        combine: The result for two values, an expression of `LEFT` and `RIGHT`.
        certificate: That it is associative and commutative, and has that identity, over the reals;
            None where nothing shows it.
    """

    name: str
    identity: float
    combine: Value
    certificate: Certificate | None = None

    @property
    def is_proved(self) -> bool:
        """Whether it is known that partial results may be joined by it."""
        return self.certificate is not None and self.certificate.verdict == "legal"


def _known(name: Monoid, combine: Value) -> Operator:
    identity = IDENTITIES[name]
    law = f"{name} is associative and commutative over the reals, with the identity {identity:g}"
    return Operator(name, identity, combine, Certificate("algebra", law, "legal", "known"))


OPERATORS: Final[dict[str, Operator]] = {
    "+": _known("+", Binary("+", LEFT, RIGHT)),
    "*": _known("*", Binary("*", LEFT, RIGHT)),
    "max": _known("max", Call("max", (LEFT, RIGHT))),
    "min": _known("min", Call("min", (LEFT, RIGHT))),
}
