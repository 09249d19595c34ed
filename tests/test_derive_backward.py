"""`looptrans derive --to backward`: its steps, its forms, and that both are proved again."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from looptrans.adjoint.backward import backward
from looptrans.adjoint.sweep import pulling
from looptrans.adjoint.sweep.derivatives import used_derivatives
from looptrans.algebra.certificate import digest
from looptrans.algebra.derivatives import SMOOTH, is_derivative
from looptrans.analysis.kept_flow import flow_of
from looptrans.cli.main import main
from looptrans.derivation import saved
from looptrans.derivation.backward import derive_backward
from looptrans.derivation.joined.flows import once_defined
from looptrans.derivation.joined.one_nest import one_nest
from looptrans.derivation.joined.sharing import alternatives, formed, one_launch, sharing
from looptrans.derivation.step import Derivation, NotDone
from looptrans.executor import execute
from looptrans.ir.listing import listing
from looptrans.ir.program import Assign, Atomic, Node, Program
from looptrans.ir.value import Binary, Call, Const, Real, Reduce, Value, walk_value
from looptrans.ir.walk import nodes, placed
from looptrans.reports.derivation import closing
from tests.analysis import SPECS, claims, program, spec
from tests.derivations import RENAMED, made_once
from tests.test_adjoint_listings import handed_over, made_inputs

FOLDER = SPECS[0].parent
NAIVE = str(FOLDER / "attention_naive.py")
Tree = Any

# Two nests that work out one sum, the other way around and under other names.
TWO = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"]):
    a = zeros(M)
    b = zeros(N)
    for i in range(0, M):
        for j in range(0, N):
            s = sum(Q[i, e] * K[j, e] for e in range(0, E))
            a[i] = a[i] + s * s
    for y in range(0, N):
        for x in range(0, M):
            t = sum(Q[x, u] * K[y, u] for u in range(0, E))
            b[y] = b[y] + exp(t)
    return a, b
"""


@cache
def derived(name: str, form: str = "kernels") -> Derivation:
    return derive_backward(spec(name), form=form)  # type: ignore[arg-type]


@cache
def document(form: str = "kernels") -> str:
    return saved.saved(derived("attention_naive", form))


def products(what: Program) -> int:
    """Count sums of products in the nests that work out sums.

    Those are the sums that are values, and what is gathered in a loop further inside than they are.
    """
    found = 0
    for number in range(len(what.body)):
        inside = [p for p in placed(what) if p.position[0] == number]
        deep = [len(p.loops) for p in inside for _ in sums(p.node)]
        found += len(deep)
        found += sum(len(p.loops) > min(deep) for p in inside if deep)
    return found


def sums(node: Node) -> list[Reduce]:
    values = node.values if isinstance(node, Assign) else ()
    return [part for v in values for part in walk_value(v) if isinstance(part, Reduce)]


# The steps


def test_every_step_is_proved_and_leads_to_the_backward_listing() -> None:
    found = derived("attention_naive")
    assert found.decision == "legal"
    assert [step.kind for step in found.steps] == [*["adjoint"] * 5, "hand over", "backward nest"]
    assert all(step.decision == "legal" for step in found.steps)
    before = found.program
    for step in found.steps:
        assert step.before == before
        before = step.after
    assert found.steps[-2].after.outputs == ("O", "lse")
    assert listing(found.last) == listing(backward(spec("attention_naive")).program)
    laws = [c.law for step in found.steps for c in step.certificates]
    assert any(law.startswith("sum(dP[i, j] * P[i, j]") for law in laws)
    kinds = {c.kind for step in found.steps for c in step.certificates}
    assert kinds == {"storage", "algebra", "rounding"}


