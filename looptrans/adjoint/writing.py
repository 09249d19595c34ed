"""The backward listing: nests that gather each gradient, values worked out again inside them.

    for j: for i:                                     outer loops: indices of the gradient
        S = …; P = …; dP = …; dS = …                  what is not stored, worked out again
        for e: dK[j, e] = dK[j, e] + dS * Q[i, e]     the gradient's other indices

Each array that is stored gets a nest of its own, and nests with the same loops become one. Where a
sum is worked out again, the gradient's indices it does not depend on run innermost, so that it is
done once for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeAlias

from looptrans.adjoint.definitions import (
    Definition,
    System,
    condition_variables,
    free_variables,
    plain_name,
    range_moved,
)
from looptrans.adjoint.facts import Facts
from looptrans.adjoint.in_range import conditions_of_reads
from looptrans.adjoint.printing import Printed, body_text, shape_text
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.adjoint.saving import Saver
from looptrans.adjoint.size import Sizes
from looptrans.adjoint.solving import (
    replacing,
)
from looptrans.adjoint.standing import Scalar, has_sum, outside_sums, put_in
from looptrans.adjoint.sums import Term, combined, expanded, in_order, term_moved, value_of
from looptrans.algebra.cells import condition_moved, moved, value_moved
from looptrans.algebra.values import ZERO, is_number
from looptrans.frontend import parse
from looptrans.ir.condition import (
    ALWAYS,
    Condition,
    Relation,
    Some,
    conjunction,
    is_data_dependent,
    negation,
)
from looptrans.ir.index import Arith, Index, Int, Var, substitute, variables
from looptrans.ir.listing import condition_text, contract_text, index_text
from looptrans.ir.program import Declaration, Program
from looptrans.ir.rewrite import access_changed, condition_changed, replaced, value_changed
from looptrans.ir.source import Source
from looptrans.ir.value import (
    Access,
    Const,
    Generator,
    Holds,
    Read,
    Reduce,
    Select,
    Value,
    walk_value,
)
from looptrans.ir.walk import loops


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of an input: its indices, and the terms it is the sum of."""

    name: str
    indices: tuple[Generator, ...]
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """`target = target + value`, or `target = value`, for some further indices."""

    target: Access
    inner: tuple[Generator, ...]
    value: Value
    adds: bool


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops, conditions, values worked out inside, and updates.

    Attributes:
        loops: The loops, outermost first.
        conditions: What must hold.
        scalars: Values worked out in the nest, each behind those it reads.
        updates: What is gathered.
    """

    loops: tuple[Generator, ...]
    conditions: tuple[Condition, ...]
    scalars: tuple[Scalar, ...]
    updates: tuple[Update, ...]


@dataclass(slots=True)
class Writer:
    """Writes the backward listing of definitions.

    Attributes:
        program: The listing that was differentiated.
        system: Definitions, adjoints among them.
        sizes: Which of them are stored.
        outputs: The definition of each output.
        kept: Adjoints that are stored in any case.
        saved: What the forward hands over, in order: names of definitions.
        nests: The nests that were written.
        shown: What saved definitions are called in the listings.
        meant: Which definition each scalar and each array made in the backward listing is.
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

    def written(
        self, gradients: dict[str, Gradient], incoming: dict[str, str], saver: Saver
    ) -> tuple[Program, Program]:
        """Return the backward listing, and the forward listing that hands over what it needs.

        Args:
            gradients: For each argument, its gradient.
            incoming: For each output that receives one, the name of its gradient.
            saver: Says how what is saved leaves the forward.
        """
        made: list[Definition] = []
        nests: list[Nest] = []
        for name in self._stored_adjoints(gradients, saver):
            definition = self.system.definitions[name]
            made.append(definition)
            terms = combined(expanded(definition.value, self.system.names))
            nests += self._nests(Gradient(name, definition.indices, tuple(terms)), definition)
        for gradient in gradients.values():
            nests += self._nests(gradient, None)
        self.nests = _merged(nests)
        forward, self.shown = saver.extended(self.saved)
        return self._program(made, gradients, incoming), forward

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
            if stored and definition.origin == "forward" and saver.can(name):
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

    # Nests

    def _nests(self, gradient: Gradient, definition: Definition | None) -> list[Nest]:
        """Return the nests that work out a stored array."""
        target = Access(gradient.name, tuple(Var(g.variable) for g in gradient.indices))
        groups: dict[str, list[Term]] = {}
        for each in gradient.terms:
            term = self._summed_first(each)
            ordered = replace(term, generators=in_order(self._as_in_text(term.generators)))
            groups.setdefault(_group(ordered), []).append(ordered)
        found = []
        keys = sorted(groups, key=lambda k: bool(groups[k][0].generators))
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
            value = value_of(inner)
            adds = bool(first) or number > 0
            given = _given(shared, gradient.indices)
            found.append(
                self._nest(
                    moved(target, given),
                    tuple(g for g in gradient.indices if g.variable not in given),
                    tuple(replace(g, range=range_moved(g.range, given)) for g in first),
                    tuple(condition_moved(c, given) for c in shared if not _says(c, given)),
                    value_moved(value, given),
                    adds or bool(given),
                )
            )
        return found

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
            if not again or any(self._is_worked_out_again(a) for a, _ in inside):
                continue
            first = value_of([Term(Fraction(1), tuple(inside), (), (g,))])
            return replace(term, generators=others, factors=(*outside, (first, 1)))
        return term

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
        target: Access,
        indices: tuple[Generator, ...],
        generators: tuple[Generator, ...],
        conditions: tuple[Condition, ...],
        value: Value,
        adds: bool,
    ) -> Nest:
        work = _Work(self)
        body = work.out(value)
        tested = tuple(_only_condition(work.out(Holds(c))) for c in conditions)
        scalars = {
            access: replace(scalar, value=outside_sums(scalar.value, tested))
            for access, scalar in work.guarded().items()
        }
        body = outside_sums(body, tested)
        heavy = any(has_sum(s.value) for s in scalars.values())
        inner: tuple[Generator, ...] = ()
        if heavy and generators:
            scalars, body = put_in(scalars, body, tested)
            used: set[str] = set()
            for scalar in scalars.values():
                used |= set(free_variables(scalar.value))
                used |= {n for index in scalar.cell.indices for n in variables(index)}
            for condition in tested:
                used |= condition_variables(condition)
            for g in generators:
                used |= {*variables(g.range.start), *variables(g.range.stop)}
            inner = tuple(g for g in indices if g.variable not in used)
        outer = [g for g in indices if g not in inner]
        if inner:
            outer = list(self._as_in_text(tuple(outer), generators))
        update = Update(target, inner, body, adds)
        nest = Nest((*outer, *generators), tested, tuple(scalars.values()), (update,))
        return _without_quotients(self._in_range(nest))

    def _in_range(self, nest: Nest) -> Nest:
        """Leave out what would read beside an array: the listing reads none of it there."""
        own = frozenset(g.variable for g in nest.loops)
        facts = Facts(nest.conditions).inside(nest.loops)
        (update,) = nest.updates
        inside = facts.inside(update.inner)
        more = conditions_of_reads(update.value, inside, self._extents, own)
        facts = facts.and_(*more)
        scalars = []
        for scalar in nest.scalars:
            needed = conditions_of_reads(scalar.value, facts, self._extents, own)
            value = scalar.value
            if needed:
                value = Select(conjunction(*needed), value, Const(0.0))
            scalars.append(replace(scalar, value=value))
        return replace(nest, conditions=(*nest.conditions, *more), scalars=tuple(scalars))

    def _extents(self, access: Access) -> tuple[Index | None, ...]:
        definition = self.system.definitions.get(access.array)
        if definition is not None:
            # How far one index goes may depend on another: j < i + 1.
            here = dict(zip(definition.variables, access.indices, strict=True))
            return tuple(substitute(extent, here) for extent in definition.extents)
        arrays = {array.name: array for array in self.program.arrays}
        return arrays[access.array].shape if access.array in arrays else ()

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
                if g.variable in {*variables(other.range.start), *variables(other.range.stop)}
                and other.variable in places
            ]
            if g.variable not in places and bounded:
                places[g.variable] = min(bounded)
        if any(g.variable not in places for g in given):
            return given
        return tuple(sorted(given, key=lambda g: places[g.variable]))

    # Text

    def _program(
        self,
        made: list[Definition],
        gradients: dict[str, Gradient],
        incoming: dict[str, str],
    ) -> Program:
        program = self.program
        names = dict(self.shown)
        # An output is called as the listing calls it; so may be what an earlier statement left.
        handed = {names.get(n, n) for n in self.saved}
        for definition in made:
            if definition.name in handed and names.get(definition.name) is None:
                names[definition.name] = self.system.names.array(definition.name)
        variables_ = {plain_name(g.variable) for n in self.nests for g in n.loops}
        variables_ |= {
            plain_name(g.variable) for n in self.nests for u in n.updates for g in u.inner
        }
        fixed = {*program.arguments, *(p.name for p in program.parameters)}
        fixed |= {*incoming.values(), *(g.name for g in gradients.values())}
        fixed |= {names.get(d.name, d.name) for d in made} | handed
        printed = Printed(variables_, names, fixed | variables_)
        annotations = {a.name: a.annotation for a in program.arrays}
        annotations |= {p.name: p.annotation for p in program.parameters}
        arguments = []
        for name in program.arguments:
            annotation = annotations.get(name)
            arguments.append(name if annotation is None else f"{name}: {annotation}")
        precise = {
            node.array
            for node in program.body
            if isinstance(node, Declaration) and node.creation.element == "float32"
        }
        for name in self.saved:
            definition = self.system.definitions[name]
            shown = names.get(name, name)
            kind = "Float" if name in self.sizes.outputs else "Float32"
            if shown in precise:
                kind = "Float32"
            arguments.append(f"{shown}: {self._annotation(definition.extents, kind)}")
        for output, name in incoming.items():
            extents = self.system.definitions[self.outputs[output]].extents
            kind = "Float32" if output in precise else "Float"
            arguments.append(f"{name}: {self._annotation(extents, kind)}")
        lines = [f"def {program.name.replace('.', '_')}_backward({', '.join(arguments)}):"]
        lines += [f"    {contract_text(c)}" for c in program.contracts]
        for definition in made:
            name = names.get(definition.name, definition.name)
            lines.append(f"    {self._created(name, definition.extents, True)}")
        for gradient in gradients.values():
            extents = tuple(g.range.stop for g in gradient.indices)
            lines.append(f"    {self._created(gradient.name, extents, False)}")
        for nest in self.nests:
            lines += ["    " + line for line in body_text(nest, printed)]
        lines.append(f"    return {', '.join(g.name for g in gradients.values())}")
        self.meant = printed.scalars | {names.get(d.name, d.name): d.name for d in made}
        text = "\n".join(lines) + "\n"
        return parse(Source(f"<backward of {program.name}>", text))

    def _annotation(self, extents: tuple[Index, ...], kind: str) -> str:
        if any(variables(extent) for extent in extents):
            raise NotDifferentiated("an array that is saved has rows of different lengths")
        return f'{kind}[Array, "{shape_text(extents)}"]'

    def _created(self, name: str, extents: tuple[Index, ...], precise: bool) -> str:
        if not extents:
            return f"{name} = 0.0"
        inner = ", ".join(index_text(extent) for extent in extents)
        shape = f"({inner})" if len(extents) > 1 else inner
        return f"{name} = zeros({shape}, dtype=float32)" if precise else f"{name} = zeros({shape})"


