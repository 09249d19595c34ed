"""Numbers that elements are multiplied by one after the other are multiplied first.

    s = dot(Q, K) * (1 / sqrt(E))                s = dot(Q, K)
    t = tanh(s * (1 / cap))               ->     t = tanh(s * ((1 / sqrt(E)) * (1 / cap)))

    dt = dS * cap * slope                        dt = dS * cap * slope
    ds = dt * (1 / cap)                   ->     ds = dS * slope

Beside matrix products every instruction for each element counts, and a product of numbers is
worked out once for all blocks. A name keeps its factors where others look at it too, and is opened
only where a number cancels: one that is 0 or no finite number makes nan of the product in any case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from looptrans.blocks.block_ir.arithmetic import factors, mapped, mentions, product
from looptrans.blocks.block_ir.expr import Binary, Dot, Expr, Name, Number, dims_of, kind_of, walk
from looptrans.blocks.block_ir.ops import (
    Branch,
    ElementLoop,
    Let,
    Op,
    RowBlock,
    Store,
    TileLoop,
    exprs_of,
    ops_in,
)


def met(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Return what a program does, with numbers met first in loops that have matrix products."""
    return _met(ops, _single(ops))


def _single(ops: tuple[Op, ...]) -> frozenset[str]:
    """Return the names that every body sets once and looks at once, and nobody else looks at."""
    counts: Counter[str] = Counter()
    for op in ops_in(ops):
        counts.update(_looked_at(op))
        counts.update(_set_by(op))
    for body in (op.body for op in ops_in(ops) if isinstance(op, TileLoop | ElementLoop)):
        uses = Counter(name for op in body for name in _looked_at(op))
        sets = Counter(name for op in body for name in _set_by(op))
        counts.subtract({name: 2 for name in sets if sets[name] == uses[name] == 1})
    return frozenset(name for name, left in counts.items() if left == 0)


def _looked_at(op: Op) -> list[str]:
    return [p.name for e in exprs_of(op) for p in walk(e) if isinstance(p, Name)]


def _set_by(op: Op) -> list[str]:
    return [op.name] if isinstance(op, Let) else []


def _met(ops: tuple[Op, ...], single: frozenset[str]) -> tuple[Op, ...]:
    found: list[Op] = []
    for op in ops:
        if isinstance(op, TileLoop | ElementLoop | Branch | RowBlock):
            body = _met(op.body, single)
            is_beside = isinstance(op, TileLoop | ElementLoop) and _has_products(body)
            found.append(replace(op, body=_Body(single).run(body) if is_beside else body))
        else:
            found.append(op)
    return tuple(found)


def _has_products(ops: tuple[Op, ...]) -> bool:
    return any(isinstance(p, Dot) for op in ops for e in exprs_of(op) for p in walk(e))


@dataclass(slots=True)
class _Body:
    """The body of one loop.

    Attributes:
        single: Names that are looked at once for each time they are set.
        done: The operations so far.
        known: The place of what sets each name that is a product of elements and numbers.
    """

    single: frozenset[str]
    done: list[Op] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict)

    def run(self, ops: tuple[Op, ...]) -> tuple[Op, ...]:
        """Return the operations, changed."""
        for each in ops:
            op = each
            if isinstance(each, Let | Store):
                op = replace(each, value=mapped(each.value, self._changed))
            self.done.append(op)
            if not isinstance(op, Let):
                self.known.clear()
                continue
            for name in [n for n in self.known if n == op.name or mentions(self._of(n), op.name)]:
                del self.known[name]
            if _has_numbers(op.value) and not mentions(op.value, op.name):
                self.known[op.name] = len(self.done) - 1
        return tuple(self.done)

    def _of(self, name: str) -> Expr:
        let = self.done[self.known[name]]
        assert isinstance(let, Let)
        return let.value

    def _changed(self, part: Expr) -> Expr | None:
        """Return a product of elements and numbers in which numbers have met; None for others."""
        if not isinstance(part, Binary) or part.op not in ("*", "/") or not _has_numbers(part):
            return None
        above, below = factors(part)
        names = [each for each in above if isinstance(each, Name) and each.name in self.known]
        if len(names) == 1 and set(names[0].dims) == set(dims_of(part)):
            found = self._opened(names[0], above, below)
            if found is not None:
                return found
        if sum(not dims_of(each) and each != Number(1.0) for each in (*above, *below)) < 2:
            return None
        return product(self._all_changed(above), below)

    def _all_changed(self, parts: Iterable[Expr]) -> list[Expr]:
        return [mapped(each, self._changed) for each in parts]

    def _opened(self, name: Name, above: tuple[Expr, ...], below: tuple[Expr, ...]) -> Expr | None:
        """Return a product whose numbers have met those of one of its factors."""
        inner, under = factors(self._of(name.name))
        elements = [each for each in inner if dims_of(each)]
        rest = self._all_changed(each for each in above if each is not name)
        numbers = [*(each for each in inner if not dims_of(each)), *rest]
        numbers = [each for each in numbers if each != Number(1.0)]
        divided = [*under, *below]
        alike = [each for each in divided if each in numbers and not isinstance(each, Number)]
        for each in alike:
            numbers.remove(each)
            divided.remove(each)
        is_single = name.name in self.single
        if not is_single or not (numbers or divided):
            return product((*elements, *numbers), divided) if is_single or alike else None
        own = elements[0] if len(elements) == 1 and isinstance(elements[0], Name) else name
        if own == name:
            at = self.known.pop(name.name)
            let = self.done[at]
            assert isinstance(let, Let)
            self.done[at] = replace(let, value=product(elements))
        return product((own, *numbers), divided)


def _has_numbers(value: Expr) -> bool:
    """Tell whether a value is a product of elements and numbers."""
    if kind_of(value) != "float":
        return False
    above, below = factors(value)
    numbers = [part for part in (*above, *below) if not dims_of(part) and part != Number(-1.0)]
    return bool(numbers) and any(map(dims_of, above)) and not any(map(dims_of, below))
