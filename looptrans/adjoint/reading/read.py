"""A listing read as definitions, loops that carry more than sums by their closed forms."""

from __future__ import annotations

from dataclasses import replace

from looptrans.adjoint.normalizing.choices import with_choices
from looptrans.adjoint.normalizing.lets import with_indices_put_in
from looptrans.adjoint.normalizing.named_tests import with_tests_put_in
from looptrans.adjoint.normalizing.one_form import conditions_in_one_form
from looptrans.adjoint.reading.closing import Closing, Exchange, closings
from looptrans.adjoint.reading.reading import Reading, definitions_of
from looptrans.adjoint.reading.state import Position, Site
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.ir.program import Program
from looptrans.transforms.moved.powers import with_powers_of_two


def read(program: Program) -> tuple[Reading, tuple[Closing, ...]]:
    """Read a listing as definitions.

    Returns:
        The definitions, with the places of the listing as it is written; and the loops that were
        read by their closed forms.

    Raises:
        NotDifferentiated: It is no chain of values, sums, maxima and minima, and some loop that
            carries more has no closed form.
    """
    program = with_powers_of_two(with_tests_put_in(with_indices_put_in(program)))
    program = conditions_in_one_form(with_choices(program))
    try:
        return definitions_of(program), ()
    except NotDifferentiated as error:
        first = error
        made, reasons = closings(program)
        if not made:
            raise _because(error, reasons) from None
    try:
        reading = definitions_of(made[-1].after)
    except NotDifferentiated as error:
        error.within = made[-1].after
        own = error.of(program)
        # What a closed form is written with says nothing to the reader.
        raise _because(own if own.label else first, reasons) from None
    for each in reversed(made):
        reading = _back(reading, each.exchange)
    return reading, made


def _because(error: NotDifferentiated, reasons: tuple[str, ...]) -> NotDifferentiated:
    if not reasons:
        return error
    return NotDifferentiated(f"{error.reason}; no closed form: {'; '.join(reasons)}", error.label)


def _back(reading: Reading, exchange: Exchange) -> Reading:
    """Say where statements stood before a loop got its closed form.

    What the loop leaves in its state is there behind it; its other statements have no place.
    """
    # Of the versions of a state inside the closed form the loop as written leaves the last one.
    final: dict[str, Position] = {}
    for site in reading.sites.values():
        if exchange.back(site.position)[1]:
            final[site.array] = max(final.get(site.array, ()), site.position)
    sites = {}
    for name, site in reading.sites.items():
        found = _site(site, exchange)
        new = exchange.back(site.position)[1]
        if found is not None and not (new and site.position < final[site.array]):
            sites[name] = found
    return replace(reading, sites=sites)


def _site(site: Site, exchange: Exchange) -> Site | None:
    position, inside = exchange.back(site.position)
    if inside and site.array not in exchange.states:
        return None
    path = [exchange.back(p) for p in site.path]

    def index(at: Position | None) -> Position | None:
        if at is None:
            return None
        before, new = exchange.back(at)
        return None if new else before

    return replace(
        site,
        position=position,
        path=tuple(dict.fromkeys(p for p, _ in path)),
        indices=tuple(index(at) for at in site.indices),
    )
