"""The options of an attention listing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

GIVEN: Literal["given"] = "given"
"""A number that is an argument of the listing, and not written into it."""

Number: TypeAlias = float | Literal["given"] | None
Length: TypeAlias = int | Literal["given"] | None
Heads: TypeAlias = Literal["none", "equal", "grouped", "shared"]
Layout: TypeAlias = Literal["bhsd", "bshd", "qkv", "packed"]
Weights: TypeAlias = Literal["softmax", "sigmoid", "retention"]
Alignment: TypeAlias = Literal["top_left", "bottom_right"]
Dropout: TypeAlias = Literal["mask", "philox"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an attention listing does besides Q . K and the weighted sum of V.

    Sizes are called B (batches), H (heads), M (queries), N (keys), E (elements of a query and of a
    key), D (elements of a value); b, h, i, j, e and d run over them. A query sees a key unless an
    option hides it; a query that sees none has the output 0, and -inf as its log-sum-exp. Query i
    is level with key i, or with key i + N - M; see `alignment`.

    The arguments of the listing are Q, K, V (with `layout="qkv"` QKV), and then those that the
    options add, in the order in which they are listed here.

    Attributes:
        batch: Whether there are batches.
        heads: `none`; `equal` for as many heads of keys as of queries; `grouped` for G heads of
            keys, each shared by H // G neighbouring heads of queries; `shared` for a single one.
        layout: `bhsd` is Q[b, h, i, e]; `bshd` is Q[b, i, h, e]; `qkv` is QKV[b, i, 0, h, e], one
            array for all three; `packed` is Q[i, h, e], the sequences of the batch one after the
            other, batch b in the rows cu_q[b] .. cu_q[b + 1] of Q and cu_k[b] .. cu_k[b + 1] of K
            and V. The output has the layout of Q, the log-sum-exp is [b, h, i], packed [h, i].
        weights: What V is summed with. `softmax`; `sigmoid`, the logistic function of each score;
            `retention`, the score times exp(-rate[h]) to the power of the distance i - j (an
            argument `rate`, [h] with heads, else a number).
        differential: A second Q2 and K2, whose weights times the argument `lam` are subtracted.
        scale: What Q . K is multiplied by; None for 1 / sqrt(E).
        softcap: The scaled scores become softcap * tanh(score / softcap); None leaves them.
        bias: The axes of an array that is added to the scores, of "BHMN", in this order: "HMN" is
            bias[h, i, j]. It is broadcast over those that are not named. -inf hides a key.
        relative: An array of H x (M + N - 1) is added to the scores: relative[h, i - j + N - 1].
        alibi: The axes of slopes, "H" or "BH": slopes[h] times the distance of i and j is
            subtracted from the scores.
        causal: Hides the keys right of the one that a query is level with.
        window_left: How many keys left of that one are seen; None for all.
        window_right: How many keys right of it; None for all.
        alignment: Whether the first queries and keys are level, or the last.
        prefix: Shows the first prefix[b] keys whatever `causal` and the windows say.
        documents: Hides keys of other documents: seen where doc_q[b, i] == doc_k[b, j].
        mask: The axes of a boolean array, as for `bias`: False hides a key.
        sinks: One more score for each head, sinks[h], which has a weight and no value.
        pages: Keys and values lie in pages of PAGE, in any order: key j of batch b and head h is
            K[page[b, j // PAGE], j % PAGE, h, e], whatever the layout of Q. There are L pages for
            each batch: L * PAGE keys, or with `kv_lengths` n_kv[b], which packed queries ask for.
        q_lengths: Batch b has n_q[b] queries; rows beyond are as if they saw no key.
        kv_lengths: Batch b has n_kv[b] keys; what is stored beyond is not read.
        dropout: Weights become 0, the others are divided by 1 - p: `mask` where a given array
            keep[b, h, i, j] is False; `philox` where uniform(seed, b * H + h, i, j) < p.
        lse: Whether the log-sum-exp of the scores of each row is a second result.
    """

    batch: bool = True
    heads: Heads = "equal"
    layout: Layout = "bhsd"
    weights: Weights = "softmax"
    differential: bool = False
    scale: Number = None
    softcap: Number = None
    bias: str | None = None
    relative: bool = False
    alibi: str | None = None
    causal: bool = False
    window_left: Length = None
    window_right: Length = None
    alignment: Alignment = "top_left"
    prefix: bool = False
    documents: bool = False
    mask: str | None = None
    sinks: bool = False
    pages: bool = False
    q_lengths: bool = False
    kv_lengths: bool = False
    dropout: Dropout | None = None
    lse: bool = False
