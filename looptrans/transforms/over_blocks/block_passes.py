"""Loops over blocks that go over each block several times, and what they are element by element.

    for j0 in range(0, N, 16):                          for j in range(0, N):
        for j in range(j0, min(j0 + 16, N)):                s = x[j]
            s[j - j0] = x[j]; m = max(m, s[j - j0])         m = max(m, s)
        for j in range(j0, min(j0 + 16, N)):       …        l = l + exp(s - m)
            l = l + exp(s[j - j0] - m)

The right one is what the left one does where each block is one element. Here it is only written
down; whether the two mean the same is for the algebra to say (`algebra.elements.one_by_one`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from looptrans.ir.affine import difference, is_same
from looptrans.ir.condition import Condition, Truth, with_operands
from looptrans.ir.index import Index, Int, Var, variables
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced, rewritten
from looptrans.ir.value import Access, Const, Range, Reduce, Select, Value, Whole
from looptrans.ir.walk import accesses, accesses_in, live_out, loops_in, nodes, reductions_in
from looptrans.transforms.editing.naming import binders, fresh_name
from looptrans.transforms.editing.substitute import substitute_variable
from looptrans.transforms.editing.tree import (
    LoopPath,
    Position,
    loop_paths,
    loops_around,
    replace_at,
    statements_in,
)
from looptrans.transforms.over_blocks.block_places import BlockPlaces
from looptrans.transforms.over_blocks.block_starts import linear_in
from looptrans.transforms.over_blocks.one_element import masks, one_element, set_once, where
from looptrans.transforms.over_blocks.whole_loops import block_in_whole, is_never_empty
from looptrans.transforms.over_blocks.without_places import (
    dimensions_gone,
    is_made,
    without_dimensions,
    without_places,
)


@dataclass(frozen=True, slots=True)
class BlockPasses:
    """A loop over blocks with passes over each block inside.

    Attributes:
        program: The program, every pass counted by one variable in positions of the whole.
        position: Where the loop over the blocks stands.
        block: The range of a pass.
        variable: The variable of all passes.
        one_by_one: The program in which each element is a block, written in one way or another, and
            where its loop over the elements stands.
        is_full: Whether each block surely has an element.
        within: The arrays that hold something for each element of one block only.
        places: Tells which block an element is in, where one is asked for.
        names: The variable of the loop over blocks, and those the passes had.
    """

    program: Program
    position: Position
    block: Range
    variable: str
    one_by_one: tuple[tuple[Program, Position], ...]
    is_full: bool
    within: frozenset[str]
    places: BlockPlaces | None
    names: tuple[str, ...]


def block_passes(program: Program) -> Iterator[BlockPasses]:
    """Yield the loops over blocks that hold more than one loop over what is inside of a block.

    Args:
        program: The program.
    """
    for path in loop_paths(program):
        nested = len(path.loop.body) == 1 and isinstance(path.loop.body[0], Loop)
        if not nested and _hands_on(path.loop):
            looked = (_Passes(program, path, asked=asked).found() for asked in (True, False))
            found = next((each for each in looked if each is not None), None)
            if found is not None:
                yield found


@dataclass(slots=True)
class _Passes:
    """One loop over blocks, looked at.

    Attributes:
        program: The program.
        path: The loop.
        asked: Whether a pass ends where all that it holds asks for a position.
        variable: What the passes are counted by.
        ranges: Those of the passes, and of them all together.
        cells: The arrays, and of each the dimension, that hold something for a place in a block.
        blocks: The arrays that hold something for each block.
        names: The variables the passes had.
        wrong: Whether something stands in the way.
    """

    program: Program
    path: LoopPath
    asked: bool
    variable: str = ""
    ranges: dict[tuple[Range, Range], None] = field(default_factory=dict)
    cells: dict[str, int] = field(default_factory=dict)
    blocks: set[str] = field(default_factory=set)
    names: dict[str, None] = field(default_factory=dict)
    wrong: bool = False

    def found(self) -> BlockPasses | None:
        loop = self.path.loop
        self.variable = self._named()
        if not self.variable:
            return None
        before = -1
        while before != len(self.cells):
            before = len(self.cells)
            self.ranges.clear()
            body = tuple(self._apart(node) for node in loop.body)
            self._count(body)
        if self.wrong or len(self.ranges) != 1:
            return None
        ((block, whole),) = self.ranges
        if not self._is_known(whole) or not self._are_places(body, block):
            return None
        apart = replace_at(self.program, self.path.position, (replace(loop, body=body),))
        places = self._places(whole, block)
        single = []
        for spliced in self._together(body, block):
            gone = dimensions_gone(spliced, self.cells, self._for_blocks(body))
            together = without_places(spliced, gone)
            if any(_mentions(node, loop.variable) for node in together):
                if places is None:
                    continue
                together = places.body(together)
            one = replace(loop, variable=self.variable, range=whole, body=set_once(together))
            after = replace_at(self.program, self.path.position, (one,))
            after = without_dimensions(after, gone)
            single.append((after, _place(after, self.variable, statements_in((one,)))))
        if not single:
            return None
        return BlockPasses(
            apart,
            self.path.position,
            block,
            self.variable,
            tuple(single),
            is_never_empty(loop, block),
            frozenset(self.cells),
            places,
            (loop.variable, *self.names),
        )

    def _named(self) -> str:
        """Return a variable for all passes: the first one's, where nothing else has it."""
        loop = self.path.loop
        inside = loops_in(loop.body)
        sums = list(reductions_in(loop.body))
        own = [n.variable for n in inside if self._is_pass(n)]
        own += [
            g.variable for r in sums for g in r.generators if self._in_whole(g.variable, g.range)
        ]
        if not own:
            return ""
        others = {n.variable for n in inside if not self._is_pass(n)}
        others |= {v for n in inside if self._is_pass(n) for b in n.body for v in binders(b)}
        others |= {
            g.variable
            for r in sums
            for g in r.generators
            if self._in_whole(g.variable, g.range) is None
        }
        return own[0] if own[0] not in others else fresh_name(self.program, own[0])

    def _is_pass(self, loop: Loop) -> bool:
        """Tell whether a loop goes over a block: from its start on, or over places in it."""
        if self._whole(loop) is None:
            return False
        outer = self.path.variable
        if outer in variables(loop.range.start):
            return True
        places = {outer, loop.variable}
        return any(
            places <= set(variables(index)) or self._is_place(access, loop.variable)
            for access in accesses_in(loop.body)
            for index in access.indices
        ) or any(places <= set(variables(i)) for n in nodes(loop.body) for i in _tested(n))

    def _whole(self, loop: Loop) -> tuple[Loop, Range] | None:
        return block_in_whole(self.program, self.path.loop, loop, asked=self.asked)

    def _is_place(self, access: Access, variable: str) -> bool:
        number = self.cells.get(access.array)
        return number is not None and access.subscripts[number] == Var(variable)

    def _in_whole(self, variable: str, bounds: Range) -> tuple[Loop, Range] | None:
        if self.path.variable not in variables(bounds.start):
            return None
        return self._whole(Loop(variable, bounds, ()))

    def _apart(self, node: Node) -> Node:
        """Return a node with its passes counted in positions of the whole."""
        match node:
            case Loop() if self._is_pass(node):
                made = self._whole(node)
                assert made is not None
                here, whole = made
                self.names[here.variable] = None
                self.ranges[here.range, whole] = None
                self.wrong |= any(_is_within(n, self.path.variable) for n in nodes(here.body))
                new = {here.variable: Var(self.variable)}
                body = tuple(substitute_variable(n, new) for n in here.body)
                return replace(here, variable=self.variable, body=body)
            case Loop():
                return replace(node, body=tuple(map(self._apart, node.body)))
            case If():
                then, other = (tuple(map(self._apart, b)) for b in (node.body, node.orelse))
                return replace(node, body=then, orelse=other)
            case Assign():
                return replace(node, values=tuple(map(self._sums_apart, node.values)))
            case _:
                self.wrong = True
                return node

    def _sums_apart(self, value: Value) -> Value:
        def change(part: Value) -> Value | None:
            if not isinstance(part, Reduce) or len(part.generators) != 1:
                return None
            (each,) = part.generators
            made = self._in_whole(each.variable, each.range)
            if made is None:
                return None
            self.names[each.variable] = None
            self.ranges[each.range, made[1]] = None
            assign = Assign("S", (), (Select(each.condition, part.body, Const(0.0)),))
            moved = substitute_variable(assign, {each.variable: Var(self.variable)}).values[0]
            assert isinstance(moved, Select)
            here = replace(each, variable=self.variable, condition=moved.condition)
            return Reduce(part.function, (here,), moved.chosen)

        return replaced(value, change)

    def _count(self, body: tuple[Node, ...]) -> None:
        """Find the arrays with a cell for each place in a block."""
        local = {a.name for a in self.program.arrays if a.role == "local"}
        local -= set(live_out(self.program))
        for access in accesses_in(body):
            for number, index in enumerate(access.subscripts):
                if isinstance(index, Whole) or access.array not in local:
                    continue
                if self.path.variable not in variables(index):
                    continue
                if self.variable not in variables(index):
                    self.blocks.add(access.array)
                else:
                    self.wrong |= self.cells.setdefault(access.array, number) != number

    def _is_known(self, whole: Range) -> bool:
        """Tell whether it is known before the first block where the last one ends."""
        around = {loop.variable for loop in loops_around(self.program, self.path.position)}
        return around.issuperset(whole.variables)

    def _places(self, whole: Range, block: Range) -> BlockPlaces | None:
        """Return what tells of an element which block it is in, where they are counted from 0."""
        loop = self.path.loop
        first = linear_in(block.start, loop.variable)
        if whole.start != Int(0) or loop.range.start != Int(0) or first is None:
            return None
        width: Index = first[1] if loop.range.step == 1 else Int(loop.range.step)
        return BlockPlaces(loop.variable, self.variable, loop.range.step, width)

    def _for_blocks(self, body: tuple[Node, ...]) -> list[str]:
        """Return the arrays with something for each block that nothing else looks at."""

        def uses(within: tuple[Node, ...]) -> list[str]:
            return [access.array for access in accesses_in(within) if not is_made(access)]

        here, everywhere = uses(body), uses(self.program.body)
        names = sorted(self.blocks - set(self.cells))
        return [name for name in names if here.count(name) == everywhere.count(name)]

    def _are_places(self, body: tuple[Node, ...], block: Range) -> bool:
        """Tell whether the arrays are found by the place in the block everywhere, and only here."""
        place = difference(Var(self.variable), block.start)
        count = {True: 0, False: 0}
        for inside, nodes_ in ((True, body), (False, self.program.body)):
            for access in accesses_in(nodes_):
                if access.array not in self.cells or access.rank == len(access.subscripts):
                    continue  # a creation
                subscript = access.subscripts[self.cells[access.array]]
                count[inside] += 1
                if inside and (isinstance(subscript, Whole) or not is_same(subscript, place)):
                    return False
        return count[True] == count[False]

    def _together(self, body: tuple[Node, ...], block: Range) -> Iterator[tuple[Node, ...]]:
        """Yield the block with every pass replaced by what it does with one element.

        Where all passes leave out the same elements, nothing at all need be done with those.
        """
        plain = one_element(body, self.variable, block, None)
        for mask in dict.fromkeys(c for node in nodes(plain) for c in masks(node)):
            yield (If(mask, rewritten(plain, partial(where, mask=mask)), ()),)
        for condition in self._conditions(body, block):
            inside = one_element(body, self.variable, block, condition)
            inside = rewritten(inside, partial(where, mask=condition))
            match inside:
                case (If(_, then, ()) as test,) if any(
                    self.path.variable in variables(index) for index in _tested(test)
                ):
                    yield (If(condition, then, ()),)  # whole blocks may have nothing that counts
                case _:
                    pass
            yield (If(condition, inside, ()),)
        yield plain

    def _conditions(self, body: tuple[Node, ...], block: Range) -> dict[Condition, None]:
        """Return the conditions that passes test of an element."""
        found: list[Condition] = []
        for node in nodes(body):
            match node:
                case Loop(body=inside) if self._is_over(node, block):
                    found += [each.condition for each in inside if isinstance(each, If)]
                case Assign():
                    alone = [
                        part.generators
                        for part in reductions_in((node,))
                        if len(part.generators) == 1
                    ]
                    found += [each.condition for (each,) in alone if each.range == block]
                case _:
                    pass
        return dict.fromkeys(each for each in found if each != Truth(True))

    def _is_over(self, loop: Loop, block: Range) -> bool:
        return loop.variable == self.variable and loop.range == block


