"""From syntax to index expressions, conditions and values."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from looptrans.frontend.mistakes import (
    BadStep,
    LoopNotOverRange,
    LoopVariableAssigned,
    NegativeSubscript,
    NonAffineIndex,
    TooDeep,
    UnknownFunction,
    UnsetName,
    UnsupportedExpression,
    WrittenIndexArray,
    WrongRank,
)
from looptrans.frontend.names import Names, called, dotted, flattened, span_of
from looptrans.ir.condition import (
    ALWAYS,
    Comparison,
    Condition,
    Data,
    Every,
    Not,
    Relation,
    Some,
    Truth,
)
from looptrans.ir.diagnostic import Mistake
from looptrans.ir.functions import CREATIONS, FUNCTIONS
from looptrans.ir.index import (
    Arith,
    ArithmeticOperator,
    Extremum,
    Index,
    Int,
    Let,
    Neg,
    Opaque,
    Param,
    Var,
    children,
    opaque_terms,
    rebuild,
    variables,
    walk,
)
from looptrans.ir.value import (
    WHOLE,
    Access,
    Binary,
    BinaryOperator,
    Call,
    Compare,
    Const,
    Create,
    CreationName,
    Generator,
    Holds,
    IndexValue,
    Range,
    Read,
    Real,
    Reduce,
    Select,
    Subscript,
    Unary,
    Value,
)

LARGEST_EXPRESSION = 20_000
DEEPEST_HELPER = 40
TYPE_NAMES = {"double": "float64", "half": "float16", "int_": "int", "bool_": "bool"}

_ARITHMETIC: dict[type[ast.operator], ArithmeticOperator] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_BINARY: dict[type[ast.operator], BinaryOperator] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
}
_COMPARISONS: dict[type[ast.cmpop], Comparison] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}


def without_lets(index: Index) -> Index:
    """Replace every integer scalar by the index expression it stands for."""
    if isinstance(index, Let):
        return without_lets(index.value)
    operands = children(index)
    return rebuild(index, tuple(without_lets(o) for o in operands)) if operands else index


@dataclass(slots=True)
class Scope:
    """What is known at one point of the text.

    Attributes:
        loops: The variables of the loops around this point.
        lets: Integer scalars that stand for an index expression here.
        set_so_far: Arrays and scalars that something above has set.
        pending: Everything the loops around this point set, further down included.
        may_come_later: `pending`, where the point is guarded: an earlier iteration may have set
            the name.
    """

    loops: list[str] = field(default_factory=list)
    lets: dict[str, Index] = field(default_factory=dict)
    set_so_far: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    may_come_later: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Expressions:
    """Reads the expressions of one listing; a mistake is raised where it stands."""

    names: Names
    scope: Scope = field(default_factory=Scope)
    _helper_depth: int = 0
    _size: int = 0

    # Index expressions

    def index(self, node: ast.expr) -> Index:
        """Read an index expression.

        Raises:
            Mistake: It is not affine, or reads something that is not fixed.
        """
        match node:
            case ast.Constant(value=value) if type(value) is int:
                return Int(value)
            case ast.Name() | ast.Attribute():
                return self._index_name(node)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if (
                type(value) is int
            ):
                return Int(-value)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return Neg(self.index(operand))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.index(operand)
            case ast.BinOp(op=operator) if type(operator) in _ARITHMETIC:
                return self._index_arithmetic(node)
            case ast.Call() if called(node.func) in ("min", "max") and len(node.args) > 1:
                self._no_keywords(node)
                name = "min" if called(node.func) == "min" else "max"
                return Extremum(name, tuple(self.index(a) for a in node.args))
            case ast.Call(args=[argument]) if called(node.func) in ("int", "int32", "int64"):
                return self.index(argument)
            case ast.Call(func=ast.Name(id="len"), args=[argument]) if dotted(argument):
                return self._extent(node, dotted(argument) or "", 0)
            case ast.Call(func=function) if called(function) in self.names.helpers:
                with self._inlining(node) as body:
                    return self.index(body)
            case ast.Subscript(
                value=ast.Attribute(value=base, attr="shape"),
                slice=ast.Constant(value=int(dimension)),
            ) if dotted(base):
                return self._extent(node, dotted(base) or "", dimension)
            case ast.Subscript():
                return self._opaque(node)
            case _:
                raise NonAffineIndex(
                    f"{ast.unparse(node)!r} is not an affine index expression",
                    span_of(node),
                    why="bounds, guards and subscripts must be affine in loop variables and sizes",
                    remedy="write it with + - * // % and min, max of loop variables and sizes",
                )

    def _index_name(self, node: ast.Name | ast.Attribute) -> Index:
        name = dotted(node) or ast.unparse(node)
        names = self.names
        if name in self.scope.loops:
            return Var(name)
        if name in self.scope.lets and name in names.arrays:
            return Let(name, self.scope.lets[name])
        if name in names.parameters:
            if not names.parameters[name].is_integer:
                raise NonAffineIndex(
                    f"{name!r} is a real number, and stands in an index expression",
                    span_of(node),
                    remedy=f"annotate it as an integer: {name}: int",
                )
            return Param(name)
        if name in names.constants:
            value = names.constants[name]
            if isinstance(value, int):
                return Int(value)
            raise NonAffineIndex(
                f"{name!r} is {value!r}, which is no integer", span_of(node), remedy="use an integer"
            )
        if name in names.loop_variables and name not in names.assigned:
            raise self._outside_loop(name, node)
        if name in names.arrays:
            self.require_set(name, node)
            if names.arrays[name].rank == 0:
                raise WrittenIndexArray(
                    f"{name!r} stands in an index expression, but is not one itself here",
                    span_of(node),
                    why="its value depends on data, or on which assignment ran last",
                    remedy=f"set {name} to an affine expression of loop variables just before, or "
                    "read it from an integer array that the nest does not write",
                )
            raise WrongRank(
                f"the array {name!r} stands in an index expression as a whole",
                span_of(node),
                remedy="subscript it",
            )
        raise self._unset(name, node)

    def _index_arithmetic(self, node: ast.BinOp) -> Index:
        operator = _ARITHMETIC[type(node.op)]
        left, right = self.index(node.left), self.index(node.right)
        bare_left, bare_right = without_lets(left), without_lets(right)
        if operator == "*" and not (_is_fixed(bare_left) or _is_fixed(bare_right)):
            raise NonAffineIndex(
                f"{ast.unparse(node)!r} multiplies two things that vary",
                span_of(node),
                why="an index expression is affine: loop variables times constants or sizes",
                remedy="use two subscripts, A[i, j], instead of one computed from both",
            )
        if operator in ("//", "%"):
            if not _is_fixed(bare_right):
                raise NonAffineIndex(
                    f"{ast.unparse(node)!r} divides by something that varies",
                    span_of(node),
                    why="floor division and modulo are affine only by a constant or a size",
                    remedy="divide by an integer or by a size parameter",
                )
            if isinstance(bare_right, Int) and bare_right.value <= 0:
                raise NonAffineIndex(
                    f"{ast.unparse(node)!r} divides by {bare_right.value}",
                    span_of(node),
                    remedy="divide by a positive integer",
                )
        return Arith(operator, left, right)

    def _opaque(self, node: ast.Subscript) -> Index:
        base, subscripts = flattened(node)
        name = dotted(base)
        if name is None or name not in self.names.arrays:
            if name is not None and name not in self.names.loop_variables:
                raise self._unset(name, node)
            raise NonAffineIndex(
                f"{ast.unparse(node)!r} is not an affine index expression",
                span_of(node),
                remedy="only elements of integer arrays may stand in an index expression",
            )
        array = self.names.arrays[name]
        if array.element != "int":
            raise WrittenIndexArray(
                f"{name!r} holds no integers, and stands in an index expression",
                span_of(node),
                why="bounds and subscripts are integers",
                remedy=f'annotate it: {name}: Int[Array, "…"]',
            )
        if name in self.names.assigned_elements:
            raise WrittenIndexArray(
                f"{name!r} stands in an index expression, and the nest writes it",
                span_of(node),
                why="which cell is meant would depend on when it is asked",
                remedy="compute the indices in a listing of their own, and pass them as an argument",
            )
        if array.rank != len(subscripts):
            raise self._rank_mistake(node, name, len(subscripts))
        return Opaque(name, tuple(self._subscript_index(s) for s in subscripts))

    def _extent(self, node: ast.expr, name: str, dimension: int) -> Index:
        array = self.names.arrays.get(name)
        if array is None or not 0 <= dimension < array.rank:
            raise NonAffineIndex(f"{name!r} has no dimension {dimension}", span_of(node))
        extent = array.shape[dimension]
        if extent is not None:
            return extent
        parameter = f"{name}.shape[{dimension}]"
        self.names.add_parameter(parameter, "size", None, span_of(node))
        return Param(parameter)

    def _subscript_index(self, node: ast.expr) -> Index:
        index = self.index(node)
        if isinstance(index, Int) and index.value < 0:
            raise NegativeSubscript(
                f"the subscript {index.value} is negative",
                span_of(node),
                why="NumPy would count from the end; in a listing a subscript means itself",
                remedy="write the extent minus something, e.g. A[N - 1]",
            )
        return index

    def try_index(self, node: ast.expr) -> Index | None:
        """Read an index expression, or return None where it is not one."""
        try:
            return self.index(node)
        except Mistake:
            return None

    def range(self, node: ast.expr, variable: str) -> Range:
        """Read the `range(…)` a loop runs over."""
        if not (isinstance(node, ast.Call) and called(node.func) == "range"):
            raise LoopNotOverRange(
                f"the loop over {variable!r} runs over {ast.unparse(node)[:60]!r}",
                span_of(node),
                why="only a range has iterations that are known exactly",
                remedy=f"write for {variable} in range(start, stop), and subscript with {variable}",
            )
        self._no_keywords(node)
        if not 1 <= len(node.args) <= 3 or any(isinstance(a, ast.Starred) for a in node.args):
            raise LoopNotOverRange(
                "range takes one, two or three numbers", span_of(node), remedy="range(start, stop)"
            )
        step = 1
        if len(node.args) == 3:
            number = self._constant_step(node.args[2])
            if number is None or number == 0:
                raise BadStep(
                    f"the step {ast.unparse(node.args[2])!r} is "
                    + ("zero" if number == 0 else "no constant"),
                    span_of(node.args[2]),
                    why="the order of the iterations must be known",
                    remedy="use a constant step; count blocks with a step of 1 and multiply by "
                    "the block size instead",
                )
            step = number
        bounds = [self.index(argument) for argument in node.args[:2]]
        start, stop = bounds if len(bounds) == 2 else (Int(0), bounds[0])
        return Range(start, stop, step)

    def _constant_step(self, node: ast.expr) -> int | None:
        index = self.try_index(node)
        return index.value if isinstance(index, Int) else None

    # Conditions

    def condition(self, node: ast.expr) -> Condition:
        """Read a test: comparisons of index expressions stay exact, the rest is `Data`."""
        match node:
            case ast.Constant(value=bool(value)):
                return Truth(value)
            case ast.BoolOp(op=ast.And(), values=values):
                return Every(tuple(self.condition(v) for v in values))
            case ast.BoolOp(op=ast.Or(), values=values):
                return Some(tuple(self.condition(v) for v in values))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Not(self.condition(operand))
            case ast.Compare(left=first, ops=operators, comparators=others):
                parts: list[Condition] = []
                left = first
                for operator, right in zip(operators, others, strict=True):
                    parts.append(self._comparison(node, left, operator, right))
                    left = right
                return parts[0] if len(parts) == 1 else Every(tuple(parts))
            case ast.Call(func=function) if called(function) in self.names.helpers:
                with self._inlining(node) as body:
                    return self.condition(body)
            case _:
                value = self.value(node)
                if isinstance(value, Holds):
                    return value.condition
                self._require_rank(value, 0, node)
                return Data(value)

    def _comparison(
        self, whole: ast.expr, left: ast.expr, operator: ast.cmpop, right: ast.expr
    ) -> Condition:
        symbol = _COMPARISONS.get(type(operator))
        if symbol is None:
            raise UnsupportedExpression(
                f"{ast.unparse(whole)[:60]!r} uses a comparison outside the language",
                span_of(whole),
                remedy="compare with <, <=, >, >=, == or !=",
            )
        left_index, right_index = self.try_index(left), self.try_index(right)
        if left_index is not None and right_index is not None:
            return Relation(symbol, left_index, right_index)
        left_value, right_value = self.value(left), self.value(right)
        self._require_rank(left_value, 0, left)
        self._require_rank(right_value, 0, right)
        return Data(Compare(symbol, left_value, right_value))

    # Values

    def value(self, node: ast.expr) -> Value:
        """Read a value.

        Raises:
            Mistake: It is outside the language, or its ranks do not fit.
        """
        self._size += 1
        if self._size > LARGEST_EXPRESSION:
            raise TooDeep(
                "the expression is too large", span_of(node), remedy="split it with a temporary"
            )
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Name | ast.Attribute | ast.Call):
            index = self.try_index(node)
            if index is not None and _is_plain(index):
                return Const(index.value) if isinstance(index, Int) else IndexValue(index)
        match node:
            case ast.Constant(value=value) if isinstance(value, bool | int | float):
                return Const(value)
            case ast.Name() | ast.Attribute():
                return self._named_value(node)
            case ast.Subscript():
                return Read(self.access(node))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return Unary("-", self._number(operand))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return Unary("+", self._number(operand))
            case ast.BinOp(op=operator) if type(operator) in _BINARY:
                return self._binary(node)
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return self._truth_value(self.condition(node))
            case ast.IfExp(test=test, body=chosen, orelse=otherwise):
                condition = self.condition(test)
                with self.guarded():
                    picked, other = self._number(chosen), self._number(otherwise)
                self.join(picked, other, node)
                return Select(condition, picked, other)
            case ast.Call():
                return self._call(node)
            case _:
                raise UnsupportedExpression(
                    f"{ast.unparse(node)[:60]!r} is outside the listing language",
                    span_of(node),
                    why="a listing is read, never executed; see looptrans explain E007",
                    remedy="compute with numbers, array elements and rows",
                )

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Read what stands under a guard: an earlier iteration may have set its names."""
        before = self.scope.may_come_later
        self.scope.may_come_later = before | self.scope.pending
        try:
            yield
        finally:
            self.scope.may_come_later = before

    @staticmethod
    def _truth_value(condition: Condition) -> Value:
        return condition.value if isinstance(condition, Data) else Holds(condition)

    def _number(self, node: ast.expr) -> Value:
        value = self.value(node)
        if isinstance(value, Create):
            raise UnsupportedExpression(
                "a new array cannot stand inside an expression",
                span_of(node),
                remedy="give it a name first",
            )
        return value

    def _named_value(self, node: ast.Name | ast.Attribute) -> Value:
        name = dotted(node)
        if name is None:
            raise UnsupportedExpression(
                f"{ast.unparse(node)[:60]!r} is outside the listing language", span_of(node)
            )
        if name in ("inf", "nan", *(f"{m}.{w}" for m in ("np", "math") for w in ("inf", "nan"))):
            return Const(float(name.rpartition(".")[2]))
        if name in ("math.pi", "np.pi"):
            return Const(3.141592653589793)
        if name in self.names.arrays:
            self.require_set(name, node)
            return Read(Access(name, (WHOLE,) * self.names.arrays[name].rank))
        if name in self.names.parameters:
            return Real(name)
        if name in self.names.constants:
            return Const(self.names.constants[name])
        if name in self.names.loop_variables:
            raise self._outside_loop(name, node)
        if isinstance(node, ast.Attribute) and node.attr in ("T", "shape", "size", "dtype"):
            raise UnsupportedExpression(
                f"{ast.unparse(node)!r} is outside the listing language",
                span_of(node),
                remedy="subscript the array; name its extents in an annotation",
            )
        raise self._unset(name, node)

    def access(self, node: ast.expr) -> Access:
        """Read an array element or row, on either side of an assignment."""
        base, subscripts = flattened(node)
        name = dotted(base)
        if name is None:
            raise UnsupportedExpression(
                f"{ast.unparse(base)[:60]!r} cannot be subscripted", span_of(node)
            )
        array = self.names.arrays.get(name)
        if array is None:
            if name in self.names.loop_variables or name in self.names.parameters:
                raise WrongRank(f"{name!r} is a number and has no subscripts", span_of(node))
            raise self._unset(name, base)
        if isinstance(getattr(node, "ctx", None), ast.Load):
            self.require_set(name, base)
        if len(subscripts) > array.rank:
            raise self._rank_mistake(node, name, len(subscripts))
        found: list[Subscript] = [self._subscript(s) for s in subscripts]
        found += [WHOLE] * (array.rank - len(found))
        return Access(name, tuple(found))

    def _subscript(self, node: ast.expr) -> Subscript:
        if isinstance(node, ast.Slice):
            if node.lower is None and node.upper is None and node.step is None:
                return WHOLE
            raise UnsupportedExpression(
                f"the slice {ast.unparse(node)!r} is outside the listing language",
                span_of(node),
                why="a row is read or written as a whole",
                remedy="use `:`, or write a loop over the part",
            )
        return self._subscript_index(node)

    def _binary(self, node: ast.BinOp) -> Value:
        operator = _BINARY[type(node.op)]
        left, right = self._number(node.left), self._number(node.right)
        if operator == "@":
            self._require_rank(left, 1, node.left)
            self._require_rank(right, 1, node.right)
        else:
            self.join(left, right, node)
        return Binary(operator, left, right)

    def _call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Attribute) and called(node.func) is None:
            return self._method(node)
        name = called(node.func)
        if name in self.names.helpers:
            with self._inlining(node) as body:
                return self.value(body)
        if name == "float" and len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
            text = str(node.args[0].value).strip().lstrip("+").lower()
            if text in ("inf", "-inf", "nan", "infinity", "-infinity"):
                return Const(float(text))
        if name == "pow" and len(node.args) == 2:
            left, right = self._number(node.args[0]), self._number(node.args[1])
            self.join(left, right, node)
            return Binary("**", left, right)
        name = TYPE_NAMES.get(name or "", name)
        if name in CREATIONS:
            return self._creation(node, cast(CreationName, name))
        if name is None or name not in FUNCTIONS:
            raise UnknownFunction(
                f"{ast.unparse(node.func)[:60]!r} is not a function of the language",
                span_of(node.func),
                why="a listing is read, never executed, so only known functions have a meaning",
                remedy="define it as a pure helper, def f(x): return …, or use "
                "exp, exp2, log, log2, sqrt, abs, max, min, tanh, sin, cos, sum, where",
            )
        self._no_keywords(node)
        function = FUNCTIONS[name]
        if len(node.args) == 1 and function.reduces:
            return self._reduction(node, name)
        if len(node.args) < function.least or (
            function.most is not None and len(node.args) > function.most
        ):
            raise UnsupportedExpression(
                f"{name} takes "
                + (str(function.least) if function.least == function.most else "other")
                + f" arguments, not {len(node.args)}",
                span_of(node),
            )
        if name == "where":
            condition = self._truth_value(self.condition(node.args[0]))
            arguments = [condition, *(self._number(a) for a in node.args[1:])]
            self.join(arguments[1], arguments[2], node)
        else:
            arguments = [self._number(argument) for argument in node.args]
            for argument in arguments[1:]:
                self.join(arguments[0], argument, node)
        return Call(name, tuple(arguments))

    def _method(self, node: ast.Call) -> Value:
        assert isinstance(node.func, ast.Attribute)
        if node.func.attr == "copy" and not node.args and not node.keywords:
            value = self._number(node.func.value)
            return Call("copy", (value,))
        raise UnknownFunction(
            f"{ast.unparse(node.func)[:60]!r} is not a function of the language",
            span_of(node),
            why="a listing is read, never executed, so only known functions have a meaning",
            remedy="write it with loops, or with the functions of the language",
        )

    def _reduction(self, node: ast.Call, name: str) -> Value:
        argument = node.args[0]
        if isinstance(argument, ast.GeneratorExp | ast.ListComp):
            function = "sum" if name == "sum" else "max" if name == "max" else "min"
            with self.bound(argument.generators) as generators:
                body = self._number(argument.elt)
                self._require_rank(body, 0, argument.elt)
            return Reduce(function, generators, body)
        value = self._number(argument)
        self._require_rank(value, 1, argument)
        return Call(name, (value,))

    @contextmanager
    def bound(self, comprehensions: list[ast.comprehension]) -> Iterator[tuple[Generator, ...]]:
        """Bring the variables of `for e in range(E)` clauses into scope."""
        generators: list[Generator] = []
        depth = len(self.scope.loops)
        try:
            for clause in comprehensions:
                if not isinstance(clause.target, ast.Name) or clause.is_async:
                    raise LoopNotOverRange(
                        "a reduction runs over one variable and a range",
                        span_of(clause.target),
                        remedy="sum(… for e in range(E))",
                    )
                variable = clause.target.id
                if variable in self.scope.loops:
                    raise LoopVariableAssigned(
                        f"{variable!r} is already the variable of a loop around this",
                        span_of(clause.target),
                        remedy="choose another name",
                    )
                limits = self.range(clause.iter, variable)
                self.scope.loops.append(variable)
                tests = [self.condition(test) for test in clause.ifs]
                condition = ALWAYS if not tests else tests[0] if len(tests) == 1 else Every(
                    tuple(tests)
                )
                generators.append(Generator(variable, limits, condition))
            yield tuple(generators)
        finally:
            del self.scope.loops[depth:]

    def _creation(self, node: ast.Call, name: CreationName) -> Value:
        element: str | None = None
        for keyword in node.keywords:
            if keyword.arg != "dtype":
                raise UnsupportedExpression(
                    f"{name} takes no argument {keyword.arg!r} here",
                    span_of(keyword),
                    remedy="give a shape, and dtype=… if needed",
                )
            element = ast.unparse(keyword.value).rpartition(".")[2].strip("'\"")
        needed = 2 if name == "full" else 1
        if len(node.args) != needed:
            raise UnsupportedExpression(
                f"{name} takes a shape" + (" and a value" if needed == 2 else ""), span_of(node)
            )
        shape_node = node.args[0]
        extents = shape_node.elts if isinstance(shape_node, ast.Tuple | ast.List) else [shape_node]
        shape = tuple(self.index(extent) for extent in extents)
        fill = None
        if name == "full":
            fill = self._number(node.args[1])
            self._require_rank(fill, 0, node.args[1])
        return Create(name, shape, fill, element)

    # Helper functions

    @contextmanager
    def _inlining(self, node: ast.Call) -> Iterator[ast.expr]:
        """Give the body of a helper with the arguments of this call put in."""
        name = called(node.func) or ""
        self._no_keywords(node)
        if self._helper_depth >= DEEPEST_HELPER:
            raise UnsupportedExpression(
                f"the helper {name!r} calls itself, or is nested too deeply",
                span_of(node),
                remedy="a helper is an expression of its arguments",
            )
        self._helper_depth += 1
        try:
            body = _helper_body(self.names.helpers[name], node, name)
            self._size += sum(1 for _ in ast.walk(body))
            if self._size > LARGEST_EXPRESSION:
                raise TooDeep(
                    f"the expression is too large once {name!r} is put in",
                    span_of(node),
                    remedy="split it with a temporary",
                )
            yield body
        finally:
            self._helper_depth -= 1

    # Ranks and names

    def rank(self, value: Value) -> int:
        """Return 0 for a number, 1 for a row."""
        match value:
            case Read(access):
                return access.rank
            case Unary(_, operand):
                return self.rank(operand)
            case Binary("@", _, _):
                return 0
            case Binary(_, left, right):
                return max(self.rank(left), self.rank(right))
            case Select(_, chosen, otherwise):
                return max(self.rank(chosen), self.rank(otherwise))
            case Call("where", arguments):
                return max(self.rank(argument) for argument in arguments[1:])
            case Call("sum", _):
                return 0
            case Call("max" | "min", arguments) if len(arguments) == 1:
                return 0
            case Call(_, arguments):
                return max((self.rank(argument) for argument in arguments), default=0)
            case Create(_, shape):
                return len(shape)
            case _:
                return 0

    def join(self, left: Value, right: Value, node: ast.expr) -> None:
        """Require that two operands are numbers or rows, not something of more dimensions."""
        ranks = {self.rank(left), self.rank(right)} - {0}
        if len(ranks) > 1 or max(ranks, default=0) > 1:
            raise WrongRank(
                f"the operands of {ast.unparse(node)[:60]!r} have different shapes, or are more "
                "than rows",
                span_of(node),
                remedy="write a loop over the dimensions",
            )

    def _require_rank(self, value: Value, rank: int, node: ast.expr) -> None:
        found = self.rank(value)
        if found != rank:
            kinds = {0: "a number", 1: "a row"}
            raise WrongRank(
                f"{ast.unparse(node)[:60]!r} is {kinds.get(found, 'more than a row')} where "
                f"{kinds[rank]} is needed",
                span_of(node),
                remedy="subscript the array fully" if rank == 0 else "use a whole row, Q[i, :]",
            )

    def _rank_mistake(self, node: ast.expr, name: str, given: int) -> WrongRank:
        rank = self.names.arrays[name].rank
        return WrongRank(
            f"{name!r} has {rank} dimension{'' if rank == 1 else 's'} and is given {given} "
            f"subscript{'' if given == 1 else 's'}",
            span_of(node),
            remedy="give one subscript for each dimension",
        )

    def require_set(self, name: str, node: ast.expr) -> None:
        """Require that an array or scalar has been set above `node`."""
        array = self.names.arrays[name]
        known = self.scope.set_so_far | self.scope.may_come_later
        if array.role == "local" and name not in known:
            raise UnsetName(
                f"{name!r} is used before it is set",
                span_of(node),
                why=f"nothing above this line sets {name}",
                remedy=f"set {name} first, or make it an argument",
            )

    def _unset(self, name: str, node: ast.expr) -> UnsetName:
        return UnsetName(
            f"{name!r} is not set anywhere",
            span_of(node),
            why="it is neither an argument, nor a loop variable, nor assigned",
            remedy=f"make {name} an argument of the function, or set it first",
        )

    def _outside_loop(self, name: str, node: ast.expr) -> UnsetName:
        return UnsetName(
            f"the loop variable {name!r} is used outside its loop",
            span_of(node),
            why="after the loop it would hold the last value, or none where the loop is empty",
            remedy="move the use into the loop, or write the value it should have",
        )

    def _no_keywords(self, node: ast.Call) -> None:
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise UnsupportedExpression(
                f"{ast.unparse(node)[:60]!r} has arguments by name or by star",
                span_of(node),
                remedy="give the arguments by position",
            )


