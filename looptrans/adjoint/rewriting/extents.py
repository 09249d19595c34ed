"""How many values the variable of a loop may have at most, as contracts and types say.

for i in range(0, M)                                                             M
for i in range(0, n[b])            all(0 <= n[b] <= M for b in range(0, B))      M
for i in range(cu[b], cu[b + 1])   cu never falls; cu[0] == 0; cu[B] == T        T
"""

from __future__ import annotations

from collections.abc import Iterator

from looptrans.ir.affine import is_same, simplified, total
from looptrans.ir.condition import ALWAYS, MIRRORED, Comparison, Relation, conjuncts
from looptrans.ir.index import Index, Int, Opaque, Var, lets, opaque_terms, variables
from looptrans.ir.program import Loop, Program
from looptrans.transforms.rows.segments import segments_of


def extent_of(program: Program, loop: Loop) -> Index | None:
    """Return a size that the variable of a loop stays below, never being negative.

    Args:
        program: The program.
        loop: One of its loops.

    Returns:
        The size; None where none is known.
    """
    if loop.range.step != 1 or not _is_natural(program, simplified(loop.range.start)):
        return None
    end = simplified(loop.range.stop)
    if not variables(end) and not opaque_terms(end) and not lets(end):
        return end
    return _most(program, end) if isinstance(end, Opaque) else None


def _is_natural(program: Program, start: Index) -> bool:
    """Tell whether an index is surely not negative."""
    match start:
        case Int(value):
            return value >= 0
        case Opaque():
            declared = program.array(start.array).value_range
            lows = [low for op, low in _said(program, start) if op in (">=", ">", "==")]
            if declared is not None:
                lows.append(declared[0])
            return any(isinstance(low, Int) and low.value >= 0 for low in lows)
        case _:
            return False


def _most(program: Program, end: Opaque) -> Index | None:
    """Return a size that an element of an array is not larger than."""
    declared = program.array(end.array).value_range
    if declared is not None:
        return total(declared[1], -1)
    sizes = [high for op, high in _said(program, end) if op in ("<=", "==")]
    return next((s for s in sizes if not variables(s) and not opaque_terms(s)), None)


def _said(program: Program, element: Opaque) -> Iterator[tuple[Comparison, Index]]:
    """Yield how contracts compare an element of an array, or an end of a rising one."""
    (*shape,) = program.array(element.array).shape
    known = segments_of(program).get(element.array)
    for contract in program.contracts:
        ranges = {g.variable: g.range for g in contract.generators if g.condition == ALWAYS}
        for part in conjuncts(contract.condition):
            if not isinstance(part, Relation):
                continue
            for op, left, right in (
                (part.op, part.left, part.right),
                (MIRRORED[part.op], part.right, part.left),
            ):
                if not isinstance(left, Opaque) or left.array != element.array:
                    continue
                whole = all(
                    isinstance(a, Var)
                    and a.name in ranges
                    and ranges[a.name].step == 1
                    and is_same(ranges[a.name].start, Int(0))
                    and extent is not None
                    and is_same(ranges[a.name].stop, extent)
                    for a, extent in zip(left.arguments, shape, strict=True)
                )
                end = None if known is None or contract.generators else known.last
                ends: tuple[Index, ...] = () if end is None else (Int(0), end)
                place = left.arguments[0] if len(left.arguments) == 1 else None
                if whole:
                    yield op, right
                elif ends and place is not None:
                    first, last = (is_same(place, each) for each in ends)
                    if (first and op in (">=", ">", "==")) or (last and op in ("<=", "<", "==")):
                        yield (">=" if first else "<="), right
