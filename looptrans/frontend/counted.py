"""Loops in steps of a size as loops over how many steps there are.

    for j0 in range(0, N, BLOCK):
        for j in range(j0, min(j0 + BLOCK, N)): …
            ->
    assert BLOCK >= 1
    for j0 in range((N + BLOCK - 1) // BLOCK):
        for j in range(j0 * BLOCK, min(j0 * BLOCK + BLOCK, N)): …

The syntax is rewritten before anything else reads it. A step that may be negative, or is none of
the sizes that are given, stays, and is refused where ranges are read.
"""

from __future__ import annotations

import ast
from copy import deepcopy

from looptrans.frontend.syntax import called, preorder, stored_names


def with_blocks_counted(
    body: list[ast.stmt], given: set[str]
) -> tuple[list[ast.stmt], list[ast.Assert]]:
    """Return statements in which no loop has a step that is a size, and what they require.

    Args:
        body: The statements; they are changed in place.
        given: The arguments, any of which may be a size; empty where the text has no function.
    """
    stored = stored_names(body)
    steps: dict[str, ast.expr] = {}

    def counted(loop: ast.For) -> None:
        match loop:
            case ast.For(
                target=ast.Name(variable),
                iter=ast.Call(args=[start, stop, ast.Name(step) as size], keywords=[]) as bounds,
            ) if called(bounds.func) in ("range", "parallel"):
                is_size = step not in stored and (not given or step in given)
                if not is_size or variable in stored_names(loop.body):
                    return
            case _:
                return
        steps.setdefault(step, size)
        is_from_0 = isinstance(start, ast.Constant) and start.value == 0
        length = stop if is_from_0 else ast.BinOp(stop, ast.Sub(), start)
        up = ast.BinOp(ast.BinOp(length, ast.Add(), size), ast.Sub(), ast.Constant(1))
        count = ast.BinOp(up, ast.FloorDiv(), size)
        at: ast.expr = ast.BinOp(ast.Name(variable, ast.Load()), ast.Mult(), size)
        at = at if is_from_0 else ast.BinOp(start, ast.Add(), at)
        bounds.args = [_located(count, bounds)]
        put = _Put(variable, at)
        loop.body = [put.visit(statement) for statement in loop.body]

    for node in preorder(*body):
        if isinstance(node, ast.For):
            counted(node)
    required = [
        ast.copy_location(ast.Assert(_located(_at_least_1(size), size)), size)
        for size in steps.values()
    ]
    return body, required


def _at_least_1(size: ast.expr) -> ast.expr:
    return ast.Compare(size, [ast.GtE()], [ast.Constant(1)])


class _Put(ast.NodeTransformer):
    """Puts an expression in for a name."""

    def __init__(self, name: str, value: ast.expr) -> None:
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return what stands for a name."""
        return _located(self.value, node) if node.id == self.name else node


def _located(made: ast.expr, place: ast.expr) -> ast.expr:
    """Return a copy of what was made, all of it where something else stands in the text."""
    found = deepcopy(made)
    for node in ast.walk(found):
        ast.copy_location(node, place)
    return found
