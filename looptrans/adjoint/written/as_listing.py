"""The nests of a backward listing, and what they are given, as a listing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from looptrans.adjoint.equations.definitions import Definition, System, plain_name
from looptrans.adjoint.equations.size import Sizes
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.adjoint.written.nests import Nest
from looptrans.adjoint.written.printing import Printed, body_text, shape_text
from looptrans.frontend import parse
from looptrans.ir.creation import in_16_bits, in_32_bits
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.index import Index, variables
from looptrans.ir.listing import contract_text, index_text
from looptrans.ir.program import Program
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.source import Source
from looptrans.ir.value import Generator
from looptrans.transforms.editing.extents import extent, extreme


@dataclass(frozen=True, slots=True)
class Text:
    """Writes backward listings.

    Attributes:
        program: The listing that was differentiated.
        system: Definitions, adjoints among them.
        sizes: Which of them are stored.
        outputs: The definition of each output.
        shown: What saved definitions are called in the listings.
    """

    program: Program
    system: System
    sizes: Sizes
    outputs: Mapping[str, str]
    shown: Mapping[str, str]

    def listing(
        self,
        saved: tuple[str, ...],
        made: tuple[Definition, ...],
        nests: tuple[Nest, ...],
        gradients: Mapping[str, tuple[Generator, ...]],
        incoming: Mapping[str, str],
    ) -> tuple[Program, dict[str, str]]:
        """Return the listing, and which definition each scalar and each array made in it is.

        Args:
            saved: What the forward hands over, in order: names of definitions.
            made: The definitions that are stored.
            nests: The nests, in order.
            gradients: The indices of each gradient, in the order in which they are returned.
            incoming: For each output that receives a gradient, the name of that.

        Raises:
            NotDifferentiated: It is no listing.
        """
        program = self.program
        names = dict(self.shown)
        # An output is called as the listing calls it; so may be what an earlier statement left.
        handed = {names.get(n, n) for n in saved}
        for definition in made:
            if definition.name in handed and names.get(definition.name) is None:
                names[definition.name] = self.system.names.array(definition.name)
        variables_ = {plain_name(g.variable) for n in nests for g in n.loops}
        variables_ |= {plain_name(g.variable) for n in nests for u in n.updates for g in u.inner}
        fixed = {*program.arguments, *(p.name for p in program.parameters)}
        fixed |= {*incoming.values(), *gradients}
        fixed |= {names.get(d.name, d.name) for d in made} | handed
        printed = Printed(variables_, names, fixed | variables_)
        annotations = {a.name: a.annotation for a in program.arrays}
        annotations |= {p.name: p.annotation for p in program.parameters}
        arguments = []
        for name in program.arguments:
            annotation = annotations.get(name)
            arguments.append(name if annotation is None else f"{name}: {annotation}")
        precise, short = in_32_bits(program), in_16_bits(program)
        for name in saved:
            definition = self.system.definitions[name]
            shown = names.get(name, name)
            is_short = name in self.sizes.outputs or shown in short
            kind = "Float" if is_short and shown not in precise else "Float32"
            arguments.append(f"{shown}: {self._annotation(definition.extents, kind)}")
        for output, name in incoming.items():
            extents = self.system.definitions[self.outputs[output]].extents
            kind = "Float32" if output in precise else "Float"
            arguments.append(f"{name}: {self._annotation(extents, kind)}")
        lines = [f"    {contract_text(c)}" for c in program.contracts]
        for definition in made:
            name = names.get(definition.name, definition.name)
            lines.append(f"    {self._created(name, definition.indices, True)}")
        for name, indices in gradients.items():
            lines.append(f"    {self._created(name, indices, False)}")
        for nest in nests:
            lines += ["    " + line for line in body_text(nest, printed)]
        lines.append(f"    return {', '.join(gradients)}")
        meant = printed.scalars | {names.get(d.name, d.name): d.name for d in made}
        arguments += [f"{name}: int" for name in self._sizes_given(arguments, lines)]
        head = f"def {program.name.replace('.', '_')}_backward({', '.join(arguments)}):"
        text = "\n".join([head, *lines]) + "\n"
        try:
            return parse(Source(f"<backward of {program.name}>", text)), meant
        except ListingError as error:
            first = error.mistakes[0]
            line = text.splitlines()[first.span.line - 1].strip() if first.span else "it"
            raise NotDifferentiated(
                f"what was derived is no listing: {first.message} in {line}"
            ) from None

    def _sizes_given(self, arguments: list[str], lines: list[str]) -> list[str]:
        """Return the sizes that only their use says are sizes: a value alone may have one left."""
        here = {word for line in lines for word in re.findall(r"\w+", line)}
        said = [*arguments, *map(contract_text, self.program.contracts)]
        known = {word for each in said for word in re.findall(r"\w+", each)}
        sizes = (p.name for p in self.program.parameters if p.is_integer)
        return [name for name in sizes if name in here - known]

    def _annotation(self, extents: tuple[Index, ...], kind: str) -> str:
        if any(variables(each) for each in extents):
            raise NotDifferentiated("an array that is saved has rows of different lengths")
        shape = tuple(extent(self.program, each) for each in extents)
        return f'{kind}[Array, "{shape_text(shape)}"]'

    def _created(self, name: str, indices: tuple[Generator, ...], precise: bool) -> str:
        if not indices:
            return f"{name} = 0.0"
        ranges = ranges_by_name(indices)
        extents = [extreme(g.range.stop, ranges, "highest") or g.range.stop for g in indices]
        inner = ", ".join(index_text(extent(self.program, each)) for each in extents)
        shape = f"({inner})" if len(extents) > 1 else inner
        return f"{name} = zeros({shape}, dtype=float32)" if precise else f"{name} = zeros({shape})"
