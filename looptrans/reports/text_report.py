"""Everything the analysis found out about a program, as one text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from looptrans.ir.facts import ClaimFact, ComponentReport, DependenceReport, LoopFacts
from looptrans.reports.style import PLAIN, WIDTH, Style, block, columns, pad, paragraph, printable
from looptrans.reports.text_dependences import dependence_lines, notes, summary
from looptrans.reports.text_graph import component_lines
from looptrans.reports.text_verdicts import claim_lines, loop_lines, loop_name


def report_text(
    report: DependenceReport,
    components: Sequence[ComponentReport],
    loops: Sequence[LoopFacts],
    claims: Sequence[ClaimFact],
    style: Style = PLAIN,
) -> str:
    """Return header, components, loops, dependences and claims, in this order."""
    lines = _header(report, loops, style)
    lines += _heading("Strongly connected components", style)
    for place, each in enumerate(components):
        lines += [""] if place else []
        lines += component_lines(each, style)
    lines += _heading("Loops", style)
    lines += loop_lines(loops, style)[1:] or ["no loops"]
    lines += _heading("Dependences", style)
    for sentence in summary(report):
        lines += paragraph(sentence, "", "  ")
    values = tuple(d for d in report.dependences if d.basis == "value")
    if values:
        lines += dependence_lines(replace(report, dependences=values), style)
    if len(values) < len(report.dependences):
        # Scalars alone make hundreds of these; what they decide stands under the loops.
        hint = "dependences in memory are listed by: looptrans deps FILE --basis memory"
        lines += ["", *paragraph(hint, "", "  ")]
    lines += _heading("Claims", style)
    lines += claim_lines(claims, style)
    return block([*lines, *notes(report, style)])


def _header(report: DependenceReport, loops: Sequence[LoopFacts], style: Style) -> list[str]:
    lines = [style.paint("bold", line) for line in paragraph(report.program)]
    parameters = ", ".join(report.parameters) or "none"
    lines += paragraph(parameters, "parameters  ")
    names = ", ".join(f"{loop_name(facts, loops)} (line {facts.line})" for facts in loops)
    lines += paragraph(names or "none", "loops       ")
    lines += ["statements"]
    around = [f"[{', '.join(s.loops)}]" for s in report.statements]
    label = min(max((columns(printable(s.label)) for s in report.statements), default=0), 12)
    where = min(max((columns(text) for text in around), default=0), 24)
    for statement, loops_text in zip(report.statements, around, strict=True):
        first = f"  {pad(printable(statement.label), label)}  {pad(printable(loops_text), where)}  "
        if columns(first) > WIDTH - 30:
            lines += paragraph(f"{first.strip()}  {statement.text}", "  ", "      ")
        else:
            lines += paragraph(statement.text, first)
    return lines


def _heading(title: str, style: Style) -> list[str]:
    return ["", style.paint("bold", f"── {title} {'─' * (WIDTH - len(title) - 4)}"), ""]
