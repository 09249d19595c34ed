"""Backward passes of loops that carry more than sums: by the closed form of what they leave."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from looptrans.adjoint.backward import backward
from looptrans.adjoint.carried.states_kept import with_states_kept
from looptrans.adjoint.derived import Backward
from looptrans.adjoint.reading.closing import closings
from looptrans.adjoint.reading.read import read
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.executor import execute, prepare
from looptrans.ir.listing import listing as text_of
from tests.analysis import program, spec
from tests.test_adjoint_torch import gradients

SIZES = {"M": 3, "N": 4, "E": 2, "D": 3, "H": 2, "B": 2}
HEAD = 'def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):\n'
SCORES = """
    O = zeros((M, D))
    for i in range(0, M):
        m = -inf
        l = 0.0
        for j in range(0, N):
            s = 0.0
            for e in range(0, E):
                s += Q[i, e] * K[j, e]
            {after}"""
ONLINE = """
            t = max(m, s)
            l = l * exp(m - t) + exp(s - t)
            for d in range(0, D):
                O[i, d] = O[i, d] * exp(m - t) + exp(s - t) * V[j, d]
            m = t
        for d in range(0, D):
            O[i, d] = O[i, d] / l
    return O
"""
ALL = {
    "softmax in one pass over the row": """
def f(X: Float[Array, "M N"]):
    Y = zeros((M, N))
    for i in range(0, M):
        m = -inf
        l = 0.0
        for j in range(0, N):
            t = max(m, X[i, j])
            l = l * exp(m - t) + exp(X[i, j] - t)
            m = t
        for j in range(0, N):
            Y[i, j] = exp(X[i, j] - m) / l
    return Y
""",
    "the logarithm of a sum, one by one": """
def f(X: Float[Array, "M N"]):
    L = full(M, -inf)
    for i in range(0, M):
        for j in range(0, N):
            L[i] = log(exp(L[i]) + exp(X[i, j]))
    return L
""",
    "mean and variance by Welford": """
def f(X: Float[Array, "M N"], g: Float[Array, "N"]):
    Y = zeros((M, N))
    for i in range(0, M):
        mu = 0.0
        q = 0.0
        for j in range(0, N):
            e = X[i, j] - mu
            mu = mu + e / (j + 1)
            q = q + e * (X[i, j] - mu)
        for j in range(0, N):
            Y[i, j] = (X[i, j] - mu) / sqrt(q / N + 0.5) * g[j]
    return Y
""",
    "a guard, the scores by a loop inside, the log of the sum returned": HEAD
    + """
    O = zeros((M, D))
    L = zeros(M)
    for i in range(0, M):
        m = -inf
        l = 0.0
        for j in range(N - 1, -1, -1):
            if j <= i:
                s = 0.0
                for e in range(0, E):
                    s = s + Q[i, e] * K[j, e]
                t = max(m, s)
                l = l * exp(m - t) + exp(s - t)
                for d in range(0, D):
                    O[i, d] = O[i, d] * exp(m - t) + exp(s - t) * V[j, d]
                m = t
        for d in range(0, D):
            O[i, d] = O[i, d] / l
        L[i] = m + log(l)
    return O, L
""",
    "a state of its own at first, the scores returned": """
def f(Q: Float[Array, "H M E"], K: Float[Array, "H N E"], V: Float[Array, "H N D"],
      sink: Float[Array, "H"]):
    O = zeros((H, M, D))
    S = zeros((H, M, N))
    for h in range(0, H):
        for i in range(0, M):
            m = sink[h]
            l = 1.0
            for j in range(0, N):
                S[h, i, j] = sum(Q[h, i, e] * K[h, j, e] for e in range(0, E))
                t = max(m, S[h, i, j])
                l = l * exp(m - t) + exp(S[h, i, j] - t)
                for d in range(0, D):
                    O[h, i, d] = O[h, i, d] * exp(m - t) + exp(S[h, i, j] - t) * V[h, j, d]
                m = t
            for d in range(0, D):
                O[h, i, d] = O[h, i, d] / l
    return O, S
