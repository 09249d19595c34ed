"""`looptrans derive` and `recheck`: what is printed, saved, and proved again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from looptrans.algebra.certificate import digest
from looptrans.cli.main import main
from looptrans.derivation import saved
from looptrans.derivation.derive import derive
from looptrans.derivation.step import DerivationStep
from looptrans.ir.program import Program
from tests.analysis import SPECS, spec
from tests.derivations import SUM, made_once

FOLDER = SPECS[0].parent
NAIVE = str(FOLDER / "attention_naive.py")
Tree = Any


@pytest.fixture(scope="module")
def document() -> dict[str, Tree]:
    return saved.document(derive(SUM, "split", parts=2))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the same step of the same program be made and proved once only."""

    trees: dict[int, dict[str, Tree]] = {}
    whole = saved.step_document

    def kept(step: DerivationStep) -> dict[str, Tree]:
        if id(step) not in trees:
            trees[id(step)] = whole(step)
        return trees[id(step)]

    monkeypatch.setattr(saved, "made", made_once())
    monkeypatch.setattr(saved, "step_document", kept)
    monkeypatch.setattr(saved, "_program", cache(saved._program))


def leaves(tree: Tree, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the way to every leaf, and to every list and object that is not empty."""
    if path:
        yield path
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, (*path, key))
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            yield from leaves(value, (*path, number))


def at(tree: Tree, path: tuple[str | int, ...]) -> Tree:
    for key in path:
        tree = tree[key]
    return tree


def changed(document: Tree, path: tuple[str | int, ...], value: Tree) -> Tree:
    copy = json.loads(json.dumps(document))
    at(copy, path[:-1])[path[-1]] = value
    return copy


def other(value: Tree) -> Tree:
    """Return a value of the same sort that is another one; a list or object emptied."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case list():
            return [] if value else ["x"]
        case dict():
            return {}
        case _:
            return "x"


def without_digest(document: Tree) -> Tree:
    rest = {name: value for name, value in document.items() if name != "digest"}
    return rest | {"digest": digest(rest)}


def test_what_is_saved_is_proved_again(document: dict[str, Tree]) -> None:
    assert saved.recheck(json.dumps(document)) == ()
    assert document == saved.document(derive(SUM, "split", parts=2))


@pytest.mark.usefixtures("quick")
def test_every_change_of_every_field_is_found(document: dict[str, Tree]) -> None:
    count = 0
    for path in list(leaves(document))[:: 2 if "LOOPTRANS_TEST_ALL" not in os.environ else 1]:
        problems = saved.recheck(json.dumps(changed(document, path, other(at(document, path)))))
        assert problems, path
        count += 1
    assert count > 500


@pytest.mark.usefixtures("quick")
def test_changes_of_steps_are_found_without_the_digest_too(document: dict[str, Tree]) -> None:
    paths = [path for path in leaves(document["steps"], ("steps",)) if path != ("steps",)]
    for path in paths[::4]:
        wrong = without_digest(changed(document, path, other(at(document, path))))
        assert saved.recheck(json.dumps(wrong)), path


@pytest.mark.usefixtures("quick")
def test_steps_left_out_repeated_or_swapped_are_found(document: dict[str, Tree]) -> None:
    steps = document["steps"]
    for wrong in (
        [],
        steps[1:],
        [steps[1], steps[0], *steps[2:]],
        [*steps, steps[-1]],
        [steps[0], *steps],
    ):
        assert saved.recheck(json.dumps(without_digest({**document, "steps": wrong})))
    assert saved.recheck(json.dumps({**document, "steps": steps[:-1]}))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "unknown"},
        {"verdict": "illegal"},
        {"to": "forward"},
        {"to": "backward"},
        {"notes": None},
        {"notes": [1]},
    ],
    ids=str,
)
def test_what_is_said_of_the_whole_is_checked_too(
    document: dict[str, Tree], change: dict[str, Tree]
) -> None:
    assert saved.recheck(json.dumps(without_digest(document | change)))


def test_a_verdict_that_is_not_found_again() -> None:
    whole = saved.document(derive(spec("stencil"), "forward"))
    for verdict in ("illegal", "unknown"):
        wrong = without_digest(whole | {"verdict": verdict})
        assert saved.recheck(json.dumps(wrong)) == (
            f"the verdict is {verdict!r}, and 'legal' is found again",
        )
    assert saved.recheck(json.dumps(saved.document(derive(spec("prefix_sum"), "forward")))) == ()


def test_half_a_character_is_malformed(document: dict[str, Tree]) -> None:
    with pytest.raises(saved.Malformed, match="surrogates"):
        saved.recheck(json.dumps(document | {"notes": ["\ud800"]}))


