"""The order of loops, as steps: over all of what blocks are of, and free ones outermost.

See `looptrans.adjoint.simpler`, which both passes begin with.
"""

from __future__ import annotations

from looptrans.adjoint.simpler import ORDER, why_blocks_stay
from looptrans.derivation.step import NotDone
from looptrans.derivation.work import Work


def in_order(work: Work) -> None:
    """Make loops over blocks loops over everything, and bring free loops outward."""
    while any(work.take(kind) is None for kind in ORDER):
        pass
    reasons = why_blocks_stay(work.program)
    if reasons:
        work.note(NotDone("; ".join(reasons)))
