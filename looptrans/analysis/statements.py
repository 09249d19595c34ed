"""Statements as reports show them."""

from __future__ import annotations

from looptrans.ir.facts import StatementFact
from looptrans.ir.listing import assign_text, if_text
from looptrans.ir.program import Assign, Program
from looptrans.ir.walk import placed


def statement_facts(program: Program) -> tuple[StatementFact, ...]:
    """Return every statement and data-dependent condition, in textual order."""
    inputs = {array.name for array in program.arrays if array.role == "input"}
    return tuple(
        StatementFact(
            place.label,
            assign_text(node, inputs) if isinstance(node, Assign) else if_text(node),
            node.span.line,
            tuple(loop.variable for loop in place.loops),
        )
        for place in placed(program)
        for node in (place.node,)
    )
