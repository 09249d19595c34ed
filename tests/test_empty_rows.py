"""Rows that see nothing give 0 and -inf, however a listing says so, in the gradients too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from looptrans.adjoint.backward import backward
from looptrans.frontend import parse
from looptrans.ir.listing import listing
from looptrans.ir.program import Program
from looptrans.ir.source import Source
from tests.test_adjoint_closed import gaps

HEAD = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], {more}):
    O = zeros((M, D))
    L = zeros(M)
    for i in range(0, M):
        m = -inf
        l = 0.0
"""
ONLINE = """
        for j in range(0, N):
            s = Q[i] @ K[j] if ok[i, j] else -inf
            t = max(m, s)
            if t > -inf:
                l = l * exp(m - t) + exp(s - t)
                for d in range(0, D):
                    O[i, d] = O[i, d] * exp(m - t) + exp(s - t) * V[j, d]
            m = t
"""
BY_ROW = """
        if seen[i]:
            for j in range(0, N):
                s = Q[i] @ K[j]
                t = max(m, s)
                l = l * exp(m - t) + exp(s - t)
                for d in range(0, D):
                    O[i, d] = O[i, d] * exp(m - t) + exp(s - t) * V[j, d]
                m = t
"""
ENDS = {
    "a guard on the maximum, both branches": """
        if m > -inf:
            L[i] = m + log(l)
            for d in range(0, D):
                O[i, d] /= l
        else:
            L[i] = -inf
""",
    "what is empty first": """
        if l == 0:
            L[i] = -inf
            for d in range(0, D):
                O[i, d] = 0.0
        else:
            L[i] = m + log(l)
            for d in range(0, D):
                O[i, d] = O[i, d] / l
""",
    "choices": """
        L[i] = -inf if m == -inf else m + log(l)
        for d in range(0, D):
            O[i, d] = 0.0 if -inf == m else O[i, d] / l
""",
    "a divisor that is no 0": """
        safe = l if 0 < l else 1.0
        L[i] = m + log(safe)
        for d in range(0, D):
            O[i, d] /= safe
""",
    "a divisor that is at least a little": """
        safe = max(l, 1e-30)
        L[i] = m + log(safe)
        for d in range(0, D):
            O[i, d] /= safe
""",
    "one over it": """
        inv = 1.0 / l if l > 1e-6 else 0.0
        for d in range(0, D):
            O[i, d] *= inv
        L[i] = where(l != 0, m + log(l), -inf)
""",
}
ROWS = {
    "the same guard": """
            L[i] = m + log(l)
            for d in range(0, D):
                O[i, d] /= l
        else:
            L[i] = -inf
            for d in range(0, D):
                O[i, d] = 0.0
""",
    "another one": """
        L[i] = m + log(l) if l > 0.0 else -inf
        for d in range(0, D):
            O[i, d] = O[i, d] / l if l > 0.0 else 0.0
""",
}
ELSE = """
        L[i] = m + log(l)
        for d in range(0, D):
            if m > -inf:
                O[i, d] = O[i, d] / l
            else:
                O[i, d] = W[i, d]
"""
COUNTED = """
def f(Q: Float[Array, "B M E"], K: Float[Array, "B N E"], V: Float[Array, "B N D"],
      n: Int[Array, "B", "0:N + 1"]):
    O = zeros((B, M, D))
    L = zeros((B, M))
    for b in range(0, B):
        for i in range(0, M):
            if n[b] == 0:
                L[b, i] = -inf
                for d in range(0, D):
                    O[b, i, d] = 0.0
            else:
                m = -inf
                l = 0.0
                for j in range(0, n[b]):
                    s = Q[b, i] @ K[b, j]
                    t = max(m, s)
                    l = l * exp(m - t) + exp(s - t)
                    for d in range(0, D):
                        O[b, i, d] = O[b, i, d] * exp(m - t) + exp(s - t) * V[b, j, d]
                    m = t
                L[b, i] = m + log(l)
                for d in range(0, D):
                    O[b, i, d] /= l
    return O, L
"""
OK = np.array([[True, False, True, True], [False] * 4, [True, True, False, False]])