def _is_fixed(index: Index) -> bool:
    """Tell whether an index expression has the same value throughout a run."""
    return not variables(index) and not opaque_terms(index)


def _is_plain(index: Index) -> bool:
    """Tell whether an index expression reads nothing: no element of an array, no scalar."""
    return not any(isinstance(node, Opaque | Let) for node in walk(index))


class _PutIn(ast.NodeTransformer):
    """Replaces names by expressions."""

    def __init__(self, values: dict[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.values.get(node.id, node)


def _helper_body(helper: ast.FunctionDef | ast.Lambda, call: ast.Call, name: str) -> ast.expr:
    """Return the expression a helper stands for, its arguments replaced."""
    parameters = [argument.arg for argument in (*helper.args.posonlyargs, *helper.args.args)]
    if len(parameters) != len(call.args) or helper.args.vararg or helper.args.kwonlyargs:
        raise UnsupportedExpression(
            f"the helper {name!r} takes {len(parameters)} arguments, not {len(call.args)}",
            span_of(call),
        )
    values = dict(zip(parameters, call.args, strict=True))
    if isinstance(helper, ast.Lambda):
        return _put_in(helper.body, values)
    result = _block_value(list(helper.body), values)
    if result is None:
        raise UnsupportedExpression(
            f"the helper {name!r} is not a single expression of its arguments",
            span_of(helper),
            why="a helper is put in where it is called, so it may only compute",
            remedy="def f(x): return …, with assignments to names or if/else returns before",
        )
    return result


def _put_in(expression: ast.expr, values: dict[str, ast.expr]) -> ast.expr:
    result = _PutIn(values).visit(copy.deepcopy(expression))
    assert isinstance(result, ast.expr)
    return result


def _block_value(body: list[ast.stmt], values: dict[str, ast.expr]) -> ast.expr | None:
    """Return the value a helper's statements return, or None where they do more than compute."""
    values = dict(values)
    for number, statement in enumerate(body):
        match statement:
            case ast.Expr(value=ast.Constant()):
                continue
            case ast.Assign(targets=[ast.Name(id=target)], value=value):
                values[target] = _put_in(value, values)
            case ast.Return(value=ast.expr() as value):
                return _put_in(value, values)
            case ast.If(test=test, body=then, orelse=otherwise):
                chosen = _block_value(then, values)
                other = _block_value(otherwise or body[number + 1 :], values)
                if chosen is None or other is None:
                    return None
                choice = ast.IfExp(_put_in(test, values), chosen, other)
                return ast.copy_location(choice, statement)
            case _:
                return None
    return None
