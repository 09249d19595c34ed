"""Parallel loops, turns, phases, block reductions and splits: text, numbers, races, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from looptrans.analysis.api import check_reduction as judge
from looptrans.executor import RaceLog, execute_on, prepare
from looptrans.ir.operator import LEFT, OPERATORS, RIGHT, Operator
from looptrans.ir.program import Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.step import Step
from looptrans.ir.value import Binary, Call
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import placed
from looptrans.transforms.editing.errors import TransformError
from looptrans.transforms.judging.check import check_races
from looptrans.transforms.steps.block_reduce import block_reduce
from looptrans.transforms.steps.ordered_atomics import ordered_atomics
from looptrans.transforms.steps.parallelize import parallelize
from looptrans.transforms.steps.phased_atomics import phased_atomics
from looptrans.transforms.steps.privatize import privatize
from looptrans.transforms.steps.promote import promote
from looptrans.transforms.steps.reverse import reverse
from looptrans.transforms.steps.split import split
from tests import references
from tests.replay import replay
from tests.steps import agrees, code, computes, lines, read, refusal, spec

SIZES = {"M": 3, "N": 5, "E": 4, "D": 2}
THREE = ("j@S2", "j@S3", "j@S4")


def facts(step: Step) -> tuple[str, str, str, str]:
    witness = step.verdict.witness
    assert witness is not None
    verdict = step.verdict
    return verdict.decision, witness.kind, f"{verdict.source} -> {verdict.sink}", verdict.array


def laws(step: Step, kind: str) -> list[str]:
    return [c.law for c in step.verdict.certificates if c.kind == kind]


# Parallelize


def test_independent_iterations() -> None:
    step = parallelize(spec("attention_naive"), "i")
    assert "for i in parallel(0, M):\n" in code(step)
    assert step.name == "parallelize(i)"
    assert agrees(step)


def test_a_shared_temporary_is_a_race() -> None:
    step = parallelize(spec("flash_forward"), "i")
    assert facts(step) == ("illegal", "race", "S1 -> S5", "q_i")
    assert step.verdict.help == "privatize(i) first"
    step = parallelize(privatize(spec("flash_forward"), "i").after, "i")
    assert agrees(step)


@pytest.mark.parametrize("element", ["p[i] + i", "p[i]"])
def test_a_race_that_a_run_shows_names_the_cell_both_touch(element: str) -> None:
    text = """
        def f(B: Float[Array, "M+4"], p: Int[Array, "M", "0:3"], M):
            for i in range(M):
                B[{}] += B[3]
        """
    step = parallelize(read(text.format(element)), "i")
    witness = step.verdict.witness
    assert witness is not None
    contents = dict(witness.elements)
    ends = [dict(end)["i"] for end in (witness.source, witness.sink)]
    shift = 1 if "+" in element else 0
    written = [contents[f"p[{i}]"] + shift * i for i in ends]
    assert step.verdict.cell == ((written[0],) if written[0] == written[1] else (3,))
    replay(step)


def test_an_order_that_only_some_data_need_is_shown_by_a_run_in_another() -> None:
    program = read("""
        def f(A: Float[Array, "2*N"], B: Float[Array, "N"]):
            for i in parallel(1, N):
                if B[i] > 0.5:
                    with atomic():
                        A[2 * i] = max(A[2 * i], A[i])
        """)
    verdict = check_races(program)
    assert verdict.decision == "illegal"
    assert verdict.witness is not None and verdict.witness.kind == "numbers"
    assert "becomes" in verdict.reason


def test_a_sum_is_a_race_even_where_the_numbers_come_out_right() -> None:
    program = read("""
        def f(a: Float[Array, "N"]):
            s = 0.0
            for i in range(N):
                s += a[i]
            return s
        """)
    step = parallelize(program, "i")
    assert facts(step) == ("illegal", "race", "S2 -> S2", "s")
    inputs = prepare(program, {"N": 2}, {"a": np.zeros(2)})
    races = RaceLog()
    assert execute_on(step.after, inputs, races=races)["s"] == 0.0
    assert races.races
    assert step.verdict.help == (
        "i is a reduction by + into s: phased_atomics(i) or block_reduce(i) joins the iterations, "
        "split(i, SIZE) makes partial results"
    )


def test_a_reduce_block_is_named_only_where_it_can_be_made() -> None:
    program = read("""
        def f(A, N):
            for i in range(N):
                for j in range(i + 1, N):
                    A[i // 2] += A[j]
        """)
    assert parallelize(program, "j").verdict.help.endswith(
        ": phased_atomics(j) joins the iterations"
    )
    assert phased_atomics(program, "j").verdict.decision == "legal"
    with pytest.raises(TransformError, match="also reads A"):
        block_reduce(program, "j")


def test_what_carries_values_takes_turns() -> None:
    step = parallelize(spec("prefix_sum"), "i")
    assert facts(step)[:2] == ("illegal", "race")
    assert step.verdict.help.startswith("ordered_atomics(i) lets the iterations take turns at ")


def test_a_name_that_is_used_elsewhere_is_privatized_first() -> None:
    program = read("""
        def f(x: Float[Array, "N"], y: Float[Array, "N"]):
            for i in range(N):
                t = x[i]
                y[i] = t * t
            for k in range(N):
                t = y[k]
                x[k] = t
        """)
    step = parallelize(program, "i")
    assert step.verdict.help == "privatize(i) first"
    assert agrees(parallelize(privatize(program, "i").after, "i"))


def test_what_cannot_be_made_parallel() -> None:
    program = parallelize(spec("attention_naive"), "i").after
    assert refusal(parallelize, program, "i") == lines("""
        error[E059]: the loop i is parallel already
          help: name another loop
        """)
    assert "there is no loop z" in refusal(parallelize, program, "z")
    block = read("""
        def f(A: Float[Array, "N D"], s: Float[Array, "D"]):
            for j in parallel(0, N):
                with reduce("+"):
                    for d in range(D):
                        s[d] = s[d] + A[j, d]
        """)
    assert "the loop d stands in a reduce block" in refusal(parallelize, block, "d")


# Ordered atomics


def test_turns_for_the_shortest_stretch() -> None:
    program = read("""
        def f(x: Float[Array, "N"], y: Float[Array, "N"]):
            s = 1.0
            for j in range(N):
                t = x[j] * 2.0
                s = 0.5 * s + t
                y[j] = t * t
            return s
        """)
    step = ordered_atomics(program, "j")
    assert code(step) == lines("""
        s = 1.0
        for j in parallel(0, N):
            private: t
            t = x[j] * 2.0
            with atomic(turn=j):
                s = 0.5 * s + t
            y[j] = t * t
        return s
        """)
    assert agrees(step)


def test_turns_in_a_loop_that_counts_down() -> None:
    program = read("""
        def f(x: Float[Array, "N"], y: Float[Array, "N"]):
            for j in range(N - 2, -1, -1):
                x[j] = x[j + 1] * 0.5 + y[j]
        """)
    step = ordered_atomics(program, "j")
    assert "for j in parallel(N - 2, -1, -1):\n    with atomic(turn=j):\n" in code(step)
    assert agrees(step)


def test_the_listing_of_modified_code_3() -> None:
    program: Program = spec("flash_forward")
    for array in ("m", "l"):
        program = promote(program, array, "j").after
    for loop in ("i", "d"):
        program = parallelize(privatize(program, loop).after, loop).after
    step = ordered_atomics(program, "j")
    assert code(step) == lines("""
        O = zeros((M, D))
        m = full(M, -inf)
        l = zeros(M)
        for i in parallel(0, M):
            private: (q_i, m_i, l_i, k_j, S_ij, m_ij, l_ij, o_id, v_jd, o_ijd)
            q_i = Q[i]
            m_i = m[i]
            l_i = l[i]
            for j in parallel(0, N):
                private: (k_j, S_ij, m_ij, l_ij)
                k_j = K[j]
                S_ij = q_i @ k_j
                with atomic(turn=j):
                    m_ij = max(m_i, S_ij)
                    l_ij = l_i * exp(m_i - m_ij) + exp(S_ij - m_ij)
                    for d in parallel(0, D):
                        private: (o_id, v_jd, o_ijd)
                        o_id = O[i, d]
                        v_jd = V[j, d]
                        o_ijd = o_id * l_i * exp(m_i - m_ij) / l_ij + exp(S_ij - m_ij) * v_jd / l_ij
                        O[i, d] = o_ijd
                    m_i = m_ij
                    l_i = l_ij
            l[i] = l_i
            m[i] = m_i
        return O, m, l
        """)
    assert agrees(step, [{"M": m, "N": n, "E": 2, "D": 2} for m in (0, 2) for n in (0, 1, 3)])
    assert computes(step.after, references.attention, SIZES)


def test_a_name_that_is_used_elsewhere_is_kept_in_turns() -> None:
    program = read("""
        def f(x: Float[Array, "N"], y: Float[Array, "N"]):
            for i in range(N):
                t = x[i]
                y[i] = t * t
                x[i] = 1.0
            for k in range(N):
                t = y[k]
                x[k] = t
        """)
    step = ordered_atomics(program, "i")
    assert code(step).startswith(
        lines("""
            for i in parallel(0, N):
                with atomic(turn=i):
                    t = x[i]
                    y[i] = t * t
                x[i] = 1.0
            """)
    )
    assert agrees(step)


def test_what_needs_no_turns() -> None:
    assert refusal(ordered_atomics, spec("flash_forward"), "d") == lines("""
        error[E059]: no statement of the loop d needs a turn
          no values pass from one iteration to another
          help: privatize(d) and then parallelize(d)
        """)
    assert refusal(ordered_atomics, spec("attention_naive"), "i") == lines("""
        error[E059]: no statement of the loop i needs a turn
          no two iterations touch a cell that one of them writes
          help: parallelize(i)
        """)
    atomic = phased_atomics(spec("attention_naive"), "j@S2").after
    assert "parallel already" in refusal(ordered_atomics, atomic, "j@S2")
    nested = read("""
        def f(A: Float[Array, "N D"]):
            s = 0.0
            for j in range(N):
                for d in parallel(0, D):
                    with atomic():
                        s = s + A[j, d]
            return s
        """)
    assert "has an atomic block" in refusal(ordered_atomics, nested, "j")
    within = read("""
        def f(A: Float[Array, "N D"]):
            s = 0.0
            for j in parallel(0, N):
                with atomic(turn=j):
                    for d in range(D):
                        s = 0.5 * s + A[j, d]
            return s
        """)
    assert "the loop d stands in an atomic block" in refusal(ordered_atomics, within, "d")


# Phases

PHASED = """
    S = zeros((M, N))
    m = full(M, -inf)
    l = zeros(M)
    O = zeros((M, D))
    for i in range(0, M):
        for j in parallel(0, N):
            S[i, j] = sum(Q[i, e] * K[j, e] for e in range(0, E))
            with atomic():
                m[i] = max(m[i], S[i, j])
            barrier()
            with atomic():
                l[i] = l[i] + exp(S[i, j] - m[i])
            barrier()
            for d in range(0, D):
                with atomic():
                    O[i, d] = O[i, d] + exp(S[i, j] - m[i]) / l[i] * V[j, d]
    return O
"""


def reduced(text: str) -> str:
    for operator in ("max", "+", "+"):
        text = text.replace("with atomic()", f'with reduce("{operator}")', 1)
    return text


def test_three_loops_become_three_phases() -> None:
    step = phased_atomics(spec("attention_naive"), *THREE)
    assert code(step) == lines(PHASED)
    assert step.name == "phased_atomics(j@S2, j@S3, j@S4)"
    assert "the updates of l by + may come in any order" in laws(step, "rounding")
    assert "the updates of O by + may come in any order" in laws(step, "rounding")
    assert agrees(step)
    assert computes(step.after, references.attention, SIZES)


def test_three_loops_in_a_thread_block() -> None:
    step = block_reduce(spec("attention_naive"), *THREE)
    assert code(step) == reduced(lines(PHASED))
    assert agrees(step)
    assert computes(step.after, references.attention, SIZES)


def test_no_barrier_where_none_is_needed() -> None:
    program = read("""
        def f(x: Float[Array, "N"], y: Float[Array, "N"]):
            s = 0.0
            m = -inf
            for j in range(N):  # the sum
                s = s + x[j]
            # then the rest
            for k in range(N):  # the maximum
                y[k] = x[k] * 2.0
                m = max(m, y[k])
            return s, m
        """)
    step = phased_atomics(program, "j", "k")
    assert code(step) == lines("""
        s = 0.0
        m = -inf
        for j in parallel(0, N):
            with atomic():
                s = s + x[j]
            y[j] = x[j] * 2.0
            with atomic():
                m = max(m, y[j])
        return s, m
        """)
    assert agrees(step)
    node = step.after.body[-1]
    assert getattr(node, "comment", "") == "the sum"
    assert "# the maximum" in step.after.source.text  # and still said somewhere
    assert "then the rest" in str(node)
    assert "the maximum" in str(node)


def test_one_sum_after_another_is_kept_apart() -> None:
    program = read("""
        def f(x: Float[Array, "N"], y: Float[Array, "N"]):
            s = 0.0
            for j in range(N):
                t = x[j] * 2.0
                s = s + t
                s = s + x[j]
            for j in range(N):
                t = y[j]
                s = s - t
            return s
        """)
    step = phased_atomics(program, "j@S3", "j@S6")
    assert code(step) == lines("""
        s = 0.0
        for j in parallel(0, N):
            private: t
            t = x[j] * 2.0
            with atomic():
                s = s + t
                s = s + x[j]
            t = y[j]
            barrier()
            with atomic():
                s = s - t
        return s
        """)
    assert agrees(step)


def test_a_single_loop_gets_the_phases_its_statements_allow() -> None:
    program = read("""
        def f(x: Float[Array, "N"], y: Float[Array, "N"], z: Float[Array, "N"]):
            for j in range(N):
                t = x[j] * 2.0
                y[j] = t
                z[j] = x[j] + y[0]
                z[j] = z[j] + y[j]
        """)
    step = phased_atomics(program, "j")
    assert code(step) == lines("""
        for j in parallel(0, N):
            private: t
            t = x[j] * 2.0
            y[j] = t
            barrier()
            z[j] = x[j] + y[0]
            z[j] = z[j] + y[j]
        """)
    assert agrees(step)


def test_an_update_in_several_statements_is_one_atomic_block() -> None:
    program = read("""
        def f(x: Float[Array, "N"]):
            s = 0.0
            for j in range(N):
                old = s
                new = old + x[j]
                s = new
            return s
        """)
    step = phased_atomics(program, "j")
    assert code(step) == lines("""
        s = 0.0
        for j in parallel(0, N):
            private: (old, new)
            with atomic():
                old = s
                new = old + x[j]
                s = new
        return s
        """)
    assert agrees(step)
    assert refusal(block_reduce, program, "j") == lines("""
        error[E043]: old = s is not written as an update
          in a reduce block each statement is cell += x, the cell first
          help: write it as cell += x, or use phased_atomics
        """)


def test_updates_under_guards_in_inner_loops() -> None:
    program = read("""
        def f(x: Float[Array, "N"], s: Float[Array, "3"], r: Float[Array, "3"]):
            for j in range(N):
                for k in range(3):
                    if x[j] > 0.0:
                        s[k] = s[k] + x[j]
                    else:
                        r[k] = max(r[k], x[j])
        """)
    for make, first, second in (
        (phased_atomics, "atomic()", "atomic()"),
        (block_reduce, 'reduce("+")', 'reduce("max")'),
    ):
        step = make(program, "j")
        assert code(step) == lines(f"""
            for j in parallel(0, N):
                for k in range(0, 3):
                    if x[j] > 0.0:
                        with {first}:
                            s[k] = s[k] + x[j]
                    else:
                        with {second}:
                            r[k] = max(r[k], x[j])
            """)
        assert agrees(step)


@pytest.mark.parametrize("block", ["atomic()", 'reduce("+")'])
def test_what_has_no_order_may_be_reversed(block: str) -> None:
    program = read(f"""
        def f(x: Float[Array, "M N"]):
            s = zeros(N)
            for i in parallel(0, M):
                for j in range(N):
                    with {block}:
                        s[j] += x[i, j]
            return s
        """)
    step = reverse(program, "i")
    assert agrees(step)
    assert [c.kind for c in step.verdict.certificates] == ["order", "rounding"]


@pytest.mark.parametrize(
    ("atomic", "loop"), [("atomic(turn=i)", "i"), ("atomic()", "k")], ids=["turns", "inside"]
)
def test_what_takes_turns_or_runs_inside_an_iteration_has_an_order(atomic: str, loop: str) -> None:
    program = read(f"""
        def f(x: Float[Array, "M N"]):
            s = 0.0
            for i in parallel(0, M):
                with {atomic}:
                    s += x[i, 0]
                for k in range(1, N):
                    with atomic():
                        s += x[i, k]
            return s
        """)
    assert reverse(program, loop).verdict.decision == "illegal"


def test_values_in_between_that_are_seen_make_no_reduction() -> None:
    program = read("""
        def f(A: Float[Array, "M N"], B: Float[Array, "N"]):
            for i in range(M):
                for j in range(N):
                    A[i, j] = A[i, j] + B[j]
                    B[j] = A[i, j]
        """)
    assert phased_atomics(program, "i").verdict.decision == "illegal"
    later = read("""
        def f(x: Float[Array, "N"], y: Float[Array, "1"]):
            s = 0.0
            for j in range(N):
                t = s + x[j]
                s = t
            y[0] = t
            return s
        """)
    assert phased_atomics(later, "j").verdict.decision == "illegal"


def test_phases_do_not_mend_a_recurrence() -> None:
    step = phased_atomics(spec("flash_forward"), "j")
    assert facts(step) == ("illegal", "order", "S12 -> S3", "m")
    assert step.verdict.help == "ordered_atomics(j) lets the iterations take turns at m, l and O"
    program = read("""
        def f(A: Float[Array, "N"], B: Float[Array, "N"], C: Float[Array, "N"]):
            for i in range(1, N):
                A[i] = A[i - 1] + B[i]
                C[i] = A[i]
        """)
    assert facts(phased_atomics(program, "i")) == ("illegal", "race", "S1 -> S1", "A")
    assert facts(block_reduce(program, "i")) == ("illegal", "race", "S1 -> S1", "A")


def test_a_fold_by_an_operator_that_does_not_commute_is_none() -> None:
    program = read("""
        def f(x: Float[Array, "N"]):
            s = 0.0
            for j in range(N):
                s = 0.5 * s + x[j]
            return s
        """)
    assert facts(phased_atomics(program, "j"))[:2] == ("illegal", "race")


def test_loops_that_cannot_be_joined() -> None:
    naive = spec("attention_naive")
    assert refusal(phased_atomics, naive, "j@S2", "j@S4") == lines("""
        error[E048]: the loop j@22 does not follow directly on j@17
          loops that become phases of one loop stand one after the other
          help: name them in their order, and move what is between them out of the way
        """)
    assert "does not follow directly" in refusal(phased_atomics, naive, "j@S3", "j@S2")
    other = read("""
        def f(x: Float[Array, "N"]):
            s = 0.0
            for j in range(N):
                s = s + x[j]
            for j in range(N - 1):
                s = s * x[j]
            return s
        """)
    assert refusal(phased_atomics, other, "j@S2", "j@S3") == lines("""
        error[E048]: the loops j@4 and j@6 do not run over the same range
          an iteration of the one loop goes through all phases
          help: give the loops one range, with a guard in the one that needs less
        """)
    assert refusal(phased_atomics, naive, "i") == lines("""
        error[E059]: the loop i has no reductions and needs no phases
          no two iterations touch a cell that one of them writes
          help: parallelize(i)
        """)
    scalar = read("def f(x, s, N):\n    for j in range(N):\n        s[0] = s[0] - x[j]\n")
    assert "s[0] = s[0] - x[j] is not written as an update" in refusal(block_reduce, scalar, "j")
    own = read("def f(s, N):\n    for j in range(N):\n        s[0] = s[0] + s[1]\n")
    assert refusal(block_reduce, own, "j") == lines("""
        error[E043]: S1 also reads s in what it joins to the cell
          the updates of a reduce block are made only when all iterations have handed them in
          help: use phased_atomics, or promote the cell to a local first
        """)


# Split


def test_split_a_sum() -> None:
    program = read("""
        def f(x: Float[Array, "N"]):
            s = 1.0
            for j in range(N):
                s = s + x[j]
            return s
        """)
    step = split(program, "j", 3)
    assert code(step) == lines("""
        s_part = empty((N + 2) // 3)
        s = 1.0
        for p in range(0, (N + 2) // 3):
            s_part[p] = 0.0
            for j in range(3 * p, min(3 * p + 3, N)):
                s_part[p] = s_part[p] + x[j]
        for q in range(0, (N + 2) // 3):
            s = s + s_part[q]
        return s
        """)
    assert step.name == "split(j, 3)"
    assert laws(step, "rounding") == ["values joined by + may be joined in any order"]
    assert agrees(step, [{"N": n} for n in (0, 1, 2, 3, 4, 7, 9)])


def test_the_blocks_of_a_split_run_in_parallel() -> None:
    program: Program = spec("attention_naive")
    for loop in THREE:
        program = split(program, loop, 2).after
    step = parallelize(program, "i")
    for loop in ("p", "p1", "p2"):
        step = parallelize(step.after, loop)
        assert agrees(step, [SIZES, {**SIZES, "N": 0}])
    assert computes(step.after, references.attention, SIZES)


def test_partial_results_of_rows() -> None:
    step = split(spec("attention_naive"), "j@S4", 64)
    assert code(step).endswith(
        lines("""
            for p in range(0, (N + 63) // 64):
                for d in range(0, D):
                    O_part[p, i, d] = 0.0
                for j in range(64 * p, min(64 * p + 64, N)):
                    for d in range(0, D):
                        O_part[p, i, d] = O_part[p, i, d] + exp(S[i, j] - m[i]) / l[i] * V[j, d]
            for q in range(0, (N + 63) // 64):
                for d in range(0, D):
                    O[i, d] = O[i, d] + O_part[q, i, d]
            """).replace("\n", "\n    ")
        + "\nreturn O"
    )
    assert "O_part = empty(((N + 63) // 64, M, D))\n" in code(step)
    assert agrees(step)


@pytest.mark.parametrize("operator", list(OPERATORS))
def test_split_by_each_operator(operator: str) -> None:
    update = f"s {operator} x[j]" if operator in "+*" else f"{operator}(x[j], s)"
    program = read(f"""
        def f(x: Float[Array, "N"]):
            s = 0.5
            for j in range(N):
                if j % 3 != 1:
                    s = {update}
            return s
        """)
    for step in (split(program, "j", 2), split(program, "j", 2, operator)):
        assert agrees(step, [{"N": n} for n in (0, 1, 2, 3, 8)])
    assert step.name == f"split(j, 2, {operator})"


def test_several_reductions_are_split_together() -> None:
    program = read("""
        def f(x: Float[Array, "N"], y: Float[Array, "N"]):
            s = 0.0
            r = -inf
            for j in range(N - 1, 3, -2):
                t = x[j] * 2.0
                s = s + t
                s = s - y[j]
                r = max(r, t)
                y[j] = t
            return s, r
        """)
    step = split(program, "j", 2)
    assert code(step) == lines("""
        s_part = empty(max(0, (N - 1) // 4))
        r_part = empty(max(0, (N - 1) // 4))
        s = 0.0
        r = -inf
        for p in range(0, (N - 1) // 4):
            s_part[p] = 0.0
            r_part[p] = -inf
            for j in range(N - 4 * p - 1, max(N - 4 * p - 5, 3), -2):
                t = x[j] * 2.0
                s_part[p] = s_part[p] + t
                s_part[p] = s_part[p] - y[j]
                r_part[p] = max(r_part[p], t)
                y[j] = t
        for q in range(0, (N - 1) // 4):
            s = s + s_part[q]
            r = max(r, r_part[q])
        return s, r
        """)
    assert agrees(step, [{"N": n} for n in (0, 1, 4, 5, 6, 7, 11, 12)])
    some = split(program, "j", 2, "max")
    assert "s_part" not in code(some)
    assert "r_part" in code(some)
    assert agrees(some, [{"N": n} for n in (0, 5, 9)])


def test_cells_that_move_with_the_loop() -> None:
    program = read("""
        def f(x: Float[Array, "N"], h: Float[Array, "4"]):
            for j in range(N):
                h[j % 4] = h[j % 4] + x[j]
        """)
    step = split(program, "j", 3)
    assert "    for x1 in range(0, 4):\n        h_part[p, x1] = 0.0\n" in code(step)
    assert "h_part[p, j % 4] = h_part[p, j % 4] + x[j]\n" in code(step)
    assert agrees(step, [{"N": n} for n in (0, 1, 5, 9)])


@pytest.mark.parametrize(
    ("shape", "guard", "decision"),
    [
        ("", "j != 2", "illegal"),  # A c of two elements has no c[2], which the join would read.
        ("", "j < 3", "legal"),
        (': Float[Array, "3"]', "j != 2", "legal"),
        ("", "j < 1 or i < 2", "legal"),
        ("", "j != i", "legal"),  # Where there is c[2], there is c[0].
    ],
)
def test_results_are_joined_to_elements_that_there_are(
    shape: str, guard: str, decision: str
) -> None:
    program = read(f"""
        def f(c{shape}):
            for i in range(0, M):
                for j in range(0, 3):
                    if {guard}:
                        c[j] += 2.0
        """)
    assert split(program, "i", 2).verdict.decision == decision


def test_whole_rows_and_integers() -> None:
    program = read("""
        def f(A: Float[Array, "N M"], O: Float[Array, "M"]):
            n = 0
            for j in range(N):
                O[:] = O[:] + A[j]
                n = n + j
            return n
        """)
    step = split(program, "j", 2)
    assert "n_part = empty((N + 1) // 2, dtype=int)\n" in code(step)
    assert "O_part[p, :] = 0.0\n" in code(step)
    assert "n_part[p] = 0\n" in code(step)
    assert agrees(step)


def test_partial_results_inside_a_parallel_loop_are_its_own() -> None:
    program = read("""
        def f(A: Float[Array, "M N"], y: Float[Array, "M"]):
            for i in parallel(0, M):
                private: s
                s = 0.0
                for j in range(i + 1, N):
                    s = s + A[i, j]
                y[i] = s
        """)
    step = split(program, "j", 2)
    head = "s_part = empty(N // 2)\nfor i in parallel(0, M):\n    private: (s, s_part)\n"
    assert code(step).startswith(head)
    assert "for p in range(0, (N - i) // 2):\n" in code(step)
    assert agrees(step)


def test_the_wrong_operator_is_refuted_with_numbers() -> None:
    program = read("""
        def f(x: Float[Array, "N"]):
            s = 1.0
            for j in range(N):
                s = s + x[j]
            return s
        """)
    step = split(program, "j", 2, "max")
    assert step.verdict.decision == "illegal"
    assert step.verdict.witness is not None
    assert step.verdict.witness.kind == "numbers"
    assert "S2 is no update by max" in step.verdict.reason


LOG_SUM = Call("log", (Binary("+", Call("exp", (LEFT,)), Call("exp", (RIGHT,))),))
PROOF = Certificate("algebra", "log(exp(a) + exp(b)) is associative and commutative", "legal", "+")


def test_an_operator_with_its_own_proof() -> None:
    program = read("""
        def f(x: Float[Array, "M N"]):
            s = full(M, -inf)
            for i in range(M):
                for j in range(N):
                    s[i] = log(exp(s[i]) + exp(x[i, j] * 2.0))
            return s
        """)
    operator = Operator("logaddexp", float("-inf"), LOG_SUM, PROOF)
    step = split(program, "j", 2, operator)
    assert code(step) == lines("""
        s = full(M, -inf)
        s_part = empty(((N + 1) // 2, M))
        for i in range(0, M):
            for p in range(0, (N + 1) // 2):
                s_part[p, i] = -inf
                for j in range(2 * p, min(2 * p + 2, N)):
                    s_part[p, i] = log(exp(s_part[p, i]) + exp(x[i, j] * 2.0))
            for q in range(0, (N + 1) // 2):
                s[i] = log(exp(s[i]) + exp(s_part[q, i]))
        return s
        """)
    assert step.name == "split(j, 2, logaddexp)"
    assert PROOF in step.verdict.certificates
    assert laws(step, "rounding") == ["values joined by logaddexp may be joined in any order"]
    assert agrees(step)


def test_an_operator_without_a_proof_is_unknown() -> None:
    program = read("""
        def f(x: Float[Array, "N"]):
            s = -inf
            for j in range(N):
                s = log(exp(s) + exp(x[j]))
            return s
        """)
    bare = Operator("logaddexp", float("-inf"), LOG_SUM)
    step = split(program, "j", 2, bare)
    assert step.verdict.decision == "unknown"
    reason = "nothing proves that partial results may be joined by logaddexp"
    assert step.verdict.reason == reason
    refuted = Operator("mean", 0.0, LOG_SUM, Certificate("algebra", "…", "illegal"))
    assert split(program, "j", 2, refuted).verdict.decision == "unknown"
    other = Operator("sum of squares", 0.0, Binary("+", LEFT, Binary("*", RIGHT, RIGHT)), PROOF)
    assert split(program, "j", 2, other).verdict.reason == "S2 is no update by sum of squares"


def test_what_cannot_be_split() -> None:
    assert refusal(split, spec("attention_naive"), "i", 4) == lines("""
        error[E059]: the loop i carries no reduction
          no values pass from one iteration to another
          help: strip_mine(i, SIZE) makes blocks of it
        """)
    assert refusal(split, spec("flash_forward"), "j", 4) == lines("""
        error[E043]: m is not reduced by j in a way that is recognized
          the anti dependence S3 → S12 is carried by it, and is no part of a reduction by +, *, \
max or min
          help: looptrans derive --to split looks for an operator that joins the whole state
        """)
    assert "the size 0 is not above 0" in refusal(split, spec("matmul"), "k", 0)
    assert "cannot be joined by and" in refusal(split, spec("matmul"), "k", 4, "and")
    several = read("""
        def f(x: Float[Array, "N"], m: Float[Array, "N+1"], n: Int[Array, "N"], k: Int[Array, "3"]):
            s = 0.0
            for j in range(N):
                old = s
                s = old + x[j]
            for j in range(N):
                m[0] = m[0] + m[1]
            for j in range(N):
                k[0] = max(k[0], j)
            for i in range(N):
                for j in range(n[i]):
                    s = s + x[j]
            return s
        """)
    assert refusal(split, several, "j@S2", 2) == lines("""
        error[E043]: cannot split the reduction into s: S3 is no update of it
          s = old + x[j] is not s joined with something, in one statement
          help: write the update as one statement that reads the cell itself
        """)
    assert refusal(split, several, "j@S4", 2) == lines("""
        error[E043]: cannot split the reduction into m: S4 also reads m[1]
          what is joined to m[0] may not come from m itself
          help: promote(m, j@7) first, which keeps the cell in a local
        """)
    assert refusal(split, several, "j@S5", 2) == lines("""
        error[E043]: cannot split the reduction into k: it holds integers
          a partial result starts with -inf, the identity of max, which is none of them
          help: make k an array of floats
        """)
    assert "how many blocks the loop j@12 has is not known" in refusal(split, several, "j@S6", 2)
    atomic = phased_atomics(spec("attention_naive"), "j@S3").after
    assert "the loop j@20 is parallel" in refusal(split, atomic, "j@S3", 2)
    within = parallelize(split(spec("attention_naive"), "j@S3", 2).after, "i").after
    assert split(within, "j@S2", 2).verdict.decision == "legal"
    odd = read("""
        def f(x: Float[Array, "N"]):
            s = 0.0
            for j in range(N):
                s = s + x[j] + 1.0
            return s
        """)
    assert refusal(split, odd, "j", 2) == lines("""
        error[E043]: j is not recognized as a reduction by + into s
          s = s + x[j] + 1.0 is not cell = cell op x, and no inputs show what else
          help: write the update so, with one x that does not read the cell
        """)


def test_the_result_may_be_changed_by_others_outside_the_loop() -> None:
    program = read("""
        def f(x: Float[Array, "M N"], y: Float[Array, "M"]):
            m = ones(M)
            for i in range(M):
                for j in range(N):
                    m[i] = min(m[i], x[i, j])
                for j in range(N):
                    m[i] = 0.5 * m[i] + x[i, j]
                if y[i] > 0.0:
                    m[i] = 0.0
            return m
        """)
    step = split(program, "j@S1", 2)
    assert agrees(step)
    assert check_split(step, step.after) == "legal"
    for variable in ("p", "q"):
        assert check_split(step, without_loop(step.after, variable)) != "legal"


def without_loop(program: Program, variable: str) -> Program:
    def change(node: Node) -> tuple[Node, ...]:
        return () if isinstance(node, Loop) and node.variable == variable else (node,)

    return replace(program, body=rewritten(program.body, change))


def check_split(step: Step, after: Program) -> str:
    """What is said of a program in the place of the one that `split` made."""
    left = {place.label for place in placed(after)}
    kept = {label: image for label, image in step.images.items() if label in left}
    operators = {"m": ("min", float("inf"))}
    return judge(step.before, after, kept, {"m_part": "m"}, operators).decision
