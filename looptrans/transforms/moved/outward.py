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

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from looptrans.ir.affine import extremum, is_same, product, sides, total
from looptrans.ir.condition import Relation, conjunction
from looptrans.ir.index import Index, Int, Var, variables
from looptrans.ir.program import If, Loop, Node, Program
from looptrans.ir.step import Image, Images
from looptrans.ir.value import Range
from looptrans.ir.verdict import Certificate, Verdict
from looptrans.ir.walk import inner_bodies, nodes, placed
from looptrans.transforms.editing.accesses import sites_of
from looptrans.transforms.editing.any_products import with_any_products
from looptrans.transforms.editing.finish import finished
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.substitute import rename_variable, without_binders
from looptrans.transforms.editing.tree import (
    LoopPath,
    Position,
    block_at,
    loop_paths,
    node_at,
    replace_at,
    statements_in,
    walk_positions,
)
from looptrans.transforms.judging.check import check_order
from looptrans.transforms.over_blocks.block_starts import linear_in
from looptrans.transforms.over_blocks.whole_loops import are_blocks
from looptrans.transforms.steps.fuse import with_comments

# Says what must be private to the iterations of a loop, by which contracts; None if not free.
IsFree: TypeAlias = Callable[[Program, LoopPath], tuple[tuple[str, ...], tuple[str, ...]] | None]


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
        said = [
            f"run {v} outside of {' and '.join(over)}" if over else f"make one loop over {v}"
            for v, over in self.moved
        ]
        return ", ".join(dict.fromkeys(said))

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        reason = "every read gets the value it got before"
        return Certificate("order", "no dependence is reversed", "legal", reason, self.assumptions)


def with_block_rows_outward(
    program: Program,
    free: IsFree = lambda program, path: None,
    stays: Callable[[Program, Position], bool] = lambda program, position: True,
) -> Outward | None:
    """Bring loops over the rows of a block directly inside of the loop over the blocks.

    Args:
        program: The program.
        free: As for `brought_outward`.
        stays: Tells of a loop that was brought outward, by its place, whether it is to stay there.

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
            step = brought_outward(found.program, (*position, 0), wanted, free=free)
            if step is not None and stays(step.program, (*position, 0)):
                found = and_then(found, step)
                changed = True
                break
    return found if found.moved else None


def brought_outward(
    program: Program,
    position: Position,
    wanted: Loop,
    *,
    beside: bool = True,
    free: IsFree = lambda program, path: None,
) -> Outward | None:
    """Make a node one loop that has the range of a loop inside of it, where that is allowed.

    Args:
        program: The program.
        position: Where the node stands; the first of its block where others stand beside it.
        wanted: The loop.
        beside: Whether all that stands beside it goes into the loop, too.
        free: Tells of a loop whether the text shows that its iterations may run in any order.
            Each of them does what it did in the same order, so that is enough.
    """
    body = block_at(program, position) if beside else (node_at(program, position),)
    try:
        # Rows of a block are as many wherever they stand in it.
        bounds = wanted.range if beside else _widest(body, wanted)
        work = _Gathering(program, wanted, bounds)
        loop = work.block(body)
    except _NotGathered:
        return None
    after = program
    for number in reversed(range(1, len(body))):
        after = replace_at(after, (*position[:-1], number), ())
    after = replace_at(after, position, (loop,))
    after, images = finished(after, _images(program, after, work))
    moved = ((wanted.variable, tuple(dict.fromkeys(work.over))),)
    whole = node_at(after, position)
    assert isinstance(whole, Loop)
    shown = free(after, LoopPath(whole, position)) if work.is_covered else None
    if shown is None or not all(work.is_of_one_part(after, name) for name in shown[0]):
        verdict = _judged(program, after, images)
        if verdict.decision != "legal":
            return None
        shown = (), verdict.assumptions
    return Outward(after, moved, shown[1])


def and_then(found: Outward, step: Outward) -> Outward:
    """Return what two steps do one after the other."""
    leaning = dict.fromkeys((*found.assumptions, *step.assumptions))
    return Outward(step.program, (*found.moved, *step.moved), tuple(leaning))


class _NotGathered(Exception):
    """Something stands there that is not part of the loop."""


@dataclass(slots=True)
class _Gathering:
    """Makes one loop of blocks.

    Attributes:
        program: The program before.
        wanted: A loop with the variable that the one loop has.
        range: The range that the one loop has.
        over: The loops it is brought out of.
        renamed: By label, what variables of the loops around a statement are called now.
        is_covered: Whether the one loop plainly goes over all that each of them does.
        parts: The labels of the statements that each of them holds.
    """

    program: Program
    wanted: Loop
    range: Range
    over: list[str] = field(default_factory=list)
    renamed: dict[str, dict[str, str]] = field(default_factory=dict)
    is_covered: bool = True
    parts: list[frozenset[str]] = field(default_factory=list)

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
            case Loop() if self._is_part(node) and not self._holds(node):
                return self._whole(node)
            case Loop(body=(_, *_)) if node.is_plain:
                inner = self.block(node.body)
                if node.variable in inner.range.variables:
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

    def is_of_one_part(self, after: Program, array: str) -> bool:
        """Tell whether only one of the loops knows an array: none hands anything to another."""
        labels = {site.place.label for site in sites_of(after, array)}
        return any(labels <= part for part in self.parts)

    def _holds(self, loop: Loop) -> bool:
        """Tell whether the loop that is wanted is inside of another one."""
        name = self.wanted.variable
        return any(
            isinstance(n, Loop) and n.variable == name and self._is_part(n)
            for n in nodes(loop.body)
        )

    def _is_part(self, loop: Loop) -> bool:
        """Tell whether a loop plainly goes over a part of what the one loop goes over."""
        if _same_range(loop.range, self.wanted.range):
            return True
        return loop.range.step == self.range.step == 1 and any(self._shared_ends(loop))

    def _shared_ends(self, loop: Loop) -> tuple[bool, bool]:
        """Tell whether a loop plainly begins and ends within the one loop."""
        own, whole = loop.range, self.range
        begins = any(is_same(start, whole.start) for start in sides("max", own.start))
        return begins, any(is_same(stop, whole.stop) for stop in sides("min", own.stop))

    def _whole(self, loop: Loop) -> Loop:
        """Return a loop over a part as the one loop, which asks where the part begins and ends."""
        here = self._named(loop)
        self.parts.append(frozenset(statements_in((here,))))
        if _same_range(loop.range, self.range):
            return here
        if loop.range.step != 1:
            self.is_covered &= is_same(loop.range.start, self.range.start)
        elif not _same_range(loop.range, self.wanted.range):
            self.is_covered &= all(self._shared_ends(loop))
        i = Var(here.variable)
        starts, stops = sides("max", self.range.start), sides("min", self.range.stop)
        asked = [
            *(Relation("<=", s, i) for s in sides("max", loop.range.start) if s not in starts),
            *(Relation("<", i, s) for s in sides("min", loop.range.stop) if s not in stops),
        ]
        body = (If(conjunction(*asked), here.body),) if asked else here.body
        return replace(here, range=self.range, body=body)

    def _named(self, loop: Loop) -> Loop:
        """Return a loop with the variable that is wanted."""
        old, new = loop.variable, self.wanted.variable
        if not loop.is_plain:
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


def _images(program: Program, after: Program, work: _Gathering) -> dict[str, Image]:
    """Return which instances before those afterwards stand for."""
    images = {}
    earlier = {place.label: place for place in placed(program)}
    for place in placed(after):
        names = work.renamed.get(place.label, {})
        loops = earlier[place.label].loops
        indices = tuple(Var(names.get(loop.variable, loop.variable)) for loop in loops)
        images[place.label] = Image(place.label, indices)
    return images


def _judged(program: Program, after: Program, images: Images) -> Verdict:
    """Say whether the new order is allowed."""
    plain = with_any_products(program, after)
    if plain is None:
        return check_order(program, after, images)
    one, other = plain
    return check_order(one, other, images, tried=False)


def _split_blocks(program: Program) -> Iterator[tuple[Position, Loop]]:
    """Yield loops over blocks that hold a loop over a block's rows, but not as all they hold."""
    for path in loop_paths(program):
        if not path.loop.is_plain:
            continue
        match path.loop.body:
            case (Loop() as only,) if are_blocks(program, path.loop, only):
                continue
            case _:
                pass
        for _, node in walk_positions(path.loop.body):
            if isinstance(node, Loop) and are_blocks(program, path.loop, node):
                yield path.position, node


