"""How the body of a listing uses its names, found before its statements are read."""

from __future__ import annotations

import ast
from collections import deque
from dataclasses import dataclass, field

from looptrans.frontend.creations import extents_of
from looptrans.frontend.syntax import (
    called,
    dotted,
    elements_of,
    flattened,
    loop_word,
    preorder,
    private_line,
    shape_read,
)
from looptrans.ir.functions import CREATIONS

_INDEX_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
_INDEX_FUNCTIONS = ("min", "max", "abs", "int", "int32", "int64", "len")


@dataclass(slots=True)
class Usage:
    """How names are used.

    Attributes:
        order: The names that are read or written, in the order of the text.
        in_index: The names that stand in index expressions, with a place where each does.
        index_arrays: The arrays that are read inside index expressions.
        subscripted: The arrays that are subscripted anywhere.
        seeds: The names given as the seed of `uniform`.
        loop_variables: Everything a `for` binds.
        assigned: Every name that is assigned as a whole.
        assigned_elements: Every array that is assigned through a subscript.
    """

    order: dict[str, ast.AST] = field(default_factory=dict)
    in_index: dict[str, ast.AST] = field(default_factory=dict)
    index_arrays: set[str] = field(default_factory=set)
    subscripted: set[str] = field(default_factory=set)
    seeds: set[str] = field(default_factory=set)
    loop_variables: set[str] = field(default_factory=set)
    assigned: dict[str, ast.AST] = field(default_factory=dict)
    assigned_elements: set[str] = field(default_factory=set)


def find_usage(body: list[ast.stmt], integers: set[str]) -> Usage:
    """Walk the statements of a listing once, and draw the conclusions about its sizes.

    Args:
        body: The statements.
        integers: The arrays that are declared to hold integers.
    """
    finder = _Finder()
    finder.usage.index_arrays |= integers
    for node in preorder(*body):
        finder.note(node)
    finder.conclude()
    return finder.usage


