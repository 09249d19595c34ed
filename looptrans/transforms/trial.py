"""What goes wrong in a step, tried on the NumPy executor.

A trial only refutes: where a dependence may or may not happen, inputs on which two iterations race,
a read gets the value of another write, or the results differ show that it does. That nothing of
this is seen shows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from looptrans.ir.evaluate import Evaluator
from looptrans.ir.program import Program
from looptrans.ir.step import Images
from looptrans.ir.verdict import Assignment, Seen, Verdict, Witness, WitnessKind
from looptrans.ir.walk import live_out, loops, placed, written

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from looptrans.executor import Entry, Inputs, Race

SEEDS = range(8)
CLOSE = 1e-9
MOST_SHOWN = 12

Instance: TypeAlias = tuple[str, tuple[int, ...]]
Cell: TypeAlias = tuple[str, tuple[int, ...]]


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
    for inputs, elements, seed in _inputs(before, verdict.witness):
        found = _on(verdict, _Trial(before, after, images, inputs, elements, seed))
        if found is not None:
            return found
    return verdict


def _inputs(program: Program, witness: Witness | None) -> Iterator[tuple[Inputs, Assignment, int]]:
    """Yield what is tried: what an example supposes, its sizes alone, and any sizes."""
    from looptrans.executor import ExecutionError, prepare

    tried: dict[tuple[Assignment, Assignment], None] = {}
    if witness is not None:
        tried = {(witness.parameters, elements): None for elements in (witness.elements, ())}
    for parameters, supposed in tried | {((), ()): None}:
        for seed in SEEDS:
            try:
                sizes = dict(parameters)
                inputs = prepare(program, sizes, seed=seed)
                if supposed:
                    # The other arrays are made anew, to fit these contents.
                    inputs = prepare(program, sizes, _with_elements(inputs, supposed), seed)
            except (ExecutionError, IndexError):
                continue
            yield inputs, _contents(program, inputs, supposed), seed


def _with_elements(inputs: Inputs, elements: Assignment) -> dict[str, ArrayLike]:
    """Return the integer arrays of which some elements are given, with these."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, value in elements:
        array, _, cell = name.partition("[")
        place = tuple(int(part) for part in cell.rstrip("]").split(","))
        if min(place) < 0:
            raise IndexError(name)
        arrays.setdefault(array, inputs.arrays[array].copy())[place] = value
    return dict(arrays)


def _contents(program: Program, inputs: Inputs, supposed: Assignment) -> Assignment:
    """Return what an example says of the contents of integer arrays: if few, all of their elements.

    Args:
        program: The program.
        inputs: What it is given.
        supposed: The elements that were asked for; where there are none, any may matter.
    """
    import numpy as np

    told = {name.partition("[")[0] for name, _ in supposed}
    opaque = {array.name for array in program.arrays if array.element == "int"} - written(program)
    arrays = {n: v for n, v in inputs.arrays.items() if n in (told or opaque)}
    if sum(values.size for values in arrays.values()) > MOST_SHOWN:
        return supposed
    return tuple(
        (f"{name}[{', '.join(map(str, cell))}]", int(value))
        for name, values in arrays.items()
        for cell, value in np.ndenumerate(values)
        if cell
    )


@dataclass(frozen=True, slots=True)
class _Trial:
    """Two programs and what both are run on.

    Attributes:
        before: The program before the step.
        after: The program afterwards.
        images: Which instances stand for which, where reads can be compared.
        inputs: What both are given.
        elements: What an example says of the contents of integer arrays.
        seed: What decides the rest, as in `looptrans run --seed`.
    """

    before: Program
    after: Program
    images: Images | None
    inputs: Inputs
    elements: Assignment
    seed: int

    def witness(self, kind: WitnessKind, source: Assignment = (), sink: Assignment = ()) -> Witness:
        """Return an example with these sizes and contents."""
        return Witness(kind, tuple(self.inputs.integers.items()), source, sink, self.elements)

    def shown(self, what: str = "") -> str:
        """Say by what it is shown."""
        return f"with random inputs (seed {self.seed}){what}"


