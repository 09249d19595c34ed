"""What every judgement of a step has in common: at which sizes, and under which contracts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeAlias

from looptrans.analysis.leaning import leaned_on
from looptrans.analysis.legality.correspondence import Correspondence, NotAStep
from looptrans.analysis.legality.multiples import exactly, open_sizes
from looptrans.analysis.legality.verdicts import NO_EXAMPLE
from looptrans.analysis.ranges.inside import INSIDE, leave_too_little, sizes_inside
from looptrans.ir.program import Contract, Program
from looptrans.ir.verdict import Verdict

Judge: TypeAlias = Callable[[Correspondence], Verdict]


class Relate(Protocol):
    """Relates two programs; it may raise `NotAStep`."""

    def __call__(
        self, before: Program, after: Program, *, sizes: Mapping[str, int] | None = None
    ) -> Correspondence:
        """Relate them, at some sizes or at all."""


def judged(judge: Judge, relate: Relate, before: Program, after: Program) -> Verdict:
    """Judge a step, and name the contracts without which it would not be legal.

    Args:
        judge: Judges two programs that are related; it may raise `NotAStep`.
        relate: Relates them; it may raise `NotAStep`.
        before: The program before the step.
        after: The program afterwards.
    """
    verdict = _where_defined(judge, relate, before, after)
    if verdict.decision != "legal":
        return _exact(judge, relate, before, after, verdict)

    def under(contracts: tuple[Contract, ...]) -> Verdict:
        one, other = replace(before, contracts=contracts), replace(after, contracts=contracts)
        return _where_defined(judge, relate, one, other)

    return with_contracts(verdict, before.contracts, under)


def with_contracts(
    verdict: Verdict,
    contracts: tuple[Contract, ...],
    under: Callable[[tuple[Contract, ...]], Verdict],
) -> Verdict:
    """Name contracts in a legal verdict: so few that none of them can be left out.

    Args:
        verdict: The verdict under all of them.
        contracts: What the program states.
        under: Judges under some of them.
    """
    # What holds under none needs none of them: that is asked first.
    if len(contracts) > 1 and under(()).decision == "legal":
        return verdict
    needed = leaned_on(contracts, lambda kept: under(kept).decision == "legal")
    return replace(verdict, assumptions=(*verdict.assumptions, *needed))


def _exact(
    judge: Judge, relate: Relate, before: Program, after: Program, verdict: Verdict
) -> Verdict:
    """Show sizes at which a step goes wrong, where multiples of sizes are not followed."""
    if verdict.witness is None and verdict.reason != NO_EXAMPLE:
        return verdict
    made = relate(before, after)

    def at(sizes: Mapping[str, int]) -> Verdict:
        return _where_defined(judge, partial(relate, sizes=sizes), before, after)

    return exactly(verdict, open_sizes(made.before, made.after), before, at)


def _where_defined(judge: Judge, relate: Relate, before: Program, after: Program) -> Verdict:
    """Judge at all sizes, and where that fails at those that mean anything for the listing."""
    try:
        made = relate(before, after)
        verdict = _decided(judge, made)
        if verdict.decision == "legal" or not made.is_affine:
            return verdict
        inside = sizes_inside(made.before, made.context)
        if made.context.is_subset(inside) or leave_too_little(made.before, made.context, inside):
            return verdict
        made.context = inside
        verdict = _decided(judge, made)
    except NotAStep as difference:
        return Verdict("unknown", reason=str(difference))
    if verdict.decision == "legal":
        return replace(verdict, assumptions=(*verdict.assumptions, INSIDE))
    return verdict


def _decided(judge: Judge, made: Correspondence) -> Verdict:
    try:
        return judge(made)
    except NotAStep as difference:
        return Verdict("unknown", reason=str(difference))
