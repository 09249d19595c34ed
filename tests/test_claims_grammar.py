"""The grammar of claims: which comments say what, and that no text is too strange to read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from looptrans.frontend import load, parse
from looptrans.frontend.claims import read_claims
from looptrans.frontend.operands import operands, written_operands
from looptrans.ir.claim import (
    Aggregation,
    Claim,
    Malformed,
    SelfDependence,
    SourceLoops,
    TargetLoops,
    Touches,
)
from looptrans.ir.listing import access_text
from looptrans.ir.program import Assign, Program
from looptrans.ir.source import Source
from looptrans.ir.walk import placed

SPECS = Path(__file__).parent.parent / "specs"
PRINTED = SPECS / "flash_forward_as_printed.py"


def program(comment: str, text: str = "m[i] = l[i] + q[j] * A[i, j] - s") -> Program:
    lines = ["def f(m, l, q, A, s, n: Int[Array, 'M']):"]
    lines += ["    s = 0.0", "    for i in range(M):", "        for j in range(N):"]
    return parse(Source("t.py", "\n".join([*lines, f"            {text}  # {comment}\n"])))


def claims(comment: str, text: str = "m[i] = l[i] + q[j] * A[i, j] - s") -> list[Claim]:
    return list(read_claims(program(comment, text)))


def texts(comment: str, text: str = "m[i] = l[i] + q[j] * A[i, j] - s") -> list[str]:
    return [claim.text for claim in claims(comment, text)]


def the(comment: str, text: str = "m[i] = l[i] + q[j] * A[i, j] - s") -> Claim:
    (claim,) = claims(comment, text)
    return claim


def source_loops(path: Path, label: str) -> list[tuple[str, ...]]:
    found = [c for c in read_claims(load(str(path))) if c.statement == label]
    return [claim.loops for claim in found if isinstance(claim, SourceLoops)]


def test_the_listing_as_printed() -> None:
    found = read_claims(load(str(PRINTED)))
    assert not [claim for claim in found if isinstance(claim, Malformed)]
    assert [claim.text for claim in found if claim.statement == "S7"] == [
        "No self dependency",
        "SLoop: j for l_i",
        "SLoop: i for m_i",
        "SLoop: (i, j) for m_ij",
        "SLoop: (i, j) for S_ij",
        "SLoop: (i, j) for m_ij",
        "TLoop: (i, j)",
        "RAW on l_i",
        "RAW on m_i",
        "RAW on m_ij",
        "RAW on S_ij",
    ]
    assert source_loops(PRINTED, "S5") == [("i",), ("j",)]
    assert source_loops(PRINTED, "S6") == [("i",), ("i", "j")]
    assert source_loops(PRINTED, "S8") == [("i", "d")]
    assert len(source_loops(PRINTED, "S10")) == 7
    assert [claim.text for claim in found if claim.statement == "S11"] == [
        "Aggregation over j",
        "RAW on o_ijd",
    ]


@pytest.mark.parametrize("path", sorted(SPECS.glob("*.py")), ids=lambda path: path.stem)
def test_no_spec_has_a_malformed_claim(path: Path) -> None:
    assert not [c for c in read_claims(load(str(path))) if isinstance(c, Malformed)]


@pytest.mark.parametrize(
    ("comment", "present", "loops"),
    [
        ("No self dependency", False, ()),
        ("S4: no SELF dependence: [TLoop", False, ()),
        ("it has no self-dependency", False, ()),
        ("without self dependence on j", False, ("j",)),
        ("Self dependency", True, ()),
        ("S1: self dependency over (i, j)", True, ("i", "j")),
        ("S1: Self Dependence on i and j, as one sees", True, ("i", "j")),
    ],
)
def test_self_dependence(comment: str, present: bool, loops: tuple[str, ...]) -> None:
    claim = claims(comment)[0]
    assert isinstance(claim, SelfDependence)
    assert (claim.present, claim.loops, claim.line) == (present, loops, 5)


@pytest.mark.parametrize(
    ("comment", "loops"),
    [
        ("TLoop: i", ("i",)),
        ("[SLOOP, tloop:i]", ("i",)),
        ("TLoop: (i, j)", ("i", "j")),
        ("TLoop: ((i, j))", ("i", "j")),
        ("TLoop: i, j", ("i", "j")),
        ("TLoop: i, j is the inner one", ("i", "j")),
        ("TLoop: i and j", ("i", "j")),
        ("TLoop: i, that is the outer one", ("i",)),
        ("TLoop: ()", ()),
        ("TLoop: (j,)", ("j",)),
        ("TLoop: i j", ("i", "j")),
        ("TLoop: i j, the inner one", ("i", "j")),
        ("TLoop: i j goes fastest", ("i",)),
        ("TLoop: i j not RAW on m", ("i", "j")),
        ("TLoop i", ("i",)),
        ("TLoop (i, j)", ("i", "j")),
    ],
)
def test_target_loops(comment: str, loops: tuple[str, ...]) -> None:
    claim = the(comment)
    assert isinstance(claim, TargetLoops)
    assert claim.loops == loops


@pytest.mark.parametrize(
    ("comment", "loops"),
    [
        ("Aggregation over j", ("j",)),
        ("AGGREGATION over j, i", ("j", "i")),
        ("S1: aggregation over (i, j) of the scores", ("i", "j")),
        ("this is an aggregation over i and j.", ("i", "j")),
    ],
)
def test_aggregation(comment: str, loops: tuple[str, ...]) -> None:
    claim = the(comment)
    assert isinstance(claim, Aggregation)
    assert claim.loops == loops


@pytest.mark.parametrize(
    ("comment", "found"),
    [
        ("RAW on l", ["RAW l"]),
        ("RAW on l, and q", ["RAW l", "RAW q"]),
        ("RAW on l q and s", ["RAW l", "RAW q", "RAW s"]),
        ("RAW on l l[i] # WAR on m[i], A[i, j]", ["RAW l", "RAW l", "WAR m", "WAR of A"]),
        ("[TLoop: i, RAW on m] WAW on m[i][j].", ["RAW m", "WAW m"]),
        ("RAW/WAR on (l, q)", ["RAW l", "RAW q", "WAR l", "WAR q"]),
        ("RAW on l, l, l", ["RAW l"]),
        ("RAW on l, which is read here", ["RAW l"]),
        ("RAW on l because of the loop", ["RAW l"]),
        ("RAW on l, RAW on q, Aggregation over j", ["RAW l", "RAW q"]),
        ("no RAW on l", []),
        ("DRAW on l, RAWS on l, raw on l", []),
    ],
)
def test_touches(comment: str, found: list[str]) -> None:
    touched = [claim for claim in claims(comment) if isinstance(claim, Touches)]
    assert [f"{c.kind} {c.name}" for c in touched] == [each.replace("of ", "") for each in found]
    assert not [claim for claim in claims(comment) if isinstance(claim, Malformed)]


def test_dotted_names() -> None:
    text = "class A:\n    def f(self):\n        for i in range(4):\n"
    text += "            self.x[i] = self.y[i]  # RAW on self.y and self.x[i].\n"
    found = read_claims(parse(Source("t.py", text)))
    assert [claim.text for claim in found] == ["RAW on self.y", "RAW on self.x[i]"]
    assert not any(isinstance(claim, Malformed) for claim in found)


# SLoop


@pytest.mark.parametrize(
    ("text", "comment", "loops"),
    [
        ("s = l[i]", "(i, j)", "ij"),
        ("s = l[i]", "i", "i"),
        ("s = l[i]", "i j", "ij"),
        ("s = l[i]", "()", "-"),
        ("s = l[i]", "((i, j))", "ij"),
        ("s = 1.0", "()", ""),
        ("s = l[i] * q[j]", "(i, j)", "i j"),
        ("s = l[i] * q[j]", "i, j", "i j"),
        ("s = l[i] * q[j]", "((i, j))", "i j"),
        ("s = l[i] * q[j]", "(i, (i, j))", "i ij"),
        ("s = l[i] * q[j]", "((), j)", "- j"),
        ("s = l[i] * q[j] + s", "(i, (i, j))", "i i j"),
        ("s = l[i] * q[j] + s", "((i, j), j)", "i j j"),
        ("s = l[i] * (q[j] - s) + exp(q[j] - s)", "(j, (i, (i, j)), ((i, j), i))", "j i ij ij i"),
        ("s = l[i] + (q[j] - s)", "((i, j), (i, j))", None),
        ("s = l[i] + (q[j] - s) * A[i, j]", "((i, j), (i, j))", "i j i j"),
        ("s = l[i] * q[j]", "i", None),
        ("s = l[i]", "(i, (i, j))", None),
        ("s += A[i, j]", "(i, j)", "ij"),
        ("s += A[i, j]", "(i, (i, j))", "i ij"),
        ("s = A[i, j] if l[i] > 0.0 else q[j]", "((i, j), i, j)", "ij i j"),
        ("s = sum(A[i, e] for e in range(3) if e < n[i]) + s", "((i, j), i, j)", "ij i j"),
        ("s = A[n[i], j]", "i", "i"),
        ("s = n[i] * 2.0 + i", "i", "i"),
    ],
)
def test_source_loops(text: str, comment: str, loops: str | None) -> None:
    found = claims(f"SLoop: {comment}", text)
    if loops is None:
        (malformed,) = found
        assert isinstance(malformed, Malformed)
        assert "operand" in malformed.reason
        return
    assert all(isinstance(claim, SourceLoops) for claim in found)
    read = ["".join(claim.loops) or "-" for claim in found if isinstance(claim, SourceLoops)]
    assert read == loops.split()


def test_operands_are_in_the_order_of_the_text() -> None:
    def of(text: str) -> tuple[list[str], list[str]]:
        node = placed(program("", text))[-1].node
        assert isinstance(node, Assign)
        return [access_text(a) for a in operands(node)], [
            access_text(a) for a in written_operands(node)
        ]

    twice = ["l[i]", "q[j]", "l[i]"]
    assert of("s = l[i] * q[j] - l[i]") == (twice, twice)
    assert of("m[i] += q[j]") == (["m[i]", "q[j]"], ["q[j]"])
    assert of("m[i], s = q[j], l[i]")[0] == ["q[j]", "l[i]"]
    assert of("m[i] = q[n[j]] + n[i] + i")[0] == ["q[n[j]]", "n[i]"]


def test_the_number_of_an_operand_counts_all_of_them() -> None:
    found = claims("SLoop: (i, j)", "s += A[i, j]")
    assert [(c.operand, c.name) for c in found if isinstance(c, SourceLoops)] == [(1, "A[i, j]")]


# What cannot be read


@pytest.mark.parametrize(
    ("comment", "text", "reason"),
    [
        ("TLoop: x", "TLoop: x", "there is no loop x around S2"),
        ("TLoop: (i, x, y)", "TLoop: (i, x, y)", "there is no loop x or y around S2"),
        ("Aggregation over k", "Aggregation over k", "there is no loop k around S2"),
        ("Aggregation over the keys", "Aggregation over the", "there is no loop the around S2"),
        ("Self dependency on k", "Self dependency over k", "there is no loop k around S2"),
        ("SLoop: (i, x, i, i)", "SLoop: x for q[j]", "there is no loop x around S2"),
        ("TLoop:", "TLoop:", "it names no loop"),
        ("TLoop: (i, j # RAW", "TLoop: (i, j", "its list has a '#' where a loop should be"),
        ("TLoop: (i, j", "TLoop: (i, j", "a parenthesis of its list is not closed"),
        ("TLoop: (i, (i, j))", "TLoop: (i, (i, j))", "it is about one target"),
        ("SLoop: (i; j)", "SLoop: (i; j)", "its list has a ';' where a loop should be"),
        ("SLoop: (i, i)", "SLoop: (i, i)", "its list has 2 entries, and the statement has 4"),
        ("SLoop: " + "(" * 50, "SLoop: " + "(" * 50, "nested too deeply"),
        ("RAW on nosuch", "RAW on nosuch", "there is no array or scalar nosuch"),
        ("RAW on M", "RAW on M", "M is a parameter, and nothing writes it"),
        ("RAW on # m", "RAW on", "it names no array or scalar"),
        ("RAW on m[i", "RAW on m[i", "a bracket of its list is not closed"),
        ("RAW on (m, l", "RAW on (m, l", "the parenthesis of its list is not closed"),
    ],
)
def test_malformed(comment: str, text: str, reason: str) -> None:
    (claim,) = (claim for claim in claims(comment) if isinstance(claim, Malformed))
    assert claim.text == text
    assert reason in claim.reason
    assert (claim.statement, claim.line) == ("S2", 5)


def test_what_follows_a_malformed_claim_is_read() -> None:
    assert texts("S2: [SLoop: (i, TLoop: i] # RAW on m[, WAR on l")[1:] == [
        "TLoop: i",
        "RAW on m[, WAR on l",
        "WAR on l",
    ]


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "Loop interchange possible",
        "the self dependency of S3 is gone",
        "S1",
        "the SLoop and the TLoop of S3",
        "the TLoop is what it is",
        "the TLoop i of the whole nest is the outer one",
        "the SLoop (that is, the loops of what is read); the SLoops (both) are as above",
        "aggregated over j; raw material on m",
        "no aggregation over j",
    ],
)
def test_prose(comment: str) -> None:
    assert claims(comment) == []


def test_only_comments_beside_statements_count() -> None:
    text = "for i in range(N):  # TLoop: x\n    # TLoop: x\n    if i > 0:  # RAW on x\n"
    text += "        # RAW on y\n        a[i] = 1.0\n    # TLoop: x\n"
    assert read_claims(parse(Source("t.py", text))) == ()


WORDS = (
    "SLoop: TLoop: RAW WAR on and over Aggregation No self dependency i j m l[i] q A[i,j] x "
    "( ) [ ] , : ; # . ((( ))) / é ٣ \x1b no"
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(WORDS.split()), st.text(max_size=6)), max_size=25))
def test_any_comment_is_read(words: list[str]) -> None:
    plain = parse(Source("t.py", "for i in range(N):\n    m[i] = q * l[i]  # S1\n"))
    (place,) = placed(plain)
    assert isinstance(place.node, Assign)
    (loop,) = place.loops
    for glue in (" ", ""):
        statement = Assign(
            "S1", place.node.targets, place.node.values, comment=glue.join(words).strip()
        )
        body = (type(loop)(loop.variable, loop.range, (statement,)),)
        changed = Program("f", (), plain.parameters, plain.arrays, (), body)
        for claim in read_claims(changed):
            assert claim.statement == "S1"
            assert claim.text
            assert "\n" not in claim.text


@pytest.mark.parametrize("part", ["RAW on m[", "SLoop: (", "TLoop: i, ", "RAW on m ", "no ", "("])
def test_a_long_comment_is_read_quickly(part: str) -> None:
    assert len(claims(part * 5_000)) <= 5_000


def test_many_lists_with_many_readings() -> None:
    text = "s = " + " + ".join(["q[j]"] * 61)
    found = the(f"SLoop: ({', '.join(['(i, j)'] * 60)})", text)
    assert isinstance(found, Malformed)
    assert "several ways" in found.reason
