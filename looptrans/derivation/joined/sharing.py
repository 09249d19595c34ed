"""Ways to run nests that work out the same sums: apart, in one launch, or as one nest.

for i: for j: S = …; dQ[i] += f(S)          for j in parallel: for i: S = …
for j: for i: T = …; dK[j] += g(T)     ->       dK[j] += g(S)
                                                with atomic(): dQ[i] += f(S)
"""

from __future__ import annotations

from collections.abc import Sequence

from looptrans.analysis.kept_flow import flow_of
from looptrans.derivation.joined.flows import carrying
from looptrans.derivation.joined.gathering import gathered, named, require_apart
from looptrans.derivation.joined.nests import Nest, nests_of, same_sums
from looptrans.derivation.joined.one_nest import one_nest
from looptrans.derivation.joined.with_atomics import with_atomics
from looptrans.derivation.step import FORMS, Alternative, DerivationStep, Form, NotDone
from looptrans.ir.program import Loop, Program
from looptrans.ir.verdict import Certificate
from looptrans.transforms.editing.accesses import listed


def formed(program: Program, form: Form) -> list[DerivationStep]:
    """Return the steps from a backward listing to a form of it.

    Raises:
        NotDone: The listing has no nests that work out the same sums, or the form is not allowed.
    """
    if form == "kernels":
        return []
    pairs = sharing(program)
    if not pairs:
        raise NotDone(
            "no sum is worked out in two nests: there is nothing that they could share", "illegal"
        )
    if form == "launch":
        return [one_launch(program, pairs[0][0].label, pairs[0][1].label)]
    steps = [one_nest(program, pairs[0][0].label, pairs[0][1].label)]
    while True:
        here = steps[-1].after
        left = sharing(here)
        if not left:
            break
        try:
            steps.append(one_nest(here, left[0][0].label, left[0][1].label))
        except NotDone:
            break
    merged = max(nests_of(here), key=lambda nest: len(nest.sums))
    return [*steps, with_atomics(here, merged.label)]


def sharing(program: Program) -> list[tuple[Nest, Nest]]:
    """Return pairs of nests that work out the same sums.

    The second of a pair has more to gather, so that it is the first that has to take turns.
    """
    found = []
    everyone = nests_of(program)
    for number, first in enumerate(everyone):
        for second in everyone[number + 1 :]:
            if same_sums(first, second)[1]:
                pair = (first, second) if _weight(first) <= _weight(second) else (second, first)
                found.append(pair)
    return found


def _weight(nest: Nest) -> int:
    """Return how many arrays a nest gathers cell after cell."""
    return sum(isinstance(node, Loop) for node in nest.block)


def alternatives(program: Program, gradients: Sequence[str]) -> tuple[Alternative, ...]:
    """Say which ways to run a backward listing its dependences allow.

    Args:
        program: The backward listing.
        gradients: The arrays it returns.
    """
    carried = carrying(flow_of(program), gradients)
    by_loops: dict[tuple[str, ...], list[str]] = {}
    for name, loops in carried.items():
        by_loops.setdefault(loops, []).append(name)
    facts = "; ".join(
        f"{listed(names)} {'is' if len(names) == 1 else 'are'} carried by "
        + (listed(loops) if loops else "no loop")
        for loops, names in by_loops.items()
    )
    twice = {nest.position: nest for pair in sharing(program) for nest in pair}
    many = f"{len(twice)} of its nests work out the same sums" if twice else "no sum is done twice"
    found = [Alternative("kernels", "legal", f"{facts}; {many}")]
    for form in FORMS[1:]:
        try:
            steps = formed(program, form)
        except NotDone as error:
            found.append(Alternative(form, error.decision, error.reason))
            continue
        reason = "; ".join(step.name for step in steps)
        if form == "atomics":
            before, after = (_products(each) for each in (program, steps[-1].after))
            reason += f"; {after} sums of products in place of {before}"
        found.append(Alternative(form, "legal", reason))
    return tuple(found)


def _products(program: Program) -> int:
    """Return how many sums the nests that work out sums have, those they gather among them."""
    return sum(len(n.sums) + _weight(n) for n in nests_of(program) if n.sums)


# One launch


def one_launch(program: Program, first: str, second: str) -> DerivationStep:
    """Show that two nests may run at once, so that one launch may do both.

    Args:
        program: The program.
        first: The label of a statement of the one nest.
        second: That of a statement of the other.

    Raises:
        NotDone: One needs what the other writes, or something between them does.
    """
    one, other = named(program, first, second)
    require_apart(program, one, other)
    law = "nests that touch nothing the other writes may run at once"
    made = [listed(gathered(program, nest)) for nest in (one, other)]
    reason = (
        f"the one writes {made[0]}, the other {made[1]}, and neither touches what is the other's"
    )
    return DerivationStep(
        f"the nests of {made[0]} and of {made[1]} in one launch",
        "one launch",
        (first, second),
        program,
        program,
        (Certificate("order", law, "legal", reason),),
    )
