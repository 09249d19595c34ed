"""The moves that steps are made by, under the names that saved derivations give them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from looptrans.adjoint.rewriting.simpler import ALIKE, BLOCKS, ORDER, PLACES, ROWS, TO_ROWS
from looptrans.adjoint.rewriting.spelled import LOOPS
from looptrans.derivation.as_a_row.coalesced import coalesced
from looptrans.derivation.as_a_row.continued import continued
from looptrans.derivation.as_a_row.grids import grid_loops
from looptrans.derivation.as_a_row.in_turn import concatenated, in_turn
from looptrans.derivation.backward import adjoint, extrema_spelled, hand_over, nest
from looptrans.derivation.forms.versions import versions
from looptrans.derivation.handed_on.by_rows import by_rows
from looptrans.derivation.handed_on.own_part import own_part
from looptrans.derivation.handed_on.row_by_row import row_by_row
from looptrans.derivation.handed_on.scattered import scatter
from looptrans.derivation.handed_on.states import in_state
from looptrans.derivation.handed_on.whole_rows import looked_up, whole_rows
from looptrans.derivation.joined.loops_as_sums import loop_as_sum
from looptrans.derivation.joined.one_nest import one_nest
from looptrans.derivation.joined.one_pass import one_pass
from looptrans.derivation.joined.passes import sum_as_loop
from looptrans.derivation.joined.sharing import one_launch
from looptrans.derivation.joined.with_atomics import with_atomics
from looptrans.derivation.joined.worked_out_again import (
    results_worked_out_again,
    rows_worked_out_again,
    worked_out_again,
)
from looptrans.derivation.one_loop.blocks import in_blocks
from looptrans.derivation.one_loop.digits import digit_loops
from looptrans.derivation.one_loop.guard import guard, without_choices
from looptrans.derivation.one_loop.logarithms import logarithms_closed
from looptrans.derivation.one_loop.parts import in_parts
from looptrans.derivation.one_loop.state import change_and_guard, change_state, divide_behind
from looptrans.derivation.one_loop.two_nests import in_two_nests
from looptrans.derivation.ordinary import contract, in_parallel, seen_simpler, transformed
from looptrans.derivation.step import Argument, DerivationStep, NotDone
from looptrans.ir.program import Program

Move = Callable[..., DerivationStep]

# For each kind: the move, and the types of its arguments; the last type may come again.
MOVES: Final[dict[str, tuple[Move, tuple[type, ...]]]] = {
    **{kind: (seen_simpler(kind), ()) for kind in (*ORDER, *PLACES, ALIKE, ROWS, TO_ROWS, BLOCKS)},
    "worked out again": (worked_out_again, ()),
    "rows worked out again": (rows_worked_out_again, ()),
    "results worked out again": (results_worked_out_again, ()),
    "logarithms": (logarithms_closed, ()),
    "own part": (own_part, (str,)),
    "row by row": (row_by_row, (str,)),
    "state": (in_state, (str,)),
    "sum as a loop": (sum_as_loop, (str,)),
    "loop as sum": (loop_as_sum, (str,)),
    "whole rows": (whole_rows, (str,)),
    "looked up": (looked_up, (str,)),
    "one pass": (one_pass, (str,)),
    "guard": (guard, (str,)),
    "choices": (without_choices, (str,)),
    "change of state": (change_state, (str,)),
    "guarded change of state": (change_and_guard, (str,)),
    "division behind": (divide_behind, (str,)),
    "contraction": (contract, (str,)),
    "transformation": (transformed, (str,)),
    "parallel": (in_parallel, (str,)),
    "blocks": (in_blocks, (str, int)),
    "digits": (digit_loops, (str, str)),
    "coalesced": (coalesced, (int,)),
    "concatenated": (concatenated, ()),
    "in turn": (in_turn, (str,)),
    "continued": (continued, ()),
    "grid": (grid_loops, (str, str, str, str)),
    "parts": (in_parts, (str, int)),
    "by rows": (by_rows, (str,)),
    "two nests": (in_two_nests, (str, str)),
    LOOPS: (extrema_spelled, (str,)),
    "hand over": (hand_over, (str, str)),
    "adjoint": (adjoint, (int, str, str)),
    "backward nest": (nest, (int, str, str, int, str)),
    "one launch": (one_launch, (str, str)),
    "one nest": (one_nest, (str, str)),
    "atomics": (with_atomics, (str,)),
    "scatter": (scatter, (str,)),
    "versions": (versions, (str,)),
}
_SEVERAL: Final = ("one pass", "parallel")

MOST: Final = 1024
"""How many moves are kept before all are forgotten."""
# Ways to derive a nest begin alike. With what a move gave its program is kept: no other can then
# have its identity, and to compare whole programs would take as long as many a move.
_kept: dict[tuple[int, str, tuple[Argument, ...]], tuple[Program, DerivationStep | NotDone]] = {}


def made(kind: str, program: Program, arguments: tuple[Argument, ...]) -> DerivationStep:
    """Make a step.

    Raises:
        NotDone: The move does not apply, or could not be shown to be right; or there is none of
            this kind that takes such arguments.
    """
    if kind not in MOVES:
        raise NotDone(f"there is no kind of step called {kind!r}", "illegal")
    move, types = MOVES[kind]
    fits = len(arguments) >= len(types) if kind in _SEVERAL else len(arguments) == len(types)
    wanted = (*types, *(types[-1:] * (len(arguments) - len(types))))
    if not fits or any(type(a) is not t for a, t in zip(arguments, wanted, strict=True)):
        raise NotDone(f"a step {kind!r} is not given {arguments!r}", "illegal")
    key = (id(program), kind, arguments)
    if key not in _kept:
        answer = _tried(move, program, arguments)
        if len(_kept) >= MOST:
            _kept.clear()
        _kept[key] = program, answer
    _, found = _kept[key]
    if isinstance(found, NotDone):
        raise found.with_traceback(None)
    return found


def _tried(
    move: Move, program: Program, arguments: tuple[Argument, ...]
) -> DerivationStep | NotDone:
    try:
        return move(program, *arguments)
    except NotDone as error:
        error.__context__ = None  # with its traceback would be kept whatever stood on the stack
        return error.with_traceback(None)
