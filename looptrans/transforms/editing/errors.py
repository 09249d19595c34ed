"""What can be wrong with the arguments of a transformation: one class each.

The docstring is what `explain` prints.
"""

from __future__ import annotations

from typing import ClassVar

from looptrans.ir.diagnostic import Mistake


class TransformError(Mistake):
    """The transformation cannot be applied to this program.

    The loops and statements that are named do not have the form the transformation needs; the
    message says which and what to do. This is not about whether the result would be right: a
    transformation that can be applied and is not right is *illegal*, and comes with an example.
    """

    code: ClassVar[str] = "E043"
    title: ClassVar[str] = "transformation cannot be applied"


class NoSuchLoop(TransformError):
    """The program has no loop of this name.

    A loop is named by its variable, `j`. Where several loops have it, the line is added, `j@12`,
    or a statement of the loop, `j@S7`.
    """

    code: ClassVar[str] = "E044"
    title: ClassVar[str] = "no such loop"


class AmbiguousLoop(TransformError):
    """Several loops have this name.

    Add the line the loop stands on, `j@12`, or the label of a statement in it, `j@S7`.
    """

    code: ClassVar[str] = "E045"
    title: ClassVar[str] = "several loops of this name"


class NoSuchStatement(TransformError):
    """There is no statement with this label, or not where the transformation needs it.

    Statements are named by the labels that `looptrans show` prints: `S3`, and `G1` for a condition
    that depends on data.
    """

    code: ClassVar[str] = "E046"
    title: ClassVar[str] = "no such statement"


class NotNested(TransformError):
    """The loops do not stand inside one another as the transformation needs it.

    Interchange, permutation and tiling take a *perfect nest*: loops each of which holds nothing but
    the next one, except for guards on loop variables and sizes. Statements between two loops are
    first moved into loops of their own, with `distribute`.
    """

    code: ClassVar[str] = "E047"
    title: ClassVar[str] = "loops not nested as needed"


class NotAdjacent(TransformError):
    """The loops do not stand one directly after the other, or do not have the same iterations.

    Fusion makes one loop of two that follow one another in the same block, are executed in the
    same way, and run over the same range.
    """

    code: ClassVar[str] = "E048"
    title: ClassVar[str] = "loops cannot be joined"


class BadNumber(TransformError):
    """A size or a factor has a value the transformation cannot use.

    Sizes of strips and tiles are integers above 0; a factor of a skew is an integer other than 0.
    """

    code: ClassVar[str] = "E049"
    title: ClassVar[str] = "number does not fit"


class NameInUse(TransformError):
    """The listing already uses a name that the transformation needs.

    Rename the one of the listing.
    """

    code: ClassVar[str] = "E056"
    title: ClassVar[str] = "name already in use"


class RangeNotFound(TransformError):
    """The range a loop would have in its new place cannot be written down.

    When loops change places, what bounded the inner loop by the outer variable must bound the outer
    loop by the inner variable. That can be done for sums of loop variables and sizes, with min, max
    and floor division. It cannot where a bound is read from an array at the outer variable
    (`range(n[b])`), or multiplies it with a size.
    """

    code: ClassVar[str] = "E057"
    title: ClassVar[str] = "range cannot be found"


class BoundToLoop(TransformError):
    """Barriers and turns belong to one loop, and the transformation would give them to another.

    `barrier()` and `with atomic(turn=j):` stand directly in the body of their parallel loop. Make
    the loop parallel after it has been transformed.
    """

    code: ClassVar[str] = "E058"
    title: ClassVar[str] = "barrier or turn bound to its loop"


class NothingToDo(TransformError):
    """The transformation would leave the program as it is.

    Each transformation does one thing; where there is nothing of the kind to do, the arguments are
    probably not the ones that were meant.
    """

    code: ClassVar[str] = "E059"
    title: ClassVar[str] = "nothing to do"


NEST_MISTAKES: tuple[type[TransformError], ...] = (
    TransformError,
    NoSuchLoop,
    AmbiguousLoop,
    NoSuchStatement,
    NotNested,
    NotAdjacent,
    BadNumber,
    NameInUse,
    RangeNotFound,
    BoundToLoop,
    NothingToDo,
)
