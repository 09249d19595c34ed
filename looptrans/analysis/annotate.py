"""The annotations of a nest, written by the tool: labels, SLoop, TLoop, RAW, aggregation."""

from __future__ import annotations

import re
from dataclasses import replace

from looptrans.analysis.cycles.judge import Knowledge
from looptrans.analysis.dependence.dependences import Analysis
from looptrans.analysis.isl_model.model import StatementModel
from looptrans.frontend.operands import written_operands
from looptrans.ir.program import Assign, Atomic, BlockReduce, If, Loop, Node, Program

_CLAIM = re.compile(
    r"self\s+depend|sloop|tloop|\b(raw|war|waw)\s+on\b|aggregation\s+over", re.IGNORECASE
)


def annotate(analysis: Analysis) -> Program:
    """Return the program with comments that say of each statement what is the case.

    Claims already there are replaced; other remarks are kept behind the new ones.

    Args:
        analysis: The dependences, of both bases.
    """
    knowledge = Knowledge(analysis)
    comments = {
        statement.label: _comment(knowledge, statement)
        for statement in analysis.model.statements
        if isinstance(statement.place.node, Assign)
    }
    return replace(analysis.program, body=_annotated(analysis.program.body, comments))


def _annotated(body: tuple[Node, ...], comments: dict[str, str]) -> tuple[Node, ...]:
    found: list[Node] = []
    for node in body:
        match node:
            case Assign():
                found.append(replace(node, comment=comments[node.label], labelled=True))
            case Loop() | Atomic() | BlockReduce():
                found.append(replace(node, body=_annotated(node.body, comments)))
            case If():
                then = _annotated(node.body, comments)
                found.append(replace(node, body=then, orelse=_annotated(node.orelse, comments)))
            case _:
                found.append(node)
    return tuple(found)


def _comment(knowledge: Knowledge, statement: StatementModel) -> str:
    node = statement.place.node
    assert isinstance(node, Assign)
    number = statement.number
    into = knowledge.into.get(number, [])
    own = any(found.relation.source == number for found in into)
    text = f"{node.label}: {'Self dependency' if own else 'No self dependency'}"
    entries = [
        _ordered(knowledge.operand_support(statement, read), statement)
        for read in written_operands(node)
    ]
    loops = []
    if entries:
        shown = [_tuple(entry) for entry in entries]
        loops.append(f"SLoop: {shown[0] if len(shown) == 1 else '(' + ', '.join(shown) + ')'}")
    loops.append(f"TLoop: {_tuple(_ordered(knowledge.variation[number], statement))}")
    text += f": [{', '.join(loops)}]"
    carried = {each.variable for each in knowledge.cycles[number] if each.variable is not None}
    again = {name for name in carried if knowledge.comes_back(statement, name)}
    gathered = _ordered(frozenset(again), statement)
    if gathered:
        text += f" # Aggregation over {', '.join(gathered)}"
    names = list(dict.fromkeys(r.array for r in written_operands(node)))
    written = [name for name in names if any(f.relation.array == name for f in into)]
    if written:
        text += f" # RAW on {', '.join(written)}"
    remarks = [part for part in _remarks(node) if not _CLAIM.search(part)]
    return " # ".join([text, *remarks])


def _ordered(names: frozenset[str], statement: StatementModel) -> tuple[str, ...]:
    return tuple(loop.variable for loop in statement.loops if loop.variable in names)


def _tuple(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _remarks(node: Assign) -> list[str]:
    """Return what a comment says beside its label, part by part."""
    text = node.comment
    if node.labelled:
        text = text.removeprefix(node.label).lstrip().removeprefix(":")
    return [part.strip() for part in text.split("#") if part.strip()]
