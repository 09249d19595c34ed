"""Adjoints made simpler: like terms meet and cancel, and sums that are stored are recognized.

sum(P[i, j] * dP[i, j] for j)  ->  sum(O[i, d] * dO[i, d] for d)        dm[i]  ->  0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from looptrans.adjoint.empty_rows.guards import without_guards
from looptrans.adjoint.equations.definitions import Definition, System, plain_name
from looptrans.adjoint.equations.facts import Facts, bounds_of
from looptrans.adjoint.equations.recognition import Rule, applied
from looptrans.adjoint.equations.size import Sizes
from looptrans.adjoint.equations.solving import simplified_brackets
from looptrans.adjoint.equations.sums import (
    Term,
    bracketed,
    combined,
    inverted,
    mentioned,
    term_moved,
    times,
)
from looptrans.adjoint.equations.written_sums import shown, shown_sum
from looptrans.adjoint.exponentials.weights import Prepared
from looptrans.adjoint.sweep.in_parts import recognized_in_parts
from looptrans.algebra.positional.cells import condition_moved
from looptrans.ir.affine import difference, factors_of, is_same
from looptrans.ir.condition import Condition, Relation
from looptrans.ir.index import Index, Int
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    IndexValue,
    Read,
    Reduce,
    Select,
    Unary,
    Value,
    condition_variables,
    free_variables,
    walk_value,
)

MOST_ROUNDS = 30


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was used to make an adjoint simpler.

    Attributes:
        kind: `vanishes`, `recognized`, `contraction` or `spread`.
        of: The adjoint it was used in.
        law: What holds, as a formula.
        reason: Why.
        left: The terms on the left of the law.
        right: Those on the right.
    """

    kind: str
    of: str
    law: str
    reason: str
    left: tuple[Term, ...] = ()
    right: tuple[Term, ...] = ()


