"""Sizes at which a kernel is verified: those that find mistakes, as far as a listing takes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

from looptrans.blocks.expr import Role
from looptrans.blocks.program import BlockProgram
from looptrans.executor.errors import ExecutionError
from looptrans.executor.inputs import prepare
from looptrans.ir.condition import Relation, walk_condition
from looptrans.ir.evaluate import evaluate
from looptrans.ir.index import Arith, Index, opaque_terms, parameters, walk
from looptrans.ir.program import Parameter, Program

# What a loop is in the kernel decides how far its size has to go to show a mistake: beyond a block
# or two for rows and tiles, off a power of two for lanes.
CROSSING: dict[Role, tuple[int, ...]] = {
    "rows": (150, 203, 137, 170),
    "tile": (150, 203, 137, 170),
    "lanes": (40, 59, 33, 20),
    "element": (5, 7, 3, 6),
    "program": (1, 2, 3, 1),
}
WHOLE: dict[Role, tuple[int, ...]] = {
    "rows": (128, 256, 64, 128),
    "tile": (128, 256, 64, 128),
    "lanes": (64, 32, 16, 64),
    "element": (4, 3, 4, 3),
    "program": (2, 1, 2, 1),
}
SMALL = (7, 5, 9, 3, 11, 2, 13)
# What a program each works out is not needed often: the interpreter takes its time.
FEW: dict[Role, tuple[int, ...]] = {"program": (2, 3, 1, 2)}
# Sizes that others must divide, or be multiples of: what is tried for the first, the second, …
TIED = ((6, 12, 4, 3, 2, 1), (2, 3, 6, 1, 4), (3, 2, 12, 6, 1, 4))
TIED_LARGE = ((4, 6, 2, 1), (2, 1, 4), (2, 4, 1))
NEARBY = (1, 2, 3, 4, 5, 6, 8)
ROLES: tuple[Role, ...] = ("rows", "tile", "lanes", "element", "program")
MOST_BLOCKS = 60
"""How many blocks a run should visit: large ones take a tenth of a second each."""
BLOCK = 64
"""About how many iterations a block has."""


@dataclass(frozen=True, slots=True)
class SizeSet:
    """Values of the sizes of a listing.

    Attributes:
        kind: `small`, `crossing`, `whole`, `one`, `zero` or `given`.
        sizes: The values, in order of first appearance; what is given may name real parameters.
    """

    kind: str
    sizes: Mapping[str, float]

    @property
    def is_main(self) -> bool:
        """Whether all kinds of inputs are tried at these sizes."""
        return self.kind in ("small", "crossing", "whole", "given")


def size_sets(program: Program, blocks: BlockProgram | None = None) -> tuple[SizeSet, ...]:
    """Find sizes that fit the contracts and the shapes of a listing.

    Small odd ones, ones that go beyond blocks without filling the last one, ones that fill whole
    blocks, all 1, and each of them 0 in turn. What the contracts do not allow is left out.

    Args:
        program: The listing.
        blocks: How it is run in blocks, where that is known.
    """
    names = [p.name for p in program.parameters if _is_size(p)]
    if not names:
        return (SizeSet("small", {}),)
    roles = _roles(blocks)
    tied = _tied(program)
    small = _wanted(names, _few(roles), FEW, tied)
    wanted: dict[str, Mapping[str, tuple[int, ...]]] = {
        "small": small,
        "crossing": _large(names, roles, CROSSING, tied, blocks),
        "whole": _large(names, roles, WHOLE, tied, blocks),
        "one": dict.fromkeys(names, (1,)),
    }
    found: dict[tuple[tuple[str, int], ...], str] = {}
    for kind, values in wanted.items():
        fitting = _fitting(program, values)
        if fitting is not None:
            found.setdefault(tuple(fitting.items()), kind)
    for name in names:
        fitting = _fitting(program, {name: (0,), **{n: v for n, v in small.items() if n != name}})
        if fitting is not None and fitting[name] == 0:
            ordered = {each: fitting[each] for each in names}
            found.setdefault(tuple(ordered.items()), "zero")
    return tuple(SizeSet(kind, dict(items)) for items, kind in found.items())


def _is_size(parameter: Parameter) -> bool:
    return parameter.kind in ("size", "const")


def _roles(blocks: BlockProgram | None) -> dict[str, set[Role]]:
    """Return for each size what the loops are in the kernels that it bounds."""
    found: dict[str, set[Role]] = {}
    for kernel in () if blocks is None else blocks.kernels:
        for dim in kernel.dims:
            for name in _bounding(dim.stop, blocks):
                found.setdefault(name, set()).add(dim.role)
    return found


def _large(
    names: Sequence[str],
    roles: Mapping[str, set[Role]],
    table: Mapping[Role, tuple[int, ...]],
    tied: frozenset[str],
    blocks: BlockProgram | None,
) -> dict[str, tuple[int, ...]]:
    """Return the numbers to try where blocks are filled.

    A loop that is a block's in one kernel and a program's in another goes as far as the block asks
    for, unless these are too many programs for the interpreter.
    """
    wanted = _wanted(names, roles, table, tied)
    if _visited(blocks, {name: numbers[0] for name, numbers in wanted.items()}) <= MOST_BLOCKS:
        return wanted
    return _wanted(names, _few(roles), table, tied)


def _few(roles: Mapping[str, set[Role]]) -> dict[str, set[Role]]:
    """Return roles such that what is a program's anywhere is that alone."""
    return {name: {"program"} if "program" in each else each for name, each in roles.items()}


