"""The loop read again after it was rewritten, and held against what it should compute.

A rewriter is not believed. Its result is read as a recurrence of its own, by the exact flow of the
new listing; it must have the same states, start from the same values, and every update must be
proved equal to the one it was written from.
"""

from __future__ import annotations

from collections.abc import Mapping

from looptrans.algebra.iterations.inputs import Input
from looptrans.algebra.iterations.recurrence import Recurrence, StateVariable
from looptrans.algebra.normal_forms.normal import Assumptions, equality
from looptrans.algebra.operators.laws import Equation, Law
from looptrans.algebra.positional.bound_names import nameless
from looptrans.algebra.positional.cells import same_cell, same_range
from looptrans.algebra.positional.values import put, without_repeats
from looptrans.derivation.one_loop.bodies import recurrence_of
from looptrans.derivation.one_loop.writing import folded
from looptrans.derivation.step import NotDone
from looptrans.ir.condition import Condition, Data, Relation, conjuncts, with_tests
from looptrans.ir.listing import access_text, value_text
from looptrans.ir.program import Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Access,
    Binary,
    Holds,
    IndexValue,
    Range,
    Read,
    Real,
    Reduce,
    Select,
    Value,
)


def read_again(program: Program, loop: str) -> Recurrence:
    """Read a loop of a rewritten program.

    Raises:
        NotDone: It is no recurrence.
    """
    try:
        return recurrence_of(program, loop)
    except NotDone as error:
        raise NotDone(f"the rewritten loop {loop} cannot be read again: {error}") from None


def as_written(
    program: Program,
    loop: str,
    cells: tuple[tuple[Access, Value, Value], ...],
    *,
    bounds: Range | None = None,
    condition: Condition | None = None,
    standing: Mapping[Value, Value] | None = None,
    read_inside: tuple[str, ...] = (),
) -> Law:
    """Show that a loop of a rewritten program computes what it was written to compute.

    Args:
        program: The rewritten program.
        loop: The loop.
        cells: Each state's cell, its initial value and its update, all over the listing's names;
            a state is read as its cell.
        bounds: Where given, the range the loop must have.
        condition: The condition of its iterations.
        standing: What elements that an earlier loop has stored stand for.
        read_inside: Statements left as they were that look at states left as they were.

    Raises:
        NotDone: It has other states, starts from other values or runs for other iterations.
    """
    found = read_again(program, loop)
    if not set(found.read_inside) <= set(read_inside):
        raise NotDone(f"{found.read_inside[0]} looks at the state of {loop} in between")
    if bounds is not None and not same_range(found.range, bounds):
        raise NotDone(f"the rewritten loop {loop} has another range")
    equations = []
    for cell, initial, update in cells:
        state = next((s for s in found.states if _is(s, cell)), None)
        if state is None:
            raise NotDone(f"the rewritten loop {loop} does not carry {access_text(cell)}")
        if state.initial != initial:
            raise NotDone(
                f"{access_text(cell)} starts from {value_text(state.initial)}, "
                f"not from {value_text(initial)}"
            )
        read = over_listing(_under(found.condition, state.update, state.name), found)
        again = _nameless_sums(folded(without_repeats(read), standing or {}))
        wanted = _nameless_sums(_under(condition, update, cell))
        left, right, old = _named(again, wanted, Read(cell))
        (mine, chosen), (theirs, other) = _chosen(left, old), _chosen(right, old)
        if mine == theirs:
            left, right = chosen, other
        proof = equality(*_with_choices_named(left, right), Assumptions())
        if proof.answer != "proved":
            proof = equality(left, right, Assumptions())
        equations.append(Equation(access_text(cell), left, right, proof))
    extra = [s for s in found.states if not any(_is(s, cell) for cell, _, _ in cells)]
    if extra:
        raise NotDone(f"the rewritten loop {loop} carries {access_text(extra[0].access)} as well")
    return Law(
        "reading again",
        f"each update read from the new loop {loop} is the one it was written from",
        tuple(equations),
    )


def _nameless_sums(value: Value) -> Value:
    """Return a value in which it does not matter how sums call what they go over."""
    return replaced(value, lambda part: nameless(part) if isinstance(part, Reduce) else None)


def _is(state: StateVariable, cell: Access) -> bool:
    return same_cell(state.access, cell)


def _under(condition: Condition | None, value: Value, old: str | Access) -> Value:
    """Return a value that is taken under a condition only."""
    if condition is None:
        return value
    return Select(condition, value, Real(old) if isinstance(old, str) else Read(old))


def over_listing(value: Value, step: Recurrence) -> Value:
    """Return a value over states, inputs and parameters as one over the listing's names."""
    given: tuple[Input, ...] = (*step.inputs, *step.parameters)
    names: dict[str, Value] = {s.name: Read(s.access) for s in step.states}
    names |= {item.name: item.value for item in given}
    return put(value, names)


def _named(*values: Value) -> tuple[Value, ...]:
    """Give the cells and sums that values mention names by position."""
    names: dict[Value, Value] = {}

    def change(part: Value) -> Value | None:
        match part:
            case Holds(Relation()):
                return names.setdefault(part, Real(f"x{len(names) + 1}"))
            case Read() | Reduce() | IndexValue() | Binary("@", _, _):
                return names.setdefault(part, Real(f"x{len(names) + 1}"))
            case Real():
                return names.setdefault(part, Real(f"x{len(names) + 1}"))
            case Select(condition, chosen, otherwise):
                tested = replaced(_as_values(condition), change)
                assert isinstance(tested, Holds)
                return Select(
                    tested.condition, replaced(chosen, change), replaced(otherwise, change)
                )
            case _:
                return None

    return tuple(replaced(value, change) for value in values)


def _chosen(value: Value, old: Value) -> tuple[set[Condition], Value]:
    """Return under which conditions a value is not the old one, and what it is then."""
    conditions: set[Condition] = set()
    while isinstance(value, Select) and value.otherwise == old:
        conditions.update(conjuncts(value.condition))
        value = value.chosen
    return conditions, value


def _with_choices_named(left: Value, right: Value) -> tuple[Value, Value]:
    """Give choices names, the same to those that are alike: what holds of any number suffices."""
    names: dict[Value, Value] = {}

    def change(part: Value) -> Value | None:
        if isinstance(part, Select):
            return names.setdefault(part, Real(f"z{len(names) + 1}"))
        return None

    return replaced(left, change), replaced(right, change)


def _as_values(condition: Condition) -> Holds:
    """Return a condition in which comparisons of indices are values, so that they get names."""
    return Holds(
        with_tests(
            condition, lambda test: Data(Holds(test)) if isinstance(test, Relation) else test
        )
    )
