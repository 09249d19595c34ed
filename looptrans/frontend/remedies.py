"""What to write instead of what is outside the language."""

from __future__ import annotations

import ast
from collections.abc import Collection

from looptrans.frontend.syntax import SECTIONS, called, dotted, flattened
from looptrans.ir.functions import FUNCTIONS

EXPRESSIONS: dict[type[ast.expr], str] = {
    ast.NamedExpr: "set the name on a line of its own",
    ast.Lambda: "give the helper a name: f = lambda x: …, or def f(x): return …",
    ast.ListComp: "write a loop, or sum(… for e in range(E))",
    ast.GeneratorExp: "write a loop, or sum(… for e in range(E))",
    ast.Tuple: "assign each value to a name of its own",
    ast.List: "create an array, a = zeros(N), or make it an argument, and subscript that",
    ast.Dict: "make it an array argument, and subscript that",
    ast.Set: "make it an array argument, and subscript that",
    ast.JoinedStr: "leave the text out",
    ast.Await: "leave the await out",
    ast.Yield: "store into an array that is returned",
    ast.Starred: "write every value out",
}
FUNCTION_CALLS = {
    "dot": "write q @ k, or sum(q[e] * k[e] for e in range(E))",
    "inner": "write q @ k, or sum(q[e] * k[e] for e in range(E))",
    "matmul": "write the loops, or q @ k for two rows",
    "einsum": "write the loops",
    "power": "write x ** y",
    "square": "write x * x",
    "rsqrt": "write 1.0 / sqrt(x)",
    "floor": "write x // 1.0",
    "ceil": "write -(-x // 1.0)",
    "round": "write (x + 0.5) // 1.0, which rounds halves up",
    "trunc": "write x // 1.0 if x >= 0.0 else -(-x // 1.0)",
    "any": "write any(… for e in range(E))",
    "all": "write all(… for e in range(E))",
    "zeros_like": "write the shape out, zeros((M, N))",
    "empty_like": "write the shape out, empty((M, N))",
    "ones_like": "write the shape out, ones((M, N))",
    "parallel": "run a loop over it, for j in parallel(0, N)",
    "prange": "run a loop over it, for j in prange(0, N)",
    "atomic": "write with atomic():, and the statements below it",
    "reduce": 'write with reduce("+"):, and the updates below it',
    "barrier": "write barrier() on a line of its own",
}
KNOWN = (
    "define it as a pure helper, def f(x): return …, or use exp, exp2, log, log2, sqrt, abs, max, "
    "min, tanh, sin, cos, sum, where"
)


def function_instead(function: ast.expr, arrays: Collection[str]) -> str:
    """Return what to write for a function, or a method of an array, that the language lacks."""
    last = function.attr if isinstance(function, ast.Attribute) else (dotted(function) or "")
    if last in FUNCTION_CALLS:
        return FUNCTION_CALLS[last]
    if not isinstance(function, ast.Attribute):
        return KNOWN
    base = dotted(flattened(function.value)[0])
    if base is None or base in arrays:
        element = ast.unparse(function.value)
        if isinstance(function.value, ast.Subscript) and last == "item":
            return f"leave it out: {element} is a number"
        if isinstance(function.value, ast.Subscript) and last in ("astype", "to"):
            return f"write the type as a function, float32({element})"
        if last in FUNCTIONS:
            return f"write it as a function, {last}({element})"
        return "an array has no methods here: subscript it, and write loops over its elements"
    return KNOWN


def alone_instead(value: ast.expr) -> str:
    """Return what to write instead of an expression that stands alone."""
    word = dotted(value.func) if isinstance(value, ast.Call) else dotted(value)
    if word in SECTIONS:
        return f"write with {ast.unparse(value)}:, and the statements below it"
    if word == "barrier":
        return "write barrier()"
    return "store what it gives in an array element, or leave it out"


def range_instead(node: ast.expr, variable: str) -> str:
    """Return how to write a loop over `node` as one over a range."""
    match node:
        case ast.Call(args=[ast.Call() as inner, *_]) if called(inner.func) == "range":
            return f"write for {variable} in {ast.unparse(inner)}"
        case ast.Call(args=bounds) if ast.unparse(node.func).endswith("range"):
            return f"write for {variable} in range({', '.join(map(ast.unparse, bounds))})"
        case _:
            return f"write for {variable} in range(start, stop), and subscript with {variable}"
