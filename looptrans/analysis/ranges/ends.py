"""From inequalities over a loop variable to the ends of its range."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from looptrans.analysis.ranges.inequalities import UNIT, Case, Space, form_text
from looptrans.ir.affine import (
    Form,
    difference,
    index_of,
    is_same,
    product,
    quotient,
    remainder,
    total,
)
from looptrans.ir.condition import Relation
from looptrans.ir.index import Index, Int, Var


class Ends:
    """Reads the first and last values of a loop variable off a polyhedron."""

    def __init__(self, space: Space, variable: Var, up: bool, written: Mapping[str, Form]) -> None:
        self._space = space
        self._variable = variable
        self._up = up
        self._written = written
        self._rank = {text: number for number, text in enumerate(written)}
        self.stride = space.strides.get(variable.name, UNIT)

    def of(self, forms: Case, *, below: bool) -> list[Index]:
        """Return what ends a range on one side: as `start` if it starts there, else as `stop`."""
        found = []
        for form in forms:
            count = form.terms.get(self._variable, 0)
            if count and (count > 0) == below:
                text = form_text(form)
                rank = self._rank.get(text, len(self._rank))
                found.append((rank, text, self._solved(form, text, below=below)))
        return list(dict.fromkeys(end for _, _, end in sorted(found, key=lambda f: f[:2])))

    def _solved(self, form: Form, text: str, *, below: bool) -> Index:
        """Solve an inequality over the dimensions for the variable."""
        written = self._written.get(text)
        is_start = below == self._up
        if written is not None and not (is_start and self.stride.size > 1):
            count = written.terms.get(self._variable, 0)
            if abs(count) == 1:
                # As it was written; isl may have made it tighter than one would read it.
                rest = written.plus(Form({self._variable: 1}), -count).times(-count)
                return index_of(rest.plus(self._shift(below=below)))
        count = form.terms[self._variable]
        rest = form.plus(Form({self._variable: 1}), -count).times(-1 if below else 1)
        return self._end(rest, abs(count), below=below)

    def _end(self, rest: Form, count: int, *, below: bool) -> Index:
        """Solve `count * steps >= rest`, or `count * steps <= rest`."""
        size, origin = self.stride.size, self.stride.origin
        form, divisor = self._space.outside(rest)
        if size == 1:
            form = form.plus(self._shift(below=below), divisor * count)
            return _divided(form, divisor * count, up=below)
        loose = _divided(form.times(size), divisor * count, up=below)
        if below != self._up:
            return total(index_of(origin), loose, index_of(self._shift(below=below)))
        if count == 1 and size % divisor == 0:
            return index_of(origin.plus(form, size // divisor))
        first = total(index_of(origin), loose)
        if isinstance(first, Int):
            return self._aligned(first)
        return total(index_of(origin), product(size, _divided(form, divisor * count, up=below)))

    def _shift(self, *, below: bool) -> Form:
        """From the last value of a range to its stop."""
        return Form({}, 0 if below == self._up else -1 if below else 1)

    def as_written(self, relation: Relation) -> Index:
        """Return an end that is no inequality; it stays as it is."""
        is_start = (relation.op in (">=", ">")) == self._up
        return self._aligned(relation.right) if is_start else relation.right

    def _aligned(self, end: Index) -> Index:
        """Return the first value from a start on that is a whole number of steps away."""
        origin, size = index_of(self.stride.origin), self.stride.size
        if size == 1 or is_same(end, origin):
            return end
        if self._up:
            return total(end, remainder(difference(origin, end), size))
        return difference(end, remainder(difference(end, origin), size))


def _divided(form: Form, divisor: int, *, up: bool) -> Index:
    """Return a sum divided by a number, rounded."""
    common = gcd(divisor, *form.terms.values())
    terms = {term: count // common for term, count in form.terms.items()}
    constant = -(-form.constant // common) if up else form.constant // common
    divisor //= common
    reduced = Form(terms, constant + (divisor - 1 if up else 0))
    return quotient(index_of(reduced), divisor) if divisor > 1 else index_of(reduced)
