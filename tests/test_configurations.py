"""Configurations: what fits a GPU, at the launch too; the late form of a product; kept timings."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from looptrans.blocks.block_ir.ops import Branch, ops_in
from looptrans.blocks.block_ir.program import BlockProgram, Config, Kernel
from looptrans.blocks.fitting.footprint import (
    LEAST,
    MOST_HELD,
    MOST_TIMED,
    SPARE,
    fits,
    fitted,
    footprints,
)
from looptrans.blocks.passes.late import LATE, late_body
from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.listing import emitted, lowered
from looptrans.runtime.inspecting.device import DEVICES
from looptrans.runtime.inspecting.inspect import inspect
from looptrans.runtime.inspecting.job import Measurement
from looptrans.runtime.running.device import prepare_device
from looptrans.runtime.running.load import load_module
from tests.analysis import program, spec

prepare_device()

# Two rounds of a polynomial in place of a softmax: no name, and no function, of attention.
POWERS = """
def f(a: Float[Array, "M E"], b: Float[Array, "N E"], c: Float[Array, "N D"]{more}):
    r = zeros((M, D))
    for i in range(M):
        for j in range({first}, {last}):
            s = sum(a[i, e] * b[j, e] for e in range(E))
            for d in range(D):
                r[i, d] = r[i, d] + {weight} * c[{row}, d]{after}
    return r
"""


def powers(**parts: str) -> str:
    usual = {"more": "", "first": "0", "last": "N", "weight": "s * s", "row": "j", "after": ""}
    return POWERS.format(**{**usual, **parts})


def blocks_of(text: str) -> BlockProgram:
    return lowered(program(text))


def module_of(text: str, name: str, folder: Path) -> ModuleType:
    path = folder / f"{name}.py"
    path.write_text(text)
    return load_module(name, text, path)


# What a program needs


def test_what_attention_needs() -> None:
    (kernel,) = lowered(spec("attention_bias")).kernels
    (needed,) = footprints(kernel)
    sizes = {"BLOCK_I": 128, "BLOCK_J": 64, "BLOCK_E": 128, "BLOCK_D": 128}
    queries, bias, keys = 128 * 128, 128 * 64, 64 * 128
    assert needed.shared(sizes, 3, 2) == 2 * (queries + 3 * (keys + bias + keys))
    # The sum of values, the scores, and the bias that is added to them.
    assert needed.numbers(sizes) == queries + keys + bias


def test_a_narrow_operand_that_is_widened_has_a_copy() -> None:
    # exp(s) is not known to be at most 1, so that it stays in float32, and c with it.
    (kernel,) = blocks_of(powers(weight="exp(s)")).kernels
    (needed,) = footprints(kernel)
    assert [piece.bytes for piece in needed.resident] == [None, 4]
    text = emitted(program(powers(weight="exp(s)"))).text
    assert "_dot_widened(" in text and ', c_ptr.dtype.element_ty, "left")' in text


GATES = """
def f(
    Q: Float[Array, "M E"], F: Float[Array, "M E"], K: Float[Array, "N E"], G: Float[Array, "N E"],
    V: Float[Array, "N D"]
):
    O = zeros((M, D))
    for i in range(M):
        l = sum(exp(sum(Q[i, e] * F[i, e] * (K[j, e] * G[j, e]) for e in range(E)))
                for j in range(N))
        for j in range(N):
            p = exp(sum(Q[i, e] * F[i, e] * (K[j, e] * G[j, e]) for e in range(E))) / l
            for d in range(D):
                O[i, d] = O[i, d] + p * V[j, d]
    return O