def _given(conditions: tuple[Condition, ...], indices: tuple[Generator, ...]) -> dict[str, Index]:
    """Return the indices that conditions give a number inside their range."""
    ends = {g.variable: g.range.stop for g in indices}
    found: dict[str, Index] = {}
    for condition in conditions:
        match condition:
            case Relation("==", Int(number), Var(name)) | Relation("==", Var(name), Int(number)):
                end = ends.get(name)
                if isinstance(end, Int) and 0 <= number < end.value and name not in found:
                    found[name] = Int(number)
            case _:
                pass
    return found


def _says(condition: Condition, given: dict[str, Index]) -> bool:
    """Tell whether a condition says no more than what an index is."""
    match condition:
        case Relation("==", Var(name), value) | Relation("==", value, Var(name)):
            return name in given and given[name] == value
        case _:
            return False


_Read: TypeAlias = tuple[Access | None, tuple[Condition, ...]]


@dataclass(slots=True)
class _Work:
    """What is worked out in one nest.

    Attributes:
        writer: Knows what is stored.
        scalars: What is worked out, each behind what it reads.
        readers: For each of them, which other reads it (None is the update), and under which
            conditions of choices.
    """

    writer: Writer
    scalars: dict[Access, Scalar] = field(default_factory=dict)
    readers: dict[Access, list[_Read]] = field(default_factory=dict)

    def out(self, value: Value) -> Value:
        """Replace reads of what is not stored by scalars, and note what those are."""
        return self._out(value, frozenset(), None, ())

    def _out(
        self,
        value: Value,
        bound: frozenset[str],
        reader: Access | None,
        under: tuple[Condition, ...],
    ) -> Value:
        system = self.writer.system

        def change(part: Value) -> Value | None:
            match part:
                case Read(access) if access.array in system.definitions:
                    if self.writer.is_stored(access.array):
                        return None
                    if {n for i in access.indices for n in variables(i)} & bound:
                        # Inside a sum there is no place for a statement.
                        inner = system.instance(access.array, access.indices)
                        return self._out(inner, bound, reader, under)
                    self.readers.setdefault(access, []).append((reader, under))
                    if access not in self.scalars:
                        inner = system.instance(access.array, access.indices)
                        own = self._out(inner, bound, access, ())
                        self.scalars[access] = Scalar(access.array, access, own)
                    return part
                case Select(condition, chosen, otherwise):
                    tested = _only_condition(self._out(Holds(condition), bound, reader, under))
                    ways = [condition, negation(condition)]
                    if is_data_dependent(condition) or condition_variables(condition) & bound:
                        ways = [ALWAYS, ALWAYS]
                    return Select(
                        tested,
                        self._out(chosen, bound, reader, (*under, ways[0])),
                        self._out(otherwise, bound, reader, (*under, ways[1])),
                    )
                case Reduce(function, generators, body):
                    inside = bound | {g.variable for g in generators}
                    found = tuple(
                        replace(
                            g,
                            condition=_only_condition(
                                self._out(Holds(g.condition), inside, reader, under)
                            ),
                        )
                        for g in generators
                    )
                    return Reduce(function, found, self._out(body, inside, reader, under))
                case _:
                    return None

        return replaced(value, change)

    def guarded(self) -> dict[Access, Scalar]:
        """Return the scalars, those read only under conditions worked out only where they hold.

        Elsewhere what they read may lie outside its array.
        """
        when: dict[Access | None, Condition] = {None: ALWAYS}
        found: dict[Access, Scalar] = {}
        for access in reversed(self.scalars):
            ways = [conjunction(when[reader], *under) for reader, under in self.readers[access]]
            distinct = tuple(dict.fromkeys(ways))
            when[access] = distinct[0] if len(distinct) == 1 else Some(distinct)
            if ALWAYS in distinct:
                when[access] = ALWAYS
            scalar = self.scalars[access]
            if when[access] != ALWAYS:
                value = Select(when[access], scalar.value, Const(0.0))
                scalar = replace(scalar, value=value)
            found[access] = scalar
        return {access: found[access] for access in self.scalars}


