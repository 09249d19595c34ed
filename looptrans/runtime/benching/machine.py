"""The GPU that kernels are timed on: its facts, times of calls, and memory they need."""

from __future__ import annotations

import gc
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from looptrans.version import __version__

WARM_UP, REPEATED = 100, 400
"""Milliseconds a call is repeated for before it is timed, and while it is."""

REST = 0.5
"""Seconds without work before a call is timed: else what comes after others, or after the trials of
an autotuner, begins on a warmer GPU with slower clocks than what comes after a compiler."""

CEILING = 8192
"""The rows, columns and depth of the matrix product that the others are measured against."""

_ASKED = (
    "driver_version",
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "power.draw",
    "power.limit",
    "temperature.gpu",
)


class NoGpu(RuntimeError):
    """Nothing can be timed here; the message says why and what to do."""


class GpuLost(RuntimeError):
    """A kernel has left the GPU such that this process can do no more with it."""


class Machine(Protocol):
    """What kernels are timed on."""

    @property
    def device(self) -> str:
        """Where tensors live."""

    @property
    def compiles(self) -> bool:
        """Whether FlexAttention is compiled."""

    @property
    def ceiling(self) -> int:
        """The extent of the matrix product that the others are measured against."""

    @property
    def method(self) -> Mapping[str, Any]:
        """How times are taken, names and values."""

    def facts(self) -> dict[str, Any]:
        """Return what there is to say about it now."""

    def times(self, call: Callable[[], object]) -> tuple[float, ...]:
        """Return the milliseconds of repeated calls."""

    def peak(self, call: Callable[[], object]) -> int | None:
        """Return how many bytes a call allocates at most beyond what there is; None: unknown."""

    def release(self) -> None:
        """Let go of memory that nothing uses.

        Raises:
            GpuLost: The machine can do no more.
        """


class Gpu:
    """The GPU that torch uses."""

    device = "cuda"
    compiles = True
    ceiling = CEILING
    method: Mapping[str, Any] = {
        "timer": "CUDA events around each call (triton.testing.do_bench)",
        "before each call": "the L2 cache is overwritten",
        "rest s": REST,
        "warm-up ms": WARM_UP,
        "repeated ms": REPEATED,
        "statistic": "median; low and high leave out a fifth on either side",
        "backward": "torch.autograd.grad on a graph that is kept, for every implementation",
        "float32 matrix products": "IEEE, no TF32",
    }

    def facts(self) -> dict[str, Any]:
        """Return its name, size, clocks and driver."""
        import torch

        own = torch.cuda.get_device_properties(torch.cuda.current_device())
        found: dict[str, Any] = {
            "name": own.name,
            "capability": f"{own.major}.{own.minor}",
            "memory_bytes": own.total_memory,
            "multiprocessors": own.multi_processor_count,
        }
        return {**found, **_from_driver(own)}

    def times(self, call: Callable[[], object]) -> tuple[float, ...]:
        """Return the milliseconds of repeated calls, the cache cold before each."""
        import torch
        from triton.testing import do_bench

        torch.cuda.synchronize()
        time.sleep(REST)
        found = do_bench(call, warmup=WARM_UP, rep=REPEATED, return_mode="all")
        return tuple(round(float(each), 6) for each in found)

    def peak(self, call: Callable[[], object]) -> int | None:
        """Return how many bytes a call allocates at most beyond what there is."""
        import torch

        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated() - before)

    def release(self) -> None:
        """Let go of memory that nothing uses.

        Raises:
            GpuLost: A kernel has failed in a way that the GPU reports from then on.
        """
        import torch

        gc.collect()
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except RuntimeError as error:
            text = str(error).partition("\n")[0]
            raise GpuLost(f"the GPU can do no more in this process: {text}") from None


def gpu() -> Gpu:
    """Return the GPU that torch uses.

    Raises:
        NoGpu: There is none, torch or triton is missing, or kernels are interpreted.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    if not torch.cuda.is_available():
        raise NoGpu(
            "there is no GPU, and times of interpreted kernels say nothing: run this where "
            "torch.cuda.is_available() is true; --plan says here what would be timed, `looptrans "
            "inspect` what the kernels compile to"
        )
    try:
        import triton
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    from looptrans.runtime.running.device import VARIABLE

    if not isinstance(triton.language.max, triton.JITFunction):
        raise NoGpu(f"kernels are interpreted here, and not timed: unset {VARIABLE}")
    return Gpu()


def _missing(error: ModuleNotFoundError) -> NoGpu:
    return NoGpu(
        f"timing kernels needs torch and triton, and {error.name} is not installed: "
        "pip install 'looptrans[gpu]'"
    )


def versions() -> dict[str, str]:
    """Return the versions of what takes part."""
    import torch
    import triton

    found = {
        "looptrans": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "triton": str(triton.__version__),
    }
    if torch.version.cuda is not None:
        found["cuda"] = torch.version.cuda
    cudnn: Any = torch.backends.cudnn
    if cudnn.is_available():
        found["cudnn"] = str(cudnn.version())
    return found


def _from_driver(properties: Any) -> dict[str, str]:
    """Return clocks, power and the driver's version, as far as nvidia-smi tells them."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    command = [program, f"--query-gpu={','.join(_ASKED)}", "--format=csv,noheader"]
    uuid = getattr(properties, "uuid", None)
    if uuid is not None:
        command.append(f"--id=GPU-{uuid}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [part.strip() for part in done.stdout.strip().splitlines()[0].split(",")]
    return dict(zip(_ASKED, values, strict=True)) if len(values) == len(_ASKED) else {}
