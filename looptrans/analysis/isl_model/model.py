"""A Program as the analysis sees it: numbered statements and accesses, in normal form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from looptrans.analysis.isl_model.digits import Layout, in_digits
from looptrans.analysis.isl_model.formula import Notation, conjunction
from looptrans.analysis.isl_model.normal import Normalizer, not_negative
from looptrans.analysis.isl_model.shapes import Shapes, shapes_of
from looptrans.ir.condition import ALWAYS, Condition, Relation, approximated, compared, parts_of
from looptrans.ir.condition import conjunction as both
from looptrans.ir.index import Arith, Index, Int, Opaque, Param, Var, opaque_terms, parameters, walk
from looptrans.ir.program import Contract, Loop, Program
from looptrans.ir.rewrite import range_changed
from looptrans.ir.value import WHOLE, Generator, Range, Subscript, Whole
from looptrans.ir.walk import AccessRelation, Placed, accesses, placed


@dataclass(frozen=True, slots=True)
class Bound:
    """A variable and the range it runs over, in normal form."""

    variable: str
    range: Range


@dataclass(frozen=True, slots=True)
class StatementModel:
    """A statement with its domain in normal form.

    Attributes:
        number: Its place among the statements.
        place: Where it stands.
        bounds: Its loops.
        condition: Its guards, over-approximated where they depend on data.
        order: Its place among its siblings at each level: one more entry than there are loops.
        is_may: Whether a data-dependent guard surrounds it.
        terms: The opaque terms of its domain.
        sure: Its guards, under-approximated where they depend on data.
    """

    number: int
    place: Placed
    bounds: tuple[Bound, ...]
    condition: Condition
    order: tuple[int, ...]
    is_may: bool
    terms: tuple[Opaque, ...]
    sure: Condition

    @property
    def label(self) -> str:
        """The statement's name in reports."""
        return self.place.label

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops around it, outermost first."""
        return self.place.loops

    @property
    def depth(self) -> int:
        """How many loops are around it."""
        return len(self.bounds)

    @property
    def _loops_and_phases(self) -> Iterator[tuple[tuple[int, ...], int]]:
        return zip(self.place.loop_positions, self.place.phases, strict=True)

    def shared_depth(self, other: StatementModel) -> int:
        """Return how many loops the statement shares with another.

        The phases between the barriers of a loop are loops of their own, one after another.
        """
        pairs = zip(self._loops_and_phases, other._loops_and_phases, strict=False)
        for depth, (mine, theirs) in enumerate(pairs):
            if mine != theirs:
                return depth
        return min(self.depth, other.depth)

    def excludes(self, other: StatementModel) -> bool:
        """Tell whether one iteration of the loops they share never runs both.

        They stand in the two branches of one guard, which is decided once.
        """
        theirs = other.place.branches
        return any(
            (*branch[:-1], 3 - branch[-1]) in theirs
            and self.shared_depth(other)
            == sum(branch[: len(loop)] == loop for loop in self.place.loop_positions)
            for branch in self.place.branches
        )


Among: TypeAlias = Callable[[StatementModel, StatementModel], bool]
"""Tells of two statements whether what they have to do with each other is asked for."""


@dataclass(frozen=True, slots=True)
class AccessModel:
    """One access of a statement in normal form.

    Attributes:
        statement: Whose access it is.
        array: What it touches.
        subscripts: Where.
        is_write: A write, else a read.
        is_may: Whether only the running program knows if it happens.
        condition: What must hold beside the statement's guards, over-approximated.
        generators: The bound variables it lies under.
        terms: The opaque terms of its subscripts, condition and generators.
        sure: What must hold beside the statement's guards, under-approximated.
        private: How many of the subscripts, the first ones, say whose private copy is accessed.
    """

    statement: StatementModel
    array: str
    subscripts: tuple[Subscript, ...]
    is_write: bool
    is_may: bool
    condition: Condition
    generators: tuple[Bound, ...]
    terms: tuple[Opaque, ...]
    sure: Condition
    private: int = 0

    @property
    def all_terms(self) -> tuple[Opaque, ...]:
        """The opaque terms of the access and of its statement's domain."""
        return tuple(dict.fromkeys((*self.statement.terms, *self.terms)))


