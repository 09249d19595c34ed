"""The oracle against hand-computed examples and plain execution; what the generator produces."""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import takewhile
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.oracle.nests import FEATURES, Nest, made
from tests.oracle.trace import Access, Pair, loops, memory, trace, value_flow

KINDS = ("flow", "anti", "output")


def log(source: str, **sizes: int) -> list[Access]:
    return trace(source, sizes=sizes)


def events(accesses: list[Access]) -> list[str]:
    """Write accesses as `S1(0,2) reads A[1]`, with `?` where data decided."""

    def name(access: Access) -> str:
        cell = f"[{','.join(map(str, access.cell))}]" if access.cell else ""
        return f"{access.array}{cell}{'?' if access.conditional else ''}"

    return [
        f"{a.statement}({','.join(map(str, a.iteration))}) "
        f"{'writes' if a.write else 'reads'} {name(a)}"
        for a in accesses
    ]


# Hand-computed examples.


def test_a_recurrence_has_flow_at_distance_one() -> None:
    t = log("for i in range(1, N):\n    A[i] = A[i - 1]\n", N=4)
    assert events(t)[:2] == ["S1(1) reads A[0]", "S1(1) writes A[1]"]
    expected = {("S1", (1,), "S1", (2,), "A"), ("S1", (2,), "S1", (3,), "A")}
    assert value_flow(t) == memory(t, "flow") == expected
    assert memory(t, "anti") == memory(t, "output") == set()


def test_an_accumulator_has_all_three_kinds() -> None:
    t = log("def f(A, N):\n    s = 0.0\n    for i in range(N):\n        s += A[i]\n", N=2)
    assert events(t) == [
        "S1() writes s",
        "S2(0) reads s",
        "S2(0) reads A[0]",
        "S2(0) writes s",
        "S2(1) reads s",
        "S2(1) reads A[1]",
        "S2(1) writes s",
    ]
    step = ("S2", (0,), "S2", (1,), "s")
    assert value_flow(t) == {("S1", (), "S2", (0,), "s"), step}
    assert memory(t, "flow") == {*value_flow(t), ("S1", (), "S2", (1,), "s")}
    assert memory(t, "anti") == {step}
    assert memory(t, "output") == memory(t, "flow")


def test_only_the_last_writer_is_a_value_dependence() -> None:
    t = log("x = 1.0\nx = 2.0\nfor i in range(1):\n    A[i] = x\n")
    assert value_flow(t) == {("S2", (), "S3", (0,), "x")}
    assert memory(t, "flow") == {("S1", (), "S3", (0,), "x"), ("S2", (), "S3", (0,), "x")}


def test_anti_dependence_of_a_shift_to_the_left() -> None:
    t = log("for i in range(N):\n    A[i] = A[i + 1]\n", N=3)
    assert value_flow(t) == set()
    assert memory(t, "anti") == {("S1", (0,), "S1", (1,), "A"), ("S1", (1,), "S1", (2,), "A")}


def test_an_affine_guard_records_nothing_and_elif_is_nested() -> None:
    source = """
        def f(A, B, N):
            for i in range(N):
                if i == 0 or i > 2:
                    A[i] = 1.0
                elif i % 2 == 0:
                    A[i] = B[i]
                else:
                    A[i] = A[i - 1]
    """
    t = log(source, N=4)
    assert events(t) == [
        "S1(0) writes A[0]",
        "S3(1) reads A[0]",
        "S3(1) writes A[1]",
        "S2(2) reads B[2]",
        "S2(2) writes A[2]",
        "S1(3) writes A[3]",
    ]
    assert value_flow(t) == {("S1", (0,), "S3", (1,), "A")}


def test_a_data_guard_is_a_statement_and_its_branches_are_conditional() -> None:
    source = """
        for i in range(N):
            if A[i] > 0.0:
                B[i] = A[i]
            else:
                if B[i] < 0.0:
                    B[i] = 1.0
    """
    data = {"A": np.array([1.0, -1.0]), "B": np.array([5.0, -5.0])}
    t = trace(source, sizes={"N": 2}, arrays=data)
    assert events(t) == [
        "G1(0) reads A[0]",
        "S1(0) reads A[0]?",
        "S1(0) writes B[0]?",
        "G1(1) reads A[1]",
        "G2(1) reads B[1]?",
        "S2(1) writes B[1]?",
    ]
    assert memory(t, "anti") == {("G2", (1,), "S2", (1,), "B")}


