"""Sequences packed one behind the other: what is proved of them, and what their kernels compute."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from looptrans.adjoint.backward import backward
from looptrans.algebra.iteration import NoRecurrence
from looptrans.algebra.recurrence import recurrence
from looptrans.emit.listing import lowered
from looptrans.executor.inputs import prepare
from looptrans.ir.listing import listing
from looptrans.runtime.device import prepare_device
from looptrans.runtime.load import load_module
from tests.analysis import SPECS, program, spec, verdicts
from tests.visits import visits

prepare_device()  # parts of torch import triton too, and then it would not interpret
pytest.importorskip("triton")

COPY = """
def copy(X: Float[Array, "T"], cu: Int[Array, "B+1", "0:T+1"]):
    {contract}
    Y = zeros(T)
    for b in range(0, B):
        for i in range(cu[b], cu[b + 1]):
            Y[i] = X[i]
    return Y
"""
RISES = "assert all(cu[b] <= cu[b + 1] for b in range(0, B))"
SHORT = "assert all(cu[b] <= cu[b + 1] for b in range(0, B - 2))"
CUT = torch.tensor([2, 2, 21, 40, 57])  # an empty sequence, and rows before and behind them all
KEYS = torch.tensor([1, 8, 8, 45, 61])


def shelf(name: str) -> ModuleType:
    path = SPECS[0].parent.parent / "generated" / f"{name}.py"
    return load_module(f"shelf_{name}", path.read_text(encoding="utf-8"), path)


def test_sequences_are_apart_only_where_a_contract_says_so() -> None:
    apart = verdicts(COPY.format(contract=RISES))
    assert apart["b"].memory.decision == "parallel"
    assert apart["b"].memory.assumptions == (RISES,)
    for contract in ("pass", SHORT):
        text = COPY.format(contract=contract).replace("    pass\n", "")
        found = verdicts(text)
        assert found["b"].memory.decision not in ("parallel", "privatize"), contract
        assert found["i"].memory.decision == "parallel"


def test_cells_that_change_from_one_iteration_to_the_next_are_no_state() -> None:
    """What a loop leaves in rows that its variable chooses is no value of its last iteration."""
    with pytest.raises(NoRecurrence, match="which cells of Y an iteration of b sets depends on b"):
        recurrence(program(COPY.format(contract=RISES)), "b")


def test_the_backward_pass_goes_over_the_rows_of_each_sequence() -> None:
    found = backward(spec("attention_ragged"))
    text = listing(found.program)
    assert "[b," not in text, "rows are numbered through all sequences"
    assert text.count("for i in range(cu_q[b], cu_q[b + 1]):") == 4
    assert text.count("for j in range(cu_k[b], cu_k[b + 1]):") == 2
    assert found.forward == found.listing
    (seen,) = found.steps[0].certificates
    assert (seen.verdict, len(seen.assumptions)) == ("legal", 2)


def _attention(given: dict[str, Any], sees: torch.Tensor) -> torch.Tensor:
    """Return O; row i sees the keys j where `sees[i, j]`, and a row that sees none is 0."""
    scores = given["scale"] * torch.einsum("ihe,jhe->hij", given["Q"], given["K"])
    scores = scores.masked_fill(~sees, float("-inf"))
    lse = torch.logsumexp(scores, -1)
    finite = torch.where(sees.any(-1), lse, 0.0)
    weights = torch.where(sees, torch.exp(scores - finite[..., None]), 0.0)
    return torch.einsum("hij,jhd->ihd", weights, given["V"])


def test_ragged_kernels_agree_with_attention_over_all_rows_under_a_mask() -> None:
    torch.manual_seed(0)
    shapes = {"Q": (60, 2, 8), "K": (64, 2, 8), "V": (64, 2, 5)}
    given: dict[str, Any] = {n: torch.randn(s, requires_grad=True) for n, s in shapes.items()}
    given["scale"] = torch.tensor(0.4, requires_grad=True)
    exact = {n: v.detach().double().requires_grad_() for n, v in given.items()}
    i, j = torch.arange(60), torch.arange(64)
    of_row = torch.bucketize(i, CUT, right=True) - 1
    of_key = torch.bucketize(j, KEYS, right=True) - 1
    inside = (of_row >= 0) & (of_row < 4)
    sees = (of_row[:, None] == of_key[None, :]) & inside[:, None]
    module = shelf("attention_ragged_backward")
    out, lse = module.attention_ragged(
        given["Q"], given["K"], given["V"], CUT, KEYS, given["scale"]
    )
    wanted = _attention(exact, sees)
    incoming = torch.randn(out.shape)
    torch.autograd.backward([out, wanted], [incoming, incoming.double()])
    torch.testing.assert_close(out.double(), wanted, atol=1e-5, rtol=1e-5)
    for name, value in given.items():
        gradient = exact[name].grad
        assert gradient is not None
        torch.testing.assert_close(value.grad.double(), gradient, atol=2e-5, rtol=1e-4)
    # Rows of no sequence, and of one without keys: sequence 1 has none.
    alone = ~sees.any(-1)
    assert alone.sum() == 2 + 3 + 19
    assert bool((out[alone] == 0).all()) and bool(torch.isneginf(lse[alone]).all())
    assert bool((given["Q"].grad[alone] == 0).all())


PRODUCTS = """
def products(
    X: Float[Array, "T E"],
    Z: Float[Array, "U E"],
    cu: Int[Array, "B+1", "0:T+1"],
    n: Int[Array, "B", "0:U+1"],
):
    assert all(cu[b] <= cu[b + 1] for b in range(0, B))
    Y = zeros(T)
    for b in range(0, B):
        for i in range(cu[b], cu[b + 1]):
            for j in range(0, n[b]):
                Y[i] = Y[i] + sum(X[i, e] * Z[j, e] for e in range(0, E))
    return Y
"""


def test_no_block_beyond_a_sequence_is_visited() -> None:
    (kernel,) = lowered(program(PRODUCTS)).kernels
    ends, counts = np.array([1, 1, 6, 13]), np.array([7, 0, 9])
    sizes = {"T": 15, "U": 11, "E": 2, "B": 3}
    blocks = {dim.block: 4 if dim.role != "lanes" else 2 for dim in kernel.dims if dim.block}
    rows: list[tuple[int, int]] = []
    for visit in visits(kernel, sizes, blocks, {"cu": ends, "n": counts}):
        own, b = visit.places["i"], visit.places["b"].start
        rows += [(b, i) for i in own]
        assert {i for i, _ in visit.elements("X")} <= set(own)
        wanted = range(0, int(counts[b]), 4) if own else ()
        assert [block.first for block in visit.blocks] == list(wanted)
    assert rows == [(b, i) for b in range(3) for i in range(ends[b], ends[b + 1])]


def test_random_ends_of_sequences_are_found_at_once_and_some_are_equal() -> None:
    sizes = {"T": 5000, "U": 7000, "H": 8, "E": 128, "D": 128, "B": 6}
    found = prepare(spec("attention_ragged"), {**sizes, "E": 1, "D": 1, "H": 1}).arrays
    for name in ("cu_q", "cu_k"):
        steps = found[name][1:] - found[name][:-1]
        assert (steps >= 0).all() and (steps == 0).any() and (steps > 0).any()
