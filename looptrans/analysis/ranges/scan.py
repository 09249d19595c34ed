"""What is asked about the ranges of loops that change places, and what is answered; plain data."""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.ir.condition import Relation
from looptrans.ir.index import Index, Var
from looptrans.ir.value import Range


@dataclass(frozen=True, slots=True)
class Dimension:
    """A loop of the nest as it will be.

    Attributes:
        variable: Its variable.
        step: What it counts in; the sign says in which direction.
        origin: With a step other than 1 and -1, a value of the variable: all others are whole steps
            away from it. None for a loop over tiles, whose origin is to be found.
        tiles: For a loop over tiles, the variable of the loop inside the tiles.
        range: Its range as it was, to be kept where it can be; None for a loop inside a tile, whose
            range need not be as small as can be.
    """

    variable: str
    step: int
    origin: Index | None = None
    tiles: str | None = None
    range: Range | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """A condition that an iteration meets: one end of a range.

    Attributes:
        variable: The variable whose range it is.
        relation: `variable >= start`, `variable < stop`.
    """

    variable: str
    relation: Relation


@dataclass(frozen=True, slots=True)
class Scan:
    """A set of iterations and the order of the loops that are to run through it.

    Attributes:
        dimensions: The loops, outermost first.
        bounds: What their iterations meet.
    """

    dimensions: tuple[Dimension, ...]
    bounds: tuple[Bound, ...]


@dataclass(frozen=True, slots=True)
class Scanned:
    """The loops that run through a `Scan`.

    Attributes:
        ranges: The range of each loop, outermost first.
        guards: What is left to be tested in the innermost one.
        unbounded: The variable of a loop whose range cannot be found; there are no ranges then.
    """

    ranges: tuple[Range, ...] = ()
    guards: tuple[Relation, ...] = ()
    unbounded: str | None = None


def bounds_of(variable: str, limits: Range) -> tuple[Bound, Bound]:
    """Return the two ends of a range: where it starts, then where it stops."""
    up = limits.step > 0
    return (
        Bound(variable, Relation(">=" if up else "<=", Var(variable), limits.start)),
        Bound(variable, Relation("<" if up else ">", Var(variable), limits.stop)),
    )
