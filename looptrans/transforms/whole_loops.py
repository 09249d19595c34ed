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

from dataclasses import dataclass, field, replace

from looptrans.ir.affine import (
    difference,
    extremum,
    form_of,
    in_one_order,
    is_same,
    product,
    sides,
    simplified,
    total,
)
from looptrans.ir.condition import Condition, Every, Relation, conjunction
from looptrans.ir.index import Arith, Extremum, Index, Int, Neg, Param, Var, opaque_terms, variables
from looptrans.ir.program import If, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.value import Range
from looptrans.ir.verdict import Certificate
from looptrans.transforms.substitute import substitute_variable


@dataclass(frozen=True, slots=True)
class WholeLoops:
    """A program whose loops over blocks are loops over all of it.

    Attributes:
        program: The program afterwards.
        joined: For each loop that was made its variable, and that of the loop over blocks.
    """

    program: Program
    joined: tuple[tuple[str, str], ...]

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
        return Certificate("order", law, "legal", reason)


def with_whole_loops(program: Program) -> WholeLoops | None:
    """Make one loop of each loop over blocks and the loop inside.

    The outer one holds nothing but the inner one, whose iterations do not ask which block they
    are in.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where it has no such loops.
    """
    work = _Work(program)
    body = rewritten(program.body, work.node)
    return WholeLoops(replace(program, body=body), tuple(work.joined)) if work.joined else None


@dataclass(slots=True)
class _Work:
    program: Program
    joined: list[tuple[str, str]] = field(default_factory=list)

    def node(self, node: Node) -> tuple[Node, ...]:
        match node:
            case Loop(body=(Loop() as inner,)) if _is_plain(node) and _is_plain(inner):
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
        if outer.variable not in variables(inner.range.start):
            placed = self.placed(outer, inner)
            if placed is None:
                return None
            inner = placed
        bounds = self.bounds(outer, inner.range)
        if bounds is None or _says(inner.body, outer.variable):
            return None
        return replace(inner, range=bounds)

    def placed(self, outer: Loop, inner: Loop) -> Loop | None:
        """Return a loop that counts from the start of its block as one that counts from 0."""
        width, step = inner.range.stop, outer.range.step
        if inner.range.start != Int(0) or not self.counts(width):
            return None
        if step > 1 and width != Int(step):
            return None
        first = Var(outer.variable) if step > 1 else _times(Var(outer.variable), width)
        here = {inner.variable: difference(Var(inner.variable), first)}
        body = tuple(substitute_variable(node, here) for node in inner.body)
        end: Index = total(first, width)
        match body:
            case (If(condition, then, ()) as guard,):
                last, rest = _end(condition, inner.variable, outer.variable)
                if last is not None:
                    end = Extremum("min", (end, last))
                    body = then if rest is None else (replace(guard, condition=rest),)
            case _:
                pass
        return replace(inner, range=Range(first, end), body=body)

    def bounds(self, outer: Loop, inner: Range) -> Range | None:
        """Return what the blocks are together."""
        block, blocks = outer.variable, outer.range
        given = sides("min", inner.stop)
        moving = [end for end in given if block in variables(end)]
        fixed = [end for end in given if block not in variables(end)]
        # An end in memory is then read once, also where there is no block.
        read = (term for end in fixed for term in opaque_terms(end))
        if any(not isinstance(a, Var) for term in read for a in term.arguments):
            return None
        first = _linear(inner.start, block)
        last = _linear(moving[0], block) if len(moving) == 1 else None
        if first is None or last is None or not is_same(first[1], last[1]):
            return None
        (rest, advance), width = first, difference(last[0], first[0])
        if not self.counts(width) or not is_same(width, _times(Int(blocks.step), advance)):
            return None
        start = total(rest, _times(blocks.start, advance))
        if blocks.step > 1 and advance != Int(1):
            return None
        ends = tuple(map(total, fixed))
        if blocks.step == 1:
            together = (extremum("min", ends),) if ends else ()
            far = any(_is_reached(blocks, width, start, end) for end in (*ends, *together))
            # Else the last block ends where one more would begin.
            reached: tuple[Index, ...] = () if far else (total(rest, _times(blocks.stop, advance)),)
        else:
            stops = sides("min", blocks.stop)
            reached = tuple(total(rest, stop) for stop in stops)
            for stop, end in zip(stops, reached, strict=True):
                length = form_of(difference(stop, blocks.start))
                numbers = (*length.terms.values(), length.constant)
                if end not in ends and any(n % blocks.step for n in numbers):
                    return None  # the last block may go beyond
        return Range(start, extremum("min", (*reached, *ends)))

    def counts(self, width: Index) -> bool:
        """Tell whether a number is one of iterations: positive, a constant, or what counts rows."""
        match width:
            case Int(value):
                return value > 0
            case Param(name):
                known = {p.name for p in self.program.parameters if p.kind == "const"}
                extents = (e for array in self.program.arrays for e in array.shape if e)
                return name in known or any(width in _factors(extent) for extent in extents)
            case _:
                return False


def _is_plain(loop: Loop) -> bool:
    return loop.execution == "sequential" and not loop.private


def _says(body: tuple[Node, ...], variable: str) -> bool:
    """Tell whether a block mentions a variable."""
    return any(substitute_variable(node, {variable: Int(0)}) != node for node in body)


def _factors(index: Index) -> tuple[Index, ...]:
    match index:
        case Arith("*", left, right):
            return (*_factors(left), *_factors(right))
        case _:
            return (index,)


def _times(index: Index, factor: Index) -> Index:
    for one, other in ((index, factor), (factor, index)):
        if isinstance(one, Int):
            return product(one.value, other)
    return Arith("*", index, factor)


def _linear(index: Index, variable: str) -> tuple[Index, Index] | None:
    """Return `a` and `b`, both without the variable, of `a + b * variable`."""
    if variable not in variables(index):
        return index, Int(0)
    match index:
        case Var():
            return Int(0), Int(1)
        case Neg(operand):
            parts = _linear(operand, variable)
            return parts and (product(-1, parts[0]), product(-1, parts[1]))
        case Arith("+" | "-" as op, left, right):
            one, other = _linear(left, variable), _linear(right, variable)
            if one is None or other is None:
                return None
            joined = total if op == "+" else difference
            return joined(one[0], other[0]), joined(one[1], other[1])
        case Arith("*", left, right):
            for inner, factor in ((left, right), (right, left)):
                parts = _linear(inner, variable)
                if parts is not None and variable not in variables(factor):
                    return _times(parts[0], factor), _times(parts[1], factor)
            return None
        case _:
            return None


def _end(condition: Condition, variable: str, block: str) -> tuple[Index | None, Condition | None]:
    """Return where a guard of a whole block ends a loop, and what it says besides."""
    parts = condition.parts if isinstance(condition, Every) else (condition,)
    for part in parts:
        match part:
            case Relation("<", left, right):
                last = total(right, difference(Var(variable), left))
            case Relation("<=", left, right):
                last = total(right, difference(Var(variable), left), 1)
            case _:
                continue
        if not {variable, block} & set(variables(last)):
            rest = tuple(p for p in parts if p is not part)
            return last, conjunction(*rest) if rest else None
    return None, condition


def _is_reached(blocks: Range, width: Index, start: Index, end: Index) -> bool:
    """Tell whether there are as many blocks as it takes to come to an end."""
    match blocks.stop:
        case Arith("//", rows, divisor) if divisor == width and blocks.start == Int(0):
            needed = total(difference(end, start), width, -1)
            return in_one_order(simplified(rows)) == in_one_order(needed)
        case _:
            return False
