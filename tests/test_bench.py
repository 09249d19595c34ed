"""`looptrans bench`: what is offered beside a listing, how much work it is, what is reported."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend

from looptrans.blocks.block_ir.expr import Dim
from looptrans.cli.main import main
from looptrans.ir.condition import Relation
from looptrans.ir.index import Arith, Extremum, Index, Int, Opaque, Param, Var
from looptrans.reports.bench import bench_json, bench_text
from looptrans.reports.bench_svg import bench_svg
from looptrans.runtime.benching import bench
from looptrans.runtime.benching import machine as bench_machine
from looptrans.runtime.benching import others as bench_others
from looptrans.runtime.benching import plan as bench_plan
from looptrans.runtime.benching.iterations import iterations
from looptrans.runtime.benching.recipe import Change, Mask, Recipe, viewed
from looptrans.runtime.benching.results import NO_MEMORY, Alike, Bench, Case, Product, Row
from looptrans.runtime.benching.search import dense, recipe_in, recipe_of, trials
from looptrans.runtime.benching.sizes import integers_of, usual_sets
from looptrans.runtime.executed.reference import reference_of
from looptrans.runtime.running.device import prepare_device
from tests.analysis import program, spec

prepare_device()  # parts of torch import triton too, and then it would not interpret

SPECS = Path(__file__).parent.parent / "specs"
Capture = pytest.CaptureFixture[str]

needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")

BATCH = {"B": 2, "H": 4, "E": 64, "D": 64}
SQUARE = {**BATCH, "M": 4096, "N": 4096}
WIDE = {**BATCH, "M": 4096, "N": 8192}

CAUSAL = """
def attend(X: Float[Array, "M E"], Y: Float[Array, "M E"], Z: Float[Array, "M D"]):
    S = zeros((M, M))
    m = full(M, -inf)
    l = zeros(M)
    R = zeros((M, D))
    for i in range(M):
        for j in range(i + 1):
            S[i, j] = sum(X[i, e] * Y[j, e] for e in range(E))
            m[i] = max(m[i], S[i, j])
        for j in range(i + 1):
            l[i] = l[i] + exp(S[i, j] - m[i])
        for j in range(i + 1):
            for d in range(D):
                R[i, d] = R[i, d] + exp(S[i, j] - m[i]) / l[i] * Z[j, d]
    return R
"""

# Heads behind rows, another order of arguments, no name of attention anywhere.
SCORES = """
def f({more}c: Float[Array, "N H D"], a: Float[Array, "M H E"], b: Float[Array, "N H E"]):
    s = zeros((H, M, N))
    t = full((H, M), -inf)
    u = zeros((H, M))
    r = zeros((M, H, D))
    for h in range(H):
        for i in range(M):
            for j in range({first}, {last}):
                s[h, i, j] = {score}
                t[h, i] = max(t[h, i], s[h, i, j])
            for j in range({first}, {last}):
                u[h, i] = u[h, i] + exp(s[h, i, j] - t[h, i])
            for j in range({first}, {last}):
                for d in range(D):
                    r[i, h, d] = r[i, h, d] + {weight} * c[j, h, d]
    return r
