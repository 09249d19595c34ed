"""Listings that random search has found wrong once, cut down to what matters.

Kernels run in Triton's interpreter, where `verify` watches what is left to chance on a GPU, what is
stored outside of arrays, and cells that nobody has written.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence

import pytest

pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

from looptrans.adjoint.backward import backward
from looptrans.blocks.block_ir.program import NotLowered
from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.listing import emitted
from looptrans.reports.verify import verification_text
from looptrans.runtime.verifying.backward import verify_backward
from looptrans.runtime.verifying.verify import verify
from tests.analysis import program
from tests.test_adjoint_listings import check

Sizes = Sequence[Mapping[str, int]]


def assert_right(text: str, sizes: Sizes, *, backward: bool = False) -> None:
    """Compare the kernels of a listing, or of its backward pass, with the listing."""
    run = verify_backward if backward else verify
    report = run(program(text), sizes, ("float32",), "cpu")
    assert report.runs and all(run.passed for run in report.runs), verification_text(report)


# On antidiagonals another lane stores the element, one iteration later.
ANTIDIAGONALS = """
def antidiagonals(X: Float[Array, "M N"]):
    T = zeros(M + N - 1)
    for i in range(0, M):
        for j in range(0, N):
            T[i + j] = X[i, j]
    return T
"""


def test_threads_wait_where_another_one_stores_the_element_again() -> None:
    assert "tl.debug_barrier()  # all threads have stored" in emitted(program(ANTIDIAGONALS)).text
    assert_right(ANTIDIAGONALS, [{"M": 3, "N": 5}])


def test_threads_do_not_wait_where_each_stores_its_own_elements() -> None:
    """Neither where every element is stored once nor where the same lane stores it each time."""
    for cell in ("T[j]", "T[j * 2 + 1]", "T[N - 1 - j]", "T[i * N + j]"):
        text = ANTIDIAGONALS.replace("T[i + j]", cell).replace("M + N - 1", "M * N + 2 * N")
        assert "tl.debug_barrier" not in emitted(program(text)).text, cell


# Whether anything is stored hangs on a number: where nothing is, all is as it was created.
ONCE_OR_NEVER = """
def once_or_never(X: Float[Array, "N"], n: Int[Array, "B", "0:2"]):
    Y = full(N, 7.0)
    for s in range({start}, 1):
        for i in range(0, N):
            Y[i] = X[i]
    return Y
"""


@pytest.mark.parametrize("start", ["n[0]", "S"])
def test_what_may_not_be_stored_is_filled_before(start: str) -> None:
    text = ONCE_OR_NEVER.replace("{start}", start)
    if start == "S":
        text = text.replace('n: Int[Array, "B", "0:2"]', "S: int")
        assert_right(text, [{"N": 5, "S": 0}, {"N": 5, "S": 1}])
    else:
        made = emitted(program(text)).blocks.made
        assert [each.fill for each in made] == [7.0]


# Of what is kept for each iteration but the last there is nothing at N = 0.
ALL_BUT_THE_LAST = """
def all_but_the_last(X: Float[Array, "N M"], V: Float[Array, "M"]):
    T = zeros(N)
    for i in range(0, N - 1):
        a = 0.0
        for j in range(0, M):
            a += (X[i, j] * V[j]) ** 2
        T[i] = a * a
    return T
"""


def test_of_one_less_than_nothing_nothing_is_kept() -> None:
    made = emitted_with_backward(program(ALL_BUT_THE_LAST))
    assert 'a_kept: Float32[Array, "max(0,N-1)"]' in made.text
    assert "if max(0, N - 1) < N - 1" not in made.text  # there are always as many
    assert_right(ALL_BUT_THE_LAST, [{"N": n, "M": 3} for n in (0, 1, 4)], backward=True)


# Which columns a row has hangs on the row that is counted otherwise in the array.
COLUMNS_OF_ROWS = """
def columns_of_rows(n: Int[Array, "M", "0:N + 1"], X: Float[Array, "M"]):
    T = zeros((M, N))
    for i in range(1, M):
        for j in range({columns}):
            for k in range(0, N):
                T[i - 1, j] += X[i] * k
    return T
