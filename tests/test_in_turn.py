"""Passes over two things in turn are one pass over both, and two loops again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from looptrans.cli.main import main
from looptrans.derivation.as_a_row.in_turn import concatenated
from looptrans.derivation.derive import derive
from looptrans.derivation.saved import recheck, saved
from looptrans.derivation.step import NotDone
from looptrans.executor import execute, prepare
from looptrans.ir.listing import listing as text_of
from looptrans.ir.program import Program
from tests.analysis import program

# Softmax over keys of a cache and new ones, in three passes over each.
LISTING = """
def cached(Q: Float[Array, "M E"], C: Float[Array, "P E"], W: Float[Array, "P D"],
           K: Float[Array, "{new} E"], V: Float[Array, "{new} D"]):
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        for j in range(P): m = max(m, Q[i] @ C[j])
        for k in {others}: m = max(m, Q[i] @ K[k])
        l = 0.0
        for j in range(P): l += exp(Q[i] @ C[j] - m)
        for k in {others}: l += {sign}exp(Q[i] @ K[k] - m)
        for j in range(P):
            p = exp(Q[i] @ C[j] - m) / l
            for d in range(D): O[i, d] += p * W[j, d]
        for k in {others}:
            p = exp(Q[i] @ K[k] - m) / l
            for d in range(D): O[i, d] += p * V[k, d]
    return O
"""


def cached(new: str, others: str, sign: str = "") -> Program:
    """Return the listing."""
    return program(LISTING.format(new=new, others=others, sign=sign))


@pytest.mark.parametrize(
    ("new", "others", "second"),
    [
        ("N", "range(N)", "for n in range(0, N)"),
        ("M", "range(i + 1)", "for n in range(0, max(0, i + 1))"),
        ("N", "range(min(N, i))", "for n in range(0, max(0, min(N, i)))"),
    ],
)
def test_passes_over_two_things_are_one(new: str, others: str, second: str) -> None:
    listing = cached(new, others)
    found = derive(listing, "fold")
    assert all(step.decision == "legal" for step in found.steps)
    assert recheck(saved(found)) == ()
    kinds = [step.kind for step in found.steps]
    assert "one pass" in kinds and "in turn" in kinds
    last = text_of(found.last)
    assert last.count("C[") == last.count("K[") == 1
    assert "for n in range(0, P)" in last and second in last
    for m, p, n in ((1, 2, 3), (3, 1, 2), (3, 0, 2), (2, 3, 0), (0, 2, 2), (4, 2, 2)):
        sizes = {"M": m, "P": p, "N": n, "E": 2, "D": 2}
        sizes = {each.name: sizes[each.name] for each in listing.parameters}
        inputs: dict[str, Any] = dict(prepare(listing, sizes, None, 1).arrays)
        want = execute(listing, sizes=sizes, inputs=inputs)["O"]
        have = execute(found.last, sizes=sizes, inputs=inputs)["O"]
        np.testing.assert_allclose(have, np.nan_to_num(want), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("new", "others", "sign"),
    [
        ("N", "range(N)", "2.0 * "),  # another sum
        ("N", "range(1, N)", ""),  # not from the beginning
        ("N", "range(N - 1, -1, -1)", ""),  # in another order
    ],
)
def test_loops_that_do_other_things_stay(new: str, others: str, sign: str) -> None:
    """All that could be one pass then is what adds up over the same things."""
    kinds = [step.kind for step in derive(cached(new, others, sign), "fold").steps]
    assert "concatenated" not in kinds


def test_scalars_that_differ_stay_apart() -> None:
    """What is s twice in the first loop is u, and then v."""
    listing = program("""
def f(x: Float[Array, "P"], y: Float[Array, "N"]):
    m = -inf; l = 0.0
    for j in range(P):
        s = x[j]
        s = s * 2.0
        m = max(m, s + s)
    for k in range(N):
        u = y[k]
        v = u * 2.0
        m = max(m, u + v)
    for j in range(P): l += exp(x[j] - m)
    for k in range(N): l += exp(y[k] - m)
    return l
""")
    with pytest.raises(NotDone):
        concatenated(listing)


def test_kernels_of_one_pass_over_two_things(tmp_path: Path) -> None:
    file = tmp_path / "cached.py"
    file.write_text(text_of(cached("M", "range(i + 1)")))
    sizes = ["--sizes", "M=19,P=5,E=4,D=4", "--dtype", "float32"]
    assert main(["verify", str(file), "--pass", "both", *sizes]) == 0


# The same in two passes over each, with one name for scores, lengths, and what masks new keys.
SCORES = """
def tree(Q: Float[Array, "M E"], C: Float[Array, "P E"], W: Float[Array, "P D"],
         K: Float[Array, "N E"], V: Float[Array, "N D"], seen: Int[Array, "M N", "0:2"],
         length: Int[Array, "1"{range}]):
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        for p in range({first}):
            s = 0.0
            for e in range(E): s += Q[i, e] * C[p, e]
            {here}
            m = max(m, s)
        for u in range(N):
            {guard}
                s = 0.0
                for e in range(E): s += Q[i, e] * K[u, e]
                {there}
                m = max(m, s)
        l = 0.0
        for p in range({first}):
            s = 0.0
            for e in range(E): s += Q[i, e] * C[p, e]
            {here}
            l += exp(s - m)
            for d in range(D): O[i, d] += exp(s - m) * W[p, d]
        for u in range(N):
            {guard}
                s = 0.0
                for e in range(E): s += Q[i, e] * K[u, e]
                {there}
                l += exp(s - m)
                for d in range(D): O[i, d] += exp(s - m) * V[u, d]
        for d in range(D): O[i, d] /= l
    return O
