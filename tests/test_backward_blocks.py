"""The backward kernels of attention: what they multiply, save and make, and the blocks they visit.

An expert's formulation works out 7 products of blocks in two loops, or 5 in one loop with atomic
additions, from the outputs and the log-sum-exp alone; neither scores nor weights are ever stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from looptrans.blocks.block_ir.expr import Binary, Name, Scalar
from looptrans.blocks.block_ir.ops import Let, TileLoop
from looptrans.blocks.block_ir.program import Kernel
from looptrans.emit.backward import EmittedBackward, Form, emitted_with_backward
from looptrans.emit.both_ends import both_ends
from looptrans.frontend import parse
from looptrans.ir.index import parameters
from looptrans.ir.source import Source
from tests.analysis import spec
from tests.test_blocks_ranges import BLOCKS, sizes_of_blocks
from tests.test_blocks_structure import dots, exponentials, names_in, parts
from tests.visits import visits

# Products of a visited block, by the gradients that the kernel stores.
TWO_LOOPS = {("dQ",): 3, ("dK", "dV"): 4}
ONE_LOOP = {("dQ", "dK", "dV"): 5}
SIZES = [(13, 13), (7, 24), (24, 7), (1, 16), (16, 1)]


@cache
def made(name: str, form: Form = "kernels") -> EmittedBackward:
    return emitted_with_backward(spec(name), form=form)


def stored(kernel: Kernel) -> tuple[str, ...]:
    """Return which gradients of Q, K and V a kernel stores or adds to."""
    written = {array.name for array in kernel.arrays if array.access != "in"}
    return tuple(name for name in ("dQ", "dK", "dV") if name in written)


def loops(kernel: Kernel) -> list[TileLoop]:
    return [op for op in kernel.body if isinstance(op, TileLoop)]


@pytest.mark.parametrize(
    ("form", "products"), [("kernels", TWO_LOOPS), ("launch", TWO_LOOPS), ("atomics", ONE_LOOP)]
)
@pytest.mark.parametrize("name", ["attention_naive", "attention_causal"])
def test_products_of_blocks(name: str, form: Form, products: dict[tuple[str, ...], int]) -> None:
    """Each in every loop that visits blocks; S is worked out again once, and no other exp."""
    found = {stored(kernel): kernel for kernel in made(name, form).backward.kernels}
    assert {gradients for gradients in found if gradients} == set(products)
    for gradients, count in products.items():
        kernel = found[gradients]
        assert {loop.kind for loop in loops(kernel)} == {"full", "boundary"}
        for loop in loops(kernel):
            assert len(dots(loop.body)) == count
            assert len(exponentials(loop.body)) == 1
        assert len(dots(kernel.body)) == count * len(loops(kernel))
    others = [kernel for gradients, kernel in found.items() if not gradients]
    assert not [dot for kernel in others for dot in dots(kernel.body)]


@pytest.mark.parametrize("form", ["kernels", "launch", "atomics"])
@pytest.mark.parametrize("name", ["attention_naive", "attention_causal"])
def test_scores_and_weights_are_never_stored(name: str, form: Form) -> None:
    """Only the outputs and the log-sum-exp are saved; no array has both a query and a key."""
    both = made(name, form)
    assert {saved.name for saved in both.found.saved} == {"O", "lse"}
    arrays = [a for p in (both.forward, both.backward) for k in p.kernels for a in k.arrays]
    assert {"lse", "dQ", "dK", "dV"} <= {array.name for array in arrays}
    for array in arrays:
        extents = [extent for extent in array.shape if extent is not None]
        assert len(extents) == array.rank
        named = {name for extent in extents for name in parameters(extent)}
        assert not {"M", "N"} <= named, array


LEFT, RIGHT, PREFIX, KEPT = 3, 2, 5, 2
MASKS: dict[str, Callable[[int, int, int, int], bool]] = {
    "attention_causal": lambda i, j, M, N: j <= i,
    "attention_causal_bottom_right": lambda i, j, M, N: j <= i + N - M,
    "attention_window": lambda i, j, M, N: i - LEFT <= j <= i + RIGHT,
    "attention_window_left": lambda i, j, M, N: i - LEFT <= j <= i,
    "attention_prefix": lambda i, j, M, N: j <= i or j < PREFIX,
    "attention_sinks": lambda i, j, M, N: i - LEFT <= j <= i,
    "attention_streaming": lambda i, j, M, N: j <= i and (j < KEPT or i - LEFT <= j),
}


@pytest.mark.parametrize("name", MASKS)
def test_blocks_visited_under_a_mask(name: str) -> None:
    """Every block with a pair is visited once, no other is, and full ones have no mask."""
    both = made(name)
    kernels = [kernel for kernel in both.backward.kernels if stored(kernel)]
    assert [stored(kernel) for kernel in kernels] == list(TWO_LOOPS)
    (forward,) = both.forward.kernels
    written = [replace(kernel, body=both_ends(kernel.body)) for kernel in kernels]
    every = (forward, *kernels, *written)
    for kernel, (M, N), (rows, width) in product(every, SIZES, BLOCKS):
        (own,) = (dim.name for dim in kernel.grid if dim.role == "rows")
        sizes = {"M": M, "N": N, "B": 1, "H": 2, "G": 1, "R": 2, "E": 2, "D": 3}
        sizes |= {"window_left": LEFT, "window_right": RIGHT, "kept": KEPT}
        memory = {"prefix": np.array([min(PREFIX, N)])}
        pairs = {(i, j) for i, j in product(range(M), range(N)) if MASKS[name](i, j, M, N)}
        if own == "j":
            pairs = {(j, i) for i, j in pairs}
        met = 0
        for visit in visits(kernel, sizes, sizes_of_blocks(kernel, rows, width), memory):
            places = visit.places[own]
            firsts = [block.first for block in visit.blocks]
            assert len(set(firsts)) == len(firsts), "a block is visited twice"
            for block in visit.blocks:
                others = range(block.first, block.first + width)
                within = [pair in pairs for pair in product(places, others)]
                assert any(within), f"{block} has no pair"
                assert (block.kind == "full") == all(within), block
                met += sum(within)
        assert met == len(pairs) * sizes["H"], "pairs are left out"


# With keys from the first on, or sinks, rows visit as much, and which begins first is left open.
@pytest.mark.parametrize("name", sorted({*MASKS} - {"attention_sinks", "attention_streaming"}))
def test_the_rows_with_most_to_do_begin_first(name: str) -> None:
    """Where the last block of rows visits more than the first, programs begin with it."""
    both = made(name)
    kernels = [kernel for kernel in both.backward.kernels if stored(kernel)]
    for kernel in (*both.forward.kernels, *kernels):
        sizes = {"M": 64, "N": 64, "B": 1, "H": 1, "G": 1, "R": 1, "E": 2, "D": 2}
        sizes |= {"window_left": LEFT, "window_right": RIGHT, "kept": KEPT}
        memory = {"prefix": np.array([PREFIX])}
        found = visits(kernel, sizes, sizes_of_blocks(kernel, 8, 8), memory)
        counts = [len(visit.blocks) for visit in found]
        assert kernel.last_first == (counts[-1] > counts[0] + 2), counts


def test_a_scale_is_applied_behind_the_loops() -> None:
    """dQ and dK are scaled once; of what is in their loops only the scores know the scale."""
    scale = Scalar("scale", "float")
    for kernel in made("attention_causal").backward.kernels:
        for total in {"dQ", "dK"} & set(stored(kernel)):
            *_, last = [op for op in kernel.body if isinstance(op, Let) and op.name == total]
            assert last.value == Binary("*", Name(total, last.dims), scale)
            assert scale not in parts(op for op in kernel.body if isinstance(op, TileLoop))


PHASES = """
def f(Q: Float[Array, "H M E"], K: Float[Array, "H N E"], V: Float[Array, "H N D"],
      g: Float[Array, "H M"], keep: Bool[Array, "H M N"], ok: Bool[Array, "M N"], p: float):
    S = zeros((H, M, N))
    P = zeros((H, M, N))
    O = zeros((H, M, D))
    for h in range(H):
        for i in range(M):
            for j in range(N):
                S[h, i, j] = sum(Q[h, i, e] * K[h, j, e] for e in range(E))
    for h in range(H):
        for i in range(M):
            for j in range(N):
                {mask}
    for h in range(H):
        for i in range(M):
            m = max(S[h, i, j] for j in range(N))
            l = sum(exp(S[h, i, j] - m) for j in range(N))
            for j in range(N):
                P[h, i, j] = exp(S[h, i, j] - m) / l
    for h in range(H):
        for i in range(M):
            for j in range(N):
                P[h, i, j] = {weight}
    for h in range(H):
        for i in range(M):
            for d in range(D):
                O[h, i, d] = sum(P[h, i, j] * V[h, j, d] for j in range(N))
    return O
