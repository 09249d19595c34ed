"""Subscripts of two digits, seen as two subscripts.

    Y[i, g * R + r] = …        for g in range(G), for r in range(R)        ->    Y[i, g, r] = …
    … K[page[b, j // P] * P + j % P]       page: Int[Array, "B T", "0:C"]  ->    K[page[…], j % P]

Seen so, which iteration writes a cell, or reads one, is told from its subscripts. It is done for
arrays each of whose subscripts in a dimension of extent G * R is of this form; a digit may be a
number, a remainder, an integer that is read and has a declared range, the last of a row, or what
stays below another digit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from looptrans.adjoint.layouts.block_ends import within_ends
from looptrans.adjoint.layouts.row_products import with_products_as_sums
from looptrans.adjoint.layouts.views import Use, created, shaped
from looptrans.adjoint.layouts.whole_digits import (
    InTwo,
    Pair,
    as_before,
    divided_pairs,
    is_covered,
    joined_again,
    pairs_of,
)
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.frontend import parse
from looptrans.ir.affine import difference, extremum, is_same, shifted, simplified
from looptrans.ir.condition import Condition, Relation
from looptrans.ir.index import Arith, Index, Int, Opaque, Var, variables, walk
from looptrans.ir.listing import listing
from looptrans.ir.program import Array, Assign, Program
from looptrans.ir.rewrite import with_accesses
from looptrans.ir.source import Source
from looptrans.ir.value import Access, Range, Subscript, Whole
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import accesses, live_out, placed

MOST_NUMBERS = 8


@dataclass(frozen=True, slots=True)
class Digits:
    """A subscript `high * radix + low`, where `0 <= low < radix` and `0 <= high < count`.

    Attributes:
        high: The high digit.
        low: The low digit.
        count: Where the high digit ends.
        radix: Where the low digit ends.
        extent: What the listing calls `count * radix`, or where its last block ends.
    """

    high: Index
    low: Index
    count: Index
    radix: Index
    extent: Index

    @property
    def is_ragged(self) -> bool:
        """Whether the last low digits end before the radix does, perhaps."""
        return is_covered(self.extent, self.count, self.radix)

    def has_extents_of(self, other: Digits) -> bool:
        """Tell whether another subscript has the same two extents."""
        return is_same(self.count, other.count) and is_same(self.radix, other.radix)


Ranges = Mapping[str, tuple[Range, ...]]
"""For each variable, the ranges of all that are called so."""

# For each array, the dimensions that are seen as two, and one subscript there.
Views = Mapping[str, Mapping[int, Digits]]


@dataclass(frozen=True, slots=True)
class Parted:
    """A listing with subscripts of two digits, and how it is seen.

    Attributes:
        listing: The listing.
        program: The listing as it is seen.
        views: How its arrays are seen.
        pairs: The loops over all of a dimension that are two there.
    """

    listing: Program
    program: Program
    views: Views
    pairs: Mapping[tuple[str, str], Pair]

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "a number below G * R has one way to be g * R + r with r below R"
        reason = "the ranges of the digits are those of the loops around, and what is left is text"
        return Certificate("storage", law, "legal", reason)

    def back(self, program: Program, alike: Mapping[str, str]) -> Program:
        """Take the view back in a listing made of the one that is seen.

        Args:
            program: The listing.
            alike: Arrays that are not in the listing itself, and the array each is seen like.
        """
        # What is worked out again is so in whole blocks.
        again = {a.name for a in program.arrays if a.role == "local"} - {*live_out(program)}
        found = self._unseen(program, alike, again)
        return replace(found, body=joined_again(found.body, self.pairs))

    def forward(self, program: Program) -> Program:
        """Take the view back in the listing that hands over more, its loops as they were."""
        found = self._unseen(program, {}, ())
        body = as_before(found.body, self.pairs)
        return replace(found, body=joined_again(body, self.pairs))

    def _unseen(
        self, program: Program, alike: Mapping[str, str], again: Collection[str]
    ) -> Program:
        """Return a listing with the subscripts of one digit that the listing itself has."""
        views = {
            name: view
            for name, view in self.views.items()
            if name not in again or not _is_ragged(view)
        }
        views |= {new: self.views[old] for new, old in alike.items() if old in self.views}

        # What is worked out again where it is read is a number there, and no array.
        ranks = {array.name: array.rank for array in self.program.arrays}
        ranks |= {new: ranks[old] for new, old in alike.items() if old in ranks}
        here = {array.name: array.rank for array in program.arrays}
        views = {name: view for name, view in views.items() if here.get(name) == ranks[name]}

        # What is returned has the shape of its argument, or that under which it is handed over.
        fixed = {*views, *live_out(program)}
        for array in program.arrays:
            if array.role == "local" and array.name not in fixed:
                own = dict(self._made(array))
                views |= {array.name: own} if own else {}

        def merged(access: Access) -> Access:
            found = list(access.subscripts)
            for dimension in sorted(views.get(access.array, ())):
                high, low = found[dimension : dimension + 2]
                if isinstance(high, Whole) or isinstance(low, Whole):
                    raise NotDifferentiated(f"rows of {access.array} are read whole")
                radix = views[access.array][dimension].radix
                found[dimension : dimension + 2] = [_joined(high, radix, low)]
            return replace(access, subscripts=tuple(found))

        def extents(array: Array) -> tuple[Index, ...] | None:
            if array.name not in views or None in array.shape:
                return None
            shape = [extent for extent in array.shape if extent is not None]
            for dimension in sorted(views[array.name]):
                shape[dimension : dimension + 2] = [views[array.name][dimension].extent]
            return tuple(shape)

        found = _shown(program, merged, extents)
        ragged = {name for name, view in views.items() if _is_ragged(view)}
        return within_ends(found, ragged, self.listing) if ragged else found

    def _made(self, array: Array) -> Iterator[tuple[int, Digits]]:
        """Yield the dimensions of an array that are two of those that loops were made two for."""
        extents = list(zip(array.shape, array.shape[1:], strict=False))
        for number, (high, low) in enumerate(extents):
            if high is None or low is None:
                continue
            for pair in self.pairs.values():
                if pair.is_divided or pair.is_ragged:
                    continue
                if is_same(high, pair.count) and is_same(low, pair.radix):
                    yield number, Digits(Int(0), Int(0), pair.count, pair.radix, pair.whole.stop)
                    break


def parted(listed: Program) -> Parted | None:
    """Return a listing in which subscripts of two digits are two; None where none is written."""
    by_elements = with_products_as_sums(listed)
    in_two = _in_two(by_elements)
    program = by_elements if in_two is None else in_two.run()
    views: dict[str, dict[int, Digits]] = {}
    made = {t.array for p in placed(program) if isinstance(p.node, Assign) for t in p.node.targets}
    for array in program.arrays:
        found = {d: view for d in range(array.rank) if (view := _view(program, array, d))}
        if found:
            views[array.name] = found
    # An array that is read needs it where a digit is no loop's variable: those are solved for.
    plain = {name for name, each in views.items() if all(map(_is_of_loops, each.values()))}
    if not (made & set(views) or set(views) - plain or divided_pairs(by_elements)):
        return None
    around, declared = _ranges(program), _declared(program)

    def seen(access: Access, ranges: Ranges) -> Access:
        found: list[Subscript] = list(access.subscripts)
        for dimension, view in sorted(views.get(access.array, {}).items(), reverse=True):
            index = access.subscripts[dimension]
            assert not isinstance(index, Whole)
            each = _digits(index, view.extent, ranges, program.stated, declared)
            digits = next(d for d in each if d.has_extents_of(view))
            found[dimension : dimension + 1] = [digits.high, digits.low]
        return replace(access, subscripts=tuple(found))

    def extents(array: Array) -> tuple[Index, ...] | None:
        if array.name not in views:
            return None
        shape = [extent for extent in array.shape if extent is not None]
        for dimension, view in sorted(views[array.name].items(), reverse=True):
            shape[dimension : dimension + 1] = [view.count, view.radix]
        return tuple(shape)

    changed = _shown(program, lambda access: seen(access, around), extents)
    again = parse(Source(f"<{program.name}>", listing(changed)))
    return Parted(listed, again, views, {} if in_two is None else in_two.made)


def _in_two(program: Program) -> InTwo | None:
    """Return what makes loops over all of a dimension two where digits write it."""
    declared = _declared(program)

    def is_extent(stop: Index, extent: Index) -> bool:
        said = _said_to_be(extent, program.stated)
        return is_same(stop, extent) or any(is_same(stop, each) for each in said)

    def ways(use: Use, index: Index, extent: Index) -> list[tuple[Index, Index]]:
        around = {name: (own,) for name, own in use.around.items()}
        each = _digits(index, extent, around, program.stated, declared)
        return [(digits.count, digits.radix) for digits in each]

    pairs = divided_pairs(program) or pairs_of(program, is_extent, ways)
    return InTwo(program, pairs, {}) if pairs else None


def _ranges(program: Program) -> dict[str, tuple[Range, ...]]:
    """Return the ranges of each variable: those of all the loops and sums of that name."""
    found: dict[str, dict[Range, None]] = {}
    for place in placed(program):
        each = [(loop.variable, loop.range) for loop in place.loops]
        for relation in accesses(place.node):
            each += [(g.variable, g.range) for g in relation.generators]
        for name, own in each:
            found.setdefault(name, {})[own] = None
    return {name: tuple(own) for name, own in found.items()}


def _view(program: Program, array: Array, dimension: int) -> Digits | None:
    """Return the digits in which all subscripts of an array are seen in a dimension."""
    extent = array.shape[dimension]
    if array.element != "float" or extent is None or None in array.shape:
        return None
    ranges, declared = _ranges(program), _declared(program)
    uses = [
        relation.access.subscripts
        for place in placed(program)
        for relation in accesses(place.node)
        if relation.access.array == array.name
    ]
    if not uses or any(len(use) != array.rank for use in uses):
        return None
    each: list[list[Digits]] = []
    for use in uses:
        index = use[dimension]
        if isinstance(index, Whole):
            return None
        each.append(list(_digits(index, extent, ranges, program.stated, declared)))
    for first in each[0]:
        if all(any(first.has_extents_of(d) for d in other) for other in each):
            return first
    return None


def _declared(program: Program) -> dict[str, Index]:
    """Return what integers that are read are below, where they are said to be no less than 0."""
    return {
        array.name: array.value_range[1]
        for array in program.arrays
        if array.value_range is not None and is_same(array.value_range[0], Int(0))
    }


def _is_ragged(view: Mapping[int, Digits]) -> bool:
    return any(digits.is_ragged for digits in view.values())


def _is_of_loops(view: Digits) -> bool:
    return all(isinstance(digit, Var | Int) for digit in (view.high, view.low))


def _digits(
    index: Index,
    extent: Index,
    ranges: Ranges,
    stated: Iterable[Condition],
    declared: Mapping[str, Index],
) -> Iterator[Digits]:
    """Yield the ways to read a subscript as two digits."""
    extents = [extent, *_said_to_be(extent, stated)]
    own: list[tuple[Index, Index]] = [
        (Var(name), stop) for name in variables(index) for stop in _stops(ranges, name)
    ]
    for part in dict.fromkeys(walk(index)):
        match part:
            case Opaque(array) if array in declared:
                own.append((part, declared[array]))
            case Arith("%", _, radix):
                own.append((part, radix))
            case _:
                pass
    for high, count in own:
        for radix in _blocks_in(extent, count):
            # The first and the last of each block, which may end where the array does.
            last = simplified(Arith("-", radix, Int(1)))
            behind = difference(difference(extent, Int(1)), Arith("*", high, radix))
            for low in (Int(0), extremum("min", (last, behind))):
                if is_same(index, shifted(low, Arith("*", high, radix))):
                    yield Digits(high, low, count, radix, extent)
    for low, radix in own:
        for high, count in own:
            whole = simplified(Arith("*", count, radix))
            read = high != low and is_same(index, _joined(high, radix, low))
            fits = any(is_same(each, whole) for each in extents)
            if read and (fits or is_covered(extent, count, radix)):
                yield Digits(high, low, count, radix, extent)
    if len(own) != 1:
        return
    ((digit, stop),) = own
    # The first and the last of a row, which has one where it is looked at.
    for radix in _quotients(extents, stop):
        for low in (Int(0), simplified(Arith("-", radix, Int(1)))):
            if is_same(index, _joined(digit, radix, low)):
                yield Digits(digit, low, stop, radix, extent)
    for numbers in range(2, MOST_NUMBERS + 1):
        whole = simplified(Arith("*", Int(numbers), stop))
        fits = any(is_same(each, whole) for each in extents)
        if fits or is_covered(extent, stop, Int(numbers)):
            for number in range(numbers):
                if fits and is_same(index, _joined(Int(number), stop, digit)):
                    yield Digits(Int(number), digit, Int(numbers), stop, extent)
                if is_same(index, _joined(digit, Int(numbers), Int(number))):
                    yield Digits(digit, Int(number), stop, Int(numbers), extent)


def _blocks_in(extent: Index, count: Index) -> Iterator[Index]:
    """Yield how long blocks are that a count of them covers an extent with."""
    match count:
        case Arith("//", _, radix) if is_covered(extent, count, radix):
            yield radix
        case _:
            pass


def _quotients(extents: Iterable[Index], count: Index) -> Iterator[Index]:
    """Yield what an extent is a multiple of that is written as the product with a count."""
    for extent in extents:
        match extent:
            case Arith("*", left, right) if is_same(left, count):
                yield right
            case Arith("*", left, right) if is_same(right, count):
                yield left
            case _:
                pass


def _said_to_be(extent: Index, stated: Iterable[Condition]) -> Iterator[Index]:
    """Yield what contracts say an extent is the same as.

    It is G * R, where `assert H == G * R`, and E // 2 * 2, where `assert E % 2 == 0`.
    """
    for condition in stated:
        match condition:
            case Relation("==", Arith("%", whole, radix), Int(0)):
                if is_same(whole, extent):
                    yield Arith("*", Arith("//", whole, radix), radix)
            case Relation("==", left, right):
                if is_same(left, extent):
                    yield right
                elif is_same(right, extent):
                    yield left
            case _:
                pass


def _stops(ranges: Ranges, name: str, within: frozenset[str] = frozenset()) -> list[Index]:
    """Return what a variable that is no less than 0 stays below, in whichever of its loops."""
    each = [_stops_in(own, ranges, within | {name}) for own in ranges.get(name, ())]
    first, *others = each or [[]]
    return [stop for stop in first if all(any(is_same(stop, e) for e in other) for other in others)]


def _stops_in(own: Range, ranges: Ranges, within: frozenset[str]) -> list[Index]:
    if own.step != 1 or not _is_natural(own.start, ranges):
        return []
    found = [own.stop]
    # for r in range(R): for s in range(r + 1)      s < R
    for other in variables(own.stop):
        ahead = difference(own.stop, Var(other))
        if isinstance(ahead, Int) and ahead.value <= 1 and other not in within:
            found += _stops(ranges, other, within)
    return found


def _is_natural(index: Index, ranges: Ranges) -> bool:
    """Tell whether a number, or a variable of a loop upwards and a number, is no less than 0."""
    for name in variables(index):
        each, more = ranges.get(name, ()), difference(index, Var(name))
        natural = each and all(own.step == 1 and is_same(own.start, Int(0)) for own in each)
        return bool(natural) and isinstance(more, Int) and more.value >= 0
    return isinstance(index, Int) and index.value >= 0


def _joined(high: Index, radix: Index, low: Index) -> Index:
    return simplified(shifted(low, Arith("*", high, radix)))


def _shown(
    program: Program,
    change: Callable[[Access], Access],
    extents: Callable[[Array], tuple[Index, ...] | None],
) -> Program:
    """Return a program with other subscripts and extents."""
    shapes = {a.name: found for a in program.arrays if (found := extents(a)) is not None}
    arrays = tuple(
        replace(shaped(a, shapes.get(a.name)), rank=len(shapes[a.name]), shape=shapes[a.name])
        if a.name in shapes
        else a
        for a in program.arrays
    )
    body = created(with_accesses(program.body, change), shapes)
    return replace(program, arrays=arrays, body=body)
