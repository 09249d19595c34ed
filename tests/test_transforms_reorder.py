"""The transformations that only reorder: what becomes of the text, and of the iterations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from textwrap import dedent, indent
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from looptrans.analysis.budget import within_budget
from looptrans.executor import AccessLog, execute, execute_on
from looptrans.frontend import parse
from looptrans.ir.evaluate import evaluate
from looptrans.ir.index import Index
from looptrans.ir.listing import listing
from looptrans.ir.program import Program
from looptrans.ir.source import Source
from looptrans.ir.step import Step
from looptrans.ir.verdict import Verdict
from looptrans.ir.walk import placed
from looptrans.transforms.editing.errors import TransformError
from looptrans.transforms.judging import check
from looptrans.transforms.steps.distribute import distribute
from looptrans.transforms.steps.expand import expand
from looptrans.transforms.steps.fuse import fuse
from looptrans.transforms.steps.interchange import interchange
from looptrans.transforms.steps.parallelize import parallelize
from looptrans.transforms.steps.permute import permute
from looptrans.transforms.steps.privatize import privatize
from looptrans.transforms.steps.reverse import reverse
from looptrans.transforms.steps.skew import skew
from looptrans.transforms.steps.strip_mine import strip_mine
from looptrans.transforms.steps.tile import tile
from tests.replay import inputs_of, replay
from tests.steps import agrees

Instance = tuple[str, tuple[int, ...]]


def read(text: str) -> Program:
    return parse(Source("t.py", text))


def body_of(program: Program) -> str:
    """The listing from the first loop on, without what surrounds it."""
    lines = listing(program).splitlines()
    first = next(n for n, line in enumerate(lines) if line.lstrip().startswith("for "))
    depth = len(lines[first]) - len(lines[first].lstrip())
    return "\n".join(line[depth:] for line in lines[first:] if not line.lstrip().startswith("ret"))


def of(program: Program, sizes: dict[str, int]) -> dict[str, int]:
    """The sizes that a program has; after a step it may have fewer."""
    return {p.name: sizes[p.name] for p in program.parameters if p.name in sizes}


def instances(program: Program, sizes: dict[str, int]) -> list[Instance]:
    """Every statement instance, in the order of execution; each statement writes once."""
    log = AccessLog()
    execute(program, sizes=of(program, sizes), log=log)
    return [(entry.label, entry.iteration) for entry in log.entries if entry.is_write]


def read_back(step: Step, sizes: dict[str, int]) -> list[Instance]:
    """The instances after a step as those of the program before it that they stand for."""
    places = {place.label: place for place in placed(step.after)}
    found = []
    for label, iteration in instances(step.after, sizes):
        names = [loop.variable for loop in places[label].loops]
        values = dict(zip(names, iteration, strict=True))
        image = step.images[label]
        found.append((image.statement, tuple(value(index, values) for index in image.indices)))
    return found


def value(index: Index | None, values: dict[str, int]) -> int:
    assert index is not None
    number = evaluate(index, values)
    assert number is not None
    return number


def check_same(step: Step, *, ordered: bool = False, **sizes: int) -> None:
    """The same instances run; where the step is legal, they give the same numbers."""
    for number in range(4):
        chosen = {name: max(size - number * number, 0) for name, size in sizes.items()}
        before, after = instances(step.before, chosen), read_back(step, chosen)
        assert Counter(before) == Counter(after), chosen
        if ordered:
            assert before == after
        if step.verdict.decision == "legal":
            results = execute(step.before, sizes=of(step.before, chosen))
            again = execute(step.after, sizes=of(step.after, chosen))
            for name, result in results.items():
                assert np.array_equal(result, again[name], equal_nan=True)
    assert read(listing(step.after)) == step.after


def refused(action: Callable[[], Any], program: Program) -> str:
    with pytest.raises(TransformError) as caught:
        action()
    assert caught.value.remedy
    return caught.value.render(program.source)


STENCIL = """\
def stencil(A: Float[Array, "N N"]):
    for i in range(1, N):
        for j in range(1, N - 1):
            A[i, j] = A[i - 1, j + 1]  # S1: upper right
"""
PRODUCT = """\
def product(A: Float[Array, "M K"], B: Float[Array, "K N"], C: Float[Array, "M N"]):
    # rows
    for i in range(0, M):  # i of M
        for j in range(0, N):  # j of N
            # inner
            for k in range(0, K):  # k of K
                C[i, j] += A[i, k] * B[k, j]
"""
TRIANGLE = """\
def triangle(L: Float[Array, "N N"]):
    for i in range(0, N):
        for j in range(0, i + 1):
            L[i, j] = 2.0 * L[i, j]