"""


@pytest.mark.parametrize("columns", ["n[i], N", "0, n[i]", "i, N", "0, min(N, i + 1)"])
def test_columns_of_a_row_are_those_of_its_iteration(columns: str) -> None:
    text = COLUMNS_OF_ROWS.replace("{columns}", columns)
    assert_right(text, [{"M": 4, "N": 5}, {"M": 3, "N": 0}], backward=True)


# What comes back from the next state sets the gradient, and must come before what is added to it.
STATES_READ_LATER = """
def states_read_later(X: Float[Array, "N N"], Z: Float[Array, "N N"]):
    h = zeros(N); T = zeros((N, N)); Y = zeros((N, N))
    for i in range(0, N):
        for j in range(0, N):
            h[j] = 0.9 * h[j] + X[i, j]
            T[i, j] = h[j]
    for i in range(0, N):
        for j in range(1, N):
            for k in range(0, N):
                Y[i, j] = Y[i, j] + T[k, i] * Z[i, k] * T[k, N - 1 - j]
    return Y
"""


def test_a_gradient_is_set_before_it_is_added_to() -> None:
    given = program(STATES_READ_LATER)
    check(given, backward(given), times=1)


# A row's range is read, and the range of what is in it is read for each row: a block has no one.
RANGES_IN_RANGES = """
def ranges_in_ranges(n: Int[Array, "M", "0:N + 1"], m: Int[Array, "N", "0:M + 1"], c: float):
    T = zeros((M, N, M))
    for i in range(0, M):
        for j in range(n[i], N):
            for k in range(m[j], M):
                T[i, j, k] = tanh(c)
    return T
"""


def test_a_range_may_be_read_for_each_row_of_a_range_that_is_read() -> None:
    assert_right(RANGES_IN_RANGES, [{"M": 3, "N": 5}, {"M": 20, "N": 17}])


# How often something is added is a factor of the gradient, and no range says it any more.
SO_OFTEN = """
def so_often(X: Float[Array, "M"]):
    T = zeros(M)
    for i in range(0, N):
        for j in range(0, M):
            T[j] += X[j] * X[j]
    return T
