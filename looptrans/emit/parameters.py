"""What a launcher is called with."""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.blocks.block_ir.expr import Binary, Scalar
from looptrans.blocks.block_ir.expr import walk as walk_expr
from looptrans.blocks.block_ir.ops import exprs_of, ops_in
from looptrans.blocks.block_ir.program import BlockProgram
from looptrans.emit.sizes import Solved, solved
from looptrans.ir.condition import Relation
from looptrans.ir.index import Arith, Index, Opaque, Var, parameters, walk
from looptrans.ir.program import Array, Parameter, Program


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


def divisors(program: BlockProgram) -> set[str]:
    """Return the sizes that something is divided by: a launcher wants them to be at least 1."""
    found: set[str] = set()
    parameters_ = launcher_parameters(program)
    shapes: list[tuple[Index | None, ...]] = [array.shape for array in parameters_.arrays]
    shapes += [made.shape for made in program.made]
    for declared in (size for shape in shapes for size in shape if size is not None):
        for node in walk(declared):
            if isinstance(node, Arith) and node.op in ("//", "%"):
                found |= set(parameters(node.right))
    for step in parameters_.sizes:
        if step.divisor is not None:
            found |= set(parameters(step.divisor))
    for kernel in program.kernels:
        for op in ops_in(kernel.body):
            for part in (n for expr in exprs_of(op) for n in walk_expr(expr)):
                if isinstance(part, Binary) and part.op in ("//", "%"):
                    found |= {part.right.name} if isinstance(part.right, Scalar) else set()
    return found


def launcher_parameters(program: BlockProgram) -> Parameters:
    """Return what the launcher of a program is called with."""
    listing = program.listing
    arrays = {array.name: array for array in listing.arrays if array.role == "input"}
    numbers = {parameter.name: parameter for parameter in listing.parameters}
    order = dict.fromkeys((*listing.arguments, *arrays, *numbers))
    tensors = tuple(arrays[name] for name in order if name in arrays)
    equal = _equations(listing)
    integers = [p.name for p in numbers.values() if p.is_integer]
    plain = {step.name for step in solved(tensors, (), equal) if step.is_plain}
    # What the listing takes as an argument is given, unless it is an extent as it is, or a contract
    # such as H == G * R says what it is: no division tells H from an extent H * E that is 0.
    divided = {step.name for step in solved(tensors, (), ())} - plain
    known = [name for name in integers if name in listing.arguments and name in divided]
    found = solved(tensors, known, equal)
    missing = [n for n in integers if n not in known and n not in {s.name for s in found}]
    # Knowing those that must be given may determine more: `G` from `G * R` once R is given. What
    # the listing takes as an argument is given rather than another one.
    missing.sort(key=lambda name: name not in listing.arguments)
    for name in missing:
        if name not in {step.name for step in found}:
            known.append(name)
            found = solved(tensors, known, equal)
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


def _equations(listing: Program) -> tuple[tuple[Index, Index], ...]:
    """Return the index expressions of sizes alone that the listing assumes to be equal."""
    found = []
    for condition in listing.stated:
        if isinstance(condition, Relation) and condition.op == "==":
            nodes = (*walk(condition.left), *walk(condition.right))
            if not any(isinstance(node, Var | Opaque) for node in nodes):
                found.append((condition.left, condition.right))
    return tuple(found)
