"""Numbers that are looked up for each pair of rows, as the bias of a bucket: their gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from looptrans.adjoint.backward import backward
from looptrans.emit.backward import emitted_with_backward
from looptrans.executor import execute
from looptrans.ir.listing import listing
from tests.analysis import program
from tests.test_adjoint_torch import gradients

LISTING = """
def attention(
    Q: Float[Array, "B M E"],
    K: Float[Array, "B N E"],
    V: Float[Array, "B N D"],
    bias: Float[Array, "C"],
    bucket: Int[Array, "M N", "0:C"],
    kind: Int[Array, "N", "0:C"],
):
    O = zeros((B, M, D))
    for b in range(0, B):
        for i in range(0, M):
            m = -inf
            for j in range(0, N):
                m = max(m, sum(Q[b, i, e] * K[b, j, e] for e in range(0, E)) + bias[AT])
            l = 0.0
            for j in range(0, N):
                s = sum(Q[b, i, e] * K[b, j, e] for e in range(0, E)) + bias[AT]
                l += exp(s - m)
                for d in range(0, D):
                    O[b, i, d] += exp(s - m) * V[b, j, d]
            for d in range(0, D):
                O[b, i, d] /= l
    return O
"""


def test_no_product_is_worked_out_for_each_number_of_the_table() -> None:
    found = listing(backward(program(LISTING.replace("AT", "bucket[i, j]"))).program)
    assert "dbias_part[bucket[i, j], b, i] = dbias_part[bucket[i, j], b, i] + " in found
    assert "== c" not in found


def test_what_columns_are_asked_for_is_asked_before_rows_are_multiplied() -> None:
    """Of each kind there are columns, and products of rows with them: nothing is done twice."""
    found = listing(backward(program(LISTING.replace("AT", "kind[j]"))).program)
    assert "if kind[j] == c:" in found
    assert "dbias_part[kind[j]" not in found


def test_blocks_of_pairs_add_to_the_table_in_atomic_parts() -> None:
    text = emitted_with_backward(program(LISTING.replace("AT", "bucket[i, j]"))).text
    kernel = text.partition("def attention_backward_dbias_part_kernel(")[2].partition("_config(")[0]
    assert "BLOCK_I iterations of i by BLOCK_J iterations of j" in kernel
    assert "tl.dot(" in kernel
    assert kernel.count("tl.atomic_add(") == 1


PADDED = """
def padded(
    Q: Float[Array, "M E"],
    K: Float[Array, "N E"],
    bias: Float[Array, "C"],
    bucket: Int[Array, "M W", "-1:C+1"],
):
    O = zeros(M)
    for i in range(0, M):
        for j in range(0, N):
            if j < W and bucket[i, j] >= 0 and bucket[i, j] < C:
                O[i] += tanh(sum(Q[i, e] * K[j, e] for e in range(0, E)) * bias[bucket[i, j]])
    return O
"""


def test_numbers_that_are_no_entry_of_the_table_are_asked_for_first() -> None:
    """Where the listing does, the gradient reads and adds to nothing beside the table."""
    listed = program(PADDED)
    found = backward(listed)
    assert "dbias_part[bucket[i, j], i] = dbias_part[bucket[i, j], i] + " in listing(found.program)
    random = np.random.default_rng(0)
    bucket = np.array([[-1, 0, 1], [2, 1, -1], [0, 2, 2]])
    arrays: dict[str, Any] = {
        "Q": random.standard_normal((3, 2)),
        "K": random.standard_normal((4, 2)),
        "bias": random.standard_normal(2),
        "bucket": bucket,
    }
    sizes = {"M": 3, "N": 4, "E": 2, "C": 2, "W": 3}
    incoming = {"O": random.standard_normal(3)}
    given = {**arrays, found.incoming["O"]: incoming["O"]}
    forward = execute(found.forward, sizes=sizes, inputs=arrays)
    given |= {saved.name: forward[saved.name] for saved in found.saved}
    got = execute(found.program, sizes=sizes, inputs=given)
    for of, want in gradients(listed, sizes, arrays, incoming).items():
        np.testing.assert_allclose(got[found.gradients[of]], want, atol=1e-12)


# Of pairs that are further apart than the table goes, there are as many as pairs.
CLIPPED = """
def clipped(Q: Float[Array, "M E"], K: Float[Array, "N E"], R: Float[Array, "L E"], k: int):
    O = zeros(M)
    for i in range(0, M):
        for j in range(0, N):
            c = sum(Q[i, e] * R[min(max(i - j, -k), k) + k, e] for e in range(0, E))
            O[i] += tanh(sum(Q[i, e] * K[j, e] for e in range(0, E)) + c)
    return O
"""


def test_rows_at_the_ends_of_a_table_gather_in_parts() -> None:
    """Each row of the scores has a part; nothing as large as the scores is kept."""
    listed = program(CLIPPED)
    found = backward(listed)
    text = listing(found.program)
    assert "dQ_R_sum[i] if 2 * k == w else 0.0" in text
    assert not [saved for saved in found.saved if saved.name not in listed.outputs]
    assert "zeros((M, N)" not in text
    random = np.random.default_rng(0)
    incoming = {"O": random.standard_normal(3)}
    for length in (5, 7):  # what is past the last row is left alone
        sizes = {"M": 3, "N": 6, "E": 2, "L": length, "k": 2}
        rows = {"Q": 3, "K": 6, "R": length}
        arrays: dict[str, Any] = {
            name: random.standard_normal((count, 2)) for name, count in rows.items()
        }
        got = execute(
            found.program, sizes=sizes, inputs={**arrays, found.incoming["O"]: incoming["O"]}
        )
        for of, want in gradients(listed, sizes, arrays, incoming).items():
            np.testing.assert_allclose(got[found.gradients[of]], want, atol=1e-12)
