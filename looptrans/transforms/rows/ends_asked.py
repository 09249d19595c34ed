"""What guards ask of indices wherever something is done, and where loops might end because of it.

    for j in range(0, N):
        if j <= i:                  ->    i + 1
            …

Whether the end may stand in the range of the loop is for others to say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.ir.affine import difference, form_of, total
from looptrans.ir.condition import Condition, Relation, compared, conjunction, conjuncts
from looptrans.ir.index import Index, Var, variables
from looptrans.ir.program import If, Loop, Node


def asked_in(body: tuple[Node, ...]) -> tuple[Condition, ...]:
    """Return what is asked of indices wherever something is done in a block."""
    found: list[tuple[Condition, ...]] = []
    for node in body:
        match node:
            case Loop(variable):
                inside = asked_in(node.body)
                found.append(tuple(c for c in inside if variable not in _variables(c)))
            case If(condition, then, ()):
                found.append((*conjuncts(condition), *asked_in(then)))
            case _:
                return ()
    first, *others = found or [()]
    return tuple(part for part in first if all(part in each for each in others))


@dataclass(frozen=True, slots=True)
class Without:
    """Takes what is asked of indices out of guards."""

    part: Condition

    def node(self, node: Node) -> tuple[Node, ...]:
        """Return a node without it."""
        if not isinstance(node, If) or self.part not in conjuncts(node.condition):
            return (node,)
        rest = tuple(each for each in conjuncts(node.condition) if each != self.part)
        return (replace(node, condition=conjunction(*rest)),) if rest else node.body


def _variables(condition: Condition) -> set[str]:
    return {name for index in compared(condition) for name in variables(index)}


def end_of(condition: Condition, variable: str) -> Index | None:
    """Return where a loop ends if a condition holds in its iterations up to there, else None."""
    order = _in_order(condition)
    if order is None:
        return None
    low, high, apart = order
    # low + apart <= high is variable < end, where the variable stands once on the left alone.
    end = total(difference(high, low), Var(variable), 1 - apart)
    return end if _counts(difference(low, high), variable, end) else None


def start_of(condition: Condition, variable: str) -> Index | None:
    """Return where a loop starts if a condition holds in its iterations from there, else None."""
    order = _in_order(condition)
    if order is None:
        return None
    low, high, apart = order
    start = total(difference(low, high), Var(variable), apart)
    return start if _counts(difference(high, low), variable, start) else None


def _in_order(condition: Condition) -> tuple[Index, Index, int] | None:
    """Return two indices, and how much the second is at least more than the first."""
    match condition:
        case Relation("<=", low, high) | Relation(">=", high, low):
            return low, high, 0
        case Relation("<", low, high) | Relation(">", high, low):
            return low, high, 1
        case _:
            return None


def _counts(index: Index, variable: str, bound: Index) -> bool:
    """Tell whether a variable stands once in an index, and not in the bound that it has from it."""
    return form_of(index).terms.get(Var(variable)) == 1 and variable not in variables(bound)
