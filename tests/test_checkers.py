"""The checkers alone: right rewrites pass, and rewrites that were spoilt by hand do not."""

from __future__ import annotations

import pytest

from looptrans.analysis.api import (
    check_order,
    check_races,
    check_reduction,
    check_storage,
    loop_facts,
)
from looptrans.frontend import parse
from looptrans.ir.index import Arith, Index, Int, Neg, Var
from looptrans.ir.program import Program
from looptrans.ir.source import Source
from looptrans.ir.step import Image, same_names


def program(text: str) -> Program:
    return parse(Source("<test>", text), None)


def i_minus(index: Index, amount: int) -> Index:
    return Arith("-", index, Int(amount))


STENCIL = program("""
def f(A: Float[Array, "N N"]):
    for i in range(1, N):
        for j in range(1, N - 1):
            A[i, j] = A[i - 1, j + 1]  # S1: x
""")
SWAPPED = program("""
def f(A: Float[Array, "N N"]):
    for j in range(1, N - 1):
        for i in range(1, N):
            A[i, j] = A[i - 1, j + 1]  # S1: x
""")


def test_a_reversed_dependence_is_named_with_its_example() -> None:
    verdict = check_order(STENCIL, SWAPPED, same_names(STENCIL, SWAPPED))
    assert verdict.decision == "illegal"
    assert (verdict.source, verdict.sink, verdict.array, verdict.cell) == ("S1", "S1", "A", (1, 2))
    assert verdict.dependence is not None
    assert verdict.dependence.distance == ("1", "-1")
    assert verdict.witness is not None
    assert verdict.witness.kind == "order"
    assert dict(verdict.witness.parameters) == {"N": 4}
    assert dict(verdict.witness.source) == {"i": 1, "j": 2}
    assert dict(verdict.witness.sink) == {"i": 2, "j": 1}


COPY = program("""
def f(A: Float[Array, "M N"], B: Float[Array, "M N"]):
    for i in range(M):
        for j in range(i, N):
            if j < i + 3:
                B[i, j] = A[i, j] + j  # S1: x
""")
# Everything below is COPY with i and j interchanged, but for one thing each.
SPOILT = {
    "nothing": ("for j in range(N):", "range(min(M, j + 1))", "j < i + 3", "A[i, j] + j"),
    "bound": ("for j in range(N - 1):", "range(min(M, j + 1))", "j < i + 3", "A[i, j] + j"),
    "more": ("for j in range(N + 1):", "range(min(M, j + 1))", "j < i + 3", "A[i, j] + j"),
    "inner bound": ("for j in range(N):", "range(min(M, j))", "j < i + 3", "A[i, j] + j"),
    "guard": ("for j in range(N):", "range(min(M, j + 1))", "j <= i + 3", "A[i, j] + j"),
    "subscript": ("for j in range(N):", "range(min(M, j + 1))", "j < i + 3", "A[i, j + 1] + j"),
    "array": ("for j in range(N):", "range(min(M, j + 1))", "j < i + 3", "B[i, j] + j"),
    "body": ("for j in range(N):", "range(min(M, j + 1))", "j < i + 3", "A[i, j] - j"),
    "number": ("for j in range(N):", "range(min(M, j + 1))", "j < i + 3", "A[i, j] + i"),
    "step": ("for j in range(0, N, 2):", "range(min(M, j + 1))", "j < i + 3", "A[i, j] + j"),
}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_spoilt_reorderings_are_rejected(spoilt: str) -> None:
    outer, inner, guard, value = SPOILT[spoilt]
    after = program(f"""
def f(A: Float[Array, "M N"], B: Float[Array, "M N"]):
    {outer}
        for i in {inner}:
            if {guard}:
                B[i, j] = {value}  # S1: x
""")
    verdict = check_order(COPY, after, same_names(COPY, after))
    assert (verdict.decision == "legal") == (spoilt == "nothing"), verdict


@pytest.mark.parametrize(
    "indices",
    [
        (Var("j"), Var("i")),
        (Var("i"), i_minus(Var("j"), 1)),
        (Var("i"), Var("i")),
        (Neg(Var("i")), Var("j")),
        (Var("i"), None),
        (Var("i"), Int(0)),
    ],
    ids=repr,
)
def test_a_wrong_instance_map_is_rejected(indices: tuple[Index | None, ...]) -> None:
    assert check_order(COPY, COPY, {"S1": Image("S1", indices)}).decision != "legal"
    assert check_storage(COPY, COPY, {"S1": Image("S1", indices)}).decision != "legal"