"""


def test_operands_that_are_both_worked_out_are_multiplied_in_pairs_on_tensor_cores() -> None:
    made = emitted(program(GATES))
    assert '"ieee" if Q_ptr.dtype.element_ty == tl.float32 else _PAIRS' in made.text
    (needed,) = footprints(made.blocks.kernels[0])
    scores = [piece.bytes for piece in needed.resident if piece.sizes[1] == "BLOCK_E"]
    assert scores == [4, 4]
    (each,) = inspect(made, ["cuda:90"], "bfloat16", {"E": 64, "D": 64}, {}).kernels
    assert isinstance(each.result, Measurement) and each.result.code is not None
    # Three of scores and one of values, each of one or more instructions.
    assert all(loop.kinds["wgmma"] >= 4 for loop in each.result.code.loops)
    assert not each.result.spills


def test_float32_arrays_are_no_pairs() -> None:
    text = emitted(program(GATES.replace("Float[", "Float32["))).text
    assert "_PAIRS" not in text and 'input_precision="ieee"' in text


def test_both_operands_of_a_gradient_are_rounded_but_not_those_of_scores() -> None:
    text = emitted_with_backward(program(GATES)).text
    start = text.index("        dQ = tl.dot(")
    product = text[start : text.index(")  #", start)]
    assert product.count(".to(dO_ptr.dtype.element_ty)") == 2 and "_PAIRS" not in product
    assert "_PAIRS" in text[text.index("def f_backward_dQ_dF_kernel") : start]


def test_a_power_that_may_be_too_large_for_16_bits_is_not_rounded() -> None:
    text = emitted_with_backward(
        program("""
def f(X: Float[Array, "N F"], Y: Float[Array, "P F"]):
    Z = zeros((N, P))
    for n in range(N):
        for p in range(P):
            Z[n, p] = sum(exp(X[n, f]) * exp(Y[p, f]) for f in range(F))
    return Z
""")
    ).text
    assert "exp_X_nf.to(" not in text and "_PAIRS" in text


def test_factors_of_a_row_stand_behind_the_loop_and_sums_that_differ_by_them_are_one() -> None:
    text = emitted_with_backward(program(GATES)).text
    body = text[text.index("def f_backward_dQ_dF_kernel(") :]
    body = body[: body.index("tl.store")]
    assert "dF = tl.dot" not in body and "dF = tl.zeros" not in body
    after = body[body.rindex("for j_first") :]
    assert after.index("dF = dQ * Q_ie") < after.index("dQ = dQ * F_ie")


def test_the_estimate_is_what_the_compiler_asks_for() -> None:
    made = emitted(spec("attention"))
    (each,) = inspect(made, ["cuda:90"], "bfloat16", {"E": 64, "D": 64}, {}).kernels
    assert isinstance(each.result, Measurement)
    (needed,) = footprints(made.blocks.kernels[0])
    sizes = {**each.config.blocks, "BLOCK_E": 64, "BLOCK_D": 64}
    estimate = needed.shared(sizes, each.config.stages, 2)
    assert each.result.shared <= estimate + SPARE
    assert estimate <= 1.2 * each.result.shared


# At the launch


def gpu(shared: int, threads: int = 32) -> Any:
    """Return what Triton's driver says of a GPU."""
    return SimpleNamespace(
        utils=SimpleNamespace(get_device_properties=lambda _: {"max_shared_mem": shared}),
        get_current_target=lambda: SimpleNamespace(warp_size=threads),
    )


@pytest.fixture(name="module", scope="module")
def _module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    made = emitted_with_backward(spec("attention_causal"))
    return module_of(made.text, "configured", tmp_path_factory.mktemp("configured"))


@pytest.fixture(name="kernels", scope="module")
def _kernels() -> Mapping[str, Kernel]:
    made = emitted_with_backward(spec("attention_causal"))
    names = (*made.forward_kernels, *made.backward_kernels)
    return dict(zip(names, (*made.forward.kernels, *made.backward.kernels), strict=True))


GPUS = {name: (d.shared_limit, d.threads) for name, d in DEVICES.items()} | {
    "a laptop": (99 * 1024, 32)
}