""",
    "scores that are scaled where they are": HEAD + SCORES.format(after="s = s * 0.5") + ONLINE,
    "scores that are moved under a guard": HEAD
    + SCORES.format(after="if j > i: s = s - 2.0")
    + ONLINE,
    "two scores under one name": HEAD
    + SCORES.format(after="u = s * 0.5; s = 0.0")
    + """
            for d in range(0, D):
                s += K[j, 0] * V[j, d]
            s = tanh(u + s)"""
    + ONLINE,
    "weights that are no exponentials": HEAD
    + """
    O = zeros((M, D))
    for i in range(0, M):
        z = 0.0
        for j in range(0, N):
            w = sum(Q[i, e] * K[j, e] for e in range(0, E)) ** 2 + 1.0
            n = z + w
            for d in range(0, D):
                O[i, d] = O[i, d] * z / n + w * V[j, d] / n
            z = n
    return O
""",
}
# What the flow cannot tell: one of two branches sets c and p in every iteration, and what a test
# lets in sets s before it is read.
BRANCHES = {
    "scores under a test of data": """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], u: Float[Array, "N"]):
    O = zeros((M, D))
    for i in range(0, M):
        m = -inf
        l = 0.0
        for j in range(0, N):
            if u[j] < 2.0:
                s = 0.0
                for e in range(0, E):
                    s += Q[i, e] * K[j, e]
                s = s * 0.5
                t = max(m, s)
                l = l * exp(m - t) + exp(s - t)
                for d in range(0, D):
                    O[i, d] = O[i, d] * exp(m - t) + exp(s - t) * V[j, d]
                m = t
        if l > 0:
            for d in range(0, D):
                O[i, d] = O[i, d] / l
    return O
""",
    "a masked score, what nothing was seen yet in branches": HEAD
    + SCORES.format(after="s = s if j <= i + 1 else -inf")
    + """
            t = max(m, s)
            if t == -inf:
                c = 1.0
                p = 0.0
            else:
                c = exp(m - t)
                p = exp(s - t)
            l = l * c + p
            for d in range(0, D):
                O[i, d] = O[i, d] * c + p * V[j, d]
            m = t
        for d in range(0, D):
            O[i, d] = O[i, d] / l
    return O
""",
}


def gaps(
    found: Backward, seed: int, of: Mapping[str, int] = SIZES, /, **chosen: np.ndarray
) -> list[float]:
    """Return how far each gradient is from autograd's, on inputs made at random or chosen."""
    sizes = {p.name: of[p.name] for p in found.listing.parameters if p.is_integer}
    made = prepare(found.listing, sizes, None, seed)
    inputs: dict[str, Any] = {**made.arrays, **made.reals, **chosen}
    forward = execute(found.forward, sizes=sizes, inputs=inputs)
    for name, value in execute(found.listing, sizes=sizes, inputs=inputs).items():
        np.testing.assert_allclose(forward[name], value, rtol=1e-12)
    random = np.random.default_rng(seed)
    incoming = {name: random.standard_normal(forward[name].shape) for name in found.of}
    given = {**inputs, **{found.incoming[name]: g for name, g in incoming.items()}}
    given |= {saved.name: forward[saved.name] for saved in found.saved}
    got = execute(found.program, sizes=sizes, inputs=given)
    want = gradients(found.listing, sizes, inputs, incoming)
    assert set(want) == set(found.gradients)
    return [float(np.abs(got[name] - want[of]).max()) for of, name in found.gradients.items()]


@pytest.mark.parametrize("name", [*ALL, *BRANCHES])
def test_gradients_are_those_of_autograd_over_the_listing_as_it_is(name: str) -> None:
    found = backward(program({**ALL, **BRANCHES}[name]))
    assert found.steps[0].name.startswith("closed form of j")
    assert all(step.decision == "legal" for step in found.steps)
    for seed in range(2):
        errors = gaps(found, seed)
        assert errors and max(errors) < 1e-10


