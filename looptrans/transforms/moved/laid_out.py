"""How the parts of an array lie that each iteration of some loops has for itself.

Parts as long as the blocks that a loop goes over lie one behind the other, as the blocks do:

    for t in range(0, N, 16):        for t in range(0, N, 16):
        s = zeros(16)           ->
        … s[j - t] …                     … s[j] …

Others get a number, the same for the whole part:

    for h in range(0, H):            for h in range(0, H):
        s = zeros(N)            ->
        … s[j] …                         … s[h, j] …
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from looptrans.ir.affine import is_same, multiplied, total
from looptrans.ir.index import Index, Int, Var, variables
from looptrans.ir.program import Array, Assign, If, Loop, Program
from looptrans.ir.value import Access, Whole
from looptrans.ir.walk import accesses, nodes
from looptrans.transforms.editing.extents import extent, extents_of
from looptrans.transforms.editing.tree import LoopPath
from looptrans.transforms.over_blocks.whole_loops import are_blocks
from looptrans.transforms.steps.expand import dimension


@dataclass(frozen=True, slots=True)
class Layout:
    """An array with a part for each iteration of some loops.

    Attributes:
        shape: Its extents.
        parts: The subscripts that number parts; they come first.
        tiles: For each dimension of a part that continues that of the part before, where it begins.
    """

    shape: tuple[Index, ...]
    parts: tuple[Index, ...]
    tiles: dict[int, Index]

    @classmethod
    def of(
        cls, program: Program, array: Array, loops: Sequence[LoopPath], uses: Sequence[Access]
    ) -> Layout:
        """Lay out the parts of an array.

        Args:
            program: The program.
            array: The array that each iteration makes.
            loops: The loops around its creation, outermost first.
            uses: All accesses to it.

        Raises:
            RangeNotFound: How far a loop runs, or how large a part is, is not known.
        """
        own = list(extents_of(program, array))
        shape, parts, tiles = [], [], dict[int, Index]()
        for count, path in enumerate(loops, 1):
            room = dimension(program, path)
            # A block that may begin below 0 has no place that is named by where it begins.
            from_0 = room.subscript == Var(path.variable)
            free = (n for n in range(len(own)) if from_0 and n not in tiles)
            number = next((n for n in free if _continues(path.loop, n, own[n], uses)), None)
            if number is None:
                if any(_is_told_by(program, path.loop, inner.loop) for inner in loops[count:]):
                    continue
                shape.append(room.extent)
                parts.append(room.subscript)
                continue
            length = own[number]
            if path.loop.range.step > 1:
                # The last block begins before the end of the range, and may go beyond.
                own[number] = extent(program, total(room.extent, length, -1))
            else:
                own[number] = multiplied(room.extent, length)
            tiles[number] = _first(path.loop, length)
        return cls((*shape, *own), tuple(parts), tiles)

    def access(self, access: Access) -> Access:
        """Return the access to the part of the iteration it is made in."""
        inside = [
            index
            if isinstance(index, Whole) or number not in self.tiles
            else total(self.tiles[number], index)
            for number, index in enumerate(access.subscripts)
        ]
        return Access(access.array, (*self.parts, *inside))


def _is_told_by(program: Program, outer: Loop, inner: Loop) -> bool:
    """Tell whether a loop goes over one block of another: no position is in two of them."""
    return outer.variable in variables(inner.range.start) and are_blocks(program, outer, inner)


def _continues(loop: Loop, number: int, length: Index, uses: Sequence[Access]) -> bool:
    """Tell whether a dimension of a part lies where the block of its iteration does.

    Whatever is said of the block inside of the loop then is said of the part, too.
    """
    step = loop.range.step
    if not is_same(length, Int(step)) and (step != 1 or loop.range.start != Int(0)):
        return False
    first = _first(loop, length)
    for use in uses:
        index = use.subscripts[number] if number < len(use.subscripts) else Whole()
        if isinstance(index, Whole):
            return False
        place = total(first, index)
        if loop.variable in variables(place) and not _is_said(loop, place):
            return False
    return bool(uses)


def _is_said(loop: Loop, place: Index) -> bool:
    """Tell whether a loop finds something else at a place, or asks whether it is inside."""
    for node in nodes(loop.body):
        if isinstance(node, Assign | If):
            for each in accesses(node):
                for index in each.access.indices:
                    if loop.variable in variables(index) and is_same(index, place):
                        return True
    return False


def _first(loop: Loop, length: Index) -> Index:
    """Return where the block of an iteration begins."""
    here = Var(loop.variable)
    return here if loop.range.step > 1 else multiplied(here, length)
