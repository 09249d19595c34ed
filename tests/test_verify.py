"""`verify`: right launchers pass, and every kind of wrong one is caught.

The launchers are functions on torch tensors, as an emitted module has them, without any kernel.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from looptrans.cli.main import main
from looptrans.emit.listing import emitted
from looptrans.executor.errors import InputMismatch
from looptrans.executor.inputs import Inputs, prepare
from looptrans.frontend import parse
from looptrans.ir.program import Program
from looptrans.ir.source import Source
from looptrans.reports.verify import verification_json, verification_text
from looptrans.runtime.executed.empty_rows import with_empty_rows
from looptrans.runtime.executed.reference import Reference, reference_of
from looptrans.runtime.verifying.errors import compared
from looptrans.runtime.verifying.nearby import neighbours, run_nearby
from looptrans.runtime.verifying.search import MOST_TOGETHER
from looptrans.runtime.verifying.sizes import SizeSet, size_sets
from looptrans.runtime.verifying.verification import OutputError, Report, Run
from looptrans.runtime.verifying.work import default_blocks, work

torch = pytest.importorskip("torch")
os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

from looptrans.runtime.verifying import verify as verifying  # noqa: E402  # it needs torch
from looptrans.runtime.verifying.memory import Guarded, guarded  # noqa: E402
from looptrans.runtime.verifying.verify import CannotVerify, Launcher, verify, verify_launcher  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
MATMUL = """
def product(A: Float[Array, "M K"], B: Float[Array, "K N"]):
    C = zeros((M, N))
    for i in range(M):
        for j in range(N):
            for k in range(K):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]
    return C
"""
SOFTMAX = """
def rows(X: Float[Array, "M N"], y: Int[Array, "M", "0:N"], count: Int[Array, "M"]):
    Y = zeros((M, N)); lse = zeros(M, float32); big = zeros(M, bool)
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(N):
            m = max(m, X[i, j])
        for j in range(N):
            l = l + exp(X[i, j] - m)
        for j in range(N):
            Y[i, j] = exp(X[i, j] - m) / l
        lse[i] = m + log(l)
        big[i] = X[i, y[i]] > 0.0
        count[i] = count[i] + y[i]
    return Y, lse, big
"""
SETS = (
    SizeSet("small", {"M": 3, "K": 5, "N": 7}),
    SizeSet("zero", {"M": 3, "K": 0, "N": 7}),
    SizeSet("zero", {"M": 0, "K": 5, "N": 7}),
)


CONVOLUTION = """
def conv(x: Float[Array, "B C H W"], w: Float[Array, "F C R S"]):
    y = zeros((B, F, H - R + 1, W - S + 1))
    for b in range(B):
        for f in range(F):
            for i in range(H - R + 1):
                for j in range(W - S + 1):
                    for c in range(C):
                        for r in range(R):
                            for s in range(S):
                                y[b, f, i, j] += x[b, c, i + r, j + s] * w[f, c, r, s]
    return y
"""
BATCH_NORM = """
def batch_norm(X: Float[Array, "N C H W"], eps: float):
    Y = zeros((N, C, H, W))
    for c in range(C):
        s = 0.0
        for n in range(N):
            for i in range(H):
                for j in range(W):
                    s += X[n, c, i, j]
        v = 0.0
        for n in range(N):
            for i in range(H):
                for j in range(W):
                    v += (X[n, c, i, j] - s / (N * H * W)) ** 2
        for n in range(N):
            for i in range(H):
                for j in range(W):
                    Y[n, c, i, j] = (X[n, c, i, j] - s / (N * H * W)) / sqrt(v / (N * H * W) + eps)
    return Y
