"""Listings that cannot be emitted, with the reason for the reader."""

from __future__ import annotations

from typing import ClassVar

from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.blocks.program import NotLowered
from looptrans.ir.diagnostic import Mistake
from looptrans.ir.program import Assign, If, Program
from looptrans.ir.source import Source, Span
from looptrans.ir.walk import nodes


class NoKernel(Mistake):
    """The listing cannot be run as operations on blocks, so there is no kernel to emit.

    A kernel works on whole blocks of iterations at once: what one iteration leaves in an array
    cannot be read by another one of the same block, and every loop must be parallel, a fold or a
    reduction, or stay a loop over single iterations inside one program. `derive` shows how far the
    listing was taken, `loops` and `deps` what stands in the way.
    """

    code: ClassVar[str] = "E070"
    title: ClassVar[str] = "no kernel for this listing"


class NoBackward(Mistake):
    """The listing has no backward pass that is derived here, so there is none to emit.

    A backward pass is derived where every value that is read can be told from the listing alone, as
    a function of the arguments: an array that is overwritten while others still need what it held,
    or an output that hangs on which element is the largest, has none.
    """

    code: ClassVar[str] = "E071"
    title: ClassVar[str] = "no backward pass for this listing"


class Refused(NotLowered):
    """A listing for which there is no kernel; as a string, the whole message.

    Attributes:
        program: The listing.
        text: Reason, place and remedy, as lines of text.
    """

    def __init__(
        self,
        refusal: NotLowered | NotDifferentiated,
        program: Program,
        derived: Program,
    ) -> None:
        """Describe a refusal.

        Args:
            refusal: The reason, and the label of the statement.
            program: The listing.
            derived: What was to be run in blocks, for statements that the listing does not have.
        """
        super().__init__(refusal.reason, refusal.label)
        self.program = program
        span, source = _place(refusal.label, program, derived)
        mistake: Mistake
        if isinstance(refusal, NotLowered):
            mistake = NoKernel(
                f"cannot emit {program.name}",
                span,
                why=refusal.reason,
                remedy="looptrans derive FILE shows how far it was taken, looptrans loops FILE "
                "what each loop carries",
            )
        else:
            mistake = NoBackward(
                f"cannot differentiate {program.name}",
                span,
                why=refusal.reason,
                remedy="name the outputs that receive a gradient with --of, or detach what needs "
                "none with stop_gradient(…)",
            )
        self.text = mistake.render(source)

    def __str__(self) -> str:
        return self.text


def _place(label: str | None, program: Program, derived: Program) -> tuple[Span | None, Source]:
    """Return where a statement stands: in the listing, or in the nest derived from it."""
    for where in (program, derived):
        for node in nodes(where.body):
            if isinstance(node, Assign | If) and node.label is not None and node.label == label:
                return node.span, where.source
    return None, program.source
