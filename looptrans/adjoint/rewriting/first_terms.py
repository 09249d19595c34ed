"""Folds that begin with their first term, begun with nothing.

    m = S[i, 0]                              m = -inf
    for j in range(1, N):            ->      for j in range(0, N):
        m = max(m, S[i, j])                      m = max(m, S[i, j])

The loop then has the range of the passes after it. There is a first term: it is read from an array
that goes on as far as the loop does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.adjoint.equations.facts import Facts, bounds_of
from looptrans.algebra.free import is_overwritten
from looptrans.algebra.positional.cells import mentions, value_moved
from looptrans.ir.affine import difference, simplified
from looptrans.ir.condition import ALWAYS, Condition, Relation
from looptrans.ir.index import Index, Int
from looptrans.ir.monoids import OF_NOTHING
from looptrans.ir.program import Assign, Declaration, Loop, Node, Program
from looptrans.ir.rewrite import cells_put_in, value_changed
from looptrans.ir.value import Access, Const, Range, Read, Value, arrays_read, walk_value
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import touched
from looptrans.transforms.editing.accesses import listed, sites_of
from looptrans.transforms.editing.tree import statements_in


@dataclass(frozen=True, slots=True)
class Begun:
    """A program whose folds begin with nothing.

    Attributes:
        program: The program afterwards.
        folds: What they fold into.
    """

    program: Program
    folds: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"begin {listed(self.folds)} with nothing, and go over the first term with the rest"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "what nothing folds to changes no term"
        reason = "the first term is that of the iteration before the loop's, in the array it reads"
        return Certificate("algebra", law, "legal", reason)


def with_first_terms_inside(program: Program) -> Begun | None:
    """Let loops that fold go over a first term that stands before them.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where no term stands before its loop.
    """
    folds: list[str] = []
    facts = Facts(program.stated)

    def block(body: Sequence[Node], known: Facts) -> tuple[Node, ...]:
        found = list(body)
        for number, node in enumerate(found):
            if not isinstance(node, Loop):
                continue
            bounds = bounds_of(node.variable, node.range)
            found[number] = replace(node, body=block(node.body, known.and_(*bounds)))
            first = _first(program, found[:number], node, known)
            if first is not None:
                at, begun, whole = first
                found[at] = begun
                found[number] = replace(node, range=whole)
                folds.append(begun.targets[0].array)
        return tuple(found)

    after = replace(program, body=block(program.body, facts))
    return Begun(after, tuple(dict.fromkeys(folds))) if folds else None


def _first(
    program: Program, before: Sequence[Node], loop: Loop, facts: Facts
) -> tuple[int, Assign, Range] | None:
    """Return where the first term of a fold stands, what to write there, and the whole range."""
    if loop.execution != "sequential" or loop.private or loop.range.step != 1:
        return None
    fold = _fold(program, loop)
    if fold is None:
        return None
    target, nothing, term = fold
    for at in reversed(range(len(before))):
        node = before[at]
        if isinstance(node, Assign) and node.targets == (target,):
            break
        if not isinstance(node, Assign | Declaration) or target.array in touched((node,)):
            return None
    else:
        return None
    assert isinstance(node, Assign)
    written = {t.array for n in before[at:] if isinstance(n, Assign) for t in n.targets}
    (value,) = node.values
    start = simplified(difference(loop.range.start, Int(1)))
    if written & arrays_read(value) or _plain(value_moved(term, {loop.variable: start})) != value:
        return None
    whole = Range(start, loop.range.stop)
    if not _has_first(program, value, whole, facts):
        return None
    return at, replace(node, values=(Const(nothing),), augmented=False), whole


def _fold(program: Program, loop: Loop) -> tuple[Access, float, Value] | None:
    """Return what a loop folds into, what nothing folds to, and the term; it does nothing else."""
    named: dict[Access, Value] = {}
    for place, node in enumerate(loop.body):
        if not isinstance(node, Assign) or len(node.targets) != 1 or len(node.values) != 1:
            return None
        (target,), (value,) = node.targets, node.values
        if place < len(loop.body) - 1:
            if target.subscripts or target.array in arrays_read(value) or target in named:
                return None
            if not _is_inside(program, target.array, loop):
                return None
            named[target] = cells_put_in(value, named)
            continue
        found = accumulation(target, value)
        if found is None or found[2] != ALWAYS or target.rank or mentions(target, loop.variable):
            return None
        nothing = OF_NOTHING[found[0]]
        if program.array(target.array).element != "float":
            if nothing != 0:  # an infinity is no integer
                return None
            nothing = 0
        return target, nothing, cells_put_in(found[1], named)
    return None


def _is_inside(program: Program, scalar: str, loop: Loop) -> bool:
    """Tell whether nothing but a loop looks at what it sets a scalar to."""
    labels = set(statements_in((loop,)))
    others = [site for site in sites_of(program, scalar) if site.place.label not in labels]
    writes = [site for site in others if site.relation.is_write]
    reads = [site for site in others if not site.relation.is_write]
    return scalar not in program.outputs and all(
        any(is_overwritten(read, write) for write in writes) for read in reads
    )


def _plain(value: Value) -> Value:
    return value_changed(value, simplified)


def _has_first(program: Program, value: Value, whole: Range, facts: Facts) -> bool:
    """Tell whether a range has an iteration wherever the cells of its first term are there."""
    shapes = {array.name: array.shape for array in program.arrays}
    there: list[Condition] = []
    for part in walk_value(value):
        if isinstance(part, Read):
            extents: Sequence[Index | None] = shapes.get(part.access.array, ())
            for index, extent in zip(part.access.subscripts, extents, strict=False):
                if index == whole.start and extent is not None:
                    there.append(Relation("<", whole.start, extent))
    return bool(there) and facts.and_(*there).imply(Relation("<", whole.start, whole.stop))
