"""The executor against the same text under plain Python, the mathematics, and known values."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from looptrans.executor import ExecutionError, execute, execute_on, prepare
from looptrans.executor.errors import (
    ContractViolated,
    IndexDividedByZero,
    NotYetSet,
    NoValue,
    SubscriptOutside,
)
from looptrans.frontend import parse
from looptrans.frontend.mistakes import WrittenIndexArray
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.program import Program
from looptrans.ir.source import Source
from tests.native import run_native
from tests.oracle.nests import Nest, nests
from tests.test_specs_native import AS_PRINTED, CASES, each_case, read

Outputs = Mapping[str, Any]


def program_of(text: str) -> Program:
    return parse(Source("listing.py", text))


def assert_same_bits(found: Outputs, expected: Outputs) -> None:
    """Equal numbers in the same order; nan equals nan, and 0.0 differs from -0.0."""
    assert list(found) == list(expected)
    for name, values in expected.items():
        wanted = np.asarray(values, dtype=found[name].dtype)
        assert found[name].shape == wanted.shape, name
        assert np.array_equal(found[name], wanted, equal_nan=wanted.dtype.kind == "f"), name
        if wanted.dtype.kind == "f":
            number = ~np.isnan(wanted)
            assert np.array_equal(np.signbit(found[name][number]), np.signbit(wanted[number])), name


# The listings in specs/


@pytest.mark.parametrize(("spec", "sizes"), each_case())
def test_a_spec_means_what_its_text_means(spec: str, sizes: dict[str, int]) -> None:
    make_inputs, _, reference, names = CASES[spec]
    program = program_of(read(spec))
    for seed in range(3):
        inputs = make_inputs(np.random.default_rng(seed), **sizes)
        outputs = execute(program, inputs=inputs)
        native = run_native(read(spec), spec, **inputs)
        assert list(outputs) == names
        if "@" in read(spec):  # NumPy's dot product adds in another order
            for name in names:
                assert_allclose(outputs[name], native[name], rtol=1e-13, atol=1e-13)
        else:
            assert_same_bits(outputs, native)
        for name, expected in reference(**inputs).items():
            if name in outputs:
                assert_allclose(outputs[name], expected, rtol=1e-12, atol=1e-12)


def test_the_printed_listing_means_what_its_text_means() -> None:
    inputs = CASES["flash_forward"][0](np.random.default_rng(0), M=3, N=4, D=2, E=3)
    native = run_native(read(AS_PRINTED), None, **inputs)
    for name, found in execute(program_of(read(AS_PRINTED)), inputs=inputs).items():
        assert_allclose(found, native[name], rtol=1e-13)


@pytest.mark.parametrize("spec", [*CASES, AS_PRINTED])
def test_every_spec_runs_on_inputs_made_up(spec: str) -> None:
    program = program_of(read(spec))
    outputs = execute(program, seed=3)
    assert all(np.all(np.isfinite(values)) for values in outputs.values())
    assert_same_bits(outputs, execute(program, seed=3))
    differs = any(not np.array_equal(outputs[n], v) for n, v in execute(program, seed=4).items())
    assert differs


def test_the_callers_arrays_stay_as_they_are() -> None:
    array = np.random.default_rng(0).standard_normal((5, 5))
    before = array.copy()
    execute(program_of(read("stencil")), inputs={"A": array})
    assert np.array_equal(array, before)


# Random nests


def text_of(nest: Nest) -> str:
    """Its text, with the real number that some leave free as an argument."""
    head, _, body = nest.source.partition("\n")
    if head.startswith("def") and "alpha" in body and "alpha" not in head:
        return nest.source.replace("(", "(alpha, ", 1)
    return nest.source


def nest_program(nest: Nest) -> Program:
    """The nest as a Program; a subscript that two branches set differently is no listing."""
    try:
        return program_of(text_of(nest))
    except ListingError as error:
        assume(any(not isinstance(mistake, WrittenIndexArray) for mistake in error.mistakes))
        raise


def native_of(nest: Nest, program: Program, seed: int) -> tuple[Outputs, Outputs]:
    """What the executor computes, and what the text computes, on the same inputs."""
    made = prepare(program, nest.sizes, nest.arrays, seed)
    values = {**made.integers, **made.reals, **made.arrays}
    # Its sizes are given, so no annotation has to say them.
    source = re.sub(r': Int\[Array, "[^"]*"(, "[^"]*")?\]', "", text_of(nest))
    if not source.startswith("def"):
        body = "".join(f"    {line}\n" for line in source.splitlines())
        source = f"def nest({', '.join(values)}):\n{body}"
    return execute_on(program, made), run_native(source, None, **values)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(nest=nests(), seed=st.integers(0, 9))
def test_a_random_nest_means_what_its_text_means(nest: Nest, seed: int) -> None:
    assert_same_bits(*native_of(nest, nest_program(nest), seed))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(nest=nests(data_guards=True, opaque=True), seed=st.integers(0, 9))
def test_a_random_nest_on_data_means_what_its_text_means(nest: Nest, seed: int) -> None:
    assert_same_bits(*native_of(nest, nest_program(nest), seed))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(nest=nests(opaque=True), seed=st.integers(0, 9))
def test_random_integers_keep_a_random_nest_inside(nest: Nest, seed: int) -> None:
    program = nest_program(nest)
    assume(any(array.element == "int" for array in program.arrays))
    execute(program, sizes=nest.sizes, seed=seed)


# Single statements


@pytest.mark.parametrize(
    "body",
    [
        "y[i] = x[i] / 0.0 + (0 / 3)",
        "y[i] = max(x[i], 0.5) - min(x[i], i)",
        "y[i] = x[i] if x[i] > 0.0 and i > 0 else -x[i - 1] if i > 0 else 2",
        "y[i] = where(x[i] > 0.0, x[i], 0)",
        "y[i] = abs(x[i]) ** 0.5 + 2 ** i + x[i] ** 2",
        "y[i] = x[i] // 0.3 + x[i] % 0.3 + (i - 3) // 2 + (i - 3) % 2",
        "y[i] = exp(x[i]) + exp2(x[i]) + tanh(x[i]) + sin(x[i]) * cos(x[i])",
        "y[i] = log(abs(x[i])) + log2(abs(x[i])) + sqrt(abs(x[i])) + exp(i)",
        "y[i] = sum(x[e] for e in range(N) if e != i)",
        "y[i] = sum(x[e] * x[f] for e in range(i) for f in range(e, N))",
        "y[i] = max(x[e] for e in range(i + 1)) + min(x[e] for e in range(i, N))",
        "y[i] = int(10 * x[i]) + float(i)",
        "y[i] = (x[i] > 0.0) * 2.5",
        "y[i] = i / 3 + -i",
    ],
)
def test_a_statement_means_what_its_text_means(body: str) -> None:
    text = 'def f(x: Float[Array, "N"]):\n    y = zeros(N)\n    for i in range(N):\n'
    text += f"        {body}\n    return y\n"
    x = np.array([0.3, -1.7, 2.5, -0.1, 0.0])
    native = run_native(text, None, x=x) if "/ 0.0" not in body else None
    found = execute(program_of(text), inputs={"x": x})
    if native is not None:
        assert_same_bits(found, native)
    else:
        assert found["y"].tolist()[:4] == [math.inf, -math.inf, math.inf, -math.inf]
        assert math.isnan(found["y"][4])


def test_a_maximum_keeps_its_first_argument_unless_the_other_is_greater() -> None:
    text = 'def f(x: Float[Array, "N"]):\n    s = -0.0\n    t = inf - inf\n    for i in range(N):\n'
    text += "        s = max(s, x[i])\n        t = max(t, x[i])\n    return s, t\n"
    outputs = execute(program_of(text), inputs={"x": [0.0]})
    assert math.copysign(1.0, outputs["s"]) == -1.0
    assert math.isnan(outputs["t"])
    assert outputs["s"].shape == ()


ROWS = """
def f(A: Float[Array, "M N"], b: Float[Array, "N"]):
    C = zeros((M, N))
    t = zeros(M)
    T = zeros((N, M))
    for i in range(M):
        r = A[i] * 2.0 + b
        C[i] = exp(r) if i > 0 else 1.0
        t[i] = sum(r) + max(A[i]) + r @ b
        T[:, i] = -r
        T[0, :] = 0.5
    D = C.copy()
    return C, t, T, D
