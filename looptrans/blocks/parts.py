"""Kernels of a loop in parts: each program of the first does some blocks, the second joins them.

    each block of j           for j_first in range(0, N, BLOCK_J)
    those of part p      ->   for j_first in range(p * j_each, min(N, (p + 1) * j_each), BLOCK_J)

The parts of the nest are as many iterations each; those of the kernel are as many whole blocks each
of what a block of rows visits at all. Either way they are runs of iterations, in order, and every
iteration is in one of them: that is all the laws of the operator ask for. So the masks of blocks
stay what they are, and where a mask leaves rows with few blocks, the parts share those.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.blocks.block_ir.arithmetic import extreme
from looptrans.blocks.block_ir.expr import Binary, Call, Dim, Expr, Name, Number, Position, Scalar
from looptrans.blocks.block_ir.ops import (
    ElementLoop,
    Let,
    Op,
    RowBlock,
    TileLoop,
    has_products,
    ops_in,
)
from looptrans.blocks.block_ir.program import BlockProgram, Choice, Config, Kernel, NotLowered
from looptrans.blocks.lower import lower
from looptrans.blocks.passes.described import DESCRIBED
from looptrans.blocks.passes.groups import with_rows_of_groups
from looptrans.blocks.passes.late import LATE
from looptrans.derivation.derive import InTwoNests
from looptrans.ir.condition import Condition, Relation, walk_condition
from looptrans.ir.index import Index, Param, parameters
from looptrans.ir.walk import placed

# How many iterations of a loop that is joined are read at once.
JOINED = 16


@dataclass(frozen=True, slots=True)
class InParts:
    """A listing as kernels of which one computes a loop in parts, and another joins them.

    Attributes:
        program: The kernels.
        partial: The place of the kernel of parts among them.
        loop: The dimension in parts.
        part: The dimension of parts.
        parts: The size; the listing has no such size.
    """

    program: BlockProgram
    partial: int
    loop: Dim
    part: Dim
    parts: str


def lower_in_parts(found: InTwoNests) -> InParts:
    """Lower two nests to kernels.

    Args:
        found: How the listing became two nests.

    Raises:
        NotLowered: They cannot be run in blocks, or a part is not a run of blocks.
    """
    nests = found.nests
    lowered, number = _lowered(found, frozenset({nests.part}))
    kernels = list(lowered.kernels)
    kernels[number] = _with_one_kind_of_rows(found, kernels[number])
    part = _part(kernels[number], nests.part)
    assert part is not None
    kernels[number], loop = _in_runs(kernels[number], part, nests.loop, nests.parts, nests.own)
    for later in range(number + 1, len(kernels)):
        kernels[later] = _joining(kernels[later], nests.part, nests.parts)
    return InParts(
        replace(
            lowered,
            scheduled=found.derivation.last,
            kernels=tuple(kernels),
            assumptions=tuple(c for c in lowered.assumptions if not _is_about(c, nests.parts)),
            notes=(*lowered.notes, *found.derivation.notes),
        ),
        number,
        loop,
        part,
        nests.parts,
    )


def _lowered(found: InTwoNests, alone: frozenset[str]) -> tuple[BlockProgram, int]:
    """Return the kernels of two nests, and the place of that of parts."""
    nests = found.nests
    lowered = lower(found.whole, alone=alone)
    numbers = [n for n, k in enumerate(lowered.kernels) if _part(k, nests.part) is not None]
    if len(numbers) != 1:
        raise NotLowered(f"the parts of {nests.loop} would not be programs of their own", nests.own)
    return lowered, numbers[0]


def _with_one_kind_of_rows(found: InTwoNests, kernel: Kernel) -> Kernel:
    """Return the kernel of parts with rows of the innermost loop alone, where that is better.

    It is where rows of several programs fit into a block, and where there are matrix products then
    and else none.
    """
    nests = found.nests
    own = next(place for place in placed(nests.whole) if place.label == nests.own)
    around = [loop.variable for loop in own.loops]
    outer = around[: around.index(nests.loop)]
    if len(outer) < 2:
        return kernel
    lowered, number = _lowered(found, frozenset({nests.part, *outer[:-1]}))
    other = lowered.kernels[number]
    part = _part(other, nests.part)
    assert part is not None
    packed = with_rows_of_groups(other, part, _Names(other).free)
    if packed is not other:
        return packed
    return other if has_products(other.body) and not has_products(kernel.body) else kernel


def _is_about(condition: Condition, name: str) -> bool:
    """Tell whether a condition is about a size: the launcher sees to that of parts by itself."""
    indices = (part for each in walk_condition(condition) for part in _indices(each))
    return any(name in parameters(index) for index in indices)


def _indices(condition: Condition) -> tuple[Index, ...]:
    return (condition.left, condition.right) if isinstance(condition, Relation) else ()


def _part(kernel: Kernel, name: str) -> Dim | None:
    """Return the dimension of parts of a grid."""
    return next((d for d in kernel.grid if d.name == name and d.role == "program"), None)


def _in_runs(
    kernel: Kernel, part: Dim, variable: str, parts: str, label: str
) -> tuple[Kernel, Dim]:
    """Let each program of a kernel visit the blocks of its part only."""
    rows = kernel.body[-1]
    # Where a program has rows that are read from memory, all it does is in a block of them.
    inside = rows.body if isinstance(rows, RowBlock) else kernel.body
    loops = [
        op for op in inside if isinstance(op, TileLoop | ElementLoop) and op.dim.name == variable
    ]
    if len({op.dim for op in loops}) != 1:
        raise NotLowered(f"the blocks of {variable} cannot be told apart from others", label)
    dim = loops[0].dim
    names = _Names(kernel)
    begin, end = loops[0].start, loops[-1].stop
    length = end if begin == Number(0) else Binary("-", end, begin)
    if not isinstance(length, Scalar):
        length = Call("max", (length, Number(0)))
    count = Scalar(parts)
    blocks: list[Op] = []
    each: Expr = _rounded_up(length, count)
    if dim.block is not None:
        size = Scalar(dim.block)
        whole = names.let(f"{variable}_blocks", _rounded_up(length, size), "")
        blocks.append(whole)
        each = Binary("*", _rounded_up(Name(whole.name, (), "int"), count), size)
    what = "a part has whole blocks" if blocks else "what a part has"
    run = names.let(f"{variable}_each", each, what)
    ahead: Expr = Binary("*", Position(part), Name(run.name, (), "int"))
    own = ahead if begin == Number(0) else Binary("+", begin, ahead)
    first = names.let(f"{variable}_own", own, "")
    behind = Binary("+", Name(first.name, (), "int"), Name(run.name, (), "int"))
    last = names.let(f"{variable}_end", behind, "")
    bounds = (*blocks, run, first, last)
    body: list[Op] = []
    for op in inside:
        if not any(op is other for other in loops):
            body.append(op)
            continue
        assert isinstance(op, TileLoop | ElementLoop)
        start: Expr = Name(first.name, (), "int")
        if op is loops[0]:
            body += bounds
        else:
            start = extreme("max", [op.start, start])
        stop = extreme("min", [op.stop, Name(last.name, (), "int")])
        body.append(replace(op, start=start, stop=stop))
    scalars = kernel.scalars
    if parts not in {scalar.name for scalar in scalars}:
        scalars = (*scalars, Scalar(parts))
    narrow, wide = _few_rows(kernel, dim)
    if isinstance(rows, RowBlock):
        body = [*kernel.body[:-1], replace(rows, body=tuple(body))]
    return replace(kernel, body=tuple(body), scalars=scalars, narrow=narrow, wide=wide), dim


def _rounded_up(length: Expr, size: Expr) -> Expr:
    return Binary("//", Binary("-", Binary("+", length, size), Number(1)), size)


class _Names:
    """Names that a kernel does not have yet."""

    def __init__(self, kernel: Kernel) -> None:
        ops = list(ops_in(kernel.body))
        self._taken = {op.name for op in ops if isinstance(op, Let)}
        self._taken |= {dim.name for dim in kernel.dims} | {a.name for a in kernel.arrays}
        self._taken |= {scalar.name for scalar in kernel.scalars}

    def let(self, wish: str, value: Expr, note: str) -> Let:
        """Return a definition under a name that is free."""
        return Let(self.free(wish), value, (), note)

    def free(self, wish: str) -> str:
        """Return a name that is free, and is not afterwards."""
        while wish in self._taken:
            wish += "_"
        self._taken.add(wish)
        return wish


def _few_rows(kernel: Kernel, dim: Dim) -> tuple[Choice, Choice]:
    """Return configurations for few rows and a long loop, which is where parts are worth it.

    There is one for each width: a loop that grows with every call must not be timed at every call.
    """
    rows = [d.block or "" for d in kernel.grid if d.role == "rows"]
    products = has_products(kernel.body)

    def choice(config: Config, of_loop: int, stages: int) -> Choice:
        # Memory is what such a kernel waits for, not its products: none of them is late.
        options = (LATE, DESCRIBED)
        blocks = {name: size for name, size in config.blocks.items() if name not in options}
        if len(rows) == 1 and dim.block is not None and products:
            found = Config({**blocks, rows[0]: 16, dim.block: of_loop}, 4, stages)
        else:
            found = replace(config, blocks=blocks)
        return Choice(found, (found,))

    return choice(kernel.narrow.default, 64, 3), choice(kernel.wide.default, 32, 2)


def _joining(kernel: Kernel, part: str, parts: str) -> Kernel:
    """Return a kernel that joins parts, with blocks that fit few of them."""
    loops = [op for op in kernel.body if isinstance(op, TileLoop) and op.dim.name == part]
    block = loops[0].dim.block if loops else None
    if block is None or Param(parts) != loops[0].dim.stop:
        return kernel
    rows = [d.block or "" for d in kernel.grid if d.role == "rows"]
    inner = any(dim.role == "lanes" for dim in kernel.dims)
    sizes = dict.fromkeys(rows, 1)
    if rows and not inner:
        sizes[rows[-1]] = 64
    blocks = {**kernel.narrow.default.blocks, **sizes, block: JOINED}
    config = Config(blocks, 4, 1)
    choice = Choice(config, (config,))
    return replace(kernel, narrow=choice, wide=choice)
