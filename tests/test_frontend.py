"""What the frontend makes of a listing: its structure, not its text."""

from __future__ import annotations

from typing import TypeVar

import pytest

from looptrans.frontend import parse
from looptrans.ir.condition import Data, Every, Not, Relation
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.evaluate import evaluate
from looptrans.ir.index import Arith, Extremum, Int, Let, Neg, Opaque, Param, Var
from looptrans.ir.listing import contract_text, listing
from looptrans.ir.program import Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.source import Source
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Compare,
    Const,
    Holds,
    IndexValue,
    Range,
    Read,
    Real,
    Reduce,
    Select,
    Whole,
)

T = TypeVar("T")
I_, J, N, M = Var("i"), Var("j"), Param("N"), Param("M")


def read(text: str, function: str | None = None) -> Program:
    return parse(Source("t.py", text), function)


def find(program: Program, kind: type[T]) -> list[T]:
    """All nodes of a kind, in the order of the text."""

    def below(body: tuple[Node, ...]) -> list[Node]:
        found: list[Node] = []
        for node in body:
            found.append(node)
            if isinstance(node, Loop):
                found += below(node.body)
            if isinstance(node, If):
                found += below(node.body) + below(node.orelse)
        return found

    return [node for node in below(program.body) if isinstance(node, kind)]


def in_loop(*lines: str, signature: str = "x, y, A, N") -> Program:
    body = "".join(f"            {line}\n" for line in lines)
    return read(f"def f({signature}):\n    for i in range(N):\n        for j in range(N):\n{body}")


def only(program: Program) -> Assign:
    (statement,) = find(program, Assign)
    return statement


# Which text is the listing


def test_a_method() -> None:
    text = (
        "class Model:\n    def other(self):\n        for i in range(3): self.B[i] = 0.0\n"
        "    def forward(self, x):\n        for i in range(self.N):\n"
        "            self.A[i] = x[i] * self.scale\n"
    )
    program = read(text, "Model.forward")
    assert program.name == "Model.forward"
    assert program.arguments == ("self", "x")
    assert find(program, Loop)[0].range == Range(Int(0), Param("self.N"))
    assert [p.name for p in program.parameters] == ["self.N", "self.scale"]
    assert [p.kind for p in program.parameters] == ["size", "real"]
    assert [(a.name, a.role) for a in program.arrays] == [("x", "input"), ("self.A", "input")]
    assert read(text, "forward") == program


def test_bare_loops() -> None:
    program = read("import numpy as np\nfor i in range(N):\n    C[i][i] *= beta\n")
    assert not program.is_function
    assert [p.name for p in program.parameters] == ["N", "beta"]
    assert program.array("C").rank == 2
    assert only(program).augmented


def test_the_only_function_with_a_loop_is_the_listing() -> None:
    text = "def helper(x): return x\n\ndef nest(A):\n    for i in range(N): A[i] = helper(1.0)\n"
    assert read(text).name == "nest"


# Names


def test_shapes() -> None:
    program = read(
        "def f(Q: Float[Array, 'B H//R 3 _'], p: Int[Array, 'B T', '0:NP'], P: Const, s: Seed,\n"
        "      mask: Bool[Array, 'B+1'], c: float, n: int = 4, *, w=-2,\n"
        "      z: jt.Float[jt.Array, '']):\n"
        "    for i in range(n): Q[0, 0, 0, 0] = 1.0\n"
    )
    assert program.array("Q").shape == (
        Param("B"),
        Arith("//", Param("H"), Param("R")),
        Int(3),
        None,
    )
    assert program.array("p").element == "int"
    assert program.array("p").value_range == (Int(0), Param("NP"))
    assert program.array("mask").element == "bool"
    assert program.array("z").rank == 0
    kinds = {p.name: p.kind for p in program.parameters}
    assert kinds == {
        **dict.fromkeys(("B", "H", "R", "T", "NP", "n"), "size"),
        "P": "const",
        "s": "seed",
        "c": "real",
        "w": "real",
    }
    assert program.parameter("n").default == 4
    assert program.parameter("w").default == -2


