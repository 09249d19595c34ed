"""From syntax to values."""

from __future__ import annotations

import ast
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import pi
from typing import cast

from looptrans.frontend.affine import constant_of
from looptrans.frontend.annotations import OPERATORS
from looptrans.frontend.conditions import Conditions
from looptrans.frontend.creations import creation_element, extents_of
from looptrans.frontend.indices import integer
from looptrans.frontend.mistakes import (
    NonAffineIndex,
    UnknownFunction,
    UnsupportedExpression,
    WrongRank,
)
from looptrans.frontend.remedies import EXPRESSIONS, function_instead
from looptrans.frontend.syntax import MODULES, dotted, flattened, shape_read, short, span_of
from looptrans.ir.functions import CASTS, CREATIONS, FUNCTIONS
from looptrans.ir.index import Extremum, Index, Int, Neg, Param, Var
from looptrans.ir.monoids import Folding
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
    IndexValue,
    Read,
    Real,
    Reduce,
    Select,
    Subscript,
    Unary,
    Value,
    Whole,
    rank_of,
    truth_of,
)

BINARY: dict[type[ast.operator], BinaryOperator] = {
    **OPERATORS,
    ast.Div: "/",
    ast.Pow: "**",
    ast.MatMult: "@",
}
CONSTANTS = {"inf": float("inf"), "pi": pi}


