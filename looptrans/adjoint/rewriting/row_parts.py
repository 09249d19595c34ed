"""What rows add to one cell, kept for each row, and joined behind them.

    for h: for i:                                for h: for i:
        m, l, O[h, i] = …                            m, l, O[h, i] = …
        for j:                                       for j:
            top[h] = max(top[h], s)          ->          part[h, i] = max(part[h, i], s)
                                                 for h: for i:
                                                     top[h] = max(top[h], part[h, i])

The loop over rows is free then, as it would be without what they all add to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.algebra.free import freed
from looptrans.algebra.positional.cells import are_apart
from looptrans.frontend import parse
from looptrans.ir.index import Index, Int, Var, opaque_terms, variables
from looptrans.ir.listing import listing
from looptrans.ir.monoids import OF_NOTHING, Folding
from looptrans.ir.program import Assign, Declaration, Loop, Node, Program
from looptrans.ir.rewrite import replaced, rewritten
from looptrans.ir.source import Source
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Const,
    Create,
    Range,
    Read,
    Reduce,
    Value,
    walk_value,
)
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import Placed, assignments, nodes, placed
from looptrans.transforms.editing.accesses import listed, sites_of
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.tree import LoopPath, node_at

_MANY = 2
"""How many loops tell cells apart of which there are many."""


@dataclass(frozen=True, slots=True)
class RowParts:
    """A program in which rows keep parts.

    Attributes:
        program: The program afterwards.
        targets: What the parts are joined to.
    """

    program: Program
    targets: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"keep what each row adds to {listed(self.targets)}, and join it behind the rows"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "what parts fold to folds to what all of them fold to"
        reason = "sums, maxima and minima may be grouped in any way, sums but for their rounding"
        return Certificate("algebra", law, "legal", reason)


@dataclass(frozen=True, slots=True)
class _Added:
    """A statement that rows have in common: where it is, and the loops that are rows."""

    place: Placed
    target: Access
    operator: Folding
    rows: tuple[Loop, ...]


def with_parts_of_rows(program: Program) -> RowParts | None:
    """Let rows keep parts of what all of them add to.

    It is done where nothing else keeps a loop that holds passes from being free, and nothing in the
    outermost loop looks at the cell but the one statement.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such cell.
    """
    found = list(_candidates(program))
    others = _without(program, {each.place.label for each in found})
    added = []
    for each in found:
        rows = _rows(others, each)
        # A part that other loops tell cells apart of would be as large as what it is added to.
        told = {loop.variable for loop in rows}
        if told > each.target.variables and _has_results(program, each, told):
            added.append(replace(each, rows=rows))
    if not added:
        return None
    body = program.body
    made: list[Node] = []
    behind: dict[int, list[Node]] = {}
    taken: set[str] = set()
    for each in added:
        name = fresh_name(program, f"{each.target.array.replace('.', '_')}_part", taken)
        taken.add(name)
        body = _with_part(body, each, name)
        made.append(_begun(each, name))
        behind.setdefault(each.place.position[0], []).append(_joined(each, name))
    nests = [each for n, node in enumerate(body) for each in (node, *behind.get(n, ()))]
    text = listing(replace(program, body=(*made, *nests)))
    after = parse(Source(f"<{program.name}>", text))
    return RowParts(after, tuple(dict.fromkeys(each.target.array for each in added)))


def _candidates(program: Program) -> list[_Added]:
    """Return the statements that add to a cell that some loop around them does not tell apart."""
    found = []
    for place in placed(program):
        node = place.node
        if not isinstance(node, Assign) or len(node.targets) != 1 or len(node.values) != 1:
            continue
        (target,), (value,) = node.targets, node.values
        added = accumulation(target, value)
        if added is None or target.rank or not place.loops:
            continue
        if program.array(target.array).element != "float":
            continue
        if all(loop.variable in target.variables for loop in place.loops):
            continue
        outermost = place.loop_positions[0]
        sites = [s for s in sites_of(program, target.array) if outermost in s.place.loop_positions]
        plain = all(isinstance(index, Var | Int) for index in target.indices)
        if plain and all(
            site.place.label == place.label or are_apart(site.access, target) for site in sites
        ):
            found.append(_Added(place, target, added[0], ()))
    return found


def _has_results(program: Program, each: _Added, rows: set[str]) -> bool:
    """Tell whether the nest has other results, of which each row has its own, or few of this one.

    A nest of a single result has a program for each of its cells, and needs no more where two loops
    tell them apart. A cell for each head is too few.
    """
    outermost = node_at(program, each.place.loop_positions[0])
    return len(each.target.variables) < _MANY or any(
        target.array != each.target.array and target.variables >= rows
        for node in assignments((outermost,))
        for target in node.targets
    )


def _without(program: Program, labels: set[str]) -> Program:
    """Return a program with loops of nothing where some statements are."""
    nothing = Loop("_", Range(Int(0), Int(0)), ())

    def change(node: Node) -> tuple[Node, ...]:
        return (nothing,) if isinstance(node, Assign) and node.label in labels else (node,)

    return replace(program, body=rewritten(program.body, change))


def _rows(others: Program, each: _Added) -> tuple[Loop, ...]:
    """Return the loops around a statement that are free without it, down to one that holds passes.

    They go over all of a size each, so that there can be an array of parts.
    """
    chain: list[Loop] = []
    for position in each.place.loop_positions:
        loop = node_at(others, position)
        assert isinstance(loop, Loop)
        sized = loop.range.start == Int(0) and loop.range.step == 1 and _is_size(loop.range.stop)
        if not sized or loop.execution != "sequential":
            break
        if freed(others, LoopPath(loop, position)) is None:
            break
        chain.append(loop)
    while chain and not _has_passes(chain[-1]):
        chain.pop()
    return each.place.loops[: len(chain)]


def _has_passes(loop: Loop) -> bool:
    """Tell whether a loop holds loops that work sums out, or hold loops: it is one over rows."""
    for node in nodes(loop.body):
        if isinstance(node, Loop):
            for inner in nodes(node.body):
                match inner:
                    case Loop() if any(isinstance(n, Assign) for n in nodes(inner.body)):
                        return True
                    case Assign(values=values) if any(
                        isinstance(part, Reduce) or (isinstance(part, Binary) and part.op == "@")
                        for value in values
                        for part in walk_value(value)
                    ):
                        return True
                    case _:
                        pass
    return False


def _is_size(stop: Index) -> bool:
    return not variables(stop) and not opaque_terms(stop)


def _part(each: _Added, name: str) -> Access:
    return Access(name, tuple(Var(loop.variable) for loop in each.rows))


def _with_part(body: tuple[Node, ...], each: _Added, name: str) -> tuple[Node, ...]:
    """Return a body in which a statement adds to its row's part."""
    part, own = _part(each, name), Read(each.target)

    def change(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Assign) or node.label != each.place.label:
            return (node,)
        (value,) = node.values
        value = replaced(value, lambda v: Read(part) if v == own else None)
        return (replace(node, targets=(part,), values=(value,), augmented=False),)

    return rewritten(body, change)


def _begun(each: _Added, name: str) -> Node:
    """Return that the parts are what nothing folds to."""
    shape = tuple(loop.range.stop for loop in each.rows)
    return Declaration(name, Create("full", shape, Const(OF_NOTHING[each.operator]), "float32"))


def _joined(each: _Added, name: str) -> Node:
    """Return the loops that join the parts of rows."""
    both = (Read(each.target), Read(_part(each, name)))
    joined: Value = Binary("+", *both) if each.operator == "sum" else Call(each.operator, both)
    inner: Node = Assign("S", (each.target,), (joined,))
    own = each.target.variables
    # What tells the cells apart is outermost.
    for loop in sorted(each.rows, key=lambda loop: loop.variable not in own)[::-1]:
        inner = Loop(loop.variable, loop.range, (inner,))
    return inner
