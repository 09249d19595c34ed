"""Nests of a backward listing: what one is, and when two are written as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from looptrans.adjoint.equations.definitions import is_same_range
from looptrans.adjoint.written.standing import Scalar
from looptrans.algebra.positional.cells import (
    are_apart,
    condition_moved,
    moved,
    range_moved,
    value_moved,
)
from looptrans.algebra.positional.values import ZERO, is_number
from looptrans.ir.condition import Condition, Some, conjunction, is_data_dependent
from looptrans.ir.index import Index, Var, opaque_terms, variables
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Access,
    Generator,
    Read,
    Reduce,
    Select,
    Value,
    cells_read,
    has_reduction,
    walk_value,
)


@dataclass(frozen=True, slots=True)
class Update:
    """`target = target + value`, or `target = value`, for some further indices."""

    target: Access
    inner: tuple[Generator, ...]
    value: Value
    adds: bool


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops, conditions, values worked out inside, and updates.

    Attributes:
        loops: The loops, outermost first.
        conditions: What must hold.
        scalars: Values worked out in the nest, each behind those it reads.
        updates: What is gathered.
    """

    loops: tuple[Generator, ...]
    conditions: tuple[Condition, ...]
    scalars: tuple[Scalar, ...]
    updates: tuple[Update, ...]

    @property
    def kept(self) -> set[str]:
        """The variables in the cells that are set: the other loops are summed over."""
        return {name for update in self.updates for name in update.target.variables}


def merged(nests: list[Nest]) -> list[Nest]:
    """Make nests one that have the same loops and do not read what the other gathers.

    Where one between them has to come first, the earlier one is done later, and after it what needs
    it, unless that has to come first as well.
    """
    while len(found := _merged_once(nests)) < len(nests):
        nests = found
    return found


def _merged_once(nests: list[Nest]) -> list[Nest]:
    found: list[Nest] = []
    for nest in nests:
        for number in range(len(found) - 1, -1, -1):
            between = found[number + 1 :]
            joined = _joined(found[number], nest)
            if joined is None:
                continue
            if not any(_in_order(each, nest) for each in between):
                found[number] = joined
                break
            later = _needing(found[number], between)
            if not any(_in_order(each, nest) for each in later):
                sooner = [each for each in between if each not in later]
                found[number:] = [*sooner, joined, *later]
                break
        else:
            found.append(nest)
    return found


def _needing(first: Nest, nests: list[Nest]) -> list[Nest]:
    """Return those of the nests that have to come after the first, or after one that has to."""
    found: list[Nest] = []
    for nest in nests:
        if any(_in_order(each, nest) for each in (first, *found)):
            found.append(nest)
    return found


def _joined(first: Nest, second: Nest) -> Nest | None:
    if len(first.loops) != len(second.loops):
        return None
    if _in_order(first, second) or _looks_up(first) or _looks_up(second):
        return None
    moved = _with_names_of(first, second, second.loops)
    if moved is None or moved.conditions != first.conditions:
        return _joined_across(first, second)
    if _gather_rows_apart(first, moved):
        return None
    if not _share_work(first, moved) and not _is_worth_it(first, moved):
        return _joined_across(first, second)
    return _both(first, moved)


def _gather_rows_apart(first: Nest, second: Nest) -> bool:
    """Tell whether one of two nests gathers rows for each of what the other gathers rows over.

    for j: for h: for i: dv[j, h, :] += …    and    for j: for h: for i: dkr[j, :] += …

    As one nest h would run one iteration at a time, each with rows of dv of its own.
    """
    kept = [_kept(nest) for nest in (first, second)]
    return all(kept) and kept[0] != kept[1]


def _kept(nest: Nest) -> set[frozenset[str]]:
    """Return for the rows that a nest gathers the loops that tell which one it is."""
    loops = {g.variable for g in nest.loops}
    return {frozenset(loops & u.target.variables) for u in nest.updates if u.adds and u.inner}


def _looks_up(nest: Nest) -> bool:
    """Tell whether a nest adds to cells that are looked up: that is done in atomic parts."""
    return any(opaque_terms(index) for u in nest.updates for index in u.target.indices)


