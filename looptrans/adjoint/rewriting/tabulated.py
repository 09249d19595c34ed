"""Products with a short table that rows and columns look into, worked out for all of its rows.

    s = sum(Q[i, e] * (K[j, e] + R[min(max(j - i, -c), c) + c, e]) for e …)
->
    for i: for w: Q_R[i, w] = sum(Q[i, e] * R[w, e] for e …)
    …
    s = sum(Q[i, e] * K[j, e] for e …) + Q_R[i, min(max(j - i, -c), c) + c]

Which row of R it is hangs on i and j, so that no matrix product is made of what is looked up: each
pair would have a sum of its own. There are few different ones, where an end that no loop goes up to
bounds the subscript.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

from looptrans.adjoint.carried.recurrences import again
from looptrans.adjoint.rewriting.inner_sums import InnerSums, with_inner_sums
from looptrans.algebra.positional.cells import added_up, value_moved
from looptrans.ir.affine import difference, form_of, index_of, product, sides, total
from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import (
    Extremum,
    Index,
    Int,
    Param,
    Var,
    opaque_terms,
    parameters,
    substitute,
    variables,
)
from looptrans.ir.program import Array, Assign, Declaration, Loop, Node, Program
from looptrans.ir.rewrite import replaced, rewritten
from looptrans.ir.value import (
    Access,
    Binary,
    Create,
    Generator,
    Holds,
    IndexValue,
    Range,
    Read,
    Reduce,
    Select,
    Unary,
    Value,
    Whole,
    condition_variables,
    free_variables,
    walk_value,
)
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import Placed, accesses, placed, touched
from looptrans.transforms.editing.accesses import listed
from looptrans.transforms.editing.extents import declared_end, is_never_negative
from looptrans.transforms.editing.naming import fresh_name


@dataclass(frozen=True, slots=True)
class Tabulated:
    """A program with tables of products.

    Attributes:
        program: The program afterwards.
        tables: Their names.
        sums: How numbers that loops add up were written as sums before, if they were.
    """

    program: Program
    tables: tuple[str, ...]
    sums: InnerSums | None = None

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"work products with what is looked up out in {listed(self.tables)}"

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """What shows that the two mean the same."""
        law = "a sum of products is the same wherever it is worked out from the same numbers"
        reason = "nothing writes what it is made of from there on, as the text shows"
        apart = "a sum of several products is the sum of their sums"
        rounded = "equal over the reals, not bit for bit in floating point"
        return (
            *([self.sums.certificate] if self.sums is not None else ()),
            Certificate("storage", law, "legal", reason),
            Certificate("rounding", apart, "legal", rounded),
        )


def with_products_tabulated(program: Program) -> Tabulated | None:
    """Work products with what is looked up out ahead, one for each row of the table.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there are no such products.
    """
    found = _tabulated(program)
    sums = with_inner_sums(program) if found is None else None
    if sums is not None and (found := _tabulated(sums.program)) is not None:
        return replace(found, sums=sums)
    return found


def _tabulated(program: Program) -> Tabulated | None:
    work = _Tables(program)
    changed: dict[str, dict[Reduce, Value]] = {}
    for place in placed(program):
        if isinstance(place.node, Assign):
            sums = (p for value in place.node.values for p in walk_value(value))
            for each in sums:
                if isinstance(each, Reduce) and (new := work.instead(place, each)) is not None:
                    changed.setdefault(place.label, {})[each] = new
    if not changed:
        return None

    def change(node: Node) -> tuple[Node, ...]:
        new = changed.get(node.label) if isinstance(node, Assign) else None
        if new is None or not isinstance(node, Assign):
            return (node,)
        values = (
            replaced(value, lambda part: new.get(part) if isinstance(part, Reduce) else None)
            for value in node.values
        )
        return (replace(node, values=tuple(values), augmented=False),)

    body: list[Node] = [table.declaration for table in work.tables]
    for number, top in enumerate(program.body):
        body += [table.nest for table in work.tables if table.before == number]
        body += rewritten((top,), change)
    arrays = (*program.arrays, *(table.array for table in work.tables))
    made = again(replace(program, body=tuple(body), arrays=arrays))
    return Tabulated(made, tuple(table.array.name for table in work.tables))


@dataclass(frozen=True, slots=True)
class _LookedUp:
    """A product with a row that is looked up.

    Attributes:
        own: What it is multiplied with, of rows that are known.
        access: What is looked up.
        where: The number of the subscript that says where.
        others: Factors that are the same for all that is summed.
    """

    own: Value
    access: Access
    where: int
    others: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of products.

    Attributes:
        array: The array.
        before: The number of what it has to stand before, at the top of the program.
        nest: What works it out.
        key: What its cells are, whatever variables are called.
    """

    array: Array
    before: int
    nest: Node
    key: tuple[Value, tuple[Range, ...]]

    @property
    def declaration(self) -> Declaration:
        """What makes the array."""
        shape = tuple(extent for extent in self.array.shape if extent is not None)
        return Declaration(self.array.name, Create("zeros", shape, None, "float32"))


