"""Large arrays that one nest hands to another, worked out again where they are read.

for i: for j: S[i, j] = sum(q[i, e] * k[j, e] for e)      for i: for j: m[i] = max(m[i], (sum(…)
for i: for j: S[i, j] = S[i, j] * scale              ->                               * scale))
for i: for j: m[i] = max(m[i], S[i, j])

The listing is read as definitions, one for each version of an array. Those that are small, or come
out, are kept, each in a nest of its own; the others go where they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from looptrans.adjoint.carried.accumulating import arrays_in
from looptrans.adjoint.equations.definitions import (
    Definition,
    System,
    condition_variables,
    free_variables,
    plain_name,
    reads_of,
)
from looptrans.adjoint.equations.facts import Facts
from looptrans.adjoint.equations.size import Sizes, sizes_of
from looptrans.adjoint.equations.sums import canonical, expanded, held_together
from looptrans.adjoint.equations.written_sums import in_order
from looptrans.adjoint.normalizing.choices import with_choices
from looptrans.adjoint.reading.reading import Reading, definitions_of
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.algebra.cells import condition_moved, mentions, moved, value_moved
from looptrans.algebra.laws import joined
from looptrans.algebra.values import is_number
from looptrans.analysis.kept_flow import flow_of
from looptrans.derivation.flows import once_defined
from looptrans.derivation.masks import with_guards
from looptrans.derivation.merged import merged
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.derivation.writing import reread
from looptrans.ir.condition import ALWAYS, Condition, conjunction, negation
from looptrans.ir.creation import in_16_bits
from looptrans.ir.index import Index, Var, substitute, variables
from looptrans.ir.monoids import MONOID_OF, OF_NOTHING
from looptrans.ir.program import Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced, replaced_in_condition
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
    value_children,
    walk_value,
)
from looptrans.ir.walk import loops, placed
from looptrans.transforms.accesses import sites_of

MOST_INSIDE = 400
MOST_NESTED = 2


def _large(program: Program) -> set[str]:
    """Return the local arrays of real numbers with several dimensions."""
    return {
        array.name
        for array in program.arrays
        if array.role != "input" and array.element == "float" and array.rank > 1
    } - set(program.outputs)


def in_several_nests(program: Program) -> tuple[str, ...]:
    """Return the local arrays of several dimensions that are changed, or read, in other nests.

    An array is changed where a statement sets a cell from what was in it.
    """
    local = _large(program)
    found: dict[str, None] = {}
    written: dict[str, set[int]] = {name: set() for name in local}
    for place in placed(program):
        node = place.node
        if not isinstance(node, Assign) or len(node.targets) != 1:
            continue
        (target,), (value, *_) = node.targets, node.values
        own = all(mentions(target, loop.variable) for loop in place.loops)
        if target.array in local and own and target.array in arrays_in(value):
            found[target.array] = None
        for name in local & set(arrays_in(value)):
            if written[name] - {place.position[0]}:
                found[name] = None
        if target.array in local:
            written[target.array].add(place.position[0])
    return tuple(found)


def in_several_loops(program: Program) -> tuple[str, ...]:
    """Return the local arrays of several dimensions that are read outside of a loop that set them.

    Such is a row of scores that one loop makes, and the next ones go over.
    """
    local = _large(program)
    sites = [site for array in sorted(local) for site in sites_of(program, array)]
    found = {
        one.access.array: None
        for one in sites
        for other in sites
        if one.relation.is_write
        and not other.relation.is_write
        and one.access.array == other.access.array
        and not set(one.place.loop_positions) <= set(other.place.loop_positions)
    }
    return tuple(found)


def worked_out_again(program: Program) -> DerivationStep:
    """Work large arrays that are changed in place out again where they are read.

    Args:
        program: The program.

    Raises:
        NotDone: There are none, or the listing cannot be read as definitions.
    """
    return _worked_out(program, in_several_nests(program), "worked out again")


def rows_worked_out_again(program: Program) -> DerivationStep:
    """Do the same with what one loop hands to another, in the same iteration of those around both.

    Args:
        program: The program.

    Raises:
        NotDone: There is nothing of the kind, or the listing cannot be read as definitions.
    """
    return _worked_out(program, in_several_loops(program), "rows worked out again")


def results_worked_out_again(program: Program) -> DerivationStep:
    """Give each result a nest of its own, and work out again what several of them hang on.

    for j: for i: p = exp(…)                      for i: for j: dQ[i] = dQ[i] + exp(…) * K[j]
                  dQ[i] = dQ[i] + p * K[j]   ->
                  dV[j] = dV[j] + p * dO[i]       for j: for i: dV[j] = dV[j] + exp(…) * dO[i]

    Args:
        program: The program.

    Raises:
        NotDone: There is nothing of the kind, or the listing cannot be read as definitions.
    """
    scalars = {a.name for a in program.arrays if a.role != "input" and a.rank == 0}
    if not scalars or not program.is_function:
        raise NotDone("no number is handed from one result to another")
    writer = _writer(program)
    system = writer.system
    large = {
        d.array: None
        for d in system.definitions.values()
        if d.array in scalars and not writer.sizes.is_small(d.extents) and not writer.is_kept(d)
    }
    gone = tuple(name for name in large if writer.is_gone(name))
    if not any(map(writer.has_sums, gone)):
        raise NotDone("no result hangs on numbers that would take room")
    outputs = {writer.reading.outputs[name] for name in program.outputs}
    for name in writer.wanted():
        kept = system.definitions[name]
        if name not in outputs and not writer.sizes.is_small(kept.extents):
            raise NotDone(f"{kept.array or name} takes room in any case")
    writer.numbers = frozenset(gone)
    return writer.step(gone, "results worked out again")


def _writer(program: Program) -> _Writer:
    try:
        reading = definitions_of(with_choices(program))
    except NotDifferentiated as error:
        raise NotDone(f"its arrays are not each defined once: {error.reason}") from None
    return _Writer(program, reading, sizes_of(program, reading.system, reading.outputs, {}))


def _worked_out(program: Program, arrays: tuple[str, ...], kind: str) -> DerivationStep:
    if not arrays or not program.is_function:
        raise NotDone("no large array is handed from one nest to another")
    writer = _writer(program)
    gone = tuple(name for name in arrays if writer.is_gone(name))
    if not gone:
        raise NotDone("no large array is handed to another nest that need not be kept")
    if not any(map(writer.is_worth_it, gone)):
        raise NotDone(f"{gone[0]} is a number of each row, and may stay")
    return writer.step(gone, kind)


def _is_of_a_row(program: Program, array: str) -> bool:
    """Tell whether each row of an array has cells of its own, as under `for j in range(i + 1)`.

    Those are no matrix that a product could make as a whole.
    """
    writes = [site.place for site in sites_of(program, array) if site.relation.is_write]
    return all(
        any(
            set(variables(end)) & {outer.variable for outer in place.loops[:number]}
            for number, loop in enumerate(place.loops)
            for end in (loop.range.start, loop.range.stop)
        )
        for place in writes
    )


@dataclass(slots=True)
class _Writer:
    program: Program
    reading: Reading
    sizes: Sizes
    # What is worked out ahead of the statements that read it, once for all of an iteration.
    numbers: frozenset[str] = frozenset()

    @property
    def system(self) -> System:
        return self.reading.system

    def step(self, gone: tuple[str, ...], kind: str) -> DerivationStep:
        """Return the step that works arrays out again.

        Args:
            gone: What is worked out again.
            kind: What the step is called.

        Raises:
            NotDone: One of them rounds, or is better kept.
        """
        program = self.program
        if set(self.reading.outputs) != set(program.outputs):
            raise NotDone("no large array is handed to another nest that need not be kept")
        for array in in_16_bits(program):
            if self.is_gone(array):
                raise NotDone(f"{array} rounds what it is set to")
        once = [
            name
            for name in self.gathered_once(gone)
            if not _is_of_a_row(program, name) and not self.is_of_one_batch(name)
        ]
        if once:
            # Two products one after the other are not made one: each would be done for all others.
            raise NotDone(f"{once[0]} is gathered once only, and may stay")
        body = self.body()
        after = replace(program, body=merged(body) if self.numbers else body)
        after = reread(with_guards(after) if self.numbers else after)
        law = "a value worked out again is the value that was read before"
        shown = once_defined(program, flow_of(program), law)
        text = f"work {', '.join(gone)} out again where it is read"
        return DerivationStep(text, kind, (), program, after, (shown,))

    def is_kept(self, definition: Definition) -> bool:
        """Tell whether a definition stays in memory."""
        if definition.name in self.reading.outputs.values():
            return True
        return definition.has_reduction and self.sizes.is_stored(self.system, definition)

    def is_gone(self, array: str) -> bool:
        """Tell whether nothing of an array of the listing stays in memory."""
        mine = [d for d in self.system.definitions.values() if d.array == array]
        return bool(mine) and not any(map(self.is_kept, mine))

    def is_worth_it(self, array: str) -> bool:
        """Tell whether an array takes room, or is of sums: no number of each row that is known."""
        mine = [d for d in self.system.definitions.values() if d.array == array]
        return self.has_sums(array) or any(not self.sizes.is_small(d.extents) for d in mine)

    def has_sums(self, array: str) -> bool:
        """Tell whether an array is of sums that are worked out again with it."""
        mine = [d for d in self.system.definitions.values() if d.array == array]
        return any(any(self._sums(self._inlined(d.value))) for d in mine)

    def gathered_once(self, arrays: tuple[str, ...]) -> list[str]:
        """Return the arrays that one kept sum hangs on, made of none that several hang on.

        Nor are they of sums that other kept ones are of, as weights are of scores: those are worked
        out for the others in any case.
        """
        readers = dict.fromkeys(arrays, 0)
        made_of: dict[str, set[str]] = {array: set() for array in arrays}
        for name in self.wanted():
            definition = self.system.definitions[name]
            for array in self._inside(definition) & set(arrays):
                readers[array] += isinstance(definition.value, Reduce)
        for definition in self.system.definitions.values():
            if definition.array in made_of:
                made_of[definition.array] |= self._inside(definition)
        several = {array for array, count in readers.items() if count > 1}
        several |= {array for array in arrays if self._is_of_known_sums(array)}
        return [a for a in arrays if a not in several and not made_of[a] & several]

    def is_of_one_batch(self, array: str) -> bool:
        """Tell whether all tables that meet where an array is gathered have an index in common.

        So have the keys and values of a head; the weights of a layer are those of every row.
        """
        for name in self.wanted():
            definition = self.system.definitions[name]
            if array not in self._inside(definition):
                continue
            accesses = (
                read
                for reads in reads_of(self._inlined(definition.value)).values()
                for read in reads
            )
            spoken = [
                {n for i in read.indices for n in variables(i)}
                for read in accesses
                if len(read.indices) > 1
            ]
            if not set(definition.variables).intersection(*spoken):
                return False
        return True

    def _is_of_known_sums(self, array: str) -> bool:
        """Tell whether the sums in an array are those in something that does not hang on it."""
        mine = [d for d in self.system.definitions.values() if d.array == array]
        sums = {text for d in mine for text in self._sums(self._inlined(d.value))}
        others = (self.system.definitions[name] for name in self.wanted())
        apart = (d for d in others if array not in self._inside(d))
        known = {text for d in apart for text in self._sums(self._inlined(d.value))}
        return bool(sums) and sums <= known

    def _sums(self, value: Value) -> Iterator[str]:
        """Yield the innermost sums in a value, as texts without the names of indices."""
        for part in walk_value(value):
            if not isinstance(part, Reduce) or part.function != "sum":
                continue
            inside = [p for p in walk_value(part.body) if isinstance(p, Read | Reduce)]
            if any(isinstance(p, Reduce) for p in inside):
                continue
            bound = {g.variable for g in part.generators}
            reads = [p.access for p in inside if isinstance(p, Read)]
            free = dict.fromkeys(n for r in reads for i in r.indices for n in variables(i))
            names = [n for n in free if n not in bound]
            plain = value_moved(part, {n: Var(f"_v{k}") for k, n in enumerate(names)})
            yield " + ".join(sorted(map(canonical, expanded(plain, self.system.names))))

    def _inside(self, definition: Definition) -> set[str]:
        """Return the arrays that a definition hangs on through what is not kept."""
        queue, seen = [definition.value], set[str]()
        while queue:
            for read in reads_of(queue.pop()):
                inner = self.system.definitions.get(read)
                if inner is not None and read not in seen and not self.is_kept(inner):
                    seen.add(read)
                    queue.append(inner.value)
        return {self.system.definitions[name].array for name in seen}

    def body(self) -> tuple[Node, ...]:
        """Return the listing with every kept definition in a nest of its own."""
        wanted = self.wanted()
        names = self._names(wanted)
        made: list[Node] = []
        nests: list[Node] = []
        for name in wanted:
            definition = self.system.definitions[name]
            value = self._inlined(definition.value)
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
        taken = {a.name for a in self.program.arrays if a.role == "input"}
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

    def _inlined(self, value: Value) -> Value:
        """Put in what is not kept where it is read."""

        def change(part: Value) -> Value | None:
            if not isinstance(part, Read):
                return None
            definition = self.system.definitions.get(part.access.array)
            if definition is None or self.is_kept(definition):
                return None
            return self._inlined(self.system.instance(definition.name, part.access.indices))

        found = replaced(value, change)
        if sum(1 for _ in walk_value(found)) > MOST_INSIDE or _depth(found) > MOST_NESTED:
            raise NotDone("what would be worked out again is too much")
        return found

    # Nests

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
        sums = [part for part in walk_value(body) if isinstance(part, Reduce)]
        used = {v for part in sums for v in free_variables(part)}
        used |= {v for g in bound for v in condition_variables(g.condition)}
        for g in bound:
            ends = (Read(Access("", (g.range.start, g.range.stop))),)
            used |= {v for end in ends for v in free_variables(end)}
        inner = tuple(g for g in definition.indices if bound and sums and g.variable not in used)
        return tuple(g for g in definition.indices if g not in inner), inner

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
    start, stop = substitute(bounds.start, own), substitute(bounds.stop, own)
    return Range(start, stop, bounds.step)


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
