"""The extents of arrays, as far as they are declared or follow from what rows are made of."""

from __future__ import annotations

from typing import TypeAlias

from looptrans.ir.index import Index
from looptrans.ir.program import Assign, Program
from looptrans.ir.value import Read, Value, Whole, walk_value
from looptrans.ir.walk import placed

Shapes: TypeAlias = dict[str, tuple[Index | None, ...]]


def shapes_of(program: Program) -> Shapes:
    """Return the extents of every array; a local row has those of the rows it is made from."""
    shapes = {array.name: array.shape for array in program.arrays}
    changed = True
    while changed:
        changed = False
        for place in placed(program):
            node = place.node
            if not isinstance(node, Assign):
                continue
            for number, target in enumerate(node.targets):
                if (
                    target.indices
                    or None not in shapes[target.array]
                    or len(target.subscripts) != 1
                ):
                    continue
                value = node.values[min(number, len(node.values) - 1)]
                extent = _row_extent(value, shapes)
                if extent is not None:
                    shapes[target.array] = (extent,)
                    changed = True
    return shapes


def _row_extent(value: Value, shapes: Shapes) -> Index | None:
    for inner in walk_value(value):
        if isinstance(inner, Read) and inner.access.rank == 1:
            access = inner.access
            place = next(n for n, s in enumerate(access.subscripts) if isinstance(s, Whole))
            return shapes[access.array][place]
    return None
