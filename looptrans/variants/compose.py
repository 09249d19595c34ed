"""The text of an attention listing, put together from the pieces that its options ask for."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from keyword import iskeyword

from looptrans.variants.conflicts import Conflict, require_legal
from looptrans.variants.options import GIVEN, Options
from looptrans.variants.pieces import Axes, Pieces, Step, element

WIDTH = 100
_INDENT = "    "


@dataclass(frozen=True, slots=True)
class Composed:
    """A listing and how it is called.

    Attributes:
        text: The listing.
        name: The function.
        arguments: The names of its arguments, in order; a constant that is the size of an array is
            not one to be given.
        outputs: The names of what it returns.
    """

    text: str
    name: str
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]


def compose(options: Options, name: str = "attention") -> Composed:
    """Write the listing of an attention variant.

    Args:
        options: What it does.
        name: What the function is called.

    Raises:
        Conflict: The options do not go together, or no function can have the name.
    """
    require_legal(options)
    if not name.isidentifier() or iskeyword(name):
        raise Conflict(
            (),
            f"the name {name!r}",
            "a function's is made of letters, digits and underscores, and is no word of Python",
        )
    return _composed(options, name)


@lru_cache(maxsize=256)
def _composed(options: Options, name: str) -> Composed:
    """Write the listing of options that go together."""
    writer = _Writer(options, Pieces(options))
    arguments = [*writer.tensors(), *writer.pieces.arguments]
    lines = [
        f"def {name}({', '.join(arguments)}):",
        *_indented(writer.docstring(), 1),
        *_indented(writer.body(), 1),
    ]
    pairs = (argument.split(": ") for argument in arguments)
    names = tuple(name for name, kind in pairs if kind != "Const")
    return Composed("\n".join(lines) + "\n", name, names, tuple(writer.outputs))


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two sets of weights of differential attention; elsewhere the only one.

    Attributes:
        mark: What its names end with.
    """

    mark: str

    @property
    def query(self) -> str:
        return f"Q{self.mark}"

    @property
    def key(self) -> str:
        return f"K{self.mark}"

    @property
    def scores(self) -> str:
        return f"S{self.mark}"

    @property
    def weight(self) -> str:
        return f"P{self.mark}"

    @property
    def top(self) -> str:
        return f"m{self.mark}"

    @property
    def total(self) -> str:
        return f"l{self.mark}"


