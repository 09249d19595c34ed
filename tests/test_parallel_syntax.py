"""Parallel loops, private names, atomic and reduce blocks, barriers: read, printed, and refused."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from looptrans.cli.main import main
from looptrans.frontend import parse
from looptrans.frontend.placement import annotated_placement
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.index import Let, Var
from looptrans.ir.listing import listing
from looptrans.ir.program import Assign, Atomic, Barrier, BlockReduce, Loop, Program
from looptrans.ir.source import Source
from looptrans.ir.walk import loops, nodes, placed
from tests.native import run_native
from tests.oracle.nests import Nest, made, nests
from tests.parallelizer import Parallelizer
from tests.test_bad_input import mistakes_of, underlined


def read(text: str) -> Program:
    return parse(Source("t.py", text))


def printed(text: str) -> str:
    """The canonical listing, which reads back as the same program and prints the same again."""
    program = read(text)
    canonical = listing(program)
    assert read(canonical) == program, canonical
    assert listing(read(canonical)) == canonical
    return canonical


# What is written, and how it is printed

ALL = """\
def f(A, x, N, D):
    t = zeros(D)
    s = 0.0
    # above the loop
    for i in parallel(0, N):  # rows
        private: (t, k)
        # above the first statement
        k = i + 1  # S1: next
        for j in parallel(0, D, 2):
            # in turn
            with atomic(turn=j):  # ordered
                # inside
                A[k, j] = max(A[k, j], x[j])
            # all together now
            barrier()  # wait
            with reduce("+"):
                for d in range(0, 3):
                    if d > j:
                        s += x[d]
            with reduce("max"):
                pass
        for d in range(0, D):
            private: q
            q = x[d]
            if q > 0.0:
                with atomic():
                    x[d] = q + A[k, d]
        with atomic():
            pass
        for e in range(0, D):
            private: t
            pass
    return s
