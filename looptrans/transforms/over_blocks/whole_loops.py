"""Loops over blocks and over what is inside of each, made one loop.

    for j0 in range(0, N, 16):                          for j in range(0, N):
        for j in range(j0, min(j0 + 16, N)):    ->          …
            …

The blocks lie one behind the other without a gap, so the iterations are the same, in the same
order. A position that is counted from the start of its block is counted from 0 on:

    for t in range(0, T):                               for u in range(0, T * S):
        for u in range(0, S):                   ->          … X[u] …
            … X[t * S + u] …
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import gcd

from looptrans.ir.affine import (
    difference,
    extremum,
    factors_of,
    form_of,
    in_one_order,
    index_of,
    is_same,
    multiplied,
    product,
    sides,
    simplified,
    total,
)
from looptrans.ir.condition import MIRRORED, Condition, Relation, conjuncts
from looptrans.ir.index import Arith, Extremum, Index, Int, Param, Var, opaque_terms, variables
from looptrans.ir.listing import contract_text
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.value import Range
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import accesses, loops_in, nodes, placed
from looptrans.transforms.editing.substitute import substitute_variable
from looptrans.transforms.over_blocks.block_starts import (
    at_least,
    is_multiple,
    linear_in,
    says,
    with_blocks_counted,
)
from looptrans.transforms.over_blocks.fitting import with_fitting_extents
from looptrans.transforms.rows.ends_asked import Without, asked_in, end_of
from looptrans.transforms.rows.idle_guards import is_never_negative


@dataclass(frozen=True, slots=True)
class WholeLoops:
    """A program whose loops over blocks are loops over all of it.

    Attributes:
        program: The program afterwards.
        joined: For each loop that was made its variable, and that of the loop over blocks.
        contracts: Those that say how wide blocks are, as written.
    """

    program: Program
    joined: tuple[tuple[str, str], ...]
    contracts: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        said = dict.fromkeys(f"{outer} and {inner}" for inner, outer in self.joined)
        return f"make {', '.join(said)} one loop"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "the iterations are the same, in the same order"
        reason = "each block begins where the one before it ends, from the first to the last"
        return Certificate("order", law, "legal", reason, self.contracts)


def with_whole_loops(program: Program) -> WholeLoops | None:
    """Make one loop of each loop over blocks and the loop inside.

    The outer one holds nothing but the inner one, whose iterations do not ask which block they
    are in. Positions that are counted from the start of their block stay so where the same array
    is found in that way elsewhere, in loops that stay two: a cell has one name then.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where it has no such loops.
    """
    for counts_anew in (True, False):
        work = _Work(program, counts_anew, leaning={})
        after = replace(program, body=rewritten(program.body, work.node))
        if not counts_anew or not work.is_counted_in_blocks(after):
            fitting = with_fitting_extents(after)
            contracts = tuple(work.leaning or ())
            return WholeLoops(fitting, tuple(work.joined), contracts) if work.joined else None
    return None


def are_blocks(program: Program, outer: Loop, inner: Loop) -> bool:
    """Tell whether loops would be one if the outer one held the inner one and nothing else.

    Args:
        program: The program.
        outer: The loop over blocks.
        inner: A loop inside of it.
    """
    if not (outer.is_plain and inner.is_plain):
        return False
    if inner.range.step != 1 or outer.range.step < 1:
        return False
    work = _Work(program, counts_anew=True)
    if outer.variable in variables(inner.range.start):
        return work.bounds(outer, inner.range) is not None
    moved = work.moved(outer, inner)
    return moved is not None and not says(moved.body, outer.variable)


def block_in_whole(
    program: Program, outer: Loop, inner: Loop, *, asked: bool = True
) -> tuple[Loop, Range] | None:
    """Return a loop over a block, counted in positions of all blocks, and the range of them all.

    Args:
        program: The program.
        outer: The loop over the blocks.
        inner: A loop somewhere in it.
        asked: Whether it ends where all that it holds asks for a position.

    Returns:
        The loop, which may mention its block still, and the range; None where the blocks do not
        lie one behind the other.
    """
    work = _Work(program, counts_anew=True)
    if not outer.is_plain or not inner.is_plain:
        return None
    if inner.range.step != 1 or outer.range.step < 1:
        return None
    is_there = outer.variable in variables(inner.range.start)
    here = inner if is_there else work.moved(outer, inner, asked=asked)
    bounds = None if here is None else work.bounds(outer, here.range, beyond=True)
    return None if here is None or bounds is None else (here, bounds)


def is_never_empty(outer: Loop, block: Range) -> bool:
    """Tell whether each block of a loop surely holds an element.

    Args:
        outer: The loop over the blocks.
        block: The range of one, in positions of the whole.
    """
    variable = outer.variable
    first = linear_in(block.start, variable)
    for end in sides("min", block.stop):
        last = linear_in(end, variable)
        if first is None or last is None:
            return False
        width = difference(last[0], first[0])
        if is_same(first[1], last[1]):
            if not isinstance(width, Int) or width.value <= 0:
                return False
        elif last[1] != Int(0):
            return False
        elif outer.range.step > 1:
            reached = (total(first[0], stop) for stop in sides("min", outer.range.stop))
            if first[1] != Int(1) or end not in reached:
                return False
        elif not _is_reached(outer.range, first[1], first[0], end):
            return False
    return True


@dataclass(slots=True)
class _Work:
    """Joins loops.

    Attributes:
        program: The program before.
        counts_anew: Whether positions may be counted from 0 that are counted from a block's start.
        joined: For each loop that was made its variable, and that of the loop over blocks.
        counted: For each array that is so found, how wide its blocks are.
        leaning: The contracts that say how wide blocks are, as written; None where none may.
    """

    program: Program
    counts_anew: bool
    joined: list[tuple[str, str]] = field(default_factory=list)
    counted: set[tuple[str, Index]] = field(default_factory=set)
    leaning: dict[str, None] | None = None

    def node(self, node: Node) -> tuple[Node, ...]:
        match node:
            case Loop(body=(Loop() as inner,)) if node.is_plain and inner.is_plain:
                whole = self.whole(node, inner)
                if whole is not None:
                    self.joined.append((inner.variable, node.variable))
                    comment, leading = node.comment or inner.comment, node.leading + inner.leading
                    return (replace(whole, comment=comment, leading=leading),)
        return (node,)

    def whole(self, outer: Loop, inner: Loop) -> Loop | None:
        """Return the loop over all blocks."""
        if inner.range.step != 1 or outer.range.step < 1:
            return None
        here = inner
        if outer.variable not in variables(inner.range.start):
            moved = self.moved(outer, inner) if self.counts_anew else None
            if moved is None:
                return None
            here = moved
        bounds = self.bounds(outer, here.range)
        if bounds is None:
            return None
        if says(here.body, outer.variable):
            body = with_blocks_counted(outer, here)
            if body is None:
                return None
            here = replace(here, body=body)
        if here is not inner:
            arrays = {a.access.array for node in _statements(here.body) for a in accesses(node)}
            self.counted |= {(array, inner.range.stop) for array in arrays}
        return replace(here, range=bounds)

    def is_counted_in_blocks(self, after: Program) -> bool:
        """Tell whether an array is still found by block and place, that was found so before."""
        for place in placed(after):
            if not isinstance(place.node, Assign | If):
                continue
            steps = {loop.variable: loop.range.step for loop in place.loops}
            for each in accesses(place.node):
                widths = [width for array, width in self.counted if array == each.access.array]
                if any(_is_split(i, steps, width) for i in each.access.indices for width in widths):
                    return True
        return False

    def moved(self, outer: Loop, inner: Loop, *, asked: bool = True) -> Loop | None:
        """Return a loop that counts from the start of its block as one that counts from 0."""
        step, given = outer.range.step, sides("min", inner.range.stop)
        widths = [end for end in given if self.counts(end)]
        if inner.range.start != Int(0) or len(widths) != 1:
            return None
        (width,) = widths
        if step > 1 and width != Int(step):
            return None
        first = Var(outer.variable) if step > 1 else multiplied(Var(outer.variable), width)
        here = {inner.variable: difference(Var(inner.variable), first)}
        body = tuple(substitute_variable(node, here) for node in inner.body)
        end: Index = extremum("min", (total(first, each) for each in given))
        for part in asked_in(body) if asked else ():
            last = end_of(part, inner.variable)
            if last is not None and outer.variable not in variables(last):
                end = Extremum("min", (end, last))
                return replace(
                    inner, range=Range(first, end), body=rewritten(body, Without(part).node)
                )
        return replace(inner, range=Range(first, end), body=body)

    def bounds(self, outer: Loop, inner: Range, *, beyond: bool = False) -> Range | None:
        """Return what the blocks are together.

        Args:
            outer: The loop over the blocks.
            inner: The range of one.
            beyond: Whether the last one may go beyond where the blocks end.
        """
        block, blocks = outer.variable, outer.range
        given = sides("min", inner.stop)
        moving = [end for end in given if block in variables(end)]
        fixed = [end for end in given if block not in variables(end)]
        # What is in memory is then read where there is no block, too: it has to be there.
        read = (term for end in (*fixed, inner.start) for term in opaque_terms(end))
        if not all(variables(a) for term in read for a in term.arguments):
            return None
        first = linear_in(inner.start, block)
        last = linear_in(moving[0], block) if len(moving) == 1 else None
        if first is None or last is None or not is_same(first[1], last[1]):
            return None
        (rest, advance), width = first, difference(last[0], first[0])
        if not self.counts(width) or not is_same(width, multiplied(Int(blocks.step), advance)):
            return None
        start = total(rest, multiplied(blocks.start, advance))
        if blocks.step > 1 and advance != Int(1):
            return None
        ends = tuple(map(total, fixed))
        if blocks.step == 1:
            together = (extremum("min", ends),) if ends else ()
            far = any(_is_reached(blocks, width, start, end) for end in (*ends, *together))
            # Else the last block ends where one more would begin.
            after = total(rest, self.product(blocks.stop, advance))
            reached: tuple[Index, ...] = (after,)
            if far or any(self.is_within(end, after) for end in ends):
                reached = ()
        else:
            reached = ()
            for stop in sides("min", blocks.stop):
                if any(self.is_within(end, total(rest, stop)) for end in ends):
                    continue  # no block goes on so far
                length = form_of(difference(stop, blocks.start))
                steps = ((n * self.multiple(term)) for term, n in length.terms.items())
                numbers = (*steps, length.constant)
                end = total(rest, stop)
                if end not in ends and any(n % blocks.step for n in numbers):
                    if not beyond:
                        return None
                    count = Arith("//", total(index_of(length), blocks.step - 1), Int(blocks.step))
                    end = total(rest, blocks.start, product(blocks.step, count))
                reached = (*reached, end)
        return Range(start, extremum("min", (*reached, *ends)))

    def product(self, count: Index, width: Index) -> Index:
        """Return how long blocks are together: N where there are N // W, and W divides N."""
        match count:
            case Arith("//", rows, divisor) if divisor == width and is_multiple(
                self.program, rows, width
            ):
                return rows
            case _:
                return multiplied(count, width)

    def is_within(self, end: Index, last: Index) -> bool:
        """Tell whether an end is never beyond another one, by where the loops it names run."""
        ranges = {name: self.ranges(name) for name in variables(end)}
        known = {name: each[0] for name, each in ranges.items() if len({*each}) == 1}
        least = at_least(form_of(difference(last, end)))
        return all(is_never_negative(form, known) for form in least)

    def ranges(self, variable: str) -> list[Range]:
        """Return the ranges of the loops with a variable."""
        loops = loops_in(self.program.body)
        return [loop.range for loop in loops if loop.variable == variable]

    def multiple(self, index: Index) -> int:
        """Return what an index is a multiple of: the variable of a loop in steps from 0 on."""
        if not isinstance(index, Var):
            return 1
        ranges = self.ranges(index.name)
        starts = (bounds.start for bounds in ranges)
        from_0 = all(start == Int(0) for start in starts)
        return gcd(*(bounds.step for bounds in ranges)) if ranges and from_0 else 1

    def counts(self, width: Index) -> bool:
        """Tell whether a number is one of iterations: positive, or a size."""
        if is_size(self.program, width):
            return True
        stated = [c for c in self.program.contracts if not c.generators]
        said = next(
            (c for c in stated if any(_is_positive_by(p, width) for p in conjuncts(c.condition))),
            None,
        )
        if said is None or self.leaning is None:
            return False
        self.leaning[contract_text(said)] = None
        return True


