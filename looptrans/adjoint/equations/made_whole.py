"""Arrays that a nest of the listing makes whole, for nests behind it: they are kept in memory.

    for j: for e: k[j, e] = sum(X[j, c] * W[e, c] for c)
    for i: for j: s = sum(Q[i, e] * k[j, e] for e) …          k is kept, s is worked out again

Worked out again wherever it is read, such a sum would stand inside of another one. What rows are
looked into is kept wherever it is made: each pair would work its cell out again. The sums that an
array is made of, element by element, are kept with it: the gradient of max(t, 0) asks for t. Scores
are no such arrays, nor are weights that are made of them, though a listing may hold them in memory:
a largest one is looked for among them, or they are summed as exponentials.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from looptrans.adjoint.equations.definitions import Definition, System
from looptrans.algebra.positional.cells import is_looked_up
from looptrans.ir.index import Var, variables
from looptrans.ir.program import Loop, Program
from looptrans.ir.value import (
    Call,
    Read,
    Reduce,
    Select,
    Value,
    condition_variables,
    free_variables,
    walk_value,
)
from looptrans.ir.walk import targets_in
from looptrans.transforms.editing.accesses import AccessSite, sites_of


def made_whole(program: Program, system: System, last: Mapping[str, str]) -> Iterator[str]:
    """Yield the definitions of arrays that hold sums, whole before anything else reads them.

    Args:
        program: The listing.
        system: Its definitions.
        last: The definition of what each array holds in the end.
    """
    scores, looked = _scores(system), looked_into(system)
    for array in program.arrays:
        definition = system.definitions.get(last.get(array.name, ""))
        if definition is None or array.role != "local" or array.name in program.outputs:
            continue
        full = len(definition.indices) == array.rank > 1
        known = full and definition.name not in scores and _holds_sums(system, definition)
        if known and (
            definition.name in looked
            or _is_apart(program, array.name, by_rows=_is_of_weights(system, definition))
        ):
            yield definition.name
            yield from _sums_in(system, definition)


def looked_into(system: System) -> frozenset[str]:
    """Return the definitions that hold sums, and into whose rows others look.

    Args:
        system: The definitions.
    """
    looked = set().union(*(_looked_up(each.value) for each in system.definitions.values()))
    known = looked & set(system.definitions)
    return frozenset(name for name in known if system.definitions[name].has_reduction)


def tables(system: System, whole: Collection[str]) -> frozenset[str]:
    """Return the arrays made whole that rows are looked into, and that are products of arguments.

    One product makes such a table again: the forward pass need not hand it over.

    Args:
        system: The definitions.
        whole: Those of arrays made whole.
    """
    return frozenset(
        name
        for name in looked_into(system) & set(whole)
        if not set(system.definitions[name].reads()) & set(system.definitions)
    )


def _sums_in(system: System, definition: Definition) -> Iterator[str]:
    """Yield the sums that an array is made of, element by element: its gradient asks for them."""
    for name in () if definition.has_reduction else definition.reads():
        inner = system.definitions.get(name)
        if inner is not None and _as_large(system, definition, name):
            if inner.has_reduction:
                yield inner.name
            yield from _sums_in(system, inner)


def _is_apart(program: Program, array: str, *, by_rows: bool) -> bool:
    """Tell whether an array is written before others read it, nest by nest or row by row.

    Row by row, each cell is read again and again, so that a row is there as a whole:

        for i:
            for f: t[i, f] = …
            for c: for f: y[i, c] = y[i, c] + t[i, f] * W[f, c]
    """
    sites = sites_of(program, array)
    writes = [site.place for site in sites if site.relation.is_write]
    own = {place.label for place in writes}
    reads = [s for s in sites if not s.relation.is_write and s.place.label not in own]
    if not reads or not writes:
        return False
    places = [*(w.position for w in writes), *(r.place.position for r in reads)]
    level = next(n for n, each in enumerate(zip(*places, strict=False)) if len(set(each)) > 1)
    behind = max(place.position[level] for place in writes)
    if any(read.place.position[level] <= behind for read in reads):
        return False
    if level == 0 or not by_rows or not all(_is_read_again(read, level) for read in reads):
        return level == 0
    rows = {loop.variable for loop in writes[0].loops[:level]}
    return not any(_are_set_ahead(loop, rows) for loop in writes[0].loops[:1])


def _are_set_ahead(loop: Loop, rows: set[str]) -> bool:
    """Tell whether an iteration sets something for another one, as a step of time does."""
    targets = targets_in(loop.body)
    subscripts = (index for target in targets for index in target.indices)
    return any(rows & set(variables(s)) and not isinstance(s, Var) for s in subscripts)


def _is_of_weights(system: System, definition: Definition) -> bool:
    """Tell whether the sums in a row are products with what all rows have in common.

    Weights W[c, f] are multiplied with every row x[b, i, c], as many numbers as a layer has; keys
    K[b, j, e] only with those of their batch, or with those that a mask leaves.
    """
    own = set(definition.variables)
    if any(g.range.variables & own for g in definition.indices):
        return False
    for part in walk_value(definition.value):
        if isinstance(part, Select) and len(condition_variables(part.condition) & own) > 1:
            return False
        if isinstance(part, Reduce):
            reads = [set(free_variables(p)) for p in walk_value(part.body) if isinstance(p, Read)]
            factors = [read & own for read in reads]
            for number, factor in enumerate(factors):
                others = set().union(*factors[:number], *factors[number + 1 :])
                if factor & others:
                    return False
    inner = [system.definitions[n] for n in definition.reads() if n in system.definitions]
    large = [each for each in inner if len(each.indices) >= len(own)]
    return all(_is_of_weights(system, each) for each in large if not definition.has_reduction)


def _is_read_again(read: AccessSite, level: int) -> bool:
    """Tell whether a loop that says nothing of a cell stands outside of one that does."""
    place, access = read.place, read.relation.access
    named = access.variables
    around = zip(place.loops, place.loop_positions, strict=True)
    inside = [loop.variable for loop, position in around if len(position) > level]
    inside += [generator.variable for generator in read.relation.generators]
    return any(one not in named and set(inside[n:]) & named for n, one in enumerate(inside))


def _holds_sums(system: System, definition: Definition) -> bool:
    """Tell whether an array is made of sums that are as large as it is."""
    if definition.has_reduction:
        return True
    inner = [system.definitions[n] for n in definition.reads() if n in system.definitions]
    return any(
        len(each.indices) >= len(definition.indices) and _holds_sums(system, each) for each in inner
    )


def _scores(system: System) -> set[str]:
    """Return what a largest one is looked for in, or is summed by a function, and what is of it."""
    found = {name for each in system.definitions.values() for name in _looked_at(each.value)}
    changed = True
    while changed:
        before = len(found)
        for each in system.definitions.values():
            if each.has_reduction:
                continue
            # What a score is made of, element by element, is one; so is what is made of it.
            large = {name for name in each.reads() if _as_large(system, each, name)}
            large -= _looked_up(each.value)
            if each.name in found or large & found:
                found |= {each.name, *large}
        changed = len(found) > before
    return found


def _as_large(system: System, definition: Definition, name: str) -> bool:
    inner = system.definitions.get(name)
    return inner is not None and len(inner.indices) >= len(definition.indices)


def _looked_up(value: Value) -> set[str]:
    """Return what is read at cells that several variables choose, as T[i, min(i - j, k)]."""
    return {
        part.access.array
        for part in walk_value(value)
        if isinstance(part, Read) and is_looked_up(part.access)
    }


def _looked_at(value: Value) -> Iterator[str]:
    """Yield what is read along the variable of a maximum, or in a function along that of a sum."""
    for part in walk_value(value):
        if not isinstance(part, Reduce):
            continue
        own = {g.variable for g in part.generators}
        inside = [part.body]
        if part.function == "sum":
            inside = [each for each in walk_value(part.body) if isinstance(each, Call)]
        reads = (p.access for each in inside for p in walk_value(each) if isinstance(p, Read))
        for access in reads:
            if own & access.variables:
                yield access.array
