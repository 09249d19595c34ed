"""`continue` as the guard it is: what follows it runs where it is not reached.

    if j > i:                     if not j > i:
        continue            ->        s = s + x[j]
    s = s + x[j]

So is a `break` that stands first in a loop, under a test that no later iteration takes back: j goes
up, and i stays what it is.

The syntax is rewritten before anything else reads it, so that the rest of the frontend sees loops,
guards and assignments only. A `continue` that this cannot take out stays, and is refused there.
"""

from __future__ import annotations

import ast

from looptrans.frontend.syntax import stored_names

# The comparisons that stay true once they are, by which way the left side goes beside the right.
_FOR_GOOD: dict[int, tuple[type[ast.cmpop], ...]] = {1: (ast.Gt, ast.GtE), -1: (ast.Lt, ast.LtE)}


def without_continue(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return statements in which no loop skips the rest of its body by `continue`.

    The order of the text is kept, and nothing is written twice: a `continue` is taken out where
    it ends the body of its loop, or a branch of an `if` there.
    """
    return [_loops_rewritten(statement) for statement in body]


def _loops_rewritten(statement: ast.stmt) -> ast.stmt:
    for name in ("body", "orelse"):
        inner = getattr(statement, name, None)
        if isinstance(inner, list):
            setattr(statement, name, without_continue(inner))
    if isinstance(statement, ast.For):
        first = statement.body[0]
        _let_breaks_skip(statement)
        statement.body = _to_the_end(statement.body) or [ast.copy_location(ast.Pass(), first)]
    return statement


def _let_breaks_skip(loop: ast.For) -> None:
    """Write `continue` for a `break` that stands first, where later iterations would break, too."""
    step = _step(loop.iter)
    if step is None or not isinstance(loop.target, ast.Name):
        return
    written = {name.partition(".")[0] for name in stored_names(loop.body)}
    for statement in loop.body:
        match statement:
            case ast.If(body=[ast.Break() as leaves]) if (
                loop.target.id not in written
                and _is_for_good(statement.test, loop.target.id, step, written)
            ):
                statement.body = [ast.copy_location(ast.Continue(), leaves)]
            case _:
                return


def _step(iterated: ast.expr) -> int | None:
    """Return the direction a loop goes in, if it is plain to see."""
    match iterated:
        case ast.Call(func=ast.Name("range"), args=[_] | [_, _], keywords=[]):
            return 1
        case ast.Call(func=ast.Name("range"), args=[_, _, ast.Constant(int(step))], keywords=[]):
            return 1 if step > 0 else None
        case ast.Call(
            func=ast.Name("range"),
            args=[_, _, ast.UnaryOp(ast.USub(), ast.Constant(int(step)))],
            keywords=[],
        ):
            return -1 if step > 0 else None
        case _:
            return None


def _is_for_good(test: ast.expr, variable: str, step: int, written: set[str]) -> bool:
    """Tell whether a test holds in all iterations behind one in which it does."""
    match test:
        case ast.BoolOp(values=values):
            return all(_is_for_good(each, variable, step, written) for each in values)
        case ast.Compare(left=left, ops=[comparison], comparators=[right]):
            one, other = _sign(left, variable), _sign(right, variable)
            if one is None or other is None or (one != 0) == (other != 0):
                return False
            names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
            way = step * (one - other)
            return type(comparison) in _FOR_GOOD[way] and not names & written
        case _:
            return False


def _sign(node: ast.expr, variable: str) -> int | None:
    """Return the sign a variable is added with; 0 where it is not there, None for anything else."""
    match node:
        case ast.Name(name) if name == variable:
            return 1
        case ast.UnaryOp(ast.USub(), operand):
            inner = _sign(operand, variable)
            return None if inner is None else -inner
        case ast.BinOp(left, ast.Add() | ast.Sub() as op, right):
            one, other = _sign(left, variable), _sign(right, variable)
            if one is None or other is None or (one and other):
                return None
            return one + (other if isinstance(op, ast.Add) else -other)
        case _:
            names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            return None if variable in names else 0


def _to_the_end(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return statements after which an iteration is done, with nothing in them that skips."""
    if body and isinstance(body[-1], ast.Continue):
        body = body[:-1]
    for number, statement in enumerate(body):
        if isinstance(statement, ast.If) and _may_skip(statement):
            return [*body[:number], *_with_rest(statement, body[number + 1 :])]
    return body


def _with_rest(statement: ast.If, rest: list[ast.stmt]) -> list[ast.stmt]:
    """Return an `if` that may skip what follows it with that inside, in the order of the text."""
    if not rest or _skips(statement.body):
        chosen = _to_the_end(statement.body)
        other = _to_the_end([*statement.orelse, *rest])
    elif _skips(statement.orelse) and not _to_the_end(statement.orelse):
        chosen, other = _to_the_end([*statement.body, *rest]), []
    else:
        # What follows would have to stand in both branches.
        return [statement, *rest]
    test = statement.test
    if not chosen and other:
        test = ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
        chosen, other = other, []
    if not chosen:
        return []
    guarded = ast.copy_location(ast.If(test, chosen, other), statement)
    last = (other or chosen)[-1]
    guarded.end_lineno, guarded.end_col_offset = last.end_lineno, last.end_col_offset
    return [guarded]


def _skips(body: list[ast.stmt]) -> bool:
    """Tell whether statements never reach their end."""
    match body:
        case [*_, ast.Continue()]:
            return True
        case [*_, ast.If(body=chosen, orelse=other)]:
            return _skips(chosen) and _skips(other)
        case _:
            return False


def _may_skip(statement: ast.If) -> bool:
    """Tell whether some `continue` of the loop around stands in an `if`."""
    return any(
        isinstance(inner, ast.Continue) or (isinstance(inner, ast.If) and _may_skip(inner))
        for inner in (*statement.body, *statement.orelse)
    )
