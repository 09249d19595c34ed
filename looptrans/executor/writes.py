"""Writes as Python closures: one call stores a value into a cell, a row or a scalar."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from looptrans.executor.closures import IndexCode, Machine, Record
from looptrans.executor.operations import different_lengths
from looptrans.executor.storage import Block, Scalar, Store
from looptrans.executor.values import not_a_row, place
from looptrans.ir.value import Access

Write: TypeAlias = Callable[[Scalar], None]


def compile_write(machine: Machine, target: Access) -> Write:
    """Compile a write to a target."""
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
        offset = store.offset(cell)
        if record is not None:
            record(cell)
        store.data[offset] = convert(value)

    return write


def replace_cells(store: Store, block: Block) -> None:
    """Give an array the shape and the cells of a new one."""
    convert = store.convert
    store.shape, store.data = block.shape, [convert(cell) for cell in block.cells]


def _write_scalar(store: Store, record: Record | None) -> Write:
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


def _write_row(machine: Machine, target: Access, store: Store, record: Record | None) -> Write:
    cell, convert = place(machine, target), store.convert
    # Assigning the bare name of a local array gives it a new shape; an input keeps its own.
    renames = not target.indices and store.is_local

    def write(value: Scalar) -> None:
        at = cell()
        if isinstance(value, Block) and renames:
            replace_cells(store, value)
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
