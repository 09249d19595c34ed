"""Blocks that a loop goes over several times: elements one by one, where that is proved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from looptrans.adjoint.backward import backward
from looptrans.algebra.elements.one_by_one import one_by_one
from looptrans.derivation.derive import derive
from looptrans.executor import execute, prepare
from looptrans.ir.listing import listing as text_of
from looptrans.ir.program import Program
from tests.analysis import program
from tests.test_adjoint_closed import gaps
from tests.test_tiles import STAGED

HEAD = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((M, D)); L = zeros(M); s = zeros({cells})
    for i in range(M):
        m = -inf; l = 0.0
"""
END = """
        for d in range(D):
            O[i, d] /= l
        L[i] = m + log(l)
    return O, L
"""
PAPER = """
        for j0 in range(0, {end}, 4):
            n = m
            for j in range(j0, min(j0 + 4, {end})):
                s[{cell}] = Q[i] @ K[j]
                n = max(n, s[{cell}])
            c = exp(m - n)
            l = l * c
            for d in range(D):
                O[i, d] *= c
            for j in range(j0, min(j0 + 4, {end})):
                p = exp(s[{cell}] - n)
                l += p
                for d in range(D):
                    O[i, d] += p * V[j, d]
            m = n
"""
# Where the keys end, and where a block's scores are kept.
WHOLE = {"end": "N", "cell": "j", "cells": "N"}
CAUSAL = {"end": "i + 1", "cell": "j - j0", "cells": "4"}
# Each block a softmax of its own, joined with what was before.
JOINED = """
        for t in range((N + 3) // 4):
            n = -inf; b = 0.0
            for u in range(4):
                if 4 * t + u < N:
                    s[u] = Q[i] @ K[4 * t + u]
                    n = max(n, s[u])
            for u in range(4):
                if 4 * t + u < N:
                    b += exp(s[u] - n)
            M2 = max(m, n)
            l = l * exp(m - M2) + b * exp(n - M2)
            for d in range(D):
                a = 0.0
                for u in range(4):
                    if 4 * t + u < N:
                        a += exp(s[u] - n) * V[4 * t + u, d]
                O[i, d] = O[i, d] * exp(m - M2) + a * exp(n - M2)
            m = M2
"""
# What rows and blocks keep, made anew in each of them.
ANEW = """
        o = zeros(D)
        for t in range((N + 3) // 4):
            s = full(4, -inf)
            n = -inf
            for u in range(4):
                if 4 * t + u < N:
                    s[u] = Q[i] @ K[4 * t + u]
                    n = max(n, s[u])
            M2 = max(m, n)
            b = 0.0
            a = zeros(D)
            for u in range(4):
                if 4 * t + u < N:
                    p = exp(s[u] - M2)
                    b += p
                    for d in range(D):
                        a[d] += p * V[4 * t + u, d]
            l = l * exp(m - M2) + b
            for d in range(D):
                o[d] = o[d] * exp(m - M2) + a[d]
            m = M2
        for d in range(D):
            O[i, d] = o[d]
"""
SUMS = """
        for j0 in range(0, N, 4):
            n = max(m, max(Q[i] @ K[j] for j in range(j0, min(j0 + 4, N))))
            c = exp(m - n)
            l = l * c + sum(exp(Q[i] @ K[j] - n) for j in range(j0, min(j0 + 4, N)))
            for d in range(D):
                O[i, d] = O[i, d] * c + sum(
                    exp(Q[i] @ K[j] - n) * V[j, d] for j in range(j0, min(j0 + 4, N))
                )
            m = n
"""
# No attention: mean and variance of blocks, joined as Chan et al. do.
MOMENTS = """
def f(X: Float[Array, "M N"]):
    mean = zeros(M); var = zeros(M)
    for i in range(M):
        mu = 0.0; m2 = 0.0; n = 0.0
        for j0 in range(0, N, 4):
            nb = 0.0; sb = 0.0; m2b = 0.0
            for j in range(j0, min(j0 + 4, N)):
                nb += 1.0
                sb += X[i, j]
            mb = sb / nb
            for j in range(j0, min(j0 + 4, N)):
                m2b += (X[i, j] - mb) ** 2
            delta = mb - mu
            total = n + nb
            mu = mu + delta * nb / total
            m2 = m2 + m2b + delta * delta * n * nb / total
            n = total
        mean[i] = mu
        var[i] = m2 / n
    return mean, var
"""
# Rows that see up to themselves, by -inf, by what each element asks, and by what a block asks.
MASKED = PAPER.replace("Q[i] @ K[j]", "Q[i] @ K[j] if j <= i else -inf")
ASKED = """
        for j0 in range(0, N, 4):
            if j0 <= i:
                n = m
                for j in range(j0, min(j0 + 4, N)):
                    if j <= i:
                        n = max(n, Q[i] @ K[j])
                b = n if n > -inf else 0.0
                c = exp(m - b)
                l *= c
                for d in range(D):
                    O[i, d] *= c
                for j in range(j0, min(j0 + 4, N)):
                    if j <= i:
                        p = exp(Q[i] @ K[j] - b)
                        l += p
                        for d in range(D):
                            O[i, d] += p * V[j, d]
                m = n
"""
# Places behind the last key that hold what changes no maximum, or what may.
PADDED = """
        for t in range((N + 3) // 4):
            n = m
            for u in range(4):
                if 4 * t + u < N:
                    s[u] = Q[i] @ K[4 * t + u]
                else:
                    s[u] = {padding}
            for u in range(4):
                n = max(n, s[u])
            l = l * exp(m - n)
            for d in range(D):
                O[i, d] *= exp(m - n)
            for u in range(4):
                if 4 * t + u < N:
                    p = exp(s[u] - n)
                    l += p
                    for d in range(D):
                        O[i, d] += p * V[4 * t + u, d]
            m = n
"""
PAGED = """
def f(Q: Float[Array, "B E"], K: Float[Array, "C P E"], table: Int[Array, "B T", "0:C"],
      n: Int[Array, "B", "1:T*P+1"], P: Const):
    L = zeros(B); s = zeros(P)
    for b in range(B):
        m = -inf; l = 0.0
        for t in range((n[b] + P - 1) // P):
            top = m
            for u in range(P):
                if t * P + u < n[b]:
                    s[u] = Q[b] @ K[table[b, t], u]
                    top = max(top, s[u])
            l *= exp(m - top)
            for u in range(P):
                if t * P + u < n[b]:
                    l += exp(s[u] - top)
            m = top
        L[b] = m + log(l)
    return L
"""


