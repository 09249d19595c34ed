"""Whether a reordering changes what reads get, where opaque terms leave sources inexact.

`interference` asks it of exact sources. Here more pairs of a write and a read may be listed than
occur, and more that touch one cell, so that only a `no` is sure: of three instances on one cell,
in the order

    other write, write, read      or      write, read, other write

none may become `write, other write, read`, and no read may come before its write.
"""

from __future__ import annotations

from typing import TypeAlias

import islpy as isl

from looptrans.analysis.dependence.flow import affine_dependences
from looptrans.analysis.isl_model.relation import Relation, Uncovered
from looptrans.analysis.legality.correspondence import Correspondence
from looptrans.analysis.legality.reversals import swapped
from looptrans.analysis.opaque_terms.opaque import opaque_dependences
from looptrans.ir.walk import live_out

_Pairs: TypeAlias = tuple[Relation, isl.Map]
"""A dependence and those of its pairs that are looked at."""


def keeps_values(made: Correspondence, reversed_: list[_Pairs]) -> bool:
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


def _keeps(made: Correspondence, reversed_: list[_Pairs], array: str) -> bool:
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
        or any(_comes_between(made, (flow, flow.pairs), each) for flow in flows for each in anti)
        or any(_comes_between(made, each, (flow, flow.pairs)) for flow in flows for each in output)
    )


def _is_late(made: Correspondence, flow: Relation) -> bool:
    """Tell whether a read may come before the write whose value it gets."""
    late = flow.pairs.intersect(swapped(made, flow.source, flow.sink))
    return not late.intersect_params(made.context).is_empty()


def _is_early(reversed_: _Pairs, read: Uncovered) -> bool:
    """Tell whether a write may come before a read of what was there before the program."""
    relation, pairs = reversed_
    return relation.source == read.sink and not pairs.intersect_domain(read.instances).is_empty()


def _comes_between(made: Correspondence, first: _Pairs, then: _Pairs) -> bool:
    """Tell whether a third instance on a cell may come between a write and a read of its value.

    One of the two pairs is the write and its read, the other has the third instance and is turned
    around: that comes between them unless it has moved past both.

    Args:
        made: The programs.
        first: The first two instances.
        then: The second of them and the third.
    """
    (start, _), (end, _) = first, then
    if start.sink != end.source:
        return False
    ends = first[1].apply_range(then[1])
    in_order = swapped(made, end.sink, start.source).reverse()
    return not ends.intersect(in_order).intersect_params(made.context).is_empty()
