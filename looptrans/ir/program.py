"""Program: a loop nest as its author wrote it.

A Program is immutable. Its body is a tree of loops, guards and statements; domains, schedules and
access relations are views of that tree (`looptrans.ir.walk`, `.domain`, `.outputs`), never stored
beside it. Spans are not part of equality: two programs are equal when they say the same, wherever
they stand.

    Program ─ arguments, parameters (kinds), arrays (roles, shapes, placement), contracts, outputs
       └ body: Declaration │ Loop │ If │ Atomic │ BlockReduce │ Barrier │ Assign
                              └ Range    └ Condition
                                └ Index                             └ Access ─ array, subscripts
                                                                    └ Value

The loops and statements at the top of the body are the stages of the program, one after another;
local arrays are the named temporaries between them, each with a placement. `Loop.execution` says
how the iterations of a loop are ordered, and `Loop.private` which names each iteration has for
itself. Inside a parallel loop `Atomic`, `BlockReduce` and `Barrier` restore as much order as is
needed. A program with parallel loops means what its *sequential reading* means: every loop in
order, a loop with barriers as one loop for each phase. Where it has no race, every execution of it
gives that result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from looptrans.ir.condition import Condition, conjuncts
from looptrans.ir.index import Index
from looptrans.ir.monoids import Monoid
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


# Annotations that state a type; others leave it to the caller: `Float`, and `Int`, 32 or 64 bits.
STATED = {
    "Float32": "float32",
    "Float8e4m3fn": "float8_e4m3fn",
    "Float8e5m2": "float8_e5m2",
    "Int8": "int8",
    "UInt8": "uint8",
    "Int16": "int16",
}
# Integers of fewer than 32 bits: the least and the greatest.
NARROW = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}
# Types whose numbers every floating-point type of 16 bits has.
EIGHT_BITS = ("float8_e4m3fn", "float8_e5m2", "int8", "uint8")


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

    @property
    def extents(self) -> tuple[Index, ...]:
        """The extents that are known."""
        return tuple(extent for extent in self.shape if extent is not None)

    @property
    def stated(self) -> str | None:
        """The type that an annotation states, where it says more than what elements are."""
        text = (self.annotation or "").strip("\"'")  # a whole annotation may be a string
        return STATED.get(text.partition("[")[0].rpartition(".")[2])


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
    """`for variable in range(start, stop, step)`; the step is a constant that is not zero.

    Attributes:
        execution: `parallel`, written `for variable in parallel(start, stop, step)`: nothing orders
            two iterations but barriers and turns.
        private: The locals each iteration has for itself, written `private: (x, y)` as the first
            line of the body. A copy starts without a value and ends with its iteration; a private
            name is used nowhere but in loops that make it private.
    """

    variable: str
    range: Range
    body: tuple[Node, ...]
    execution: Literal["sequential", "parallel"] = "sequential"
    private: tuple[str, ...] = ()
    comment: str = ""
    leading: tuple[str, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def is_plain(self) -> bool:
        """Whether its iterations run one after the other and share all names."""
        return self.execution == "sequential" and not self.private


@dataclass(frozen=True, slots=True)
class Atomic:
    """`with atomic():`, a part of an iteration that no other atomic part interrupts.

    Attributes:
        body: What runs as one step.
        turn: Where given (`with atomic(turn=j):`), the iterations of the parallel loop `j`, in
            whose body the block stands directly, go through it in the order of `j`; else in any
            order.
    """

    body: tuple[Node, ...]
    turn: str | None = None
    comment: str = ""
    leading: tuple[str, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class BlockReduce:
    """`with reduce("+"):`, updates that the iterations of a parallel loop combine in a tree.

    Each statement of the body is `cell = cell op x`. The iterations of the innermost parallel loop
    around it hand in their `x`; they are combined pairwise, in no set order, and joined to the cell
    at the end of the phase, so that within the phase no one may look at it.

    Attributes:
        operator: `+`, `*`, `max` or `min`.
        body: The updates.
    """

    operator: Monoid
    body: tuple[Node, ...]
    comment: str = ""
    leading: tuple[str, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Barrier:
    """`barrier()`, directly in the body of a parallel loop: all its iterations wait for each other.

    What stands before it (a *phase*) is done in every iteration before what stands after it begins
    in any; the private names of an iteration keep their values.
    """

    comment: str = ""
    leading: tuple[str, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)


Node: TypeAlias = Declaration | Assign | If | Loop | Atomic | BlockReduce | Barrier
Section: TypeAlias = Atomic | BlockReduce


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

    @property
    def input_names(self) -> set[str]:
        """The names of the arrays that come from outside."""
        return {array.name for array in self.arrays if array.role == "input"}

    @property
    def float_names(self) -> set[str]:
        """The names of the arrays and scalars that hold floating-point numbers."""
        return {array.name for array in self.arrays if array.element == "float"}

    @property
    def stated(self) -> tuple[Condition, ...]:
        """What contracts without a variable of their own say, each thing by itself."""
        said = (each.condition for each in self.contracts if not each.generators)
        return tuple(part for condition in said for part in conjuncts(condition))

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
