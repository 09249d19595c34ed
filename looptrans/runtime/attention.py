"""`looptrans.attention`: torch's attention with more options, each combination a listing.

The arguments decide on the options of a listing, which is composed, compiled and kept; a call with
the same options finds the kernels again and does nothing else.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from looptrans.runtime.compile import Compiled, compile_listing
from looptrans.variants import GIVEN, Options, compose
from looptrans.variants.options import Alignment, Heads

Window: TypeAlias = tuple[int | None, int | None]
UNBOUNDED = -1
"""What other libraries write for a window without a bound on one side."""

_LARGEST_SEED = 2**63 - 1


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    alignment: Alignment = "top_left",
    window: Window | None = None,
    prefix: torch.Tensor | int | None = None,
    documents: tuple[torch.Tensor, torch.Tensor] | None = None,
    softcap: float | None = None,
    alibi_slopes: torch.Tensor | None = None,
    relative_bias: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    query_lengths: torch.Tensor | None = None,
    key_lengths: torch.Tensor | None = None,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Do what torch's scaled_dot_product_attention does; see `looptrans.attention`."""
    call = _Call(query, key, value, enable_gqa=bool(enable_gqa))
    options: dict[str, Any] = {"causal": bool(is_causal), "alignment": alignment}
    if scale is not None:
        options["scale"] = GIVEN
        call.given["scale"] = scale
    if softcap is not None:
        options["softcap"] = float(softcap)
    if attn_mask is not None:
        options |= call.mask(attn_mask)
    if relative_bias is not None:
        options["relative"] = True
        call.given["relative"] = call.per_head("relative_bias", relative_bias, call.m + call.n - 1)
    if alibi_slopes is not None:
        options["alibi"] = call.slopes(alibi_slopes)
    if window is not None:
        options |= call.window(window, is_causal=bool(is_causal))
    if prefix is not None:
        options["prefix"] = True
        call.given["prefix"] = call.per_batch("prefix", prefix)
    if documents is not None:
        options["documents"] = True
        call.documents(documents)
    if sinks is not None:
        options["sinks"] = True
        call.given["sinks"] = call.per_head("sinks", sinks)
    for name, short, given in (
        ("query_lengths", "q", query_lengths),
        ("key_lengths", "kv", key_lengths),
    ):
        if given is not None:
            options[f"{short}_lengths"] = True
            call.given[f"n_{short}"] = call.per_batch(name, given)
    if not 0.0 <= dropout_p <= 1.0:
        raise ValueError(f"dropout_p should be from 0 to 1, and is {dropout_p}")
    if dropout_p > 0.0:
        options["dropout"] = "philox"
        call.given["p"] = float(dropout_p)
        # From torch's own generator, so that torch.manual_seed decides on it.
        call.given["seed"] = int(torch.randint(_LARGEST_SEED, ()).item())
    made = compiled(Options(batch=call.batch, heads=call.heads, lse=bool(return_lse), **options))
    results = made.function(*(call.given[name] for name in made.arguments))
    if not return_lse:
        return call.back(results)
    output, lse = results
    return call.back(output), lse.reshape(*call.leading, call.m)


@dataclass(frozen=True, slots=True)
class Made:
    """The kernels of some options.

    Attributes:
        function: The function on torch tensors.
        arguments: The names of its arguments, in order.
    """

    function: Compiled
    arguments: tuple[str, ...]


@functools.cache
def compiled(options: Options) -> Made:
    """Compose a listing and compile it; see `looptrans.compile` for what it raises.

    Raises:
        Conflict: The options do not go together.
    """
    made = compose(options)
    return Made(compile_listing(made.text), made.arguments)


