"""What the kernels of variants that are put together look like: no product more than needed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from looptrans.adjoint.backward import backward
from looptrans.emit.listing import emitted
from looptrans.ir.listing import listing
from looptrans.variants import Options, compose
from tests.analysis import program


def gradient_of(options: Options) -> str:
    """Return the listing of the gradients of a variant."""
    return listing(backward(program(compose(options).text)).program)


def nests_of(text: str) -> list[str]:
    """Return the nests of a listing."""
    return re.split(r"^    for ", text, flags=re.MULTILINE)[1:]


@pytest.mark.parametrize("weights", ["sigmoid", "retention"])
@pytest.mark.parametrize("hidden", ["documents", "mask"])
def test_weights_that_are_0_where_keys_are_hidden_are_worked_out_once(
    weights: Any, hidden: str
) -> None:
    more: dict[str, Any] = {"documents": True} if hidden == "documents" else {"mask": "BMN"}
    causal = weights == "retention"
    text = gradient_of(Options(weights=weights, causal=causal, heads="none", **more))
    (nest,) = [nest for nest in nests_of(text) if "dK[" in nest]
    assert "dV[" in nest
    # Behind the guard, or where something is added up, and nowhere before.
    test = "doc_q[b, i] == doc_k[b, j]" if hidden == "documents" else "mask[b, i, j]"
    assert nest.count(test) == (1 if hidden == "documents" else 2)


def test_a_hidden_score_is_asked_for_only_where_gradients_are_added_up() -> None:
    text = gradient_of(Options(mask="BMN", heads="none"))
    lines = [line.strip() for line in text.splitlines() if "if mask[" in line]
    assert [line.partition("[")[0] for line in lines] == ["dQ", "dK", "dV"]


@pytest.mark.parametrize("differential", [False, True])
def test_rows_of_lengths_hand_over_what_their_diagonals_need(differential: bool) -> None:
    """The gradient of a table of distances goes along i - j, of which some rows do not count."""
    options = Options(relative=True, q_lengths=True, heads="none", differential=differential)
    text = gradient_of(options)
    assert not re.search(r"sum\(.*sum\(", text)
    (nest,) = [nest for nest in nests_of(text) if "drelative_part[x, b] = " in nest]
    assert "if x + j - N + 1 < n_q[b]:" in nest and "< M" not in nest
    assert "for i in range(0, n_q[b]):" in text


@pytest.mark.parametrize("hidden", ["documents", "mask"])
def test_weights_under_a_bias_are_rounded_where_keys_are_hidden(hidden: str) -> None:
    """They are at most 1, as they are without a bias, so that 16 bits can hold them."""
    more: dict[str, Any] = {"documents": True} if hidden == "documents" else {"mask": "BMN"}
    made = emitted(program(compose(Options(bias="HMN", **more)).text))
    assert "tl.dot(" in made.text
    assert "V_jd.to(tl.float32)" not in made.text
