"""What a verdict leaves open where sizes multiply or divide what varies.

Formulas are affine, so `x * P` and `x // P` stand in them as functions of which some facts are
known (`axioms`). What follows from the facts is so; what they leave open need not occur, and is
asked for again at small sizes, where nothing is left open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, product

from looptrans.analysis.isl_model.model import Model
from looptrans.analysis.legality.verdicts import NO_EXAMPLE
from looptrans.ir.facts import Dependence
from looptrans.ir.index import parameters
from looptrans.ir.program import Program
from looptrans.ir.verdict import Verdict, Witness

TRIED = range(1, 4)
MOST_TRIED = 27


def open_sizes(*models: Model) -> list[str]:
    """Return the sizes that multiply or divide what varies, in order of first appearance."""
    names: dict[str, None] = {}
    for model in models:
        indices = [each.size for each in model.normalizer.arithmetic.values()]
        if indices:
            indices += model.normalizer.made.values()
        inside = {name for index in indices for name in parameters(index)}
        names |= dict.fromkeys(p.name for p in model.program.parameters if p.name in inside)
    return list(names)


def exactly(
    verdict: Verdict,
    names: list[str],
    program: Program,
    at: Callable[[Mapping[str, int]], Verdict],
) -> Verdict:
    """Return a verdict with an example that occurs; unknown, where none is found.

    Args:
        verdict: What the facts about multiples leave open: that something goes wrong.
        names: The sizes that multiply or divide.
        program: The program whose sizes they are.
        at: Judges at some of these sizes, where nothing is left open.
    """
    unseen = verdict.reason == NO_EXAMPLE
    if not names or verdict.decision == "legal" or (verdict.witness is None and not unseen):
        return verdict
    given = {} if verdict.witness is None else dict(verdict.witness.parameters)
    guessed = [{name: given[name] for name in names}] if given.keys() >= {*names} else []
    for sizes in chain(guessed, _small_sizes(names)):
        found = at(sizes)
        if found.decision == "illegal" and found.witness is not None:
            return _at_sizes(found, verdict, sizes, program)
    if verdict.decision == "unknown" and not unseen:
        return verdict
    reason = f"multiples of {', '.join(names)} are not followed, and small sizes give no example"
    return Verdict("unknown", reason=reason)


def _at_sizes(
    found: Verdict, verdict: Verdict, sizes: Mapping[str, int], program: Program
) -> Verdict:
    """Complete an example by the sizes it was found at."""
    assert found.witness is not None
    witness = _with_sizes(found.witness, sizes, program)
    dependence, general = found.dependence, verdict.dependence
    if dependence is not None and dependence.witness is not None:
        example = _with_sizes(dependence.witness, sizes, program)
        dependence = replace(dependence, witness=example)
        if general is not None and _what(general) == _what(dependence):
            # The distance at all sizes says more than the one at these.
            dependence = replace(general, may=dependence.may, witness=example)
    return replace(found, witness=witness, dependence=dependence)


def _what(dependence: Dependence) -> tuple[object, ...]:
    ends = dependence.source, dependence.sink, dependence.array
    return dependence.kind, dependence.basis, *ends, dependence.direction


def _with_sizes(witness: Witness, sizes: Mapping[str, int], program: Program) -> Witness:
    known = {**dict(witness.parameters), **sizes}
    order = [p.name for p in program.parameters if p.name in known]
    order += [name for name in known if name not in order]
    return replace(witness, parameters=tuple((name, known[name]) for name in order))


def _small_sizes(names: list[str]) -> Iterator[Mapping[str, int]]:
    tried = sorted(product(TRIED, repeat=len(names)), key=lambda values: (sum(values), values))
    for values in tried[:MOST_TRIED]:
        yield dict(zip(names, values, strict=True))
