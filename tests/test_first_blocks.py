"""Pointers that are made before the loops over blocks, and what those loops count with."""

from __future__ import annotations

import re

import pytest

from looptrans.emit.listing import emitted
from tests.analysis import program

ATTENTION = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], z: {z}):
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(N):
            m = max(m, {score})
        for j in range(N):
            l = l + exp({score} - m)
        for j in range(N):
            for d in range(D):
                O[i, d] = O[i, d] + exp({score} - m) / l * V[j, d]
    return O
"""
SCORE = "sum(Q[i, e] * K[j, e] for e in range(E))"


def loops(z: str, score: str) -> tuple[str, list[str]]:
    """Return what stands before the loops over blocks of a kernel, and the loops."""
    text = emitted(program(ATTENTION.format(z=z, score=score))).text
    start = text.index("@triton.jit\ndef f_kernel")
    before, *found = re.split(
        r"^    (?=for )", text[start : text.index("\n\n\n", start)], flags=re.M
    )
    return before, found


@pytest.mark.parametrize(
    ("z", "score", "is_wide"),
    [
        ("float", f"z * {SCORE}", False),
        ('Float[Array, "M N"]', f"{SCORE} + z[i, j]", False),  # over rows: it is no operand
        ('Float[Array, "N"]', f"{SCORE} + z[j]", True),  # one number for each key
        ('Float[Array, "M"]', f"{SCORE} * z[i]", False),
    ],
)
def test_a_loop_adds_where_its_block_begins(z: str, score: str, is_wide: bool) -> None:
    before, found = loops(z, score)
    made = {name for name in ("K", "V", "z") if f"\n    {name}_at = {name}_ptr + j_at" in before}
    assert made == ({"K", "V", "z"} if is_wide else {"K", "V"})
    assert len(found) == 2
    for loop in found:
        head, *body = loop.splitlines()
        # Where a block begins is an offset, of the type that the launch chooses.
        begin = "j_first" if is_wide else "tl.cast(j_first, INDEX)"
        assert ("tl.int64" in head) == is_wide
        assert ("j_first = tl.cast(j_from, INDEX)" in body[0]) == is_wide
        for name in made:
            assert f"{name}_at + {begin} * stride_{name}_j" in loop
        # The other form, with a product that is late, is not where the block is.
        assert "K_ptr + " not in loop
