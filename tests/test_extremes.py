"""Maxima and minima of what is worked out: which iteration attains them, and their gradients."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from looptrans.adjoint.backward import backward
from looptrans.algebra.appending.append import appends
from looptrans.blocks.block_ir.ops import ElementLoop, ops_in
from looptrans.derivation.backward import derive_backward
from looptrans.derivation.saved import recheck, saved
from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.listing import emitted
from looptrans.emit.parameters import launcher_parameters
from looptrans.emit.refusal import Refused
from looptrans.executor import execute
from looptrans.reports.verify import verification_text
from looptrans.runtime.running.device import prepare_device
from looptrans.runtime.running.load import load_module
from looptrans.runtime.verifying.backward import (
    gradient_launcher,
    verify_backward,
    verify_gradients,
)
from looptrans.runtime.verifying.sizes import SizeSet
from looptrans.runtime.verifying.verify import verify
from tests.analysis import program
from tests.test_adjoint_listings import check

prepare_device()  # parts of torch import triton too, and then it would not interpret
pytest.importorskip("triton")

# What is offered has few different values, so that several iterations attain the extremum.
PICK = """
def pick(X: Float[Array, "M N"], Y: Float[Array, "N"], ok: Bool[Array, "M N"]):
    top = zeros(M)
    at = zeros(M, dtype=int)
    of = zeros(M)
    for i in range(0, M):
        best = {first}
        k = -1
        v = 0.5
        for j in range({start}, {stop}):
            {body}
        top[i] = best
        at[i] = k
        of[i] = v
    return top, at, of
"""
BODIES = {
    "guarded": ["if X[i, j] {op} best:", "    best = X[i, j]", "    k = j", "    v = Y[j]"],
    "masked": ["if {old} and ok[i, j]:", "    k = N - 1 - j", "    v = Y[j]", "    best = X[i, j]"],
    "chosen": [
        "s = X[i, j] * 0.5",
        "v = v if not s {op} best else Y[j] * s",
        "k = 2 * j if s {op} best else k",
        "best = {word}(best, s)",
    ],
    "hidden": [
        "s = X[i, j] if ok[i, j] else {least}",
        "new = {word}(s, best)",
        "k = j if s {op} best else k",
        "v = Y[j] if {old_of_s} else v",
        "best = new",
    ],
}
TURNED = {">": "<", "<": ">", ">=": "<=", "<=": ">="}


def a_pick(body: str, op: str, first: str = "", start: str = "0", stop: str = "N") -> str:
    word, least = ("max", "-inf") if op[0] == ">" else ("min", "inf")
    lines = "\n            ".join(BODIES[body])
    filled = lines.format(
        op=op,
        word=word,
        least=least,
        old=f"best {TURNED[op]} X[i, j]",
        old_of_s=f"best {TURNED[op]} s",
    )
    return PICK.format(first=first or least, start=start, stop=stop, body=filled)


def loaded(text: str, path: Path) -> ModuleType:
    path.write_text(text, encoding="utf-8")
    return load_module(path.stem, text, path)


def tied(seed: int, rows: int, columns: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        "X": random.integers(-2, 3, (rows, columns)).astype(float),
        "Y": random.integers(-9, 9, columns).astype(float),
        "ok": random.random((rows, columns)) < 0.5,
    }


@pytest.mark.parametrize("body, op", list(product(BODIES, (">", ">=", "<", "<="))))
def test_what_attains_an_extremum_is_kept_for_a_block_at_once(
    body: str, op: str, tmp_path: Path
) -> None:
    for number, (first, start, stop) in enumerate(
        [("", "0", "N"), ("0.0", "1", "N"), ("", "0", "min(i + 1, N)")]
    ):
        listing = program(a_pick(body, op, first, start, stop))
        made = emitted(listing)
        ops = [op for kernel in made.blocks.kernels for op in ops_in(kernel.body)]
        assert not [op for op in ops if isinstance(op, ElementLoop)], made.text
        module = loaded(made.text, tmp_path / f"pick_{body}_{ord(op[0])}_{len(op)}_{number}.py")
        for rows, columns in ((3, 1), (5, 37), (40, 70)):
            arrays = tied(number, rows, columns)
            given = [torch.from_numpy(arrays[n]) for n in launcher_parameters(made.blocks).names]
            given = [each if each.dtype == torch.bool else each.float() for each in given]
            found = module.pick(*given)
            wanted = execute(listing, inputs=arrays)
            for name, got in zip(listing.outputs, found, strict=True):
                np.testing.assert_array_equal(got.numpy(), wanted[name], f"{name} {rows} {columns}")


def test_the_laws_of_a_pick_are_proved() -> None:
    (found,) = [each for each in appends(program(a_pick("chosen", ">="))) if each.loop == "j"]
    assert found.decision == "legal"
    assert [law.name for law in found.laws] == ["one iteration", "one pick after another"]
    assert all(law.answer == "proved" for law in found.laws)


@pytest.mark.parametrize(
    "statement",
    [
        "k = j if s > 2.0 * best else k",  # not when the extremum moves
        "k = k + 1 if s > best else k",  # how often it has moved
        "k = j if s != best else k",
    ],
)
def test_what_goes_with_no_extremum_is_not_picked(statement: str) -> None:
    text = a_pick("chosen", ">").replace("k = 2 * j if s > best else k", statement)
    (found,) = [each for each in appends(program(text)) if each.loop == "j"]
    assert found.decision == "unknown"
    assert "changes under a condition on the state" in found.reason or "k" in found.reason
    report = verify(program(text), [{"M": 5, "N": 40}], ["float32"])
    assert report.passed, verification_text(report)


NEAREST = """
def nearest(X: Float[Array, "M E"], C: Float[Array, "N E"]):
    near = zeros(M)
    for i in range(0, M):
        near[i] = min(sum((X[i, e] - C[j, e]) ** 2 for e in range(0, E)) for j in range(0, N))
    return near
