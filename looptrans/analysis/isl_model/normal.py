"""Index expressions in the form isl can take: affine, with everything else an opaque term.

Integer scalars are replaced by what they stand for and sizes by numbers where they are given.
What is then still not affine becomes an opaque term of a function that is named after what it
does: `j // P` is an element of the function `// P`, `t * P` one of `* P`; in a sum there is one
term for all multiples of a size (`H * g + 2 * H * h - H` is `H * (g + 2 * h - 1)`). Products and
quotients of parameters alone become parameters of their own (`G * R`), one for each product: sums
are multiplied out, numbers taken out, and factors put in order.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from math import gcd
from typing import Literal

from looptrans.ir.affine import Form, form_of, index_of
from looptrans.ir.condition import Condition, with_operands
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
    rebuild,
    variables,
    walk,
)
from looptrans.ir.listing import PRODUCT, index_text


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A function of one argument that stands for arithmetic with a size: `x // P`, `x * P`."""

    op: ArithmeticOperator
    size: Index


@dataclass(slots=True)
class Normalizer:
    """Brings index expressions and conditions into normal form.

    Attributes:
        sizes: Parameters with a known value.
        arithmetic: The functions made so far, by the name of the opaque terms they appear as.
        made: The parameters made so far (`G * R`), with the expression they stand for.
        factors: The factors of those that are products.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    arithmetic: dict[str, Arithmetic] = field(default_factory=dict)
    made: dict[str, Index] = field(default_factory=dict)
    factors: dict[str, tuple[Index, ...]] = field(default_factory=dict)

    def index(self, index: Index) -> Index:
        """Return the normal form of an index expression."""
        match index:
            case Let(_, value):
                return self.index(value)
            case Param(name):
                return Int(self.sizes[name]) if name in self.sizes else index
            case Int() | Var():
                return index
            case Arith(op, left, right):
                return self._arithmetic(op, self.index(left), self.index(right))
            case Neg(operand):
                inner = self.index(operand)
                return Int(-inner.value) if isinstance(inner, Int) else Neg(inner)
            case _:
                parts = tuple(self.index(child) for child in children(index))
                if isinstance(index, Extremum) and all(isinstance(p, Int) for p in parts):
                    values = [part.value for part in parts if isinstance(part, Int)]
                    return Int(min(values) if index.op == "min" else max(values))
                return rebuild(index, parts)

    def text(self, index: Index) -> str:
        """Print an index expression in normal form, its functions as what they stand for."""
        return index_text(self._spelled(index))

    def _spelled(self, index: Index) -> Index:
        parts = tuple(self._spelled(child) for child in children(index))
        known = self.arithmetic.get(index.array) if isinstance(index, Opaque) else None
        return rebuild(index, parts) if known is None else Arith(known.op, parts[0], known.size)

    def _arithmetic(self, op: ArithmeticOperator, left: Index, right: Index) -> Index:
        if isinstance(left, Int) and isinstance(right, Int):
            return self._constant(op, left.value, right.value)
        match op:
            case "+" | "-":
                return self._sum(Arith(op, left, right))
            case "*":
                if isinstance(left, Int) or isinstance(right, Int):
                    return self._sum(Arith("*", left, right))
                if not _varies(left) and not _varies(right):
                    return self._product(form_of(left), form_of(right))
                if _varies(left):
                    return self._function("*", left, right)
                return self._function("*", right, left)
            case _:
                if isinstance(right, Int):
                    return Arith("//" if op == "//" else "%", left, right)
                if not _varies(left):
                    return self._made("//" if op == "//" else "%", left, right)
                return self._function(op, left, right)

    @staticmethod
    def _constant(op: str, left: int, right: int) -> Index:
        match op:
            case "+":
                return Int(left + right)
            case "-":
                return Int(left - right)
            case "*":
                return Int(left * right)
            case "//" if right != 0:
                return Int(left // right)
            case "%" if right != 0:
                return Int(left % right)
            case _:
                # Division by a size that is zero at these sizes: no value, never reached.
                return Int(0)

    def _sum(self, index: Index) -> Index:
        """Gather the multiples of each size in a sum: those of `H` are `H * (...)`."""
        form = form_of(index)
        multiples = {
            term.array: self.arithmetic[term.array].size
            for term in form.terms
            if isinstance(term, Opaque) and self._is_multiple(term)
        }
        for name, size in multiples.items():
            times, rest = Form(), Form({}, form.constant)
            for term, count in form.terms.items():
                if isinstance(term, Opaque) and term.array == name:
                    times = times.plus(form_of(term.arguments[0]), count)
                elif term == size:
                    times = times.plus(Form({}, count))
                else:
                    rest = rest.plus(Form({term: count}))
            whole = self._function("*", index_of(times), size)
            form = rest.plus(form_of(whole))
        return index_of(form) if multiples else index

    def _is_multiple(self, term: Opaque) -> bool:
        known = self.arithmetic.get(term.array)
        return known is not None and known.op == "*"

    def _function(self, op: ArithmeticOperator, argument: Index, size: Index) -> Index:
        if op == "*":
            form, times = form_of(size), form_of(argument)
            if form.is_constant:
                return self._sum(Arith("*", Int(form.constant), argument))
            count, form = _content(form)
            if times.is_constant:
                return index_of(form.times(count * times.constant))
            argument, size = index_of(times.times(count)), index_of(form)
        name = f"{op} {index_text(size, PRODUCT + 1)}"
        self.arithmetic[name] = Arithmetic(op, size)
        return Opaque(name, (argument,))

    def _product(self, first: Form, second: Form) -> Index:
        """Multiply two sums of parameters out."""
        found = Form({}, first.constant * second.constant)
        found = found.plus(Form(first.terms), second.constant)
        found = found.plus(Form(second.terms), first.constant)
        for (one, count), (other, times) in product(first.terms.items(), second.terms.items()):
            found = found.plus(Form({self._of_factors(one, other): 1}), count * times)
        return index_of(found)

    def _of_factors(self, *terms: Index) -> Param:
        factors: list[Index] = []
        for term in terms:
            inner = self.factors.get(term.name) if isinstance(term, Param) else None
            factors += inner or (term,)
        factors.sort(key=index_text)
        name = " * ".join(index_text(factor, PRODUCT + 1) for factor in factors)
        self.made[name] = reduce(lambda left, right: Arith("*", left, right), factors)
        self.factors[name] = tuple(factors)
        return Param(name)

    def _made(self, op: Literal["//", "%"], left: Index, right: Index) -> Index:
        divisor = index_text(right, PRODUCT + 1)
        if isinstance(right, Param) and right.name in self.factors:
            divisor = f"({divisor})"
        # Names stand in the names of others: `2 * (H // W)` is another number than `2 * H // W`.
        name = f"({index_text(left, PRODUCT)} {op} {divisor})"
        self.made[name] = Arith(op, left, right)
        return Param(name)

    def condition(self, condition: Condition) -> Condition:
        """Return the normal form of a condition; `Data` stays as it is."""
        return with_operands(condition, index=self.index)


def _varies(index: Index) -> bool:
    return bool(variables(index)) or any(isinstance(node, Opaque) for node in walk(index))


def _content(form: Form) -> tuple[int, Form]:
    """Take the number out that a sum is a multiple of; negative where nothing is added."""
    counts = (form.constant, *form.terms.values())
    times = gcd(*counts) * (-1 if max(counts) <= 0 else 1)
    terms = {term: count // times for term, count in form.terms.items()}
    return times, Form(terms, form.constant // times)


def not_negative(index: Index, variables: Container[str], sizes: Container[str]) -> bool:
    """Tell whether an index expression is plainly not negative, given what is not."""
    match index:
        case Int(value):
            return value >= 0
        case Var(name):
            return name in variables
        case Param(name):
            return name in sizes
        case Arith("+" | "*" | "//", left, right):
            return not_negative(left, variables, sizes) and not_negative(right, variables, sizes)
        case Arith("%", _, right):
            return not_negative(right, variables, sizes)
        case Extremum("max", arguments):
            return any(not_negative(a, variables, sizes) for a in arguments)
        case Extremum("min", arguments):
            return all(not_negative(a, variables, sizes) for a in arguments)
        case _:
            return False
