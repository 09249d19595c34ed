"""The launcher of a block program as text: its signature and docstring, and its parts."""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.blocks.block_ir.ops import Store, ops_in
from looptrans.emit.checks import Checks
from looptrans.emit.facts import Facts
from looptrans.emit.head import array_text
from looptrans.emit.launches import Launches, literal
from looptrans.emit.layout import COLUMNS, INDENT, filled, fits, words
from looptrans.ir.listing import contract_text, index_text
from looptrans.ir.program import Array, Parameter, Program
from looptrans.transforms.editing.accesses import listed

_WORDS = {
    "float": "float16, bfloat16 or float32",
    "int": "int32 or int64",
    "bool": "bool",
}


@dataclass(frozen=True, slots=True)
class Option:
    """An argument of a launcher that the listing does not have.

    Attributes:
        name: Its name.
        default: Its default, as Python.
        text: What it is, a sentence.
    """

    name: str
    default: str
    text: str


@dataclass(frozen=True, slots=True)
class Launcher:
    """Writes the launcher of a program.

    Attributes:
        facts: The program.
    """

    facts: Facts

    def lines(self) -> list[str]:
        """Return the definition of the launcher."""
        body = [*Checks(self.facts).lines(), *Launches(self.facts).lines()]
        return [*self.head(), *body]

    def options(self) -> list[Option]:
        """Return arguments beside those that every launcher has."""
        return []

    def head(self) -> list[str]:
        """Return the first lines of the definition, the docstring included."""
        head = f"def {self.facts.name}({', '.join(self.signature())}):"
        lines = [head] if fits(head, 0) else [f"def {self.facts.name}(", *self._wrapped(), "):"]
        return [*lines, *self._docstring()]

    def _wrapped(self) -> list[str]:
        return filled(self.signature(), 1, ended=False)

    def signature(self) -> list[str]:
        """Return the arguments as they stand in the definition."""
        numbers = {
            p.name: p for p in (*self.facts.parameters.reals, *self.facts.parameters.integers)
        }
        parts: list[str] = []
        has_default = False
        for name in self.facts.parameters.names:
            default = numbers[name].default if name in numbers else None
            if default is None and has_default and "*" not in parts:
                parts.append("*")
            has_default |= default is not None
            parts.append(
                self.facts.names[name] + (f"={literal(default)}" if default is not None else "")
            )
        if "*" not in parts:
            parts.append("*")
        parts += [f"{option.name}={option.default}" for option in self.options()]
        parts += ["wanted=None"] * (self.facts.needs is not None)
        parts += ["out=None"] * bool(self.facts.given)
        parts += ["tune=True"] * any(c.tuned for c in self.facts.configurations)
        parts += ["check=False"] * self.facts.has_check
        return parts if parts[-1] != "*" else parts[:-1]

    def _docstring(self) -> list[str]:
        title = self.facts.title or title_of(self.facts.program.listing)
        title = title.replace("\\", "\\\\").replace('"""', "'''")
        lines = _paragraph(f'"""{title}', INDENT)
        lines += ["", f"{INDENT}Args:"]
        numbers = {
            p.name: p for p in (*self.facts.parameters.reals, *self.facts.parameters.integers)
        }
        arrays = {array.name: array for array in self.facts.parameters.arrays}
        for name in self.facts.parameters.names:
            lines += _entry(
                self.facts.names[name], _described(arrays.get(name), numbers.get(name), self.facts)
            )
        for option in self.options():
            lines += _entry(option.name, option.text)
        if self.facts.needs is not None:
            lines += _entry(
                "wanted",
                "The names of the gradients that are asked for; all by default. The others are "
                "None, and cost nothing.",
            )
        if len(self.facts.given) == 1:
            lines += _entry(
                "out",
                f"What {self.facts.given[0]} is written to; a new tensor by default. It shares no "
                "memory with an argument.",
            )
        elif self.facts.given:
            names = ", ".join(self.facts.given)
            lines += _entry(
                "out",
                f"A tuple of what {names} are written to; new by default. None shares memory with "
                "another one or with an argument.",
            )
        if any(c.tuned for c in self.facts.configurations):
            lines += _entry("tune", "Whether a GPU tries several block sizes; else the default.")
        if self.facts.has_check:
            about = [contract_text(c).removeprefix("assert ") for c in self.facts.about_contents()]
            about += [f"the declared range of {array.name}" for array in self.facts.ranged]
            text = f"Whether to check what is assumed of contents: {'; '.join(about)}."
            lines += _entry("check", f"{text} It waits for the GPU; without it, they are trusted.")
        if self.facts.program.outputs:
            shown = [self._output_text(name) for name in self.facts.program.outputs]
            text = " ".join([f"{', '.join(shown)}.", *self._in_no_order()])
            lines += ["", f"{INDENT}Returns:", *_paragraph(text, INDENT * 2)]
        lines += ["", f"{INDENT}Raises:"]
        lines += _entry("ValueError", "An argument does not fit; the message says which and how.")
        return [*lines, f'{INDENT}"""']

    def _in_no_order(self) -> list[str]:
        """Return a sentence on floats that programs add up as they come, where there are any."""
        added = {
            op.array
            for kernel in self.facts.program.kernels
            for op in ops_in(kernel.body)
            if isinstance(op, Store) and op.folded == "sum"
        }
        floats = {
            a.name for k in self.facts.program.kernels for a in k.arrays if a.element == "float"
        }
        found = sorted(added & floats)
        if not found:
            return []
        text = "is added up" if len(found) == 1 else "are added up"
        return [f"{listed(found)} {text} in no fixed order: two runs may differ in the last bits."]

    def _output_text(self, name: str) -> str:
        if name in self.facts.made:
            made = self.facts.made[name]
            is_kept = made.dtype and not Launches(self.facts).is_rounded(made)
            kept = f" in {made.dtype}" if is_kept else ""
            return array_text(name, made.shape) + kept
        return f"{name}, the argument"


def title_of(listing: Program) -> str:
    """Return the first sentences of a launcher's docstring."""
    first = (listing.docstring or "").strip().split("\n\n")[0]
    title = " ".join(first.split()) or f"Run the listing {listing.name} on torch tensors."
    return title if title.endswith((".", "!", "?", ":")) else title + "."


def _described(array: Array | None, number: Parameter | None, facts: Facts) -> str:
    if array is not None:
        fixed = facts.fixed(array) or facts.typed.get(array.name)
        where = array_text("", array.shape).strip() if array.rank else "a number"
        text = f"{where}, {fixed or _WORDS[array.element]}, any strides"
        if array.name in facts.written:
            text += "; it is changed in place"
        if array.value_range is not None:
            low, high = (index_text(end) for end in array.value_range)
            text += f"; values from {low} up to, not including, {high}"
        return text + "."
    assert number is not None
    return "An integer." if number.is_integer else "A real number."


def _entry(name: str, text: str) -> list[str]:
    lines = words(f"{name}: {text}", COLUMNS - 3 * len(INDENT))
    return [INDENT * 2 + lines[0], *(INDENT * 3 + line for line in lines[1:])]


def _paragraph(text: str, indent: str) -> list[str]:
    return [indent + line for line in words(text, COLUMNS - len(indent))]
