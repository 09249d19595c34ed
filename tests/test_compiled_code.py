"""The machine code of the shelf's kernels for a GPU that is not there: what makes them fast."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from looptrans.cli.main import main
from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.listing import emitted
from looptrans.frontend import load
from looptrans.runtime.inspecting.inspect import Inspected, backward_module, inspect
from looptrans.runtime.inspecting.job import Measurement
from looptrans.variants import Options, compose
from tests.analysis import program

SPECS = Path(__file__).parent.parent / "specs"


def compiled(name: str) -> list[tuple[Inspected, Measurement]]:
    """Return the kernels of a listing in bf16 and their default configurations."""
    found = inspect(emitted(load(str(SPECS / f"{name}.py"))), ["cuda:90"], "bfloat16", {}, {})
    kernels = []
    for each in found.kernels:
        assert isinstance(each.result, Measurement), each.result
        kernels.append((each, each.result))
    return kernels


def multiply_adds(matrix: Mapping[str, int], threads: int) -> int:
    """Return what a program multiplies and adds once around a loop.

    wgmma has its shape in its name, and four warps do it together.
    """
    groups = threads // 128
    total = 0
    for opcode, number in matrix.items():
        shape = re.match(r"HGMMA\.(\d+)x(\d+)x(\d+)\.", opcode)
        assert shape is not None
        m, n, k = map(int, shape.groups())
        total += number * groups * m * n * k
    return total


@pytest.mark.parametrize("name", ["attention_naive", "attention_bias", "attention_causal"])
def test_attention_on_hopper(name: str) -> None:
    kernels = compiled(name)
    assert {each.sizes["D"] for each, _ in kernels} == {64, 128}
    for each, measured in kernels:
        head = each.sizes["D"]
        rows, columns = each.config.blocks["BLOCK_I"], each.config.blocks["BLOCK_J"]
        assert not each.gates
        assert measured.spills == 0
        assert measured.code is not None
        loops = [loop for loop in measured.code.loops if loop.kinds.get("wgmma")]
        assert loops
        for loop in loops:
            # Once around is one block of scores: Q·Kᵀ and P·V.
            assert multiply_adds(loop.matrix, measured.threads) == rows * columns * 2 * head
            assert loop.divisions == 0
            # One for each score, and one for each of the four threads that share a row, which
            # moves what the row has summed so far to its new maximum.
            assert 0 <= loop.exp2 * measured.threads - rows * columns <= 4 * rows
        assert not [loop for loop in measured.code.loops if loop not in loops and loop.exp2]


def test_matmul_on_hopper(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where this process interprets kernels, they are compiled in another one all the same.
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert main(["inspect", str(SPECS / "matmul.py"), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "looptrans.inspect/1"
    (kernel,) = document["kernels"]
    assert kernel["target"] == "cuda:90"
    assert kernel["spills"] == 0
    assert kernel["registers"] > 0 < kernel["occupancy"]
    assert kernel["shared_bytes"] > 0 < kernel["matrix_instructions"]["wgmma"]
    assert not kernel["gates"]
    config = kernel["config"]
    for loop in kernel["loops"]:
        block = config["BLOCK_I"] * config["BLOCK_J"] * config["BLOCK_K"]
        assert multiply_adds(loop["matrix_opcodes"], kernel["threads"]) == block
        assert loop["exp2"] == loop["divisions"] == 0


@pytest.mark.parametrize(
    ("options", "names"),
    [
        # Read, looked up and bent between the products: blocks of 64 keys spilled 216 bytes.
        (Options(relative=True, causal=True, mask="BHMN", softcap="given"), ["_dQ"]),
        # Constants where a loop is skipped: these three waited for each matrix instruction.
        (Options(bias="HMN", dropout="philox", causal=True, lse=True), ["attention", "_dK_dV"]),
        (Options(weights="retention", causal=True, dropout="mask"), ["_dQ"]),
        (Options(layout="packed", documents=True, alibi="BH", lse=True), ["_dK_dV"]),
        (Options(pages=True, differential=True), ["_dK_dV_dK2"]),
    ],
    ids=["bent", "drawn", "decayed", "packed", "paged"],
)
def test_compositions_on_hopper(options: Options, names: list[str]) -> None:
    found = emitted_with_backward(program(compose(options).text))
    module = backward_module(found, both=True)
    endings = tuple(f"{name}_kernel" for name in names)
    pairs = zip(module.kernels, module.called, strict=True)
    kernels, called = zip(*(pair for pair in pairs if pair[1].endswith(endings)), strict=True)
    assert len(called) == len(names)
    chosen = replace(module, kernels=kernels, called=called)
    for each in inspect(chosen, ["cuda:90"], "bfloat16", {"E": 128, "D": 128}, {}).kernels:
        assert isinstance(each.result, Measurement), each.result
        assert not each.gates, each.kernel
