"""What a person can get wrong when naming a transformation, and why one is refused.

One class each; the docstring is what `explain` prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from looptrans.ir.diagnostic import Mistake
from looptrans.ir.verdict import WitnessKind


class BadScript(Mistake):
    """The text is not a list of transformations.

    A transformation is a name and its arguments in parentheses, `interchange(i, j)`. Several are
    given as several arguments of the command, or in one, separated by `;` or line ends; what
    follows a `#` is a comment. Loops and statements are named as the listing does: a loop by its
    variable `j`, or, where several have it, as `j@12` (the line it stands on) or `j@S7` (the one
    around that statement); a statement by its label. The shell must be kept from reading the
    parentheses itself: put quotes around each transformation.
    """

    code: ClassVar[str] = "E040"
    title: ClassVar[str] = "transformation not understood"


class UnknownTransformation(Mistake):
    """There is no transformation of this name.

    `looptrans check --help` lists all of them, with their arguments.
    """

    code: ClassVar[str] = "E041"
    title: ClassVar[str] = "unknown transformation"


class WrongArguments(Mistake):
    """A transformation has too many or too few arguments, or arguments of another kind.

    Arguments come in a fixed order; the message shows it, and an example. Sizes are integers above
    0, operators are `+`, `*`, `max` and `min`, everything else is a name.
    """

    code: ClassVar[str] = "E042"
    title: ClassVar[str] = "arguments do not fit"


class Illegal(Mistake):
    """The transformed program would not do what the listing does.

    Legal means: for all sizes and inputs that the contracts admit, the program afterwards computes
    the same values. Where that fails, an example shows it, the smallest there is: sizes, and two
    instances of statements, written with the values of their loop variables, as S4(1,2). The codes
    after this one say what the example shows. Where there is none, the program afterwards does not
    consist of the same statement instances.
    """

    code: ClassVar[str] = "E050"
    title: ClassVar[str] = "illegal transformation"


class DependenceReversed(Illegal):
    """A dependence would run backward.

    Two statement instances touch one cell and at least one of them writes, so the order in which
    they run matters; afterwards the later one would come first. In a flow dependence the first
    writes what the second reads; in an anti dependence the first reads what the second overwrites;
    in an output dependence both write. The distance counts iterations of each common loop from the
    first instance to the second, and the direction is its sign: `<` a later iteration, `=` the
    same, `>` an earlier one. A loop carries the dependence when it is the outermost one in which
    the two differ.
    """

    code: ClassVar[str] = "E051"
    title: ClassVar[str] = "a dependence would be reversed"


class Race(Illegal):
    """Two instances that nothing orders touch one cell, and one of them writes.

    Iterations of a parallel loop may run in any order and at the same time. Only a barrier, or
    turns (`with atomic(turn=j):`), put instances of different iterations in order. That is no race
    where both stand in atomic parts, or both are updates of `reduce` parts with one operator, or
    each iteration has a cell of its own because the name is private to it. A race is an error also
    where the numbers come out right.
    """

    code: ClassVar[str] = "E052"
    title: ClassVar[str] = "race"


class OtherValueRead(Illegal):
    """A read would get the value of another write.

    The example names a read, the write whose value it gets as the listing stands, and the write
    whose value it would get afterwards.
    """

    code: ClassVar[str] = "E053"
    title: ClassVar[str] = "a read would get another value"


class OtherNumbers(Illegal):
    """The program afterwards gives other numbers.

    The example gives inputs on which an expression differs from the one whose place it takes, or on
    which the two programs, run, give different results.
    """

    code: ClassVar[str] = "E054"
    title: ClassVar[str] = "other numbers"


class Undecided(Mistake):
    """It could not be decided whether the transformation is legal.

    Unknown is never taken for legal. The reason is named: a budget that ran out, or something about
    which nothing exact can be said, such as a subscript read from data. A contract (`assert …`)
    that says more about the data may help.
    """

    code: ClassVar[str] = "E055"
    title: ClassVar[str] = "undecided"


SCRIPT_MISTAKES: Final[tuple[type[Mistake], ...]] = (
    BadScript,
    UnknownTransformation,
    WrongArguments,
)
REFUSALS: Final[Mapping[WitnessKind | None, type[Mistake]]] = {
    None: Illegal,
    "order": DependenceReversed,
    "race": Race,
    "storage": OtherValueRead,
    "numbers": OtherNumbers,
}
