"""`looptrans inspect`: what is said about compiled kernels, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from looptrans.blocks.block_ir.program import Config
from looptrans.cli.main import main
from looptrans.reports.inspect import configurations_text, inspection_json, inspection_text
from looptrans.runtime.inspecting.code import Code, Work
from looptrans.runtime.inspecting.inspect import Inspection, LeftOut, inspected
from looptrans.runtime.inspecting.job import Job, Measurement, Refusal, Result

SPECS = Path(__file__).parent.parent / "specs"

Capture = pytest.CaptureFixture[str]


def work(**counts: Any) -> Work:
    nothing: dict[str, Any] = dict.fromkeys(
        (
            "exp2",
            "divisions",
            "spill_stores",
            "spill_loads",
            "waits",
            "exp2_in_flight",
            "instructions",
        ),
        0,
    )
    return Work(**{"matrix": {}, **nothing, **counts})


def measurement(**facts: Any) -> Measurement:
    usual: dict[str, Any] = {
        "registers": 168,
        "spills": 0,
        "shared": 96 * 1024,
        "tensor_memory": 0,
        "threads": 256,
        "code": Code(work(), ()),
    }
    return Measurement(**{**usual, **facts})


def inspection(result: Result, target: str = "cuda:90", width: int = 64) -> Inspection:
    job = Job("scale_kernel", {}, {}, (), target, 8, 3)
    config = Config({"BLOCK_R": 128}, 8, 3)
    return Inspection("scale", "bfloat16", (inspected(job, {"W": width}, config, result),))


def entry(result: Result, target: str = "cuda:90") -> Any:
    document = json.loads(inspection_json(inspection(result, target)))
    assert document["schema"] == "looptrans.inspect/1"
    (kernel,) = document["kernels"]
    return kernel


def test_a_kernel_as_json() -> None:
    loop = work(matrix={"HGMMA.64x64x16.F32.BF16": 8}, exp2=34, waits=1)
    whole = work(matrix={"HGMMA.64x64x16.F32.BF16": 8}, exp2=34, divisions=2, waits=2)
    kernel = entry(measurement(code=Code(whole, (loop,))))
    assert kernel["name"] == "scale_kernel"
    assert kernel["target"] == "cuda:90"
    assert kernel["sizes"] == {"W": 64}
    assert kernel["config"] == {"BLOCK_R": 128, "num_warps": 8, "num_stages": 3}
    assert (kernel["registers"], kernel["spills"], kernel["shared_bytes"]) == (168, 0, 98304)
    assert kernel["matrix_instructions"] == {"wgmma": 8}
    assert (kernel["occupancy"], kernel["limited_by"]) == (1, "registers")
    assert kernel["loops"][0]["exp2"] == 34
    assert (kernel["gates"], kernel["refused"]) == ([], None)


def test_a_kernel_as_text() -> None:
    loop = work(matrix={"HGMMA.64x64x16.F32.BF16": 8}, exp2=34, waits=1)
    found = inspection(measurement(code=Code(loop, (loop,))))
    assert inspection_text(found) == (
        "scale: 1 kernel, bfloat16\n"
        "\n"
        "scale_kernel on cuda:90\n"
        "  W=64 BLOCK_R=128 num_warps=8 num_stages=3\n"
        "  registers 168 · spills 0 bytes · shared 98304 bytes · occupancy 1 program,"
        " limited by registers\n"
        "  matrix instructions: 8 wgmma\n"
        "  loop 1: 8 wgmma, 1 wait · 34 exp2, 0 beside wgmma · 0 divisions\n"
    )


def test_all_configurations_as_a_table() -> None:
    loop = work(matrix={"HGMMA.64x64x16.F32.BF16": 8}, exp2=34, waits=2, exp2_in_flight=28)
    results = (measurement(code=Code(loop, (loop,))), measurement(spills=8), Refusal("no shape"))
    kernels = tuple(each for result in results for each in inspection(result).kernels)
    first = kernels[0]
    left = LeftOut(first.kernel, first.device, first.sizes, first.config, "it is too large")
    found = Inspection("scale", "bfloat16", kernels, left_out=(left,))
    assert configurations_text(found) == (
        "scale_kernel on cuda:90 W=64\n"
        "  BLOCK_R  num_warps  num_stages  registers  spills  shared  matrix  waits  exp2  beside"
        "  occupancy\n"
        "      128          8           3        168       0   98304       8      2    34      28"
        "          1\n"
        "!     128          8           3        168       8   98304       -      -     -       -"
        "          1\n"
        "!     128          8           3          -       -       -       -      -     -       -"
        "          -\n"
        "  not compiled: 128 8 3: no shape\n"
        "  left out: 128 8 3: it is too large\n"
    )
    (entry,) = json.loads(inspection_json(found))["left_out"]
    assert entry["reason"] == "it is too large"
    assert entry["config"] == {"BLOCK_R": 128, "num_warps": 8, "num_stages": 3}


@pytest.mark.parametrize(
    ("result", "target", "said"),
    [
        (measurement(shared=232448 + 1), "cuda:90", "may have 232448: it cannot be launched"),
        (measurement(shared=166912 + 1), "cuda:80", "may have 166912: it cannot be launched"),
        (measurement(shared=65536 + 1), "hip:gfx942", "may have 65536: it cannot be launched"),
        (measurement(tensor_memory=1024), "cuda:100", "there are 512: it cannot be launched"),
        (measurement(spills=152), "cuda:90", "spills 152 bytes"),
        (measurement(unset=("UR17", "UR32")), "cuda:90", "nothing has set (UR17, UR32), an error"),
        (
            measurement(code=Code(work(), (work(), work(spill_stores=3, spill_loads=4)))),
            "cuda:90",
            "loop 2 stores 3 times to a thread's own memory and loads 4 times",
        ),
        (
            # As many cosines have, unrolled.
            measurement(code=Code(work(), (work(), *(work(spill_stores=1) for _ in range(9))))),
            "cuda:90",
            "each of loops 2 to 10 stores 1 times to a thread's own memory",
        ),
        (
            measurement(code=Code(work(), (work(matrix={"HGMMA.64x64x16": 4}, waits=4),))),
            "cuda:90",
            "loop 1 waits for each matrix instruction",
        ),
    ],
)
def test_what_speaks_against_a_kernel(result: Measurement, target: str, said: str) -> None:
    found = inspection(result, target)
    (kernel,) = found.kernels
    (gate,) = kernel.gates
    assert said in gate
    assert "  ! " in inspection_text(found)
    assert entry(result, target)["gates"] == [gate]


def test_rows_that_are_too_wide_for_a_block_are_named() -> None:
    def said(width: int) -> str:
        (kernel,) = inspection(measurement(shared=300_000), width=width).kernels
        return kernel.gates[0]

    assert said(4096).endswith(
        "with assert W > 512 in the listing, sums of products over W go over blocks"
    )
    assert said(512).endswith("it cannot be launched")


def test_what_is_not_known_is_said() -> None:
    result = measurement(registers=None, spills=None, code=None, missing=("cuobjdump is gone",))
    kernel = entry(result)
    for unknown in ("registers", "spills", "matrix_instructions", "occupancy", "loops"):
        assert kernel[unknown] is None
    assert kernel["shared_bytes"] == 98304
    assert kernel["missing"] == ["cuobjdump is gone"]
    text = inspection_text(inspection(result))
    assert "registers unknown" in text
    assert "  ? cuobjdump is gone" in text


def test_a_kernel_that_was_not_compiled() -> None:
    refusal = Refusal("the compiler ended with SIGABRT: LLVM ERROR: no")
    kernel = entry(refusal)
    assert kernel["refused"] == refusal.reason
    assert kernel["registers"] is None
    assert "not compiled: the compiler ended with SIGABRT" in inspection_text(inspection(refusal))
    assert inspection(refusal).refused == (refusal,)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--sizes", "Z=64"), "error: --sizes: no kernel has Z; there are: "),
        (("--sizes", "I=0.5"), "error: I=0.5 is no integer above 0"),
        (("--config", "BLOCK_Z=64"), "error: --config: no kernel has BLOCK_Z; there are: "),
        (("--config", "num_warps=3"), "error: --config: num_warps=3 is no power of two"),
        (("--pass", "sideways"), "invalid choice: 'sideways'"),
        (("--target", "cuda:10"), "invalid choice: 'cuda:10'"),
    ],
)
def test_what_cannot_be_meant(capsys: Capture, arguments: tuple[str, str], said: str) -> None:
    assert main(["inspect", str(SPECS / "matmul.py"), *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err


def test_a_listing_without_kernels(capsys: Capture) -> None:
    assert main(["inspect", str(SPECS / "stencil.py")]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "error[E070]: cannot emit stencil" in printed.err


def test_without_triton(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["inspect", str(SPECS / "matmul.py")]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "torch is not installed: pip install 'looptrans[gpu]'" in printed.err
