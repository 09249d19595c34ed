"""Launchers called on tensors inside guard zones, and what is wrong with what they do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from looptrans.executor.inputs import Inputs
from looptrans.ir.program import Declaration, Program
from looptrans.runtime.verifying.inputs import with_arrays
from looptrans.runtime.verifying.memory import ODD_LAYOUTS, Guarded, guarded, to_array, to_tensor
from looptrans.runtime.verifying.traffic_watch import watched

Strides: TypeAlias = Literal["contiguous", "odd", "expanded"]


def rounded(program: Program, inputs: Inputs, dtype: str) -> Inputs:
    """Return inputs as a kernel sees them: everything is compared on the same numbers.

    Args:
        program: The listing.
        inputs: Its inputs.
        dtype: The type of floating-point arrays; real parameters are rounded to float32.
    """
    floats = program.float_names
    arrays = {
        name: to_array(to_tensor(values, argument_type(program, name, dtype)))
        for name, values in inputs.arrays.items()
        if name in floats
    }
    reals = {name: float(np.float32(value)) for name, value in inputs.reals.items()}
    return with_arrays(Inputs(inputs.integers, reals, inputs.arrays), arrays)


def guarded_arguments(
    program: Program, inputs: Inputs, dtype: str, device: str, strides: Strides
) -> dict[str, Guarded]:
    """Return the arrays as tensors, each with strides of its own where they are to be odd."""
    odd = strides == "odd"
    types = {"int": torch.int32 if odd else torch.int64, "bool": torch.bool}
    found = {}
    for number, (name, values) in enumerate(inputs.arrays.items()):
        array = program.array(name)
        is_plain = array.element in types and array.stated is None
        own = types[array.element] if is_plain else argument_type(program, name, dtype)
        found[name] = laid_out(to_tensor(values, own), device, number, odd=odd)
    return found


def laid_out(tensor: torch.Tensor, device: str, number: int, *, odd: bool) -> Guarded:
    """Return a tensor inside guard zones, the number deciding which odd strides it has."""
    layout = ODD_LAYOUTS[number % len(ODD_LAYOUTS)] if odd else "contiguous"
    return guarded(tuple(tensor.shape), tensor.dtype, device, layout, tensor)


def argument_type(program: Program, name: str, dtype: str) -> torch.dtype:
    """Return the type of an argument: its own, else that of the floating-point inputs."""
    own: torch.dtype = getattr(torch, program.array(name).stated or dtype)
    return own


def element_type(program: Program, name: str, dtype: str) -> torch.dtype:
    """Return the type of an output: what the listing asks for, else that of the inputs."""
    array = program.array(name)
    asked = [
        node.creation.element
        for node in program.body
        if isinstance(node, Declaration) and node.array == name
    ]
    if array.role == "local" and asked and asked[0] is not None:
        named = {"float": None, "int": torch.int64, "bool": torch.bool}
        own = named[asked[0]] if asked[0] in named else getattr(torch, asked[0])
        if own is not None:
            return own
    if array.element != "float":
        return torch.bool if array.element == "bool" else torch.int64
    if array.role == "input":
        return argument_type(program, name, dtype)
    floats = [a for a in program.arrays if a.role == "input" and a.element == "float"]
    return torch.float32 if all(a.stated == "float32" for a in floats) else getattr(torch, dtype)


def once_rounded(values: Any, dtype: torch.dtype) -> Any:
    """Round a plain result to the type of the output, once."""
    return to_array(to_tensor(values, dtype)) if dtype.is_floating_point else values


def value_of(name: str, tensors: Mapping[str, torch.Tensor], inputs: Inputs) -> Any:
    """Return what a launcher is handed for one of its arguments."""
    if name in tensors:
        return tensors[name]
    return inputs.reals[name] if name in inputs.reals else inputs.integers[name]


def called(
    run: Callable[..., Any], values: Sequence[Any], options: Mapping[str, Any], device: str
) -> tuple[Any, list[str]]:
    """Call a launcher; return what it returns, and what is wrong where it fails.

    On a GPU the fixed configuration is what is run too: tuning would run kernels many times, and
    which one is best is another question.

    Args:
        run: The launcher.
        values: Its arguments in order.
        options: What is handed over by name besides.
        device: Where it runs.
    """
    signature = inspect.signature(run).parameters
    positional: list[Any] = []
    named = dict(options)
    for parameter, value in zip(signature.values(), values, strict=False):
        if parameter.kind is parameter.KEYWORD_ONLY:
            named[parameter.name] = value
        else:
            positional.append(value)
    named |= {
        name: value for name, value in (("tune", False), ("check", True)) if name in signature
    }
    try:
        with np.errstate(all="ignore"):  # the interpreter works with NumPy
            if device == "cpu":
                with watched() as problems:
                    result = run(*positional, **named)
                return result, problems
            result = run(*positional, **named)
            torch.cuda.synchronize()
    except Exception as error:  # whatever it raises is what is wrong with it
        return None, [f"{type(error).__name__}: {' '.join(str(error).split())}"]
    return result, []


def written_outside(what: str, tensor: Guarded) -> list[str]:
    """Say how many elements beside a tensor have been written, if any."""
    count = tensor.changed_outside()
    return [f"{count} elements outside {what} are written"] if count else []


class _Torch:
    """Torch, but that new tensors lie inside guard zones and hold a sentinel."""

    def __init__(self, made: list[Guarded]) -> None:
        self._made = made

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, *shape: Any, dtype: torch.dtype, device: Any = "cpu") -> torch.Tensor:
        """Return a tensor as `torch.empty` does."""
        first = shape[0] if shape and not isinstance(shape[0], int) else shape
        self._made.append(guarded(tuple(first), dtype, str(device), "contiguous", None))
        return self._made[-1].tensor

    def zeros(self, *shape: Any, dtype: torch.dtype, device: Any = "cpu") -> torch.Tensor:
        """Return a tensor as `torch.zeros` does."""
        return self.empty(*shape, dtype=dtype, device=device).zero_()


@contextmanager
def guarding(module: ModuleType | None) -> Iterator[list[Guarded]]:
    """Let the launchers of a module make their tensors inside guard zones, for a while.

    Args:
        module: An emitted module, which knows torch as `torch`; None for launchers without one.

    Yields:
        What they make.
    """
    made: list[Guarded] = []
    if module is None:
        yield made
        return
    own = module.__dict__["torch"]
    module.__dict__["torch"] = _Torch(made)
    try:
        yield made
    finally:
        module.__dict__["torch"] = own
