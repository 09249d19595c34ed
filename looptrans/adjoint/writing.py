"""The backward listing: nests that gather each gradient, values worked out again inside them.

    for j: for i:                                     outer loops: indices of the gradient
        S = …; P = …; dP = …; dS = …                  what is not stored, worked out again
        for e: dK[j, e] = dK[j, e] + dS * Q[i, e]     the gradient's other indices

Each array that is stored gets a nest of its own, and nests with the same loops become one. Where a
sum is worked out again, the gradient's indices it does not depend on run innermost, so that it is
done once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field, replace
from fractions import Fraction

from looptrans.adjoint.equations.definitions import (
    Definition,
    System,
    plain_name,
    reads_of,
    refreshed_generators,
)
from looptrans.adjoint.equations.facts import bounds_of
from looptrans.adjoint.equations.size import Sizes
from looptrans.adjoint.equations.solving import at_single_values, declared, pinned, says_which
from looptrans.adjoint.equations.sums import Term, combined, expanded, term_moved
from looptrans.adjoint.equations.written_sums import in_order, value_of, value_of_products
from looptrans.adjoint.saving import Saver
from looptrans.adjoint.written.again import WorkedOut, only_condition
from looptrans.adjoint.written.as_listing import Text
from looptrans.adjoint.written.asking import (
    asked_first,
    asked_of_pairs,
    chosen_by,
    rows_innermost,
    with_what_is_known,
)
from looptrans.adjoint.written.inside_arrays import Arrays
from looptrans.adjoint.written.nests import Nest, Update, merged
from looptrans.adjoint.written.standing import outside_sums, put_in
from looptrans.adjoint.written.wide import worked_out_once
from looptrans.algebra.positional.cells import condition_moved, moved, range_moved, value_moved
from looptrans.ir.condition import Condition, is_data_dependent
from looptrans.ir.index import Index, Var, variables
from looptrans.ir.listing import condition_text, index_text
from looptrans.ir.program import Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Access,
    Call,
    Generator,
    Holds,
    Read,
    Value,
    condition_variables,
    free_variables,
    has_reduction,
    reductions,
    walk_value,
)
from looptrans.ir.walk import loops


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of an input: its indices, and the terms it is the sum of."""

    name: str
    indices: tuple[Generator, ...]
    terms: tuple[Term, ...]