def _visited(blocks: BlockProgram | None, sizes: Mapping[str, int]) -> int:
    """Return about how many blocks the kernels visit."""
    total = 0
    for kernel in () if blocks is None else blocks.kernels:
        visits = 1
        for dim in kernel.dims:
            extent = max((sizes.get(name, 1) for name in _bounding(dim.stop, blocks)), default=1)
            if dim.role in ("rows", "tile"):
                visits *= -(-extent // BLOCK)
            elif dim.role != "lanes":
                visits *= extent
        total += visits
    return total


def _bounding(stop: Index, blocks: BlockProgram | None) -> Iterator[str]:
    """Yield the sizes that say how far a loop goes, those of what is read from memory too."""
    yield from parameters(stop)
    for term in opaque_terms(stop):
        declared = None if blocks is None else blocks.listing.array(term.array).value_range
        if declared is not None:
            yield from parameters(declared[1])


def _tied(program: Program) -> frozenset[str]:
    """Return the sizes that stand in contracts or divide: not every number suits the others."""
    found: set[str] = set()
    for contract in program.contracts:
        for part in walk_condition(contract.condition):
            if isinstance(part, Relation):
                found.update(parameters(part.left), parameters(part.right))
    for index in _divisions(program):
        found.update(parameters(index))
    return frozenset(found)


def _divisions(program: Program) -> Iterator[Index]:
    for array in program.arrays:
        for extent in array.shape if array.role == "input" else ():
            for part in () if extent is None else walk(extent):
                if isinstance(part, Arith) and part.op == "//":
                    yield part


def _wanted(
    names: Sequence[str],
    roles: Mapping[str, set[Role]],
    table: Mapping[Role, tuple[int, ...]],
    tied: frozenset[str],
) -> dict[str, tuple[int, ...]]:
    """Return for each size the numbers to try, the best one first."""
    large = "rows" in table
    series = {role: cycle(numbers) for role, numbers in table.items()}
    if large:
        series["tile"] = series["rows"]  # one series for both
    small, together = cycle(SMALL), cycle(TIED_LARGE if large else TIED)
    found: dict[str, tuple[int, ...]] = {}
    for name in names:
        role = min(roles.get(name, set()), key=ROLES.index, default=None)
        if name in tied and (not large or role in (None, "program", "element")):
            found[name] = next(together)
        else:
            best = next(small if role is None else series.get(role, small))
            found[name] = (best, *(n for n in _near(best) if n != best))
    return found


def _near(number: int) -> tuple[int, ...]:
    """Return numbers to try where one does not fit: multiples of what sizes are divided by."""
    return (*(number - number % k for k in (2, 3, 4, 8, 16, 64) if number >= k), *NEARBY)


def _fitting(program: Program, wanted: Mapping[str, tuple[int, ...]]) -> dict[str, int] | None:
    """Return sizes that satisfy the listing, each the first of its numbers that can be had."""
    given: dict[str, int] = {}
    for name, numbers in wanted.items():
        for number in numbers:
            if _fits(program, {**given, name: number}):
                given[name] = number
                break
        else:
            return None
    return given


def _fits(program: Program, sizes: Mapping[str, int]) -> bool:
    """Tell whether there are inputs of these sizes, with whole quotients in the shapes."""
    try:
        complete = prepare(program, sizes).integers
    except ExecutionError:
        return False
    for division in _divisions(program):
        assert isinstance(division, Arith)
        left, right = evaluate(division.left, complete), evaluate(division.right, complete)
        if left is None or not right or left % right or (left < right and left):
            return False
    return True
