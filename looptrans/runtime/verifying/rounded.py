"""What rounding to 16 bits does: operands of products, and arrays that are stored so.

    sum(exp(s[i, j] - m[i]) * V[j, d])    the weights are rounded to the type of V before
    q = zeros((N, E), dtype=float16)      what reads q reads it as it is stored

A listing that rounds so is executed beside the listing itself. The difference only widens a
tolerance: what is right the listing says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from looptrans.algebra.positional.values import ONE, divide, multiply
from looptrans.executor.inputs import Inputs
from looptrans.ir.condition import Data
from looptrans.ir.creation import in_16_bits
from looptrans.ir.program import Assign, Node, Program
from looptrans.ir.rewrite import replaced, rewritten, values_replaced
from looptrans.ir.value import (
    Binary,
    Call,
    Compare,
    Const,
    Read,
    Reduce,
    Select,
    Value,
    free_variables,
    walk_value,
)
from looptrans.ir.walk import nodes, placed, written_in
from looptrans.runtime.executed.reference import Outputs, Reference, reference_of
from looptrans.runtime.verifying.errors import LARGEST, ROUNDINGS


def rounds_operands(program: Program, dtype: str) -> bool:
    """Tell whether a sum multiplies an input with what is rounded to its type before.

    So is what a listing asks for in 16 bits, whatever the type of the inputs.
    """
    if _stored(program, dtype) != program:
        return True
    if dtype == "float32":
        return False
    made = with_rounded_operands(program, dtype)
    for one, other in zip(nodes(program.body), nodes(made.body), strict=True):
        if isinstance(one, Assign) and one != other:
            parts = [part for value in one.values for part in walk_value(value)]
            own = {target.array for target in one.targets}
            if any(isinstance(p, Reduce) for p in parts):
                return True
            if any(isinstance(p, Read) and p.access.array in own for p in parts):
                return True
    return False


def run_rounded(reference: Reference, inputs: Inputs, dtype: str, number: int) -> Outputs:
    """Execute a listing in float32 with operands of products rounded, as `with_rounded_operands`.

    Args:
        reference: The listing.
        inputs: What it starts from.
        dtype: The type of its inputs that have none of their own.
        number: What operands are multiplied with before they are rounded, and divided by after: a
            kernel may round weights before they are divided by their sum.
    """
    program = reference.program
    if dtype != "float32":
        program = with_rounded_operands(program, dtype, 1.0 + number / ROUNDINGS)
    return reference_of(_stored(program, dtype)).run(inputs, "float32")


def with_rounded_operands(
    program: Program, dtype: str, scale: float = 1.0, *, overflows: bool = True
) -> Program:
    """Return a listing in which what is multiplied with an input is rounded to its type before.

    In sums of products of two values that are no inputs both are, to a pair of bfloat16: see
    `looptrans.emit.precision`.

    Args:
        program: The listing.
        dtype: The type of its inputs that have none of their own.
        scale: What operands are multiplied with where they are rounded.
        overflows: Whether one that is too large for the type becomes infinite, or stays.
    """
    inputs = _inputs(program)

    def is_input(value: Value) -> bool:
        return isinstance(value, Read) and value.access.array in inputs

    def is_made(value: Value) -> bool:
        reads = [part for part in walk_value(value) if isinstance(part, Read)]
        return not is_input(value) and any(read.access.subscripts for read in reads)

    def operand(value: Value) -> Value:
        scaled = value if scale == 1.0 else Binary("*", value, Const(scale))
        rounded: Value = Call(dtype, (scaled,))
        if not overflows:
            fits = Compare("<", Call("abs", (scaled,)), Const(LARGEST[dtype]))
            rounded = Select(Data(fits), rounded, scaled)
        return rounded if scale == 1.0 else Binary("/", rounded, Const(scale))

    def pairs(part: Value) -> Value | None:
        match part:
            case Binary("*", left, right) if is_made(left) and is_made(right):
                return Binary("*", _pair(replaced(left, change)), _pair(replaced(right, change)))
            case Binary("*"):
                return change(part)
            case _:
                return None

    def change(part: Value) -> Value | None:
        match part:
            case Reduce("sum", generators, body):
                made = by_operands(body, frozenset(g.variable for g in generators), {})
                return Reduce("sum", generators, made or replaced(body, pairs))
            case Binary("*", left, right) if is_input(left) and not is_input(right):
                return Binary("*", left, operand(replaced(right, change)))
            case Binary("*", left, right) if is_input(right) and not is_input(left):
                return Binary("*", operand(replaced(left, change)), right)
            case _:
                return None

    def in_factors(value: Value) -> Value:
        match value:
            case Binary("*" | "/" as op, left, right):
                return Binary(op, in_factors(left), in_factors(right))
            case _:
                return replaced(value, change)

    def by_operands(
        body: Value, bound: frozenset[str], within: Mapping[str, frozenset[str]]
    ) -> Value | None:
        """Round the two operands of a product of more than two factors, `K * dO / (1 + exp(g))`."""
        found = _operands(body, bound, within, is_input)
        if found is None:
            return None
        *groups, outside = found
        if not any(map(is_input, groups)) or all(map(is_input, groups)):
            return None
        one, other = (g if is_input(g) else operand(in_factors(g)) for g in groups)
        product = Binary("*", one, other)
        return product if outside == ONE else Binary("*", product, replaced(outside, change))

    around = {
        place.label: frozenset(loop.variable for loop in place.loops) for place in placed(program)
    }
    scalars = {array.name for array in program.arrays if not array.rank}
    within: dict[str, frozenset[str]] = {}
    for node in nodes(program.body):
        if isinstance(node, Assign):
            for name in scalars & {target.array for target in node.targets}:
                within[name] = within.get(name, frozenset()) | around[node.label]

    def rounded(node: Node) -> tuple[Node, ...]:
        match node:
            case Assign(_, (target,), (Binary("+", Read(read), term),)) if read == target:
                bound = around[node.label] - set(free_variables(Read(target)))
                made = by_operands(term, bound, within) or replaced(term, change)
                node = replace(node, values=(Binary("+", Read(read), made),))
            case Assign():
                node = values_replaced(node, change)
        return (node,)

    return replace(program, body=rewritten(program.body, rounded))


def _inputs(program: Program) -> set[str]:
    """Return the arguments that have the type of the inputs."""
    return {
        array.name
        for array in program.arrays
        if array.role == "input" and array.element == "float" and array.rank
        if array.stated is None
    }


def _stored(program: Program, dtype: str) -> Program:
    """Return a program in which other statements read arrays of 16 bits as they are stored.

    Those are what it asks for so, and arguments of such a type that it writes.
    """
    types = in_16_bits(program)
    if dtype != "float32":
        written = written_in(program.body)
        types |= dict.fromkeys(written & _inputs(program), dtype)

    def each(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Assign):
            return (node,)
        own = {target.array for target in node.targets}

        def change(part: Value) -> Value | None:
            name = part.access.array if isinstance(part, Read) else ""
            return Call(types[name], (part,)) if name in types.keys() - own else None

        return (values_replaced(node, change),)

    return replace(program, body=rewritten(program.body, each)) if types else program


def _operands(
    body: Value,
    bound: frozenset[str],
    within: Mapping[str, frozenset[str]],
    is_input: Callable[[Value], bool],
) -> tuple[Value, Value, Value] | None:
    """Return the two operands of a product, each of all factors that have its indices.

    A factor that could be in both is in the one that is worked out anyway, as in a kernel. The
    third is what stands outside of the sum. None where it is the product of two as it stands, or of
    more than two operands.

    Args:
        body: What is summed.
        bound: The variables that are summed over.
        within: The loops that scalars are set in: each of their iterations has one.
        is_input: Tells what is an element of an input.
    """

    def indices(factor: Value) -> frozenset[str]:
        reads = [part.access.array for part in walk_value(factor) if isinstance(part, Read)]
        return frozenset(free_variables(factor)).union(*(within.get(n, ()) for n in reads))

    factors = list(_factors(body))
    if len(factors) < 3:
        return None
    every = [indices(factor) for factor, _ in factors]
    widest = _widest([each - bound for each in every])
    summed = [bool(each & bound) for each in every]
    if len(widest) != 2:
        # What does not change in the sum is multiplied with it.
        widest = _widest(
            [each - bound for each, inside in zip(every, summed, strict=True) if inside]
        )
    else:
        summed = [True for _ in factors]
    if len(widest) != 2:
        return None
    found: list[Value] = [ONE, ONE, ONE]
    in_both: list[tuple[Value, bool]] = []
    for (factor, divides), all_, inside in zip(factors, every, summed, strict=True):
        fits = [all_ - bound <= each for each in widest]
        if inside and all(fits):
            in_both.append((factor, divides))
            continue
        own = 2 if not inside else 0 if fits[0] else 1
        found[own] = divide(found[own], factor) if divides else multiply(found[own], factor)
    own = 1 if is_input(found[0]) and not is_input(found[1]) else 0
    for factor, divides in in_both:
        found[own] = divide(found[own], factor) if divides else multiply(found[own], factor)
    return found[0], found[1], found[2]


def _widest(names: list[frozenset[str]]) -> list[frozenset[str]]:
    """Return the sets that are part of no other, in order of appearance."""
    return list(dict.fromkeys(each for each in names if not any(each < other for other in names)))


def _factors(value: Value) -> Iterator[tuple[Value, bool]]:
    """Yield the factors of a product, and whether each divides."""
    match value:
        case Binary("*" | "/" as op, left, right):
            yield from _factors(left)
            for factor, divides in _factors(right):
                yield factor, divides != (op == "/")
        case _:
            yield value, False


def _pair(value: Value) -> Value:
    """Return a value rounded to a bfloat16 and what that lacks, in bfloat16 as well."""
    high = Call("bfloat16", (value,))
    return Binary("+", high, Call("bfloat16", (Binary("-", value, high),)))
