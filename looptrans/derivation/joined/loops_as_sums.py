"""Sums that a listing does in a loop of their own, written as sums.

s = 0.0
for e: s = s + q[e] * k[e]    ->    s = sum(q[e] * k[e] for e)
s = s * scale                       s = s * scale

A sum is known where it stands, so what is made of it can be worked out wherever it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from looptrans.adjoint.carried.accumulating import accumulation, are_apart
from looptrans.algebra.positional.cells import mentions
from looptrans.algebra.positional.values import is_number
from looptrans.analysis.api import is_written_once
from looptrans.derivation.joined.apart import handed
from looptrans.derivation.joined.passes import NAMES
from looptrans.derivation.one_loop.writing import done
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.frontend.elements import element_of
from looptrans.ir.condition import ALWAYS, Condition, Relation, conjunction
from looptrans.ir.creation import creation_of
from looptrans.ir.index import Int, Var
from looptrans.ir.index import variables as index_variables
from looptrans.ir.monoids import OF_NOTHING
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import cells_put_in
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Const,
    Generator,
    Holds,
    Read,
    Reduce,
    Value,
    arrays_read,
    cells_read,
    reductions,
)
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import (
    inner_bodies,
    live_out,
    nodes,
    placed,
    read_in,
    relations_in,
    targets_in,
    written_in,
)
from looptrans.transforms.editing.tree import (
    Position,
    block_at,
    loop_paths,
    loops_around,
    replace_at,
    statements_in,
)


@dataclass(frozen=True, slots=True)
class SumLoop:
    """A loop that only adds to one cell, or takes its maximum.

    Attributes:
        loop: The loop.
        position: Its place.
        first: The place of the statement that sets the cell to a number; None where there is none.
        update: The statement that adds.
        total: What it gathers.
        value: What the cell holds behind the loop.
        name: What it gathers: `sum`, `max` or `min`.
        left: What else the loop does, if anything.
    """

    loop: Loop
    position: Position
    first: Position | None
    update: Assign
    total: Reduce
    value: Value
    name: str
    left: tuple[Node, ...] = ()


def sum_loops(program: Program, *, several: bool = False) -> tuple[SumLoop, ...]:
    """Return the loops inside of others that could be written as sums, in the order of the text.

    Args:
        program: The program.
        several: Whether also those that add up several things, each of which could be a sum.
    """
    found = []
    for place in placed(program):
        if isinstance(place.node, Assign) and len(place.loops) > 1:
            made = _sum_loop(program, place.loop_positions[-1], place.node, several=several)
            if made is not None:
                found.append(made)
    return tuple(found)


def is_shared(program: Program, each: SumLoop) -> bool:
    """Tell whether another loop adds up under the same name."""
    array = each.update.targets[0].array
    others = [e for e in sum_loops(program) if e.position != each.position and e.first]
    return each.first is not None and any(e.update.targets[0].array == array for e in others)


def is_beside_rows(program: Program, each: SumLoop) -> bool:
    """Tell whether a loop around carries a whole row from one iteration to the next.

    for j: s = 0.0
           for e: s = s + q[i, e] * k[j, e]
           for d: o[i, d] = o[i, d] + s * v[j, d]

    A row is in one block; so may be what is summed over, and q is not read again for each block.
    """
    return (
        has_fixed_ends(each.loop)
        and is_with_rows(program, each.position, each.loop)
        and not _is_pass(program, each.position, each.loop)
    )


def is_before_rows(program: Program, each: SumLoop) -> bool:
    """Tell whether a pass that may be joined with one around the loop carries a whole row.

    for j: s = 0.0
           for e: s = s + q[i, e] * k[j, e]
           m = max(m, s)
    for j: for d: o[i, d] = o[i, d] + exp(sum(q[i, e] * k[j, e] for e) - m) * v[j, d]
    """
    return has_fixed_ends(each.loop) and any(
        isinstance(other, Loop)
        and other is not path.loop
        and (other.range, other.execution) == (path.loop.range, "sequential")
        and _carries_a_row(other, None)
        for path in loops_around(program, each.position)
        for other in block_at(program, path.position)
    )


def _is_pass(program: Program, position: Position, loop: Loop) -> bool:
    """Tell whether a loop goes over what is given, as one beside it does that carries a row.

    for t: for n: m = max(m, sum(x[e] * y[n, e] for e))
           for n: for e: z[e] = z[e] + exp(sum(x[e] * y[n, e] for e) - m) * y[n, e]
           for e: x[e] = z[e]

    Of n there may be any number, and no iteration of t keeps anything for each: the two may be one
    pass in blocks, while what is summed over beside a row is in one block.
    """
    if isinstance(loop.range.stop, Int) or not has_fixed_ends(loop):
        return False
    alike = [
        other
        for other in block_at(program, position)
        if isinstance(other, Loop)
        and (other.range, other.execution) == (loop.range, loop.execution)
    ]
    outermost = loops_around(program, position)[:1]
    set_there = {name for path in outermost for name in written_in(path.loop.body)}
    return any(_carries_a_row(other, None, moved=True) for other in alike) and not any(
        mentions(relation.access, other.variable) and relation.access.array in set_there
        for other in alike
        for relation in relations_in(other.body)
    )


def has_fixed_ends(loop: Loop) -> bool:
    """Tell whether a loop goes as far in each iteration of those around it."""
    ends = loop.range.ends
    return not any(index_variables(end) for end in ends)


@dataclass(frozen=True, slots=True)
class Mixed:
    """A loop inside of others that does several things, one of which is to add up.

    Attributes:
        name: The loop.
        cuts: The first statements of its pieces but the first: each adds up, or none of it does.
        locals: The scalars that one piece hands to another.
    """

    name: str
    cuts: tuple[str, ...]
    locals: tuple[str, ...]


def mixed_loops(program: Program) -> Iterator[Mixed]:
    """Yield the loops that add up between what else they do, where a loop around carries a row.

    for t: for n: h[n] = a * h[n] + x[t, n]           for t: for n: h[n] = a * h[n] + x[t, n]
                  y[t] = y[t] + c[t, n] * h[n]   ->          for n: y[t] = y[t] + c[t, n] * h[n]
    """
    whole = {each.position for each in sum_loops(program)}
    for path in loop_paths(program):
        if path.position in whole:
            continue
        body, variable = path.loop.body, path.variable
        ends = path.loop.range.ends
        if path.loop.execution != "sequential" or any(index_variables(end) for end in ends):
            continue
        pieces: list[tuple[Node, ...]] = []
        alone = True
        for node in body:
            adds = _adds_up(node, variable)
            if alone or adds:
                pieces.append(())
            pieces[-1] = (*pieces[-1], node)
            alone = adds
        if (
            len(pieces) > 1
            and is_with_rows(program, path.position)
            and not _is_pass(program, path.position, path.loop)
        ):
            cuts = tuple(statements_in(piece)[0] for piece in pieces[1:])
            name = f"{variable}@{statements_in(body)[0]}"
            yield Mixed(name, cuts, handed(program, pieces))


def _adds_up(node: Node, variable: str) -> bool:
    match node:
        case Assign(targets=(target,), values=(value,)):
            return not (target.rank or mentions(target, variable)) and (
                accumulation(target, value, elsewhere=True) is not None
            )
        case If(_, (only,), ()):
            return _adds_up(only, variable)
        case _:
            return False


def is_with_rows(program: Program, position: Position, besides: Loop | None = None) -> bool:
    """Tell whether a loop around a place carries a row from one iteration to the next.

    Args:
        program: The program.
        position: The place.
        besides: A loop that does not count as what carries it.
    """
    return any(
        path.loop.execution == "sequential" and _carries_a_row(path.loop, besides)
        for path in loops_around(program, position)
    )


def _carries_a_row(loop: Loop, besides: Loop | None, *, moved: bool = False) -> bool:
    """Tell whether a loop carries a row, or a cell of one unless loops inside have to move it."""
    return any(True for _ in rows_carried(loop, besides, moved=moved))


def rows_carried(loop: Loop, besides: Loop | None = None, *, moved: bool = True) -> Iterator[str]:
    """Yield the arrays of which a loop carries rows from one iteration to the next.

    Args:
        loop: The loop.
        besides: A loop inside that does not count as what moves along a row.
        moved: Whether loops inside have to move along a row, or a cell of one is enough.
    """
    made_of: dict[str, set[str]] = {}

    def rows(body: tuple[Node, ...], inner: tuple[str, ...]) -> Iterator[str]:
        for node in body:
            match node:
                case Assign(targets=(target,), values=(value,)):
                    moves = any(mentions(target, name) for name in inner)
                    moves |= target.rank > 0 and not moved
                    kept = not mentions(target, loop.variable)
                    read = arrays_read(value)
                    read = read.union(*(made_of.get(name, ()) for name in read))
                    if moves and kept and target.array in read:
                        yield target.array
                    made_of[target.array] = read
                case Loop() if node is not besides:
                    yield from rows(node.body, (*inner, node.variable))
                case If():
                    yield from rows((*node.body, *node.orelse), inner)
                case _:
                    pass

    yield from rows(loop.body, ())


def added_to_rows(program: Program, array: str) -> tuple[str, ...]:
    """Return the statements that add to a row of an array in a loop inside of one that adds up."""
    return tuple(
        place.label
        for place in placed(program)
        if isinstance(place.node, Assign)
        and place.node.targets[0].array == array
        and _with_row_outside(program, place.label) is not None
    )


def _sum_of(program: Program, label: str) -> SumLoop | None:
    every = sum_loops(program, several=True)
    return next((each for each in every if each.update.label == label), None)


def _with_row_outside(program: Program, label: str) -> Program | None:
    """Return a program that adds up for one element of a row after the other.

    for i: s = x[i] * y[i]                      for d: for i: s = x[i] * y[i]
           for d: z[d] = z[d] + s * v[i, d] ->                z[d] = z[d] + s * v[i, d]
    """
    place = next((each for each in placed(program) if each.label == label), None)
    if place is None or len(place.loops) < 3:
        return None
    outer, row = place.loops[-2:]
    asked, (*before, last) = _guarded(outer.body)
    scalars = all(isinstance(n, Assign) and not n.targets[0].subscripts for n in before)
    if last is not row or row.body != (place.node,) or not scalars or not has_fixed_ends(row):
        return None
    body: tuple[Node, ...] = (*before, place.node)
    if asked != ALWAYS:
        body = (If(asked, body),)
    inside = replace(row, body=(replace(outer, body=body),))
    return replace_at(program, place.loop_positions[-2], (inside,))


def loop_as_sum(program: Program, label: str) -> DerivationStep:
    """Write a loop that only adds up as a sum, or one of several things that it adds up.

    Args:
        program: The program.
        label: The statement that adds.

    Raises:
        NotDone: The loop does something else besides.
    """
    found = _sum_of(program, label)
    if found is None:
        moved = _with_row_outside(program, label)
        found = None if moved is None else _sum_of(moved, label)
        program = program if moved is None else moved
    if found is None:
        raise NotDone(f"the loop around {label} does more than add up")
    new = replace(found.update, values=(found.value,), augmented=False)
    rest = (replace(found.loop, body=found.left),) if found.left else ()

    after = replace_at(program, found.position, (new, *rest))
    if found.first is None and found.name == "sum" and _is_of_zeros(after, new):
        after = replace_at(program, found.position, (replace(new, values=(found.total,)), *rest))
    after = done(after if found.first is None else replace_at(after, found.first, ()))
    word = NAMES[found.name]
    return DerivationStep(
        f"write the loop of {label} as a {word}",
        "loop as sum",
        (label,),
        program,
        after,
        (
            Certificate(
                "order",
                f"a {word} is what a loop joins, one term after the other",
                "legal",
                "that is what it means",
            ),
        ),
    )


def _is_of_zeros(program: Program, node: Assign) -> bool:
    """Tell whether each cell that a statement sets is 0 before, and set by it alone."""
    array = node.targets[0].array
    created = creation_of(program, array)
    return created is not None and created.function == "zeros" and is_written_once(program, array)


def _sum_loop(
    program: Program, position: Position, update: Assign, *, several: bool
) -> SumLoop | None:
    block = block_at(program, position)
    loop = block[position[-1]]
    if not isinstance(loop, Loop) or loop.execution != "sequential" or loop.range.step != 1:
        return None
    left = _left(loop, update) if several else ()
    total = _total(program, loop, update, left)
    if total is None:
        return None
    found = _first(block[: position[-1]], update.targets[0])
    first = None if found is None else (*position[:-1], found[0])
    start: Value = Read(update.targets[0]) if found is None else found[1]
    value: Value = total
    if not is_number(start, OF_NOTHING[total.function]):
        value = Call(total.function, (start, total))
        if total.function == "sum":
            value = Binary("+", start, total)
    return SumLoop(loop, position, first, update, total, value, total.function, left)


def _left(loop: Loop, update: Assign) -> tuple[Node, ...]:
    """Return what a loop does besides, where it adds up several things that do not meet."""
    number = next((n for n, node in enumerate(loop.body) if node is update), None)
    if number is None or not _adds_up(update, loop.variable):
        return ()
    others = (*loop.body[:number], *loop.body[number + 1 :])
    if not any(_adds_up(node, loop.variable) for node in others):
        return ()
    target = update.targets[0]
    meets = any(not are_apart(relation.access, target) for relation in relations_in(others))
    return () if meets else others


def _total(
    program: Program, loop: Loop, update: Assign, left: tuple[Node, ...] = ()
) -> Reduce | None:
    """Return what a loop adds up, where that is all it does, or what is left is done without it."""
    around: Condition = ALWAYS
    if left:
        number = next(n for n, node in enumerate(loop.body) if node is update)
        given = tuple(n for n in loop.body[:number] if not _adds_up(n, loop.variable))
    else:
        around, (*before, last) = _guarded(loop.body)
        if last is not update:
            return None
        given = tuple(before)
    if len(update.targets) != 1 or len(update.values) != 1:
        return None
    target = update.targets[0]
    here = Var(loop.variable)
    ends = (Relation("<=", loop.range.start, here), Relation("<", here, loop.range.stop))
    where = conjunction(around, *ends)
    found = accumulation(target, update.values[0], elsewhere=True, where=where)
    if found is None or target.rank or mentions(target, loop.variable):
        return None
    name, term, condition = found
    condition = conjunction(around, condition)
    kinds = {array.name: array.element for array in program.arrays}
    total = Reduce(name, (Generator(loop.variable, loop.range, condition),), term)
    known = _temporaries(program, loop, given, target)
    # What a guard around them reads of them has been left by another iteration, too.
    if known is None or {cell.array for cell in known} & arrays_read(Holds(around)):
        return None
    body = cells_put_in(total, known)
    assert isinstance(body, Reduce)
    # A temporary that is read before it is set has been left by another iteration.
    if {cell.array for cell in known} & read_in((replace(update, values=(body,)),)):
        return None
    bound = {g.variable for p in reductions(body.body) for g in p.generators}
    read = cells_read(body)
    set_there = targets_in(left)
    if not all(are_apart(access, other) for access in read for other in set_there):
        return None
    if loop.variable in bound or not all(are_apart(access, target, where) for access in read):
        return None
    whole = kinds[target.array] == "int"
    return None if whole != (element_of(body, kinds) == "int") else body


def _guarded(body: tuple[Node, ...]) -> tuple[Condition, tuple[Node, ...]]:
    """Return what all of a body is asked for, and what is done where it holds."""
    asked: Condition = ALWAYS
    while len(body) == 1:
        match body[0]:
            case If(condition, inner, ()) if inner:
                asked, body = conjunction(asked, condition), inner
            case _:
                break
    return asked, body


def _temporaries(
    program: Program, loop: Loop, given: tuple[Node, ...], target: Access
) -> dict[Access, Value] | None:
    """Return what the temporaries of a loop hold, where nobody else looks at them."""
    known: dict[Access, Value] = {}
    for node in given:
        if not isinstance(node, Assign) or len(node.targets) != 1 or len(node.values) != 1:
            return None
        own = node.targets[0]
        if own.indices or own.rank or own in known or own.array == target.array:
            return None
        if own.array in live_out(program) or _looks_back(program.body, own, loop):
            return None
        known[own] = cells_put_in(node.values[0], known)
    # What one of them reads before it is set has been left by another iteration.
    left = {a for value in known.values() for a in arrays_read(value)}
    return None if left & {cell.array for cell in known} else known


def _looks_back(body: tuple[Node, ...], cell: Access, besides: Loop) -> bool:
    """Tell whether something but a loop reads a temporary that its own block has not set before.

    What has been set before the loop is no longer so behind it.
    """
    is_set = False
    for node in body:
        if node is besides:
            is_set = False
            continue
        if isinstance(node, Assign) and cell in node.targets:
            if not is_set and cell.array in read_in((node,)):
                return True
            is_set = True
            continue
        inner = inner_bodies(node)
        holds = any(each is besides for each in (n for body_ in inner for n in nodes(body_)))
        if is_set and not holds:
            continue
        alone: tuple[Node, ...] = () if inner else (node,)
        if isinstance(node, If):
            alone = (replace(node, body=(), orelse=()),)
        if cell.array in read_in(alone) or any(_looks_back(b, cell, besides) for b in inner):
            return True
        is_set = is_set and not holds
    return False


def _first(before: tuple[Node, ...], target: Access) -> tuple[int, Const] | None:
    """Return where a block sets a cell to a number last, with nothing behind that touches it."""
    for number, node in reversed(list(enumerate(before))):
        match node:
            case Assign(targets=(access,), values=(Const() as start,)) if access == target:
                return number, start
            case _ if target.array in read_in((node,)) | written_in((node,)):
                return None
            case _:
                pass
    return None
