"""Guards against dividing by an empty sum of exponentials, taken out where they say nothing new.

    O[i, d] / l[i] if l[i] > 0 else 0        P[i, j] = exp(S[i, j] - m[i]) / l[i]

A sum of exponentials is never negative, and where it is 0 every one of its terms is: a term that
holds where l is 0 and has the factor l is nothing, and one with the factor P need not say that l
is above 0, since P is 0 where it is not.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.adjoint.empty_rows.nothing import is_weighed
from looptrans.adjoint.equations.definitions import Definition, System, plain_name
from looptrans.adjoint.equations.sums import Term, expanded
from looptrans.adjoint.equations.written_sums import value_of
from looptrans.adjoint.exponentials.weights import Prepared
from looptrans.algebra.positional.cells import value_moved
from looptrans.algebra.positional.values import is_number
from looptrans.ir.condition import MIRRORED, Condition, Data, Not
from looptrans.ir.index import Var
from looptrans.ir.listing import value_text
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Access, Binary, Compare, Read, Reduce, Value

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


def is_of_totals(prepared: Prepared, term: Term) -> bool:
    """Tell whether all guards of a term ask whether sums of exponentials have terms.

    Of a sum in several parts no weight says so alone.
    """
    found = [_guarded(prepared, condition) for condition in term.brackets]
    definitions = prepared.system.definitions
    return all(each and definitions[each[0].array].has_reduction for each in found)


def divided_once(system: System, outputs: frozenset[str]) -> tuple[str, ...]:
    """Let outputs that are multiplied by what was divided by a sum be divided by it.

        r[i] = 1 / l[i]
        O[i, d] = X[i, d] * r[i]                       ->    O[i, d] = X[i, d] / l[i]

    It is done where l is a sum of exponentials, and every term of X has the exponential of a term
    of l as a factor.

    Args:
        system: The definitions; those of the outputs are changed.
        outputs: The definitions of the outputs.

    Returns:
        What was found, as formulas.
    """
    found = []
    for name in [name for name in system.definitions if name in outputs]:
        definition = system.definitions[name]
        if definition.has_reduction:
            continue
        quotient = divided(system, definition.value)
        match quotient:
            case Binary("/", Read(above), Read(below)) if quotient != definition.value:
                if not is_weighed(system, above, below):
                    continue
            case _:
                continue
        system.add(replace(definition, value=quotient))
        drop_unread(system, outputs, definition)
        own = {v: Var(plain_name(v)) for v in definition.variables}
        cell = value_moved(definition.cell, own)
        found.append(f"{value_text(cell)} = {value_text(value_moved(quotient, own))}")
    return tuple(found)


def drop_unread(system: System, outputs: frozenset[str], definition: Definition) -> None:
    """Forget what a definition read before it was changed, where nothing reads it any more."""
    for name in definition.reads():
        known = system.definitions.get(name)
        if known is None or name in outputs or known.has_reduction:
            continue
        if not any(name in other.reads() for other in system.definitions.values()):
            del system.definitions[name]
            drop_unread(system, outputs, known)


def divided(system: System, value: Value) -> Value:
    """Return a product with what was divided by and kept in a name; other values as they are."""

    def change(part: Value) -> Value | None:
        if not isinstance(part, Read) or not _is_plain(system, part.access):
            return None
        inner = system.instance(part.access.array, part.access.indices)
        return inner if isinstance(inner, Binary) and inner.op == "/" else None

    match value:
        case Binary("/", Read(), Read()):
            return value
        case Binary("*" | "/"):
            terms = expanded(replaced(value, change), system.names)
            return value_of(terms) if len(terms) == 1 else value
        case _:
            return value


def _compared(condition: Condition) -> tuple[Access, bool] | None:
    """Return what a condition compares with 0, and whether it holds where that is above 0."""
    match condition:
        case Not(part):
            found = _compared(part)
            return None if found is None else (found[0], not found[1])
        case Data(Compare(op, Read(access), zero)) if is_number(zero, 0.0):
            pass
        case Data(Compare(op, zero, Read(access))) if is_number(zero, 0.0):
            op = MIRRORED[op]
        case _:
            return None
    if op in _POSITIVE or op in _OPPOSITE:
        return access, op in _POSITIVE
    return None


def _is_plain(system: System, access: Access) -> bool:
    """Tell whether a cell is worked out from others without a loop."""
    definition = system.definitions.get(access.array)
    return definition is not None and not definition.has_reduction


def _guarded(prepared: Prepared, condition: Condition) -> tuple[Access, bool] | None:
    """Return the sum that a condition compares with 0, and whether it is to be above."""
    found = _compared(condition)
    return found if found is not None and found[0].array in prepared.nonzero else None


def _has_weight(
    prepared: Prepared, term: Term, total: Access, within: frozenset[str] = frozenset()
) -> bool:
    """Tell whether a factor is nothing where a sum of exponentials has no terms.

    So are the weights of its row, and sums over the row of what has them as factors: these where
    no other factor may be infinite there.
    """
    reads = [atom.access for atom, p in term.factors if isinstance(atom, Read) and p > 0]
    for access in reads:
        weight = prepared.weights.get(access.array)
        if weight is None or not weight.is_own:
            continue
        if Access(weight.total, access.subscripts[: len(total.subscripts)]) == total:
            return True
    if len(reads) < len(term.factors):
        return False
    return any(_is_sum_of_weights(prepared, access, total, within) for access in reads)


def _is_sum_of_weights(
    prepared: Prepared, access: Access, total: Access, within: frozenset[str]
) -> bool:
    """Tell whether a cell is a sum of what is nothing where a sum of exponentials has no terms.

    Nothing is told of a sum by itself, as of another row's l, whose terms are weights times l.
    """
    if access.array not in prepared.system.definitions or access.array in prepared.weights:
        return False
    if access.array in within:
        return False
    within |= {access.array}
    value = prepared.system.instance(access.array, access.indices)
    match value:
        case Reduce("sum"):
            terms = prepared.terms(value)
            return bool(terms) and all(_has_weight(prepared, t, total, within) for t in terms)
        case Binary("/", Read(above), Read(below)) if below == total:
            # Where a guard asked for terms before the division, there is nothing without them.
            return _is_sum_of_weights(prepared, above, total, within)
        case _:
            return False
