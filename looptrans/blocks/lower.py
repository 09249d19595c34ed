"""From a derivation to kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import count

from looptrans.adjoint.rewriting.attaining import with_extrema_written
from looptrans.algebra.appending.append import Append, appends
from looptrans.blocks.block_ir.expr import Dim, Position, Role, dims_of
from looptrans.blocks.block_ir.ops import (
    MOST_DIMS,
    ElementLoop,
    Let,
    RowBlock,
    has_products,
    most_dims,
    ops_in,
    products_in,
)
from looptrans.blocks.block_ir.program import (
    BlockProgram,
    Filled,
    Kernel,
    NotLowered,
    Reach,
    Rounding,
)
from looptrans.blocks.fitting.configs import choices
from looptrans.blocks.kernel_arguments import arguments_of, constants_of, dims_in
from looptrans.blocks.lowering.builder import Builder
from looptrans.blocks.lowering.nest import Nest
from looptrans.blocks.passes.balance import grows
from looptrans.blocks.passes.behind import factors_behind
from looptrans.blocks.passes.conditions import in_one
from looptrans.blocks.passes.constants import met
from looptrans.blocks.passes.covered import is_covered
from looptrans.blocks.passes.described import with_described
from looptrans.blocks.passes.exponents import in_powers_of_two
from looptrans.blocks.passes.handed_on import notes_on_types
from looptrans.blocks.passes.integers import exact_integers
from looptrans.blocks.passes.late import with_late
from looptrans.blocks.passes.outside import outside
from looptrans.blocks.passes.quotients import bounded
from looptrans.blocks.passes.sharing import needed, shared
from looptrans.blocks.passes.unseen import asked_by_row
from looptrans.blocks.places.slices import sliced
from looptrans.blocks.places.stored import stored
from looptrans.blocks.places.whole_arrays import whole
from looptrans.blocks.scheduled.grid import grid_of, is_read, most_of, rows_of
from looptrans.blocks.scheduled.kernel_groups import finer, groups_of, with_loops_outside
from looptrans.blocks.scheduled.masked import with_guards
from looptrans.blocks.scheduled.reach import below, reached
from looptrans.blocks.scheduled.serial import OneRowEach, RunSerially
from looptrans.blocks.scheduled.sites import Path, sites
from looptrans.blocks.scheduled.tested_sums import notes_on_tests
from looptrans.blocks.scheduled.unit_steps import unit_steps
from looptrans.derivation.forms.scalar_form import RowsStay, scalar_form
from looptrans.derivation.step import Derivation
from looptrans.ir.creation import in_16_bits
from looptrans.ir.program import Array, Declaration, Loop, Node, Program
from looptrans.ir.value import Const, Create
from looptrans.ir.walk import assignments, live_out
from looptrans.transforms.editing.tree import node_at, statements_in


def lower(
    derivation: Derivation,
    *,
    rounded: Rounding | None = None,
    alone: frozenset[str] = frozenset(),
    one_each: bool = False,
) -> BlockProgram:
    """Lower a scheduled program to operations on blocks.

    Args:
        derivation: How the listing got its schedule, `derive(program, "fold")`.
        rounded: What is worked out in a kernel and rounded to 16 bits where it is multiplied with
            a block of 16-bit inputs, as backward passes do, unless it is a quotient by what may be
            close to 0. Else only what is known to be at most 1 is, since an fp16 number ends at
            65504.
        alone: Variables of loops of which a program does one iteration, never a block.
        one_each: Whether programs may do one row where rows differ in how often a loop runs that
            goes one iteration at a time.

    Raises:
        OneRowEach: They may not, and it is all that stands in the way.
        NotLowered: It cannot be run in blocks; the reason names the statement.
    """
    try:
        return _Lowering(derivation, rounded, alone, one_each).run()
    except NotLowered:
        other = _Lowering(derivation, rounded, alone, one_each, segments=True)
        if not other.slices:
            raise
        with suppress(NotLowered):
            return other.run()
        raise


def _without_rows(program: Program) -> Program:
    try:
        return scalar_form(program, "parallel")
    except RowsStay as error:
        raise NotLowered(error.reason, error.label) from None


class _Lowering:
    def __init__(
        self,
        derivation: Derivation,
        rounded: Rounding | None,
        alone: frozenset[str],
        one_each: bool,
        *,
        segments: bool = False,
    ) -> None:
        self.derivation = derivation
        self.rounded = rounded
        self.alone = alone
        self.one_each = one_each
        last, self.slices = sliced(derivation.last, segments=segments)
        written = with_extrema_written(last)
        flow = None if self.slices or written is not None else derivation.flow
        last = last if written is None else written.program
        self.facts = {_key(last, fact): fact for fact in appends(last, flow)}
        last = with_guards(unit_steps(_without_rows(last)), self._fact)
        self.program = replace(last, body=with_loops_outside(last.body))
        self.creations = {
            node.array: node.creation for node in self.program.body if isinstance(node, Declaration)
        }
        self.exact = frozenset(a.name for a in self.program.arrays if self._dtype(a) == "float32")
        self.short = in_16_bits(self.program)

    def _dtype(self, array: Array) -> str | None:
        """Return the element type that an array has, where it is not that of the inputs."""
        return self._asked(array) or ("float32" if self._is_handed(array) else None)

    def _asked(self, array: Array) -> str | None:
        """Return the element type that the listing gives to an array."""
        creation = self.creations.get(array.name)
        if creation is not None and creation.element is not None:
            return creation.element
        return array.stated

    def _is_handed(self, array: Array) -> bool:
        """Tell whether only kernels hand an array to each other: it is not rounded on the way."""
        is_own = array.role != "input" and array.name not in self.program.outputs
        return is_own and array.element == "float"

    def run(self) -> BlockProgram:
        work = [n for n in enumerate(self.program.body) if not isinstance(n[1], Declaration)]
        groups = groups_of(work)
        try:
            return self._run(groups)
        except NotLowered:
            by_loops = finer(groups)
            if by_loops == groups:
                raise
            # What loops hand to each other goes through memory, from one kernel to the next.
            with suppress(NotLowered):
                return self._run(by_loops)
            raise

    def _run(self, groups: list[list[tuple[int, Node]]]) -> BlockProgram:
        program = self.program
        kept_after: list[frozenset[str]] = []
        outputs = set(live_out(program))
        touched = [{s.array for _, n in g for s in sites((n,))} for g in groups]
        for number in range(len(groups)):
            later = set().union(*touched[number + 1 :]) if number + 1 < len(groups) else set()
            # What each iteration of a loop has for itself nobody looks at afterwards.
            own = {
                name
                for _, node in groups[number]
                if isinstance(node, Loop)
                for name in node.private
            }
            kept_after.append(frozenset((outputs | later) - own))
        kernels: list[Kernel] = []
        before: set[str] = set()
        for number, group in enumerate(groups):
            name = program.name.replace(".", "_") + "_kernel"
            if len(groups) > 1:
                name = self._name(group, {kernel.name for kernel in kernels})
            kernels.append(self._kernel(name, group, kept_after[number], frozenset(before)))
            before |= {s.array for _, n in group for s in sites((n,)) if s.is_write}
        made = self._made(kernels)
        in_float32 = {each.array for each in made if each.rounded}
        if not in_float32 <= self.exact:
            # Products that read them have operands of that type.
            self.exact |= in_float32
            return self._run(groups)
        last = self.derivation.last
        not_done = (note.removesuffix(".") for note in self.derivation.notes)
        notes = [*not_done, *_notes_on_loops(kernels), *notes_on_tests(last)]
        if self.rounded is None:
            # What a backward pass hands on has no line in the listing.
            created = {n.array for n in self.derivation.program.body if isinstance(n, Declaration)}
            handed = [a for a in program.arrays if a.name in created and self._is_handed(a)]
            notes += notes_on_types(kernels, [a.name for a in handed if not self._asked(a)])
        found = BlockProgram(
            self.derivation.program,
            last,
            tuple(kernel.with_float32(in_float32) for kernel in kernels),
            made,
            program.outputs,
            tuple(c.condition for c in program.contracts if not c.generators),
            tuple(step.name for step in self.derivation.steps),
            tuple(dict.fromkeys(notes)),
            self._of_arguments(reached),
            self._of_arguments(below),
        )
        return whole(found, self.slices, last.outputs)

    def _of_arguments(self, find: Callable[[Program], tuple[Reach, ...]]) -> tuple[Reach, ...]:
        """Return how far a nest goes; into tables that steps made, as far as into what was read."""
        made = [step for step in self.derivation.steps if step.kind == "tabulated"]
        tables = {a.name for s in made for a in s.after.arrays if a not in s.before.arrays}
        found = (*(reach for step in made for reach in find(step.before)), *find(self.program))
        return tuple(dict.fromkeys(reach for reach in found if reach[0] not in tables))

    def _name(self, group: list[tuple[int, Node]], taken: set[str]) -> str:
        """Return the name of one kernel of several: after the largest arrays that it writes."""
        program = self.program
        touched = {s.array for _, node in group for s in sites((node,)) if s.is_write}
        written = [a for a in program.arrays if a.name in touched]
        kept = [a for a in written if a.name in self.creations or a.role != "local"] or written
        rank = max((a.rank for a in kept), default=0)
        names = self._wholes([a.name for a in kept if a.rank == rank])
        name = "_".join([program.name.replace(".", "_"), *names, "kernel"])
        numbered = (name if number == 1 else f"{name}_{number}" for number in count(1))
        return next(each for each in numbered if each not in taken)

    def _wholes(self, names: list[str]) -> list[str]:
        """Return names with that of an array in the place of those of all its slices."""
        found: dict[str, None] = {}
        for name in names:
            part = self.slices.get(name)
            others = [n for n, o in self.slices.items() if part and o.array == part.array]
            is_whole = part is not None and set(others) <= set(names)
            found[part.array.name if part and is_whole else name] = None
        return list(found)

    # One kernel

    def _kernel(
        self,
        name: str,
        group: list[tuple[int, Node]],
        kept: frozenset[str],
        before: frozenset[str],
    ) -> Kernel:
        """Lower a nest; a row is a program of its own where its blocks have few dimensions then.

        Rows that read the same share it in a block, but a matrix product has no third row. Of
        several rows that may be left, those are that have most products. So it is where rows share
        a product that each iteration of a loop has for itself, and not what else is multiplied:

            Q[h, i, e] * R[i - j, e]   rows h, one i after the other
            Q[h, i, e] * K[h, j, e]    a product for rows i of one h
        """
        memory = kept, before
        kernel = self._formed(name, group, memory, self.alone)
        others = self._of_fewer_rows(name, group, memory, self.alone, kernel)
        if most_dims(kernel.body) <= MOST_DIMS:
            return max((kernel, *others), key=_products)
        return max(others, key=_products, default=kernel)

    def _of_fewer_rows(
        self,
        name: str,
        group: list[tuple[int, Node]],
        memory: tuple[frozenset[str], frozenset[str]],
        alone: frozenset[str],
        kernel: Kernel,
    ) -> Iterator[Kernel]:
        """Yield kernels with fewer rows where blocks have too many dimensions, or products few."""
        rows = [dim.name for dim in kernel.grid if dim.role == "rows"]
        if len(rows) < 2 or not (most_dims(kernel.body) > MOST_DIMS or _one_by_one(kernel)):
            return
        for row in rows:
            with suppress(NotLowered):
                other = self._formed(name, group, memory, alone | {row})
                if most_dims(other.body) <= MOST_DIMS:
                    yield other
                yield from self._of_fewer_rows(name, group, memory, alone | {row}, other)

    def _formed(
        self,
        name: str,
        group: list[tuple[int, Node]],
        memory: tuple[frozenset[str], frozenset[str]],
        alone: frozenset[str],
    ) -> Kernel:
        contracted: frozenset[tuple[str, Role]] = frozenset()
        serial: dict[Path, str] = {}
        for _ in range(20):
            try:
                kernel, seen = self._attempt(name, group, memory, contracted, serial, alone)
            except OneRowEach as error:
                if not self.one_each:
                    raise
                alone |= error.rows
                continue
            except RunSerially as error:
                serial[error.path] = error.reason
                continue
            if seen <= contracted:
                _require_room(kernel)
                return kernel
            contracted |= seen
        raise NotLowered("no form in blocks was reached")

    def _attempt(
        self,
        name: str,
        group: list[tuple[int, Node]],
        memory: tuple[frozenset[str], frozenset[str]],
        contracted: frozenset[tuple[str, Role]],
        serial: dict[Path, str],
        alone: frozenset[str],
    ) -> tuple[Kernel, set[tuple[str, Role]]]:
        program = self.program
        body = tuple(node for _, node in group)
        loops: tuple[Loop, ...] = ()
        path: Path = ()
        first = body[0] if len(body) == 1 else None
        if isinstance(first, Loop) and first.execution == "parallel" and first.range.step == 1:
            loops, path = grid_of(first, (0,), program)
        at = {loop.variable: (group[0][0], *path[1 : n + 1]) for n, loop in enumerate(loops)}
        inner = loops[-1].body if loops else body
        rows = rows_of(loops, alone) if loops else ()
        # Blocks of rows next to each other read the same: their programs run side by side.
        loops = tuple(sorted(loops, key=lambda loop: loop.variable in rows or is_read(loop)))
        statements = {n.label: n for n in assignments(body)}
        all_sites = sites(body)
        grid = [loop.variable for loop in loops]
        storage = stored(program, all_sites, at, statements, memory[0])
        b = Builder(
            program,
            storage,
            *memory,
            contracted=contracted,
            rounding=self.rounded,
            exact=self.exact,
            short=self.short,
        )
        dims: list[Dim] = []
        for loop in loops:
            role: Role = "rows" if loop.variable in rows or is_read(loop) else "program"
            most = most_of(loop, program) if is_read(loop) else None
            dims.append(b.dim(loop.variable, role, loop.range.start, loop.range.stop, most=most))
            b.places[loop.variable] = Position(dims[-1])
        row_dims = tuple(dim for dim in dims if dim.role == "rows")
        nest = Nest(b, self._fact, self.creations, row_dims, serial)
        with b.frame(grid) as frame:
            read = [(d, b.index(d.start), b.index(d.stop)) for d in dims if d.most is not None]
            first_ops = len(frame.ops)
            scopes: list[Path] = [path[:n] for n in range(len(path) + 1)] if loops else [()]
            with ExitStack() as stack:
                for scope in scopes:
                    stack.enter_context(nest.scope(scope))
                nest.body(inner, path)
        ops = tuple(frame.ops[first_ops:])
        for dim, start, stop in reversed(read):
            ops = (RowBlock(dim, start, stop, ops),)
        ops = asked_by_row((*frame.ops[:first_ops], *ops), b.name)
        logarithms = self.rounded.logarithms if self.rounded is not None else frozenset[str]()
        ops = in_powers_of_two(bounded(ops), b.name, logarithms)
        ops = factors_behind(b, met(ops))
        ops = exact_integers(needed(ops), b.lengths)
        ops = in_one(outside(b, shared(ops, b.name)))
        narrow, wide = choices(row_dims, ops, self.exact)
        arrays, scalars = arguments_of(program, ops, dims, self._dtype)
        seen = dims_in(ops) | set(dims)
        b.dims = [dim for dim in b.dims if dim in seen]
        fixed = {p.name for p in program.parameters if p.kind == "const"}
        used = [scalar.name for scalar in scalars if scalar.name in fixed]
        constants = tuple(dict.fromkeys((*constants_of(b.dims), *used)))
        grouped = len(row_dims) == 2 and has_products(ops)
        kernel = Kernel(
            name,
            tuple(dims),
            tuple(sorted(b.dims, key=lambda dim: dim.order)),
            arrays,
            scalars,
            constants,
            ops,
            narrow,
            wide,
            grouped,
            not grouped and grows(tuple(dims), ops),
            tuple(a.name for a in arrays if a.access in ("inout", "added")),
            frozenset(name for name, own in storage.items() if own.again),
        )
        return with_described(with_late(kernel)), b.seen_contracted

    def _fact(self, loop: Loop) -> Append | None:
        return self.facts.get((loop.variable, frozenset(statements_in((loop,)))))

    # The launcher

    def _made(self, kernels: list[Kernel]) -> tuple[Filled, ...]:
        found = []
        outputs = set(self.program.outputs)
        handed = {a.name for kernel in kernels for a in kernel.arrays}
        for array in self.program.arrays:
            if array.role == "input" or array.name not in handed | outputs:
                continue
            if any(extent is None for extent in array.shape):
                raise NotLowered(f"it is not known how large {array.name} is")
            creation = self.creations.get(array.name)
            shape = array.extents
            part = self.slices.get(array.name)
            covered = is_covered(array.name, shape, kernels) and (part is None or part.is_all)
            fill = None if covered else _fill(creation, array.name)
            dtype = self._dtype(array)
            # Added to by many programs, or read by another kernel: rounded once, at the end.
            rounded = dtype is None and array.element == "float" and _is_read(kernels, array.name)
            dtype = "float32" if rounded else dtype
            found.append(Filled(array.name, shape, fill, dtype, array.element, rounded))
        return tuple(found)


def _is_read(kernels: list[Kernel], name: str) -> bool:
    """Tell whether a kernel reads what an array holds, if only to add to it."""
    return any(a.name == name and a.access != "out" for k in kernels for a in k.arrays)


def _key(program: Program, fact: Append) -> tuple[str, frozenset[str]]:
    return fact.loop, frozenset(statements_in((node_at(program, fact.position),)))


def _fill(creation: Create | None, name: str) -> float | int | bool | None:
    if creation is None or creation.function == "empty":
        return 0.0
    if creation.function == "full":
        if isinstance(creation.fill, Const):
            return creation.fill.value
        raise NotLowered(f"{name} is filled with something that is no plain number")
    return 1.0 if creation.function == "ones" else 0.0


def _notes_on_loops(kernels: list[Kernel]) -> list[str]:
    """Return notes on the loops that kernels do not run in blocks."""
    return [
        f"the loop {op.dim.name} runs one iteration at a time in each program: {op.reason}"
        for kernel in kernels
        for op in ops_in(kernel.body)
        if isinstance(op, ElementLoop) and op.reason
    ]


def _products(kernel: Kernel) -> int:
    """Return how many matrix products a kernel has."""
    return sum(1 for _ in products_in(kernel.body))


def _one_by_one(kernel: Kernel) -> bool:
    """Tell whether a loop goes one by one for its products, beside blocks of rows that have none.

    That is, whether blocks of three dimensions are multiplied in it.
    """
    return any(
        isinstance(op, ElementLoop) and has_products(op.body) and most_dims(op.body) == MOST_DIMS
        for op in ops_in(kernel.body)
    )


def _require_room(kernel: Kernel) -> None:
    """Require that a name is a block over all that its value is a block over.

    Raises:
        NotLowered: It is none: what it holds would have to be kept for each of the iterations.
    """
    for op in ops_in(kernel.body):
        if not isinstance(op, Let) or not op.dims:
            continue
        missing = [dim.name for dim in dims_of(op.value) if dim not in op.dims]
        if missing:
            raise NotLowered(
                f"{op.name} would have to be kept for each of a block of iterations of "
                f"{missing[0]}, and a block of it has no room for that",
                next(iter(op.labels), None),
            )
