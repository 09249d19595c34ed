"""What is read in front of a loop is there where the loop has no iterations, too.

for j in range(0, i): y[i] += c[i - 1] * x[j]          c[i - 1] is not there where i is 0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from looptrans.blocks.expr import Binary, Expr, Number, Position, Scalar, walk
from looptrans.ir.affine import difference, total
from looptrans.ir.index import Arith, Index, Int, Param, Var, variables
from looptrans.ir.program import Program
from looptrans.ir.value import Range
from looptrans.transforms.extents import extreme, is_never_negative


def in_front(
    program: Program,
    places: Mapping[str, Expr],
    value_of: Callable[[Index], Expr],
    subscripts: tuple[Expr, ...],
    extents: tuple[Index | None, ...],
) -> tuple[Expr, ...]:
    """Return that subscripts are inside an array, as far as loops do not say so.

    Args:
        program: The program.
        places: What the variables of loops stand for.
        value_of: Gives an index as a value.
        subscripts: The subscripts.
        extents: The extents of the array.
    """
    found: list[Expr] = []
    for subscript, extent in zip(subscripts, extents, strict=True):
        index = _summed(subscript)
        if index is None or extent is None or not variables(index):
            continue
        ranges = _ranges(subscript, places)
        last = extreme(index, ranges, "highest")
        if isinstance(index, Var) and last is None:
            continue  # what is read from memory says how far it goes
        room = None if last is None else difference(extent, total(last, 1))
        is_there = room is not None and is_never_negative(program, room, {})
        if isinstance(index, Var):
            found += [] if is_there else [Binary("<", subscript, value_of(extent))]
        elif not is_there or not is_never_negative(program, index, ranges):
            found.append(Binary(">=", subscript, Number(0)))
            found.append(Binary("<", subscript, value_of(extent)))
    return tuple(found)


def _ranges(subscript: Expr, places: Mapping[str, Expr]) -> dict[str, Range]:
    """Return the ranges of the loops that a subscript goes with, and of those around them."""
    found: dict[str, Range] = {}
    queue = [part.dim for part in walk(subscript) if isinstance(part, Position)]
    while queue:
        dim = queue.pop()
        if dim.name not in found:
            found[dim.name] = Range(dim.start, dim.stop, dim.step)
            names = {*variables(dim.start), *variables(dim.stop)}
            around = [places[name] for name in names if name in places]
            queue += [each.dim for each in around if isinstance(each, Position)]
    return found


def _summed(part: Expr) -> Index | None:
    """Return a sum of iterations, sizes and numbers; None where a subscript is no such sum."""
    match part:
        case Position(dim):
            return Var(dim.name)
        case Number(int() as value):
            return Int(value)
        case Scalar(name):
            return Param(name)
        case Binary("+" | "-" as op, left, right):
            one, other = _summed(left), _summed(right)
            return None if one is None or other is None else Arith(op, one, other)
        case _:
            return None
