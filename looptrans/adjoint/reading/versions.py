"""Statements as definitions: each makes a new version of what it writes.

Loops whose variable is a subscript of the target become indices of the definition; the others
either give each iteration a version of its own (a scalar set anew in every iteration of `i` becomes
indexed by `i`), or, where the statement is `x = x + …`, are what is summed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.adjoint.carried.handed_on import hands_on
from looptrans.adjoint.equations.apart import added
from looptrans.adjoint.equations.definitions import Definition, full
from looptrans.adjoint.equations.facts import Facts, bounds_of
from looptrans.adjoint.reading.resolving import held, read_of, resolved, resolved_condition
from looptrans.adjoint.reading.rows import by_elements
from looptrans.adjoint.reading.state import LoopAround, Place, Site, State, Version
from looptrans.adjoint.reading.targets import Solved, solved_target
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.algebra.positional.cells import condition_moved, moved, range_moved, value_moved
from looptrans.algebra.positional.values import is_number
from looptrans.analysis.api import is_written_once
from looptrans.ir.affine import is_same
from looptrans.ir.condition import (
    ALWAYS,
    Condition,
    conjunction,
    is_data_dependent,
    is_of_indices,
    negation,
)
from looptrans.ir.index import Index, Int, Var
from looptrans.ir.monoids import OF_NOTHING
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Const,
    Generator,
    Range,
    Read,
    Reduce,
    Select,
    Value,
    arrays_read,
)


def write(state: State, place: Place, target: Access, value: Value) -> None:
    """Let a statement make a new version of what it writes.

    Args:
        state: What is known; gets the version and its definition.
        place: The statement.
        target: The cell or row, in the system's names.
        value: What it sets it to.

    Raises:
        NotDifferentiated: It carries a value from one iteration to the next, other than as a plain
            sum, maximum or minimum.
    """
    target, value, place = by_elements(state, target, value, place)
    around = place.around
    adds = accumulation(target, value) is not None
    solved = solved_target(state, target, place, adds=adds)
    rest = [x for x in around.loops if x.position not in solved.dimensions]
    before = state.current[target.array]
    if target.array in arrays_read(value):
        expanded = [x for x in rest if x.position in before.expanded]
        if len(expanded) != len(before.expanded):
            raise NotDifferentiated(
                f"{target.array} is read here as the last iteration of a loop left it",
                place.label,
            )
        over = [x for x in rest if x.position not in before.expanded]
    else:
        expanded, over = rest, []
    if over:
        _accumulated(state, place, target, value, solved, expanded, over)
        return
    new = resolved(state, value, place, around.facts)
    indices = (*(x.generator for x in expanded), *solved.indices)
    needs = (*around.conditions, *solved.conditions)
    new = value_moved(new, solved.values)
    needs = tuple(condition_moved(c, solved.values) for c in needs)
    needs = tuple(c for c in needs if c != ALWAYS)
    inner_needs = needs
    full_indices = list(indices)
    for number, generator in enumerate(solved.indices, len(expanded)):
        whole = state.extent(target.array, number - len(expanded))
        if not _is_full(generator.range, whole):
            needs = (*needs, *bounds_of(generator.variable, generator.range))
            # Bounds stand before what reads an array, so that nothing is read outside of it.
            needs = tuple(sorted(needs, key=lambda c: not is_of_indices(c)))
        full_indices[number] = full(generator.variable, whole)
    version = Version(
        loops=tuple(x.position for x in around.loops),
        dimensions=solved.dimensions,
        subscripts=target.subscripts,
        expanded=tuple(x.position for x in expanded),
    )
    if not needs and isinstance(new, Const) and not isinstance(new.value, bool):
        state.current[target.array] = replace(version, number=Const(float(new.value)))
        return
    try:
        old = _old(state, place, target, solved, expanded) if needs else None
    except NotDifferentiated as error:
        # What it holds elsewhere cannot be told; that matters only if it is read there.
        inner = _define(state, target.array, indices, new, place, version, everywhere=False)
        known = tuple(g.variable for g in indices)
        version = replace(version, inner=inner, needs=needs, indices=known, lost=error.reason)
        state.current[target.array] = version
        return
    if old is None:
        # Cells that nothing is known of may have this value, too, but those of other numbers:
        # then what comes back to it would be gathered from all of them, and the rest left out.
        which = [c for c in needs if c in solved.pinned and is_of_indices(c)]
        value = Select(conjunction(*which), new, Const(0.0)) if which else new
        _define(state, target.array, tuple(full_indices), value, place, version)
        return
    if inner_needs and not _affine(inner_needs):
        both = Select(conjunction(*needs), new, old)
        _define(state, target.array, tuple(full_indices), both, place, version)
        return
    inner = _define(state, target.array, indices, new, place, version, everywhere=False)
    # A number is read as one, and not as a cell: then what is chosen alike looks alike.
    access = Access(inner, tuple(Var(g.variable) for g in indices))
    both = Select(conjunction(*needs), new if isinstance(new, Const) else Read(access), old)
    version = replace(
        version,
        inner=inner,
        needs=needs,
        indices=tuple(g.variable for g in indices),
    )
    _define(state, target.array, tuple(full_indices), both, place, version)


def _old(
    state: State, place: Place, target: Access, solved: Solved, expanded: list[LoopAround]
) -> Value | None:
    """Return what a cell holds that a statement under a guard may leave as it is."""
    before = state.current[target.array]
    is_outside = before.name is None and not before.expanded and not before.lost
    # A number from outside of a loop may be another one in its later iterations.
    if is_outside and not any(hands_on(state.program, target.array, x.name) for x in expanded):
        return before.number
    if before.expanded != tuple(x.position for x in expanded):
        raise NotDifferentiated(
            f"{target.array} may keep what an earlier iteration left in it", place.label
        )
    cell = _each_cell(target, solved)
    try:
        # Where the guard does not hold: nothing of it is known there.
        found = read_of(state, cell, place, Facts())
    except NotDifferentiated:
        # Where no cell is written twice, each holds in the end what its one statement sets it to.
        if before.name is None or not is_written_once(state.program, target.array):
            raise
        own = tuple(Var(x.variable) for x in expanded)
        found = Read(Access(before.name, (*own, *cell.indices)))
    return value_moved(found, solved.values)


def join(state: State, array: str, one: Version) -> None:
    """Let two versions that the branches of a guard have made be one.

        if c: w = x             w = x if c else y, whatever w was before
        else: w = y

    Args:
        state: What is known; the version of the second branch is the current one.
        array: What both branches have written.
        one: The version of the first branch.
    """
    other = state.current[array]
    if not (one.lost and other.lost and one.inner and other.inner):
        return
    if (one.expanded, one.dimensions) != (other.expanded, other.dimensions):
        return
    if one.subscripts != other.subscripts:
        return
    indices = state.system.definitions[other.inner].indices
    cells = tuple(Var(v) for v in other.indices)
    same: dict[str, Index] = dict(zip(one.indices, cells, strict=True))
    needs = tuple(condition_moved(c, same) for c in one.needs)
    common = tuple(c for c in needs if c in other.needs)
    mine = [c for c in needs if c not in common]
    theirs = [c for c in other.needs if c not in common]
    if len(mine) != 1 or [negation(c) for c in mine] != theirs:
        return
    chosen, otherwise = (held(state, Access(i, cells)) for i in (one.inner, other.inner))
    name = state.system.names.array(array)
    label = state.system.definitions[other.inner].label
    both = Select(mine[0], chosen, otherwise)
    added(state.system, Definition(name, indices, both, label=label, array=array))
    if common:
        state.current[array] = replace(other, inner=name, needs=common)
    else:
        state.current[array] = replace(other, name=name, inner=None, needs=(), indices=(), lost="")


def _each_cell(target: Access, solved: Solved) -> Access:
    """Return the cells that a version goes over, not only those that a statement writes.

    A subscript without a loop's variable writes one of them: Y[i, 1] is one of all Y[i, x].
    """
    subscripts = tuple(
        Var(own.variable) if loop is None else index
        for index, own, loop in zip(target.indices, solved.indices, solved.dimensions, strict=True)
    )
    return Access(target.array, subscripts)


def _accumulated(
    state: State,
    place: Place,
    target: Access,
    value: Value,
    solved: Solved,
    expanded: list[LoopAround],
    over: list[LoopAround],
) -> None:
    found = accumulation(target, value)
    if found is None:
        names = " and ".join(x.name for x in over)
        raise NotDifferentiated(
            f"{target.array} is carried from one iteration of {names} to the next, "
            "and not by a plain sum, maximum or minimum",
            place.label,
        )
    function, term, condition = found
    around = place.around
    facts = around.facts.and_(condition)
    given = resolved_condition(state, condition, place, around.facts)
    body = value_moved(resolved(state, term, place, facts), solved.values)
    # A condition becomes part of the loops; so do the bounds of indices that end early.
    needs = [condition_moved(c, solved.values) for c in (*around.conditions, given)]
    needs += [condition_moved(c, solved.values) for c in solved.conditions]
    indices = [x.generator for x in expanded]
    for number, generator in enumerate(solved.indices):
        whole = state.extent(target.array, number)
        if not _is_full(generator.range, whole):
            needs += bounds_of(generator.variable, generator.range)
        indices.append(full(generator.variable, whole))
    needs = [c for c in needs if c != ALWAYS]
    generators = tuple(
        Generator(
            x.variable,
            range_moved(x.generator.range, solved.values),
            conjunction(*needs) if number == len(over) else ALWAYS,
        )
        for number, x in enumerate(over, 1)
    )
    reduction = Reduce(function, generators, body)
    version = Version(
        loops=tuple(x.position for x in around.loops),
        dimensions=solved.dimensions,
        subscripts=target.subscripts,
        expanded=tuple(x.position for x in expanded),
        operator=function,
    )
    before = state.current[target.array]
    # It is added to what is there everywhere, unless that is known under a guard alone.
    held = facts if before.lost else Facts()
    cell = (
        value_moved(
            read_of(state, _each_cell(target, solved), place, held, accumulates=function),
            solved.values,
        )
        if before.name is not None or before.inner is not None
        else before.number
    )
    if cell is None:
        raise NotDifferentiated(f"{target.array} has no first value", place.label)
    if is_number(cell, OF_NOTHING[function]):
        known = not before.lost
        _define(state, target.array, tuple(indices), reduction, place, version, everywhere=known)
        _still_lost(state, target.array, before, indices)
        return
    wish = state.system.names.array(f"{target.array}_sum")
    part = Definition(wish, tuple(indices), reduction, label=place.label)
    added(state.system, part)
    op = Binary("+", cell, part.cell) if function == "sum" else Call(function, (cell, part.cell))
    _define(state, target.array, tuple(indices), op, place, version, everywhere=not before.lost)
    _still_lost(state, target.array, before, indices)


def _still_lost(state: State, array: str, before: Version, indices: list[Generator]) -> None:
    """Let what was not known before something was added not be known afterwards."""
    if not before.lost:
        return
    known = tuple(g.variable for g in indices)
    new: dict[str, Index] = dict(zip(before.indices, (Var(v) for v in known), strict=True))
    needs = tuple(condition_moved(c, new) for c in before.needs)
    version = state.current[array]
    state.current[array] = replace(
        version, name=None, inner=version.name, needs=needs, indices=known, lost=before.lost
    )


def _define(
    state: State,
    array: str,
    indices: tuple[Generator, ...],
    value: Value,
    place: Place,
    version: Version,
    *,
    everywhere: bool = True,
) -> str:
    """Add a definition; where it holds everywhere, its array holds it behind the statement."""
    taken = array in state.system.definitions
    name = state.system.names.array(array) if taken else array
    added(state.system, Definition(name, indices, value, label=place.label, array=array))
    state.current[array] = replace(version, name=name)
    own = {x.variable: Var(x.name) for x in place.around.loops}
    if place.target is not None and everywhere:
        state.sites[name] = Site(
            array,
            moved(place.target, own),
            place.position,
            tuple(x.position for x in place.around.loops),
            (*version.expanded, *version.dimensions),
        )
    return name


def _is_full(bounds: Range, extent: Index) -> bool:
    return bounds.step == 1 and is_same(bounds.start, Int(0)) and is_same(bounds.stop, extent)


def _affine(conditions: Iterable[Condition]) -> bool:
    return not any(is_data_dependent(c) for c in conditions)
