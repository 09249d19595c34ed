"""Which of several loops goes over its array as another loop goes over its own.

    for t: for g: for r: for s: … q[t, g, r, c] * k[s, g, c]

Of t and r, one of which is to share what is read for s: t stands behind nothing in q, as s does in
k; r stands behind g.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from looptrans.ir.affine import form_of
from looptrans.ir.condition import Condition, Relation, walk_condition
from looptrans.ir.index import Extremum, Index, Var, variables
from looptrans.ir.value import Access, Whole


def alike(
    accesses: Iterable[Access],
    candidates: Sequence[str],
    others: Collection[str],
    ends: Iterable[tuple[str, Index]] = (),
    conditions: Iterable[Condition] = (),
) -> str:
    """Return the candidate that is most like one of the others; the last one if none is.

    One that goes along with another by a bound or a condition, as in `j < i + 1`, is, before one
    that stands behind the same variables.

    Args:
        accesses: The elements that are read and written.
        candidates: Variables, outermost first.
        others: Variables; those that no element has together with a candidate count, if there are.
        ends: Variables, with where their loops begin and end.
        conditions: What is asked of them.
    """
    together = [{name, *going_along(end)} for name, end in ends]
    together += [
        {*going_along(part.left), *going_along(part.right)}
        for condition in conditions
        for part in walk_condition(condition)
        if isinstance(part, Relation)
    ]
    subscripts = [_subscripts(access) for access in accesses]
    mine = [s for s in subscripts if _has(s, candidates)]
    its = [s for s in subscripts if not _has(s, candidates)]
    compared = {
        v for names in together for v in candidates if v in names and not names.isdisjoint(others)
    }
    left = [v for v in candidates if v in compared] or candidates
    apart = [v for v in others if not any(_has(s, (v,)) for s in mine)] or others
    places = {place for v in apart for place in _places(its, v, candidates)}
    same = [v for v in left if places & _places(mine, v, candidates)]
    return (same or left)[-1]


def going_along(index: Index) -> set[str]:
    """Return the variables each of which an index follows step by step, as i in `max(0, i - W)`."""
    if isinstance(index, Extremum):
        return set().union(*map(going_along, index.arguments))
    terms = form_of(index).terms
    return {term.name for term, n in terms.items() if isinstance(term, Var) and abs(n) == 1}


def _subscripts(access: Access) -> tuple[frozenset[str], ...]:
    return tuple(
        frozenset() if isinstance(s, Whole) else frozenset(variables(s)) for s in access.subscripts
    )


def _has(subscripts: tuple[frozenset[str], ...], names: Sequence[str]) -> bool:
    return any(not own.isdisjoint(names) for own in subscripts)


def _places(
    accesses: Iterable[tuple[frozenset[str], ...]], name: str, candidates: Sequence[str]
) -> set[frozenset[str]]:
    """Return the variables that stand before a name in each element, without the candidates."""
    found = set()
    for subscripts in accesses:
        for number, names in enumerate(subscripts):
            if name in names:
                before = frozenset[str]().union(*subscripts[:number])
                found.add(before - set(candidates))
                break
    return found
