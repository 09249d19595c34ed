"""What all iterations of a loop add to, added up behind the loop: the loop may be parallel then.

    for i in range(M):                         for i in range(M):
        x = f(i)                                   x = f(i)
        total += g(x)                  ->          total_terms[i] = g(x)
                                               for i in range(M):
                                                   total += total_terms[i]

The terms are added in the order they were, to what was there before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.ir.index import Index, Int, Var, lets, opaque_terms, variables
from looptrans.ir.program import Array, Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.value import Access, Binary, Create, Read, Value
from looptrans.ir.walk import accesses, loops_in, nodes
from looptrans.transforms.editing.naming import fresh_label, fresh_name
from looptrans.transforms.editing.tree import Position, loop_paths, node_at, replace_at

MOST = 8
"""How many such sums are looked for."""


@dataclass(frozen=True, slots=True)
class _Added:
    """What a statement adds to what no other one of its loop touches."""

    statement: Assign
    position: Position
    term: Value


def with_terms_kept(program: Program) -> Program:
    """Return a program whose loops keep what they add to a number, as far as they do.

    A loop is looked at where others stand in it, and it and all around it go from 0 as far as a
    size says; a sum where nothing else in the loop reads or writes it, and the statement stands in
    no loop inside.
    """
    for _ in range(MOST):
        found = _next(program)
        if found is None:
            return program
        program = found
    return program


def _next(program: Program) -> Program | None:
    for path in loop_paths(program):
        around = _around(program, path.position)
        has_rows = loops_in(path.loop.body)
        if not has_rows or not all(_is_whole(loop) for loop in around):
            continue
        for added in _sums(path.loop, path.position):
            if _is_alone(program, path.loop, around, added):
                return _kept(program, path.position, around, added)
    return None


def _around(program: Program, position: Position) -> tuple[Loop, ...]:
    """Return the loops around a place, outermost first, and the one that stands there."""
    inside = (node_at(program, position[:depth]) for depth in range(1, len(position) + 1))
    return tuple(node for node in inside if isinstance(node, Loop))


def _is_whole(loop: Loop) -> bool:
    ends = loop.range
    plain = not variables(ends.stop) and not opaque_terms(ends.stop) and not lets(ends.stop)
    return loop.execution == "sequential" and ends.start == Int(0) and ends.step == 1 and plain


def _sums(loop: Loop, position: Position) -> list[_Added]:
    """Return the statements of a loop that add to something, but for those in loops inside."""
    found: list[_Added] = []

    def look(body: tuple[Node, ...], place: Position) -> None:
        for number, node in enumerate(body):
            match node:
                case If():
                    look(node.body, (*place, number, 1))
                    look(node.orelse, (*place, number, 2))
                case Assign(targets=(target,), values=(Binary("+", Read(read), term),)) if (
                    read == target
                ):
                    found.append(_Added(node, (*place, number), term))
                case _:
                    pass

    look(loop.body, position)
    return found


def _is_alone(program: Program, loop: Loop, around: tuple[Loop, ...], added: _Added) -> bool:
    """Tell whether nothing else in a loop touches a sum, which each iteration adds to."""
    (target,) = added.statement.targets
    array = program.array(target.array)
    outer = {each.variable for each in around[:-1]}
    if array.element != "float" or target.rank:
        return False
    if any(set(variables(i)) - outer or opaque_terms(i) or lets(i) for i in target.indices):
        return False
    touching = [
        node
        for node in nodes(loop.body)
        if isinstance(node, Assign | If)
        for relation in accesses(node)
        if relation.access.array == target.array
    ]
    return len(touching) == 2 and all(node is added.statement for node in touching)


def _kept(program: Program, position: Position, around: tuple[Loop, ...], added: _Added) -> Program:
    (target,) = added.statement.targets
    shape = tuple(each.range.stop for each in around)
    name = fresh_name(program, f"{target.array}_terms")
    cell = Access(name, tuple(_variable(each) for each in around))
    keeping = replace(added.statement, targets=(cell,), values=(added.term,), augmented=False)
    adding = replace(
        added.statement,
        label=fresh_label(program),
        labelled=False,
        values=(Binary("+", Read(target), Read(cell)),),
    )
    program = replace_at(program, added.position, (keeping,))
    loop = node_at(program, position)
    assert isinstance(loop, Loop)
    program = replace_at(program, position, (loop, replace(loop, body=(adding,))))
    made = Declaration(name, Create("zeros", shape))
    array = Array(name, len(shape), "float", "local", shape)
    return replace(program, arrays=(*program.arrays, array), body=(made, *program.body))


def _variable(loop: Loop) -> Index:
    return Var(loop.variable)