def listing_of(loop: str, end: str, more: str) -> Program:
    """Return a listing: its loop over keys, and what it says behind it."""
    return parse(Source("a.py", HEAD.format(more=more) + loop + end + "    return O, L\n"))


def check(program: Program, **given: np.ndarray) -> None:
    """Two nests with products, what they need handed over, and the gradients of autograd."""
    found = backward(program)
    assert all(step.decision == "legal" for step in found.steps)
    assert {saved.name for saved in found.saved} == {"O", "L"}
    assert sum("for j in" in line for line in listing(found.program).splitlines()) == 2
    assert all(error < 1e-10 for error in gaps(found, 0, **given))


@pytest.mark.parametrize("name", ENDS)
def test_a_mask_may_leave_a_row_without_keys(name: str) -> None:
    program = listing_of(ONLINE, ENDS[name], 'ok: Bool[Array, "M N"]')
    check(program, ok=OK)


def test_the_keys_that_are_seen_may_be_counted() -> None:
    """A count of the terms of a sum asks what the sum does; it is not handed over."""
    counting = """
        count = 0
        for j in range(0, N):
            if ok[i, j]:
                count += 1
"""
    end = ENDS["a guard on the maximum, both branches"].replace("m > -inf", "count >= 1")
    program = listing_of(counting + ONLINE, end, 'ok: Bool[Array, "M N"]')
    check(program, ok=OK)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_may_be_left_out(name: str) -> None:
    program = listing_of(BY_ROW, ROWS[name], 'seen: Bool[Array, "M"]')
    check(program, seen=np.array([True, False, True]))


def test_a_sequence_may_have_no_keys() -> None:
    check(parse(Source("a.py", COUNTED)), n=np.array([2, 0]))


def test_an_empty_row_may_hold_something_else() -> None:
    """The row sums read the output, and where it is something else nothing of it."""
    program = listing_of(ONLINE, ELSE, 'W: Float[Array, "M D"], ok: Bool[Array, "M N"]')
    found = backward(program)
    assert all(step.decision == "legal" for step in found.steps)
    assert {saved.name for saved in found.saved} == {"O", "L", "l_kept"}
    assert sum("for j in" in line for line in listing(found.program).splitlines()) == 2
    assert all(error < 1e-10 for error in gaps(found, 0, ok=OK))


GATED = """
        for d in range(0, D):
            O[i, d] = O[i, d] / l * g[i, d] if l > 0 else 0.0
"""


def test_a_factor_of_an_empty_row_receives_nothing() -> None:
    """The quotient that it is multiplied by is 0 there, and not 0 / 0."""
    program = listing_of(ONLINE, GATED, 'g: Float[Array, "M D"], ok: Bool[Array, "M N"]')
    assert all(error < 1e-10 for error in gaps(backward(program), 0, ok=OK))


SUMMED = """
def f(S: Float[Array, "M N"], V: Float[Array, "N D"], a: Float[Array, "M"], W: Float[Array, "M D"],
      ok: Bool[Array, "M N"]):
    O = zeros((M, D))
    L = zeros(M)
    for i in range(0, M):
        l = 0.0
        for j in range(0, N):
            if ok[i, j]:
                l += exp(S[i, j] + a[i])
                for d in range(0, D):
                    O[i, d] += exp(S[i, j] + a[i]) * V[j, d]
        {end}
    return O, L
"""
SUMS = {
    "the sum itself": """
        L[i] = l
        for d in range(0, D):
            O[i, d] = O[i, d] / l if l > 0 else W[i, d]
""",
    "twice the sum": """
        l = l * 2.0
        for d in range(0, D):
            O[i, d] = O[i, d] / l if l > 0 else W[i, d]
""",
    "its logarithm": """
        L[i] = log(l) if l > 0 else -inf
        for d in range(0, D):
            O[i, d] = O[i, d] / l if l > 0 else 0.0
""",
}


