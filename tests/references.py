"""What the listings in `specs/` should compute, written from the mathematics.

Vectorized NumPy in float64 that shares nothing with the listings or with looptrans: no loop, no
running state. Each function takes a listing's inputs by keyword, leaves them as they are, and
returns its outputs by name; where a listing has results beside the main one (the row maximum and
the row sum of attention) they are given as well.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.integer]
Outputs = dict[str, Floats]


def attention(*, Q: Floats, K: Floats, V: Floats) -> Outputs:
    """Softmax attention: O = softmax(Q Kᵀ) V, m the row maximum and l the row sum of exp(S - m).

    Q (M, E), K (N, E), V (N, D) -> O (M, D), m (M), l (M). Without keys (N = 0), O and l are 0 and
    m is -inf.
    """
    scores = Q @ K.T
    m = scores.max(axis=1, initial=-np.inf)
    weights = np.exp(scores - m[:, None])
    l = weights.sum(axis=1)  # noqa: E741 - the listings' name for it
    return {"O": (weights / l[:, None]) @ V, "m": m, "l": l}


def softmax(*, X: Floats) -> Outputs:
    """The softmax of each row: X (M, N) -> Y (M, N)."""
    shifted = np.exp(X - X.max(axis=1, keepdims=True, initial=-np.inf))
    return {"Y": shifted / shifted.sum(axis=1, keepdims=True)}


def softmax_cross_entropy(*, X: Floats, y: Integers) -> Outputs:
    """-log softmax(X)[n, y[n]]: logits X (N, V), labels y (N) -> loss (N)."""
    log_sum_exp = np.logaddexp.reduce(X, axis=1)
    label_score = np.take_along_axis(X, y[:, None], axis=1)[:, 0]
    return {"loss": log_sum_exp - label_score}


def linear_cross_entropy(*, X: Floats, W: Floats, y: Integers) -> Outputs:
    """-log softmax(X W^T)[n, y[n]]: features X (N, F), W (V, F), labels y (N) -> loss (N)."""
    return softmax_cross_entropy(X=X @ W.T, y=y)


def rmsnorm(*, X: Floats, w: Floats, eps: float) -> Outputs:
    """Rows over their root mean square, times w: X (M, N), w (N) -> Y (M, N)."""
    root_mean_square = np.sqrt(np.mean(X**2, axis=1, keepdims=True) + eps)
    return {"Y": X / root_mean_square * w}


def layernorm(*, X: Floats, w: Floats, b: Floats, eps: float) -> Outputs:
    """Rows with mean 0 and variance 1, times w, plus b: X (M, N), w (N), b (N) -> Y (M, N)."""
    mean = X.mean(axis=1, keepdims=True)
    variance = X.var(axis=1, keepdims=True)
    return {"Y": (X - mean) / np.sqrt(variance + eps) * w + b}


def matmul(*, A: Floats, B: Floats, bias: Floats) -> Outputs:
    """max(A B + bias, 0): A (M, K), B (K, N), bias (N) -> C (M, N)."""
    return {"C": np.maximum(A @ B + bias, 0.0)}


def stencil(*, A: Floats) -> Outputs:
    """`A[i, j] = A[i - 1, j + 1]` row by row over 1 <= i < N, 1 <= j < N - 1, in closed form.

    An inner element takes the value of the border element at which its antidiagonal enters the
    array from the upper right, s = min(i, N - 1 - j) steps away. A (N, N) -> A (N, N).
    """
    n = A.shape[0]
    i, j = np.indices(A.shape)
    steps = np.where((i >= 1) & (j >= 1) & (j < n - 1), np.minimum(i, n - 1 - j), 0)
    return {"A": A[i - steps, j + steps]}


def prefix_sum(*, x: Floats) -> Outputs:
    """P = L x with the lower triangle L of ones: x (N) -> P (N)."""
    return {"P": np.tril(np.ones((x.size, x.size))) @ x}
