"""Whether a reordering changes what reads get, where opaque terms leave sources inexact.

`interference` asks it of exact sources. Here more pairs of a write and a read may be listed than
occur, and more that touch one cell, so that only a `no` is sure: of three instances on one cell,
in the order

    other write, write, read      or      write, read, other write

none may become `write, other write, read`, and no read may come before its write.
"""

from __future__ import annotations

import islpy as isl

from looptrans.analysis.correspondence import Correspondence
from looptrans.analysis.flow import affine_dependences
from looptrans.analysis.opaque import opaque_dependences
from looptrans.analysis.relation import Relation, Uncovered
from looptrans.analysis.reversals import swapped
from looptrans.ir.walk import live_out


def keeps_values(made: Correspondence, reversed_: list[tuple[Relation, isl.Map]]) -> bool:
    """Tell whether every read certainly gets the value of the same write as before.

    Args:
        made: The programs, with the same private copies.
        reversed_: The dependences in memory that no longer run in order, with the pairs.
    """
    seen = live_out(made.before.program)
    if any(relation.kind == "output" and relation.array in seen for relation, _ in reversed_):
        return False
    arrays = list(dict.fromkeys(relation.array for relation, _ in reversed_))
    return all(_keeps(made, reversed_, array) for array in arrays)


def _keeps(made: Correspondence, reversed_: list[tuple[Relation, isl.Map]], array: str) -> bool:
    model = made.before
    opaque = any(access.all_terms for access in model.accesses if access.array == array)
    found = opaque_dependences if opaque else affine_dependences
    flows, uncovered = found(model, [array], ("value",))
    turned = [(r, pairs) for r, pairs in reversed_ if r.array == array]
    anti = [(r, pairs) for r, pairs in turned if r.kind == "anti"]
    output = [(r, pairs) for r, pairs in turned if r.kind == "output"]
    return not (
        any(_is_late(made, flow) for flow in flows)
        or any(_is_early(each, read) for each in anti for read in uncovered)
        or any(_comes_after_all(made, flow, *each) for flow in flows for each in anti)
        or any(_comes_before_all(made, flow, *each) for flow in flows for each in output)
    )


def _is_late(made: Correspondence, flow: Relation) -> bool:
    """Tell whether a read may come before the write whose value it gets."""
    late = flow.pairs.intersect(swapped(made, flow.source, flow.sink))
    return not late.intersect_params(made.context).is_empty()


def _is_early(reversed_: tuple[Relation, isl.Map], read: Uncovered) -> bool:
    """Tell whether a write may come before a read of what was there before the program."""
    relation, pairs = reversed_
    return relation.source == read.sink and not pairs.intersect_domain(read.instances).is_empty()


def _comes_after_all(made: Correspondence, flow: Relation, anti: Relation, pairs: isl.Map) -> bool:
    """Tell whether a write after a read may come between it and the write it gets its value from.

    Args:
        made: The programs.
        flow: Writes and the reads of their values.
        anti: Reads and later writes.
        pairs: Those of them that are turned around.
    """
    if anti.source != flow.sink:
        return False
    both = flow.pairs.apply_range(pairs)
    between = swapped(made, anti.sink, flow.source).reverse()
    return not both.intersect(between).intersect_params(made.context).is_empty()


def _comes_before_all(
    made: Correspondence, flow: Relation, output: Relation, pairs: isl.Map
) -> bool:
    """Tell whether a write before a write may come between that and a read of its value.

    Args:
        made: The programs.
        flow: Writes and the reads of their values.
        output: Writes and later writes.
        pairs: Those of them that are turned around.
    """
    if output.sink != flow.source:
        return False
    both = pairs.apply_range(flow.pairs)
    between = swapped(made, flow.sink, output.source).reverse()
    return not both.intersect(between).intersect_params(made.context).is_empty()
