"""Arrays whose rows are packed, one sequence behind the other, seen as arrays with a batch.

    for b: for i in range(cu[b], cu[b + 1]):            for b: for i in range(0, T):
        O[i] = … Q[i] …                         <->         O[b, i] = … Q[b, i] …

Where `cu` never falls, the ranges of different b have no row in common, so that a row belongs to
one b at most and `X[i]` may be called `X[b, i]`: each access to X, whatever it is, is to a row of
the b around it. That listing is differentiated; the calls are then taken back, in its backward pass
and in what the forward hands over.

Loops over rows whose iterations have nothing to do with each other go over all rows while that is
done, so that each array is whole. The rows beyond those of b have no incoming gradient, so that
nothing comes from them, and the loops are cut back afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from looptrans.adjoint.layouts.taken_back import TakenBack
from looptrans.adjoint.layouts.views import (
    Use,
    View,
    created,
    is_all_of,
    sets_first,
    shaped,
    uses_of,
)
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.frontend import parse
from looptrans.ir.affine import in_one_order, is_same, total
from looptrans.ir.index import Index, Int, Opaque, Var, variables
from looptrans.ir.listing import index_text, listing
from looptrans.ir.program import Array, Assign, Loop, Node, Program
from looptrans.ir.rewrite import with_accesses
from looptrans.ir.source import Source
from looptrans.ir.value import Access, Range
from looptrans.ir.walk import accesses_in, live_out, nodes, targets_in
from looptrans.transforms.rows.segments import Rows, Segments, is_over_all, rows_of, segments_of


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A listing with packed rows, and how it is seen.

    Attributes:
        listing: The listing.
        program: The listing as it is seen.
        views: How each array with packed rows is seen.
        known: The arrays of ends.
        wholes: For each array of ends, what is gone over as the rows of a sequence.
        contracts: What this leans on, as written.
    """

    listing: Program
    program: Program
    views: Mapping[str, View]
    known: Mapping[str, Segments]
    wholes: Mapping[str, Rows]
    contracts: tuple[str, ...]

    def law(self) -> str:
        """Say what was shown."""
        names = ", ".join(self.views)
        ends = " and ".join(dict.fromkeys(view.ends for view in self.views.values()))
        return f"every access to {names} is to a row of the sequence around it, by {ends}"

    def back(self, program: Program, alike: Mapping[str, str]) -> Program:
        """Take the view back in a listing made of the one that is seen.

        Args:
            program: The listing.
            alike: Arrays that are not in the listing itself, and the array each is seen like.

        Raises:
            NotDifferentiated: A row is not one of the sequence around it.
        """
        views = {a.name: self.views[a.name] for a in program.arrays if a.name in self.views}
        views |= {new: self.views[old] for new, old in alike.items() if old in self.views}
        fixed = {a.name for a in self.listing.arrays} | set(alike)
        return TakenBack(program, views, self.known, self.wholes, frozenset(fixed)).run()


def unpacked(program: Program) -> Unpacked | None:
    """Return a listing with packed rows as one with a batch; None where it has none of these."""
    known = segments_of(program)
    if not known:
        return None
    views = {a.name: view for a in program.arrays if (view := _view(program, a, known))}
    if not views:
        return None
    ends = {view.ends for view in views.values()}
    texts = (text for name, each in known.items() if name in ends for text in each.contracts)
    contracts = tuple(dict.fromkeys(texts))
    wholes = _wholes(program, known)
    own = _own_rows(program, views, known, wholes)

    def seen(body: tuple[Node, ...], batches: tuple[str, ...]) -> tuple[Node, ...]:
        found: list[Node] = []
        for node in body:
            match node:
                case Loop():
                    here = rows_of(node.range, known)
                    inner = (*batches, node.variable)
                    bounds = node.range
                    is_whole = here is not None and is_all_of(node.range, wholes, here)
                    if is_whole and (rows := _row_count(program, node, views)) is not None:
                        rest = {n: k for n, k in own.items() if _has_room(program, n, k, rows)}
                        free = iterations_are_apart(node, rest)
                        bounds = Range(Int(0), rows) if free else node.range
                    found.append(replace(node, range=bounds, body=seen(node.body, inner)))
                case _:
                    found.append(node)
        return tuple(found)

    body = seen(program.body, ())
    sequences = _sequences(program, views, known)
    body = with_accesses(body, lambda access: _seen_access(access, views, sequences))
    changed = _with_shapes(program, body, views, known)
    again = parse(Source(f"<{program.name}>", listing(changed)))
    return Unpacked(program, again, views, known, wholes, contracts)


