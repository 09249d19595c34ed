"""Configurations of a kernel as text: a default for each width, and what a GPU times."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from looptrans.blocks.block_ir.program import Choice, Config, Kernel
from looptrans.blocks.fitting.footprint import Footprint, Piece
from looptrans.blocks.passes.described import DESCRIBED
from looptrans.emit.arguments import BlockSize, Pointer, Size
from looptrans.emit.identifiers import Scope
from looptrans.emit.kernel import KernelText
from looptrans.emit.layout import COLUMNS, INDENT, filled, statement

Row = tuple[int, ...]

# A product with fewer members is written out.
_LEAST_PRODUCT = 5


class Configurations:
    """The configurations of one kernel.

    Attributes:
        kernel: The kernel.
        text: Its text.
        default: What the module calls the default configurations.
        tuned: What it calls the kernel that times them, or None where there is but one.
        by_width: Whether they differ between inputs of 16 and of 32 bits.
        footprint: What it calls the function that tells what a program needs of the GPU, or None
            where the kernel has no matrix products, and fits any.
    """

    def __init__(self, kernel: Kernel, text: KernelText, scope: Scope) -> None:
        self.kernel, self.text = kernel, text
        self.by_width = kernel.narrow != kernel.wide
        choices = [kernel.narrow, kernel.wide] if self.by_width else [kernel.wide]
        self._choices: list[Choice] = choices
        many = any(len(set(map(self._row, choice.tuned))) > 1 for choice in choices)
        self._make = scope.name("config", text.name, wanted=f"{text.name}_config")
        self.default = scope.name("default", text.name, wanted=f"{text.name}_default")
        tuned = scope.name("tuned", text.name, wanted=f"{text.name}_tuned") if many else None
        self.tuned = tuned
        found = text.footprints
        footprint = scope.name("footprint", text.name, wanted=f"{text.name}_footprint")
        self.footprint = footprint if found else None

    @property
    def helpers(self) -> tuple[str, ...]:
        """The functions of `runtime_text` that must be defined before the text."""
        timed: tuple[str, ...] = ("_Timed", "_Tuned") if self.tuned is not None else ()
        if timed and self.text.described:
            timed = (*timed, "_Described", "_is_copied", "_scratch")
        if self.footprint is None:
            return timed
        return (*timed, "_fitted", "_fitting") if timed else ("_fitted",)

    @property
    def _blocks(self) -> list[BlockSize]:
        return [argument for argument in self.text.arguments if isinstance(argument, BlockSize)]

    def _row(self, config: Config) -> Row:
        blocks = [config.blocks[argument.block] for argument in self._blocks]
        return (*blocks, config.warps, config.stages)

    def lines(self) -> list[str]:
        """Return the text that defines them."""
        lines = self._maker() if self.tuned is not None else []
        if self.footprint is not None:
            lines += footprint_lines(self.footprint, self.text.footprints)
        if self.by_width:
            lines.append("# Used where nothing is timed, by the bytes of an element.")
            lines.append(f"{self.default} = {{")
            for width, choice in zip((2, 4), self._choices, strict=True):
                lines.append(f"{INDENT}{width}: {self._made(choice.default)},")
            lines.append("}")
        else:
            lines.append("# Used where nothing is timed.")
            lines += statement(f"{self.default} = {self._made(self._choices[0].default)}", 0)
        if self.tuned is None:
            return lines
        which = "of these that fit" if self.footprint is not None else "of these"
        note = f"The fastest {which} is used on a GPU, found once for like sizes, and kept."
        lines += ["", f"# {note}"]
        if not self.by_width:
            return [*lines, *self._autotuned(f"{self.tuned} = ", self._choices[0], 0, 4)]
        lines.append(f"{self.tuned} = {{")
        for width, choice in zip((2, 4), self._choices, strict=True):
            autotuned = self._autotuned(f"{width}: ", choice, 1, width)
            lines += [*autotuned[:-1], f"{autotuned[-1]},"]
        return [*lines, "}"]

    def _columns(self) -> list[str]:
        """Return what the numbers of a row are called."""
        return [*(block.name for block in self._blocks), "num_warps", "num_stages"]

    def _maker(self) -> list[str]:
        """Return the function that makes a configuration of its numbers."""
        names = self._columns()
        blocks = ", ".join(f'"{block.name}": {block.name}' for block in self._blocks)
        line = f"def {self._make}({', '.join(names)}):"
        over = [f"def {self._make}(", *filled(names, 1, ended=False), "):"]
        head = [line] if len(line) <= COLUMNS else over
        return [
            *head,
            *statement(f"blocks = {{{blocks}}}", 1),
            f"{INDENT}return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)",
            "",
            "",
        ]

    def _made(self, config: Config) -> str:
        row = self._row(config)
        if self.tuned is not None:
            return f"{self._make}({', '.join(map(str, row))})"
        sizes = zip((block.name for block in self._blocks), row, strict=False)
        blocks = ", ".join(f'"{name}": {size}' for name, size in sizes)
        options = f"num_warps={config.warps}, num_stages={config.stages}"
        return f"triton.Config({{{blocks}}}, {options})"

    def _autotuned(self, head: str, choice: Choice, depth: int, width: int) -> list[str]:
        arguments = self.text.arguments
        keys = [a.name for a in arguments if isinstance(a, Size) and not a.is_seed]
        restored = [
            argument.name
            for argument in arguments
            if isinstance(argument, Pointer) and argument.array in self.kernel.restored
        ]
        rows = list(dict.fromkeys(self._row(config) for config in choice.tuned))
        copied = any(config.blocks.get(DESCRIBED) for config in choice.tuned)
        lines = [f"{head}{'_Described' if copied else '_Tuned'}(", f"{INDENT}{self.text.name},"]
        lines += [INDENT + line for line in self._table(rows, depth)]
        lines += _listed("key", keys, depth)
        if copied:
            lines += _listed("described", list(self.text.described), depth)
        if restored:
            lines += _listed("restored", restored, depth)
        if self.footprint is not None:
            given = statement(f"fitting=_fitting({self.footprint}, {width}),", depth + 1)
            lines += [line.removeprefix(INDENT * depth) for line in given]
        lines.append(")")
        return [INDENT * depth + line for line in lines]

    def _table(self, rows: list[Row], depth: int) -> list[str]:
        columns = [list(dict.fromkeys(column)) for column in zip(*rows, strict=True)]
        if len(rows) >= _LEAST_PRODUCT and set(itertools.product(*columns)) == set(rows):
            spans = ", ".join(str(tuple(column)) for column in columns)
            product = [f"{INDENT}for row in itertools.product({spans})"]
            if len(product[0]) + len(INDENT) * (depth + 1) > COLUMNS:
                over = f"{INDENT}for row in itertools.product("
                product = [over, f"{INDENT * 2}{spans}", f"{INDENT})"]
            return ["[", f"{INDENT}{self._make}(*row)", *product, "],"]
        for pair in itertools.combinations(range(len(columns)), 2):
            paired = [tuple(row[at] for at in pair) for row in rows]
            others = [at for at in range(len(columns)) if at not in pair]
            spread = [list(dict.fromkeys(paired)), *(columns[at] for at in others)]
            if math.prod(map(len, spread)) == len(rows) >= _LEAST_PRODUCT:
                return self._product(pair, others, spread, depth)
        shown = [f"({', '.join(map(str, row))})" for row in rows]
        short = f"{INDENT}for row in [{', '.join(shown)}]"
        if len(short) + 2 * len(INDENT) <= COLUMNS:
            return ["[", f"{INDENT}{self._make}(*row)", short, "],"]
        table = [line[len(INDENT) * (depth + 1) :] for line in filled(shown, depth + 3)]
        rows_text = [f"{INDENT}{self._make}(*row)", f"{INDENT}for row in [", *table, f"{INDENT}]"]
        return ["[", *rows_text, "],"]

    def _product(
        self,
        pair: tuple[int, ...],
        others: list[int],
        spans: Sequence[Sequence[object]],
        depth: int,
    ) -> list[str]:
        """Return the table whose columns vary on their own, but for a pair that varies together."""
        names = self._columns()
        call = [f"{INDENT}{self._make}({', '.join(names)})"]
        if len(call[0]) + len(INDENT) * (depth + 1) > COLUMNS:
            over = [
                line[len(INDENT) * (depth + 1) :] for line in filled(names, depth + 3, ended=False)
            ]
            call = [f"{INDENT}{self._make}(", *over, f"{INDENT})"]
        one, other = (names[at] for at in pair)
        taken = [f"for ({one}", f"{other})", *(names[at] for at in others)]
        taken[-1] += " in itertools.product("
        return [
            "[",
            *call,
            *(line[len(INDENT) * (depth + 1) :] for line in filled(taken, depth + 2, ended=False)),
            f"{INDENT * 2}{', '.join(str(tuple(span)) for span in spans)}",
            f"{INDENT})",
            "],",
        ]


def footprint_lines(name: str, found: Sequence[Footprint]) -> list[str]:
    """Return the function that tells what a program needs of the GPU.

    Args:
        name: What it is called.
        found: What the loops of the kernel need, under the names of its arguments.
    """
    shared = [_shared(each) for each in found]
    held = [_held(each) for each in found]
    told = "Return the bytes of shared memory and the numbers in registers of a program."
    lines = [
        f'{INDENT}"""{told}"""',
        *statement(f"shared = {_most(shared)}", 1),
        *statement(f"held = {_most(held)}", 1),
        f"{INDENT}return shared, held",
        "",
        "",
    ]
    used = re.findall(r"[A-Za-z_]\w*", " ".join((*shared, *held)))
    sides = [word for word in dict.fromkeys(used) if word not in ("width", "num_stages")]
    head = statement(f"def {name}({', '.join(('width', '/', 'num_stages', *sides, '**_'))}):", 0)
    return [*head, *lines]


def _held(footprint: Footprint) -> str:
    held, loaded = (_sum(map(" * ".join, e)) for e in (footprint.held, footprint.loaded))
    loaded = f"({loaded})" if " + " in loaded else loaded
    return f"{held} + (1 - {DESCRIBED}) * {loaded}" if loaded else held


def _shared(footprint: Footprint) -> str:
    staged = _bytes(footprint.staged)
    staged = f"({staged})" if " + " in staged and not staged.endswith(")") else staged
    parts = [_bytes(footprint.resident), f"num_stages * {staged}" if staged else ""]
    return " + ".join(filter(None, parts))


def _bytes(pieces: Sequence[Piece]) -> str:
    """Return the bytes of blocks: those of an element times the elements."""
    found: dict[str, list[str]] = {}
    for piece in pieces:
        width = "width" if piece.bytes is None else str(piece.bytes)
        found.setdefault(width, []).append(" * ".join(piece.sizes))
    sums = {width: _sum(parts) for width, parts in found.items()}
    return " + ".join(
        f"{width} * ({total})" if " + " in total else f"{width} * {total}"
        for width, total in sums.items()
    )


def _sum(parts: Iterable[str]) -> str:
    """Return a sum as Python, each part once."""
    counts = Counter(parts)
    return " + ".join(f"{count} * {part}" if count > 1 else part for part, count in counts.items())


def _most(parts: Sequence[str]) -> str:
    """Return the largest of some expressions as Python; nothing counts as 0."""
    parts = list(dict.fromkeys(part or "0" for part in parts))
    return f"max({', '.join(parts)})" if len(parts) > 1 else parts[0]


def _listed(option: str, names: Sequence[str], depth: int) -> list[str]:
    """Return an option `key=["M", "N"]` as lines."""
    quoted = [f'"{name}"' for name in names]
    line = f"{INDENT}{option}=[{', '.join(quoted)}],"
    if len(line) + len(INDENT) * depth <= COLUMNS:
        return [line]
    return [
        f"{INDENT}{option}=[",
        *(INDENT + text for text in filled(quoted, 1, ended=False)),
        f"{INDENT}],",
    ]
