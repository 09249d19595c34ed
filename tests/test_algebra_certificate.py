"""Certificates: readable, kept as JSON trees, proved again, and spoilt by any change."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from looptrans.algebra.certificate import (
    OperatorCertificate,
    certificate_of,
    digest,
    recheck,
    saved,
)
from looptrans.algebra.iterations.assembly import recurrence
from looptrans.algebra.operators.finding import find_operator
from looptrans.algebra.positional.trees import Malformed, tree_of, value_from
from looptrans.ir.program import Program
from tests.algebra import AFFINE, SPLITTABLE, SUM, value
from tests.analysis import spec


def certificate(listing: Program, loop: str = "j") -> OperatorCertificate:
    return certificate_of(listing, loop, find_operator(recurrence(listing, loop)))


def test_it_reads_as_one_paragraph() -> None:
    text = certificate(AFFINE).text()
    assert "\n" not in text
    assert text == (
        "The loop j of f may be split: with s1 = h, two parts a and b of it are joined by "
        "c1 = a1 * b1, c2 = b1 * a2 + b2. "
        "One iteration (s . unit(x) = step(s, x)) is proved: s1 is s1*x1 + x2 on both sides. "
        "Continuation (s . (b . unit(x)) = step(s . b, x)) is proved: "
        "s1 is b1*s1*x1 + b2*x1 + x2 on both sides. "
        "Associativity ((a . b) . d = a . (b . d)) is proved: c1 is a1*b1*d1 on both sides; "
        "c2 is a2*b1*d1 + b2*d1 + d2 on both sides. "
        "No iteration (⊥ . b = b, a . ⊥ = a, ⊥ . ⊥ = ⊥) is proved: ⊥ . b, 1 is b1 on both sides; "
        "⊥ . b, 2 is b2 on both sides; a . ⊥, 1 is a1 on both sides; "
        "a . ⊥, 2 is a2 on both sides; ⊥ . ⊥, 1 is 1 on both sides; "
        "⊥ . ⊥, 2 is 0 on both sides. "
        "First iteration (step(⊥, x) = unit(x)) is proved: s1 is x2 on both sides. "
        "Signs (unit(x) and a . b have the signs they are said to have) is proved. "
        "Commutativity (a . b = b . a) is refuted: c1 is a1*b1 on both sides; "
        "c2 differs: at b1 = -2, a2 = 1, b2 = 1, a1 = 0.5 the sides are -1 and 1.5."
    )


@pytest.mark.parametrize("name", ["normalized", "welford by index", "argmax", "several"])
def test_it_is_proved_again_from_what_is_saved(name: str) -> None:
    text = saved(certificate(SPLITTABLE[name]))
    assert recheck(text) == ()
    assert text == saved(certificate(SPLITTABLE[name]))


def test_a_scan_is_one() -> None:
    kept = certificate(spec("prefix_sum"), "i")
    assert "It is split as a scan, since S1, S2 looks at the state" in kept.text()
    assert recheck(saved(kept)) == ()


def test_laws_are_certificates_of_a_step() -> None:
    kinds = {(c.kind, c.verdict) for c in certificate(SPLITTABLE["normalized"]).ir()}
    assert kinds == {("algebra", "legal")}


def changed(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield a path and another value for every leaf, and for every list its first part left out."""
    if isinstance(tree, dict):
        for key, part in tree.items():
            yield from changed(part, (*path, key))
    elif isinstance(tree, list):
        if tree:
            yield path, tree[1:]
        else:
            yield path, ["x"]
        for number, part in enumerate(tree):
            yield from changed(part, (*path, number))
    elif isinstance(tree, bool):
        yield path, not tree
    elif isinstance(tree, int | float):
        yield path, tree + 1
    elif tree is None:
        yield path, "x"
    else:
        yield path, tree + "x"


def put(tree: Any, path: tuple[Any, ...], new: Any) -> Any:
    result = copy.deepcopy(tree)
    place = result
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = new
    return result


