"""How one state takes a block of iterations in, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf

from looptrans.algebra.recurrence import StateVariable
from looptrans.ir.condition import Condition, Data, Every
from looptrans.ir.monoids import Monoid
from looptrans.ir.value import Access, Compare, Const, Real, Value


@dataclass(frozen=True, slots=True)
class AppendedState:
    """How one state takes a block of iterations in.

    Attributes:
        state: The state variable: its cell, the inner loops it is a vector over, the statements
            that write it, its initial value.
        operator: What joins the terms of a block; `+` for a moved one.
        term: What one iteration offers: over inputs `x…`, parameters `p…` and, where the state is
            moved, the next values `t…` of states before it.
        factor: For a moved state, what the old value is multiplied by, over `s…`, `t…` and `p…`.
        condition: Where given, only the iterations where it holds offer a term; over the inputs.
        guard: Where given, the state stays as it is unless this holds of the next values `t…`.
    """

    state: StateVariable
    operator: Monoid
    term: Value
    factor: Value | None = None
    condition: Condition | None = None
    guard: Condition | None = None

    @property
    def is_moved(self) -> bool:
        """Whether the old value is multiplied by a factor when others move."""
        return self.factor is not None

    @property
    def access(self) -> Access:
        """The cell, as the listing reads it."""
        return self.state.access

    @property
    def statements(self) -> tuple[str, ...]:
        """The labels of the statements that write it."""
        return self.state.statements

    @property
    def waits_for(self) -> tuple[tuple[str, float], ...]:
        """The states that the guard looks at, each with the infinity it must have left."""
        parts = () if self.guard is None else guard_parts(self.guard)
        return tuple(tested for tested in map(left_infinity, parts) if tested is not None)


def guard_parts(condition: Condition) -> tuple[Condition, ...]:
    """Return the conditions that must all hold for a guard to hold."""
    return condition.parts if isinstance(condition, Every) else (condition,)


def left_infinity(condition: Condition) -> tuple[str, float] | None:
    """Return which state must have left which infinity; None for any other condition."""
    match condition:
        case Data(Compare(">" | "<" | "!=" as op, Real(name), Const(bound))):
            wanted = {">": bound < 0, "<": bound > 0, "!=": True}[op]
            if name[0] == "t" and isinf(bound) and wanted:
                return "s" + name[1:], float(bound)
    return None
