"""A recurrence judged: an operator with its laws, a refusal with numbers, or what was tried."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from looptrans.algebra.iterations.inputs import Input
from looptrans.algebra.iterations.recurrence import Recurrence, StateVariable
from looptrans.algebra.operators.laws import Law, completed, laws
from looptrans.algebra.operators.operator import Operator
from looptrans.algebra.operators.refusal import Refusal, refusal
from looptrans.algebra.operators.search import Search
from looptrans.algebra.positional.values import ONE, ZERO, add, multiply, number, put
from looptrans.ir.index import Int, Var
from looptrans.ir.value import Access, IndexValue, Real, Value

Decision = Literal["found", "refused", "unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether a recurrence may be split, and by what.

    Attributes:
        decision: `found`: it may, with a proved operator; `refused`: its state cannot be the
            result of a part, and no larger one was found; `unknown`.
        recurrence: The recurrence, with the state that was added, if any.
        operator: For `found`, the operator.
        laws: Its laws, decided.
        refusal: For `refused`, the numbers.
        tried: What was tried and why it did not do.
    """

    decision: Decision
    recurrence: Recurrence
    operator: Operator | None = None
    laws: tuple[Law, ...] = ()
    refusal: Refusal | None = None
    tried: tuple[str, ...] = ()


def find_operator(recurrence: Recurrence) -> Finding:
    """Look for an operator that joins the results of two parts of a loop, and prove it.

    Recurrences that differ only in where their statements stand share one search.
    """
    finding = _found(
        replace(
            recurrence,
            position=(),
            states=tuple(replace(s, statements=(), read_after=()) for s in recurrence.states),
            components=(),
        )
    )
    own = {state.name: state for state in recurrence.states}
    states = tuple(
        replace(s, statements=own[s.name].statements, read_after=own[s.name].read_after)
        if s.name in own
        else s
        for s in finding.recurrence.states
    )
    placed = replace(
        finding.recurrence,
        position=recurrence.position,
        states=states,
        components=recurrence.components,
    )
    return replace(finding, recurrence=placed)


@lru_cache(maxsize=16)
def _found(recurrence: Recurrence) -> Finding:
    tried: list[str] = []
    for candidate in (recurrence, with_counter(recurrence)):
        if candidate is None:
            continue
        search = Search(candidate)
        proposal = search.run()
        tried += [text for text in search.tried if text not in tried]
        if proposal is None:
            continue
        operator = completed(candidate, proposal)
        found = laws(candidate, operator)
        failed = [law for law in found if law.is_required and law.answer != "proved"]
        if not failed:
            return Finding("found", candidate, operator, found)
        tried += [f"the operator that was put together fails: {law.name}" for law in failed]
    numbers = refusal(recurrence)
    if numbers is not None:
        return Finding("refused", recurrence, refusal=numbers, tried=tuple(tried))
    return Finding("unknown", recurrence, tried=tuple(tried))


def with_counter(recurrence: Recurrence) -> Recurrence | None:
    """Return a recurrence that counts its iterations instead of reading the loop variable.

    None where no input is the loop variable, or its range does not begin at a number.
    """
    start = recurrence.range.start
    if not isinstance(start, Int):
        return None
    name = f"s{len(recurrence.states) + 1}"
    at = add(number(start.value), multiply(number(recurrence.range.step), Real(name)))
    counted: dict[str, Value] = {}
    kept: list[Input] = []
    for given in recurrence.inputs:
        value = _over_counter(given.value, recurrence.loop, at)
        if value is None:
            kept.append(given)
        else:
            counted[given.name] = value
    if not counted:
        return None
    states = tuple(replace(state, update=put(state.update, counted)) for state in recurrence.states)
    counter = StateVariable(
        name, Access(recurrence.loop, ()), (), ZERO, add(Real(name), ONE), (), ()
    )
    return replace(recurrence, states=(*states, counter), inputs=tuple(kept))


def _over_counter(value: Value, loop: str, at: Value) -> Value | None:
    from looptrans.algebra.positional.cells import linear

    if not isinstance(value, IndexValue):
        return None
    terms = linear(value.index)
    if Var(loop) not in terms or not set(terms) <= {None, Var(loop)}:
        return None
    return add(multiply(number(terms[Var(loop)]), at), number(terms.get(None, 0)))
