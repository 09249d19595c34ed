"""Hoist, privatize, expand, promote: the rewritten listing, its numbers, and the refusals."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import pytest

from looptrans.frontend.placement import annotated_placement
from looptrans.ir.listing import index_text, listing
from looptrans.ir.program import Program
from looptrans.ir.step import Image, Step
from looptrans.ir.value import Create
from looptrans.ir.verdict import Seen
from looptrans.transforms.judging.trial import tried_on
from looptrans.transforms.moved.anew import with_arrays_made_once
from looptrans.transforms.steps.expand import expand
from looptrans.transforms.steps.hoist import hoist
from looptrans.transforms.steps.parallelize import parallelize
from looptrans.transforms.steps.privatize import privatize
from looptrans.transforms.steps.promote import promote
from tests import references
from tests.replay import replay
from tests.steps import agrees, code, computes, lines, read, refusal, spec

INVARIANT = """
def f(x: Float[Array, "N"], y: Float[Array, "M N"], a):
    for i in range(M):
        for j in range(N):
            t = a * i
            y[i, j] = x[j] * t
"""


def facts(step: Step) -> tuple[str, str, str, str]:
    verdict = step.verdict
    witness = verdict.witness
    assert witness is not None
    return verdict.decision, witness.kind, f"{verdict.source} -> {verdict.sink}", verdict.array


# Hoist


def test_hoist_moves_a_statement_to_before_the_loop() -> None:
    step = hoist(read(INVARIANT), "S1", "j")
    assert code(step) == lines("""
        for i in range(0, M):
            t = a * i
            for j in range(0, N):
                y[i, j] = x[j] * t
        """)
    assert step.name == "hoist(S1, j)"
    assert step.images["S1"].indices[1] is None
    assert agrees(step)


def test_a_hoisted_statement_is_guarded_where_the_loop_may_be_empty() -> None:
    step = hoist(
        read("""
        def f(x: Float[Array, "N"], a):
            t = 1.0
            for i in range(2, N, 2):
                t = a * 2.0
                x[i] = x[i] * t
            return t
        """),
        "S2",
        "i",
    )
    assert code(step) == lines("""
        t = 1.0
        if 2 < N:
            t = a * 2.0
        for i in range(2, N, 2):
            x[i] = x[i] * t
        return t
        """)
    assert agrees(step)


def test_no_guard_where_the_loop_plainly_runs() -> None:
    step = hoist(
        read(
            "def f(a):\n    t = 0.0\n    for i in range(3, 0, -1):\n        t = a\n    return t\n"
        ),
        "S2",
        "i",
    )
    assert code(step) == "t = 0.0\nt = a\nreturn t"
    assert agrees(step)


def test_a_guard_that_does_not_depend_on_the_loop_comes_along() -> None:
    program = read("""
        def f(x: Float[Array, "N"], y: Float[Array, "M N"], a):
            for i in range(M):
                for j in range(N):
                    if i > 0:
                        t = a * i
                        y[i, j] = x[j] * t
        """)
    step = hoist(program, "S1", "j")
    assert code(step) == lines("""
        for i in range(0, M):
            if i > 0:
                t = a * i
            for j in range(0, N):
                if i > 0:
                    y[i, j] = x[j] * t
        """)
    assert agrees(step)


def test_a_guard_that_is_empty_afterwards_goes() -> None:
    program = read("""
        def f(y: Float[Array, "M N"], a):
            t = 0.0
            for i in range(M):
                for j in range(N):
                    if i <= 1:
                        t = a * i
                    else:
                        y[i, j] = t
            return t
        """)
    step = hoist(program, "S2", "j")
    assert code(step) == lines("""
        t = 0.0
        for i in range(0, M):
            if 0 < N and i <= 1:
                t = a * i
            for j in range(0, N):
                if not i <= 1:
                    y[i, j] = t
        return t
        """)
    assert agrees(step)


def test_a_size_that_only_the_guard_mentions_is_an_argument() -> None:
    step = hoist(read("def f(D):\n    for j in range(N):\n        D[0] = 1.0\n"), "S1", "j")
    assert listing(step.after).startswith("def f(D, N: int):\n    if 0 < N:\n")
    assert read(listing(step.after)) == step.after


@pytest.mark.parametrize("name", ["flash_forward", "flash_forward_as_printed"])
def test_hoisting_the_old_maximum_is_refused_because_of_what_writes_it(name: str) -> None:
    step = hoist(annotated_placement(spec(name)), "S3", "j")
    assert facts(step) == ("illegal", "order", "S12 -> S3", "m")
    dependence = step.verdict.dependence
    assert dependence is not None
    assert (dependence.kind, dependence.carried_by) == ("flow", "j")
    assert step.verdict.help == "promote(m, j) keeps the element in a local instead"


def test_a_statement_may_be_hoisted_loop_by_loop() -> None:
    program = spec("flash_forward_as_printed")
    first = hoist(program, "S1", "d")
    second = hoist(first.after, "S1", "j")
    assert agrees(first)
    assert agrees(second)
    head = "    q_i = Q[i]\n    for j in range(0, N):\n        for d in range(0, D):\n"
    assert head in code(second)


ROWS = """
    def f(A, B, C, m: Float[Array, "M+1"], n: Int[Array, "M"], M):
        for i in range(M):
            for j in range(n[i]):
                t = B[i] * 2.0  # S1: the same in the whole row
                C[i, j] = t * A[i, j]  # S2
                m[i] = max(m[i], A[i, j])  # S3
    """


def test_what_rows_of_given_lengths_repeat_is_moved_and_kept_in_one_row_at_a_time() -> None:
    step = hoist(read(ROWS), "S1", "j")
    assert agrees(step)
    assert "        if 0 < n[i]:\n            t = B[i] * 2.0" in listing(step.after)
    step = promote(read(ROWS), "m", "j")
    assert agrees(step)
    assert "        m_i = m[i]\n" in listing(step.after)


@pytest.mark.parametrize(
    ("old", "new", "made"),
    [
        ("C[i, j] = t * A[i, j]", "B[i] = t * A[i, j]", lambda p: hoist(p, "S1", "j")),
        ("C[i, j] = t * A[i, j]", "C[i, j] = m[n[i]]", lambda p: promote(p, "m", "j")),
    ],
    ids=["changed in the row", "read as well"],
)
def test_what_changes_within_a_row_of_a_given_length_is_not(
    old: str, new: str, made: Callable[[Program], Step]
) -> None:
    step = made(read(ROWS.replace(old, new)))
    assert step.verdict.decision == "illegal"
    replay(step)


def test_hoisting_out_of_a_loop_that_makes_the_name_private() -> None:
    program = read(INVARIANT)
    step = privatize(program, "j", "t")
    step = hoist(step.after, "S1", "j")
    assert "private" not in code(step)
    assert agrees(step)
    inner = parallelize(parallelize(privatize(program, "j", "t").after, "j").after, "i").after
    step = hoist(inner, "S1", "j")
    assert code(step) == lines("""
        for i in parallel(0, M):
            private: t
            t = a * i
            for j in parallel(0, N):
                y[i, j] = x[j] * t
        """)
    assert agrees(step)


def test_what_cannot_be_hoisted() -> None:
    printed = spec("flash_forward_as_printed")
    assert refusal(hoist, printed, "S3", "j") == lines("""
        error[E043]: S3 stands in the loop d, inside j
          hoisting moves a statement across one loop and guards on loop variables and sizes
          help: hoist(S3, d) first
        """)
    program = read("""
        def f(A: Float[Array, "M N"], x: Float[Array, "N"]):
            for i in range(M):
                for j in range(N):
                    k = j + 1
                    t = 2.0 * x[k]
                    if x[j] > 0.0:
                        s = t * i
                    A[i, j] = s
                x[0] = 1.0
        """)
    assert refusal(hoist, program, "S1", "j") == lines("""
        error[E043]: S1 depends on j, and so differs from one iteration of j to the next
          k = j + 1 has no meaning outside the loop
          help: hoist what does not mention j
        """)
    assert "S2 depends on j" in refusal(hoist, program, "S2", "j")
    assert refusal(hoist, program, "S3", "j") == lines("""
        error[E043]: S3 stands under G1, a guard that depends on data, inside j
          hoisting moves a statement across one loop and guards on loop variables and sizes
          help: write a ternary, x if … else …, or put the guard around the loop
        """)
    assert refusal(hoist, program, "G1", "j") == lines("""
        error[E046]: G1 is the condition of a guard, not a statement
          only an assignment can be hoisted
          help: assign the condition to a name, and hoist that out of j
        """)
    assert refusal(hoist, program, "S5", "j") == lines("""
        error[E046]: S5 does not stand in the loop j
          it stands in i
          help: say hoist(S5, i)
        """)


# Privatize

TEMPORARY = """
    def f(x: Float[Array, "N"], y: Float[Array, "N"]):
        for j in range(N):
            t = 2.0 * x[j]
            u = t + 1.0
            y[j] = t * u
