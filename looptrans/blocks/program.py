"""Block IR: what one program of a kernel does, as operations on blocks with named dimensions.

A loop of the listing becomes a `Dim`, in one of five roles. Values over rows, tiles and lanes are
blocks; the order of their dimensions is that of `Dim.order`, and operands are broadcast by name.

    BlockProgram ─ kernels, launched one after the other; temporaries between them
       └ Kernel ─ grid, arrays, scalars, configurations
           └ Op: Let │ Store │ TileLoop │ ElementLoop │ Branch │ RowBlock
               └ Expr: Number │ Scalar │ Option │ Sign │ Position │ Edge │ Name │ Load │ Unary
                       │ Binary │ Call │ Where │ Cast │ Reduce │ Dot

Floating-point values are float32, except that a `Load` and a `Name` that stands for one hold what
the array holds until a `Cast`. The types here mention no third-party object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from looptrans.ir.affine import difference
from looptrans.ir.condition import Condition
from looptrans.ir.index import Index
from looptrans.ir.program import Program

Role: TypeAlias = Literal["program", "rows", "tile", "lanes", "element"]
Kind: TypeAlias = Literal["float", "int", "bool"]


@dataclass(frozen=True, slots=True)
class Dim:
    """A loop of the listing as a dimension.

    Attributes:
        name: The loop's variable, unique in the kernel.
        role: `program` one iteration for each program; `rows` a block of iterations for each
            program; `tile` a loop over blocks; `lanes` all iterations in one block; `element` a
            loop over single iterations.
        start: The first iteration.
        stop: What the iterations stay below.
        order: The place of the dimension among those of a block.
        step: The step; 1 except for `element`.
        block: The constexpr that says how many iterations a block has (`BLOCK_I`); None for
            `program` and `element`.
        contracted: Whether a matrix product runs over this dimension or has it as a side, so that
            its block must have at least 16 iterations.
        most: Where the bounds are read from memory: what the number of iterations never exceeds.
    """

    name: str
    role: Role
    start: Index
    stop: Index
    order: int
    step: int = 1
    block: str | None = None
    contracted: bool = False
    most: Index | None = None

    @property
    def extent(self) -> Index:
        """How many iterations there are, or may be at most; known before the launch."""
        return difference(self.stop, self.start) if self.most is None else self.most

    @property
    def is_vector(self) -> bool:
        """Whether values have this dimension."""
        return self.role in ("rows", "tile", "lanes")


@dataclass(frozen=True, slots=True)
class Number:
    """A literal; infinities included."""

    value: float | int | bool


@dataclass(frozen=True, slots=True)
class Scalar:
    """An argument of the kernel that is a number: a size, a real parameter, a constexpr."""

    name: str
    kind: Kind = "int"


@dataclass(frozen=True, slots=True)
class Option:
    """A choice that the configuration makes: a constexpr that is 0 or 1."""

    name: str


@dataclass(frozen=True, slots=True)
class Sign:
    """Whether real parameters are all above zero: a constexpr for each that the launcher knows."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """The iterations of a dimension as integers: a vector, or a number for a program or element."""

    dim: Dim


@dataclass(frozen=True, slots=True)
class Edge:
    """The first or last iteration of the program's block of rows, a number; `last` is inclusive."""

    dim: Dim
    which: Literal["first", "last"]


@dataclass(frozen=True, slots=True)
class Name:
    """A value that a `Let` has named."""

    name: str
    dims: tuple[Dim, ...]
    kind: Kind = "float"
    holds: str | None = None
    """The array whose element type it still has, where it is a load; else None (float32)."""


@dataclass(frozen=True, slots=True)
class Load:
    """Elements of an array: one subscript for each of its dimensions.

    Attributes:
        array: The array.
        subscripts: An integer expression for each dimension.
        mask: Where it is read; None where everywhere.
        other: What stands where it is not read; None where nothing looks at it.
        kind: What it holds.
    """

    array: str
    subscripts: tuple[Expr, ...]
    mask: Expr | None = None
    other: float | int | bool | None = None
    kind: Kind = "float"


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x`, `not x`."""

    op: Literal["-", "not"]
    operand: Expr


BinaryOp: TypeAlias = Literal[
    "+", "-", "*", "/", "//", "%", "<", "<=", ">", ">=", "==", "!=", "and", "or"
]


@dataclass(frozen=True, slots=True)
class Binary:
    """`left op right`; `//` and `%` of integers truncate, as in Triton."""

    op: BinaryOp
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Call:
    """A function element by element: exp, exp2, log, log2, sqrt, abs, sin, cos, max, min, pow."""

    function: str
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Where:
    """`chosen` where the condition holds, else `otherwise`; both are worked out."""

    condition: Expr
    chosen: Expr
    otherwise: Expr


