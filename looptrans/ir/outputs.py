"""What leaves a Program, and whether a gradient can come back through it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from looptrans.ir.program import Assign, Program
from looptrans.ir.value import Call, Value
from looptrans.ir.walk import live_out, placed

Gradient: TypeAlias = Literal["differentiable", "detached", "integer"]


@dataclass(frozen=True, slots=True)
class Output:
    """An array or scalar that is returned, or an input that is written.

    Attributes:
        name: Its name in the listing.
        gradient: `integer` for integers and booleans, which have none; `detached` where every
            assignment to it is `… = stop_gradient(…)`; else `differentiable`.
    """

    name: str
    gradient: Gradient


def outputs(program: Program) -> tuple[Output, ...]:
    """Return the outputs: those of the `return` in its order, then the inputs that are written."""
    names = dict.fromkeys([*program.outputs, *live_out(program)])
    return tuple(Output(name, _gradient(program, name)) for name in names)


def _gradient(program: Program, name: str) -> Gradient:
    if program.array(name).element != "float":
        return "integer"
    values = list(_assigned(program, name))
    stopped = all(isinstance(v, Call) and v.function == "stop_gradient" for v in values)
    return "detached" if values and stopped else "differentiable"


def _assigned(program: Program, name: str) -> list[Value]:
    return [
        node.values[number if len(node.values) == len(node.targets) else 0]
        for node in (place.node for place in placed(program))
        if isinstance(node, Assign)
        for number, target in enumerate(node.targets)
        if target.array == name
    ]