TWO = program("""
def f(x: Float[Array, "N"], y: Float[Array, "N"]):
    for i in range(N):
        y[i] = x[i] * 2.0  # S1: x
        x[i] = 0.0  # S2: x
""")


@pytest.mark.parametrize(
    "body",
    [
        "y[i] = x[i] * 2.0  # S1: x",
        "x[i] = 0.0  # S2: x\n        y[i] = x[i] * 2.0  # S1: x",
        "y[i] = x[i] * 2.0  # S1: x\n        x[i] = 0.0  # S2: x\n        y[i] = 1.0  # S3: x",
    ],
    ids=["lost", "swapped", "added"],
)
def test_lost_swapped_and_added_statements_are_rejected(body: str) -> None:
    after = program(f"""
def f(x: Float[Array, "N"], y: Float[Array, "N"]):
    for i in range(N):
        {body}
""")
    images = {k: v for k, v in same_names(TWO, after).items() if k != "S3"}
    assert check_order(TWO, after, images).decision != "legal"
    assert check_storage(TWO, after, images).decision != "legal"


def test_scalars_that_carry_nothing_do_not_forbid_an_interchange() -> None:
    before = program("""
def f(A: Float[Array, "M N"], B: Float[Array, "M N"]):
    for i in range(M):
        for j in range(N):
            t = A[i, j]  # S1: x
            B[i, j] = t + 1.0  # S2: x
""")
    after = program("""
def f(A: Float[Array, "M N"], B: Float[Array, "M N"]):
    for j in range(N):
        for i in range(M):
            t = A[i, j]  # S1: x
            B[i, j] = t + 1.0  # S2: x
""")
    assert check_order(before, after, same_names(before, after)).decision == "legal"


def test_the_last_value_of_a_scalar_that_is_returned_does() -> None:
    text = """
def f(A: Float[Array, "M N"]):
    t = 0.0  # S1: x
    for {0}:
        for {1}:
            t = A[i, j]  # S2: x
    return t
"""
    before = program(text.format("i in range(M)", "j in range(N)"))
    after = program(text.format("j in range(N)", "i in range(M)"))
    # In both orders the last iteration is (M - 1, N - 1).
    assert check_order(before, after, same_names(before, after)).decision == "legal"
    after = program(text.format("i in range(M - 1, -1, -1)", "j in range(N)"))
    verdict = check_order(before, after, same_names(before, after))
    assert verdict.decision == "illegal"
    assert verdict.dependence is not None
    assert verdict.dependence.kind == "output"


NEST = """
def f(A: Float[Array, "M N"], c: Float[Array, "M"]):
    for i in range(M):
        {hoisted}
        for j in range(N):
            {rest}
"""


def hoisted(above: str, inside: str) -> Program:
    return program(NEST.format(hoisted=above, rest=inside))


INVARIANT = program("""
def f(A: Float[Array, "M N"], c: Float[Array, "M"]):
    for i in range(M):
        for j in range(N):
            t = exp(c[i])  # S1: x
            A[i, j] = t * A[i, j]  # S2: x
""")


def test_one_instance_may_stand_for_many_that_compute_the_same() -> None:
    after = hoisted("t = exp(c[i])  # S1: x", "A[i, j] = t * A[i, j]  # S2: x")
    verdict = check_storage(INVARIANT, after, same_names(INVARIANT, after))
    assert verdict.decision == "legal"
    assert [c.kind for c in verdict.certificates] == ["storage"]


def test_what_runs_more_often_must_not_fail() -> None:
    before = program("""
def f(A: Float[Array, "M N"], c: Float[Array, "K"], K):
    for i in range(M):
        for j in range(N):
            t = exp(c[i])  # S1: x
            A[i, j] = t * A[i, j]  # S2: x
""")
    text = """
def f(A: Float[Array, "M N"], c: Float[Array, "K"], K):
    for i in range(M):
        {guard}t = exp(c[i])  # S1: x
        for j in range(N):
            A[i, j] = t * A[i, j]  # S2: x
"""
    bare = program(text.format(guard=""))
    guarded = program(text.format(guard="if 0 < N:\n            "))
    assert check_storage(before, bare, same_names(before, bare)).decision != "legal"
    assert check_storage(before, guarded, same_names(before, guarded)).decision == "legal"


def test_a_carried_value_cannot_be_hoisted() -> None:
    before = program("""
def f(A: Float[Array, "M N"], c: Float[Array, "M"]):
    for i in range(M):
        for j in range(N):
            t = exp(c[i])  # S1: x
            c[i] = t * A[i, j]  # S2: x
""")
    after = hoisted("t = exp(c[i])  # S1: x", "c[i] = t * A[i, j]  # S2: x")
    verdict = check_storage(before, after, same_names(before, after))
    assert (verdict.decision, verdict.source, verdict.sink) == ("illegal", "S2", "S1")
    assert verdict.dependence is not None
    assert (verdict.dependence.distance, verdict.dependence.carried_by) == (("0", "1"), "j")