"""


@pytest.mark.parametrize(
    ("first", "here", "guard", "there"),
    [
        ("P", "", "if u >= 0:", ""),
        ("length[0]", "", "if u >= 0:", ""),
        ("P", "", "if seen[i, u] == 1:", ""),
        ("P", "", "if u >= 0:", "s = s if seen[i, u] == 1 else -inf"),
        ("length[0]", "s = 0.5 * s + 1.0", "if seen[i, u] == 1:", ""),
        ("P", "s *= 2.0", "if u >= 0:", "s = s if seen[i, u] != 0 else -inf"),
    ],
)
@pytest.mark.parametrize("bounds", ["", ', "0:P+1"'])
def test_scalars_of_one_name_lengths_and_masks(
    first: str, here: str, guard: str, there: str, bounds: str
) -> None:
    text = SCORES.format(first=first, here=here, guard=guard, there=there, range=bounds)
    listing = program("\n".join(line for line in text.splitlines() if line.strip()))
    found = derive(listing, "fold")
    assert all(step.decision == "legal" for step in found.steps)
    assert {"one pass", "in turn"} <= {step.kind for step in found.steps}
    assert text_of(found.last).count("for n in range(0, ") == 2
    random = np.random.default_rng(0)
    for m, p, n in ((1, 2, 3), (3, 1, 2), (3, 0, 2), (2, 3, 0)):
        sizes = {"M": m, "P": p, "N": n, "E": 2, "D": 2}
        inputs: dict[str, Any] = dict(prepare(listing, sizes, None, 1).arrays)
        inputs["length"] = random.integers(0 if bounds else -1, p + 1, 1)
        want = execute(listing, sizes=sizes, inputs=inputs)["O"]
        have = execute(found.last, sizes=sizes, inputs=inputs)["O"]
        np.testing.assert_allclose(have, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s = x[j]; s = 2.0 * x[j]", "u = y[k]; s = 3.0 * y[k]; m = max(m, u)"),
        ("s = x[j]", "u = y[k]; s = 3.0 * y[k]; m = max(m, u)"),
        ("s = x[j]", "u = y[k] + s; m = max(m, u)"),
    ],
)
def test_a_second_loop_that_has_a_scalar_of_that_name_too(one: str, other: str) -> None:
    """To call u what the first loop calls s would make two one."""
    gap = "\n        "
    listing = program(f"""
def f(x: Float[Array, "P"], y: Float[Array, "N"]):
    m = -inf; l = 0.0; s = 0.0
    for j in range(P):
        {one.replace("; ", gap)}
        m = max(m, s)
    for k in range(N):
        {other.replace("; ", gap)}
    for j in range(P): l += exp(x[j] - m)
    for k in range(N): l += exp(y[k] - m)
    return l
""")
    with pytest.raises(NotDone):
        concatenated(listing)


def test_positions_that_go_on_are_the_same() -> None:
    """Distances of queries to keys of the cache go on where new keys begin."""
    text = LISTING.format(new="M", others="range(i + 1)", sign="")
    text = text.replace("Q[i] @ C[j]", "Q[i] @ C[j] - 0.5 * (i + P - j)")
    text = text.replace("Q[i] @ K[k]", "Q[i] @ K[k] - 0.5 * (i - k)")
    listing = program(text)
    found = derive(listing, "fold")
    assert "one pass" in {step.kind for step in found.steps}
    sizes = {"M": 3, "P": 2, "E": 2, "D": 2}
    inputs: dict[str, Any] = dict(prepare(listing, sizes, None, 1).arrays)
    want, have = (execute(p, sizes=sizes, inputs=inputs)["O"] for p in (listing, found.last))
    np.testing.assert_allclose(have, want, rtol=1e-10)


@pytest.mark.parametrize("count", [-1, 0, 2])
def test_a_cache_may_be_filled_as_far_as_a_number_says(count: int) -> None:
    text = LISTING.format(new="N", others="range(N)", sign="").replace("range(P)", "range(n)")
    listing = program(text.replace("):\n", ", n: int):\n", 1))
    found = derive(listing, "fold")
    assert "concatenated" in [step.kind for step in found.steps]
    sizes = {"M": 2, "P": 3, "N": 3, "E": 2, "D": 2, "n": count}
    inputs: dict[str, Any] = dict(prepare(listing, sizes, None, 1).arrays)
    want = execute(listing, sizes=sizes, inputs=inputs)["O"]
    have = execute(found.last, sizes=sizes, inputs=inputs)["O"]
    np.testing.assert_allclose(have, want, rtol=1e-10, atol=1e-12)
