"""Ways to see a listing more simply, which the derivations of both passes begin with.

    for j0 in range(0, N, 16):                          for i in range(0, M):
        for i in range(0, M):                               for j in range(0, N):
            for j in range(j0, min(j0 + 16, N)):    ->          m[i] = max(m[i], S[i, j])
                m[i] = max(m[i], S[i, j])

Each way leads to another listing that means the same. Where one of them goes, all of them are tried
again: what one way makes plain, another one needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from looptrans.adjoint.normalizing.lets import program_of_indices, with_sizes_put_in
from looptrans.adjoint.normalizing.picking import Picked, with_picks_added
from looptrans.adjoint.rewriting.alike import Alike, with_sums_alike
from looptrans.adjoint.rewriting.along_rows import AlongRows, with_sums_along_rows
from looptrans.adjoint.rewriting.attaining import Attaining, with_extrema_written
from looptrans.adjoint.rewriting.cells_in_steps import CellsInSteps, with_cells_set_once
from looptrans.adjoint.rewriting.divided import Divided, with_weights_divided
from looptrans.adjoint.rewriting.few_iterations import FewIterations, with_few_iterations
from looptrans.adjoint.rewriting.first_terms import Begun, with_first_terms_inside
from looptrans.adjoint.rewriting.guarded_cells import GuardedCells, with_guarded_cells
from looptrans.adjoint.rewriting.inner_sums import InnerSums, with_inner_sums
from looptrans.adjoint.rewriting.last_terms import Ahead, with_last_terms_ahead
from looptrans.adjoint.rewriting.mirrored import Mirrored, with_mirrors_apart
from looptrans.adjoint.rewriting.order import (
    with_loops_outward,
    with_numbers_inward,
    with_numbers_out_of_the_way,
    with_numbers_to_rows,
    with_rows_from_0,
    with_rows_outward,
)
from looptrans.adjoint.rewriting.own_names import OwnNames, with_own_names
from looptrans.adjoint.rewriting.repetitions import Repetitions, with_repetitions_written_out
from looptrans.adjoint.rewriting.row_parts import RowParts, with_parts_of_rows
from looptrans.adjoint.rewriting.same_iterations import SameIterations, with_same_iterations_alike
from looptrans.adjoint.rewriting.same_names import SameNames, with_same_names
from looptrans.adjoint.rewriting.set_at_once import ValuesFirst, with_values_first
from looptrans.adjoint.rewriting.tabulated import Tabulated, with_products_tabulated
from looptrans.adjoint.rewriting.webs import Webs, with_webs_named
from looptrans.adjoint.rewriting.weights_apart import WeightsApart, with_weights_apart
from looptrans.adjoint.rewriting.within import Within, with_loops_within
from looptrans.adjoint.rewriting.written_alike import WrittenAlike, with_values_alike
from looptrans.algebra.elements.one_by_one import OneByOne, one_by_one
from looptrans.ir.program import Program
from looptrans.ir.verdict import Certificate
from looptrans.transforms.moved.anew import MadeOnce, with_arrays_made_once
from looptrans.transforms.moved.guards_inward import Asked
from looptrans.transforms.moved.known_iterations import Known, with_known_iterations
from looptrans.transforms.moved.one_cell import OneCell, with_single_cells_as_scalars
from looptrans.transforms.moved.outward import Outward
from looptrans.transforms.moved.values_inward import Inward
from looptrans.transforms.over_blocks.counted_blocks import CountedBlocks, with_blocks_counted
from looptrans.transforms.over_blocks.whole_loops import WholeLoops, with_whole_loops
from looptrans.transforms.rows.guarded_ends import Ended, with_guarded_ends
from looptrans.transforms.rows.guarded_rows import GuardedRows, with_guarded_rows
from looptrans.transforms.rows.guarded_starts import GuardedStarts
from looptrans.transforms.rows.idle_guards import Unasked, with_idle_guards_out
from looptrans.transforms.rows.shift import (
    Shifted,
    with_parts_from_0,
    with_rows_by_distance,
    with_rows_in_place,
)


@dataclass(frozen=True, slots=True)
class _Sized:
    """A listing with sizes put in."""

    program: Program
    text: str = "put sizes in for the scalars that stand for them"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "a scalar set once, from sizes and given numbers alone, is that number throughout"
        return Certificate("storage", law, "legal", "they are the same in every iteration")


_Seen: TypeAlias = (
    _Sized
    | Ahead
    | AlongRows
    | Alike
    | Asked
    | Unasked
    | Attaining
    | Begun
    | CellsInSteps
    | CountedBlocks
    | Divided
    | Ended
    | FewIterations
    | GuardedCells
    | GuardedRows
    | GuardedStarts
    | InnerSums
    | Inward
    | Known
    | MadeOnce
    | Mirrored
    | OwnNames
    | Outward
    | WholeLoops
    | WeightsApart
    | OneByOne
    | OneCell
    | Shifted
    | Tabulated
    | Picked
    | ValuesFirst
    | Webs
    | Within
    | Repetitions
    | RowParts
    | SameIterations
    | SameNames
    | WrittenAlike
)

# No loops of one iteration nor arrays of one cell, parts of rows from 0 on, what is the same in the
# same words, loops over all of what blocks are of, and what is free outside of what carries.
ORDER: Final = (
    "known iterations",
    "parts from 0",
    "rows by distance",
    "single cells",
    "same names",
    "written alike",
    "same iterations",
    "few iterations",
    "guarded cells",
    "cells in steps",
    "idle guards",
    "guarded rows",
    "own names",
    "weights divided",
    "weights apart",
    "first terms",
    "last terms",
    "guarded ends",
    "tiles made once",
    "rows outward",
    "whole loops",
    "loops within",
    "loops outward",
    "numbers out of the way",
    "elements",
    "along rows",
    "tabulated",
)
# Equal sums in the same words.
ALIKE: Final = "sums alike"
# Loops over rows that are free but for what all of them add to.
ROWS: Final = "parts of rows"
# Loops over rows that stand directly in each other.
TO_ROWS: Final = "numbers to rows"
# Loops over the same rows that use one name, of which each keeps states of its own.
NAMES: Final = "own names throughout"
# Arrays that nests overwrite one after the other, with a name for each web.
WEBS: Final = "webs named"
# Cells that are not those of an iteration, in nests of their own.
MIRRORS: Final = "mirrors apart"
# The iterations of loops of a few, one after the other; those of loops inside of others as well.
LAYERS: Final = "layers written out"
REPETITIONS: Final = "repetitions written out"
# Numbers that loops inside of others add up, as sums.
SUMS: Final = "inner sums"
# Loops in steps as loops over how many steps there are.
BLOCKS: Final = "blocks counted"
# Sizes where integer scalars stand for them.
SIZES: Final = "sizes"
# What a statement sets at once, one after the other.
AT_ONCE: Final = "values first"
# Rows where they are, arrays that are set once, extrema written as such, and nests with nothing
# between their loops.
PLACES: Final = (
    "made once",
    "rows in place",
    "extrema",
    "picked",
    "numbers inward",
    "guarded starts",
)


@dataclass(frozen=True, slots=True)
class Simpler:
    """A listing that means the same.

    Attributes:
        kind: The way that led there.
        text: What was done, as a phrase.
        program: The listing.
        certificates: What shows that the two mean the same.
    """

    kind: str
    text: str
    program: Program
    certificates: tuple[Certificate, ...]


def simpler(program: Program, kinds: tuple[str, ...]) -> Simpler | None:
    """Take the first way that leads anywhere.

    Args:
        program: The program.
        kinds: The ways to try, in this order, out of `ORDER`, `PLACES` and the constants here.
    """
    for kind in kinds:
        found = _WAYS[kind](program)
        if found is not None and found.program != program:
            certificates = (
                found.certificates
                if isinstance(found, OneByOne | Tabulated)
                else (found.certificate,)
            )
            return Simpler(kind, found.text, found.program, certificates)
    return None


def why_blocks_stay(program: Program) -> tuple[str, ...]:
    """Return why loops over blocks that go over each block several times are left as they are."""
    return one_by_one(program_of_indices(program))[1]


_WAYS: Final[dict[str, Callable[[Program], _Seen | None]]] = {
    SIZES: lambda p: _Sized(with_sizes_put_in(p)),
    "idle guards": lambda p: with_idle_guards_out(program_of_indices(p)),
    "guarded rows": lambda p: with_guarded_rows(program_of_indices(p)),
    "known iterations": lambda p: with_known_iterations(program_of_indices(p)),
    "parts from 0": lambda p: with_parts_from_0(program_of_indices(p)),
    "rows by distance": lambda p: with_rows_by_distance(program_of_indices(p)),
    "single cells": lambda p: with_single_cells_as_scalars(program_of_indices(p)),
    "written alike": lambda p: with_values_alike(program_of_indices(p)),
    "same names": lambda p: with_same_names(program_of_indices(p)),
    "same iterations": lambda p: with_same_iterations_alike(program_of_indices(p)),
    "few iterations": lambda p: with_few_iterations(program_of_indices(p)),
    "guarded cells": lambda p: with_guarded_cells(program_of_indices(p)),
    "cells in steps": lambda p: with_cells_set_once(program_of_indices(p)),
    "own names": with_own_names,
    AT_ONCE: with_values_first,
    NAMES: lambda p: with_own_names(p, throughout=True),
    WEBS: lambda p: with_webs_named(program_of_indices(p)),
    MIRRORS: with_mirrors_apart,
    LAYERS: lambda p: with_repetitions_written_out(program_of_indices(p)),
    REPETITIONS: lambda p: with_repetitions_written_out(program_of_indices(p), throughout=True),
    SUMS: lambda p: with_inner_sums(program_of_indices(p)),
    BLOCKS: lambda p: with_blocks_counted(program_of_indices(p)),
    "weights divided": lambda p: with_weights_divided(program_of_indices(p)),
    "weights apart": lambda p: with_weights_apart(program_of_indices(p)),
    "last terms": lambda p: with_last_terms_ahead(program_of_indices(p)),
    "first terms": lambda p: with_first_terms_inside(program_of_indices(p)),
    "guarded ends": lambda p: with_guarded_ends(program_of_indices(p)),
    "tiles made once": lambda p: with_arrays_made_once(program_of_indices(p), tiles=True),
    "rows outward": lambda p: with_rows_outward(program_of_indices(p)),
    "whole loops": lambda p: with_whole_loops(program_of_indices(p)),
    "loops within": lambda p: with_loops_within(program_of_indices(p)),
    "loops outward": lambda p: with_loops_outward(program_of_indices(p)),
    "numbers out of the way": lambda p: with_numbers_out_of_the_way(program_of_indices(p)),
    "elements": lambda p: one_by_one(program_of_indices(p))[0],
    "along rows": lambda p: with_sums_along_rows(program_of_indices(p)),
    "tabulated": lambda p: with_products_tabulated(program_of_indices(p)),
    ALIKE: with_sums_alike,
    "guarded starts": lambda p: with_rows_from_0(program_of_indices(p)),
    TO_ROWS: lambda p: with_numbers_to_rows(program_of_indices(p)),
    ROWS: lambda p: with_parts_of_rows(program_of_indices(p)),
    "made once": with_arrays_made_once,
    "rows in place": lambda p: with_rows_in_place(program_of_indices(p)),
    "extrema": with_extrema_written,
    "picked": with_picks_added,
    "numbers inward": lambda p: with_numbers_inward(program_of_indices(p)),
}
