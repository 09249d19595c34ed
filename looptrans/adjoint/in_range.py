"""What reads of a value stay inside their arrays, found without solving anything.

    if i + 1 < N: s[i] = sum(v[i + 1, d] for d)      ->      s[i] for i + 1 < N only

A listing reads an element under its guards. What is worked out for a whole row beforehand is worked
out only where what it reads is there: nobody looks at it elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from looptrans.adjoint.facts import Facts
from looptrans.ir.affine import form_of
from looptrans.ir.condition import Condition, Data, Relation, negation, walk_condition
from looptrans.ir.index import Index, Int, Param, Var, variables
from looptrans.ir.value import Access, Call, Holds, Read, Reduce, Select, Value, value_children

Extents = Callable[[Access], tuple[Index | None, ...]]


def conditions_of_reads(
    value: Value, facts: Facts, extents: Extents, known: frozenset[str]
) -> tuple[Condition, ...]:
    """Return the conditions under which reads are inside their arrays, but for those that hold.

    Args:
        value: What is read.
        facts: What holds where it is.
        extents: The extents of what an access reads, where it does; None where they are not known.
        known: The variables that a condition may mention.
    """
    found: dict[Condition, None] = {}
    for access, here in _reads(value, facts):
        for index, extent in zip(access.indices, extents(access), strict=False):
            if extent is None or not _is_plain(index, known):
                continue
            for condition in (Relation(">=", index, Int(0)), Relation("<", index, extent)):
                if not here.imply(condition):
                    found[condition] = None
    return tuple(found)


def _is_plain(index: Index, known: frozenset[str]) -> bool:
    """Tell whether a subscript is a sum of several variables, or of one and something else.

    The listing itself says how far a single variable goes.
    """
    form = form_of(index)
    if len(form.terms) < 2 and not form.constant:
        return False
    return set(variables(index)) <= known and all(isinstance(t, Var | Param) for t in form.terms)


def _reads(value: Value, facts: Facts) -> Iterator[tuple[Access, Facts]]:
    """Yield every access that a value reads, and what holds there."""
    match value:
        case Read(access):
            yield access, facts
        case Select(condition, chosen, otherwise):
            yield from _tested(condition, facts)
            yield from _reads(chosen, facts.and_(condition))
            yield from _reads(otherwise, facts.and_(negation(condition)))
        case Call("where", (Holds(condition), chosen, otherwise)):
            yield from _reads(Select(condition, chosen, otherwise), facts)
        case Holds(condition):
            yield from _tested(condition, facts)
        case Reduce(_, generators, body):
            inside = facts
            for g in generators:
                yield from _tested(g.condition, inside)
                inside = inside.inside((g,))
            yield from _reads(body, inside)
        case _:
            for child in value_children(value):
                yield from _reads(child, facts)


def _tested(condition: Condition, facts: Facts) -> Iterator[tuple[Access, Facts]]:
    here = facts.and_(condition)
    for part in walk_condition(condition):
        if isinstance(part, Data):
            yield from _reads(part.value, here)
