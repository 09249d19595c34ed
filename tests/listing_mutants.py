"""Listings with one expression changed: the kernel of a mutant has to follow the mutant."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

_OPPOSITE: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
}
_OTHER = {"max": "min", "min": "max", "exp": "exp2", "log": "log2", "sqrt": "abs", "tanh": "sin"}
_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Gt,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A listing that differs from another one in one place.

    Attributes:
        what: The change.
        text: The listing.
    """

    what: str
    text: str


def mutants(text: str) -> list[Mutant]:
    """Return what one change of an expression makes of a listing, each text once."""
    tree = ast.parse(text)
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    if ast.get_docstring(function) is not None:
        del function.body[0]
    found: dict[str, str] = {ast.unparse(tree): ""}
    holders = {id(node): put for parent in ast.walk(function) for node, put in _below(parent)}
    for node in list(_expressions(function)):
        put, was = holders[id(node)], ast.unparse(node)
        for what, new in list(_changed(node)):
            put(new)
            found.setdefault(ast.unparse(tree), f"line {node.lineno}: {was} is {what}")
            put(node)
    return [Mutant(what, changed) for changed, what in found.items() if what]


def _below(parent: ast.AST) -> Iterator[tuple[ast.AST, Callable[[ast.AST], None]]]:
    """Yield the nodes directly below another one, and what puts another node into their place."""
    for field, value in ast.iter_fields(parent):
        if isinstance(value, ast.AST):
            yield value, partial(setattr, parent, field)
        elif isinstance(value, list):
            for place, each in enumerate(value):
                yield each, partial(value.__setitem__, place)


def _expressions(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Yield the expressions of the statements: not what creates arrays, and what is returned."""
    for statement in function.body:
        for node in ast.walk(statement) if isinstance(statement, ast.For) else ():
            is_read = isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
            if isinstance(node, ast.expr) and is_read:
                yield node


def _changed(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.BinOp(left, op, right):
            other = _OPPOSITE.get(type(op))
            if other is not None:
                made = ast.BinOp(left, other(), right)
                yield ast.unparse(made), made
            if isinstance(op, ast.Sub | ast.Div):
                made = ast.BinOp(right, op, left)
                yield ast.unparse(made), made
            yield ast.unparse(left), left
            if not isinstance(op, ast.Pow):
                yield ast.unparse(right), right
        case ast.Call(ast.Name(name), arguments) if name in _OTHER:
            made_call = ast.Call(ast.Name(_OTHER[name]), arguments, [])
            yield ast.unparse(made_call), made_call
        case ast.Call(ast.Name("range"), arguments):
            *first, stop = arguments
            shorter = ast.Call(node.func, [*first, ast.BinOp(stop, ast.Sub(), ast.Constant(1))], [])
            yield ast.unparse(shorter), shorter
            later = ast.Call(node.func, [ast.Constant(1), stop], [])
            yield ast.unparse(later), later
        case ast.Compare(left, [op], [right]) if type(op) in _COMPARED:
            compared = ast.Compare(left, [_COMPARED[type(op)]()], [right])
            yield ast.unparse(compared), compared
        case ast.UnaryOp(ast.USub(), operand):
            yield ast.unparse(operand), operand
        case ast.Constant(float(number)):
            yield str(number + 1.5), ast.Constant(number + 1.5)
        case ast.IfExp(_, body, orelse):
            yield ast.unparse(body), body
            yield ast.unparse(orelse), orelse
        case ast.Subscript(value, ast.Tuple(elements)):
            for place in range(len(elements)):
                first_one = [*elements[:place], ast.Constant(0), *elements[place + 1 :]]
                read = ast.Subscript(value, ast.Tuple(first_one), ast.Load())
                yield ast.unparse(read), read
        case _:
            return
