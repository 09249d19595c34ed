"""Statements and creations as Python closures; a failure is reported where it happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from looptrans.executor.closures import Machine, ValueCode
from looptrans.executor.errors import FAILURES
from looptrans.executor.private import PrivateStore
from looptrans.executor.values import compile_value
from looptrans.executor.writes import Write, compile_write, replace_cells
from looptrans.ir.program import Assign, Declaration
from looptrans.ir.source import Span

Step: TypeAlias = Callable[[], None]


def compile_declaration(machine: Machine, declaration: Declaration) -> Step:
    """Compile a creation before the nest; to private copies it gives their shape only."""
    machine.enter(None, ())
    store = machine.stores[declaration.array]
    create = compile_value(machine, declaration.creation)

    def run() -> None:
        try:
            if isinstance(store, PrivateStore):
                store.declare(create().shape)
            else:
                replace_cells(store, create())
        except FAILURES as failure:
            where = f"the creation of {store.name}"
            raise machine.failed(failure, where, (), declaration.span) from None

    return run


def compile_assign(machine: Machine, statement: Assign, loops: tuple[str, ...]) -> Step:
    """Compile a statement that stands in the loops with these variables."""
    machine.enter(statement.label, loops)
    codes = [machine.value(value) for value in statement.values]
    writes = [compile_write(machine, target) for target in statement.targets]
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
            raise machine.failed(failure, label, loops, span) from None

    return run


def _single(
    machine: Machine, code: ValueCode, write: Write, where: tuple[str, tuple[str, ...], Span]
) -> Step:
    def run() -> None:
        try:
            write(code())
        except FAILURES as failure:
            raise machine.failed(failure, *where) from None

    return run