def attention(body: str, places: dict[str, str] = WHOLE) -> str:
    """Return softmax attention with the keys gone over in some way."""
    text = (HEAD + body + END).format(**places)
    return "\n".join(line for line in text.splitlines() if line.strip()) + "\n"


# The variable of the first pass is that of a sum in the second.
NAMES = """
def f(X: Float[Array, "N D"], Q: Float[Array, "D"]):
    m = -inf; l = 0.0
    for j0 in range(0, N, 4):
        n = m
        for d in range(j0, min(j0 + 4, N)):
            n = max(n, X[d, 0])
        l *= exp(m - n)
        for j in range(j0, min(j0 + 4, N)):
            l += exp(X[j, 0] - n) * sum(X[j, d] * Q[d] for d in range(D))
        m = n
    return l
"""

RIGHT = {
    "paper": attention(PAPER),
    "causal": attention(PAPER, CAUSAL),
    "joined": attention(JOINED, CAUSAL),
    "anew": attention(ANEW).replace("s = zeros(N)", ""),
    "sums": attention(SUMS),
    "masked": attention(MASKED, CAUSAL | {"end": "N"}),
    "asked": attention(ASKED),
    "moments": MOMENTS,
    "padded": attention(PADDED, CAUSAL | {"padding": "-inf"}),
    "paged": PAGED,
    "names": NAMES,
}
# What is done otherwise, and what is said of it.
WRONG = {
    "o as it was": (("O[i, d] *= c", "O[i, d] *= 1.0"), "an element more is refuted"),
    "rescaled twice": (("l = l * c", "l = l * c * c"), "an element more is refuted"),
    "own maximum": (
        ("            n = m\n", "            n = -inf\n"),
        "an element more is refuted",
    ),
    "other scores": (("exp(s[j] - n)", "exp(s[N - 1 - j] - n)"), "under another subscript"),
    "weights kept": (("p = exp(s[j] - n)", "s[j] = exp(s[j] - n); p = s[j]"), "in between"),
    "a cast": (("exp(s[j] - n)", "exp(s[j] - float16(n))"), "an element more is"),
    "a logarithm": (("l += p", "l += p * log(n - 60)"), "a logarithm"),
    "several cells": (("l += p\n", "s[j + 1] = p; l += p\n"), "S"),
    "made of the maximum": (
        (
            "                l += p\n",
            "                y = 0.0\n                for d in range(D):\n"
            "                    y = y * 0.5 + n * V[j, d]\n                l += p * y\n",
        ),
        "inside carries values of the state",
    ),
    "first value": (("m = -inf;", "m = -inf if i >= 0 else 3.0;"), "begins as what is not known"),
}


