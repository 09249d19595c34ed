"""What a step is tried on: both programs, and small random inputs that fit what an example says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from looptrans.ir.index import Int
from looptrans.ir.program import Loop, Program
from looptrans.ir.step import Images
from looptrans.ir.value import Range
from looptrans.ir.verdict import Assignment, Witness, WitnessKind
from looptrans.ir.walk import placed, written

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from looptrans.executor import Inputs

SEEDS = range(8)
# At the sizes of an example only the data matter, and a test may rarely come out as it needs.
SEEDS_OF_EXAMPLE = range(64)
MOST_SHOWN = 12
MOST_ITERATIONS = 20_000


@dataclass(frozen=True, slots=True)
class Trial:
    """Two programs and what both are run on.

    Attributes:
        before: The program before the step.
        after: The program afterwards.
        images: Which instances stand for which, where reads can be compared.
        inputs: What both are given.
        elements: What an example says of the contents of integer arrays.
        seed: What decides the rest, as in `looptrans run --seed`.
    """

    before: Program
    after: Program
    images: Images | None
    inputs: Inputs
    elements: Assignment
    seed: int

    def witness(self, kind: WitnessKind, source: Assignment = (), sink: Assignment = ()) -> Witness:
        """Return an example with these sizes and contents."""
        return Witness(kind, tuple(self.inputs.integers.items()), source, sink, self.elements)

    def shown(self, what: str = "") -> str:
        """Say by what it is shown."""
        return f"with random inputs (seed {self.seed}){what}"


def tried_on(program: Program, witness: Witness | None) -> Iterator[tuple[Inputs, Assignment, int]]:
    """Yield what is tried: what an example supposes, its sizes alone, and any sizes."""
    from looptrans.executor import ExecutionError, prepare

    tried: dict[tuple[Assignment, Assignment], range] = {}
    if witness is not None:
        both = ((witness.parameters, elements) for elements in (witness.elements, ()))
        tried = dict.fromkeys(both, SEEDS_OF_EXAMPLE)
    for own, seeds in _any_sizes(program):
        tried.setdefault((own, ()), seeds)
    for (parameters, supposed), seeds in tried.items():
        for seed in seeds:
            try:
                sizes = dict(parameters)
                inputs = prepare(program, sizes, seed=seed)
                if supposed:
                    # The other arrays are made anew, to fit these contents.
                    inputs = prepare(program, sizes, _with_elements(inputs, supposed), seed)
            except (ExecutionError, IndexError):
                continue
            yield inputs, _contents(program, inputs, supposed), seed


def _any_sizes(program: Program) -> Iterator[tuple[Assignment, range]]:
    """Yield sizes and seeds: the usual sizes, and small ones where few seeds are tried of those.

    Four sizes are usually 4, 5, 6 and 7, and seven of them 4 to 10, which is 604800 iterations.
    Loops of a known length, as those in a block of 16 x 16, come on top.
    """
    from looptrans.executor import ExecutionError, prepare

    few: dict[str, int] = {}
    try:
        usual = prepare(program, {}).integers
    except ExecutionError:
        yield (), SEEDS
        return
    seeds = SEEDS[: MOST_ITERATIONS // max(1, prod(usual.values()) * _in_known_loops(program))]
    yield (), seeds
    if seeds == SEEDS:
        return
    for number, name in enumerate(usual):
        smaller = {**few, name: 2 + number % 2}
        try:
            prepare(program, smaller)
        except ExecutionError:
            continue  # A contract makes it hang on the others.
        few = smaller
    yield tuple(few.items()), SEEDS


def _in_known_loops(program: Program) -> int:
    """Return how many iterations the loops of a known length around a statement have, at most."""
    return max((prod(map(_known_length, place.loops)) for place in placed(program)), default=1)


def _known_length(loop: Loop) -> int:
    match loop.range:
        case Range(Int(start), Int(stop), step):
            return max(1, len(range(start, stop, step)))
        case _:
            return 1


def _with_elements(inputs: Inputs, elements: Assignment) -> dict[str, ArrayLike]:
    """Return the integer arrays of which some elements are given, with these."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, value in elements:
        array, _, cell = name.partition("[")
        place = tuple(int(part) for part in cell.rstrip("]").split(","))
        if min(place) < 0:
            raise IndexError(name)
        arrays.setdefault(array, inputs.arrays[array].copy())[place] = value
    return dict(arrays)


def _contents(program: Program, inputs: Inputs, supposed: Assignment) -> Assignment:
    """Return what an example says of the contents of integer arrays: if few, all of their elements.

    Args:
        program: The program.
        inputs: What it is given.
        supposed: The elements that were asked for; where there are none, any may matter.
    """
    import numpy as np

    told = {name.partition("[")[0] for name, _ in supposed}
    opaque = {array.name for array in program.arrays if array.element == "int"} - written(program)
    arrays = {n: v for n, v in inputs.arrays.items() if n in (told or opaque)}
    if sum(values.size for values in arrays.values()) > MOST_SHOWN:
        return supposed
    return tuple(
        (f"{name}[{', '.join(map(str, cell))}]", int(value))
        for name, values in arrays.items()
        for cell, value in np.ndenumerate(values)
        if cell
    )
