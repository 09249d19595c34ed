"""The listings in `specs/`, run as plain Python, against the mathematics they claim to compute."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests import references
from tests.native import run_native

SPECS = Path(__file__).parent.parent / "specs"

Inputs = dict[str, Any]

# Extents that differ from one another, with single elements and empty ranges where they make sense.
ATTENTION_SIZES = [
    {"M": 2, "N": 3, "D": 2, "E": 4},
    {"M": 3, "N": 7, "D": 1, "E": 2},
    {"M": 5, "N": 1, "D": 3, "E": 1},
    {"M": 4, "N": 6, "D": 3, "E": 5},
    {"M": 3, "N": 0, "D": 2, "E": 2},
    {"M": 0, "N": 2, "D": 2, "E": 2},
    {"M": 2, "N": 4, "D": 0, "E": 3},
]
MATMUL_SIZES = [
    {"M": 2, "N": 3, "K": 4},
    {"M": 5, "N": 1, "K": 7},
    {"M": 1, "N": 6, "K": 1},
    {"M": 3, "N": 2, "K": 0},
]
ROW_SIZES = [{"M": 2, "N": 3}, {"M": 5, "N": 1}, {"M": 3, "N": 7}, {"M": 0, "N": 4}]
LABEL_SIZES = [{"N": 2, "V": 3}, {"N": 5, "V": 1}, {"N": 4, "V": 7}, {"N": 0, "V": 2}]
LINE_SIZES = [{"N": n} for n in (0, 1, 2, 3, 4, 7)]


def read(spec: str) -> str:
    return (SPECS / f"{spec}.py").read_text()


def attention_inputs(rng: np.random.Generator, *, M: int, N: int, D: int, E: int) -> Inputs:
    """Scores of a few units, so that the maximum moves and a wrong rescaling is seen."""
    return {
        "Q": 2 * rng.standard_normal((M, E)),
        "K": rng.standard_normal((N, E)),
        "V": rng.standard_normal((N, D)),
    }


def matmul_inputs(rng: np.random.Generator, *, M: int, N: int, K: int) -> Inputs:
    return {
        "A": rng.standard_normal((M, K)),
        "B": rng.standard_normal((K, N)),
        "bias": rng.standard_normal(N),
    }


def softmax_inputs(rng: np.random.Generator, *, M: int, N: int) -> Inputs:
    return {"X": 3 * rng.standard_normal((M, N))}


def cross_entropy_inputs(rng: np.random.Generator, *, N: int, V: int) -> Inputs:
    return {"X": 3 * rng.standard_normal((N, V)), "y": rng.integers(0, V, N)}


def wide_cross_entropy_inputs(rng: np.random.Generator, *, N: int, V: int) -> Inputs:
    X, W = rng.standard_normal((N, 513)), rng.standard_normal((V, 513))
    return {"X": X, "W": W / 8, "y": rng.integers(0, V, N)}


def rmsnorm_inputs(rng: np.random.Generator, *, M: int, N: int) -> Inputs:
    return {"X": rng.standard_normal((M, N)), "w": rng.standard_normal(N), "eps": 1e-3}


def layernorm_inputs(rng: np.random.Generator, *, M: int, N: int) -> Inputs:
    return rmsnorm_inputs(rng, M=M, N=N) | {"b": rng.standard_normal(N)}


def stencil_inputs(rng: np.random.Generator, *, N: int) -> Inputs:
    return {"A": rng.standard_normal((N, N))}


def prefix_sum_inputs(rng: np.random.Generator, *, N: int) -> Inputs:
    return {"x": rng.standard_normal(N)}


def eight_bits_inputs(rng: np.random.Generator, *, M: int, N: int, D: int, E: int) -> Inputs:
    """Two batches of one head: integers of eight bits, and a scale for each row of them."""
    return {
        "Q": 2 * rng.standard_normal((2, 1, M, E)),
        "K": rng.integers(-128, 128, (2, 1, N, E)),
        "K_scale": rng.random((2, 1, N)) / 60,
        "V": rng.integers(-128, 128, (2, 1, N, D)),
        "V_scale": rng.standard_normal((2, 1, N)) / 60,
        "scale": 0.7,
    }


def eight_bits(*, scale: float, **given: Any) -> references.Outputs:
    """Attention of keys and values worked out from what they are kept in."""
    K, V = (given[name] * given[f"{name}_scale"][..., None] for name in "KV")
    rows = [
        references.attention(Q=scale * given["Q"][b, 0], K=K[b, 0], V=V[b, 0]) for b in range(2)
    ]
    with np.errstate(divide="ignore"):
        lse = [row["m"] + np.log(row["l"]) for row in rows]
    return {"O": np.stack([row["O"] for row in rows])[:, None], "lse": np.stack(lse)[:, None]}


Sizes = dict[str, int]
Reference = Callable[..., references.Outputs]

# spec -> (inputs, sizes, reference, the names of its outputs in order)
CASES: dict[str, tuple[Callable[..., Inputs], list[Sizes], Reference, list[str]]] = {
    "attention_naive": (attention_inputs, ATTENTION_SIZES, references.attention, ["O"]),
    "flash_forward": (attention_inputs, ATTENTION_SIZES, references.attention, ["O", "m", "l"]),
    "attention_eight_bits": (eight_bits_inputs, ATTENTION_SIZES, eight_bits, ["O", "lse"]),
    "matmul": (matmul_inputs, MATMUL_SIZES, references.matmul, ["C"]),
    "stencil": (stencil_inputs, LINE_SIZES, references.stencil, ["A"]),
    "softmax": (softmax_inputs, ROW_SIZES, references.softmax, ["Y"]),
    "softmax_cross_entropy": (
        cross_entropy_inputs,
        LABEL_SIZES,
        references.softmax_cross_entropy,
        ["loss"],
    ),
    "linear_cross_entropy": (
        wide_cross_entropy_inputs,
        LABEL_SIZES,
        references.linear_cross_entropy,
        ["loss"],
    ),
    "rmsnorm": (rmsnorm_inputs, ROW_SIZES, references.rmsnorm, ["Y"]),
    "layernorm": (layernorm_inputs, ROW_SIZES, references.layernorm, ["Y"]),
    "prefix_sum": (prefix_sum_inputs, LINE_SIZES, references.prefix_sum, ["P"]),
}
AS_PRINTED = "flash_forward_as_printed"


def each_case() -> list[Any]:
    return [
        pytest.param(spec, sizes, id=f"{spec}-{'-'.join(f'{k}{v}' for k, v in sizes.items())}")
        for spec, (_, all_sizes, _, _) in CASES.items()
        for sizes in all_sizes
    ]


@pytest.mark.parametrize(("spec", "sizes"), each_case())
def test_a_spec_computes_its_reference(spec: str, sizes: dict[str, int]) -> None:
    make_inputs, _, reference, names = CASES[spec]
    for seed in range(3):
        inputs = make_inputs(np.random.default_rng(seed), **sizes)
        outputs = run_native(read(spec), spec, **inputs)
        expected = reference(**inputs)
        assert list(outputs) == names
        for name in names:
            assert_allclose(outputs[name], expected[name], rtol=1e-12, atol=1e-12)


def test_every_spec_is_tested() -> None:
    assert {path.stem for path in SPECS.glob("*.py")} >= {*CASES, AS_PRINTED}


# Scores 0, 1, 2, … in every row: the maximum moves at each step, so a missing factor shows.
def rising_scores(*, M: int, N: int, D: int) -> Inputs:
    rng = np.random.default_rng(0)
    return {
        "Q": np.ones((M, 1)),
        "K": np.arange(float(N))[:, None],
        "V": rng.standard_normal((N, D)),
    }


@pytest.mark.parametrize("D", [1, 2, 3])
def test_flash_forward_is_attention_when_the_maximum_moves(D: int) -> None:
    inputs = rising_scores(M=2, N=5, D=D)
    outputs = run_native(read("flash_forward"), None, **inputs)
    for name, expected in references.attention(**inputs).items():
        assert_allclose(outputs[name], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("D", [1, 2, 3])
def test_as_printed_read_literally_counts_every_key_once_for_each_d(D: int) -> None:
    inputs = rising_scores(M=2, N=5, D=D)
    printed = run_native(read(AS_PRINTED), None, **inputs)
    expected = references.attention(**inputs)
    assert list(printed) == ["O", "m", "l"]
    assert_allclose(printed["m"], expected["m"])
    assert_allclose(printed["l"], D * expected["l"], rtol=1e-12)
    assert np.abs(printed["O"] - expected["O"]).max() > 1e-2


def with_printed_s10() -> str:
    """`flash_forward` with the printed S10, so with every statement where it belongs."""
    right, printed = " * exp(m_i - m_ij) / l_ij + exp(S_ij", " / l_ij + exp(S_ij"
    source = read("flash_forward")
    assert source.count(right) == 1
    return source.replace(right, printed)


def test_the_printed_s10_is_not_attention_even_in_the_right_place() -> None:
    inputs = rising_scores(M=2, N=5, D=2)
    outputs = run_native(with_printed_s10(), None, **inputs)
    expected = references.attention(**inputs)
    assert_allclose(outputs["m"], expected["m"])
    assert_allclose(outputs["l"], expected["l"], rtol=1e-12)
    assert np.abs(outputs["O"] - expected["O"]).max() > 1e-2


def test_the_printed_s10_goes_unnoticed_while_the_first_score_is_the_largest() -> None:
    inputs = rising_scores(M=2, N=5, D=2)
    inputs["K"] = inputs["K"][::-1]
    outputs = run_native(with_printed_s10(), None, **inputs)
    assert_allclose(outputs["O"], references.attention(**inputs)["O"], rtol=0, atol=1e-12)


def statement_text(spec: str) -> dict[str, str]:
    """Label -> statement, of a listing's loop nest."""
    source = read(spec)
    lines = source.splitlines()
    (function,) = ast.parse(source).body
    labels: dict[str, str] = {}
    for loop in (node for node in ast.walk(function) if isinstance(node, ast.For)):
        for node in (n for n in ast.walk(loop) if isinstance(n, (ast.Assign, ast.AugAssign))):
            label = re.search(r"# (S\d+): ", lines[node.lineno - 1])
            assert label, f"{spec}: no label on line {node.lineno}"
            text = labels.setdefault(label[1], ast.unparse(node))
            assert text == ast.unparse(node), f"{spec}: {label[1]} twice"
    return labels


