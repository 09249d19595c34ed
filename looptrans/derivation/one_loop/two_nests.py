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

from looptrans.algebra.positional.cells import is_own_cell
from looptrans.derivation.one_loop.parts import order_of_parts
from looptrans.derivation.one_loop.pieces import Pieces, pieces, sequences
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.affine import difference, extremum, total
from looptrans.ir.facts import DependenceReport
from looptrans.ir.index import Arith, Extremum, Index, Int, Var, opaque_terms, variables
from looptrans.ir.listing import index_text
from looptrans.ir.program import Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.rewrite import with_accesses
from looptrans.ir.value import Access, Range
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import accesses, live_out, nodes, placed, read_in, written_in
from looptrans.transforms.editing.accesses import listed
from looptrans.transforms.editing.extents import End, declared_end, extent_along, extreme
from looptrans.transforms.editing.tree import LoopPath, loops_around


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
    outer = loops_around(program, made.position)
    around = [path.variable for path in outer]
    told = sequences(program, outer)
    own = "one nest writes what the other reads"
    if around:
        own = f"each iteration of {listed(around)} has its own elements of {listed(handed)}"
    cuts = (
        f"the parts of all rows are cut at the same places: the first where {made.node.variable} "
        "begins in any of them, the others as far from each other as it runs in all of them, "
        f"divided by {parts}, rounded up"
    )
    apart = Certificate(
        "storage",
        "what one nest hands to the other is not touched in between",
        "legal",
        f"{own}, and nothing else that one of the two nests writes is touched by both",
        tuple(dict.fromkeys(text for texts in told.values() for text in texts)),
    )
    return DerivationStep(
        f"split {made.node.variable} into parts, each with its own {listed(made.names)} in memory, "
        "and join them in order in a nest of their own",
        "two nests",
        (loop, parts),
        program,
        found.program,
        (*order_of_parts(made, cuts), apart),
        (*made.laws(), again, joining),
        made.found,
    )


def _written(program: Program, made: Pieces) -> TwoNests:
    around = loops_around(program, made.position)
    loop = made.node.variable
    if any(len(path.loop.body) > 1 for path in around[:-1]):
        raise NotDone(
            f"{loop} is not alone in the loops around it, so its parts would not be programs of "
            "their own"
        )
    if len(made.position) != len(around) + 1:
        raise NotDone(f"{loop} stands under a condition")
    number = made.position[-1]
    block = around[-1].loop.body if around else ()
    before, behind = block[:number], block[number + 1 :]
    join: Node = Loop(made.part, made.every, made.joined)
    told = frozenset(sequences(program, around))
    locals_ = _locals(program, made)
    mine, others = _shared_out(made, before, (join, *behind), locals_)
    _require_apart(made, mine, others, [path.variable for path in around], told)
    bounds = _cut(program, made, [path.loop for path in around])
    first = tuple(n for n in made.writer.program.body if isinstance(n, Declaration))
    at = made.position[:1] if around else made.position

    def filled(range_: Range) -> Program:
        inner: tuple[Node, ...] = (replace(made.node, range=range_, body=mine.body),)
        parts = _nested(around, (*mine.kept, *made.starts, *inner))
        return made.placed(
            first, at, (Loop(made.part, made.every, parts), *_nested(around, others))
        )

    final, whole = filled(bounds), filled(made.node.range)
    names = [p.name for p in final.parameters if p not in program.parameters]
    return TwoNests(final, whole, loop, made.own, made.part, names[-1])


def _cut(program: Program, made: Pieces, around: list[Loop]) -> Range:
    """Return the iterations of one part: those between two of the cuts that all rows share.

    Raises:
        NotDone: It is not known how far the loop runs.
    """
    ranges = ranges_by_name(around)
    bounds = made.node.range
    begin = _end(program, bounds.start, ranges, "lowest")
    end = _end(program, bounds.stop, ranges, "highest")
    if begin is None or end is None:
        which = bounds.start if begin is None else bounds.stop
        along = extent_along(program, made.node, writes=False, surely=False)
        if along is None:
            raise NotDone(
                f"it is not known how far {made.node.variable} runs at most: {index_text(which)} "
                'has no declared range, as in Int[Array, "B", "0:N+1"]'
            )
        begin, end = begin or Int(0), end or along
    raised = total(difference(end, begin), difference(made.number, Int(1)))
    each = Arith("//", raised, made.number)

    def cut(part: Index) -> Index:
        ahead: Index = Arith("*", part, each)
        return ahead if begin == Int(0) else Arith("+", begin, ahead)

    start, stop = cut(Var(made.part)), cut(total(Var(made.part), 1))
    if bounds.start != begin:
        start = extremum("max", (bounds.start, start))
    return Range(start, extremum("min", (stop, bounds.stop)))


def _end(program: Program, index: Index, ranges: dict[str, Range], end: End) -> Index | None:
    """Return what a bound stays on one side of in all rows: the plainest there is."""
    sides: tuple[Index, ...] = (index,)
    if isinstance(index, Extremum) and index.op == ("max" if end == "lowest" else "min"):
        sides = index.arguments
    for side in sides:
        if not variables(side) and not opaque_terms(side):
            return side
    return extreme(declared_end(program, index, end), ranges, end)


