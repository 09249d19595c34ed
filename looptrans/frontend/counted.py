"""Loops in steps of a size as loops over how many steps there are.

    for j0 in range(0, N, BLOCK):
        for j in range(j0, min(j0 + BLOCK, N)): …
            ->
    assert BLOCK >= 1
    for j0 in range((N + BLOCK - 1) // BLOCK):
        for j in range(j0 * BLOCK, min(j0 * BLOCK + BLOCK, N)): …

The syntax is rewritten before anything else reads it. A step that is an expression, or a name that
the text sets, stays, and is refused where ranges are read if it is no constant.
"""

from __future__ import annotations

import ast
from copy import deepcopy

from looptrans.frontend.syntax import called, dotted, preorder, stored_names


def count_blocks(body: list[ast.stmt]) -> list[ast.Assert]:
    """Let loops and sums in steps of a size count blocks, in place; return what that requires."""
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
        if variable in stored_names(inside):
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
    return [_at_least_1(size) for size in steps.values()]


def _at_least_1(size: ast.expr) -> ast.Assert:
    test = _located(ast.Compare(size, [ast.GtE()], [ast.Constant(1)]), size)
    return ast.copy_location(ast.Assert(test), size)


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