def is_size(program: Program, width: Index) -> bool:
    """Tell whether a number is a size, or is positive.

    Args:
        program: The program.
        width: The number.
    """
    match width:
        case Int(value):
            return value > 0
        case Param(name):
            known = {p.name for p in program.parameters if p.kind == "const"}
            extents = (e for array in program.arrays for e in array.shape if e)
            return name in known or any(width in factors_of(extent) for extent in extents)
        case _:
            return False


def _is_positive_by(condition: Condition, width: Index) -> bool:
    """Tell whether a condition says that a number is positive: `W > 0`."""
    match condition:
        case Relation(op, left, right):
            if op in ("<", "<="):
                op, left, right = MIRRORED[op], right, left
            least = right.value + (op == ">") if isinstance(right, Int) else 0
            return left == width and op in (">", ">=") and least > 0
        case _:
            return False


def _statements(body: tuple[Node, ...]) -> list[Assign | If]:
    return [node for node in nodes(body) if isinstance(node, Assign | If)]


def _is_split(index: Index, steps: Mapping[str, int], width: Index) -> bool:
    """Tell whether a subscript is the start of a block of some width and a place in it."""
    if len(variables(index)) < 2:
        return False
    parts = [(linear_in(index, v), steps.get(v, 1)) for v in variables(index)]
    return any(part and is_same(multiplied(Int(step), part[1]), width) for part, step in parts)


def _is_reached(blocks: Range, width: Index, start: Index, end: Index) -> bool:
    """Tell whether there are as many blocks as it takes to come to an end."""
    match blocks.stop:
        case Arith("//", rows, divisor) if divisor == width and blocks.start == Int(0):
            needed = total(difference(end, start), width, -1)
            return in_one_order(simplified(rows)) == in_one_order(needed)
        case _:
            return False