@dataclass(slots=True)
class Writer:
    """Writes the backward listing of definitions.

    Attributes:
        program: The listing that was differentiated.
        system: Definitions, adjoints among them.
        sizes: Which of them are stored.
        outputs: The definition of each output.
        kept: What the backward listing stores in any case.
        saved: What the forward hands over, in order: names of definitions.
        nests: The nests that were written.
        shown: What saved definitions are called in the listings.
        meant: Which definition each scalar and each array made in the backward listing is.
        arrays: What nests read, and how far each goes.
    """

    program: Program
    system: System
    sizes: Sizes
    outputs: dict[str, str]
    kept: set[str]
    saved: list[str] = field(default_factory=list)
    nests: list[Nest] = field(default_factory=list)
    shown: dict[str, str] = field(default_factory=dict)
    meant: dict[str, str] = field(default_factory=dict)
    arrays: Arrays = field(init=False)

    def __post_init__(self) -> None:
        """Read what the listing says of its sizes."""
        self.arrays = Arrays.of(self.program, self.system, {})

    def written(
        self, gradients: dict[str, Gradient], incoming: dict[str, str], saver: Saver
    ) -> tuple[Program, Program]:
        """Return the backward listing, and the forward listing that hands over what it needs.

        Args:
            gradients: For each argument, its gradient.
            incoming: For each output that receives one, the name of its gradient.
            saver: Says how what is saved leaves the forward.
        """
        of = {name: self.outputs[output] for output, name in incoming.items()}
        self.arrays = replace(self.arrays, incoming=of)
        terms = [term for gradient in gradients.values() for term in gradient.terms]
        self.kept |= set(worked_out_once(self.program, self.system, self.is_stored, terms))
        made: list[Definition] = []
        nests: list[Nest] = []
        for name in self._stored_adjoints(gradients, saver):
            definition = self.system.definitions[name]
            made.append(definition)
            terms = combined(expanded(definition.value, self.system.names))
            nests += self._nests(Gradient(name, definition.indices, tuple(terms)))
        for gradient in gradients.values():
            summed = self._summed_ahead(gradient)
            if summed is not None:
                made.append(self.system.definitions[summed[0].name])
            for each in summed or (gradient,):
                nests += self._nests(each)
        self.nests = [rows_innermost(nest) for nest in merged(nests)]
        forward, self.shown = saver.extended(self.saved)
        text = Text(self.program, self.system, self.sizes, self.outputs, self.shown)
        found, self.meant = text.listing(
            tuple(self.saved),
            tuple(made),
            tuple(self.nests),
            {g.name: g.indices for g in gradients.values()},
            incoming,
        )
        return found, forward

    # What is stored

    def is_stored(self, name: str) -> bool:
        """Tell whether a definition is in memory."""
        definition = self.system.definitions[name]
        return name in self.kept or self.sizes.is_stored(self.system, definition)

    def _stored_adjoints(self, gradients: dict[str, Gradient], saver: Saver) -> list[str]:
        """Return the adjoints to be stored, each behind those it needs; note what is saved."""
        order: dict[str, None] = {}
        seen: set[str] = set()

        def visit(name: str) -> None:
            definition = self.system.definitions.get(name)
            if definition is None or name in seen:
                return
            seen.add(name)
            stored = self.is_stored(name)
            given = definition.origin == "forward" and name not in self.kept
            if stored and given and (saver.can(name) or self._is_held(definition, saver)):
                self.saved.append(name)
                return
            for read in definition.reads():
                visit(read)
            if stored:
                order[name] = None

        for gradient in gradients.values():
            for term in gradient.terms:
                for atom, _ in term.factors:
                    for part in walk_value(atom):
                        if isinstance(part, Read):
                            visit(part.access.array)
                for condition in term.brackets:
                    for part in walk_value(Holds(condition)):
                        if isinstance(part, Read):
                            visit(part.access.array)
        return list(order)

    def _is_held(self, definition: Definition, saver: Saver) -> bool:
        """Tell whether an array holds a sum of what would be worked out again for it as well.

        Attention with a residual gathers rows of values that it does not return.
        """
        again = any(name in self.system.definitions for name in definition.reads())
        small = definition.has_reduction and self.sizes.fits(definition.extents)
        return again and small and saver.holds(definition.name)

    # Nests

    def _summed_ahead(self, gradient: Gradient) -> tuple[Gradient, Gradient] | None:
        """Part what is gathered in loops from what waits for other sums, where there is both.

        Else the sum would lie in the gradient meanwhile, which may hold 16 bits.
        """
        late = [term for term in gradient.terms if self._turn([term]) == 2]
        early = [term for term in gradient.terms if self._turn([term]) < 2]
        if not gradient.indices or not late or not any(term.generators for term in early):
            return None
        own, new = refreshed_generators(gradient.indices, self.system.names)
        name = self.system.names.array(f"{gradient.name}_sum")
        terms = tuple(term_moved(term, new) for term in early)
        made = self.system.add(Definition(name, own, value_of(list(terms)), "adjoint"))
        self.kept.add(name)
        cell = Read(Access(name, tuple(Var(g.variable) for g in gradient.indices)))
        rest = (*late, Term(Fraction(1), ((cell, 1),)))
        return Gradient(name, made.indices, terms), replace(gradient, terms=rest)

    def _nests(self, gradient: Gradient) -> list[Nest]:
        """Return the nests that work out a stored array."""
        target = Access(gradient.name, tuple(Var(g.variable) for g in gradient.indices))
        groups: dict[str, list[Term]] = {}
        for each in gradient.terms:
            term = self._summed_first(each)
            ordered = replace(term, generators=in_order(self._outside(term)))
            groups.setdefault(_group(ordered), []).append(ordered)
        found = []
        keys = sorted(groups, key=lambda k: self._turn(groups[k]))
        for number, key in enumerate(keys):
            terms = _common(groups[key])
            first = terms[0].generators
            bare = [replace(t, generators=()) for t in terms]
            shared = tuple(
                c
                for c in bare[0].brackets
                if not is_data_dependent(c) and all(c in t.brackets for t in bare)
            )
            inner = [
                replace(t, brackets=tuple(c for c in t.brackets if c not in shared)) for t in bare
            ]
            names = [g.variable for g in gradient.indices]
            value = value_of_products(inner, names) if first else value_of(inner)
            given = pinned(shared, gradient.indices, self.arrays.said)
            cells, shared = at_single_values(shared, gradient.indices, self.arrays.said)

            adds = bool(first) or number > 0
            single = {g.variable for g in cells if g not in gradient.indices}
            nest = self._nest(given, target, cells, first, shared, value, adds, single)
            looked_up = asked_of_pairs(nest, shared)
            if looked_up:
                given, first = given | looked_up, in_order(self._as_in_text(first))
                there = (*shared, *self._in_range_of(cells, looked_up))
                nest = self._nest(given, target, cells, first, there, value, adds)
            found.append(nest)
        return found

    def _in_range_of(
        self, cells: tuple[Generator, ...], looked_up: dict[str, Index]
    ) -> Iterator[Condition]:
        """Yield that what is looked up is one of the cells, unless its declaration says so.

        A listing may hold other numbers, where it asks before it reads.
        """
        for g in cells:
            if g.variable in looked_up:
                for bound in bounds_of(g.variable, g.range):
                    asked = condition_moved(bound, looked_up)
                    known = self.arrays.said.and_(*declared([asked], self.program.arrays))
                    if not known.imply(asked):
                        yield asked

    def _turn(self, terms: list[Term]) -> int:
        """Return when terms are added: sums behind what starts them, before what waits.

        What waits would else part the sum from those it waits for, which go over the same.
        """
        if terms[0].generators:
            return 1
        reads = {a for t in terms for atom, _ in t.factors for a in reads_of(atom)}
        gathered = [
            name
            for name in reads & self.system.definitions.keys()
            if self.system.definitions[name].origin == "adjoint" and self.is_stored(name)
        ]
        return 2 if gathered else 0

    def _summed_first(self, term: Term) -> Term:
        """Do a sum first that what is worked out again has no part in.

        sum(P[j] * dO[d] * V[j, d] for j, d)  ->  sum(P[j] * sum(dO[d] * V[j, d] for d) for j)
        """
        for g in reversed(term.generators):
            others = tuple(o for o in term.generators if o is not g)
            bounds = {v for o in others for v in variables(o.range.start)}
            bounds |= {v for o in others for v in variables(o.range.stop)}
            if g.variable in bounds or any(
                g.variable in condition_variables(c) for c in term.brackets
            ):
                continue
            inside = [(a, p) for a, p in term.factors if g.variable in free_variables(a)]
            outside = [(a, p) for a, p in term.factors if g.variable not in free_variables(a)]
            of_others = {o.variable for o in others}
            again = [
                (a, p)
                for a, p in outside
                if self._is_worked_out_again(a) and of_others & set(free_variables(a))
            ]
            known = [(self._from_memory(a), p) for a, p in inside]
            summed = tuple((a, p) for a, p in known if a is not None)
            if not again or len(summed) < len(inside):
                continue
            first = value_of([Term(Fraction(1), summed, (), (g,))])
            return replace(term, generators=others, factors=(*outside, (first, 1)))
        return term

    def _from_memory(self, value: Value) -> Value | None:
        """Return a value by what is in memory, one element after the other; None with sums."""

        def change(part: Value) -> Value | None:
            if not isinstance(part, Read) or not self._is_worked_out_again(part):
                return None
            inner = self.system.instance(part.access.array, part.access.indices)
            return replaced(inner, change)

        found = replaced(value, change)
        return None if found != value and has_reduction(found) else found

    def _is_worked_out_again(self, value: Value) -> bool:
        """Tell whether a value reads what is not in memory."""
        return any(
            isinstance(part, Read)
            and part.access.array in self.system.definitions
            and not self.is_stored(part.access.array)
            for part in walk_value(value)
        )

    def _nest(
        self,
        given: dict[str, Index],
        target: Access,
        indices: tuple[Generator, ...],
        generators: tuple[Generator, ...],
        conditions: tuple[Condition, ...],
        value: Value,
        adds: bool,
        single: Set[str] = frozenset(),
    ) -> Nest:
        """Return the nest of the cells some of whose indices are given, and others single ones."""
        target, value, adds = moved(target, given), value_moved(value, given), adds or bool(given)
        indices = tuple(g for g in indices if g.variable not in given)
        generators = tuple(replace(g, range=range_moved(g.range, given)) for g in generators)
        conditions = tuple(
            condition_moved(c, given) for c in conditions if not says_which(c, given)
        )
        work = WorkedOut(self.system, self.is_stored)
        body = work.out(value)
        tested = tuple(only_condition(work.out(Holds(c))) for c in conditions)
        loops = (*indices, *generators)
        known = (*tested, *(c for g in loops for c in bounds_of(g.variable, g.range)))
        scalars = {
            access: replace(scalar, value=outside_sums(scalar.value, known))
            for access, scalar in work.guarded().items()
        }
        body = outside_sums(body, known)
        heavy = any(has_reduction(s.value) for s in scalars.values())
        inner: tuple[Generator, ...] = ()
        if heavy and generators:
            scalars, body = put_in(scalars, body, tested)
            used = {*single}  # a loop that runs once is no row of a block
            for scalar in scalars.values():
                used |= set(free_variables(scalar.value))
                used |= scalar.cell.variables
            for condition in tested:
                used |= condition_variables(condition)
            for g in generators:
                used |= g.range.variables
            inner = tuple(g for g in indices if g.variable not in used)
            if len(inner) + _most_summed(body) > 1:
                rows = {g.variable for g in indices} & used
                used |= _of_functions(body, rows, {g.variable for g in generators})
                inner = tuple(g for g in inner if g.variable not in used)
        outer = [g for g in indices if g not in inner]
        if inner:
            outer = list(self._as_in_text(tuple(outer), generators))
        update = Update(target, inner, body, adds)
        around = (*outer, *generators)
        tested = asked_first(tested, around, self.arrays.extents)
        nest = Nest(around, tested, tuple(scalars.values()), (update,))
        return with_what_is_known(self.arrays.read_inside(nest))

    def _outside(self, term: Term) -> tuple[Generator, ...]:
        """Order the loops of a sum; those that choose what is read stand outside of others.

        What does not hang on the others is asked once for all of them.
        """
        choose = set(chosen_by(term.brackets))
        given = self._as_in_text(term.generators)
        return tuple(sorted(given, key=lambda g: g.variable not in choose))

    def _as_in_text(
        self, given: tuple[Generator, ...], inside: tuple[Generator, ...] = ()
    ) -> tuple[Generator, ...]:
        """Order loops as the listing has them, so that nests that share work become one.

        A variable that the listing does not have stands where the loop does that it bounds.
        """
        own = [loop.variable for loop in loops(self.program)]
        places: dict[str, int] = {}
        for g in (*given, *inside):
            name = plain_name(g.variable)
            if name in own:
                places[g.variable] = own.index(name)
        for g in given:
            bounded = [
                places[other.variable]
                for other in inside
                if g.variable in other.range.variables and other.variable in places
            ]
            if g.variable not in places and bounded:
                places[g.variable] = min(bounded)
        if any(g.variable not in places for g in given):
            return given
        return tuple(sorted(given, key=lambda g: places[g.variable]))