@pytest.mark.parametrize("name", SUMS)
def test_a_row_without_terms_moves_nothing_of_the_row(name: str) -> None:
    """Its weights add up to 0, and not to 1; nothing is divided by its sum."""
    program = parse(Source("a.py", SUMMED.format(end=SUMS[name].strip())))
    found = backward(program)
    assert all(step.decision == "legal" for step in found.steps)
    assert all(error < 1e-10 for error in gaps(found, 0, ok=OK))


def test_a_term_of_the_whole_row_receives_nothing_where_the_row_is_empty() -> None:
    online = ONLINE.replace("Q[i] @ K[j]", "Q[i] @ K[j] + a[i]")
    end = ENDS["choices"]
    program = listing_of(online, end, 'a: Float[Array, "M"], ok: Bool[Array, "M N"]')
    assert all(error < 1e-10 for error in gaps(backward(program), 0, ok=OK))


def test_terms_that_are_too_small_for_a_number_are_none() -> None:
    loop = """
        for j in range(0, N):
            l += exp(Q[i] @ K[j] - 10000.0 * Q[i, 0] * Q[i, 0])
            for d in range(0, D):
                O[i, d] += exp(Q[i] @ K[j] - 10000.0 * Q[i, 0] * Q[i, 0]) * V[j, d]
"""
    end = SUMS["its logarithm"]
    head = HEAD.replace("        m = -inf\n", "").replace(", {more}", "")
    program = parse(Source("a.py", head + loop + end + "    return O, L\n"))
    found = backward(program)
    assert all(error < 1e-10 for error in gaps(found, 0))


def test_a_term_that_is_added_behind_the_loop_is_infinite_in_an_empty_row() -> None:
    end = """
        l = l + exp(a[i] - m)
        L[i] = m + log(l) if m > -inf else a[i]
        for d in range(0, D):
            O[i, d] = O[i, d] / l if m > -inf else 0.0
"""
    program = listing_of(ONLINE, end, 'a: Float[Array, "M"], ok: Bool[Array, "M N"]')
    assert all(error < 1e-10 for error in gaps(backward(program), 0, ok=OK))


CLUSTERS = """
def f(X: Float[Array, "M N"], beta: float, ok: Bool[Array, "N"]):
    Y = zeros(M)
    for i in range(0, M):
        m = inf
        for j in range(0, N):
            if ok[j]:
                m = min(m, X[i, j] * X[i, j])
        l = 0.0
        for j in range(0, N):
            if ok[j]:
                w = exp(-beta * (X[i, j] * X[i, j] - m))
                l += w
                Y[i] += w * X[i, j]
        Y[i] = Y[i] / l
    return Y
"""


def test_what_is_infinite_where_it_is_left_out_adds_nothing() -> None:
    """An exponential may be infinite where a mask leaves it out: 0 times it is no number."""
    found = backward(parse(Source("a.py", CLUSTERS)))
    inputs: dict[str, Any] = {
        "X": np.array([[60.0, 1.0, 60.1, 2.0]] * 3),
        "ok": np.array([True, False, True, False]),
        "beta": np.array(0.7),
    }
    assert all(error < 1e-10 for error in gaps(found, 0, **inputs))


FORGETTING = """
def f(Q: Float[Array, "M E"], K: Float[Array, "M E"], V: Float[Array, "M D"], F: Float[Array, "M"]):
    O = zeros((M, D))
    for i in range(M):
        m = -inf; l = 0.0
        for j in range({keys}):
            m = max(m, Q[i] @ K[j] + F[i] - F[j])
        for j in range({keys}):
            l += exp(Q[i] @ K[j] + F[i] - F[j] - m)
        for j in range({keys}):
            for d in range(D):
                O[i, d] += exp(Q[i] @ K[j] + F[i] - F[j] - m) * V[j, d]
        for d in range(D):
            O[i, d] = O[i, d] / l {guard}
    return O
"""