@dataclass(slots=True)
class _Tables:
    """The tables of a program, found one after the other."""

    program: Program
    tables: list[_Table] = field(default_factory=list)

    def instead(self, place: Placed, whole: Reduce) -> Value | None:
        """Return what reads tables in place of a sum; None where it needs none."""
        if whole.function != "sum" or len(whole.generators) != 1:
            return None
        (over,) = whole.generators
        if over.condition != ALWAYS or over.range.start != Int(0) or variables(over.range.stop):
            return None
        terms: list[tuple[bool, Value]] = []
        others, found = _apart(whole.body, over.variable)
        kept: list[tuple[bool, Value]] = []
        for is_negative, term, looked in found:
            cell = None if looked is None else self._read(place, over, looked)
            if looked is None or cell is None:
                kept.append((is_negative, term))
            else:
                terms.append((is_negative, _product((*looked.others, Read(cell)))))
        if not terms:
            return None
        if kept:
            body = _product((*others, _total(kept)))
            terms.insert(0, (False, replace(whole, body=body)))
        return _total(terms)

    def _read(self, place: Placed, over: Generator, each: _LookedUp) -> Access | None:
        """Return the cell of a table that a sum of products is; None where there can be none."""
        index = each.access.indices[each.where]
        rows = self._rows(each.own, over.variable)
        length = self._extent(each.access, each.where)
        if rows is None or length is None or not _is_short(place, index, length, rows):
            return None
        before = place.position[0]
        made_of = {p.access.array for p in walk_value(each.own) if isinstance(p, Read)}
        if (made_of | {each.access.array}) & touched(self.program.body[before:], writes=True):
            return None
        asked = _asked(place, made_of | {each.access.array})
        loops = _all_rows(rows) or _rows_around(place, rows, asked)
        if loops is None:
            return None
        rows = _of_loops(loops) or rows
        if not self._is_of_rows(place, over, each, loops, asked):
            return None
        if not _says_all(rows, over, each):
            return None
        where = fresh_name(self.program, "w")
        looked = list(each.access.subscripts)
        looked[each.where] = Var(where)
        cell = Binary("*", each.own, Read(replace(each.access, subscripts=tuple(looked))))
        value = Reduce("sum", (over,), cell)
        names: dict[str, Index] = {name: Var(f"_{n}") for n, name in enumerate(loops)}
        key = (value_moved(value, names), tuple(loops.values()))
        table = next((table for table in self.tables if table.key == key), None)
        subscripts = tuple(subscript for subscript, _ in rows)
        if table is None:
            name = self._name(each)
            nest: Node = Assign("S", (Access(name, (*subscripts, Var(where))),), (value,))
            loops[where] = Range(Int(0), length)
            for variable, bounds in reversed(loops.items()):
                nest = Loop(variable, bounds, (nest,))
            shape = (*(extent for _, extent in rows), length)
            table = _Table(Array(name, len(shape), "float", "local", shape), before, nest, key)
            self.tables.append(table)
        return Access(table.array.name, (*subscripts, index))

    def _is_of_rows(
        self,
        place: Placed,
        over: Generator,
        each: _LookedUp,
        loops: Mapping[str, Range],
        asked: Set[str],
    ) -> bool:
        """Tell whether all rows that loops go over have the cells that products are made of.

        They have where the listing reads them for all of these rows, asking for nothing, or where
        the row itself says the cell: what is asked may mention no row, and loops inside may have no
        iterations for some.
        """
        around = {loop.variable: loop.range for loop in place.loops}
        asked = asked | _maybe_empty(place)
        reads = [part.access for part in walk_value(each.own) if isinstance(part, Read)]
        for access in (*reads, each.access):
            for number, index in enumerate(access.indices):
                is_where = access == each.access and number == each.where
                if is_where or index == Var(over.variable):
                    continue
                extent = self._extent(access, number)
                if extent is not None and self._is_inside(index, loops, extent):
                    continue
                names = set(variables(index))
                if asked & {"", *names} or any(around.get(n) != loops.get(n) for n in names):
                    return False
                if not names <= set(loops):
                    return False
        return True

    def _is_inside(self, index: Index, loops: Mapping[str, Range], extent: Index) -> bool:
        """Tell whether a subscript is surely one of an extent, wherever loops are."""
        last = form_of(index)
        for name, bounds in reversed([*loops.items()]):
            if last.terms.get(Var(name), 0) > 0:
                end = total(bounds.stop, -1) if bounds.step > 0 else bounds.start
                last = form_of(substitute(index_of(last), {name: end}))
        top = total(*(product(n, t if n < 0 else self._most(t)) for t, n in last.terms.items()))
        left = difference(extent, total(top, last.constant))
        is_below = isinstance(left, Int) and left.value > 0
        return is_below and is_never_negative(self.program, index, loops)

    def _most(self, term: Index) -> Index:
        return declared_end(self.program, term, "highest")

    def _name(self, each: _LookedUp) -> str:
        first = next(p.access.array for p in walk_value(each.own) if isinstance(p, Read))
        wish = f"{first}_{each.access.array}".replace(".", "_")
        return fresh_name(self.program, wish, [table.array.name for table in self.tables])

    def _rows(self, own: Value, over: str) -> list[tuple[Index, Index]] | None:
        """Return the subscripts that say which row a factor is of, and how many rows there are."""
        reads = [part.access for part in walk_value(own) if isinstance(part, Read)]
        if any(isinstance(s, Whole) for read in reads for s in read.subscripts):
            return None
        if any(isinstance(part, Reduce) for part in walk_value(own)):
            return None
        first = max(reads, key=lambda read: len({v for i in read.indices for v in variables(i)}))
        found: list[tuple[Index, Index]] = []
        for number, index in enumerate(first.indices):
            extent = self._extent(first, number)
            if index == Var(over) or not variables(index):
                continue
            if extent is None or variables(extent):
                return None
            found.append((index, extent))
        known = {name for index, _ in found for name in variables(index)}
        return found if set(free_variables(own)) <= {over, *known} else None

    def _extent(self, access: Access, number: int) -> Index | None:
        array = self.program.array(access.array)
        return array.shape[number] if array.element == "float" and array.rank else None


