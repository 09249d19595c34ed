"""Sequences packed one behind the other: what is proved of them, and what their kernels compute."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from looptrans.adjoint.backward import backward
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.algebra.iterations.assembly import recurrence
from looptrans.algebra.iterations.edges import NoRecurrence
from looptrans.blocks.block_ir.ops import Store, ops_in
from looptrans.blocks.block_ir.program import Rounding
from looptrans.cli.main import main
from looptrans.derivation.backward import derive_backward
from looptrans.derivation.derive import derive
from looptrans.derivation.saved import recheck, saved
from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.listing import lowered
from looptrans.emit.refusal import Refused
from looptrans.executor import execute
from looptrans.executor.inputs import prepare
from looptrans.ir.listing import listing
from looptrans.runtime.running.device import prepare_device
from looptrans.runtime.running.load import load_module
from looptrans.runtime.verifying.backward import gradient_launcher, verify_backward
from looptrans.transforms.editing.substitute import is_same_text
from looptrans.transforms.rows.segments import missing_contracts
from looptrans.transforms.rows.shift import with_rows_in_place
from looptrans.transforms.steps.parallelize import parallelize
from looptrans.variants import Options, compose
from tests.analysis import SPECS, program, spec, verdicts
from tests.test_adjoint_torch import gradients
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


def test_of_several_contracts_a_step_names_those_that_it_leans_on() -> None:
    both = program(COPY.format(contract=f"{RISES}\n    assert cu[0] == 0"))
    (named,) = parallelize(both, "b").verdict.assumptions
    assert RISES.removeprefix("assert ") in named
    assert parallelize(both, "i").verdict.decision == "legal"
    assert parallelize(both, "i").verdict.assumptions == ()


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


# Rows counted from 0 on, `K[cu_k[b] + j]`


def counted_from_0(text: str) -> str:
    """Return the listing of packed rows with loops that count the rows of each sequence."""
    for loop, ends in (("i", "cu_q"), ("j", "cu_k")):
        text = text.replace(
            f"for {loop} in range({ends}[b], {ends}[b + 1])",
            f"for {loop} in range(0, {ends}[b + 1] - {ends}[b])",
        )
        for array in ("Q", "O", "lse") if loop == "i" else ("K", "V"):
            text = text.replace(f"{array}[{loop}, ", f"{array}[{ends}[b] + {loop}, ")
    return text


def with_lengths(text: str) -> str:
    """Return a listing whose sequences have fewer rows than there is room for, and a causal one."""
    text = counted_from_0(text).replace("scale: float", f"{LENGTHS}, scale: float")
    for ends, count in (("cu_q", "n_q"), ("cu_k", "n_k")):
        text = text.replace(f"{ends}[b + 1] - {ends}[b]", f"{count}[b]")
        text = text.replace(f"all({ends}[b] <=", f"all({ends}[b] + {count}[b] <=")
    return text.replace("range(0, n_k[b])", "range(0, min(n_k[b], i + 1))")


LENGTHS = 'n_q: Int[Array, "B", "0:T+1"], n_k: Int[Array, "B", "0:U+1"]'


def ragged() -> str:
    (path,) = (path for path in SPECS if path.stem == "attention_ragged")
    return path.read_text(encoding="utf-8")


def test_rows_counted_from_0_are_differentiated_as_rows_in_place() -> None:
    text = counted_from_0(ragged())
    assert "K[cu_k[b] + j, h, e]" in text and "O[cu_q[b] + i, h, d] =" in text
    found, plain = backward(program(text)), backward(spec("attention_ragged"))
    assert listing(found.program) == listing(plain.program)
    assert found.steps[0].name == "count i from cu_q[b] on, j from cu_k[b] on"
    assert found.steps[0].certificates[0].verdict == "legal"
    (step, *_) = derive(program(text), "fold").steps
    assert (step.kind, step.decision) == ("rows in place", "legal")


def test_a_loop_is_the_same_only_where_its_rows_are() -> None:
    text = "for i in range({}, {} + n[b]):\n            Y[i] = X[i{}]"
    frame = "def f(X, Y, cu, n, B):\n    for b in range(0, B):\n        {}\n"

    def loop(start: str, more: str = "") -> Any:
        return program(frame.format(text.format(start, start, more))).body[0]

    assert is_same_text(loop("cu[b]"), loop("0 + cu[b]"))
    assert not is_same_text(loop("cu[b]"), loop("cu[b + 1]"))
    assert not is_same_text(loop("cu[b]"), loop("cu[b]", " + 1"))


def test_loops_whose_range_is_known_or_that_choose_the_sequence_stay() -> None:
    head = 'def f(X: Float[Array, "T"], Y: Float[Array, "B T"], cu: Int[Array, "B+1", "{}:T+1"], '
    head += "N: int):"
    loops = "    for b in range(0, B):\n        for i in range(0, {}):\n"
    plain = f"{head.format(0)}\n{loops}            Y[b, i] = X[{{}} + i]\n"
    assert with_rows_in_place(program(plain.format("N", "cu[b]"))) is None
    assert with_rows_in_place(program(plain.format("cu[b + 1]", "cu[i]"))) is None
    assert with_rows_in_place(program(plain.format("cu[b + 1]", "cu[b]"))) is not None
    # Where a sequence is empty nobody reads its start, which may be no row at all.
    wider = plain.replace('"0:T+1"', '"-1:T+1"')
    assert with_rows_in_place(program(wider.format("cu[b + 1]", "cu[b]"))) is None
    assert with_rows_in_place(program(plain.format("cu[b + 1]", "cu[b + 1]"))) is None


def test_sequences_that_leave_gaps() -> None:
    """Rows behind the length of a sequence count for nothing, in both passes."""
    made = emitted_with_backward(program(with_lengths(ragged())))
    n_q, n_k = torch.tensor([0, 12, 19, 10]), torch.tensor([5, 0, 30, 16])
    torch.manual_seed(1)
    shapes = {"Q": (60, 1, 8), "K": (64, 1, 8), "V": (64, 1, 5)}
    given: dict[str, Any] = {n: torch.randn(s, requires_grad=True) for n, s in shapes.items()}
    given["scale"] = torch.tensor(0.4, requires_grad=True)
    exact = {n: v.detach().double().requires_grad_() for n, v in given.items()}
    sees = torch.zeros(60, 64, dtype=torch.bool)
    for b in range(4):
        rows = torch.arange(int(n_q[b]))[:, None] >= torch.arange(int(n_k[b]))[None, :]
        sees[CUT[b] : CUT[b] + n_q[b], KEYS[b] : KEYS[b] + n_k[b]] = rows
    launcher = getattr(gradient_launcher(made).module, made.launcher)
    out, lse = launcher(given["Q"], given["K"], given["V"], CUT, KEYS, n_q, n_k, given["scale"])
    wanted = _attention(exact, sees)
    incoming = torch.randn(out.shape)
    torch.autograd.backward([out, wanted], [incoming, incoming.double()])
    torch.testing.assert_close(out.double(), wanted, atol=1e-5, rtol=1e-5)
    assert bool(torch.isneginf(lse[~sees.any(-1)]).all())
    for name, value in given.items():
        gradient = exact[name].grad
        assert gradient is not None
        torch.testing.assert_close(value.grad.double(), gradient, atol=2e-5, rtol=1e-4)


ROOM = "assert all(cu[b] + n[b] <= cu[b + 1] for b in range(0, B))"
GAPS = """
def copy(X: Float[Array, "T"], cu: Int[Array, "B+1", "0:T+1"], n: Int[Array, "B", "{least}:T+1"]):
    {contract}
    Y = zeros(T)
    for b in range(0, B):
        for i in range(0, n[b]):
            Y[cu[b] + i] = X[cu[b] + i]
    return Y