DIVIDED = """
    O = zeros((M, D))
    L = full(M, -inf)
    for i in range(0, M):
        m = -inf
        l = 0.0
        for j in range(0, N):
            if j <= i - 1 and j >= i - 2:
                s = Q[i] @ K[j]
                t = max(m, s)
                l = l * exp(m - t) + exp(s - t)
                for d in range(0, D):
                    O[i, d] = O[i, d] * exp(m - t) + exp(s - t) * V[j, d]
                m = t
{end}
    return O, L
"""
ENDS = {
    "a guard around both": """\
        if l > 0.0:
            for d in range(0, D):
                O[i, d] = O[i, d] / l
            L[i] = m + log(l)""",
    "both sides of a guard": """\
        for d in range(0, D):
            if 0.0 < l:
                O[i, d] = O[i, d] / l
            else:
                O[i, d] = 0.0
        L[i] = m + log(l)""",
    "a factor that is 0": """\
        r = 1.0 / l if l != 0 else 0.0
        for d in range(0, D):
            O[i, d] *= r
        L[i] = m + log(l) if not l <= 0 else -inf""",
    "a divisor that is never 0": """\
        c = l if l > 0 else 1.0
        for d in range(0, D):
            O[i, d] = O[i, d] / c
        L[i] = m + log(l)""",
    "a factor in one branch": """\
        if l == 0.0:
            for d in range(0, D):
                O[i, d] = 0.0
        else:
            r = 1.0 / l
            for d in range(0, D):
                O[i, d] = O[i, d] * r
        L[i] = m + log(l)""",
}


@pytest.mark.parametrize("end", ENDS)
def test_rows_are_divided_without_working_them_out_again(end: str) -> None:
    found = backward(program(HEAD + DIVIDED.format(end=ENDS[end])))
    assert all(step.decision == "legal" for step in found.steps)
    assert {saved.name for saved in found.saved} <= {"O", "L"}
    for seed in range(2):
        assert max(gaps(found, seed)) < 1e-10


BANKS = {
    "a second loop goes on, its weights masked by data": (
        HEAD.replace(
            "):", ', L: Float[Array, "H E"], W: Float[Array, "H D"], ok: Bool[Array, "H"]):'
        )
        + """
    O = zeros((M, D))
    for i in range(0, M):
        m = -inf
        l = 0.0
        for j in range(0, N):
            s = Q[i] @ K[j]
            t = max(m, s)
            l = l * exp(m - t) + exp(s - t)
            for d in range(0, D):
                O[i, d] = O[i, d] * exp(m - t) + exp(s - t) * V[j, d]
            m = t
        for j in range(0, H):
            if ok[j]:
                s = Q[i] @ L[j]
                t = max(m, s)
                l = l * exp(m - t) + exp(s - t)
                for d in range(0, D):
                    O[i, d] = O[i, d] * exp(m - t) + exp(s - t) * W[j, d]
                m = t
        for d in range(0, D):
            O[i, d] = O[i, d] / l
    return O
""",
        4,
    ),
    "each row is normalized on the way": (
        HEAD.replace("):", ', L: Float[Array, "H E"], W: Float[Array, "H D"]):')
        + """
    O = zeros((M, D))
    for i in range(0, M):
        m = -inf
        l = 0.0
        for j in range(0, N):
            s = Q[i] @ K[j]
            t = max(m, s)
            u = l * exp(m - t) + exp(s - t)
            for d in range(0, D):
                O[i, d] = O[i, d] * l * exp(m - t) / u + exp(s - t) / u * V[j, d]
            m = t
            l = u
        for j in range(0, H):
            s = Q[i] @ L[j]
            t = max(m, s)
            u = l * exp(m - t) + exp(s - t)
            for d in range(0, D):
                O[i, d] = O[i, d] * l * exp(m - t) / u + exp(s - t) / u * W[j, d]
            m = t
            l = u
    return O
""",
        4,
    ),
    "a sink joins behind the loop": (
        HEAD.replace("):", ', sink: Float[Array, "M"]):')
        + """
    O = zeros((M, D))
    for i in range(0, M):
        m = -inf
        l = 0.0
        for j in range(0, N):
            s = Q[i] @ K[j]
            t = max(m, s)
            l = l * exp(m - t) + exp(s - t)
            for d in range(0, D):
                O[i, d] = O[i, d] * exp(m - t) + exp(s - t) * V[j, d]
            m = t
        t = max(m, sink[i])
        c = exp(m - t)
        l = l * c + exp(sink[i] - t)
        for d in range(0, D):
            O[i, d] = O[i, d] * c / l
    return O
""",
        2,
    ),
}


@pytest.mark.parametrize("name", BANKS)
def test_loops_that_go_on_with_what_others_left_share_one_weight(name: str) -> None:
    """All terms are moved to the last maximum: no loop is gone over once more for sums."""
    text, loops = BANKS[name]
    found = backward(program(text))
    assert all(step.decision == "legal" for step in found.steps)
    assert any(step.name.startswith("move what an earlier loop left") for step in found.steps)
    assert {saved.name for saved in found.saved} == {"O", "lse"}
    assert sum("for j in" in line for line in text_of(found.program).splitlines()) == loops
    assert max(gaps(found, 0)) < 1e-10


