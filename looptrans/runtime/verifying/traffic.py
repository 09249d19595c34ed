"""What the programs of a launch do to memory, and what of it is left to chance on a GPU.

Triton's interpreter runs one program after the other, and an operation on a block all at once: its
numbers are those of one order. On a GPU programs run side by side, and so do the threads of each.
What one thread stores another one sees behind a barrier, and what one program stores the others
see when the launch has ended. Told of every operation in the order of the interpreter, a `Launch`
finds

    two programs, one of which changes what the other one loads or changes otherwise
    a program that stores what it has loaded before, or loads what it has stored, or stores by
        another thread once more, with no barrier between
    one store that puts two values in one place
    an operation outside of every tensor, and a load of what nobody has written
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

Kind: TypeAlias = Literal["load", "store", "add"]
Numbers: TypeAlias = np.ndarray[Any, Any]

KINDS: tuple[Kind, ...] = ("load", "store", "add")
LOAD, STORE, _ = range(3)
_DOES = ("loads", "stores", "adds to")


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor that a kernel is handed.

    Attributes:
        name: What the kernel calls it.
        start: The address of its first element.
        size: The bytes of an element.
        shape: Its extents.
        strides: Its strides, in elements.
    """

    name: str
    start: int
    size: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def stop(self) -> int:
        """The address behind its last element."""
        if 0 in self.shape:
            return self.start
        reach = sum(
            (extent - 1) * step for extent, step in zip(self.shape, self.strides, strict=True)
        )
        return self.start + (reach + 1) * self.size

    def element(self, address: int) -> str:
        """Return an element as it is written, `S[3, 5]`."""
        left = (address - self.start) // self.size
        subscripts = [0] * len(self.shape)
        for axis in sorted(range(len(self.shape)), key=lambda each: -self.strides[each]):
            if self.strides[axis] and self.shape[axis] > 1:
                subscripts[axis], left = divmod(left, self.strides[axis])
        return f"{self.name}[{', '.join(map(str, subscripts))}]" if subscripts else self.name


