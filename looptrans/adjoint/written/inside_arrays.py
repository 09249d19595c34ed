"""Nests that read nothing beside an array, as the listing does not.

What a nest works out again may stand in loops that go further than those it is read in, and what
it asks may be there in some iterations alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from looptrans.adjoint.equations.definitions import System
from looptrans.adjoint.equations.facts import Facts, bounds_of, said_of_sizes
from looptrans.adjoint.equations.in_range import Inside, tested_products
from looptrans.adjoint.written.nests import Nest
from looptrans.adjoint.written.standing import Scalar
from looptrans.ir.condition import Condition, conjunction
from looptrans.ir.index import Index, Int, substitute, variables
from looptrans.ir.program import Program
from looptrans.ir.value import (
    Access,
    Const,
    Generator,
    Holds,
    Read,
    Select,
    Value,
    condition_variables,
    free_variables,
    walk_value,
)


@dataclass(frozen=True, slots=True)
class Arrays:
    """The arrays that nests read: how far each goes.

    Attributes:
        program: The listing that was differentiated.
        system: Definitions, adjoints among them.
        incoming: For the gradient of each output that receives one, the definition of the output.
        said: What the listing says of its sizes.
        tested: The sizes that a variable is multiplied by where the listing tests it.
    """

    program: Program
    system: System
    incoming: Mapping[str, str]
    said: Facts
    tested: frozenset[str]

    @staticmethod
    def of(program: Program, system: System, incoming: Mapping[str, str]) -> Arrays:
        """Return what is known of the arrays of a listing and of its definitions."""
        return Arrays(program, system, incoming, said_of_sizes(program), tested_products(program))

    def read_inside(self, nest: Nest) -> Nest:
        """Leave out what would read beside an array: the listing reads none of it there."""
        own = frozenset(g.variable for g in nest.loops)
        reads = Inside(self.extents, self._starts, own, self.tested)
        nest = self._asked_in_range(nest, reads)
        conditions = nest.conditions
        facts = self.said.and_(*conditions).inside(nest.loops)
        (update,) = nest.updates
        value, more = reads.value(update.value, facts.inside(update.inner))
        update = replace(update, value=value)
        conditions = (*nest.conditions, *more)
        nest = replace(nest, conditions=conditions)
        scalars = []
        for scalar in nest.scalars:
            definition = self.system.definitions.get(scalar.cell.array)
            is_sum = definition is None or definition.origin == "adjoint"
            known = self.said.and_(*_known_to(nest, scalar))
            value, needed = reads.value(scalar.value, known, is_sum=is_sum)
            if needed:
                value = Select(conjunction(*needed), value, Const(0.0))
            scalars.append(replace(scalar, value=value))
        return replace(nest, scalars=tuple(scalars), updates=(update,))

    def _asked_in_range(self, nest: Nest, reads: Inside) -> Nest:
        """Ask before a condition whether what it reads is there: other loops stand inside."""
        loops = {g.variable: g for g in nest.loops}
        found: dict[Condition, None] = {}
        for condition in nest.conditions:
            around = _around(loops, condition_variables(condition))
            known = [*_bounds(loops, around)]
            known += [each for each in found if condition_variables(each) <= around]
            found |= dict.fromkeys(reads.condition(condition, self.said.and_(*known)))
        return replace(nest, conditions=tuple(found))

    def extents(self, access: Access) -> tuple[Index | None, ...]:
        """Return how far each subscript of an access may go, where that is known."""
        like = self.incoming.get(access.array, access.array)
        definition = self.system.definitions.get(like)
        if definition is not None:
            # How far one index goes may depend on another: j < i + 1.
            here = dict(zip(definition.variables, access.indices, strict=True))
            return tuple(substitute(each, here) for each in definition.extents)
        arrays = {array.name: array for array in self.program.arrays}
        return arrays[access.array].shape if access.array in arrays else ()

    def _starts(self, access: Access) -> tuple[Index, ...]:
        like = self.incoming.get(access.array, access.array)
        definition = self.system.definitions.get(like)
        if definition is None:
            return (Int(0),) * len(access.indices)
        here = dict(zip(definition.variables, access.indices, strict=True))
        return tuple(substitute(g.range.start, here) for g in definition.indices)


def _around(loops: Mapping[str, Generator], names: Iterable[str]) -> set[str]:
    """Return which loops stand around what reads some variables."""
    around: set[str] = set()
    queue = [*names]
    while queue:
        name = queue.pop()
        if name in loops and name not in around:
            around.add(name)
            bounds = loops[name].range
            queue += [*variables(bounds.start), *variables(bounds.stop)]
    return around


def _bounds(loops: Mapping[str, Generator], around: set[str]) -> list[Condition]:
    """Return what some loops say of their variables."""
    return [c for name in loops if name in around for c in bounds_of(name, loops[name].range)]


def _known_to(nest: Nest, scalar: Scalar) -> tuple[Condition, ...]:
    """Return what holds where a scalar is worked out, outside of all loops that it does not need.

    A condition that reads it stands behind it.
    """
    loops = {g.variable: g for g in nest.loops}
    around = _around(loops, free_variables(scalar.value))
    found = _bounds(loops, around)
    values = {each.cell: each.value for each in nest.scalars}

    def needs(value: Value) -> bool:
        read = {part.access for part in walk_value(value) if isinstance(part, Read)}
        return scalar.cell in read or any(needs(values[each]) for each in read & values.keys())

    for condition in nest.conditions:
        if condition_variables(condition) <= around and not needs(Holds(condition)):
            found.append(condition)
    return tuple(found)
