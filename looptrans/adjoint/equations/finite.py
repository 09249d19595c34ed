"""Values that are finite, and whose derivatives are, whatever finite numbers they are made of.

    K[j, t] * w[t],   K[j] / sqrt(n[j] + 1e-6) with n[j] = sum(K[j, t] ** 2)      yes
    1 / n[j],   sqrt(M - j),   exp(K[j])                                          no

Such a value may be worked out in rows that the listing does not visit, if all that is made of it
there is finite as well: nothing comes back from there, and 0 times its derivative is 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from looptrans.adjoint.equations.definitions import Definition, System
from looptrans.ir.index import Param, variables
from looptrans.ir.rewrite import with_reads
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Const,
    IndexValue,
    Read,
    Real,
    Reduce,
    Select,
    Unary,
    Value,
    free_variables,
    reductions,
    value_children,
    walk_value,
)

_PLAIN = frozenset(("tanh", "sin", "cos", "abs", "max", "min"))


def is_finite(value: Value, system: System) -> bool:
    """Tell whether a value and its derivatives surely are finite.

    Args:
        value: The value.
        system: The definitions it may read.
    """
    match value:
        case Const(number):
            return abs(number) < float("inf")
        case IndexValue() | Real():
            return True
        case Read():
            inner = _defined(value, system)
            return inner is None or is_finite(inner, system)
        case Unary("-", operand):
            return is_finite(operand, system)
        case Binary("+" | "-" | "*", left, right):
            return is_finite(left, system) and is_finite(right, system)
        case Binary("/", left, right):
            return is_finite(left, system) and _is_positive(right, system)
        case Binary("**", base, Const(number)) if number >= 1 and number % 1 == 0:
            return is_finite(base, system)
        case Binary("**", base, Const()):
            return _is_positive(base, system)
        case Call("sqrt" | "log" | "log2", (operand,)):
            return _is_positive(operand, system)
        case Call(name, arguments) if name in _PLAIN:
            return all(is_finite(each, system) for each in arguments)
        case Select(_, chosen, otherwise):
            return is_finite(chosen, system) and is_finite(otherwise, system)
        case Reduce(_, _, body):
            return is_finite(body, system)
        case _:
            return False


def comes_back_finite(own: Definition, index: str, system: System) -> bool:
    """Tell whether what its readers make of a definition leaves finite factors to its adjoint.

        c[i, j] = x[i, j] / sqrt(n[j])      dn[j] = n[j] ** -1.5 * sum(… for i): not where n[j] is 0

    Args:
        own: The definition.
        index: The variable of an index that runs over rows without readers as well.
        system: All definitions.
    """
    free = set(free_variables(own.value))
    wide = {own.name: _places(own, {index})}
    # Which subscripts say which cell of `own` is read, and which ones a definition depends on.
    of_own = {own.name: _places(own, free)}
    cells = dict(of_own)
    waiting = [own.name]
    while waiting:
        name = waiting.pop()
        for reader in list(system.definitions.values()):
            bound = {g.variable for part in reductions(reader.value) for g in part.generators}
            for access in reader.reads().get(name, ()):
                mine = {v for p in of_own[name] for v in variables(access.indices[p])}
                if not _is_tame(reader.value, cells, mine, system):
                    return False
                tracked = {v for p in wide[name] for v in variables(access.indices[p])}
                here = _places(reader, tracked - bound)
                if here - wide.get(reader.name, frozenset()):
                    own_cell = _places(reader, mine - bound)
                    of_own[reader.name] = of_own.get(reader.name, frozenset()) | own_cell
                    wide[reader.name] = wide.get(reader.name, frozenset()) | here
                    cells[reader.name] = _places(reader, _hanging(reader.value, cells))
                    waiting.append(reader.name)
    return True


def _places(definition: Definition, names: set[str]) -> frozenset[int]:
    return frozenset(n for n, name in enumerate(definition.variables) if name in names)


def _is_tame(
    value: Value, cells: Mapping[str, frozenset[int]], mine: set[str], system: System
) -> bool:
    """Tell whether all parts of a value are finite that hang on some variables alone.

    So must be what is divided by, and the like, where it is made of some definitions.

    Args:
        value: The value.
        cells: Those definitions, with the places of the subscripts that they depend on.
        mine: The variables.
        system: All definitions.
    """
    if _hanging(value, cells) <= mine and not isinstance(value, Reduce):
        return is_finite(value, system)
    made = any(isinstance(p, Read) and p.access.array in cells for p in walk_value(value))
    if made:
        pole = _pole(value)
        if pole is not None:
            alone = [f for f in _factors(pole) if _hanging(f, cells) <= mine]
            if not all(_is_positive(factor, system) for factor in alone):
                return False
        match value:
            case Call("sqrt" | "log" | "log2"):
                pass
            case Binary("+" | "-" | "*" | "**" | "/") | Unary() | Select() | Reduce():
                pass
            case Call(name) if name in _PLAIN or name in ("exp", "exp2"):
                pass
            case Read():
                return True
            case _:
                return False
    return all(_is_tame(part, cells, mine, system) for part in value_children(value))


def _pole(value: Value) -> Value | None:
    """Return what must not be 0 for a value and its derivatives to be finite, if anything."""
    match value:
        case Binary("**", _, Const(number)) if number >= 1 and number % 1 == 0:
            return None
        case Binary("/", _, operand) | Binary("**", operand, _):
            return operand
        case Call("sqrt" | "log" | "log2", (operand,)):
            return operand
    return None


def _hanging(value: Value, cells: Mapping[str, frozenset[int]]) -> set[str]:
    """Return the variables that a value depends on."""

    def kept(access: Access) -> Access:
        places = cells.get(access.array)
        if places is None:
            return access
        return Access(access.array, tuple(access.indices[place] for place in sorted(places)))

    return set(free_variables(with_reads(value, kept)))


def _factors(value: Value) -> tuple[Value, ...]:
    """Return the factors that a value has as one that is divided by; each can stand apart."""
    match value:
        case Binary("*" | "/", left, right):
            return (*_factors(left), *_factors(right))
        case Unary(_, operand) | Call("sqrt", (operand,)) | Binary("**", operand, _):
            return _factors(operand)
        case _:
            return (value,)


def _is_positive(value: Value, system: System) -> bool:
    """Tell whether a value is finite and surely no less than some number above 0."""
    match value:
        case Const(number):
            return 0.0 < number < float("inf")
        case IndexValue(Param()):
            return True  # a size, where there is anything
        case Binary("+", left, right):
            if not (_is_no_less(left, system) and _is_no_less(right, system)):
                return False
            return _is_positive(left, system) or _is_positive(right, system)
        case Binary("*" | "/", left, right):
            return _is_positive(left, system) and _is_positive(right, system)
        case Call("sqrt", (operand,)):
            return _is_positive(operand, system)
        case Call("max", arguments):
            finite = all(is_finite(each, system) for each in arguments)
            return finite and any(_is_positive(each, system) for each in arguments)
        case Read():
            inner = _defined(value, system)
            return inner is not None and _is_positive(inner, system)
        case _:
            return False


def _is_no_less(value: Value, system: System) -> bool:
    """Tell whether a value is finite and surely no less than 0."""
    if not is_finite(value, system):
        return False
    match value:
        case Const(number):
            return number >= 0
        case Binary("*", left, right) if left == right:
            return True
        case Binary("*" | "+", left, right):
            return _is_no_less(left, system) and _is_no_less(right, system)
        case Binary("/", left, right):
            return _is_no_less(left, system) and _is_positive(right, system)
        case Binary("**", _, Const(number)):
            return number % 2 == 0
        case Call("abs"):
            return True
        case Reduce("sum", _, body):
            return _is_no_less(body, system)
        case Read():
            inner = _defined(value, system)
            return inner is not None and _is_no_less(inner, system)
        case _:
            return _is_positive(value, system)


def _defined(read: Read, system: System) -> Value | None:
    definition = system.definitions.get(read.access.array)
    return None if definition is None else definition.value