SUM = program("""
def f(A: Float[Array, "M N"]):
    s = 0.0  # S1: x
    for i in range(M):
        for j in range(N):
            s = s * 0.5 + A[i, j]  # S2: x
    return s
""")


@pytest.mark.parametrize(
    "load, used, store, legal",
    [
        ("t = s", "t", "s = t", True),
        ("t = s", "t", "t = s", False),
        ("t = A[0, 0]", "t", "s = t", False),
        ("t = s", "s", "s = t", False),
    ],
)
def test_an_element_kept_in_a_local_across_a_loop(
    load: str, used: str, store: str, legal: bool
) -> None:
    after = program(f"""
def f(A: Float[Array, "M N"]):
    s = 0.0  # S1: x
    for i in range(M):
        {load}  # S8: x
        for j in range(N):
            t = {used} * 0.5 + A[i, j]  # S2: x
        {store}  # S9: x
    return s
""")
    images = {k: v for k, v in same_names(SUM, after).items() if k in ("S1", "S2")}
    verdict = check_storage(SUM, after, images)
    assert (verdict.decision == "legal") == legal, verdict


def test_a_clobbered_value_is_a_storage_fault() -> None:
    before = program("""
def f(x: Float[Array, "N"], y: Float[Array, "N"]):
    t = empty(N)
    for i in range(N):
        t[i] = x[i] * 2.0  # S1: x
    for i in range(N):
        y[i] = t[i]  # S2: x
""")
    after = program("""
def f(x: Float[Array, "N"], y: Float[Array, "N"]):
    t = 0.0  # S9: x
    for i in range(N):
        t = x[i] * 2.0  # S1: x
    for i in range(N):
        y[i] = t + 0.0  # S2: x
""")
    images = same_names(before, after)
    assert check_storage(before, after, images).decision != "legal"
    spoilt = program("""
def f(x: Float[Array, "N"], y: Float[Array, "N"]):
    for i in range(N):
        t = x[i] * 2.0  # S1: x
    for i in range(N):
        y[i] = t  # S2: x
""")
    verdict = check_storage(before, spoilt, same_names(before, spoilt))
    assert verdict.decision == "illegal"
    assert verdict.witness is not None and verdict.witness.kind == "storage"
    assert verdict.now is not None and verdict.now.statement == "S1"
    assert dict(verdict.now.iteration) != dict(verdict.witness.source)


def test_a_private_copy_has_no_first_value() -> None:
    text = """
def f(x: Float[Array, "N"]):
    t = zeros(1)
    for i in range(N):
        {0}
        x[i] = t[0]  # S1: x
        t[0] = 0.0  # S2: x
"""
    before = program(text.format("pass"))
    after = program(text.format("private: t"))
    assert check_storage(before, after, same_names(before, after)).decision != "legal"


RACE = """
def f(a: Float[Array, "N"], b: Float[Array, "N"]):
    s = 0.0  # S1: x
    for i in parallel(0, N):
        {0}
    return s
"""


ATOMIC = "with atomic():\n            s += a[i]  # S2: x"


@pytest.mark.parametrize(
    "body, decision, kind",
    [
        ("s += a[i]  # S2: x", "illegal", "race"),
        (ATOMIC, "legal", None),
        ("with atomic(turn=i):\n            s = a[i]  # S2: x", "legal", None),
        ("with atomic():\n            s = a[i]  # S2: x", "illegal", "order"),
        (
            "with atomic():\n            b[0] += a[i]  # S2: x\n        b[i + 1] = 2.0",
            "legal",
            None,
        ),
        (
            "with atomic():\n            b[0] += a[i]  # S2: x\n        b[i] = 2.0",
            "illegal",
            "race",
        ),
        ("with atomic():\n            s = 0.5 * s + a[i]  # S2: x", "illegal", "order"),
        ('with reduce("+"):\n            s += a[i]  # S2: x', "legal", None),
        (ATOMIC + "\n        b[i] = s  # S3: x", "illegal", "race"),
        (ATOMIC + "\n        barrier()\n        b[i] = s  # S3: x", "legal", None),
        ("b[i] = a[i]  # S2: x", "legal", None),
        ("b[0] = 1.0  # S2: x", "illegal", "race"),
    ],
)
def test_races(body: str, decision: str, kind: str | None) -> None:
    verdict = check_races(program(RACE.format(body)))
    assert verdict.decision == decision, verdict
    assert (verdict.witness.kind if verdict.witness else None) == kind


