"""Each kind of claim, true and false; the claims of specs/; claims that the tool wrote itself."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from looptrans.analysis import api
from looptrans.analysis.budget import BudgetExceeded
from looptrans.ir.listing import listing
from tests.analysis import BASIC, BUDGET, SPECS, claims, program, spec
from tests.oracle.compare import weight
from tests.oracle.nests import Nest, nests


def judged(text: str) -> list[tuple[str, str]]:
    return [(fact.claim, fact.decision) for fact in claims(text)]


def nest(*lines: str) -> str:
    """A nest over i and j with these statements inside, after which s and A are read."""
    body = "".join(f"        {line}\n" for line in lines)
    return f"s = 0.0\nfor i in range(M):\n    for j in range(N):\n{body}out[0] = s\n"


# A statement, and claims about it that hold and that do not.
CLAIMS = {
    "A[i, j] = x[i, j]  # {}": (
        ("No self dependency", "TLoop: (i, j)", "SLoop: (i, j)"),
        (
            "Self dependency",
            "Self dependency over j",
            "TLoop: i",
            "TLoop: j",
            "SLoop: i",
            "SLoop: j",
            "Aggregation over j",
            "RAW on x",
            "WAR on A",
            "WAW on A",
        ),
    ),
    "A[i, j] = A[i, j - 1]  # {}": (
        ("Self dependency", "Self dependency over j", "No self dependency over i", "RAW on A"),
        ("No self dependency", "Self dependency over i", "No self dependency over j", "WAR on A"),
    ),
    "A[i, j] = A[i, j + 1]  # {}": (("WAR on A", "No self dependency"), ("RAW on A", "WAW on A")),
    "A[i, 0] = x[j]  # {}": (("WAW on A",), ("WAR on A", "RAW on A")),
    "A[i] = A[i] + x[j]  # {}": (
        ("Aggregation over j", "RAW on A", "WAR on A", "WAW on A", "Self dependency over j"),
        ("Aggregation over i", "No self dependency", "No self dependency over j", "RAW on x"),
    ),
    "A[i, j // 2] += x[j]  # {}": (("Aggregation over j",), ("Aggregation over i",)),
    "A[i, k[j]] += x[j]  # {}": (("Aggregation over j",), ("Aggregation over i",)),
    "A[i, j] = A[i, j - 1] + x[j]  # {}": ((), ("Aggregation over j",)),
    "A[i, j] = x[i]  # {}": (("SLoop: i",), ("SLoop: j", "SLoop: (i, j)")),
    "A[i, j] = x[i] + y[j]  # {}": (("SLoop: (i, j)",), ("SLoop: (j, i)", "SLoop: (i, i)")),
}
CASES = [
    pytest.param(line, claim, expected, id=f"{line.partition('  #')[0]} | {claim}")
    for line, (true, false) in CLAIMS.items()
    for expected, group in (("holds", true), ("refuted", false))
    for claim in group
]


@pytest.mark.parametrize("line, claim, expected", CASES)
def test_claims_true_and_false(line: str, claim: str, expected: str) -> None:
    found = judged(nest(line.format(claim)))
    if expected == "holds":
        assert found and all(decision == "holds" for _, decision in found), found
    else:
        assert any(decision == "refuted" for _, decision in found), found


@pytest.mark.parametrize("claim", ["TLoop: k", "Aggregation over k", "SLoop: (i", "RAW on nothing"])
def test_what_cannot_be_judged_does_not_hold(claim: str) -> None:
    found = judged(nest(f"A[i, j] = x[i, j]  # {claim}"))
    assert found and all(decision != "holds" for _, decision in found)


def test_every_refutation_states_a_fact() -> None:
    for line, claim, expected in (case.values for case in CASES):
        if expected == "refuted":
            for fact in claims(nest(str(line).format(claim))):
                assert fact.fact.strip(), fact


def test_as_printed_the_known_mistakes_are_found() -> None:
    refuted = {
        (fact.statement, fact.claim)
        for fact in claims(spec("flash_forward_as_printed"))
        if fact.decision == "refuted"
    }
    assert {("S3", "TLoop: i"), ("S4", "TLoop: i"), ("S7", "SLoop: j for l_i")} <= refuted


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_all_other_claims_of_specs_hold(path: object) -> None:
    name = getattr(path, "stem", "")
    wrong = [fact for fact in claims(spec(name)) if fact.decision != "holds"]
    assert bool(wrong) == (name == "flash_forward_as_printed"), wrong


@pytest.mark.parametrize("path", BASIC, ids=lambda path: path.stem)
def test_generated_annotations_of_specs_hold(path: object) -> None:
    check_generated(listing(spec(getattr(path, "stem", ""))))


def check_generated(text: str) -> int:
    written = listing(api.annotated(program(text), budget=BUDGET))
    facts = claims(written)
    assert all(fact.decision == "holds" for fact in facts), (
        written,
        [fact for fact in facts if fact.decision != "holds"],
    )
    return len(facts)


@pytest.mark.parametrize("chunk", range(4))
def test_generated_annotations_of_random_nests_hold(chunk: int) -> None:
    count = 8
    done = said = 0
    strategy = nests(data_guards=chunk % 2 == 1, opaque=chunk >= 2)

    @seed(chunk)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy.filter(lambda nest: weight(nest.source) <= 30))
    def check(nest: Nest) -> None:
        nonlocal done, said
        try:
            said += check_generated(nest.source)
        except BudgetExceeded:
            return
        done += 1

    check()
    assert done >= count - 1 and said > done
