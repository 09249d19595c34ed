"""Guards against dividing by an empty sum of exponentials, taken out where they say nothing new.

    O[i, d] / l[i] if l[i] > 0 else 0        P[i, j] = exp(S[i, j] - m[i]) / l[i]

A sum of exponentials is never negative, and where it is 0 every one of its terms is: a term that
holds where l is 0 and has the factor l is nothing, and one with the factor P need not say that l
is above 0, since P is 0 where it is not.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.adjoint.definitions import System, plain_name, range_moved
from looptrans.adjoint.recognition import unify
from looptrans.adjoint.sums import Term, expanded
from looptrans.adjoint.weights import Prepared
from looptrans.algebra.cells import condition_moved, value_moved
from looptrans.algebra.values import is_number
from looptrans.ir.condition import ALWAYS, Condition, Data, Not
from looptrans.ir.index import Index, Var
from looptrans.ir.listing import value_text
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Compare,
    Generator,
    Read,
    Reduce,
    Select,
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


def taken_out(system: System, outputs: frozenset[str]) -> tuple[str, ...]:
    """Let outputs that are a quotient only where its divisor is above 0 be that quotient.

        O[i, d] = X[i, d] / l[i] if l[i] > 0 else 0    ->    O[i, d] = X[i, d] / l[i]

    It is done where l is a sum of exponentials, every term of X has the exponential of a term of l
    as a factor, and what O is otherwise is 0, or X. Then no term of X is left where l is 0, and
    nothing is differentiated there. Outputs are handed over, so the quotient is not worked out.

    Args:
        system: The definitions; those of the outputs are changed.
        outputs: The definitions of the outputs.

    Returns:
        What was found, as formulas.
    """
    found = []
    for name in [name for name in system.definitions if name in outputs]:
        definition = system.definitions[name]
        match definition.value:
            case Select(
                Data(Compare(">" | "!=", Read(total), zero)),
                Binary("/", Read(above), Read(below)) as quotient,
                otherwise,
            ) if is_number(zero, 0.0) and below == total:
                idle = is_number(otherwise, 0.0) or otherwise == Read(above)
                if idle and _is_weighed(system, above, total):
                    system.add(replace(definition, value=quotient))
                    own = {v: Var(plain_name(v)) for v in definition.variables}
                    shown = value_moved(Binary("/", Read(above), Read(below)), own)
                    cell = value_moved(definition.cell, own)
                    found.append(f"{value_text(cell)} = {value_text(shown)}")
    return tuple(found)


def _is_weighed(system: System, above: Access, total: Access) -> bool:
    """Tell whether each term of a sum has an exponential of the terms of another as a factor."""
    top, bottom = (system.definitions.get(access.array) for access in (above, total))
    if top is None or bottom is None:
        return False
    match bottom.value:
        case Reduce("sum", bound, Call("exp" | "exp2") as exponential):
            pass
        case _:
            return False
    here = dict(zip(top.variables, above.indices, strict=True))
    terms = expanded(value_moved(top.value, here), system.names)
    own = frozenset((*bottom.variables, *(g.variable for g in bound)))
    wanted = dict(zip(bottom.variables, total.indices, strict=True))
    for term in terms:
        ranges = {g.variable: g for g in term.generators}
        for atom, power in term.factors:
            given: dict[str, Index] = dict(wanted)
            if power < 1 or not unify(exponential, atom, own, given):
                continue
            if _same_terms(bound, term, ranges, given):
                break
        else:
            return False
    return bool(terms)


def _same_terms(
    bound: tuple[Generator, ...],
    term: Term,
    ranges: dict[str, Generator],
    given: dict[str, Index],
) -> bool:
    """Tell whether a term is there only where a sum has one too."""
    for g in bound:
        index = given.get(g.variable)
        mine = ranges.get(index.name) if isinstance(index, Var) else None
        if mine is None or range_moved(g.range, given) != range_moved(mine.range, {}):
            return False
        needed = condition_moved(g.condition, given)
        if needed != ALWAYS and needed not in term.brackets:
            return False
    return True


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
