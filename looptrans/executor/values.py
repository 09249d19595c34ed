"""Values as Python closures: one call computes the value at the current iteration."""

from __future__ import annotations

from collections.abc import Callable

from looptrans.executor.closures import IndexCode, Machine, TestCode, ValueCode
from looptrans.executor.errors import NoValue, Trap
from looptrans.executor.operations import (
    binary_operation,
    by_cell,
    comparison,
    extremum_of,
    function_operation,
    inner_product,
    sum_of,
)
from looptrans.executor.private import PrivateStore
from looptrans.executor.storage import Block, Scalar, cell_count
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Compare,
    Const,
    Create,
    Generator,
    Holds,
    IndexValue,
    Read,
    Real,
    Reduce,
    Select,
    Unary,
    Value,
    Whole,
    rank_of,
)


def compile_value(machine: Machine, value: Value) -> ValueCode:
    """Compile a value.

    Scalars are numbers of the machine's real type, Python integers or Python bools; what has
    dimensions is a `Block` with cells of its own.
    """
    match value:
        case Const(number):
            constant = machine.real(number) if isinstance(number, float) else number
            return lambda: constant
        case IndexValue(index):
            return machine.index(index)
        case Real(name):
            real = machine.reals[name]
            return lambda: real
        case Read(access):
            return _read(machine, access)
        case Unary(op, operand):
            return _unary(machine.value(operand), op, may_be_row=rank_of(operand) > 0)
        case Binary():
            return _binary(machine, value)
        case Compare(op, left, right):
            a, b, compare = machine.value(left), machine.value(right), comparison(op)
            return lambda: compare(a(), b())
        case Holds(condition):
            return machine.test(condition)
        case Select(condition, chosen, otherwise):
            test, yes, no = machine.test(condition), machine.value(chosen), machine.value(otherwise)
            return lambda: yes() if test() else no()
        case Call():
            return _call(machine, value)
        case Reduce():
            return _reduce(machine, value)
        case Create():
            return _create(machine, value)


def _read(machine: Machine, access: Access) -> ValueCode:
    if not access.subscripts:
        return machine.scalar(access.array)
    if access.rank == 0:
        return machine.element(access.array, access.indices, record=True)
    store, cell = machine.stores[access.array], place(machine, access)
    record = machine.recorder(access.array, is_write=False)
    private = store if isinstance(store, PrivateStore) else None

    def read() -> Block:
        at = cell()
        shape, offsets = store.offsets(at)
        data = store.data
        cells = [data[offset] for offset in offsets]
        if private is not None:
            private.check(at, cells)
        if record is not None:
            for each in store.cells_at(at):
                record(each)
        return Block(shape, cells)

    return read


def place(machine: Machine, access: Access) -> Callable[[], list[int | None]]:
    """Compile the subscripts of an access; `:` becomes None."""
    codes: list[IndexCode | None] = [
        None if isinstance(subscript, Whole) else machine.index(subscript)
        for subscript in access.subscripts
    ]
    return lambda: [None if code is None else code() for code in codes]


def _unary(code: ValueCode, op: str, *, may_be_row: bool) -> ValueCode:
    def sign(x: Scalar) -> Scalar:
        return -x if op == "-" else +x

    if may_be_row:
        return lambda: by_cell(sign, code())
    if op == "-":
        return lambda: -code()
    return lambda: +code()


def _binary(machine: Machine, value: Binary) -> ValueCode:
    a, b = machine.value(value.left), machine.value(value.right)
    if value.op == "@":
        return lambda: inner_product(a(), b())
    operation = binary_operation(value.op, machine.real)
    if rank_of(value) > 0:
        return lambda: by_cell(operation, a(), b())
    match value.op:
        case "+":
            return lambda: a() + b()
        case "-":
            return lambda: a() - b()
        case "*":
            return lambda: a() * b()
        case _:
            return lambda: operation(a(), b())


def _call(machine: Machine, value: Call) -> ValueCode:
    name, codes = value.function, [machine.value(argument) for argument in value.arguments]
    if len(codes) == 1 and name == "sum":
        row = codes[0]
        return lambda: sum_of(row())
    if len(codes) == 1 and name in ("max", "min"):
        row = codes[0]
        return lambda: extremum_of(name, row().cells)
    operation = function_operation(name, machine.real)
    if rank_of(value) > 0:
        return lambda: by_cell(operation, *[code() for code in codes])
    if len(codes) == 1:
        (only,) = codes
        return lambda: operation(only())
    if len(codes) == 2:
        first, second = codes
        return lambda: operation(first(), second())
    return lambda: operation(*[code() for code in codes])


def _reduce(machine: Machine, value: Reduce) -> ValueCode:
    body, name = machine.value(value.body), value.function
    if name == "sum":
        if len(value.generators) == 1:
            return _simple_sum(machine, value.generators[0], body)
        gather = _gather(machine, value.generators, body)

        def total() -> Scalar:
            cells: list[Scalar] = []
            gather(cells)
            return sum_of(Block((len(cells),), cells))

        return total
    gather = _gather(machine, value.generators, body)

    def extremum() -> Scalar:
        cells: list[Scalar] = []
        gather(cells)
        return extremum_of(name, cells)

    return extremum


def _simple_sum(machine: Machine, generator: Generator, body: ValueCode) -> ValueCode:
    frame, name, step = machine.frame, generator.variable, generator.range.step
    start, stop = machine.index(generator.range.start), machine.index(generator.range.stop)
    test = machine.test(generator.condition)

    def total() -> Scalar:
        result: Scalar = 0
        for frame[name] in range(start(), stop(), step):
            if test():
                result = result + body()
        return result

    return total


def _gather(
    machine: Machine, generators: tuple[Generator, ...], body: ValueCode
) -> Callable[[list[Scalar]], None]:
    """Compile what appends the body's value for every iteration of the generators."""
    if not generators:
        return lambda cells: cells.append(body())
    first = generators[0]
    frame, name, step = machine.frame, first.variable, first.range.step
    start, stop = machine.index(first.range.start), machine.index(first.range.stop)
    test: TestCode = machine.test(first.condition)
    inner = _gather(machine, generators[1:], body)

    def gather(cells: list[Scalar]) -> None:
        for frame[name] in range(start(), stop(), step):
            if test():
                inner(cells)

    return gather


def _always(number: Scalar) -> ValueCode:
    return lambda: number


def _create(machine: Machine, value: Create) -> ValueCode:
    extents = [machine.index(extent) for extent in value.shape]
    real = machine.real
    match value.function:
        case "full":
            assert value.fill is not None
            fill = machine.value(value.fill)
        case "empty":
            # Not a number, so that a cell that is read too early shows.
            integral = value.element is not None and "float" not in value.element
            fill = _always(0 if integral else real("nan"))
        case name:
            fill = _always(real(1 if name == "ones" else 0))

    def create() -> Block:
        shape = tuple([extent() for extent in extents])
        return Block(shape, [fill()] * cell_count(shape, "the new array"))

    return create


def not_a_row(name: str, value: Scalar) -> Trap:
    """Return the failure of storing a row where a number belongs."""
    return Trap(NoValue, f"a row of shape {value.shape} is stored into the number {name!r}")
