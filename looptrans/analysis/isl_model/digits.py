"""Subscripts of arrays that are laid out by hand, as the digits they are made of.

    X[(b * H + h) * W + w]    is, for 0 <= h < H and 0 <= w < W,    X[b, h, w]

Two addresses are equal where their digits are, so products of variables and sizes, of which
formulas know little, are not needed. It is done where every access of an array is a sum of
multiples of the same products of sizes, each a factor of the next, and every digit but the first
is shown to stay below its base wherever the access happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import islpy as isl

from looptrans.analysis.isl_model.constraints import has_terms, plain_constraints, split
from looptrans.analysis.isl_model.formula import Notation, conjunction
from looptrans.analysis.isl_model.normal import Normalizer
from looptrans.analysis.isl_model.shapes import Shapes
from looptrans.ir.affine import Form, index_of
from looptrans.ir.condition import Condition, Relation, Some, compared
from looptrans.ir.index import Arith, Index, Int, Neg, Opaque, Param, Var, opaque_terms, parameters
from looptrans.ir.value import Whole

if TYPE_CHECKING:
    from looptrans.analysis.isl_model.model import AccessModel

T = TypeVar("T")
Product: TypeAlias = tuple[str, ...]
Unit: TypeAlias = tuple[int, Product]
Multiples: TypeAlias = dict[Product, Form]


@dataclass(frozen=True, slots=True)
class Layout:
    """How one dimension of an array is made of digits.

    Attributes:
        array: The array.
        dimension: Which of its dimensions, as it is written.
        units: What the digits are multiplied by, a number and a product of sizes; the largest
            first.
    """

    array: str
    dimension: int
    units: tuple[Unit, ...]


def in_digits(
    accesses: tuple[AccessModel, ...],
    shapes: Shapes,
    normal: Normalizer,
    written: frozenset[str] = frozenset(),
) -> tuple[tuple[AccessModel, ...], Shapes, tuple[Layout, ...]]:
    """Take subscripts apart into digits where that is shown to be the same.

    Args:
        accesses: All accesses of a program in normal form.
        shapes: The extents of each array, where known.
        normal: What made the normal forms.
        written: Arrays that are to be left as they are written.

    Returns:
        The accesses, the extents, and what was taken apart.
    """
    layouts: list[Layout] = []
    functions = {name for name, known in normal.arithmetic.items() if known.op == "*"}
    multiplied = {a.array for a in accesses if any(t.array in functions for t in a.terms)}
    for array in [name for name in shapes if name in multiplied]:
        own = [access for access in accesses if access.array == array]
        if array in written or not any(access.is_write for access in own):
            continue
        for dimension in reversed(range(len(shapes[array]))):
            taken = _taken_apart(own, dimension, normal)
            if taken is None:
                continue
            layout, digits, bases = taken
            layouts.append(layout)
            extents = (_first_extent(shapes[array][dimension], layout, normal), *bases)
            shapes = {**shapes, array: _with(shapes[array], dimension, extents)}
            by_number = {id(access): each for access, each in zip(own, digits, strict=True)}
            accesses = tuple(
                _spread(access, dimension, by_number[id(access)])
                if id(access) in by_number
                else access
                for access in accesses
            )
            own = [access for access in accesses if access.array == array]
    return accesses, shapes, tuple(layouts)


def _spread(access: AccessModel, dimension: int, digits: tuple[Index, ...]) -> AccessModel:
    subscripts = _with(access.subscripts, dimension, digits)
    indices = [s for s in subscripts if not isinstance(s, Whole)]
    indices += [end for g in access.generators for end in g.range.ends]
    indices += compared(access.condition)
    terms = dict.fromkeys(term for index in indices for term in opaque_terms(index))
    return replace(access, subscripts=subscripts, terms=tuple(terms))


def _with(items: Sequence[T], number: int, others: Iterable[T]) -> tuple[T, ...]:
    return (*items[:number], *others, *items[number + 1 :])


def _taken_apart(
    own: Sequence[AccessModel], dimension: int, normal: Normalizer
) -> tuple[Layout, list[tuple[Index, ...]], tuple[Index, ...]] | None:
    """Return how a dimension is made of digits, those of each access, and the bases."""
    sums: list[Multiples] = []
    for access in own:
        subscript = access.subscripts[dimension]
        found = None if isinstance(subscript, Whole) else multiples(subscript, normal)
        if found is None:
            return None
        sums.append(found)
    for seen in (sums, *_counted(sums)):
        taken = _units_and_digits(own, seen, normal)
        if taken is not None:
            break
    else:
        return None
    units, digits, spelled = taken
    array = own[0].array
    bases = tuple(normal.index(base) for base in spelled)
    return Layout(array, dimension, tuple(units)), digits, bases


def _counted(sums: Sequence[Multiples]) -> Iterator[list[Multiples]]:
    """Yield the sums with a size taken for a digit: `t * P * N` is `t` times (P, N)."""
    fixed = {p for each in sums for p, form in each.items() if form.is_constant}
    for name in dict.fromkeys(name for product in sorted(fixed) for name in product):
        digit = Form({Param(name): 1})
        found: list[Multiples] = []
        for each in sums:
            whole: Multiples | None = {}
            for product, form in each.items():
                part = {product: form}
                if name in product and form.is_constant:
                    at = product.index(name)
                    left = (*product[:at], *product[at + 1 :])
                    part = {left: digit.times(form.constant)}
                whole = _plus(whole, part, 1)
            found.append(whole or {})
        yield found


def _units_and_digits(
    own: Sequence[AccessModel], sums: Sequence[Multiples], normal: Normalizer
) -> tuple[list[Unit], list[tuple[Index, ...]], list[Index]] | None:
    """Return what digits are multiplied by, those of each access, and how many there are of each.

    None where it is not shown that the digits are those of one number only.
    """
    products = sorted({(), *(p for each in sums for p in each)}, key=lambda p: (-len(p), p))
    varying = {p for each in sums for p, form in each.items() if p and not form.is_constant}
    units = [(_number(sums, product) if product else 1, product) for product in products]
    if not varying or not all(_divides(b, a) for a, b in pairwise(units)):
        return None
    spelled = [_spelled(_quotient(larger, smaller)) for larger, smaller in pairwise(units)]
    # A product is made a parameter only where it will be needed.
    bases = tuple(Normalizer(normal.sizes).index(base) for base in spelled)
    digits = []
    for access, each in zip(own, sums, strict=True):
        forms = [_digit(each.get(product, Form()), number) for number, product in units]
        for digit, base in zip(forms[1:], bases, strict=True):
            if not _stays_below(access, digit, base):
                return None
        digits.append(tuple(forms))
    return units, digits, spelled


def multiples(index: Index, normal: Normalizer) -> Multiples | None:
    """Return an index expression as a sum of multiples of products of sizes.

    `(b * H + h) * W + w` is `b` times (H, W), `h` times (W), and `w` times (). None where it is
    no such sum.
    """
    match index:
        case Int(value):
            return {(): Form({}, value)}
        case Param(name):
            factors = normal.factors.get(name, (index,))
            names = tuple(sorted(f.name for f in factors if isinstance(f, Param)))
            return {names: Form({}, 1)} if len(names) == len(factors) else None
        case Neg(operand):
            return _plus({}, multiples(operand, normal), -1)
        case Arith("+" | "-" as op, left, right):
            return _plus(multiples(left, normal), multiples(right, normal), 1 if op == "+" else -1)
        case Arith("*", left, right):
            return _times(multiples(left, normal), multiples(right, normal))
        case Opaque(function, arguments) if function in normal.arithmetic:
            known = normal.arithmetic[function]
            if known.op != "*":
                return None
            return _times(multiples(arguments[0], normal), multiples(known.size, normal))
        case _ if any(term.array in normal.arithmetic for term in opaque_terms(index)):
            return None
        case _:
            return {(): Form({index: 1})}


def _plus(first: Multiples | None, second: Multiples | None, factor: int) -> Multiples | None:
    if first is None or second is None:
        return None
    found = dict(first)
    for product, form in second.items():
        found[product] = found.get(product, Form()).plus(form, factor)
    return {product: form for product, form in found.items() if form != Form()}


def _times(first: Multiples | None, second: Multiples | None) -> Multiples | None:
    if first is None or second is None:
        return None
    found: Multiples | None = {}
    for one, form in first.items():
        for other, times in second.items():
            varying, number = (times, form) if form.is_constant else (form, times)
            if not number.is_constant:
                return None
            product = tuple(sorted((*one, *other)))
            found = _plus(found, {product: varying.times(number.constant)}, 1)
    return found


def _number(sums: Sequence[Multiples], product: Product) -> int:
    """Return the number that all multiples of a product of sizes are multiples of."""
    forms = [each[product] for each in sums if product in each]
    return gcd(*(number for form in forms for number in (form.constant, *form.terms.values())))


def _digit(form: Form, number: int) -> Index:
    terms = {term: count // number for term, count in form.terms.items()}
    return index_of(Form(terms, form.constant // number))


def _divides(small: Unit, large: Unit) -> bool:
    return Counter(small[1]) < Counter(large[1]) and large[0] % small[0] == 0


def _quotient(large: Unit, small: Unit) -> Unit:
    names = sorted((Counter(large[1]) - Counter(small[1])).elements())
    return large[0] // small[0], tuple(names)


def _spelled(unit: Unit) -> Index:
    number, names = unit
    factors: list[Index] = [Param(name) for name in names]
    if number != 1 or not factors:
        factors.insert(0, Int(number))
    return reduce(lambda left, right: Arith("*", left, right), factors)


def _first_extent(extent: Index | None, layout: Layout, normal: Normalizer) -> Index | None:
    """Return how many first digits there are, where the extent is a multiple of the rest."""
    found = None if extent is None else multiples(extent, normal)
    if found is None or len(found) != 1:
        return None
    (product, form), (number, names) = next(iter(found.items())), layout.units[0]
    if not form.is_constant or form.constant % number or not Counter(names) <= Counter(product):
        return None
    return normal.index(_spelled(_quotient((form.constant, product), (number, names))))


def _stays_below(access: AccessModel, digit: Index, base: Index) -> bool:
    """Tell whether 0 <= digit < base wherever an access happens."""
    if opaque_terms(digit):
        return False
    outside = Some((Relation("<", digit, Int(0)), Relation(">=", digit, base)))
    return not _happens(access, (outside,))


def _happens(access: AccessModel, more: Sequence[Condition]) -> bool:
    """Tell whether an access may happen where some conditions hold."""
    parts = [*plain_constraints(access.statement), *more]
    names = {b.variable: f"i{n}" for n, b in enumerate(access.statement.bounds)}
    for generator in access.generators:
        names[generator.variable] = f"i{len(names)}"
        here, limits = Var(generator.variable), generator.range
        low: Condition = Relation(">=" if limits.step > 0 else "<=", here, limits.start)
        high: Condition = Relation("<" if limits.step > 0 else ">", here, limits.stop)
        parts += [c for end in (low, high) for c in split(end) if not has_terms(c)]
    parts += [c for c in split(access.condition) if not has_terms(c)]
    sizes = dict.fromkeys(
        name for condition in parts for side in compared(condition) for name in parameters(side)
    )
    called = {name: f"p{n}" for n, name in enumerate(sizes)}
    notation = Notation(called, names, {})
    formula = conjunction(notation.condition(each) for each in parts)
    dims = ", ".join(f"i{n}" for n in range(len(names)))
    points = isl.Set(f"[{', '.join(called.values())}] -> {{ [{dims}] : {formula} }}")
    return not points.is_empty()
