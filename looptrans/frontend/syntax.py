"""Small questions about syntax nodes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from looptrans.ir.source import Span

MODULES = ("np", "numpy", "math", "torch", "jnp")
# What NumPy's arrays have; no attribute of the caller's.
ARRAY_ATTRIBUTES = ("T", "shape", "size", "dtype", "ndim")
SPELLINGS = {
    "maximum": "max",
    "minimum": "min",
    "fmax": "max",
    "fmin": "min",
    "fabs": "abs",
    "absolute": "abs",
    "float_": "float64",
    "double": "float64",
    "half": "float16",
    "int_": "int",
    "bool_": "bool",
}
SECTIONS = ("atomic", "reduce")
PRIVATE = "private"
HEAD_WORDS: dict[type[ast.stmt], str] = {
    ast.AsyncFor: "async for",
    ast.AsyncFunctionDef: "async def",
    ast.AsyncWith: "async with",
    ast.ClassDef: "class",
    ast.Delete: "del",
    ast.FunctionDef: "def",
    ast.ImportFrom: "from … import",
    ast.TryStar: "try",
}


def span_of(node: ast.AST) -> Span:
    """Return the place of a syntax node; columns count bytes, as in `ast`."""
    line = getattr(node, "lineno", 0)
    column = getattr(node, "col_offset", 0)
    return Span(
        line,
        column,
        getattr(node, "end_lineno", line) or line,
        getattr(node, "end_col_offset", column + 1) or column + 1,
    )


def word_of(statement: ast.stmt) -> str:
    """Return the word a statement starts with, e.g. `while`."""
    return HEAD_WORDS.get(type(statement), type(statement).__name__.lower())


def head_of(statement: ast.stmt) -> Span:
    """Return the place of a statement's head: for a compound one, without its body."""
    span = span_of(statement)
    end: ast.expr | None = None
    match statement:
        case ast.For(iter=end) | ast.While(test=end) | ast.If(test=end):
            pass
        case ast.With(items=[*_, ast.withitem(optional_vars=ast.expr() as end)]):
            pass
        case ast.With(items=[*_, ast.withitem(context_expr=end)]):
            pass
        case _:
            pass
    if end is not None:
        head = span_of(end)
        return Span(span.line, span.column, head.end_line, head.end_column)
    if isinstance(getattr(statement, "body", None) or getattr(statement, "cases", None), list):
        return Span(span.line, span.column, span.line, span.column + len(word_of(statement)))
    return span


def short(node: ast.AST, limit: int = 60) -> str:
    """Return the text of a syntax node in quotes, cut where it is long."""
    text = ast.unparse(node)
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def dotted(node: ast.expr) -> str | None:
    """Return `N` for a name, `self.N` for an attribute of a name, None for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join((node.id, *reversed(parts)))


def called(node: ast.expr) -> str | None:
    """Return the language's name of a function: `exp` for `np.exp`, `max` for `np.maximum`."""
    if isinstance(node, ast.Name):
        return SPELLINGS.get(node.id, node.id)
    if (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in MODULES
    ):
        return SPELLINGS.get(node.attr, node.attr)
    return None


def loop_word(function: ast.expr) -> str | None:
    """Return what a loop runs over, `range` or `parallel`; numba's `prange` is the latter."""
    match function:
        case ast.Name(id="parallel" | "prange"):
            return "parallel"
        case ast.Attribute(value=ast.Name(id="numba" | "nb"), attr="prange"):
            return "parallel"
        case _:
            return "range" if called(function) == "range" else None


def private_line(statement: ast.AST) -> ast.expr | None:
    """Return the x of `private: x`, None for anything else."""
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name), annotation=names, value=None):
            return names if name == PRIVATE else None
        case _:
            return None


