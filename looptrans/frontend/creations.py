"""What `zeros((M, D))` and its like say about the array they make."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace

from looptrans.frontend.mistakes import UnsupportedExpression, WrongRank
from looptrans.frontend.syntax import MODULES, SPELLINGS, called, elements_of, short, span_of
from looptrans.ir.functions import CREATIONS
from looptrans.ir.index import Index, plain, variables
from looptrans.ir.program import Array, Element
from looptrans.ir.value import Const, Create

_FLOATS = "float float64 float32 float16 bfloat16 float8_e4m3 float8_e5m2 single"
_INTEGERS = "int int8 int16 int32 int64 long uint8 uint16 uint32 uint64"
KINDS: dict[str, Element] = {
    **dict.fromkeys(_FLOATS.split(), "float"),
    **dict.fromkeys(_INTEGERS.split(), "int"),
    "bool": "bool",
}
_OTHERS = ("complex", "object", "str")  # types as well, though none that elements can have


def one_by_one(statement: ast.stmt) -> list[ast.stmt]:
    """Return a statement, or one for each array where it makes several.

    m, l = full(M, -inf), zeros(M)        ->        m = full(M, -inf); l = zeros(M)
    """
    match statement:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            made = [isinstance(v, ast.Call) and called(v.func) in CREATIONS for v in values]
            named = [isinstance(target, ast.Name) for target in targets]
            if len(targets) == len(values) and all((*made, *named)):
                parts = zip(targets, values, strict=True)
                return [ast.copy_location(ast.Assign([t], v), statement) for t, v in parts]
    return [statement]


def extents_of(node: ast.Call) -> list[ast.expr]:
    """Return the extents of a creation: of `zeros((M, N))`, or, as torch has it, `zeros(M, N)`.

    The call has arguments. What stands beside a shape may be a fill or a dtype.
    """
    first, *others = node.args
    if isinstance(first, ast.Tuple | ast.List) or called(node.func) == "full":
        return elements_of(first)
    extents = [first, *others]
    return [first] if any(_is_element(each) for each in others) else extents


def _is_element(node: ast.expr) -> bool:
    """Tell whether an expression is spelled like a dtype."""
    match node:
        case ast.Name(id=name):
            return SPELLINGS.get(name, name) in KINDS or name in _OTHERS
        case ast.Attribute(value=ast.Name(id=module)) if module in MODULES:
            return True
        case ast.Attribute(attr=name):
            return name == "dtype" or SPELLINGS.get(name, name) in KINDS
        case _:
            return isinstance(node, ast.Constant) and isinstance(node.value, str)


def creation_element(node: ast.expr, function: str, arrays: Mapping[str, Array]) -> str | None:
    """Read a `dtype`: `np.int32`, `"int32"`, `int`, or `A.dtype` for an array A."""
    match node:
        case ast.Attribute(value=ast.Name(id=array), attr="dtype") if array in arrays:
            element = arrays[array].element
            return None if element == "float" else element
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(), attr=name):
            pass
        case ast.Constant(value=str(name)):
            pass
        case _:
            name = ""
    name = SPELLINGS.get(name, name)
    if name not in KINDS:
        raise UnsupportedExpression(
            f"{short(node)} is no element type",
            span_of(node),
            why="what stands beside the shape is the dtype",
            remedy=f"{function}((M, N)), with dtype=int or another type where needed",
        )
    return name


def created(array: Array, create: Create, node: ast.expr, *, again: bool) -> Array:
    """Return the array with the shape and the element type that a creation gives it.

    Args:
        array: What is known so far.
        create: The creation.
        node: Where it stands.
        again: Whether another one created it before; what they disagree about is then unknown.
    """
    if array.rank != len(create.shape):
        raise WrongRank(
            f"{array.name!r} is made with {len(create.shape)} "
            f"dimension{'' if len(create.shape) == 1 else 's'} and used with {array.rank}",
            span_of(node),
            remedy="make the shape fit the subscripts",
        )
    shape: tuple[Index | None, ...] = tuple(_fixed(extent) for extent in create.shape)
    if again:
        shape = tuple(a if a == b else None for a, b in zip(array.shape, shape, strict=True))
    element: Element = "float"
    if create.element is not None:
        element = KINDS[create.element]
    elif isinstance(create.fill, Const) and isinstance(create.fill.value, bool):
        element = "bool"
    return replace(array, shape=shape, element=element)


def _fixed(extent: Index) -> Index | None:
    bare = plain(extent)
    return None if variables(bare) else bare
