"""From the text of a listing to a Program; the text is parsed, never executed."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import replace

from looptrans.frontend.aliases import shared_rows
from looptrans.frontend.appearance import names_in
from looptrans.frontend.choice import Choice, choose, has_loop, nothing
from looptrans.frontend.comments import Comments, read_comments
from looptrans.frontend.counted import count_blocks
from looptrans.frontend.elements import number_joins, with_elements
from looptrans.frontend.helpers import expand
from looptrans.frontend.mistakes import (
    NameTaken,
    SyntaxMistake,
    TooDeep,
    UnknownFunction,
    UnsetName,
    WrittenIndexArray,
)
from looptrans.frontend.names import Names, find_names
from looptrans.frontend.privates import used_outside
from looptrans.frontend.ranks import HIGHEST
from looptrans.frontend.reader import read_source
from looptrans.frontend.row_lengths import equal_lengths
from looptrans.frontend.skips import without_continue
from looptrans.frontend.statements import Statements
from looptrans.frontend.syntax import preorder, span_of, stored_names
from looptrans.ir.diagnostic import ListingError, Mistake
from looptrans.ir.index import parameters as sizes_of
from looptrans.ir.program import Declaration, Program
from looptrans.ir.source import Source, Span
from looptrans.ir.walk import loops

DEEPEST = 120


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
    try:
        return _program(choose(tree, function, source), source)
    except RecursionError:
        mistake = TooDeep("the listing is nested too deeply", None, remedy="split it")
        raise ListingError([mistake], source) from None


def _syntax_tree(source: Source) -> ast.Module:
    mistake: Mistake
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source.plain)
    except SyntaxError as error:
        mistake = _syntax_mistake(error, source)
    except (RecursionError, MemoryError):
        mistake = TooDeep(
            "the text is nested too deeply", None, remedy="split its expressions with temporaries"
        )
    except ValueError as error:
        mistake = SyntaxMistake(f"not valid Python: {error}", None, remedy="save it as plain text")
    else:
        deep = _too_deep(tree)
        if deep is None:
            return tree
        mistake = deep
    raise ListingError([mistake], source)


def _syntax_mistake(error: SyntaxError, source: Source) -> Mistake:
    line, column = error.lineno or 1, max((error.offset or 1) - 1, 0)
    end = error.end_offset - 1 if error.end_lineno == line and error.end_offset else column + 1
    text = source.line(line)
    # SyntaxError counts characters, spans count bytes.
    start_byte = len(text[:column].encode(errors="replace"))
    end_byte = max(len(text[:end].encode(errors="replace")), start_byte + 1)
    span = Span(line, start_byte, line, end_byte)
    message = (error.msg or "invalid syntax").removesuffix("?")
    if "too many levels" in message:
        return TooDeep(message, span, remedy="put fewer loops and guards inside each other")
    if "too many nested" in message:
        return TooDeep(message, span, remedy="split it with temporaries")
    remedies = {
        TabError: "indent with spaces only",
        IndentationError: "line the statements of a block up",
    }
    usual = "mend the text at the place shown"
    if text.lstrip().startswith("private:"):
        usual = "write several private names in parentheses, private: (x, y)"
    return SyntaxMistake(
        f"not valid Python: {message}",
        span,
        why="a listing is ordinary Python text",
        remedy=remedies.get(type(error), usual),
    )


def _too_deep(tree: ast.Module) -> TooDeep | None:
    """Refuse what is nested so deeply that reading it could run out of stack."""
    level: list[ast.AST] = [tree]
    for _ in range(DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return None
    places = [node for node in level if isinstance(node, ast.expr | ast.stmt)]
    line = places[0].lineno if places else 1
    return TooDeep(
        "the text is nested too deeply",
        Span(line, 0, line, 1_000_000),
        why=f"expressions, loops and guards may be nested {DEEPEST} deep",
        remedy="split it with temporaries",
    )


def _program(choice: Choice, source: Source) -> Program:
    node = choice.node
    if all(isinstance(s, ast.Return | ast.Pass | ast.Expr) for s in choice.body):
        raise ListingError([nothing("there is no loop nest in the text")], source)
    comments = read_comments(source.plain)
    leading, comment = _heading(choice, comments, source)
    bound = set(stored_names(choice.body))
    if node is not None:
        bound |= {argument.arg for argument in preorder(node.args) if isinstance(argument, ast.arg)}
    body, mistakes = expand(without_continue(choice.body), choice.definitions, bound)
    required = count_blocks(body)
    names, body, found = find_names(None if node is None else node.args, body)
    if any(array.rank >= HIGHEST for array in names.arrays.values()):
        raise ListingError(_without_repeats(mistakes + found), source)
    statements = Statements(names, comments, node is not None, mistakes + found)
    nodes = statements.read(body, _last_line(node, source, comments))
    statements.require(required)
    mistakes = statements.mistakes
    if not mistakes:
        created = {n.array for n in nodes if isinstance(n, Declaration)}
        names.arrays = with_elements(names.arrays, nodes, created)
        mistakes += number_joins(names.arrays, nodes)
    attributes = (n for n, a in names.arrays.items() if "." in n and a.role == "local")
    program = Program(
        name=choice.name,
        arguments=tuple(names.arguments),
        parameters=(),
        arrays=(),
        contracts=tuple(statements.contracts),
        body=nodes,
        outputs=tuple(dict.fromkeys((*statements.outputs, *attributes))),
        is_function=node is not None,
        docstring=choice.docstring,
        comment=comment,
        return_comment=statements.return_comment,
        closing=statements.closing,
        leading=leading,
        source=source,
    )
    program = _in_order(program, names)
    if not mistakes:
        mistakes += _taken(program, names)
        mistakes += used_outside(program, statements.privates)
        mistakes += shared_rows(program)
    if not mistakes:
        contracts = (*program.contracts, *equal_lengths(program))
        program = _in_order(replace(program, contracts=contracts), names)
    if not mistakes and not nodes and not any(has_loop(statement) for statement in choice.body):
        mistakes.append(nothing("there is no loop nest in the text"))
    if mistakes:
        raise ListingError(_without_repeats(mistakes), source)
    return program


def _heading(choice: Choice, comments: Comments, source: Source) -> tuple[tuple[str, ...], str]:
    """Take the comments above a function and beside its signature."""
    node = choice.node
    if node is None:
        return (), ""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    top = first
    while top > 1 and (top - 1 in comments.own or not source.line(top - 1).strip()):
        top -= 1
    comments.skip_to(top)
    leading = comments.above(first)
    comments.skip_to(node.lineno)
    body = node.body[0].lineno
    signature = [node.args] if node.returns is None else [node.args, node.returns]
    last = max(span_of(part).end_line for part in preorder(*signature))
    last = max(last, node.lineno)
    return leading, comments.beside(node.lineno, body - 1, min(last, body - 1))


def _last_line(node: ast.FunctionDef | None, source: Source, comments: Comments) -> int:
    """Return the last line whose comments belong to the listing."""
    end = source.plain.count("\n") + 1
    if node is None:
        return end
    last = node.end_lineno or node.lineno
    while last < end:
        text = source.line(last + 1)
        if text.strip() and not (last + 1 in comments.own and text[:1].isspace()):
            break
        last += 1
    return last


def _in_order(program: Program, names: Names) -> Program:
    """Put in the parameters and arrays that the program mentions, in order of first appearance."""
    mentioned = names_in(program.contracts, program.body)
    arrays = dict.fromkeys([*names.arguments, *mentioned, *program.outputs])
    ordered = tuple(names.arrays[name] for name in arrays if name in names.arrays)
    stated = set(names.arguments)
    for array in ordered:
        extents = [*array.shape, *(array.value_range or ())] if array.name in stated else []
        stated |= {name for extent in extents if extent is not None for name in sizes_of(extent)}
    parameters = dict.fromkeys([*(n for n in names.parameters if n in stated), *mentioned])
    return replace(
        program,
        parameters=tuple(names.parameters[n] for n in parameters if n in names.parameters),
        arrays=ordered,
    )


def _taken(program: Program, names: Names) -> Iterator[NameTaken]:
    """Find names of the listing that are also functions it needs, `max` through `if x > s`."""
    places = {loop.variable: loop.span for loop in loops(program)}
    places |= {parameter.name: parameter.span for parameter in program.parameters}
    places |= {array.name: array.span for array in program.arrays}
    for mention in names_in(program.contracts, program.body):
        name = mention.removesuffix("(")
        if mention.endswith("(") and names.is_bound(name):
            yield NameTaken(
                f"{name!r} is a name of the listing, which also needs the language's {name}",
                places.get(name),
                why="one name cannot mean both (if x > s: s = x is read as s = max(s, x))",
                remedy=f"rename the one of the listing, e.g. {name}_",
            )


def _without_repeats(mistakes: list[Mistake]) -> list[Mistake]:
    """Sort mistakes by place, and keep what is wrong with a name only where it shows first."""
    ordered = sorted(mistakes, key=_place)
    first: dict[tuple[str, str, Span | None], Mistake] = {}
    for mistake in ordered:
        once = isinstance(mistake, UnsetName | UnknownFunction | NameTaken | WrittenIndexArray)
        first.setdefault((mistake.code, mistake.message, None if once else mistake.span), mistake)
    return list(first.values())


def _place(mistake: Mistake) -> tuple[int, int]:
    return (0, 0) if mistake.span is None else (mistake.span.line, mistake.span.column)
