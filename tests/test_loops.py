"""Verdicts on loops: parallel, privatized, reductions by meaning, sequential with an example."""

from __future__ import annotations

import pytest

from tests.analysis import SPECS, program, say, spec, verdicts
from tests.oracle.trace import memory, trace, value_flow

HEAD = "s = 0.0\nt = 0.0\nfor i in range(N):\n"
CHANGED = "out[0] = s\n"


def both(body: str) -> tuple[str, str]:
    """The verdicts on a loop over i with this body, after which s is read."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    fact = verdicts(HEAD + lines + CHANGED)["i"]
    return say(fact.flow), say(fact.memory)


REDUCTIONS = {
    "s = s + x[i]": "+",
    "s += x[i]": "+",
    "s = x[i] + s": "+",
    "s -= x[i]": "+",
    "s = s - x[i]": "+",
    "s = x[i] + (s + y[i])": "+",
    "s *= x[i]": "*",
    "s = x[i] * s": "*",
    "s = max(s, x[i])": "max",
    "s = max(x[i], s, y[i])": "max",
    "s = min(x[i], s)": "min",
    "s = x[i] if x[i] > s else s": "max",
    "s = s if s < x[i] else x[i]": "min",
    "if x[i] > s:\n    s = x[i]": "max",
    "if x[i] < s:\n    s = x[i]": "min",
    "if s < x[i]:\n    s = x[i]": "max",
    "if x[i] > 0.0:\n    s += x[i]": "+",
    "if i % 2 == 0:\n    s += x[i]": "+",
    "s = s + x[i] if x[i] > 0.0 else s": "+",
    "s += x[i]\ns -= y[i]": "+",
}


@pytest.mark.parametrize("body", REDUCTIONS, ids=str)
def test_reductions_are_recognized_by_meaning(body: str) -> None:
    expected = f"reduction; {REDUCTIONS[body]} into s"
    assert both(body) == (expected, expected)


def test_a_reduction_across_temporaries() -> None:
    flow, everything = both("a = s\nc = a + x[i]\ns = c")
    assert flow == "reduction; + into s"
    assert everything == "reduction; + into s; private a c"


@pytest.mark.parametrize("operator", ["and", "or"])
def test_reductions_of_truth_values(operator: str) -> None:
    text = 'def f(x, ok: Bool[Array, ""], N):\n    for i in range(N):\n'
    fact = verdicts(f"{text}        ok = ok {operator} x[i] > 0.0\n    return ok\n")["i"]
    assert say(fact.flow) == say(fact.memory) == f"reduction; {operator} into ok"


def test_a_histogram_is_a_reduction() -> None:
    fact = verdicts("for i in range(N):\n    h[b[i]] += 1\n")["i"]
    assert say(fact.flow) == say(fact.memory) == "reduction; + into h"


NOT_REDUCTIONS = (
    "s = s + x[i]\ny[i] = s",
    "s = x[i] - s",
    "s = s + s * x[i]",
    "s = s + x[i]\ns = max(s, y[i])",
    "s = s + x[i]\nt = t + s",
    "s = s / 2.0 + x[i]",
    "s = -(s + x[i])",
    "s = max(s, s + x[i])",
    "s = x[i] if s > 0.0 else s",
    "if s > 0.0:\n    s += x[i]",
    "s = s + x[i] if s > 0.0 else s",
    "s = s if x[i] > s else x[i] + 1.0",
    "s += x[i]\nif s > 1.0:\n    y[i] = x[i]",
    "s = exp(s) + x[i]",
    "s = s // 2 + x[i]",
    # The temporary is the state, wherever it stands.
    "t = s\ns = s + sum(x[e] * t for e in range(N))",
    "t = s\ns = s + (1.0 if t > 0.0 else x[i])",
    "t = s\ns = s + where(t > 0.0, 1.0, x[i])",
)


@pytest.mark.parametrize("body", NOT_REDUCTIONS, ids=str)
def test_what_reads_its_state_is_no_reduction(body: str) -> None:
    flow, everything = both(body)
    assert flow == everything == "sequential"


NOT_REDUCTIONS_OF_AN_ARRAY = (
    # What one update adds, another one changes.
    "for k in range(M):\n    A[k // 2 * 2] += A[1]\n    A[k] += B[k]\n",
    "for k in range(M):\n    A[2 * k] += A[1]\n    for j in range(M):\n        A[j] += B[k]\n",
    # Both readings of one element count, whatever the condition of the last one.
    "for k in range(M):\n"
    "    A[k] += (A[1] if k > 2 else 0.0) + (A[1] if k > M + 5 else 0.0)\n"
    "    A[1] += B[k]\n",
    # The temporary may still have the value of another i.
    "for i in range(N):\n    A[0] = 0.0\n    for k in range(M):\n"
    "        if k > 0:\n            t = A[0] + B[k]\n        A[0] = t\n",
    # It has the value of the last e, and not of this one.
    "for k in range(M):\n    for e in range(N):\n        t = A[e] + B[k]\n"
    "    for e in range(N):\n        A[e] = t\n",
)


@pytest.mark.parametrize("text", NOT_REDUCTIONS_OF_AN_ARRAY)
def test_updates_whose_operands_the_loop_changes_are_no_reduction(text: str) -> None:
    verdict = verdicts(f"t = 0.0\n{text}")["k"]
    assert say(verdict.flow) == say(verdict.memory) == "sequential"


REDUCTIONS_BESIDE_OTHER_ELEMENTS = {
    "for k in range(M):\n    A[0] += B[k]\n    A[k + 1] = 3.0\n": "+ into A",
    "for k in range(M):\n    A[k % 2] = max(A[k % 2], B[k])\n    A[k + 2] = B[k]\n": "max into A",
    "for k in range(M):\n    A[0] += B[k]\n    A[1] = max(A[1], B[k])\n": "+ max into A",
    # Another iteration of h sets what this one adds to.
    "for h in range(N):\n  for k in range(M):\n    A[h] += B[k]\n    A[h+k+1] = 3\n": "+ into A",
}


@pytest.mark.parametrize("text", REDUCTIONS_BESIDE_OTHER_ELEMENTS)
def test_an_element_is_reduced_into_whatever_is_set_beside_it(text: str) -> None:
    verdict = verdicts(text)["k"]
    expected = f"reduction; {REDUCTIONS_BESIDE_OTHER_ELEMENTS[text]}"
    assert say(verdict.flow) == say(verdict.memory) == expected


@pytest.mark.parametrize("other", ["A[k] = 3.0", "A[N] = 3.0", "A[idx[k]] = 3.0"])
def test_what_may_set_the_element_itself_is_not_beside_it(other: str) -> None:
    text = f"for k in range(M):\n    A[0] += B[k]\n    {other}\n"
    assert say(verdicts(text)["k"].memory) == "sequential"


def test_parallel_and_privatize_with_exactly_the_names() -> None:
    assert both("y[i] = x[i]") == ("parallel", "parallel")
    assert both("a = x[i]\ny[i] = a") == ("parallel", "privatize; private a")
    assert both("a = x[i]\nc = a\ny[i] = c") == ("parallel", "privatize; private a c")
    # s is read afterwards, so the last iteration's value must be the one that stays.
    assert both("s = x[i]\ny[i] = s")[1] == "sequential"
    # A scalar that an iteration may read before it writes it is not private.
    assert both("if x[i] > 0.0:\n    s = x[i]\ny[i] = s") == ("sequential", "sequential")


def test_a_row_that_each_iteration_rebuilds_is_private() -> None:
    text = (
        "def f(X, Y, N, M):\n    T = zeros(M)\n    for i in range(N):\n"
        "        for j in range(M):\n            T[j] = X[i, j]\n"
        "        for j in range(M):\n            Y[i, j] = T[M - 1 - j]\n    return Y\n"
    )
    assert say(verdicts(text)["i"].memory) == "privatize; private T"
    assert say(verdicts(text)["i"].flow) == "parallel"
    shorter = text.replace(
        "for j in range(M):\n            T", "for j in range(M - 1):\n            T"
    )
    assert say(verdicts(shorter)["i"].memory) == "sequential"


def test_flash_forward() -> None:
    facts = verdicts(spec("flash_forward"))
    temporaries = "q_i k_j m_i l_i S_ij m_ij l_ij o_id v_jd o_ijd"
    assert say(facts["i"].flow) == say(facts["d"].flow) == "parallel"
    assert say(facts["i"].memory) == f"privatize; private {temporaries}"
    assert say(facts["d"].memory) == "privatize; private o_id v_jd o_ijd"
    assert {facts["j"].flow.decision, facts["j"].memory.decision} <= {"sequential", "reduction"}


def test_as_printed_d_is_not_parallel() -> None:
    assert verdicts(spec("flash_forward_as_printed"))["d"].flow.decision == "sequential"


def test_matmul() -> None:
    facts = verdicts(spec("matmul"))
    assert say(facts["i"].memory) == say(facts["j"].memory) == "privatize; private acc"
    assert say(facts["k"].flow) == say(facts["k"].memory) == "reduction; + into acc"


EXAMPLES = (
    "for i in range(N):\n    A[i] = A[i - 1]\n",
    "for i in range(N - 1, -1, -1):\n    A[i] = A[i + 2]\n",
    "for i in range(N):\n    A[i] = B[i + 1]\n    B[i] = 0.0\n",
    "for i in range(N):\n    for j in range(M):\n        A[i, j] = A[i - 1, j + 1]\n",
    "for i in range(N):\n    A[i % 3] = x[i]\n",
    "for i in range(0, N, 3):\n    A[i + 6] = A[i]\n",
    "for i in range(N):\n    for j in range(i, M):\n        A[j] = A[i] + 1.0\n",
    "for i in range(N):\n    for j in range(i + 1):\n        A[i + j] = A[i - j] * 2.0\n",
    *(path.read_text() for path in SPECS),
)


@pytest.mark.parametrize("text", EXAMPLES, ids=range(len(EXAMPLES)))
def test_no_loop_is_unknown_and_a_sequential_one_has_a_pair_that_really_occurs(text: str) -> None:
    labels = [p.name for p in program(text).parameters if p.is_integer]
    for fact in verdicts(text).values():
        for verdict, by_value in ((fact.flow, True), (fact.memory, False)):
            assert verdict.decision != "unknown", fact.loop
            if verdict.decision != "sequential":
                continue
            witness = verdict.witness
            assert witness is not None
            run = trace(text, sizes={**dict.fromkeys(labels, 1), **dict(witness.parameters)})
            pairs = value_flow(run)
            if not by_value:
                pairs = pairs.union(*(memory(run, kind) for kind in ("flow", "anti", "output")))
            ends = [tuple(value for _, value in end) for end in (witness.source, witness.sink)]
            assert any([pair[1], pair[3]] == ends for pair in pairs), (fact.loop, witness)
            source, sink = dict(witness.source), dict(witness.sink)
            assert source[fact.loop] != sink[fact.loop]


def test_the_contract_is_named_by_the_verdict_that_needs_it() -> None:
    nest = (
        "for b in range(B):\n    for i in range(cu[b + 1] - cu[b]):\n        O[cu[b] + i] = 1.0\n"
    )
    contract = "assert all(cu[b] <= cu[b + 1] for b in range(B))\n"
    free, kept = verdicts(nest)["b"].memory, verdicts(contract + nest)["b"].memory
    assert (free.decision, kept.decision) == ("sequential", "parallel")
    assert free.assumptions == () and len(kept.assumptions) == 1
    assert "cu[b] <= cu[b + 1]" in kept.assumptions[0]


def test_a_row_length_from_an_array_carries_a_may_flow() -> None:
    text = (
        "for b in range(B):\n    for j in range(n[b]):\n        T[j] = X[b, j]\n"
        "    for j in range(N):\n        Y[b, j] = T[j]\n"
    )
    assert verdicts(text)["b"].flow.decision == "sequential"


def test_an_array_of_integers_that_takes_floats_is_no_reduction() -> None:
    text = "s = zeros(1, {})\nfor j in range(N):\n    s[0] += {}\n"
    for kind, value, expected in (
        ("int", "x[j] * 0.5", "sequential"),
        ("int", "1", "reduction"),
        ("float", "x[j] * 0.5", "reduction"),
    ):
        assert verdicts(text.format(kind, value))["j"].flow.decision == expected, (kind, value)
