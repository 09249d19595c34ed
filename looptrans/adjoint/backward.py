"""The backward pass of a listing, as a listing.

O = attention(Q, K, V)    ->    dQ, dK, dV = attention_backward(Q, K, V, O, lse, dO)
"""

from __future__ import annotations

import contextlib
from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import Final

from looptrans.adjoint.carried.looked_at import looked_at
from looptrans.adjoint.carried.recurrences import opened
from looptrans.adjoint.carried.states_kept import states_without_room, with_states_kept
from looptrans.adjoint.carried.summed_steps import with_steps_summed
from looptrans.adjoint.derived import Backward, Saved
from looptrans.adjoint.equations.together import with_rows_together
from looptrans.adjoint.hanging import hangs_on_extreme
from looptrans.adjoint.layouts.digits import parted
from looptrans.adjoint.layouts.lengths import extended
from looptrans.adjoint.layouts.packed import unpacked
from looptrans.adjoint.normalizing.running import with_running_sums
from looptrans.adjoint.one_derivation import Derivation, closed_form
from looptrans.adjoint.proofs import Step
from looptrans.adjoint.reading.folds_in_place import with_folds_named
from looptrans.adjoint.reading.read import read
from looptrans.adjoint.refusal import NotDifferentiated, OnExtreme
from looptrans.adjoint.rewriting.extremes import with_places_kept
from looptrans.adjoint.rewriting.repetitions import MOST_STATEMENTS
from looptrans.adjoint.rewriting.simpler import (
    AT_ONCE,
    BLOCKS,
    LAYERS,
    MIRRORS,
    NAMES,
    ORDER,
    PLACES,
    REPETITIONS,
    ROWS,
    SIZES,
    SUMS,
    WEBS,
    simpler,
)
from looptrans.adjoint.rewriting.spelled import with_extrema_spelled
from looptrans.adjoint.rewriting.unread import without_unread
from looptrans.adjoint.rewriting.work import work_of
from looptrans.adjoint.seen_back import (
    from_bounded,
    from_extended,
    from_kept,
    from_parted,
    from_running,
    from_simpler,
    from_unpacked,
    with_steps,
)
from looptrans.adjoint.through_time import closed
from looptrans.analysis.api import annotated
from looptrans.ir.outputs import outputs
from looptrans.ir.program import Program
from looptrans.ir.walk import assignments
from looptrans.transforms.rows.bounded import with_ends_said

MODEST: Final = 5
"""How many times the work of the forward pass is no reason to look for another backward pass."""


def backward(
    program: Program,
    of: tuple[str, ...] | None = None,
    wrt: tuple[str, ...] | None = None,
    *,
    annotate: bool = False,
) -> Backward:
    """Derive the backward pass of a listing.

    Args:
        program: The listing.
        of: The outputs that receive a gradient; by default all that need no arg-max.
        wrt: The arguments whose gradients are wanted; by default all floats of 16 bits and more,
            and real parameters.
        annotate: Whether the backward listing says in comments, all of them checked facts, which
            loops each statement belongs to and what it reads and gathers; takes seconds.

    Raises:
        NotDifferentiated: It has none that is derived here; the reason says why.
    """
    try:
        found = _backward(program, of, wrt)
    except NotDifferentiated as error:
        raise error.of(program) from None
    finally:
        _found.cache_clear()
    together = with_rows_together(found.program)
    if together is not None:
        step = Step(together.text, together.certificates)
        steps = (*found.steps[:-1], step, found.steps[-1])
        found = replace(found, program=together.program, steps=steps)
    return replace(found, program=annotated(found.program)) if annotate else found


def _backward(
    program: Program, of: tuple[str, ...] | None, wrt: tuple[str, ...] | None
) -> Backward:
    """Derive the backward pass of a listing; a refusal says which listing it is about."""
    found = _found(program, of, wrt)
    if isinstance(found, NotDifferentiated):
        raise copy(found)  # who catches it may say more of it
    return found


