"""Lowering `sum(…)`, `max(…)` and `min(…)` over variables of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from looptrans.blocks.block_ir.arithmetic import as_float, both
from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Dim,
    Expr,
    Name,
    Number,
    Position,
    kind_of,
    union,
)
from looptrans.blocks.block_ir.identities import counted, identity
from looptrans.blocks.block_ir.ops import ElementLoop, Let, TileLoop
from looptrans.blocks.block_ir.program import NotLowered
from looptrans.blocks.lowering.builder import Builder
from looptrans.blocks.lowering.contraction import reduced, summed
from looptrans.blocks.lowering.runs import parts
from looptrans.blocks.lowering.shapes import EACH, SUM, Shapes, is_of_sizes
from looptrans.blocks.lowering.values import Values
from looptrans.blocks.scheduled.chains import as_chain, of_all_variables
from looptrans.blocks.scheduled.grid import apart, factors_of
from looptrans.blocks.scheduled.lifting import narrowed
from looptrans.blocks.scheduled.ranges import Ranges, bounds_of
from looptrans.frontend.elements import element_of
from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import walk
from looptrans.ir.monoids import MONOID_OF, Monoid
from looptrans.ir.program import Assign
from looptrans.ir.value import (
    Generator,
    Read,
    Reduce,
    Value,
    free_variables,
    reductions,
    walk_value,
)


@dataclass(slots=True)
class Sums:
    """Lowers reductions inside of values.

    Attributes:
        b: The kernel.
        shapes: Where it is.
        statement: The statement that is being lowered.
        lanes: How many sums in one block are around: a sum inside of them is in one block as well.
    """

    b: Builder
    shapes: Shapes
    v: Values = field(init=False)
    statement: Assign | None = None
    lanes: int = 0

    def __post_init__(self) -> None:
        self.v = Values(self.b, self.reduce, self.shapes.turned)

    def reduce(self, value: Reduce, onto: Name | None = None) -> Expr:
        """Return a sum, maximum or minimum, done in one block or in a loop over blocks before.

        Args:
            value: The reduction.
            onto: The block that a sum is added to.
        """
        op = MONOID_OF[value.function]
        value = self._as_chain(value)
        generator, *rest = value.generators
        inner = Reduce(value.function, tuple(rest), value.body) if rest else value.body
        start, stop = generator.range.ends
        sized = all(is_of_sizes(p) for index in (start, stop) for p in walk(index))
        if generator.range.step != 1:
            raise NotLowered(f"a sum in steps of {generator.range.step} has no form in blocks")
        shared = self._range_of_cells(generator.variable)
        if onto is None and not (shared or self.lanes):
            flat = of_all_variables(value)
            if self._is_of_products(value):
                return self._in_elements(value, "of each it is a matrix product")
            if self._is_of_blocks(flat):
                return self._in_elements(flat, "for all of them at once a block has 4 dimensions")
        in_one = shared or self.lanes or self.shapes.is_deep or self._is_in_one_block(generator)
        if sized and in_one:
            dim = self.shapes.lanes(shared or generator.variable, start, stop)
            dim = self.b.beside(dim, generator.variable)
            with self.b.bound(generator.variable, Position(dim)), self._in_lanes():
                guard = None
                if generator.condition != ALWAYS:
                    guard = self.b.condition(generator.condition, self.v.truth_of)
                with self.b.guarded(guard):
                    body = self._kept(inner)
                mask = both(self.b.inside((dim,)), guard)
            if op == "+":
                return summed(self.b, body, dim, mask, onto)
            return reduced(self.b, op, body, dim, mask)
        return self._in_tiles(value, op, inner, onto)

    def _as_chain(self, value: Reduce) -> Reduce:
        """Return a sum of products of three matrices as one of products of two, where it is one."""
        if not _is_plain_sum(of_all_variables(value)):
            return value
        dims = [dim.name for dim in union(self.shapes.rows, self.shapes.vectors)]
        return as_chain(value, dims) or value

    @contextmanager
    def _in_lanes(self) -> Iterator[None]:
        self.lanes += 1
        yield
        self.lanes -= 1

    def _is_in_one_block(self, generator: Generator) -> bool:
        """Tell whether as many iterations are in one block already, inside another loop."""
        own = generator.range
        lanes = [d for d in self.b.dims if d.role == "lanes"] if self.shapes.around else []
        return any((d.start, d.stop) == own.ends for d in lanes)

    def _is_of_products(self, value: Reduce) -> bool:
        """Tell whether a sum is one of matrix products, summed over its last variable each."""
        over = value.generators[-1].variable
        if len(value.generators) < 2 or not _is_plain_sum(value):
            return False
        reads = [p.access.array for p in walk_value(value.body) if isinstance(p, Read)]
        if not any(self.b.program.array(name).element == "float" for name in reads):
            return False
        factors = [set(free_variables(factor)) for factor in factors_of(value.body)]
        dims = [dim.name for dim in union(self.shapes.rows, self.shapes.vectors)]
        return bool(apart([own for own in factors if over in own], dims))

    def _is_of_blocks(self, value: Reduce) -> bool:
        """Tell whether a sum is one of sums, and its terms differ in two dimensions of the block.

        In one block they would have four dimensions, and soon be more than there is room for.
        """
        elements = {array.name: array.element for array in self.b.program.arrays}
        if not _is_plain_sum(value) or element_of(value, elements) != "float":
            return False
        dims = {dim.name for dim in union(self.shapes.rows, self.shapes.vectors)}
        first = value.generators[0].variable
        inner = list(reductions(value.body))
        for part in (value, *inner) if len(value.generators) > 1 else inner:
            own = set(free_variables(part.body))
            summed_over = {g.variable for g in part.generators} - {first}
            if first in own and summed_over & own and len(dims & own) > 1:
                return True
        return False

    def _in_elements(self, value: Reduce, why: str) -> Expr:
        """Add up what is summed over the last variable, one iteration of the others at a time.

        sum(A[h, i, d] * B[c, h, d] for h for d)    ->    for h: total = dot(A_id, B_cd, total)
        """
        name, dims = self._carried(value)
        self.b.emit(Let(name, Number(0.0), (self._label(),), dims=dims))
        carried = Name(name, dims, "float")
        last = value.generators[-1:] if len(value.generators) > 1 else ()
        of_each = replace(value, generators=last) if last else value.body
        self._add_up(value.generators[: len(value.generators) - len(last)], of_each, carried, why)
        return carried

    def _add_up(self, over: tuple[Generator, ...], of_each: Value, carried: Name, why: str) -> None:
        if not over:
            if isinstance(of_each, Reduce):
                whole = self.reduce(of_each, carried)
            else:
                whole = Binary("+", carried, self._kept(of_each))
            if whole != carried:
                self.b.emit(Let(carried.name, whole, (self._label(),), dims=carried.dims))
            return
        generator, *rest = over
        start, stop = self.b.index(generator.range.start), self.b.index(generator.range.stop)
        dim = self.b.dim(generator.variable, "element", generator.range.start, generator.range.stop)
        self.shapes.around.append((EACH, dim))
        with self.b.frame({dim.name}) as frame, self.b.bound(generator.variable, Position(dim)):
            self._add_up(tuple(rest), of_each, carried, why)
        self.shapes.around.pop()
        self.b.emit(ElementLoop(dim, start, stop, tuple(frame.ops), why))

    def _carried(self, value: Reduce) -> tuple[str, tuple[Dim, ...]]:
        """Return what holds a reduction that is done in a loop, and its dimensions."""
        stem = self.statement.targets[0].array if self.statement is not None else "value"
        # The same sum may be asked for at two places, t[j] and t[j - 1], or where others hold.
        places = tuple(self.b.places.get(v) for v in free_variables(value))
        asked = (self._label(), value, places, tuple(self.b.guards))
        name = self.b.name(f"{stem}_{value.function}", asked)
        return name, union(self.shapes.rows, self.shapes.vectors)

    def _range_of_cells(self, variable: str) -> str | None:
        """Return the variable of the lanes that a sum goes over, where it reads a register."""
        for storage in self.b.storage.values():
            for place, home in storage.bound:
                own = [s for s in storage.sites if s.label == self._label()]
                for site in own:
                    binding = site.binding(variable)
                    if binding is not None and binding.path == place:
                        return home.variable
        return None

    def _label(self) -> str:
        return self.statement.label if self.statement is not None else ""

    def _in_tiles(self, value: Reduce, op: Monoid, inner: Value, onto: Name | None) -> Expr:
        """Reduce block by block, in a loop of its own before the statement."""
        generator = value.generators[0]
        label = (self._label(),)
        name, dims = self._carried(value)
        if onto is not None:
            name, dims = onto.name, onto.dims
        ops, begun = self.b.frames[-1].ops, len(self.b.frames[-1].ops)
        start = Number(identity(op, Number(0.0)))
        dim = self.b.dim(generator.variable, "tile", generator.range.start, generator.range.stop)
        if dim in self.b.stops:
            raise NotLowered(
                f"a sum over {generator.variable} stands inside of another one over the same",
                self._label(),
            )
        self.shapes.around.append((SUM, dim))
        ranges = Ranges(bounds_of(generator.range))
        ranges, tested = narrowed(generator.variable, ranges, generator.condition)
        for part in parts(self.b, dim, ranges):
            self.b.stops[dim] = part.hull
            with (
                self.b.frame({dim.name}) as frame,
                self.b.bound(generator.variable, Position(dim)),
                self.b.masked(*part.masks),
            ):
                guard = None
                if tested != ALWAYS:
                    guard = self.b.condition(tested, self.v.truth_of)
                with self.b.guarded(guard):
                    body = self._kept(inner)
                start = Number(identity(op, counted(op, body)))
                carried = Name(name, dims, kind_of(start))
                mask = both(self.b.inside((dim,)), *part.masks, guard)
                if op == "+":
                    joined = summed(self.b, body, dim, mask, carried)
                else:
                    joined = Call(op, (carried, reduced(self.b, op, body, dim, mask)))
                self.b.emit(Let(name, joined, label, dims=dims))
            done = tuple(frame.ops)
            self.b.emit(TileLoop(dim, part.start, part.stop, part.kind, done, part.note))
        if onto is None:
            ops.insert(begun, Let(name, start, label, dims=dims))
        self.shapes.around.pop()
        del self.b.stops[dim]
        return Name(name, dims, kind_of(start))

    def _kept(self, value: Value) -> Expr:
        """Return what is reduced: integers as they are, all else in float32."""
        found = self.v.lower(value)
        return found if kind_of(found) == "int" else as_float(found)


def _is_plain_sum(value: Reduce) -> bool:
    """Tell whether a sum goes over all that its variables can be, as many as sizes say."""
    ends = [end for g in value.generators for end in g.range.ends]
    return (
        value.function == "sum"
        and all(g.condition == ALWAYS and g.range.step == 1 for g in value.generators)
        and all(is_of_sizes(part) for end in ends for part in walk(end))
    )