"""
PRODUCT = "sum(a[i, h, e] * b[j, h, e] for e in range(E))"
WEIGHT = "exp(s[h, i, j] - t[h, i]) / u[h, i]"


def scores(score: str = PRODUCT, weight: str = WEIGHT, **parts: str) -> str:
    usual = {"more": "", "first": "0", "last": "N"}
    return SCORES.format(**{**usual, "score": score, "weight": weight, **parts})


ATTENTION: Mapping[str, tuple[str, dict[str, int], Mask, Change | None, str]] = {
    "causal": ("attention_causal", SQUARE, Mask("upper_left"), None, "scale"),
    "bottom right": ("attention_causal_bottom_right", WIDE, Mask("lower_right"), None, "scale"),
    "square bottom right": (
        "attention_causal_bottom_right",
        SQUARE,
        Mask("upper_left"),
        None,
        "scale",
    ),
    "groups": ("attention_gqa", {**SQUARE, "G": 2, "R": 2}, Mask(), None, "scale"),
    "bias": ("attention_bias", SQUARE, Mask(), Change("bias", "bias", (1, 2, 3)), "scale"),
    "lengths": ("attention_lengths", SQUARE, Mask("lengths", "n_kv"), None, "scale"),
    "window": (
        scores(more="W: int, ", first="max(0, i - W + 1)", last="min(N, i + 1)"),
        {**SQUARE, "W": 256},
        Mask("window", "W"),
        None,
        "1",
    ),
    "prefix": ("attention_prefix", SQUARE, Mask("prefix", "prefix"), None, "1/sqrt(E)"),
    "band": (
        scores(more="L: int, W: int, ", first="max(0, i - L)", last="min(N, i + W + 1)"),
        {**SQUARE, "L": 256, "W": 64},
        Mask("band", "L", other="W"),
        None,
        "1",
    ),
    "relative": (
        scores(f"{PRODUCT} + g[h, i - j + N - 1]", more='g: Float[Array, "H M+N-1"], '),
        SQUARE,
        Mask(),
        Change("relative", "g"),
        "1",
    ),
    "soft cap": (
        scores(f"q * tanh({PRODUCT} / q)", more="q: float, "),
        SQUARE,
        Mask(),
        Change("softcap", "q"),
        "1",
    ),
    "slopes": (
        scores(f"{PRODUCT} - g[h] * abs(j - i)", more='g: Float[Array, "H"], '),
        SQUARE,
        Mask(),
        Change("slopes", "g", even=True),
        "1",
    ),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_what_attention_a_listing_is(name: str) -> None:
    text, sizes, mask, change, scale = ATTENTION[name]
    listing = program(text) if "def " in text else spec(text)
    reals = {p.name: 0.5 for p in listing.parameters if not p.is_integer}
    made = trials(reference_of(listing), sizes, reals)
    recipe = recipe_in(listing, made)
    assert isinstance(recipe, Recipe)
    assert (recipe.mask, recipe.change, recipe.scale) == (mask, change, scale)
    if "def " in text:
        assert (recipe.query, recipe.key, recipe.value, recipe.output) == ("a", "b", "c", "r")
    else:
        assert (recipe.query, recipe.key, recipe.value, recipe.output) == ("Q", "K", "V", "O")
    # Torch's own function gives these numbers with the options that are passed to it.
    for trial in made:
        exact = viewed(trial.outputs[recipe.output], recipe.layout)
        assert torch.allclose(dense(recipe, trial), exact, rtol=1e-9)
        given = bench_others.Arguments(trial.arrays, trial.reals, trial.sizes)
        if change is not None and change.kind == "softcap":
            with pytest.raises(bench_others.NotOffered, match="no soft cap"):
                bench_others.sdpa(recipe, given, (SDPBackend.MATH,))
        else:
            found = bench_others.sdpa(recipe, given, (SDPBackend.MATH,))()
            assert torch.allclose(found, exact, rtol=1e-9)


def test_flex_attention_is_not_asked_to_read_beyond_32_bits() -> None:
    listing = spec("attention_bias")
    made, *more = trials(reference_of(listing), SQUARE, {"scale": 0.5})
    recipe = recipe_in(listing, [made, *more])
    assert isinstance(recipe, Recipe)
    large = torch.empty((16, 2**14, 2**14), device="meta")
    given = bench_others.Arguments({**made.arrays, "bias": large}, made.reals, made.sizes)
    with pytest.raises(bench_others.NotOffered, match="32 bits, and bias has 4294967296 elements"):
        bench_others.flex(recipe, given, compiles=False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("softmax", "no three of its arrays have the shapes"),
        ("matmul", "no three of its arrays have the shapes"),
        (scores(weight=f"{WEIGHT} * {WEIGHT}"), "none of "),
        (scores(f"{PRODUCT} + 0.001 * j"), "none of "),
    ],
)
def test_what_is_no_attention(text: str, reason: str) -> None:
    listing = program(text) if "def " in text else spec(text)
    names = {p.name for p in listing.parameters}
    sizes = {"B": 1, "H": 2, "M": 64, "N": 64, "K": 64, "E": 32, "D": 32}
    sizes = {name: value for name, value in sizes.items() if name in names}
    found = recipe_of(reference_of(listing), sizes, {})
    assert isinstance(found, str)
    assert found.startswith(reason)


# Work


def _affine(random: Random, names: list[str]) -> Index:
    found: Index = Int(random.randrange(-2, 6))
    for name in random.sample(names, random.randrange(len(names) + 1)):
        operator = random.choice(("+", "-"))
        found = Arith(operator, found, Var(name))  # type: ignore[arg-type]
    return found


def _points(dims: list[Dim], value: Callable[[Index, dict[str, int]], int]) -> Iterator[Any]:
    def at(number: int, point: dict[str, int]) -> Iterator[dict[str, int]]:
        if number == len(dims):
            yield point
            return
        dim = dims[number]
        for each in range(value(dim.start, point), value(dim.stop, point), dim.step):
            yield from at(number + 1, {**point, dim.name: each})

    return at(0, {})


def _value(index: Index, point: Mapping[str, int]) -> int:
    match index:
        case Int(number):
            return number
        case Var(name):
            return point[name]
        case Param(_):
            return 7
        case Arith("+", left, right):
            return _value(left, point) + _value(right, point)
        case Arith("-", left, right):
            return _value(left, point) - _value(right, point)
        case Extremum("min", arguments):
            return min(_value(each, point) for each in arguments)
    raise AssertionError(index)


def test_iterations_against_enumeration() -> None:
    counts = set()
    for seed in range(200):
        random = Random(seed)
        dims: list[Dim] = []
        for name in "ijkl"[: random.randrange(1, 5)]:
            names = [dim.name for dim in dims]
            stop = Extremum("min", (Param("N"), _affine(random, names)))
            step = random.choice((1, 1, 2))
            dims.append(Dim(name, "element", _affine(random, names), stop, len(dims), step))
        names = [dim.name for dim in dims]
        facts = [
            Relation(random.choice(("<", "<=", ">", ">=", "==", "!=")), one, other)
            for one, other in (
                (_affine(random, names), _affine(random, names)) for _ in range(random.randrange(3))
            )
        ]
        compare = {
            "<": int.__lt__,
            "<=": int.__le__,
            ">": int.__gt__,
            ">=": int.__ge__,
            "==": int.__eq__,
            "!=": int.__ne__,
        }
        expected = sum(
            all(compare[f.op](_value(f.left, p), _value(f.right, p)) for f in facts)
            for p in _points(dims, _value)
        )
        shuffled = random.sample(dims, len(dims))
        assert iterations(shuffled, facts, {"N": 7}, {}) == expected, seed
        counts.add(expected)
    assert len(counts) > 10


def test_iterations_of_bounds_that_are_read() -> None:
    lengths = np.array([3, 0, 5])
    read = Opaque("n", (Var("b"),))
    b = Dim("b", "program", Int(0), Int(3), 0)
    i = Dim("i", "rows", Int(0), Int(10), 1)
    j = Dim("j", "tile", Int(0), read, 2)
    assert iterations((b, i, j), (), {}, {"n": lengths}) == 80
    whole = replace(j, stop=Int(5))
    assert iterations((b, i, whole), (Relation("<", Var("j"), read),), {}, {"n": lengths}) == 80


@cache
def causal() -> bench_plan.Subject:
    return bench_plan.subject_of(program(CAUSAL), ("forward", "backward"))


def test_the_work_of_both_passes() -> None:
    sizes = {"M": 37, "E": 3, "D": 5}
    (plan,) = bench_plan.planned(causal(), [sizes])
    pairs = sum(1 for i, j in product(range(37), repeat=2) if j <= i)
    forward = bench_plan.products(plan, "forward", 0)
    assert sorted(each.multiply_adds for each in forward) == [3 * pairs, 5 * pairs]
    # Scores and their gradient, and the gradients of three arrays: what is done twice counts once.
    backward = bench_plan.products(plan, "backward", 0)
    assert sorted(each.multiply_adds for each in backward) == [3 * pairs] * 3 + [5 * pairs] * 2


def test_usual_sizes() -> None:
    assert usual_sets(causal().program, causal().forward) == tuple(
        {"M": length, "E": vector, "D": vector} for vector in (64, 128) for length in (4096, 16384)
    )
    (plan,) = bench_plan.planned(causal(), [{"M": 4096}])
    assert plan.sizes == {"M": 4096, "E": 128, "D": 128}
    lengths = spec("attention_lengths")
    found = integers_of(lengths, {"B": 50, "H": 1, "M": 1, "N": 3, "E": 1, "D": 1}, 0)
    assert set(found["n_kv"].tolist()) == {0, 1, 2, 3}


# Runs


class Interpreter:
    """Stands for a GPU: runs everything once, and makes up the times."""

    device = "cpu"
    compiles = False
    ceiling = 16
    method: Mapping[str, Any] = {"timer": "none"}

    def facts(self) -> dict[str, Any]:
        return {"name": "NVIDIA  H100 (made up)"}

    def times(self, call: Callable[[], object]) -> tuple[float, ...]:
        call()
        return (2.0, 1.0, 3.0)

    def peak(self, call: Callable[[], object]) -> int | None:
        call()
        return 1000

    def release(self) -> None:
        pass


def _scaled(factor: float) -> bench_others.Other:
    def make(recipe: Recipe, given: bench_others.Arguments) -> bench_others.Call:
        right = bench_others.sdpa(recipe, given, (SDPBackend.MATH,))
        return lambda: right() * factor

    return bench_others.Other(f"times {factor}", make, lambda _: "")


def _without_memory(recipe: Recipe, given: bench_others.Arguments) -> bench_others.Call:
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_what_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found = (
        bench_others.Other("greedy", _without_memory, lambda _: ""),
        _scaled(1.0),
        _scaled(1.1),
        *bench_others.others(compiles=False)[:1],
    )
    monkeypatch.setattr(bench, "others", lambda compiles: found)
    steps: list[tuple[int, int]] = []
    made = bench.timed(
        bench_plan.planned(causal(), [{"M": 20, "E": 16, "D": 16}]),
        ("forward", "backward"),
        "float32",
        Interpreter(),
        progress=lambda done, total, text: steps.append((done, total)),
    )
    cases = list(made)
    assert steps == [(n, 10) for n in range(10)]
    for case, tensors in zip(cases, (4, 8), strict=True):
        ours, greedy, right, wrong, missing = case.rows
        assert (ours.median, ours.peak_bytes, ours.reason) == (2.0, 1000, "")
        assert case.moved_bytes == tensors * 20 * 16 * 4
        assert (greedy.reason, greedy.milliseconds) == (NO_MEMORY, ())
        assert right.difference is not None and right.difference < 1e-6
        assert right.milliseconds and case.best_other == right
        assert wrong.reason == "it gives other numbers at these sizes: relative difference 1.0e-01"
        assert not wrong.milliseconds
        assert missing.reason and not missing.milliseconds


def test_a_compiled_backward_pass_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch reuses buffers of a graph that is let go, and then refuses one that is kept."""

    def made(recipe: Recipe, given: bench_others.Arguments) -> bench_others.Call:
        torch.compiler.reset()
        q, k, v = given.operands(recipe)

        def attention(q: Any, k: Any, v: Any) -> Any:
            seen = torch.ones(q.shape[2], k.shape[2]).tril().bool()
            scores = q @ k.transpose(2, 3) * recipe.factor(given.reals, q.shape[3])
            return torch.softmax(scores.masked_fill(~seen, -math.inf), 3) @ v

        compiled: Any = torch.compile(attention, backend="aot_eager")
        return lambda: compiled(q, k, v)

    found = (bench_others.Other("compiled", made, lambda _: ""),)
    monkeypatch.setattr(bench, "others", lambda compiles: found)
    plans = bench_plan.planned(causal(), [{"M": 20, "E": 16, "D": 16}])
    (case,) = bench.timed(plans, ("backward",), "float32", Interpreter())
    row = case.rows[1]
    assert (row.reason, len(row.milliseconds)) == ("", 3)


