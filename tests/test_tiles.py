"""Attention in tiles and with scores in place: the backward pass of softmax, no states kept."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from looptrans.adjoint.backward import backward
from looptrans.adjoint.derived import Backward
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.executor import execute, prepare
from looptrans.ir.walk import nodes
from tests.analysis import program
from tests.test_adjoint_closed import gaps

HEAD = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((M, D))
"""
# Scores that the loop over keys adds up in an array, as it stands or scaled there.
IN_PLACE = (
    HEAD
    + """
    S = zeros((M, N))
    for i in range(M):
        m = -inf; l = 0.0
        for j in range(N):
            for e in range(E):
                S[i, j] += Q[i, e] * K[j, e]
            n = max(m, S[i, j])
            p = exp(S[i, j] - n)
            l = l * exp(m - n) + p
            for d in range(D):
                O[i, d] = O[i, d] * exp(m - n) + p * V[j, d]
            m = n
        for d in range(D):
            O[i, d] /= l
    return O
"""
)
# Scores of a tile, made anew in each; their weights in their place.
TILES = (
    HEAD
    + """
    for i in range(M):
        m = -inf; l = 0.0
        acc = zeros(D)
        for j0 in range(0, {end}, 4):
            s = zeros(4)
            n = m
            for j in range(j0, min(j0 + 4, {end})):
                for e in range(E):
                    s[j - j0] += Q[i, e] * K[j, e]
                n = max(n, s[j - j0])
            b = 0.0
            for j in range(j0, min(j0 + 4, {end})):
                s[j - j0] = exp(s[j - j0] - n)
                b += s[j - j0]
            l = l * exp(m - n) + b
            for d in range(D):
                a = 0.0
                for j in range(j0, min(j0 + 4, {end})):
                    a += s[j - j0] * V[j, d]
                acc[d] = acc[d] * exp(m - n) + a
            m = n
        for d in range(D):
            O[i, d] = acc[d] / l
    return O
"""
)
# Tiles of rows as well, each step over all of a tile.
STAGED = (
    HEAD
    + """
    for i0 in range(0, M, 2):
        m = full((2,), -inf); l = zeros(2)
        acc = zeros((2, D))
        for j0 in range(0, N, 4):
            S = zeros((2, 4)); P = zeros((2, 4))
            for i in range(i0, min(i0 + 2, M)):
                for j in range(j0, min(j0 + 4, N)):
                    for e in range(E):
                        S[i - i0, j - j0] += Q[i, e] * K[j, e]
            for i in range(i0, min(i0 + 2, M)):
                n = m[i - i0]
                for j in range(j0, min(j0 + 4, N)):
                    n = max(n, S[i - i0, j - j0])
                c = exp(m[i - i0] - n)
                l[i - i0] *= c
                for d in range(D):
                    acc[i - i0, d] *= c
                for j in range(j0, min(j0 + 4, N)):
                    P[i - i0, j - j0] = exp(S[i - i0, j - j0] - n)
                    l[i - i0] += P[i - i0, j - j0]
                m[i - i0] = n
            for i in range(i0, min(i0 + 2, M)):
                for j in range(j0, min(j0 + 4, N)):
                    for d in range(D):
                        acc[i - i0, d] += P[i - i0, j - j0] * V[j, d]
        for i in range(i0, min(i0 + 2, M)):
            for d in range(D):
                O[i, d] = acc[i - i0, d] / l[i - i0]
    return O
"""
)
# Rows of a tile inside of the loop over tiles of keys, with scores of their own.
ROWS = (
    HEAD
    + """
    m = full(M, -inf); l = zeros(M)
    for i0 in range(0, M, 4):
        for j0 in range(0, N, 4):
            for i in range(i0, min(i0 + 4, M)):
                n = m[i]
                s = zeros(4)
                for j in range(j0, min(j0 + 4, N)):
                    for e in range(E):
                        s[j - j0] += Q[i, e] * K[j, e]
                    n = max(n, s[j - j0])
                l[i] = l[i] * exp(m[i] - n)
                for d in range(D):
                    O[i, d] = O[i, d] * exp(m[i] - n)
                for j in range(j0, min(j0 + 4, N)):
                    p = exp(s[j - j0] - n)
                    l[i] += p
                    for d in range(D):
                        O[i, d] += p * V[j, d]
                m[i] = n
        for i in range(i0, min(i0 + 4, M)):
            for d in range(D):
                O[i, d] /= l[i]
    return O
"""
)
SCALED = IN_PLACE.replace(
    "            n = max", "            S[i, j] = S[i, j] * 0.5\n            n = max"
)
# Tiles of places, of which the last has some that are behind the last key, or none.
PLACES = (
    TILES.replace("range(j0, min(j0 + 4, {end}))", "range(4)")
    .replace("range(0, {end}, 4)", "range({count})")
    .replace("j - j0", "j")
    .replace("[j, ", "[4 * j0 + j, ")
)
GUARDED = (
    PLACES.format(count="(N + 3) // 4")
    .replace(
        """                for e in range(E):
                    s[j] += Q[i, e] * K[4 * j0 + j, e]
""",
        """                if 4 * j0 + j < N:
                    for e in range(E):
                        s[j] += Q[i, e] * K[4 * j0 + j, e]
                else:
                    s[j] = -inf
""",
    )
    .replace(
        "a += s[j] * V[4 * j0 + j, d]", "a += s[j] * V[4 * j0 + j, d] if 4 * j0 + j < N else 0.0"
    )
)
DIVIDED = (
    PLACES.replace("s[j] = exp(s[j] - n)", "p = exp(s[j] - n)")
    .replace("b += s[j]", "b += p")
    .replace("a += s[j]", "a += exp(s[j] - n)")
    .format(count="N // W")
    .replace("4", "W")
    .replace('"N D"])', '"N D"], W: Const)')
    .replace("    O = zeros", "    assert N % W == 0\n    O = zeros")
)
FORMS = {
    "in place": IN_PLACE,
    "in place, a row": IN_PLACE.replace("    S = zeros((M, N))\n", "")
    .replace("m = -inf;", "S = zeros(N); m = -inf;")
    .replace("S[i, j]", "S[j]"),
    "in place, causal": IN_PLACE.replace("range(N)", "range(i + 1)"),
    "in place, causal by a guard": IN_PLACE.replace(
        "range(N):\n", "range(N):\n          if j <= i:\n"
    ),
    "scaled": SCALED,
    "scaled and read again": SCALED.replace("return O", "return O, S"),
    "tiles": TILES.format(end="N"),
    "tiles, causal": TILES.format(end="i + 1"),
    "tiles, causal by guards": re.sub(
        r"( +)(for j in .*\n)",
        r"\1\2\1  if j <= i:\n",
        TILES.format(end="N").replace("0, N, 4):\n", "0, N, 4):\n          if j0 <= i:\n"),
    ),
    "staged": STAGED,
    "rows": ROWS,
    "places": GUARDED,
    "places, a divided length": DIVIDED,
}