DIVIDED = """
def f(a: Float[Array, "N"]):
    s = 0.0  # S1: x
    for i in parallel(0, N):
        private: t
        with atomic():
            t = s  # S2: x
        {0}
            s = t + a[i]  # S3: x
    return s
"""


def test_an_update_in_two_atomic_halves_loses_updates() -> None:
    verdict = check_races(program(DIVIDED.format("with atomic():")))
    assert verdict.decision == "illegal"
    assert check_races(program(DIVIDED.format("if True:"))).decision == "illegal"
    whole = DIVIDED.replace("        {0}\n", "")
    assert check_races(program(whole)).decision == "legal"


def test_an_atomic_block_does_not_guard_what_runs_in_parallel_inside_it() -> None:
    text = """
def f(a: Float[Array, "M N"]):
    s = 0.0  # S1: x
    for i in parallel(0, M):
        with atomic():
            for j in {0}(0, N):
                s += a[i, j]  # S2: x
    return s
"""
    assert check_races(program(text.format("range"))).decision == "legal"
    verdict = check_races(program(text.format("parallel")))
    assert verdict.decision == "illegal"
    assert verdict.witness is not None and verdict.witness.kind == "race"


def test_a_block_reduction_is_not_there_before_its_phase_ends() -> None:
    text = """
def f(a: Float[Array, "N"], s: Float[Array, "N"], b: Float[Array, "N"]):
    for i in parallel(0, N):
        with reduce("+"):
            s[i] += a[i]  # S1: x
        {0}b[i] = s[i]  # S2: x
"""
    assert check_races(program(text.format(""))).decision == "illegal"
    assert check_races(program(text.format("barrier()\n        "))).decision == "legal"


def test_reassociated_updates_are_certified_as_rounding() -> None:
    verdict = check_races(program(RACE.format(ATOMIC)))
    assert [c.kind for c in verdict.certificates] == ["rounding"]


REDUCTION = program("""
def f(A: Float[Array, "M N"]):
    s = zeros(M)
    for i in range(M):
        for j in range(N):
            s[i] += A[i, j]  # S1: x
    return s
""")


@pytest.mark.parametrize(
    "update, bounds, start, join, legal",
    [
        ("s_p[p] += A[i, j]", "p * 4, min(p * 4 + 4, N)", "0.0", "s[i] += s_p[p]", True),
        ("s_p[p] += A[i, j]", "p * 4, min(p * 4 + 5, N)", "0.0", "s[i] += s_p[p]", False),
        ("s_p[p] += A[i, j]", "p * 4, min(p * 4 + 3, N)", "0.0", "s[i] += s_p[p]", False),
        ("s_p[p] += A[i, j]", "p * 4, min(p * 4 + 4, N)", "1.0", "s[i] += s_p[p]", False),
        ("s_p[p] += A[i, j]", "p * 4, min(p * 4 + 4, N)", "0.0", "s[i] = s_p[p]", False),
        ("s_p[p] += A[i, j]", "p * 4, min(p * 4 + 4, N)", "0.0", "s[i] += 2.0 * s_p[p]", False),
        ("s_p[p] += A[i, j]", "p * 4, min(p * 4 + 4, N)", "0.0", "s[i] -= s_p[p]", False),
        ("s_p[p] -= A[i, j]", "p * 4, min(p * 4 + 4, N)", "0.0", "s[i] += s_p[p]", False),
        ("s_p[0] += A[i, j]", "p * 4, min(p * 4 + 4, N)", "0.0", "s[i] += s_p[p]", True),
        ("s_p[p] += A[i, j]", "p * 4, min(p * 4 + 4, N)", "0.0", "s[i] += s_p[0]", False),
    ],
)
def test_split_reductions(update: str, bounds: str, start: str, join: str, legal: bool) -> None:
    after = program(f"""
def f(A: Float[Array, "M N"]):
    s = zeros(M)
    s_p = empty((N + 3) // 4)
    for i in range(M):
        for p in range((N + 3) // 4):
            s_p[p] = {start}  # S2: x
            for j in range({bounds}):
                {update}  # S1: x
        for p in range((N + 3) // 4):
            {join}  # S3: x
    return s
""")
    images = {"S1": Image("S1", (Var("i"), Var("j")))}
    verdict = check_reduction(REDUCTION, after, images, {"s_p": "s"}, {"s": ("+", 0.0)})
    assert (verdict.decision == "legal") == legal, verdict
    if legal:
        assert {c.kind for c in verdict.certificates} == {"storage", "rounding"}


