"""Masked blocks before and behind the full ones of a sum are done in one loop.

    for j_first in range(j_start, min(j_begun, j_stop)): masked
    for j_first in range(j_begun, j_full): full
    for j_first in range(j_full, j_stop): masked

becomes

    for j_first in range(j_begun, j_full): full
    for j_first in range(j_start, j_stop), but for those from j_begun to j_full: masked

A loop begins by waiting for its first loads, and ends by waiting for its last products: under a
window there are few blocks to each. The order of the blocks is another then, so all that the loops
hand on has to be sums.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.blocks.block_ir.arithmetic import mentions
from looptrans.blocks.block_ir.expr import Binary, Call, Dot, Name, names_of
from looptrans.blocks.block_ir.ops import Branch, ElementLoop, Let, Op, RowBlock, TileLoop, exprs_of

_NOTE = "some rows have not begun, or have ended"


def both_ends(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Return operations in which sums do the masked blocks at both ends of a loop together.

    Args:
        ops: What a program does.
    """
    return _joined(ops, frozenset())


def _joined(ops: tuple[Op, ...], after: frozenset[str]) -> tuple[Op, ...]:
    """Return operations, of whose names some are looked at later, in that form."""
    found: list[Op] = []
    for number, op in enumerate(ops):
        later = after | _exposed(ops[number + 1 :])
        if isinstance(op, ElementLoop | TileLoop):
            found.append(replace(op, body=_joined(op.body, later | _exposed(op.body))))
        elif isinstance(op, RowBlock):
            found.append(replace(op, body=_joined(op.body, later)))
        elif isinstance(op, Branch):
            parts = _joined(op.body, later), _joined(op.otherwise, later)
            found.append(replace(op, body=parts[0], otherwise=parts[1]))
        else:
            found.append(op)
        one = _one(found[-3:], later)
        if one is not None:
            found[-3:] = one
    return tuple(found)


def _one(ops: list[Op], later: frozenset[str]) -> list[Op] | None:
    """Return the full and then the masked blocks of three loops, where the order may be so."""
    match ops:
        case [
            TileLoop(dim, start, until, "boundary", body),
            TileLoop(same, begun, full, "full", inner) as middle,
            TileLoop(last, behind, stop, "boundary", other) as ending,
        ] if dim == same == last and behind == full and until == Call("min", (begun, stop)):
            lets, fuller, others = _lets(body), _lets(inner), _lets(other)
            if lets is None or fuller is None or others is None:
                return None
            if _unlabelled(lets) != _unlabelled(others) or not _are_sums((lets, fuller), later):
                return None
            named = max(others, lets, key=lambda each: sum(len(let.labels) for let in each))
            pause = (begun, full)
            return [middle, replace(ending, start=start, body=named, pause=pause, note=_NOTE)]
        case _:
            return None


def _lets(ops: tuple[Op, ...]) -> tuple[Let, ...] | None:
    """Return operations that do no more than set names, else None."""
    lets = tuple(op for op in ops if isinstance(op, Let))
    return lets if len(lets) == len(ops) else None


def _unlabelled(lets: tuple[Let, ...]) -> tuple[Let, ...]:
    """Return operations without what they tell the reader."""
    return tuple(replace(let, labels=(), note="") for let in lets)


def _are_sums(bodies: tuple[tuple[Let, ...], ...], later: frozenset[str]) -> bool:
    """Tell whether all that an iteration hands to others, and to what follows, are sums."""
    handed = later.union(*map(_exposed, bodies))
    return all(let.name not in handed or _is_added(let, body) for body in bodies for let in body)


def _is_added(let: Let, body: tuple[Let, ...]) -> bool:
    """Tell whether an iteration adds to a name, and neither looks at it nor sets it besides."""
    name = let.name
    others = [other for other in body if other is not let]
    if any(other.name == name or mentions(other.value, name) for other in others):
        return False
    match let.value:
        case Dot(accumulator=Name(first)) if first == name:
            return not mentions(replace(let.value, accumulator=None), name)
        case Binary("+" | "-", Name(first), term) if first == name:
            return not mentions(term, name)
        case _:
            return False


def _exposed(ops: tuple[Op, ...]) -> frozenset[str]:
    """Return the names that are looked at before they are surely set."""
    found: set[str] = set()
    known: set[str] = set()
    for op in ops:
        looked_at = {name for expr in exprs_of(op) for name in names_of(expr)}
        match op:
            case TileLoop(body=body) | ElementLoop(body=body) | RowBlock(body=body):
                looked_at |= _exposed(body)
            case Branch(_, body, otherwise):
                looked_at |= _exposed(body) | _exposed(otherwise)
        found |= looked_at - known
        if isinstance(op, Let):
            known.add(op.name)
    return frozenset(found)