def test_the_whole_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Capture
) -> None:
    monkeypatch.setattr(bench_machine, "gpu", Interpreter)
    sizes = ["--sizes", "M=16,N=16,K=16", "--sizes", "M=1,N=2,K=3", "--dtype", "fp32"]
    files = ["--output", str(tmp_path), "--plot", str(tmp_path)]
    assert main(["bench", str(SPECS / "matmul.py"), *sizes, *files]) == 0
    shown = capsys.readouterr().out
    assert "matmul has nothing to be compared with: no three of its arrays" in shown
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["nvidia-h100-made-up.json", "nvidia-h100-made-up.svg"]
    document = json.loads((tmp_path / names[0]).read_text())
    result, second = document["results"]
    assert (document["notes"], second["sizes"]) == ([], {"M": 1, "K": 3, "N": 2})
    assert result["flops"] == 2 * 16**3
    assert result["rows"][0]["tflops"] == pytest.approx(2 * 16**3 / 2e-3 / 1e12, rel=1e-5)


def test_an_interrupted_run_leaves_what_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Interrupted(Interpreter):
        left = 2  # the ceiling, and one result

        def times(self, call: Callable[[], object]) -> tuple[float, ...]:
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            return super().times(call)

    monkeypatch.setattr(bench_machine, "gpu", Interrupted)
    sizes = ["--sizes", "M=16,N=16,K=16", "--sizes", "M=1,N=2,K=3", "--dtype", "fp32"]
    path = tmp_path / "x.json"
    assert main(["bench", str(SPECS / "matmul.py"), *sizes, "--output", str(path)]) == 130
    document = json.loads(path.read_text())
    assert len(document["results"]) == 1
    assert document["notes"] == ["not finished: 1 of 2 results"]