"""
CAUSAL = "if j > i: S[h, i, j] = -inf"
GIVEN = "S[h, i, j] = S[h, i, j] if ok[i, j] else -inf"


@pytest.mark.parametrize(
    ("mask", "weight"),
    [
        (CAUSAL, "P[h, i, j] * 1.0"),
        (GIVEN, "P[h, i, j] * 1.0"),
        (CAUSAL, "P[h, i, j] / (1.0 - p) if keep[h, i, j] else 0.0"),
        (GIVEN, "P[h, i, j] / (1.0 - p) if uniform(7, h, i, j) >= p else 0.0"),
        (CAUSAL, "P[h, i, j] * g[h, i]"),
    ],
)
def test_weights_changed_in_place_need_no_pass_over_keys_for_their_own_sum(
    mask: str, weight: str
) -> None:
    """The sum of dP * P over keys is that of dO * O, whatever P was multiplied with."""
    text = PHASES.format(mask=mask, weight=weight)
    kernels = emitted_with_backward(parse(Source("<listing>", text))).backward.kernels
    products = {stored(k): len(dots(k.body)) for k in kernels if dots(k.body)}
    assert {"dQ", "dK", "dV"} == {name for each in products for name in each}
    assert len(products) == 2
    (delta,) = (k for k in kernels if "delta" in k.name)
    assert {array.name for array in delta.arrays} >= {"dO", "O"}


def test_a_sum_inside_of_its_logarithm_is_handed_over_as_that() -> None:
    text = PHASES.format(mask=CAUSAL, weight="P[h, i, j] * g[h, i]").replace(
        "l = sum(exp(S[h, i, j] - m) for j in range(N))",
        "z = m + log(sum(exp(S[h, i, j] - m) for j in range(N)))",
    )
    text = text.replace("exp(S[h, i, j] - m) / l", "exp(S[h, i, j] - z)")
    found = emitted_with_backward(parse(Source("<listing>", text)))
    assert [stored(k) for k in found.backward.kernels if dots(k.body)] == [("dQ",), ("dK", "dV")]
    kept = {array.name for kernel in found.backward.kernels for array in kernel.arrays}
    assert "lse" in kept


GATED = """
def f(q: Float[Array, "B M E"], k: Float[Array, "B N E"], v: Float[Array, "B N D"],
      k2: Float[Array, "B U E"], v2: Float[Array, "B U D"], g: Float[Array, "D"]):
    o = zeros((B, M, D))
    for b in range(B):
        for i in range(M):
            m = max(sum(q[b, i, e] * k[b, j, e] for e in range(E)) for j in range(N))
            m2 = max(sum(q[b, i, e] * k2[b, j, e] for e in range(E)) for j in range(U))
            l = sum(exp(sum(q[b, i, e] * k[b, j, e] for e in range(E)) - m) for j in range(N))
            l2 = sum(exp(sum(q[b, i, e] * k2[b, j, e] for e in range(E)) - m2) for j in range(U))
            for d in range(D):
                for j in range(N):
                    s = sum(q[b, i, e] * k[b, j, e] for e in range(E))
                    o[b, i, d] += exp(s - m) / l * v[b, j, d]
                for j in range(U):
                    s = sum(q[b, i, e] * k2[b, j, e] for e in range(E))
                    o[b, i, d] += tanh(g[d]) * exp(s - m2) / l2 * v2[b, j, d]
    return o
