"""Which loops of a nest become programs, and which of those are rows of blocks.

The outermost parallel loops, one directly inside the other, are the grid. A loop of the grid is a
dimension of rows where some sum of products has it in one factor only: its iterations share the
other factor. Without such a sum the innermost loops of the grid are rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from looptrans.blocks.sites import Path
from looptrans.ir.index import variables
from looptrans.ir.program import Assign, If, Loop, Node
from looptrans.ir.value import (
    Access,
    Binary,
    Read,
    Reduce,
    Select,
    Unary,
    Value,
    Whole,
    walk_value,
)
from looptrans.ir.walk import nodes


def grid_of(node: Loop, path: Path) -> tuple[tuple[Loop, ...], Path]:
    """Return the loops of the grid, outermost first, and the place of the innermost."""
    loops = [node]
    while True:
        body = loops[-1].body
        if len(body) != 1 or not isinstance(body[0], Loop):
            break
        inner = body[0]
        if inner.execution != "parallel" or inner.range.step != 1:
            break
        outer = {loop.variable for loop in loops}
        ends = (*variables(inner.range.start), *variables(inner.range.stop))
        if outer & set(ends) or inner.variable in outer:
            break
        loops.append(inner)
        path = (*path, 0)
    return tuple(loops), path


def rows_of(loops: tuple[Loop, ...]) -> tuple[str, ...]:
    """Return the variables of the grid that are rows of blocks, outermost first."""
    grid = [loop.variable for loop in loops]
    body = loops[-1].body
    reads = _reads(body)
    chosen: set[str] = set()
    for over, factors in _sums(body):
        sets = [_depends(factor, reads) for factor in factors]
        inside = [own for own in sets if over in own or over is None]
        for number, own in enumerate(inside):
            others = [other for k, other in enumerate(inside) if k != number]
            if not others:
                continue
            alone = [v for v in grid if v in own and not any(v in other for other in others)]
            if alone:
                chosen.add(alone[-1])
    if not chosen:
        deep = any(isinstance(node, Loop) for node in body) or any(
            isinstance(part, Reduce) for part in _values(body)
        )
        chosen = set(grid[-1:] if deep else grid[-2:])
    return tuple(v for v in grid if v in chosen)[-2:]


def _values(body: tuple[Node, ...]) -> Iterator[Value]:
    for node in nodes(body):
        if isinstance(node, Assign):
            for value in node.values:
                yield from walk_value(value)


def _reads(body: tuple[Node, ...]) -> dict[str, list[Value]]:
    """Return what is assigned to each array."""
    found: dict[str, list[Value]] = {}
    for node in nodes(body):
        if isinstance(node, Assign):
            for number, target in enumerate(node.targets):
                value = node.values[number if len(node.values) > 1 else 0]
                found.setdefault(target.array, []).append(value)
    return found


def _sums(body: tuple[Node, ...]) -> Iterator[tuple[str | None, tuple[Value, ...]]]:
    """Yield products that are summed: the variable, where it is known, and the factors."""
    for part in _values(body):
        if isinstance(part, Reduce) and part.function == "sum":
            yield part.generators[-1].variable, _factors(part.body)
    yield from _folds(body, None)


def _folds(
    body: tuple[Node, ...], loop: str | None
) -> Iterator[tuple[str | None, tuple[Value, ...]]]:
    for node in body:
        if isinstance(node, Loop):
            inner = node.variable if node.execution == "sequential" else loop
            yield from _folds(node.body, inner)
        elif isinstance(node, Assign) and loop is not None:
            for value in node.values:
                for term in _terms(value):
                    yield loop, _factors(term)
        elif isinstance(node, If):
            yield from _folds(node.body, loop)
            yield from _folds(node.orelse, loop)


def _terms(value: Value) -> tuple[Value, ...]:
    match value:
        case Binary("+" | "-", left, right):
            return (*_terms(left), *_terms(right))
        case Select(_, chosen, _):
            return _terms(chosen)
        case _:
            return (value,)


def _factors(value: Value) -> tuple[Value, ...]:
    match value:
        case Binary("*", left, right):
            return (*_factors(left), *_factors(right))
        case Binary("/", left, _):
            return _factors(left)
        case Unary(_, operand):
            return _factors(operand)
        case _:
            return (value,)


def _depends(value: Value, written: dict[str, list[Value]]) -> set[str]:
    """Return the variables a value depends on, through what the body assigns."""
    found: set[str] = set()
    seen: set[str] = set()

    def visit(part: Value) -> None:
        for each in walk_value(part):
            if isinstance(each, Read):
                found.update(_of_access(each.access))
                name = each.access.array
                if name in written and name not in seen:
                    seen.add(name)
                    for assigned in written[name]:
                        visit(assigned)

    visit(value)
    return found


def _of_access(access: Access) -> Iterator[str]:
    for subscript in access.subscripts:
        if not isinstance(subscript, Whole):
            yield from variables(subscript)