@dataclass(slots=True)
class _Call:
    """The tensors of a call, brought to the shapes of a listing.

    (M, E) has neither batches nor heads, (H, M, E) has heads; of more dimensions the last but two
    are heads, and those before them one batch.

    Attributes:
        query: Of any number of dimensions from 2.
        key: The same.
        value: The same.
        enable_gqa: Whether heads of queries share heads of keys.
        given: The arguments of the listing.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    enable_gqa: bool
    given: dict[str, Any] = field(default_factory=dict)
    leading: tuple[int, ...] = ()
    heads: Heads = "none"
    m: int = 0
    n: int = 0

    def __post_init__(self) -> None:
        query, key, value = self.query, self.key, self.value
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            if not isinstance(tensor, torch.Tensor):
                raise ValueError(f"{name} should be a torch.Tensor, and is a {type(tensor)}")
            if tensor.ndim < 2 or tensor.ndim != query.ndim:
                raise ValueError(
                    f"query, key and value should have the same number of dimensions, at least 2; "
                    f"query has shape {tuple(query.shape)}, {name} {tuple(tensor.shape)}"
                )
        self.m, self.n = query.shape[-2], key.shape[-2]
        if key.shape[-1] != query.shape[-1]:
            self._mismatch("key", key, f"(..., {self.n}, {query.shape[-1]})", "query")
        if value.shape[-2] != self.n:
            self._mismatch("value", value, f"(..., {self.n}, {value.shape[-1]})", "key")
        if query.ndim > 2:
            self._heads()
        outer = [t.shape[:-3] for t in (query, self.key, self.value)]
        try:
            # torch gives this function no types.
            shared = tuple(torch.broadcast_shapes(*outer))  # type: ignore[no-untyped-call]
        except RuntimeError:
            raise ValueError(
                "the dimensions before the heads should be the same for query, key and value, or "
                f"1; the shapes are {', '.join(str(tuple(s)) for s in self._shapes())}"
            ) from None
        self.leading = (*shared, *query.shape[-3:-2])
        for name, tensor in (("Q", query), ("K", self.key), ("V", self.value)):
            self.given[name] = self._merged(tensor, len(shared))

    @property
    def batch(self) -> bool:
        """Whether there are dimensions before the heads."""
        return len(self.leading) > 1

    def _shapes(self) -> tuple[torch.Size, ...]:
        return self.query.shape, self.key.shape, self.value.shape

    @staticmethod
    def _mismatch(name: str, tensor: torch.Tensor, wanted: str, other: str) -> None:
        raise ValueError(
            f"{name} should have the shape {wanted}, to go with {other}; it has "
            f"{tuple(tensor.shape)}"
        )

    def _heads(self) -> None:
        """Find how the heads of keys belong to those of queries."""
        count = self.query.shape[-3]
        found = [self.key.shape[-3], self.value.shape[-3]]
        possible = all(
            each in (1, count) or (self.enable_gqa and each > 0 and count % each == 0)
            for each in found
        )
        if not possible:
            more = ", or a divisor of it with enable_gqa=True"
            raise ValueError(
                f"there are {count} heads of queries, {found[0]} of keys and {found[1]} of values; "
                f"of keys and values there should be {count}, 1{more}"
            )
        if found[0] != found[1]:
            repeats = [count // each for each in found]
            self.key = self.key.repeat_interleave(repeats[0], -3)
            self.value = self.value.repeat_interleave(repeats[1], -3)
            found = [count, count]
        self.heads = "equal" if found[0] == count else "shared" if found[0] == 1 else "grouped"
        if self.heads == "shared":
            self.key, self.value = self.key.squeeze(-3), self.value.squeeze(-3)

    def _merged(self, tensor: torch.Tensor, batches: int) -> torch.Tensor:
        """Bring the dimensions before the heads to one."""
        if batches == 0:
            return tensor
        shape = self.leading[:-1]
        own = tensor.shape[batches:] if tensor.ndim > batches else tensor.shape
        whole = tensor.expand(*shape, *own)
        return whole if batches == 1 else whole.reshape(-1, *own)

    def back(self, output: torch.Tensor) -> torch.Tensor:
        """Return an output with the dimensions of the query."""
        return (
            output if len(self.leading) < 3 else output.reshape(*self.leading, *output.shape[-2:])
        )

    def _whole(self) -> tuple[int, ...]:
        return (*self.leading, self.m, self.n)

    def mask(self, mask: torch.Tensor) -> dict[str, str]:
        """Take a mask, boolean or added; return its option."""
        whole = self._whole()
        fits = mask.ndim <= len(whole) and all(
            own in (1, size) for own, size in zip(mask.shape[::-1], whole[::-1], strict=False)
        )
        if not fits:
            raise ValueError(
                f"attn_mask should have a shape that can be expanded to {whole}; it has "
                f"{tuple(mask.shape)}"
            )
        is_boolean = mask.dtype == torch.bool
        if not is_boolean and not mask.is_floating_point():
            raise ValueError(f"attn_mask should be boolean or floating-point, and is {mask.dtype}")
        mask = mask.reshape((1,) * (len(whole) - mask.ndim) + tuple(mask.shape))
        batches = len(self.leading) - 1
        if batches > 1:
            outer, inner = mask.shape[:batches], mask.shape[batches:]
            if any(size != 1 for size in outer):
                mask = mask.expand(*whole[:batches], *inner)
            mask = mask.reshape(-1, *inner)
        letters = "BHMN"[4 - mask.ndim :]
        axes = "".join(a for a, size in zip(letters, mask.shape, strict=True) if size != 1) or "N"
        if axes == "N" and mask.shape[-1] != self.n:
            mask = mask.expand(*mask.shape[:-1], self.n)
        kept = [n for n, letter in enumerate(letters) if letter in axes]
        mask = mask.reshape([mask.shape[n] for n in kept])
        name = "mask" if is_boolean else "bias"
        self.given[name] = mask if is_boolean else mask.to(self.query.dtype)
        return {name: axes}

    def per_head(self, name: str, tensor: torch.Tensor, *more: int) -> torch.Tensor:
        """Return a tensor with an entry, or a row, for each head."""
        wanted = (*self.leading[-1:], *more)
        if tuple(tensor.shape) != wanted:
            raise ValueError(f"{name} should have the shape {wanted}; it has {tuple(tensor.shape)}")
        return tensor.to(self.query.dtype)

    def per_batch(self, name: str, given: torch.Tensor | int) -> torch.Tensor | int:
        """Return a number for each batch."""
        if not self.batch and isinstance(given, int):
            return given
        wanted = self.leading[:-1]
        if not isinstance(given, torch.Tensor) or tuple(given.shape) != wanted:
            shown = tuple(given.shape) if isinstance(given, torch.Tensor) else given
            raise ValueError(f"{name} should be a tensor of shape {wanted}; it is {shown}")
        return given.reshape(-1)

    def slopes(self, slopes: torch.Tensor) -> str:
        """Take slopes for each head, or each batch and head; return their option."""
        heads = self.leading[-1:]
        if tuple(slopes.shape) == tuple(heads):
            self.given["slopes"] = slopes.to(self.query.dtype)
            return "H"
        if tuple(slopes.shape) != self.leading:
            raise ValueError(
                f"alibi_slopes should have the shape {heads} or {self.leading}; it has "
                f"{tuple(slopes.shape)}"
            )
        self.given["slopes"] = slopes.to(self.query.dtype).reshape(-1, *heads)
        return "BH"

    def window(self, window: Window, *, is_causal: bool) -> dict[str, str]:
        """Take how many keys are seen left and right; return the options."""
        if not isinstance(window, Sequence) or len(window) != 2:
            raise ValueError(f"window should be a pair (left, right), and is {window!r}")
        sizes = [None if size in (None, UNBOUNDED) else int(size) for size in window]
        found: dict[str, Any] = {}
        for name, size in zip(("window_left", "window_right"), sizes, strict=True):
            if size is None or (name == "window_right" and size == 0 and is_causal):
                continue
            if size < 0:
                raise ValueError(f"window should have numbers of keys, -1 for all, not {size}")
            if name == "window_right" and size == 0:
                found["causal"] = True
                continue
            found[name] = GIVEN
            # As far as there are rows: some say "all" with the largest number they know.
            self.given[name] = min(size, self.m + self.n)
        return found

    def documents(self, documents: tuple[torch.Tensor, torch.Tensor]) -> None:
        """Take the document of every query and of every key."""
        if not isinstance(documents, Sequence) or len(documents) != 2:
            raise ValueError("documents should be a pair: that of each query, that of each key")
        sizes = (self.m, self.n)
        for name, tensor, size in zip(("doc_q", "doc_k"), documents, sizes, strict=True):
            wanted = (*self.leading[:-1], size)
            if tuple(tensor.shape) != wanted:
                raise ValueError(
                    f"documents should have the shapes {(*wanted[:-1], self.m)} and "
                    f"{(*wanted[:-1], self.n)}; one has {tuple(tensor.shape)}"
                )
            self.given[name] = tensor.reshape(-1, size) if self.batch else tensor
