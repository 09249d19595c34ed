"""What to do instead of a step that is illegal, or about a loop that is not free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from looptrans.ir.facts import LoopFacts
from looptrans.ir.program import Program
from looptrans.ir.step import Step
from looptrans.ir.verdict import Verdict
from looptrans.ir.walk import placed
from looptrans.transforms.editing.tree import loop_name
from looptrans.transforms.rows.segments import missing_contracts


def say_that_rows_are_apart(program: Program) -> str:
    """Say which contracts tell that no two sequences have a row in common; empty if none would."""
    texts = [text for _, text in missing_contracts(program)]
    return f"if no two sequences have a row in common, say so: {'; '.join(texts)}" if texts else ""


def with_contracts_named(program: Program, loops: Sequence[LoopFacts]) -> tuple[LoopFacts, ...]:
    """Return verdicts on loops that say which contracts are missing, where any may be."""
    missing = missing_contracts(program)
    found = []
    for facts in loops:
        texts = [text for sequence, text in missing if sequence == facts.loop]
        if texts and facts.memory.decision not in ("parallel", "privatize"):
            told = f"if no two {facts.loop} have a row in common, say so: {'; '.join(texts)}"
            found.append(replace(facts, memory=replace(facts.memory, help=told)))
        else:
            found.append(facts)
    return tuple(found)


def with_privacy_first(step: Step, loop: str) -> Step:
    """Say of an unknown step which also makes names private that this may come first.

    Args:
        step: A step that runs a loop in parallel.
        loop: What the loop is called.
    """
    if step.verdict.decision != "unknown" or step.verdict.help:
        return step
    # Who sees which value is easier to tell before the order changes.
    return replace(step, verdict=replace(step.verdict, help=f"privatize({loop}) first"))


def skew_first(program: Program, verdict: Verdict) -> str:
    """Say what makes loops of a program that may not change places exchangeable.

    A dependence that goes forward in an outer loop and backward in an inner one goes forward in
    both once the inner one is skewed enough.
    """
    found = _skew(program, verdict)
    others = "distribute the statements" if verdict.source != verdict.sink else ""
    return ", or ".join(part for part in (found, others) if part)


def _skew(program: Program, verdict: Verdict) -> str:
    dependence = verdict.dependence
    if dependence is None or ">" not in dependence.direction or "<" not in dependence.direction:
        return ""
    forward = dependence.direction.index("<")
    backward = dependence.direction.index(">")
    names = {
        loop.variable: loop_name(program, position)
        for place in placed(program)
        if place.label == dependence.source
        for loop, position in zip(place.loops, place.loop_positions, strict=True)
    }
    inner, outer = (names[dependence.loops[level]] for level in (backward, forward))
    steps, back = dependence.distance[forward], dependence.distance[backward]
    if not steps.isdigit() or not back.removeprefix("-").isdigit():
        return ""  # no one factor is enough for all distances
    factor = -(int(back) // int(steps))
    return f"skew {inner} by {outer} first, with skew({inner}, {outer}, {factor})"
