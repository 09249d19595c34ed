"""Rows of sequences that begin and end where two arrays say, and what keeps them apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from looptrans.adjoint.backward import backward
from looptrans.emit.listing import lowered
from looptrans.executor import execute
from looptrans.executor.inputs import prepare
from looptrans.ir.listing import listing
from looptrans.transforms.rows.guarded_rows import with_guarded_rows
from looptrans.transforms.rows.segments import missing_contracts, segments_of
from tests.analysis import program, verdicts
from tests.test_adjoint_torch import gradients

COPY = """
def copy(X: Float[Array, "T"], s: Int[Array, "B", "0:T+1"], e: Int[Array, "B", "0:T+1"]):
    {contracts}
    Y = zeros(T)
    for b in range(0, B):
        for i in range(s[b], e[b]):
            Y[i] = X[i]
    return Y
"""
CHAIN = "assert all(s[b] <= e[b] <= s[b + 1] for b in range(0, B - 1))"
NEXT = "assert all(e[b] <= s[b + 1] for b in range(0, B - 1))"
BEFORE = "assert all(e[b - 1] <= s[b] for b in range(1, B))"
ORDER = "assert all(s[b] <= e[b] for b in range(0, B))"
RISES = "assert all(s[b] <= s[b + 1] for b in range(0, B - 1))"
PAIRS = "assert all(e[b] <= s[c] for b in range(0, B) for c in range(b + 1, B))"
UNDER = "assert all(e[b] <= s[c] for c in range(0, B) for b in range(0, c))"
ASKED = "assert all(e[b] <= s[c] for b in range(0, B) for c in range(0, B) if b < c)"
SHORT = "assert all(s[b] <= e[b] for b in range(0, B - 2))"


def copy(*contracts: str) -> str:
    return COPY.format(contracts="\n    ".join(contracts or ("assert B >= 0",)))


@pytest.mark.parametrize(
    "contracts",
    [(CHAIN,), (NEXT, ORDER), (BEFORE, ORDER), (NEXT, RISES), (PAIRS,), (UNDER,), (ASKED,)],
)
def test_contracts_keep_sequences_apart(contracts: tuple[str, ...]) -> None:
    """The text says so, as isl does."""
    known = segments_of(program(copy(*contracts)))["s"]
    assert len(known.contracts) == len(contracts)
    assert verdicts(copy(*contracts))["b"].memory.decision == "parallel"
    assert missing_contracts(program(copy(*contracts))) == ()


@pytest.mark.parametrize(
    ("contracts", "missing"),
    [
        ((), (CHAIN,)),
        ((ORDER,), (CHAIN,)),
        # Where the end of b may lie before its start, b + 2 may begin before b ends.
        ((NEXT,), (ORDER.replace("B)", "B - 1)"),)),
        ((NEXT, SHORT), (ORDER.replace("B)", "B - 1)"),)),
        ((PAIRS.replace("range(b + 1, B)", "range(b + 2, B)"),), (CHAIN,)),
    ],
)
def test_contracts_that_do_not_are_said_to_be_missing(
    contracts: tuple[str, ...], missing: tuple[str, ...]
) -> None:
    assert "s" not in segments_of(program(copy(*contracts)))
    assert verdicts(copy(*contracts))["b"].memory.decision not in ("parallel", "privatize")
    assert missing_contracts(program(copy(*contracts))) == tuple(("b", each) for each in missing)
    whole = copy(*contracts, *missing)
    assert verdicts(whole)["b"].memory.decision == "parallel"


def test_the_last_sequence_needs_none_behind_it() -> None:
    """There are as many first rows as sequences, and lengths fit up to the last but one."""
    lengths = copy("assert all(s[b] + e[b] <= s[b + 1] for b in range(0, B - 1))")
    lengths = lengths.replace("range(s[b], e[b])", "range(s[b], s[b] + e[b])")
    assert not segments_of(program(lengths))["s"].has_next
    assert verdicts(lengths)["b"].memory.decision == "parallel"


def test_random_rows_begin_before_they_end() -> None:
    for contracts, least in (((CHAIN,), 5), ((PAIRS,), 5), (("assert B >= 0",), 5)):
        found = prepare(program(copy(*contracts)), {"T": 5000, "B": 9}).arrays
        assert (found["s"] < found["e"]).sum() >= least
        assert (found["e"][:-1] <= found["s"][1:]).all() == (len(contracts[0]) > 20)


ATTENTION = """
def f(Q: Float[Array, "T E"], K: Float[Array, "U E"], q0: Int[Array, "B", "0:T+1"],
      q1: Int[Array, "B", "0:T+1"], k0: Int[Array, "B", "0:U+1"], k1: Int[Array, "B", "0:U+1"]):
    assert all(q0[b] <= q1[b] <= q0[b + 1] for b in range(0, B - 1))
    O = zeros((T, E))
    for b in range(0, B):
        for i in range(q0[b], q1[b]):
            m = -inf
            l = 0.0
            for j in range(k0[b], {stop}):
                m = max(m, sum(Q[i, e] * K[j, e] for e in range(0, E)))
            for j in range(k0[b], {stop}):
                l = l + exp(sum(Q[i, e] * K[j, e] for e in range(0, E)) - m)
            for j in range(k0[b], {stop}):
                s = sum(Q[i, e] * K[j, e] for e in range(0, E))
                for e in range(0, E):
                    O[i, e] += exp(s - m) / l * K[j, e]
    return O