def _only_condition(value: Value) -> Condition:
    assert isinstance(value, Holds)
    return value.condition


def _group(term: Term) -> str:
    """Return what terms share that can stand in one nest: ranges and conditions."""
    neutral = _renamed(term, [f"~g{number}" for number in range(len(term.generators))])
    text = " ".join(
        f"{g.variable} {index_text(g.range.start)} {index_text(g.range.stop)}"
        for g in neutral.generators
    )
    brackets = sorted(condition_text(c) for c in neutral.brackets) if term.generators else []
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


def _without_quotients(nest: Nest) -> Nest:
    """Write `h // R` as `g` inside `for h in range(g * R, g * R + R)`."""
    for loop in nest.loops:
        match loop.range.start:
            case Arith("*", Var() as outer, divisor):
                quotient = Arith("//", Var(loop.variable), divisor)
            case _:
                continue
        change = replacing(quotient, outer)
        nest = replace(
            nest,
            conditions=tuple(condition_changed(c, change) for c in nest.conditions),
            scalars=tuple(
                replace(
                    s,
                    cell=access_changed(s.cell, change),
                    value=value_changed(s.value, change),
                )
                for s in nest.scalars
            ),
            updates=tuple(replace(u, value=value_changed(u.value, change)) for u in nest.updates),
        )
    return nest