@lru_cache(maxsize=256)
def _found(
    program: Program, of: tuple[str, ...] | None, wrt: tuple[str, ...] | None
) -> Backward | NotDifferentiated:
    """Return the backward pass of a listing, or why it has none.

    Several ways lead to one listing, as two steps do in either order: it is tried once.
    """
    try:
        return _of_any(program, of, wrt)
    except NotDifferentiated as error:
        return error.with_traceback(None)


def _of_any(program: Program, of: tuple[str, ...] | None, wrt: tuple[str, ...] | None) -> Backward:
    """Derive the backward pass of a listing in any of the ways there are."""
    written = _written_out(LAYERS, program, of, wrt)
    if written is not None and _is_modest(written):
        return written
    try:
        return _of_less_work(_as_it_is(program, of, wrt), written)
    except NotDifferentiated:
        if written is None:
            raise
        return written


def _as_it_is(
    program: Program, of: tuple[str, ...] | None, wrt: tuple[str, ...] | None
) -> Backward:
    """Derive the backward pass of a listing whose outer loops stay as they are."""
    try:
        return _of_simplest(program, of, wrt)
    except NotDifferentiated as error:
        try:
            return _otherwise(error, program, of, wrt)
        except NotDifferentiated:
            written = _written_out(REPETITIONS, program, of, wrt)
            if written is None:
                raise
            return written


def _written_out(
    kind: str, program: Program, of: tuple[str, ...] | None, wrt: tuple[str, ...] | None
) -> Backward | None:
    """Derive it with few iterations written out; None where there are none, or it is too long."""
    with contextlib.suppress(NotDifferentiated):
        found = _of_kind(kind, program, of, wrt)
        if len(assignments(found.program.body)) <= MOST_STATEMENTS:
            return found
    return None


def _is_modest(found: Backward) -> bool:
    """Tell whether a backward pass is little work beside the forward pass: there is no need to ask.

    Layers upon layers take twice to five times as much, whatever they are made of.
    """
    return work_of(found.program) <= MODEST * work_of(found.forward)


def _of_less_work(found: Backward, written: Backward | None) -> Backward:
    """Return the one of two backward passes that works less, the second where they are even.

    Iterations written out may work the same out again in each of those behind them.
    """
    if written is None or work_of(found.program) < work_of(written.program):
        return found
    return written


def _otherwise(
    error: NotDifferentiated,
    program: Program,
    of: tuple[str, ...] | None,
    wrt: tuple[str, ...] | None,
) -> Backward:
    """Derive the backward pass of a listing that has none as it is.

    Raises:
        NotDifferentiated: It has none otherwise either; the reason says why.
    """
    with contextlib.suppress(NotDifferentiated):
        return _of_kind(ROWS, program, of, wrt)
    running = with_running_sums(program)
    if running is not None:
        with contextlib.suppress(NotDifferentiated):
            return from_running(_backward(running.program, of, wrt), program, running)
    if isinstance(error, OnExtreme):
        with contextlib.suppress(NotDifferentiated):
            return _of_kind(NAMES, program, of, wrt)
        try:
            return _of_places(error, program, of, wrt)
        except OnExtreme as other:
            error = other
        except NotDifferentiated:
            pass  # then the maximum is what stands in the way
    else:
        with contextlib.suppress(NotDifferentiated):
            return _through_time(program, of, wrt)
        for kind in (SUMS, NAMES, MIRRORS, BLOCKS):
            with contextlib.suppress(NotDifferentiated):
                return _of_kind(kind, program, of, wrt)
        for names in dict.fromkeys((looked_at(program), None)):
            kept = with_states_kept(program, anyway=True, only=names)
            if kept is not None:
                with contextlib.suppress(NotDifferentiated):
                    return from_kept(_backward(kept.program, of, wrt), program, kept)
        if not error.remedy:
            error = _with_states(error, program)
    error.within = error.within or program
    raise error from None