@pytest.mark.parametrize("with_new_digest", [False, True])
def test_any_change_of_any_field_is_noticed(
    with_new_digest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The extraction reads the listing only; most changes leave that alone.
    monkeypatch.setattr("looptrans.algebra.certificate.recurrence", cache(recurrence))
    document = json.loads(saved(certificate(SUM)))
    every = list(changed(document))
    assert len(every) > 100
    unnoticed = []
    for path, new in every:
        other = put(document, path, new)
        if with_new_digest and path[0] != "digest":
            del other["digest"]
            other["digest"] = digest(other)
        if not recheck(json.dumps(other)):
            unnoticed.append(path)
    # With a checksum of its own, a certificate of another listing that is right all through is
    # right; what the fields say may not be.
    said = [path for path in unnoticed if path[-1] != "kind"]
    assert said == [] if with_new_digest else unnoticed == []


def test_missing_laws_and_fields_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("looptrans.algebra.certificate.recurrence", cache(recurrence))
    document = json.loads(saved(certificate(AFFINE)))
    for number in range(len(document["laws"])):
        other = copy.deepcopy(document)
        del other["laws"][number]
        del other["digest"]
        other["digest"] = digest(other)
        assert "laws is not what was found again" in recheck(json.dumps(other))
    for field in document:
        other = copy.deepcopy(document)
        del other[field]
        assert recheck(json.dumps(other))


def test_a_wrong_operator_is_refuted_even_with_laws_to_match() -> None:
    document = json.loads(saved(certificate(AFFINE)))
    combine = document["operator"]["components"][1]["combine"]
    assert combine["op"] == "+"
    combine["op"] = "-"
    problems = recheck(json.dumps(document))
    assert any("associativity is refuted" in problem for problem in problems)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100000,
        "{}",
        '{"schema": "looptrans.certificate/1"}',
        '{"schema": "looptrans.certificate/1", "listing": ["def f(:"], "loop": "j"}',
        '{"schema": "looptrans.certificate/1", "listing": ["x = 1"], "loop": "j"}',
        '{"schema": "looptrans.certificate/1", "listing": [], "loop": 3}',
    ],
)
def test_what_is_no_certificate_says_so(text: str) -> None:
    problems = recheck(text)
    assert len(problems) == 1 and problems[0].startswith("it")


def test_trees_are_values_and_back() -> None:
    for text in ("max(a, b) * exp(c - 1.5)", "a if b > c and not a == b else -2", "a ** 2 / b"):
        assert value_from(json.loads(json.dumps(tree_of(value(text))))) == value(text)


@pytest.mark.parametrize(
    "tree",
    [
        3,
        "a",
        None,
        {"is": "Real"},
        {"is": "Real", "name": 3},
        {"is": "Real", "name": "a", "more": 1},
        {"is": "Binary", "op": "^", "left": {"is": "Real", "name": "a"}, "right": None},
        {"is": "Var", "name": "i"},
        {"is": "Const", "value": "__import__('os')"},
        {"is": "Const", "value": None},
        {"is": "Call", "function": "exp", "arguments": []},
        {"is": "Call", "function": "system", "arguments": [{"is": "Const", "value": 1}]},
        {"is": "Create", "function": "zeros", "shape": []},
    ],
)
def test_malformed_trees_are_refused(tree: object) -> None:
    with pytest.raises(Malformed):
        value_from(tree)


def test_nothing_read_is_evaluated() -> None:
    """No call of eval, exec, sympify or parse_expr stands in the folder."""
    from pathlib import Path

    import looptrans.algebra

    folder = Path(looptrans.algebra.__file__).parent
    for file in folder.glob("*.py"):
        text = file.read_text()
        for word in ("eval(", "exec(", "sympify(", "parse_expr(", "force=True", "lambdify("):
            assert word not in text, (file.name, word)


def test_proofs_are_quick() -> None:
    listing = spec("flash_forward")
    step = recurrence(listing, "j")
    begin = time.process_time()
    assert find_operator(step).decision == "found"
    assert time.process_time() - begin < 5


def test_the_analysis_and_the_reports_do_not_load_sympy() -> None:
    code = "import sys, looptrans.analysis.api, looptrans.reports; sys.exit('sympy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
