"""Pure helper functions and module constants, put in where they are used.

This happens on the syntax tree, before anything is read, so that the rest of the frontend knows
neither.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TypeAlias

from looptrans.frontend.mistakes import TooDeep, UnsupportedExpression
from looptrans.frontend.syntax import head_of, language_calls, preorder, short, span_of
from looptrans.ir.diagnostic import Mistake

LARGEST = 20_000
DEEPEST = 30

Helper: TypeAlias = ast.FunctionDef | ast.Lambda


@dataclass(slots=True)
class Definitions:
    """What a listing may use beside its own names.

    Attributes:
        helpers: Pure functions by name.
        constants: The expressions of names the module sets once.
        outer: The names of `helpers` that stand outside the listing, and so do not see its names.
    """

    helpers: dict[str, Helper] = field(default_factory=dict)
    constants: dict[str, ast.expr] = field(default_factory=dict)
    outer: frozenset[str] = frozenset()


def expand(
    body: list[ast.stmt], definitions: Definitions, bound: set[str]
) -> tuple[list[ast.stmt], list[Mistake]]:
    """Return the body with every helper call and module constant replaced by what it stands for.

    Args:
        body: The statements of a listing.
        definitions: The helpers and constants.
        bound: The names the listing itself gives a meaning; they hide those of the module.

    Returns:
        The new body, and the calls that cannot be replaced.
    """
    helpers = {
        name: helper
        for name, helper in definitions.helpers.items()
        if name not in bound or name not in definitions.outer
    }
    constants = {n: value for n, value in definitions.constants.items() if n not in bound}
    if not helpers and not constants:
        return body, []
    expander = _Expander(Definitions(helpers, constants, definitions.outer), bound)
    expanded = []
    for statement in body:
        new = expander.visit(statement)
        assert isinstance(new, ast.stmt)
        expanded.append(new)
    return expanded, expander.mistakes


class _Expander(ast.NodeTransformer):
    """Replaces calls of helpers, outermost first."""

    def __init__(self, definitions: Definitions, bound: set[str]) -> None:
        self.definitions = definitions
        self.bound = bound
        self.mistakes: list[Mistake] = []
        self._depth = 0
        self._size = 0
        self._language: set[int] = set()

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.FunctionDef | ast.Lambda | ast.AsyncFunctionDef | ast.ClassDef):
            return node
        if isinstance(node, ast.stmt):
            self._size = 0
            self._language.update(id(call) for call in language_calls(node))
        result = super().visit(node)
        assert isinstance(result, ast.AST)
        return result

    def visit_Name(self, node: ast.Name) -> ast.AST:
        value = self.definitions.constants.get(node.id)
        if value is None or not isinstance(node.ctx, ast.Load):
            return node
        return self._inside(node, node.id, value)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if id(node) in self._language:
            function, node.func = node.func, ast.copy_location(ast.Constant(0), node)
            self.generic_visit(node)
            node.func = function
            return node
        if not isinstance(node.func, ast.Name) or node.func.id not in self.definitions.helpers:
            return self.generic_visit(node)
        name = node.func.id
        try:
            body = self._body(node, name)
        except Mistake as mistake:
            self.mistakes.append(mistake)
            return ast.copy_location(ast.Constant(0), node)
        return self._inside(node, name, body)

    def _inside(self, node: ast.expr, name: str, body: ast.expr) -> ast.AST:
        """Go on inside what was put in, within limits."""
        self._size += sum(1 for _ in preorder(body))
        too_large = self._size > LARGEST
        if too_large or self._depth >= DEEPEST:
            if not any(isinstance(mistake, TooDeep) for mistake in self.mistakes):
                self.mistakes.append(_too_large(node, name, too_large=too_large))
            return ast.copy_location(ast.Constant(0), node)
        self._depth += 1
        try:
            return self.visit(body)
        finally:
            self._depth -= 1

    def _body(self, call: ast.Call, name: str) -> ast.expr:
        helper = self.definitions.helpers[name]
        values = _bind(helper, call, name)
        if name in self.definitions.outer:
            for node in preorder(helper):
                if isinstance(node, ast.Name) and node.id in self.bound - _local(helper):
                    raise UnsupportedExpression(
                        f"the helper {name!r} reads {node.id!r}, which is not the listing's own",
                        span_of(node),
                        why="a function outside the listing does not see the listing's names",
                        remedy=f"make {node.id} an argument of {name}",
                    )
        if isinstance(helper, ast.Lambda):
            return _put_in(helper.body, values)
        result = _block_value(list(helper.body), values)
        if result is None:
            raise UnsupportedExpression(
                f"the helper {name!r} is not a single expression of its arguments",
                head_of(helper),
                why="a helper is put in where it is called, so it may only compute",
                remedy="def f(x): return …, with assignments to names or if/else returns before",
            )
        return result


def _too_large(node: ast.expr, name: str, *, too_large: bool) -> TooDeep:
    if too_large:
        return TooDeep(
            f"the expression is too large once {name!r} is put in",
            span_of(node),
            remedy="split it with a temporary",
        )
    return TooDeep(
        f"{name!r} is defined by itself, or nested too deeply",
        span_of(node),
        why="a helper is put in where it is called",
        remedy="write a helper as an expression of its arguments alone",
    )


def _local(helper: Helper) -> set[str]:
    arguments = helper.args
    names = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    return names | {
        node.id
        for node in preorder(helper)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _bind(helper: Helper, call: ast.Call, name: str) -> dict[str, ast.expr]:
    """Return the argument of a call for each parameter of the helper."""
    arguments = helper.args
    positional = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    known = [*positional, *(a.arg for a in arguments.kwonlyargs)]
    values = dict(zip(positional, call.args, strict=False))
    by_name = {k.arg: k.value for k in call.keywords if k.arg is not None}
    defaults = dict(zip(reversed(positional), reversed(arguments.defaults), strict=False))
    defaults |= {
        argument.arg: default
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is not None
    }
    odd = (
        arguments.vararg
        or arguments.kwarg
        or len(call.args) > len(positional)
        or any(isinstance(argument, ast.Starred) for argument in call.args)
        or any(keyword.arg is None for keyword in call.keywords)
        or not by_name.keys() <= set(known) - values.keys()
    )
    values = defaults | values | by_name
    if odd or not set(known) <= values.keys():
        raise UnsupportedExpression(
            f"the helper {name!r} takes {', '.join(known) or 'no arguments'}",
            span_of(call),
            why=f"the call {short(call)} does not fit that",
            remedy="give one argument for each",
        )
    return values


class _PutIn(ast.NodeTransformer):
    """Replaces names by expressions."""

    def __init__(self, values: dict[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self.values:
            return _copy(self.values[node.id])
        return node

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        return self._hiding(node)

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        return self._hiding(node)

    def _hiding(self, node: ast.GeneratorExp | ast.ListComp) -> ast.AST:
        """The variables of a generator hide the arguments of the same name."""
        before = self.values
        own = {n.id for g in node.generators for n in preorder(g.target) if isinstance(n, ast.Name)}
        first = self.visit(node.generators[0].iter)
        self.values = {name: value for name, value in before.items() if name not in own}
        result = self.generic_visit(node)
        self.values = before
        assert isinstance(result, ast.GeneratorExp | ast.ListComp)
        result.generators[0].iter = first
        return result


def _copy(node: ast.expr) -> ast.expr:
    """Copy an expression, places included."""
    new = _copied(node)
    assert isinstance(new, ast.expr)
    return new


def _copied(node: ast.AST) -> ast.AST:
    new = type(node)()
    for name, part in ast.iter_fields(node):
        if isinstance(part, list):
            setattr(new, name, [_copied(v) if isinstance(v, ast.AST) else v for v in part])
        else:
            setattr(new, name, _copied(part) if isinstance(part, ast.AST) else part)
    return ast.copy_location(new, node)


def _put_in(expression: ast.expr, values: dict[str, ast.expr]) -> ast.expr:
    sizes = {name: sum(1 for _ in preorder(value)) for name, value in values.items()}
    total = sum(
        sizes.get(node.id, 1) if isinstance(node, ast.Name) else 1 for node in preorder(expression)
    )
    if total > LARGEST:
        raise TooDeep(
            "the helper is too large once its temporaries are put in",
            span_of(expression),
            remedy="split the statement that calls it",
        )
    result = _PutIn(values).visit(_copy(expression))
    assert isinstance(result, ast.expr)
    return result


def _block_value(body: list[ast.stmt], values: dict[str, ast.expr]) -> ast.expr | None:
    """Return the value a helper's statements return, or None where they do more than compute."""
    values = dict(values)
    for number, statement in enumerate(body):
        match statement:
            case ast.Expr(value=ast.Constant()):
                continue
            case (
                ast.Assign(targets=[ast.Name(id=target)], value=value)
                | ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value)
            ):
                values[target] = _put_in(value, values)
            case ast.Return(value=ast.expr() as value):
                return _put_in(value, values)
            case ast.If(test=test, body=then, orelse=otherwise):
                chosen = _block_value(then, values)
                other = _block_value(otherwise or body[number + 1 :], values)
                if chosen is None or other is None:
                    return None
                choice = ast.IfExp(_put_in(test, values), chosen, other)
                return ast.copy_location(choice, statement)
            case _:
                return None
    return None
