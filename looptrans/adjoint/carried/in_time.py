"""The order of a backward listing whose recurrences are closed: all is set before it is read.

    for t: du[t] = dS[t + 1] * k[t]                   for t downwards:
    for t: dS[t] = dS[t + 1] - du[t] * k[t]     ->        du[t] = dS[t + 1] * k[t]
                                                          dS[t] = dS[t + 1] - du[t] * k[t]

Nests stand behind those that set what they read; those that wait for each other share their outer
loops; and a loop runs the other way round where that is what it takes. Whatever is tried, the
dependences tell whether anything is set, or added to, after it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations, islice, permutations, product
from typing import Final, TypeGuard

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.adjoint.carried.parts_apart import conflict, taken_apart
from looptrans.adjoint.carried.recurrences import Tied
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.algebra.positional.values import ZERO, add
from looptrans.analysis.api import dependences, groups
from looptrans.ir.affine import difference, is_same, total
from looptrans.ir.condition import Relation, conjunction, conjuncts
from looptrans.ir.creation import first_value
from looptrans.ir.index import Index, Int, Var, variables
from looptrans.ir.program import Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.value import Access, Range, Read
from looptrans.ir.walk import (
    accesses,
    assignments,
    loops_in,
    nodes,
    read_in,
    relations_in,
    written_in,
)
from looptrans.transforms.editing.naming import binders, fresh_name
from looptrans.transforms.editing.substitute import rename_variable
from looptrans.transforms.rows.ends_asked import end_of, start_of

# What is found is found among the first few; each takes about a second.
MOST_TRIED: Final = 32
MOST_TURNED: Final = 2
MOST_TOGETHER: Final = 4


def in_time(nests: tuple[Node, ...], tied: Tied, around: Program) -> list[Node]:
    """Return nests, closed, in an order in which everything is set before it is read.

    Args:
        nests: The nests, open.
        tied: What comes in, and what it is.
        around: The listing with what is declared for them, and no nest.

    Raises:
        NotDifferentiated: None is found.
    """
    nests = tuple(each for nest in nests for each in rewritten((nest,), _ended))
    nests = _waiting_less(nests, tied)
    touched = _touched_by(nests, tied)
    zeros = tied.carried | _zeros(around)
    count = len(nests)
    setting = [_set_before(nests, n, zeros) for n in range(count)]
    adding: list[set[int]] = [set() for _ in nests]
    found = groups(count, _edges(touched, setting))
    are_many = max(map(len, found), default=0) > MOST_TOGETHER
    if are_many or any(any(_rows_looked_at(tied.closed(nest), tied)) for nest in nests):
        apart = taken_apart(nests, tied, opened=True)
        if len(apart) > count:
            return in_time(apart, tied, around)
    if are_many:
        adding = [_added_beside(nests, n, zeros) for n in range(count)]
        found = groups(count, _edges(touched, _joined(setting, adding)))
    group = {n: k for k, each in enumerate(found) for n in each}
    for n, adders in enumerate(setting):
        adders.intersection_update({m for m in adders if group[m] != group[n]})
    order = groups(count, _edges(touched, _joined(setting, adding)))
    place = {n: k for k, members in enumerate(order) for n in members}
    nests = tuple(
        _added(nest, zeros) if any(place[m] < place[n] for m in setting[n]) else nest
        for n, nest in enumerate(nests)
    )
    made: list[Node] = []
    for members in order:
        reads, writes = touched[members[0]]
        if len(members) == 1 and not reads & writes:
            made.append(tied.closed(nests[members[0]]))
        else:
            made += _each_running(tuple(nests[n] for n in members), tied, around)
    return made


def _joined(some: list[set[int]], others: list[set[int]]) -> list[set[int]]:
    return [one | other for one, other in zip(some, others, strict=True)]


def _each_running(nests: tuple[Node, ...], tied: Tied, around: Program) -> list[Node]:
    """Return nests that wait for each other as one, or as several where parts of it are apart.

    So it is where one recurrence goes forward and another one backward, over the same rows.
    """
    try:
        return [_running(list(nests), tied, around)]
    except NotDifferentiated:
        apart = taken_apart(nests, tied)
        if len(apart) == len(nests):
            raise
        return in_time(apart, tied, around)


def _waiting_less(nests: tuple[Node, ...], tied: Tied) -> tuple[Node, ...]:
    """Return nests, taken apart where fewer of them wait for each other then.

        for t: for a: u[t] += n[t, a]; w[t] += dn[t + 1, a]
        for t: for a: dn[t, a] = u[t] + dn[t + 1, a]

    Only u is waited for there, which waits for nothing.
    """
    several = _most_waiting(nests, tied)
    if several < 2:
        return nests
    apart = taken_apart(nests, tied)
    return apart if _most_waiting(apart, tied) < several else nests


def _most_waiting(nests: tuple[Node, ...], tied: Tied) -> int:
    """Return how many nests wait for each other, at most."""
    found = _touched_by(nests, tied)
    edges = _edges(found, [set() for _ in nests])
    return max(map(len, groups(len(nests), edges)), default=0)


def _edges(
    touched: list[tuple[set[str], set[str]]], setting: list[set[int]]
) -> list[tuple[int, int]]:
    """Return which nests come before which others: those that set what they read, or change.

    Args:
        touched: What each nest reads and writes.
        setting: For each nest the later ones whose additions may come before what it sets.
    """
    return [
        (n, m)
        for n, (_, writes) in enumerate(touched)
        for m, (reads, others) in enumerate(touched)
        if n != m and (writes & reads or (n < m and writes & others and m not in setting[n]))
    ]


def _zeros(program: Program) -> frozenset[str]:
    """Return the arrays that are made of zeros."""
    made = (n for n in program.body if isinstance(n, Declaration))
    return frozenset(n.array for n in made if first_value(n.creation) == ZERO)


def _set_before(nests: tuple[Node, ...], number: int, zeros: Collection[str]) -> set[int]:
    """Return the later nests that only add to what a nest sets in arrays of zeros, and no more.

    Sums commute: what is set once in an array of zeros may be added instead, behind them.
    """
    own = nests[number]
    names = written_in((own,))
    if not _sets_once(own, names & set(zeros)):
        return set()
    found = set()
    for m in range(number + 1, len(nests)):
        other = nests[m]
        common = names & written_in((other,))
        if common and common <= set(zeros) and _adds(other, common):
            found.add(m)
    return found


def _added_beside(nests: tuple[Node, ...], number: int, zeros: Collection[str]) -> set[int]:
    """Return the later nests that add to what a nest adds to in arrays of zeros: in any order."""
    own = nests[number]
    names = written_in((own,))
    found = set()
    for m in range(number + 1, len(nests)):
        common = names & written_in((nests[m],))
        if common and common <= set(zeros) and _adds(own, common) and _adds(nests[m], common):
            found.add(m)
    return found


def _statements(node: Node, names: Collection[str]) -> list[Assign]:
    """Return the statements that write to some arrays."""
    inside = assignments((node,))
    return [n for n in inside if any(target.array in names for target in n.targets)]


def _adds(node: Node, names: Collection[str]) -> bool:
    """Tell whether a nest only adds to some arrays."""
    return all(
        len(n.values) == len(n.targets) == 1
        and (own := accumulation(n.targets[0], n.values[0])) is not None
        and own[0] == "sum"
        for n in _statements(node, names)
    )


def _sets_once(node: Node, names: Collection[str]) -> bool:
    """Tell whether a nest sets cells of some arrays, each in one statement."""
    statements = _statements(node, names)
    targets = [target.array for n in statements for target in n.targets]
    return (
        bool(targets)
        and len(set(targets)) == len(targets) == len(statements)
        and all(accumulation(n.targets[0], n.values[0], elsewhere=True) is None for n in statements)
    )


def _added(nest: Node, zeros: Collection[str]) -> Node:
    """Return a nest that adds what it sets in arrays of zeros."""

    def change(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Assign) or node.targets[0].array not in zeros:
            return (node,)
        return (replace(node, values=(add(Read(node.targets[0]), node.values[0]),)),)

    (one,) = rewritten((nest,), change)
    return one


def _ended(node: Node) -> tuple[Node, ...]:
    """Let a loop over sizes end where the guard around all that it holds does.

    The first iteration the other way round is then one that does something.
    """
    match node:
        case Loop(variable, Range(start, stop, 1), (If(condition, body, (), label=None) as guard,)):
            kept = []
            for part in conjuncts(condition):
                end, begin = end_of(part, variable), start_of(part, variable)
                if end is not None and _is_number(less := difference(end, stop)):
                    stop = end if less.value < 0 else stop
                elif begin is not None and _is_number(more := difference(begin, start)):
                    start = begin if more.value > 0 else start
                else:
                    kept.append(part)
            inside = (replace(guard, condition=conjunction(*kept)),) if kept else body
            return (replace(node, range=Range(start, stop), body=inside),)
        case _:
            return (node,)


def _is_number(index: Index) -> TypeGuard[Int]:
    return isinstance(index, Int)


def _touched_by(nests: tuple[Node, ...], tied: Tied) -> list[tuple[set[str], set[str]]]:
    """Return what each nest reads and writes; scalars that none reads of another are its own."""
    found = [_touched(tied.closed(_only_set(nest))) for nest in nests]
    scalars = {n.targets[0].array for n in assignments(nests) if not n.targets[0].subscripts}
    own = scalars - set().union(*(reads for reads, _ in found))
    return [(reads, writes - own) for reads, writes in found]


def _touched(node: Node) -> tuple[set[str], set[str]]:
    """Return the arrays that a node reads, and those that it writes.

    A scalar that it writes is its own.
    """
    written = written_in((node,))
    statements = assignments((node,))
    own = {target.array for n in statements for target in n.targets if not target.subscripts}
    return read_in((node,)) - own, written


def _only_set(node: Node) -> Node:
    """Return a nest that sets what it adds to: what it is added to is read by no one else."""

    def change(each: Node) -> tuple[Node, ...]:
        if not isinstance(each, Assign):
            return (each,)
        added = [accumulation(t, v) for t, v in zip(each.targets, each.values, strict=False)]
        values = tuple(
            value if own is None else own[1] for own, value in zip(added, each.values, strict=False)
        )
        return (replace(each, values=values, augmented=False),)

    (one,) = rewritten((node,), change)
    return one


def _running(nests: list[Node], tied: Tied, around: Program) -> Node:
    """Return nests as one that runs so that everything is set before it is read.

    Raises:
        NotDifferentiated: There is no such way.
    """
    guards, inner = _guarded_alike(nests)
    moving = {name for nest in inner for name in _moving(tied.closed(nest), tied)}
    candidates = (
        candidate
        for moves in (_moves(tied, moving), lambda _: True)
        for nest in _together(inner, around)
        for candidate in _directions(_set_first(nest, tied), moves)
    )
    for candidate in islice(candidates, MOST_TRIED):
        whole: Node = candidate
        for guard in reversed(guards):
            whole = replace(guard, body=(whole,))
        if _sets_first(whole, tied, around):
            return tied.closed(whole)
    raise NotDifferentiated(
        f"{' and '.join(sorted(tied.gradients))} cannot be gone through backwards: no way "
        f"was found, among {MOST_TRIED}, to set each gradient before it is read"
    )


def _guarded_alike(nests: list[Node]) -> tuple[list[If], list[Node]]:
    """Return the guards that stand around all nests, and nests that ask inside what others ask."""
    guards: list[If] = []
    while True:
        outer = [n for n in nests if isinstance(n, If) and len(n.body) == 1 and not n.orelse]
        if len(outer) < len(nests) or any(n.condition != outer[0].condition for n in outer):
            return guards, [_guards_inside(nest) for nest in nests]
        guards.append(outer[0])
        nests = [guard.body[0] for guard in outer]


def _guards_inside(node: Node) -> Node:
    """Return a nest whose guards stand inside of its loops, as far as these hold one another."""
    match node:
        case If(_, (inner,), ()) as guard:
            match _guards_inside(inner):
                case Loop(body=(only,)) as loop:
                    return replace(loop, body=(_guards_inside(replace(guard, body=(only,))),))
                case Loop() as loop:
                    return replace(loop, body=(replace(guard, body=loop.body),))
                case other:
                    return replace(guard, body=(other,))
        case _:
            return node


def _together(nests: list[Node], around: Program) -> Iterator[Node]:
    """Yield one nest of several, with one outer loop for all of them, or more; in any order."""
    if len(nests) == 1:
        yield nests[0]
    elif len(nests) <= MOST_TOGETHER:
        for order in permutations(nests):
            fused = _fused(list(order), around)
            while fused is not None:
                yield fused[0]
                fused = fused[1]


_Fused = tuple[Node, "_Fused | None"]


def _fused(nests: list[Node], around: Program) -> _Fused | None:
    """Return loops as one, and what comes of it where the loops inside are one, too.

    One that begins after the others, or ends before them, is asked whether it runs.
    """
    loops = [nest for nest in nests if isinstance(nest, Loop)]
    if len(loops) != len(nests) or any(loop.range.step != 1 for loop in loops):
        return None
    first = loops[0]
    start, last = first.range.ends
    for loop in loops:
        before, behind = difference(start, loop.range.start), difference(loop.range.stop, last)
        if not isinstance(before, Int) or not isinstance(behind, Int):
            return None
        start = loop.range.start if before.value > 0 else start
        last = loop.range.stop if behind.value > 0 else last
    whole = Range(start, last)
    taken = frozenset().union(*(binders(loop) for loop in loops))
    name = first.variable
    if any(name in binders(n) for loop in loops for n in loop.body):
        name = fresh_name(around, name, taken)
    parts: list[Node] = []
    bodies: list[tuple[Node, ...]] = []
    for loop in loops:
        body = tuple(rename_variable(node, loop.variable, name) for node in loop.body)
        bodies.append(body)
        asked = []
        if not is_same(loop.range.start, start):
            asked.append(Relation(">=", Var(name), loop.range.start))
        if not is_same(loop.range.stop, last):
            asked.append(Relation("<", Var(name), loop.range.stop))
        parts += (If(conjunction(*asked), body),) if asked else body
    one = replace(first, variable=name, range=whole, body=tuple(parts))
    inner = None
    if not any(isinstance(part, If) for part in parts) and all(
        len(loop.body) == 1 for loop in loops
    ):
        inner = _fused([body[0] for body in bodies], around)
    return one, _inside(one, inner)


def _inside(loop: Loop, inner: _Fused | None) -> _Fused | None:
    if inner is None:
        return None
    return replace(loop, body=(inner[0],)), _inside(loop, inner[1])


def _set_first(node: Node, tied: Tied) -> Node:
    """Return a nest whose bodies set first what is carried, as far as nothing else waits.

    A cell that one statement of a body sets and others read is set before, with all that takes.
    """

    def change(each: Node) -> tuple[Node, ...]:
        if not isinstance(each, Loop | If):
            return (each,)
        body = list(each.body)
        for number, part in enumerate(each.body):
            place = number
            while place and _may_precede(part, body[place - 1], tied):
                place -= 1
            body.insert(place, body.pop(number))
        return (replace(each, body=_cells_set_first(tuple(body), tied)),)

    (one,) = rewritten((node,), change)
    return one


def _cells_set_first(body: tuple[Node, ...], tied: Tied) -> tuple[Node, ...]:
    """Return a body in which cells of what is carried are set before other statements read them.

    Otherwise statements stay in their order, and so does a body where they wait for each other.
    """
    cells = [_cells(tied.closed(_only_set(node)), tied) for node in body]
    touches = [_plain(node, tied) for node in body]
    order: list[int] = []
    left = list(range(len(body)))
    while left:
        for n in left:
            earlier = (m for m in left if m < n)
            if not any(cells[m][1] & cells[n][0] for m in left if m != n) and not any(
                conflict(touches[m], touches[n]) for m in earlier
            ):
                break
        else:
            return body
        order.append(n)
        left.remove(n)
    return tuple(body[n] for n in order)


def _cells(node: Node, tied: Tied) -> tuple[set[Access], set[Access]]:
    """Return the cells of what is carried that a node reads, and those that it sets."""
    found: tuple[set[Access], set[Access]] = (set(), set())
    for inner in nodes((node,)):
        if isinstance(inner, Assign | If):
            for each in accesses(inner):
                if each.access.array in tied.carried:
                    found[each.is_write].add(each.access)
    return found


def _plain(node: Node, tied: Tied) -> tuple[set[str], set[str]]:
    """Return what else a node reads, and what it writes."""
    return read_in((node,)) - tied.carried, written_in((node,)) - tied.carried


def _may_precede(node: Node, other: Node, tied: Tied) -> bool:
    """Tell whether a node sets what is carried, and another before it has no part in that."""
    node = tied.closed(_only_set(node))
    written, set_there = (written_in((n,)) for n in (node, other))
    names, its = (read_in((n,)) for n in (node, other))
    return bool(written & tied.carried) and not (names | written) & set_there and not written & its


def _moving(nest: Node, tied: Tied) -> Iterator[str]:
    """Yield the variables along which what is carried is read elsewhere than it is set.

    It is read ahead of them, or behind, as `dh[t + 1]`, or in other rows, as `dx[i]` for `dx[j]`.
    """
    for each in relations_in((nest,)):
        if each.access.array in tied.carried:
            for index in each.access.indices:
                if not isinstance(index, Var):
                    yield from variables(index)
    yield from _rows_looked_at(nest, tied)


def _rows_looked_at(nest: Node, tied: Tied) -> Iterator[str]:
    """Yield the variables of rows that are set from other rows, as `dx[i]` for `dx[j]`."""
    found: dict[str, tuple[list[Access], list[Access]]] = {}
    for each in relations_in((nest,)):
        if each.access.array in tied.carried:
            found.setdefault(each.access.array, ([], []))[each.is_write].append(each.access)
    for reads, writes in found.values():
        for read, write in product(reads, writes):
            for other, own in zip(read.indices, write.indices, strict=True):
                if isinstance(own, Var) and isinstance(other, Var) and other != own:
                    yield own.name


def _moves(tied: Tied, moving: Collection[str]) -> Callable[[Loop], bool]:
    """Return what tells whether a loop goes along what is carried."""

    def moves(loop: Loop) -> bool:
        return loop.variable in moving and loop.variable in _moving(tied.closed(loop), tied)

    return moves


def _directions(nest: Node, moves: Callable[[Loop], bool]) -> Iterator[Node]:
    """Yield a nest as it is, and with some of its loops the other way round."""
    names = list(dict.fromkeys(loop.variable for loop in loops_in((nest,)) if moves(loop)))
    for count in range(min(len(names), MOST_TURNED) + 1):
        for chosen in combinations(names, count):
            (made,) = rewritten((nest,), partial(_turned, frozenset(chosen), moves))
            yield made


def _turned(
    variables: frozenset[str], moves: Callable[[Loop], bool], node: Node
) -> tuple[Node, ...]:
    """Return a loop over one of some variables the other way round."""
    if not isinstance(node, Loop) or node.variable not in variables or node.range.step != 1:
        return (node,)
    if not moves(node):
        return (node,)
    bounds = Range(total(node.range.stop, -1), total(node.range.start, -1), -1)
    return (replace(node, range=bounds),)


def _sets_first(nest: Node, tied: Tied, around: Program) -> bool:
    """Tell whether nothing is set, or added to, after it was read, or set after it was added to."""
    closed = tied.closed(_only_set(nest))
    elsewhere = {
        each.access.array for each in relations_in((closed,)) if not each.access.subscripts
    } - written_in((closed,))
    known = [Assign("S", (Access(name, ()),), (ZERO,)) for name in sorted(elsewhere)]
    whole = tied.with_arrays(replace(around, body=(*around.body, *known, closed), outputs=()))
    late = dependences(whole, bases=("memory",), kinds=("anti", "output"), witnesses=False)
    arrays = {array.name for array in whole.arrays if array.rank}
    statements = assignments((nest,))
    labelled = assignments(whole.body[-1:])
    sets = {
        n.label
        for n, written in zip(labelled, statements, strict=True)
        for target, value in zip(written.targets, written.values, strict=False)
        if accumulation(target, value) is None
    }
    return late.unknown is None and not any(
        each.array in arrays and (each.kind == "anti" or each.sink in sets)
        for each in late.dependences
    )
