"""The contracts that an answer leans on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from looptrans.ir.listing import contract_text
from looptrans.ir.program import Contract

Contracts: TypeAlias = tuple[Contract, ...]


def leaned_on(contracts: Contracts, is_so: Callable[[Contracts], bool]) -> tuple[str, ...]:
    """Return contracts as written: so few that none of them can be left out.

    Args:
        contracts: What a program states; under all of it the answer is what it is.
        is_so: Tells whether it is the same under some of them.
    """
    kept = contracts
    for contract in contracts:
        fewer = tuple(other for other in kept if other is not contract)
        if is_so(fewer):
            kept = fewer
    return tuple(map(contract_text, kept))