@dataclass(slots=True)
class Launch:
    """One launch, told of what its programs do one after the other.

    Attributes:
        kernel: Its name.
        places: The tensors it is handed.
        problems: What is left to chance, in words; of each sort the first one.
    """

    kernel: str
    places: Sequence[Place]
    problems: dict[str, str] = field(default_factory=dict)
    _programs: list[Numbers] = field(default_factory=list)
    _here: list[Numbers] = field(default_factory=list)
    _number: int = 0
    _time: int = 0
    _barriers: int = 0

    def touch(
        self, kind: Kind, where: Numbers, bits: Numbers | None = None, lanes: Numbers | None = None
    ) -> None:
        """Take note of one operation on a block.

        Args:
            kind: What it does; `add` is any atomic update.
            where: The addresses of its elements, those left out that are masked.
            bits: What is stored there, as integers; equal ones are the same value.
            lanes: Who stores it: in blocks of one shape the same thread has a place in the block.
        """
        if not where.size:
            return
        where = where.astype(np.int64)
        number = KINDS.index(kind)
        bits = np.zeros_like(where) if bits is None else bits.astype(np.int64)
        outside = np.ones(where.shape, dtype=bool)
        for each in self.places:
            outside &= (where < each.start) | (where >= each.stop)
        if outside.any():
            self._say(f"outside {kind}", f"it {_DOES[number]} something outside of every tensor")
        if kind == "store":
            self._find_twice(where, bits)
        rest = np.full((3, *where.shape), [[number], [self._barriers], [self._time]])
        lanes = np.arange(where.size) if lanes is None else lanes
        self._here.append(np.stack([where, *rest, lanes, bits]))
        self._time += 1

    def barrier(self) -> None:
        """Take note of a barrier: the threads of the program wait for each other."""
        self._barriers += 1

    def unwritten(self, where: Numbers) -> None:
        """Take note of addresses where a load has found what nobody has written."""
        if where.size:
            element = self._element(int(where[0]))
            self._say("unwritten", f"it loads {element}, which nobody has written")

    def narrow(self, size: int) -> None:
        """Take note of an atomic update of numbers of so many bytes."""
        if size < 4:
            self._say("narrow", f"it adds to numbers of {size} bytes, which few GPUs can do")

    def end_program(self) -> None:
        """Take note that the program has ended and another one begins."""
        if self._here:
            events = np.concatenate(self._here, axis=1)
            self._find_inside(events)
            where, kinds, *_, bits = events
            # Of each place once what is done with it; of several values the last one.
            _, last = np.unique((where * len(KINDS) + kinds)[::-1], return_index=True)
            kept = events.shape[1] - 1 - last
            number = np.full(kept.shape, self._number)
            self._programs.append(np.stack([where[kept], kinds[kept], number, bits[kept]]))
        self._here, self._barriers, self._time = [], 0, 0
        self._number += 1

    def end(self) -> None:
        """Take note that the launch has ended."""
        self.end_program()
        if len(self._programs) > 1:
            self._find_beside(np.concatenate(self._programs, axis=1))
        self._programs = []

    # What is looked for

    def _find_twice(self, where: Numbers, bits: Numbers) -> None:
        where, bits = _sorted(np.stack([where, bits]), (1, 0))
        twice = (where[1:] == where[:-1]) & (bits[1:] != bits[:-1])
        if twice.any():
            element = self._element(int(where[1:][twice][0]))
            self._say("twice", f"one store puts two values into {element}: either may stay")

    def _find_inside(self, events: Numbers) -> None:
        events = _changed(events)
        where, kinds, barriers, times, lanes, _ = _sorted(events, (3, 0))
        meet = (where[1:] == where[:-1]) & (barriers[1:] == barriers[:-1])
        meet &= (times[1:] != times[:-1]) & (
            (kinds[1:] != kinds[:-1]) | ((kinds[1:] == STORE) & (lanes[1:] != lanes[:-1]))
        )
        for one in range(3):
            for other in range(3):
                found = meet & (kinds[:-1] == one) & (kinds[1:] == other)
                if found.any():
                    element = self._element(int(where[1:][found][0]))
                    self._say(
                        f"inside {one} {other}",
                        f"a program {_DOES[one]} {element} and then {_DOES[other]} it, with no "
                        "barrier between: another thread may come first",
                    )

    def _find_beside(self, events: Numbers) -> None:
        events = _changed(events)
        if not events.size:
            return
        where, kinds, programs, bits = _sorted(events, (1, 2, 0))
        starts = np.flatnonzero(np.concatenate([[True], where[1:] != where[:-1]]))

        def differ(numbers: Numbers) -> Numbers:
            least, most = np.minimum.reduceat(numbers, starts), np.maximum.reduceat(numbers, starts)
            several: Numbers = least != most
            return several

        found = differ(programs) & (differ(kinds) | (differ(bits) & (kinds[starts] == STORE)))
        if found.any():
            first = starts[found][0]
            own = np.flatnonzero(where == where[first])
            other = next(n for n in own[::-1] if programs[n] != programs[own[0]])
            one, two = (f"program {programs[n]} {_DOES[kinds[n]]}" for n in (own[0], other))
            element = self._element(int(where[first]))
            self._say("beside", f"{one} {element} and {two} it: either may come first")

    def _say(self, sort: str, text: str) -> None:
        self.problems.setdefault(sort, f"{self.kernel}: {text}")

    def _element(self, address: int) -> str:
        for each in self.places:
            if each.start <= address < each.stop:
                return each.element(address)
        return "something outside of every tensor"


def _sorted(rows: Numbers, keys: tuple[int, ...]) -> Numbers:
    """Return columns sorted by rows, the last of the keys counting most."""
    ordered: Numbers = rows[:, np.lexsort([rows[key] for key in keys])]
    return ordered


def _changed(events: Numbers) -> Numbers:
    """Return the events at places that are changed; the first two rows are places and kinds."""
    where, kinds = events[:2]
    changed = np.unique(where[kinds != LOAD])
    kept: Numbers = events[:, np.isin(where, changed)]
    return kept
