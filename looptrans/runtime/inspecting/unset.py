"""Registers that compiled code works with and nothing has set: an error of the compiler.

NVIDIA's ptxas 12.8, which Triton 3.6 brings, writes such code where it runs out of uniform
registers, of which a warp has 63 and each operand of a wgmma instruction in shared memory takes
two:

    UIADD3 UR17, UP0, UR17, 0x2    no instruction before it sets UR17

On an H200 a kernel with it gave infinities, or left its memory. What the compiler copies without
using it, as it does where it moves registers in pairs, is no error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from looptrans.runtime.inspecting.code import Instruction, successors

_UNIFORM = re.compile(r"\bUR(\d+)\b")
# What works with numbers in uniform registers; the first operand is the result.
_ARITHMETIC = re.compile(r"(UIABS|UIADD3|UIMAD|ULEA|ULOP3|UPRMT|USEL|USGXT|USHF)\b")
# What sets a uniform register besides.
_SETTING = re.compile(
    r"(CREDUX|CS2UR|ELECT|LDCU|R2UR|REDUX|S2UR|U2F|UBMSK|UBREV|UF2|UFLO|ULDC|UMOV|UP2UR|UPOPC"
    r"|VOTEU)"
)


def unset(instructions: Sequence[Instruction]) -> tuple[str, ...]:
    """Return the uniform registers that arithmetic reads before anything on any way has set them.

    Args:
        instructions: Those of a kernel for NVIDIA GPUs, the first one that of its entry.
    """
    if not instructions:
        return ()
    after = successors(instructions)
    written = [_written(each) for each in instructions]
    known: list[int | None] = [None] * len(instructions)  # what may be set before each, as bits
    known[0] = 0
    waiting = [0]
    while waiting:
        at = waiting.pop()
        behind = (known[at] or 0) | written[at]
        for other in after[at]:
            before = known[other]
            joined = behind if before is None else before | behind
            if joined != before:
                known[other] = joined
                waiting.append(other)
    found = {
        number
        for each, before in zip(instructions, known, strict=True)
        if before is not None
        for number in _read(each)
        if not before >> number & 1
    }
    return tuple(f"UR{number}" for number in sorted(found))


def _written(instruction: Instruction) -> int:
    """Return the uniform registers that an instruction sets, as bits."""
    opcode, operands = instruction.opcode, instruction.operands.split(",")
    if not (_ARITHMETIC.match(opcode) or _SETTING.match(opcode)):
        return 0
    numbers = [re.fullmatch(r"UR(\d+)", operand.strip()) for operand in operands[:2]]
    first = next((int(each[1]) for each in numbers if each), None)
    if first is None:
        return 0
    count = 4 if ".128" in opcode else 2 if ".64" in opcode or ".WIDE" in opcode else 1
    return ((1 << count) - 1) << first


def _read(instruction: Instruction) -> list[int]:
    """Return the uniform registers that arithmetic works with; of a pair the first one.

    What `UPRMT UR6, UR4, 0x7632, UR6` leaves of its own result is half of a register of which the
    other half is looked at.
    """
    if not _ARITHMETIC.match(instruction.opcode):
        return []
    result, _, sources = instruction.operands.partition(",")
    own = _UNIFORM.findall(result) if instruction.opcode.startswith("UPRMT") else []
    return [int(number) for number in _UNIFORM.findall(sources) if number not in own]
