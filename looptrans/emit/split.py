"""From a listing to a module that computes a loop in parts where its rows alone are few.

`NAME(*arguments)` runs the kernels without parts, `NAME_split(*arguments, parts=None)` those with;
by default there are as many parts as keep a GPU busy, and where that is one it calls `NAME`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from looptrans.blocks.block_ir.expr import Binary, Dim, Expr, Load, Number, Position, Scalar
from looptrans.blocks.block_ir.expr import walk as walk_expr
from looptrans.blocks.block_ir.ops import exprs_of, has_products, ops_in
from looptrans.blocks.block_ir.program import BlockProgram, Kernel, NotLowered
from looptrans.blocks.parts import InParts, lower_in_parts
from looptrans.derivation.derive import InTwoNests, derive_two_nests
from looptrans.derivation.step import NotDone
from looptrans.emit.checks import Checks
from looptrans.emit.facts import Facts
from looptrans.emit.header import split_header
from looptrans.emit.identifiers import MODULE_WORDS, Scope, identifier, in_ascii
from looptrans.emit.launcher import Launcher, Option, title_of
from looptrans.emit.launches import Launches
from looptrans.emit.layout import INDENT, statement, words
from looptrans.emit.listing import lowered
from looptrans.emit.module import Part, written
from looptrans.emit.python_text import index_python
from looptrans.emit.refusal import NotInParts, Refused
from looptrans.ir.affine import difference, extremum, multiplied, sides
from looptrans.ir.index import Arith, Index, Int, Opaque, Param, children, rebuild, variables
from looptrans.ir.program import Program
from looptrans.ir.value import Range
from looptrans.transforms.editing.extents import extreme
from looptrans.transforms.rows.segments import rows_of, segments_of
from looptrans.version import __version__

# How many blocks of the loop a part has at least.
LEAST_BLOCKS = 4
# How many programs run side by side on a multiprocessor: of matrix products, whose blocks fill
# its memory; of others, in warps.
PRODUCTS = 2
WARPS = 32


@dataclass(frozen=True, slots=True)
class EmittedSplit:
    """A listing as a module with a loop in parts.

    Attributes:
        name: What its file is called, without `.py`.
        launcher: What chooses the number of parts.
        plain: What runs the kernels without parts.
        text: The module.
        blocks: What was printed for the kernels without parts.
        parts: What was printed for those with.
        kernels: What the module calls them: those without parts, then those with.
        loop: The variable of the loop.
    """

    name: str
    launcher: str
    plain: str
    text: str
    blocks: BlockProgram
    parts: BlockProgram
    kernels: tuple[str, ...]
    loop: str


def emitted_split(program: Program) -> EmittedSplit:
    """Return the module of a listing with a loop in parts.

    Raises:
        Refused: It cannot be run in blocks, or no loop of it in parts; the message says why.
    """
    plain = lowered(program)
    try:
        found = derive_two_nests(program)
    except NotDone as error:
        raise Refused(NotInParts(_reason(error)), program, program) from None
    try:
        in_parts = lower_in_parts(found)
    except NotLowered as error:
        reason = NotInParts(error.reason, error.label)
        raise Refused(reason, program, found.derivation.last) from None
    return _module(found, plain, in_parts)


def _reason(error: NotDone) -> str:
    return f"no loop of it can be computed in parts: {error.reason}"


def _module(found: InTwoNests, plain: BlockProgram, in_parts: InParts) -> EmittedSplit:
    name = identifier(plain.listing.name)
    scope = Scope(MODULE_WORDS)
    launchers = (
        scope.name("launcher", wanted=plain.listing.name),
        scope.name("launcher", "split", wanted=f"{name}_split"),
    )
    programs = (plain, in_parts.program)
    kernels = [
        [scope.name("kernel", number, k.name, wanted=in_ascii(k.name)) for k in each.kernels]
        for number, each in zip(("plain", "parts"), programs, strict=True)
    ]
    loop = found.nests.loop
    title = f"{title_of(plain.listing)} The loop {loop} is computed in parts."
    parts = [
        Part(plain, launchers[0], kernels[0], scope),
        Part(in_parts.program, launchers[1], kernels[1], scope, title=title),
    ]
    split = SplitLauncher(parts[1].facts, in_parts, parts[0].facts, loop)
    below = [Launcher(parts[0].facts).lines(), split.choice(), split.lines()]
    head = split_header(plain, in_parts.program, __version__)
    return EmittedSplit(
        f"{name}_split",
        launchers[1],
        launchers[0],
        written(head, parts, below, ["_processors"]),
        plain,
        in_parts.program,
        (*kernels[0], *kernels[1]),
        loop,
    )


@dataclass(frozen=True, slots=True)
class SplitLauncher(Launcher):
    """Writes the launcher of a program with a loop in parts.

    Attributes:
        in_parts: The program.
        without: The program without parts.
        variable: The variable of the loop.
    """

    in_parts: InParts
    without: Facts
    variable: str

    def __post_init__(self) -> None:
        scope = self.facts.scope
        wanted = self.in_parts.parts
        self.facts.names[wanted] = scope.name("value", wanted, wanted=wanted)

    @property
    def parts(self) -> str:
        """What the launcher calls the number of parts."""
        return self.facts.names[self.in_parts.parts]

    @property
    def kernel(self) -> Kernel:
        """The kernel of parts."""
        return self.in_parts.program.kernels[self.in_parts.partial]

    def options(self) -> list[Option]:
        """Return the number of parts as an argument."""
        text = (
            f"Into how many parts {self.variable} is cut, at least 1; by default as many as keep "
            "the GPU busy, see `_parts`."
        )
        found = [Option(self.parts, "None", text)]
        if self.plain_is_tuned and not any(c.tuned for c in self.facts.configurations):
            text = (
                "Whether a GPU tries several block sizes where there is one part; else the default."
            )
            found.append(Option("tune", "True", text))
        return found

    @property
    def plain_is_tuned(self) -> bool:
        """Whether the launcher without parts can try several block sizes."""
        return any(c.tuned for c in self.without.configurations)

    def lines(self) -> list[str]:
        """Return the definition of the launcher."""
        chosen = [
            f"{INDENT}if {self.parts} is None:",
            *statement(f"{self.parts} = {self._chosen()}", 2),
            *statement(self.facts.call("_check_size", '"parts"', self.parts, "1"), 1),
            f"{INDENT}if {self.parts} == 1:",
            *statement(f"return {self.without.name}({', '.join(self._handed())})", 2),
        ]
        body = [*Checks(self.facts).lines(), *chosen, *Launches(self.facts).lines()]
        return [*self.head(), *body]

    def choice(self) -> list[str]:
        """Return the definition of the function that chooses the number of parts."""
        least = self._least()
        together = self._together()
        text = (
            f"As many as there is room for side by side, {together} programs on each of the "
            f"`processors` of the GPU, where there are `programs` without parts; and each with at "
            f"least {least} of the `length` iterations. So 1 where the programs fill the GPU."
        )
        return [
            "def _parts(programs, length, processors):",
            f'{INDENT}"""Return into how many parts the loop {self.variable} is cut.',
            "",
            *(INDENT + line for line in words(text, 96)),
            f'{INDENT}"""',
            f"{INDENT}room = {together} * processors // max(programs, 1)",
            f"{INDENT}return max(1, min(room, length // {least}))",
        ]

    def _least(self) -> int:
        block = self.in_parts.loop.block
        return LEAST_BLOCKS * (1 if block is None else self.kernel.narrow.default.blocks[block])

    def _together(self) -> int:
        if has_products(self.kernel.body):
            return PRODUCTS
        return max(1, WARPS // self.kernel.narrow.default.warps)

    def _chosen(self) -> str:
        processors = self.facts.call("_processors", self.facts.device())
        return f"_parts({self._programs()}, {self._length()}, {processors})"

    def _programs(self) -> str:
        """Return how many programs with rows there are for one part, as Python.

        Of packed rows, each of one sequence, there are programs for as many as one may have; those
        that do something are no more than all rows need, and one for each sequence.
        """
        grid = [dim for dim in self.kernel.grid if dim != self.in_parts.part]
        known = segments_of(self.facts.program.listing)
        more: dict[str, Dim] = {}
        for dim in grid:
            rows = None if dim.most is None else rows_of(Range(dim.start, dim.stop), known)
            if rows is not None:
                more[dim.name] = next(each for each in grid if each.name == rows.sequence)
        counts = []
        for dim in grid:
            if dim in more.values():
                continue
            size = index_python(dim.extent, self.facts.names)
            is_sum = " " in size
            if dim.role == "rows":
                block = self.kernel.narrow.default.blocks[dim.block or ""]
                size, is_sum = f"triton.cdiv({size}, {block})", dim.name in more
            if dim.name in more:
                size += f" + {index_python(more[dim.name].extent, self.facts.names)}"
            counts.append(f"({size})" if is_sum else size)
        return " * ".join(counts) or "1"

    def _length(self) -> str:
        """Return how many iterations the loop has at most, as Python."""
        found = length_of(self.in_parts, self.facts.program.listing)
        if found is None:
            return "2**31"
        return index_python(found, self.facts.names)

    def _handed(self) -> Iterator[str]:
        """Yield the arguments of the launcher without parts."""
        for part in Launcher(self.without).signature():
            name = part.partition("=")[0]
            if name == "*":
                continue
            yield name if part == name else f"{name}={name}"


def length_of(in_parts: InParts, listing: Program) -> Index | None:
    """Return how many iterations the loop in parts has at most, over sizes alone.

    It need not be exact: it serves to choose the number of parts. Where the bounds do not tell, an
    array does that the loop goes along.

    Args:
        in_parts: The kernels.
        listing: The listing, whose integer arrays may have declared ranges.
    """
    kernel, loop = in_parts.program.kernels[in_parts.partial], in_parts.loop
    ranges = {dim.name: Range(dim.start, dim.stop) for dim in kernel.grid}
    found = []
    for upper in sides("min", loop.stop):
        for lower in sides("max", loop.start):
            apart = difference(_widest(upper, listing, 1), _widest(lower, listing, 0))
            most = extreme(apart, ranges, "highest")
            if most is not None:
                found.append(most)
    if not found:
        found = _along(kernel, loop)[:1]
    return extremum("min", found) if found else None


def _widest(index: Index, listing: Program, side: int) -> Index:
    """Replace elements of integer arrays by the lowest or highest value they are declared to have.

    Only where the index rises with them all; elsewhere it is left as it is.
    """
    if isinstance(index, Opaque):
        declared = listing.array(index.array).value_range
        if declared is None:
            return index
        return difference(declared[1], Int(1)) if side else declared[0]
    if isinstance(index, Arith) and index.op != "+":
        return index
    operands = children(index)
    if not operands:
        return index
    return rebuild(index, tuple(_widest(each, listing, side) for each in operands))


def _along(kernel: Kernel, loop: Dim) -> list[Index]:
    """Return what the loop stays below so that it stays within the arrays it goes along."""
    found: list[Index] = []
    for op in ops_in(kernel.body):
        for part in (p for expr in exprs_of(op) for p in walk_expr(expr)):
            if isinstance(part, Load):
                shape = next(a.shape for a in kernel.arrays if a.name == part.array)
                for subscript, size in zip(part.subscripts, shape, strict=True):
                    if size is not None and not variables(size):
                        end = _end_along(subscript, size, loop)
                        found += [] if end is None else [end]
    return found


def _end_along(subscript: Expr, size: Index, loop: Dim) -> Index | None:
    """Return what a loop stays below where a subscript stays below a size, as far as that tells."""
    match subscript:
        case Position(dim) if dim == loop:
            return size
        case Binary("+" | "-", left, right):
            return _end_along(left, size, loop) or _end_along(right, size, loop)
        case Binary("//", left, Number(int() as divisor)):
            end = _end_along(left, size, loop)
            return None if end is None else multiplied(end, Int(divisor))
        case Binary("//", left, Scalar(name)):
            end = _end_along(left, size, loop)
            return None if end is None else multiplied(end, Param(name))
        case _:
            return None
