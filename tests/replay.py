"""Replays a witness: what the verdict says goes wrong must be seen to go wrong.

Only the executor and its logs are used, never the analysis that found the witness.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from looptrans.executor import (
    AccessLog,
    Entry,
    ExecutionError,
    Inputs,
    RaceLog,
    execute_on,
    prepare,
)
from looptrans.ir.evaluate import Evaluator
from looptrans.ir.program import Program
from looptrans.ir.step import Step
from looptrans.ir.verdict import Assignment, Witness
from looptrans.ir.walk import placed

Instance = tuple[str, tuple[int, ...]]
SCHEDULES = range(40)
SEEDS = range(64)  # as many as a step is tried on at the sizes of an example


def replay(step: Step) -> None:
    """Shows the fault that a step's witness is an example of; fails where there is none."""
    verdict, witness = step.verdict, step.verdict.witness
    assert verdict.decision == "illegal"
    assert witness is not None, "an illegal verdict without a witness"
    match witness.kind:
        case "order":
            _replay_order(step, witness)
        case "race":
            _replay_race(step, witness)
        case "storage":
            _replay_storage(step, witness)
        case "numbers":
            assert _differ(step, witness), "the results are the same"


def inputs_of(program: Program, witness: Witness, seed: int = 0) -> Inputs:
    """The inputs of an example: its sizes, and its elements of integer arrays."""
    made = prepare(program, dict(witness.parameters), seed=seed)
    if not witness.elements:
        return made
    # Arrays without such elements are made anew, to fit these.
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, value in witness.elements:
        array, _, cell = name.partition("[")
        given = arrays.setdefault(array, np.array(made.arrays[array]))
        given[tuple(int(part) for part in cell.rstrip("]").split(","))] = value
    return prepare(program, dict(made.integers), arrays, seed)


def _log(program: Program, inputs: Inputs, schedule: int | None = None) -> list[Entry]:
    log = AccessLog()
    execute_on(program, inputs, log=log, schedule=schedule)
    return log.entries


def _values(iteration: Assignment) -> tuple[int, ...]:
    return tuple(value for _, value in iteration)


def _stands_for(step: Step, parameters: Mapping[str, int]) -> Any:
    """A test whether an instance of `after` stands for one of `before`."""
    variables = {p.label: [loop.variable for loop in p.loops] for p in placed(step.after)}
    evaluator = Evaluator(parameters)

    def test(later: Instance, earlier: Instance) -> bool:
        image = step.images.get(later[0])
        if image is None or image.statement != earlier[0]:
            return False
        at = dict(zip(variables[later[0]], later[1], strict=True))
        wanted = zip(image.indices, earlier[1], strict=True)
        return all(index is None or evaluator.index(index, at) == v for index, v in wanted)

    return test


def _instances(entries: list[Entry]) -> Iterator[tuple[int, Instance]]:
    for number, entry in enumerate(entries):
        yield number, (entry.label, entry.iteration)


def _replay_order(step: Step, witness: Witness) -> None:
    verdict = step.verdict
    source = (verdict.source, _values(witness.source))
    sink = (verdict.sink, _values(witness.sink))
    inputs = inputs_of(step.before, witness)
    before = _log(step.before, inputs)
    cells = [
        {e.cell for e in before if (e.label, e.iteration) == end and e.array == verdict.array}
        for end in (source, sink)
    ]
    if step.name and cells[0] & cells[1]:
        first = min(n for n, instance in _instances(before) if instance == source)
        last = max(n for n, instance in _instances(before) if instance == sink)
        assert first < last, "the source does not run before the sink"
    else:
        # What happens only for some data: inputs were tried, and the results differ.
        assert _differ(step, witness), f"{source} and {sink} share no cell of {verdict.array}"
        return
    stands = _stands_for(step, inputs.integers)
    for schedule in (None, *SCHEDULES):
        try:
            after = _log(step.after, inputs, schedule)
        except ExecutionError:
            return  # it does not even run
        sources = [n for n, instance in _instances(after) if stands(instance, source)]
        sinks = [n for n, instance in _instances(after) if stands(instance, sink)]
        assert sources and sinks, "an instance is lost"
        if max(sources) > min(sinks):
            return
    raise AssertionError(f"{source} runs before {sink} under every schedule")


