"""Index expressions and conditions as Python closures, made once before a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from looptrans.executor.errors import ExecutionError, NoValue, Trap, as_trap
from looptrans.executor.log import AccessLog, Entry
from looptrans.executor.private import PrivateStore
from looptrans.executor.storage import Scalar, Store
from looptrans.ir.condition import Condition, Data, Every, Not, Relation, Some, Truth
from looptrans.ir.evaluate import ARITHMETIC, COMPARE
from looptrans.ir.index import Arith, Extremum, Index, Int, Let, Neg, Opaque, Param, Var, walk
from looptrans.ir.source import Span
from looptrans.ir.value import Value

if TYPE_CHECKING:
    from looptrans.executor.races import Watch
    from looptrans.executor.reducing import Pending

Frame: TypeAlias = dict[str, int]
IndexCode: TypeAlias = Callable[[], int]
ValueCode: TypeAlias = Callable[[], Scalar]
TestCode: TypeAlias = Callable[[], bool]
Record: TypeAlias = Callable[[tuple[int, ...]], None]


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
        watch: What looks for races, if anything does.
        pending: Where the updates of reducing blocks wait for the end of the phase; None where
            they are made at once, as in the sequential reading.
        label: The statement that is being compiled, and is recorded with its accesses; None where
            accesses belong to no statement.
        loops: The loops around that statement.
        updated: The array that the statement of a reducing block updates, and the operator, while
            the access to that cell is compiled.
    """

    real: type[Any]
    integers: Mapping[str, int]
    reals: Mapping[str, Scalar]
    stores: Mapping[str, Store]
    log: AccessLog | None = None
    watch: Watch | None = None
    pending: Pending | None = None
    frame: Frame = field(default_factory=dict)
    label: str | None = None
    loops: tuple[str, ...] = ()
    updated: tuple[str, str] | None = None

    def enter(self, label: str | None, loops: tuple[str, ...]) -> None:
        """What is compiled from here on is logged under `label`."""
        self.label, self.loops = label, loops

    def failed(
        self, failure: BaseException, where: str, loops: tuple[str, ...], span: Span
    ) -> ExecutionError:
        """Return the error a person sees for a failure in the iteration that is running."""
        return as_trap(failure).at(where, {loop: self.frame[loop] for loop in loops}, span)

    def recorder(self, name: str, is_write: bool) -> Record | None:
        """Return what records an access to one cell; None where nothing is recorded."""
        log, label, loops, frame = self.log, self.label, self.loops, self.frame
        if label is None:
            return None
        watched = self._watched(label, name, is_write)
        if log is None:
            return watched

        def record(cell: tuple[int, ...]) -> None:
            log.add(Entry(name, cell, is_write, label, tuple(frame[loop] for loop in loops)))
            if watched is not None:
                watched(cell)

        return record

    def _watched(self, label: str, name: str, is_write: bool) -> Record | None:
        """Return what notes an access that may be part of a race."""
        if self.watch is None or not self.watch.is_exposed(name):
            return None
        operator = self.updated[1] if self.updated and self.updated[0] == name else None
        touched = self.watch.touched(label, name, is_write, operator)
        loops, frame, store = self.loops, self.frame, self.stores[name]

        def note(cell: tuple[int, ...]) -> None:
            touched[0, cell].append(tuple([frame[loop] for loop in loops]))

        def note_private(cell: tuple[int, ...]) -> None:
            assert isinstance(store, PrivateStore)
            touched[store.copy.number, cell].append(tuple([frame[loop] for loop in loops]))

        return note_private if isinstance(store, PrivateStore) else note

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
        if isinstance(store, PrivateStore):
            return _element_private(store, codes, recorder)
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


def _element_n(store: Store, codes: Sequence[IndexCode], record: Record | None) -> ValueCode:
    def read() -> Scalar:
        cell = tuple([code() for code in codes])
        offset = store.offset(cell)
        if record is not None:
            record(cell)
        return store.data[offset]

    return read


def _element_private(
    store: PrivateStore, codes: Sequence[IndexCode], record: Record | None
) -> ValueCode:
    def read() -> Scalar:
        cell = tuple([code() for code in codes])
        offset = store.offset(cell)
        value = store.data[offset]
        store.check(cell, (value,))
        if record is not None:
            record(cell)
        return value

    return read
