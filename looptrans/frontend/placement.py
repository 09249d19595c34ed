"""The nest that the comments mean: each statement in the loops its claims say it belongs to.

for i: for j: q_i = Q[i]  # TLoop: i    ->    for i: q_i = Q[i]
              s = q_i @ K[j]                         for j: s = q_i @ K[j]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from looptrans.frontend.appearance import names_in
from looptrans.frontend.claims import read_claims
from looptrans.frontend.mistakes import PrivatePlacement
from looptrans.ir.claim import Aggregation, TargetLoops
from looptrans.ir.condition import negation
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.index import parameters as sizes_of
from looptrans.ir.index import variables
from looptrans.ir.program import Assign, Atomic, BlockReduce, If, Loop, Node, Program, Section
from looptrans.ir.value import condition_variables, free_variables
from looptrans.ir.walk import accesses, read_by

Position: TypeAlias = tuple[int, ...]
Branch: TypeAlias = Literal["body", "orelse"]


def annotated_placement(program: Program) -> Program:
    """Return the program with each statement in the loops that its comment says.

    A statement stands in the nest down to the deepest loop that its `TLoop` names, that it
    aggregates over, that an array it reads is aggregated over, or that its own text or a guard
    around it needs. A data-dependent guard stays in its loops, and so does all that it guards; so
    does an atomic or reduce block with all that is in it.
    A statement without `TLoop` and `Aggregation` keeps its place. The order of the statements is
    kept: a loop is closed where a statement follows that is not in it, and opened again after.

    Returns:
        The very same program where nothing moves.

    Raises:
        ListingError: A statement would leave a loop that has private names.
    """
    leaves = tuple(_leaves(program.body, (), ()))
    claimed: dict[str, set[str]] = {}
    aggregated: dict[str, set[str]] = {}
    for claim in read_claims(program):
        if isinstance(claim, TargetLoops | Aggregation):
            claimed.setdefault(claim.statement, set()).update(claim.loops)
        if isinstance(claim, Aggregation):
            aggregated.setdefault(claim.statement, set()).update(claim.loops)
    gathered = _gathered(leaves, aggregated)
    placed = tuple(_placed(leaf, claimed, gathered) for leaf in leaves)
    if placed == leaves:
        return program
    torn = [mistake for pair in zip(leaves, placed, strict=True) for mistake in _torn(*pair)]
    if torn:
        raise ListingError(torn, program.source)
    return _in_order(replace(program, body=_Builder().build(placed)))


@dataclass(frozen=True, slots=True)
class _Step:
    """A loop, guard or section around a leaf, and the branch of it that the leaf is in."""

    position: Position
    node: Loop | If | Section
    branch: Branch


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A statement, a declaration, a barrier, or a block without a body, and all around it."""

    node: Node
    path: tuple[_Step, ...]


def _leaves(body: tuple[Node, ...], path: tuple[_Step, ...], position: Position) -> Iterator[_Leaf]:
    for number, node in enumerate(body):
        here = (*position, number)
        match node:
            case Loop() | Atomic() | BlockReduce() if node.body:
                yield from _leaves(node.body, (*path, _Step(here, node, "body")), here)
            case If() if node.body or node.orelse:
                then, other = _Step(here, node, "body"), _Step(here, node, "orelse")
                yield from _leaves(node.body, (*path, then), (*here, 0))
                yield from _leaves(node.orelse, (*path, other), (*here, 1))
            case _:
                yield _Leaf(node, path)


def _gathered(
    leaves: tuple[_Leaf, ...], aggregated: Mapping[str, set[str]]
) -> dict[str, set[Position]]:
    """Return the loops that each array is aggregated over by a statement that writes it."""
    gathered: dict[str, set[Position]] = {}
    for leaf in leaves:
        if isinstance(leaf.node, Assign) and leaf.node.label in aggregated:
            over = {
                step.position
                for step in leaf.path
                if isinstance(step.node, Loop) and step.node.variable in aggregated[leaf.node.label]
            }
            for target in leaf.node.targets:
                gathered.setdefault(target.array, set()).update(over)
    return gathered


def _placed(
    leaf: _Leaf, claimed: Mapping[str, set[str]], gathered: Mapping[str, set[Position]]
) -> _Leaf:
    """Return the leaf without the loops around it that nothing ties it to."""
    statement = leaf.node
    if not isinstance(statement, Assign) or statement.label not in claimed:
        return leaf
    guards = [step.node for step in leaf.path if isinstance(step.node, If)]
    needed = claimed[statement.label] | _statement_variables(statement)
    read = read_by(statement)
    for guard in guards:
        needed |= condition_variables(guard.condition)
        read |= {relation.access.array for relation in accesses(guard)}
    over = {position for array in read for position in gathered.get(array, ())}
    deepest = max(
        (
            number
            for number, step in enumerate(leaf.path)
            if (isinstance(step.node, If) and step.node.label is not None)
            or (isinstance(step.node, Loop) and step.node.variable in needed)
            or step.position in over
            or isinstance(step.node, Atomic | BlockReduce)
        ),
        default=-1,
    )
    kept = (*leaf.path[: deepest + 1], *_guards_of(leaf.path[deepest + 1 :]))
    return _Leaf(statement, kept)


