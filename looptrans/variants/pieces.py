"""The pieces of an attention listing: what each option adds to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from looptrans.variants.options import GIVEN, Length, Options

LOOP = {"B": "b", "H": "h", "M": "i", "N": "j"}


@dataclass(frozen=True, slots=True)
class Step:
    """One step on the way to a score, or to a weight.

    Attributes:
        name: What it makes.
        text: The expression; `{}` is what the step before has made.
        comment: What it is.
    """

    name: str
    text: str
    comment: str


@dataclass(frozen=True, slots=True)
class Axes:
    """Where the cells of the arrays of a listing are.

    Attributes:
        options: The options.
    """

    options: Options

    @property
    def packed(self) -> bool:
        """Whether sequences lie one after the other."""
        return self.options.layout == "packed"

    @property
    def has_heads(self) -> bool:
        """Whether queries have heads."""
        return self.options.heads != "none"

    @property
    def outer(self) -> str:
        """The sizes of the loops around a row, of `B` and `H`."""
        return "B" * self.options.batch + "H" * self.has_heads

    @property
    def queries(self) -> str:
        """The size of the axis of queries."""
        return "T" if self.packed else "N" if self.options.layout == "qkv" else "M"

    @property
    def keys(self) -> str:
        """How many keys there are for a batch, or packed for all."""
        if self.options.pages:
            return "L*PAGE"
        return "U" if self.packed else "N"

    def _placed(self, batch: str, head: str, row: str, last: str) -> list[str]:
        """Return sizes, or subscripts, in the order of the layout; empty ones are left out."""
        layout = self.options.layout
        if layout == "bhsd":
            found = [batch, head, row, last]
        elif layout == "bshd":
            found = [batch, row, head, last]
        elif layout == "packed":
            found = [row, head, last]
        else:
            found = [batch, row, last.partition(":")[2], head, last.partition(":")[0]]
        return [each for each in found if each]

    def _head(self, *, of_keys: bool, size: bool) -> str:
        heads = self.options.heads
        if heads == "none" or (of_keys and heads == "shared"):
            return ""
        if of_keys and heads == "grouped":
            return "G" if size else "h // R"
        return "H" if size else "h"

    def shape(self, row: str, last: str, *, of_keys: bool = False) -> list[str]:
        """Return the shape of Q, K, V or O."""
        batch, head = "B" if self.options.batch else "", self._head(of_keys=of_keys, size=True)
        if of_keys and self.options.pages:
            return [size for size in ("C", "PAGE", head, last) if size]
        return self._placed(batch, head, row, last)

    def cell(self, array: str, row: str, last: str, *, of_keys: bool = False) -> str:
        """Return a cell of Q, K, V or O."""
        batch, head = "b" if self.options.batch else "", self._head(of_keys=of_keys, size=False)
        if of_keys and self.options.pages:
            where = [at for at in (f"page[b, {row} // PAGE]", f"{row} % PAGE", head, last) if at]
        else:
            where = self._placed(batch, head, row, last)
        return f"{array}[{', '.join(where)}]"

    def row_shape(self) -> list[str]:
        """Return the shape of what there is one of for each row."""
        outer = self.outer.replace("B", "") if self.packed else self.outer
        return [*outer, self.queries]

    def row(self, array: str, *more: str) -> str:
        """Return the cell of a row."""
        outer = self.outer.replace("B", "") if self.packed else self.outer
        return element(array, *(LOOP[axis] for axis in outer), "i", *more)

    def declared(self, axes: str) -> str:
        """Return the shape of an array with some of the axes `BHMN`, as it is declared."""
        sizes = {"M": self.queries, "N": self.keys}
        return " ".join(sizes.get(axis, axis) for axis in axes)

    @property
    def level(self) -> str:
        """The key that query i is level with, `i` plus what stands behind."""
        if self.packed:
            if self.options.alignment == "top_left":
                return "i - cu_q[b]" + (f" + {self.first}" if self.first != "0" else "")
            return f"i - cu_q[b + 1] + {self.last}"
        if self.options.alignment == "top_left":
            return "i"
        return f"i + {self.last} - {'n_q[b]' if self.options.q_lengths else self.queries}"

    @property
    def last(self) -> str:
        """How many keys there are; where the keys of a sequence end."""
        if self.packed and not self.options.pages:
            return "cu_k[b + 1]"
        return "n_kv[b]" if self.options.kv_lengths else self._spaced(self.keys)

    @property
    def first(self) -> str:
        """Where the keys begin."""
        return "cu_k[b]" if self.packed and not self.options.pages else "0"

    @property
    def count(self) -> str:
        """How many keys there is room for, as a number."""
        return self._spaced(self.keys)

    @staticmethod
    def _spaced(size: str) -> str:
        return size.replace("*", " * ")

    @property
    def rows(self) -> str:
        """The range of the loop over the queries."""
        if self.packed:
            return "cu_q[b], cu_q[b + 1]"
        return f"0, {'n_q[b]' if self.options.q_lengths else self.queries}"


def element(array: str, *subscripts: str) -> str:
    """Return an element of an array, or a number where there are no subscripts."""
    return f"{array}[{', '.join(subscripts)}]" if subscripts else array


def _at(axes: str) -> tuple[str, ...]:
    return tuple(LOOP[axis] for axis in axes)


@dataclass(slots=True)
class Pieces:
    """What the options add.

    Attributes:
        options: The options.
        axes: Where the cells of the arrays are.
        arguments: The arguments after Q, K and V, as `name: annotation`.
        steps: The steps from the scaled score to the score.
        seen: Conditions under which a key is seen, besides the range of j.
        says: Sentences for the docstring.
    """

    options: Options
    axes: Axes = field(init=False)
    arguments: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    says: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.axes = Axes(self.options)
        for add in (
            self._differential,
            self._scale,
            self._softcap,
            self._bias,
            self._relative,
            self._alibi,
            self._band,
            self._documents,
            self._mask,
            self._sinks,
            self._pages,
            self._lengths,
            self._retention,
            self._dropout,
        ):
            add()

    def _array(self, name: str, kind: str, shape: str, values: str = "") -> None:
        """Add an array, or a number where it has no axes."""
        if not shape:
            self.arguments.append(f"{name}: {'int' if kind == 'Int' else 'float'}")
            return
        more = f', "{values}"' if values else ""
        self.arguments.append(f'{name}: {kind}[Array, "{shape}"{more}]')

    # Scores

    def _differential(self) -> None:
        if self.options.differential:
            self.arguments.append("lam: float")
            self.says.append(
                "The weights of Q2 and K2, lam times, are taken off those of Q and K: what both "
                "give a key is noise."
            )

    def _scale(self) -> None:
        if self.options.scale == GIVEN:
            self.arguments.append("scale: float")

    def _softcap(self) -> None:
        cap = self.options.softcap
        if cap is None:
            return
        if cap == GIVEN:
            self.arguments.append("softcap: float")
        name = "softcap" if cap == GIVEN else repr(float(cap))
        self.steps.append(
            Step("capped", f"{name} * tanh({{}} / {name})", f"between -{name} and {name}")
        )
        self.says.append(
            f"tanh keeps every score between -{name} and {name}; small scores stay what they are."
        )

    def _bias(self) -> None:
        axes = self.options.bias
        if axes is None:
            return
        self._array("bias", "Float", self.axes.declared(axes))
        where = element("bias", *_at(axes))
        self.steps.append(Step("biased", f"{{}} + {where}", "the bias"))
        shape = self.axes.declared(axes).replace(" ", ", ")
        self.says.append(
            f"bias is ({shape}): an access that does not mention a loop is the same for all its "
            "iterations, so nothing is copied, and its gradient is a sum over them."
        )

    def _relative(self) -> None:
        if not self.options.relative:
            return
        head = ("H", "h") if self.axes.has_heads else ("", "")
        extent = f"{self.axes.queries}+{self.axes.keys}-1"
        self._array("relative", "Float", f"{head[0]} {extent}".strip())
        table = element("relative", *(h for h in head[1:] if h), f"i - j + {self.axes.count} - 1")
        self.steps.append(Step("placed", f"{{}} + {table}", "the bias of the distance i - j"))
        self.says.append(
            "relative has an entry for each distance i - j, and its gradient is a sum along each "
            "diagonal of the scores."
        )

    def _alibi(self) -> None:
        axes = self.options.alibi
        if axes is None:
            return
        self._array("slopes", "Float", self.axes.declared(axes))
        slope = element("slopes", *_at(axes))
        distance = f"({self.axes.level} - j)"
        if not self.options.causal or self.options.prefix:
            distance = f"abs{distance}"
        self.steps.append(
            Step("sloped", f"{{}} - {slope} * {distance}", "the penalty of the distance")
        )
        self.says.append("The further away a key is, the less it counts: each step costs a slope.")

    # Which keys are seen

    def _band(self) -> None:
        options = self.options
        for name, where in (("window_left", "before"), ("window_right", "behind")):
            value = getattr(options, name)
            if value == GIVEN:
                self.arguments.append(f"{name}: int")
            if value is not None:
                seen = f"{value_text(name, value)} {'is' if value == 1 else 'are'} seen"
                self.says.append(f"Of the keys {where} the one query i is level with, {seen}.")
        if options.causal:
            self.says.append(f"Query i sees no key behind {_plain(self.axes.level)}.")
        if options.prefix:
            extent = f"0:{self.axes.keys}+1"
            self._array("prefix", "Int", "B" if options.batch else "", extent)
            where = "prefix[b]" if options.batch else "prefix"
            self.says.append(f"The first {where} keys are seen by all queries.")
            if options.window_left is not None:
                left = value_text("window_left", options.window_left)
                self.seen.append(f"(j < {self._prefix} or j >= {self.axes.level} - {left})")

    @property
    def _prefix(self) -> str:
        """The key that the prefix ends before."""
        prefix = "prefix[b]" if self.options.batch else "prefix"
        return prefix if self.axes.first == "0" else f"{self.axes.first} + {prefix}"

    @property
    def keys(self) -> tuple[str, str]:
        """The range of the loop over the keys."""
        options, axes = self.options, self.axes
        first, last = axes.first, axes.last
        if options.window_left is not None and not options.prefix:
            left = value_text("window_left", options.window_left)
            first = f"max({first}, {axes.level} - {left})"
        right = 0 if options.causal else options.window_right
        if right is not None:
            more = "window_right + 1" if right == GIVEN else str(int(right) + 1)
            end = f"{axes.level} + {more}"
            if options.prefix:
                end = f"max({self._prefix}, {end})"
            last = f"min({last}, {end})"
        return first, last

    def _documents(self) -> None:
        if not self.options.documents:
            return
        axes, packed = self.axes, self.axes.packed
        same = axes.queries == axes.keys
        names = ("doc", "doc") if same else ("doc_q", "doc_k")
        has_batch = (self.options.batch and not packed, self.options.batch and axes.first == "0")
        sizes = (axes.queries, axes.keys)
        for name, size, batch in dict.fromkeys(zip(names, sizes, has_batch, strict=True)):
            self._array(name, "Int", f"B {size}" if batch else size)
        cells = [
            element(name, *("b" * batch), loop)
            for name, batch, loop in zip(names, has_batch, "ij", strict=True)
        ]
        self.seen.append(" == ".join(cells))
        self.says.append("A query sees the keys of its own document.")

    def _mask(self) -> None:
        axes = self.options.mask
        if axes is None:
            return
        self._array("mask", "Bool", self.axes.declared(axes))
        self.seen.append(element("mask", *_at(axes)))
        self.says.append("A key is hidden where the mask is False.")

    def _sinks(self) -> None:
        if self.options.sinks:
            self._array("sinks", "Float", "H" if self.axes.has_heads else "")
            self.says.append(
                "The sink is a score without a value: it takes a share of the weights, so that "
                "those of the keys add up to less than 1."
            )

    def _pages(self) -> None:
        if not self.options.pages:
            return
        self._array("page", "Int", "B L", "0:C")
        self.arguments.append("PAGE: Const")
        self.says.append(
            "Keys and values lie in pages of PAGE, in any order: key j of batch b is row "
            "j % PAGE of the page page[b, j // PAGE]."
        )

    def _lengths(self) -> None:
        options = self.options
        if self.axes.packed and options.pages:
            self.arguments.append('cu_q: Int[Array, "B+1", "0:T+1"]')
            self.says.append("The queries of batch b are the rows cu_q[b] .. cu_q[b + 1] - 1 of Q.")
        elif self.axes.packed:
            for name, size in (("cu_q", "T"), ("cu_k", "U")):
                self.arguments.append(f'{name}: Int[Array, "B+1", "0:{size}+1"]')
            self.says.append(
                "The queries of batch b are the rows cu_q[b] .. cu_q[b + 1] - 1 of Q, its keys the "
                "rows cu_k[b] .. cu_k[b + 1] - 1 of K and V."
            )
        for name, array, size, what in (
            ("q_lengths", "n_q", self.axes.queries, "queries"),
            ("kv_lengths", "n_kv", self.axes.keys, "keys"),
        ):
            if getattr(options, name):
                self._array(array, "Int", "B", f"0:{size}+1")
                self.says.append(f"Batch b has {array}[b] {what}.")

    # Weights

    def _retention(self) -> None:
        if self.options.weights == "retention":
            self._array("rate", "Float", "H" if self.axes.has_heads else "")
            self.says.append(
                "A weight is the score times exp(-rate) to the power of the distance: there is no "
                "softmax, and one pass is enough."
            )
        if self.options.weights == "sigmoid":
            self.says.append(
                "The logistic function of s is 0.5 + 0.5 * tanh(0.5 * s), which overflows nowhere: "
                "every score has its weight alone, and one pass is enough."
            )

    def weight(self, score: str) -> Step:
        """Return the weight of a score where weights do not depend on each other."""
        if self.options.weights == "sigmoid":
            return Step("w", f"0.5 + 0.5 * tanh(0.5 * {score})", "its logistic function")
        rate = element("rate", *("h" if self.axes.has_heads else ""))
        level = self.axes.level
        distance = f"({level})" if level != "i" else level
        return Step("w", f"{score} * exp(-{rate} * ({distance} - j))", "decayed with the distance")

    def _dropout(self) -> None:
        if self.options.dropout is None:
            return
        self.says.append(
            "Of the weights those that are kept are divided by 1 - p, and the others are 0; the "
            "sum that they are divided by before is the one of all."
        )
        if self.options.dropout == "mask":
            axes = self.axes.outer + "MN"
            self._array("keep", "Bool", self.axes.declared(axes))
        self.arguments.append("p: float")
        if self.options.dropout == "philox":
            self.arguments.append("seed: Seed")

    def dropped(self, weight: str) -> str:
        """Return a weight after dropout."""
        kind = self.options.dropout
        if kind is None:
            return weight
        if kind == "mask":
            kept = element("keep", *_at(self.axes.outer), "i", "j")
        else:
            head = {"BH": "b * H + h", "B": "b", "H": "h", "": "0"}[self.axes.outer]
            kept = f"uniform(seed, {head}, i, j) >= p"
        return f"({weight} / (1.0 - p) if {kept} else 0.0)"


def value_text(name: str, value: Length) -> str:
    """Return a number as it stands in a listing: its name where it is an argument."""
    return name if value == GIVEN else str(value)


def _plain(level: str) -> str:
    return f"key {level}" if level == "i" else level
