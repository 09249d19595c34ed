"""Which part of a text is the listing."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass

from looptrans.frontend.helpers import Definitions, Helper
from looptrans.frontend.mistakes import NothingToRead, UnsupportedStatement, WhichFunction
from looptrans.frontend.syntax import head_of, preorder
from looptrans.ir.diagnostic import ListingError, Mistake
from looptrans.ir.source import Source


@dataclass(slots=True)
class Choice:
    """The part of a text that is the listing.

    Attributes:
        name: What the program is called.
        node: The function, or None for bare loops.
        body: Its statements, without the docstring.
        docstring: The docstring, or None.
        definitions: The helpers and constants it may use.
    """

    name: str
    node: ast.FunctionDef | None
    body: list[ast.stmt]
    docstring: str | None
    definitions: Definitions


def choose(tree: ast.Module, function: str | None, source: Source) -> Choice:
    """Choose the function that is named, or the only one with a loop, or the bare loops.

    Raises:
        ListingError: There is no such function, or more than one.
    """
    functions = _functions(tree)
    with_loops = [name for name, node in functions.items() if has_loop(node)]
    if function is None:
        if not with_loops and any(isinstance(n, ast.For | ast.While) for n in tree.body):
            return _bare(tree, functions, source)
        candidates = with_loops or list(functions)
        if len(candidates) != 1:
            raise ListingError([_no_choice(candidates, tree, source)], source)
        function = candidates[0]
    name = _named(function, functions, source)
    node = functions[name]
    if isinstance(node, ast.AsyncFunctionDef):
        mistake = UnsupportedStatement(
            "the function is async",
            head_of(node),
            why="a listing is a plain loop nest; nothing in it waits",
            remedy="write def instead of async def",
        )
        raise ListingError([mistake], source)
    body, docstring = _without_docstring(node.body)
    definitions = _definitions(tree.body, functions, node)
    _add_inner(definitions, body)
    return Choice(name, node, body, docstring, definitions)


def has_loop(node: ast.AST) -> bool:
    """Tell whether there is a loop anywhere below a syntax node."""
    return any(isinstance(inner, ast.For | ast.AsyncFor | ast.While) for inner in preorder(node))


def _functions(tree: ast.Module) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    found: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    found[prefix + name] = node
                case ast.ClassDef(name=name, body=inner):
                    visit(inner, f"{prefix}{name}.")
                case _:
                    pass

    visit(tree.body, "")
    return found


def _named(
    function: str, functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef], source: Source
) -> str:
    matching = [name for name in functions if name.endswith("." + function)]
    if function in functions:
        matching = [function]
    if len(matching) == 1:
        return matching[0]
    from difflib import get_close_matches

    close = get_close_matches(function, functions, 1)
    target = _target(source)
    mistake = WhichFunction(
        f"{function!r} is ambiguous: {', '.join(matching)}"
        if matching
        else f"there is no function {function!r} in {source.name}",
        None,
        why=f"the text defines: {', '.join(functions)}" if functions else "the text defines none",
        remedy=f"name one of them, {target}::{(matching or close or list(functions))[0]}"
        if functions
        else f"leave the name out: {target}",
    )
    raise ListingError([mistake], source)


def _definitions(
    body: list[ast.stmt],
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef],
    chosen: ast.FunctionDef | None,
) -> Definitions:
    """Return what the module defines beside the listing."""
    stored = Counter(
        node.id
        for statement in body
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
        for node in preorder(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    helpers: dict[str, Helper] = {
        name: node
        for name, node in functions.items()
        if "." not in name
        and isinstance(node, ast.FunctionDef)
        and node is not chosen
        and not has_loop(node)
    }
    constants: dict[str, ast.expr] = {}
    for statement in body:
        targets: list[ast.expr]
        match statement:
            case ast.Assign(targets=assigned, value=value):
                targets = assigned
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                targets = [target]
            case _:
                continue
        for name in targets:
            if isinstance(name, ast.Name) and stored[name.id] == 1:
                if isinstance(value, ast.Lambda):
                    helpers[name.id] = value
                elif _is_number(value):
                    constants[name.id] = value
    return Definitions(helpers, constants, frozenset(helpers))


def _is_number(node: ast.expr) -> bool:
    """Tell whether an expression may be a number known without running anything."""
    return not any(
        isinstance(inner, ast.Subscript | ast.List | ast.Tuple | ast.Dict | ast.Set | ast.ListComp)
        or (isinstance(inner, ast.Constant) and not isinstance(inner.value, int | float | str))
        for inner in preorder(node)
    ) and not (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _add_inner(definitions: Definitions, body: list[ast.stmt]) -> None:
    """Add the helpers that the listing defines itself."""
    for node in preorder(*body):
        match node:
            case ast.FunctionDef(name=name):
                definitions.helpers[name] = node
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as helper):
                definitions.helpers[name] = helper
            case _:
                continue
        definitions.outer -= {name}


def _bare(
    tree: ast.Module,
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef],
    source: Source,
) -> Choice:
    ignored = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef)
    body = [
        node
        for node in tree.body
        if not isinstance(node, ignored) and not (isinstance(node, ast.If) and _is_main(node))
    ]
    body, docstring = _without_docstring(body)
    definitions = _definitions([], functions, None)
    definitions.outer = frozenset()
    _add_inner(definitions, body)
    stem = source.name.rpartition("/")[2].removesuffix(".py").strip("<>") or "listing"
    return Choice(stem, None, body, docstring, definitions)


def _is_main(node: ast.If) -> bool:
    match node.test:
        case ast.Compare(left=ast.Name(id="__name__")):
            return True
        case _:
            return False


def _without_docstring(body: list[ast.stmt]) -> tuple[list[ast.stmt], str | None]:
    match body:
        case [ast.Expr(value=ast.Constant(value=str(text))), *rest]:
            return rest, text
        case _:
            return body, None


def _no_choice(candidates: list[str], tree: ast.Module, source: Source) -> Mistake:
    if not candidates:
        return nothing("there is no loop nest in the text" if tree.body else "the text is empty")
    return WhichFunction(
        f"the text holds {len(candidates)} functions: {', '.join(candidates)}",
        None,
        why="none was named",
        remedy=f"name one, {_target(source)}::{candidates[0]}",
    )


def _target(source: Source) -> str:
    """Return how the command line names a text."""
    return "-" if source.name == "<stdin>" else source.name


def nothing(message: str) -> Mistake:
    """Return the mistake of a text without a listing."""
    return NothingToRead(
        message,
        None,
        why="a listing is a function with loops, or bare loops",
        remedy="see specs/matmul.py for an example",
    )
