"""Arrays of which iterations write two cells, their own and its mirror image."""

from __future__ import annotations

import os
import re

os.environ.setdefault("TRITON_INTERPRET", "1")

import numpy as np
import pytest

from looptrans.adjoint.rewriting.mirrored import with_mirrors_apart
from looptrans.emit.listing import emitted
from looptrans.executor import execute
from looptrans.runtime.verifying.backward import verify_backward
from looptrans.runtime.verifying.verify import verify
from tests.analysis import program

GRAM = """
def gram(x: Float[Array, "N M"]):
    s = zeros((M, M))
    for i in range(M):
        for j in range({start}, {stop}):
            {first}
            for k in range(N):
                {own} += x[k, i] * x[k, j]
            {last}
    return s
"""
FORMS = {
    "of the array": {"first": "s[i, j] = 0.0", "own": "s[i, j]", "last": "s[j, i] = s[i, j]"},
    "of a number": {"first": "c = 0.0", "own": "c", "last": "s[i, j] = c; s[j, i] = c"},
    "minus": {"first": "c = 0.0", "own": "c", "last": "s[i, j] = c; s[j, i] = -c"},
    "mirror first": {"first": "c = 0.0", "own": "c", "last": "s[j, i] = c; s[i, j] = 2.0 * c"},
}
RANGES = {"above": ("i", "M"), "strictly above": ("i + 1", "M"), "below": ("0", "i + 1")}
SIZES = [{"N": 19, "M": 35}]


@pytest.mark.parametrize(
    "form, around",
    [*((form, "above") for form in FORMS), ("of the array", "strictly above"), ("minus", "below")],
)
def test_both_passes_are_right(form: str, around: str) -> None:
    start, stop = RANGES[around]
    listing = program(GRAM.format(start=start, stop=stop, **FORMS[form]))
    assert verify(listing, SIZES, ["float32", "float16"]).passed
    assert verify_backward(listing, SIZES, ["float32"]).passed


def test_a_number_goes_to_both_cells_from_one_kernel() -> None:
    """Threads wait in between: on the diagonal both are one cell."""
    made = emitted(program(GRAM.format(start="i", stop="M", **FORMS["minus"])))
    (kernel,) = made.blocks.kernels
    assert kernel.again == {"s"}
    stores = re.findall(r"# S3\n(.*?)tl\.store\(.*?# S4\n", made.text.split("@triton.jit")[1], re.S)
    assert stores
    assert all(between.strip().startswith("tl.debug_barrier()") for between in stores)


@pytest.mark.parametrize(
    "body",
    [
        "s[j, i] = x[i, j]\n            s[i, j] += 1.0",  # a cell is added to after its mirror
        "s[j, i] = x[i, j]\n            y[i, j] = s[i, j]",  # and is read
        "y[i, j] = y[j, i] + x[i, j]",  # by the statement itself, later
    ],
)
def test_what_is_touched_afterwards_stays_where_it_is(body: str) -> None:
    text = f"""
def f(x: Float[Array, "M M"], y: Float[Array, "M M"]):
    s = zeros((M, M))
    for i in range(M):
        for j in range(M):
            {body}
    return s, y
"""
    assert with_mirrors_apart(program(text)) is None


def test_the_nest_apart_means_the_same() -> None:
    for start, stop in RANGES.values():
        added = {"first": "c = 0.0", "own": "c", "last": "s[i, j] = c; s[j, i] += c"}
        for form in (*FORMS.values(), added):
            listing = program(GRAM.format(start=start, stop=stop, **form))
            found = with_mirrors_apart(listing)
            inputs = {"x": np.random.default_rng(0).standard_normal((4, 5))}
            sizes = {"N": 4, "M": 5}
            expected = execute(listing, sizes=sizes, inputs=inputs)["s"]
            assert found is not None
            np.testing.assert_array_equal(
                execute(found.program, sizes=sizes, inputs=inputs)["s"], expected
            )


def test_integers_stay_integers() -> None:
    """Beyond 2 ** 24 float32 has not all of them; labels are those of the listing."""
    text = """
def f(x: Int[Array, "M M"], s: Int[Array, "M M"]):
    for i in range(M):
        for j in range(i, M):
            s[i, j] = x[i, j]
            s[j, i] = s[i, j]
    return s
"""
    for each in (
        text,
        text.replace("= x[i, j]", "= x[i, j]  # S1").replace("s[i, j]\n", "s[i, j]  # S2\n"),
    ):
        found = with_mirrors_apart(program(each))
        assert found is not None
        assert found.program.array("s_kept").element == "int"
