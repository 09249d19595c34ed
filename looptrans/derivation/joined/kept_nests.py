"""A listing written anew from its definitions: those that are kept, each in a nest of its own.

What is not kept goes where it is read:

    x[i] = 2 * a[i]; y[i] = x[i] + 1; z[i] = sum(x[i] * b[i, j] for j)
    ->    for i: for j: z[i] = z[i] + 2 * a[i] * b[i, j]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from looptrans.adjoint.equations.definitions import Definition, System, plain_name, reads_of
from looptrans.adjoint.equations.facts import Facts
from looptrans.adjoint.equations.size import Sizes
from looptrans.adjoint.equations.sums import held_together
from looptrans.adjoint.equations.written_sums import in_order
from looptrans.adjoint.reading.reading import Reading
from looptrans.algebra.operators.laws import joined
from looptrans.algebra.positional.cells import condition_moved, moved
from looptrans.algebra.positional.values import is_number
from looptrans.derivation.step import NotDone
from looptrans.ir.condition import ALWAYS, Condition, conjunction, negation
from looptrans.ir.index import Index, Var, substitute
from looptrans.ir.monoids import MONOID_OF, OF_NOTHING
from looptrans.ir.program import Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.rewrite import range_changed, replaced, replaced_in_condition
from looptrans.ir.value import (
    Access,
    Binary,
    Const,
    Create,
    Generator,
    Holds,
    IndexValue,
    Range,
    Read,
    Reduce,
    Select,
    Value,
    condition_variables,
    free_variables,
    reductions,
    value_children,
    walk_value,
)
from looptrans.ir.walk import loops

MOST_INSIDE = 400
MOST_NESTED = 2


@dataclass(slots=True)
class KeptNests:
    """A listing read as definitions, and which of them stay in memory.

    Attributes:
        program: The listing.
        reading: Its definitions.
        sizes: Which of them are small.
        numbers: What is worked out ahead of the statements that read it, once for all of an
            iteration.
    """

    program: Program
    reading: Reading
    sizes: Sizes
    numbers: frozenset[str] = frozenset()

    @property
    def system(self) -> System:
        """The definitions."""
        return self.reading.system

    def is_kept(self, definition: Definition) -> bool:
        """Tell whether a definition stays in memory."""
        if definition.name in self.reading.outputs.values():
            return True
        return definition.has_reduction and self.sizes.is_stored(self.system, definition)

    def body(self) -> tuple[Node, ...]:
        """Return the listing with every kept definition in a nest of its own."""
        wanted = self.wanted()
        names = self._names(wanted)
        made: list[Node] = []
        nests: list[Node] = []
        for name in wanted:
            definition = self.system.definitions[name]
            value = self.inlined(definition.value)
            if definition.indices:
                made.append(self._declared(definition, value, names[name]))
            nests += self._nest(definition, value, names)
        return (*made, *nests)

    def wanted(self) -> list[str]:
        """Return the kept definitions that outputs hang on, each behind those it reads."""
        found: dict[str, None] = {}
        seen: set[str] = set()

        def visit(name: str) -> None:
            definition = self.system.definitions.get(name)
            if definition is None or name in seen:
                return
            seen.add(name)
            for read in definition.reads():
                visit(read)
            if self.is_kept(definition):
                found[name] = None

        for name in self.program.outputs:
            visit(self.reading.outputs[name])
        return list(found)

    def _names(self, wanted: list[str]) -> dict[str, str]:
        """Return what kept definitions are called: outputs as they were."""
        names = {self.reading.outputs[name]: name for name in self.program.outputs}
        taken = self.program.input_names
        taken |= {*names.values(), *(p.name for p in self.program.parameters)}
        taken |= {loop.variable for loop in loops(self.program)}
        for name in wanted:
            wish = self.system.definitions[name].array or name
            if name not in names:
                count, new = 1, wish
                while new in taken:
                    count += 1
                    new = f"{wish}_{count}"
                taken.add(new)
                names[name] = new
        return names

    def inlined(self, value: Value) -> Value:
        """Put in what is not kept where it is read."""

        def change(part: Value) -> Value | None:
            if not isinstance(part, Read):
                return None
            definition = self.system.definitions.get(part.access.array)
            if definition is None or self.is_kept(definition):
                return None
            return self.inlined(self.system.instance(definition.name, part.access.indices))

        found = replaced(value, change)
        if sum(1 for _ in walk_value(found)) > MOST_INSIDE or _depth(found) > MOST_NESTED:
            raise NotDone("what would be worked out again is too much")
        return found

    def _declared(self, definition: Definition, value: Value, name: str) -> Node:
        known = {n.array: n for n in self.program.body if isinstance(n, Declaration)}
        first = OF_NOTHING[value.function] if isinstance(value, Reduce) else 0.0
        shape = definition.extents
        element = known[name].creation.element if name in known else None
        if first:
            return Declaration(name, Create("full", shape, Const(first), element))
        return Declaration(name, Create("zeros", shape, None, element))

    def _nest(self, definition: Definition, value: Value, names: Mapping[str, str]) -> list[Node]:
        """Return the loops that work out a definition."""
        bound = in_order(value.generators) if isinstance(value, Reduce) else ()
        facts = Facts().inside((*definition.indices, *bound))
        body = _known(value.body if isinstance(value, Reduce) else value, facts)
        outer, inner = self._apart(definition, bound, body)
        outer = self._like_those_read(outer, value)
        ahead: dict[str, Value] = {}
        if self.numbers and bound:
            value = definition.value
            bare = self._ahead(value.body if isinstance(value, Reduce) else value, facts, ahead)
            body = _known(bare, facts)
        own: dict[str, Index] = {}
        for g in (*outer, *bound, *inner):
            own[g.variable] = Var(self._free(plain_name(g.variable), own))
        bare = _with_names(body, own, names)
        cell = moved(Access(names[definition.name], definition.cell.access.subscripts), own)
        within = Facts().inside(replace(g, condition=ALWAYS) for g in (*definition.indices, *bound))
        asked = (c for g in bound for c in held_together(g.condition))
        conditions = conjunction(*(c for c in asked if not within.imply(c)))
        if isinstance(value, Reduce):
            bare = joined(MONOID_OF[value.function], Read(cell), bare)
        node: Node = Assign("S", (cell,), (bare,))
        for g in reversed(inner):
            node = self._loop(g, own, node)
        # Sums that are worked out ahead stand outside of the loops inside.
        outside = {g.variable: own[g.variable] for g in (*outer, *bound)}
        mine: list[Node] = [
            Assign("S", (Access(name, ()),), (_with_names(each, outside, names),))
            for name, each in ahead.items()
        ]
        if conditions != ALWAYS:
            mine, node = [], If(_condition(conditions, own, names), (*mine, node))
        for g in reversed((*outer, *bound)):
            node = self._loop(g, own, *mine, node)
            mine = []
        first: list[Node] = []
        if isinstance(value, Reduce) and not definition.indices:
            first.append(Assign("S", (cell,), (Const(OF_NOTHING[value.function]),)))
        return [*first, node]

    def _ahead(self, value: Value, facts: Facts, found: dict[str, Value]) -> Value:
        """Put in what is not kept, but for numbers that are worked out ahead; note those."""

        def change(part: Value) -> Value | None:
            if not isinstance(part, Read):
                return None
            definition = self.system.definitions.get(part.access.array)
            if definition is None or self.is_kept(definition):
                return None
            inner = self.system.instance(definition.name, part.access.indices)
            name = definition.array
            if name not in self.numbers:
                return self._ahead(inner, facts, found)
            known = _known(self._ahead(inner, facts, found), facts)
            if found.setdefault(name, known) == known:
                return Read(Access(name, ()))
            return known

        return replaced(value, change)

    def _apart(
        self, definition: Definition, bound: tuple[Generator, ...], body: Value
    ) -> tuple[tuple[Generator, ...], tuple[Generator, ...]]:
        """Return the indices outside of what is summed over, and those inside.

        Inside are those that no sum in the terms hangs on, so that it is done once for them.
        """
        sums = list(reductions(body))
        used = {v for part in sums for v in free_variables(part)}
        used |= {v for g in bound for v in condition_variables(g.condition)}
        for g in bound:
            ends = (Read(Access("", g.range.ends)),)
            used |= {v for end in ends for v in free_variables(end)}
        inner = tuple(g for g in definition.indices if bound and sums and g.variable not in used)
        return tuple(g for g in definition.indices if g not in inner), inner

    def _like_those_read(self, outer: tuple[Generator, ...], value: Value) -> tuple[Generator, ...]:
        """Return indices in the order of those of what is kept and read, so that loops are one.

        m[n, h, i] = …; O[n, i, h, d] = sum(exp(s - m[n, h, i]) * …)    ->    n, h, i and d
        """
        names = [g.variable for g in outer]
        if any(g.range.variables for g in outer):
            return outer
        found: list[str] = []
        for array, accesses in reads_of(value).items():
            for access in accesses:
                own = [index.name for index in access.subscripts if isinstance(index, Var)]
                is_own = len(set(own)) == len(access.subscripts) and set(own) <= set(names)
                if array in self.system.definitions and is_own and len(own) > len(found):
                    found = own
        theirs = iter(found)
        order = [next(theirs) if name in found else name for name in names]
        return tuple(outer[names.index(name)] for name in order)

    def _free(self, wish: str, own: Mapping[str, Index]) -> str:
        used = {index.name for index in own.values() if isinstance(index, Var)}
        name, number = wish, 1
        while name in used:
            number += 1
            name = f"{wish}{number}"
        return name

    @staticmethod
    def _loop(g: Generator, own: Mapping[str, Index], *body: Node) -> Loop:
        variable = own[g.variable]
        assert isinstance(variable, Var)
        return Loop(variable.name, _range(g.range, own), body)


def _known(value: Value, facts: Facts) -> Value:
    """Return a value without what is decided where it stands: choices, and guards of sums."""

    def change(part: Value) -> Value | None:
        if isinstance(part, Binary) and part.op == "+" and is_number(_known(part.left, facts), 0):
            return _known(part.right, facts)
        if isinstance(part, Reduce) and any(g.condition != ALWAYS for g in part.generators):
            return replace(
                part,
                generators=tuple(_without_known(g, facts) for g in part.generators),
                body=_known(part.body, facts),
            )
        if not isinstance(part, Select):
            return None
        open_ = [c for c in held_together(part.condition) if not facts.imply(c)]
        if not open_:
            return _known(part.chosen, facts)
        if any(map(facts.refute, open_)):
            return _known(part.otherwise, facts)
        condition = conjunction(*open_)
        chosen = _known(part.chosen, facts.and_(*open_))
        return Select(condition, chosen, _known(part.otherwise, facts.and_(negation(condition))))

    return replaced(value, change)


def _without_known(g: Generator, facts: Facts) -> Generator:
    """Return a generator without the conditions that hold in any case."""
    open_ = (c for c in held_together(g.condition) if not facts.imply(c))
    return replace(g, condition=conjunction(*open_))


def _range(bounds: Range, own: Mapping[str, Index]) -> Range:
    return range_changed(bounds, lambda end: substitute(end, own))


def _depth(value: Value) -> int:
    """Return how many sums stand in each other at most."""
    if isinstance(value, Reduce):
        return 1 + _depth(value.body)
    return max((_depth(part) for part in value_children(value)), default=0)


def _with_names(value: Value, own: Mapping[str, Index], names: Mapping[str, str]) -> Value:
    """Return a value in the listing's names; sums in it bind variables of their own."""

    def change(part: Value) -> Value | None:
        match part:
            case Read(access) if access.array in names:
                return Read(moved(Access(names[access.array], access.subscripts), own))
            case Read(access):
                return Read(moved(access, own))
            case Reduce(function, generators, body):
                inside = dict(own)
                found = []
                for g in generators:
                    used = {index.name for index in inside.values() if isinstance(index, Var)}
                    wish = name = plain_name(g.variable)
                    number = 1
                    while name in used:
                        number += 1
                        name = f"{wish}{number}"
                    bounds = _range(g.range, inside)
                    inside[g.variable] = Var(name)
                    condition = _condition(g.condition, inside, names)
                    found.append(Generator(name, bounds, condition))
                return Reduce(function, tuple(found), _with_names(body, inside, names))
            case IndexValue(index):
                return IndexValue(substitute(index, own))
            case Select(condition, chosen, otherwise):
                return Select(
                    _condition(condition, own, names),
                    _with_names(chosen, own, names),
                    _with_names(otherwise, own, names),
                )
            case Holds(condition):
                return Holds(_condition(condition, own, names))
        return None

    return replaced(value, change)


def _condition(
    condition: Condition, own: Mapping[str, Index], names: Mapping[str, str]
) -> Condition:
    moved_ = condition_moved(condition, own)
    return replaced_in_condition(moved_, lambda part: _renamed(part, names))


def _renamed(part: Value, names: Mapping[str, str]) -> Value | None:
    if isinstance(part, Read) and part.access.array in names:
        return Read(Access(names[part.access.array], part.access.subscripts))
    return None