@pytest.mark.parametrize("spec", [*CASES, AS_PRINTED])
def test_every_statement_has_a_label_in_textual_order(spec: str) -> None:
    found = re.findall(r"# S(\d+): ", read(spec))
    assert found == [str(n + 1) for n in range(len(found))]
    assert len(statement_text(spec)) == len(found)


def test_flash_forward_has_the_printed_statements_except_for_s10() -> None:
    right, printed = statement_text("flash_forward"), statement_text(AS_PRINTED)
    assert {label for label in printed if right[label] != printed[label]} == {"S10"}
    assert len(printed) == 13


def operands(expression: ast.expr) -> list[tuple[str, tuple[str, ...]]]:
    """What an expression reads, in order: a name, and the loops it depends on.

    Those of `O[i, d]` are its subscripts, those of a local are in its name: `S_ij` is (i, j).
    """
    match expression:
        case ast.Name(id=name):
            return [(name, tuple(name.partition("_")[2]))]
        case ast.Subscript(value=ast.Name(id=name), slice=index):
            return [(name, tuple(n.id for n in ast.walk(index) if isinstance(n, ast.Name)))]
        case ast.Call(args=parts):
            return [operand for part in parts for operand in operands(part)]
        case ast.BinOp(left=left, right=right):
            return operands(left) + operands(right)
    raise AssertionError(ast.unparse(expression))


