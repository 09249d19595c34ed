"""The backward pass as a derivation: what holds, what is handed over, and the nests it leads to.

adjoint …         facts about the listing and its adjoints, each proved; nothing changes
hand over         the listing, returning behind its outputs what the backward needs
backward nest     the backward listing in place of the listing
one launch, …     how its nests run; see `looptrans.derivation.joined.sharing`
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import lru_cache
from typing import Final

from looptrans.adjoint.backward import backward
from looptrans.adjoint.derived import Backward
from looptrans.adjoint.reading.read import read
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.adjoint.rewriting.simpler import ORDER, PLACES
from looptrans.adjoint.rewriting.spelled import LOOPS, with_extrema_spelled
from looptrans.analysis.kept_flow import flow_of
from looptrans.derivation.joined.flows import once_defined
from looptrans.derivation.joined.sharing import alternatives, formed
from looptrans.derivation.one_loop.writing import reread
from looptrans.derivation.ordinary import seen_simpler
from looptrans.derivation.step import Derivation, DerivationStep, Form, NotDone
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.listing import listing
from looptrans.ir.program import Assign, Declaration, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.verdict import Certificate, Decision
from looptrans.ir.walk import written
from looptrans.transforms.editing.accesses import listed
from looptrans.transforms.steps.advice import say_that_rows_are_apart

# The kinds of the steps from a listing to the one that is differentiated.
BEGUN: Final = (*ORDER, *PLACES)


def derive_backward(
    program: Program,
    of: tuple[str, ...] | None = None,
    wrt: tuple[str, ...] | None = None,
    form: Form = "kernels",
) -> Derivation:
    """Derive the backward pass of a listing, every step proved.

    Args:
        program: The listing.
        of: The outputs that receive a gradient; by default all that need no arg-max.
        wrt: The arguments whose gradients are wanted; by default all floats of 16 bits and more,
            and real parameters.
        form: How the nests that work out the same sums run: `kernels` each in a launch of its own;
            `launch` in one launch; `atomics` made one nest, what its parallel iterations share
            added to in turn.

    Returns:
        The derivation. It is `unknown` without any step where there is no backward pass, and
        `unknown` where there is one and the form is not allowed; the notes say why.
    """
    first = reread(replace(program, docstring=None))
    begun = _begun(first)
    counted = begun[-1].after if begun else first
    try:
        found = backward(counted, of, wrt)
        for label in found.loops:
            begun.append(extrema_spelled(counted, label))
            counted = begun[-1].after
        if found.loops:
            found = backward(counted, of, wrt)
        steps = [*begun, *_steps(counted, found)]
    except NotDifferentiated as error:
        help_ = error.remedy or say_that_rows_are_apart(first)
        notes_ = [f"{_sentence(text)}." for text in (str(error), help_) if text]
        return Derivation(first, "backward", (), "unknown", tuple(notes_))
    except NotDone as error:
        return Derivation(first, "backward", (), error.decision, (f"{_sentence(error.reason)}.",))
    notes = list(found.notes)
    decision = _decision(steps)
    last = steps[-1].after
    try:
        steps += formed(last, form)
    except NotDone as error:
        notes.append(f"The form {form} is not taken: {error.reason}.")
        decision = error.decision
    return Derivation(
        first,
        "backward",
        tuple(steps),
        decision if decision != "legal" else _decision(steps),
        tuple(notes),
        backward=found,
        form=form,
        alternatives=alternatives(last, tuple(found.gradients.values())),
    )


def _begun(first: Program) -> list[DerivationStep]:
    """Return the steps that are made before anything is differentiated, if there are any."""
    steps: list[DerivationStep] = []
    while True:
        here = steps[-1].after if steps else first
        for kind in BEGUN:
            with contextlib.suppress(NotDone):
                steps.append(seen_simpler(kind)(here))
                break
        else:
            return steps


def _steps(first: Program, found: Backward) -> list[DerivationStep]:
    """Return the steps as far as the backward listing."""
    given = ", ".join(found.of), ", ".join(found.gradients)
    count = len(found.steps)
    steps = [adjoint(first, number, *given) for number in range(1, count)]
    forward = first
    handed = found.forward.outputs[len(first.outputs) :]
    if handed:
        steps.append(hand_over(first, *given))
        forward = steps[-1].after
    made = ", ".join(_new(handed, first))
    return [*steps, nest(forward, count, *given, len(handed), made)]


def _new(names: tuple[str, ...], program: Program) -> tuple[str, ...]:
    """Return the names that are no arrays of a program."""
    known = {array.name for array in program.arrays}
    return tuple(name for name in names if name not in known)


def _decision(steps: list[DerivationStep]) -> Decision:
    verdicts = {step.decision for step in steps}
    if "illegal" in verdicts:
        return "illegal"
    return "unknown" if "unknown" in verdicts else "legal"


def _sentence(text: str) -> str:
    word = text.partition(" ")[0]
    begins = word.islower() and word.isalpha() and len(word) > 1
    return f"{word.capitalize()}{text[len(word) :]}" if begins else text


# The moves


def extrema_spelled(program: Program, label: str) -> DerivationStep:
    """Write the maxima and minima in a statement as loops; see `adjoint.rewriting.spelled`.

    Args:
        program: The program.
        label: The statement.

    Raises:
        NotDone: It has none.
    """
    found = with_extrema_spelled(program, label)
    if found is None:
        raise NotDone(f"{label} has no maximum or minimum that is worked out in any case")
    return DerivationStep(
        found.text, LOOPS, (label,), program, reread(found.program), found.certificates
    )


def hand_over(program: Program, of: str, wrt: str) -> DerivationStep:
    """Let the listing return what its backward pass needs.

        l[i] = …               l[i] = …
                        ->     lse[i] = m[i] + log(l[i])
        return O               return O, lse

    Args:
        program: The listing.
        of: The outputs that receive a gradient, `O, lse`.
        wrt: The arguments whose gradients are wanted, `Q, K, V`.

    Raises:
        NotDone: It has no backward pass, or hands over everything already.
    """
    found = passes(program, of, wrt)
    more = found.forward.outputs[len(program.outputs) :]
    if not more:
        raise NotDone("the listing returns everything that its backward pass needs")
    added = _new(more, program)
    kept = tuple(name for name in more if name not in added)
    after = reread(found.forward)
    same = listing(_without(after, len(more), added)) == listing(program)
    law = "the listing does what it did, and hands over what it has worked out"
    reasons = []
    if kept:
        reasons.append(f"{listed(kept)} {'is' if len(kept) == 1 else 'are'} returned as left")
    if added:
        reasons.append(
            f"without the statements that set {listed(added)} it is the listing, which does not "
            "know them; read again, they hold what is meant"
        )
    reason = "; ".join(reasons) if same else "without what it hands over it is not the listing"
    shown = Certificate("storage", law, "legal" if same else "unknown", reason)
    return DerivationStep(
        f"hand over {listed(more)}", "hand over", (of, wrt), program, after, (shown,)
    )


def _without(program: Program, count: int, arrays: tuple[str, ...]) -> Program:
    """Take the last outputs away from a listing, and what sets arrays."""

    def change(node: Node) -> tuple[Node, ...]:
        match node:
            case Declaration(array) if array in arrays:
                return ()
            case Assign() if all(target.array in arrays for target in node.targets):
                return ()
            case _:
                return (node,)

    left = program.outputs[: len(program.outputs) - count]
    return replace(program, body=rewritten(program.body, change), outputs=left)


def adjoint(program: Program, number: int, of: str, wrt: str) -> DerivationStep:
    """Show one fact that the backward listing leans on; the listing stays as it is.

    Args:
        program: The listing.
        number: Which of the facts, from 1.
        of: The outputs that receive a gradient, `O, lse`.
        wrt: The arguments whose gradients are wanted, `Q, K, V`.

    Raises:
        NotDone: There is no such fact, or no backward pass.
    """
    found = passes(program, of, wrt)
    if not 0 < number < len(found.steps):
        raise NotDone(f"there is no fact {number} about the adjoints", "illegal")
    step = found.steps[number - 1]
    shown = step.certificates
    seen = found.seen or program
    closed = read(seen)[1]
    if number == found.before + len(closed) + 1:
        plain = closed[-1].after if closed else seen
        shown = (once_defined(plain, flow_of(plain), shown[0].law, found.of),)
    return DerivationStep(step.name, "adjoint", (number, of, wrt), program, program, shown)


def nest(program: Program, count: int, of: str, wrt: str, handed: int, made: str) -> DerivationStep:
    """Put the backward listing in the place of the listing.

    Args:
        program: The listing, handing over what is needed.
        count: How many steps the derivation of the adjoints has, this one among them.
        of: The outputs that receive a gradient, `O, lse`.
        wrt: The arguments whose gradients are wanted, `Q, K, V`.
        handed: How many of its outputs, the last ones, it only hands over.
        made: Those of them that the listing itself does not have, `lse`.

    Raises:
        NotDone: There is no backward pass, its derivation has not that many steps, or the listing
            hands over something else than it needs.
    """
    if not 0 <= handed <= len(program.outputs):
        raise NotDone(f"the listing does not hand over {handed} arrays", "illegal")
    first = program
    if handed:
        try:
            first = reread(_without(program, handed, _listed(made)))
        except ListingError:
            raise NotDone(f"without {made} it is no listing", "illegal") from None
        except NotDone:
            raise NotDone(
                f"the forward pass is another listing, which keeps {made}, and no step of a "
                "derivation leads there; looptrans show FILE --pass backward prints the gradients, "
                "looptrans verify FILE --pass both runs and compares them"
            ) from None
    found = passes(first, of, wrt)
    more = found.forward.outputs[len(first.outputs) :]
    same = listing(found.forward) == listing(program) and len(more) == handed
    if not same or made != ", ".join(_new(more, first)):
        raise NotDone("the listing does not hand over what its backward pass needs", "illegal")
    if count != len(found.steps):
        raise NotDone(f"the adjoints are derived in {len(found.steps)} steps", "illegal")
    step = found.steps[-1]
    after = reread(found.program)
    shown = (_from_outside(after), *_worked_out(after), *step.certificates)
    name = f"the backward nests: {step.name}"
    return DerivationStep(
        name, "backward nest", (count, of, wrt, handed, made), program, after, shown
    )


def _from_outside(program: Program) -> Certificate:
    """Show that what comes from outside stays as it was handed over."""
    changed = set(written(program)) & set(program.arguments)
    law = "what comes from outside is only read"
    if changed:
        return Certificate(
            "storage", law, "unknown", f"{listed(tuple(sorted(changed)))} is written"
        )
    names = [array.name for array in program.arrays if array.role == "input"]
    reason = f"no statement writes {listed(tuple(names))}"
    return Certificate("storage", law, "legal", reason)


def _worked_out(program: Program) -> tuple[Certificate, ...]:
    """Show that what is worked out again or gathered is read where it is what it should be."""
    law = (
        "what is worked out in a nest is read in the iteration it is worked out in, and what is "
        "gathered when it is complete"
    )
    return (once_defined(program, flow_of(program), law),)


@lru_cache(maxsize=4)
def passes(program: Program, of: str, wrt: str) -> Backward:
    """Return the backward pass of a listing, as the steps of a derivation name it.

    Args:
        program: The listing.
        of: The outputs that receive a gradient, `O, lse`.
        wrt: The arguments whose gradients are wanted, `Q, K, V`.

    Raises:
        NotDone: There is none.
    """
    try:
        return backward(program, _listed(of), _listed(wrt))
    except NotDifferentiated as error:
        raise NotDone(str(error)) from None


def _listed(names: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in names.split(",") if part.strip())
