"""Compile emitted kernels for a GPU that is not there; what is found goes to stdout as JSON."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from looptrans import emit
from looptrans.blocks.block_ir.program import BlockProgram
from looptrans.ir.evaluate import Evaluator
from tests.emit.programs import ALL

BLOCKS = {"BLOCK_I": 64, "BLOCK_J": 64, "BLOCK_K": 32}


def compiled(program: BlockProgram, dtype: str, lanes: int, folder: Path) -> dict[str, Any]:
    """Return what is known of the only kernel of a program, compiled for sm_90."""
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = emit.names(program)
    path = folder / f"{names.file}.py"
    path.write_text(emit.module(program, version="0"))
    spec = importlib.util.spec_from_file_location(names.file, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (kernel,) = program.kernels
    sizes = dict.fromkeys(kernel.constants, lanes)
    rank = {array.name: array.rank for array in kernel.arrays}
    types: dict[str, str] = {}
    constants: dict[str, Any] = {}
    attributes: dict[tuple[int], list[list[object]]] = {}
    for position, argument in enumerate(emit.signature(kernel)):
        match argument:
            case emit.Pointer(name, _, element):
                types[name] = f"*{dtype}" if element == "float" else "*i32"
                attributes[position,] = [["tt.divisibility", 16]]
            case emit.Stride(name, array, axis) if axis == rank[array] - 1:
                constants[name] = 1
            case emit.Stride(name) | emit.Size(name, _, False):
                types[name] = "i32"
                attributes[position,] = [["tt.divisibility", 16]]
            case emit.RealNumber(name):
                types[name] = "fp32"
            case emit.Positive(name):
                constants[name] = True
            case emit.Size(name, parameter):
                constants[name] = sizes[parameter]
            case emit.IndexType(name):
                constants[name] = tl.int32
            case emit.BlockSize(name, block):
                constants[name] = BLOCKS[block]
            case emit.LaneCount(name, extent):
                constants[name] = argument.value(Evaluator(sizes).index(extent, {}))
    order = {argument.name: None for argument in emit.signature(kernel)}
    source = ASTSource(
        getattr(module, names.kernels[0]),
        signature={name: types.get(name, "constexpr") for name in order},
        constexprs=constants,
        attrs=attributes,
    )
    options = {"num_warps": 4, "num_stages": 2, "enable_fp_fusion": True}
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    loops = made.asm["ttir"].split("scf.for")[1:]
    return {
        "masked loads in loops": [
            ["," in loads for loads in re.findall(r"tt\.load ([^:]*) :", loop)] for loop in loops
        ],
        "wgmma": "wgmma.mma_async" in made.asm["ptx"],
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        found = {
            f"{name} {lanes}" + (" fp32" if dtype == "fp32" else ""): compiled(
                ALL[name](), dtype, lanes, Path(directory)
            )
            for name, dtype, lanes in (
                ("attention", "bf16", 64),
                ("attention", "fp32", 64),
            )
        }
    json.dump(found, sys.stdout)
