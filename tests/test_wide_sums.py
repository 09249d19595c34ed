"""Sums of products over more than a block holds go over blocks, where a contract says so."""

from __future__ import annotations

import pytest

from looptrans.adjoint.backward import backward
from looptrans.derivation.derive import derive
from looptrans.emit.listing import lowered
from looptrans.executor.inputs import prepare
from looptrans.ir.index import Int, Param
from looptrans.ir.listing import listing as text_of
from looptrans.ir.value import Range
from looptrans.transforms.editing import extents
from looptrans.transforms.editing.extents import is_wide, is_within
from tests.analysis import program
from tests.test_adjoint_listings import check

LOSS = """
def loss(X: Float[Array, "T F"], W: Float[Array, "V F"], y: Int[Array, "T"]):
    {contract}
    found = zeros((T,))
    for t in range(0, T):
        m = -inf
        l = 0.0
        z = 0.0
        for v in range(0, V):
            s = sum(X[t, f] * W[v, f] for f in range(0, F))
            m_new = max(m, s)
            l = l * exp(m - m_new) + exp(s - m_new)
            m = m_new
            z = z + (s if v == y[t] else 0.0)
        found[t] = m + log(l) - z
    return found
"""
WIDE = LOSS.format(contract="assert F > 512")
PLAIN = LOSS.format(contract="assert F > 0")

ATTENTION = """
def attention(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    assert E >= 1024
    S = zeros((M, N))
    O = zeros((M, D))
    for i in range(0, M):
        m = -inf
        l = 0.0
        for j in range(0, N):
            S[i, j] = sum(Q[i, e] * K[j, e] for e in range(0, E)) / sqrt(E)
        for j in range(0, N):
            m = max(m, S[i, j])
        for j in range(0, N):
            l = l + exp(S[i, j] - m)
        for j in range(0, N):
            for d in range(0, D):
                O[i, d] = O[i, d] + exp(S[i, j] - m) / l * V[j, d]
    return O
"""


@pytest.mark.parametrize(
    ("contract", "least"),
    [
        ("F > 512", 513),
        ("512 < F", 513),
        ("F >= 600", 600),
        ("600 <= F", 600),
        ("F == 1024", 1024),
        ("F != 512", 0),
        ("F < 1000", 0),
        ("F <= 1000", 0),
        ("1000 > F", 0),
        ("F > G", 1),
        ("F > G + 9", 10),
        ("2 * F > 600", 0),
    ],
)
def test_what_a_contract_says_of_a_size(contract: str, least: int) -> None:
    """It is at least so large, and not known to be any larger."""
    listing = program(f"""
def rows(X: Float[Array, "F"], Y: Float[Array, "G"]):
    assert {contract}
    for f in range(0, F):
        X[f] = 0.0
""")
    assert is_within(listing, Int(least), Param("F"))
    assert not is_within(listing, Int(least + 1), Param("F"))
    assert is_wide(listing, Range(Int(0), Param("F"))) == (least > 512)
    assert is_wide(listing, Range(Int(100), Param("F"))) == (least > 612)
    assert not is_wide(listing, Range(Int(0), Param("F"), 2))


def test_a_wide_sum_is_a_loop_over_blocks() -> None:
    """The largest and the sum stay one pass; without the contract a block holds all of f."""
    found = derive(program(WIDE), "fold")
    assert found.decision == "legal"
    text = text_of(found.last)
    assert "for f in range(0, F):\n                s = s + X[t, f] * W[v, f]" in text
    assert text.count("for v in ") == 1
    assert "s = sum(" in text_of(derive(program(PLAIN), "fold").last)


def test_scores_over_wide_rows_are_one_pass() -> None:
    """A table of scores is worked out again where it is read, once for all that read it."""
    text = text_of(derive(program(ATTENTION), "fold", nests="rows again").last)
    assert text.count("for j in ") == 1
    assert text.count("for e in ") == 1
    assert "S = zeros" not in text


def test_what_wide_sums_lead_to_is_worked_out_once_for_both_gradients() -> None:
    """The adjoint of the scores is kept, and the scores are not handed over."""
    found = backward(program(WIDE))
    text = text_of(found.program)
    assert text.count("sum(") == 1
    assert "ds = zeros((T, V), dtype=float32)" in text
    assert [saved.name for saved in found.saved] == ["lse"]
    # Nor is it worked out again when nests are brought together.
    last = text_of(derive(found.program, "fold").last)
    assert last.count("for f in range(0, F)") == 1
    assert "ds[t, v] * W[v, f]" in last
    assert text_of(backward(program(PLAIN)).program).count("sum(") == 2


@pytest.mark.parametrize("listing", [WIDE, ATTENTION], ids=["a loss", "weights"])
def test_gradients_of_wide_sums(listing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "WIDE", 0)
    small = program(listing.replace("> 512", "> 0").replace(">= 1024", ">= 1"))
    found = backward(small)
    check(small, found, times=1)
    rows = "X[t, f] * W[v, f]" if listing == WIDE else "Q[i, e] * K[j, e]"
    assert text_of(derive(found.program, "fold").last).count(rows) == 1


def test_sizes_are_found_beyond_what_contracts_ask() -> None:
    assert prepare(program(WIDE), {}).integers["F"] == 513
    assert prepare(program(WIDE.replace("> 512", "== 4096")), {}).integers["F"] == 4096
    assert prepare(program(WIDE.replace("> 512", "< 3")), {}).integers["F"] == 2


def test_blocks_of_a_plain_product_inside_a_loop_are_no_deeper_than_they_need_be() -> None:
    (kernel,) = lowered(program(WIDE)).kernels
    tried = [config.blocks for config in kernel.narrow.tuned]
    assert {"BLOCK_T": 128, "BLOCK_V": 128, "BLOCK_F": 64} in tried
    assert {blocks["BLOCK_F"] for blocks in tried} == {32, 64}
