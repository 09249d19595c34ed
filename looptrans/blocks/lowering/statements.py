"""Lowering assignments: to blocks that programs keep, to memory, and onto what memory holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.blocks.block_ir.arithmetic import as_float, both, conjuncts, mentions
from looptrans.blocks.block_ir.expr import (
    Call,
    Cast,
    Dim,
    Expr,
    Name,
    Where,
    dims_of,
    kind_of,
    union,
    walk,
)
from looptrans.blocks.block_ir.ops import Let, Store
from looptrans.blocks.block_ir.program import NotLowered
from looptrans.blocks.lowering.appending import Appending
from looptrans.blocks.lowering.builder import Builder
from looptrans.blocks.lowering.contraction import reduced, summed
from looptrans.blocks.lowering.magnitude import bounds
from looptrans.blocks.lowering.shapes import Shapes
from looptrans.blocks.lowering.sums import Sums
from looptrans.blocks.places.storage import Storage
from looptrans.blocks.scheduled.serial import OneRowEach
from looptrans.blocks.scheduled.sites import Path
from looptrans.ir.condition import ALWAYS, Condition, Data
from looptrans.ir.index import Index
from looptrans.ir.program import Assign, Atomic
from looptrans.ir.value import Access, Read, Select, Value, walk_value
from looptrans.ir.walk import written_in


@dataclass(slots=True)
class Statements:
    """Lowers assignments.

    Attributes:
        b: The kernel.
        shapes: Where it is.
        sums: Lowers values.
        appending: The folds around, outermost first.
        bases: For each block that a loop keeps, how many guards stand around that loop.
        tests: What the guards around test, each as it is lowered and as it is written.
    """

    b: Builder
    shapes: Shapes
    sums: Sums
    appending: list[Appending] = field(default_factory=list)
    bases: dict[str, int] = field(default_factory=dict)
    tests: list[tuple[Expr, Condition]] = field(default_factory=list)

    def assign(self, node: Assign, path: Path) -> None:
        """Lower an assignment."""
        self.sums.statement = node
        self.b.label = node.label
        try:
            if len(node.values) > 1:
                self._several(node, path)
                return
            for target in node.targets:
                self._set(target.array, target.indices, node.values[0], node.label)
        except NotLowered as error:
            if error.label is None:
                raise NotLowered(f"{node.label}: {error.reason}", node.label) from None
            raise

    def _several(self, node: Assign, path: Path) -> None:
        """Work out all values before any is set."""
        found = []
        for number, value in enumerate(node.values):
            lowered = self.sums.v.lower(value)
            name = self.b.name(f"{node.targets[number].array}_next", (path, number))
            found.append(self.b.named(name, lowered, (node.label,)))
        for target, name_ in zip(node.targets, found, strict=True):
            self._put(target.array, target.indices, name_, node.label, False)

    def _set(self, array: str, subscripts: tuple[Index, ...], value: Value, label: str) -> None:
        around = list(self.b.guards)
        for lowered, tested in self._guards_of(array):
            # All of the update waits for it: if m > -inf: l = x is l = x if m > -inf else l.
            value = Select(tested, value, Read(Access(array, subscripts)))
            self.b.guards[:] = [guard for guard in self.b.guards if guard is not lowered]
        self._set_as(array, subscripts, value, label)
        self.b.guards[:] = around

    def _guards_of(self, array: str) -> list[tuple[Expr, Condition]]:
        """Return the guards of a state that wait for a maximum to leave -inf, innermost first."""
        context = self.appending[-1] if self.appending else None
        if context is None or array not in context.states or context.states[array].guard is None:
            return []
        inside = self.b.guards[context.base :]
        changed = written_in(context.body)
        return [
            (lowered, tested)
            for lowered, tested in reversed(self.tests)
            if isinstance(tested, Data)
            and context.dim not in dims_of(lowered)
            and any(
                isinstance(p, Read) and p.access.array in changed for p in walk_value(tested.value)
            )
            and any(guard is lowered for guard in inside)
        ]

    def _set_as(self, array: str, subscripts: tuple[Index, ...], value: Value, label: str) -> None:
        self._forget(array)
        self.b.begin(array)
        context = self.appending[-1] if self.appending else None
        if context is not None:
            unit = context.unit(array, value)
            if unit is not None:
                self._put(array, subscripts, unit, label, False)
                return
            taken = context.taken(array, value)
            if taken is not None:
                self._put(array, subscripts, taken, label, True)
                context.after(array, value)
                return
        if not self._copied(array, value, label):
            self._put(array, subscripts, self.sums.v.lower(value), label, False)
        if context is not None:
            context.after(array, value)

    def _copied(self, array: str, value: Value, label: str) -> bool:
        """Let a name that is set once, to elements of an array, be the name of the load."""
        storage = self.b.storage[array]
        if (
            not isinstance(value, Read)
            or self.b.storage[value.access.array].place != "loaded"
            or storage.place != "register"
            or array in self.b.kept
            or sum(site.is_write for site in storage.sites) != 1
            or array in self.b.values
            or self._is_carried(storage)
            or value.access.rank
        ):
            return False
        source = self.b.program.array(value.access.array)
        if source.element != self.b.program.array(array).element:
            return False
        places = tuple(self.b.index(index) for index in value.access.indices)
        self.b.values[array] = self.b.load(source.name, places, source.element, (array, label))
        return True

    def _put(
        self,
        array: str,
        subscripts: tuple[Index, ...],
        value: Expr,
        label: str,
        appended: bool,
    ) -> None:
        element = self.b.program.array(array).element
        if element == "int" and kind_of(value) == "float" and any(map(_is_power, walk(value))):
            raise NotLowered(
                f"{array} holds integers, and powers are worked out in float32, which has not all "
                "of them beyond 2 ** 24: write them as products",
                label,
            )
        storage = self.b.storage[array]
        if storage.place == "register" and self.shapes.turned(storage, subscripts):
            raise NotLowered(f"{array} would have to be set over other lanes than its own", label)
        if storage.place in ("streamed", "recomputed"):
            if storage.place == "streamed" or array in self.b.kept:
                self._store(array, subscripts, value, label)
            return
        held = value.holds if isinstance(value, Name) and element == "float" else None
        if element == "float" and held is None:
            value = as_float(value)
        elif element == "int" and kind_of(value) != "int":
            value = Cast(value, "int32" if kind_of(value) == "bool" else "int64")
        carried = self._is_carried(storage)
        dims = self.shapes.of(storage) if carried else self._temporary(storage, value)
        known = self.b.values.get(array)
        guards = self.b.guards[self.bases.get(array, 0) :]
        tile = self.appending[-1] if self.appending else None
        if appended and tile is not None:
            # What stands around the fold itself; its own guards are in what is appended.
            guards = self.b.guards[self.bases.get(array, 0) : tile.outermost(array)]
        elif (
            tile is not None
            and tile.dim not in union(dims, dims_of(value))
            and not storage.is_local_to(tile.path)
        ):
            # It is no other value in any iteration of the block.
            guards = [g for g in guards if tile.dim not in dims_of(g)]
        if known is not None and guards:
            condition = both(*guards)
            assert condition is not None
            value = Where(condition, as_float(value) if element == "float" else value, known)
            held = None
            dims = union(dims, dims_of(value)) if not carried else dims
        if carried:
            held = None
            value = as_float(value) if element == "float" else value
            if not set(dims_of(value)) <= set(dims):
                extra = next(d for d in dims_of(value) if d not in dims)
                raise NotLowered(
                    f"{array} takes a value of its own from every iteration of {extra.name}", label
                )
        if isinstance(value, Name) and value.name == array:
            return
        self.b.known.pop(array, None)
        self.b.ranges.pop(array, None)
        if not carried and kind_of(value) == "float":
            is_weight = self.b.rounding is not None and array in self.b.rounding.weights
            self.b.ranges[array] = (0.0, 1.0) if is_weight else bounds(self.b, value)
        self.b.emit(Let(array, value, (label,), dims=dims))
        if not carried and not mentions(value, array):
            self.b.defined[array] = value
        self.b.values[array] = Name(array, dims, kind_of(value), held)

    def add(self, node: Atomic, path: Path) -> None:
        """Add to cells in memory, over rows and blocks at once what is added to one cell.

        So with maxima and minima.
        """
        for number, each in enumerate(node.body):
            if not isinstance(each, Assign):
                raise NotLowered("an atomic part with more than plain statements has no blocks")
            found = accumulation(each.targets[0], each.values[0])
            if len(each.targets) != 1 or found is None:
                raise NotLowered(
                    f"{each.label}: an atomic part adds to one cell, or takes a maximum or minimum",
                    each.label,
                )
            self.sums.statement, self.b.label = each, each.label
            target, (folding, value, condition) = each.targets[0], found
            guard = None
            if condition != ALWAYS:
                guard = self.b.condition(condition, self.sums.v.truth_of)
            with self.b.guarded(guard):
                places = tuple(self.b.index(s) for s in target.indices)
                own = union(*(dims_of(p) for p in places))
                offered = self.sums.v.kept(value, target.array)
                guards = [c for g in self.b.guards for c in conjuncts(g)]
            partial = [g for g in guards if not set(dims_of(g)) <= set(own)]
            # Where nothing counts, what says which cell it is may say anything.
            limits = self.b.limits(target.array, places) if partial else ()
            for dim in union(self.shapes.rows, self.shapes.vectors, dims_of(offered)):
                if dim in own:
                    continue
                mask = both(self.b.inside((dim,)), *(g for g in guards if dim in dims_of(g)))
                guards = [g for g in guards if dim not in dims_of(g)]
                if folding == "sum":
                    offered = summed(self.b, offered, dim, mask)
                else:
                    offered = reduced(self.b, folding, offered, dim, mask)
            if kind_of(offered) != self.b.program.array(target.array).element:
                raise NotLowered(
                    f"{each.label}: what is added to the integers of {target.array} is no integer, "
                    "and would be rounded each time",
                    each.label,
                )
            name = self.b.name(f"{target.array}_part", (path, number))
            offered = self.b.named(name, offered, (each.label,))
            mask = both(self.b.inside(own), *guards, *limits)
            self.b.emit(Store(target.array, places, offered, mask, (each.label,), folded=folding))

    def _forget(self, array: str) -> None:
        """Drop what was known of a name, and of values that mention it."""
        self.b.known.pop(array, None)
        self.sums.v.instead.pop(array, None)
        self.b.forget_order(array)
        for value in list(self.sums.v.known):
            if any(isinstance(p, Read) and p.access.array == array for p in walk_value(value)):
                del self.sums.v.known[value]

    def _temporary(self, storage: Storage, value: Expr) -> tuple[Dim, ...]:
        if not storage.subscripts:
            return dims_of(value)
        with self.shapes.bound(storage):
            places = [dims_of(self.b.index(s)) for s in storage.subscripts]
        return union(dims_of(value), *places)

    def _is_carried(self, storage: Storage) -> bool:
        """Tell whether a loop hands the block from one iteration to the next."""
        for site in storage.sites:
            if not site.is_write:
                continue
            for binding in site.bindings:
                inner = len(binding.path) > len(storage.scope)
                lanes = any(place == binding.path for place, _ in storage.bound)
                if inner and not lanes and not storage.is_local_to(binding.path):
                    return True
        return False

    def _store(self, array: str, subscripts: tuple[Index, ...], value: Expr, label: str) -> None:
        places = tuple(self.b.index(s) for s in subscripts)
        dims = union(*(dims_of(p) for p in places))
        extra = [d for d in dims_of(value) if d not in dims]
        if extra:
            why = f"iterations of {extra[0].name} write the same element of {array}"
            if all(dim.role == "rows" and dim.most is None for dim in extra):
                # A block of rows would store a column for all of them; a program has its own.
                raise OneRowEach(frozenset(dim.name for dim in extra), why, label)
            raise NotLowered(why, label)
        guards = self.b.guards
        outside = [d for g in guards for d in dims_of(g) if d not in dims]
        if outside:
            raise NotLowered(f"whether {array} is written depends on {outside[0].name}", label)
        mask = both(self.b.inside(dims), *guards)
        self.b.emit(Store(array, places, value, mask, (label,)))


def _is_power(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.function == "pow"
