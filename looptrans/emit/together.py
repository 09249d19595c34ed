"""Two kernels that need nothing of each other, as one launch: the program id picks the role.

    @triton.jit
    def kernel_2_3(…):
        program = tl.program_id(0)
        first = tl.cdiv(M, BLOCK_I)
        if program < first:
            kernel_2(program, …)
        else:
            kernel_3(program - first, …)

Each role keeps its own sizes of blocks; the number of warps and of stages is one for all, so roles
share a launch only where some of their configurations agree in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from looptrans.blocks.block_ir.program import ArrayArgument, Choice, Config, Kernel
from looptrans.blocks.fitting.footprint import Footprint
from looptrans.emit.arguments import (
    Argument,
    BlockSize,
    IndexType,
    LaneCount,
    Pointer,
    Positive,
    RealNumber,
    Size,
    Stride,
    decorator,
)
from looptrans.emit.expressions import PRODUCT, Expressions
from looptrans.emit.head import declared, grouped
from looptrans.emit.kernel import KernelText
from looptrans.emit.layout import INDENT, filled, heading, statement

_OTHERS = ("else:", "program - first")


def groups_of(kernels: Sequence[Kernel]) -> tuple[tuple[int, ...], ...]:
    """Return which kernels share a launch: two neighbours that touch nothing the other writes."""
    groups: list[list[int]] = []
    for number, kernel in enumerate(kernels):
        last = kernels[groups[-1][0]] if groups and len(groups[-1]) == 1 else None
        if last is not None and _are_apart(last, kernel) and _share((last, kernel)):
            groups[-1].append(number)
        else:
            groups.append([number])
    return tuple(map(tuple, groups))


def _are_apart(one: Kernel, other: Kernel) -> bool:
    touched = [{a.name for a in kernel.arrays} for kernel in (one, other)]
    written = [{a.name for a in kernel.arrays if a.access != "in"} for kernel in (one, other)]
    return not (touched[0] & written[1] or touched[1] & written[0])


def _share(kernels: Sequence[Kernel]) -> bool:
    return all(_matching([getattr(k, width) for k in kernels]) for width in ("narrow", "wide"))


def _matching(choices: Sequence[Choice]) -> list[tuple[Config, ...]]:
    """Return configurations, one of each role, with the same warps and stages; the default first.

    Where the defaults do not agree, the first of what is tried that do is the default.
    """
    found = [tuple(choice.default for choice in choices)]
    for one in choices[0].tuned:
        others = [
            next((c for c in choice.tuned if _alike(one, c) and _as_large(one, c)), None)
            or next((c for c in choice.tuned if _alike(one, c)), None)
            for choice in choices[1:]
        ]
        found.append((one, *(c for c in others if c is not None)))
    full = [row for row in found if len(row) == len(choices)]
    return [row for row in full if all(_alike(row[0], config) for config in row)]


def _alike(one: Config, other: Config) -> bool:
    return (one.warps, one.stages) == (other.warps, other.stages)


def _as_large(one: Config, other: Config) -> bool:
    return list(one.blocks.values()) == list(other.blocks.values())


def together(
    kernels: Sequence[Kernel], roles: Sequence[KernelText], name: str
) -> tuple[Kernel, KernelText]:
    """Return the kernel that picks a role, and its text.

    Args:
        kernels: The two kernels, a role each.
        roles: Their texts, each handed the number of its program.
        name: What the kernel is called.
    """
    whole = replace(
        kernels[0],
        name=name,
        dims=tuple(dict.fromkeys(dim for kernel in kernels for dim in kernel.dims)),
        scalars=tuple(dict.fromkeys(s for kernel in kernels for s in kernel.scalars)),
        constants=tuple(dict.fromkeys(c for kernel in kernels for c in kernel.constants)),
        restored=tuple(dict.fromkeys(r for kernel in kernels for r in kernel.restored)),
        arrays=_arrays(kernels),
        body=(),
    )
    expr = Expressions(whole)
    for word in ("program", "first"):
        expr.scope.name("word", word, wanted=word)
    names = [
        {a.name: _name(a, number, expr) for a in text.arguments}
        for number, text in enumerate(roles)
    ]
    blocks = [
        {a.block: names[number][a.name] for a in text.arguments if isinstance(a, BlockSize)}
        for number, text in enumerate(roles)
    ]
    body = [f"{INDENT}program = tl.program_id(0)"]
    body += statement(f"first = {_count(kernels[0], blocks[0], expr)}", 1)
    for number, (head, place) in enumerate((("if program < first:", "program"), _OTHERS)):
        body += [INDENT + head, f"{INDENT * 2}{roles[number].name}(", f"{INDENT * 3}{place},"]
        for group in grouped(roles[number].arguments):
            body += filled([names[number][a.name] for a in group], 3)
        body += [f"{INDENT * 2})"]
    arguments = _union(roles, names, expr)
    choices = [
        Choice(rows[0], tuple(rows))
        for rows in (_merged(kernels, blocks, width) for width in ("narrow", "wide"))
    ]
    shown = f"The first programs do {roles[0].name}, the others {roles[1].name}."
    lines = [
        decorator(arguments),
        f"def {name}(",
        *(line for group in grouped(arguments) for line in filled(declared(group), 1)),
        "):",
        f'{INDENT}"""Does what two kernels do.',
        "",
        *(line.replace("# ", "", 1) for line in heading(shown, 1)),
        f'{INDENT}"""',
        *body,
    ]
    made = KernelText(
        name,
        arguments,
        tuple(lines),
        frozenset(),
        frozenset(expr.scope.taken),
        tuple((kernel.grid, each) for kernel, each in zip(kernels, blocks, strict=True)),
        tuple(dict.fromkeys(_footprints(roles, names))),
    )
    return replace(whole, narrow=choices[0], wide=choices[1]), made


