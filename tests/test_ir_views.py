"""The IR by itself: immutable, comparable, and its views: domains, outputs, literals."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, is_dataclass

import pytest

from looptrans.frontend import parse
from looptrans.ir import claim, condition, domain, facts, index, program, source, value, verdict
from looptrans.ir.condition import ALWAYS, is_data_dependent
from looptrans.ir.index import Int, Param, Var
from looptrans.ir.outputs import Output, outputs
from looptrans.ir.program import Program
from looptrans.ir.source import Source
from looptrans.ir.value import (
    Access,
    Compare,
    Const,
    Generator,
    Range,
    Read,
    Reduce,
    free_variables,
)
from looptrans.ir.walk import placed
from looptrans.transforms.editing.extents import is_within
from looptrans.transforms.over_blocks.block_starts import is_multiple

MASKED = """
def f(A: Float[Array, "M N"], mask: Bool[Array, "M N"]):
    for i in range(M):
        for j in range(N):
            if j <= i and mask[i, j]:
                A[i, j] = 1.0
            elif j > i or not mask[i, j]:
                A[i, j] = 2.0
            if i == j:
                A[i, j] = 3.0
"""


def read(text: str) -> Program:
    return parse(Source("f.py", text))


def test_a_domain_lies_between_two_exact_ones() -> None:
    first, second, third = (p.domain for p in placed(read(MASKED)) if p.label.startswith("S"))
    assert first.variables == ("i", "j")
    for each in (first, second):
        assert each.is_may
        assert is_data_dependent(each.predicate)
        assert each.over.loops == each.under.loops == each.loops
        assert not each.over.is_may
        assert not each.under.is_may
    assert first.over != first.under
    assert not third.is_may
    assert third.over is third
    assert third.under is third


def test_a_domain_of_bare_loops_always_holds() -> None:
    (place,) = placed(read("for i in range(N):\n    x[i] = 1.0\n"))
    assert place.domain.predicate == condition.ALWAYS


def test_outputs_say_whether_a_gradient_comes_back() -> None:
    text = """
def f(x: Float[Array, "N"], n: Int[Array, "N"]):
    y = zeros(N)
    m = -inf
    k = zeros(N, dtype=int)
    for i in range(N):
        y[i] = exp(x[i])
        n[i] = i
        k[i] = i
        x[i] = 0.0
    for i in range(N):
        m, y[i] = stop_gradient(max(m, x[i])), y[i]
    return m, y, k
"""
    assert outputs(read(text)) == (
        Output("m", "differentiable"),  # its first value is not detached
        Output("y", "differentiable"),
        Output("k", "integer"),
        Output("x", "differentiable"),
        Output("n", "integer"),
    )
    detached = "for i in range(N):\n    y[i] = stop_gradient(x[i])\n"
    assert outputs(read(detached)) == (Output("y", "detached"),)


def test_literals_are_equal_when_type_and_bits_are() -> None:
    different = [Const(1), Const(1.0), Const(True), Const(0), Const(0.0), Const(-0.0), Const(False)]
    assert len(set(different)) == len(different)
    for number, literal in enumerate(different):
        assert different.index(literal) == number
        assert literal == Const(literal.value)
    assert read("for i in range(N):\n    x[i] = 1\n") != read(
        "for i in range(N):\n    x[i] = 1.0\n"
    )


@pytest.mark.parametrize(
    "module", [claim, condition, domain, facts, index, program, source, value, verdict]
)
def test_every_data_type_is_frozen_and_has_slots(module: object) -> None:
    types = [t for t in vars(module).values() if isinstance(t, type) and is_dataclass(t)]
    assert types
    for each in types:
        assert each.__dataclass_params__.frozen, each  # type: ignore[attr-defined]
        assert hasattr(each, "__slots__"), each


def test_a_program_cannot_be_changed_and_can_be_hashed() -> None:
    listing = read(MASKED)
    assert hash(listing) == hash(read(MASKED))
    for each in fields(listing):
        with pytest.raises(FrozenInstanceError):
            setattr(listing, each.name, None)


def test_a_variable_that_is_bound_elsewhere_is_free() -> None:
    element = Read(Access("x", (Var("k"),)))
    each = Generator("k", Range(Var("j"), Param("K"), 1), ALWAYS)
    least = Reduce("min", (each,), element)
    assert free_variables(least) == ("j",)
    assert free_variables(Compare("<=", element, least)) == ("k", "j")
    assert free_variables(Compare("<=", least, element)) == ("j", "k")


@pytest.mark.parametrize("joined", ["\n    assert ", " and "])
def test_what_contracts_state_is_the_same_however_they_are_joined(joined: str) -> None:
    text = f"""
def f(X: Float[Array, "N E"], E, B):
    assert N == B * E{joined}E > 16{joined}N % 4 == 0
    for n in range(N):
        X[n, 0] = 0.0
    return X
"""
    found = parse(Source("<contracts>", text))

    assert len(found.stated) == 3
    assert is_multiple(found, Param("N"), Int(4))
    assert is_within(found, Int(17), Param("E"))
    assert not is_within(found, Int(18), Param("E"))
