"""The code of emitted kernels beside that of FlexAttention's: instructions of a step of each loop.

    .venv/bin/python -m benchmarks.flex_code                     the table of benchmarks/README.md
    .venv/bin/python -m benchmarks.flex_code --size 64 --case causal --output FILE.json

Both are compiled for an H100 that need not be there, in FlexAttention's own blocks, and their
machine code is read. Fewer instructions are no promise of faster. It takes some minutes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import triton

from benchmarks.flex_templates import CASES, rendered
from looptrans.blocks.block_ir.program import Kernel
from looptrans.emit import Pointer, signature
from looptrans.emit.backward import emitted_with_backward
from looptrans.frontend import load
from looptrans.runtime.inspecting.arguments import job
from looptrans.runtime.inspecting.code import Work
from looptrans.runtime.inspecting.compile import measure
from looptrans.runtime.inspecting.device import DEVICES
from looptrans.runtime.inspecting.inspect import backward_module
from looptrans.runtime.inspecting.job import Measurement
from looptrans.runtime.running.load import load_module

ROOT = Path(__file__).parent.parent
TARGET = DEVICES["cuda:90"]
SPECS = {
    "causal": "attention_causal",
    "window": "attention_window_left",
    "bias": "attention_bias",
    "soft cap": "attention_softcap",
}
PASSES = ("forward", "dQ", "dK and dV")
PART = re.compile(r"_part(_\d+)?$")
ROLES = {("O",): "forward", ("dQ",): "dQ", ("dK", "dV"): "dK and dV"}


@dataclass(frozen=True, slots=True)
class Counted:
    """The loops of a kernel that have matrix products.

    Attributes:
        case: The case.
        which: One of `PASSES`.
        emitted: Whether it is emitted, or else FlexAttention's.
        full: The instructions of a step over a block that needs no mask.
        masked: Those of the other loops, from the least; none where nothing is masked.
        registers: The registers of a thread.
        stack: The bytes of a thread's registers that are kept in memory at times.
    """

    case: str
    which: str
    emitted: bool
    full: int
    masked: tuple[int, ...]
    registers: int | None
    stack: int | None


def counted(
    case: str, which: str, emitted: bool, loops: Sequence[Work], of: Measurement
) -> Counted:
    """Return the counts of a kernel's loops: that over full blocks has the fewest instructions."""
    sizes = sorted(loop.instructions for loop in loops)
    masked = tuple(sizes[1:]) if CASES[case].mask is not None else ()
    return Counted(case, which, emitted, sizes[0], masked, of.registers, of.spills)


def products(measured: Measurement) -> list[Work]:
    """Return the innermost loops that have matrix products."""
    assert measured.code is not None, "; ".join(measured.missing)
    return [loop for loop in measured.code.loops if loop.matrix]


def loaded(text: str, folder: Path) -> Any:
    """Import a module from its text."""
    name = f"flex_code_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    return load_module(name, text, path)


def of_flex(case: str, size: int, folder: Path) -> Iterator[Counted]:
    """Compile FlexAttention's kernels of a case; the backward one has both kinds of loops."""
    warps = 4 if size == 64 else 8
    made = rendered("forward", case, size)
    kernel = loaded(made.text, folder).flex_kernel
    found = measure(kernel, made.signature, {}, tuple(made.signature), TARGET, warps, 3)
    yield counted(case, "forward", False, products(found), found)
    made = rendered("backward", case, size)
    kernel = loaded(made.text, folder).flex_kernel
    found = measure(kernel, made.signature, {}, tuple(made.signature), TARGET, 8, 3)
    loops = products(found)
    # dQ takes three products a step, dK and dV four.
    most = max(sum(loop.matrix.values()) for loop in loops)
    for which in PASSES[1:]:
        own = [each for each in loops if (sum(each.matrix.values()) == most) == (which != "dQ")]
        yield counted(case, which, False, own, found)


