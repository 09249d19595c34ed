"""Emitted kernels against a float64 execution of the listing itself.

Every run has its outputs poisoned, so that an element nobody writes shows, and every tensor inside
guard zones, so that what is written outside shows; inputs must be what they were, bit for bit. Some
runs have unusual strides. In the interpreter launches are watched besides: what a GPU might do in
another order is wrong there too.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Protocol

import torch

from looptrans.blocks.block_ir.program import BlockProgram
from looptrans.emit.listing import emitted
from looptrans.emit.parameters import launcher_parameters
from looptrans.executor.errors import ExecutionError
from looptrans.executor.inputs import Inputs, prepare
from looptrans.executor.run import output_names
from looptrans.ir.creation import in_16_bits
from looptrans.ir.program import Program
from looptrans.ir.walk import written
from looptrans.runtime.executed.empty_rows import with_empty_rows
from looptrans.runtime.executed.reference import Outputs, Reference, reference_of
from looptrans.runtime.running.cache import keep
from looptrans.runtime.running.device import prepare_device
from looptrans.runtime.running.load import load_module
from looptrans.runtime.running.threads import one_thread
from looptrans.runtime.verifying.call import (
    called,
    element_type,
    guarded_arguments,
    guarding,
    once_rounded,
    rounded,
    value_of,
    written_outside,
)
from looptrans.runtime.verifying.divided import asked_for
from looptrans.runtime.verifying.errors import compared
from looptrans.runtime.verifying.inputs import KINDS, InputKind, inputs_for
from looptrans.runtime.verifying.memory import (
    ODD_LAYOUTS,
    Guarded,
    Layout,
    guarded,
    to_array,
    to_tensor,
)
from looptrans.runtime.verifying.nearby import run_nearby
from looptrans.runtime.verifying.rounded import rounds_operands, run_rounded
from looptrans.runtime.verifying.sizes import SizeSet, said_of, size_sets
from looptrans.runtime.verifying.verification import OutputError, Report, Run

DTYPES = ("float32", "float16", "bfloat16")
NO_BFLOAT16 = (
    "bfloat16 is not verified in Triton's interpreter, whose bfloat16 arithmetic is wrong: it "
    "needs a GPU"
)


class CannotVerify(Exception):
    """Nothing can be verified as asked; the message says why and what to do."""


class NeedsGpu(CannotVerify):
    """Triton's interpreter cannot do what is to be verified, so that nothing is known of it."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """A function that runs the kernels of a listing, and how it is called.

    Attributes:
        run: The function: the arguments, then `out` and options.
        arguments: What the arguments are in the listing, in order.
        given: The outputs that `out` takes, in order.
        module: The module it is from, whose new tensors are watched; None where it has none.
    """

    run: Callable[..., Any]
    arguments: tuple[str, ...]
    given: tuple[str, ...]
    module: ModuleType | None = None


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
    chosen, notes = chosen_dtypes(dtypes, device, program)
    for each in sizes or ():
        prepare(program, each, seed=seed)  # says what does not fit before the kernels are made
    made = emitted(program)
    sets = given_sets(sizes) if sizes is not None else size_sets(program, made.blocks)
    launcher = launcher_of(made.text, made.launcher, made.blocks)
    notes = (*notes, *said_of(sets))
    reference = replace(reference_of(program), nest=made.blocks.scheduled)
    return verify_launcher(reference, launcher, sets, chosen, device, seed, notes, progress)


def chosen_dtypes(
    dtypes: Sequence[str] | None, device: str, program: Program
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the types to verify, and what to say about those left out.

    Raises:
        NeedsGpu: One is asked for, or stated by the listing, that the interpreter cannot do.
        CannotVerify: One is no type for kernels.
    """
    own = (name for name, stated in in_16_bits(program).items() if stated == "bfloat16")
    array = next(own, None) if device == "cpu" else None
    if array is not None:
        said = NO_BFLOAT16.removeprefix("bfloat16 is not verified in ")
        raise NeedsGpu(
            f"{array} is created in bfloat16, and not verified in {said}, or dtype=float16"
        )
    can = DTYPES if device != "cpu" else tuple(name for name in DTYPES if name != "bfloat16")
    if dtypes is None:
        return can, () if can == DTYPES else (f"{NO_BFLOAT16}.",)
    for name in dtypes:
        if name not in DTYPES:
            raise CannotVerify(f"there is no type {name!r} for kernels: use {', '.join(DTYPES)}")
        if name not in can:
            raise NeedsGpu(NO_BFLOAT16)
    return tuple(dict.fromkeys(dtypes)), ()


def given_sets(sizes: Sequence[Mapping[str, float]]) -> tuple[SizeSet, ...]:
    """Return the sizes that the user gives."""
    return tuple(SizeSet("given", each) for each in sizes)


def launcher_of(text: str, name: str, blocks: BlockProgram) -> Launcher:
    """Import an emitted module.

    Args:
        text: The module.
        name: What its launcher is called.
        blocks: What is printed in it.
    """
    key = hashlib.sha256(text.encode()).hexdigest()
    kept = keep(key, name, text)
    module = load_module(f"looptrans_emitted_{key}", text, kept.path)
    filled = {each.array for each in blocks.made}
    given = tuple(output for output in dict.fromkeys(blocks.outputs) if output in filled)
    return Launcher(getattr(module, name), launcher_parameters(blocks).names, given, module)


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
    return run_sets(session, sets, dtypes, notes, progress)


