"""Softmax attention with the options that torch knows: arrays, scale, mask, bias, soft cap."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch

# The axes of an array as (batch, head, row, column), None for one that it has not. Heads may stand
# before or behind rows.
Axes: TypeAlias = tuple[int | None, int | None, int, int]
LAYOUTS: Mapping[int, tuple[Axes, ...]] = {
    2: ((None, None, 0, 1),),
    3: ((None, 0, 1, 2), (None, 1, 0, 2)),
    4: ((0, 1, 2, 3), (0, 2, 1, 3)),
}
Rule: TypeAlias = Callable[[Any, Any, Any], Any]
MaskKind: TypeAlias = Literal[
    "none",
    "upper_left",
    "lower_right",
    "lengths",
    "prefix",
    "documents",
    "window",
    "two_sided",
    "band",
]


@dataclass(frozen=True, slots=True)
class Mask:
    """Which keys a query sees.

    none          all
    upper_left    j <= i
    lower_right   j <= i + N - M
    lengths       j < lengths[b], an integer array
    prefix        j < prefix[b] or j <= i, an integer array
    documents     doc[i] == doc[j] and j <= i, or without the latter
    window        i - width < j <= i, `beyond` added to the width
    two_sided     |i - j| < width, `beyond` added to the width
    band          i - width <= j <= i + other

    Attributes:
        kind: One of these.
        name: The array or the size it is made of.
        beyond: 1 where the comparison with a width is `<=`.
        causal: Whether `documents` are causal.
        other: The second size of a band.
    """

    kind: MaskKind = "none"
    name: str = ""
    beyond: int = 0
    causal: bool = False
    other: str = ""

    def __str__(self) -> str:
        match self.kind:
            case "none":
                return ""
            case "upper_left":
                return "j <= i"
            case "lower_right":
                return "j <= i + N - M"
            case "lengths":
                return f"j < {self.name}[b]"
            case "prefix":
                return f"j < {self.name}[b] or j <= i"
            case "band":
                return f"i - {self.name} <= j <= i + {self.other}"
            case "documents":
                return f"{self.name}[i] == {self.name}[j]" + (" and j <= i" if self.causal else "")
            case "window":
                return f"i - {self.name} {'<=' if self.beyond else '<'} j <= i"
            case "two_sided":
                return f"|i - j| {'<=' if self.beyond else '<'} {self.name}"

    def held(self, values: Mapping[str, Any]) -> Any:
        """Return what it is made of, of arrays and sizes by name: a pair for a band."""
        found = values.get(self.name)
        return (found, values[self.other]) if self.kind == "band" else found

    def rule(self, many: tuple[int, int], values: Any) -> Rule:
        """Return what tells from (batch, query, key) whether a key is seen.

        It takes integer tensors of any shapes that broadcast, and is plain enough for a compiler.

        Args:
            many: How many queries and keys there are.
            values: What `held` gives.
        """
        match self.kind:
            case "none":
                return lambda b, i, j: j >= 0
            case "upper_left":
                return lambda b, i, j: j <= i
            case "lower_right":
                shift = many[1] - many[0]
                return lambda b, i, j: j <= i + shift
            case "lengths":
                return lambda b, i, j: j < values[b]
            case "prefix":
                return lambda b, i, j: (j < values[b]) | (j <= i)
            case "band":
                before, behind = values
                return lambda b, i, j: (i - j <= before) & (j - i <= behind)
            case "documents":
                same = _same_document(values)
                return (lambda b, i, j: same(b, i, j) & (j <= i)) if self.causal else same
            case "window":
                width = values + self.beyond
                return lambda b, i, j: (j <= i) & (i - j < width)
            case "two_sided":
                width = values + self.beyond
                return lambda b, i, j: (i - j < width) & (j - i < width)


def _same_document(values: Any) -> Rule:
    """Return what tells whether a query and a key are of one document, for each batch or all."""
    if values.ndim == 2:
        return lambda b, i, j: values[b, i] == values[b, j]
    return lambda b, i, j: values[i] == values[j]


@dataclass(frozen=True, slots=True)
class Change:
    """What is done to the scaled scores: an array added to them, slopes, a soft cap.

    Attributes:
        kind: `bias` adds an array, `slopes` adds slope[h] * (j - i), or -|j - i| where `even`,
            `softcap` is c * tanh(score / c), `relative` adds an entry of array[h, i - j + N - 1].
        name: The array or real parameter.
        axes: For a bias, which of (batch, head, query, key) its dimensions are.
        even: Whether slopes are of |j - i|.
    """

    kind: Literal["bias", "slopes", "softcap", "relative"]
    name: str
    axes: tuple[int, ...] = ()
    even: bool = False

    def __str__(self) -> str:
        match self.kind:
            case "bias":
                return f"+ {self.name}[{', '.join('bhij'[axis] for axis in self.axes)}]"
            case "slopes":
                return f"{'-' if self.even else '+'} {self.name}[h] * " + (
                    "|j - i|" if self.even else "(j - i)"
                )
            case "softcap":
                return f"within {self.name} by tanh"
            case "relative":
                return f"+ {self.name}[h, i - j + N - 1]"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A listing as softmax attention.

    Attributes:
        query: The array of queries.
        key: The array of keys.
        value: The array of values.
        output: The output that is the attention.
        layout: The axes of these four.
        scale: The real parameter the scores are multiplied with; `1/sqrt(E)`, or `1`.
        mask: Which keys a query sees.
        change: What else is done to the scores.
    """

    query: str
    key: str
    value: str
    output: str
    layout: Axes
    scale: str
    mask: Mask = Mask()
    change: Change | None = None

    @property
    def differentiable(self) -> tuple[str, ...]:
        """The arrays that have gradients."""
        more = () if self.change is None or self.change.kind == "softcap" else (self.change.name,)
        return (self.query, self.key, self.value, *more)

    def __str__(self) -> str:
        score = f"{self.scale} * {self.query} {self.key}'"
        if self.change is not None:
            score = f"{score} {self.change}"
        text = f"{self.output} = softmax({score}) {self.value}"
        return f"{text}, {self.mask}" if self.mask.kind != "none" else text

    def factor(self, reals: Mapping[str, float], columns: int) -> float:
        """Return what scores are multiplied with."""
        if self.scale == "1":
            return 1.0
        return reals[self.scale] if self.scale in reals else 1 / math.sqrt(max(columns, 1))