@pytest.mark.parametrize(
    "line",
    [
        "M, N = A.shape",
        "N = A.shape[1]; M = A.shape[0]",
        "M, N = A.shape[0], A.shape[1]",
        "N, M = A.shape[1], len(A)",
    ],
)
def test_sizes_read_off_an_array(line: str) -> None:
    program = read(f"def f(A):\n    {line}\n    for i in range(M): A[i, N - 1] = 0.0\n")
    assert find(program, Loop)[0].range.stop in (M, Let("M", Param("A.shape[0]")))
    assert program.array("A").shape == (M, N)
    assert len(find(program, Assign)) == 1


@pytest.mark.parametrize("shape", ['Float[Array, "M N"]', None])
def test_sizes_are_counted_from_the_end_as_well(shape: str | None) -> None:
    argument = "A" if shape is None else f"A: {shape}"
    one, other = (
        read(
            f"def f({argument}):\n    N = A.shape[{last}]\n"
            f"    for i in range(A.shape[{last - 1}]):\n"
            f"        for j in range(N): A[i, j] = 0.0\n"
        )
        for last in (-1, 1)
    )
    assert find(one, Loop)[0].range == find(other, Loop)[0].range
    if shape is not None:
        assert one.body == other.body


def test_an_array_is_made_like_another() -> None:
    program = read("""
def f(A: Float[Array, "M N"], B: Float8e4m3fn[Array, "N K"]):
    x = np.zeros_like(A)
    y = full_like(A, -inf)
    z = zeros(B.shape, dtype=float32)
    for i in range(M):
        x[i, 0] = A[i, 0]
    return x, y, z
""")
    made = [(n.creation.function, n.creation.shape) for n in find(program, Declaration)]
    assert made == [("zeros", (M, N)), ("full", (M, N)), ("zeros", (N, Param("K")))]


def test_what_is_made_like_others_has_no_type_of_theirs() -> None:
    with pytest.raises(ListingError, match="zeros_like"):
        read("""
def f(A: Float8e4m3fn[Array, "M"]):
    x = zeros_like(A)
    for i in range(M):
        x[i] = 1.0
    return x
""")


def test_sizes_that_are_only_compared() -> None:
    program = in_loop("if i < K and j - W <= i: x[i] = 1.0", signature="x, K, W, N")
    assert isinstance(find(program, If)[0].condition, Every)
    assert {p.name: p.kind for p in program.parameters} == dict.fromkeys("KWN", "size")


def test_what_defines_a_subscript_is_an_integer() -> None:
    program = in_loop("k = p[i] + off", "x[k] = 1.0", signature="x, p, off, N")
    assert program.array("p").element == "int"
    assert program.parameter("off").kind == "size"
    index = Arith("+", Opaque("p", (I_,)), Param("off"))
    assert find(program, Assign)[1].targets == (Access("x", (Let("k", index),)),)


def test_a_number_may_be_annotated_as_elements_are() -> None:
    signature = "x, a: Int, b: Int32, c: Bool, d: Float, e, N"
    program = in_loop("x[i] = a * b * c * d * e", signature=signature)
    kinds = {p.name: p.kind for p in program.parameters if p.name != "N"}
    assert kinds == {"a": "size", "b": "size", "c": "size", "d": "real", "e": "real"}


def test_names_of_builtins_may_be_used() -> None:
    program = read(
        "for l in range(N):\n    sum = 0.0\n"
        "    for len in range(M): sum += A[l, len]\n    x[l] = sum\n"
    )
    assert program.array("sum").rank == 0


def test_elements_of_locals() -> None:
    program = in_loop("k = i // 2", "t = x[i] > 0.0", "s = 0", "s = s + x[k]", "q = k + 1")
    assert {a.name: a.element for a in program.arrays if a.role == "local"} == {
        "k": "int",
        "t": "bool",
        "s": "float",
        "q": "int",
    }


