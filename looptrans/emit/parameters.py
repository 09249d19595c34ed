"""What a launcher is called with."""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.blocks.program import BlockProgram
from looptrans.emit.sizes import Solved, solved
from looptrans.ir.program import Array, Parameter


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a launcher is called with.

    Attributes:
        names: The names in the listing, in order: arrays, real parameters, sizes no shape tells.
        arrays: The arrays among them.
        reals: The real parameters among them.
        integers: The sizes among them.
        sizes: How the other sizes are found.
    """

    names: tuple[str, ...]
    arrays: tuple[Array, ...]
    reals: tuple[Parameter, ...]
    integers: tuple[Parameter, ...]
    sizes: tuple[Solved, ...]


def launcher_parameters(program: BlockProgram) -> Parameters:
    """Return what the launcher of a program is called with."""
    listing = program.listing
    arrays = {array.name: array for array in listing.arrays if array.role == "input"}
    numbers = {parameter.name: parameter for parameter in listing.parameters}
    order = dict.fromkeys((*listing.arguments, *arrays, *numbers))
    tensors = tuple(arrays[name] for name in order if name in arrays)
    found = solved(tensors, ())
    missing = [
        p.name for p in numbers.values() if p.is_integer and p.name not in {s.name for s in found}
    ]
    # Knowing those that must be given may determine more: `G` from `G * R` once R is given.
    known: list[str] = []
    for name in missing:
        if name not in {step.name for step in found}:
            known.append(name)
            found = solved(tensors, known)
    told = {step.name for step in found}
    names = tuple(
        name for name in order if name in arrays or (name in numbers and name not in told)
    )
    return Parameters(
        names,
        tensors,
        tuple(numbers[n] for n in names if n in numbers and not numbers[n].is_integer),
        tuple(numbers[n] for n in names if n in numbers and numbers[n].is_integer),
        tuple(found),
    )
