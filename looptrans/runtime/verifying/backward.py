"""Emitted gradients against torch's autograd over the listing's own statements in float64.

The forward kernels of a backward module run first, and what they return is handed on, as a training
step does it. As in `runtime.verifying.verify`, arguments lie inside guard zones and stay what they
were; so does what the launchers make for themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from looptrans.blocks.block_ir.program import NotLowered
from looptrans.emit.backward import EmittedBackward, Form, emitted_with_backward
from looptrans.emit.parameters import launcher_parameters
from looptrans.executor.inputs import prepare
from looptrans.ir.program import Program
from looptrans.runtime.differentiated.reference import gradient_reference_of
from looptrans.runtime.executed.reference import reference_of
from looptrans.runtime.running.cache import keep
from looptrans.runtime.running.device import prepare_device
from looptrans.runtime.running.load import load_module
from looptrans.runtime.verifying.call import Strides, rounded
from looptrans.runtime.verifying.gradient_run import Context, GradientLauncher, GradientRun
from looptrans.runtime.verifying.inputs import KINDS, InputKind, inputs_for
from looptrans.runtime.verifying.sizes import SizeSet, said_of, size_sets
from looptrans.runtime.verifying.verification import Report, Run
from looptrans.runtime.verifying.verify import chosen_dtypes, given_sets, run_sets, verify
from looptrans.transforms.steps.advice import say_that_rows_are_apart

Pass: TypeAlias = Literal["forward", "backward", "both"]


def verify_pass(
    program: Program,
    which: Pass = "forward",
    sizes: Sequence[Mapping[str, float]] | None = None,
    dtypes: Sequence[str] | None = None,
    device: str | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    of: tuple[str, ...] | None = None,
    form: Form = "kernels",
) -> Report:
    """Emit the kernels of a listing, of its backward pass or of both, and compare them with it.

    Args:
        program: The listing.
        which: The kernels: `forward` those of `emit`, `backward` the gradients, `both` one after
            the other in one report.
        sizes: See `looptrans.runtime.verifying.verify.verify`.
        dtypes: See there.
        device: See there.
        seed: Decides the random inputs and the incoming gradients.
        progress: Told what is done next, a phrase.
        of: The outputs that receive a gradient; by default all that need no arg-max.
        form: How the kernels of the backward pass share the work.

    Raises:
        NotLowered: It cannot be run in blocks, or its gradients alone are asked for and cannot.
        CannotVerify: A type cannot be verified on the device.
        NoDevice: Kernels cannot be run here as asked.
        ExecutionError: The given sizes do not fit the listing.
    """
    if which == "backward":
        return verify_backward(program, sizes, dtypes, device, seed, progress, of, form)
    first = verify(program, sizes, dtypes, device, seed, progress)
    if which == "forward":
        return first
    try:
        second = verify_backward(program, sizes, dtypes, device, seed, progress, of, form)
    except NotLowered as refusal:
        help_ = say_that_rows_are_apart(program)
        refused = " ".join(f"{text}." for text in (refusal.reason, _sentence(help_)) if text)
        return replace(first, direction="both", refused=refused)
    return joined(first, second)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def joined(first: Report, second: Report) -> Report:
    """Return one report of both passes."""
    return replace(
        first,
        runs=first.runs + second.runs,
        notes=tuple(dict.fromkeys(first.notes + second.notes)),
        direction="both",
    )


def verify_backward(
    program: Program,
    sizes: Sequence[Mapping[str, float]] | None = None,
    dtypes: Sequence[str] | None = None,
    device: str | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    of: tuple[str, ...] | None = None,
    form: Form = "kernels",
) -> Report:
    """Emit the kernels of a backward pass, run them, and compare the gradients with autograd's.

    Args:
        program: The listing.
        sizes: See `looptrans.runtime.verifying.verify.verify`.
        dtypes: See there.
        device: See there.
        seed: Decides the random inputs and the incoming gradients.
        progress: Told what is done next, a phrase.
        of: The outputs that receive a gradient; by default all that need no arg-max.
        form: How the kernels share the work.

    Raises:
        NotLowered: The listing has no backward pass, or one that cannot be run in blocks.
        CannotVerify: A type cannot be verified on the device.
        NoDevice: Kernels cannot be run here as asked.
        ExecutionError: The given sizes do not fit the listing.
    """
    device = prepare_device(device)
    chosen, notes = chosen_dtypes(dtypes, device, program)
    for each in sizes or ():
        prepare(program, each, seed=seed)  # says what does not fit before the kernels are made
    made = emitted_with_backward(program, of, form)
    sets = (
        given_sets(sizes)
        if sizes is not None
        else size_sets(program, made.backward, (made.forward,))
    )
    launcher = gradient_launcher(made)
    notes = (*notes, *said_of(sets))
    return verify_gradients(launcher, sets, chosen, device, seed, notes, progress)


def gradient_launcher(made: EmittedBackward) -> GradientLauncher:
    """Import an emitted backward module."""
    key = hashlib.sha256(made.text.encode()).hexdigest()
    kept = keep(key, made.name, made.text)
    module = load_module(f"looptrans_emitted_{key}", made.text, kept.path)
    return GradientLauncher(
        made.found,
        getattr(module, made.forward_launcher),
        launcher_parameters(made.forward).names,
        made.forward.outputs,
        getattr(module, made.backward_launcher),
        launcher_parameters(made.backward).names,
        made.backward.outputs,
        module,
        made.forward.scheduled,
    )


def verify_gradients(
    launcher: GradientLauncher,
    sets: Sequence[SizeSet],
    dtypes: Sequence[str],
    device: str,
    seed: int = 0,
    notes: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Compare gradients with those of a listing; see `verify_backward`.

    Args:
        launcher: What runs the kernels.
        sets: The sizes.
        dtypes: The types of floating-point inputs.
        device: A torch device that has been prepared.
        seed: Decides the random inputs and the incoming gradients.
        notes: What the report says besides.
        progress: Told what is done next, a phrase.

    Raises:
        ExecutionError: Sizes of kind `given` do not fit the listing.
    """
    own = replace(reference_of(launcher.found.listing), nest=launcher.nest)
    reference = gradient_reference_of(own)
    session = _Session(Context(launcher, reference, device, seed))
    report = run_sets(session, sets, dtypes, notes, progress)
    return replace(report, direction="backward", notes=(*report.notes, *session.said()))