def _of_kind(
    kind: str, program: Program, of: tuple[str, ...] | None, wrt: tuple[str, ...] | None
) -> Backward:
    """Derive the backward pass of a listing made simpler in one way.

    Raises:
        NotDifferentiated: It is no simpler in that way, or has none either.
    """
    seen = simpler(program, (kind,))
    if seen is None:
        raise NotDifferentiated("it is as simple as it can be")
    return from_simpler(_backward(seen.program, of, wrt), program, seen)


def _with_states(error: NotDifferentiated, program: Program) -> NotDifferentiated:
    """Say of a refusal that states would have to be kept, where they are too many."""
    for name, shape in states_without_room(program).items():
        found = error.because(
            f"to keep {name} for every iteration would take an array {shape}, and no argument or "
            "result is as large"
        )
        found.remedy = (
            f"write it with sums, maxima and minima, or return what {name} is in every iteration, "
            "in an array with a place for each; stop_gradient(…) detaches what needs no gradient"
        )
        return found
    return error


def _of_simplest(
    program: Program, of: tuple[str, ...] | None, wrt: tuple[str, ...] | None
) -> Backward:
    """Derive the backward pass of a listing, or of one that means the same and is simpler."""
    sized = simpler(program, (SIZES,))
    if sized is not None:
        try:
            return from_simpler(_backward(sized.program, of, wrt), program, sized)
        except NotDifferentiated as error:
            own = error.of(sized.program)
            own.within = None  # the labels are those of the listing
            raise own from None
    seen = simpler(program, (AT_ONCE, *ORDER, *PLACES, WEBS))
    if seen is None:
        seen = with_folds_named(program)
    if seen is not None:
        return from_simpler(_backward(seen.program, of, wrt), program, seen)
    bounded = with_ends_said(program)
    if bounded is not None:
        return from_bounded(_backward(bounded.program, of, wrt), program, bounded)
    whole = extended(program)
    if whole is not None:
        try:
            return from_extended(_backward(whole.program, of, wrt), whole)
        except NotDifferentiated:
            pass  # then rows are gone over as far as they are
    view = unpacked(program)
    if view is not None:
        try:
            return from_unpacked(_backward(view.program, of, wrt), view)
        except NotDifferentiated as error:
            try:  # without the view rows are found by their subscripts, one by one
                return _plain(program, of, wrt)
            except NotDifferentiated:
                raise error from None
    return _plain(program, of, wrt)


def _plain(program: Program, of: tuple[str, ...] | None, wrt: tuple[str, ...] | None) -> Backward:
    """Derive the backward pass of a listing whose rows are where they are."""
    digits = parted(program)
    if digits is not None:
        try:
            return from_parted(_backward(digits.program, of, wrt), digits)
        except NotDifferentiated:
            pass  # then the listing as it is says why
    named = {o.name: o.gradient for o in outputs(program)}
    notes: list[str] = []
    if of is None:
        chosen = tuple(name for name, kind in named.items() if kind == "differentiable")
        found, jumping = _without_jumps(program, chosen, wrt)
        notes += [
            f"{name} receives no gradient: it hangs on which element is the largest or smallest, "
            "and its derivative jumps where two are equal."
            for name in jumping
        ]
    else:
        for name in of:
            if named.get(name) != "differentiable":
                raise NotDifferentiated(f"{name} is no output that a gradient can come back to")
        found = Derivation(program, of, wrt)
        found.sweep()
    return found.backward(notes)