def test_a_guard_with_a_local_is_a_data_guard_and_a_parameter_is_none() -> None:
    source = "for i in range(2):\n    k = i\n    if k < 1 and i < N:\n        A[i] = alpha\n"
    assert events(log(source, N=1)) == [
        "S1(0) writes k",
        "G1(0) reads k",
        "S2(0) writes A[0]?",
        "S1(1) writes k",
        "G1(1) reads k",
    ]
    assert events(log("for i in range(1):\n    if N > 0:\n        A[i] = alpha\n", N=1)) == [
        "S1(0) writes A[0]"
    ]


def test_ternaries_are_lazy_and_where_is_not() -> None:
    arrays = {"A": np.array([1.0, -1.0])}
    affine = "for i in range(2):\n    C[i] = A[i] if i == 0 else B[i]\n"
    assert events(trace(affine, sizes={}, arrays=arrays)) == [
        "S1(0) reads A[0]",
        "S1(0) writes C[0]",
        "S1(1) reads B[1]",
        "S1(1) writes C[1]",
    ]
    data = "for i in range(2):\n    C[i] = B[i] if A[i] > 0.0 else 0.0\n"
    assert events(trace(data, sizes={}, arrays=arrays)) == [
        "S1(0) reads A[0]",
        "S1(0) reads B[0]?",
        "S1(0) writes C[0]",
        "S1(1) reads A[1]",
        "S1(1) writes C[1]",
    ]
    eager = "for i in range(1):\n    C[i] = where(A[i] > 0.0, B[i], D[i])\n"
    assert [e for e in events(trace(eager, sizes={}, arrays=arrays)) if "reads" in e] == [
        "S1(0) reads A[0]",
        "S1(0) reads B[0]",
        "S1(0) reads D[0]",
    ]


def test_short_circuits() -> None:
    source = "for i in range(2):\n    if i > 0 and A[i] > 0.0 and B[i] > 0.0:\n        C[i] = 1.0\n"
    t = trace(source, sizes={}, arrays={"A": np.ones(2), "B": -np.ones(2)})
    assert events(t) == ["G1(1) reads A[1]", "G1(1) reads B[1]?"]


def test_rows_are_all_their_cells() -> None:
    source = """
        def f(Q: Float[Array, "M E"], K: Float[Array, "N E"]):
            O = zeros((M, E)); m = full(M, -inf)
            for i in range(M):
                q = Q[i]
                m[i] = q @ K[0, :]
                O[i] = q * m[i]
            return O
    """
    t = log(source, M=1, N=1, E=2)
    assert events(t) == [
        *("S1(0) reads Q[0,0]", "S1(0) reads Q[0,1]"),
        *("S1(0) writes q[0]", "S1(0) writes q[1]"),
        *("S2(0) reads q[0]", "S2(0) reads q[1]", "S2(0) reads K[0,0]", "S2(0) reads K[0,1]"),
        "S2(0) writes m[0]",
        *("S3(0) reads q[0]", "S3(0) reads q[1]", "S3(0) reads m[0]"),
        *("S3(0) writes O[0,0]", "S3(0) writes O[0,1]"),
    ]


def test_a_let_in_a_subscript_is_read_and_chained_subscripts_are_one() -> None:
    source = "for i in range(1):\n    k = i + 1\n    A[k][i] = A[k, i + 1]\n"
    assert events(log(source)) == [
        "S1(0) writes k",
        "S2(0) reads k",
        "S2(0) reads A[1,1]",
        "S2(0) reads k",
        "S2(0) writes A[1,0]",
    ]


def test_a_negative_step_keeps_the_variables_own_values() -> None:
    t = log("for i in range(N - 1, -1, -2):\n    A[i] = A[i + 2]\n", N=4)
    assert value_flow(t) == {("S1", (3,), "S1", (1,), "A")}


