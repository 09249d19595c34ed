"""Loops in steps as loops over how many steps there are, and what is in a block counted from 0 on.

    for c in range(0, N, 64):                        for c in range(0, (N + 63) // 64):
        for i in range(c, min(c + 64, N)):               for i in range(0, 64):
            … K[i, e] …                          ->          if i + 64 * c < N:
                                                                 … K[i + 64 * c, e] …

Then a block is one iteration as any other, and an element of it has a number below the width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from looptrans.ir.affine import Form, form_of, index_of, product, quotient, sides, total
from looptrans.ir.condition import Condition, Relation, conjunction
from looptrans.ir.index import Index, Int, Param, Var, opaque_terms, variables
from looptrans.ir.program import If, Loop, Node, Program
from looptrans.ir.rewrite import reductions_rewritten, rewritten
from looptrans.ir.value import Generator, Range, Reduce
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import nodes
from looptrans.transforms.editing.substitute import substitute_variable
from looptrans.transforms.over_blocks.block_starts import is_multiple, linear_in
from looptrans.transforms.rows.shift import Shifted, with_loops_from_0


@dataclass(frozen=True, slots=True)
class CountedBlocks:
    """A program whose loops count blocks, and elements from where their block begins.

    Attributes:
        program: The program afterwards.
        loops: The variables of the loops over blocks.
        inside: What was done in the blocks.
    """

    program: Program
    loops: tuple[str, ...]
    inside: Shifted | None

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"count blocks in {' and '.join(dict.fromkeys(self.loops))}"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "the iterations are the same, in the same order"
        if self.inside is None or self.inside.is_same:
            reason = (
                "the step of number t is at t times the width, and in a block only names change"
            )
            return Certificate("order", law, "legal", reason)
        return self.inside.certificate


def with_blocks_counted(program: Program) -> CountedBlocks | None:
    """Let loops in steps count blocks, and loops over a block count from where it begins.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where no loop goes in steps, and none is over a block.
    """
    names: list[str] = []
    body = rewritten(program.body, lambda node: (_counted(program, node, names),))
    found = replace(program, body=body)
    widths = {
        (loop.variable, width)
        for loop in nodes(body)
        if isinstance(loop, Loop) and loop.range.step == 1 and loop.range.start == Int(0)
        for width in _widths(loop)
    }
    inside = with_loops_from_0(found, lambda bounds: _begin(bounds, widths))
    if inside is not None:
        asked = _Asked(frozenset(width for _, width in widths))
        body = reductions_rewritten(inside.program.body, asked.node, asked.reduction)
        found = replace(program, body=body)
        names += sorted(name for name, _ in widths)
    return CountedBlocks(found, tuple(names), inside) if names else None


def _counted(program: Program, node: Node, names: list[str]) -> Node:
    """Return a loop in steps from 0 on as one over how many there are; other nodes as they are."""
    match node:
        case Loop(variable, Range(Int(0), stop, width)) if (
            width > 1 and node.execution == "sequential"
        ):
            here = {variable: product(width, Var(variable))}
            body = tuple(substitute_variable(inner, here) for inner in node.body)
            whole = is_multiple(program, stop, Int(width))
            count = quotient(stop if whole else total(stop, width - 1), width)
            names.append(variable)
            return replace(node, range=Range(Int(0), count), body=body)
        case _:
            return node


def _widths(loop: Loop) -> Iterator[Index]:
    """Yield what the variable of a loop is multiplied by where loops over blocks begin in it."""
    for node in nodes(loop.body):
        if isinstance(node, Loop) and node.range.step == 1:
            width = _width(node.range.start, loop.variable)
            ends = sides("min", node.range.stop)
            if width is not None and any(
                form_of(end) == form_of(node.range.start).plus(form_of(width)) for end in ends
            ):
                yield width


def _width(start: Index, variable: str) -> Index | None:
    """Return what a variable is multiplied by where a loop begins there, a number or a size."""
    match linear_in(start, variable):
        case (Int(0), Int() | Param() as width) if width not in (Int(0), Int(1)):
            return width
        case _:
            return None


def _begin(bounds: Range, widths: set[tuple[str, Index]]) -> Index | None:
    """Return where the block begins that a loop begins at, if it does."""
    own = variables(bounds.start)
    known = len(own) == 1 and (own[0], _width(bounds.start, own[0])) in widths
    return bounds.start if known else None


@dataclass(frozen=True, slots=True)
class _Asked:
    """Lets loops over a block end where the block does, and guards ask for what else ends them.

    Attributes:
        widths: How long blocks are.
    """

    widths: frozenset[Index]

    def node(self, node: Node) -> tuple[Node, ...]:
        match node:
            case Loop() if (found := self._split(node.variable, node.range)) is not None:
                bounds, guard = found
                return (replace(node, range=bounds, body=(If(guard, node.body),)),)
            case _:
                return (node,)

    def reduction(self, value: Reduce) -> Reduce:
        return replace(value, generators=tuple(map(self._generator, value.generators)))

    def _generator(self, generator: Generator) -> Generator:
        found = self._split(generator.variable, generator.range)
        if found is None:
            return generator
        bounds, guard = found
        return replace(generator, range=bounds, condition=conjunction(guard, generator.condition))

    def _split(self, variable: str, bounds: Range) -> tuple[Range, Condition] | None:
        """Return the range up to the width of a block, and what asks for the other ends."""
        ends = sides("min", bounds.stop)
        wide = [end for end in ends if end in self.widths]
        others = [end for end in ends if end not in self.widths]
        if bounds.start != Int(0) or bounds.step != 1 or len(wide) != 1 or not others:
            return None
        if any(opaque_terms(end) for end in others):
            return None
        guard = conjunction(*(_stays_below(variable, end) for end in others))
        return Range(Int(0), wide[0]), guard


def _stays_below(variable: str, end: Index) -> Condition:
    """Return the condition that a variable stays below an end, without a difference in it."""
    parts = form_of(end)
    taken = Form({term: -count for term, count in parts.terms.items() if count < 0})
    left = Form({term: count for term, count in parts.terms.items() if count > 0}, parts.constant)
    return Relation("<", total(Var(variable), index_of(taken)), index_of(left))
