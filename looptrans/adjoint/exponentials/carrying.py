"""Sums of exponentials that a later loop goes on with: every term moved, and not the sum.

    a[i] = sum(exp(S[i, j] - m[i]) for j)
    b[i] = a[i] * exp(m[i] - n[i]) + …         ->    b[i] = sum(exp(S[i, j] - n[i]) for j) + …

So all loops that one online softmax runs through are sums over the same last maximum, as if they
had been written in passes, and one weight serves each of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from looptrans.adjoint.equations.definitions import Definition, System, refreshed_generators
from looptrans.adjoint.equations.sums import ONE, Term, expanded, term_moved, times
from looptrans.adjoint.equations.written_sums import shown, value_of
from looptrans.adjoint.exponentials.totals import EXPONENTIALS, exponential
from looptrans.algebra.normal_forms.normal import Equality, equality
from looptrans.algebra.positional.values import add, summands
from looptrans.ir.condition import conjunction
from looptrans.ir.index import Index
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Access, Call, Read, Real, Reduce, Unary, Value


@dataclass(frozen=True, slots=True)
class Moved:
    """A term that was moved.

    Attributes:
        formula: What it was and what it is, to be read.
        proof: That these are the same.
    """

    formula: str
    proof: Equality


def carried(system: System, outputs: frozenset[str]) -> tuple[Moved, ...]:
    """Move the terms of sums of exponentials that are only moved as a whole.

    Args:
        system: The definitions; those that nothing reads any more are left out.
        outputs: Those that stay in any case.

    Returns:
        What was moved.
    """
    found: list[Moved] = []
    for name in system.order():
        definition = system.definitions[name]
        if not definition.has_reduction:
            found += _moved(system, definition)
    if found:
        _without_unread(system, outputs)
        system.sort()
    return tuple(found)


def _moved(system: System, definition: Definition) -> list[Moved]:
    """Move the terms of the sums that a definition adds up multiples of; return what was moved."""
    terms = expanded(definition.value, system.names)
    split = [_split(system, term, is_alone=len(terms) == 1) for term in terms]
    if not any(split):
        return []
    found = [moved for each in split if each is not None for moved in each.moved]
    if len(split) == 1 and split[0] is not None and split[0].is_one_sum:
        system.add(replace(definition, value=_value(split[0].terms[0])))
        return found
    whole: list[Term] = []
    for term, each in zip(terms, split, strict=True):
        if each is not None:
            cells = [
                _defined(system, definition, name, inner)
                for name, inner in zip(each.names, each.terms, strict=True)
            ]
            whole += [times(each.outside, cell) for cell in cells]
        elif exponential(term) is not None:
            whole.append(_defined(system, definition, f"{definition.name}_first", term))
        else:
            whole.append(term)
    system.add(replace(definition, value=value_of(whole)))
    return found


def _defined(system: System, like: Definition, wish: str, term: Term) -> Term:
    """Make a definition of a term; return its cell as a term."""
    own, new = refreshed_generators(like.indices, system.names)
    value = _value(term_moved(term, new))
    each = Definition(system.names.array(wish), own, value, label=like.label)
    system.add(each)
    cell = Read(Access(each.name, like.cell.access.subscripts))
    return Term(Fraction(1), ((cell, 1),))


@dataclass(frozen=True, slots=True)
class _Split:
    """A multiple of a sum, written as one of sums whose terms are moved.

    Attributes:
        outside: What stands before the sums.
        names: What the parts of the sum were called.
        terms: These parts, moved.
        moved: What was shown of each.
    """

    outside: Term
    names: tuple[str, ...]
    terms: tuple[Term, ...]
    moved: tuple[Moved, ...]

    @property
    def is_one_sum(self) -> bool:
        return len(self.terms) == 1 and self.outside == ONE


def _split(system: System, term: Term, *, is_alone: bool) -> _Split | None:
    """Move the terms of a sum that a term is a multiple of, if it is one."""
    if term.generators or term.brackets:
        return None
    term = _with_exponentials(system, term)
    for atom, exponent in term.factors:
        if exponent != 1 or not isinstance(atom, Read):
            continue
        read = system.definitions.get(atom.access.array)
        pieces = None if read is None else _pieces(system, read, atom.access.indices)
        if pieces is None:
            continue
        # What meets a factor inside goes in; the rest does where there is one sum, and no other.
        known = {a for piece in pieces for a, _ in piece.term.factors}
        rest = tuple(f for f in term.factors if f[0] != atom)
        near = tuple((a, p) for a, p in rest if a in known or _is_exponential(a))
        near = rest if is_alone and len(pieces) == 1 else near
        products = [times(piece.term, Term(Fraction(1), near)) for piece in pieces]
        joined = [_joined(product) for product in products]
        moved = tuple(
            Moved(f"{shown(before)} = {shown(after)}", _proof(before, after))
            for before, after in zip(products, joined, strict=True)
            if after is not None
        )
        if len(moved) == len(pieces) and all(m.proof.answer == "proved" for m in moved):
            outside = Term(term.coefficient, tuple(f for f in rest if f not in near))
            names = tuple(piece.name for piece in pieces)
            return _Split(outside, names, tuple(t for t in joined if t is not None), moved)
    return None


def _with_exponentials(system: System, term: Term) -> Term:
    """Write out the factors of a term that stand for an exponential."""
    found = replace(term, factors=())
    for atom, exponent in term.factors:
        factor = Term(Fraction(1), ((atom, exponent),))
        read = system.definitions.get(atom.access.array) if isinstance(atom, Read) else None
        if isinstance(atom, Read) and read is not None and not read.has_reduction and exponent == 1:
            inner = expanded(system.instance(read.name, atom.access.indices), system.names)
            if len(inner) == 1 and exponential(inner[0]) is not None and not inner[0].brackets:
                factor = inner[0]
        found = times(found, factor)
    return found


def _is_exponential(atom: Value) -> bool:
    return isinstance(atom, Call) and atom.function in EXPONENTIALS


@dataclass(frozen=True, slots=True)
class _Piece:
    """One of the things that a cell is the sum of: the definition it stands in, and the term."""

    name: str
    term: Term


def _pieces(system: System, read: Definition, at: tuple[Index, ...]) -> list[_Piece] | None:
    """Return what a cell is the sum of, at least one of it a sum over an index."""
    terms = expanded(system.instance(read.name, at), system.names)
    if isinstance(read.value, Reduce):
        return [_Piece(read.name, terms[0])] if len(terms) == 1 else None
    found: list[_Piece] = []
    if read.has_reduction or len(terms) < 2:
        return None
    for term in terms:
        match term:
            case Term(Fraction(numerator=1, denominator=1), ((Read(access), 1),), (), ()):
                inner = system.definitions.get(access.array)
                if inner is None:
                    return None
                parts = _pieces(system, inner, access.indices)
                if parts is None and not inner.has_reduction:
                    alone = expanded(system.instance(inner.name, access.indices), system.names)
                    parts = [_Piece(inner.name, t) for t in alone]
                if parts is None:
                    return None
                found += parts
            case _:
                found.append(_Piece(read.name, term))
    return found if any(piece.term.generators for piece in found) else None


def _joined(term: Term) -> Term | None:
    """Return a product with one exponential for two in which something cancels, or None."""
    powers = [(a, p) for a, p in term.factors if isinstance(a, Call) and a.function in EXPONENTIALS]
    if len({a.function for a, _ in powers}) != 1:
        return None
    parts: dict[Value, int] = {}
    count = 0
    for atom, exponent in powers:
        for sign, part in summands(atom.arguments[0], 1):
            parts[part] = parts.get(part, 0) + sign * exponent
            count += abs(exponent)
    left = [(part, number) for part, number in parts.items() if number]
    if sum(abs(n) for _, n in left) == count or any(abs(n) != 1 for _, n in left):
        return None
    ordered = sorted(left, key=lambda each: each[1] < 0)
    argument = add(*[part if sign > 0 else Unary("-", part) for part, sign in ordered])
    one = ((Call(powers[0][0].function, (argument,)), 1),) if left else ()
    others = tuple((a, p) for a, p in term.factors if (a, p) not in powers)
    return replace(term, factors=(*one, *others))


def _value(term: Term) -> Value:
    """Return a term as a value: one sum with everything inside, or a product."""
    inside = value_of([replace(term, generators=(), brackets=())])
    if not term.generators:
        return value_of([term])
    bound = list(term.generators)
    if term.brackets:
        bound[-1] = replace(bound[-1], condition=conjunction(*term.brackets))
    return Reduce("sum", tuple(bound), inside)


def _proof(before: Term, after: Term) -> Equality:
    """Prove two products equal, whatever numbers their cells are."""
    names: dict[Access, str] = {}

    def named(value: Value) -> Value:
        def change(part: Value) -> Value | None:
            if not isinstance(part, Read):
                return None
            return Real(names.setdefault(part.access, f"x{len(names) + 1}"))

        return replaced(value, change)

    left, right = (
        named(value_of([replace(term, generators=(), brackets=())])) for term in (before, after)
    )
    return equality(left, right)


def _without_unread(system: System, outputs: frozenset[str]) -> None:
    """Leave out definitions that no output needs."""
    needed: set[str] = set()
    waiting: list[str] = list(outputs)
    while waiting:
        name = waiting.pop()
        if name in needed or name not in system.definitions:
            continue
        needed.add(name)
        waiting += system.definitions[name].reads()
    for name in set(system.definitions) - needed:
        del system.definitions[name]
