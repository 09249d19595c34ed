"""How far a nest goes into arrays whose shape the listing does not declare."""

from __future__ import annotations

from looptrans.blocks.program import NotLowered
from looptrans.blocks.ranges import slope
from looptrans.blocks.sites import Site, sites
from looptrans.ir.affine import extremum, simplified, total
from looptrans.ir.index import Index, Int, Opaque, Var, substitute, variables, walk
from looptrans.ir.program import Program
from looptrans.ir.value import Whole


def reached(program: Program) -> tuple[tuple[str, int, Index], ...]:
    """Return how many elements dimensions of undeclared extent must have.

    What stands under a guard is left out: the guard may be what keeps it inside.

    Raises:
        NotLowered: It cannot be told.
    """
    needed: dict[tuple[str, int], list[Index]] = {}
    for site in sites(program.body):
        array = program.array(site.array)
        if array.role != "input" or site.guards:
            continue
        for axis, (subscript, extent) in enumerate(zip(site.subscripts, array.shape, strict=True)):
            if extent is None and not isinstance(subscript, Whole):
                last = _last(site, subscript)
                if last is None:
                    raise NotLowered(
                        f"{site.label}: it cannot be told how far {array.name} is read; declare "
                        f'its shape, {array.name}: Float[Array, "…"]',
                        site.label or None,
                    )
                needed.setdefault((array.name, axis), []).append(simplified(total(last, 1)))
    return tuple((name, axis, extremum("max", ends)) for (name, axis), ends in needed.items())


def _last(site: Site, subscript: Index) -> Index | None:
    """Return the greatest value of a subscript, over sizes; None where it is not plain."""
    found = subscript
    for binding in reversed(site.bindings):
        if binding.variable not in variables(found):
            continue
        way = slope(found, binding.variable)
        if way is None or binding.range.step != 1:
            return None
        end = total(binding.range.stop, -1) if way > 0 else binding.range.start
        found = substitute(found, {binding.variable: end})
    rest = list(walk(found))
    if any(isinstance(part, Var | Opaque) for part in rest):
        return None
    return found if rest else Int(0)
