"""Arrays that kernels hand to each other in float32, and multiply."""

from __future__ import annotations

from collections.abc import Collection

from looptrans.blocks.block_ir.ops import Let, loaded, ops_in, products_in
from looptrans.blocks.block_ir.program import Kernel


def notes_on_types(kernels: Collection[Kernel], handed: Collection[str]) -> tuple[str, ...]:
    """Return a note on the arrays whose products tensor cores do not work out.

    Args:
        kernels: The kernels of a listing.
        handed: What they hand to each other in float32, as the listing says nothing else.
    """
    multiplied = {array for kernel in kernels for array in _multiplied(kernel)}
    names = [name for name in handed if name in multiplied]
    if not names:
        return ()
    *others, last = names
    listed = f"{', '.join(others)} and {last}" if others else last
    go, are, they = ("go", "are", "they are") if others else ("goes", "is", "it is")
    return (
        f"{listed} {go} from kernel to kernel in float32, and {are} multiplied so, without tensor "
        f"cores; created with dtype=float16 {they} stored, and multiplied, in 16 bits",
    )


def _multiplied(kernel: Kernel) -> set[str]:
    """Return the arrays whose blocks are operands of matrix products."""
    values = {op.name: op.value for op in ops_in(kernel.body) if isinstance(op, Let)}
    products = (product for _, product in products_in(kernel.body))
    loads = (loaded(side, values) for each in products for side in (each.left, each.right))
    return {load.array for load in loads if load is not None}
