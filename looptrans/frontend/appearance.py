"""What a program mentions, in the order of its canonical listing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from looptrans.ir.condition import Condition, Data, Relation, parts_of
from looptrans.ir.index import Extremum, Index, Let, Opaque, Param, walk
from looptrans.ir.program import (
    Assign,
    Atomic,
    Barrier,
    BlockReduce,
    Contract,
    Declaration,
    If,
    Loop,
    Node,
)
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Compare,
    Const,
    Create,
    Generator,
    Holds,
    IndexValue,
    Range,
    Read,
    Real,
    Reduce,
    Select,
    Unary,
    Value,
)


def names_in(contracts: Iterable[Contract], body: Iterable[Node]) -> dict[str, None]:
    """Return arrays, parameters and called functions (as `max(`) in order of first appearance."""
    found: dict[str, None] = {}
    for contract in contracts:
        found |= dict.fromkeys(_generators(contract.generators))
        found |= dict.fromkeys(_condition(contract.condition))
    for node in body:
        found |= dict.fromkeys(_node(node))
    return found


def names_at(node: Node) -> set[str]:
    """Return what `names_in` finds in a node itself, without the nodes in its body."""
    match node:
        case Loop():
            node = replace(node, body=())
        case If():
            node = replace(node, body=(), orelse=())
        case Atomic() | BlockReduce():
            node = replace(node, body=())
        case _:
            pass
    return set(_node(node))


def _node(node: Node) -> Iterator[str]:
    match node:
        case Declaration(array, creation):
            yield array
            yield from _value(creation)
        case Assign():
            for target in node.targets:
                yield from _access(target)
            for value in node.values:
                yield from _value(value)
        case Loop():
            yield from _range(node.range)
            for inner in node.body:
                yield from _node(inner)
        case If():
            yield from _condition(node.condition)
            for inner in (*node.body, *node.orelse):
                yield from _node(inner)
        case Atomic() | BlockReduce():
            for inner in node.body:
                yield from _node(inner)
        case Barrier():
            pass


def _index(index: Index) -> Iterator[str]:
    for part in walk(index):
        match part:
            case Param(name) | Let(name, _) | Opaque(name, _):
                yield name
            case Extremum(op, _):
                yield f"{op}("
            case _:
                pass


def _range(bounds: Range) -> Iterator[str]:
    yield from _index(bounds.start)
    yield from _index(bounds.stop)


def _access(access: Access) -> Iterator[str]:
    yield access.array
    for index in access.indices:
        yield from _index(index)


def _generators(generators: Iterable[Generator]) -> Iterator[str]:
    for generator in generators:
        yield from _range(generator.range)
        yield from _condition(generator.condition)


def _condition(condition: Condition) -> Iterator[str]:
    match condition:
        case Relation(_, left, right):
            yield from _index(left)
            yield from _index(right)
        case Data(value):
            yield from _value(value)
        case _:
            for part in parts_of(condition):
                yield from _condition(part)


def _value(value: Value) -> Iterator[str]:
    match value:
        case Const(number):
            if isinstance(number, float) and abs(number) == float("inf"):
                yield "inf("
        case IndexValue(index):
            yield from _index(index)
        case Real(name):
            yield name
        case Read(access):
            yield from _access(access)
        case Unary(_, operand):
            yield from _value(operand)
        case Binary(_, left, right) | Compare(_, left, right):
            yield from _value(left)
            yield from _value(right)
        case Holds(condition):
            yield from _condition(condition)
        case Select(condition, chosen, otherwise):
            yield from _condition(condition)
            yield from _value(chosen)
            yield from _value(otherwise)
        case Call(function, arguments):
            yield f"{function}("
            for argument in arguments:
                yield from _value(argument)
        case Reduce(function, generators, body):
            yield f"{function}("
            yield from _generators(generators)
            yield from _value(body)
        case Create(function, shape, fill):
            yield f"{function}("
            for extent in shape:
                yield from _index(extent)
            if fill is not None:
                yield from _value(fill)
