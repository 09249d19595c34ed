"""A nest run in parallel, atomic where its iterations add to the same."""

from __future__ import annotations

from dataclasses import replace

from looptrans.algebra.positional.cells import is_own_cell
from looptrans.analysis import api
from looptrans.derivation.joined.gathering import gathered, named, put, require_sums
from looptrans.derivation.joined.nests import Nest
from looptrans.derivation.one_loop.writing import reread
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.program import Assign, Atomic, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.verdict import Certificate
from looptrans.transforms.editing.accesses import listed, sites_of


def with_atomics(program: Program, label: str) -> DerivationStep:
    """Run a nest in parallel; what its iterations share they add to in atomic parts.

        for j:                            for j in parallel(0, N):
            for i:                            private: S
                S = …                         for i:
                b[j] += g(S)       ->             S = …
                a[i] += f(S)                      b[j] += g(S)
                                                  with atomic(): a[i] += f(S)

    Args:
        program: The program.
        label: The label of a statement of the nest.

    Raises:
        NotDone: Nothing in it may run in parallel, or it does more than add up.
    """
    (nest,) = named(program, label)
    require_sums(program, nest)
    arrays = gathered(program, nest)
    owned = {array: _own_loops(program, nest, array) for array in arrays}
    free = max(owned.values(), default=0)
    if not free:
        raise NotDone("no loop of the nest has a part of an array to itself")
    shared = tuple(array for array, count in owned.items() if count < free)
    outer = nest.loops[:free]
    private = tuple(nest.scalars)
    inside = rewritten(
        nest.block, lambda node: (Atomic((node,)),) if _shares(node, shared) else (node,)
    )
    way = tuple(
        replace(node, execution="parallel", private=private) if node in outer else node
        for node in nest.way
    )
    changed = list(program.body)
    changed[nest.position] = put(way, inside)
    after = reread(replace(program, body=tuple(changed)))
    names = listed([loop.variable for loop in outer])
    own = tuple(array for array in arrays if array not in shared)
    order = f"each iteration of {names} has its own part of {listed(own)}"
    shown = []
    if private:
        law = "an iteration sets its private names before it reads them, and nobody else reads them"
        shown.append(Certificate("storage", law, "legal", f"from the text: {listed(private)}"))
    if shared:
        verb = "is" if len(shared) == 1 else "are"
        order += f"; {listed(shared)} {verb} only added to, in atomic parts"
    verdict = api.check_races(after)
    if verdict.decision != "legal":
        raise NotDone(
            f"run in parallel it is {verdict.decision}: {verdict.reason}", verdict.decision
        )
    law = "every order of the iterations gives the same result"
    shown.append(
        Certificate("order", law, "legal", f"{verdict.reason}: {order}", verdict.assumptions)
    )
    if shared:
        law = f"{listed(shared)} {'is' if len(shared) == 1 else 'are'} added up in no fixed order"
        reason = "equal over the reals; two runs may differ in the last bits"
        shown.append(Certificate("rounding", law, "legal", reason))
    text = f"run {names} in parallel"
    text += f", {listed(shared)} added to in atomic parts" if shared else ""
    return DerivationStep(text, "atomics", (label,), program, after, tuple(shown))


def _shares(node: Node, arrays: tuple[str, ...]) -> bool:
    return isinstance(node, Assign) and any(t.array in arrays for t in node.targets)


def _own_loops(program: Program, nest: Nest, array: str) -> int:
    """Return how many loops, from outside, have a part of an array to themselves each."""
    uses = [s.access for s in sites_of(program, array) if s.place.position[0] == nest.position]
    outer: set[str] = set()
    for number, loop in enumerate(nest.loops):
        if not is_own_cell(uses, loop.variable, outer):
            return number
        outer.add(loop.variable)
    return len(nest.loops)
