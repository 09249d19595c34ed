"""Listings that cannot be emitted, with the reason for the reader."""

from __future__ import annotations

from typing import ClassVar

from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.blocks.block_ir.program import NotCounted, NotLowered
from looptrans.ir.diagnostic import Mistake
from looptrans.ir.named import unlabelled_in
from looptrans.ir.program import Assign, If, Program
from looptrans.ir.source import Source, Span
from looptrans.ir.walk import nodes
from looptrans.transforms.steps.advice import say_that_rows_are_apart


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
    a function of the arguments. So none is found for

      values handed from one iteration to the next, unless there is an order in which their
        gradients can be handed back;
      an argument that is written in place: its first values are lost;
      an array that is overwritten while others still need what it held;
      the largest or smallest of values that are worked out, unless that is done in loops
        (m = -inf, then m = max(m, V)) inside of rows of which it is known how many there are at
        most: there the forward pass tells which it was;
      an argument whose shape is not written, or a listing in which nothing is a real number.

    --of names the outputs that receive a gradient, so that the others need none, and
    stop_gradient(x) takes x for a constant. `derive --to backward` shows how far it goes.
    """

    code: ClassVar[str] = "E071"
    title: ClassVar[str] = "no backward pass for this listing"


class NotInForm(NotLowered):
    """A backward pass that there is, but not in the form that was asked for."""


class NotInParts(NotLowered):
    """A loop that there are kernels for, but not such that compute it in parts."""


class Races(NotLowered):
    """Parallel loops of a listing do not have one result."""


class Unseen(NotLowered):
    """A listing makes nothing that can be seen from outside."""


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
                remedy=_REMEDIES.get(type(refusal)) or say_that_rows_are_apart(program) or _REMEDY,
            )
        else:
            mistake = NoBackward(
                f"cannot differentiate {program.name}",
                span,
                why="; ".join([refusal.reason, *unlabelled_in(refusal.reason, program)]),
                remedy=refusal.remedy or say_that_rows_are_apart(program) or _remedy(program),
            )
        self.text = mistake.render(source)

    def __str__(self) -> str:
        return self.text


_REMEDY = (
    "looptrans derive FILE shows how far it was taken, looptrans loops FILE what each loop carries"
)
_REMEDIES: dict[type[NotLowered], str] = {
    NotCounted: "let the loop go over all the rows that there may be, and ask inside which ones "
    "there are: for j in range(0, N): if j < n[i]: …; or give arrays a dimension for the parts "
    "that rows come in: X[c, i] for X[64 * c + i]",
    Races: "let each iteration have cells of its own; looptrans check FILE shows two that race",
    Unseen: "return what it makes at its end, or write it to an argument",
    NotInForm: "leave --form out: each nest then has a launch of its own",
    NotInParts: "leave --split out: each row's loop is then run by one program; "
    "looptrans derive FILE --to split shows how far it was taken",
}


def _remedy(program: Program) -> str:
    detach = "detach what needs no gradient with stop_gradient(…)"
    if len(program.outputs) > 1:
        return f"name the outputs that receive a gradient with --of, or {detach}"
    return f"{detach}, or write it with sums, maxima and minima; looptrans deps FILE shows more"


def _place(label: str | None, program: Program, derived: Program) -> tuple[Span | None, Source]:
    """Return where a statement stands: in the listing, or in the nest derived from it."""
    for where in (program, derived):
        for node in nodes(where.body):
            if isinstance(node, Assign | If) and node.label is not None and node.label == label:
                return node.span, where.source
    return None, program.source