def test_the_log_sum_exp_of_all_banks_may_be_a_result() -> None:
    """Its gradient and that of the output meet in the adjoint of the last maximum, which is 0."""
    text, loops = BANKS["a second loop goes on, its weights masked by data"]
    text = text.replace("    O = zeros((M, D))", "    O = zeros((M, D)); LL = zeros(M)")
    found = backward(
        program(text.replace("    return O", "        LL[i] = m + log(l)\n    return O, LL"))
    )
    assert all(step.decision == "legal" for step in found.steps)
    assert {saved.name for saved in found.saved} == {"O", "LL"}
    assert sum("for j in" in line for line in text_of(found.program).splitlines()) == loops
    assert max(gaps(found, 0)) < 1e-10


def test_parts_with_other_numbers_in_front_are_not_one_sum() -> None:
    """What a bias adds to one bank it takes from the other."""
    text, _ = BANKS["a second loop goes on, its weights masked by data"]
    first, second = text.replace('ok: Bool[Array, "H"]', 'b: Float[Array, "M"]').split("if ok[j]:")
    first = first.replace("exp(s - t)", "exp(s - t + b[i])")
    second = second.replace("exp(s - t)", "exp(s - t - b[i])")
    found = backward(program(f"{first}if j >= 0:{second}"))
    assert max(gaps(found, 0)) < 1e-10


@pytest.mark.parametrize("name", ALL)
def test_the_listing_in_closed_form_computes_the_same(name: str) -> None:
    listing = program(ALL[name])
    made, reasons = closings(listing)
    assert [each.loop[0] for each in made] == ["j"] and not reasons
    for seed in range(2):
        sizes = {p.name: SIZES[p.name] for p in listing.parameters if p.is_integer}
        given = prepare(listing, sizes, None, seed)
        inputs: dict[str, Any] = {**given.arrays, **given.reals}
        want = execute(listing, sizes=sizes, inputs=inputs)
        for output, value in execute(made[0].after, sizes=sizes, inputs=inputs).items():
            np.testing.assert_allclose(value, want[output], rtol=1e-12, atol=1e-14)


def test_what_a_loop_makes_for_each_column_and_is_changed_is_no_closed_form() -> None:
    """v is set anew for each d: behind the iteration it is that of the last one.

    What a sum adds up is known where it stands.
    """
    text = SCORES.format(after="pass_ = 0") + ONLINE
    inner = "for d in range(0, D):\n                v = 0.0\n                for e in range(0, E): "
    inner += "v += Q[i, e] * V[j, d]\n                O[i, d] = O[i, d] * exp(m - t) + "
    before = "for d in range(0, D):\n                O[i, d] = O[i, d] * exp(m - t) + "
    summed = HEAD + text.replace(before + "exp(s - t) * V[j, d]", inner + "v * exp(s - t)")
    assert max(gaps(backward(program(summed)), 0)) < 1e-10
    listing = program(summed.replace("v += Q[i, e] * V", "v = 0.5 * v + Q[i, e] * V"))
    with pytest.raises(NotDifferentiated, match="a loop inside makes v, and the iteration changes"):
        backward(listing)


