"""Which block an element is in, and where in it.

table[p], K[j - p * P]    ->    table[j // P], K[j % P]        blocks p of P elements each
scale[j0 // 16]           ->    scale[j // 16]                 j0 = 0, 16, 32, …
"""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.ir.affine import difference, is_same, product, simplified, total
from looptrans.ir.index import Arith, Index, Int, Var, children, rebuild, variables
from looptrans.ir.program import Node
from looptrans.ir.rewrite import indices_changed, value_changed
from looptrans.ir.value import Value
from looptrans.transforms.over_blocks.block_starts import linear_in


@dataclass(frozen=True, slots=True)
class BlockPlaces:
    """The blocks of elements that are counted from 0 on.

    Attributes:
        block: The variable of the loop over the blocks, which begins at 0.
        element: The variable that counts the elements.
        step: What the one goes up by.
        width: How many elements a block has.
    """

    block: str
    element: str
    step: int
    width: Index

    def value(self, value: Value) -> Value:
        """Return a value that says by the element which block it is in."""
        return value_changed(value, self.index)

    def body(self, body: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return nodes that say by the element which block it is in."""
        return indices_changed(body, self.index)

    def index(self, index: Index) -> Index:
        """Return an index expression that says by the element which block it is in."""
        if self.block not in variables(index):
            return index
        place = self._place(index)
        if place is not None:
            return place
        if index == Var(self.block):
            number = Arith("//", Var(self.element), self.width)
            return number if self.step == 1 else product(self.step, number)
        parts = tuple(self.index(part) for part in children(index))
        return simplified(rebuild(index, parts))

    def _place(self, index: Index) -> Index | None:
        """Return a multiple of the place in a block, and something that does not move with it."""
        parts = linear_in(index, self.block)
        found = None if parts is None else linear_in(parts[0], self.element)
        if parts is None or found is None or not isinstance(found[1], Int):
            return None
        (rest, count), times = found, found[1].value
        first = Int(1) if self.step > 1 else self.width
        back = difference(Int(0), parts[1])
        scaled = first if count == Int(1) else product(times, first)
        if not times or not is_same(back, scaled):
            return None
        return total(rest, product(times, Arith("%", Var(self.element), self.width)))