@dataclass(slots=True)
class Simplifier:
    """Makes adjoints simpler, and remembers by what.

    Attributes:
        prepared: The definitions, with what is known of sums.
        sizes: Which of them are stored.
        inlined: Adjoints that are put in where they are read: their variables and terms.
        found: What was recognized and cancelled.
        shapes: The extents of the arrays of the listing, as far as they are known.
    """

    prepared: Prepared
    sizes: Sizes
    inlined: dict[str, tuple[tuple[str, ...], list[Term]]] = field(default_factory=dict)
    found: list[Finding] = field(default_factory=list)
    shapes: Mapping[str, tuple[Index | None, ...]] = field(default_factory=dict)

    @property
    def system(self) -> System:
        """The definitions."""
        return self.prepared.system

    def simplified(self, terms: list[Term], facts: Facts, of: str) -> list[Term]:
        """Substitute small adjoints, recognize stored sums, and add like terms up."""
        start = self._substituted(terms)
        found: list[Term] = []
        for term in start:
            found += [t for t in self._recognized(term, facts, of) if t.coefficient]
        done = self._in_parts(self._met(combined(found), of), facts, of)
        if done and self._cancels(done):
            found, done = done, []
        if found and not done:
            reason = "its terms cancel: " + "; ".join(shown(t) for t in found)
            self.found.append(Finding("vanishes", of, f"{of} = 0", reason, tuple(start)))
        return done

    def _met(self, terms: list[Term], of: str) -> list[Term]:
        """Write out adjoints that are choices or products, where like terms meet then."""
        opened = [self._chosen(term) or self._multiplied(term) for term in terms]
        written = [
            part for term, parts in zip(terms, opened, strict=True) for part in parts or [term]
        ]
        done = combined(written)
        if len(done) >= len(terms):
            return terms
        for term, parts in zip(terms, opened, strict=True):
            if parts is not None:
                law = f"{shown(term)} = {shown_sum(parts)}"
                self.found.append(Finding("spread", of, law, "written out", (term,), tuple(parts)))
        return done

    def _in_parts(self, terms: list[Term], facts: Facts, of: str) -> list[Term]:
        """Recognize sums over the parts of what is stored."""
        opened = [self._chosen(term) or [term] for term in terms]
        written = [parts[0] if len(parts) == 1 else terms[n] for n, parts in enumerate(opened)]
        found = recognized_in_parts(self.prepared, self.sizes, written)
        if found is None:
            return terms
        left = tuple(terms[place] for place in found.places)
        law = f"{shown_sum(list(left))} = {shown(found.term)}"
        reason = f"{found.total} is {' + '.join(found.parts)}, whose sums are done first"
        self.found.append(Finding("contraction", of, law, reason, left, (found.term,)))
        rest = [term for place, term in enumerate(terms) if place not in found.places]
        better = self._recognized(found.term, facts, of)
        return self._in_parts(combined([*rest, *better]), facts, of)

    def _chosen(self, term: Term) -> list[Term] | None:
        """Write out the first factor that is an adjoint which is 0 unless a condition holds."""
        for number, (atom, exponent) in enumerate(term.factors):
            if exponent != 1 or not isinstance(atom, Read) or not term.generators:
                continue
            definition = self.system.definitions.get(atom.access.array)
            if definition is None or definition.origin != "adjoint":
                continue
            if isinstance(definition.value, Select):
                value = self.system.instance(atom.access.array, atom.access.indices)
                rest = replace(term, factors=(*term.factors[:number], *term.factors[number + 1 :]))
                return [times(rest, part) for part in self.prepared.terms(value)]
        return None

    def _multiplied(self, term: Term) -> list[Term] | None:
        """Write out the first factor that is an adjoint, a product: `dP` as `(1 - g[i]) * dW`."""
        for number, (atom, exponent) in enumerate(term.factors):
            if exponent != 1 or not isinstance(atom, Read):
                continue
            definition = self.system.definitions.get(atom.access.array)
            if definition is None or definition.origin != "adjoint" or definition.has_reduction:
                continue
            if isinstance(definition.value, Binary | Unary):
                value = self.system.instance(atom.access.array, atom.access.indices)
                parts = self.prepared.terms(value)
                if not has_slope(self.system, parts):
                    rest = (*term.factors[:number], *term.factors[number + 1 :])
                    return [times(replace(term, factors=rest), part) for part in parts]
        return None

    def _cancels(self, terms: list[Term]) -> bool:
        """Tell whether terms add up to zero, brought over one denominator and written out."""
        if len(terms) < 2 or any(t.generators for t in terms):
            return False
        lowest: dict[Value, int] = {}
        for term in terms:
            for atom, exponent in term.factors:
                lowest[atom] = min(lowest.get(atom, 0), exponent)
        below = tuple((atom, -p) for atom, p in lowest.items() if p < 0)
        if not below:
            return False
        over = [times(t, Term(Fraction(1), below)) for t in terms]
        out: list[Term] = []
        for term in over:
            out += self._written_out(term)
        return not combined(out)

    def _written_out(self, term: Term) -> list[Term]:
        """Write out, once each, the sums of terms that the listing stores and a term reads."""
        for number, (atom, exponent) in enumerate(term.factors):
            if exponent != 1 or not isinstance(atom, Read):
                continue
            definition = self.system.definitions.get(atom.access.array)
            if definition is None or definition.has_reduction or definition.origin == "adjoint":
                continue
            value = self.system.instance(atom.access.array, atom.access.indices)
            if not isinstance(value, Binary) or value.op not in "+-":
                continue
            rest = replace(term, factors=(*term.factors[:number], *term.factors[number + 1 :]))
            return [times(rest, part) for part in self.prepared.terms(value)]
        return [term]

    def _substituted(self, terms: list[Term]) -> list[Term]:
        """Put in what small adjoints are where they are read."""
        queue = list(terms)
        found: list[Term] = []
        while queue:
            term = queue.pop(0)
            for number, (atom, exponent) in enumerate(term.factors):
                if exponent != 1 or not isinstance(atom, Read):
                    continue
                known = self.inlined.get(atom.access.array)
                if known is None:
                    continue
                variables, parts = known
                here = dict(zip(variables, atom.access.indices, strict=True))
                rest = replace(term, factors=(*term.factors[:number], *term.factors[number + 1 :]))
                queue = [times(rest, term_moved(p, here)) for p in parts] + queue
                break
            else:
                found.append(term)
        return found

    def _recognized(self, term: Term, facts: Facts, of: str) -> list[Term]:
        term = self.counted(term)
        for _ in range(MOST_ROUNDS):
            kept = simplified_brackets(term, facts)
            kept = None if kept is None else without_guards(self.prepared, kept)
            if kept is None:
                return []
            term = self.counted(kept)
            better = self.by_rule(term, facts, of) or self._opened(term, facts, of)
            if better is None:
                break
            term = better
        return self._spread(term, facts, of) or [term]

    def counted(self, term: Term) -> Term:
        """Replace a sum of what does not depend on its variable by a product."""
        for g in term.generators:
            others = replace(term, generators=tuple(o for o in term.generators if o is not g))
            if g.variable in mentioned(others) or g.range.step != 1:
                continue
            if g.range.variables & term.bound:
                continue
            number = difference(g.range.stop, g.range.start)
            # What it is multiplied by may be no number where there are none: 1 / l of no keys.
            read = [(atom, p) for atom, p in others.factors if _is_read(atom)]
            unsure = any(p < 0 or isinstance(a, Call) for a, p in read)
            # A sum that is left over as many is nothing, too, where there are none.
            left = [o.range for o in others.generators if o.range.step == 1]
            as_many = any(is_same(difference(r.stop, r.start), number) for r in left)
            if not as_many and (unsure or not self._is_extent(number)):
                others = bracketed(others, Relation(">", number, Int(0)))
            return self.counted(times(others, Term(Fraction(1), ((IndexValue(number), 1),))))
        return term

    def _is_extent(self, number: Index) -> bool:
        """Tell whether a number is an extent of an array, which is not negative."""
        extents = (extent for shape in self.shapes.values() for extent in shape if extent)
        return any(number in factors_of(extent) for extent in extents)

    def _spread(self, term: Term, facts: Facts, of: str) -> list[Term] | None:
        """Write out a factor that is itself a sum of terms, where every sum over it is stored."""
        for number, (atom, exponent) in enumerate(term.factors):
            if exponent != 1 or not isinstance(atom, Read) or not term.generators:
                continue
            definition = self.system.definitions.get(atom.access.array)
            if definition is None or definition.has_reduction or not self._may_open(definition):
                continue
            inner = self.prepared.terms(
                self.system.instance(atom.access.array, atom.access.indices)
            )
            if has_slope(self.system, inner):
                continue
            if any(dict(t.factors).get(atom) for t in inner):
                continue  # what it is made of is known by it
            rest = replace(term, factors=(*term.factors[:number], *term.factors[number + 1 :]))
            found: list[Term] = []
            known = len(self.found)
            for part in inner:
                found += self._recognized(times(rest, part), facts, of)
            if isinstance(definition.value, Select) and len(self.found) == known:
                continue  # a choice is opened for a sum that is stored, and for nothing less
            done = combined(found)
            fewer = all(len(t.generators) < len(term.generators) for t in done)
            less = len(done) < 2 and all(self._work(t) < self._work(term) for t in done)
            # Sums of what is stored, in place of one over what is worked out again.
            again, loops = self._work(term)
            at_hand = (
                definition.origin == "adjoint"
                and again > 0
                and all(self._work(t) <= (0, loops) and self._is_at_hand(t) for t in done)
            )
            if fewer or less or at_hand:
                total = "; ".join(shown(t) for t in found)
                law = f"{shown(term)} = {shown_sum(done)}"
                sides = (term,), tuple(done)
                self.found.append(Finding("spread", of, law, f"term by term: {total}", *sides))
                return done or [replace(term, coefficient=Fraction(0))]
        return None

    def _may_open(self, definition: Definition) -> bool:
        return definition.name in self.prepared.shared or (
            definition.origin == "adjoint" and isinstance(definition.value, Binary | Select)
        )

    def by_rule(self, term: Term, facts: Facts, of: str) -> Term | None:
        """Return a term with a sum recognized that is stored; None where there is none.

        Args:
            term: The term.
            facts: What holds where it stands.
            of: The adjoint it is part of.
        """
        for rule in self.prepared.rules:
            if not self._is_at_hand(self.prepared.over_stored(rule.result)):
                continue
            better = applied(term, rule)
            if better is not None and self._is_there(term, better, rule, facts):
                better = self.prepared.over_stored(better)
                left, right = bracketed(rule.pattern, *rule.given), rule.result
                law = f"{shown(left)} = {shown(right)}"
                self.found.append(Finding("recognized", of, law, rule.name))
                return better
        return None

    def _is_there(self, term: Term, better: Term, rule: Rule, facts: Facts) -> bool:
        """Tell whether the cell that a rule leads to is one of those that are worked out.

        The sum of a second loop over keys may be as that of a first one, for other keys.

        Args:
            term: The term, whose reads are inside of their arrays.
            better: The term with the cell.
            rule: The rule.
            facts: What holds where the term stands.
        """
        definition = self.system.definitions[rule.name]
        known = facts.inside(better.generators).and_(*term.brackets)
        for access in _read(term):
            known = known.and_(*self._bounds(access))
        return all(
            known.imply(condition)
            for access in _read(better)
            if access.array == rule.name
            for condition in within(definition, access.indices)
        )

    def _bounds(self, access: Access) -> list[Condition]:
        """Return what holds of the subscripts of what is read."""
        definition = self.system.definitions.get(access.array)
        if definition is not None:
            return within(definition, access.indices)
        found: list[Condition] = []
        for index, extent in zip(access.indices, self.shapes.get(access.array, ()), strict=False):
            found.append(Relation(">=", index, Int(0)))
            if extent is not None:
                found.append(Relation("<", index, extent))
        return found

    def _is_at_hand(self, term: Term) -> bool:
        """Tell whether what a rule leads to need not be stored for it alone."""
        return all(
            self.sizes.is_at_hand(self.system, atom.access.array)
            for atom, _ in term.factors
            if isinstance(atom, Read)
        )

    def _work(self, term: Term) -> tuple[int, int]:
        """Return how many factors are worked out again, and how many loops there are."""
        again = 0
        for atom, _ in term.factors:
            if isinstance(atom, Read):
                definition = self.system.definitions.get(atom.access.array)
                again += definition is not None and not self.sizes.is_stored(
                    self.system, definition
                )
        return again, len(term.generators)

    def _opened(self, term: Term, facts: Facts, of: str) -> Term | None:
        """Write out a sum that a factor stands for, where another sum can then be done first."""
        for number, (atom, exponent) in enumerate(term.factors):
            if exponent != 1 or not isinstance(atom, Read):
                continue
            definition = self.system.definitions.get(atom.access.array)
            if definition is None or not definition.has_reduction:
                continue
            if not isinstance(definition.value, Reduce) or definition.value.function != "sum":
                continue
            inner = self.prepared.terms(self.system.instance(definition.name, atom.access.indices))
            if len(inner) != 1:
                continue
            rest = replace(term, factors=(*term.factors[:number], *term.factors[number + 1 :]))
            opened = times(rest, inner[0])
            for rule in self.prepared.rules:
                if rule.name == definition.name:
                    continue
                if not self._is_at_hand(self.prepared.over_stored(rule.result)):
                    continue
                better = applied(opened, rule)
                if better is None or not self._is_there(opened, better, rule, facts):
                    continue
                better = self.prepared.over_stored(better)
                if self._work(better) >= self._work(term):
                    continue
                sides = _closed(term), _without(better, outside(term))
                if rule.given:
                    common = outside(term).brackets
                    sides = bracketed(sides[0], *common), bracketed(sides[1], *common)
                law = f"{shown(sides[0])} = {shown(sides[1])}"
                reason = (
                    f"the sum over {', '.join(plain_name(g.variable) for g in rule.generators)} "
                    f"is done first, and is {rule.name}"
                )
                left, right = (sides[0],), (sides[1],)
                self.found.append(Finding("contraction", of, law, reason, left, right))
                return better
        return None


