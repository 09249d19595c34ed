"""Sizes and inputs: given, inferred, made up under contracts, and refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from looptrans.executor import execute, prepare
from looptrans.executor.errors import (
    ContractViolated,
    InputMismatch,
    NoInputsFound,
    SubscriptOutside,
)
from looptrans.executor.sizes import OTHER_VALUES
from tests.test_executor import failing, program_of
from tests.test_specs_native import read

SHAPED = (
    'def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], n: Int[Array, "M+1", "0:9"], scale):\n'
)
SHAPED += "    for i in range(M):\n        Q[i, 0] = K[0, 0] + scale\n"


@pytest.mark.parametrize(
    ("given_sizes", "given_inputs", "message"),
    [
        (
            {},
            {"Q": np.ones((2, 3)), "K": np.ones((4, 5))},
            "E is 3 by dimension 1 of Q, and 5 by dimension 1 of K",
        ),
        ({"M": 4}, {"Q": np.ones((2, 3))}, "M is 4 by what is given, and 2 by dimension 0 of Q"),
        ({"M": 4}, {"n": np.ones(4, int)}, "should be M . 1 = 5|M is 4 by what is given, and 3"),
        ({}, {"Q": np.ones(3)}, "Q has 2 dimensions in the listing, and 1"),
        ({}, {"Q": np.ones((2, 2), complex)}, "array of complex128"),
        ({}, {"n": [0.5, 1.0]}, "not all given numbers are whole"),
        ({}, {"n": [0, 9]}, r"n\[1\] is 9, outside the declared range 0:9"),
        ({"Z": 1}, {}, "'Z' is given, and is no argument or size of f"),
        ({"M": -1}, {}, "an extent of .* is -1"),
        ({"M": 1}, {"M": 2}, "given twice"),
        ({}, {"M": [1, 2]}, "M is a number"),
        ({}, {"M": 1.5}, "M is an integer"),
        ({"M": float("inf")}, {}, "M is an integer, and inf is given"),
        ({"M": float("nan")}, {}, "M is an integer, and nan is given"),
        ({"M": 10**20}, {}, "more than 64 bits"),
    ],
)
def test_inputs_that_do_not_fit(
    given_sizes: dict[str, int], given_inputs: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputMismatch, match=message):
        execute(program_of(SHAPED), sizes=given_sizes, inputs=given_inputs)


def test_sizes_come_from_the_shapes() -> None:
    made = prepare(program_of(SHAPED), {}, {"n": np.ones(4, int), "K": np.ones((2, 6))})
    assert {name: made.integers[name] for name in "MNE"} == {"M": 3, "N": 2, "E": 6}
    assert made.arrays["Q"].shape == (3, 6)


def test_sizes_nobody_gives_are_small_and_different() -> None:
    made = prepare(program_of(read("flash_forward")))
    assert made.integers == {"M": 4, "E": 5, "N": 6, "D": 7}


@pytest.mark.parametrize(
    "contract", ["H == G * R", "H % R == 0 and H > R + G", "G * R <= H", "H == 2 * G and R == 3"]
)
def test_sizes_nobody_gives_satisfy_the_contracts(contract: str) -> None:
    text = f"def f(x):\n    assert {contract}\n    for h in range(H):\n        x[h] = G + R\n"
    execute(program_of(text))


def test_an_extent_that_is_divided_comes_out_whole() -> None:
    text = 'def f(Q: Float[Array, "H D"], K: Float[Array, "H//R D"]):\n    for h in range(H):\n'
    program = program_of(text + "        Q[h, 0] = K[h // R, 0]\n")
    made = prepare(program).integers
    assert made["H"] % made["R"] == 0
    assert made["H"] >= made["R"] > 0
    execute(program)
    assert prepare(program, {"H": 5, "R": 2}).arrays["K"].shape[0] == 2


def test_what_a_subscript_is_divided_by_comes_out_whole() -> None:
    text = 'def f(Q: Float[Array, "H"], K: Float[Array, "G"]):\n    for h in range(H):\n'
    program = program_of(text + "        Q[h] = K[h // (H // G)]\n")
    each: tuple[dict[str, int], ...] = ({}, {"H": 5}, {"G": 3})
    for given in each:
        made = prepare(program, given).integers
        assert made["H"] % made["G"] == 0
        assert made["H"] >= made["G"] > 0
        execute(program, sizes=given)


def test_no_small_sizes() -> None:
    text = "def f(x):\n    assert H == 1000000\n    for h in range(H):\n        x[h] = 1.0\n"
    with pytest.raises(NoInputsFound, match="no small values of H"):
        execute(program_of(text))
    assert 1000000 not in OTHER_VALUES


def test_a_size_that_the_others_determine() -> None:
    text = """
