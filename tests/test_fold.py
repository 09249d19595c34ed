"""Derivations to one pass, which block lowering starts from: the listings of specs/ and others."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from looptrans.algebra.free import freed
from looptrans.derivation.derive import derive
from looptrans.derivation.moves import made
from looptrans.derivation.saved import recheck, saved
from looptrans.derivation.step import Derivation, NotDone
from looptrans.executor import execute, prepare
from looptrans.ir.listing import listing
from looptrans.ir.program import Program
from looptrans.ir.step import same_names
from looptrans.ir.walk import loops
from looptrans.transforms.editing.tree import find_loop, replace_at
from looptrans.transforms.judging.check import reordered
from tests.analysis import program, spec
from tests.derivations import ATTENTIONS, softmax_mean

Array = np.ndarray[Any, Any]
HEADS = [
    "attention",
    "attention_bias",
    "attention_causal",
    "attention_causal_bottom_right",
    "attention_gqa",
    "attention_lengths",
]
REALS = {"cap": 5.0, "t": 0.7}
SIZES = [(3, 5), (5, 3), (2, 0), (4, 1)]


@lru_cache(maxsize=32)
def fold(name: str) -> Derivation:
    return derive(spec(name), "fold")


def inputs_of(name: str, rows: int, columns: int) -> dict[str, Any]:
    """Return inputs of one batch of two heads more than needed to mix them up."""
    rng = np.random.default_rng(rows * 10 + columns)
    batches, heads = 2, 4
    shared = 2 if name == "attention_gqa" else heads
    found: dict[str, Any] = {
        "Q": 2 * rng.standard_normal((batches, heads, rows, 3)),
        "K": rng.standard_normal((batches, shared, columns, 3)),
        "V": rng.standard_normal((batches, shared, columns, 2)),
        "scale": 0.7,
        "bias": rng.standard_normal((heads, rows, columns)),
        "n_kv": np.array([columns, columns // 2]),
    }
    if columns > 1:
        found["bias"][0, 0, :2] = -np.inf
    wanted = spec(name)
    names = {*wanted.arguments, *(parameter.name for parameter in wanted.parameters)}
    return {n: v for n, v in found.items() if n in names}


def scores_of(name: str, given: dict[str, Any]) -> Array:
    """Return the scores (B, H, M, N), written from the mathematics."""
    keys = given["K"]
    heads = given["Q"].shape[1]
    keys = np.repeat(keys, heads // keys.shape[1], axis=1)
    scores: Array = np.einsum("bhie,bhje->bhij", given["Q"], keys)
    scores *= 1 / np.sqrt(given["Q"].shape[-1]) if name == "attention" else given["scale"]
    rows, columns = scores.shape[-2:]
    i, j = np.arange(rows)[:, None], np.arange(columns)[None]
    if name == "attention_bias":
        scores = scores + given["bias"]
    if name == "attention_causal":
        scores = np.where(j <= i, scores, -np.inf)
    if name == "attention_causal_bottom_right":
        scores = np.where(j <= i + columns - rows, scores, -np.inf)
    if name == "attention_lengths":
        scores = np.where(j < given["n_kv"][:, None, None, None], scores, -np.inf)
    return scores


def expected(name: str, given: dict[str, Any]) -> dict[str, Array]:
    scores = scores_of(name, given)
    values = np.repeat(given["V"], scores.shape[1] // given["V"].shape[1], axis=1)
    mean = np.zeros((*scores.shape[:3], values.shape[-1]))
    for b, h in np.ndindex(*scores.shape[:2]):
        mean[b, h] = softmax_mean(scores[b, h], values[b, h])
    with np.errstate(divide="ignore", invalid="ignore"):
        top = scores.max(axis=-1, initial=-np.inf)
        total = np.exp(scores - np.where(top > -np.inf, top, 0.0)[..., None]).sum(axis=-1)
        return {"O": mean, "lse": top + np.log(total)}


@pytest.mark.parametrize("name", HEADS)
def test_heads_become_one_pass_with_everything_around_it_parallel(name: str) -> None:
    found = fold(name)
    assert found.decision == "legal" and found.notes == ()
    assert all(step.decision == "legal" for step in found.steps)
    kinds = [step.kind for step in found.steps]
    assert kinds == ["one pass", "guarded change of state", "contraction", "parallel"]
    executions = [(loop.variable, loop.execution) for loop in loops(found.last)]
    assert executions == [
        ("b", "parallel"),
        ("h", "parallel"),
        ("i", "parallel"),
        ("j", "sequential"),
        ("d", "parallel"),
        ("d", "parallel"),
    ]


@pytest.mark.parametrize("name", HEADS)
def test_one_pass_computes_attention_and_rows_without_keys_are_zero(name: str) -> None:
    for rows, columns in SIZES:
        given = inputs_of(name, rows, columns)
        groups = {"G": 2, "R": 2} if name == "attention_gqa" else {}
        results = execute(fold(name).last, inputs=given, sizes=groups)
        wanted = expected(name, given)
        for output, value in results.items():
            np.testing.assert_allclose(value, wanted[output], rtol=1e-5, atol=1e-6)
        if columns == 0:
            assert not results["O"].any()


@pytest.mark.parametrize("name", [n for n in ATTENTIONS if n != "far apart"])
def test_attention_in_other_words_becomes_one_pass(name: str) -> None:
    given, scores = ATTENTIONS[name]
    found = derive(given, "fold")
    assert found.decision == "legal"
    rng = np.random.default_rng(1)
    data = {
        "Q": rng.standard_normal((4, 2)),
        "K": rng.standard_normal((5, 2)),
        "V": rng.standard_normal((5, 3)),
        "B": rng.standard_normal((4, 5)),
    }
    data["B"][0] = -np.inf
    data["B"][1, :3] = -np.inf
    inputs: dict[str, Any] = {n: v for n, v in data.items() if n in given.arguments}
    inputs |= {n: v for n, v in REALS.items() if n in {p.name for p in given.parameters}}
    (result,) = execute(found.last, inputs=inputs).values()
    np.testing.assert_allclose(result, softmax_mean(scores(data), data["V"]), atol=1e-12)


def test_a_listing_that_is_one_pass_already_stays_so() -> None:
    first = fold("attention_gqa").last
    again = derive(first, "fold")
    assert again.decision == "legal"
    assert again.steps == () and listing(again.last) == listing(first)


def test_every_fold_of_a_listing_is_treated() -> None:
    found = derive(
        program("""