"""


def nest(*heads: str, statement: str = "s = 1.0") -> Program:
    lines = [*heads, statement]
    return read("".join(f"{'    ' * depth}{line}\n" for depth, line in enumerate(lines)))


# interchange


def test_interchange_of_the_stencil_is_illegal_and_says_what_to_do() -> None:
    step = interchange(read(STENCIL), "i", "j")
    assert step.name == "interchange(i, j)"
    assert step.verdict.decision == "illegal"
    assert step.verdict.help == "skew j by i first, with skew(j, i, 1)"
    assert step.verdict.dependence is not None
    assert step.verdict.dependence.distance == ("1", "-1")
    assert body_of(step.after) == (
        "for j in range(1, N - 1):\n"
        "    for i in range(1, N):\n"
        "        A[i, j] = A[i - 1, j + 1]  # S1: upper right"
    )
    check_same(step, N=6)


def test_interchange_of_the_skewed_stencil_is_legal() -> None:
    skewed = skew(read(STENCIL), "j", "i", 1)
    assert skewed.verdict.decision == "legal"
    step = interchange(skewed.after, "i", "j")
    assert step.verdict.decision == "legal"
    assert body_of(step.after) == (
        "for j in range(2, 2 * N - 2):\n"
        "    for i in range(max(1, j - N + 2), min(N, j)):\n"
        "        A[i, j - i] = A[i - 1, j - i + 1]  # S1: upper right"
    )
    check_same(step, N=6)


def test_interchange_of_a_triangle() -> None:
    step = interchange(read(TRIANGLE), "i", "j")
    assert step.verdict.decision == "legal"
    assert body_of(step.after) == (
        "for j in range(0, N):\n    for i in range(j, N):\n        L[i, j] = 2.0 * L[i, j]"
    )
    check_same(step, N=7)


RANGES = {
    "upper": ("i, N", "0, N", "0, j + 1"),
    "band": ("max(0, i - W), min(N, i + W + 1)", "0, N", "max(0, j - W), min(N, j + W + 1)"),
    "strided": ("i, N, 3", "0, N", "j % 3, j + 1, 3"),
    "stride outside": ("0, i + 1, 3", "0, N, 3", "j, N"),
    "downward": ("i, -1, -1", "N - 1, -1, -1", "j, N"),
    "half": ("0, i // 2", "0, (N - 1) // 2", "2 * j + 2, N"),
    "steep": ("2 * i, 3 * i + 1", "0, 3 * N - 2", "(j + 2) // 3, min(N, (j + 2) // 2)"),
    "shifted": ("i, i + 5", "0, N + 4", "max(0, j - 4), min(N, j + 1)"),
    "from the end": ("N - i, N", "1, N", "N - j, N"),
    "partly moved": ("0, min(i + 1, M)", "0, min(M, N)", "j, N"),
    "cancelled": ("i - i, M", "0, M", "0, N"),
}


@pytest.mark.parametrize("name", RANGES)
def test_interchange_finds_the_ranges(name: str) -> None:
    inner, new_outer, new_inner = RANGES[name]
    step = interchange(nest("for i in range(N):", f"for j in range({inner}):"), "i", "j")
    outer, within, _ = listing(step.after).splitlines()
    assert outer == f"for j in range({new_outer}):"
    assert within == f"    for i in range({new_inner}):"
    check_same(step, N=9, W=2, M=5)


DOUBTS = {
    "contents": ("B[idx[i]] = A[i]", "depends on idx[i]"),
    "a condition": ("if B[i] > 0.0:\n    B[i + 1] = 0.0", "only the running program knows"),
    "others": ("B[i + 1] = A[i]\nC[i] = B[i]\nB[i] = 0.0", "not followed through idx[i]"),
}


@pytest.mark.parametrize("name", DOUBTS)
def test_a_doubt_is_about_what_makes_it_and_a_run_ends_it(name: str) -> None:
    statements, doubt = DOUBTS[name]
    text = 'def f(A, B, C, N, idx: Int[Array, "N"]):\n    for i in range(N):\n'
    text += indent(f"{statements}\nC[idx[i] + N] = A[i]\n", " " * 8)
    step = reverse(read(text), "i")
    untried = check.check_order(step.before, step.after, step.images, tried=False)
    assert untried.decision == "unknown"
    assert doubt in untried.reason
    replay(step)


def test_what_cannot_be_distributed_names_the_step_that_shows_why() -> None:
    program = read(
        "def f(A, B, N):\n    for i in range(1, N):\n        A[i] = B[i - 1]\n        B[i] = A[i]\n"
    )
    with pytest.raises(TransformError) as caught:
        distribute(program, "i")
    assert caught.value.remedy.endswith("; distribute(i, S2) shows what stands in the way")
    replay(distribute(program, "i", "S2"))
    program = read(
        "def f(A, B, N):\n    for i in range(1, N):\n        t = A[i - 1]\n"
        "        if t > 0.0:\n            B[i] = t\n        A[i] = t\n"
    )
    with pytest.raises(TransformError) as caught:
        distribute(program, "i")
    assert caught.value.remedy.endswith("; distribute(i, G1) shows what stands in the way")
    replay(distribute(program, "i", "G1"))


RARE = """\
    def f(A, B, N):
        for i in range(N):
            for j in range(i + 1):
                if B[2 * i] > 1.5:
                    A[j, j + i] = B[i]
                A[i % 2, 2 * j] += i
    """


@pytest.mark.parametrize("made", [interchange, lambda *args: tile(*args, 3, 2)])
def test_a_condition_that_rarely_holds_is_tried_on_many_inputs(made: Callable[..., Step]) -> None:
    step = made(read(dedent(RARE)), "i", "j")
    untried = check.check_order(step.before, step.after, step.images, tried=False)
    assert untried.decision == "unknown"
    replay(step)


ROWS = """\
    def f(R, start: Int[Array, "R+1"], col: Int[Array, "Z", "0:C"], v, x, y):
        for r in range(R):
            for p in range(start[r], start[r + 1]):
                y[r] += v[p] * x[col[p]]
    """


BAND = """\
    def f(R, n: Int[Array, "R", "0:6"], A, B):
        for r in range(R):
            for j in range(n[r]):
                for k in range(j, n[r]):
                    A[r, j + 1, k + 1] = A[r, j, k] + B[r]
    """


def test_bounds_from_arrays_are_numbers_where_the_loops_around_stay() -> None:
    rows, band = read(dedent(ROWS)), read(dedent(BAND))
    assert agrees(strip_mine(rows, "p", 3))
    assert agrees(interchange(band, "j", "k"))
    assert agrees(tile(band, "j", "k", 2, 2))
    other = read(dedent(BAND).replace("A[r, j, k]", "A[r, j, k + 2]"))
    step = interchange(other, "j", "k")
    assert step.verdict.witness is not None
    assert step.verdict.witness.elements == (("n[0]", 3),)
    replay(step)


SUMS = """\
    def f(B, R, start: Int[Array, "R+1"], v, x, y):
        for b in range(B):
            for r in range(R):
                s = 0.0
                for p in range(start[r], start[r + 1]):
                    s += v[p] * x[b, p]
                y[b, r] = s
    """


def test_rows_with_a_scalar_of_their_own_come_in_any_order() -> None:
    program = read(dedent(SUMS))
    assert agrees(reverse(program, "r"))
    assert agrees(interchange(program, "b", "r"))
    assert agrees(tile(program, "b", "r", 2, 2))
    own = privatize(parallelize(privatize(program, "b").after, "b").after, "r").after
    assert agrees(interchange(own, "b", "r"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("s = 0.0", "y[b, r] = s if r > 0 else 0.0\n            s = 0.0"),
        ("y[b, r] = s", "y[b, r] = s\n    return s"),
        ("y[b, r] = s", "y[b, start[r]] = s"),
    ],
    ids=["read before it is set", "seen at the end", "one cell for several"],
)
def test_rows_that_share_more_do_not(old: str, new: str) -> None:
    replay(reverse(read(dedent(SUMS).replace(old, new)), "r"))


@pytest.mark.parametrize("made", [reverse, parallelize])
def test_an_example_that_a_run_shows_has_the_contents_it_supposes(
    made: Callable[[Program, str], Step],
) -> None:
    step = made(read(dedent(ROWS)), "p")
    assert step.verdict.witness is not None
    assert step.verdict.witness.elements == (("start[0]", 0), ("start[1]", 2))
    replay(step)


def test_interchange_guards_what_no_range_can_say() -> None:
    step = interchange(nest("for i in range(N):", "for j in range(min(i, 2), N):"), "i", "j")
    assert listing(step.after) == (
        "for j in range(0, N):\n    for i in range(0, N):\n"
        "        if j >= min(i, 2):\n            s = 1.0\n"
    )
    check_same(step, N=8)


def test_interchange_of_two_strides_that_do_not_fit() -> None:
    step = interchange(nest("for i in range(0, N, 4):", "for j in range(i, N, 6):"), "i", "j")
    assert listing(step.after).splitlines()[2] == "        if (j - i) % 6 == 0:"
    check_same(step, N=29)


def test_a_stride_is_known_through_that_of_the_outer_loop() -> None:
    step = interchange(nest("for i in range(0, N, 4):", "for j in range(i, N, 2):"), "i", "j")
    assert listing(step.after) == (
        "for j in range(0, N, 2):\n    for i in range(0, j + 1, 4):\n        s = 1.0\n"
    )
    check_same(step, N=14)


def test_interchange_moves_guards_inward() -> None:
    text = "for i in range(N):\n    # even ones\n    if i % 2 == 0:  # even\n"
    text += "        for j in range(i, N):\n            s = 1.0  # S5\n"
    step = interchange(read(text), "i", "j")
    assert listing(step.after) == (
        "for j in range(0, N):\n    for i in range(0, j + 1):\n        # even ones\n"
        "        if i % 2 == 0:  # even\n            s = 1.0  # S5\n"
    )
    check_same(step, N=7)


def test_interchange_knows_the_loops_around() -> None:
    program = nest("for i in range(N):", "for j in range(i, N):", "for k in range(j, N):")
    step = interchange(program, "j", "k")
    assert listing(step.after).splitlines()[:3] == [
        "for i in range(0, N):",
        "    for k in range(i, N):",
        "        for j in range(i, k + 1):",
    ]
    check_same(step, N=6)


def test_interchange_of_loops_with_one_between() -> None:
    program = nest("for i in range(N):", "for j in range(i, N):", "for k in range(j, N):")
    step = interchange(program, "i", "k")
    assert listing(step.after).splitlines()[:3] == [
        "for k in range(0, N):",
        "    for j in range(0, k + 1):",
        "        for i in range(0, j + 1):",
    ]
    check_same(step, N=6)


def test_comments_go_with_their_loops() -> None:
    step = interchange(read(PRODUCT), "i", "k")
    assert body_of(step.after) == (
        "for k in range(0, K):  # k of K\n"
        "    for j in range(0, N):  # j of N\n"
        "        # rows\n"
        "        for i in range(0, M):  # i of M\n"
        "            C[i, j] += A[i, k] * B[k, j]"
    )
    assert "    # inner\n    for k" in listing(step.after)


def test_private_names_stay_private_to_their_iteration() -> None:
    text = "def f(A: Float[Array, 'N N']):\n    for i in range(0, N):\n"
    text += "        for j in range(0, N):\n            private: t\n"
    text += "            t = A[i, j]\n            A[i, j] = t + 1.0\n"
    step = interchange(read(text), "i", "j")
    assert step.verdict.decision == "legal"
    assert body_of(step.after).splitlines()[:3] == [
        "for j in range(0, N):",
        "    for i in range(0, N):",
        "        private: t",
    ]


def test_loops_keep_the_way_they_are_executed() -> None:
    text = "def f(A: Float[Array, 'M N'], x: Float[Array, 'N']):\n    for i in parallel(0, M):\n"
    text += "        for j in range(0, N):\n            with atomic():\n"
    text += "                x[j] = x[j] + A[i, j]\n"
    step = interchange(read(text), "i", "j")
    assert body_of(step.after) == (
        "for j in range(0, N):\n    for i in parallel(0, M):\n        with atomic():\n"
        "            x[j] = x[j] + A[i, j]"
    )
    check_same(step, M=3, N=4)


# permute


def test_permute_puts_loops_in_the_order_named() -> None:
    step = permute(read(PRODUCT), "k", "i", "j")
    assert step.name == "permute(k, i, j)"
    assert step.verdict.decision == "legal"
    heads = [line.split("#")[0].strip() for line in body_of(step.after).splitlines()]
    assert heads[:4] == [
        "for k in range(0, K):",
        "",
        "for i in range(0, M):",
        "for j in range(0, N):",
    ]
    check_same(step, M=3, N=4, K=2)


def test_permute_of_a_simplex() -> None:
    program = nest("for i in range(N):", "for j in range(i + 1):", "for k in range(j + 1):")
    step = permute(program, "k", "i", "j")
    assert listing(step.after).splitlines()[:3] == [
        "for k in range(0, N):",
        "    for i in range(k, N):",
        "        for j in range(k, i + 1):",
    ]
    check_same(step, N=6)


# reverse


@pytest.mark.parametrize(
    ("limits", "turned"),
    [
        ("N", "N - 1, -1, -1"),
        ("2, N + 3", "N + 2, 1, -1"),
        ("N - 1, -1, -1", "0, N"),
        ("0, N, 2", "2 * ((N - 1) // 2), -1, -2"),
        ("1, N, 3", "3 * ((N - 2) // 3) + 1, 0, -3"),
        ("N, 0, -2", "N - 2 * ((N - 1) // 2), N + 1, 2"),
        ("3, 11, 4", "7, 2, -4"),
    ],
)
def test_reverse_of_any_step(limits: str, turned: str) -> None:
    step = reverse(nest(f"for i in range({limits}):"), "i")
    assert listing(step.after).splitlines()[0] == f"for i in range({turned}):"
    for n in range(12):
        sizes = {"N": n} if "N" in limits else {}
        assert instances(step.after, sizes) == instances(step.before, sizes)[::-1]


def test_reverse_is_legal_where_the_loop_carries_nothing() -> None:
    rows = reverse(read(TRIANGLE), "j")
    assert rows.verdict.decision == "legal"
    check_same(rows, N=5)
    carried = reverse(read(STENCIL), "i")
    assert carried.verdict.decision == "illegal"
    assert carried.verdict.help == "only a loop that carries no dependence can run backward"
    assert reverse(read(STENCIL), "j").verdict.decision == "legal"


def test_what_a_creation_is_filled_with_is_read_there() -> None:
    text = """
        def f(x, N, M):
            s = 0.0
            for i in range(N):
                s = x[i]
            b = full(M, s)
            for j in range(M):
                b[j] = b[j] + x[j]
            return b
        """
    step = reverse(read(dedent(text)), "i")
    assert step.verdict.decision == "illegal"
    replay(step)


# skew


@pytest.mark.parametrize("factor", [1, -1, 3, -2])
def test_skew_shifts_the_range_and_keeps_the_order(factor: int) -> None:
    step = skew(read(STENCIL), "j", "i", factor)
    assert step.verdict.decision == "legal"
    check_same(step, N=6, ordered=True)


def test_skew_and_back_is_the_same_program() -> None:
    program = read(STENCIL)
    there = skew(program, "j", "i", 2).after
    assert body_of(there).splitlines()[1] == "    for j in range(2 * i + 1, 2 * i + N - 1):"
    assert skew(there, "j", "i", -2).after == program


def test_skew_of_a_loop_that_others_depend_on() -> None:
    text = "for i in range(N):\n    for j in range(0, min(i, M), 2):\n        k = j + 1\n"
    text += "        for l in range(j, i):\n            s = 1.0\n"
    step = skew(read(text), "j", "i", -1)
    assert listing(step.after) == (
        "for i in range(0, N):\n    for j in range(-i, min(0, M - i), 2):\n        k = j + i + 1\n"
        "        for l in range(j + i, i):\n            s = 1.0\n"
    )
    check_same(step, N=6, M=4, ordered=True)


# strip_mine


@pytest.mark.parametrize(
    ("limits", "over", "inside"),
    [
        ("0, N", "0, N, 4", "j0, min(j0 + 4, N)"),
        ("2, min(N, 9)", "2, min(N, 9), 4", "j0, min(j0 + 4, N, 9)"),
        ("1, N, 3", "1, N, 12", "j0, min(j0 + 12, N), 3"),
        ("N, 0, -1", "N, 0, -4", "j0, max(j0 - 4, 0), -1"),
        ("N, 0, -2", "N, 0, -8", "j0, max(j0 - 8, 0), -2"),
        ("0, 8", "0, 8, 4", "j0, j0 + 4"),
        ("N, N + 12", "N, N + 12, 4", "j0, j0 + 4"),
        ("0, 9", "0, 9, 4", "j0, min(j0 + 4, 9)"),
    ],
)
def test_strip_mine_of_any_step(limits: str, over: str, inside: str) -> None:
    step = strip_mine(nest(f"for j in range({limits}):"), "j", 4)
    assert step.verdict.decision == "legal"
    assert listing(step.after).splitlines()[:2] == [
        f"for j0 in range({over}):",
        f"    for j in range({inside}):",
    ]
    for n in range(0, 14, 3):
        sizes = {"N": n} if "N" in limits else {}
        assert instances(step.before, sizes) == read_back(step, sizes)


def test_strip_mine_takes_a_name_that_is_free_and_keeps_comments() -> None:
    text = "# above\nfor j in range(N):  # beside\n    j0 = 1.0\n"
    step = strip_mine(read("s = 0.0\n" + text), "j", 2)
    assert listing(step.after) == (
        "s = 0.0\n# above\nfor j1 in range(0, N, 2):\n"
        "    for j in range(j1, min(j1 + 2, N)):  # beside\n        j0 = 1.0\n"
    )


# tile


def test_tile_of_a_box() -> None:
    step = tile(read(PRODUCT), "i", "k", "j", 2, 4, 3)
    assert step.name == "tile(i, k, j, 2, 4, 3)"
    assert step.verdict.decision == "legal"
    assert [line.strip() for line in body_of(step.after).splitlines() if "#" not in line] == [
        "for i0 in range(0, M, 2):",
        "for j0 in range(0, N, 3):",
        "for k0 in range(0, K, 4):",
        "C[i, j] += A[i, k] * B[k, j]",
    ]
    assert "for j in range(j0, min(j0 + 3, N)):  # j of N" in listing(step.after)
    check_same(step, M=5, N=4, K=9)


def test_tile_of_a_triangle_leaves_empty_tiles_out() -> None:
    step = tile(read(TRIANGLE), "i", "j", 32, 32)
    assert step.verdict.decision == "legal"
    assert body_of(step.after) == (
        "for i0 in range(0, N, 32):\n"
        "    for j0 in range(0, i0 + 1, 32):\n"
        "        for i in range(i0, min(i0 + 32, N)):\n"
        "            for j in range(j0, min(j0 + 32, i + 1)):\n"
        "                L[i, j] = 2.0 * L[i, j]"
    )


TILED = {
    "upper": ("i, N", "i0, N, 4", "max(j0, i), min(j0 + 4, N)"),
    "band": (
        "max(0, i - W), min(N, i + W + 1)",
        "max(0, 4 * ((i0 - W) // 4)), min(i0 + W + 4, N), 4",
        "max(j0, i - W), min(j0 + 4, N, i + W + 1)",
    ),
    "strided": ("0, i + 1, 3", "0, i0 + 1, 12", "j0, min(j0 + 12, i + 1), 3"),
}


@pytest.mark.parametrize("name", TILED)
def test_tiles_line_up(name: str) -> None:
    inner, over, inside = TILED[name]
    step = tile(nest("for i in range(N):", f"for j in range({inner}):"), "i", "j", 4, 4)
    lines = [line.strip() for line in listing(step.after).splitlines()]
    assert lines[0] == "for i0 in range(0, N, 4):"
    assert lines[1] == f"for j0 in range({over}):"
    assert lines[2] == "for i in range(i0, min(i0 + 4, N)):"
    assert lines[3] == f"for j in range({inside}):"
    check_same(step, N=13, W=3)


def test_tile_wants_a_permutable_band() -> None:
    step = tile(read(STENCIL), "i", "j", 2, 2)
    assert step.verdict.decision == "illegal"
    assert step.verdict.help.startswith("skew j by i first")
    skewed = skew(read(STENCIL), "j", "i", 1).after
    legal = tile(skewed, "i", "j", 2, 2)
    assert legal.verdict.decision == "legal"
    check_same(legal, N=9)


# distribute


CYCLE = """\
def cycle(A: Float[Array, "N"], B: Float[Array, "N"], C: Float[Array, "N"], D: Float[Array, "N"]):
    # the loop
    for i in range(1, N):  # i
        D[i] = A[i - 1] + 1.0
        A[i] = B[i - 1] * 2.0
        B[i] = A[i] + 1.0
        C[i] = A[i] + D[i]
