"""What a vectorized run shares: stores, lanes, masks, index expressions, conditions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from looptrans.executor.errors import NoValue, Trap
from looptrans.executor.inputs import Inputs
from looptrans.executor.lanes import ARITHMETIC, Lanes, Ramp, Values, spread
from looptrans.executor.roundings import is_rounded, roundings
from looptrans.executor.storage import cell_count
from looptrans.executor.vector_operations import Mask, Value, kind_of, truth
from looptrans.executor.vector_store import NotVectorized, VectorStore
from looptrans.ir.condition import Condition, Data, Every, Not, Relation, Some, Truth
from looptrans.ir.evaluate import COMPARE
from looptrans.ir.index import Arith, Extremum, Index, Int, Let, Neg, Opaque, Param, Var
from looptrans.ir.program import Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.value import Reduce, data_of, value_children
from looptrans.ir.walk import inner_bodies, nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from looptrans.ir.value import Value as ValueExpression

IndexCode = Callable[[], Lanes]
ValueCode = Callable[[], Value]
TestCode = Callable[[], Any]

# How many elements a value has at most, so that it stays in the cache.
MOST_LANES = 1 << 17


def _depth(body: tuple[Node, ...]) -> int:
    """Return how many parallel loops are nested at most."""
    return max(
        (
            _depth(inner) + (isinstance(node, Loop) and node.execution == "parallel")
            for node in body
            for inner in inner_bodies(node)
        ),
        default=0,
    )


def _reductions(value: ValueExpression) -> int:
    """Return how many `sum(… for …)` are nested at most."""
    inside = max(map(_reductions, value_children(value)), default=0)
    return inside + isinstance(value, Reduce)


@dataclass(slots=True)
class Vectors:
    """What the closures of one run share.

    Attributes:
        program: The program.
        inputs: What it starts from.
        real: The type of real numbers.
        backwards: Whether sums are added from right to left.
        random: What the roundings are drawn from that operations are off by; None where they are
            off by none.
        stores: The arrays and scalars.
        frame: The current values of loop variables, in every lane.
        lanes: The extent of every axis: those of nested reductions, then those of parallel loops.
        mask: Which lanes run; None for all.
        reductions: How many axes are for reductions.
        nested: How many reductions are around what is being compiled.
    """

    program: Program
    inputs: Inputs
    real: type[Any]
    backwards: bool = False
    random: np.random.Generator | None = None
    stores: dict[str, VectorStore] = field(init=False)
    frame: dict[str, Lanes] = field(default_factory=dict)
    lanes: list[int] = field(init=False)
    mask: Mask = None
    reductions: int = field(init=False)
    nested: int = 0

    def __post_init__(self) -> None:
        self.reductions = max(
            (_reductions(value) for node in nodes(self.program.body) for value in _values_of(node)),
            default=0,
        )
        self.lanes = [1] * max(1, self.reductions + _depth(self.program.body))
        self.stores = {array.name: self._store(array.name) for array in self.program.arrays}

    def _store(self, name: str) -> VectorStore:
        array = self.program.array(name)
        store = VectorStore(
            name,
            array.element,
            self.real,
            array.role == "local",
            array.rank == 0,
            tuple(self.lanes),
        )
        if array.role == "input":
            values = self.inputs.arrays[name]
            types: dict[str, type[Any]] = {"float": self.real, "int": np.int64, "bool": np.bool_}
            own = np.array(values, dtype=types[array.element])
            store.shape = own.shape
            if store.is_scalar:
                store.data = own[()] if array.element == "float" else own.item()
            else:
                store.data = own.reshape((*store.lanes, *own.shape))
        return store

    def output(self, name: str) -> Values:
        """Return what a store holds in the end; a scalar as an array without dimensions."""
        array, store = self.program.array(name), self.stores[name]
        try:
            value = store.read_whole(None)
        except Trap as trap:
            raise trap.kind(
                f"the output {name!r} is never set", array.span, remedy=trap.remedy
            ) from None
        types: dict[str, type[Any]] = {"float": self.real, "int": np.int64, "bool": np.bool_}
        result = np.asarray(store.converted(value, None), dtype=types[array.element])
        return np.array(result.reshape(store.shape or ()))

    # Which lanes run

    def narrowed(self, condition: Any) -> tuple[bool, Mask]:
        """Return whether any lane runs where a condition holds besides, and the mask then."""
        if np.ndim(condition) == 0:
            return bool(condition), self.mask
        if self.mask is None:
            if condition.all():
                return True, None
            both = condition
        else:
            both = self.mask & condition
        return bool(both.any()), both

    @contextmanager
    def under(self, mask: Mask) -> Iterator[None]:
        """Run with another mask for a while."""
        outside, self.mask = self.mask, mask
        try:
            yield
        finally:
            self.mask = outside

    def most(self, count: Any) -> int:
        """Return the largest number among the lanes that run."""
        if self.mask is None or np.ndim(count) == 0:
            return int(np.max(count))
        return int(np.max(np.where(self.mask, count, 0)))

    def ramps(self, start: Lanes, stop: Lanes, step: int, axis: int) -> Iterator[tuple[Lanes, Any]]:
        """Yield a loop's iterations in blocks along an axis, and in which lanes there are any.

        While one is looked at, the axis has its extent.
        """
        count = iterations(start, stop, step)
        total, size = self.most(count), len(self.lanes)
        block = max(1, MOST_LANES // int(np.prod(self.lanes)))
        for first in range(0, total, block):
            number = min(block, total - first)
            self.lanes[axis] = number
            try:
                if isinstance(start, int) and np.ndim(count) == 0:
                    yield Ramp(start + first * step, step, number, axis, size), True
                else:
                    numbers = Ramp(first, 1, number, axis, size).array
                    yield spread(start) + numbers * step, numbers < count
            finally:
                self.lanes[axis] = 1

    # Index expressions

    def index(self, index: Index) -> IndexCode:
        """Compile an index expression."""
        match index:
            case Int(value):
                return lambda: value
            case Param(name):
                constant = self.inputs.integers[name]
                return lambda: constant
            case Var(name):
                frame = self.frame
                return lambda: frame[name]
            case Arith(op, left, right):
                a, b, operation = self.index(left), self.index(right), ARITHMETIC[op]
                if op in ("//", "%"):
                    return lambda: operation(a(), self._divisor(b()))
                return lambda: operation(a(), b())
            case Neg(operand):
                a, times = self.index(operand), ARITHMETIC["*"]
                return lambda: times(a(), -1)
            case Extremum(op, arguments):
                return self._extremum(op, [self.index(argument) for argument in arguments])
            case Opaque(array, arguments):
                store, codes = self.stores[array], [self.index(each) for each in arguments]
                return lambda: store.read([code() for code in codes], self.mask)
            case Let(name, _):
                return self._let(name)

    def _divisor(self, divisor: Lanes) -> Lanes:
        """Return a divisor that is not 0 in lanes that do not run."""
        if self.mask is None or isinstance(divisor, int):
            return divisor
        return np.where(~self.mask & (spread(divisor) == 0), 1, spread(divisor))

    def _extremum(self, op: str, codes: list[IndexCode]) -> IndexCode:
        merge = np.minimum if op == "min" else np.maximum
        plain = min if op == "min" else max

        def run() -> Lanes:
            values = [code() for code in codes]
            numbers = [value for value in values if isinstance(value, int)]
            if len(numbers) == len(values):
                return plain(numbers)
            arrays = [np.asarray(spread(value)) for value in values]
            result = arrays[0]
            for each in arrays[1:]:
                result = merge(result, each)
            return result

        return run

    def _let(self, name: str) -> IndexCode:
        store = self.stores[name]

        def run() -> Lanes:
            value = store.read_whole(self.mask)
            kind = value.dtype.kind if isinstance(value, np.ndarray) else None
            if kind != "i" and type(value) is not int:
                raise Trap(NoValue, f"{name!r} stands in an index expression and is no integer")
            lanes: Lanes = value
            return lanes

        return run

    # Conditions

    def test(self, condition: Condition) -> TestCode:
        """Compile a condition; it gives a bool or an array of them."""
        match condition:
            case Truth(holds):
                return lambda: holds
            case Relation(op, left, right):
                a, b, compare = self.index(left), self.index(right), COMPARE[op]
                return lambda: compare(spread(a()), spread(b()))
            case Data(value):
                code = self.value(value)
                return lambda: truth(code())
            case Every(parts):
                return self._connected([self.test(part) for part in parts], stops_at=False)
            case Some(parts):
                return self._connected([self.test(part) for part in parts], stops_at=True)
            case Not(part):
                inner = self.test(part)
                return lambda: np.logical_not(inner())

    def _connected(self, tests: list[TestCode], *, stops_at: bool) -> TestCode:
        """Compile `and` and `or`: a part is looked at where those before leave it open."""

        def run() -> Any:
            result: Any = not stops_at
            for test in tests:
                some, mask = self.narrowed(np.logical_not(result) if stops_at else result)
                if not some:
                    break
                with self.under(mask):
                    result = result | test() if stops_at else result & test()
            return result

        return run

    def value(self, value: ValueExpression) -> ValueCode:
        """Compile a value; see `looptrans.executor.vector_values`."""
        from looptrans.executor.vector_values import compile_value  # the two call each other

        code, random = compile_value(self, value), self.random
        if random is None or not is_rounded(value):
            return code

        def off_by_a_rounding() -> Value:
            found = code()
            if kind_of(found) != "f":
                return found
            return found * roundings(random, np.shape(found))

        return off_by_a_rounding

    def shape(self, extents: tuple[Index, ...]) -> Callable[[], tuple[int, ...]]:
        """Compile the shape of a new array.

        Raises:
            NotVectorized: While running: the extents differ between lanes.
        """
        codes = [self.index(extent) for extent in extents]

        def run() -> tuple[int, ...]:
            found = []
            for code in codes:
                extent = code()
                if not isinstance(extent, int):
                    raise NotVectorized("iterations make arrays of different shapes")
                found.append(extent)
            cell_count(tuple(found), "the new array")
            return tuple(found)

        return run


def _values_of(node: Node) -> tuple[ValueExpression, ...]:
    match node:
        case Assign():
            return node.values
        case If():
            return data_of(node.condition)
        case Declaration():
            return (node.creation,)
        case _:
            return ()


def iterations(start: Lanes, stop: Lanes, step: int) -> Any:
    """Return the number of iterations of a range, a number or one for each lane."""
    if isinstance(start, int) and isinstance(stop, int):
        return len(range(start, stop, step))
    size = np.abs(step)
    distance = (spread(stop) - spread(start)) * (1 if step > 0 else -1)
    return np.maximum(0, (distance + size - 1) // size)