def test_module_constants_and_helpers_are_put_in() -> None:
    program = read(
        "SCALE = 1 / 8\nSTEP = 2\n\ndef sq(v):\n    w = v * v\n    return w\n\n"
        "def f(x, N):\n    half = lambda p: p // 2\n    for i in range(0, N, STEP):\n"
        "        x[half(i)] = sq(x[i]) * SCALE\n"
    )
    assert find(program, Loop)[0].range.step == 2
    statement = only(program)
    assert statement.targets == (Access("x", (Arith("//", I_, Int(2)),)),)
    square = Binary("*", Read(Access("x", (I_,))), Read(Access("x", (I_,))))
    assert statement.values == (Binary("*", square, Binary("/", Const(1), Const(8))),)


# Loops, guards, statements


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("range(N)", Range(Int(0), N)),
        ("range(N - 1, -1, -1)", Range(Arith("-", N, Int(1)), Int(-1), -1)),
        (
            "range(2, min(N, M + 2), 2 * 3)",
            Range(Int(2), Extremum("min", (N, Arith("+", M, Int(2)))), 6),
        ),
        ("range(-N // 2, len(x))", Range(Arith("//", Neg(N), Int(2)), Param("x.shape[0]"))),
    ],
)
def test_ranges(text: str, expected: Range) -> None:
    assert find(read(f"for i in {text}:\n    x[i] = 0.0\n"), Loop)[0].range == expected


def test_a_guard() -> None:
    program = in_loop(
        "if not 0 <= i < j: x[i] = 1.0", "elif x[i] > 0.0: y[i] = 1.0", "else: y[i] = 2.0"
    )
    first, second = find(program, If)
    assert first.condition == Not(Every((Relation("<=", Int(0), I_), Relation("<", I_, J))))
    assert first.label is None
    assert first.orelse == (second,)
    assert isinstance(second.condition, Data)
    assert second.label == "G1"


def test_a_band_is_affine() -> None:
    condition = find(in_loop("if abs(i - j) <= 2: x[i] = 0.0"), If)[0].condition
    distance = Arith("-", I_, J)
    assert condition == Relation("<=", Extremum("max", (distance, Neg(distance))), Int(2))


@pytest.mark.parametrize(
    ("guard", "function", "first"),
    [
        ("if x[j] > s: s = x[j]", "max", "s"),
        ("if s < x[j]: s = x[j]", "max", "s"),
        ("if x[j] <= s: s = x[j]", "min", "x"),
        ("if s >= x[j]: s = x[j]", "min", "x"),
    ],
)
def test_a_guarded_copy_is_an_extremum(guard: str, function: str, first: str) -> None:
    """Of equal numbers it is the first that is taken."""
    statement = find(in_loop("s = y[j]", guard), Assign)[1]
    old, new = Read(Access("s", ())), Read(Access("x", (J,)))
    assert statement.values == (Call(function, (new, old) if first == "x" else (old, new)),)


def test_several_targets() -> None:
    both, swapped = find(in_loop("a = b = x[i]", "a, b = b, a"), Assign)
    assert [t.array for t in both.targets] == ["a", "b"]
    assert len(both.values) == 1
    assert swapped.values == (Read(Access("b", ())), Read(Access("a", ())))


def test_rows() -> None:
    program = in_loop("q = Q[i, :]", "x[j] = q @ R[j]", "Q[i, :] *= 2.0", signature="Q, R, x, N")
    assert {a.name: a.rank for a in program.arrays} == {"Q": 2, "R": 2, "x": 1, "q": 1}
    assert find(program, Assign)[0].values == (Read(Access("Q", (I_, Whole()))),)


def test_values() -> None:
    program = in_loop(
        "x[i] = sum(A[i, e] for e in range(N) if e != i) if i > j else slope * (j - i)",
        signature="x, A, slope, N",
    )
    (value,) = only(program).values
    assert isinstance(value, Select)
    assert value.condition == Relation(">", I_, J)
    assert isinstance(value.chosen, Reduce)
    assert value.otherwise == Binary("*", Real("slope"), IndexValue(Arith("-", J, I_)))


