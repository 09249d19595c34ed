"""Values of a listing as block expressions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce

from looptrans.algebra.positional.values import summands
from looptrans.blocks.block_ir.arithmetic import (
    LOG2E,
    as_float,
    as_number,
    factors,
    minus,
    negative,
    plus,
    product,
    times,
)
from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Cast,
    Dim,
    Expr,
    Name,
    Number,
    Scalar,
    Unary,
    Where,
    dims_of,
    kind_of,
    union,
)
from looptrans.blocks.block_ir.program import NotLowered
from looptrans.blocks.lowering.builder import Builder
from looptrans.blocks.lowering.magnitude import bounds
from looptrans.blocks.places.storage import Storage
from looptrans.ir import value as source
from looptrans.ir.condition import opposite
from looptrans.ir.index import Index
from looptrans.ir.listing import value_text
from looptrans.ir.value import (
    Access,
    Compare,
    Const,
    Holds,
    IndexValue,
    Read,
    Real,
    Reduce,
    Select,
    Value,
)

_SAME = ("stop_gradient", "copy")
# Of integers, which float32 would round.
_MOST_FACTORS = 8
_FLOATS = ("float16", "bfloat16")
_ELEMENTWISE = ("exp2", "log", "log2", "sqrt", "abs", "tanh", "sin", "cos")


@dataclass(slots=True)
class Values:
    """Lowers values.

    Attributes:
        b: The kernel.
        reduce: Lowers a `sum(…)`, `max(…)` or `min(…)` over generators.
        turned: Tells which lanes of a block are others in an access.
        log2: Arrays whose blocks hold the value times log2(e).
        scaled: Arrays whose blocks times this factor are the value times log2(e); None is 1.
        instead: Names that stand for arrays here.
        known: Values that have a name, up to a factor, in units of log2(e).
    """

    b: Builder
    reduce: Callable[[Reduce], Expr]
    turned: Callable[[Storage, tuple[Index, ...]], dict[Dim, Dim]]
    log2: set[str] = field(default_factory=set)
    scaled: dict[str, Expr | None] = field(default_factory=dict)
    instead: dict[str, Name] = field(default_factory=dict)
    known: dict[Value, tuple[Name, Expr | None]] = field(default_factory=dict)

    def lower(self, value: Value) -> Expr:
        """Return a value as a block expression.

        Raises:
            NotLowered: It has no such form.
        """
        match value:
            case Const(number):
                return Number(number)
            case IndexValue(index):
                return self.b.index(index)
            case Real(name):
                return Scalar(name, "float")
            case Read(access):
                return self._read(access)
            case source.Unary(op, operand):
                inner = as_number(self.lower(operand))
                inner = as_float(inner) if kind_of(inner) == "float" else inner
                return negative(inner) if op == "-" else inner
            case source.Binary():
                return self._binary(value)
            case Compare(op, left, right):
                return Binary(op, *self._alike(self.lower(left), self.lower(right)))
            case Holds(condition):
                return self.b.condition(condition, self.truth_of)
            case Select(condition, Const(0), otherwise) if not isinstance(otherwise, Const):
                # A choice between a value and 0 has one form: as a factor it is an operand.
                return self.lower(Select(opposite(condition), otherwise, value.chosen))
            case Select(condition, chosen, otherwise):
                return self._select(self.b.condition(condition, self.truth_of), chosen, otherwise)
            case source.Call():
                return self._call(value)
            case Reduce():
                return self.reduce(value)
            case _:
                raise NotLowered(f"{value_text(value)} has no form in blocks")

    def number(self, value: Value) -> Expr:
        """Return a value in float32."""
        return as_float(self.lower(value))

    def kept(self, value: Value, array: str) -> Expr:
        """Return a value as what an array holds: an integer as it is, or in float32."""
        if self.b.program.array(array).element != "int":
            return self.number(value)
        found = as_number(self.lower(value))
        return found if kind_of(found) == "int" else as_float(found)

    def truth_of(self, value: Value) -> Expr:
        """Return a value as a truth value."""
        tested = self.lower(value)
        if kind_of(tested) == "bool":
            return tested
        zero = Number(0) if kind_of(tested) == "int" else Number(0.0)
        return Binary("!=", as_float(tested) if kind_of(tested) == "float" else tested, zero)

    def _alike(self, left: Expr, right: Expr) -> tuple[Expr, Expr]:
        if "float" in (kind_of(left), kind_of(right)):
            return as_float(left), as_float(right)
        if kind_of(left) != kind_of(right):
            return as_number(left), as_number(right)
        return left, right

    def _read(self, access: Access) -> Expr:
        if access.rank:
            raise NotLowered(f"the whole row {access.array} has no form in blocks")
        storage = self.b.storage.get(access.array)
        if storage is None:
            raise NotLowered(f"an array is filled with {access.array}, which is worked out before")
        indices: tuple[Index, ...] = access.indices
        if access.array in self.instead:
            return self._turned(storage, indices, self.instead[access.array])
        if storage.place == "recomputed":
            assert storage.definition is not None
            names, definition = storage.definition
            places = [self.b.index(index) for index in indices]
            return self._at(list(zip(names, places, strict=True)), definition)
        if storage.place == "loaded":
            kind = self.b.program.array(access.array).element
            return self.b.load(access.array, tuple(self.b.index(i) for i in indices), kind)
        found = self.b.values.get(access.array)
        if found is None:
            raise NotLowered(f"{access.array} is read before it is set")
        return self._turned(storage, indices, found)

    def _turned(self, storage: Storage, indices: tuple[Index, ...], found: Name) -> Name:
        """Return a block over the lanes of an access, under another name where they are others."""
        lanes = self.turned(storage, indices) if storage.place == "register" else {}
        dims = tuple(lanes.get(dim, dim) for dim in found.dims)
        if dims == found.dims:
            return found
        if dims != union(dims):
            raise NotLowered(f"{storage.array} is needed with its dimensions exchanged")
        return self.b.over(found, dims)

    def _quotient(self, left: Expr, right: Expr) -> Expr:
        """Return a quotient; in a loop over blocks a number is inverted once, not for each."""
        if self.b.loops and dims_of(left) and not dims_of(right):
            return times(left, product((), (right,)))
        return Binary("/", left, right)

    def _at(self, places: list[tuple[str, Expr]], value: Value) -> Expr:
        if not places:
            return self.lower(value)
        (name, place), *rest = places
        with self.b.bound(name, place):
            return self._at(rest, value)

    def _binary(self, value: source.Binary) -> Expr:
        left, right = as_number(self.lower(value.left)), as_number(self.lower(value.right))
        if value.op == "@":
            raise NotLowered(f"{value_text(value)} has no form in blocks")
        if value.op == "**":
            return self._power(left, right)
        if value.op == "/":
            return self._quotient(as_float(left), as_float(right))
        left, right = self._alike(left, right)
        exact = kind_of(left) != "float"
        match value.op:
            case "+":
                return Binary("+", left, right)
            case "-":
                slope = self._slope_of_tanh(left, right)
                return Binary("-", left, right) if slope is None else slope
            case "*":
                return times(left, right) if not exact else Binary("*", left, right)
            case "//" | "%" as op:
                return self._floored(op, left, right, exact)
        raise NotLowered(f"{value_text(value)} has no form in blocks")

    def _slope_of_tanh(self, left: Expr, right: Expr) -> Expr | None:
        """Return 1 - tanh(x) ** 2 as a function of x, since it cancels where tanh is near 1."""
        match right:
            case Call("pow", (tanh, Number(2))) if left == Number(1.0):
                named = self.b.defined.get(tanh.name) if isinstance(tanh, Name) else tanh
                if isinstance(named, Call) and named.function == "tanh":
                    return Call("tanh_slope", named.arguments)
        return None

    def _power(self, left: Expr, right: Expr) -> Expr:
        exponent = right.value if isinstance(right, Number) else None
        if kind_of(left) == "int" and isinstance(exponent, int) and 1 <= exponent <= _MOST_FACTORS:
            return reduce(lambda found, each: Binary("*", found, each), [left] * exponent)
        if exponent == 1:
            return as_float(left)
        if exponent == 0.5:
            return Call("sqrt", (as_float(left),))
        return Call("pow", (as_float(left), Number(2) if exponent == 2 else as_float(right)))

    def _floored(self, op: str, left: Expr, right: Expr, exact: bool) -> Expr:
        if not exact:
            floor = Call("floor", (Binary("/", left, right),))
            return floor if op == "//" else Binary("-", left, Binary("*", floor, right))
        if bounds(self.b, left)[0] >= 0 and bounds(self.b, right)[0] >= 0:
            return Binary("//", left, right) if op == "//" else Binary("%", left, right)
        rest = Binary("%", left, right)
        # Triton rounds toward 0; a remainder whose sign is not the divisor's is one too far.
        below = Binary("<", rest, Number(0))
        match right:
            case Number(divisor) if divisor > 0:
                off = below
            case _:
                signs = Binary("!=", below, Binary("<", right, Number(0)))
                off = Binary("and", Binary("!=", rest, Number(0)), signs)
        if op == "//":
            return Binary("-", Binary("//", left, right), Where(off, Number(1), Number(0)))
        return Binary("+", rest, Where(off, right, Number(0)))

    def _select(self, condition: Expr, chosen: Value, otherwise: Value) -> Expr:
        if isinstance(condition, Number):
            return self.lower(chosen if condition.value else otherwise)
        with self.b.guarded(condition):
            first = self.lower(chosen)
        with self.b.guarded(Unary("not", condition)):
            second = self.lower(otherwise)
        return Where(condition, *self._alike(first, second))

    def _call(self, value: source.Call) -> Expr:
        function, arguments = value.function, value.arguments
        if function in _SAME:
            return self.lower(arguments[0])
        if function == "where":
            return self._select(self.truth_of(arguments[0]), arguments[1], arguments[2])
        if function == "exp":
            return self._exp(arguments[0])
        if function in ("max", "min"):
            parts = [as_number(self.lower(argument)) for argument in arguments]
            if any(kind_of(part) == "float" for part in parts):
                parts = [as_float(part) for part in parts]
            found = parts[0]
            for part in parts[1:]:
                found = Call(function, (found, part))
            return found
        if function == "abs" and kind_of(as_number(self.lower(arguments[0]))) == "int":
            return Call("abs", (as_number(self.lower(arguments[0])),))
        if function in _ELEMENTWISE:
            return Call(function, (self.number(arguments[0]),))
        if function in ("float", "float32"):
            return self.number(arguments[0])
        if function in _FLOATS:
            return Cast(Cast(self.number(arguments[0]), function), "float32")
        if function in ("int", "int32", "int64"):
            inner = as_number(self.lower(arguments[0]))
            whole = "int64" if function == "int64" else "int32"
            return inner if kind_of(inner) == "int" else Cast(as_float(inner), whole)
        if function == "bool":
            return self.truth_of(arguments[0])
        if function == "uniform":
            return self._drawn(value)
        raise NotLowered(f"{function}(…) has no form in blocks yet")

    def _drawn(self, value: source.Call) -> Expr:
        """Return a random number: of a key and counters, so whatever the blocks are the same."""
        places = [self.lower(argument) for argument in value.arguments]
        if any(kind_of(place) != "int" for place in places):
            raise NotLowered(f"{value_text(value)} counts with what is no integer")
        return Call("uniform", tuple(places))

    # exp of a difference whose subtrahend is kept in units of log2(e)

    def _exp(self, argument: Value) -> Expr:
        parts = self._terms(argument)
        if not any(self._units(part) is not None for _, part in parts):
            return Call("exp", (self.number(argument),))
        found: Expr | None = None
        for sign, part in parts:
            term = self.in_log2(part)
            if found is None:
                found = term if sign > 0 else negative(term)
            else:
                found = plus(found, term) if sign > 0 else minus(found, term)
        assert found is not None
        return Call("exp2", (found,))

    def _terms(self, value: Value) -> tuple[tuple[int, Value], ...]:
        """Return the terms of a sum; what has a name as a whole stays whole."""
        if value not in self.known and isinstance(value, source.Binary) and value.op in ("+", "-"):
            sign = 1 if value.op == "+" else -1
            right = self._terms(value.right)
            return (*self._terms(value.left), *((sign * s, part) for s, part in right))
        return ((1, value),) if value in self.known else tuple(summands(value))

    def _units(self, value: Value) -> str | None:
        if isinstance(value, Read) and value.access.array in self.log2:
            return value.access.array
        return None

    def in_log2(self, value: Value) -> Expr:
        """Return a value times log2(e), the factor put with the numbers it is multiplied by."""
        raw, factor = self.raw_in_log2(value)
        return raw if factor is None else times(raw, factor)

    def raw_in_log2(self, value: Value) -> tuple[Expr, Expr | None]:
        """Return a value and a factor, whose product is the value times log2(e)."""
        if value in self.known:
            return self.known[value]
        if isinstance(value, Read):
            array = value.access.array
            if array in self.log2:
                return self.lower(value), None
            if array in self.scaled:
                return self.lower(value), self.scaled[array]
        return split(self.number(value))


def split(expr: Expr) -> tuple[Expr, Expr | None]:
    """Return the vectors and the numbers of a product, the numbers times log2(e)."""
    above, below = factors(expr)
    vectors = [part for part in above if dims_of(part)]
    numbers = [part for part in above if not dims_of(part)]
    vectors_below = [part for part in below if dims_of(part)]
    numbers_below = [part for part in below if not dims_of(part)]
    if not vectors or vectors_below:
        return expr, LOG2E
    return product(vectors), product((*numbers, LOG2E), numbers_below)