"""


def test_a_factor_of_both_operands_is_rounded_with_the_same_one_everywhere() -> None:
    """Or dP is another number for dQ than for dK, and dP - delta is not 0 where it should be."""
    kernels = emitted_with_backward(parse(Source("<listing>", GATED))).backward.kernels
    meeting = [
        {name.split("_")[0] for name in names_in(side)} - {"g"}
        for kernel in kernels
        for dot in dots(kernel.body)
        for side in (dot.left, dot.right)
        if "g_d" in names_in(side)
    ]
    assert len(meeting) >= 3
    assert all(names == {"do"} for names in meeting), meeting


SQUARE = """
def f(Q: Float[Array, "B H N E"], K: Float[Array, "B H N E"], V: Float[Array, "B H N D"]):
    O = zeros((B, H, N, D))
    for b in range(B):
        for h in range(H):
            slope = exp2(-8.0 * (h + 1) / H)
            for i in range(N):
                m = -inf
                l = 0.0
                for j in range(N):
                    s = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(E))
                    m = max(m, s - slope * abs(i - j))
                for j in range(N):
                    s = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(E))
                    l += exp(s - slope * abs(i - j) - m)
                for j in range(N):
                    s = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(E))
                    for d in range(D):
                        O[b, h, i, d] += exp(s - slope * abs(i - j) - m) / l * V[b, h, j, d]
    return O
