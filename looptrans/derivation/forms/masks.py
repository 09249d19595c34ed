"""Masks that a listing writes into its terms, made guards, so that masks have one form.

    m = max(m, S[i, j] if j <= i else -inf)             if j <= i:
    for d in range(D):                                      m = max(m, S[i, j])
        O[d] = O[d] + (w if j <= i else 0.0) * V[j, d]      for d in range(D):
                                                 ->             O[d] = O[d] + w * V[j, d]

A term that is the identity of its fold changes nothing: max(m, -inf) is m, and what is added is 0,
or 0 times or divided by a number. Comparisons of indices are moved, which no statement changes, so
that what stands side by side under the same one can share a guard; and tests of what comes from
outside that mask both a maximum and a sum, as then each of the sum's terms has its maximum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.adjoint.carried.accumulating import folded
from looptrans.adjoint.normalizing.choices import with_choices
from looptrans.algebra.positional.values import is_number
from looptrans.ir.condition import Condition, compared, is_of_indices, opposite
from looptrans.ir.index import Index, Opaque, Var, opaque_terms, parameters, variables
from looptrans.ir.monoids import OF_NOTHING, Folding
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.value import (
    Binary,
    Call,
    Holds,
    Range,
    Read,
    Select,
    Unary,
    Value,
    Whole,
    cells_read,
    condition_variables,
    walk_value,
)
from looptrans.ir.walk import assignments, nodes, touched, written


def with_guards(program: Program) -> Program:
    """Return a program that means the same, with guards for masks of terms where it can be."""
    plain = with_choices(program)
    return replace(plain, body=_Masks(plain, _shared(plain)).block(plain.body))


def _shared(program: Program) -> frozenset[Condition]:
    """Return the tests of what no statement writes that mask both an extremum and a sum.

    One of the two may stand under a guard as it is written, where nothing else is chosen by that.
    """
    found: dict[bool, set[Condition]] = {True: set(), False: set()}
    guarding: dict[bool, set[Condition]] = {True: set(), False: set()}
    chosen: set[Condition] = set()
    for node in nodes(program.body):
        match node:
            case Assign() if (masked := _masked_fold(node)) is not None:
                found[masked[0] == "sum"].add(masked[1])
            case Assign(values=values):
                parts = (part for value in values for part in walk_value(value))
                chosen |= {part.condition for part in parts if isinstance(part, Select)}
            case If(condition, body, ()):
                folds = (folded(each) for each in assignments(body))
                for operator, _ in filter(None, folds):
                    guarding[operator == "sum"].add(condition)
            case _:
                pass
    guarded = (found[True] | guarding[True]) & (found[False] | guarding[False]) - chosen
    both = found[True] & found[False] | guarded
    return frozenset(each for each in both if not touched((If(each, ()),)) & written(program))


def _is_there(program: Program, condition: Condition, bounds: Range) -> bool:
    """Tell whether what a condition reads is there where a loop has no iteration, too.

    `seg[j - 1]` need not be where `range(0, j)` is empty, nor `x[0]` of D elements where `range(0,
    D)` is.
    """
    reads = cells_read(Holds(condition))
    places = [(access.array, access.subscripts) for access in reads]
    asked = [*compared(condition), *(index for access in reads for index in access.indices)]
    places += [(term.array, term.arguments) for each in asked for term in opaque_terms(each)]
    ends = _names(bounds.start, bounds.stop)
    is_of_sizes = not bounds.variables
    return all(
        (is_of_sizes and isinstance(index, Var | Opaque | Whole))
        or (
            extent is not None and not isinstance(index, Whole) and not _names(index, extent) & ends
        )
        for array, subscripts in places
        for index, extent in zip(subscripts, program.array(array).shape, strict=True)
    )


def _names(*indices: Index) -> set[str]:
    """Return the variables, sizes and arrays that index expressions name."""
    terms = {term.array for index in indices for term in opaque_terms(index)}
    return terms.union(*map(variables, indices), *map(parameters, indices))


@dataclass(frozen=True, slots=True)
class _Masks:
    """Makes guards of masks.

    Attributes:
        program: The program.
        shared: The tests of what comes from outside that are moved as well.
    """

    program: Program
    shared: frozenset[Condition]

    def block(self, body: tuple[Node, ...]) -> tuple[Node, ...]:
        found: list[Node] = []
        for node in map(self._node, body):
            last = found[-1] if found else None
            if (
                isinstance(last, If)
                and isinstance(node, If)
                and last.condition == node.condition
                and not (last.orelse or node.orelse)
                and self._may_move(node.condition)
            ):
                found[-1] = replace(last, body=self.block((*last.body, *node.body)))
            else:
                found.append(node)
        return tuple(found)

    def _may_move(self, condition: Condition) -> bool:
        return is_of_indices(condition) or condition in self.shared

    def _node(self, node: Node) -> Node:
        match node:
            case Assign():
                return self._guarded(node)
            case If(_, body, orelse):
                return replace(node, body=self.block(body), orelse=self.block(orelse))
            case Loop(body=body):
                loop = replace(node, body=self.block(body))
                match loop.body:
                    case (If(condition, inner, ()),) if self._may_move(condition):
                        is_same = loop.variable not in condition_variables(condition)
                        if is_same and _is_there(self.program, condition, loop.range):
                            return If(condition, (replace(loop, body=inner),))
                return loop
            case _:
                return node

    def _guarded(self, node: Assign) -> Node:
        masked = _masked_fold(node)
        if masked is None or not self._may_move(masked[1]):
            return node
        operator, condition, term = masked
        own = Read(node.targets[0])
        joined = Binary("+", own, term) if operator == "sum" else Call(operator, (own, term))
        return If(condition, (replace(node, values=(joined,)),))


def _masked_fold(node: Assign) -> tuple[Folding, Condition, Value] | None:
    """Return how a statement folds, the mask of its term, and the term behind it."""
    found = folded(node)
    masked = None if found is None else _masked(found[1], found[0])
    return None if found is None or masked is None else (found[0], *masked)


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
