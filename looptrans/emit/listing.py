"""From a listing to the text of its module: derived, lowered, printed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from looptrans.adjoint.rewriting.gathered import Gathered, with_sums_gathered
from looptrans.adjoint.rewriting.mirrored import Mirrored, with_mirrors_apart
from looptrans.adjoint.rewriting.repetitions import Repetitions, with_repetitions_written_out
from looptrans.blocks.block_ir.ops import MOST_DIMS, has_products, most_dims, stored_blocks
from looptrans.blocks.block_ir.program import BlockProgram, NotLowered, Rounding
from looptrans.blocks.fitting.whole_rows import (
    multiplies_over_lanes,
    multiplies_whole_rows,
    repeats_products,
    stores_rows_of_products,
)
from looptrans.blocks.lower import lower
from looptrans.blocks.scheduled.reach import below, reached
from looptrans.blocks.scheduled.serial import OneRowEach
from looptrans.derivation.derive import NESTS, Nests, derive
from looptrans.derivation.joined.buffers import reused
from looptrans.derivation.one_loop.digits import loops_of_digits
from looptrans.derivation.step import Derivation, NotDone
from looptrans.emit.identifiers import identifier
from looptrans.emit.module import module, names
from looptrans.emit.notes import notes_on
from looptrans.emit.refusal import Races, Refused, Unseen
from looptrans.ir.program import Assign, Loop, Program
from looptrans.ir.value import Read, Reduce, walk_value
from looptrans.ir.walk import is_parallel, live_out, nodes
from looptrans.transforms.judging.check import check_races
from looptrans.version import __version__


@dataclass(frozen=True, slots=True)
class Emitted:
    """A listing as a module of kernels.

    Attributes:
        name: What its file is called, without `.py`.
        launcher: What its launcher is called: the same, unless that name has a meaning already.
        text: The module.
        blocks: What was printed.
    """

    name: str
    launcher: str
    text: str
    blocks: BlockProgram


def lowered(
    program: Program, *, rounded: Rounding | None = None, constant: bool = False
) -> BlockProgram:
    """Return a listing as operations on blocks.

    Args:
        program: The listing.
        rounded: Which operands of matrix products are rounded to 16 bits, see `lower`.
        constant: Whether it may make what it returns and do no more, as where gradients are all 0.

    Raises:
        Refused: It cannot be run in blocks.
    """
    if not any(isinstance(node, Assign) for node in nodes(program.body)):
        if constant:
            try:
                return lower(derive(program, "fold"), rounded=rounded)
            except NotLowered as error:
                raise Refused(error, program, program) from None
        raise Refused(NotLowered("there is no statement in it"), program, program)
    if not live_out(program):
        reason = "nothing is returned, and no argument is written"
        raise Refused(Unseen(reason), program, program)
    _require_no_races(program)
    refusal: Refused | None = None
    one_each: Derivation | None = None
    joined = summed = False
    # Nests that are not joined, and what a kernel cannot keep, go through memory, from one kernel
    # to the next.
    for nests, own in _ways(program):
        if nests == "as written" and not joined:
            continue
        handed = _with_nests_in_memory(program, own, rounded) if nests == "apart" else None
        if handed is not None:
            return handed
        derivation = derive(program, "fold", nests=nests, own=own)
        # With rows again no loop is written as a sum, which is another way, too.
        if nests == "rows again" and not (summed or "rows worked out again" in _kinds(derivation)):
            continue
        if nests == "results again" and "results worked out again" not in _kinds(derivation):
            continue
        if nests == "own parts" and "own part" not in _kinds(derivation):
            continue
        summed = summed or "loop as sum" in _kinds(derivation)
        fused = not own and "transformation" in _kinds(derivation)
        joined = joined or fused
        try:
            found = lower(derivation, rounded=rounded)
            written = _with_repetitions_written_out(program, found, rounded)
            if written is not None:
                return written
            if fused and nests == "joined":
                found = _with_nests_as_written(program, found, rounded) or found
            found = _with_smaller_blocks(program, found, rounded) or found
            found = _with_rows_in_memory(program, found, rounded) or found
            found = _with_products_in_memory(program, found, rounded) or found
            found = _with_numbers_in_memory(program, found, nests, own, rounded) or found
            return _with_products(program, found, nests, own, rounded) or found
        except NotLowered as error:
            if isinstance(error, OneRowEach):
                one_each = one_each or derivation
            refusal = refusal or Refused(error, program, derivation.last)
    layers = with_repetitions_written_out(program, throughout=True)
    same = None if layers is None else _of_the_same(program, layers, rounded)
    if same is not None:
        return same
    if one_each is not None:
        with contextlib.suppress(NotLowered):
            return lower(one_each, rounded=rounded, one_each=True)
    for otherwise in (with_sums_gathered, with_mirrors_apart):
        seen = otherwise(program)
        same = None if seen is None else _of_the_same(program, seen, rounded)
        if same is not None:
            return same
    assert refusal is not None
    raise refusal


def _of_the_same(
    program: Program, seen: Gathered | Mirrored | Repetitions, rounded: Rounding | None
) -> BlockProgram | None:
    """Return a listing as operations on blocks, from one that means the same, where that can be."""
    with contextlib.suppress(Refused, NotLowered):
        found = lowered(seen.program, rounded=rounded)
        return replace(
            found,
            listing=program,
            steps=(seen.text, *found.steps),
            # Its guards would pass over what the listing adds to cells that are none.
            reached=reached(program),
            below=below(program),
        )
    return None


def _require_no_races(program: Program) -> None:
    """Require that a listing with parallel loops has one result, as far as can be told."""
    if not is_parallel(program):
        return
    found = check_races(program)
    if found.decision == "illegal":
        pair = f"two iterations of {found.source}"
        if found.source != found.sink:
            pair = f"{found.source} and {found.sink}"
        raise Refused(Races(f"{pair} race on {found.array}", found.source), program, program)


def _ways(program: Program) -> Iterator[tuple[Nests, bool]]:
    """Yield ways to derive nests: how they are joined, and whether iterations own what they reuse.

    A row that all iterations use in turn can be worked out again where each has one of its own.
    """
    for nests in NESTS:
        if not reused(program) or nests in ("results again", "own parts"):
            yield nests, False
        elif nests == "rows again":
            yield from ((nests, True), (nests, False))
        else:
            yield from ((nests, False), (nests, True))


def _kinds(derivation: Derivation) -> set[str]:
    """Return which kinds of steps a derivation has."""
    return {step.kind for step in derivation.steps}


def _with_smaller_blocks(
    program: Program, found: BlockProgram, rounded: Rounding | None
) -> BlockProgram | None:
    """Return kernels with sums as loops, where blocks had more dimensions than a product has.

    Such a block soon is larger than what Triton allows, and there are no products for it.
    """
    if _most_dims(found) <= MOST_DIMS:
        return None
    try:
        other = lower(derive(program, "fold", nests="sums in loops"), rounded=rounded)
    except (NotDone, NotLowered):
        return None
    return other if _most_dims(other) < _most_dims(found) else None


def _most_dims(blocks: BlockProgram) -> int:
    return max(most_dims(kernel.body) for kernel in blocks.kernels)


def _with_rows_in_memory(
    program: Program, found: BlockProgram, rounded: Rounding | None
) -> BlockProgram | None:
    """Return kernels that hand rows on through memory, where one makes whole rows for a product.

        A[i, k] = sum(X[i, e] * W[k, e] for e …)          a kernel
        Y[i, c] = sum(A[i, k] * D[c, k] for k …)          another one

    How long the rows are is not known; in registers there is room for short ones only. Rows of one
    batch, as those of weights of keys, are worked out block by block instead. So are those of a
    product that is stored, where no further table has to be.
    """
    most = sum(multiplies_whole_rows(kernel) for kernel in found.kernels)
    stored = any(map(stores_rows_of_products, found.kernels))
    if not most and not stored:
        return None
    for nests, own in _ways(program):
        if nests not in ("rows again", "as written", "apart"):
            continue
        try:
            derivation = derive(program, "fold", nests=nests, own=own)
            if nests == "rows again" and "rows worked out again" not in _kinds(derivation):
                continue
            other = lower(derivation, rounded=rounded)
        except (NotDone, NotLowered):
            continue
        if _tables(other) > _tables(found) + most or any(map(multiplies_whole_rows, other.kernels)):
            continue
        if most or not any(map(stores_rows_of_products, other.kernels)):
            return other
    return None


def _tables(blocks: BlockProgram) -> int:
    """Return how many arrays kernels hand to each other in blocks, not in numbers of rows."""
    made = {each.array for each in blocks.made if each.array not in blocks.outputs}
    return len(made & {array for kernel in blocks.kernels for array in stored_blocks(kernel.body)})


def _with_products_in_memory(
    program: Program, found: BlockProgram, rounded: Rounding | None
) -> BlockProgram | None:
    """Return kernels that store a product of long rows, where one works it out several times.

    y[i, j] = sum(x[i, k] * W[k, j] for k …)          a kernel, k in blocks
    y[i, j] = y[i, j] / norm of y[i]                  another one
    """
    if not any(map(repeats_products, found.kernels)) or not _updates_sums(program):
        return None
    try:
        other = lower(derive(program, "fold", nests="results apart"), rounded=rounded)
    except (NotDone, NotLowered):
        return None
    is_better = _tables(other) <= _tables(found) + 1 and not any(
        map(multiplies_over_lanes, other.kernels)
    )
    return other if is_better else None


def _updates_sums(program: Program) -> bool:
    """Tell whether a listing stores sums in a table that it returns, and changes that in place."""
    tables = {array.name for array in program.arrays if array.rank > 1} & set(program.outputs)
    summed: set[str] = set()
    updated: set[str] = set()
    for node in nodes(program.body):
        if isinstance(node, Assign) and len(node.targets) == len(node.values) == 1:
            (target,) = node.targets
            parts = tuple(walk_value(node.values[0]))
            if any(isinstance(part, Reduce) for part in parts):
                summed.add(target.array)
            if Read(target) in parts:
                updated.add(target.array)
    return bool(tables & summed & updated)


def _with_numbers_in_memory(
    program: Program, found: BlockProgram, nests: Nests, own: bool, rounded: Rounding | None
) -> BlockProgram | None:
    """Return kernels that hand numbers on through memory, where one goes over all rows for them.

        top = max(x[h, j] for j …)            a kernel
        O[h, i, d] = sum(exp(… - top) …)      another one, with programs for rows i

    In one kernel a program does all rows of an h, as it has one top.
    """
    most = _without_rows(found)
    if not most:
        return None
    try:
        derivation = derive(program, "fold", nests=nests, own=own, numbers=True)
        other = lower(derivation, rounded=rounded)
    except (NotDone, NotLowered):
        return None
    return other if _without_rows(other) < most else None


def _without_rows(blocks: BlockProgram) -> int:
    """Return how many kernels with products have no programs for blocks of rows."""
    kernels = (each for each in blocks.kernels if has_products(each.body))
    return sum(all(dim.role != "rows" for dim in each.grid) for each in kernels)


def _with_repetitions_written_out(
    program: Program, found: BlockProgram, rounded: Rounding | None
) -> BlockProgram | None:
    """Return kernels for each of a few iterations, where one program would do all rows of each.

        for t in range(3): for i: u[i] = log(sum(exp(X[i, j] - w[j]) for j))
                           for j: w[j] = log(sum(exp(X[i, j] - u[i]) for i))

    In one kernel both rows are in registers, and all of X is in one block. So are they where blocks
    of several such rows have more dimensions than a product has.
    """
    alone, most = _without_rows(found), _most_dims(found)
    if not alone and most <= MOST_DIMS:
        return None
    layers = with_repetitions_written_out(program, throughout=True)
    other = None if layers is None else _of_the_same(program, layers, rounded)
    if other is None or _without_rows(other) > alone:
        return None
    is_smaller = most > MOST_DIMS and most > _most_dims(other)
    return other if is_smaller or _without_rows(other) < alone else None


def _with_nests_in_memory(
    program: Program, own: bool, rounded: Rounding | None
) -> BlockProgram | None:
    """Return kernels that hand on through memory what works out numbers beside a nest.

        for h: for t: c[h, t] = …             a kernel
               for i: for j: … c[h, j] …      another one

    Where loops are taken apart, what rows of the second one keep in registers is stored, too.
    """
    try:
        return lower(derive(program, "fold", own=own, numbers=True), rounded=rounded)
    except (NotDone, NotLowered):
        return None


def _with_nests_as_written(
    program: Program, found: BlockProgram, rounded: Rounding | None
) -> BlockProgram | None:
    """Return a kernel for each nest, where there are more after nests were joined.

    What could be joined in part had to be taken apart again, and not where it was before.
    """
    written = sum(isinstance(node, Loop) for node in program.body)
    if len(found.kernels) <= written:
        return None
    try:
        other = lower(derive(program, "fold", nests="as written"), rounded=rounded)
    except (NotDone, NotLowered):
        return None
    return other if len(other.kernels) <= written else None


def _with_products(
    program: Program, found: BlockProgram, nests: Nests, own: bool, rounded: Rounding | None
) -> BlockProgram | None:
    """Return kernels with matrix products where there are none but for loops over two digits.

    Heads that share keys, h // R, are not rows that differ in one factor only, and those of one
    group are.
    """
    if any(has_products(kernel.body) for kernel in found.kernels) or not any(
        loops_of_digits(program)
    ):
        return None
    try:
        other = lower(derive(program, "fold", nests=nests, own=own, digits=True), rounded=rounded)
    except (NotDone, NotLowered):
        return None
    return other if any(has_products(kernel.body) for kernel in other.kernels) else None


def emitted(program: Program) -> Emitted:
    """Return the module of a listing.

    Raises:
        Refused: It cannot be run in blocks.
    """
    blocks = lowered(program)
    blocks = replace(blocks, notes=(*blocks.notes, *notes_on(blocks)))
    called = names(blocks)
    return Emitted(called.file, called.launcher, module(blocks, version=__version__), blocks)


def module_name(program: Program) -> str:
    """Return what a listing's file is called, without `.py`: `Class.method` is `Class_method`."""
    return identifier(program.name)
