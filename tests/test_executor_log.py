"""The record of accesses, against what the statements state and cell by cell."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings

from looptrans.executor import AccessLog, Entry, execute
from looptrans.ir.walk import accesses, placed
from tests.oracle.nests import Nest, nests
from tests.test_executor import assert_same_bits, nest_program, program_of


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(nest=nests())
def test_the_log_has_the_accesses_that_the_statements_state(nest: Nest) -> None:
    program = nest_program(nest)
    log = AccessLog()
    plain = execute(program, sizes=nest.sizes, inputs=nest.arrays)
    logged = execute(program, sizes=nest.sizes, inputs=nest.arrays, log=log)
    assert_same_bits(logged, plain)
    stated = {
        (place.label, relation.access.array, relation.is_write)
        for place in placed(program)
        for relation in accesses(place.node)
    }
    assert {(e.label, e.array, e.is_write) for e in log.entries} <= stated
    counted = sum(counts.reads + counts.writes for counts in log.counts.values())
    assert counted == len(log.entries)


LOGGED = """
def f(A: Float[Array, "M N"], x: Float[Array, "M"]):
    for i in range(M):
        r = A[i]                # S1: a row
        if x[i] > 0.0:
            x[i] = r @ A[i]     # S2: guarded
"""


def test_the_log_has_every_cell_in_order() -> None:
    log = AccessLog()
    inputs: dict[str, Any] = {"A": [[1.0, 2.0], [3.0, 4.0]], "x": [1.0, -1.0]}
    execute(program_of(LOGGED), inputs=inputs, log=log)
    first = [
        *(Entry("A", (0, e), False, "S1", (0,)) for e in range(2)),
        *(Entry("r", (e,), True, "S1", (0,)) for e in range(2)),
        Entry("x", (0,), False, "G1", (0,)),
        *(Entry("r", (e,), False, "S2", (0,)) for e in range(2)),
        *(Entry("A", (0, e), False, "S2", (0,)) for e in range(2)),
        Entry("x", (0,), True, "S2", (0,)),
    ]
    second = [
        *(Entry("A", (1, e), False, "S1", (1,)) for e in range(2)),
        *(Entry("r", (e,), True, "S1", (1,)) for e in range(2)),
        Entry("x", (1,), False, "G1", (1,)),
    ]
    assert log.entries == [*first, *second]
    assert (log.counts["A"].reads, log.counts["A"].writes) == (6, 0)
    assert (log.counts["x"].reads, log.counts["x"].writes) == (2, 1)


def test_counting_keeps_no_entries() -> None:
    log = AccessLog(keep_entries=False)
    execute(program_of(LOGGED), log=log)
    assert not log.entries
    assert log.counts["A"].reads > 0


def test_an_integer_scalar_in_a_subscript_is_read() -> None:
    text = "def f(x):\n    for i in range(N):\n        k = i // 2\n        x[k] = 1.0\n"
    log = AccessLog()
    execute(program_of(text), sizes={"N": 1}, log=log)
    assert [(e.array, e.is_write) for e in log.entries] == [("k", True), ("k", False), ("x", True)]
