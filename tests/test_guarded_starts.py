"""Rows from a place on that is read: the backward pass keeps a number of each, as of all rows."""

from __future__ import annotations

from looptrans.adjoint.backward import backward
from looptrans.adjoint.rewriting.order import with_rows_from_0
from looptrans.ir.listing import listing
from tests.analysis import program

PADDED = """
def padded(
    Q: Float[Array, "B N E"],
    K: Float[Array, "B N E"],
    V: Float[Array, "B N E"],
    pad: Int[Array, "B", "0:N+1"],
):
    O = zeros((B, N, E))
    for b in range(0, B):
        for i in range(pad[b], N):
            m = -inf
            l = 0.0
            for j in range(pad[b], i + 1):
                m = max(m, sum(Q[b, i, e] * K[b, j, e] for e in range(0, E)))
            for j in range(pad[b], i + 1):
                l += exp(sum(Q[b, i, e] * K[b, j, e] for e in range(0, E)) - m)
            for j in range(pad[b], i + 1):
                s = sum(Q[b, i, e] * K[b, j, e] for e in range(0, E))
                for e in range(0, E):
                    O[b, i, e] += exp(s - m) / l * V[b, j, e]
    return O
"""


def test_no_row_is_gone_over_for_each_of_its_elements() -> None:
    """What is kept of a row is read, and not worked out again from all of its keys."""
    text = listing(backward(program(PADDED)).program)
    assert "max(" not in text
    assert text.count("lse[b, i]") > 1


def test_only_free_rows_from_places_that_are_never_negative_begin_at_0() -> None:
    found = with_rows_from_0(program(PADDED))
    assert found is not None
    assert found.loops == ("i",)
    assert with_rows_from_0(found.program) is None
    assert with_rows_from_0(program(PADDED.replace("0:N+1", "-1:N+1"))) is None


def test_rows_may_end_where_another_array_says() -> None:
    """Rows of a sequence, from `cu[b]` to `cu[b + 1]`, stay what they are: they are packed."""
    between = PADDED.replace("range(pad[b], N)", "range(pad[b], stop[b])")
    between = between.replace('0:N+1"],', '0:N+1"],\n    stop: Int[Array, "B", "0:N+1"],', 1)
    text = listing(backward(program(between)).program)
    assert "max(" not in text
    assert text.count("lse[b, i]") > 1
    packed = PADDED.replace("range(pad[b], N)", "range(pad[b], pad[b] + 4)")
    assert with_rows_from_0(program(packed)) is None
