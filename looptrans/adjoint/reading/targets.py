"""Which iteration writes a cell: the subscripts of a target solved for the loops around it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.adjoint.equations.facts import bounds_of
from looptrans.adjoint.reading.state import Place, Position, State
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.algebra.positional.cells import condition_moved, range_moved
from looptrans.ir.affine import Form, form_of, index_of, is_same
from looptrans.ir.condition import Condition, Relation
from looptrans.ir.index import Arith, Index, Int, Param, Var, variables, walk
from looptrans.ir.listing import index_text
from looptrans.ir.value import Access, Generator, Range


@dataclass(frozen=True, slots=True)
class Solved:
    """A target's indices: their ranges, their loops, what loop variables are, what must hold.

    Of that, `pinned` says of indices without a loop which they are: x == 1 of `Y[i, 1]`.
    """

    indices: tuple[Generator, ...]
    dimensions: tuple[Position | None, ...]
    values: dict[str, Index]
    conditions: tuple[Condition, ...]
    pinned: tuple[Condition, ...]


def solved_target(state: State, target: Access, place: Place, *, adds: bool = False) -> Solved:
    """Return the indices of a target in terms of the loops around it.

    Args:
        state: What is known.
        target: The cell.
        place: The statement.
        adds: Whether it adds to what is there: then the iterations that write a cell need not be
            told from its subscripts, `H[c[i]] += w[i]` is a sum over all i for which c[i] == x.
    """
    free = {x.variable: x for x in place.around.loops}
    count = len(target.subscripts)
    dimensions: list[Position | None] = [None] * count
    indices: list[Generator | None] = [None] * count
    values: dict[str, Index] = {}
    conditions: list[Condition] = []
    pinned: list[Condition] = []
    for number, index in enumerate(target.indices):
        if isinstance(index, Var) and index.name in free:
            loop = free.pop(index.name)
            dimensions[number] = loop.position
            indices[number] = loop.generator
    for number, index in enumerate(target.indices):
        if indices[number] is not None:
            continue
        open_ = [name for name in variables(index) if name in free]
        own = state.index(target.array, number, open_[0] if open_ else "x")
        indices[number] = own
        here = Var(own.variable)
        if not open_:
            pinned.append(Relation("==", here, index))
            conditions.append(pinned[-1])
            continue
        form = form_of(index)
        unit = [name for name in open_ if abs(form.terms.get(Var(name), 0)) == 1]
        if (len(open_) != 1 or not unit) and adds:
            conditions.append(Relation("==", index, here))
            continue
        if len(open_) != 1 or not unit:
            raise NotDifferentiated(
                f"which iteration writes a cell of {target.array} cannot be told from its "
                "subscripts",
                place.label,
                remedy=_wrapped(index, open_, target)
                or _left_over(state, target, number, open_, place)
                or f"give {target.array} a dimension for each of these loops, or make the "
                "variable of one loop its subscript",
            )
        loop = free.pop(unit[0])
        factor = form.terms[Var(unit[0])]
        others = form.plus(Form({Var(unit[0]): factor}), -1)
        values[unit[0]] = index_of(form_of(here).plus(others, -1).times(factor))
        conditions += [
            condition_moved(c, values) for c in bounds_of(loop.variable, loop.generator.range)
        ]
        dimensions[number] = loop.position
    # How far one goes may hang on another one's loop: T[i - 1, j] where j goes from i.
    found = tuple(replace(g, range=range_moved(g.range, values)) for g in indices if g is not None)
    return Solved(found, tuple(dimensions), values, tuple(conditions), tuple(pinned))


def _wrapped(index: Index, open_: list[str], target: Access) -> str | None:
    """Return what to do where cells go round, as in `Y[(i + shift) % N]`."""
    for part in walk(index):
        match part:
            case Arith("%", Arith() as left, _) if set(variables(left)) & set(open_):
                return (
                    f"write {target.array} in order, without the %, and roll it outside of the "
                    "listing"
                )
            case _:
                pass
    return None


def _left_over(
    state: State, target: Access, number: int, open_: list[str], place: Place
) -> str | None:
    """Return the contract by which pairs fill a dimension: E % H == 0 where f < E // H."""
    if state.program.array(target.array).shape[number] is None:
        return None
    extent = state.extent(target.array, number)
    for loop in place.around.loops:
        match loop.generator.range:
            case Range(Int(0), Arith("//", whole, Int() | Param() as part), 1) if (
                loop.variable in open_ and is_same(whole, extent)
            ):
                rest = Relation("==", Arith("%", whole, part), Int(0))
                if rest in state.program.stated:
                    return None
                asked = f"{index_text(rest.left)} == 0"
                return f"say that nothing is left over, with assert {asked}"
            case _:
                pass
    return None