"""
QUANTIZED = """
def quantized(X: Float[Array, "M E"], C: Float[Array, "N E"]):
    loss = zeros(M)
    code = zeros(M, dtype=int)
    for i in range(0, M):
        best = inf
        k = -1
        for j in range(0, N):
            d = sum((X[i, e] - C[j, e]) ** 2 for e in range(0, E))
            if d < best:
                best = d
                k = j
        loss[i] = sqrt(best + 1.0)
        code[i] = k
    return loss, code
"""
LATE_INTERACTION = """
def late_interaction(Q: Float[Array, "B M E"], K: Float[Array, "B N E"]):
    score = zeros(B)
    for b in range(0, B):
        score[b] = sum(
            max(sum(Q[b, i, e] * K[b, j, e] for e in range(0, E)) for j in range(0, N))
            for i in range(0, M)
        )
    return score
"""
HARDEST = """
def hardest(X: Float[Array, "M E"], y: Int[Array, "M"], margin: float):
    loss = zeros(M)
    for i in range(0, M):
        far = 0.0
        near = inf
        for j in range(0, M):
            d = sum((X[i, e] - X[j, e]) ** 2 for e in range(0, E))
            if y[i] == y[j]:
                far = max(far, d)
            else:
                near = min(near, d)
        loss[i] = max(0.0, far - near + margin)
    return loss
"""
WORST = """
def worst(X: Float[Array, "M E"], W: Float[Array, "C E"], y: Int[Array, "M", "0:C"]):
    S = zeros((M, C))
    loss = zeros(M)
    for i in range(0, M):
        for c in range(0, C):
            S[i, c] = sum(X[i, e] * W[c, e] for e in range(0, E))
        top = -inf
        for c in range(0, C):
            if c != y[i]:
                top = max(top, S[i, c] + 1.0)
        loss[i] = max(0.0, top - S[i, y[i]])
    return loss
