"""Emitted kernels against a float64 execution of the listing itself.

Every run has its outputs poisoned, so that an element nobody writes shows, and every tensor inside
guard zones, so that what is written outside shows; inputs must be what they were, bit for bit. Some
runs have unusual strides.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from looptrans.emit.launcher import launcher_parameters
from looptrans.emit.listing import Emitted, emitted
from looptrans.executor.errors import ExecutionError
from looptrans.executor.inputs import Inputs, prepare
from looptrans.executor.run import output_names
from looptrans.ir.program import Declaration, Program
from looptrans.ir.walk import written
from looptrans.runtime.cache import keep
from looptrans.runtime.device import NoDevice, prepare_device
from looptrans.runtime.empty_rows import with_empty_rows
from looptrans.runtime.load import load_module
from looptrans.runtime.reference import Outputs, Reference, reference_of
from looptrans.runtime.verification import OutputError, Report, Run
from looptrans.runtime.verify_errors import compared
from looptrans.runtime.verify_inputs import KINDS, InputKind, inputs_for, with_arrays
from looptrans.runtime.verify_memory import (
    ODD_LAYOUTS,
    Guarded,
    Layout,
    guarded,
    to_array,
    to_tensor,
)
from looptrans.runtime.verify_sizes import SizeSet, size_sets

DTYPES = ("float32", "float16", "bfloat16")
NO_BFLOAT16 = (
    "bfloat16 is not verified in Triton's interpreter, whose bfloat16 arithmetic is wrong: it "
    "needs a GPU"
)


class CannotVerify(Exception):
    """Nothing can be verified as asked; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """A function that runs the kernels of a listing, and how it is called.

    Attributes:
        run: The function: the arguments, then `out` and options.
        arguments: What the arguments are in the listing, in order.
        given: The outputs that `out` takes, in order.
    """

    run: Callable[..., Any]
    arguments: tuple[str, ...]
    given: tuple[str, ...]


