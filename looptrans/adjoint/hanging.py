"""Whether an output hangs on which element is the largest, tried in numbers.

    m = max(S[j] for j)        l = sum(exp(S[j] - m) for j)        o = sum(exp(S[j] - m) * V[j]) / l

Every maximum and minimum is moved by a number of its own. l changes, and so its derivative jumps
where two elements are equal; o does not, since the maximum cancels in it.
"""

from __future__ import annotations

import numpy as np

from looptrans.adjoint.equations.definitions import Definition, System
from looptrans.adjoint.reading.read import read
from looptrans.executor import Inputs, execute_on, prepare
from looptrans.executor.errors import ExecutionError
from looptrans.ir.condition import ALWAYS
from looptrans.ir.evaluate import Evaluator, Unknown
from looptrans.ir.index import Index, Int
from looptrans.ir.monoids import OF_NOTHING
from looptrans.ir.program import Array, Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.value import Access, Binary, Call, Const, Create, Read, Reduce

# Sums of positive numbers are compared: what does not cancel is far away.
ERROR = 1e-6


def hangs_on_extreme(program: Program, output: str) -> bool | None:
    """Tell whether an output changes when the maxima and minima it is worked out from are moved.

    Args:
        program: The listing.
        output: The name of an output.

    Returns:
        None where the listing cannot be executed on random inputs.
    """
    reading, _ = read(program)
    name = reading.outputs[output]
    try:
        inputs = prepare(program)
        still, moved = (
            execute_on(_listing(program, reading.system, name, inputs, each), inputs)[name]
            for each in (False, True)
        )
    except (ExecutionError, Unknown):
        return None
    return not np.allclose(still, moved, rtol=ERROR, atol=ERROR, equal_nan=True)


def _listing(program: Program, system: System, output: str, inputs: Inputs, moved: bool) -> Program:
    """Return a listing that works out the definitions one after the other.

    Args:
        program: The listing they come from.
        system: The definitions.
        output: The one that is returned.
        inputs: What it is to be executed on.
        moved: Whether maxima and minima are larger than they are, each by a number of its own.
    """
    body: list[Node] = []
    arrays = [array for array in program.arrays if array.role == "input"]
    extremes = 0
    for name in system.order():
        definition = system.definitions[name]
        value = definition.value
        shape = _shape(definition, inputs)
        arrays.append(Array(name, len(shape), "float", "local", shape))
        if shape:
            body.append(Declaration(name, Create("zeros", shape)))
        label, target = f"S{len(body) + 1}", Access(name, definition.cell.access.subscripts)
        inside: tuple[Node, ...] = (Assign(label, (target,), (value,)),)
        if isinstance(value, Reduce) and value.function in ("max", "min"):
            extremes += 1
            inside = _of_any_number(label, target, value)
            if moved:
                more = Binary("+", Read(target), Const(0.5 + 0.25 * extremes))
                inside += (Assign(label, (target,), (more,)),)
        body += _nest(definition, inside)
    return Program(
        program.name,
        program.arguments,
        program.parameters,
        tuple(arrays),
        program.contracts,
        tuple(body),
        (output,),
    )


def _shape(definition: Definition, inputs: Inputs) -> tuple[Index, ...]:
    """Return extents, as numbers, in which all indices have room."""

    def element(array: str, cell: tuple[int, ...]) -> int:
        return int(inputs.arrays[array][cell])

    evaluator = Evaluator(inputs.integers, element)
    extents = [0] * len(definition.indices)

    def visit(number: int, variables: dict[str, int]) -> None:
        if number < len(extents):
            generator = definition.indices[number]
            stop = evaluator.index(generator.range.stop, variables)
            extents[number] = max(extents[number], stop)
            for value in range(stop):
                visit(number + 1, {**variables, generator.variable: value})

    visit(0, {})
    return tuple(Int(extent) for extent in extents)


def _of_any_number(label: str, target: Access, value: Reduce) -> tuple[Node, ...]:
    """Return what works a maximum or minimum out that may be one of nothing."""
    joined = Call(value.function, (Read(target), value.body))
    inside: tuple[Node, ...] = (Assign(label, (target,), (joined,)),)
    for generator in reversed(value.generators):
        if generator.condition != ALWAYS:
            inside = (If(generator.condition, inside),)
        inside = (Loop(generator.variable, generator.range, inside),)
    return (Assign(label, (target,), (Const(OF_NOTHING[value.function]),)), *inside)


def _nest(definition: Definition, inside: tuple[Node, ...]) -> tuple[Node, ...]:
    for generator in reversed(definition.indices):
        inside = (Loop(generator.variable, generator.range, inside),)
    return inside
