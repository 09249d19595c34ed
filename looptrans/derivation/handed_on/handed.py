"""Through which arrays iterations of a loop hand something on, and how far back any of them looks.

for t: h[t + 1] = a[t] * h[t] + x[t]           one iteration back, from the element 0
for t: h[t] = a * h[t - 1] + b * h[t - 2]      two iterations back
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from looptrans.ir.affine import difference, form_of, is_same, simplified, total
from looptrans.ir.creation import creation_of
from looptrans.ir.index import Index, Int, Var, substitute, variables
from looptrans.ir.program import Array, Assign, Program
from looptrans.ir.value import Whole
from looptrans.transforms.editing.accesses import AccessSite, sites_of
from looptrans.transforms.editing.tree import LoopPath

MOST_BACK: Final = 4


@dataclass(frozen=True, slots=True)
class Handed:
    """An array through which iterations hand something on.

    Attributes:
        array: The array.
        loop: The loop, and where it stands.
        time: Which dimension goes with it.
        behind: What an iteration sets in it.
        begun: Whether what else writes it says what the first iteration finds.
        order: How many iterations back any of them looks.
        around: Whether elements look at others that are so far ahead of them or behind.
        late: Whether the first iteration reads nothing that one before it would have set: the state
            starts as what it may leave as it is.
        anew: Whether each iteration may leave what it sets as it was created, or adds to that.
    """

    array: Array
    loop: LoopPath
    time: int
    behind: Index
    begun: bool
    order: int = 1
    around: bool = False
    late: bool = False
    anew: bool = False

    def back(self, index: Index) -> int | None:
        """Return how many iterations ago something was set; 0 for this one, None for another."""
        apart = difference(self.behind, index)
        moved = difference(self.behind, self._at(total(Var(self.loop.variable), -self.step)))
        if not isinstance(apart, Int) or not isinstance(moved, Int):
            return None
        count, left = divmod(apart.value, moved.value)
        return count if not left and 0 <= count <= MOST_BACK else None

    @property
    def step(self) -> int:
        """The step of the loop."""
        return self.loop.loop.range.step

    def first(self, back: int) -> Index:
        """Return what the first iteration finds so many iterations back."""
        count = back - 1 if self.late else back
        return self._at(total(self.loop.loop.range.start, -count * self.step))

    def _at(self, time: Index) -> Index:
        return simplified(substitute(self.behind, {self.loop.variable: time}))

    def without_time(self, each: tuple[Index, ...]) -> tuple[Index, ...]:
        """Return subscripts or extents without that of time."""
        return (*each[: self.time], *each[self.time + 1 :])


def handed_on(program: Program) -> tuple[str, ...]:
    """Return the arrays through which iterations hand something on, that a state could keep."""
    return tuple(a.name for a in program.arrays if handed(program, a) is not None)


def has_own_cells(program: Program, array: Array) -> bool:
    """Tell whether a listing makes an array of numbers itself, of an extent that is known."""
    return (
        array.role == "local"
        and array.element == "float"
        and array.rank > 0
        and None not in array.shape
        and creation_of(program, array.name) is not None
    )


def handed(program: Program, array: Array) -> Handed | None:
    """Return how iterations hand something on through an array, if they do."""
    if not has_own_cells(program, array):
        return None
    sites = sites_of(program, array.name)
    for site in sites:
        if not site.relation.is_write or not isinstance(site.place.node, Assign):
            continue
        for position, loop in zip(site.place.loop_positions, site.place.loops, strict=True):
            path = LoopPath(loop, position)
            found = _along(array, path, site, sites)
            if found is not None:
                return found
    return None


def _along(
    array: Array, path: LoopPath, write: AccessSite, sites: tuple[AccessSite, ...]
) -> Handed | None:
    """Return how an array is handed on along a loop, by one statement that sets it."""
    if path.loop.execution == "parallel" or path.loop.range.step not in (1, -1):
        return None
    depth = len(path.position)
    inside = [s for s in sites if s.place.position[:depth] == path.position]
    if any(isinstance(s, Whole) for each in inside for s in each.access.subscripts):
        return None
    times = [n for n, s in enumerate(write.access.indices) if path.variable in variables(s)]
    if len(times) != 1:
        return None
    behind = write.access.indices[times[0]]
    if abs(form_of(behind).terms.get(Var(path.variable), 0)) != 1:
        return None
    around = {loop.variable for loop in write.place.loops} - {path.variable}
    if around & set(variables(behind)):
        return None
    found = Handed(array, path, times[0], behind, begun=False)
    outside = [s for s in sites if s.relation.is_write and s not in inside]
    begun = bool(outside) and all(
        isinstance(each.place.node, Assign)
        and len(each.place.node.targets) == 1
        and not each.access.rank
        and each.place.position < path.position
        and is_same(each.access.indices[times[0]], found.first(1))
        for each in outside
    )
    loops = zip(write.place.loop_positions, write.place.loops, strict=True)
    outer = {loop.variable for at, loop in loops if len(at) < depth}
    order, looks_around = 0, False
    for each in inside:
        own = each.access.indices
        others = found.without_time(own)
        if any(path.variable in variables(index) for index in others):
            return None
        back = found.back(own[found.time])
        if back is None:
            return None
        if each.relation.is_write and (back or not isinstance(each.place.node, Assign)):
            return None
        order = max(order, back)
        moved = (i for i in others if not isinstance(i, Var) and set(variables(i)) - outer)
        looks_around |= back > 0 and any(moved)
    if not order:
        return None
    found = replace(found, order=order, around=looks_around, begun=begun and order == 1)
    if any(len(s.place.node.targets) > 1 for s in inside if isinstance(s.place.node, Assign)):
        return None
    return found
