"""Whether an adjoint is zero once everything it is made of is written out.

    dm[i] = delta[i] - l[i] * sum(P[i, j] * dQ[i, j] for j)        delta[i] = sum(…), dQ = …

What is stored stands for sums; two adjoints may be equal without being stored under one name. Where
nothing less than a derivative of `max` is at stake, they are written out to the last.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from looptrans.adjoint.empty_rows.guards import without_guards
from looptrans.adjoint.equations.facts import Facts
from looptrans.adjoint.equations.recognition import applied, rewritten
from looptrans.adjoint.equations.solving import simplified_brackets
from looptrans.adjoint.equations.sums import Term, combined, expanded, times
from looptrans.ir.value import Read, Reduce, Value, free_variables

if TYPE_CHECKING:
    from looptrans.adjoint.equations.definitions import Definition
    from looptrans.adjoint.exponentials.weights import Prepared
    from looptrans.adjoint.sweep.reverse import Reverse

MOST_ROUNDS = 8
MOST_OPENED = 200


def cancels(reverse: Reverse, terms: list[Term], facts: Facts) -> bool:
    """Tell whether terms add up to zero when everything they read is written out.

    Args:
        reverse: The definitions, and the adjoints worked out so far.
        terms: The terms.
        facts: What holds of the cell they are the adjoint of.
    """
    known = reverse.system.definitions
    stored = (known[name] for name in sorted(reverse.sizes.whole & known.keys()))
    # What is stored of both sides may be left as it is: what they have in common stays short.
    closed = frozenset(each.name for each in stored if each.origin == "adjoint")
    ways = [closed, frozenset[str]()] if closed else [closed]
    return any(_cancels(reverse, terms, facts, way) for way in ways)


def _cancels(reverse: Reverse, terms: list[Term], facts: Facts, closed: frozenset[str]) -> bool:
    left = _expanded(reverse, terms, facts, closed)
    lowest: dict[Value, int] = {}
    for term in left:
        for atom, exponent in term.factors:
            if set(free_variables(atom)) & term.bound:
                continue
            lowest[atom] = min(lowest.get(atom, 0), exponent)
    below = tuple((atom, -p) for atom, p in lowest.items() if p < 0)
    if not left or not below:
        return not left
    # Over one denominator, in which what is divided by may be a sum of others.
    over = Term(Fraction(1), below)
    return not _expanded(reverse, [times(term, over) for term in left], facts, closed)


def agree(reverse: Reverse, left: tuple[Term, ...], right: tuple[Term, ...]) -> bool:
    """Tell whether two sums of terms are the same when everything they read is written out."""
    less = [replace(term, coefficient=-term.coefficient) for term in right]
    return cancels(reverse, [*left, *less], Facts())


def _expanded(
    reverse: Reverse, terms: list[Term], facts: Facts, closed: frozenset[str]
) -> list[Term]:
    found: list[Term] = []
    for term in terms:
        for each in _written_out(reverse, term, closed):
            kept = simplified_brackets(each, facts)
            kept = None if kept is None else without_guards(reverse.prepared, kept)
            # A sum that is recognized may be so in rows with terms only.
            kept = kept and without_guards(reverse.prepared, _summed(reverse, kept))
            kept = kept and simplified_brackets(kept, facts)
            if kept is not None:
                found.append(kept)
    return combined(found)


def _written_out(reverse: Reverse, term: Term, closed: frozenset[str]) -> list[Term]:
    """Write out what a term reads, but for weights and the sums they are divided by."""
    queue, found = [term], []
    for _ in range(MOST_OPENED):
        if not queue:
            break
        first = queue.pop()
        inner = _opened_once(reverse, first, closed)
        if inner is None:
            found.append(_over_weights(reverse, reverse.counted(first)))
        else:
            queue += inner
    return [*found, *queue]


def _opened_once(reverse: Reverse, term: Term, closed: frozenset[str]) -> list[Term] | None:
    for number, (atom, exponent) in enumerate(term.factors):
        if exponent < 1 or not isinstance(atom, Read):
            continue
        definition = reverse.system.definitions.get(atom.access.array)
        if definition is None or _stays(reverse.prepared, definition) or definition.name in closed:
            continue
        if isinstance(definition.value, Reduce) and definition.value.function != "sum":
            continue
        value = reverse.system.instance(definition.name, atom.access.indices)
        inner = expanded(value, reverse.names)
        if any(dict(t.factors).get(atom) for t in inner):
            continue
        kept = ((atom, exponent - 1),) if exponent > 1 else ()
        factors = (*term.factors[:number], *kept, *term.factors[number + 1 :])
        rest = replace(term, factors=factors)
        return [_over_weights(reverse, times(rest, each)) for each in inner]
    return None


def _stays(prepared: Prepared, definition: Definition) -> bool:
    """Tell whether what a term reads is not written out."""
    weight = prepared.weights.get(definition.name)
    if weight is not None:
        return not weight.is_first
    if definition.name in prepared.nonzero:
        # What a sum began with is written out beside the rest of it.
        return definition.has_reduction
    return definition.name in prepared.partial


def _over_weights(reverse: Reverse, term: Term) -> Term:
    """Write exponentials as weights times their sum."""
    prepared = reverse.prepared
    summed = {name for name, weight in prepared.weights.items() if not weight.is_first}
    return rewritten(term, [i for i in prepared.identities if i.name in summed])[0]


def _summed(reverse: Reverse, term: Term) -> Term:
    """Do the sums of weights over their own index, which are known to be one."""
    totals = reverse.prepared.nonzero | reverse.prepared.partial
    for _ in range(MOST_ROUNDS):
        better = next(
            (
                new
                for rule in reverse.prepared.rules
                if rule.name in totals
                for new in (applied(term, rule),)
                if new is not None
            ),
            None,
        )
        if better is None:
            return term
        term = better
    return term
