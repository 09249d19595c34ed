"""The names that loops make private: how they are written, and that nothing else uses them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from looptrans.frontend.appearance import names_at
from looptrans.frontend.mistakes import BadPrivate
from looptrans.frontend.names import Names
from looptrans.frontend.syntax import PRIVATE, dotted, elements_of, private_line, short, span_of
from looptrans.ir.program import Declaration, Loop, Node, Program
from looptrans.ir.source import Span
from looptrans.ir.walk import inner_bodies, loops


def is_private_line(statement: ast.stmt, names: Names) -> bool:
    """Tell whether a statement is `private: x`.

    In a listing with an array or a number called `private` it may also be an annotation without
    effect, as in `private: float`; it is not where it names an array or scalar.
    """
    annotation = private_line(statement)
    if annotation is None:
        return False
    return not names.is_bound(PRIVATE) or any(
        dotted(element) in names.arrays for element in elements_of(annotation)
    )


def is_private_with_value(statement: ast.AnnAssign, names: Names) -> bool:
    """Tell whether a statement is `private: x = 1`, where x is an array or scalar."""
    return statement.value is not None and is_private_line(
        ast.AnnAssign(statement.target, statement.annotation, None, 1), names
    )


def private_names(annotation: ast.expr, names: Names) -> tuple[dict[str, Span], list[BadPrivate]]:
    """Read what stands after `private:`.

    Returns:
        The names with their places, and what is wrong with others.
    """
    found: dict[str, Span] = {}
    mistakes: list[BadPrivate] = []
    elements = elements_of(annotation)
    if not elements:
        mistakes.append(
            BadPrivate(
                "private: names nothing",
                span_of(annotation),
                why="it lists what each iteration has for itself",
                remedy="write private: x or private: (x, y), or leave it out",
            )
        )
    for element in elements:
        name = dotted(element)
        mistake = _wrong(name, element, names, found)
        if mistake is not None:
            mistakes.append(mistake)
        elif name is not None:
            found[name] = span_of(element)
    return found, mistakes


def _wrong(
    name: str | None, node: ast.expr, names: Names, before: Mapping[str, Span]
) -> BadPrivate | None:
    span = span_of(node)
    if name is None:
        return BadPrivate(
            f"{short(node)} is no name",
            span,
            why="a whole array or scalar is private, or none of it",
            remedy="write private: x or private: (x, y)",
        )
    if name in before:
        return BadPrivate(
            f"{name!r} is named twice",
            span,
            why="it is private already",
            remedy="name it once",
        )
    if name in names.loop_variables and name not in names.arrays:
        return BadPrivate(
            f"{name!r} is a loop variable",
            span,
            why="each iteration has its own value of it as it is",
            remedy=f"leave {name} out of private:",
        )
    if name in names.parameters:
        return BadPrivate(
            f"{name!r} is a parameter",
            span,
            why="nothing writes it, so all iterations can share it",
            remedy=f"leave {name} out of private:",
        )
    if name not in names.arrays:
        return BadPrivate(
            f"{name!r} is no array or scalar of the listing",
            span,
            why="nothing in the listing sets it",
            remedy=f"leave {name} out of private:, or check how it is written",
        )
    if names.arrays[name].role == "input" or "." in name:
        return BadPrivate(
            f"{name!r} comes from outside",
            span,
            why="a private copy starts without a value and ends with its iteration, and the caller "
            "would see neither",
            remedy=f"make a local name private, and load it from or store it to {name} in the loop",
        )
    return None


def used_outside(program: Program, places: Mapping[str, Span]) -> Iterator[BadPrivate]:
    """Find private names that are returned, or used outside the loops that make them private.

    Args:
        program: The program.
        places: Where each name is made private first.
    """
    for name in program.outputs:
        if name in places:
            yield BadPrivate(
                f"{name!r} is private, and is returned",
                places[name],
                why="a private copy ends with its iteration, so there is no value to return",
                remedy="return another array, and store into that in the loop",
            )
    first: dict[str, Span] = {}
    for name, span in _outside(program.body, frozenset(places)) if places else ():
        first.setdefault(name, span)
    for name, span in first.items():
        loop = next(loop for loop in loops(program) if name in loop.private)
        yield BadPrivate(
            f"{name!r} is private to the iterations of the loop {loop.variable} on line "
            f"{places[name].line}, and is used outside it",
            span,
            why="a private copy starts without a value and ends with its iteration",
            remedy=f"use another name here, or leave {name} out of private:",
        )


def _outside(body: tuple[Node, ...], watched: frozenset[str]) -> Iterator[tuple[str, Span]]:
    """Yield the watched names that are used, where no loop around makes them private."""
    for node in body:
        used = names_at(node) & watched
        if isinstance(node, Declaration):
            used -= {node.array}
        for name in sorted(used):
            yield name, node.span
        inside = watched.difference(node.private) if isinstance(node, Loop) else watched
        for inner in inner_bodies(node):
            yield from _outside(inner, inside)
