"""What must hold for rows that are combined to have one length."""

from __future__ import annotations

from looptrans.ir.affine import is_same
from looptrans.ir.condition import Relation
from looptrans.ir.index import Index
from looptrans.ir.program import Assign, Contract, Program
from looptrans.ir.value import Access, Read, Value, Whole, rank_of, value_children
from looptrans.ir.walk import assignments


def equal_lengths(program: Program) -> tuple[Contract, ...]:
    """Return the contracts of rows that are combined and are declared with different lengths.

    Q: Float[Array, "M E"], K: Float[Array, "N F"], Q[i] @ K[j]    ->    assert E == F
    """
    lengths = _Lengths(program)
    statements = assignments(program.body)
    # A name of a row may be read above the statement that sets it, in a later iteration.
    for last in (False, True):
        for statement in statements:
            own = [lengths.of_access(target) for target in statement.targets]
            given = [lengths.of(value, statement, last) for value in statement.values]
            given = given * len(own) if len(given) == 1 else given
            for target, mine, theirs in zip(statement.targets, own, given, strict=True):
                if target.rank != 1 or theirs is None:
                    continue
                if mine is None:
                    lengths.named.setdefault(target.array, theirs)
                elif last:
                    lengths.require(mine, theirs, statement)
    return tuple(lengths.found)


class _Lengths:
    def __init__(self, program: Program) -> None:
        self.shapes = {array.name: array.shape for array in program.arrays}
        self.named: dict[str, Index] = {}
        self.stated = [contract.condition for contract in program.contracts]
        self.found: list[Contract] = []

    def of_access(self, access: Access) -> Index | None:
        """Return the length of a row, where it is known."""
        whole = [n for n, part in enumerate(access.subscripts) if isinstance(part, Whole)]
        if len(whole) != 1:
            return None
        return self.shapes[access.array][whole[0]] or self.named.get(access.array)

    def of(self, value: Value, statement: Assign, last: bool) -> Index | None:
        """Return the length of the row that a value is, and require one of what it combines."""
        if isinstance(value, Read):
            return self.of_access(value.access)
        parts = value_children(value)
        known = [(part, self.of(part, statement, last)) for part in parts]
        rows = [length for part, length in known if length is not None and rank_of(part) == 1]
        for other in rows[1:] if last else ():
            self.require(rows[0], other, statement)
        return rows[0] if rows and rank_of(value) == 1 else None

    def require(self, one: Index, other: Index, statement: Assign) -> None:
        """Note that two lengths must be equal."""
        condition = Relation("==", one, other)
        if is_same(one, other) or {condition, Relation("==", other, one)} & {*self.stated}:
            return
        self.stated.append(condition)
        self.found.append(Contract(condition, span=statement.span))