"""


def program_of(text: str) -> Program:
    return parse(Source("listing.py", text))


@functools.cache
def reference_to(text: str) -> Reference:
    return reference_of(program_of(text))


def product(A: Any, B: Any, *, out: Any = None, tune: bool = True) -> Any:
    assert not tune
    out.copy_((A.to(torch.float32) @ B.to(torch.float32)).to(out.dtype))
    return out


def report_of(
    run: Callable[..., Any],
    dtypes: tuple[str, ...] = ("float32", "float16"),
    device: str = "cpu",
) -> Report:
    launcher = Launcher(run, ("A", "B"), ("C",))
    return verify_launcher(reference_to(MATMUL), launcher, SETS, dtypes, device)


def test_a_right_launcher_passes() -> None:
    report = report_of(product)
    assert report.passed
    assert len(report.runs) == 2 * 3 + 2 + 2
    assert {(run.dtype, run.inputs) for run in report.runs} == {
        (dtype, kind) for dtype in ("float32", "float16") for kind in ("normal", "x10", "rising")
    }
    assert any(run.layout == "odd" for run in report.runs)
    (output,) = report.outputs
    assert output.name == "C"
    assert 0 < output.error <= output.tolerance


def test_bfloat16_is_compared_with_one_rounding() -> None:
    report = report_of(product, ("bfloat16",))
    assert report.passed
    assert 2.0**-10 < report.outputs[0].error < 2.0**-8


def unwritten_tail(A: Any, B: Any, *, out: Any = None, tune: bool = True) -> Any:
    if len(out):
        product(A[:-1], B, out=out[:-1], tune=tune)
    return out


def outside(A: Any, B: Any, *, out: Any = None, tune: bool = True) -> Any:
    product(A, B, out=out, tune=tune)
    torch.as_strided(out, (1,), (1,), out.storage_offset() - 1).fill_(1.0)
    return out


def between(A: Any, B: Any, *, out: Any = None, tune: bool = True) -> Any:
    """Treats the output as if its rows were next to each other."""
    if out.numel():
        torch.as_strided(out, (out.numel(),), (1,)).fill_(0.0)
    return product(A, B, out=out, tune=tune)


def changing(A: Any, B: Any, *, out: Any = None, tune: bool = True) -> Any:
    product(A, B, out=out, tune=tune)
    A.mul_(2.0)
    return out


def wrong(A: Any, B: Any, *, out: Any = None, tune: bool = True) -> Any:
    product(A, B, out=out, tune=tune)
    return out.mul_(1 + 1e-5 if out.dtype == torch.float32 else 1.01)


def infinite(A: Any, B: Any, *, out: Any = None, tune: bool = True) -> Any:
    product(A, B, out=out, tune=tune)
    if out.numel():
        out[0, 0] = float("inf")
    return out


def not_zero(A: Any, B: Any, *, out: Any = None, tune: bool = True) -> Any:
    product(A, B, out=out, tune=tune)
    return out.add_(1e-30) if A.shape[1] == 0 else out


def another(A: Any, B: Any, *, out: Any = None, tune: bool = True) -> Any:
    return product(A, B, out=out, tune=tune).clone()


def failing(A: Any, B: Any, *, out: Any = None, tune: bool = True) -> Any:
    raise ValueError("A should have\n  2 dimensions")


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (unwritten_tail, "finite elements are nan"),
        (outside, "1 elements outside the output C are written"),
        (between, "elements outside the output C are written"),
        (changing, "the input A is changed"),
        (infinite, "finite elements are nan or infinite"),
        (not_zero, "0 is met exactly"),
        (another, "what is returned as C is not the tensor"),
        (failing, "ValueError: A should have 2 dimensions"),
    ],
)
def test_a_wrong_launcher_is_caught(run: Callable[..., Any], message: str) -> None:
    report = report_of(run)
    assert not report.passed
    text = verification_text(report)
    assert message in text
    assert "failed" in text


def test_a_wrong_factor_is_caught_in_every_type() -> None:
    report = report_of(wrong)
    failed = [run for run in report.runs if not run.passed]
    assert {run.dtype for run in failed} == {"float32", "float16"}
    # Nothing is wrong where there is nothing but zeros.
    assert all(run.sizes["K"] and run.sizes["M"] for run in failed)
    assert not report.outputs[0].passed


def rows(X: Any, y: Any, count: Any, *, out: Any = None) -> Any:
    values, sums, large = out
    wide = X.to(torch.float32)
    values.copy_(torch.softmax(wide, 1))
    sums.copy_(torch.logsumexp(wide, 1))
    large.copy_(torch.gather(X, 1, y.to(torch.int64)[:, None])[:, 0] > 0)
    count.add_(y)
    return out


def truncated(X: Any, y: Any, count: Any, *, out: Any = None) -> Any:
    rows(X, y, count, out=out)
    count[-1:] -= 1
    return out


def rows_report(run: Callable[..., Any]) -> Report:
    launcher = Launcher(run, ("X", "y", "count"), ("Y", "lse", "big"))
    sets = [SizeSet("given", {"M": 4, "N": 9})]
    return verify_launcher(reference_to(SOFTMAX), launcher, sets, ("float32", "float16"), "cpu")


def test_several_outputs_and_arguments_written_in_place() -> None:
    report = rows_report(rows)
    assert report.passed
    assert [output.name for output in report.outputs] == ["Y", "lse", "big", "count"]
    # The log-sum-exp is float32 whatever the inputs are.
    tolerances = {o.tolerance for r in report.runs for o in r.outputs if o.name == "lse"}
    assert tolerances == {2e-6}


def test_integers_are_met_exactly() -> None:
    report = rows_report(truncated)
    assert not report.passed
    assert [o.name for o in report.outputs if not o.passed] == ["count"]


def test_sizes_that_do_not_fit_are_the_users_mistake() -> None:
    launcher = Launcher(product, ("A", "B"), ("C",))
    with pytest.raises(InputMismatch):
        verify_launcher(
            reference_to(MATMUL), launcher, [SizeSet("given", {"Z": 3})], ("float32",), "cpu"
        )


# Errors and tolerances


def error_of(
    found: Any, exact: Any, plain: Any = None, dtype: str = "float32", empty: Any = None
) -> OutputError:
    def plainly(backwards: bool) -> Any:
        return np.asarray(exact if plain is None else plain, dtype=np.float64)

    return compared(
        "O",
        np.asarray(found, dtype=np.float64),
        np.asarray(exact, dtype=np.float64),
        plainly,
        dtype,
        always_plain=dtype != "float32",
        empty=empty,
    )


def test_the_error_is_relative_to_the_whole_output() -> None:
    output = error_of([3.0, 4.0, 1e-6], [3.0, 4.0, 0.0])
    assert output.error == pytest.approx(2e-7)
    assert output.passed


def test_twice_the_plain_error_is_allowed_and_not_more() -> None:
    assert error_of([1.0, 1e-5], [1.0, 0.0], [1.0, 6e-6]).passed
    assert not error_of([1.0, 1.3e-5], [1.0, 0.0], [1.0, 6e-6]).passed
    assert error_of([1.0, 1e-3], [1.0, 0.0], [1.0, 6e-4], "float16").passed
    assert not error_of([1.0, 1.3e-3], [1.0, 0.0], [1.0, 6e-4], "float16").passed


def test_a_zero_result_is_met_exactly() -> None:
    assert error_of([0.0, -0.0], [0.0, 0.0]).passed
    assert not error_of([0.0, 1e-40], [0.0, 0.0], [1.0, 1.0]).passed


def test_infinities_stand_where_they_should() -> None:
    inf, nan = np.inf, np.nan
    assert error_of([inf, 1.0], [inf, 1.0]).passed
    assert not error_of([-inf, 1.0], [inf, 1.0]).passed
    assert not error_of([inf, inf], [inf, 1.0]).passed
    assert not error_of([1e30, 1.0], [inf, 1.0], [1e30, 1.0]).passed
    # A plain computation that is worse still is no excuse.
    assert not error_of([1.0, nan], [1.0, 2.0], [1.0, 9.0]).passed


def test_nothing_is_asked_where_the_listing_is_nan_or_does_not_fit() -> None:
    output = error_of([5.0, 1.0], [np.nan, 1.0])
    assert (output.passed, output.skipped) == (True, 1)
    output = error_of([np.inf, 1.0], [7e4, 1.0], [np.inf, 1.0], "float16")
    assert (output.passed, output.skipped) == (True, 1)
    # exp(400) - exp(800) is infinite in float64, and the difference of two infinities in float32.
    output = error_of([np.nan, 1.0], [-np.inf, 1.0], [np.nan, 1.0])
    assert (output.passed, output.skipped) == (True, 1)
    # exp(100) fits into float64 only, and the plain computation shows it.
    output = error_of([np.nan, 1.0], [1.0, 1.0], [np.nan, 1.0])
    assert (output.passed, output.skipped) == (True, 1)


def test_rows_without_iterations_are_met_exactly() -> None:
    empty = np.array([True, False])
    assert error_of([0.0, 1.0], [0.0, 1.0], [np.nan, 1.0], empty=empty).passed
    assert not error_of([1e-9, 1.0], [0.0, 1.0], [np.nan, 1.0], empty=empty).passed


# Rows that are masked throughout

MASKED = """
def masked(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((M, D)); lse = zeros(M)
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(N):
            m = max(m, sum(Q[i, e] * K[j, e] for e in range(E)) if j < i - 1 else -inf)
        for j in range(N):
            s = sum(Q[i, e] * K[j, e] for e in range(E)) if j < i - 1 else -inf
            l = l + exp(s - m)
        for j in range(N):
            t = sum(Q[i, e] * K[j, e] for e in range(E)) if j < i - 1 else -inf
            for d in range(D):
                O[i, d] = O[i, d] + exp(t - m) / l * V[j, d]
        lse[i] = m + log(l)
    return O, lse
"""


def test_a_row_masked_throughout_is_what_no_iterations_give() -> None:
    reference = reference_of(program_of(MASKED))
    inputs = prepare(reference.program, {"M": 4, "N": 3, "E": 2, "D": 2})
    own = reference.run(inputs)
    assert np.isnan(own["O"][:2]).all()
    found, places = with_empty_rows(reference, inputs, own)
    assert (found["O"][:2] == 0).all()
    assert (found["lse"][:2] == -np.inf).all()
    assert places["lse"].tolist() == [True, True, False, False]
    assert np.array_equal(found["O"][2:], own["O"][2:])


BEGUN = """
def begun(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(N):
            s = sum(Q[i, e] * K[j, e] for e in range(E)) if i < 3 and j >= i else -inf
            top = max(m, s)
            l = l * exp(m - top) + exp(s - top)
            for d in range(D):
                O[i, d] = O[i, d] * exp(m - top) + exp(s - top) * V[j, d]
            m = top
        for d in range(D):
            O[i, d] = O[i, d] / l
    return O
"""


def test_a_row_that_begins_masked_is_its_softmax() -> None:
    """Its first maximum is -inf, and exp(-inf - -inf) is nan."""
    reference = reference_of(program_of(BEGUN))
    inputs = prepare(reference.program, {"M": 4, "N": 5, "E": 2, "D": 2})
    own = reference.run(inputs)
    assert np.isnan(own["O"][1:]).all()
    found, places = with_empty_rows(reference, inputs, own)
    scores = inputs.arrays["Q"] @ inputs.arrays["K"].T
    for i in range(3):
        weights = np.exp(scores[i, i:])
        expected = weights @ inputs.arrays["V"][i:] / weights.sum()
        assert np.allclose(found["O"][i], expected, rtol=1e-12)
    assert np.isnan(found["O"][3]).all()  # the mean of nothing, for which no iterations give a nan
    assert not any(each.any() for each in places.values())


def test_kernels_give_the_softmax_of_rows_that_begin_masked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "begun.py"
    file.write_text(BEGUN)
    assert main(["verify", str(file), "--pass", "both", "--sizes", "M=5,N=7,E=3,D=2"]) == 0
    assert "all right" in capsys.readouterr().out


def test_a_nan_that_no_mask_causes_stays() -> None:
    reference = reference_of(
        program_of("""
def f(x: Float[Array, "M"], A: Float[Array, "M N"]):
    y = zeros(M)
    for i in range(M):
        s = 0.0
        for j in range(N):
            s = s + exp(A[i, j] if j > 0 else -inf)
        y[i] = s + (x[i] - x[i]) / (x[i] - x[i])
    return y
""")
    )
    inputs = prepare(reference.program)
    own = reference.run(inputs)
    found, places = with_empty_rows(reference, inputs, own)
    assert np.isnan(found["y"]).all()
    assert not any(each.any() for each in places.values())


# Sizes


def sizes_of(text: str) -> dict[str, list[Mapping[str, float]]]:
    found: dict[str, list[Mapping[str, float]]] = {}
    for each in size_sets(program_of(text)):
        found.setdefault(each.kind, []).append(each.sizes)
    return found


def test_sizes_are_small_one_and_zero_in_turn() -> None:
    found = sizes_of(MATMUL)
    (small,) = found["small"]
    assert len(set(small.values())) == 3
    assert all(value % 2 for value in small.values())
    assert found["one"] == [{"M": 1, "K": 1, "N": 1}]
    assert [[n for n, v in each.items() if v == 0] for each in found["zero"]] == [
        ["M"],
        ["K"],
        ["N"],
    ]


@pytest.mark.parametrize("joined", ["\n    assert ", " and "])
def test_sizes_satisfy_contracts_and_divide(joined: str) -> None:
    found = sizes_of(f"""
def f(Q: Float[Array, "H M"], K: Float[Array, "G M"], R):
    assert H == G * R{joined}M >= 2{joined}M % 3 == 0
    O = zeros((H, M))
    for h in range(H):
        for i in range(M):
            O[h, i] = Q[h, i] + K[h // R, i]
    return O
""")
    every = [each for sets in found.values() for each in sets]
    assert every
    assert all(each["H"] == each["G"] * each["R"] and each["M"] >= 2 for each in every)
    assert all(each["M"] % 3 == 0 for each in every)
    assert found["small"][0]["R"] > 1
    assert found["small"][0]["G"] > 1


def test_a_size_that_is_a_sum_of_others_is_as_large_as_they_say() -> None:
    """Those a convolution is made of fill blocks, and its input is as long as they ask."""
    program = program_of("""
def f(x: Float[Array, "C L"], w: Float[Array, "O C K"]):
    assert L == 2 * T + 3 * K
    y = zeros((O, T))
    for o in range(O):
        for t in range(T):
            for c in range(C):
                for k in range(K):
                    y[o, t] += w[o, c, k] * x[c, 2 * t + 3 * k]
    return y
""")
    found = size_sets(program, emitted(program).blocks)
    assert all(s.sizes["L"] == 2 * s.sizes["T"] + 3 * s.sizes["K"] for s in found)
    assert {each.kind for each in found} == {"small", "crossing", "whole", "one", "zero"}
    assert all(s.sizes["T"] > 64 and s.sizes["O"] > 64 for s in found if s.kind == "crossing")


def test_a_size_is_a_multiple_of_what_divides_it() -> None:
    found = sizes_of("""
def f(x: Float[Array, "N D"]):
    assert N % 64 == 0
    y = zeros((N // 64, D))
    for c in range(N // 64):
        for t in range(64):
            for d in range(D):
                y[c, d] += x[64 * c + t, d]
    return y
""")
    assert found["small"][0]["N"] == found["one"][0]["N"] == 64
    assert {each["N"] for each in found["zero"]} == {0, 64}


def test_what_adds_up_to_a_loop_fills_its_blocks() -> None:
    program = program_of("""
def f(x: Float[Array, "N D"], y: Float[Array, "M D"], before: int):
    assert N == before + M
    z = zeros((M, D))
    for i in range(M):
        for j in range(N):
            if j <= before + i:
                for d in range(D):
                    z[i, d] += exp(-y[i, 0] * x[j, 0]) * x[j, d]
    return z
""")
    found = size_sets(program, emitted(program).blocks)
    (crossing,) = (each.sizes for each in found if each.kind == "crossing")
    assert crossing["M"] > 64
    assert crossing["before"] > 64
    assert crossing["N"] == crossing["before"] + crossing["M"]


def test_scores_that_two_kernels_work_out_may_be_rounded_twice() -> None:
    """They are large here, and each kernel multiplies from another side."""
    program = program_of("""
def f(q: Float[Array, "S E"], k: Float[Array, "N E"], v: Float[Array, "N D"]):
    s = zeros((S, N)); m = full(N, -inf); l = zeros(N); o = zeros((S, D)); r = zeros(S)
    for j in range(N):
        for i in range(S):
            s[i, j] = sum(q[i, e] * k[j, e] for e in range(E))
            m[j] = max(m[j], s[i, j])
        for i in range(S):
            l[j] += exp(s[i, j] - m[j])
    for i in range(S):
        for j in range(N):
            r[i] += exp(s[i, j] - m[j]) / l[j]
        for j in range(N):
            for d in range(D):
                o[i, d] += exp(s[i, j] - m[j]) / l[j] / (r[i] + 0.00001) * v[j, d]
    return o
""")
    sizes = [{"S": 128, "E": 64, "N": 64, "D": 16}]
    assert verify(program, sizes, dtypes=["float32"]).passed


def test_sizes_that_show_little_are_reported() -> None:
    program = program_of("""
def f(x: Float[Array, "N"]):
    assert N <= 1
    y = zeros(N)
    for i in range(N):
        y[i] = 2.0 * x[i]
    return y
""")
    said = verify(program, dtypes=["float32"]).notes
    assert any("No sizes were found" in each for each in said)


def test_a_size_that_others_are_found_by_is_never_zero() -> None:
    """C is the extent G * C over G, of which nothing is known where G is 0."""
    text = """
def f(X: Float[Array, "G*C N"]):
    Y = zeros((G * C, N))
    for g in range(G):
        for c in range(C):
            for n in range(N):
                Y[g * C + c, n] = X[g * C + c, n] * 2.0
    return Y
"""
    sets = size_sets(program_of(text), emitted(program_of(text)).blocks)
    zeros = [{n for n, v in each.sizes.items() if v == 0} for each in sets if each.kind == "zero"]
    assert {"N"} in zeros
    assert {"C"} in zeros
    assert {"G"} not in zeros


def test_a_size_that_something_is_divided_by_is_never_zero() -> None:
    """A launcher refuses it, whether or not a loop over G runs."""
    text = """
def f(X: Float[Array, "C N"], G: int):
    Y = zeros((C, N))
    for g in range(G):
        for c in range(C // G):
            for n in range(N):
                Y[g * (C // G) + c, n] = X[g * (C // G) + c, n] * 2.0
    return Y
"""
    sets = size_sets(program_of(text), emitted(program_of(text)).blocks)
    assert all(each.sizes["G"] >= 1 for each in sets)
    assert any(each.sizes["C"] == 0 for each in sets)


def test_no_loop_is_empty_where_blocks_are_filled() -> None:
    """`H - R + 1` rows of an image are none where the window is higher than the image."""
    program = program_of(CONVOLUTION)
    blocks = emitted(program).blocks
    found = size_sets(program, blocks)
    for each in found:
        if each.kind in ("small", "crossing", "whole"):
            for length, window in (("H", "R"), ("W", "S")):
                assert each.sizes[length] - each.sizes[window] >= 1, each
    crossing = [each.sizes for each in found if each.kind == "crossing"]
    lengths = [each["W"] - each["S"] + 1 for each in crossing]
    assert any(length > 64 and length % 64 for length in lengths)


def test_sizes_take_no_minutes() -> None:
    """Loops that go one iteration at a time count, and still each block is crossed in one set."""
    program = program_of(BATCH_NORM)
    blocks = emitted(program).blocks
    (kernel,) = blocks.kernels
    by_default = default_blocks(kernel)
    found = size_sets(program, blocks)
    assert work((blocks,), {"N": 150, "C": 203, "H": 137, "W": 170}) > 100 * MOST_TOGETHER
    sizes = [{name: int(size) for name, size in each.sizes.items()} for each in found]
    assert all(work((blocks,), each) <= MOST_TOGETHER for each in sizes)
    crossing = [each.sizes for each in found if each.kind == "crossing"]
    for name, block in (("N", "BLOCK_N"), ("C", "BLOCK_C"), ("H", "BLOCK_I"), ("W", "BLOCK_J")):
        size = by_default[block]
        assert any(each[name] > size and each[name] % size for each in crossing), name


def test_blocks_that_are_longer_than_usual_sizes_are_crossed() -> None:
    program = program_of((ROOT / "specs" / "layernorm.py").read_text())
    blocks = emitted(program).blocks
    longest = max(default_blocks(blocks.kernels[0]).values())
    assert longest > 203
    assert any(each.sizes["N"] > longest for each in size_sets(program, blocks))


# Memory, types, reports


@pytest.mark.parametrize("layout", ["contiguous", "padded", "transposed", "strided"])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 1, 4), (0, 3)])
def test_a_guarded_tensor_notices_what_is_not_its_own(layout: Any, shape: tuple[int, ...]) -> None:
    values = torch.arange(int(np.prod(shape)), dtype=torch.float16).reshape(shape)
    made = guarded(shape, torch.float16, "cpu", layout, values)
    assert torch.equal(made.tensor, values)
    # Triton compiles pipelined loads for pointers that are aligned, and both should be tried.
    aligned = made.tensor.data_ptr() % 16 == 0
    assert aligned == (layout == "contiguous") or not values.numel()
    assert made.changed() == made.changed_outside() == 0
    made.tensor.add_(1.0)
    assert (made.changed(), made.changed_outside()) == (values.numel(), 0)
    made.buffer[0] = 0.0
    made.buffer[-1] = float("nan")
    assert made.changed_outside() == 2


def test_a_gpu_that_is_lost_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")

    monkeypatch.setattr(Guarded, "changed", lost)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    message = "at M=3, K=5, N=7, and the GPU can do no more in this process: CUDA error: an .* enc"
    with pytest.raises(CannotVerify, match=message):
        report_of(product, device="cpu:0")  # it stands for a GPU


def test_bfloat16_is_refused_in_the_interpreter() -> None:
    if torch.cuda.is_available():
        pytest.skip("kernels run on the GPU")
    with pytest.raises(CannotVerify, match="needs a GPU"):
        verify(program_of(MATMUL), dtypes=["bfloat16"])


IN_BFLOAT16 = """
def f(x: Float[Array, "N"]):
    q = zeros(N, dtype=bfloat16)
    y = zeros(N)
    for i in range(N):
        q[i] = 2.0 * x[i]
    for i in range(N):
        y[i] = q[N - 1 - i]
    return y
"""


def test_so_is_what_a_listing_stores_in_it() -> None:
    if torch.cuda.is_available():
        pytest.skip("kernels run on the GPU")
    with pytest.raises(CannotVerify, match=r"q is created in bfloat16.*or dtype=float16"):
        verify(program_of(IN_BFLOAT16))
    said = "q is torch.bfloat16, which Triton's interpreter gets wrong"
    assert said in emitted(program_of(IN_BFLOAT16)).text


def test_the_report_is_the_same_twice() -> None:
    one, other = report_of(product), report_of(product)
    assert verification_text(one) == verification_text(other)
    assert verification_json(one) == verification_json(other)


def test_the_document() -> None:
    sizes = {"M": 2}
    bad = OutputError("O", np.inf, 2e-6, problem="1 of 1 infinities are not there")
    runs = (
        Run(sizes, "float32", "normal", "contiguous", (OutputError("O", 1e-7, 2e-6),)),
        Run(sizes, "float32", "x10", "odd", (bad,), ("the input A is changed",)),
    )
    document = json.loads(verification_json(Report("f", "interpreter", 3, runs, ("A note.",))))
    assert document["schema"] == "looptrans.verify/1"
    assert (document["passed"], document["pass"], document["seed"]) == (False, "forward", 3)
    assert document["outputs"] == [
        {
            "name": "O",
            "error": "inf",
            "tolerance": 2e-6,
            "norm": "relative Frobenius",
            "passed": False,
            "not_compared": 0,
            "problem": "1 of 1 infinities are not there",
        }
    ]
    assert [run["passed"] for run in document["runs"]] == [True, False]
    assert document["runs"][1]["problems"] == ["the input A is changed"]


def test_the_table() -> None:
    runs = (
        Run({"M": 2, "N": 11}, "float32", "normal", "contiguous", (OutputError("O", 1e-7, 2e-6),)),
        Run({"M": 2, "N": 11}, "float32", "x10", "odd", (OutputError("O", 1e-3, 2e-6),)),
    )
    assert (
        verification_text(Report("f", "interpreter", 0, runs, ("A note.",)))
        == """\
f: forward, interpreter, seed 0

sizes     dtype    inputs            output  error    tolerance  ok
M=2 N=11  float32  normal            O       1.0e-07  2.0e-06    yes
          float32  x10, odd strides  O       1.0e-03  2.0e-06    NO

A note.

1 of 2 runs failed
"""
    )


def test_a_report_without_runs_has_not_passed() -> None:
    assert not Report("f", "interpreter", 0, ()).passed
    assert verifying.DTYPES == ("float32", "float16", "bfloat16")


def test_what_inputs_off_by_a_rounding_move_is_allowed() -> None:
    found, exact = np.array([1.0, 9e-6]), np.array([1.0, 0.0])
    asked = []

    def nearby(number: int) -> Any:
        asked.append(number)
        return np.array([1.0, [1e-6, 5e-6, 2e-6][number]])

    output = compared(
        "O", found, exact, lambda _: exact, "float32", always_plain=False, nearby=nearby
    )
    assert output.passed
    assert output.tolerance == pytest.approx(1e-5)
    assert asked == [0, 1, 2]


def test_neighbours_are_off_by_a_rounding_at_most() -> None:
    values = np.array([1.0, -3.0, 0.0, np.inf, 1e-3] * 8, dtype=np.float32).astype(np.float64)
    given = Inputs({"N": 40}, {"scale": 1.0}, {"X": values, "at": np.arange(3)})
    near = neighbours(given, 1)
    own = near.arrays["X"]
    assert np.array_equal(own[2::5], values[2::5]) and np.array_equal(own[3::5], values[3::5])
    finite = np.isfinite(values)
    np.testing.assert_allclose(own[finite], values[finite], rtol=2.0**-23, atol=0)
    assert (own != values).any() and np.array_equal(near.arrays["at"], given.arrays["at"])
    assert np.array_equal(neighbours(given, 1).arrays["X"], own)


# exp of a difference that is 0 where both scores are rounded alike.
CHOSEN = """
def chosen(X: Float[Array, "N D"], W: Float[Array, "E D"], top: Int[Array, "N", "0:E"]):
    g = zeros(N)
    for n in range(N):
        m = max(sum(X[n, d] * W[e, d] for d in range(D)) for e in range(E))
        g[n] = exp(sum(X[n, d] * W[top[n], d] for d in range(D)) - m)
    return g
"""


def test_operations_are_off_by_a_rounding_at_most_and_each_by_its_own() -> None:
    reference = reference_to(CHOSEN)
    random = np.random.default_rng(0)
    arrays = {"X": random.standard_normal((30, 200)), "W": random.standard_normal((1, 200))}
    inputs = Inputs({"N": 30, "D": 200, "E": 1}, {}, arrays | {"top": np.zeros(30, dtype=np.int64)})
    assert (reference.run(inputs, "float32")["g"] == 1).all()
    near = run_nearby(reference, inputs, 1)["g"]
    assert (near != 1).any() and np.array_equal(near, run_nearby(reference, inputs, 1)["g"])
    np.testing.assert_allclose(near, 1, rtol=1e-4, atol=0)


def test_what_operations_round_is_no_error_of_a_kernel() -> None:
    found = verify(program_of(CHOSEN), dtypes=("float32",), sizes=[{"N": 40, "D": 256, "E": 9}])
    assert found.passed


# What is equal is so for everybody who works out both sides alike, however that is rounded.
EQUAL = """
def equal(X: Float[Array, "N M"]):
    o = zeros(N); most = full(N, -inf); some = full(N, -inf)
    for i in range(N):
        for j in range(M):
            most[i] = max(most[i], X[i, j] * 0.3)
            if X[i, j] * 2.0 > 4.0:
                some[i] = max(some[i], X[i, j])
        for j in range(M):
            if j * 0.1 <= i * 0.1:
                o[i] = o[i] + 1.0
            if X[i, j] * 0.3 >= most[i]:
                o[i] = o[i] + 0.5
        if some[i] > -inf:
            o[i] = o[i] + 1.0
    return o
"""


def test_roundings_do_not_tell_apart_what_is_equal() -> None:
    reference = reference_to(EQUAL)
    values = np.random.default_rng(0).standard_normal((60, 60))
    inputs = Inputs({"N": 60, "M": 60}, {}, {"X": values})
    exact = reference.run(inputs)["o"]
    for number in range(3):
        near = run_nearby(reference, inputs, number)["o"]
        assert (near != exact).any()
        np.testing.assert_allclose(near, exact, rtol=1e-5)


def test_what_terms_below_the_smallest_number_make_is_not_compared() -> None:
    output = error_of([5e-36, 0.0, 1.0], [5.5e-36, 4e-38, 1.0])
    assert (output.passed, output.skipped) == (True, 0)  # nothing beside what is large
    output = error_of([5e-36, 0.0], [5.5e-36, 4e-38])
    assert (output.passed, output.skipped) == (True, 2)
    assert not error_of([5e-26, 0.0], [5.5e-26, 4e-38]).passed
    assert not error_of([-3e-31, 0.0], [3e-31, 1e-32]).passed  # more than what is lost


def test_a_rounding_that_changes_everything_is_none() -> None:
    exact = np.ones(4)

    def nearby(number: int) -> Any:
        return exact + (1.0, 0.0, 2e-6)[number]

    output = compared(
        "O", exact + 3e-6, exact, lambda _: exact, "float32", always_plain=False, nearby=nearby
    )
    assert output.tolerance == pytest.approx(4e-6)
