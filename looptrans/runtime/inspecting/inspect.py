"""Compiles the kernels of a listing for GPUs that need not be there, and says what to expect."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from looptrans.blocks.block_ir.program import Config, Kernel
from looptrans.emit import names, signature
from looptrans.runtime.inspecting.arguments import configured, job, known_sizes, made_to_fit, tried
from looptrans.runtime.inspecting.code import named_loops
from looptrans.runtime.inspecting.device import DEVICES, Device, Occupancy, occupancy
from looptrans.runtime.inspecting.job import Job, Measurement, Refusal, Result
from looptrans.runtime.inspecting.process import compiled
from looptrans.transforms.editing.extents import WIDE

if TYPE_CHECKING:
    from looptrans.emit.backward import EmittedBackward
    from looptrans.emit.listing import Emitted
    from looptrans.emit.split import EmittedSplit


class ToolsMissing(RuntimeError):
    """Torch or triton is not installed; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """A kernel compiled for a GPU, in one configuration and for one choice of sizes.

    Attributes:
        kernel: Its name.
        device: The GPU.
        sizes: The sizes it was compiled for, by name; others are only known to be multiples of 16.
        config: The blocks, warps and stages.
        result: What was measured, or why it could not be compiled.
        occupancy: How many programs run side by side; None where that is not known.
        gates: What speaks against running it, sentences.
    """

    kernel: str
    device: Device
    sizes: Mapping[str, int]
    config: Config
    result: Result
    occupancy: Occupancy | None
    gates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A configuration that is not timed on a GPU, for one choice of sizes.

    Attributes:
        kernel: The name of the kernel.
        device: The GPU.
        sizes: The sizes, as in `Inspected`.
        config: The configuration.
        reason: Why, a sentence without a full stop.
    """

    kernel: str
    device: Device
    sizes: Mapping[str, int]
    config: Config
    reason: str


@dataclass(frozen=True, slots=True)
class Inspection:
    """The kernels of a listing, compiled.

    Attributes:
        program: The name of the listing.
        dtype: The element type of its arrays.
        kernels: The kernels, each for every choice of sizes and every GPU, in this order.
        direction: `forward`, `backward` or `both`.
        left_out: The configurations that are not even compiled, where all were asked for.
    """

    program: str
    dtype: str
    kernels: tuple[Inspected, ...]
    direction: str = "forward"
    left_out: tuple[LeftOut, ...] = ()

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """What could not be compiled."""
        return tuple(each.result for each in self.kernels if isinstance(each.result, Refusal))


@dataclass(frozen=True, slots=True)
class Module:
    """A module whose kernels are to be compiled.

    Attributes:
        program: The name of the listing.
        name: What its file is called, without `.py`.
        text: The module.
        kernels: The kernels.
        called: What the module calls them.
        direction: `forward`, `backward` or `both`.
    """

    program: str
    name: str
    text: str
    kernels: tuple[Kernel, ...]
    called: tuple[str, ...]
    direction: str


def forward_module(emitted: Emitted) -> Module:
    """Return the module of a listing."""
    blocks = emitted.blocks
    called = names(blocks).kernels
    return Module(
        blocks.listing.name, emitted.name, emitted.text, blocks.kernels, called, "forward"
    )


def split_module(emitted: EmittedSplit) -> Module:
    """Return the module of a listing with a loop in parts, its kernels without parts first."""
    kernels = emitted.blocks.kernels + emitted.parts.kernels
    name = emitted.blocks.listing.name
    return Module(name, emitted.name, emitted.text, kernels, emitted.kernels, "forward")


def backward_module(emitted: EmittedBackward, *, both: bool) -> Module:
    """Return the module of a backward pass, with the kernels of its forward pass or without."""
    kernels, called = emitted.backward.kernels, emitted.backward_kernels
    if both:
        kernels = emitted.forward.kernels + kernels
        called = emitted.forward_kernels + called
    direction = "both" if both else "backward"
    name = emitted.found.listing.name
    return Module(name, emitted.name, emitted.text, kernels, called, direction)


def inspect(
    emitted: Emitted | Module,
    targets: Sequence[str],
    dtype: str,
    sizes: Mapping[str, int],
    overrides: Mapping[str, int],
    *,
    every: bool = False,
) -> Inspection:
    """Compile every kernel of a listing for every GPU.

    Args:
        emitted: The module.
        targets: Keys of `DEVICES`.
        dtype: The element type of the arrays: bfloat16, float16 or float32.
        sizes: Values of sizes. Those that a kernel must know when it is compiled are taken to be 64
            and then 128 where they are not given.
        overrides: What to change in the configurations that are used where nothing is timed.
        every: Whether to compile all that is timed on a GPU instead.

    Raises:
        ToolsMissing: Torch or triton is not installed.
        BadRequest: A size or a part of a configuration that no kernel has; the message names those
            there are.
    """
    for tool in ("torch", "triton"):
        if importlib.util.find_spec(tool) is None:
            raise ToolsMissing(
                f"compiling kernels needs torch and triton, and {tool} is not installed: "
                "pip install 'looptrans[gpu]'"
            )
    module = emitted if isinstance(emitted, Module) else forward_module(emitted)
    asked: list[tuple[Job, Mapping[str, int], Config]] = []
    left_out: list[LeftOut] = []
    kernels = module.kernels
    configs = configured(kernels, dtype, overrides)
    choices = known_sizes(kernels, sizes)
    for kernel, name, first, several in zip(kernels, module.called, configs, choices, strict=True):
        arguments = signature(kernel)
        for chosen in several:
            for target in targets:
                device = DEVICES[target]
                offered = tried(kernel, device, dtype, chosen) if every else ()
                config = first if overrides else made_to_fit(kernel, first, device, dtype, chosen)
                kept = [each for each, reason in offered if not reason] or [config]
                for each in kept:
                    found = job(kernel, name, arguments, device, dtype, chosen, each)
                    asked.append((found, chosen, each))
                left_out += [
                    LeftOut(name, device, chosen, each, reason)
                    for each, reason in offered
                    if reason
                ]
    results = compiled(module.text, module.name, [found for found, _, _ in asked])
    return Inspection(
        module.program,
        dtype,
        tuple(
            inspected(found, chosen, config, result)
            for (found, chosen, config), result in zip(asked, results, strict=True)
        ),
        module.direction,
        tuple(left_out),
    )


def inspected(job: Job, sizes: Mapping[str, int], config: Config, result: Result) -> Inspected:
    """Return what a result means on its GPU."""
    device = DEVICES[job.target]
    fits = None
    gates: tuple[str, ...] = ()
    if isinstance(result, Measurement):
        gates = tuple(_gates(result, device, sizes))
        if result.registers is not None:
            fits = occupancy(
                device, job.warps, result.registers, result.shared, result.tensor_memory
            )
    return Inspected(job.kernel, device, sizes, config, result, fits, gates)


def _gates(result: Measurement, device: Device, sizes: Mapping[str, int]) -> list[str]:
    """Return what speaks against a kernel before it is ever run."""
    gates: list[str] = []
    if result.shared > device.shared_limit:
        gates.append(
            f"it needs {result.shared} bytes of shared memory, and a program may have "
            f"{device.shared_limit}: it cannot be launched"
        )
        wide = next((name for name, size in sizes.items() if size > WIDE), None)
        if wide is not None:
            gates[-1] += (
                f"; with assert {wide} > {WIDE} in the listing, sums of products over {wide} go "
                "over blocks"
            )
    if result.tensor_memory > device.tensor_memory:
        gates.append(
            f"it needs {result.tensor_memory} columns of tensor memory, and there are "
            f"{device.tensor_memory}: it cannot be launched"
        )
    if result.unset:
        names = ", ".join(result.unset)
        gates.append(
            f"the compiled code works with registers that nothing has set ({names}), an error of "
            "the compiler: take another configuration, or another release of Triton"
        )
    if result.spills:
        gates.append(f"each thread spills {result.spills} bytes of registers to memory")
    for name, loop in named_loops(result.code.loops if result.code else ()):
        if loop.spill_stores or loop.spill_loads:
            gates.append(
                f"{name} stores {loop.spill_stores} times to a thread's own memory and "
                f"loads {loop.spill_loads} times from it"
            )
        if loop.serialized:
            gates.append(
                f"{name} waits for each matrix instruction ({loop.waits} waits): nothing "
                "runs beside them"
            )
    return gates
