"""Lowering the loops and statements of one kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from looptrans.adjoint.accumulating import accumulation
from looptrans.algebra.append import Append
from looptrans.blocks.appending import Appending
from looptrans.blocks.arithmetic import as_float, both, conjuncts
from looptrans.blocks.builder import Builder
from looptrans.blocks.contraction import IDENTITY, Monoid, reduced, summed
from looptrans.blocks.magnitude import bounds as value_bounds
from looptrans.blocks.program import (
    Call,
    Cast,
    Dim,
    ElementLoop,
    Expr,
    Let,
    Name,
    NotLowered,
    Number,
    Position,
    Store,
    TileLoop,
    Unary,
    Where,
    dims_of,
    kind_of,
    union,
)
from looptrans.blocks.program import walk as parts_of
from looptrans.blocks.ranges import bounds_of, lifted, parts
from looptrans.blocks.sites import Path
from looptrans.blocks.storage import Storage, sets_first
from looptrans.blocks.values import Values
from looptrans.ir.affine import extremum
from looptrans.ir.condition import ALWAYS, Condition
from looptrans.ir.index import Arith, Extremum, Index, Int, Neg, Param, walk
from looptrans.ir.program import Assign, Atomic, Declaration, If, Loop, Node
from looptrans.ir.value import Create, Read, Reduce, Value, Whole, walk_value
from looptrans.ir.walk import nodes as nodes_in
from looptrans.transforms.tree import statements_in

Facts = Callable[[Loop], Append | None]


@dataclass(slots=True)
class Nest:
    """Lowers nodes.

    Attributes:
        b: The kernel.
        facts: What is known of a sequential loop.
        creations: How arrays begin.
        rows: The dimensions of rows.
        serial: Loops that must run one element at a time, with the reason, found on the way.
    """

    b: Builder
    facts: Facts
    creations: dict[str, Create]
    rows: tuple[Dim, ...]
    serial: dict[Path, str]
    v: Values = field(init=False)
    around: list[tuple[Path, Dim | None]] = field(default_factory=list)
    appending: list[Appending] = field(default_factory=list)
    statement: Assign | None = None
    bases: dict[str, int] = field(default_factory=dict)
    lifted: dict[Path, Condition] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.v = Values(self.b, self._reduce)

    # Blocks

    def body(self, nodes: tuple[Node, ...], path: Path) -> None:
        """Lower a block."""
        for number, node in enumerate(nodes):
            here = (*path, number)
            match node:
                case Assign():
                    self._assign(node, here)
                case If():
                    self._if(node, here)
                case Loop():
                    self._loop(node, here)
                case Atomic():
                    self._added(node, here)
                case Declaration():
                    pass
                case _:
                    raise NotLowered("block reductions and barriers have no blocks")

    @contextmanager
    def scope(self, path: Path) -> Iterator[None]:
        """Begin what each iteration of a loop has for itself, and store it at the end."""
        own = [s for s in self.b.storage.values() if s.place == "register" and s.scope == path]
        for storage in own:
            self.bases[storage.array] = len(self.b.guards)
            self.b.values.pop(storage.array, None)
            if not sets_first(storage):
                self._begin(storage)
        yield
        for storage in own:
            if storage.array in self.b.kept and storage.is_written:
                self._store_block(storage)

    def _begin(self, storage: Storage) -> None:
        array = self.b.program.array(storage.array)
        dims = self._dims(storage)
        value: Expr
        if array.role == "input" or array.name in self.b.before:
            with self._lanes_bound(storage):
                places = tuple(self.b.index(s) for s in storage.subscripts)
                value = as_float(self.b.load(array.name, places, array.element))
        else:
            value = self._first(array.name, array.element)
        kind = array.element
        self.b.emit(Let(array.name, value, dims=dims, note=""))
        self.b.values[array.name] = Name(array.name, dims, kind)

    def _first(self, name: str, element: str) -> Expr:
        creation = self.creations.get(name)
        fill: Expr = Number(0)
        if creation is not None and creation.function == "full" and creation.fill is not None:
            fill = self.v.lower(creation.fill)
        elif creation is not None and creation.function == "ones":
            fill = Number(1)
        if element == "float":
            return as_float(fill)
        if element == "bool":
            return Number(bool(fill.value)) if isinstance(fill, Number) else fill
        return fill

    def _store_block(self, storage: Storage) -> None:
        with self._lanes_bound(storage):
            places = tuple(self.b.index(s) for s in storage.subscripts)
        mask = both(
            self.b.inside(union(*(dims_of(p) for p in places))),
            *self.b.guards[: self.bases[storage.array]],
        )
        labels = tuple(dict.fromkeys(s.label for s in storage.sites if s.is_write))
        value = self.b.values.get(storage.array)
        assert value is not None
        if not set(dims_of(value)) <= set(union(*(dims_of(p) for p in places))):
            raise NotLowered(f"{labels[-1]}: {storage.array} would have one value for each row")
        self.b.emit(Store(storage.array, places, value, mask, labels[-1:]))

    @contextmanager
    def _lanes_bound(self, storage: Storage) -> Iterator[None]:
        before = dict(self.b.places)
        for binding in storage.lanes:
            if binding.variable not in self.b.places:
                dim = self._lanes(binding.variable, binding.range.start, binding.range.stop)
                self.b.places[binding.variable] = Position(dim)
        yield
        self.b.places.clear()
        self.b.places.update(before)

    def _dims(self, storage: Storage) -> tuple[Dim, ...]:
        """Return the dimensions of a block that is carried."""
        lanes = []
        for binding in storage.lanes:
            place = self.b.places.get(binding.variable)
            if isinstance(place, Position):
                lanes.append(place.dim)
            else:
                lanes.append(self._lanes(binding.variable, binding.range.start, binding.range.stop))
        inside = [d for p, d in self.around if d is not None and len(p) <= len(storage.scope)]
        vectors = [d for d in inside if d.is_vector]
        return union(self.rows, vectors, [d for d in lanes if d.is_vector])

    # Loops

    def _loop(self, node: Loop, path: Path) -> None:
        if node.execution == "parallel":
            dim = self._forced(node, path)
            if dim is not None:
                self._in_lanes(node, path, dim)
                return
            if node.range.step == 1:
                self._tiles(node, path, None)
            else:
                self._elements(node, path, f"{node.variable} goes in steps of {node.range.step}")
            return
        if path in self.serial:
            self._elements(node, path, self.serial[path])
            return
        fact = self.facts(node)
        if fact is not None and fact.decision == "legal" and node.range.step == 1:
            self._tiles(node, path, fact)
            return
        why = f"{node.variable} goes in steps of {node.range.step}"
        if fact is None:
            why = "it is not known to be a fold"
        elif fact.decision != "legal":
            why = fact.reason
        self._elements(node, path, why)

    def _forced(self, node: Loop, path: Path) -> Dim | None:
        """Return the lanes of a loop that some register's or atomic part's cells range over."""
        for storage in self.b.storage.values():
            if storage.place != "register":
                continue
            for place, home in storage.bound:
                if place == path and storage.scope[: len(path)] != path:
                    return self._lanes(home.variable, home.range.start, home.range.stop)
        if self.around and node.range.step == 1 and any(isinstance(n, Atomic) for n in node.body):
            # What is added to a row of memory is one block.
            return self._lanes(node.variable, node.range.start, node.range.stop)
        return None

    def _lanes(self, variable: str, start: Index, stop: Index) -> Dim:
        for index in (start, stop):
            if not all(_is_of_sizes(part) for part in walk(index)):
                raise NotLowered(
                    f"all iterations of {variable} must be in one block, and how many there are is "
                    "known only inside the kernel"
                )
        return self.b.dim(variable, "lanes", start, stop)

    def _in_lanes(self, node: Loop, path: Path, dim: Dim) -> None:
        self.around.append((path, dim))
        with self.b.bound(node.variable, Position(dim)), self.scope(path):
            self.body(node.body, path)
        self.around.pop()

    def _elements(self, node: Loop, path: Path, reason: str) -> None:
        start, stop = self.b.index(node.range.start), self.b.index(node.range.stop)
        if dims_of(start) or dims_of(stop):
            raise NotLowered(
                f"{node.variable} runs one iteration at a time ({reason}), and how often depends "
                "on the row",
                statements_in((node,))[0],
            )
        dim = self.b.dim(
            node.variable, "element", node.range.start, node.range.stop, node.range.step
        )
        self.b.notes.append(
            f"the loop {node.variable} runs one iteration at a time in each program: {reason}"
        )
        self.around.append((path, dim))
        with (
            self.b.frame({dim.name}) as frame,
            self.b.bound(node.variable, Position(dim)),
            self.scope(path),
        ):
            self.body(node.body, path)
        self.around.pop()
        self.b.emit(ElementLoop(dim, start, stop, tuple(frame.ops), reason))

    def _tiles(self, node: Loop, path: Path, fact: Append | None) -> None:
        pure = [
            s.array
            for s in self.b.storage.values()
            if s.place == "register" and s.is_written and s.is_local_to(path)
        ]
        bounds, guard = lifted(node.variable, bounds_of(node.range), node.body, pure)
        if guard is not None:
            self.lifted[(*path, guard.number)] = guard.rest
        start, stop = extremum("max", bounds.lower), extremum("min", bounds.upper)
        dim = self.b.dim(node.variable, "tile", start, stop)
        before = {name: dict(facts) for name, facts in self.b.known.items()}
        context: Appending | None = None
        if fact is not None:
            context = Appending(self.b, self.v, fact, dim, path, node.body, frozenset(pure))
            context.outer = self.appending[-1] if self.appending else None
            context.enter()
            self.appending.append(context)
        self.around.append((path, dim))
        for part in parts(self.b, dim, bounds):
            # Blocks of one kind know nothing of what the others set for themselves.
            for name in pure:
                self.b.values.pop(name, None)
            self.b.stops[dim], self.b.loops[dim] = part.hull, path
            with (
                self.b.frame({dim.name}) as frame,
                self.b.bound(node.variable, Position(dim)),
                self.b.guarded(*part.masks),
                self.scope(path),
            ):
                if context is not None:
                    context.begin(part)
                self.body(node.body, path)
            body = tuple(frame.ops)
            self.b.emit(TileLoop(dim, part.start, part.stop, part.kind, body, part.note))
        self.around.pop()
        del self.b.stops[dim], self.b.loops[dim]
        self.b.known.clear()
        self.b.known.update(before)
        if context is not None:
            self.appending.pop()
            context.leave()

    # Statements

    def _if(self, node: If, path: Path) -> None:
        tested = self.lifted.get(path, node.condition)
        if tested == ALWAYS:
            self.body(node.body, (*path, 1))
            return
        condition = self._settled(self.b.condition(tested, self.v.truth_of), node, path)
        with self.b.guarded(condition):
            self.body(node.body, (*path, 1))
        if node.orelse:
            with self.b.guarded(Unary("not", condition)):
                self.body(node.orelse, (*path, 2))

    def _settled(self, condition: Expr, node: If, path: Path) -> Expr:
        """Give a condition a name where the statements it guards change what it looks at."""
        changed = {t.array for n in nodes_in((node,)) if isinstance(n, Assign) for t in n.targets}
        if not any(isinstance(part, Name) and part.name in changed for part in parts_of(condition)):
            return condition
        return self.b.named(self.b.name("holds", ("guard", path)), condition)

    def _assign(self, node: Assign, path: Path) -> None:
        self.statement = node
        self.b.label = node.label
        try:
            if len(node.values) > 1:
                self._several(node, path)
                return
            for target in node.targets:
                self._set(target.array, target.indices, node.values[0], node.label, path)
        except NotLowered as error:
            if error.label is None:
                raise NotLowered(f"{node.label}: {error.reason}", node.label) from None
            raise

    def _several(self, node: Assign, path: Path) -> None:
        """Work out all values before any is set."""
        found = []
        for number, value in enumerate(node.values):
            lowered = self.v.lower(value)
            name = self.b.name(f"{node.targets[number].array}_next", (path, number))
            found.append(self.b.named(name, lowered, (node.label,)))
        for target, name_ in zip(node.targets, found, strict=True):
            self._put(target.array, target.indices, name_, node.label, False)

    def _set(
        self, array: str, subscripts: tuple[Index, ...], value: Value, label: str, path: Path
    ) -> None:
        self._forget(array)
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
            self._put(array, subscripts, self.v.lower(value), label, False)
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
            or any(isinstance(s, Whole) for s in value.access.subscripts)
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
        storage = self.b.storage[array]
        if storage.place in ("streamed", "recomputed"):
            if storage.place == "streamed" or array in self.b.kept:
                self._store(array, subscripts, value, label)
            return
        held = value.holds if isinstance(value, Name) and element == "float" else None
        if element == "float" and held is None:
            value = as_float(value)
        elif element == "int" and kind_of(value) != "int":
            value = Cast(value, "int32") if kind_of(value) == "bool" else value
        carried = self._is_carried(storage)
        dims = self._dims(storage) if carried else self._temporary(storage, value)
        known = self.b.values.get(array)
        guards = self.b.guards[self.bases.get(array, 0) :]
        tile = self.appending[-1] if self.appending else None
        if appended and tile is not None:
            # What stands around the fold itself; its own guards are in what is appended.
            guards = self.b.guards[self.bases.get(array, 0) : tile.outermost(array)]
        elif tile is not None and not storage.is_local_to(tile.path):
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
            self.b.ranges[array] = value_bounds(self.b, value)
        self.b.emit(Let(array, value, (label,), dims=dims))
        if not carried and not _mentions(value, array):
            self.b.defined[array] = value
        self.b.values[array] = Name(array, dims, kind_of(value), held)

    def _added(self, node: Atomic, path: Path) -> None:
        """Add to cells in memory, over rows and blocks at once what is added to one cell."""
        for number, each in enumerate(node.body):
            if not isinstance(each, Assign):
                raise NotLowered("an atomic part with more than plain statements has no blocks")
            found = accumulation(each.targets[0], each.values[0])
            if len(each.targets) != 1 or found is None or found[0] != "sum":
                raise NotLowered(f"{each.label}: an atomic part adds to a cell only", each.label)
            self.statement, self.b.label = each, each.label
            target, (_, value, condition) = each.targets[0], found
            guard = None
            if condition != ALWAYS:
                guard = self.b.condition(condition, self.v.truth_of)
            with self.b.guarded(guard):
                places = tuple(self.b.index(s) for s in target.indices)
                own = union(*(dims_of(p) for p in places))
                offered = self.v.number(value)
                guards = [c for g in self.b.guards for c in conjuncts(g)]
            inside = [d for _, d in self.around if d is not None and d.is_vector]
            for dim in union(self.rows, inside, dims_of(offered)):
                if dim in own:
                    continue
                mask = both(self.b.inside((dim,)), *(g for g in guards if dim in dims_of(g)))
                guards = [g for g in guards if dim not in dims_of(g)]
                offered = summed(self.b, offered, dim, mask)
            name = self.b.name(f"{target.array}_part", (path, number))
            offered = self.b.named(name, offered, (each.label,))
            mask = both(self.b.inside(own), *guards)
            self.b.emit(Store(target.array, places, offered, mask, (each.label,), added=True))

    def _forget(self, array: str) -> None:
        """Drop what was known of a name, and of values that mention it."""
        self.b.known.pop(array, None)
        self.b.nonpositive = {
            (expr, other)
            for expr, other in self.b.nonpositive
            if other != array
            and not any(isinstance(p, Name) and p.name == array for p in parts_of(expr))
        }
        for value in list(self.v.known):
            if any(isinstance(p, Read) and p.access.array == array for p in walk_value(value)):
                del self.v.known[value]

    def _temporary(self, storage: Storage, value: Expr) -> tuple[Dim, ...]:
        if not storage.subscripts:
            return dims_of(value)
        with self._lanes_bound(storage):
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
            raise NotLowered(
                f"iterations of {extra[0].name} write the same element of {array}", label
            )
        guards = self.b.guards
        outside = [d for g in guards for d in dims_of(g) if d not in dims]
        if outside:
            raise NotLowered(f"whether {array} is written depends on {outside[0].name}", label)
        mask = both(self.b.inside(dims), *guards)
        self.b.emit(Store(array, places, value, mask, (label,)))

    # Sums

    def _reduce(self, value: Reduce) -> Expr:
        op: Monoid = "+" if value.function == "sum" else value.function
        generator, *rest = value.generators
        inner = Reduce(value.function, tuple(rest), value.body) if rest else value.body
        start, stop = generator.range.start, generator.range.stop
        sized = all(_is_of_sizes(p) for index in (start, stop) for p in walk(index))
        deep = any(d is not None and d.role in ("tile", "element") for _, d in self.around)
        if generator.range.step != 1:
            raise NotLowered(f"a sum in steps of {generator.range.step} has no form in blocks")
        shared = self._range_of_cells(value, generator.variable)
        if (deep or shared) and sized:
            dim = self._lanes(shared or generator.variable, start, stop)
            with self.b.bound(generator.variable, Position(dim)):
                guard = None
                if generator.condition != ALWAYS:
                    guard = self.b.condition(generator.condition, self.v.truth_of)
                with self.b.guarded(guard):
                    body = self.v.number(inner)
                mask = both(self.b.inside((dim,)), guard)
            if op == "+":
                return summed(self.b, body, dim, mask)
            return reduced(self.b, op, body, dim, mask)
        return self._in_tiles(value, op, inner)

    def _range_of_cells(self, value: Reduce, variable: str) -> str | None:
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

    def _in_tiles(self, value: Reduce, op: Monoid, inner: Value) -> Expr:
        """Reduce block by block, in a loop of its own before the statement."""
        generator = value.generators[0]
        label = (self._label(),)
        stem = self.statement.targets[0].array if self.statement is not None else "value"
        name = self.b.name(f"{stem}_{value.function}", (self._label(), value))
        inside = [d for _, d in self.around if d is not None and d.is_vector]
        dims = union(self.rows, inside)
        carried = Name(name, dims)
        self.b.emit(Let(name, Number(IDENTITY[op]), label, dims=dims))
        dim = self.b.dim(generator.variable, "tile", generator.range.start, generator.range.stop)
        self.around.append(((-1,), dim))
        for part in parts(self.b, dim, bounds_of(generator.range)):
            self.b.stops[dim] = part.hull
            with (
                self.b.frame({dim.name}) as frame,
                self.b.bound(generator.variable, Position(dim)),
                self.b.guarded(*part.masks),
            ):
                guard = None
                if generator.condition != ALWAYS:
                    guard = self.b.condition(generator.condition, self.v.truth_of)
                with self.b.guarded(guard):
                    body = self.v.number(inner)
                mask = both(self.b.inside((dim,)), *part.masks, guard)
                if op == "+":
                    joined = summed(self.b, body, dim, mask, carried)
                else:
                    joined = Call(op, (carried, reduced(self.b, op, body, dim, mask)))
                self.b.emit(Let(name, joined, label, dims=dims))
            ops = tuple(frame.ops)
            self.b.emit(TileLoop(dim, part.start, part.stop, part.kind, ops, part.note))
        self.around.pop()
        del self.b.stops[dim]
        return carried


def _mentions(value: Expr, array: str) -> bool:
    return any(isinstance(part, Name) and part.name == array for part in parts_of(value))


def _is_of_sizes(index: Index) -> bool:
    return isinstance(index, Int | Param | Arith | Neg | Extremum)
