"""Rows that are divided among sequences: those of b lie between `cu[b]` and `cu[b + 1]`.

Where `cu` never falls, two sequences have no row in common. Contracts say so; what they say of the
lengths of sequences counts as well, and of rows that begin and end where two arrays say:

    cu[b] <= cu[b + 1]                    range(cu[b], cu[b + 1]) is rows of b
    cu[b] + n[b] <= cu[b + 1]             and so is range(cu[b], cu[b] + n[b])
    start[b] <= stop[b] <= start[b + 1]   range(start[b], stop[b]) is rows of b
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from looptrans.ir.affine import Form, form_of, is_same, sides, simplified, total
from looptrans.ir.condition import compared
from looptrans.ir.index import Index, Int, Opaque, Var, opaque_terms, plain, substitute
from looptrans.ir.listing import contract_text, index_text
from looptrans.ir.program import Loop, Node, Program
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.remember import remembered
from looptrans.ir.rising import Rise, rises, why_positive
from looptrans.ir.value import Range
from looptrans.ir.walk import accesses, inner_bodies, placed
from looptrans.transforms.rows.shift import with_rows_in_place


@dataclass(frozen=True, slots=True)
class Segments:
    """What contracts say of an array of ends.

    Attributes:
        ends: The array.
        count: How many sequences there are.
        variable: What `lengths` calls a sequence.
        lengths: How many rows a sequence has room for, besides all up to the next one.
        contracts: The contracts, as written.
        last: Up to which element the array never falls; None where it may.
    """

    ends: str
    count: Index
    variable: str
    lengths: tuple[Form, ...]
    contracts: tuple[str, ...]
    last: Index | None

    @property
    def has_next(self) -> bool:
        """Whether every sequence has all rows up to the next one, the last one as well."""
        return self.last is not None and is_same(self.last, self.count)

    def is_inside(self, stop: Index, sequence: str) -> bool:
        """Tell whether rows up to `stop` are none of the next sequence."""
        if self.has_next and is_same(stop, Opaque(self.ends, (total(Var(sequence), 1),))):
            return True
        form = form_of(stop).plus(Form({Opaque(self.ends, (Var(sequence),)): 1}), -1)
        named = {self.variable: Var(sequence)}
        for length in self.lengths:
            own = {substitute(term, named): n for term, n in length.terms.items()}
            if form == Form(own, length.constant):
                return True
        return False


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a sequence, as a range says them.

    Attributes:
        ends: The array of ends.
        sequence: The variable of the sequence.
        stop: Where its rows end.
    """

    ends: str
    sequence: str
    stop: Index

    @property
    def start(self) -> Index:
        """Where its rows begin."""
        return Opaque(self.ends, (Var(self.sequence),))

    def of(self, sequence: str) -> Range:
        """Return the rows of a sequence that is called differently."""
        named = {self.sequence: Var(sequence)}
        return Range(substitute(self.start, named), substitute(self.stop, named))


@remembered
def segments_of(program: Program) -> dict[str, Segments]:
    """Return the arrays that never fall from their first element on, by contract.

    So are those that may fall, where a contract says of every two sequences that they are apart.
    """
    least = {a.name: a.value_range[0] for a in program.arrays if a.value_range is not None}
    stated = [(rise, c) for c in program.contracts for rise in rises(c)]
    stated = [(rise, c) for rise, c in stated if simplified(rise.range.start) == Int(0)]
    found: dict[str, Segments] = {}
    for rise, contract in stated:
        why = why_positive(rise, program.contracts, least)
        if why is not None and rise.array not in found:
            texts = tuple(dict.fromkeys(contract_text(each) for each in (contract, *why)))
            last = rise.range.stop
            count = _count(program, rise)
            found[rise.array] = Segments(rise.array, count, rise.variable, (), texts, last)
    for rise, contract in stated:
        if rise.is_far and rise.least.terms and rise.array not in found:
            count = _count(program, rise)
            found[rise.array] = Segments(rise.array, count, rise.variable, (), (), None)
        known = found.get(rise.array)
        if not rise.least.terms or known is None or not is_same(known.count, _count(program, rise)):
            continue
        if known.last is None and not rise.is_far:
            continue
        named = {rise.variable: Var(known.variable)}
        terms = {substitute(term, named): n for term, n in rise.least.terms.items()}
        more = (*known.lengths, Form(terms, rise.least.constant))
        texts = tuple(dict.fromkeys((*known.contracts, contract_text(contract))))
        found[rise.array] = replace(known, lengths=more, contracts=texts)
    return found


