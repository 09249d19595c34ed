"""Rewriting values and conditions part by part, blocks node by node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from looptrans.ir.condition import Condition, with_operands
from looptrans.ir.index import Index
from looptrans.ir.program import Assign, Atomic, BlockReduce, If, Loop, Node
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
    Whole,
)


def replaced(value: Value, change: Callable[[Value], Value | None]) -> Value:
    """Replace every part for which `change` gives something, from the outside in.

    What is put in is not looked at again; an operation whose operands stay is returned as it is.
    """
    changed = change(value)
    if changed is not None:
        return changed

    def inner(part: Value) -> Value:
        return replaced(part, change)

    match value:
        case Read() | Const() | Real() | IndexValue():
            return value
        case Unary(op, operand):
            new = inner(operand)
            return value if new is operand else Unary(op, new)
        case Binary(op, left, right):
            first, second = inner(left), inner(right)
            return value if first is left and second is right else Binary(op, first, second)
        case Compare(op, left, right):
            return Compare(op, inner(left), inner(right))
        case Holds(condition):
            return Holds(replaced_in_condition(condition, change))
        case Select(condition, chosen, otherwise):
            return Select(replaced_in_condition(condition, change), inner(chosen), inner(otherwise))
        case Call(function, arguments):
            return Call(function, tuple(inner(argument) for argument in arguments))
        case Reduce(function, generators, body):
            bound = tuple(
                Generator(g.variable, g.range, replaced_in_condition(g.condition, change))
                for g in generators
            )
            return Reduce(function, bound, inner(body))
        case Create(function, shape, fill, element):
            return Create(function, shape, None if fill is None else inner(fill), element)
        case _:
            return value


def replaced_in_condition(
    condition: Condition, change: Callable[[Value], Value | None]
) -> Condition:
    """Replace parts of the values a condition depends on; see `replaced`."""
    return with_operands(condition, value=lambda value: replaced(value, change))


def replaced_part(value: Value, old: Value, new: Value) -> Value:
    """Put a value in for another, wherever it stands."""
    return replaced(value, lambda part: new if part == old else None)


def reductions_replaced(value: Value, change: Callable[[Reduce], Value]) -> Value:
    """Replace every sum, maximum and minimum by what `change` makes of it, inner ones first."""

    def each(part: Value) -> Value | None:
        if not isinstance(part, Reduce):
            return None
        bound = tuple(
            replace(g, condition=replaced_in_condition(g.condition, each)) for g in part.generators
        )
        return change(Reduce(part.function, bound, replaced(part.body, each)))

    return replaced(value, each)


def reductions_rewritten(
    body: tuple[Node, ...],
    nodes: Callable[[Node], tuple[Node, ...]],
    reductions: Callable[[Reduce], Value],
) -> tuple[Node, ...]:
    """Rewrite a block, loops and the sums in what statements assign alike.

    Args:
        body: The block.
        nodes: What stands for a node that is no statement, what is inside being rewritten.
        reductions: What stands for a sum, a maximum or a minimum, inner ones being replaced.
    """

    def each(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Assign):
            return nodes(node)
        values = tuple(reductions_replaced(value, reductions) for value in node.values)
        return (replace(node, values=values),)

    return rewritten(body, each)


def cells_put_in(value: Value, known: Mapping[Access, Value]) -> Value:
    """Put in for cells that are read what is known that they hold."""
    return replaced(value, lambda part: known.get(part.access) if isinstance(part, Read) else None)


def chosen_where(value: Value, condition: Condition) -> Value:
    """Return a value without choices by a condition, which holds."""

    def change(part: Value) -> Value | None:
        if isinstance(part, Select) and part.condition == condition:
            return replaced(part.chosen, change)
        return None

    return replaced(value, change)


def with_reads(value: Value, change: Callable[[Access], Access]) -> Value:
    """Return a value with every access that it reads replaced."""
    return replaced(value, _reading(change))


def _reading(change: Callable[[Access], Access]) -> Callable[[Value], Value | None]:
    def changed(part: Value) -> Value | None:
        return Read(change(part.access)) if isinstance(part, Read) else None

    return changed


def access_changed(access: Access, change: Callable[[Index], Index]) -> Access:
    """Change the subscripts of a cell."""
    return Access(
        access.array, tuple(s if isinstance(s, Whole) else change(s) for s in access.subscripts)
    )


def range_changed(limits: Range, change: Callable[[Index], Index]) -> Range:
    """Change where a range starts and where it stops."""
    return Range(change(limits.start), change(limits.stop), limits.step)


def value_changed(value: Value, change: Callable[[Index], Index]) -> Value:
    """Change the index expressions of a value."""

    def each(part: Value) -> Value | None:
        match part:
            case Read(access):
                return Read(access_changed(access, change))
            case IndexValue(index):
                return IndexValue(change(index))
            case Select(condition, chosen, otherwise):
                return Select(
                    condition_changed(condition, change),
                    value_changed(chosen, change),
                    value_changed(otherwise, change),
                )
            case Holds(condition):
                return Holds(condition_changed(condition, change))
            case Reduce(function, generators, body):
                found = tuple(
                    Generator(
                        g.variable,
                        range_changed(g.range, change),
                        condition_changed(g.condition, change),
                    )
                    for g in generators
                )
                return Reduce(function, found, value_changed(body, change))
            case _:
                return None

    return replaced(value, each)


def condition_changed(condition: Condition, change: Callable[[Index], Index]) -> Condition:
    """Change the index expressions of a condition."""
    return with_operands(condition, index=change, value=lambda value: value_changed(value, change))


def values_replaced(node: Assign, change: Callable[[Value], Value | None]) -> Assign:
    """Replace parts of what a statement assigns; see `replaced`."""
    return replace(node, values=tuple(replaced(value, change) for value in node.values))


def rewritten(
    body: tuple[Node, ...], change: Callable[[Node], tuple[Node, ...]]
) -> tuple[Node, ...]:
    """Return a block with every node replaced by what `change` makes of it, inner ones first."""
    found: list[Node] = []
    for node in body:
        (inner,) = with_blocks((node,), lambda block: rewritten(block, change))
        found += change(inner)
    return tuple(found)


def indices_changed(body: tuple[Node, ...], change: Callable[[Index], Index]) -> tuple[Node, ...]:
    """Change the index expressions of a block."""

    def changed(node: Node) -> tuple[Node, ...]:
        match node:
            case Assign():
                targets = tuple(access_changed(target, change) for target in node.targets)
                values = tuple(value_changed(value, change) for value in node.values)
                return (replace(node, targets=targets, values=values),)
            case If():
                return (replace(node, condition=condition_changed(node.condition, change)),)
            case Loop():
                return (replace(node, range=range_changed(node.range, change)),)
            case _:
                return (node,)

    return rewritten(body, changed)


def with_blocks(
    body: tuple[Node, ...], change: Callable[[tuple[Node, ...]], tuple[Node, ...]]
) -> tuple[Node, ...]:
    """Return a block with the blocks inside each of its nodes replaced."""
    found: list[Node] = []
    for node in body:
        match node:
            case If():
                then, other = change(node.body), change(node.orelse)
                same = _are_same(then, node.body) and _are_same(other, node.orelse)
                found.append(node if same else replace(node, body=then, orelse=other))
            case Loop() | Atomic() | BlockReduce():
                inside = change(node.body)
                same = _are_same(inside, node.body)
                found.append(node if same else replace(node, body=inside))
            case _:
                found.append(node)
    return tuple(found)


def _are_same(one: tuple[Node, ...], other: tuple[Node, ...]) -> bool:
    """Tell whether two blocks hold the very same nodes."""
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def with_accesses(body: tuple[Node, ...], change: Callable[[Access], Access]) -> tuple[Node, ...]:
    """Return a block with every access replaced; index expressions stay as they are."""

    def changed(node: Node) -> tuple[Node, ...]:
        match node:
            case Assign():
                targets = tuple(change(target) for target in node.targets)
                values = tuple(with_reads(value, change) for value in node.values)
                return (replace(node, targets=targets, values=values),)
            case If():
                condition = replaced_in_condition(node.condition, _reading(change))
                return (replace(node, condition=condition),)
            case _:
                return (node,)

    return rewritten(body, changed)