"""


def test_a_number_of_a_head_does_not_bring_rows_and_keys_into_one_kernel() -> None:
    """There are as many of both; what they share is the slope, and that is next to nothing."""
    kernels = emitted_with_backward(parse(Source("<listing>", SQUARE))).backward.kernels
    assert [stored(k) for k in kernels if dots(k.body)] == [("dQ",), ("dK", "dV")]


SHARED_PART = """
def f(Q: Float[Array, "M H E"], Z: Float[Array, "N C"], R: Float[Array, "N E"],
      W: Float[Array, "H E C"]):
    K = zeros((N, H, E)); O = zeros((M, H, E))
    for j in range(N):
        for h in range(H):
            for e in range(E):
                K[j, h, e] = sum(W[h, e, c] * Z[j, c] for c in range(C))
    for i in range(M):
        for h in range(H):
            for j in range(N):
                S = tanh(Q[i, h] @ K[j, h] + Q[i, h] @ R[j])
                for e in range(E):
                    O[i, h, e] += S * K[j, h, e]
    return O
"""


def test_rows_of_each_head_and_rows_of_all_are_gathered_apart() -> None:
    """Keys made before, with a part that heads share: no score is stored, and no head waits."""
    kernels = emitted_with_backward(parse(Source("<listing>", SHARED_PART))).backward.kernels
    (keys,) = [kernel for kernel in kernels if "dK" in stored(kernel)]
    assert [dim.name for dim in keys.grid] == ["h", "j"]


WINDOWS = """
def f(Q: Float[Array, "7*W E"], K: Float[Array, "7*W E"], V: Float[Array, "7*W D"]):
    O = zeros((7 * W, D))
    for w in range(W):
        for i in range(7):
            m = max(sum(Q[7 * w + i, e] * K[7 * w + j, e] for e in range(E)) for j in range(7))
            l = 0.0
            for j in range(7):
                l += exp(sum(Q[7 * w + i, e] * K[7 * w + j, e] for e in range(E)) - m)
            for j in range(7):
                s = sum(Q[7 * w + i, e] * K[7 * w + j, e] for e in range(E))
                for d in range(D):
                    O[7 * w + i, d] += exp(s - m) / l * V[7 * w + j, d]
    return O
"""


def test_a_number_for_each_row_of_each_window_is_kept() -> None:
    """Of them there are as many as rows: delta worked out again looked for rows in all windows."""
    kernels = emitted_with_backward(parse(Source("<listing>", WINDOWS))).backward.kernels
    grids = [(stored(kernel), [dim.name for dim in kernel.grid]) for kernel in kernels]
    assert grids == [((), ["w", "i"]), (("dQ",), ["w", "i"]), (("dK", "dV"), ["w", "j"])]
