"""Sizes that a listing can be run at, that fill the blocks of its kernels, and take no minutes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

from looptrans.blocks.block_ir.expr import Role
from looptrans.blocks.block_ir.program import BlockProgram
from looptrans.executor.equations import determined
from looptrans.executor.errors import ExecutionError
from looptrans.executor.inputs import prepare
from looptrans.ir.condition import Relation, walk_condition
from looptrans.ir.evaluate import evaluate
from looptrans.ir.index import Arith, Index, Int, Param, parameters
from looptrans.ir.program import Program
from looptrans.ir.quotients import whole_quotients
from looptrans.runtime.verifying.numbers import WHOLE, Table, Wanted, beyond, few, filling, wanted
from looptrans.runtime.verifying.work import bounding, default_blocks, work

MOST_TOGETHER = 50_000
"""How many operations a run may make where all blocks are filled at once."""
MOST_WORK = 15_000
"""How many where there are several such runs: the interpreter makes some 15,000 in a second."""
MOST_SETS = 3
"""How many such runs of a kind there are at most."""
LEAST = 2
"""How many iterations a loop should have whose end is no single size."""
SHRUNK = (75, 37, 19, 11, 7)
"""What is tried for a size that takes too long to go beyond blocks."""


class Search:
    """Looks for sizes of one listing.

    Attributes:
        program: The listing.
        names: Its sizes.
        roles: For each size what the loops are in the kernels that it bounds.
        blocks: For each size the most iterations that a block of such a loop has; 0 for none.
        compound: The extents of loops that are no single size, with those of a block; 0 for none.
        solved: The sizes that others determine by a contract, each with the sum that it is.
        tied: Others that stand in contracts or divide: not every number suits the others.
        least: Those of which contracts say how large they are at least, `F > 512`.
    """

    def __init__(
        self,
        program: Program,
        names: Sequence[str],
        blocks: BlockProgram | None,
        beside: Sequence[BlockProgram],
    ) -> None:
        """Look at a listing.

        Args:
            program: The listing.
            names: Its sizes.
            blocks: How it is run in blocks, where that is known.
            beside: What else is run at the same sizes.
        """
        self.program = program
        self.names = names
        self.roles: dict[str, set[Role]] = {}
        self.blocks: dict[str, int] = {}
        self.compound: dict[Index, int] = {}
        self._reach = () if blocks is None else blocks.reached
        self._run = (*beside, *(() if blocks is None else (blocks,)))
        for kernel in () if blocks is None else blocks.kernels:
            by_default = default_blocks(kernel)
            for dim in kernel.dims:
                block = by_default.get(dim.block or "", 0)
                for name in bounding(dim.stop, program):
                    self.roles.setdefault(name, set()).add(dim.role)
                    self.blocks[name] = max(block, self.blocks.get(name, 0))
                if not isinstance(dim.extent, Param) and parameters(dim.extent):
                    self.compound[dim.extent] = max(block, self.compound.get(dim.extent, 0))
        looped = [n for n, roles in self.roles.items() if {"rows", "tile"} & roles]
        self.solved = {n: e for n, e in determined(program, looped).items() if n in names}
        for name, index in self.solved.items():
            # What a loop goes over is as large as what adds up to it.
            for each in parameters(index):
                if each not in self.roles and name in self.roles:
                    self.roles[each] = set(self.roles[name])
                    self.blocks[each] = self.blocks[name]
        self.tied = _tied(program, self.solved)
        self.least = _least(program)
        self.divided = tuple(_divided(program))

    # Sizes that fill blocks

    def large(self, table: Table) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield sizes such that each that bounds a loop in blocks fills some in one of them.

        All do so at once where that does not take too long. Else those do that are nowhere a
        program's; else all fill a few blocks only; else some do in turn.

        Args:
            table: How blocks are filled: `CROSSING` or `WHOLE`.

        Yields:
            What kind of sizes they are: `crossing`, `whole`, or `far` for what is left to go beyond
            a block when all others have; and the sizes.
        """
        kind = "whole" if table is WHOLE else "crossing"
        numbers = wanted(self.names, self.roles, table, self.tied)
        fewer = wanted(self.names, few(self.roles), table, self.tied)
        low = wanted(self.names, _low(self.roles), table, self.tied)
        free = [n for n in self.names if n not in self.solved]
        wide = [n for n in free if {"rows", "tile"} & self.roles.get(n, set())]
        alone = [n for n in wide if "program" not in self.roles[n]]
        far = {n: filling(numbers[n], self.blocks[n], table) for n in wide}
        near = {n: filling(numbers[n], self.blocks[n], table, near=True) for n in wide}
        for each, chosen, most in (
            (numbers, wide, MOST_WORK),
            (fewer, alone, MOST_TOGETHER),
            ({**numbers, **near}, wide, MOST_WORK),
        ):
            found = self._within(each, chosen, table, most)
            if found is not None:
                yield kind, found
                left = [n for n in wide if n not in chosen or found[n] <= self.blocks[n]]
                if table is not WHOLE:
                    shrunk = {n: () if n in chosen else SHRUNK for n in left}
                    tried = {n: (far[n], near[n], *((s, *low[n]) for s in shrunk[n])) for n in left}
                    yield from (("far", more) for more in self._in_turn(low, tried, table))
                return
        found = None
        shrunk = {n: SHRUNK if n in alone and table is not WHOLE else () for n in wide}
        tried = {n: (far[n], near[n], *((s, *low[n]) for s in shrunk[n])) for n in wide}
        for found in islice(self._in_turn(low, tried, table), MOST_SETS):
            yield kind, found
        if found is None:
            found = self.fitting(low)
            if found is not None:
                yield kind, found

    def _in_turn(
        self, low: Wanted, tried: Mapping[str, Sequence[tuple[int, ...]]], table: Table
    ) -> Iterator[dict[str, int]]:
        """Yield sizes of which as many as do not take too long are large at once.

        Args:
            low: What is tried for the others.
            tried: What is tried for those that are large in one of the yielded, the best first.
            table: Which blocks they should fill.
        """
        left = list(tried)
        while left:
            chosen: dict[str, tuple[int, ...]] = {}
            kept = None
            for name in left:
                for numbers in tried[name]:
                    more = {**chosen, name: numbers}
                    found = self._within({**low, **more}, more, table, MOST_WORK)
                    if found is not None:
                        chosen, kept = more, found
                        break
            if kept is None:
                return
            yield kept
            left = [n for n in left if n not in chosen]

    def _within(
        self, numbers: Wanted, filled: Collection[str], table: Table, most: int
    ) -> dict[str, int] | None:
        """Return sizes at which a run makes no more operations, or None."""
        numbers = self._lifted(numbers)
        if work(self._run, self._completed({n: each[0] for n, each in numbers.items()})) > most:
            return None
        found = self.reaching(self.fitting(numbers), filled, table)
        return None if found is None or work(self._run, found) > most else found

    # Sizes that fit

    def fitting(self, numbers: Wanted) -> dict[str, int] | None:
        """Return sizes that satisfy the listing, each the first of its numbers that can be had."""
        numbers = self._lifted(numbers)
        found = self._fitting(numbers) if self.solved else None
        found = found or self._one_by_one(numbers)
        return None if found is None else self._reached(found)

    def _lifted(self, numbers: Wanted) -> dict[str, tuple[int, ...]]:
        """Return multiples of numbers where contracts ask for more: 40, of F > 512, becomes 520.

        Where none is a multiple of what divides a size, as of N % 64 == 0, the next ones come last.
        """
        lifted = {
            name: tuple(n * max(1, -(-self.least.get(name, 0) // n)) if n else n for n in each)
            for name, each in numbers.items()
        }
        for name, divisor in self.divided:
            each = lifted.get(name, (0,))
            if all(n % divisor for n in each):
                lifted[name] = (*each, *dict.fromkeys(-(-n // divisor) * divisor for n in each))
        return lifted

    def _fitting(self, numbers: Wanted) -> dict[str, int] | None:
        """Return sizes of which some are what the others determine."""
        given: dict[str, int] = {}
        first = {name: each[0] for name, each in numbers.items()}
        for name in (n for n in numbers if n not in self.solved):
            for number in numbers[name]:
                mine = {**given, name: number}
                every = self._completed({**first, **mine})
                if _fits(self.program, every) or _fits(self.program, mine):
                    given = mine
                    break
            else:
                return None
        found = self._completed(given)
        if any(name not in found for name in numbers) or not _fits(self.program, found):
            return None
        return {name: found[name] for name in numbers}

    def _one_by_one(self, numbers: Wanted) -> dict[str, int] | None:
        """Return sizes each of which fits those before it."""
        given: dict[str, int] = {}
        for name, each in numbers.items():
            number = next((n for n in each if _fits(self.program, {**given, name: n})), None)
            if number is None:
                return None
            given[name] = number
        return given

    def _completed(self, given: Mapping[str, int]) -> dict[str, int]:
        """Return sizes of which some are what the others determine."""
        found = dict(given)
        for _ in self.solved:
            for name, index in self.solved.items():
                value = evaluate(index, found)
                if value is not None:
                    found[name] = value
        return found

    def reaching(
        self,
        given: dict[str, int] | None,
        filled: Collection[str] = (),
        table: Table | None = None,
    ) -> dict[str, int] | None:
        """Return sizes of which some are larger where loops would have too few iterations.

        Those are loops that several sizes bound, as in `range(W - S + 1)`: no size alone says how
        many iterations there are, and with most there are none.

        Args:
            given: The sizes.
            filled: Those of which loops should fill blocks.
            table: How they should fill them.
        """
        if given is None:
            return None
        for extent, block in self.compound.items():
            least = LEAST
            if block and table is not None and set(parameters(extent)) & set(filled):
                least = beyond(block, table, evaluate(extent, given) or 0)
            given = self._reaching(extent, least, given)
        return given

    def _reached(self, given: dict[str, int]) -> dict[str, int]:
        """Return sizes of which some are larger where subscripts would go beyond an array."""
        shapes = {array.name: array.shape for array in self.program.arrays}
        for array, axis, _, needed in self._reach:
            # What kernels make has the size that they give it, and the dimensions.
            shape = shapes.get(array, ())
            extent = shape[axis] if axis < len(shape) else None
            least = evaluate(needed, given)
            if isinstance(extent, Param) and least is not None and least > given[extent.name]:
                larger = {**given, extent.name: least}
                given = larger if _fits(self.program, larger) else given
        return given

    def _reaching(self, extent: Index, least: int, given: dict[str, int]) -> dict[str, int]:
        """Return sizes one of which is larger, such that a loop has so many iterations."""
        count = evaluate(extent, given)
        if count is None or count >= least:
            return given
        for name in parameters(extent):
            for times in (1, 2, 4):
                larger = self._completed({**given, name: given[name] + (least - count) * times})
                if (evaluate(extent, larger) or 0) >= least and _fits(self.program, larger):
                    return larger
        return given


def _low(roles: Mapping[str, set[Role]]) -> dict[str, set[Role]]:
    """Return roles such that no size fills blocks."""
    return {
        name: {"program"} if "program" in each else each - {"rows", "tile"} or {"element"}
        for name, each in roles.items()
    }


def _tied(program: Program, solved: Mapping[str, Index]) -> frozenset[str]:
    """Return the sizes that stand in contracts or divide: not every number suits the others."""
    found: set[str] = set()
    for contract in program.contracts:
        for part in walk_condition(contract.condition):
            if isinstance(part, Relation):
                names = {*parameters(part.left), *parameters(part.right)}
                if part.op != "==" or names.isdisjoint(solved):
                    found.update(names)
    for index in whole_quotients(program):
        found.update(parameters(index))
    return frozenset(found)


def _least(program: Program) -> dict[str, int]:
    """Return how large sizes are at least, where contracts compare them with numbers."""
    found: dict[str, int] = {}
    for condition in program.stated:
        match condition:
            case Relation(">" | ">=" | "==" as op, Param(name), Int(number)):
                least = number + (op == ">")
            case Relation("<" | "<=" | "==" as op, Int(number), Param(name)):
                least = number + (op == "<")
            case _:
                continue
        found[name] = max(least, found.get(name, 0))
    return found


def _divided(program: Program) -> Iterator[tuple[str, int]]:
    """Yield the sizes that contracts say are multiples of numbers, and of which."""
    for condition in program.stated:
        match condition:
            case Relation("==", Arith("%", Param(name), Int(divisor)), Int(0)) if divisor > 0:
                yield name, divisor
            case _:
                pass


def _fits(program: Program, sizes: Mapping[str, int]) -> bool:
    """Tell whether there are inputs of these sizes, with whole quotients where they are meant."""
    try:
        complete = prepare(program, sizes).integers
    except ExecutionError:
        return False
    for division in whole_quotients(program):
        left, right = evaluate(division.left, complete), evaluate(division.right, complete)
        if left is None or not right or left % right or (left < right and left):
            return False
    return True
