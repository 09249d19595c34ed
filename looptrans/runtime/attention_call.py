"""The tensors of a call of `looptrans.attention`, brought to the shapes of a listing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from looptrans.variants import GIVEN
from looptrans.variants.options import Heads

Window: TypeAlias = tuple[int | None, int | None]
UNBOUNDED = -1
"""What other libraries write for a window without a bound on one side."""


@dataclass(slots=True)
class Call:
    """The tensors of a call, brought to the shapes of a listing.

    (M, E) has neither batches nor heads, (H, M, E) has heads; of more dimensions the last but two
    are heads, and those before them one batch. Queries that are packed are (T, H, E), keys (U, G,
    E); pages of keys are (C, PAGE, G, E).

    Attributes:
        query: Of any number of dimensions from 2.
        key: The same.
        value: The same.
        enable_gqa: Whether heads of queries share heads of keys.
        query_starts: (B + 1), where the queries of each batch begin, and the last ones end; None
            where they are not packed.
        key_starts: The same of keys.
        pages: (B, L), the pages of each batch; None where keys are not in pages.
        given: The arguments of the listing.
        leading: The sizes before the queries.
        heads: How heads of keys belong to those of queries.
        m: How many queries there are.
        n: How many keys there are room for.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    enable_gqa: bool
    query_starts: torch.Tensor | None = None
    key_starts: torch.Tensor | None = None
    pages: torch.Tensor | None = None
    given: dict[str, Any] = field(default_factory=dict)
    leading: tuple[int, ...] = ()
    heads: Heads = "none"
    m: int = 0
    n: int = 0

    def __post_init__(self) -> None:
        query, key, value = self.query, self.key, self.value
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            _require_tensor(name, tensor)
            if tensor.dtype != query.dtype:
                raise ValueError(
                    f"query, key and value should have one dtype: query is {query.dtype}, {name} "
                    f"{tensor.dtype}; convert one"
                )
        if self.query_starts is not None or self.pages is not None or self.key_starts is not None:
            self._apart()
            return
        for tensor in (query, key, value):
            if tensor.ndim < 2 or tensor.ndim != query.ndim:
                shapes = ", ".join(str(tuple(shape)) for shape in self._shapes())
                raise ValueError(
                    "query, key and value should have the same number of dimensions, at least 2; "
                    f"the shapes are {shapes}"
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
            shapes = torch.broadcast_shapes(*outer)  # type: ignore[no-untyped-call]  # untyped
            shared = tuple(shapes)
        except RuntimeError:
            raise ValueError(
                "the dimensions before the heads should be the same for query, key and value, or "
                f"1; the shapes are {', '.join(str(tuple(s)) for s in self._shapes())}"
            ) from None
        self.leading = (*shared, *query.shape[-3:-2])
        for name, tensor in (("Q", query), ("K", self.key), ("V", self.value)):
            self.given[name] = self._merged(tensor, len(shared))

    def _apart(self) -> None:
        """Take queries that are packed, or keys that are packed or in pages."""
        query, key, value, pages = self.query, self.key, self.value, self.pages
        if pages is None and (self.query_starts is None or self.key_starts is None):
            raise ValueError(
                "query_starts and key_starts should be given both, or query_starts with pages"
            )
        if pages is not None and self.key_starts is not None:
            raise ValueError(
                "keys lie in pages or one sequence behind the other: key_starts or pages"
            )
        rank = 3 if self.packed else 4
        wanted = "(T, H, E)" if self.packed else "(B, H, M, E)"
        if query.ndim != rank:
            raise ValueError(f"query should have the shape {wanted}; it has {tuple(query.shape)}")
        wanted = "(U, G, E)" if pages is None else "(C, PAGE, G, E)"
        for name, tensor in (("key", key), ("value", value)):
            if tensor.ndim != len(wanted.split(",")):
                raise ValueError(
                    f"{name} should have the shape {wanted}; it has {tuple(tensor.shape)}"
                )
        if key.shape[-1] != query.shape[-1]:
            self._mismatch("key", key, f"(..., {query.shape[-1]})", "query")
        if value.shape[:-2] != key.shape[:-2]:
            before = ", ".join(map(str, key.shape[:-2]))
            self._mismatch("value", value, f"({before}, ...)", "key")
        count = self._starts()
        self.leading = (count, query.shape[-2] if self.packed else query.shape[1])
        self.m = query.shape[0] if self.packed else query.shape[2]
        self.n = key.shape[0]
        if pages is not None:
            _require_integers("pages", pages)
            if pages.ndim != 2 or pages.shape[0] != count:
                raise ValueError(
                    f"pages should have the shape ({count}, L); it has {tuple(pages.shape)}"
                )
            self.n = pages.shape[1] * key.shape[1]
            self.given["page"] = pages
        self._heads(-2)
        self.given |= {"Q": query, "K": self.key, "V": self.value}

    def _starts(self) -> int:
        """Take where sequences begin; return how many there are."""
        counts = set()
        for name, starts in (("cu_q", self.query_starts), ("cu_k", self.key_starts)):
            if starts is None:
                continue
            if not isinstance(starts, torch.Tensor) or starts.ndim != 1 or not len(starts):
                raise ValueError("query_starts and key_starts should be tensors of shape (B + 1,)")
            _require_integers("query_starts" if name == "cu_q" else "key_starts", starts)
            counts.add(len(starts) - 1)
            self.given[name] = starts
        if len(counts) > 1:
            raise ValueError("query_starts and key_starts should have the same shape, (B + 1,)")
        return counts.pop() if counts else self.query.shape[0]

    @property
    def packed(self) -> bool:
        """Whether queries lie one sequence behind the other."""
        return self.query_starts is not None

    @property
    def options(self) -> dict[str, Any]:
        """The options that say how the tensors lie."""
        found: dict[str, Any] = {"layout": "packed"} if self.packed else {}
        return found | ({"pages": True} if self.pages is not None else {})

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

    def _heads(self, axis: int = -3) -> None:
        """Find how the heads of keys, on some axis, belong to those of queries."""
        count = self.query.shape[-2 if self.packed else -3]
        found = [self.key.shape[axis], self.value.shape[axis]]
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
            self.key = self.key.repeat_interleave(repeats[0], axis)
            self.value = self.value.repeat_interleave(repeats[1], axis)
            found = [count, count]
        self.heads = "equal" if found[0] == count else "shared" if found[0] == 1 else "grouped"
        if self.heads == "shared":
            self.key, self.value = self.key.squeeze(axis), self.value.squeeze(axis)

    def _merged(self, tensor: torch.Tensor, batches: int) -> torch.Tensor:
        """Bring the dimensions before the heads to one."""
        if batches == 0:
            return tensor
        shape = self.leading[:-1]
        own = tensor.shape[batches:] if tensor.ndim > batches else tensor.shape
        whole = tensor.expand(*shape, *own)
        return whole if batches == 1 else whole.reshape(math.prod(shape), *own)

    def back(self, output: torch.Tensor) -> torch.Tensor:
        """Return an output with the dimensions of the query."""
        return (
            output
            if self.packed or len(self.leading) < 3
            else output.reshape(*self.leading, *output.shape[-2:])
        )

    def _whole(self) -> tuple[int, ...]:
        return (*self.leading, self.m, self.n)

    def kept(self, mask: torch.Tensor) -> torch.Tensor:
        """Return which weights are kept, in the shape of the listing."""
        _require_tensor("dropout_mask", mask)
        if mask.dtype != torch.bool or tuple(mask.shape) != self._whole():
            raise ValueError(
                f"dropout_mask should be boolean, of shape {self._whole()}; it is {mask.dtype}, of "
                f"shape {tuple(mask.shape)}"
            )
        batches = len(self.leading) - 1
        return mask if batches < 2 else mask.flatten(0, batches - 1)

    def mask(self, mask: torch.Tensor) -> dict[str, str]:
        """Take a mask, boolean or added; return its option."""
        _require_tensor("attn_mask", mask)
        whole = self._whole()
        if self.packed:
            raise ValueError(
                "attn_mask and query_starts do not go together: there is no one shape of queries "
                "by keys"
            )
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
            mask = mask.reshape(math.prod(mask.shape[:batches]), *inner)
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
        _require_tensor(name, tensor)
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
        _require_integers(name, given)
        return given.reshape(-1)

    def slopes(self, slopes: torch.Tensor) -> str:
        """Take slopes for each head, or each batch and head; return their option."""
        _require_tensor("alibi_slopes", slopes)
        heads = self.leading[-1:]
        if tuple(slopes.shape) == tuple(heads):
            self.given["slopes"] = slopes.to(self.query.dtype)
            return "H"
        if tuple(slopes.shape) != self.leading:
            raise ValueError(
                f"alibi_slopes should have the shape {heads} or {self.leading}; it has "
                f"{tuple(slopes.shape)}"
            )
        self.given["slopes"] = slopes.to(self.query.dtype).reshape(
            math.prod(self.leading[:-1]), *heads
        )
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
        batches = self.leading[:-1]
        shapes: list[tuple[int, ...]] = [(self.m,), (self.n,)]
        if not self.packed:
            shapes[0] = (*batches, self.m)
        if not self.packed or self.pages is not None:
            shapes[1] = (*batches, self.n)
        for name, tensor, wanted in zip(("doc_q", "doc_k"), documents, shapes, strict=True):
            _require_integers("documents", tensor)
            if tuple(tensor.shape) != wanted:
                raise ValueError(
                    f"documents should have the shapes {shapes[0]} and {shapes[1]}; one has "
                    f"{tuple(tensor.shape)}"
                )
            self.given[name] = (
                tensor.reshape(math.prod(wanted[:-1]), wanted[-1]) if len(wanted) > 1 else tensor
            )


def _require_tensor(name: str, value: object) -> None:
    """Require that an argument is a tensor."""
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{name} should be a torch.Tensor, and is a {type(value).__name__}")


def _require_integers(name: str, value: object) -> None:
    """Require that an argument is a tensor of such integers as kernels take."""
    _require_tensor(name, value)
    assert isinstance(value, torch.Tensor)
    if value.dtype not in (torch.int32, torch.int64):
        raise ValueError(
            f"{name} should be torch.int32 or torch.int64, and is {value.dtype}: convert it"
        )