"""
CAUSAL = "min(k1[b], k1[b] - q1[b] + i + 1)"


@pytest.mark.parametrize("stop", ["k1[b]", CAUSAL])
def test_keys_that_sequences_share_are_gone_over_by_sequences(stop: str) -> None:
    own = program(ATTENTION.format(stop=stop))
    found = backward(own)
    shown = listing(found.program)
    assert "delta[i]" in shown and "max(" not in shown, "a row has one number, that is handed over"
    assert shown.count("for i in range(q0[b], q1[b]):") == 3, shown
    assert "range(0, T)" not in shown
    rng = np.random.default_rng(0)
    sizes = {"T": 6, "U": 5, "E": 2, "B": 3}
    inputs: dict[str, Any] = {"Q": rng.normal(size=(6, 2)), "K": rng.normal(size=(5, 2))}
    ends = {"q0": [0, 3, 3], "q1": [2, 3, 6], "k0": [1, 0, 0], "k1": [4, 2, 3]}
    inputs |= {name: np.array(each) for name, each in ends.items()}
    results = execute(found.forward, inputs=inputs)
    given = {saved.name: results[saved.name] for saved in found.saved if saved.name in results}
    incoming = {"O": rng.normal(size=(6, 2))}
    got = execute(found.program, inputs=inputs | given | {"dO": incoming["O"]})
    for name, wanted in gradients(own, sizes, inputs, incoming).items():
        np.testing.assert_allclose(got[f"d{name}"], wanted, rtol=1e-9, atol=1e-12)


def test_ends_may_have_names() -> None:
    named = ATTENTION.format(stop=CAUSAL.replace("k1[b]", "ke").replace("q1[b]", "qe"))
    named = named.replace(
        "        for i in range(q0[b], q1[b]):",
        "        qs = q0[b]; qe = q1[b]; ke = k1[b]\n        for i in range(qs, qe):",
    )
    (kernel,) = lowered(program(named)).kernels
    assert [loop.name for loop in kernel.grid] == ["b", "i"]
    shown = listing(backward(program(named)).program)
    assert "delta[i]" in shown and shown.count("for i in range(q0[b], q1[b]):") == 3, shown


TOKENS = """
def tokens(Q: Float[Array, "T H E"], K: Float[Array, "U H E"], seq: Int[Array, "T", "0:B"],
           cu: Int[Array, "B+1", "0:U+1"]):
    O = zeros((T, H, E))
    for i in range(0, T):
        for h in range(0, H):
            for j in range(cu[seq[i]], cu[seq[i] + 1]):
                s = sum(Q[i, h, e] * K[j, h, e] for e in range(0, E))
                for e in range(0, E):
                    O[i, h, e] += s * K[j, h, e]
    return O