"""


def test_lengths_keep_sequences_apart_where_they_are_no_less_than_0() -> None:
    apart = verdicts(GAPS.format(contract=ROOM, least=0))
    assert apart["b"].memory.decision == "parallel"
    assert apart["b"].memory.assumptions == (ROOM,)
    for contract, least in ((ROOM, -1), ("assert B >= 0", 0), (ROOM.replace("[b] +", "[b] -"), 0)):
        found = verdicts(GAPS.format(contract=contract, least=least))
        assert found["b"].memory.decision not in ("parallel", "privatize"), (contract, least)


@pytest.mark.parametrize("relation", ["<=", "=="])
def test_random_lengths_fit_between_the_ends(relation: str) -> None:
    text = GAPS.format(contract=ROOM.replace("<=", relation), least=0)
    found = prepare(program(text), {"T": 5000, "B": 6}).arrays
    room = found["cu"][1:] - found["cu"][:-1]
    assert (found["n"] <= room).all() and (found["n"] > 0).sum() > 2
    assert (found["n"] == room).all() == (relation == "==")


def test_a_missing_contract_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    wanted = tuple(f"assert all({n}[b] <= {n}[b + 1] for b in range(0, B))" for n in CONTRACTED)
    text = "\n".join(line for line in ragged().splitlines() if "assert" not in line)
    bare = program(text)
    assert missing_contracts(bare) == tuple(("b", each) for each in wanted)
    assert missing_contracts(program(ragged())) == ()
    with pytest.raises(Refused) as caught:
        emitted_with_backward(bare)
    assert f"say so: {'; '.join(wanted)}" in str(caught.value)
    lengths = GAPS.format(contract="assert B >= 0", least=0)
    assert missing_contracts(program(lengths)) == (("b", ROOM),)
    path = tmp_path / "copy.py"
    path.write_text(lengths, encoding="utf-8")
    assert main(["loops", str(path)]) == 0
    assert "have a row in common, say so" in capsys.readouterr().out


CONTRACTED = ("cu_q", "cu_k")


def test_the_rows_of_a_kernel_are_those_of_one_sequence() -> None:
    """Queries with a batch, packed keys: b chooses the range of j, so it is no row beside it."""
    text = ragged().replace("range(cu_q[b], cu_q[b + 1])", "range(0, M)")
    for old, new in (("[i, h", "[b, i, h"), ('"T H E"', '"B M H E"'), ("(T, H", "(B, M, H")):
        text = text.replace(old, new)
    text = text.replace(' cu_q: Int[Array, "B+1", "0:T+1"],', "")
    text = "\n".join(line for line in text.splitlines() if "all(cu_q" not in line)
    found = lowered(backward(program(text)).program, rounded=Rounding())
    (kernel,) = (k for k in found.kernels if "dK" in k.name)
    assert [d.name for d in kernel.grid if d.role == "rows"] == ["j"]


SLICES = """
def slices(X: Float[Array, "B N E"], n: Int[Array, "B", "0:N+1"]):
    Y = zeros((B, N, 2, E))
    for b in range(0, B):
        for i in range(0, n[b]):
            for e in range(0, E):
                Y[b, i, 0, e] = 2.0 * X[b, i, e]
                Y[b, i, 1, e] = X[b, i, e] + 1.0
    return Y
