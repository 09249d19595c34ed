"""Replacing loop variables by index expressions throughout a subtree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from looptrans.ir.affine import in_one_order, simplified
from looptrans.ir.condition import Condition, with_operands
from looptrans.ir.index import Index, Int, Var, substitute
from looptrans.ir.program import Assign, Atomic, BlockReduce, If, Loop, Node, Program
from looptrans.ir.rewrite import range_changed
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Compare,
    Create,
    Generator,
    Holds,
    IndexValue,
    Range,
    Read,
    Reduce,
    Select,
    Subscript,
    Unary,
    Value,
    Whole,
)
from looptrans.transforms.editing.naming import binders, fresh_name

N = TypeVar("N", bound=Node)


def substitute_variable(node: N, values: Mapping[str, Index]) -> N:
    """Replace loop variables by index expressions in everything a subtree says.

    Below a loop or a sum that binds one of the names anew, that name means something else and is
    left alone.

        A[j + 1] = slope * j          j ↦ j - i          A[j - i + 1] = slope * (j - i)

    Args:
        node: The subtree. If it is a loop, its range is outside its own variable's reach.
        values: What each variable becomes. No loop or sum of the subtree may bind a variable that
            one of these expressions mentions; `without_binders` sees to that.
    """
    return _Substitution(dict(values)).node(node)


def is_same_text(one: Node, other: Node) -> bool:
    """Tell whether two subtrees say the same; sums of indices may be written in any order."""
    gathered = _Substitution({}, gathers=True)
    return gathered.node(one) == gathered.node(other)


def rename_variable(node: N, old: str, new: str) -> N:
    """Give a loop variable another name in a subtree, where a turn names it as well.

    If the subtree is the loop itself, its own variable is renamed too.
    """
    return _Substitution({old: Var(new)}, {old: new} if _binds(node, old) else {}).node(node)


def _binds(node: Node, name: str) -> bool:
    return isinstance(node, Loop) and node.variable == name


def without_binders(program: Program, node: N, names: frozenset[str]) -> N:
    """Rename the loops and sums below a node that bind one of these names.

    Args:
        program: The program, whose names the new ones must not meet.
        node: The subtree; a loop at its top keeps its variable.
        names: The names that must become free.
    """
    own = {node.variable} if isinstance(node, Loop) else set()
    rebound: dict[str, str] = {}
    for name in sorted((binders(node) - own) & names):
        # One after the other, so that two new names do not meet.
        rebound[name] = fresh_name(program, name, {*rebound.values()})
    return _Substitution({}, rebound).node(node)


@dataclass(frozen=True, slots=True)
class _Substitution:
    """What is to become of the place that is being rewritten.

    Attributes:
        values: What variables stand for.
        rebound: New names for the variables that loops and sums bind from here on.
        gathers: Whether index expressions are written in one order.
    """

    values: Mapping[str, Index]
    rebound: Mapping[str, str] = field(default_factory=dict)
    gathers: bool = False

    def within(self, name: str) -> tuple[str, _Substitution]:
        """Return what a binder of `name` binds now, and the substitution in its reach."""
        values = {n: index for n, index in self.values.items() if n != name}
        new = self.rebound.get(name, name)
        if new != name:
            values[name] = Var(new)
        return new, replace(self, values=values)

    # Nodes

    def node(self, node: N) -> N:
        if not (self.values or self.rebound or self.gathers):
            return node
        result: Node = node
        match node:
            case Assign():
                result = replace(
                    node,
                    targets=tuple(self.access(target) for target in node.targets),
                    values=self.assigned(node),
                )
            case If():
                result = replace(
                    node,
                    condition=self.condition(node.condition),
                    body=self.body(node.body),
                    orelse=self.body(node.orelse),
                )
            case Loop():
                variable, inside = self.within(node.variable)
                bounds, body = self.range(node.range), inside.body(node.body)
                result = replace(node, variable=variable, range=bounds, body=body)
            case Atomic():
                result = replace(node, turn=self.turn(node.turn), body=self.body(node.body))
            case BlockReduce():
                result = replace(node, body=self.body(node.body))
            case _:
                pass
        return result  # type: ignore[return-value]  # a node of the kind that came in

    def body(self, body: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(self.node(node) for node in body)

    def turn(self, turn: str | None) -> str | None:
        value = None if turn is None else self.values.get(turn)
        return value.name if isinstance(value, Var) else turn

    def assigned(self, node: Assign) -> tuple[Value, ...]:
        """An integer scalar that stands for its value later on is set to just that value."""
        if any(target.subscripts for target in node.targets):
            return tuple(self.value(value) for value in node.values)
        return tuple(
            IndexValue(substitute(value.index, self.values))
            if isinstance(value, IndexValue)
            else self.value(value)
            for value in node.values
        )

    # Index expressions

    def index(self, index: Index) -> Index:
        found = substitute(index, self.values)
        if self.gathers:
            return in_one_order(found)
        if found == index or all(isinstance(value, Var) for value in self.values.values()):
            return found
        simple = simplified(found)
        # What becomes a plain number would be read back as a literal of another sort.
        return found if isinstance(simple, Int) else simple

    def range(self, bounds: Range) -> Range:
        return range_changed(bounds, self.index)

    def subscript(self, subscript: Subscript) -> Subscript:
        return subscript if isinstance(subscript, Whole) else self.index(subscript)

    def access(self, access: Access) -> Access:
        return Access(access.array, tuple(self.subscript(s) for s in access.subscripts))

    # Conditions and values

    def condition(self, condition: Condition) -> Condition:
        return with_operands(condition, index=self.index, value=self.value)

    def value(self, value: Value) -> Value:
        match value:
            case IndexValue(index):
                return IndexValue(self.index(index))
            case Read(access):
                return Read(self.access(access))
            case Unary(op, operand):
                return Unary(op, self.value(operand))
            case Binary(op, left, right):
                return Binary(op, self.value(left), self.value(right))
            case Compare(op, left, right):
                return Compare(op, self.value(left), self.value(right))
            case Holds(condition):
                return Holds(self.condition(condition))
            case Select(condition, chosen, otherwise):
                return Select(self.condition(condition), self.value(chosen), self.value(otherwise))
            case Call(function, arguments):
                return Call(function, tuple(self.value(a) for a in arguments))
            case Reduce(function, generators, body):
                bound, inside = self.generators(generators)
                return Reduce(function, bound, inside.value(body))
            case Create(function, shape, fill, element):
                filled = None if fill is None else self.value(fill)
                return Create(function, tuple(self.index(e) for e in shape), filled, element)
            case _:
                return value

    def generators(
        self, generators: tuple[Generator, ...]
    ) -> tuple[tuple[Generator, ...], _Substitution]:
        found = []
        inside = self
        for generator in generators:
            bounds = inside.range(generator.range)
            variable, inside = inside.within(generator.variable)
            found.append(Generator(variable, bounds, inside.condition(generator.condition)))
        return tuple(found), inside