def _wholes(program: Program, known: Mapping[str, Segments]) -> dict[str, Rows]:
    """Return what is gone over as the rows of a sequence, for each array of ends.

    Where not all ranges end at one place, that is up to the rows of the next sequence.

    Raises:
        NotDifferentiated: They do not, and the last sequence has none behind it.
    """
    found: dict[str, Rows] = {}
    for name, segments in known.items():
        every = Rows(name, "b", Opaque(name, (total(Var("b"), 1),)))
        stops = {
            in_one_order(rows.of("b").stop)
            for bounds in _ranges(program)
            if (rows := rows_of(bounds, known)) is not None and rows.ends == name
        }
        if len(stops) > 1 and not segments.has_next:
            texts = sorted(index_text(stop) for stop in stops)
            raise NotDifferentiated(f"rows from {name}[b] on end at {' and '.join(texts)}")
        found[name] = replace(every, stop=stops.pop()) if len(stops) == 1 else every
    return found


def _ranges(program: Program) -> Iterator[Range]:
    for use in uses_of(program):
        yield from use.around.values()


def _view(program: Program, array: Array, known: Mapping[str, Segments]) -> View | None:
    """Return how an array is seen: the dimension whose subscript is always a row of a sequence."""
    uses = [use for use in uses_of(program) if use.access.array == array.name]
    if array.element != "float" or not uses:
        return None
    for row in range(array.rank):
        extent = array.shape[row]
        found = [_sequence(use, row, known) for use in uses]
        names = {None if rows is None else rows.ends for rows in found}
        if extent is None or len(names) != 1 or None in names:
            continue
        (name,) = (name for name in names if name is not None)
        return View(name, row, _order(uses[0], row, known))
    return None


def _sequence(use: Use, row: int, known: Mapping[str, Segments]) -> Rows | None:
    """Return the rows of the sequence whose row a subscript is."""
    subscript = use.access.subscripts[row]
    if not isinstance(subscript, Var) or subscript.name not in use.around:
        return None
    found = rows_of(use.around[subscript.name], known)
    if found is None or found.sequence not in use.around:
        return None
    if any(found.sequence in variables(index) for index in use.access.indices):
        return None  # there is a row for each sequence
    return found if is_over_all(use.around[found.sequence], known[found.ends]) else None


def _order(use: Use, row: int, known: Mapping[str, Segments]) -> tuple[int, ...]:
    """Return dimensions in the order of the loops that run along them."""
    names = list(use.around)
    found = _sequence(use, row, known)
    assert found is not None

    def depth(dimension: int) -> tuple[int, int]:
        subscript = Var(found.sequence) if dimension < 0 else use.access.subscripts[dimension]
        if isinstance(subscript, Var) and subscript.name in names:
            return names.index(subscript.name), 0
        return len(names), dimension

    return tuple(sorted((-1, *range(len(use.access.subscripts))), key=depth))


def _sequences(
    program: Program, views: Mapping[str, View], known: Mapping[str, Segments]
) -> dict[Access, str]:
    """Return the variable of the sequence of every access; one spelling has one."""
    found: dict[Access, str] = {}
    for use in uses_of(program):
        view = views.get(use.access.array)
        if view is None:
            continue
        own = _sequence(use, view.row, known)
        assert own is not None
        if found.setdefault(use.access, own.sequence) != own.sequence:
            raise NotDifferentiated(
                f"{use.access.array} is read by sequences of two names: call their loops alike"
            )
    return found


