"""One derivation of a backward pass: definitions of a listing, the sweep over them, the listing.

`adjoint.backward` says which listing is differentiated, and with respect to what.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import takewhile

from looptrans.adjoint.derived import Backward, Saved
from looptrans.adjoint.empty_rows.empty import guards_in_one_form
from looptrans.adjoint.empty_rows.guards import divided_once
from looptrans.adjoint.empty_rows.idle import Unguarded, without_tests_of_tops
from looptrans.adjoint.equations.definitions import Definition, System, full, plain_name
from looptrans.adjoint.equations.equal import made_one
from looptrans.adjoint.equations.known_choices import read_where_known
from looptrans.adjoint.equations.made_whole import made_whole, tables
from looptrans.adjoint.equations.offered import named
from looptrans.adjoint.equations.size import Sizes, sizes_of
from looptrans.adjoint.equations.solving import asked_alone, pinned, says_which
from looptrans.adjoint.equations.sums import ONE, Term, mentioned, term_moved
from looptrans.adjoint.equations.written_sums import in_order, value_of
from looptrans.adjoint.exponentials.carrying import Moved, carried
from looptrans.adjoint.exponentials.logarithms import with_logarithms_opened
from looptrans.adjoint.exponentials.statistics import with_log_sums
from looptrans.adjoint.exponentials.tops import asks, tested, totals_of, with_terms_opened
from looptrans.adjoint.exponentials.weights import prepared
from looptrans.adjoint.normalizing.cancelling import with_terms_cancelled
from looptrans.adjoint.normalizing.tightening import tightened
from looptrans.adjoint.proofs import Step, steps_of
from looptrans.adjoint.reading.closing import Closing
from looptrans.adjoint.reading.read import read
from looptrans.adjoint.refusal import NotDifferentiated, of_unknown_size
from looptrans.adjoint.saving import Saver
from looptrans.adjoint.sweep.reverse import Reverse
from looptrans.adjoint.writing import Gradient, Writer
from looptrans.ir.index import Int, Opaque, Param, Var, opaque_terms, variables
from looptrans.ir.listing import index_text
from looptrans.ir.program import EIGHT_BITS, Array, Program
from looptrans.ir.value import Access, Generator, Read, Real, Value, free_variables, walk_value
from looptrans.ir.verdict import Certificate

_OF_FLOATS = "gradients are of floating-point outputs, by floating-point arguments and reals"


class Derivation:
    """One derivation: definitions, the sweep over them, and the listing."""

    def __init__(self, program: Program, of: tuple[str, ...], wrt: tuple[str, ...] | None) -> None:
        if not of:
            raise NotDifferentiated("it has no output of floating-point numbers", remedy=_OF_FLOATS)
        self.program = program
        self.of = of
        self.inputs = _differentiable(program, wrt)
        if not self.inputs:
            raise NotDifferentiated(
                "it has no argument of floating-point numbers", remedy=_OF_FLOATS
            )
        self.reading, self.closings = read(program)
        self.system: System = self.reading.system
        self.outputs = self.reading.outputs
        read_where_known(self.system)
        for name in made_one(program, self.system, frozenset(self.outputs.values())):
            if name in self.reading.sites:
                # It has a cell in each iteration of loops that it is no longer an array over.
                site = self.reading.sites[name]
                self.reading.sites[name] = replace(site, indices=(None,))
        named(self.system, frozenset(self.outputs.values()))
        whole = frozenset(made_whole(program, self.system, self.reading.last))
        # What is in memory whole, whoever reads it.
        in_memory = whole | frozenset(self.outputs.values())
        with_terms_opened(self.system, in_memory)
        with_logarithms_opened(self.system)
        of_tops = without_tests_of_tops(self.system)
        totals = totals_of(self.system)
        asked = tested(self.system, totals.values())
        guarded = bool(of_tops) or asks(self.system, totals.values())
        unguarded, self.held = guards_in_one_form(self.system, totals, in_memory)
        self.unguarded = (*of_tops, *unguarded)
        self.divided = divided_once(self.system, in_memory)
        stored = in_memory | {each.name for each in self.held}
        self.carried = carried(self.system, in_memory)
        self.prepared = prepared(self.system, stored, asked, guarded)
        self.sizes: Sizes = sizes_of(program, self.system, self.outputs, self.reading.last, whole)
        self.incoming = {name: self.system.names.array(f"d{name}") for name in of}
        self.gradients = {name: self.system.names.array(f"d{name}") for name in self.inputs}
        wanted = _leading_to(self.system, frozenset(self.inputs))
        sizes = replace(self.sizes, outputs=stored)
        known = tuple(totals.values())
        self.reverse = Reverse(program, self.prepared, sizes, wanted, known, self.held)
        self.reverse.kept |= tables(self.system, whole)
        self.targets: dict[str, Gradient] = {}

    def sweep(self) -> None:
        """Work out every adjoint."""
        forward = self.system.order()
        for name in self.of:
            self.reverse.seed(self.outputs[name], self.incoming[name])
        self.reverse.sweep(forward)
        for name in self.inputs:
            indices = self._indices(name)
            terms = [
                self.reverse.given_where_it_counts(term)
                for term in self.reverse.gathered(name, indices)
            ]
            self.targets[name] = self._gradient(name, indices, terms)

    def _gradient(self, name: str, indices: tuple[Generator, ...], terms: list[Term]) -> Gradient:
        """Return the gradient of an input, through partial sums where many cells add to one.

        They are taken of a number and of a row of numbers, and of what has more dimensions where
        they need no more room than an argument or an output does.
        """
        parts: list[Term] = []
        alike: dict[tuple[object, ...], list[Term]] = {}
        for term in terms:
            alike.setdefault((in_order(term.generators), term.brackets), []).append(term)
        for together in alike.values():
            term = together[0]
            ordered = in_order(term.generators)
            outer = tuple(takewhile(self._has_parts, ordered[:-1]))
            given = pinned(term.brackets, indices, self.reverse.said)
            given |= asked_alone(term, indices)
            own = tuple(g for g in indices if g.variable not in given)
            which = tuple(c for c in term.brackets if says_which(c, given))
            rest = tuple(c for c in term.brackets if c not in which)
            here = _one_term([term_moved(replace(t, brackets=rest), given) for t in together])
            # A number has a part for each row, and not for each pair of rows.
            few = len(own) < 2
            counts = range(len(outer), 0, -1) if given or few else (len(outer),)
            ways = [_part(here, own, ordered, count) for count in counts if outer]
            part = next((each for each in ways if self._has_room(each.cells)), None)
            if part is None and few and ways:
                part = ways[0]
            if part is None:
                parts += together
                continue
            called = self.system.names.array(f"{self.gradients[name]}_part")
            self.system.add(Definition(called, part.cells, value_of([part.inner]), "adjoint"))
            self.reverse.kept.add(called)
            cell = Read(Access(called, tuple(Var(g.variable) for g in part.cells)))
            parts.append(Term(ONE.coefficient, ((cell, 1), *part.ahead), which, part.outer))
        return Gradient(self.gradients[name], indices, tuple(parts))

    def _has_parts(self, each: Generator) -> bool:
        """Tell whether each iteration of a loop may have a part: it is known how many there are.

        They are counted from 0 to sizes, or to a length that is read and has a greatest value.
        """
        stop = each.range.stop
        if isinstance(stop, Param):
            return True
        if each.range.start != Int(0):
            return False
        if isinstance(stop, Opaque):
            return self.program.array(stop.array).value_range is not None
        return not variables(stop) and not opaque_terms(stop)

    def _has_room(self, cells: tuple[Generator, ...]) -> bool:
        """Tell whether an argument or output has each extent of an array over these indices."""
        wanted = Counter(index_text(g.range.stop) for g in cells)
        return any(
            wanted <= Counter(index_text(extent) for extent in array.extents)
            for array in self.program.arrays
            if array.role == "input" or array.name in self.program.outputs
        )

    def _indices(self, name: str) -> tuple[Generator, ...]:
        """Return the indices of an input, called as the listing's loops are."""
        if name in {p.name for p in self.program.parameters}:
            return ()
        array = self.program.array(name)
        found: list[Generator] = []
        given = [s for s, _ in self.reverse.pending.get(name, ())]
        used: set[str] = set()
        for number, extent in enumerate(array.shape):
            if extent is None:
                raise of_unknown_size(array)
            wish = "x"
            index = given[0][number] if given else None
            if isinstance(index, Var):
                wish = plain_name(index.name)
            elif isinstance(extent, Param) and extent.name.lower() != extent.name:
                wish = extent.name.lower()
            if wish in used or wish in self.system.names.taken:
                wish = next(
                    w
                    for w in (f"x{k}" for k in range(1, 99))
                    if w not in used and w not in self.system.names.taken
                )
            used.add(wish)
            found.append(full(self.system.names.variable(wish), extent))
        return tuple(found)

    def backward(self, notes: list[str]) -> Backward:
        """Write the listing."""
        held = [self.system.definitions[each.name] for each in self.held]
        for own, each in zip(held, self.held, strict=True):
            self.system.add(replace(own, value=each.value, origin="again"))
        known = tuple(self.reading.sites)
        outputs = tuple(self.outputs.values())
        statistics = with_log_sums(self.prepared, outputs, known)
        writer = Writer(self.program, self.system, self.sizes, self.outputs, self.reverse.kept)
        saver = Saver(self.program, self.reading, self.system)
        text, forward = writer.written(self.targets, self.incoming, saver)
        text = tightened(with_terms_cancelled(text))
        saved = [writer.shown[name] for name in writer.saved]
        logarithms = {name for each in statistics if (name := each.alone) is not None}
        for own in held:
            self.system.add(own)
        once, *shown = steps_of(self.reverse, statistics, writer)
        simpler = [
            *map(_unguarded, (*self.unguarded, *(each.why for each in self.held))),
            *map(_divided_once, self.divided),
            *([_carried(self.carried)] * bool(self.carried)),
        ]
        steps = (*map(closed_form, self.closings), once, *simpler, *shown)
        for certificate in (c for step in steps for c in step.certificates):
            if certificate.verdict == "illegal":
                raise NotDifferentiated(f"a step towards it is refuted: {certificate.law}")
        if self.reverse.attained:
            names = ", ".join(dict.fromkeys(self.reverse.attained))
            notes = [*notes, f"The adjoint of {names} is shared equally by all that attain it."]
        return Backward(
            self.program,
            self.of,
            text,
            dict(self.gradients),
            dict(self.incoming),
            tuple(Saved(name, name in self.program.outputs) for name in saved),
            forward,
            steps,
            tuple(notes),
            frozenset(n for n, d in writer.meant.items() if self.system.is_forward(d)),
            frozenset(n for n, d in writer.meant.items() if d in self.prepared.weights),
            frozenset(s for n, s in writer.shown.items() if n in logarithms),
            self.program,
        )