class _Finder:
    def __init__(self) -> None:
        self.usage = Usage()
        self.comparisons: list[ast.expr] = []
        self.definitions: dict[str, list[ast.expr]] = {}
        self.parts: set[int] = set()
        self.privates: set[int] = set()
        self.found: deque[str] = deque()

    def note(self, node: ast.AST) -> None:
        usage = self.usage
        if id(node) in self.privates:
            return
        match node:
            case ast.For(target=target) | ast.comprehension(target=target):
                names = (n.id for n in preorder(target) if isinstance(n, ast.Name))
                usage.loop_variables.update(names)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assigned(target, value)
            case ast.AugAssign(target=target, value=value):
                self._assigned(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assigned(target, value)
            case ast.AnnAssign() if private_line(node) is not None:
                # It says nothing of what the names are.
                self.privates.update(id(part) for part in preorder(node))
            case ast.Call():
                self._call(node)
            case ast.Subscript():
                self._subscript(node)
            case ast.Assert(test=test):
                self.mark(test)
            case ast.Compare(left=left, comparators=others):
                self.comparisons += [
                    ast.Tuple([first, second], ast.Load())
                    for first, second in zip([left, *others], others, strict=False)
                ]
            case ast.Name() | ast.Attribute() if id(node) not in self.parts:
                if isinstance(node, ast.Attribute):
                    self.parts.update(id(n) for n in preorder(node.value))
                name = dotted(node)
                if name is not None and shape_read(node) is None:
                    usage.order.setdefault(name, node)
            case _:
                pass

    def _call(self, node: ast.Call) -> None:
        self.parts.update(id(n) for n in preorder(node.func))
        word = loop_word(node.func)
        if isinstance(node.func, ast.Attribute) and called(node.func) is None and word is None:
            self.parts -= {id(n) for n in preorder(node.func.value)}
        name = called(node.func)
        if word is not None:
            for argument in node.args:
                self.mark(argument)
        elif name in CREATIONS and node.args:
            for extent in extents_of(node):
                self.mark(extent)
            for keyword in node.keywords:
                self.parts.update(id(n) for n in preorder(keyword.value))
        elif name == "uniform" and node.args:
            seed = dotted(node.args[0])
            if seed is not None:
                self.usage.seeds.add(seed)
            for argument in node.args[1:]:
                self.mark(argument)

    def _subscript(self, node: ast.Subscript) -> None:
        if shape_read(node) is not None:
            return
        base, subscripts = flattened(node)
        name = dotted(base)
        if name is not None:
            self.usage.subscripted.add(name)
            if isinstance(node.ctx, ast.Store):
                self.usage.assigned_elements.add(name)
        for subscript in subscripts:
            if not isinstance(subscript, ast.Slice):
                self.mark(subscript)

    def _assigned(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            values = elements_of(value)
            if len(values) != len(target.elts):
                values = [value] * len(target.elts)
            for one, other in zip(target.elts, values, strict=True):
                self._assigned(one, other)
            return
        name = dotted(target)
        if name is not None:
            self.usage.assigned.setdefault(name, target)
            self.definitions.setdefault(name, []).append(value)

    def mark(self, node: ast.AST) -> None:
        """Note every bare name of an index expression, and the arrays read in it."""
        stack = [node]
        while stack:
            top = stack.pop()
            match top:
                case ast.Subscript() | ast.Call() | ast.Attribute() if (
                    isinstance(top, ast.expr) and shape_read(top) is not None
                ):
                    pass
                case ast.Subscript():
                    base, subscripts = flattened(top)
                    name = dotted(base)
                    if name is not None:
                        self.usage.index_arrays.add(name)
                    stack.extend(subscripts)
                case ast.Call(args=arguments):
                    stack.extend(arguments)
                case ast.Name() | ast.Attribute():
                    name = dotted(top)
                    if name is not None:
                        self._mark_name(name, top)
                case _:
                    stack.extend(ast.iter_child_nodes(top))

    def _mark_name(self, name: str, node: ast.AST) -> None:
        if name not in self.usage.in_index:
            self.usage.in_index[name] = node
            self.found.append(name)

    def conclude(self) -> None:
        """Follow index expressions through integer scalars and comparisons to a fixed point.

        What defines a name of an index expression (`k = i + off` for `A[k]`) is one itself; a
        name compared with a loop variable or a size, and nothing else, is a size: `if i < K`.
        """
        waiting: dict[str, list[ast.expr]] = {}
        for comparison in self.comparisons:
            for name in self._leaves(comparison) or ():
                waiting.setdefault(name, []).append(comparison)
        self.found.extend(sorted(self.usage.loop_variables))
        self.found.extend(self._index_scalars())
        while self.found:
            name = self.found.popleft()
            if name in self.usage.in_index:
                for value in self.definitions.pop(name, ()):
                    if self._leaves(value, arrays=True) is not None:
                        self.mark(value)
            for comparison in waiting.pop(name, ()):
                for leaf in self._leaves(comparison) or ():
                    if leaf not in self.usage.assigned:
                        self._mark_name(leaf, comparison)

    def _index_scalars(self) -> list[str]:
        """Return the scalars that are only ever set to index expressions of known names."""
        return [
            name
            for name, values in self.definitions.items()
            if all(
                (leaves := self._leaves(value)) is not None
                and any(leaf in self.usage.loop_variables for leaf in leaves)
                for value in values
            )
        ]

    def _leaves(self, node: ast.expr, *, arrays: bool = False) -> list[str] | None:
        """Return the names of an expression that looks like an index expression, else None."""
        found: list[str] = []
        stack: list[ast.AST] = [node]
        while stack:
            top = stack.pop()
            match top:
                case ast.Name() | ast.Attribute():
                    name = dotted(top)
                    if name is None:
                        return None
                    found.append(name)
                case ast.Constant(value=value) if type(value) is int:
                    pass
                case ast.BinOp(op=operator, left=left, right=right) if isinstance(
                    operator, _INDEX_OPERATORS
                ):
                    stack += [left, right]
                case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
                    stack.append(operand)
                case ast.Call(func=function, args=arguments) if (
                    called(function) in _INDEX_FUNCTIONS
                ):
                    stack += arguments
                case ast.Subscript():
                    name = dotted(flattened(top)[0])
                    if not arrays and name not in self.usage.index_arrays:
                        return None
                case ast.Tuple(elts=elements):
                    stack += elements
                case _:
                    return None
        return found[::-1]
