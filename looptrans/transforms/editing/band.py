"""Perfect nests, taken apart and put together in another order.

A *band* is a run of loops each of which holds nothing but the next, except for guards on loop
variables and sizes. Such guards move into the innermost loop, where they decide on the same
iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from looptrans.ir.condition import Relation, conjunction
from looptrans.ir.listing import assign_text, if_text, loop_text
from looptrans.ir.program import (
    Assign,
    Atomic,
    Barrier,
    BlockReduce,
    Declaration,
    If,
    Loop,
    Node,
    Program,
)
from looptrans.ir.value import Whole
from looptrans.ir.walk import live_out, nodes, touched
from looptrans.transforms.editing.accesses import listed, sites_of, sites_outside, use_as_index
from looptrans.transforms.editing.errors import BoundToLoop, NotNested
from looptrans.transforms.editing.tree import (
    LoopPath,
    Position,
    find_loop,
    loop_name,
    replace_at,
    statements_in,
)


@dataclass(frozen=True, slots=True)
class Band:
    """A perfect nest in its program.

    Attributes:
        program: The program.
        position: Where the outermost loop stands.
        loops: The loops, outermost first.
        guards: The guards between them, outermost first.
        body: The body of the innermost loop.
    """

    program: Program
    position: Position
    loops: tuple[Loop, ...]
    guards: tuple[If, ...]
    body: tuple[Node, ...]

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of the loops, outermost first."""
        return tuple(loop.variable for loop in self.loops)


def find_band(program: Program, names: Sequence[str]) -> Band:
    """Find the band that begins and ends with the outermost and the innermost of some loops.

    Args:
        program: The program.
        names: The loops, in any order.

    Raises:
        NotNested: They do not stand inside one another, or something stands between them.
    """
    paths = [find_loop(program, name) for name in names]
    by_depth = sorted(paths, key=lambda path: len(path.position))
    outer = by_depth[0]
    for path, inner in pairwise(by_depth):
        if path.position == inner.position:
            raise NotNested(
                f"the loop {path.variable} is named twice",
                path.loop.span,
                why="the transformation wants each loop once",
                remedy="name each loop once",
            )
        if inner.position[: len(path.position)] != path.position:
            one, other = (loop_name(program, p.position) for p in (path, inner))
            raise NotNested(
                f"the loop {other} does not stand inside the loop {one}",
                inner.loop.span,
                why="only loops inside one another can change places",
                remedy="name loops of one nest; looptrans show prints them",
            )
    loops, guards = [outer.loop], list[If]()
    here, body = outer.position, outer.loop.body
    inside = outer.position
    while inside != by_depth[-1].position:
        inside = (*inside, 0)
        match body:
            case (Loop() as loop,):
                loops.append(loop)
                here, body = inside, loop.body
            case (If(orelse=(), label=None) as guard,):
                guards.append(guard)
                inside, body = (*inside, 1), guard.body
            case _:
                raise _imperfect(program, LoopPath(loops[-1], here), body, by_depth[-1])
    return Band(program, outer.position, tuple(loops), tuple(guards), loops[-1].body)


def _imperfect(
    program: Program, around: LoopPath, body: tuple[Node, ...], last: LoopPath
) -> NotNested:
    """Return the mistake of loops with something between them."""
    names = f"{around.variable} and {last.variable}"
    if len(body) == 1:
        reasons: dict[type[Node], str] = {
            If: "a guard that depends on data, or has an else, decides as often as it runs",
            Atomic: "it would then be another part of the iteration that nothing interrupts",
            BlockReduce: "other iterations would then be combined",
        }
        return NotNested(
            f"{described(body[0])} stands between the loops {names}",
            body[0].span,
            why=reasons.get(type(body[0]), ""),
            remedy="name only loops inside it, or only loops around it",
        )
    wanted = next(n for n, node in enumerate(body) if any(m is last.loop for m in nodes((node,))))
    other = body[wanted - 1 if wanted else wanted + 1]
    name = loop_name(program, around.position)
    heads = [statements_in((node,)) for node in body[max(wanted, 1) : wanted + 2]]
    cuts = "".join(f", {labels[0]}" for labels in heads if labels)
    parts = [body[:wanted], body[wanted : wanted + 1], body[wanted + 1 :]]
    locals_of_it = _handed_on(program, around, parts)
    indices = [each for each in locals_of_it if use_as_index(body, each) is not None]
    own = "".join(f"expand({each}, {name}); " for each in locals_of_it)
    # No array can stand where such a local does, so each iteration cannot keep one of its own.
    first = (
        f"write out what {listed(indices)} stands for where it is used"
        if indices
        else f"{own}distribute({name}{cuts}) first"
    )
    return NotNested(
        f"{described(other)} stands between the loops {names}",
        other.span,
        why="in another order of the loops it would run another number of times",
        remedy=f"{first}, or move it out of {name}",
    )


