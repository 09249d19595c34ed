"""Products of rows written as sums, where the rows are written by the digits of a subscript.

    for f: A[i, 2 * f] = …; A[i, 2 * f + 1] = …
    … A[i] @ B[j]                                    ->    … sum(A[i, t] * B[j, t] for t in …)

Then all subscripts of the row can be seen as two digits.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.adjoint.layouts.views import uses_of
from looptrans.ir.affine import form_of
from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import Index, Int, Var, variables
from looptrans.ir.program import Assign, Node, Program
from looptrans.ir.rewrite import replaced, rewritten, values_replaced
from looptrans.ir.value import (
    WHOLE,
    Access,
    Binary,
    Generator,
    Range,
    Read,
    Reduce,
    Value,
    walk_value,
)
from looptrans.ir.walk import written_in
from looptrans.transforms.editing.naming import fresh_name


def with_products_as_sums(program: Program) -> Program:
    """Return a program that means the same, with such products as sums.

    Args:
        program: The program.
    """
    made = written_in(program.body)
    written = {
        (use.access.array, number)
        for use in uses_of(program)
        if use.access.array in made and not use.access.rank
        for number, index in enumerate(use.access.indices)
        if any(abs(form_of(index).terms.get(Var(v), 0)) > 1 for v in variables(index))
    }
    if not written:
        return program
    extents: dict[tuple[str, int], Index] = {
        (array.name, number): extent
        for array in program.arrays
        for number, extent in enumerate(array.shape)
        if extent is not None
    }
    variable = fresh_name(program, "t")

    def as_sum(value: Value) -> Value | None:
        match value:
            case Binary("@", left, right):
                pass
            case _:
                return None
        rows = [p.access for p in walk_value(value) if isinstance(p, Read) and p.access.rank]
        if any(row.rank != 1 or len(row.subscripts) != len(row.indices) + 1 for row in rows):
            return None
        places = [(row.array, row.subscripts.index(WHOLE)) for row in rows]
        if not written & set(places) or places[0] not in extents:
            return None
        bounds = Range(Int(0), extents[places[0]])
        body = Binary("*", _element(left, variable), _element(right, variable))
        return Reduce("sum", (Generator(variable, bounds, ALWAYS),), body)

    def node(each: Node) -> tuple[Node, ...]:
        if isinstance(each, Assign):
            return (values_replaced(each, as_sum),)
        return (each,)

    return replace(program, body=rewritten(program.body, node))


def _element(row: Value, variable: str) -> Value:
    def change(part: Value) -> Value | None:
        if not isinstance(part, Read) or not part.access.rank:
            return None
        cell = (Var(variable) if s == WHOLE else s for s in part.access.subscripts)
        return Read(Access(part.access.array, tuple(cell)))

    return replaced(row, change)
