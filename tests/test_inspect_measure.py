"""Compiling for GPUs that are not there: what is measured of kernels written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from looptrans.runtime.inspecting.code import Work, amdgcn, code, matrix_kind, sass
from looptrans.runtime.inspecting.device import DEVICES, Occupancy, occupancy
from looptrans.runtime.inspecting.job import Job, Measurement, Refusal, Result
from looptrans.runtime.inspecting.process import compiled
from looptrans.runtime.inspecting.unset import unset

KERNELS = (Path(__file__).parent / "handwritten_kernels.py").read_text()


def attention(target: str, head: int, *, warps: int = 8) -> Job:
    pointers = ("q", "k", "v", "o")
    integers = ("M", "N", "stride_q", "stride_k", "stride_v", "stride_o")
    constants = {"D": head, "BLOCK_I": 128, "BLOCK_J": 64}
    signature = {
        **dict.fromkeys(pointers, "*bf16"),
        **dict.fromkeys(integers, "i32"),
        "scale": "fp32",
        **dict.fromkeys(constants, "constexpr"),
    }
    return Job("attention", signature, constants, (*pointers, *integers), target, warps, 3)


def reciprocals(target: str) -> Job:
    signature = {"x": "*fp32", "y": "*fp32", "N": "i32", "BLOCK": "constexpr"}
    return Job("reciprocals", signature, {"BLOCK": 1024}, ("x", "y"), target, 4, 1)


def measured(result: Result) -> tuple[Measurement, Work, Work]:
    """Return a measurement, what the whole kernel does, and what its only loop does."""
    assert isinstance(result, Measurement)
    assert result.code is not None
    assert not result.missing
    (loop,) = result.code.loops
    return result, result.code.whole, loop


def test_hopper_kernels() -> None:
    wide, narrow, few = compiled(
        KERNELS,
        "handwritten",
        [
            attention("cuda:90", 128),
            attention("cuda:90", 64),
            attention("cuda:90", 128, warps=4),
        ],
    )

    # A warpgroup of 4 warps multiplies 64 rows by 16 of the contracted dimension at once: each of
    # the two warpgroups does Q·Kᵀ in 128/16 instructions and P·V in 64/16.
    result, whole, loop = measured(wide)
    assert loop.matrix == {"HGMMA.64x64x16.F32.BF16": 8, "HGMMA.64x128x16.F32.BF16": 4}
    assert whole.kinds == loop.kinds == {"wgmma": 12}
    assert 150 < (result.registers or 0) < 200  # FACTS.md: 173
    assert (result.spills, result.threads) == (0, 256)
    assert result.shared == (128 * 128 + 3 * 2 * 64 * 128) * 2  # Q, and K and V in three stages
    # A score each, and the rescaling of the two rows a thread has a part of.
    assert loop.exp2 == 128 * 64 // 256 + 2
    assert loop.divisions == 0 < whole.divisions
    assert not loop.serialized
    assert loop.exp2_in_flight == 0

    result, whole, loop = measured(narrow)
    assert whole.kinds == {"wgmma": 8}
    assert 100 < (result.registers or 0) < 130  # FACTS.md: 121

    result, whole, loop = measured(few)
    assert (result.registers, result.threads) == (255, 128)
    assert 100 < (result.spills or 0) < 200  # FACTS.md: 144
    assert whole.spill_stores > 0 < whole.spill_loads


def test_other_gpus() -> None:
    targets = {"cuda:80": "mma.sync", "cuda:100": "tcgen05", "hip:gfx942": "mfma"}
    results = compiled(KERNELS, "handwritten", [attention(target, 64) for target in targets])
    for (target, kind), found in zip(targets.items(), results, strict=True):
        result, whole, loop = measured(found)
        assert set(whole.kinds) == {kind}
        assert loop.kinds[kind] > 0
        assert loop.divisions == 0 < whole.divisions
        assert loop.exp2 * result.threads >= 128 * 64
        assert result.registers is not None
        assert result.spills == 0
        assert result.tensor_memory == (256 if target == "cuda:100" else 0)


def test_a_compiler_that_ends_the_process_is_a_refusal() -> None:
    aborting = """
import os, sys
def __getattr__(name):
    print("LLVM ERROR: no", file=sys.stderr, flush=True)
    os.abort()
