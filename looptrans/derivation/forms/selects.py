"""One form for a choice: `where` as a ternary, a choice of the greater number as max, no bare else.

S[i, j] = where(j <= i, x, -inf)    ->    S[i, j] = x if j <= i else -inf
new = s if s > m else m             ->    new = max(s, m)
if j > i: pass                            if j <= i: l = l + p
else: l = l + p                     ->
if ok[i] == 1: x[i] = a             ->    x[i] = a if ok[i] == 1 else b
else: x[i] = b
if r <= d: l += r * r               ->    l = l + (r * r if r <= d else d * r)
else: l += d * r
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.algebra.iterations.branches import extremum
from looptrans.ir.condition import ALWAYS, Condition, compared, is_data_dependent, opposite
from looptrans.ir.index import opaque_terms
from looptrans.ir.program import Assign, Atomic, BlockReduce, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced, replaced_in_condition, rewritten, values_replaced
from looptrans.ir.value import Binary, Call, Read, Select, Value, condition_of, rank_of


def with_selects(program: Program) -> Program:
    """Return a program that means the same, with a ternary for every `where` of numbers."""
    return replace(program, body=tuple(_node(node) for node in program.body))


def _node(node: Node) -> Node:
    match node:
        case Assign():
            return values_replaced(node, _select)
        case If(
            condition,
            (Assign(targets=(target,), values=(one,)) as first,),
            (Assign(targets=(also,), values=(other_value,)),),
        ) if target == also and _is_opaque(condition):
            value = Select(condition, one, other_value)
            return _node(replace(first, values=(value,), augmented=False))
        case If(condition, (only,), (_,)) if is_data_dependent(condition):
            pair = _node(only), _node(node.orelse[0])
            update = _update(condition, *pair)
            if update is not None:
                return update
            return replace(node, body=pair[:1], orelse=pair[1:])
        case If(condition, (), (_, *_) as other):
            return _node(replace(node, condition=opposite(condition), body=other, orelse=()))
        case If():
            return replace(
                node,
                body=tuple(_node(n) for n in node.body),
                orelse=tuple(_node(n) for n in node.orelse),
            )
        case Loop() | Atomic() | BlockReduce():
            return replace(node, body=tuple(_node(n) for n in node.body))
        case _:
            return node


def with_wheres_as_choices(program: Program) -> Program:
    """Return a program that means the same, with `x if c else y` for each `where(c, x, y)`."""

    def chosen(value: Value) -> Value | None:
        match value:
            case Call("where") if rank_of(value) == 0:
                return _select(value)
            case _:
                return None

    def change(node: Node) -> tuple[Node, ...]:
        if isinstance(node, Assign):
            node = values_replaced(node, chosen)
        return (node,)

    return replace(program, body=rewritten(program.body, change))


def _update(condition: Condition, one: Node, other: Node) -> Assign | None:
    """Return two updates of one cell, of which a condition chooses, as one by the chosen term."""
    if not (isinstance(one, Assign) and isinstance(other, Assign)):
        return None
    if len(one.targets) != 1 or len(one.values) != 1 or one.targets != other.targets:
        return None
    first, second = (accumulation(n.targets[0], n.values[0], elsewhere=True) for n in (one, other))
    if first is None or second is None or len(other.values) != 1:
        return None
    if first[0] != second[0] or {first[2], second[2]} != {ALWAYS}:
        return None
    cell, term = Read(one.targets[0]), Select(condition, first[1], second[1])
    value: Value = Call(first[0], (cell, term))
    if first[0] == "sum":
        value = Binary("+", cell, term)
    return replace(one, values=(value,), augmented=False)


def _is_opaque(condition: Condition) -> bool:
    """Tell whether a condition asks for what an integer array holds."""
    return any(map(opaque_terms, compared(condition)))


def _select(value: Value) -> Value | None:
    match value:
        case Call("where", (tested, chosen, otherwise)) if rank_of(value) == 0:
            condition = condition_of(tested)
        case Select(condition, chosen, otherwise):
            pass
        case _:
            return None
    one, other = replaced(chosen, _select), replaced(otherwise, _select)
    name = extremum(condition, chosen, otherwise)
    if name is not None:
        return Call(name, (one, other))
    return Select(replaced_in_condition(condition, _select), one, other)