"""


def test_privatize_all_that_can_be() -> None:
    step = privatize(read(TEMPORARY), "j")
    assert code(step) == lines("""
        for j in range(0, N):
            private: (t, u)
            t = 2.0 * x[j]
            u = t + 1.0
            y[j] = t * u
        """)
    assert step.name == "privatize(j)"
    assert agrees(step)


def test_privatize_in_several_steps() -> None:
    first = privatize(read(TEMPORARY), "j", "u")
    second = privatize(first.after, "j", "t")
    assert "private: u\n" in code(first)
    assert "private: (t, u)\n" in code(second)
    assert agrees(second)


def test_privatize_finds_what_a_sequential_loop_shares() -> None:
    step = privatize(spec("flash_forward"), "j")
    private = "private: (k_j, m_i, l_i, S_ij, m_ij, l_ij, o_id, v_jd, o_ijd)"
    assert private in code(step)
    assert agrees(step)


@pytest.mark.parametrize(
    ("loop", "name", "ends"),
    [("j", "q_i", "S1 -> S5"), ("d", "m_i", "S3 -> S10")],
)
def test_values_that_flow_into_an_iteration_are_no_private_ones(
    loop: str, name: str, ends: str
) -> None:
    step = privatize(spec("flash_forward"), loop, name)
    assert facts(step) == ("illegal", "storage", ends, name)
    assert step.verdict.now == Seen(None)


def test_values_that_flow_between_iterations_are_no_private_ones() -> None:
    program = read("""
        def f(x: Float[Array, "N"]):
            for j in range(N):
                if j == 0:
                    s = 0.0
                s = s + x[j]
                x[j] = s
        """)
    assert facts(privatize(program, "j", "s")) == ("illegal", "storage", "S2 -> S2", "s")


def test_values_that_flow_out_are_no_private_ones() -> None:
    program = read("""
        def f(x: Float[Array, "N"], y: Float[Array, "1"]):
            t = 0.0
            for j in range(N):
                t = x[j]
            y[0] = t
        """)
    assert facts(privatize(program, "j", "t")) == ("illegal", "storage", "S2 -> S3", "t")


def test_copies_have_a_name_of_their_own_where_another_use_has_the_name() -> None:
    program = read("""
        def f(x: Float[Array, "M N"], y: Float[Array, "M N"]):
            r = zeros(N)
            top = -inf
            for j in range(N):
                r[j] = x[0, j]
            for i in range(M):
                top = -inf
                for j in range(N):
                    top = max(top, x[i, j])
                    r[j] = 2.0 * x[i, j]
                for j in range(N):
                    y[i, j] = r[N - 1 - j] - top
        """)
    inner = privatize(program, "j@S4", "top")
    assert inner.verdict.decision == "illegal"
    step = privatize(program, "i")
    assert step.name == "privatize(i)"
    assert code(step) == lines("""
        r = zeros(N)
        r1 = zeros(N)
        top = -inf
        for j in range(0, N):
            r[j] = x[0, j]
        for i in range(0, M):
            private: (r1, top1)
            top1 = -inf
            for j in range(0, N):
                top1 = max(top1, x[i, j])
                r1[j] = 2.0 * x[i, j]
            for j in range(0, N):
                y[i, j] = r1[N - 1 - j] - top1
        """)
    assert agrees(step) and agrees(parallelize(step.after, "i"))


def test_the_other_use_of_a_name_may_read_what_it_was_created_with() -> None:
    program = read("""
        def f(x: Float[Array, "N"], y: Float[Array, "N"], z: Float[Array, "N"]):
            t = zeros(2)
            for i in range(N):
                t[0] = 2.0 * x[i]
                z[i] = t[0] + t[1]
            for j in range(N):
                t[0] = y[j] + 1.0
                y[j] = t[0] * t[0]
        """)
    step = privatize(program, "j")
    assert step.verdict.decision == "legal"
    assert "private: t1\n" in code(step)
    assert agrees(step)
    assert facts(privatize(program, "i", "t"))[0] == "illegal"


def test_a_name_used_elsewhere_is_told_apart_where_arrays_say_what_runs() -> None:
    program = read("""
        def f(x: Float[Array, "N L"], y: Float[Array, "N L"], n: Int[Array, "N", "0:L+1"]):
            for i in range(N):
                for j in range(n[i]):
                    u = x[i, j]
                    t = u
                    y[i, j] = t
            for i in range(N):
                t = y[i, 0]
                x[i, 0] = t
        """)
    step = privatize(program, "j")
    assert step.verdict.decision == "legal"
    assert "private: (u, t1)\n" in code(step) and "y[i, j] = t1\n" in code(step)
    sizes = [{"N": 3, "L": 2}]
    assert agrees(step, sizes) and agrees(parallelize(step.after, "j"), sizes)


def test_a_name_that_somebody_else_reads_is_not_told_apart() -> None:
    program = read("""
        def f(x: Float[Array, "N L"], y: Float[Array, "N"], n: Int[Array, "N", "0:L+1"]):
            t = 1.0
            for i in range(N):
                for j in range(n[i]):
                    t = x[i, j]
                y[i] = t
        """)
    assert privatize(program, "j", "t").verdict.decision == "illegal"


def test_what_cannot_be_privatized() -> None:
    program = read("""
        def f(x: Float[Array, "N"], y: Float[Array, "N"], a):
            s = 0.0
            for i in range(N):
                t = x[i]
                y[i] = t
                s = s + t
            for k in range(N):
                t = y[k]
                x[k] = t * a
            return s
        """)
    assert refusal(privatize, program, "i", "x") == lines("""
        error[E043]: x comes from outside, and cannot be private
          a private copy starts without a value and ends with its iteration
          help: use a local in the loop, and copy it to x
        """)
    one = read("def f(x, y, N):\n    for i in range(N):\n        x[0] = x[0] + y[i]\n")
    assert refusal(privatize, one, "i", "x").endswith(", promote(x, i)")
    assert promote(one, "x", "i").verdict.decision == "legal"
    assert "s is returned, and cannot be private" in refusal(privatize, program, "i", "s")
    assert "there is no array or scalar z" in refusal(privatize, program, "i", "z")
    assert "x comes from outside" in refusal(privatize, program, "k", "x")
    other = read("def f(x, y, N):\n    for i in range(N):\n        y[i] = x[i]\n")
    assert refusal(privatize, other, "i") == lines("""
        error[E059]: there is nothing to privatize in the loop i
          no two iterations touch a cell that one of them writes
          help: parallelize(i)
        """)
    assert "s, whose values are needed outside an iteration" in refusal(
        privatize, read("for i in range(N):\n    if i == 0: s = 1.0\n    s = s * x[i]\n"), "i"
    )
    once = privatize(read(TEMPORARY), "j", "t").after
    assert "t is private to the iterations of j already" in refusal(privatize, once, "j", "t")
    assert "q_i is not used in the loop d" in refusal(privatize, spec("flash_forward"), "d", "q_i")
    unread = "s = 1.0\nfor i in range(N):\n    if i < i:\n        y[i] = s\n"
    assert "s is set nowhere in the loop i" in refusal(privatize, read(unread), "i", "s")


# Expand


def test_expand_a_scalar() -> None:
    step = expand(read(TEMPORARY), "t", "j")
    assert code(step) == lines("""
        t = empty(N)
        for j in range(0, N):
            t[j] = 2.0 * x[j]
            u = t[j] + 1.0
            y[j] = t[j] * u
        """)
    declaration = step.after.body[0]
    assert getattr(declaration, "creation", None) == Create("empty", step.after.array("t").shape)  # type: ignore[arg-type]
    assert agrees(step)


def test_the_outermost_loop_comes_first() -> None:
    step = expand(spec("flash_forward"), "o_id", "d", "i", "j")
    assert "o_id = empty((M, N, D))" in code(step)
    assert "o_id[i, j, d] = O[i, d]" in code(step)
    assert agrees(step)


def test_expand_a_row() -> None:
    step = expand(spec("flash_forward"), "q_i", "i")
    assert "q_i = empty((M, E))" in code(step)
    assert "q_i[i] = Q[i]" in code(step)
    assert "S_ij = q_i[i] @ k_j" in code(step)
    assert agrees(step)


def test_expand_an_array_that_is_created() -> None:
    program = read("""
        def f(A: Float[Array, "M N"]):
            row = zeros(N)
            for i in range(M):
                for j in range(N):
                    row[j] = A[i, j] * 2.0
                for j in range(N):
                    A[i, j] = row[N - 1 - j]
        """)
    step = expand(program, "row", "i")
    assert code(step) == lines("""
        row = zeros((M, N))
        for i in range(0, M):
            for j in range(0, N):
                row[i, j] = A[i, j] * 2.0
            for j in range(0, N):
                A[i, j] = row[i, N - 1 - j]
        """)
    assert agrees(step)


@pytest.mark.parametrize(
    ("loop", "shape", "subscript"),
    [
        ("range(i, i + 3)", "max(0, N + 2)", "j"),
        ("range(N - 1, i - 1, -1)", "max(0, N)", "j"),
        ("range(i - 2, 2 * i)", "max(0, N + 1)", "j - i + 2"),
        ("range(5, -i, -2)", "max(0, N + 4)", "j + i - 1"),
        ("range(min(i, 4), 9)", "9", "j"),
        ("range(i // 2, i)", "max(0, N - 1)", "j"),
    ],
)
def test_the_extent_holds_all_iterations(loop: str, shape: str, subscript: str) -> None:
    program = read(f"""
        def f(y: Float[Array, "100 100"], N: int):
            for i in range(N):
                for j in {loop}:
                    t = 2.0 * i
                    y[i, j + 50] = t
        """)
    step = expand(program, "t", "j")
    assert code(step).startswith(f"t = empty({shape})\n")
    assert f"t[{subscript}] = 2.0 * i\n" in code(step)
    assert agrees(step, [{"N": n} for n in (0, 1, 2, 5, 9)])


def test_integers_and_booleans_keep_their_kind() -> None:
    program = read("""
        def f(x: Float[Array, "N"], y: Float[Array, "N"]):
            for j in range(N):
                n = j * j
                b = x[j] > 0.0
                y[j] = n // 2 if b else 1.0
        """)
    first = expand(program, "n", "j")
    second = expand(first.after, "b", "j")
    assert code(second).startswith("n = empty(N, dtype=int)\nb = empty(N, dtype=bool)\n")
    assert agrees(second)


def test_expansion_takes_the_place_of_private() -> None:
    step = privatize(read(TEMPORARY), "j")
    step = parallelize(step.after, "j")
    step = expand(step.after, "t", "j")
    assert "    private: u\n" in code(step)
    assert agrees(step)


def test_values_between_iterations_forbid_expansion() -> None:
    program = read("""
        def f(x: Float[Array, "N"]):
            for j in range(N):
                if j == 0:
                    s = 0.0
                s = s + x[j]
                x[j] = s
        """)
    assert facts(expand(program, "s", "j")) == ("illegal", "storage", "S2 -> S2", "s")


LENGTHS = """
def f(x: Float[Array, "B N D"], n: Int[Array, "B", "0:N+1"]):
    y = zeros((B, D))
    for b in range(B):
        for d in range(D):
            t = 0.0
            for j in range(n[b]):
                t = t + x[b, j, d]
            y[b, d] = t * t
    return y