def test_a_gpu_that_is_lost_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Capture
) -> None:
    class Lost(Interpreter):
        runs = 0

        def times(self, call: Callable[[], object]) -> tuple[float, ...]:
            self.runs += 1
            if self.runs == 3:  # the ceiling, one result, and then
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            return super().times(call)

        def release(self) -> None:
            if self.runs == 3:
                raise bench_machine.GpuLost("the GPU can do no more in this process")

    monkeypatch.setattr(bench_machine, "gpu", Lost)
    sizes = [part for k in (3, 4, 5) for part in ("--sizes", f"M=16,N=16,K={k}")]
    path = tmp_path / "x.json"
    command = ["bench", str(SPECS / "matmul.py"), *sizes, "--dtype", "fp32", "--output", str(path)]
    assert main(command) == 1
    assert "not finished, the GPU was lost: 2 of 3 results" in capsys.readouterr().out
    document = json.loads(path.read_text())
    assert [case["rows"][0]["median_ms"] for case in document["results"]] == [2.0, None]
    assert "illegal memory access" in document["results"][1]["rows"][0]["reason"]


@needs_no_gpu
def test_without_a_gpu(tmp_path: Path, capsys: Capture) -> None:
    command = ["bench", str(SPECS / "matmul.py"), "--output", str(tmp_path)]
    assert main(command) == 3
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith("error: there is no GPU")
    assert list(tmp_path.iterdir()) == []


