"""What contracts say of an array whose elements rise from each to the next.

cu[b] <= cu[b + 1]                the elements never fall
cu[b] + n[b] <= cu[b + 1]         from each to the next there is room for n[b]
stop[b] <= start[b + 1]           there is room for stop[b] - start[b]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from looptrans.ir.affine import Form, difference, form_of, is_same, total
from looptrans.ir.condition import ALWAYS, Condition, Relation, conjuncts
from looptrans.ir.index import Index, Int, Opaque, Var, substitute
from looptrans.ir.program import Contract
from looptrans.ir.value import Generator, Range

_FORWARD = ("<", "<=", "==")
_BACKWARD = (">", ">=", "==")


@dataclass(frozen=True, slots=True)
class Rise:
    """`array[v] + least <= array[v + 1]` for every v of a range.

    Attributes:
        array: The array.
        variable: What `least` calls v.
        range: The values of v.
        least: How far it rises at least, in elements of arrays at v.
        is_exact: Whether it rises just as far.
        is_far: Whether all elements behind that of v, up to the last one, are as far from it.
    """

    array: str
    variable: str
    range: Range
    least: Form
    is_exact: bool = False
    is_far: bool = False


def rises(contract: Contract) -> tuple[Rise, ...]:
    """Return what a contract says of arrays that rise, one for each of its conjuncts."""
    match contract.generators:
        case (generator,) if generator.condition == ALWAYS and generator.range.step == 1:
            variable, later, limits = generator.variable, None, generator.range
        case (one, other):
            found = _before(one, other) or _before(other, one)
            if found is None:
                return ()
            variable, later, limits = found
        case _:
            return ()
    each = (_rise(part, variable, later, limits) for part in conjuncts(contract.condition))
    return tuple(rise for rise in each if rise is not None)


def _before(first: Generator, second: Generator) -> tuple[str, str, Range] | None:
    """Return two variables of one range the first of which is less, and the range it has."""
    one, other = Var(first.variable), Var(second.variable)
    start, stop = first.range.start, second.range.stop
    if first.range.step != 1 or second.range.step != 1:
        return None
    if first.condition == ALWAYS and second.condition == ALWAYS:
        if first.range == Range(second.range.start, other):
            return one.name, other.name, Range(start, total(stop, -1))
        apart = is_same(second.range.start, total(one, 1))
    else:
        below = {Relation("<", one, other), Relation(">", other, one)}
        apart = {first.condition, second.condition} - below == {ALWAYS}
        apart = apart and first.range == second.range
    if not apart or not any(is_same(stop, total(first.range.stop, n)) for n in (0, 1)):
        return None
    return one.name, other.name, Range(start, total(stop, -1))


def _rise(condition: Condition, variable: str, later: str | None, limits: Range) -> Rise | None:
    """Read one conjunct.

    Args:
        condition: The conjunct.
        variable: The variable of the contract.
        later: A variable that stands for everything behind that, if there is one.
        limits: The values of the variable.
    """
    for form in _differences(condition):
        for high, factor in form.terms.items():
            if not isinstance(high, Opaque) or len(high.arguments) != 1 or factor != 1:
                continue
            ahead = form_of(difference(high.arguments[0], Var(later or variable)))
            if not ahead.is_constant or (later is not None and ahead.constant):
                continue
            here = Var(variable)
            moved = form.plus(Form({high: 1}), -1)
            bounds = limits
            if later is None:
                # Counted so that the next element is that of v + 1.
                back = 1 - ahead.constant
                moved = _substituted(moved, variable, total(here, back))
                bounds = Range(total(limits.start, -back), total(limits.stop, -back))
            elif any(Var(later) in term.arguments for term in _elements(moved)):
                continue
            if any(t.arguments == (here,) for t in _elements(moved)):
                least = moved.times(-1).plus(Form({Opaque(high.array, (here,)): 1}), -1)
                is_exact = isinstance(condition, Relation) and condition.op == "=="
                return Rise(high.array, variable, bounds, least, is_exact, later is not None)
    return None


def _elements(form: Form) -> Iterator[Opaque]:
    return (term for term in form.terms if isinstance(term, Opaque))


def _substituted(form: Form, variable: str, value: Index) -> Form:
    found = Form({}, form.constant)
    for term, factor in form.terms.items():
        found = found.plus(form_of(substitute(term, {variable: value})), factor)
    return found


def _differences(condition: Condition) -> Iterator[Form]:
    """Yield what a condition says is at least 0."""
    if not isinstance(condition, Relation):
        return
    least = Form({}, 1 if condition.op in ("<", ">") else 0)
    if condition.op in _FORWARD:
        yield form_of(difference(condition.right, condition.left)).plus(least, -1)
    if condition.op in _BACKWARD:
        yield form_of(difference(condition.left, condition.right)).plus(least, -1)


def is_positive(form: Form, least: Mapping[str, Index]) -> bool:
    """Tell whether a sum is at least 0, since each of its terms is an element that is.

    Args:
        form: The sum.
        least: For each array, the least value that is declared of its elements.
    """
    return form.constant >= 0 and all(
        factor > 0 and isinstance(term, Opaque) and _is_positive(least.get(term.array))
        for term, factor in form.terms.items()
    )


def why_positive(
    rise: Rise, contracts: Sequence[Contract], least: Mapping[str, Index]
) -> tuple[Contract, ...] | None:
    """Return the contracts that say that an array never falls where it is known to rise.

    `stop[b] <= start[b + 1]` says that `start` rises by `stop[b] - start[b]`, and that this is at
    least 0 is what `start[b] <= stop[b]` says.

    Args:
        rise: How far it rises.
        contracts: All contracts.
        least: For each array, the least value that is declared of its elements.

    Returns:
        The contracts, none where declared values are enough; None where nothing says so.
    """
    if is_positive(rise.least, least):
        return ()
    for contract in contracts:
        match contract.generators:
            case (Generator(variable, limits, condition),) if condition == ALWAYS:
                pass
            case _:
                continue
        if limits.step != 1 or not _is_within(rise.range, limits):
            continue
        for part in conjuncts(contract.condition):
            for form in _differences(part):
                said = _substituted(form, variable, Var(rise.variable))
                if is_positive(rise.least.plus(said, -1), least):
                    return (contract,)
    return None


def _is_within(inner: Range, outer: Range) -> bool:
    ends = difference(inner.start, outer.start), difference(outer.stop, inner.stop)
    return all(isinstance(end, Int) and end.value >= 0 for end in ends)


def _is_positive(index: Index | None) -> bool:
    if index is None:
        return False
    form = form_of(index)
    return form.is_constant and form.constant >= 0
