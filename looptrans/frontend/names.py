"""What every name of a listing stands for, found before its statements are read.

A listing declares little. A name is a loop variable where a `for` binds it; an array where it is
subscripted, annotated with a shape or created; a size where it stands in a bound, guard,
subscript or shape; a real parameter where it is an argument that only values use; and a scalar
where it is assigned.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from looptrans.frontend.mistakes import BadAnnotation
from looptrans.ir.diagnostic import Mistake
from looptrans.ir.functions import CREATIONS
from looptrans.ir.index import Arith, Index, Int, Neg, Param
from looptrans.ir.program import Array, Element, Parameter, ParameterKind
from looptrans.ir.source import Span

MODULES = ("np", "numpy", "math", "torch", "jnp")
SPELLINGS = {
    "maximum": "max",
    "minimum": "min",
    "fmax": "max",
    "fmin": "min",
    "fabs": "abs",
    "absolute": "abs",
    "float_": "float64",
}
ELEMENTS: dict[str, Element] = {
    **dict.fromkeys(
        "Float Float16 Float32 Float64 BFloat16 Real Inexact Num Number Shaped".split(), "float"
    ),
    **dict.fromkeys("Int Int8 Int16 Int32 Int64 Integer UInt UInt8 UInt32".split(), "int"),
    "Bool": "bool",
}


def span_of(node: ast.AST) -> Span:
    """Return the place of a syntax node; columns count characters, as in the text."""
    line = getattr(node, "lineno", 0)
    column = getattr(node, "col_offset", 0)
    return Span(
        line,
        column,
        getattr(node, "end_lineno", line) or line,
        getattr(node, "end_col_offset", column + 1) or column + 1,
    )


def dotted(node: ast.expr) -> str | None:
    """Return `N` for a name, `self.N` for an attribute of a name, None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return None


def called(node: ast.expr) -> str | None:
    """Return the language's name of a called function: `exp` for `np.exp`, `max` for `np.maximum`."""
    if isinstance(node, ast.Name):
        return SPELLINGS.get(node.id, node.id)
    if (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in MODULES
    ):
        return SPELLINGS.get(node.attr, node.attr)
    return None


def flattened(node: ast.expr) -> tuple[ast.expr, list[ast.expr]]:
    """Split `A[i][j, k]` into its base and all its subscripts, left to right."""
    if not isinstance(node, ast.Subscript):
        return node, []
    base, subscripts = flattened(node.value)
    last = node.slice
    return base, subscripts + (last.elts if isinstance(last, ast.Tuple) else [last])


def preorder(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a syntax node and everything below it in the order of the text."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(list(ast.iter_child_nodes(top))))


def creation_of(node: ast.expr | None) -> ast.Call | None:
    """Return the call if an expression is `zeros(…)` or another creation."""
    if isinstance(node, ast.Call) and called(node.func) in CREATIONS:
        return node
    return None


@dataclass(slots=True)
class Names:
    """The roles of the names of one listing.

    Attributes:
        arguments: The function's arguments, in order.
        parameters: Parameters by name, in order of first appearance.
        arrays: Arrays and scalars by name; the rank of a scalar is 0.
        loop_variables: Everything a `for` binds.
        constants: Names the module sets to a number, with the number.
        helpers: Pure helper functions by name.
        assigned: Every name the body assigns.
        assigned_elements: Every array of which the body assigns an element or a row.
        declared: The arguments whose annotation gives a shape.
    """

    arguments: list[str] = field(default_factory=list)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    loop_variables: set[str] = field(default_factory=set)
    constants: dict[str, float | int] = field(default_factory=dict)
    helpers: dict[str, ast.FunctionDef | ast.Lambda] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)
    assigned_elements: set[str] = field(default_factory=set)
    declared: set[str] = field(default_factory=set)

    def add_parameter(
        self, name: str, kind: ParameterKind, annotation: str | None = None, span: Span | None = None
    ) -> None:
        """Note a parameter the first time it is seen."""
        if name not in self.parameters:
            self.parameters[name] = Parameter(name, kind, annotation, None, span or Span(0, 0, 0, 0))


