"""Short ways for tests to ask the analysis about a listing."""

from __future__ import annotations

from pathlib import Path

from looptrans.analysis import api
from looptrans.frontend import load, parse
from looptrans.ir.facts import ClaimFact, Dependence, DependenceReport, LoopFacts, LoopVerdict
from looptrans.ir.program import Program
from looptrans.ir.source import Source

SPECS = sorted((Path(__file__).parent.parent / "specs").glob("*.py"))
# Variants of attention have tests of their own: what is asked of every listing is asked of these.
_VARIANTS = (
    "alibi bshd differential document dropout dropout_mask mqa paged prefix qkv ragged relative "
    "retention sigmoid sinks softcap streaming window window_left"
)
BASIC = [path for path in SPECS if path.stem.removeprefix("attention_") not in _VARIANTS.split()]
BUDGET = 60.0


def program(text: str) -> Program:
    return parse(Source("t.py", text))


def spec(name: str) -> Program:
    return load(str(SPECS[0].parent / f"{name}.py"))


def report(what: str | Program) -> DependenceReport:
    given = program(what) if isinstance(what, str) else what
    found = api.dependences(given, budget=BUDGET)
    assert found.unknown is None
    return found


def line(dependence: Dependence, *, example: bool = False) -> str:
    """`flow/value S1 -> S1 A (<) (1) i`, with `may` in front where it is."""
    d = dependence
    by = d.carried_by or "-"
    text = f"{d.kind}/{d.basis} {d.source} -> {d.sink} {d.array}"
    text = f"{text} ({','.join(d.direction)}) ({','.join(d.distance)}) {by}"
    if example and d.witness is not None:
        w = d.witness
        sizes = " ".join(f"{name}={value}" for name, value in w.parameters)
        ends = [",".join(str(v) for _, v in end) for end in (w.source, w.sink)]
        text = f"{text} | {sizes}: ({ends[0]}) -> ({ends[1]})"
    return ("may " if d.may else "") + text


def lines(what: str | Program, start: str = "", *, example: bool = False) -> list[str]:
    found = [line(d, example=example) for d in report(what).dependences]
    return [text for text in found if text.removeprefix("may ").startswith(start)]


def verdicts(what: str | Program) -> dict[str, LoopFacts]:
    given = program(what) if isinstance(what, str) else what
    facts = api.loop_facts(given, budget=BUDGET)
    return {
        fact.loop
        if [f.loop for f in facts].count(fact.loop) == 1
        else f"{fact.loop}@{fact.line}": fact
        for fact in facts
    }


def say(verdict: LoopVerdict) -> str:
    """`reduction + s, max t private q`."""
    words: list[str] = [verdict.decision]
    if verdict.operators:
        words.append(f"{' '.join(verdict.operators)} into {' '.join(verdict.reduced)}")
    if verdict.names:
        words.append(f"private {' '.join(verdict.names)}")
    return "; ".join(words)


def claims(what: str | Program) -> tuple[ClaimFact, ...]:
    return api.claims(program(what) if isinstance(what, str) else what, budget=BUDGET)
