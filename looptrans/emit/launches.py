"""What a launcher does: outputs and temporaries, launches, what it returns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from looptrans.blocks.block_ir.expr import Dim
from looptrans.blocks.block_ir.program import Filled
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
    is_constexpr,
)
from looptrans.emit.checks import raised
from looptrans.emit.facts import Facts
from looptrans.emit.head import grouped
from looptrans.emit.layout import INDENT, filled, statement
from looptrans.emit.python_text import index_python
from looptrans.ir.index import Index

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
        if self.facts.needs is not None:
            call = self.facts.call("_wanted", "wanted", names_python(self.facts.needs.gradients))
            lines += statement(f"wanted = {call}", 1)
        if len(given) > 1:
            names = ", ".join(self.facts.names[name] for name in given)
            call = self.facts.call("_outputs", "out", str(len(given)))
            lines += statement(f"{names} = {call}", 1)
        short = next((m for m in self.facts.program.made if m.dtype == "bfloat16"), None)
        if short is not None:
            text = f"{short.array} is torch.bfloat16, which Triton's interpreter gets wrong: "
            lines += statement("if _INTERPRETED:", 1)
            lines += raised(f"{text}create it with dtype=float16", "", 2)
        for made in self.facts.program.made:
            name = self.facts.names[made.array]
            shape = shape_python(made.shape, self.facts.names)
            dtype = self.dtype(made)
            if made.array in given:
                self.facts.helpers.add("_check_written")
                source = name if len(given) > 1 else "out"
                if self.is_rounded(made):
                    lines += self._summed(made, source, shape)
                    continue
                call = self.facts.call("_output", f'"{made.array}"', source, shape, dtype, device)
                filled_with = f".fill_({literal(made.fill)})" if made.fill is not None else ""
                lines += statement(f"{name} = {call}{filled_with}", 1)
                continue
            value = self._new(made, shape)
            if self.facts.needs is not None and self.facts.may_be_none(made.array):
                condition = self.facts.needs.condition(self.facts.needs.arrays[made.array])
                lines += statement(f"{name} = None", 1)
                lines += statement(f"if {condition}:", 1)
                lines += statement(f"{name} = {value}", 2)
            else:
                lines += statement(f"{name} = {value}", 1)
        return lines

    def _summed(self, made: Filled, source: str, shape: str) -> list[str]:
        """Return the statements that make what is added up in float32, and rounded at the end."""
        name, end = self.facts.names[made.array], self._rounded_name(made)
        dtype, device = f"{self.facts.sample}.dtype", self.facts.device()
        call = self.facts.call("_output", f'"{made.array}"', source, shape, dtype, device)
        return [
            *statement(f"{end} = {call}", 1),
            *statement(f"{name} = {self._new(made, shape)}", 1),
        ]

    def is_rounded(self, made: Filled) -> bool:
        """Tell whether an array is in float32 while kernels add to it, and rounded at the end."""
        return made.rounded and self.facts.sample is not None

    def _rounded_name(self, made: Filled) -> str:
        wanted = f"{self.facts.names[made.array]}_rounded"
        return self.facts.scope.name("rounded", made.array, wanted=wanted)

    def _new(self, made: Filled, shape: str) -> str:
        """Return the call that makes an array."""
        options = f"dtype={self.dtype(made)}, device={self.facts.device()}"
        if made.fill is None:
            return f"torch.empty({shape}, {options})"
        return f"torch.full({shape}, {literal(made.fill)}, {options})"

    def dtype(self, made: Filled) -> str:
        """Return the element type of an array that the launcher makes, as Python."""
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
            if any(self.facts.may_be_none(made.array) for made in self.facts.program.made):
                tensors = [f"*{self.facts.call('_given', *tensors)}"]
            given = [p for p in self.facts.parameters.integers if p.kind != "seed"]
            numbers = [self.facts.names[p.name] for p in given]
            found = self.facts.call("_index_type", *tensors, *numbers)
            lines += statement(f"index = {found}", 1)
        if any(c.by_width for c in self.facts.configurations):
            sample = self.facts.sample
            width = "4" if sample is None else f"{sample}.element_size()"
            lines += statement(f"width = {width}", 1)
        for number in range(len(self.facts.kernels)):
            lines += [""] if lines else []
            lines += self._launch(number)
        return lines

    def _launch(self, number: int) -> list[str]:
        text = self.facts.kernels[number]
        configuration = self.facts.configurations[number]
        at = "[width]" if configuration.by_width else ""
        lines, blocks = self._default(number, at)
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
        programs = " + ".join(self._programs(*role) for role in text.roles)
        depth = 1
        if any(dim.role == "rows" for grid, _ in text.roles for dim in grid):
            lines += ["", f"{INDENT}def grid(meta):", *statement(f"return ({programs},)", 2), ""]
            grid = "grid"
        else:
            grid = f"({programs},)"
        some = list(dict.fromkeys(self._has_programs(grid) for grid, _ in text.roles))
        conditions = [] if "" in some else [" or ".join(some)]
        conditions = [f"({each})" if " or " in each else each for each in conditions]
        needs = self.facts.needs
        if needs is not None:
            wanted = needs.condition(needs.kernels[number])
            conditions += [wanted] if wanted is not None else []
        if conditions:
            lines += statement(f"if {' and '.join(conditions)}:", depth)
            depth += 1
        if self.facts.parameters.arrays:
            device = self.facts.names[self.facts.parameters.arrays[0].name]
            lines += statement(f"with torch.cuda.device_of({device}):", depth)
            depth += 1
        lines.append(f"{INDENT * depth}run[{grid}](")
        for group in grouped(text.arguments):
            lines += filled(list(self._passed(group, number)), depth + 1)
        lines.append(f"{INDENT * (depth + 1)}**blocks, enable_fp_fusion=True,")
        return [*lines, f"{INDENT * depth})"]

    def _default(self, number: int, at: str) -> tuple[list[str], str]:
        """Return what is worked out first, and what sets the blocks where nothing is timed."""
        text = self.facts.kernels[number]
        configuration = self.facts.configurations[number]
        default = f"{configuration.default}{at}"
        if configuration.footprint is None:
            return [], f"blocks = {default}.all_kwargs()"
        lanes = [
            f'"{argument.name}": {self._value(argument)}'
            for argument in text.arguments
            if isinstance(argument, LaneCount) and self._has_lanes(number)
        ]
        lines = statement(f"lanes = {{{', '.join(lanes)}}}", 1) if lanes else []
        arrays = self.facts.parameters.arrays
        device = f"{self.facts.names[arrays[0].name]}.device.index" if arrays else "0"
        width = "width" if configuration.by_width else "4"
        passed = [default, configuration.footprint, width, "lanes" if lanes else "{}", device]
        return lines, f"blocks = _fitted({', '.join(passed)}).all_kwargs()"

    def _has_lanes(self, number: int) -> bool:
        """Tell whether the numbers of lanes of a launch have a name: they decide what fits."""
        text, configuration = self.facts.kernels[number], self.facts.configurations[number]
        is_decisive = configuration.footprint is not None
        return is_decisive and any(isinstance(a, LaneCount) for a in text.arguments)

    def _programs(self, grid: tuple[Dim, ...], blocks: Mapping[str, str]) -> str:
        """Return how many programs a grid has."""
        counts = []
        for dim in grid:
            size = index_python(dim.extent, self.facts.names)
            if dim.role == "rows":
                counts.append(f'triton.cdiv({size}, meta["{blocks[str(dim.block)]}"])')
            else:
                counts.append(f"({size})" if " " in size else size)
        return " * ".join(counts) if counts else "1"

    def _has_programs(self, grid: tuple[Dim, ...]) -> str:
        """Return whether a grid has programs, as Python; nothing where it always has."""
        extents = [index_python(dim.extent, self.facts.names) for dim in grid]
        sizes = [size for size in extents if not (size.isdigit() and int(size) > 0)]
        if not sizes:
            return ""
        least = f"min({', '.join(sizes)})" if len(sizes) > 1 else sizes[0]
        return f"{least} > 0"

    def _passed(self, group: Sequence[Argument], number: int) -> Iterable[str]:
        """Yield the values of arguments that stand together."""
        first = group[0]
        needs = self.facts.needs
        if isinstance(first, Stride):
            if needs is not None and first.array in needs.optional[number]:
                array = self.facts.names[first.array]
                axes = [argument.axis for argument in group if isinstance(argument, Stride)]
                yield f"*{self.facts.call('_strides', array, *map(str, axes))}"
                return
            rank = self.facts.rank(first.array)
            axes = [argument.axis for argument in group if isinstance(argument, Stride)]
            if axes == list(range(rank)):
                yield f"*{self.facts.names[first.array]}.stride()"
                return
        if self._has_lanes(number) and any(isinstance(each, LaneCount) for each in group):
            group = [each for each in group if not isinstance(each, LaneCount)]
            yield "**lanes"
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
            case Positive(_, parameter):
                return f"{self.facts.names[parameter]} > 0"
            case IndexType():
                return "index"
            case LaneCount(_, size, least, _):
                power = f"triton.next_power_of_2({index_python(size, self.facts.names)})"
                return f"max({least}, {power})"
            case BlockSize():
                return None

    def _returned(self, output: str) -> str:
        """Return what is returned for an output, as Python."""
        name = self.facts.names[output]
        made = self.facts.made.get(output)
        needs = self.facts.needs
        given = name
        if made is not None and self.is_rounded(made):
            given = f"{name}.to({self.facts.sample}.dtype)"
            if output in self.facts.given:
                given = f"{self._rounded_name(made)}.copy_({name})"
        if needs is not None and needs.arrays.get(output, frozenset()) - {output}:
            # Other gradients need it as well, so that it is there where nobody asked for it.
            return f'{given} if "{output}" in wanted else None'
        is_optional = needs is not None and self.facts.may_be_none(output)
        return f"None if {name} is None else {given}" if is_optional and given != name else given

    def _return(self) -> list[str]:
        if not self.facts.program.outputs:
            return []
        names = [self._returned(name) for name in self.facts.program.outputs]
        if self.facts.style != "plain" and len(names) == 1:
            return [f"{INDENT}return ({names[0]},)"]
        return statement(f"return {', '.join(names)}", 1)


def names_python(names: Sequence[str]) -> str:
    """Return names as a tuple of texts in Python."""
    texts = ", ".join(json.dumps(name, ensure_ascii=False) for name in names)
    return f"({texts}{',' * (len(names) == 1)})"


def shape_python(shape: Sequence[Index], names: Mapping[str, str]) -> str:
    """Return a shape as a tuple of Python."""
    extents = [index_python(extent, names) for extent in shape]
    return f"({', '.join(extents)}{',' * (len(extents) == 1)})"


def literal(value: float | int | bool | None) -> str:
    """Return a number as Python."""
    text = repr(value)
    return f'float("{text}")' if text.lstrip("-") in ("inf", "nan") else text
