"""A program and the steps made of it so far, each proved before it is taken."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from looptrans.algebra.free import freed
from looptrans.derivation.moves import made
from looptrans.derivation.one_loop.bodies import recurrence_of
from looptrans.derivation.step import Argument, Derivation, DerivationStep, Goal, NotDone
from looptrans.ir.program import Assign, Loop, Program
from looptrans.ir.verdict import Decision
from looptrans.transforms.editing.tree import loop_paths, statements_in


@dataclass(slots=True)
class Work:
    """A program on its way: the steps made so far, and why others were not.

    Attributes:
        program: What it is now.
        steps: The steps.
        notes: Why steps were not made, as sentences.
        verdict: Of the last such reason.
    """

    program: Program
    steps: list[DerivationStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    verdict: Decision | None = None

    @property
    def first(self) -> Program:
        """The program before any step."""
        return self.steps[0].before if self.steps else self.program

    def derivation(self, goal: Goal, decision: Decision) -> Derivation:
        """Return the steps that were made."""
        notes = tuple(dict.fromkeys(self.notes))
        return Derivation(self.first, goal, tuple(self.steps), decision, notes)

    def mark(self) -> Work:
        """Return the work as it is now, to come back to."""
        return replace(self, steps=list(self.steps), notes=list(self.notes))

    def back_to(self, mark: Work) -> None:
        """Forget what was done and noted since."""
        self.program, self.verdict = mark.program, mark.verdict
        self.steps, self.notes = list(mark.steps), list(mark.notes)

    def take(self, kind: str, *arguments: Argument) -> NotDone | None:
        """Make a step; return why not where it cannot be made."""
        try:
            step = made(kind, self.program, arguments)
        except NotDone as error:
            return error
        if step.decision != "legal":
            open_ = next(c for c in step.certificates if c.verdict != "legal")
            return NotDone(f"{open_.law} is {open_.verdict}: {open_.reason}", open_.verdict)
        if step.after == self.program:
            return NotDone("nothing changes")
        self.steps.append(step)
        self.program = step.after
        return None

    def note(self, reason: NotDone) -> None:
        """Keep a reason for the reader."""
        word = reason.reason.partition(" ")[0]
        begun = word.capitalize() if word.islower() and word.isalpha() and len(word) > 1 else word
        self.notes.append(f"{begun}{reason.reason[len(word) :]}.")
        self.verdict = reason.decision

    def reduces(self, loop: Loop) -> bool:
        """Tell whether a loop carries a state that is proved to be one."""
        path = next((p for p in loop_paths(self.program) if p.loop is loop), None)
        if path is not None and freed(self.program, path) is not None:
            return False
        try:
            return bool(recurrence_of(self.program, loop_name(loop)).states)
        except NotDone:
            return False


def loop_name(loop: Loop) -> str:
    """Return a name by which the loop is found: by the first statement directly in it if it can."""
    labels = [n.label for n in loop.body if isinstance(n, Assign)]
    inside = statements_in((loop,))
    return f"{loop.variable}@{(labels or inside)[0]}"
