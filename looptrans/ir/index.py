"""Index expressions: the integers that stand in bounds, guards and subscripts.

They are a sort of their own, apart from values, because everything exact that is said about a
nest is said about them. An index expression is affine in loop variables and parameters, up to

- floor division and modulo (`FloorDiv`, `Mod`), by a constant or by a parameter,
- products with a parameter (`t * P`),
- `Min` and `Max` (in bounds),
- `Let`: an integer scalar of the listing that stands for another index expression,
- `Opaque`: an element of an integer array that the nest does not write, an uninterpreted
  function of its arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Int:
    """An integer literal."""

    value: int


@dataclass(frozen=True, slots=True)
class Var:
    """A loop variable, or the variable of a `sum(… for e in range(E))`."""

    name: str


@dataclass(frozen=True, slots=True)
class Param:
    """An integer that is fixed during a run: a size, a constant, an offset."""

    name: str


ArithmeticOperator: TypeAlias = Literal["+", "-", "*", "//", "%"]


@dataclass(frozen=True, slots=True)
class Arith:
    """`left op right`; `//` and `%` round toward minus infinity, as in Python."""

    op: ArithmeticOperator
    left: Index
    right: Index


@dataclass(frozen=True, slots=True)
class Neg:
    """`-operand`."""

    operand: Index


@dataclass(frozen=True, slots=True)
class Extremum:
    """`min(…)` or `max(…)` of two or more index expressions."""

    op: Literal["min", "max"]
    arguments: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Opaque:
    """An element of an integer array that the nest does not write, e.g. `cu[b + 1]`."""

    array: str
    arguments: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Let:
    """An integer scalar of the listing, with the index expression it stands for here."""

    name: str
    value: Index


Index: TypeAlias = Int | Var | Param | Arith | Neg | Extremum | Opaque | Let
_LEAVES: Final = (Var, Int, Param)


def children(index: Index) -> tuple[Index, ...]:
    """Return the operands of an index expression, left to right."""
    if isinstance(index, _LEAVES):  # most are: nothing else is asked of them
        return ()
    match index:
        case Arith(_, left, right):
            return (left, right)
        case Neg(operand):
            return (operand,)
        case Extremum(_, arguments) | Opaque(_, arguments):
            return arguments
        case Let(_, value):
            return (value,)
        case _:
            return ()


def walk(index: Index) -> Iterator[Index]:
    """Yield an index expression and everything below it, outermost first, left to right."""
    waiting = [index]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += reversed(children(part))


def rebuild(index: Index, operands: tuple[Index, ...]) -> Index:
    """Return `index` with its operands replaced; `children` gives the ones it has."""
    match index:
        case Arith(op, _, _):
            return Arith(op, *operands)
        case Neg(_):
            return Neg(*operands)
        case Extremum(op, _):
            return Extremum(op, operands)
        case Opaque(array, _):
            return Opaque(array, operands)
        case Let(name, _):
            return Let(name, *operands)
        case _:
            return index


def substitute(index: Index, values: Mapping[str, Index]) -> Index:
    """Replace loop variables by index expressions: `substitute(i + 1, {"i": j})` is `j + 1`."""
    if isinstance(index, Var):
        return values.get(index.name, index)
    operands = children(index)
    if not operands:
        return index
    return rebuild(index, tuple(substitute(operand, values) for operand in operands))


def variables(index: Index) -> tuple[str, ...]:
    """Return the loop variables an index expression mentions, in order of first appearance."""
    return tuple(dict.fromkeys(node.name for node in walk(index) if isinstance(node, Var)))


def parameters(index: Index) -> tuple[str, ...]:
    """Return the parameters an index expression mentions, in order of first appearance."""
    return tuple(dict.fromkeys(node.name for node in walk(index) if isinstance(node, Param)))


def opaque_terms(index: Index) -> tuple[Opaque, ...]:
    """Return the opaque terms of an index expression, inner ones after the ones they stand in."""
    return tuple(dict.fromkeys(node for node in walk(index) if isinstance(node, Opaque)))


def plain(index: Index) -> Index:
    """Return an index with integer scalars replaced by what they stand for."""
    if isinstance(index, Let):
        return plain(index.value)
    parts = children(index)
    return rebuild(index, tuple(plain(part) for part in parts)) if parts else index


def lets(index: Index) -> tuple[Let, ...]:
    """Return the integer scalars an index expression reads, in order of first appearance."""
    found: dict[Let, None] = {}

    def visit(node: Index) -> None:
        if isinstance(node, Let):
            found[node] = None
            return
        for child in children(node):
            visit(child)

    visit(index)
    return tuple(found)
