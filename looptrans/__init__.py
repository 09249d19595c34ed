"""Exact dependences of annotated loop nests, and the kernels that follow from them.

Importing the package loads nothing else; the folders below it are imported by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from looptrans.version import __version__

__all__ = ["__version__", "attention", "compile"]

if TYPE_CHECKING:
    import torch

    from looptrans.runtime.attention_call import Window
    from looptrans.runtime.compile import Compiled, Listing
    from looptrans.variants.options import Alignment


def compile(listing: Listing, *, function: str | None = None, split: bool = False) -> Compiled:
    """Return a function on torch tensors that computes what a listing does.

        softmax = looptrans.compile("specs/softmax.py")
        y = softmax(x)

    It takes the listing's arguments in their order, and returns what the listing returns. The
    listing is read, never executed; its kernels are kept in the user's cache directory
    (LOOPTRANS_CACHE_DIR). Without a GPU they run in Triton's interpreter on CPU tensors.

    It takes part in autograd: where an argument requires a gradient, the backward pass is derived
    from the listing at the first call and kept, and under `torch.compile` it is one operation.

    Args:
        listing: A path (`FILE` or `FILE::FUNCTION`), a text with at least one line break, or a
            Python function, whose source is read.
        function: Which function of the file or text, where there are several.
        split: Whether a long loop of few rows is computed in parts, each in a program of its own,
            and joined with the derived operator. The launcher then chooses how many parts there
            are, from the sizes and the device, unless it is given `parts=`. Where a gradient is
            asked for, the forward kernels are those of the backward pass, without parts.

    Returns:
        The launcher, with the attributes `source` (the text of the emitted module), `path` (the
        file it was imported from), `listing` (the text of the listing), `backward_source` (the
        text of the module with the backward pass) and `no_gradient` (why there is none).

    Raises:
        ListingError: The listing has mistakes.
        NotLowered: It cannot be run in blocks, or with `split` in parts; the message names the
            statement and the reason.
        NoDevice: Torch or triton is missing, or triton was imported before it could be told to
            interpret.
    """
    from looptrans.runtime.compile import compile_listing

    return compile_listing(listing, function=function, split=split)


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
    query_starts: torch.Tensor | None = None,
    key_starts: torch.Tensor | None = None,
    pages: torch.Tensor | None = None,
    dropout_mask: torch.Tensor | None = None,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention: what torch's `scaled_dot_product_attention` gives, and more.

        o = looptrans.attention(q, k, v, is_causal=True)
        o = looptrans.attention(q, k, v, is_causal=True, window=(128, 0), softcap=30.0, sinks=s)

    The first eight arguments are torch's, unchanged. The options are put together to a listing
    (`looptrans.variants`), which is compiled like any other, at the first call with these options,
    and kept; calls differ in speed from then on by what they compute only. Nothing has to be
    compiled by torch. Gradients are those of every floating-point tensor, masks, slopes, tables and
    sinks included.

    B stands for all dimensions before the heads, H for heads, M for queries, N for keys. Query i is
    level with key i, or with key i + N - M; which says `alignment`.

    Args:
        query: (B, H, M, E), (H, M, E) or (M, E), and any number of dimensions for B.
        key: (B, H, N, E); (B, G, N, E) with `enable_gqa`. Dimensions before the last two may be 1.
        value: (B, H, N, D); the same. D need not be E.
        attn_mask: Of any shape that expands to (B, H, M, N). Boolean: False hides a key; otherwise
            added to the scores.
        dropout_p: The chance of a weight to become 0; the others are divided by 1 - dropout_p. The
            seed comes from torch's generator; the same bits are used in the backward pass.
        is_causal: Hides the keys right of the one that a query is level with. Unlike torch, a mask
            may be given besides.
        scale: What the scores are multiplied by; 1 / sqrt(E) by default.
        enable_gqa: Whether H // G neighbouring heads of queries share a head of keys and values.
        alignment: "top_left" as in torch, or "bottom_right": the last query is level with the last
            key. With lengths or starts, the last of those that there are in the batch: N and M are
            then key_lengths[b] and query_lengths[b].
        window: How many keys are seen left and right of the one a query is level with; None or -1
            for all.
        prefix: How many keys at the start are seen whatever `is_causal` says, (B), or a number
            where there are no batches.
        documents: Of each query, (B, M), and of each key, (B, N): others' keys are hidden.
        softcap: Scores become softcap * tanh(score / softcap).
        alibi_slopes: (H) or (B, H): times the distance, subtracted from the scores.
        relative_bias: (H, M + N - 1): relative_bias[h, i - j + N - 1] is added to the scores.
        sinks: (H): a score for each head that has a weight and no value.
        query_lengths: (B) integers: how many queries there are; the rows beyond are 0.
        key_lengths: (B) integers: how many keys there are; what is stored beyond is not read.
        query_starts: (B + 1) integers: sequences lie one behind the other, the queries of batch b
            in the rows query_starts[b] .. query_starts[b + 1] of a query of (T, H, E).
        key_starts: The same for a key of (U, G, E) and a value of (U, G, D).
        pages: (B, L) integers: keys and values lie in pages of some size P, (C, P, G, E) and
            (C, P, G, D), and key j of batch b in row j % P of page pages[b, j // P].
        dropout_mask: (B, H, M, N), which weights are kept, in place of those that a seed decides.
        return_lse: Whether the log-sum-exp of each row of scores, (B, H, M) in float32, packed (H,
            T), is returned besides.

    Returns:
        The output, (B, H, M, D), and the log-sum-exp where it is asked for. A query that sees no
        key has 0 and -inf, and gradients of 0.

    Raises:
        ValueError: A shape does not fit, or options do not go together (`variants.Conflict`); the
            message says which and why.
        NotLowered: There are no kernels for these options.
        NoDevice: Kernels cannot be run here.
    """
    from looptrans.runtime.attention import attention as run

    return run(
        query,
        key,
        value,
        attn_mask,
        dropout_p,
        is_causal,
        scale,
        enable_gqa,
        alignment=alignment,
        window=window,
        prefix=prefix,
        documents=documents,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        relative_bias=relative_bias,
        sinks=sinks,
        query_lengths=query_lengths,
        key_lengths=key_lengths,
        query_starts=query_starts,
        key_starts=key_starts,
        pages=pages,
        dropout_mask=dropout_mask,
        return_lse=return_lse,
    )
