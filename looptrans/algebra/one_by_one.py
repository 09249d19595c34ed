"""A loop over blocks, made a loop over their elements: each element is a block of its own.

    for j0 in range(0, N, 16):                       for j in range(0, N):
        n = m                                            n = max(m, s[j])
        for j in …: n = max(n, s[j])          ->         l = l * exp(m - n) + exp(s[j] - n)
        l = l * exp(m - n)                               m = n
        for j in …: l = l + exp(s[j] - n)
        m = n

With B(s, X) for what a block with the elements X makes of the state s, and step(s, x) for the loop
on the right, which is what is on the left where a block is one element, three things are shown:

    an element more      B(s, X + [x]) = step(B(s, X), x)
    an element           B(s, [x]) = step(s, x)
    no element           B(s, []) = s, where a block may have none

By induction B(s, [x, y, …, z]) = step(… step(step(s, x), y) …, z), and so on for all blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from looptrans.algebra.block_steps import BlockIteration, plain_of, with_makers
from looptrans.algebra.cells import mentions, same_cell
from looptrans.algebra.certificate import ir_certificate
from looptrans.algebra.inputs import Naming, index_variables
from looptrans.algebra.iteration import Iteration, NoRecurrence, edges_of
from looptrans.algebra.laws import Equation, Law, joined
from looptrans.algebra.normal import Assumptions, equality
from looptrans.algebra.numbers import Domain
from looptrans.algebra.recurrence import Recurrence, assembled, flow_of
from looptrans.algebra.values import names_of, put
from looptrans.ir.condition import Condition, Data, Every, Not, Some, Truth
from looptrans.ir.listing import access_text
from looptrans.ir.program import Assign, Loop, Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Const, Holds, Real, Reduce, Value
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import live_out, nodes
from looptrans.transforms.block_passes import NEUTRAL, BlockPasses, block_passes
from looptrans.transforms.tree import node_at

MOST_TRUTHS = 4


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
    reasons = []
    for passes in block_passes(program):
        try:
            laws = _Proof.of(passes).laws()
        except NoRecurrence as error:
            reasons.append(f"the blocks of {passes.names[0]}: {error}")
            continue
        failed = [law for law in laws if law.answer != "proved"]
        if not failed:
            return OneByOne(passes.one_by_one, passes.names, laws), tuple(reasons)
        text = f"the blocks of {passes.names[0]} are not shown to be elements one by one"
        reasons.append(f"{text}: {failed[0].name} is {failed[0].answer}")
    return None, tuple(reasons)


@dataclass(frozen=True, slots=True)
class _Sum:
    """Something gathered over a block.

    Attributes:
        name: What it is called.
        function: What gathers it.
        condition: For which elements.
        body: The term of an element.
    """

    name: str
    function: str
    condition: Condition
    body: Value


@dataclass(frozen=True, slots=True)
class _Proof:
    """The steps of a block and of an element, over the same names.

    Attributes:
        block: The states after a block.
        step: The states after an element.
        sums: What is gathered over the block.
        first: What the states are at first, where that is known.
        is_full: Whether each block surely has an element.
        domain: What is known of the names.
    """

    block: Mapping[str, Value]
    step: Mapping[str, Value]
    sums: tuple[_Sum, ...]
    first: Mapping[str, Value]
    is_full: bool
    domain: Domain

    @staticmethod
    def of(passes: BlockPasses) -> _Proof:
        """Read both loops.

        Raises:
            NoRecurrence: One is none.
        """
        return _Reading(passes).proof()

    def laws(self) -> tuple[Law, ...]:
        """Decide the laws."""
        more, one = [], []
        starts: list[Mapping[str, Value]] = [{}]
        if any(isinstance(value, Const) for value in self.first.values()):
            starts.append(self.first)
        for case in self._cases():
            for start in starts:
                more += self._more(case, start)
                one += self._one(case, start)
        nothing = {each.name: Const(NEUTRAL[each.function]) for each in self.sums}
        found = (
            Law("an element more", "B(s, X + [x]) = step(B(s, X), x)", tuple(more)),
            Law("an element", "B(s, [x]) = step(s, x)", tuple(one)),
        )
        if self.is_full:
            return found
        none = [self._equation(n, put(v, nothing), Real(n)) for n, v in self.block.items()]
        return (*found, Law("no element", "B(s, []) = s", tuple(none)))

    def _cases(self) -> Iterator[dict[str, Value]]:
        """Yield what may be true of an element as far as conditions ask."""
        asked = dict.fromkeys(
            name
            for each in self.sums
            for name in names_of(Holds(each.condition))
            if name in self.domain.truths
        )
        if len(asked) > MOST_TRUTHS:
            raise NoRecurrence("the passes of a block ask too many things of an element")
        for values in product((True, False), repeat=len(asked)):
            yield {name: Const(value) for name, value in zip(asked, values, strict=True)}

    def _more(self, case: dict[str, Value], start: Mapping[str, Value]) -> Iterator[Equation]:
        longer: dict[str, Value] = {}
        for each in self.sums:
            if _holds(each.condition, case):
                monoid = "+" if each.function == "sum" else each.function
                longer[each.name] = joined(monoid, Real(each.name), each.body)
        so_far = {name: put(value, start) for name, value in self.block.items()}
        for name, value in self.block.items():
            left = put(put(put(value, longer), start), case)
            right = put(put(self.step[name], so_far), case)
            yield self._equation(name, left, right)

    def _one(self, case: dict[str, Value], start: Mapping[str, Value]) -> Iterator[Equation]:
        alone = {
            each.name: each.body
            if _holds(each.condition, case)
            else Const(NEUTRAL[each.function])
            for each in self.sums
        }
        for name, value in self.block.items():
            left = put(put(put(value, alone), start), case)
            right = put(put(self.step[name], start), case)
            yield self._equation(name, left, right)

    def _equation(self, of: str, left: Value, right: Value) -> Equation:
        return Equation(of, left, right, equality(left, right, Assumptions(self.domain)))


@dataclass(slots=True)
class _Reading:
    passes: BlockPasses

    def proof(self) -> _Proof:
        passes = self.passes
        block, step = self._block(), self._step()
        all_ = block.known
        # What there is of for each element is looked at below.
        block.known = [k for k in all_ if passes.variable not in dict(k.family.over)]
        before = assembled(passes.program, block, guarded=False)
        block.known = all_
        after = assembled(passes.one_by_one, step, guarded=False)
        for each in (before, after):
            if each.is_scan:
                raise NoRecurrence(f"{each.read_inside[0]} looks at the state in between")
        self._is_all(block, step, before)
        return self._named(before, after)

    def _block(self) -> BlockIteration:
        passes = self.passes
        flow = flow_of(passes.program)
        node = node_at(passes.program, passes.position)
        assert isinstance(node, Loop)
        edges = edges_of(passes.program, flow, passes.position)
        elements = {array.name: array.element for array in passes.program.arrays}
        block = BlockIteration(
            node,
            passes.position,
            edges,
            flow.assumptions,
            elements,
            program=passes.program,
            flow=flow,
            variable=passes.variable,
            block=passes.block,
        )
        block.run()
        with_makers(block, passes.program, flow)
        within = [f for f in block.found.values() if f.family.access.array in passes.within]
        if within:
            cell = access_text(within[0].family.access)
            raise NoRecurrence(f"{cell} is read as a block before has left it")
        return block

    def _step(self) -> Iteration:
        passes = self.passes
        program = passes.one_by_one
        flow = flow_of(program)
        node = node_at(program, passes.place)
        assert isinstance(node, Loop)
        elements = {array.name: array.element for array in program.arrays}
        edges = edges_of(program, flow, passes.place)
        step = Iteration(node, passes.place, edges, flow.assumptions, elements)
        step.run()
        with_makers(step, program, flow)
        return step

    def _is_all(self, block: BlockIteration, step: Iteration, states: Recurrence) -> None:
        """See to it that the loops leave the same behind in whatever is no state of theirs.

        Raises:
            NoRecurrence: They may not.
        """
        seen = set(live_out(self.passes.program))
        seen |= {e.array for e in block.edges if e.kind in ("leaving", "outer")}
        seen |= {e.array for e in step.edges if e.kind in ("leaving", "outer")}
        for node in (n for n in nodes(block.loop.body) if isinstance(n, Assign)):
            for target in node.targets:
                if target.array not in seen:
                    continue
                if any(same_cell(target, s.access) for s in states.states):
                    continue
                if not mentions(target, self.passes.variable):
                    raise NoRecurrence(f"{access_text(target)} is left behind by each block")
                left = [_last(each, target.array) for each in (block, step)]
                if left[0] is None or left[0] != left[1]:
                    raise NoRecurrence(f"{access_text(target)} is set by what a block has seen")

    def _named(self, before: Recurrence, after: Recurrence) -> _Proof:
        passes = self.passes
        match = {}
        for state in before.states:
            other = [s for s in after.states if same_cell(s.access, state.access)]
            if len(other) != 1 or other[0].over != state.over:
                raise NoRecurrence(f"{access_text(state.access)} is no state of both loops")
            match[other[0].name] = state.name
        if len(after.states) != len(before.states):
            raise NoRecurrence("the loops have not the same state")
        sums: dict[Value, str] = {}

        def gathered(part: Value) -> Value | None:
            match part:
                case Reduce(_, (each,), _) if (
                    each.variable == passes.variable and each.range == passes.block
                ):
                    return Real(sums.setdefault(part, f"@sum{len(sums) + 1}"))
                case _:
                    return None

        same = {state.name: state.name for state in before.states}
        raw = [replaced(_raw(before, s.update, same), gathered) for s in before.states]
        theirs = [_raw(after, s.update, match) for s in after.states]
        kept = {f"@{name}": name for name in same}
        kept |= {name: f"a{number}" for number, name in enumerate(sums.values(), 1)}
        bodies = [r.body for r in sums if isinstance(r, Reduce)]
        tests = [Holds(r.generators[0].condition) for r in sums if isinstance(r, Reduce)]
        for value in (*raw, *theirs):
            if passes.names[0] in index_variables(value):
                raise NoRecurrence(f"a block is told by {passes.names[0]}")
        inner = frozenset(
            n.variable
            for n in nodes((node_at(passes.program, passes.position),))
            if isinstance(n, Loop)
        ) - {passes.variable}
        naming = Naming(passes.variable, {}, kept, inner)
        values = naming.named([*raw, *theirs, *bodies, *tests])
        count, gathered_ = len(raw), len(sums)
        names = [s.name for s in before.states]
        order = [match[s.name] for s in after.states]
        first = {s.name: s.initial for s in before.states if isinstance(s.initial, Const)}
        found = []
        for number, (whole, body, test) in enumerate(
            zip(sums, values[2 * count :][:gathered_], values[2 * count + gathered_ :], strict=True), 1
        ):
            assert isinstance(whole, Reduce)
            condition = test.condition if isinstance(test, Holds) else Data(test)
            found.append(_Sum(f"a{number}", whole.function, condition, body))
        given = (*naming.inputs, *naming.parameters)
        domain = Domain(
            nonnegative=frozenset(item.name for item in given if item.is_nonnegative),
            truths=frozenset(item.name for item in given if item.is_truth),
        )
        return _Proof(
            dict(zip(names, values[:count], strict=True)),
            dict(zip(order, values[count : 2 * count], strict=True)),
            tuple(found),
            first,
            passes.is_full,
            domain,
        )


def _raw(step: Recurrence, value: Value, states: Mapping[str, str]) -> Value:
    """Return an update over states, its inputs and parameters put in."""
    names: dict[str, Value] = {name: Real(f"@{new}") for name, new in states.items()}
    given = {item.name: item.value for item in (*step.inputs, *step.parameters)}
    return put(value, names | given)


def _last(iteration: Iteration, array: str) -> tuple[Value, ...] | None:
    """Return what an iteration leaves in an array, where no state enters; None where one does."""
    known = [k for k in iteration.known if k.family.access.array == array]
    if any(iteration.depends_on_state(k.value) or k.value == Real("@") for k in known):
        return None
    return tuple(plain_of(k.value, iteration) for k in known)


def _holds(condition: Condition, case: Mapping[str, Value]) -> bool:
    match condition:
        case Truth(value):
            return value
        case Data(Real(name)) if isinstance(case.get(name), Const):
            return case[name] == Const(True)
        case Not(part):
            return not _holds(part, case)
        case Every(parts):
            return all(_holds(part, case) for part in parts)
        case Some(parts):
            return any(_holds(part, case) for part in parts)
        case _:
            raise NoRecurrence("it is not known for which elements a pass runs")
