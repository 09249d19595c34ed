"""Index expressions as sums: `i - (j - i) + 1` is `2 * i - j + 1`.

A `Form` is a constant and an integer factor for each term. A term is whatever is no sum itself: a
variable, a parameter, an integer scalar, an opaque term, a division, an extremum, a product of two
things that are not constant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from looptrans.ir.index import (
    Arith,
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
)


@dataclass(frozen=True, slots=True)
class Form:
    """A sum of terms; the order of the terms is that of first appearance.

    Attributes:
        terms: The factor of each term, never 0.
        constant: What is added to them.
    """

    terms: Mapping[Index, int] = field(default_factory=dict)
    constant: int = 0

    @property
    def is_constant(self) -> bool:
        """Whether there are no terms."""
        return not self.terms

    def plus(self, other: Form, factor: int = 1) -> Form:
        """Return the sum of this form and `factor` times another."""
        constant = self.constant + factor * other.constant
        if not other.terms:
            return Form(self.terms, constant)
        terms = dict(self.terms)
        for each, count in other.terms.items():
            term = _met(each, terms)
            terms[term] = terms.get(term, 0) + factor * count
        kept = {term: count for term, count in terms.items() if count}
        return Form(kept, constant)

    def times(self, factor: int) -> Form:
        """Return this form times a number."""
        return Form().plus(self, factor)


def _met(term: Index, terms: Mapping[Index, int]) -> Index:
    """Return the term of a sum that has the factors of another one, `R * G` for `G * R`."""
    if term in terms or not isinstance(term, Arith) or term.op != "*":
        return term
    own = Counter(factors_of(term))
    for other in terms:
        if isinstance(other, Arith) and other.op == "*" and Counter(factors_of(other)) == own:
            return other
    return term


def factors_of(index: Index) -> tuple[Index, ...]:
    """Return what a product of index expressions is made of; anything else is one factor."""
    match index:
        case Arith("*", left, right):
            return (*factors_of(left), *factors_of(right))
        case _:
            return (index,)


def form_of(index: Index) -> Form:
    """Return an index expression as a sum; operands of its terms are simplified too."""
    match index:
        case Int(value):
            return Form({}, value)
        case Neg(operand):
            return form_of(operand).times(-1)
        case Arith("+", left, right):
            return form_of(left).plus(form_of(right))
        case Arith("-", left, right):
            return form_of(left).plus(form_of(right), -1)
        case Arith("*", left, right):
            first, second = form_of(left), form_of(right)
            if first.is_constant:
                return second.times(first.constant)
            if second.is_constant:
                return first.times(second.constant)
            return Form({Arith("*", index_of(first), index_of(second)): 1})
        case Arith(op, left, right):
            return _divided(op, form_of(left), form_of(right))
        case Extremum(op, arguments):
            whole = extremum(op, arguments)
            return Form({whole: 1}) if isinstance(whole, Extremum) else form_of(whole)
        case Opaque(array, arguments):
            return Form({Opaque(array, tuple(simplified(a) for a in arguments)): 1})
        case _:
            return Form({index: 1})


def _divided(op: str, left: Form, right: Form) -> Form:
    if right.is_constant and right.constant > 0:
        size = right.constant
        whole = all(count % size == 0 for count in left.terms.values())
        if op == "//" and whole:
            terms = {term: count // size for term, count in left.terms.items()}
            return Form(terms, left.constant // size)
        if op == "%" and whole:
            return Form({}, left.constant % size)
    return Form({Arith("//" if op == "//" else "%", index_of(left), index_of(right)): 1})


def index_of(form: Form) -> Index:
    """Return a sum as an index expression that begins with something added, if anything is."""
    terms = sorted(form.terms.items(), key=lambda pair: pair[1] < 0)
    constant = form.constant
    found: Index
    if not terms or (terms[0][1] < 0 < constant):
        found, constant = Int(constant), 0
    else:
        found = _times(*terms.pop(0))
    for term, factor in terms:
        found = Arith("+" if factor > 0 else "-", found, _times(term, abs(factor)))
    if constant:
        found = Arith("+" if constant > 0 else "-", found, Int(abs(constant)))
    return found


def _times(term: Index, count: int) -> Index:
    if count == 1:
        return term
    return Neg(term) if count == -1 else Arith("*", Int(count), term)


def simplified(index: Index) -> Index:
    """Return an index expression with its sums gathered."""
    if isinstance(index, (Var, Param, Int, Let)):
        return index
    if isinstance(index, Extremum | Opaque):
        return rebuild(index, tuple(simplified(child) for child in children(index)))
    return index_of(form_of(index))


def total(*parts: Index | int) -> Index:
    """Return the sum of index expressions and numbers, gathered."""
    form = Form()
    for part in parts:
        form = form.plus(Form({}, part) if isinstance(part, int) else form_of(part))
    return index_of(form)


def difference(left: Index, right: Index) -> Index:
    """Return `left - right`, gathered."""
    return index_of(form_of(left).plus(form_of(right), -1))


def product(factor: int, index: Index) -> Index:
    """Return a number times an index expression, gathered."""
    return index_of(form_of(index).times(factor))


def multiplied(index: Index, factor: Index) -> Index:
    """Return a product of two indices; of a number and an index in simplest form."""
    for one, other in ((index, factor), (factor, index)):
        if isinstance(one, Int):
            return product(one.value, other)
    return Arith("*", index, factor)


def quotient(index: Index, divisor: int) -> Index:
    """Return `index // divisor`, gathered; the divisor is positive."""
    return index_of(_divided("//", form_of(index), Form({}, divisor)))


def remainder(index: Index, divisor: int) -> Index:
    """Return `index % divisor`, gathered; the divisor is positive."""
    return index_of(_divided("%", form_of(index), Form({}, divisor)))


def sides(op: str, index: Index) -> tuple[Index, ...]:
    """Return what an index is the `max` or `min` of: itself where it is none."""
    plain = simplified(index)
    return plain.arguments if isinstance(plain, Extremum) and plain.op == op else (plain,)


def extremum(op: str, arguments: Iterable[Index]) -> Index:
    """Return the `min` or `max` of index expressions: nested ones joined, repeated ones once.

    Of several that differ by a constant only the smallest or largest is kept.
    """
    best: dict[Index, Form] = {}
    choose = min if op == "min" else max
    for argument in _flattened(op, arguments):
        form = form_of(argument)
        key = index_of(Form(form.terms))
        known = best.get(key)
        constant = form.constant if known is None else choose(known.constant, form.constant)
        best[key] = Form(form.terms, constant)
    found = tuple(index_of(form) for form in best.values())
    return found[0] if len(found) == 1 else Extremum("min" if op == "min" else "max", found)


def _flattened(op: str, arguments: Iterable[Index]) -> Iterable[Index]:
    for argument in arguments:
        if isinstance(argument, Extremum) and argument.op == op:
            yield from _flattened(op, argument.arguments)
        else:
            yield argument


def in_one_order(index: Index) -> Index:
    """Return an index expression that is the same for all ways to write the same sums."""
    operands = tuple(in_one_order(child) for child in children(index))
    plain = simplified(rebuild(index, operands))
    if isinstance(plain, Extremum):
        whole = extremum(plain.op, (in_one_order(a) for a in plain.arguments))
        if not isinstance(whole, Extremum):
            return in_one_order(whole)
        return Extremum(whole.op, tuple(sorted(whole.arguments, key=repr)))
    form = form_of(plain)
    terms = sorted(form.terms.items(), key=lambda pair: repr(pair[0]))
    return index_of(Form(dict(terms), form.constant))


def about(index: Index) -> Index:
    """Return an index without what is added to it: `T + 1` as `T`."""
    return in_one_order(index_of(Form(form_of(index).terms)))


def shifted(index: Index, by: Index) -> Index:
    """Return `by + index`, added to every argument of a `min` or `max`."""
    if isinstance(index, Extremum):
        return Extremum(index.op, tuple(shifted(argument, by) for argument in index.arguments))
    return total(by, index)


def is_same(left: Index, right: Index) -> bool:
    """Tell whether two index expressions are plainly equal."""
    apart = form_of(left).plus(form_of(right), -1)
    if apart.constant:
        return False
    if any(isinstance(term, Extremum) for term in apart.terms):
        # The sums in it may stand in another order.
        apart = form_of(in_one_order(left)).plus(form_of(in_one_order(right)), -1)
    return apart.is_constant and apart.constant == 0