def f(x: Float[Array, "L"], w: Float[Array, "K"]):
    assert L == T + 3 * K and T == 2 * U
    for t in range(T):
        for k in range(K):
            x[t + 3 * k] = w[k]
"""
    made = prepare(program_of(text), {"U": 51, "K": 37}).integers
    assert (made["T"], made["L"]) == (102, 213)
    assert prepare(program_of(text), {"L": 213, "K": 37}).integers["U"] == 51


def test_sizes_that_have_nothing_to_do_with_each_other_are_found_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many others there are, those of a contract are looked for by themselves."""
    monkeypatch.setattr("looptrans.executor.sizes.MOST_TRIES", 400)
    free = [f"n{each}" for each in range(12)]
    text = f'def f(x: Float[Array, "H"], {", ".join(f"{n}: int" for n in free)}):\n'
    text += "    assert H == G * R\n    for h in range(H):\n        x[h] = G + R\n"
    program = program_of(text)
    made = prepare(program, {"H": 15, "R": 3}).integers
    assert (made["G"], made["R"]) == (5, 3)
    assert len({made[name] for name in free}) == len(free)
    with pytest.raises(
        NoInputsFound, match=r"no small values of G, R satisfy assert H == G \* R"
    ) as caught:
        prepare(program, {"H": 1009})
    assert caught.value.remedy.endswith("or other values of H")


def test_a_parameter_takes_its_default() -> None:
    text = 'def f(x: Float[Array, "N"], eps: float = 0.25, scale: float = 2):\n'
    text += "    for i in range(N):\n        x[i] = eps * scale\n"
    program = program_of(text)
    assert execute(program)["x"].tolist() == [0.5] * 4
    assert execute(program, inputs={"eps": np.array(1.5)}, sizes={"N": 1})["x"].tolist() == [3.0]


def test_the_extent_of_an_array_is_a_size() -> None:
    text = "def f(x):\n    for i in range(x.shape[0]):\n        x[i] = i\n"
    program = program_of(text)
    assert execute(program, inputs={"x": np.ones(3)})["x"].tolist() == [0.0, 1.0, 2.0]
    assert execute(program)["x"].shape == (4,)


def test_arrays_of_unknown_shape_hold_all_that_is_touched() -> None:
    text = (
        "def f(A, Q, K, x):\n    for i in range(N):\n        for j in range(i, 2 * N):\n"
        "            A[j - i, i + 2] = x[j] + Q[i] @ K[j]\n"
    )
    made = prepare(program_of(text), {"N": 3})
    shapes = {name: values.shape for name, values in made.arrays.items()}
    assert shapes == {"A": (6, 5), "Q": (3, 4), "K": (6, 4), "x": (6,)}


CONTRACTS = {
    "monotone": ('"B+1"', "all(a[b] <= a[b + 1] for b in range(B))"),
    "strict": ('"B"', "all(a[b] < a[b + 1] for b in range(B - 1))"),
    "injective": ('"B"', "all(a[b] != a[c] for b in range(B) for c in range(b))"),
    "injective by a condition": (
        '"B"',
        "all(a[b] != a[c] for b in range(B) for c in range(B) if b != c)",
    ),
    "bounded": ('"B"', "all(2 <= a[b] and a[b] < 4 for b in range(B))"),
    "bounded by another": ('"B", "0:9"', "all(a[b] <= b for b in range(B))"),
    "ends": ('"B+1"', "all(a[b] <= a[b + 1] for b in range(B)) and a[0] == 0 and a[B] == N"),
}


