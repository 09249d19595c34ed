"""Guards against empty sums of exponentials, left out of terms for which they say nothing new.

    P[i, j] * dO[i, d] if l[i] > 0 else 0        P[i, j] = exp(S[i, j] - m[i]) / l[i]

A sum of exponentials is never negative, and where it is 0 every one of its terms is: a term that
holds where l is 0 and has the factor l is nothing, and one with the factor P need not say that l
is above 0, since P is 0 where it is not.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.adjoint.sums import Term
from looptrans.adjoint.weights import Prepared
from looptrans.algebra.values import is_number
from looptrans.ir.condition import Condition, Data, Not
from looptrans.ir.value import (
    Access,
    Compare,
    Read,
)

_POSITIVE = (">", "!=")
_OPPOSITE = ("<=", "==")


def without_guards(prepared: Prepared, term: Term) -> Term | None:
    """Return a term without guards that say nothing; None where it is nothing.

    Args:
        prepared: Knows the weights and their sums.
        term: The term.
    """
    kept = []
    for condition in term.brackets:
        guarded = _guarded(prepared, condition)
        if guarded is None:
            kept.append(condition)
            continue
        total, positive = guarded
        powers = {a.access: p for a, p in term.factors if isinstance(a, Read)}
        power = powers.get(total, 0)
        if not positive and power > 0:
            return None
        if not (positive and power >= 0 and _has_weight(prepared, term, total)):
            kept.append(condition)
    return replace(term, brackets=tuple(kept))


def _guarded(prepared: Prepared, condition: Condition) -> tuple[Access, bool] | None:
    """Return the sum that a condition compares with 0, and whether it is to be above."""
    match condition:
        case Not(part):
            inner = _guarded(prepared, part)
            return None if inner is None else (inner[0], not inner[1])
        case Data(Compare(op, Read(total), zero)) if is_number(zero, 0.0):
            if total.array in prepared.nonzero and op in (*_POSITIVE, *_OPPOSITE):
                return total, op in _POSITIVE
    return None


def _has_weight(prepared: Prepared, term: Term, total: Access) -> bool:
    """Tell whether a factor is a weight of the row a sum belongs to."""
    for atom, power in term.factors:
        if not isinstance(atom, Read) or power < 1:
            continue
        weight = prepared.weights.get(atom.access.array)
        if weight is None or weight.total != total.array:
            continue
        count = len(total.subscripts)
        if weight.is_own and atom.access.subscripts[:count] == total.subscripts:
            return True
    return False