@pytest.mark.parametrize(("keys", "guard"), [("i + 1", ""), ("M", ""), ("i", "if l > 0 else 0.0")])
def test_what_a_row_adds_to_all_of_its_scores_has_no_gradient(keys: str, guard: str) -> None:
    """Its weights add up to 1, or there are none; which of the two is not asked for."""
    found = backward(parse(Source("a.py", FORGETTING.format(keys=keys, guard=guard))))
    assert all(step.decision == "legal" for step in found.steps)
    assert {saved.name for saved in found.saved} == {"O", "top", "log_l"}
    (gathered,) = (line for line in listing(found.program).splitlines() if "dF[" in line)
    assert "- d" in gathered  # as a key only
    assert all(error < 1e-10 for error in gaps(found, 0))


SAID_IN_MANY_WAYS = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
      seg: Int[Array, "N"]):
    O = zeros((M, D)); m = full(M, -inf); l = zeros(M)
    for i in range(M):
        for j in range(N):
            s = -inf if j > i or seg[j] == 0 else Q[i] @ K[j]
            m[i] = max(m[i], s)
        for j in range(N):
            s = Q[i] @ K[j] if not i < j and not seg[j] == 0 else -inf
            l[i] = l[i] + ({weight})
        for k in range(N):
            s = (Q[i] @ K[k] if not seg[k] == 0 else -inf) if i >= k else -inf
            for d in range(D):
                O[i, d] = O[i, d] + exp(s - m[i]) / l[i] * V[k, d]
    return O
"""


@pytest.mark.parametrize(
    "weight",
    [
        "exp(s - m[i])",
        "exp(s - m[i]) if m[i] > -inf else 0.0",
        "0.0 if m[i] == -inf else exp(s - m[i])",
        "exp(s - m[i]) if -inf < m[i] else 0.0",
    ],
)
def test_masks_may_be_written_in_many_ways(weight: str) -> None:
    """Scores are seen to be the same; a sum may ask whether its maximum is of anything."""
    found = backward(parse(Source("a.py", SAID_IN_MANY_WAYS.format(weight=weight))))
    assert all(step.decision == "legal" for step in found.steps)
    assert sum("for j in" in line for line in listing(found.program).splitlines()) == 2
    assert all(error < 1e-10 for error in gaps(found, 0, seg=np.array([1, 0, 1, 2])))


SKIPPED = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
      seg: Int[Array, "N"]):
    O = zeros((M, D)); m = full(M, -inf); l = zeros(M)
    for i in range(M):
        for j in range(N):
            if j > i:
                continue
            elif seg[j] == 0:
                continue
            m[i] = max(m[i], Q[i] @ K[j])
        for j in range(N):
            if j > i: continue
            if seg[j] == 0: continue
            l[i] = l[i] + exp(Q[i] @ K[j] - m[i])
        for j in range(N):
            if j > i or seg[j] == 0:
                continue
            for d in range(D):
                O[i, d] = O[i, d] + exp(Q[i] @ K[j] - m[i]) / l[i] * V[j, d]
    return O
"""


def test_keys_may_be_skipped_by_continue() -> None:
    found = backward(parse(Source("a.py", SKIPPED)))
    assert sum("for j in" in line for line in listing(found.program).splitlines()) == 2
    assert all(error < 1e-10 for error in gaps(found, 0, seg=np.array([1, 0, 1, 2])))


WHOLE_ROWS = """
def f(S: Float[Array, "M N"], ok: Bool[Array, "M"]):
    L = zeros(M)
    for i in range(0, M):
        m = -inf
        for j in range(0, N):
            m = max(m, S[i, j] if ok[i] else -inf)
        l = 0.0
        for j in range(0, N):
            l = l + exp((S[i, j] if ok[i] else -inf) - m)
        L[i] = m + log(l)
    return L
"""


def test_a_mask_of_whole_rows_leaves_no_gradient_to_their_maxima() -> None:
    found = backward(parse(Source("a.py", WHOLE_ROWS)))
    assert "ties" not in listing(found.program)
    assert all(error < 1e-10 for error in gaps(found, 0, ok=np.array([1, 1, 1], bool)))
