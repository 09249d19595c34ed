"""Loops and sums in steps of 1.

for i in range(a, b, 2): Y[i] = …    ->    for i in range(0, (b - a + 1) // 2): Y[a + 2 * i] = …
for j in range(i, -1, -1): … x[j]    ->    for j in range(-i, 1): … x[-j]
sum(x[j] for j in range(n, -1, -1))  ->    sum(x[n - j] for j in range(0, n + 1))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from looptrans.ir.affine import difference, product, quotient, total
from looptrans.ir.condition import Condition
from looptrans.ir.index import Index, Int, Var, variables
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced, values_replaced
from looptrans.ir.value import Access, Generator, Range, Reduce, Select, Value
from looptrans.transforms.editing.substitute import substitute_variable


def unit_steps(program: Program) -> Program:
    """Return a program that means the same, in which every loop and every sum counts up by 1.

    The iterations keep their order and number; only what they are called changes.
    """
    return replace(program, body=tuple(_node(node) for node in program.body))


def _node(node: Node) -> Node:
    match node:
        case If():
            return replace(
                node,
                body=tuple(_node(n) for n in node.body),
                orelse=tuple(_node(n) for n in node.orelse),
            )
        case Loop():
            body = tuple(_node(n) for n in node.body)
            step = node.range.step
            if step == 1:
                return replace(node, body=body)
            counted, at = _upward(node.variable, node.range)
            inner = tuple(substitute_variable(n, {node.variable: at}) for n in body)
            return replace(node, range=counted, body=inner)
        case Assign():
            return values_replaced(node, _sum)
        case _:
            return node


def _sum(value: Value) -> Value | None:
    """Return a sum, maximum or minimum over what counts up by 1; None for another value."""
    if not isinstance(value, Reduce):
        return None
    generator, *rest = value.generators
    inner = Reduce(value.function, tuple(rest), value.body) if rest else value.body
    inner = replaced(inner, _sum)
    step = generator.range.step
    if step != 1:
        at = total(generator.range.start, product(step, Var(generator.variable)))
        asked, inner = _placed(generator.condition, inner, {generator.variable: at})
        generator = Generator(generator.variable, Range(Int(0), _count(generator.range)), asked)
    if not rest:
        return Reduce(value.function, (generator,), inner)
    assert isinstance(inner, Reduce)
    return Reduce(value.function, (generator, *inner.generators), inner.body)


def _placed(
    condition: Condition, value: Value, values: Mapping[str, Index]
) -> tuple[Condition, Value]:
    """Return a condition and a value with index expressions for variables."""
    holder = Assign("", (Access("", ()),), (Select(condition, value, value),))
    (moved,) = substitute_variable(holder, values).values
    assert isinstance(moved, Select)
    return moved.condition, moved.chosen


def _upward(variable: str, range_: Range) -> tuple[Range, Index]:
    """Return a range that counts up by 1, and what the variable of the old one is in it.

    Downward from where rows differ it counts what is negative, so that they read the same cells at
    the same time: K[-j] for j from -i on, not K[i - j].
    """
    if range_.step == -1 and variables(range_.start):
        down = Range(product(-1, range_.start), product(-1, range_.stop))
        return down, product(-1, Var(variable))
    at = total(range_.start, product(range_.step, Var(variable)))
    return Range(Int(0), _count(range_)), at


def _count(range_: Range) -> Index:
    """Return how many iterations a range has, or some number below 0 where it has none."""
    step = range_.step
    if step > 0:
        return quotient(total(difference(range_.stop, range_.start), step - 1), step)
    return quotient(total(difference(range_.start, range_.stop), -step - 1), -step)
