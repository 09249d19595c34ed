"""Exponentials inside loops become powers of two, whose factor log2(e) is put with known numbers.

    S = dot(Q, K) * scale                     S_scale = scale * log2(e)        before all loops
    P = exp(S - lse)                  ->      P = exp2(dot(Q, K) * S_scale - lse * log2(e))

A GPU has powers of two only: exp multiplies every element by log2(e) first. It is left as it is
where an element would have to be multiplied all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from looptrans.blocks.arithmetic import (
    LOG2E,
    factors,
    mapped,
    mentions,
    minus,
    negative,
    plus,
    product,
    times,
)
from looptrans.blocks.program import (
    Binary,
    Branch,
    Call,
    ElementLoop,
    Expr,
    Let,
    Name,
    Number,
    Op,
    Position,
    RowBlock,
    Store,
    TileLoop,
    Unary,
    dims_of,
    kind_of,
    walk,
)

Naming = Callable[[str, object], str]
Terms = list[tuple[int, Expr]]


def in_powers_of_two(ops: tuple[Op, ...], naming: Naming) -> tuple[Op, ...]:
    """Write exponentials in loops over blocks as powers of two where that saves a product.

    Args:
        ops: What a program does.
        naming: Gives a free name for a stem and a key, the same for the same key.
    """
    found = _Factors(naming)
    changed = _loops(ops, found)
    return (*found.named.values(), *changed)


def _loops(ops: tuple[Op, ...], found: _Factors) -> tuple[Op, ...]:
    changed: list[Op] = []
    for op in ops:
        match op:
            case TileLoop():
                changed.append(replace(op, body=_body(op.body, found)))
            case ElementLoop() | Branch() | RowBlock():
                changed.append(replace(op, body=_loops(op.body, found)))
            case _:
                changed.append(op)
    return tuple(changed)


@dataclass(slots=True)
class _Factors:
    """The numbers that were given a name before all loops."""

    naming: Naming
    named: dict[Expr, Let] = field(default_factory=dict)

    def name(self, stem: str, factor: Expr) -> Expr:
        if isinstance(factor, Number):
            return factor
        if any(isinstance(part, Name | Position) for part in walk(factor)):
            return factor
        if factor not in self.named:
            name = self.naming(f"{stem}_scale", ("scale", factor))
            self.named[factor] = Let(name, factor, (), "in units of log2(e)")
        return Name(self.named[factor].name, ())


def _body(ops: tuple[Op, ...], found: _Factors) -> tuple[Op, ...]:
    known: dict[str, Let] = {}
    changed: list[Op] = []
    for op in ops:
        if isinstance(op, TileLoop | ElementLoop | Branch | RowBlock):
            changed.append(replace(op, body=_body(op.body, found)))
            for inner in _names_set(op.body):
                _forget(known, inner)
            continue
        if isinstance(op, Store):
            changed.append(op)
            continue
        used: list[Let] = []
        value = mapped(op.value, partial(_power, known=known, used=used, found=found))
        labels = tuple(dict.fromkeys((*(v for let in used for v in let.labels), *op.labels)))
        changed.append(replace(op, value=value, labels=labels) if used else op)
        _forget(known, op.name)
        if op.name not in {part.name for part in walk(op.value) if isinstance(part, Name)}:
            known[op.name] = op
    return tuple(changed)


def _names_set(ops: tuple[Op, ...]) -> set[str]:
    names: set[str] = set()
    for op in ops:
        if isinstance(op, Let):
            names.add(op.name)
        elif isinstance(op, TileLoop | ElementLoop | Branch | RowBlock):
            names |= _names_set(op.body)
    return names


def _forget(known: dict[str, Let], name: str) -> None:
    known.pop(name, None)
    for other, let in list(known.items()):
        if mentions(let.value, name):
            del known[other]


def _power(part: Expr, known: dict[str, Let], used: list[Let], found: _Factors) -> Expr | None:
    """Return an exponential as a power of two, or None where nothing is gained."""
    if not isinstance(part, Call) or part.function != "exp":
        return None
    (argument,) = part.arguments
    whole = set(dims_of(argument))
    if not any(dim.role == "tile" for dim in whole):
        return None
    lets: list[Let] = []
    stem, parts = "", []
    for sign, term in _terms(argument, known, lets):
        vectors, scalar = _split(term)
        if set(dims_of(term)) == whole:
            if scalar is None or vectors is None:
                return None
            stem = stem or next((let.name for let in lets), "exponent")
            scaled = times(vectors, found.name(stem, scalar))
        else:
            scaled = times(term, LOG2E)
        parts.append((sign, scaled))
    if not lets or not stem:
        return None
    used += lets
    total: Expr | None = None
    for sign, term in parts:
        if total is None:
            total = term if sign > 0 else negative(term)
        else:
            total = plus(total, term) if sign > 0 else minus(total, term)
    assert total is not None
    return Call("exp2", (total,))


def _terms(expr: Expr, known: dict[str, Let], lets: list[Let]) -> Terms:
    """Return the terms of a sum with their signs; names of products and sums are opened."""
    match expr:
        case Binary("+" | "-" as op, left, right) if kind_of(expr) == "float":
            sign = 1 if op == "+" else -1
            inner = _terms(right, known, lets)
            return [*_terms(left, known, lets), *((sign * s, term) for s, term in inner)]
        case Unary("-", operand):
            return [(-s, term) for s, term in _terms(operand, known, lets)]
        case Name(name) if name in known:
            let = known[name]
            if set(let.dims) != set(dims_of(let.value)) or not _opens(let.value):
                return [(1, expr)]
            lets.append(let)
            return _terms(let.value, known, lets)
        case _:
            return [(1, expr)]


def _opens(value: Expr) -> bool:
    """Tell whether a value is a sum, or a product with a number."""
    match value:
        case Binary("+" | "-") | Unary("-"):
            return kind_of(value) == "float"
        case _:
            vectors, scalar = _split(value)
            return vectors is not None and scalar is not None


def _split(term: Expr) -> tuple[Expr | None, Expr | None]:
    """Return the vectors of a product, and its numbers times log2(e) where it has any."""
    above, below = factors(term)
    vectors = [part for part in above if dims_of(part)]
    numbers = [part for part in above if not dims_of(part)]
    numbers_below = [part for part in below if not dims_of(part)]
    if not vectors or len(numbers_below) < len(below) or not (numbers or numbers_below):
        return None, None
    return product(vectors), product((*numbers, LOG2E), numbers_below)