"""


def test_slices_of_rows_whose_end_is_read_are_stored() -> None:
    (kernel,) = lowered(program(SLICES)).kernels
    assert [op.array for op in ops_in(kernel.body) if isinstance(op, Store)] == ["Y", "Y"]


def test_query_lengths_keep_what_there_is_one_of_for_each_row() -> None:
    text = compose(Options(q_lengths=True, kv_lengths=True, heads="none", lse=True)).text
    found = backward(program(text))
    shown = listing(found.program)
    assert "max(" not in shown, "the maximum is not worked out again: the log-sum-exp is at hand"
    assert shown.count("for i in range(0, n_q[b]):") == 3
    assert [saved.name for saved in found.saved] == ["lse", "O"]


TWICE = """
def twice(X: Float[Array, "B N E"], n: Int[Array, "B", "0:N+1"]):
    O = zeros((B, N))
{more}
    for b in range(0, B):
        for i in range(0, n[b]):
            for j in range(0, N):
                O[b, i] = O[b, i] + sum(X[b, i, e] * X[b, j, e] for e in range(0, E))
{all}
    return O{returned}
"""
ALL = """
    for b in range(0, B):
        for i in range(0, N):
            for e in range(0, E):
                R[b, i] = R[b, i] + X[b, i, e] * X[b, i, e]
