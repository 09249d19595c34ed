"""Blocks that the GPU copies by itself, and blocks that are loaded behind a product."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from looptrans.blocks.block_ir.expr import Load
from looptrans.blocks.block_ir.ops import Let, ops_in
from looptrans.blocks.block_ir.program import Kernel
from looptrans.blocks.fitting.footprint import footprints
from looptrans.blocks.passes.described import (
    DESCRIBED,
    described_loads,
    has_described,
    without_described,
)
from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.listing import emitted, lowered
from looptrans.runtime.inspecting.arguments import tried
from looptrans.runtime.inspecting.device import DEVICES
from looptrans.runtime.inspecting.inspect import backward_module, inspect
from looptrans.runtime.inspecting.job import Measurement
from looptrans.runtime.running.device import prepare_device
from looptrans.runtime.running.load import load_module
from tests.analysis import program, spec

prepare_device()

# The rows of a program are the columns of t: a block of it is read across.
ACROSS = """
def f(a: Float[Array, "M E"], b: Float[Array, "N E"], t: {array}{more}):
    y = zeros((N, E))
    for j in range({begin}N):
        for i in range({first}{last}):
            s = sum(a[i, e] * b[j, e] for e in range(E)) + {read}
            for e in range(E):
                y[j, e] = y[j, e] + s * a[i, e]
    return y
"""


def across(**parts: str) -> str:
    usual = {"array": 'Float[Array, "M N"]', "more": "", "last": "M", "read": "t[i, j]"}
    return ACROSS.format(**{**usual, "begin": "", "first": "", **parts})


def kernel_of(text: str) -> Kernel:
    (kernel,) = lowered(program(text)).kernels
    return kernel


def module_of(text: str, name: str, folder: Path) -> ModuleType:
    path = folder / f"{name}.py"
    path.write_text(text)
    return load_module(name, text, path)


def test_a_block_that_is_read_across_is_tried_both_ways() -> None:
    kernel = kernel_of(across())
    assert kernel.narrow.default.blocks[DESCRIBED] == 0
    assert {config.blocks[DESCRIBED] for config in kernel.narrow.tuned} == {0, 1}
    assert {config.blocks[DESCRIBED] for config in kernel.wide.tuned} == {0}
    plain = without_described(kernel)
    assert not has_described(plain)
    assert len(plain.narrow.tuned) * 2 == len(kernel.narrow.tuned)


def test_what_is_left_without_the_form_is_what_was_there() -> None:
    """In its order: roles of one launch are matched by the places of their sizes."""
    kernel = kernel_of(across())
    plain = without_described(kernel)
    for choice, left in ((kernel.narrow, plain.narrow), (kernel.wide, plain.wide)):
        loaded = [each for each in choice.tuned if not each.blocks[DESCRIBED]]
        assert [list(each.blocks.items()) for each in left.tuned] == [
            [(name, size) for name, size in each.blocks.items() if name != DESCRIBED]
            for each in loaded
        ]
    assert list(plain.narrow.default.blocks) != sorted(plain.narrow.default.blocks)


def test_a_block_that_is_read_along_is_copied_without_the_operands() -> None:
    for array, read, copied in (("N M", "t[j, i]", {"t"}), ("M N", "t[i, j]", {"a", "t"})):
        kernel = kernel_of(across(array=f'Float[Array, "{array}"]', read=read))
        assert has_described(kernel)
        assert {load.array for _, load, _ in described_loads(kernel)} == copied
    assert not has_described(kernel_of(across(read="1.0")))


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("it holds integers", {"array": 'Int[Array, "M N"]'}),
        ("a column is looked up", {"more": ', g: Int[Array, "N", "0:N"]', "read": "t[i, g[j]]"}),
        ("its rows begin at 16 bytes, its blocks do not", {"begin": "1, "}),
        ("a row is shifted", {"array": 'Float[Array, "R N"]', "read": "t[i + 1, j]"}),
        ("its last dimension is another", {"array": 'Float[Array, "M N 3"]', "read": "t[i, j, 1]"}),
        (
            "it goes on where rows end",
            {"array": 'Float[Array, "R N"]', "more": ', n: Int[Array, "N", "0:M"]', "last": "n[0]"},
        ),
    ],
)
def test_what_is_loaded_by_threads_alone(name: str, parts: dict[str, str]) -> None:
    assert not has_described(kernel_of(across(**parts))), name


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (
            "blocks begin anywhere along its last dimension",
            {"more": ', u: Float[Array, "N M"]', "read": "t[i, j] * u[j, i]", "first": "3, "},
        ),
        (
            "a block of it may have fewer than 16 bytes in a row",
            {
                "more": ', u: Float[Array, "M 4"]',
                "read": "t[i, j] * sum(u[i, c] for c in range(4))",
            },
        ),
    ],
)
def test_what_threads_load_beside_it(name: str, parts: dict[str, str]) -> None:
    kernel = kernel_of(across(**parts))
    assert has_described(kernel)
    lets = [op for op in ops_in(kernel.body) if isinstance(op, Let)]
    assert any(isinstance(let.value, Load) and let.value.array == "u" for let in lets)
    assert {load.array for _, load, _ in described_loads(kernel)} == {"a", "t"}, name


HEADS = """
def f(
    a: Float[Array, "H M E"], b: Float[Array, "N E"], t: Float[Array, "M N"],
    c: Float[Array, "{more} M E"],
):
    y = zeros((N, E))
    for j in range(N):
        for h in range(H):
            for i in range(M):
                s = sum(a[h, i, e] * b[j, e] for e in range(E)) + t[i, j]
                for e in range(E):
                    y[j, e] = y[j, e] + s * a[h, i, e]
        for h2 in range({more}):
            for i in range(M):
                r = sum(c[h2, i, e] * b[j, e] for e in range(E)) + t[i, j]
                for e in range(E):
                    y[j, e] = y[j, e] + r * c[h2, i, e]
    return y