def verify(
    program: Program,
    sizes: Sequence[Mapping[str, float]] | None = None,
    dtypes: Sequence[str] | None = None,
    device: str | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Emit the kernels of a listing, run them, and compare them with the listing.

    Args:
        program: The listing.
        sizes: Values of its sizes, and of real parameters, for each set of runs; what a set leaves
            out is found. By default sets that find mistakes, see `verify_sizes.size_sets`.
        dtypes: `float32`, `float16`, `bfloat16`: the type of floating-point inputs. By default all
            that the device can do.
        device: A torch device; by default a GPU if there is one, else the interpreter.
        seed: Decides the random inputs.
        progress: Told what is done next, a phrase.

    Raises:
        NotLowered: The listing cannot be run in blocks.
        CannotVerify: A type cannot be verified on the device.
        NoDevice: Kernels cannot be run here as asked.
        ExecutionError: The given sizes do not fit the listing.
    """
    device = prepare_device(device)
    chosen, notes = _dtypes(dtypes, device)
    for each in sizes or ():
        prepare(program, each, seed=seed)  # says what does not fit before the kernels are made
    made = emitted(program)
    sets = _given(sizes) if sizes is not None else size_sets(program, made.blocks)
    launcher = _launcher(made)
    return verify_launcher(
        reference_of(program), launcher, sets, chosen, device, seed, notes, progress
    )


def _dtypes(dtypes: Sequence[str] | None, device: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the types to verify, and what to say about those left out.

    Raises:
        CannotVerify: One is asked for that the device cannot do.
    """
    can = DTYPES if device != "cpu" else tuple(name for name in DTYPES if name != "bfloat16")
    if dtypes is None:
        return can, () if can == DTYPES else (f"{NO_BFLOAT16}.",)
    for name in dtypes:
        if name not in DTYPES:
            raise CannotVerify(f"there is no type {name!r} for kernels: use {', '.join(DTYPES)}")
        if name not in can:
            raise CannotVerify(NO_BFLOAT16)
    return tuple(dict.fromkeys(dtypes)), ()


def _given(sizes: Sequence[Mapping[str, float]]) -> tuple[SizeSet, ...]:
    return tuple(SizeSet("given", each) for each in sizes)


def _launcher(made: Emitted) -> Launcher:
    """Import an emitted module."""
    key = hashlib.sha256(made.text.encode()).hexdigest()
    kept = keep(key, made.launcher, made.text)
    module = load_module(f"looptrans_emitted_{key}", made.text, kept.path)
    filled = {each.array for each in made.blocks.made}
    given = tuple(name for name in dict.fromkeys(made.blocks.outputs) if name in filled)
    names = launcher_parameters(made.blocks).names
    return Launcher(getattr(module, made.launcher), names, given)


def verify_launcher(
    reference: Reference,
    launcher: Launcher,
    sets: Sequence[SizeSet],
    dtypes: Sequence[str],
    device: str,
    seed: int = 0,
    notes: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Compare a launcher with a listing; see `verify`.

    Args:
        reference: The listing.
        launcher: What runs the kernels.
        sets: The sizes.
        dtypes: The types of floating-point inputs.
        device: A torch device that has been prepared.
        seed: Decides the random inputs.
        notes: What the report says besides.
        progress: Told what is done next, a phrase.

    Raises:
        ExecutionError: Sizes of kind `given` do not fit the listing.
    """
    session = _Session(reference.program, launcher, reference, device, seed)
    runs: list[Run] = []
    more: list[str] = []
    for each in sets:
        where = ", ".join(f"{name}={value}" for name, value in each.sizes.items())
        if progress is not None:
            progress(where)
        try:
            runs += session.runs(each, dtypes)
        except ExecutionError as error:
            if each.kind == "given":
                raise
            more.append(f"The listing itself cannot be run at {where}: {error.message}.")
    shown = "interpreter" if device == "cpu" else device
    return Report(reference.program.name, shown, seed, tuple(runs), (*notes, *more))


@dataclass(frozen=True, slots=True)
class _Session:
    program: Program
    launcher: Launcher
    reference: Reference
    device: str
    seed: int

    def runs(self, sizes: SizeSet, dtypes: Sequence[str]) -> list[Run]:
        """Run at one set of sizes, with every type and kind of inputs.

        Raises:
            ExecutionError: The listing cannot be run at these sizes.
        """
        found = []
        kinds: tuple[InputKind, ...] = KINDS if sizes.is_main else KINDS[:1]
        for kind in kinds:
            made = inputs_for(self.program, sizes.sizes, kind, self.seed)
            odd = kind == "x10" or sizes.kind == "one"
            for dtype in dtypes:
                inputs = self._rounded(made, dtype)
                found.append(self._run(inputs, dtype, kind, odd=odd))
        return found

    def _rounded(self, inputs: Inputs, dtype: str) -> Inputs:
        """Return inputs as the kernel sees them: everything is compared on the same numbers."""
        floats = {array.name for array in self.program.arrays if array.element == "float"}
        arrays = {
            name: to_array(to_tensor(values, getattr(torch, dtype)))
            for name, values in inputs.arrays.items()
            if name in floats
        }
        reals = {name: float(np.float32(value)) for name, value in inputs.reals.items()}
        return with_arrays(Inputs(inputs.integers, reals, inputs.arrays), arrays)

    def _run(self, inputs: Inputs, dtype: str, kind: InputKind, *, odd: bool) -> Run:
        own = self.reference.run(inputs)
        exact, empty = with_empty_rows(self.reference, inputs, own)
        arguments = self._arguments(inputs, dtype, odd=odd)
        outputs = self._outputs(exact, dtype, odd=odd)
        problems = self._launch(inputs, arguments, outputs)
        changed = written(self.program)
        for name, tensor in arguments.items():
            if name in changed:
                problems += _outside(f"the argument {name}", tensor)
            elif tensor.changed():
                problems.append(f"the input {name} is changed")
        for name, tensor in outputs.items():
            problems += _outside(f"the output {name}", tensor)
        plain: dict[bool, Outputs] = {}

        def plainly(name: str, backwards: bool) -> Any:
            if backwards not in plain:
                plain[backwards] = self.reference.run(inputs, "float32", backwards=backwards)
            return _as(plain[backwards][name], self._dtype(name, dtype))

        errors: list[OutputError] = []
        for name in output_names(self.program):
            held = {**arguments, **outputs}[name]
            kept = str(self._dtype(name, dtype)).removeprefix("torch.")
            errors.append(
                compared(
                    name,
                    to_array(held.tensor),
                    exact[name],
                    functools.partial(plainly, name),
                    kept,
                    always_plain=dtype != "float32",
                    empty=empty.get(name),
                )
            )
        layout = "odd" if odd else "contiguous"
        return Run(dict(inputs.integers), dtype, kind, layout, tuple(errors), tuple(problems))

    def _arguments(self, inputs: Inputs, dtype: str, *, odd: bool) -> dict[str, Guarded]:
        """Return the arrays as tensors, each with strides of its own where they are to be odd."""
        integer = torch.int32 if odd else torch.int64
        types = {"float": getattr(torch, dtype), "int": integer, "bool": torch.bool}
        found = {}
        for number, (name, values) in enumerate(inputs.arrays.items()):
            own = types[self.program.array(name).element]
            layout = ODD_LAYOUTS[number % len(ODD_LAYOUTS)] if odd else "contiguous"
            tensor = to_tensor(values, own)
            found[name] = guarded(values.shape, own, self.device, layout, tensor)
        return found

    def _outputs(self, exact: Outputs, dtype: str, *, odd: bool) -> dict[str, Guarded]:
        """Return poisoned tensors for what the launcher would make."""
        found = {}
        for number, name in enumerate(self.launcher.given):
            values, own = exact[name], self._dtype(name, dtype)
            # The last one has the strides that a new tensor would not have.
            layout: Layout = ODD_LAYOUTS[-1 - number % len(ODD_LAYOUTS)] if odd else "contiguous"
            wrong = to_tensor(~values, own) if own == torch.bool else None
            found[name] = guarded(values.shape, own, self.device, layout, wrong)
        return found

    def _dtype(self, name: str, dtype: str) -> torch.dtype:
        """Return the type of an output: what the listing asks for, else that of the inputs."""
        array = self.program.array(name)
        asked = [
            node.creation.element
            for node in self.program.body
            if isinstance(node, Declaration) and node.array == name
        ]
        if array.role == "local" and asked and asked[0] is not None:
            named = {"float": None, "int": torch.int64, "bool": torch.bool}
            own = named[asked[0]] if asked[0] in named else getattr(torch, asked[0])
            if own is not None:
                return own
        if array.element != "float":
            return torch.bool if array.element == "bool" else torch.int64
        has_floats = any(a.role == "input" and a.element == "float" for a in self.program.arrays)
        return getattr(torch, dtype) if has_floats else torch.float32

    def _launch(
        self, inputs: Inputs, arguments: Mapping[str, Guarded], outputs: Mapping[str, Guarded]
    ) -> list[str]:
        """Call the launcher; return what is wrong with what it does and returns."""
        values: list[Any] = []
        for name in self.launcher.arguments:
            if name in arguments:
                values.append(arguments[name].tensor)
            else:
                values.append(inputs.reals[name] if name in inputs.reals else inputs.integers[name])
        signature = inspect.signature(self.launcher.run).parameters
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for parameter, value in zip(signature.values(), values, strict=False):
            if parameter.kind is parameter.KEYWORD_ONLY:
                named[parameter.name] = value
            else:
                positional.append(value)
        if outputs:
            given = tuple(each.tensor for each in outputs.values())
            named["out"] = given if len(given) > 1 else given[0]
        # On a GPU the fixed configuration is what is verified too: tuning would run kernels many
        # times, and which one is best is another question.
        named |= {
            name: value for name, value in (("tune", False), ("check", True)) if name in signature
        }
        try:
            with np.errstate(all="ignore"):  # the interpreter works with NumPy
                result = self.launcher.run(*positional, **named)
            if self.device != "cpu":
                torch.cuda.synchronize()
        except Exception as error:  # whatever it raises is what is wrong with it
            text = " ".join(str(error).split())
            return [f"{type(error).__name__}: {text}"]
        expected = [{**arguments, **outputs}[name].tensor for name in self.program.outputs]
        returned = list(result) if isinstance(result, tuple) else [result]
        if len(expected) == 0 and returned == [None]:
            return []
        if len(returned) != len(expected):
            return [f"{len(returned)} values are returned, and {len(expected)} should be"]
        return [
            f"what is returned as {name} is not the tensor that was given for it"
            for name, one, other in zip(self.program.outputs, returned, expected, strict=True)
            if not _is_same(one, other)
        ]


def _is_same(one: object, other: torch.Tensor) -> bool:
    return (
        isinstance(one, torch.Tensor)
        and one.data_ptr() == other.data_ptr()
        and one.shape == other.shape
        and one.stride() == other.stride()
    )


def _outside(what: str, tensor: Guarded) -> list[str]:
    count = tensor.changed_outside()
    return [f"{count} elements outside {what} are written"] if count else []


def _as(values: Any, dtype: torch.dtype) -> Any:
    """Round a plain result to the type of the output, once."""
    return to_array(to_tensor(values, dtype)) if dtype.is_floating_point else values


__all__ = ["DTYPES", "CannotVerify", "Launcher", "NoDevice", "verify", "verify_launcher"]
