"""Verdicts on transformations as JSON: `looptrans.check/1` and `looptrans.apply/1`."""

from __future__ import annotations

from collections.abc import Sequence

from looptrans.ir.listing import listing
from looptrans.ir.step import Step
from looptrans.ir.verdict import Decision, Seen, Verdict
from looptrans.reports.contract import Document, dependence_document, witness_document
from looptrans.reports.verdict_words import assumptions


def check_document(steps: Sequence[Step]) -> Document:
    """Return `looptrans.check/1`; verdict and witness are those of the first step not legal."""
    return {"schema": "looptrans.check/1", **_summary(steps), "steps": [_step(s) for s in steps]}


def apply_document(steps: Sequence[Step], *, every: bool = False, anyway: bool = False) -> Document:
    """Return `looptrans.apply/1`: as for `check`, and the nest afterwards.

    Args:
        steps: The steps.
        every: Whether each step shows its listing.
        anyway: Whether listings are also given where the verdict is not legal.
    """

    def text(step: Step) -> str | None:
        return listing(step.after) if anyway or step.verdict.decision == "legal" else None

    documents = [_step(step) for step in steps]
    if every:
        for document, step in zip(documents, steps, strict=True):
            document["listing"] = text(step)
    return {
        "schema": "looptrans.apply/1",
        **_summary(steps),
        "listing": text(steps[-1]) if steps else None,
        "steps": documents,
    }


def decision_of(steps: Sequence[Step]) -> Decision:
    """Return the verdict of the first step that is not legal, `legal` where all are."""
    return next((s.verdict.decision for s in steps if s.verdict.decision != "legal"), "legal")


def _summary(steps: Sequence[Step]) -> Document:
    failed = next((step.verdict for step in steps if step.verdict.decision != "legal"), None)
    return {
        "verdict": decision_of(steps),
        "witness": None if failed is None else witness_document(failed.witness),
    }


def _step(step: Step) -> Document:
    verdict = step.verdict
    return {
        "transformation": step.name or None,
        "verdict": verdict.decision,
        "reason": verdict.reason,
        "witness": witness_document(verdict.witness),
        "source": verdict.source or None,
        "sink": verdict.sink or None,
        "array": verdict.array or None,
        "cell": list(verdict.cell),
        "dependence": None
        if verdict.dependence is None
        else dependence_document(verdict.dependence),
        "now": None if verdict.now is None else _seen(verdict.now),
        "help": verdict.help,
        "certificates": _certificates(verdict),
        "assumptions": list(assumptions(verdict)),
    }


def _seen(seen: Seen) -> Document:
    return {"statement": seen.statement, "iteration": dict(seen.iteration)}


def _certificates(verdict: Verdict) -> list[Document]:
    return [
        {
            "kind": certificate.kind,
            "law": certificate.law,
            "verdict": certificate.verdict,
            "reason": certificate.reason,
            "assumptions": list(certificate.assumptions),
        }
        for certificate in verdict.certificates
    ]
