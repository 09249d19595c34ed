"""What every name of a listing stands for, found before its statements are read.

A listing declares little. A name is a loop variable where a `for` binds it; an array where it is
subscripted, annotated with a shape or created; a size where it stands in a bound, guard,
subscript or shape; a real parameter where it is an argument that only values use; and a scalar
where it is assigned.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from looptrans.frontend.annotations import (
    NAMES,
    Shape,
    kind_of,
    kind_of_element,
    says_its_type,
    shape_of,
)
from looptrans.frontend.extents import read_off, with_shapes_written
from looptrans.frontend.mistakes import (
    BadAnnotation,
    NameTaken,
    SyntaxMistake,
    UnsupportedStatement,
    WrongRank,
)
from looptrans.frontend.ranks import HIGHEST, find_ranks
from looptrans.frontend.syntax import (
    ARRAY_ATTRIBUTES,
    MODULES,
    called,
    dotted,
    literal_number,
    span_of,
)
from looptrans.frontend.usage import Usage, find_usage
from looptrans.ir.diagnostic import Mistake
from looptrans.ir.index import Index, Param
from looptrans.ir.listing import index_text
from looptrans.ir.program import Array, Element, Parameter, ParameterKind
from looptrans.ir.source import Span


@dataclass(slots=True)
class Names:
    """The roles of the names of one listing.

    Attributes:
        arguments: The function's arguments, in order.
        parameters: Parameters by name.
        arrays: Arrays and scalars by name; the rank of a scalar is 0.
        loop_variables: Everything a `for` binds.
        assigned: Every name the body assigns as a whole.
        assigned_elements: Every array of which the body assigns an element or a row.
    """

    arguments: list[str] = field(default_factory=list)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    loop_variables: set[str] = field(default_factory=set)
    assigned: set[str] = field(default_factory=set)
    assigned_elements: set[str] = field(default_factory=set)

    def is_bound(self, name: str, *, loops: bool = True) -> bool:
        """Whether the listing itself gives a name a meaning, that of a loop variable included."""
        return (
            name in self.arrays
            or name in self.parameters
            or name in self.arguments
            or (loops and name in self.loop_variables)
        )

    def called(self, function: ast.expr) -> str | None:
        """Return the language's name of a called function, None where the name is taken.

        Raises:
            NameTaken: The listing uses the name for something else.
        """
        name = called(function)
        base = dotted(function) or ""
        base = base.partition(".")[0]
        if name is not None and self.is_bound(base):
            raise NameTaken(
                f"{base!r} is called, and is also a name of the listing",
                span_of(function),
                why="one name cannot be both a function and a number",
                remedy=f"rename the one of the listing, e.g. {base}_",
            )
        return name

    def add_size(self, name: str, span: Span) -> None:
        """Note a size the first time it is seen."""
        if name not in self.parameters:
            self.parameters[name] = Parameter(name, "size", span=span)


def find_names(
    arguments: ast.arguments | None, body: list[ast.stmt]
) -> tuple[Names, list[ast.stmt], list[Mistake]]:
    """Decide what each name of a listing is.

    Args:
        arguments: The function's arguments, or None for bare loops.
        body: Its statements; helpers are already put in.

    Returns:
        The roles, the statements without those that only declare sizes, and what is wrong with
        the signature.
    """
    finder = _Finder(arguments)
    finder.signature()
    body = finder.extents(body)
    integers = {name for name, shape in finder.shapes.items() if shape.element == "int"}
    finder.usage = find_usage(body, integers)
    finder.ranks = find_ranks(
        body,
        {name: len(shape.extents) for name, shape in finder.shapes.items()},
        {name: max(sizes) + 1 for name, sizes in finder.read.items() if sizes},
    )
    finder.conclude()
    return finder.names, body, finder.mistakes


class _Finder:
    """The steps of `find_names`, in order."""

    def __init__(self, arguments: ast.arguments | None) -> None:
        self.syntax = arguments
        self.names = Names()
        self.mistakes: list[Mistake] = []
        self.shapes: dict[str, Shape] = {}
        self.read: dict[str, dict[int, str]] = {}
        self.usage = Usage()
        self.ranks: dict[str, int] = {}

    def signature(self) -> None:
        """Read the shapes in the annotations."""
        if self.syntax is None:
            return
        for argument in _all_arguments(self.syntax):
            if argument.arg in self.names.arguments:
                self.mistakes.append(
                    SyntaxMistake(
                        f"not valid Python: two arguments are called {argument.arg!r}",
                        span_of(argument),
                        why="a listing is ordinary Python text",
                        remedy="leave one out, or give it a name of its own",
                    )
                )
                continue
            self.names.arguments.append(argument.arg)
            try:
                shape = shape_of(argument.annotation)
            except BadAnnotation as mistake:
                self.mistakes.append(mistake)
                continue
            if shape is not None:
                self.shapes[argument.arg] = shape
        odd = self.syntax.vararg or self.syntax.kwarg
        if odd is not None:
            self.mistakes.append(
                UnsupportedStatement(
                    "the function takes any number of arguments",
                    span_of(odd),
                    why="every array and size of a listing has a name",
                    remedy="name every argument",
                )
            )

    def extents(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Take out the lines that declare sizes."""
        if self.syntax is None:
            return body
        declared = {
            name: [e.name if isinstance(e, Param) else None for e in shape.extents]
            for name, shape in self.shapes.items()
        }
        ranks = {name: len(shape.extents) for name, shape in self.shapes.items()}
        alike = {
            a.arg
            for a in _all_arguments(self.syntax)
            if a.arg in ranks
            and self.shapes[a.arg].element == "float"
            and not says_its_type(a.annotation)
        }
        body = with_shapes_written(body, ranks, alike)
        body, self.read = read_off(body, set(self.names.arguments), declared)
        return body

    def conclude(self) -> None:
        """Give every name its role."""
        names, usage = self.names, self.usage
        names.loop_variables = usage.loop_variables
        names.assigned = set(usage.assigned)
        names.assigned_elements = usage.assigned_elements
        for argument in _all_arguments(self.syntax):
            self._argument(argument)
        self._defaults()
        for name, node in usage.order.items():
            if not names.is_bound(name) and name not in names.assigned:
                self._free(name, node)
        for name, node in usage.assigned.items():
            if name not in names.arrays and name not in names.parameters:
                self._assigned(name, node)
        endless = [name for name, array in names.arrays.items() if array.rank >= HIGHEST]
        if endless:  # what is set from the first of them is endless with it
            name = next((each for each in usage.order if each in endless), endless[0])
            self.mistakes.append(
                WrongRank(
                    f"{name!r} would need ever more dimensions",
                    span_of(usage.order[name]) if name in usage.order else names.arrays[name].span,
                    why="it is used both as an array and as an element of itself",
                    remedy="use two names",
                )
            )

    def _argument(self, argument: ast.arg) -> None:
        name, annotation, span = argument.arg, argument.annotation, span_of(argument)
        names, usage = self.names, self.usage
        text = None if annotation is None else _text(annotation)
        shape = self.shapes.get(name)
        if shape is not None:
            self._sizes_of(shape, span_of(annotation or argument))
            names.arrays[name] = Array(
                name,
                len(shape.extents),
                shape.element,
                "input",
                shape.extents,
                shape.values,
                text,
                span=span,
            )
        elif name in usage.subscripted or self.ranks.get(name, 0) or name in self.read:
            if kind_of(annotation) is not None:
                self.mistakes.append(
                    WrongRank(
                        f"{name!r} is annotated as a number, and used as an array",
                        span_of(annotation or argument),
                        remedy=f'annotate it, {name}: Float[Array, "…"], or leave that out',
                    )
                )
            names.arrays[name] = self._plain(name, text, span)
        elif name in usage.assigned:
            names.arrays[name] = Array(name, 0, "float", "input", (), None, text, span=span)
        elif not any(other.startswith(name + ".") for other in usage.order):
            kind = self._kind(name, annotation)
            names.parameters.setdefault(name, Parameter(name, kind, text, span=span))
            names.parameters[name] = replace(names.parameters[name], kind=kind, annotation=text)

    def _kind(self, name: str, annotation: ast.expr | None) -> ParameterKind:
        stated = kind_of(annotation) or kind_of_element(annotation)
        if stated is not None and not (stated == "size" and name in self.usage.seeds):
            return stated
        if name in self.usage.seeds:
            return "seed"
        sized = any(name in shape.sizes for shape in self.shapes.values())
        return "size" if sized or name in self.usage.in_index else "real"

    def _sizes_of(self, shape: Shape, span: Span) -> None:
        stated = {a.arg: kind_of(a.annotation) for a in _all_arguments(self.syntax)}
        for size in shape.sizes:
            what = (
                "assigned"
                if size in self.usage.assigned
                else "a loop variable"
                if size in self.usage.loop_variables
                else "an array"
                if size in self.shapes or size in self.usage.subscripted
                else "a real number"
                if stated.get(size) == "real"
                else ""
            )
            if what:
                self.mistakes.append(
                    BadAnnotation(
                        f"the size {size!r} of the annotation is also {what}",
                        span,
                        why="a size is fixed during a run",
                        remedy="use another name for one of the two",
                    )
                )
            self.names.add_size(size, span)

    def _plain(self, name: str, text: str | None, span: Span) -> Array:
        """An array without a shape in its annotation; its sizes may be read off it."""
        element: Element = "int" if name in self.usage.index_arrays else "float"
        rank = self.ranks.get(name, 0)
        shape: list[Index | None] = [None] * rank
        for dimension, size in self.read.get(name, {}).items():
            if size != "_":
                self.names.add_size(size, span)
                shape[dimension] = Param(size)
        if name in self.read:
            extents = " ".join("_" if e is None else index_text(e) for e in shape)
            text = f'{NAMES[element]}[Array, "{extents}"]'
        return Array(name, rank, element, "input", tuple(shape), None, text, span=span)

    def _defaults(self) -> None:
        for default, argument in _default_pairs(self.syntax):
            number = literal_number(default)
            parameter = self.names.parameters.get(argument.arg)
            if parameter is not None and number is not None:
                self.names.parameters[argument.arg] = replace(parameter, default=number)

    def _free(self, name: str, node: ast.AST) -> None:
        """Give a name that is neither an argument nor assigned its role, if it can have one."""
        base, _, attribute = name.partition(".")
        owned = bool(attribute) and base in self.names.arguments
        if (attribute and base in MODULES) or name in ("inf", "nan"):
            return
        if attribute in ARRAY_ATTRIBUTES and base != "self":
            return
        if attribute and self.names.is_bound(base) and not owned:
            return
        anything_goes = self.syntax is None or owned
        if name in self.usage.subscripted and (anything_goes or attribute):
            self.names.arrays[name] = self._plain(name, None, span_of(node))
        elif name in self.usage.in_index:
            self.names.add_size(name, span_of(node))
        elif anything_goes and name not in self.usage.subscripted:
            self.names.parameters[name] = Parameter(name, "real", span=span_of(node))

    def _assigned(self, name: str, node: ast.AST) -> None:
        rank = self.ranks.get(name, 0)
        # An attribute belongs to an object of the caller's; a number stored there stays visible.
        visible = "." in name and not rank
        self.names.arrays[name] = Array(
            name,
            rank,
            "float",
            "input" if visible else "local",
            (None,) * rank,
            span=span_of(node),
        )


def _text(annotation: ast.expr) -> str:
    """Return an annotation as text, in double quotes where that is possible."""
    text = ast.unparse(annotation)
    return text if '"' in text else text.replace("'", '"')


def _all_arguments(arguments: ast.arguments | None) -> list[ast.arg]:
    if arguments is None:
        return []
    star = [odd for odd in (arguments.vararg, arguments.kwarg) if odd is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *star]


def _default_pairs(arguments: ast.arguments | None) -> list[tuple[ast.expr, ast.arg]]:
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
