"""Where the block begins that an iteration is in, said by the iteration itself.

    for t in range(0, N, 16):
        for i in range(t, min(t + 16, N)):    ->    for i in range(0, N):
            for j in range(0, t + 16): …                for j in range(0, i // 16 * 16 + 16): …

For that it is to be known how an index hangs on the variable of a loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from looptrans.ir.affine import (
    Form,
    difference,
    extremum,
    form_of,
    multiplied,
    product,
    sides,
    total,
)
from looptrans.ir.condition import Relation
from looptrans.ir.index import Arith, Extremum, Index, Int, Neg, Param, Var, variables
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.walk import nodes
from looptrans.transforms.editing.substitute import substitute_variable
from looptrans.transforms.rows.ends_asked import Without, asked_in, end_of


def with_blocks_counted(outer: Loop, inner: Loop) -> tuple[Node, ...] | None:
    """Return the body of a loop over a block that says by its own variable where its block begins.

        for t in range(0, N, 16):
            for i in range(t, min(t + 16, N)):    ->    for i in range(0, N):
                for j in range(0, t + 16): …                for j in range(0, i // 16 * 16 + 16): …

    Blocks that are counted, `for t in range(0, (N + 15) // 16)`, are those of 16 * t on.

    Only ranges may ask for it: subscripts tell blocks apart better as they are.
    """
    variable = outer.variable
    counted = _block_of(outer, inner)
    if counted is None:
        return None
    for node in nodes(inner.body):
        bare = replace(node, body=()) if isinstance(node, If) else node
        if isinstance(node, Assign | If) and says((bare,), variable):
            return None
    body = tuple(substitute_variable(node, {variable: counted}) for node in inner.body)
    return rewritten(body, _tightened)


def _block_of(outer: Loop, inner: Loop) -> Index | None:
    """Return what the variable of a loop over blocks is, by that of the loop over a block."""
    width, begins = outer.range.step, linear_in(inner.range.start, outer.variable)
    if width > 1:
        plain = outer.range.start == Int(0) and inner.range.start == Var(outer.variable)
        return product(width, Arith("//", Var(inner.variable), Int(width))) if plain else None
    match begins:
        case (Int(0), Int() | Param() as each) if each not in (Int(0), Int(1)):
            return Arith("//", Var(inner.variable), each)
        case _:
            return None


def _tightened(node: Node) -> tuple[Node, ...]:
    """Leave out an end of a loop that is never before what is asked of all its iterations."""
    if not isinstance(node, Loop):
        return (node,)
    ends = sides("min", node.range.stop)
    for part in asked_in(node.body):
        last = end_of(part, node.variable)
        if last is None:
            continue
        left = tuple(end for end in ends if not _is_never_before(end, last))
        if len(left) < len(ends):
            stop = extremum("min", (*left, last))
            body = rewritten(node.body, Without(part).node)
            return (replace(node, range=replace(node.range, stop=stop), body=body),)
    return (node,)


def _is_never_before(end: Index, last: Index) -> bool:
    """Tell whether an end is at least another one, by what is left of blocks: x - x // n * n."""
    least = at_least(form_of(difference(end, last)))
    return all(form.is_constant and form.constant >= 0 for form in least)


def at_least(form: Form) -> Iterator[Form]:
    """Yield sums without whole blocks and minima, none of which may be less where a sum is more.

    The sum is 0 or more if each of them is: x // 16 * 16 is x - 15 at least, and min(a, b) is one
    of both.
    """
    for term, count in form.terms.items():
        rest = form.plus(Form({term: 1}), -count)
        match term:
            case Arith("//", whole, Int(width)) if width > 0 and count % width == 0:
                times = count // width
                lowest = Form({}, -max(0, times) * (width - 1))
                yield from at_least(rest.plus(form_of(whole), times).plus(lowest))
                return
            case Extremum("min", arguments) if count > 0:
                for argument in arguments:
                    yield from at_least(rest.plus(form_of(argument), count))
                return
            case _:
                pass
    yield form


def says(body: tuple[Node, ...], variable: str) -> bool:
    """Tell whether a block mentions a variable."""
    return any(substitute_variable(node, {variable: Int(0)}) != node for node in body)


def linear_in(index: Index, variable: str) -> tuple[Index, Index] | None:
    """Return `a` and `b`, both without the variable, of `a + b * variable`."""
    if variable not in variables(index):
        return index, Int(0)
    match index:
        case Var():
            return Int(0), Int(1)
        case Neg(operand):
            parts = linear_in(operand, variable)
            return parts and (product(-1, parts[0]), product(-1, parts[1]))
        case Arith("+" | "-" as op, left, right):
            one, other = linear_in(left, variable), linear_in(right, variable)
            if one is None or other is None:
                return None
            joined = total if op == "+" else difference
            return joined(one[0], other[0]), joined(one[1], other[1])
        case Arith("*", left, right):
            for inner, factor in ((left, right), (right, left)):
                parts = linear_in(inner, variable)
                if parts is not None and variable not in variables(factor):
                    return multiplied(parts[0], factor), multiplied(parts[1], factor)
            return None
        case _:
            return None


def is_multiple(program: Program, length: Index, width: Index) -> bool:
    """Tell whether a contract says that a length is a multiple of a width."""
    return Relation("==", Arith("%", length, width), Int(0)) in program.stated
