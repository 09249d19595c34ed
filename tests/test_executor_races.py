"""Races of random parallel programs, against the order of their instances as a graph."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from looptrans.executor import AccessLog, RaceLog, execute_on, prepare
from looptrans.executor.errors import ExecutionError
from looptrans.executor.inputs import Inputs
from looptrans.frontend import parse
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.listing import listing
from looptrans.ir.program import BlockReduce, Program
from looptrans.ir.source import Source
from looptrans.ir.walk import is_parallel, nodes
from tests.oracle.concurrency import Concurrency, Conflicts, example_is_among
from tests.oracle.nests import Nest, nests
from tests.oracle.nests import made as made_nest
from tests.parallelizer import Parallelizer
from tests.test_executor import assert_same_bits

SCHEDULES = range(5)


def made_parallel(nest: Nest, random: Random) -> tuple[Program, Inputs] | None:
    """The nest with parallel loops, or None where it gets none or is no listing then."""
    try:
        program = parse(Source("t.py", nest.source))
        program = parse(Source("t.py", listing(Parallelizer(random, program).result())))
        inputs = prepare(program, nest.sizes, nest.arrays)
    except (ListingError, ExecutionError):
        return None
    return (program, inputs) if is_parallel(program) else None


def check(program: Program, inputs: Inputs) -> str:
    """Compare the races with the oracle's, and executions without any with one another.

    Returns:
        What the program turned out to be.
    """
    log, races = AccessLog(), RaceLog()
    try:
        expected = execute_on(program, inputs, log=log, races=races)
    except ExecutionError:  # a private name that an iteration does not set
        return "fails"
    order = Concurrency(program, log.entries)
    compare_races(races, order.races(), order)
    free = not races.races and not order.meetings()
    reassociates = any(isinstance(node, BlockReduce) for node in nodes(program.body))
    differs = False
    for schedule in SCHEDULES:
        shuffled, found = AccessLog(), RaceLog()
        try:
            outputs = execute_on(program, inputs, log=shuffled, schedule=schedule, races=found)
        except ExecutionError:
            assert races.races or order.meetings()
            continue
        if free:
            assert Counter(shuffled.entries) == Counter(log.entries)
            if not reassociates:
                assert_same_bits(outputs, expected)
        if Counter(shuffled.entries) == Counter(log.entries):
            assert found.races == races.races
        for name, values in expected.items():
            close = np.allclose(outputs[name], values, rtol=1e-9, atol=1e-9, equal_nan=True)
            assert close or not free
            differs |= not close
    return "free" if free else "differs" if differs else "racy" if races.races else "atomic"


def compare_races(races: RaceLog, expected: Conflicts, order: Concurrency) -> None:
    found = {}
    for race in races.races:
        labels = (race.first.label, race.second.label)
        pair = sorted(labels, key=lambda label: order.places[label].position)
        found[pair[0], pair[1], race.array] = race
    assert len(found) == len(races.races)
    assert set(found) == set(expected)
    for key, race in found.items():
        touches = [
            (touch.label, tuple(value for _, value in touch.iteration), touch.is_write)
            for touch in (race.first, race.second)
        ]
        assert example_is_among(expected[key], touches)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(nests(data_guards=True, opaque=True), st.randoms(use_true_random=False))
def test_races_of_generated_programs(nest: Nest, random: Random) -> None:
    made = made_parallel(nest, random)
    if made is not None:
        check(*made)


def test_there_are_programs_of_every_kind() -> None:
    found: Counter[str] = Counter()
    for seed in range(100):
        random = Random(seed)
        made = made_parallel(made_nest(random, data_guards=True, opaque=True), random)
        if made is not None:
            found[check(*made)] += 1
    assert found["free"] >= 20
    assert found["differs"] >= 25
    assert found["racy"] >= 10


@pytest.mark.parametrize("schedule", [None, 0, 1, 2])
def test_race_logs_of_several_runs_are_joined(schedule: int | None) -> None:
    text = 'def f(a: Float[Array, "N"]):\n    for i in parallel({}, N):\n        a[0] = a[i]\n'
    program = parse(Source("t.py", text.format(0)))
    log = RaceLog()
    for size in (4, 2, 3):
        inputs = prepare(program, {"N": size})
        execute_on(program, inputs, schedule=schedule, races=log)
    (race,) = log.races
    assert (race.first.iteration, race.second.iteration) == ((("i", 0),), (("i", 1),))
    assert race.first.is_write
    assert race.second.is_write
