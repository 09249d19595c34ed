"""What a contract says of an array whose elements rise from each to the next.

cu[b] <= cu[b + 1]                the elements never fall
cu[b] + n[b] <= cu[b + 1]         from each to the next there is room for n[b]
"""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.ir.affine import Form, difference, form_of, is_same, total
from looptrans.ir.condition import ALWAYS, Condition, Every, Relation
from looptrans.ir.index import Index, Opaque, Var
from looptrans.ir.program import Contract
from looptrans.ir.value import Range

_FORWARD = ("<", "<=", "==")
_BACKWARD = (">", ">=", "==")


@dataclass(frozen=True, slots=True)
class Rise:
    """`array[v] + least <= array[v + 1]` for every v of a range.

    Attributes:
        array: The array.
        variable: What `least` calls v.
        range: The values of v.
        least: How far it rises at least, in elements of other arrays at v.
        is_exact: Whether it rises just as far.
    """

    array: str
    variable: str
    range: Range
    least: Form
    is_exact: bool = False


def rises(contract: Contract) -> tuple[Rise, ...]:
    """Return what a contract says of arrays that rise, one for each of its conjuncts."""
    if len(contract.generators) != 1:
        return ()
    (generator,) = contract.generators
    if generator.condition != ALWAYS or generator.range.step != 1:
        return ()
    condition = contract.condition
    parts = condition.parts if isinstance(condition, Every) else (condition,)
    found = (_rise(part, generator.variable, generator.range) for part in parts)
    return tuple(rise for rise in found if rise is not None)


def _rise(condition: Condition, variable: str, limits: Range) -> Rise | None:
    if not isinstance(condition, Relation):
        return None
    ways: list[Index] = []
    if condition.op in _FORWARD:
        ways.append(difference(condition.right, condition.left))
    if condition.op in _BACKWARD:
        ways.append(difference(condition.left, condition.right))
    here, following = Var(variable), total(Var(variable), 1)
    for way in ways:
        terms = dict(form_of(way).terms)
        for high, factor in terms.items():
            if not isinstance(high, Opaque) or len(high.arguments) != 1 or factor != 1:
                continue
            low = Opaque(high.array, (here,))
            if is_same(high.arguments[0], following) and terms.get(low) == -1:
                constant = form_of(way).constant - (condition.op in ("<", ">"))
                rest = {t: -n for t, n in terms.items() if t not in (low, high)}
                least = Form(rest, -constant)
                return Rise(high.array, variable, limits, least, condition.op == "==")
    return None


def is_positive(form: Form, least: dict[str, Index]) -> bool:
    """Tell whether a sum is at least 0, since each of its terms is an element that is.

    Args:
        form: The sum.
        least: For each array, the least value that is declared of its elements.
    """
    return form.constant >= 0 and all(
        factor > 0 and isinstance(term, Opaque) and _is_positive(least.get(term.array))
        for term, factor in form.terms.items()
    )


def _is_positive(index: Index | None) -> bool:
    if index is None:
        return False
    form = form_of(index)
    return form.is_constant and form.constant >= 0