@dataclass(frozen=True, slots=True)
class Cast:
    """A change of element type.

    Attributes:
        operand: The value.
        to: `float32`, `float16`, `bfloat16`, `int32`, `int64` …; or, with `like`, ignored.
        like: The array whose element type it takes.
    """

    operand: Expr
    to: str = "float32"
    like: str | None = None


@dataclass(frozen=True, slots=True)
class Reduce:
    """A sum, product, maximum or minimum over one dimension, or over all of `over` at once."""

    op: Literal["+", "*", "max", "min"]
    over: Dim
    operand: Expr


@dataclass(frozen=True, slots=True)
class Rounding:
    """What a backward pass rounds to 16 bits where it is multiplied with 16-bit inputs.

    All but what the forward pass has worked out before, which must come out as it did there: were
    the queries of an exponent rounded in one pass only, weights would not add up to 1.

    Attributes:
        recomputed: Names of values that the forward pass worked out.
        weights: Those that are between 0 and 1.
    """

    recomputed: frozenset[str] = frozenset()
    weights: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Dot:
    """A matrix product: `left[rows, over] @ right[over, columns]`, summed in float32.

    The operands have exactly these dimensions, in the order of `Dim.order`; who prints it places
    the transposes. They have one element type, or both are float32.

    Attributes:
        left: The operand with the dimensions `rows` and `over`.
        right: The operand with the dimensions `over` and `columns`.
        rows: The dimension that only `left` has.
        columns: The dimension that only `right` has.
        over: The dimension summed over.
        accumulator: What the product is added to, in the order of `Dim.order`; None for nothing.
    """

    left: Expr
    right: Expr
    rows: Dim
    columns: Dim
    over: Dim
    accumulator: Expr | None = None


Expr: TypeAlias = (
    Number
    | Scalar
    | Option
    | Sign
    | Position
    | Edge
    | Name
    | Load
    | Unary
    | Binary
    | Call
    | Where
    | Cast
    | Reduce
    | Dot
)


@dataclass(frozen=True, slots=True)
class Let:
    """`name = value`. A name may be set again: inside a loop that is how it carries a value.

    Attributes:
        name: The name.
        value: The value.
        labels: The statements it comes from.
        note: What it is, for the reader.
        dims: The dimensions the name has; those of the value may be fewer (it is broadcast).
    """

    name: str
    value: Expr
    labels: tuple[str, ...] = ()
    note: str = ""
    dims: tuple[Dim, ...] = ()


@dataclass(frozen=True, slots=True)
class Store:
    """`array[subscripts] = value` where the mask holds; the value is rounded to the array's type.

    The dimensions of the store are those of the subscripts; the value is broadcast to them.

    Attributes:
        added: Whether the value is added to what is there, in one step.
    """

    array: str
    subscripts: tuple[Expr, ...]
    value: Expr
    mask: Expr | None = None
    labels: tuple[str, ...] = ()
    note: str = ""
    added: bool = False


