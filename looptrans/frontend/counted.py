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

from looptrans.frontend.syntax import called, dotted, preorder, stored_names


def with_blocks_counted(body: list[ast.stmt]) -> tuple[list[ast.stmt], list[ast.Assert]]:
    """Return statements in which no loop or sum has a step that is a size, and what they require.

    Args:
        body: The statements; they are changed in place.
    """
    stored = stored_names(body)
    steps: dict[str, ast.expr] = {}

    def counted(target: ast.expr, node: ast.expr, inside: list[ast.AST]) -> _Put | None:
        """Let a range count blocks; return what its variable is then, where anything changes."""
        match target, node:
            case ast.Name(variable), ast.Call(args=[start, stop, step], keywords=[]) as bounds:
                name = dotted(step)
            case _:
                return None
        if called(bounds.func) not in ("range", "parallel") or name is None or name in stored:
            return None
        if any(_binds(each, variable) for each in inside):
            return None
        steps.setdefault(name, step)
        is_from_0 = isinstance(start, ast.Constant) and start.value == 0
        length = stop if is_from_0 else ast.BinOp(stop, ast.Sub(), start)
        up = ast.BinOp(ast.BinOp(length, ast.Add(), step), ast.Sub(), ast.Constant(1))
        bounds.args = [_located(ast.BinOp(up, ast.FloorDiv(), step), bounds)]
        at: ast.expr = ast.BinOp(ast.Name(variable, ast.Load()), ast.Mult(), step)
        return _Put(variable, at if is_from_0 else ast.BinOp(start, ast.Add(), at))

    for node in preorder(*body):
        match node:
            case ast.For():
                put = counted(node.target, node.iter, [*node.body])
                if put is not None:
                    node.body = [put.visit(statement) for statement in node.body]
            case ast.GeneratorExp() | ast.ListComp():
                for number, each in enumerate(node.generators):
                    later = node.generators[number + 1 :]
                    put = counted(each.target, each.iter, [node.elt, *each.ifs, *later])
                    if put is not None:
                        node.elt = put.visit(node.elt)
                        each.ifs = [put.visit(test) for test in each.ifs]
                        for other in later:
                            put.visit(other)
    required = [
        ast.copy_location(ast.Assert(_located(_at_least_1(size), size)), size)
        for size in steps.values()
    ]
    return body, required


def _binds(node: ast.AST, variable: str) -> bool:
    return any(
        isinstance(each, ast.Name) and each.id == variable and isinstance(each.ctx, ast.Store)
        for each in preorder(node)
    )


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
