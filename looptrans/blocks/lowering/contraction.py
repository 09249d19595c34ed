"""Sums over a dimension: as matrix products where the shapes allow, else multiplied and reduced.

sum over e of Q[i, e] * K[j, e] * c    ->    dot(Q[i, e], K[j, e]) * c
sum over k of A[i, k] * x[k]           ->    reduce + over k of A[i, k] * x[k]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from looptrans.blocks.block_ir.arithmetic import (
    as_float,
    both,
    conjuncts,
    factors,
    negative,
    plus,
    product,
    terms,
    value_outside,
)
from looptrans.blocks.block_ir.expr import (
    Binary,
    Cast,
    Dim,
    Dot,
    Expr,
    Name,
    Number,
    Position,
    Reduce,
    Where,
    dims_of,
    kind_of,
    union,
)
from looptrans.blocks.block_ir.identities import counted, identity
from looptrans.blocks.lowering.builder import Builder
from looptrans.blocks.lowering.finite import is_finite
from looptrans.blocks.lowering.operands import (
    both_rounded,
    fitting_array,
    held_array,
    in_type,
    input_in,
    is_rounded,
    is_short,
)
from looptrans.blocks.scheduled.serial import RunSerially
from looptrans.ir.monoids import Monoid

Rest: TypeAlias = tuple[tuple[Expr, ...], tuple[Expr, ...]]
"""Factors and divisors that stand outside a sum."""


def summed(b: Builder, value: Expr, over: Dim, mask: Expr | None, onto: Expr | None = None) -> Expr:
    """Return the sum of a value over a dimension.

    Args:
        b: The kernel.
        value: What is summed.
        over: The dimension.
        mask: Which of its iterations count.
        onto: What the sum is added to.
    """
    if kind_of(value) == "int":
        whole_sum = reduced(b, "+", value, over, mask)
        return whole_sum if onto is None else plus(onto, whole_sum)
    parts = [(sign, _term(b, term, over, mask)) for sign, term in _gathered(b, value, over)]
    found = onto
    for sign, (part, rest) in parts:
        whole = isinstance(part, Dot) and rest == ((), ()) and sign > 0
        if whole and found is not None and set(dims_of(found)) <= set(dims_of(part)):
            assert isinstance(part, Dot)
            found = Dot(part.left, part.right, part.rows, part.columns, part.over, found)
            continue
        scaled = _scaled(b, part, rest, over, mask)
        scaled = scaled if sign > 0 else negative(scaled)
        found = scaled if found is None else plus(found, scaled)
    assert found is not None
    return found


def _scaled(b: Builder, part: Expr, rest: Rest, over: Dim, mask: Expr | None) -> Expr:
    """Return a sum times what stands outside it: 0 where nothing counts, whatever that is.

    sum over j with j <= i of x[i, j] / l[i]    ->    where(any j <= i, sum / l[i], 0)
    """
    if rest == ((), ()):
        return part
    scaled = product((*rest[0], part), rest[1])
    if mask is None or not _may_be_empty(b, over, mask) or is_finite(b, product(*rest), None):
        return scaled
    parts = [each for each in conjuncts(mask) if over not in dims_of(each)]
    differing = both(*(each for each in conjuncts(mask) if each not in parts))
    if differing is not None:
        counted = Reduce("max", over, Where(differing, Number(1.0), Number(0.0)))
        parts.append(Binary(">", counted, Number(0.0)))
    counts = both(*parts)
    assert counts is not None
    return Where(counts, scaled, Number(0.0))


def _may_be_empty(b: Builder, over: Dim, mask: Expr | None) -> bool:
    """Tell whether it may be that no iteration of a block counts."""
    # A block beyond the last iteration is not visited.
    sure = conjuncts(b.inside((over,))) if over.role == "tile" else ()
    return not set(conjuncts(mask)) <= set(sure)


def _finite(b: Builder, over: Dim, mask: Expr | None, conjunct: Expr) -> Callable[[Expr], bool]:
    """Return what tells whether a value is surely finite where a condition of a mask fails."""
    dims = None if _may_be_empty(b, over, mask) else {over, *dims_of(conjunct)}
    return partial(is_finite, b, over=dims)


def _gathered(b: Builder, value: Expr, over: Dim) -> tuple[tuple[int, Expr], ...]:
    """Return the terms to be summed apart: those that are matrix products, and all the rest."""
    multiplied = (
        (sign, each) for sign, term in terms(value) for each in _multiplied_out(b, term, over)
    )
    found = tuple((sign, _taken_apart(b, term, over)) for sign, term in multiplied)
    if len(found) == 1:
        return found
    products = [pair for pair in found if _sides(b, _inner(pair[1], over), over) is not None]
    rest = [pair for pair in found if pair not in products]
    if not products:
        return ((1, value),)
    if rest:
        joined = None
        for sign, term in rest:
            signed = term if sign > 0 else negative(term)
            joined = signed if joined is None else plus(joined, signed)
        assert joined is not None
        return (*products, (1, joined))
    return tuple(products)


def _multiplied_out(b: Builder, term: Expr, over: Dim) -> tuple[Expr, ...]:
    """Return a product with a sum as a sum of products, where some of those are matrix products.

    Q[i, e] * (K[j, e] + R[i - j, e])    ->    Q[i, e] * K[j, e]  and  Q[i, e] * R[i - j, e]

    It is done with elements of arrays alone, none of which is rounded, and with no differences: of
    numbers that are nearly the same they would lose what is left. A sum does so where its elements
    have opposite signs: what is lost is of the size of the last digits of each product.
    """
    above, below = factors(term)
    inner = _inner(term, over)
    mixed = [part for part in inner if len(set(dims_of(part)) - {over}) > 1]
    if len(mixed) != 1 or len(inner) < 2 or any(over in dims_of(part) for part in below):
        return (term,)
    addends = [(sign, as_float(part)) for sign, part in terms(_plain(b, mixed[0]))]
    if len(addends) < 2 or any(sign < 0 or held_array(b, part) is None for sign, part in addends):
        return (term,)
    rest = [part for part in above if part is not mixed[0]]
    found = tuple(product([*rest, part], below) for _, part in addends)
    is_better = any(_sides(b, _inner(each, over), over) is not None for each in found)
    return found if is_better else (term,)


def _plain(b: Builder, expr: Expr) -> Expr:
    """Return what a name of the kernel stands for."""
    return b.defined.get(expr.name, expr) if isinstance(expr, Name) else expr


def _taken_apart(b: Builder, term: Expr, over: Dim) -> Expr:
    """Return a term whose choice between a product and 0 is made in one operand of a product.

    where(c[i, j], x[i, j] / s * y[j, d], 0)    ->    where(c[i, j], x[i, j], 0) * y[j, d] / s

    What is left outside is finite, so that 0 times it is 0: where s is 0, nothing is chosen. It
    stays inside where operands are rounded whatever their size.
    """
    above, below = factors(term)
    parts = [_chosen_factors(b, part, over) for part in above]
    if all(part is None for part in parts):
        return term
    apart: list[Expr] = []
    for whole, found in zip(above, parts, strict=True):
        apart += [whole] if found is None else found
    joined = product(apart, below)
    return term if _sides(b, _inner(joined, over), over) is None else joined


def _chosen_factors(b: Builder, expr: Expr, over: Dim) -> list[Expr] | None:
    """Return the factors of a choice between a product and 0, the choice made in the first."""
    if isinstance(expr, Name) and expr.name in b.defined:
        named = b.defined[expr.name]
        # Where it is a number or 0, the number goes in front of the sum.
        if not isinstance(named, Where) or dims_of(named.chosen):
            return None
        expr = named
    if not isinstance(expr, Where) or expr.otherwise != Number(0.0):
        return None
    own = set(dims_of(expr.condition))
    above, below = factors(expr.chosen)
    numbers = [] if b.rounded else [part for part in below if not dims_of(part)]
    divisors = [part for part in below if part not in numbers]
    for part in above:
        # Where the choice does not tell iterations apart, it is made in a factor that they change;
        # so it is where a factor need not be finite in what is not chosen.
        dims = set(dims_of(part))
        summed = over in dims and over not in own
        if own <= dims and (summed or not is_finite(b, part, own)):
            own = dims
    inside = [part for part in above if dims_of(part) and set(dims_of(part)) <= own]
    outside = [part for part in above if part not in inside]
    if over not in own or not all(set(dims_of(part)) <= own for part in divisors):
        return None
    if not all(is_finite(b, part, own) for part in outside):
        return None
    for part in numbers:
        inverse = Binary("/", Number(1.0), part)
        outside.append(Where(Binary("!=", part, Number(0.0)), inverse, Number(0.0)))
    chosen = as_float(product(inside, divisors))
    return [Where(expr.condition, chosen, Number(0.0)), *outside]


def _inner(term: Expr, over: Dim) -> tuple[Expr, ...]:
    above, _ = factors(term)
    return tuple(part for part in above if over in dims_of(part))


def _term(b: Builder, term: Expr, over: Dim, mask: Expr | None) -> tuple[Expr, Rest]:
    above, below = factors(term)
    inner = [part for part in above if over in dims_of(part)]
    outer = tuple(part for part in above if over not in dims_of(part))
    under = [part for part in below if over in dims_of(part)]
    rest = (outer, tuple(part for part in below if over not in dims_of(part)))
    if not inner and not under:
        inner, rest = [term], ((), ())
    # A divisor is a factor as well: 1 / (1 + exp(-s)) * V is a product of two operands.
    operands = (*inner, *(Binary("/", Number(1.0), part) for part in under))
    _require_one_product(b, operands, over)
    sides = _sides(b, operands, over)
    found = _chosen_after(b, operands, over, mask) if sides is None else _dot(b, sides, over, mask)
    if found is None:
        found = reduced(b, "+", product(inner, under), over, mask)
    return found, rest


def _chosen_after(
    b: Builder, operands: tuple[Expr, ...], over: Dim, mask: Expr | None
) -> Expr | None:
    """Return the sum of a choice that is the same for all iterations: of their sum, or 0.

    sum over j of where(c[i, e], x[i, j] * y[j, e], 0)    ->    where(c[i, e], dot(x, y), 0)
    """
    match operands:
        case (Where(condition, chosen, Number(0.0)),) if over not in dims_of(condition):
            if _sides(b, _inner(chosen, over), over) is not None:
                return Where(condition, summed(b, chosen, over, mask), Number(0.0))
    return None


def _require_one_product(b: Builder, operands: tuple[Expr, ...], over: Dim) -> None:
    """Require that no loop over blocks has a matrix product for each of its iterations.

    Raises:
        RunSerially: One has: sum over e of Q[b, i, e] * K[b, j, e] in a loop over b.
    """
    dims = [set(dims_of(part)) - {over} for part in operands]
    for dim, path in b.loops.items():
        one_less = [own - {dim} for own in dims]
        if (
            sum(dim in own for own in dims) > 1
            and len(set().union(*one_less)) == 2
            and all(len(own) <= 1 for own in one_less)
        ):
            raise RunSerially(path, f"each {dim.name} has matrix products of its own")


def _sides(
    b: Builder, inner: tuple[Expr, ...], over: Dim
) -> tuple[tuple[Expr, ...], tuple[Expr, ...], Dim, Dim] | None:
    """Split factors into those of the left and of the right operand of a matrix product.

    A factor of both, as g[e] in Q[i, e] * K[j, e] * g[e], goes where something has to be worked out
    anyway, else to the first that the listing names: all kernels have to round the same product,
    whichever of i and j is a row of theirs, or differences of such sums do not cancel.
    """
    free = [tuple(d for d in dims_of(part) if d != over) for part in inner]
    both_sides = union(*free)
    if len(both_sides) != 2 or any(len(dims) > 1 for dims in free):
        return None
    rows, columns = both_sides
    left = [part for part, dims in zip(inner, free, strict=True) if dims == (rows,)]
    right = [part for part, dims in zip(inner, free, strict=True) if dims == (columns,)]
    neither = [part for part, dims in zip(inner, free, strict=True) if not dims]
    held = [
        len(side) == 1 and (held_array(b, side[0]) is not None or is_short(b, side[0]))
        for side in (left, right)
    ]
    first = next(dims for dims in free if dims)
    if held[0] == held[1]:
        (left if first == (rows,) else right).extend(neither)
    else:
        (right if held[0] else left).extend(neither)
    return tuple(left), tuple(right), rows, columns


def _dot(
    b: Builder,
    sides: tuple[tuple[Expr, ...], tuple[Expr, ...], Dim, Dim],
    over: Dim,
    mask: Expr | None,
) -> Expr | None:
    left_parts, right_parts, rows, columns = sides
    if "element" in (rows.role, columns.role, over.role):
        return None
    b.contract(rows, columns, over)
    held = [
        fitting_array(b, parts[0]) if len(parts) == 1 else None
        for parts in (left_parts, right_parts)
    ]
    left, right = product(left_parts), product(right_parts)
    if held == [None, None]:
        # What every type has is in that of the elements which the other operand is made of.
        if is_short(b, left):
            held[0] = input_in(b, right)
        elif is_short(b, right):
            held[1] = input_in(b, left)
    if held[0] is not None and held[1] is not None:
        left, right = _in_one_type(b, (left, right), (held[0], held[1]))
    elif held[0] is not None and is_rounded(b, right):
        left, right = in_type(b, left, held[0]), Cast(right, like=held[0])
    elif held[1] is not None and is_rounded(b, left):
        left, right = Cast(left, like=held[1]), in_type(b, right, held[1])
    elif (array := both_rounded(b, left, right)) is not None:
        left, right = Cast(left, like=array), Cast(right, like=array)
    else:
        left, right = as_float(left), as_float(right)
    # Where an iteration does not count one operand must be 0, and the other a finite number.
    for conjunct in conjuncts(mask):
        known = known_where(b, conjunct)
        own = set(dims_of(conjunct))
        finite = _finite(b, over, mask, conjunct)
        outside = [value_outside(o, known, conjunct, finite, b.positive) for o in (left, right)]
        is_zero = [value == 0.0 for value in outside]
        if not any(is_zero):
            if own <= {rows, over}:
                left, is_zero[0] = _masked(b, left, conjunct), True
            elif own <= {columns, over}:
                right, is_zero[1] = _masked(b, right, conjunct), True
            else:
                return None
        if not is_zero[1] and not finite(right):
            if not own <= {columns, over}:
                return None
            right = _masked(b, right, conjunct)
        elif not is_zero[0] and not finite(left):
            if not own <= {rows, over}:
                return None
            left = _masked(b, left, conjunct)
    return Dot(left, right, rows, columns, over)


def _in_one_type(b: Builder, operands: tuple[Expr, Expr], held: tuple[str, str]) -> list[Expr]:
    """Return the operands that are elements of two arrays, in the type that both can have.

    One of 16 bits that the listing asks for gives way to that of the inputs.
    """
    types = [b.short.get(array) for array in held]
    if types[0] == types[1]:
        return [in_type(b, each, array) for each, array in zip(operands, held, strict=True)]
    if None not in types:
        return [as_float(each) for each in operands]
    like = held[types.index(None)]
    return [
        in_type(b, each, array) if array == like else Cast(as_float(each), like=like)
        for each, array in zip(operands, held, strict=True)
    ]


def _masked(b: Builder, operand: Expr, conjunct: Expr) -> Expr:
    if isinstance(operand, Cast) and operand.like is not None:
        return Cast(Where(conjunct, operand.operand, Number(0.0)), like=operand.like)
    held = held_array(b, operand)
    if held is not None:
        return Cast(Where(conjunct, as_float(operand), Number(0.0)), like=held)
    return Where(conjunct, operand, Number(0.0))


def known_where(b: Builder, conjunct: Expr) -> dict[str, float]:
    """Return what names are known to be where a condition fails."""
    found = {
        name: float(load.other)
        for name, load in b.read.items()
        if load.other is not None and conjunct in conjuncts(load.mask)
    }
    return found | {name: facts[conjunct] for name, facts in b.known.items() if conjunct in facts}


def reduced(b: Builder, op: Monoid, value: Expr, over: Dim, mask: Expr | None) -> Expr:
    """Return a value reduced over a dimension, counting only where the mask holds."""
    value = counted(op, value if kind_of(value) == "int" else as_float(value))
    neutral = identity(op, value)
    needed: list[Expr] = []
    for conjunct in conjuncts(mask):
        known = known_where(b, conjunct)
        finite = _finite(b, over, mask, conjunct)
        if value_outside(value, known, conjunct, finite, b.positive) != neutral:
            needed.append(conjunct)
    condition = both(*needed)
    if condition is not None:
        value = Where(condition, value, Number(neutral))
    if over not in dims_of(value):
        # The same for every iteration: as many times as there are iterations that count.
        if op in ("max", "min"):
            return value
        every = Binary(">=", Position(over), b.index(over.start))
        value = Where(every, value, Number(neutral))
    return Reduce(op, over, value)