def _joined_across(first: Nest, second: Nest) -> Nest | None:
    """Join nests whose loops stand in another order, where they work out the same values.

    for h: for i: for j: P = …; d[h, i] += …    and    for i: for h: for j: P = …; e[i, h] += …
    """
    for loops in permutations(second.loops):
        moved = _with_names_of(first, second, loops)
        if moved is None:
            continue
        if moved.conditions == first.conditions:
            if _share_work(first, moved) and _same_shape(first, moved):
                return _both(first, moved)
        elif (joined := _with_some_of(first, moved)) is not None:
            return joined
    return None


def _with_some_of(first: Nest, second: Nest) -> Nest | None:
    """Join nests over the same loops of which one sums some of the values of the other.

    for i: for j: dS = …; dQ[i] += …  and  for i: for j: if j > i: dS = …; d[0] += dS

    are for i: for j: dS = …; dQ[i] += …; d[0] += dS if j > i else 0.0. Nothing is worked out
    besides: what is added is a number, or a row times one.
    """
    some, whole = (
        (first, second) if len(first.conditions) > len(second.conditions) else (second, first)
    )
    more = tuple(c for c in some.conditions if c not in whole.conditions)
    numbers = all(u.adds and _is_a_number_of_rows(u, some) for u in some.updates)
    known = {s.cell: _neutral(s.value) for s in whole.scalars}
    same = all(known.get(s.cell) == _neutral(s.value) for s in some.scalars)
    if not set(whole.conditions) <= set(some.conditions) or not (numbers and same):
        return None
    if any(is_data_dependent(c) for c in more):
        return None
    if not _share_work(whole, some) or not _same_shape(whole, some):
        return None
    added = tuple(replace(u, value=Select(conjunction(*more), u.value, ZERO)) for u in some.updates)
    updates = (*added, *whole.updates) if some is first else (*whole.updates, *added)
    return replace(whole, updates=updates)


def _is_a_number_of_rows(update: Update, nest: Nest) -> bool:
    """Tell whether what is added has no row that the loops that are summed over go through."""
    kept = update.target.variables
    summed = {g.variable for g in nest.loops} - kept
    inner = {g.variable for g in update.inner}
    read = cells_read(update.value)
    names = (access.variables for access in read)
    return not any(each & inner and each & summed for each in names)


def _neutral(value: Value, depth: int = 0) -> Value:
    """Return a value whose sums call their variables by where they stand."""

    def change(part: Value) -> Value | None:
        if not isinstance(part, Reduce):
            return None
        names = [f"~{depth}.{number}" for number in range(len(part.generators))]
        new: dict[str, Index] = {
            g.variable: Var(name) for g, name in zip(part.generators, names, strict=True)
        }
        generators = tuple(
            Generator(name, range_moved(g.range, new), condition_moved(g.condition, new))
            for g, name in zip(part.generators, names, strict=True)
        )
        return Reduce(part.function, generators, _neutral(value_moved(part.body, new), depth + 1))

    return replaced(value, change)


def _with_names_of(first: Nest, second: Nest, loops: Sequence[Generator]) -> Nest | None:
    """Return the second nest under the loops of the first; None where those are not its own.

    Args:
        first: A nest.
        second: Another.
        loops: The loops of the second, in the order of those of the first.
    """
    new: dict[str, Index] = {}
    for a, b in zip(first.loops, loops, strict=True):
        if not is_same_range(a.range, range_moved(b.range, new)):
            return None
        new[b.variable] = Var(a.variable)
    return replace(_nest_moved(second, new), loops=first.loops)


def _both(first: Nest, moved: Nest) -> Nest:
    """Return two nests over the same loops as one."""
    known = {s.cell for s in first.scalars}
    more = tuple(s for s in moved.scalars if s.cell not in known)
    its = {s.cell: s.value for s in moved.scalars}
    mine = tuple(
        replace(s, value=_for_both(s.value, its[s.cell])) if s.cell in its else s
        for s in first.scalars
    )
    return replace(first, scalars=(*mine, *more), updates=(*first.updates, *moved.updates))