"""
CAUSAL = """
def causal(Q: Float[Array, "M E"], K: Float[Array, "M E"], t: float):
    top = zeros(M)
    for i in range(0, M):
        m = -inf
        for j in range(0, i + 1):
            m = max(m, sum(Q[i, e] * K[j, e] for e in range(0, E)) / t)
        top[i] = tanh(m)
    return top
"""
POOLED = """
def pooled(X: Float[Array, "B H W"], a: Float[Array, "H W"]):
    Y = zeros(B)
    for b in range(0, B):
        Y[b] = max(
            X[b, h, w] * a[h, w] * 0.3 * X[b, h, w] for h in range(0, H) for w in range(0, W)
        )
    return Y
"""
WITHOUT_ROWS = """
def without_rows(X: Float[Array, "N"], a: Float[Array, "N"]):
    y = zeros(1)
    y[0] = max(X[j] * a[j] * X[j] for j in range(0, N))
    return y
"""
LENGTHS = """
def of_lengths(
    Q: Float[Array, "B M E"], K: Float[Array, "B N E"], n_q: Int[Array, "B", "0:M+1"],
    n_k: Int[Array, "B"],
):
    assert all(0 <= n_k[b] <= N for b in range(0, B))
    best = full((B, M), -inf)
    score = zeros(B)
    for b in range(0, B):
        for i in range(0, n_q[b]):
            for j in range(0, n_k[b]):
                best[b, i] = max(best[b, i], sum(Q[b, i, e] * K[b, j, e] for e in range(0, E)))
            score[b] += tanh(best[b, i])
    return score
"""
BY_CONTRACT = """
def by_contract(Q: Float[Array, "B M E"], K: Float[Array, "N E"], n: Int[Array, "B"]):
    assert all(0 <= n[b] and M >= n[b] for b in range(0, B))
    y = zeros((B, M))
    for b in range(0, B):
        for i in range(0, n[b]):
            top = -inf
            for j in range(0, N):
                top = max(top, sum(Q[b, i, e] * K[j, e] for e in range(0, E)))
            y[b, i] = top
    return y
"""
BEGUN = """
def begun(Q: Float[Array, "M E"], K: Float[Array, "N E"], w: Float[Array, "M"], t: float):
    y = zeros(M)
    for i in range(0, M):
        m = t * w[i]
        for j in range(0, N, 2):
            m = max(m, sum(Q[i, e] * K[j, e] for e in range(0, E)))
        y[i] = m
    return y
"""
BELOW_0 = """
def below_0(X: Float[Array, "M E"], K: Float[Array, "9 E"]):
    y = zeros(M)
    for i in range(0, M):
        m = inf
        for j in range(3, -6, -1):
            m = min(m, sum(X[i, e] * K[j + 5, e] for e in range(0, E)))
        y[i] = m
    return y
