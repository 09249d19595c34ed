"""What a kernel is compiled for: types, what a launch would find out, sizes, the configuration.

Triton compiles a kernel anew for arguments of which it knows more: an integer that is 1 is a
constant, one that is divisible by 16 may be relied on, and so may the address of an array. Here it
is told what it would find for contiguous arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from looptrans.blocks.block_ir.program import ArrayArgument, Config, Kernel
from looptrans.blocks.fitting.footprint import MOST_TIMED, fitted, footprints, lacking
from looptrans.blocks.passes.described import DESCRIBED
from looptrans.emit import signature
from looptrans.emit.arguments import (
    Argument,
    BlockSize,
    IndexType,
    LaneCount,
    Pointer,
    Positive,
    RealNumber,
    Size,
    Stride,
)
from looptrans.ir.evaluate import Evaluator, Unknown
from looptrans.ir.index import Index, parameters
from looptrans.runtime.inspecting.device import Device
from looptrans.runtime.inspecting.job import Constant, Job

TYPES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "int8": "i8",
    "uint8": "u8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "bool": "i1",
}


HEAD_SIZES = (64, 128)
WARPS, STAGES = "num_warps", "num_stages"


class BadRequest(ValueError):
    """A size or a part of a configuration that cannot be meant; the message says why."""


def configured(
    kernels: Sequence[Kernel], dtype: str, overrides: Mapping[str, int]
) -> tuple[Config, ...]:
    """Return the configuration of each kernel that is used where nothing is timed, changed.

    Args:
        kernels: The kernels.
        dtype: The element type of the arrays.
        overrides: Sizes of blocks by name, `num_warps` and `num_stages`; each applies to every
            kernel that has it.

    Raises:
        BadRequest: No kernel has it, or it is no power of two.
    """
    defaults = [
        (kernel.wide if dtype == "float32" else kernel.narrow).default for kernel in kernels
    ]
    names = dict.fromkeys(name for config in defaults for name in config.blocks)
    _check_names("--config", overrides, [*names, WARPS, STAGES])
    for name, value in overrides.items():
        if name != STAGES and value & (value - 1):
            raise BadRequest(f"--config: {name}={value} is no power of two")
    return tuple(
        Config(
            {name: overrides.get(name, size) for name, size in config.blocks.items()},
            overrides.get(WARPS, config.warps),
            overrides.get(STAGES, config.stages),
        )
        for config in defaults
    )


def made_to_fit(
    kernel: Kernel, config: Config, device: Device, dtype: str, sizes: Mapping[str, int]
) -> Config:
    """Return what a launcher makes of a configuration where nothing is timed.

    Args:
        kernel: The kernel.
        config: Its default.
        device: The GPU.
        dtype: The element type of the arrays.
        sizes: The sizes that are known, all of `kernel.constants` among them.
    """
    room, threads = device.shared_limit, device.threads
    lanes = _lanes(kernel, sizes)
    return fitted(footprints(kernel), config, lanes, _width(dtype), room, threads)


def tried(
    kernel: Kernel, device: Device, dtype: str, sizes: Mapping[str, int]
) -> tuple[tuple[Config, str], ...]:
    """Return what is timed on a GPU, each with why it is left out there, nothing if it is not.

    The arguments are those of `made_to_fit`. What a GPU does not copy by itself is not told to it.
    """
    choice = kernel.wide if dtype == "float32" else kernel.narrow
    room, threads = device.shared_limit, device.threads
    needed, lanes = footprints(kernel), _lanes(kernel, sizes)
    return tuple(
        (config, lacking(needed, config, lanes, _width(dtype), room, threads, MOST_TIMED))
        for config in choice.tuned
        if device.copies_blocks or not config.blocks.get(DESCRIBED)
    )


def _width(dtype: str) -> int:
    return 4 if dtype == "float32" else 2


def _lanes(kernel: Kernel, sizes: Mapping[str, int]) -> dict[str, int]:
    return {
        argument.block: argument.value(Evaluator(sizes).index(argument.extent, {}))
        for argument in signature(kernel)
        if isinstance(argument, LaneCount)
    }


def known_sizes(
    kernels: Sequence[Kernel], given: Mapping[str, int]
) -> tuple[tuple[dict[str, int], ...], ...]:
    """Return for each kernel the choices of sizes to compile it for.

    What a kernel must know and is not given is taken to be 64, and in a second choice 128.

    Args:
        kernels: The kernels.
        given: Values of sizes, by the names of the listing.

    Raises:
        BadRequest: No kernel has a size of that name.
    """
    every = dict.fromkeys(name for kernel in kernels for name in _sizes(kernel))
    _check_names("--sizes", given, list(every))
    return tuple(tuple(_choices(kernel, given)) for kernel in kernels)


def _choices(kernel: Kernel, given: Mapping[str, int]) -> Iterable[dict[str, int]]:
    own = {name: given[name] for name in _sizes(kernel) if name in given}
    open_ = [name for name in kernel.constants if name not in given]
    for size in HEAD_SIZES if open_ else HEAD_SIZES[:1]:
        found = {**own, **dict.fromkeys(open_, size)}
        yield {name: found[name] for name in _sizes(kernel) if name in found}


def _sizes(kernel: Kernel) -> list[str]:
    """Return the sizes a kernel has to do with: it is handed them, or arrays have them."""
    handed = [scalar.name for scalar in kernel.scalars if scalar.kind == "int"]
    shapes = [extent for array in kernel.arrays for extent in array.shape if extent is not None]
    return list(
        dict.fromkeys([*handed, *kernel.constants, *(p for s in shapes for p in parameters(s))])
    )


def _check_names(flag: str, given: Mapping[str, int], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            there = ", ".join(known) or "none"
            raise BadRequest(f"{flag}: no kernel has {name}; there are: {there}")


@dataclass(frozen=True, slots=True)
class _Found:
    """What is known of an integer: its value, or only whether 16 divides it."""

    value: int | None
    divisible: bool


def job(
    kernel: Kernel,
    name: str,
    arguments: Sequence[Argument],
    device: Device,
    dtype: str,
    sizes: Mapping[str, int],
    config: Config,
) -> Job:
    """Return what to compile.

    Args:
        kernel: The kernel.
        name: What the module calls it.
        arguments: Its arguments.
        device: The GPU.
        dtype: The element type of the arrays.
        sizes: The sizes that are known, all of `kernel.constants` among them.
        config: The configuration.
    """
    arrays = {array.name: array for array in kernel.arrays}
    signature: dict[str, str] = {}
    constants: dict[str, Constant] = {}
    divisible: list[str] = []

    def integer(name: str, found: _Found) -> None:
        if found.value == 1:
            constant(name, 1)
            return
        signature[name] = "i32"
        if found.divisible:
            divisible.append(name)

    def constant(name: str, value: Constant) -> None:
        signature[name] = "constexpr"
        constants[name] = value

    for argument in arguments:
        match argument:
            case Pointer(name_, _, element, asked):
                signature[name_] = f"*{_element(element, asked, dtype)}"
                divisible.append(name_)
            case Stride(name_, array, axis):
                integer(name_, _stride(arrays[array], axis, sizes))
            case Size(name_, parameter, True):
                constant(name_, sizes[parameter])
            case Size(name_, parameter, False):
                value = sizes.get(parameter)
                integer(name_, _Found(value, value is None or value % 16 == 0))
            case RealNumber(name_, _):
                signature[name_] = "fp32"
            case Positive(name_, _):
                constant(name_, True)
            case IndexType(name_):
                constant(name_, "int32")
            case BlockSize(name_, block):
                constant(name_, config.blocks[block])
            case LaneCount(name_, extent, _):
                constant(name_, argument.value(Evaluator(sizes).index(extent, {})))
    return Job(
        name, signature, constants, tuple(divisible), device.target, config.warps, config.stages
    )


def _element(element: str, asked: str | None, dtype: str) -> str:
    """Return the element type of an array: the listing's, or that of the inputs.

    `dtype=int` and the like say what the elements are, and not how many bits they have.
    """
    if asked in TYPES:
        return TYPES[asked]
    return TYPES[{"float": dtype, "int": "int64"}.get(element, "bool")]


def _stride(array: ArrayArgument, axis: int, sizes: Mapping[str, int]) -> _Found:
    """Return how far apart two neighbours of a contiguous array are: the product of what follows.

    An extent that is not known is taken to be a multiple of 16.
    """
    stride = 1
    for extent in array.shape[axis + 1 :]:
        value = _value(extent, sizes)
        if value is None:
            return _Found(None, True)
        stride *= value
    return _Found(stride, stride % 16 == 0)


def _value(extent: Index | None, sizes: Mapping[str, int]) -> int | None:
    if extent is None:
        return None
    try:
        return Evaluator(sizes).index(extent, {})
    except Unknown:
        return None
