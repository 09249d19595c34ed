"""What the iterations of loops hand on: asked of each listing once, however many ways are tried."""

from __future__ import annotations

from functools import lru_cache

from looptrans.analysis.api import dependences
from looptrans.ir.facts import DependenceReport
from looptrans.ir.program import Program


@lru_cache(maxsize=64)
def flows(program: Program) -> DependenceReport:
    """Return which statements read what which others have set, without examples.

    Args:
        program: The listing.
    """
    return dependences(program, bases=("value",), kinds=("flow",), witnesses=False)


def hands_on(program: Program, name: str, variable: str) -> bool:
    """Tell whether iterations of a loop may read what earlier ones have left in an array.

    Args:
        program: The listing.
        name: The array, or scalar.
        variable: The variable of the loop.
    """
    found = flows(program)
    return found.unknown is not None or any(
        each.array == name and each.carried_by == variable for each in found.dependences
    )