"""


@pytest.mark.parametrize("more", ["H", "1"])
def test_loops_after_each_other_are_told_apart(more: str, tmp_path: Path) -> None:
    """A loop that makes what the next one needs may have no iteration."""
    made = emitted(program(HEADS.format(more=more)))
    module = module_of(made.text, f"heads_{tmp_path.name}", tmp_path)
    torch.manual_seed(0)
    a, b, t = torch.randn(0, 16, 16), torch.randn(16, 16), torch.randn(16, 16)
    c = torch.randn(0 if more == "H" else 1, 16, 16)
    config = module.f_kernel_default[4]
    loaded = module.f(a, b, t, c)
    config.kwargs[DESCRIBED] = 1
    assert torch.equal(module.f(a, b, t, c), loaded)
    for each in inspect(made, ["cuda:90"], "bfloat16", {"E": 64}, {DESCRIBED: 1}).kernels:
        assert isinstance(each.result, Measurement), each.result


def test_a_loop_over_numbers_and_one_over_blocks_may_be_called_alike() -> None:
    """A name has one type in Triton: i is a number beside one of the sums, a block in the other."""
    made = emitted_with_backward(program(HEADS.format(more="R")))
    module = backward_module(made, both=False)
    for each in inspect(module, ["cuda:90"], "bfloat16", {"E": 64}, {}).kernels:
        assert isinstance(each.result, Measurement), each.result


@pytest.mark.parametrize(("rows", "columns"), [(37, 72), (16, 8), (0, 24), (5, 0), (1, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_both_ways_give_the_same_bits(
    rows: int, columns: int, dtype: torch.dtype, tmp_path: Path
) -> None:
    module = module_of(emitted(program(across())).text, f"both_{tmp_path.name}", tmp_path)
    torch.manual_seed(0)
    a, b = (torch.randn(n, 24).mul_(0.3).to(dtype) for n in (rows, columns))
    # What lies beyond the array is nan, in memory that it is a part of.
    t = torch.full((rows + 40, columns + 48), torch.nan, dtype=dtype)[:rows, :columns]
    t.copy_(torch.randn(rows, columns))
    config = module.f_kernel_default[a.element_size()]
    config.kwargs.update({"BLOCK_I": 16, "BLOCK_J": 32})
    loaded = module.f(a, b, t)
    config.kwargs[DESCRIBED] = 1
    copied = module.f(a, b, t)
    assert torch.equal(copied, loaded)
    expected = (b.double() @ a.double().T + t.double().T) @ a.double()
    assert torch.allclose(copied.double(), expected, rtol=1e-2, atol=1e-2)


def test_gradients_of_the_shelf_have_the_same_bits(tmp_path: Path) -> None:
    made = emitted_with_backward(spec("attention_bias"))
    module = module_of(made.text, f"shelf_{tmp_path.name}", tmp_path)
    torch.manual_seed(0)
    shapes = ((1, 2, 40, 24), (1, 2, 72, 24), (1, 2, 72, 40), (2, 40, 72), (1, 2, 40, 40))
    q, k, v, bias, incoming = (torch.randn(shape).to(torch.float16) for shape in shapes)
    out, *kept = module.attention_bias_forward(q, k, v, bias, 0.2)

    def gradients() -> list[torch.Tensor]:
        again = module.attention_bias_forward(q, k, v, bias, 0.2)
        assert all(map(torch.equal, again, (out, *kept)))
        found = module.attention_bias_backward(q, k, v, bias, 0.2, *kept, out, incoming)
        return [each for each in found if isinstance(each, torch.Tensor)]

    loaded = gradients()
    changed = 0
    for name, held in vars(module).items():
        if name.endswith("_default") and isinstance(held, dict) and DESCRIBED in held[2].kwargs:
            held[2].kwargs[DESCRIBED] = 1
            changed += 1
    assert changed == 3  # forward, dQ, dK with dV
    assert len(loaded) >= 4
    assert all(map(torch.equal, gradients(), loaded))


def test_what_the_gpu_can_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of(emitted(program(across())).text, f"can_{tmp_path.name}", tmp_path)
    capability = [9, 0]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: tuple(capability))
    block = torch.zeros(64, 64, dtype=torch.float16)
    assert module._is_copied(block)
    assert module._is_copied(block[:, :40])
    assert module._is_copied(block[8:, 8:])
    assert not module._is_copied(block[:, 1:])  # does not begin at 16 bytes
    assert not module._is_copied(block.T)
    assert not module._is_copied(torch.zeros(64, 60, dtype=torch.float16))
    assert not module._is_copied(block[:1].expand(64, 64))
    for length in (2**31 - 1, 2**31):  # places are counted in 32 bits
        long = {"data_ptr": lambda: 64, "element_size": lambda: 2, "stride": lambda: (8, 1)}
        told = module._is_copied(SimpleNamespace(shape=(length, 8), device=None, **long))
        assert told == (length < 2**31)
    capability[0] = 8
    assert not module._is_copied(block)


def test_other_arrays_are_loaded_by_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = module_of(emitted(program(across())).text, f"run_{tmp_path.name}", tmp_path)
    ran: list[tuple[set[int], object]] = []
    allocator: ContextVar[object] = ContextVar("allocator", default="the caller's")

    def run(self: Any, *_: object) -> None:
        forms = {config.kwargs[DESCRIBED] for config in self.tuner.configs}
        ran.append((forms, allocator.get()))

    monkeypatch.setattr(module._Tuned, "run", run)
    monkeypatch.setattr("triton.set_allocator", allocator.set)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    tuned = module.f_kernel_tuned[2]
    assert tuned.described == ["a_ptr", "t_ptr"]
    names = tuned.tuner.arg_names
    block = torch.zeros(64, 64, dtype=torch.float16)
    for other in (block, block.T):
        tuned[None](*(other if name == "t_ptr" else block for name in names))
    assert ran == [({0, 1}, module._scratch), ({0}, "the caller's")]
    assert allocator.get() == "the caller's"


def test_what_the_gpu_copies_is_no_number_that_threads_hold(tmp_path: Path) -> None:
    made = emitted(program(across()))
    module = module_of(made.text, f"held_{tmp_path.name}", tmp_path)
    (needed,) = footprints(made.blocks.kernels[0])
    sizes = {"BLOCK_J": 64, "BLOCK_I": 32, "BLOCK_E": 128}
    held = []
    for form in (0, 1):
        held.append(needed.numbers({**sizes, DESCRIBED: form}))
        told = module.f_kernel_footprint(2, num_stages=2, **sizes, DESCRIBED=form)
        assert told == (needed.shared(sizes, 2, 2), held[-1])
    assert held[0] - held[1] == 64 * 32


@pytest.mark.parametrize(
    ("target", "forms"), [("cuda:80", {0}), ("cuda:90", {0, 1}), ("hip:gfx942", {0})]
)
def test_which_gpus_are_told(target: str, forms: set[int]) -> None:
    found = tried(kernel_of(across()), DEVICES[target], "bfloat16", {"E": 64, "M": 64, "N": 64})
    assert {config.blocks[DESCRIBED] for config, _ in found} == forms


def test_a_copied_block_is_in_no_registers() -> None:
    made = emitted(program(across()))
    sizes = {"E": 128}
    found = []
    for form in (0, 1):
        blocks = {"BLOCK_J": 64, "BLOCK_I": 64, DESCRIBED: form, "num_warps": 4, "num_stages": 3}
        (each,) = inspect(made, ["cuda:90"], "bfloat16", sizes, blocks).kernels
        assert isinstance(each.result, Measurement), each.result
        found.append(each.result)
    registers = [each.registers for each in found]
    assert registers[0] is not None
    assert registers[1] is not None
    assert registers[1] < registers[0]


def test_a_block_beside_a_product_is_loaded_behind_it() -> None:
    text = emitted(program(across(array='Float[Array, "N M"]', read="t[j, i]"))).text
    loop = text[text.index("# Full blocks.") :].split("# The last")[0]
    places = [loop.index(each) for each in ("a_ie = ", "tl.dot(b_je", "t_ji = ", "t_ji.to(")]
    assert places == sorted(places)
    assert loop.count("tl.dot(") == loop.count("_dot_widened(") == 1
