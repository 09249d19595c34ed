"""What the exact flow of a listing says about values that are read.

    for i: l[i] = l[i] + …         the update reads what an earlier iteration wrote: a running sum
           y[i] = x[i] / l[i]      this reads it in the same i, and no loop that l runs over is
                                   around it: the sum is complete

A listing in which every read is of one of these two kinds is one in which every array may be taken
as defined once. The flow comes from isl and knows nothing of definitions or adjoints.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.ir.facts import DependenceReport
from looptrans.ir.program import Assign, If, Program
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import accesses, nodes, placed


def carrying(report: DependenceReport, arrays: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return for each array which loops carry values of it, in the order of the report."""
    return {
        array: tuple(
            dict.fromkeys(
                d.carried_by
                for d in report.dependences
                if d.array == array and d.carried_by is not None
            )
        )
        for array in arrays
    }


def once_defined(
    program: Program, report: DependenceReport, law: str, of: Collection[str] | None = None
) -> Certificate:
    """Say whether every read gets a value of its own iteration, or a running or complete sum.

    Args:
        program: The program.
        report: Its flow.
        law: What the certificate is to say.
        of: The outputs it is about: reads of what none of them hangs on are left out.
    """
    if report.unknown is not None:
        return Certificate("storage", law, "unknown", f"the flow is not known: {report.unknown}")
    updates = _updates(program)
    leading = None if of is None else _leading_to(program, of)
    if leading is not None:
        kept = tuple(d for d in report.dependences if d.array in leading)
        report = replace(report, dependences=kept)
    level = {id(d): d.level for d in report.dependences}
    same = sums = 0
    # The outermost loop over which a statement hands a running sum on, counted from outside.
    over: dict[tuple[str, str], int] = {}
    for d in report.dependences:
        if level[id(d)] is None:
            continue
        ends = {updates.get((end, d.array)) for end in (d.source, d.sink)}
        if len(ends) > 1 or None in ends:
            reason = f"{d.sink} reads what an earlier iteration of {d.carried_by} left in {d.array}"
            return Certificate("storage", law, "unknown", f"{reason} ({d.source})")
        carried = level[id(d)] or 0
        for end in (d.source, d.sink):
            over[end, d.array] = min(over.get((end, d.array), carried), carried)
        sums += 1
    for d in report.dependences:
        if level[id(d)] is not None:
            continue
        adds = (d.sink, d.array) in updates and (d.source, d.array) in updates
        running = over.get((d.source, d.array))
        if not adds and running is not None and running < len(d.loops):
            reason = f"{d.sink} reads {d.array} while {d.loops[running]} still adds to it"
            return Certificate("storage", law, "unknown", reason)
        same += 1
    parts = []
    if same:
        parts.append(f"{same} from the same iteration of the loops around both, sums complete")
    if sums:
        parts.append(f"{sums} from an update to the next one of the same sum, maximum or minimum")
    found = "; ".join(parts) or "nothing that is written is read"
    reason = f"the exact flow, {len(report.dependences)} pairs of a write and a read: {found}"
    return Certificate("storage", law, "legal", reason, report.assumptions)


def _leading_to(program: Program, outputs: Collection[str]) -> set[str]:
    """Return what some outputs hang on, themselves among it."""
    found = set(outputs)
    while True:
        more: set[str] = set()
        for place in placed(program):
            touched = accesses(place.node)
            if any(t.is_write and t.access.array in found for t in touched):
                more |= {t.access.array for t in touched}
        for node in nodes(program.body):
            # A guard decides on all that is set under it.
            if isinstance(node, If) and node.label is not None:
                more |= {t.access.array for t in accesses(node)}
        if more <= found:
            return found
        found |= more


def _updates(program: Program) -> dict[tuple[str, str], str]:
    """Return by statement and array the operator of every `x = x + …`."""
    found: dict[tuple[str, str], str] = {}
    for place in placed(program):
        node = place.node
        if isinstance(node, Assign) and len(node.targets) == len(node.values):
            for target, value in zip(node.targets, node.values, strict=True):
                update = accumulation(target, value)
                if update is not None:
                    found[place.label, target.array] = update[0]
    return found
