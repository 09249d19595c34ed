"""Loops brought outside of others, joined with what stands beside them there.

    for t in range(0, M, 16):                     for t in range(0, M, 16):
        for j in range(0, N):                         for i in range(t, min(t + 16, M)):
            for i in range(t, min(t + 16, M)):            for j in range(0, N):
                S1(i, j)                     ->               S1(i, j)
        for r in range(t, min(t + 16, M)):                S2(i)
            S2(r)

Everything that the outer loop holds then belongs to one loop over the rows of the block, directly
inside of it: the two are one loop over all rows. Whether the new order is allowed is judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from looptrans.ir.affine import is_same
from looptrans.ir.index import Var, variables
from looptrans.ir.program import If, Loop, Node, Program
from looptrans.ir.step import Image
from looptrans.ir.value import Range
from looptrans.ir.verdict import Certificate, Verdict
from looptrans.ir.walk import placed
from looptrans.transforms.any_products import with_any_products
from looptrans.transforms.check import check_order
from looptrans.transforms.fuse import with_comments
from looptrans.transforms.nest import finished, fresh_name, loop_paths, node_at, replace_at
from looptrans.transforms.substitute import rename_variable, without_binders
from looptrans.transforms.tree import Position, block_at, statements_in, walk_positions
from looptrans.transforms.whole_loops import are_blocks


@dataclass(frozen=True, slots=True)
class Outward:
    """A program with loops that were brought outward.

    Attributes:
        program: The program afterwards.
        moved: For each loop that was brought outward its variable, and those it now stands around.
        assumptions: The contracts that leans on, as written.
    """

    program: Program
    moved: tuple[tuple[str, tuple[str, ...]], ...]
    assumptions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        said = dict.fromkeys(f"{v} outside of {' and '.join(over)}" for v, over in self.moved)
        return f"run {', '.join(said)}"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        reason = "every read gets the value it got before"
        return Certificate("order", "no dependence is reversed", "legal", reason, self.assumptions)


def with_block_rows_outward(program: Program) -> Outward | None:
    """Bring loops over the rows of a block directly inside of the loop over the blocks.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such loop, or none that may go there.
    """
    found = Outward(program, ())
    tried: set[tuple[tuple[str, ...], str]] = set()
    changed = True
    while changed:
        changed = False
        for position, wanted in _split_blocks(found.program):
            outer = node_at(found.program, position)
            key = (statements_in((outer,)), wanted.variable)
            if key in tried:
                continue
            tried.add(key)
            step = brought_outward(found.program, (*position, 0), wanted)
            if step is not None:
                found = _and_then(found, step)
                changed = True
                break
    return found if found.moved else None


def brought_outward(
    program: Program,
    position: Position,
    wanted: Loop,
    *,
    beside: bool = True,
) -> Outward | None:
    """Make a node one loop that has the range of a loop inside of it, where that is allowed.

    Args:
        program: The program.
        position: Where the node stands; the first of its block where others stand beside it.
        wanted: The loop.
        beside: Whether all that stands beside it goes into the loop, too.
    """
    work = _Gathering(program, wanted)
    body = block_at(program, position) if beside else (node_at(program, position),)
    try:
        loop = work.block(body)
    except _NotGathered:
        return None
    after = program
    for number in reversed(range(1, len(body))):
        after = replace_at(after, (*position[:-1], number), ())
    after = replace_at(after, position, (loop,))
    found = _judged(program, after, work)
    if found is None:
        return None
    moved = ((wanted.variable, tuple(dict.fromkeys(work.over))),)
    return Outward(found[0], moved, found[1].assumptions)


class _NotGathered(Exception):
    """Something stands there that is not part of the loop."""


@dataclass(slots=True)
class _Gathering:
    """Makes one loop of blocks.

    Attributes:
        program: The program before.
        wanted: A loop with the range and variable that the one loop has.
        over: The loops it is brought out of.
        renamed: By label, what variables of the loops around a statement are called now.
    """

    program: Program
    wanted: Loop
    over: list[str] = field(default_factory=list)
    renamed: dict[str, dict[str, str]] = field(default_factory=dict)

    def block(self, body: tuple[Node, ...]) -> Loop:
        """Return a block as one loop.

        Raises:
            _NotGathered: It is not one.
        """
        first, *others = (self.node(node) for node in body)
        rest = (node for loop in others for node in with_comments(loop))
        return replace(first, body=(*first.body, *rest))

    def node(self, node: Node) -> Loop:
        match node:
            case Loop() if _same_range(node.range, self.wanted.range):
                return self._named(node)
            case Loop(body=(_, *_)) if _is_plain(node):
                inner = self.block(node.body)
                if node.variable in _bounds(inner.range):
                    raise _NotGathered
                self.over.append(node.variable)
                here = node
                if node.variable == inner.variable:
                    here = self._with_fresh_variable(node)
                return replace(inner, body=(replace(here, body=inner.body),))
            case If(body=(_, *_), orelse=(), label=None):
                inner = self.block(node.body)
                return replace(inner, body=(replace(node, body=inner.body),))
            case _:
                raise _NotGathered

    def _named(self, loop: Loop) -> Loop:
        """Return a loop with the variable that is wanted."""
        old, new = loop.variable, self.wanted.variable
        if not _is_plain(loop):
            raise _NotGathered
        if old == new:
            return loop
        if any(isinstance(n, Loop) and n.variable == new for _, n in walk_positions(loop.body)):
            raise _NotGathered
        for label in statements_in((loop,)):
            self.renamed.setdefault(label, {})[old] = new
        free = without_binders(self.program, loop, frozenset((new,)))
        return rename_variable(free, old, new)

    def _with_fresh_variable(self, loop: Loop) -> Loop:
        """Return a loop with a variable that nothing else has."""
        new = fresh_name(self.program, f"{loop.variable}0")
        for label in statements_in((loop,)):
            self.renamed.setdefault(label, {})[loop.variable] = new
        return rename_variable(loop, loop.variable, new)


def _judged(program: Program, after: Program, work: _Gathering) -> tuple[Program, Verdict] | None:
    """Return the program afterwards where it is legal, with the verdict."""
    images = {}
    earlier = {place.label: place for place in placed(program)}
    for place in placed(after):
        names = work.renamed.get(place.label, {})
        loops = earlier[place.label].loops
        indices = tuple(Var(names.get(loop.variable, loop.variable)) for loop in loops)
        images[place.label] = Image(place.label, indices)
    after, images = finished(after, images)
    plain = with_any_products(program, after)
    if plain is None:
        verdict = check_order(program, after, images)
    else:
        one, other = plain
        verdict = check_order(one, other, images, tried=False)
    return (after, verdict) if verdict.decision == "legal" else None


def _split_blocks(program: Program) -> Iterator[tuple[Position, Loop]]:
    """Yield loops over blocks that hold a loop over a block's rows, but not as all they hold."""
    for path in loop_paths(program):
        if not _is_plain(path.loop):
            continue
        match path.loop.body:
            case (Loop() as only,) if are_blocks(program, path.loop, only):
                continue
            case _:
                pass
        for _, node in walk_positions(path.loop.body):
            if isinstance(node, Loop) and are_blocks(program, path.loop, node):
                yield path.position, node


def _and_then(found: Outward, step: Outward) -> Outward:
    leaning = dict.fromkeys((*found.assumptions, *step.assumptions))
    return Outward(step.program, (*found.moved, *step.moved), tuple(leaning))


def _is_plain(loop: Loop) -> bool:
    return loop.execution == "sequential" and not loop.private


def _same_range(one: Range, other: Range) -> bool:
    same = is_same(one.start, other.start) and is_same(one.stop, other.stop)
    return same and one.step == other.step


def _bounds(bounds: Range) -> set[str]:
    return {*variables(bounds.start), *variables(bounds.stop)}
