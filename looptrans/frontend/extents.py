"""Sizes that a listing reads off an array: `M, N = A.shape`, `n = len(x)`.

Such a line declares sizes. Where nothing else does, it is taken out of the body and becomes part
of the array's annotation, so that the size is a parameter like any other.
"""

from __future__ import annotations

import ast
from collections import Counter

from looptrans.frontend.syntax import dotted, shape_read


def read_off(
    body: list[ast.stmt], arrays: set[str], declared: dict[str, list[str | None]]
) -> tuple[list[ast.stmt], dict[str, dict[int, str]]]:
    """Split the lines that declare sizes from the rest.

    Args:
        body: The statements of a function.
        arrays: Its arguments.
        declared: For each argument with a shape, the sizes its dimensions are named after.

    Returns:
        The statements that are left, and for each array the sizes of its dimensions.
    """
    counts = Counter(
        node.id
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    found: dict[str, dict[int, str]] = {}
    left: list[ast.stmt] = []
    for statement in (one for each in body for one in _each_apart(each)):
        sizes = _sizes(statement)
        if sizes is None or not all(counts[name] == 1 for _, _, name in sizes if name != "_"):
            left.append(statement)
            continue
        sizes = [(a, d + len(declared.get(a, ())) if d < 0 else d, name) for a, d, name in sizes]
        array = sizes[0][0]
        whole = isinstance(statement, ast.Assign) and not isinstance(statement.targets[0], ast.Name)
        if whole and len(sizes) != len(declared.get(array, sizes)):
            left.append(statement)
            continue
        if all(_agrees(size, arrays, declared, found) for size in sizes):
            for array, dimension, name in sizes:
                known = found.setdefault(array, {})
                if name != "_":
                    known[dimension] = name
                elif array not in declared:
                    known.setdefault(dimension, "_")
        elif whole and array in declared:
            left += _one_by_one(statement, sizes)
        else:
            left.append(statement)
    return left, found


def with_shapes_written(
    body: list[ast.stmt], ranks: dict[str, int], alike: set[str]
) -> list[ast.stmt]:
    """Write the shape of an array that is made like another one: zeros_like(V), zeros(V.shape).

    Args:
        body: The statements of a function.
        ranks: How many dimensions the arguments have.
        alike: Those of real numbers of any type: what is made like others has theirs.
    """
    return [_Shapes(ranks, alike).visit(statement) for statement in body]


class _Shapes(ast.NodeTransformer):
    """Writes `zeros((V.shape[0], V.shape[1]))` for `zeros_like(V)` and for `zeros(V.shape)`."""

    def __init__(self, ranks: dict[str, int], alike: set[str]) -> None:
        self.ranks, self.alike = ranks, alike

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Change a call that makes an array."""
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[like, *rest]):
                plain = name.removesuffix("_like")
                array = dotted(like)
                if isinstance(like, ast.Attribute) and like.attr == "shape" and plain == name:
                    array = dotted(like.value)
                elif plain == name or array not in self.alike:
                    return node
                if plain not in ("zeros", "ones", "empty", "full") or array not in self.ranks:
                    return node
                sizes = ", ".join(f"{array}.shape[{n}]" for n in range(self.ranks[array]))
                shape = ast.parse(f"({sizes},)", mode="eval").body
                for part in ast.walk(shape):
                    ast.copy_location(part, like)
                made = ast.copy_location(ast.Name(plain, ast.Load()), node.func)
                return ast.copy_location(ast.Call(made, [shape, *rest], node.keywords), node)
            case _:
                return node


def _each_apart(statement: ast.stmt) -> list[ast.stmt]:
    """Return `n, m = A.shape[0], B.shape[1]` as two statements, and any other as it is."""
    match statement:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(
            names
        ) == len(values) and all(isinstance(name, ast.Name) for name in names):
            if all((shape_read(value) or (None, None))[1] is not None for value in values):
                return [
                    ast.copy_location(ast.Assign([name], value), statement)
                    for name, value in zip(names, values, strict=True)
                ]
    return [statement]


def _one_by_one(statement: ast.stmt, sizes: list[tuple[str, int, str]]) -> list[ast.stmt]:
    """Return `n, m = A.shape` as `n = A.shape[0]` and `m = A.shape[1]`."""
    assert isinstance(statement, ast.Assign)
    found: list[ast.stmt] = []
    for _, dimension, name in sizes:
        if name != "_":
            value = ast.Subscript(statement.value, ast.Constant(dimension), ast.Load())
            target = ast.Name(name, ast.Store())
            one = ast.Assign([target], ast.copy_location(value, statement.value))
            found.append(ast.fix_missing_locations(ast.copy_location(one, statement)))
    return found


def _agrees(
    size: tuple[str, int, str],
    arrays: set[str],
    declared: dict[str, list[str | None]],
    found: dict[str, dict[int, str]],
) -> bool:
    array, dimension, name = size
    if array not in arrays or name in arrays or dimension < 0:
        return False
    if array in declared:
        known = declared[array]
        return dimension < len(known) and name in ("_", known[dimension])
    return found.get(array, {}).get(dimension, "_") in ("_", name)


def _sizes(statement: ast.stmt) -> list[tuple[str, int, str]] | None:
    """Return (array, dimension, name) for each size a statement declares."""
    match statement:
        case ast.Assign(targets=[ast.Tuple(elts=names) | ast.List(elts=names)], value=value):
            read = shape_read(value)
            plain = all(isinstance(name, ast.Name) for name in names)
            if read is None or read[1] is not None or not plain:
                return None
            return [(read[0], n, dotted(name) or "_") for n, name in enumerate(names)]
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            read = shape_read(value)
            return None if read is None or read[1] is None else [(read[0], read[1], name)]
        case _:
            return None