def _for_both(one: Value, other: Value) -> Value:
    """Return a value that two nests work out, each where it needs it, for where either does."""
    mine, its = _needed_where(one), _needed_where(other)
    if mine is None or mine == its:
        return one
    if its is None:
        return other
    assert isinstance(one, Select)
    return Select(Some((mine, its)), one.chosen, ZERO)


def _needed_where(value: Value) -> Condition | None:
    """Return the condition without which a value is 0; None where it is so at no condition."""
    if isinstance(value, Select) and is_number(value.otherwise, 0.0):
        return value.condition
    return None


def _in_order(first: Nest, second: Nest) -> bool:
    """Tell whether a nest has to come after another: it reads or sets what that one writes."""
    both = _arrays_written(first) & _arrays_written(second)
    mine = [u for u in first.updates if u.target.array in both]
    its = [u for u in second.updates if u.target.array in both]
    apart = all(
        u.adds and v.adds and are_apart(u.target, v.target)
        for u in mine
        for v in its
        if u.target.array == v.target.array
    )
    return bool(_arrays_written(first) & _arrays_read(second)) or not apart


def _share_work(first: Nest, second: Nest) -> bool:
    """Tell whether nests over the same loops work out the same values.

    A number that no loop changes that they sum over, as the slope of a head, is worked out so
    seldom that it does not count.
    """
    known = {s.cell for s in first.scalars}
    summed = {g.variable for g in first.loops} - first.kept
    return any(
        not summed or summed & s.cell.variables or has_reduction(s.value)
        for s in second.scalars
        if s.cell in known
    )


def _is_worth_it(first: Nest, second: Nest) -> bool:
    """Tell whether nests over the same loops that share no values should be one.

    What each row of queries sums over keys, and each row of keys over queries, are sums of other
    scores, though there be as many of both: they read other rows, and as one nest all of it would
    be in registers at once.
    """
    if not _same_shape(first, second):
        return False
    if not (_has_sums(first) and _has_sums(second)):
        return True
    loops = {g.variable for g in first.loops}
    return bool(_summed_rows(first, loops) & _summed_rows(second, loops))


def _has_sums(nest: Nest) -> bool:
    """Tell whether a nest works out sums inside."""
    return any(has_reduction(s.value) for s in nest.scalars)


def _summed_rows(nest: Nest, loops: set[str]) -> set[tuple[str, tuple[Index | None, ...]]]:
    """Return the rows that a nest reads in the loop that it sums over; None goes along a row."""
    around = nest.kept
    found = set()
    values = [s.value for s in nest.scalars] + [u.value for u in nest.updates]
    for read in (p.access for v in values for p in walk_value(v) if isinstance(p, Read)):
        names = read.variables
        if names & (loops - around):
            row = tuple(i if set(variables(i)) <= loops else None for i in read.indices)
            found |= {(read.array, row)} if None in row else set()
    return found


def _same_shape(first: Nest, second: Nest) -> bool:
    """Tell whether nests that share no values set alike, or add over the same loops."""
    loops = {g.variable for g in first.loops}
    summed = {
        frozenset(loops - u.target.variables) for nest in (first, second) for u in nest.updates
    }
    if len(summed) > 1:
        return False
    return all(not u.adds for n in (first, second) for u in n.updates) or all(
        u.adds for n in (first, second) for u in n.updates
    )


def _nest_moved(nest: Nest, new: dict[str, Index]) -> Nest:
    return Nest(
        nest.loops,
        tuple(condition_moved(c, new) for c in nest.conditions),
        tuple(Scalar(s.name, moved(s.cell, new), value_moved(s.value, new)) for s in nest.scalars),
        tuple(
            Update(moved(u.target, new), u.inner, value_moved(u.value, new), u.adds)
            for u in nest.updates
        ),
    )


def _arrays_written(nest: Nest) -> set[str]:
    return {u.target.array for u in nest.updates}


def _arrays_read(nest: Nest) -> set[str]:
    values = [s.value for s in nest.scalars] + [u.value for u in nest.updates]
    return {p.access.array for v in values for p in walk_value(v) if isinstance(p, Read)}
