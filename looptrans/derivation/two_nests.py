"""A loop in parts as two nests: every part by itself, then their joining, results in memory.

for i: m = -inf                        for p in range(0, parts): for i:
       for j: m = max(m, x[i, j])          m_part[p, i] = -inf
       y[i] = m                  ->        for j in range(…): …      the iterations of part p
                                       for i: m = -inf
                                              for p in range(0, parts): m = max(m, m_part[p, i])
                                              y[i] = m
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.algebra.cells import is_own_cell
from looptrans.derivation.bodies import read_in, written_in
from looptrans.derivation.parts import Pieces, order_of_parts, part_range, pieces
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.index import Var
from looptrans.ir.program import Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.value import Access, Range
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import accesses, live_out, nodes
from looptrans.transforms.accesses import listed
from looptrans.transforms.nest import loops_around
from looptrans.transforms.tree import LoopPath


@dataclass(frozen=True, slots=True)
class TwoNests:
    """A program with a loop in parts.

    Attributes:
        program: The program.
        whole: The same, but every part runs over all of the loop. What is asked of a part for any
            run of iterations can be asked of this one, whose bounds are as plain as they were.
        loop: The variable of the loop.
        own: The label of a statement in it.
        part: The variable of parts.
        parts: The size that says how many there are.
    """

    program: Program
    whole: Program
    loop: str
    own: str
    part: str
    parts: str


def two_nests(program: Program, loop: str, parts: str) -> TwoNests:
    """Write a loop in parts as two nests; see `in_two_nests`, which shows that it may be.

    Args:
        program: The program.
        loop: The loop.
        parts: The name of the size that says how many parts there are, if it is free.

    Raises:
        NotDone: There is no operator, or it cannot be written.
    """
    return _written(program, pieces(program, loop, parts, kept=True))


def in_two_nests(program: Program, loop: str, parts: str) -> DerivationStep:
    """Compute a loop in parts, each in a program of its own, and join their results in a nest.

    Args:
        program: The program.
        loop: The loop; it carries a fold with a proved operator.
        parts: The name of the size that says how many parts there are, if it is free.

    Raises:
        NotDone: There is no operator, or something could not be shown.
    """
    made = pieces(program, loop, parts, kept=True)
    found = _written(program, made)
    again = made.partial_read(found.whole, made.node.range)
    joining = made.joined_read(found.whole)
    handed = [declared.array for declared in made.declared]
    around = [path.variable for path in loops_around(program, made.position)]
    own = f"each iteration of {listed(around)} has its own elements of {listed(handed)}"
    apart = Certificate(
        "storage",
        "what one nest hands to the other is not touched in between",
        "legal",
        f"{own if around else 'one nest writes what the other reads'}, and nothing else that one "
        "of the two nests writes is touched by both",
    )
    return DerivationStep(
        f"split {made.node.variable} into parts, each with its own {listed(made.names)} in memory, "
        "and join them in order in a nest of their own",
        "two nests",
        (loop, parts),
        program,
        found.program,
        (*order_of_parts(made), apart),
        (*made.laws(), again, joining),
        made.found,
    )


def _written(program: Program, made: Pieces) -> TwoNests:
    around = loops_around(program, made.position)
    if any(len(path.loop.body) > 1 for path in around[:-1]):
        raise NotDone(
            f"{made.node.variable} is not alone in the loops around it, so its parts would not be "
            "programs of their own"
        )
    if len(made.position) != len(around) + 1:
        raise NotDone(f"{made.node.variable} stands under a condition")
    home = made.position[0] if around else None
    block = around[-1].loop.body if around else program.body
    number = made.position[-1]
    before = tuple(n for n in block[:number] if not isinstance(n, Declaration))
    before, behind = before if around else (), block[number + 1 :] if around else ()
    kept = _kept(program, before, made)
    _require_apart(made, kept, (*before, *behind), [path.variable for path in around])
    join: tuple[Node, ...] = (Loop(made.part, made.every, made.joined),)
    bounds = part_range(made.node.range, Var(made.part), made.number)
    if around:
        join = (_nested(around, (*before, *join, *behind)),)
    first = tuple(n for n in made.writer.program.body if isinstance(n, Declaration))

    def filled(range_: Range) -> Program:
        inner = replace(made.node, range=range_, body=made.body)
        body: tuple[Node, ...] = (*kept, *made.starts, inner)
        if around:
            body = (_nested(around, body),)
        loops = (Loop(made.part, made.every, body), *join)
        return made.placed(first, (home,) if home is not None else made.position, loops)

    final, whole = filled(bounds), filled(made.node.range)
    names = [p.name for p in final.parameters if p not in program.parameters]
    return TwoNests(final, whole, made.node.variable, made.own, made.part, names[-1])


def _nested(around: tuple[LoopPath, ...], body: tuple[Node, ...]) -> Loop:
    """Return a block inside loops like those around the one in parts."""
    for path in reversed(around):
        body = (replace(path.loop, body=body),)
    (found,) = body
    assert isinstance(found, Loop)
    return found


def _kept(program: Program, before: tuple[Node, ...], made: Pieces) -> tuple[Node, ...]:
    """Return again what stands before the loop and works out scalars that its iterations read.

    Raises:
        NotDone: It works out something else.
    """
    wanted = read_in((*made.starts, *made.body))
    found: list[Node] = []
    for node in reversed(before):
        if not written_in((node,)) & wanted:
            continue
        scalars = isinstance(node, Assign) and not any(t.subscripts for t in node.targets)
        if not scalars or written_in((node,)) & set(live_out(program)):
            name = min(written_in((node,)) & wanted)
            raise NotDone(f"{made.node.variable} reads {name}, which is written just before it")
        assert isinstance(node, Assign)
        found.append(replace(node, label=made.writer.label(), comment="", leading=()))
        wanted |= read_in((node,))
    return tuple(reversed(found))


def _require_apart(
    made: Pieces, kept: tuple[Node, ...], others: tuple[Node, ...], around: list[str]
) -> None:
    """Require that the parts share nothing with the rest of the nest but what they hand over.

    Args:
        made: The parts.
        kept: What both nests work out for themselves.
        others: What else the nest does, before the loop and behind it.
        around: The variables of the loops around.

    Raises:
        NotDone: They share something else.
    """
    mine = (*made.starts, *made.body)
    writes, its = written_in(mine), written_in(others)
    for name in sorted((writes & (read_in(others) | its)) | (its & read_in(mine))):
        if name not in written_in(kept):
            raise NotDone(
                f"{name} is touched by {made.node.variable} and by what stands beside it, so the "
                "parts cannot be a nest of their own"
            )
    uses: dict[str, list[Access]] = {}
    for node in nodes(mine):
        if isinstance(node, Assign) or (isinstance(node, If) and node.label is not None):
            for relation in accesses(node):
                uses.setdefault(relation.access.array, []).append(relation.access)
    for name in sorted(writes):
        cells = uses[name]
        if not cells[0].subscripts:
            continue
        for number, variable in enumerate(around):
            if not is_own_cell(cells, variable, around[:number]):
                raise NotDone(f"iterations of {variable} touch the same elements of {name}")
