"""Program: a loop nest as its author wrote it.

A Program is immutable. Its body is a tree of loops, guards and statements; domains, schedules and
access relations are views of that tree (`looptrans.ir.walk`, `.domain`, `.outputs`), never stored
beside it. Spans are not part of equality: two programs are equal when they say the same, wherever
they stand.

    Program ─ arguments, parameters (kinds), arrays (roles, shapes, placement), contracts, outputs
       └ body: Declaration │ Loop │ If │ Assign
                              └ Range    └ Condition
                                └ Index            └ Access ─ array, subscripts (Index)
                                                   └ Value

The loops and statements at the top of the body are the stages of the program, one after another;
local arrays are the named temporaries between them, each with a placement. `Loop.execution` says
how the iterations of a loop are ordered, `Array.placement` what is kept where and what is updated
atomically; a barrier between phases, or a loop over blocks, is one more kind of `Node`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from looptrans.ir.condition import Condition
from looptrans.ir.index import Index
from looptrans.ir.source import NOWHERE, Source, Span
from looptrans.ir.value import Access, Create, Generator, Range, Value

ParameterKind: TypeAlias = Literal["size", "const", "real", "seed", "stride"]
Element: TypeAlias = Literal["float", "int", "bool"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number that is fixed during a run and not computed by it.

    Attributes:
        name: Its name in the listing; `self.N` is one too.
        kind: `size` an integer of bounds, guards, subscripts and shapes; `const` such an integer
            that is known when a kernel is emitted; `real` a number of values, which may be
            differentiated; `seed` the key of a random stream; `stride` a memory stride.
        annotation: The annotation as written, or None.
        default: The default value in the signature, or None.
    """

    name: str
    kind: ParameterKind
    annotation: str | None = None
    default: float | int | None = None
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def is_integer(self) -> bool:
        """Whether index expressions may mention it."""
        return self.kind != "real"


@dataclass(frozen=True, slots=True)
class Array:
    """An array, or a scalar (rank 0).

    Attributes:
        name: Its name in the listing.
        rank: The number of its dimensions.
        element: What it holds.
        role: `input` comes from outside (and may be written there), `local` is made by the
            listing, by a creation or by a first assignment.
        shape: The extent of each dimension where it is known, else None.
        value_range: For an integer array, the declared `low:high` (high exclusive) of its values.
        annotation: The annotation as written, or None.
        placement: Where it lives in a generated kernel.
    """

    name: str
    rank: int
    element: Element
    role: Literal["input", "local"]
    shape: tuple[Index | None, ...]
    value_range: tuple[Index, Index] | None = None
    annotation: str | None = None
    placement: Literal["unplaced", "register", "global", "partials", "atomic"] = "unplaced"
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Contract:
    """An assumption the author states: `assert all(cu[b] <= cu[b + 1] for b in range(B))`.

    The condition may mention parameters, the generators' variables, opaque terms and products of
    parameters (`H == G * R`).
    """

    condition: Condition
    generators: tuple[Generator, ...] = ()
    leading: tuple[str, ...] = ()
    comment: str = ""
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Declaration:
    """A creation before the nest: `O = zeros((M, D))`. It gives the array its first values."""

    array: str
    creation: Create
    leading: tuple[str, ...] = ()
    comment: str = ""
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Assign:
    """A statement: read everything on the right, then write the targets from left to right.

    Attributes:
        label: The name the listing gives it (`S3`), or the next free `S<number>`.
        targets: What is written; more than one for `a, b = x, y` and for `a = b = x`.
        values: One value for each target, or a single one that all targets take.
        labelled: Whether the author wrote the label.
        augmented: Whether it is written `target op= …`; the value is then `target op …` in full.
        comment: The trailing comment as written, without the first `#`.
        leading: The comment lines above it.
    """

    label: str
    targets: tuple[Access, ...]
    values: tuple[Value, ...]
    labelled: bool = False
    augmented: bool = False
    comment: str = ""
    leading: tuple[str, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class If:
    """A guard. An index condition is part of the domain; a data-dependent one has a label.

    Attributes:
        label: `G1`, `G2`, … where the condition depends on data (it is then a statement that
            reads), else None.
    """

    condition: Condition
    body: tuple[Node, ...]
    orelse: tuple[Node, ...] = ()
    label: str | None = None
    comment: str = ""
    else_comment: str = ""
    leading: tuple[str, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Loop:
    """`for variable in range(start, stop, step)`; the step is a constant that is not zero."""

    variable: str
    range: Range
    body: tuple[Node, ...]
    execution: Literal["sequential", "parallel"] = "sequential"
    comment: str = ""
    leading: tuple[str, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)


Node: TypeAlias = Declaration | Assign | If | Loop


@dataclass(frozen=True, slots=True)
class Program:
    """A listing.

    Attributes:
        name: The function's name; for a method, `Class.method`.
        arguments: The function's arguments in order, parameters and arrays alike.
        parameters: Every parameter, in order of first appearance.
        arrays: Every array and scalar, in order of first appearance.
        contracts: What the author assumes.
        body: Declarations, loops, guards and statements in order.
        outputs: The names returned; arguments that are written are outputs besides.
        is_function: False for a listing that is bare loops without a `def`.
        docstring: The docstring, or None.
        closing: Comment lines after the last statement.
        return_comment: The trailing comment of the `return`.
        leading: The comment lines above the `def`.
        source: The text the spans point into.
    """

    name: str
    arguments: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    arrays: tuple[Array, ...]
    contracts: tuple[Contract, ...]
    body: tuple[Node, ...]
    outputs: tuple[str, ...] = ()
    is_function: bool = True
    docstring: str | None = None
    comment: str = ""
    return_comment: str = ""
    closing: tuple[str, ...] = ()
    leading: tuple[str, ...] = ()
    source: Source = field(default=Source("<listing>", ""), compare=False)

    def array(self, name: str) -> Array:
        """Return the array called `name`.

        Raises:
            KeyError: There is none.
        """
        for array in self.arrays:
            if array.name == name:
                return array
        raise KeyError(name)

    def parameter(self, name: str) -> Parameter:
        """Return the parameter called `name`.

        Raises:
            KeyError: There is none.
        """
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise KeyError(name)