def _footprints(
    roles: Sequence[KernelText], names: Sequence[dict[str, str]]
) -> Iterator[Footprint]:
    for text, called in zip(roles, names, strict=True):
        for each in text.footprints:
            yield each.renamed(called)


def _arrays(kernels: Sequence[Kernel]) -> tuple[ArrayArgument, ...]:
    found = {a.name: a for kernel in kernels for a in kernel.arrays}
    return tuple(found.values())


def _name(argument: Argument, role: int, expr: Expressions) -> str:
    """Return what the whole kernel calls an argument of a role."""
    match argument:
        case Pointer(name, array):
            return expr.scope.name("array", array, wanted=name)
        case Stride(name, array, axis):
            return expr.scope.name("stride", array, str(axis), wanted=name)
        case Size(name, parameter) | RealNumber(name, parameter):
            return expr.scope.name("scalar", parameter, wanted=name)
        case Positive(name, parameter):
            return expr.scope.name("sign", parameter, wanted=name)
        case IndexType(name):
            return name
        case LaneCount(name, size, least, _):
            return expr.scope.name("lanes", str(size), str(least), wanted=name)
        case BlockSize(name, block):
            wanted = name if role == 0 else f"{name}_{role + 1}"
            return expr.scope.name("block", str(role), block, wanted=wanted)


def _count(kernel: Kernel, blocks: dict[str, str], expr: Expressions) -> str:
    """Return how many programs a role has, as text."""
    counts = []
    for dim in kernel.grid:
        size = expr.from_index(dim.extent)
        if dim.role == "rows":
            counts.append(f"tl.cdiv({expr.show(size)}, {blocks[dim.block or '']})")
        else:
            counts.append(expr.show(size, needed=PRODUCT))
    return " * ".join(counts) or "1"


def _union(
    roles: Sequence[KernelText], names: Sequence[dict[str, str]], expr: Expressions
) -> tuple[Argument, ...]:
    """Return the arguments of all roles under their names, those of a kind together."""
    found: dict[str, Argument] = {}
    for number, text in enumerate(roles):
        for argument in text.arguments:
            name = names[number][argument.name]
            new = replace(argument, name=name)
            if isinstance(new, BlockSize | LaneCount):
                new = replace(new, block=name)
            known = found.get(name)
            if isinstance(known, Size) and isinstance(new, Size):
                new = replace(new, is_constant=known.is_constant or new.is_constant)
            found[name] = new
    for scalar in sorted(expr.used.scalars):
        name = expr.scope.name("scalar", scalar, wanted=scalar)
        found.setdefault(name, Size(name, scalar, False))
    order = (Pointer, Stride, RealNumber, Size, Positive, IndexType, BlockSize, LaneCount)
    ranked = sorted(
        found.values(),
        key=lambda a: (order.index(type(a)), isinstance(a, Size) and a.is_constant),
    )
    return tuple(ranked)


def _merged(
    kernels: Sequence[Kernel], blocks: Sequence[dict[str, str]], width: str
) -> list[Config]:
    rows = _matching([getattr(kernel, width) for kernel in kernels])
    merged = [
        Config(
            {
                name: config.blocks[block]
                for config, names in zip(row, blocks, strict=True)
                for block, name in names.items()
            },
            row[0].warps,
            row[0].stages,
        )
        for row in rows
    ]
    return [each for number, each in enumerate(merged) if each not in merged[:number]]