def within(definition: Definition, indices: tuple[Index, ...]) -> list[Condition]:
    """Return the conditions that say that a definition has a cell."""
    here = dict(zip(definition.variables, indices, strict=True))
    bounds = (c for g in definition.indices for c in bounds_of(g.variable, g.range))
    return [condition_moved(condition, here) for condition in bounds]


def _read(term: Term) -> list[Access]:
    """Return what the factors of a term read in any case."""
    return [atom.access for atom, _ in term.factors if isinstance(atom, Read)]


def _is_read(atom: Value) -> bool:
    return any(isinstance(part, Read) for part in walk_value(atom))


def _closed(term: Term) -> Term:
    """Return the sum in a term, without the factors that stand before it."""
    bound = term.bound
    inside = tuple((a, p) for a, p in term.factors if set(free_variables(a)) & bound)
    within = tuple(c for c in term.brackets if condition_variables(c) & bound)
    return Term(Fraction(1), inside or term.factors, within, term.generators)


def _without(term: Term, common: Term) -> Term:
    """Return a term divided by factors and brackets it has in common with others."""
    bare = replace(term, brackets=tuple(c for c in term.brackets if c not in common.brackets))
    return times(bare, inverted(replace(common, brackets=())))


def outside(term: Term) -> Term:
    """Return the factors and brackets of a term that do not depend on what it sums over."""
    bound = term.bound
    return Term(
        term.coefficient,
        tuple((a, p) for a, p in term.factors if not set(free_variables(a)) & bound),
        tuple(c for c in term.brackets if not condition_variables(c) & bound),
    )


def has_slope(system: System, terms: list[Term]) -> bool:
    """Tell whether terms are made of 1 - tanh ** 2, whose difference had better stay one.

    Multiplied out, (a - b) * (1 - tanh(x) ** 2) would be a difference of larger numbers.
    """

    def is_tanh(atom: Value) -> bool:
        if isinstance(atom, Read) and atom.access.array in system.definitions:
            return is_tanh(system.definitions[atom.access.array].value)
        return isinstance(atom, Call) and atom.function == "tanh"

    squares = [exponent > 1 and is_tanh(atom) for term in terms for atom, exponent in term.factors]
    return len(terms) > 1 and any(squares)
