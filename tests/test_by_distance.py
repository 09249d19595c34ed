"""Loops over how far away a row is, made loops over the rows: windows as a stencil says them."""

from __future__ import annotations

import os
from typing import Any

import pytest

torch = pytest.importorskip("torch")
os.environ.setdefault("TRITON_INTERPRET", "1")

from looptrans.blocks.block_ir.ops import has_products, most_dims, stored_blocks  # noqa: E402
from looptrans.emit.backward import emitted_with_backward  # noqa: E402
from looptrans.emit.listing import lowered  # noqa: E402
from looptrans.ir.listing import listing  # noqa: E402
from looptrans.runtime.verifying.backward import verify_pass  # noqa: E402
from looptrans.transforms.rows.shift import with_rows_by_distance  # noqa: E402
from tests.analysis import program  # noqa: E402
from tests.test_attention_strangers import compare, normal  # noqa: E402

WINDOW = """
def window(Q: Float[Array, "H N E"], K: Float[Array, "H N E"], V: Float[Array, "H N D"], w: int):
    O = zeros((H, N, D))
    for h in range(H):
        for i in range(N):
            m = -inf
            l = 0.0
            o = zeros(D)
            for t in range(FROM, TO):
                if GUARD:
                    s = sum(Q[h, i, e] * K[h, FAR, e] for e in range(E))
                    n = max(m, s)
                    l = l * exp(m - n) + exp(s - n)
                    for d in range(D):
                        o[d] = o[d] * exp(m - n) + exp(s - n) * V[h, FAR, d]
                    m = n
            for d in range(D):
                O[h, i, d] = o[d] / l
    return O
"""
# From where to where, which row, under which guard, and what that loop becomes.
WAYS = {
    "before": ("0", "w", "i - t", "i - t >= 0", "for t in range(i, i - w, -1)"),
    "behind": ("0", "w", "i + t", "i + t < N", "for t in range(i, i + w)"),
    "around": ("1 - w", "w", "i + t", "0 <= i + t < N", "for t in range(i - w + 1, i + w)"),
    "shifted": ("0", "2 * w", "i + 1 - t", "0 <= i + 1 - t < N", "for t in range(i + 1, "),
}


@pytest.mark.parametrize("way", WAYS)
def test_windows_that_say_distances_are_those_that_say_keys(way: str) -> None:
    first, last, far, guard, loop = WAYS[way]
    text = WINDOW.replace("FROM", first).replace("TO", last)
    text = text.replace("FAR", far).replace("GUARD", guard)
    listed = program(text)
    found = with_rows_by_distance(listed)
    assert found is not None
    assert found.certificate.verdict == "legal"
    assert loop in listing(found.program)
    (kernel,) = lowered(listed).kernels
    assert most_dims(kernel.body) == 2
    assert has_products(kernel.body)
    if way != "before":
        return
    kernels = emitted_with_backward(listed).backward.kernels
    for gradient in ("dQ", "dK"):
        (kernel,) = (k for k in kernels if gradient in stored_blocks(k.body))
        assert most_dims(kernel.body) == 2

    def theirs(q: Any, k: Any, v: Any, w: int) -> Any:
        at = torch.arange(q.shape[1])
        behind = at[:, None] - at[None]
        seen = (behind >= 0) & (behind < w)
        return torch.softmax((q @ k.mT).masked_fill(~seen, -torch.inf), 2) @ v

    compare(text, theirs, normal((2, 7, 4), (2, 7, 4), (2, 7, 3)), [3])


SUMS = """
def weights(Q: Float[Array, "N E"], K: Float[Array, "N E"], b: Float[Array, "2*w+1"], w: int):
    Y = zeros(N)
    for i in range(N):
        Y[i] = sum(exp(Q[i] @ K[i + r] + b[r + w]) for r in range(-w, w + 1) if 0 <= i + r < N)
    return Y
"""


def test_sums_over_distances_under_a_condition_count_rows_too() -> None:
    def theirs(q: Any, k: Any, b: Any, w: int) -> Any:
        at = torch.arange(q.shape[0])
        far = at[None] - at[:, None]
        weights = torch.exp(q @ k.mT + b[far.clamp(-w, w) + w])
        return weights.masked_fill(far.abs() > w, 0.0).sum(1)

    found = with_rows_by_distance(program(SUMS))
    assert found is not None
    text = listing(found.program)
    assert "Q[i] @ K[r] + b[r - i + w]" in text.replace("r + w - i", "r - i + w")
    compare(SUMS, theirs, normal((9, 4), (9, 4), (5,)), [2])


OTHERS = {
    "weights of a convolution": "sum(X[i + t, c] * W[t, c] for c in range(C))",
    "a lag of all rows": "sum(X[i, c] * X[i + t, c] for c in range(C)) * W[t, 0]",
    "two directions": "sum(X[i, c] * (X[i + t, c] + X[i - t, c]) for c in range(C))",
    "rows of a batch": "sum(X[i * T + t, c] * W[i, c] for c in range(C))",
    "every other row": "sum(X[i, c] * X[i + 2 * t, c] for c in range(C))",
}


@pytest.mark.parametrize("value", OTHERS.values(), ids=OTHERS)
def test_other_loops_count_as_they_do(value: str) -> None:
    """What a row is multiplied with hangs on the distance itself, or on several rows."""
    inner = f"Y[i] += {value}"
    loops = ("for i in range(N):", "for t in range(T):")
    outer, within = loops[::-1] if value == OTHERS["a lag of all rows"] else loops
    text = f"""
def other(X: Float[Array, "M C"], W: Float[Array, "T C"], N: int):
    Y = zeros(N)
    {outer}
        {within}
            {inner}
    return Y
"""
    assert with_rows_by_distance(program(text)) is None


GUARDED = """
def earlier(Q: Float[Array, "N E"], X: Float[Array, "N E"], b: Float[Array, "2*c+1"], c: int):
    Y = zeros(N)
    for i in range(N):
        for r in range(-c, c + 1):
            s = sum(Q[i, e] * X[i + r, e] for e in range(E)) if i + r >= 0 and r < 1 else 0.0
            Y[i] += exp(s) * b[r + c]
    return Y
"""


def test_rows_that_only_a_condition_on_both_keeps_inside_are_read_inside() -> None:
    report = verify_pass(program(GUARDED), "forward", [{"N": 19, "E": 4, "c": 5}], ["float32"])
    assert report.passed
