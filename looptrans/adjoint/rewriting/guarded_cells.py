"""Cells under a guard that says which iteration it is, found by the variable of the loop.

    if i == 0: c[0] = x[0]                          if i == 0: c[i] = x[0]
    else: c[i] = x[i] / (1 - c[i - 1])      ->      else: c[i] = x[i] / (1 - c[i - 1])

An iteration sets the cell of its own then, whichever it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.ir.condition import Condition, Relation, conjuncts
from looptrans.ir.index import Index, Var, variables
from looptrans.ir.program import Assign, If, Node, Program
from looptrans.ir.rewrite import replaced, rewritten, with_accesses, with_reads
from looptrans.ir.value import Access, Select, Value, Whole
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import accesses, nodes
from looptrans.transforms.editing.accesses import listed


@dataclass(frozen=True, slots=True)
class GuardedCells:
    """A program whose guarded cells are found by variables.

    Attributes:
        program: The program afterwards.
        arrays: What they are cells of.
    """

    program: Program
    arrays: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"find the cells of {listed(self.arrays)} by the loop that a guard stops at them"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "an index is the variable of a loop where a guard says so"
        return Certificate("storage", law, "legal", "from the text: variables do not change inside")


def with_guarded_cells(program: Program) -> GuardedCells | None:
    """Find cells by the variable of a loop where a guard says that it is their index.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where the cells of no array that is set are found in both ways.
    """
    # For each array and dimension the variables that it is found by where it is set.
    by: dict[tuple[str, int], set[str]] = {}
    for node in nodes(program.body):
        if isinstance(node, Assign | If):
            for each in accesses(node):
                for place, subscript in enumerate(each.access.subscripts):
                    if each.is_write and isinstance(subscript, Var):
                        by.setdefault((each.access.array, place), set()).add(subscript.name)
    changed: dict[str, None] = {}

    def found_by(access: Access, known: dict[Index, str]) -> Access:
        subscripts = list(access.subscripts)
        for place, subscript in enumerate(access.subscripts):
            name = None if isinstance(subscript, Whole) else known.get(subscript)
            if name is not None and name in by.get((access.array, place), ()):
                subscripts[place] = Var(name)
                changed[access.array] = None
        return Access(access.array, tuple(subscripts))

    def chosen_by(value: Value) -> Value | None:
        if not isinstance(value, Select):
            return None
        known = _known(value.condition)
        if not known:
            return None
        chosen = with_reads(value.chosen, lambda access: found_by(access, known))
        return replace(
            value,
            chosen=replaced(chosen, chosen_by),
            otherwise=replaced(value.otherwise, chosen_by),
        )

    def guarded(node: Node) -> tuple[Node, ...]:
        match node:
            case If() if known := _known(node.condition):
                body = with_accesses(node.body, lambda access: found_by(access, known))
                return (replace(node, body=body),)
            case Assign():
                values = tuple(replaced(value, chosen_by) for value in node.values)
                return (node if values == node.values else replace(node, values=values),)
            case _:
                return (node,)

    after = replace(program, body=rewritten(program.body, guarded))
    return GuardedCells(after, tuple(changed)) if changed else None


def _known(condition: Condition) -> dict[Index, str]:
    """Return the variables that a condition says indices are; nothing inside binds them anew."""
    found: dict[Index, str] = {}
    for part in conjuncts(condition):
        match part:
            case Relation("==", Var(name), index) | Relation("==", index, Var(name)) if (
                not variables(index)
            ):
                found[index] = name
            case _:
                pass
    return found
