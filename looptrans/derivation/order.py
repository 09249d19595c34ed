"""The order of loops, as steps: over all of what blocks are of, and free ones outermost.

See `looptrans.adjoint.rewriting.simpler`, which both passes begin with.
"""

from __future__ import annotations

from looptrans.adjoint.rewriting.simpler import ORDER, why_blocks_stay
from looptrans.derivation.step import NotDone
from looptrans.derivation.work import Work
from looptrans.ir.program import Program


def in_order(work: Work) -> None:
    """Make loops over blocks loops over everything, and bring free loops outward.

    Loops that carry the logarithm of a sum of powers come in their closed form.
    """
    seen: set[Program] = set()
    while work.program not in seen:
        seen.add(work.program)
        mark = work.mark()
        if all(work.take(kind) is not None for kind in (*ORDER, "logarithms")):
            break
        if work.program in seen:  # ways that undo each other end here
            work.back_to(mark)
    reasons = why_blocks_stay(work.program)
    if reasons:
        work.note(NotDone("; ".join(reasons)))
