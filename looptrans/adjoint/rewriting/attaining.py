"""Statements that an extremum moves for, each saying so itself.

if s > best:                  k = j if s > best else k
best = s           ->     best = max(best, s)
k = j

best = s if s > best else best           ->     best = max(best, s)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.ir.condition import MIRRORED, Data, conjunction, conjuncts
from looptrans.ir.program import Assign, If, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.value import Access, Call, Compare, Read, Select, Value, arrays_read
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import assignments, read_by
from looptrans.transforms.editing.accesses import listed


@dataclass(frozen=True, slots=True)
class Attaining:
    """A program whose extrema are written as such.

    Attributes:
        program: The program afterwards.
        arrays: The extrema.
    """

    program: Program
    arrays: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"write {listed(self.arrays)} as a maximum or minimum"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "what is taken where it is larger than what is there is the larger of the two"
        return Certificate("algebra", law, "legal", "from the text; smaller likewise")


def with_extrema_written(program: Program) -> Attaining | None:
    """Write what is taken where it is larger, or smaller, than what is there as an extremum.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such statement.
    """
    found: dict[str, None] = {}

    def change(node: Node) -> tuple[Node, ...]:
        made: tuple[Node, ...] | None = None
        match node:
            case If(orelse=()):
                made = _opened(node)
            case Assign(targets=(cell,), values=(Select(Data(test), chosen, otherwise),)):
                word = _moved(test, chosen, cell) if otherwise == Read(cell) else None
                made = None if word is None else (_extremum(node, word, cell, chosen, test),)
            case _:
                pass
        if made is None:
            return (node,)
        inside = [each for part in made for each in assignments((part,))]
        found.update((e.targets[0].array, None) for e in inside if isinstance(e.values[0], Call))
        return made

    body = rewritten(program.body, change)
    return Attaining(replace(program, body=body), tuple(found)) if found else None


def _opened(node: If) -> tuple[Node, ...] | None:
    """Return a guard that waits for an extremum to move as statements; None for any other."""
    parts = conjuncts(node.condition)
    first: list[Assign] = []
    last: list[Assign] = []
    test: Data | None = None
    cells: list[Access] = []
    for each in node.body:
        match each:
            case Assign(targets=(cell,), values=(value,)):
                cells.append(cell)
            case _:
                return None
        for part in parts:
            word = _moved(part.value, value, cell) if isinstance(part, Data) else None
            if word is not None and isinstance(part, Data):
                test = part
                last.append(_extremum(each, word, cell, value, part.value))
                break
        else:
            first.append(each)
    if test is None or len(last) != 1:
        return None
    written = {cell.array for cell in cells}
    # All are set to what was there before any of them is.
    read = {array for each in (*first, *last) for array in read_by(each)}
    own = last[0].targets[0].array
    asked = arrays_read(test.value)
    if len(written) != len(cells) or (read | asked) & written != {own}:
        return None
    if any(own in read_by(each) for each in first):
        return None
    picks = tuple(
        replace(each, values=(Select(test, each.values[0], Read(each.targets[0])),))
        for each in first
    )
    rest = [part for part in parts if part is not test]
    found = (*picks, *last)
    return (replace(node, condition=conjunction(*rest), body=found),) if rest else found


def _extremum(node: Assign, word: str, cell: Access, value: Value, test: Value) -> Assign:
    """Return an extremum; of equal numbers its first has the derivative: the one that is taken."""
    is_taken = isinstance(test, Compare) and test.op in (">=", "<=")
    pair = (value, Read(cell)) if is_taken else (Read(cell), value)
    return replace(node, values=(Call(word, pair),), augmented=False)


def _moved(test: Value, value: Value, cell: Access) -> str | None:
    """Return which extremum a cell is that takes a value where a test holds, if it is one."""
    if not isinstance(test, Compare):
        return None
    op, sides = test.op, (test.left, test.right)
    if sides == (Read(cell), value):
        op, sides = MIRRORED[op], (value, Read(cell))
    words = {">": "max", ">=": "max", "<": "min", "<=": "min"}
    return words.get(op) if sides == (value, Read(cell)) else None
