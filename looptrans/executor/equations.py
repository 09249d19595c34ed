"""Sizes that the equations of a listing determine.

assert L == 2 * T + 3 * K    ->    L, once T and K are known
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from looptrans.ir.affine import Form, difference, form_of, index_of
from looptrans.ir.condition import Relation
from looptrans.ir.index import Index, Param, parameters
from looptrans.ir.program import Program


def determined(program: Program, kept: Collection[str] = ()) -> dict[str, Index]:
    """Return sizes that are sums of others by a contract, each with that sum.

    An equation is solved for a size that is never negative where the others are not, if it has one.

    Args:
        program: The listing.
        kept: Sizes that should rather be among the others.
    """
    found: dict[str, Index] = {}
    for form in equations(program):
        best: tuple[tuple[bool, bool], str, Index] | None = None
        for term, factor in form.terms.items():
            if not isinstance(term, Param) or abs(factor) != 1 or term.name in found:
                continue
            others = form.plus(Form({term: factor}), -1).times(-factor)
            index = index_of(others)
            if _leads_to(term.name, index, found):
                continue
            rank = any(count < 0 for count in others.terms.values()), term.name in kept
            if best is None or rank < best[0]:
                best = rank, term.name, index
        if best is not None:
            found[best[1]] = best[2]
    return found


def solved(sums: Iterable[Form], name: str, values: Mapping[str, int]) -> Iterator[int]:
    """Yield the values that sums of sizes, which are 0, leave a size, the others being known."""
    for form in sums:
        factor = form.terms.get(Param(name))
        others = {p: n for p, n in form.terms.items() if isinstance(p, Param) and p.name != name}
        if factor is None or not all(p.name in values for p in others):
            continue
        rest = form.constant + sum(n * values[p.name] for p, n in others.items())
        if rest % factor == 0:
            yield -rest // factor


def steps(name: str, sums: Mapping[str, Index]) -> int:
    """Return how many sums lead to a size, one after the other; 0 where it is none."""
    own = parameters(sums[name]) if name in sums else ()
    return max((1 + steps(each, sums) for each in own), default=int(name in sums))


def equations(program: Program) -> Iterator[Form]:
    """Yield the sums of sizes that are 0 by a contract."""
    for condition in program.stated:
        match condition:
            case Relation("==", left, right):
                form = form_of(difference(left, right))
                if all(isinstance(term, Param) for term in form.terms):
                    yield form
            case _:
                pass


def _leads_to(name: str, index: Index, found: Mapping[str, Index]) -> bool:
    """Tell whether an index expression needs a size, itself or for another one that is in it."""
    return any(
        each == name or (each in found and _leads_to(name, found[each], found))
        for each in parameters(index)
    )
