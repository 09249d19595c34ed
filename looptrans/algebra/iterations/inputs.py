"""The inputs of an iteration: what does not depend on the state, under names of its own.

The largest parts without a state become inputs `x1`, `x2`, … (`p1`, … where they stay the same in
all iterations), except where two of them have something in common: then they are taken apart until
what is named apart is apart, so that no relation between inputs is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from looptrans.algebra.iterations.edges import NoRecurrence
from looptrans.algebra.positional.cells import same_cell
from looptrans.algebra.positional.values import ZERO
from looptrans.ir.condition import Condition, Data, Relation, parts_of, walk_condition, with_tests
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Compare,
    Const,
    Holds,
    IndexValue,
    Read,
    Real,
    Reduce,
    Select,
    Unary,
    Value,
    free_variables,
    rank_of,
    value_children,
    walk_value,
)


@dataclass(frozen=True, slots=True)
class Input:
    """A number an iteration is given.

    Attributes:
        name: `x1`, `x2`, …, or `p1`, `p2`, … where it is the same in every iteration.
        value: What it is, over the listing's names.
        over: The inner loop variables (and `:` for a whole row) it is a vector over.
        is_truth: Whether it is true or false rather than a number.
        is_nonnegative: Whether its form says that it is never below zero, as a square's does.
    """

    name: str
    value: Value
    over: tuple[str, ...] = ()
    is_truth: bool = False
    is_nonnegative: bool = False


@dataclass(slots=True)
class Naming:
    """Gives positional names to the states and to the parts that do not depend on them.

    Attributes:
        loop: The variable of the loop.
        accesses: What the names of the iteration (`@0`) stand for.
        states: The positional names of those that are states.
        inner: The variables of the loops inside.
        finals: Cells with what another loop left in them, which are `y1`, `y2`, … here.
        tells_choices: Whether what choices hang on, and what they choose, has names of its own.
    """

    loop: str
    accesses: Mapping[str, Access]
    states: Mapping[str, str]
    inner: frozenset[str]
    finals: tuple[Access, ...] = ()
    tells_choices: bool = False
    inputs: tuple[Input, ...] = ()
    parameters: tuple[Input, ...] = ()
    _taken_apart: set[Value] = field(default_factory=set)

    def named(self, updates: list[Value]) -> list[Value]:
        """Return the updates over names; `inputs` and `parameters` say what the names are."""
        while True:
            atoms = list(dict.fromkeys(atom for u in updates for atom in self._atoms(u)))
            shared = [
                atom
                for atom in atoms
                if _can_be_taken_apart(atom)
                and any(self._overlap(atom, part) for part in atoms if _is_other(part, atom))
            ]
            if not shared:
                break
            self._taken_apart.update(shared)
        names: dict[Value, str] = {}
        for atom in atoms:
            uniform = self._is_uniform(atom)
            listed = self.parameters if uniform else self.inputs
            name = f"{'p' if uniform else 'x'}{len(listed) + 1}"
            plain = self.plain(atom)
            given = Input(name, plain, self._over(atom), _is_truth(atom), _never_negative(plain))
            if uniform:
                self.parameters = (*self.parameters, given)
            else:
                self.inputs = (*self.inputs, given)
            names[atom] = name
        return [self._renamed(update, names) for update in updates]

    def depends(self, value: Value) -> bool:
        """Tell whether a value depends on the state, or on what another loop left behind."""
        return any(self._kept(part) is not None for part in walk_value(value))

    def _kept(self, value: Value) -> str | None:
        """Return the name of a state or of another loop's result; None for anything else."""
        match value:
            case Real(name):
                return self.states.get(name)
            case Read(access):
                for number, final in enumerate(self.finals, 1):
                    if final.array == access.array and same_cell(final, access):
                        return f"y{number}"
        return None

    def plain(self, value: Value) -> Value:
        """Return a value over the listing's names."""

        def change(part: Value) -> Value | None:
            if isinstance(part, Real) and part.name in self.accesses:
                return Read(self.accesses[part.name])
            return None

        return replaced(value, change)

    def _atoms(self, value: Value) -> Iterator[Value]:
        """Yield the parts to be named, left to right."""
        if self._kept(value) is not None:
            return
        if not self.depends(value):
            if self._is_constant(value):
                return
            chooses = self.tells_choices and isinstance(value, Select)
            if value not in self._taken_apart and not chooses and not _is_exponential(value):
                yield value
                return
        elif self._brings_rows_down(value):
            raise NoRecurrence("a row of the state is brought down to a number")
        for child in self._children(value):
            yield from self._atoms(child)

    def _children(self, value: Value) -> list[Value]:
        """Return the parts below a value, the conditions it tests as truth values."""
        match value:
            case Unary(_, operand):
                return [operand]
            case Binary(_, left, right) | Compare(_, left, right):
                return [left, right]
            case Select(condition, chosen, otherwise):
                return [*_leaves(condition), chosen, otherwise]
            case Holds(condition):
                return list(_leaves(condition))
            case Call(_, arguments):
                return list(arguments)
            case _:
                return []

    def _brings_rows_down(self, value: Value) -> bool:
        match value:
            case Binary("@", _, _) | Reduce():
                return True
            case Call("sum", _) | Call("max" | "min", (_,)):
                return True
            case _:
                return False

    def _renamed(self, value: Value, names: Mapping[Value, str]) -> Value:
        def change(part: Value) -> Value | None:
            kept = self._kept(part)
            if kept is not None:
                return Real(kept)
            if part in names:
                return Real(names[part])
            if isinstance(part, Select):
                tested = with_tests(part.condition, test)
                return Select(tested, inner(part.chosen), inner(part.otherwise))
            if isinstance(part, Holds):
                return Holds(with_tests(part.condition, test))
            return None

        def inner(part: Value) -> Value:
            return replaced(part, change)

        def test(tested: Condition) -> Condition:
            match tested:
                case Relation():
                    return Data(inner(Holds(tested))) if Holds(tested) in names else tested
                case Data(value):
                    return Data(inner(value))
                case _:
                    return tested

        return inner(value)

    def _is_constant(self, value: Value) -> bool:
        return not any(True for _ in _units(value))

    def _common(self, a: Value, b: Value) -> bool:
        """Tell whether two parts share something that changes from iteration to iteration."""
        mine = {unit for unit in _units(a) if self._varies(unit)}
        return any(unit in mine for unit in _units(b))

    def _overlap(self, atom: Value, part: Value) -> bool:
        """Tell whether another part has something of one, and not only all of it, as one number."""
        return self._common(atom, replaced(part, lambda p: ZERO if p == atom else None))

    def _is_uniform(self, value: Value) -> bool:
        return not any(self._varies(unit) for unit in _units(value))

    def _varies(self, unit: Value) -> bool:
        return (
            (isinstance(unit, Real) and unit.name in self.accesses)
            or self.loop in free_variables(unit)
            or (isinstance(unit, Reduce) and any(map(self._is_placeholder, walk_value(unit))))
        )

    def _is_placeholder(self, value: Value) -> bool:
        return isinstance(value, Real) and value.name in self.accesses

    def _over(self, value: Value) -> tuple[str, ...]:
        plain = self.plain(value)
        mentioned = [name for name in free_variables(plain) if name in self.inner]
        return (*dict.fromkeys(mentioned), *((":",) * rank_of(plain)))


