"""Derivations saved as JSON, and proved again from what was saved.

The document holds every listing, the program before and after each step as a tree, the laws with
their equations, and the operators. `recheck` believes none of it: it reads the listing before a
step, makes the step anew, proves everything a step of its kind must show, and compares. Nothing
that is read is ever evaluated.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, TypeAlias

from looptrans.adjoint.rewriting.spelled import LOOPS
from looptrans.algebra.certificate import digest, is_same_tree, law_tree
from looptrans.derivation.backward import BEGUN, passes
from looptrans.derivation.derive import derive
from looptrans.derivation.joined.sharing import alternatives, formed
from looptrans.derivation.moves import made
from looptrans.derivation.step import (
    FORMS,
    Alternative,
    Argument,
    Derivation,
    DerivationStep,
    Goal,
    NotDone,
)
from looptrans.frontend import parse
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.listing import listing
from looptrans.ir.program import Program
from looptrans.ir.source import Source
from looptrans.ir.verdict import Certificate

SCHEMA = "looptrans.derive/1"
Tree: TypeAlias = Any  # what json gives


class Malformed(Exception):
    """A file that is no saved derivation; the message says why."""


def document(derivation: Derivation) -> dict[str, Tree]:
    """Return a derivation as a tree for JSON; the same each time."""
    found: dict[str, Tree] = {
        "schema": SCHEMA,
        "program": derivation.program.name,
        "to": derivation.goal,
        "verdict": derivation.decision,
        "listing": listing(derivation.program),
        "notes": list(derivation.notes),
        "steps": [step_document(step) for step in derivation.steps],
    }
    if derivation.goal == "backward":
        found |= _backward_document(derivation)
    return found | {"digest": digest(found)}


def _backward_document(derivation: Derivation) -> dict[str, Tree]:
    """Return what a derivation to backward says besides its steps."""
    found = derivation.backward
    return {
        "form": derivation.form,
        "of": [] if found is None else list(found.of),
        "gradients": {} if found is None else dict(found.gradients),
        "incoming": {} if found is None else dict(found.incoming),
        "saved": [] if found is None else [each.name for each in found.saved],
        "alternatives": [_alternative(each) for each in derivation.alternatives],
    }


def _alternative(alternative: Alternative) -> dict[str, Tree]:
    return {
        "form": alternative.form,
        "verdict": alternative.decision,
        "reason": alternative.reason,
    }


def saved(derivation: Derivation) -> str:
    """Return a derivation as JSON text."""
    return json.dumps(document(derivation), indent=1, ensure_ascii=False) + "\n"


def step_document(step: DerivationStep) -> dict[str, Tree]:
    """Return a step as a tree for JSON."""
    return {
        "name": step.name,
        "kind": step.kind,
        "arguments": list(step.arguments),
        "verdict": step.decision,
        "listing": listing(step.after),
        "certificates": [_certificate(each) for each in step.certificates],
        "before": program_tree(step.before),
        "after": program_tree(step.after),
        "laws": [law_tree(law) for law in step.laws],
        "operator": None if step.operator is None else step.operator.tree(),
    }


def _certificate(certificate: Certificate) -> dict[str, Tree]:
    return {
        "kind": certificate.kind,
        "law": certificate.law,
        "verdict": certificate.verdict,
        "reason": certificate.reason,
        "assumptions": list(certificate.assumptions),
    }


def program_tree(node: object) -> Tree:
    """Return a program, or a part of one, as a tree: its fields by name, places left out."""
    if isinstance(node, tuple):
        return [program_tree(part) for part in node]
    if isinstance(node, float) and not math.isfinite(node):
        return repr(node)
    if node is None or isinstance(node, str | int | float | bool):
        return node
    assert dataclasses.is_dataclass(node) and not isinstance(node, type)
    fields = [field for field in dataclasses.fields(node) if field.name not in ("span", "source")]
    return {"is": type(node).__name__} | {
        field.name: program_tree(getattr(node, field.name)) for field in fields
    }


def read(text: str) -> dict[str, Tree]:
    """Read a saved derivation as far as telling that it is one.

    Raises:
        Malformed: It is none.
    """
    try:
        found = json.loads(text, object_pairs_hook=_once_each)
        json.dumps(found, ensure_ascii=False).encode()  # half a character may stand in it escaped
    except (ValueError, RecursionError) as error:
        raise Malformed(f"it is no JSON: {error}") from None
    if not isinstance(found, dict) or "steps" not in found or "schema" not in found:
        raise Malformed("it is no saved derivation: it has no schema and no steps")
    return found


def _once_each(pairs: list[tuple[str, Tree]]) -> dict[str, Tree]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice")
    return found


def recheck(text: str) -> tuple[str, ...]:
    """Prove a saved derivation again, from nothing but its listings.

    Returns:
        What is wrong with it, one sentence each; empty where nothing is.

    Raises:
        Malformed: It is no saved derivation at all.
    """
    return tuple(_problems(read(text)))


def _problems(found: dict[str, Tree]) -> list[str]:
    wanted: tuple[str, ...] = (
        "schema",
        "program",
        "to",
        "verdict",
        "listing",
        "notes",
        "steps",
        "digest",
    )
    if found.get("to") == "backward":
        wanted += ("form", "of", "gradients", "incoming", "saved", "alternatives")
    problems = _fields(found, wanted, "the derivation")
    if problems:
        return problems
    if not is_same_tree(found["schema"], SCHEMA):
        problems.append(f"the schema is {found['schema']!r}, not {SCHEMA!r}")
    if not isinstance(found["steps"], list):
        return [*problems, "the steps are no list"]
    notes = found["notes"]
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        problems.append("the notes are no list of sentences")
    if not found["steps"] and found["verdict"] == "legal":
        problems.append("there are no steps, and nothing is shown without any")
    program = _program(found["listing"])
    if isinstance(program, str):
        return [*problems, f"the listing: {program}"]
    if not is_same_tree(found["program"], program.name):
        problems.append("the program has another name than its listing")
    first = program
    reached: dict[str, Program] = {}
    for number, step in enumerate(found["steps"], 1):
        following = _step(number, step, program, problems)
        if following is None:
            return problems
        program = following
        if isinstance(step["kind"], str):
            reached[step["kind"]] = program
    if found["to"] != "backward":
        problems += _goal(found, first)
    elif not problems:
        # Its steps are of the right form.
        problems += _backward(found, first, reached.get("backward nest"))
    rest = {name: value for name, value in found.items() if name != "digest"}
    if not is_same_tree(found["digest"], digest(rest)):
        problems.append("the digest is not that of the rest of the file")
    return problems


_OF_BACKWARD = {"hand over", "adjoint", "backward nest", "one launch", "one nest", "atomics"}


def _goal(found: dict[str, Tree], first: Program) -> list[str]:
    """Compare the verdict on the whole with what its steps reach, or with what is found again.

    Steps show that there is something; only looking again shows that there is nothing.
    """
    others: dict[Goal, set[str]] = {
        "fold": {"blocks", "parts"},
        "forward": {"parts"},
        "split": {"blocks"},
    }
    goal = next((goal for goal in others if goal == found["to"]), None)
    if goal is None:
        return [f"there is no derivation to {found['to']!r}"]
    kinds = [step["kind"] for step in found["steps"]]
    if (others[goal] | _OF_BACKWARD) & set(kinds):
        return [f"its steps do not lead to {goal}"]
    verdict = found["verdict"]
    if verdict not in ("legal", "illegal", "unknown") or (
        goal == "split" and (verdict == "legal") != ("parts" in kinds)
    ):
        return [f"the verdict is {verdict!r}, which its steps do not show"]
    if verdict != "legal" and verdict != (again := derive(first, goal).decision):
        return [f"the verdict is {verdict!r}, and {again!r} is found again"]
    return []


def _backward(found: dict[str, Tree], first: Program, nests: Program | None) -> list[str]:
    """Compare what is said of a backward pass with what its listing gives.

    Args:
        found: The document, whose steps were made anew.
        first: The listing.
        nests: The backward listing, where a step leads to it.
    """
    steps = [(step["kind"], step["arguments"]) for step in found["steps"]]
    if found["form"] not in FORMS:
        return [f"there is no form {found['form']!r} of a backward pass"]
    if nests is None:
        fits = not steps and found["verdict"] == "unknown"
        return [] if fits else ["its steps do not lead to backward"]
    at = next(n for n, (kind, _) in enumerate(steps) if kind == "backward nest")
    count, of, wrt, *_ = steps[at][1]
    facts = [["adjoint", [number, of, wrt]] for number in range(1, count)]
    counted = next(n for n, (kind, _) in enumerate(steps) if kind not in (*BEGUN, LOOPS))
    before = [[kind, given] for kind, given in steps[counted:at] if kind != "hand over"]
    problems = []
    if before != facts or any([of, wrt] != g for kind, g in steps[:at] if kind == "hand over"):
        problems.append("its steps do not show all that the backward listing leans on")
    verdict = "legal"
    more: list[DerivationStep] = []
    try:
        more = formed(nests, found["form"])
    except NotDone as error:
        verdict = error.decision
    if steps[at + 1 :] != [(step.kind, list(step.arguments)) for step in more]:
        problems.append(f"its steps do not lead to the form {found['form']!r}")
    if not is_same_tree(found["verdict"], verdict):
        problems.append(f"the verdict is {found['verdict']!r}, which its steps do not show")
    return problems + _said(found, first, nests, (of, wrt))


def _said(
    found: dict[str, Tree], first: Program, nests: Program, given: tuple[str, str]
) -> list[str]:
    """Compare what a document says of names and of other forms."""
    try:
        own = passes(first, *given)
    except NotDone as error:
        return [error.reason]
    again = Derivation(
        first,
        "backward",
        (),
        "legal",
        backward=own,
        form=found["form"],
        alternatives=alternatives(nests, tuple(own.gradients.values())),
    )
    return [
        f"{name} is not what was found again{_where(found[name], value)}"
        for name, value in _backward_document(again).items()
        if not is_same_tree(found[name], value)
    ]


def _step(number: int, step: Tree, program: Program, problems: list[str]) -> Program | None:
    """Make a step anew; return the program its saved listing gives, or None where it has none."""
    fields = (
        "name",
        "kind",
        "arguments",
        "verdict",
        "listing",
        "certificates",
        "before",
        "after",
        "laws",
        "operator",
    )
    what = f"step {number}"
    wrong = _fields(step, fields, what)
    problems += wrong
    if wrong:
        return None
    read_ = _program(step["listing"])
    if isinstance(read_, str):
        problems.append(f"{what}: its listing: {read_}")
    following = None if isinstance(read_, str) else read_
    arguments = step["arguments"]
    if not isinstance(step["kind"], str) or not isinstance(arguments, list):
        problems.append(f"{what}: its kind or its arguments are of the wrong form")
        return following
    try:
        fresh = made(step["kind"], program, _plain(arguments))
    except NotDone as error:
        problems.append(f"{what}, {step['kind']}: {error.reason}")
        return following
    except ListingError as error:
        problems.append(f"{what}, {step['kind']}: {error}")
        return following
    if fresh.decision != "legal":
        problems.append(f"{what}: it is {fresh.decision}")
    for name, value in step_document(fresh).items():
        if not is_same_tree(step[name], value):
            where = _where(step[name], value)
            problems.append(f"{what}: {name} is not what was found again{where}")
    return following


def _plain(arguments: list[Tree]) -> tuple[Argument, ...]:
    """Return arguments that may be names or numbers; anything else as a text that is neither."""
    return tuple(each if type(each) in (str, int) else repr(each) for each in arguments)


def _fields(tree: Tree, wanted: tuple[str, ...], what: str) -> list[str]:
    if not isinstance(tree, dict):
        return [f"{what} is no object with fields"]
    missing = [f"{what}: {name} is missing" for name in wanted if name not in tree]
    more = [f"{what}: {name} does not belong there" for name in tree if name not in wanted]
    return missing + more


def _program(text: Tree) -> Program | str:
    """Read a listing; return why not where it cannot be read."""
    if not isinstance(text, str):
        return "it is no text"
    try:
        found = parse(Source("<derivation>", text))
        return found if listing(found) == text else "it is not as the tool prints it"
    except (ListingError, RecursionError) as error:
        return f"it cannot be read: {str(error).splitlines()[0] if str(error) else error}"


def _where(a: Tree, b: Tree) -> str:
    """Return where two trees differ first, `: at equations, 0, left`."""
    path: list[str] = []
    while True:
        if isinstance(a, dict) and isinstance(b, dict) and set(a) == set(b):
            key = next((key for key in b if not is_same_tree(a[key], b[key])), None)
        elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
            key = next((n for n in range(len(b)) if not is_same_tree(a[n], b[n])), None)
        else:
            key = None
        if key is None:
            return f" (at {', '.join(path)})" if path else ""
        path.append(str(key))
        a, b = a[key], b[key]
