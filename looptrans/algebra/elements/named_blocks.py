"""A block's step and an element's over names by position, as the laws that compare them want.

m[i] <- max(m[i], max(S[i, j] for j in block))     s1 <- max(s1, a1), a1 = max of x1
m[i] <- max(m[i], S[i, j])                    ->   s1 <- max(s1, x1)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from looptrans.algebra.elements.block_laws import BlockLaws, Gathered
from looptrans.algebra.elements.block_steps import is_known
from looptrans.algebra.iterations.edges import NoRecurrence
from looptrans.algebra.iterations.inputs import Naming
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.positional.cells import same_cell
from looptrans.algebra.positional.numbers import Domain
from looptrans.algebra.positional.values import MINUS_INFINITY, put
from looptrans.ir.condition import Condition, Data, Relation, walk_condition
from looptrans.ir.listing import access_text
from looptrans.ir.program import Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Call,
    Const,
    Holds,
    Read,
    Real,
    Reduce,
    Select,
    Value,
    free_variables,
    walk_value,
)
from looptrans.ir.walk import loops_in
from looptrans.transforms.editing.tree import node_at
from looptrans.transforms.over_blocks.block_passes import BlockPasses

EXPONENTIALS = ("exp", "exp2")


def block_laws(
    passes: BlockPasses, before: Recurrence, after: Recurrence, masks: Collection[Condition]
) -> BlockLaws:
    """Return the laws by which a loop over blocks is one over their elements.

    Args:
        passes: The loop over blocks.
        before: What a block does.
        after: What an element does.
        masks: Conditions whose elements are masked by their form.

    Raises:
        NoRecurrence: The two have not the same state, or something is not told by the state and
            the elements alone.
    """
    match = _same_states(before, after)
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
    all_ = [r for r in sums if isinstance(r, Reduce)]
    bodies = [r.body for r in all_]
    tests: list[Value] = [Select(r.generators[0].condition, Real("@on"), Const(0.0)) for r in all_]
    if passes.places is not None:
        raw, bodies, tests = (
            [passes.places.value(value) for value in values] for values in (raw, bodies, tests)
        )
    _require_known(passes, (*raw, *theirs, *bodies, *tests))
    _require_known_beginnings(passes.program, before)
    kept = {f"@{name}": name for name in same}
    kept |= {name: f"a{number}" for number, name in enumerate(sums.values(), 1)}
    kept["@on"] = "on"
    naming = Naming(passes.variable, {}, kept, _inner_variables(passes), tells_choices=True)
    values = naming.named([*raw, *theirs, *bodies, *tests])
    count = len(raw)
    found, masked = _gathered(all_, values[2 * count :], masks)
    positive = {
        each.name
        for each in found
        if each.function == "sum"
        and isinstance(each.body, Call)
        and each.body.function in EXPONENTIALS
    }
    given = (*naming.inputs, *naming.parameters)
    domain = Domain(
        positive=frozenset(positive),
        nonnegative=frozenset(item.name for item in given if item.is_nonnegative),
        truths=frozenset(item.name for item in given if item.is_truth) | _tested(values),
    )
    names = [s.name for s in before.states]
    order = [match[s.name] for s in after.states]
    return BlockLaws(
        dict(zip(names, values[:count], strict=True)),
        dict(zip(order, values[count : 2 * count], strict=True)),
        found,
        {s.name: s.initial for s in before.states if isinstance(s.initial, Const)},
        passes.is_full,
        masked,
        domain,
        {
            item.name: item.value.condition
            for item in given
            if isinstance(item.value, Holds) and isinstance(item.value.condition, Relation)
        },
    )


def _same_states(before: Recurrence, after: Recurrence) -> dict[str, str]:
    """Return for each state of an element's step the state of a block's step of the same cells."""
    found = {}
    for state in before.states:
        other = [s for s in after.states if same_cell(s.access, state.access)]
        if len(other) != 1 or other[0].over != state.over:
            raise NoRecurrence(f"{access_text(state.access)} is no state of both loops")
        found[other[0].name] = state.name
    if len(after.states) != len(before.states):
        raise NoRecurrence("the loops have not the same state")
    return found


def _require_known(passes: BlockPasses, values: Iterable[Value]) -> None:
    """See to it that values are told by the state and the elements, wherever blocks begin."""
    for value in values:
        if not is_known(value):
            raise NoRecurrence("a loop inside makes something of what else the block sets")
        for part in walk_value(value):
            if isinstance(part, Read) and part.access.array in passes.within:
                cell = access_text(part.access)
                raise NoRecurrence(f"{cell} is read as a block before has left it")
        if passes.names[0] in free_variables(value):
            raise NoRecurrence(f"a block is told by {passes.names[0]}")


def _require_known_beginnings(program: Program, before: Recurrence) -> None:
    """See to it that states begin as numbers or inputs."""
    inputs = program.input_names
    for state in before.states:
        reason = f"{access_text(state.access)} begins as what is not known"
        for part in walk_value(state.initial):
            unknown = isinstance(part, Read) and part.access.array not in inputs
            if unknown or (state.initial != part and part == MINUS_INFINITY):
                raise NoRecurrence(reason)
        if not isinstance(state.initial, Const | Read | Real):
            raise NoRecurrence(reason)


def _inner_variables(passes: BlockPasses) -> frozenset[str]:
    loop = node_at(passes.program, passes.position)
    return frozenset(n.variable for n in loops_in((loop,))) - {passes.variable}


def _gathered(
    sums: list[Reduce], named: list[Value], masks: Collection[Condition]
) -> tuple[tuple[Gathered, ...], frozenset[str]]:
    """Return what is gathered over a block, and the inputs that are -inf where they are masked."""
    found, masked = [], set()
    bodies, tests = named[: len(sums)], named[len(sums) :]
    for number, (whole, body, test) in enumerate(zip(sums, bodies, tests, strict=True), 1):
        assert isinstance(test, Select)
        if isinstance(body, Real) and MINUS_INFINITY in walk_value(whole.body):
            masked.add(body.name)
        is_masked = whole.generators[0].condition in masks
        found.append(Gathered(f"a{number}", whole.function, test.condition, body, is_masked))
    return tuple(found), frozenset(masked)


def _raw(step: Recurrence, value: Value, states: Mapping[str, str]) -> Value:
    """Return an update over states, its inputs and parameters put in."""
    names: dict[str, Value] = {name: Real(f"@{new}") for name, new in states.items()}
    given = {item.name: item.value for item in (*step.inputs, *step.parameters)}
    return put(value, names | given)


def _tested(values: Iterable[Value]) -> frozenset[str]:
    """Return the names whose truth a choice hangs on."""
    return frozenset(
        part.value.name
        for value in values
        for choice in walk_value(value)
        if isinstance(choice, Select)
        for part in walk_condition(choice.condition)
        if isinstance(part, Data) and isinstance(part.value, Real)
    )
