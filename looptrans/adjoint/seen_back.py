"""The backward pass of a listing, from that of another listing that it was seen as."""

from __future__ import annotations

from dataclasses import replace

from looptrans.adjoint.carried.states_kept import Kept
from looptrans.adjoint.carried.summed_steps import Summed
from looptrans.adjoint.derived import Backward
from looptrans.adjoint.layouts.digits import Parted
from looptrans.adjoint.layouts.lengths import Extended
from looptrans.adjoint.layouts.packed import Unpacked
from looptrans.adjoint.layouts.views import is_same_shape
from looptrans.adjoint.normalizing.running import Running
from looptrans.adjoint.proofs import Step
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.adjoint.rewriting.simpler import Simpler
from looptrans.ir.program import Program
from looptrans.ir.verdict import Certificate
from looptrans.transforms.rows.bounded import Bounded


def from_kept(found: Backward, program: Program, kept: Kept) -> Backward:
    """Return the backward pass of a listing, from that of one that keeps its states."""
    forward = program if found.forward is found.listing else found.forward
    step = Step(kept.text, kept.certificates)
    found = replace(found, notes=(*found.notes, kept.note))
    return with_steps(replace(found, listing=program, forward=forward), (step, *found.steps))


def from_simpler(found: Backward, program: Program, seen: Simpler | Summed) -> Backward:
    """Return the backward pass of a listing, from that of one that means the same."""
    forward = program if found.forward is found.listing else found.forward
    step = Step(seen.text, seen.certificates)
    return with_steps(replace(found, listing=program, forward=forward), (step, *found.steps))


def from_bounded(found: Backward, program: Program, bounded: Bounded) -> Backward:
    """Return the backward pass of a listing, from that of the one that says where rows end."""
    forward = program
    if found.forward is not found.listing:
        forward = bounded.back(found.forward)
    step = Step("say where rows end", (bounded.certificate,))
    return with_steps(replace(found, listing=program, forward=forward), (step, *found.steps))


def from_running(found: Backward, program: Program, running: Running) -> Backward:
    """Return the backward pass of a listing, from that of the one that reads sums."""
    forward = program
    if found.forward is not found.listing:
        forward = running.back(found.forward)
    step = Step(running.text, (running.certificate,))
    return with_steps(replace(found, listing=program, forward=forward), (step, *found.steps))


def with_steps(found: Backward, steps: tuple[Step, ...]) -> Backward:
    """Return a backward pass with one more step before what was differentiated."""
    return replace(found, steps=steps, before=found.before + 1, loops=())


def from_extended(found: Backward, whole: Extended) -> Backward:
    """Return the backward pass of a listing, from that of the one that goes over all rows."""
    alike = {new: old for old, new in found.incoming.items()}
    program = whole.back(found.program, alike)
    forward = whole.listing
    if found.forward is not whole.program:
        forward = whole.back(found.forward, {})
    law = "no iteration reads what another one writes, and each writes a row of its own"
    apart = Certificate("storage", law, "legal", "from the text")
    gone = "a row beyond the length has no incoming gradient, so nothing comes from it"
    law = "sums over all rows are sums over those up to the length"
    steps = (
        Step("go over all rows", (apart,)),
        *found.steps,
        Step("end at the length", (Certificate("algebra", law, "legal", gone),)),
    )
    return with_steps(
        replace(found, listing=whole.listing, program=program, forward=forward), steps
    )


def from_unpacked(found: Backward, view: Unpacked) -> Backward:
    """Return the backward pass of a listing with packed rows, from that of the listing as seen."""
    alike = {new: old for old, new in (*found.gradients.items(), *found.incoming.items())}
    program = view.back(found.program, alike)
    forward = view.listing
    if found.forward is not view.program:
        forward = view.back(found.forward, {})
    for saved in found.saved:
        if not is_same_shape(program.array(saved.name), forward.array(saved.name)):
            raise NotDifferentiated(f"{saved.name} cannot be handed over row by row")
    why = "the ranges of two sequences have no row in common, since their ends never fall"
    seen = Certificate("storage", view.law(), "legal", why, view.contracts)
    gone = "a row beyond those of a sequence has no incoming gradient, so nothing comes from it"
    cut = Certificate("algebra", "sums over all rows are sums over those of the sequence", "legal")
    steps = (
        Step("see each row as one of its sequence", (seen,)),
        *found.steps,
        Step("take rows as they are packed", (replace(cut, reason=gone),)),
    )
    return with_steps(replace(found, listing=view.listing, program=program, forward=forward), steps)


def from_parted(found: Backward, view: Parted) -> Backward:
    """Return the backward pass of a listing, from that of the one whose digits are apart."""
    alike = {new: old for old, new in (*found.gradients.items(), *found.incoming.items())}
    program = view.back(found.program, alike)
    forward = view.listing
    if found.forward is not view.program:
        forward = view.forward(found.forward)
    step = Step("see subscripts of two digits as two", (view.certificate,))
    steps = (step, *found.steps)
    return with_steps(replace(found, listing=view.listing, program=program, forward=forward), steps)
