"""Updates of reducing blocks: at once in the sequential reading, else in a tree at the phase's end.

with reduce("+"):          every iteration hands in its x; at the end of the phase they are
    s = s + x              combined two by two, in random order, and the result joined to s
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from looptrans.executor.closures import Machine
from looptrans.executor.errors import FAILURES, as_trap
from looptrans.executor.operations import (
    Operation,
    binary_operation,
    by_cell,
    different_lengths,
    function_operation,
)
from looptrans.executor.statements import Step
from looptrans.executor.storage import Block, Scalar, Store
from looptrans.executor.values import not_a_row, place
from looptrans.executor.writes import compile_write
from looptrans.ir.program import Assign
from looptrans.ir.value import Access, Binary, BinaryOperator, Call, Read, Value, rank_of


@dataclass(frozen=True, slots=True)
class _Update:
    """A statement of a reducing block, `cell = cell op x`.

    Attributes:
        statement: The statement.
        store: The array of the cell.
        operator: The operator.
        operation: What it does to two scalars.
    """

    statement: Assign
    store: Store
    operator: str
    operation: Operation

    @property
    def target(self) -> Access:
        """The cell."""
        return self.statement.targets[0]


@dataclass(slots=True)
class _Sum:
    """What the iterations handed in for one cell, and the cells it is one of."""

    update: _Update
    cells: list[Scalar]
    offset: int
    parts: list[Scalar] = field(default_factory=list)


@dataclass(slots=True)
class Pending:
    """The updates of one parallel loop that wait for the end of the phase."""

    _sums: dict[tuple[int, int, str], _Sum] = field(default_factory=dict)

    def add(self, update: _Update, offset: int, part: Scalar) -> None:
        """Take in the x for one cell."""
        # A private name means another copy later on, so that the cells themselves are kept.
        cells = update.store.data
        key = id(cells), offset, update.operator
        if key not in self._sums:
            self._sums[key] = _Sum(update, cells, offset)
        self._sums[key].parts.append(part)

    def join(self, random: Random) -> None:
        """End the phase: combine what came in for each cell, and join it to the cell.

        Raises:
            ExecutionError: The result does not fit the cell.
        """
        for each in self._sums.values():
            update = each.update
            try:
                whole = _combined(each.parts, update.operation, random)
                whole = update.operation(each.cells[each.offset], whole)
                if update.target.subscripts:  # a scalar keeps the type of its value
                    whole = update.store.convert(whole)
                each.cells[each.offset] = whole
            except FAILURES as failure:
                where = f"{update.statement.label}, at the end of the phase"
                raise as_trap(failure).at(where, {}, update.statement.span) from None
        self._sums.clear()


def _combined(parts: list[Scalar], operation: Operation, random: Random) -> Scalar:
    """Combine numbers pairwise, in a tree that chance decides."""
    while len(parts) > 1:
        pair = []
        for _ in range(2):
            at = int(random.random() * len(parts))
            parts[at], parts[-1] = parts[-1], parts[at]
            pair.append(parts.pop())
        parts.append(operation(*pair))
    return parts[0]


def compile_update(
    machine: Machine, statement: Assign, operator: str, loops: tuple[str, ...]
) -> Step:
    """Compile a statement of a reducing block.

    It updates its cell at once unless the machine has somewhere for it to wait.
    """
    (target,) = statement.targets
    own_first, operand = _operands(statement, operator)
    machine.enter(statement.label, loops)
    machine.updated = target.array, operator
    read, write = machine.value(Read(target)), compile_write(machine, target)
    record = machine.recorder(target.array, is_write=True)
    machine.updated = None
    part, cell = machine.value(operand), place(machine, target)
    update = _Update(
        statement, machine.stores[target.array], operator, _operation(operator, machine)
    )
    operation, is_row = update.operation, target.rank > 0 or rank_of(operand) > 0

    def at_once() -> None:
        old, new = (read(), part()) if own_first else (part(), read())
        write(by_cell(operation, old, new) if is_row else operation(old, new))

    def defer(pending: Pending) -> None:
        read()  # it has to be there
        new, at = part(), cell()
        shape, offsets = update.store.offsets(at)
        if isinstance(new, Block) and new.shape != shape:
            raise different_lengths(new.shape, shape) if shape else not_a_row(target.array, new)
        cells = new.cells if isinstance(new, Block) else [new] * len(offsets)
        if record is not None:
            for each in update.store.cells_at(at):
                record(each)
        for offset, each in zip(offsets, cells, strict=True):
            pending.add(update, offset, each)

    def run() -> None:
        try:
            if machine.pending is None:
                at_once()
            else:
                defer(machine.pending)
        except FAILURES as failure:
            raise machine.failed(failure, statement.label, loops, statement.span) from None

    return run


def _operands(statement: Assign, operator: str) -> tuple[bool, Value]:
    """Return the x of `cell = cell op x`, and whether the cell stands before it."""
    (value,), own = statement.values, Read(statement.targets[0])
    match value:
        case Binary(op, left, right) if op == operator:
            pass
        case Call(function, (left, right)) if function == operator:
            pass
        case _:
            raise AssertionError(f"{statement.label} is no update with {operator}")
    assert own in (left, right), f"{statement.label} does not update its cell"
    return (True, right) if left == own else (False, left)


def _operation(operator: str, machine: Machine) -> Operation:
    arithmetic: dict[str, BinaryOperator] = {"+": "+", "*": "*"}
    if operator in arithmetic:
        return binary_operation(arithmetic[operator], machine.real)
    return function_operation(operator, machine.real)
