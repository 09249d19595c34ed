"""What the backward pass of a listing is."""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.adjoint.proofs import Step
from looptrans.ir.program import Program


@dataclass(frozen=True, slots=True)
class Saved:
    """Something the forward hands over to the backward.

    Attributes:
        name: What it is called in both listings.
        is_output: Whether the listing returns it anyway.
    """

    name: str
    is_output: bool


@dataclass(frozen=True, slots=True)
class Backward:
    """The backward pass of a listing.

    Attributes:
        listing: The listing that was differentiated.
        of: The outputs that receive a gradient.
        program: The backward listing: its arguments are the listing's inputs, what is saved, and
            the incoming gradients; it returns the gradients.
        gradients: For each argument with a gradient, what the backward listing calls it.
        incoming: For each output in `of`, what the backward listing calls its gradient.
        saved: What the forward hands over.
        forward: The listing, returning behind its outputs what is saved besides.
        steps: How the backward listing came about, each step with its certificates.
        notes: What should be known, a sentence each.
        recomputed: What the backward listing calls values that the listing has worked out before.
        weights: Those of them that are exponentials over their sum, between 0 and 1.
        logarithms: What of the saved is the logarithm of a sum alone.
        seen: What was differentiated: the listing, or another that means the same.
        before: How many of the steps lead from the listing to that.
        loops: The statements whose maxima and minima were written as loops before all else, one
            after the other, each as it is called then.
    """

    listing: Program
    of: tuple[str, ...]
    program: Program
    gradients: dict[str, str]
    incoming: dict[str, str]
    saved: tuple[Saved, ...]
    forward: Program
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    recomputed: frozenset[str] = frozenset()
    weights: frozenset[str] = frozenset()
    logarithms: frozenset[str] = frozenset()
    seen: Program | None = None
    before: int = 0
    loops: tuple[str, ...] = ()
