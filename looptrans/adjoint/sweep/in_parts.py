"""Sums over the parts that a stored array adds up, recognized together.

    O[i, d] = a[i, d] + b[i, d]      a[i, d] = sum(P[i, j] * V[j, d] for j)    b likewise over k

    sum(P[i, j] * dP[i, j] for j) + sum(R[i, k] * dR[i, k] for k)  ->  sum(O[i, d] * dO[i, d] for d)

None of the parts is stored, so neither sum by itself is one of what is at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

from looptrans.adjoint.equations.definitions import Definition, System
from looptrans.adjoint.equations.recognition import applied
from looptrans.adjoint.equations.size import Sizes
from looptrans.adjoint.equations.sums import Term, canonical, expanded, times
from looptrans.adjoint.exponentials.weights import Prepared
from looptrans.algebra.positional.cells import value_moved
from looptrans.ir.index import Var
from looptrans.ir.value import Access, Binary, Read, Reduce

_Key: TypeAlias = tuple[str, Fraction]
"""What a term is, and the number in front of it."""


@dataclass(frozen=True, slots=True)
class Together:
    """Terms that are one sum over an array at hand.

    Attributes:
        places: Which of the terms they are.
        term: What they add up to.
        total: The array.
        parts: What it adds up.
    """

    places: tuple[int, ...]
    term: Term
    total: str
    parts: tuple[str, ...]


def recognized_in_parts(prepared: Prepared, sizes: Sizes, terms: list[Term]) -> Together | None:
    """Find terms that are sums over all parts of an array at hand; None where there are none."""
    if sum(bool(term.generators) for term in terms) < 2:
        return None
    system = prepared.system
    for total in list(system.definitions.values()):
        if total.origin != "forward" or total.has_reduction:
            continue
        parts = _parts(system, total)
        if parts is None or len(parts) < 2 or not sizes.is_at_hand(system, total.name):
            continue
        found: dict[_Key, list[int]] | None = None
        kept: dict[_Key, Term] = {}
        for name in parts:
            mine: dict[_Key, int] = {}
            for place, term in enumerate(terms):
                for better in _over(prepared, term, name, total.name):
                    key = (canonical(better), better.coefficient)
                    mine.setdefault(key, place)
                    kept.setdefault(key, better)
            if found is None:
                found = {key: [place] for key, place in mine.items()}
            else:
                found = {key: [*places, mine[key]] for key, places in found.items() if key in mine}
        for key, places in (found or {}).items():
            if len(set(places)) == len(parts):
                return Together(tuple(places), kept[key], total.name, tuple(parts))
    return None


def _parts(system: System, definition: Definition) -> list[str] | None:
    """Return the sums that a definition adds up cell by cell, and nothing else."""
    here = tuple(Var(v) for v in definition.variables)
    found: list[str] = []
    for term in expanded(definition.value, system.names):
        match term:
            case Term(1, ((Read(access), 1),), (), ()) if access.subscripts == here:
                part = system.definitions.get(access.array)
            case _:
                return None
        if part is None:
            return None
        inner = [part.name] if isinstance(part.value, Reduce) else _parts(system, part)
        if inner is None:
            return None
        found += inner
    return found


def _over(prepared: Prepared, term: Term, part: str, total: str) -> Iterator[Term]:
    """Yield a term with a sum over a part recognized, as if the part were the whole."""
    rules = [rule for rule in prepared.rules if rule.name == part]
    for written in _written(prepared.system, term):
        for rule in rules:
            better = applied(written, rule)
            if better is None:
                continue
            better = prepared.over_stored(better)
            found = replace(better, factors=())
            for atom, power in better.factors:
                factor = Term(Fraction(1), ((atom, power),))
                if isinstance(atom, Read) and atom.access.array == part:
                    whole = _as_output(prepared.system, total, atom.access)
                    factor = Term(Fraction(1), tuple((each, power) for each in whole))
                found = times(found, factor)
            yield prepared.over_stored(found)


def _as_output(system: System, total: str, at: Access) -> tuple[Read, ...]:
    """Return a cell of what the parts add up to, by what it is divided for an output: O * l."""
    for definition in system.definitions.values():
        match definition.value:
            case Binary("/", Read(above), Read(below)) if (
                above.array == total and above.subscripts == definition.cell.access.subscripts
            ):
                here = dict(zip(definition.variables, at.indices, strict=True))
                divisor = value_moved(Read(below), here)
                assert isinstance(divisor, Read)
                return Read(Access(definition.name, at.subscripts)), divisor
            case _:
                pass
    return (Read(Access(total, at.subscripts)),)


def _written(system: System, term: Term) -> Iterator[Term]:
    """Yield a term, and the same with a sum that one of its factors stands for written out."""
    yield term
    for number, (atom, power) in enumerate(term.factors):
        if power != 1 or not isinstance(atom, Read):
            continue
        definition = system.definitions.get(atom.access.array)
        if definition is None or not isinstance(definition.value, Reduce):
            continue
        if definition.value.function == "sum":
            value = system.instance(definition.name, atom.access.indices)
            inner = expanded(value, system.names)
            if len(inner) == 1:
                rest = (*term.factors[:number], *term.factors[number + 1 :])
                yield times(replace(term, factors=rest), inner[0])
