"""Rows that are divided among sequences: those of b lie between `cu[b]` and `cu[b + 1]`.

Where `cu` never falls, two sequences have no row in common. Contracts say so; what they say of the
lengths of sequences counts as well:

    cu[b] <= cu[b + 1]                range(cu[b], cu[b + 1]) is rows of b
    cu[b] + n[b] <= cu[b + 1]         and so is range(cu[b], cu[b] + n[b])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from looptrans.ir.affine import Form, form_of, is_same, sides, simplified, total
from looptrans.ir.index import Index, Int, Opaque, Var, substitute
from looptrans.ir.listing import contract_text
from looptrans.ir.program import Program
from looptrans.ir.rising import is_positive, rises
from looptrans.ir.value import Range


@dataclass(frozen=True, slots=True)
class Segments:
    """What contracts say of an array of ends.

    Attributes:
        ends: The array.
        count: How many sequences there are.
        variable: What `lengths` calls a sequence.
        lengths: How many rows a sequence has room for, besides all up to the next one.
        contracts: The contracts, as written.
    """

    ends: str
    count: Index
    variable: str
    lengths: tuple[Form, ...]
    contracts: tuple[str, ...]

    def is_inside(self, stop: Index, sequence: str) -> bool:
        """Tell whether rows up to `stop` are none of the next sequence."""
        if is_same(stop, Opaque(self.ends, (total(Var(sequence), 1),))):
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


def segments_of(program: Program) -> dict[str, Segments]:
    """Return the arrays that never fall from their first element on, by contract."""
    least = {a.name: a.value_range[0] for a in program.arrays if a.value_range is not None}
    found: dict[str, Segments] = {}
    lengths = []
    for contract in program.contracts:
        for rise in rises(contract):
            if simplified(rise.range.start) != Int(0):
                continue
            if is_positive(rise.least, least) and rise.array not in found:
                own, text = rise.range.stop, contract_text(contract)
                found[rise.array] = Segments(rise.array, own, rise.variable, (), (text,))
            if rise.least.terms:
                lengths.append((rise, contract_text(contract)))
    for rise, text in lengths:
        known = found.get(rise.array)
        if known is None or not is_same(known.count, rise.range.stop):
            continue
        named = {rise.variable: Var(known.variable)}
        terms = {substitute(term, named): n for term, n in rise.least.terms.items()}
        more = (*known.lengths, Form(terms, rise.least.constant))
        texts = tuple(dict.fromkeys((*known.contracts, text)))
        found[rise.array] = Segments(known.ends, known.count, known.variable, more, texts)
    return found


def rows_of(bounds: Range, known: Mapping[str, Segments]) -> Rows | None:
    """Return the sequence whose rows a range has, all of them or some."""
    return next(_rows_of(bounds, known), None) if bounds.step == 1 else None


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