def test_conditions_as_values() -> None:
    first, second = find(in_loop("t = x[i] > 0.0", "u = t and i < j"), Assign)
    assert isinstance(first.values[0], Compare)
    assert isinstance(second.values[0], Holds)


def test_negative_numbers_are_numbers() -> None:
    program = in_loop("x[i] = -2.5 - -inf")
    assert only(program).values == (Binary("-", Const(-2.5), Const(float("-inf"))),)


def test_creations() -> None:
    program = read(
        "def f(N):\n    A = zeros((N, 3))\n    B = np.full(N, 0, dtype=np.int32)\n"
        "    for i in range(N):\n        row = zeros(3)\n        A[i, :] = row\n    return A, B\n"
    )
    assert [d.array for d in find(program, Declaration)] == ["A", "B"]
    assert program.array("A").shape == (N, Int(3))
    assert program.array("B").element == "int"
    assert program.array("row").shape == (Int(3),)
    assert program.outputs == ("A", "B")


def test_several_arrays_may_be_made_on_one_line() -> None:
    apart = "def f(N):\n    {}\n    for i in range(N):\n        A[i] = B[i, 0]\n    return A, B\n"
    one = read(apart.format("A, B = zeros(N), full((N, 2), -inf)  # both"))
    two = read(apart.format("A = zeros(N)  # both\n    B = full((N, 2), -inf)"))
    assert listing(one) == listing(two)
    assert [array.shape for array in one.arrays] == [array.shape for array in two.arrays]


def test_a_shape_is_one_argument_or_as_many_as_it_has_extents() -> None:
    text = "def f(N, M):\n    A = {}\n    for i in range(N):\n        A[i, 0] = 1.0\n    return A\n"
    shape = read(text.format("zeros((N, M + 1))")).array("A").shape
    for made in ("empty([N, M + 1])", "ones(N, M + 1)", "torch.zeros(N, M + 1, dtype=float32)"):
        assert read(text.format(made)).array("A").shape == shape
    for made in ("zeros(N, int)", "zeros(N, M, int)", "zeros()", "full(N, M)"):
        with pytest.raises(ListingError):
            read(text.format(made))
    for made in ("zeros(N, complex)", "zeros(N, M, object)", "zeros(N, np.complex64)"):
        with pytest.raises(ListingError, match=r"no element type|not understood"):
            read(text.format(made))


# Integer scalars


def test_a_let_ends_where_it_may_have_changed() -> None:
    assert in_loop("k = i", "if i > j: k = i", "x[k] = 0.0")
    with pytest.raises(ListingError) as caught:
        in_loop("k = i", "if i > j: k = j", "x[k] = 0.0")
    assert [m.code for m in caught.value.mistakes] == ["E013"]


def test_products_with_a_size() -> None:
    program = in_loop("x[i * P + j % P] = 1.0", signature="x, N, P: Const")
    assert program.parameter("P").kind == "const"


# What may have been set


@pytest.mark.parametrize(
    "lines",
    [
        ("if i > 0: y[i] = s", "s = x[i]"),
        ("if i == 0: s = 0.0", "s += x[i]"),
        ("y[i] = s if i > 0 else 0.0", "s = x[i]"),
        ("for k in range(i): y[k] = s", "s = x[i]"),
    ],
)
def test_a_name_that_may_have_been_set(lines: tuple[str, str]) -> None:
    body = "".join(f"    {line}\n" for line in lines)
    assert read(f"for i in range(N):\n{body}")


@pytest.mark.parametrize(
    "lines",
    [
        ("y[i] = s", "s = x[i]"),
        ("if i > 0: y[i] = s; s = x[i]", "z[i] = 0.0"),
        ("for k in range(i): y[k] = s; s = x[i]", "z[i] = 0.0"),
    ],
)
def test_a_name_that_cannot_have_been_set(lines: tuple[str, str]) -> None:
    body = "".join(f"    {line}\n" for line in lines)
    with pytest.raises(ListingError) as caught:
        read(f"for i in range(N):\n{body}")
    assert [m.code for m in caught.value.mistakes] == ["E014"]