def test_negative_subscripts_are_cells() -> None:
    t = log("for i in range(2):\n    A[i] = A[i - 1]\n")
    assert events(t)[0] == "S1(0) reads A[-1]"
    assert value_flow(t) == {("S1", (0,), "S1", (1,), "A")}


def test_the_select_idiom_reads_and_writes_unconditionally() -> None:
    source = """
        s = 0.0
        for i in range(2):
            if A[i] > s: s = A[i]  # S7: the largest
            if m[0] >= s:
                m[0] = s
    """
    t = trace(source, sizes={}, arrays={"A": np.array([3.0, 1.0]), "m": np.array([9.0])})
    assert events(t)[1:7] == [
        "S7(0) reads A[0]",
        "S7(0) reads s",
        "S7(0) writes s",
        "S2(0) reads m[0]",
        "S2(0) reads s",
        "S2(0) writes m[0]",
    ]
    assert ("S7", (0,), "S7", (1,), "s") in value_flow(t)
    other = "s = 0.0\nfor i in range(1):\n    if A[i] > s: s = A[i] + 1.0\n"
    assert "G1" in {a.statement for a in log(other)}


def test_a_tuple_assignment_reads_first_then_writes_left_to_right() -> None:
    source = "for i in range(1):\n    A[i], b = A[i + 1], A[i]\n    c = d = b\n"
    assert events(log(source)) == [
        "S1(0) reads A[1]",
        "S1(0) reads A[0]",
        "S1(0) writes A[0]",
        "S1(0) writes b",
        "S2(0) reads b",
        "S2(0) writes c",
        "S2(0) writes d",
    ]


def test_labels_come_from_comments_and_the_rest_are_counted_around_them() -> None:
    source = """
        def f(A, N):
            z = zeros(N)  # S9: a declaration has no label
            for i in range(N):  # S8
                a = A[i]  # S2: taken
                b = a  # not S5: a label
                c = b  # S4# more
                d = c; e = d  # S1
                z[i] = (
                    e
                )  # Out3
                f = e
    """
    assert loops(source) == dict.fromkeys(("S2", "S3", "S4", "S5", "S1", "Out3", "S6"), (1,))
    assert [a.array for a in log(source, N=1) if a.write] == ["a", "b", "c", "d", "e", "z", "f"]


def test_loops_are_told_apart_by_their_place() -> None:
    source = """
        for i in range(N):
            for j in range(N):
                A[i] = B[j]
            for j in range(N):
                if A[j] > 0.0:
                    A[i] = 0.0
        for i in range(N):
            A[i] = 1.0
    """
    assert loops(source) == {"S1": (1, 2), "G1": (1, 3), "S2": (1, 3), "S3": (4,)}


def test_creation_is_a_declaration_before_the_loops_and_a_statement_inside() -> None:
    source = """
        def f(N):
            P = zeros(N)
            for i in range(1):
                acc = zeros(2)
                P[i] = sum(acc[e] for e in range(2))
            R = ones(N)
    """
    assert events(log(source, N=1)) == [
        *("S1(0) writes acc[0]", "S1(0) writes acc[1]"),
        *("S2(0) reads acc[0]", "S2(0) reads acc[1]", "S2(0) writes P[0]"),
        "S3() writes R[0]",
    ]


def test_opaque_arrays_record_nothing_in_bounds_subscripts_and_guards() -> None:
    source = """
        def f(A, n: Int[Array, "B"], cu: Int[Array, "B+1"], B):
            assert all(cu[b] <= cu[b + 1] for b in range(B))
            for b in range(B):
                for j in range(n[b]):
                    if n[b] > j and cu[b] == 0:
                        A[cu[b] + j] = n[b] * 1.0
    """
    integers = {"n": np.array([2, 1]), "cu": np.array([0, 2, 3])}
    assert events(trace(source, sizes={"B": 2}, arrays=integers)) == [
        *("S1(0,0) reads n[0]", "S1(0,0) writes A[0]"),
        *("S1(0,1) reads n[0]", "S1(0,1) writes A[1]"),
    ]


