"""Rows that are masked throughout: what the listing gives for no iterations stands for them.

A row whose elements are all -inf has no softmax: the listing's own execution is nan there. Kernels
give what zero iterations give (O = 0, a log-sum-exp of -inf). Two executions of the listing itself
say where that is so, and what it is:

    1. with every -inf that masks an element replaced by a large negative number, such a row is a
       number; a nan that has another cause stays
    2. with a size 0 that no output has as an extent, its loops have no iterations
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from looptrans.executor.errors import ExecutionError
from looptrans.executor.inputs import Inputs, declared_shape, prepare
from looptrans.ir.evaluate import evaluate
from looptrans.ir.index import parameters
from looptrans.ir.program import Assign, Node, Program
from looptrans.ir.rewrite import replaced, rewritten
from looptrans.ir.value import Call, Const, Select, Unary, Value
from looptrans.runtime.reference import Outputs, Reference

Values: TypeAlias = np.ndarray[Any, Any]

# So low that nothing remains of it beside a number, and far enough from overflow.
SOFT = -1e30


def with_empty_rows(
    reference: Reference, inputs: Inputs, exact: Outputs
) -> tuple[Outputs, dict[str, Values]]:
    """Put the value of zero iterations where rows are masked throughout.

    Args:
        reference: The listing.
        inputs: What it was executed on.
        exact: What it gave, in float64.

    Returns:
        The same, a nan that a mask causes replaced where zero iterations give one number; and for
        each output that has some, where those are.
    """
    masked = masked_rows(reference, inputs, exact)
    if not masked:
        return exact, {}
    found, places = dict(exact), {}
    empties = _empties(reference, inputs)
    for name, there in masked.items():
        values = [each[name] for each in empties if each[name].shape == exact[name].shape]
        if values:
            value, agreed = _agreed(np.stack(values))
            places[name] = there & agreed
            found[name] = np.where(places[name], value, exact[name])
    return found, places


def masked_rows(reference: Reference, inputs: Inputs, exact: Outputs) -> dict[str, Values]:
    """Return for each output that has some where it is nan because rows are masked throughout.

    Args:
        reference: The listing.
        inputs: What it was executed on.
        exact: What it gave, in float64.
    """
    wanted = [n for n, v in exact.items() if v.dtype.kind == "f" and np.isnan(v).any()]
    soft_reference = softened(reference)
    if not wanted or soft_reference is None:
        return {}
    try:
        soft = soft_reference.run(inputs)
    except ExecutionError:
        return {}
    masked = {name: np.isnan(exact[name]) & ~np.isnan(soft[name]) for name in wanted}
    return {name: there for name, there in masked.items() if there.any()}


def _agreed(empties: Values) -> tuple[Values, Values]:
    """Return the number that several executions give, and where they give just one."""
    known = ~np.isnan(empties)
    low = np.where(known, empties, np.inf).min(axis=0)
    high = np.where(known, empties, -np.inf).max(axis=0)
    return low, known.any(axis=0) & (low == high)


def softened(reference: Reference) -> Reference | None:
    """Return the listing with a large negative number for every -inf that masks; None without."""
    changed = [_soft(program) for program in (reference.program, reference.parallel)]
    if changed[0] == reference.program:
        return None
    return Reference(changed[0], changed[1])


def _soft(program: Program) -> Program:
    def change(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Assign):
            return (node,)
        values = tuple(replaced(value, _without_mask) for value in node.values)
        return (replace(node, values=values),)

    return replace(program, body=rewritten(program.body, change))


def _without_mask(value: Value) -> Value | None:
    match value:
        case Select(condition, chosen, otherwise):
            return Select(condition, _finite(chosen), _finite(otherwise))
        case Call("where", (condition_value, chosen, otherwise)):
            return Call("where", (condition_value, _finite(chosen), _finite(otherwise)))
        case _:
            return None


def _finite(value: Value) -> Value:
    """Return a branch of a choice: -inf as a number, everything else with what is inside it."""
    match value:
        case Unary("-", Const(number)) if number == math.inf:
            return Const(SOFT)
        case Const(number) if number == -math.inf:
            return Const(SOFT)
        case _:
            return replaced(value, _without_mask)


def _empties(reference: Reference, inputs: Inputs) -> list[Outputs]:
    """Execute the listing with each size 0 that is no extent of an output."""
    program = reference.program
    shown = {
        name
        for output in program.outputs
        for extent in program.array(output).shape
        if extent is not None
        for name in parameters(extent)
    }
    found = []
    for parameter in program.parameters:
        if parameter.kind != "size" or parameter.name in shown:
            continue
        smaller = _cut(program, inputs, parameter.name)
        if smaller is None:
            continue
        try:
            found.append(reference.run(smaller))
        except ExecutionError:
            continue
    return found


def _cut(program: Program, inputs: Inputs, size: str) -> Inputs | None:
    """Return the inputs with a size 0, every array cut to what is left of it."""
    sizes = {**inputs.integers, size: 0}
    arrays = {}
    for name, values in inputs.arrays.items():
        extents = [
            None if e is None else evaluate(e, sizes)
            for e in declared_shape(program, program.array(name))
        ]
        if any(extent is None or extent < 0 for extent in extents):
            return None
        cut = values[tuple(slice(0, extent) for extent in extents)]
        span = program.array(name).value_range
        if span is not None:
            # A length of up to N is 0 where N is.
            low, high = (evaluate(end, sizes) for end in span)
            if cut.size and (low is None or high is None or high <= low):
                return None
            if low is not None and high is not None and cut.size:
                cut = np.clip(cut, low, high - 1)
        arrays[name] = cut
    try:
        return prepare(program, {**sizes, **inputs.reals}, arrays)
    except ExecutionError:
        return None