def test_a_plan_needs_no_gpu(capsys: Capture) -> None:
    sizes = ["--sizes", "M=8,N=9,K=10"]
    assert main(["bench", str(SPECS / "matmul.py"), "--plan", *sizes]) == 0
    assert capsys.readouterr().out == (
        "matmul has nothing to be compared with: no three of its arrays have the shapes of "
        "queries, keys and\nvalues\n\n"
        "matmul forward: M=8 K=10 N=9, 0.0 GFLOP\n"
        "  matmul_kernel S2 over i, j, k: 720 multiply-adds\n"
        "  looptrans\n"
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--sizes", "M=0"], "M=0 is no integer above 0"),
        (["--sizes", "Z=4", "--plan"], "'Z' is given, and is no size of matmul"),
        (["--output", "/no/such/folder/x.json"], "cannot write /no/such/folder/x.json"),
        (["--of", "C"], "--of and --form are about a backward pass"),
        (["--plan", "--plot", "x.svg"], "--plan times nothing"),
        (["--dtype", "int8"], "invalid choice: 'int8'"),
    ],
)
def test_mistakes(options: list[str], text: str, capsys: Capture) -> None:
    assert main(["bench", str(SPECS / "matmul.py"), *options]) == 2
    assert text in capsys.readouterr().err