def test_an_integer_array_that_is_written_is_an_array_like_any_other() -> None:
    source = """
        def f(A, at: Int[Array, "N"], N):
            for i in range(N):
                at[i] = i
                A[at[i]] = 1.0
    """
    assert events(log(source, N=1)) == [
        *("S1(0) writes at[0]", "S2(0) reads at[0]", "S2(0) writes A[0]")
    ]


def test_integer_ranges_of_annotations_hold() -> None:
    source = """
        def f(A, page: Int[Array, "B T", "1:NP"], B, T):
            for b in range(B):
                for t in range(T):
                    A[page[b, t]] = 0.0
    """
    cells = {a.cell[0] for a in log(source, B=5, T=5, NP=4)}
    assert cells == {1, 2, 3}


def test_helpers_are_called_with_values_and_parameters_may_be_attributes() -> None:
    source = """
        def gelu(x):
            return x / (1.0 + exp(-scale * x))

        class Layer:
            def forward(self, A):
                def twice(y):
                    return gelu(y) * 2.0
                for i in range(self.N):
                    A[i] = twice(A[i])
    """
    assert events(log(source, N=1, scale=2)) == ["S1(0) reads A[0]", "S1(0) writes A[0]"]


def test_overflow_and_division_by_zero_do_not_stop_a_listing() -> None:
    source = """
        s = 10.0
        for i in range(12):
            s = s ** 2 / (i - 3) + (i // (i - i)) % 0.0
            t = exp(s) - 2 ** (i * 1000) * log(-s) + 1 / (i - i)
            u = max(s, t) * sqrt(-1.0)
    """
    assert len(log(source)) == 1 + 12 * 8


