"""States that are looked at in between go over blocks, as scans of what iterations take."""

from __future__ import annotations

import pytest

from looptrans.adjoint.backward import backward
from looptrans.blocks.block_ir.expr import Dot, Scan, walk
from looptrans.blocks.block_ir.ops import exprs_of, ops_in
from looptrans.blocks.block_ir.program import BlockProgram
from looptrans.blocks.lower import lower
from looptrans.blocks.passes.late import late_body
from looptrans.derivation.derive import derive
from looptrans.runtime.verifying.verify import verify
from tests.analysis import program
from tests.test_adjoint_listings import check

HEAD = """
def f(x: Float[Array, "M N"], v: Float[Array, "N"], u: Float[Array, "M"], ok: Bool[Array, "N"]):
    y = zeros((M, N)); z = zeros((M, N)); A = zeros(M)
    for i in range(M):
        r = 0.0
"""


def listing(body: str, loop: str = "range(0, N)", before: str = "") -> str:
    """Return a listing with a loop over j that hands r on."""
    lines = [f"        {line}" for line in before.strip().splitlines()]
    lines += [f"        for j in {loop}:"]
    lines += [f"            {line}" for line in body.strip().splitlines()]
    return HEAD + "\n".join([*lines, "        A[i] = r", "    return y, z, A"])


def lowered(text: str) -> BlockProgram:
    return lower(derive(program(text), "fold"))


def scans(found: BlockProgram) -> list[Scan]:
    return [
        part
        for kernel in found.kernels
        for op in ops_in(kernel.body)
        for expr in exprs_of(op)
        for part in walk(expr)
        if isinstance(part, Scan)
    ]


SCANNED = {
    "sum, before": listing("y[i, j] = r\nr = r + x[i, j]"),
    "sum, after": listing("r = r + x[i, j]\ny[i, j] = exp(-abs(r))"),
    "both": listing("y[i, j] = r\nr = r - x[i, j] * v[j]\nz[i, j] = r"),
    "product": listing("r = r * (0.9 + 0.2 * v[j])\ny[i, j] = r", before="r = 1.0"),
    "maximum": listing("y[i, j] = r\nr = max(r, x[i, j])", before="r = -inf"),
    "minimum of one row": listing("r = min(r, x[0, j])\ny[i, j] = r + u[i]"),
    "guarded": listing("if x[i, j] > 0.2:\n    r = r + x[i, j]\n    z[i, j] = r\ny[i, j] = r"),
    "begun anew": listing("r = x[i, j] if j % 7 == 3 else r + x[i, j]\ny[i, j] = r"),
    "both sides": listing(
        "y[i, j] = r * v[j]\nif ok[j]:\n    r = 0.5 * r + x[i, j]\nelse:\n    r = u[i]\nz[i, j] = r"
    ),
    "decay": listing("y[i, j] = r\nr = 0.9 * r + 0.1 * x[i, j]", before="r = u[i]"),
    "gate": listing("r = r / (1 + exp(-x[i, j])) + v[j]\ny[i, j] = r"),
    "alias": listing("n = r + x[i, j]\ny[i, j] = n - r\nr = n"),
    "set behind": listing("y[i, j] = r\nt = x[i, j] * v[j]\nr += t"),
    "down": listing("y[i, j] = r\nr = r + x[i, j]", "range(N - 1, -1, -1)"),
    "down from a row": listing("r = r + x[i, j]\ny[i, j] = r", "range(i, -1, -1)"),
    "up from a row": listing("y[i, j] = r\nr = 0.7 * r + x[i, j]", "range(i, N)"),
    "in a maximum": listing("r = r + x[i, j]\nA[i] = max(A[i], r - v[j])\ny[i, j] = r"),
    "an older one": listing(
        "z[i, j] = q\nq = q + r\nr = r + x[i, j]\ny[i, j] = r", before="q = 1.0"
    ),
    "the last one": listing("y[i, j] = r + t\nr = r + t\nt = x[i, j]", before="t = 0.5"),
    "set together": listing("y[i, j] = r + q\nq, r = q + v[j], r + x[i, j]", before="q = 0.0"),
    "one of one set behind": listing(
        "y[i, j] = r + q\nq = q + r\nr = r + x[i, j]", before="q = 0.0"
    ),
    "one looked at through a name": listing(
        "z[i, j] = r\nt = q * v[j]\nr += t\nq = q + x[i, j]\ny[i, j] = q", before="q = 1.0"
    ),
    "one of another": listing("r = r + x[i, j]\nq = 0.5 * q + r\ny[i, j] = q", before="q = 1.0"),
}


