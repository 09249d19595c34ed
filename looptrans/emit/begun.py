"""Which sums of matrix products begin with zeros that a compiler takes for numbers.

Two loops after one another add to a sum, and the first may have nothing to do:

    sum = zeros
    for full blocks:       sum = dot(…, sum)      begun, and waited for behind the loop
                                                  or skipped
    for boundary blocks:   sum = dot(…, sum)

On sm_90 a product is begun in one iteration and waited for later, behind the loop at last. Zeros
that are constants may be put into the registers of the sum where the loop is skipped, just before
that wait, wherever LLVM puts something else there as well. ptxas then sees what it must not
(C7515), and waits for each matrix instruction of the kernel. Zeros that are no constants have been
in those registers since before the loop.

LLVM has something to put there where blocks that are loaded, drawn or worked out of places stand
beside the products: their elements have places in both loops. So have those of an operand whose
rows the loop goes along, as over keys that are columns, where a loop has several products, and
begins with no sum itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from looptrans.blocks.block_ir.expr import Call, Cast, Dot, Expr, Load, Name, Number, dims_of, walk
from looptrans.blocks.block_ir.ops import Let, Op, TileLoop, exprs_of, ops_in
from looptrans.blocks.block_ir.program import Kernel
from looptrans.blocks.fitting.footprint import integers_of
from looptrans.ir.index import Param, parameters

BEGUN = "no constants, or ptxas lets each product wait"


def hidden_zeros(ops: Sequence[Op]) -> tuple[str, ...]:
    """Return the sums that two loops or more add products to, beside blocks of other numbers.

    Args:
        ops: What a program does, what is inside of other operations included.
    """
    zeros = dict.fromkeys(
        op.name
        for op in ops
        if isinstance(op, Let) and isinstance(op.value, Number) and len(op.dims) == 2
    )
    added: Counter[str] = Counter()
    for loop in ops:
        if isinstance(loop, TileLoop):
            parts = [e for op in ops_in(loop.body) for expr in exprs_of(op) for e in walk(expr)]
            sums = {part.accumulator for part in parts if isinstance(part, Dot)}
            if _has_blocks_beside(loop, parts):
                added.update(each.name for each in sums if isinstance(each, Name))
    return tuple(name for name in zeros if added[name] > 1)


def size_of(let: Let, kernel: Kernel) -> str | None:
    """Return a size that is never negative and that a kernel is handed as a number, or None.

    That of the rows or columns of a block is preferred: others are 1 more often, which Triton makes
    a constant.
    """
    handed = {s.name for s in kernel.scalars if s.kind == "int"} - set(kernel.constants)
    extents = [extent for array in kernel.arrays for extent in array.shape]
    known = [e.name for e in extents if isinstance(e, Param) and e.name in handed]
    own = [name for dim in let.dims for name in parameters(dim.stop) if name in known]
    return next(iter([*own, *known]), None)


def _has_blocks_beside(loop: TileLoop, parts: Sequence[Expr]) -> bool:
    """Tell whether blocks that are no operands are loaded in a loop, drawn or made of places.

    Or blocks that are operands, but lie the other way around.
    """
    if integers_of(tuple(ops_in(loop.body)))[1]:
        return True
    products = [part for part in parts if isinstance(part, Dot)]
    sides = [side for product in products for side in (product.left, product.right)]
    operands = {side.operand if isinstance(side, Cast) else side for side in sides}
    names = {side.name for side in operands if isinstance(side, Name)}
    lets = [op for op in ops_in(loop.body) if isinstance(op, Let)]
    multiplied = operands | {op.value for op in lets if op.name in names}
    along = any(isinstance(each, Load) and _goes_along(loop, each) for each in multiplied)
    if along and len(products) > 1 and not any(isinstance(let.value, Number) for let in lets):
        return True
    return any(
        len(dims_of(part)) > 1
        and (
            (isinstance(part, Load) and part not in multiplied)
            or (isinstance(part, Call) and part.function == "uniform")
        )
        for part in parts
    )


def _goes_along(loop: TileLoop, load: Load) -> bool:
    """Tell whether a loop goes along the rows of an array, and not from one row to the next."""
    return bool(load.subscripts) and loop.dim in dims_of(load.subscripts[-1])
