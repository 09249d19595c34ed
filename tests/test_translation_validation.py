"""What the checker calls legal computes the same, and what it calls illegal goes wrong.

Every transformation is tried on hundreds of random nests, after up to two other random steps, until
it was found legal and illegal often enough. A legal step is executed before and after, parallel
loops in five shuffled orders; the witness of an illegal one is replayed.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from looptrans.executor import ExecutionError, Inputs, RaceLog, execute_on, prepare
from looptrans.frontend import parse
from looptrans.ir.diagnostic import ListingError, Mistake
from looptrans.ir.listing import listing
from looptrans.ir.program import Program
from looptrans.ir.source import Source
from looptrans.ir.step import Step
from looptrans.ir.walk import nodes, placed
from looptrans.transforms.catalogue import ENTRIES, Entry, function_of
from looptrans.transforms.editing.tree import LoopPath, loop_name, loop_paths
from tests.families import listings
from tests.oracle.compare import weight
from tests.oracle.nests import Nest, nests
from tests.replay import replay

NAMES = [entry.name for entry in ENTRIES]
# The same instances in the same order; turns keep whatever order matters.
ALWAYS_LEGAL = {"skew", "strip_mine", "ordered_atomics"}
# What most nests give no occasion for is tried on more of those that do.
OCCASIONS = {
    "distribute": ("passes", "chain"),
    "expand": ("carried",),
    "fuse": ("passes",),
    "hoist": ("invariant",),
    "interchange": ("chain", "temporaries"),
    "permute": ("chain", "temporaries"),
    "privatize": ("carried",),
    "promote": ("aliased", "element"),
    "split": ("reduction",),
    "tile": ("chain", "temporaries"),
}
ENOUGH = 20 if "LOOPTRANS_TEST_ALL" in os.environ else 5
MOST = 300
HEAVIEST = 12
SHUFFLES = range(5)


def loops_in(program: Program, path: LoopPath) -> list[LoopPath]:
    return [p for p in loop_paths(program) if p.position[: len(path.position)] == path.position]


def arguments(entry: Entry, program: Program, random: Random) -> Iterator[list[Any]]:
    """Yields arguments that may fit, in random order."""
    paths = list(loop_paths(program))
    chains = [
        chain
        for path in paths
        for chain in [loops_in(program, path)]
        if all(a.position == b.position[:-1] for a, b in pairwise(chain))
    ]
    random.shuffle(chains)
    named = {path.position: loop_name(program, path.position) for path in paths}
    labels = [place.label for place in placed(program) if place.label[0] == "S"]
    arrays = [array.name for array in program.arrays]
    choices: list[list[Any]] = []
    for path in random.sample(paths, len(paths)):
        own = named[path.position]
        inner = [named[p.position] for p in loops_in(program, path)[1:]]
        siblings = [
            named[p.position]
            for p in paths
            if p.position[:-1] == path.position[:-1] and p.position > path.position
        ]
        chain = [named[p.position] for c in chains if c[0] == path for p in c]
        match entry.name:
            case "interchange":
                choices += [[own, other] for other in inner[:1]]
            case "permute" if len(chain) > 1:
                choices += [random.sample(chain, len(chain))]
            case "skew":
                choices += [[other, own, random.choice((-2, -1, 1, 2))] for other in inner[:1]]
            case "strip_mine":
                choices += [[own, random.choice((1, 2, 3))]]
            case "tile" if len(chain) > 1:
                choices += [[*chain[:2], random.choice((1, 2, 3)), random.choice((2, 3))]]
            case "distribute":
                choices += [[own], *([own, label] for label in labels)]
            case "fuse":
                choices += [[own, other] for other in siblings[:1]]
            case "hoist":
                choices += [[label, own] for label in labels]
            case "privatize":
                choices += [[own], *([own, array] for array in arrays)]
            case "expand":
                choices += [[array, own] for array in arrays]
            case "promote":
                choices += [[array, own] for array in arrays]
            case "split":
                more = [] if random.randrange(2) else [random.choice(("+", "*", "max", "min"))]
                choices += [[own, random.choice((1, 2, 3)), *more]]
            case "phased_atomics" | "block_reduce":
                choices += [[own], *([[own, *siblings[:2]]] if siblings else [])]
            case _:
                choices += [[own]] if len(entry.slots) == 1 else []
    random.shuffle(choices)
    yield from choices[:8]


def tried(entry: Entry, program: Program, random: Random) -> Step | None:
    """The first step that can be made; None where there is none."""
    for chosen in arguments(entry, program, random):
        try:
            return function_of(entry.name)(program, *chosen)
        except Mistake:
            continue
    return None


def runs(program: Program, sizes: list[dict[str, int]]) -> Iterator[Inputs]:
    for number, chosen in enumerate(sizes):
        try:
            yield prepare(program, chosen, seed=number)
        except ExecutionError:
            continue


def agree(one: Any, other: Any, *, exact: bool) -> bool:
    if exact:
        return bool(np.array_equal(one, other, equal_nan=True))
    return bool(np.allclose(one, other, rtol=1e-9, atol=1e-12, equal_nan=True))


def is_exact(step: Step) -> bool:
    return all(c.kind != "rounding" for c in step.verdict.certificates)


def check_legal(step: Step, sizes: list[dict[str, int]], *, exact: bool) -> None:
    text = listing(step.after)
    assert listing(parse(Source("<after>", text), None)) == text
    parallel = any(getattr(n, "execution", "") == "parallel" for n in nodes(step.after.body))
    for inputs in runs(step.before, sizes):
        try:
            expected = execute_on(step.before, inputs)
        except ExecutionError:
            continue
        for schedule in (None, *(SHUFFLES if parallel else ())):
            races = RaceLog()
            actual = execute_on(step.after, inputs, schedule=schedule, races=races)
            assert not races.races, (step.name, races.races)
            assert list(actual) == list(expected)
            for name in expected:
                assert agree(expected[name], actual[name], exact=exact), (step.name, name, text)


class Enough(BaseException):
    """Was tried often enough; no `Exception`, which hypothesis would take for a failure."""


@dataclass
class Tally:
    counts: Counter[str] = field(default_factory=Counter)
    nests: int = 0

    def is_full(self, name: str) -> bool:
        wanted = ("legal",) if name in ALWAYS_LEGAL else ("legal", "illegal")
        return all(self.counts[decision] >= ENOUGH for decision in wanted)


def sizes_of(program: Program, first: dict[str, int]) -> list[dict[str, int]]:
    names = [p.name for p in program.parameters if p.is_integer]
    small = [
        dict.fromkeys(names, 1),
        dict.fromkeys(names, 3),
        {n: 2 + k for k, n in enumerate(names)},
    ]
    return [first, *small, dict.fromkeys(names, 0)]


def validate(name: str, text: str, first: dict[str, int], random: Random, tally: Tally) -> None:
    try:
        program = parse(Source("<nest>", text), None)
    except ListingError:
        return
    sizes = sizes_of(program, first)
    exact = True
    wanted = next(entry for entry in ENTRIES if entry.name == name)
    for entry in (*random.sample(ENTRIES, random.choice((0, 0, 0, 1, 2))), wanted):
        step = tried(entry, program, random)
        if step is None:
            continue
        tally.nests += 1
        decision = step.verdict.decision
        assert decision != "unknown", (step.name, text, step.verdict.reason, listing(step.before))
        if entry.name == name:
            tally.counts[decision] += 1
        if decision == "legal":
            exact = exact and is_exact(step)  # what was once reassociated stays so
            check_legal(step, sizes, exact=exact)
            program = step.after
        else:
            replay(step)


@pytest.mark.parametrize("name", NAMES)
def test_legal_means_the_same_and_illegal_goes_wrong(name: str) -> None:
    tally = Tally()
    strategy = st.one_of(nests(), listings(), listings(*OCCASIONS.get(name, ())))

    @seed(NAMES.index(name))
    @settings(
        max_examples=MOST,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy, st.integers(0, 1 << 32))
    def property_(nest: Nest | str, number: int) -> None:
        random = Random(number)  # what is tried follows from what was drawn, and draws no more
        if isinstance(nest, str):
            validate(name, nest, {}, random, tally)
        elif not nest.features & {"let"} and weight(nest.source) <= HEAVIEST:
            validate(name, nest.source, nest.sizes, random, tally)
        if tally.is_full(name):
            raise Enough

    with contextlib.suppress(Enough):
        property_()
    assert tally.is_full(name), tally
