"""What nests set and add to: the conditions under which they may move, or run at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.algebra.free import is_overwritten
from looptrans.derivation.joined.nests import Nest, nests_of
from looptrans.derivation.step import NotDone
from looptrans.ir.condition import ALWAYS
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.walk import live_out, nodes, read_in, written_in
from looptrans.transforms.editing.accesses import listed, sites_of


def named(program: Program, *labels: str) -> list[Nest]:
    """Return the nests that statements stand in, each in a nest of its own.

    Raises:
        NotDone: There is no such statement in a nest, or two stand in one.
    """
    found = []
    for label in labels:
        nest = next((n for n in nests_of(program) if _has(n, label)), None)
        if nest is None:
            raise NotDone(f"there is no nest with a statement {label}", "illegal")
        found.append(nest)
    if len({nest.position for nest in found}) != len(found):
        raise NotDone(f"{listed(labels)} stand in one nest", "illegal")
    return found


def _has(nest: Nest, label: str) -> bool:
    return any(isinstance(n, Assign | If) and n.label == label for n in nodes(nest.way[:1]))


def gathered(program: Program, nest: Nest) -> tuple[str, ...]:
    """Return the arrays a nest writes that are no scalars of its own, in order."""
    written = written_in(nest.way[:1])
    outside = set(live_out(program))
    return tuple(
        array.name
        for array in program.arrays
        if array.name in written and (array.rank or array.name in outside)
    )


def require_apart(program: Program, nest: Nest, other: Nest) -> None:
    """Require that a nest may as well run just where another one does.

    Nothing from there to here, the other nest included, may touch what it writes, or write what it
    reads.

    Raises:
        NotDone: Something does.
    """
    reads, writes = read_in(nest.way[:1]), written_in(nest.way[:1])
    ends = sorted((nest.position, other.position))
    for number in range(ends[0], ends[1] + 1):
        if number == nest.position:
            continue
        node = program.body[number]
        needed = written_in((node,)) & (reads | writes)
        needed |= read_in((node,)) & writes
        if needed:
            names = listed(sorted(needed))
            raise NotDone(
                f"{nest.label} cannot move to {other.label}, which needs {names} in order"
            )


def require_sums(program: Program, nest: Nest) -> None:
    """Require that a nest sets scalars of its own and adds to arrays, and does nothing else.

    Its iterations may then run in any order, and add up the same.

    Raises:
        NotDone: It does something else.
    """
    scalars = nest.scalars
    outside = set(live_out(program))
    arrays = gathered(program, nest)
    for name in sorted(written_in(nest.way[:1]) - set(arrays)):
        if name not in scalars:
            raise NotDone(f"{name} is not set once in each iteration, for that iteration only")
    for name in scalars:
        sites = sites_of(program, name)
        writes = [s for s in sites if s.relation.is_write]
        own = all(nest.position == s.place.position[0] for s in sites)
        if not own or len(writes) != 1 or name in outside:
            raise NotDone(f"{name} is not set once in each iteration, for that iteration only")
        if not all(s is writes[0] or is_overwritten(s, writes[0]) for s in sites):
            raise NotDone(f"{name} is read before it is set")
    for array in arrays:
        for site in sites_of(program, array):
            if site.place.position[0] == nest.position and not _adds(site.place.node, array):
                raise NotDone(f"{site.place.label} does something with {array} but add to it")
    for node in nodes(nest.way[:1]):
        if not isinstance(node, Loop | If | Assign):
            raise NotDone("a nest that is scheduled already stays as it is")


def _adds(node: Node, array: str) -> bool:
    """Tell whether a statement is a plain `array[…] = array[…] + …`."""
    if not isinstance(node, Assign) or len(node.targets) != 1 or node.targets[0].array != array:
        return False
    found = accumulation(node.targets[0], node.values[0])
    return found is not None and found[0] == "sum" and found[2] == ALWAYS


def put(way: Sequence[Loop | If], block: tuple[Node, ...]) -> Node:
    """Return loops and guards with another block inside."""
    node: Node | None = None
    for each in reversed(way):
        node = replace(each, body=block if node is None else (node,))
    assert node is not None
    return node