def same(before: Program, after: Program, sizes: dict[str, int]) -> None:
    """Compare what two programs return."""
    inputs: dict[str, Any] = dict(prepare(before, sizes, None, 1).arrays)
    want = execute(before, sizes=sizes, inputs=inputs)
    got = execute(after, sizes=sizes, inputs=inputs)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", RIGHT)
def test_elements_of_blocks_are_taken_one_by_one(name: str) -> None:
    listing = program(RIGHT[name])
    found, reasons = one_by_one(listing)
    assert found is not None, reasons
    assert all(law.answer == "proved" for law in found.laws)
    assert "min(" not in text_of(found.program)
    for n in (1, 4, 7):
        sizes = {"M": min(n, 3), "N": n, "E": 2, "D": 2, "B": 2, "C": 3, "T": n, "P": 2}
        same(listing, found.program, {p.name: sizes[p.name] for p in listing.parameters})


@pytest.mark.parametrize("name", WRONG)
def test_blocks_that_are_not_their_elements_one_by_one_stay(name: str) -> None:
    (old, new), why = WRONG[name]
    text = attention(PAPER).replace(old, new)
    assert text != attention(PAPER)
    if name in ("weights kept", "several cells"):
        text = text.replace("return O, L", "return O, L, s")
    found, reasons = one_by_one(program(text))
    assert found is None
    assert len(reasons) == 1 and why in reasons[0]


def test_places_that_do_not_count_are_left_out() -> None:
    found, _ = one_by_one(program(RIGHT["padded"]))
    assert found is not None and "range(0, N)" in text_of(found.program)
    numbers, _ = one_by_one(program(attention(PADDED, CAUSAL | {"padding": "-1.0"})))
    assert numbers is None or "range(0, N)" not in text_of(numbers.program)


def test_a_sum_over_a_block_and_more_is_no_pass() -> None:
    """What it counts its elements by is its own: no condition of an element."""
    text = attention(PADDED, CAUSAL | {"padding": "-inf"})
    both = "sum(K[j, e] for j in range(4 * t, 4 * t + 4) if j < N for e in range(E))"
    text = text.replace("            n = m\n", f"            n = m\n            l = l + {both}\n")
    assert both in text
    found, reasons = one_by_one(program(text))
    assert found is None and len(reasons) == 1


def test_what_follows_is_derived_from_the_elements() -> None:
    listing = program(RIGHT["paper"])
    steps = derive(listing).steps
    assert steps[0].kind == "elements" and "blocks" in [step.kind for step in steps]
    found = backward(listing)
    assert found.steps[0].name.startswith("make j0 and j one loop")
    assert max(gaps(found, 1)) < 1e-9


def test_blocks_that_end_by_a_loop_inside_of_them_are_left_as_they_are() -> None:
    assert one_by_one(program(STAGED.replace("j0 + 4, N", "j0 + 4, N, i + 1")))[0] is None
