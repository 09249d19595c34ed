"""The phrases every report shares: vectors, witnesses, carried loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from looptrans.ir.facts import Dependence, Direction
from looptrans.ir.verdict import Assignment, Witness
from looptrans.reports.style import printable

_SIGNS = {"<": "<", "=": "=", ">": ">", "<=": "≤", "=>": "≥", "<>": "≠", "<=>": "*"}


def vector(entries: Iterable[object]) -> str:
    """Return `(a,b)`."""
    return f"({','.join(str(entry) for entry in entries)})"


def assignments(values: Assignment) -> str:
    """Return `M=1 N=2`."""
    return " ".join(f"{printable(name)}={value}" for name, value in values)


def pair(witness: Witness) -> str:
    """Return the two instances of a witness: `(0,0) → (0,1)`."""
    source = vector(value for _, value in witness.source)
    sink = vector(value for _, value in witness.sink)
    return f"{source} → {sink}"


def example(witness: Witness, opening: str = "e.g.") -> str:
    """Return a witness in words: `e.g. M=1 N=2: (0,0) → (0,1)`."""
    sizes = " ".join(
        part for part in (assignments(witness.parameters), assignments(witness.elements)) if part
    )
    return f"{opening} {sizes}: {pair(witness)}" if sizes else f"{opening} {pair(witness)}"


def repeated_loops(dependences: Iterable[Dependence]) -> frozenset[str]:
    """Return the loop variables that name more than one carrying loop."""
    lines: dict[str, set[int]] = {}
    for dependence in dependences:
        if dependence.carried_by is not None and dependence.carried_line is not None:
            lines.setdefault(dependence.carried_by, set()).add(dependence.carried_line)
    return frozenset(name for name, found in lines.items() if len(found) > 1)


def carrier(dependence: Dependence, repeated: frozenset[str] = frozenset()) -> str | None:
    """Return the loop that carries a dependence: `j`, or `j@12` where `j` is not unique."""
    name = dependence.carried_by
    if name is None:
        return None
    if name in repeated and dependence.carried_line is not None:
        return f"{printable(name)}@{dependence.carried_line}"
    return printable(name)


def listed(names: Sequence[str], last: str = "and") -> str:
    """Return `a`, `a and b`, or `a, b and c`."""
    shown = [printable(name) for name in names]
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} {last} {shown[-1]}"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return `1 edge` or `3 edges`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def joined_directions(vectors: Iterable[tuple[Direction, ...]]) -> tuple[str, ...]:
    """Write a set of direction vectors with as few as possible, saying exactly the same.

    Vectors that differ in one entry only become one, inner loops first; an entry is then `≤`, `≥`,
    `≠`, or `*` for all three.

        (=,<) (<,<) (<,=) (<,>)    ->    (=,<) (<,*)
    """
    sets = sorted({tuple(map(_signs, entries)) for entries in vectors}, key=_key)
    for position in reversed(range(max((len(entries) for entries in sets), default=0))):

        def others(
            entries: tuple[frozenset[Direction], ...], place: int = position
        ) -> list[tuple[int, ...]]:
            return _key((*entries[:place], *entries[place + 1 :]))

        long = [entries for entries in sets if len(entries) > position]
        merged = [entries for entries in sets if len(entries) <= position]
        for _, group in groupby(sorted(long, key=others), key=others):
            members = list(group)
            union = frozenset[Direction]().union(*(entries[position] for entries in members))
            merged.append((*members[0][:position], union, *members[0][position + 1 :]))
        sets = sorted(merged, key=_key)
    return tuple(
        vector(_SIGNS["".join(sign for sign in "<=>" if sign in entry)] for entry in entries)
        for entries in sets
    )


def _signs(entry: Direction) -> frozenset[Direction]:
    return frozenset(("<", "=", ">")) if entry == "*" else frozenset((entry,))


def _key(entries: tuple[frozenset[Direction], ...]) -> list[tuple[int, ...]]:
    return [tuple(sorted("=<>".index(sign) for sign in entry)) for entry in entries]