def _handed_on(
    program: Program, around: LoopPath, parts: Sequence[tuple[Node, ...]]
) -> tuple[str, ...]:
    """Return the locals of a loop that one part of its body sets as a whole for another."""
    uses = [touched(part) for part in parts]
    return tuple(
        array.name
        for array in program.arrays
        if sum(array.name in names for names in uses) > 1
        and array.role != "input"
        and array.name not in live_out(program)
        and not sites_outside(program, array.name, around.position)
        and all(
            isinstance(subscript, Whole)
            for site in sites_of(program, array.name)
            if site.relation.is_write
            for subscript in site.access.subscripts
        )
    )


def described(node: Node) -> str:
    """Return how a message names a node."""
    match node:
        case Assign():
            return f"{node.label} ({assign_text(node)})"
        case Loop():
            return f"another loop ({loop_text(node)})"
        case If():
            label = f"{node.label} " if node.label else "the guard "
            return f"{label}({if_text(node)})"
        case Atomic():
            return "an atomic block"
        case BlockReduce():
            return "a reducing block"
        case Barrier():
            return "a barrier"
        case Declaration(array):
            return f"the creation of {array}"


def require_named(band: Band, named: Sequence[Loop]) -> None:
    """Require that all loops of a band have been named.

    Raises:
        NotNested: One between them has not.
    """
    for loop in band.loops:
        if not any(loop is other for other in named):
            raise NotNested(
                f"the loop {loop.variable} stands between the loops that are named",
                loop.span,
                why="its place must be said as well",
                remedy=f"name {loop.variable} too",
            )


def require_no_phases(loop: Loop, action: str, *, turns: bool = True) -> None:
    """Require that no barriers stand in the body of a loop, and no turns unless they may.

    Raises:
        BoundToLoop: One does.
    """
    for node in loop.body:
        turn = isinstance(node, Atomic) and node.turn is not None
        if (turn and turns) or isinstance(node, Barrier):
            what = f"with atomic(turn={loop.variable})" if turn else "barrier()"
            raise BoundToLoop(
                f"the loop {loop.variable} has a {'turn' if turn else 'barrier'} in its body",
                node.span,
                why=f"{what} belongs to this very loop, and {action} would give it to another",
                remedy="do that before the loop is made parallel",
            )


def rebuilt(
    band: Band, loops: Sequence[Loop], guards: Sequence[Relation] = (), body: tuple[Node, ...] = ()
) -> Program:
    """Return the program with the band's loops replaced by others.

    Args:
        band: The band.
        loops: The new loops, outermost first; their bodies are replaced.
        guards: What is to be tested in the innermost loop, beside the band's own guards.
        body: The new body of the innermost loop; by default what it was.
    """
    inner = body or band.body
    for guard in reversed(band.guards):
        inner = (replace(guard, body=inner),)
    if guards:
        inner = (If(conjunction(*guards), inner, span=band.loops[-1].span),)
    for loop in reversed(loops):
        inner = (replace(loop, body=inner),)
    return replace_at(band.program, band.position, inner)


def with_private(before: Sequence[Loop], after: Sequence[Loop]) -> tuple[Loop, ...]:
    """Give the loops of a band that have a new order the private names they had.

    A name of which each iteration of `i` and of all loops around it has a copy keeps one for each
    iteration of those loops: the innermost of them, as they stand now, makes it private.
    """
    private: dict[str, list[str]] = {loop.variable: [] for loop in after}
    place = {loop.variable: level for level, loop in enumerate(after)}
    for level, loop in enumerate(before):
        owner = max((outer.variable for outer in before[: level + 1]), key=place.__getitem__)
        private[owner] += [name for name in loop.private if name not in private[owner]]
    return tuple(replace(loop, private=tuple(private[loop.variable])) for loop in after)
