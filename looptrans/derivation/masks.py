"""Masks that a listing writes into its terms, made guards, so that masks have one form.

    m = max(m, S[i, j] if j <= i else -inf)             if j <= i:
    for d in range(D):                                      m = max(m, S[i, j])
        O[d] = O[d] + (w if j <= i else 0.0) * V[j, d]      for d in range(D):
                                                 ->             O[d] = O[d] + w * V[j, d]

A term that is the identity of its fold changes nothing: max(m, -inf) is m, and what is added is 0,
or 0 times or divided by a number. Only comparisons of indices are moved, which no statement
changes, so that what stands side by side under the same one can share a guard.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.adjoint.accumulating import accumulation
from looptrans.adjoint.choices import with_choices
from looptrans.algebra.values import is_number
from looptrans.ir.condition import (
    ALWAYS,
    Condition,
    compared,
    is_of_indices,
    opposite,
)
from looptrans.ir.index import variables
from looptrans.ir.monoids import OF_NOTHING, Folding
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.value import Binary, Call, Read, Select, Unary, Value


def with_guards(program: Program) -> Program:
    """Return a program that means the same, with guards for masks of terms where it can be."""
    return replace(program, body=_block(with_choices(program).body))


def _block(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    found: list[Node] = []
    for node in map(_node, nodes):
        last = found[-1] if found else None
        if (
            isinstance(last, If)
            and isinstance(node, If)
            and last.condition == node.condition
            and not (last.orelse or node.orelse)
            and is_of_indices(node.condition)
        ):
            found[-1] = replace(last, body=_block((*last.body, *node.body)))
        else:
            found.append(node)
    return tuple(found)


def _node(node: Node) -> Node:
    match node:
        case Assign():
            return _guarded(node)
        case If(_, body, orelse):
            return replace(node, body=_block(body), orelse=_block(orelse))
        case Loop(body=body):
            loop = replace(node, body=_block(body))
            match loop.body:
                case (If(condition, inner, ()),) if is_of_indices(condition):
                    if not any(loop.variable in variables(i) for i in compared(condition)):
                        return If(condition, (replace(loop, body=inner),))
            return loop
        case _:
            return node


def _guarded(node: Assign) -> Node:
    if len(node.targets) != 1 or len(node.values) != 1:
        return node
    (target,), (value,) = node.targets, node.values
    found = accumulation(target, value)
    if found is None:
        return node
    operator, term, condition = found
    masked = _masked(term, operator)
    if condition != ALWAYS or masked is None or not is_of_indices(masked[0]):
        return node
    joined: Value
    if operator == "sum":
        joined = Binary("+", Read(target), masked[1])
    else:
        joined = Call(operator, (Read(target), masked[1]))
    return If(masked[0], (replace(node, values=(joined,)),))


def _masked(term: Value, operator: Folding) -> tuple[Condition, Value] | None:
    """Take a term that is the identity where a condition does not hold apart."""
    match term:
        case Select(condition, chosen, otherwise) if is_number(otherwise, OF_NOTHING[operator]):
            return condition, chosen
        case Select(condition, chosen, otherwise) if is_number(chosen, OF_NOTHING[operator]):
            return opposite(condition), otherwise
    if operator != "sum":
        return None
    match term:
        case Binary("*" | "/" as op, left, right):
            found = _masked(left, operator)
            if found is not None:
                return found[0], Binary(op, found[1], right)
            found = _masked(right, operator) if op == "*" else None
            return None if found is None else (found[0], Binary(op, left, found[1]))
        case Unary("-", operand):
            found = _masked(operand, operator)
            return None if found is None else (found[0], Unary("-", found[1]))
    return None