"""


def test_the_canonical_listing_is_its_own() -> None:
    assert printed(ALL) == ALL


def test_what_is_read() -> None:
    program = read(ALL)
    i, j, _, d, e = loops(program)
    assert [loop.execution for loop in (i, j, d, e)] == [
        "parallel",
        "parallel",
        "sequential",
        "sequential",
    ]
    assert [loop.private for loop in (i, j, d, e)] == [("t", "k"), (), ("q",), ("t",)]
    turn, barrier, total, largest = j.body
    assert isinstance(turn, Atomic)
    assert (turn.turn, turn.comment, turn.leading) == ("j", "ordered", ("in turn",))
    assert barrier == Barrier("wait", ("all together now",))
    assert isinstance(total, BlockReduce)
    assert isinstance(largest, BlockReduce)
    assert (total.operator, largest.operator, largest.body) == ("+", "max", ())
    assert i.body[3] == Atomic((), None)
    assert e.body == ()


def test_what_surrounds_a_statement() -> None:
    text = (
        "for i in parallel(N):\n    A[i] = 1.0\n    barrier()\n    with atomic():\n"
        "        for j in range(N): B[j] += A[i]\n    barrier(); C[i] = B[i]\n"
    )
    first, second, third = placed(read(text))
    assert [p.phases for p in (first, second, third)] == [(0,), (1, 0), (2,)]
    assert [len(p.sections) for p in (first, second, third)] == [0, 1, 0]


OTHER_WAYS = {
    "for j in parallel(N): x[j] = 0.0": "for j in parallel(0, N):\n    x[j] = 0.0\n",
    "for j in prange(1, N): x[j] = 0.0": "for j in parallel(1, N):\n    x[j] = 0.0\n",
    "for j in numba.prange(0, N, 2): x[j] = 0.0": ("for j in parallel(0, N, 2):\n    x[j] = 0.0\n"),
    "for j in parallel(N - 1, -1, -1): x[j] = 0.0": (
        "for j in parallel(N - 1, -1, -1):\n    x[j] = 0.0\n"
    ),
    "for j in range(N): private: (s); s = x[j]; x[j] = s * s": (
        "for j in range(0, N):\n    private: s\n    s = x[j]\n    x[j] = s * s\n"
    ),
    "for j in range(N):\n    private: [s, t]\n    s, t = x[j], 0.0\n    x[j] = s + t": (
        "for j in range(0, N):\n    private: (s, t)\n    s, t = x[j], 0.0\n    x[j] = s + t\n"
    ),
    "for j in parallel(N):\n    with reduce('max'):\n        if x[j] > y[0]: y[0] = x[j]": (
        'for j in parallel(0, N):\n    with reduce("max"):\n        y[0] = max(y[0], x[j])\n'
    ),
    "for j in parallel(N):\n    with reduce('*'): y[0] = y[0] * (x[j] + 1.0)": (
        'for j in parallel(0, N):\n    with reduce("*"):\n        y[0] = y[0] * (x[j] + 1.0)\n'
    ),
    "for j in parallel(N):\n    with reduce('+'): O[0] += x[j] * V[j, :]": (
        'for j in parallel(0, N):\n    with reduce("+"):\n        O[0] += x[j] * V[j, :]\n'
    ),
    "for j in parallel(N):\n    with atomic(turn=j): y[0] = y[0] + x[j]; z[0] = y[0]": (
        "for j in parallel(0, N):\n    with atomic(turn=j):\n"
        "        y[0] = y[0] + x[j]\n        z[0] = y[0]\n"
    ),
    # A creation at the top gives a private name its shape.
    "def f(x, N):\n    t = zeros(3)\n    for j in parallel(N):\n        private: t\n"
    "        t[0] = x[j]\n        x[j] = t[0]": (
        "def f(x, N):\n    t = zeros(3)\n    for j in parallel(0, N):\n        private: t\n"
        "        t[0] = x[j]\n        x[j] = t[0]\n"
    ),
    # What a comment beside private: says goes to the statement below.
    "for j in range(N):  # a\n    # b\n    private: s  # c\n    # d\n    s = x[j]  # e\n"
    "    x[j] = s": (
        "for j in range(0, N):  # a\n    private: s\n    # b\n    # c\n    # d\n    s = x[j]  # e\n"
        "    x[j] = s\n"
    ),
}


@pytest.mark.parametrize("text", OTHER_WAYS)
def test_other_ways_to_write_it(text: str) -> None:
    assert printed(text + "\n") == OTHER_WAYS[text]


def test_a_parallel_loop_is_not_a_sequential_one() -> None:
    assert read("for i in parallel(3): A[i] = 0.0\n") != read("for i in range(3): A[i] = 0.0\n")


# The words are ordinary names where nothing else is meant

ORDINARY = {
    "an array private": "for i in range(0, N):\n    private[i] = 1.0\n",
    "a scalar private": "for i in range(0, N):\n    private = A[i]\n    A[i] = private * 2.0\n",
    "an array parallel": "for i in range(0, N):\n    parallel[i] = parallel[i] + 1.0\n",
    "a size atomic": "for i in range(0, atomic):\n    A[i] = 1.0\n",
    "a loop barrier": "for barrier in range(0, N):\n    A[barrier] = 1.0\n",
    "an array reduce": "for i in range(0, N):\n    reduce[0] += A[i]\n",
    "a function parallel": (
        "def parallel(x, N):\n    for i in parallel(0, N):\n        x[i] = 1.0\n"
    ),
    "arguments": "def f(private, parallel, atomic, reduce, barrier, prange):\n"
    "    for i in range(0, prange):\n"
    "        private[i] = parallel * atomic + reduce[i] - barrier\n",
    "an array private that is private": "def f(x, N):\n    private = zeros(2)\n"
    "    for i in range(0, N):\n        private: private\n        private[0] = x[i]\n"
    "        x[i] = private[0]\n",
    "an array private beside a private name": "for i in range(0, N):\n    private: s\n"
    "    s = private[i]\n    private[i] = s + 1.0\n",
    "an array barrier in a parallel loop": "for i in parallel(0, N):\n    barrier[i] = 1.0\n",
}


@pytest.mark.parametrize("case", ORDINARY)
def test_an_ordinary_name(case: str) -> None:
    assert printed(ORDINARY[case]) == ORDINARY[case]


def test_a_declared_number_called_private_is_no_private_line() -> None:
    text = "def f(x, N):\n    for i in range(N):\n        private: float\n        private = x[i]\n"
    (loop,) = loops(read(text + "        x[i] = private\n"))
    assert loop.private == ()
    assert len(loop.body) == 2


SHIMS = """\
from contextlib import contextmanager

parallel = range

@contextmanager
def atomic(turn=None):
    yield

@contextmanager
def reduce(operator):
    yield

def barrier():
    return None

