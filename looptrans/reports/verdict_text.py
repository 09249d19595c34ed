"""Verdicts on transformations as text: a line for each, a diagnosis for one that is not legal.

✓ skew(j, i, 1)      legal    order: every dependence still runs forward
✗ interchange(i, j)  illegal
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from looptrans.ir.step import Step
from looptrans.ir.verdict import Verdict
from looptrans.reports.style import PLAIN, WIDTH, Style, block, columns, pad, paragraph, printable
from looptrans.reports.verdict_place import excerpt, marked_statements, shown_program
from looptrans.reports.verdict_words import assumptions, dependence_words, example_words, refusal
from looptrans.transforms.mistakes import REFUSALS, Undecided

_MARKS: Final = {"legal": ("✓", "good"), "illegal": ("✗", "bad"), "unknown": ("?", "doubt")}
_NOT_TRIED: Final = ("–", "not tried")
_NAME_WIDTH: Final = 40


def steps_text(steps: Sequence[Step], untried: Sequence[str] = (), style: Style = PLAIN) -> str:
    """Return a line for each step, and why the last one is not legal if it is not.

    Args:
        steps: The steps, of which only the last may be other than legal; one without a name is a
            question about the listing as it stands.
        untried: Transformations that were not made because of that, as written.
        style: How text is dressed.
    """
    names = [printable(step.name or step.before.name) for step in steps]
    left = [printable(name) for name in untried]
    width = min(max(map(columns, [*names, *left]), default=0), _NAME_WIDTH)
    lines: list[str] = []
    for name, step in zip(names, steps, strict=True):
        lines += _step(name, step.verdict, width, style)
    for name in left:
        lines.append(style.paint("dim", f"{_NOT_TRIED[0]} {pad(name, width)}  {_NOT_TRIED[1]}"))
    if steps and steps[-1].verdict.decision != "legal":
        lines += ["", *diagnosis_lines(steps[-1], style)]
    return block(lines)


def diagnosis_lines(step: Step, style: Style = PLAIN) -> list[str]:
    """Return why a step is not legal: the statements, the dependence, the example, and help."""
    verdict = step.verdict
    lines = _heading(step, style)
    for line, carets in excerpt(marked_statements(step)):
        lines.append(line)
        if carets:
            lines.append(carets[: -len(carets.lstrip())] + style.paint("bad", carets.lstrip()))
    if verdict.dependence is not None:
        told = dependence_words(verdict.dependence, shown_program(step))
        lines += paragraph(told, "  ", "    ")
    example = example_words(step)
    if verdict.reason not in example:  # which then says the same
        lines += paragraph(verdict.reason, "  ", "    ")
    lines += _example(example)
    for assumption in _assumed(verdict):
        lines += paragraph(assumption, "  ", "    ")
    if verdict.help:
        lines += paragraph(f"help: {verdict.help}", "  ", "    ")
    return lines


def _example(sentence: str) -> list[str]:
    """Return a sentence on one line, or else broken where its second half begins."""
    first, mark, second = sentence.partition("; ")
    if columns(sentence) <= WIDTH - 4 or not mark:
        return paragraph(sentence, "  ", "    ") if sentence else []
    return [*paragraph(f"{first};", "  ", "    "), *paragraph(second, "    ")]


def _heading(step: Step, style: Style) -> list[str]:
    verdict = step.verdict
    word, role = f"unknown[{Undecided.code}]", "doubt"
    if verdict.decision == "illegal":
        kind = None if verdict.witness is None else verdict.witness.kind
        word, role = f"error[{REFUSALS[kind].code}]", "bad"
    lines = paragraph(refusal(step), f"{word}: ", "  ")
    return [style.paint(role, word) + lines[0][len(word) :], *lines[1:]]


def _step(name: str, verdict: Verdict, width: int, style: Style) -> list[str]:
    mark, role = _MARKS[verdict.decision]
    lead = f"{mark} {pad(name, width)}  "
    first = f"{lead}{pad(verdict.decision, 7)}  "
    lines: list[str] = []
    for text in _leans_on(verdict) if verdict.decision == "legal" else ():
        deeper = " " * columns(first)
        lines += paragraph(text, deeper if lines else first, f"{deeper}  ")
    lines = lines or [first]
    painted = style.paint(role, mark) + lead[len(mark) :]
    rest = lines[0][len(lead) :].replace(verdict.decision, style.paint(role, verdict.decision), 1)
    return [painted + rest, *lines[1:]]


def _leans_on(verdict: Verdict) -> list[str]:
    """Return what a legal verdict leans on: certificates, then assumptions."""
    found = [f"{certificate.kind}: {certificate.law}" for certificate in verdict.certificates]
    found += [verdict.reason] if verdict.reason else []
    return [*found, *_assumed(verdict)]


def _assumed(verdict: Verdict) -> list[str]:
    return [f"assuming {each.removeprefix('assert ')}" for each in assumptions(verdict)]
