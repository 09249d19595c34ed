"""Passes over one range that do not stand side by side as loops, and could.

m = max(x[i, j] for j in …)         m = -inf
l = sum(exp(x[i, j] - m) …)    ->   for j: m = max(m, x[i, j])
                                    l = 0.0
                                    for j: l = l + exp(x[i, j] - m)

for d: a = 0.0                      for d: a[d] = 0.0
       for j: a += …           ->   for j: for d: a[d] += …
       O[i, d] = a / l              for d: O[i, d] = a[d] / l
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from looptrans.adjoint.written.wide import is_of_no_product, is_wide_sum
from looptrans.derivation.joined.apart import handed
from looptrans.derivation.one_loop.writing import Writer, done
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.frontend.elements import element_of
from looptrans.ir.condition import ALWAYS
from looptrans.ir.monoids import OF_NOTHING
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced_part
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Const,
    Range,
    Read,
    Reduce,
    Select,
    Value,
    arrays_read,
    free_variables,
    has_reduction,
    value_children,
    walk_value,
)
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import placed, read_in, reductions_in, written_in
from looptrans.transforms.editing.tree import Position, block_at, node_at, replace_at, statements_in

NAMES = {"sum": "sum", "max": "maximum", "min": "minimum"}


@dataclass(frozen=True, slots=True)
class Passes:
    """Passes of one block over one range.

    Attributes:
        sums: The statements that sum over the range, in the block or directly in a loop of it.
        inside: A statement in each pass that stands in a loop of the block, of another range.
    """

    sums: tuple[str, ...]
    inside: tuple[str, ...]


def passes(program: Program, free: Collection[Position]) -> Iterator[Passes]:
    """Yield the passes that could stand side by side with others, as loops.

    Args:
        program: The program.
        free: The positions of the loops that carry nothing, nor do those around them.
    """
    for position in free:
        block = block_at(program, (*position, 0))
        for wanted in dict.fromkeys(_ranges(block)):
            alike = [n for n in block if isinstance(n, Loop) and n.range == wanted]
            sums = [n.label for n in block if isinstance(n, Assign) and _sums_over(n, wanted)]
            inside: list[str] = []
            for number, node in enumerate(block):
                # An outermost loop is what programs share out: nothing is brought out of it.
                waits = bool(read_in((node,)) & written_in(block[:number]))
                if not (position and waits and (*position, number) in free):
                    continue
                if isinstance(node, Loop):
                    own = [n for n in node.body if _is_pass(n, wanted, node.variable)]
                    sums += [n.label for n in own if isinstance(n, Assign)]
                    inside += [statements_in((n,))[0] for n in own]
            if (sums or inside) and len(alike) + len({*sums, *inside}) > 1:
                yield Passes(tuple(dict.fromkeys(sums)), tuple(inside))


def _ranges(block: tuple[Node, ...]) -> Iterator[Range]:
    for node in block:
        if isinstance(node, Loop):
            yield node.range
        elif isinstance(node, Assign):
            found = _sum_of(node)
            if found is not None:
                yield found.generators[0].range


def _sum_of(node: Assign) -> Reduce | None:
    if len(node.values) != 1 or len(node.targets) != 1:
        return None
    return next(_always(node.values[0]), None)


def _always(value: Value) -> Iterator[Reduce]:
    """Yield the sums that a value works out whatever its conditions say."""
    if isinstance(value, Reduce):
        yield value
    elif not isinstance(value, Select):
        for child in value_children(value):
            yield from _always(child)


def _sums_over(node: Node, wanted: Range) -> bool:
    found = _sum_of(node) if isinstance(node, Assign) else None
    return found is not None and found.generators[0].range == wanted


def _is_pass(node: Node, wanted: Range, outer: str) -> bool:
    if outer in wanted.variables:
        return False
    return _sums_over(node, wanted) or (isinstance(node, Loop) and node.range == wanted)


def sums_of_sums(program: Program) -> Iterator[str]:
    """Yield the statements whose values are sums of several variables that are no one product.

    As a loop over the first variable, each of its iterations has matrix products of its own:

        g = sum(exp(c[i, h] - c[j, h]) * dY[i, h, p] * X[j, h, p] for h in … for p in …)

    Args:
        program: The program.
    """
    for place in placed(program):
        if not isinstance(place.node, Assign):
            continue
        found = _sum_of(place.node)
        if found is None or found.function != "sum" or found != place.node.values[0]:
            continue
        several = len(found.generators) > 1 or has_reduction(found.body)
        if several and any(isinstance(part, Call) for part in walk_value(found.body)):
            yield place.label


def wide_sums(program: Program) -> Iterator[str]:
    """Yield the statements that sum products over more than a block is to hold.

    As a loop it goes over blocks of them, while the block of sums stays where it is:

        S = sum(x[t, f] * W[v, f] for f in range(0, F))        F > 512

    Args:
        program: The program.
    """
    for place in placed(program):
        found = _sum_of(place.node) if isinstance(place.node, Assign) else None
        around = [loop.variable for loop in place.loops]
        if found is not None and is_wide_sum(program, found):
            used = set(free_variables(found))
            # Inside a loop that it does not hang on, each iteration would go over the blocks.
            first = next((n for n, variable in enumerate(around) if variable in used), 0)
            if used.issuperset(around[first:]):
                yield place.label


def count_of_costly_sums(program: Program) -> int:
    """Return how many sums are written that go over more than a block, or make no product."""
    return sum(
        is_wide_sum(program, each) or is_of_no_product(each) for each in reductions_in(program.body)
    )


def count_of_sums(program: Program) -> int:
    """Return how many sums, maxima and minima are written."""
    return sum(1 for _ in reductions_in(program.body))


def sum_as_loop(program: Program, label: str) -> DerivationStep:
    """Write a sum, maximum or minimum of a statement as a loop.

    Args:
        program: The program.
        label: The statement.

    Raises:
        NotDone: It has none, or one of integers that has nothing to begin with.
    """
    place = next((p for p in placed(program) if p.label == label), None)
    node = place.node if place is not None else None
    found = _sum_of(node) if isinstance(node, Assign) else None
    if place is None or not isinstance(node, Assign) or found is None:
        raise NotDone(f"{label} sums over nothing")
    generator, *others = found.generators
    body = replace(found, generators=tuple(others)) if others else found.body
    start = Const(OF_NOTHING[found.function])
    elements = {a.name: a.element for a in program.arrays}
    kind = element_of(found, elements)
    if kind != "float":
        if found.function != "sum":
            raise NotDone(f"{label} has no integer to begin with")
        start = Const(0)
    writer = Writer(program)
    cell = node.targets[0]
    read = arrays_read(found)
    behind: tuple[Node, ...] = ()
    # An array of integers rounds once, and not at every term.
    rounds = elements[cell.array] == "int" and kind == "float"
    if node.values[0] != found or cell.array in read or rounds:
        cell = Access(writer.array(f"{cell.array.replace('.', '_')}_{found.function}"), ())
        value = replaced_part(node.values[0], found, Read(cell))
        behind = (writer.assign(node.targets[0], value),)
    joined: Value = Call(found.function, (Read(cell), body))
    if found.function == "sum":
        joined = Binary("+", Read(cell), body)
    update: Node = replace(node, targets=(cell,), values=(joined,), augmented=False)
    if generator.condition != ALWAYS:
        update = If(generator.condition, (update,))
    loop = Loop(generator.variable, generator.range, (update,))
    nodes = (writer.assign(cell, start), loop, *behind)
    after = done(replace_at(writer.program, place.position, nodes))
    law = f"a {NAMES[found.function]} is what a loop joins, one term after the other"
    return DerivationStep(
        f"write the {NAMES[found.function]} of {label} as a loop",
        "sum as a loop",
        (label,),
        program,
        after,
        (Certificate("order", law, "legal", "that is what it means"),),
    )


def brought_out(program: Program, label: str) -> tuple[str, ...]:
    """Return the transformations that bring a pass out of the loop it stands directly in.

    Args:
        program: The program.
        label: A statement of the pass.
    """
    place = next(p for p in placed(program) if p.label == label)
    for depth in reversed(range(1, len(place.loops))):
        outer, inner = place.loops[depth - 1], place.loops[depth]
        position = place.loop_positions[depth - 1]
        if place.loop_positions[depth][:-1] != position:
            continue
        node = node_at(program, position)
        assert isinstance(node, Loop)
        at = place.loop_positions[depth][-1]
        pieces = [p for p in (node.body[:at], node.body[at : at + 1], node.body[at + 1 :]) if p]
        name, own = f"{outer.variable}@{label}", f"{inner.variable}@{label}"
        made = [f"expand({x}, {name})" for x in handed(program, pieces)]
        cuts = [statements_in(piece)[0] for piece in pieces[1:]]
        if cuts:
            made.append(f"distribute({name}, {', '.join(cuts)})")
        return (*made, f"interchange({name}, {own})")
    return ()
