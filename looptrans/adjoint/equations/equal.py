"""Definitions that say the same made one, and copies read at the place they were copied from.

    q[i, t] = Q[i, t]
    a[i, j] = sum(q[i, t] * K[j, t] for t)   ->   a[i, j] = sum(Q[i, t] * K[j, t] for t)
    b[i, j] = sum(Q[i, t] * K[j, t] for t)        and every b[i, j] is read as a[i, j]

A listing often works the same thing out in several passes. Adjoints of one definition meet where
those of two would not, and what is stored is recognized under one name only.

A sum that is worked out in loops it does not depend on is a definition without their indices, and
so is what a sum is made of:

    for i: for j: n = sum(K[j, t] for t)    ->    n[j] = sum(K[j, t] for t)

    for i: for j: for t: q = Q[i, t] * w[t]       q[i, t] = Q[i, t] * w[t]
                         k = K[j, t] * w[t]   ->  k[j, t] = K[j, t] * w[t]
                         s[i, j] += q * k         s[i, j] = sum(q[i, t] * k[j, t] for t)

    for h: for j: k = K[h // R, j] * w[j]    ->   k[g, j] = K[g, j] * w[j]

It does not depend on where a loop ends either, so long as every array it reads goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from looptrans.adjoint.equations.definitions import Definition, System, full
from looptrans.adjoint.equations.facts import Facts
from looptrans.adjoint.equations.finite import comes_back_finite, is_finite
from looptrans.algebra.positional.cells import condition_moved, value_moved
from looptrans.ir.affine import form_of, in_one_order, is_same, simplified
from looptrans.ir.condition import ALWAYS, Condition, Relation, conjunction, with_operands
from looptrans.ir.index import (
    Arith,
    Extremum,
    Index,
    Int,
    Param,
    Var,
    opaque_terms,
    substitute,
    variables,
)
from looptrans.ir.program import Program
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.rewrite import range_changed, replaced, with_reads
from looptrans.ir.value import (
    Access,
    Generator,
    Holds,
    Range,
    Read,
    Reduce,
    Select,
    Value,
    condition_variables,
    free_variables,
    reductions,
    walk_value,
)


def made_one(program: Program, system: System, outputs: frozenset[str]) -> frozenset[str]:
    """Let every reader of a copy or of a repetition read the first of its kind.

    Args:
        program: The listing.
        system: The definitions, each behind those it reads.
        outputs: Definitions that are outputs; they stay, and are read rather than others.

    Returns:
        The definitions that have fewer indices now.
    """
    work = _Equal(program, system, outputs)
    work.run()
    return frozenset(work.kept)


@dataclass(frozen=True, slots=True)
class _Instead:
    """What to read instead of a definition, in the variables of its indices."""

    variables: tuple[str, ...]
    access: Access

    def at(self, access: Access) -> Access:
        """Return what to read instead of a cell."""
        here: dict[str, Index] = dict(zip(self.variables, access.indices, strict=True))
        moved = tuple(simplified(substitute(index, here)) for index in self.access.indices)
        return Access(self.access.array, moved)


@dataclass(slots=True)
class _Equal:
    program: Program
    system: System
    outputs: frozenset[str]
    instead: dict[str, _Instead] = field(default_factory=dict)
    kept: dict[str, _Instead] = field(default_factory=dict)
    shortened: str = ""

    def run(self) -> None:
        self._copies()
        while self._without_indices():
            pass
        while self._repetitions():
            pass
        for name in self.instead:
            del self.system.definitions[name]
        self.system.sort()

    def _copies(self) -> None:
        for definition in list(self.system.definitions.values()):
            own = self._rewritten(definition)
            if isinstance(own.value, Read) and own.name not in self.outputs:
                self.instead[own.name] = _Instead(own.variables, own.value.access)

    def _without_indices(self) -> bool:
        """Take indices from what does not depend on them; tell whether there was any."""
        summed = self._summed()
        for definition in list(self.system.definitions.values()):
            own = self._rewritten(definition)
            if own.name in self.kept or own.name in self.outputs or own.name in self.instead:
                continue
            if not own.has_reduction and own.name not in summed:
                continue
            free = set(free_variables(own.value))
            own = replace(own, indices=tuple(self._widened(own, g, free) for g in own.indices))
            for g in own.indices:
                if g.variable in free:
                    free |= g.range.variables
            kept = [(g, Var(g.variable)) for g in own.indices if g.variable in free]
            found = [self._chosen_by(own, g) or (g, here) for g, here in kept]
            if len(kept) < len(own.indices) or found != kept:
                self._take_indices(own, tuple(found))
                return True
        return False

    def _chosen_by(self, own: Definition, index: Generator) -> tuple[Generator, Index] | None:
        """Return an index of what is read by a quotient or a remainder, and by nothing else.

        for h: for j: k = K[h // R, j] * w    ->    k[g, j] = K[g, j] * w, read as k[h // R, j]
        """
        found = self._subscripts(own.value, index.variable)
        if not found:
            return None
        chosen, extent = found[0]
        if not isinstance(chosen, Arith) or chosen.op not in ("//", "%"):
            return None
        if variables(chosen) != (index.variable,) or opaque_terms(chosen) or extent is None:
            return None
        if any(s != chosen or e is None or not is_same(e, extent) for s, e in found):
            return None
        if not self._is_there(own, index.variable):
            return None
        called = index.variable
        if isinstance(extent, Param) and extent.name.lower() not in self.system.names.taken:
            called = extent.name.lower()
        new = full(self.system.names.variable(called), extent)
        value = with_reads(own.value, _put_for(chosen, Var(new.variable)))
        return None if index.variable in free_variables(value) else (new, chosen)

    def _widened(self, own: Definition, index: Generator, free: set[str]) -> Generator:
        """Let an index not depend on others than `free`, where the value is there all the same.

        for i: for j in range(max(0, i - W + 1), i + 1): k = K[j] * w    ->    k[j] for j below M

        There may be cells that nothing asks for: there, too, a sum and its slope must be numbers.
        """
        if index.range.variables <= free:
            return index
        if index.range.step != 1:
            return index
        there = self._is_there(own, index.variable)
        stop = self._last_stop(own, index) if there or not own.has_reduction else None
        # What lies behind a length that is read may be anything.
        is_read = opaque_terms(index.range.start) or opaque_terms(index.range.stop)
        if stop is None and there and not is_read:
            stop = self._extent_of_reads(own, index.variable)
        return index if stop is None else replace(index, range=Range(Int(0), stop))

    def _last_stop(self, own: Definition, index: Generator) -> Index | None:
        """Return the size where an index ends for the last of the others, if all arrays go on."""
        around = ranges_by_name(own.indices)
        stop = index.range.stop
        for name in variables(stop):
            bounds = around.get(name)
            if bounds is None or bounds.step != 1 or not _rises(stop, name):
                return None
            last = Arith("-", bounds.stop, Int(1))
            stop = simplified(substitute(stop, {name: last}))
        starts: tuple[Index, ...] = (index.range.start,)
        if isinstance(index.range.start, Extremum) and index.range.start.op == "max":
            starts = index.range.start.arguments
        if Int(0) not in starts or not isinstance(stop, Param):
            return None
        facts = Facts(self.program.stated)
        for subscript, extent in self._subscripts(own.value, index.variable):
            if subscript != Var(index.variable) or extent is None:
                return None
            if not is_same(extent, stop) and not facts.imply(Relation("<=", stop, extent)):
                return None
        return stop

    def _is_there(self, own: Definition, variable: str) -> bool:
        """Tell whether it may be worked out in rows that the listing does not look at.

        Nothing comes back from there if its derivatives are finite; no sum may run further there.
        """
        for part in walk_value(own.value):
            for g in part.generators if isinstance(part, Reduce) else ():
                ends = g.range.variables
                if variable in ends | condition_variables(g.condition):
                    return False
        if not is_finite(own.value, self.system):
            return False
        return comes_back_finite(own, variable, self.system)

    def _extent_of_reads(self, own: Definition, variable: str) -> Index | None:
        """Return the extent along which all arrays are read by a variable.

        Wherever the listing works the value out, the variable lies inside of that.
        """
        extents: list[Index] = []
        for subscript, extent in self._subscripts(own.value, variable):
            if subscript != Var(variable) or extent is None or variables(extent):
                return None
            extents.append(extent)
        alike = extents and all(is_same(extents[0], other) for other in extents)
        return extents[0] if alike else None

    def _subscripts(self, value: Value, variable: str) -> list[tuple[Index, Index | None]]:
        """Return the subscripts that have a variable in them, each with the extent it is below."""
        return [
            (subscript, self._extent(part.access.array, dimension))
            for part in walk_value(value)
            if isinstance(part, Read)
            for dimension, subscript in enumerate(part.access.indices)
            if variable in variables(subscript)
        ]

    def _extent(self, array: str, dimension: int) -> Index | None:
        definition = self.system.definitions.get(array)
        if definition is not None:
            own = definition.indices[dimension].range
            return own.stop if own.start == Int(0) else None
        return self.program.array(array).shape[dimension]

    def _summed(self) -> frozenset[str]:
        """Return the definitions that are read inside sums, directly or by others of them."""
        found: set[str] = set()
        new = {name for d in self.system.definitions.values() for name in _in_sums(d.value)}
        while new:
            found |= new
            defined = [self.system.definitions[n] for n in new & self.system.definitions.keys()]
            new = {name for d in defined if not d.has_reduction for name in d.reads()} - found
        return frozenset(found)

    def _take_indices(
        self, definition: Definition, kept: tuple[tuple[Generator, Index], ...]
    ) -> None:
        """Let a definition have other indices wherever it is read.

        Args:
            definition: The definition.
            kept: The new indices, each with what it is in the variables of the old ones.
        """
        name = definition.name
        subscripts = tuple(chosen for _, chosen in kept)
        self.kept[name] = _Instead(definition.variables, Access(name, subscripts))
        indices = tuple(index for index, _ in kept)
        value = definition.value
        for index, chosen in kept:
            value = with_reads(value, _put_for(chosen, Var(index.variable)))
        definition = replace(definition, value=value)
        origin = definition.origin if definition.has_reduction else "again"
        self.system.add(replace(definition, indices=indices, origin=origin))
        self.shortened = name
        for reader in list(self.system.definitions.values()):
            if name in reader.reads():
                self.system.add(replace(reader, value=self._value(reader.value)))
        for other, known in self.instead.items():
            self.instead[other] = replace(known, access=self._access(known.access))
        self.shortened = ""

    def _repetitions(self) -> bool:
        """Find definitions with the same value; tell whether there were any."""
        alike: dict[str, list[Definition]] = {}
        for definition in self.system.definitions.values():
            own = self._rewritten(definition)
            if own.name in self.instead or not (own.has_reduction or own.reads()):
                continue
            alike.setdefault(_key(own), []).append(own)
        found = False
        for group in (part for all_ in alike.values() for part in self._by_use(all_)):
            chosen = min(group, key=lambda d: (d.name not in self.outputs, not d.array))
            shown = _in_order(chosen)
            for other in group:
                if other.name == chosen.name or other.name in self.outputs:
                    continue
                # The variables of both, in the order in which their values mention them.
                here = dict(zip(shown, (Var(v) for v in _in_order(other)), strict=True))
                access = Access(chosen.name, tuple(here[v] for v in chosen.variables))
                self.instead[other.name] = _Instead(other.variables, access)
                found = True
        return found

    def _by_use(self, group: list[Definition]) -> list[list[Definition]]:
        """Keep apart what is asked for where different conditions hold, as masks of two banks.

        As one, it would be asked for where either of them does, which no loop can skip.
        """
        uses = [self._asked(definition, ()) for definition in group]
        if not any(uses) or any(ALWAYS in each for each in uses):
            return [group]
        found: list[tuple[frozenset[Condition], list[Definition]]] = []
        for definition, asked in zip(group, uses, strict=True):
            # What nothing reads is of the loop before it.
            own = asked or (found[-1][0] if found else asked)
            met = [each for each in found if each[0] & own]
            found = [each for each in found if each not in met]
            together = frozenset().union(own, *(conditions for conditions, _ in met))
            found.append((together, [*(d for _, other in met for d in other), definition]))
        return [part for _, part in found]

    def _asked(self, definition: Definition, above: tuple[str, ...]) -> frozenset[Condition]:
        """Return the conditions under which sums read a definition, over the order of its indices.

        Args:
            definition: The definition.
            above: The definitions that are being looked at.
        """
        if definition.name in self.outputs or definition.name in above:
            return frozenset((ALWAYS,))
        found: set[Condition] = set()
        for reader in self.system.definitions.values():
            if definition.name not in reader.reads() or reader.name in self.instead:
                continue
            value = reader.value
            bound = value.generators if isinstance(value, Reduce) else ()
            inside = value.body if isinstance(value, Reduce) else value
            asked = frozenset((conjunction(*(g.condition for g in bound)),))
            if not bound:
                asked = self._asked(reader, (*above, definition.name))
                named = {f"#{n}": Var(v) for n, v in enumerate(_in_order(reader))}
                asked = frozenset(condition_moved(each, named) for each in asked)
            reads = [p for p in walk_value(inside) if isinstance(p, Read)]
            for read in (p for p in reads if p.access.array == definition.name):
                at = dict(zip(definition.variables, read.access.subscripts, strict=True))
                here = [at[v] for v in _in_order(definition)]
                names = {v.name: Var(f"#{n}") for n, v in enumerate(here) if isinstance(v, Var)}
                if len(names) < len(here):
                    return frozenset((ALWAYS,))
                found |= {condition_moved(each, names) for each in asked}
        # What is asked of other indices leaves out none of these for all of them.
        own = {f"#{n}" for n in range(len(definition.indices))}
        return frozenset(c if condition_variables(c) <= own else ALWAYS for c in found)

    def _rewritten(self, definition: Definition) -> Definition:
        """Read what is to be read instead in a definition."""
        if not any(name in self.instead for name in definition.reads()):
            return definition
        new = replace(definition, value=self._value(definition.value))
        return self.system.add(new)

    def _value(self, value: Value) -> Value:
        def change(part: Value) -> Value | None:
            match part:
                case Read(access):
                    return Read(self._access(access))
                case Holds(condition):
                    return Holds(self._condition(condition))
                case Select(condition, chosen, otherwise):
                    return Select(
                        self._condition(condition), self._value(chosen), self._value(otherwise)
                    )
                case Reduce(function, generators, body):
                    bound = tuple(
                        replace(g, condition=self._condition(g.condition)) for g in generators
                    )
                    return Reduce(function, bound, self._value(body))
                case _:
                    return None

        return replaced(value, change)

    def _access(self, access: Access) -> Access:
        if access.array == self.shortened:
            return self.kept[access.array].at(access)
        known = self.instead.get(access.array)
        return access if known is None else self._access(known.at(access))

    def _condition(self, condition: Condition) -> Condition:
        return with_operands(condition, value=self._value)


def _put_for(old: Index, new: Index) -> Callable[[Access], Access]:
    """Return what puts an index for a whole subscript."""

    def change(access: Access) -> Access:
        return Access(access.array, tuple(new if s == old else s for s in access.indices))

    return change


def _rises(index: Index, name: str) -> bool:
    """Tell whether a sum of terms grows with a variable."""
    return form_of(index).terms.get(Var(name), 0) == 1


def _in_sums(value: Value) -> set[str]:
    """Return the arrays that are read inside sums."""
    bodies = [part.body for part in reductions(value)]
    return {p.access.array for body in bodies for p in walk_value(body) if isinstance(p, Read)}


def _in_order(definition: Definition) -> tuple[str, ...]:
    """Return the variables of the indices as the value mentions them, then those it does not."""
    own = dict.fromkeys(definition.variables)
    shown = [name for name in free_variables(definition.value) if name in own]
    return tuple(dict.fromkeys((*shown, *own)))


def _key(definition: Definition) -> str:
    """Return the same text for definitions that differ in the names of variables only."""
    names: dict[str, Index] = {v: Var(f"#{k}") for k, v in enumerate(_in_order(definition))}
    ranges = ranges_by_name(definition.indices)
    order = [ranges[v] for v in _in_order(definition)]
    value = _numbered(value_moved(definition.value, names), [0])
    return repr((value, [_moved(r, names) for r in order]))


def _numbered(value: Value, count: list[int]) -> Value:
    """Number the variables that sums bind, in order."""

    def change(part: Value) -> Value | None:
        if not isinstance(part, Reduce):
            return None
        new: dict[str, Index] = {}
        bound = []
        for g in part.generators:
            count[0] += 1
            variable = f"%{count[0]}"
            bounds = _moved(g.range, new)
            new[g.variable] = Var(variable)
            bound.append(Generator(variable, bounds, condition_moved(g.condition, new)))
        return Reduce(part.function, tuple(bound), _numbered(value_moved(part.body, new), count))

    return replaced(value, change)


def _moved(bounds: Range, names: dict[str, Index]) -> Range:
    return range_changed(bounds, lambda end: in_one_order(substitute(end, names)))
