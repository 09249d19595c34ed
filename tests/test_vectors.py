"""Programs run with the iterations of parallel loops side by side, against the scalar executor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from looptrans.executor import ExecutionError, RaceLog, execute_on, prepare, vector_machine
from looptrans.executor.errors import NotYetSet, NoValue, SubscriptOutside
from looptrans.executor.inputs import Inputs
from looptrans.executor.vector_store import NotVectorized
from looptrans.executor.vectors import execute_vectors
from looptrans.frontend import load, parse
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.program import Atomic, Barrier, BlockReduce, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.source import Source
from looptrans.ir.walk import nodes
from looptrans.runtime.executed.parted import with_loops_parted
from looptrans.runtime.executed.reference import reference_of
from looptrans.runtime.executed.summed import with_loops_summed
from tests.oracle.nests import Nest, nests
from tests.test_executor_races import made_parallel

Outputs = Mapping[str, Any]
SPECS = Path(__file__).parent.parent / "specs"


def program_of(text: str) -> Program:
    return parse(Source("listing.py", text))


def assert_same(found: Outputs, expected: Outputs) -> None:
    """The same but for what NumPy's functions round differently on arrays, a unit or two."""
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert found[name].dtype == values.dtype, name
        assert found[name].shape == values.shape, name
        if values.dtype == np.float64:
            assert_allclose(found[name], values, rtol=1e-13, err_msg=name)
        elif values.dtype.kind == "f":
            assert_allclose(found[name], values, rtol=2e-6, err_msg=name)
        else:
            assert_array_equal(found[name], values, err_msg=name)


LISTINGS = {
    "triangles": """
def f(A: Float[Array, "N N"]):
    B = zeros((N, N)); s = zeros(N)
    for i in parallel(0, N):
        for j in parallel(0, i + 1):
            B[i, j] = A[i, j] * 2.0
        for j in range(N - 1, i, -2):
            s[i] = s[i] + A[j, i]
        for j in range(i, 0, -1):
            s[i] = s[i] - 0.5 * A[i, j]
    return B, s
""",
    "guards and choices": """
def f(A: Float[Array, "M N"], x: Float[Array, "M"]):
    B = zeros((M, N)); c = zeros(M)
    for i in parallel(0, M):
        for j in parallel(0, N):
            private: (t)
            t = A[i, j] if A[i, j] > 0.0 else -1.0 * x[i]
            if t > 0.5 and j < N - 1:
                B[i, j] = A[i, j + 1]
            elif j > 0 or t < 0.0:
                t = t * 3.0
                B[i, j] = t + (A[i, j - 1] if j > 0 else 7.0)
            else:
                B[i, j] = max(t, 1, A[i, j])
        if x[i] > 0.0:
            c[i] = x[i]
    return B, c
""",
    "rows": """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"]):
    S = zeros((M, N)); T = zeros((M, E)); n = zeros(M); u = zeros(M)
    for i in parallel(0, M):
        private: (q)
        q = 2.0 * Q[i] + n[i]
        T[i, :] = exp(q) - Q[M - 1 - i]
        n[i] = sum(q)
        u[i] = max(Q[i]) - min(q)
        for j in range(N):
            S[i, j] = q @ K[j] + Q[i, :] @ Q[i]
    return S, T, n, u
""",
    "reductions": """
def f(A: Float[Array, "N N"], B: Float[Array, "N"]):
    s = zeros(N); t = zeros(N); m = full(N, -inf); c = zeros(N); w = zeros(N)
    for i in parallel(0, N):
        s[i] = sum(A[i, j] * B[j] for j in range(0, i + 1))
        t[i] = sum(A[j, k] for j in range(i, N) if j != 2 for k in range(0, j) if A[j, k] > 0.0)
        m[i] = max(A[j, i] * sum(B[e] * A[j, e] for e in range(N)) for j in range(N) if j >= i)
        c[i] = sum(j - i for j in range(0, N, 3))
        w[i] = min(B[j] - A[i, j] for j in range(N - 1, -1, -1))
    return s, t, m, c, w
""",
    "gathers": """
def f(
    A: Float[Array, "P T"],
    at: Int[Array, "M", "0:P"],
    n: Int[Array, "M", "0:T+1"],
    y: Int[Array, "M T", "0:T"],
):
    B = zeros((M, T)); C = zeros((M, T)); D = zeros(M * T)
    for b in parallel(0, M):
        for j in parallel(0, n[b]):
            B[b, j] = A[at[b], j] + A[at[b], y[b, j]]
        for j in range(0, n[b]):
            C[b, 0] = C[b, 0] + A[at[b], j]
            C[b, (j + 1) // 2] = C[b, (j + 1) // 2] - A[at[b], T - 1 - (j + 1) // 2]
        for j in parallel(0, T):
            D[b * T + j] = A[at[b], (j + b) % T] * b
    return B, C, D
""",
    "numbers": """
def f(A: Float[Array, "M N"], I: Int[Array, "M N", "0:5"], seed):
    B = zeros((M, N)); C = zeros((M, N)); D = zeros((M, N)); E = zeros((M, N)); F = zeros((M, N))
    for i in parallel(0, M):
        for j in parallel(0, N):
            B[i, j] = uniform(seed, i, j) + bfloat16(A[i, j]) + float8_e4m3(100.0 * A[i, j])
            C[i, j] = int(3.0 * A[i, j]) // (I[i, j] - 2) + (j - i) % 3 + (i - j) // 2
            D[i, j] = (i - 3) ** j + abs(i - j) / (I[i, j] + 1) + (j - 2) ** (i - 2)
            E[i, j] = float32(A[i, j]) - A[i, j] % 0.75 + A[i, j] // 0.3 + float8_e5m2(A[i, j])
            F[i, j] = where(A[i, j] > I[i, j] - 2, 1, tanh(A[i, j])) + sqrt(log2(I[i, j]))
            F[i, j] = F[i, j] - bool(I[i, j])
    return B, C, D, E, F
""",
    "private arrays": """
def f(A: Float[Array, "M N"], V: Float[Array, "N D"]):
    O = zeros((M, D)); best = 0.0
    acc = zeros(D)
    for i in parallel(0, M):
        private: (acc, m)
        m = -inf
        for d in parallel(0, D):
            acc[d] = 0.0
        for j in range(N):
            m = max(m, A[i, j])
            if A[i, j] > 0.0:
                for d in parallel(0, D):
                    acc[d] = acc[d] + A[i, j] * V[j, D - 1 - d]
        for d in parallel(0, D):
            O[i, d] = acc[d] + m
            if i == 1 and d == 2:
                best = acc[d]
    return O, best
""",
}