def test_the_ways_to_run_it_are_facts_of_its_dependences() -> None:
    kernels, launch, atomics = derived("attention_naive").alternatives
    assert kernels.reason.startswith("dQ is carried by j; dK and dV are carried by i;")
    assert launch.decision == atomics.decision == "legal"
    assert "5 sums of products in place of 7" in atomics.reason
    other = derive_backward(RENAMED)
    assert other.alternatives[0].reason.startswith("da is carried by col; db and dw are carried")
    assert other.alternatives[2].decision == "legal"
    nothing = derived("layernorm").alternatives
    assert [each.decision for each in nothing] == ["legal", "illegal", "illegal"]


def test_a_recurrence_is_derived_by_its_closed_form() -> None:
    found = derived("flash_forward")
    assert found.decision == "legal"
    assert found.steps[0].name.startswith("closed form of j: m[i] = max_j(")
    assert [note.partition(" ")[0] for note in found.notes] == ["m", "l"]


def test_what_has_no_backward_pass_says_why() -> None:
    found = derived("stencil")
    assert (found.decision, found.steps) == ("unknown", ())
    assert "its first values are lost" in found.notes[0]
    assert saved.recheck(saved.saved(found)) == ()


# What certificates rest on


def test_derivatives_are_compared_with_those_of_sympy(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = Real("a"), Real("b")
    values: list[Value] = [Call(name, (a,)) for name in SMOOTH]
    values += [Binary("**", a, Const(n)) for n in (2.0, 3.0, 0.1, 1 / 3, -1.5)]
    every = [*values, *(Binary(op, a, b) for op in ("+", "-", "*", "/", "**"))]
    smooth, chosen, wrong = used_derivatives([*every, Call("max", (a, b))])
    assert (len(smooth), chosen, wrong) == (len(every), ("max",), ())
    monkeypatch.setattr(pulling, "LOG_2", Const(0.7))
    assert used_derivatives(every)[2] == ("exp2", "log2")
    exp = Call("exp", (a,))
    assert is_derivative(exp, "a", "g", Binary("*", exp, Real("g")))
    assert not is_derivative(exp, "a", "g", Binary("*", a, Real("g")))


def test_what_vanishes_is_written_out() -> None:
    found = derived("attention_naive")
    (step,) = (step for step in found.steps if step.name == "dm vanishes")
    assert "written out, and times the sums that are divided by" in step.certificates[0].reason


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("s = s + x[i]\n        y[i] = s", "S3 reads s while i still adds to it"),
        ("y[i] = s\n        s = x[i] * 2.0", "S2 reads what an earlier iteration of i left in s"),
        ("s = s * x[i] + 1.0", "S2 reads what an earlier iteration of i left in s"),
        ("s = s + x[i]\n        s = max(s, y[i])", "what an earlier iteration of i left in s"),
    ],
)
def test_what_is_not_defined_once_is_seen_in_the_flow(body: str, reason: str) -> None:
    text = f"    s = 0.0\n    y = zeros(N)\n    for i in range(0, N):\n        {body}\n"
    what = program(f'def f(x: Float[Array, "N"]):\n{text}    return s, y\n')
    found = once_defined(what, flow_of(what), "law")
    assert (found.verdict, reason in found.reason) == ("unknown", True), found.reason


def test_sums_that_are_complete_are_seen_in_the_flow() -> None:
    found = once_defined(spec("layernorm"), flow_of(spec("layernorm")), "law")
    assert found.verdict == "legal"
    assert found.reason.startswith("the exact flow, ")


