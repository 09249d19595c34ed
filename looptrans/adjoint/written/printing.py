"""Nests as text, with variables and scalars called as a person would call them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from looptrans.adjoint.equations.definitions import plain_name
from looptrans.adjoint.written.again import only_condition
from looptrans.adjoint.written.nests import Nest, Update
from looptrans.algebra.positional.cells import condition_moved, range_moved, value_moved
from looptrans.ir.condition import ALWAYS, Condition
from looptrans.ir.index import Index, Var, substitute, variables
from looptrans.ir.listing import access_text, condition_text, index_text, range_text, value_text
from looptrans.ir.rewrite import range_changed, replaced
from looptrans.ir.value import (
    Access,
    Binary,
    Generator,
    Holds,
    Range,
    Read,
    Reduce,
    Unary,
    Value,
    cells_read,
    condition_variables,
    free_variables,
)

_INDENT = "    "


@dataclass(slots=True)
class Printed:
    """Names in the text.

    Attributes:
        taken: Names no scalar may get.
        arrays: What arrays are called that have another name in the listing.
        taken_arrays: The names of arrays and parameters in the text.
        scalars: The names of scalars given so far, and the definition each is a cell of.
    """

    taken: set[str]
    arrays: dict[str, str]
    taken_arrays: set[str] = field(default_factory=set)
    scalars: dict[str, str] = field(default_factory=dict)

    def scalar(self, wish: str, definition: str, arrays: set[str]) -> str:
        """Return a name for a scalar that nothing else has."""
        name, number = wish, 1
        while name in self.scalars or name in arrays:
            number += 1
            name = f"{wish}_{number}"
        self.scalars[name] = definition
        return name


def body_text(nest: Nest, printed: Printed) -> list[str]:
    """Return the lines of a nest."""
    return _NestText(nest, printed).lines()


def shape_text(extents: tuple[Index, ...]) -> str:
    """Return extents as an annotation has them, without spaces inside one."""
    return " ".join(index_text(extent).replace(" ", "") for extent in extents)


class _NestText:
    def __init__(self, nest: Nest, printed: Printed) -> None:
        self.nest = nest
        self.printed = printed
        self.names: dict[str, Index] = {}
        self.used: set[str] = set()
        self.scalars: dict[Access, str] = {}
        for loop in nest.loops:
            self._bind(loop.variable)

    def _bind(self, variable: str) -> str:
        wish = plain_name(variable)
        name, number = wish, 1
        while name in self.used:
            number += 1
            name = f"{wish}{number}"
        self.used.add(name)
        self.names[variable] = Var(name)
        return name

    def lines(self) -> list[str]:
        nest = self.nest
        lines: list[str] = []
        depth = 0
        known: set[str] = set()
        waiting = list(nest.scalars)
        conditions = list(nest.conditions)
        arrays = set(self.printed.arrays.values()) | self.printed.taken_arrays
        for scalar in nest.scalars:
            self.scalars[scalar.cell] = self.printed.scalar(scalar.name, scalar.cell.array, arrays)
        levels = [None, *nest.loops]
        for loop in levels:
            if loop is not None:
                name = self.names[loop.variable]
                assert isinstance(name, Var)
                bounds = self._range(loop.range)
                lines.append(f"{_INDENT * depth}for {name.name} in {bounds}:")
                depth += 1
                known.add(loop.variable)
            for condition in list(conditions):
                if condition_variables(condition) <= known:
                    needed = self._needed(Holds(condition))
                    for scalar in [s for s in waiting if s.cell in needed]:
                        lines.append(f"{_INDENT * depth}{self._statement(scalar.cell)}")
                        waiting.remove(scalar)
                    lines.append(f"{_INDENT * depth}if {self._condition(condition)}:")
                    depth += 1
                    conditions.remove(condition)
            if loop is None:
                continue
            for scalar in list(waiting):
                if set(free_variables(scalar.value)) <= known:
                    lines.append(f"{_INDENT * depth}{self._statement(scalar.cell)}")
                    waiting.remove(scalar)
        for scalar in waiting:
            lines.append(f"{_INDENT * depth}{self._statement(scalar.cell)}")
        for update in nest.updates:
            lines += self._update(update, depth)
        return lines

    def _needed(self, value: Value) -> set[Access]:
        """Return the scalars a value reads, directly or not."""
        found: set[Access] = set()
        values = {s.cell: s.value for s in self.nest.scalars}
        queue = [value]
        while queue:
            for access in cells_read(queue.pop()):
                if access in values and access not in found:
                    found.add(access)
                    queue.append(values[access])
        return found

    def _statement(self, cell: Access) -> str:
        value = next(s.value for s in self.nest.scalars if s.cell == cell)
        return f"{self.scalars[cell]} = {self._value(value)}"

    def _update(self, update: Update, depth: int) -> list[str]:
        lines = []
        kept, used = dict(self.names), set(self.used)
        for g in update.inner:
            name = self._bind(g.variable)
            lines.append(f"{_INDENT * depth}for {name} in {self._range(g.range)}:")
            depth += 1
        target = Read(update.target)
        value: Value = update.value
        if update.adds:
            match value:
                case Unary("-", operand):
                    value = Binary("-", target, operand)
                case _:
                    value = Binary("+", target, value)
        text = f"{self._value(target)} = {self._value(value)}"
        lines.append(_INDENT * depth + text)
        self.names, self.used = kept, used
        return lines

    def _range(self, bounds: Range) -> str:
        return range_text(range_moved(bounds, self.names))

    def _condition(self, condition: Condition) -> str:
        value = self._named(Holds(condition))
        assert isinstance(value, Holds)
        return condition_text(value.condition)

    def _value(self, value: Value) -> str:
        found = self._named(value)
        if isinstance(found, Read):
            return access_text(found.access)
        return value_text(found)

    def _named(self, value: Value) -> Value:
        """Return a value with scalars and variables under their names."""

        def scalars(part: Value) -> Value | None:
            if isinstance(part, Read):
                if part.access in self.scalars:
                    return Read(Access(self.scalars[part.access], ()))
                name = self.printed.arrays.get(part.access.array)
                if name is not None:
                    return Read(Access(name, part.access.subscripts))
            return None

        return self._bound(value_moved(replaced(value, scalars), self.names))

    def _bound(self, value: Value) -> Value:
        """Give the variables of sums names of their own."""

        def change(part: Value) -> Value | None:
            if not isinstance(part, Reduce):
                return None
            kept, used = dict(self.names), set(self.used)
            new: dict[str, Index] = {}
            found = []
            for g in part.generators:
                bounds = range_changed(g.range, lambda end: _moved(end, new))
                name = self._bind(g.variable)
                new[g.variable] = Var(name)
                found.append(Generator(name, bounds, condition_moved(g.condition, new)))
            generators = tuple(
                g
                if g.condition == ALWAYS
                else replace(g, condition=only_condition(self._bound(Holds(g.condition))))
                for g in found
            )
            body = self._bound(value_moved(part.body, new))
            self.names, self.used = kept, used
            return Reduce(part.function, generators, body)

        return replaced(value, change)


def _moved(index: Index, new: dict[str, Index]) -> Index:
    return substitute(index, new) if variables(index) else index
