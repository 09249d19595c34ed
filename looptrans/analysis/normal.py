"""Index expressions in the form isl can take: affine, with everything else an opaque term.

Integer scalars are replaced by what they stand for and sizes by numbers where they are given.
What is then still not affine becomes an opaque term of a function that is named after what it
does: `j // P` is an element of the function `// P`, `t * P` one of `* P`. Products and quotients
of parameters alone become parameters of their own (`G * R`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from looptrans.ir.condition import Condition, with_operands
from looptrans.ir.index import (
    Arith,
    Extremum,
    Index,
    Int,
    Let,
    Neg,
    Opaque,
    Param,
    Var,
    children,
    rebuild,
    variables,
    walk,
)
from looptrans.ir.listing import PRODUCT, index_text


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A function of one argument that stands for arithmetic with a size: `x // P`, `x * P`."""

    op: str
    size: Index


@dataclass(slots=True)
class Normalizer:
    """Brings index expressions and conditions into normal form.

    Attributes:
        sizes: Parameters with a known value.
        arithmetic: The functions made so far, by the name of the opaque terms they appear as.
        made: The parameters made so far (`G * R`), with the expression they stand for.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    arithmetic: dict[str, Arithmetic] = field(default_factory=dict)
    made: dict[str, Index] = field(default_factory=dict)

    def index(self, index: Index) -> Index:
        """Return the normal form of an index expression."""
        match index:
            case Let(_, value):
                return self.index(value)
            case Param(name):
                return Int(self.sizes[name]) if name in self.sizes else index
            case Int() | Var():
                return index
            case Arith(op, left, right):
                return self._arithmetic(op, self.index(left), self.index(right))
            case Neg(operand):
                inner = self.index(operand)
                return Int(-inner.value) if isinstance(inner, Int) else Neg(inner)
            case _:
                parts = tuple(self.index(child) for child in children(index))
                if isinstance(index, Extremum) and all(isinstance(p, Int) for p in parts):
                    values = [part.value for part in parts if isinstance(part, Int)]
                    return Int(min(values) if index.op == "min" else max(values))
                return rebuild(index, parts)

    def _arithmetic(self, op: str, left: Index, right: Index) -> Index:
        if isinstance(left, Int) and isinstance(right, Int):
            return self._constant(op, left.value, right.value)
        match op:
            case "+" | "-":
                return Arith(op, left, right)
            case "*":
                if isinstance(left, Int) or isinstance(right, Int):
                    return Arith("*", left, right)
                if not _varies(left) and not _varies(right):
                    return self._made("*", left, right)
                if _varies(left):
                    return self._function("*", left, right)
                return self._function("*", right, left)
            case _:
                if isinstance(right, Int):
                    return Arith("//" if op == "//" else "%", left, right)
                if not _varies(left):
                    return self._made(op, left, right)
                return self._function(op, left, right)

    @staticmethod
    def _constant(op: str, left: int, right: int) -> Index:
        match op:
            case "+":
                return Int(left + right)
            case "-":
                return Int(left - right)
            case "*":
                return Int(left * right)
            case "//" if right > 0:
                return Int(left // right)
            case "%" if right > 0:
                return Int(left % right)
            case _:
                # Division by a size that is zero at these sizes: no value, never reached.
                return Int(0)

    def _function(self, op: str, argument: Index, size: Index) -> Index:
        name = f"{op} {index_text(size, PRODUCT + 1)}"
        self.arithmetic[name] = Arithmetic(op, size)
        return Opaque(name, (argument,))

    def _made(self, op: str, left: Index, right: Index) -> Index:
        if op == "*":
            left, right = sorted((left, right), key=index_text)
        name = f"{index_text(left, PRODUCT)} {op} {index_text(right, PRODUCT + 1)}"
        self.made[name] = Arith(op, left, right)  # type: ignore[arg-type]  # an operator it came with
        return Param(name)

    def condition(self, condition: Condition) -> Condition:
        """Return the normal form of a condition; `Data` stays as it is."""
        return with_operands(condition, index=self.index)


def _varies(index: Index) -> bool:
    return bool(variables(index)) or any(isinstance(node, Opaque) for node in walk(index))
