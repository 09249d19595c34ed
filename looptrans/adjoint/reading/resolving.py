"""What a read gets: values over definitions and inputs.

What is read is always the version written last in the text. That it is also the one written last
when the listing runs is checked loop by loop.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.adjoint.equations.definitions import refreshed
from looptrans.adjoint.equations.facts import Facts
from looptrans.adjoint.reading.state import LoopAround, Place, Position, State, Version
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.algebra.positional.cells import condition_moved, value_moved
from looptrans.ir.affine import difference, form_of, is_same
from looptrans.ir.condition import Condition, negation, with_operands
from looptrans.ir.index import Int, Var
from looptrans.ir.program import Assign
from looptrans.ir.ranges import upwards
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Access, Const, Holds, Read, Reduce, Select, Subscript, Value, Whole
from looptrans.ir.walk import Placed


def resolved(state: State, value: Value, place: Place, facts: Facts) -> Value:
    """Return a value over definitions and inputs."""

    def change(part: Value) -> Value | None:
        match part:
            case Read(access):
                return read_of(state, access, place, facts)
            case Select(condition, chosen, otherwise):
                tested = resolved_condition(state, condition, place, facts)
                return Select(
                    tested,
                    resolved(state, chosen, place, facts.and_(tested)),
                    resolved(state, otherwise, place, facts.and_(negation(tested))),
                )
            case Reduce(function, generators, body):
                generators = tuple(replace(g, range=upwards(g.range)) for g in generators)
                inside = facts.inside(generators)
                found = tuple(
                    replace(g, condition=resolved_condition(state, g.condition, place, inside))
                    for g in generators
                )
                fresh = Reduce(function, found, resolved(state, body, place, inside))
                return refreshed(fresh, state.system.names)
            case Holds(condition):
                return Holds(resolved_condition(state, condition, place, facts))
            case _:
                return None

    return replaced(value, change)


def resolved_condition(state: State, condition: Condition, place: Place, facts: Facts) -> Condition:
    """Return a condition over definitions and inputs."""
    return with_operands(condition, value=lambda value: resolved(state, value, place, facts))


def read_of(
    state: State, access: Access, place: Place, facts: Facts, accumulates: str = ""
) -> Value:
    """Return what a read gets."""
    array = state.program.array(access.array)
    if array.role == "input":
        return Read(access)
    known = state.current[access.array]
    if array.element != "float" and known.name is None and known.number is None:
        raise NotDifferentiated(
            f"{access.array} holds integers that the listing computes", place.label
        )
    if access.rank:
        raise NotDifferentiated(f"the whole row {access.array} is read", place.label)
    version = state.current[access.array]
    _check(state, access, version, place, accumulates)
    if version.name is None and version.inner is None:
        if version.number is None:
            raise NotDifferentiated(f"{access.array} is read before it is set", place.label)
        return version.number
    loops = {x.position: x for x in place.around.loops}
    leading = tuple(Var(loops[position].variable) for position in version.expanded)
    subscripts = (*leading, *access.indices)
    name = version.name
    if version.inner is not None:
        here = dict(zip(version.indices, subscripts, strict=True))
        if all(facts.imply(condition_moved(c, here)) for c in version.needs):
            name = version.inner
    if name is None:
        raise NotDifferentiated(version.lost, place.label)
    return held(state, Access(name, subscripts))


def held(state: State, access: Access) -> Value:
    """Return what a cell holds: that of an earlier version, where its subscripts say which.

    After `q[i, 0] = a` and `q[i, 1] = b`, a read of `q[i, 0]` gets what the first has set.
    """
    definition = state.system.definitions.get(access.array)
    match None if definition is None else definition.value:
        case Const() as number:
            return number
        case Select(condition, chosen, otherwise) if definition is not None:
            here = dict(zip(definition.variables, access.indices, strict=True))
            tested = condition_moved(condition, here)
            taken: Value | None = None
            if Facts().imply(tested):
                taken = chosen
            elif Facts().imply(negation(tested)):
                taken = otherwise
            match None if taken is None else value_moved(taken, here):
                case Const() as number:
                    return number
                case Read(inner):
                    return held(state, inner)
    return Read(access)


def _check(state: State, access: Access, version: Version, place: Place, accumulates: str) -> None:
    """Refuse a read that may get something else than the version written last in the text."""
    mine = {x.position: x for x in place.around.loops}
    fresh: set[Position] = set()
    for position in version.loops:
        if position not in mine:
            continue
        if position in version.expanded:
            fresh.add(position)
            continue
        if position in version.dimensions:
            dimension = version.dimensions.index(position)
            ends = access.subscripts[dimension], version.subscripts[dimension]
            if _is_one(*ends) or (
                set(version.loops) <= set(version.dimensions)
                and _is_earlier(state, access.array, position, mine[position], *ends)
            ):
                fresh.add(position)
                continue
            raise NotDifferentiated(
                f"{access.array} is read where another iteration of {mine[position].name} "
                "may have written it",
                place.label,
            )
        if accumulates and version.operator == accumulates:
            continue
        raise NotDifferentiated(
            f"{access.array} is read in between, while {mine[position].name} still gathers it",
            place.label,
        )
    for position in version.expanded:
        if position not in mine:
            raise NotDifferentiated(
                f"{access.array} is read as the last iteration of a loop left it", place.label
            )
    _check_later(state, access, place, mine, fresh, accumulates)


def _is_earlier(
    state: State, array: str, loop: Position, around: LoopAround, read: Subscript, set_: Subscript
) -> bool:
    """Tell whether a cell is what the one statement that sets any has set iterations before."""
    writers = state.writers.get(array, ())
    if len(writers) != 1 or isinstance(read, Whole) or isinstance(set_, Whole):
        return False
    step = dict(zip(writers[0].loop_positions, writers[0].loops, strict=True))[loop].range.step
    factor = form_of(set_).terms.get(Var(around.variable), 0)
    apart = difference(set_, read)
    return isinstance(apart, Int) and abs(factor) == 1 and apart.value * factor * step > 0


def _is_one(one: Subscript, other: Subscript) -> bool:
    return not isinstance(one, Whole) and not isinstance(other, Whole) and is_same(one, other)


def _check_later(
    state: State,
    access: Access,
    place: Place,
    mine: dict[Position, LoopAround],
    fresh: set[Position],
    accumulates: str,
) -> None:
    """Refuse a read that may get what a statement further down wrote an iteration before."""
    for writer in state.writers.get(access.array, ()):
        if writer.position < place.position or not isinstance(writer.node, Assign):
            continue
        if accumulates and _also(writer, access.array, accumulates):
            continue
        names = [loop.variable for loop in writer.loops]
        for position, loop in zip(writer.loop_positions, writer.loops, strict=True):
            if position not in mine or position in fresh:
                continue
            own = Var(mine[position].variable)
            apart = any(
                written_ == Var(loop.variable) and read == own
                for target in writer.node.targets
                if target.array == access.array
                for written_, read in zip(target.subscripts, access.subscripts, strict=True)
            )
            if not apart or names.count(loop.variable) > 1:
                raise NotDifferentiated(
                    f"{access.array} is read as an earlier iteration of {loop.variable} left "
                    f"it ({writer.label})",
                    place.label,
                )


def _also(writer: Placed, array: str, function: str) -> bool:
    """Tell whether a statement only adds to an array, by the same operator."""
    assert isinstance(writer.node, Assign)
    if len(writer.node.targets) != 1 or len(writer.node.values) != 1:
        return False
    found = accumulation(writer.node.targets[0], writer.node.values[0])
    return found is not None and found[0] == function and writer.node.targets[0].array == array