FIRST = """
def f(A: Float[Array, "N"]):
    t = {0}
    for i in range(N):
        t[i] = t[i] + A[i]  # S1: x
        A[i] = t[i]  # S2: x
"""


@pytest.mark.parametrize("creation", ["ones(N)", "full(N, 2.0)", "zeros(N - 1)", "zeros(N + 1)"])
def test_locals_with_other_first_values_or_extents_are_rejected(creation: str) -> None:
    before, after = program(FIRST.format("zeros(N)")), program(FIRST.format(creation))
    images = same_names(before, after)
    assert check_order(before, after, images).decision != "legal"
    larger = creation == "zeros(N + 1)"
    assert (check_storage(before, after, images).decision == "legal") == larger


def test_a_split_into_too_few_parts_or_from_another_start_is_rejected() -> None:
    text = """
def f(A: Float[Array, "M N"]):
    s = zeros(M)
    s_p = empty({0})
    for i in range(M):
        for p in range((N + 3) // 4):
            s_p[p] = {1}  # S2: x
            for j in range(p * 4, min(p * 4 + 4, N)):
                s_p[p] += A[i, j]  # S1: x
        for p in range((N + 3) // 4):
            s[i] += s_p[p]  # S3: x
    return s
"""
    images = {"S1": Image("S1", (Var("i"), Var("j")))}
    for extent, start, identity, legal in (
        ("(N + 3) // 4", "0.0", 0.0, True),
        ("N // 4", "0.0", 0.0, False),
        ("(N + 3) // 4", "5.0", 5.0, False),
    ):
        after = program(text.format(extent, start))
        verdict = check_reduction(REDUCTION, after, images, {"s_p": "s"}, {"s": ("+", identity)})
        assert (verdict.decision == "legal") == legal, verdict


@pytest.mark.parametrize("name", ["k", "N", "A"])
def test_an_instance_map_over_what_is_no_loop_is_rejected(name: str) -> None:
    before = program(FIRST.format("zeros(N)"))
    images = dict(same_names(before, before))
    images["S1"] = Image("S1", (Var(name),))
    assert check_order(before, before, images).decision == "unknown"
    images["S1"] = Image("S1", (Var("i"),))
    assert check_order(before, before, {**images, "S9": images["S1"]}).decision == "unknown"


PARTS = {
    "write": "    for i in range(N):\n        A[p[i]] = x[i]  # S1: x\n",
    "read": "    for i in range(N):\n        y[i] = A[p[i]]  # S2: x\n",
    "other": "    for i in range(N):\n        A[{}[i]] = z[i]  # S3: x\n",
}


@pytest.mark.parametrize("through", ["p", "q"])
@pytest.mark.parametrize("start", ["write read other", "other write read"])
@pytest.mark.parametrize(
    ("end", "decision"),
    [
        ("write read other", "legal"),
        ("other write read", "legal"),
        ("write other read", "unknown"),
    ],
)
def test_no_other_write_comes_between_a_write_and_its_read(
    through: str, start: str, end: str, decision: str
) -> None:
    """What is accessed only the running program knows; past both the other write may move."""
    head = """
def f(x: Float[Array, "N"], z: Float[Array, "N"], p: Int[Array, "N"], q: Int[Array, "N"], M: int):
    assert all(p[i] != p[j] for i in range(N) for j in range(N) if i != j)
    A = zeros(M); y = zeros(N)
"""
    before, after = (
        program(
            head + "".join(PARTS[part].format(through) for part in order.split()) + "    return y"
        )
        for order in (start, end)
    )
    assert check_order(before, after, same_names(before, after)).decision == decision


EITHER = """
def f(A, N, M):
    assert N < M
    assert N <= M
    for i in {}(0, N):
        A[i] = A[i + M]
"""


def test_of_contracts_that_say_the_same_one_is_named() -> None:
    """Without either the other is enough; without both iterations are in each other's way."""
    assert check_races(program(EITHER.format("parallel"))).assumptions == ("assert N <= M",)
    (facts,) = loop_facts(program(EITHER.format("range")))
    assert facts.memory.decision == "parallel"
    assert facts.memory.assumptions == ("assert N <= M",)


def test_a_legal_parallel_program_names_the_contract_it_leans_on() -> None:
    text = """
def f(A, p: Int[Array, "N"], N):
    {}
    for i in parallel(0, N):
        A[p[i]] = 1.0 * i
"""
    stated = "assert all(p[i] != p[j] for i in range(0, N) for j in range(0, i))"
    assert check_races(program(text.format(stated))).assumptions == (stated,)
    assert check_races(program(text.format("assert N > 1"))).decision != "legal"
