"""Listings in which rules meet that know nothing of each other: right, or refused."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

from looptrans.adjoint.backward import backward  # noqa: E402
from looptrans.adjoint.refusal import NotDifferentiated  # noqa: E402
from looptrans.blocks.block_ir.ops import TileLoop, has_products  # noqa: E402
from looptrans.blocks.block_ir.program import NotLowered  # noqa: E402
from looptrans.blocks.lower import lower  # noqa: E402
from looptrans.cli.main import main  # noqa: E402
from looptrans.derivation.derive import derive  # noqa: E402
from looptrans.emit.backward import emitted_with_backward  # noqa: E402
from looptrans.emit.listing import emitted  # noqa: E402
from looptrans.ir.listing import listing as text_of  # noqa: E402
from looptrans.runtime.running.load import load_module  # noqa: E402
from looptrans.transforms.moved.powers import with_powers_of_two  # noqa: E402
from tests.analysis import program  # noqa: E402

# A guard alone tells which iteration of r sets a cell that it keeps from one t to the next.
SHARED = {
    "guarded": """
def guarded(X: Float[Array, "N T"]):
    u = zeros(N)
    w = zeros(N)
    for r in range(2):
        for t in range(T):
            for i in range(N):
                if i // 4 == r:
                    w[i] = u[i] + X[i, t]
            for i in range(N):
                if i // 4 == r:
                    u[i] = tanh(w[i])
    return u
""",
    "overlapping": """
def overlapping(X: Float[Array, "R T"]):
    u = zeros(R + 3)
    for r in range(R):
        for t in range(T):
            for i in range(3):
                if i == 0:
                    u[r + i] = tanh(u[r + i] + X[r, t])
    return u
""",
}
# A row set anew as a whole, one element of which an iteration hands to the next.
SET_ANEW = """
def anew(X: Float[Array, "R T N"]):
    out = zeros((R, N))
    for r in range(R):
        u = zeros(N)
        v = zeros(N)
        for t in range(T):
            for i in range(N):
                v[i] = u[i] + X[r, t, i]
            for i in range(1, N):
                u[i] = 0.5 * v[i - 1]
        for i in range(N):
            out[r, i] = u[i] + v[i]
    return out
"""


# An argument in float32 beside one of any type.
EXACT = """
def exact(x: Float[Array, "N M"], w: Float32[Array, "M"]):
    y = zeros(N)
    for i in range(N):
        y[i] = sum(x[i, j] * w[j] for j in range(M))
    return y
"""
# What 16 bits are no type for: it is added to where it lies.
ADDED = """
def added(x: Int[Array, "N", "0:K"], v: Float[Array, "N"], s: Float32[Array, "K"]):
    for n in range(N):
        s[x[n]] = s[x[n]] + v[n]
"""
# Rows keep parts of what all of them add to: of two things.
TWO_TOTALS = """
def totals(Q: Float[Array, "H M E"], K: Float[Array, "H N E"], k: Int[Array, "M"]):
    O = zeros((H, M))
    total = zeros(H)
    squares = zeros(H)
    if M > 1:
        for h in range(H):
            for i in range(M):
                if k[i] > 0:
                    z = 0.0
                    for j in range(N):
                        s = sum(Q[h, i, e] * K[h, j, e] for e in range(E))
                        z = z + s
                        total[h] = total[h] + s
                        squares[h] = squares[h] + s * s
                    O[h, i] = z
    return O, total, squares
"""
# The first term of a fold of integers: an infinity, or 0.0, would make floats of them.
INTEGERS = """
def integers(x: Int[Array, "B N"]):
    top = zeros(B, dtype=int)
    total = zeros(B, dtype=int)
    for b in range(B):
        m = x[b, 0]
        for j in range(1, N):
            m = max(m, x[b, j])
        s = x[b, 0]
        for j in range(1, N):
            s = s + x[b, j]
        top[b] = m
        total[b] = s
    return top, total
