"""What is looked up through tables, in arrays that nothing writes, is like any other input."""

from __future__ import annotations

import pytest

from looptrans.analysis.dependence.lookups import with_lookups
from looptrans.ir.listing import access_text
from looptrans.ir.step import Step
from looptrans.ir.walk import accesses, placed, written
from looptrans.transforms.script import apply_all
from tests.steps import agrees, read

GATHERED = """
def f(Q: Float[Array, "M"], K: Float[Array, "NP R"], O: Float[Array, "M"],
      table: Int[Array, "M N", "0:NP"]):
    for i in range(0, M):
        acc = 0.0
        for j in range(0, N):
            t = K[table[i, j // 4], j % 4]
            acc += Q[i] * t
        O[i] = acc
    return O
"""
PAGES = GATHERED.replace(
    "t = K[table[i, j // 4], j % 4]",
    "page = table[i, j // 4]\n            t = K[page, j % 4]",
)
SUMMED = """
def f(K: Float[Array, "N"], O: Float[Array, "M"], perm: Int[Array, "N", "0:N"]):
    for i in range(0, M):
        for j in range(0, N):
            O[i] = O[i] + K[perm[j]]
    return O
"""
SIZES = [{"M": 2, "N": 5, "NP": 3, "R": 4}]


def last(text: str, script: str) -> Step:
    return apply_all(read(text), script)[-1]


@pytest.mark.parametrize("text", [GATHERED, PAGES], ids=["at once", "by way of a number"])
@pytest.mark.parametrize("script", ["split(j, 2)", "phased_atomics(j)", "ordered_atomics(j)"])
def test_a_sum_over_what_is_looked_up_is_one(text: str, script: str) -> None:
    step = last(text, script)
    assert step.verdict.decision == "legal"
    assert agrees(step, SIZES)


@pytest.mark.parametrize("script", ["split(j, 2)", "promote(O, j)", "block_reduce(j)"])
def test_a_cell_that_sums_up_what_is_looked_up_is_one(script: str) -> None:
    step = last(SUMMED, script)
    assert step.verdict.decision == "legal"
    assert agrees(step, [{"M": 2, "N": 3}])


@pytest.mark.parametrize("script", ["reverse(j)", "interchange(i, j)"])
def test_what_is_written_through_a_table_is_not(script: str) -> None:
    text = """
        def f(K: Float[Array, "N"], O: Float[Array, "N"], perm: Int[Array, "N", "0:N"]):
            for i in range(0, N):
                for j in range(0, N):
                    O[i] = O[i] + K[perm[j]]
                    K[j] = O[i]
            return O
        """
    assert last(text, script).verdict.decision != "legal"


def test_a_number_that_names_a_row_comes_before_it() -> None:
    """Its last value is not what each row was found with."""
    assert last(PAGES, "distribute(j, S3)").verdict.decision == "illegal"


def test_equal_names_mean_equal_functions_of_the_indices() -> None:
    program = read("""
        def f(K: Float[Array, "N"], O: Float[Array, "N"], perm: Int[Array, "N"]):
            for i in range(0, N):
                O[i] = K[perm[i]] + K[perm[i + 1]] + K[perm[i] + 1] + K[i] + O[perm[i]]
        """)
    (place,) = placed(with_lookups(program, written(program)))
    names = [r.access.array for r in accesses(place.node)]
    assert names == ["K[perm[#1]]", "K[perm[#1]]", "K[perm[#1] + #2]", "K", "O", "O"]
    assert access_text(accesses(place.node)[1].access) == "K[perm[#1]][i + 1]"
