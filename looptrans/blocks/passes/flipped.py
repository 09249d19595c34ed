"""Blocks that are loaded in the order of the array's dimensions, where blocks have the other one.

An operand of a matrix product may stand either way, `tl.dot(a, tl.trans(b))`, and is read best as
it lies: `B[k, j]`, where j comes before k in a block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from looptrans.blocks.block_ir.expr import Dot, Load, Name, dims_of, walk
from looptrans.blocks.block_ir.ops import Let, Op, exprs_of


def flipped(ops: Sequence[Op]) -> set[str]:
    """Return the names of loads that are operands of matrix products alone and lie the other way.

    Args:
        ops: What a program does, what is inside of other operations included.
    """
    loads = [(op.name, op.value) for op in ops if isinstance(op, Let)]
    names = {name for name, value in loads if isinstance(value, Load) and is_reversed(value)}
    names -= {name for name, value in loads if not isinstance(value, Load)}
    names -= {name for name, value in loads if isinstance(value, Load) and not is_reversed(value)}
    nodes = [node for op in ops for expr in exprs_of(op) for node in walk(expr)]
    operands = Counter(
        side.name
        for node in nodes
        if isinstance(node, Dot)
        for side in (node.left, node.right)
        if isinstance(side, Name)
    )
    uses = Counter(node.name for node in nodes if isinstance(node, Name))
    return {name for name in names if uses[name] == operands[name]}


def is_reversed(load: Load) -> bool:
    """Tell whether a load has two dimensions, each in one subscript, in falling order."""
    parts = [*load.subscripts, *([load.mask] if load.mask is not None else [])]
    leaves = [node for part in parts for node in walk(part) if isinstance(node, Name | Load)]
    order = [dim.order for subscript in load.subscripts for dim in dims_of(subscript)]
    return (
        len(order) == 2 and order[0] > order[1] and all(len(dims_of(leaf)) < 2 for leaf in leaves)
    )
