"""GPUs that need not be there: their limits, and how many programs of a kernel run side by side.

Sources: the table "Technical Specifications per Compute Capability" of the CUDA C++ Programming
Guide and `cuda_occupancy.h` of the CUDA toolkit; for gfx942 the CDNA3 instruction set reference and
`AMDGPUBaseInfo.cpp` of LLVM (`getVGPRAllocGranule`, `getMaxWavesPerEU`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """A kind of GPU; a *unit* is a streaming multiprocessor or a compute unit.

    Attributes:
        target: What the user calls it, `cuda:90`.
        backend: The back end of Triton.
        arch: The architecture as that back end writes it.
        threads: The threads of a warp.
        quarters: The parts of a unit that have registers of their own.
        registers: The 32-bit registers of one thread's place in such a part: what the threads of
            its warps share.
        register_step: Registers are given to a thread in multiples of this.
        warps: The most warps of such a part.
        programs: The most programs of a unit.
        shared: The bytes of shared memory of a unit.
        shared_step: Shared memory is given in multiples of this many bytes.
        shared_reserved: The bytes the system keeps for each program.
        shared_limit: The most bytes a program may have.
        tensor_memory: The columns of tensor memory of a unit; 0 where there is none.
    """

    target: str
    backend: str
    arch: int | str
    threads: int
    quarters: int
    registers: int
    register_step: int
    warps: int
    programs: int
    shared: int
    shared_step: int
    shared_reserved: int
    shared_limit: int
    tensor_memory: int = 0

    @property
    def copies_blocks(self) -> bool:
        """Whether it copies blocks of arrays by itself, as an emitted launcher asks it to."""
        return isinstance(self.arch, int) and self.arch >= 90


def _cuda(
    capability: int, shared_kb: int, *, warps: int = 64, programs: int = 32, tensor_memory: int = 0
) -> Device:
    """Return an NVIDIA GPU: 64 K registers and its warps in four parts, 1 KB kept per program."""
    return Device(
        target=f"cuda:{capability}",
        backend="cuda",
        arch=capability,
        threads=32,
        quarters=4,
        registers=512,
        register_step=8,
        warps=warps // 4,
        programs=programs,
        shared=shared_kb * 1024,
        shared_step=128,
        shared_reserved=1024,
        shared_limit=(shared_kb - 1) * 1024,
        tensor_memory=tensor_memory,
    )


DEVICES: dict[str, Device] = {
    device.target: device
    for device in (
        _cuda(80, 164),
        _cuda(89, 100, warps=48, programs=24),
        _cuda(90, 228),
        _cuda(100, 228, tensor_memory=512),
        _cuda(120, 100, warps=48, programs=24),
        Device(
            target="hip:gfx942",
            backend="hip",
            arch="gfx942",
            threads=64,
            quarters=4,
            registers=512,
            register_step=8,
            warps=8,
            programs=32,
            shared=64 * 1024,
            shared_step=512,
            shared_reserved=0,
            shared_limit=64 * 1024,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many programs one unit runs side by side, and what stands in the way of more."""

    programs: int
    limit: str


def occupancy(
    device: Device, warps: int, registers: int, shared: int, tensor_memory: int = 0
) -> Occupancy:
    """Return how many programs fit a unit: the least of what each resource allows.

        warps       quarters · warps per quarter / warps of a program
        registers   quarters · ⌊registers / ⌈registers of a thread⌉⌋ / warps of a program
        shared      shared / ⌈shared of a program + reserved⌉
        and likewise tensor memory, and the most programs a unit takes

    where ⌈ ⌉ rounds up to what is given out at once. The warps of a program are spread over the
    quarters, and each quarter takes whole warps only.

    Args:
        device: The GPU.
        warps: The warps of a program.
        registers: The registers of a thread.
        shared: The bytes of shared memory of a program.
        tensor_memory: The columns of tensor memory of a program.
    """
    step = device.register_step
    by_registers = device.registers // (max(-(-registers // step), 1) * step)
    given = -(-(shared + device.shared_reserved) // device.shared_step) * device.shared_step
    allowed = {
        "warps": device.quarters * device.warps // warps,
        "registers": device.quarters * by_registers // warps,
        "programs": device.programs,
    }
    if given:
        allowed["shared memory"] = device.shared // given
    if shared > device.shared_limit:
        allowed["shared memory"] = 0
    if tensor_memory:
        allowed["tensor memory"] = device.tensor_memory // tensor_memory
    limit = min(allowed, key=lambda name: allowed[name])
    return Occupancy(allowed[limit], limit)
