"""`verify --pass backward`: what gradients are compared with, and that wrong ones are caught.

The reference is held against one that runs cell by cell; the comparison against launchers on torch
tensors, right ones and wrong ones; then come emitted kernels of `specs/` in the interpreter, and
such with one operator changed. LOOPTRANS_TEST_ALL=1 takes every listing of `specs/`.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from looptrans.adjoint.backward import backward
from looptrans.blocks.block_ir.program import NotLowered
from looptrans.cli.main import main
from looptrans.emit.backward import emitted_with_backward
from looptrans.executor import vector_machine
from looptrans.executor.inputs import Inputs, prepare
from looptrans.executor.run import execute_on
from looptrans.executor.vectors import execute_vectors
from looptrans.frontend import parse
from looptrans.ir.index import Int
from looptrans.ir.listing import listing
from looptrans.ir.program import Program
from looptrans.ir.source import Source
from looptrans.reports.verify import verification_json, verification_text
from looptrans.runtime.executed.empty_rows import with_empty_rows
from looptrans.runtime.executed.reference import reference_of
from looptrans.runtime.verifying.inputs import KINDS
from looptrans.runtime.verifying.sizes import SizeSet, size_sets
from looptrans.runtime.verifying.verification import OutputError, Report, Run
from looptrans.variants import Options, compose
from tests.analysis import spec
from tests.test_adjoint_torch import gradients as cell_by_cell
from tests.test_verify import MASKED

torch = pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

from looptrans.runtime.differentiated.machine import Differentiated  # noqa: E402
from looptrans.runtime.differentiated.machine import differentiated as gradients_of  # noqa: E402
from looptrans.runtime.differentiated.reference import (  # noqa: E402
    GradientReference,
    gradient_reference_of,
)
from looptrans.runtime.differentiated.sums import in_order  # noqa: E402
from looptrans.runtime.verifying import backward as verifying  # noqa: E402  # it needs torch
from looptrans.runtime.verifying import gradient_run as running  # noqa: E402
from looptrans.runtime.verifying.backward import (  # noqa: E402
    gradient_launcher,
    joined,
    verify_gradients,
    verify_pass,
)
from looptrans.runtime.verifying.divided import asked_for  # noqa: E402
from looptrans.runtime.verifying.gradient_run import GradientLauncher  # noqa: E402
from looptrans.runtime.verifying.gradients import Expected, compared_gradient  # noqa: E402
from looptrans.runtime.verifying.handed_over import HandedOver  # noqa: E402
from looptrans.runtime.verifying.rounded import with_rounded_operands  # noqa: E402


def program_of(text: str) -> Program:
    return parse(Source("listing.py", text))


# The reference

TABLE = """
def table(T: Float[Array, "R"], X: Float[Array, "B N"], n: Int[Array, "B", "0:N+1"], a: float):
    Y = zeros((B, N)); total = zeros(B)
    for b in range(B):
        for j in range(n[b]):
            Y[b, j] = a * T[(j * 2) % R] + T[j // 2 % R] * X[b, j]
            total[b] = total[b] + Y[b, j] * Y[b, j]
    return Y, total
"""
GUARDS = """
def guards(X: Float[Array, "M N"], y: Int[Array, "M", "0:N"], a: float):
    Y = zeros((M, N)); Z = zeros(M); W = full(M, inf)
    for i in range(M):
        for j in range(N):
            if X[i, j] > 0.0:
                Y[i, j] = log(X[i, j]) + sqrt(X[i, j]) / a
            else:
                Y[i, j] = X[i, j] ** 3 - abs(X[i, j])
            W[i] = min(W[i], X[i, j] * X[i, y[i]] if j < i else inf)
        Z[i] = max(X[i, k] * a for k in range(0, N) if k != y[i])
        Z[i] = Z[i] + where(Z[i] > 0.0, log(Z[i]), 0.0) + X[i, y[i]]
    return Y, Z, W
"""
ROWS = """
def rows(Q: Float[Array, "M E"], K: Float[Array, "N E"], w: Float[Array, "N"]):
    S = zeros((M, N)); s = zeros(M)
    for i in range(M):
        for j in range(N):
            S[i, j] = tanh(Q[i] @ K[j]) * sum(K[j] * exp(0.1 * Q[i]))
        s[i] = sum(S[i, j] * w[j] * w[(i + j) % N] for j in range(0, N))
    return S, s
"""
SCAN = """
def scan(x: Float[Array, "N"], a: float):
    P = zeros(N + 1)
    last = 0.0
    for i in range(N):
        P[i + 1] = a * P[i] + sin(x[i]) * last
        last = P[i + 1] + x[i]
    return P, last
"""


@functools.cache
def prepared(text: str) -> tuple[Program, Any]:
    program = program_of(text)
    reference = reference_of(program)
    return program, gradient_reference_of(reference)


def differentiated(text: str, sizes: dict[str, int], seed: int = 0, **how: Any) -> Any:
    """Return the inputs, what comes in, and what the vectorized reference finds."""
    program, reference = prepared(text)
    inputs = prepare(program, sizes, seed=seed)
    own = reference.reference.run(inputs)
    exact, empty = with_empty_rows(reference.reference, inputs, own)
    random = np.random.default_rng(seed)
    incoming = {
        name: random.standard_normal(exact[name].shape)
        for name in program.outputs
        if exact[name].dtype.kind == "f"
    }
    return inputs, incoming, reference.run(inputs, incoming, empty, **how)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (TABLE, {"R": 3, "B": 3, "N": 5}),
        (GUARDS, {"M": 4, "N": 5}),
        (ROWS, {"M": 3, "N": 4, "E": 5}),
        (SCAN, {"N": 6}),
    ],
    ids=["table", "guards", "rows", "scan"],
)
def test_the_reference_is_what_it_is_cell_by_cell(text: str, sizes: dict[str, int]) -> None:
    for seed in range(2):
        inputs, incoming, found = differentiated(text, sizes, seed)
        given = {**inputs.arrays, **inputs.reals}
        # Where nothing was taken the minimum of, its infinity is a constant.
        want = cell_by_cell(prepared(text)[0], inputs.integers, given, incoming)
        assert set(found.gradients) == set(want)
        for name, gradient in want.items():
            assert np.isfinite(gradient).all()
            np.testing.assert_allclose(found.gradients[name], gradient, rtol=1e-10, atol=1e-12)
            assert np.any(gradient != 0)


def test_no_nan_comes_back_from_rows_that_are_masked_throughout() -> None:
    inputs, incoming, found = differentiated(MASKED, {"M": 4, "N": 3, "E": 2, "D": 2})
    assert all(np.isfinite(gradient).all() for gradient in found.gradients.values())
    assert (found.gradients["Q"][:2] == 0).all()
    assert (found.gradients["Q"][2:] != 0).any()
    # The others are those of the rows that have something.
    scores = torch.tensor(inputs.arrays["Q"][2:]) @ torch.tensor(inputs.arrays["K"]).T
    values = torch.tensor(inputs.arrays["V"], requires_grad=True)
    masked = scores.masked_fill(torch.ones(2, 3).triu(1).bool(), -torch.inf)
    (torch.softmax(masked, 1) @ values).backward(torch.tensor(incoming["O"][2:]))
    np.testing.assert_allclose(found.gradients["V"], values.grad.numpy(), rtol=1e-12)


TOP = """
def top(X: Float[Array, "M N"]):
    m = full(M, -inf)
    for i in range(M):
        for j in range(N):
            m[i] = max(m[i], X[i, j])
    return m
"""


def test_at_a_tie_there_are_two_subgradients() -> None:
    program, reference = prepared(TOP)
    values = np.array([[1.0, 2.0, 2.0], [3.0, 1.0, 0.0]])
    incoming = {"m": np.array([5.0, 7.0])}
    first = reference.run(prepare(program, {}, {"X": values}), incoming, {})
    last = reference.run(prepare(program, {}, {"X": values}), incoming, {}, last_at_ties=True)
    assert first.tied
    assert first.gradients["X"].tolist() == [[0, 5, 0], [7, 0, 0]]
    assert last.gradients["X"].tolist() == [[0, 0, 5], [7, 0, 0]]
    alone = prepare(program, {}, {"X": values[1:]})
    assert not reference.run(alone, {"m": np.array([7.0])}, {}).tied


def test_terms_are_added_without_their_signs() -> None:
    text = (
        'def product(x: Float[Array, "N"], a: float):\n'
        "    y = 0.0\n"
        "    for i in range(0, N):\n"
        "        y = y + a * x[i] - x[i] * x[i]\n"
        "    return y\n"
    )
    program, reference = prepared(text)
    inputs = prepare(program, {"a": 3.0}, {"x": np.array([1.0, -2.0])})
    incoming = {"y": np.array(-2.0)}
    plain = reference.run(inputs, incoming, {})
    whole: Differentiated = reference.run(inputs, incoming, {}, absolute=True)
    assert plain.gradients["a"] == 2.0  # -2 (1 - 2)
    assert plain.terms["a"] == 6.0
    assert whole.gradients["a"] == 6.0
    assert plain.gradients["x"].tolist() == [-2 * (3 - 2), -2 * (3 + 4)]
    assert whole.gradients["x"].tolist() == [2 * (3 + 2), 2 * (3 + 4)]


# Errors and tolerances


def error_of(
    found: Any, exact: Any, plain: Any = None, dtype: str = "float32", **more: Any
) -> OutputError:
    def array(values: Any) -> Any:
        return np.asarray(values, dtype=np.float64)

    plainly = array(exact if plain is None else plain)
    other = array(more["other"]) if "other" in more else None
    absolute = array(more.get("absolute", np.abs(exact)))
    expected = Expected(
        array(exact),
        other,
        lambda backwards: plainly,
        lambda: absolute,
        more.get("terms"),
        lambda asked: float(
            np.linalg.norm((array(more.get("moved", 0.0)) + 0 * array(exact))[asked])
        ),
    )
    return compared_gradient("dX", array(found), expected, dtype)


def test_the_tolerance_of_a_gradient() -> None:
    assert error_of([1.0, 4e-6], [1.0, 0.0], absolute=[1.0, 1.0]).passed
    assert not error_of([1.0, 6e-6], [1.0, 0.0], absolute=[1.0, 1.0]).passed
    # Three times the plain error.
    assert error_of([1.0, 2.9e-5], [1.0, 0.0], [1.0, 1e-5], absolute=[1.0, 1.0]).passed
    assert not error_of([1.0, 3.1e-5], [1.0, 0.0], [1.0, 1e-5], absolute=[1.0, 1.0]).passed
    half = [1.0, 1e-3], [1.0, 0.0], [1.0, 3.5e-4], "float16"
    assert error_of(*half, absolute=[1.0, 1.0]).passed
    assert not error_of([1.0, 1.1e-3], *half[1:], absolute=[1.0, 1.0]).passed
    # What the forward hands over is rounded.
    assert error_of([1.0, 1.1e-3], *half[1:], absolute=[1.0, 1.0], moved=[0.0, 1e-4]).passed
    # Next to elements that autograd has no number for, beside those that are left.
    left = [9.0, 1.02], [9.0, 1.0], [np.inf, 1.0], "float16"
    assert not error_of(*left).passed and not error_of(*left, moved=[0.1, 0.0]).passed
    assert error_of(*left, moved=[0.0, 0.03]).passed
    # The sum of 1 and -1 is worked out in float32.
    assert error_of([1.0, 1.0 + 1e-7], [1.0, 1.0]).passed
    cancelled = error_of([6e-8], [1e-12], [0.0], absolute=[2.0])
    assert cancelled.passed
    assert not error_of([2e-7], [1e-12], [0.0], absolute=[2.0]).passed
    # Of one that is 0 throughout a rounding of each term, and what rounding saved values does.
    assert error_of([0.0, 5e-8], [0.0, 0.0], absolute=[1.0, 0.5]).passed
    assert not error_of([0.0, 2e-7], [0.0, 0.0], absolute=[1.0, 0.5]).passed
    assert error_of([0.0, 2e-7], [0.0, 0.0], absolute=[1.0, 0.5], moved=[0.0, 1e-7]).passed


def test_what_no_output_leads_to_is_exactly_0() -> None:
    assert error_of([1.0, 0.0], [1.0, 0.0], absolute=[1.0, 0.0]).passed
    stray = error_of([1.0, 1e-30], [1.0, 0.0], absolute=[1.0, 0.0])
    assert not stray.passed
    assert "1 elements to which no output leads are not 0" in stray.problem
    assert error_of([0.0, 0.0], [0.0, 0.0]).passed
    assert error_of([1e-8, 0.0], [0.0, 0.0], absolute=[1.0, 1.0]).passed
    assert not error_of([1e-6, 0.0], [0.0, 0.0], absolute=[1.0, 1.0]).passed
    assert not error_of([np.nan], [0.0], absolute=[1.0]).passed


def test_what_is_saved_may_be_the_larger_by_its_rounding() -> None:
    stray = [1.0, 1e-2], [1.0, 0.0]
    assert not error_of(*stray, absolute=[1.0, 0.0], dtype="float16", moved=[1.0, 0.0]).passed
    assert error_of(*stray, absolute=[1.0, 0.0], dtype="float16", moved=[1.0, 1e-2]).passed


def test_an_infinite_gradient_is_met_as_such() -> None:
    for others in ([0.0], [1.0]):
        exact = [-np.inf, *others]
        assert error_of(exact, exact).passed
        assert not error_of([np.inf, *others], exact).passed
        assert not error_of([0.0, *others], exact).passed
        assert not error_of([-np.inf, np.nan], exact).passed
        # A weight that overflows in float32, so that autograd has no number for it there.
        assert error_of([np.nan, *others], exact, [np.nan, *others]).passed


def test_a_number_is_measured_against_its_terms() -> None:
    assert error_of(1.0004, 1.0, 1.0, terms=100.0).passed
    assert not error_of(1.0006, 1.0, 1.0, terms=100.0).passed
    assert not error_of(-1.0, 1.0, 1.0, terms=100.0).passed


def test_any_subgradient_will_do() -> None:
    for found in ([0.0, 5.0, 1.0], [5.0, 0.0, 1.0], [2.5, 2.5, 1.0]):
        output = error_of(found, [0.0, 5.0, 1.0], other=[5.0, 0.0, 1.0])
        assert (output.passed, output.skipped) == (True, 2)
    assert not error_of([0.0, 5.0, 2.0], [0.0, 5.0, 1.0], other=[5.0, 0.0, 1.0]).passed


# Launchers

SCALED = """
def scaled(X: Float[Array, "M N"], w: Float[Array, "N"], a: float):
    Y = zeros((M, N))
    for i in range(M):
        for j in range(N):
            Y[i, j] = a * X[i, j] * w[j]
    return Y
"""
NAMES = ("dX", "dw", "da")


def forward(X: Any, w: Any, a: float) -> tuple[Any, ...]:
    return ((a * X.float() * w.float()).to(X.dtype),)


def gradients(X: Any, w: Any, a: float, dY: Any, wanted: Any = None) -> tuple[Any, ...]:
    x, v, d = X.float(), w.float(), dY.float()
    found = {"dX": (a * v * d).to(X.dtype), "dw": (a * x * d).sum(0).to(w.dtype)}
    found["da"] = (x * v * d).sum()
    return tuple(found[n] if wanted is None or n in wanted else None for n in NAMES)


def changed(name: str, change: Callable[[Any], Any]) -> Callable[..., tuple[Any, ...]]:
    def run(X: Any, w: Any, a: float, dY: Any, wanted: Any = None) -> tuple[Any, ...]:
        found = dict(zip(NAMES, gradients(X, w, a, dY, wanted), strict=True))
        if found[name] is not None:
            found[name] = change(found[name])
        return tuple(found.values())

    return run


def contiguous(X: Any, w: Any, a: float, dY: Any, wanted: Any = None) -> tuple[Any, ...]:
    """Takes what comes in for contiguous: with strides of 0 there is only one row."""
    flat = torch.as_strided(dY, (1, dY.shape[1]), (dY.shape[1], 1))
    rows = flat if dY.stride(0) == 0 and len(dY) else dY
    found = gradients(X, w, a, rows if len(rows) == len(dY) else rows.repeat(len(dY), 1), wanted)
    return tuple(None if g is None else g * (1 if rows is dY else 2) for g in found)


def writing(X: Any, w: Any, a: float, dY: Any, wanted: Any = None) -> tuple[Any, ...]:
    found = gradients(X, w, a, dY, wanted)
    w.zero_()
    return found


def eager(X: Any, w: Any, a: float, dY: Any, wanted: Any = None) -> tuple[Any, ...]:
    return gradients(X, w, a, dY)


def saving(X: Any, w: Any, a: float) -> tuple[Any, ...]:
    return (forward(X, w, a)[0] * 1.01,)


def alone(factor: float) -> Callable[..., tuple[Any, ...]]:
    """Return gradients of which each is another number where it alone is wanted."""

    def run(X: Any, w: Any, a: float, dY: Any, wanted: Any = None) -> tuple[Any, ...]:
        found = gradients(X, w, a, dY, wanted)
        return found if wanted is None else tuple(None if g is None else g * factor for g in found)

    return run


def report_of(
    run: Callable[..., Any], first: Callable[..., Any] = forward, device: str = "cpu"
) -> Report:
    found = backward(program_of(SCALED))
    launcher = GradientLauncher(
        found, first, ("X", "w", "a"), ("Y",), run, ("X", "w", "a", "dY"), NAMES
    )
    sets = [SizeSet("small", {"M": 3, "N": 4}), SizeSet("zero", {"M": 0, "N": 4})]
    return verify_gradients(launcher, sets, ("float32", "float16"), device)


def test_right_gradients_pass() -> None:
    report = report_of(gradients)
    assert report.passed, verification_text(report)
    assert [output.name for output in report.outputs] == list(NAMES)
    assert {run.layout for run in report.runs} == {"contiguous", "odd", "expanded"}
    assert "agree along 10 directions" in " ".join(report.notes)
    document = json.loads(verification_json(report))
    assert (document["schema"], document["pass"]) == ("looptrans.verify/1", "backward")
    assert (document["passed"], document["refused"]) == (True, None)


def test_torch_works_with_one_thread_and_gets_its_threads_back() -> None:
    before = torch.get_num_threads()
    seen = set()

    def counting(X: Any, w: Any, a: float, dY: Any, wanted: Any = None) -> tuple[Any, ...]:
        seen.add(torch.get_num_threads())
        return gradients(X, w, a, dY, wanted)

    torch.set_num_threads(2)
    try:
        assert report_of(counting).passed
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == {1}


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (changed("dX", lambda g: -g), ""),
        (changed("dw", lambda g: g * 1.01), ""),
        (changed("da", lambda g: g * 1.01), ""),
        (changed("dX", lambda g: g.clone().fill_(torch.nan)), "are nan or infinite"),
        (changed("dw", lambda g: g[:1]), "the shape is (1,)"),
        (changed("dw", lambda g: g.double()), "dw is in float64, and w in float"),
        (changed("da", lambda g: None), "it is not returned"),
        (contiguous, ""),
        (writing, "the input w is changed"),
        (eager, "dw is returned where dX alone is wanted"),
        (lambda *a: (), "0 gradients are returned, not 3"),
    ],
)
def test_wrong_gradients_are_caught(run: Callable[..., Any], message: str) -> None:
    report = report_of(run)
    assert not report.passed
    assert message in " ".join(verification_text(report).split())


def test_where_kernels_are_compiled_a_gradient_alone_may_have_other_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    rounding, wrong = 1 + 2.0**-23, 1.01
    passed = {
        (factor, device): report_of(alone(factor), device=device).passed
        for factor in (rounding, wrong)
        for device in ("cpu", "cpu:0")  # the second one stands for a GPU
    }
    assert [case for case, each in passed.items() if each] == [(rounding, "cpu:0")]


def test_a_forward_pass_that_is_wrong_is_named() -> None:
    report = report_of(gradients, saving)
    assert not report.passed
    assert "the output Y of the forward pass is wrong" in verification_text(report)


def test_central_differences_find_a_wrong_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are a check of their own: they object where autograd and the kernels are wrong alike."""
    own = GradientReference.run

    def twice(*given: Any, **how: Any) -> Differentiated:
        found = own(*given, **how)
        return replace(found, gradients={**found.gradients, "X": 2 * found.gradients["X"]})

    monkeypatch.setattr(GradientReference, "run", twice)
    report = report_of(changed("dX", lambda g: 2 * g))
    assert not report.passed
    assert all(output.passed for run in report.runs for output in run.outputs)
    assert "dX does not agree with central differences" in " ".join(
        verification_text(report).split()
    )


# Emitted kernels

SMALL = {"M": 5, "N": 7, "E": 4, "D": 3, "B": 2, "H": 2, "G": 1, "R": 2, "K": 6, "V": 7}
USUAL = ("layernorm", "attention_lengths", "matmul", "softmax", "softmax_cross_entropy")
ALL = (
    *USUAL,
    "attention",
    "attention_bias",
    "attention_causal",
    "attention_causal_bottom_right",
    "attention_eight_bits",
    "attention_gqa",
    "attention_naive",
    "logsumexp",
    "rmsnorm",
)
LISTINGS = ALL if "LOOPTRANS_TEST_ALL" in os.environ else USUAL


@pytest.mark.parametrize("number", range(len(LISTINGS)), ids=lambda number: LISTINGS[number])
def test_emitted_gradients_are_right(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = spec(LISTINGS[number])
    sizes = {p.name: SMALL[p.name] for p in program.parameters if p.is_integer}
    if len(LISTINGS) < len(ALL):
        kinds = KINDS
        monkeypatch.setattr(verifying, "KINDS", (kinds[number % len(kinds)],))
    report = verify_pass(program, "backward", [sizes], ("float32", "float16"))
    assert report.passed, verification_text(report)


def test_a_kernel_with_one_operator_changed_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "KINDS", ("normal",))
    monkeypatch.setattr(running, "is_small", lambda sizes: False)
    made = emitted_with_backward(spec("attention_naive"))
    begin = made.text.index(f"def {made.backward_kernels[0]}(")
    head, kernels = made.text[:begin], made.text[begin:]
    changes = {
        line: line.replace(old, new)
        for line in dict.fromkeys(kernels.splitlines())
        for old, new in ((" - ", " + "), (" * ", " + "), ("tl.dot(dP", "-tl.dot(dP"))
        if old in line and "stride" not in line and "tl.load" not in line
        # An exponential takes more than one line.
        if "# S" in line or "1.4426950408889634" in line
    }
    assert len(changes) >= 5
    sets = [SizeSet("given", {"M": 9, "N": 11, "E": 5, "D": 3})]

    def passes(text: str) -> bool:
        launcher = gradient_launcher(replace(made, text=text))
        return verify_gradients(launcher, sets, ("float32",), "cpu").passed

    assert passes(made.text)
    for line, other in changes.items():
        assert not passes(head + kernels.replace(line, other)), other


def test_programs_are_few_where_a_kernel_adds_over_them() -> None:
    # dscale is one sum over b, h and i: there b and h are no programs.
    program = spec("attention_causal")
    made = emitted_with_backward(program)
    found = size_sets(program, made.backward, (made.forward,))
    for each in found:
        assert each.sizes["B"] * each.sizes["H"] <= 6, each
    (crossing,) = (each.sizes for each in found if each.kind == "crossing")
    assert min(crossing["M"], crossing["N"]) > 128


def test_both_passes_are_one_report() -> None:
    first = Report("f", "cpu", 0, (Run({}, "float32", "normal", "contiguous", ()),), ("a",))
    second = replace(first, notes=("a", "b"), direction="backward")
    report = joined(first, second)
    assert (len(report.runs), report.notes, report.direction) == (2, ("a", "b"), "both")
    assert report.passed
    refused = replace(report, refused="it has none.")
    assert not refused.passed
    assert "There are no kernels of the backward pass: it has none." in verification_text(refused)


def test_a_listing_without_a_backward_pass() -> None:
    text = (
        'def hard(x: Float[Array, "N"]):\n'
        "    y = zeros(N, int)\n"
        "    for i in range(0, N):\n"
        "        y[i] = 1 if x[i] > 0.0 else 0\n"
        "    return y\n"
    )
    with pytest.raises(NotLowered, match="has no output of floating-point numbers"):
        verify_pass(program_of(text), "backward", [{"N": 3}], ("float32",))
    report = verify_pass(program_of(text), "both", [{"N": 3}], ("float32",))
    assert report.runs
    assert not report.passed
    assert "no output of floating-point numbers" in report.refused


# What a kernel must round


def test_what_is_saved_may_be_off_by_a_rounding_even_where_it_is_not() -> None:
    """A score of 200 has its log-sum-exp exactly; the kernel works the score out in float32."""
    listed = compose(Options(batch=False, heads="none", scale=1.0, lse=True)).text
    found = backward(parse(Source("one_key.py", listed)))
    arrays = {"Q": np.array([[10.0]]), "K": np.array([[20.0]]), "V": np.array([[1.0]])}
    inputs = prepare(found.listing, inputs=arrays)
    exact = reference_of(found.forward).run(inputs)
    saved = {each.name: torch.tensor(exact[each.name]).float() for each in found.saved}
    incoming = {"O": np.ones((1, 1)), "lse": np.zeros(1)}
    asked = np.ones((1, 1), dtype=bool)
    moved = HandedOver(found, inputs, incoming, saved, "float32").of("V", asked)
    assert moved == pytest.approx(2.0**-17, rel=1e-3)


DECAYED = """
def decayed(Q: Float[Array, "N E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
            c: Float[Array, "N"]):
    O = zeros((N, D))
    for t in range(N):
        for s in range(t + 1):
            for d in range(D):
                O[t, d] += (Q[t] @ K[s]) * exp(tanh(c[t]) - tanh(c[s])) * V[s, d]
    return O
"""


def test_an_output_too_large_for_its_type_leaves_no_gradient_that_is_made_of_it() -> None:
    """The gradient of c is that of a row sum of dO * O, and O is infinite in float16."""
    found = backward(program_of(DECAYED))
    assert [each.name for each in found.saved] == ["O"]
    sizes = [{"N": 5, "E": 30, "D": 3}]
    report = verify_pass(program_of(DECAYED), "backward", sizes, ("float16",))
    assert report.passed
    assert any(o.name == "dc" and o.skipped for run in report.runs for o in run.outputs)


def test_rows_without_keys_are_constants_though_no_iterations_give_no_number() -> None:
    """A maximum of no elements is none, so that nothing says what such a row is."""
    text = """
def f(S: Float[Array, "M N"], V: Float[Array, "N D"], ok: Bool[Array, "M N"]):
    O = zeros((M, D))
    T = zeros((M, N))
    for i in range(M):
        for j in range(N):
            T[i, j] = S[i, j] if ok[i, j] and j < i else -inf
        m = max(T[i, j] for j in range(N))
        l = sum(exp(T[i, j] - m) for j in range(N))
        for d in range(D):
            O[i, d] = sum(exp(T[i, j] - m) * V[j, d] for j in range(N)) / l
    return O
"""
    report = verify_pass(program_of(text), "backward", [{"M": 9, "N": 4, "D": 3}], ("float32",))
    assert report.passed


def test_an_operand_too_large_for_its_type_leaves_no_gradient() -> None:
    """The gradient of W is a sum of dY * (x + x ** 5), and 10 ** 5 is infinite in float16."""
    text = """
def layer(X: Float[Array, "M E"], W: Float[Array, "C E"]):
    Y = zeros((M, C))
    for i in range(M):
        for c in range(C):
            Y[i, c] = sum((X[i, e] + X[i, e] ** 5) * W[c, e] for e in range(E))
    return Y
"""
    report = verify_pass(program_of(text), "backward", [{"M": 5, "E": 9, "C": 3}], ("float16",))
    assert report.passed
    assert any(o.name == "dW" and o.skipped for run in report.runs for o in run.outputs)


def test_operands_of_products_with_inputs_are_rounded() -> None:
    """dQ is a sum of dS * K that nearly cancels: rounding dS moves it, rounding once does not."""
    given = program_of(
        """
def f(K: Float[Array, "N"], s: Float[Array, "N"], w: Float32[Array, "N"]):
    r = 0.0
    for j in range(N):
        dS = s[j] - 1.0
        r = r + dS * K[j] + s[j] * K[j] + 2.0 * (w[j] * dS)
    return r
"""
    )
    rotated = program_of(
        """
def f(Q: Float[Array, "E"], K: Float[Array, "E"], C: Float[Array, "E"]):
    s = sum(Q[e] * C[e] * (K[e] - C[e]) + Q[e] * K[e] for e in range(E))
    return s
"""
    )
    assert (
        "(bfloat16(Q[e] * C[e]) + bfloat16(Q[e] * C[e] - bfloat16(Q[e] * C[e]))) * "
        "(bfloat16(K[e] - C[e]) + bfloat16(K[e] - C[e] - bfloat16(K[e] - C[e]))) + Q[e] * K[e]"
    ) in listing(with_rounded_operands(rotated, "float16"))
    rounded = listing(with_rounded_operands(given, "float16"))
    assert "r = r + float16(dS) * K[j] + s[j] * K[j] + 2.0 * (w[j] * dS)" in rounded
    s = np.array([2.0 + 2.0**-13, 0.0])
    sizes, inputs = {"N": 2}, {"K": np.array([4.0, 4.0]), "s": s, "w": np.zeros(2)}
    exact, near = (
        reference_of(each).run(Inputs(sizes, {}, inputs))["r"]
        for each in (given, with_rounded_operands(given, "float16"))
    )
    assert float(exact - near) == pytest.approx(4.0 * 2.0**-13)


def test_an_operand_that_is_too_large_may_stay_as_it_is() -> None:
    """Else what moves is no number for a kernel that does not round there."""
    given = program_of(
        """
def f(K: Float[Array, "N"], s: Float32[Array, "N"]):
    r = 0.0
    for j in range(N):
        r = r + exp(s[j]) * K[j]
    return r
"""
    )
    near = with_rounded_operands(given, "float16", overflows=False)
    inputs = Inputs({"N": 2}, {}, {"K": np.ones(2), "s": np.log([70000.0, 1 + 2.0**-11])})
    assert float(reference_of(near).run(inputs)["r"]) == pytest.approx(70001.0, rel=1e-12)
    infinite = with_rounded_operands(given, "float16")
    assert float(reference_of(infinite).run(inputs)["r"]) == np.inf


def test_an_operand_is_all_factors_that_have_its_indices() -> None:
    given = program_of(
        """
def f(V: Float[Array, "N D"], dO: Float[Array, "M D"], G: Float[Array, "M D"]):
    P = zeros((M, N))
    for i in range(M):
        for j in range(N):
            P[i, j] = sum(V[j, d] * dO[i, d] / (1.0 + exp(-G[i, d])) for d in range(D))
    return P
"""
    )
    rounded = listing(with_rounded_operands(given, "float16"))
    assert "V[j, d] * float16(dO[i, d] / (1.0 + exp(-G[i, d])))" in rounded
    given = program_of(
        """
def f(X: Float[Array, "T F"], Y: Float[Array, "T D"]):
    W = zeros((F, D))
    for t in range(T):
        for f in range(F):
            g = X[t, f] ** 3
            for d in range(D):
                W[f, d] = W[f, d] + Y[t, d] * g * g / (1.0 + exp(-g))
    return W
"""
    )
    rounded = listing(with_rounded_operands(given, "float16"))
    assert "W[f, d] + Y[t, d] * float16(g * g / (1.0 + exp(-g)))" in rounded
    given = program_of(
        """
def f(X: Float[Array, "T F"], Y: Float[Array, "T D"], w: Float[Array, "T"]):
    W = zeros((F, D))
    for t in range(T):
        for f in range(F):
            g = X[t, f] ** 3
            for d in range(D):
                W[f, d] = W[f, d] + Y[t, d] * w[t] * g
    return W
"""
    )
    rounded = listing(with_rounded_operands(given, "float16"))
    assert "W[f, d] + Y[t, d] * float16(g * w[t])" in rounded
    given = program_of(
        """
def f(X: Float[Array, "T F"], Y: Float[Array, "T D"], w: Float[Array, "F D"]):
    S = zeros((T, F))
    for t in range(T):
        for f in range(F):
            for d in range(D):
                S[t, f] = S[t, f] + exp(w[f, d]) * exp(X[t, f]) * Y[t, d]
    return S
"""
    )
    rounded = listing(with_rounded_operands(given, "float16"))
    assert "S[t, f] + float16(exp(w[f, d])) * Y[t, d] * exp(X[t, f])" in rounded


def test_sizes_are_found_whatever_kernels_ask_of_what_they_make() -> None:
    given = program_of(
        """
def f(X: Float[Array, "N"]):
    y = zeros(N)
    for i in range(N):
        y[i] = tanh(X[i])
    return y
"""
    )
    asked = replace(emitted_with_backward(given).backward, reached=(("dy", 0, (), Int(3)),))
    assert size_sets(given, asked) == size_sets(given, replace(asked, reached=()))


TOTALS = """
def totals(X: Float[Array, "T E"], W: Float[Array, "V E"], y: Int[Array, "T", "-1:V"]):
    loss = 0.0
    n = 0
    mean = zeros(V)
    for t in range(T):
        if y[t] >= 0:
            n += 1
    for t in range(T):
        if y[t] >= 0:
            logit = zeros(V)
            top = -inf
            for v in range(V):
                for e in range(E):
                    logit[v] += X[t, e] * W[v, e]
                top = max(top, logit[v])
            l = 0.0
            r = 0.0
            for v in range(V):
                l += exp(logit[v] - top)
                r += logit[v] ** 2
            loss += top + log(l) - logit[y[t]] + 0.01 * r
    loss = loss / n
    return loss
"""


def test_rows_that_add_to_one_number_are_run_side_by_side() -> None:
    """Also where each makes an array of its own, under a condition on data."""
    program, reference = prepared(TOTALS)
    text = listing(reference.reference.parallel)
    assert "for t in parallel(0, T):" in text
    assert "loss += loss_terms[t]" in text
    assert "l = l + sum(exp(logit[v] - top) for v in range(0, V))" in text
    for sizes in ({"T": 7, "V": 5, "E": 3}, {"T": 1, "V": 2, "E": 0}):
        inputs = prepare(program, sizes, seed=1)
        own = execute_on(program, inputs)
        found = execute_vectors(reference.reference.parallel, inputs)
        assert np.allclose(found["loss"], own["loss"], rtol=1e-12, equal_nan=True)
        incoming = {"loss": np.asarray(1.3)}
        vectors = gradients_of(reference.reference.parallel, inputs, incoming)
        one_by_one = gradients_of(program, inputs, incoming)
        for name in ("X", "W"):
            assert np.allclose(vectors.gradients[name], one_by_one.gradients[name], atol=1e-12)


DENSITY = """
def density(x: Float[Array, "M D"], y: Float[Array, "N D"], width: float):
    out = zeros(M)
    for i in range(M):
        t = zeros(N)
        top = -inf
        for j in range(N):
            t[j] = -sum((x[i, d] - y[j, d]) ** 2 for d in range(D)) / width
            top = max(top, t[j])
        l = 0.0
        for j in range(N):
            l += exp(t[j] - top)
        out[i] = top + log(l) - log(N) - log(width)
    return out
"""


def test_what_is_nan_has_no_differences() -> None:
    """-inf - -inf where there are no rows of y; the term beside it has a slope all the same."""
    sizes = [{"M": 3, "N": 0, "D": 2}]
    report = verify_pass(program_of(DENSITY), "backward", sizes, ("float32",))
    assert report.passed


def test_parts_that_several_totals_share_get_the_gradient_of_all() -> None:
    total, parts = np.arange(20.0).reshape(4, 5, 1), np.arange(28.0).reshape(4, 1, 7)
    found = []
    for add in (
        lambda one, other: in_order(one, other, 2, np.float64),
        lambda one, other: one + other.sum(2, keepdim=True),
    ):
        both = [torch.tensor(each, requires_grad=True) for each in (total, parts)]
        result = add(*both)
        result.backward(torch.arange(20.0, dtype=torch.float64).reshape(4, 5, 1))
        found.append([result, *(each.grad for each in both)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_what_is_lost_beside_1_has_no_differences() -> None:
    text = """
def f(x: Float[Array, "N"]):
    y = zeros(N)
    for i in range(N):
        y[i] = log(1 + exp(-x[i] * x[i] - 60.0))
    return y
"""
    report = verify_pass(program_of(text), "backward", [{"N": 5}], ("float32",))
    assert report.passed


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("lanes", [64, 1 << 17])
def test_sums_of_the_same_terms_are_equal_when_differentiated(
    backwards: bool, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is done side by side with them: each row has a largest one, and its gradient."""
    program = program_of("""
def f(X: Float[Array, "M E"], K: Float[Array, "N E"]):
    S = zeros((M, N)); y = zeros(M)
    for i in range(0, M):
        top = -inf
        for j in range(0, N):
            top = max(top, sum(X[i, e] * K[j, e] for e in range(0, E)))
        for j in range(0, N):
            if sum(X[i, e] * K[j, e] for e in range(0, E)) >= top:
                S[i, j] = sum(X[i, e] * K[j, e] for e in range(0, E))
        for j in range(0, N):
            y[i] = y[i] + S[i, j]
    return y
""")
    monkeypatch.setattr(vector_machine, "MOST_LANES", lanes)
    reference = gradient_reference_of(reference_of(program))
    inputs = prepare(program, {"M": 30, "N": 7, "E": 50})
    found = reference.run(inputs, {"y": np.ones(30)}, {}, "float32", backwards=backwards)
    assert found.gradients["X"].any(axis=1).all()


def test_a_scale_of_rows_of_no_length_is_asked_for_by_no_output(tmp_path: Path) -> None:
    """sum(…) / sqrt(E) is nan where E = 0, and then so are no elements of O."""
    text = """
def same_width(Q: Float[Array, "M E"], K: Float[Array, "N E"], b: Float[Array, "M N"]):
    O = zeros((M, E))
    for i in range(M):
        for j in range(N):
            s = sum(Q[i, e] * K[j, e] for e in range(E)) / sqrt(E) + b[i, j]
            for e in range(E):
                O[i, e] += exp(-s * s) * K[j, e]
    return O
"""
    file = tmp_path / "listing.py"
    file.write_text(text)
    sizes = ["--sizes", "M=3,N=4,E=0", "--dtype", "float32"]
    assert main(["verify", str(file), "--pass", "backward", *sizes]) == 0


DROPPED = """
def dropped(
    Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N"], keep: Bool[Array, "M N"]
):
    O = zeros(M)
    for i in range(M):
        m = -inf
        for j in range(N):
            m = max(m, sum(Q[i, e] * K[j, e] for e in range(E)) * SCALE)
        l = 0.0
        for j in range(N):
            l += exp(sum(Q[i, e] * K[j, e] for e in range(E)) * SCALE - m)
        for j in range(N):
            w = exp(sum(Q[i, e] * K[j, e] for e in range(E)) * SCALE - m) / l
            O[i] += (w if keep[i, j] else 0.0) * V[j]
    return O
"""


@pytest.mark.parametrize(
    ("scale", "undefined"),
    [("(1.0 / sqrt(E))", True), ("(1.0 / sqrt(E) if E > 0 else 1.0)", False)],
)
def test_no_number_is_asked_for_where_sizes_divide_by_zero(
    tmp_path: Path, scale: str, *, undefined: bool
) -> None:
    """A row of which nothing is kept has weights that are nan: it is 0 in the listing, 0 / nan."""
    file = tmp_path / "listing.py"
    file.write_text(DROPPED.replace("SCALE", scale))
    arguments = ["verify", str(file), "--pass", "both", "--sizes", "M=9,N=1,E=0"]
    assert main(arguments) == 0
    program = program_of(file.read_text())
    exact, found = np.zeros(3), np.array([0.0, np.nan, 1.0])
    asked = asked_for(program, {"M": 3, "N": 1, "E": 0}, exact, found)
    assert np.isnan(asked).tolist() == [False, undefined, False]
    assert not np.isnan(asked_for(program, {"M": 3, "N": 1, "E": 2}, exact, found)).any()


@pytest.mark.parametrize(
    "statement",
    ["for e in range(E): y[i] += x[i, e] / E", "y[i] = sum(x[i, e] / E for e in range(E))"],
)
def test_numbers_are_asked_for_where_no_iteration_divides_by_zero(statement: str) -> None:
    program = program_of(f"""
def f(x: Float[Array, "N E"]):
    y = zeros(N)
    for i in range(N):
        {statement}
    return y
""")
    exact, found = np.zeros(2), np.array([0.0, np.nan])
    assert not np.isnan(asked_for(program, {"N": 2, "E": 0}, exact, found)).any()


def test_a_gradient_of_0_is_no_number_where_a_factor_overflows(tmp_path: Path) -> None:
    """exp(100) is infinite in float32, and 0 times that no number; in float64 it is 0."""
    text = """
def scaled(X: Float[Array, "N"], a: Float[Array, "N"]):
    y = zeros(N)
    for i in range(N):
        y[i] = exp(a[i] * a[i] + 100.0) * max(-X[i] * X[i], 0.0)
    return y
"""
    file = tmp_path / "listing.py"
    file.write_text(text)
    sizes = ["--sizes", "N=5", "--dtype", "float32"]
    assert main(["verify", str(file), "--pass", "backward", *sizes]) == 0


def test_a_gradient_of_0_is_no_number_where_autograd_overflows_elsewhere() -> None:
    """In a recurrence that grows both do, and where first hangs on the order of products."""
    found, exact = [np.nan, 1.0, 2.0], [0.0, 1.0, 2.0]
    assert error_of(found, exact, [0.0, np.inf, 2.0], absolute=[0.0, 1.0, 2.0]).passed
    assert not error_of(found, exact, [0.0, 1.0, 2.0], absolute=[0.0, 1.0, 2.0]).passed
    apart = [3.0, 1.0, 2.0]
    assert not error_of(apart, exact, [0.0, np.inf, 2.0], absolute=[0.0, 1.0, 2.0]).passed


@pytest.mark.parametrize(
    "text",
    [
        """
def contrast(A: Float[Array, "N D"], B: Float[Array, "N D"], tau: float):
    S = zeros((N, N))
    loss = 0.0
    for i in range(N):
        for j in range(N):
            S[i, j] = sum(A[i, d] * B[j, d] for d in range(D)) * exp(tau)
    for i in range(N):
        m = max(S[i, j] for j in range(N))
        l = sum(exp(S[i, j] - m) for j in range(N))
        loss += m + log(l) - S[i, i]
    return loss
""",
        """
def smoothed(X: Float[Array, "T D"], W: Float[Array, "N D"], y: Int[Array, "T", "0:N"], eps: float):
    loss = 0.0
    for t in range(T):
        total = 0.0
        for v in range(N):
            total += sum(X[t, d] * W[v, d] for d in range(D))
        one = sum(X[t, d] * W[y[t], d] for d in range(D))
        loss += eps * (total - one) + one
    return loss
""",
    ],
    ids=["output", "gradient"],
)
def test_a_difference_of_equal_numbers_is_0_but_for_roundings(text: str, tmp_path: Path) -> None:
    file = tmp_path / "listing.py"
    file.write_text(text)
    sizes = "N=1,D=33,T=3" if "T D" in text else "N=1,D=33"
    assert main(["verify", str(file), "--pass", "both", "--sizes", sizes]) == 0
