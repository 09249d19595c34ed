"""Random arrays that fit a listing: shapes, ranges, contracts, and subscripts that stay inside."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from looptrans.executor.boxes import Boxes
from looptrans.executor.contracts import (
    Integers,
    OutsideArray,
    is_injective,
    is_monotone,
    is_satisfied,
    repair,
)
from looptrans.executor.errors import IndexDividedByZero, InputMismatch, NoInputsFound
from looptrans.executor.spans import stays_inside
from looptrans.executor.storage import MOST_CELLS
from looptrans.ir.affine import sides
from looptrans.ir.evaluate import Evaluator, Unknown
from looptrans.ir.index import Index, Opaque, Var, opaque_terms
from looptrans.ir.listing import contract_text
from looptrans.ir.program import Array, Loop, Program
from looptrans.ir.rising import Rise, rises
from looptrans.ir.value import Access, Whole
from looptrans.ir.walk import accesses, loops, placed

Values = np.ndarray[Any, Any]
Shape = tuple[int, ...]

DEFAULT_EXTENT = 4
DEFAULT_HIGH = 5
# Each try at a quarter of the attempts is with smaller integers, which stay inside more easily.
SCALES = (1.0,) * 10 + (0.5,) * 10 + (0.25,) * 10 + (0.0,) * 10
ROUNDS = 8


def make_arrays(
    program: Program,
    sizes: Mapping[str, int],
    given: Mapping[str, Values],
    declared: Mapping[str, tuple[Index | None, ...]],
    seed: int,
) -> dict[str, Values]:
    """Return all input arrays: those given, and random ones for the rest.

    Raises:
        NoInputsFound: No integers were found that satisfy the contracts.
        InputMismatch: A declared extent is negative, or an array is too large to be worth trying.
        IndexDividedByZero: An index expression of the listing divides by zero at these sizes.
    """
    wanted = [a for a in program.arrays if a.role == "input" and a.name not in given]
    maker = _Maker(program, sizes, given, declared, seed)
    try:
        integers = maker.integers([a for a in wanted if a.element == "int"])
        shapes = maker.shapes(wanted, integers)
    except ZeroDivisionError:
        raise IndexDividedByZero(
            "an index expression divides by zero at these sizes",
            None,
            why=", ".join(f"{name}={value}" for name, value in sizes.items()),
            remedy="choose other sizes",
        ) from None
    found: dict[str, Values] = {}
    for number, array in enumerate(program.arrays):
        if array.role != "input":
            continue
        rng = np.random.default_rng([seed, 2, number])
        if array.name in given:
            found[array.name] = np.asarray(given[array.name])
        elif array.element == "int":
            found[array.name] = integers[array.name]
        elif array.element == "bool":
            found[array.name] = rng.integers(0, 2, shapes[array.name]).astype(np.bool_)
        else:
            found[array.name] = np.asarray(rng.standard_normal(shapes[array.name]))
    return found


@dataclass(slots=True)
class _Maker:
    program: Program
    sizes: Mapping[str, int]
    given: Mapping[str, Values]
    declared: Mapping[str, tuple[Index | None, ...]]
    seed: int
    known: dict[str, tuple[int | None, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self.known = {
            name: tuple(self._extent(name, extent) for extent in shape)
            for name, shape in self.declared.items()
        }
        for name, array in self.given.items():
            self.known[name] = array.shape

    def _extent(self, name: str, extent: Index | None) -> int | None:
        if extent is None:
            return None
        try:
            value = Evaluator(self.sizes).index(extent, {})
        except (Unknown, ZeroDivisionError):
            return None
        if value < 0:
            raise InputMismatch(
                f"an extent of {name} is {value}",
                self.program.array(name).span,
                why=", ".join(f"{size}={number}" for size, number in self.sizes.items()),
                remedy="choose sizes for which every extent is at least 0",
            )
        return value

    # Shapes

    def shapes(self, wanted: list[Array], integers: Mapping[str, Integers]) -> dict[str, Shape]:
        """Return a shape for every wanted array, from the cells the program touches if need be."""
        if all(None not in self.known[array.name] for array in wanted):
            boxes: Mapping[str, list[int]] = {}
        else:
            boxes = self._boxes(integers).extents
        return {array.name: self._shape(array.name, boxes) for array in wanted}

    def _boxes(self, integers: Mapping[str, Integers]) -> Boxes:
        found = Boxes(self.sizes, self._with_given(integers))
        found.run(self.program)
        return found

    def _with_given(self, integers: Mapping[str, Integers]) -> dict[str, Integers]:
        given = {
            name: values
            for name, values in self.given.items()
            if self.program.array(name).element == "int"
        }
        return {**given, **integers}

    def _shape(self, name: str, boxes: Mapping[str, list[int]]) -> Shape:
        whole = self._whole()
        box = boxes.get(name, [])
        extents = []
        for dimension, known in enumerate(self.known[name]):
            if known is not None:
                extents.append(known)
            elif (name, dimension) in whole:
                extents.append(self._row_extent(whole, boxes))
            else:
                extents.append(box[dimension] if dimension < len(box) else 0)
        if math.prod(extents) > MOST_CELLS:
            raise InputMismatch(
                f"{name} would have {math.prod(extents)} cells at these sizes",
                self.program.array(name).span,
                why=", ".join(f"{size}={number}" for size, number in self.sizes.items()),
                remedy="choose smaller sizes",
            )
        return tuple(extents)

    def _whole(self) -> list[tuple[str, int]]:
        """Return the dimensions that are read or written as rows."""
        found = {
            (relation.access.array, dimension): None
            for place in placed(self.program)
            for relation in accesses(place.node)
            for dimension, subscript in enumerate(relation.access.subscripts)
            if isinstance(subscript, Whole)
        }
        return list(found)

    def _row_extent(self, whole: list[tuple[str, int]], boxes: Mapping[str, list[int]]) -> int:
        """Rows meet in operations, so all rows of unknown extent get the same one."""
        touched = 0
        for name, dimension in whole:
            known = self.known[name]
            extent = known[dimension] if dimension < len(known) else None
            if extent is not None:
                return extent
            box = boxes.get(name, [])
            touched = max(touched, box[dimension] if dimension < len(box) else 0)
        return touched or DEFAULT_EXTENT

    # Integers

    def integers(self, wanted: list[Array]) -> dict[str, Integers]:
        """Return integer arrays that keep ranges, contracts and bounds.

        Raises:
            NoInputsFound: Every try failed.
        """
        if not wanted:
            return {}
        free = frozenset(array.name for array in wanted)
        for attempt, scale in enumerate(SCALES):
            found = self._drawn(wanted, attempt, scale)
            everything = self._with_given(found)
            rng = np.random.default_rng([self.seed, 3, attempt])
            try:
                repair(self.program, self.sizes, everything, free, rng)
            except OutsideArray:
                continue
            if self._fits(wanted, found) and is_satisfied(self.program, self.sizes, everything):
                return found
        names = ", ".join(sorted(free))
        texts = [contract_text(contract) for contract in self.program.contracts]
        raise NoInputsFound(
            f"no random integers were found for {names}",
            wanted[0].span,
            why="; ".join(texts) and f"they must satisfy: {'; '.join(texts)}",
            remedy="pass them in a file: --inputs in.npz",
        )

    def _drawn(self, wanted: list[Array], attempt: int, scale: float) -> dict[str, Integers]:
        """Draw integers; arrays of unknown shape grow until they hold all that is asked of them."""
        found: dict[str, Integers] = {}
        for _ in range(ROUNDS):
            complete = all(None not in self.known[array.name] for array in wanted)
            boxes = {} if complete else self._boxes(found).extents
            before = {name: values.shape for name, values in found.items()}
            for array in wanted:
                seen = array.name in boxes or None not in self.known[array.name]
                shape = self._shape(array.name, boxes)
                if seen and before.get(array.name) != shape:
                    found[array.name] = self._draw(array, shape, attempt, scale)
            if complete or before == {name: values.shape for name, values in found.items()}:
                break
        for array in wanted:
            if array.name not in found:
                known = self.known[array.name]
                shape = tuple(DEFAULT_EXTENT if extent is None else extent for extent in known)
                found[array.name] = self._draw(array, shape, attempt, scale)
        for start, stop in self._ends():
            if start in found and stop in found:
                self._put_in_order(found[start], found[stop], start, stop)
        for rise in self._rises():
            self._make_room(rise, found, attempt)
        return found

    def _rises(self) -> list[Rise]:
        return [rise for contract in self.program.contracts for rise in rises(contract)]

    def _ends(self) -> Iterator[tuple[str, str]]:
        """Yield the arrays that say where one range begins and ends, `range(start[b], stop[b])`."""
        found: dict[tuple[str, str], None] = {}
        for place in placed(self.program):
            ranges = [loop.range for loop in place.loops]
            ranges += [g.range for r in accesses(place.node) for g in r.generators]
            for bounds in ranges:
                for low in sides("max", bounds.start):
                    for high in sides("min", bounds.stop):
                        match low, high:
                            case Opaque(start, one), Opaque(stop, other) if (
                                start != stop and one == other
                            ):
                                found[start, stop] = None
                            case _:
                                pass
        yield from found

    def _put_in_order(self, low: Integers, high: Integers, start: str, stop: str) -> None:
        """Let ranges begin before they end; the last one is left as it is, if it is not alone."""
        if low.shape != high.shape:
            return
        order = [self._is_in_order(name) for name in (start, stop)]
        one, other = low.copy(), high.copy()
        if order != [True, False]:
            low[...] = np.minimum(one, other)
        if order != [False, True]:
            high[...] = np.maximum(one, other)
        if low.size > 2 and not any(order):
            low.flat[-1], high.flat[-1] = one.flat[-1], other.flat[-1]

    def _is_in_order(self, name: str) -> bool:
        return any(rise.array == name for rise in self._rises()) or any(
            is_monotone(contract, name) for contract in self.program.contracts
        )

    def _make_room(self, rise: Rise, found: dict[str, Integers], attempt: int) -> None:
        """Choose lengths, or ends, that fit between the elements of an array that rises by them."""
        starts = found.get(rise.array)
        here = (Var(rise.variable),)
        terms = dict(rise.least.terms)
        is_end = terms.pop(Opaque(rise.array, here), 0) == -1
        if starts is None or starts.ndim != 1 or len(terms) != 1:
            return
        ((term, factor),) = terms.items()
        if not isinstance(term, Opaque) or term.arguments != here or factor != 1:
            return
        lengths = found.get(term.array)
        if lengths is None or lengths.ndim != 1:
            return
        rng = np.random.default_rng([self.seed, 4, attempt])
        count = min(lengths.size, max(starts.size - 1, 0))
        room = np.maximum(np.diff(starts)[:count] - rise.least.constant, 0)
        # As many as there is room for, or fewer: a gap behind them is worth trying too.
        some = room if rise.is_exact else rng.integers(room // 2, room + 1)
        lengths[:count] = starts[:count] + some if is_end else some

    def _draw(self, array: Array, shape: Shape, attempt: int, scale: float) -> Integers:
        number = self.program.arrays.index(array)
        rng = np.random.default_rng([self.seed, 2, number, attempt])
        low, high = self._range(array, scale)
        count = int(np.prod(shape, dtype=np.int64))
        contracts = self.program.contracts
        injective = any(is_injective(contract, array.name) for contract in contracts)
        if injective:
            numbers = low + rng.permutation(max(high - low, count))[:count]
        elif high <= low:
            numbers = np.zeros(count, np.int64)
        else:
            numbers = rng.integers(low, high, count)
        values: Integers = numbers.astype(np.int64).reshape(shape)
        if values.ndim and self._is_in_order(array.name):
            values = np.sort(values, axis=-1)
            if values.shape[-1] > 2:
                # Two that are equal are worth trying: a range between them is empty.
                at = 1 + number % (values.shape[-1] - 2)
                values[..., at] = values[..., at - 1]
        return values

    def _range(self, array: Array, scale: float) -> tuple[int, int]:
        if array.value_range is not None:
            ends = [Evaluator(self.sizes).index(end, {}) for end in array.value_range]
            return ends[0], ends[1]
        high = min(self._subscripted_extents(array.name), default=self._loop_high(array.name))
        return 0, max(1, int(high * scale))

    def _subscripted_extents(self, name: str) -> Iterator[int]:
        """Yield the extents of the dimensions that elements of an array are subscripts of."""
        for access, dimension, index in self._subscripts():
            known = self.known.get(access.array, ())
            extent = known[dimension] if dimension < len(known) else None
            if extent is not None and any(term.array == name for term in opaque_terms(index)):
                yield extent

    def _subscripts(self) -> Iterator[tuple[Access, int, Index]]:
        for place in placed(self.program):
            for relation in accesses(place.node):
                for dimension, subscript in enumerate(relation.access.subscripts):
                    if not isinstance(subscript, Whole):
                        yield relation.access, dimension, subscript

    def _loop_high(self, name: str) -> int:
        """Return how far an array may go that stands in the bounds of a loop."""

        def bounds(loop: Loop) -> bool:
            ends = loop.range.ends
            return any(term.array == name for end in ends for term in opaque_terms(end))

        if any(bounds(loop) for loop in loops(self.program)):
            small = [value for value in self.sizes.values() if value >= 0]
            return max(small, default=DEFAULT_HIGH - 1) + 1
        return DEFAULT_HIGH

    def _fits(self, wanted: list[Array], found: Mapping[str, Integers]) -> bool:
        """Tell whether declared ranges hold and no subscript leaves an array of known shape."""
        for array in wanted:
            if array.value_range is not None:
                low, high = self._range(array, 1.0)
                values = found[array.name]
                if values.size and (values.min() < low or values.max() >= high):
                    return False
        known = {**self.known, **{name: values.shape for name, values in found.items()}}
        if stays_inside(self.program, self.sizes, self._with_given(found), known):
            return True
        for name, box in self._boxes(found).extents.items():
            for touched, extent in zip(box, known.get(name, ()), strict=False):
                if extent is not None and touched > extent:
                    return False
        return True
