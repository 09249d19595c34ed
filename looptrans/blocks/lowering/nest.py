"""Lowering the loops and guards of one kernel, and what each iteration has for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from looptrans.algebra.appending.append import Append
from looptrans.blocks.block_ir.arithmetic import as_float, both
from looptrans.blocks.block_ir.expr import Dim, Expr, Name, Number, Position, Unary, dims_of, union
from looptrans.blocks.block_ir.expr import walk as parts_of
from looptrans.blocks.block_ir.ops import Branch, ElementLoop, Let, Store, TileLoop
from looptrans.blocks.block_ir.program import NotLowered
from looptrans.blocks.lowering.appending import Appending
from looptrans.blocks.lowering.builder import Builder
from looptrans.blocks.lowering.runs import parts
from looptrans.blocks.lowering.shapes import Shapes
from looptrans.blocks.lowering.statements import Statements
from looptrans.blocks.lowering.sums import Sums
from looptrans.blocks.lowering.values import Values
from looptrans.blocks.places.storage import Storage, sets_first
from looptrans.blocks.scheduled.grid import is_read
from looptrans.blocks.scheduled.lifting import lifted, narrowed
from looptrans.blocks.scheduled.ranges import bounds_of
from looptrans.blocks.scheduled.reach import reached
from looptrans.blocks.scheduled.serial import OneRowEach
from looptrans.blocks.scheduled.sites import Path
from looptrans.ir.condition import ALWAYS, Condition, is_of_indices
from looptrans.ir.index import opaque_terms
from looptrans.ir.program import Assign, Atomic, Declaration, If, Loop, Node
from looptrans.ir.value import Create
from looptrans.ir.walk import nodes as nodes_in
from looptrans.transforms.editing.tree import statements_in

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
        lifted: What guards still have to test, where part of them became bounds.
        around: The conditions on rows around what is being lowered.
    """

    b: Builder
    facts: Facts
    creations: dict[str, Create]
    rows: tuple[Dim, ...]
    serial: dict[Path, str]
    v: Values = field(init=False)
    shapes: Shapes = field(init=False)
    statements: Statements = field(init=False)
    lifted: dict[Path, Condition] = field(default_factory=dict)
    around: list[Condition] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shapes = Shapes(self.b, self.rows)
        sums = Sums(self.b, self.shapes)
        self.v = sums.v
        self.statements = Statements(self.b, self.shapes, sums)

    # Blocks

    def body(self, nodes: tuple[Node, ...], path: Path) -> None:
        """Lower a block."""
        scans = self.statements.appending[-1].scans if self.statements.appending else None
        for number, node in enumerate(nodes):
            here = (*path, number)
            if scans is not None:
                scans.ahead(here, nodes[number:])
            match node:
                case Assign():
                    self.statements.assign(node, here)
                case If():
                    self._if(node, here)
                case Loop():
                    self._loop(node, here)
                case Atomic():
                    self.statements.add(node, here)
                case Declaration():
                    pass
                case _:
                    raise NotLowered("block reductions and barriers have no blocks")
            if scans is not None:
                scans.behind(here)

    @contextmanager
    def scope(self, path: Path) -> Iterator[None]:
        """Begin what each iteration of a loop has for itself, and store it at the end."""
        own = [s for s in self.b.storage.values() if s.place == "register" and s.scope == path]
        for storage in own:
            self.statements.bases[storage.array] = len(self.b.guards)
            self.b.values.pop(storage.array, None)
            if not sets_first(storage):
                self._begin(storage)
        yield
        for storage in own:
            if storage.kept:
                self._store_block(storage)

    def _begin(self, storage: Storage) -> None:
        array = self.b.program.array(storage.array)
        dims = self.shapes.of(storage)
        value: Expr
        if array.role == "input" or array.name in self.b.before:
            with self.shapes.bound(storage):
                places = tuple(self.b.index(s) for s in storage.subscripts)
                with self.b.guarded(*self._held(storage, places)):
                    value = self.b.load(array.name, places, array.element)
                    value = as_float(value) if array.element == "float" else value
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
        with self.shapes.bound(storage):
            places = tuple(self.b.index(s) for s in storage.subscripts)
        mask = both(
            self.b.inside(union(*(dims_of(p) for p in places))),
            *self.b.guards[: self.statements.bases[storage.array]],
            *self._held(storage, places),
        )
        labels = tuple(dict.fromkeys(site.label for site in storage.sites if site.is_write))
        value = self.b.values.get(storage.array)
        assert value is not None
        if not set(dims_of(value)) <= set(union(*(dims_of(p) for p in places))):
            raise NotLowered(f"{labels[-1]}: {storage.array} would have one value for each row")
        self.b.emit(Store(storage.array, places, value, mask, labels[-1:]))

    def _held(self, storage: Storage, places: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Return that the cells of a block are there, where only guards or loops say so.

        What is asked of integers that are read may be the bound of a loop by now, which is empty;
        so may be the loop that alone touches `A[0]` of an array without elements.
        """
        looked_up = any(opaque_terms(index) for index in storage.subscripts)
        in_loops = any(
            array == storage.array and lengths and not isinstance(places[axis], Position)
            for array, axis, lengths, _ in reached(self.b.program)
        )
        if looked_up or in_loops or all(s.guards for s in storage.sites if s.is_write):
            return self.b.held(storage.array, places)
        return ()

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
        lanes = [
            self.shapes.lanes(home.variable, home.range.start, home.range.stop)
            for storage in self.b.storage.values()
            for place, home in storage.bound
            if storage.place == "register" and place == path
            if storage.scope[: len(path)] != path
        ]
        for dim in lanes:
            if self.b.beside(dim, node.variable) == dim:
                return dim
        if lanes:
            return self.b.beside(lanes[0], node.variable)
        if (
            self.shapes.around
            and node.range.step == 1
            and any(isinstance(n, Atomic) for n in node.body)
            and not is_read(node)
        ):
            # What is added to a row of memory is one block.
            return self.shapes.lanes(node.variable, node.range.start, node.range.stop)
        return None

    def _in_lanes(self, node: Loop, path: Path, dim: Dim) -> None:
        self.shapes.around.append((path, dim))
        with self.b.bound(node.variable, Position(dim)), self.scope(path):
            self._forget(path)
            self.body(node.body, path)
        self.shapes.around.pop()

    def _forget(self, loop: Path) -> None:
        """Let nothing look at what a block was before, which each iteration sets for itself."""
        for storage in self.b.storage.values():
            if storage.place == "register" and not storage.kept and storage.is_local_to(loop):
                self.b.values.pop(storage.array, None)

    def _elements(self, node: Loop, path: Path, reason: str) -> None:
        start, stop = self.b.index(node.range.start), self.b.index(node.range.stop)
        deciding = set(dims_of(start)) | set(dims_of(stop))
        if deciding:
            why = (
                f"{node.variable} runs one iteration at a time ({reason}), and how often depends "
                "on the row"
            )
            label = statements_in((node,))[0]
            if all(dim.role == "rows" and dim.most is None for dim in deciding):
                raise OneRowEach(frozenset(dim.name for dim in deciding), why, label)
            raise NotLowered(why, label)
        dim = self.b.dim(
            node.variable, "element", node.range.start, node.range.stop, node.range.step
        )
        self.shapes.around.append((path, dim))
        with (
            self.b.frame({dim.name}) as frame,
            self.b.bound(node.variable, Position(dim)),
            self.scope(path),
        ):
            self._forget(path)
            self.body(node.body, path)
        self.shapes.around.pop()
        self.b.emit(ElementLoop(dim, start, stop, tuple(frame.ops), reason))

    def _tiles(self, node: Loop, path: Path, fact: Append | None) -> None:
        pure = [
            s.array
            for s in self.b.storage.values()
            if s.place == "register" and s.is_written and s.is_local_to(path)
        ]
        # What is kept is set where a guard does not hold, too.
        passing = [name for name in pure if not self.b.storage[name].kept]
        ranges, guards = lifted(node.variable, bounds_of(node.range), node.body, passing)
        for guard in guards:
            self.lifted[(*path, *guard.path)] = guard.rest
        for condition in self.around:
            # Rows for which nothing is done visit nothing.
            ranges, _ = narrowed(node.variable, ranges, condition)
        bounds = ranges.common
        dim = self.b.dim(node.variable, "tile", bounds.start, bounds.stop)
        context: Appending | None = None
        if fact is None:
            self.shapes.free.add(path)
        else:
            context = Appending(self.b, self.v, fact, dim, path, node.body, frozenset(pure))
            context.outer = self.statements.appending[-1] if self.statements.appending else None
            context.enter()
            self.statements.appending.append(context)
        self.shapes.around.append((path, dim))
        with self._set_aside():
            for part in parts(self.b, dim, ranges):
                # Blocks of one kind know nothing of what the others set for themselves.
                for name in pure:
                    self.b.values.pop(name, None)
                self.b.stops[dim], self.b.loops[dim] = part.hull, path
                with (
                    self.b.frame({dim.name}) as frame,
                    self.b.bound(node.variable, Position(dim)),
                    self.b.masked(*part.masks),
                    self.scope(path),
                ):
                    if context is not None:
                        context.begin(part)
                    self.body(node.body, path)
                body = tuple(frame.ops)
                self.b.emit(TileLoop(dim, part.start, part.stop, part.kind, body, part.note))
        self.shapes.around.pop()
        del self.b.stops[dim], self.b.loops[dim]
        if context is not None:
            self.statements.appending.pop()
            context.leave()

    # Guards

    def _if(self, node: If, path: Path) -> None:
        tested = self.lifted.get(path, node.condition)
        if tested == ALWAYS:
            self.body(node.body, (*path, 1))
            return
        condition = self._settled(self.b.condition(tested, self.v.truth_of), node, path)
        if self._is_branch(node, condition):
            self._branch(node, path, condition)
            return
        of_rows = all(dim.role == "rows" for dim in dims_of(condition))
        own = [tested] if of_rows and is_of_indices(tested) else []
        self.around += own
        self.statements.tests.append((condition, tested))
        with self._set_aside(), self.b.guarded(condition):
            self.body(node.body, (*path, 1))
        self.statements.tests.pop()
        del self.around[len(self.around) - len(own) :]
        if node.orelse:
            with self.b.guarded(Unary("not", condition)):
                self.body(node.orelse, (*path, 2))

    def _is_branch(self, node: If, condition: Expr) -> bool:
        """Tell whether a guard is the same for all that a program does, and saves it loops."""
        return _has_only_loops(node) and not dims_of(condition)

    def _branch(self, node: If, path: Path, condition: Expr) -> None:
        """Go over loops only where a guard holds: what they carry is there before it."""
        with self._set_aside(), self.b.frame(conditional=True) as frame:
            self.body(node.body, (*path, 1))
        self.b.emit(Branch(condition, tuple(frame.ops)))

    @contextmanager
    def _set_aside(self) -> Iterator[None]:
        """Forget at the end what became known inside; what no longer holds is not brought back."""
        names, instead = dict(self.v.known), dict(self.v.instead)
        facts = {name: dict(known) for name, known in self.b.known.items()}
        yield
        for value in [v for v, known in self.v.known.items() if names.get(v) != known]:
            del self.v.known[value]
        for array in [a for a, name in self.v.instead.items() if instead.get(a) != name]:
            del self.v.instead[array]
        for name, known in list(self.b.known.items()):
            self.b.known[name] = {c: n for c, n in known.items() if facts.get(name, {}).get(c) == n}

    def _settled(self, condition: Expr, node: If, path: Path) -> Expr:
        """Give a condition a name where the statements it guards change what it looks at."""
        changed = {t.array for n in nodes_in((node,)) if isinstance(n, Assign) for t in n.targets}
        if not any(isinstance(part, Name) and part.name in changed for part in parts_of(condition)):
            return condition
        return self.b.named(self.b.name("holds", ("guard", path)), condition)


def _has_only_loops(node: If) -> bool:
    """Tell whether nothing stands under a guard but loops, maybe under guards of their own."""
    return not node.orelse and all(
        isinstance(each, Loop) or (isinstance(each, If) and _has_only_loops(each))
        for each in node.body
    )
