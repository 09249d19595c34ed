"""What is kept of the iteration that attains a maximum or minimum, for a whole block at once.

    k = j if s > best else k        best_block = max over j of s
    best = max(best, s)             k = (first j whose s is best_block) if best_block > best else k
                                    best = max(best, best_block)

That this is what the iterations do one by one is what `looptrans.algebra.appending.append` proves.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from looptrans.algebra.appending.append_state import AppendedState, Comparison, Pick
from looptrans.blocks.block_ir.arithmetic import as_float, both
from looptrans.blocks.block_ir.expr import Binary, Dim, Expr, Name, Number, Position, Where, kind_of
from looptrans.blocks.block_ir.identities import identity
from looptrans.blocks.lowering.builder import Builder
from looptrans.blocks.lowering.contraction import reduced
from looptrans.ir.monoids import Monoid


@dataclass(frozen=True, slots=True)
class Attained:
    """The extremum of a block.

    Attributes:
        elements: What the iterations offer.
        extremum: The largest, or smallest, of them.
        mask: Which of the iterations count.
        rises: For each way to compare, whether it takes the place of the old one.
    """

    elements: Expr
    extremum: Name
    mask: Expr | None
    rises: dict[Comparison, Name] = field(default_factory=dict)


def attained(
    b: Builder,
    of: AppendedState,
    picks: list[Pick],
    dim: Dim,
    elements: Expr,
    old: Expr,
    mask: Expr | None,
) -> Attained:
    """Work out the extremum of a block, and whether it takes the place of the old one.

    Args:
        b: The kernel.
        of: The state that is the extremum.
        picks: When states are set to what attains it.
        dim: The dimension of the block.
        elements: What the iterations offer.
        old: The extremum before the block.
        mask: Which of the iterations count.
    """
    name = of.access.array
    if kind_of(elements) != "int":
        elements, old = as_float(elements), as_float(old)
    if not isinstance(elements, Name):
        # One number for the extremum and for what is compared with it.
        elements = b.named(b.name(f"{name}_offered", ("offered", elements)), elements)
    extremum = b.named(
        b.name(f"{name}_block", ("block", elements)), reduced(b, of.operator, elements, dim, mask)
    )
    found = Attained(elements, extremum, mask)
    for pick in picks:
        if pick.comparison not in found.rises:
            word = "moves" if pick.is_strict else "attains"
            chosen = b.name(f"{name}_{word}", (word, elements))
            found.rises[pick.comparison] = b.named(chosen, Binary(pick.comparison, extremum, old))
    return found


def picked(b: Builder, found: Attained, pick: Pick, dim: Dim, offered: Expr, old: Expr) -> Expr:
    """Return a picked state after a block.

    Args:
        b: The kernel.
        found: The extremum of the block.
        pick: When the state is set.
        dim: The dimension of the block.
        offered: What the iterations offer the state.
        old: The state before the block.
    """
    attains = both(found.mask, Binary("==", found.elements, found.extremum))
    place = Position(dim)
    order: Monoid = "min" if pick.is_strict else "max"
    at = reduced(b, order, place, dim, attains)
    rises: Expr | None = found.rises[pick.comparison]
    if offered != place or not pick.is_strict:
        at = b.named(
            b.name(f"{dim.name}_attained", ("attained", pick.comparison, found.extremum.name)), at
        )
    if not pick.is_strict and found.mask is not None:
        # As small as what was there may also be a block of which nothing counts.
        rises = both(rises, Binary("!=", at, Number(identity(order, place))))
    if offered != place:
        at = reduced(b, "+", offered, dim, Binary("==", place, at))
    assert rises is not None
    return Where(rises, at, old)
