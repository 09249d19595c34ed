"""Finding the way in the tree of a Program, and editing it; nothing here is changed in place.

A *position* is the way to a node, a number for each level, as in `looptrans.ir.walk.Placed`: which
child of the program, which child of that, and so on; below a guard a 1 leads into its body, a 2
into its `else`, and a 0 means the guard's condition.

    for i: ─────────── (0,)
        S1 ─────────── (0, 0)
        if c: ──────── (0, 1)
            S2 ─────── (0, 1, 1, 0)
        else:
            S3 ─────── (0, 1, 2, 0)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from looptrans.ir.program import Assign, Atomic, BlockReduce, If, Loop, Node, Program
from looptrans.ir.value import Range
from looptrans.ir.walk import Placed, inner_bodies, nodes, placed
from looptrans.transforms.editing.errors import AmbiguousLoop, NoSuchLoop, NoSuchStatement

Position: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LoopPath:
    """A loop and where it stands."""

    loop: Loop
    position: Position

    @property
    def variable(self) -> str:
        """The loop's variable."""
        return self.loop.variable


def loop_paths(program: Program) -> tuple[LoopPath, ...]:
    """Return every loop in textual order."""
    return tuple(
        LoopPath(node, position)
        for position, node in walk_positions(program.body)
        if isinstance(node, Loop)
    )


def walk_positions(
    body: tuple[Node, ...], position: Position = ()
) -> Iterator[tuple[Position, Node]]:
    """Yield every node of a block with its position, in textual order, outer ones first.

    Args:
        body: The block.
        position: The way to the block; it ends in 1 or 2 for a block of a guard.
    """
    for number, node in enumerate(body):
        here = (*position, number)
        yield here, node
        if isinstance(node, If):
            yield from walk_positions(node.body, (*here, 1))
            yield from walk_positions(node.orelse, (*here, 2))
        else:
            for inner in inner_bodies(node):
                yield from walk_positions(inner, here)


def find_loop(program: Program, name: str) -> LoopPath:
    """Find the loop that an argument names.

    Args:
        program: The program.
        name: `j`; `j@12` for the one on line 12; `j@S7` for the one around statement S7.

    Raises:
        NoSuchLoop: There is none.
        AmbiguousLoop: There are several; the message lists them.
        NoSuchStatement: There is no statement S7.
    """
    variable, _, where = name.partition("@")
    everyone = loop_paths(program)
    named = [path for path in everyone if path.variable == variable]
    found = [path for path in named if _stands_at(program, path, where)] if where else named
    if len(found) == 1:
        return found[0]
    choices = ", ".join(loop_name(program, path.position) for path in (found or named or everyone))
    if found:
        raise AmbiguousLoop(
            f"{len(found)} loops are called {name}",
            found[0].loop.span,
            why="the transformation is about one of them",
            remedy=f"say which: {choices}",
        )
    if named and where:
        place = f"on line {where}" if where.isdigit() else f"around {where}"
        raise NoSuchLoop(
            f"there is no {variable} loop {place}",
            named[0].loop.span,
            why=f"the {variable} loops are {choices}" if len(named) > 1 else "",
            remedy=f"say {choices}" if len(named) == 1 else "name one of these",
        )
    raise NoSuchLoop(
        f"there is no loop {name}",
        None,
        why=f"the loops are {choices}" if everyone else "there are no loops at all",
        remedy="name a loop by its variable, j, by j@LINE, or by a statement in it, j@S7",
    )


def _stands_at(program: Program, path: LoopPath, where: str) -> bool:
    if where.isdigit():
        return path.loop.span.line == int(where)
    return path.position in find_statement(program, where).loop_positions


def loop_name(program: Program, position: Position) -> str:
    """Return the name by which `find_loop` finds a loop: `j`, or `j@12` or `j@S7` if it must."""
    mine = node_at(program, position)
    assert isinstance(mine, Loop)
    same = [path for path in loop_paths(program) if path.variable == mine.variable]
    if len(same) == 1:
        return mine.variable
    line = mine.span.line
    if line and sum(path.loop.span.line == line for path in same) == 1:
        return f"{mine.variable}@{line}"
    labels = statements_in((mine,))
    return f"{mine.variable}@{labels[0] if labels else line}"


