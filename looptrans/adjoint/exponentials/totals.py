"""What a sum of exponentials is made of: sums over an index, and single ones it began with.

l[i] = first[i] + a[i] + b[i]    first[i] = exp(s - m[i])    a[i] = sum(exp(S[i, j] - m[i]) for j)
"""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.adjoint.equations.definitions import Definition, System
from looptrans.adjoint.equations.sums import Term, expanded
from looptrans.ir.index import Var
from looptrans.ir.value import Binary, Call, Read, Reduce, Value, walk_value

EXPONENTIALS = {"exp": "log", "exp2": "log2"}


@dataclass(frozen=True, slots=True)
class Parts:
    """What a sum of exponentials is made of.

    Attributes:
        sums: The sums over an index, at least one.
        firsts: The single exponentials, each a definition of its own, as what a sum begins with is.
    """

    sums: tuple[Definition, ...]
    firsts: tuple[Definition, ...]


def exponential(term: Term) -> Call | None:
    """Return the exponential that a term is, if it is one."""
    if len(term.factors) != 1 or term.coefficient != 1:
        return None
    atom, exponent = term.factors[0]
    if isinstance(atom, Call) and atom.function in EXPONENTIALS and exponent == 1:
        return atom
    return None


def is_part(system: System, definition: Definition) -> bool:
    """Tell whether a sum of exponentials is there to be added to others, and divides nothing."""
    found = False
    for reader in system.definitions.values():
        if definition.name not in reader.reads():
            continue
        parts = parts_of_total(system, reader)
        if parts is not None:
            found = True
        elif any(_needs(term, definition.name) for term in expanded(reader.value, system.names)):
            return False
    return found


def is_divisor(system: System, total: Definition, sums: tuple[Definition, ...]) -> bool:
    """Tell whether quotients by a sum of exponentials are numbers where the listing's values are.

    Without a maximum that is taken off, all exponentials may be rounded to 0. So may their sum, and
    what does not divide by it is a number nevertheless.
    """
    for each in sums:
        for name in each.reads():
            read = system.definitions.get(name)
            if read is not None and any(_is_extremum(part) for part in walk_value(read.value)):
                return True
    return any(
        _divides_by(term, total.name)
        for reader in system.definitions.values()
        if total.name in reader.reads()
        for term in expanded(reader.value, system.names)
    )


def _is_extremum(value: Value) -> bool:
    return isinstance(value, Reduce | Call) and value.function in ("max", "min")


def _divides_by(term: Term, name: str) -> bool:
    """Tell whether a term is no number where an array is 0."""
    for atom, power in term.factors:
        match atom:
            case Read(access) if access.array == name and power < 0:
                return True
            case Call("log" | "log2" | "sqrt", (argument,)):
                inside: Value | None = argument
                while isinstance(inside, Binary) and inside.op in ("*", "/"):
                    inside = inside.left
                if isinstance(inside, Read) and inside.access.array == name:
                    return True
            case _:
                pass
    return False


def parts_of_total(system: System, definition: Definition) -> Parts | None:
    """Return what a definition is the sum of, where a sum of exponentials has others beside it."""
    parts = _parts(system, definition)
    if parts is None:
        return None
    functions = set()
    for each in parts:
        terms = expanded(each.value, system.names)
        found = exponential(terms[0]) if len(terms) == 1 else None
        functions.add(None if found is None else found.function)
    sums = tuple(d for d in parts if isinstance(d.value, Reduce))
    if not sums or len(functions) != 1 or None in functions:
        return None
    return Parts(sums, tuple(d for d in parts if not d.has_reduction))


def _parts(system: System, definition: Definition) -> list[Definition] | None:
    """Return the definitions that one adds up, those that add up others written out.

    What is added in place has to be positive, so that the whole is no less than its sums.
    """
    if definition.has_reduction:
        return None
    here = tuple(Var(v) for v in definition.variables)
    found: list[Definition] = []
    terms = expanded(definition.value, system.names)
    for term in terms:
        if term.generators or term.brackets:
            return None
        match term.factors:
            case ((Read(access), 1),) if term.coefficient == 1 and access.subscripts == here:
                read = system.definitions.get(access.array)
                if read is None:
                    return None
                found += _parts(system, read) or [read]
            case _ if not _is_positive(term):
                return None
    return found if len(terms) > 1 else None


def _is_positive(term: Term) -> bool:
    return term.coefficient > 0 and all(
        isinstance(atom, Call) and atom.function in EXPONENTIALS for atom, _ in term.factors
    )


def _needs(term: Term, name: str) -> bool:
    """Tell whether a term divides by an array, or takes a function of it."""
    return any(
        isinstance(part, Read) and part.access.array == name and (part is not atom or power < 0)
        for atom, power in term.factors
        for part in walk_value(atom)
    )