@dataclass(slots=True)
class _Usage:
    """How the body uses its names, gathered in one walk."""

    order: list[str] = field(default_factory=list)
    in_index: dict[str, ast.AST] = field(default_factory=dict)
    subscripted: dict[str, int] = field(default_factory=dict)
    index_arrays: set[str] = field(default_factory=set)
    seeds: set[str] = field(default_factory=set)
    in_values: set[str] = field(default_factory=set)


def _mark_index(node: ast.AST, usage: _Usage) -> None:
    """Note every bare name of an index expression, and the arrays read in it."""
    if isinstance(node, ast.Subscript):
        base, subscripts = flattened(node)
        name = dotted(base)
        if name is not None:
            usage.index_arrays.add(name)
        for subscript in subscripts:
            _mark_index(subscript, usage)
        return
    if isinstance(node, ast.Call):
        for argument in node.args:
            _mark_index(argument, usage)
        return
    if isinstance(node, ast.Name | ast.Attribute):
        name = dotted(node)
        if name is not None:
            usage.in_index.setdefault(name, node)
        return
    for child in ast.iter_child_nodes(node):
        _mark_index(child, usage)


def _gather(body: list[ast.stmt], loop_variables: set[str]) -> _Usage:
    usage = _Usage()
    comparisons: list[ast.Compare] = []
    called_names: set[int] = set()
    for statement in body:
        for node in preorder(statement):
            match node:
                case ast.Call(func=function):
                    called_names.add(id(function))
                    name = called(function)
                    if name == "range":
                        for argument in node.args:
                            _mark_index(argument, usage)
                    elif name in CREATIONS and node.args:
                        _mark_index(node.args[0], usage)
                    elif name == "uniform" and node.args:
                        seed = dotted(node.args[0])
                        if seed is not None:
                            usage.seeds.add(seed)
                        for argument in node.args[1:]:
                            _mark_index(argument, usage)
                case ast.Subscript():
                    base, subscripts = flattened(node)
                    name = dotted(base)
                    if name is not None:
                        usage.subscripted[name] = max(
                            usage.subscripted.get(name, 0), len(subscripts)
                        )
                    for subscript in subscripts:
                        if not isinstance(subscript, ast.Slice):
                            _mark_index(subscript, usage)
                case ast.Assert(test=test):
                    _mark_index(test, usage)
                case ast.Compare():
                    comparisons.append(node)
                case ast.Name() | ast.Attribute():
                    name = dotted(node)
                    if name is not None and id(node) not in called_names:
                        usage.order.append(name)
                case _:
                    pass
    _sizes_in_comparisons(comparisons, usage, loop_variables)
    return usage


def _sizes_in_comparisons(
    comparisons: list[ast.Compare], usage: _Usage, loop_variables: set[str]
) -> None:
    """A name compared with a loop variable or a size, and nothing else, is a size: `if i < K`."""
    changed = True
    while changed:
        changed = False
        for comparison in comparisons:
            leaves = [
                leaf
                for leaf in preorder(comparison)
                if isinstance(leaf, ast.Name | ast.Subscript | ast.Call | ast.Constant | ast.Div)
            ]
            if any(
                isinstance(leaf, ast.Subscript | ast.Call | ast.Div)
                or (isinstance(leaf, ast.Constant) and not isinstance(leaf.value, int))
                for leaf in leaves
            ):
                continue
            names = [leaf.id for leaf in leaves if isinstance(leaf, ast.Name)]
            if any(name in loop_variables or name in usage.in_index for name in names):
                for leaf in leaves:
                    if isinstance(leaf, ast.Name) and leaf.id not in usage.in_index:
                        usage.in_index[leaf.id] = leaf
                        changed = True


