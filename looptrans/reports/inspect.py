"""Compiled kernels: what each needs of its GPU, and what its loops do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from looptrans.reports.style import PLAIN, Style, block, paragraph, printable
from looptrans.reports.words import counted
from looptrans.runtime.inspecting.code import named_loops
from looptrans.runtime.inspecting.job import Measurement, Refusal

if TYPE_CHECKING:
    from looptrans.runtime.inspecting.code import Work
    from looptrans.runtime.inspecting.inspect import Inspected, Inspection, LeftOut

UNKNOWN = "unknown"


def inspection_text(inspection: Inspection, style: Style = PLAIN) -> str:
    """Return what was measured as text."""
    count = len({each.kernel for each in inspection.kernels})
    head = f"{printable(inspection.program)}: {counted(count, 'kernel')}, {inspection.dtype}"
    if inspection.direction != "forward":
        passes = {"backward": "backward", "both": "forward and backward"}
        head += f", {passes[inspection.direction]}"
    lines = [style.paint("bold", head)]
    for each in inspection.kernels:
        lines += ["", style.paint("bold", f"{printable(each.kernel)} on {each.device.target}")]
        lines += paragraph(_setting(each), "  ")
        lines += _body(each, style)
    return block(lines)


def configurations_text(inspection: Inspection, style: Style = PLAIN) -> str:
    """Return what all configurations compile to as a table for each kernel, GPU and sizes."""
    lines: list[str] = []
    every: tuple[Inspected | LeftOut, ...] = (*inspection.kernels, *inspection.left_out)
    places = dict.fromkeys(map(_place, every))
    for kernel, target, sizes in places:
        shown = " ".join(f"{name}={number}" for name, number in sizes)
        head = " ".join(filter(None, (f"{printable(kernel)} on {target}", shown)))
        lines += ["", style.paint("bold", head)]
        found = [each for each in inspection.kernels if _place(each) == (kernel, target, sizes)]
        rows = [[*_configuration(found[0]), *_MEASURED], *map(_row, found)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row, each in zip(rows, (None, *found), strict=True):
            cells = "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            bad = each is not None and (each.gates or isinstance(each.result, Refusal))
            lines.append(style.paint("bad", f"! {cells}") if bad else f"  {cells}")
        for each in found:
            if isinstance(each.result, Refusal):
                numbers = " ".join(map(str, _configuration(each).values()))
                lines += paragraph(f"{numbers}: {each.result.reason}", "  not compiled: ", "    ")
        for left in inspection.left_out:
            if _place(left) == (kernel, target, sizes):
                numbers = " ".join(map(str, _configuration(left).values()))
                lines += paragraph(f"{numbers}: {left.reason}", "  left out: ", "    ")
    return block(lines[1:])


_MEASURED = ("registers", "spills", "shared", "matrix", "waits", "exp2", "beside", "occupancy")


def _place(each: Inspected | LeftOut) -> tuple[str, str, tuple[tuple[str, int], ...]]:
    return each.kernel, each.device.target, tuple(each.sizes.items())


def _row(each: Inspected) -> list[str]:
    """Return one configuration as cells; what a loop does is that of the loop with most of it."""
    config = [str(value) for value in _configuration(each).values()]
    measured = each.result
    if isinstance(measured, Refusal):
        return [*config, *["-"] * len(_MEASURED)]
    loops = measured.code.loops if measured.code is not None else ()
    work = max(loops, key=lambda loop: (sum(loop.matrix.values()), loop.exp2), default=None)
    counts = ["-"] * 4
    if work is not None:
        matrix = sum(work.matrix.values())
        counts = [str(n) for n in (matrix, work.waits, work.exp2, work.exp2_in_flight)]
    programs = "-" if each.occupancy is None else str(each.occupancy.programs)
    facts = [_known(measured.registers), _known(measured.spills), str(measured.shared)]
    return [*config, *facts, *counts, programs]


def _setting(each: Inspected) -> str:
    """Return the sizes and the configuration: `D=64 E=64 BLOCK_I=128 num_warps=4 …`."""
    numbers = {**each.sizes, **_configuration(each)}
    return " ".join(f"{name}={number}" for name, number in numbers.items())


def _configuration(each: Inspected | LeftOut) -> dict[str, int]:
    config = each.config
    return {**config.blocks, "num_warps": config.warps, "num_stages": config.stages}


def _body(each: Inspected, style: Style) -> list[str]:
    measured = each.result
    if isinstance(measured, Refusal):
        reason = paragraph(f"not compiled: {measured.reason}", "  ", "    ")
        return [style.paint("bad", line) for line in reason]
    facts = [
        f"registers {_known(measured.registers)}",
        f"spills {_known(measured.spills)} bytes",
        f"shared {measured.shared} bytes",
    ]
    if measured.tensor_memory:
        facts.append(f"tensor memory {measured.tensor_memory} columns")
    if each.occupancy is None:
        facts.append("occupancy unknown")
    else:
        programs = counted(each.occupancy.programs, "program")
        facts.append(f"occupancy {programs}, limited by {each.occupancy.limit}")
    lines = paragraph(" · ".join(facts), "  ")
    if measured.code is not None:
        lines += paragraph(f"matrix instructions: {_matrix(measured.code.whole)}", "  ")
        for name, loop in named_loops(measured.code.loops):
            lines += paragraph(_loop(loop), f"  {name}: ")
    for gate in each.gates:
        lines += [style.paint("bad", line) for line in paragraph(gate, "  ! ")]
    for sentence in measured.missing:
        lines += [style.paint("doubt", line) for line in paragraph(sentence, "  ? ")]
    return lines


def _known(number: int | None) -> str:
    return UNKNOWN if number is None else str(number)


def _matrix(work: Work) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in work.kinds.items()) or "none"


def _loop(work: Work) -> str:
    """Return what a loop does once around, in instructions of a warp."""
    facts = []
    if work.matrix:
        facts.append(_matrix(work) + (f", {counted(work.waits, 'wait')}" if work.waits else ""))
    beside = f", {work.exp2_in_flight} beside wgmma" if "wgmma" in work.kinds and work.exp2 else ""
    facts.append(f"{work.exp2} exp2{beside}")
    facts.append(counted(work.divisions, "division"))
    return " · ".join(facts)


def inspection_json(inspection: Inspection) -> str:
    """Return what was measured as JSON, schema `looptrans.inspect/1`.

    `registers`, `spills` (bytes a thread), `shared_bytes`, `matrix_instructions` (by kind) and
    `occupancy` (programs of one SM or CU) are null where they are not known: a kernel that was not
    compiled says why in `refused`, a missing tool is named in `missing`.
    """
    document: dict[str, Any] = {
        "schema": "looptrans.inspect/1",
        "program": inspection.program,
        "pass": inspection.direction,
        "dtype": inspection.dtype,
        "kernels": [_kernel(each) for each in inspection.kernels],
    }
    if inspection.left_out:
        document["left_out"] = [
            {
                "name": each.kernel,
                "target": each.device.target,
                "sizes": dict(each.sizes),
                "config": _configuration(each),
                "reason": each.reason,
            }
            for each in inspection.left_out
        ]
    return json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n"


def _kernel(each: Inspected) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": each.kernel,
        "target": each.device.target,
        "sizes": dict(each.sizes),
        "config": _configuration(each),
    }
    refusal = each.result if isinstance(each.result, Refusal) else None
    measured = each.result if isinstance(each.result, Measurement) else None
    code = measured and measured.code
    return entry | {
        "registers": measured and measured.registers,
        "spills": measured and measured.spills,
        "shared_bytes": measured and measured.shared,
        "tensor_memory_columns": measured and measured.tensor_memory,
        "matrix_instructions": code and code.whole.kinds,
        "occupancy": each.occupancy and each.occupancy.programs,
        "limited_by": each.occupancy and each.occupancy.limit,
        "threads": measured and measured.threads,
        "loops": code and [_loop_entry(loop) for loop in code.loops],
        "gates": list(each.gates),
        "missing": list(measured.missing) if measured else [],
        "refused": refusal and refusal.reason,
    }


def _loop_entry(loop: Work) -> dict[str, Any]:
    return {
        "matrix_instructions": loop.kinds,
        "matrix_opcodes": dict(loop.matrix),
        "exp2": loop.exp2,
        "divisions": loop.divisions,
        "spill_stores": loop.spill_stores,
        "spill_loads": loop.spill_loads,
        "waits": loop.waits,
        "exp2_in_flight": loop.exp2_in_flight,
        "instructions": loop.instructions,
    }
