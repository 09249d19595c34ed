"""A combine operator that is being put together, one state variable after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from looptrans.algebra.iterations.recurrence import Recurrence, StateVariable
from looptrans.algebra.normal_forms.atoms import Expr
from looptrans.algebra.normal_forms.terms import Terms
from looptrans.algebra.operators.operator import Component
from looptrans.algebra.positional.values import ONE, ZERO, add, multiply
from looptrans.ir.value import Real, Value

Build = Callable[[Mapping[str, Value], Mapping[str, Value]], Value]


@dataclass(slots=True)
class Draft:
    """An operator as far as it is found.

    Attributes:
        recurrence: What an operator is looked for.
        joint: Sets of state variables to be taken together, as vectors.
        tried: What was tried and why it did not do, one phrase each.
        terms: The normal forms.
        components: The components found so far.
        act: The states after a part, as far as found.
        where: The number of the component of each solved state variable.
    """

    recurrence: Recurrence
    joint: tuple[frozenset[str], ...] = ()
    tried: list[str] = field(default_factory=list)
    terms: Terms = field(default_factory=Terms)
    components: list[Component] = field(default_factory=list)
    act: list[tuple[str, Value]] = field(default_factory=list)
    where: dict[str, int] = field(default_factory=dict)

    def no(self, state: StateVariable, why: str) -> bool:
        """Note why a strategy does not do for a state variable; False."""
        text = f"{state.name}: {why}"
        if text not in self.tried:
            self.tried.append(text)
        return False

    @property
    def states(self) -> frozenset[str]:
        """The names of all state variables."""
        return frozenset(state.name for state in self.recurrence.states)

    def free(self, expr: Expr) -> bool:
        """Tell whether a normal form depends on no state variable."""
        return not self.terms.names_in(expr) & self.states

    def letters(self, letter: str) -> dict[str, Value]:
        """Return the names of the solved variables in one part, `a1`, `a2` and so on."""
        return {name: Real(f"{letter}{number}") for name, number in self.where.items()}

    def keep(self, state: StateVariable, component: Component, build: Build) -> bool:
        """Take a component; `build` gives its formula over the earlier part and the new one."""
        number = len(self.components) + 1
        self.where[state.name] = number
        new = {name: Real(f"c{n}") for name, n in self.where.items()}
        combined = build(self.letters("a"), new)
        self.components.append(replace(component, combine=combined))
        after: dict[str, Value] = {name: Real("t" + name[1:]) for name in self.where}
        self.act.append((state.name, build({name: Real(name) for name in self.where}, after)))
        return True

    def coefficient(self, state: StateVariable, unit: Value, monoid: str) -> Real:
        """Take a coefficient that parts join by `+` or `*`, and return its name in a part."""
        number = len(self.components) + 1
        a, b = Real(f"a{number}"), Real(f"b{number}")
        combine = add(a, b) if monoid == "+" else multiply(a, b)
        word = "sum" if monoid == "+" else "product"
        self.components.append(
            Component(
                None,
                f"the {word} of the coefficients of {state.name}",
                unit,
                combine,
                ZERO if monoid == "+" else ONE,
            )
        )
        return b