@pytest.mark.usefixtures("quick")
def test_fields_left_out_or_added_are_found(document: dict[str, Tree]) -> None:
    for name in document:
        if name in ("schema", "steps"):
            continue
        assert saved.recheck(json.dumps({k: v for k, v in document.items() if k != name}))
    assert saved.recheck(json.dumps(document | {"more": 1}))
    for name in document["steps"][0]:
        first = {k: v for k, v in document["steps"][0].items() if k != name}
        assert saved.recheck(json.dumps({**document, "steps": [first, *document["steps"][1:]]}))


@pytest.mark.usefixtures("quick")
def test_laws_cannot_be_left_out(document: dict[str, Tree]) -> None:
    for number, step in enumerate(document["steps"]):
        for law in range(len(step["laws"])):
            laws = [each for n, each in enumerate(step["laws"]) if n != law]
            wrong = without_digest(changed(document, ("steps", number, "laws"), laws))
            (problem, *_) = saved.recheck(json.dumps(wrong))
            assert problem.startswith(f"step {number + 1}: laws")


def test_nothing_that_is_read_is_evaluated(document: dict[str, Tree], tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    text = f"__import__('pathlib').Path({str(touched)!r}).touch()"
    for path in (("listing",), ("steps", 0, "arguments", 0), ("steps", 0, "kind")):
        assert saved.recheck(json.dumps(changed(document, path, text)))
    assert not touched.exists()


def test_the_command_derives_saves_and_rechecks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "derivation.json"
    assert main(["derive", NAIVE, "--block", "8", "-o", str(file)]) == 0
    text = capsys.readouterr().out
    assert "1. one pass instead of 3: m[i], l[i] and O[i, d] move together" in text
    assert "+            m_ij = max(m[i], S[i, j])" in text
    assert "Separability" in text and "derived: " in text
    assert main(["recheck", str(file)]) == 0
    assert "6 steps" in capsys.readouterr().out
    document = json.loads(file.read_text())
    assert document["schema"] == "looptrans.derive/1"
    assert {"name", "listing", "certificates"} <= set(document["steps"][0])
    assert {"kind", "law", "verdict"} <= set(document["steps"][0]["certificates"][0])
    kinds = {c["kind"] for step in document["steps"] for c in step["certificates"]}
    assert kinds == {"order", "storage", "algebra", "rounding"}
    document["steps"][1]["listing"] += "\n"
    file.write_text(json.dumps(document))
    assert main(["recheck", str(file)]) == 1
    assert "step 2" in capsys.readouterr().out


def test_a_page_can_be_made_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["derive", str(FOLDER / "softmax.py"), "--format", "md"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("# softmax: ") and "```diff" in page
    assert "## What was not done" in page and "second pass" in page


def test_json_is_what_is_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "d.json"
    assert main(["derive", str(FOLDER / "rmsnorm.py"), "--format", "json", "-o", str(file)]) == 0
    assert capsys.readouterr().out == file.read_text()


def test_a_goal_that_is_none_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["derive", NAIVE, "--to", "sideways"]) == 2
    assert "'sideways' is not forward, backward or split" in capsys.readouterr().err


def test_exit_status_says_refuted_and_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sine.py"
    file.write_text(
        "def f(x, N):\n    h = 0.0\n    for j in range(N):\n        h = sin(h) + x[j]\n"
        "    return h\n"
    )
    assert main(["derive", str(file), "--to", "split"]) == 1
    assert "cannot be split" in capsys.readouterr().out
    assert main(["derive", str(FOLDER / "prefix_sum.py"), "--to", "split"]) == 3
    assert "scan" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}", '{"steps": [], "steps": []}'])
def test_a_file_that_is_no_derivation_is_an_error(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "no.json"
    file.write_text(text)
    assert main(["recheck", str(file)]) == 2
    errors = capsys.readouterr().err
    assert "cannot recheck" in errors and "\n  help: name a file" in errors
    assert main(["recheck", str(tmp_path / "missing.json")]) == 2
    assert "\n  help: check the path" in capsys.readouterr().err


def test_the_listing_of_the_last_step_is_a_listing_of_its_own(document: dict[str, Tree]) -> None:
    for step in document["steps"]:
        assert isinstance(saved._program(step["listing"]), Program)
    assert spec("attention_naive").docstring


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--parts", "3"), "--parts is about a split: add --to split"),
        (("--of", "O"), "--of is about the backward pass: add --to backward"),
        (
            ("--to", "split", "--block", "8"),
            "--block is about the forward pass: leave out --to split",
        ),
    ],
)
def test_an_option_of_another_goal_is_an_error(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["derive", NAIVE, *options]) == 2
    assert capsys.readouterr() == ("", f"error: {said}\n")
