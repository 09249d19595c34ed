"""What is compiled and what is measured, as it passes between two processes.

The compiler may end the process it runs in, so it has one of its own: jobs go in as JSON, and one
result a line comes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from looptrans.runtime.inspecting.code import Code, Work

MARK = "looptrans: job"
"""What the compiling process says on standard error before each job."""

LONGEST = 400
"""How many characters of what a compiler says are kept."""

Constant: TypeAlias = int | float | bool | str


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel to be compiled for one GPU.

    Attributes:
        kernel: Its name in the module.
        signature: The type of each argument as Triton writes it: `*bf16`, `i32`, `constexpr`.
        constants: The value of each constexpr; a text names an element type of Triton.
        divisible: The arguments that are known to be divisible by 16, addresses in bytes.
        target: The GPU, a key of `DEVICES`.
        warps: The warps of a program.
        stages: How many blocks ahead loads are begun.
    """

    kernel: str
    signature: Mapping[str, str]
    constants: Mapping[str, Constant]
    divisible: tuple[str, ...]
    target: str
    warps: int
    stages: int

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Job:
        """Return what `asdict` and JSON have made of a job."""
        return cls(**{**data, "divisible": tuple(data["divisible"])})


@dataclass(frozen=True, slots=True)
class Measurement:
    """What the compiler made of a kernel.

    Attributes:
        registers: Of a thread; None where the tool that tells is missing.
        spills: The bytes of a thread's registers that have to be kept in memory at times.
        shared: The bytes of shared memory of a program.
        tensor_memory: The columns of tensor memory of a program.
        threads: The threads of a program.
        code: What the instructions do; None where the tool that tells is missing.
        missing: What is not known and why, sentences.
        unset: Registers that the code works with and nothing has set, an error of the compiler.
    """

    registers: int | None
    spills: int | None
    shared: int
    tensor_memory: int
    threads: int
    code: Code | None
    missing: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Measurement:
        """Return what `asdict` and JSON have made of a measurement."""
        found = data["code"]
        code = found and Code(
            Work(**found["whole"]), tuple(Work(**each) for each in found["loops"])
        )
        lists = {name: tuple(data[name]) for name in ("missing", "unset")}
        return cls(**{**data, "code": code, **lists})


@dataclass(frozen=True, slots=True)
class Refusal:
    """A kernel that could not be compiled.

    Attributes:
        reason: Why, without a full stop.
        missing: Whether a part of the tool chain is not installed, so that nothing is known.
    """

    reason: str
    missing: bool = False


Result: TypeAlias = Measurement | Refusal


def written(result: Result) -> dict[str, Any]:
    """Return a result for JSON."""
    return {"measured" if isinstance(result, Measurement) else "refused": asdict(result)}


def read(data: Mapping[str, Any]) -> Result:
    """Return what `written` and JSON have made of a result."""
    if "measured" in data:
        return Measurement.read(data["measured"])
    return Refusal(**data["refused"])