"""


@pytest.mark.parametrize(("seq", "rows"), [("seq[i]", ["i"]), ("i", ["h"])])
def test_rows_that_look_up_their_sequence_share_its_keys(seq: str, rows: list[str]) -> None:
    """Neighbours are of one sequence; those that have one each are programs of their own."""
    (kernel,) = lowered(program(TOKENS.replace("seq[i]", seq))).kernels
    assert [dim.name for dim in kernel.grid if dim.role == "rows"] == rows


GUARDED = """
def guarded(X: Float[Array, "T"], s: Int[Array, "B", "0:T+1"], e: Int[Array, "{extent}", "0:T+1"]):
    assert all(s[b] <= e[b] <= s[b + 1] for b in range(0, B - 1))
    Y = zeros(T)
    for b in range(0, B):
        for i in range(0, T):
            if {guard}:
                Y[i] = X[i] + sum(X[j] for j in range(0, T) if s[b] <= j and j < e[b])
    return Y
"""


@pytest.mark.parametrize(
    "guard", ["s[b] <= i and i < e[b]", "e[b] > i >= s[b]", "i <= e[b] - 1 and i >= s[b]"]
)
def test_guards_that_leave_the_rows_of_a_sequence_are_ends(guard: str) -> None:
    found = with_guarded_rows(program(GUARDED.format(extent="B", guard=guard)))
    assert found is not None
    assert found.loops == ("i", "j")
    shown = listing(found.program)
    assert "for i in range(s[b], e[b]):" in shown and "for j in range(s[b], e[b]))" in shown
    assert "if" not in shown


def test_guards_stay_where_an_end_may_not_be_there() -> None:
    guard = "s[b] <= i and i < e[b]"
    assert with_guarded_rows(program(GUARDED.format(extent="B-1", guard=guard))) is None
    plain = GUARDED.replace("for b in range(0, B - 1)", "for b in range(0, B - 2)")
    assert with_guarded_rows(program(plain.format(extent="B", guard=guard))) is None
    more = program(GUARDED.format(extent="B", guard=f"i != 3 and {guard}"))
    found = with_guarded_rows(more)
    assert found is not None
    assert "if i != 3:" in listing(found.program)


def test_a_guard_may_say_one_end_or_a_row_around() -> None:
    text = GUARDED.format(extent="B", guard="i < e[b]").replace("range(0, T):", "range(s[b], T):")
    text = text.replace("range(0, T) if s[b] <= j and j < e[b]", "range(0, T) if s[b] <= j <= i")
    found = with_guarded_rows(program(text))
    assert found is not None
    shown = listing(found.program)
    assert "for i in range(s[b], e[b]):" in shown
    assert "for j in range(s[b], min(T, i + 1)))" in shown
    alone = text.replace("for i in range(s[b], T)", "for i in range(0, T)").replace(
        "i < e[b]", "1 > 0"
    )
    assert with_guarded_rows(program(alone)) is None, "row i is none of sequence b"


UNPACKED = """
def unpacked(Q: Float[Array, "T E"], K: Float[Array, "U E"], q: Int[Array, "B", "0:T+1"],
             n: Int[Array, "B", "0:N+1"], s: Int[Array, "B", "0:U+1"],
             e: Int[Array, "B", "0:U+1"], N: int):
    assert all(q[b] + n[b] <= q[b + 1] for b in range(0, B - 1))
    assert all(s[b] <= e[b] <= s[b + 1] for b in range(0, B - 1))
    O = zeros((B, N))
    for b in range(0, B):
        for i in range(0, n[b]):
            for j in range(s[b], e[b]):
                O[b, i] += exp(sum(Q[q[b] + i, d] * K[j, d] for d in range(0, E)))
    return O
"""


def test_rows_that_go_to_places_of_their_own_are_differentiated_one_by_one() -> None:
    """Packed rows that come out padded are not seen as rows of a batch, and need not be."""
    shown = listing(backward(program(UNPACKED)).program)
    assert "dQ[" in shown and "dK[" in shown
