"""Which rows a table of products has, and that they are all there.

A table has a row for each iteration of loops over rows, or for each row of what is multiplied; it
is made ahead, so each has to be one that the listing reads in any case.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Set

from looptrans.adjoint.rewriting.looked_up import LookedUp
from looptrans.ir.affine import difference, form_of, product, sides, total
from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import Extremum, Index, Int, Param, Var, opaque_terms, parameters, variables
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.value import (
    Generator,
    Holds,
    IndexValue,
    Range,
    Read,
    Select,
    condition_variables,
    free_variables,
    walk_value,
)
from looptrans.ir.walk import Placed, accesses


def all_rows(rows: list[tuple[Index, Index]]) -> dict[str, Range] | None:
    """Return loops over all rows, where each variable is a subscript by itself."""
    names = [index.name for index, _ in rows if isinstance(index, Var)]
    if len(names) < len(rows) or len(set(names)) < len(names):
        return None
    return {name: Range(Int(0), extent) for name, (_, extent) in zip(names, rows, strict=True)}


def rows_around(
    place: Placed, rows: list[tuple[Index, Index]], asked: Set[str]
) -> dict[str, Range] | None:
    """Return the loops around a statement that say which row it is, where they do so alone.

    for b: for i in range(n[b]): … Q[start[b] + i, e] …
    """
    own = {name for index, _ in rows for name in variables(index)}
    loops = {loop.variable: loop.range for loop in place.loops if loop.variable in own}
    ends = (end for bounds in loops.values() for end in bounds.ends)
    if own != set(loops) or any(set(variables(end)) - own for end in ends):
        return None
    return None if asked & own else loops


def rows_of_loops(loops: Mapping[str, Range]) -> list[tuple[Index, Index]] | None:
    """Return a row for each iteration of loops that are as long as sizes say, and its extents."""
    if any(
        bounds.start != Int(0) or bounds.step != 1 or variables(end) or opaque_terms(end)
        for bounds in loops.values()
        for end in (bounds.stop,)
    ):
        return None
    return [(Var(name), bounds.stop) for name, bounds in loops.items()]


def says_all(rows: list[tuple[Index, Index]], over: Generator, each: LookedUp) -> bool:
    """Tell whether products hang on nothing but their row: others would be written over it.

    Of K[h // S, j, e] * R[h, w, e], each h has its own.
    """
    cells = [index for index, _ in rows]
    known = {over.variable, *(index.name for index in cells if isinstance(index, Var))}
    looked = [index for n, index in enumerate(each.access.indices) if n != each.where]
    indices = [*looked]
    for part in walk_value(each.own):
        if isinstance(part, Read):
            indices += part.access.indices
        elif isinstance(part, IndexValue | Holds | Select) and not known >= {*free_variables(part)}:
            return False
    return all(index in cells or set(variables(index)) <= known for index in indices)


def asked_of(place: Placed, arrays: Set[str]) -> set[str]:
    """Return the variables that conditions mention under which a statement reads some arrays.

    A condition that mentions none, as `n > 5`, is there as "".
    """
    reads = (each for each in accesses(place.node) if each.access.array in arrays)
    conditions = {*place.conditions, *(each.condition for each in reads)} - {ALWAYS}
    return {name for condition in conditions for name in condition_variables(condition) or {""}}


def maybe_empty(place: Placed) -> set[str]:
    """Return the variables that say how long loops and sums are that may have no iterations.

    Sizes are taken to be at least 0. Loops over the same range are empty together.
    """
    found: set[str] = set()
    around: dict[str, Range] = {}
    sums = (generator for each in accesses(place.node) for generator in each.generators)
    for name, bounds in (*((x.variable, x.range) for x in place.loops), *_ranges(sums)):
        told = bounds.variables
        if told and bounds not in around.values() and not _has_some(bounds, around):
            found |= told
        around[name] = bounds
    return found


def _ranges(generators: Iterable[Generator]) -> Iterator[tuple[str, Range]]:
    return ((each.variable, each.range) for each in generators)


def _has_some(bounds: Range, around: Mapping[str, Range]) -> bool:
    """Tell whether a range has iterations wherever the loops around it are."""
    first, last = bounds.ends if bounds.step > 0 else (bounds.stop, bounds.start)
    rising = {name for name, r in around.items() if r.step > 0 and isinstance(r.start, Int)}
    for low, high in itertools.product(sides("max", first), sides("min", last)):
        form = form_of(difference(high, low))
        if form.constant < 1 or not all(
            count > 0
            and (isinstance(term, Param) or (isinstance(term, Var) and term.name in rising))
            for term, count in form.terms.items()
        ):
            return False
    return True


def is_short(
    place: Placed, index: Index, length: Index, rows: Iterable[tuple[Index, Index]]
) -> bool:
    """Tell whether a subscript, and the table, end at what no loop goes up to that it hangs on.

    Nor is the table as long as the rows that it has a product for are many.
    """
    own = ranges_by_name(place.loops)
    for each in accesses(place.node):
        own |= _ranges(each.generators)
    told = set(variables(index))
    long = {p for v in told & set(own) for p in parameters(own[v].stop)}
    long |= {p for row, count in rows if told & set(variables(row)) for p in parameters(count)}
    return not set(parameters(length)) & long and _has_end(index, own, long)


def _has_end(index: Index, ranges: dict[str, Range], long: Collection[str]) -> bool:
    """Tell whether a subscript has an upper bound without loop variables and some sizes."""
    form = form_of(index)
    plain: Index = Int(0)
    for term, count in form.terms.items():
        match term:
            case Var() | Param():
                plain = total(plain, product(count, term))
            case Extremum(op, arguments):
                if count < 0:
                    arguments = tuple(difference(Int(0), argument) for argument in arguments)
                ends = (_has_end(argument, ranges, long) for argument in arguments)
                if not (any(ends) if (op == "min") == (count > 0) else all(ends)):
                    return False
            case _:
                return False
    # Iterations of a loop may end where another one is: those inside come first.
    for variable, bounds in reversed(ranges.items()):
        count = form_of(plain).terms.get(Var(variable), 0)
        if count:
            end = total(bounds.stop, -1) if count > 0 else bounds.start
            plain = total(plain, product(count, difference(end, Var(variable))))
            if bounds.step < 0:
                return False
    return not variables(plain) and not set(parameters(plain)) & set(long)
