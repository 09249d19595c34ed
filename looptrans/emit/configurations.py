"""Configurations of a kernel as text: a default for each width, and what a GPU times."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from looptrans.blocks.program import Choice, Config, Kernel
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

    @property
    def _blocks(self) -> list[BlockSize]:
        return [argument for argument in self.text.arguments if isinstance(argument, BlockSize)]

    def _row(self, config: Config) -> Row:
        blocks = [config.blocks[argument.block] for argument in self._blocks]
        return (*blocks, config.warps, config.stages)

    def lines(self) -> list[str]:
        """Return the text that defines them."""
        lines = self._maker() if self.tuned is not None else []
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
        lines += ["", "# The fastest of these is used on a GPU, found when sizes first occur."]
        if not self.by_width:
            return [*lines, *self._autotuned(f"{self.tuned} = ", self._choices[0], 0)]
        lines.append(f"{self.tuned} = {{")
        for width, choice in zip((2, 4), self._choices, strict=True):
            autotuned = self._autotuned(f"{width}: ", choice, 1)
            lines += [*autotuned[:-1], f"{autotuned[-1]},"]
        return [*lines, "}"]

    def _maker(self) -> list[str]:
        """Return the function that makes a configuration of its numbers."""
        names = [*(block.name for block in self._blocks), "num_warps", "num_stages"]
        blocks = ", ".join(f'"{block.name}": {block.name}' for block in self._blocks)
        line = f"def {self._make}({', '.join(names)}):"
        over = [f"def {self._make}(", *filled(names, 1, ended=False), "):"]
        head = [line] if len(line) <= COLUMNS else over
        return [
            *head,
            *statement(f"blocks = {{{blocks}}}", 1),
            f"{INDENT}return triton.Config(blocks, num_warps=num_warps, num_stages=num_stages)",
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

    def _autotuned(self, head: str, choice: Choice, depth: int) -> list[str]:
        arguments = self.text.arguments
        keys = [argument.name for argument in arguments if isinstance(argument, Size)]
        restored = [
            argument.name
            for argument in arguments
            if isinstance(argument, Pointer) and argument.array in self.kernel.restored
        ]
        rows = list(dict.fromkeys(self._row(config) for config in choice.tuned))
        lines = [f"{head}triton.autotune("]
        lines += [INDENT + line for line in self._table(rows, depth)]
        lines += _listed("key", keys, depth)
        if restored:
            lines += _listed("restore_value", restored, depth)
        lines.append(f")({self.text.name})")
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
        shown = [f"({', '.join(map(str, row))})" for row in rows]
        short = f"{INDENT}for row in [{', '.join(shown)}]"
        if len(short) + 2 * len(INDENT) <= COLUMNS:
            return ["[", f"{INDENT}{self._make}(*row)", short, "],"]
        table = [line[len(INDENT) * (depth + 1) :] for line in filled(shown, depth + 3)]
        rows_text = [f"{INDENT}{self._make}(*row)", f"{INDENT}for row in [", *table, f"{INDENT}]"]
        return ["[", *rows_text, "],"]


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
