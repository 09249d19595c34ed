"""Loops that count the rows of a sequence from 0 on, made to count them where they are.

    for i in range(0, n[b]):                      for i in range(cu[b], cu[b] + n[b]):
        Y[cu[b] + i] = X[cu[b] + i]     ->            Y[i] = X[i]

The iterations are the same, in the same order; only what they are called changes. Then a row has
one name wherever it is read or written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from looptrans.ir.affine import difference, form_of, is_same, product, shifted
from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import Index, Int, Opaque, Var, opaque_terms, variables
from looptrans.ir.listing import index_text
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Access, Range, Reduce, Value
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import accesses, nodes
from looptrans.transforms.editing.naming import binders
from looptrans.transforms.editing.substitute import is_same_text, substitute_variable


@dataclass(frozen=True, slots=True)
class Shifted:
    """A program whose loops count rows where they are.

    Attributes:
        program: The program afterwards.
        starts: Each variable that changed, and the row that was its 0.
        is_same: Whether all of it, counted from 0 again, is what it was.
    """

    program: Program
    starts: tuple[tuple[str, Index], ...]
    is_same: bool

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        said = dict.fromkeys(f"{name} from {index_text(start)} on" for name, start in self.starts)
        return f"count {', '.join(said)}"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "the iterations are the same, in the same order"
        if self.is_same:
            reason = "counted from 0 again, it is the listing"
            return Certificate("order", law, "legal", reason)
        reason = "counted from 0 again, it does not read as the listing does"
        return Certificate("order", law, "unknown", reason)


def with_rows_in_place(program: Program) -> Shifted | None:
    """Let loops count rows where they are in memory.

    Those do whose range is read from memory, and where a subscript is their variable plus an
    element of an integer array that is the same throughout. That element becomes a part of the
    range, which is worked out for every sequence, an empty one too: so its own subscripts must be
    variables of loops around, and its values declared to be rows of that array, or its end.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where no loop counts rows in this way.
    """
    work = _Work(program)
    body = work.body(program.body)
    if not work.starts:
        return None
    return Shifted(replace(program, body=body), tuple(work.starts), work.is_same)


@dataclass(slots=True)
class _Work:
    program: Program
    starts: list[tuple[str, Index]] = field(default_factory=list)
    is_same: bool = True

    def body(self, body: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(self.node(node) for node in body)

    def node(self, node: Node) -> Node:
        match node:
            case Loop():
                after = self.loop(node)
                return replace(after, body=self.body(after.body))
            case If():
                return replace(node, body=self.body(node.body), orelse=self.body(node.orelse))
            case Assign():
                return replace(node, values=tuple(self.value(node, v) for v in node.values))
            case _:
                return node

    def value(self, node: Assign, value: Value) -> Value:
        """Move the sums of a value: each is a loop around a statement that has what it adds."""

        def change(part: Value) -> Value | None:
            if not isinstance(part, Reduce) or part.generators[0].condition != ALWAYS:
                return None
            first, *others = part.generators
            inner = Reduce(part.function, tuple(others), part.body) if others else part.body
            alone = replace(node, targets=(Access("", ()),), values=(inner,))
            loop = self.loop(Loop(first.variable, first.range, (alone,), span=node.span))
            (moved,) = loop.body
            assert isinstance(moved, Assign)
            added = self.value(node, moved.values[0])
            generators = (replace(first, range=loop.range),)
            if not others:
                return Reduce(part.function, generators, added)
            assert isinstance(added, Reduce)
            return replace(added, generators=(*generators, *added.generators))

        return replaced(value, change)

    def is_row(self, start: Index, array: str, dimension: int) -> bool:
        """Tell whether a start can be read wherever its loop stands, and is a row or the end."""
        if not isinstance(start, Opaque) or not all(isinstance(a, Var) for a in start.arguments):
            return False
        declared = self.program.array(start.array).value_range
        extent = self.program.array(array).shape[dimension]
        if declared is None or extent is None:
            return False
        low, high = declared
        ends = (extent, shifted(extent, Int(1)))
        return isinstance(low, Int) and low.value >= 0 and any(is_same(high, end) for end in ends)

    def loop(self, loop: Loop) -> Loop:
        """Return a loop that counts rows where they are; what is inside is left as it is."""
        start = next((s for s, array, k in _starts(loop) if self.is_row(s, array, k)), None)
        if start is None or loop.range.step != 1:
            return loop
        after = _moved(loop, start)
        back = _moved(after, product(-1, start))
        self.starts.append((loop.variable, start))
        self.is_same &= is_same_text(loop, back)
        return after


def _moved(loop: Loop, start: Index) -> Loop:
    """Return a loop whose variable is larger by `start`, which nothing inside changes."""
    bounds = Range(shifted(loop.range.start, start), shifted(loop.range.stop, start))
    values = {loop.variable: difference(Var(loop.variable), start)}
    body = tuple(substitute_variable(node, values) for node in loop.body)
    return replace(loop, range=bounds, body=body)


def _starts(loop: Loop) -> Iterator[tuple[Index, str, int]]:
    """Yield what is added to the variable of a loop where it is a row, and the row of which array.

    The array comes with the dimension of its rows.
    """
    if not any(opaque_terms(end) for end in (loop.range.start, loop.range.stop)):
        return
    bound = binders(loop)
    for access in accesses_in(loop.body):
        for dimension, subscript in enumerate(access.indices):
            rest = form_of(subscript).plus(form_of(Var(loop.variable)), -1)
            terms = list(rest.terms.items())
            if len(terms) != 1 or rest.constant:
                continue
            ((term, factor),) = terms
            if isinstance(term, Opaque) and factor == 1 and not bound & set(variables(term)):
                yield term, access.array, dimension


def accesses_in(body: Iterable[Node]) -> Iterator[Access]:
    """Yield what statements and conditions of a block read and write."""
    for node in nodes(tuple(body)):
        if isinstance(node, Assign | If):
            for relation in accesses(node):
                yield relation.access
