"""Loops that count the cells of a grid, seen as loops over its rows and columns again.

Where guards ask for the row of a cell, or for its column, loops over these begin and end where the
guards do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from looptrans.derivation.one_loop.digits import digits_of
from looptrans.derivation.one_loop.writing import done
from looptrans.derivation.step import DerivationStep
from looptrans.ir.affine import extremum
from looptrans.ir.condition import Condition, Relation, conjunction, conjuncts
from looptrans.ir.index import Arith, Extremum, Index, Int, Var, variables, walk
from looptrans.ir.listing import index_text
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import condition_changed, indices_changed
from looptrans.ir.value import Range, Select, walk_value
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import nodes
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.tree import loop_paths, replace_at, statements_in
from looptrans.transforms.rows.ends_asked import end_of, start_of


def grid_loops(program: Program, loop: str, radix: str, row: str, column: str) -> DerivationStep:
    """See a loop that counts the cells of a grid as loops over its rows and columns.

        for tc in range(0, T * C):                       for t in range(0, min(T, y + 1)):
            if tc // C <= y:                    ->           for c in range(0, C):
                m = max(m, x[tc // C, tc % C])                   m = max(m, x[t, c])

    Args:
        program: The program.
        loop: The loop.
        radix: How many columns there are, as written.
        row: What the variable of the rows is called.
        column: What that of the columns is called.

    Raises:
        NotDone: Its numbers are not known to have two such digits.
    """
    path, digits = digits_of(program, loop, radix)
    high, low = (fresh_name(program, name) for name in (row, column))
    body = indices_changed(path.loop.body, lambda i: digits.seen(i, Var(high), Var(low)))
    rows, columns = Range(Int(0), digits.count), Range(Int(0), digits.radix)
    match body:
        case (If(condition, inside, (), label=None),):
            kept: list[Condition] = []
            for part in _each_asked(condition):
                if low not in _variables(part) and (found := _within(rows, part, high)):
                    rows = found
                elif found := _within(columns, part, low):
                    columns = found
                else:
                    kept.append(part)
            body = (If(conjunction(*kept), inside),) if kept else inside
        case _:
            pass
    loops = replace(path.loop, variable=high, range=rows, body=(Loop(low, columns, body),))
    shown = Certificate(
        "order",
        f"{high} * {radix} + {low} is each number of {digits.variable} once",
        "legal",
        f"{digits.why}; the numbers come in the order they came in",
    )
    after = done(replace_at(program, path.position, (loops,)))
    name = f"see {digits.variable} as {high} and {low} where guards ask for them"
    return DerivationStep(name, "grid", (loop, radix, row, column), program, after, (shown,))


def asked_for_cells(
    program: Program, names: Mapping[str, tuple[str, str]]
) -> Iterator[tuple[str, str, str, str]]:
    """Yield the arguments of such steps: loops whose guards ask for the row or the column.

    Args:
        program: The program.
        names: The variables that count cells, with those of rows and columns.
    """
    for path in loop_paths(program):
        if path.variable not in names:
            continue
        cell = Var(path.variable)
        asked = {
            part.right
            for condition in _conditions(path.loop.body)
            for index in _compared(condition)
            for part in walk(index)
            if isinstance(part, Arith) and part.op in ("//", "%") and part.left == cell
        }
        if len(asked) == 1:
            label, (columns,) = statements_in((path.loop,))[0], asked
            yield f"{path.variable}@{label}", index_text(columns), *names[path.variable]


def _within(bounds: Range, part: Condition, variable: str) -> Range | None:
    """Return a range with what a guard asks of its variable; None where that is no bound."""
    start, end = start_of(part, variable), end_of(part, variable)
    if start is not None:
        return replace(bounds, start=extremum("max", (bounds.start, start)))
    if end is not None:
        return replace(bounds, stop=extremum("min", (bounds.stop, end)))
    return None


def _each_asked(condition: Condition) -> Iterator[Condition]:
    """Yield what a condition asks, each thing by itself: max(a, b) <= c is a <= c and b <= c."""
    for part in conjuncts(condition):
        match part:
            case Relation("<=" | "<" as op, Extremum("max", arguments), right):
                yield from (Relation(op, each, right) for each in arguments)
            case Relation(">=" | ">" as op, left, Extremum("max", arguments)):
                yield from (Relation(op, left, each) for each in arguments)
            case Relation(">=" | ">" as op, Extremum("min", arguments), right):
                yield from (Relation(op, each, right) for each in arguments)
            case Relation("<=" | "<" as op, left, Extremum("min", arguments)):
                yield from (Relation(op, left, each) for each in arguments)
            case _:
                yield part


def _variables(condition: Condition) -> set[str]:
    return {name for index in _compared(condition) for name in variables(index)}


def _compared(condition: Condition) -> Iterator[Index]:
    """Yield what a condition compares, indices in what it reads included."""
    found: list[Index] = []

    def seen(index: Index) -> Index:
        found.append(index)
        return index

    condition_changed(condition, seen)
    yield from found


def _conditions(body: tuple[Node, ...]) -> Iterator[Condition]:
    """Yield the guards of a block, and the conditions of its values."""
    for node in nodes(body):
        if isinstance(node, If):
            yield node.condition
        for value in node.values if isinstance(node, Assign) else ():
            for part in walk_value(value):
                if isinstance(part, Select):
                    yield part.condition