def words(text: str) -> list[str]:
    """Return the tokens of a listing but for its name and layout."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    shown = [t.string for t in tokens if t.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER)]
    return shown[2:]


def test_both_roads_lead_to_one_backward_nest() -> None:
    """Three passes and S1-S13 have the same backward but for the names of two locals."""
    streaming, passes = backward(spec("flash_forward")), backward(spec("attention_naive"))
    assert gaps(streaming, 0) and max(gaps(streaming, 0)) < 1e-10
    assert {s.name for s in streaming.saved} == {s.name for s in passes.saved} == {"O", "lse"}
    mine, theirs = words(text_of(streaming.program)), words(text_of(passes.program))
    assert len(mine) == len(theirs)
    pairs = dict(zip(mine, theirs, strict=True))
    assert [pairs[word] for word in mine] == theirs
    assert len(set(pairs.values())) == len(pairs)
    kept = ("Q", "K", "V", "O", "lse", "dO", "delta", "dQ", "dK", "dV", "i", "j", "d", "exp", "sum")
    assert all(pairs[word] == word for word in kept)


def test_the_state_that_needs_an_arg_max_receives_a_gradient_where_asked_for() -> None:
    listing = spec("flash_forward")
    found = backward(listing)
    assert found.of == ("O",)
    assert [note.split()[0] for note in found.notes] == ["m", "l"]
    assert "lse[i] = m[i] + log(l[i])" in text_of(found.forward)
    for name in ("m", "l"):
        alone = backward(listing, of=(name,))
        assert [saved.name for saved in alone.saved][:1] == ["m_at"]
        assert gaps(alone, 0) and max(gaps(alone, 0)) < 1e-10


def test_passes_that_work_the_same_out_again_are_read_as_one() -> None:
    """Scores written out in each pass, over rows and copies of rows: one definition."""
    text = text_of(spec("attention_naive"))
    again = text.replace("S = zeros((M, N))\n    ", "").replace("S[i, j] = sum(", "s = sum(")
    again = again.replace("S[i, j]", "(q @ K[j])").replace(
        "(0, M):\n", "(0, M):\n        q = Q[i]\n"
    )
    found = backward(program(again))
    assert {saved.name for saved in found.saved} == {"O", "lse"}
    assert text_of(found.program).count("for j in range(0, N):") == 2
    assert text_of(found.program).count("exp(") == 2


@pytest.mark.parametrize(
    ("first", "step", "reason"),
    [
        ("h = 0.0", "h = A[j] * h + X[j]", "h is no sum, maximum or minimum"),
        ("h = 1.0", "h = h * X[j]", "gathers a product"),
        ("h = 0.5", "h = X[j] * h * (1.0 - h)", "both lead to"),
        ("h = 0.0\n    k = 1.0", "k = k + h\n        h = h + A[j] * h + k", "no closed form"),
    ],
)
def test_loops_without_a_closed_form_are_read_as_none(first: str, step: str, reason: str) -> None:
    """And differentiated through time, each iteration's state kept."""
    head = 'def f(A: Float[Array, "N"], X: Float[Array, "N"]):'
    text = f"{head}\n    {first}\n    for j in range(0, N):\n        {step}\n    return h\n"
    with pytest.raises(NotDifferentiated, match=reason):
        read(program(text))
    found = backward(program(text))
    assert all(step.decision == "legal" for step in found.steps)
    assert max(gaps(found, 0)) < 1e-10


def test_as_printed_it_is_refused_with_numbers() -> None:
    from looptrans.frontend.placement import annotated_placement

    with pytest.raises(NotDifferentiated, match="both lead to"):
        backward(annotated_placement(spec("flash_forward_as_printed")))


NAMED = """
    O = zeros((M, D)); L = zeros(M)
    for i in range(0, M):
        m = -inf
        l = 0.0
        for j in range(0, N):
            m = max(m, Q[i] @ K[j])
        for j in range(0, N):
            {name}
            l += {weight}
            for d in range(0, D):
                O[i, d] += {weight} * V[j, d]
        for d in range(0, D):
            O[i, d] = O[i, d] / l {guard}
    return O
"""


@pytest.mark.parametrize("guard", ["", "if l > 0 else 0.0"])
def test_a_weight_with_a_name_of_its_own_is_the_weight(guard: str) -> None:
    exponential = "exp(Q[i] @ K[j] - m)"
    named = HEAD + NAMED.format(name=f"w = {exponential}", weight="w", guard=guard)
    plain = HEAD + NAMED.format(name="pass_ = 0", weight=exponential, guard=guard)
    found, other = backward(program(named)), backward(program(plain))
    assert {saved.name for saved in found.saved} == {"O", "lse"}
    assert text_of(found.program).splitlines()[1:] == text_of(other.program).splitlines()[1:]
    assert max(gaps(found, 0)) < 1e-10


def test_a_weight_that_is_0_by_a_mask_is_none() -> None:
    """`exp(s - m) if j <= i else 0.0` with a name is added up where the mask holds only."""
    mask = "if i + 1 >= 2 * j"
    text = NAMED.replace("m = max(m, Q[i] @ K[j])", f"m = max(m, Q[i] @ K[j] {mask} else -inf)")
    name = f"w = exp(Q[i] @ K[j] - m) {mask} else 0.0"
    found = backward(program(HEAD + text.format(name=name, weight="w", guard="")))
    assert all(step.decision == "legal" for step in found.steps)
    assert {saved.name for saved in found.saved} == {"O", "lse"}
    assert max(gaps(found, 0)) < 1e-10