@dataclass(frozen=True, slots=True)
class TileLoop:
    """A loop over blocks of a tile dimension: `for first in range(start, stop, BLOCK)`.

    Inside it `Position(dim)` is `first + arange(BLOCK)`.

    Attributes:
        dim: The dimension.
        start: The first iteration of the first block, a number.
        stop: What the first iteration of a block stays below, a number.
        kind: `full` blocks need no mask, `boundary` blocks do.
        body: What is done for each block.
        note: Why these blocks are of that kind.
    """

    dim: Dim
    start: Expr
    stop: Expr
    kind: Literal["full", "boundary"]
    body: tuple[Op, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class ElementLoop:
    """A loop over single iterations: `for i in range(start, stop, step)`.

    Attributes:
        dim: The dimension; its position is a number.
        start: The first iteration.
        stop: What the iterations stay below (above, for a negative step).
        body: What is done for each.
        reason: Why the loop is not run in blocks, a sentence.
    """

    dim: Dim
    start: Expr
    stop: Expr
    body: tuple[Op, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Branch:
    """`if condition:` for a condition that is a number, the same for the whole program."""

    condition: Expr
    body: tuple[Op, ...]
    otherwise: tuple[Op, ...] = ()


@dataclass(frozen=True, slots=True)
class RowBlock:
    """The block of rows of a program, where the bounds of the rows are read from memory.

    There are programs for as many rows as there may be; those beyond the last row do nothing.

    Attributes:
        dim: The dimension, of role `rows`.
        start: The first row of the first block, a number.
        stop: What the rows stay below, a number.
        body: What is done with the block.
    """

    dim: Dim
    start: Expr
    stop: Expr
    body: tuple[Op, ...]


Op: TypeAlias = Let | Store | TileLoop | ElementLoop | Branch | RowBlock


ArrayAccess: TypeAlias = Literal["in", "out", "inout", "added"]


@dataclass(frozen=True, slots=True)
class ArrayArgument:
    """An array a kernel is handed.

    Attributes:
        name: Its name in the listing.
        rank: The number of its dimensions.
        element: What it holds.
        access: Whether the kernel reads it, writes it, both, or only adds to it.
        shape: The extent of each dimension where it is known.
        dtype: The element type the listing asks for (`float32`), or None: that of the inputs.
    """

    name: str
    rank: int
    element: Kind
    access: ArrayAccess
    shape: tuple[Index | None, ...]
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of blocks, and how a program is run.

    Attributes:
        blocks: For each constexpr of rows and tiles, the number of iterations.
        warps: The number of warps of a program.
        stages: How many blocks ahead loads are begun.
    """

    blocks: Mapping[str, int]
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class Choice:
    """The configurations of a kernel for inputs of one width.

    Attributes:
        default: What is used where nothing is timed.
        tuned: What is tried on a GPU, the default among them.
    """

    default: Config
    tuned: tuple[Config, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel.

    Attributes:
        name: Its name.
        grid: The dimensions of role `program` and `rows`, the slowest first.
        dims: All dimensions, by order.
        arrays: The arrays it is handed, in order of first appearance in the listing.
        scalars: The sizes and real parameters it is handed, in order of first appearance.
        constants: Those of them that must be known when it is compiled: sizes of lanes.
        body: What a program does.
        narrow: Configurations for 16-bit inputs.
        wide: Configurations for 32-bit inputs.
        grouped: Whether neighbouring programs should share rows of both operands: two dimensions of
            the grid are rows, and each operand of a matrix product depends on one of them.
        last_first: Whether programs begin with the last block of the fastest dimension of the grid.
        restored: Arrays that are read and written, so that timing must put them back.
    """

    name: str
    grid: tuple[Dim, ...]
    dims: tuple[Dim, ...]
    arrays: tuple[ArrayArgument, ...]
    scalars: tuple[Scalar, ...]
    constants: tuple[str, ...]
    body: tuple[Op, ...]
    narrow: Choice
    wide: Choice
    grouped: bool = False
    last_first: bool = False
    restored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Filled:
    """An array the launcher makes before the kernels run.

    Attributes:
        array: The array.
        shape: Its shape.
        fill: What it holds at first; None where every element is written by the kernels.
        dtype: The element type asked for (`float32`), or None: that of the inputs.
        element: What it holds.
        rounded: Whether it is returned in the type of the inputs, whatever type it is filled in.
    """

    array: str
    shape: tuple[Index, ...]
    fill: float | int | bool | None
    dtype: str | None = None
    element: Kind = "float"
    rounded: bool = False


@dataclass(frozen=True, slots=True)
class BlockProgram:
    """A listing as kernels.

    Attributes:
        listing: The listing as its author wrote it.
        scheduled: The program that was lowered, at the end of the derivation.
        kernels: The kernels, in the order of their launch.
        made: The arrays that the launcher makes: outputs, and temporaries between kernels.
        outputs: The names returned, in order; arguments that are written are changed in place.
        assumptions: Conditions that the launcher checks.
        steps: The steps of the derivation, a phrase each.
        notes: What the reader should know: loops run one element at a time and why, and the like.
        reached: For dimensions of undeclared extent, an array, the dimension, and how many
            elements it must have at least.
    """

    listing: Program
    scheduled: Program
    kernels: tuple[Kernel, ...]
    made: tuple[Filled, ...]
    outputs: tuple[str, ...]
    assumptions: tuple[Condition, ...] = ()
    steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    reached: tuple[tuple[str, int, Index], ...] = ()


class NotLowered(Exception):
    """A nest that cannot be run in blocks.

    Attributes:
        reason: Why, as a sentence without a full stop, with the statement.
        label: The statement, where there is one.
    """

    def __init__(self, reason: str, label: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.label = label


def union(*many: Iterable[Dim]) -> tuple[Dim, ...]:
    """Return the dimensions of several values together, in their order."""
    return tuple(sorted({dim for dims in many for dim in dims}, key=lambda dim: dim.order))


def dims_of(expr: Expr) -> tuple[Dim, ...]:
    """Return the dimensions of a value, in their order."""
    match expr:
        case Number() | Scalar() | Option() | Sign() | Edge():
            return ()
        case Position(dim):
            return (dim,) if dim.is_vector else ()
        case Name(_, dims):
            return dims
        case Load(_, subscripts):
            return union(*(dims_of(s) for s in subscripts))
        case Reduce(_, over, operand):
            return tuple(dim for dim in dims_of(operand) if dim != over)
        case Dot(_, _, rows, columns):
            return union((rows, columns))
        case _:
            return union(*(dims_of(child) for child in children(expr)))


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the operands of an expression, left to right."""
    match expr:
        case Load(_, subscripts, mask):
            return subscripts if mask is None else (*subscripts, mask)
        case Unary(_, operand) | Cast(operand) | Reduce(_, _, operand):
            return (operand,)
        case Binary(_, left, right):
            return (left, right)
        case Call(_, arguments):
            return arguments
        case Where(condition, chosen, otherwise):
            return (condition, chosen, otherwise)
        case Dot(left, right, _, _, _, accumulator):
            return (left, right) if accumulator is None else (left, right, accumulator)
        case _:
            return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield an expression and everything below it, outermost first."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def kind_of(expr: Expr) -> Kind:
    """Return what a value is."""
    match expr:
        case Number(value):
            if isinstance(value, bool):
                return "bool"
            return "int" if isinstance(value, int) else "float"
        case Scalar(_, kind) | Name(_, _, kind) | Load(_, _, _, _, kind):
            return kind
        case Position() | Edge() | Option():
            return "int"
        case Unary("not", _) | Sign():
            return "bool"
        case Unary(_, operand) | Reduce(_, _, operand):
            return kind_of(operand)
        case Binary(op, left, right):
            if op in ("<", "<=", ">", ">=", "==", "!=", "and", "or"):
                return "bool"
            if op == "/" or "float" in (kind_of(left), kind_of(right)):
                return "float"
            return "int"
        case Call(function, arguments):
            if function in ("max", "min", "abs", "pow"):
                return "float" if "float" in map(kind_of, arguments) else "int"
            return "float"
        case Where(_, chosen, otherwise):
            kinds = (kind_of(chosen), kind_of(otherwise))
            return "float" if "float" in kinds else kinds[0]
        case Cast(_, to, like):
            return "float" if like is not None or "float" in to else "int"
        case Dot():
            return "float"


def ops_in(ops: Iterable[Op]) -> Iterator[Op]:
    """Yield operations and those inside them, in the order of the text."""
    for op in ops:
        yield op
        if isinstance(op, TileLoop | ElementLoop | Branch | RowBlock):
            yield from ops_in(op.body)
        if isinstance(op, Branch):
            yield from ops_in(op.otherwise)


def exprs_of(op: Op) -> tuple[Expr, ...]:
    """Return the expressions an operation works out itself."""
    match op:
        case Let(_, value):
            return (value,)
        case Store(_, subscripts, value, mask):
            return (*subscripts, value) if mask is None else (*subscripts, value, mask)
        case TileLoop(_, start, stop) | ElementLoop(_, start, stop) | RowBlock(_, start, stop):
            return (start, stop)
        case Branch(condition, _):
            return (condition,)


def has_products(kernel: Kernel) -> bool:
    """Tell whether a kernel has matrix products."""
    exprs = (expr for op in ops_in(kernel.body) for expr in exprs_of(op))
    return any(isinstance(part, Dot) for expr in exprs for part in walk(expr))
