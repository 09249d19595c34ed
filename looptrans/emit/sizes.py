"""The sizes of a listing, read off the shapes of its arguments.

An extent that is a size gives it: `M` from `Q: Float[Array, "M E"]`. An extent that is linear in
one size not yet known gives that one: `G` from `G * R`, where R is known. An assumption such as
`H == G * R` does the same. All others are compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from looptrans.ir.affine import Form, form_of, index_of
from looptrans.ir.index import Arith, Index, Param, parameters
from looptrans.ir.program import Array


@dataclass(frozen=True, slots=True)
class Solved:
    """A size that a shape determines.

    Attributes:
        name: The size.
        array: The array.
        axis: The dimension of it.
        less: What is subtracted from the extent, or None.
        divisor: What the rest is divided by, or None.
        value: What takes the place of the extent where an assumption such as `H == G * R`
            determines the size; then there is no array.
    """

    name: str
    array: str
    axis: int
    less: Index | None = None
    divisor: Index | None = None
    value: Index | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the extent is the size itself."""
        return self.less is None and self.divisor is None and self.value is None


def solved(
    arrays: Iterable[Array],
    known: Iterable[str],
    equal: Iterable[tuple[Index, Index]] = (),
) -> list[Solved]:
    """Return how sizes are found, in an order in which they can be worked out.

    Args:
        arrays: The arguments that are arrays.
        known: Sizes that must be given, since no shape can determine them.
        equal: Pairs of index expressions that the listing assumes to be equal.
    """
    pairs = [pair for left, right in equal for pair in ((left, right), (right, left))]
    extents = [
        (array.name, axis, declared)
        for array in arrays
        for axis, declared in enumerate(array.shape)
        if declared is not None
    ]
    found: dict[str, Solved] = {}
    for array, axis, declared in extents:
        if isinstance(declared, Param) and declared.name not in found:
            found[declared.name] = Solved(declared.name, array, axis)
    given = set(known)
    changed = True
    while changed:
        changed = False
        for array, axis, declared in extents:
            unknown = [n for n in parameters(declared) if n not in found and n not in given]
            if len(unknown) == 1:
                step = _linear(array, axis, declared, unknown[0])
                if step is not None:
                    found[step.name] = step
                    changed = True
        for value, declared in pairs:
            unknown = [n for n in parameters(declared) if n not in found and n not in given]
            if len(unknown) == 1 and all(n in found or n in given for n in parameters(value)):
                step = _linear("", 0, declared, unknown[0])
                if step is not None:
                    found[step.name] = replace(step, value=value)
                    changed = True
    return list(found.values())


def _linear(array: str, axis: int, declared: Index, name: str) -> Solved | None:
    """Solve `2 * N + 1 = extent` or `G * R = extent` for one size."""
    form = form_of(declared)
    holding = [(term, count) for term, count in form.terms.items() if name in parameters(term)]
    if len(holding) != 1:
        return None
    term, count = holding[0]
    rest = form.plus(Form({term: 1}), -count)
    factor = Form({}, count)
    match term:
        case Param():
            pass
        case Arith("*", Param(left), right) if left == name and name not in parameters(right):
            factor = form_of(right).times(count)
        case Arith("*", left, Param(right)) if right == name and name not in parameters(left):
            factor = form_of(left).times(count)
        case _:
            return None
    divides = not (factor.is_constant and factor.constant == 1)
    less = None if rest.is_constant and rest.constant == 0 else index_of(rest)
    return Solved(name, array, axis, less, index_of(factor) if divides else None)
