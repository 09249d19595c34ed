"""What goes wrong in a step, tried on the NumPy executor.

A trial only refutes: where a dependence may or may not happen, inputs on which two iterations race,
a read gets the value of another write, or the results differ show that it does. That nothing of
this is seen shows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from looptrans.ir.program import Program
from looptrans.ir.step import Images
from looptrans.ir.verdict import Verdict
from looptrans.ir.walk import is_parallel
from looptrans.transforms.judging.other_writes import another_write
from looptrans.transforms.judging.trial import Trial, tried_on

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from looptrans.executor import Entry, Race

CLOSE = 1e-9
SCHEDULES = range(2)
# Whether the first writes, and whether the second does.
_WRITES = {"flow": (True, False), "anti": (False, True), "output": (True, True)}


def refuted(verdict: Verdict, before: Program, after: Program, images: Images | None) -> Verdict:
    """Return an illegal verdict where some small random inputs show what goes wrong.

    Args:
        verdict: An unknown one; its witness says which sizes and contents to try.
        before: The program before.
        after: The program afterwards, with the same inputs and outputs.
        images: Which instances of `before` those of `after` stand for, where reads can be compared:
            where both access the same cells.

    Returns:
        The verdict itself where nothing goes wrong, or nothing could be run.
    """
    for inputs, elements, seed in tried_on(before, verdict.witness):
        found = _on(verdict, Trial(before, after, images, inputs, elements, seed))
        if found is not None:
            return found
    return verdict


def _on(verdict: Verdict, trial: Trial) -> Verdict | None:
    """Run both programs once; return what goes wrong."""
    from looptrans.executor import AccessLog, ExecutionError, RaceLog, execute_on

    images = None if is_parallel(trial.before) else trial.images
    races = RaceLog() if is_parallel(trial.after) else None
    # To record each access takes longer than to make it: only what is looked at is recorded.
    one, other = AccessLog(), AccessLog()
    try:
        expected = execute_on(trial.before, trial.inputs, log=None if images is None else one)
    except ExecutionError:
        return None
    try:
        log = None if images is None and races is None else other
        actual = execute_on(trial.after, trial.inputs, log=log, races=races)
    except ExecutionError:
        return _differs(verdict, trial, " the program afterwards fails")
    if races is not None and races.races:
        return _raced(verdict, trial, races.races, other.entries)
    if images is not None:
        found = another_write(trial, images, one.entries, other.entries)
        if found is not None:
            return found
    found = _difference(verdict, trial, expected, actual)
    if found is None and is_parallel(trial.after):
        found = _in_other_orders(verdict, trial, expected)
    return found


def _in_other_orders(
    verdict: Verdict, trial: Trial, expected: Mapping[str, NDArray[Any]]
) -> Verdict | None:
    """Run what is parallel in shuffled orders; return what differs, as where atomics have none."""
    from looptrans.executor import ExecutionError, execute_on

    for schedule in SCHEDULES:
        try:
            actual = execute_on(trial.after, trial.inputs, schedule=schedule)
        except ExecutionError:
            return _differs(verdict, trial, " an execution in another order fails")
        found = _difference(verdict, trial, expected, actual)
        if found is not None:
            return found
    return None


def _raced(
    verdict: Verdict, trial: Trial, races: Sequence[Race], entries: Sequence[Entry]
) -> Verdict:
    """Return a race, if possible the one that was in doubt."""
    for race in races:
        if _is_asked(verdict, race, entries):
            witness = trial.witness("race", race.first.iteration, race.second.iteration)
            return replace(verdict, decision="illegal", witness=witness, reason=trial.shown())
    race = races[0]
    return Verdict(
        "illegal",
        trial.witness("race", race.first.iteration, race.second.iteration),
        trial.shown(),
        source=race.first.label,
        sink=race.second.label,
        array=race.array,
        cell=race.cell,
    )


def _is_asked(verdict: Verdict, race: Race, entries: Sequence[Entry]) -> bool:
    """Tell whether a race is the dependence in doubt: its instances and cell, written and read."""
    asked, dependence = verdict.witness, verdict.dependence
    if asked is None or dependence is None:
        return False
    ends = ((verdict.source, asked.source), (verdict.sink, asked.sink))
    if (
        (race.first.label, race.first.iteration),
        (race.second.label, race.second.iteration),
    ) != ends:
        return False
    return all(
        any(
            (entry.label, entry.iteration) == (label, tuple(value for _, value in iteration))
            and (entry.array, entry.cell) == (verdict.array, verdict.cell)
            and entry.is_write == writes
            for entry in entries
        )
        for (label, iteration), writes in zip(ends, _WRITES[dependence.kind], strict=True)
    )


def _difference(
    verdict: Verdict,
    trial: Trial,
    expected: Mapping[str, NDArray[Any]],
    actual: Mapping[str, NDArray[Any]],
) -> Verdict | None:
    """Return what differs by more than rounding."""
    import numpy as np

    for name, values in expected.items():
        if np.shape(values) != np.shape(actual[name]):
            return _differs(verdict, trial, " the program afterwards fails")
        same = np.isclose(values, actual[name], rtol=CLOSE, atol=CLOSE, equal_nan=True)
        if not same.all():
            cell = tuple(int(index) for index in np.argwhere(~same)[0])
            at = f"{name}[{', '.join(map(str, cell))}]" if cell else name
            one, other = float(values[cell]), float(actual[name][cell])
            return _differs(verdict, trial, f" {at} is {one:.6g} and becomes {other:.6g}")
    return None


def _differs(verdict: Verdict, trial: Trial, what: str) -> Verdict:
    shown = trial.shown(what)
    return replace(
        verdict,
        decision="illegal",
        witness=trial.witness("numbers"),
        reason=f"{verdict.reason}; {shown}" if verdict.reason else shown,
    )