def closed_form(closing: Closing) -> Step:
    """Return the step that puts the closed form of a loop in its place."""
    name = f"closed form of {closing.loop}: {'; '.join(closing.formulas)}"
    return Step(name, closing.certificates)


def _unguarded(found: Unguarded) -> Step:
    law = f"{found.formula} wherever anything is differentiated"
    return Step("leave out a guard", (Certificate("algebra", law, "legal", found.reason),))


def _divided_once(formula: str) -> Step:
    certificate = Certificate("algebra", formula, "legal", "what has a name is put in")
    return Step("divide once", (certificate,))


def _carried(terms: tuple[Moved, ...]) -> Step:
    """Say which terms were moved to the last maximum; each was proved before."""
    shown = tuple(
        Certificate(
            "algebra", term.formula, "legal", f"term by term: {term.proof.left} on both sides"
        )
        for term in terms
    )
    return Step("move what an earlier loop left to the last maximum, term by term", shown)


def _one_term(terms: list[Term]) -> Term:
    """Return terms that are summed over the same as one: what cancels does so before it is summed.

    Args:
        terms: Terms with the same generators and brackets.
    """
    if len(terms) == 1:
        return terms[0]
    value = value_of([replace(term, generators=(), brackets=()) for term in terms])
    return replace(terms[0], coefficient=ONE.coefficient, factors=((value, 1),))