@pytest.mark.parametrize("name", CONTRACTS)
@pytest.mark.parametrize("seed", range(4))
def test_random_integers_satisfy_the_contracts(name: str, seed: int) -> None:
    shape, condition = CONTRACTS[name]
    parts = condition.split(" and a[") if name == "ends" else [condition]
    lines = [parts[0], *(f"a[{part}" for part in parts[1:])]
    text = f'def f(a: Int[Array, {shape}], x: Float[Array, "N"]):\n'
    text += "".join(f"    assert {line}\n" for line in lines)
    text += "    for b in range(B):\n        for j in range(N):\n            x[j] = x[j] + a[b]\n"
    program = program_of(text)
    for sizes in ({"B": 3, "N": 5}, {"B": 1, "N": 7}, {"B": 6, "N": 8}):
        made = prepare(program, sizes, seed=seed)
        assert all(eval(line, {"a": made.arrays["a"].tolist(), **sizes}) for line in lines)


def test_random_subscripts_stay_inside() -> None:
    text = (
        'def f(cu: Int[Array, "B+1"], page: Int[Array, "B T"], K: Float[Array, "N D"]):\n'
        "    assert all(cu[b] <= cu[b + 1] for b in range(B))\n"
        "    for b in range(B):\n        for j in range(cu[b], cu[b + 1]):\n"
        "            for t in range(T):\n                K[j, 0] = K[page[b, t], 0]\n"
    )
    program = program_of(text)
    for seed in range(10):
        execute(program, seed=seed)
        execute(program, seed=seed, sizes={"B": 2, "N": 50, "T": 1, "D": 1})


def test_integers_that_cannot_be_found() -> None:
    text = 'def f(a: Int[Array, "B", "0:2"], x):\n'
    text += "    assert all(a[b] != a[c] for b in range(B) for c in range(b))\n"
    text += "    for b in range(B):\n        x[a[b]] = 1.0\n"
    with pytest.raises(NoInputsFound) as caught:
        execute(program_of(text), sizes={"B": 4})
    assert "--inputs" in caught.value.remedy


def test_a_violated_contract_shows_the_values() -> None:
    text = 'def f(cu: Int[Array, "B+1"], x):\n'
    text += "    assert all(cu[b] <= cu[b + 1] for b in range(B))\n"
    text += "    for b in range(B):\n        x[cu[b]] = 1.0\n"
    error = failing(text, inputs={"cu": [0, 3, 2], "x": np.ones(4)})
    assert isinstance(error, ContractViolated)
    assert error.span is not None and error.span.line == 2
    assert error.why == "for b=1, cu[b]=3, cu[b + 1]=2"
    size = "def f(x):\n    assert H == G * R\n    for h in range(H):\n        x[h] = G + R\n"
    error = failing(size, sizes={"H": 5, "G": 2, "R": 2})
    assert error.why == "for H=5, G=2, R=2"


def test_a_contract_that_asks_outside_an_array() -> None:
    text = 'def f(cu: Int[Array, "B"], x):\n'
    text += "    assert all(cu[b] <= cu[b + 1] for b in range(B))\n"
    text += "    for b in range(B):\n        x[cu[b]] = 1.0\n"
    error = failing(text, inputs={"cu": [0, 1], "x": np.ones(4)})
    assert isinstance(error, SubscriptOutside)


@pytest.mark.parametrize("kind", ["T", "T: Const", "T: int"])
def test_a_size_that_only_an_annotation_mentions(kind: str) -> None:
    text = f'def f(x, p: Int[Array, "B", "0:T"], {kind}):\n'
    text += "    for b in range(B):\n        x[p[b]] = T\n"
    program = program_of(text)
    assert program.parameter("T").is_integer
    assert set(execute(program, sizes={"T": 3})["x"].tolist()) >= {3.0}


def test_made_up_sizes_leave_no_range_of_values_empty() -> None:
    text = (
        'def f(x, p: Int[Array, "B", "0:T//Z"]):\n    for b in range(B):\n        x[p[b]] = 1.0\n'
    )
    made = prepare(program_of(text))
    assert made.integers["T"] // made.integers["Z"] > 0


def test_sizes_that_do_not_fit_each_other_are_found_before_integers_are_drawn() -> None:
    """No integers make up for them, and the message is about the sizes."""
    program = program_of(
        'def f(K: Float[Array, "C G"], page: Int[Array, "B", "0:C"], H: int, R: int):\n'
        "    assert H == G * R\n"
        "    for b in range(B):\n        for h in range(H):\n            K[page[b], h // R] = 1.0\n"
    )
    with pytest.raises(ContractViolated, match=r"contract H == G \* R"):
        prepare(program, {"C": 2, "B": 3, "H": 4, "G": 2, "R": 1})
