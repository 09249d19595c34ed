"""What was tried on a recurrence, said in the names of the listing."""

from __future__ import annotations

import re
from collections.abc import Iterable

from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.ir.listing import access_text, value_text

_NAME = re.compile(r"\b[spx]\d+\b")
_LONGEST = 60


def tried_text(recurrence: Recurrence, tried: Iterable[str]) -> str:
    """Return what was tried and why it did not do, together for each state variable.

    s2: it is no sum; s2: x1 is negative    ->    O[i, d]: it is no sum, X[i, j] is negative

    Args:
        recurrence: What was looked at.
        tried: One phrase each, over the names of the recurrence.
    """
    called = {s.name: access_text(s.access) for s in recurrence.states}
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