"""
PARTIAL = """
def partial(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    m = full(M, -inf)
    l = zeros(M)
    O = zeros((M, D))
    for i in range(0, M):
        for j in range(0, N):
            s = sum(Q[i, e] * K[j, e] for e in range(0, E))
            new = max(m[i], s)
            c = exp(m[i] - new)
            p = exp(s - new)
            l[i] = l[i] * c + p
            for d in range(0, D):
                O[i, d] = O[i, d] * c + p * V[j, d]
            m[i] = new
    return O, l, m
"""
ALL = (
    NEAREST,
    QUANTIZED,
    LATE_INTERACTION,
    HARDEST,
    WORST,
    CAUSAL,
    POOLED,
    WITHOUT_ROWS,
    LENGTHS,
    BY_CONTRACT,
    BEGUN,
    BELOW_0,
    PARTIAL,
)
IN_16_BITS = (NEAREST, LATE_INTERACTION, CAUSAL, LENGTHS, PARTIAL)
SIZES = {
    "H": 3,
    "W": 19,
    "B": 2,
    "M": 19,
    "N": 37,
    "C": 21,
    "E": 5,
    "D": 6,
    "margin": 0.5,
    "t": 1.5,
    "R": 2,
}


def sizes_of(text: str) -> dict[str, float]:
    found = program(text)
    return {p.name: SIZES[p.name] for p in found.parameters}


@pytest.mark.parametrize("text", ALL)
def test_the_gradient_goes_to_the_first_that_attains_it(text: str) -> None:
    listing = program(text)
    types = ["float32", "float16"] if text in IN_16_BITS else ["float32"]
    report = verify_backward(listing, [sizes_of(text)], types)
    assert report.runs and report.passed, verification_text(report)


@pytest.mark.parametrize("text", [text for text in ALL if text is not PARTIAL])
def test_its_derivation_is_proved_and_proved_again(text: str) -> None:
    derivation = derive_backward(program(text))
    assert derivation.decision == "legal", derivation.notes
    assert not recheck(saved(derivation))


def test_rows_without_elements_have_no_gradient(tmp_path: Path) -> None:
    found = emitted_with_backward(program(QUANTIZED))
    module = loaded(found.text, tmp_path / "quantized_of_none.py")
    X = torch.randn(3, 4, requires_grad=True)
    C = torch.randn(0, 4, requires_grad=True)
    loss, code = module.quantized(X, C)
    loss.sum().backward()
    assert torch.equal(code, torch.full((3,), -1)) and torch.isinf(loss).all()
    assert X.grad is not None and not X.grad.any()


def test_late_interaction_is_products_of_matrices_in_one_kernel() -> None:
    """A program has a batch of its own: over several there would be no matrix products."""
    text = emitted(program(LATE_INTERACTION)).text
    assert text.count("@triton.jit\ndef late_interaction") == 1
    assert "tl.dot(Q_ie, tl.trans(K_je)" in text
    assert "N: tl.constexpr" not in text  # no row of all j


def test_unnormalized_parts_of_a_softmax_are_one_pass_that_tells_where_the_maximum_is() -> None:
    """The weights are at most 1, whether anything is picked beside the maximum or not."""
    found = emitted_with_backward(program(PARTIAL))
    (kernel,) = found.forward.kernels
    assert [a.name for a in kernel.arrays if a.access == "out"] == ["m_at", "m", "l", "O"]
    assert found.text.count("exp_x_ij.to(V_ptr.dtype.element_ty)") == 4


@pytest.mark.parametrize(
    "text, old, new, reason",
    [
        (
            QUANTIZED,
            "        k = -1",
            "        best = 3.0\n        k = -1",
            "is not set in front of",
        ),
        (QUANTIZED, "best = inf", "best = loss[i]", "is not set in front of the loop"),
        (LATE_INTERACTION, "range(0, M)", "range(0, n[b])", "how many rows i may go over"),
        (
            CAUSAL,
            "top[i] =",
            "m = m * 2.0\n        top[i] =",
            "set or looked at by more statements",
        ),
    ],
)
def test_other_forms_are_refused_with_the_reason(
    text: str, old: str, new: str, reason: str
) -> None:
    changed = text.replace(old, new).replace('E"]):', 'E"], n: Int[Array, "B"]):')
    with pytest.raises(Refused, match=f"cannot be told from rounded numbers.*{reason}"):
        emitted_with_backward(program(changed))


def test_a_wrong_place_is_no_tie() -> None:
    """What another place offers is compared with the extremum before it counts as attaining it."""
    found = emitted_with_backward(program(NEAREST))
    stored = "stride_near_min_at_i, near_min_at,"
    assert stored in found.text
    wrong = replace(found, text=found.text.replace(stored, f"{stored[:-1]} // 2,"))
    sizes = [SizeSet("crossing", sizes_of(NEAREST))]
    device = prepare_device("cpu")
    assert verify_gradients(gradient_launcher(found), sizes, ["float32"], device).passed
    assert not verify_gradients(gradient_launcher(wrong), sizes, ["float32"], device).passed


# Of scores that are large, tanh is 1 in float32, and which is the largest is told by a rounding.
SATURATED = """
def saturated(Q: Float[Array, "M E"], K: Float[Array, "N E"]):
    y = zeros(M)
    for i in range(0, M):
        m = -inf
        for j in range(0, N):
            m = max(m, tanh(0.5 * sum(Q[i, e] * K[j, e] for e in range(0, E))))
        y[i] = m
    return y
"""
FAR = """
def far(Q: Float[Array, "M E"], K: Float[Array, "N E"], w: Float[Array, "M"]):
    y = zeros(M)
    for i in range(0, M):
        m = 0.0
        for j in range(0, N):
            m = max(m, sum((Q[i, e] - K[j, e]) ** 2 for e in range(0, E)))
        y[i] = tanh(m) * w[i]
    return y
"""


@pytest.mark.parametrize("text", [SATURATED, FAR])
def test_where_tanh_is_almost_1(text: str) -> None:
    report = verify_backward(program(text), [sizes_of(text)], ["float32"])
    assert report.runs and report.passed, verification_text(report)


def test_the_slope_of_tanh_is_not_multiplied_out() -> None:
    """dm * (Q - K) with dm = dy * w * (1 - tanh ** 2), not the four terms that this is."""
    text = emitted_with_backward(program(FAR)).text
    assert text.count("_tanh_slope(m_kept_i") >= 2
    assert "_tanh(m_kept_i" in text  # for dw


OFFSETS = """
def offsets(X: Float[Array, "M E"], K: Float[Array, "M E"], R: int):
    y = zeros(M)
    for i in range(0, M):
        m = -inf
        for j in range(-R, R + 1):
            if i + j >= 0 and i + j < M:
                m = max(m, sum(X[i, e] * K[i + j, e] for e in range(0, E)))
        y[i] = m
    return y
"""
ALL_PAIRS = """
def all_pairs(X: Float[Array, "M E"], K: Float[Array, "N E"]):
    y = zeros(1)
    far = 0.0
    for i in range(0, M):
        near = inf
        for j in range(0, N):
            near = min(near, sum((X[i, e] - K[j, e]) ** 2 for e in range(0, E)))
        far = max(far, near)
    y[0] = sqrt(far)
    return y
"""


@pytest.mark.parametrize("text", [OFFSETS, ALL_PAIRS])
def test_gradients_agree_with_differences_of_the_listing(text: str, tmp_path: Path) -> None:
    listing = program(text)
    sizes = {**sizes_of(text), "M": 6} | ({"N": 7} if "N" in sizes_of(text) else {})
    random = np.random.default_rng(5)
    X, K = random.standard_normal((6, 5)), random.standard_normal((int(sizes.get("N", 6)), 5))
    module = loaded(emitted_with_backward(listing).text, tmp_path / f"{listing.name}_slopes.py")
    given = [torch.from_numpy(each).float().requires_grad_() for each in (X, K)]
    module_inputs = (*given, 2) if "R" in sizes else given
    getattr(module, listing.name)(*module_inputs).sum().backward()

    def total(x: np.ndarray, k: np.ndarray) -> float:
        return float(execute(listing, sizes=sizes, inputs={"X": x, "K": k})["y"].sum())

    for own, tensor in ((0, given[0]), (1, given[1])):
        slopes = np.zeros((X, K)[own].shape)
        for cell in np.ndindex(*slopes.shape):
            ends = []
            for sign in (1.0, -1.0):
                moved = [X.copy(), K.copy()]
                moved[own][cell] += sign * 1e-6
                ends.append(total(*moved))
            slopes[cell] = (ends[0] - ends[1]) / 2e-6
        assert tensor.grad is not None
        np.testing.assert_allclose(tensor.grad.numpy(), slopes, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("start", ["m = 1.0", ""])
@pytest.mark.parametrize(
    "before, guard",
    [
        ("{} * w[i]", ""),  # seen before the loop
        ("0.5", "if ok[i]"),  # what it starts from stays in some rows
    ],
)
def test_a_start_that_is_seen_is_not_taken_for_0(start: str, before: str, guard: str) -> None:
    cell = "m" if start else "best[i]"
    loop = f"""for j in range(0, N):
            {cell} = max({cell}, sum(X[i, e] * K[j, e] for e in range(0, E)))"""
    if guard:
        loop = f"{guard}:\n            " + loop.replace("\n", "\n    ")
    text = f"""
def seen(
    X: Float[Array, "M E"], K: Float[Array, "N E"], w: Float[Array, "M"], ok: Bool[Array, "M"]
):
    y = zeros(M)
    best = full(M, 1.0)
    for i in range(0, M):
        {start or "u = 0.0"}
        t = {before.format(cell)}
        {loop}
        y[i] = {cell} + t
    return y
"""
    with pytest.raises(Refused, match="cannot be told from rounded numbers"):
        emitted_with_backward(program(text))


def test_what_is_picked_beside_an_extremum_is_kept_for_every_iteration() -> None:
    text = """
def beside(X: Float[Array, "M E"], K: Float[Array, "N E"], w: Float[Array, "N"]):
    y = zeros(M)
    for i in range(0, M):
        m = -inf
        v = 0.0
        for j in range(0, N):
            s = sum(X[i, e] * K[j, e] for e in range(0, E))
            if s >= m:
                m = s
                v = w[j] * s
        y[i] = v
    return y
"""
    found = backward(program(text))
    assert any("kept for every iteration" in note for note in found.notes)
    check(program(text), found)


def test_what_was_the_extremum_before_is_looked_for_in_a_bounded_time() -> None:
    """No operator joins this state; the search for numbers that show it met infinities."""
    text = a_pick("guarded", ">").replace("v = Y[j]", "q = j")
    text = text.replace("    best = X[i, j]", "    v = best\n                best = X[i, j]")
    text = text.replace("        k = -1\n", "        k = -1\n        q = -1\n")
    report = verify(program(text), [{"M": 5, "N": 40}], ["float32"])
    assert report.passed, verification_text(report)


ROW_SCALE = """
def row_scale(X: Float[Array, "M K"], W: Float[Array, "K N"]):
    Y = zeros((M, N))
    for i in range(0, M):
        a = 0.0
        for j in range(0, N):
            Y[i, j] = sum(X[i, k] * W[k, j] for k in range(0, K))
            a = max(a, abs(Y[i, j]))
        for j in range(0, N):
            Y[i, j] = Y[i, j] / (a + 1e-3)
    return Y
"""


def test_nothing_is_read_at_the_place_of_no_extremum() -> None:
    """Rows of zeros attain none: nothing is read at -1, not even to tell the sign there."""
    found = emitted_with_backward(program(ROW_SCALE)).found
    arrays = {a.name: np.ones((2,) * a.rank) for a in found.program.arrays if a.role == "input"}
    arrays["a_at"] = np.array([-1, 1])
    gradients = execute(found.program, inputs=arrays)
    assert gradients["dX"].shape == (2, 2)


HARD = """
def hard(q: Float[Array, "M E"], k: Float[Array, "N E"], v: Float[Array, "N"]):
    kept = zeros((M, N))
    O = zeros(M)
    for i in range(0, M):
        m = -inf
        for j in range(0, N):
            s = sum(q[i, e] * k[j, e] for e in range(0, E))
            kept[i, j] = s
            m = max(m, s)
        for j in range(0, N):
            t = sum(q[i, e] * k[j, e] for e in range(0, E))
            if t == m:
                O[i] += v[j]
    return O
"""


def test_sums_that_are_tested_when_they_are_worked_out_again_have_a_note() -> None:
    what = "tests a sum that is worked out again against m"

    def noted(text: str) -> bool:
        return any(what in note for note in emitted(program(text)).blocks.notes)

    assert noted(HARD)
    stored = HARD.replace("if t == m:", "if kept[i, j] == m:").replace("return O", "return O, kept")
    assert not noted(stored)
    alone = HARD.replace("if t == m:", "if t >= 0.5:")
    assert not noted(alone)
