"""How wide a kernel's integers are: 32 bits, the type `INDEX` that the launch chooses, or 64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Cast,
    Edge,
    Expr,
    Load,
    Name,
    Position,
    Reduce,
    Scan,
    Unary,
    Where,
    kind_of,
    walk,
)
from looptrans.blocks.block_ir.ops import (
    Branch,
    ElementLoop,
    Let,
    Op,
    RowBlock,
    Store,
    TileLoop,
    exprs_of,
    ops_in,
)


@dataclass(slots=True)
class Widths:
    """The widths of the integers of a kernel.

    Attributes:
        long: Names of those that have 64 bits whatever `INDEX` is.
        wide: Names of those written so far that have the type `INDEX`.
        places: Names of those that take part in a subscript or in an end of a loop, and so are as
            wide as `INDEX`.
    """

    long: frozenset[str] = frozenset()
    wide: set[str] = field(default_factory=set)
    places: frozenset[str] = frozenset()

    @staticmethod
    def of(body: tuple[Op, ...]) -> Widths:
        """Return the widths in a kernel's body before anything of it is written."""
        ops = tuple(ops_in(body))
        lets = [op for op in ops if isinstance(op, Let) and kind_of(op.value) == "int"]
        used = _in_places(ops)
        for let in reversed(lets):
            if let.name in used:
                used |= {part.name for part in walk(let.value) if isinstance(part, Name)}
        # What a loop carries may grow beyond what each iteration has.
        long = set(_carried(body, frozenset()))
        # Both ways through a branch have one type.
        long |= {name for op in ops if isinstance(op, Branch) for name in _set_in(op)} - used
        widths = Widths(frozenset(long & {let.name for let in lets}), places=frozenset(used))
        size = -1
        while size != len(widths.long):
            size = len(widths.long)
            widths.long |= {let.name for let in lets if widths.is_long(let.value)}
        return widths

    def is_long(self, expr: Expr) -> bool:
        """Tell whether an integer has 64 bits."""
        match expr:
            case Name(name):
                return name in self.long
            case Cast(_, to, None):
                return to == "int64"
            case _:
                return any(self.is_long(part) for part in _same_width(expr))

    def is_wide(self, expr: Expr) -> bool:
        """Tell whether an integer has the type `INDEX`, so that its product with a stride has."""
        match expr:
            case Position():
                return True
            case Edge(dim):
                return dim.role == "rows"
            case Name(name):
                return name in self.wide
            case _:
                return any(self.is_wide(part) for part in _same_width(expr))


def _same_width(expr: Expr) -> tuple[Expr, ...]:
    """Return the parts of an integer of which the widest says how wide it is."""
    match expr:
        case Unary("-", operand) | Reduce(_, _, operand) | Scan(_, _, operand):
            return (operand,)
        case Binary("+" | "-" | "*" | "//" | "%", left, right):
            return left, right
        case Call("max" | "min" | "abs", arguments):
            return arguments
        case Where(_, chosen, otherwise):
            return chosen, otherwise
        case _:
            return ()


def accesses_of(op: Op) -> list[tuple[str, tuple[Expr, ...]]]:
    """Return the array accesses of an operation itself, in the order of the text."""
    found = [
        (node.array, node.subscripts)
        for expr in exprs_of(op)
        for node in walk(expr)
        if isinstance(node, Load)
    ]
    if isinstance(op, Store):
        found.append((op.array, op.subscripts))
    return found


def _carried(ops: tuple[Op, ...], before: frozenset[str]) -> Iterator[str]:
    """Yield the names that are set before a loop and in it."""
    for op in ops:
        if isinstance(op, Let):
            before |= {op.name}
        elif isinstance(op, TileLoop | ElementLoop):
            inner = (each.name for each in ops_in(op.body) if isinstance(each, Let))
            yield from before.intersection(inner)
            yield from _carried(op.body, before)
        elif isinstance(op, Branch | RowBlock):
            yield from _carried(op.body, before)


def _set_in(branch: Branch) -> set[str]:
    """Return the names that are set in a branch."""
    every = ops_in((*branch.body, *branch.otherwise))
    return {op.name for op in every if isinstance(op, Let)}


def _in_places(ops: Sequence[Op]) -> set[str]:
    """Return the names that stand in subscripts, or in the ends of loops, themselves."""
    found = [each for op in ops for _, subscripts in accesses_of(op) for each in subscripts]
    loops = (op for op in ops if isinstance(op, TileLoop | ElementLoop | RowBlock))
    found += [end for loop in loops for end in exprs_of(loop)]
    return {part.name for each in found for part in walk(each) if isinstance(part, Name)}