def gap(found: Backward, causal: bool, scale: float) -> float:
    """Return how far gradients are from autograd's of softmax attention."""
    sizes = {"M": 5, "N": 6, "E": 2, "D": 3}
    sizes |= {each.name: 2 for each in found.listing.parameters if each.name == "W"}
    made = prepare(found.listing, sizes, None, 1).arrays
    given = {name: torch.tensor(made[name], requires_grad=True) for name in ("Q", "K", "V")}
    scores = scale * given["Q"] @ given["K"].T
    if causal:
        scores = scores.masked_fill(torch.ones(5, 6).tril() == 0, -torch.inf)
    attention = scores.softmax(1) @ given["V"]
    incoming = np.random.default_rng(1).standard_normal((5, 3))
    want = torch.autograd.grad((attention * torch.tensor(incoming)).sum(), [*given.values()])
    forward = execute(found.forward, sizes=sizes, inputs=made)
    np.testing.assert_allclose(forward["O"], attention.detach().numpy(), rtol=1e-12)
    inputs = {**made, **{saved.name: forward[saved.name] for saved in found.saved}}
    inputs |= {found.incoming["O"]: incoming}
    got = execute(found.program, sizes=sizes, inputs=inputs)
    pairs = zip(given, want, strict=True)
    return max(float(np.abs(got[f"d{name}"] - each.numpy()).max()) for name, each in pairs)


@pytest.mark.parametrize("name", FORMS)
def test_no_states_are_kept_of_a_softmax(name: str) -> None:
    found = backward(program(FORMS[name]), of=("O",))
    assert not [note for note in found.notes if "kept" in note or "attains" in note]
    assert {saved.name for saved in found.saved} <= {"O", "lse"}
    assert all(step.decision == "legal" for step in found.steps)
    assert gap(found, "causal" in name, 0.5 if "scaled" in name else 1.0) < 1e-12


def test_scores_in_tiles_have_the_backward_pass_of_scores() -> None:
    of_tiles, plain = (backward(program(FORMS[name])) for name in ("tiles", "in place, a row"))
    assert len(list(nodes(of_tiles.program.body))) == len(list(nodes(plain.program.body)))
    assert of_tiles.incoming == plain.incoming


# What a cell held before is looked at, and cells that several iterations change.
LOOKED_AT = IN_PLACE.replace("S = zeros((M, N))", "S = full((M, N), 0.25)")
BEFORE = (
    LOOKED_AT.replace(
        "            for e in range(E):\n                S",
        "            y = S[i, j]\n            for e in range(E):\n                S",
    )
    .replace("max(m, S[i, j])", "max(m, S[i, j] + y)")
    .replace("exp(S[i, j] - n)", "exp(S[i, j] + y - n)")
)
SHARED = IN_PLACE.replace("S[i, j]", "S[i, j // 2]")


def test_what_an_array_held_before_is_part_of_what_a_loop_makes() -> None:
    assert max(gaps(backward(program(LOOKED_AT)), 1)) < 1e-9


@pytest.mark.parametrize("text", [BEFORE, SHARED])
def test_cells_that_are_not_of_one_iteration_alone_have_no_closed_form(text: str) -> None:
    with pytest.raises(NotDifferentiated, match="no closed form"):
        backward(program(text))
