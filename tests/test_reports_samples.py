"""Sample facts for the report tests, by brute force over small sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from looptrans.ir.facts import (
    Basis,
    ClaimFact,
    Component,
    ComponentReport,
    Dependence,
    DependenceKind,
    DependenceReport,
    Direction,
    LoopFacts,
    LoopVerdict,
    StatementFact,
)
from looptrans.ir.verdict import Witness

Cell = tuple[str, tuple[int, ...]]
Touch = tuple[int, tuple[int, ...]]
SIZES = {"i": ("M", 2), "j": ("N", 3), "d": ("D", 2)}


@dataclass(frozen=True)
class Line:
    label: str
    text: str
    line: int
    loops: tuple[str, ...]
    reads: tuple[str, ...]
    write: str
    position: tuple[int, ...]


def _flash_lines() -> tuple[Line, ...]:
    i, j, d = ("i",), ("i", "j"), ("i", "j", "d")
    rows: list[tuple[str, str, tuple[str, ...], str, str]] = [
        ("S1", "q_i = Q[i]", i, "", "q_i"),
        ("S2", "k_j = K[j]", j, "", "k_j"),
        ("S3", "m_i = m[i]", j, "m:i", "m_i"),
        ("S4", "l_i = l[i]", j, "l:i", "l_i"),
        ("S5", "S_ij = q_i @ k_j", j, "q_i k_j", "S_ij"),
        ("S6", "m_ij = max(m_i, S_ij)", j, "m_i S_ij", "m_ij"),
        (
            "S7",
            "l_ij = l_i * exp(m_i - m_ij) + exp(S_ij - m_ij)",
            j,
            "l_i m_i m_ij S_ij",
            "l_ij",
        ),
        ("S8", "o_id = O[i, d]", d, "O:i,d", "o_id"),
        ("S9", "v_jd = V[j, d]", d, "", "v_jd"),
        (
            "S10",
            "o_ijd = o_id * l_i * exp(m_i - m_ij) / l_ij + exp(S_ij - m_ij) * v_jd / l_ij",
            d,
            "o_id l_i m_i m_ij l_ij S_ij v_jd",
            "o_ijd",
        ),
        ("S11", "O[i, d] = o_ijd", d, "o_ijd", "O:i,d"),
        ("S12", "m[i] = m_ij", j, "m_ij", "m:i"),
        ("S13", "l[i] = l_ij", j, "l_ij", "l:i"),
    ]
    places = {"S1": (0, 0), "S12": (0, 1, 7), "S13": (0, 1, 8)}
    found = []
    for number, (label, text, loops, reads, write) in enumerate(rows):
        place = places.get(label, (0, 1, number - 1) if number < 7 else (0, 1, 6, number - 7))
        found.append(Line(label, text, number + 1, loops, tuple(reads.split()), write, place))
    return tuple(found)


def _cell(name: str, values: dict[str, int]) -> Cell:
    array, _, subscripts = name.partition(":")
    return array, tuple(values[each] for each in subscripts.split(",") if each)


def _run(lines: Sequence[Line]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Instances in execution order: positions and loop values alternate."""
    keys = []
    for number, line in enumerate(lines):
        for values in product(*(range(SIZES[loop][1]) for loop in line.loops)):
            key: list[int] = []
            for place in range(len(line.position)):
                key.append(line.position[place])
                if place < len(values):
                    key.append(values[place])
            keys.append((key, number, values))
    for _, number, values in sorted(keys):
        yield number, values