def _seen_access(
    access: Access, views: Mapping[str, View], sequences: Mapping[Access, str]
) -> Access:
    view = views.get(access.array)
    if view is None:
        return access
    return Access(access.array, view.seen(access.subscripts, Var(sequences[access])))


def _row_count(program: Program, loop: Loop, views: Mapping[str, View]) -> Index | None:
    """Return how many rows there are of what a loop over rows writes, where it is one number."""
    extents = []
    for node in nodes(loop.body):
        for target in node.targets if isinstance(node, Assign) else ():
            if target.array in views:
                extents.append(program.array(target.array).shape[views[target.array].row])
    first = extents[0] if extents else None
    same = first is not None and all(e is not None and is_same(e, first) for e in extents)
    return first if same else None


def _own_rows(
    program: Program,
    views: Mapping[str, View],
    known: Mapping[str, Segments],
    wholes: Mapping[str, Rows],
) -> dict[str, int]:
    """Return the dimension of rows of arrays whose rows beyond a sequence may be set.

    Those are packed, or they have rows for each sequence of their own, nobody sees them from
    outside, and only rows of sequences with one array of ends are looked at.
    """
    found = {name: view.row for name, view in views.items()}
    seen = {*found, *live_out(program)}
    for array in program.arrays:
        if array.role != "local" or array.name in seen:
            continue
        uses = [use for use in uses_of(program) if use.access.array == array.name]
        places = ((p, q) for p in range(array.rank) for q in range(array.rank) if p != q)
        for batch, row in places:
            ends = {_whole_rows(use, batch, row, known, wholes) for use in uses}
            if len(ends) == 1 and None not in ends:
                found[array.name] = row
                break
    return found


def _has_room(program: Program, name: str, row: int, rows: Index) -> bool:
    extent = program.array(name).shape[row]
    return extent is not None and is_same(extent, rows)


def _whole_rows(
    use: Use, batch: int, row: int, known: Mapping[str, Segments], wholes: Mapping[str, Rows]
) -> str | None:
    """Return the ends of the sequences of which two subscripts name one, and each of its rows."""
    subscript = use.access.subscripts[row]
    bounds = use.around.get(subscript.name) if isinstance(subscript, Var) else None
    here = None if bounds is None else rows_of(bounds, known)
    if bounds is None or here is None or not is_all_of(bounds, wholes, here):
        return None
    return here.ends if use.access.subscripts[batch] == Var(here.sequence) else None


def iterations_are_apart(loop: Loop, rows: Mapping[str, int]) -> bool:
    """Tell whether the iterations of a loop over rows have nothing to do with each other.

    What each writes is its own row, or a number that it sets before it looks at it.

    Args:
        loop: The loop.
        rows: The dimension of rows of each array that may be written.
    """
    targets = targets_in(loop.body)
    written = {target.array for target in targets}
    for access in accesses_in(loop.body):
        if access.array in written and access.subscripts:
            row = rows.get(access.array)
            if row is None or access.subscripts[row] != Var(loop.variable):
                return False
    numbers = {target.array for target in targets if not target.subscripts}
    return sets_first(loop.body, numbers)


def _with_shapes(
    program: Program,
    body: tuple[Node, ...],
    views: Mapping[str, View],
    known: Mapping[str, Segments],
) -> Program:
    """Return a program whose arrays have the shapes in which they are seen."""
    arrays = []
    shapes: dict[str, tuple[Index, ...]] = {}
    for array in program.arrays:
        view = views.get(array.name)
        if view is not None:
            seen = view.seen(array.shape, known[view.ends].count)
            shapes[array.name] = tuple(e for e in seen if e is not None)
        arrays.append(shaped(array, shapes.get(array.name)))
    return replace(program, arrays=tuple(arrays), body=created(body, shapes))
