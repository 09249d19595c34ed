"""Where a loop that runs at most once has seen -inf only: what comes after it lets that be.

    if i < N:                                 if i < N:
        m = max(m, x)                             m = max(m, x)
    if i < N:                          ->     if i < N:
        l = l + exp(x - m)                        l = l + exp(x - m) if m > -inf else l

Such loops have become guards, and no fold is read there whose empty prefix could be guarded (see
`guards`). It is the same law: m is -inf only where x is, and then the update is no number.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from looptrans.algebra.normal_forms.normal import has_value
from looptrans.ir.condition import Condition, Data, conjunction
from looptrans.ir.program import Assign, If, Loop, Node
from looptrans.ir.rewrite import cells_put_in, replaced
from looptrans.ir.value import (
    Access,
    Call,
    Compare,
    Const,
    IndexValue,
    Read,
    Real,
    Reduce,
    Select,
    Value,
    arrays_read,
    infinity,
    walk_value,
)
from looptrans.ir.walk import written_in


@dataclass(frozen=True, slots=True)
class Top:
    """A maximum or minimum that has been offered one value, after its guard.

    Attributes:
        cell: Where it is.
        bottom: The infinity that it is where nothing else has been offered.
        condition: When it is offered one at all.
        offered: What it is offered, as it stands and with its parts put in.
    """

    cell: Access
    bottom: float
    condition: Condition
    offered: tuple[Value, ...]


def with_nothing_seen(body: Sequence[Node], guards: Container[int]) -> tuple[Node, ...]:
    """Return a block in which updates beside a maximum of one value leave out those at -inf.

    Args:
        body: The block.
        guards: The places of those nodes of it that loops have become.
    """
    tops: list[Top] = []
    starts: dict[Access, Value] = {}
    found: list[Node] = []
    for place, node in enumerate(body):
        guard = node if place in guards and isinstance(node, If) else None
        if guard is None:
            found.append(node)
        else:
            own = [top for top in tops if top.condition == guard.condition]
            again = _Guarded(own, written_in(guard.body))
            found.append(replace(guard, body=again.block(guard.body)))
        written = written_in((node,))
        tops = [kept for top in tops if (kept := _after(top, written)) is not None]
        if isinstance(node, Assign) and len(node.targets) == 1:
            starts[node.targets[0]] = node.values[0]
        elif guard is not None:
            tops += _offered(guard, starts)
    return tuple(found)


def _after(top: Top, written: set[str]) -> Top | None:
    """Return what is still known of a maximum after something was written."""
    if top.cell.array in written:
        return None
    offered = tuple(v for v in top.offered if not arrays_read(v) & written)
    return replace(top, offered=offered) if offered else None


def _offered(node: If, starts: Mapping[Access, Value]) -> list[Top]:
    """Return the maxima and minima that a guard leaves behind, each offered one value."""
    found, parts = [], dict[Access, Value]()
    for inner in node.body:
        if not isinstance(inner, Assign) or len(inner.targets) != 1:
            continue
        (cell,), (value,) = inner.targets, inner.values
        match value:
            case Call("max" | "min" as name, (left, right)) if Read(cell) in (left, right):
                term = right if left == Read(cell) else left
                bottom = -inf if name == "max" else inf
                if infinity(starts.get(cell, Const(bottom))) == bottom:
                    offered = tuple(dict.fromkeys((term, cells_put_in(term, parts))))
                    found.append(Top(cell, bottom, node.condition, offered))
            case _:
                parts[cell] = cells_put_in(value, parts)
    alone = [top for top in found if sum(top.cell.array == t.cell.array for t in found) == 1]
    return [t for t in alone if not any(t.cell.array in arrays_read(v) for v in t.offered)]


@dataclass(slots=True)
class _Guarded:
    """Writes the updates of one guard anew.

    Attributes:
        tops: The maxima that are known before it.
        written: What it writes.
    """

    tops: list[Top]
    written: set[str]

    def block(self, body: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return a block in which each update that is no number at -inf is made elsewhere only."""
        return self._block(body, {})

    def _block(self, body: tuple[Node, ...], parts: dict[Access, Value]) -> tuple[Node, ...]:
        found: list[Node] = []
        for node in body:
            match node:
                case Assign(targets=(target,), values=(value,)):
                    conditions = [_moved(t) for t in self.tops if self._is_lost(value, t, parts)]
                    own = Read(target)
                    if conditions and any(part == own for part in walk_value(value)):
                        kept = Select(conjunction(*conditions), value, own)
                        found.append(replace(node, values=(kept,), augmented=False))
                    else:
                        found.append(node)
                    parts[target] = cells_put_in(value, parts)
                case Loop() | If(orelse=()):
                    found.append(replace(node, body=self._block(node.body, dict(parts))))
                case _:
                    found.append(node)
        return tuple(found)

    def _is_lost(self, value: Value, top: Top, parts: Mapping[Access, Value]) -> bool:
        """Tell whether a value is no number where nothing but the infinity was offered."""
        known = [v for v in top.offered if not arrays_read(v) & self.written]
        bottom = Const(top.bottom)

        def change(part: Value) -> Value | None:
            return bottom if part == Read(top.cell) or part in known else None

        plain = replaced(cells_put_in(replaced(value, change), parts), change)
        if plain == value:
            return False
        names: dict[Value, Value] = {}

        def name(part: Value) -> Value | None:
            if isinstance(part, Read | IndexValue | Reduce):
                return names.setdefault(part, Real(f"x{len(names) + 1}"))
            return None

        return not has_value(replaced(plain, name))


def _moved(top: Top) -> Condition:
    """Return the condition that something else than the infinity has been offered."""
    cell, bottom = Read(top.cell), Const(top.bottom)
    return Data(Compare(">" if top.bottom < 0 else "<", cell, bottom))
