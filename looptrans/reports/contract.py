"""The versioned JSON documents, as dictionaries and as text.

Keys come in the order of the contract. A key the contract does not name is only present where it
has something to say: `assumptions`, `because`, `reason`, `reduced`, `warnings`, `unknown`,
`distance_set`, `distance_within`, `instances`, `elements`. A `distance_set` is exact; where sizes
multiply or divide what varies, no set of isl is, and `distance_within` is one that holds all that
occur, and perhaps more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from looptrans.ir.facts import (
    ClaimFact,
    Component,
    ComponentReport,
    Dependence,
    DependenceReport,
    LoopFacts,
    LoopVerdict,
    StatementFact,
)
from looptrans.ir.verdict import Witness

Document: TypeAlias = dict[str, Any]


def dumps(document: Document) -> str:
    """Return a document as text: two spaces of indentation, a newline at the end."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def witness_document(witness: Witness | None) -> Document | None:
    """Return `{"kind", "parameters", "source", "sink"}`, and `"elements"` where there are any."""
    if witness is None:
        return None
    document: Document = {
        "kind": witness.kind,
        "parameters": dict(witness.parameters),
        "source": dict(witness.source),
        "sink": dict(witness.sink),
    }
    if witness.elements:
        document["elements"] = dict(witness.elements)
    return document


def dependences_document(report: DependenceReport) -> Document:
    """Return `looptrans.deps/1`."""
    document: Document = {
        "schema": "looptrans.deps/1",
        "program": report.program,
        "parameters": list(report.parameters),
        "statements": [_statement(statement) for statement in report.statements],
        "dependences": [dependence_document(dependence) for dependence in report.dependences],
    }
    return _with(
        document,
        assumptions=list(report.assumptions),
        warnings=list(report.warnings),
        unknown=report.unknown,
    )


def components_document(report: ComponentReport) -> Document:
    """Return `looptrans.scc/1`."""
    document: Document = {
        "schema": "looptrans.scc/1",
        "graph": report.graph,
        "sccs": [_component(component) for component in report.components],
    }
    return _with(document, unknown=report.unknown)


def loops_document(loops: Sequence[LoopFacts]) -> Document:
    """Return `looptrans.loops/1`."""
    return {
        "schema": "looptrans.loops/1",
        "loops": [
            {
                "loop": facts.loop,
                "line": facts.line,
                "flow": _verdict(facts.flow),
                "memory": _verdict(facts.memory),
            }
            for facts in loops
        ],
    }


def graph_document(report: DependenceReport, components: ComponentReport) -> Document:
    """Return `looptrans.ddg/1`: the statements, an edge for each piece, the SCCs."""
    edges = [
        {
            "source": dependence.source,
            "sink": dependence.sink,
            "kind": dependence.kind,
            "basis": dependence.basis,
            "may": dependence.may,
            "array": dependence.array,
            "direction": list(dependence.direction),
            "distance": list(dependence.distance),
            "carried_by": dependence.carried_by,
        }
        for dependence in report.dependences
    ]
    document: Document = {
        "schema": "looptrans.ddg/1",
        "program": report.program,
        "nodes": [_statement(statement) for statement in report.statements],
        "edges": edges,
        "graph": components.graph,
        "sccs": [_component(component) for component in components.components],
    }
    return _with(
        document,
        assumptions=list(report.assumptions),
        warnings=list(report.warnings),
        unknown=report.unknown or components.unknown,
    )


def claims_document(program: str, claims: Sequence[ClaimFact]) -> Document:
    """Return `looptrans.claims/1`."""
    return {
        "schema": "looptrans.claims/1",
        "program": program,
        "claims": [
            {
                "statement": claim.statement,
                "line": claim.line,
                "claim": claim.claim,
                "verdict": claim.decision,
                "fact": claim.fact,
                "witness": witness_document(claim.witness),
            }
            for claim in claims
        ],
    }


def report_document(
    report: DependenceReport,
    components: Sequence[ComponentReport],
    loops: Sequence[LoopFacts],
    claims: Sequence[ClaimFact],
) -> Document:
    """Return `looptrans.report/1`: the documents of the other verbs, each whole."""
    return {
        "schema": "looptrans.report/1",
        "program": report.program,
        "deps": dependences_document(report),
        "scc": [components_document(each) for each in components],
        "loops": loops_document(loops),
        "claims": claims_document(report.program, claims),
    }


def _statement(statement: StatementFact) -> Document:
    return {
        "label": statement.label,
        "text": statement.text,
        "line": statement.line,
        "loops": list(statement.loops),
    }


def dependence_document(dependence: Dependence) -> Document:
    """Return an entry of `dependences` in `looptrans.deps/1`."""
    document: Document = {
        "kind": dependence.kind,
        "basis": dependence.basis,
        "may": dependence.may,
        "source": dependence.source,
        "sink": dependence.sink,
        "array": dependence.array,
        "loops": list(dependence.loops),
        "distance": list(dependence.distance),
        "direction": list(dependence.direction),
        "carried_by": dependence.carried_by,
        "witness": witness_document(dependence.witness),
    }
    if "*" in dependence.distance and dependence.distance_set is not None:
        key = "distance_within" if dependence.within else "distance_set"
        document[key] = dependence.distance_set
    if dependence.instances is not None:
        document["instances"] = [
            [list(source), list(sink)] for source, sink in dependence.instances
        ]
    return document


def _component(component: Component) -> Document:
    return {"statements": list(component.statements), "carried_by": list(component.carried_by)}


def _verdict(verdict: LoopVerdict) -> Document:
    document: Document = {
        "verdict": verdict.decision,
        "names": list(verdict.names),
        "operators": list(verdict.operators),
        "witness": witness_document(verdict.witness),
    }
    return _with(
        document,
        reduced=list(verdict.reduced),
        because=verdict.because,
        reason=verdict.reason,
        assumptions=list(verdict.assumptions),
    )


def _with(document: Document, **extra: object) -> Document:
    """Add the keys that have something to say."""
    document.update({key: value for key, value in extra.items() if value})
    return document
