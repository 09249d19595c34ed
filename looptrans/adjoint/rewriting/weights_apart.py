"""Sums of weights that different sums divide, each by itself.

    for j:                                        for j:
        p = exp(s - m) / l - c * exp(t - k) / n       O = O + exp(s - m) / l * V[j]
        O = O + p * V[j]                     ->       O2 = O2 + c * exp(t - k) / n * V[j]
                                                  O = O - O2

Each can be one pass with those that find its maximum and its sum; a difference of the two has to
wait for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.adjoint.carried.recurrences import again
from looptrans.adjoint.rewriting.unread import without_unread
from looptrans.algebra.positional.values import ZERO, add, divide, is_number, multiply
from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import Var, variables
from looptrans.ir.program import Assign, Declaration, Loop, Node, Program
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.rewrite import rewritten
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Create,
    Read,
    Select,
    Unary,
    Value,
    arrays_read,
    walk_value,
)
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import Placed, nodes, placed
from looptrans.transforms.editing.accesses import listed, sites_of
from looptrans.transforms.editing.naming import fresh_name

_Signed: TypeAlias = tuple[int, Value]


@dataclass(frozen=True, slots=True)
class WeightsApart:
    """A program in which such a sum is several.

    Attributes:
        program: The program afterwards.
        cell: The sum.
        others: What else is summed up now.
    """

    program: Program
    cell: str
    others: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"sum {listed(self.others)} up apart from {self.cell}"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "the sum of differences is the difference of the sums"
        return Certificate("algebra", law, "legal", "from the text; sums of more terms likewise")


def with_weights_apart(program: Program) -> WeightsApart | None:
    """Sum weights up by themselves that wait for other maxima and sums than those beside them.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such sum.
    """
    for site in placed(program):
        if isinstance(site.node, Assign) and len(site.node.targets) == 1:
            found = _apart(program, site, site.node)
            if found is not None:
                return found
    return None


def _apart(program: Program, site: Placed, node: Assign) -> WeightsApart | None:
    (cell,), (value,) = node.targets, node.values
    update = accumulation(cell, value)
    depth = _summed_over(site, cell, _loops_around(program.body, cell.array) or ())
    if update is None or update[0] != "sum" or update[2] != ALWAYS or depth is None:
        return None
    loop = site.loop_positions[depth]
    if any(
        each.place.position[: len(loop)] == loop and each.place.position != site.position
        for each in sites_of(program, cell.array)
    ):
        return None
    known = _Known(program, site, depth)
    groups: dict[frozenset[str], list[_Signed]] = {}
    for sign, term in known.terms(update[1]):
        waits = known.waits_for(term)
        if not waits or not known.is_weight(term):
            return None
        groups.setdefault(waits, []).append((sign, term))
    names = [name for waits in groups for name in waits]
    if len(groups) < 2 or len(set(names)) < len(names):
        return None
    return _written(program, site, node, depth, list(groups.values()), known.opened)


def _loops_around(body: tuple[Node, ...], array: str) -> tuple[Loop, ...] | None:
    """Return the loops that an array is made in, one for each iteration; None for what is given."""
    for node in body:
        match node:
            case Declaration(name) if name == array:
                return ()
            case Assign(targets=(Access(name),), values=(Create(),)) if name == array:
                return ()
            case Loop():
                inner = _loops_around(node.body, array)
                if inner is not None:
                    return (node, *inner)
            case _:
                pass
    return None


def _summed_over(site: Placed, cell: Access, made_in: tuple[Loop, ...]) -> int | None:
    """Return which loop around a sum goes over its terms, where the others are those of cells.

    Args:
        site: The statement that adds.
        cell: The cell it adds to.
        made_in: The loops in each of whose iterations the cell is another one.
    """
    own = {index.name for index in cell.indices if isinstance(index, Var)}
    loops = enumerate(site.loops)
    over = [n for n, loop in loops if loop.variable not in own and n >= len(made_in)]
    if len(own) < len(cell.subscripts) or (cell.subscripts and len(over) != 1) or not over:
        return None
    depth = over[-1]
    inner = site.loops[depth + 1 :]
    names = {loop.variable for loop in site.loops[depth:]}
    bounds = [end for loop in inner for end in loop.range.ends]
    apart = not names & {name for end in bounds for name in variables(end)}
    return (
        depth if apart and len({loop.variable for loop in site.loops}) == len(site.loops) else None
    )


@dataclass(slots=True)
class _Known:
    """What is known where a sum is added to.

    Attributes:
        program: The program.
        site: The statement.
        depth: Which of its loops goes over the terms.
        waiting: For each name set before that loop, the maxima and sums that it hangs on.
        weights: The names that are made of an exponential from which such a one is taken off.
        opened: What was put in for names.
    """

    program: Program
    site: Placed
    depth: int
    waiting: dict[str, frozenset[str]] = field(default_factory=dict)
    weights: set[str] = field(default_factory=set)
    opened: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        around, loop = set(self.site.loop_positions), self.site.loop_positions[self.depth]
        for each in placed(self.program):
            if not isinstance(each.node, Assign) or each.position >= self.site.position:
                continue
            for target, value in zip(each.node.targets, each.node.values, strict=False):
                gathers = accumulation(target, value) is not None
                if gathers and each.position < loop and set(each.loop_positions) - around:
                    self.waiting[target.array] = frozenset({target.array})
                elif not gathers:
                    before = self.waiting.get(target.array, frozenset())
                    self.waiting[target.array] = before | self.waits_for(value)
                    if self.is_weight(value):
                        self.weights.add(target.array)

    def waits_for(self, value: Value) -> frozenset[str]:
        """Return the maxima and sums a value hangs on that are known behind earlier loops only.

        They are of all terms: a term that has sums of its own waits for none of another loop.
        """
        none: frozenset[str] = frozenset()
        over = self.site.loops[self.depth].variable
        found = none
        for part in walk_value(value):
            if isinstance(part, Read):
                name = part.access.array
                own = any(over in variables(index) for index in part.access.indices)
                if not (own and self.waiting.get(name) == frozenset({name})):
                    found |= self.waiting.get(name, none)
        return found

    def is_weight(self, value: Value) -> bool:
        """Tell whether an exponential is a part of a value from which a maximum is taken off."""
        return bool(arrays_read(value) & self.weights) or any(
            isinstance(part, Call) and part.function in ("exp", "exp2") and self.waits_for(part)
            for part in walk_value(value)
        )

    def terms(self, value: Value) -> list[_Signed]:
        """Return the terms of a product of sums."""
        match value:
            case Unary("-", operand):
                return [(-sign, term) for sign, term in self.terms(operand)]
            case Binary("+" | "-" as op, left, right):
                turned = 1 if op == "+" else -1
                others = [(turned * sign, term) for sign, term in self.terms(right)]
                return [*self.terms(left), *others]
            case Binary("*", left, right):
                return [
                    (sign * other, multiply(one, two))
                    for sign, one in self.terms(left)
                    for other, two in self.terms(right)
                ]
            case Binary("/", left, right):
                return [(sign, divide(term, right)) for sign, term in self.terms(left)]
            case Select(condition, chosen, otherwise) if is_number(otherwise, 0.0):
                return [(s, Select(condition, term, ZERO)) for s, term in self.terms(chosen)]
            case Read(access):
                meant = self._meant(access)
                inside = [] if meant is None else self.terms(meant)
                if len(inside) > 1:
                    self.opened[access.array] = None
                    return inside
                return [(1, value)]
            case _:
                return [(1, value)]

    def _meant(self, access: Access) -> Value | None:
        """Return what a name was set to that still is that, in terms of the same loops."""
        sites = [site for site in sites_of(self.program, access.array) if site.relation.is_write]
        if len(sites) != 1 or access.array in self.program.outputs:
            return None
        (place,) = (site.place for site in sites)
        node = place.node
        if not isinstance(node, Assign) or node.targets != (access,) or place.branches:
            return None
        same = place.position[:-1] == self.site.position[: len(place.position) - 1]
        if not access.subscripts and not same:
            return None
        ranges = ranges_by_name(self.site.loops)
        if any(ranges.get(loop.variable) != loop.range for loop in place.loops):
            return None
        (value,) = node.values
        if access.array in arrays_read(value):
            return None
        if place.position >= self.site.position or not self._is_still(value, place):
            return None
        return value

    def _is_still(self, value: Value, place: Placed) -> bool:
        """Tell whether a value is the same at the sum as where it was worked out before."""
        gone = set(place.loop_positions) - set(self.site.loop_positions)
        for part in walk_value(value):
            for site in sites_of(self.program, part.access.array) if isinstance(part, Read) else ():
                if not site.relation.is_write:
                    continue
                if site.place.position > place.position:
                    return False
                # What each iteration of a loop that has ended sets is one cell for each.
                shared = zip(site.place.loops, site.place.loop_positions, strict=True)
                ended = {Var(loop.variable) for loop, position in shared if position in gone}
                assert isinstance(part, Read)
                if not ended <= set(part.access.subscripts):
                    return False
        return True


def _written(
    program: Program,
    site: Placed,
    node: Assign,
    depth: int,
    groups: list[list[_Signed]],
    opened: Mapping[str, None],
) -> WeightsApart:
    """Write the sums, and what joins them behind their loop."""
    (cell,) = node.targets
    names: list[str] = []
    updates: list[Node] = []
    joined: Value = Read(cell)
    for number, group in enumerate(groups):
        own = cell
        if number:
            names.append(fresh_name(program, f"{cell.array}2", names))
            own = Access(names[-1], cell.subscripts)
        sign = group[0][0] if number else 1
        terms = [term if each == sign else Unary("-", term) for each, term in group]
        added = add(Read(own), *terms)
        if number:
            updates.append(Assign(node.label, (own,), (added,)))
        else:
            updates.append(replace(node, values=(added,)))
        if number:
            joined = Binary("+" if sign > 0 else "-", joined, Read(own))
    behind: Node = Assign(node.label, (cell,), (joined,))
    for loop in reversed(site.loops[depth + 1 :]):
        behind = Loop(loop.variable, loop.range, (behind,))
    around = site.loops[depth]
    array = program.array(cell.array)
    begins: list[Node] = []
    if not cell.subscripts:
        begins = [Assign(node.label, (Access(name, ()),), (ZERO,)) for name in names]

    shape = array.extents
    is_inside = bool(_loops_around(program.body, cell.array))

    def change(each: Node) -> tuple[Node, ...]:
        match each:
            case Declaration(name, creation) if name == cell.array and is_inside:
                return (each, *(Declaration(own, _zeros(creation)) for own in names))
            case Assign(targets=(Access(name) as whole,), values=(Create() as creation,)) if (
                name == cell.array and is_inside
            ):
                own = (replace(whole, array=own) for own in names)
                value = (_zeros(creation),)
                return (each, *(replace(each, targets=(t,), values=value) for t in own))
            case _:
                pass
        if each == node:
            return tuple(updates)
        if not isinstance(each, Loop) or each.variable != around.variable:
            return (each,)
        is_it = any(update in nodes(each.body) for update in updates)
        return (*begins, each, behind) if is_it else (each,)

    body = rewritten(program.body, change)
    made = [replace(array, name=name, role="local", annotation=None) for name in names]
    if cell.subscripts and not is_inside:
        body = (*(Declaration(name, Create("zeros", shape)) for name in names), *body)
    changed = again(replace(program, body=body, arrays=(*program.arrays, *made)))
    return WeightsApart(without_unread(changed, tuple(opened)), cell.array, tuple(names))


def _zeros(creation: Create) -> Create:
    return replace(creation, function="zeros", fill=None)