"""


@pytest.mark.parametrize("also", [False, True])
def test_rows_beyond_a_length_still_count_as_keys(also: bool) -> None:
    parts = {"more": "    R = zeros((B, N))", "all": ALL, "returned": ", R"}
    text = TWICE.format(**(parts if also else dict.fromkeys(parts, "")))
    made = emitted_with_backward(program(text))
    launcher = getattr(gradient_launcher(made).module, made.launcher)
    x, n = torch.randn(2, 5, 3, requires_grad=True), torch.tensor([2, 4])
    found = launcher(x, n)
    exact = x.detach().double().requires_grad_()
    counts = torch.arange(5)[None, :] < n[:, None]
    wanted = torch.where(counts, torch.einsum("bie,bje->bi", exact, exact), 0.0)
    incoming = torch.randn(2, 5)
    given = torch.where(counts, incoming, torch.nan)  # of rows beyond nothing is read
    if also:
        wanted = wanted.sum() * 0 + (wanted * incoming).sum() + exact.square().sum()
        torch.autograd.backward([*found], [given, torch.ones(2, 5)])
        torch.autograd.backward(wanted)
    else:
        torch.autograd.backward([found, wanted], [given, incoming.double()])
    assert x.grad is not None and exact.grad is not None
    torch.testing.assert_close(x.grad.double(), exact.grad, atol=1e-5, rtol=1e-5)


SHARED = """
def shared(X: Float[Array, "B M E"], Y: Float[Array, "B N E"], bias: Float[Array, "M"],
           n: Int[Array, "B", "0:M+1"]):
    O = zeros((B, M, E))
    for b in range(0, B):
        for i in range(0, n[b]):
            m = 0.0
            l = 1.0
            for j in range(0, N):
                s = sum(X[b, i, e] * Y[b, j, e] for e in range(0, E)) + bias[i]
                t = max(m, s)
                l = l * exp(m - t) + exp(s - t)
                for e in range(0, E):
                    O[b, i, e] = O[b, i, e] * exp(m - t) + exp(s - t) * Y[b, j, e]
                m = t
            for e in range(0, E):
                O[b, i, e] /= l
    return O
"""


def test_what_sequences_share_is_added_up_over_those_that_have_the_row() -> None:
    found = backward(program(SHARED))
    shown = listing(found.program)
    assert shown.count("if i < n[b]:") == 1, shown
    assert "max(" not in shown, "what there is one of for each row is at hand"
    sizes, rng = {"B": 3, "M": 4, "N": 3, "E": 2}, np.random.default_rng(0)
    shapes = {"X": (3, 4, 2), "Y": (3, 3, 2), "bias": (4,)}
    inputs: dict[str, Any] = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    inputs["n"] = np.array([2, 4, 0])
    counts = np.arange(4) < inputs["n"][:, None]
    results = execute(found.forward, inputs=inputs)
    given = {saved.name: results[saved.name] for saved in found.saved}
    given["dO"] = rng.normal(size=(3, 4, 2))
    for name, each in given.items():  # of rows beyond nothing is read
        given[name] = np.where(counts if each.ndim == 2 else counts[:, :, None], each, np.nan)
    got = execute(found.program, inputs=inputs | given)
    incoming = {"O": np.nan_to_num(given["dO"])}
    for name, wanted in gradients(program(SHARED), sizes, inputs, incoming).items():
        np.testing.assert_allclose(got[f"d{name}"], wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("counted", [False, True])
def test_the_steps_to_the_backward_pass_are_all_shown(counted: bool) -> None:
    text = counted_from_0(ragged()) if counted else ragged()
    found = derive_backward(program(text))
    assert found.decision == "legal", found.notes
    assert ("rows in place" in {step.kind for step in found.steps}) == counted


SEES_EARLIER_ROWS = """
def f(X: Float[Array, "T"], Y: Float[Array, "T"], cu: Int[Array, "B+1", "0:T+1"]):
    assert all(cu[b] <= cu[b + 1] for b in range(0, B))
    z = zeros(T)
    for b in range(0, B):
        for i in range(cu[b], cu[b + 1]):
            for j in range(cu[b], i + 1):
                z[i] = z[i] + X[i] * exp(Y[j])
    return z
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("range(cu[b], i + 1)", "range(i, cu[b + 1])"),
        ("range(cu[b], i + 1)", "range(max(cu[b], i - 2), i)"),
    ],
)
def test_a_loop_that_ends_at_a_row_is_over_rows_of_its_sequence(old: str, new: str) -> None:
    """The keys of a row are worked out by sequences too, and not by a search for each of them."""
    found = backward(program(SEES_EARLIER_ROWS.replace(old, new)))
    assert found.steps[0].name == "say where rows end"
    assert "in range(0, T)" not in listing(found.program)
    assert "min(" not in listing(found.forward)


