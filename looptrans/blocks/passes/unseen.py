"""Whether a row sees anything is asked once for the row, not for each of its elements.

    P = where(lse > -inf, exp(S - lse), 0)    ->    lse_seen = where(lse > -inf, lse, inf)
                                                    P = exp(S - lse_seen)

Both are 0 in a row whose log-sum-exp is -inf: all its scores are -inf, and so no nan. Scores beside
them that do not count are left out by a mask of their own, and are not asked for here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf

from looptrans.blocks.block_ir.arithmetic import both, conjuncts, mapped
from looptrans.blocks.block_ir.expr import Binary, Call, Cast, Expr, Name, Number, Where, dims_of
from looptrans.blocks.block_ir.ops import Branch, ElementLoop, Let, Op, RowBlock, Store, TileLoop

_NOTE = "inf where a row sees nothing"


def asked_by_row(ops: tuple[Op, ...], naming: Callable[[str, object], str]) -> tuple[Op, ...]:
    """Return operations that ask for each row whether it sees anything.

    Args:
        ops: What a program does.
        naming: Gives a free name for a stem and a key, the same for the same key.
    """
    rows = _Rows(naming)
    changed = rows.asked(ops)
    return rows.set_in(changed) if rows.seen else changed


@dataclass(slots=True)
class _Rows:
    """The numbers of rows that are asked for, each with the one that is inf where it was -inf."""

    naming: Callable[[str, object], str]
    seen: dict[str, tuple[str, Expr]] = field(default_factory=dict)

    def asked(self, ops: tuple[Op, ...]) -> tuple[Op, ...]:
        return tuple(map(self._changed, ops))

    def set_in(self, ops: tuple[Op, ...]) -> tuple[Op, ...]:
        """Return operations that set the second number wherever they set the first."""
        found: list[Op] = []
        for op in ops:
            match op:
                case TileLoop() | ElementLoop() | RowBlock():
                    found.append(replace(op, body=self.set_in(op.body)))
                case Branch(_, body, otherwise):
                    parts = self.set_in(body), self.set_in(otherwise)
                    found.append(replace(op, body=parts[0], otherwise=parts[1]))
                case Let(name) if name in self.seen:
                    second, value = self.seen[name]
                    found += [op, Let(second, value, (), _NOTE, dims_of(value))]
                case _:
                    found.append(op)
        return tuple(found)

    def _changed(self, op: Op) -> Op:
        match op:
            case TileLoop() | ElementLoop() | RowBlock():
                return replace(op, body=self.asked(op.body))
            case Branch(_, body, otherwise):
                return replace(op, body=self.asked(body), otherwise=self.asked(otherwise))
            case Let() | Store():
                return replace(op, value=mapped(op.value, self._by_row))
            case _:
                return op

    def _by_row(self, expr: Expr) -> Expr | None:
        match expr:
            case Where(condition, Call("exp", (Binary("-", score, row),)), Number(0.0)):
                number = _plain(row)
                every = conjuncts(condition)
                left = [part for part in every if not _is_seen(part, number)]
                is_row = isinstance(number, Name) and set(number.dims) < set(dims_of(score))
                if len(left) == len(every) or not is_row:
                    return None
                assert isinstance(number, Name)
                value = Where(Binary(">", row, Number(-inf)), row, Number(inf))
                name = self.naming(f"{number.name}_seen", ("seen", number.name))
                self.seen[number.name] = name, value
                found = Call("exp", (Binary("-", score, Name(name, number.dims)),))
                rest = both(*left)
                return found if rest is None else Where(rest, found, Number(0.0))
            case _:
                return None


def _is_seen(condition: Expr, number: Expr) -> bool:
    """Tell whether a condition asks that the number of a row is above -inf."""
    match condition:
        case Binary(">", left, Number(value)):
            return value == -inf and _plain(left) == number
        case _:
            return False


def _plain(expr: Expr) -> Expr:
    return _plain(expr.operand) if isinstance(expr, Cast) and expr.like is None else expr