Contents: TypeAlias = Mapping[str, Mapping[tuple[int, ...], int]]


@dataclass(slots=True)
class Model:
    """A whole program in normal form.

    Attributes:
        program: The program.
        statements: Its statements and data-dependent conditions, in textual order.
        accesses: All their accesses; a statement's reads come before its writes.
        parameters: Names of the parameters in formulas, made ones last.
        context: What is known of the parameters: extents are not negative, contracts hold.
        normalizer: What made the normal forms.
        contracts: Contracts about integer arrays.
        shapes: The extents of each array, where known.
        value_ranges: The declared ranges of integer arrays' values, upper ends excluded.
        contents: What is in the integer arrays whose contents are given, by cell.
        sizes: The parameters that are not negative: extents of arrays, and what is made of them.
        mentioned: By statement number, the parameters that decide which instances a statement
            has and what they touch.
        smallest: The smallest points of sets already asked about: scalars give the same again
            and again.
        layouts: The arrays whose subscripts were taken apart into digits.
    """

    program: Program
    statements: tuple[StatementModel, ...]
    accesses: tuple[AccessModel, ...]
    parameters: dict[str, str]
    context: str
    normalizer: Normalizer
    contracts: tuple[Contract, ...] = ()
    shapes: Shapes = field(default_factory=dict)
    value_ranges: dict[str, tuple[Index, Index]] = field(default_factory=dict)
    contents: Contents = field(default_factory=dict)
    sizes: frozenset[str] = frozenset()
    mentioned: dict[int, frozenset[str]] = field(default_factory=dict)
    smallest: dict[tuple[tuple[bool, ...], object], list[int] | None] = field(default_factory=dict)
    layouts: tuple[Layout, ...] = ()

    @property
    def prefix(self) -> str:
        """The declaration of the parameters at the start of every isl text."""
        return f"[{', '.join(self.parameters.values())}] -> "

    def notation(
        self, variables: Mapping[str, str], terms: Mapping[Opaque, str] | None = None
    ) -> Notation:
        """Return a notation with the program's parameters."""
        return Notation(self.parameters, variables, terms or {})


def build_model(
    program: Program,
    sizes: Mapping[str, int] | None = None,
    contracts: tuple[Contract, ...] | None = None,
    contents: Contents | None = None,
    parameters: tuple[str, ...] = (),
    written: frozenset[str] = frozenset(),
) -> Model:
    """Bring a program into normal form.

    Args:
        program: The program.
        sizes: Parameters that have a value.
        contracts: The contracts to lean on; by default all of the program's.
        contents: Integer arrays whose contents are given, cell by cell.
        parameters: Parameters that formulas are to have first, whether they occur or not.
        written: Arrays whose subscripts are not to be taken apart into digits.
    """
    normal = Normalizer(dict(sizes or {}))
    statements = tuple(_statements(program, normal))
    found = tuple(
        _access(statement, relation, normal)
        for statement in statements
        for relation in accesses(statement.place.node)
    )
    shapes = {
        name: tuple(None if extent is None else normal.index(extent) for extent in shape)
        for name, shape in shapes_of(program).items()
    }
    stated = program.contracts if contracts is None else contracts
    found, shapes, layouts = in_digits(found, shapes, normal, written)
    if layouts:
        _forget_arithmetic(normal, statements, found)
    found, shapes = _with_private_copies(found, shapes)
    normal_contracts = tuple(_contract(contract, normal) for contract in stated)
    value_ranges = {
        array.name: (normal.index(array.value_range[0]), normal.index(array.value_range[1]))
        for array in program.arrays
        if array.value_range is not None
    }
    names = list(parameters)
    own = [p.name for p in program.parameters if p.is_integer and p.name not in normal.sizes]
    names += [name for name in (*own, *normal.made) if name not in names]
    called = {name: f"p{number}" for number, name in enumerate(names)}
    model = Model(program, statements, found, called, "", normal, (), shapes, value_ranges)
    model.layouts = layouts
    model.contents = dict(contents or {})
    model.sizes = frozenset(
        extent.name for shape in shapes.values() for extent in shape if isinstance(extent, Param)
    )
    model.sizes |= _dividing(program)
    for name, index in normal.made.items():
        if not_negative(index, (), model.sizes):
            model.sizes |= {name}
    model.mentioned = _mentioned(statements, found, shapes)
    model.contracts = tuple(c for c in normal_contracts if c.generators or _terms_of(c.condition))
    about_sizes = [c.condition for c in normal_contracts if not c.generators]
    model.context = _context(model, [c for c in about_sizes if not _terms_of(c)])
    return model