"""


def test_rows_work_cell_by_cell() -> None:
    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((3, 4)), rng.standard_normal(4)
    C, t, T, D = execute(program_of(ROWS), inputs={"A": A, "b": b}).values()
    r = A * 2.0 + b
    assert_allclose(C, np.where(np.arange(3)[:, None] > 0, np.exp(r), 1.0))
    assert_allclose(t, r.sum(1) + A.max(1) + r @ b)
    assert_allclose(T[1:], -r.T[1:])
    assert np.all(T[0] == 0.5)
    assert np.array_equal(D, C)


def test_several_targets_are_written_after_all_values_are_read() -> None:
    text = "def f(a, b):\n    for i in range(N):\n        a[i], b[i] = b[i], a[i]\n"
    outputs = execute(program_of(text), inputs={"a": [1.0, 2.0], "b": [3.0, 4.0]}, sizes={"N": 2})
    assert {name: values.tolist() for name, values in outputs.items()} == {
        "a": [3.0, 4.0],
        "b": [1.0, 2.0],
    }


def test_a_creation_in_a_loop_starts_afresh_and_empty_shows() -> None:
    text = (
        "def f(x):\n    y = zeros(N)\n    z = empty(N)\n    for i in range(N):\n"
        "        t = zeros(N)\n        t[i] = t[i] + x[i]\n        y[i] = sum(t)\n    return y, z\n"
    )
    outputs = execute(program_of(text), inputs={"x": [1.0, 2.0]}, sizes={"N": 2})
    assert outputs["y"].tolist() == [1.0, 2.0]
    assert np.all(np.isnan(outputs["z"]))


def test_negative_steps_run_downward() -> None:
    text = (
        "def f(x):\n    for i in range(N - 2, -1, -1):\n        x[i] = x[i] + x[i + 1]\n"
        "    for i in range(N - 1, 0, -2):\n        x[i] = -x[i]\n"
    )
    x = np.arange(1.0, 6.0)
    outputs = execute(program_of(text), inputs={"x": x}, sizes={"N": 5})
    assert outputs["x"].tolist() == [15.0, 14.0, -12.0, 9.0, -5.0]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_every_operation_rounds_to_the_type(dtype: str) -> None:
    text = 'def f(x: Float[Array, "N"]):\n    s = 0.0\n    for i in range(N):\n'
    text += "        s = s + x[i] * 0.1 / (i + 1)\n    return s\n"
    x = np.random.default_rng(0).standard_normal(9)
    real = np.dtype(dtype).type
    total = real(0)
    for i in range(9):
        total = total + real(x[i]) * real(0.1) / real(i + 1)
    found = execute(program_of(text), inputs={"x": x}, dtype=dtype)["s"]
    assert found.dtype == dtype
    assert found == total


def test_an_output_never_set_is_an_error() -> None:
    text = "def f(x):\n    for i in range(N):\n        s = x[i]\n    return s\n"
    with pytest.raises(NotYetSet, match="output 's' is never set"):
        execute(program_of(text), sizes={"N": 0})


# Errors at a place


def failing(text: str, **given: Any) -> ExecutionError:
    with pytest.raises(ExecutionError) as caught:
        execute(program_of(text), **given)
    return caught.value


def test_a_negative_subscript_does_not_wrap() -> None:
    text = "def f(x, y):\n    for i in range(N):\n        y[i] = x[i - 1]  # S1: left\n"
    error = failing(text, sizes={"N": 3}, inputs={"x": np.ones(3)})
    assert isinstance(error, SubscriptOutside)
    shown = error.render(program_of(text).source)
    assert "x[-1] is outside the array: subscript 0 is -1, which is negative" in shown
    assert "listing.py:3:9 | y[i] = x[i - 1]" in shown
    assert "in S1 at i=0: x has the shape (3,)" in shown
    assert "help:" in shown


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("A[i, j] = 0.0", r"A\[0, 2\] is outside the array: subscript 1 is 2.*not below 2"),
        ("x[j] = A[j, i]", r"A\[2, 0\]"),
        ("A[j] = 0.0", r"A\[2, :\]"),
        ("x[0] = sum(A[j])", r"A\[2, :\]"),
        ("x[j + 7] = 0.0", r"x\[7\] is outside"),
    ],
)
def test_a_subscript_too_large_is_an_error(statement: str, message: str) -> None:
    text = 'def f(A: Float[Array, "M M"], x: Float[Array, "L"]):\n    for i in range(M):\n'
    text += f"        for j in range(3):\n            {statement}\n"
    with pytest.raises(SubscriptOutside, match=message):
        execute(program_of(text), inputs={"A": np.ones((2, 2)), "x": np.ones(3)})


def test_a_scalar_read_before_it_is_set() -> None:
    text = (
        "def f(x):\n    for i in range(N):\n        if i > 0:\n            x[i] = s\n"
        "        if x[i] > 1.0:\n            s = x[i]\n"
    )
    error = failing(text, sizes={"N": 3}, inputs={"x": [0.0, 0.0, 0.0]})
    assert isinstance(error, NotYetSet)
    assert "'s' is read before anything has set it" in error.message
    assert "at i=1" in error.why


def test_an_index_divided_by_zero() -> None:
    text = "def f(x):\n    for i in range(N):\n        x[i // R] = 1.0\n"
    error = failing(text, sizes={"N": 2, "R": 0}, inputs={"x": [0.0]})
    assert isinstance(error, IndexDividedByZero)
    assert "in S1 at i=0" in error.why


def test_a_loop_bound_outside_its_array() -> None:
    text = 'def f(n: Int[Array, "B"], x):\n    for b in range(B):\n'
    text += "        for j in range(n[b + 1]):\n            x[j] = 1.0\n"
    error = failing(text, inputs={"n": [1, 1], "x": [0.0, 0.0]})
    assert isinstance(error, SubscriptOutside)
    assert "the bounds of loop j at b=1" in error.why


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("x[i] = max(x[e] for e in range(0))", "max of nothing"),
        ("x[i] = x @ y", "rows of different lengths are combined: 2 and 3"),
        ("x[i] = int(x[i] / 0.0)", "is no integer"),
    ],
)
def test_an_operation_without_a_value(statement: str, message: str) -> None:
    # Nothing says how long a row of y is.
    text = f"def f(x, y):\n    for i in range(N):\n        {statement}\n"
    other = [1.0, 2.0, 3.0] if "y" in statement else 0.0
    with pytest.raises(NoValue, match=message):
        execute(program_of(text), sizes={"N": 2}, inputs={"x": [1.0, 2.0], "y": other})


def test_rows_that_are_combined_have_one_length() -> None:
    text = 'def f(x: Float[Array, "N"], y: Float[Array, "M"]):\n    for i in range(N):\n'
    program = program_of(f"{text}        x[i] = sum(x + y)\n")
    with pytest.raises(ContractViolated, match="N == M"):
        execute(program, inputs={"x": [1.0, 2.0], "y": [1.0, 2.0, 3.0]})


def test_nothing_of_a_listing_is_executed() -> None:
    code = (
        "import builtins, sys\nimport numpy.random\nimport looptrans.executor.run\n"
        "from looptrans.frontend import parse\nfrom looptrans.ir.source import Source\n"
        "program = parse(Source('f.py', 'for i in range(N):\\n    x[i] = 2 * i\\n'))\n"
        "def refuse(*_): raise AssertionError\n"
        "builtins.eval = builtins.exec = builtins.compile = refuse\n"
        "print(looptrans.executor.run.execute(program, sizes={'N': 2})['x'].tolist())\n"
        "print(sorted({'islpy', 'sympy', 'torch', 'triton'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[0.0, 2.0]\n[]\n"
