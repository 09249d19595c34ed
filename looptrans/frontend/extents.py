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
    for statement in body:
        sizes = _sizes(statement)
        if sizes is None or not all(counts[name] == 1 for _, _, name in sizes if name != "_"):
            left.append(statement)
            continue
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
    if array not in arrays or name in arrays:
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
