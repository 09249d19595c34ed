"""Conditions on integer arrays seen as data, where only the flow of values is asked.

    x = a if ok[t] == 1 else b    ->    x = a if (the number ok[t]) == 1 else b

    if ok[t] == 1: x = a          ->    x = a if (the number ok[t]) == 1 else x

    x = P[t, label[s]]            ->    x = a number, where nothing writes P

What stands under such a condition then counts as done in any case: more reads must get the value
they got before than really do, and nothing has to be known of the array. A step that keeps the
values of certain arrays elsewhere is shown on what touches those alone.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from looptrans.ir.condition import Condition, Data, Relation, conjunction, with_tests
from looptrans.ir.index import Arith, Index, Int, Opaque, opaque_terms
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced, rewritten, values_replaced, with_accesses
from looptrans.ir.value import (
    Access,
    Binary,
    Compare,
    Const,
    Holds,
    IndexValue,
    Read,
    Reduce,
    Select,
    Subscript,
    Value,
    Whole,
)
from looptrans.ir.walk import accesses, read_in, written_in


def with_tests_as_data(program: Program) -> Program:
    """Return a program whose values flow the same way, with conditions on integer arrays as data.

    What such arrays choose of an array that nothing writes is a number like any other.
    """
    unwritten = {array.name for array in program.arrays} - written_in(program.body)

    def number(part: Value) -> Value | None:
        match part:
            case Read(access) if access.array in unwritten and any(
                map(opaque_terms, access.indices)
            ):
                return Const(0.0)
            case _:
                return None

    def chosen(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Assign):
            return (node,)
        return (values_replaced(node, number),)

    return replace(program, body=_body(rewritten(program.body, chosen)))


def about(program: Program, asked: Container[str]) -> Program:
    """Return what touches certain arrays, for a step that leaves all else as it is and in order.

    Of other arrays nothing is asked: what integer arrays choose of them is one cell, and so is what
    products of sizes do. Whatever else stands under an integer is a number.

    Args:
        program: The program, with any numbers for products (`with_any_products`).
        asked: The arrays.
    """
    known = {array.name for array in program.arrays}

    def merged(access: Access) -> Access:
        own = (Int(0) if _is_opaque(each) else each for each in access.subscripts)
        return access if access.array in asked else replace(access, subscripts=tuple(own))

    def number(part: Value) -> Value | None:
        match part:
            case Reduce() if not asked_in(part):
                return Const(0.0)
            case Read(access) if access.array not in known:
                return Const(0.0)
            case IndexValue(index) if opaque_terms(index):
                return Const(0.0)
            case _:
                return None

    def asked_in(value: Value) -> bool:
        return any(r.access.array in asked for r in accesses(Assign("S", (), (value,))))

    def kept(node: Node) -> tuple[Node, ...]:
        match node:
            case Assign():
                if not any(relation.access.array in asked for relation in accesses(node)):
                    return ()
                return (values_replaced(node, number),)
            case Loop(body=()) | If(body=(), orelse=()):
                return ()
            case _:
                return (node,)

    return replace(program, body=with_accesses(rewritten(program.body, kept), merged))


def _is_opaque(subscript: Subscript) -> bool:
    return not isinstance(subscript, Whole) and bool(opaque_terms(subscript))


def _body(body: tuple[Node, ...]) -> tuple[Node, ...]:
    return tuple(each for node in body for each in _node(node))


def _node(node: Node) -> tuple[Node, ...]:
    match node:
        case Assign():
            return (values_replaced(node, _value),)
        case If(condition, inner, ()):
            tested = _condition(condition)
            asked = read_in((replace(node, body=()),))
            stays = not asked & written_in(inner)
            if tested != condition and stays and all(_is_plain(each) for each in inner):
                return tuple(_under(tested, each) for each in _body(inner))
            return (replace(node, body=_body(inner)),)
        case If():
            return (replace(node, body=_body(node.body), orelse=_body(node.orelse)),)
        case Loop():
            return (replace(node, body=_body(node.body)),)
        case _:
            return (node,)


def _is_plain(node: Node) -> bool:
    match node:
        case Assign(targets=(_,), values=(_,)):
            return True
        case If(_, inner, ()) | Loop(body=inner):
            return all(_is_plain(each) for each in inner)
        case _:
            return False


def _under(tested: Condition, node: Node) -> Node:
    """Return a node that leaves everything as it is where a condition fails."""
    match node:
        case Assign(targets=(target,), values=(Select(condition, chosen, Read(own)),)) if (
            own == target
        ):
            value: Value = Select(conjunction(tested, condition), chosen, Read(own))
            return replace(node, values=(value,), augmented=False)
        case Assign(targets=(target,), values=(given,)):
            value = Select(tested, given, Read(target))
            return replace(node, values=(value,), augmented=False)
        case If() | Loop():
            return replace(node, body=tuple(_under(tested, each) for each in node.body))
        case _:
            return node


def _value(value: Value) -> Value | None:
    match value:
        case Select(condition, chosen, otherwise):
            one, other = replaced(chosen, _value), replaced(otherwise, _value)
            return Select(_condition(condition), one, other)
        case Holds(condition):
            return Holds(_condition(condition))
        case _:
            return None


def _condition(condition: Condition) -> Condition:
    return with_tests(condition, _test)


def _test(test: Condition) -> Condition:
    match test:
        case Relation(op, left, right) if opaque_terms(left) or opaque_terms(right):
            return Data(Compare(op, _number(left), _number(right)))
        case _:
            return test


def _number(index: Index) -> Value:
    match index:
        case Opaque(array, arguments):
            return Read(Access(array, arguments))
        case Int(value):
            return Const(value)
        case Arith(op, left, right):
            return Binary(op, _number(left), _number(right))
        case _:
            return IndexValue(index)