def _bound_names(body: list[ast.stmt]) -> tuple[set[str], set[str], dict[str, ast.Lambda]]:
    """Return the loop variables, the assigned names and the lambdas of a body."""
    loop_variables: set[str] = set()
    assigned: set[str] = set()
    lambdas: dict[str, ast.Lambda] = {}
    for statement in body:
        for node in preorder(statement):
            match node:
                case ast.For(target=target) | ast.comprehension(target=target):
                    loop_variables.update(n.id for n in ast.walk(target) if isinstance(n, ast.Name))
                case ast.Assign(targets=targets, value=value):
                    if isinstance(value, ast.Lambda) and isinstance(targets[0], ast.Name):
                        lambdas[targets[0].id] = value
                        continue
                    for target in targets:
                        assigned.update(_assigned(target))
                case ast.AugAssign(target=target) | ast.AnnAssign(target=target, value=ast.expr()):
                    assigned.update(_assigned(target))
                case _:
                    pass
    return loop_variables, assigned, lambdas


def _stored_elements(body: list[ast.stmt]) -> set[str]:
    """Return the arrays that are assigned through a subscript."""
    return {
        name
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        if (name := dotted(flattened(node)[0])) is not None
    }


def _assigned(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _assigned(element)
        return
    name = dotted(target)
    if name is not None:
        yield name


def find_names(
    arguments: ast.arguments | None,
    body: list[ast.stmt],
    constants: dict[str, float | int],
    helpers: dict[str, ast.FunctionDef | ast.Lambda],
) -> tuple[Names, list[Mistake]]:
    """Decide what each name of a listing is.

    Args:
        arguments: The function's arguments, or None for bare loops.
        body: Its statements; nested helper functions are already taken out.
        constants: Numbers the module sets.
        helpers: Helper functions by name.

    Returns:
        The roles, and what is wrong with the annotations.
    """
    names = Names(constants=dict(constants), helpers=dict(helpers))
    mistakes: list[Mistake] = []
    names.loop_variables, names.assigned, lambdas = _bound_names(body)
    names.helpers |= lambdas
    names.assigned_elements = _stored_elements(body)
    usage = _gather(body, names.loop_variables)
    for helper in names.helpers.values():
        usage.order.extend(_free_in_helper(helper))
    ranks = _ranks(body, usage)
    for argument in _all_arguments(arguments):
        names.arguments.append(argument.arg)
        mistakes.extend(_argument(argument, names, usage, ranks))
    for default, argument in _defaults(arguments):
        number = literal_number(default)
        if argument.arg in names.parameters and number is not None:
            old = names.parameters[argument.arg]
            names.parameters[argument.arg] = Parameter(
                old.name, old.kind, old.annotation, number, old.span
            )
    free = dict.fromkeys(usage.order)
    for name in free:
        if not _is_open(name, names):
            continue
        base = name.partition(".")[0]
        is_attribute = "." in name
        if is_attribute and (base not in names.arguments or base in names.arrays):
            continue
        if name in usage.subscripted and (arguments is None or is_attribute):
            element: Element = "int" if name in usage.index_arrays else "float"
            names.arrays[name] = _plain_array(name, ranks.get(name, 0), element)
        elif name in usage.in_index:
            names.add_parameter(name, "size", None, span_of(usage.in_index[name]))
        elif arguments is None or is_attribute:
            names.add_parameter(name, "real")
    for name in names.assigned:
        if name not in names.arrays and name not in names.parameters:
            rank = ranks.get(name, 0)
            names.arrays[name] = Array(name, rank, "float", "local", (None,) * rank)
    return names, mistakes


def _free_in_helper(helper: ast.FunctionDef | ast.Lambda) -> Iterator[str]:
    bound = {argument.arg for argument in _all_arguments(helper.args)}
    bound |= {
        node.id
        for node in ast.walk(helper)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    for node in preorder(helper):
        if isinstance(node, ast.Name) and node.id not in bound:
            yield node.id


def _is_open(name: str, names: Names) -> bool:
    """Tell whether a name still has no role."""
    taken = (
        names.parameters,
        names.arrays,
        names.loop_variables,
        names.constants,
        names.helpers,
        names.assigned,
        names.arguments,
        MODULES,
        ("inf", "nan", "range", "all", "copy"),
    )
    return not any(name in group for group in taken)


def _plain_array(name: str, rank: int, element: Element, span: Span | None = None) -> Array:
    return Array(
        name, rank, element, "input", (None,) * rank, span=span or Span(0, 0, 0, 0)
    )


def _all_arguments(arguments: ast.arguments | None) -> list[ast.arg]:
    if arguments is None:
        return []
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def _defaults(arguments: ast.arguments | None) -> list[tuple[ast.expr, ast.arg]]:
    if arguments is None:
        return []
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = list(zip(reversed(arguments.defaults), reversed(positional), strict=False))
    pairs += [
        (default, argument)
        for default, argument in zip(arguments.kw_defaults, arguments.kwonlyargs, strict=True)
        if default is not None
    ]
    return pairs


def literal_number(node: ast.expr) -> float | int | None:
    """Return the number an expression spells, `1e-5` or `-2`, or None."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = literal_number(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value  # type: ignore[return-value]  # the type was just tested
    return None


def _argument(
    argument: ast.arg, names: Names, usage: _Usage, ranks: dict[str, int]
) -> Iterator[Mistake]:
    name, annotation, span = argument.arg, argument.annotation, span_of(argument)
    text = None if annotation is None else ast.unparse(annotation)
    shaped = _shaped(annotation)
    if shaped is not None:
        element, strings = shaped
        names.declared.add(name)
        try:
            shape = _shape(strings[0], names, annotation)
            bounds = _value_range(strings[1], names, annotation) if len(strings) > 1 else None
        except Mistake as mistake:
            yield mistake
            shape, bounds = (None,) * ranks.get(name, 0), None
        names.arrays[name] = Array(
            name, len(shape), element, "input", shape, bounds, text, span=span
        )
        return
    if name in usage.subscripted or ranks.get(name, 0):
        element = "int" if name in usage.index_arrays else "float"
        array = _plain_array(name, ranks.get(name, usage.subscripted.get(name, 0)), element, span)
        names.arrays[name] = Array(
            name, array.rank, element, "input", array.shape, None, text, span=span
        )
        return
    if any(other.startswith(name + ".") for other in usage.order):
        return
    if name in names.assigned:
        names.arrays[name] = Array(name, 0, "float", "input", (), None, text, span=span)
        return
    names.add_parameter(name, _parameter_kind(name, text, usage), text, span)


def _parameter_kind(name: str, annotation: str | None, usage: _Usage) -> ParameterKind:
    if annotation == "Const":
        return "const"
    if annotation == "Stride":
        return "stride"
    if annotation == "Seed" or name in usage.seeds:
        return "seed"
    if annotation is not None and annotation.lower().startswith("float"):
        return "real"
    if annotation == "int" or name in usage.in_index:
        return "size"
    return "real"


def _shaped(annotation: ast.expr | None) -> tuple[Element, list[str]] | None:
    """Read `Float[Array, "M E"]`; None where the annotation is of another kind."""
    if not isinstance(annotation, ast.Subscript):
        return None
    base = annotation.value
    name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", None)
    element = ELEMENTS.get(name or "")
    if element is None or not isinstance(annotation.slice, ast.Tuple):
        return None
    strings = [
        part.value
        for part in annotation.slice.elts[1:]
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]
    return (element, strings) if strings else None


def _shape(text: str, names: Names, place: ast.AST | None) -> tuple[Index | None, ...]:
    extents: list[Index | None] = []
    for token in text.split():
        cleaned = token.lstrip("#?").rpartition("=")[2]
        if "*" in cleaned[:1] or cleaned == "...":
            raise BadAnnotation(
                f"the shape {text!r} leaves the number of dimensions open",
                place and span_of(place),
                remedy="name every dimension",
            )
        extents.append(None if cleaned == "_" else _extent(cleaned, names, place))
    return tuple(extents)


def _value_range(text: str, names: Names, place: ast.AST | None) -> tuple[Index, Index]:
    low, colon, high = text.partition(":")
    if not colon:
        raise BadAnnotation(
            f"the range of values {text!r} is not low:high",
            place and span_of(place),
            remedy='write it as in Int[Array, "B T", "0:NP"], the upper end excluded',
        )
    return _extent(low.strip(), names, place), _extent(high.strip(), names, place)


def _extent(token: str, names: Names, place: ast.AST | None) -> Index:
    try:
        return _size_expression(ast.parse(token.strip(), mode="eval").body, names)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BadAnnotation(
            f"{token!r} is no extent",
            place and span_of(place),
            why="an extent is an integer, a size, or an expression of sizes without spaces",
            remedy="write it as in Float[Array, \"B H//R N+1\"]",
        ) from None


def _size_expression(node: ast.expr, names: Names) -> Index:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return Int(value)
        case ast.Name(id=name):
            if name in names.constants and isinstance(value := names.constants[name], int):
                return Int(value)
            if name in names.loop_variables or name in names.assigned:
                raise ValueError(name)
            names.add_parameter(name, "size")
            return Param(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return Neg(_size_expression(operand, names))
        case ast.BinOp(left=left, op=operator, right=right):
            symbols = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}
            symbol = symbols.get(type(operator))
            if symbol is None:
                raise ValueError(ast.unparse(node))
            return Arith(symbol, _size_expression(left, names), _size_expression(right, names))  # type: ignore[arg-type]  # one of the five
        case _:
            raise ValueError(ast.unparse(node))


def _ranks(body: list[ast.stmt], usage: _Usage) -> dict[str, int]:
    """Find the least rank of every array and row that its uses allow.

    `A[i, j]` needs rank 2; an operand of `@` is a row; `q = A[i]` ties the two names together.
    """
    ranks = dict(usage.subscripted)
    ties: list[tuple[str, ast.expr]] = []
    rows: list[ast.expr] = []
    for statement in body:
        for node in preorder(statement):
            match node:
                case ast.BinOp(left=left, op=ast.MatMult(), right=right):
                    rows += [left, right]
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    creation = creation_of(value)
                    if creation is not None and creation.args:
                        shape = creation.args[0]
                        rank = len(shape.elts) if isinstance(shape, ast.Tuple | ast.List) else 1
                        ranks[name] = max(rank, ranks.get(name, 0))
                    else:
                        ties.append((name, value))
                case _:
                    pass
    for _ in range(len(ties) + 2):
        before = dict(ranks)
        for row in rows:
            _require(row, 1, ranks)
        for name, value in ties:
            ranks[name] = max(ranks.get(name, 0), _expression_rank(value, ranks))
            _require(value, ranks[name], ranks)
        if ranks == before:
            break
    return ranks


def _view(node: ast.expr) -> tuple[str, int] | None:
    """Return the array and the number of fixed subscripts of `A`, `A[i]`, `A[i].copy()`."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "copy"
    ):
        node = node.func.value
    base, subscripts = flattened(node)
    name = dotted(base)
    if name is None:
        return None
    return name, sum(not isinstance(s, ast.Slice) for s in subscripts)


def _require(node: ast.expr, rank: int, ranks: dict[str, int]) -> None:
    view = _view(node)
    if view is not None and rank > 0:
        name, fixed = view
        ranks[name] = max(ranks.get(name, 0), fixed + rank)


def _expression_rank(node: ast.expr, ranks: dict[str, int]) -> int:
    view = _view(node)
    if view is not None:
        name, fixed = view
        return max(ranks.get(name, 0) - fixed, 0)
    match node:
        case ast.BinOp(op=ast.MatMult()):
            return 0
        case ast.BinOp(left=left, right=right):
            return max(_expression_rank(left, ranks), _expression_rank(right, ranks))
        case ast.UnaryOp(operand=operand):
            return _expression_rank(operand, ranks)
        case ast.IfExp(body=chosen, orelse=otherwise):
            return max(_expression_rank(chosen, ranks), _expression_rank(otherwise, ranks))
        case ast.Call(func=function, args=arguments):
            if called(function) in ("sum",) or (
                called(function) in ("max", "min") and len(arguments) == 1
            ):
                return 0
            return max((_expression_rank(a, ranks) for a in arguments), default=0)
        case _:
            return 0
