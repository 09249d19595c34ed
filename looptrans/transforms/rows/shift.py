"""Loops that count the rows of a sequence from 0 on, made to count them where they are.

    for i in range(0, n[b]):                      for i in range(cu[b], cu[b] + n[b]):
        Y[cu[b] + i] = X[cu[b] + i]     ->            Y[i] = X[i]

The iterations are the same, in the same order; only what they are called changes. Then a row has
one name wherever it is read or written. The other way round, loops over parts of a row that lie one
behind the other count from 0 on, so that all parts are as long for everybody to see:

    for e in range(h * E, (h + 1) * E):           for e in range(0, E):
        Y[t, e] = X[t, e]               ->            Y[t, h * E + e] = X[t, h * E + e]

Loops that count how far away a row is count those rows instead, downwards where they are before:

    for t in range(0, W):                         for t in range(i, i - W, -1):
        if i - t >= 0:                                if t >= 0:
            s = Q[i] @ K[i - t]         ->                s = Q[i] @ K[t]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from looptrans.ir.affine import (
    Form,
    difference,
    form_of,
    index_of,
    is_same,
    multiplied,
    product,
    shifted,
    total,
)
from looptrans.ir.index import Arith, Index, Int, Neg, Opaque, Var, opaque_terms, variables
from looptrans.ir.listing import index_text
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Access, Binary, Range, Read, Reduce, Value, cells_read, walk_value
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import accesses_in, assignments, loops_in
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

    def in_place(loop: Loop) -> _Count | None:
        rows = (start for start, array, k in _starts(loop) if _is_row(program, start, array, k))
        start = next(rows, None)
        return None if start is None else _Count(loop, start)

    return _Work(in_place).shifted(program)


def with_parts_from_0(program: Program) -> Shifted | None:
    """Let loops over parts of a row that lie one behind the other count from 0 on.

    Those innermost ones do that begin at a product of a variable and a size, and go on for as long
    whatever the variables are.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such loop.
    """
    return _Work(_from_0).shifted(program)


def with_loops_from_0(program: Program, begin: Callable[[Range], Index | None]) -> Shifted | None:
    """Let loops and sums count from 0 on.

    Args:
        program: The program.
        begin: Returns what is to be 0, or None for a range that is left as it is.

    Returns:
        The program afterwards; None where no loop begins so.
    """

    def from_0(loop: Loop) -> _Count | None:
        found = begin(loop.range)
        return None if found is None else _Count(loop, product(-1, found))

    return _Work(from_0).shifted(program)


def with_rows_by_distance(program: Program) -> Shifted | None:
    """Let loops over how far away a row is count the rows, where those are multiplied with a row.

    Queries that stand beside each other then read the same keys, which a matrix product is made of.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such loop.
    """
    return _Work(_by_distance).shifted(program)


@dataclass(frozen=True, slots=True)
class _Count:
    """How a loop counts otherwise.

    Attributes:
        plain: The loop, its range perhaps in other words.
        start: What its variable is called where it was 0.
        sign: Whether it counts up from there, or down.
    """

    plain: Loop
    start: Index
    sign: Literal[1, -1] = 1


@dataclass(slots=True)
class _Work:
    """Loops, counted otherwise.

    Attributes:
        found: Returns how a loop counts, if not as it does.
        starts: Each variable that changed, and where it begins.
        is_same: Whether all of it, counted as before, is what it was.
    """

    found: Callable[[Loop], _Count | None]
    starts: list[tuple[str, Index]] = field(default_factory=list)
    is_same: bool = True

    def shifted(self, program: Program) -> Shifted | None:
        body = self.body(program.body)
        if not self.starts:
            return None
        return Shifted(replace(program, body=body), tuple(self.starts), self.is_same)

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
            if not isinstance(part, Reduce):
                return None
            first, *others = part.generators
            inner = Reduce(part.function, tuple(others), part.body) if others else part.body
            alone = replace(node, targets=(Access("", ()),), values=(inner,))
            guard = If(first.condition, (alone,), label="G")
            loop = self.loop(Loop(first.variable, first.range, (guard,), span=node.span))
            (moved,) = loop.body
            assert isinstance(moved, If)
            (changed,) = moved.body
            assert isinstance(changed, Assign)
            added = self.value(node, changed.values[0])
            generators = (replace(first, range=loop.range, condition=moved.condition),)
            if not others:
                return Reduce(part.function, generators, added)
            assert isinstance(added, Reduce)
            return replace(added, generators=(*generators, *added.generators))

        return replaced(value, change)

    def loop(self, loop: Loop) -> Loop:
        """Return a loop that counts otherwise; what is inside is left as it is."""
        count = self.found(loop) if loop.range.step == 1 else None
        if count is None:
            return loop
        after = _moved(count)
        back = _moved(_back(after, count))
        self.starts.append((loop.variable, after.range.start))
        self.is_same &= is_same_text(count.plain, back)
        return after


def _moved(count: _Count) -> Loop:
    """Return a loop that counts otherwise; nothing inside changes what it begins at."""
    loop, start, sign = count.plain, count.start, count.sign
    first = shifted(product(sign, loop.range.start), start)
    last = shifted(product(sign, loop.range.stop), start)
    values = {loop.variable: product(sign, difference(Var(loop.variable), start))}
    body = tuple(substitute_variable(node, values) for node in loop.body)
    return replace(loop, range=Range(first, last, sign * loop.range.step), body=body)


def _back(after: Loop, count: _Count) -> _Count:
    return _Count(after, product(-count.sign, count.start), count.sign)


def _is_row(program: Program, start: Index, array: str, dimension: int) -> bool:
    """Tell whether a start can be read wherever its loop stands, and is a row or the end."""
    if not isinstance(start, Opaque) or not all(isinstance(a, Var) for a in start.arguments):
        return False
    declared = program.array(start.array).value_range
    extent = program.array(array).shape[dimension]
    if declared is None or extent is None:
        return False
    low, high = declared
    ends = (extent, shifted(extent, Int(1)))
    return isinstance(low, Int) and low.value >= 0 and any(is_same(high, end) for end in ends)


def _from_0(loop: Loop) -> _Count | None:
    """Return how a loop over a part of a row counts from 0 on."""
    if loops_in(loop.body):
        return None
    start = _multiplied_out(loop.range.start)
    if not any(isinstance(t, Arith) and t.op == "*" and variables(t) for t in start.terms):
        return None
    extent = _multiplied_out(loop.range.stop).plus(start, -1)
    if extent.is_constant or any(variables(t) or opaque_terms(t) for t in extent.terms):
        return None
    begin = index_of(start)
    plain = replace(loop, range=Range(begin, total(begin, index_of(extent))))
    return _Count(plain, product(-1, begin))


def _by_distance(loop: Loop) -> _Count | None:
    """Return how a loop counts the rows that its variable says the distance of, if all are one."""
    if loop.execution != "sequential":
        return None
    inside = binders(loop)
    found = {
        counted
        for node in assignments(loop.body)
        for value in node.values
        for product_ in walk_value(value)
        if isinstance(product_, Binary) and product_.op in ("@", "*")
        for pair in ((product_.left, product_.right), (product_.right, product_.left))
        for counted in _distances(loop.variable, inside, product_.op == "@", *pair)
    }
    if len(found) != 1:
        return None
    ((start, sign),) = found
    others = {
        _distance(subscript, loop.variable)
        for access in accesses_in(loop.body)
        for subscript in access.indices
    }
    return _Count(loop, start, sign) if others - {None} == {(start, sign)} else None


def _distances(
    variable: str, inside: Collection[str], is_row: bool, far: Value, near: Value
) -> Iterator[tuple[Index, Literal[1, -1]]]:
    """Yield where the rows begin that a factor is of, with a row beside it that they begin at."""
    rows = [access.variables for access in cells_read(near)]
    for part in walk_value(far):
        if not isinstance(part, Read):
            continue
        mine = part.access.variables
        for subscript in part.access.indices:
            found = _distance(subscript, variable)
            begin = set(variables(found[0])) if found is not None else set()
            if found is None or begin & set(inside):
                continue
            if any(
                begin & row and variable not in row and (is_row or row & mine & set(inside))
                for row in rows
            ):
                yield found


def _distance(subscript: Index, variable: str) -> tuple[Index, Literal[1, -1]] | None:
    """Return where rows begin of which a variable says the distance, and in which direction."""
    form = form_of(subscript)
    sign = form.terms.get(Var(variable), 0)
    rest = form.plus(form_of(Var(variable)), -sign)
    # Rows of a sequence, start[b] + t, or of a batch, b * N + t, are no distances.
    rows = [(term, count) for term, count in rest.terms.items() if variables(term)]
    plain = all(isinstance(term, Var) and count == 1 for term, count in rows)
    if sign not in (1, -1) or not rows or not plain:
        return None
    start = index_of(rest)
    return start, 1 if sign == 1 else -1


def _multiplied_out(index: Index) -> Form:
    """Return an index expression as a sum in which no product has a sum as a factor."""
    match index:
        case Neg(operand):
            return _multiplied_out(operand).times(-1)
        case Arith("+", left, right):
            return _multiplied_out(left).plus(_multiplied_out(right))
        case Arith("-", left, right):
            return _multiplied_out(left).plus(_multiplied_out(right), -1)
        case Arith("*", left, right):
            one, other = _multiplied_out(left), _multiplied_out(right)
            whole = other.times(one.constant)
            for term, count in one.terms.items():
                whole = whole.plus(Form({term: count}), other.constant)
                for each, times in other.terms.items():
                    whole = whole.plus(form_of(multiplied(term, each)), count * times)
            return whole
        case _:
            return form_of(index)


def _starts(loop: Loop) -> Iterator[tuple[Index, str, int]]:
    """Yield what is added to the variable of a loop where it is a row, and the row of which array.

    The array comes with the dimension of its rows.
    """
    if not any(opaque_terms(end) for end in loop.range.ends):
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
