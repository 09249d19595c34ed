"""How one state takes a block of iterations in, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf
from typing import Literal, TypeAlias

from looptrans.algebra.iterations.recurrence import StateVariable
from looptrans.ir.condition import Condition, Data, conjuncts
from looptrans.ir.monoids import Monoid
from looptrans.ir.value import Access, Compare, Const, Real, Value

Comparison: TypeAlias = Literal[">", ">=", "<", "<="]


@dataclass(frozen=True, slots=True)
class Pick:
    """When a state takes what an iteration offers: where a maximum or minimum is attained.

        t2 = X(x) if V(x) > s1 else s2, and t1 = max(s1, V(x))

    Attributes:
        of: The extremum, `s1`.
        offered: What the iteration offers that, V.
        comparison: How V is compared with its old value: `>` keeps the first of several that
            attain a maximum, `>=` the last; `<` and `<=` those of a minimum.
    """

    of: str
    offered: Value
    comparison: Comparison

    @property
    def is_strict(self) -> bool:
        """Whether the first of several that attain the extremum is kept, not the last."""
        return self.comparison in (">", "<")

    def moves(self, old: Value) -> Condition:
        """Return the condition that what is offered takes the place of an old extremum."""
        return Data(Compare(self.comparison, self.offered, old))


@dataclass(frozen=True, slots=True)
class AppendedState:
    """How one state takes a block of iterations in.

    Attributes:
        state: The state variable: its cell, the inner loops it is a vector over, the statements
            that write it, its initial value.
        operator: What joins the terms of a block; `+` for a moved one. A picked one has that of
            the extremum it goes with.
        term: What one iteration offers: over inputs `x…`, parameters `p…` and, where the state is
            moved, the next values `t…` of states before it.
        factor: For a moved state, what the old value is multiplied by, over `s…`, `t…` and `p…`.
        condition: Where given, only the iterations where it holds offer a term; over the inputs.
        guard: Where given, the state stays as it is unless this holds of the next values `t…`.
        pick: For a picked state, when it takes the term.
    """

    state: StateVariable
    operator: Monoid
    term: Value
    factor: Value | None = None
    condition: Condition | None = None
    guard: Condition | None = None
    pick: Pick | None = None

    @property
    def is_plain(self) -> bool:
        """Whether what iterations offer is joined to the old value by the operator."""
        return self.factor is None and self.pick is None

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
        parts = () if self.guard is None else conjuncts(self.guard)
        return tuple(tested for tested in map(left_infinity, parts) if tested is not None)


def left_infinity(condition: Condition) -> tuple[str, float] | None:
    """Return which state must have left which infinity; None for any other condition."""
    match condition:
        case Data(Compare(">" | "<" | "!=" as op, Real(name), Const(bound))):
            wanted = {">": bound < 0, "<": bound > 0, "!=": True}[op]
            if name[0] == "t" and isinf(bound) and wanted:
                return "s" + name[1:], float(bound)
    return None