def _place(program: Program, variable: str, labels: tuple[str, ...]) -> Position:
    """Return where the loop stands that has just these statements."""
    return next(
        path.position
        for path in loop_paths(program)
        if path.variable == variable and set(statements_in((path.loop,))) <= set(labels)
    )


def _is_within(node: Node, block: str) -> bool:
    """Tell whether a node goes over a block."""
    ranges = [node.range] if isinstance(node, Loop) else []
    if isinstance(node, Assign):
        ranges += [each.range for part in reductions_in((node,)) for each in part.generators]
    return any(block in each.variables for each in ranges)


def _hands_on(loop: Loop) -> bool:
    """Tell whether an iteration may look at what the one before has left, by the text."""
    before: set[str] = set()
    read: set[str] = set()
    written: set[str] = set()
    for node in nodes(loop.body):
        if not isinstance(node, Assign | If):
            continue
        for relation in sorted(accesses(node), key=lambda relation: relation.is_write):
            access = relation.access
            if not relation.is_write:
                read |= {access.array} - before
            elif not any(loop.variable in variables(index) for index in access.indices):
                written.add(access.array)
            before |= {access.array} if relation.is_write else set()
    return bool(read & written)


def _tested(node: Node) -> list[Index]:
    """Return the indices that a guard compares."""
    found: list[Index] = []

    def keep(index: Index) -> Index:
        found.append(index)
        return index

    if isinstance(node, If):
        with_operands(node.condition, index=keep)
    return found


def _mentions(node: Node, variable: str) -> bool:
    return substitute_variable(node, {variable: Int(0)}) != node