"""
# Powers of integers are integers, which float32 does not hold beyond 2 ** 24.
POWERS = """
def powers(x: Int[Array, "N"]):
    y = zeros(N, dtype=int)
    for i in range(N):
        y[i] = (x[i] + 1) ** 3
    return y
"""
# Two sums over one loop, the first of which is under a guard, beside what iterations hand on.
BESIDE = """
def beside(X: Float[Array, "T D"], W: Float[Array, "D D"], h0: Float[Array, "D"]):
    h = zeros((T + 1, D))
    q = zeros((T, D))
    for r in range(D):
        h[0, r] = h0[r]
    for t in range(T):
        for r in range(D):
            for s in range(D):
                if X[t, s] > 0.0:
                    q[t, r] = q[t, r] + h[t, s]
                h[t + 1, r] = h[t + 1, r] + 0.3 * W[s, r] * h[t, s]
    return h, q
"""
# Sums over a part of a row that starts behind each of its elements; the row may have none.
BEHIND = """
def behind(X: Float[Array, "T D"], W: Float[Array, "D D"]):
    h = ones((T + 1, D))
    y = zeros(T)
    for t in range(T - 1, -1, -1):
        for s in range(D):
            u = tanh(h[t + 1, s] + X[t, s])
            y[t] = y[t] + u
            for r in range(s):
                h[t, r] += u * W[s, r] * 0.3
    return h, y
"""
# The first iteration sets what the others find: each reads the cell that another one has written.
FIRST = """
def first(X: Float[Array, "T D"]):
    h = zeros((T + 1, D))
    for t in range(T):
        if t == 0:
            for d in range(D):
                h[t + 1, d] = X[t, d]
        else:
            for d in range(D):
                h[t + 1, d] = tanh(h[t, d] * 0.5 + X[t, d])
    return h
"""
# Of the same array, cells that earlier iterations have set, and one that a later one will set.
EARLIER = """
def earlier(X: Float[Array, "T"]):
    a = ones(T + 1)
    b = zeros(T)
    for t in range(T):
        a[t + 1] = X[t] * X[t]
        b[t] = a[t] * a[t]
    return b
"""
LATER = """
def later(X: Float[Array, "T"]):
    a = ones(T)
    b = zeros(T)
    for t in range(1, T):
        a[t - 1] = X[t] * X[t]
        b[t] = a[t] * 2.0
    return b
"""
# A row of o has no elements where D is 0: lengths may then go beyond the rows that o has.
BEYOND = """
def beyond(X: Float[Array, "M D"], n: Int[Array, "M"], a: Float[Array, "L"], b: Float[Array, "N"]):
    o = zeros((N, D))
    q = zeros(L)
    for i in range(M):
        for j in range(n[i]):
            for d in range(D):
                o[j, d] = o[j, d] + X[i, d] * b[j]
            q[j] = q[j] + a[j]
    return o, q
"""


def assert_verified(
    text: str, sizes: str, file: Path, passes: str = "both", dtypes: str = "float32"
) -> None:
    """Assert that kernels give what the listing gives, at sizes with a semicolon between sets."""
    file.write_text(text)
    sets = [part for each in sizes.split(";") for part in ("--sizes", each.strip())]
    assert main(["verify", str(file), "--pass", passes, "--dtype", dtypes, *sets]) == 0


# Row 0 has no iterations of j, and what is read in front of them is not there.
IN_FRONT = """
def in_front(Q: Float[Array, "N"], K: Float[Array, "N"]):
    y = zeros(N)
    for i in range(N):
        for j in range(1, i + 1):
            y[i] += Q[i - 1] * K[j]
    return y
