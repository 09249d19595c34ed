"""What is read in front of a loop is there where the loop has no iterations, too.

for j in range(0, i): y[i] += c[i - 1] * x[j]          c[i - 1] is not there where i is 0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from looptrans.blocks.block_ir.arithmetic import conjuncts
from looptrans.blocks.block_ir.expr import Binary, Expr, Load, Name, Number, Position, Scalar, walk
from looptrans.ir.affine import Form, form_of, index_of, multiplied, product, total
from looptrans.ir.index import Arith, Index, Int, Param, Var, variables
from looptrans.ir.program import Program
from looptrans.ir.value import Range
from looptrans.transforms.editing.extents import (
    declared_range,
    extreme,
    is_never_negative,
    is_within,
)


def in_front(
    program: Program,
    places: Mapping[str, Expr],
    loads: Mapping[str, Load],
    value_of: Callable[[Index], Expr],
    read: Load,
) -> tuple[Expr, ...]:
    """Return that subscripts are inside an array, as far as loops and contracts do not say so.

    Args:
        program: The program.
        places: What the variables of loops stand for.
        loads: What has been read, by its name.
        value_of: Gives an index as a value.
        read: What is read, where loops and guards ask for it.
    """
    found: list[Expr] = []
    extents = program.array(read.array).shape
    surely = set(conjuncts(read.mask))
    known = {
        name: program.array(load.array).value_range
        for name, load in loads.items()
        if set(conjuncts(load.mask)) <= surely
    }
    for subscript, extent in zip(read.subscripts, extents, strict=True):
        if extent is None or not any(isinstance(p, Position | Name) for p in walk(subscript)):
            continue
        index = _summed(subscript)
        ranges = _ranges(program, subscript, places, known)
        if index is None or not is_never_negative(program, index, ranges):
            found.append(Binary(">=", subscript, Number(0)))
        last = None if index is None else _last(program, index, ranges)
        if last is None or not is_within(program, total(last, 1), extent):
            found.append(Binary("<", subscript, value_of(extent)))
    return tuple(found)


def _last(program: Program, index: Index, ranges: Mapping[str, Range]) -> Index | None:
    """Return what an index is never above, over sizes: g * R + r is not above G * R - 1."""
    form = form_of(index)
    found = Form({}, form.constant)
    for term, factor in form.terms.items():
        match term:
            case Arith("*", Var() as one, size) | Arith("*", size, Var() as one) if (
                factor > 0 and isinstance(size, Param) and is_never_negative(program, size, {})
            ):
                last = extreme(one, ranges, "highest")
                most = None if last is None else _times(form_of(last), size).times(factor)
            case _:
                last = extreme(product(factor, term), ranges, "highest")
                most = None if last is None else form_of(last)
        if most is None:
            return None
        found = found.plus(most)
    return index_of(found)


def _times(form: Form, size: Index) -> Form:
    found = Form().plus(form_of(size), form.constant)
    for term, count in form.terms.items():
        found = found.plus(form_of(multiplied(term, size)), count)
    return found


def _ranges(
    program: Program,
    subscript: Expr,
    places: Mapping[str, Expr],
    known: Mapping[str, tuple[Index, Index] | None],
) -> dict[str, Range]:
    """Return the ranges of the loops that a subscript goes with, and of those around them.

    What is read from an array of integers has the range that is declared for the array; it is 0
    where it is not read.
    """
    found: dict[str, Range] = {}
    for part in walk(subscript):
        if isinstance(part, Name) and (declared := known.get(part.name)) is not None:
            found[part.name] = Range(*declared)
    queue = [part.dim for part in walk(subscript) if isinstance(part, Position)]
    while queue:
        dim = queue.pop()
        if dim.name not in found:
            found[dim.name] = declared_range(program, Range(dim.start, dim.stop, dim.step))
            names = {*variables(dim.start), *variables(dim.stop)}
            around = [places[name] for name in names if name in places]
            queue += [each.dim for each in around if isinstance(each, Position)]
    return found


def _summed(part: Expr) -> Index | None:
    """Return a sum of iterations, sizes and numbers; None where a subscript is no such sum."""
    match part:
        case Position(dim):
            return Var(dim.name)
        case Name(name):
            return Var(name)
        case Number(int() as value):
            return Int(value)
        case Scalar(name):
            return Param(name)
        case Binary("+" | "-" | "*" as op, left, right):
            one, other = _summed(left), _summed(right)
            return None if one is None or other is None else Arith(op, one, other)
        case Binary("//" | "%" as op, left, Number(int() as size)) if size > 0:
            # Only of what is not negative: else it is written with what makes up for the sign.
            one = _summed(left)
            return None if one is None else Arith(op, one, Int(size))
        case _:
            return None
