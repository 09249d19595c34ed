"""Values of the block IR: numbers, and blocks with named dimensions.

A loop of the listing becomes a `Dim`, in one of five roles. Values over rows, tiles and lanes are
blocks; the order of their dimensions is that of `Dim.order`, and operands are broadcast by name.

Floating-point values are float32, except that a `Load` and a `Name` that stands for one hold what
the array holds until a `Cast`. The types here mention no third-party object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from looptrans.ir.affine import difference
from looptrans.ir.index import Index
from looptrans.ir.monoids import Monoid

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

    op: Monoid
    over: Dim
    operand: Expr


@dataclass(frozen=True, slots=True)
class Scan:
    """What the elements before each element of a dimension come to, joined; or those up to it.

    Attributes:
        op: What joins them.
        over: The dimension, which the operand has.
        operand: The elements.
        before: Whether each element itself is left out, so that the first has what changes nothing.
        steps: Where given, elements are steps `y = factor * y + operand` from y = 0; these are the
            factor, and for `before` the first y, in the place of what was before the first step.
    """

    op: Monoid
    over: Dim
    operand: Expr
    before: bool
    steps: tuple[Expr, ...] = ()


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
    | Scan
    | Dot
)
_LEAVES: Final = (Name, Number, Scalar, Position, Edge, Option, Sign)


def union(*many: Iterable[Dim]) -> tuple[Dim, ...]:
    """Return the dimensions of several values together, in their order."""
    # Most are one object many times, which is sooner seen than that two are equal.
    found = {id(dim): dim for dims in many for dim in dims}
    return tuple(sorted(set(found.values()), key=lambda dim: dim.order))


def dims_of(expr: Expr) -> tuple[Dim, ...]:
    """Return the dimensions of a value, in their order."""
    match expr:
        case Name(_, dims):
            return dims
        case Reduce(_, over, operand):
            return tuple(dim for dim in dims_of(operand) if dim != over)
        case _:
            return union(_dims_within(expr))


def _dims_within(expr: Expr) -> Iterator[Dim]:
    """Yield the dimensions of a value in any order, some of them several times."""
    waiting = [expr]
    while waiting:
        match waiting.pop():
            case Position(dim):
                if dim.is_vector:
                    yield dim
            case Name(_, dims):
                yield from dims
            case Load(_, subscripts):
                waiting += subscripts
            case Reduce() as sum_:
                yield from dims_of(sum_)
            case Dot(_, _, rows, columns):
                yield from (rows, columns)
            case part:
                waiting += children(part)


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the operands of an expression, left to right."""
    if isinstance(expr, _LEAVES):  # most are: nothing else is asked of them
        return ()
    match expr:
        case Load(_, subscripts, mask):
            return subscripts if mask is None else (*subscripts, mask)
        case Unary(_, operand) | Cast(operand) | Reduce(_, _, operand):
            return (operand,)
        case Scan(_, _, operand, _, steps):
            return (operand, *steps)
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
    waiting = [expr]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += reversed(children(part))


def names_of(expr: Expr) -> set[str]:
    """Return the names of the values that an expression looks at."""
    return {part.name for part in walk(expr) if isinstance(part, Name)}


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
        case Unary(_, operand) | Reduce(_, _, operand) | Scan(_, _, operand):
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
