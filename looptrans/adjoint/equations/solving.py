"""Which iterations read a given cell: subscripts solved for the loops' variables.

    d[y] += sum(term for the reader's loops if subscript == y)

A subscript that is a loop variable makes that variable y. One that is affine in a variable gives it
a value and a bound; `h // R` leaves R values of h; any other (an element of an integer array) stays
a condition, a Kronecker delta.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from looptrans.adjoint.equations.definitions import plain_name
from looptrans.adjoint.equations.facts import Facts, bounds_of
from looptrans.adjoint.equations.sums import Term, bracketed, mentioned, term_moved
from looptrans.algebra.positional.cells import condition_moved
from looptrans.ir.affine import Form, extremum, form_of, index_of, is_same, simplified, total
from looptrans.ir.condition import MIRRORED, Condition, Relation, compared, is_of_indices
from looptrans.ir.index import (
    Arith,
    Extremum,
    Index,
    Int,
    Opaque,
    Var,
    children,
    opaque_terms,
    rebuild,
    variables,
)
from looptrans.ir.program import Array
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.rewrite import condition_changed, range_changed, value_changed
from looptrans.ir.value import Generator, Range


def solved(
    term: Term,
    subscripts: tuple[Index, ...],
    target: tuple[Generator, ...],
    stated: tuple[Condition, ...] = (),
    arrays: tuple[Array, ...] = (),
) -> Term:
    """Return the part of a term that reaches one cell.

    Args:
        term: What is added, summed over all iterations of the reader.
        subscripts: The cell an iteration reads.
        target: The indices of the array that is read.
        stated: What the listing assumes.
        arrays: Those that may stand in subscripts.
    """
    own = {g.variable for g in term.generators}
    open_ = list(range(len(subscripts)))
    given = list(subscripts)
    for step in (_variable, _affine, _divided, _remainder):
        for number in list(open_):
            done = step(term, given[number], target[number], stated)
            if done is None:
                continue
            term, change = done
            given = [change(index) for index in given]
            open_.remove(number)
    for number in open_:
        here = Var(target[number].variable)
        term = bracketed(term, Relation("==", given[number], here))
    shapes = {array.name: array.shape for array in arrays}
    for index in given:
        for read in opaque_terms(index):
            term = _read_inside(term, read, shapes.get(read.array, ()), own)
    return term


def _read_inside(term: Term, read: Opaque, shape: tuple[Index | None, ...], own: set[str]) -> Term:
    """End the loops that the listing does not have where an array ends that is read in them."""
    ends = {
        at.name: extent
        for at, extent in zip(read.arguments, shape, strict=False)
        if isinstance(at, Var) and at.name not in own and extent is not None
    }
    return replace(
        term,
        generators=tuple(
            replace(
                g, range=replace(g.range, stop=extremum("min", (g.range.stop, ends[g.variable])))
            )
            if g.variable in ends
            else g
            for g in term.generators
        ),
    )


_Done = tuple[Term, Callable[[Index], Index]]


def _variable(
    term: Term, index: Index, target: Generator, stated: tuple[Condition, ...]
) -> _Done | None:
    own = {g.variable: g for g in term.generators}
    if not isinstance(index, Var) or index.name not in own:
        return None
    return _put(term, own[index.name], Var(target.variable))


def _affine(
    term: Term, index: Index, target: Generator, stated: tuple[Condition, ...]
) -> _Done | None:
    own = {g.variable: g for g in term.generators}
    form = form_of(index)
    for name in variables(index):
        factor = form.terms.get(Var(name), 0)
        others = form.plus(Form({Var(name): factor}), -1) if factor else form
        if name in own and abs(factor) == 1 and name not in variables(index_of(others)):
            here = form_of(Var(target.variable))
            value = index_of(here.plus(others, -1).times(factor))
            if _can_be_ordered(term, name, value):
                return _put(term, own[name], value)
    return None


def _can_be_ordered(term: Term, name: str, value: Index) -> bool:
    """Tell whether no range would mention its own variable, once a variable has a value."""
    waiting = {
        g.variable: {v for end in g.range.ends for v in variables(_substituted(end, {name: value}))}
        for g in term.generators
        if g.variable != name
    }
    while waiting:
        ready = [v for v, needs in waiting.items() if not needs & set(waiting)]
        if not ready:
            return False
        for v in ready:
            del waiting[v]
    return True


def _put(
    term: Term, generator: Generator, value: Index, bounds: tuple[Condition, ...] | None = None
) -> _Done:
    """Put a value for a variable, under bounds that say it is in its range."""
    indices = {generator.variable: value}
    rest = replace(
        term, generators=tuple(g for g in term.generators if g.variable != generator.variable)
    )
    if bounds is None:
        bounds = bounds_of(generator.variable, generator.range)
    rest = bracketed(rest, *bounds)
    moved = term_moved(rest, indices)
    return moved, lambda index: simplified(_substituted(index, indices))


def _substituted(index: Index, indices: dict[str, Index]) -> Index:
    if isinstance(index, Var):
        return indices.get(index.name, index)
    parts = children(index)
    return rebuild(index, tuple(_substituted(p, indices) for p in parts)) if parts else index


def _divided(
    term: Term, index: Index, target: Generator, stated: tuple[Condition, ...]
) -> _Done | None:
    own = {g.variable: g for g in term.generators}
    match index:
        case Arith("//", Var(name), divisor) if name in own and not variables(divisor):
            pass
        case _:
            return None
    generator = own[name]
    if generator.range.step != 1 or not is_same(generator.range.start, Int(0)):
        return None
    here = Var(target.variable)
    start = Arith("*", here, divisor)
    stop: Index = Arith("+", start, divisor)
    if not _is_product(generator.range.stop, target.range.stop, divisor, stated):
        stop = Extremum("min", (generator.range.stop, stop))

    change = replacing(index, here)
    mine = replace(generator, range=Range(start, stop))
    others = tuple(
        mine if g.variable == name else replace(g, range=range_changed(g.range, change))
        for g in term.generators
    )
    factors = tuple((value_changed(a, change), p) for a, p in term.factors)
    brackets = tuple(condition_changed(c, change) for c in term.brackets)
    return replace(term, factors=factors, brackets=brackets, generators=others), change


def _remainder(
    term: Term, index: Index, target: Generator, stated: tuple[Condition, ...]
) -> _Done | None:
    """Go over quotients where a remainder is given: j % P is p for j = q * P + p alone."""
    own = {g.variable: g for g in term.generators}
    match index:
        case Arith("%", Var(name), divisor) if name in own and not variables(divisor):
            pass
        case _:
            return None
    generator, here = own[name], Var(target.variable)
    if generator.range.step != 1 or not is_same(generator.range.start, Int(0)):
        return None
    if not is_same(target.range.start, Int(0)) or not is_same(target.range.stop, divisor):
        return None
    variable = f"{plain_name(name)}_block{name.removeprefix(plain_name(name))}"
    stop = Arith("//", total(_of_few(generator.range.stop), divisor, -1), divisor)
    more = replace(generator, variable=variable, range=Range(Int(0), stop))
    change = replacing(Arith("//", Var(name), divisor), Var(variable))
    factors = tuple((value_changed(a, change), p) for a, p in term.factors)
    brackets = tuple(condition_changed(c, change) for c in term.brackets)
    term = replace(term, factors=factors, brackets=brackets)
    value = Arith("+", Arith("*", Var(variable), divisor), here)
    moved, put = _put(term, generator, value, bounds_of(name, generator.range)[1:])
    moved = replace(moved, generators=(*moved.generators, more))
    return moved, lambda index: put(change(index))


def _of_few(index: Index) -> Index:
    """Return what is no less than an index, the bounds of which that hang on fewest variables."""
    if not isinstance(index, Extremum) or index.op != "min":
        return index
    shared = set.intersection(*(set(variables(each)) for each in index.arguments))
    bounds = [each for each in index.arguments if set(variables(each)) <= shared]
    return extremum("min", bounds) if bounds else index


def _is_product(total: Index, count: Index, size: Index, stated: tuple[Condition, ...]) -> bool:
    """Tell whether the listing assumes `total == count * size`."""
    product = {Arith("*", count, size), Arith("*", size, count)}
    if total in product:
        return True
    for condition in stated:
        match condition:
            case Relation("==", left, right):
                if (left == total and right in product) or (right == total and left in product):
                    return True
            case _:
                pass
    return False


def replacing(old: Index, new: Index) -> Callable[[Index], Index]:
    """Return what replaces one index expression by another wherever it stands."""

    def change(part: Index) -> Index:
        if part == old:
            return new
        parts = children(part)
        return rebuild(part, tuple(change(p) for p in parts)) if parts else part

    return change


def simplified_brackets(term: Term, facts: Facts) -> Term | None:
    """Leave out brackets that always hold; return None where one never does."""
    term = _at_one_value(term)
    inside = facts.inside(term.generators)
    kept: list[Condition] = []
    brackets = tuple(map(_plain, term.brackets))
    for number, condition in enumerate(brackets):
        others = inside.and_(*kept, *brackets[number + 1 :])
        if inside.refute(condition):
            return None
        if not inside.imply(condition) and not others.imply(condition):
            kept.append(condition)
    # Bounds stand before what reads an array, so that nothing is read outside of them.
    kept.sort(key=lambda condition: not is_of_indices(condition))
    return replace(term, brackets=tuple(kept))


def _plain(condition: Condition) -> Condition:
    """Return a comparison without what both sides have, n > 0 for j < n + j and for -n < 0."""
    if not isinstance(condition, Relation):
        return condition
    left, right = form_of(condition.left), form_of(condition.right)
    both = {t: n for t, n in left.terms.items() if right.terms.get(t, 0) * n > 0}
    shared = Form({t: min(n, right.terms[t], key=abs) for t, n in both.items()})
    op, sides = condition.op, [side.plus(shared, -1) for side in (left, right)]
    if all(n < 0 for side in sides for n in side.terms.values()):
        op, sides = MIRRORED[op], [side.times(-1) for side in sides]
    elif not both:
        return condition
    return Relation(op, *map(index_of, sides))


def pinned(
    conditions: tuple[Condition, ...], indices: tuple[Generator, ...], said: Facts
) -> dict[str, Index]:
    """Return the indices that conditions give a value inside their range, for all iterations."""
    ranges = ranges_by_name(indices)
    found: dict[str, Index] = {}
    for name, value, _ in _single_values(conditions, indices):
        bounds = bounds_of(name, ranges[name])
        if all(said.imply(condition_moved(bound, {name: value})) for bound in bounds):
            found.setdefault(name, value)
    return found


def asked_alone(term: Term, indices: tuple[Generator, ...]) -> dict[str, Index]:
    """Return the indices that a term has at one value only, and says nothing else of.

    Whether that is inside their range need not be known: the term is what it is wherever they are.
    """
    found: dict[str, Index] = {}
    for name, value, condition in _single_values(term.brackets, indices):
        rest = replace(term, brackets=tuple(c for c in term.brackets if c != condition))
        if name not in mentioned(rest):
            found.setdefault(name, value)
    return found


def at_single_values(
    conditions: tuple[Condition, ...], indices: tuple[Generator, ...], said: Facts
) -> tuple[tuple[Generator, ...], tuple[Condition, ...]]:
    """Put what conditions say of an index that may be outside of its range into the range.

        for n in range(0, N):  if N - 1 == n:  …      ->      for n in range(max(0, N - 1), N):  …

    Returns:
        The indices, and the other conditions.
    """
    given = pinned(conditions, indices, said)
    ranges = ranges_by_name(indices)
    for name, value, condition in _single_values(conditions, indices):
        bounds, following = ranges[name], total(value, 1)
        if name in given or bounds.step != 1:
            continue
        start = extremum("max", (bounds.start, value))
        stop = extremum("min", (bounds.stop, following))
        if said.imply(Relation(">=", value, bounds.start)):
            start = value
        if said.imply(Relation("<=", following, bounds.stop)):
            stop = following
        ranges[name] = Range(start, stop)
        conditions = tuple(c for c in conditions if c != condition)
    return tuple(replace(g, range=ranges[g.variable]) for g in indices), conditions


def _single_values(
    conditions: tuple[Condition, ...], indices: tuple[Generator, ...]
) -> Iterator[tuple[str, Index, Condition]]:
    """Yield indices that conditions give one value for all iterations."""
    names = {g.variable for g in indices}
    for condition in conditions:
        match condition:
            case Relation("==", value, Var(name)) | Relation("==", Var(name), value) if (
                name in names and not variables(value)
            ):
                yield name, value, condition
            case _:
                pass


def says_which(condition: Condition, given: dict[str, Index]) -> bool:
    """Tell whether a condition says no more than what an index is."""
    match condition:
        case Relation("==", Var(name), value) | Relation("==", value, Var(name)):
            return name in given and given[name] == value
        case _:
            return False


def declared(conditions: Iterable[Condition], arrays: tuple[Array, ...]) -> Iterator[Condition]:
    """Yield what is declared of the integers that conditions compare: `0 <= c[i]`, `c[i] < K`."""
    ranges = {a.name: a.value_range for a in arrays if a.value_range is not None}
    for term in {t: None for c in conditions for index in compared(c) for t in opaque_terms(index)}:
        if term.array in ranges:
            low, high = ranges[term.array]
            yield Relation(">=", term, low)
            yield Relation("<", term, high)


def _at_one_value(term: Term) -> Term:
    """Do sums of which a bracket leaves the one term where the variable has some value."""
    for g in term.generators:
        here = Var(g.variable)
        for bracket in term.brackets:
            match bracket:
                case Relation("==", value, other) if other == here:
                    pass
                case Relation("==", other, value) if other == here:
                    pass
                case _:
                    continue
            fixed = here.name not in variables(value)
            if g.range.step == 1 and fixed and _can_be_ordered(term, here.name, value):
                return _at_one_value(_put(term, g, value)[0])
    return term
