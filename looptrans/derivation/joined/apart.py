"""Where a nest is taken apart, so that what its loops hand over goes through memory.

for i: for k: H[i, k] = …           for i: for k: H[i, k] = …
       for n: … H[i, k] …    ->     for i: for n: … H[i, k] …

for i: for j: A[i] = A[i] + …       for i: for j: A[i] = A[i] + …
              B[j] = B[j] + …  ->   for i: for j: B[j] = B[j] + …

for h: for j: for e: A[h, j, e] = …        for h: for j: for e: A[h, j, e] = …
       for i: for d: O[h, i, d] = …   ->   for h: for i: for d: O[h, i, d] = …
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from looptrans.algebra.free import freed, is_overwritten
from looptrans.ir.index import variables as index_variables
from looptrans.ir.program import Assign, Loop, Node, Program
from looptrans.ir.walk import (
    assignments,
    live_out,
    loops_in,
    nodes,
    targets_in,
    touched,
    written_in,
)
from looptrans.transforms.editing.accesses import sites_of
from looptrans.transforms.editing.tree import (
    LoopPath,
    block_at,
    loop_paths,
    loops_around,
    statements_in,
)


@dataclass(frozen=True, slots=True)
class Branching:
    """A loop that holds several loops, or several results, the outermost one of its nest.

    Attributes:
        path: The loop.
        around: It and the loops around it, outermost first, each the only thing in the one outside.
        cuts: The first statements of the pieces but the first; each piece ends with a loop
            or a result.
        locals: The scalars that one piece hands to another.
    """

    path: LoopPath
    around: tuple[LoopPath, ...]
    cuts: tuple[str, ...]
    locals: tuple[str, ...]


def branching(program: Program, *, results: bool = False) -> tuple[Branching, ...]:
    """Return the loops at which the nests of a program can be taken apart, in textual order.

    Args:
        program: The program.
        results: Whether they are also cut between statements whose results are told apart by
            other loops, of which no order of the loops suits all.
    """
    found = []
    for path in loop_paths(program):
        outside = loops_around(program, path.position)
        if any(len(block_at(program, (*o.position, 0))) > 1 for o in outside):
            continue
        variables = {p.variable for p in (*outside, path)} if results else set()
        pieces = _pieces(program, path.loop.body, variables)
        if len(pieces) > 1 and path.loop.execution == "sequential":
            cuts = tuple(statements_in(piece)[0] for piece in pieces[1:])
            found.append(Branching(path, (*outside, path), cuts, handed(program, pieces)))
    return tuple(found)


def with_one_cut(program: Program, each: Branching) -> tuple[Branching, ...]:
    """Return a loop cut once, for each place where it is cut, the last one first.

    Args:
        program: The program.
        each: Where a loop is cut into several pieces.
    """
    body = each.path.loop.body
    found = []
    for cut in reversed(each.cuts):
        at = next(n for n, node in enumerate(body) if cut in statements_in((node,)))
        pieces = [body[:at], body[at:]]
        found.append(Branching(each.path, each.around, (cut,), handed(program, pieces)))
    return tuple(found)


def nests_of_their_own(program: Program, *, numbers: bool = False) -> tuple[Branching, ...]:
    """Return the free loops that hold several nests which could be kernels of their own.

    These are free loops that hold loops. A program for each iteration of the loop outside would go
    over all of them, where apart each has a program for every iteration of its own loops too.

    Args:
        program: The program.
        numbers: Whether what works out numbers before or behind such a nest is one, too.
    """
    found = []
    for path in loop_paths(program):
        outside = loops_around(program, path.position)
        if path.loop.execution != "sequential" or any(
            len(block_at(program, (*o.position, 0))) > 1 for o in outside
        ):
            continue
        ends = [
            number + 1
            for number, node in enumerate(path.loop.body)
            if isinstance(node, Loop)
            and loops_in(node.body)
            and freed(program, LoopPath(node, (*path.position, number))) is not None
        ]
        if any(freed(program, o) is None for o in (*outside, path)):
            continue
        body = path.loop.body
        cut = set(ends[:-1])
        if numbers:
            cut = {place for end in ends for place in (end - 1, end)} - {0, len(body)}
        if not cut:
            continue
        pieces = [body[a:b] for a, b in pairwise([0, *sorted(cut), len(body)])]
        cuts = tuple(statements_in(piece)[0] for piece in pieces[1:])
        found.append(Branching(path, (*outside, path), cuts, handed(program, pieces)))
    return tuple(found)


def handing_numbers(program: Program) -> tuple[tuple[Loop, Loop], ...]:
    """Return neighbours in a free loop of which one hands a number of each iteration to the other.

    One of them at least is a nest, and would be a kernel of its own. Outside of all loops the other
    one is none: it is what is done with a number of each row, as `L[i] = m[i] + log(l[i])`.

    Args:
        program: The program.
    """
    found = []
    paths = loop_paths(program)
    for inside in (None, *paths):
        position = () if inside is None else inside.position
        body = program.body if inside is None else inside.loop.body
        pairs = [
            (one, other)
            for one, other in pairwise(body)
            if isinstance(one, Loop) and isinstance(other, Loop) and one.range == other.range
            if loops_in((*one.body, *other.body))
            if position or not loops_in(other.body)
        ]
        if not pairs or not (inside is None or _is_free(program, inside)):
            continue
        around = {o.variable for o in loops_around(program, position)}
        around |= set() if inside is None else {inside.variable}
        free = {
            place.loop
            for place in paths
            if place.position[:-1] == position and freed(program, place) is not None
        }
        for one, other in pairs:
            if one not in free or other not in free:
                continue
            own = around | {one.variable}
            numbers = {
                target.array
                for target in targets_in((one,))
                if one.variable in target.variables <= own
            }
            if numbers & touched((other,)):
                found.append((one, other))
    return tuple(found)


def _is_free(program: Program, path: LoopPath) -> bool:
    return path.loop.execution == "sequential" and freed(program, path) is not None


def _pieces(
    program: Program, body: tuple[Node, ...], variables: set[str]
) -> list[tuple[Node, ...]]:
    """Cut a block behind each of its loops but the last, and behind results of other loops."""
    results = [(n, *_result(program, node, variables)) for n, node in enumerate(body)]
    results = [each for each in results if each[1]]
    ends = [
        one[0] + 1
        for one, other in pairwise(results)
        if isinstance(body[one[0]], Loop) or (variables and one[2] != other[2])
    ]
    last = [n + 1 for n, *_ in results if isinstance(body[n], Loop)]
    # What a loop that will be cut itself is given must not stand beside it.
    before = [n for n, node in enumerate(body) if n and variables and _is_cut(program, node)]
    ends = sorted({*ends, *last[:-1], *before})
    return [body[a:b] for a, b in zip([0, *ends], [*ends, len(body)], strict=True)]


def _is_cut(program: Program, node: Node) -> bool:
    """Tell whether a loop has results that different loops tell apart."""
    if not isinstance(node, Loop):
        return False
    inner = assignments((node,))
    every = {
        name
        for each in inner
        for t in each.targets
        for i in t.indices
        for name in index_variables(i)
    }
    found = {_result(program, each, every)[1] for each in inner}
    return len(found - {frozenset()}) > 1


def _result(
    program: Program, node: Node, variables: set[str]
) -> tuple[bool, frozenset[frozenset[str]]]:
    """Tell whether a node ends a piece, and which loops tell the cells apart that it sets."""
    inside = tuple(nodes((node,)))
    if any(isinstance(each, Loop) for each in inside):
        return True, frozenset()
    outside = set(live_out(program))
    cells = {
        frozenset(v for index in target.indices for v in index_variables(index) if v in variables)
        for each in inside
        if isinstance(each, Assign)
        for target in each.targets
        if target.subscripts or target.array in outside
    }
    return bool(cells) and bool(variables), frozenset(cells)


def handed(program: Program, pieces: list[tuple[Node, ...]]) -> tuple[str, ...]:
    """Return the scalars that several pieces touch and one of them writes.

    What every piece sets before it looks at it is handed from none to another.
    """
    seen: dict[str, set[int]] = {}
    written: set[str] = set()
    for number, piece in enumerate(pieces):
        written |= written_in(piece)
        for name in touched(piece):
            seen.setdefault(name, set()).add(number)
    outputs = set(live_out(program))
    return tuple(
        a.name
        for a in program.arrays
        if a.rank == 0
        and a.name in written
        and a.name not in outputs
        and len(seen.get(a.name, ())) > 1
        and not _is_set_in_each(program, a.name, [pieces[n] for n in seen[a.name]])
    )


def _is_set_in_each(program: Program, scalar: str, pieces: list[tuple[Node, ...]]) -> bool:
    """Tell whether each piece sets a scalar before it reads it, wherever it does."""
    sites = sites_of(program, scalar)
    for piece in pieces:
        labels = set(statements_in(piece))
        inside = [site for site in sites if site.place.label in labels]
        writes = [site for site in inside if site.relation.is_write]
        reads = [site for site in inside if not site.relation.is_write]
        if not all(any(is_overwritten(read, write) for write in writes) for read in reads):
            return False
    return True