def two(x: Float[Array, "M N"], y: Float[Array, "M P"]):
    a = zeros(M)
    b = zeros(M)
    for i in range(0, M):
        m = -inf
        for j in range(0, N):
            m = max(m, x[i, j])
        l = 0.0
        for j in range(0, N):
            l = l + exp(x[i, j] - m)
        a[i] = m + log(l)
        p = -inf
        for j in range(0, P):
            p = max(p, y[i, j])
        q = 0.0
        for j in range(0, P):
            q = q + exp(y[i, j] - p)
        b[i] = p + log(q)
    return a, b
"""),
        "fold",
    )
    assert [step.kind for step in found.steps] == [
        "one pass",
        "one pass",
        "guard",
        "guard",
        "parallel",
    ]


def test_a_loop_that_is_no_fold_stays_sequential() -> None:
    found = fold("prefix_sum")
    assert found.decision == "legal"
    assert [loop.execution for loop in loops(found.last)] == ["sequential"]


def test_one_pass_has_a_number_wherever_the_passes_have_one() -> None:
    """A score of -inf adds 0 * -inf, which is no number, in one pass as in two."""
    listing = program("""
def entropy(x: Float[Array, "N"]):
    m = -inf
    for j in range(0, N):
        m = max(m, x[j])
    s = 0.0
    for j in range(0, N):
        s = s + exp(x[j] - m) * x[j]
    return m, s
