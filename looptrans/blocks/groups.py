"""Rows of several iterations of the grid in one block, where these read the same in the loop.

    for h in programs                       for g in programs
      for i in rows of a block                for hi in rows of a block
        for j in blocks                         h = g * R + hi // M, i = hi % M
          K[h // R, j]                ->        for j in blocks
                                                  K[g, j]

With few rows, a block of one h would be nearly empty, and R programs would read the same elements.
It is done where nothing but what a program loads and stores for its rows depends on h. Bounds may
depend on i: a block of rows of one h has those of its first and last i, another those of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from looptrans.blocks.arithmetic import rebuilt
from looptrans.blocks.program import (
    Binary,
    Branch,
    Dim,
    Dot,
    Edge,
    Expr,
    Kernel,
    Let,
    Load,
    Name,
    Number,
    Op,
    Position,
    Reduce,
    RowBlock,
    Scalar,
    Store,
    Where,
    children,
    dims_of,
    exprs_of,
    ops_in,
    walk,
)
from looptrans.ir.condition import Condition, Relation
from looptrans.ir.index import Arith, Index, Int, Param, parameters

Naming = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class _Group:
    """What becomes one dimension of rows.

    Attributes:
        outer: The dimension of programs.
        rows: The dimension of rows.
        size: How many iterations of `outer` read the same.
        groups: How many times as many there are; None for once.
    """

    outer: Dim
    rows: Dim
    size: str
    groups: Index | None


def with_rows_of_groups(
    kernel: Kernel, part: Dim, assumptions: Sequence[Condition], naming: Naming
) -> Kernel:
    """Put rows that read the same into one block; the kernel itself where there are none.

    Args:
        kernel: The kernel.
        part: The dimension of parts, each of which reads something else.
        assumptions: What holds of sizes, such as `H == G * R`.
        naming: Gives a name that the kernel does not have.
    """
    group = _group(kernel, part, assumptions)
    return kernel if group is None else _Packing(kernel, group, naming).packed()


def _group(kernel: Kernel, part: Dim, assumptions: Sequence[Condition]) -> _Group | None:
    if [d.role for d in kernel.grid[-2:]] != ["program", "rows"]:
        return None
    outer, rows = kernel.grid[-2:]
    plain = all(d.start == Int(0) and isinstance(d.stop, Param) for d in (outer, rows))
    if outer == part or not plain or rows.most is not None or not isinstance(outer.stop, Param):
        return None
    divisors: set[Expr] = set()
    for op in ops_in(kernel.body):
        if isinstance(op, RowBlock) or (isinstance(op, Store) and rows not in _dims(op.subscripts)):
            return None
        for each in _parts(op, outer, rows):
            match each:
                case Binary("//", Position(dim), divisor) if dim == outer:
                    divisors.add(divisor)
                case Position(dim) if dim == outer:
                    return None
                case Edge(dim, _) if dim == outer:
                    return None
                case _:
                    pass
    if not divisors:
        return _Group(outer, rows, outer.stop.name, None)
    for known in assumptions:
        match known:
            case Relation("==", left, Arith("*", Param(one), Param(other))) if left == outer.stop:
                for size, groups in ((one, other), (other, one)):
                    if divisors == {Scalar(size)}:
                        return _Group(outer, rows, size, Param(groups))
            case _:
                pass
    return None


def _dims(subscripts: Sequence[Expr]) -> set[Dim]:
    return {dim for subscript in subscripts for dim in dims_of(subscript)}


def _parts(op: Op, outer: Dim, rows: Dim) -> Iterator[Expr]:
    """Yield the parts of expressions, but not what says which element of an array a row has.

    What is divided is not yielded beside its quotient.
    """

    def within(expr: Expr) -> Iterator[Expr]:
        yield expr
        if isinstance(expr, Binary) and expr.op == "//" and expr.left == Position(outer):
            return
        inner = children(expr)
        if isinstance(expr, Load) and rows in _dims(expr.subscripts):
            inner = () if expr.mask is None else (expr.mask,)
        for child in inner:
            yield from within(child)

    exprs = exprs_of(op)
    if isinstance(op, Store):
        exprs = (op.value,) if op.mask is None else (op.value, op.mask)
    for expr in exprs:
        yield from within(expr)


class _Packing:
    """Writes a kernel with one dimension of rows in place of two of its grid."""

    def __init__(self, kernel: Kernel, group: _Group, naming: Naming) -> None:
        self.kernel, self.group = kernel, group
        outer, rows = group.outer, group.rows
        assert isinstance(rows.stop, Param)
        self.size, self.inner = Scalar(group.size), Scalar(rows.stop.name)
        self.own = replace(
            rows,
            name=naming(f"{outer.name}{rows.name}"),
            stop=Arith("*", Param(group.size), rows.stop),
        )
        self.edges = {
            Edge(rows, "first"): Name(naming(f"{rows.name}_first"), (), "int"),
            Edge(rows, "last"): Name(naming(f"{rows.name}_last"), (), "int"),
        }
        self.shared: Dim | None = None
        if group.groups is not None:
            self.shared = replace(outer, name=naming("group"), stop=group.groups)

    def packed(self) -> Kernel:
        """Return the kernel."""
        kernel, group = self.kernel, self.group
        grid = tuple(d for d in (*kernel.grid[:-2], self.shared, self.own) if d is not None)
        gone = (group.outer, group.rows)
        dims = [*(d for d in (self.shared,) if d), self.own]
        dims += [d for d in kernel.dims if d not in gone]
        asked = {part for op in ops_in(kernel.body) for e in exprs_of(op) for part in walk(e)}
        edges = [self._edge(edge) for edge in self.edges if edge in asked]
        body = (*self._places(), *edges, *map(self._op, kernel.body))
        parts = (part for op in ops_in(body) for expr in exprs_of(op) for part in walk(expr))
        used = {part.name for part in parts if isinstance(part, Scalar)}
        used |= {n for d in dims for e in (d.start, d.stop) for n in parameters(e)}
        used |= {n for d in grid for e in (d.start, d.stop) for n in parameters(e)}
        known = {scalar.name for scalar in kernel.scalars}
        counts = () if self.shared is None else parameters(self.shared.stop)
        return replace(
            kernel,
            grid=grid,
            dims=tuple(sorted(dims, key=lambda dim: dim.order)),
            scalars=(
                *(s for s in kernel.scalars if s.name in used),
                *(Scalar(n) for n in counts if n not in known),
            ),
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
        outer: Expr = Binary("//", row, self.inner)
        if self.shared is not None:
            outer = Binary("+", Binary("*", Position(self.shared), self.size), outer)
        return (
            Let(self.group.outer.name, outer, dims=dims),
            Let(self.group.rows.name, Binary("%", row, self.inner), dims=dims),
        )

    def _op(self, op: Op) -> Op:
        match op:
            case Let():
                return replace(op, value=self._expr(op.value), dims=self._dims(op.dims))
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

    def _dims(self, dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
        return tuple(self.own if dim == self.group.rows else dim for dim in dims)

    def _expr(self, expr: Expr) -> Expr:
        outer, rows = self.group.outer, self.group.rows
        match expr:
            case Binary("//", Position(dim), self.size) if dim == outer and self.shared is not None:
                return Position(self.shared)
            case Binary("<", Position(dim), self.inner) if dim == rows:
                return Binary("<", Position(self.own), Binary("*", self.size, self.inner))
            case Edge(dim, _) if dim == rows:
                return self.edges[expr]
            case Position(dim) if dim in (outer, rows):
                return Name(dim.name, (self.own,), "int")
            case Name(_, dims):
                return replace(expr, dims=self._dims(dims))
        moved = rebuilt(expr, tuple(map(self._expr, children(expr))))
        match moved:
            case Dot():
                sides = self._dims((moved.rows, moved.columns, moved.over))
                return replace(moved, rows=sides[0], columns=sides[1], over=sides[2])
            case Reduce():
                return replace(moved, over=self._dims((moved.over,))[0])
            case _:
                return moved