def test_rows_counted_from_0_are_proved_again() -> None:
    counted = SEES_EARLIER_ROWS.replace("range(cu[b], cu[b + 1])", "range(cu[b + 1] - cu[b])")
    counted = counted.replace("range(cu[b], i + 1)", "range(i + 1)")
    for name in ("X[i]", "Y[j]", "z[i]"):
        counted = counted.replace(name, name.replace("[", "[cu[b] + "))
    derivation = derive_backward(program(counted))
    assert derivation.decision == "legal"
    assert recheck(saved(derivation)) == ()


ONLINE = """
def online(Q: Float[Array, "T H E"], K: Float[Array, "U G E"], V: Float[Array, "U G D"],
           cu_q: Int[Array, "B+1", "0:T+1"], cu_k: Int[Array, "B+1", "0:U+1"]):
    assert H == G * R
    assert all(cu_q[b] <= cu_q[b + 1] for b in range(0, B))
    assert all(cu_k[b] <= cu_k[b + 1] for b in range(0, B))
    O = zeros((T, H, D))
    for b in range(0, B):
        q0 = cu_q[b]
        k0 = cu_k[b]
        nq = cu_q[b + 1] - q0
        nk = cu_k[b + 1] - k0
        for h in range(0, H):
            g = h // R
            for i in range(0, nq):
                m = -inf
                l = 0.0
                o = zeros(D)
                for j in range(0, nk):
                    if j <= i + nk - nq:
                        s = sum(Q[q0 + i, h, e] * K[k0 + j, g, e] for e in range(0, E))
                        top = max(m, s)
                        l = l * exp(m - top) + exp(s - top)
                        for d in range(0, D):
                            o[d] = o[d] * exp(m - top) + exp(s - top) * V[k0 + j, g, d]
                        m = top
                for d in range(0, D):
                    O[q0 + i, h, d] = o[d] / l
    return O
"""


def test_offsets_and_lengths_may_have_names_and_rows_an_array_of_their_own() -> None:
    found = backward(program(ONLINE))
    shown = listing(found.program)
    assert "q0" not in shown and "max(" not in shown
    assert shown.count("for i in range(cu_q[b], cu_q[b + 1]):") == 3
    assert shown.count("for j in range(cu_k[b], cu_k[b + 1]):") == 2
    rng = np.random.default_rng(0)
    shapes = {"Q": (5, 2, 2), "K": (7, 1, 2), "V": (7, 1, 2)}
    inputs: dict[str, Any] = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    inputs |= {"cu_q": np.array([0, 2, 2, 4]), "cu_k": np.array([1, 4, 4, 7])}
    results = execute(found.forward, inputs=inputs)
    given = {saved.name: results[saved.name] for saved in found.saved}
    given["dO"] = rng.normal(size=(5, 2, 2))
    got = execute(found.program, inputs=inputs | given)
    exact = {name: torch.tensor(inputs[name], requires_grad=True) for name in shapes}
    wanted = torch.zeros(5, 2, 2, dtype=torch.float64)
    for rows, keys in ((slice(0, 2), slice(1, 4)), (slice(2, 4), slice(4, 7))):
        q, k, v = exact["Q"][rows], exact["K"][keys, 0], exact["V"][keys, 0]
        scores = torch.einsum("ihe,je->hij", q, k)
        sees = torch.ones(2, 3, dtype=torch.bool).tril(1)
        weights = torch.softmax(scores.masked_fill(~sees, float("-inf")), -1)
        wanted[rows] = torch.einsum("hij,jd->ihd", weights, v)
    np.testing.assert_allclose(results["O"], wanted.detach().numpy(), rtol=1e-9, atol=1e-12)
    torch.autograd.backward(wanted, torch.tensor(given["dO"]))
    for name, leaf in exact.items():
        assert leaf.grad is not None
        np.testing.assert_allclose(got[f"d{name}"], leaf.grad.numpy(), rtol=1e-9, atol=1e-12)


OF_OTHER_ROWS = """
def f(K: Float[Array, "T"], c: float, cu: Int[Array, "B+1", "0:T+1"],
      at: Int[Array, "B+1", "0:T+1"]):
    assert all(cu[b] <= cu[b + 1] for b in range(0, B))
    assert all(at[b] <= at[b + 1] for b in range(0, B))
    O = zeros(T)
    Y = zeros(T)
    s = zeros(T)
    for b in range(0, B):
        for i in range(cu[b], cu[b + 1]):
            s[i] = tanh(c * i)
            O[i] = K[i] * c
        for j in range(at[b], at[b + 1]):
            Y[j] = s[j] * K[j]
    return Y
"""


