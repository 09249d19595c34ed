"""What a kernel is compiled for: what Triton would find out of the arguments of a launch."""

from __future__ import annotations

import pytest

from looptrans.blocks.block_ir.expr import Scalar
from looptrans.blocks.block_ir.program import ArrayArgument, Choice, Config, Kernel
from looptrans.emit.arguments import (
    Argument,
    BlockSize,
    IndexType,
    LaneCount,
    Pointer,
    RealNumber,
    Size,
    Stride,
)
from looptrans.ir.index import Param
from looptrans.runtime.inspecting.arguments import BadRequest, configured, job, known_sizes
from looptrans.runtime.inspecting.device import DEVICES
from looptrans.runtime.inspecting.job import Job

NARROW = Config({"BLOCK_R": 128}, 8, 3)
WIDE = Config({"BLOCK_R": 32}, 4, 2)
X = ArrayArgument("x", 3, "float", "in", (Param("B"), Param("R"), Param("W")))
COUNTS = ArrayArgument("counts", 1, "int", "in", (Param("B"),))
MASK = ArrayArgument("mask", 2, "bool", "in", (Param("R"), None))
Y = ArrayArgument("y", 2, "float", "out", (Param("R"), Param("W")), "float32")
KERNEL = Kernel(
    name="scale_kernel",
    grid=(),
    dims=(),
    arrays=(X, COUNTS, MASK, Y),
    scalars=(Scalar("R"), Scalar("W"), Scalar("eps", "float")),
    constants=("W",),
    body=(),
    narrow=Choice(NARROW, (NARROW,)),
    wide=Choice(WIDE, (WIDE,)),
)
ARGUMENTS: tuple[Argument, ...] = (
    Pointer("x_ptr", "x", "float", None),
    Pointer("counts_ptr", "counts", "int", None),
    Pointer("mask_ptr", "mask", "bool", None),
    Pointer("y_ptr", "y", "float", "float32"),
    Stride("stride_xb", "x", 0),
    Stride("stride_xr", "x", 1),
    Stride("stride_xw", "x", 2),
    Stride("stride_mr", "mask", 0),
    RealNumber("eps", "eps"),
    Size("R", "R", False),
    Size("W", "W", True),
    IndexType("INDEX"),
    BlockSize("BLOCK_R_", "BLOCK_R"),
    LaneCount("BLOCK_W", Param("W"), 16, "BLOCK_W"),
)


def asked(dtype: str = "bfloat16", **sizes: int) -> Job:
    device = DEVICES["cuda:90"]
    return job(KERNEL, KERNEL.name, ARGUMENTS, device, dtype, sizes, NARROW)


def test_types_and_constants() -> None:
    found = asked(W=40)
    assert found.signature == {
        "x_ptr": "*bf16",
        "counts_ptr": "*i64",
        "mask_ptr": "*i1",
        "y_ptr": "*fp32",
        "stride_xb": "i32",
        "stride_xr": "i32",
        "stride_xw": "constexpr",
        "stride_mr": "i32",
        "eps": "fp32",
        "R": "i32",
        "W": "constexpr",
        "INDEX": "constexpr",
        "BLOCK_R_": "constexpr",
        "BLOCK_W": "constexpr",
    }
    assert found.constants == {
        "stride_xw": 1,
        "W": 40,
        "INDEX": "int32",
        "BLOCK_R_": 128,
        "BLOCK_W": 64,
    }
    assert (found.kernel, found.target) == ("scale_kernel", "cuda:90")
    assert (found.warps, found.stages) == (8, 3)
    assert asked("float32", W=40).signature["x_ptr"] == "*fp32"


def test_what_16_divides() -> None:
    every = {"x_ptr", "counts_ptr", "mask_ptr", "y_ptr"}
    # A row of 40 elements ends at no multiple of 16; R, which is not known, is one.
    assert set(asked(W=40).divisible) == {*every, "stride_xb", "stride_mr", "R"}
    assert set(asked(W=64).divisible) == {*every, "stride_xb", "stride_xr", "stride_mr", "R"}
    assert set(asked(W=40, R=6).divisible) == {*every, "stride_xb", "stride_mr"}  # 240 = 15 · 16
    assert set(asked(W=40, R=7).divisible) == {*every, "stride_mr"}


def test_an_integer_that_is_1_is_a_constant() -> None:
    found = asked(W=1, R=1)
    ones = {name for name, value in found.constants.items() if value == 1}
    assert ones == {"stride_xb", "stride_xr", "stride_xw", "R", "W"}
    assert all(found.signature[name] == "constexpr" for name in ones)
    assert found.constants["BLOCK_W"] == 16


def test_configurations() -> None:
    assert configured((KERNEL,), "bfloat16", {}) == (NARROW,)
    assert configured((KERNEL,), "float32", {}) == (WIDE,)
    changed = configured((KERNEL,), "float16", {"BLOCK_R": 64, "num_stages": 5, "num_warps": 4})
    assert changed == (Config({"BLOCK_R": 64}, 4, 5),)
    with pytest.raises(BadRequest, match="no kernel has BLOCK_Q; there are: BLOCK_R, num_warps"):
        configured((KERNEL,), "float16", {"BLOCK_Q": 64})
    with pytest.raises(BadRequest, match="BLOCK_R=48 is no power of two"):
        configured((KERNEL,), "float16", {"BLOCK_R": 48})


def test_sizes() -> None:
    assert known_sizes((KERNEL,), {}) == (({"W": 64}, {"W": 128}),)
    assert known_sizes((KERNEL,), {"W": 40}) == (({"W": 40},),)
    assert known_sizes((KERNEL,), {"R": 5}) == (({"R": 5, "W": 64}, {"R": 5, "W": 128}),)
    assert known_sizes((KERNEL,), {"B": 5, "W": 8}) == (({"W": 8, "B": 5},),)
    with pytest.raises(BadRequest, match="no kernel has D; there are: R, W, B"):
        known_sizes((KERNEL,), {"D": 64})
