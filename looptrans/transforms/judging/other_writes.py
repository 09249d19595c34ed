"""Reads that get the value of another write, seen in two runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from looptrans.ir.evaluate import Evaluator
from looptrans.ir.step import Images
from looptrans.ir.verdict import Assignment, Seen, Verdict
from looptrans.ir.walk import live_out, loops, placed
from looptrans.transforms.judging.trial import Trial

if TYPE_CHECKING:
    from looptrans.executor import Entry

Instance: TypeAlias = tuple[str, tuple[int, ...]]
Cell: TypeAlias = tuple[str, tuple[int, ...]]


def another_write(
    trial: Trial, images: Images, before: Sequence[Entry], after: Sequence[Entry]
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


@dataclass(slots=True)
class _Flow:
    """Where the values of one run came from.

    Attributes:
        reads: For each instance its reads in order: the cell, and who wrote it.
        last: Who wrote each cell last.
    """

    reads: dict[Instance, list[tuple[Cell, Instance | None]]]
    last: dict[Cell, Instance]


def _standing(trial: Trial, images: Images) -> Callable[[Instance], Instance] | None:
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
