"""What a launcher does: outputs and temporaries, launches, what it returns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from looptrans.blocks.program import Filled
from looptrans.emit.arguments import (
    Argument,
    BlockSize,
    IndexType,
    LaneCount,
    Pointer,
    RealNumber,
    Size,
    Stride,
    is_constexpr,
)
from looptrans.emit.facts import Facts
from looptrans.emit.grid import extent
from looptrans.emit.kernel import grouped
from looptrans.emit.layout import INDENT, filled, statement
from looptrans.emit.python_text import index_python

_NEW = {"float": "torch.float32", "int": "torch.int64", "bool": "torch.bool"}


@dataclass(frozen=True, slots=True)
class Launches:
    """Writes what a launcher does once its arguments are checked.

    Attributes:
        facts: The program.
    """

    facts: Facts

    def lines(self) -> list[str]:
        """Return the statements."""
        return [*self._outputs(), *self._launches(), *self._return()]

    def _outputs(self) -> list[str]:
        lines: list[str] = []
        given = self.facts.given
        device = self.facts.device()
        if len(given) > 1:
            names = ", ".join(self.facts.names[name] for name in given)
            call = self.facts.call("_outputs", "out", str(len(given)))
            lines += statement(f"{names} = {call}", 1)
        for made in self.facts.program.made:
            name = self.facts.names[made.array]
            extents = [index_python(extent, self.facts.names) for extent in made.shape]
            shape = f"({', '.join(extents)}{',' * (len(extents) == 1)})"
            dtype = self._dtype(made)
            if made.array in given:
                self.facts.helpers.add("_check_written")
                source = name if len(given) > 1 else "out"
                call = self.facts.call("_output", f'"{made.array}"', source, shape, dtype, device)
                filled_with = f".fill_({literal(made.fill)})" if made.fill is not None else ""
                lines += statement(f"{name} = {call}{filled_with}", 1)
                continue
            options = f"dtype={dtype}, device={device}"
            if made.fill is None:
                lines += statement(f"{name} = torch.empty({shape}, {options})", 1)
            else:
                fill = literal(made.fill)
                lines += statement(f"{name} = torch.full({shape}, {fill}, {options})", 1)
        return lines

    def _dtype(self, made: Filled) -> str:
        if made.dtype is not None and made.dtype not in _NEW:
            return f"torch.{made.dtype}"
        if made.element == "float" and self.facts.sample is not None:
            return f"{self.facts.sample}.dtype"
        return _NEW[made.element]

    def _launches(self) -> list[str]:
        lines: list[str] = []
        tensors = [self.facts.names[array.name] for array in self.facts.parameters.arrays]
        tensors += [self.facts.names[made.array] for made in self.facts.program.made]
        if any(isinstance(a, IndexType) for text in self.facts.kernels for a in text.arguments):
            lines += statement(f"index = {self.facts.call('_index_type', *tensors)}", 1)
        if any(c.by_width for c in self.facts.configurations):
            sample = self.facts.sample
            width = "4" if sample is None else f"{sample}.element_size()"
            lines += statement(f"width = {width}", 1)
        for number in range(len(self.facts.kernels)):
            lines += [""] if lines else []
            lines += self._launch(number)
        return lines

    def _launch(self, number: int) -> list[str]:
        kernel, text = self.facts.program.kernels[number], self.facts.kernels[number]
        configuration = self.facts.configurations[number]
        at = "[width]" if configuration.by_width else ""
        blocks = f"blocks = {configuration.default}{at}.all_kwargs()"
        lines: list[str] = []
        if configuration.tuned is None:
            lines += [*statement(f"run = {text.name}", 1), *statement(blocks, 1)]
        else:
            lines += statement("if _INTERPRETED or not tune:", 1)
            lines += [*statement(f"run = {text.name}", 2), *statement(blocks, 2)]
            lines += [f"{INDENT}else:"]
            lines += [
                *statement(f"run = {configuration.tuned}{at}", 2),
                f"{INDENT * 2}blocks = {{}}",
            ]
        counts, extents = [], []
        for dim in kernel.grid:
            size = index_python(extent(dim), self.facts.names)
            extents.append(size)
            if dim.role == "rows":
                block = next(
                    a.name
                    for a in text.arguments
                    if isinstance(a, BlockSize) and a.block == dim.block
                )
                counts.append(f'triton.cdiv({size}, meta["{block}"])')
            else:
                counts.append(f"({size})" if " " in size else size)
        product = " * ".join(counts) if counts else "1"
        depth = 1
        if any(dim.role == "rows" for dim in kernel.grid):
            lines += ["", f"{INDENT}def grid(meta):", *statement(f"return ({product},)", 2), ""]
            grid = "grid"
        else:
            grid = f"({product},)"
        sizes = [size for size in extents if not (size.isdigit() and int(size) > 0)]
        if sizes:
            least = f"min({', '.join(sizes)})" if len(sizes) > 1 else sizes[0]
            lines += statement(f"if {least} > 0:", depth)
            depth += 1
        if self.facts.parameters.arrays:
            device = self.facts.names[self.facts.parameters.arrays[0].name]
            lines += statement(f"with torch.cuda.device_of({device}):", depth)
            depth += 1
        lines.append(f"{INDENT * depth}run[{grid}](")
        for group in grouped(text.arguments):
            lines += filled(list(self._passed(group)), depth + 1)
        lines.append(f"{INDENT * (depth + 1)}**blocks, enable_fp_fusion=True,")
        return [*lines, f"{INDENT * depth})"]

    def _passed(self, group: Sequence[Argument]) -> Iterable[str]:
        """Yield the values of arguments that stand together."""
        first = group[0]
        if isinstance(first, Stride):
            rank = self.facts.rank(first.array)
            axes = [argument.axis for argument in group if isinstance(argument, Stride)]
            if axes == list(range(rank)):
                yield f"*{self.facts.names[first.array]}.stride()"
                return
        for argument in group:
            value = self._value(argument)
            if value is not None:
                yield f"{argument.name}={value}" if is_constexpr(argument) else value

    def _value(self, argument: Argument) -> str | None:
        match argument:
            case Pointer(_, array):
                return self.facts.names[array]
            case Stride(_, array, axis):
                return f"{self.facts.names[array]}.stride({axis})"
            case Size(_, parameter) | RealNumber(_, parameter):
                return self.facts.names[parameter]
            case IndexType():
                return "index"
            case LaneCount(_, size, least):
                power = f"triton.next_power_of_2({index_python(size, self.facts.names)})"
                return f"max({least}, {power})"
            case BlockSize():
                return None

    def _return(self) -> list[str]:
        if not self.facts.program.outputs:
            return []
        names = [self.facts.names[name] for name in self.facts.program.outputs]
        return [f"{INDENT}return {', '.join(names)}"]


def literal(value: float | int | bool | None) -> str:
    """Return a number as Python."""
    text = repr(value)
    return f'float("{text}")' if text.lstrip("-") in ("inf", "nan") else text