def _replay_race(step: Step, witness: Witness) -> None:
    races, log = RaceLog(), AccessLog()
    inputs = inputs_of(step.after, witness)
    try:
        execute_on(step.after, inputs, schedule=0, races=races, log=log)
    except ExecutionError:
        return  # it does not even run, as where one iteration needs what another one has set
    cells = [
        {
            entry.cell
            for entry in log.entries
            if (entry.label, entry.iteration, entry.array)
            == (label, _values(end), step.verdict.array)
        }
        for label, end in (
            (step.verdict.source, witness.source),
            (step.verdict.sink, witness.sink),
        )
    ]
    # Where data or contents that are not told decide, these inputs may be others.
    told = witness.elements or all(array.element != "int" for array in step.after.arrays)
    if told and all(cells):
        assert all(step.verdict.cell in found for found in cells), (step.verdict.cell, cells)
    wanted = {step.verdict.source, step.verdict.sink}
    found = [(r.array, r.first.label, r.second.label) for r in races.races]
    assert any(a == step.verdict.array and {f, s} == wanted for a, f, s in found), found


def _last_write(entries: list[Entry], before: int, array: str, cell: tuple[int, ...]) -> int | None:
    return next(
        (
            n
            for n in range(before - 1, -1, -1)
            if entries[n].is_write and (entries[n].array, entries[n].cell) == (array, cell)
        ),
        None,
    )


def _replay_storage(step: Step, witness: Witness) -> None:
    verdict = step.verdict
    if not verdict.sink or verdict.now is None:
        assert _differ(step, witness), "the last values are the same"
        return
    inputs = inputs_of(step.before, witness)
    before = _log(step.before, inputs)
    sink = (verdict.sink, _values(witness.sink))
    seen = {
        None if (n := _last_write(before, number, e.array, e.cell)) is None else before[n][3:]
        for number, e in enumerate(before)
        if (e.label, e.iteration) == sink and e.array == verdict.array and not e.is_write
    }
    source = (verdict.source, _values(witness.source)) if verdict.source else None
    if source not in seen:
        # What happens only for some data: inputs were tried, and the results differ.
        assert _differ(step, witness), f"{sink} does not read what {source} wrote"
        return
    assert _differ(step, witness) or _other_source(step, inputs, sink, source), "nothing changed"


def _other_source(step: Step, inputs: Inputs, sink: Instance, source: Instance | None) -> bool:
    """Whether the sink gets a value from a write that does not stand for the source."""
    try:
        after = _log(step.after, inputs)
    except ExecutionError:
        return True
    stands = _stands_for(step, inputs.integers)
    # Afterwards the value may be kept in a new array.
    others = {array.name for array in step.before.arrays} - {step.verdict.array}
    for number, entry in enumerate(after):
        if entry.is_write or entry.array in others:
            continue
        if not stands((entry.label, entry.iteration), sink):
            continue
        write = _last_write(after, number, entry.array, entry.cell)
        if write is None:
            return source is not None
        if source is None or not stands(after[write][3:], source):
            return True
    return False


def _differ(step: Step, witness: Witness) -> bool:
    """Whether some random inputs of these sizes tell the two programs apart."""
    for seed in SEEDS:
        inputs = inputs_of(step.before, witness, seed)
        try:
            one = execute_on(step.before, inputs)
        except ExecutionError:  # some random inputs do not run at all
            continue
        for schedule in (None, 0, 1):
            try:
                other = execute_on(step.after, inputs, schedule=schedule)
            except ExecutionError:
                return True
            for name in one:
                if not np.allclose(one[name], other[name], rtol=1e-9, atol=1e-12, equal_nan=True):
                    return True
    return False