def test_rows_that_others_look_at_are_not_set_beyond_their_sequence() -> None:
    """Sequences of the other kind would find there what no iteration of the listing has set."""
    with pytest.raises(NotDifferentiated):
        backward(program(OF_OTHER_ROWS))


SAMPLED = """
def f(ptr: Int[Array, "N+1", "0:Z+1"], col: Int[Array, "Z", "0:M"], A: Float[Array, "N D"],
      B: Float[Array, "M D"]):
    assert all(ptr[i] <= ptr[i + 1] for i in range(N))
    S = zeros(Z)
    for i in range(N):
        for k in range(ptr[i], ptr[i + 1]):
            S[k] = sum(A[i, d] * B[col[k], d] for d in range(D))
    return S
"""


def test_products_at_the_places_of_a_sparse_matrix() -> None:
    """What a column receives is gathered row by row: only there an entry is known to be of it."""
    found = backward(program(SAMPLED))
    ptr, col = np.array([0, 2, 2, 5]), np.array([1, 3, 0, 1, 1])
    rng = np.random.default_rng(0)
    a, b, ds = rng.normal(size=(3, 2)), rng.normal(size=(4, 2)), rng.normal(size=5)
    da, db = np.zeros_like(a), np.zeros_like(b)
    for k, i in enumerate([0, 0, 2, 2, 2]):
        da[i] += ds[k] * b[col[k]]
        db[col[k]] += ds[k] * a[i]
    given = {"ptr": ptr, "col": col, "A": a, "B": b, "dS": ds}
    got = execute(found.program, inputs=given)
    np.testing.assert_allclose(got["dA"], da, rtol=1e-12)
    np.testing.assert_allclose(got["dB"], db, rtol=1e-12)


SCATTERED = """
def f(src: Int[Array, "E", "0:N"], dst: Int[Array, "E", "0:N"], w: Float[Array, "E"],
      X: Float[Array, "N D"]):
    O = zeros((N, D))
    for e in range(E):
        for d in range(D):
            O[dst[e], d] += w[e] * X[src[e], d]
    return O
"""


def test_what_is_added_where_an_index_says_receives_its_gradient_from_there() -> None:
    found = backward(program(SCATTERED))
    src, dst = np.array([0, 2, 2, 1, 0]), np.array([1, 1, 0, 2, 1])
    rng = np.random.default_rng(0)
    w, x, do = rng.normal(size=5), rng.normal(size=(3, 2)), rng.normal(size=(3, 2))
    dw, dx = (do[dst] * x[src]).sum(1), np.zeros_like(x)
    np.add.at(dx, src, w[:, None] * do[dst])
    given = {"src": src, "dst": dst, "w": w, "X": x, "dO": do}
    got = execute(found.program, inputs=given)
    np.testing.assert_allclose(got["dw"], dw, rtol=1e-12)
    np.testing.assert_allclose(got["dX"], dx, rtol=1e-12)
    assert "dst[e] ==" not in listing(found.program)


@pytest.mark.parametrize(
    ("loop", "cell"),
    [
        ("for j in range(s[b], i + 1):", "z[i, j]"),
        ("for j in range(0, T):\n                if j >= s[b] and j <= i:", "z[i, j]"),
        ("for j in range(s[b], e[b]):", "z[b, i, j]"),
    ],
)
def test_loops_do_not_begin_at_0_and_at_their_first_row_in_turn(loop: str, cell: str) -> None:
    """A loop over packed rows goes over these; another one has a guard."""
    rows = "T, T" if cell == "z[i, j]" else "B, T, T"
    factor = "x[j, c]" if cell == "z[i, j]" else "x[b, c]"
    inner = " " * (20 if "if" in loop else 16)
    text = f"""
def scores(x: Float[Array, "T C"], s: Int[Array, "B", "0:T+1"], e: Int[Array, "B", "0:T+1"]):
    assert all(s[b] <= e[b] for b in range(0, B))
    assert all(e[b] <= s[b + 1] for b in range(0, B - 1))
    z = zeros(({rows}))
    for b in range(0, B):
        for i in range(s[b], e[b]):
            {loop}
{inner}{cell} = sum(x[i, c] * {factor} for c in range(0, C))
    return z
"""
    assert verify_backward(program(text), [{"T": 7, "C": 4, "B": 2}], ["float32"]).passed
