"""Whether two nests are the same up to names, independent order, scalar copies and guards of ⊥.

Each statement is written out in a form without names: scalars that hold a copy are put in, `q @ k`
is a sum, factors and terms have no order, and arrays are numbered by the text they come from. What
a nest computes is then the set of its statements, each with the loops around it.
"""

from __future__ import annotations

from looptrans.algebra.positional.cells import value_moved
from looptrans.ir.condition import Data
from looptrans.ir.index import Var
from looptrans.ir.listing import access_text
from looptrans.ir.program import Assign, Program
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Compare,
    Const,
    Generator,
    Read,
    Reduce,
    Select,
    Unary,
    Value,
    Whole,
    walk_value,
)
from looptrans.ir.walk import placed


def same_nest(one: Program, other: Program) -> str:
    """Return what only one of two nests has, as text; nothing where they are the same."""
    a, b = _Nest(one), _Nest(other)
    mine, theirs = a.statements(), b.statements()
    return "\n".join(
        [f"only the first: {line}" for line in sorted(mine - theirs)]
        + [f"only the second: {line}" for line in sorted(theirs - mine)]
    )


class _Nest:
    def __init__(self, what: Program) -> None:
        self.program = what
        self.places = [p for p in placed(what) if isinstance(p.node, Assign)]
        written: dict[str, int] = {}
        for place in self.places:
            for target in _assign(place.node).targets:
                written[target.array] = written.get(target.array, 0) + 1
        self.inside: dict[Access, Value] = {}
        seen: set[str] = set()
        for place in self.places:
            node = _assign(place.node)
            target = node.targets[0]
            seen |= {access.array for access in _reads(node.values[0])}
            # What is read before it is written comes from an earlier iteration.
            if written[target.array] == 1 and target.array not in seen:
                self.inside[target] = node.values[0]

    def statements(self) -> set[str]:
        """Return what is written to cells that outlive an iteration, everything else put in."""
        found = set()
        for place in self.places:
            node = _assign(place.node)
            target = node.targets[0]
            if target in self.inside:
                continue
            loops = ",".join(loop.variable for loop in place.loops)
            found.add(f"[{loops}] {access_text(target, full=True)} = {self.text(node.values[0])}")
        return found

    def text(self, value: Value) -> str:
        match value:
            case Read(access):
                known = self.inside.get(access)
                return access_text(access, full=True) if known is None else self.text(known)
            case Binary("+" | "-" | "*" | "/" as op, _, _):
                return self.folded(value, "+" if op in "+-" else "*")
            case Binary("@", left, right):
                dot = Binary("*", self.element(left), self.element(right))
                return f"sum({self.text(dot)})"
            case Reduce(function, (Generator(variable, _, _),), body):
                return f"{function}({self.text(_renamed(body, variable))})"
            case Call(function, arguments):
                return f"{function}({', '.join(sorted(map(self.text, arguments)))})"
            case Select(Data(Compare(">", _, Const(float("-inf")))), chosen, _):
                return self.text(chosen)
            case Unary(op, operand):
                return f"{op}{self.text(operand)}"
            case Const(number):
                return repr(number)
            case _:
                return repr(value)

    def folded(self, value: Value, op: str) -> str:
        """Write a sum or product without order: the terms, and those taken off."""
        kept, gone = self._parts(value, op)
        away = "-" if op == "+" else "/"
        text = f" {op} ".join(sorted(kept))
        return f"({text}{''.join(f' {away} {part}' for part in sorted(gone))})"

    def _parts(self, value: Value, op: str) -> tuple[list[str], list[str]]:
        away = "-" if op == "+" else "/"
        if isinstance(value, Read) and value.access in self.inside:
            inner = self.inside[value.access]
            if isinstance(inner, Binary) and inner.op in (op, away):
                return self._parts(inner, op)
        if isinstance(value, Binary) and value.op in (op, away):
            left, right = self._parts(value.left, op), self._parts(value.right, op)
            if value.op == op:
                return left[0] + right[0], left[1] + right[1]
            return left[0] + right[1], left[1] + right[0]
        return [self.text(value)], []

    def element(self, row: Value) -> Value:
        """Return an element of a row, at a variable without a name."""
        assert isinstance(row, Read)
        known = self.inside.get(row.access)
        if known is not None:
            return self.element(known)
        return Read(
            Access(
                row.access.array,
                tuple(Var("_") if isinstance(s, Whole) else s for s in row.access.subscripts),
            )
        )


def _assign(node: object) -> Assign:
    assert isinstance(node, Assign)
    return node


def _reads(value: Value) -> list[Access]:
    return [part.access for part in walk_value(value) if isinstance(part, Read)]


def _renamed(value: Value, variable: str) -> Value:
    return value_moved(value, {variable: Var("_")})