"""


def test_a_text_that_defines_the_words_to_run_under_python() -> None:
    assert printed(SHIMS + ALL) == ALL
    # Anywhere else the text's own helper is meant.
    helper = "def reduce(a): return a * 2.0\n\ndef f(x, N):\n    for i in range(N): "
    assert listing(read(helper + "x[i] = reduce(x[i])\n")).endswith("x[i] = x[i] * 2.0\n")


# Integer scalars in subscripts


def test_a_private_index_is_what_the_iteration_set_it_to() -> None:
    text = "for j in parallel(N):\n    private: k\n    k = j + 1\n    barrier()\n    A[k] = 0.0\n"
    (place,) = [p for p in placed(read(text)) if p.label == "S2"]
    assert isinstance(place.node, Assign)
    (index,) = place.node.targets[0].indices
    assert isinstance(index, Let)
    assert Var("j") in (index.value.left, index.value.right)  # type: ignore[union-attr]


NO_INDEX = {
    "behind a barrier, another iteration may have set it last": (
        "for j in parallel(N):\n    k = j\n    barrier()\n    A[k] = 0.0\n"
    ),
    "private to the loop around, and so shared by the iterations of j": (
        "for i in range(N):\n    private: k\n    for j in parallel(N):\n        k = j\n"
        "        barrier()\n        A[k] = 0.0\n"
    ),
    "the inner loop has a k of its own": (
        "for i in range(N):\n    private: k\n    k = i\n    for j in range(N):\n"
        "        private: k\n        A[k] = 0.0\n"
    ),
    "updates are joined at the end": (
        "for j in parallel(N):\n    k = 0\n    with reduce('+'): k += 1\n    A[k] = 0.0\n"
    ),
}


@pytest.mark.parametrize("case", NO_INDEX)
def test_a_scalar_that_is_no_index(case: str) -> None:
    (mistake,) = mistakes_of(NO_INDEX[case])
    assert mistake.code == "E013"
    assert "'k'" in mistake.message


# The annotated placement

CLAIMED = """\
for i in parallel(0, M):
    for j in range(0, N):
        q = Q[i]  # S1: TLoop: i
        with atomic():
            O[i] += q * K[j]  # S2: TLoop: i
"""


def test_a_section_stays_where_it_is() -> None:
    after = listing(annotated_placement(read(CLAIMED)))
    assert after == (
        "for i in parallel(0, M):\n    q = Q[i]  # S1: TLoop: i\n    for j in range(0, N):\n"
        "        with atomic():\n            O[i] += q * K[j]  # S2: TLoop: i\n"
    )
    assert read(after) == annotated_placement(read(CLAIMED))


def test_private_names_are_not_torn_apart() -> None:
    text = CLAIMED.replace("        q =", "        private: q\n        q =")
    with pytest.raises(ListingError) as caught:
        annotated_placement(read(text))
    (mistake,) = caught.value.mistakes
    assert mistake.code == "E026"
    assert underlined(mistake, text) == "q = Q[i]"
    assert mistake.message == "S1 would leave the loop j, which has private names: q"
    assert "--placement literal" in mistake.remedy


def test_the_command_line_refuses_that_placement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.py"
    path.write_text(CLAIMED.replace("        q =", "        private: q\n        q ="))
    assert main(["show", str(path)]) == 0
    assert main(["show", str(path), "--placement", "annotated"]) == 2
    assert "error[E026]" in capsys.readouterr().err


# Under plain NumPy

SOFTMAX = """\
def attention(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    largest = full(M, -inf)
    total = zeros(M)
    for i in parallel(0, M):
        for j in parallel(0, N):
            private: s
            s = Q[i] @ K[j]
            with reduce("max"):
                largest[i] = max(largest[i], s)
    for i in parallel(0, M):
        for j in parallel(0, N):
            private: p
            p = exp(Q[i] @ K[j] - largest[i])
            with atomic():
                total[i] += p
            with atomic(turn=j):
                for d in parallel(0, D):
                    O[i, d] += p * V[j, d]
        barrier()
        for d in range(0, D):
            O[i, d] = O[i, d] / total[i]
    return O
"""


def test_a_parallel_listing_runs_under_numpy() -> None:
    random = np.random.default_rng(0)
    Q, K, V = (random.standard_normal(shape) for shape in ((3, 4), (5, 4), (5, 2)))
    found = run_native(printed(SOFTMAX), None, Q=Q, K=K, V=V)["O"]
    weights = np.exp(Q @ K.T)
    np.testing.assert_allclose(found, weights / weights.sum(1, keepdims=True) @ V, rtol=1e-12)


# Random nests, made parallel at random


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(nests(data_guards=True, opaque=True), st.randoms(use_true_random=False))
def test_generated_nests(nest: Nest, random: Random) -> None:
    try:
        program = read(nest.source)
    except ListingError:
        return
    changed = Parallelizer(random, program).result()
    canonical = listing(changed)
    try:
        again = read(canonical)
    except ListingError as error:
        # An integer scalar in a subscript that a barrier makes uncertain.
        assert {m.code for m in error.mistakes} == {"E013"}, canonical
        assert "barrier()" in canonical
        return
    assert again == changed, canonical
    assert listing(again) == canonical


def test_the_generated_nests_have_all_of_it() -> None:
    seen: set[str] = set()
    for seed in range(200):
        random = Random(seed)
        try:
            program = read(made(random, data_guards=True, opaque=True).source)
        except ListingError:
            continue
        for node in nodes(Parallelizer(random, program).result().body):
            seen.add(type(node).__name__)
            match node:
                case Loop(private=names, execution=execution):
                    seen |= {execution, *(["private"] if names else [])}
                case Atomic(turn=str()):
                    seen.add("turn")
                case _:
                    pass
    assert seen >= {"Atomic", "BlockReduce", "Barrier", "parallel", "private", "turn", "sequential"}
