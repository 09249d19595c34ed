"""Loop verdicts and checked claims as text."""

from __future__ import annotations

from collections.abc import Sequence

from looptrans.ir.facts import ClaimFact, LoopFacts, LoopVerdict
from looptrans.reports.style import PLAIN, WIDTH, Style, block, columns, pad, paragraph, printable
from looptrans.reports.words import counted, example, listed

_MARKS = {"holds": ("✓", "good"), "refuted": ("✗", "bad"), "unknown": ("?", "doubt")}
_ROLES = {
    "parallel": "good",
    "privatize": "good",
    "reduction": "good",
    "sequential": "bad",
    "unknown": "doubt",
}


def loops_text(program: str, loops: Sequence[LoopFacts], style: Style = PLAIN) -> str:
    """Return a paragraph for each loop."""
    heads = paragraph(f"{printable(program)}: {counted(len(loops), 'loop')}")
    return block([*(style.paint("bold", line) for line in heads), *loop_lines(loops, style)])


def loop_lines(loops: Sequence[LoopFacts], style: Style = PLAIN) -> list[str]:
    """Return the verdicts on each loop, on values alone and on memory as it is used."""
    lines: list[str] = []
    for facts in loops:
        head = paragraph(f"loop {loop_name(facts, loops)}, line {facts.line}")
        lines += ["", *(style.paint("bold", line) for line in head)]
        lines += _verdict("on values", facts.flow, style)
        lines += _verdict("in memory", facts.memory, style)
    return lines


def loop_name(facts: LoopFacts, loops: Sequence[LoopFacts]) -> str:
    """Return the loop's variable, with its line where another loop has the same."""
    alone = sum(other.loop == facts.loop for other in loops) == 1
    return printable(facts.loop if alone else f"{facts.loop}@{facts.line}")


def verdict_words(verdict: LoopVerdict) -> str:
    """Return a verdict in a phrase: `parallel once q_i and k_j are privatized`."""
    names = listed(verdict.names)
    private = f"once {names} {'is' if len(verdict.names) == 1 else 'are'} privatized"
    match verdict.decision:
        case "parallel":
            return "parallel"
        case "privatize":
            return f"parallel {private}"
        case "reduction":
            reduced = f" into {listed(verdict.reduced)}" if verdict.reduced else ""
            over = f"a reduction over {listed(verdict.operators)}{reduced}"
            return f"{over}, {private}" if verdict.names else over
        case "sequential":
            return "sequential"
        case "unknown":
            return "unknown"


def claims_text(program: str, claims: Sequence[ClaimFact], style: Style = PLAIN) -> str:
    """Return a line for each claim, the fact beneath what does not hold, and the count."""
    heads = [style.paint("bold", line) for line in paragraph(f"{printable(program)}: claims")]
    return block([*heads, "", *claim_lines(claims, style)])


def claim_lines(claims: Sequence[ClaimFact], style: Style = PLAIN) -> list[str]:
    """Return the claims, marked, and `23 claims: 20 hold, 3 refuted`."""
    label = min(max((columns(printable(c.statement)) for c in claims), default=0), 12)
    digits = max((len(str(claim.line)) for claim in claims), default=0)
    lines: list[str] = []
    for claim in claims:
        mark, role = _MARKS[claim.decision]
        first = f"  {mark} {pad(printable(claim.statement), label)}  line {claim.line:>{digits}}  "
        found = paragraph(claim.claim, first)
        found[0] = found[0].replace(mark, style.paint(role, mark), 1)
        lines += found
        if claim.decision != "holds":
            lines += paragraph(claim.fact, "      ") if claim.fact else []
            if claim.witness is not None:
                lines += paragraph(example(claim.witness, "for example"), "      ")
    return [*lines, "", style.paint("bold", claims_summary(claims))] if lines else ["no claims"]


def claims_summary(claims: Sequence[ClaimFact]) -> str:
    """Return `23 claims: 20 hold, 3 refuted`."""
    number = {decision: sum(claim.decision == decision for claim in claims) for decision in _MARKS}
    parts = [f"{number['holds']} {'holds' if number['holds'] == 1 else 'hold'}"]
    parts += [f"{number[each]} {each}" for each in ("refuted", "unknown") if number[each]]
    return f"{counted(len(claims), 'claim')}: {', '.join(parts)}"


def _verdict(which: str, verdict: LoopVerdict, style: Style) -> list[str]:
    lead = f"  {which}  "
    deeper = " " * columns(lead)
    lines = paragraph(verdict_words(verdict), lead)
    role = _ROLES[verdict.decision]
    lines = [lines[0][: len(lead)] + style.paint(role, lines[0][len(lead) :]), *lines[1:]]
    for text in (verdict.reason, verdict.because):
        if text:
            lines += paragraph(text, deeper, f"{deeper}    ", WIDTH)
    if verdict.witness is not None:
        lines += paragraph(example(verdict.witness, "for example"), deeper)
    for assumption in verdict.assumptions:
        lines += paragraph(f"assuming {assumption}", deeper, f"{deeper}    ")
    if verdict.help:
        lines += paragraph(f"help: {verdict.help}", deeper, f"{deeper}    ")
    return lines