def _all_rows(rows: list[tuple[Index, Index]]) -> dict[str, Range] | None:
    """Return loops over all rows, where each variable is a subscript by itself."""
    names = [index.name for index, _ in rows if isinstance(index, Var)]
    if len(names) < len(rows) or len(set(names)) < len(names):
        return None
    return {name: Range(Int(0), extent) for name, (_, extent) in zip(names, rows, strict=True)}


def _rows_around(
    place: Placed, rows: list[tuple[Index, Index]], asked: Set[str]
) -> dict[str, Range] | None:
    """Return the loops around a statement that say which row it is, where they do so alone.

    for b: for i in range(n[b]): … Q[start[b] + i, e] …
    """
    own = {name for index, _ in rows for name in variables(index)}
    loops = {loop.variable: loop.range for loop in place.loops if loop.variable in own}
    ends = (end for bounds in loops.values() for end in (bounds.start, bounds.stop))
    if own != set(loops) or any(set(variables(end)) - own for end in ends):
        return None
    return None if asked & own else loops


def _of_loops(loops: Mapping[str, Range]) -> list[tuple[Index, Index]] | None:
    """Return a row for each iteration of loops that are as long as sizes say, and its extents."""
    if any(
        bounds.start != Int(0) or bounds.step != 1 or variables(end) or opaque_terms(end)
        for bounds in loops.values()
        for end in (bounds.stop,)
    ):
        return None
    return [(Var(name), bounds.stop) for name, bounds in loops.items()]


