"""A kernel of the block IR as the text of a Triton kernel."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from looptrans.blocks.block_ir.expr import (
    Binary,
    Cast,
    Dim,
    Dot,
    Edge,
    Expr,
    Load,
    Number,
    Position,
    dims_of,
    kind_of,
    walk,
)
from looptrans.blocks.block_ir.ops import (
    Branch,
    ElementLoop,
    Let,
    Op,
    RowBlock,
    Store,
    TileLoop,
    exprs_of,
    ops_in,
)
from looptrans.blocks.block_ir.program import Kernel
from looptrans.blocks.fitting.footprint import Footprint, footprints
from looptrans.blocks.passes.described import (
    DESCRIBED,
    Described,
    described_loads,
    has_described,
    is_fixed,
)
from looptrans.blocks.passes.flipped import flipped
from looptrans.blocks.passes.late import has_late, late_body
from looptrans.blocks.passes.overwritten import overwritten
from looptrans.emit.arguments import Argument, BlockSize, decorator
from looptrans.emit.begun import BEGUN, hidden_zeros, size_of
from looptrans.emit.beside import loaded_behind
from looptrans.emit.both_ends import both_ends
from looptrans.emit.expressions import SUM, Expressions
from looptrans.emit.first_blocks import counts_wide, first_blocks, worked_out
from looptrans.emit.grid import Demand, block_number, decoded, lanes
from looptrans.emit.head import arguments_of, declared, docstring, grouped, side_names
from looptrans.emit.layout import INDENT, filled, fits, heading, statement
from looptrans.emit.widths import Widths, accesses_of

# Threads that share an element each load it, and one of them stores: the others may be late.
LOADED_BEFORE = "all threads have loaded"
STORED_BEFORE = "all threads have stored"
COUNTED = "counted in 64 bits, or ptxas lets each product wait"

_TYPES = {"float": "tl.float32", "bool": "tl.int1"}


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel as text.

    Attributes:
        name: Its name.
        arguments: Its arguments, in order.
        lines: Its definition, `@triton.jit` included.
        helpers: The functions it calls that the module has to define.
        identifiers: Every identifier that is taken in it.
        roles: The grids its programs are numbered over one after another, each with what the
            kernel calls its sizes of blocks.
        footprints: What its loops with matrix products need, each size of a block as the kernel
            calls it.
        described: The pointers to arrays whose blocks the GPU may copy by itself.
    """

    name: str
    arguments: tuple[Argument, ...]
    lines: tuple[str, ...]
    helpers: frozenset[str]
    identifiers: frozenset[str]
    roles: tuple[tuple[tuple[Dim, ...], Mapping[str, str]], ...]
    footprints: tuple[Footprint, ...] = ()
    described: tuple[str, ...] = ()


def kernel_text(
    kernel: Kernel,
    name: str,
    optional: frozenset[str] = frozenset(),
    *,
    is_role: bool = False,
) -> KernelText:
    """Return a kernel as text.

    Args:
        kernel: The kernel.
        name: What it is called in the module.
        optional: Arrays it only writes whose pointer may be None: they are then not stored, and
            Triton drops what was worked out for them alone.
        is_role: Whether it is called by another kernel, which hands it the number of its program.

    Raises:
        ValueError: The kernel is not one that the block IR allows.
    """
    writer = _Writer(kernel, optional, is_role)
    body = writer.body()
    arguments = arguments_of(kernel, writer.expr)
    lines = [
        decorator(arguments),
        f"def {name}(",
        *([f"{INDENT}program,"] if is_role else []),
        *(line for group in grouped(arguments) for line in filled(declared(group), 1)),
        "):",
        *docstring(kernel, writer.expr),
        *body,
    ]
    used = writer.expr.used
    taken = frozenset(writer.expr.scope.taken)
    blocks = {a.block: a.name for a in arguments if isinstance(a, BlockSize)}
    roles = ((kernel.grid, blocks),)
    return KernelText(
        name,
        arguments,
        tuple(lines),
        frozenset(used.helpers),
        taken,
        roles,
        tuple(each.renamed(side_names(arguments)) for each in footprints(kernel)),
        tuple(dict.fromkeys(writer.expr.pointer(d.array) for d in writer.described.values())),
    )


