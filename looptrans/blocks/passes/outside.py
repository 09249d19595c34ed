"""A factor that is the same for all blocks: applied once, behind the loop over them.

    for i:                                       for i:
        dS_scaled = dS * scale            ->         dK = dot(dS, Q[i], dK)
        dK = dot(dS_scaled, Q[i], dK)            dK = dK * scale

The sum is the same over the reals; the factor is applied to as many elements as the sum has, and
not to those of every block. It is done where what is left in the loop has a factor of at most 1, as
the weights of attention are: other values could be too large for 16 bits without their scale.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from looptrans.blocks.block_ir.arithmetic import as_float, factors, mapped, mentions, product
from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Cast,
    Dot,
    Expr,
    Name,
    Number,
    Scalar,
    Unary,
    Where,
    children,
    dims_of,
    walk,
)
from looptrans.blocks.block_ir.ops import (
    Branch,
    ElementLoop,
    Let,
    Op,
    RowBlock,
    TileLoop,
    exprs_of,
    ops_in,
)
from looptrans.blocks.lowering.builder import Builder
from looptrans.blocks.lowering.magnitude import is_at_most_one
from looptrans.ir.index import parameters

# A literal that is smaller could hide that a value does not fit 16 bits.
_SMALLEST = 2.0**-10


def outside(b: Builder, ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Return what a program does, with the factors of its sums behind their loops.

    Args:
        b: The kernel.
        ops: What a program does.
    """
    uses = Counter(
        part.name
        for op in ops_in(ops)
        for expr in exprs_of(op)
        for part in walk(expr)
        if isinstance(part, Name)
    )
    return _outside(b, ops, uses, frozenset())


@dataclass(frozen=True, slots=True)
class _Scaled:
    """An operand of a product without its factors.

    Attributes:
        name: The value with the factors.
        bare: The value without.
        factors: The factors and divisors, numbers.
        labels: The statements the value with the factors comes from.
    """

    name: str
    bare: Expr
    factors: tuple[tuple[Expr, ...], tuple[Expr, ...]]
    labels: tuple[str, ...]


def _outside(
    b: Builder, ops: tuple[Op, ...], uses: Counter[str], before: frozenset[str]
) -> tuple[Op, ...]:
    """Do so for the sums that begin among some operations.

    Args:
        b: The kernel.
        ops: The operations.
        uses: How often each name is looked at in the whole program.
        before: What has been named once and for all before them.
    """
    found: list[Op] = []
    named = before
    for op in ops:
        if isinstance(op, TileLoop | ElementLoop | Branch | RowBlock):
            found.append(replace(op, body=_outside(b, op.body, uses, named)))
        else:
            found.append(op)
        if isinstance(op, Let) and sum(_sets(each, op.name) for each in ops_in(ops)) == 1:
            named |= {op.name}
    for op in reversed(ops):
        if isinstance(op, Let) and op.value == Number(0.0):
            found = _without(b, found, op.name, uses, before)
    return tuple(found)


def _without(
    b: Builder, ops: list[Op], total: str, uses: Counter[str], before: frozenset[str]
) -> list[Op]:
    """Return operations with the factors of one sum behind the last loop that adds to it."""
    places = [at for at, op in enumerate(ops) if any(_sets(each, total) for each in ops_in([op]))]
    first, *adding = places
    if not adding or not all(isinstance(ops[at], TileLoop | ElementLoop) for at in adding):
        return ops
    within = list(ops_in(ops[first + 1 : adding[-1] + 1]))
    if any(isinstance(op, Branch | RowBlock) for op in within):
        return ops
    inside = [op for op in within if any(mentions(expr, total) for expr in exprs_of(op))]
    lets = [op for op in within if isinstance(op, Let)]
    constant = before | {op.name for op in ops[:first] if isinstance(op, Let)}
    constant -= {op.name for op in lets}
    scaled = [_scaled(b, op, total, lets, uses, constant) for op in inside]
    one = scaled[0] if scaled else None
    if one is None or any(each is None or each.factors != one.factors for each in scaled):
        return ops
    bare = {each.name: each.bare for each in scaled if each is not None}
    done = [each for op in ops[: adding[-1] + 1] for each in _replaced(op, total, bare)]
    init = ops[first]
    assert isinstance(init, Let)
    whole = product((*one.factors[0], Name(total, init.dims)), one.factors[1])
    return [*done, Let(total, whole, one.labels, dims=init.dims), *ops[adding[-1] + 1 :]]


