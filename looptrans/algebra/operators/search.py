"""The search for a combine operator, which reads the step and nothing else.

State variables are taken in the order in which they depend on each other. Each is brought to one
of the forms whose composition is known:

    max(s + a, b), min(s + a, b)    joined by max and min, with the sums of the a
    a * s + b                       joined by sums, with the products of the a
    A(S, x) * s + B(S, x)           a map phi(s) = w(S) * s + r(S) is solved for that turns it into
                                    the form before: w and r in the state variables solved already
    g'(s) / h'(x) separable         the step is g^-1(g(s) + h(x)), with g found by integration
    inputs that can be read off     the step itself, put in front of a part that is one iteration
    several affine in each other    matrices

What is found is a proposal; `laws.py` proves it or it is not taken.
"""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.algebra.iterations.order import all_needed, in_order, inputs_of
from looptrans.algebra.iterations.recurrence import StateVariable
from looptrans.algebra.normal_forms.atoms import Undefined
from looptrans.algebra.normal_forms.terms import Terms
from looptrans.algebra.operators.draft import Draft
from looptrans.algebra.operators.extrema import extremum
from looptrans.algebra.operators.matrices import matrices
from looptrans.algebra.operators.operator import Operator
from looptrans.algebra.operators.own_step import conjugated, itself
from looptrans.algebra.operators.scaled_sums import affine


@dataclass(slots=True)
class Search(Draft):
    """A search under way."""

    def run(self) -> Operator | None:
        """Return a proposal, or None; `tried` then says what was tried."""
        self.terms = Terms(inputs_of(self.recurrence))
        for group in in_order(self.recurrence, self.joint):
            try:
                done = (
                    matrices(self, group)
                    if len(group) > 1 or group[0].name in {n for j in self.joint for n in j}
                    else self._single(group[0])
                )
            except Undefined as reason:
                done = self.no(group[0], f"a part of the step is not a number: {reason}")
            if not done:
                return self._together(group)
        order = [state.name for state in self.recurrence.states]
        act = tuple(sorted(self.act, key=lambda pair: self.where[pair[0]]))
        assert {name for name, _ in act} == set(order)
        return Operator(tuple(self.components), act)

    def _together(self, group: tuple[StateVariable, ...]) -> Operator | None:
        """Try once more with a variable and all it depends on taken as a vector."""
        wanted = frozenset(all_needed(self.recurrence, {state.name for state in group}))
        if len(wanted) < 2 or any(wanted <= known for known in self.joint):
            return None
        again = Search(self.recurrence, (*self.joint, wanted), self.tried)
        found = again.run()
        if found is None:
            self.tried = again.tried
        return found

    def _single(self, state: StateVariable) -> bool:
        strategies = (extremum, affine, itself, conjugated)
        before = len(self.tried)
        if any(strategy(self, state) for strategy in strategies):
            del self.tried[before:]
            return True
        return False
