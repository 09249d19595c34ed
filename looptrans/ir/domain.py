"""Domain: which instances of a statement run.

A domain is the bounds of the loops around a statement and a predicate. Part of the predicate may
be known only when the program runs; what can be said before is an interval of two domains that
are exact:

    for i in range(M):
        for j in range(N):
            if j <= i and mask[i, j]:       domain   0 <= i < M, 0 <= j < N, j <= i and mask[i, j]
                S                           .over    0 <= i < M, 0 <= j < N, j <= i   (may run)
                                            .under   none                             (must run)

Blocks outside `over` are never visited, blocks inside `under` need no mask, and the blocks between
the two are the boundary, whether one looks along i or along j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from looptrans.ir.condition import Condition, approximated, conjunction, is_data_dependent

if TYPE_CHECKING:
    from looptrans.ir.program import Loop


@dataclass(frozen=True, slots=True)
class Domain:
    """The bounds of loops and a predicate.

    Attributes:
        loops: The loops, outermost first; their ranges are the bounds.
        conditions: What must hold, outermost guard first.
    """

    loops: tuple[Loop, ...]
    conditions: tuple[Condition, ...] = ()

    @property
    def variables(self) -> tuple[str, ...]:
        """The loop variables, outermost first: an instance is a value for each."""
        return tuple(loop.variable for loop in self.loops)

    @property
    def predicate(self) -> Condition:
        """All conditions as one."""
        return conjunction(*self.conditions)

    @property
    def is_may(self) -> bool:
        """Whether only the running program knows if an instance runs."""
        return any(is_data_dependent(condition) for condition in self.conditions)

    @property
    def over(self) -> Domain:
        """Every instance that may run; exact, and this domain itself unless it `is_may`."""
        return self._approximated(over=True)

    @property
    def under(self) -> Domain:
        """Only instances that must run; exact, and this domain itself unless it `is_may`."""
        return self._approximated(over=False)

    def _approximated(self, *, over: bool) -> Domain:
        if not self.is_may:
            return self
        return Domain(self.loops, tuple(approximated(c, over=over) for c in self.conditions))