class Session(Protocol):
    """What runs kernels at a set of sizes."""

    @property
    def program(self) -> Program:
        """The listing."""

    @property
    def device(self) -> str:
        """Where the kernels run."""

    @property
    def seed(self) -> int:
        """What decides the random inputs."""

    def runs(self, sizes: SizeSet, dtypes: Sequence[str]) -> list[Run]:
        """Run at one set of sizes, with every type and kind of inputs.

        Raises:
            ExecutionError: The listing cannot be run at these sizes.
        """


def run_sets(
    session: Session,
    sets: Sequence[SizeSet],
    dtypes: Sequence[str],
    notes: Sequence[str],
    progress: Callable[[str], None] | None,
) -> Report:
    """Run kernels at every set of sizes; see `verify_launcher`.

    Raises:
        ExecutionError: Sizes of kind `given` do not fit the listing.
        CannotVerify: A kernel has left the GPU such that nothing more can be run.
    """
    runs: list[Run] = []
    more: list[str] = []
    empty = True
    for each in sets:
        where = ", ".join(f"{name}={value}" for name, value in each.sizes.items())
        if progress is not None:
            progress(where)
        try:
            with one_thread():
                runs += session.runs(each, dtypes)
            empty = empty and each.kind == "zero"
        except ExecutionError as error:
            if each.kind == "given":
                raise
            more.append(f"The listing itself cannot be run at {where}: {error.message}.")
        except RuntimeError as error:
            if session.device == "cpu":
                raise
            text = str(error).partition("\n")[0]
            raise CannotVerify(
                f"a kernel failed at {where}, and the GPU can do no more in this process: {text}"
            ) from error
    if runs and empty:
        runs = []
        more.append("With a size of 0 it can be run, which shows nothing.")
    shown = "interpreter" if session.device == "cpu" else session.device
    return Report(session.program.name, shown, session.seed, tuple(runs), (*notes, *more))


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
                inputs = rounded(self.program, made, dtype)
                found.append(self._run(inputs, dtype, kind, odd=odd))
        return found

    def _run(self, inputs: Inputs, dtype: str, kind: InputKind, *, odd: bool) -> Run:
        own = self.reference.run(inputs)
        exact, empty = with_empty_rows(self.reference, inputs, own)
        arguments = guarded_arguments(
            self.program, inputs, dtype, self.device, "odd" if odd else "contiguous"
        )
        outputs = self._outputs(exact, dtype, odd=odd)
        problems = self._launch(inputs, arguments, outputs)
        changed = written(self.program)
        for name, tensor in arguments.items():
            if name in changed:
                problems += written_outside(f"the argument {name}", tensor)
            elif tensor.changed():
                problems.append(f"the input {name} is changed")
        for name, tensor in outputs.items():
            problems += written_outside(f"the output {name}", tensor)
        plain: dict[bool, Outputs] = {}

        def plainly(name: str, backwards: bool) -> Any:
            if backwards not in plain:
                plain[backwards] = self.reference.run(inputs, "float32", backwards=backwards)
            return once_rounded(plain[backwards][name], element_type(self.program, name, dtype))

        def nearby(name: str, number: int) -> Any:
            result = run_nearby(self.reference, inputs, number)
            return once_rounded(result[name], element_type(self.program, name, dtype))

        def rounded(name: str, number: int) -> Any:
            result = run_rounded(self.reference, inputs, dtype, number)
            return once_rounded(result[name], element_type(self.program, name, dtype))

        errors: list[OutputError] = []
        is_rounded = rounds_operands(self.program, dtype)
        for name in output_names(self.program):
            held = {**arguments, **outputs}[name]
            kept = str(element_type(self.program, name, dtype)).removeprefix("torch.")
            found = to_array(held.tensor)
            errors.append(
                compared(
                    name,
                    found,
                    asked_for(self.program, inputs.integers, exact[name], found),
                    functools.partial(plainly, name),
                    kept,
                    always_plain=dtype != "float32",
                    empty=empty.get(name),
                    nearby=functools.partial(nearby, name),
                    rounded=functools.partial(rounded, name) if is_rounded else None,
                )
            )
        layout = "odd" if odd else "contiguous"
        return Run(dict(inputs.integers), dtype, kind, layout, tuple(errors), tuple(problems))

    def _outputs(self, exact: Outputs, dtype: str, *, odd: bool) -> dict[str, Guarded]:
        """Return poisoned tensors for what the launcher would make."""
        found = {}
        for number, name in enumerate(self.launcher.given):
            values, own = exact[name], element_type(self.program, name, dtype)
            # The last one has the strides that a new tensor would not have.
            layout: Layout = ODD_LAYOUTS[-1 - number % len(ODD_LAYOUTS)] if odd else "contiguous"
            wrong = to_tensor(~values, own) if own == torch.bool else None
            found[name] = guarded(values.shape, own, self.device, layout, wrong)
        return found

    def _launch(
        self, inputs: Inputs, arguments: Mapping[str, Guarded], outputs: Mapping[str, Guarded]
    ) -> list[str]:
        """Call the launcher; return what is wrong with what it does and returns."""
        tensors = {name: each.tensor for name, each in arguments.items()}
        values = [value_of(name, tensors, inputs) for name in self.launcher.arguments]
        named: dict[str, Any] = {}
        if outputs:
            given = tuple(each.tensor for each in outputs.values())
            named["out"] = given if len(given) > 1 else given[0]
        with guarding(self.launcher.module) as made:
            result, problems = called(self.launcher.run, values, named, self.device)
        for tensor in made:
            problems += written_outside("a tensor of the launcher", tensor)
        if problems:
            return problems
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
