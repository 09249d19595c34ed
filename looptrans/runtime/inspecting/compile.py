"""Compiles kernels for GPUs that need not be there, and measures what comes out.

Run as a program, in a process of its own (`python -m looptrans.runtime.inspecting.compile`): the
file of the module and the jobs come on standard input, the results go to standard output. Triton
must have been imported without TRITON_INTERPRET, since interpreted kernels cannot be compiled.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import triton
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from looptrans.runtime.inspecting.code import Code, amdgcn, code, sass
from looptrans.runtime.inspecting.device import DEVICES, Device
from looptrans.runtime.inspecting.job import (
    LONGEST,
    MARK,
    Constant,
    Job,
    Measurement,
    Refusal,
    Result,
    written,
)
from looptrans.runtime.inspecting.unset import unset
from looptrans.runtime.running.load import load_module


def measure(
    fn: Any,
    signature: Mapping[str, str],
    constants: Mapping[str, Constant],
    divisible: Sequence[str],
    device: Device,
    warps: int,
    stages: int,
) -> Measurement:
    """Compile a kernel and read the code.

    Args:
        fn: What `triton.jit` has made of a function, autotuned or not.
        signature: The type of each argument as Triton writes it.
        constants: The value of each constexpr; a text names an element type of Triton.
        divisible: The arguments that are divisible by 16.
        device: The GPU.
        warps: The warps of a program.
        stages: How many blocks ahead loads are begun.
    """
    while not isinstance(fn, triton.JITFunction):
        fn = fn.fn
    known = {
        name: getattr(triton.language, value) if isinstance(value, str) else value
        for name, value in constants.items()
    }
    source = ASTSource(
        fn=fn,
        signature={name: signature[name] for name in fn.arg_names},
        constexprs=known,
        attrs={
            (at,): _attributes(signature[name], device)
            for at, name in enumerate(fn.arg_names)
            if name in divisible
        },
    )
    compiled = triton.compile(
        source,
        target=_target(device),
        options={"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True},
    )
    read = _nvidia if device.backend == "cuda" else _amd
    return read(compiled)


def _target(device: Device) -> GPUTarget:
    return GPUTarget(device.backend, device.arch, device.threads)


def _attributes(kind: str, device: Device) -> list[list[object]]:
    """Return what a launch finds out: also, for AMD, that an array is smaller than 2 GB."""
    found: list[list[object]] = [["tt.divisibility", 16]]
    if device.backend == "hip" and kind.startswith("*"):
        found.append(["tt.pointer_range", 32])
    return found


def _threads(compiled: Any) -> int:
    return int(compiled.metadata.num_warps * compiled.metadata.target.warp_size)


def _nvidia(compiled: Any) -> Measurement:
    missing: list[str] = []
    registers = spills = None
    found: Code | None = None
    wrong: tuple[str, ...] = ()
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(compiled.asm["cubin"])
        usage = _tool("cuobjdump", ["--dump-resource-usage", str(cubin)], missing)
        if usage is not None:
            numbers = {name: int(n) for name, n in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", usage)}
            registers = numbers["REG"]
            # What lies on a thread's stack is spilled registers, and arrays that PTX asks for.
            arrays = re.findall(r"^\s*\.local .*\[(\d+)\];", compiled.asm["ptx"], re.MULTILINE)
            spills = max(numbers["STACK"] + numbers["LOCAL"] - sum(map(int, arrays)), 0)
        text = _tool("nvdisasm", ["-c", str(cubin)], missing)
        if text is not None:
            instructions = sass(text)
            found, wrong = code(instructions), unset(instructions)
    return Measurement(
        registers=registers,
        spills=spills,
        shared=int(compiled.metadata.shared),
        tensor_memory=int(getattr(compiled.metadata, "tmem_size", None) or 0),
        threads=_threads(compiled),
        code=found,
        missing=tuple(missing),
        unset=wrong,
    )


def _tool(name: str, arguments: list[str], missing: list[str]) -> str | None:
    """Run a tool of Triton's NVIDIA back end; where it does not run, say what is not known."""
    what = {"cuobjdump": "registers and spills", "nvdisasm": "the instructions"}[name]
    try:
        path = getattr(triton.knobs.nvidia, name).path
        return subprocess.run([path, *arguments], capture_output=True, text=True, check=True).stdout
    except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
        reason = " ".join(str(error).split())
        missing.append(
            f"{name} of triton's NVIDIA back end does not run, so {what} are not known: {reason}"
        )
        return None


def _amd(compiled: Any) -> Measurement:
    text = compiled.asm["amdgcn"]

    def number(field: str) -> int:
        return int(re.findall(rf"^\s*-?\s*\.{field}:\s+(\d+)", text, re.MULTILINE)[-1])

    return Measurement(
        registers=number("vgpr_count"),
        spills=4 * number("vgpr_spill_count"),
        shared=max(int(compiled.metadata.shared), number("group_segment_fixed_size")),
        tensor_memory=0,
        threads=_threads(compiled),
        code=code(amdgcn(text)),
    )


def _result(module: Any, job: Job) -> Result:
    device = DEVICES[job.target]
    target = _target(device)
    if not any(each.compiler.supports_target(target) for each in backends.values()):
        return Refusal(f"this triton has no back end for {job.target}", missing=True)
    try:
        return measure(
            getattr(module, job.kernel),
            job.signature,
            job.constants,
            job.divisible,
            device,
            job.warps,
            job.stages,
        )
    except Exception as error:  # whatever the compiler raises is its reason
        return Refusal(_said(error))


def _said(error: BaseException) -> str:
    """Return an error of the compiler in one line.

    Triton prints the kernel up to the place, a line with `^` under it, and then what is wrong.
    """
    lines = str(error).splitlines()
    marks = [at for at, line in enumerate(lines) if at and line.strip() == "^"]
    if marks:
        wrong = " ".join(lines[marks[-1] + 1 :]) or repr(error.__cause__)
        lines = [wrong, f"in: {lines[marks[-1] - 1].strip()}"]
    text = " ".join(" ".join(lines).split())
    return f"{type(error).__name__}: {text}"[:LONGEST]


def main() -> None:
    """Compile the jobs on standard input."""
    request = json.load(sys.stdin)
    # What the compiler prints goes to standard error, so that results stand alone.
    results = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    path = Path(request["path"])
    try:
        module = load_module(request["name"], path.read_text(encoding="utf-8"), path)
    except Exception as error:  # whatever code of a user raises as it is imported
        refusal = Refusal(f"the module cannot be imported: {_said(error)}")
        for _ in request["jobs"]:
            print(json.dumps(written(refusal)), file=results)
        return
    for number, data in enumerate(request["jobs"]):
        print(f"{MARK} {number}", file=sys.stderr, flush=True)
        print(json.dumps(written(_result(module, Job.read(data)))), file=results, flush=True)


if __name__ == "__main__":
    main()