# Reports

ROWS = (
    Row("looptrans", "emitted", (2.0, 1.9, 2.4), 1_500_000, configurations={"k": "BLOCK_I: 128"}),
    Row("SDPA flash", "other", (1.0,), 2_000_000, 4e-3),
    Row("SDPA cuDNN", "other", reason="no <head> size"),
)
WORK = (Product("k", ("S1",), ("i", "j", "e"), 10**12),)
CASE = Case("attention", "forward", {"M": 4096, "scale": 0.125}, WORK, 10**6, ROWS)
FOUND = Bench(
    {"name": "A <GPU>"},
    {"torch": "2.13"},
    "looptrans bench x.py",
    "2026-01-01T00:00:00+00:00",
    "bfloat16",
    {"timer": "events"},
    replace(CASE, sizes={"M": 8192, "N": 8192}, rows=(Row("torch.matmul", "ceiling", (0.5,)),)),
    (Alike("attention", found="O = softmax(Q K') V"), Alike("norm", reason="no arrays")),
    (CASE, replace(CASE, program="norm", products=(), rows=ROWS[:1])),
)


def test_the_table() -> None:
    assert bench_text(FOUND) == TABLE


TABLE = """\
A <GPU>, bfloat16
torch 2.13

a plain matrix product, 8192 x 8192: 4000 TFLOP/s

attention gives the numbers of O = softmax(Q K') V
norm has nothing to be compared with: no arrays

attention forward: M=4096 scale=0.125, 2,000.0 GFLOP
                 ms    low   high             rate  of best other  of matrix product  memory
  looptrans   2.000  1.900  2.400  1,000.0 TFLOP/s           0.50               0.25  1.5 MB
  SDPA flash  1.000  1.000  1.000  2,000.0 TFLOP/s              -               0.50  2.0 MB
  SDPA cuDNN  no <head> size

norm forward: M=4096 scale=0.125
                ms    low   high      rate  of best other  of matrix product  memory
  looptrans  2.000  1.900  2.400  0.5 GB/s              -                  -  1.5 MB
"""


def test_json() -> None:
    document = json.loads(bench_json(FOUND))
    assert document["schema"] == "looptrans.bench/1"
    assert document["ceiling"]["rows"][0]["tflops"] == 4000
    first, second = document["results"]
    assert (first["program"], first["pass"], first["flops"]) == ("attention", "forward", 2 * 10**12)
    ours, flash, cudnn = first["rows"]
    assert (ours["median_ms"], ours["low_ms"], ours["high_ms"]) == (2.0, 1.9, 2.4)
    assert (ours["tflops"], flash["tflops"]) == (1000, 2000)
    assert (ours["ratio_to_best_other"], flash["ratio_to_best_other"]) == (0.5, None)
    assert ours["ratio_to_matrix_product"] == 0.25
    assert (flash["difference"], flash["peak_bytes"]) == (0.004, 2_000_000)
    assert (cudnn["median_ms"], cudnn["reason"]) == (None, "no <head> size")
    assert (second["flops"], second["rows"][0]["tflops"]) == (0, None)
    assert second["rows"][0]["gigabytes_per_second"] == 0.5
    assert not FOUND.failed


def test_the_picture() -> None:
    picture = bench_svg(FOUND)
    assert picture == bench_svg(FOUND)
    root = ElementTree.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    bars = [each for each in root.iter(f"{space}rect") if each.get("y")]
    # The rates: 1000 and 2000 on one scale that ends at the ceiling of 4000, GB/s on their own.
    assert [float(each.get("width", 0)) for each in bars] == [115, 230, 460]
    texts = [each.text for each in root.iter(f"{space}text")]
    assert "no <head> size" in texts
    assert "1,000.0 TFLOP/s" in texts
    assert "0.5 GB/s" in texts
    assert "┆ a plain matrix product: 4000 TFLOP/s" in texts