"""
    jobs = [reciprocals("cuda:90"), reciprocals("cuda:80")]
    refusal = Refusal("the compiler ended with SIGABRT: LLVM ERROR: no")
    assert compiled(aborting, "aborting", jobs) == [refusal, refusal]


def test_what_the_compiler_raises_is_a_refusal_and_the_next_kernel_is_compiled() -> None:
    broken = KERNELS.replace("tl.max(score, 1)", "tl.unheard_of(score)")
    refused, divided = compiled(
        broken, "broken", [attention("cuda:90", 64), reciprocals("cuda:90")]
    )
    assert isinstance(refused, Refusal)
    assert "unheard_of" in refused.reason
    assert not refused.missing

    result, whole, loop = measured(divided)
    assert whole.kinds == {}
    assert loop.divisions == 1024 // 128  # one for each element a thread has
    assert (result.spills, result.threads) == (0, 128)


def test_a_module_that_cannot_be_imported_is_a_refusal() -> None:
    broken = "import nowhere_to_be_found\n"
    found = compiled(broken, "broken", [reciprocals("cuda:90"), reciprocals("cuda:80")])
    reason = "the module cannot be imported: ModuleNotFoundError: No module named"
    assert found == [Refusal(f"{reason} 'nowhere_to_be_found'")] * 2
    found = compiled("import os\nos.abort()\n", "broken", [reciprocals("cuda:90")] * 2)
    assert found == [Refusal("the compiler ended with SIGABRT: it said nothing")] * 2


NEST = """
kernel:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   FADD R1, R1, R2 ;
.L_x_2:
        /*0020*/                   MUFU.EX2 R2, R3 ;
        /*0030*/              @!P0 BRA `(.L_x_9) ;
.L_x_3:
        /*0040*/                   BRA.U UP1, `(.L_x_2) ;
        /*0050*/                   MUFU.RCP R4, R5 ;
        /*0060*/               @P2 BRA `(.L_x_1) ;
        /*0070*/                   EXIT ;
.L_x_9:
        /*0078*/                   IMAD.U32 R0, RZ, RZ, UR4 ;
        /*0080*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R4 ;
        /*0090*/              @!P0 BRA `(.L_x_9) ;
        /*00a0*/                   MUFU.EX2 R2, R3 ;
        /*00b0*/                   BRA `(.L_x_3) ;
.L_x_8:
        /*00c0*/                   BRA `(.L_x_8);
"""


def test_loops_are_those_of_the_control_flow() -> None:
    found = code(sass(NEST))
    assert (found.whole.exp2, found.whole.divisions) == (2, 1)
    (loop,) = found.loops  # not the one around it, nor those that only wait
    assert (loop.exp2, loop.divisions) == (2, 0)  # with the block behind the end


def test_loops_of_amd_code() -> None:
    text = """
kernel:
    .p2align 8
    s_cbranch_scc1 .LBB0_3
.LBB0_1:                                ; =>This Inner Loop Header: Depth=1
    v_exp_f32_e32 v1, v2
    v_mfma_f32_32x32x8_bf16 v[0:15], v[2:3], v[4:5], 0
    s_cbranch_scc0 .LBB0_1
.LBB0_3:
    v_rcp_f32_e32 v1, v1
    s_endpgm
