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

from looptrans.adjoint.definitions import (
    Definition,
    Names,
    System,
    condition_variables,
    free_variables,
    plain_name,
    refreshed_generators,
)
from looptrans.adjoint.facts import Facts
from looptrans.adjoint.pulling import Contribution, Pull
from looptrans.adjoint.recognition import applied
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.adjoint.size import Sizes
from looptrans.adjoint.solving import simplified_brackets, solved
from looptrans.adjoint.sums import (
    Term,
    bracketed,
    combined,
    expanded,
    inverted,
    mentioned,
    shown,
    shown_sum,
    term_moved,
    times,
    value_of,
)
from looptrans.adjoint.weights import Prepared
from looptrans.algebra.cells import condition_moved, value_moved
from looptrans.algebra.values import divide, multiply
from looptrans.ir.affine import is_same
from looptrans.ir.condition import ALWAYS, Data, conjunction, is_data_dependent
from looptrans.ir.index import Index, Int, Param, Var, substitute
from looptrans.ir.program import Program
from looptrans.ir.value import (
    Access,
    Binary,
    Compare,
    Const,
    Generator,
    IndexValue,
    Read,
    Reduce,
    Select,
    Value,
    walk_value,
)

MOST_ROUNDS = 30
MOST_INLINED = 3


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
class Reverse:
    """The state of a reverse sweep.

    Attributes:
        program: The listing.
        prepared: Its definitions; adjoints are added to the same system.
        sizes: Which definitions are small.
        wanted: The definitions and inputs that lead to something that is differentiated.
        found: What was recognized and cancelled.
        attained: Maxima and minima whose adjoint is not zero.
        kept: Adjoints that are kept in memory in any case.
    """

    program: Program
    prepared: Prepared
    sizes: Sizes
    wanted: frozenset[str]
    pending: dict[str, list[tuple[tuple[Index, ...], Term]]] = field(default_factory=dict)
    inlined: dict[str, tuple[tuple[str, ...], list[Term]]] = field(default_factory=dict)
    found: list[Finding] = field(default_factory=list)
    attained: list[str] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)

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
            if not terms:
                continue
            self._pull(definition, self._adjoint(definition, terms))

    def gathered(self, name: str, indices: tuple[Generator, ...]) -> list[Term]:
        """Return the adjoint of a cell as terms, simplified."""
        facts = Facts().inside(indices)
        raw = []
        for subscripts, term in self.pending.get(name, ()):
            here = solved(term, subscripts, indices, self.program.contracts)
            kept = simplified_brackets(here, facts)
            if kept is not None:
                raw.append(kept)
        return self.simplified(raw, facts, f"d{name}")

    def _adjoint(self, definition: Definition, terms: list[Term]) -> Value:
        """Make a definition of an adjoint; return its cell."""
        shared = tuple(
            c
            for c in terms[0].brackets
            if not is_data_dependent(c)
            and condition_variables(c) <= set(definition.variables)
            and all(c in t.brackets for t in terms)
        )
        if shared:
            # Where it is zero is kept apart, so that sums can be limited to where it is not.
            bare = [
                replace(t, brackets=tuple(c for c in t.brackets if c not in shared)) for t in terms
            ]
            return Select(conjunction(*shared), self._adjoint(definition, bare), Const(0.0))
        if len(terms) == 1 and terms[0] == Term(Fraction(1), terms[0].factors):
            (atom, exponent), *more = terms[0].factors or ((Const(1.0), 0),)
            if isinstance(atom, Read) and exponent == 1 and not more:
                return atom
        name = self.names.array(f"d{definition.array or definition.name}")
        cell = Read(Access(name, definition.cell.access.subscripts))
        whole = value_of(terms)
        if isinstance(whole, Reduce):
            split = terms
        else:
            split = [self._without_sums(term, name, definition) for term in terms]
        small = self.sizes.is_small(definition.extents)
        plain = not any(t.generators or t.brackets for t in split)
        if small and plain and len(split) <= MOST_INLINED:
            self.inlined[name] = (definition.variables, split)
        value = value_of(split)
        self.system.add(Definition(name, definition.indices, value, "adjoint", definition.label))
        if len(split) == 1 and split[0].generators:
            self.prepared.learn(self.system.definitions[name], split[0])
        return cell

    def _without_sums(self, term: Term, name: str, like: Definition) -> Term:
        """Make a definition of the sum in a term, so that it is worked out once."""
        known_already = self._by_rule(term, name) if term.generators else None
        if known_already is not None:
            return self._without_sums(known_already, name, like)
        if not term.generators:
            return term
        bare = value_of([replace(term, coefficient=Fraction(1))])
        part = next(p for p in walk_value(bare) if isinstance(p, Reduce))
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
        rest = _outside(term)
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
        if self._is_computed(value.body):
            raise NotDifferentiated(
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
            replace(
                g,
                condition=condition_moved(g.condition, new),
            )
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

    def _is_computed(self, value: Value) -> bool:
        for part in walk_value(value):
            if isinstance(part, Read) and part.access.array in self.system.definitions:
                inner = self.system.definitions[part.access.array]
                if inner.has_reduction or self._is_computed(inner.value):
                    return True
        return False

    def _receive(self, definition: Definition, given: Contribution) -> None:
        everything = (*definition.indices, *given.generators)
        own, new = refreshed_generators(everything, self.names)
        subscripts = tuple(substitute(index, new) for index in given.access.indices)
        outer = tuple(replace(g, condition=ALWAYS) for g in own)
        for term in self.prepared.terms(given.value):
            moved = term_moved(term, new)
            moved = bracketed(moved, *(condition_moved(c, new) for c in given.conditions))
            joined = replace(moved, generators=(*outer, *moved.generators))
            self.pending.setdefault(given.access.array, []).append(
                (subscripts, renewed_inner(joined, outer, self.names))
            )

    # Simplification

    def simplified(self, terms: list[Term], facts: Facts, of: str) -> list[Term]:
        """Substitute small adjoints, recognize stored sums, and add like terms up."""
        start = self._substituted(terms)
        found: list[Term] = []
        for term in start:
            found += [t for t in self._recognized(term, facts, of) if t.coefficient]
        done = combined(found)
        if done and self._cancels(done):
            found, done = done, []
        if found and not done:
            reason = "its terms cancel: " + "; ".join(shown(t) for t in found)
            self.found.append(Finding("vanishes", of, f"{of} = 0", reason, tuple(start)))
        return done

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
            if kept is None:
                return []
            term = self.counted(kept)
            better = self._by_rule(term, of) or self._opened(term, facts, of)
            if better is None:
                break
            term = better
        return self._spread(term, facts, of) or [term]

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
            rest = replace(term, factors=(*term.factors[:number], *term.factors[number + 1 :]))
            found: list[Term] = []
            for part in inner:
                found += self._recognized(times(rest, part), facts, of)
            done = combined(found)
            fewer = all(len(t.generators) < len(term.generators) for t in done)
            less = len(done) < 2 and all(self._work(t) < self._work(term) for t in done)
            if fewer or less:
                total = "; ".join(shown(t) for t in found)
                law = f"{shown(term)} = {shown_sum(done)}"
                sides = (term,), tuple(done)
                self.found.append(Finding("spread", of, law, f"term by term: {total}", *sides))
                return done or [replace(term, coefficient=Fraction(0))]
        return None

    def _may_open(self, definition: Definition) -> bool:
        return definition.name in self.prepared.shared or (
            definition.origin == "adjoint" and isinstance(definition.value, Binary)
        )

    def counted(self, term: Term) -> Term:
        """Replace a sum of what does not depend on its variable by a product."""
        for g in term.generators:
            others = replace(term, generators=tuple(o for o in term.generators if o is not g))
            if g.variable in mentioned(others) or g.range.step != 1:
                continue
            if is_same(g.range.start, Int(0)) and isinstance(g.range.stop, Param):
                count = Term(Fraction(1), ((IndexValue(g.range.stop), 1),))
                return self.counted(times(others, count))
        return term

    def _by_rule(self, term: Term, of: str) -> Term | None:
        for rule in self.prepared.rules:
            if not self._is_at_hand(self.prepared.over_stored(rule.result)):
                continue
            better = applied(term, rule)
            if better is not None:
                better = self.prepared.over_stored(better)
                left, right = replace(rule.pattern, coefficient=Fraction(1)), rule.result
                law = f"{shown(left)} = {shown(right)}"
                self.found.append(Finding("recognized", of, law, rule.name))
                return better
        return None

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
                better = None if better is None else self.prepared.over_stored(better)
                if better is None or self._work(better) >= self._work(term):
                    continue
                sides = _closed(term), _without(better, _outside(term))
                law = f"{shown(sides[0])} = {shown(sides[1])}"
                reason = (
                    f"the sum over {', '.join(plain_name(g.variable) for g in rule.generators)} "
                    f"is done first, and is {rule.name}"
                )
                left, right = (sides[0],), (sides[1],)
                self.found.append(Finding("contraction", of, law, reason, left, right))
                return better
        return None


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


def _outside(term: Term) -> Term:
    """Return the factors and brackets of a term that do not depend on what it sums over."""
    bound = term.bound
    return Term(
        term.coefficient,
        tuple((a, p) for a, p in term.factors if not set(free_variables(a)) & bound),
        tuple(c for c in term.brackets if not condition_variables(c) & bound),
    )


def renewed_inner(term: Term, outer: tuple[Generator, ...], names: Names) -> Term:
    """Give the sums inside a contribution variables of their own."""
    kept = {g.variable for g in outer}
    inner = tuple(g for g in term.generators if g.variable not in kept)
    _, new = refreshed_generators(inner, names)
    moved = term_moved(term, new)
    generators = tuple(
        replace(g, variable=new[g.variable].name) if g.variable in new else g  # type: ignore[union-attr]
        for g in moved.generators
    )
    return replace(moved, generators=generators)


def _is_extreme(value: Value) -> bool:
    return isinstance(value, Reduce) and value.function != "sum"