def _merged(nests: list[Nest]) -> list[Nest]:
    """Make nests one that have the same loops and do not read what the other gathers."""
    found: list[Nest] = []
    for nest in nests:
        for number in range(len(found) - 1, -1, -1):
            joined = _joined(found[number], nest)
            if joined is not None:
                found[number] = joined
                break
            if _in_order(found[number], nest):
                found.append(nest)
                break
        else:
            found.append(nest)
    return found


def _joined(first: Nest, second: Nest) -> Nest | None:
    if len(first.loops) != len(second.loops):
        return None
    if _in_order(first, second):
        return None
    new: dict[str, Index] = {}
    for a, b in zip(first.loops, second.loops, strict=True):
        if a.range != range_moved(b.range, new):
            return None
        new[b.variable] = Var(a.variable)
    moved = _nest_moved(second, new)
    if moved.conditions != first.conditions:
        return None
    known = {s.cell for s in first.scalars}
    more = tuple(s for s in moved.scalars if s.cell not in known)
    if len(more) == len(moved.scalars) and not _same_shape(first, moved):
        return None
    its = {s.cell: s.value for s in moved.scalars}
    mine = tuple(
        replace(s, value=_for_both(s.value, its[s.cell])) if s.cell in its else s
        for s in first.scalars
    )
    return replace(first, scalars=(*mine, *more), updates=(*first.updates, *moved.updates))


