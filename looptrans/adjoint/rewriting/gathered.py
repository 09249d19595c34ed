"""Sums that iterations add to cells between them, found from the cells.

    for l: for k: y[2 * l + k] += x[l] * w[k]
                                                ->
    for p: for k: y[p] += x[(p - k) // 2] * w[k] if (p - k) % 2 == 0 and 0 <= (p - k) // 2 < L

No iteration of l or k has a cell to itself; each of p has. A cell gets the same terms, those of
several k in their order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.adjoint.carried.recurrences import again
from looptrans.algebra.positional.cells import condition_moved, value_moved
from looptrans.algebra.positional.values import add
from looptrans.ir.affine import Form, difference, form_of, index_of, quotient, remainder
from looptrans.ir.condition import ALWAYS, Condition, Relation, conjunction
from looptrans.ir.index import Index, Int, Var, lets, opaque_terms, variables
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.value import Access, Range, Read
from looptrans.ir.walk import Placed, placed
from looptrans.transforms.editing.naming import fresh_name


@dataclass(frozen=True, slots=True)
class Gathered:
    """A program in which a nest goes over the cells that it adds to.

    Attributes:
        program: The program afterwards.
        array: The array.
        loop: The loop that went over what is added.
    """

    program: Program
    array: str
    loop: str

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"go over the cells of {self.array} instead of {self.loop}"


def with_sums_gathered(program: Program) -> Gathered | None:
    """Let a nest go over the cells that it adds to, where no loop has cells to itself.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such nest.
    """
    for site in placed(program):
        if isinstance(site.node, Assign) and len(site.node.targets) == 1:
            found = _gathered(program, site, site.node)
            if found is not None:
                return found
    return None


def _gathered(program: Program, site: Placed, node: Assign) -> Gathered | None:
    (cell,), (value,) = node.targets, node.values
    update = accumulation(cell, value)
    if update is None or update[0] != "sum" or update[2] != ALWAYS or cell.rank:
        return None
    for axis, subscript in enumerate(cell.indices):
        extent = program.array(cell.array).shape[axis]
        others = {n for i, each in enumerate(cell.indices) if i != axis for n in variables(each)}
        found = None if extent is None else _loop_for(site, subscript, others)
        if found is None or extent is None:
            continue
        number, count = found
        loop = site.loops[number]
        place = fresh_name(program, f"{loop.variable}_at")
        form = form_of(subscript)
        apart = difference(Var(place), index_of(form.plus(Form({Var(loop.variable): 1}), -count)))
        index = apart if count == 1 else quotient(apart, count)
        guard = conjunction(
            *(() if count == 1 else (Relation("==", remainder(apart, count), Int(0)),)),
            Relation(">=", index, loop.range.start),
            Relation("<", index, loop.range.stop),
        )
        here = {loop.variable: index}
        subscripts = tuple(Var(place) if n == axis else s for n, s in enumerate(cell.indices))
        own = Access(cell.array, subscripts)
        added = replace(
            node,
            targets=(own,),
            values=(add(Read(own), value_moved(update[1], here)),),
            augmented=False,
        )
        body = _inside(site.loops[number], node, guard, added, here)
        if body is None:
            continue
        new = replace(loop, variable=place, range=Range(Int(0), extent), body=body)

        def change(each: Node, loop: Loop = loop, new: Loop = new) -> tuple[Node, ...]:
            return (new,) if each == loop else (each,)

        changed = replace(program, body=rewritten(program.body, change))
        return Gathered(again(changed), cell.array, loop.variable)
    return None


def _loop_for(site: Placed, subscript: Index, others: set[str]) -> tuple[int, int] | None:
    """Return which loop to replace, and how far it moves the subscript with each iteration.

    That is the one that moves it farthest, the outermost of several: the others are fewer.
    """
    form = form_of(subscript)
    names = {loop.variable: number for number, loop in enumerate(site.loops)}
    moving = [
        (count, names[term.name])
        for term, count in form.terms.items()
        if isinstance(term, Var) and term.name in names
    ]
    open_ = opaque_terms(subscript) or lets(subscript)
    linear = all(isinstance(t, Var) or not variables(t) for t in form.terms)
    if len(moving) < 2 or open_ or not linear or len(names) < len(site.loops):
        return None
    for count, number in sorted(moving, key=lambda each: (-each[0], each[1])):
        loop = site.loops[number]
        inside = site.loops[number + 1 :]
        used = {name for each in inside for name in each.range.variables} | others
        plain = all(each.execution == "sequential" for each in site.loops[number:])
        if count > 0 and loop.range.step == 1 and plain and loop.variable not in used:
            return number, count
    return None


def _inside(
    loop: Loop, node: Assign, guard: Condition, added: Assign, here: dict[str, Index]
) -> tuple[Node, ...] | None:
    """Return the body of a loop around one statement, guarded; None where it does more."""
    match loop.body:
        case (Assign() as only,) if only == node:
            return (If(guard, (added,)),)
        case (Loop() as inner,):
            body = _inside(inner, node, guard, added, here)
            return None if body is None else (replace(inner, body=body),)
        case (If(orelse=()) as asked,) if len(asked.body) == 1 and asked.body[0] == node:
            both = conjunction(guard, condition_moved(asked.condition, here))
            return (If(both, (added,)),)
        case _:
            return None
