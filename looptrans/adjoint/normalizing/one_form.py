"""Conditions that say the same in different words, written as the first of them is.

    S[i, j] = s if j <= i else -inf                       S[i, j] = s if j <= i else -inf
    …                                                ->   …
    if not (i < j or seg[j] == 0): l[i] = l[i] + …        if j <= i and seg[j] != 0: l[i] = l[i] + …

What follows compares conditions as they are written, to see that a score is worked out again. Loops
of sibling nests are told apart by their depth, not by the names of their variables.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf

from looptrans.ir.affine import Form, form_of
from looptrans.ir.condition import (
    MIRRORED,
    Comparison,
    Condition,
    Every,
    Relation,
    Some,
    is_data_dependent,
    negation_normal,
    opposite,
)
from looptrans.ir.index import Index, Var, substitute
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Const, Generator, Holds, Reduce, Select, Value


def conditions_in_one_form(program: Program) -> Program:
    """Return a program that means the same, with every statement where it was."""
    return replace(program, body=_Writing().block(program.body, ()))


@dataclass(slots=True)
class _Writing:
    """How comparisons are written; the variables of loops are numbered from the outside."""

    known: dict[object, Relation] = field(default_factory=dict)

    def block(self, body: tuple[Node, ...], loops: tuple[str, ...]) -> tuple[Node, ...]:
        return tuple(self._node(node, loops) for node in body)

    def _node(self, node: Node, loops: tuple[str, ...]) -> Node:
        match node:
            case Assign():
                return replace(node, values=tuple(self._value(v, loops) for v in node.values))
            case If(condition, body, orelse):
                written = self._condition(negation_normal(condition), loops)
                inner, other = self.block(body, loops), self.block(orelse, loops)
                return replace(node, condition=written, body=inner, orelse=other)
            case Loop(variable=variable, body=body):
                return replace(node, body=self.block(body, (*loops, variable)))
            case _:
                return node

    def _value(self, value: Value, loops: tuple[str, ...]) -> Value:
        def change(part: Value) -> Value | None:
            match part:
                case Select(condition, chosen, otherwise):
                    condition = negation_normal(condition)
                    chosen, otherwise = self._value(chosen, loops), self._value(otherwise, loops)
                    return self._choice(condition, chosen, otherwise, loops)
                case Holds(condition):
                    return Holds(self._condition(negation_normal(condition), loops))
                case Reduce(function, generators, body):
                    inner = (*loops, *(g.variable for g in generators))
                    bound = tuple(self._generator(g, inner) for g in generators)
                    return Reduce(function, bound, self._value(body, inner))
                case _:
                    return None

        return replaced(value, change)

    def _generator(self, generator: Generator, loops: tuple[str, ...]) -> Generator:
        condition = negation_normal(generator.condition)
        return replace(generator, condition=self._condition(condition, loops))

    def _choice(
        self, condition: Condition, chosen: Value, otherwise: Value, loops: tuple[str, ...]
    ) -> Value:
        """Return a choice with what is masked last, and one condition for choices in a row."""
        if _is_mask(chosen) and not _is_mask(otherwise) and not is_data_dependent(condition):
            condition, chosen, otherwise = negation_normal(opposite(condition)), otherwise, chosen
        if isinstance(chosen, Select) and chosen.otherwise == otherwise and _is_mask(otherwise):
            condition, chosen = Every((condition, chosen.condition)), chosen.chosen
        return Select(self._condition(negation_normal(condition), loops), chosen, otherwise)

    def _condition(self, condition: Condition, loops: tuple[str, ...]) -> Condition:
        match condition:
            case Relation():
                return self._relation(condition, loops)
            case Every(parts):
                return Every(tuple(dict.fromkeys(self._condition(p, loops) for p in parts)))
            case Some(parts):
                return Some(tuple(dict.fromkeys(self._condition(p, loops) for p in parts)))
            case _:
                return condition

    def _relation(self, relation: Relation, loops: tuple[str, ...]) -> Relation:
        numbered: dict[str, Index] = {v: Var(f"@{n}") for n, v in enumerate(loops)}
        back: dict[str, Index] = {f"@{n}": Var(v) for n, v in enumerate(loops)}
        left, right = substitute(relation.left, numbered), substitute(relation.right, numbered)
        written = Relation(relation.op, left, right)
        first = self.known.setdefault(said(relation.op, left, right), written)
        if (first.left, first.right) == (left, right):
            return relation
        return Relation(first.op, substitute(first.left, back), substitute(first.right, back))


def _is_mask(value: Value) -> bool:
    return isinstance(value, Const) and value.value in (0, inf, -inf)


def said(op: Comparison, left: Index, right: Index) -> object:
    """Return what a comparison of integers says, whichever way it is written."""
    if op in (">", ">="):
        op, left, right = MIRRORED[op], right, left
    form = form_of(left).plus(form_of(right), -1)
    if op == "<":
        op, form = "<=", form.plus(Form({}, 1))
    said = op, frozenset(form.terms.items()), form.constant
    if op in ("==", "!="):
        turned = form.times(-1)
        return frozenset((said, (op, frozenset(turned.terms.items()), turned.constant)))
    return said