""")
    found = derive(listing, "fold")
    assert [step.kind for step in found.steps] == ["one pass", "guard"]
    (law,) = (law for law in found.steps[-1].laws if law.name == "neutral")
    assert law.by_definition == "s2 is no number there, nor is it in the listing"
    for values in ([], [3.0], [-900.0, 2.0, 2.5], [1.0, -1e30, 0.0], [4.0, -np.inf, 5.0]):
        inputs = {"x": np.array(values)}
        want, mine = (execute(each, inputs=inputs) for each in (listing, found.last))
        np.testing.assert_allclose(mine["s"], want["s"], rtol=1e-12)
        assert np.isnan(want["s"]) == (-np.inf in values)


def test_a_saved_derivation_is_proved_again() -> None:
    assert recheck(saved(fold("logsumexp"))) == ()


# What the text shows of a loop, against all dependences.

NESTS = {
    "for i in range(0, M):\n    t = x[i]\n    y[i] = t * t\n": ("i", ("t",)),
    "for i in range(0, M):\n    y[i] = y[i] + x[i]\n": ("i", ()),
    "for i in range(0, M):\n    for d in range(0, N):\n        A[i, d] = x[i]\n": ("i", ()),
    "for i in range(0, M):\n    y[i] = y[i + 1]\n": ("i", None),
    "t = 0.0\nfor i in range(0, M):\n    t = t + x[i]\n    y[i] = t\n": ("i", None),
    "for i in range(0, M):\n    for d in range(0, N):\n        y[i + d] = x[i]\n": ("i", None),
    "t = 0.0\nfor i in range(0, M):\n    y[i] = t\n    t = x[i]\n": ("i", None),
    "for i in range(0, M):\n    if x[i] > 0.0:\n        t = x[i]\n    y[i] = t\n": ("i", None),
    "for i in range(0, M):\n    for d in range(0, N):\n        t = x[d]\n    y[i] = t\n": (
        "i",
        None,
    ),
    "for i in range(0, M):\n    t = x[i]\nfor k in range(0, M):\n    y[k] = t\n": ("k", ()),
    "for i in range(0, M):\n    t = x[i]\nfor k in range(0, M):\n    y[k] = t \n": ("i", None),
    "for i in range(0, M):\n    y[2 * i] = x[i]\n    y[2 * i + 1] = x[i]\n": ("i", ()),
}


def nest(body: str) -> Program:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    head = 'def f(x: Float[Array, "M"], y: Float[Array, "L"], A: Float[Array, "M N"]):\n'
    return program(f"{head}{lines}    return y, A\n")


@pytest.mark.parametrize(("body", "wanted"), NESTS.items(), ids=range(len(NESTS)))
def test_what_the_text_shows_of_a_loop(body: str, wanted: tuple[str, Any]) -> None:
    given = nest(body)
    name, private = wanted
    path = find_loop(given, name)
    found = freed(given, path)
    assert (None if found is None else found.private) == private
    if private == ():
        # Nothing moves, so all dependences must say the same.
        parallel = replace(path.loop, execution="parallel")
        after = replace_at(given, path.position, (parallel,))
        assert reordered("t", given, after, same_names(given, after)).verdict.decision == "legal"


EACH = """
def f(X: Float[Array, "N"], Y: Float[Array, "N K D"]):
    m = -inf; l = 0.0; O = zeros(D)
    for j in range(N):
        n = max(m, X[j])
        k = l * exp(m - n) + exp(X[j] - n)
        for d in range(D):
            t = 0.0
            for e in range(K): t += Y[j, e, d]
            O[d] = (l * O[d] * exp(m - n) + exp(X[j] - n) * t) / k
        l = k
        m = n
    return O
"""


def test_what_is_another_number_for_each_cell_is_not_read_behind_the_loop_over_cells() -> None:
    nest = program(EACH)
    with pytest.raises(NotDone, match="t takes a value of its own from every iteration of d"):
        made("change of state", nest, ("j",))
    inputs: dict[str, Any] = dict(prepare(nest, {"N": 4, "K": 3, "D": 2}, None, 1).arrays)
    want = execute(nest, inputs=inputs)["O"]
    for step in derive(nest, "fold").steps:
        np.testing.assert_allclose(execute(step.after, inputs=inputs)["O"], want, atol=1e-12)
