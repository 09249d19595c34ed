"""What is looked up in arrays that nothing writes, as elements of arrays of its own.

    x = K[page[b, j // P], j % P]     ->     x = K[page[#1, #2], #3][b, j // P, j % P]

Equal indices find equal values, whatever the tables contain. What holds whatever such an array
contains holds for what is looked up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from looptrans.analysis.dependence.truths import with_truths
from looptrans.ir.index import Index, Let, Var, children, opaque_terms, rebuild
from looptrans.ir.listing import access_text
from looptrans.ir.program import Array, Program
from looptrans.ir.rewrite import with_accesses
from looptrans.ir.value import Access, Whole
from looptrans.ir.walk import written


def told_alike(before: Program, after: Program) -> Iterator[tuple[Program, Program]]:
    """Yield two programs in forms that say more of data that neither of them writes.

    What is legal in such a form is legal; what is not, may be.
    """
    changed = written(before) | written(after)
    tested = with_truths(before, changed), with_truths(after, changed)
    if tested != (before, after):
        yield tested
    found = with_lookups(tested[0], changed), with_lookups(tested[1], changed)
    if found != tested:
        yield found


def with_lookups(program: Program, changed: frozenset[str]) -> Program:
    """Return a program in which what is found through tables is an array that no one writes.

    Args:
        program: The program.
        changed: The arrays that are written.
    """
    made: dict[str, Array] = {}

    def found(access: Access) -> Access:
        terms = [s for s in access.subscripts if not isinstance(s, Whole) and opaque_terms(s)]
        if access.array in changed or not terms:
            return access
        array = program.array(access.array)
        holes: list[Index] = []
        subscripts = tuple(
            s if isinstance(s, Whole) else _with_holes(s, holes) for s in access.subscripts
        )
        rows = [n for n, s in enumerate(access.subscripts) if isinstance(s, Whole)]
        name = access_text(Access(access.array, subscripts), full=True)
        shape = (*(None for _ in holes), *(array.shape[n] for n in rows))
        made[name] = replace(array, name=name, rank=len(shape), shape=shape, annotation=None)
        return Access(name, (*holes, *(access.subscripts[n] for n in rows)))

    body = with_accesses(program.body, found)
    return replace(program, body=body, arrays=(*program.arrays, *made.values()))


def _with_holes(index: Index, holes: list[Index]) -> Index:
    """Return a subscript with numbered places for its parts without tables, and note these.

    A scalar that holds what a table says is still read: the parts have its name.
    """
    if not opaque_terms(index):
        holes.append(index)
        return Var(f"#{len(holes)}")
    if isinstance(index, Let):
        first = len(holes)
        inside = _with_holes(index.value, holes)
        holes[first:] = [Let(index.name, part) for part in holes[first:]]
        return inside
    return rebuild(index, tuple(_with_holes(part, holes) for part in children(index)))
