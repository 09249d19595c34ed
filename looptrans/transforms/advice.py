"""What to do instead of a step that is illegal."""

from __future__ import annotations

from looptrans.ir.verdict import Verdict


def skew_first(verdict: Verdict) -> str:
    """Say what makes loops that may not change places exchangeable.

    A dependence that goes forward in an outer loop and backward in an inner one goes forward in
    both once the inner one is skewed enough.
    """
    found = _skew(verdict)
    others = "distribute the statements" if verdict.source != verdict.sink else ""
    return ", or ".join(part for part in (found, others) if part)


def _skew(verdict: Verdict) -> str:
    dependence = verdict.dependence
    if dependence is None or ">" not in dependence.direction or "<" not in dependence.direction:
        return ""
    forward = dependence.direction.index("<")
    backward = dependence.direction.index(">")
    inner, outer = dependence.loops[backward], dependence.loops[forward]
    steps, back = dependence.distance[forward], dependence.distance[backward]
    if not steps.isdigit() or not back.removeprefix("-").isdigit():
        return ""  # no one factor is enough for all distances
    factor = -(int(back) // int(steps))
    return f"skew {inner} by {outer} first, with skew({inner}, {outer}, {factor})"