"""


def test_expand_beside_lengths_that_are_read_from_memory() -> None:
    step = expand(read(LENGTHS), "t", "d")
    assert step.verdict.decision == "legal"
    assert agrees(step)
    kept = expand(read(LENGTHS.replace("t = 0.0", "t = 0.0 if d > 0 else t")), "t", "d")
    assert kept.verdict.decision == "unknown"
    assert kept.verdict.reason == "it cannot be shown that each iteration sets its own t"


def test_a_row_made_for_each_packed_row_is_made_once_for_as_many_as_are_declared() -> None:
    found = with_arrays_made_once(
        read("""
        def f(x: Float[Array, "T D"], cu: Int[Array, "B+1", "0:T+1"]):
            y = zeros((T, D))
            for b in range(B):
                for i in range(cu[b], cu[b + 1]):
                    row = zeros(D)
                    for d in range(D):
                        row[d] = row[d] + x[i, d]
                    for d in range(D):
                        y[i, d] = row[d]
            return y
        """)
    )
    assert found is not None
    shape = [index_text(e) for e in found.program.array("row").shape if e]
    assert shape == ["max(0, B)", "T", "D"]


def test_expanded_beside_lengths_a_local_may_be_shared_by_parallel_iterations() -> None:
    text = LENGTHS.replace("for b in range", "for b in parallel")
    shared = text.replace("for d in range(D):", "for d in range(D):\n            private: t")
    step = expand(read(shared), "t", "d")
    assert (step.verdict.decision, step.verdict.witness and step.verdict.witness.kind) == (
        "illegal",
        "race",
    )
    own = text.replace("for b in parallel(B):", "for b in parallel(B):\n        private: t")
    assert expand(read(own), "t", "d").verdict.decision == "legal"


def test_what_cannot_be_expanded() -> None:
    flash = spec("flash_forward")
    assert refusal(expand, flash, "m_i", "d") == lines("""
        error[E043]: cannot expand m_i over d: S3 uses it outside the loop
          outside d there is no iteration whose element that could be
          help: name loops that are around all uses of m_i
        """)
    assert refusal(expand, flash, "m", "i") == lines("""
        error[E043]: cannot expand m: it is returned
          with another dimension it would be another array to the caller
          help: use a local, and copy it to m at the end
        """)
    assert "it comes from outside" in refusal(expand, flash, "Q", "i")
    assert "a loop is named twice" in refusal(expand, flash, "m_i", "j", "j")
    program = read("""
        def f(x, y, N, n: Int[Array, "N"]):
            for i in range(N):
                k = i + 1
                y[i] = x[k]
                for j in range(n[i]):
                    t = 0
                    t = t + x[j]
                    u = t
                    y[j] = u
        """)
    assert refusal(expand, program, "k", "i") == lines("""
        error[E043]: cannot expand k: k stands in a bound, guard or subscript
          only an integer scalar may stand there, or an array that nothing writes
          help: use another name for what is not an index, or leave k as it is
        """)
    assert refusal(expand, program, "t", "i") == lines("""
        error[E043]: cannot expand t: S3 stores an integer into t, which holds floats
          an array holds numbers of one kind, and a scalar keeps the kind of its value
          help: write 0.0 for 0, or float(…) around the value
        """)
    assert refusal(expand, program, "u", "j") == lines("""
        error[E057]: how far the loop j runs is not known beforehand
          the new dimension needs an extent that the sizes alone decide
          help: expand over another loop, or give the loop a bound of sizes and a guard
        """)
    outside = expand(parallelize(read(PRIVATE_OUTSIDE), "i").after, "t", "i")
    assert outside.verdict.decision == "legal"
    assert "S1 uses it outside" in refusal(expand, read(PRIVATE_OUTSIDE), "t", "j")
    elsewhere = """
        def f(b, c, N):
            for i in range(N):
                b[i] = 1.0
            for k in range(N):
                private: t
                t = b[k]
                c[k] = t
        """
    assert "S2 uses it outside" in refusal(expand, read(elsewhere), "t", "i")


PRIVATE_OUTSIDE = """
    def f(B: Float[Array, "M"], C: Float[Array, "M N"]):
        for i in range(0, M):
            private: t
            t = B[i] * 2.0
            for j in range(0, N):
                C[i, j] = t + 1.0
