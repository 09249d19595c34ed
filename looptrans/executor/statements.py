"""Loops, guards and statements as Python closures; a failure is reported where it happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from looptrans.executor.closures import IndexCode, Machine, ValueCode
from looptrans.executor.errors import FAILURES, ExecutionError, as_trap
from looptrans.executor.operations import different_lengths
from looptrans.executor.storage import Block, Scalar, Store
from looptrans.executor.values import compile_value, not_a_row, place
from looptrans.ir.program import Assign, Declaration, If, Loop, Node
from looptrans.ir.source import Span
from looptrans.ir.value import Access

Step: TypeAlias = Callable[[], None]
Write: TypeAlias = Callable[[Scalar], None]


def compile_body(machine: Machine, body: tuple[Node, ...], loops: tuple[str, ...] = ()) -> Step:
    """Compile the nodes of one block, which run in order.

    Args:
        machine: What the closures share.
        body: The nodes.
        loops: The variables of the loops around them, outermost first.
    """
    steps = [_node(machine, node, loops) for node in body]
    if len(steps) == 1:
        return steps[0]

    def run() -> None:
        for step in steps:
            step()

    return run


def _node(machine: Machine, node: Node, loops: tuple[str, ...]) -> Step:
    match node:
        case Assign():
            return _assign(machine, node, loops)
        case Loop():
            return _loop(machine, node, loops)
        case If():
            return _guard(machine, node, loops)
        case Declaration():
            return _declaration(machine, node)


def _failed(
    machine: Machine, failure: BaseException, where: str, loops: tuple[str, ...], span: Span
) -> ExecutionError:
    iteration = {loop: machine.frame[loop] for loop in loops}
    return as_trap(failure).at(where, iteration, span)


def _enter(machine: Machine, label: str | None, loops: tuple[str, ...]) -> None:
    """What is compiled from here on is logged under `label`."""
    machine.label, machine.loops = label, loops


def _loop(machine: Machine, loop: Loop, loops: tuple[str, ...]) -> Step:
    _enter(machine, None, loops)
    start, stop = machine.index(loop.range.start), machine.index(loop.range.stop)
    frame, name, step = machine.frame, loop.variable, loop.range.step
    body = compile_body(machine, loop.body, (*loops, name))

    def run() -> None:
        try:
            iterations = range(start(), stop(), step)
        except FAILURES as failure:
            where = f"the bounds of loop {name}"
            raise _failed(machine, failure, where, loops, loop.span) from None
        for frame[name] in iterations:
            body()

    return run


def _guard(machine: Machine, guard: If, loops: tuple[str, ...]) -> Step:
    _enter(machine, guard.label, loops)
    test = machine.test(guard.condition)
    body = compile_body(machine, guard.body, loops)
    orelse = compile_body(machine, guard.orelse, loops)
    where = guard.label or "the condition of a guard"

    def run() -> None:
        try:
            holds = test()
        except FAILURES as failure:
            raise _failed(machine, failure, where, loops, guard.span) from None
        if holds:
            body()
        else:
            orelse()

    return run


def _declaration(machine: Machine, declaration: Declaration) -> Step:
    _enter(machine, None, ())
    store = machine.stores[declaration.array]
    create = compile_value(machine, declaration.creation)

    def run() -> None:
        try:
            _replace(store, create())
        except FAILURES as failure:
            where = f"the creation of {store.name}"
            raise _failed(machine, failure, where, (), declaration.span) from None

    return run


def _replace(store: Store, block: Block) -> None:
    convert = store.convert
    store.shape, store.data = block.shape, [convert(cell) for cell in block.cells]


def _assign(machine: Machine, statement: Assign, loops: tuple[str, ...]) -> Step:
    _enter(machine, statement.label, loops)
    codes = [machine.value(value) for value in statement.values]
    writes = [_write(machine, target) for target in statement.targets]
    label, span = statement.label, statement.span
    if len(codes) == 1 and len(writes) == 1:
        return _single(machine, codes[0], writes[0], (label, loops, span))
    spread = len(writes) if len(codes) == 1 else 1

    def run() -> None:
        try:
            values = [code() for code in codes] * spread
            for write, value in zip(writes, values, strict=True):
                write(value)
        except FAILURES as failure:
            raise _failed(machine, failure, label, loops, span) from None

    return run


def _single(
    machine: Machine, code: ValueCode, write: Write, where: tuple[str, tuple[str, ...], Span]
) -> Step:
    def run() -> None:
        try:
            write(code())
        except FAILURES as failure:
            raise _failed(machine, failure, *where) from None

    return run


def _write(machine: Machine, target: Access) -> Write:
    store, record = machine.stores[target.array], machine.recorder(target.array, is_write=True)
    if not target.subscripts:
        return _write_scalar(store, record)
    if target.rank:
        return _write_row(machine, target, store, record)
    codes = [machine.index(subscript) for subscript in target.indices]
    if len(codes) == 2 and record is None:
        return _write_2(store, *codes)
    convert = store.convert

    def write(value: Scalar) -> None:
        cell = tuple([code() for code in codes])
        if isinstance(value, Block):
            raise not_a_row(store.name, value)
        (offset,) = store.offsets(cell)[1]
        if record is not None:
            record(cell)
        store.data[offset] = convert(value)

    return write


def _write_scalar(store: Store, record: Callable[[tuple[int, ...]], None] | None) -> Write:
    """A scalar keeps the type of its value, as a Python name does."""

    def write(value: Scalar) -> None:
        if isinstance(value, Block):
            raise not_a_row(store.name, value)
        if record is not None:
            record(())
        store.shape, store.data = (), [value]

    return write


def _write_2(store: Store, first: IndexCode, second: IndexCode) -> Write:
    convert = store.convert

    def write(value: Scalar) -> None:
        i, j = first(), second()
        if isinstance(value, Block):
            raise not_a_row(store.name, value)
        shape = store.shape
        if shape is None:
            raise store.unset()
        m, n = shape
        if not (0 <= i < m and 0 <= j < n):
            raise store.outside((i, j))
        store.data[i * n + j] = convert(value)

    return write


def _write_row(
    machine: Machine,
    target: Access,
    store: Store,
    record: Callable[[tuple[int, ...]], None] | None,
) -> Write:
    cell, convert = place(machine, target), store.convert
    # Assigning the bare name of a local array gives it a new shape; an input keeps its own.
    renames = not target.indices and store.is_local

    def write(value: Scalar) -> None:
        at = cell()
        if isinstance(value, Block) and renames:
            _replace(store, value)
        else:
            shape, offsets = store.offsets(at)
            cells = value.cells if isinstance(value, Block) else [value] * len(offsets)
            if isinstance(value, Block) and value.shape != shape:
                raise different_lengths(value.shape, shape)
            data = store.data
            for offset, each in zip(offsets, cells, strict=True):
                data[offset] = convert(each)
        if record is not None:
            for each in store.cells_at(at):
                record(each)

    return write
