"""Where sums of exponentials, what has their terms as factors, and maxima are of nothing.

l[i] = sum(exp(S[i, j] - m[i]) for j if ok[i])        l[i] = 0 where ok[i] does not hold
"""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.adjoint.equations.definitions import System, is_same_range
from looptrans.adjoint.equations.facts import Facts
from looptrans.adjoint.equations.recognition import unify
from looptrans.adjoint.equations.sums import Term, expanded, held_together
from looptrans.adjoint.exponentials.tops import Total, runs
from looptrans.algebra.positional.cells import condition_moved, range_moved, value_moved
from looptrans.algebra.positional.values import is_number
from looptrans.ir.condition import ALWAYS, Condition, Data, negation
from looptrans.ir.index import Index, Var
from looptrans.ir.value import Access, Call, Compare, Generator, Read, Reduce, Value, cells_read


@dataclass(frozen=True, slots=True)
class Nothing:
    """Knows where what a listing gathers is nothing.

    Attributes:
        system: The definitions.
        totals: Its sums of exponentials.
    """

    system: System
    totals: dict[str, Total]

    def asked_of(self, guard: Condition) -> Access | None:
        """Return the sum of exponentials that a guard asks to have terms."""
        match guard:
            case Data(Compare(">", Read(access), zero)) if is_number(zero, 0.0):
                return access if access.array in self.totals else None
        return None

    def divisor(self, guard: Condition, value: Value) -> Access | None:
        """Return the sum of exponentials in a value that has no terms where a guard fails."""
        given = negation(guard)
        return next((d for d in self._divisors(value) if self.has_no_terms(d, given)), None)

    def _divisors(self, value: Value) -> list[Access]:
        """Return the sums of exponentials that a value reads."""
        reads = cells_read(value)
        return [access for access in dict.fromkeys(reads) if access.array in self.totals]

    def has_no_terms(self, gathered: Access, given: Condition) -> bool:
        """Tell whether a sum or maximum has no terms where a condition holds."""
        if self.asked_of(negation(given)) == gathered:
            return True
        definition = self.system.definitions[gathered.array]
        assert isinstance(definition.value, Reduce)
        here = dict(zip(definition.variables, gathered.indices, strict=True))
        bound = definition.value.generators
        wanted = [part for g in bound for part in held_together(g.condition)] + runs(bound)
        known = Facts((given,))
        return any(known.refute(condition_moved(part, here)) for part in wanted)


def is_weighed(system: System, above: Access, total: Access) -> bool:
    """Tell whether each term of a sum has an exponential of the terms of another as factor."""
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
        if mine is None or not is_same_range(range_moved(g.range, given), mine.range):
            return False
        needed = condition_moved(g.condition, given)
        if any(part not in term.brackets for part in held_together(needed) if part != ALWAYS):
            return False
    return True