def find_statement(program: Program, label: str) -> Placed:
    """Find the statement, or the data-dependent condition, with a label.

    Raises:
        NoSuchStatement: There is none.
    """
    places = placed(program)
    for place in places:
        if place.label == label:
            return place
    raise NoSuchStatement(
        f"there is no statement {label}",
        None,
        why=f"the statements are {', '.join(place.label for place in places)}",
        remedy="looptrans show prints the labels",
    )


def statements_in(body: tuple[Node, ...]) -> tuple[str, ...]:
    """Return the labels of a block's statements and data-dependent conditions, in textual order."""
    return tuple(
        node.label
        for node in nodes(body)
        if isinstance(node, Assign | If) and node.label is not None
    )


# Positions


def in_loops(loops: Iterable[tuple[str, Range]], *body: Node) -> tuple[Node, ...]:
    """Return a body in loops, each a variable and its range, the outermost first."""
    for name, bounds in reversed([*loops]):
        body = (Loop(name, bounds, body),)
    return body


def node_at(program: Program, position: Position) -> Node:
    """Return the node at a position."""
    return node_in(program.body, position)


def node_in(body: tuple[Node, ...], position: Position) -> Node:
    """Return the node at a position in a block."""
    block, number, _ = _way(body, position)
    return block[number]


def block_at(program: Program, position: Position) -> tuple[Node, ...]:
    """Return the block that the node at a position is one of: the node and its siblings."""
    return _way(program.body, position)[0]


def blocks_of(program: Program) -> list[tuple[Position, tuple[Node, ...]]]:
    """Return every block of a program, outer ones first."""
    found: list[tuple[Position, tuple[Node, ...]]] = [((), program.body)]
    for position, _ in walk_positions(program.body):
        if position[-1] == 0 and len(position) > 1:
            found.append((position, block_at(program, position)))
    return found


def ranges_around(program: Program, position: Position) -> dict[str, Range]:
    """Return the ranges of the loops around the node at a position, by their variables."""
    return {path.variable: path.loop.range for path in loops_around(program, position)}


def loops_around(program: Program, position: Position) -> tuple[LoopPath, ...]:
    """Return the loops around the node at a position, outermost first, without the node itself."""
    found = []
    for length in range(1, len(position)):
        above = position[:length]
        if is_node(program, above):
            node = node_at(program, above)
            if isinstance(node, Loop):
                found.append(LoopPath(node, above))
    return tuple(found)


def is_node(program: Program, position: Position) -> bool:
    """Tell whether a position leads to a node, and not to the body or `else` of a guard."""
    return _way(program.body, position)[2]


def _way(body: tuple[Node, ...], position: Position) -> tuple[tuple[Node, ...], int, bool]:
    """Return the block and number a position leads to, and whether it ends at that very node."""
    number, *rest = position
    node = body[number]
    if not rest:
        return body, number, True
    if not isinstance(node, If):
        return _way(inner_bodies(node)[0], tuple(rest))
    branch, *below = rest
    if branch == 0 or not below:
        return body, number, branch == 0
    return _way(node.body if branch == 1 else node.orelse, tuple(below))


def replace_at(program: Program, position: Position, new: tuple[Node, ...]) -> Program:
    """Return the program with the node at a position replaced by zero or more nodes.

    Positions of what stands before it in the text stay what they are.
    """
    return replace(program, body=_replaced(program.body, position, new))


def _replaced(
    body: tuple[Node, ...], position: Position, new: tuple[Node, ...]
) -> tuple[Node, ...]:
    number, *rest = position
    node = body[number]
    if not rest or (isinstance(node, If) and rest[0] == 0):
        return (*body[:number], *new, *body[number + 1 :])
    changed: Node
    match node:
        case If() if rest[0] == 1:
            changed = replace(node, body=_replaced(node.body, tuple(rest[1:]), new))
        case If():
            changed = replace(node, orelse=_replaced(node.orelse, tuple(rest[1:]), new))
        case Loop() | Atomic() | BlockReduce():
            changed = replace(node, body=_replaced(node.body, tuple(rest), new))
        case _:
            raise AssertionError(f"there is nothing inside {node}")
    return (*body[:number], changed, *body[number + 1 :])
