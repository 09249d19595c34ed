"""Value expressions: what a statement computes.

A value has a rank: 0 for a number, 1 for a whole row such as `Q[i]` or `Q[i, :]`. Operators work
element by element; `@` and `sum(row)` bring a row down to a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isinf
from typing import Final, Literal, TypeAlias

from looptrans.ir.condition import Comparison, Condition, Data, compared, walk_condition
from looptrans.ir.index import Index, variables
from looptrans.ir.monoids import Folding


@dataclass(frozen=True, slots=True)
class Whole:
    """The subscript `:`, every index of a dimension.

    Attributes:
        written: Whether the listing spells it out at the end of the subscripts: `A[i, :]` is
            `A[i]`, but says how many dimensions A has.
    """

    written: bool = field(default=False, compare=False)


WHOLE = Whole()
Subscript: TypeAlias = Index | Whole


@dataclass(frozen=True, slots=True)
class Access:
    """An array and the subscripts it is accessed at, one for every dimension of the array.

    A scalar is an array of rank 0. `Q[i]` of a rank-2 array has the subscripts `(i, WHOLE)`.
    """

    array: str
    subscripts: tuple[Subscript, ...]

    @property
    def indices(self) -> tuple[Index, ...]:
        """The subscripts that are index expressions."""
        return tuple(s for s in self.subscripts if not isinstance(s, Whole))

    @property
    def rank(self) -> int:
        """The rank of what is read or written: the number of whole dimensions."""
        return len(self.subscripts) - len(self.indices)

    def renamed(self, old: str, new: str) -> Access:
        """Return the cell with another name for its array, if that is its name."""
        return Access(new, self.subscripts) if self.array == old else self

    @property
    def variables(self) -> set[str]:
        """The variables in the subscripts."""
        return {name for index in self.indices for name in variables(index)}


@dataclass(frozen=True, slots=True)
class Range:
    """`range(start, stop, step)` with a constant step that is not zero."""

    start: Index
    stop: Index
    step: int = 1

    @property
    def ends(self) -> tuple[Index, Index]:
        """Where it starts and where it stops."""
        return self.start, self.stop

    @property
    def variables(self) -> set[str]:
        """The variables in its ends."""
        return {*variables(self.start), *variables(self.stop)}


@dataclass(frozen=True, slots=True, eq=False)
class Const:
    """A literal; `inf` is one.

    Two are equal when they are of one type and have the same bits: `1`, `1.0` and `True` are three
    literals, `0.0` and `-0.0` two.
    """

    value: float | int | bool

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[str, str]:
        return type(self.value).__name__, repr(self.value)


@dataclass(frozen=True, slots=True)
class IndexValue:
    """An index expression used as a number, e.g. the `j` and the `i` of `slope * (j - i)`."""

    index: Index


@dataclass(frozen=True, slots=True)
class Real:
    """A real scalar parameter of the listing, e.g. a scale; it may be differentiated."""

    name: str


@dataclass(frozen=True, slots=True)
class Read:
    """The value an access has."""

    access: Access


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x` or `+x`."""

    op: Literal["-", "+"]
    operand: Value


BinaryOperator: TypeAlias = Literal["+", "-", "*", "/", "//", "%", "**", "@"]


@dataclass(frozen=True, slots=True)
class Binary:
    """`left op right`."""

    op: BinaryOperator
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class Compare:
    """`left op right` of two values, true or false."""

    op: Comparison
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class Holds:
    """A condition used as a truth value, e.g. the `j > i` of `where(j > i, 0.0, x)`."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class Select:
    """`chosen if condition else otherwise`; only the branch that is chosen is read."""

    condition: Condition
    chosen: Value
    otherwise: Value


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the language applied to values; see `looptrans.ir.functions`."""

    function: str
    arguments: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Generator:
    """`for variable in range(…) if condition`, inside a reduction or a contract."""

    variable: str
    range: Range
    condition: Condition


@dataclass(frozen=True, slots=True)
class Reduce:
    """`sum(body for e in range(E))`, also `max` and `min`; evaluated left to right."""

    function: Folding
    generators: tuple[Generator, ...]
    body: Value


CreationName: TypeAlias = Literal["zeros", "ones", "empty", "full"]


@dataclass(frozen=True, slots=True)
class Create:
    """`zeros(shape)`, `ones(shape)`, `empty(shape)`, `full(shape, fill)`: a new array."""

    function: CreationName
    shape: tuple[Index, ...]
    fill: Value | None = None
    element: str | None = None


Value: TypeAlias = (
    Const
    | IndexValue
    | Real
    | Read
    | Unary
    | Binary
    | Compare
    | Holds
    | Select
    | Call
    | Reduce
    | Create
)
_LEAVES: Final = (Read, Const, Real, IndexValue)


def condition_of(value: Value) -> Condition:
    """Return the condition that a value is true."""
    return value.condition if isinstance(value, Holds) else Data(value)


