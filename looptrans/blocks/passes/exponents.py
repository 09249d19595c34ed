"""Exponentials inside loops become powers of two, whose factor log2(e) is put with known numbers.

    S = dot(Q, K) * scale                     S_scale = scale * log2(e)        before all loops
    P = exp(S - lse)                  ->      P = exp2(dot(Q, K) * S_scale - lse * log2(e))

A GPU has powers of two only: exp multiplies every element by log2(e) first, and keeps results too
small to be normal numbers, which takes two products more. Beside matrix products this is saved for
scores also where an element has to be multiplied all the same, since what is taken off it is
multiplied apart, once for each row. Elsewhere memory sets the pace, and exp is left as it is unless
what is taken off was in units of log2(e) before: a maximum that went through natural units and back
would be rounded twice.

    m = m * log(2)                            m_log2 = m
    P = exp(S - m)                    ->      P = exp2(S * log2(e) - m_log2)
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from math import isinf

from looptrans.algebra.makeup import Makeup
from looptrans.blocks.block_ir.arithmetic import (
    LN2,
    LOG2E,
    factors,
    mapped,
    mentions,
    minus,
    negative,
    plus,
    product,
    terms,
    times,
)
from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Cast,
    Dot,
    Expr,
    Load,
    Name,
    Number,
    Position,
    Unary,
    Where,
    dims_of,
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
from looptrans.blocks.passes.masks import makeup_of_expr

Naming = Callable[[str, object], str]
Terms = list[tuple[int, Expr]]


def in_powers_of_two(
    ops: tuple[Op, ...], naming: Naming, logarithms: Collection[str] = ()
) -> tuple[Op, ...]:
    """Write exponentials in loops over blocks as powers of two where that saves work.

    Args:
        ops: What a program does.
        naming: Gives a free name for a stem and a key, the same for the same key.
        logarithms: Arrays of logarithms.
    """
    found = _Factors(naming, _small(ops, logarithms))
    changed = _body(ops, found, {}, beside=_has_products(ops), rows=False)
    return (*found.named.values(), *changed)


@dataclass(slots=True)
class _Factors:
    """The numbers that were given a name before all loops.

    Attributes:
        naming: Gives names.
        small: Names of what is far from the largest float.
        named: The numbers.
    """

    naming: Naming
    small: frozenset[str]
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


@dataclass(slots=True)
class _Twin:
    """A number of a row in units of log2(e), which gets a name where it is asked for.

    Attributes:
        of: Where the number itself is set.
        value: What it is, with marks in the place of other such numbers.
        twins: Those, by their mark.
        name: Its name, once it is asked for.
    """

    of: Let
    value: Expr
    twins: dict[str, _Twin]
    name: str | None = None

    def asked(self, found: _Factors) -> Name:
        """Return its name."""
        if self.name is None:
            self.name = found.naming(f"{self.of.name}_log2", ("twin", self.of))
            for twin in self.twins.values():
                twin.asked(found)
        return Name(self.name, self.of.dims)

    def let(self) -> Let:
        """Return the statement that sets it."""
        assert self.name is not None
        value = mapped(self.value, self._named) if self.twins else self.value
        return Let(self.name, value, self.of.labels, "in units of log2(e)", self.of.dims)

    def _named(self, part: Expr) -> Expr | None:
        twin = self.twins.get(part.name) if isinstance(part, Name) else None
        return None if twin is None else Name(twin.name or "", twin.of.dims)


def _twin_of(let: Let, twins: dict[str, _Twin]) -> _Twin | None:
    """Return what a number is in units of log2(e), where that takes no product of what is in them.

    It was in them before, or is a sum, a choice or an extremum of such numbers and others.
    """
    if let.value == times(Name(let.name, let.dims), LN2):
        return _Twin(let, Name(let.name, let.dims), {})
    used: dict[str, _Twin] = {}
    value = _in_log2(let.value, twins, used)
    return _Twin(let, value, used) if used else None


def _in_log2(expr: Expr, twins: dict[str, _Twin], used: dict[str, _Twin]) -> Expr:
    """Return a number times log2(e); numbers that have a twin stay, and are noted as used."""

    def each(part: Expr) -> Expr:
        return _in_log2(part, twins, used)

    match expr:
        case Name(name) if name in twins:
            used[f"~{name}"] = twins[name]
            return Name(f"~{name}", expr.dims)
        case Number(value) if isinf(value):
            return expr
        case Where(_, chosen, otherwise):
            return replace(expr, chosen=each(chosen), otherwise=each(otherwise))
        case Call("max" | "min", arguments):
            return replace(expr, arguments=tuple(map(each, arguments)))
        case Binary("+" | "-") | Unary("-") if kind_of(expr) == "float":
            return _sum([(sign, each(term)) for sign, term in terms(expr)])
        case _:
            return times(expr, LOG2E)


def _body(
    ops: tuple[Op, ...], found: _Factors, around: dict[str, _Twin], *, beside: bool, rows: bool
) -> tuple[Op, ...]:
    """Write exponentials as powers of two.

    A score is masked where a block is partial, under the name it has: that is known of it still.

    Args:
        ops: Where they are.
        found: The numbers before all loops.
        around: The twins that are set around them.
        beside: Whether matrix products are beside them.
        rows: Whether also those of rows are worked out again and again.
    """
    known: dict[str, Let] = {}
    masked: dict[str, Let] = {}
    twins = dict(around)
    changed: list[Op | _Twin] = []
    for op in ops:
        if isinstance(op, TileLoop | ElementLoop | Branch | RowBlock):
            inside = _names_set(op.body)
            for name in inside:
                _forget(known, name)
                _forget(masked, name)
                twins.pop(name, None)
            looped = isinstance(op, TileLoop | ElementLoop)
            own = _has_products(op.body) if looped else beside
            body = _body(op.body, found, twins, beside=own, rows=rows or looped)
            changed.append(replace(op, body=body))
            continue
        used: list[Let] = []
        within = partial(_power, beside=beside, rows=rows)
        power = partial(within, known=known, masked=masked, twins=twins, used=used, found=found)
        value = _mapped_inside(op.value, power)
        labels = tuple(dict.fromkeys((*(v for let in used for v in let.labels), *op.labels)))
        if isinstance(op, Store):
            changed.append(replace(op, value=value, labels=labels))
            continue
        twin = _twin_of(op, twins)
        if twin is not None:
            changed.append(twin)
        changed.append(replace(op, value=value, labels=labels))
        before = {**known, **masked}.get(op.name)
        _forget(known, op.name)
        _forget(masked, op.name)
        twins.pop(op.name, None)
        if twin is not None:
            twins[op.name] = twin
        if op.name not in {part.name for part in walk(op.value) if isinstance(part, Name)}:
            known[op.name] = op
        elif before is not None and _only_masks(op):
            masked[op.name] = before
    kept = [op for op in changed if not isinstance(op, _Twin) or op.name is not None]
    return tuple(op.let() if isinstance(op, _Twin) else op for op in kept)


def _mapped_inside(expr: Expr, power: Callable[[Expr], Expr | None]) -> Expr:
    """Return an expression with the exponentials written anew that `power` writes, nested ones too.

    An exponential in the exponent of another is the number that it is where it stands alone, as in
    the maximum of these exponents: two roundings of a large score may be far apart.
    """

    def each(part: Expr) -> Expr | None:
        match power(part):
            case Call() as found:
                arguments = tuple(mapped(argument, each) for argument in found.arguments)
                return replace(found, arguments=arguments)
            case found:
                return found

    return mapped(expr, each)


def _only_masks(op: Let) -> bool:
    """Tell whether a statement leaves elements of what it sets as they are, or sets infinities."""
    match op.value:
        case Where(_, Name(name), Number(value)):
            return name == op.name and isinf(value)
        case _:
            return False


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


def _power(
    part: Expr,
    known: dict[str, Let],
    masked: dict[str, Let],
    twins: dict[str, _Twin],
    used: list[Let],
    found: _Factors,
    *,
    beside: bool,
    rows: bool,
) -> Expr | None:
    """Return an exponential as a power of two, or None where nothing is gained."""
    if not isinstance(part, Call) or part.function != "exp":
        return None
    (argument,) = part.arguments
    whole = set(dims_of(argument))
    lets: list[Let] = []
    opened = _terms(argument, known, lets)
    asked = {term.name for _, term in opened if isinstance(term, Name)} & twins.keys()
    otherwise = _taken_off(argument, {**known, **masked}, found.small) if beside else None
    # Outside loops there is no time to be saved.
    if not asked and not any(dim.role == "tile" for dim in whole):
        return otherwise if rows else None
    # What is as large as the least float is not to be multiplied by log2(e).
    if not asked and _makeup(_score_of(argument), known).is_masked:
        return otherwise
    stem = next((let.name for let in lets), "exponent")
    saves = False
    parts: Terms = []
    for sign, term in opened:
        vectors, scalar = _split(term)
        if isinstance(term, Name) and term.name in asked:
            scaled: Expr = twins[term.name].asked(found)
        elif set(dims_of(term)) != whole:
            scaled = times(term, LOG2E)
        elif scalar is not None and vectors is not None:
            scaled = times(vectors, found.name(stem, scalar))
            saves = bool(lets)
        elif asked:
            scaled = times(term, LOG2E)
        else:
            return otherwise
        parts.append((sign, scaled))
    if not saves and not asked:
        return otherwise
    used += lets
    return Call("exp2", (_sum(parts),))


def _taken_off(argument: Expr, known: dict[str, Let], small: Collection[str]) -> Expr:
    """Return the power of two of an element that is multiplied by log2(e) all the same.

    A score that a matrix product is part of has an error of its own size, so that products with
    log2(e) add no worse: what is taken off it is multiplied apart. What is only read may be close
    to what is taken off it, and both be large: their difference is exact, and is not to be opened.

        exp(S - m)    ->    exp2(S * log2(e) - m * log2(e))    or    exp2((S - m) * log2(e))

    A logarithm, which is small, may be taken off the difference apart: it takes no instruction.

        exp(S - m - log_l)    ->    exp2((S - m) * log2(e) - log_l * log2(e))
    """
    match argument:
        case Binary("-", score, taken) if kind_of(argument) == "float":
            apart = set(dims_of(score)) == set(dims_of(argument)) > set(dims_of(taken))
            scored = _is_scored(score, known) and not _makeup(score, known).given
            if apart and (scored or _is_small(taken, small, ())):
                return Call("exp2", (minus(times(score, LOG2E), times(taken, LOG2E)),))
    return Call("exp2", (times(argument, LOG2E),))


def _small(ops: tuple[Op, ...], logarithms: Collection[str]) -> frozenset[str]:
    """Return the names of what is surely far from the largest float, infinite at most."""
    lets: dict[str, list[Expr]] = {}
    for op in ops_in(ops):
        if isinstance(op, Let):
            lets.setdefault(op.name, []).append(op.value)
    found: set[str] = set()
    for name, values in lets.items():
        if all(_is_small(value, found, logarithms) for value in values):
            found.add(name)
    return frozenset(found)


def _is_small(expr: Expr, small: Collection[str], logarithms: Collection[str]) -> bool:
    match expr:
        case Name(name):
            return name in small
        case Load(array):
            return array in logarithms
        case Number(value):
            return abs(value) <= 1.0 or isinf(value)
        case Call("log" | "log2", _):
            return True
        case Cast(operand) | Unary("-", operand):
            return _is_small(operand, small, logarithms)
        case Where(_, chosen, otherwise):
            return all(_is_small(part, small, logarithms) for part in (chosen, otherwise))
        case _:
            return False


def _score_of(argument: Expr) -> Expr:
    """Return what is left of an exponent without the numbers of rows or columns taken off it."""
    match argument:
        case Binary("-", score, taken) if kind_of(argument) == "float":
            if set(dims_of(score)) == set(dims_of(argument)) > set(dims_of(taken)):
                return _score_of(score)
    return argument


def _makeup(score: Expr, known: dict[str, Let]) -> Makeup:
    return makeup_of_expr(score, {name: let.value for name, let in known.items()})


def _is_scored(expr: Expr, known: dict[str, Let]) -> bool:
    """Tell whether a matrix product is part of a value."""
    return any(
        isinstance(part, Dot)
        or (isinstance(part, Name) and part.name in known and _is_made(part.name, known))
        for part in walk(expr)
    )


def _is_made(name: str, known: dict[str, Let]) -> bool:
    rest = {other: let for other, let in known.items() if other != name}
    return _is_scored(known[name].value, rest)


def _has_products(ops: tuple[Op, ...]) -> bool:
    """Tell whether matrix products are among some operations and those in their branches."""
    return any(
        _has_products(op.body)
        if isinstance(op, Branch | RowBlock)
        else not isinstance(op, TileLoop | ElementLoop)
        and any(isinstance(part, Dot) for expr in exprs_of(op) for part in walk(expr))
        for op in ops
    )


def _sum(parts: Terms) -> Expr:
    """Return a sum."""
    total: Expr | None = None
    for sign, term in parts:
        if total is None:
            total = term if sign > 0 else negative(term)
        else:
            total = plus(total, term) if sign > 0 else minus(total, term)
    assert total is not None
    return total


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
