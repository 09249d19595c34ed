"""`looptrans.attention`: torch's attention with more options, each combination a listing.

The arguments decide on the options of a listing, which is composed, compiled and kept; a call with
the same options finds the kernels again and does nothing else.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch

from looptrans.runtime.attention_call import Call, Window
from looptrans.runtime.compile import Compiled, compile_listing
from looptrans.variants import GIVEN, Options, compose
from looptrans.variants.options import Alignment

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
    query_starts: torch.Tensor | None = None,
    key_starts: torch.Tensor | None = None,
    pages: torch.Tensor | None = None,
    dropout_mask: torch.Tensor | None = None,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Do what torch's scaled_dot_product_attention does; see `looptrans.attention`."""
    call = Call(
        query,
        key,
        value,
        enable_gqa=bool(enable_gqa),
        query_starts=query_starts,
        key_starts=key_starts,
        pages=pages,
    )
    options: dict[str, Any] = {"causal": bool(is_causal), "alignment": alignment}
    options |= call.options
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
    if dropout_mask is not None:
        options["dropout"] = "mask"
        call.given["p"] = float(dropout_p)
        call.given["keep"] = call.kept(dropout_mask)
    elif dropout_p > 0.0:
        options["dropout"] = "philox"
        call.given["p"] = float(dropout_p)
        # From torch's own generator, so that torch.manual_seed decides on it.
        call.given["seed"] = int(torch.randint(_LARGEST_SEED, ()).item())
    made = compiled(Options(batch=call.batch, heads=call.heads, lse=bool(return_lse), **options))
    results = made.function(*(call.given[name] for name in made.arguments))
    if not return_lse:
        return call.back(results)
    output, lse = results
    return call.back(output), lse if call.packed else lse.reshape(*call.leading, call.m)


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
