"""What the variables of sums in a value are called.

sum(Q[i, c] * sum(W[c, t] for t in …) for c in …)        binds c, then t
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from looptrans.algebra.positional.cells import condition_moved, value_moved
from looptrans.ir.index import Index, Var, substitute
from looptrans.ir.rewrite import range_changed, replaced
from looptrans.ir.value import Generator, Reduce, Value, value_children


def outermost(value: Value) -> Iterator[Reduce]:
    """Yield the sums in a value that are in no other sum."""
    if isinstance(value, Reduce):
        yield value
    else:
        for part in value_children(value):
            yield from outermost(part)


def bound(value: Value) -> Iterator[str]:
    """Yield the variables that a value binds, in the order in which `called` names them."""
    for part in outermost(value):
        yield from (g.variable for g in part.generators)
        yield from bound(part.body)


def nameless(value: Value) -> Value:
    """Return a value with variables that are called by their places, as nothing in a listing is."""
    return called(value, (f"{number}" for number in count()))


def called(value: Value, names: Iterator[str]) -> Value:
    """Give the variables that a value binds other names, in the order of the text."""

    def change(part: Value) -> Value | None:
        if not isinstance(part, Reduce):
            return None
        new: dict[str, Index] = {g.variable: Var(next(names)) for g in part.generators}
        own = tuple(generator_called(each, new) for each in part.generators)
        return Reduce(part.function, own, called(value_moved(part.body, new), names))

    return replaced(value, change)


def generator_called(generator: Generator, new: dict[str, Index]) -> Generator:
    """Give a variable of a sum, and those that it hangs on, other names.

    Args:
        generator: What binds the variable.
        new: The variables that are called otherwise, it among them.
    """
    ends = generator.range
    bounds = range_changed(ends, lambda end: substitute(end, new))
    variable = new[generator.variable]
    assert isinstance(variable, Var)
    return Generator(variable.name, bounds, condition_moved(generator.condition, new))