def _scaled(
    b: Builder, op: Op, total: str, lets: list[Let], uses: Counter[str], constant: frozenset[str]
) -> _Scaled | None:
    """Return the operand with factors of a product that is added to a sum."""
    if not isinstance(op, Let) or op.name != total or not isinstance(op.value, Dot):
        return None
    dot = op.value
    if not isinstance(dot.accumulator, Name) or dot.accumulator.name != total:
        return None
    for side in (dot.left, dot.right):
        name = _within(side)
        setting = [let for let in lets if name is not None and let.name == name.name]
        if name is None or not setting or uses[name.name] != len(setting):
            continue
        above, below = factors(setting[0].value)
        outer = [part for part in above if _is_constant(part, constant)]
        under = [part for part in below if _is_constant(part, constant)]
        # Where the loop does not run at all the sum is 0, whatever stands outside.
        sizes = {name for dim in dims_of(dot) for name in parameters(dim.extent)}
        sure = [part for part in outer if _is_finite(b, part)]
        if any(not _is_of(p, sizes) for p in (*(p for p in outer if p not in sure), *under)):
            continue
        inner = [part for part in above if part not in outer]
        if {*outer, *under} - {Number(1.0)} and inner and len({let.value for let in setting}) == 1:
            bare = as_float(product(inner, [part for part in below if part not in under]))
            known = set(dims_of(bare)) == set(name.dims) and not _is_stale(bare, name, op, lets)
            if known and _has_weight(b, bare):
                labels = tuple(dict.fromkeys((*setting[0].labels, *op.labels)))
                return _Scaled(name.name, bare, (tuple(outer), tuple(under)), labels)
    return None


def _is_stale(bare: Expr, name: Name, use: Let, lets: list[Let]) -> bool:
    """Tell whether a value is made of names that are set anew between its own name and its use."""
    at = next(n for n, let in enumerate(lets) if let is use)
    since = next((n for n in reversed(range(at)) if lets[n].name == name.name), None)
    if since is None:
        return True
    return any(mentions(bare, let.name) for let in lets[since + 1 : at])


def _has_weight(b: Builder, expr: Expr) -> bool:
    """Tell whether a product has a factor that differs for its elements and is at most 1."""
    above, below = factors(expr)
    if any(dims_of(part) for part in below):
        return False
    return any(
        bool(dims_of(part) and is_at_most_one(b, part))
        or (
            isinstance(part, Name)
            and part.name in b.defined
            and _has_weight(b, b.defined[part.name])
        )
        for part in above
    )


def _within(operand: Expr) -> Name | None:
    """Return the name an operand stands for: rounded, or 0 where it does not count."""
    match operand:
        case Name():
            return operand if operand.holds is None else None
        case Cast(inner, _, like) if like is not None:
            return _within(inner)
        case Where(_, chosen, Number(0.0)):
            return _within(chosen)
        case _:
            return None


def _is_constant(part: Expr, constant: frozenset[str]) -> bool:
    """Tell whether a factor is the same number in all iterations."""
    match part:
        case Number(value):
            return abs(value) >= _SMALLEST
        case Scalar():
            return True
        case Name(name, dims):
            return not dims and name in constant
        case Binary() | Unary() | Call() | Cast(_, _, None):
            return all(_is_constant(each, constant) for each in children(part))
        case _:
            return False


def _is_finite(b: Builder, part: Expr) -> bool:
    """Tell whether a number is surely finite, as arguments are, without a look at its divisors."""
    match part:
        case Number() | Scalar():
            return True
        case Name(name):
            return name in b.defined and _is_finite(b, b.defined[name])
        case Unary("-", operand) | Cast(operand):
            return _is_finite(b, operand)
        case Binary("+" | "-" | "*", left, right):
            return _is_finite(b, left) and _is_finite(b, right)
        case _:
            return False


def _is_of(part: Expr, sizes: set[str]) -> bool:
    """Tell whether a number is a product of literals and sizes without which nothing is there."""
    match part:
        case Number(value):
            return value != 0
        case Scalar(name):
            return name in sizes
        case Binary("*" | "/", left, right):
            return _is_of(left, sizes) and _is_of(right, sizes)
        case Cast(operand) | Call("sqrt", (operand,)):
            return _is_of(operand, sizes)
        case _:
            return False


def _replaced(op: Op, total: str, bare: dict[str, Expr]) -> tuple[Op, ...]:
    """Return an operation in which operands have lost their factors; nothing for their names."""
    if isinstance(op, TileLoop | ElementLoop):
        return (
            replace(op, body=tuple(e for each in op.body for e in _replaced(each, total, bare))),
        )
    if isinstance(op, Let) and op.name in bare:
        return ()
    if isinstance(op, Let) and op.name == total:
        return (replace(op, value=mapped(op.value, lambda part: _bare(part, bare))),)
    return (op,)


def _bare(part: Expr, bare: dict[str, Expr]) -> Expr | None:
    return bare.get(part.name) if isinstance(part, Name) else None


def _sets(op: Op, name: str) -> bool:
    return isinstance(op, Let) and op.name == name
