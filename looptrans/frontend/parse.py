"""From the text of a listing to a Program; the text is parsed, never executed."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass, field

from looptrans.frontend.aliases import shared_rows
from looptrans.frontend.comments import Comments, read_comments
from looptrans.frontend.mistakes import (
    NothingToRead,
    SyntaxMistake,
    TooDeep,
    UnsupportedStatement,
    WhichFunction,
)
from looptrans.frontend.names import Names, find_names, literal_number, preorder, span_of
from looptrans.frontend.reader import read_source
from looptrans.frontend.statements import Statements
from looptrans.ir.diagnostic import ListingError, Mistake
from looptrans.ir.program import Array, Parameter, Program
from looptrans.ir.source import Source, Span


def load(target: str) -> Program:
    """Read the listing that `FILE`, `FILE::FUNCTION`, `FILE::Class.method` or `-` names.

    Raises:
        ListingError: With every mistake found.
    """
    source, function = read_source(target)
    return parse(source, function)


def parse(source: Source, function: str | None = None) -> Program:
    """Read a listing.

    Args:
        source: The text.
        function: Which function of it, `Class.method` for a method. By default the only one with
            a loop, or the text's own loops where it has no such function.

    Raises:
        ListingError: With every mistake found, in the order of the text.
    """
    tree = _syntax_tree(source)
    comments = read_comments(source.text)
    try:
        return _program(_chosen(tree, function, source), comments, source)
    except RecursionError:
        mistake = TooDeep("the listing is nested too deeply", None, remedy="split it")
        raise ListingError([mistake], source) from None


def _syntax_tree(source: Source) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source.text)
    except SyntaxError as error:
        line, column = error.lineno or 1, max((error.offset or 1) - 1, 0)
        end = error.end_offset - 1 if error.end_lineno == line and error.end_offset else column + 1
        text = source.line(line)
        # SyntaxError counts characters, spans count bytes.
        start_byte = len(text[:column].encode())
        end_byte = max(len(text[:end].encode()), start_byte + 1)
        span = Span(line, start_byte, line, end_byte)
        kind = TooDeep if "too many nested" in (error.msg or "") else SyntaxMistake
        mistake: Mistake = kind(
            f"not valid Python: {error.msg}", span, remedy="mend the text at the place shown"
        )
    except (RecursionError, MemoryError):
        mistake = TooDeep("the text is nested too deeply", None, remedy="split its expressions")
    except ValueError as error:
        mistake = SyntaxMistake(f"not valid Python: {error}", None, remedy="save it as plain text")
    raise ListingError([mistake], source) from None


@dataclass(slots=True)
class _Choice:
    """The part of a text that is the listing.

    Attributes:
        name: What the program is called.
        node: The function, or None for bare loops.
        body: Its statements.
        constants: Numbers the module sets.
        helpers: Functions that may be called.
    """

    name: str
    node: ast.FunctionDef | None
    body: list[ast.stmt]
    constants: dict[str, float | int] = field(default_factory=dict)
    helpers: dict[str, ast.FunctionDef | ast.Lambda] = field(default_factory=dict)


def _has_loop(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.For | ast.While) for inner in ast.walk(node))


def _functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    found: dict[str, ast.FunctionDef] = {}
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name):
                found[name] = node
            case ast.ClassDef(name=owner, body=body):
                for method in body:
                    if isinstance(method, ast.FunctionDef):
                        found[f"{owner}.{method.name}"] = method
            case _:
                pass
    return found


def _chosen(tree: ast.Module, function: str | None, source: Source) -> _Choice:
    functions = _functions(tree)
    constants = {
        target.id: number
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and (number := literal_number(node.value)) is not None
    }
    constants = {
        name: number for name, number in constants.items() if _assigned_once(tree, name)
    }
    lambdas = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Lambda)
        and isinstance(node.targets[0], ast.Name)
    }
    helpers: dict[str, ast.FunctionDef | ast.Lambda] = {
        name: node for name, node in functions.items() if "." not in name and not _has_loop(node)
    }
    helpers |= lambdas
    bare = [node for node in tree.body if isinstance(node, ast.For | ast.While)]
    with_loops = [name for name, node in functions.items() if _has_loop(node)]
    if function is None:
        if bare and not with_loops:
            return _bare(tree, source, helpers)
        candidates = with_loops or list(functions)
        if len(candidates) != 1:
            raise _cannot_choose(candidates, tree, source)
        function = candidates[0]
    matching = [
        name for name in functions if name == function or name.endswith("." + function)
    ]
    if function in functions:
        matching = [function]
    if len(matching) != 1:
        known = ", ".join(functions) or "none"
        mistake = WhichFunction(
            f"there is no function {function!r}" if not matching else f"{function!r} is ambiguous",
            None,
            why=f"the text defines: {known}",
            remedy="name one of them, FILE::NAME",
        )
        raise ListingError([mistake], source)
    node = functions[matching[0]]
    helpers = {name: helper for name, helper in helpers.items() if helper is not node}
    return _Choice(matching[0], node, node.body, constants, helpers)


def _assigned_once(tree: ast.Module, name: str) -> bool:
    stores = [
        node
        for statement in tree.body
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
    ]
    return len(stores) == 1


def _bare(
    tree: ast.Module, source: Source, helpers: dict[str, ast.FunctionDef | ast.Lambda]
) -> _Choice:
    ignored = (ast.Import, ast.ImportFrom, ast.FunctionDef)
    body = [node for node in tree.body if not isinstance(node, ignored)]
    body = [node for node in body if not (isinstance(node, ast.If) and _is_main(node))]
    stem = source.name.rpartition("/")[2].removesuffix(".py").strip("<>")
    return _Choice(stem, None, body, {}, helpers)


def _is_main(node: ast.If) -> bool:
    return ast.unparse(node.test).startswith("__name__ ==")


def _cannot_choose(candidates: list[str], tree: ast.Module, source: Source) -> ListingError:
    if not candidates:
        mistake: Mistake = NothingToRead(
            "there is no loop nest in the text" if tree.body else "the text is empty",
            None,
            why="a listing is a function with loops, or bare loops",
            remedy="see specs/matmul.py for an example",
        )
    else:
        mistake = WhichFunction(
            f"the text holds {len(candidates)} functions: {', '.join(candidates)}",
            None,
            why="none was named",
            remedy=f"name one, {source.name}::{candidates[0]}",
        )
    return ListingError([mistake], source)


def _program(choice: _Choice, comments: Comments, source: Source) -> Program:
    node, body = choice.node, list(choice.body)
    docstring = None
    match body[:1]:
        case [ast.Expr(value=ast.Constant(value=str(text)))]:
            docstring = text
            body = body[1:]
        case _:
            pass
    helpers = dict(choice.helpers)
    helpers |= {inner.name: inner for inner in body if isinstance(inner, ast.FunctionDef)}
    arguments = None if node is None else node.args
    names, mistakes = find_names(arguments, body, choice.constants, helpers)
    if arguments is not None and (arguments.vararg or arguments.kwarg):
        mistakes.append(
            UnsupportedStatement(
                "the function takes any number of arguments",
                span_of(arguments.vararg or arguments.kwarg or node or body[0]),
                remedy="name every argument",
            )
        )
    statements = Statements(names, comments, mistakes)
    first, last = _lines(node, choice.body, source, comments)
    nodes = statements.read(body, first, last)
    program = Program(
        name=choice.name,
        arguments=tuple(names.arguments),
        parameters=tuple(names.parameters.values()),
        arrays=_arrays_in_order(names, body),
        contracts=tuple(statements.contracts),
        body=nodes,
        outputs=statements.outputs,
        is_function=node is not None,
        docstring=docstring,
        comment="" if node is None else _def_comment(node, comments),
        return_comment=statements.return_comment,
        closing=statements.closing,
        source=source,
    )
    if not statements.mistakes:
        statements.mistakes.extend(shared_rows(program))
    if statements.mistakes:
        unique = {(m.code, m.message, m.span): m for m in statements.mistakes}
        ordered = sorted(unique.values(), key=_place)
        raise ListingError(ordered, source)
    if not any(isinstance(inner, ast.For) for top in body for inner in ast.walk(top)):
        if not nodes:
            raise _cannot_choose([], ast.Module([], []), source)
    return program


def _place(mistake: Mistake) -> tuple[int, int]:
    return (0, 0) if mistake.span is None else (mistake.span.line, mistake.span.column)


def _def_comment(node: ast.FunctionDef, comments: Comments) -> str:
    last = node.body[0].lineno - 1
    found = [
        comments.trailing[line]
        for line in range(node.lineno, max(last, node.lineno) + 1)
        if line in comments.trailing and line < node.body[0].lineno
    ]
    return " # ".join(found)


def _lines(
    node: ast.FunctionDef | None, body: list[ast.stmt], source: Source, comments: Comments
) -> tuple[int, int]:
    """Return the first and the last line whose comments belong to the listing."""
    end = len(source.text.splitlines())
    if node is None:
        return 1, end
    last = node.end_lineno or node.lineno
    for line in range(last + 1, end + 1):
        text = source.line(line)
        if text.strip() and not (line in comments.own and text[:1].isspace()):
            break
        last = line
    return node.body[0].lineno if node.body else node.lineno, last


def _arrays_in_order(names: Names, body: list[ast.stmt]) -> tuple[Array, ...]:
    """Return the arrays in order of first appearance, arguments first."""
    order: dict[str, None] = dict.fromkeys(a for a in names.arguments if a in names.arrays)
    for statement in body:
        for node in preorder(statement):
            if isinstance(node, ast.Name | ast.Attribute):
                text = node.id if isinstance(node, ast.Name) else ast.unparse(node)
                if text in names.arrays:
                    order[text] = None
    order |= dict.fromkeys(sorted(names.arrays))
    return tuple(names.arrays[name] for name in order)


__all__ = ["Parameter", "load", "parse"]
