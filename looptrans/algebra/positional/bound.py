"""Variables that sums bind, kept apart from those of the loops and sums around them.

for c: o[c] = o[c] * exp(sum(q[c] * k[c] for c) - m)    ->    … exp(sum(q[c1] * k[c1] for c1) - m)

What is put in the place of a name may stand in more loops than the statement it comes from.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.algebra.positional.cells import condition_moved, range_moved, value_moved
from looptrans.ir.index import Index, Var
from looptrans.ir.program import Assign, Atomic, BlockReduce, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Generator, Reduce, Value, value_children
from looptrans.transforms.editing.naming import fresh_name


def kept_apart(program: Program) -> Program:
    """Return a program in which no sum binds the variable of a loop or sum around it."""
    return _Apart(program).run()


class _Apart:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.new: dict[str, list[str]] = {}

    def run(self) -> Program:
        body = tuple(self._node(node, frozenset()) for node in self.program.body)
        return replace(self.program, body=body) if self.new else self.program

    def _node(self, node: Node, around: frozenset[str]) -> Node:
        match node:
            case Assign():
                if not any(_binds(value, around) for value in node.values):
                    return node
                return replace(node, values=tuple(self._value(v, around) for v in node.values))
            case If():
                return replace(
                    node,
                    body=tuple(self._node(n, around) for n in node.body),
                    orelse=tuple(self._node(n, around) for n in node.orelse),
                )
            case Loop():
                inner = around | {node.variable}
                return replace(node, body=tuple(self._node(n, inner) for n in node.body))
            case Atomic() | BlockReduce():
                return replace(node, body=tuple(self._node(n, around) for n in node.body))
            case _:
                return node

    def _value(self, value: Value, around: frozenset[str]) -> Value:
        def change(part: Value) -> Value | None:
            if not isinstance(part, Reduce):
                return None
            moved: dict[str, Index] = {}
            bound: list[Generator] = []
            for g in part.generators:
                variable = self._name(g.variable, around)
                bounds = range_moved(g.range, moved)
                moved[g.variable] = Var(variable)
                condition = condition_moved(g.condition, moved)
                bound.append(Generator(variable, bounds, condition))
            inner = around | {g.variable for g in bound}
            body = self._value(value_moved(part.body, moved), inner)
            return Reduce(part.function, tuple(bound), body)

        return replaced(value, change)

    def _name(self, variable: str, around: frozenset[str]) -> str:
        """Return a name that nothing around has: the same one wherever it will do."""
        names = self.new.setdefault(variable, []) if variable in around else [variable]
        if not set(names) - around:
            taken = [name for each in self.new.values() for name in each]
            names.append(fresh_name(self.program, variable, taken))
        return next(name for name in names if name not in around)


def _binds(value: Value, around: frozenset[str]) -> bool:
    """Tell whether a sum in a value binds a variable that is bound around it."""
    if isinstance(value, Reduce):
        if any(g.variable in around for g in value.generators):
            return True
        around |= {g.variable for g in value.generators}
    return any(_binds(each, around) for each in value_children(value))
