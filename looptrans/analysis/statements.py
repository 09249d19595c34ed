"""Statements as reports show them."""

from __future__ import annotations

from collections.abc import Iterable

from looptrans.ir.facts import Dependence, DependenceReport, StatementFact
from looptrans.ir.listing import assign_text, contract_text, if_text
from looptrans.ir.program import Assign, Program
from looptrans.ir.walk import placed


def statement_facts(program: Program) -> tuple[StatementFact, ...]:
    """Return every statement and data-dependent condition, in textual order."""
    inputs = program.input_names
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


def reported(
    program: Program, found: Iterable[Dependence], warnings: tuple[str, ...] = ()
) -> DependenceReport:
    """Return dependences as a report of a program shows them.

    Args:
        program: The program.
        found: All that were asked for, sorted.
        warnings: Things worth pointing out.
    """
    return DependenceReport(
        program.name,
        tuple(parameter.name for parameter in program.parameters if parameter.is_integer),
        statement_facts(program),
        tuple(found),
        tuple(contract_text(contract) for contract in program.contracts),
        warnings=warnings,
    )