def _for_both(one: Value, other: Value) -> Value:
    """Return a value that two nests work out, each where it needs it, for where either does."""
    mine, its = _needed_where(one), _needed_where(other)
    if mine is None or mine == its:
        return one
    if its is None:
        return other
    assert isinstance(one, Select)
    return Select(Some((mine, its)), one.chosen, ZERO)


def _needed_where(value: Value) -> Condition | None:
    """Return the condition without which a value is 0; None where it is so at no condition."""
    if isinstance(value, Select) and is_number(value.otherwise, 0.0):
        return value.condition
    return None


def _in_order(first: Nest, second: Nest) -> bool:
    """Tell whether a nest has to come after another: it reads or sets what that one writes."""
    both = _arrays_written(first) & _arrays_written(second)
    mine = [u for u in first.updates if u.target.array in both]
    its = [u for u in second.updates if u.target.array in both]
    apart = all(
        u.adds and v.adds and _are_apart(u.target, v.target)
        for u in mine
        for v in its
        if u.target.array == v.target.array
    )
    return bool(_arrays_written(first) & _arrays_read(second)) or not apart


def _are_apart(one: Access, other: Access) -> bool:
    """Tell whether subscripts are different numbers somewhere."""
    return any(
        isinstance(a, Int) and isinstance(b, Int) and a != b
        for a, b in zip(one.indices, other.indices, strict=True)
    )


def _same_shape(first: Nest, second: Nest) -> bool:
    """Tell whether nests that share no values set alike, or add over the same loops."""
    loops = {g.variable for g in first.loops}
    summed = {
        frozenset(loops - {n for index in u.target.indices for n in variables(index)})
        for nest in (first, second)
        for u in nest.updates
    }
    if len(summed) > 1:
        return False
    return all(not u.adds for n in (first, second) for u in n.updates) or all(
        u.adds for n in (first, second) for u in n.updates
    )


def _nest_moved(nest: Nest, new: dict[str, Index]) -> Nest:
    return Nest(
        nest.loops,
        tuple(condition_moved(c, new) for c in nest.conditions),
        tuple(Scalar(s.name, moved(s.cell, new), value_moved(s.value, new)) for s in nest.scalars),
        tuple(
            Update(moved(u.target, new), u.inner, value_moved(u.value, new), u.adds)
            for u in nest.updates
        ),
    )


def _arrays_written(nest: Nest) -> set[str]:
    return {u.target.array for u in nest.updates}


def _arrays_read(nest: Nest) -> set[str]:
    values = [s.value for s in nest.scalars] + [u.value for u in nest.updates]
    return {p.access.array for v in values for p in walk_value(v) if isinstance(p, Read)}
