"""One iteration of the loops around what a step changes, as a pair of programs of its own.

In it the variables of those loops are numbers that are given, and so are the opaque terms that
mention nothing else, and multiples of them by sizes:

    for r: for p in range(n[r]): S      is      for p in range("n[r]"): S      for any "n[r]"

All arrays come from outside and are seen afterwards, but those that the step has put in. So a step
that is right in one iteration, for all such numbers within the loops, is right in all of them,
whose order is what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from looptrans.analysis.legality.correspondence import Correspondence
from looptrans.ir.condition import Comparison, Relation
from looptrans.ir.evaluate import evaluate
from looptrans.ir.index import Index, Let, Opaque, Param, Var, children, rebuild, walk
from looptrans.ir.listing import index_text
from looptrans.ir.program import (
    Array,
    Assign,
    Atomic,
    Barrier,
    Contract,
    If,
    Loop,
    Node,
    Parameter,
    Program,
)
from looptrans.ir.rewrite import indices_changed
from looptrans.ir.step import Image, Images
from looptrans.ir.value import Create
from looptrans.ir.verdict import Witness
from looptrans.ir.walk import Placed, accesses, nodes, placed

Body = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class OneIteration:
    """What one iteration of the loops around a change does.

    Attributes:
        before: The program before the step.
        after: The program afterwards.
        images: What stands for what.
        given: The variables and terms that are numbers in it, by the names of these.
    """

    before: Program
    after: Program
    images: Images
    given: Mapping[str, Index]

    def supposed(self, witness: Witness) -> Witness:
        """Return an example in the one iteration as one of the whole program: what it supposes."""
        values = dict(witness.parameters)
        elements = {}
        for name, index in self.given.items():
            if isinstance(index, Opaque) and name in values:
                at = [evaluate(argument, values) for argument in index.arguments]
                if None not in at:
                    elements[f"{index.array}[{', '.join(map(str, at))}]"] = values[name]
        sizes = tuple((n, value) for n, value in witness.parameters if n not in self.given)
        return replace(witness, parameters=sizes, elements=tuple(sorted(elements.items())))


@dataclass(slots=True)
class _Changed:
    """The part of two programs that differs, and where it stands.

    Attributes:
        before: The part before.
        after: The part afterwards.
        around: The loops around it, which both have, outermost first.
        place: Where the loops stand in both.
    """

    before: Body
    after: Body
    around: list[Loop]
    place: tuple[int, ...]


def one_iteration(made: Correspondence) -> OneIteration | None:
    """Return one iteration of the loops that a step leaves alone; None if that says nothing new."""
    one, other = made.before.program, made.after.program
    part = _changed(one.body, other.body)
    outer = [loop.variable for loop in part.around]
    if not all(map(_is_plain, nodes((*part.before, *part.after)))) or _bound(part) & set(outer):
        return None
    given: dict[str, Index] = {}

    def change(index: Index) -> Index:
        return _fixed(index, frozenset(outer), given)

    bodies = indices_changed(part.before, change), indices_changed(part.after, change)
    multiples = made.before.normalizer.arithmetic or made.after.normalizer.arithmetic
    if not multiples and all(name in outer for name in given):
        return None
    names = {parameter.name for parameter in one.parameters}
    if names & given.keys():
        return None
    within = tuple(each for loop in part.around for each in _within(loop, change))
    more = tuple(Parameter(name, "size") for name in given)
    known = {array.name for array in one.arrays}
    first, second = (
        replace(
            program,
            parameters=(*program.parameters, *more),
            arrays=tuple(from_outside(a) if a.name in known else a for a in program.arrays),
            contracts=within,
            outputs=(),
            body=body,
        )
        for program, body in zip((one, other), bodies, strict=True)
    )
    images = _images(made, part, first, second, change)
    return None if images is None else OneIteration(first, second, images, given)


def _is_plain(node: Node) -> bool:
    """Tell whether a node needs nothing of the loops around the part it stands in."""
    if isinstance(node, Assign):
        return not any(isinstance(value, Create) for value in node.values)
    return not (isinstance(node, Barrier) or (isinstance(node, Atomic) and node.turn is not None))


def _bound(part: _Changed) -> set[str]:
    """Return the variables that something in a part binds."""
    found = set()
    for node in nodes((*part.before, *part.after)):
        if isinstance(node, Loop):
            found.add(node.variable)
        elif isinstance(node, Assign | If):
            found |= {g.variable for each in accesses(node) for g in each.generators}
    return found


def _changed(before: Body, after: Body) -> _Changed:
    part = _Changed(before, after, [], ())
    while len(part.before) == len(part.after):
        unlike = [n for n, each in enumerate(part.before) if each != part.after[n]]
        if len(unlike) != 1:
            break
        one, other = part.before[unlike[0]], part.after[unlike[0]]
        if not (isinstance(one, Loop) and isinstance(other, Loop)):
            break
        if replace(one, body=()) != replace(other, body=()):
            break
        part = _Changed(one.body, other.body, [*part.around, one], (*part.place, unlike[0]))
    return part


def _fixed(index: Index, outer: frozenset[str], given: dict[str, Index]) -> Index:
    """Put numbers in for variables, and for opaque terms that mention only these."""
    name = ""
    if isinstance(index, Var) and index.name in outer:
        name = index.name
    elif isinstance(index, Opaque) and not any(
        isinstance(node, Let) or (isinstance(node, Var) and node.name not in outer)
        for node in walk(index)
    ):
        name = index_text(index)
    if name:
        given[name] = index
        return Param(name)
    operands = children(index)
    return rebuild(index, tuple(_fixed(each, outer, given) for each in operands))


def _within(loop: Loop, change: Callable[[Index], Index]) -> tuple[Contract, Contract]:
    """Say that the variable of a loop lies within its range."""
    limits = loop.range
    ends: tuple[Comparison, Comparison] = (">=", "<") if limits.step > 0 else ("<=", ">")
    variable = change(Var(loop.variable))
    return (
        Contract(Relation(ends[0], variable, change(limits.start))),
        Contract(Relation(ends[1], variable, change(limits.stop))),
    )


def from_outside(array: Array) -> Array:
    """Return an array as one that is given, and seen afterwards."""
    shape = array.shape if array.role == "input" else (None,) * array.rank
    return replace(array, role="input", shape=shape)


def _images(
    made: Correspondence,
    part: _Changed,
    first: Program,
    second: Program,
    change: Callable[[Index], Index],
) -> Images | None:
    """Return what stands for what; None where an instance stands for one of another iteration."""
    outer = {loop.variable: Var(loop.variable) for loop in part.around}
    inside = _labels(made.before.program, part, first), _labels(made.after.program, part, second)
    found = {}
    for pair in made.pairs:
        image, label = inside[0].get(pair.before.label), inside[1].get(pair.after.label)
        own = {bound.variable: Var(bound.variable) for bound in pair.before.bounds}
        if image is None and label is None:
            if pair.after.label != pair.before.label or pair.values != own:
                return None
            continue
        if image is None or label is None:
            return None
        if any(pair.values.get(name) != variable for name, variable in outer.items()):
            return None
        values = [pair.values.get(name) for name in own if name not in outer]
        if any(isinstance(n, Opaque) for v in values if v is not None for n in walk(v)):
            return None
        indices = tuple(None if value is None else change(value) for value in values)
        found[label] = Image(image, indices)
    return found


def _labels(program: Program, part: _Changed, inner: Program) -> dict[str, str]:
    """Return the labels of what stands in a part, to those it has there alone."""

    def stands_inside(place: Placed) -> bool:
        return place.position[: len(part.place)] == part.place

    own = [place.label for place in placed(program) if stands_inside(place)]
    return dict(zip(own, (place.label for place in placed(inner)), strict=True))