"""


# Promote


def test_promote_the_running_maximum() -> None:
    step = promote(spec("flash_forward"), "m", "j")
    assert code(step) == lines("""
        O = zeros((M, D))
        m = full(M, -inf)
        l = zeros(M)
        for i in range(0, M):
            q_i = Q[i]
            m_i = m[i]
            for j in range(0, N):
                k_j = K[j]
                l_i = l[i]
                S_ij = q_i @ k_j
                m_ij = max(m_i, S_ij)
                l_ij = l_i * exp(m_i - m_ij) + exp(S_ij - m_ij)
                for d in range(0, D):
                    o_id = O[i, d]
                    v_jd = V[j, d]
                    o_ijd = o_id * l_i * exp(m_i - m_ij) / l_ij + exp(S_ij - m_ij) * v_jd / l_ij
                    O[i, d] = o_ijd
                m_i = m_ij
                l[i] = l_ij
            m[i] = m_i
        return O, m, l
        """)
    assert "S3" not in step.images
    assert agrees(step)


def test_a_number_stored_into_a_row_that_is_kept_is_stored_into_all_of_it() -> None:
    program = read("""
        def f(C: Float[Array, "N M"], x: Float[Array, "N"]):
            for i in range(0, N):
                C[0] = x[i]
                C[0] += x[i]
        """)
    step = promote(program, "C", "i")
    assert "    C_0[:] = x[i]\n    C_0 += x[i]\n" in code(step)
    assert agrees(step)


def test_promote_all_of_the_state() -> None:
    program: Program = spec("flash_forward")
    for array in ("m", "l", "O"):
        step = promote(program, array, "j")
        assert agrees(step)
        program = step.after
    assert code(step).startswith(
        "O = zeros((M, D))\nm = full(M, -inf)\nl = zeros(M)\nO_i = empty(D)\n"
    )
    load = "    for d in range(0, D):\n        O_i[d] = O[i, d]\n    for j in"
    store = "    for d in range(0, D):\n        O[i, d] = O_i[d]\n    l[i] = l_i\n    m[i] = m_i\n"
    assert load in code(step)
    assert store in code(step)
    assert computes(program, references.attention, {"M": 3, "N": 5, "E": 4, "D": 2})


def test_a_fresh_local_where_nothing_copies_the_element() -> None:
    step = promote(spec("attention_naive"), "l", "j@S3")
    assert "    l_i = l[i]\n    for j in" in code(step)
    assert "        l_i = l_i + exp(S[i, j] - m[i])\n    l[i] = l_i\n" in code(step)
    assert agrees(step)


def test_a_temporary_that_keeps_the_old_value_stays() -> None:
    program = read("""
        def f(A: Float[Array, "M"], B: Float[Array, "N"]):
            for i in range(M):
                for j in range(N):
                    t = A[i]
                    A[i] = B[j]
                    B[j] = t
        """)
    step = promote(program, "A", "j")
    assert code(step) == lines("""
        for i in range(0, M):
            A_i = A[i]
            for j in range(0, N):
                t = A_i
                A_i = B[j]
                B[j] = t
            A[i] = A_i
        """)
    assert agrees(step)


def test_what_is_only_read_is_not_stored() -> None:
    step = promote(spec("attention_naive"), "S", "d")
    assert "        S_ij = S[i, j]\n        for d in" in code(step)
    assert "S[i, j] = S_ij" not in code(step)
    assert agrees(step)


def test_what_is_only_written_is_not_loaded() -> None:
    program = read("""
        def f(A: Float[Array, "M"], B: Float[Array, "N"]):
            for i in range(M):
                for j in range(N):
                    A[i] = B[j]
        """)
    step = promote(program, "A", "j")
    assert code(step) == lines("""
        for i in range(0, M):
            for j in range(0, N):
                A_i = B[j]
            if 0 < N:
                A[i] = A_i
        """)
    assert agrees(step)


def test_a_load_that_may_leave_the_array_is_guarded() -> None:
    program = read("""
        def f(A: Float[Array, "N"], B: Float[Array, "N"]):
            for i in range(N):
                for j in range(i + 1, N):
                    A[i + 1] = A[i + 1] + B[j]
        """)
    step = promote(program, "A", "j")
    assert code(step) == lines("""
        for i in range(0, N):
            if i + 1 < N:
                A_local = A[i + 1]
            for j in range(i + 1, N):
                A_local = A_local + B[j]
            if i + 1 < N:
                A[i + 1] = A_local
        """)
    assert agrees(step)


def test_other_elements_stay_where_they_are() -> None:
    text = """
        def f(A: Float[Array, "N+1"]):
            for i in range(1, N + 1):
                for j in range(N):
                    A[i] = A[i] + A[{}]
        """
    step = promote(read(text.format("i - 1")), "A", "j")
    assert "A_i = A_i + A[i - 1]" in code(step)
    assert agrees(step)
    clash = promote(read(text.format("j")), "A", "j")
    assert facts(clash) == ("illegal", "storage", "S1 -> S1", "A")


def test_a_part_that_inner_loops_run_through() -> None:
    program = read("""
        def f(A: Float[Array, "N"], B: Float[Array, "N"]):
            for j in range(N):
                A[j // 2] = 1.0
                for d in range(j):
                    A[d] = A[d] + B[j]
                B[j] = sum(A[e] for e in range(N))
        """)
    step = promote(program, "A", "j")
    assert code(step) == lines("""
        A_local = empty(N)
        for d in range(0, N):
            A_local[d] = A[d]
        for j in range(0, N):
            A_local[j // 2] = 1.0
            for d in range(0, j):
                A_local[d] = A_local[d] + B[j]
            B[j] = sum(A_local[e] for e in range(0, N))
        for d in range(0, N):
            A[d] = A_local[d]
        """)
    assert agrees(step)


def test_a_local_inside_a_parallel_loop_is_private_to_it() -> None:
    program = parallelize(spec("attention_naive"), "i").after
    step = promote(program, "O", "j@S4")
    assert "for i in parallel(0, M):\n    private: O_i\n" in code(step)
    assert agrees(step)
    flash = parallelize(privatize(spec("flash_forward"), "i").after, "i").after
    flash = privatize(flash, "j", "m_i", "l_i").after
    step = promote(flash, "m", "j")
    assert "        private: l_i\n" in code(step)
    assert agrees(step)


def test_what_cannot_be_promoted() -> None:
    flash = spec("flash_forward")
    assert refusal(promote, flash, "m", "i") == lines("""
        error[E043]: cannot keep m in a local across i: it is another element in each iteration
          m[i] changes with i
          help: promote across a loop whose variable is not in the subscripts
        """)
    assert "the loop j does not access Q" in refusal(promote, flash, "Q", "j")
    assert "m_i is a scalar already" in refusal(promote, flash, "m_i", "j")
    program = read("""
        def f(A, B, k: Int[Array, "N"], N):
            for i in range(N):
                for j in range(N):
                    A[i] = 1
                    for d in range(k[i]):
                        B[i, k[d]] = 2.0 * k[i]
                    if B[i, 0] > 0.0:
                        A[i] = A[i] + 1.0
        """)
    assert refusal(promote, program, "A", "j") == lines("""
        error[E043]: cannot keep A in a local across j: S1 stores an integer into A, which holds \
floats
          an array holds numbers of one kind, and a scalar keeps the kind of its value
          help: write 0.0 for 0, or float(…) around the value
        """)
    assert "k stands in a bound, guard or subscript" in refusal(promote, program, "k", "j")
    rows = read("""
        def f(A, B, N):
            for j in range(N):
                for d in range(j):
                    A[d] = A[d] + B[j]
        """)
    assert refusal(promote, rows, "A", "j") == lines("""
        error[E043]: cannot keep A in a local: the extent of its dimension 0 is not known
          A[d] is a part of it, which is loaded before the loop
          help: create A with its shape, or state the shape of the argument, \
A: Float[Array, "M N"]
        """)
    perhaps = read("""
        def f(A, B, N):
            for i in range(N):
                for j in range(N):
                    if B[j] > 0.0:
                        A[i] = B[j]
        """)
    assert "the loop need not access it" in refusal(promote, perhaps, "A", "j")


def test_the_images_say_what_stands_for_what() -> None:
    step = promote(spec("attention_naive"), "l", "j@S3")
    assert step.before == spec("attention_naive")
    assert set(step.images) == {"S1", "S2", "S3", "S4"}
    step = expand(read(TEMPORARY), "t", "j")
    assert all(isinstance(image, Image) for image in step.images.values())
    assert set(step.images) == {"S1", "S2", "S3"}


def test_first_values_are_not_private_where_nothing_writes() -> None:
    step = privatize(
        read("""
        def f(R, n: Int[Array, "R"], x, y):
            w = ones(R)
            for r in range(R):
                for p in range(n[r]):
                    y[r, p] = w[r] * x[p]
        """),
        "r",
        "w",
    )
    assert step.verdict.decision == "illegal"
    replay(step)


def test_an_element_for_each_iteration_of_a_loop_that_may_have_none() -> None:
    program = read("""
        def f(B, R, n: Int[Array, "M"], v, y):
            for b in range(B):
                for r in range(R):
                    s = 0.0
                    for p in range(n[b]):
                        s += v[r, p]
                    y[b, r] = s
        """)
    step = expand(program, "s", "r")
    assert "s = empty(max(0, R))" in listing(step.after)
    assert agrees(step)


def test_what_a_step_is_tried_on_has_short_loops() -> None:
    """Seven sizes of 4 to 10 would be 604800 iterations, each of them run many times."""
    text = """
def f(X: Float[Array, "A B C D E F G"], n: Int[Array, "A"]):
    Y = zeros(A)
    for a in range(0, A):
        for b in range(0, n[a]):
            Y[a] = Y[a] + X[a, b, 0, 0, 0, 0, 0]
    return Y
"""
    inputs, _, _ = next(tried_on(read(text), None))
    assert prod(inputs.integers.values()) <= 3**7
    inputs, _, _ = next(tried_on(read("def f(x: Float[Array, 'N']):\n    x[0] = 1.0\n"), None))
    assert inputs.integers == {"N": 4}
    blocks = """
def f(X: Float[Array, "A*16 B*16 C D"], n: Int[Array, "A"]):
    Y = zeros(A * 16)
    for a in range(A):
        for r in range(16):
            for b in range(n[a]):
                for c in range(16):
                    Y[a * 16 + r] += X[a * 16 + r, b * 16 + c, 0, 0]
    return Y
"""
    inputs, _, _ = next(tried_on(read(blocks), None))
    assert prod(inputs.integers.values()) <= 3**4
    # Few contents of the usual sizes where these are many, and all of them of small ones.
    five = """
def f(X: Float[Array, "A B C D E"]):
    for a in range(A):
        X[a, 0, 0, 0, 0] = 1.0
"""
    sizes = [prod(inputs.integers.values()) for inputs, _, _ in tried_on(read(five), None)]
    assert sizes == [4 * 5 * 6 * 7 * 8] * 2 + [2 * 3 * 2 * 3 * 2] * 8


@pytest.mark.parametrize("bounds", ["K - 1, -1, -1", "1, K", "1, K, 2", "K - 1, 0, -2"])
def test_a_local_is_expanded_over_any_loop_within_its_extent_beside_opaque_terms(
    bounds: str,
) -> None:
    program = read(f"""
        def f(Z: Float[Array, "K"], W: Float[Array, "K"], t: Int[Array, "N", "0:N"], K, N):
            for n in range(N):
                for k in range({bounds}):
                    u = W[k] - 2.0
                    Z[k] = Z[k] * u if t[n] != k else 1.0
            return Z
        """)
    assert agrees(expand(program, "u", "k"))
