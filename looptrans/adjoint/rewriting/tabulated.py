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

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from looptrans.adjoint.carried.recurrences import again
from looptrans.adjoint.rewriting.inner_sums import InnerSums, with_inner_sums
from looptrans.adjoint.rewriting.looked_up import LookedUp, looked_up_apart, product_of, total_of
from looptrans.adjoint.rewriting.table_rows import (
    all_rows,
    asked_of,
    is_short,
    maybe_empty,
    rows_around,
    rows_of_loops,
    says_all,
)
from looptrans.algebra.positional.cells import value_moved
from looptrans.ir.affine import difference, form_of, index_of, product, total
from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import Index, Int, Var, substitute, variables
from looptrans.ir.program import Array, Assign, Declaration, Loop, Node, Program
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.rewrite import replaced, rewritten
from looptrans.ir.value import (
    Access,
    Binary,
    Create,
    Generator,
    Range,
    Read,
    Reduce,
    Value,
    Whole,
    arrays_read,
    cells_read,
    free_variables,
    has_reduction,
    walk_value,
)
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import Placed, placed, written_in
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
        shape = self.array.extents
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
        terms: list[tuple[int, Value]] = []
        others, found = looked_up_apart(whole.body, over.variable)
        kept: list[tuple[int, Value]] = []
        for sign, term, looked in found:
            cell = None if looked is None else self._read(place, over, looked)
            if looked is None or cell is None:
                kept.append((sign, term))
            else:
                terms.append((sign, product_of((*looked.others, Read(cell)))))
        if not terms:
            return None
        if kept:
            body = product_of((*others, total_of(kept)))
            terms.insert(0, (1, replace(whole, body=body)))
        return total_of(terms)

    def _read(self, place: Placed, over: Generator, each: LookedUp) -> Access | None:
        """Return the cell of a table that a sum of products is; None where there can be none."""
        index = each.access.indices[each.where]
        rows = self._rows(each.own, over.variable)
        length = self._extent(each.access, each.where)
        if rows is None or length is None or not is_short(place, index, length, rows):
            return None
        before = place.position[0]
        made_of = arrays_read(each.own)
        if (made_of | {each.access.array}) & written_in(self.program.body[before:]):
            return None
        asked = asked_of(place, made_of | {each.access.array})
        loops = all_rows(rows) or rows_around(place, rows, asked)
        if loops is None:
            return None
        rows = rows_of_loops(loops) or rows
        if not self._is_of_rows(place, over, each, loops, asked):
            return None
        if not says_all(rows, over, each):
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
        each: LookedUp,
        loops: Mapping[str, Range],
        asked: Set[str],
    ) -> bool:
        """Tell whether all rows that loops go over have the cells that products are made of.

        They have where the listing reads them for all of these rows, asking for nothing, or where
        the row itself says the cell: what is asked may mention no row, and loops inside may have no
        iterations for some.
        """
        around = ranges_by_name(place.loops)
        asked = asked | maybe_empty(place)
        reads = cells_read(each.own)
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

    def _name(self, each: LookedUp) -> str:
        first = next(p.access.array for p in walk_value(each.own) if isinstance(p, Read))
        wish = f"{first}_{each.access.array}".replace(".", "_")
        return fresh_name(self.program, wish, [table.array.name for table in self.tables])

    def _rows(self, own: Value, over: str) -> list[tuple[Index, Index]] | None:
        """Return the subscripts that say which row a factor is of, and how many rows there are."""
        reads = cells_read(own)
        if any(isinstance(s, Whole) for read in reads for s in read.subscripts):
            return None
        if has_reduction(own):
            return None
        first = max(reads, key=lambda read: len(read.variables))
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