def viewed(tensor: torch.Tensor, axes: Axes) -> torch.Tensor:
    """Return an array as (batch, head, row, column), with extents of 1 for what it has not."""
    own = tensor.permute([axis for axis in axes if axis is not None])
    for place, axis in enumerate(axes):
        if axis is None:
            own = own.unsqueeze(place)
    return own


def spread(tensor: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    """Return a bias as (batch, head, query, key), with extents of 1 for what it has not."""
    for place in range(4):
        if place not in axes:
            tensor = tensor.unsqueeze(place)
    return tensor


def changed(
    recipe: Recipe,
    scores: torch.Tensor,
    arrays: Mapping[str, torch.Tensor],
    reals: Mapping[str, float],
) -> torch.Tensor:
    """Return scores with what a recipe does to them besides scaling and masking."""
    match recipe.change:
        case Change("bias", name, axes):
            return scores + spread(arrays[name], axes)
        case Change("slopes", name, _, even):
            i = torch.arange(scores.shape[2], device=scores.device)[:, None]
            j = torch.arange(scores.shape[3], device=scores.device)[None, :]
            far = -(j - i).abs() if even else j - i
            return scores + arrays[name][None, :, None, None] * far
        case Change("relative", name):
            i = torch.arange(scores.shape[2], device=scores.device)[:, None]
            j = torch.arange(scores.shape[3], device=scores.device)[None, :]
            return scores + arrays[name][:, i - j + scores.shape[3] - 1]
        case Change("softcap", name):
            return torch.tanh(scores / reals[name]) * reals[name]
        case _:
            return scores


def seen_by(
    recipe: Recipe, shape: Sequence[int], values: Mapping[str, Any], device: torch.device
) -> torch.Tensor:
    """Return where keys are seen, (batch or 1, 1, query, key)."""
    many = (shape[2], shape[3])
    i = torch.arange(many[0], device=device)[:, None]
    j = torch.arange(many[1], device=device)[None, :]
    b = torch.arange(shape[0], device=device)[:, None, None]
    found: torch.Tensor = recipe.mask.rule(many, recipe.mask.held(values))(b, i, j)
    found = found if found.ndim == 3 else found.expand(*many)[None]
    return found.expand(found.shape[0], *many)[:, None]