def role(kernel: Kernel) -> str | None:
    """Return which of `PASSES` a kernel does; None for what FlexAttention does otherwise."""
    stored = {each.name for each in kernel.arrays if each.access == "out"}
    found = [which for names, which in ROLES.items() if stored >= set(names)]
    return found[0] if found else None


def of_emitted(case: str, size: int, folder: Path) -> Iterator[Counted]:
    """Compile the emitted kernels of a case in the same blocks."""
    program = load(str(ROOT / "specs" / f"{SPECS[case]}.py"))
    module = backward_module(emitted_with_backward(program), both=True)
    unasked = {f"d{each.name}" for each in program.parameters if each.kind == "real"}
    text = loaded(module.text, folder)
    for kernel, name in zip(module.kernels, module.called, strict=True):
        which = role(kernel)
        if which is None:
            continue
        rows, keys = (128, 128 if (which, size) == ("forward", 64) else 64)
        blocks = {"BLOCK_I": rows, "BLOCK_J": keys, "LATE": 0}
        if which == "dK and dV":
            blocks = {"BLOCK_J": rows, "BLOCK_I": keys}
        warps = 4 if (which, size) == ("forward", 64) else 8
        config = replace(kernel.narrow.default, blocks=blocks, warps=warps, stages=3)
        sizes = dict.fromkeys(kernel.constants, size)
        arguments = signature(kernel)
        what = job(kernel, name, arguments, TARGET, "bfloat16", sizes, config)
        types, constants = dict(what.signature), dict[str, Any](what.constants)
        # FlexAttention has no gradients of numbers: they are not asked for.
        for each in arguments:
            if isinstance(each, Pointer) and PART.sub("", each.array) in unasked:
                types[each.name], constants[each.name] = "constexpr", None
        divisible = [each for each in what.divisible if types[each] != "constexpr"]
        found = measure(
            getattr(text, name), types, constants, divisible, TARGET, config.warps, config.stages
        )
        yield counted(case, which, True, products(found), found)


def table(found: Sequence[Counted]) -> str:
    """Return the counts as a table in Markdown."""
    by = {(each.case, each.which, each.emitted): each for each in found}
    lines = ["| blocks of | FlexAttention | emitted |", "|---|---|---|"]
    for case in dict.fromkeys(each.case for each in found):
        kinds = ("full", "masked") if CASES[case].mask is not None else ("full",)
        for kind in kinds:
            cells = [
                " / ".join(_shown(by[case, which, emitted], kind) for which in PASSES)
                for emitted in (False, True)
            ]
            lines.append(f"| {case}{f', {kind}' * (len(kinds) > 1)} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def _shown(counts: Counted, kind: str) -> str:
    numbers = (counts.full,) if kind == "full" else counts.masked
    least, most = min(numbers, default=0), max(numbers, default=0)
    return f"{least}" if least == most else f"{least} to {most}"


def document(found: Sequence[Counted], size: int) -> dict[str, Any]:
    """Return the counts with what they were made with."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    made: Mapping[str, Any] = {
        "head_size": size,
        "target": TARGET.target,
        "dtype": "bfloat16",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "commit": commit,
    }
    return {**made, "kernels": [asdict(each) for each in found]}


def main() -> int:
    """Compile, count, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--case", action="append", choices=list(CASES), help="default: all")
    parser.add_argument("--size", type=int, default=128, choices=(64, 128), help="the head size")
    parser.add_argument("--output", type=Path, help="where the counts go as JSON")
    arguments = parser.parse_args()
    found: list[Counted] = []
    with tempfile.TemporaryDirectory() as folder:
        for case in arguments.case or CASES:
            print(f"{case} …", file=sys.stderr, flush=True)
            found += of_flex(case, arguments.size, Path(folder))
            found += of_emitted(case, arguments.size, Path(folder))
    print(table(found))
    if arguments.output is not None:
        text = json.dumps(document(found, arguments.size), indent=2)
        arguments.output.write_text(f"{text}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
