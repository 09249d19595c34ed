"""Large arrays that one nest hands to another, worked out again where they are read.

for i: for j: S[i, j] = sum(q[i, e] * k[j, e] for e)      for i: for j: m[i] = max(m[i], (sum(…)
for i: for j: S[i, j] = S[i, j] * scale              ->                               * scale))
for i: for j: m[i] = max(m[i], S[i, j])

The listing is read as definitions, one for each version of an array. Those that are small, or come
out, are kept, each in a nest of its own; the others go where they are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from looptrans.adjoint.equations.definitions import Definition, reads_of
from looptrans.adjoint.equations.made_whole import looked_into
from looptrans.adjoint.equations.size import sizes_of
from looptrans.adjoint.equations.sums import canonical, expanded
from looptrans.adjoint.normalizing.choices import with_choices
from looptrans.adjoint.reading.reading import definitions_of
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.algebra.positional.cells import mentions, value_moved
from looptrans.analysis.kept_flow import flow_of
from looptrans.derivation.forms.masks import with_guards
from looptrans.derivation.joined.flows import once_defined
from looptrans.derivation.joined.kept_nests import KeptNests
from looptrans.derivation.joined.merged import merged
from looptrans.derivation.one_loop.writing import reread
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.creation import in_16_bits
from looptrans.ir.index import Var, variables
from looptrans.ir.program import Assign, Program
from looptrans.ir.value import Access, Read, Reduce, Value, arrays_read, walk_value
from looptrans.ir.walk import placed
from looptrans.transforms.editing.accesses import sites_of


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
        if target.array in local and own and target.array in arrays_read(value):
            found[target.array] = None
        for name in local & arrays_read(value):
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
    again = _read(program)
    system = again.system
    large = {
        d.array: None
        for d in system.definitions.values()
        if d.array in scalars and not again.sizes.is_small(d.extents) and not again.is_kept(d)
    }
    gone = tuple(name for name in large if again.is_gone(name))
    if not any(map(again.has_sums, gone)):
        raise NotDone("no result hangs on numbers that would take room")
    outputs = {again.reading.outputs[name] for name in program.outputs}
    for name in again.wanted():
        kept = system.definitions[name]
        if name not in outputs and not again.sizes.is_small(kept.extents):
            raise NotDone(f"{kept.array or name} takes room in any case")
    again.numbers = frozenset(gone)
    return again.step(gone, "results worked out again")


def _read(program: Program) -> _Again:
    try:
        reading = definitions_of(with_choices(program))
    except NotDifferentiated as error:
        raise NotDone(f"its arrays are not each defined once: {error.reason}") from None
    looked = looked_into(reading.system)
    sizes = sizes_of(program, reading.system, reading.outputs, {}, looked)
    return _Again(program, reading, sizes)


def _worked_out(program: Program, arrays: tuple[str, ...], kind: str) -> DerivationStep:
    if not arrays or not program.is_function:
        raise NotDone("no large array is handed from one nest to another")
    again = _read(program)
    gone = tuple(name for name in arrays if again.is_gone(name))
    if not gone:
        raise NotDone("no large array is handed to another nest that need not be kept")
    if not any(map(again.is_worth_it, gone)):
        raise NotDone(f"{gone[0]} is a number of each row, and may stay")
    return again.step(gone, kind)


def _is_of_a_row(program: Program, array: str) -> bool:
    """Tell whether each row of an array has cells of its own, as under `for j in range(i + 1)`.

    Those are no matrix that a product could make as a whole.
    """
    writes = [site.place for site in sites_of(program, array) if site.relation.is_write]
    return all(
        any(
            set(variables(end)) & {outer.variable for outer in place.loops[:number]}
            for number, loop in enumerate(place.loops)
            for end in loop.range.ends
        )
        for place in writes
    )


@dataclass(slots=True)
class _Again(KeptNests):
    """What may be worked out again, and whether it had better be.

    Attributes:
        sums: Sums that would be stored and only one array is read from, cell by cell, with the
            definition of that array: it takes no more room, and so is stored in their place.
    """

    sums: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.sums = {}
        large, definitions = _large(self.program), self.system.definitions
        readers: dict[str, list[Definition]] = {}
        for definition in definitions.values():
            for name in definition.reads():
                readers.setdefault(name, []).append(definition)
        for name, found in readers.items():
            own = definitions.get(name)
            if own is None or len(found) > 1 or not KeptNests.is_kept(self, own):
                continue
            (reader,) = found
            same = Access(name, reader.cell.access.subscripts)
            whole = own.extents == reader.extents and reader.reads()[name] == [same]
            if whole and reader.array in large and name not in self.reading.outputs.values():
                self.sums[name] = reader.name

    def is_kept(self, definition: Definition) -> bool:
        """Tell whether a definition stays in memory."""
        if definition.name in self.sums:
            return False
        return definition.name in self.sums.values() or KeptNests.is_kept(self, definition)

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
        return any(any(self._sums(self.inlined(d.value))) for d in mine)

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
                for reads in reads_of(self.inlined(definition.value)).values()
                for read in reads
            )
            spoken = [read.variables for read in accesses if len(read.indices) > 1]
            if not set(definition.variables).intersection(*spoken):
                return False
        return True

    def _is_of_known_sums(self, array: str) -> bool:
        """Tell whether the sums in an array are those in something that does not hang on it."""
        mine = [d for d in self.system.definitions.values() if d.array == array]
        sums = {text for d in mine for text in self._sums(self.inlined(d.value))}
        others = (self.system.definitions[name] for name in self.wanted())
        apart = (d for d in others if array not in self._inside(d))
        known = {text for d in apart for text in self._sums(self.inlined(d.value))}
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
