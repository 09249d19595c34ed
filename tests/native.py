"""Runs the text of a listing itself, under NumPy: what it means, with no looptrans in between.

looptrans never executes a listing. The tests do, and only listings of our own, so that the parser
and the executor have something independent to agree with.

The iterations of a `parallel` loop run one after another here, so only programs whose sequential
reading is the order of the text mean the same: those without barriers, or with nothing that tells
whether the iterations wait at them. Private names are ordinary ones.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_BUILTINS: dict[str, Any] = {
    f.__name__: f for f in (abs, all, any, bool, float, int, max, min, range, sum)
}


def run_native(source: str, function: str | None, **inputs: Any) -> dict[str, Any]:
    """Executes a listing as plain Python and returns its outputs by name.

    Args:
        source: the text of the listing; its imports are dropped, its annotations not evaluated.
        function: the function to run; None where the text has only one.
        **inputs: the arguments by name. Arrays are copied, so the caller's stay as they are. A name
            that is no argument is a size that no annotation gives (`N=5` for a bare function).

    Sizes come from the annotations: `Q: Float[Array, "M E"]` makes M and E the extents of `Q`.

    Returns:
        The names in the `return` statement, in its order, then each argument array that the
        listing stores to or that has changed, in the order of the arguments.

    Raises:
        ValueError: the text has no such function, an argument is missing, two arrays disagree about
            a size, or the function returns something that is not a name.
    """
    tree = _without_imports(ast.parse(source))
    definition = _find_function(tree, function)
    arguments = [argument.arg for argument in definition.args.args]
    missing = [name for name in arguments if name not in inputs]
    if missing:
        raise ValueError(f"{definition.name} needs {', '.join(missing)}")

    copies = {name: _copy(value) for name, value in inputs.items()}
    given = {name: value for name, value in copies.items() if name not in arguments}
    namespace = _namespace() | given | _sizes(definition, copies, given)

    code = compile(
        tree,
        "<listing>",
        "exec",
        flags=annotations.compiler_flag,
        dont_inherit=True,
    )
    with np.errstate(all="ignore"):  # as the machine does: inf and nan show up in the values
        exec(code, namespace)
        result = namespace[definition.name](*(copies[name] for name in arguments))

    outputs = _named_results(definition, result)
    stored = _stored_names(definition)
    for name in arguments:
        before, after = inputs[name], copies[name]
        if isinstance(after, np.ndarray) and (name in stored or _differs(before, after)):
            outputs.setdefault(name, after)
    return outputs


def _namespace() -> dict[str, Any]:
    """The names a listing may use without importing them."""
    functions = (np.exp, np.exp2, np.log, np.log2, np.sqrt, np.tanh, np.sin, np.cos)
    return {
        "__builtins__": _BUILTINS,
        **{f.__name__: f for f in functions},
        "where": _where,
        "inf": math.inf,
        "parallel": range,
        "prange": range,
        "atomic": _atomic,
        "reduce": _reduce,
        "barrier": lambda: None,
        "float32": np.float64,  # what is claimed is the mathematics
        "zeros": np.zeros,
        "ones": np.ones,
        "full": _full,
        "empty": lambda shape: np.full(shape, math.nan),  # so that reading too early shows
    }


@contextmanager
def _atomic(*, turn: int | None = None) -> Iterator[None]:
    yield


@contextmanager
def _reduce(operator: str) -> Iterator[None]:
    yield


def _where(condition: Any, a: Any, b: Any) -> Any:
    chosen: np.ndarray[Any, Any] = np.where(condition, a, b)
    return chosen[()]  # a number where all three are


def _full(shape: Any, value: Any, dtype: Any = None) -> np.ndarray[Any, Any]:
    """Like `zeros` and `ones`, floats unless told otherwise, also for `full(N, 0)`."""
    if dtype is None:
        dtype = np.bool_ if isinstance(value, (bool, np.bool_)) else np.float64
    return np.full(shape, value, dtype=dtype)


def _without_imports(tree: ast.Module) -> ast.Module:
    tree.body = [node for node in tree.body if not isinstance(node, (ast.Import, ast.ImportFrom))]
    return tree


def _find_function(tree: ast.Module, name: str | None) -> ast.FunctionDef:
    definitions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    found = [node for node in definitions if name in (None, node.name)]
    if len(found) != 1:
        names = ", ".join(node.name for node in definitions) or "none"
        raise ValueError(f"expected one function {name or ''}, the text defines: {names}")
    return found[0]


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _differs(before: Any, after: np.ndarray[Any, Any]) -> bool:
    """Whether any bit of the array changed, so that nan equals itself."""
    return bool(before.tobytes() != after.tobytes())


def _sizes(
    definition: ast.FunctionDef, inputs: dict[str, Any], given: dict[str, Any]
) -> dict[str, int]:
    """The extents that the shape strings name, agreeing with one another and with those given.

    A dimension that is no name, `N + 1` written without spaces or `3`, is checked against them.
    """
    sizes: dict[str, int] = dict(given)
    dimensions = list(_dimensions(definition, inputs))
    for name, dimension, extent in dimensions:
        if dimension.isidentifier() and sizes.setdefault(dimension, extent) != extent:
            raise ValueError(f"{name}: {dimension} is {sizes[dimension]} elsewhere, {extent} here")
    for name, dimension, extent in dimensions:
        if not dimension.isidentifier() and eval(dimension, {"__builtins__": {}}, sizes) != extent:
            raise ValueError(f"{name}: {dimension} is not {extent}")
    return sizes


def _dimensions(
    definition: ast.FunctionDef, inputs: dict[str, Any]
) -> Iterator[tuple[str, str, int]]:
    """(argument, dimension as written, extent) of every array argument with a shape string."""
    for argument in definition.args.args:
        match argument.annotation:
            case ast.Subscript(slice=ast.Tuple(elts=[_, ast.Constant(value=str(text)), *_])):
                shape, dimensions = np.shape(inputs[argument.arg]), text.split()
                if len(shape) != len(dimensions):
                    raise ValueError(f'{argument.arg}: "{text}" does not fit the shape {shape}')
                for dimension, extent in zip(dimensions, shape, strict=True):
                    yield argument.arg, dimension, extent


def _named_results(definition: ast.FunctionDef, result: Any) -> dict[str, Any]:
    """The function's result by the names that its `return` statement, the last, gives."""
    match definition.body[-1]:
        case ast.Return(value=ast.Tuple(elts=elements)):
            values = list(result)
        case ast.Return(value=ast.expr() as element):
            elements, values = [element], [result]
        case _:
            return {}
    names = [element.id for element in elements if isinstance(element, ast.Name)]
    if len(names) != len(elements):
        raise ValueError(f"{definition.name} returns something that is not a name")
    return dict(zip(names, values, strict=True))


def _stored_names(definition: ast.FunctionDef) -> set[str]:
    """The arrays with an element or a row as the target of an assignment."""

    def base(node: ast.expr) -> ast.expr:
        return base(node.value) if isinstance(node, ast.Subscript) else node

    targets = (
        base(node)
        for node in ast.walk(definition)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
    )
    return {target.id for target in targets if isinstance(target, ast.Name)}
