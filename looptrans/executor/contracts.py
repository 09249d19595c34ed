"""Contracts: whether they hold for the inputs, and how random integers are made to fit them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from looptrans.executor.errors import ContractViolated, IndexDividedByZero, SubscriptOutside
from looptrans.ir.condition import (
    Comparison,
    Condition,
    Relation,
    compared,
    conjuncts,
    walk_condition,
)
from looptrans.ir.evaluate import Evaluator
from looptrans.ir.index import opaque_terms, parameters
from looptrans.ir.listing import contract_text, index_text
from looptrans.ir.program import Contract, Program

Integers = np.ndarray[Any, Any]
Cell = tuple[str, tuple[int, ...]]

PASSES = 40


class OutsideArray(Exception):
    """A contract, or a dry run, asks for an element that an integer array does not have."""

    def __init__(self, array: str, cell: tuple[int, ...], shape: tuple[int, ...]) -> None:
        super().__init__(f"{array}{list(cell)} is outside the shape {shape}")


def elements(arrays: Mapping[str, Integers], array: str, cell: tuple[int, ...]) -> int:
    """Return an element of an integer array; subscripts do not wrap.

    Raises:
        OutsideArray: There is no such element.
    """
    values = arrays[array]
    if not all(0 <= at < extent for at, extent in zip(cell, values.shape, strict=True)):
        raise OutsideArray(array, cell, values.shape)
    return int(values[cell])


def evaluator_for(sizes: Mapping[str, int], arrays: Mapping[str, Integers]) -> Evaluator:
    """Return an evaluator that knows the sizes and the integer arrays."""
    return Evaluator(sizes, lambda array, cell: elements(arrays, array, cell))


def check_contracts(
    program: Program, sizes: Mapping[str, int], arrays: Mapping[str, Integers]
) -> None:
    """Compare every contract with the inputs.

    Raises:
        ContractViolated: One does not hold; the message shows for which values.
        SubscriptOutside: One asks for an element an array does not have.
        IndexDividedByZero: One divides by zero.
    """
    evaluator = evaluator_for(sizes, arrays)
    for contract in program.contracts:
        text = contract_text(contract)
        try:
            for variables in evaluator.instances(contract.generators, {}):
                if not evaluator.holds(contract.condition, variables):
                    shown = _shown(contract.condition, variables, evaluator)
                    raise ContractViolated(
                        f"the inputs violate the contract {text.removeprefix('assert ')}",
                        contract.span,
                        why=f"for {shown}" if shown else "",
                        remedy="give inputs that satisfy it, or drop the contract",
                    )
        except OutsideArray as outside:
            raise SubscriptOutside(
                f"the contract {text.removeprefix('assert ')} asks for {outside}",
                contract.span,
                remedy="change the range of the contract, or the shape of the array",
            ) from None
        except ZeroDivisionError:
            raise IndexDividedByZero(
                f"the contract {text.removeprefix('assert ')} divides by zero", contract.span
            ) from None


def check_sizes(program: Program, sizes: Mapping[str, int]) -> None:
    """Compare with the sizes those contracts that are about nothing else: `H == G * R`.

    Raises:
        ContractViolated: One does not hold; the message shows for which values.
        IndexDividedByZero: One divides by zero.
    """
    alone = tuple(
        contract
        for contract in program.contracts
        if not contract.generators
        and not any(True for side in compared(contract.condition) for _ in opaque_terms(side))
    )
    check_contracts(replace(program, contracts=alone), sizes, {})


def _shown(condition: Condition, variables: Mapping[str, int], evaluator: Evaluator) -> str:
    """Write out the values of everything the condition mentions."""
    values: dict[str, int] = dict(variables)
    for index in compared(condition):
        for name in parameters(index):
            values.setdefault(name, evaluator.parameters[name])
        for term in opaque_terms(index):
            values[index_text(term)] = evaluator.index(term, variables)
    return ", ".join(f"{name}={value}" for name, value in values.items())


def is_satisfied(
    program: Program, sizes: Mapping[str, int], arrays: Mapping[str, Integers]
) -> bool:
    """Tell whether every contract holds."""
    try:
        check_contracts(program, sizes, arrays)
    except (ContractViolated, SubscriptOutside, IndexDividedByZero):
        return False
    return True


def is_injective(contract: Contract, array: str) -> bool:
    """Tell whether a contract says that two elements of an array differ (`idx[b] != idx[c]`)."""
    return any(
        isinstance(part, Relation)
        and part.op == "!="
        and all(getattr(side, "array", None) == array for side in (part.left, part.right))
        for part in walk_condition(contract.condition)
    )


def is_monotone(contract: Contract, array: str) -> bool:
    """Tell whether a contract compares two elements of an array by `<=` or `<`."""
    return bool(contract.generators) and any(
        isinstance(part, Relation)
        and part.op in ("<=", "<", ">=", ">")
        and all(any(t.array == array for t in opaque_terms(s)) for s in (part.left, part.right))
        for part in walk_condition(contract.condition)
    )


def repair(
    program: Program,
    sizes: Mapping[str, int],
    arrays: Mapping[str, Integers],
    free: frozenset[str],
    rng: np.random.Generator,
) -> None:
    """Change elements of the `free` arrays, in place, towards satisfying the contracts.

    Every comparison that fails is mended by moving one element as far as it takes; what that
    breaks elsewhere is mended in the next pass.
    """
    evaluator = evaluator_for(sizes, arrays)
    for _ in range(PASSES):
        changed = False
        for contract in program.contracts:
            for variables in evaluator.instances(contract.generators, {}):
                if not evaluator.holds(contract.condition, variables):
                    for part in conjuncts(contract.condition):
                        if isinstance(part, Relation):
                            changed |= _mend(part, variables, evaluator, arrays, free, rng)
        if not changed:
            return


def _mend(
    relation: Relation,
    variables: Mapping[str, int],
    evaluator: Evaluator,
    arrays: Mapping[str, Integers],
    free: frozenset[str],
    rng: np.random.Generator,
) -> bool:
    def difference() -> int:
        left = evaluator.index(relation.left, variables)
        return left - evaluator.index(relation.right, variables)

    needed = _distance(relation.op, difference())
    if needed == 0:
        return False
    terms = (*opaque_terms(relation.right), *opaque_terms(relation.left))
    cells: list[Cell] = [
        (term.array, tuple(evaluator.index(a, variables) for a in term.arguments))
        for term in terms
        if term.array in free
    ]
    # Later elements move before earlier ones, so that one pass over a monotone array is enough.
    for array, cell in sorted(cells, key=lambda found: found[1], reverse=True):
        values = arrays[array]
        old, before = values[cell], difference()
        if relation.op == "!=":
            values[cell] = rng.integers(0, max(int(values.max()) + 2, values.size))
            return True
        values[cell] = old + 1
        effect = difference() - before
        values[cell] = old
        if effect and needed % effect == 0:
            values[cell] = old + needed // effect
            return True
    return False


def _distance(op: Comparison, difference: int) -> int:
    """Return by how much `left - right` has to change for `left op right` to hold."""
    match op:
        case "<":
            return min(0, -1 - difference)
        case "<=":
            return min(0, -difference)
        case ">":
            return max(0, 1 - difference)
        case ">=":
            return max(0, -difference)
        case "==":
            return -difference
        case "!=":
            return 0 if difference else 1
