"""Tests of data that nothing writes, as what the elements of arrays of integers say.

    if ok[i, j]:                          ->    if (ok[#1, #2])[i, j] == 1:
        s[j] = …                                    s[j] = …
    m = max(s[j] … if x[j] > 0.0)         ->    m = max(s[j] … if (x[#1] > 0.0)[j] == 1)

Equal indices then have equal truth, whatever it is. What holds whatever such an array contains
holds for the test.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.ir.condition import Condition, Data, Relation, with_tests
from looptrans.ir.index import Index, Int, Opaque, Var, lets, opaque_terms
from looptrans.ir.listing import condition_text
from looptrans.ir.program import Assign, If, Node, Program
from looptrans.ir.rewrite import condition_changed, replaced, rewritten, values_replaced
from looptrans.ir.value import Holds, Read, Reduce, Select, Value, data_of, walk_value


def tested_alike(
    condition: Condition, changed: frozenset[str]
) -> tuple[Condition, tuple[Index, ...]] | None:
    """Take apart a test of data: what it tests, with names for the indices, and these, in order.

    No listing has such names, nor are they numbers: `x[i] * 2 > j` is not `x[i] * j > 2`.

    Args:
        condition: The test.
        changed: The arrays that are written.

    Returns:
        Nothing where it may come out another way for the same indices.
    """
    tested = data_of(condition)
    if not all(_is_fixed(part, changed) for value in tested for part in walk_value(value)):
        return None
    indices: list[Index] = []

    def noted(index: Index) -> Index:
        indices.append(index)
        return Var(f"#{len(indices)}")

    return condition_changed(condition, noted), tuple(indices)


def with_truths(program: Program, changed: frozenset[str]) -> Program:
    """Return a program in which tests of data that nothing writes are elements of integers.

    Args:
        program: The program.
        changed: The arrays that are written.
    """

    def condition_of(condition: Condition) -> Condition:
        return with_tests(condition, test_of)

    def test_of(test: Condition) -> Condition:
        return (_truth(test, changed) if isinstance(test, Data) else None) or test

    def value_of(value: Value) -> Value | None:
        match value:
            case Select(condition, chosen, otherwise):
                one, other = replaced(chosen, value_of), replaced(otherwise, value_of)
                return Select(condition_of(condition), one, other)
            case Holds(condition):
                return Holds(condition_of(condition))
            case Reduce(function, generators, body):
                found = tuple(replace(g, condition=condition_of(g.condition)) for g in generators)
                return Reduce(function, found, replaced(body, value_of))
            case _:
                return None

    def node_of(node: Node) -> tuple[Node, ...]:
        match node:
            case Assign():
                return (values_replaced(node, value_of),)
            case If():
                return (replace(node, condition=condition_of(node.condition)),)
            case _:
                return (node,)

    return replace(program, body=rewritten(program.body, node_of))


def _truth(test: Data, changed: frozenset[str]) -> Condition | None:
    found = tested_alike(test, changed)
    if found is None:
        return None
    tested, indices = found
    if any(lets(index) or any(opaque_terms(index)) for index in indices):
        return None
    return Relation("==", Opaque(f"({condition_text(tested)})", indices), Int(1))


def _is_fixed(value: Value, changed: frozenset[str]) -> bool:
    match value:
        case Read(access):
            return access.array not in changed
        case Reduce():
            return False
        case _:
            return True
