"""Tracks: at which heights edges run sideways between two rows, and where their labels lie.

In the channel between two rows each edge goes down, sideways along a track, and down again. Two
edges share a track only where their runs, labels included, are apart, so labels never overlap.
Edges that go to the right are stacked from the rightmost start down, those that go to the left
from the leftmost, which is the order in which they do not cross one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_THIN = 9.0
_APART = 12.0
_LABEL_GAP = 5.0


@dataclass(slots=True)
class Run:
    """A piece of an edge in one channel.

    Attributes:
        edge: Number of the edge.
        upper: The x at which it comes in.
        lower: The x at which it goes out.
        width: Of the label it carries here; 0 if none.
        height: Of that label.
        track: Number of its track, from the top.
        y: The height of the track.
        label: The middle of the label.
    """

    edge: int
    upper: float
    lower: float
    width: float = 0.0
    height: float = 0.0
    track: int = -1
    y: float = 0.0
    label: float = 0.0

    @property
    def low(self) -> float:
        """The leftmost x it uses."""
        middle = (self.upper + self.lower) / 2
        return min(self.upper, self.lower, middle - self.width / 2)

    @property
    def high(self) -> float:
        """The rightmost x it uses."""
        middle = (self.upper + self.lower) / 2
        return max(self.upper, self.lower, middle + self.width / 2)


def assign_tracks(runs: Sequence[Run]) -> float:
    """Give every run of a channel a track, and its height from the channel's top.

    Returns:
        The height of the channel.
    """
    right = sorted((r for r in runs if r.lower >= r.upper), key=lambda r: (-r.upper, r.edge))
    left = sorted((r for r in runs if r.lower < r.upper), key=lambda r: (r.upper, r.edge))
    tracks: list[list[Run]] = []
    for group in (right, left):
        placed: list[Run] = []
        for run in group:
            least = max((o.track + 1 for o in placed if _meet(run, o)), default=0)
            while least < len(tracks) and any(_meet(run, other) for other in tracks[least]):
                least += 1
            if least == len(tracks):
                tracks.append([])
            tracks[least].append(run)
            run.track = least
            placed.append(run)
    y = 0.0
    for track in tracks:
        tall = max([_THIN, *(run.height + _LABEL_GAP for run in track)])
        for run in track:
            run.y = y + tall / 2
        y += tall
    for run in runs:
        run.label = _clear(run, runs)
    return y


def _meet(one: Run, two: Run) -> bool:
    return one.low < two.high + _APART and two.low < one.high + _APART


def _clear(run: Run, runs: Sequence[Run]) -> float:
    """Return where on its run a label covers the fewest other edges, the middle if all is equal."""
    middle = (run.upper + run.lower) / 2
    room = (abs(run.upper - run.lower) - run.width) / 2 - 12
    if not run.width or room <= 0:
        return middle
    best, least = middle, float("inf")
    for step in range(21):
        at = middle + room * (step - 10) / 10
        covered = 0.0
        for other in runs:
            if other is run:
                continue
            x = other.upper if other.y > run.y else other.lower
            covered += abs(x - at) < run.width / 2 + 2
            if other.y == run.y:
                covered += abs(other.lower - at) < run.width / 2 + 2
        price = covered + abs(step - 10) / 100
        if price < least:
            best, least = at, price
    return best
