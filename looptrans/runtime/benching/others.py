"""What else the user could call where a listing is softmax attention: torch's own kernels."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from looptrans.runtime.benching.recipe import Recipe, changed, seen_by, spread, viewed

Arrays: TypeAlias = Mapping[str, torch.Tensor]
Call: TypeAlias = Callable[[], torch.Tensor]


class NotOffered(Exception):
    """It cannot do what the recipe says; the message says why."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """What attention is called with.

    Attributes:
        arrays: The arrays of the listing.
        reals: Its real parameters.
        sizes: Its sizes.
    """

    arrays: Arrays
    reals: Mapping[str, float]
    sizes: Mapping[str, int]

    def operands(self, recipe: Recipe) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return queries, keys and values as (batch, head, row, column), without copies."""
        names = (recipe.query, recipe.key, recipe.value)
        q, k, v = (viewed(self.arrays[name], recipe.layout) for name in names)
        return q, k, v

    def values(self) -> Mapping[str, Any]:
        """Return what masks are made of."""
        return {**self.sizes, **self.arrays}


@dataclass(frozen=True, slots=True)
class Other:
    """Something else that could be called.

    Attributes:
        name: What it is called in the table.
        make: Makes a call of a recipe and arguments; what can be made before is not timed.
        refusal: Says why it has no option for a recipe; empty where it has. What it refuses for
            other reasons (a type, a head size, a mask) shows when it is called.
    """

    name: str
    make: Callable[[Recipe, Arguments], Call]
    refusal: Callable[[Recipe], str]


def others(*, compiles: bool = True) -> tuple[Other, ...]:
    """Return what can be tried.

    Args:
        compiles: Whether FlexAttention is compiled; else it is slow and only good for a trial.
    """
    backends = {
        "SDPA cuDNN": SDPBackend.CUDNN_ATTENTION,
        "SDPA flash": SDPBackend.FLASH_ATTENTION,
        "SDPA efficient": SDPBackend.EFFICIENT_ATTENTION,
    }
    found = [
        Other(name, functools.partial(sdpa, backends=(backend,)), _no_option)
        for name, backend in backends.items()
    ]
    flexible = functools.partial(flex, compiles=compiles)
    return (*found, Other("FlexAttention", flexible, lambda _: ""))


def _no_option(recipe: Recipe) -> str:
    if recipe.change is not None and recipe.change.kind == "softcap":
        return "scaled_dot_product_attention has no soft cap"
    return ""


def sdpa(recipe: Recipe, arguments: Arguments, backends: Sequence[SDPBackend]) -> Call:
    """Return a call of scaled_dot_product_attention; (batch, head, query, column).

    Args:
        recipe: What is to be worked out.
        arguments: On what.
        backends: Which of torch's kernels may do it.

    Raises:
        NotOffered: It has no option for what the recipe asks.
    """
    if _no_option(recipe):
        raise NotOffered(_no_option(recipe))
    q, k, v = arguments.operands(recipe)
    scale = recipe.factor(arguments.reals, q.shape[3])
    mask = _mask(recipe, arguments)

    def plain() -> torch.Tensor:
        with sdpa_kernel(list(backends)):
            return F.scaled_dot_product_attention(
                q, k, v, **mask(), scale=scale, enable_gqa=q.shape[1] != k.shape[1]
            )

    return _told(plain)


def _told(plain: Call) -> Call:
    """Return a call that says at the first time why torch has no kernel, where it has none."""
    checked = False

    def call() -> torch.Tensor:
        nonlocal checked
        if checked:
            return plain()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                result = plain()
            except RuntimeError as error:
                if not any(text in str(error) for text in _NO_KERNEL):
                    raise
                raise NotOffered(_reason([str(each.message) for each in told])) from None
        checked = True
        return result

    return call


_NO_KERNEL = ("No available kernel", "No viable backend")
# Torch warns of every kernel, also of those that were not asked for.
_NO_REASON = ("not used because", "runtime disabled")


def _reason(told: Sequence[str]) -> str:
    """Return what torch warns of when it finds no kernel, the last word on the one asked for."""
    texts = [" ".join(text.split()).partition(" (Triggered internally")[0] for text in told]
    useful = [text for text in texts if not any(part in text for part in _NO_REASON)]
    return (useful or ["torch has no such kernel for these arguments"])[-1]