@pytest.mark.parametrize("name", SCANNED)
def test_a_state_that_is_looked_at_is_scanned(name: str) -> None:
    found = lowered(SCANNED[name])
    assert scans(found) and not any("one iteration at a time" in note for note in found.notes)
    report = verify(program(SCANNED[name]), [{"M": 5, "N": 150}], ["float32"])
    assert report.passed


SERIAL = {
    "what is multiplied may be large": listing("r = x[i, j] * r + v[j]\ny[i, j] = r"),
    "what it takes hangs on it": listing("r = r + exp(-abs(r)) * x[i, j]\ny[i, j] = r"),
    "what it takes is one that is handed on under a guard": listing(
        "z[i, j] = q\nif ok[j]:\n    q = q + r\n    r = r + x[i, j]\ny[i, j] = q", before="q = 0.0"
    ),
    "in turns": listing("y[i, j] = r + q\nq, r = r + v[j], q + x[i, j]", before="q = 0.0"),
    "set twice": listing("r = r + x[i, j]\ny[i, j] = r\nr = r + v[j]"),
}


@pytest.mark.parametrize("name", SERIAL)
def test_other_states_go_one_iteration_at_a_time(name: str) -> None:
    found = lowered(SERIAL[name])
    assert not scans(found) and any("one iteration at a time" in note for note in found.notes)
    assert verify(program(SERIAL[name]), [{"M": 3, "N": 20}], ["float32"]).passed


def test_infinities_are_scanned_as_they_are_added() -> None:
    """A difference of sums would be nan where -inf is added, a quotient of products where 0 is."""
    text = listing(
        "y[i, j] = exp(r)\nr = r + (-inf if x[i, j] > 0.8 else x[i, j])\n"
        "z[i, j] = q\nq = q * (0.0 if v[j] > 0.5 else v[j])",
        before="q = 1.0",
    )
    report = verify(program(text), [{"M": 4, "N": 150}], ["float32"])
    assert report.passed
    assert len(scans(lowered(text))) > 1


def test_a_state_of_pairs_is_no_block_of_three_dimensions() -> None:
    found = lowered("""
def f(x: Float[Array, "B T"], k: Float[Array, "B T E"], v: Float[Array, "B T D"]):
    h = zeros((B, E, D)); y = zeros((B, T, E, D))
    for b in range(B):
        for t in range(T):
            for e in range(E):
                for d in range(D):
                    h[b, e, d] = h[b, e, d] + k[b, t, e] * v[b, t, d]
                    y[b, t, e, d] = h[b, e, d] * 2.0
    return y
""")
    assert not scans(found)


STICK = """
def softplus(s):
    return max(s, 0.0) + log(1 + exp(-abs(s)))

def stick(Q: Float[Array, "N E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((N, D))
    for i in range(N):
        rest = 0.0
        for j in range(i, -1, -1):
            s = sum(Q[i, e] * K[j, e] for e in range(E)) / sqrt(E)
            w = exp(s - softplus(s) + rest)
            for d in range(D):
                O[i, d] += w * V[j, d]
            rest = rest - softplus(s)
    return O
"""


