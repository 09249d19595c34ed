"""A listing as equations: every array is defined once, cell by cell.

    for i: for j: S[i, j] = …                 S[i, j] = …
           for j: m[i] = max(m[i], S[i, j])   m[i]    = max(S[i, j] for j)

A definition gives one value for each of its indices. A sum, maximum or minimum over loops is a
reduction inside the value, so that no definition reads itself. Variables are unique in the whole
system (`j~7`, in which `j` is how the listing calls it), so that values can be put into each other
without a thought for names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from keyword import iskeyword
from typing import Literal

from looptrans.algebra.positional.cells import condition_moved, range_moved, value_moved
from looptrans.ir.affine import is_same, simplified
from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import Arith, Index, Int, Var
from looptrans.ir.rewrite import replaced, with_reads
from looptrans.ir.value import (
    Access,
    Generator,
    Range,
    Read,
    Reduce,
    Value,
    has_reduction,
    walk_value,
)

Origin = Literal["forward", "again", "adjoint"]
_MARK = "~"


@dataclass(slots=True)
class Names:
    """Gives out variables that no one else has, and names of arrays.

    Attributes:
        taken: Names of arrays and sizes, which no array may get again.
        used: All names of the listing, those of loops and sums as well: no array may get one.
        given: Those that are there from the start, which no variable is printed like.
    """

    taken: set[str]
    used: frozenset[str]
    count: int = 0
    given: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.given = frozenset(self.taken)

    def variable(self, like: str) -> str:
        """Return a new variable that is printed like another one, or with a number behind it."""
        self.count += 1
        plain, number = plain_name(like), 1
        while plain in self.given:
            number += 1
            plain = f"{plain_name(like)}{number}"
        return f"{plain}{_MARK}{self.count}"

    def array(self, wish: str) -> str:
        """Return a new name for an array: the wish, or the wish with a number behind it."""
        name, number = wish, 1
        while name in self.taken | self.used or iskeyword(name):  # the gradient of `ef`, say
            number += 1
            name = f"{wish}_{number}"
        self.taken.add(name)
        return name


def plain_name(variable: str) -> str:
    """Return a variable as the listing calls it."""
    return variable.partition(_MARK)[0]


@dataclass(frozen=True, slots=True)
class Definition:
    """An array, or a scalar, with its value for each of its indices.

    Attributes:
        name: Its name, which no other definition has.
        indices: Its indices with the range of each: `0 ..` its extent.
        value: The value, in which sums over loops are reductions.
        origin: Whether the listing computes it, the backward pass, or whether it is worked out
            again wherever it is read, however small it is.
        label: The statement it comes from, or an empty string.
        array: The array of the listing it is a version of, or an empty string.
    """

    name: str
    indices: tuple[Generator, ...]
    value: Value
    origin: Origin = "forward"
    label: str = ""
    array: str = ""

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of its indices."""
        return tuple(g.variable for g in self.indices)

    @property
    def extents(self) -> tuple[Index, ...]:
        """Where its indices end."""
        return tuple(g.range.stop for g in self.indices)

    @property
    def cell(self) -> Read:
        """The cell the value is for."""
        return Read(Access(self.name, tuple(Var(name) for name in self.variables)))

    @property
    def has_reduction(self) -> bool:
        """Whether a sum, maximum or minimum over loops is part of the value."""
        return has_reduction(self.value)

    def reads(self) -> dict[str, list[Access]]:
        """Return what the value reads, by array, in order of appearance."""
        return reads_of(self.value)


@dataclass(slots=True)
class System:
    """Definitions in an order in which each reads only earlier ones.

    Attributes:
        names: Where new names come from.
        definitions: By name, in order.
    """

    names: Names
    definitions: dict[str, Definition] = field(default_factory=dict)

    def add(self, definition: Definition) -> Definition:
        """Add a definition at the end, or put a new one in its place."""
        self.definitions[definition.name] = definition
        return definition

    def is_forward(self, name: str) -> bool:
        """Tell whether a name is defined by the listing, not by its gradients."""
        definition = self.definitions.get(name)
        return definition is not None and definition.origin != "adjoint"

    def order(self) -> list[str]:
        """Return the names of definitions so that each stands behind what it reads."""
        found: dict[str, None] = {}

        def visit(name: str) -> None:
            if name in found or name not in self.definitions:
                return
            for read in self.definitions[name].reads():
                if read != name:
                    visit(read)
            found[name] = None

        for name in list(self.definitions):
            visit(name)
        return list(found)

    def sort(self) -> None:
        """Put every definition behind what it reads."""
        before = dict(self.definitions)
        order = self.order()
        self.definitions.clear()
        self.definitions.update({name: before[name] for name in order})

    def instance(self, name: str, subscripts: tuple[Index, ...]) -> Value:
        """Return the value of a cell, its bound variables new."""
        definition = self.definitions[name]
        indices = dict(zip(definition.variables, subscripts, strict=True))
        value = value_moved(definition.value, indices)
        if any(not isinstance(index, Var) for index in subscripts):
            # What was put in may cancel: k[i - t] at i = n + t is k[n].
            value = with_reads(value, _simplified)
        return refreshed(value, self.names)


def _simplified(access: Access) -> Access:
    found = tuple(simplified(s) if isinstance(s, Arith) else s for s in access.subscripts)
    return Access(access.array, found)


def reads_of(value: Value) -> dict[str, list[Access]]:
    """Return what a value reads, by array, in order of appearance; those of conditions too."""
    found: dict[str, list[Access]] = {}
    for part in walk_value(value):
        if isinstance(part, Read) and part.access not in found.setdefault(part.access.array, []):
            found[part.access.array].append(part.access)
    return found


def refreshed(value: Value, names: Names) -> Value:
    """Give every reduction in a value variables of its own."""

    def change(part: Value) -> Value | None:
        if not isinstance(part, Reduce):
            return None
        generators, new = refreshed_generators(part.generators, names)
        return Reduce(part.function, generators, refreshed(value_moved(part.body, new), names))

    return replaced(value, change)


def refreshed_generators(
    generators: tuple[Generator, ...], names: Names
) -> tuple[tuple[Generator, ...], dict[str, Index]]:
    """Give bound variables new names; return the generators and what each variable became."""
    # The range of one may name another, wherever that stands.
    own = {g.variable: names.variable(g.variable) for g in generators}
    new: dict[str, Index] = {old: Var(variable) for old, variable in own.items()}
    found = (
        Generator(own[g.variable], range_moved(g.range, new), condition_moved(g.condition, new))
        for g in generators
    )
    return tuple(found), new


def is_same_range(one: Range, other: Range) -> bool:
    """Tell whether two ranges are plainly the same, however their sums are ordered."""
    ends = (one.start, other.start), (one.stop, other.stop)
    return one.step == other.step and all(is_same(a, b) for a, b in ends)


def full(variable: str, extent: Index) -> Generator:
    """Return an index that runs from 0 to an extent."""
    return Generator(variable, Range(Int(0), extent), ALWAYS)