# Contracts


@pytest.mark.parametrize(
    ("contract", "generators"),
    [
        ("N % 4 == 0", 0),
        ("H == G * R", 0),
        ("0 < N <= 128", 0),
        ("all(cu[b] <= cu[b + 1] for b in range(B))", 1),
        ("all(cu[b] < cu[b + 1] for b in range(B))", 1),
        ("all(slot[b] != slot[c] for b in range(B) for c in range(B) if b != c)", 2),
        ("all(slot[b] != slot[c] for b in range(B) for c in range(b))", 2),
        ("all(0 <= page[b, t] < NP for b in range(B) for t in range(T))", 2),
        ("all(all(page[b, t] >= 0 for t in range(T)) for b in range(B))", 2),
    ],
)
def test_contracts(contract: str, generators: int) -> None:
    program = read(
        f"def f(x, N, H, G, R, cu, slot, page):\n    assert {contract}\n"
        "    for i in range(N): x[i] = 0.0\n"
    )
    assert [len(c.generators) for c in program.contracts] == [generators]
    assert all(
        a.element == "int" for a in program.arrays if a.name in ("cu", "slot", "page") and a.rank
    )


# Labels and comments


def test_labels() -> None:
    program = in_loop("x[i] = 1.0", "y[i] = 2.0  # S1: said", "x[j] = 3.0", "y[j] = 4.0 ### S9")
    found = [(s.label, s.labelled) for s in find(program, Assign)]
    assert found == [("S2", False), ("S1", True), ("S3", False), ("S9", True)]


def test_comments_stay_with_their_statements() -> None:
    program = read(
        "# above\ndef f(x, N):  # head\n    # one\n    for i in range(N):  # loop\n"
        "        # two\n        x[i] = (1.0 +  # in\n            2.0)  # side\n"
        "    # end\n    return x  # out\n"
    )
    (loop,) = find(program, Loop)
    assert program.leading == ("above",)
    assert program.comment == "head"
    assert (loop.leading, loop.comment) == (("one",), "loop")
    assert (only(program).leading, only(program).comment) == (("two",), "in # side")
    assert program.closing == ("end",)
    assert program.return_comment == "out"


@pytest.mark.parametrize(
    ("body", "assumed"),
    [
        ("S[i, j] = Q[i] @ K[j]", ["E == F"]),
        ("q = Q[i]; k = K[j]; S[i, j] = sum(exp(q) * k)", ["E == F"]),
        ("O[i] = O[i] + S[i, j] * V[j]", ["G == D"]),
        ("O[i] = where(Q[i, 0] > 0.0, V[j], P[j])", ["D == E + 1", "G == D"]),
        ("S[i, j] = Q[i] @ Q[j] + sum(K[i]) * max(V[j])", []),
        ("S[i, j] = sum(Q[i, e] * K[j, e] for e in range(E))", []),
    ],
)
def test_rows_that_are_combined_have_one_length(body: str, assumed: list[str]) -> None:
    program = read(
        'def f(Q: Float[Array, "M E"], K: Float[Array, "N F"], V: Float[Array, "N D"], '
        'P: Float[Array, "N E+1"]):\n'
        "    S = zeros((M, N)); O = zeros((M, G))\n"
        "    for i in range(M):\n        for j in range(N):\n"
        f"            {body}\n    return S, O\n"
    )
    assert [contract_text(c) for c in program.contracts] == [f"assert {each}" for each in assumed]
    assert read(listing(program)) == program


def test_spans_point_at_the_text() -> None:
    text = "for i in range(N):\n    é = x[i]; y[i] = é\n"
    second = find(read(text), Assign)[1]
    line = text.splitlines()[1].encode()
    assert line[second.span.column : second.span.end_column].decode() == "y[i] = é"
    assert second.span.line == 2