def _forget_arithmetic(
    normal: Normalizer, statements: tuple[StatementModel, ...], found: tuple[AccessModel, ...]
) -> None:
    """Take out what arithmetic no expression has any more."""
    used = {term.array for statement in statements for term in statement.terms}
    used |= {term.array for access in found for term in access.terms}
    for function in [name for name in normal.arithmetic if name not in used]:
        del normal.arithmetic[function]


def _statements(program: Program, normal: Normalizer) -> list[StatementModel]:
    places = placed(program)
    orders = _orders(places)
    found = []
    for number, place in enumerate(places):
        bounds = tuple(Bound(loop.variable, _range(loop.range, normal)) for loop in place.loops)
        exact = both(*(normal.condition(condition) for condition in place.conditions))
        condition = approximated(exact, over=True)
        terms = dict.fromkeys(
            term for bound in bounds for end in bound.range.ends for term in opaque_terms(end)
        )
        terms |= dict.fromkeys(_terms_of(condition))
        found.append(
            StatementModel(
                number,
                place,
                bounds,
                condition,
                orders[number],
                place.is_may,
                tuple(terms),
                approximated(exact, over=False),
            )
        )
    return found


def _with_private_copies(
    found: tuple[AccessModel, ...], shapes: Shapes
) -> tuple[tuple[AccessModel, ...], Shapes]:
    """Give every iteration of a loop its own cells of the names the loop makes private.

    A private name has more subscripts than are written: which loop it is private to, and the
    iteration of that loop and of those around it.
    """
    owners = {number: _owner(access) for number, access in enumerate(found)}
    loops = sorted({owner for owner in owners.values() if owner is not None})
    if not loops:
        return found, shapes
    deepest: dict[str, int] = {}
    for number, access in enumerate(found):
        owner = owners[number]
        if owner is not None:
            depth = access.statement.place.loop_positions.index(owner) + 1
            deepest[access.array] = max(deepest.get(access.array, 0), depth)
    extended = []
    for number, access in enumerate(found):
        if access.array not in deepest:
            extended.append(access)
            continue
        owner = owners[number]
        around = access.statement.place.loop_positions
        depth = 0 if owner is None else around.index(owner) + 1
        copy: list[Subscript] = [Int(-1 if owner is None else loops.index(owner))]
        copy += [Var(bound.variable) for bound in access.statement.bounds[:depth]]
        copy += [Int(0)] * (deepest[access.array] - depth)
        subscripts = (*copy, *access.subscripts)
        extended.append(replace(access, subscripts=subscripts, private=len(copy)))
    more = {name: (None,) * (1 + depth) for name, depth in deepest.items()}
    return tuple(extended), {name: (*more.get(name, ()), *shape) for name, shape in shapes.items()}


def _owner(access: AccessModel) -> tuple[int, ...] | None:
    """Return the position of the loop that makes the accessed array private, if any does."""
    place = access.statement.place
    for loop, position in zip(reversed(place.loops), reversed(place.loop_positions), strict=True):
        if access.array in loop.private:
            return position
    return None


def _mentioned(
    statements: tuple[StatementModel, ...],
    found: tuple[AccessModel, ...],
    shapes: Shapes,
) -> dict[int, frozenset[str]]:
    indices: dict[int, list[Index]] = {statement.number: [] for statement in statements}
    for statement in statements:
        for bound in statement.bounds:
            indices[statement.number] += [bound.range.start, bound.range.stop]
        indices[statement.number] += compared(statement.condition)
    for access in found:
        own = indices[access.statement.number]
        for subscript, extent in zip(access.subscripts, shapes[access.array], strict=True):
            if not isinstance(subscript, Whole):
                own.append(subscript)
            elif extent is not None:
                own.append(extent)
        own += compared(access.condition)
    return {
        number: frozenset(name for index in own for name in parameters(index))
        for number, own in indices.items()
    }


