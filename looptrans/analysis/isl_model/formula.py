"""isl's notation for index expressions and conditions in normal form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

from looptrans.ir.condition import (
    MIRRORED,
    NEGATED,
    Comparison,
    Condition,
    Every,
    Not,
    Relation,
    Some,
    Truth,
)
from looptrans.ir.index import Arith, Extremum, Index, Int, Neg, Opaque, Param, Var
from looptrans.ir.value import Range

TRUE, FALSE = "0 = 0", "0 = 1"


@dataclass(frozen=True, slots=True)
class Notation:
    """What variables, parameters and opaque terms are called in a formula.

    All names in formulas are positional (`p0`, `i1`, `x2`), so that nothing depends on how the
    author named things, and no name can be mistaken for syntax.
    """

    parameters: Mapping[str, str]
    variables: Mapping[str, str]
    terms: Mapping[Opaque, str]

    def index(self, index: Index) -> str:
        """Write an index expression."""
        match index:
            case Int(value):
                return f"({value})"
            case Var(name):
                return self.variables[name]
            case Param(name):
                return self.parameters[name]
            case Opaque():
                return self.terms[index]
            case Neg(operand):
                return f"(-{self.index(operand)})"
            case Extremum(op, arguments):
                return f"{op}({', '.join(self.index(a) for a in arguments)})"
            case Arith("//", left, right):
                sign, by = self._divisor(right)
                return f"floor(({sign}({self.index(left)}))/{by})"
            case Arith("%", left, right):
                sign, by = self._divisor(right)
                return f"({sign}(({sign}({self.index(left)})) mod {by}))"
            case Arith("*", left, right):
                # isl takes a number as a factor only without parentheses around it.
                factors = (
                    str(side.value) if isinstance(side, Int) else self.index(side)
                    for side in (left, right)
                )
                return f"({' * '.join(factors)})"
            case Arith(op, left, right):
                return f"({self.index(left)} {op} {self.index(right)})"
            case _:
                raise AssertionError(index)

    @staticmethod
    def _divisor(index: Index) -> tuple[str, int]:
        """Return the sign to divide under, and what by: isl divides by positive numbers only."""
        assert isinstance(index, Int)
        return ("-", -index.value) if index.value < 0 else ("", index.value)

    def condition(self, condition: Condition, *, negated: bool = False) -> str:
        """Write a condition that has no data-dependent part."""
        match condition:
            case Truth(value):
                return TRUE if value != negated else FALSE
            case Relation(op, left, right):
                return self._compared(NEGATED[op] if negated else op, left, right)
            case Not(part):
                return self.condition(part, negated=not negated)
            case Every(parts) | Some(parts):
                joined = conjunction if isinstance(condition, Every) != negated else disjunction
                return joined(self.condition(part, negated=negated) for part in parts)
            case _:
                raise AssertionError(condition)

    def bounds(self, variable: str, limits: Range) -> str:
        """Say that the dimension `variable` is a value of a range."""
        start, stop, step = limits.start, limits.stop, limits.step
        above, below = (">=", "<") if step > 0 else ("<=", ">")
        parts = [f"{variable} {above} {self.index(each)}" for each in _each(above, start)]
        parts += [f"{variable} {below} {self.index(each)}" for each in _each(below, stop)]
        if abs(step) != 1:
            parts.append(f"({variable} - {self.index(start)}) mod {abs(step)} = 0")
        return " and ".join(parts)

    def _compared(self, op: Comparison, left: Index, right: Index) -> str:
        sign = "=" if op == "==" else op
        sides = product(_each(MIRRORED[op], left), _each(op, right))
        return " and ".join(f"{self.index(a)} {sign} {self.index(b)}" for a, b in sides)


def _each(op: str, right: Index) -> tuple[Index, ...]:
    """Return what stands right of a comparison as one or several things it holds for together.

    Of `j < min(a, b)` isl would make two cases, and of several such the product of them.
    """
    extremum = {"<": "min", "<=": "min", ">": "max", ">=": "max"}.get(op)
    if isinstance(right, Extremum) and right.op == extremum:
        return tuple(inner for argument in right.arguments for inner in _each(op, argument))
    return (right,)


class _Conjunction(str):
    """What `conjunction` has written: formulas in parentheses, joined by `and`."""

    __slots__ = ()


def conjunction(parts: Iterable[str]) -> str:
    """Join formulas by `and`.

    isl reads what stands in parentheses by itself, and intersects afterwards: of a conjunction of
    choices in them it would make all combinations, of which one after the other leaves few.
    """
    kept = [
        part if isinstance(part, _Conjunction) else f"({part})" for part in parts if part != TRUE
    ]
    return _Conjunction(" and ".join(kept)) if kept else TRUE


def disjunction(parts: Iterable[str]) -> str:
    """Join formulas by `or`."""
    kept = list(parts)
    return " or ".join(f"({part})" for part in kept) if kept else FALSE
