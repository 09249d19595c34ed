"""Sizes at which a kernel is verified: those that find mistakes, as far as a listing takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from looptrans.blocks.block_ir.program import BlockProgram
from looptrans.emit.parameters import divisors
from looptrans.ir.program import Program
from looptrans.runtime.verifying.numbers import CROSSING, FEW, WHOLE, few, wanted
from looptrans.runtime.verifying.search import Search


@dataclass(frozen=True, slots=True)
class SizeSet:
    """Values of the sizes of a listing.

    Attributes:
        kind: `small`, `crossing`, `whole`, `far`, `one`, `zero` or `given`.
        sizes: The values, in order of first appearance; what is given may name real parameters.
    """

    kind: str
    sizes: Mapping[str, float]

    @property
    def is_main(self) -> bool:
        """Whether all kinds of inputs are tried at these sizes."""
        return self.kind in ("small", "crossing", "whole", "given")


def size_sets(
    program: Program, blocks: BlockProgram | None = None, beside: Sequence[BlockProgram] = ()
) -> tuple[SizeSet, ...]:
    """Find sizes that fit the contracts and the shapes of a listing.

    Small odd ones, ones that go beyond blocks without filling the last one, ones that fill whole
    blocks, all 1, and each of them 0 in turn. What the contracts do not allow is left out, and so
    is 0 for a size that something is divided by, which launchers refuse. Where it would take
    too long to go beyond blocks in all loops at once, there are several such sets.

    Args:
        program: The listing.
        blocks: How it is run in blocks, where that is known.
        beside: What else is run at these sizes: the forward kernels before those of gradients.
    """
    names = [p.name for p in program.parameters if p.kind in ("size", "const")]
    if not names:
        return (SizeSet("small", {}),)
    search = Search(program, names, blocks, beside)
    small = wanted(names, few(search.roles), FEW, search.tied)
    tried: list[tuple[str, Mapping[str, int] | None]] = [
        ("small", search.reaching(search.fitting(small)))
    ]
    tried += search.large(CROSSING)
    tried += search.large(WHOLE)
    tried += [("one", search.fitting(dict.fromkeys(names, (1,))))]
    dividing = {n for each in (blocks, *beside) if each is not None for n in divisors(each)}
    for name in (n for n in names if n not in dividing):
        others = {other: numbers for other, numbers in small.items() if other != name}
        sizes = search.fitting({name: (0,), **others})
        tried += [("zero", sizes if sizes is not None and sizes[name] == 0 else None)]
    found: dict[tuple[tuple[str, int], ...], str] = {}
    for kind, each in tried:
        if each is not None:
            found.setdefault(tuple((name, each[name]) for name in names), kind)
    return tuple(SizeSet(kind, dict(items)) for items, kind in found.items())


def said_of(sets: Sequence[SizeSet]) -> tuple[str, ...]:
    """Return what a report has to say of the sizes that were found."""
    numbers = [each.sizes.values() for each in sets if each.kind != "given" and each.sizes]
    if not numbers or any(min(each) > 0 and max(each) > 1 for each in numbers):
        return ()
    return ("No sizes were found that are all there and not all 1: name some with --sizes.",)