def test_an_attribute_of_self_may_be_called_like_an_array_s() -> None:
    text = (
        "class Model:\n"
        "    def steps(self, x):\n"
        "        for t in range(self.T):\n"
        "            x[t] = x[t] * self.size\n"
    )
    program = parse(Source("steps.py", text), "Model.steps")
    assert {p.name: p.kind for p in program.parameters} == {"self.T": "size", "self.size": "real"}


SKIPPING = """
def f(x, y, z, ok, N):
    for i in range(N):
        a = 0.0
        for j in range(N):
            if j > i:
                continue  # above the diagonal
            elif ok[j] == 0:
                a = a + 1.0
                continue
            # what is seen
            a = a + x[i, j]  # S1: added
            if a > 3.0:
                a = 0.0
            else:
                continue
            y[i] = a
            continue
        z[i] = a
"""


def test_continue_is_a_guard() -> None:
    program = read(SKIPPING)
    assert listing(program).splitlines()[1:] == [
        "    for i in range(0, N):",
        "        a = 0.0",
        "        for j in range(0, N):",
        "            if not j > i:  # above the diagonal",
        "                if ok[j] == 0:",
        "                    a = a + 1.0",
        "                else:",
        "                    # what is seen",
        "                    a = a + x[i, j]  # S1: added",
        "                    if a > 3.0:",
        "                        a = 0.0",
        "                        y[i] = a",
        "        z[i] = a",
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ("if i > j:", "    x[i] = 0.0", "elif j > 2:", "    continue", "x[j] = 1.0"),
        ("if i > j:", "    if j > 2:", "        continue", "x[j] = 1.0"),
        ("continue", "x[j] = 1.0"),
    ],
    ids=["in the second branch", "two guards deep", "before the rest"],
)
def test_a_continue_that_is_no_guard_is_refused(lines: tuple[str, ...]) -> None:
    with pytest.raises(ListingError, match="'continue' is outside the listing language"):
        in_loop(*lines)


@pytest.mark.parametrize(
    "bounds", ["5", "2, 9", "1, 9, 3", "9, 1, -3", "1, 10, 3", "4, 4", "5, 2, 2", "2, 5, -1"]
)
def test_a_reversed_range_has_the_same_numbers(bounds: str) -> None:
    program = read(f"def f(x):\n    for i in reversed(range({bounds})):\n        x[i] = 0.0\n")
    limits = find(program, Loop)[0].range
    start, stop = evaluate(limits.start, {}), evaluate(limits.stop, {})
    assert start is not None and stop is not None
    given = range(*map(int, bounds.split(",")))
    assert list(range(start, stop, limits.step)) == list(reversed(given))


def test_any_and_all_are_extrema() -> None:
    program = in_loop(
        "y[i] = 1.0 if any(A[i, e] > x[e] for e in range(N)) else 0.0",
        "if not all(e <= i for e in range(N) if x[e] > 0.0): y[j] = 2.0",
    )
    first, second = listing(program).splitlines()[3:5]
    assert "if max(1.0 if A[i, e] > x[e] else 0.0 for e in range(0, N)) > 0.0" in first
    assert "not min(1.0 if e <= i else 0.0 for e in range(0, N) if x[e] > 0.0) > 0.0" in second


@pytest.mark.parametrize("symbol", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("number", range(-2, 3))
def test_choice_of_indices_is_the_smaller_or_larger_or_refused(
    symbol: str, swapped: bool, number: int
) -> None:
    chosen, otherwise = (f"N - i + {number}", "2") if swapped else ("2", f"N - i + {number}")
    text = f"{chosen} if N {symbol} i + 2 else {otherwise}"
    try:
        program = read(f"def f(x, N):\n    for i in range(N):\n        x[{text}] = 0.0\n")
    except ListingError as error:
        assert number and "is not an affine index expression" in str(error)
        return
    (statement,) = find(program, Assign)
    (index,) = statement.targets[0].subscripts
    assert isinstance(index, Extremum)
    for values in ({"i": i, "N": size} for i in range(9) for size in range(9)):
        assert evaluate(index, values) == eval(text, {}, values)
