"""What the iterations of loops hand on."""

from __future__ import annotations

from looptrans.analysis.kept_flow import flow_of
from looptrans.ir.program import Program


def hands_on(program: Program, name: str, variable: str) -> bool:
    """Tell whether iterations of a loop may read what earlier ones have left in an array.

    Args:
        program: The listing.
        name: The array, or scalar.
        variable: The variable of the loop.
    """
    found = flow_of(program, array=name)
    return found.unknown is not None or any(
        each.carried_by == variable for each in found.dependences
    )
