"""Loops over a grid made one loop that counts its cells, for the sake of one pass over them.

    for t in range(0, T):                          for tc in range(0, T * C):
        for c in range(0, C):             ->           m = max(m, x[tc // C, tc % C])
            m = max(m, x[t, c])

    l = sum(exp(x[t, c] - m)                       l = sum(exp(x[tc // C, tc % C] - m)
            for t in range(0, T)          ->               for tc in range(0, T * C))
            for c in range(0, C))

Passes over a grid, each waiting for the one before, are passes over its cells in their order. See
`grids` for what is seen as two loops again behind that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise

from looptrans.algebra.free import freed
from looptrans.algebra.positional.cells import condition_moved, value_moved
from looptrans.derivation.as_a_row.over_grids import Grid, Pair, inner_of, pair_of, pairs_in
from looptrans.derivation.one_loop.writing import done
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.affine import form_of, index_of, multiplied
from looptrans.ir.condition import ALWAYS, Condition, conjunction
from looptrans.ir.index import Arith, Index, Var, variables, walk
from looptrans.ir.program import Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.rewrite import (
    condition_changed,
    indices_changed,
    replaced,
    rewritten,
    value_changed,
    with_accesses,
)
from looptrans.ir.value import Access, Generator, Range, Read, Reduce, Value, walk_value
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import accesses_in, live_out, reductions_in, written
from looptrans.transforms.editing.accesses import listed
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.substitute import substitute_variable
from looptrans.transforms.editing.tree import LoopPath, loop_paths, statements_in


def coalesced(program: Program, passes: int) -> DerivationStep:
    """Make one loop of each two that go over a grid which several passes go over.

    A pass is a pair of loops with nothing between them but a guard, neither of them free, or a
    reduction over two variables. A pair of free loops that sets what passes read becomes one too.

    Args:
        program: The program.
        passes: How many passes at least.

    Raises:
        NotDone: No grid is gone over as often.
    """
    work = grids_in(program, passes)
    if not work.names:
        raise NotDone(f"no grid is gone over {passes} times")
    counted = "the cells of a grid are counted along its rows, one row after the other"
    law = "the iterations are the same, in the same order"
    shown = [Certificate("order", law, "legal", counted)]
    if work.laid:
        law = f"a cell of {listed(work.laid)} has one number, and every read finds it by that"
        shown.append(
            Certificate("storage", law, "legal", f"no other subscripts find it; {counted}")
        )
    said = listed([f"{outer} and {inner}" for outer, inner in work.names])
    after = done(replace(program, body=work.body))
    return DerivationStep(
        f"make {said} one loop", "coalesced", (passes,), program, after, tuple(shown)
    )


def _grids(program: Program, passes: int) -> frozenset[Grid]:
    """Return the grids that as many passes go over, or more."""
    found: Counter[Grid] = Counter()
    for path in loop_paths(program):
        pair = pair_of(program, path.loop)
        if pair is not None and not _is_free(program, path):
            found[pair.grid] += 1
    for each in reductions_in(program.body):
        found.update(pair.grid for _, pair in pairs_in(program, each))
    return frozenset(grid for grid, count in found.items() if count >= passes)


@dataclass(slots=True)
class Counted:
    """Makes loops over grids one.

    Attributes:
        program: The program before.
        grids: How large the grids are.
        rows: The arrays that are set in the program and found in passes by row and column, with the
            places of both among the subscripts.
        body: What the program does afterwards.
        names: For each two variables the one that counts the cells.
        laid: The arrays that are found by the number of a cell now.
    """

    program: Program
    grids: frozenset[Grid]
    rows: set[tuple[str, int, int]] = field(default_factory=set)
    body: tuple[Node, ...] = ()
    names: dict[tuple[str, str], str] = field(default_factory=dict)
    laid: tuple[str, ...] = ()

    def node(self, node: Node) -> tuple[Node, ...]:
        """Return a node whose own loops, or reductions, are one."""
        match node:
            case Loop():
                made = self.loop(node)
                return (node if made is None else made,)
            case Assign():
                values = tuple(replaced(value, self.reduction) for value in node.values)
                return (node if values == node.values else replace(node, values=values),)
            case _:
                return (node,)

    def loop(self, loop: Loop) -> Loop | None:
        """Return a loop that is one with the loop it holds, if it is to be."""
        pair = pair_of(self.program, loop)
        if pair is None or pair.grid not in self.grids or not self.is_wanted(loop, pair):
            return None
        inner = inner_of(self.program, loop)
        assert inner is not None
        name, here = self.counted(pair)
        inside = tuple(substitute_variable(n, here) for n in (*inner.scalars, *inner.loop.body))
        body = indices_changed(inside, lambda index: _along(index, name, pair.grid[-1]))
        condition = self.moved(conjunction(pair.condition, inner.condition), pair)
        return replace(
            loop,
            variable=name,
            range=_cells(pair.grid),
            body=body if condition == ALWAYS else (If(condition, body),),
            comment=loop.comment or inner.loop.comment,
            leading=loop.leading + inner.loop.leading,
        )

    def reduction(self, value: Value) -> Value | None:
        """Return a reduction whose variables over a grid are one, if it has some."""
        if not isinstance(value, Reduce):
            return None
        pairs = [each for each in pairs_in(self.program, value) if each[1].grid in self.grids]
        if not pairs:
            return None
        number, pair = pairs[-1]  # of three loops the inner ones are one first, too
        name, here = self.counted(pair)
        before, behind = value.generators[:number], value.generators[number + 2 :]
        body: Value = replace(value, generators=behind) if behind else value.body
        moved = value_moved(replaced(body, self.reduction), here)
        asked = (pair.condition, *(g.condition for g in value.generators[number : number + 2]))
        one = Generator(
            name,
            _cells(pair.grid),
            self.moved(conjunction(*asked), pair),
        )
        along = value_changed(moved, lambda index: _along(index, name, pair.grid[-1]))
        if behind:
            assert isinstance(along, Reduce)
            return Reduce(value.function, (*before, one, *along.generators), along.body)
        return Reduce(value.function, (*before, one), along)

    def counted(self, pair: Pair) -> tuple[str, dict[str, Index]]:
        """Return the variable that counts the cells, and what the others are by it."""
        outer, inner = pair.names
        if pair.names not in self.names:
            wish = outer + inner if len(outer) == len(inner) == 1 else f"{outer}_{inner}"
            self.names[pair.names] = fresh_name(self.program, wish, self.names.values())
        name, columns = self.names[pair.names], pair.grid[-1]
        cell = Var(name)
        return name, {outer: Arith("//", cell, columns), inner: Arith("%", cell, columns)}

    def moved(self, condition: Condition, pair: Pair) -> Condition:
        """Return a condition on the row and the column of a cell as one on the cell."""
        name, here = self.counted(pair)
        there = condition_moved(condition, here)
        return condition_changed(there, lambda index: _along(index, name, pair.grid[-1]))

    def is_wanted(self, loop: Loop, pair: Pair) -> bool:
        """Tell whether loops are a pass, or set what passes read."""
        paths = (path for path in loop_paths(self.program) if path.variable == loop.variable)
        labels = statements_in((loop,))
        path = next(path for path in paths if statements_in((path.loop,)) == labels)
        return not _is_free(self.program, path) or (
            pair.condition == ALWAYS and bool(self.rows & _rows_of(loop, pair.names))
        )


def _cells(grid: Grid) -> Range:
    """Return the numbers of the cells of a grid."""
    start, stop, columns = grid
    return Range(multiplied(start, columns), multiplied(stop, columns))


def grids_in(program: Program, passes: int) -> Counted:
    """Make loops over grids one, which is what the step does.

    Args:
        program: The program.
        passes: How many passes at least go over each.
    """
    work = Counted(program, _grids(program, passes))
    if work.grids:
        for path in loop_paths(program):
            pair = pair_of(program, path.loop)
            if pair is not None and pair.grid in work.grids and not _is_free(program, path):
                work.rows |= _rows_of(path.loop, pair.names)
        for each in reductions_in(program.body):
            for _, pair in pairs_in(program, each):
                work.rows |= _read_rows(each, pair.names)
        work.rows = {row for row in work.rows if row[0] in written(program)}
        counted = rewritten(program.body, work.node)
        work.body, work.laid = _laid_in_rows(program, counted, frozenset(work.names.values()))
    return work


def _laid_in_rows(
    program: Program, body: tuple[Node, ...], cells: frozenset[str]
) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    """Let arrays that are only found by a cell's row and column be found by its number.

    S = zeros((T, C)); S[tc // C, tc % C] = …    ->    S = zeros(T * C); S[tc] = …

    Args:
        program: The program before.
        body: What it does afterwards.
        cells: The variables that count cells.

    Returns:
        The same with such arrays, and their names.
    """
    uses: dict[str, list[Access]] = {}
    for access in accesses_in(body):
        uses.setdefault(access.array, []).append(access)
    seen = live_out(program)
    found: dict[str, int] = {}
    for node in body:
        if isinstance(node, Declaration) and node.array in uses and node.array not in seen:
            sizes = node.creation.shape
            for n, grid in enumerate(pairwise(sizes)):
                if all(_cell_at(access, n, grid, cells) for access in uses[node.array]):
                    found[node.array] = n
                    break

    def access_laid(access: Access) -> Access:
        n = found.get(access.array)
        if n is None:
            return access
        (cell,) = variables(access.indices[n])
        before, behind = access.subscripts[:n], access.subscripts[n + 2 :]
        return Access(access.array, (*before, Var(cell), *behind))

    def laid(node: Node) -> Node:
        if not isinstance(node, Declaration) or node.array not in found:
            return node
        n, shape = found[node.array], node.creation.shape
        merged = (*shape[:n], multiplied(*shape[n : n + 2]), *shape[n + 2 :])
        return replace(node, creation=replace(node.creation, shape=merged))

    return tuple(map(laid, with_accesses(body, access_laid))), tuple(found)


def _cell_at(access: Access, n: int, grid: tuple[Index, Index], cells: frozenset[str]) -> bool:
    """Tell whether the subscripts from n on are the row and the column of a cell of a grid."""
    match access.subscripts[n : n + 2]:
        case (Arith("//", Var(name), columns), Arith("%", Var(other), width)):
            return name == other and name in cells and columns == width == grid[1]
        case _:
            return False


def _rows_of(loop: Loop, names: tuple[str, str]) -> set[tuple[str, int, int]]:
    """Return the arrays that are found in a loop by row and column, and the places of both."""
    return set().union(*(_places(access, names) for access in accesses_in(loop.body)))


def _read_rows(value: Value, names: tuple[str, str]) -> set[tuple[str, int, int]]:
    reads = (part.access for part in walk_value(value) if isinstance(part, Read))
    return {place for access in reads for place in _places(access, names)}


def _places(access: Access, names: tuple[str, str]) -> set[tuple[str, int, int]]:
    row, column = (
        [n for n, subscript in enumerate(access.subscripts) if subscript == Var(name)]
        for name in names
    )
    return {(access.array, r, c) for r in row for c in column}


def _is_free(program: Program, path: LoopPath) -> bool:
    """Tell whether the text shows that a loop, or the one that it holds, carries nothing."""
    inner = inner_of(program, path.loop)
    below = next(p for p in loop_paths(program) if inner is not None and p.loop is inner.loop)
    return freed(program, path) is not None or freed(program, below) is not None


def _along(index: Index, name: str, columns: Index) -> Index:
    """Return an index with the number of a cell where it works out that from row and column.

    tc // C * C + tc % C    ->    tc
    """
    if name not in variables(index):
        return index
    cell = Var(name)
    row, column = Arith("//", cell, columns), Arith("%", cell, columns)
    form = form_of(index)
    for times in {abs(count) for count in form.terms.values()}:
        for factor in (times, -times):
            apart = form.plus(form_of(multiplied(row, columns)), -factor)
            apart = apart.plus(form_of(column), -factor)
            if not any(part in (row, column) for term in apart.terms for part in walk(term)):
                return index_of(apart.plus(form_of(cell), factor))
    return index