"""


def test_distribute_keeps_cycles_together() -> None:
    step = distribute(read(CYCLE), "i")
    assert step.verdict.decision == "legal"
    assert listing(step.after).splitlines()[1:] == [
        "    # the loop",
        "    for i in range(1, N):  # i",
        "        A[i] = B[i - 1] * 2.0  # S2",
        "        B[i] = A[i] + 1.0  # S3",
        "    for i in range(1, N):",
        "        D[i] = A[i - 1] + 1.0  # S1",
        "    for i in range(1, N):",
        "        C[i] = A[i] + D[i]  # S4",
    ]
    check_same(step, N=8)


def test_distribute_splits_where_it_is_told() -> None:
    legal = distribute(read(CYCLE), "i", "S4")
    assert legal.verdict.decision == "legal"
    assert body_of(legal.after).count("for i") == 2
    assert "# S" not in listing(legal.after)
    check_same(legal, N=8)
    illegal = distribute(read(CYCLE), "i", "S2", "S3")
    assert illegal.name == "distribute(i, S2, S3)"
    assert illegal.verdict.decision == "illegal"
    assert illegal.verdict.witness is not None
    assert "distribute(i) splits it as far as" in illegal.verdict.help
    check_same(illegal, N=8)


def test_distribute_looks_only_at_what_the_outer_loops_leave() -> None:
    text = "def f(A: Float[Array, 'N N'], B: Float[Array, 'N N']):\n    for t in range(1, N):\n"
    text += "        for i in range(N):\n            A[t, i] = B[t - 1, i]\n"
    text += "            B[t, i] = A[t, i] + 1.0\n"
    program = read(text)
    inner = distribute(program, "i")
    assert inner.verdict.decision == "legal"
    assert body_of(inner.after).count("for i") == 2
    check_same(inner, N=5)
    with pytest.raises(TransformError, match="cannot be split"):
        distribute(program, "t")


def test_a_write_under_a_condition_is_no_read() -> None:
    # That it may leave the old value makes the order of two of them matter; it reads nothing.
    text = """
        def f(A: Float[Array, "N"], B: Float[Array, "N"]):
            t = 0.0
            for i in range(0, N):
                if A[i] > 0.0:
                    t = A[i]
                    B[i] = t
                if A[i] > 1.0:
                    B[i] = B[i] + t
        """
    verdict = reverse(read(dedent(text)), "i").verdict
    assert verdict.decision == "unknown"
    assert verdict.dependence is not None
    assert (verdict.source, verdict.dependence.kind, verdict.sink) == ("S2", "output", "S2")


def test_distribute_asks_nothing_about_a_loop_of_one_statement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("looptrans.analysis.api.edges_inside", asked)
    with pytest.raises(TransformError) as caught:
        distribute(read("def f(A, N):\n    for i in range(1, N):\n        A[i] = A[i - 1]\n"), "i")
    assert "one statement" in caught.value.why


def test_distribute_does_not_ask_for_directions_and_distances() -> None:
    # To cut these dependences into pieces takes a minute.
    text = """
        def lu(A: Float[Array, "N N"]):
            for k0 in range(0, N - 1, 2):
                for i0 in range(3 * (k0 // 3) + 1, N, 3):
                    for k in range(k0, k0 + 2):
                        for i in range(max(i0, k + 1), min(i0 + 3, N)):
                            A[i, k] = A[i, k] / A[k, k]
                            for j in range(k + 1, N):
                                A[i, j] = A[i, j] - A[i, k] * A[k, j]
        """
    step = distribute(read(dedent(text)), "i")
    assert step.verdict.decision == "legal"
    assert body_of(step.after).count("for i in") == 2
    check_same(step, N=6)


def test_distribute_keeps_private_names_where_they_are_used() -> None:
    text = "def f(A: Float[Array, 'N'], B: Float[Array, 'N']):\n"
    text += "    for i in range(0, N):\n        private: (t, u)\n        t = A[i]\n"
    text += "        A[i] = t + 1.0\n        u = B[i]\n        B[i] = u * 2.0\n"
    step = distribute(read(text), "i")
    assert step.verdict.decision == "legal"
    assert body_of(step.after) == (
        "for i in range(0, N):\n    private: t\n    t = A[i]\n    A[i] = t + 1.0\n"
        "for i in range(0, N):\n    private: u\n    u = B[i]\n    B[i] = u * 2.0"
    )
    check_same(step, N=4)


def test_distribute_renumbers_conditions() -> None:
    text = "def f(A: Float[Array, 'N'], B: Float[Array, 'N'], N):\n    for i in range(1, N):\n"
    text += "        if B[i - 1] > 0.0:\n            A[i] = 1.0\n"
    text += "        if A[i] < 2.0:\n            B[i] = -1.0\n        C[i] = B[i]\n"
    program = read(text.replace(", N):", ", C: Float[Array, 'N']):", 1))
    step = distribute(program, "i", "S3")
    assert step.verdict.decision == "legal"
    assert {label: image.statement for label, image in step.images.items()} == {
        label: label for label in ("G1", "G2", "S1", "S2", "S3")
    }
    check_same(step, N=6)


# fuse


def test_fuse_renames_the_variable_of_the_second_loop() -> None:
    text = "for i in range(N):  # one\n    A[i] = 1.0\n# above\nfor j in range(0, N):  # two\n"
    text += "    for i in range(j):\n        B[j, i] = A[j] + sum(A[k] for k in range(i))\n"
    step = fuse(read(text), "i@1", "j")
    assert listing(step.after) == (
        "for i in range(0, N):  # one\n    A[i] = 1.0\n    # above\n    # two\n"
        "    for i1 in range(0, i):\n        B[i, i1] = A[i] + sum(A[k] for k in range(0, i1))\n"
    )
    assert step.verdict.decision == "legal"
    check_same(step, N=5)


def test_fuse_is_illegal_where_a_value_would_be_read_too_early() -> None:
    text = "def f(A: Float[Array, 'N'], B: Float[Array, 'N']):\n    for i in range(0, N - 1):\n"
    text += "        A[i] = 1.0\n    for j in range(0, N - 1):\n        B[j] = A[j + 1]\n"
    step = fuse(read(text), "i", "j")
    assert step.verdict.decision == "illegal"
    assert step.verdict.help == "leave the loops apart"
    check_same(step, N=5)


def test_fuse_does_not_take_a_barrier_away() -> None:
    text = (
        "for p in parallel(0, P):\n    for i in range(N):\n        A[p, i] = 1.0\n    barrier()\n"
    )
    text += "    for j in range(N):\n        B[p, j] = A[j, p]\n"
    program = read(text)
    assert "a barrier stands between the loops i and j" in refused(
        lambda: fuse(program, "i", "j"), program
    )


def test_fuse_undoes_distribute() -> None:
    program = read(CYCLE)
    apart = distribute(program, "i", "S4").after
    assert fuse(apart, "i@S1", "i@S4").after == program


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0, N", "0, min(N, N + 1)"),
        ("0, 2 * N", "0, N + N"),
        ("0, N, 3", "0, N, 3"),
        ("0, N // 2", "0, N // 2"),
    ],
)
def test_fuse_sees_that_ranges_are_the_same(one: str, other: str) -> None:
    text = f"for i in range({one}):\n    s = 1.0\nfor j in range({other}):\n    t = 2.0\n"
    step = fuse(read(text), "i", "j")
    assert listing(step.after).count("for ") == 1
    check_same(step, N=7)


def test_fuse_may_lean_on_a_contract() -> None:
    text = "def f(A: Float[Array, 'N'], B: Float[Array, 'M']):\n    assert N == M\n"
    text += "    for i in range(N): A[i] = 1.0\n    for j in range(M): B[j] = 2.0\n"
    step = fuse(read(text), "i", "j")
    assert step.verdict.decision == "legal"
    apart = read(text.replace("    assert N == M\n", ""))
    with pytest.raises(TransformError, match="do not have the same iterations"):
        fuse(apart, "i", "j")


# Mistakes


IMPERFECT = """\
for i in range(N):
    s = 0.0
    for j in range(N):
        for k in range(n[j]):
            A[i, j] = 1.0
    B[i] = s
for l in parallel(0, N):
    for m in parallel(0, N):
        C[l, m] = 1.0
        barrier()
        C[l, m] = 2.0
for i in range(N):
    if A[i, 0] > 0.0:
        for j in range(N): B[j] = 0.0
for t in range(N): C[t, t] = 0.0
D[0] = 1.0
for u in range(N): C[u, u] = 1.0
"""


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (
            lambda p: interchange(p, "i@1", "j@3"),
            "error[E047]: S1 (s = 0.0) stands between the loops i and j\n"
            "  t.py:2:5 | s = 0.0\n"
            "             ^^^^^^^\n"
            "  in another order of the loops it would run another number of times\n"
            "  help: expand(s, i@1); distribute(i@1, S2, S3) first, or move it out of i@1",
        ),
        (
            lambda p: interchange(p, "i@1", "m"),
            "error[E047]: the loop m does not stand inside the loop i@1\n"
            "  t.py:8:5 | for m in parallel(0, N):\n"
            "             ^^^^^^^^^^^^^^^^^^^^^^^^\n"
            "  only loops inside one another can change places\n"
            "  help: name loops of one nest; looptrans show prints them",
        ),
        (
            lambda p: interchange(p, "i@12", "j@14"),
            "error[E047]: G1 (if A[i, 0] > 0.0) stands between the loops i and j\n"
            "  t.py:13:5 | if A[i, 0] > 0.0:\n"
            "              ^^^^^^^^^^^^^^^^^\n"
            "  a guard that depends on data, or has an else, decides as often as it runs\n"
            "  help: name only loops inside it, or only loops around it",
        ),
        (
            lambda p: interchange(p, "j@3", "k"),
            "error[E057]: the loop k cannot stand there: its range cannot be written down\n"
            "  t.py:4:9 | for k in range(n[j]):\n"
            "             ^^^^^^^^^^^^^^^^^^^^^\n"
            "  its bounds are no sums of loop variables and sizes, and mention a loop that would "
            "then be inside it\n"
            "  help: keep it inside that loop, or give it a range that does not depend on the loop "
            "and guard its body",
        ),
        (
            lambda p: interchange(p, "l", "m"),
            "error[E058]: the loop m has a barrier in its body\n"
            "  t.py:10:9 | barrier()\n"
            "              ^^^^^^^^^\n"
            "  barrier() belongs to this very loop, and changing the order of the loops would give "
            "it to another\n"
            "  help: do that before the loop is made parallel",
        ),
        (
            lambda p: permute(p, "j@3", "k"),
            "error[E059]: the loops j@3, k have this order already\n"
            "  t.py:3:5 | for j in range(N):\n"
            "             ^^^^^^^^^^^^^^^^^^\n"
            "  help: name them in another order, outermost first",
        ),
        (
            lambda p: skew(p, "j@3", "l", 1),
            "error[E047]: the loop j@3 does not stand inside the loop l\n"
            "  t.py:3:5 | for j in range(N):\n"
            "             ^^^^^^^^^^^^^^^^^^\n"
            "  a loop is skewed by the variable of a loop around it\n"
            "  help: name a loop around j@3: i@1",
        ),
        (
            lambda p: skew(p, "j@3", "i@1", 0),
            "error[E049]: a loop cannot be skewed by the factor 0\n"
            "  t.py:3:5 | for j in range(N):\n"
            "             ^^^^^^^^^^^^^^^^^^\n"
            "  the factor is an integer other than 0\n"
            "  help: give 1, -1, 2, …",
        ),
        (
            lambda p: strip_mine(p, "k", 0),
            "error[E049]: the loop k cannot be cut into pieces of size 0\n"
            "  t.py:4:9 | for k in range(n[j]):\n"
            "             ^^^^^^^^^^^^^^^^^^^^^\n"
            "  a size is an integer above 0\n"
            "  help: give 16, 32, 64, …",
        ),
        (
            lambda p: tile(p, "j@3", "k", 4),
            "error[E049]: 2 loops and 1 size are given\n"
            "  t.py:3:5 | for j in range(N):\n"
            "             ^^^^^^^^^^^^^^^^^^\n"
            "  a tile has one size for each loop\n"
            "  help: tile(i, j, 32, 64)",
        ),
        (
            lambda p: distribute(p, "t"),
            "error[E059]: the loop t cannot be split\n"
            "  t.py:15:1 | for t in range(N): C[t, t] = 0.0\n"
            "              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
            "  it holds one statement, loop or guard only\n"
            "  help: distribute a loop around it or inside it, or privatize or expand a local that "
            "ties its statements together",
        ),
        (
            lambda p: distribute(p, "i@1", "S1"),
            "error[E059]: there is nothing in the loop i before S1\n"
            "  t.py:2:5 | s = 0.0\n"
            "             ^^^^^^^\n"
            "  the first new loop would be empty\n"
            "  help: name the first statement of the second new loop",
        ),
        (
            lambda p: distribute(p, "i@12", "S6"),
            "error[E046]: the loop i cannot be split before S6\n"
            "  t.py:14:28 | for j in range(N): B[j] = 0.0\n"
            "                                  ^^^^^^^^^^\n"
            "  it would have to be split in the middle of what stands in it from G1 on, which "
            "stays in one piece\n"
            "  help: split before G1, or distribute the loop around S6 first",
        ),
        (
            lambda p: distribute(p, "i@12", "S2"),
            "error[E046]: S2 does not stand in the loop i\n"
            "  t.py:5:13 | A[i, j] = 1.0\n"
            "              ^^^^^^^^^^^^^\n"
            "  the loop holds G1, S6\n"
            "  help: name statements of the loop",
        ),
        (
            lambda p: fuse(p, "t", "u"),
            "error[E048]: S8 (D[0] = 1.0) stands between the loops t and u\n"
            "  t.py:16:1 | D[0] = 1.0\n"
            "              ^^^^^^^^^^\n"
            "  it would have to run before the one loop or after the other\n"
            "  help: move it above t or below u in the listing",
        ),
        (
            lambda p: fuse(p, "i@1", "l"),
            "error[E048]: the loop i is sequential, and l is parallel\n"
            "  t.py:7:1 | for l in parallel(0, N):\n"
            "             ^^^^^^^^^^^^^^^^^^^^^^^^\n"
            "  a loop is executed in one way\n"
            "  help: fuse the loops first, and parallelize the one they make",
        ),
    ],
)
def test_a_mistake_says_what_where_why_and_what_to_do(
    act: Callable[[Program], Step], expected: str
) -> None:
    program = read(IMPERFECT)
    assert refused(lambda: act(program), program) == expected


def test_all_loops_of_a_band_are_named() -> None:
    program = read(PRODUCT)
    for action in (lambda: permute(program, "k", "i"), lambda: tile(program, "i", "k", 2, 2)):
        assert "the loop j stands between the loops that are named" in refused(action, program)
    assert "the loop i is named twice" in refused(lambda: interchange(program, "i", "i"), program)


def test_a_declared_range_of_an_array_bounds_a_loop() -> None:
    text = "def f(n: Int[Array, 'B', '0:T'], x: Float[Array, 'T B']):\n    for b in range(B):\n"
    text += "        for j in range(n[b]):\n            x[j, b] = 1.0\n"
    step = interchange(read(text), "b", "j")
    assert body_of(step.after) == (
        "for j in range(0, T - 1):\n    for b in range(0, B):\n        if j < n[b]:\n"
        "            x[j, b] = 1.0"
    )


# Random nests


def _end(random: Random, outer: list[str], *, start: bool) -> str:
    options = [str(random.randint(-2, 2))] if start else ["N", "N", "M", "5", "N + 2"]
    for name in outer:
        slope = random.choice(
            [name, name, f"2 * {name}", f"{name} // 2", f"N - {name}", f"-{name}", f"{name} % 3"]
        )
        options += [slope, f"{slope} + {random.randint(1, 3)}"]
        options += [f"max({slope}, {random.randint(-1, 2)})", f"min({slope} + 4, M)"]
    return random.choice(options)


def _random_nest(random: Random) -> tuple[Program, list[str]]:
    names = ["i", "j", "k"][: random.choice([2, 2, 3])]
    heads = []
    for depth, name in enumerate(names):
        ends = [_end(random, names[:depth], start=start) for start in (True, False)]
        step = random.choice([1, 1, 1, 1, 2, 3, -1, -2])
        low, high = ends if step > 0 else ends[::-1]
        heads.append(f"for {name} in range({low}, {high}, {step}):")
        if depth < len(names) - 1 and not random.randrange(6):
            heads.append(f"if {random.choice(names[: depth + 1])} % 2 == 0 or i < 3:")
    return nest(*heads), names


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_any_affine_nest_keeps_its_iterations(random: Random) -> None:
    program, names = _random_nest(random)
    order = random.sample(names, len(names))
    sizes = [random.choice([1, 2, 3, 4]) for _ in names]
    inner, outer = names[1], names[0]
    steps: list[Callable[[], Step]] = [
        lambda: permute(program, *order),
        lambda: tile(program, *names, *sizes),
        lambda: reverse(program, random.choice(names)),
        lambda: skew(program, inner, outer, random.choice([-2, -1, 1, 3])),
        lambda: strip_mine(program, random.choice(names), random.choice([1, 2, 5])),
    ]
    with pytest.MonkeyPatch.context() as patch:
        # What is looked at here is the rewriting, not the verdict on it.
        patch.setattr(check, "check_order", lambda *_: Verdict("unknown"))
        for make in steps[0 if order != names else 1 :]:
            step = make()
            for n, m in ((0, 0), (1, 3), (4, 2), (7, 6)):
                given_sizes = {"N": n, "M": m}
                before = instances(program, given_sizes)
                assert Counter(before) == Counter(read_back(step, given_sizes)), step.name
            assert read(listing(step.after)) == step.after


def test_bounds_from_arrays_are_named_where_they_are_not_followed() -> None:
    program = read("""
def f(N, n: Int[Array, "N"], v, last):
    for i in range(N):
        for p in range(n[i], N):
            for q in range(n[i], N - p):
                last[0] = v[p, q]
    last[0] = 0.0
""")
    verdict = tile(program, "p", "q", 3, 2).verdict
    assert verdict.decision == "unknown"
    assert verdict.reason == "n[i] bound S1, and its instances are not followed"


@pytest.mark.parametrize("declared", ["0:5", "0:N+1", "1:N"])
def test_a_declared_range_bounds_the_loop_that_an_array_bounds(declared: str) -> None:
    program = read(f"""
def f(B, N, n: Int[Array, "B", "{declared}"], A, x):
    for b in range(B):
        for j in range(n[b]):
            A[j] = A[j] + x[b, j]
""")
    assert interchange(program, "b", "j").verdict.decision == "legal"
    assert tile(program, "b", "j", 2, 3).verdict.decision == "legal"
    backward = reverse(program, "b").after
    assert interchange(backward, "b", "j").verdict.decision == "legal"
    assert reverse(program, "b").verdict.decision == "illegal"


def test_numbers_are_an_example_with_their_own_contents() -> None:
    program = read("""
def f(R, M, n: Int[Array, "M", "0:M"], A: Float[Array, "R M"], x: Float[Array, "M M"]):
    for r in parallel(0, R):
        for p in range(0, M):
            for j in range(0, M):
                if x[p, j] > 1.0:
                    A[r, n[p]] = A[r, n[j]] * 0.5 + x[p, j]
""")
    step = tile(program, "p", "j", 2, 2)
    assert step.verdict.witness is not None
    seed = int(step.verdict.reason.partition("(seed ")[2].partition(")")[0])
    inputs = inputs_of(program, step.verdict.witness, seed)
    assert not np.allclose(execute_on(program, inputs)["A"], execute_on(step.after, inputs)["A"])


def test_two_loops_of_one_name_are_not_called_i_and_i() -> None:
    text = "for i in range(N):\n    x[i] = y[i]\nfor i in range(1, N):\n    z[i] = x[i - 1]\n"
    program = parse(Source("nest.py", text))
    with pytest.raises(TransformError, match="the two loops i do not have the same iterations"):
        fuse(program, "i@1", "i@3")


@pytest.mark.parametrize(
    "text",
    [
        "def f(A, B, N):\n for i in range(N):\n  A[i] = A[i - 1] + B[i]\n",
        "def f(A, B, N):\n for i in range(N):\n  A[i] = B[i]\n  B[i + 1] = A[i - 2]\n",
        'def f(A: Float[Array, "N"], B, N):\n for i in range(N):\n  A[i + 1] = A[i] + B[i]\n',
    ],
)
def test_no_step_is_legal_because_no_iteration_stays_inside_an_array(text: str) -> None:
    for step in (parallelize(read(text), "i"), reverse(read(text), "i")):
        assert step.verdict.decision == "illegal"
        assert step.verdict.witness is not None


def test_sizes_at_which_some_iterations_stay_inside_an_array_are_enough() -> None:
    text = "def f(A, B, N, M):\n for i in range(N):\n  A[i] = A[M + i] + B[M - N]\n"
    verdict = reverse(read(text), "i").verdict
    assert verdict.decision == "legal"
    assert verdict.assumptions == ("every subscript of the listing stays inside its array",)


@pytest.mark.parametrize("bounds", ["t * P, t * P + M", "t // P, (t + M) // P", "P * t, N"])
def test_a_loop_between_multiples_of_what_stands_around_it_is_followed(bounds: str) -> None:
    program = read(f"""
def f(A, B, N, M, P):
    for t in range(N):
        for j in range({bounds}):
            A[j] = A[j + 1] + B[t]
""")
    step = strip_mine(program, "j", 2)
    assert step.verdict.decision == "legal"
    assert agrees(step, [{"N": 3, "M": 4, "P": 2}])
    assert reverse(program, "j").verdict.decision == "illegal"


def test_multiples_are_named_as_they_are_written() -> None:
    program = read("""
def f(A, B, N, M, P):
    for t in range(N):
        for j in range(t * P, t * P + M):
            s = A[j]
            B[j] = s
""")
    verdict = expand(program, "s", "j").verdict
    assert verdict.decision == "unknown"
    assert "through opaque terms: t * P, " in verdict.reason


def test_a_trial_that_does_not_end_leaves_unknown_what_is(monkeypatch: pytest.MonkeyPatch) -> None:
    program = read("""
def f(B, N, n: Int[Array, "B"], cu: Int[Array, "B"], A):
    assert all(cu[b] + n[b] <= cu[b + 1] for b in range(B - 1))
    for b in range(B):
        for i in range(n[b]):
            A[cu[b] + i] = A[cu[b] + i] * 2.0 + b
""")

    def without_end(*_: Any) -> Verdict:
        while True:
            pass

    monkeypatch.setattr("looptrans.transforms.judging.check.refuted", without_end)
    monkeypatch.setattr(
        "looptrans.analysis.budget.within_budget",
        lambda work, seconds=0.2: within_budget(work, seconds),
    )
    assert reverse(program, "b").verdict.decision == "unknown"