# Forms


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("attention_naive", 7, 5),
        ("attention_gqa", 7, 5),
        ("attention_lengths", 7, 5),
        ("attention_bias", 9, 5),
    ],
)
def test_one_nest_with_atomic_updates_gives_the_same(name: str, before: int, after: int) -> None:
    found = backward(spec(name))
    steps = formed(found.program, "atomics")
    assert all(step.decision == "legal" for step in steps)
    merged = steps[-1].after
    assert (products(found.program), products(merged)) == (before, after)
    atomic = {
        target.array
        for node in nodes(merged.body)
        if isinstance(node, Atomic)
        for inner in nodes(node.body)
        if isinstance(inner, Assign)
        for target in inner.targets
    }
    assert "dQ" in atomic and not atomic & {"dK", "dV"}
    sizes, inputs = made_inputs(found.listing, 0)
    _, arguments = handed_over(found, sizes, inputs, 0)
    wanted = execute(found.program, sizes=sizes, inputs=arguments)
    for schedule in (None, 1):
        got = execute(merged, sizes=sizes, inputs=arguments, schedule=schedule)
        for key, value in wanted.items():
            np.testing.assert_allclose(got[key], value, rtol=1e-10, atol=1e-12)


def test_names_and_directions_of_loops_are_matched() -> None:
    what = program(TWO)
    steps = formed(what, "atomics")
    text = listing(steps[-1].after)
    assert text.count("sum(") == 1
    assert "with atomic():" in text
    # With the rows exchanged as well, i of the one is x of the other only crosswise.
    square = TWO.replace('"N E"', '"M E"').replace("N", "M")
    crossed = program(square.replace("Q[x, u] * K[y, u]", "Q[y, u] * K[x, u]"))
    for each, sizes in ((what, {"M": 3, "N": 4, "E": 2}), (crossed, {"M": 3, "E": 2})):
        made = steps[-1].after if each is what else formed(each, "atomics")[-1].after
        assert listing(made).count("sum(") == 1
        for name, value in execute(each, sizes=sizes).items():
            got = execute(made, sizes=sizes, schedule=3)[name]
            np.testing.assert_allclose(got, value, rtol=1e-12)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("for j in range(0, N)", "for j in range(1, N)", "the same iterations"),
        ("for x in range(0, M):", "for x in range(0, min(2, M)):", "the same iterations"),
        ("exp(t)", "exp(t) * a[x]", "needs a in order"),
        ("a[i] = a[i] + s * s", "a[i] = a[i] * s", "but add to it"),
        ("    a = zeros(M)", "    s = 1.0\n    a = zeros(M)", "for that iteration only"),
        ("exp(t)", "exp(t) * s", "needs s in order"),
        ("a[i] = a[i] + s * s", "a[0] = a[0] + a[i] + s", "but add to it"),
    ],
)
def test_nests_that_may_not_become_one_are_refused(old: str, new: str, reason: str) -> None:
    what = program(TWO.replace(old, new))
    (pair,) = sharing(what)
    with pytest.raises(NotDone, match=reason):
        one_nest(what, pair[0].label, pair[1].label)


def test_one_launch_needs_nests_that_leave_each_other_alone() -> None:
    (step,) = formed(backward(spec("attention_naive")).program, "launch")
    assert step.decision == "legal" and step.after == step.before
    needy = program(TWO.replace("exp(t)", "exp(t) * a[x]"))
    with pytest.raises(NotDone, match="needs a in order"):
        one_launch(needy, *(nest.label for nest in sharing(needy)[0]))


# Saved, and proved again