def brute_force(lines: Sequence[Line], at: bool = False) -> tuple[Dependence, ...]:
    """Value flow, and memory anti and output dependences, in pieces of one direction vector."""
    touched: dict[Cell, list[tuple[bool, Touch]]] = {}
    pairs: dict[tuple[Basis, DependenceKind, str, int, int], list[tuple[Touch, Touch]]] = {}
    for number, values in _run(lines):
        named = dict(zip(lines[number].loops, values, strict=True))
        for read in dict.fromkeys(lines[number].reads):
            cell = _cell(read, named)
            history = touched.setdefault(cell, [])
            writes = [touch for is_write, touch in history if is_write]
            if writes:
                here = (number, values)
                key = ("value", "flow", cell[0], writes[-1][0], number)
                pairs.setdefault(key, []).append((writes[-1], here))  # type: ignore[arg-type]
            history.append((False, (number, values)))
        cell = _cell(lines[number].write, named)
        history = touched.setdefault(cell, [])
        for is_write, touch in history:
            kind: DependenceKind = "output" if is_write else "anti"
            if touch != (number, values):
                pairs.setdefault(("memory", kind, cell[0], touch[0], number), []).append(
                    (touch, (number, values))
                )
        history.append((True, (number, values)))
    found = []
    for (basis, kind, array, source, sink), together in pairs.items():
        common = tuple(loop for loop in lines[source].loops if loop in lines[sink].loops)
        pieces: dict[tuple[Direction, ...], list[tuple[Touch, Touch]]] = {}
        for one, two in together:
            difference = [b - a for a, b in zip(one[1], two[1], strict=False)][: len(common)]
            signs: tuple[Direction, ...] = tuple(
                "<" if delta > 0 else ">" if delta < 0 else "=" for delta in difference
            )
            pieces.setdefault(signs, []).append((one, two))
        for signs, some in pieces.items():
            deltas = [{b[1][k] - a[1][k] for a, b in some} for k in range(len(common))]
            distance = tuple(str(min(each)) if len(each) == 1 else "*" for each in deltas)
            carried = next((k for k, sign in enumerate(signs) if sign != "="), None)
            one, two = min(some)
            sizes = {
                loop: max(
                    [
                        v
                        for t in (one, two)
                        for name, v in zip(lines[t[0]].loops, t[1], strict=True)
                        if name == loop
                    ]
                )
                + 1
                for loop in dict.fromkeys(lines[source].loops + lines[sink].loops)
            }
            witness = Witness(
                "order",
                tuple((SIZES[loop][0], size) for loop, size in sizes.items()),
                tuple(zip(lines[source].loops, one[1], strict=True)),
                tuple(zip(lines[sink].loops, two[1], strict=True)),
            )
            found.append(
                Dependence(
                    kind,
                    basis,
                    False,
                    lines[source].label,
                    lines[sink].label,
                    array,
                    common,
                    distance,
                    signs,
                    None if carried is None else common[carried],
                    None if carried is None else {"i": 13, "j": 15, "d": 23}[common[carried]],
                    witness,
                    "{ [i, j] : 0 < j < N }" if "*" in distance else None,
                    tuple(sorted((a[1], b[1]) for a, b in some)) if at else None,
                )
            )
    places = {line.label: place for place, line in enumerate(lines)}
    found.sort(
        key=lambda d: (places[d.source], places[d.sink], d.array, d.kind, d.basis, d.direction)
    )
    return tuple(found)


def flash_report(kinds: Sequence[str] = ("flow",), at: bool = False) -> DependenceReport:
    """The facts of specs/flash_forward.py."""
    lines = _flash_lines()
    statements = tuple(StatementFact(x.label, x.text, x.line + 11, x.loops) for x in lines)
    dependences = tuple(d for d in brute_force(lines, at) if d.kind in kinds)
    return DependenceReport("flash_forward", ("M", "N", "D"), statements, dependences)


def flash_points() -> dict[str, list[tuple[int, ...]]]:
    """The iterations of each statement at M=2, N=3, D=2."""
    lines = _flash_lines()
    found: dict[str, list[tuple[int, ...]]] = {line.label: [] for line in lines}
    for number, values in _run(lines):
        found[lines[number].label].append(values)
    return found


FLASH_COMPONENTS = ComponentReport(
    "flow",
    (
        Component(("S1",), ()),
        Component(("S2",), ()),
        Component(("S5",), ()),
        Component(("S3", "S6", "S12"), ("j",)),
        Component(("S4", "S7", "S13"), ("j",)),
        Component(("S9",), ()),
        Component(("S8", "S10", "S11"), ("j",)),
    ),
)

FLASH_ALL = ComponentReport(
    "all", (Component(tuple(f"S{number}" for number in range(1, 14)), ("i", "j", "d")),)
)