def _same_range(one: Range, other: Range) -> bool:
    same = is_same(one.start, other.start) and is_same(one.stop, other.stop)
    return same and one.step == other.step


def _widest(body: tuple[Node, ...], wanted: Loop) -> Range:
    """Return a range that a loop stays in, whatever loops between a block and it come to.

    Raises:
        _NotGathered: None is plain.
    """
    between = _loops_to(body, wanted)
    start, stop = wanted.range.ends
    if wanted.range.step < 1:
        if {loop.variable for loop in between} & wanted.range.variables:
            raise _NotGathered
        return wanted.range
    for loop in reversed(between):
        start, stop = _outermost("max", start, loop), _outermost("min", stop, loop)
    return Range(start, stop, wanted.range.step)


def _loops_to(body: tuple[Node, ...], wanted: Loop) -> list[Loop]:
    """Return the loops of a block around one that is somewhere inside."""
    for node in body:
        if node is wanted:
            return []
        if any(each is wanted for each in nodes((node,))):
            inside = [each for inner in inner_bodies(node) for each in inner]
            return [*([node] if isinstance(node, Loop) else []), *_loops_to(tuple(inside), wanted)]
    raise _NotGathered


def _outermost(op: str, end: Index, loop: Loop) -> Index:
    """Return how far out an end of a loop lies at most while a loop around it runs.

    Args:
        op: `max` for where it begins, `min` for where it ends.
        end: The end.
        loop: The loop around it.
    """
    parts = sides(op, end)
    fixed = [part for part in parts if loop.variable not in variables(part)]
    if fixed:
        return extremum(op, fixed)
    if loop.range.step < 1:
        raise _NotGathered
    found = []
    for part in parts:
        linear = linear_in(part, loop.variable)
        match linear:
            case (rest, Int(factor)):
                first = (factor > 0) == (op == "max")
                place = loop.range.start if first else total(loop.range.stop, -1)
                found.append(total(rest, product(factor, place)))
            case _:
                raise _NotGathered
    return extremum(op, found)