@pytest.mark.parametrize("name", LISTINGS)
@pytest.mark.parametrize("block", [3, 1 << 17])
def test_a_parallel_listing_gives_the_same(
    name: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where parallel loops are cut into blocks of three iterations."""
    monkeypatch.setattr(vector_machine, "MOST_LANES", block)
    program = program_of(LISTINGS[name])
    for seed in range(3):
        inputs = prepare(program, seed=seed)
        for dtype in ("float64", "float32", "float16"):
            expected = execute_on(program, inputs, dtype=dtype)
            found = execute_vectors(program, inputs, dtype)
            if dtype == "float16":
                for key, values in expected.items():
                    assert_array_equal(found[key], values)
            else:
                assert_same(found, expected)


@pytest.mark.parametrize(
    "spec",
    [
        "attention_lengths",
        "flash_forward_as_printed",
        "layernorm",
        "prefix_sum",
    ],
)
def test_a_spec_gives_the_same_in_parallel(spec: str) -> None:
    program = load(str(SPECS / f"{spec}.py"))
    reference = reference_of(program)
    for seed in range(2):
        inputs = prepare(program, seed=seed)
        for dtype in ("float64", "float32"):
            expected = execute_on(program, inputs, dtype=dtype)
            assert_same(execute_vectors(reference.parallel, inputs, dtype), expected)


def test_free_loops_are_found() -> None:
    """In naive attention all but a loop over j for the maximum; two others are sums."""
    reference = reference_of(load(str(SPECS / "attention_naive.py")))
    found = [n for n in nodes(reference.parallel.body) if isinstance(n, Loop)]
    executions = [(loop.variable, loop.execution) for loop in found]
    assert executions == [
        ("i", "parallel"),
        ("j", "parallel"),
        ("i", "parallel"),
        ("j", "sequential"),
        ("i", "parallel"),
        ("i", "parallel"),
        ("d", "parallel"),
    ]


@pytest.mark.parametrize(
    "body, parts",
    [
        ("a[j] = X[j]; s = s + a[j]", 2),  # a cell of its own: first all that is set
        ("s = s + a[j]; a[j] = X[j]", 2),
        ("s = s + X[j]; t = max(t, X[j])", 2),  # nothing in common
        ("s = s + X[j]; t = max(t, s)", 1),  # what is read is of this iteration
        ("a[j] = X[j]; s = s + a[j - 1]", 1),  # a cell of another iteration
        ("a[j] = s; s = s + X[j]", 1),
        ("a[j] = X[j]; s = s + a[j]; b[j] = s", 2),
        ("a[j] = X[j]; s = s + sum(a[k] for k in range(0, 2))", 1),
    ],
)
def test_loops_are_parted(body: str, parts: int) -> None:
    """The parts give what the whole does, bit for bit."""
    program = program_of(f"""
def f(X: Float[Array, "N"]):
    s = 0.0; t = 0.0; a = ones(N); b = zeros(N)
    for j in range(1, N):
        {body}
    return s, t, a, b
""")
    parted = with_loops_parted(program)
    assert sum(isinstance(node, Loop) for node in parted.body) == parts
    inputs = prepare(program, {"N": 7})
    expected = execute_on(program, inputs)
    for name, values in execute_on(parted, inputs).items():
        assert_array_equal(values, expected[name])


def test_sums_of_rows_are_made_at_once() -> None:
    """As far as each row goes; a loop inside that has cells of its own comes outside."""
    program = program_of("""
def f(P: Float[Array, "M M"], V: Float[Array, "M D"]):
    O = zeros((M, D))
    for i in range(0, M):
        for j in range(0, i + 1):
            for d in range(0, D):
                O[i, d] = O[i, d] + P[i, j] * V[j, d]
    return O
""")
    inputs = prepare(program, {"M": 5, "D": 3})
    summed = with_loops_summed(program)
    assert [n.variable for n in nodes(summed.body) if isinstance(n, Loop)] == ["i", "d"]
    assert_array_equal(execute_on(summed, inputs)["O"], execute_on(program, inputs)["O"])


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(nests(data_guards=True, opaque=True))
def test_random_programs_in_parts(nest: Nest) -> None:
    try:
        program = program_of(nest.source)
        inputs = prepare(program, nest.sizes, nest.arrays)
        expected = execute_on(program, inputs)
    except (ExecutionError, ListingError):
        return
    try:
        found = execute_on(with_loops_summed(with_loops_parted(program)), inputs)
    except ExecutionError:
        return  # A sum of nothing is added to a cell that is none: the listing itself is run then.
    for name, values in expected.items():
        assert_allclose(found[name], values, rtol=1e-12)


def test_a_loop_that_is_called_parallel_and_is_not_is_run_in_order() -> None:
    program = program_of("""
def f(A: Float[Array, "N"]):
    B = zeros(N + 1)
    for i in parallel(0, N):
        B[i + 1] = B[i] + A[i]
    return B
""")
    inputs = prepare(program)
    reference = reference_of(program)
    assert_same(reference.run(inputs), execute_on(program, inputs))


def without_sections(program: Program) -> Program:
    def change(node: Node) -> tuple[Node, ...]:
        if isinstance(node, Atomic | BlockReduce):
            return node.body
        return () if isinstance(node, Barrier) else (node,)

    return replace(program, body=rewritten(program.body, change))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(nests(data_guards=True, opaque=True), st.randoms(use_true_random=False))
def test_random_programs_without_a_race(nest: Nest, random: Random) -> None:
    made = made_parallel(nest, random)
    if made is None:
        return
    program, inputs = without_sections(made[0]), made[1]
    races = RaceLog()
    try:
        expected = execute_on(program, inputs, races=races)
    except ExecutionError:
        return
    if not races.races:
        assert_same(execute_vectors(program, inputs), expected)


def failure(text: str, **sizes: float) -> ExecutionError:
    program = program_of(text)
    with pytest.raises(ExecutionError) as caught:
        execute_vectors(program, prepare(program, sizes))
    return caught.value


def test_a_subscript_outside_is_found_in_lanes_that_run() -> None:
    text = """
def f(A: Float[Array, "N"]):
    B = zeros(N)
    for i in parallel(0, N):
        if i < K:
            B[i] = A[i + 1]
    return B
"""
    program = program_of(text)
    inputs = prepare(program, {"N": 4, "K": 3})
    assert_same(execute_vectors(program, inputs), execute_on(program, inputs))
    error = failure(text, N=4, K=4)
    assert isinstance(error, SubscriptOutside)
    assert "A[4]" in error.message
    assert "subscript 0 is 4" in error.message
    plain = """
def g(X: Float[Array, "M D"]):
    y = zeros(M)
    for i in parallel(0, M):
        y[i] = X[i, 0]
    return y
"""
    error = failure(plain, M=2, D=0)
    assert isinstance(error, SubscriptOutside)
    assert "X[0, 0] is outside" in error.message


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("B[i] = max(A[j] for j in range(0, i - 1))", NoValue),
        ("B[i] = int(A[i] / 0.0)", NoValue),
        ("if A[i] > 100.0:\n            t = 1.0\n        B[i] = t", NotYetSet),
    ],
)
def test_other_failures_are_those_of_the_scalar_executor(
    line: str, kind: type[ExecutionError]
) -> None:
    private = "        private: (t)\n" if "t = 1.0" in line else ""
    text = f"""
def f(A: Float[Array, "N"]):
    B = zeros(N)
    for i in parallel(0, N):
{private}        {line}
    return B
"""
    assert isinstance(failure(text), kind)
    program = program_of(text)
    with pytest.raises(kind):
        execute_on(program, prepare(program))


def test_a_listing_with_turns_is_run_one_iteration_at_a_time() -> None:
    program = program_of("""
def f(A: Float[Array, "N"]):
    s = 0.0
    for i in parallel(0, N):
        with atomic():
            s = s + A[i]
    return s
""")
    inputs = prepare(program)
    with pytest.raises(NotVectorized):
        execute_vectors(program, inputs)
    assert_same(reference_of(program).run(inputs), execute_on(program, inputs))


def test_sums_may_be_added_from_the_other_end() -> None:
    """10**8 swallows a 1 in float32, unless the ones come first."""
    program = program_of("""
def f(A: Float[Array, "N"], B: Float[Array, "N"]):
    s = zeros(1); t = zeros(1); u = zeros(1)
    for i in parallel(0, 1):
        s[i] = sum(A[j] for j in range(N))
        t[i] = A @ B
        u[i] = sum(A)
    return s, t, u
""")
    values = np.array([1e8] + [4.0] * 50)
    inputs = prepare(program, inputs={"A": values, "B": np.ones(51)})
    forwards = execute_vectors(program, inputs, "float32")
    backwards = execute_vectors(program, inputs, "float32", backwards=True)
    for name in ("s", "t", "u"):
        assert forwards[name].tolist() == [1e8]
        assert backwards[name].tolist() == [1e8 + 200]


def test_inputs_stay_as_they_are() -> None:
    program = program_of("""
def f(A: Float[Array, "N"]):
    for i in parallel(0, N):
        A[i] = 2.0 * A[i]
""")
    values = np.arange(5.0)
    found = execute_vectors(program, Inputs({"N": 5}, {}, {"A": values}))
    assert_array_equal(values, np.arange(5.0))
    assert_array_equal(found["A"], 2 * np.arange(5.0))


def test_a_sum_leaves_out_rows_that_an_outer_one_of_its_loops_does_not_have() -> None:
    listing = """
def f(A: Float[Array, "M 3 D"], c: Int[Array, "M"]):
    C = zeros(M); L = zeros(M)
    for i in parallel(0, M):
        C[i] = sum(A[i, h, d] for h in range(c[i], 2) for d in range(D))
        L[i] = max(0.0, sum(A[i, h, d] for h in range(3) if h < c[i] for d in range(D)))
    return C, L
"""
    program = program_of(listing)
    A = np.random.default_rng(0).random((5, 3, 4)) + 1.0
    inputs = prepare(program, {"M": 5, "D": 4}, inputs={"A": A, "c": np.array([0, 1, 2, 0, 1])})
    assert_same(execute_vectors(program, inputs), execute_on(program, inputs))
