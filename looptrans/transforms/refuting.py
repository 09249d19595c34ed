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
from looptrans.transforms.other_writes import another_write
from looptrans.transforms.trial import Trial, tried_on

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from looptrans.executor import Race

CLOSE = 1e-9
# By whether the first writes, and whether the second does.
_KINDS: dict[tuple[bool, bool], str] = {
    (True, False): "flow",
    (False, True): "anti",
    (True, True): "output",
}


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
    from looptrans.executor import AccessLog, ExecutionError, RaceLog, execute_on, is_parallel

    logs, races = (AccessLog(), AccessLog()), RaceLog()
    try:
        expected = execute_on(trial.before, trial.inputs, log=logs[0])
    except ExecutionError:
        return None
    try:
        actual = execute_on(
            trial.after,
            trial.inputs,
            log=logs[1],
            races=races if is_parallel(trial.after) else None,
        )
    except ExecutionError:
        return _differs(verdict, trial, " the program afterwards fails")
    if races.races:
        return _raced(verdict, trial, races.races)
    if trial.images is not None and not is_parallel(trial.before):
        found = another_write(trial, trial.images, logs[0].entries, logs[1].entries)
        if found is not None:
            return found
    return _difference(verdict, trial, expected, actual)


def _raced(verdict: Verdict, trial: Trial, races: Sequence[Race]) -> Verdict:
    """Return a race, if possible the one that was in doubt."""
    for race in races:
        if _is_asked(verdict, race):
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


def _is_asked(verdict: Verdict, race: Race) -> bool:
    """Tell whether a race is the dependence in doubt: its instances, its cell, and who writes."""
    asked, dependence = verdict.witness, verdict.dependence
    if asked is None or dependence is None:
        return False
    kind = _KINDS.get((race.first.is_write, race.second.is_write))
    return (
        (race.array, race.cell, kind) == (verdict.array, verdict.cell, dependence.kind)
        and (race.first.label, race.second.label) == (verdict.source, verdict.sink)
        and (race.first.iteration, race.second.iteration) == (asked.source, asked.sink)
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
