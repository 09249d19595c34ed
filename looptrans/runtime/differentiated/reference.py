"""The gradients of a listing as torch's autograd finds them: what kernels are compared with.

As `runtime.executed.reference`, whose listings it runs. Nothing of `looptrans.adjoint` has a part
in it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from looptrans.executor.errors import ExecutionError
from looptrans.executor.inputs import Inputs
from looptrans.executor.vector_store import NotVectorized
from looptrans.ir.program import Atomic, BlockReduce, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.runtime.differentiated.machine import Differentiated, differentiated
from looptrans.runtime.executed.empty_rows import softened
from looptrans.runtime.executed.reference import Reference

Values = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class GradientReference:
    """A listing made ready to be differentiated at many sizes.

    Attributes:
        reference: The listing.
        without_masks: The listing with a large negative number for every -inf that masks; None
            where there is none. Rows that are masked throughout are numbers in it.
    """

    reference: Reference
    without_masks: Reference | None

    def run(
        self,
        inputs: Inputs,
        incoming: Mapping[str, Values],
        empty: Mapping[str, Values],
        dtype: str = "float64",
        *,
        last_at_ties: bool = False,
        absolute: bool = False,
        backwards: bool = False,
        random: np.random.Generator | None = None,
    ) -> Differentiated:
        """Return the gradients of the float arguments.

        Rows that are masked throughout are constants, and no gradient comes back from them.

        Args:
            inputs: What the listing starts from; it can be executed on them.
            incoming: Gradients of outputs.
            empty: For outputs that have some, where rows are masked throughout.
            dtype: float64 or float32.
            last_at_ties: See `differentiated`.
            absolute: See `differentiated`.
            backwards: See `differentiated`.
            random: See `differentiated`.

        Raises:
            NotVectorized: It has barriers.
        """
        given = {
            name: np.where(empty[name], 0.0, values) if name in empty else values
            for name, values in incoming.items()
        }
        chosen = self.without_masks if empty and self.without_masks else self.reference
        run = functools.partial(
            differentiated,
            inputs=inputs,
            incoming=given,
            dtype=dtype,
            last_at_ties=last_at_ties,
            absolute=absolute,
            backwards=backwards,
            random=random,
        )
        try:
            return run(chosen.parallel)
        except (NotVectorized, ExecutionError):
            return run(_in_order(chosen.program))


def gradient_reference_of(reference: Reference) -> GradientReference:
    """Make a listing ready to be differentiated."""
    return GradientReference(reference, softened(reference))


def _in_order(program: Program) -> Program:
    """Return the sequential reading of a program without barriers."""

    def change(node: Node) -> tuple[Node, ...]:
        match node:
            case Loop():
                return (replace(node, execution="sequential"),)
            case Atomic() | BlockReduce():
                return node.body
            case _:
                return (node,)

    return replace(program, body=rewritten(program.body, change))
