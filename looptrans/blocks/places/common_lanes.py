"""Blocks that one loop goes over have the same lanes, whatever their loops are called."""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.blocks.places.storage import Storage
from looptrans.blocks.scheduled.sites import Binding, Path, Span
from looptrans.ir.index import Index, Var, substitute, variables


def with_common_lanes(found: dict[str, Storage]) -> dict[str, Storage]:
    """Let blocks that one loop goes over have the same lanes, whatever their loops are called.

    Two lanes of one block stay two: in for d: for e: C[d, e] = x[d] * x[e] both loops go over x.
    """
    groups: list[_Lanes] = []
    for storage in found.values():
        for lane in storage.lanes:
            own = {(path, lane.span) for path, home in storage.bound if home == lane}
            joined = _Lanes([(storage.array, lane)], own)
            apart = []
            for group in groups:
                if group.places & own and not group.arrays & joined.arrays:
                    joined = _Lanes(group.members + joined.members, group.places | joined.places)
                else:
                    apart.append(group)
            groups = [*apart, joined]
    return _called_alike(found, [group.members for group in groups])


@dataclass(frozen=True, slots=True)
class _Lanes:
    """Lanes of blocks that have one dimension.

    Attributes:
        members: The blocks, and which of their lanes.
        places: The loops that go over them, with their ranges.
    """

    members: list[tuple[str, Binding]]
    places: set[tuple[Path, Span]]

    @property
    def arrays(self) -> set[str]:
        return {array for array, _ in self.members}


def _called_alike(
    found: dict[str, Storage], groups: list[list[tuple[str, Binding]]]
) -> dict[str, Storage]:
    """Call the lanes of a group what the first is called, unless its blocks say that already."""
    called: dict[tuple[str, Binding], Binding] = {}
    for group in groups:
        _, first = group[0]
        taken: set[str] = set()
        for array, lane in group:
            others = [called.get((array, o), o) for o in found[array].lanes if o != lane]
            named = {name for s in found[array].subscripts for name in variables(s)}
            taken |= (named | {other.variable for other in others}) - {lane.variable}
        name, number = first.variable, 1
        while name in taken:
            number += 1
            name = f"{first.variable}_{number}"
        for each in group:
            called[each] = replace(first, variable=name)
    made = {}
    for array, storage in found.items():
        new = {lane: called[array, lane] for lane in storage.lanes}
        names: dict[str, Index] = {o.variable: Var(n.variable) for o, n in new.items()}
        made[array] = replace(
            storage,
            subscripts=tuple(substitute(s, names) for s in storage.subscripts),
            lanes=tuple(new[lane] for lane in storage.lanes),
            bound=tuple((path, new[home]) for path, home in storage.bound),
        )
    return made