@dataclass(frozen=True, slots=True)
class _Part:
    """Partial sums of a gradient.

    Attributes:
        outer: What they are summed over in the end.
        cells: The indices of the partial sums.
        inner: What each is the sum of.
        ahead: The factors of a partial sum that it does not hang on.
    """

    outer: tuple[Generator, ...]
    cells: tuple[Generator, ...]
    inner: Term
    ahead: tuple[tuple[Value, int], ...]


def _part(term: Term, own: tuple[Generator, ...], ordered: tuple[Generator, ...], n: int) -> _Part:
    """Return partial sums, one for each iteration of the first n of ordered generators.

    Factors that the rest does not hang on stay out of them where they have fewer indices then:

        dR[w, e] = sum(dP[i] * Q[i, e] for i …)    with    dP[i] = sum(P[i, j] … for j …)
    """
    outer, bound = ordered[:n], {g.variable for g in ordered[n:]}
    ahead = tuple(f for f in term.factors if not bound & set(free_variables(f[0])))
    left = tuple(f for f in term.factors if f not in ahead)
    inner = replace(term, factors=left, generators=ordered[n:])
    cells = (*own, *outer)
    few = tuple(g for g in cells if g.variable in mentioned(inner))
    if len(few) == len(cells):
        inner, ahead = replace(term, generators=ordered[n:]), ()
    return _Part(outer, _in_order_of_reads(inner, few if ahead else cells), inner, ahead)


