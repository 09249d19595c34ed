"""What is read in front of a loop is there where the loop has no iterations, too.

for j in range(0, i): y[i] += c[i - 1] * x[j]          c[i - 1] is not there where i is 0
for j in range(0, n[i]): y[i] += c[n[i] // 2 - 1]      nor c[n[i] // 2 - 1] where n[i] is 0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from looptrans.blocks.expr import Binary, Call, Expr, Load, Name, Number, Position, Scalar, walk
from looptrans.ir.affine import difference, extremum, form_of, product, total
from looptrans.ir.condition import Relation
from looptrans.ir.index import Arith, Index, Int, Param, Var, variables
from looptrans.ir.program import Program
from looptrans.ir.value import Range
from looptrans.transforms.extents import extreme, is_never_negative


def in_front(
    program: Program,
    places: Mapping[str, Expr],
    read: Mapping[str, Load],
    value_of: Callable[[Index], Expr],
    subscripts: tuple[Expr, ...],
    extents: tuple[Index | None, ...],
) -> tuple[Expr, ...]:
    """Return that subscripts are inside an array, as far as loops do not say so.

    Args:
        program: The program.
        places: What the variables of loops stand for.
        read: What names of elements of arrays stand for.
        value_of: Gives an index as a value.
        subscripts: The subscripts.
        extents: The extents of the array.
    """
    found: list[Expr] = []
    for subscript, extent in zip(subscripts, extents, strict=True):
        if extent is None or not any(isinstance(p, Position | Name) for p in walk(subscript)):
            continue
        ranges = _ranges(program, subscript, places, read)
        index = _index(subscript)
        last = None if index is None else _highest(program, index, ranges)
        if isinstance(index, Var) and last is None:
            continue  # what is read from memory says how far it goes
        is_there = last is not None and any(
            is_never_negative(program, difference(each, total(last, 1)), {})
            for each in (extent, _in_digits(program, extent))
        )
        is_position = isinstance(subscript, Position)
        if not is_position and not (index and is_never_negative(program, index, ranges)):
            found.append(Binary(">=", subscript, Number(0)))
        if not is_there:
            found.append(Binary("<", subscript, value_of(extent)))
    return tuple(found)


def _ranges(
    program: Program, subscript: Expr, places: Mapping[str, Expr], read: Mapping[str, Load]
) -> dict[str, Range]:
    """Return the ranges of what a subscript is made of.

    They are those of loops, and of the loops around these, and of elements of integer arrays.
    """
    found: dict[str, Range] = {}
    for part in walk(subscript):
        if isinstance(part, Name) and part.name in read:
            declared = program.array(read[part.name].array).value_range
            if declared is not None:
                found[part.name] = Range(*declared, 1)
    queue = [part.dim for part in walk(subscript) if isinstance(part, Position)]
    while queue:
        dim = queue.pop()
        if dim.name not in found:
            found[dim.name] = Range(dim.start, dim.stop, dim.step)
            names = {*variables(dim.start), *variables(dim.stop)}
            around = [places[name] for name in names if name in places]
            queue += [each.dim for each in around if isinstance(each, Position)]
    return found


def _index(part: Expr) -> Index | None:
    """Return a subscript as an index expression; None where it is none.

    Elements of integer arrays are variables in it. What a program divides like this is not below 0.
    """
    match part:
        case Position(dim):
            return Var(dim.name)
        case Name(name, kind="int"):
            return Var(name)
        case Number(int() as value):
            return Int(value)
        case Scalar(name):
            return Param(name)
        case Binary("+" | "-" | "*" | "//" | "%" as op, left, right):
            one, other = _index(left), _index(right)
            return None if one is None or other is None else Arith(op, one, other)
        case Call("max" | "min" as op, arguments):
            parts = [_index(each) for each in arguments]
            known = [each for each in parts if each is not None]
            return extremum(op, known) if len(known) == len(parts) else None
        case _:
            return None


def _highest(program: Program, index: Index, ranges: Mapping[str, Range]) -> Index | None:
    """Return the highest value of an index of which sizes may be multiplied, `g * R + r`."""
    found: Index = Int(0)
    for term, factor in form_of(index).terms.items():
        match term:
            case Arith("*", Var() as variable, Param() as size) if factor > 0:
                last = extreme(variable, ranges, "highest")
                if last is None or not is_never_negative(program, size, {}):
                    return None
                last = _product(last, size)
            case _:
                last = extreme(term, ranges, "highest" if factor > 0 else "lowest")
        if last is None:
            return None
        found = total(found, product(factor, last))
    return total(found, form_of(index).constant)


def _in_digits(program: Program, extent: Index) -> Index:
    """Return an extent as the product of sizes that a contract says it is: H as G * R."""
    for contract in program.contracts:
        match contract.condition:
            case Relation("==", left, Arith("*", Param() as one, Param() as other)):
                if left == extent:
                    return _product(one, other)
            case _:
                pass
    return extent


def _product(index: Index, size: Param) -> Index:
    """Return a sum times a size, summand by summand, factors in one order."""
    form = form_of(index)
    found: Index = product(form.constant, size)
    for term, factor in form.terms.items():
        one, other = sorted((term, size), key=repr)
        found = total(found, product(factor, Arith("*", one, other)))
    return found
