"""Loops that carry the logarithm of a sum of powers, in closed form.

for j: t = log(exp(L) + exp(x[j]))              for j: top = max(top, x[j])
       O = O * exp(L - t) + exp(x[j] - t) * v   for j: l = l + exp(x[j] - top)
       L = t                              ->    L = top + log(l)
                                                for j: O = O + exp(x[j] - L) * v

No block of iterations is appended to a logarithm; the loops that stand there afterwards are one
pass that appends blocks to a maximum and sums.
"""

from __future__ import annotations

from looptrans.adjoint.normalizing.picking import with_picks_added
from looptrans.adjoint.reading.closing import with_logarithms_closed
from looptrans.derivation.one_loop.writing import done
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.program import Program
from looptrans.ir.verdict import Certificate


def logarithms_closed(program: Program) -> DerivationStep:
    """Write the first loop that carries the logarithm of a sum of powers in its closed form.

    Args:
        program: The program.

    Raises:
        NotDone: There is none.
    """
    found = with_logarithms_closed(program)
    shown: tuple[Certificate, ...] = ()
    if found is None:
        # What a loop sets where it comes to one element is a sum, too, and no obstacle.
        picked = with_picks_added(program)
        found = None if picked is None else with_logarithms_closed(picked.program)
        if picked is not None:
            shown = (picked.certificate,)
    if found is None:
        raise NotDone("no loop carries the logarithm of a sum of powers")
    below = Certificate(
        "algebra",
        "log(sum(exp(x))) = t + log(sum(exp(x - t)))",
        "legal",
        "exp(x) is exp(t) * exp(x - t) for every number t, the largest x among them; where one "
        "is infinite the result is nan",
    )
    rounding = Certificate(
        "rounding",
        "the results are equal over the reals, not bit for bit",
        "legal",
        "the logarithm is taken once, and not in every iteration",
    )
    return DerivationStep(
        f"closed form of {found.loop}: {'; '.join(found.formulas)}",
        "logarithms",
        (),
        program,
        done(found.after),
        (*shown, *found.certificates, below, rounding),
    )
