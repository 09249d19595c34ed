"""What a nest asks of its loops, and in which order they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from looptrans.adjoint.equations.solving import replacing
from looptrans.adjoint.written.nests import Nest
from looptrans.ir.affine import difference, is_same, sides, total
from looptrans.ir.alike import alike
from looptrans.ir.condition import Condition, Relation
from looptrans.ir.index import (
    Arith,
    Index,
    Int,
    Opaque,
    Var,
    children,
    opaque_terms,
    rebuild,
    variables,
)
from looptrans.ir.rewrite import access_changed, condition_changed, value_changed
from looptrans.ir.value import Access, Binary, Generator, Read, Reduce, Value, walk_value


def rows_innermost(nest: Nest) -> Nest:
    """Of the loops of a sum, let the one be innermost that is most like a loop around the sum.

    for s: for t: for r: dk[s] += dS * q[t, g, r]    ->    for s: for r: for t: dk[s] += …

    Blocks are of the innermost loop. What another loop's range hangs on stays outside of it, and
    what chooses what is read.
    """
    around = nest.kept
    summed = [g for g in nest.loops if g.variable not in around]
    inner = {g.variable for g in nest.loops[-len(summed) :]} if summed else set()
    if len(summed) < 2 or inner != {g.variable for g in summed}:
        return nest
    if not all(u.adds for u in nest.updates):
        return nest
    bounds = [end for g in nest.loops for end in g.range.ends]
    asked = {*chosen_by(nest.conditions), *(name for end in bounds for name in variables(end))}
    candidates = [g.variable for g in summed if g.variable not in asked]
    if len(candidates) < 2:
        return nest
    made = {s.cell.array for s in nest.scalars}
    values = [s.value for s in nest.scalars] + [u.value for u in nest.updates]
    read = [p.access for v in values for p in walk_value(v) if isinstance(p, Read)]
    ends = [(g.variable, end) for g in nest.loops for end in g.range.ends]
    apart = [access for access in read if access.array not in made]
    chosen = alike(apart, candidates, around, ends, nest.conditions)
    if chosen == candidates[-1]:
        return nest
    loops = sorted(nest.loops, key=lambda g: g.variable == chosen)
    return replace(nest, loops=tuple(loops))


def asked_first(
    conditions: tuple[Condition, ...],
    loops: tuple[Generator, ...],
    extents: Callable[[Access], tuple[Index | None, ...]],
) -> tuple[Condition, ...]:
    """Ask first what is read, where loops alone say that it is there: others may ask for rows."""
    stops = {g.variable: g.range.stop for g in loops if g.range.start == Int(0)}

    def is_inside(at: Index, extent: Index | None) -> bool:
        return isinstance(at, Var) and extent in sides("min", stops.get(at.name, at))

    def is_there(condition: Condition) -> bool:
        return any(
            all(map(is_inside, old.arguments, extents(Access(old.array, old.arguments))))
            for old, _ in _said([condition])
        )

    return tuple(sorted(conditions, key=lambda each: not is_there(each)))


def asked_of_pairs(nest: Nest, conditions: Iterable[Condition]) -> dict[str, Index]:
    """Return the cells that are looked up for each pair of rows whose product a nest works out.

        for c: for i: for j: if bucket[i, j] == c:  s = sum(Q[i, e] * K[j, e] for e);  d[c] += s

    As the condition is another one for each i and j, no rows of both are left to be multiplied: the
    products are worked out once for all c, and added to the cell that is looked up. That is done
    for numbers, not for rows of them.
    """
    if any(u.inner or not u.adds for u in nest.updates):
        return {}
    own = nest.kept
    pairs = [pair for s in nest.scalars for pair in _multiplied(s.value)]
    found: dict[str, Index] = {}
    for condition in conditions:
        match condition:
            case Relation("==", value, Var(name)) | Relation("==", Var(name), value) if (
                name in own and opaque_terms(value)
            ):
                asked = {n for term in opaque_terms(value) for n in variables(term)}
                if name not in variables(value) and any(
                    asked & one and asked & other for one, other in pairs
                ):
                    found.setdefault(name, value)
            case _:
                pass
    return found


def _multiplied(value: Value) -> Iterator[tuple[set[str], set[str]]]:
    """Yield which variables tell the rows apart on the two sides of each product in a sum."""
    for part in walk_value(value):
        match part:
            case Reduce("sum", _, Binary("*", left, right)):
                sides = [
                    {
                        name
                        for read in walk_value(side)
                        if isinstance(read, Read)
                        for name in read.access.variables
                    }
                    for side in (left, right)
                ]
                yield sides[0] - sides[1], sides[1] - sides[0]
            case _:
                pass


def chosen_by(conditions: Iterable[Condition]) -> list[str]:
    """Return the variables of what is read, and asked whether it is a certain index."""
    return [name for old, _ in _said(conditions) for name in variables(old)]


def _said(conditions: Iterable[Condition]) -> list[tuple[Opaque, Var]]:
    """Return what is read where conditions say that it is an index: `page[b, t] == c`."""
    found = []
    for condition in conditions:
        match condition:
            case Relation("==", Opaque() as old, Var() as new):
                found.append((old, new))
            case Relation("==", Var() as new, Opaque() as old):
                found.append((old, new))
            case _:
                pass
    return found


def with_what_is_known(nest: Nest) -> Nest:
    """Write simpler what loops and conditions tell.

    `h // R` is `g` inside `for h in range(g * R, g * R + R)`, `(q * P + p) // P` is `q` inside
    `for p in range(0, P)`, and `page[b, q]` is `c` under `if page[b, q] == c`.
    """
    for loop in nest.loops:
        for one, other in _factors(loop.range.start):
            stop = total(loop.range.start, other)
            if loop.range.step == 1 and any(
                is_same(e, stop) for e in sides("min", loop.range.stop)
            ):
                nest = _changed(nest, replacing(Arith("//", Var(loop.variable), other), one))
    below = [
        (loop.variable, loop.range.stop)
        for loop in nest.loops
        if loop.range.step == 1 and loop.range.start == Int(0)
    ]
    nest = _changed(nest, lambda index: _digit(index, below))
    for old, new in _said(nest.conditions):
        made = _changed(nest, replacing(old, new))
        nest = replace(nest, scalars=made.scalars, updates=made.updates)
    return nest


def _factors(index: Index) -> tuple[tuple[Index, Index], ...]:
    """Return the two factors of a product, either first; nothing for another index."""
    match index:
        case Arith("*", one, other):
            return (one, other), (other, one)
        case _:
            return ()


def _digit(index: Index, below: list[tuple[str, Index]]) -> Index:
    """Return an index with `(q * P + p) // P` as `q`, `% P` as `p`, where p is below P."""
    parts = children(index)
    index = rebuild(index, tuple(_digit(part, below) for part in parts)) if parts else index
    match index:
        case Arith("//" | "%" as op, left, divisor):
            for name, stop in below:
                if stop != divisor or name not in variables(left):
                    continue
                for one, other in _factors(difference(left, Var(name))):
                    if other == divisor:
                        return Var(name) if op == "%" else one
        case _:
            pass
    return index


def _changed(nest: Nest, change: Callable[[Index], Index]) -> Nest:
    """Change the index expressions of conditions, values and cells."""
    return replace(
        nest,
        conditions=tuple(condition_changed(c, change) for c in nest.conditions),
        scalars=tuple(
            replace(s, cell=access_changed(s.cell, change), value=value_changed(s.value, change))
            for s in nest.scalars
        ),
        updates=tuple(replace(u, value=value_changed(u.value, change)) for u in nest.updates),
    )
