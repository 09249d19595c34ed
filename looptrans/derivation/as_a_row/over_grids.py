"""Two loops, or two variables of a reduction, that go over a grid.

    for t in range(max(0, y - R), min(T, y + R + 1)):    T rows, of which those near y, and
        for c in range(0, C):                            C columns

Which of the cells they are at is a condition on both. Where integers of an array tell which rows
they are at, these are all of a grid's:

    for z in range(ptr[b], ptr[b + 1]):                  rows from ptr[b] to ptr[b + 1]
        for c in range(0, C):
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from looptrans.ir.affine import factors_of, sides, total
from looptrans.ir.condition import ALWAYS, Condition, Relation, conjunction
from looptrans.ir.index import Index, Int, Var, lets, opaque_terms, variables
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import indices_changed
from looptrans.ir.value import Range, Reduce
from looptrans.ir.walk import inner_bodies, live_out, read_by, reductions_in, written, written_in
from looptrans.transforms.editing.tree import loop_paths
from looptrans.transforms.over_blocks.block_starts import linear_in
from looptrans.transforms.over_blocks.whole_loops import is_size

Grid: TypeAlias = tuple[Index, Index, Index]
"""The first row of a grid, the one behind its last, and how many columns it has."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two loops, or variables of a reduction, over a grid.

    Attributes:
        names: The variables.
        grid: The grid.
        condition: Which of its cells they are at.
    """

    names: tuple[str, str]
    grid: Grid
    condition: Condition


@dataclass(frozen=True, slots=True)
class Inner:
    """What a loop holds.

    Attributes:
        loop: The loop inside.
        condition: The guard around it.
        scalars: What is set in front of it.
    """

    loop: Loop
    condition: Condition
    scalars: tuple[Assign, ...]


def pair_of(program: Program, loop: Loop) -> Pair | None:
    """Return a loop and the one that it holds alone as a pair, if they go over a grid."""
    inner = inner_of(program, loop)
    if inner is None:
        return None
    names, ranges = (loop.variable, inner.loop.variable), (loop.range, inner.loop.range)
    return _pair(program, names, ranges)


def inner_of(program: Program, loop: Loop) -> Inner | None:
    """Return the loop that a loop holds alone, but for a guard and for scalars that it reads.

    for t in range(0, T):
        k = page[b, t]
        for c in range(0, C): … K[k, c] …

    Args:
        program: The program.
        loop: The loop.
    """
    if loop.execution != "sequential" or loop.private or not loop.body:
        return None
    *before, last = loop.body
    condition: Condition = ALWAYS
    match last:
        case If(asked, (Loop() as inner,), (), label=None):
            condition = asked
        case Loop() as inner:
            pass
        case _:
            return None
    if inner.execution != "sequential" or inner.private:
        return None
    scalars = tuple(node for node in before if isinstance(node, Assign))
    if len(scalars) < len(before) or not _are_own(program, scalars, inner):
        return None
    # For each cell it is asked anew where loops end, and what guards ask.
    if (_read_by(loop) | _read_by(last) | _read_by(inner)) & written_in(loop.body):
        return None
    return Inner(inner, condition, scalars)


def _are_own(program: Program, scalars: tuple[Assign, ...], inner: Loop) -> bool:
    """Tell whether scalars are set from what stays, and read only behind where they are set."""
    names = {target.array for node in scalars for target in node.targets}
    if any(target.subscripts for node in scalars for target in node.targets):
        return False
    if names & {*live_out(program), *written_in((inner,))}:
        return False
    changing = set(written(program))
    for node in scalars:
        if _read_by(node) & changing:
            return False
        changing -= {target.array for target in node.targets}
    return all(_is_set_first(program.body, name, is_set=False) for name in names)


def _is_set_first(body: tuple[Node, ...], name: str, *, is_set: bool) -> bool:
    """Tell whether each read of a scalar stands behind a statement that sets it in its block.

    What a block inside has set is read in that block alone, and in the same iteration.
    """
    for node in body:
        if not is_set and name in _read_by(node):
            return False
        inside = inner_bodies(node)
        sets = any(name in written_in(inner) for inner in inside)
        before = is_set and not (sets and isinstance(node, Loop))
        if not all(_is_set_first(inner, name, is_set=before) for inner in inside):
            return False
        if isinstance(node, Assign) and any(t.array == name for t in node.targets):
            is_set = True
        elif sets:
            is_set = False
    return True


def _read_by(node: Node) -> set[str]:
    """Return what a node itself reads, in subscripts and ranges as well."""
    found: set[str] = set()

    def seen(index: Index) -> Index:
        found.update(let.name for let in lets(index))
        found.update(term.array for term in opaque_terms(index))
        return index

    match node:
        case Loop():
            indices_changed((replace(node, body=()),), seen)
        case If():
            indices_changed((replace(node, body=(), orelse=()),), seen)
            found |= read_by(node)
        case Assign():
            indices_changed((node,), seen)
            found |= read_by(node)
        case _:
            pass
    return found


def pairs_in(program: Program, value: Reduce) -> Iterator[tuple[int, Pair]]:
    """Yield the pairs of variables of a reduction that go over a grid, with where they stand."""
    for number in range(len(value.generators) - 1):
        first, second = value.generators[number : number + 2]
        names, ranges = (first.variable, second.variable), (first.range, second.range)
        pair = _pair(program, names, ranges)
        if pair is not None:
            yield number, pair


def _pair(program: Program, names: tuple[str, str], ranges: tuple[Range, Range]) -> Pair | None:
    above, inside = (_hull(program, each, name) for name, each in zip(names, ranges, strict=True))
    rows = ranges[0]
    start: Index = Int(0)
    if above is None and rows.step == 1 and opaque_terms(rows.start):
        above, start = (rows.stop, ALWAYS), rows.start
    if above is None or inside is None or names[0] == names[1]:
        return None
    (stop, first), (columns, second) = above, inside
    if not all(is_size(program, factor) for factor in factors_of(columns)):
        return None
    return Pair(names, (start, stop, columns), conjunction(first, second))


def _hull(program: Program, bounds: Range, variable: str) -> tuple[Index, Condition] | None:
    """Return up to where a loop goes at most, from 0 on, and which iterations it has of these.

    range(max(0, y - 3), min(Y, y + 4))    ->    Y, y - 3 <= t and t < y + 4
    range(y + 1)                           ->    Y, t < y + 1 where y is below Y
    """
    starts, stops = sides("max", bounds.start), sides("min", bounds.stop)
    if bounds.step != 1 or not any(_is_from_0(program, each) for each in starts):
        return None
    ends = [each for each in stops if not variables(each) and not opaque_terms(each)]
    most = ends or [end for each in stops if (end := _most(program, each)) is not None]
    if len(most) != 1:
        return None
    here = Var(variable)
    asked = [Relation("<=", each, here) for each in starts if each != Int(0)]
    asked += [Relation("<", here, each) for each in stops if each not in ends]
    return most[0], conjunction(*asked)


def _is_from_0(program: Program, index: Index) -> bool:
    """Tell whether an index is a number from 0 on, or the variable of loops from there on."""
    if isinstance(index, Var):
        ranges = _ranges(program, index.name)
        return bool(ranges) and all(each.start == Int(0) and each.step > 0 for each in ranges)
    return isinstance(index, Int) and index.value >= 0


def _most(program: Program, stop: Index) -> Index | None:
    """Return what a stop is at most, as y + 1 is Y at most where y is below Y."""
    names = set(variables(stop))
    if len(names) != 1 or opaque_terms(stop):
        return None
    (name,) = names
    rest = linear_in(stop, name)
    ends = {bounds.stop for bounds in _ranges(program, name)}
    if rest is None or rest[1] != Int(1) or len(ends) != 1:
        return None
    (end,) = ends
    if variables(end) or opaque_terms(end) or any(b.step < 1 for b in _ranges(program, name)):
        return None
    return total(rest[0], end, -1)


def _ranges(program: Program, variable: str) -> list[Range]:
    """Return the ranges of the loops with a variable, and of the reductions."""
    found = [path.loop.range for path in loop_paths(program) if path.variable == variable]
    for each in reductions_in(program.body):
        found += [g.range for g in each.generators if g.variable == variable]
    return found