def _on(verdict: Verdict, trial: _Trial) -> Verdict | None:
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
        found = _another_write(trial, trial.images, logs[0].entries, logs[1].entries)
        if found is not None:
            return found
    return _difference(verdict, trial, expected, actual)


def _raced(verdict: Verdict, trial: _Trial, races: Sequence[Race]) -> Verdict:
    """Return a race, if possible the one that was in doubt."""
    asked = verdict.witness
    for race in races:
        ends = (race.array, race.first.label, race.second.label)
        if asked is not None and ends == (verdict.array, verdict.source, verdict.sink):
            iterations = (race.first.iteration, race.second.iteration)
            if iterations == (asked.source, asked.sink):
                witness = trial.witness("race", *iterations)
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


# Reads that get the value of another write


@dataclass(slots=True)
class _Flow:
    """Where the values of one run came from.

    Attributes:
        reads: For each instance its reads in order: the cell, and who wrote it.
        last: Who wrote each cell last.
    """

    reads: dict[Instance, list[tuple[Cell, Instance | None]]]
    last: dict[Cell, Instance]


def _another_write(
    trial: _Trial, images: Images, before: Sequence[Entry], after: Sequence[Entry]
) -> Verdict | None:
    """Return a read, or a cell at the end, that has the value of another write afterwards."""
    private = {
        name for p in (trial.before, trial.after) for each in loops(p) for name in each.private
    }
    stands = _standing(trial, images)
    if stands is None:
        return None
    one, other = _flow(before, lambda instance: instance), _flow(after, stands)
    variables = {
        place.label: [loop.variable for loop in place.loops] for place in placed(trial.before)
    }

    def named(instance: Instance) -> Assignment:
        return tuple(zip(variables[instance[0]], instance[1], strict=True))

    def moved(
        cell: Cell, was: Instance | None, now: Instance | None, reader: Instance | None
    ) -> Verdict:
        return Verdict(
            "illegal",
            trial.witness("storage", named(was) if was else (), named(reader) if reader else ()),
            trial.shown(),
            source=was[0] if was else "",
            sink=reader[0] if reader else "",
            array=cell[0],
            cell=cell[1],
            now=Seen(now[0], named(now)) if now else Seen(None),
        )

    for reader, reads in one.reads.items():
        found = other.reads.get(reader, [])
        if [cell for cell, _ in found] != [cell for cell, _ in reads]:
            continue  # what is read depends on data, and that has changed
        for (cell, was), (_, now) in zip(reads, found, strict=True):
            if was != now and cell[0] not in private:
                return moved(cell, was, now, reader)
    for cell, last in one.last.items():
        now = other.last.get(cell)
        if cell[0] in live_out(trial.before) and last != now:
            return moved(cell, last, now, None)
    return None


def _standing(trial: _Trial, images: Images) -> Callable[[Instance], Instance] | None:
    """Return what says which instance of `before` one of `after` stands for."""
    evaluator = Evaluator(trial.inputs.integers)
    later = {place.label: place for place in placed(trial.after)}
    if later.keys() != images.keys() or any(None in each.indices for each in images.values()):
        return None
    variables = {label: [loop.variable for loop in p.loops] for label, p in later.items()}

    def stands(instance: Instance) -> Instance:
        label, iteration = instance
        image = images[label]
        at = dict(zip(variables[label], iteration, strict=True))
        values = (evaluator.index(each, at) for each in image.indices if each is not None)
        return image.statement, tuple(values)

    return stands


def _flow(entries: Sequence[Entry], stands: Callable[[Instance], Instance]) -> _Flow:
    flow = _Flow({}, {})
    for entry in entries:
        instance, cell = stands((entry.label, entry.iteration)), (entry.array, entry.cell)
        if entry.is_write:
            flow.last[cell] = instance
        else:
            flow.reads.setdefault(instance, []).append((cell, flow.last.get(cell)))
    return flow


# Numbers


def _difference(
    verdict: Verdict,
    trial: _Trial,
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


def _differs(verdict: Verdict, trial: _Trial, what: str) -> Verdict:
    shown = trial.shown(what)
    return replace(
        verdict,
        decision="illegal",
        witness=trial.witness("numbers"),
        reason=f"{verdict.reason}; {shown}" if verdict.reason else shown,
    )