@dataclass(slots=True)
class Values(Conditions):
    """Reads the values of one listing; a mistake is raised where it stands."""

    def value(self, node: ast.expr) -> Value:
        """Read a value.

        Raises:
            Mistake: It is outside the language, or its ranks do not fit.
        """
        match node:
            case ast.Constant(value=value) if isinstance(value, bool | float):
                return Const(value)
            case ast.Constant(value=int()):
                return Const(integer(node, "write it as a float"))
            case ast.Name() | ast.Attribute():
                return self.named(node)
            case _:
                return self._compound(node)

    def _compound(self, node: ast.expr) -> Value:
        match node:
            case ast.Subscript() if shape_read(node) is None:
                return Read(self.access(node))
            case ast.Subscript():
                return IndexValue(self.index(node))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return _negated(self.number(operand))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                value = self.number(operand)
                return value if isinstance(value, Const | IndexValue) else Unary("+", value)
            case ast.BinOp(op=operator) if type(operator) in BINARY:
                return self._binary(node)
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return truth_of(self.condition(node))
            case ast.IfExp(test=test, body=chosen, orelse=otherwise):
                condition = self.condition(test)
                with self.scope.guarded(self.scope.line - 1):
                    picked, other = self.number(chosen), self.number(otherwise)
                self.join(picked, other, node)
                return Select(condition, picked, other)
            case ast.Call():
                return self._called(node)
            case ast.BinOp(op=ast.BitXor()):
                raise self._outside(node, "a power is x ** 2; of conditions, write a != b")
            case ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
                remedy = "join conditions with and, or; of integers, a & 15 is a % 16"
                raise self._outside(node, remedy)
            case ast.BinOp(op=ast.LShift() | ast.RShift()):
                raise self._outside(node, "write a >> 4 as a // 16, and a << 4 as a * 16")
            case ast.Constant(value=None):
                raise self._outside(node, "write a number")
            case ast.Constant():
                raise self._outside(node, "compute with numbers, array elements and rows")
            case _:
                usual = "compute with numbers, array elements and rows"
                raise self._outside(node, EXPRESSIONS.get(type(node), usual))

    @staticmethod
    def _outside(node: ast.expr, remedy: str) -> UnsupportedExpression:
        return UnsupportedExpression(
            f"{short(node)} is outside the listing language",
            span_of(node),
            why="a listing is read, never executed; see looptrans explain E007",
            remedy=remedy,
        )

    def number(self, node: ast.expr) -> Value:
        """Read a value that stands inside an expression."""
        value = self.value(node)
        if isinstance(value, Create):
            raise UnsupportedExpression(
                "a new array cannot stand inside an expression",
                span_of(node),
                remedy="give it a name first",
            )
        return value

    # Names and elements

    def named(self, node: ast.Name | ast.Attribute) -> Value:
        """Read a name that stands in a value."""
        name = dotted(node)
        if name is None:
            raise self._outside(node, "compute with numbers, array elements and rows")
        names = self.names
        if name in self.scope.loops:
            return IndexValue(Var(name))
        if name in names.arrays:
            self.require_set(name, node)
            return Read(Access(name, (WHOLE,) * names.arrays[name].rank))
        if name in names.parameters:
            return IndexValue(Param(name)) if names.parameters[name].is_integer else Real(name)
        base, _, last = name.rpartition(".")
        known = base in MODULES or (not base and last == "inf")
        if known and last in CONSTANTS and not names.is_bound(base):
            return Const(CONSTANTS[last])
        if last == "nan":
            raise self._outside(node, "leave it out; empty(…) marks what is not computed yet")
        raise self.unknown_name(name, node)

    def access(self, node: ast.expr) -> Access:
        """Read an array element or row, on either side of an assignment."""
        base, subscripts = flattened(node)
        name = dotted(base)
        if name is None:
            raise self._outside(node, "give the array a name, and subscript that")
        array = self.names.arrays.get(name)
        if array is None:
            raise self.not_an_array(name, base)
        self.require_set(name, base)
        if len(subscripts) > array.rank:
            raise self.rank_mistake(node, name, len(subscripts))
        found: list[Subscript] = [self._subscript(s) for s in subscripts]
        found += [WHOLE] * (array.rank - len(found))
        return Access(name, tuple(found))

    def _subscript(self, node: ast.expr) -> Subscript:
        if isinstance(node, ast.Slice):
            if node.lower is None and node.upper is None and node.step is None:
                return Whole(written=True)
            raise UnsupportedExpression(
                f"the slice {short(node)} is outside the listing language",
                span_of(node),
                why="a row is read or written as a whole",
                remedy="use `:`, or write a loop over the part",
            )
        return self.subscript_index(node)

    # Operators

    def _binary(self, node: ast.BinOp) -> Value:
        operator = BINARY[type(node.op)]
        left, right = self.number(node.left), self.number(node.right)
        if operator == "@":
            self.require_rank(left, 1, node.left)
            self.require_rank(right, 1, node.right)
            return Binary(operator, left, right)
        first, second = _index_in(left), _index_in(right)
        if operator in ("/", "//", "%") and first is not None and second is not None:
            self._no_zero(second, node)
        exact = OPERATORS.get(type(node.op))
        if exact is not None and first is not None and second is not None:
            try:
                return IndexValue(self.arithmetic(exact, first, second, node))
            except NonAffineIndex:
                return Binary(operator, left, right)
        self.join(left, right, node)
        return Binary(operator, left, right)

    def _no_zero(self, divisor: Index, node: ast.BinOp) -> None:
        """Require that an integer is not divided by 0, which Python refuses when it runs."""
        if constant_of(divisor) == 0:
            raise NonAffineIndex(
                f"{short(node)} divides by 0",
                span_of(node),
                why="an integer divided by 0 is an error in Python",
                remedy="divide by another number",
            )

    def join(self, left: Value, right: Value, node: ast.expr) -> None:
        """Require that two operands are numbers or rows, not something of more dimensions."""
        highest = max(rank_of(left), rank_of(right))
        if highest > 1:
            raise WrongRank(
                f"an operand of {short(node)} has {highest} dimensions",
                span_of(node),
                why="operators work on numbers and on rows",
                remedy="write a loop over the dimensions",
            )

    # Calls

    def _called(self, node: ast.Call) -> Value:
        match node:
            case ast.Call(func=ast.Attribute(value=copied, attr="copy"), args=[], keywords=[]) if (
                dotted(copied) not in MODULES
            ):
                return Call("copy", (self.number(copied),))
            case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str(text))]):
                if text.strip().lower() in ("inf", "+inf", "-inf", "infinity", "-infinity"):
                    return Const(float(text))
            case _:
                pass
        if shape_read(node) is not None:
            return IndexValue(self.index(node))
        name = self.names.called(node.func)
        if name in CREATIONS:
            return self._creation(node, cast(CreationName, name))
        if name == "pow" and len(node.args) == 2:
            power = ast.BinOp(node.args[0], ast.Pow(), node.args[1])
            return self._binary(ast.copy_location(power, node))
        match node.args:
            case [ast.GeneratorExp() | ast.ListComp() as tests] if name in ("any", "all"):
                self.no_keywords(node)
                return self._quantified(tests, name)
        if name is None or name not in FUNCTIONS:
            raise UnknownFunction(
                f"{short(node.func)} is not a function of the language",
                span_of(node.func),
                why="a listing is read, never executed, so only known functions have a meaning",
                remedy=function_instead(node.func, self.names.arrays),
            )
        self.no_keywords(node)
        return self._function(node, name)

    def _function(self, node: ast.Call, name: str) -> Value:
        function = FUNCTIONS[name]
        count = len(node.args)
        if count == 1 and function.reduces:
            return self._reduction(node, name)
        if count < function.least or (function.most is not None and count > function.most):
            takes = (
                f"{function.least}"
                if function.least == function.most
                else f"{function.least} or more"
                if function.most is None
                else f"{function.least} to {function.most}"
            )
            raise UnsupportedExpression(
                f"{name} is given {count} argument{'' if count == 1 else 's'}",
                span_of(node),
                why=f"it takes {takes}",
                remedy="give that many",
            )
        if name == "where":
            condition = truth_of(self.condition(node.args[0]))
            chosen, otherwise = (self.number(a) for a in node.args[1:])
            self.join(chosen, otherwise, node)
            return Call(name, (condition, chosen, otherwise))
        arguments = [self.number(argument) for argument in node.args]
        for argument in arguments:
            self.join(arguments[0], argument, node)
        indices = [index for a in arguments if (index := _index_in(a)) is not None]
        if len(indices) == count:
            if name in ("max", "min"):
                return IndexValue(Extremum("max" if name == "max" else "min", tuple(indices)))
            if name in CASTS and name.startswith("int"):
                return arguments[0]
        return Call(name, tuple(arguments))

    def _quantified(self, node: ast.GeneratorExp | ast.ListComp, name: str) -> Value:
        """Read `any(…)` as the largest of 1 and 0 being above 0, `all(…)` as the smallest."""
        with self.bound(node.generators) as generators, self._later():
            holds = Select(self.condition(node.elt), Const(1.0), Const(0.0))
        extreme = Reduce("max" if name == "any" else "min", generators, holds)
        return Compare(">", extreme, Const(0.0))

    def _later(self) -> AbstractContextManager[None]:
        """Return the scope of what may first be reached in a later iteration."""
        return self.scope.guarded(self.scope.line - 1)

    def _reduction(self, node: ast.Call, name: str) -> Value:
        argument = node.args[0]
        if isinstance(argument, ast.GeneratorExp | ast.ListComp):
            with self.bound(argument.generators) as generators, self._later():
                body = self.number(argument.elt)
                self.require_rank(body, 0, argument.elt)
            return Reduce(cast(Folding, name), generators, body)
        value = self.number(argument)
        self.require_rank(value, 1, argument)
        return Call(name, (value,))

    def _creation(self, node: ast.Call, name: CreationName) -> Value:
        extents = extents_of(node) if node.args else []
        value, filled = (", a value", ", 0.0") if name == "full" else ("", "")
        needed = 2 if name == "full" else max(len(extents), 1) if extents == node.args else 1
        kinds = [keyword.value for keyword in node.keywords if keyword.arg == "dtype"]
        kinds += node.args[needed : needed + 1]
        odd = [keyword for keyword in node.keywords if keyword.arg != "dtype"]
        if odd or len(kinds) > 1 or not needed <= len(node.args) <= needed + 1:
            raise UnsupportedExpression(
                f"{short(node)} is not understood",
                span_of(odd[0] if odd else node),
                why=f"{name} takes a shape{value} and perhaps a dtype",
                remedy=f"{name}((M, N){filled})",
            )
        element = creation_element(kinds[0], name, self.names.arrays) if kinds else None
        shape = tuple(self.index(extent) for extent in extents)
        fill = None
        if name == "full":
            fill = self.number(node.args[1])
            self.require_rank(fill, 0, node.args[1])
        return Create(name, shape, fill, element)


def _index_in(value: Value) -> Index | None:
    """Return the index expression a value is, if it is one."""
    match value:
        case IndexValue(index):
            return index
        case Const(number) if type(number) is int:
            return Int(number)
        case _:
            return None


def _negated(value: Value) -> Value:
    match value:
        case Const(number) if not isinstance(number, bool):
            return Const(-number)
        case IndexValue(index):
            return IndexValue(Neg(index))
        case _:
            return Unary("-", value)