def truth_of(condition: Condition) -> Value:
    """Return a condition as a truth value."""
    return condition.value if isinstance(condition, Data) else Holds(condition)


def infinity(value: Value) -> float | None:
    """Return an infinite literal, or None."""
    if isinstance(value, Const) and isinstance(value.value, float) and isinf(value.value):
        return value.value
    return None


def data_of(condition: Condition) -> tuple[Value, ...]:
    """Return the values a condition depends on, left to right."""
    return tuple(part.value for part in walk_condition(condition) if isinstance(part, Data))


def value_children(value: Value) -> tuple[Value, ...]:
    """Return the values directly below a value, left to right, conditions' values included."""
    if isinstance(value, _LEAVES):  # most are: nothing else is asked of them
        return ()
    match value:
        case Unary(_, operand):
            return (operand,)
        case Binary(_, left, right) | Compare(_, left, right):
            return (left, right)
        case Holds(condition):
            return data_of(condition)
        case Select(condition, chosen, otherwise):
            return (*data_of(condition), chosen, otherwise)
        case Call(_, arguments):
            return arguments
        case Reduce(_, generators, body):
            return (*(v for g in generators for v in data_of(g.condition)), body)
        case Create(_, _, fill):
            return () if fill is None else (fill,)
        case _:
            return ()


def walk_value(value: Value) -> Iterator[Value]:
    """Yield a value and everything below it, outermost first, left to right."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += reversed(value_children(part))


def shared_parts(value: Value) -> Iterator[Value]:
    """Yield a value and everything below it, but what stands in it several times only once.

    What temporaries stand for, put in where they are read, may have a million parts, few of which
    are objects of their own.
    """
    waiting, seen = [value], {id(value)}
    while waiting:
        part = waiting.pop()
        yield part
        for child in reversed(value_children(part)):
            if id(child) not in seen:
                seen.add(id(child))
                waiting.append(child)


def reductions(value: Value) -> Iterator[Reduce]:
    """Yield the sums, maxima and minima in a value, outermost first."""
    return (part for part in walk_value(value) if isinstance(part, Reduce))


def has_reduction(value: Value) -> bool:
    """Tell whether there is a sum, maximum or minimum in a value."""
    return any(True for _ in reductions(value))


def cells_read(value: Value) -> list[Access]:
    """Return what a value reads, left to right, what is read twice twice."""
    return [part.access for part in walk_value(value) if isinstance(part, Read)]


def arrays_read(value: Value) -> set[str]:
    """Return the arrays and scalars that a value reads."""
    return {access.array for access in cells_read(value)}


def free_variables(value: Value) -> tuple[str, ...]:
    """Return the variables a value mentions and does not bind, in order of appearance.

    What is put in from elsewhere may bind one that is free beside it: of
    `x[k] <= min(x[k] for k in …)` k is free.
    """
    found: dict[str, None] = {}
    waiting: list[tuple[Value, frozenset[str]]] = [(value, frozenset())]
    while waiting:
        part, bound = waiting.pop()
        if isinstance(part, Reduce):
            for each in part.generators:
                ends = (*variables(each.range.start), *variables(each.range.stop))
                found |= dict.fromkeys(name for name in ends if name not in bound)
                bound |= {each.variable}
                tested = (name for i in compared(each.condition) for name in variables(i))
                found |= dict.fromkeys(name for name in tested if name not in bound)
        own = (name for index in _own_indices(part) for name in variables(index))
        found |= dict.fromkeys(name for name in own if name not in bound)
        waiting += ((child, bound) for child in reversed(value_children(part)))
    return tuple(found)


def condition_variables(condition: Condition) -> frozenset[str]:
    """Return the variables a condition mentions and does not bind."""
    return frozenset(free_variables(Holds(condition)))


def _own_indices(value: Value) -> tuple[Index, ...]:
    """Return the index expressions of a value, but those of its parts and of what binds some."""
    match value:
        case Read(access):
            return access.indices
        case IndexValue(index):
            return (index,)
        case Holds(condition) | Select(condition, _, _):
            return tuple(compared(condition))
        case _:
            return ()


def arrays_tested(condition: Condition) -> set[str]:
    """Return the arrays and scalars whose values a condition depends on."""
    return {array for value in data_of(condition) for array in arrays_read(value)}


def rank_of(value: Value) -> int:
    """Return 0 for a number, 1 for a row, more for what only a creation makes."""
    match value:
        case Read(access):
            return access.rank
        case Binary("@", _, _) | Call("sum", _) | Call("max" | "min", (_,)):
            return 0
        case Call("where", (_, *arguments)) | Call(_, (*arguments,)):
            return max((rank_of(argument) for argument in arguments), default=0)
        case Unary(_, operand):
            return rank_of(operand)
        case Binary(_, left, right):
            return max(rank_of(left), rank_of(right))
        case Select(_, chosen, otherwise):
            return max(rank_of(chosen), rank_of(otherwise))
        case Create(_, shape):
            return len(shape)
        case _:
            return 0
