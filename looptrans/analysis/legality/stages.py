"""The stages of a program that a step changes, as a pair of programs of their own.

    P; A; Q   ->   P; B; Q      is right where      A   ->   B      is right

for all that memory may hold: what P or Q touches comes from outside A and B, and is seen
afterwards. That a step is right there says it of the whole; that it is not says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from looptrans.analysis.legality.one_iteration import from_outside
from looptrans.ir.creation import creation_of
from looptrans.ir.index import Index, lets
from looptrans.ir.program import (
    Array,
    Assign,
    Atomic,
    Barrier,
    BlockReduce,
    Declaration,
    Loop,
    Node,
    Program,
)
from looptrans.ir.rewrite import indices_changed
from looptrans.ir.step import Images, same_names
from looptrans.ir.value import Create
from looptrans.ir.walk import nodes, placed, touched, written_in

Body = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Stages:
    """What a step changes of a program.

    Attributes:
        before: The stages that the step changes.
        after: What it makes of them.
        images: What stands for what in these.
    """

    before: Program
    after: Program
    images: Images


def changed_stages(before: Program, after: Program, images: Images) -> Stages | None:
    """Return what lies between the first and the last stage that changes; None if that is all.

    Args:
        before: The program before a step.
        after: The program afterwards.
        images: What stands for what.
    """
    one, other = _stages(before), _stages(after)
    first = _alike(one, other)
    last = _alike(one[first:][::-1], other[first:][::-1])
    outside = (*one[:first], *one[len(one) - last :])
    inside = one[first : len(one) - last], other[first : len(other) - last]
    if not outside or not all(inside) or not all(map(_is_in_turn, nodes(outside))):
        return None
    if any(map(_creates, nodes((*inside[0], *inside[1])))):
        return None
    if before.contracts != after.contracts or before.outputs != after.outputs:
        return None
    if set(_lets((*inside[0], *inside[1]))) & written_in(outside):
        return None
    seen = touched(outside) | set(_lets(outside)) | set(before.outputs)
    seen |= {array.name for array in (*before.arrays, *after.arrays) if array.role == "input"}
    if any(_first(before, name) != _first(after, name) for name in seen):
        return None
    own = _images(before, after, images, outside, inside)
    if own is None:
        return None
    return Stages(_alone(before, inside[0], seen), _alone(after, inside[1], seen), own)


def _stages(program: Program) -> Body:
    """Return what stands one after the other; where arrays are declared says nothing."""
    return tuple(node for node in program.body if not isinstance(node, Declaration))


def _alike(one: Sequence[Node], other: Sequence[Node]) -> int:
    """Return how many stages of two programs are the same, from the first on."""
    unlike = (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(unlike, min(len(one), len(other)))


def _is_in_turn(node: Node) -> bool:
    """Tell whether a node leaves nothing to chance, so that no race is to be told of it."""
    if isinstance(node, Loop):
        return node.execution == "sequential"
    return not isinstance(node, Atomic | BlockReduce | Barrier)


def _creates(node: Node) -> bool:
    """Tell whether a node begins an array anew."""
    if isinstance(node, Assign):
        return any(isinstance(value, Create) for value in node.values)
    return isinstance(node, Declaration)


def _lets(body: Body) -> Iterator[str]:
    """Yield the integer scalars that the index expressions of a block read."""
    found: list[Index] = []

    def noted(index: Index) -> Index:
        found.append(index)
        return index

    indices_changed(body, noted)
    for index in found:
        for let in lets(index):
            yield let.name


def _first(program: Program, name: str) -> tuple[Array, Create | None] | None:
    """Return what an array is before a program runs; None where it has no such array."""
    array = next((each for each in program.arrays if each.name == name), None)
    return None if array is None else (array, creation_of(program, name))


def _images(
    before: Program, after: Program, images: Images, outside: Body, inside: tuple[Body, Body]
) -> Images | None:
    """Return what stands for what in the stages; None where it is not only among these."""
    same = same_names(before, after)
    if any(images.get(label) != same[label] for label in _labels(before, outside)):
        return None
    known = set(_labels(before, inside[0]))
    own = {label: images[label] for label in _labels(after, inside[1]) if label in images}
    return own if all(image.statement in known for image in own.values()) else None


def _labels(program: Program, body: Body) -> Iterator[str]:
    return (place.label for place in placed(replace(program, body=body)))


def _alone(program: Program, body: Body, seen: set[str]) -> Program:
    """Return a program of some of the stages; what nothing else touches is theirs as it is."""
    declared = tuple(
        node for node in program.body if isinstance(node, Declaration) and node.array not in seen
    )
    arrays = tuple(from_outside(a) if a.name in seen else a for a in program.arrays)
    return replace(program, arrays=arrays, outputs=(), body=(*declared, *body))