@pytest.mark.parametrize("name", GPUS)
def test_a_launcher_finds_what_fits(
    name: str, module: ModuleType, kernels: Mapping[str, Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, threads = GPUS[name]
    driver = SimpleNamespace(active=gpu(shared, threads))
    runtime = SimpleNamespace(driver=driver)
    fake = SimpleNamespace(runtime=runtime, Config=module.triton.Config)
    monkeypatch.setattr(module, "triton", fake)
    monkeypatch.setattr(module, "_INTERPRETED", False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    counts = []
    for called, kernel in kernels.items():
        needed = footprints(kernel)
        if not needed:
            assert not hasattr(module, f"{called}_footprint")
            continue
        tells = getattr(module, f"{called}_footprint")
        prune = module._fitting(tells, 2)
        for head in (16, 64, 128, 256, 512):
            lanes = {"BLOCK_E": head, "BLOCK_D": head}
            start = getattr(module, f"{called}_default")[2]
            found = module._fitted(start, tells, 2, lanes, 0)
            default = kernel.narrow.default
            expected = fitted(needed, default, lanes, 2, shared, threads)
            own = Config(found.kwargs, found.num_warps, found.num_stages)
            assert own == expected
            least = all(size <= LEAST for n, size in own.blocks.items() if n != LATE)
            assert fits(needed, own, lanes, 2, shared, threads) or least
            if (name, head) in (("cuda:90", 64), ("cuda:90", 128)):
                assert own == default
            # A size of the listing may be called what the functions call their own arguments.
            tuned = getattr(module, f"{called}_tuned")[2].tuner
            more = {**lanes, "E": head, "configs": 1, "arguments": 2, "width": 3}
            left = prune(tuned.configs, more)
            room = (lanes, 2, shared, threads, MOST_TIMED)
            kept = [c for c in kernel.narrow.tuned if fits(needed, c, *room)]
            found_left = [Config(c.kwargs, c.num_warps, c.num_stages) for c in left]
            assert sorted(map(str, found_left)) == sorted(map(str, kept or [own]))
            counts.append(len(left))
    assert min(counts) >= 1
    assert max(counts) <= 48


def test_what_is_timed_reaches_beyond_what_surely_fits(kernels: Mapping[str, Kernel]) -> None:
    """Blocks of 128 by 64, which FlashAttention takes for dK and dV on sm_90, are tried."""
    name = "attention_causal_backward_dK_dV_kernel"
    kernel = kernels[name]
    wanted = Config({"BLOCK_J": 128, "BLOCK_I": 64}, 8, 2)
    assert wanted in kernel.narrow.tuned
    room = footprints(kernel), wanted, {"BLOCK_E": 128, "BLOCK_D": 128}, 2, 227 * 1024, 32
    assert not fits(*room)
    assert fits(*room, MOST_TIMED)
    # A part of eight warps would only share the columns of 64 rows.
    forward = kernels["attention_causal_kernel"].narrow.tuned
    assert {c.warps for c in forward if c.blocks["BLOCK_I"] == 64} == {4}


def test_the_numbers_in_the_text_are_those_of_the_estimate(module: ModuleType) -> None:
    source = Path(str(module.__file__)).read_text()
    assert f'["max_shared_mem"] - {SPARE}' in source
    assert f", most={MOST_HELD})" in source
    assert f", {MOST_TIMED}) is config" in source


# The late form


def late_ops(text: str) -> tuple[BlockProgram, list[Branch]]:
    found = blocks_of(text)
    (kernel,) = found.kernels
    body = late_body(kernel)
    return found, [op for op in ops_in(body or ()) if isinstance(op, Branch)]


def test_a_block_of_rows_of_a_head_size_is_short_where_no_product_is_made() -> None:
    (kernel,) = lowered(
        program("""
def one(q: Float[Array, "E"], K: Float[Array, "N E"], V: Float[Array, "N E"]):
    o = zeros(E)
    for j in range(N):
        s = sum(q[e] * K[j, e] for e in range(E))
        for e in range(E):
            o[e] += s * V[j, e]
    return o
""")
    ).kernels
    assert kernel.narrow.default.blocks == {"BLOCK_J": 32}
    assert all(each.blocks["BLOCK_J"] <= 128 for each in kernel.narrow.tuned)


def test_a_product_of_a_product_can_be_late() -> None:
    blocks, branches = late_ops(powers())
    (kernel,) = blocks.kernels
    # Before the loops, twice in the full and in the boundary one, behind them.
    assert [len(each.body) for each in branches] == [2, 2, 2, 2, 2, 2]
    assert [len(each.otherwise) for each in branches] == [0, 0, 2, 0, 2, 0]
    assert kernel.narrow.default.blocks[LATE] == 0
    assert {config.blocks[LATE] for config in kernel.narrow.tuned} == {0, 1}
    assert {config.blocks[LATE] for config in kernel.wide.tuned} == {0}


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("there is no other product", {"weight": "(a[i, 0] + b[j, 0])"}),
        ("the row is looked up", {"more": ', g: Int[Array, "N", "0:N"]', "row": "g[j]"}),
    ],
)
def test_what_is_not_late(name: str, parts: dict[str, str]) -> None:
    _, branches = late_ops(powers(**parts))
    assert not branches, name


@pytest.mark.parametrize(
    ("first", "last", "columns"),
    [
        ("0", "N", 53),
        ("0", "min(N, i + 1)", 53),
        ("0", "N", 0),
        ("0", "min(N, i + 1)", 20),
        ("max(0, i - 30)", "min(N, i + 10)", 53),
    ],
)
def test_the_late_form_gives_the_same_bits(
    first: str, last: str, columns: int, tmp_path: Path
) -> None:
    sizes = {"M": 57, "N": columns, "E": 16, "D": 24}
    text = emitted(program(powers(first=first, last=last))).text
    assert ("or have ended" in text) == (first != "0")  # one loop for both ends, in both forms
    module = module_of(text, f"late_{tmp_path.name}", tmp_path)
    torch.manual_seed(0)
    shapes = (("M", "E"), ("N", "E"), ("N", "D"))
    for dtype in (torch.float32, torch.float16):
        arguments = [
            torch.randn([sizes[n] for n in shape]).mul_(0.25).to(dtype) for shape in shapes
        ]
        config = module.f_kernel_default[arguments[0].element_size()]
        config.kwargs.update({"BLOCK_I": 16, "BLOCK_J": 16})
        plain = module.f(*arguments)
        config.kwargs[LATE] = 1
        assert torch.equal(module.f(*arguments), plain)
        assert plain.isfinite().all()
    a, b, c = (each.double() for each in arguments)
    seen = torch.ones(57, columns, dtype=torch.bool)
    if last != "N":
        seen = seen.tril(9).triu(-30) if first != "0" else seen.tril()
    scores = torch.where(seen, (a @ b.T) ** 2, 0.0)
    assert torch.allclose(plain.double(), scores @ c, rtol=1e-2, atol=1e-2)


def test_rows_that_are_not_read_do_not_reach_the_late_product(tmp_path: Path) -> None:
    # What lies behind the last row of c is nan: it is masked, not multiplied with 0.
    module = module_of(emitted(program(powers())).text, "beyond", tmp_path)
    module.f_kernel_default[4].kwargs[LATE] = 1
    a, b = torch.ones(4, 16), torch.ones(5, 16)
    c = torch.cat([torch.ones(5, 16), torch.full((80, 16), torch.nan)])[:5]
    assert torch.equal(module.f(a, b, c), torch.full((4, 16), 5.0 * 16 * 16))


def test_exponentials_run_beside_the_late_product() -> None:
    sizes = {"E": 128, "D": 128}
    found = inspect(emitted(spec("attention")), ["cuda:90"], "bfloat16", sizes, {LATE: 1})
    (each,) = found.kernels
    assert isinstance(each.result, Measurement)
    assert each.result.code is not None
    assert each.result.spills == 0
    full = each.result.code.loops[0]
    assert full.exp2_in_flight > full.exp2 // 2
    assert not full.serialized


# What was timed is kept

TIMED = """
import sys
import torch
import triton

sys.path.insert(0, {folder!r})


class Driver:
    def get_current_target(self):
        return triton.backends.compiler.GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_benchmarker(self):
        return bench

    class utils:
        get_device_properties = staticmethod(lambda _: {{"max_shared_mem": 232448}})


triton.runtime.driver.set_active(Driver())
torch.cuda.current_device = lambda: 0
torch.cuda.get_device_name = lambda: sys.argv[2]
import kept

kernel, tuned = kept.layernorm_kernel, kept.layernorm_kernel_tuned
step = int(sys.argv[3])
times, asked, launched, long = iter(range(1000, 1000 + 100 * step, step)), [], [], 0


def bench(call, quantiles, warmup=25, rep=100):
    global long
    if rep < 100:
        asked.append(len(kernel.device_caches[0][0]))
    else:
        long += 1
    return [float(next(times))] * 3


def launch(*arguments, warmup, compiled=kernel.run, **options):
    if warmup:
        return compiled(*arguments, warmup=True, **options)
    launched.append((options["BLOCK_I"], options["BLOCK_J"], options["num_warps"]))


kernel.run = launch
tuned.fitting = lambda configs, sizes: configs[:2]
array = torch.zeros(1)
for rows in map(int, sys.argv[1].split(",")):
    values = {{name: array if name.endswith("_ptr") else 16 for name in tuned.tuner.arg_names}}
    values |= dict(M=rows, N=64, INDEX=triton.language.int32)
    for name in tuned.tuner.configs[0].all_kwargs():
        values.pop(name, None)
    tuned[1,](**values)
print(*asked, "/", *(number for each in launched for number in each), "/", long)
"""


def test_timings_survive_the_process_serve_like_sizes_and_are_of_one_gpu(tmp_path: Path) -> None:
    """And the kernels are compiled, for sm_90, before the first of them is timed."""
    (tmp_path / "kept.py").write_text(emitted(spec("layernorm")).text)

    def run(rows: str, device: str, step: int = -1) -> tuple[list[int], list[int], int]:
        environment = {n: v for n, v in os.environ.items() if n != "TRITON_INTERPRET"}
        done = subprocess.run(
            [sys.executable, "-c", TIMED.format(folder=str(tmp_path)), rows, device, str(step)],
            env={**environment, "TRITON_CACHE_DIR": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        compiled, launched, long = done.stdout.split("/")
        numbers = [[int(word) for word in each.split()] for each in (compiled, launched)]
        return numbers[0], numbers[1], int(long)

    # 50 is like 64, and 65 is not: the last ones of all, which the clock above likes best, are run.
    # Nor is 65 a multiple of 16, for which Triton compiles kernels of their own.
    compiled, chosen, long = run("64,50,65", "one")
    assert compiled == [2, 2, 4, 4]
    assert long == 4
    assert chosen[:3] == chosen[3:6] == chosen[6:]
    assert run("64", "one") == ([], chosen[:3], 0)
    assert run("64", "another") == ([2, 2], chosen[:3], 2)
    # One that takes twice as long as the first is timed no further than that shows.
    compiled, first, long = run("64", "a third", 1000)
    assert (compiled, long) == ([2, 2], 1)
    assert first != chosen[:3]


def test_a_sum_over_blocks_for_blocks_of_columns_takes_small_ones() -> None:
    """B[j, k] would be a block of 512 by 512 as well."""
    (kernel,) = blocks_of("""
def f(B: Float[Array, "N K"], v: Float[Array, "N"], u: Float[Array, "M"]):
    Y = zeros((M, K))
    z = zeros(M)
    for i in range(0, M):
        for k in range(0, K):
            for j in range(0, N):
                Y[i, k] = Y[i, k] + tanh(v[j]) * B[j, k]
        z[i] = tanh(u[i])
    return Y, z
""").kernels
    sizes = [each.blocks["BLOCK_J"] * each.blocks["BLOCK_K"] for each in kernel.narrow.tuned]
    assert sizes[0] <= 64 * 64
    assert max(sizes) <= 128 * 128


def test_what_is_no_side_of_the_largest_block_stays_long() -> None:
    """W[d, e] is a block with a whole row e; X[i, n] is one of its own."""
    (kernel,) = blocks_of("""
def f(X: Float[Array, "M N"], W: Float[Array, "D E"]):
    y = zeros(M)
    for i in range(0, M):
        for n in range(0, N):
            y[i] += X[i, n]
        y[i] += sum(tanh(W[d, e]) for d in range(0, D) for e in range(0, E))
    return y
""").kernels
    first = kernel.narrow.default.blocks
    assert (first["BLOCK_N"], first["BLOCK_D"]) == (512, 32)
