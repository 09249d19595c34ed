"""Rows of several iterations of the grid in one block, where these read the same in the loop.

    for r in programs                       for ri in rows of a block
      for i in rows of a block                r = ri // M, i = ri % M
        for j in blocks               ->      for j in blocks
          K[g, j]                               K[g, j]

With few rows, a block of one r would be nearly empty, and R programs would read the same elements.
It is done where bounds and matrices without rows do not depend on r; a number that does, such as
slope[g, r], becomes one of the row. Bounds may depend on i: a block of rows of one r has those of
its first and last i, another those of all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from looptrans.blocks.block_ir.arithmetic import both, rebuilt
from looptrans.blocks.block_ir.expr import (
    Binary,
    Dim,
    Dot,
    Edge,
    Expr,
    Kind,
    Load,
    Name,
    Number,
    Position,
    Reduce,
    Scalar,
    Scan,
    Where,
    children,
    dims_of,
    union,
    walk,
)
from looptrans.blocks.block_ir.ops import Branch, Let, Op, RowBlock, Store, exprs_of, ops_in
from looptrans.blocks.block_ir.program import Kernel
from looptrans.ir.index import Arith, Int, Param, parameters

Naming = Callable[[str], str]

_NOTHING: Mapping[Kind, float | int | bool] = {"float": 0.0, "int": 0, "bool": False}


@dataclass(frozen=True, slots=True)
class _Group:
    """What becomes one dimension of rows.

    Attributes:
        outer: The dimension of programs.
        rows: The dimension of rows.
        own: The names of values that are another one for each iteration of `outer`.
    """

    outer: Dim
    rows: Dim
    own: frozenset[str]


def with_rows_of_groups(kernel: Kernel, part: Dim, naming: Naming) -> Kernel:
    """Put rows that read the same into one block; the kernel itself where there are none.

    Args:
        kernel: The kernel.
        part: The dimension of parts, each of which reads something else.
        naming: Gives a name that the kernel does not have.
    """
    group = _group(kernel, part)
    return kernel if group is None else _Packing(kernel, group, naming).packed()


def _group(kernel: Kernel, part: Dim) -> _Group | None:
    if [d.role for d in kernel.grid[-2:]] != ["program", "rows"]:
        return None
    outer, rows = kernel.grid[-2:]
    plain = all(d.start == Int(0) and isinstance(d.stop, Param) for d in (outer, rows))
    if outer == part or not plain or rows.most is not None or not isinstance(outer.stop, Param):
        return None
    own = _own_names(kernel, outer, rows)
    for op in ops_in(kernel.body):
        if isinstance(op, RowBlock) or (isinstance(op, Store) and rows not in _dims(op.subscripts)):
            return None
        if not _may_be_of_rows(op, outer, rows, own):
            return None
        if any(isinstance(each, Edge) and each.dim == outer for each in _parts(op, outer, rows)):
            return None
    return _Group(outer, rows, own)


def _own_names(kernel: Kernel, outer: Dim, rows: Dim) -> frozenset[str]:
    """Return the names of values that are another one for each iteration of the programs."""
    lets = [op for op in ops_in(kernel.body) if isinstance(op, Let)]
    found: set[str] = set()
    while True:
        more = {
            let.name
            for let in lets
            if let.name not in found and _is_own(let.value, outer, rows, found)
        }
        if not more:
            return frozenset(found)
        found |= more


def _is_own(expr: Expr, outer: Dim, rows: Dim, own: Collection[str]) -> bool:
    """Tell whether a value is another one for each iteration of the programs.

    What is loaded for each row is one of the row, as it is what it is for.
    """
    return any(
        part == Position(outer) or (isinstance(part, Name) and part.name in own)
        for part in _within(expr, outer, rows)
    )


def _may_be_of_rows(op: Op, outer: Dim, rows: Dim, own: Collection[str]) -> bool:
    """Tell whether what depends on the iteration of the programs may do so on the row.

    Neither a bound nor a factor of a matrix product with no rows may, and what is read may have one
    dimension besides.
    """
    match op:
        case Let() | Store():
            pass
        case Branch(condition):
            return not _is_own(condition, outer, rows, own)
        case _:
            return not any(_is_own(end, outer, rows, own) for end in (op.start, op.stop))
    for part in _parts(op, outer, rows):
        match part:
            case Dot(left, right, _, _, _, _):
                sides = (side for side in (left, right) if rows not in dims_of(side))
                if any(_is_own(side, outer, rows, own) for side in sides):
                    return False
            case Load(_, subscripts) if rows not in _dims(subscripts):
                own_place = any(_is_own(s, outer, rows, own) for s in subscripts)
                if own_place and len(_dims(subscripts)) > 1:
                    return False
            case _:
                pass
    return True


def _dims(subscripts: Sequence[Expr]) -> set[Dim]:
    return {dim for subscript in subscripts for dim in dims_of(subscript)}


def _parts(op: Op, outer: Dim, rows: Dim) -> Iterator[Expr]:
    """Yield the parts of expressions, but not what says which element of an array a row has."""
    exprs = exprs_of(op)
    if isinstance(op, Store):
        exprs = (op.value,) if op.mask is None else (op.value, op.mask)
    for expr in exprs:
        yield from _within(expr, outer, rows)


def _within(expr: Expr, outer: Dim, rows: Dim) -> Iterator[Expr]:
    yield expr
    inner = children(expr)
    if isinstance(expr, Load) and rows in _dims(expr.subscripts):
        inner = () if expr.mask is None else (expr.mask,)
    for child in inner:
        yield from _within(child, outer, rows)


class _Packing:
    """Writes a kernel with one dimension of rows in place of two of its grid."""

    def __init__(self, kernel: Kernel, group: _Group, naming: Naming) -> None:
        self.kernel, self.group = kernel, group
        outer, rows = group.outer, group.rows
        assert isinstance(rows.stop, Param) and isinstance(outer.stop, Param)
        self.size, self.inner = Scalar(outer.stop.name), Scalar(rows.stop.name)
        self.own = replace(
            rows,
            name=naming(f"{outer.name}{rows.name}"),
            stop=Arith("*", outer.stop, rows.stop),
        )
        self.edges = {
            Edge(rows, "first"): Name(naming(f"{rows.name}_first"), (), "int"),
            Edge(rows, "last"): Name(naming(f"{rows.name}_last"), (), "int"),
        }

    def packed(self) -> Kernel:
        """Return the kernel."""
        kernel, group = self.kernel, self.group
        grid = (*kernel.grid[:-2], self.own)
        gone = (group.outer, group.rows)
        dims = [self.own, *(d for d in kernel.dims if d not in gone)]
        asked = {part for op in ops_in(kernel.body) for e in exprs_of(op) for part in walk(e)}
        edges = [self._edge(edge) for edge in self.edges if edge in asked]
        body = (*self._places(), *edges, *map(self._op, kernel.body))
        parts = (part for op in ops_in(body) for expr in exprs_of(op) for part in walk(expr))
        used = {part.name for part in parts if isinstance(part, Scalar)}
        used |= {n for d in dims for e in (d.start, d.stop) for n in parameters(e)}
        used |= {n for d in grid for e in (d.start, d.stop) for n in parameters(e)}
        return replace(
            kernel,
            grid=grid,
            dims=tuple(sorted(dims, key=lambda dim: dim.order)),
            scalars=tuple(s for s in kernel.scalars if s.name in used),
            body=body,
            last_first=False,
        )

    def _edge(self, edge: Edge) -> Let:
        """Return the first or last row of a block that has rows of one iteration, or of all."""
        first, last = Edge(self.own, "first"), Edge(self.own, "last")
        alone = Binary("==", Binary("//", first, self.inner), Binary("//", last, self.inner))
        end: Expr = Number(0) if edge.which == "first" else Binary("-", self.inner, Number(1))
        within = Binary("%", first if edge.which == "first" else last, self.inner)
        return Let(self.edges[edge].name, Where(alone, within, end))

    def _places(self) -> tuple[Let, Let]:
        """Return which iterations a row stands for."""
        row, dims = Position(self.own), (self.own,)
        return (
            Let(self.group.outer.name, Binary("//", row, self.inner), dims=dims),
            Let(self.group.rows.name, Binary("%", row, self.inner), dims=dims),
        )

    def _op(self, op: Op) -> Op:
        match op:
            case Let():
                dims = self._dims(op.dims)
                if op.name in self.group.own:
                    dims = union(dims, (self.own,))
                return replace(op, value=self._expr(op.value), dims=dims)
            case Store():
                mask = None if op.mask is None else self._expr(op.mask)
                subscripts = tuple(map(self._expr, op.subscripts))
                return replace(op, subscripts=subscripts, value=self._expr(op.value), mask=mask)
            case Branch():
                return replace(
                    op,
                    condition=self._expr(op.condition),
                    body=tuple(map(self._op, op.body)),
                    otherwise=tuple(map(self._op, op.otherwise)),
                )
            case _:
                start, stop = self._expr(op.start), self._expr(op.stop)
                return replace(op, start=start, stop=stop, body=tuple(map(self._op, op.body)))

    def _is_moved(self, subscripts: tuple[Expr, ...]) -> bool:
        """Tell whether a row reads an element of its own that all rows of a program shared."""
        outer, rows = self.group.outer, self.group.rows
        if rows in _dims(subscripts):
            return False
        return any(_is_own(s, outer, rows, self.group.own) for s in subscripts)

    def _dims(self, dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
        return tuple(self.own if dim == self.group.rows else dim for dim in dims)

    def _expr(self, expr: Expr) -> Expr:
        outer, rows = self.group.outer, self.group.rows
        match expr:
            case Binary("<", Position(dim), self.inner) if dim == rows:
                return Binary("<", Position(self.own), Binary("*", self.size, self.inner))
            case Edge(dim, _) if dim == rows:
                return self.edges[expr]
            case Position(dim) if dim in (outer, rows):
                return Name(dim.name, (self.own,), "int")
            case Name(name, dims):
                more = (self.own,) if name in self.group.own else ()
                return replace(expr, dims=union(self._dims(dims), more))
            case Load(_, subscripts, mask) if self._is_moved(subscripts):
                inside = Binary("<", Position(self.own), Binary("*", self.size, self.inner))
                return replace(
                    expr,
                    subscripts=tuple(map(self._expr, subscripts)),
                    mask=inside if mask is None else both(inside, self._expr(mask)),
                    other=expr.other if mask is not None else _NOTHING[expr.kind],
                )
        moved = rebuilt(expr, tuple(map(self._expr, children(expr))))
        match moved:
            case Dot():
                sides = self._dims((moved.rows, moved.columns, moved.over))
                return replace(moved, rows=sides[0], columns=sides[1], over=sides[2])
            case Reduce() | Scan():
                return replace(moved, over=self._dims((moved.over,))[0])
            case _:
                return moved