def _nested(around: tuple[LoopPath, ...], body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return a block inside loops like those around the one in parts."""
    for path in reversed(around):
        body = (replace(path.loop, body=body),)
    return body


def _locals(program: Program, made: Pieces) -> frozenset[str]:
    """Return what lives within an iteration: names that are neither created nor returned."""
    created = {n.array for n in program.body if isinstance(n, Declaration)}
    handed = {declared.array for declared in made.declared}
    inputs = program.input_names
    every = {array.name for array in made.writer.program.arrays}
    return frozenset(every - created - handed - inputs - set(live_out(program)))


@dataclass(frozen=True, slots=True)
class _Mine:
    """The nest of parts.

    Attributes:
        kept: What it works out before the loop.
        body: An iteration.
        own: The names that live within an iteration of the loops around.
    """

    kept: tuple[Node, ...]
    body: tuple[Node, ...]
    own: frozenset[str]


def _shared_out(
    made: Pieces, before: tuple[Node, ...], behind: tuple[Node, ...], own: frozenset[str]
) -> tuple[_Mine, tuple[Node, ...]]:
    """Tell what each of the nests needs of what stands before the loop.

    What both need is worked out by both, under two names.

    Args:
        made: The parts.
        before: What stands before the loop.
        behind: What stands behind, the joining first.
        own: Names that live within an iteration of the loops around.

    Returns:
        The nest of parts, and the block of the other one.

    Raises:
        NotDone: The loop reads something else that was written before it.
    """
    kept = _needed(before, (*made.starts, *made.body), own, everything=False)
    others = (*_needed(before, behind, own, everything=True), *behind)
    names = {}
    for name in sorted(written_in((*kept, *made.body)) & (written_in(others) | read_in(others))):
        if name in own and name not in made.leaving:
            array = next(a for a in made.writer.program.arrays if a.name == name)
            shape = array.extents
            names[name] = made.writer.array(f"{name}_part", shape, array.element)

    def renamed(access: Access) -> Access:
        return replace(access, array=names.get(access.array, access.array))

    again = [
        replace(n, label=made.writer.label(), comment="", leading=())
        if isinstance(n, Assign)
        else n
        for n in kept
    ]
    nest = _Mine(
        with_accesses(tuple(again), renamed),
        with_accesses(made.body, renamed),
        own.union(names.values()),
    )
    return nest, others


def _needed(
    before: tuple[Node, ...], behind: tuple[Node, ...], own: frozenset[str], *, everything: bool
) -> tuple[Node, ...]:
    """Return the nodes before a block whose values it needs, or with `everything` anybody does."""
    wanted = read_in(behind)
    found: list[Node] = []
    for node in reversed(before):
        writes = written_in((node,))
        if not writes & wanted and (not everything or writes <= own):
            continue
        found.append(node)
        wanted |= read_in((node,))
    return tuple(reversed(found))


def _require_apart(
    made: Pieces,
    mine: _Mine,
    others: tuple[Node, ...],
    around: list[str],
    told: frozenset[str],
) -> None:
    """Require that the parts share nothing with the rest of the nest but what they hand over.

    Args:
        made: The parts.
        mine: Their nest.
        others: The block of the other nest.
        around: The variables of the loops around both.
        told: Those of loops over sequences, which have no row in common.

    Raises:
        NotDone: They share something else.
    """
    loop = made.node.variable
    block = (*mine.kept, *made.starts, *mine.body)
    handed = {declared.array for declared in made.declared}
    writes, its = written_in(block), written_in(others)
    for name in sorted((writes & (read_in(others) | its)) | (its & read_in(block))):
        if name not in handed:
            raise NotDone(
                f"{name} is touched by {loop} and by what stands beside it, so the parts cannot "
                "be a nest of their own"
            )
    if any(not isinstance(node, Assign) for node in mine.kept):
        raise NotDone(f"{loop} reads what a loop just before it writes")
    uses: dict[str, list[Access]] = {}
    for node in nodes(block):
        if isinstance(node, Assign) or (isinstance(node, If) and node.label is not None):
            for relation in accesses(node):
                uses.setdefault(relation.access.array, []).append(relation.access)
    for name in sorted(writes - mine.own):
        for number, variable in enumerate(around):
            if variable not in told and not is_own_cell(uses[name], variable, around[:number]):
                raise NotDone(f"iterations of {variable} touch the same elements of {name}")


def left_over(nests: TwoNests, flow: DependenceReport) -> tuple[tuple[str, str], ...]:
    """Return the loops beside the one in parts that carry values: the variable, a label in it.

    Args:
        nests: The nests, where every part runs over all of the loop.
        flow: Their exact flow.
    """
    places = {place.label: place for place in placed(nests.whole)}
    found: dict[tuple[int, ...], tuple[str, str]] = {}
    for edge in flow.dependences:
        level = edge.level
        if level is not None:
            place = places[edge.source]
            variable, at = place.loops[level].variable, place.loop_positions[level]
            found.setdefault(at, (variable, edge.source))
    own = places[nests.own]
    mine = own.loop_positions[[loop.variable for loop in own.loops].index(nests.loop)]
    return tuple(each for at, each in sorted(found.items()) if at != mine and each[0] != nests.part)
