"""What emit says of a listing that has kernels, and might have meant something else."""

from __future__ import annotations

import pytest

from looptrans.emit.listing import emitted
from tests.analysis import program

LISTING = """
def weighted(X: Float[Array, "M N"], W: Float[Array, "N K"], pick: Int[Array, "M", "0:P"]HELD):
    Y = zeros((M, K))
    for i in range(M):
        for k in range(K):
            Y[i, k] = sum(X[i, n] * W[WHERE, k] for n in range(N))
    return Y
"""


@pytest.mark.parametrize(
    ("held", "where", "noted"),
    [
        ("", "nn", True),
        ("", "n", False),
        (", nn: int", "nn", False),
        (", nn: Const = 2", "nn", False),
        ("", "P - 1", False),  # the range of an array says it
    ],
)
def test_an_integer_that_only_the_body_mentions_is_noted(
    held: str, where: str, noted: bool
) -> None:
    """It may be a typo for the name of a loop, and would be asked for at every call."""
    found = emitted(program(LISTING.replace("HELD", held).replace("WHERE", where)))
    notes = [note for note in found.blocks.notes if note.startswith("nn is no argument")]
    assert bool(notes) == noted
    assert ("nn: An integer." in found.text) == (where == "nn")


FAR = """
def far(Q: Float[Array, "M E"], K: Float[Array, "N E"], R: Float[Array, "M+N E"]):
    Y = zeros(M)
    for i in range(M):
        for j in range(N):
            Y[i] += tanh(sum(Q[i, e] * (K[j, e] + R[j - i + M, e]) for e in range(E)))
    return Y
"""


def test_what_each_pair_looks_up_by_itself_is_noted_with_what_makes_a_product_of_it() -> None:
    (note,) = emitted(program(FAR)).blocks.notes
    assert note.startswith("which row of R is read hangs on i and j together")
    table = FAR.replace(
        "    Y = zeros(M)\n",
        "    Y = zeros(M)\n    T = zeros((M, M + N))\n    for i in range(M):\n"
        "        for w in range(M + N):\n"
        "            T[i, w] = sum(Q[i, e] * R[w, e] for e in range(E))\n",
    ).replace("(K[j, e] + R[j - i + M, e])", "K[j, e]")
    table = table.replace("for e in range(E)))", "for e in range(E)) + T[i, j - i + M])")
    assert emitted(program(table)).blocks.notes == ()
