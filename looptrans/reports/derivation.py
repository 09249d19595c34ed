"""A derivation to be read: each step's name, what it changes, and what was proved."""

from __future__ import annotations

from difflib import unified_diff
from typing import TYPE_CHECKING, Final

from looptrans.ir.listing import listing
from looptrans.ir.named import unlabelled_in
from looptrans.ir.verdict import Certificate
from looptrans.reports.backward import backward_listing, bullets, sections
from looptrans.reports.style import PLAIN, Style, block, paragraph, printable

if TYPE_CHECKING:
    from looptrans.derivation.step import Derivation, DerivationStep

_ROLES: Final = {"+": "good", "-": "bad", "@": "dim"}
_DECISIONS: Final = {"legal": "good", "illegal": "bad", "unknown": "doubt"}
_SHOWN: Final = {"legal": "shown", "illegal": "refuted", "unknown": "open"}
_GOALS: Final = {
    "fold": "towards one pass",
    "forward": "towards one pass in blocks",
    "split": "towards parts that are joined",
    "backward": "towards the backward pass",
}


def derivation_text(derivation: Derivation, style: Style = PLAIN) -> str:
    """Return a derivation as text: the listing, each step as a diff, and its certificates."""
    lines = [style.paint("bold", headline(derivation)), ""]
    lines += listing(derivation.program).splitlines()
    for number, step in enumerate(derivation.steps, 1):
        lines += ["", *paragraph(f"{number}. {step.name}")]
        lines[-1] = style.paint("bold", lines[-1])
        lines += [""]
        whole = backward_listing(step)
        if whole is not None:
            lines += whole
        else:
            for line in changes(step):
                role = _ROLES.get(line[:1])
                lines.append(f"    {style.paint(role, line) if role else line}")
        if lines[-1]:
            lines.append("")
        for certificate in step.certificates:
            lines += paragraph(certificate_text(certificate), "  * ")
    for heading, said in sections(derivation):
        lines += ["", style.paint("bold", heading), *bullets(said)]
    if derivation.notes:
        lines += ["", style.paint("bold", _heading(derivation))]
        for note in (*derivation.notes, *_named(derivation)):
            lines += paragraph(note, "  * ")
    lines += ["", style.paint(_DECISIONS[derivation.decision], closing(derivation))]
    return block(lines)


def headline(derivation: Derivation) -> str:
    """Return what is derived, in one line."""
    name = printable(derivation.program.name)
    count = len(derivation.steps)
    steps = f"{count} step" if count == 1 else f"{count} steps"
    return f"{name}: {steps} {_GOALS[derivation.goal]}"


def closing(derivation: Derivation) -> str:
    """Return how the derivation ended, in one line."""
    laws = sum(len(step.certificates) for step in derivation.steps)
    match derivation.decision:
        case "legal":
            return f"derived: {laws} certificates, all of them shown"
        case "illegal" if derivation.goal == "backward" and derivation.steps:
            return f"derived, but not in the form {derivation.form}"
        case "unknown" if derivation.goal == "backward" and not derivation.steps:
            return "unknown: no backward pass was found"
        case "unknown" if derivation.backward is not None:
            names = [step.name for step in derivation.steps if step.decision == "unknown"]
            if not names:
                return f"unknown: derived, but not in the form {derivation.form}"
            return f"unknown: derived, but not shown in full: {'; '.join(names)}"
        case "illegal":
            return "refuted: it cannot be derived"
        case _:
            return "unknown: no way was found"


def _heading(derivation: Derivation) -> str:
    """Return what the notes stand under."""
    if derivation.goal != "backward":
        return "What was not done"
    return "What to know" if derivation.steps else "Why there is none"


def _named(derivation: Derivation) -> list[str]:
    """Return what the labels in a refusal stand for, where the listing does not show them."""
    if derivation.goal != "backward" or derivation.steps:
        return []
    return unlabelled_in(" ".join(derivation.notes), derivation.program)


def changes(step: DerivationStep) -> list[str]:
    """Return what a step changes in the listing: a diff without its head."""
    before, after = listing(step.before).splitlines(), listing(step.after).splitlines()
    return list(unified_diff(before, after, lineterm="", n=2))[2:]


def certificate_text(certificate: Certificate) -> str:
    """Return a certificate as a paragraph."""
    law = certificate.law.partition(":")[0]
    if certificate.kind == "algebra" and law.lower() in certificate.reason.lower():
        return f"algebra: {certificate.reason}"
    text = f"{certificate.kind}: {certificate.law}, {_SHOWN[certificate.verdict]}"
    if certificate.reason:
        text += f": {certificate.reason}"
    if certificate.assumptions:
        text += f"; it leans on {', '.join(certificate.assumptions)}"
    return f"{text}."


def derivation_markdown(derivation: Derivation) -> str:
    """Return a derivation as a page in Markdown."""
    lines = [f"# {headline(derivation)}", "", "```python"]
    lines += [*listing(derivation.program).splitlines(), "```"]
    for number, step in enumerate(derivation.steps, 1):
        lines += ["", f"## {number}. {printable(step.name)}", ""]
        whole = backward_listing(step)
        changed = changes(step)
        if whole is not None:
            lines += ["```python", *whole, "```", ""]
        elif changed:
            lines += ["```diff", *changed, "```", ""]
        lines += [f"- {_escaped(certificate_text(each))}" for each in step.certificates]
    for heading, said in sections(derivation):
        lines += ["", f"## {heading}", "", *(f"- {_escaped(each)}" for each in said)]
    if derivation.notes:
        lines += ["", f"## {_heading(derivation)}", ""]
        lines += [f"- {_escaped(note)}" for note in (*derivation.notes, *_named(derivation))]
    if derivation.steps:
        lines += ["", "## The nest at the end", "", "```python"]
        lines += [*listing(derivation.last).splitlines(), "```"]
    lines += ["", f"{closing(derivation)[:1].upper()}{closing(derivation)[1:]}."]
    return block(lines)


def _escaped(text: str) -> str:
    """Keep Markdown from reading products and subscripts as emphasis and links."""
    found = printable(text)
    for sign in "\\`*_[]<>":
        found = found.replace(sign, f"\\{sign}")
    return found
