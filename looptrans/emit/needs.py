"""What each kernel and each array of a backward pass is there for.

A kernel is launched where one of the gradients it serves is wanted: one that it writes, or one that
a later kernel works out from what it writes. An array that a kernel writes beside others, and that
none of the wanted gradients needs, is handed over as None and not stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from looptrans.blocks.block_ir.expr import Cast, walk
from looptrans.blocks.block_ir.ops import exprs_of, ops_in
from looptrans.blocks.block_ir.program import BlockProgram, Kernel


@dataclass(frozen=True, slots=True)
class Needs:
    """Which gradients everything serves.

    Attributes:
        gradients: What the program returns, in order.
        arrays: For each array that the launcher makes, the gradients it serves.
        kernels: For each launch, the gradients it serves.
        optional: For each launch, the arrays that may be None in it.
    """

    gradients: tuple[str, ...]
    arrays: dict[str, frozenset[str]]
    kernels: tuple[frozenset[str], ...]
    optional: tuple[frozenset[str], ...]

    def condition(self, served: frozenset[str]) -> str | None:
        """Return when something is needed, as Python; None where it always is."""
        names = [f'"{name}"' for name in self.gradients if name in served]
        if len(names) == len(self.gradients):
            return None
        if len(names) == 1:
            return f"{names[0]} in wanted"
        return f"wanted & {{{', '.join(names)}}}" if names else "False"

    def is_optional(self, array: str) -> bool:
        """Tell whether the launcher leaves an array out where nothing needs it."""
        return self.condition(self.arrays.get(array, frozenset(self.gradients))) is not None


def needs_of(program: BlockProgram, groups: Sequence[Sequence[int]] | None = None) -> Needs:
    """Return which gradients the launches and arrays of a backward pass serve.

    Args:
        program: The backward pass.
        groups: The kernels of each launch; by default each has one of its own.
    """
    groups = groups or [(number,) for number in range(len(program.kernels))]
    made = [each.array for each in program.made]
    gradients = tuple(dict.fromkeys(program.outputs))
    arrays = {name: frozenset({name} & set(gradients)) for name in made}
    kernels = [frozenset[str]()] * len(groups)
    changed = True
    while changed:
        changed = False
        for number, group in enumerate(groups):
            several = [program.kernels[k] for k in group]
            served = frozenset().union(*(arrays[name] for name in _written(several, made)))
            changed |= served != kernels[number]
            kernels[number] = served
            for name in _required(several, made):
                changed |= not served <= arrays[name]
                arrays[name] |= served
    optional = tuple(
        frozenset(
            name
            for name in _written([program.kernels[k] for k in group], made)
            if not served <= arrays[name]
        )
        for group, served in zip(groups, kernels, strict=True)
    )
    return Needs(gradients, arrays, tuple(kernels), optional)


def _written(kernels: Sequence[Kernel], made: Sequence[str]) -> list[str]:
    return [a.name for k in kernels for a in k.arrays if a.access != "in" and a.name in made]


def _required(kernels: Sequence[Kernel], made: Sequence[str]) -> list[str]:
    """Return the arrays that must be there when a kernel is launched.

    Those are the ones that it reads, and those whose element type it asks for.
    """
    typed = {
        node.like
        for kernel in kernels
        for op in ops_in(kernel.body)
        for expr in exprs_of(op)
        for node in walk(expr)
        if isinstance(node, Cast)
    }
    return [
        a.name
        for kernel in kernels
        for a in kernel.arrays
        if a.name in made and (a.access in ("in", "inout") or a.name in typed)
    ]
