"""Index expressions and conditions as Python closures, made once before a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from looptrans.executor.errors import NoValue, Trap
from looptrans.executor.indices import ARITHMETIC, COMPARE
from looptrans.executor.log import AccessLog, Entry
from looptrans.executor.storage import Scalar, Store
from looptrans.ir.condition import Condition, Data, Every, Not, Relation, Some, Truth
from looptrans.ir.index import (
    Arith,
    Extremum,
    Index,
    Int,
    Let,
    Neg,
    Opaque,
    Param,
    Var,
    walk,
)
from looptrans.ir.value import Value

Frame: TypeAlias = dict[str, int]
IndexCode: TypeAlias = Callable[[], int]
ValueCode: TypeAlias = Callable[[], Scalar]
TestCode: TypeAlias = Callable[[], bool]


@dataclass(slots=True)
class Machine:
    """What the closures of one run share.

    Attributes:
        real: The type of floating-point scalars.
        integers: The values of integer parameters.
        reals: The values of real parameters.
        stores: The arrays and scalars.
        frame: The current values of loop variables.
        log: Where accesses are recorded, if anywhere.
        label: The statement that is being compiled, and is recorded with its accesses; None where
            accesses belong to no statement.
        loops: The loops around that statement.
    """

    real: type[Any]
    integers: Mapping[str, int]
    reals: Mapping[str, Scalar]
    stores: Mapping[str, Store]
    log: AccessLog | None = None
    frame: Frame = field(default_factory=dict)
    label: str | None = None
    loops: tuple[str, ...] = ()

    def recorder(self, name: str, is_write: bool) -> Callable[[tuple[int, ...]], None] | None:
        """Return what records an access to one cell; None where nothing is recorded."""
        log, label, loops, frame = self.log, self.label, self.loops, self.frame
        if log is None or label is None:
            return None

        def record(cell: tuple[int, ...]) -> None:
            log.add(Entry(name, cell, is_write, label, tuple(frame[loop] for loop in loops)))

        return record

    # Index expressions

    def index(self, index: Index) -> IndexCode:
        """Compile an index expression."""
        if not any(isinstance(node, Var | Opaque | Let) for node in walk(index)):
            return self._fixed(index)
        frame = self.frame
        match index:
            case Var(name):
                return lambda: frame[name]
            case Arith("+", Var(name), Int(value)):
                return lambda: frame[name] + value
            case Arith("-", Var(name), Int(value)):
                return lambda: frame[name] - value
            case _:
                return self._computed(index)

    def _fixed(self, index: Index) -> IndexCode:
        match index:
            case Int(value):
                return lambda: value
            case Param(name):
                constant = self.integers[name]
                return lambda: constant
            case _:
                compute = self._computed(index)
        try:
            result = compute()
        except ZeroDivisionError:
            return compute
        return lambda: result

    def _computed(self, index: Index) -> IndexCode:
        match index:
            case Arith("+", left, right):
                a, b = self.index(left), self.index(right)
                return lambda: a() + b()
            case Arith("-", left, right):
                a, b = self.index(left), self.index(right)
                return lambda: a() - b()
            case Arith(op, left, right):
                a, b, operation = self.index(left), self.index(right), ARITHMETIC[op]
                return lambda: operation(a(), b())
            case Neg(operand):
                a = self.index(operand)
                return lambda: -a()
            case Extremum(op, arguments):
                parts = [self.index(argument) for argument in arguments]
                if op == "min":
                    return lambda: min([part() for part in parts])
                return lambda: max([part() for part in parts])
            case Opaque(array, arguments):
                return self.element(array, arguments, record=False)
            case Let(name, _):
                return self._let(name)
            case _:
                raise AssertionError(index)

    def _let(self, name: str) -> IndexCode:
        read = self.scalar(name)

        def let() -> int:
            value = read()
            if type(value) is not int:
                raise Trap(NoValue, f"{name!r} stands in an index expression and is {value}")
            return value

        return let

    # Reads of single cells

    def scalar(self, name: str) -> ValueCode:
        """Compile the read of a scalar."""
        store, record = self.stores[name], self.recorder(name, is_write=False)

        def read() -> Scalar:
            if store.shape is None:
                raise store.unset()
            if record is not None:
                record(())
            return store.data[0]

        return read

    def element(self, name: str, subscripts: tuple[Index, ...], *, record: bool) -> ValueCode:
        """Compile the read of one cell of an array."""
        store = self.stores[name]
        codes = [self.index(subscript) for subscript in subscripts]
        code = _element_1(store, *codes) if len(codes) == 1 else None
        if len(codes) == 2:
            code = _element_2(store, *codes)
        recorder = self.recorder(name, is_write=False) if record else None
        if code is None or recorder is not None:
            return _element_n(store, codes, recorder)
        return code

    # Conditions

    def test(self, condition: Condition) -> TestCode:
        """Compile a condition."""
        match condition:
            case Truth(truth):
                return lambda: truth
            case Relation(op, left, right):
                a, b, compare = self.index(left), self.index(right), COMPARE[op]
                return lambda: compare(a(), b())
            case Data(value):
                code = self.value(value)
                return lambda: bool(code())
            case Every(parts):
                tests = [self.test(part) for part in parts]
                return lambda: all(test() for test in tests)
            case Some(parts):
                tests = [self.test(part) for part in parts]
                return lambda: any(test() for test in tests)
            case Not(part):
                inner = self.test(part)
                return lambda: not inner()

    def value(self, value: Value) -> ValueCode:
        """Compile a value; see `looptrans.executor.values`."""
        from looptrans.executor.values import compile_value  # the two call each other

        return compile_value(self, value)


def _element_1(store: Store, first: IndexCode) -> ValueCode:
    def read() -> Scalar:
        i = first()
        if i >= 0:
            try:
                return store.data[i]
            except IndexError:
                pass
        if store.shape is None:
            raise store.unset()
        raise store.outside((i,))

    return read


def _element_2(store: Store, first: IndexCode, second: IndexCode) -> ValueCode:
    def read() -> Scalar:
        i, j = first(), second()
        shape = store.shape
        if shape is None:
            raise store.unset()
        m, n = shape
        if 0 <= i < m and 0 <= j < n:
            return store.data[i * n + j]
        raise store.outside((i, j))

    return read


def _element_n(
    store: Store,
    codes: list[IndexCode],
    record: Callable[[tuple[int, ...]], None] | None,
) -> ValueCode:
    def read() -> Scalar:
        cell = tuple([code() for code in codes])
        (offset,) = store.offsets(cell)[1]
        if record is not None:
            record(cell)
        return store.data[offset]

    return read