TEMPORARIES = ("q_i", "k_j", "m_i", "l_i", "S_ij", "m_ij", "l_ij", "o_id", "v_jd", "o_ijd")
CARRIED = Witness("order", (("M", 1), ("N", 2)), (("i", 0), ("j", 0)), (("i", 0), ("j", 1)))

FLASH_LOOPS = (
    LoopFacts("i", 13, LoopVerdict("parallel"), LoopVerdict("privatize", TEMPORARIES)),
    LoopFacts(
        "j",
        15,
        LoopVerdict(
            "sequential",
            witness=CARRIED,
            because="S12 → S3  flow  m  (=,<) distance (0,1)  carried by j",
        ),
        LoopVerdict("reduction", TEMPORARIES[1:], ("max", "+"), ("m", "l"), CARRIED),
    ),
    LoopFacts(
        "d",
        23,
        LoopVerdict("parallel", assumptions=("H == G * R",)),
        LoopVerdict("unknown", reason="the budget of 30 s ran out"),
    ),
)

FLASH_CLAIMS = (
    ClaimFact("S1", 14, "SLoop: i", "holds", "S1 reads Q[i], which names i."),
    ClaimFact("S1", 14, "no self dependency", "holds", "S1 does not depend on itself."),
    ClaimFact(
        "S12",
        29,
        "no self dependency",
        "refuted",
        "S12 writes m[i] in every iteration of j.",
        CARRIED,
    ),
    ClaimFact("S13", 30, "aggregation over j", "unknown", "The budget ran out."),
)

STENCIL = DependenceReport(
    "stencil",
    ("N",),
    (StatementFact("S1", "A[i, j] = A[i - 1, j + 1]", 12, ("i", "j")),),
    (
        Dependence(
            "flow",
            "value",
            False,
            "S1",
            "S1",
            "A",
            ("i", "j"),
            ("1", "-1"),
            ("<", ">"),
            "i",
            10,
            Witness("order", (("N", 4),), (("i", 1), ("j", 2)), (("i", 2), ("j", 1))),
            instances=(((1, 2), (2, 1)),),
        ),
    ),
)
STENCIL_COMPONENTS = ComponentReport("flow", (Component(("S1",), ("i",)),))

HOSTILE_TEXT = 'a["x"] = b <c> & d | e \\ f\n#quot; `g` ]]> -->\x1b[31m \x00 \\N <br/> %% é 漢'
HOSTILE = DependenceReport(
    'bad"<name>&|',
    ("P" * 80,),
    (
        StatementFact("S1", HOSTILE_TEXT, 1, ("i",)),
        StatementFact("end", "x" * 300, 2, ("i",)),
        StatementFact('G"1', "if a < b:", 3, ("i",)),
    ),
    (
        Dependence(
            "flow",
            "value",
            True,
            "S1",
            "end",
            'arr<"&|\\>' * 12,
            ("i",),
            ("*",),
            ("<",),
            "i",
            1,
            Witness("order", (("P" * 80, 1),), (("i", 0),), (("i", 1),), (("n[0]", 1),)),
            "{ [x] : " + "x > 0 and " * 30 + "}",
        ),
        Dependence("anti", "memory", False, "end", 'G"1', "a", (), (), (), None, None, None),
        Dependence(
            "output", "memory", False, 'G"1', 'G"1', "a", ("i",), ("1",), ("<",), "i", 1, None
        ),
    ),
    assumptions=("all(cu[b] <= cu[b + 1] for b in range(B))",),
    unknown="the budget of 30 s ran out",
    warnings=("line 3: the subscript i - 1 of a is negative at i=0",),
)
HOSTILE_COMPONENTS = ComponentReport(
    "flow", (Component(("S1",), ()), Component(("end", 'G"1'), ()))
)


def test_the_flash_sample_has_the_known_flow() -> None:
    carried = [d for d in flash_report().dependences if d.carried_by == "j"]
    assert {(d.source, d.sink, d.direction) for d in carried} == {
        ("S12", "S3", ("=", "<")),
        ("S13", "S4", ("=", "<")),
        ("S11", "S8", ("=", "<", "=")),
    }