def test_stick_breaking_is_products_and_one_scan() -> None:
    found = lowered(STICK)
    (kernel,) = found.kernels
    assert scans(found) and not any("one iteration at a time" in note for note in found.notes)
    dots = [
        part
        for op in ops_in(kernel.body)
        for expr in exprs_of(op)
        for part in walk(expr)
        if isinstance(part, Dot)
    ]
    assert dots
    assert verify(program(STICK), [{"N": 70, "E": 16, "D": 16}], ["float32"]).passed


def test_the_gradients_of_stick_breaking_keep_a_number_for_each_pair() -> None:
    found = backward(program(STICK))
    assert any("kept for every iteration" in note for note in found.notes)
    check(program(STICK), found)


COPE = """
def cope(Q: Float[Array, "N E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((N, D))
    for i in range(N):
        m = -inf
        l = 0.0
        p = 0.0
        for j in range(i, -1, -1):
            s = sum(Q[i, e] * K[j, e] for e in range(E))
            p = p + 1 / (1 + exp(-s))
            t = s - 0.3 * p
            n = max(m, t)
            if n > -inf:
                l = l * exp(m - n) + exp(t - n)
                for d in range(D):
                    O[i, d] = O[i, d] * exp(m - n) + exp(t - n) * V[j, d]
            m = n
        for d in range(D):
            O[i, d] = O[i, d] / l
    return O
"""


# The same without the guard, and with what the scan has been in every iteration returned.
UNGUARDED = (
    COPE.replace("            if n > -inf:\n", "")
    .replace("                l = l", "            l = l")
    .replace("                for d in range(D):\n    ", "            for d in range(D):\n")
)
STORED = (
    UNGUARDED.replace("O = zeros((N, D))", "O = zeros((N, D)); S = zeros((N, N))")
    .replace("            t = s", "            S[i, j] = p\n            t = s")
    .replace("return O", "return O, S")
)
GIVEN = UNGUARDED.replace('"N D"])', '"N D"], c: float)').replace("0.3 * p", "c * p")
SHAPES = {
    "guarded": COPE,
    "without a guard": UNGUARDED,
    "the scan stored": STORED,
    "times an argument": GIVEN,
}


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES)
def test_an_online_softmax_of_scores_that_look_at_a_scan(text: str) -> None:
    found = lowered(text)
    assert scans(found) and not any("one iteration at a time" in note for note in found.notes)
    assert verify(program(text), [{"N": 70, "E": 16, "D": 16}], ["float32"]).passed


def test_its_gradients_keep_the_scan_alone() -> None:
    """The maximum and the sum have a closed form, given what was looked at."""
    found = backward(program(UNGUARDED))
    kept = [note for note in found.notes if "kept for every iteration" in note]
    assert kept == ["States are kept for every iteration: p_kept (N, N+1)."]
    check(program(UNGUARDED), found)


def test_a_late_product_knows_blocks_below_zero() -> None:
    """Iterations below 0 are iterations, not the block before the first one."""
    text = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(-100, N - 100):
            s = sum(Q[i, e] * K[j + 100, e] for e in range(E))
            n = max(m, s)
            l = l * exp(m - n) + exp(s - n)
            for d in range(D):
                O[i, d] = O[i, d] * exp(m - n) + exp(s - n) * V[j + 100, d]
            m = n
        for d in range(D):
            O[i, d] = O[i, d] / l
    return O
"""
    late = late_body(lowered(text).kernels[0])
    assert late is not None
    assert "-2147483648" in str([expr for op in ops_in(late) for expr in exprs_of(op)])


def test_scans_of_integers_are_exact() -> None:
    """Products soon have more than 32 bits, and float32 holds none beyond 2 ** 24 exactly."""
    text = listing(
        "y[i, j] = p % 7 + c % 11\np = p * 3\nc = c + 10000001 if ok[j] else j\n"
        "z[i, j] = s % 5\ns = s + 1000003 if ok[j] else s\nr = r + x[i, j]",
        before="p = 1\nc = 20000001\ns = 20000001",
    )
    assert len(scans(lowered(text))) > 2
    assert verify(program(text), [{"M": 2, "N": 150}], ["float32"]).passed
