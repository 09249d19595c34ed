"""Which loops that stand one after the other are worth making one.

for i: for j: m[i] = max(…)         both hold passes over j that touch the same cells:
for i: for j: l[i] = l[i] + …       join i, and then the passes

for i: for j: dQ[i] = dQ[i] + …     one goes over i and gathers over j, the other the other
for j: for i: dK[j] = dK[j] + …     way around: they have nothing to share

for i: for d: delta[i] = …          one is free, the other gathers what all its iterations add:
for i: for j: total = total + …     as one loop neither would be free
"""

from __future__ import annotations

from looptrans.adjoint.written.wide import is_of_no_product
from looptrans.algebra.positional.cells import are_apart, is_looked_up, mentions
from looptrans.ir.index import Var, variables
from looptrans.ir.program import Assign, Loop, Program
from looptrans.ir.value import Read, Reduce, walk_value
from looptrans.ir.walk import (
    Placed,
    accesses_in,
    assignments,
    loops_in,
    nodes,
    placed,
    reductions_in,
    targets_in,
    touched,
)
from looptrans.transforms.editing.substitute import rename_variable
from looptrans.transforms.editing.tree import statements_in


def worth_joining(program: Program, first: Loop, second: Loop) -> bool:
    """Tell whether two loops over the same range that hold loops should be one.

    They should where they hold loops over one range that touch common cells, or where what the
    first leaves in memory is read by the second alone. Loops that hold nothing but a loop are
    judged by those; where one of these holds loops and the other none, they stay apart. So do sums
    that make matrix products and sums that make none: there is room for fewer rows of these.

    Args:
        program: The program they are in.
        first: The loop that comes first.
        second: The one directly after it, with the same range.
    """
    if second.variable != first.variable:
        if any(isinstance(n, Loop) and n.variable == first.variable for n in nodes(second.body)):
            return False
        second = rename_variable(second, second.variable, first.variable)
    if not _alike(first, second) or _looks_into(first, second):
        return False
    if any(map(is_of_no_product, reductions_in(first.body))) != any(
        map(is_of_no_product, reductions_in(second.body))
    ):
        return False
    one, other = _inner(first), _inner(second)
    if len(first.body) == len(second.body) == len(one) == len(other) == 1:
        deeper = [bool(_inner(loop)) for loop in (one[0], other[0])]
        if one[0].range == other[0].range and any(deeper):
            return all(deeper) and worth_joining(program, one[0], other[0])
    elif not one or not other:
        return False
    if any(_share(program, a, b) for a in one for b in other if a.range == b.range):
        return True
    if _sums_apart(one, other):
        return False
    return _hands_over(program, first, second)


def _sums_apart(one: list[Loop], other: list[Loop]) -> bool:
    """Tell whether two blocks work sums out in loops over different ranges, and in no others.

    In one block there is less room for each; what is handed over are numbers of rows.
    """
    first, second = (
        [loop for loop in each if any(reductions_in(loop.body))] for each in (one, other)
    )
    ranges = {loop.range for loop in first}
    return bool(first) and bool(second) and not any(loop.range in ranges for loop in second)


def _looks_into(first: Loop, second: Loop) -> bool:
    """Tell whether the second looks into rows of sums that the first makes, as T[i, min(j - i, k)].

    As one loop it would work each sum out again, wherever it looks.
    """
    summed = {
        target.array
        for node in assignments(first.body)
        for target, value in zip(node.targets, node.values, strict=False)
        if any(isinstance(p, Reduce) or p == Read(target) for p in walk_value(value))
    }
    return any(a.array in summed and is_looked_up(a) for a in accesses_in((second,)))


def _alike(first: Loop, second: Loop) -> bool:
    """Tell whether both loops gather something, or neither."""
    return bool(_gathered(first)) == bool(_gathered(second))


def _gathered(loop: Loop) -> set[str]:
    """Return what every iteration of a loop adds to, and none sets."""
    added: set[str] = set()
    others: set[str] = set()
    for node in nodes(loop.body):
        if isinstance(node, Assign):
            for target, value in zip(node.targets, node.values, strict=False):
                own = any(isinstance(p, Read) and p.access == target for p in walk_value(value))
                same = not mentions(target, loop.variable)
                (added if own and same else others).add(target.array)
    return added - others


def _inner(loop: Loop) -> list[Loop]:
    return [node for node in loop.body if isinstance(node, Loop)]


def _share(program: Program, first: Loop, second: Loop) -> bool:
    """Tell whether iterations of one number touch a common cell, to the good of one loop.

    Where both work out sums, and neither sets what the other touches, it is of a row they read: a
    mask, or a bias, that scores have in common which are sums of other rows is little.
    """
    if second.variable != first.variable:
        if any(isinstance(n, Loop) and n.variable == first.variable for n in nodes(second.body)):
            return False
        second = rename_variable(second, second.variable, first.variable)
    here = {a for a in accesses_in((first,)) if mentions(a, first.variable)}
    both = {a for a in accesses_in((second,)) if a in here}
    set_here = set(targets_in((first,)))
    waits = both & {*set_here, *targets_in((second,))}
    if not waits and any(reductions_in(first.body)) and any(reductions_in(second.body)):
        inside = {node.variable for node in loops_in(first.body)}
        inside |= {g.variable for each in reductions_in(first.body) for g in each.generators}
        both = {a for a in both if any(inside & set(variables(index)) for index in a.indices)}
    if _alike(first, second):
        nested = bool(_inner(first)) and bool(_inner(second))
        # What one sets waits in memory for the other unless they are made one.
        return bool(both) and not (waits and nested and not worth_joining(program, first, second))
    return bool(both) and not waits and bool(set_here & set(accesses_in((second,))))


def _hands_over(program: Program, first: Loop, second: Loop) -> bool:
    """Tell whether the second reads rows that the first writes, and nothing else does.

    A matrix for each iteration is no row: what it is made by, and used by, runs in parallel apart.
    What reads the number of its own row, as `L[i] = m[i] + log(l[i])`, is nothing else.
    """
    inside = {node.variable for node in loops_in(first.body)}
    cells = set(targets_in((first,)))
    written = {cell.array for cell in cells}
    for cell in cells:
        if sum(bool(inside & set(variables(index))) for index in cell.indices) > 1:
            written.discard(cell.array)
    read = tuple(accesses_in((second,)))
    handed = written & {
        c.array for c in cells for a in read if a.array == c.array and not are_apart(c, a)
    }
    known = set(statements_in((first, second)))
    others = [
        place.node
        for place in placed(program)
        if isinstance(place.node, Assign)
        and place.node.label not in known
        and not _goes_over(place, handed)
    ]
    return bool(handed) and not handed & touched(tuple(others))


def _goes_over(place: Placed, arrays: set[str]) -> bool:
    """Tell whether all rows of a statement look at cells of their own: they may be joined too."""
    own = tuple(Var(loop.variable) for loop in place.loops)
    return all(
        access.indices == own[: len(access.indices)]
        for access in accesses_in((place.node,))
        if access.array in arrays
    )