@dataclass(slots=True)
class _Session:
    context: Context

    @property
    def program(self) -> Program:
        return self.context.launcher.found.listing

    @property
    def device(self) -> str:
        return self.context.device

    @property
    def seed(self) -> int:
        return self.context.seed

    def said(self) -> list[str]:
        """Return what the reader should know besides."""
        notes = list(self.context.launcher.found.notes)
        differed, ambiguous = self.context.differed, self.context.ambiguous
        if differed.agreed:
            text = "Central differences of the listing, executed one statement at a time, agree "
            text += f"along {differed.agreed} directions"
            if differed.unsure:
                text += f"; along {differed.unsure} they say nothing, as two lengths of step give "
                text += "different slopes: there is a kink nearby, or rounding prevails"
            notes.append(f"{text}.")
        if ambiguous:
            notes.append(
                f"{ambiguous} elements are not compared: max or min is decided between equal "
                "numbers, and there is more than one subgradient."
            )
        return notes

    def runs(self, sizes: SizeSet, dtypes: Sequence[str]) -> list[Run]:
        """Run at one set of sizes, with every type and kind of inputs.

        Raises:
            ExecutionError: The listing cannot be run at these sizes.
        """
        found = []
        kinds: tuple[InputKind, ...] = KINDS if sizes.is_main else KINDS[:1]
        strides: dict[InputKind, Strides] = {"x10": "odd", "rising": "expanded"}
        for kind in kinds:
            made = inputs_for(self.program, sizes.sizes, kind, self.seed)
            own = "odd" if sizes.kind == "one" else strides.get(kind, "contiguous")
            for dtype in dtypes:
                inputs = rounded(self.program, made, dtype)
                found.append(GradientRun(self.context, inputs, dtype, kind, own).run())
        return found
