"""How far loops run: whether at all, how often, and within which indices whatever is around."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from looptrans.ir.affine import (
    Form,
    difference,
    extremum,
    form_of,
    index_of,
    is_same,
    multiplied,
    quotient,
    total,
)
from looptrans.ir.condition import ALWAYS, Condition, Relation
from looptrans.ir.index import (
    Arith,
    Extremum,
    Index,
    Int,
    Let,
    Opaque,
    Param,
    Var,
    children,
    opaque_terms,
    rebuild,
    variables,
    walk,
)
from looptrans.ir.program import Array, Assign, If, Loop, Node, Program
from looptrans.ir.value import Binary, Call, Range, Read, Select, Subscript, Unary, Value, Whole
from looptrans.ir.walk import accesses, nodes, targets_in
from looptrans.transforms.editing.errors import RangeNotFound

Ranges = Mapping[str, Range]
End = Literal["lowest", "highest"]
_OTHER: dict[End, End] = {"lowest": "highest", "highest": "lowest"}


def runs_at_all(bounds: Range) -> Condition:
    """Return the condition under which a loop has an iteration; `ALWAYS` where that is plain."""
    apart = form_of(bounds.stop).plus(form_of(bounds.start), -1)
    if apart.is_constant and apart.constant * bounds.step > 0:
        return ALWAYS
    return Relation("<" if bounds.step > 0 else ">", bounds.start, bounds.stop)


def blocks_of(bounds: Range, size: int) -> Index:
    """Return how many blocks of `size` iterations cover a loop; it is not above 0 where none do."""
    length = difference(bounds.stop, bounds.start)
    if bounds.step < 0:
        length = difference(bounds.start, bounds.stop)
    stride = abs(bounds.step) * size
    return quotient(total(length, stride - 1), stride)


def extreme(index: Index, ranges: Ranges, end: End) -> Index | None:
    """Return the lowest or highest value of an index expression, as one of parameters alone.

    Every value the expression has lies on the right side of it; it need not be one of them.

    Args:
        index: The expression.
        ranges: The range of each loop variable.
        end: Which of the two.

    Returns:
        The value, or None where it cannot be written down.
    """
    form = form_of(index)
    found = Form({}, form.constant)
    for term, factor in form.terms.items():
        value = _extreme_of_term(term, ranges, end if factor > 0 else _OTHER[end])
        if value is None:
            return None
        found = found.plus(form_of(value), factor)
    return index_of(found)


def _extreme_of_term(term: Index, ranges: Ranges, end: End) -> Index | None:
    match term:
        case Param():
            return term
        case Var(name):
            return _extreme_of_variable(ranges[name], ranges, end) if name in ranges else None
        case Let(_, value):
            return extreme(value, ranges, end)
        case Extremum(op, arguments):
            ends = [extreme(argument, ranges, end) for argument in arguments]
            known = tuple(each for each in ends if each is not None)
            # Any argument is above a min, and below a max.
            loose = op == ("min" if end == "highest" else "max")
            return extremum(op, known) if len(known) == len(ends) or (known and loose) else None
        case Arith("//", left, Int(size)) if size > 0:
            inner = extreme(left, ranges, end)
            return None if inner is None else quotient(inner, size)
        case Arith("%", _, Int(size)) if size > 0:
            return Int(0 if end == "lowest" else size - 1)
        case _:
            return term if _is_fixed(term) else None


def _extreme_of_variable(bounds: Range, ranges: Ranges, end: End) -> Index | None:
    towards = "highest" if bounds.step > 0 else "lowest"
    if end != towards:
        return extreme(bounds.start, ranges, end)
    last = extreme(bounds.stop, ranges, end)
    return None if last is None else total(last, -1 if bounds.step > 0 else 1)


def declared_end(program: Program, index: Index, end: End) -> Index:
    """Replace elements of integer arrays by the lowest or highest value they are declared to have.

    Only where the index rises with them all; elsewhere it is left as it is.
    """
    if isinstance(index, Opaque):
        declared = program.array(index.array).value_range
        if declared is None:
            return index
        return declared[0] if end == "lowest" else difference(declared[1], Int(1))
    if isinstance(index, Extremum) or (isinstance(index, Arith) and index.op == "+"):
        parts = children(index)
        return rebuild(index, tuple(declared_end(program, part, end) for part in parts))
    return index


def declared_range(program: Program, bounds: Range) -> Range:
    """Return a range that a loop stays in, whatever the integer arrays hold that bound it."""
    ends: tuple[End, End] = ("lowest", "highest") if bounds.step > 0 else ("highest", "lowest")
    return Range(
        declared_end(program, bounds.start, ends[0]),
        declared_end(program, bounds.stop, ends[1]),
        bounds.step,
    )


def extent_along(
    program: Program, loop: Loop, *, writes: bool, surely: bool = True
) -> Index | None:
    """Return what the variable of a loop stays below: an extent that each iteration stays within.

        for i in range(cu[b], cu[b + 1]): O[i, d] = …             i < T, where O has T rows
        for j in range(0, n[b]): … K[page[b, j // P], j % P]      j < L * P, where page is B x L

    Args:
        program: The program.
        loop: The loop.
        writes: Whether only what is written counts.
        surely: Whether an element that loops over a size touch counts only where each iteration
            sets nothing but elements within the extent: where the size is 0 they touch nothing.

    Returns:
        The extent; None where there is nothing that every iteration has one such element of.
    """
    for node, is_touched in _in_any_case(loop.body):
        for relation in accesses(node):
            if relation.condition != ALWAYS or (writes and not relation.is_write):
                continue
            if not all(
                g.condition == ALWAYS and _is_of_sizes(g.range) for g in relation.generators
            ):
                continue
            access = relation.access
            cells: list[tuple[str, tuple[Subscript, ...]]] = [(access.array, access.subscripts)]
            cells += [(o.array, o.arguments) for at in access.indices for o in opaque_terms(at)]
            for array, subscripts in cells:
                shape = program.array(array).shape
                for subscript, extent in zip(subscripts, shape, strict=True):
                    found = extent and _end_along(subscript, extent, loop.variable)
                    if found is None:
                        continue
                    if is_touched or not surely or _sets_within(program, loop, found):
                        return found
    return None


def _sets_within(program: Program, loop: Loop, end: Index) -> bool:
    """Tell whether the elements of arrays that a loop sets all lie below an end along it."""
    targets = targets_in(loop.body)
    return all(
        any(
            extent is not None and _end_along(subscript, extent, loop.variable) == end
            for subscript, extent in zip(
                target.subscripts, program.array(target.array).shape, strict=True
            )
        )
        for target in targets
        if target.subscripts and target.array not in loop.private
    )


def _end_along(subscript: Subscript, extent: Index, variable: str) -> Index | None:
    """Return what a variable stays below where a subscript stays below an extent."""
    match subscript:
        case Var(name) if name == variable:
            return extent
        case Arith("//", left, Int() | Param() as divisor):
            found = _end_along(left, extent, variable)
            return None if found is None else multiplied(found, divisor)
        case Let(_, value):
            return _end_along(value, extent, variable)
        case _:
            return None


def _in_any_case(
    body: tuple[Node, ...], *, surely: bool = True
) -> Iterator[tuple[Assign | If, bool]]:
    """Yield what is done in a block under no condition, and in no loop that data may empty.

    Beside each stands whether it is done whatever the sizes are.
    """
    for node in body:
        match node:
            case Assign() | If():
                yield node, surely
            case Loop() if _is_of_sizes(node.range):
                yield from _in_any_case(node.body, surely=surely and _is_some(node.range))
            case _:
                pass


def _is_some(bounds: Range) -> bool:
    return isinstance(bounds.stop, Int) and bounds.stop.value > 0


def _is_of_sizes(bounds: Range) -> bool:
    return bounds.start == Int(0) and isinstance(bounds.stop, Int | Param)


def _is_fixed(index: Index) -> bool:
    return not variables(index) and not any(isinstance(part, Opaque | Let) for part in walk(index))


def is_never_negative(program: Program, index: Index, ranges: Ranges) -> bool:
    """Tell whether an index expression is plainly at least 0: a sum of such things.

    Args:
        program: The program; the extents of its arrays are not negative.
        index: The expression.
        ranges: The range of each loop variable.
    """
    form = form_of(index)
    return form.constant >= 0 and all(
        factor > 0 and _term_is_never_negative(program, term, ranges)
        for term, factor in form.terms.items()
    )


def stays_at_least_0(program: Program, index: Index, ranges: Ranges) -> bool:
    """Tell whether an index expression is at least 0 in every iteration, by its lowest value.

    Args:
        program: The program; the extents of its arrays are not negative.
        index: The expression.
        ranges: The range of each loop variable.
    """
    lowest = extreme(index, ranges, "lowest")
    return lowest is not None and is_never_negative(program, lowest, {})


def is_within(program: Program, least: Index, extent: Index) -> bool:
    """Tell whether an extent is surely so large, by sizes or by a contract: H == G * R, F > 512.

    Args:
        program: The program.
        least: How large.
        extent: The extent.
    """
    room = difference(extent, least)
    rooms = [room]
    for condition in program.stated:
        if not isinstance(condition, Relation):
            continue
        op, apart = condition.op, difference(condition.left, condition.right)
        if op in ("==", "<", "<="):  # right - left, at least 0
            rooms.append(total(room, apart if op != "<" else total(apart, 1)))
        if op in ("==", ">", ">="):
            rooms.append(difference(room, apart if op != ">" else total(apart, -1)))
    return any(is_never_negative(program, each, {}) for each in rooms)


WIDE: Final = 512
"""A sum of products over more than this goes over blocks of them; else all are in one block."""


def is_wide(program: Program, bounds: Range) -> bool:
    """Tell whether a range surely has too many iterations for a block that holds all of them.

    Args:
        program: The program; a contract may say so: `assert F > 512`.
        bounds: The range.
    """
    length = difference(bounds.stop, bounds.start)
    return bounds.step == 1 and _is_fixed(length) and is_within(program, Int(WIDE + 1), length)


def _term_is_never_negative(program: Program, term: Index, ranges: Ranges) -> bool:
    if any(term == extent for array in program.arrays for extent in array.shape):
        return True
    match term:
        case Var(name) if name in ranges:
            bounds = ranges[name]
            first = bounds.start if bounds.step > 0 else total(bounds.stop, 1)
            return is_never_negative(program, first, ranges)
        case Let(_, value):
            return is_never_negative(program, value, ranges)
        case Opaque(array):
            held = program.array(array).value_range
            return held is not None and is_never_negative(program, held[0], {})
        case Extremum("max", arguments):
            return any(is_never_negative(program, each, ranges) for each in arguments)
        case Extremum("min", arguments):
            return all(is_never_negative(program, each, ranges) for each in arguments)
        case Arith("//", left, Int(size)):
            return size > 0 and is_never_negative(program, left, ranges)
        case Arith("%", _, Int(size)):
            return size > 0
        case Arith("*", left, right):
            return all(is_never_negative(program, each, ranges) for each in (left, right))
        case _:
            return False


def extent(program: Program, index: Index) -> Index:
    """Return an index expression of parameters as the extent of an array, which is at least 0."""
    known = (each for array in program.arrays for each in array.extents)
    if is_never_negative(program, index, {}) or any(is_same(index, each) for each in known):
        return index
    return extremum("max", (Int(0), index))


def extents_of(program: Program, array: Array) -> tuple[Index, ...]:
    """Return the extents of an array in parameters, found from what is stored where not stated.

    Raises:
        RangeNotFound: They cannot be found.
    """
    found = tuple(stated_extent(program, array, dimension) for dimension in range(array.rank))
    known = tuple(e for e in found if e is not None)
    if len(known) < array.rank:
        raise RangeNotFound(
            f"the extents of {array.name} are not known",
            None,
            why="the new array is created before the loops, with a shape in terms of the sizes",
            remedy=f"create {array.name} with its shape, or state the shapes of the arrays it is "
            'read from, A: Float[Array, "M N"]',
        )
    return known


def stated_extent(program: Program, array: Array, dimension: int) -> Index | None:
    """Return the extent of a dimension of an array in parameters; None where it is not known."""
    stated = array.shape[dimension]
    if stated is not None:
        return stated
    for node in nodes(program.body):
        if isinstance(node, Assign):
            for number, target in enumerate(node.targets):
                if target.array == array.name and not target.indices:
                    value = node.values[number if len(node.values) == len(node.targets) else 0]
                    return _row_extent(program, value, dimension)
    return None


def _row_extent(program: Program, value: Value, dimension: int) -> Index | None:
    """Return the extent of a dimension of a value with dimensions; None where it is not known."""
    parts: tuple[Value, ...] = ()
    match value:
        case Read(access):
            whole = [n for n, s in enumerate(access.subscripts) if isinstance(s, Whole)]
            if len(whole) > dimension:
                return program.array(access.array).shape[whole[dimension]]
        case Unary(_, operand):
            parts = (operand,)
        case Binary(_, left, right):
            parts = (left, right)
        case Select(_, chosen, otherwise):
            parts = (chosen, otherwise)
        case Call(_, arguments):
            parts = arguments
        case _:
            pass
    ends = (_row_extent(program, part, dimension) for part in parts)
    return next((end for end in ends if end is not None), None)