"""
# A guard says of a product of sizes what keeps it inside.
STRIDED = """
def strided(Q: Float[Array, "N E"], K: Float[Array, "N E"], R: int, W: int):
    O = zeros(N)
    for i in range(N):
        m = -inf
        l = 0.0
        for t in range(W):
            if i - R * t >= 0:
                s = sum(Q[i, e] * K[i - R * t, e] for e in range(E)) / sqrt(E)
                n = max(m, s)
                l = l * exp(m - n) + exp(s - n)
                m = n
        O[i] = m + log(l)
    return O
"""
# Scores that do not count, 0, may be far above the maximum of those that do.
FAR_BELOW = """
def far_below(
    Q: Float[Array, "M E"], K: Float[Array, "N E"], Z: Float[Array, "M N"], V: Float[Array, "N D"]
):
    S = zeros((M, N))
    O = zeros((M, D))
    for i in range(M):
        for j in range(N):
            S[i, j] = sum(Q[i, e] * K[j, e] for e in range(E)) - 1000.0 * Z[i, j] ** 2
        m = max(S[i, j] for j in range(N))
        l = sum(exp(S[i, j] - m) for j in range(N))
        for d in range(D):
            O[i, d] = sum(exp(S[i, j] - m) / l * V[j, d] for j in range(N))
    return O
"""
# Squares of distances in groups: each group is added to the scores.
GROUPED = """
def grouped(
    Q: Float[Array, "M P 3"], K: Float[Array, "N P 3"], w: Float[Array, "P"], V: Float[Array, "N D"]
):
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        l = 0.0
        acc = zeros(D)
        for j in range(N):
            s = sum(w[p] * sum((Q[i, p, x] - K[j, p, x]) ** 2 for x in range(3)) for p in range(P))
            n = max(m, s)
            a = exp(m - n)
            l = l * a + exp(s - n)
            for d in range(D):
                acc[d] = acc[d] * a + exp(s - n) * V[j, d]
            m = n
        for d in range(D):
            O[i, d] = acc[d] / l
    return O
