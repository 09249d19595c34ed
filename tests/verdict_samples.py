"""Steps with verdicts made by hand, for what is said about them."""

from __future__ import annotations

from pathlib import Path

from looptrans.frontend import parse
from looptrans.ir.facts import Dependence, DependenceKind, Direction
from looptrans.ir.program import Program
from looptrans.ir.source import Source
from looptrans.ir.step import Step
from looptrans.ir.verdict import Assignment, Certificate, Seen, Verdict, Witness


def spec(name: str) -> Program:
    """A listing under the name it has from the repository's root, wherever the tests run."""
    path = Path(__file__).parent.parent / "specs" / f"{name}.py"
    return parse(Source(f"specs/{name}.py", path.read_text(encoding="utf-8")))


def text(listing: str, name: str = "nest.py") -> Program:
    return parse(Source(name, listing))


def step(name: str, program: Program, verdict: Verdict) -> Step:
    return Step(name, program, program, verdict, {})


def dependence(
    kind: DependenceKind,
    source: str,
    sink: str,
    array: str,
    loops: tuple[str, ...],
    distance: tuple[str, ...],
    direction: tuple[Direction, ...],
    carried: tuple[str, int] | None,
) -> Dependence:
    by, line = (None, None) if carried is None else carried
    return Dependence(
        kind, "value", False, source, sink, array, loops, distance, direction, by, line, None
    )


def at(**values: int) -> Assignment:
    return tuple(values.items())


STENCIL = spec("stencil")
FLASH = spec("flash_forward")

FORWARD = Certificate("order", "every dependence still runs forward", "legal", "isl")
SAME_VALUES = Certificate("storage", "every read gets the value it got before", "legal", "isl")
ROUNDED = Certificate(
    "rounding",
    "the sum is reassociated: equal over the reals, not bit for bit in floating point",
    "legal",
    assumptions=("assert N >= 1",),
)

SKEWED = step("skew(j, i, 1)", STENCIL, Verdict("legal", certificates=(FORWARD,)))
INTERCHANGED = step("interchange(i, j)", STENCIL, Verdict("legal", certificates=(FORWARD,)))

REVERSED = step(
    "interchange(i, j)",
    STENCIL,
    Verdict(
        "illegal",
        Witness("order", at(N=4), at(i=1, j=2), at(i=2, j=1)),
        source="S1",
        sink="S1",
        array="A",
        cell=(1, 2),
        dependence=dependence(
            "flow", "S1", "S1", "A", ("i", "j"), ("1", "-1"), ("<", ">"), ("i", 10)
        ),
        help="skew j by i first, or distribute the statements",
    ),
)

STALE = step(
    "hoist(S3, j)",
    FLASH,
    Verdict(
        "illegal",
        Witness("storage", at(M=1, N=2), at(i=0, j=0), at(i=0, j=1)),
        source="S12",
        sink="S3",
        array="m",
        cell=(0,),
        dependence=dependence(
            "flow", "S12", "S3", "m", ("i", "j"), ("0", "1"), ("=", "<"), ("j", 16)
        ),
        now=Seen(None),
        help="keep m[i] in a local with promote(m, j)",
    ),
)

SUM = text("def total(a, s):\n    for i in range(N):\n        s[0] = s[0] + a[i]\n")
RACED = step(
    "parallelize(i)",
    SUM,
    Verdict(
        "illegal",
        Witness("race", at(N=2), at(i=0), at(i=1)),
        source="S1",
        sink="S1",
        array="s",
        cell=(0,),
        dependence=dependence("flow", "S1", "S1", "s", ("i",), ("1",), ("<",), ("i", 2)),
        help="split(i, 64, +), or put the update into `with atomic():`",
    ),
)

GATHER = text(
    'def scatter(p: Int[Array, "N"], x, y):\n'
    "    assert all(p[i] >= 0 for i in range(N))\n"
    "    for i in range(N):\n"
    "        for j in range(N):\n"
    "            y[p[i]] = y[p[i]] + x[i, j]\n"
)
UNDECIDED = step(
    "interchange(i, j)",
    GATHER,
    Verdict(
        "unknown",
        reason="the budget of 30 s ran out",
        assumptions=("assert all(p[i] >= 0 for i in range(N))",),
    ),
)

ROUNDING = step(
    "split(j, 64, +)", GATHER, Verdict("legal", certificates=(FORWARD, SAME_VALUES, ROUNDED))
)

SHIFT = text(
    "def shift(x, y):\n    for i in range(1, N):\n"
    "        y[i] = x[i] + x[i - 1]\n        x[i - 1] = y[i - 1] * 2.0\n        y[0] += x[i]\n"
)
OVERWRITTEN = step(
    "reverse(i)",
    SHIFT,
    Verdict(
        "illegal",
        Witness("order", at(N=3), at(i=1), at(i=2)),
        source="S1",
        sink="S2",
        array="x",
        cell=(1,),
        dependence=dependence("anti", "S1", "S2", "x", ("i",), ("1",), ("<",), ("i", 2)),
    ),
)
LAST_WRITE = step(
    "reverse(i)",
    SHIFT,
    Verdict(
        "illegal",
        Witness("order", at(N=3), at(i=1), at(i=2)),
        source="S3",
        sink="S3",
        array="y",
        cell=(0,),
        dependence=dependence("output", "S3", "S3", "y", ("i",), ("1",), ("<",), ("i", 2)),
    ),
)
LEFT_BEHIND = step(
    "promote(y, i)",
    SHIFT,
    Verdict(
        "illegal",
        Witness("storage", at(N=2), at(i=1), ()),
        source="S1",
        array="y",
        cell=(1,),
        now=Seen(None),
    ),
)
UNEQUAL = step(
    "split(i, 4, max)",
    SHIFT,
    Verdict(
        "illegal",
        Witness("numbers", at(N=2), (), (), (("x[0]", 1), ("x[1]", -1))),
        reason="max(a, b) + c is not max(a + c, b + c) + c",
    ),
)
LOST = step("fuse(i, j)", SHIFT, Verdict("illegal", reason="S2 is in no loop afterwards"))