def _of_places(
    error: OnExtreme, program: Program, of: tuple[str, ...] | None, wrt: tuple[str, ...] | None
) -> Backward:
    """Derive the backward pass of a listing that hands over where an extremum is attained.

    Raises:
        NotDifferentiated: It is none of a form that is known, or has no backward pass either.
    """
    closings = read(program)[1]
    if closings:
        # Statements are those of the listing with the closed forms in it.
        after = closings[-1].after
        scalars = [array.name for array in after.arrays if not array.rank]
        own = without_unread(after, {*scalars} - {*after.outputs})
        found = _backward(own, of, wrt)
        steps = (*map(closed_form, closings), *found.steps)
        before = found.before + len(closings)
        return replace(found, listing=program, steps=steps, before=before, loops=())
    spelled = with_extrema_spelled(program, error.label)
    if spelled is not None:
        found = _backward(spelled.program, of, wrt)
        loops = (error.label, *found.loops)
        return replace(from_simpler(found, program, spelled), loops=loops)
    try:
        kept = with_places_kept(program, error.label)
    except NotDifferentiated as other:
        why = "where it is attained is not handed over"
        if why in error.reason:  # a listing that means the same has been tried
            raise error from None
        raise error.because(f"{why}, as {other.reason}") from None
    found = _backward(kept.program, of, wrt)
    seen = found.forward if found.forward is not found.listing else kept.program
    found = replace(
        found,
        listing=program,
        forward=kept.forward(seen),
        saved=(*(Saved(name, False) for name in kept.names), *found.saved),
        notes=(*found.notes, kept.note),
    )
    return with_steps(found, (Step(kept.text, (kept.certificate,)), *found.steps))


def _through_time(
    program: Program, of: tuple[str, ...] | None, wrt: tuple[str, ...] | None
) -> Backward:
    """Derive the backward pass of a listing whose iterations hand something on.

    Raises:
        NotDifferentiated: They do not, or it has none either.
    """
    summed = with_steps_summed(program)
    if summed is not None:
        with contextlib.suppress(NotDifferentiated):
            return from_simpler(_through_time(summed.program, of, wrt), program, summed)
    kept = with_states_kept(program)
    if kept is not None:
        return from_kept(_backward(kept.program, of, wrt), program, kept)
    seen = opened(program)
    if seen is None:
        raise NotDifferentiated("nothing is handed on through an array that is set once")
    if of is None:
        of = tuple(o.name for o in outputs(program) if o.gradient == "differentiable")
    outside = tuple(dict.fromkeys((*of, *seen.before)))
    inside = None if wrt is None else (*wrt, *seen.before.values())
    return closed(_backward(seen.program, outside, inside), seen, of)


def _without_jumps(
    program: Program, chosen: tuple[str, ...], wrt: tuple[str, ...] | None
) -> tuple[Derivation, tuple[str, ...]]:
    """Differentiate the outputs that need no arg-max; all of them where every one does.

    Returns:
        The derivation, and the outputs left out, which change where a maximum is moved.

    Raises:
        NotDifferentiated: An output has no gradient that is derived here; or it seems to need an
            arg-max, but hangs on no maximum as far as numbers tell.
    """
    refusal: NotDifferentiated | None = None
    try:
        found = Derivation(program, chosen, wrt)
        found.sweep()
        if not found.reverse.attained or len(chosen) == 1:
            return found, ()
    except NotDifferentiated as error:
        if len(chosen) < 2:
            raise
        refusal = error
    smooth = tuple(name for name in chosen if not _attains(program, name, wrt))
    if not smooth or len(smooth) == len(chosen):
        if refusal is not None:
            raise refusal
        return found, ()
    jumping = tuple(name for name in chosen if name not in smooth)
    for name in jumping:
        hangs = hangs_on_extreme(program, name)
        if not hangs:
            tried = "it was not possible to try it" if hangs is None else "it does"
            raise NotDifferentiated(
                f"the part of the gradient of {name} that comes through a maximum or a minimum is "
                f"not shown to cancel; in numbers {tried}",
                remedy="leave it out by naming the other outputs with --of, or divide by the sum "
                "right behind the loop, before anything else is done with it",
            )
    found = Derivation(program, smooth, wrt)
    found.sweep()
    return found, jumping


def _attains(program: Program, output: str, wrt: tuple[str, ...] | None) -> bool:
    try:
        alone = Derivation(program, (output,), wrt)
        alone.sweep()
    except OnExtreme:
        return True
    return bool(alone.reverse.attained)
