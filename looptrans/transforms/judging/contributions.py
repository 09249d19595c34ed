"""Whether what was joined to a result still is, once, when it goes through partial results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace

from looptrans.ir.operator import LEFT, OPERATORS, RIGHT, Operator
from looptrans.ir.program import Assign, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.step import Images
from looptrans.ir.value import Binary, Call, Const, Read, Value, walk_value
from looptrans.ir.verdict import Certificate, Verdict
from looptrans.ir.walk import is_parallel, placed
from looptrans.transforms.judging.check import check_reduction


def check_split(
    before: Program,
    after: Program,
    images: Images,
    partials: Mapping[str, str],
    operators: Mapping[str, Operator],
) -> Verdict:
    """Say whether reductions in partial results may stand for the ones they were made from.

    Args:
        before: The program before.
        after: The program afterwards.
        images: What stands for what; the statements that start and join partial results are not in
            it.
        partials: The array of partial results to the array they are joined to.
        operators: What each array is joined by.
    """
    for operator in operators.values():
        known_as = OPERATORS.get(operator.name)
        if known_as is not None and known_as != operator:
            reason = f"{operator.name} is given with what is not its own identity and combination"
            return Verdict("unknown", reason=reason)
        if not operator.is_proved:
            reason = f"nothing proves that partial results may be joined by {operator.name}"
            return Verdict("unknown", reason=reason)
    if all(OPERATORS.get(operator.name) == operator for operator in operators.values()):
        known = {array: (each.name, each.identity) for array, each in operators.items()}
        return check_reduction(before, after, images, partials, known)
    verdict = _by_shape(before, after, images, partials, operators)
    if verdict.decision != "legal" or not is_parallel(after):
        return verdict
    from looptrans.analysis.api import check_races

    races = check_races(after)
    return verdict if races.decision == "legal" else races


def _by_shape(
    before: Program,
    after: Program,
    images: Images,
    partials: Mapping[str, str],
    operators: Mapping[str, Operator],
) -> Verdict:
    """Judge operators that have a proof of their own.

    Which contributions reach which result has nothing to do with the operator, as long as it is one
    that may join them in any order. So each `cell = combine(cell, x)` is read as `cell = cell + x`.
    """
    from looptrans.analysis.api import check_reduction as judge

    whole = {**operators, **{partial: operators[a] for partial, a in partials.items()}}
    for place in placed(before):
        node = place.node
        if isinstance(node, Assign) and node.label in images and _is_odd(node, operators):
            name = operators[node.targets[0].array].name
            return Verdict("unknown", reason=f"{node.label} is no update by {name}")
    sums = dict.fromkeys(operators, ("+", OPERATORS["+"].identity))
    verdict = judge(_as_sums(before, whole), _as_sums(after, whole), images, partials, sums)
    if verdict.decision != "legal":
        return verdict
    found = [c for c in verdict.certificates if c.kind != "rounding"]
    for operator in dict.fromkeys(operators.values()):
        assert operator.certificate is not None
        law = f"values joined by {operator.name} may be joined in any order"
        why = "equal over the reals, not bit for bit in floating point"
        found += [operator.certificate, Certificate("rounding", law, "legal", why)]
    return replace(verdict, certificates=tuple(found))


def _is_odd(node: Assign, operators: Mapping[str, Operator]) -> bool:
    """Tell whether a statement makes a result from its old value, and not by its operator."""
    operator = operators.get(node.targets[0].array)
    if operator is None or contribution(node, operator) is not None:
        return False
    return any(Read(node.targets[0]) in walk_value(value) for value in node.values)


def _as_sums(program: Program, operators: Mapping[str, Operator]) -> Program:
    def change(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Assign) or len(node.targets) != 1:
            return (node,)
        operator = operators.get(node.targets[0].array)
        if operator is None:
            return (node,)
        joined = contribution(node, operator)
        if joined is not None:
            total = Binary("+", Read(node.targets[0]), joined)
            return (replace(node, values=(total,), augmented=False),)
        if node.values == (Const(operator.identity),):
            return (replace(node, values=(Const(OPERATORS["+"].identity),)),)
        return (node,)

    return replace(program, body=rewritten(program.body, change))


def contribution(node: Assign, operator: Operator) -> Value | None:
    """Return the x of a statement `cell = combine(cell, x)`; None for any other statement."""
    if len(node.targets) != 1 or len(node.values) != 1:
        return None
    cell: Value = Read(node.targets[0])
    found: dict[Value, Value] = {LEFT: cell}
    if not _matches(operator.combine, node.values[0], found):
        return None
    joined = found.get(RIGHT)
    return None if joined is None or cell in walk_value(joined) else joined


def is_update(node: Assign, operator: Operator) -> bool:
    """Tell whether a statement is `cell = cell op x`, or `x op cell`, with an operator by name."""
    cell: Value = Read(node.targets[0])
    match node.values[0]:
        case Binary(op, left, right) if op == operator.name:
            parts = [left, right]
        case Binary("-", left, right) if operator.name == "+" and left == cell:
            parts = [left, right]
        case Call(function, arguments) if function == operator.name:
            parts = list(arguments)
        case _:
            return False
    others = [part for part in parts if part != cell]
    return len(others) == len(parts) - 1 and not any(cell in walk_value(o) for o in others)


def _matches(pattern: object, thing: object, found: dict[Value, Value]) -> bool:
    """Tell whether something is a pattern with values put in, and note these."""
    if pattern in (LEFT, RIGHT):
        return found.setdefault(pattern, thing) == thing  # type: ignore[arg-type]  # both values
    if isinstance(pattern, tuple) and isinstance(thing, tuple):
        return len(pattern) == len(thing) and all(
            _matches(one, other, found) for one, other in zip(pattern, thing, strict=True)
        )
    if type(pattern) is not type(thing):
        return False
    if is_dataclass(pattern) and not isinstance(pattern, Const):
        return all(
            _matches(getattr(pattern, each.name), getattr(thing, each.name), found)
            for each in fields(pattern)
            if each.compare
        )
    return pattern == thing
