"""Loops whose closed form waits for names: what they go on from, and what they make of it.

    for j:                                           for j:
        for e: s[i, j] += q[i, e] * k[j, e]              for e: s1[i, j] += q[i, e] * k[j, e]
        s[i, j] = s[i, j] * scale                ->      s[i, j] = s1[i, j] * scale
        n = max(m, s[i, j])                              n = max(m, s[i, j])
        …                                                …

A closed form stands behind the iterations, where the first of the two is gone.
"""

from __future__ import annotations

from looptrans.adjoint.reading.closing import closings
from looptrans.adjoint.rewriting.simpler import WEBS, Simpler
from looptrans.adjoint.rewriting.webs import each_with_webs_named
from looptrans.ir.program import Program


def with_folds_named(program: Program) -> Simpler | None:
    """Give an array a name for each web where a loop then has a closed form that had none.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where that does not help.
    """
    found, reasons = closings(program)
    for webs in each_with_webs_named(program, throughout=True) if reasons else ():
        if len(closings(webs.program)[0]) > len(found):
            return Simpler(WEBS, webs.text, webs.program, (webs.certificate,))
    return None
