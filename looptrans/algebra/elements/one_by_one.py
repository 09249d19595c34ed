"""A loop over blocks, made a loop over their elements: each element is a block of its own.

    for j0 in range(0, N, 16):                       for j in range(0, N):
        n = m                                            n = max(m, s[j])
        for j in …: n = max(n, s[j])          ->         l = l * exp(m - n) + exp(s[j] - n)
        l = l * exp(m - n)                               m = n
        for j in …: l = l + exp(s[j] - n)
        m = n

The right one does to the state what the left one does where each block is one element; that this is
so for larger blocks, too, is what `block_laws.py` shows.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf

from looptrans.algebra.certificate import ir_certificate
from looptrans.algebra.elements.block_steps import BlockIteration, is_known, with_makers
from looptrans.algebra.elements.ended import ended
from looptrans.algebra.elements.named_blocks import block_laws
from looptrans.algebra.elements.written_step import in_lowest_terms, where_it_holds
from looptrans.algebra.iterations.assembly import assembled, flow_of
from looptrans.algebra.iterations.edges import Edge, NoRecurrence, edges_of
from looptrans.algebra.iterations.iteration import Iteration
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.normal_forms.possible import with_fewer_ends
from looptrans.algebra.operators.laws import Law
from looptrans.algebra.positional.cells import is_own_cell, mentions, same_cell
from looptrans.algebra.positional.values import MINUS_INFINITY
from looptrans.ir.condition import Condition, is_data_dependent
from looptrans.ir.creation import first_value
from looptrans.ir.listing import access_text
from looptrans.ir.program import Declaration, Element, If, Loop, Program
from looptrans.ir.value import Call, Const, Range, Real, Unary, Value, walk_value
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import assignments, live_out, targets_in
from looptrans.transforms.editing.tree import Position, loops_around, node_at, replace_at
from looptrans.transforms.over_blocks.block_passes import BlockPasses, block_passes
from looptrans.transforms.over_blocks.fitting import with_fitting_extents


@dataclass(frozen=True, slots=True)
class OneByOne:
    """A program whose blocks were made elements.

    Attributes:
        program: The program afterwards.
        names: The variable of the loop over blocks, and those of the passes.
        laws: What was shown.
    """

    program: Program
    names: tuple[str, ...]
    laws: tuple[Law, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        blocks, *passes = self.names
        return f"make {blocks} and {' and '.join(passes)} one loop, each element a block of its own"

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """What shows that the two mean the same."""
        order = "the elements are the same, in the same order"
        reason = "each block begins where the one before it ends, from the first to the last"
        rounding = "the results are equal over the reals, not bit for bit"
        why = "the elements of a block are joined one after the other"
        return (
            Certificate("order", order, "legal", reason),
            Certificate("rounding", rounding, "legal", why),
            *map(ir_certificate, self.laws),
        )


@lru_cache(maxsize=16)
def one_by_one(program: Program) -> tuple[OneByOne | None, tuple[str, ...]]:
    """Make a loop over blocks with passes over each a loop over their elements.

    Args:
        program: The program.

    Returns:
        The program afterwards, None where there is no such loop for which that is proved; and for
        each loop that was looked at in vain the reason.
    """
    reasons: list[str] = []
    for passes in block_passes(program):
        try:
            return _proved(_Reading.of(passes)), tuple(reasons)
        except NoRecurrence as error:
            if str(error).endswith("carries no value"):
                continue
            reasons.append(f"the blocks of {passes.names[0]}: {error}")
    return None, tuple(reasons)


def _proved(reading: _Reading) -> OneByOne:
    """Return the loop over elements, of those that count where blocks then have some.

    Raises:
        NoRecurrence: It is not proved to be the same.
    """
    shorter = ended(reading.passes, reading.before, reading.masks)
    if shorter is not None:
        with suppress(NoRecurrence):
            parts = shorter.passes, reading.block, shorter.before, shorter.masks
            return _Reading(*parts, is_ended=True).proved()
    return reading.proved()


@dataclass(slots=True)
class _Reading:
    """Both loops, read.

    Attributes:
        passes: The loops.
        block: One block, carried out.
        before: What a block does.
        masks: The conditions of what is gathered where other elements have terms that add nothing.
        is_ended: Whether blocks have places behind their elements, too.
    """

    passes: BlockPasses
    block: BlockIteration
    before: Recurrence
    masks: frozenset[Condition]
    is_ended: bool = False

    @staticmethod
    def of(passes: BlockPasses) -> _Reading:
        block = _block_of(passes)
        all_ = block.known
        # What there is of for each element is looked at where the two are compared.
        block.known = [k for k in all_ if passes.variable not in dict(k.family.over)]
        before = assembled(passes.program, block, guarded=False)
        block.known = all_
        return _Reading(passes, block, before, frozenset(block.masks))

    def proved(self) -> OneByOne:
        """Return the loop over elements, in lowest terms where that is shorter.

        Raises:
            NoRecurrence: It is not proved to be the same.
        """
        names = self.passes.names
        reasons: dict[str, None] = {}
        for given, place in self.passes.one_by_one:
            try:
                program = self._chosen(given, place) or given
                step = _step_of(program, place)
                with suppress(NoRecurrence):  # else as it is
                    short = self._shorter(program, place, step)
                    if short is not None:
                        laws = self._laws(short, _step_of(short, place))
                        return OneByOne(_fitted(short, place), names, laws)
                laws = self._laws(program, step)
                return OneByOne(_fitted(program, place), names, laws)
            except NoRecurrence as error:
                reasons[str(error)] = None
        raise NoRecurrence(next(reversed(reasons)))

    def _chosen(self, program: Program, place: Position) -> Program | None:
        """Write a loop that does nothing but under a condition on data with choices in its place.

        Of a choice it is known what it leaves where the condition does not hold.
        """
        match node_at(program, place):
            case Loop(body=(If(condition, body, ()),)) as loop if is_data_dependent(condition):
                plain = replace_at(program, place, (replace(loop, body=body),))
            case _:
                return None
        try:
            step = _step_of(plain, place)
            after = assembled(plain, step)
        except NoRecurrence:
            return None
        if not self._is_all_state(step, after):
            return None
        return where_it_holds(plain, place, after, _ranges(step), condition)

    def _shorter(self, program: Program, place: Position, step: Iteration) -> Program | None:
        after = assembled(program, step)
        if not self._is_all_state(step, after):
            return None
        return in_lowest_terms(program, place, after, _ranges(step))

    def _is_all_state(self, step: Iteration, after: Recurrence) -> bool:
        """Tell whether a loop leaves nothing behind but its state."""
        seen = self._seen(step)
        return all(
            target.array not in seen or any(same_cell(target, s.access) for s in after.states)
            for node in assignments(step.loop.body)
            for target in node.targets
        )

    def _laws(self, program: Program, step: Iteration) -> tuple[Law, ...]:
        after = assembled(program, step, guarded=False)
        for each in (self.before, after):
            if each.is_scan:
                raise NoRecurrence(f"{each.read_inside[0]} looks at the state in between")
        if any(_takes_logarithms(state.update) for state in after.states):
            # Once a block is exact enough; once an element, its gradients are not.
            raise NoRecurrence("the state would go through a logarithm at each element")
        self._is_all(step)
        laws = block_laws(self.passes, self.before, after, self.masks).decided()
        failed = [law for law in laws if law.answer != "proved" or not law.equations]
        if failed:
            text = "they are not shown to be their elements one by one"
            raise NoRecurrence(f"{text}: {failed[0].name} is {failed[0].answer}")
        return laws

    def _seen(self, step: Iteration) -> set[str]:
        """Return the arrays that something looks at behind one of the loops."""
        edges = (*self.block.edges, *step.edges)
        seen = {e.array for e in edges if e.kind in ("leaving", "outer")}
        return seen | set(live_out(self.passes.program))

    def _is_all(self, step: Iteration) -> None:
        """See to it that the loops leave the same behind in whatever is no state of theirs.

        Raises:
            NoRecurrence: They may not.
        """
        seen = self._seen(step)
        path = loops_around(self.passes.program, self.passes.position)
        around = [loop.variable for loop in path]
        targets = targets_in(self.block.loop.body)
        for node in assignments(self.block.loop.body):
            for target in node.targets:
                if target.array not in seen or target.array in self.passes.within:
                    continue
                if any(same_cell(target, s.access) for s in self.before.states):
                    continue
                if self.is_ended or not mentions(target, self.passes.variable):
                    raise NoRecurrence(f"{access_text(target)} is left behind by each block")
                uses = [t for t in targets if t.array == target.array]
                if not is_own_cell(uses, self.passes.variable, around):
                    raise NoRecurrence(f"{access_text(target)} may be set by several elements")
                left = [_last(each, target.array) for each in (self.block, step)]
                if left[0] is None or left[0] != left[1]:
                    raise NoRecurrence(f"{access_text(target)} is set by what a block has seen")


def _fitted(program: Program, place: Position) -> Program:
    """Return a program with no more ends and no longer arrays than it takes."""
    return with_fitting_extents(with_fewer_ends(program, place))


def _block_of(passes: BlockPasses) -> BlockIteration:
    """Carry out one block."""
    program = passes.program
    flow = flow_of(program)
    loop, elements = _loop_at(program, passes.position)
    edges = edges_of(program, flow, passes.position)
    block = BlockIteration(
        loop,
        passes.position,
        edges,
        flow.assumptions,
        elements,
        program=program,
        flow=flow,
        variable=passes.variable,
        block=passes.block,
        fills=_fills(program, edges),
    )
    block.run()
    with_makers(block, program, loop)
    return block


def _step_of(program: Program, place: Position) -> Iteration:
    """Carry out one iteration of the loop over elements."""
    flow = flow_of(program)
    loop, elements = _loop_at(program, place)
    edges = edges_of(program, flow, place)
    fills = _fills(program, edges)
    step = Iteration(loop, place, edges, flow.assumptions, elements, fills=fills)
    step.run()
    with_makers(step, program, loop)
    return step


def _fills(program: Program, edges: tuple[Edge, ...]) -> dict[str, Value]:
    """Return what arrays are made of in whose cells only the iteration that reads them writes."""
    known: dict[str, Value] = {}
    reached = {edge.array for edge in edges if edge.kind in ("carried", "entering", "outer")}
    for node in program.body:
        if isinstance(node, Declaration) and node.array not in reached:
            match first_value(node.creation):
                case Const() as fill:
                    known[node.array] = fill
                case Unary("-", Const(number)) if number == inf:
                    known[node.array] = MINUS_INFINITY
                case _:
                    pass
    return known


def _loop_at(program: Program, place: Position) -> tuple[Loop, dict[str, Element]]:
    loop = node_at(program, place)
    assert isinstance(loop, Loop)
    return loop, {array.name: array.element for array in program.arrays}


def _takes_logarithms(update: Value) -> bool:
    return any(isinstance(p, Call) and p.function in ("log", "log2") for p in walk_value(update))


def _ranges(step: Iteration) -> dict[str, Range]:
    return {name: bounds for f in step.found.values() for name, bounds in f.family.over}


def _last(iteration: Iteration, array: str) -> tuple[Value, ...] | None:
    """Return what an iteration leaves in an array, where no state enters; None where one does."""
    known = [k for k in iteration.known if k.family.access.array == array]
    if any(iteration.depends_on_state(k.value) or k.value == Real("@") for k in known):
        return None
    values = tuple(iteration.plain(k.value) for k in known)
    return values if all(map(is_known, values)) else None
