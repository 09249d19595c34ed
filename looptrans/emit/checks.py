"""The checks of a launcher: tensors, sizes, shapes, what the listing assumes."""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.emit.facts import Facts
from looptrans.emit.head import array_text, joined
from looptrans.emit.layout import COLUMNS, INDENT, filled, fits, statement, words
from looptrans.emit.parameters import divisors
from looptrans.emit.python_text import (
    NotPython,
    arrays_in,
    condition_python,
    denied_python,
    generators_python,
    has_variables,
    index_python,
    mentioned,
)
from looptrans.emit.sizes import Solved
from looptrans.ir.index import Index, Int, Param, parameters
from looptrans.ir.listing import contract_text

_KINDS = {"float": "_FLOAT", "int": "_INT", "bool": "_BOOL"}


@dataclass(frozen=True, slots=True)
class Checks:
    """Writes the checks of a launcher, and how it finds sizes.

    Attributes:
        facts: The program.
    """

    facts: Facts

    def lines(self) -> list[str]:
        """Return the statements."""
        return [
            *self._check_arguments(),
            *self._sizes(),
            *self._check_shapes(),
            *self._check_reach(),
            *self._check_below(),
            *self._check_contracts(),
            *self._check_contents(),
        ]

    def _check_arguments(self) -> list[str]:
        rows = []
        for array in self.facts.parameters.arrays:
            fixed = self.facts.fixed(array) or self.facts.typed.get(array.name)
            types = f"(torch.{fixed},)" if fixed else _KINDS[array.element]
            name = self.facts.names[array.name]
            rows.append(f'("{array.name}", {name}, {array.rank}, {types})')
        lines = []
        if rows:
            self.facts.helpers.add("_check_tensors")
            one = f"_check_tensors({', '.join(rows)})"
            lines = [f"{INDENT}_check_tensors(", *filled(rows, 2, ended=False), f"{INDENT})"]
            lines = [INDENT + one] if fits(one, 1) else lines
        for array in self.facts.parameters.arrays:
            own = self.facts.names[array.name]
            if array.name in self.facts.typed and self.facts.sample not in (None, own):
                lines += statement(f"{own} = {own}.to({self.facts.sample}.dtype)", 1)
        for name in self.facts.written:
            lines += statement(
                self.facts.call("_check_written", f'"{name}"', self.facts.names[name]), 1
            )
        least_one = divisors(self.facts.program)
        for parameter in self.facts.parameters.integers:
            name = parameter.name
            if self.facts.is_key(name):
                own = self.facts.names[name]
                call = self.facts.call("_seed", f'"{name}"', own)
                lines += statement(f"{own} = {call}", 1)
                continue
            least = "1" if name in least_one else "0" if self._is_extent(name) else "None"
            call = self.facts.call("_check_size", f'"{name}"', self.facts.names[name], least)
            lines += statement(call, 1)
        for parameter in self.facts.parameters.reals:
            own = self.facts.names[parameter.name]
            call = self.facts.call("_real", f'"{parameter.name}"', own)
            lines += statement(f"{own} = {call}", 1)
        return lines

    def _is_extent(self, name: str) -> bool:
        """Tell whether a size is the extent of an argument or an array that is made."""
        shapes: list[tuple[Index | None, ...]] = [a.shape for a in self.facts.parameters.arrays]
        shapes += [made.shape for made in self.facts.program.made]
        return any(Param(name) == declared for shape in shapes for declared in shape)

    def _sizes(self) -> list[str]:
        """Return the statements that read sizes off shapes."""
        lines: list[str] = []
        mine: dict[str, list[Solved]] = {}
        for step in self.facts.parameters.sizes:
            mine.setdefault(step.array if step.is_plain else "", []).append(step)
        rank = {array.name: array.rank for array in self.facts.parameters.arrays}
        for array, steps in mine.items():
            if array and len(steps) == rank[array] > 1:
                names = ", ".join(self.facts.names[step.name] for step in steps)
                lines += statement(f"{names} = {self.facts.names[array]}.shape", 1)
                continue
            for step in steps:
                lines += statement(f"{self.facts.names[step.name]} = {self.solution(step)}", 1)
        return lines

    def solution(self, step: Solved) -> str:
        """Return the size that a shape determines, as Python."""
        if step.value is not None:
            value = index_python(step.value, self.facts.names)
            value = f"({value})" if " " in value else value
        else:
            value = f"{self.facts.names[step.array]}.shape[{step.axis}]"
        if step.less is not None:
            less = index_python(step.less, self.facts.names)
            value = f"{value} - ({less})" if " " in less else f"{value} - {less}"
        if step.divisor is not None:
            divisor = index_python(step.divisor, self.facts.names)
            value = f"({value})" if step.less is not None else value
            # A divisor of 0 is refused below, where the whole shape is compared.
            divisor = divisor if divisor.isdigit() else f"max(1, {divisor})"
            value = f"{value} // {divisor}"
        return value

    def _check_shapes(self) -> list[str]:
        origins = {step.name: step for step in self.facts.parameters.sizes}
        lines: list[str] = []
        for array in self.facts.parameters.arrays:
            plain = [
                isinstance(declared, Param)
                and origins.get(declared.name) == Solved(declared.name, array.name, axis)
                for axis, declared in enumerate(array.shape)
            ]
            if all(ok or declared is None for ok, declared in zip(plain, array.shape, strict=True)):
                continue
            expected = [
                "None" if declared is None else index_python(declared, self.facts.names)
                for declared in array.shape
            ]
            mentioned_sizes = dict.fromkeys(
                name
                for ok, declared in zip(plain, array.shape, strict=True)
                if not ok and declared is not None
                for name in parameters(declared)
            )
            where = [
                f"{name} = {origins[name].array}.shape[{origins[name].axis}]"
                for name in mentioned_sizes
                if name in origins and origins[name].is_plain
            ]
            text = array_text("", array.shape).strip()
            text += f" with {joined(where)}" if where else ""
            shape = f"({', '.join(expected)}{',' * (len(expected) == 1)})"
            pieces = words(text, COLUMNS - 3 * len(INDENT))
            shown = " ".join(f'"{piece} "' for piece in pieces).removesuffix(' "') + '"'
            name = self.facts.names[array.name]
            call = self.facts.call("_check_shape", f'"{array.name}"', name, shape, shown)
            if len(pieces) == 1 or fits(call, 1):
                lines += statement(call, 1)
                continue
            lines += [
                f"{INDENT}_check_shape(",
                *filled([f'"{array.name}"', name, shape], 2),
                *(f'{INDENT * 2}"{piece} "' for piece in pieces[:-1]),
                f'{INDENT * 2}"{pieces[-1]}"',
                f"{INDENT})",
            ]
        return lines

    def _check_reach(self) -> list[str]:
        """Return the checks of extents that need not be as large as the loops ask."""
        lines: list[str] = []
        seen: set[str] = set()
        shapes = {array.name: array.shape for array in self.facts.program.listing.arrays}
        for array, axis, lengths, least in self.facts.program.reached:
            shape = shapes.get(array, ())
            if array not in self.facts.names or axis >= len(shape):
                continue  # what a step has made is as large as its loops ask
            declared = shape[axis]
            extent = f"{self.facts.names[array]}.shape[{axis}]"
            if declared is not None:
                extent = index_python(declared, self.facts.names)
            needed = index_python(least, self.facts.names)
            condition = self._where(lengths, f"{extent} < {needed}")
            if condition in seen:
                continue
            seen.add(condition)
            lines += statement(f"if {condition}:", 1)
            values = f"{{{needed}}} elements along dimension {axis}; it has {{{extent}}}"
            lines += raised(f"{array} should have at least ", values, 2)
        return lines

    def _check_below(self) -> list[str]:
        """Return the checks of subscripts that may be negative."""
        lines: list[str] = []
        given = {array.name for array in self.facts.program.listing.arrays}
        for array, axis, lengths, least in self.facts.program.below:
            if array not in self.facts.names or array not in given:
                continue
            lowest = index_python(least, self.facts.names)
            is_known = isinstance(least, Int)
            condition = self._where(lengths, "" if is_known else f"{lowest} < 0")
            if not any(condition in line for line in lines):
                lines += statement(f"if {condition}:", 1)
                said = f"subscript {axis} of {array} would be negative: "
                lines += raised(*((said + lowest, "") if is_known else (said, f"{{{lowest}}}")), 2)
        return lines

    def _where(self, lengths: tuple[Index, ...], condition: str) -> str:
        """Return a condition where all the loops around have iterations."""
        if not lengths:
            return condition
        around = ", ".join(index_python(each, self.facts.names) for each in lengths)
        around = f"min({around})" if len(lengths) > 1 else around
        return f"{around} > 0 and {condition}" if condition else f"{around} > 0"

    def _check_contracts(self) -> list[str]:
        lines: list[str] = []
        for contract in self.facts.contracts:
            if contract.generators or arrays_in(contract.condition):
                continue
            if has_variables(contract.condition):
                continue
            try:
                failing = denied_python(contract.condition, self.facts.names)
            except NotPython:
                continue
            shown = contract_text(contract).removeprefix("assert ")
            names = mentioned(contract.condition)
            values = ", ".join(f"{name} = {{{self.facts.names[name]}}}" for name in names)
            lines += statement(f"if {failing}:", 1)
            lines += raised(f"the listing assumes {shown}; ", f"here {values}", 2)
        return lines

    def _check_contents(self) -> list[str]:
        if not self.facts.has_check:
            return []
        lines = [f"{INDENT}if check:"]
        for array in self.facts.ranged:
            assert array.value_range is not None
            low, high = (index_python(end, self.facts.names) for end in array.value_range)
            name = self.facts.names[array.name]
            lines += statement(f"if (({name} < {low}) | ({name} >= {high})).any():", 2)
            ends = [end if end.isdigit() else f"{{{end}}}" for end in (low, high)]
            said = f"{array.name} should hold integers from "
            lines += raised(said, f"{ends[0]} up to, not including, {ends[1]}", 3)
        for contract in self.facts.about_contents():
            if has_variables(contract.condition) and not contract.generators:
                continue
            copies = {
                array: self.facts.scope.name(
                    "copy", array, wanted=f"{self.facts.names[array]}_copy"
                )
                for array in arrays_in(contract.condition, contract.generators)
            }
            names = self.facts.names | copies
            try:
                condition = condition_python(contract.condition, names)
                bounds = generators_python(contract.generators, names)
            except (NotPython, KeyError):
                continue
            for array_name, copy in copies.items():
                line = f"{INDENT * 2}{copy} = {self.facts.names[array_name]}.cpu()"
                if line not in lines:
                    lines.append(line)
            text = f"not all({condition} {bounds})" if bounds else f"not ({condition})"
            lines += statement(f"if {text}:", 2)
            shown = contract_text(contract).removeprefix("assert ")
            lines += raised(f"the listing assumes {shown}", "", 3)
        return lines if len(lines) > 1 else []


def raised(said: str, values: str, depth: int) -> list[str]:
    """Return a `raise ValueError` with a text and values, over as many lines as it takes."""
    plain = said.replace("\\", "\\\\").replace('"', '\\"')
    whole = f'f"{plain.replace("{", "{{").replace("}", "}}")}{values}"' if values else f'"{plain}"'
    one = f"raise ValueError({whole})"
    if fits(one, depth):
        return [INDENT * depth + one]
    if fits(whole, depth + 1):
        lines = [whole]
    else:
        lines = [f'"{piece} "' for piece in words(plain, COLUMNS - len(INDENT) * (depth + 1) - 4)]
        lines[-1] = lines[-1] if values else lines[-1][:-2] + '"'
        lines += [f'f"{values}"'] if values else []
    return [
        f"{INDENT * depth}raise ValueError(",
        *(INDENT * (depth + 1) + line for line in lines),
        f"{INDENT * depth})",
    ]
