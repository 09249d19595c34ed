"""Kernels of a loop in parts against a float64 execution of the listing.

The numbers of parts are one, few, and more than there are iterations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from looptrans.emit.split import emitted_split
from looptrans.executor.inputs import prepare
from looptrans.ir.program import Program
from looptrans.runtime.executed.reference import reference_of
from looptrans.runtime.running.device import prepare_device
from looptrans.runtime.verifying.sizes import SizeSet, said_of, size_sets
from looptrans.runtime.verifying.verification import Report, Run
from looptrans.runtime.verifying.verify import chosen_dtypes, launcher_of, verify_launcher

PARTS = "parts"
GIVEN = (1, 2, 3, 7)
# By the kind of a set of sizes; small sizes are below 19.
NUMBERS: Mapping[str, tuple[int, ...]] = {
    "small": (2, 19),
    "crossing": (3,),
    "whole": (7,),
    "far": (3,),
    "one": (1, 2),
    "zero": (2,),
}


def verify_split(
    program: Program,
    sizes: Sequence[Mapping[str, float]] | None = None,
    dtypes: Sequence[str] | None = None,
    device: str | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Emit the kernels of a loop in parts, run them, and compare them with the listing.

    Args:
        program: The listing.
        sizes: See `runtime.verifying.verify.verify`; `parts` among them is the number of parts. By
            default there are several.
        dtypes: See there.
        device: See there.
        seed: Decides the random inputs.
        progress: Told what is done next, a phrase.

    Raises:
        NotLowered: The listing cannot be run in blocks, or no loop of it in parts.
        CannotVerify: A type cannot be verified on the device.
        NoDevice: Kernels cannot be run here as asked.
        ExecutionError: The given sizes do not fit the listing.
    """
    device = prepare_device(device)
    chosen, notes = chosen_dtypes(dtypes, device, program)
    asked = [(SizeSet("given", _without(each)), _numbers(each)) for each in sizes or ()]
    for each, _ in asked:
        prepare(program, each.sizes, seed=seed)  # says what does not fit before kernels are made
    made = emitted_split(program)
    if sizes is None:
        asked = [(each, NUMBERS[each.kind]) for each in size_sets(program, made.parts)]
    reference = replace(reference_of(program), nest=made.blocks.scheduled)
    launcher = launcher_of(made.text, made.launcher, made.blocks)
    runs: list[Run] = []
    said = [*said_of([each for each, _ in asked])]
    for each, numbers in asked:
        for parts in numbers:
            run = replace(launcher, run=functools.partial(launcher.run, parts=parts))
            report = verify_launcher(reference, run, (each,), chosen, device, seed, notes, progress)
            runs += [replace(r, sizes={**r.sizes, PARTS: parts}) for r in report.runs]
            said += report.notes
    shown = "interpreter" if device == "cpu" else device
    return Report(
        f"{program.name}, {made.loop} in parts",
        shown,
        seed,
        tuple(runs),
        tuple(dict.fromkeys(said)),
    )


def _without(sizes: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in sizes.items() if name != PARTS}


def _numbers(sizes: Mapping[str, float]) -> tuple[int, ...]:
    return (int(sizes[PARTS]),) if PARTS in sizes else GIVEN