def test_what_a_sum_divides_may_have_a_name() -> None:
    text = NAMED.replace("= O[i, d] / l {guard}", "= O[i, d]")
    text = text.replace("l += {weight}\n", "l += {weight}\n        r = 1.0 / l\n        {again}\n")
    again = "for j in range(0, N):\n            w = exp(Q[i] @ K[j] - m) * r"
    text = text.format(name="w = exp(Q[i] @ K[j] - m)", weight="w", again=again)
    found = backward(program(HEAD + text))
    assert all(step.decision == "legal" for step in found.steps)
    assert {saved.name for saved in found.saved} == {"O", "lse"}
    assert max(gaps(found, 0)) < 1e-10


TOGETHER = """
def f(X: Float[Array, "N 2"]):
    A = zeros((N, 2))
    for i in range(N):
        for c in range(2):
            A[i, c] = X[i, c] * (c + 1.0)
    for i in range(N):
        {}
    return A
"""


@pytest.mark.parametrize(
    "line",
    [
        "A[i, 0], A[i, 1] = A[i, 0] * 3.0, A[i, 1] * X[i, 0]",
        "A[i, 0], A[i, 1] = X[i, 1], X[i, 0] * 2.0",
        "x, y = X[i, 0], X[i, 1]; y, x = y * 2.0, x * 3.0 + y; A[i, 0], A[i, 1] = x, y",
        # No order will do: the values have names of their own.
        "A[i, 0], A[i, 1] = A[i, 1], A[i, 0] * 3.0",
        "x, y = X[i, 0], X[i, 1]; x, y = x + y, x - y; A[i, 0] = x * y",
    ],
)
def test_what_one_statement_sets_is_worked_out_from_what_was_there(line: str) -> None:
    found = backward(program(TOGETHER.format(line)))
    assert all(error < 1e-10 for error in gaps(found, 0))


KEPT_UNDER_A_GUARD = """
def f(B: Float[Array, "N"], M: int):
    L = zeros(M); T = zeros(N)
    for i in range(M):
        l = 0.0; mu = 0.0; c = 0.0
        for j in range(1, N):
            if j % 2 == 0:
                T[j] = T[j] * 0.5 + B[j]
                c = c + 1.0
                g = B[j] - mu
                mu = mu + g / c
                l = l + g * (B[j] - mu)
        L[i] = l
    return L
"""


def test_states_kept_for_each_iteration_have_no_closed_form() -> None:
    with pytest.raises(NotDifferentiated, match="T is carried"):
        backward(program(KEPT_UNDER_A_GUARD))


LAST_OF_EACH = """
def f(B: Float[Array, "N"], before: Float[Array, "M min(N,M+1)+1"]):
    mu = zeros((M, min(N, M + 1) + 1)); L = zeros(M); S = full(N, 0.25)
    for i in range(0, M):
        for j in range(0, N):
            S[j] = S[j] + B[j] * 0.1
        l = 0.0
        for j in range(0, min(N, i + 2)):
            S[0] = S[0] + B[j]
            g = S[j] - before[i, j]
            mu[i, j + 1] = before[i, j] + g
            l = l + g * (S[j] - before[i, j + 1])
        for j in range(0, min(N, i + 2)):
            l = l + S[j]
            S[j] = S[j] * 0.7
        L[i] = l
    return L, S, mu
"""


def test_of_a_result_no_states_are_kept_that_begin_in_each_iteration_around() -> None:
    kept = with_states_kept(program(LAST_OF_EACH))
    assert kept is None or all(name != "S" for name, _ in kept.names)


def test_rows_that_are_swapped_are_refused() -> None:
    text = """
def f(X: Float[Array, "2 N"]):
    A = zeros((2, N))
    for i in range(2):
        for j in range(N):
            A[i, j] = X[i, j] * X[i, j]
    for k in range(3):
        A[0], A[1] = A[1], A[0] * 3.0
    return A
"""
    with pytest.raises(NotDifferentiated, match="at once, and the value of each reads another"):
        backward(program(text))