"""

# Each row looks at the scores of the row before: two nests over the same rows.
ROW_BEFORE = """
def row_before(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    S = zeros((M, N))
    O = zeros((M, D))
    for i in range(M):
        for j in range(N):
            S[i, j] = sum(Q[i, e] * K[j, e] for e in range(E))
    for i in range(M):
        m = -inf
        l = 0.0
        acc = zeros(D)
        for j in range(N):
            s = S[i, j]
            if i >= 1:
                s += S[i - 1, j]
            n = max(m, s)
            l = l * exp(m - n) + exp(s - n)
            for d in range(D):
                acc[d] = acc[d] * exp(m - n) + exp(s - n) * V[j, d]
            m = n
        for d in range(D):
            O[i, d] = acc[d] / l
    return O
"""

# What all rows of a head add to, in columns that are written out.
COLUMNS = """
def columns(Q: Float[Array, "H N E"], K: Float[Array, "H N E"], w: Float[Array, "H 2"]):
    O = zeros((H, N))
    for h in range(H):
        for i in range(N):
            m = -inf
            l = 0.0
            for j in range(i + 1):
                s = w[h, 0] * sum(Q[h, i, e] * K[h, j, e] for e in range(E)) + w[h, 1] * j
                n = max(m, s)
                l = l * exp(m - n) + exp(s - n)
                m = n
            O[h, i] = m + log(l)
    return O
"""

# The mean of a part of the scores: where it is no number, neither is what the listing gives.
MEAN_SCORE = """
def mean_score(X: Float[Array, "M N"], b: Float[Array, "N"], V: Float[Array, "N D"]):
    O = zeros((M, D)); H = zeros(M)
    for i in range(M):
        m = -inf
        for j in range(N):
            m = max(m, X[i, j] + b[j])
        l = 0.0
        h = 0.0
        for j in range(N):
            l += exp(X[i, j] + b[j] - m)
            h += exp(X[i, j] + b[j] - m) * X[i, j]
        H[i] = h / l
        for j in range(N):
            for d in range(D):
                O[i, d] += exp(X[i, j] + b[j] - m) / l * V[j, d]
    return O, H
"""

# Sums of sums of integers that float32 would round.
INTEGER_SUMS = """
def far(A: Int[Array, "M P 3"], B: Int[Array, "N P 3"]):
    top = zeros(M, dtype=int64)
    for i in range(M):
        for j in range(N):
            far = sum(sum(abs(A[i, p, x] - B[j, p, x]) for x in range(3)) for p in range(P))
            top[i] = max(top[i], far)
    return top
"""


@pytest.mark.parametrize("name", SHARED)
def test_programs_store_no_cells_that_a_guard_gives_to_others(name: str) -> None:
    with pytest.raises(NotLowered, match=r"no subscript tells which cells of u .* iteration of r"):
        lower(derive(program(SHARED[name]), "fold"))


def test_rows_set_as_a_whole_are_kept_as_a_whole(tmp_path: Path) -> None:
    assert_verified(SET_ANEW, "R=2,T=3,N=5", tmp_path / "anew.py", "forward")
    with pytest.raises(NotDifferentiated, match="no closed form"):
        backward(program(SET_ANEW))


def test_an_argument_in_float32_is_so_in_any_run_and_so_is_its_gradient(tmp_path: Path) -> None:
    assert_verified(EXACT, "N=3,M=5", tmp_path / "exact.py", "both", "float32,float16")
    assert_verified(ADDED, "N=30,K=5", tmp_path / "added.py", "forward", "float32,float16")


def test_two_sums_of_one_nest_are_each_joined_behind_it(tmp_path: Path) -> None:
    assert_verified(TWO_TOTALS, "H=3,M=4,N=5,E=2; H=2,M=3,N=0,E=2", tmp_path / "totals.py")


def test_integers_are_folded_as_integers(tmp_path: Path) -> None:
    made = emitted(program(INTEGERS))
    x = torch.tensor([[2**25 + 1, 5], [2**40 + 1, 2**40 - 1]])
    top, total = load_module("met_integers", made.text, tmp_path / "i.py").integers(x)
    assert top.tolist() == x.amax(1).tolist()
    assert total.tolist() == x.sum(1).tolist()


def test_powers_of_integers_are_integers(tmp_path: Path) -> None:
    x = torch.tensor([2**20, 5, -(2**19)])
    powers = load_module("met_powers", emitted(program(POWERS)).text, tmp_path / "p.py").powers
    assert powers(x).tolist() == ((x + 1) ** 3).tolist()
    with pytest.raises(NotLowered, match="y holds integers, and powers are worked out in float32"):
        lower(derive(program(POWERS.replace("(x[i] + 1) ** 3", "2 ** x[i] + 1")), "fold"))
    kept = text_of(with_powers_of_two(program(POWERS.replace("(x[i] + 1) ** 3", "2 ** x[i]"))))
    assert "2 ** x[i]" in kept


@pytest.mark.parametrize(
    ("power", "rest"), [("{} * x[i]", "x[i]"), ("2.0 * x[i] * {} / t", "2.0 * x[i] / t")]
)
def test_powers_of_two_with_their_unit_are_those_of_e(power: str, rest: str) -> None:
    listed = """
def f(x: Float[Array, "N"], t: float):
    y = zeros(N)
    for i in range(N):
        y[i] = exp2(POWER)
    return y
""".replace("POWER", power.format("1.44269504"))
    assert f"exp({rest})" in text_of(with_powers_of_two(program(listed)))


def test_a_sum_beside_one_under_a_guard_is_not_under_it(tmp_path: Path) -> None:
    assert_verified(BESIDE, "T=3,D=5", tmp_path / "beside.py", "forward")


def test_where_there_is_no_row_no_loop_over_blocks_runs(tmp_path: Path) -> None:
    assert_verified(BEHIND, "T=3,D=5; T=4,D=0", tmp_path / "behind.py", "forward")


def test_a_cell_of_the_iteration_before_is_not_one_of_this_iteration(tmp_path: Path) -> None:
    assert_verified(FIRST, "T=4,D=3; T=1,D=2; T=0,D=2", tmp_path / "first.py")
    assert_verified(EARLIER, "T=4; T=1; T=0", tmp_path / "earlier.py")
    with pytest.raises(NotDifferentiated, match="another iteration of t may have written it"):
        backward(program(LATER))


def test_where_a_size_is_0_what_its_loop_touches_bounds_nothing(tmp_path: Path) -> None:
    beyond = load_module("met_beyond", emitted(program(BEYOND)).text, tmp_path / "b.py").beyond
    a = torch.arange(1.0, 8.0)
    _, q = beyond(torch.zeros(2, 0), torch.tensor([5, 7]), a, torch.zeros(2))
    assert q.tolist() == [2.0, 4.0, 6.0, 8.0, 10.0, 6.0, 7.0]


def test_what_is_read_in_front_of_a_loop_is_there(tmp_path: Path) -> None:
    assert_verified(IN_FRONT, "N=7; N=40; N=1", tmp_path / "front.py")


def test_what_a_listing_reads_under_guards_its_gradient_does_too(tmp_path: Path) -> None:
    assert_verified(STRIDED, "N=9,R=2,W=3; N=4,R=3,W=5; N=3,R=0,W=2", tmp_path / "strided.py")


def test_scores_that_do_not_count_are_no_reason_for_nan(tmp_path: Path) -> None:
    assert_verified(FAR_BELOW, "M=9,N=1,E=4,D=2; M=9,N=65,E=4,D=2", tmp_path / "far.py", "forward")


def test_sums_of_sums_between_rows_are_added_up_one_at_a_time(tmp_path: Path) -> None:
    made = emitted(program(GROUPED)).text
    assert "for all of them at once a block has 4 dimensions" in made
    assert "None, None, None" not in made
    assert_verified(GROUPED, "M=3,N=5,P=2,D=2; M=3,N=5,P=0,D=2", tmp_path / "grouped.py")


def test_rows_that_can_be_done_at_once_are_not_joined_into_a_loop(tmp_path: Path) -> None:
    blocks = emitted(program(ROW_BEFORE)).blocks
    assert [has_products(kernel.body) for kernel in blocks.kernels] == [True, True]
    assert not blocks.notes
    assert_verified(ROW_BEFORE, "M=5,N=3,E=2,D=4; M=1,N=3,E=2,D=4", tmp_path / "rows.py")


def test_rows_keep_parts_of_what_is_added_to_each_column(tmp_path: Path) -> None:
    made = emitted_with_backward(program(COLUMNS)).backward
    names = [kernel.name for kernel in made.kernels if not has_products(kernel.body)]
    assert names == ["columns_backward_dw_kernel"]
    assert_verified(COLUMNS, "H=2,N=7,E=3; H=3,N=1,E=2", tmp_path / "columns.py")


def test_weights_and_their_scores_are_added_up_in_one_pass(tmp_path: Path) -> None:
    (kernel,) = emitted(program(MEAN_SCORE)).blocks.kernels
    assert has_products(kernel.body)
    assert sum(isinstance(op, TileLoop) for op in kernel.body) == 2  # full blocks and the last
    assert_verified(MEAN_SCORE, "M=5,N=3,D=4; M=3,N=65,D=4", tmp_path / "mean.py")


def test_sums_of_sums_of_integers_are_integers(tmp_path: Path) -> None:
    made = emitted(program(INTEGER_SUMS))
    a = torch.tensor([[[2**25 + 1, 0, 0], [1, 2, 3]]])
    b = torch.zeros(3, 2, 3, dtype=torch.int64)
    top = load_module("met_sums", made.text, tmp_path / "sums.py").far(a, b)
    assert top.tolist() == [2**25 + 7]
