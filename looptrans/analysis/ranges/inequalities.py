"""Conditions as linear inequalities, and polyhedra made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import gcd, lcm

import islpy as isl

from looptrans.ir.affine import Form, form_of, index_of
from looptrans.ir.condition import NEGATED, Condition, Every, Not, Relation, negation
from looptrans.ir.index import Arith, Extremum, Index, Int, Let, Opaque, Var, variables
from looptrans.ir.listing import index_text
from looptrans.ir.program import If, Loop, Node, Program
from looptrans.ir.walk import inner_bodies

_PARAM, _SET = isl.dim_type.param, isl.dim_type.set
Case = list[Form]  # inequalities `form >= 0` that hold together


@dataclass(frozen=True, slots=True)
class Stride:
    """The values a variable may have: `origin`, and whole steps of `size` away from it."""

    size: int
    origin: Form


UNIT = Stride(1, Form())


@dataclass(frozen=True, slots=True)
class Reading:
    """How comparisons become linear inequalities.

    Attributes:
        names: The variables. Whatever does not mention them counts as a number.
        relaxed: Whether what is not linear may be replaced by something weaker that is: a quotient
            by the line above or below it, a remainder or an element by its least and most.
        values: For integer arrays, the range of their elements, the upper end excluded.
    """

    names: frozenset[str]
    relaxed: bool = False
    values: Mapping[str, tuple[Index, Index]] = field(default_factory=dict)

    def cases(self, relation: Relation) -> list[Case] | None:
        """Return a comparison as inequalities.

        Returns:
            Cases, of which at least one holds; None where it is not linear.
        """
        left, right = form_of(relation.left), form_of(relation.right)
        below, above = right.plus(left, -1), left.plus(right, -1)
        one = Form({}, 1)
        match relation.op:
            case "<":
                return self._read(below.plus(one, -1))
            case "<=":
                return self._read(below)
            case ">":
                return self._read(above.plus(one, -1))
            case ">=":
                return self._read(above)
            case "==":
                return self._together([self._read(below), self._read(above)])
            case "!=":
                return self._either([self._read(form.plus(one, -1)) for form in (below, above)])

    def _together(self, parts: list[list[Case] | None]) -> list[Case] | None:
        found = [part for part in parts if part is not None]
        if not found or (len(found) < len(parts) and not self.relaxed):
            return None
        return [[form for case in cases for form in case] for cases in product(*found)]

    def _either(self, parts: list[list[Case] | None]) -> list[Case] | None:
        found = [case for part in parts if part is not None for case in part]
        return None if None in parts else found

    def _read(self, form: Form) -> list[Case] | None:
        """Return `form >= 0` as cases."""
        for term, count in form.terms.items():
            varies = bool(self.names.intersection(variables(term)))
            rest = form.plus(Form({term: 1}), -count)
            match term:
                case Let(_, value) if varies:
                    return self._read(rest.plus(form_of(value), count))
                case Extremum(op, arguments):
                    each = [self._read(rest.plus(form_of(a), count)) for a in arguments]
                    if (op == "min") == (count > 0):
                        return self._together(each)
                    if varies:
                        return self._either(each)
                case Arith("//", dividend, Int(size)) if varies:
                    # rest + c floor(x / s) >= 0  =>  s rest + c x >= 0
                    # rest - c floor(x / s) >= 0  =>  s rest + c (s - 1) - c x >= 0
                    # and the other way round where c is 1
                    if abs(count) != 1 and not self.relaxed:
                        return None
                    slack = Form({}, 0 if count > 0 else -count * (size - 1))
                    inner = rest.times(size).plus(slack).plus(form_of(dividend), count)
                    return self._read(inner)
                case Arith("%", _, Int(size)) if varies and self.relaxed:
                    return self._read(rest.plus(Form({}, size - 1), max(count, 0)))
                case Opaque(array, _) if varies and self.relaxed and array in self.values:
                    low, high = (form_of(end) for end in self.values[array])
                    end = low if count < 0 else high.plus(Form({}, -1))
                    return self._read(rest.plus(end, count))
                case _ if varies and not isinstance(term, Var):
                    return None
        return [[form]]


# What is known


def facts_about(program: Program, position: Sequence[int]) -> list[Form]:
    """Return what is known at a place: extents are not negative, and the loops and guards around.

    Returns:
        Inequalities `form >= 0`; conditions that are not linear are left out.
    """
    found = [form_of(extent) for array in program.arrays for extent in array.extents]
    for condition in _around(program.body, tuple(position)):
        found += _linear(condition)
    return found


def contracts_of(program: Program) -> list[Form]:
    """Return the contracts about sizes, as far as they are linear."""
    return [form for condition in program.stated for form in _linear(condition)]


def _around(body: tuple[Node, ...], position: tuple[int, ...]) -> Iterator[Condition]:
    number, *rest = position
    if not rest:
        return
    node = body[number]
    match node:
        case If() if rest[0] in (1, 2) and len(rest) > 1:
            yield node.condition if rest[0] == 1 else negation(node.condition)
            yield from _around(node.body if rest[0] == 1 else node.orelse, tuple(rest[1:]))
        case Loop(variable, limits):
            up = limits.step > 0
            yield Relation(">=" if up else "<=", Var(variable), limits.start)
            yield Relation("<" if up else ">", Var(variable), limits.stop)
            yield from _around(node.body, tuple(rest))
        case If():
            pass
        case _:
            yield from _around(inner_bodies(node)[0], tuple(rest))


def _linear(condition: Condition) -> Case:
    match condition:
        case Relation(_, _, _):
            cases = Reading(frozenset()).cases(condition)
            return cases[0] if cases is not None and len(cases) == 1 else []
        case Not(Relation(op, left, right)):
            return _linear(Relation(NEGATED[op], left, right))
        case Every(parts):
            return [form for part in parts for form in _linear(part)]
        case _:
            return []


# Polyhedra


class Space:
    """Some loop variables as the dimensions of polyhedra.

    A variable with a stride is replaced by the number of steps it is away from its origin. What
    does not mention the variables is a parameter, whatever it is made of.
    """

    def __init__(
        self,
        names: Sequence[str],
        strides: Mapping[str, Stride],
        forms: Iterable[Form],
        facts: Iterable[Form],
    ) -> None:
        """Set the space up.

        Args:
            names: The variables, outermost first.
            strides: The strides of those that have one, over variables outside theirs.
            forms: Everything that `polyhedron` will be asked for.
            facts: What is known of the parameters.
        """
        self.names = list(names)
        self.strides = strides
        self._dimensions: dict[Index, str] = {Var(n): f"i{at}" for at, n in enumerate(names)}
        # Each variable in terms of the dimensions.
        self._inside: dict[Index, Form] = {}
        for name in names:
            stride = strides.get(name, UNIT)
            steps = Form({Var(name): stride.size})
            self._inside[Var(name)] = self.inside(stride.origin).plus(steps)
        known = list(facts)
        used = [self.inside(form) for form in forms] + known
        atoms = dict.fromkeys(t for f in used for t in f.terms if t not in self._dimensions)
        self._atoms: dict[Index, str] = {atom: f"p{number}" for number, atom in enumerate(atoms)}
        self.context = self.polyhedron(known)

    def inside(self, form: Form) -> Form:
        """Rewrite a sum over the variables as one over the dimensions."""
        found = Form({}, form.constant)
        for term, count in form.terms.items():
            found = found.plus(self._inside.get(term, Form({term: 1})), count)
        return found

    def outside(self, form: Form) -> tuple[Form, int]:
        """Rewrite a sum over the dimensions as one over the variables, and what divides it."""
        sizes = {t: s for t in form.terms if (s := self._stride(t)) is not None}
        divisor = lcm(*(stride.size for stride in sizes.values()))
        found = Form({}, form.constant * divisor)
        for term, count in form.terms.items():
            single = Form({term: 1})
            if term in sizes:
                stride = sizes[term]
                found = found.plus(single.plus(stride.origin, -1), count * divisor // stride.size)
            else:
                found = found.plus(single, count * divisor)
        common = gcd(divisor, found.constant, *found.terms.values())
        terms = {term: count // common for term, count in found.terms.items()}
        return Form(terms, found.constant // common), divisor // common

    def _stride(self, term: Index) -> Stride | None:
        return self.strides.get(term.name) if isinstance(term, Var) else None

    def polyhedron(self, forms: Iterable[Form]) -> isl.BasicSet:
        """Return where all of some inequalities `form >= 0` hold."""
        return self.region(self.inside(form) for form in forms)

    def region(self, forms: Iterable[Form]) -> isl.BasicSet:
        """Return where all of some inequalities `form >= 0` over the dimensions hold."""
        texts = [f"{self._text(form)} >= 0" for form in forms]
        atoms = ", ".join(self._atoms.values())
        dims = ", ".join(self._dimensions.values())
        return isl.BasicSet(f"[{atoms}] -> {{ [{dims}] : {' and '.join(texts) or '0 = 0'} }}")

    def _text(self, form: Form) -> str:
        called = {**self._dimensions, **self._atoms}
        terms = [f"{count} * {called[term]}" for term, count in form.terms.items()]
        return " + ".join([*terms, str(form.constant)])

    def inequalities(self, points: isl.BasicSet) -> list[Form]:
        """Return a polyhedron as inequalities `form >= 0` over the dimensions."""
        found = []
        for constraint in points.get_constraints():
            terms: dict[Index, int] = {}
            for kind, called in ((_SET, self._dimensions), (_PARAM, self._atoms)):
                for number, term in enumerate(called):
                    count = int(constraint.get_coefficient_val(kind, number).to_python())
                    if count:
                        terms[term] = count
            form = Form(terms, int(constraint.get_constant_val().to_python()))
            found.append(form)
            if constraint.is_equality():
                found.append(form.times(-1))
        return found


def form_text(form: Form) -> str:
    """Return a sum as text."""
    return index_text(index_of(form))
