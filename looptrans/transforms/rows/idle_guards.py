"""Guards that skip nothing but loops without an iteration, left out.

    for t in range(0, M, 16):                             for t in range(0, M, 16):
        if t <= i:                                  ->        for j in range(t, min(t + 16, i + 1)):
            for j in range(t, min(t + 16, i + 1)):                …
                …

An iteration of j has t <= j < i + 1, so wherever there is one the guard holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from looptrans.ir.affine import Form, difference, form_of, sides
from looptrans.ir.condition import Condition, Relation, compared, conjunction, conjuncts
from looptrans.ir.index import Index, Int, Var, opaque_terms
from looptrans.ir.listing import condition_text
from looptrans.ir.program import If, Loop, Node, Program
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.rewrite import rewritten
from looptrans.ir.value import Range
from looptrans.ir.verdict import Certificate


@dataclass(frozen=True, slots=True)
class Unasked:
    """A program without guards that skip nothing.

    Attributes:
        program: The program afterwards.
        conditions: What is no longer asked.
    """

    program: Program
    conditions: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"do not ask {', '.join(dict.fromkeys(self.conditions))}"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "the iterations are the same, in the same order"
        reason = "by the ranges of the loops behind the guard, it holds wherever one has iterations"
        return Certificate("order", law, "legal", reason)


def with_idle_guards_out(program: Program) -> Unasked | None:
    """Leave out what guards ask that holds wherever something inside is done.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such guard.
    """
    conditions: list[str] = []

    def change(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, If) or node.orelse or node.label is not None:
            return (node,)
        parts = conjuncts(node.condition)
        idle = [part for part in parts if _is_asked(node.body, part, ())]
        if not idle:
            return (node,)
        conditions.extend(map(condition_text, idle))
        kept = tuple(part for part in parts if part not in idle)
        return (replace(node, condition=conjunction(*kept)),) if kept else node.body

    after = replace(program, body=rewritten(program.body, change))
    return Unasked(after, tuple(conditions)) if conditions else None


def _is_asked(body: tuple[Node, ...], part: Condition, around: tuple[Loop, ...]) -> bool:
    """Tell whether a condition holds wherever something is done in a block."""
    for node in body:
        match node:
            case Loop():
                inside = (*around, node)
                if _reads_more(node.range, part):
                    return False
                if not _follows(part, inside) and not _is_asked(node.body, part, inside):
                    return False
            case _:
                return False
    return bool(body)


def _reads_more(bounds: Range, part: Condition) -> bool:
    """Tell whether a range reads memory that a condition does not: it may guard that, too."""
    asked = {term for index in compared(part) for term in opaque_terms(index)}
    return not asked >= {*opaque_terms(bounds.start), *opaque_terms(bounds.stop)}


def _follows(part: Condition, loops: Sequence[Loop]) -> bool:
    """Tell whether a condition follows from there being an iteration of the last of some loops."""
    wanted = _room(part)
    if wanted is None:
        return False
    last = loops[-1].range
    if last.step < 1:
        return False
    ranges = ranges_by_name(loops[:-1])
    for start in sides("max", last.start):
        for stop in sides("min", last.stop):
            known = form_of(difference(stop, start)).plus(Form({}, 1), -1)
            if is_never_negative(wanted.plus(known, -1), ranges):
                return True
    return False


def _room(part: Condition) -> Form | None:
    """Return what is not negative where a condition holds, and only there."""
    match part:
        case Relation("<=", left, right) | Relation(">=", right, left):
            return form_of(difference(right, left))
        case Relation("<", left, right) | Relation(">", right, left):
            return form_of(difference(right, left)).plus(Form({}, 1), -1)
        case _:
            return None


def is_never_negative(form: Form, ranges: Mapping[str, Range]) -> bool:
    """Tell whether a sum is never negative, by where the loops that it names begin and end.

    Args:
        form: The sum.
        ranges: The ranges of loops, by their variables.
    """
    if form.is_constant:
        return form.constant >= 0
    for term, factor in form.terms.items():
        if not isinstance(term, Var) or term.name not in ranges or ranges[term.name].step < 1:
            continue
        bounds = ranges[term.name]
        rest = form.plus(Form({term: 1}), -factor)
        inside = {name: each for name, each in ranges.items() if name != term.name}
        ends: list[tuple[Index, int]] = [(start, 0) for start in sides("max", bounds.start)]
        if factor < 0:
            ends = [(stop, 1) for stop in sides("min", bounds.stop)]
        for end, beyond in ends:
            place = form_of(difference(end, Int(beyond)))
            if is_never_negative(rest.plus(place, factor), inside):
                return True
    return False
