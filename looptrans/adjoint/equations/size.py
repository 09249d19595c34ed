"""Which definitions are kept in memory, and which are worked out again wherever they are read.

A definition that is as small as a part of an argument or output (one number for each row) is kept.
A sum over products whose result has an index of each factor, such as S[i, j] = Q[i, e] * K[j, e]
summed over e, grows: it is kept only where it is as large as an output, else worked out again.
An array that the listing fills in pieces, Y[i, 2 * f] and Y[i, 2 * f + 1], is kept where it is a
factor of a sum: worked out again, each cell would be all pieces and a choice between them. So is
one that a nest makes whole for others, see `made_whole`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from math import prod

from looptrans.adjoint.equations.definitions import Definition, System
from looptrans.algebra.positional.cells import added_up, value_moved
from looptrans.ir.affine import about, form_of
from looptrans.ir.condition import Relation
from looptrans.ir.index import Arith, Index, Int, Var, opaque_terms, variables
from looptrans.ir.listing import index_text
from looptrans.ir.program import Program
from looptrans.ir.value import (
    Access,
    Holds,
    Read,
    Reduce,
    Select,
    Value,
    reductions,
    value_children,
    walk_value,
)

_MANY = 16
"""As many cells as make a dimension."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Compares definitions with what goes in and comes out.

    Attributes:
        all: The extents of every float argument, every output, and every array that is made whole.
        returned: Those of the outputs.
        outputs: The definitions of the outputs.
        whole: Those of arrays that are filled in pieces and read in sums, and of arrays that are
            made whole before others read them; their adjoints are added when they are known.
    """

    all: tuple[Counter[str], ...]
    returned: tuple[Counter[str], ...]
    outputs: frozenset[str]
    whole: set[str]

    def is_small(self, extents: tuple[Index, ...]) -> bool:
        """Tell whether an array is smaller than an argument or output by a dimension or more.

        Half of a row, or one of the two numbers of a pair, is not smaller by a dimension.
        """
        own = _counted(extents)
        return any(own < each and _is_long(each - own) for each in self.all)

    def fits(self, extents: tuple[Index, ...]) -> bool:
        """Tell whether an array is as large as an output, or smaller."""
        own = _counted(extents)
        return any(own <= each for each in self.returned)

    def grows(self, system: System, definition: Definition) -> bool:
        """Tell whether a sum has indices that nothing it is made of has together.

        Elements that are worked out again wherever they are read are seen through; what is tested
        is none of them, as with comparisons of indices.
        """
        own = set(definition.variables)
        reads = list(_numbers(definition.value))
        seen: set[Access] = set()
        while reads:
            access = reads.pop()
            if access in seen:
                continue
            seen.add(access)
            inner = system.definitions.get(access.array)
            if inner is None or inner.has_reduction or self._is_kept(inner):
                if _has_together(access, own):
                    return False
                continue
            here = dict(zip(inner.variables, access.indices, strict=True))
            reads += _numbers(value_moved(inner.value, here))
        return bool(seen)

    def _is_kept(self, definition: Definition) -> bool:
        return definition.name in self.outputs or self.is_small(definition.extents)

    def is_stored(self, system: System, definition: Definition) -> bool:
        """Tell whether a definition is kept in memory once worked out."""
        return self.is_stored_beside(system, definition, {})

    def is_stored_beside(
        self, system: System, definition: Definition, known: dict[str, bool]
    ) -> bool:
        """Tell whether a definition is kept in memory once worked out.

        Args:
            system: All equations.
            definition: One of them.
            known: Of definitions asked before, whether they are sums worked out again each time.
        """
        if definition.name in self.outputs | self.whole:
            return True
        if not has_full_rows(definition):
            return False
        reads_sum = definition.has_reduction and _sums_sums(system, definition, self, known)
        if self.is_small(definition.extents):
            return definition.has_reduction or definition.origin == "forward"
        if not isinstance(definition.value, Reduce) and not definition.has_reduction:
            return False
        if reads_sum or not self.grows(system, definition):
            return True
        return self.fits(definition.extents)

    def is_at_hand(self, system: System, name: str) -> bool:
        """Tell whether reading an array costs nothing that is not paid anyway."""
        definition = system.definitions.get(name)
        if definition is None or definition.origin == "adjoint":
            return True
        return self._is_kept(definition) or not self.is_stored(system, definition)


def has_full_rows(definition: Definition) -> bool:
    """Tell whether the rows of an array are all of one length, from 0 on."""
    ranges = [g.range for g in definition.indices]
    return all(r.step == 1 and r.start == Int(0) and not variables(r.stop) for r in ranges)


def _numbers(value: Value) -> Iterator[Access]:
    """Yield the cells that a value is made of, those it only tests left out."""
    match value:
        case Read(access):
            yield access
        case Holds():
            return
        case Select(_, chosen, otherwise):
            yield from _numbers(chosen)
            yield from _numbers(otherwise)
        case Reduce(body=body):
            yield from _numbers(body)
        case _:
            for part in value_children(value):
                yield from _numbers(part)


def _has_together(access: Access, own: set[str]) -> bool:
    """Tell whether an array is as large as the ranges of some variables that its cells hang on.

    What is chosen by an element of an integer array, `K[page[b, p], t]`, is chosen along one
    dimension, whatever chooses it.
    """
    chosen: list[set[str]] = []
    left = set(own)
    for index in access.indices:
        inside = {name for term in opaque_terms(index) for name in variables(term)}
        if inside & own:
            chosen.append(inside & own)
        left -= _apart(index, own) - inside
    return any(
        all(name in names for name, names in zip(sorted(left), order, strict=False))
        for order in permutations(chosen)
        if len(left) <= len(order)
    )


def _apart(index: Index, own: set[str]) -> set[str]:
    """Return the variables of a subscript; one of those it only adds up, as in `i - 3 * t`.

    They may be added up inside of a bound, `max(i - j, -k)`.
    """
    added = [name for name in added_up(index) if name in own]
    return set(variables(index)) - set(added[1:])


def _sums_sums(
    system: System, definition: Definition, sizes: Sizes, known: dict[str, bool]
) -> bool:
    """Tell whether the terms of a sum are sums that would be worked out for each of them."""
    for part in walk_value(definition.value):
        if isinstance(part, Reduce):
            bound = {g.variable for g in part.generators}
            for read in walk_value(part.body):
                if not isinstance(read, Read):
                    continue
                inner = system.definitions.get(read.access.array)
                used = read.access.variables
                if inner is None or not used & bound:
                    continue
                if _is_worked_out_sum(system, inner, sizes, known):
                    return True
    return False


def _is_worked_out_sum(
    system: System, definition: Definition, sizes: Sizes, known: dict[str, bool]
) -> bool:
    if definition.name in sizes.outputs or sizes.is_small(definition.extents):
        return False
    if definition.name not in known:
        known[definition.name] = (
            not sizes.is_stored_beside(system, definition, known)
            if definition.has_reduction
            else any(
                _is_worked_out_sum(system, system.definitions[name], sizes, known)
                for name in definition.reads()
                if name in system.definitions
            )
        )
    return known[definition.name]


def sizes_of(
    program: Program,
    system: System,
    outputs: Mapping[str, str],
    last: Mapping[str, str],
    whole: frozenset[str] = frozenset(),
) -> Sizes:
    """Return what definitions of a listing are compared with.

    Args:
        program: The listing.
        system: Its definitions.
        outputs: The definition of each output.
        last: The definition of what each array holds in the end.
        whole: The definitions of arrays that are made whole before others read them.
    """
    arguments = [
        _counted(a.extents) for a in program.arrays if a.role == "input" and a.element == "float"
    ]
    returned = [
        _counted(system.definitions[name].extents)
        for name in outputs.values()
        if name in system.definitions
    ]
    made = [_counted(system.definitions[name].extents) for name in whole]
    kept = {*whole, *_in_pieces(program, system, last)}
    known = tuple(arguments + returned + made)
    return Sizes(known, tuple(returned), frozenset(outputs.values()), kept)


def _in_pieces(program: Program, system: System, last: Mapping[str, str]) -> Iterator[str]:
    """Yield the last versions of arrays that are chosen by an index, where sums read them."""
    summed = {
        part.access.array
        for definition in system.definitions.values()
        for reduction in reductions(definition.value)
        for part in walk_value(reduction.body)
        if isinstance(part, Read)
    }
    for array in program.arrays:
        definition = system.definitions.get(last.get(array.name, ""))
        if definition is None or definition.name not in summed or array.role != "local":
            continue
        own = definition.variables
        match definition.value:
            case Select(Relation("==", Var(name), Int()), Read(), Read()) if name in own:
                yield definition.name
            case _:
                pass


def _counted(extents: tuple[Index, ...]) -> Counter[str]:
    """Return extents, those of sizes give or take a few: states are one more than their steps.

    Rows of windows of 7, of extent 7 * W, are as many as windows and 7 in two dimensions, and T
    rows as many as T // 7 and 7.
    """
    forms = ((extent, form_of(extent)) for extent in extents)
    each = (e if form.is_constant else about(e) for e, form in forms)
    found = Counter(factor for extent in each for factor in _factors(extent))
    for factor in tuple(found):
        match factor:
            case Arith("//", whole, part):
                both = min(found[factor], found[part])
                found -= Counter({factor: both, part: both})
                found[whole] += both
            case _:
                pass
    return Counter({index_text(factor): count for factor, count in found.items()})


def _is_long(extents: Counter[str]) -> bool:
    """Tell whether there are many cells in what has these extents: any but the smallest numbers."""
    sizes = [extent for extent in extents if not extent.isdecimal()]
    return bool(sizes) or prod(int(e) ** n for e, n in extents.items()) >= _MANY


def _factors(extent: Index) -> Iterator[Index]:
    """Yield what an extent is the product of."""
    match extent:
        case Arith("*", left, right):
            yield from _factors(left)
            yield from _factors(right)
        case _:
            yield extent
