"""Recurrences: what a loop carries from one iteration to the next, and how.

    for j in range(N):                           s1, s2   m, l
        t = max(m, x[j])                         x1       x[j]
        l = l * exp(m - t) + exp(x[j] - t)  ->   s1 <-    max(s1, x1)
        m = t                                    s2 <-    s2 * exp(s1 - max(s1, x1)) + exp(…)

Temporaries are put in, so that the step is simultaneous: every update is over the old state, the
inputs of the iteration and the parameters, all of them named by position.
"""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.algebra.iterations.edges import Position
from looptrans.algebra.iterations.inputs import Input
from looptrans.ir.condition import Condition
from looptrans.ir.index import Index
from looptrans.ir.listing import access_text, value_text
from looptrans.ir.program import Element
from looptrans.ir.value import Access, Range, Value


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of an array of integers, or of what is true or false.

    Attributes:
        array: The array.
        kind: What it holds.
        value_range: The least that it may hold, and what all stay below, where that is declared.
        is_promised: Whether a contract says something of them.
    """

    array: str
    kind: Element
    value_range: tuple[Index, Index] | None
    is_promised: bool


@dataclass(frozen=True, slots=True)
class StateVariable:
    """A cell, or one for each iteration of inner loops, whose value the loop carries.

    Attributes:
        name: `s1`, `s2`, … in the order in which the iteration first reads them.
        access: The cell as the listing reads it.
        over: The variables of inner loops (and `:` for a whole row) the state is a vector over.
        initial: What the cell holds before the first iteration, over the listing's names.
        update: Its next value over the names of states, inputs and parameters.
        statements: The labels of the statements that write it.
        read_after: The labels of the statements after the loop that read it; `return` where the
            listing gives it back.
        bottom: The infinity that it is at first, or may be: it may go on from another maximum.
    """

    name: str
    access: Access
    over: tuple[str, ...]
    initial: Value
    update: Value
    statements: tuple[str, ...]
    read_after: tuple[str, ...]
    bottom: float | None = None


@dataclass(frozen=True, slots=True)
class Recurrence:
    """`state <- step(state, inputs)` for the iterations of one loop.

    Attributes:
        loop: The variable of the loop.
        range: Its range.
        position: Its place in the program.
        states: The state variables.
        inputs: What changes from one iteration to the next and does not depend on the state.
        parameters: What stays the same.
        condition: Where given, only the iterations where it holds change the state.
        read_inside: The labels of statements of the loop that look at the state for something
            other than its next value. Where there are any the loop is a scan, else a fold.
        seen_inside: The names of the states they look at.
        components: The cycles of the flow graph that the loop carries, as lists of labels.
        assumptions: The contracts the flow leans on, as written.
        elements: What is known of elements that are no arbitrary numbers.
    """

    loop: str
    range: Range
    position: Position
    states: tuple[StateVariable, ...]
    inputs: tuple[Input, ...]
    parameters: tuple[Input, ...]
    condition: Condition | None = None
    read_inside: tuple[str, ...] = ()
    seen_inside: tuple[str, ...] = ()
    components: tuple[tuple[str, ...], ...] = ()
    assumptions: tuple[str, ...] = ()
    elements: tuple[Elements, ...] = ()

    @property
    def is_scan(self) -> bool:
        """Whether the state is read in between, by more than its own update."""
        return bool(self.read_inside)

    def state(self, name: str) -> StateVariable:
        """Return the state variable called `name`.

        Raises:
            KeyError: There is none.
        """
        for state in self.states:
            if state.name == name:
                return state
        raise KeyError(name)

    def text(self) -> str:
        """Return the recurrence as lines for a person to read."""
        lines = [f"loop {self.loop}"]
        for state in self.states:
            over = f" over {', '.join(state.over)}" if state.over else ""
            lines.append(
                f"{state.name} = {access_text(state.access)}{over}, at first "
                f"{value_text(state.initial)}"
            )
        lines += [f"{given.name} = {value_text(given.value)}" for given in self.inputs]
        lines += [
            f"{given.name} = {value_text(given.value)}, the same throughout"
            for given in self.parameters
        ]
        lines += [f"{state.name} <- {value_text(state.update)}" for state in self.states]
        return "\n".join(lines)