def test_equal_seeds_give_equal_traces() -> None:
    source = "for i in range(20):\n    if A[i] > 0.0:\n        B[i] = 1.0\n"
    runs = [trace(source, sizes={}, seed=seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize(
    "source",
    [
        "while True:\n    A[0] = 1.0\n",
        "for i in A:\n    B[i] = 1.0\n",
        "for i in range(3):\n    B[i / 2] = 1.0\n",
        "for i in range(3):\n    break\n",
        "for i in range(3):\n    i = 2\n",
        "for i in range(3):\n    A[i] = 1.0  # S1\n    A[i] = 2.0  # S1\n",
    ],
)
def test_what_is_not_known_is_refused(source: str) -> None:
    with pytest.raises(ValueError):
        log(source)


# Generated listings.


@cache
def samples(data_guards: bool, opaque: bool) -> list[tuple[Nest, list[Access]]]:
    random = Random(f"{data_guards} {opaque}")
    found = [made(random, data_guards=data_guards, opaque=opaque) for _ in range(200)]
    return [(nest, trace(nest.source, sizes=nest.sizes, arrays=nest.arrays)) for nest in found]


def carried_outside(pair: Pair, paths: dict[str, tuple[int, ...]]) -> bool:
    """Whether the pair is carried by a common loop that is not the innermost common one."""
    source, at, sink, there, _ = pair
    shared = takewhile(
        lambda ends: ends[0] == ends[1], zip(paths[source], paths[sink], strict=False)
    )
    common = len(list(shared))
    return at[: max(common - 1, 0)] != there[: max(common - 1, 0)]


VARIANTS = pytest.mark.parametrize(
    ("data_guards", "opaque"), [(False, False), (True, False), (False, True), (True, True)]
)


@VARIANTS
def test_generated_nests_run_and_set_before_they_read(data_guards: bool, opaque: bool) -> None:
    for nest, accesses in samples(data_guards, opaque):
        assert len(accesses) < 2000
        assert nest.features <= FEATURES
        assert all(x >= 0 for a in accesses for x in a.cell), nest.source
        set_before: set[str] = set()
        for access in accesses:
            if access.write:
                set_before.add(access.array)
            else:
                assert access.cell or access.array in set_before, nest.source
        assert ("data_guard" in nest.features) >= any(a.conditional for a in accesses)
        given = {**nest.sizes, **nest.arrays}
        for line in nest.source.splitlines():
            if line.strip().startswith("assert"):
                assert eval(line.strip().removeprefix("assert"), {**given})


@VARIANTS
def test_generated_nests_are_varied(data_guards: bool, opaque: bool) -> None:
    found = samples(data_guards, opaque)
    share = Counter(feature for nest, _ in found for feature in nest.features)
    bent = sum(bool(nest.features & {"guard", "non_rectangular"}) for nest, _ in found)
    outside = 0
    for nest, accesses in found:
        paths = loops(nest.source)
        pairs = value_flow(accesses).union(*(memory(accesses, kind) for kind in KINDS))
        outside += any(carried_outside(pair, paths) for pair in pairs)
    assert len({nest.source for nest, _ in found}) > 0.9 * len(found)
    assert bent >= 0.3 * len(found)
    assert outside >= 0.3 * len(found)
    expected = FEATURES - ({"data_guard", "select"} if not data_guards else set())
    expected -= {"opaque", "contract"} if not opaque else set()
    assert set(share) == expected
    assert min(share.values()) >= 0.1 * len(found), share


# The tracer against plain execution.


class Recorded:
    """A plain array that notes the subscripts that Python itself hands to it."""

    def __init__(self, name: str, data: Any, notes: list[Any], at: tuple[int, ...] = ()) -> None:
        self.name, self.data, self.notes, self.at = name, data, notes, at

    def cell(self, key: int | tuple[int, ...]) -> tuple[int, ...]:
        return self.at + (key if isinstance(key, tuple) else (key,))

    def __getitem__(self, key: int | tuple[int, ...]) -> Any:
        cell = self.cell(key)
        if len(cell) < self.data.ndim:
            return Recorded(self.name, self.data, self.notes, cell)
        self.notes.append((self.name, cell, False))
        return self.data[cell]

    def __setitem__(self, key: int | tuple[int, ...], value: Any) -> None:
        self.notes.append((self.name, self.cell(key), True))
        self.data[self.cell(key)] = value


def extremum(exact: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs: exact(xs) if all(isinstance(x, int) for x in xs) else real(*xs)


def ranks(nest: Nest) -> list[tuple[str, int]]:
    """Return the arrays of a listing that are no integer arrays, with their ranks."""
    found: dict[str, int] = {}
    for start in ast.walk(ast.parse(nest.source)):
        node, rank = start, 0
        while isinstance(node, ast.Subscript):
            rank += len(node.slice.elts) if isinstance(node.slice, ast.Tuple) else 1
            node = node.value
        if rank and isinstance(node, ast.Name) and node.id not in {"Int", *nest.arrays}:
            found[node.id] = max(rank, found.get(node.id, 0))
    return sorted(found.items())


def plainly(nest: Nest, data: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """Run a listing as plain Python and yield what it does to the arrays in `data`."""
    notes: list[Any] = []
    recorded = {name: Recorded(name, array.copy(), notes) for name, array in data.items()}
    space: dict[str, Any] = {
        "max": extremum(builtins.max, np.maximum),
        "min": extremum(builtins.min, np.minimum),
        "alpha": np.float64(0.75),
        **nest.sizes,
        **{name: array.tolist() for name, array in nest.arrays.items() if array.ndim == 1},
        **{name: array for name, array in nest.arrays.items() if array.ndim == 2},
        **recorded,
    }
    with np.errstate(all="ignore"):
        if nest.source.startswith("def"):
            text = f"from __future__ import annotations\n{nest.source}"
            exec(text, space)
            code = space["nest"].__code__
            space["nest"](*(space[n] for n in code.co_varnames[: code.co_argcount]))
        else:
            exec(nest.source, space)
    yield from notes


@VARIANTS
def test_the_trace_is_what_plain_python_does(data_guards: bool, opaque: bool) -> None:
    random = np.random.default_rng(0)
    compared = 0
    for nest, _ in samples(data_guards, opaque):
        if "select" in nest.features:
            continue
        data = {name: random.normal(size=(32,) * rank) for name, rank in ranks(nest)}
        given = {**nest.arrays, **data, "alpha": np.array(0.75)}
        accesses = trace(nest.source, sizes=nest.sizes, arrays=given)
        mine = [(a.array, a.cell, a.write) for a in accesses if a.array in data]
        assert mine == list(plainly(nest, data)), nest.source
        compared += 1
    assert compared > 100
