"""Rows up to a length that is read, gone over to the last while they are differentiated.

    for b: for i in range(0, n[b]):             for b: for i in range(0, M):
        O[b, i] = …                     <->         O[b, i] = …

Where an iteration has nothing to do with the others, rows beyond the length have no part in what
comes before it, and no incoming gradient where they are not returned. So the arrays are whole while
the listing is differentiated: what there is one of for each row can be kept. Afterwards the loops
end where they did, and a loop over b inside of one over rows leaves out where `i < n[b]` fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from looptrans.adjoint.layouts.packed import iterations_are_apart
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.frontend import parse
from looptrans.ir.affine import extremum, is_same, simplified, total
from looptrans.ir.condition import Condition, Relation
from looptrans.ir.index import Index, Int, Opaque, Var
from looptrans.ir.listing import index_text, listing
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.source import Source
from looptrans.ir.value import Access, Generator, Range, Reduce, Value, Whole, cells_read
from looptrans.ir.walk import accesses, accesses_in, assignments, loops_in, nodes


@dataclass(frozen=True, slots=True)
class Rows:
    """An array some of whose rows count.

    Attributes:
        row: The dimension of rows.
        lengths: The array that says how many count.
        places: The dimensions whose subscripts are those of `lengths`.
    """

    row: int
    lengths: str
    places: tuple[int, ...]

    def end(self, access: Access) -> Opaque | None:
        """Return where the rows that count end, at the place of an access."""
        subscripts = [access.subscripts[place] for place in self.places]
        names = tuple(s for s in subscripts if isinstance(s, Var))
        return Opaque(self.lengths, names) if len(names) == len(subscripts) else None


@dataclass(frozen=True, slots=True)
class Extended:
    """A listing, and the same with loops over all rows.

    Attributes:
        listing: The listing.
        program: The one with loops over all rows.
        rows: The arrays whose rows beyond a length are not set by the listing.
    """

    listing: Program
    program: Program
    rows: Mapping[str, Rows]

    def back(self, program: Program, alike: Mapping[str, str]) -> Program:
        """Let loops of a listing made of the other end where they did.

        Args:
            program: The listing.
            alike: Arrays that are not in the listing itself, and the array each is like.

        Raises:
            NotDifferentiated: A row is looked at of which it is not known whether it counts.
        """
        if not set(alike.values()) <= set(self.rows):
            raise NotDifferentiated("a gradient comes in that is not by rows")
        # What a backward pass works out again may have a name of the listing.
        known = {a.name for a in program.arrays if not alike or a.role == "input"}
        rows = {name: each for name, each in self.rows.items() if name in known}
        rows |= {new: self.rows[old] for new, old in alike.items() if old in self.rows}
        fixed = self.listing.input_names | set(alike)
        while True:
            body = _Cut(rows).body(program.body, ())
            more = dict(_more(replace(program, body=body), rows, fixed))
            if not more:
                break
            rows |= more
        _check(body, rows, {})
        if alike:
            _check_terms(program, body, rows)
        changed = replace(program, body=body)
        return parse(Source(program.source.name, listing(changed)))


def extended(program: Program) -> Extended | None:
    """Return a listing whose loops go over all rows; None where none of its loops ends before."""
    rows: dict[str, Rows] = {}
    # Which arrays are looked at, and which have their rows bounded by a loop around.
    seen: list[tuple[str, frozenset[str]]] = []
    is_one = True

    def visit(body: tuple[Node, ...], bounded: frozenset[str]) -> tuple[Node, ...]:
        nonlocal is_one
        found: list[Node] = []
        for node in body:
            if isinstance(node, Assign | If):
                seen.extend((r.access.array, bounded) for r in accesses(node))
            match node:
                case Loop():
                    inside, whole = bounded, node
                    own = _extents(program, node)
                    if own is not None:
                        extent, more = own
                        # An array whose rows end here and there has no one end.
                        is_one &= all(rows.get(name, each) == each for name, each in more.items())
                        rows.update(more)
                        inside |= set(more)
                        whole = replace(node, range=Range(Int(0), extent))
                    found.append(replace(whole, body=visit(node.body, inside)))
                case If():
                    then, other = (visit(part, bounded) for part in (node.body, node.orelse))
                    found.append(replace(node, body=then, orelse=other))
                case _:
                    found.append(node)
        return tuple(found)

    body = visit(program.body, frozenset())
    if not rows or not is_one:
        return None
    if any(name in rows and name not in bounded for name, bounded in seen):
        return None  # rows that do not count are looked at
    again = parse(Source(f"<{program.name}>", listing(replace(program, body=body))))
    return Extended(program, again, rows)


def _extents(program: Program, loop: Loop) -> tuple[Index, dict[str, Rows]] | None:
    """Return how many rows there are of what a loop writes, and its arrays, if it ends before."""
    end = simplified(loop.range.stop)
    if loop.range.step != 1 or simplified(loop.range.start) != Int(0):
        return None
    if not isinstance(end, Opaque) or loop.execution != "sequential":
        return None
    declared = program.array(end.array).value_range
    if declared is None or not all(isinstance(a, Var) for a in end.arguments):
        return None
    written = {
        target.array
        for node in assignments(loop.body)
        for target in node.targets
        if target.subscripts
    }
    found: dict[str, Rows] = {}
    extent: Index | None = None
    for access in accesses_in(loop.body):
        if access.array not in written:
            continue
        rows = _rows(access, loop.variable, end)
        if rows is None or found.setdefault(access.array, rows) != rows:
            return None
        extent = program.array(access.array).shape[rows.row]
        if extent is None or not is_same(declared[1], total(extent, 1)):
            return None
    if extent is None or not iterations_are_apart(loop, {n: r.row for n, r in found.items()}):
        return None
    return extent, found


def _rows(access: Access, variable: str, end: Opaque) -> Rows | None:
    """Return which rows of an array count, by one access to it."""
    subscripts = list(access.subscripts)
    wanted = [Var(variable), *end.arguments]
    if any(subscripts.count(each) != 1 for each in wanted):
        return None
    row, *places = (subscripts.index(each) for each in wanted)
    return Rows(row, end.array, tuple(places))


@dataclass(frozen=True, slots=True)
class _Cut:
    """Lets loops over rows end where those end that count."""

    rows: Mapping[str, Rows]

    def body(self, body: tuple[Node, ...], around: tuple[str, ...]) -> tuple[Node, ...]:
        found: list[Node] = []
        for node in body:
            match node:
                case Loop():
                    inner = self.body(node.body, (*around, node.variable))
                    found.append(replace(node, range=self.bounds(node, around), body=inner))
                    for variable in around:
                        end = self.end_inside(node, variable, around)
                        if end is not None:
                            counts = Relation("<", Var(variable), end)
                            found[-1] = replace(node, body=(If(counts, inner),))
                case If():
                    then, other = self.body(node.body, around), self.body(node.orelse, around)
                    condition = node.condition if other else self.guard(node, around)
                    found.append(replace(node, condition=condition, body=then, orelse=other))
                case Assign():
                    values = tuple(self.value(value, around) for value in node.values)
                    found.append(replace(node, values=values))
                case _:
                    found.append(node)
        return tuple(found)

    def value(self, value: Value, around: tuple[str, ...]) -> Value:
        def change(part: Value) -> Value | None:
            if not isinstance(part, Reduce):
                return None
            read = cells_read(part.body)
            outer = around
            generators: list[Generator] = []
            for g in part.generators:
                bounds = self.range(g.variable, g.range, iter(read), outer)
                generators.append(replace(g, range=bounds))
                outer = (*outer, g.variable)
            return Reduce(part.function, tuple(generators), self.value(part.body, outer))

        return replaced(value, change)

    def guard(self, node: If, around: tuple[str, ...]) -> Condition:
        """Return the condition of a guard, which holds only where a row counts that it bounds.

        if x + j < M:                             if x + j < n[b]:
            r[x] = r[x] + dO[b, x + j]    ->          r[x] = r[x] + dO[b, x + j]
        """
        match node.condition:
            case Relation("<", row, stop) if not isinstance(row, Var) and _is_plain(stop):
                pass
            case _:
                return node.condition
        end = self.end(row, accesses_in(node.body), around)
        return node.condition if end is None else Relation("<", row, end)

    def bounds(self, loop: Loop, around: tuple[str, ...]) -> Range:
        """Return the range of a loop, uncut where one further in says whose rows it goes over."""
        inner = {node.variable for node in loops_in(loop.body)}
        for end in self.ends(Var(loop.variable), accesses_in(loop.body))[0]:
            if (
                end is not None
                and not _names(end) <= {*around}
                and _names(end) <= {*around, *inner}
            ):
                return loop.range
        return self.range(loop.variable, loop.range, accesses_in(loop.body), around)

    def end_inside(self, loop: Loop, variable: str, around: tuple[str, ...]) -> Opaque | None:
        """Return where the rows of a loop around end, if this loop says whose rows they are."""
        ends, others = self.ends(Var(variable), accesses_in(loop.body))
        own = {end for end in ends if end is not None and loop.variable in _names(end)}
        if not own:
            return None
        (end, *more) = ends
        if end is None or more or others or not _names(end) <= {*around, loop.variable}:
            raise NotDifferentiated(f"{variable} goes over rows of more than one kind")
        return end

    def ends(self, row: Index, inside: Iterator[Access]) -> tuple[set[Opaque | None], bool]:
        """Return where rows end that a subscript is one of, and whether others are looked at."""
        ends: set[Opaque | None] = set()
        others = False
        for access in inside:
            rows = self.rows.get(access.array)
            if rows is None:
                continue
            if _is_row(access, row, self.rows):
                ends.add(rows.end(access))
            else:
                others = True
        return ends, others

    def end(self, row: Index, inside: Iterator[Access], around: tuple[str, ...]) -> Opaque | None:
        """Return where the rows end that a subscript is one of; None where it is none."""
        ends, others = self.ends(row, inside)
        if not ends:
            return None
        (end, *more) = ends
        if end is None or not _names(end) <= set(around):
            raise NotDifferentiated(
                f"which rows {index_text(row)} goes over that count is not known"
            )
        if more or others:
            # What comes of other rows, too, would be left out with those that do not count.
            raise NotDifferentiated(f"{index_text(row)} goes over rows of more than one kind")
        return end

    def range(
        self, variable: str, bounds: Range, inside: Iterator[Access], around: tuple[str, ...]
    ) -> Range:
        """Return the range of a loop, cut where the rows it goes over do not count."""
        end = self.end(Var(variable), inside, around)
        if end is None:
            return bounds
        if bounds.step != 1:
            raise NotDifferentiated(f"{variable} does not go over all rows")
        if any(is_same(end, side) for side in _sides(bounds.stop)):
            return bounds
        shorter = extremum("min", (bounds.stop, end))
        is_whole = simplified(bounds.start) == Int(0) and not isinstance(bounds.stop, Opaque)
        return Range(bounds.start, end if is_whole and _is_plain(bounds.stop) else shorter)


def _names(end: Opaque) -> set[str]:
    return {each.name for each in end.arguments if isinstance(each, Var)}


def _sides(index: Index) -> tuple[Index, ...]:
    plain = simplified(index)
    arguments = getattr(plain, "arguments", ())
    return (plain, *arguments) if not isinstance(plain, Opaque) else (plain,)


def _is_plain(index: Index) -> bool:
    """Tell whether an end is an extent, which no length exceeds."""
    return not any(isinstance(each, Opaque) for each in _sides(index)) and len(_sides(index)) == 1


def _more(
    program: Program, rows: Mapping[str, Rows], fixed: set[str]
) -> Iterator[tuple[str, Rows]]:
    """Yield arrays that are set only where rows count."""
    ends = _ends_around(program.body, {})
    for array in program.arrays:
        if array.name in fixed | set(rows) or array.rank == 0 or array.element != "float":
            continue
        found: set[Rows | None] = set()
        for access, around, is_write in ends:
            if access.array != array.name or not is_write:
                continue
            own = {
                _rows(access, row.name, end)
                for row, end in around.items()
                if isinstance(row, Var)
                and isinstance(end, Opaque)
                and any(r.lengths == end.array for r in rows.values())
            }
            found.add(own.pop() if len(own) == 1 else None)
        if len(found) == 1 and (each := found.pop()) is not None:
            yield array.name, each


def _ends_around(
    body: tuple[Node, ...], around: Mapping[Index, Index]
) -> list[tuple[Access, Mapping[Index, Index], bool]]:
    """Return every access, what variables and subscripts around it stay below, and if it writes."""
    found: list[tuple[Access, Mapping[Index, Index], bool]] = []
    for node in body:
        match node:
            case Loop():
                inside = {**around, Var(node.variable): simplified(node.range.stop)}
                found += _ends_around(node.body, inside)
            case If(Relation("<", row, Opaque() as end)) if _ends_at(
                around.get(simplified(row)), end
            ):
                found += _ends_around(node.body, {**around, simplified(row): end})
                found += _ends_around(node.orelse, around)
            case If():
                found += _ends_around((*node.body, *node.orelse), around)
            case _:
                pass
        if isinstance(node, Assign | If):
            for relation in accesses(node):
                inner: dict[Index, Index] = {
                    Var(g.variable): simplified(g.range.stop) for g in relation.generators
                }
                found.append((relation.access, {**around, **inner}, relation.is_write))
    return found


def _ends_at(known: Index | None, end: Opaque) -> bool:
    """Tell whether a length is the first that is known of where rows end."""
    return known is None or known == end or _is_plain(known)


def _check(body: tuple[Node, ...], rows: Mapping[str, Rows], around: Mapping[Index, Index]) -> None:
    """Refuse a listing that looks at rows of which it is not known whether they count."""
    for access, ends, _ in _ends_around(body, around):
        own = rows.get(access.array)
        if own is None:
            continue
        row, end = access.subscripts[own.row], own.end(access)
        stop = ends.get(simplified(row)) if not isinstance(row, Whole) else None
        if stop is None or end is None or not any(is_same(end, side) for side in _sides(stop)):
            raise NotDifferentiated(f"{access.array} is needed at rows that may not count")


def _check_terms(program: Program, body: tuple[Node, ...], rows: Mapping[str, Rows]) -> None:
    """Refuse loops and guards over rows that count in which something comes of other rows, too.

    What is added up there has to be a multiple of an incoming gradient of the row itself: nothing
    that was worked out before may come in, unless it is of that row.
    """
    made = {array.name for array in program.arrays if array.role == "local"} - set(rows)
    for node in nodes(body):
        match node:
            case Loop(variable):
                row: Index = Var(variable)
            case If(Relation("<", row, Opaque())) if not isinstance(row, Var):
                pass
            case _:
                continue
        inside = list(accesses_in(node.body))
        if not any(_is_row(access, row, rows) for access in inside):
            continue
        own = {target.array for target in _targets_in(node.body)}
        for access in inside:
            if access.array in made - own:
                raise NotDifferentiated(f"{access.array} is no row of {index_text(row)}")


def _is_row(access: Access, row: Index, rows: Mapping[str, Rows]) -> bool:
    """Tell whether an access is to a row that an index is the number of."""
    known = rows.get(access.array)
    own = None if known is None else access.subscripts[known.row]
    return own is not None and not isinstance(own, Whole) and is_same(own, row)


def _targets_in(body: tuple[Node, ...]) -> Iterator[Access]:
    for node in nodes(body):
        if isinstance(node, Assign):
            yield from node.targets
