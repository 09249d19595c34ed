"""Listings for tests of derivations, with what NumPy makes of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from looptrans.derivation import moves
from looptrans.derivation.step import Argument, DerivationStep, NotDone
from looptrans.executor import execute
from looptrans.ir.program import Program
from tests.analysis import program

Array = np.ndarray[Any, Any]
Inputs = dict[str, Array]


def passes(score: str, arguments: str = "", i: str = "i", j: str = "j", d: str = "d") -> Program:
    """Return attention in three passes with the scores given as an expression over q · k."""
    dot = f"sum(Q[{i}, e] * K[{j}, e] for e in range(0, E))"
    return program(f"""
def weighted(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]{arguments}):
    S = zeros((M, N))
    m = full(M, -inf)
    l = zeros(M)
    O = zeros((M, D))
    for {i} in range(0, M):
        for {j} in range(0, N):
            S[{i}, {j}] = {score.replace("DOT", dot)}
            m[{i}] = max(m[{i}], S[{i}, {j}])
        for {j} in range(0, N):
            l[{i}] = l[{i}] + exp(S[{i}, {j}] - m[{i}])
        for {j} in range(0, N):
            for {d} in range(0, D):
                O[{i}, {d}] = O[{i}, {d}] + exp(S[{i}, {j}] - m[{i}]) / l[{i}] * V[{j}, {d}]
    return O
""")


PLAIN = passes("DOT")
RENAMED = program("""
def f(a: Float[Array, "R X"], b: Float[Array, "C X"], w: Float[Array, "C W"]):
    z = zeros((R, W))
    for row in range(0, R):
        top = -inf
        for col in range(0, C):
            top = max(top, sum(a[row, u] * b[col, u] for u in range(0, X)))
        tot = 0.0
        for col in range(0, C):
            tot = tot + exp(sum(a[row, u] * b[col, u] for u in range(0, X)) - top)
        for k in range(0, W):
            z[row, k] = 0.0
        for col in range(0, C):
            p = exp(sum(a[row, u] * b[col, u] for u in range(0, X)) - top) / tot
            for k in range(0, W):
                z[row, k] = z[row, k] + p * w[col, k]
    return z
""")
SOFTCAP = passes("cap * tanh(DOT / cap)", ", cap: float")
BIAS = passes("DOT + B[i, j]", ', B: Float[Array, "M N"]')
TEMPERATURE = passes("DOT / t", ", t: float")
CAUSAL = passes("DOT if j <= i else -inf")
LOGSUMEXP = program("""
def logsumexp(x: Float[Array, "N"]):
    m = -inf
    for j in range(0, N):
        m = max(m, x[j])
    s = 0.0
    for j in range(0, N):
        s = s + exp(x[j] - m)
    y = m + log(s)
    return y
""")
FAR_APART = program("""
def weighted(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    S = zeros((M, N))
    m = full(M, -inf)
    l = zeros(M)
    O = zeros((M, D))
    for i in range(0, M):
        for j in range(0, N):
            for e in range(0, E):
                S[i, j] = S[i, j] + Q[i, e] * K[j, e]
    for i in range(0, M):
        for j in range(0, N):
            m[i] = max(m[i], S[i, j])
    for i in range(0, M):
        for j in range(0, N):
            l[i] = l[i] + exp(S[i, j] - m[i])
    for i in range(0, M):
        for j in range(0, N):
            for d in range(0, D):
                O[i, d] = O[i, d] + exp(S[i, j] - m[i]) / l[i] * V[j, d]
    return O
""")
GUARDED = program("""
def weighted(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    m = full(M, -inf)
    l = zeros(M)
    O = zeros((M, D))
    for i in range(0, M):
        for j in range(0, N):
            if j <= i:
                m[i] = max(m[i], sum(Q[i, e] * K[j, e] for e in range(0, E)))
        for j in range(0, N):
            if j <= i:
                l[i] = l[i] + exp(sum(Q[i, e] * K[j, e] for e in range(0, E)) - m[i])
        for j in range(0, N):
            if j <= i:
                P = exp(sum(Q[i, e] * K[j, e] for e in range(0, E)) - m[i]) / l[i]
                for d in range(0, D):
                    O[i, d] = O[i, d] + P * V[j, d]
    return O
""")
SUM = program("""
def total(x: Float[Array, "N"]):
    s = 0.0
    for j in range(0, N):
        s = s + x[j]
    return s
""")

ATTENTIONS: dict[str, tuple[Program, Callable[[Inputs], Array]]] = {
    "plain": (PLAIN, lambda x: x["Q"] @ x["K"].T),
    "softcap": (SOFTCAP, lambda x: 5.0 * np.tanh(x["Q"] @ x["K"].T / 5.0)),
    "bias": (BIAS, lambda x: x["Q"] @ x["K"].T + x["B"]),
    "temperature": (TEMPERATURE, lambda x: x["Q"] @ x["K"].T / 0.7),
    "causal": (CAUSAL, lambda x: _causal(x["Q"] @ x["K"].T)),
    "guarded": (GUARDED, lambda x: _causal(x["Q"] @ x["K"].T)),
    "far apart": (FAR_APART, lambda x: x["Q"] @ x["K"].T),
}


def _causal(scores: Array) -> Array:
    rows, columns = scores.shape
    return np.where(np.arange(columns)[None] <= np.arange(rows)[:, None], scores, -np.inf)


def softmax_mean(scores: Array, values: Array) -> Array:
    """Return softmax(scores) @ values, zero for rows that are -inf throughout."""
    found = np.zeros((scores.shape[0], values.shape[1]))
    for row, score in enumerate(scores):
        top = score.max(initial=-np.inf)
        if top > -np.inf:
            p = np.exp(score - top)
            found[row] = p @ values / p.sum()
    return found


def attention_inputs(seed: int, rows: int = 3, columns: int = 7, width: int = 2) -> Inputs:
    rng = np.random.default_rng(seed)
    return {
        "Q": rng.standard_normal((rows, 2)),
        "K": rng.standard_normal((columns, 2)),
        "V": rng.standard_normal((columns, width)),
    }


def scored(scores: Array, seed: int = 0, width: int = 2) -> Inputs:
    """Return inputs whose products q · k are given scores: Q the scores, K the unit matrix."""
    columns = scores.shape[1]
    rng = np.random.default_rng(seed)
    return {
        "Q": np.zeros((scores.shape[0], 1)),
        "K": np.zeros((columns, 1)),
        "V": rng.standard_normal((columns, width)),
        "B": scores,
    }


def run(what: Program, inputs: Inputs, **more: Any) -> list[Array]:
    wanted = {name: value for name, value in inputs.items() if name in what.arguments}
    return list(execute(what, inputs=wanted, **more).values())


def made_once() -> Callable[[str, Program, tuple[Argument, ...]], DerivationStep]:
    """Return what makes a step, the same step of the same program once only."""

    @cache
    def proved(kind: str, program: Program, arguments: Any, types: Any) -> Any:
        try:
            return moves.made(kind, program, arguments)
        except NotDone as error:
            return error

    def made(kind: str, program: Program, arguments: tuple[Argument, ...]) -> DerivationStep:
        found = proved(kind, program, arguments, tuple(map(type, arguments)))
        if isinstance(found, NotDone):
            raise found
        assert isinstance(found, DerivationStep)
        return found

    return made
