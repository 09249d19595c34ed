"""Reverse mode on definitions: the adjoint of each, from the adjoints of what reads it.

    O[i, d] = sum(P[i, j] * V[j, d] for j)
        dP[i, j] = sum(dO[i, d] * V[j, d] for d)        dV[j, d] = sum(dO[i, d] * P[i, j] for i)

The definitions are gone through backwards. A read adds to the adjoint of the cell it reads, in
every iteration of its reader; seen from the cell these are the iterations that read it, so that
indices of the reader that the cell does not have are summed over. What was added is then brought
into the form of terms, in which like terms meet and cancel and sums that are stored are recognized.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

from looptrans.adjoint.empty_rows.guards import is_of_totals
from looptrans.adjoint.empty_rows.idle import Held
from looptrans.adjoint.equations.definitions import Definition, Names, System, refreshed_generators
from looptrans.adjoint.equations.facts import Facts, said_of_sizes
from looptrans.adjoint.equations.piecewise import pieces
from looptrans.adjoint.equations.size import Sizes
from looptrans.adjoint.equations.solving import declared, simplified_brackets, solved
from looptrans.adjoint.equations.sums import Term, bracketed, expanded, term_moved, times
from looptrans.adjoint.equations.written_sums import shown, value_of
from looptrans.adjoint.exponentials.tops import Total, implied, needed
from looptrans.adjoint.exponentials.weights import Prepared
from looptrans.adjoint.refusal import NotDifferentiated, OnExtreme
from looptrans.adjoint.sweep.added_up import summed_alike
from looptrans.adjoint.sweep.pulling import Contribution, Pull
from looptrans.adjoint.sweep.rounding import is_rounded_alike
from looptrans.adjoint.sweep.simplifying import Finding, Simplifier, has_slope, outside
from looptrans.adjoint.sweep.vanishing import cancels
from looptrans.algebra.positional.cells import (
    condition_moved,
    is_looked_up,
    range_moved,
    value_moved,
)
from looptrans.algebra.positional.values import divide, multiply
from looptrans.ir.condition import (
    ALWAYS,
    Condition,
    Data,
    conjunction,
    is_data_dependent,
    is_of_indices,
)
from looptrans.ir.index import Index, Var, substitute
from looptrans.ir.program import Program
from looptrans.ir.value import (
    Access,
    Call,
    Compare,
    Const,
    Generator,
    Read,
    Reduce,
    Select,
    Value,
    condition_variables,
    free_variables,
    reductions,
)

MOST_INLINED = 3


@dataclass(slots=True)
class Reverse:
    """The state of a reverse sweep.

    Attributes:
        program: The listing.
        prepared: Its definitions; adjoints are added to the same system.
        sizes: Which definitions are small.
        wanted: The definitions and inputs that lead to something that is differentiated.
        totals: The sums of exponentials of the listing.
        held: What outputs hold some of.
        simplifier: Makes adjoints simpler.
        attained: Maxima and minima whose adjoint is not zero.
        kept: Adjoints that are kept in memory in any case.
        said: What the listing says of its sizes.
    """

    program: Program
    prepared: Prepared
    sizes: Sizes
    wanted: frozenset[str]
    totals: tuple[Total, ...] = ()
    held: tuple[Held, ...] = ()
    pending: dict[str, list[tuple[tuple[Index, ...], Term]]] = field(default_factory=dict)
    simplifier: Simplifier = field(init=False)
    attained: list[str] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    said: Facts = field(init=False)

    def __post_init__(self) -> None:
        shapes = {array.name: array.shape for array in self.program.arrays}
        self.simplifier = Simplifier(self.prepared, self.sizes, shapes=shapes)
        self.said = said_of_sizes(self.program)

    @property
    def found(self) -> list[Finding]:
        """What was recognized and cancelled."""
        return self.simplifier.found

    def counted(self, term: Term) -> Term:
        """Replace a sum of what does not depend on its variable by a product."""
        return self.simplifier.counted(term)

    @property
    def system(self) -> System:
        """The definitions."""
        return self.prepared.system

    @property
    def names(self) -> Names:
        """Where new names come from."""
        return self.system.names

    def seed(self, name: str, adjoint: str) -> None:
        """Add the incoming gradient of an output to the adjoint of its definition."""
        definition = self.system.definitions.get(name)
        if definition is None:
            raise NotDifferentiated(f"{name} is returned as it came in")
        own, new = refreshed_generators(definition.indices, self.names)
        subscripts = tuple(new[v] for v in definition.variables)
        cell = Read(Access(adjoint, subscripts))
        term = Term(Fraction(1), ((cell, 1),), (), own)
        self.pending.setdefault(name, []).append((subscripts, term))

    def sweep(self, order: list[str]) -> None:
        """Work out the adjoint of every definition, the last one first."""
        for name in reversed(order):
            if name not in self.wanted or name not in self.pending:
                continue
            definition = self.system.definitions[name]
            terms = self.gathered(name, definition.indices)
            if not terms or self._is_idle(definition, terms):
                continue
            self._pull(definition, self._adjoint(definition, terms))

    def _is_idle(self, definition: Definition, terms: list[Term]) -> bool:
        """Tell whether the adjoint of a maximum is zero after all."""
        match definition.value:
            case Reduce("max" | "min") | Call("max" | "min"):
                pass
            case _:
                return False
        if not cancels(self, terms, self._facts(definition.name, definition.indices)):
            return False
        of = f"d{definition.name}"
        reason = "written out, its terms cancel: " + "; ".join(shown(t) for t in terms)
        self.found.append(Finding("vanishes", of, f"{of} = 0", reason, tuple(terms)))
        return True

    def gathered(self, name: str, indices: tuple[Generator, ...]) -> list[Term]:
        """Return the adjoint of a cell as terms, simplified."""
        facts = self._facts(name, indices)
        raw = []
        for subscripts, term in self.pending.get(name, ()):
            program = self.program
            here = solved(term, subscripts, indices, program.stated, program.arrays)
            known = facts.and_(*declared(here.brackets, program.arrays))
            kept = simplified_brackets(here, known)
            if kept is not None:
                raw.append(kept)
        return self.simplifier.simplified(self._only_needed(name, raw), facts, f"d{name}")

    def _facts(self, name: str, indices: tuple[Generator, ...]) -> Facts:
        """Return what holds wherever the adjoint of a cell goes anywhere."""
        facts = Facts().inside(indices).and_(*(h.guard for h in self.held if h.name == name))
        definition = self.system.definitions.get(name)
        if definition is None or not _is_extreme(definition.value):
            return facts
        return facts.and_(*implied(definition, self.totals))

    def _only_needed(self, name: str, terms: list[Term]) -> list[Term]:
        """Leave out of the adjoint of a maximum what is there only where it is one of nothing."""
        definition = self.system.definitions.get(name)
        if definition is None or not _is_extreme(definition.value):
            return terms
        return [bracketed(term, *needed(self.system, definition)) for term in terms]

    def _adjoint(self, definition: Definition, terms: list[Term]) -> Value:
        """Make a definition of an adjoint; return its cell."""
        is_stored = self.sizes.is_stored(self.system, definition)
        shared = tuple(
            c
            for c in dict.fromkeys(c for t in terms for c in t.brackets)
            if not (is_stored and is_data_dependent(c))  # that is tested once, when it is stored
            and condition_variables(c) <= set(definition.variables)
            and all(_holds_with(t, c) for t in terms)
        )
        if shared:
            # Where it is zero is kept apart, so that sums can be limited to where it is not, and
            # what it is multiplied with, which may be no number there, is not worked out.
            bare = [
                replace(t, brackets=tuple(c for c in t.brackets if c not in shared)) for t in terms
            ]
            return Select(conjunction(*shared), self._adjoint(definition, bare), Const(0.0))
        if len(terms) == 1 and terms[0] == Term(Fraction(1), terms[0].factors):
            (atom, exponent), *more = terms[0].factors or ((Const(1.0), 0),)
            if isinstance(atom, Read) and exponent == 1 and not more:
                table = definition.name in self.sizes.whole and definition.has_reduction
                if not table or not is_looked_up(atom.access):
                    return atom  # a table's own gradient is kept, as the table is
        name = self.names.array(f"d{definition.array or definition.name}")
        cell = Read(Access(name, definition.cell.access.subscripts))
        terms = [self.where_it_counts(term) for term in terms]
        whole = value_of(terms)
        if isinstance(whole, Reduce):
            split = terms
        else:
            alike = summed_alike(self, terms, name, definition)
            split = [self._without_sums(term, name, definition) for term in alike]
        small = self.sizes.is_small(definition.extents)
        plain = not any(t.generators or not is_of_totals(self.prepared, t) for t in split)
        few = small and len(split) <= MOST_INLINED and not has_slope(self.system, split)
        if plain and (few or (len(split) == 1 and self._is_multiple(split[0]))):
            self.simplifier.inlined[name] = (definition.variables, split)
        summed = any(t.generators for t in terms)
        summed = summed or (definition.has_reduction and not self._is_quotient(split))
        if definition.name in self.sizes.whole and summed:
            self.sizes.whole.add(name)  # it is read as the array is: by pieces, or by other sums
        self._keep_factor_of(definition, split)
        value = value_of(split)
        self.system.add(Definition(name, definition.indices, value, "adjoint", definition.label))
        if len(split) == 1 and split[0].generators:
            self.prepared.learn(self.system.definitions[name], split[0])
        return cell

    def _keep_factor_of(self, definition: Definition, split: list[Term]) -> None:
        """Keep an adjoint in memory that the adjoint of a product is, but for numbers of its rows.

        Its terms would be worked out again for each block that it is multiplied with.
        """
        if not isinstance(definition.value, Reduce):
            return
        access = _divided(split)
        found = None if access is None else self.system.definitions.get(access.array)
        if found is None or found.origin != "adjoint" or found.has_reduction:
            return
        several = len(expanded(found.value, self.names)) > 1
        if several and self.sizes.fits(found.extents):
            self.sizes.whole.add(found.name)

    def _is_multiple(self, term: Term) -> bool:
        """Tell whether a term is a cell of a given array times numbers that all cells have."""
        cells = [(atom, exponent) for atom, exponent in term.factors if free_variables(atom)]
        match cells:
            case [(Read(access), 1)]:
                return access.array not in self.system.definitions
            case _:
                return False

    def _is_quotient(self, split: list[Term]) -> bool:
        """Tell whether an adjoint is one in memory, but for numbers of its rows."""
        access = _divided(split)
        if access is None:
            return False
        return access.array in self.sizes.whole or access.array not in self.system.definitions

    def given_where_it_counts(self, term: Term) -> Term:
        """Put a term of a gradient under such conditions too, unless what is given is all it reads.

        What is given is taken to be finite, and products of it are matrix products.
        """
        given = [
            isinstance(atom, Read)
            and exponent > 0
            and not self.system.is_forward(atom.access.array)
            for atom, exponent in term.factors
        ]
        return term if all(given) else self.where_it_counts(term)

    def where_it_counts(self, term: Term) -> Term:
        """Put a term under the conditions without which one of its factors is 0.

            P * dP    dP = x if seen else 0        ->        P * dP if seen else 0
            w * dO    w = P if seen else 0         ->        P * dO if seen else 0

        P may be infinite where dP is 0: a weight worked out again from a sum of nothing is.
        """
        for atom, exponent in term.factors:
            if exponent < 1 or not isinstance(atom, Read):
                continue
            definition = self.system.definitions.get(atom.access.array)
            if definition is None or definition.name in self.sizes.outputs:
                continue
            chosen = self.system.instance(definition.name, atom.access.indices)
            match chosen:
                case Select(condition, _, Const(0.0)):
                    term = bracketed(term, condition)
                case _:
                    continue
            if definition.origin != "adjoint" and exponent == 1:
                term = self._chosen(term, atom, chosen)
        return term

    def _chosen(self, term: Term, atom: Read, chosen: Value) -> Term:
        """Read what a factor was chosen to be instead of it, if that is one product."""
        parts = expanded(chosen, self.names)
        if len(parts) != 1 or parts[0].generators:
            return term
        rest = tuple(each for each in term.factors if each[0] != atom)
        return times(replace(term, factors=rest), parts[0])

    def _without_sums(self, term: Term, name: str, like: Definition) -> Term:
        """Make a definition of the sum in a term, so that it is worked out once."""
        facts = Facts().inside(like.indices)
        known_already = self.simplifier.by_rule(term, facts, name) if term.generators else None
        if known_already is not None:
            return self._without_sums(known_already, name, like)
        if not term.generators:
            return term
        bare = value_of([replace(term, coefficient=Fraction(1))])
        part = next(reductions(bare))
        mine = set(free_variables(part))
        indices = tuple(g for g in like.indices if g.variable in mine)
        own, new = refreshed_generators(indices, self.names)
        terms = expanded(value_moved(part, new), self.names)
        was = any(f.kind == "contraction" and f.of == name for f in self.found)
        known = self.names.array("delta" if was else f"{name}_sum")
        definition = Definition(known, own, value_of(terms), "adjoint", like.label)
        self.system.add(definition)
        self.prepared.learn(definition, terms[0])
        cell = Read(Access(known, tuple(Var(g.variable) for g in indices)))
        rest = outside(term)
        return times(rest, Term(Fraction(1), ((cell, 1),)))

    # What its reads receive

    def _pull(self, definition: Definition, adjoint: Value) -> None:
        value = definition.value
        cell = definition.cell
        pull = Pull((value, cell), self.wanted, definition.label)
        given = list(pull.through(value, adjoint)) if not _is_extreme(value) else []
        if _is_extreme(value):
            assert isinstance(value, Reduce)
            self.attained.append(definition.name)
            given = list(self._extreme(definition, value, adjoint, pull))
        for each in given:
            self._receive(definition, each)

    def _extreme(
        self, definition: Definition, value: Reduce, adjoint: Value, pull: Pull
    ) -> list[Contribution]:
        """Share the adjoint of a maximum equally among all that attain it."""
        if not is_rounded_alike(value.body, self.system):
            raise OnExtreme(
                f"{definition.name} is the largest or smallest of values that would be worked "
                "out again, and which of them it was cannot be told from rounded numbers",
                definition.label,
            )
        name = self.names.array(f"{definition.name}_ties")
        own, new = refreshed_generators(definition.indices, self.names)
        bound, inner = refreshed_generators(value.generators, self.names)
        body = value_moved(value_moved(value.body, inner), new)
        attains = Data(Compare("==", body, value_moved(definition.cell, new)))
        bound = tuple(
            replace(g, range=range_moved(g.range, new), condition=condition_moved(g.condition, new))
            for g in bound
        )
        last = replace(bound[-1], condition=conjunction(bound[-1].condition, attains))
        count = Reduce("sum", (*bound[:-1], last), Const(1.0))
        self.system.add(Definition(name, own, count, "adjoint", definition.label))
        share = Select(
            Data(Compare("==", value.body, definition.cell)),
            divide(adjoint, Read(Access(name, definition.cell.access.subscripts))),
            Const(0.0),
        )
        as_sum = Reduce("sum", value.generators, value.body)
        one = Const(1.0)
        return [replace(c, value=multiply(c.value, share)) for c in pull.through(as_sum, one)]

    def _receive(self, definition: Definition, given: Contribution) -> None:
        everything = (*definition.indices, *given.generators)
        own, new = refreshed_generators(everything, self.names)
        subscripts = tuple(substitute(index, new) for index in given.access.indices)
        when = tuple(condition_moved(c, new) for c in given.conditions)
        outer = tuple(replace(g, condition=ALWAYS) for g in own)
        known = self.said.inside(own).and_(*when)
        for cell, conditions in pieces(subscripts, known):
            for term in self.prepared.terms(given.value):
                moved = bracketed(term_moved(term, new), *when, *conditions)
                joined = replace(moved, generators=(*outer, *moved.generators))
                self.pending.setdefault(given.access.array, []).append(
                    (cell, renewed_inner(joined, outer, self.names))
                )


def _divided(terms: list[Term]) -> Access | None:
    """Return the cell that terms are, times numbers that hang on fewer indices; None for others."""
    if len(terms) != 1 or terms[0].generators:
        return None
    hanging = [(atom, power, set(free_variables(atom))) for atom, power in terms[0].factors]
    most = max((len(names) for *_, names in hanging), default=0)
    match [(atom, power) for atom, power, names in hanging if len(names) == most]:
        case [(Read(access), 1)]:
            return access
        case _:
            return None


def renewed_inner(term: Term, outer: tuple[Generator, ...], names: Names) -> Term:
    """Give the sums inside a contribution variables of their own."""
    kept = {g.variable for g in outer}
    inner = tuple(g for g in term.generators if g.variable not in kept)
    _, new = refreshed_generators(inner, names)
    moved = term_moved(term, new)
    names_ = {old: own.name for old, own in new.items() if isinstance(own, Var)}
    generators = tuple(
        replace(g, variable=names_.get(g.variable, g.variable)) for g in moved.generators
    )
    return replace(moved, generators=generators)


def _holds_with(term: Term, condition: Condition) -> bool:
    """Tell whether a condition holds wherever a term is there."""
    return condition in term.brackets or (
        is_of_indices(condition) and Facts().and_(*term.brackets).imply(condition)
    )


def _is_extreme(value: Value) -> bool:
    return isinstance(value, Reduce) and value.function != "sum"
