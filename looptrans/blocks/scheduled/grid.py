"""Which loops of a nest become programs, and which of those are rows of blocks.

The outermost parallel loops, one directly inside the other, are the grid. The bounds of one may be
read from memory by the others around it, as in `for b: for i in range(cu[b], cu[b + 1])`, where the
declared ranges say how many iterations there are at most. A loop of the grid is a dimension of rows
where some sum of products has it in one factor only: its iterations share the
other factor. A factor that a loop inside gives columns needs no rows. Without such a sum the
innermost loops of the grid are rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Literal, TypeAlias

from looptrans.blocks.block_ir.program import NotLowered
from looptrans.blocks.scheduled.chains import as_chain
from looptrans.blocks.scheduled.sites import Path
from looptrans.ir.affine import difference, extremum, total
from looptrans.ir.alike import alike, going_along
from looptrans.ir.index import (
    Arith,
    Extremum,
    Index,
    Int,
    Let,
    Neg,
    Opaque,
    Param,
    Var,
    children,
    variables,
    walk,
)
from looptrans.ir.program import Assign, Atomic, If, Loop, Node, Program
from looptrans.ir.value import (
    Access,
    Binary,
    Const,
    Read,
    Reduce,
    Select,
    Unary,
    Value,
    Whole,
    value_children,
    walk_value,
)
from looptrans.ir.walk import accesses_in, loops_in, nodes
from looptrans.transforms.editing.extents import extent_along


def grid_of(node: Loop, path: Path, program: Program) -> tuple[tuple[Loop, ...], Path]:
    """Return the loops of the grid, outermost first, and the place of the innermost.

    What only adds to memory may go over any number of iterations inside of a program, and does
    where nothing says how many there are at most.
    """
    loops = [node]
    while True:
        body = loops[-1].body
        if len(body) != 1 or not isinstance(body[0], Loop):
            break
        inner = body[0]
        if inner.execution != "parallel" or inner.range.step != 1:
            break
        outer = {loop.variable for loop in loops}
        ends = (*plain_variables(inner.range.start), *plain_variables(inner.range.stop))
        if outer & set(ends) or inner.variable in outer:
            break
        # A block of rows has no one range of another loop.
        if any(is_read(loop) and loop.variable in inner.range.variables for loop in loops):
            break
        if is_read(inner) and _only_adds(inner) and _most(inner, program) is None:
            break
        loops.append(inner)
        path = (*path, 0)
    return tuple(loops), path


def plain_variables(index: Index) -> Iterator[str]:
    """Yield the variables of an index expression that do not just say what is read from memory."""
    if isinstance(index, Var):
        yield index.name
    elif not isinstance(index, Opaque):
        for child in children(index):
            yield from plain_variables(child)


def is_read(loop: Loop) -> bool:
    """Tell whether the bounds of a loop are read from memory."""
    return any(isinstance(n, Opaque) for e in loop.range.ends for n in walk(e))


def most_of(loop: Loop, program: Program) -> Index:
    """Return what the number of iterations of a loop whose bounds are read never exceeds.

    Raises:
        NotLowered: Nothing is declared that says so.
    """
    most = _most(loop, program)
    if most is None:
        arrays = {n.array for end in loop.range.ends for n in walk(end) if isinstance(n, Opaque)}
        open_ = [a.name for a in program.arrays if a.name in arrays and a.value_range is None]
        named = " and ".join(open_) or "its bounds"
        raise NotLowered(
            f"how many iterations {loop.variable} has is read from memory, and no range of {named} "
            'says how many there are at most: declare it, as in Int[Array, "B", "0:N+1"]'
        )
    return most


def _most(loop: Loop, program: Program) -> Index | None:
    start, stop = loop.range.ends
    least, greatest = _limit(start, program, "least"), _limit(stop, program, "greatest")
    if least is None or greatest is None:
        return extent_along(program, loop, writes=True)
    return difference(greatest, least)


def _only_adds(loop: Loop) -> bool:
    return all(isinstance(node, Atomic | Loop) for node in loop.body)


def _limit(index: Index, program: Program, which: Literal["least", "greatest"]) -> Index | None:
    """Return the least or greatest value of an index expression, over sizes alone."""
    other: Literal["least", "greatest"] = "greatest" if which == "least" else "least"
    match index:
        case Int() | Param():
            return index
        case Neg(operand):
            limit = _limit(operand, program, other)
            return None if limit is None else difference(Int(0), limit)
        case Let(_, value):
            return _limit(value, program, which)
        case Arith("+" | "-" as op, left, right):
            one = _limit(left, program, which)
            two = _limit(right, program, which if op == "+" else other)
            if one is None or two is None:
                return None
            return total(one, two) if op == "+" else difference(one, two)
        case Extremum(op, arguments):
            limits = [_limit(argument, program, which) for argument in arguments]
            known = [limit for limit in limits if limit is not None]
            # A minimum is at most any of its arguments; it is at least the least of all.
            needs_all = (op == "min") == (which == "least")
            return None if not known or (needs_all and None in limits) else extremum(op, known)
        case Opaque(array, _):
            declared = program.array(array).value_range
            if declared is None:
                return None
            return declared[0] if which == "least" else total(declared[1], -1)
        case _:
            return None


def rows_of(loops: tuple[Loop, ...], single: frozenset[str]) -> tuple[str, ...]:
    """Return the variables of the grid that are rows of blocks, outermost first.

    Args:
        loops: The loops of the grid.
        single: Variables of which a program does one iteration.
    """
    # Rows of one block cannot each have a range of their own of another loop of the grid, and what
    # a loop adds to memory is not looked up for those of other rows.
    inner = [n for n in nodes(loops[-1].body) if isinstance(n, Loop) and is_read(n)]
    adding = filter(_only_adds, inner)
    deciding = {v for loop in (*loops, *adding) for v in loop.range.variables}
    grid = [loop.variable for loop in loops if loop.variable not in deciding | single]
    body = loops[-1].body
    reads = _reads(body)
    bounds = {
        node.variable: set().union(*map(_telling, node.range.ends)) for node in loops_in(body)
    }
    pairs: set[str] = set()
    chosen: set[str] = set()
    others: set[str] = set()
    has_products = False
    for over, factors, around in _sums(body, grid):
        sets = [_bounded(_depends(factor, reads), bounds) for factor in factors]
        if over is not None:
            has_products = has_products or _is_product(sets, around - {over, *grid})
        inside = [own for own in sets if over in own or over is None]
        if over is not None:
            inside = _without_batches(inside, around - {over})
        pair = apart(inside, grid)
        alone, left = (pair, set()) if pair else _alone(inside, grid, body)
        pairs |= pair
        chosen |= alone
        others |= left
    # A factor with rows of two loops is an operand of no matrix product.
    chosen = (chosen - others) | pairs or chosen
    if not chosen and not has_products:
        deep = any(isinstance(node, Loop) for node in body) or any(
            isinstance(part, Reduce) for part in _values(body)
        )
        chosen = set(grid[-1:] if deep else grid[-2:])
    return tuple(v for v in grid if v in chosen)[-2:]


def _is_product(factors: list[set[str]], around: frozenset[str]) -> bool:
    """Tell whether two factors are rows and columns over loops that a program has for itself."""
    return any(
        (one & around) - other and (other & around) - one for one, other in combinations(factors, 2)
    )


def _telling(end: Index) -> set[str]:
    """Return the variables each of whose iterations has a loop of its own, by one of its ends.

    `range(g * R, g * R + R)` has other iterations for another g, and `range(0, n[b])` as many as
    b has; in `range(max(0, i - W), i + 1)` neighbouring i have nearly the same, and share blocks.
    So have rows that look up what they are rows of, as in `range(cu[seq[i]], cu[seq[i] + 1])`.
    """
    return set(_named(end)) - going_along(end)


def _named(index: Index, inside: bool = False) -> Iterator[str]:
    """Yield the variables of an index expression that do not just choose where something is read.

    Args:
        index: The index expression.
        inside: Whether it is part of a subscript of what is read.
    """
    if isinstance(index, Var):
        yield index.name
    elif not (inside and isinstance(index, Opaque)):
        for child in children(index):
            yield from _named(child, inside or isinstance(index, Opaque))


def _without_batches(inside: list[set[str]], around: frozenset[str]) -> list[set[str]]:
    """Leave out of a factor's variables those of the grid where a loop around gives it columns.

    x[n, f] * w[p, q, f] with p of the grid and q of a loop inside: a program does one p.
    """
    found = []
    for number, own in enumerate(inside):
        others = set().union(*(each for n, each in enumerate(inside) if n != number))
        has_columns = bool((own & around) - others)
        found.append(own & others if has_columns and len(inside) > 1 else own)
    return found


def apart(inside: list[set[str]], grid: list[str]) -> set[str]:
    """Return the two variables of which each factor has at most one, if there are such.

    x[n, f] * (w[p, f] - z[p]) * s[p, f // G]    ->    n, p
    """
    differing = [v for v in grid if not all(v in own for own in inside)]
    last = {own[-1] for own in ([v for v in differing if v in own] for own in inside) if own}
    both = any(len(last & own) > 1 for own in inside)
    return set() if both or len(last) != 2 else last


def _alone(
    inside: list[set[str]], grid: list[str], body: tuple[Node, ...]
) -> tuple[set[str], set[str]]:
    """Return variables that one factor has and no other, one for each factor, and those left."""
    found: set[str] = set()
    left: set[str] = set()
    for own in inside if len(inside) > 1 else ():
        alone = [v for v in grid if v in own and sum(v in other for other in inside) == 1]
        if len(alone) > 1:
            kept = _like_columns(alone, body)
            left |= set(alone) - {kept}
            alone = [kept]
        found |= set(alone)
    return found, left


def _like_columns(rows: list[str], body: tuple[Node, ...]) -> str:
    """Return the one of several variables that is most like that of a loop inside."""
    inside = list(nodes(body))
    inner = [node for node in inside if isinstance(node, Loop)]
    return alike(
        list(accesses_in(body)),
        rows,
        {loop.variable for loop in inner},
        [(loop.variable, end) for loop in inner for end in loop.range.ends],
        [node.condition for node in inside if isinstance(node, If)],
    )


def _values(body: tuple[Node, ...]) -> Iterator[Value]:
    for node in nodes(body):
        if isinstance(node, Assign):
            for value in node.values:
                yield from walk_value(value)


def _reads(body: tuple[Node, ...]) -> dict[str, list[Value]]:
    """Return what is assigned to each array."""
    found: dict[str, list[Value]] = {}
    for node in nodes(body):
        if isinstance(node, Assign):
            for number, target in enumerate(node.targets):
                value = node.values[number if len(node.values) > 1 else 0]
                found.setdefault(target.array, []).append(value)
    return found


_Sum: TypeAlias = tuple[str | None, tuple[Value, ...], frozenset[str]]


def _sums(body: tuple[Node, ...], grid: list[str]) -> Iterator[_Sum]:
    """Yield products that are summed: over what, where it is known, the factors, what is around."""
    yield from _inner_sums(body, frozenset(), grid)
    yield from _folds(body, None, frozenset())


def _inner_sums(body: tuple[Node, ...], around: frozenset[str], grid: list[str]) -> Iterator[_Sum]:
    for node in body:
        if isinstance(node, Loop):
            yield from _inner_sums(node.body, around | {node.variable}, grid)
        elif isinstance(node, If):
            yield from _inner_sums((*node.body, *node.orelse), around, grid)
        else:
            for value in node.values if isinstance(node, Assign) else ():
                yield from _sums_in(value, around, grid)


def _sums_in(value: Value, around: frozenset[str], grid: list[str]) -> Iterator[_Sum]:
    if isinstance(value, Reduce):
        value = as_chain(value, grid) or value
    for part in value_children(value):
        yield from _sums_in(part, around | _generators_of(value), grid)
    if isinstance(value, Reduce) and value.function == "sum":
        yield value.generators[-1].variable, factors_of(value.body), around


def _generators_of(value: Value) -> frozenset[str]:
    generators = value.generators if isinstance(value, Reduce) else ()
    return frozenset(generator.variable for generator in generators)


def _folds(body: tuple[Node, ...], loop: str | None, around: frozenset[str]) -> Iterator[_Sum]:
    for node in body:
        if isinstance(node, Loop):
            inner = node.variable if node.execution == "sequential" else loop
            yield from _folds(node.body, inner, around | {node.variable})
        elif isinstance(node, Assign) and loop is not None:
            for value in node.values:
                for term in _terms(value):
                    yield loop, factors_of(term), around
        elif isinstance(node, If):
            yield from _folds((*node.body, *node.orelse), loop, around)


def _terms(value: Value) -> tuple[Value, ...]:
    match value:
        case Binary("+" | "-", left, right):
            return (*_terms(left), *_terms(right))
        case Select(_, Const(0), otherwise):
            return _terms(otherwise)
        case Select(_, chosen, _):
            return _terms(chosen)
        case _:
            return (value,)


def factors_of(value: Value) -> tuple[Value, ...]:
    """Return what a value is a product of; what divides it is left out."""
    match value:
        case Binary("*", left, right):
            return (*factors_of(left), *factors_of(right))
        case Binary("/", left, _):
            return factors_of(left)
        case Unary(_, operand):
            return factors_of(operand)
        case _:
            return (value,)


def _depends(value: Value, written: dict[str, list[Value]]) -> set[str]:
    """Return the variables a value depends on, through what the body assigns."""
    found: set[str] = set()
    seen: set[str] = set()

    def visit(part: Value) -> None:
        for each in walk_value(part):
            if isinstance(each, Read):
                found.update(_of_access(each.access))
                name = each.access.array
                if name in written and name not in seen:
                    seen.add(name)
                    for assigned in written[name]:
                        visit(assigned)

    visit(value)
    return found


def _bounded(names: set[str], bounds: dict[str, set[str]]) -> set[str]:
    """Return variables with those that the loops over them depend on."""
    found = set(names)
    queue = list(names)
    while queue:
        for name in bounds.get(queue.pop(), set()) - found:
            found.add(name)
            queue.append(name)
    return found


def _of_access(access: Access) -> Iterator[str]:
    for subscript in access.subscripts:
        if not isinstance(subscript, Whole):
            yield from variables(subscript)
