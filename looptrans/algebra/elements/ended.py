"""Blocks whose elements count up to an end alone, as blocks that end there.

    for t in range((N + 15) // 16):                      the last block has N - 16 * t elements,
        for u in range(16):                              whatever is in the places behind them
            s[u] = x[16 * t + u] if 16 * t + u < N else -inf
        for u in range(16): m = max(m, s[u])

Where each block then surely has an element, it need not be shown what a block of places does of
which none counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.ir.affine import extremum
from looptrans.ir.condition import ALWAYS, Condition, Data, Every, conjunction
from looptrans.ir.program import If, Loop, Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Holds, Range, Reduce, Value, walk_value
from looptrans.transforms.editing.tree import Position, node_at, replace_at
from looptrans.transforms.over_blocks.block_passes import BlockPasses
from looptrans.transforms.over_blocks.whole_loops import block_in_whole, is_never_empty
from looptrans.transforms.rows.ends_asked import end_of


@dataclass(frozen=True, slots=True)
class Ended:
    """Blocks that end where their elements stop to count.

    Attributes:
        passes: The loops.
        before: What a block does.
        masks: The conditions of what is gathered where other elements have terms that add nothing.
    """

    passes: BlockPasses
    before: Recurrence
    masks: frozenset[Condition]


def ended(passes: BlockPasses, before: Recurrence, masks: Iterable[Condition]) -> Ended | None:
    """Let blocks end where all that is gathered over them ends.

    Args:
        passes: The loops.
        before: What a block does.
        masks: The conditions of what is gathered where other elements have terms that add nothing.

    Returns:
        The blocks; None where they end there already, or may have no element then.
    """
    found = [
        part.generators[0].condition
        for given in (*before.inputs, *before.parameters)
        for part in walk_value(given.value)
        if isinstance(part, Reduce) and _is_over(part, passes)
    ]
    common = [c for c in _each(found[0]) if all(c in _each(o) for o in found)] if found else []
    outer = node_at(passes.program, passes.position)
    assert isinstance(outer, Loop)
    for asked in dict.fromkeys(common):
        end = end_of(asked, passes.variable)
        if end is None:
            continue
        block = replace(passes.block, stop=extremum("min", (passes.block.stop, end)))
        known = block_in_whole(passes.program, outer, Loop(passes.variable, block, ()))
        single = [
            (after, place)
            for given, place in passes.one_by_one
            if known is not None and (after := _without(given, place, known[1], asked)) is not None
        ]
        if not single or not is_never_empty(outer, block):
            continue
        now = replace(passes, block=block, one_by_one=tuple(single), is_full=True)

        def change(part: Value, asked: Condition = asked, block: Range = block) -> Value | None:
            if not isinstance(part, Reduce) or not _is_over(part, passes):
                return None
            each = part.generators[0]
            here = replace(each, range=block, condition=_left(each.condition, asked))
            return replace(part, generators=(here,))

        inputs, parameters = (
            tuple(replace(given, value=replaced(given.value, change)) for given in each)
            for each in (before.inputs, before.parameters)
        )
        left = [_left(mask, asked) for mask in masks]
        step = replace(before, inputs=inputs, parameters=parameters)
        return Ended(now, step, frozenset(mask for mask in left if mask != ALWAYS))
    return None


def _is_over(whole: Reduce, passes: BlockPasses) -> bool:
    match whole.generators:
        case (each,):
            return each.variable == passes.variable and each.range == passes.block
        case _:
            return False


def _each(condition: Condition) -> tuple[Condition, ...]:
    match condition:
        case Every(parts):
            return tuple(each for part in parts for each in _each(part))
        case Data(Holds(inner)):
            return _each(inner)
        case _:
            return (condition,)


def _left(condition: Condition, asked: Condition) -> Condition:
    """Return what is left of a condition without one of its parts."""
    return conjunction(*(each for each in _each(condition) if each != asked))


def _without(program: Program, place: Position, whole: Range, asked: Condition) -> Program | None:
    """Let a loop end where its guard ends; None where it has none."""
    match node_at(program, place):
        case Loop(body=(If(condition, body, ()),)) as loop if asked in _each(condition):
            rest = _left(condition, asked)
            inner = body if rest == ALWAYS else (If(rest, body, ()),)
            return replace_at(program, place, (replace(loop, range=whole, body=inner),))
        case _:
            return None