def _mask(recipe: Recipe, arguments: Arguments) -> Callable[[], dict[str, Any]]:
    """Return what makes the options that say which scores are masked, and what is added to them."""
    q, k, _ = arguments.operands(recipe)
    shape = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    if recipe.change is None:
        if recipe.mask.kind == "none":
            return dict
        if recipe.mask.kind == "upper_left":
            return lambda: {"is_causal": True}
        if recipe.mask.kind == "lower_right":
            from torch.nn.attention.bias import causal_lower_right

            return lambda: {"attn_mask": causal_lower_right(shape[2], shape[3])}
        seen = seen_by(recipe, shape, arguments.values(), q.device)
        return lambda: {"attn_mask": seen}
    if recipe.mask.kind == "none" and recipe.change.kind == "bias":
        bias = spread(arguments.arrays[recipe.change.name], recipe.change.axes)
        return lambda: {"attn_mask": bias}
    seen = seen_by(recipe, shape, arguments.values(), q.device)

    def masked() -> dict[str, Any]:
        zeros = torch.zeros((1, 1, *shape[2:]), dtype=q.dtype, device=q.device)
        added = changed(recipe, zeros, arguments.arrays, arguments.reals)
        return {"attn_mask": added.masked_fill(~seen, float("-inf")).to(q.dtype)}

    return masked


MOST_READ = 2**31 - 1
"""How many elements FlexAttention can tell apart in what a score is changed with."""


def flex(recipe: Recipe, arguments: Arguments, *, compiles: bool) -> Call:
    """Return a call of FlexAttention; (batch, head, query, column).

    Its block mask is made before, as a user would keep it from layer to layer.

    Args:
        recipe: What is to be worked out.
        arguments: On what.
        compiles: Whether it is compiled.

    Raises:
        NotOffered: What is added to scores has more elements than it counts.
    """
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    name = "" if recipe.change is None else recipe.change.name
    count = arguments.arrays[name].numel() if name in arguments.arrays else 0
    if count > MOST_READ:
        # It would read where it may not, after which no process can use the GPU.
        raise NotOffered(f"its places are counted in 32 bits, and {name} has {count} elements")
    q, k, v = arguments.operands(recipe)
    many = (q.shape[2], k.shape[2])
    held = recipe.mask.held(arguments.values())

    rule = recipe.mask.rule(many, held)

    def seen(b: Any, h: Any, i: Any, j: Any) -> Any:
        return rule(b, i, j)

    blocks = None
    if recipe.mask.kind != "none":
        # Only what is read from memory differs from one batch to the other.
        batches = q.shape[0] if isinstance(held, torch.Tensor) else None
        blocks = create_block_mask(seen, batches, None, *many, device=str(q.device))
    function: Callable[..., Any] = flex_attention
    if compiles:
        # Torch compiles a function a few times only, and runs it as it stands from then on.
        torch.compiler.reset()
        # Graphs are kept between calls: what an earlier process has compiled and torch has cached
        # for one that is let go would refuse that.
        functorch: Any = importlib.import_module("torch._functorch.config")
        if hasattr(functorch, "donated_buffer"):
            functorch.donated_buffer = False
        function = torch.compile(flex_attention, dynamic=False)
    options = {
        "score_mod": _score(recipe, arguments),
        "block_mask": blocks,
        "scale": recipe.factor(arguments.reals, q.shape[3]),
        "enable_gqa": q.shape[1] != k.shape[1],
    }

    def call() -> torch.Tensor:
        result: torch.Tensor = function(q, k, v, **options)
        return result

    return call


def _score(recipe: Recipe, arguments: Arguments) -> Callable[..., Any] | None:
    """Return what FlexAttention does to each score."""
    change = recipe.change
    if change is None:
        return None
    if change.kind == "softcap":
        cap = arguments.reals[change.name]
        return lambda score, b, h, i, j: cap * torch.tanh(score / cap)
    values = arguments.arrays[change.name]
    if change.kind == "relative":
        last = values.shape[1] - arguments.operands(recipe)[0].shape[2]
        return lambda score, b, h, i, j: score + values[h, i - j + last]
    if change.kind == "bias":
        full = spread(values, change.axes)
        # What does not depend on a place is read at 0, whatever the place.
        has = [int(axis in change.axes) for axis in range(4)]
        return lambda score, b, h, i, j: (
            score + full[b * has[0], h * has[1], i * has[2], j * has[3]]
        )
    if change.even:
        return lambda score, b, h, i, j: score - values[h] * (j - i).abs()
    return lambda score, b, h, i, j: score + values[h] * (j - i)