def _orders(places: tuple[Placed, ...]) -> list[tuple[int, ...]]:
    """Number the statements and loops inside each loop in textual order, guards taken away."""
    numbers: dict[tuple[int, ...], dict[tuple[tuple[int, ...], int], int]] = {}
    orders = []
    for place in places:
        order: tuple[int, ...] = ()
        loops = zip(place.loop_positions, place.phases, strict=True)
        for each in (*loops, (place.position, 0)):
            siblings = numbers.setdefault(order, {})
            order += (siblings.setdefault(each, len(siblings)),)
        orders.append(order)
    return orders


def _range(limits: Range, normal: Normalizer) -> Range:
    return range_changed(limits, normal.index)


def _access(statement: StatementModel, relation: AccessRelation, normal: Normalizer) -> AccessModel:
    subscripts: tuple[Subscript, ...] = tuple(
        WHOLE if isinstance(s, Whole) else normal.index(s) for s in relation.access.subscripts
    )
    exact = normal.condition(relation.condition)
    tests = [normal.condition(generator.condition) for generator in relation.generators]
    whole = both(exact, *tests)
    condition = approximated(whole, over=True)
    bounds = tuple(Bound(g.variable, _range(g.range, normal)) for g in relation.generators)
    terms = dict.fromkeys(
        term for s in subscripts if not isinstance(s, Whole) for term in opaque_terms(s)
    )
    terms |= dict.fromkeys(_terms_of(condition))
    for bound in bounds:
        for end in bound.range.ends:
            terms |= dict.fromkeys(opaque_terms(end))
    return AccessModel(
        statement,
        relation.access.array,
        subscripts,
        relation.is_write,
        statement.is_may or relation.is_may,
        condition,
        bounds,
        tuple(terms),
        approximated(whole, over=False),
    )


def _terms_of(condition: Condition) -> tuple[Opaque, ...]:
    if isinstance(condition, Relation):
        found = (*opaque_terms(condition.left), *opaque_terms(condition.right))
    else:
        found = tuple(term for part in parts_of(condition) for term in _terms_of(part))
    return tuple(dict.fromkeys(found))


def _contract(contract: Contract, normal: Normalizer) -> Contract:
    generators = tuple(
        Generator(g.variable, _range(g.range, normal), normal.condition(g.condition))
        for g in contract.generators
    )
    return Contract(normal.condition(contract.condition), generators, span=contract.span)


def _dividing(program: Program) -> set[str]:
    """Return the parameters that something is divided by whenever any statement runs.

    Such a one is at least 1; one that divides under a guard only, or in other loops, may be not.
    """
    sites = placed(program)
    found: set[str] = set()
    for site in sites:
        around = site.loop_positions
        inside = (each.loop_positions[: len(around)] == around for each in sites)
        if not site.conditions and all(inside):
            indices = [end for loop in site.loops for end in loop.range.ends]
            for relation in accesses(site.node):
                if relation.condition == ALWAYS and not relation.generators:
                    indices += relation.access.indices
            parts = (part for index in indices for part in walk(index))
            found |= {
                part.right.name
                for part in parts
                if isinstance(part, Arith)
                and part.op in ("//", "%")
                and isinstance(part.right, Param)
            }
    return found


def _context(model: Model, conditions: list[Condition]) -> str:
    notation = model.notation({})
    parts = []
    for shape in model.shapes.values():
        for extent in shape:
            if extent is not None and not isinstance(extent, Int) and _about_sizes(extent):
                parts.append(f"{notation.index(extent)} >= 0")
    parts += [f"{called} >= 0" for name, called in model.parameters.items() if name in model.sizes]
    parts += [notation.condition(condition) for condition in conditions]
    return conjunction(dict.fromkeys(parts))


def _about_sizes(index: Index) -> bool:
    return not any(isinstance(node, Opaque) for node in walk(index))
