"""Combine operators: what joins the results of two parts of a loop.

A part's result is a list of components, numbered 1, 2, …. In formulas `a1` is a component of the
earlier part, `b1` of the later one, `c1` of the two together, `s1` a state variable, `t1` its next
value, `x1` an input, `p1` a parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from looptrans.algebra.positional.values import put
from looptrans.ir.listing import value_text
from looptrans.ir.value import Real, Value


@dataclass(frozen=True, slots=True)
class Component:
    """One number of a part's result.

    Attributes:
        state: The state variable it is a value of; None for a coefficient that only partial
            results have.
        kind: How it was found, as a phrase.
        unit: Its value for a single iteration, over inputs and parameters.
        combine: Its value for two parts, over `a…`, `b…` and the `c…` before it.
        identity: Its value for no iteration at all.
        coordinate: Where given, a map of the component to a number that parts simply add (or
            multiply, or take the maximum of), over `s…`.
        monoid: What joins the coordinates: `+`, `*`, `max`, `min`; else empty.
        contribution: The coordinate of a single iteration.
        inverse: The component over its coordinate `y…` and the components before it.
    """

    state: str | None
    kind: str
    unit: Value
    combine: Value
    identity: Value
    coordinate: Value | None = None
    monoid: str = ""
    contribution: Value | None = None
    inverse: Value | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    """A combine operator for a recurrence.

    Attributes:
        components: The components of a partial result.
        act: For each state, its value after a part, over `s…`, `b…` and the `t…` before it.
        guarded: Whether no iterations at all (⊥) must be a case of its own, since the formulas
            are not numbers there.
        positive: The numbers of the components that are positive for every part that is not empty.
        nonnegative: Those that are never negative, and not always positive.
    """

    components: tuple[Component, ...]
    act: tuple[tuple[str, Value], ...]
    guarded: bool = False
    positive: tuple[int, ...] = ()
    nonnegative: tuple[int, ...] = ()

    @property
    def is_extended(self) -> bool:
        """Whether partial results hold more than the state."""
        return any(component.state is None for component in self.components)

    @property
    def unit(self) -> tuple[Value, ...]:
        """The result of a single iteration."""
        return tuple(component.unit for component in self.components)

    @property
    def identity(self) -> tuple[Value, ...]:
        """The result of no iteration."""
        return tuple(component.identity for component in self.components)

    def combined(self, left: Sequence[Value], right: Sequence[Value]) -> tuple[Value, ...]:
        """Return the components of two parts together, nothing named in between."""
        found: list[Value] = []
        names: dict[str, Value] = {}
        for number, (a, b) in enumerate(zip(left, right, strict=True), 1):
            names |= {f"a{number}": a, f"b{number}": b}
        for number, component in enumerate(self.components, 1):
            found.append(put(component.combine, names))
            names[f"c{number}"] = found[-1]
        return tuple(found)

    def acted(self, states: dict[str, Value], part: Sequence[Value]) -> dict[str, Value]:
        """Return the states after a part, nothing named in between."""
        names = dict(states) | {f"b{number}": value for number, value in enumerate(part, 1)}
        found: dict[str, Value] = {}
        for state, formula in self.act:
            found[state] = put(formula, names)
            names["t" + state[1:]] = found[state]
        return found

    def names(self, letter: str) -> tuple[Value, ...]:
        """Return the components under names of a letter: `a1, a2, …`."""
        return tuple(Real(f"{letter}{number}") for number in range(1, len(self.components) + 1))

    def text(self) -> str:
        """Return the operator as lines for a person to read."""
        lines = []
        for number, component in enumerate(self.components, 1):
            of = component.state or "a coefficient"
            lines.append(f"c{number} = {value_text(component.combine)}    # {of}: {component.kind}")
        units = ", ".join(value_text(value) for value in self.unit)
        nothing = ", ".join(value_text(value) for value in self.identity)
        lines.append(
            f"one iteration: ({units}); none: ({nothing})"
            + (", a case of its own" if self.guarded else "")
        )
        return "\n".join(lines)