def _leaves(condition: Condition) -> Iterator[Value]:
    """Yield what a condition tests, as truth values."""
    match condition:
        case Relation():
            yield Holds(condition)
        case Data(value):
            yield value
        case _:
            for part in parts_of(condition):
                yield from _leaves(part)


def _units(value: Value) -> Iterator[Value]:
    """Yield the smallest parts of a value that are not literals."""
    match value:
        case Read() | Real() | Reduce() | IndexValue() | Binary("@", _, _):
            yield value
        case Holds(condition):
            for part in walk_condition(condition):
                if isinstance(part, Relation):
                    yield Holds(part)
            for inner in value_children(value):
                yield from _units(inner)
        case Call("uniform", _):
            yield value
        case Select(condition, _, _):
            yield from _units(Holds(condition))
            yield from _units(value.chosen)
            yield from _units(value.otherwise)
        case _:
            for inner in value_children(value):
                yield from _units(inner)


def _is_exponential(value: Value) -> bool:
    return isinstance(value, Call) and value.function in ("exp", "exp2")


def _can_be_taken_apart(value: Value) -> bool:
    match value:
        case Binary("@", _, _):
            return False
        case Unary() | Binary():
            return True
        case Call(function, arguments):
            return function != "uniform" and (len(arguments) > 1 or function not in ("sum",))
        case _:
            return False


def _is_other(part: Value, atom: Value) -> bool:
    """Tell whether a part is another one, and not just the test whether the first is infinite."""
    match part:
        case Compare(_, left, Const(literal)) | Compare(_, Const(literal), left) if left == atom:
            return literal not in (inf, -inf)
        case _:
            return part != atom


def _never_negative(value: Value) -> bool:
    match value:
        case Const(literal):
            return literal >= 0
        case Binary("*", left, right) if left == right:
            return True
        case Binary("**", _, Const(power)):
            return isinstance(power, int) and power % 2 == 0
        case Binary("+" | "*" | "/", left, right):
            return _never_negative(left) and _never_negative(right)
        case Call(function, _):
            return function in ("abs", "sqrt", "exp", "exp2", "uniform")
        case _:
            return False


def _is_truth(value: Value) -> bool:
    return isinstance(value, Compare | Holds)
