"""Rows that are masked throughout: what the listing gives for no iterations stands for them.

A row whose elements are all -inf has no softmax: the listing's own execution is nan there. Kernels
give what zero iterations give (O = 0, a log-sum-exp of -inf). Two executions of the listing itself
say where that is so, and what it is:

    1. with every -inf that masks an element replaced by a large negative number, such a row is a
       number; a nan that has another cause stays
    2. with a size 0 that no output has as an extent, its loops have no iterations

A row that only begins with -inf, summed up under a maximum so far, is nan in the listing as well,
since exp(-inf - -inf) is; kernels give its softmax. An execution in which -inf - -inf is -inf gives
the number there that the first one does, and this stands for such a row:

    top = max(m, s); l = l * exp(m - top) + exp(s - top); m = top
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from looptrans.executor.errors import ExecutionError
from looptrans.executor.inputs import Inputs, declared_shape, prepare
from looptrans.ir.condition import Data
from looptrans.ir.evaluate import evaluate
from looptrans.ir.index import parameters
from looptrans.ir.program import Assign, Node, Program
from looptrans.ir.rewrite import replaced, rewritten, values_replaced
from looptrans.ir.value import Binary, Call, Compare, Const, Select, Unary, Value
from looptrans.runtime.executed.reference import Outputs, Reference

Values: TypeAlias = np.ndarray[Any, Any]

# So low that nothing remains of it beside a number, and far enough from overflow.
SOFT = -1e30


def with_empty_rows(
    reference: Reference, inputs: Inputs, exact: Outputs
) -> tuple[Outputs, dict[str, Values]]:
    """Put the value of zero iterations where rows are masked throughout.

    Where they only begin masked, what is behind the mask takes the place of a nan.

    Args:
        reference: The listing.
        inputs: What it was executed on.
        exact: What it gave, in float64.

    Returns:
        The same, a nan that a mask causes replaced where zero iterations give one number; and for
        each output that has some, where those are.
    """
    found, places, _ = with_masked_rows(reference, inputs, exact)
    return found, places


def with_masked_rows(
    reference: Reference, inputs: Inputs, exact: Outputs
) -> tuple[Outputs, dict[str, Values], dict[str, Values]]:
    """Return what `with_empty_rows` does, and where outputs are nan by rows masked throughout.

    Args:
        reference: The listing.
        inputs: What it was executed on.
        exact: What it gave, in float64.

    Returns:
        The outputs, where zero iterations give one number, and for each output that is nan because
        of a mask, be it only at the beginning of rows, where its rows are masked throughout.
    """
    masked, begun = _masked(reference, inputs, exact)
    if not masked:
        return exact, {}, {}
    found, places = {**exact, **begun}, {}
    empties = _empties(reference, inputs)
    for name, there in masked.items():
        values = [each[name] for each in empties if each[name].shape == exact[name].shape]
        if values:
            value, agreed = _agreed(np.stack(values))
            places[name] = there & agreed
            found[name] = np.where(places[name], value, found[name])
    return found, places, masked


def _masked(
    reference: Reference, inputs: Inputs, exact: Outputs
) -> tuple[dict[str, Values], Outputs]:
    """Return where rows are masked throughout, and outputs where they only begin masked."""
    wanted = [n for n, v in exact.items() if v.dtype.kind == "f" and np.isnan(v).any()]
    soft_reference = softened(reference)
    if not wanted or soft_reference is None:
        return {}, {}
    try:
        soft = soft_reference.run(inputs)
        lenient = _lenient(reference).run(inputs)
    except ExecutionError:
        return {}, {}
    masked, begun = {}, {}
    for name in wanted:
        there = np.isnan(exact[name]) & ~np.isnan(soft[name])
        if not there.any():
            continue
        behind = there & np.isclose(lenient[name], soft[name], rtol=1e-9, atol=0.0)
        masked[name] = there & ~behind
        begun[name] = np.where(behind, lenient[name], exact[name])
    return masked, begun


def _lenient(reference: Reference) -> Reference:
    """Return the listing with -inf for what is taken off -inf, also where that is -inf."""
    return Reference(*map(_with_values(_without_nan), (reference.program, reference.parallel)))


def _without_nan(value: Value) -> Value | None:
    match value:
        case Binary("-", left, right):
            first, second = replaced(left, _without_nan), replaced(right, _without_nan)
            least = Const(-math.inf)
            return Select(Data(Compare("==", first, least)), least, Binary("-", first, second))
        case _:
            return None


def _agreed(empties: Values) -> tuple[Values, Values]:
    """Return the number that several executions give, and where they give just one."""
    known = ~np.isnan(empties)
    low = np.where(known, empties, np.inf).min(axis=0)
    high = np.where(known, empties, -np.inf).max(axis=0)
    return low, known.any(axis=0) & (low == high)


def softened(reference: Reference) -> Reference | None:
    """Return the listing with a large negative number for every -inf that masks; None without."""
    changed = [*map(_with_values(_without_mask), (reference.program, reference.parallel))]
    if changed[0] == reference.program:
        return None
    return Reference(changed[0], changed[1])


def _with_values(change: Callable[[Value], Value | None]) -> Callable[[Program], Program]:
    """Return what replaces parts of the values that a program assigns."""

    def node_changed(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Assign):
            return (node,)
        return (values_replaced(node, change),)

    return lambda program: replace(program, body=rewritten(program.body, node_changed))


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
        for extent in program.array(output).extents
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
