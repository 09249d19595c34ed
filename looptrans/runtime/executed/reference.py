"""The listing itself, executed with NumPy: what kernels are compared with.

Its loops are run in parallel where the text or the analysis says they may, with the checks of
`looptrans.transforms`; nothing of the algebra, the blocks or the emitted code is used.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from looptrans.algebra.free import freed
from looptrans.analysis import api
from looptrans.derivation.ordinary import in_parallel
from looptrans.derivation.step import NotDone
from looptrans.executor.errors import ExecutionError
from looptrans.executor.inputs import Inputs
from looptrans.executor.run import execute_on
from looptrans.executor.vector_store import NotVectorized
from looptrans.executor.vectors import execute_vectors
from looptrans.ir.program import Assign, Atomic, Barrier, BlockReduce, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.walk import nodes
from looptrans.runtime.executed.parted import with_loops_parted
from looptrans.runtime.executed.summed import with_loops_summed
from looptrans.runtime.executed.terms_kept import with_terms_kept
from looptrans.transforms.editing.tree import loop_paths, statements_in

Outputs = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True)
class Reference:
    """A listing made ready to be executed at many sizes.

    Attributes:
        program: The listing.
        parallel: The same with the loops in parallel that may be, also where all iterations add to
            one number.
        nest: What the kernels compute, at the end of a derivation; None where that is not known.
            It says no more than what rounding does to what is worked out again.
    """

    program: Program
    parallel: Program
    nest: Program | None = None

    def run(
        self,
        inputs: Inputs,
        dtype: str = "float64",
        *,
        backwards: bool = False,
        random: np.random.Generator | None = None,
    ) -> Outputs:
        """Execute the listing.

        Each operation and each sum is made in the order of the listing, in the type asked for.

        Args:
            inputs: What it starts from.
            dtype: The type of every floating-point number: float64, float32 or float16.
            backwards: Whether `sum(…)` and `@` add from right to left, where that can be had.
            random: Where given, and where that can be had, each operation in float32 is off by a
                rounding that is drawn from it.

        Returns:
            The returned names in their order, then the inputs that were written.

        Raises:
            ExecutionError: A statement fails.
        """
        try:
            return execute_vectors(self.parallel, inputs, dtype, backwards=backwards, random=random)
        except (NotVectorized, ExecutionError):
            # One iteration at a time everything can be run, and a message names the iteration.
            return execute_on(self.program, inputs, dtype=dtype)


@functools.lru_cache(maxsize=8)
def known_reference_of(program: Program) -> Reference:
    """Return what `reference_of` does, found once for each of the last programs."""
    return reference_of(program)


def reference_of(program: Program) -> Reference:
    """Find out which loops of a listing may run in parallel, and make it ready.

    What the listing itself calls parallel is looked at like everything else: with a race in it, it
    still means what its sequential reading means.
    """
    if any(isinstance(node, Atomic | BlockReduce | Barrier) for node in nodes(program.body)):
        return Reference(program, program)
    parallel = replace(program, body=rewritten(program.body, _in_order))
    parallel = with_terms_kept(with_loops_summed(with_loops_parted(parallel)))
    free = _by_text(parallel)
    if free is None:
        free = []
        facts = api.loop_facts(parallel, assumptions=False, witnesses=False)
        for path, fact in zip(loop_paths(parallel), facts, strict=True):
            if fact.memory.decision in ("parallel", "privatize") and statements_in((path.loop,)):
                free.append(_named(path.loop, fact.memory.names))
    if not free:
        return Reference(program, parallel)
    try:
        return Reference(program, in_parallel(parallel, *free).after)
    except NotDone:
        pass
    for each in free:
        try:
            parallel = in_parallel(parallel, each).after
        except NotDone:
            continue
    return Reference(program, parallel)


def _by_text(program: Program) -> list[str] | None:
    """Return the loops that the text shows to be free; None where some nest has no such outermost.

    Others may be free as well. To find out takes long, and the outermost ones are many iterations.
    """
    found = []
    for path in loop_paths(program):
        free = freed(program, path) if statements_in((path.loop,)) else None
        if free is not None:
            found.append(_named(path.loop, free.private))
        elif len(path.position) == 1 and statements_in((path.loop,)):
            return None
    return found


def _named(loop: Loop, private: tuple[str, ...]) -> str:
    """Return a loop with its private names as the step takes them."""
    return f"{_name(loop)}: {', '.join(private)}" if private else _name(loop)


def _in_order(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Loop):
        return (replace(node, execution="sequential", private=()),)
    return (node,)


def _name(loop: Loop) -> str:
    """Return a name by which the loop is found: by the first statement directly in it if it can."""
    labels = [node.label for node in loop.body if isinstance(node, Assign)]
    return f"{loop.variable}@{(labels or statements_in((loop,)))[0]}"
