"""Which blocks of rows have most to do: they should begin first.

Programs begin in the order of their numbers. Where row i visits the keys up to i, the last rows
take longest; begun last, they would run on while most of the machine has nothing left to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Cast,
    Dim,
    Edge,
    Expr,
    Load,
    Name,
    Number,
    Position,
    Scalar,
    Unary,
)
from looptrans.blocks.block_ir.ops import Let, Op, TileLoop, ops_in


def grows(grid: tuple[Dim, ...], ops: tuple[Op, ...]) -> bool:
    """Tell whether the later blocks of the fastest dimension of a grid have more to do.

    Only the order of programs hangs on it, so it may be wrong.

    Args:
        grid: The dimensions of the grid, the slowest first.
        ops: What a program does.
    """
    if not grid or grid[-1].role != "rows":
        return False
    found: dict[Dim, list[TileLoop]] = {}
    lets: dict[str, Expr] = {}
    for op in ops_in(ops):
        if isinstance(op, TileLoop):
            found.setdefault(op.dim, []).append(op)
        elif isinstance(op, Let):
            lets.setdefault(op.name, op.value)
    trends = {
        (_trend(loops[0].start, grid[-1], lets), _trend(loops[-1].stop, grid[-1], lets))
        for loops in found.values()
    }
    return any(start == 0 and stop == 1 for start, stop in trends) and not any(
        start == 1 and stop == 0 for start, stop in trends
    )


def _trend(expr: Expr, rows: Dim, lets: Mapping[str, Expr]) -> int | None:
    """Return 1 for a number that grows with the rows, -1 for one that falls, 0 for the same."""

    def of(part: Expr) -> int | None:
        return _trend(part, rows, lets)

    match expr:
        case Edge(dim, _) | Position(dim):
            return int(dim == rows)
        case Number() | Scalar() | Load():
            return 0
        case Name(name) if name in lets:
            return of(lets[name])
        case Cast(operand):
            return of(operand)
        case Unary("-", operand):
            inner = of(operand)
            return None if inner is None else -inner
        case Binary("+", left, right):
            return _joined((of(left), of(right)))
        case Binary("-", left, right):
            return _joined((of(left), of(Unary("-", right))))
        case Binary("*" | "//", left, Number() | Scalar()):
            return of(left)
        case Call("max" | "min", arguments):
            return _joined(map(of, arguments))
        case _:
            return None


def _joined(trends: Iterable[int | None]) -> int | None:
    """Return the one direction there is; None where there are several."""
    found = set(trends) - {0}
    return found.pop() if len(found) == 1 else None if found else 0