@dataclass(slots=True)
class _Writer:
    """Writes one kernel."""

    kernel: Kernel
    optional: frozenset[str] = frozenset()
    is_role: bool = False
    expr: Expressions = field(init=False)
    text_body: tuple[Op, ...] = field(init=False)
    ops: tuple[Op, ...] = field(init=False)
    counts: Counter[str] = field(init=False)
    widths: Widths = field(init=False)
    loaded: frozenset[str] = field(init=False)
    overwritten: frozenset[str] = field(init=False)
    hidden: tuple[str, ...] = field(init=False)
    described: dict[int, Described] = field(init=False)
    told: set[Described] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.expr = Expressions(self.kernel)
        if self.is_role:
            self.expr.scope.name("word", "program", wanted="program")
        body = both_ends(self.kernel.body)
        if has_late(self.kernel):
            body = late_body(replace(self.kernel, body=body)) or body
        self.text_body = loaded_behind(body)
        self.ops = tuple(ops_in(self.text_body))
        self.counts = Counter(op.name for op in self.ops if isinstance(op, Let))
        nodes = (node for op in self.ops for expr in exprs_of(op) for node in walk(expr))
        self.loaded = frozenset(node.array for node in nodes if isinstance(node, Load))
        self.overwritten = overwritten(self.text_body)
        self.hidden = hidden_zeros(self.ops)
        self.expr.flipped = flipped(self.ops)
        copied = described_loads(self.kernel, self.text_body) if has_described(self.kernel) else ()
        self.described = {id(let): found for let, _, found in copied}
        self.expr.widths = self.widths = Widths.of(self.text_body)
        self._choose_names()

    # What is decided before anything is written.

    def _choose_names(self) -> None:
        """Give names in the order of appearance, those of the listing before those made of them."""
        scope = self.expr.scope
        for scalar in self.kernel.scalars:
            scope.name("scalar", scalar.name, wanted=scalar.name)
        for dim in self.kernel.dims:
            self.expr.dim(dim)
        for op in (*ops_in(self.kernel.body), *self.ops):
            if isinstance(op, Let):
                scope.name("name", op.name, wanted=op.name)
            for array, subscripts in accesses_of(op):
                for axis, subscript in enumerate(subscripts):
                    self.expr.name_axis(array, axis, subscript)
        for dim in self.kernel.dims:
            if dim.block is not None:
                scope.name("block", dim.block, wanted=dim.block)
        for argument in self.kernel.arrays:
            scope.name("array", argument.name, wanted=f"{argument.name}_ptr")

    def _hoisted(self) -> dict[str, dict[int, Expr]]:
        """Return the subscripts that are the same at every access, and fixed for a program.

        Their part of the offset is added to the pointer once. An array that has no other
        subscripts is a number to the program, and is left as it is.
        """
        found: dict[str, dict[int, Expr]] = {}
        varying: set[str] = set()
        for op in self.ops:
            for array, subscripts in accesses_of(op):
                fixed = {axis: s for axis, s in enumerate(subscripts) if is_fixed(s)}
                known = found.setdefault(array, fixed)
                found[array] = {axis: s for axis, s in known.items() if fixed.get(axis) == s}
                if any(dims_of(subscript) for subscript in subscripts):
                    varying.add(array)
        return {
            array.name: {axis: s for axis, s in found[array.name].items() if s != Number(0)}
            for array in self.kernel.arrays
            if array.name in varying
        }

    # The text.

    def body(self) -> list[str]:
        """Return what stands below the docstring."""
        hoisted = self._hoisted()
        self.expr.hoisted = {array: frozenset(axes) for array, axes in hoisted.items()}
        body = self._ops(self.text_body, 1)
        exprs = tuple(expr for op in self.ops for expr in exprs_of(op))
        nodes = [node for expr in exprs for node in walk(expr)]
        edges = {(node.dim, node.which) for node in nodes if isinstance(node, Edge)}
        edges |= {(d, "first") for found in self.described.values() for d in found.dims}
        need = Demand(
            frozenset(node.dim for node in nodes if isinstance(node, Position)),
            frozenset(dim for dim, which in edges if which == "first"),
            frozenset(dim for dim, which in edges if which == "last"),
        )
        masked = self.expr.lane_masks(exprs)
        program = "program" if self.is_role else "tl.program_id(0)"
        start = decoded(self.kernel, need, self.expr, program)
        for dim in self.kernel.dims:
            if dim.role == "lanes" and dim in need.positions:
                start += lanes(dim, dim in masked, self.expr)
        moved = [
            line for array, subscripts in hoisted.items() for line in self._moved(array, subscripts)
        ]
        lines = [line for text in start for line in statement(text, 1)]
        if moved:
            lines += heading("What is the same throughout the program goes into the pointers.", 1)
            lines += moved
        return [*lines, "", *body] if lines else body

    def _moved(self, array: str, subscripts: dict[int, Expr]) -> list[str]:
        """Return the statements that move a pointer by the subscripts that do not change."""
        pointer = self.expr.pointer(array)
        lines = []
        for axis, subscript in subscripts.items():
            text = f"{pointer} += {self.expr.offset(array, axis, subscript, ())}"
            lines += statement(text, 1 + (array in self.optional))
        is_guarded = array in self.optional and lines
        return [*statement(f"if {pointer} is not None:", 1), *lines] if is_guarded else lines

    def _ops(self, ops: tuple[Op, ...], depth: int) -> list[str]:
        lines: list[str] = []
        waiting = True  # whether threads may be behind that load or store what is stored next
        # What was stored since threads last waited, and may be stored again.
        behind = set(self.kernel.again) if depth > 1 else set[str]()
        outside, told = dict(self.expr.at), set(self.told)
        for number, op in enumerate(ops):
            if isinstance(op, TileLoop) and op.body:
                lines += self._first_blocks(ops[number:], depth)
            if isinstance(op, TileLoop | ElementLoop) and op.body:
                lines += self._descriptions(ops[number:], depth)
            match op:
                case Let():
                    waiting = True
                    lines += self._set(op, depth)
                case Store(array, subscripts, value, mask, labels, note, folded):
                    text = self.expr.store(array, subscripts, value, mask, folded)
                    is_guarded = array in self.optional
                    is_touched = array in self.loaded | self.overwritten
                    if (is_touched and waiting) or array in behind:
                        why = LOADED_BEFORE if array in self.loaded else STORED_BEFORE
                        lines += statement("tl.debug_barrier()", depth, why)
                        behind.clear()
                    waiting = waiting and not is_touched
                    behind |= self.kernel.again & {array}
                    if is_guarded:
                        pointer = self.expr.pointer(array)
                        lines += statement(f"if {pointer} is not None:", depth)
                    lines += self._labelled(text, labels, note, depth + is_guarded)
                case TileLoop() | ElementLoop() | Branch() | RowBlock() if op.body:
                    waiting = True
                    lines += self._block(op, depth)
                    behind |= self.kernel.again
                case _:
                    pass
        self.expr.at, self.told = outside, told
        return lines

    def _set(self, op: Let, depth: int) -> list[str]:
        """Return the statement that sets a value; two where the GPU may copy what is loaded."""
        hidden = self._hidden(op)
        text = hidden or self._let(op)
        note = BEGUN if hidden and not op.note else op.note
        found = self.described.get(id(op))
        if found is None:
            return self._labelled(text, op.labels, note, depth)
        own = dims_of(op.value)
        copied = self.expr.copied(found, own[::-1] if op.name in self.expr.flipped else own)
        name = self.expr.scope.name("name", op.name, wanted=op.name)
        return [
            *statement(f"if {self.expr.block(DESCRIBED)}:", depth),
            *self._labelled(f"{name} = {copied}", op.labels, note, depth + 1),
            *statement("else:", depth),
            *self._labelled(text, op.labels, note, depth + 1),
        ]

    def _descriptions(self, ops: tuple[Op, ...], depth: int) -> list[str]:
        """Return what tells the GPU of the arrays whose blocks it may copy in loops by itself."""
        inside = [self.described.get(id(op)) for op in ops_in(ops)]
        made = [each for each in dict.fromkeys(inside) if each and each not in self.told]
        if not made:
            return []
        self.told |= set(made)
        lines = heading("Blocks that the GPU copies by itself.", depth)
        lines += statement(f"if {self.expr.block(DESCRIBED)}:", depth)
        for found in made:
            text = f"{self.expr.blocks_of(found)} = {self.expr.description(found)}"
            lines += statement(text, depth + 1)
        return lines

    def _first_blocks(self, ops: tuple[Op, ...], depth: int) -> list[str]:
        """Return what points to the first blocks of loops, as far as nothing does yet."""
        made = [
            found
            for found in first_blocks(ops, self.expr.flipped)
            if found.key not in self.expr.at and found.array not in self.optional
        ]
        if not made:
            return []
        lines = heading("What is read as it would be in a block that begins at 0.", depth)
        for dim in dict.fromkeys(found.dim for found in made):
            block = f"tl.arange(0, {self.expr.block(dim.block or '')})"
            text = f"{self.expr.begun(dim)} = {block}.to({self.expr.index_type()})"
            lines += statement(text, depth)
        for found in {found.key: found for found in made}.values():
            text = f"{self.expr.first_block(found)} = {self.expr.first_block_address(found)}"
            lines += statement(text, depth)
            self.expr.at[found.key] = found
        return lines

    def _block(self, op: TileLoop | ElementLoop | Branch | RowBlock, depth: int) -> list[str]:
        match op:
            case TileLoop():
                return self._tile_loop(op, depth)
            case ElementLoop(dim, start, stop, body, reason):
                low = self.expr.show(start)
                if _is_index(dim, body):
                    low = f"tl.cast({low}, {self.expr.index_type()})"
                bounds = f"{low}, {self.expr.show(stop)}" + (f", {dim.step}" * (dim.step != 1))
                lines = heading(self._sentence(reason), depth) if reason else []
                loop = f"range({bounds})"
                if _has_products(body):
                    # What each block's loads are worked out from would fill the registers.
                    loop = f"tl.range({bounds}, disable_licm=True)"
                lines += statement(f"for {self.expr.dim(dim)} in {loop}:", depth)
                return lines + self._ops(body, depth + 1)
            case Branch(condition, body, otherwise):
                lines = statement(f"if {self.expr.show(condition)}:", depth)
                lines += self._ops(body, depth + 1)
                if otherwise:
                    lines += [f"{INDENT * depth}else:", *self._ops(otherwise, depth + 1)]
                return lines
            case RowBlock(dim, _, stop, body):
                lines = self._rows(op, depth)
                first = self.expr.first(dim)
                lines += statement(f"if {first} < {self.expr.show(stop)}:", depth)
                return lines + self._ops(body, depth + 1)

    def _tile_loop(self, loop: TileLoop, depth: int) -> list[str]:
        dim, stop, pause = loop.dim, loop.stop, loop.pause
        left_out = Number(0) if pause is None else Binary("-", pause[1], pause[0])
        if pause is not None:
            stop = Binary("-", stop, left_out)
        ends = [self.expr.show(loop.start), self.expr.show(stop)]
        is_counted = counts_wide(loop)
        if is_counted:
            ends = [e if e.isdigit() else f"tl.cast({e}, tl.int64)" for e in ends]
            self.expr.counted.add(dim)
        first = self.expr.first(dim)
        name = self.expr.count(dim) if is_counted or pause is not None else first
        lines = heading(self._sentence(loop.note), depth) if loop.note else []
        block = self.expr.block(dim.block or "")
        lines += statement(f"for {name} in range({', '.join(ends)}, {block}):", depth)
        begin = name
        if pause is not None:
            before = f"{name} < {self.expr.show(pause[0])}"
            begin = f"{name} + tl.where({before}, 0, {self.expr.show(left_out)})"
        if is_counted:
            begin = f"tl.cast({begin}, {self.expr.index_type()})"
        if begin != first:
            lines += statement(f"{first} = {begin}", depth + 1, COUNTED if is_counted else "")
        lines += self._tile(loop, depth + 1)
        lines += self._ops(loop.body, depth + 1)
        self.expr.counted.discard(dim)
        return lines

    def _tile(self, loop: TileLoop, depth: int) -> list[str]:
        """Return what is worked out of the first iteration of a block, where it is mentioned."""
        dim = loop.dim
        exprs = [expr for op in ops_in(loop.body) for expr in exprs_of(op)]
        nodes = [node for expr in exprs for node in worked_out(expr, self.expr.at)]
        first, block = self.expr.first(dim), self.expr.block(dim.block or "")
        lines = []
        if Edge(dim, "last") in nodes:
            stop = self.expr.show(self.expr.from_index(dim.stop))
            last = self.expr.last(dim)
            lines += statement(f"{last} = tl.minimum({first} + {block}, {stop}) - 1", depth)
        if Position(dim) in nodes:
            value = f"{first} + tl.arange(0, {block})"
            if dim not in self.expr.counted:
                value = f"({value}).to({self.expr.index_type()})"
            lines += statement(f"{self.expr.dim(dim)} = {value}", depth)
        return lines

    def _rows(self, rows: RowBlock, depth: int) -> list[str]:
        """Return what is worked out of the first row of a program's block."""
        dim = rows.dim
        nodes = [n for op in ops_in(rows.body) for e in exprs_of(op) for n in walk(e)]
        first, block = self.expr.first(dim), self.expr.block(dim.block or "")
        value = f"{block_number(dim, self.expr)} * {block}"
        if rows.start != Number(0):
            kind = self.expr.index_type()
            value = f"({self.expr.show(rows.start, needed=SUM)} + {value}).to({kind})"
        lines = statement(f"{first} = {value}", depth)
        if Edge(dim, "last") in nodes:
            stop = self.expr.show(rows.stop)
            last = self.expr.last(dim)
            lines += statement(f"{last} = tl.minimum({first} + {block}, {stop}) - 1", depth)
        if Position(dim) in nodes:
            value = f"{first} + tl.arange(0, {block})"
            lines += statement(f"{self.expr.dim(dim)} = {value}", depth)
        return lines

    def _let(self, let: Let) -> str:
        name = self.expr.scope.name("name", let.name, wanted=let.name)
        value, own = let.value, dims_of(let.value)
        dims = let.dims or own
        kind = kind_of(value)
        if isinstance(value, Number) or (dims and not own):
            is_long = let.name in self.widths.long
            if kind == "int" and not is_long:
                self.widths.wide.add(let.name)
            if kind == "int":
                element = "tl.int64" if is_long else self.expr.index_type()
            else:
                element = _TYPES[kind]
            if isinstance(value, Cast) and value.like is not None:
                element = f"{self.expr.pointer(value.like)}.dtype.element_ty"
                value = value.operand
            shape = self.expr.shape(dims)
            self.expr.tensors.add(let.name)
            if isinstance(value, Cast) and value.like is None and kind == "float":
                value = value.operand  # `tl.full` converts to its own type
            if isinstance(value, Number) and dims and _is_zero(value):
                return f"{name} = tl.zeros({shape}, {element})"
            if kind == "bool" and not isinstance(value, Number):
                # The interpreter's blocks of one truth value are integers.
                return f"{name} = tl.full({shape}, {self.expr.show(value)}, tl.int8) != 0"
            return f"{name} = tl.full({shape}, {self.expr.show(value)}, {element})"
        if isinstance(value, Load) and let.name in self.expr.flipped:
            return f"{name} = {self.expr.flipped_load(value)}"
        if self.expr.is_tensor(value):
            self.expr.tensors.add(let.name)
        text = self.expr.show(value, dims)
        if own != dims:
            text = f"tl.broadcast_to({text}, {self.expr.shape(dims)})"
        if let.name in self.widths.long:
            if not self.widths.is_long(value):
                text = f"tl.cast({text}, tl.int64)"
        elif kind == "int" and self.widths.is_wide(value):
            self.widths.wide.add(let.name)
        elif kind == "int" and self.counts[let.name] > 1 and let.name in self.widths.places:
            # It stays as wide as it is at first.
            self.widths.wide.add(let.name)
            text = f"tl.cast({text}, {self.expr.index_type()})"
        return f"{name} = {text}"

    def _hidden(self, let: Let) -> str:
        """Return zeros that are no constants to a compiler, where a sum begins with them."""
        is_begun = isinstance(let.value, Number) and _is_zero(let.value)
        size = size_of(let, self.kernel) if is_begun and let.name in self.hidden else None
        if size is None:
            return ""
        self.expr.used.helpers.add("_hidden_zeros")
        self.expr.tensors.add(let.name)
        sides = ", ".join(self.expr.block(dim.block or "") for dim in let.dims)
        name = self.expr.scope.name("name", let.name, wanted=let.name)
        number = self.hidden.index(let.name)
        return f"{name} = _hidden_zeros({sides}, {number}, {self.expr.scalar(size)})"

    def _labelled(self, text: str, labels: Sequence[str], note: str, depth: int) -> list[str]:
        """Return a statement with the labels of the listing's statements it comes from."""
        label = ", ".join(labels)
        comment = ": ".join(part for part in (label, note) if part)
        if not comment:
            return statement(text, depth)
        if fits(text, depth, len(comment) + 4):
            return statement(text, depth, comment)
        if note:
            return heading(comment, depth) + statement(text, depth)
        return statement(text, depth, comment)

    def _sentence(self, text: str) -> str:
        """Return a note as a sentence; a name at its beginning stays as it is."""
        first = text.split(" ", 1)[0]
        if first.isalpha() and len(first) > 1 and first not in self.expr.scope.taken:
            text = text[0].upper() + text[1:]
        return text if text.endswith((".", ":")) else f"{text}."


def _has_products(body: tuple[Op, ...]) -> bool:
    """Tell whether loops over blocks inside have matrix products."""
    loops = [op for op in ops_in(body) if isinstance(op, TileLoop)]
    inner = [e for loop in loops for op in ops_in(loop.body) for e in exprs_of(op)]
    return any(isinstance(part, Dot) for expr in inner for part in walk(expr))


def _is_index(dim: Dim, body: tuple[Op, ...]) -> bool:
    """Tell whether iterations of a loop become part of an offset."""
    exprs = [s for op in ops_in(body) for _, subscripts in accesses_of(op) for s in subscripts]
    exprs += [op.value for op in ops_in(body) if isinstance(op, Let) and kind_of(op.value) == "int"]
    return any(Position(dim) in list(walk(expr)) for expr in exprs)


def _is_zero(value: Number) -> bool:
    return value.value == 0 and math.copysign(1, value.value) > 0
