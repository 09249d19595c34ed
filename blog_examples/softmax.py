"""Softmax attention in float64, and how far a listing is from it."""

import numpy as np

from looptrans.executor import execute
from looptrans.frontend import load


def attention(Q, K, V):
    """Return softmax(Q Kᵀ) V, straight from the formula."""
    scores = Q @ K.T
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ V


def difference(listing, M=2, N=3, E=2, D=2, schedule=None):
    """Run a listing, a file or a program, on random inputs and return its largest error in O."""
    random = np.random.default_rng(0)
    Q, K, V = (random.normal(size=shape) for shape in ((M, E), (N, E), (N, D)))
    program = load(listing) if isinstance(listing, str) else listing
    computed = execute(program, inputs={"Q": Q, "K": K, "V": V}, schedule=schedule)["O"]
    return np.abs(computed - attention(Q, K, V)).max()