def as_claim(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"({', '.join(items)})"


@pytest.mark.parametrize("label", [f"S{n}" for n in range(1, 14)])
def test_flash_forward_claims_agree_with_the_statement(label: str) -> None:
    """SLoop has an entry for each operand in order, RAW names those that the nest writes."""
    (statement,) = ast.parse(statement_text("flash_forward")[label]).body
    assert isinstance(statement, ast.Assign)
    reads = operands(statement.value)
    (comment,) = re.findall(rf"# {label}: (.*)", read("flash_forward"))

    raw = re.search(r"# RAW on (.*)$", comment)
    claimed = re.split(r",? and |, ", raw[1]) if raw else []
    assert claimed == [name for name, _ in reads if name not in ("Q", "K", "V")]

    if label in ("S11", "S12", "S13"):
        assert comment.startswith("Aggregation over j")
    else:
        sloop = as_claim([as_claim(list(loops)) for _, loops in reads])
        assert comment.startswith(f"No self dependency: [SLoop: {sloop}, TLoop: ")


@pytest.mark.parametrize("spec", [*CASES, AS_PRINTED])
def test_a_spec_uses_only_the_listing_language(spec: str) -> None:
    tree = ast.parse(read(spec))
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)
    assert function.name == spec
    assert ast.get_docstring(function)
    assert not [node for node in ast.walk(tree) if isinstance(node, (ast.Attribute, ast.While))]


def test_run_native_leaves_the_callers_arrays_alone() -> None:
    inputs = stencil_inputs(np.random.default_rng(0), N=5)
    before = inputs["A"].copy()
    run_native(read("stencil"), "stencil", **inputs)
    assert np.array_equal(inputs["A"], before)


def test_run_native_takes_sizes_that_no_annotation_gives() -> None:
    source = "def f(x, y):\n    for i in range(N):\n        y[i] = 2 * x[i]\n"
    outputs = run_native(source, None, x=np.arange(3.0), y=np.ones(4), N=2)
    assert outputs["y"].tolist() == [0, 2, 1, 1]


def test_run_native_refuses_sizes_that_disagree() -> None:
    inputs = {"Q": np.zeros((2, 3)), "K": np.zeros((4, 2)), "V": np.zeros((4, 1))}
    with pytest.raises(ValueError, match="K: E is 3 elsewhere, 2 here"):
        run_native(read("flash_forward"), None, **inputs)
    with pytest.raises(ValueError, match="needs K, V"):
        run_native(read("flash_forward"), None, Q=np.zeros((2, 3)))
    with pytest.raises(ValueError, match="expected one function nothing"):
        run_native(read("flash_forward"), "nothing", **inputs)