"""
    found = code(amdgcn(text))
    assert (found.whole.exp2, found.whole.divisions) == (1, 1)
    (loop,) = found.loops
    assert (loop.exp2, loop.divisions, loop.kinds) == (1, 0, {"mfma": 1})


WAIT = "WARPGROUP.DEPBAR.LE gsb0, 0x0"
ISSUE = "HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], R24, gsb0"
EXP2 = "MUFU.EX2 R1, R1"


@pytest.mark.parametrize(
    ("body", "in_flight", "serialized"),
    [
        ((ISSUE, WAIT, EXP2), 0, True),
        ((ISSUE, EXP2, WAIT), 1, True),
        ((ISSUE, ISSUE, EXP2, WAIT, EXP2), 1, False),
        ((EXP2, WAIT, ISSUE, ISSUE), 1, False),  # waited for in the next iteration
        ((ISSUE, ISSUE, "WARPGROUP.DEPBAR.LE gsb0, 0x1", EXP2, WAIT), 1, False),
    ],
)
def test_what_runs_beside_matrix_instructions(
    body: tuple[str, ...], in_flight: int, serialized: bool
) -> None:
    lines = [f"  /*{at:04x}*/  {text} ;" for at, text in enumerate((*body, "@P0 BRA `(.L_x_0)"))]
    (loop,) = code(sass("\n".join((".L_x_0:", *lines, "  /*ffff*/  EXIT ;")))).loops
    assert loop.exp2_in_flight == in_flight
    assert loop.serialized == serialized


BEHIND = (
    *("BRA `(.L_x_1)", ".L_x_0:", "UIADD3 UR6, UR4, 0x1, URZ", "EXIT"),
    *(".L_x_1:", "R2UR UR4, R2", "BRA `(.L_x_0)"),
)


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        # What ptxas 12.8 made of a kernel out of uniform registers: UR57 was meant.
        (("USGXT.U32 UR57, UR56, 0xe", "UIADD3 UR17, UP0, UR17, 0x2, URZ"), ("UR17", "UR56")),
        (("ULDC.64 UR4, c[0x0][0x208]", "UIADD3 UR6, UR4, UR5, URZ"), ()),
        (("ULDC UR4, c[0x0][0x208]", "UIADD3 UR6, UR4, UR5, URZ"), ("UR5",)),
        # Half of a result is left what it was, and not looked at.
        (("ULDC UR4, c[0x0][0x208]", "UPRMT UR6, UR4, 0x7632, UR6"), ()),
        (("ULDC UR4, c[0x0][0x208]", "UPRMT UR6, UR4, 0x7632, UR7"), ("UR7",)),
        # Moved behind the end, and set there: it is done before all the same.
        (BEHIND, ()),
        # What may be set: in one of two branches, or in the iteration before.
        (("@P0 BRA `(.L_x_0)", "UMOV UR4, 0x1", ".L_x_0:", "ULEA UR5, UR4, URZ, 0x1"), ()),
        ((".L_x_0:", "UIADD3 UR5, UR5, 0x1, URZ", "@P0 BRA `(.L_x_0)"), ()),
        # Copies and descriptors of operands that are in registers stand for nothing.
        (("MOV R4, UR51", "HGMMA.64x64x16.F32.BF16 R56, R36, gdesc[UR32].tnspB, R56"), ()),
    ],
)
def test_registers_that_nothing_has_set(body: tuple[str, ...], wrong: tuple[str, ...]) -> None:
    lines = [
        text if text.endswith(":") else f"  /*{at:04x}*/  {text} ;"
        for at, text in enumerate((*body, "EXIT"))
    ]
    assert unset(sass("\n".join(lines))) == wrong


def test_kinds_of_matrix_instructions() -> None:
    kinds = {
        "HGMMA.64x128x16.F32.BF16": "wgmma",
        "HMMA.16816.F32.BF16": "mma.sync",
        "DMMA.884": "mma.sync",
        "UTCHMMA": "tcgen05",
        "v_mfma_f32_32x32x8_bf16": "mfma",
        "FFMA": None,
        "UTCBAR": None,
        "v_fma_f32": None,
    }
    assert {opcode: matrix_kind(opcode) for opcode in kinds} == kinds


def test_occupancy() -> None:
    hopper, ampere = DEVICES["cuda:90"], DEVICES["cuda:80"]
    blackwell, cdna = DEVICES["cuda:100"], DEVICES["hip:gfx942"]
    # 65,536 registers; 128 · 256 and 168 · 256 of them for a program of 8 warps.
    assert occupancy(hopper, 8, 128, 0) == Occupancy(2, "registers")
    assert occupancy(hopper, 8, 168, 0) == Occupancy(1, "registers")
    assert occupancy(hopper, 4, 255, 0) == Occupancy(2, "registers")
    assert occupancy(hopper, 4, 32, 0) == Occupancy(16, "warps")
    assert occupancy(hopper, 1, 16, 0) == Occupancy(32, "programs")
    # 228 KB, and 1 KB more for each program than it asks for: 3 · 75 KB fit, 3 · 75.1 KB do not.
    assert occupancy(hopper, 4, 64, 75 * 1024) == Occupancy(3, "shared memory")
    assert occupancy(hopper, 4, 64, 75 * 1024 + 128) == Occupancy(2, "shared memory")
    assert occupancy(hopper, 4, 64, 227 * 1024) == Occupancy(1, "shared memory")
    assert occupancy(hopper, 4, 64, 227 * 1024 + 1) == Occupancy(0, "shared memory")
    assert occupancy(ampere, 4, 64, 163 * 1024) == Occupancy(1, "shared memory")
    assert occupancy(ampere, 4, 64, 227 * 1024) == Occupancy(0, "shared memory")
    # 100 KB and 48 warps; a program gets 99 KB at most.
    for small in (DEVICES["cuda:89"], DEVICES["cuda:120"]):
        assert occupancy(small, 4, 32, 0) == Occupancy(12, "warps")
        assert occupancy(small, 1, 16, 0) == Occupancy(24, "programs")
        assert occupancy(small, 4, 64, 99 * 1024) == Occupancy(1, "shared memory")
        assert occupancy(small, 4, 64, 99 * 1024 + 1) == Occupancy(0, "shared memory")
    assert occupancy(blackwell, 4, 64, 1024, 256) == Occupancy(2, "tensor memory")
    # 512 registers for each of the lanes of a SIMD, 8 waves at the most, 4 SIMDs.
    assert occupancy(cdna, 4, 64, 0) == Occupancy(8, "warps")
    assert occupancy(cdna, 4, 128, 0) == Occupancy(4, "registers")
    assert occupancy(cdna, 8, 128, 0) == Occupancy(2, "registers")
    assert occupancy(cdna, 4, 64, 32 * 1024) == Occupancy(2, "shared memory")