def _count(program: Program, rise: Rise) -> Index:
    """Return how many sequences there are whose first rows an array says.

    There may be one more than the array is known to rise: nothing has to be told of the rows behind
    the last one.
    """
    one_more = total(rise.range.stop, 1)
    for place in placed(program):
        around = ranges_by_name(place.loops)
        for relation in accesses(place.node):
            ranges = around | ranges_by_name(relation.generators)
            ends = [end for bounds in ranges.values() for end in bounds.ends]
            guards = (*place.conditions, *(g.condition for g in relation.generators))
            for index in (
                *ends,
                *chain.from_iterable(map(compared, guards)),
                *relation.access.indices,
            ):
                for term in opaque_terms(index):
                    match term:
                        case Opaque(rise.array, (Var(name),)) if name in ranges:
                            if is_same(ranges[name].stop, one_more):
                                return one_more
                        case _:
                            pass
    return rise.range.stop


def rows_of(bounds: Range, known: Mapping[str, Segments]) -> Rows | None:
    """Return the sequence whose rows a range has, all of them or some."""
    ends = Range(plain(bounds.start), plain(bounds.stop))
    return next(_rows_of(ends, known), None) if bounds.step == 1 else None


def _rows_of(bounds: Range, known: Mapping[str, Segments]) -> Iterator[Rows]:
    for low in sides("max", bounds.start):
        match low:
            case Opaque(name, (Var(sequence),)) if name in known:
                for high in sides("min", bounds.stop):
                    if known[name].is_inside(high, sequence):
                        yield Rows(name, sequence, simplified(high))
            case _:
                pass


def is_over_all(bounds: Range, segments: Segments) -> bool:
    """Tell whether a range goes over all sequences."""
    whole = bounds.step == 1 and simplified(bounds.start) == Int(0)
    return whole and is_same(bounds.stop, segments.count)


def missing_contracts(program: Program) -> tuple[tuple[str, str], ...]:
    """Return the contracts without which the rows of two sequences may be the same.

    Those are of ranges that look like rows of a sequence, `range(cu[b], cu[b + 1])`, also written
    `cu[b] + j`, where no contract says that they are.

    Returns:
        The variable of the sequence and the contract, as one writes it, each once.
    """
    counted = with_rows_in_place(program)
    body = program.body if counted is None else counted.program.body
    known = segments_of(program)
    found: dict[tuple[str, str], None] = {}

    def visit(body: tuple[Node, ...], around: dict[str, Range]) -> None:
        for node in body:
            if isinstance(node, Loop):
                _add_missing(program, node.range, around, known, found)
            inside = around | {node.variable: node.range} if isinstance(node, Loop) else around
            for each in inner_bodies(node):
                visit(each, inside)

    visit(body, {})
    return tuple(found)


def _has_room(program: Program, ends: str) -> bool:
    """Tell whether a contract says that there is room between the elements of an array."""
    stated = (rise for contract in program.contracts for rise in rises(contract))
    return any(rise.array == ends and rise.least.terms for rise in stated)


def _add_missing(
    program: Program,
    bounds: Range,
    around: Mapping[str, Range],
    known: Mapping[str, Segments],
    found: dict[tuple[str, str], None],
) -> None:
    if bounds.step != 1 or rows_of(bounds, known) is not None:
        return
    for low in sides("max", bounds.start):
        if not isinstance(low, Opaque) or len(low.arguments) != 1:
            continue
        (sequence,) = low.arguments
        if not isinstance(sequence, Var) or sequence.name not in around:
            continue
        count = around[sequence.name].stop
        extent = program.array(low.array).shape[0]
        if extent is None or not any(is_same(extent, total(count, n)) for n in (0, 1)):
            continue
        steps = total(extent, -1)
        following = Opaque(low.array, (total(sequence, 1),))
        for high in sides("min", bounds.stop):
            length = form_of(high).plus(form_of(low), -1)
            alone = [term for term in length.terms if isinstance(term, Opaque)]
            said: tuple[Index, ...] = ()
            if is_same(high, following):
                said = (low, following) if low.array not in known else ()
            elif len(alone) != len(length.terms) or sequence not in alone[0].arguments:
                continue
            elif length.terms.get(low) == -1:
                # Of rows from one array to another it must be said as well that no end is too low.
                said = (low, high) if _has_room(program, low.array) else (low, high, following)
            elif low.array not in known:
                # Where the room is known, lengths that are negative are what is left.
                said = (low if _has_room(program, low.array) else high, following)
            if said:
                text = " <= ".join(index_text(each) for each in said)
                text = f"assert all({text} for {sequence.name} in range(0, {index_text(steps)}))"
                found[sequence.name, text] = None
                return