"""


def test_a_size_that_is_left_in_a_value_alone_is_an_argument() -> None:
    made = emitted_with_backward(program(SO_OFTEN))
    assert made.found.program.arguments == ("X", "dT", "N")
    assert_right(SO_OFTEN, [{"M": 3, "N": 4}, {"M": 2, "N": 0}], backward=True)


# Two rows of T read one of X: their sum is free of the columns, and stays inside of these.
TWO_OF_ONE = """
def two_of_one(X: Float[Array, "N N+1"]):
    T = zeros((N, N + 1))
    for i in range(0, N):
        for j in range(0, N):
            T[i, j] = X[i // 2, j]
    return T
"""


def test_loops_are_not_brought_outward_and_back_for_ever() -> None:
    assert_right(TWO_OF_ONE, [{"N": 5}, {"N": 0}], backward=True)


# What is summed ahead for a whole row is read where the row has a gradient, and nowhere else.
BESIDE_THE_GRADIENT = """
def beside_the_gradient(X: Float[Array, "N N"], Y: Float[Array, "N N+1"]):
    S = zeros((N, N))
    T = zeros((N, N))
    for i in range(0, N):
        for j in range(i, N):
            S[i, j] = X[i, (j + N - 1) % N] + Y[i, j]
    for i in range(1, N):
        for j in range(N - 2, 0, -1):
            if i < N - 1:
                T[i - 1, j] = S[i, i] + S[j, max(0, j - 1)]
    return T
"""
# An argument with one row more than is read, beside an array of integers without it.
ONE_ROW_MORE = """
def one_row_more(T: Float[Array, "N M"], g: Int[Array, "N", "0:M"], X: Float[Array, "N+1"]):
    Y = zeros((N + 1, N))
    for i in range(0, N):
        for j in range(0, N):
            if i <= j:
                Y[i, j] = T[i, g[i]] * (X[i] - 0.5)
    return Y
"""


@pytest.mark.parametrize("text", [BESIDE_THE_GRADIENT, ONE_ROW_MORE])
def test_gradients_are_read_inside_their_arrays(text: str) -> None:
    sizes = [{"N": 4, "M": 3}, {"N": 1, "M": 2}]
    names = {p.name for p in program(text).parameters}
    assert_right(text, [{k: v for k, v in s.items() if k in names} for s in sizes], backward=True)


# A number of each row is read ahead of its columns: of rows that have none there is no such number.
ROWS_WITHOUT_COLUMNS = """
def rows_without_columns(A: Float[Array, "N+1 N"], T: Float[Array, "N"]):
    Y = zeros(N + 1)
    for i in range(0, N + 1):
        for j in range({start}, N):
            if i <= j:
                Y[i] += A[i, j] * T[{row}]
    return Y
"""


@pytest.mark.parametrize("start", ["0", "i"])
@pytest.mark.parametrize("row", ["i", "g[i]"])
def test_what_is_read_ahead_of_a_loop_is_inside_its_array(start: str, row: str) -> None:
    text = ROWS_WITHOUT_COLUMNS.replace("{start}", start).replace("{row}", row)
    if row == "g[i]":
        text = text.replace('"N"]):', '"N"], g: Int[Array, "N", "0:N"]):')
    assert_right(text, [{"N": 4}, {"N": 1}, {"N": 0}])


# One iteration adds to a cell that others would name, too: these must not store what it held.
ONE_OF_ALL = """
def one_of_all(g: Int[Array, "M", "0:M"], X: Float[Array, "M"]):
    T = zeros(M)
    for i in range(0, M):
        if i == {one}:
            T[{cell}] += X[i]
    return T
"""


@pytest.mark.parametrize(("one", "cell"), [("M - 1", "g[i]"), ("0", "i // 2")])
def test_rows_that_may_share_a_cell_do_not_each_store_it(one: str, cell: str) -> None:
    with pytest.raises(NotLowered, match=r"store all of it|the value would have to wait in memory"):
        emitted(program(ONE_OF_ALL.replace("{one}", one).replace("{cell}", cell)))
    assert_right(ONE_OF_ALL.replace("{one}", one).replace("{cell}", "M - 1 - i"), [{"M": 5}])


# Of a loop that ends one before the last there is a first state at M = 0, too.
ONE_STEP_LESS = """
def one_step_less(X: Float[Array, "N M"]):
    Y = zeros(N)
    for i in range(0, N):
        h = 1.0
        for j in range(0, M - 1):
            h = tanh(h + X[i, j])
        Y[i] = h
    return Y
"""


def test_the_first_state_is_kept_where_there_is_no_step() -> None:
    assert_right(ONE_STEP_LESS, [{"N": 3, "M": m} for m in (0, 1, 4)], backward=True)


# A row may begin with masked keys. Its maximum is taken the other way round, or of something else.
MASKED_FIRST = """
def masked_first(mask: Bool[Array, "M N"], X: Float[Array, "M N"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    for i in range(0, M):
        m = -inf
        for j in range(0, N):
            s = X[i, j] if mask[i, j] else -inf
            m = {top}
        l = 0.0
        for j in range(0, N):
            s = X[i, j] if mask[i, j] else -inf
            l += exp(s - m)
        for j in range(0, N):
            s = X[i, j] if mask[i, j] else -inf
            for d in range(0, D):
                O[i, d] += exp(s - m) / l * V[j, d]
    return O
"""


@pytest.mark.parametrize(
    "top",
    [
        "max(s, m)",
        "s if s > m else m",
        "max(s, X[i, j] if mask[i, j] and j <= i else -inf, m)",
        "max(m, s + 0.5)",
        "max(s + 0.5, s + 1.0, m)",
    ],
)
@pytest.mark.parametrize("backward", [False, True])
def test_masked_keys_may_come_first_however_the_maximum_is_written(
    top: str, backward: bool
) -> None:
    assert_right(MASKED_FIRST.format(top=top), [{"M": 3, "N": 5, "D": 2}], backward=backward)


def test_the_order_in_a_maximum_changes_no_other_line() -> None:
    one, other = (MASKED_FIRST.format(top=f"max({top})") for top in ("m, s", "s, m"))
    lines = [emitted(program(text)).text.splitlines() for text in (one, other)]
    apart = [pair for pair in zip(*lines, strict=True) if pair[0] != pair[1]]
    assert all("max(m, s)" in a and "max(s, m)" in b for a, b in apart), apart


# Two sums of one guarded term: a cell that neither adds has no part in the gradient.
GUARDED_TWICE = """
def guarded_twice(X: Float[Array, "M N"], V: Float[Array, "N"], seen: Bool[Array, "M N"]):
    o = zeros(M)
    y = zeros(M)
    for i in range(0, M):
        for j in range(0, N):
            if {guard}:
                y[i] += 1.0 / (1.0 + exp(-X[i, j]))
        for j in range(0, N):
            if {guard}:
                o[i] += V[j] / (1.0 + exp(-X[i, j]))
    return o, y
"""


@pytest.mark.parametrize("guard", ["j <= i", "(i + j) % 3 != 1", "seen[i, j]"])
def test_what_two_guarded_sums_share_keeps_their_guard(guard: str) -> None:
    assert_right(GUARDED_TWICE.format(guard=guard), [{"M": 3, "N": 5}], backward=True)


# Two sums have a term in common, and go over other parts of the row.
OTHER_PARTS = """
def other_parts(X: Float[Array, "M N"], b: Float[Array, "N"], n: Int[Array, "M", "0:N+1"]):
    o = zeros(M)
    y = zeros(M)
    for i in range(0, M):
        for j in range({first}):
            y[i] += X[i, j] / (1.0 + {term} ** 2)
        for j in range({second}):
            o[i] += 1.0 / (1.0 + {term} ** 2)
    return o, y
"""


@pytest.mark.parametrize("term", ["X[i, j]", "b[j]"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("0, min(N, i + 1)", "0, N"),
        ("0, n[i]", "0, N"),
        ("0, N", "0, n[i]"),
        ("0, n[i]", "0, n[i]"),
        ("1, N", "0, N"),
    ],
)
def test_what_two_sums_share_is_there_wherever_it_is_read(
    term: str, first: str, second: str
) -> None:
    text = OTHER_PARTS.format(term=term, first=first, second=second)
    assert_right(text, [{"M": 3, "N": 5}], backward=True)


# The gradient goes through the maximum, as the sum of the weights is bounded from below.
MAXIMUM_OF_QUOTIENTS = """
def maximum_of_quotients(X: Float[Array, "M N"], g: Bool[Array, "N"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    y = zeros(M)
    for i in range(M):
        m = -inf
        for j in range(0, N):
            s = X[i, j] {scaled}
            m = max(m, s)
        l = 0.0
        for j in range(0, N):
            s = X[i, j] {scaled}
            l = l + (exp(s - m) if g[j] else 0.0)
        for j in range(0, N):
            s = X[i, j] {scaled}
            for d in range(D):
                O[i, d] = O[i, d] + (exp(s - m) / max(l, 0.5) if g[j] else 0.0) * V[j, d]
    for i in range(M):
        for d in range(D):
            y[i] += O[i, d] ** 2
    return O, y
"""


@pytest.mark.parametrize("scaled", ["/ 1.5", "* 0.7 * V[0, 0]", "* V[0, 0] * 2.0 * V[0, 1]"])
def test_which_is_the_greatest_is_not_told_from_numbers_rounded_otherwise(scaled: str) -> None:
    """A loop multiplies by what is divided by elsewhere, or by a product of numbers."""
    text = MAXIMUM_OF_QUOTIENTS.format(scaled=scaled)
    assert "m_at" in [saved.name for saved in emitted_with_backward(program(text)).found.saved]
    assert_right(text, [{"M": 5, "N": 3, "D": 2}], backward=True)


@pytest.mark.parametrize("scaled", ["* 0.75", "/ 8.0", "* 0.5 * V[0, 0]"])
def test_which_is_the_greatest_is_told_from_what_is_rounded_alike(scaled: str) -> None:
    text = MAXIMUM_OF_QUOTIENTS.format(scaled=scaled)
    assert_right(text, [{"M": 5, "N": 3, "D": 2}], backward=True)


# What is saved is a count, in an array of integers that is not returned, or is.
COUNTS_SAVED = """
def counts_saved(X: Float[Array, "M N"], a: Float[Array, "M"], n: Int[Array, "M", "0:N + 1"]):
    C = zeros(M, dtype=int)
    Y = zeros(M)
    for i in range(0, M):
        for j in range(0, n[i]):
            if X[i, j] > 0.1:
                C[i] += 1
    for i in range(0, M):
        for j in range(0, n[i]):
            if C[i] == j:
                Y[i] += X[i, j] * a[i]
    return {outputs}
"""


@pytest.mark.parametrize("outputs", ["Y", "C, Y"])
def test_counts_are_saved_as_numbers(outputs: str) -> None:
    text = COUNTS_SAVED.replace("{outputs}", outputs)
    assert_right(text, [{"M": 5, "N": 4}, {"M": 3, "N": 1}], backward=True)


# Read in front of the loop over j, which may have no iterations: then nothing says it is there.
IN_FRONT = """
def in_front(X: Float[Array, "M N"], c: Float[Array, "K"], n: Int[Array, "M", "0:N + 1"]):
    Y = zeros(M)
    for i in range(0, M):
        for j in range({columns}):
            Y[i] += X[i, j] * {factor}
    return Y
"""


@pytest.mark.parametrize(
    ("columns", "factor", "inside"),
    [
        ("0, N", "X[i, i % N]", "(i % N >= 0) & (i % N < N)"),
        ("0, N", "c[i // 2]", "(i // 2 < K)"),
        ("0, n[i]", "c[n[i] - 1]", "(n_i - 1 >= 0) & (n_i - 1 < K)"),
        ("0, n[i]", "X[i, n[i] // 2]", "(n_i // 2 < N)"),
    ],
)
def test_what_is_read_before_a_loop_without_iterations_is_masked(
    columns: str, factor: str, inside: str
) -> None:
    text = IN_FRONT.replace("{columns}", columns).replace("{factor}", factor)
    assert inside in " ".join(emitted(program(text)).text.split())
    sizes = [{"M": 5, "N": n, "K": n} for n in (0, 5)]
    assert_right(text, sizes)


# The scan over rows keeps its states, and the sum over columns is read while it grows.
SCANS_BOTH_WAYS = """
def scans_both_ways(X: Float[Array, "M N"], a: Float[Array, "M"]):
    S = zeros((M, N))
    T = zeros((M, N))
    for i in range(0, M):
        h = 0.0
        for j in range(0, N):
            h = a[i] * h + X[i, j]
            S[i, j] = h
    for j in range(0, N):
        h = 0.0
        for i in range(0, M):
            h = h + S[i, j]
            T[i, j] = h * h
    return T
"""


def test_a_scan_keeps_its_states_beside_a_sum_that_is_read_while_it_grows() -> None:
    assert_right(SCANS_BOTH_WAYS, [{"M": 4, "N": 3}, {"M": 1, "N": 5}], backward=True)


# Two scans of the same rows, one after the other, that call their state by one name.
ONE_NAME_TWICE = """
def one_name_twice(X: Float[Array, "M N"], a: Float[Array, "M"]):
    S = zeros((M, N))
    T = zeros((M, N))
    for i in range(0, M):
        h = a[i]
        for j in range(0, N):
            h = 0.9 * h + X[i, j]
            S[i, j] = h
    for i in range(0, M):
        h = 1.0
        for j in range(0, N):
            h = h * (1.0 + 0.1 * S[i, j])
            T[i, j] = h
    return T
"""


def test_scans_that_share_a_name_keep_states_of_their_own() -> None:
    found = emitted_with_backward(program(ONE_NAME_TWICE)).found
    assert {each.name for each in found.saved if not each.is_output} >= {"h_kept"}
    assert_right(ONE_NAME_TWICE, [{"M": 4, "N": 3}, {"M": 1, "N": 5}], backward=True)


# Two layers: backwards, the state of the second one is set before the first one reads it.
TWO_LAYERS = """
def two_layers(X: Float[Array, "M N"], W: Float[Array, "N"]):
    S = zeros((M, N))
    T = zeros((M, N))
    for i in range(0, M):
        g = 1.0
        for j in range(0, N):
            g = tanh(g + X[i, j])
            S[i, j] = g
    for i in range(0, M):
        k = 1.0
        for j in range(0, N):
            k = tanh(k * W[j] + S[i, j])
            T[i, j] = k
    return T
"""


def test_states_of_two_layers_are_gone_through_backwards() -> None:
    assert_right(TWO_LAYERS, [{"M": 4, "N": 3}, {"M": 1, "N": 5}], backward=True)


# An output that has 16 bits whatever the inputs have: so has what comes back of it.
SIXTEEN_BITS = """
def sixteen_bits(X: Float[Array, "M N"], V: Float[Array, "N D"]):
    O = zeros((M, D), dtype=float16)
    for i in range(0, M):
        m = -inf
        for j in range(0, N):
            m = max(m, X[i, j])
        l = 0.0
        for j in range(0, N):
            l += exp(X[i, j] - m)
        for j in range(0, N):
            for d in range(0, D):
                O[i, d] += exp(X[i, j] - m) / l * V[j, d]
    return O
"""


def test_outputs_of_16_bits_have_gradients_of_32() -> None:
    made = emitted_with_backward(program(SIXTEEN_BITS))
    assert '("dO", dO, 2, (torch.float16,))' in made.text
    assert "dO = dO.to(X.dtype)" in made.text
    assert_right(SIXTEEN_BITS, [{"M": 5, "N": 4, "D": 2}, {"M": 1, "N": 1, "D": 3}], backward=True)


# Where a row is greatest is returned, and has no gradient; the other output has one.
WHERE_GREATEST = """
def where_greatest(X: Float[Array, "M N"]):
    K = zeros(M, dtype=int)
    Y = zeros(M)
    for i in range(0, M):
        best = -inf
        k = 0
        for j in range(0, N):
            if X[i, j] > best:
                best = X[i, j]
                k = j
        K[i] = k
    for i in range(0, M):
        for j in range(0, N):
            Y[i] += X[i, j] * X[i, j]
    return Y, K
"""


def test_how_integers_come_about_that_are_returned_does_not_matter() -> None:
    made = emitted_with_backward(program(WHERE_GREATEST))
    assert [each.name for each in made.found.saved] == []
    assert_right(WHERE_GREATEST, [{"M": 4, "N": 3}, {"M": 1, "N": 5}], backward=True)


# What is 0 outside of a triangle has a gradient from two sides, and what it is made of is no number
# there.
TRIANGLE = """
def triangle(X: Float[Array, "N M"], y: Float[Array, "N"]):
    S = zeros((N, M))
    O = zeros((N, M))
    for i in range(0, N):
        for j in range(0, M):
            if j <= i:
                S[i, j] = log(i - j + 1) * X[i, j]
            if j < i:
                O[i, j] = S[i, j] * 2.0
            if j >= i:
                O[i, j] = S[i, j] * y[i]
    return O
"""


def test_gradients_are_not_multiplied_with_what_the_listing_never_works_out() -> None:
    assert_right(TRIANGLE, [{"N": 5, "M": 7}, {"N": 1, "M": 1}], backward=True)