def language_calls(statement: ast.AST) -> list[ast.Call]:
    """Return the calls that only the words of parallel programs can be in a statement's head.

    `parallel(…)` that a loop runs over, `atomic()` and `reduce("+")` after `with`, `barrier()` on
    a line of its own. They mean what they mean in the language even where the text defines
    functions of these names, which it needs to run as plain Python.
    """
    match statement:
        case ast.For(iter=ast.Call(func=function) as call) if loop_word(function) == "parallel":
            return [call]
        case ast.With(items=items):
            heads = [item.context_expr for item in items]
            return [h for h in heads if isinstance(h, ast.Call) and dotted(h.func) in SECTIONS]
        case ast.Expr(value=ast.Call(func=ast.Name(id="barrier")) as call):
            return [call]
        case _:
            return []


def flattened(node: ast.expr) -> tuple[ast.expr, list[ast.expr]]:
    """Split `A[i][j, k]` into its base and all its subscripts, left to right."""
    groups: list[list[ast.expr]] = []
    while isinstance(node, ast.Subscript):
        groups.append(node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice])
        node = node.value
    return node, [subscript for group in reversed(groups) for subscript in group]


def elements_of(node: ast.expr) -> list[ast.expr]:
    """Return the elements of a tuple or list display, or the expression itself."""
    return node.elts if isinstance(node, ast.Tuple | ast.List) else [node]


def preorder(*roots: ast.AST) -> Iterator[ast.AST]:
    """Yield syntax nodes and everything below them in the order of the text."""
    stack = list(reversed(roots))
    while stack:
        top = stack.pop()
        yield top
        stack += children(top)[::-1]


def children(node: ast.AST) -> list[ast.AST]:
    """Return what `ast.iter_child_nodes` yields, in half the time."""
    below: list[ast.AST] = []
    for field in node._fields:
        value = getattr(node, field, None)
        if isinstance(value, ast.AST):
            below.append(value)
        elif isinstance(value, list):
            below += [each for each in value if isinstance(each, ast.AST)]
    return below


_IN_BLOCKS = (ast.stmt, ast.excepthandler, ast.match_case)


def statements_below(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """Yield statements and those inside them in the order of the text, but no expressions."""
    stack: list[ast.AST] = [*body]
    stack.reverse()
    while stack:
        top = stack.pop()
        yield top
        values = [getattr(top, field, None) for field in top._fields]
        blocks = [each for each in values if isinstance(each, list)]
        below = [each for block in blocks for each in block if isinstance(each, _IN_BLOCKS)]
        stack += below[::-1]


def shape_read(node: ast.expr) -> tuple[str, int | None] | None:
    """Return the array and dimension of `A.shape[d]` or `len(A[0])`, and of `A.shape` (None).

    Of `A.shape[-1]` it is -1: how many dimensions there are is not in the expression.
    """
    match node:
        case ast.Attribute(value=base, attr="shape"):
            name = dotted(base)
            return None if name is None else (name, None)
        case ast.Subscript(value=ast.Attribute(value=base, attr="shape"), slice=at):
            name, dimension = dotted(base), literal_number(at)
            return (name, dimension) if name is not None and isinstance(dimension, int) else None
        case ast.Call(func=ast.Name(id="len"), args=[row], keywords=[]):
            base, subscripts = flattened(row)
            name = dotted(base)
            if name is None or any(isinstance(s, ast.Slice) for s in subscripts):
                return None
            return name, len(subscripts)
        case _:
            return None


def literal_number(node: ast.expr) -> float | int | None:
    """Return the number an expression spells, `1e-5`, `-2` or `-inf`, or None."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = literal_number(operand)
            return None if inner is None else -inner
        case ast.Constant(value=value) if type(value) in (int, float):
            assert isinstance(value, int | float)
            return value
        case ast.Name(id="inf") | ast.Attribute(value=ast.Name(id="np" | "math"), attr="inf"):
            return float("inf")
        case _:
            return None


def stored_names(body: Iterable[ast.AST]) -> dict[str, int]:
    """Return every name that statements assign, as a whole or by element, with its last line."""
    found: dict[str, int] = {}
    stack: list[ast.AST] = [*body]
    stack.reverse()
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Constant):
            continue
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(
            node.ctx, ast.Store
        ):
            name = dotted(flattened(node)[0])
            if name is not None:
                found[name] = node.lineno
        if not isinstance(node, ast.Name):
            stack += children(node)[::-1]
    return found
