"""Whether instances that a step runs besides those of `before` can be noticed.

That nobody reads what they write is seen elsewhere, where every operand is compared; here it is
checked that they cannot fail.
"""

from __future__ import annotations

import islpy as isl

from looptrans.analysis.legality.correspondence import (
    Correspondence,
    NotAStep,
    Pair,
    accesses_of,
    domain,
)
from looptrans.analysis.ranges.inside import box, cells_of, inner_box
from looptrans.ir.value import Binary, walk_value


def check_spare(made: Correspondence, spare: list[tuple[Pair, isl.Set]]) -> None:
    """Check that what runs more often than before cannot be noticed, as by a failing access.

    Args:
        made: The programs.
        spare: Instances of `after` that stand for nothing.

    Raises:
        NotAStep: One may fail.
    """
    extra = [(pair.after, more) for pair, more in spare]
    stands = {pair.after.number for pair in made.pairs}
    extra += [
        (statement, domain(made.after, statement, "t"))
        for statement in made.after.statements
        if statement.number not in stands
    ]
    earlier = {array.name for array in made.before.program.arrays}
    for statement, instances in extra:
        also = f"{statement.label} would also run where it did not"
        values = getattr(statement.place.node, "values", ())
        inner = [part for value in values for part in walk_value(value)]
        if any(isinstance(part, Binary) and part.op in ("//", "%") for part in inner):
            raise NotAStep(f"{also}, and may divide by 0")
        chosen = instances.reset_tuple_id().set_tuple_name(f"s{statement.number}")
        for access in accesses_of(made.after, statement):
            if access.array not in earlier:
                continue  # `check_extents` looks at what is new.
            touched = cells_of(made.after, access).intersect_domain(chosen)
            reached = touched.intersect_params(made.context).range()
            if not reached.is_subset(_existing(made, access.array)):
                raise NotAStep(f"{also}, and {access.array} may have no such element")


def _existing(made: Correspondence, array: str) -> isl.Set:
    """Return the cells an array surely has: inside its extents, or up to what was accessed before.

    An array is a box: with c[2] there is c[0], with A[3, 0] and A[0, 3] there is A[3, 3].
    """
    cells, open_ = inner_box(made.after, array)
    if not open_:
        return cells
    accessed = cells.subtract(cells)
    for other in made.before.accesses:
        if other.array == array and not other.is_may and not other.all_terms:
            accessed = accessed.union(cells_of(made.before, other).range())
    dims = [f"x{number}" for number in range(cells.dim(isl.dim_type.set))]
    for number in open_:
        up_to = f"a0[{', '.join(dims)}] -> a0[{', '.join(f'{dim}_' for dim in dims)}]"
        bounds = f"0 <= x{number}_ <= x{number}"
        cells = cells.intersect(accessed.apply(isl.Map(f"{{ {up_to} : {bounds} }}")))
    return cells


def check_extents(made: Correspondence) -> None:
    """Check that arrays that are new, or have other extents, hold what is accessed of them.

    Raises:
        NotAStep: An access may leave one.
    """
    before = {array.name: array for array in made.before.program.arrays}
    for access in made.after.accesses:
        array = made.after.program.array(access.array)
        earlier = before.get(array.name)
        if earlier is not None and (earlier.rank, earlier.shape) == (array.rank, array.shape):
            continue
        cells = box(made.after, array.name)
        if cells is None or access.all_terms:
            continue
        reached = cells_of(made.after, access).intersect_params(made.context).range()
        if not reached.is_subset(cells):
            raise NotAStep(f"{access.statement.label} may leave {array.name}")