def _group(term: Term) -> str:
    """Return what terms share that can stand in one nest: ranges and conditions."""
    neutral = _renamed(term, [f"~g{number}" for number in range(len(term.generators))])
    text = " ".join(
        f"{g.variable} {index_text(g.range.start)} {index_text(g.range.stop)}"
        for g in neutral.generators
    )
    told = (c for c in neutral.brackets if not is_data_dependent(c))
    brackets = sorted(map(condition_text, told)) if term.generators else []
    return f"{text} | {' '.join(brackets)}"


def _common(terms: list[Term]) -> list[Term]:
    """Return the terms of a group, their variables called as those of the first."""
    # The names count the position, so that they differ from those of the gradient's indices.
    names = [f"{plain_name(g.variable)}~g{n}" for n, g in enumerate(terms[0].generators)]
    return [_renamed(term, names) for term in terms]


def _renamed(term: Term, names: list[str]) -> Term:
    new: dict[str, Index] = {
        g.variable: Var(name) for g, name in zip(term.generators, names, strict=True)
    }
    moved = term_moved(term, new)
    generators = tuple(
        replace(g, variable=name) for g, name in zip(moved.generators, names, strict=True)
    )
    return replace(moved, generators=generators)


def _most_summed(value: Value) -> int:
    """Return over how many variables the sum in a value goes that goes over most."""
    sums = reductions(value)
    return max((len(part.generators) for part in sums), default=0)


def _of_functions(value: Value, rows: set[str], summed: set[str]) -> set[str]:
    """Return the variables of functions that have other values for each row and each of its terms.

    exp(c[i, h] - c[j, h]) is worked out for each h as scores are, and not for a block of all h,
    which would have four dimensions where d or a sum stands beside it.
    """
    found: set[str] = set()
    for part in walk_value(value):
        own = set(free_variables(part)) if isinstance(part, Call) else set()
        if rows & own and summed & own:
            found |= own
    return found
