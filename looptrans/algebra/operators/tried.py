"""What was tried on a recurrence, and what refutes it, said in the names of the listing."""

from __future__ import annotations

import re
from collections.abc import Iterable

from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.operators.refusal import Refusal
from looptrans.ir.listing import access_text, value_text
from looptrans.ir.value import Read

_NAME = re.compile(r"\b[spx]\d+\b")
_LONGEST = 60


def tried_text(recurrence: Recurrence, tried: Iterable[str]) -> str:
    """Return what was tried and why it did not do, together for each state variable.

    s2: it is no sum; s2: x1 is negative    ->    O[i, d]: it is no sum, X[i, j] is negative

    Args:
        recurrence: What was looked at.
        tried: One phrase each, over the names of the recurrence.
    """
    called = _cells(recurrence)
    for given in (*recurrence.inputs, *recurrence.parameters):
        text = value_text(given.value)
        called[given.name] = text if len(text) <= _LONGEST else "an input"
    found: dict[str, list[str]] = {}
    for phrase in tried:
        of, _, why = phrase.partition(": ")
        of, why = (of, why) if of in called else ("", phrase)
        found.setdefault(of, []).append(_NAME.sub(lambda m: called.get(m[0], m[0]), why))
    return "; ".join(
        f"{called[of]}: {', '.join(why)}" if of else ", ".join(why) for of, why in found.items()
    )


def refused_text(recurrence: Recurrence, refusal: Refusal) -> str:
    """Return the numbers that refute a recurrence, as a sentence.

    Cells go by their own names; what else iterations are given is said behind the numbers.
    """
    called, others = _cells(recurrence), []
    for given in (*recurrence.inputs, *recurrence.parameters):
        if isinstance(given.value, Read):
            called[given.name] = value_text(given.value)
        else:
            verb = "is 1 where" if given.is_truth else "is"
            others.append(f"{given.name} {verb} {value_text(given.value)}")
    return "; ".join((refusal.text(called), *others))


def in_cells(recurrence: Recurrence, text: str) -> str:
    """Return a phrase about states with the cells they are."""
    called = _cells(recurrence)
    return _NAME.sub(lambda m: called.get(m[0], m[0]), text)


def _cells(recurrence: Recurrence) -> dict[str, str]:
    return {s.name: access_text(s.access) for s in recurrence.states}