@pytest.mark.parametrize("form", ["launch", "atomics"])
def test_what_is_saved_is_proved_again(form: str) -> None:
    assert saved.recheck(document(form)) == ()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the same step of the same program be made and proved once only."""
    monkeypatch.setattr(saved, "made", made_once())
    monkeypatch.setattr(saved, "formed", cache(formed))
    monkeypatch.setattr(saved, "alternatives", cache(alternatives))
    monkeypatch.setattr(saved, "_program", cache(saved._program))


def with_digest(tree: Tree) -> str:
    rest = {name: value for name, value in tree.items() if name != "digest"}
    return json.dumps(rest | {"digest": digest(rest)})


@pytest.mark.usefixtures("quick")
def test_a_change_is_found_even_with_a_new_digest() -> None:
    whole = json.loads(document())
    changes: list[tuple[str, Any]] = [
        ("verdict", "unknown"),
        ("to", "fold"),
        ("form", "atomics"),
        ("of", []),
        ("gradients", {"Q": "dQ"}),
        ("incoming", {}),
        ("saved", ["O"]),
        ("alternatives", whole["alternatives"][:2]),
        ("listing", whole["listing"].replace("exp(", "exp2(")),
        ("steps", whole["steps"][:-1]),
        ("steps", whole["steps"][1:]),
        ("steps", [*whole["steps"], whole["steps"][-1]]),
    ]
    # A fact about the adjoints left out: nothing in the other steps changes.
    changes += [("steps", [*whole["steps"][:k], *whole["steps"][k + 1 :]]) for k in range(1, 6)]
    for number, step in [*enumerate(whole["steps"])][2:]:
        for name in ("name", "kind", "arguments", "verdict", "listing", "certificates", "after"):
            value = step[name]
            other = [*value[:-1], "x"] if isinstance(value, list) else f"{value}x"
            steps = [*whole["steps"]]
            steps[number] = step | {name: other}
            changes.append(("steps", steps))
    for name, value in changes:
        assert saved.recheck(with_digest(whole | {name: value})), name
    assert saved.recheck(with_digest(whole)) == ()


# The command


def test_the_command_prints_a_listing_whose_claims_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "backward.json"
    given = ["derive", NAIVE, "--to", "backward", "--of", "O", "--wrt", "K, Q"]
    assert main([*given, "-o", str(file)]) == 0
    text = capsys.readouterr().out
    body = text[text.index("def attention_naive_backward(") :]
    shown = body[: body.index("\n\n")] + "\n"
    assert "return dQ, dK\n" in shown and "# Aggregation over j" in shown
    facts = claims(shown)
    assert len(facts) > 30 and {fact.decision for fact in facts} == {"holds"}
    assert "* lse: handed over besides the outputs; P, P_2 read it" in text
    assert "* kernels (as here), allowed: dQ is carried by j" in text
    assert main(["recheck", str(file)]) == 0
    assert "each made again" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--of", "S"], 2, "S is no output of attention_naive; name O"),
        (["--wrt", "x"], 2, "x is no argument of attention_naive with a gradient; name Q, K, V"),
        (["--of", ","], 2, "is no list of names"),
        (["--form", "both"], 2, "invalid choice"),
        (["--to", "forward", "--of", "O"], 2, "add --to backward"),
    ],
)
def test_mistakes_in_the_arguments_are_said(
    arguments: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["derive", NAIVE, "--to", "backward", *arguments]) == status
    assert said in capsys.readouterr().err


def test_the_exit_status_says_what_was_not_done(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["derive", str(FOLDER / "stencil.py"), "--to", "backward"]) == 3
    assert "its first values are lost" in capsys.readouterr().out
    norm = str(FOLDER / "rmsnorm.py")
    assert main(["derive", norm, "--to", "backward", "--form", "atomics", "--format", "md"]) == 1
    page = capsys.readouterr().out
    assert "no sum is worked out in two nests" in page and "```python\ndef rmsnorm_backward" in page


def test_the_last_line_names_what_is_not_shown() -> None:
    found = derive_backward(spec("matmul"))
    step = found.steps[0]
    unsure = replace(step, shown=(replace(step.shown[0], verdict="unknown"),))
    line = closing(replace(found, steps=(unsure, *found.steps[1:]), decision="unknown"))
    assert line == f"unknown: derived, but not shown in full: {step.name}"


def test_states_that_are_kept_are_named_where_no_step_leads_to_them() -> None:
    text = """
def gated(x: Float[Array, "T"]):
    y = zeros(T)
    state = 0.0
    for t in range(T):
        state = tanh(state + x[t])
        y[t] = state
    return y
"""
    found = derive_backward(program(text))
    assert found.decision == "unknown"
    (note,) = found.notes
    assert note.startswith("The forward pass is another listing, which keeps state_kept, and no ")
    assert "--pass backward" in note
