"""Dependences of accesses with opaque terms: integer arrays in bounds, guards and subscripts.

Every pair of accesses is asked for by itself. The instances of both get dimensions of their own
for the values of their opaque terms, tied by what is known of those (`axioms`); what remains is
the set of pairs that touch one cell for some contents of the arrays. For value-based flow, the
pairs are taken out between which another instance certainly overwrites the cell: one whose own
opaque terms have the value of a term of the pair, because they have its arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import islpy as isl

from looptrans.analysis.isl_model.constraints import plain_constraints, whatever_the_contents
from looptrans.analysis.isl_model.formula import FALSE, conjunction
from looptrans.analysis.isl_model.model import AccessModel, Among, Model
from looptrans.analysis.isl_model.polyhedra import (
    before,
    between,
    cell_formula,
    dimensions,
    domain_formula,
    orders,
)
from looptrans.analysis.isl_model.relation import Relation, Supposed, Uncovered
from looptrans.analysis.opaque_terms.axioms import Axioms, Known, Term, axioms_of
from looptrans.analysis.opaque_terms.killing import is_killed, killer
from looptrans.ir.facts import KINDS, Basis, DependenceKind
from looptrans.ir.index import Opaque

MOST_SUBTRACTED = 400
MOST_JOINED = 40


@dataclass(frozen=True, slots=True)
class Instance:
    """An access at some iteration, in the names of a formula.

    Attributes:
        access: The access.
        letter: What its dimensions start with.
        dims: The loop variables' dimensions.
        generators: The bound variables' dimensions.
        values: The dimensions of the opaque terms' values.
    """

    access: AccessModel
    letter: str
    dims: tuple[str, ...]
    generators: dict[str, str]
    values: dict[Opaque, str]

    @property
    def hidden(self) -> tuple[str, ...]:
        """The dimensions that are no loop variables."""
        return (*self.generators.values(), *self.values.values())

    def terms(self, model: Model) -> list[Term]:
        """Return its opaque terms with their arguments in the names of the formula."""
        names = dimensions(self.access.statement, self.letter) | self.generators
        notation = model.notation(names, self.values)
        return [
            Term(term.array, tuple(notation.index(a) for a in term.arguments), value, term)
            for term, value in self.values.items()
        ]

    def plain(self, model: Model) -> tuple[str, ...]:
        """Say what the domain asks of the loop variables alone, one comparison each."""
        notation = model.notation(dimensions(self.access.statement, self.letter))
        return tuple(notation.condition(c) for c in plain_constraints(self.access.statement))

    def happens(self, model: Model, cell: list[str]) -> str:
        """Say that the instance exists and touches the cell."""
        domain = domain_formula(model, self.access.statement, self.letter, self.values)
        touched = cell_formula(model, self.access, cell, self.letter, self.values, self.generators)
        return conjunction([domain, touched])


def _instance(access: AccessModel, letter: str) -> Instance:
    return Instance(
        access,
        letter,
        tuple(f"{letter}{level}" for level in range(access.statement.depth)),
        {g.variable: f"{letter}g{n}" for n, g in enumerate(access.generators)},
        {term: f"{letter}x{n}" for n, term in enumerate(access.all_terms)},
    )


def opaque_dependences(
    model: Model,
    arrays: list[str],
    bases: tuple[Basis, ...],
    kinds: tuple[DependenceKind, ...] = KINDS,
    among: Among | None = None,
) -> tuple[list[Relation], list[Uncovered]]:
    """Find the dependences over arrays some of whose accesses have opaque terms.

    Args:
        model: The program.
        arrays: The arrays.
        bases: `value` for last-writer flow, `memory` for all pairs on one cell.
        kinds: Which of those on one cell.
        among: Between which statements those on one cell are asked for; by default all.
    """
    finder = _Finder(model, axioms_of(model))
    relations: dict[tuple[str, str, int, int, str], Relation] = {}
    uncovered: list[Uncovered] = []
    for array in arrays:
        accesses = [access for access in model.accesses if access.array == array]
        writes = [access for access in accesses if access.is_write]
        reads = [access for access in accesses if not access.is_write]
        if "memory" in bases:
            for kind, sources, sinks in _memory_kinds(writes, reads):
                for source in sources if kind in kinds else ():
                    for sink in sinks:
                        if among is None or among(source.statement, sink.statement):
                            _join(finder.relation(kind, "memory", source, sink, []), relations)
        if "value" in bases:
            for sink in reads:
                for source in writes:
                    _join(finder.relation("flow", "value", source, sink, writes), relations)
                if killer(sink, writes) is None:
                    uncovered.append(finder.uncovered(sink, writes))
    return list(relations.values()), uncovered


def flow_between(model: Model, array: str, source: int, sink: int) -> list[Relation]:
    """Return which instances of one statement may read what those of another have written.

    Args:
        model: The program, at sizes and contents of arrays as far as they are given.
        array: The array.
        source: The number of the statement that writes.
        sink: The number of the statement that reads.
    """
    finder = _Finder(model, axioms_of(model))
    accesses = [access for access in model.accesses if access.array == array]
    writes = [access for access in accesses if access.is_write]
    found = [
        finder.relation("flow", "value", write, read, writes)
        for read in accesses
        for write in writes
        if not read.is_write and (write.statement.number, read.statement.number) == (source, sink)
    ]
    return [relation for relation in found if relation is not None]


def _memory_kinds(
    writes: list[AccessModel], reads: list[AccessModel]
) -> list[tuple[DependenceKind, list[AccessModel], list[AccessModel]]]:
    return [("flow", writes, reads), ("anti", reads, writes), ("output", writes, writes)]


def _join(
    found: Relation | None, relations: dict[tuple[str, str, int, int, str], Relation]
) -> None:
    """Add the pairs of two accesses to those of their statements."""
    if found is None:
        return
    key = (found.kind, found.basis, found.source, found.sink, found.array)
    old = relations.get(key)
    if old is not None:
        found = Relation(
            old.kind,
            old.basis,
            old.source,
            old.sink,
            old.array,
            old.pairs.union(found.pairs),
            old.may or found.may,
            old.supposed + found.supposed,
            within=old.within or found.within,
        )
    relations[key] = found


@lru_cache(maxsize=4096)
def _read_set(text: str) -> isl.Set:
    """Return a set; names are positional, so that loops of one shape ask for the same ones."""
    return isl.Set(text)


@dataclass(frozen=True, slots=True)
class _Way:
    """One way in which an instance runs before another, as formulas.

    Attributes:
        pairs: The two touch one cell.
        possible: Both exist, whatever they touch; None where that is not asked.
        gone: Write by write, in one way or two, that an instance of it certainly overwrites the
            cell in between.
    """

    pairs: str
    possible: str | None
    gone: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    """All that decides which pairs there are: loops of one shape ask the same again and again.

    Attributes:
        space: The dimensions of a point: both instances, what they hide, and last the cell.
        shown: How many of them are loop variables of the source, and of the sink.
        generators: How many are bound variables of the source, and of the sink.
        values: How many are values of terms of the source, and of the sink.
        ways: In which ways the one runs before the other.
        guesses: Whether unknown contents of arrays decide.
    """

    space: tuple[str, ...]
    shown: tuple[int, int]
    generators: tuple[int, int]
    values: tuple[int, int]
    ways: tuple[_Way, ...]
    guesses: bool


@dataclass(frozen=True, slots=True)
class _Points:
    """What was found for a question.

    Attributes:
        points: The pairs with the values of their terms.
        pairs: The pairs, with no names for the statements.
        within: Whether the pairs that occur may be fewer.
    """

    points: isl.Set
    pairs: isl.Map
    within: bool


@dataclass(slots=True)
class _Finder:
    """Finds the pairs of accesses of one program.

    Attributes:
        model: The program.
        axioms: The facts about its opaque terms.
        said: What the domains of statements ask of their loop variables, by number and letter: a
            statement has several accesses, and each of them meets several others.
        found: What was found, by question.
    """

    model: Model
    axioms: Axioms
    said: dict[tuple[int, str], tuple[str, ...]] = field(default_factory=dict)
    found: dict[_Asked, _Points | None] = field(default_factory=dict)

    def relation(
        self,
        kind: DependenceKind,
        basis: Basis,
        source: AccessModel,
        sink: AccessModel,
        writes: list[AccessModel],
    ) -> Relation | None:
        """Return the pairs of two accesses, less those that one of `writes` comes between."""
        ways = orders(source.statement, sink.statement, ("s", "t"))
        if not ways:
            return None
        last = killer(sink, writes)
        depth = 0 if last is None else last.levels
        if last is not None and is_killed(source.statement, sink.statement, last):
            return None
        s, t = _instance(source, "s"), _instance(sink, "t")
        cell = [f"c{number}" for number in range(len(sink.subscripts))]
        known = s.terms(self.model) + t.terms(self.model)
        space = (*s.dims, *t.dims, *s.hidden, *t.hidden, *cell)
        guesses = self._guesses(source, sink, *writes)
        same = tuple(f"{a} = {b}" for a, b in zip(s.dims[:depth], t.dims[:depth], strict=True))
        once = last is not None and last.write is source and depth == source.statement.depth
        # Which of the writes between two instances are of their cell is known of some only.
        between = [write for write in writes if not (once and write is source)]
        within = not guesses and any(write.all_terms for write in between)
        written = []
        # What is known of the terms is simpler where the order of the arguments is known.
        for order in ways:
            facts = (*order, *same, *self._plain(s), *self._plain(t))
            given = Known(space, facts)
            about = self.axioms.about(known, given)
            happen = (s.happens(self.model, cell), t.happens(self.model, cell))
            certain = [write for write in between if not write.is_may]
            apart = self.axioms.apart(known, given) if certain else []
            written.append(
                _Way(
                    conjunction([*order, *same, *happen, about]),
                    None if guesses or within else conjunction([*facts, about]),
                    tuple(
                        formula
                        for write in certain
                        for formula in self._overwritten(write, (s, order), t, apart, cell)
                    ),
                )
            )
        asked = _Asked(
            space,
            (len(s.dims), len(t.dims)),
            (len(s.generators), len(t.generators)),
            (len(s.values), len(t.values)),
            tuple(written),
            guesses,
        )
        if asked not in self.found:
            self.found[asked] = self._points(asked, len(cell))
        found = self.found[asked]
        if found is None:
            return None
        pairs = found.pairs.set_tuple_name(isl.dim_type.in_, f"s{source.statement.number}")
        pairs = pairs.set_tuple_name(isl.dim_type.out, f"s{sink.statement.number}")
        sure = not (source.is_may or sink.is_may or guesses)
        if basis == "value" and any(write.is_may for write in writes):
            sure = False
        supposed = Supposed(
            found.points, tuple(s.values), tuple(t.values), tuple(s.generators), tuple(t.generators)
        )
        return Relation(
            kind,
            basis,
            source.statement.number,
            sink.statement.number,
            sink.array,
            pairs,
            not sure,
            (supposed,),
            within=within or found.within,
        )

    def _points(self, asked: _Asked, cells: int) -> _Points | None:
        """Find the points of a question; the last `cells` dimensions are the cell."""
        points = self._set(asked.space, FALSE)
        for way in asked.ways:
            left = self._set(asked.space, way.pairs)
            for formula in way.gone:
                if left.is_empty():
                    break
                gone = self._set(asked.space, formula)
                if asked.guesses and left.n_basic_set() * gone.n_basic_set() > MOST_SUBTRACTED:
                    # The pairs are not certain anyway; more of them are allowed, never fewer.
                    continue
                left = left.subtract(gone)
            points = points.union(left)
        if points.is_empty():
            return None
        if points.n_basic_set() <= MOST_JOINED:
            points = points.coalesce()
        first = len(asked.space) - cells
        points = points.project_out(isl.dim_type.set, first, cells)
        if points.is_empty():
            return None
        within = not self._for_all_values(points, asked, cells)
        return _Points(points, _pairs(points, asked.shown), within)

    def _for_all_values(self, points: isl.Set, asked: _Asked, cells: int) -> bool:
        """Tell whether the pairs of some points are pairs for all values their terms may have.

        Where that is not asked, it is told of as it is.

        Args:
            points: The pairs, with the values of terms with which they are.
            asked: What was asked.
            cells: How many dimensions the cell has, which the points do not have any more.
        """
        if not any(asked.values) or any(way.possible is None for way in asked.ways):
            return True
        # All instances, with what is known of the values of their terms.
        possible = self._set(asked.space, FALSE)
        # The ways with most in common come last, and have the fewest cases.
        for way in reversed(asked.ways):
            if points.n_basic_set() * max(1, possible.n_basic_set()) > MOST_SUBTRACTED:
                return False
            assert way.possible is not None
            possible = possible.union(self._set(asked.space, way.possible))
        possible = possible.project_out(isl.dim_type.set, len(asked.space) - cells, cells)
        # The values of terms stand last; bound variables are chosen for each.
        shown = sum(asked.shown)
        hidden = asked.generators[0] + asked.values[0]
        for first, count in zip((shown + hidden, shown), reversed(asked.generators), strict=True):
            points = points.project_out(isl.dim_type.set, first, count)
            possible = possible.project_out(isl.dim_type.set, first, count)
        if points.n_basic_set() * possible.n_basic_set() > MOST_SUBTRACTED:
            return False
        values = sum(asked.values)
        pairs = points.project_out(isl.dim_type.set, shown, values)
        others = possible.subtract(points).project_out(isl.dim_type.set, shown, values)
        return bool(pairs.intersect(others).is_empty())

    def _plain(self, instance: Instance) -> tuple[str, ...]:
        key = (instance.access.statement.number, instance.letter)
        if key not in self.said:
            self.said[key] = instance.plain(self.model)
        return self.said[key]

    def _guesses(self, *accesses: AccessModel) -> bool:
        """Tell whether unknown contents of arrays, not just sizes, decide on an access."""
        known = {**self.model.normalizer.arithmetic, **self.model.contents}
        return any(term.array not in known for a in accesses for term in a.all_terms)

    def _set(self, dims: tuple[str, ...], formula: str) -> isl.Set:
        return _read_set(f"{self.model.prefix}{{ [{', '.join(dims)}] : {formula} }}")

    def _overwritten(
        self,
        write: AccessModel,
        source: tuple[Instance, tuple[str, ...]] | None,
        t: Instance,
        apart: list[Term],
        cell: list[str],
    ) -> tuple[str, ...]:
        """Say when between two points an instance of `write` certainly writes the cell.

        Args:
            write: The write.
            source: The point that comes first and the way in which it does; None for any before.
            t: The point that comes last.
            apart: Terms that have a value there.
            cell: The cell.
        """
        whole = self._written(write, source, t, apart, cell)
        bare = whatever_the_contents(write) if write.all_terms else None
        return (whole,) if bare is None else (whole, self._written(bare, source, t, [], cell))

    def _written(
        self,
        write: AccessModel,
        source: tuple[Instance, tuple[str, ...]] | None,
        t: Instance,
        apart: list[Term],
        cell: list[str],
    ) -> str:
        """Say it of an instance whose opaque terms have the values of some of `apart`."""
        u = _instance(write, "u")
        if source is None:
            comes = before(write.statement, t.access.statement, ("u", t.letter))
        else:
            s, way = source
            ends = s.access.statement, write.statement, t.access.statement
            comes = between(*ends, (s.letter, "u", t.letter), way)
        determined = [self.axioms.determined(term, apart) for term in u.terms(self.model)]
        if FALSE in (comes, *determined):
            return FALSE
        formula = conjunction([u.happens(self.model, cell), comes, *determined])
        inner = (*u.dims, *u.hidden)
        return f"exists ({', '.join(inner)} : {formula})" if inner else formula

    def uncovered(self, sink: AccessModel, writes: list[AccessModel]) -> Uncovered:
        """Return the instances of a read that may see what was there before the program."""
        t = _instance(sink, "t")
        cell = [f"c{number}" for number in range(len(sink.subscripts))]
        known = t.terms(self.model)
        space = (*t.dims, *t.hidden, *cell)
        given = Known(space, self._plain(t))
        formula = conjunction([t.happens(self.model, cell), self.axioms.about(known, given)])
        points = self._set(space, formula)
        apart = self.axioms.apart(known, given)
        for write in writes:
            if not write.is_may:
                for gone in self._overwritten(write, None, t, apart, cell):
                    points = points.subtract(self._set(space, gone))
        depth = sink.statement.depth
        points = points.project_out(isl.dim_type.set, depth, len(space) - depth)
        shape = ", ".join(f"t{n}" for n in range(depth))
        named = isl.Map(f"{{ [{shape}] -> s{sink.statement.number}[{shape}] }}")
        return Uncovered(sink.statement.number, sink.array, points.apply(named))


def _pairs(points: isl.Set, depths: tuple[int, int]) -> isl.Map:
    """Return the pairs of points without the values of terms, source instance to sink instance."""
    shown = sum(depths)
    visible = points.project_out(isl.dim_type.set, shown, points.dim(isl.dim_type.set) - shown)
    if visible.n_basic_set() <= MOST_JOINED:
        visible = visible.coalesce()
    s, t = (
        ", ".join(f"{letter}{n}" for n in range(depth))
        for letter, depth in zip("st", depths, strict=True)
    )
    both = ", ".join(part for part in (s, t) if part)
    return visible.apply(isl.Map(f"{{ [{both}] -> [[{s}] -> [{t}]] }}")).unwrap()
