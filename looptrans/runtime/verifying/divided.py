"""Sizes of 0 that a listing divides by: there it has no numbers of its own to go by.

    s = dot * (1.0 / sqrt(E))       E = 0: each s is 0 times infinity
    w = exp(s - m) / l              nan, and so is l
    o = o + (w if keep[i, j] else 0.0) * V[j, d]

A row of which nothing is kept is 0 in the listing, which never looks at the nan. Where kernels
divide by l behind the loop it is nan, as the rows beside it are, and neither is an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from looptrans.algebra.positional.numbers import NoNumber, evaluate
from looptrans.ir.condition import Condition
from looptrans.ir.evaluate import Evaluator, Unknown
from looptrans.ir.evaluate import evaluate as evaluate_index
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Binary,
    Const,
    IndexValue,
    Range,
    Reduce,
    Select,
    Value,
    value_children,
)
from looptrans.ir.walk import inner_bodies

Values: TypeAlias = np.ndarray[Any, Any]


def asked_for(
    program: Program, integers: Mapping[str, int], exact: Values, found: Values
) -> Values:
    """Return what should be, with nan, of which nothing is asked, where nan was found there.

    Args:
        program: The listing.
        integers: Its integer parameters.
        exact: What should be.
        found: What a kernel gave.
    """
    if exact.dtype.kind != "f" or exact.shape != found.shape:
        return exact
    missing = np.isnan(found) & ~np.isnan(exact)
    if not missing.any() or not _divides_by_zero(program, integers):
        return exact
    asked: Values = np.where(missing, np.nan, exact)
    return asked


def _divides_by_zero(program: Program, integers: Mapping[str, int]) -> bool:
    """Return whether a divisor of sizes alone is 0, and sizes do not prevent the division."""
    return _Sizes(integers).divide_by_zero(program.body)


@dataclass(frozen=True, slots=True)
class _Sizes:
    integers: Mapping[str, int]

    def divide_by_zero(self, body: tuple[Node, ...]) -> bool:
        """Return whether statements do, of those under conditions on sizes the ones that run.

        What stands in a loop of no iterations does not run.
        """
        for node in body:
            if isinstance(node, Assign) and any(map(self._divides, node.values)):
                return True
            inner = inner_bodies(node)
            if isinstance(node, Loop) and self._is_empty(node.range):
                continue
            if isinstance(node, If) and (holds := self._holds(node.condition)) is not None:
                inner = (node.body if holds else node.orelse,)
            if any(map(self.divide_by_zero, inner)):
                return True
        return False

    def _divides(self, value: Value) -> bool:
        match value:
            case Select(condition, chosen, otherwise):
                holds = self._holds(condition)
                if holds is not None:
                    return self._divides(chosen if holds else otherwise)
            case Reduce(_, generators, _) if any(self._is_empty(g.range) for g in generators):
                return False
            case Binary("/", _, right) if self._number(right) == 0:
                return True
        return any(map(self._divides, value_children(value)))

    def _is_empty(self, bounds: Range) -> bool:
        """Tell whether a range of sizes alone has no numbers: what stands in it is not done."""
        start, stop = (evaluate_index(each, self.integers) for each in bounds.ends)
        return start is not None and stop is not None and not range(start, stop, bounds.step)

    def _holds(self, condition: Condition) -> bool | None:
        """Return whether a condition on sizes alone holds; None for another one."""
        try:
            return Evaluator(self.integers).holds(condition, {})
        except (Unknown, KeyError, ZeroDivisionError):
            return None

    def _number(self, value: Value) -> float | None:
        """Return the number that a value of sizes alone is; None for another one."""

        def known(part: Value) -> Value | None:
            if not isinstance(part, IndexValue):
                return None
            number = evaluate_index(part.index, self.integers)
            return None if number is None else Const(number)

        try:
            return float(evaluate(replaced(value, known), {}))
        except (NoNumber, KeyError):
            return None