@dataclass(slots=True)
class _Writer:
    options: Options
    pieces: Pieces
    label: int = 0

    @property
    def axes(self) -> Axes:
        return self.pieces.axes

    def score(self, side: _Side) -> str:
        """Return where a score is: of packed rows, which are of one batch, in a number."""
        return side.scores if self.axes.packed else self.axes.row(side.scores, "j")

    def again(self) -> list[str]:
        """Return the statements that work scores out in a later loop, where they are not kept."""
        if not self.axes.packed:
            return []
        return [line for side in self.sides for line in self._scores(side)]

    @property
    def sides(self) -> list[_Side]:
        return [_Side(""), _Side("2")] if self.options.differential else [_Side("")]

    @property
    def outputs(self) -> list[str]:
        return ["O", "lse"] if self.options.lse else ["O"]

    @property
    def value_size(self) -> str:
        return "E" if self.options.layout == "qkv" else "D"

    def tensors(self) -> list[str]:
        """Return the first arguments."""
        axes = self.axes
        if self.options.layout == "qkv":
            return [f'QKV: Float[Array, "{" ".join(axes.shape(axes.keys, "E:3"))}"]']
        query = " ".join(axes.shape(axes.queries, "E"))
        key = " ".join(axes.shape(axes.keys, "E", of_keys=True))
        value = " ".join(axes.shape(axes.keys, "D", of_keys=True))
        shapes = [(side.query, query) for side in self.sides[:1]]
        shapes += [(side.key, key) for side in self.sides[:1]]
        shapes += [("V", value)]
        for side in self.sides[1:]:
            shapes += [(side.query, query), (side.key, key)]
        return [f'{name}: Float[Array, "{shape}"]' for name, shape in shapes]

    # The docstring

    def docstring(self) -> list[str]:
        """Return the lines of the docstring."""
        paragraphs = [" ".join(self.pieces.says)] if self.pieces.says else []
        shapes = ", ".join(
            f"{name} is ({', '.join(shape.split())})" for name, shape in self._shapes()
        )
        results = " and ".join(f"{name} ({', '.join(s.split())})" for name, s in self._results())
        shapes += f"; the {'results are' if len(self.outputs) > 1 else 'result is'} {results}."
        lines = [f'"""{self._title()}', "", *_indented(self._formulas(), 1), ""]
        for paragraph in [shapes, *paragraphs]:
            lines += [*textwrap.wrap(paragraph, WIDTH - len(_INDENT)), ""]
        return [*lines[:-1], '"""']

    def _title(self) -> str:
        options = self.options
        kind = {"softmax": "Softmax attention", "sigmoid": "Sigmoid attention"}
        title = kind.get(options.weights, "Retention")
        if options.differential:
            title = f"Differential {title[0].lower()}{title[1:]}"
        heads = {"grouped": "grouped heads", "shared": "heads that share keys and values"}
        of = {"BH": "a batch of heads", "B": "a batch", "H": "heads", "": "one head"}
        where = heads.get(options.heads, of[self.axes.outer])
        return f"{title} for {where}."

    def _formulas(self) -> list[str]:
        lines = []
        for side in self.sides:
            query, key, _ = self._rows(side, "")
            text = self._scaled(f"({query} . {key})")
            for step in self.pieces.steps:
                text = step.text.format(text)
            lines.append(f"{self.axes.row(side.scores, 'j')} = {text}")
        kind = self.options.weights
        weights = {"softmax": "softmax_j({})", "sigmoid": "sigmoid({})"}.get(kind, "decay * {}")
        found = [weights.format(self.axes.row(side.scores, "j")) for side in self.sides]
        whole = found[0] if len(found) == 1 else f"({found[0]} - lam * {found[1]})"
        value = self._rows(self.sides[0], "")[2]
        lines.append(f"{self.axes.cell('O', 'i', '')} = sum_j {whole} * {value}")
        if self.options.lse:
            lines.append(f"{self.axes.row('lse')} = log(sum_j exp({self.axes.row('S', 'j')}))")
        return lines

    def _shapes(self) -> list[tuple[str, str]]:
        pairs = (argument.partition(": ") for argument in self.tensors())
        return [(name, kind.split('"')[1]) for name, _, kind in pairs]

    def _results(self) -> list[tuple[str, str]]:
        axes = self.axes
        shape = self._output_shape()
        found = [("O", " ".join(shape))]
        if self.options.lse:
            found.append(("lse", " ".join(axes.row_shape())))
        return found

    # The loops

    def body(self) -> list[str]:
        """Return the lines of the body."""
        options, axes = self.options, self.axes
        lines = []
        if options.heads == "grouped":
            lines.append("assert H == G * R")
        if axes.packed:
            for name in ("cu_q",) if options.pages else ("cu_q", "cu_k"):
                lines.append(f"assert all({name}[b] <= {name}[b + 1] for b in range(0, B))")
        rows = ", ".join(axes.row_shape())
        whole = ", ".join([*axes.row_shape(), axes.count])
        if options.weights == "softmax" and not axes.packed:
            lines += [f"{side.scores} = zeros(({whole}))" for side in self.sides]
        shape = ", ".join(self._output_shape())
        lines.append(f"O = zeros(({shape}))")
        if options.differential and options.weights == "softmax":
            lines.append(f"O2 = zeros(({shape}))")
        if options.lse:
            # Rows beyond a length, or in no sequence, are those of no key.
            kind = f"({rows})" if len(axes.row_shape()) > 1 else rows
            lines.append(f"lse = full({kind}, -inf, dtype=float32)")
        depth = 0
        for size, variable in (("B", "b"), ("H", "h")):
            if size in axes.outer:
                lines += _indented([f"for {variable} in range(0, {size}):"], depth)
                depth += 1
        lines += _indented([f"for i in range({axes.rows}):"], depth)
        passes = self._softmax() if options.weights == "softmax" else self._apart()
        lines += _indented(passes, depth + 1)
        return [*lines, f"return {', '.join(self.outputs)}"]

    def _output_shape(self) -> list[str]:
        axes = self.axes
        if self.options.layout == "qkv":
            return [size for size in axes.shape(axes.keys, "E:3") if size != "3"]
        return axes.shape(axes.queries, "D")

    def _softmax(self) -> Iterator[str]:
        """Yield the three passes over the keys: the maximum, the sum, the weighted sum of V."""
        sink = element("sinks", *("h" if self.axes.has_heads else ""))
        has_sink = self.options.sinks
        for side in self.sides:
            first = sink if has_sink else "-inf"
            what = "the sink is there from the start" if has_sink else "the maximum of nothing"
            yield self._labelled(f"{side.top} = {first}", what)
        yield self._loop()
        for side in self.sides:
            yield from _indented(self._scores(side), 1)
            text = f"{side.top} = max({side.top}, {self.score(side)})"
            yield from _indented([self._labelled(text, "Aggregation over j")], 1)
        for side in self.sides:
            first = f"exp({sink} - {side.top})" if has_sink else "0.0"
            what = "the share of the sink" if has_sink else "an empty sum"
            yield self._labelled(f"{side.total} = {first}", what)
        yield self._loop()
        yield from _indented(self.again(), 1)
        for side in self.sides:
            text = f"{side.total} = {side.total} + {self._exponential(side)}"
            yield from _indented([self._labelled(text, "Aggregation over j")], 1)
        yield self._loop()
        yield from _indented(self.again(), 1)
        weights = [f"{self._exponential(side)} / {side.total}" for side in self.sides]
        yield from _indented(self._sum(weights, "the weighted mean of the rows of V"), 1)
        if len(weights) > 1:
            yield f"for d in range(0, {self.value_size}):"
            first, second = (self.axes.cell(f"O{side.mark}", "i", "d") for side in self.sides)
            text = f"{first} = {first} - lam * {second}"
            yield from _indented([self._labelled(text, "the one less the other")], 1)
        if self.options.lse:
            yield self._labelled(f"{self.axes.row('lse')} = m + log(l)", "the log-sum-exp of row i")

    def _apart(self) -> Iterator[str]:
        """Yield the one pass over the keys where each score has its weight alone."""
        yield self._loop()
        for side in self.sides:
            yield from _indented(self._scores(side), 1)
        weights = [side.weight for side in self.sides]
        if len(weights) > 1:
            weights = [f"({weights[0]} - lam * {weights[1]})"]
        yield from _indented(self._sum(weights, "the weighted sum of the rows of V"), 1)

    def _loop(self) -> str:
        return f"for j in range({', '.join(self.pieces.keys)}):"

    def _exponential(self, side: _Side) -> str:
        return f"exp({self.score(side)} - {side.top})"

    def _scores(self, side: _Side) -> list[str]:
        """Return the statements that work out a score, or a weight where it stands alone."""
        query, key, _ = self._rows(side, "e")
        product = f"sum({query} * {key} for e in range(0, E))"
        steps = [Step("s", self._scaled(product), "the scaled score")]
        steps += self.pieces.steps
        apart = self.options.weights != "softmax"
        if apart:
            steps.append(self.pieces.weight("{}"))
        seen = " and ".join(self.pieces.seen)
        if seen:
            hidden = "-inf" if self.options.weights == "softmax" else "0.0"
            steps.append(
                Step("seen", f"{{}} if {seen} else {hidden}", "hidden keys count for nothing")
            )
        last = side.weight if apart else self.score(side)
        lines, before = [], ""
        for number, step in enumerate(steps, 1):
            name = last if number == len(steps) else f"{step.name}{side.mark}"
            lines.append(self._labelled(f"{name} = {step.text.format(before)}", step.comment))
            before = name
        return lines

    def _rows(self, side: _Side, last: str) -> tuple[str, str, str]:
        """Return rows of Q, K and V, or elements of them where `last` is not empty."""
        axes = self.axes
        if self.options.layout == "qkv":
            places = zip("ijj", (0, 1, 2), strict=True)
            query, key, value = (axes.cell("QKV", row, f"{last}:{part}") for row, part in places)
            return query, key, value
        key, value = (axes.cell(name, "j", last, of_keys=True) for name in (side.key, "V"))
        return axes.cell(side.query, "i", last), key, value

    def _scaled(self, product: str) -> str:
        scale = self.options.scale
        if scale is None:
            return f"{product} * (1.0 / sqrt(E))"
        return f"{'scale' if scale == GIVEN else repr(float(scale))} * {product}"

    def _sum(self, weights: list[str], comment: str) -> list[str]:
        """Return the loop that adds the values, weighted."""
        axes = self.axes
        value = self._rows(self.sides[0], "d")[2]
        lines = [f"for d in range(0, {self.value_size}):"]
        for side, weight in zip(self.sides, weights, strict=False):
            out = axes.cell(f"O{side.mark}", "i", "d:" if self.options.layout == "qkv" else "d")
            text = f"{out} = {out} + {self.pieces.dropped(weight)} * {value}"
            lines.append(_INDENT + self._labelled(text, comment))
        return lines

    def _labelled(self, text: str, comment: str) -> str:
        self.label += 1
        return f"{text}  # S{self.label}: {comment}"


def _indented(lines: list[str] | Iterator[str], depth: int) -> list[str]:
    return [f"{_INDENT * depth}{line}" if line else "" for line in lines]