def _torn(leaf: _Leaf, placed: _Leaf) -> Iterator[PrivatePlacement]:
    """Find the loops with private names that a statement would leave."""
    kept = {step.position for step in placed.path}
    for step in leaf.path:
        loop = step.node
        if step.position in kept or not isinstance(loop, Loop) or not loop.private:
            continue
        assert isinstance(leaf.node, Assign)
        yield PrivatePlacement(
            f"{leaf.node.label} would leave the loop {loop.variable}, which has private names: "
            f"{', '.join(loop.private)}",
            leaf.node.span,
            why="the loop would be closed before it and opened again after it, and a private copy "
            "ends with its iteration",
            remedy=f"take the private: line out of {loop.variable}, change the comment's TLoop, or "
            "use --placement literal",
        )


def _guards_of(path: tuple[_Step, ...]) -> tuple[_Step, ...]:
    return tuple(step for step in path if isinstance(step.node, If))


# The loop variables that a text mentions.


def _statement_variables(statement: Assign) -> set[str]:
    written = [index for target in statement.targets for index in target.indices]
    found = {name for index in written for name in variables(index)}
    return found.union(*(free_variables(value) for value in statement.values))


# From leaves back to a tree.


@dataclass(slots=True)
class _Open:
    """A loop, guard or section that more leaves may go into."""

    step: _Step
    body: list[Node] = field(default_factory=list)
    orelse: list[Node] = field(default_factory=list)

    def into(self, branch: Branch) -> list[Node]:
        return self.body if branch == "body" else self.orelse


@dataclass(slots=True)
class _Builder:
    """Puts leaves into as few loops and guards as their order allows."""

    top: list[Node] = field(default_factory=list)
    stack: list[_Open] = field(default_factory=list)
    commented: set[Position] = field(default_factory=set)
    else_commented: set[Position] = field(default_factory=set)

    def build(self, leaves: tuple[_Leaf, ...]) -> tuple[Node, ...]:
        for leaf in leaves:
            shared = 0
            while shared < min(len(self.stack), len(leaf.path)) and (
                self.stack[shared].step.position == leaf.path[shared].position
            ):
                # The branches of one guard share it, what is inside them nothing.
                same = self.stack[shared].step.branch == leaf.path[shared].branch
                shared += 1
                if not same:
                    break
            self._close(shared)
            if shared:
                self.stack[-1].step = leaf.path[shared - 1]
            self.stack += [_Open(step) for step in leaf.path[shared:]]
            self._inside().append(leaf.node)
        self._close(0)
        return tuple(self.top)

    def _inside(self) -> list[Node]:
        return self.stack[-1].into(self.stack[-1].step.branch) if self.stack else self.top

    def _close(self, depth: int) -> None:
        while len(self.stack) > depth:
            closed = self._closed(self.stack.pop())
            self._inside().append(closed)

    def _closed(self, opened: _Open) -> Node:
        """Return the block with what is in it; comments stay with the first of several."""
        node, position = opened.step.node, opened.step.position
        first = position not in self.commented
        self.commented.add(position)
        leading, comment = (node.leading, node.comment) if first else ((), "")
        body, orelse = tuple(opened.body), tuple(opened.orelse)
        if not isinstance(node, If):
            return replace(node, body=body, leading=leading, comment=comment)
        other = ""
        if orelse and position not in self.else_commented:
            self.else_commented.add(position)
            other = node.else_comment
        if not body and node.body:
            return replace(
                node,
                condition=negation(node.condition),
                body=orelse,
                orelse=(),
                leading=leading,
                comment=comment or other,
                else_comment="",
            )
        return replace(
            node, body=body, orelse=orelse, leading=leading, comment=comment, else_comment=other
        )


def _in_order(program: Program) -> Program:
    """Keep the parameters and arrays that are still mentioned, in order of first appearance."""
    mentioned = names_in(program.contracts, program.body)
    arrays = {array.name: array for array in program.arrays}
    parameters = {parameter.name: parameter for parameter in program.parameters}
    stated = set(program.arguments)
    for name in program.arguments:
        array = arrays.get(name)
        extents = () if array is None else (*array.shape, *(array.value_range or ()))
        stated |= {size for extent in extents if extent is not None for size in sizes_of(extent)}
    named = [*program.arguments, *mentioned, *program.outputs]
    sizes = [*(name for name in parameters if name in stated), *mentioned]
    return replace(
        program,
        arrays=tuple(arrays[name] for name in dict.fromkeys(named) if name in arrays),
        parameters=tuple(parameters[name] for name in dict.fromkeys(sizes) if name in parameters),
    )
