"""The end of every transformation: the rewritten program is judged, whoever rewrote it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from looptrans.ir.program import Program
from looptrans.ir.step import Images, Step
from looptrans.ir.verdict import Verdict
from looptrans.transforms.editing.finish import finished, legible
from looptrans.transforms.judging.refuting import refuted


def check_order(before: Program, after: Program, images: Images, *, tried: bool = True) -> Verdict:
    """Say whether a reordered program may stand for the one it was made from.

    Legal if the instance map is a bijection, every statement, read through it, is the statement it
    stands for, every read gets the value of the same write as before, the last values are the
    same, and nothing races.

    Args:
        before: The program before.
        after: The program afterwards.
        images: Which instances of `before` those of `after` stand for.
        tried: Whether a run may refute what is not known otherwise.
    """
    from looptrans.analysis.api import check_order as judge

    verdict = judge(before, after, images)
    return _tried(verdict, before, after, images) if tried else verdict


def check_storage(
    before: Program,
    after: Program,
    images: Images,
    *,
    created: bool = False,
    tried: bool = True,
) -> Verdict:
    """Say whether a program that keeps values elsewhere may stand for the one it was made from.

    As `check_order`, but what a statement accesses may change as long as the values are the same,
    an instance may stand for several that compute the same, and copies `x = y` may come and go.

    Args:
        before: The program before.
        after: The program afterwards.
        images: Which instances of `before` those of `after` stand for; a statement that is not in
            it is a copy.
        created: Whether a read may get the first value of an array that is made in the same way in
            place of another one's.
        tried: Whether a run may refute what is not known otherwise.
    """
    from looptrans.analysis.api import check_storage as judge

    verdict = judge(before, after, images, created=created)
    return _tried(verdict, before, after) if tried else verdict


def check_reduction(
    before: Program,
    after: Program,
    images: Images,
    partials: Mapping[str, str],
    operators: Mapping[str, tuple[str, float]],
) -> Verdict:
    """Say whether a reduction in partial results may stand for the one it was made from.

    Legal if every contribution reaches every read of the result, through exactly one partial
    result, each of which starts with the operator's identity; then the results are equal over the
    reals.

    Args:
        before: The program before.
        after: The program afterwards.
        images: What stands for what; the statements that start and join partials are not in it.
        partials: The array of partial results to the array they are joined to.
        operators: For each array joined to, `+`, `*`, `max` or `min`, and its identity.
    """
    from looptrans.analysis.api import check_reduction as judge

    return _tried(judge(before, after, images, partials, operators), before, after)


def check_races(program: Program) -> Verdict:
    """Say whether a program with parallel loops gives its sequential reading's result.

    Args:
        program: The program.
    """
    from looptrans.analysis.api import check_races as judge

    return _tried(judge(program), program, program)


def _tried(
    verdict: Verdict, before: Program, after: Program, images: Images | None = None
) -> Verdict:
    """Refute by running both programs what the analysis cannot decide, where some inputs do."""
    from looptrans.analysis.budget import BudgetExceeded, within_budget

    if verdict.decision != "unknown":
        return verdict
    try:
        return within_budget(partial(refuted, verdict, before, after, images))
    except BudgetExceeded:
        return verdict


def reordered(
    name: str,
    before: Program,
    after: Program,
    images: Images,
    advice: Callable[[Verdict], str] | None = None,
) -> Step:
    """Finish a program that runs the same instances in another order, and judge it.

    Args:
        name: What was done, as one writes it.
        before: The program before.
        after: The program after the edit.
        images: The instance map, by the labels of `after`.
        advice: Says of an illegal verdict what to do instead, in one sentence.
    """
    done, final = finished(after, images)
    verdict = check_order(before, done, final)
    if verdict.decision == "illegal" and not verdict.help and advice is not None:
        verdict = replace(verdict, help=advice(verdict))
    if verdict.decision == "legal":
        done = legible(done)
    return Step(name, before, done, verdict, final)
