"""Where kernels run: on a GPU, or in Triton's interpreter where there is none."""

from __future__ import annotations

import os
import sys

from looptrans.runtime.running.interpreter import prepare_interpreter

VARIABLE = "TRITON_INTERPRET"


class NoDevice(RuntimeError):
    """Kernels cannot be run here as asked; the message says what to do."""


def prepare_device(device: str | None = None) -> str:
    """Make ready for running kernels, and return where tensors must live.

    Triton decides when it is imported whether it compiles kernels or interprets them. So this has
    to run before that; where there is no GPU it sets TRITON_INTERPRET=1 for this process.

    Args:
        device: A torch device such as `cuda` or `cpu`; by default a GPU if there is one.

    Raises:
        NoDevice: Torch or triton is missing, there is no such GPU, or triton was imported without
            TRITON_INTERPRET=1 and has to interpret now.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if not device.startswith("cpu"):
        if not torch.cuda.is_available():
            raise NoDevice(f"there is no GPU for the device {device!r}; the device cpu interprets")
    elif not interprets():
        raise NoDevice(
            f"without a GPU kernels run in Triton's interpreter, but triton was imported without "
            f"it: set {VARIABLE}=1 before triton is first imported (or let looptrans, which sets "
            "it, be called first)"
        )
    try:
        import triton  # noqa: F401  # from here on it compiles or interprets, for good
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    if device.startswith("cpu"):
        prepare_interpreter()
    return device


def interprets() -> bool:
    """Tell whether triton interprets kernels; where it is not imported yet, let it."""
    if "triton" in sys.modules:
        from triton import JITFunction, language

        # What triton itself defines was made compiled or interpreted when it was imported.
        if isinstance(language.max, JITFunction):
            return False
    os.environ[VARIABLE] = "1"
    return True


def _missing(error: ModuleNotFoundError) -> NoDevice:
    return NoDevice(
        f"running kernels needs torch and triton, and {error.name} is not installed: "
        "pip install 'looptrans[gpu]'"
    )
