"""Transformations as they are written: what is read, and what is said about mistakes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from looptrans.frontend import parse
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.source import Source
from looptrans.ir.step import Step
from looptrans.ir.verdict import Decision, Verdict
from looptrans.transforms import script as scripts
from looptrans.transforms.catalogue import ENTRIES, NAMES, entry_of, function_of
from looptrans.transforms.editing.errors import NotNested, TransformError
from looptrans.transforms.script import apply_all, bound, parse_script

PROGRAM = parse(
    Source(
        "nest.py",
        "def f(x, y):\n"
        "    for i in range(N):\n"
        "        for j in range(N):\n            x[i, j] = 1.0\n"
        "        for j in range(N):\n            y[i, j] = x[i, j]\n",
    )
)


def read(script: str | Sequence[str]) -> list[tuple[str, list[str | int]]]:
    return [(call.name, [a.value for a in call.arguments]) for call in parse_script(script)]


def error(script: str | Sequence[str]) -> str:
    with pytest.raises(ListingError) as caught:
        parse_script(script)
    return caught.value.render()


# What is read


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("interchange(i, j)", [("interchange", ["i", "j"])]),
        (" interchange ( i,j ) ", [("interchange", ["i", "j"])]),
        ("hoist(S3, j@12)", [("hoist", ["S3", "j@12"])]),
        ("hoist(S3, j@S7)", [("hoist", ["S3", "j@S7"])]),
        ("split(j, 64, +)", [("split", ["j", 64, "+"])]),
        ("split(j, 64, '*')", [("split", ["j", 64, "*"])]),
        ('split(j, 64, "max")', [("split", ["j", 64, "max"])]),
        ("split(max, 64, max)", [("split", ["max", 64, "max"])]),
        ("split(j, 64)", [("split", ["j", 64])]),
        ("skew(j, i, -1)", [("skew", ["j", "i", -1])]),
        ("skew(j, i, +1)", [("skew", ["j", "i", 1])]),
        ("tile(i, j, 32, 16)", [("tile", ["i", "j", 32, 16])]),
        ("distribute(j)", [("distribute", ["j"])]),
        ("distribute(j, S1, S2)", [("distribute", ["j", "S1", "S2"])]),
        ("expand(self.acc, é)", [("expand", ["self.acc", "é"])]),
        ("reverse(i);reverse(j)", [("reverse", ["i"]), ("reverse", ["j"])]),
        ("reverse(i)\n\n;; reverse(j);\n", [("reverse", ["i"]), ("reverse", ["j"])]),
        (["reverse(i)", "reverse(j); reverse(k)"], [("reverse", [x]) for x in "ijk"]),
        ("# first\nreverse(i)  # then; (\nreverse(j)", [("reverse", ["i"]), ("reverse", ["j"])]),
        (
            "tile(\n  i, j,\n  32, 16\n)\r\nreverse(i)",
            [("tile", ["i", "j", 32, 16]), ("reverse", ["i"])],
        ),
    ],
)
def test_what_is_read(script: str | Sequence[str], expected: list[Any]) -> None:
    assert read(script) == expected


def test_a_call_prints_as_it_is_written() -> None:
    (call,) = parse_script("split( j,064 ,'+')")
    assert call.text == "split(j, 64, +)"
    assert parse_script(call.text)[0].text == call.text


def test_arguments_by_the_name_of_their_slot() -> None:
    (call,) = parse_script("tile(i, j, 32, 16)")
    entry = entry_of("tile")
    assert entry is not None
    assert bound(call, entry) == {"loop": ("i", "j"), "size": ("32", "16")}
    (call,) = parse_script("privatize(i)")
    entry = entry_of("privatize")
    assert entry is not None
    assert bound(call, entry) == {"loop": ("i",), "name": ()}


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_every_example_fits_its_signature(entry: Any) -> None:
    (call,) = parse_script(entry.example)
    assert call.name == entry.name
    assert entry.phrase.format(**{slot.name: "x" for slot in entry.slots})


# What is not


@pytest.mark.parametrize(
    ("script", "code", "underlined", "says"),
    [
        ("", "E040", None, "no transformation is given"),
        (" ;\n# nothing", "E040", None, "no transformation is given"),
        ("interchange", "E040", "interchange", "the arguments of interchange are missing"),
        ("interchange i j", "E040", "interchange", "'i' stands where ( is expected"),
        ("interchange[i, j]", "E040", "interchange", "for example interchange(i, j)"),
        ("interchange(i, j", "E040", "interchange", "the ) of interchange is missing"),
        ("interchange(i, ", "E040", "interchange", "the ) of interchange is missing"),
        ("interchange(i; j)", "E040", "interchange", "the ) of interchange is missing"),
        ("interchange(i j)", "E040", "j", "separated by commas"),
        ("interchange(i,, j)", "E040", ",", "an argument is a name"),
        ("interchange(outer=i)", "E040", "=", "without their names"),
        ("reverse(i) reverse(j)", "E040", "reverse", "put ; or a line end between"),
        ("reverse(i))", "E040", ")", "a transformation ends with its )"),
        ("(i, j)", "E040", "(", "begins with its name"),
        ("reverse@3(i)", "E040", "reverse@3", "begins with its name"),
        ("skew(j, i, 1.5)", "E040", "1.5", "neither a name nor an integer"),
        ("skew(j, i, 0x10)", "E040", "0x10", "neither a name nor an integer"),
        ("skew(j, i, " + "9" * 5000 + ")", "E040", None, "too large"),
        ("__import__('os')", "E040", "'", "an argument is a name"),
        ("__import__(os)", "E041", "__import__", "there is no transformation"),
        ("interchnge(i, j)", "E041", "interchnge", "did you mean interchange(outer, inner)?"),
        ("Tile(i, 4)", "E041", "Tile", "did you mean tile(loop, …, size, …)?"),
        ("strip-mine(i, 4)", "E041", "strip", "strip_mine(loop, size)"),
        ("vectorize(i)", "E041", "vectorize", ", ".join(NAMES)),
        ("reverse()", "E042", "reverse()", "too few arguments: loop is missing"),
        ("interchange(i)", "E042", "interchange(i)", "inner is missing"),
        ("interchange(i, j, k)", "E042", "k", "too many arguments"),
        ("interchange(i, 3)", "E042", "3", "the name of a loop, such as j, j@12 or j@S7"),
        ("hoist(S3@4, j)", "E042", "S3@4", "the label of a statement"),
        ("strip_mine(j, 0)", "E042", "0", "an integer above 0"),
        ("strip_mine(j, -2)", "E042", "-2", "an integer above 0"),
        ("strip_mine(j, i)", "E042", "i", "write strip_mine(loop, size), for example"),
        ("skew(j, i, +)", "E042", "+", "an integer"),
        ("split(j, 4, min, 3)", "E042", "3", "too many arguments"),
        ("split(j, 4, -)", "E040", "-", "not expected here"),
        ("split(j, 4, avg)", "E042", "avg", "an operator, +, *, max or min"),
        ("tile(i, 32, j)", "E042", "j", "a size, an integer above 0"),
        ("tile(i, j)", "E042", "tile(i, j)", "size is missing"),
        ("distribute(j, 4)", "E042", "4", "the label of a statement"),
    ],
)
def test_mistakes(script: str, code: str, underlined: str | None, says: str) -> None:
    shown = error(script)
    assert shown.startswith(f"error[{code}]: ")
    assert says in shown
    assert "\n  help: " in shown
    if underlined is not None:
        place, carets = shown.splitlines()[1:3]
        start = carets.index("^")
        assert place[start:].startswith(underlined)
        assert carets.strip() == "^" * len(underlined)


def test_the_line_of_a_mistake_is_the_argument_it_is_in() -> None:
    shown = error(["reverse(i)", "reverse(é); reverse(3)"])
    assert "<transformations>:2:22 | reverse(é); reverse(3)\n" in shown
    assert shown.splitlines()[2].endswith(" ^")


def test_arguments_are_checked_in_every_call() -> None:
    assert error("reverse(3); interchange(i)").count("error[E042]") == 2


@given(st.text(alphabet="interchange(),; \n@1+*'\"#é\x00\x1b[", max_size=40))
def test_any_text_is_read_or_refused(script: str) -> None:
    try:
        calls = parse_script(script)
    except ListingError as caught:
        shown = caught.render()
        assert shown.startswith("error[E04")
        assert all(character.isprintable() for character in shown.replace("\n", ""))
        return
    assert calls and all(call.name in NAMES for call in calls)


# One after another


def stand_in(decision: Decision) -> Callable[..., Step]:
    def transformed(program: Any, *arguments: Any) -> Step:
        return Step(str(arguments), program, PROGRAM, Verdict(decision), {})

    return transformed


def test_steps_follow_one_another_until_one_is_not_legal(monkeypatch: pytest.MonkeyPatch) -> None:
    decisions: dict[str, Decision] = {"reverse": "legal", "interchange": "unknown"}
    monkeypatch.setattr(scripts, "function_of", lambda name: stand_in(decisions[name]))
    steps = apply_all(PROGRAM, "reverse(i); reverse(j); interchange(i, j); reverse(k)")
    assert [step.name for step in steps] == ["('i',)", "('j',)", "('i', 'j')"]
    assert [step.verdict.decision for step in steps] == ["legal", "legal", "unknown"]
    assert all(b.before is a.after for a, b in pairwise(steps))


def test_a_script_is_understood_before_anything_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Callable[..., Step]:
        raise AssertionError(name)

    monkeypatch.setattr(scripts, "function_of", refuse)
    with pytest.raises(ListingError):
        apply_all(PROGRAM, "reverse(i); reverse(")


def raising(mistake: TransformError) -> Callable[..., Step]:
    def transformed(*_: Any) -> Step:
        raise mistake

    return transformed


def test_a_mistake_without_a_place_is_shown_at_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    mistake = NotNested("they are not nested", None)
    monkeypatch.setattr(scripts, "function_of", lambda _: raising(mistake))
    with pytest.raises(ListingError) as caught:
        apply_all(PROGRAM, "interchange(i, j)")
    assert caught.value.source.name == "<transformations>"
    place, carets = caught.value.render().splitlines()[1:3]
    assert place[carets.index("^") :] == "interchange(i, j)" and carets.count("^") == 17


def test_a_mistake_about_the_listing_is_shown_there(monkeypatch: pytest.MonkeyPatch) -> None:
    loop: Any = PROGRAM.body[0]
    mistake = NotNested("they are not nested", loop.span)
    monkeypatch.setattr(scripts, "function_of", lambda _: raising(mistake))
    with pytest.raises(ListingError) as caught:
        apply_all(PROGRAM, "interchange(i, j)")
    lines = caught.value.render().splitlines()
    assert lines[0] == "error[E047]: interchange(i, j): they are not nested"
    assert lines[1].startswith("  nest.py:2:") and "for i in range(N):" in lines[1]


def test_a_mistake_about_what_a_step_has_put_in_names_the_step() -> None:
    text = 'def f(x: Float[Array, "N"]):\n    s = 0.0\n    for k in range(N):\n        s += x[k]\n'
    with pytest.raises(ListingError) as caught:
        apply_all(
            parse(Source("nest.py", text + "    return s\n")), ["split(k, 4)", "distribute(q)"]
        )
    shown = caught.value.render()
    assert "<transformations>:2:12 | distribute(q)" in shown
    assert "; q is made by split(k, 4)" in shown


# The catalogue and the functions


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_the_catalogue_says_what_the_function_takes(entry: Any) -> None:
    function = function_of(entry.name)
    assert function.__name__ == entry.name
    parameters = list(inspect.signature(function).parameters.values())[1:]
    required = [
        p
        for p in parameters
        if p.default is p.empty and p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}
    ]
    assert len(required) <= sum(not slot.optional for slot in entry.slots)
    many = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    assert many or not any(slot.repeated for slot in entry.slots)
    taken = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    assert many or len(taken) >= len(entry.slots)


def test_there_is_no_function_of_another_name() -> None:
    assert entry_of("vectorize") is None
    with pytest.raises(KeyError):
        function_of("vectorize")