def _says_all(rows: list[tuple[Index, Index]], over: Generator, each: _LookedUp) -> bool:
    """Tell whether products hang on nothing but their row: others would be written over it.

    Of K[h // S, j, e] * R[h, w, e], each h has its own.
    """
    cells = [index for index, _ in rows]
    known = {over.variable, *(index.name for index in cells if isinstance(index, Var))}
    looked = [index for n, index in enumerate(each.access.indices) if n != each.where]
    indices = [*looked]
    for part in walk_value(each.own):
        if isinstance(part, Read):
            indices += part.access.indices
        elif isinstance(part, IndexValue | Holds | Select) and not known >= {*free_variables(part)}:
            return False
    return all(index in cells or set(variables(index)) <= known for index in indices)


def _asked(place: Placed, arrays: Set[str]) -> set[str]:
    """Return the variables that conditions mention under which a statement reads some arrays.

    A condition that mentions none, as `n > 5`, is there as "".
    """
    reads = (each for each in accesses(place.node) if each.access.array in arrays)
    conditions = {*place.conditions, *(each.condition for each in reads)} - {ALWAYS}
    return {name for condition in conditions for name in condition_variables(condition) or {""}}


def _maybe_empty(place: Placed) -> set[str]:
    """Return the variables that say how long loops and sums are that may have no iterations.

    Sizes are taken to be at least 0. Loops over the same range are empty together.
    """
    found: set[str] = set()
    around: dict[str, Range] = {}
    sums = (generator for each in accesses(place.node) for generator in each.generators)
    for name, bounds in (*((x.variable, x.range) for x in place.loops), *_ranges(sums)):
        told = {*variables(bounds.start), *variables(bounds.stop)}
        if told and bounds not in around.values() and not _has_some(bounds, around):
            found |= told
        around[name] = bounds
    return found


def _ranges(generators: Iterable[Generator]) -> Iterator[tuple[str, Range]]:
    return ((each.variable, each.range) for each in generators)


def _has_some(bounds: Range, around: Mapping[str, Range]) -> bool:
    """Tell whether a range has iterations wherever the loops around it are."""
    first, last = (bounds.start, bounds.stop) if bounds.step > 0 else (bounds.stop, bounds.start)
    rising = {name for name, r in around.items() if r.step > 0 and isinstance(r.start, Int)}
    for low, high in itertools.product(sides("max", first), sides("min", last)):
        form = form_of(difference(high, low))
        if form.constant < 1 or not all(
            count > 0
            and (isinstance(term, Param) or (isinstance(term, Var) and term.name in rising))
            for term, count in form.terms.items()
        ):
            return False
    return True


def _apart(
    body: Value, over: str
) -> tuple[tuple[Value, ...], list[tuple[bool, Value, _LookedUp | None]]]:
    """Return the factors of what is summed, of which one is a sum, and the terms of that.

    Of each term it is said whether it is taken away, and what is looked up in it. There are no
    terms where nothing is.
    """
    factors = tuple(_factors(body))
    for number, factor in enumerate(factors):
        others = (*factors[:number], *factors[number + 1 :])
        terms = [
            (is_negative, term, _looked_up(tuple(_factors(term)), others, over))
            for is_negative, term in _added(factor)
        ]
        if any(looked is not None for _, _, looked in terms):
            return others, terms
    return (), []


