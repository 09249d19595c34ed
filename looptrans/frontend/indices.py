"""From syntax to index expressions."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from looptrans.frontend.affine import chosen_extremum, constant_of, is_fixed
from looptrans.frontend.annotations import OPERATORS
from looptrans.frontend.mistakes import (
    BadStep,
    LoopNotOverRange,
    NegativeSubscript,
    NonAffineIndex,
    UnsetName,
    UnsupportedExpression,
    WrittenIndexArray,
    WrongRank,
)
from looptrans.frontend.names import Names
from looptrans.frontend.remedies import range_instead
from looptrans.frontend.scope import Scope
from looptrans.frontend.syntax import (
    ARRAY_ATTRIBUTES,
    called,
    dotted,
    flattened,
    shape_read,
    short,
    span_of,
)
from looptrans.ir.diagnostic import Mistake
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
    plain,
    walk,
)
from looptrans.ir.ranges import reversed_range
from looptrans.ir.value import Range

LARGEST_INTEGER = 2**63
LARGEST_LET = 100
ORDERS: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
AFFINE = "an index expression is a sum of loop variables and sizes times constants"


def integer(node: ast.Constant, remedy: str) -> int:
    """Return an integer literal.

    Args:
        node: The literal.
        remedy: What to do where it is too large.

    Raises:
        UnsupportedExpression: It has more than 64 bits.
    """
    assert isinstance(node.value, int)
    if abs(node.value) >= LARGEST_INTEGER:
        raise UnsupportedExpression(
            "the integer has more than 64 bits", span_of(node), remedy=remedy
        )
    return node.value


@dataclass(slots=True)
class Indices:
    """Reads the index expressions of one listing; a mistake is raised where it stands."""

    names: Names
    scope: Scope = field(default_factory=Scope)

    def index(self, node: ast.expr) -> Index:
        """Read an index expression.

        Raises:
            Mistake: It is not affine, or reads something that is not fixed.
        """
        extent = shape_read(node)
        if extent is not None and extent[1] is not None:
            return self.extent(node, extent[0], extent[1])
        match node:
            case ast.Constant(value=value) if type(value) is int:
                return Int(integer(node, "use a smaller one, or a size"))
            case ast.Name() | ast.Attribute():
                return self._name(node)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.index(operand)
                return Int(-inner.value) if isinstance(inner, Int) else Neg(inner)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.index(operand)
            case ast.BinOp(op=operator) if type(operator) in OPERATORS:
                left, right = self.index(node.left), self.index(node.right)
                return self.arithmetic(OPERATORS[type(operator)], left, right, node)
            case ast.Call(args=arguments):
                return self._call(node, arguments)
            case ast.Subscript():
                return self._opaque(node)
            case ast.IfExp():
                return self._choice(node)
            case _:
                raise self._not_affine(node)

    def try_index(self, node: ast.expr) -> Index | None:
        """Read an index expression, or return None where it is not one."""
        try:
            return self.index(node)
        except Mistake:
            return None

    def let_value(self, node: ast.expr) -> Index | None:
        """Return what an integer scalar that is set to `node` stands for, or None."""
        index = self.try_index(node)
        if index is None or sum(1 for _ in walk(index)) > LARGEST_LET:
            return None
        return plain(index)

    def _name(self, node: ast.Name | ast.Attribute) -> Index:
        name = dotted(node)
        names, scope = self.names, self.scope
        if name is None:
            raise self._not_affine(node)
        if name in scope.loops:
            return Var(name)
        if name in scope.lets:
            return scope.lets[name] if scope.spelled_out else Let(name, scope.lets[name])
        if name in names.arrays:
            raise self._no_let(name, node)
        if name in names.parameters:
            if names.parameters[name].is_integer:
                return Param(name)
            raise NonAffineIndex(
                f"{name!r} is a real number, and stands in an index expression",
                span_of(node),
                why="bounds, guards and subscripts are integers",
                remedy=f"annotate it as an integer, {name}: int",
            )
        raise self.unknown_name(name, node)

    def _no_let(self, name: str, node: ast.expr) -> Mistake:
        self.require_set(name, node)
        if self.names.arrays[name].rank:
            return WrongRank(
                f"the array {name!r} stands in an index expression as a whole",
                span_of(node),
                why="bounds, guards and subscripts are single integers",
                remedy=f"subscript it, {name}[…]",
            )
        if self.names.arrays[name].role == "input":
            return WrittenIndexArray(
                f"{name!r} stands in an index expression, and the listing assigns it",
                span_of(node),
                why="an argument of bounds, guards and subscripts is fixed during a run",
                remedy=f"leave {name} as it is, and set another name: {name}_ = …",
            )
        return WrittenIndexArray(
            f"{name!r} stands in an index expression, but is not one itself here",
            span_of(node),
            why="its value depends on data, or on which assignment ran last",
            remedy=f"set {name} to an affine expression of loop variables just before, or read it "
            "from an integer array that the nest does not write",
        )

    def arithmetic(
        self, operator: ArithmeticOperator, left: Index, right: Index, node: ast.expr
    ) -> Index:
        """Combine two index expressions.

        Raises:
            NonAffineIndex: The result is not affine.
        """
        if operator == "*" and not (is_fixed(left) or is_fixed(right)):
            raise NonAffineIndex(
                f"{short(node)} multiplies two things that vary",
                span_of(node),
                why=AFFINE,
                remedy="use two subscripts, A[i, j], instead of one computed from both",
            )
        if operator in ("//", "%"):
            if not is_fixed(right):
                raise NonAffineIndex(
                    f"{short(node)} divides by something that varies",
                    span_of(node),
                    why="floor division and modulo are affine only by a constant or a size",
                    remedy="divide by an integer or by a size",
                )
            number = constant_of(right)
            if number is not None and number <= 0:
                raise NonAffineIndex(
                    f"{short(node)} divides by {number}",
                    span_of(node),
                    why="an index is divided by a positive integer or a size",
                    remedy="divide by a positive integer",
                )
        return Arith(operator, left, right)

    def _call(self, node: ast.Call, arguments: list[ast.expr]) -> Index:
        name = self.names.called(node.func)
        if name in ("min", "max") and len(arguments) > 1:
            self.no_keywords(node)
            return Extremum(
                "min" if name == "min" else "max", tuple(self.index(a) for a in arguments)
            )
        if name in ("int", "int32", "int64", "abs") and len(arguments) == 1:
            self.no_keywords(node)
            inner = self.index(arguments[0])
            return inner if name != "abs" else Extremum("max", (inner, Neg(inner)))
        raise self._not_affine(node)

    def _choice(self, node: ast.IfExp) -> Index:
        """Read a choice that is the smaller or larger of two indices, `i - w if i > w else 0`."""
        match node.test:
            case ast.Compare(left=first, ops=[operator], comparators=[second]):
                symbol = ORDERS.get(type(operator))
                if symbol is not None:
                    sides = self.index(first), self.index(second)
                    found = chosen_extremum(
                        symbol, *sides, self.index(node.body), self.index(node.orelse)
                    )
                    if found is not None:
                        return found
        raise self._not_affine(node)

    def _not_affine(self, node: ast.expr) -> NonAffineIndex:
        match node:
            case ast.BinOp(op=ast.Div()):
                remedy = "divide with //, which rounds down"
            case ast.Constant(value=float()):
                remedy = "write an integer"
            case ast.Constant(value=value) if value is ...:
                remedy = "write `:` for a whole row"
            case ast.Slice():
                remedy = "subscript with single indices here"
            case ast.IfExp():
                remedy = "write it with min or max, write each case under a guard of its own, or "
                remedy += "read it from an integer array that is handed over"
            case _:
                remedy = "write it with + - * // % and min, max of loop variables and sizes"
        return NonAffineIndex(
            f"{short(node)} is not an affine index expression",
            span_of(node),
            why=AFFINE,
            remedy=remedy,
        )

    def _opaque(self, node: ast.Subscript) -> Index:
        base, subscripts = flattened(node)
        name = dotted(base)
        if name is None:
            raise self._not_affine(node)
        array = self.names.arrays.get(name)
        if array is None:
            raise self.not_an_array(name, base)
        if array.element != "int":
            raise WrittenIndexArray(
                f"{name!r} holds no integers, and stands in an index expression",
                span_of(node),
                why="bounds and subscripts are integers",
                remedy=f'annotate it, {name}: Int[Array, "…"]',
            )
        if name in self.names.assigned_elements or array.role == "local":
            raise WrittenIndexArray(
                f"{name!r} stands in an index expression, and the nest writes it",
                span_of(node),
                why="which cell is meant would depend on when it is asked",
                remedy="compute the indices in another listing, and make them an argument",
            )
        if array.rank != len(subscripts):
            raise self.rank_mistake(node, name, len(subscripts))
        return Opaque(name, tuple(self.subscript_index(s) for s in subscripts))

    def extent(self, node: ast.expr, name: str, dimension: int) -> Index:
        """Return the extent of a dimension, `A.shape[d]`: its size, or a parameter of that name."""
        array = self.names.arrays.get(name)
        if array is None:
            raise self.not_an_array(name, node)
        if not -array.rank <= dimension < array.rank:
            raise WrongRank(
                f"{name!r} has no dimension {dimension}",
                span_of(node),
                why=f"it has {array.rank}",
                remedy="count the dimensions from 0",
            )
        dimension %= array.rank
        extent = array.shape[dimension]
        if extent is not None:
            return extent
        if array.role == "local":
            raise NonAffineIndex(
                f"the extent {short(node)} is not known",
                span_of(node),
                remedy=f"create {name} with a shape, or name the size",
            )
        parameter = f"{name}.shape[{dimension}]"
        self.names.add_size(parameter, span_of(node))
        shape = list(array.shape)
        shape[dimension] = Param(parameter)
        self.names.arrays[name] = replace(array, shape=tuple(shape))
        return Param(parameter)

    def subscript_index(self, node: ast.expr) -> Index:
        """Read one subscript that is a single index."""
        index = self.index(node)
        number = constant_of(index)
        if number is not None and number < 0:
            raise NegativeSubscript(
                f"the subscript {number} is negative",
                span_of(node),
                why="NumPy would count from the end; in a listing a subscript means itself",
                remedy="write the extent minus something, e.g. A[N - 1]",
            )
        return index

    def range(self, node: ast.expr, variable: str) -> Range:
        """Read the `range(…)` or `reversed(range(…))` a loop runs over."""
        if isinstance(node, ast.Call) and called(node.func) == "range":
            return self.bounds(node, "range")
        match node:
            case ast.Call(ast.Name("reversed"), [ast.Call() as inner], []) if called(
                inner.func
            ) == "range" and not self.names.is_bound("reversed"):
                return reversed_range(self.bounds(inner, "range"))
        raise LoopNotOverRange(
            f"the loop over {variable!r} runs over {short(node)}",
            span_of(node),
            why="only a range has iterations that are known exactly",
            remedy=range_instead(node, variable),
        )

    def bounds(self, node: ast.Call, word: str) -> Range:
        """Read the arguments of `range(…)`, or of `parallel(…)`, as the word says."""
        self.names.called(node.func)
        self.no_keywords(node)
        if not 1 <= len(node.args) <= 3:
            raise LoopNotOverRange(
                f"{word} is given {len(node.args)} numbers",
                span_of(node),
                why="it takes one, two or three",
                remedy=f"{word}(start, stop)",
            )
        step = 1
        if len(node.args) == 3:
            number = constant_of(self.try_index(node.args[2]) or Param("?"))
            if number is None and not any(
                isinstance(part, ast.Name | ast.Call) for part in ast.walk(node.args[2])
            ):
                raise BadStep(
                    f"the step {short(node.args[2])} is no integer that is written out",
                    span_of(node.args[2]),
                    why="a step is an integer of at most 63 bits, or a size",
                    remedy="write the number, such as 8 or -1",
                )
            if number is None or number == 0:
                raise BadStep(
                    f"the step {short(node.args[2])} is {'no constant' if number is None else '0'}",
                    span_of(node.args[2]),
                    why="the order of the iterations must be known",
                    remedy="use 1 to count up, -1 to count down"
                    if number == 0
                    else "use a number or a size, which counts up, as a constant step; else count "
                    "blocks with a step of 1 and multiply by the block size",
                )
            step = number
        bounds = [self.index(argument) for argument in node.args[:2]]
        start, stop = bounds if len(bounds) == 2 else (Int(0), bounds[0])
        return Range(start, stop, step)

    # What is wrong with a name

    def require_set(self, name: str, node: ast.expr) -> None:
        """Require that an array or scalar may have been set before `node` is reached."""
        if self.names.arrays[name].role == "local" and not self.scope.is_set(name):
            raise UnsetName(
                f"{name!r} is used before it is set",
                span_of(node),
                why=f"nothing above this line sets {name}",
                remedy=f"set {name} first, or make it an argument",
            )

    def unknown_name(self, name: str, node: ast.expr) -> Mistake:
        """Return the mistake of a name that is nothing here."""
        if "." in name and name.rpartition(".")[2] in ARRAY_ATTRIBUTES:
            return UnsupportedExpression(
                f"{name!r} is outside the listing language",
                span_of(node),
                why="an array is read by element or by row",
                remedy="subscript the array; its extents are A.shape[0] and so on",
            )
        if name in self.names.loop_variables:
            return UnsetName(
                f"the loop variable {name!r} is used outside its loop",
                span_of(node),
                why="after the loop it would hold the last value, or none where the loop is empty",
                remedy="move the use into the loop, or write the value it should have",
            )
        return UnsetName(
            f"{name!r} is not set anywhere",
            span_of(node),
            why="it is neither an argument, nor a loop variable, nor assigned",
            remedy=f"make {name} an argument of the function, or set it first",
        )

    def not_an_array(self, name: str, node: ast.expr) -> Mistake:
        """Return the mistake of a subscript on something that has none."""
        if name in self.scope.loops or name in self.names.parameters:
            return WrongRank(
                f"{name!r} is a number and has no subscripts",
                span_of(node),
                why="it is a parameter"
                if name in self.names.parameters
                else "it is a loop variable",
                remedy="leave the subscripts out, or make it an array",
            )
        return self.unknown_name(name, node)

    def rank_mistake(self, node: ast.expr, name: str, given: int) -> WrongRank:
        """Return the mistake of a wrong number of subscripts."""
        rank = self.names.arrays[name].rank
        return WrongRank(
            f"{name!r} has {rank} dimension{'' if rank == 1 else 's'} and is given {given} "
            f"subscript{'' if given == 1 else 's'}",
            span_of(node),
            remedy="give one subscript for each dimension",
        )

    @staticmethod
    def no_keywords(node: ast.Call) -> None:
        """Require that all arguments are given by position."""
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise UnsupportedExpression(
                f"{short(node)} has arguments by name or by star",
                span_of(node),
                remedy="give the arguments by position",
            )
