"""The value-based flow of programs that are much alike, as the steps of a derivation are.

What a read of A gets is decided by the statements that access A, the loops and guards around them,
by what writes the data that those guards test, and by what is known of sizes and of integers: the
extents of all arrays, which are not negative, the declared ranges of values, and the contracts.
Where these are the same in two programs, the flow over A is the same, and is found once. All of it
is asked of whole programs; nothing is left out of what the analysis sees.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from looptrans.analysis import api
from looptrans.analysis.budget import DEFAULT_SECONDS
from looptrans.analysis.isl_model.shapes import Shapes, shapes_of
from looptrans.analysis.statements import reported
from looptrans.ir.facts import Dependence, DependenceReport
from looptrans.ir.index import Index
from looptrans.ir.program import Assign, Barrier, Contract, If, Node, Parameter, Program
from looptrans.ir.rewrite import with_blocks
from looptrans.ir.value import arrays_tested
from looptrans.ir.walk import Placed, accesses, inner_bodies, placed


@dataclass(frozen=True, slots=True)
class _Key:
    """All that decides on the flow over an array.

    Attributes:
        array: The array.
        body: What is left of the program without the statements that say nothing of it.
        shapes: The extents of the arrays that these access.
        extents: The extents of all arrays, which are not negative.
        ranges: The declared ranges of values, by array.
        parameters: The parameters.
        contracts: The contracts.
    """

    array: str
    body: tuple[Node, ...]
    shapes: tuple[tuple[str, tuple[Index | None, ...]], ...]
    extents: frozenset[Index | None]
    ranges: tuple[tuple[str, tuple[Index, Index]], ...]
    parameters: tuple[Parameter, ...]
    contracts: tuple[Contract, ...]


MOST = 4096
"""How many arrays' flows are kept before all are forgotten."""
_known: dict[_Key, tuple[Dependence, ...]] = {}


@lru_cache(maxsize=8)
def flow_of(
    program: Program, budget: float = DEFAULT_SECONDS, array: str | None = None
) -> DependenceReport:
    """Return which read gets the value of which write, without examples.

    Args:
        program: The program.
        budget: Seconds for what is not known from other programs; where they do not suffice, the
            report says so.
        array: The only array that is asked about; by default all are.
    """
    if len(_known) > MOST:
        _known.clear()
    keys = _keys(program, array)
    unknown = [name for name, key in keys.items() if key not in _known]
    if unknown:
        report = api.dependences(
            program,
            bases=("value",),
            kinds=("flow",),
            arrays=unknown,
            witnesses=False,
            budget=budget,
        )
        if report.unknown is not None:
            return report
        for name in unknown:
            own = (each for each in report.dependences if each.array == name)
            _known[keys[name]] = tuple(own)
    places = {place.label: place for place in placed(program)}
    numbers = {label: number for number, label in enumerate(places)}
    order = {array.name: number for number, array in enumerate(program.arrays)}
    found = [_here(each, places) for key in keys.values() for each in _known[key]]
    found.sort(key=lambda each: (numbers[each.source], numbers[each.sink], order[each.array]))
    return reported(program, found)


def _here(each: Dependence, places: dict[str, Placed]) -> Dependence:
    """Return a dependence with the line that its loop stands on in this program."""
    if each.carried_by is None:
        return each
    around = reversed(places[each.source].loops)
    line = next(loop.span.line for loop in around if loop.variable == each.carried_by)
    return each if line == each.carried_line else replace(each, carried_line=line)


def _keys(program: Program, only: str | None) -> dict[str, _Key]:
    """Return what decides on the flow over each array that is written, or over one of them."""
    touched: dict[str, dict[str, None]] = {}
    tested: dict[str, set[str]] = {}
    written: dict[str, None] = {}
    for place in placed(program):
        relations = accesses(place.node)
        touched[place.label] = dict.fromkeys(relation.access.array for relation in relations)
        written |= dict.fromkeys(r.access.array for r in relations if r.is_write)
        tested[place.label] = set().union(*map(arrays_tested, place.conditions))
        if any(relation.is_may for relation in relations):
            tested[place.label] |= touched[place.label].keys()
    shapes = shapes_of(program)
    asked = [array for array in written if only in (None, array)]
    return {array: _key(program, array, touched, tested, shapes) for array in asked}


def _key(
    program: Program,
    array: str,
    touched: dict[str, dict[str, None]],
    tested: dict[str, set[str]],
    shapes: Shapes,
) -> _Key:
    arrays, known = {array}, set[str]()
    while arrays != known:
        known = set(arrays)
        labels = {label for label, names in touched.items() if names.keys() & known}
        arrays |= set().union(*(tested[label] for label in labels))
    accessed = {name for label in labels for name in touched[label]}
    return _Key(
        array,
        _only(program.body, labels),
        tuple((name, shape) for name, shape in shapes.items() if name in accessed),
        frozenset(extent for shape in shapes.values() for extent in shape),
        tuple((a.name, a.value_range) for a in program.arrays if a.value_range is not None),
        program.parameters,
        program.contracts,
    )


def _only(body: Iterable[Node], labels: set[str]) -> tuple[Node, ...]:
    """Return some statements of a block with the loops and guards around them."""
    found: list[Node] = []
    for node in body:
        if isinstance(node, Barrier) or (isinstance(node, Assign) and node.label in labels):
            found.append(node)
        if not inner_bodies(node):
            continue
        (inner,) = with_blocks((node,), lambda block: _only(block, labels))
        if any(inner_bodies(inner)) or (isinstance(node, If) and node.label in labels):
            found.append(inner)
    return tuple(found)
