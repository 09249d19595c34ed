"""The backward passes of `specs/`: their numbers, their shape, what they save and prove."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from looptrans.adjoint import proofs
from looptrans.adjoint.backward import backward
from looptrans.adjoint.derived import Backward
from looptrans.adjoint.equations.size import sizes_of
from looptrans.adjoint.equations.sums import Term, _orders, canonical
from looptrans.adjoint.reading.read import read
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.analysis import api
from looptrans.executor import execute, prepare
from looptrans.frontend import parse
from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import Int, Param, Var
from looptrans.ir.listing import listing as text_of
from looptrans.ir.program import Assign, Declaration, Loop
from looptrans.ir.source import Source
from looptrans.ir.value import Access, Call, Generator, Range, Read, Reduce, walk_value
from looptrans.ir.walk import nodes, placed
from tests.analysis import spec
from tests.test_adjoint_torch import gradients

DIFFERENTIABLE = (
    "attention",
    "attention_bias",
    "attention_causal",
    "attention_causal_bottom_right",
    "attention_gqa",
    "attention_lengths",
    "attention_naive",
    "layernorm",
    "logsumexp",
    "matmul",
    "rmsnorm",
    "softmax",
    "softmax_cross_entropy",
)
SIZES = {"M": 3, "N": 4, "E": 2, "D": 3, "B": 2, "H": 4, "G": 2, "R": 2, "K": 3, "V": 5}


@cache
def found_of(name: str) -> Backward:
    return backward(spec(name))


def given(name: str, seed: int) -> tuple[dict[str, int], dict[str, Any]]:
    listing = spec(name)
    sizes = {p.name: SIZES[p.name] for p in listing.parameters if p.is_integer}
    made = prepare(listing, sizes, None, seed)
    return sizes, {**made.arrays, **made.reals}


def run(
    found: Backward, sizes: Mapping[str, int], inputs: Mapping[str, Any], seed: int = 0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the incoming gradients, made at random, and the backward's results."""
    forward = execute(found.forward, sizes=sizes, inputs=inputs)
    random = np.random.default_rng(seed)
    incoming = {name: random.standard_normal(forward[name].shape) for name in found.of}
    arguments = {**inputs, **{found.incoming[name]: g for name, g in incoming.items()}}
    arguments |= {saved.name: forward[saved.name] for saved in found.saved}
    return incoming, execute(found.program, sizes=sizes, inputs=arguments)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_those_of_autograd(name: str) -> None:
    found = found_of(name)
    for seed in range(2):
        sizes, inputs = given(name, seed)
        incoming, got = run(found, sizes, inputs, seed)
        want = gradients(found.listing, sizes, inputs, incoming)
        assert set(found.gradients) == set(want)
        for argument, gradient in found.gradients.items():
            assert got[gradient].shape == want[argument].shape
            np.testing.assert_allclose(got[gradient], want[argument], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_central_differences(name: str) -> None:
    found = found_of(name)
    sizes, inputs = given(name, 3)
    incoming, got = run(found, sizes, inputs)
    random = np.random.default_rng(1)
    step = 1e-5
    for argument, gradient in found.gradients.items():
        way = random.standard_normal(np.shape(inputs[argument]))
        ends = []
        for sign in (1, -1):
            there = {**inputs, argument: inputs[argument] + sign * step * way}
            result = execute(found.listing, sizes=sizes, inputs=there)
            ends.append(sum(_weighed(result[o], g) for o, g in incoming.items()))
        slope = (ends[0] - ends[1]) / (2 * step)
        assert float((got[gradient] * way).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-7)


def _weighed(result: Any, by: Any) -> float:
    """Return a weighed sum; the log of an empty sum stays -inf and is left out."""
    return float((result * by)[np.isfinite(result)].sum())


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_the_listings_are_listings(name: str) -> None:
    """They print and read back, and the forward still gives what it gave."""
    found = found_of(name)
    for program in (found.program, found.forward):
        text = text_of(program)
        assert text_of(parse(Source("again", text))) == text
    sizes, inputs = given(name, 0)
    before = execute(found.listing, sizes=sizes, inputs=inputs)
    after = execute(found.forward, sizes=sizes, inputs=inputs)
    for output, value in before.items():
        np.testing.assert_array_equal(after[output], value)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_every_step_is_proved(name: str) -> None:
    assert all(step.decision == "legal" for step in found_of(name).steps)


def products(found: Backward) -> int:
    """Count contractions of two factors with three indices: block products in a kernel."""
    count = 0
    for place in placed(found.program):
        assert isinstance(place.node, Assign)
        for value in place.node.values:
            count += sum(isinstance(part, Reduce) for part in walk_value(value))
        target = place.node.targets[0]
        count += len(place.loops) - len(target.subscripts) == 1 and len(target.subscripts) >= 2
    return count


@pytest.mark.parametrize("name", [name for name in DIFFERENTIABLE if name.startswith("attention")])
def test_attention_is_as_an_expert_writes_it(name: str) -> None:
    """Delta from O and dO, only O and the log-sum-exp saved, scores and weights never stored.

    Where a mask may be added the log-sum-exp is saved as two numbers.
    """
    found = found_of(name)
    row = {"top", "log_l"} if name in ("attention_bias", "attention_relative") else {"lse"}
    assert {saved.name for saved in found.saved} == {"O", *row}
    inputs = {a.name for a in found.listing.arrays if a.role == "input"}
    for node in nodes(found.program.body):
        if isinstance(node, Declaration) and node.array not in found.gradients.values():
            assert len(node.creation.shape) <= len(found.program.array(min(row)).shape)
    assert inputs <= set(found.program.arguments)
    laws = [c.law for step in found.steps for c in step.certificates]
    assert any(law.endswith("= 0") and law.startswith("dm") for law in laws)
    assert any("sum(dP[" in law and "O[" in law for law in laws)
    calls = [
        part
        for place in placed(found.program)
        if isinstance(place.node, Assign)
        for value in place.node.values
        for part in walk_value(value)
        if isinstance(part, Call) and part.function == "exp"
    ]
    assert len(calls) == len({id(call) for call in calls}) >= 2


def test_seven_block_products_in_two_loops() -> None:
    found = found_of("attention_naive")
    assert text_of(backward(found.listing).program) == text_of(found.program)
    assert products(found) == 7
    tops = [node for node in found.program.body if isinstance(node, Loop)]
    assert [loop.variable for loop in tops] == ["i", "i", "j"]


def test_a_mask_limits_the_loops_of_both_nests() -> None:
    text = text_of(found_of("attention_causal").program)
    assert text.count("if j <= i:") == 2
    assert "inf" not in text


def test_a_group_of_heads_is_summed_over() -> None:
    text = text_of(found_of("attention_gqa").program)
    assert "for h in range(g * R, g * R + R):" in text
    assert "K[b, g, j, e]" in text


def test_known_forms() -> None:
    """Cross entropy gives softmax less one-hot, layer norm no power of the variance's sum."""
    assert "P - (1.0 if y[n] == v else 0.0)" in text_of(found_of("softmax_cross_entropy").program)
    assert "Y[i, j] * (dY[i, j] - " in text_of(found_of("softmax").program)
    assert "sqrt" not in text_of(found_of("rmsnorm").program)
    assert "sqrt" not in text_of(found_of("layernorm").program)


def test_its_annotations_hold_and_say_what_carries_what() -> None:
    """The query's gradient is gathered over the keys, the others over the queries."""
    found = backward(spec("attention_naive"), annotate=True)
    again = parse(Source("annotated", text_of(found.program)))
    facts = api.claims(again)
    assert len(facts) > 30
    assert {fact.decision for fact in facts} == {"holds"}
    loops = api.loop_facts(again)
    gathered = [(fact.loop, fact.flow.reduced) for fact in loops if fact.flow.reduced]
    assert gathered == [("d", ("delta",)), ("j", ("dQ",)), ("i", ("dK", "dV"))]
    assert all(fact.flow.decision in ("parallel", "reduction") for fact in loops)


def test_renaming_changes_names_only() -> None:
    text = text_of(found_of("attention_naive").listing)
    names = {"Q": "alpha", "K": "beta", "V": "gamma", "S": "sigma", "m": "tau", "l": "rho"}
    names |= {"O": "omega", "i": "row", "j": "col", "d": "w", "e": "k"}
    renamed = parse(Source("renamed", _renamed(text, names)))
    assert [len(step.certificates) for step in backward(renamed).steps] == [
        len(step.certificates) for step in found_of("attention_naive").steps
    ]
    assert products(backward(renamed)) == 7


def _renamed(text: str, names: Mapping[str, str]) -> str:
    import re

    return re.sub(r"\b\w+\b", lambda found: names.get(found.group(), found.group()), text)


def test_only_what_is_asked_for_is_worked_out() -> None:
    found = backward(spec("attention_naive"), wrt=("V",))
    assert list(found.gradients) == ["V"]
    assert {saved.name for saved in found.saved} == {"lse"}
    assert "delta" not in text_of(found.program)


def test_the_row_maximum_itself_has_a_gradient_where_it_is_asked_for() -> None:
    """Its adjoint does not vanish, and which score it was is handed over."""
    text = text_of(spec("attention_naive")).replace("return O", "return O, m")
    listing = parse(Source("m", text))
    assert backward(listing).of == ("O",)
    found = backward(listing, of=("m",))
    assert [saved.name for saved in found.saved] == ["m_at"]
    assert found.notes == ("The adjoint of m goes to the first that attains it.",)


def test_states_that_have_no_room_and_what_is_in_place_are_refused() -> None:
    for name in ("flash_forward_as_printed", "stencil"):
        with pytest.raises(NotDifferentiated):
            backward(spec(name))


def test_without_keys_gradients_are_zero() -> None:
    found = found_of("attention_lengths")
    sizes, inputs = given("attention_lengths", 0)
    inputs["n_kv"] = np.array([0, 3])
    incoming, got = run(found, sizes, inputs)
    assert not got["dQ"][0].any()
    assert not got["dK"][0].any()
    assert not got["dV"][1, :, 3:].any()
    want = gradients(found.listing, sizes, inputs, {"O": incoming["O"] * 1.0})
    np.testing.assert_allclose(got["dV"], want["V"], rtol=1e-9, atol=1e-11)


EMITTED = """
import json, sys
import numpy as np, torch
from pathlib import Path
from looptrans.adjoint.backward import backward
from looptrans.emit.listing import emitted
from looptrans.executor import execute, prepare
from looptrans.frontend import load
from looptrans.runtime.running.load import load_module
listing = load(sys.argv[1])
found = backward(listing)
made = emitted(found.program)
path = Path(sys.argv[2]) / f"{made.name}.py"
path.write_text(made.text)
module = load_module(made.name, made.text, path)
sizes = {"M": 17, "N": 21, "E": 5, "D": 7}
inputs = prepare(listing, sizes, None, 0).arrays
forward = execute(found.forward, sizes=sizes, inputs=inputs)
given = {**inputs, "dO": np.random.default_rng(0).standard_normal((17, 7))}
given |= {saved.name: forward[saved.name] for saved in found.saved}
want = execute(found.program, sizes=sizes, inputs=given)
tensors = [torch.tensor(given[name], dtype=torch.float32) for name in found.program.arguments]
got = getattr(module, made.launcher)(*tensors)
errors = [
    float(np.linalg.norm(g.numpy() - want[n]) / np.linalg.norm(want[n]))
    for n, g in zip(found.program.outputs, got, strict=True)
]
print(json.dumps([len(made.blocks.kernels), errors]))
"""


def test_the_emitted_kernels_give_the_same(tmp_path: Path) -> None:
    """Delta, dQ by rows, dK and dV by columns, in Triton's interpreter."""
    path = Path(__file__).parent.parent / "specs" / "attention_naive.py"
    done = subprocess.run(
        [sys.executable, "-c", EMITTED, str(path), str(tmp_path)],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    kernels, errors = json.loads(done.stdout)
    assert kernels == 3
    assert max(errors) < 5e-6


def test_what_may_be_close_is_subtracted_before_it_is_multiplied() -> None:
    text = """
def f(A: Float[Array, "M"], B: Float[Array, "M"], C: Float[Array, "M"]):
    L = zeros(M)
    for i in range(0, M):
        L[i] = sqrt((A[i] - B[i]) ** 2 + 1e-12) * ((A[i] - C[i]) ** 2 + 1e-12)
    return L
"""
    derived = text_of(backward(parse(Source("<f>", text))).program)
    assert "(A[i] - B[i])" in derived and "(A[i] - C[i])" in derived


def test_a_sum_is_known_whatever_its_variables_are_called_and_in_whatever_order() -> None:
    def term(a: str, b: str, c: str, order: tuple[int, ...], first: str, second: str) -> Term:
        ranges = (Range(Int(0), Param("M")), Range(Int(0), Param("M")), Range(Int(0), Var(a)))
        sums = [Generator(v, r, ALWAYS) for v, r in zip((a, b, c), ranges, strict=True)]
        cell = Read(Access("x", (Var(first), Var(second), Var(c))))
        return Term(Fraction(1), ((cell, 1),), (), tuple(sums[k] for k in order))

    known = term("i", "j", "k", (0, 1, 2), "i", "j")
    assert canonical(known) == canonical(term("j", "k", "i", (2, 1, 0), "j", "k"))
    assert canonical(known) == canonical(term("p", "q", "r", (1, 0, 2), "p", "q"))
    assert canonical(known) != canonical(term("i", "j", "k", (0, 1, 2), "j", "i"))
    # Only what ranges alike is tried in every order.
    assert len(list(_orders(known.generators))) == 2


def test_what_vanishes_is_not_multiplied_by_what_only_a_sum_divides_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Weights over 1 + exp(-G[j]): times that for each j the terms would be thousands."""
    text = """
def gated(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
          G: Float[Array, "N"]):
    O = zeros((M, D))
    for i in range(0, M):
        m = 0.0
        for j in range(0, N):
            m = max(m, sum(Q[i, e] * K[j, e] for e in range(0, E)))
        l = exp(-m)
        for j in range(0, N):
            l += exp(sum(Q[i, e] * K[j, e] for e in range(0, E)) - m) / (1.0 + exp(-G[j]))
        for j in range(0, N):
            w = exp(sum(Q[i, e] * K[j, e] for e in range(0, E)) - m) / (1.0 + exp(-G[j])) / l
            for d in range(0, D):
                O[i, d] += w * V[j, d]
    return O
"""
    most = 0
    opened = proofs.opened

    def counted(*given: Any, **named: Any) -> list[Term]:
        nonlocal most
        found = opened(*given, **named)
        most = max(most, len(found))
        return found

    monkeypatch.setattr(proofs, "opened", counted)
    found = backward(parse(Source("<gated>", text)))
    assert any("vanishes" in step.name for step in found.steps)
    assert all(c.verdict == "legal" for step in found.steps for c in step.certificates)
    assert 0 < most < 32


def test_whether_long_chains_of_sums_are_stored_is_answered_in_no_time() -> None:
    names = ["A", *(f"X{n}" for n in range(30))]
    made = "".join(f"    {name} = zeros((N, N))\n" for name in names[1:])
    nests = "".join(
        f"""
    for i in range(N):
        for d in range(N):
            {new}[i, d] = sum({old}[i, e] * {old}[e, d] * {old}[e, e] for e in range(N))
"""
        for old, new in pairwise(names)
    )
    header = 'def powers(A: Float[Array, "N N"]):\n'
    text = f"{header}{made}{nests}    return {names[-1]}\n"
    given = parse(Source("<powers>", text))
    reading, _ = read(given)
    sizes = sizes_of(given, reading.system, reading.outputs, reading.last, frozenset())
    last = reading.system.definitions[reading.outputs[names[-1]]]
    assert sizes.is_stored(reading.system, last)