def _in_order_of_reads(term: Term, cells: tuple[Generator, ...]) -> tuple[Generator, ...]:
    """Return generators in the order in which an array that a term reads has them as subscripts."""
    names = {g.variable for g in cells}
    for atom, _ in term.factors:
        for part in walk_value(atom):
            if isinstance(part, Read):
                own = [i.name for i in part.access.indices if isinstance(i, Var)]
                if names <= set(own):
                    return tuple(sorted(cells, key=lambda g: own.index(g.variable)))
    return cells


def _differentiable(program: Program, wrt: tuple[str, ...] | None) -> tuple[str, ...]:
    arrays = {a.name: a for a in program.arrays if a.role == "input"}
    reals = {p.name for p in program.parameters if p.kind == "real"}
    found = []
    for name in program.arguments if program.is_function else (*arrays, *sorted(reals)):
        array: Array | None = arrays.get(name)
        real = array is not None and array.element == "float" and array.stated not in EIGHT_BITS
        if real or name in reals:
            found.append(name)
    if wrt is None:
        return tuple(found)
    for name in wrt:
        if name not in found:
            raise NotDifferentiated(f"{name} is no argument that has a gradient")
    return tuple(name for name in found if name in wrt)


def _leading_to(system: System, inputs: frozenset[str]) -> frozenset[str]:
    """Return the inputs and every definition that reads one, directly or not."""
    found = set(inputs)
    changed = True
    while changed:
        changed = False
        for definition in system.definitions.values():
            if definition.name in found:
                continue
            reads = set(definition.reads())
            reals = {p.name for p in walk_value(definition.value) if isinstance(p, Real)}
            if (reads | reals) & found:
                found.add(definition.name)
                changed = True
    return frozenset(found)