def _product(factors: tuple[Value, ...]) -> Value:
    value = factors[-1]
    for factor in reversed(factors[:-1]):
        value = Binary("*", factor, value)
    return value


def _total(terms: list[tuple[bool, Value]]) -> Value:
    (is_negative, value), *more = terms
    value = Unary("-", value) if is_negative else value
    for is_negative, term in more:
        value = Binary("-" if is_negative else "+", value, term)
    return value


def _looked_up(
    factors: tuple[Value, ...], others: tuple[Value, ...], over: str
) -> _LookedUp | None:
    """Return what is looked up among factors, and what it is multiplied with, of all factors."""
    for number, factor in enumerate(factors):
        if not isinstance(factor, Read) or any(
            isinstance(s, Whole) for s in factor.access.subscripts
        ):
            continue
        access = factor.access
        rest = (*others, *factors[:number], *factors[number + 1 :])
        own = tuple(each for each in rest if over in free_variables(each))
        rows = set().union(*map(free_variables, own)) - {over}
        at = [index for index in access.indices if over in variables(index)]
        where = [
            n
            for n, index in enumerate(access.indices)
            if (added := set(added_up(index))) & rows and added - rows
        ]
        known = any(isinstance(part, Read) for each in own for part in walk_value(each))
        if at == [Var(over)] and len(where) == 1 and known:
            same = tuple(each for each in rest if over not in free_variables(each))
            return _LookedUp(_product(own), access, where[0], same)
    return None


def _factors(value: Value) -> Iterator[Value]:
    match value:
        case Binary("*", left, right):
            yield from _factors(left)
            yield from _factors(right)
        case _:
            yield value


def _added(value: Value, *, is_negative: bool = False) -> Iterator[tuple[bool, Value]]:
    """Yield what a value is the sum of, and whether it is taken away."""
    match value:
        case Binary("+" | "-" as op, left, right):
            yield from _added(left, is_negative=is_negative)
            yield from _added(right, is_negative=is_negative != (op == "-"))
        case Unary("-", operand):
            yield from _added(operand, is_negative=not is_negative)
        case _:
            yield is_negative, value


def _is_short(
    place: Placed, index: Index, length: Index, rows: Iterable[tuple[Index, Index]]
) -> bool:
    """Tell whether a subscript, and the table, end at what no loop goes up to that it hangs on.

    Nor is the table as long as the rows that it has a product for are many.
    """
    own = {loop.variable: loop.range for loop in place.loops}
    for each in accesses(place.node):
        own |= _ranges(each.generators)
    told = set(variables(index))
    long = {p for v in told & set(own) for p in parameters(own[v].stop)}
    long |= {p for row, count in rows if told & set(variables(row)) for p in parameters(count)}
    return not set(parameters(length)) & long and _has_end(index, own, long)


def _has_end(index: Index, ranges: dict[str, Range], long: Collection[str]) -> bool:
    """Tell whether a subscript has an upper bound without loop variables and some sizes."""
    form = form_of(index)
    plain: Index = Int(0)
    for term, count in form.terms.items():
        match term:
            case Var() | Param():
                plain = total(plain, product(count, term))
            case Extremum(op, arguments):
                if count < 0:
                    arguments = tuple(difference(Int(0), argument) for argument in arguments)
                ends = (_has_end(argument, ranges, long) for argument in arguments)
                if not (any(ends) if (op == "min") == (count > 0) else all(ends)):
                    return False
            case _:
                return False
    # Iterations of a loop may end where another one is: those inside come first.
    for variable, bounds in reversed(ranges.items()):
        count = form_of(plain).terms.get(Var(variable), 0)
        if count:
            end = total(bounds.stop, -1) if count > 0 else bounds.start
            plain = total(plain, product(count, difference(end, Var(variable))))
            if bounds.step < 0:
                return False
    return not variables(plain) and not set(parameters(plain)) & set(long)
