"""What is known while a listing is read: places, versions of arrays, and definitions."""

from __future__ import annotations

from dataclasses import dataclass, field

from looptrans.adjoint.equations.definitions import Names, System, full
from looptrans.adjoint.equations.facts import Facts
from looptrans.adjoint.refusal import of_unknown_size
from looptrans.ir.affine import sides
from looptrans.ir.condition import Condition
from looptrans.ir.index import Index, Int, Var
from looptrans.ir.program import Program
from looptrans.ir.value import Access, Generator, Subscript, Value
from looptrans.ir.walk import Placed
from looptrans.transforms.editing.naming import names_used

Position = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LoopAround:
    """A loop around a place.

    Attributes:
        position: Where it stands.
        name: Its variable as the listing calls it.
        generator: Its variable and range in the system's names.
    """

    position: Position
    name: str
    generator: Generator

    @property
    def variable(self) -> str:
        """Its variable in the system's names."""
        return self.generator.variable


@dataclass(frozen=True, slots=True)
class Around:
    """What stands around a place.

    Attributes:
        loops: The loops, outermost first.
        conditions: What the guards say, in the system's names.
    """

    loops: tuple[LoopAround, ...] = ()
    conditions: tuple[Condition, ...] = ()

    @property
    def facts(self) -> Facts:
        """What is known there."""
        return Facts(self.conditions).inside(loop.generator for loop in self.loops)

    @property
    def renaming(self) -> dict[str, Index]:
        """The variables of the loops in the system's names."""
        return {loop.name: Var(loop.variable) for loop in self.loops}


@dataclass(frozen=True, slots=True)
class Version:
    """What an array holds from a statement on.

    Attributes:
        name: The definition or the input; None where it is a number or nothing.
        number: The number every cell holds, if that is known.
        loops: The loops around the statement.
        dimensions: For each dimension, the loop whose variable its subscript goes with.
        subscripts: What is written, `t + 1` of `h[t + 1]`, in the system's names.
        expanded: The loops each iteration of which has a version of its own, in order.
        operator: `sum`, `max` or `min` where it accumulates over loops.
        inner: The definition that holds where `needs` does, in terms of `indices`.
        needs: See `inner`.
        indices: The variables `needs` is written in.
        lost: Where not empty, why it is not known what is held where `needs` does not hold; `name`
            is None then.
    """

    name: str | None = None
    number: Value | None = None
    loops: tuple[Position, ...] = ()
    dimensions: tuple[Position | None, ...] = ()
    subscripts: tuple[Subscript, ...] = ()
    expanded: tuple[Position, ...] = ()
    operator: str = ""
    inner: str | None = None
    needs: tuple[Condition, ...] = ()
    indices: tuple[str, ...] = ()
    lost: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a statement works out a definition.

    Attributes:
        array: What it writes.
        target: The cell, in the listing's own names.
        position: The statement's place.
        path: The loops around it, outermost first.
        indices: The loop of each index of the definition; None where it has none.
    """

    array: str
    target: Access
    position: Position
    path: tuple[Position, ...]
    indices: tuple[Position | None, ...]

    def behind(self, count: int) -> Position:
        """Return the node the statement is in, in the body of the innermost of `count` loops."""
        depth = len(self.path[count - 1]) if count else 0
        return self.position[: depth + 1]


@dataclass(frozen=True, slots=True)
class Place:
    """A statement and where it stands.

    Attributes:
        label: Its label, for refusals.
        position: Its place.
        around: What stands around it.
        target: The cell it writes, in the system's names.
    """

    label: str
    position: Position
    around: Around
    target: Access | None = None


@dataclass(slots=True)
class State:
    """What is known of a listing as far as it was read.

    Attributes:
        program: The listing.
        system: The definitions.
        current: What each array holds.
        writers: The statements that write each array.
        sites: Where the listing works out a definition.
        rows: How long rows are whose arrays are not declared.
    """

    program: Program
    system: System = field(init=False)
    current: dict[str, Version] = field(default_factory=dict)
    writers: dict[str, list[Placed]] = field(default_factory=dict)
    sites: dict[str, Site] = field(default_factory=dict)
    rows: dict[tuple[str, int], Index] = field(default_factory=dict)

    def __post_init__(self) -> None:
        taken = {a.name for a in self.program.arrays} | {p.name for p in self.program.parameters}
        self.system = System(Names(taken, names_used(self.program)))

    def index(self, array: str, dimension: int, like: str = "x") -> Generator:
        """Return a new index of an array that runs over a dimension."""
        return full(self.system.names.variable(like), self.extent(array, dimension))

    def extent(self, array: str, dimension: int) -> Index:
        """Return how large an array is in a dimension, so that an index runs from 0 to it.

        What is as large as `max(0, B)` has the indices of what is as large as B.

        Raises:
            NotDifferentiated: It is not known.
        """
        extent = self.program.array(array).shape[dimension]
        extent = self.rows.get((array, dimension)) if extent is None else extent
        if extent is None:
            raise of_unknown_size(self.program.array(array))
        ends = [end for end in sides("max", extent) if end != Int(0)]
        return ends[0] if len(ends) == 1 else extent
