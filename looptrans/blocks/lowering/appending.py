"""Statements of a fold, taken for a whole block of iterations at once.

    m_ij = max(m, S_ij)                        m_ij = max(m, max over j of S_ij)
    l = l * exp(m - m_ij) + exp(S_ij - m_ij)   l = l * exp(m - m_ij) + sum over j of exp(S_ij - …)

That this is what the iterations do one by one is what `algebra.appending.append` proves. A maximum
that is looked at in exponents only is kept in units of log2(e), so that exp becomes exp2 and the
factor joins the others: max(m, S) * c = max(m * c, S * c) for c > 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import reduce
from typing import TypeGuard

from looptrans.algebra.appending.append import Append
from looptrans.algebra.appending.append_laws import left_out
from looptrans.algebra.appending.append_state import AppendedState, Pick
from looptrans.algebra.positional.values import summands
from looptrans.blocks.block_ir.arithmetic import (
    LN2,
    LOG2E,
    as_float,
    both,
    conjuncts,
    is_positive,
    negative,
    plus,
    times,
)
from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Cast,
    Dim,
    Expr,
    Name,
    Number,
    Position,
    Scalar,
    Sign,
    Where,
    dims_of,
    kind_of,
    walk,
)
from looptrans.blocks.block_ir.identities import identity
from looptrans.blocks.block_ir.ops import Let, ops_in
from looptrans.blocks.lowering.builder import Builder
from looptrans.blocks.lowering.contraction import known_where, reduced, summed
from looptrans.blocks.lowering.picked import Attained, attained, picked
from looptrans.blocks.lowering.running import Scans
from looptrans.blocks.lowering.runs import Part
from looptrans.blocks.lowering.units import in_units, is_taken_off_elements
from looptrans.blocks.lowering.values import Values, split
from looptrans.blocks.scheduled.bottom import Unsure, worked_out
from looptrans.blocks.scheduled.grid import factors_of
from looptrans.blocks.scheduled.serial import RunSerially
from looptrans.blocks.scheduled.sites import Path
from looptrans.ir import value as source
from looptrans.ir.condition import Data, Not
from looptrans.ir.monoids import Monoid
from looptrans.ir.program import Node
from looptrans.ir.value import Compare, Const, Read, Select, Value


@dataclass(slots=True)
class Appending:
    """A fold whose iterations are taken in blocks.

    Attributes:
        b: The kernel.
        v: Its values.
        fact: That blocks may be appended.
        dim: The dimension of the loop.
        path: The place of the loop.
        body: Its body.
        pure: What each iteration sets for itself before it reads it.
    """

    b: Builder
    v: Values
    fact: Append
    dim: Dim
    path: Path
    body: tuple[Node, ...]
    pure: frozenset[str]
    outer: Appending | None = None
    scans: Scans = field(init=False)
    states: dict[str, AppendedState] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    newer: dict[str, tuple[str, Value]] = field(default_factory=dict)
    finite: dict[str, Name] = field(default_factory=dict)
    attained: dict[str, tuple[Value, Attained]] = field(default_factory=dict)
    folded: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    kept_in_log2: tuple[str, ...] = ()
    base: int = 0
    masks: int = 0

    def enter(self) -> None:
        """Decide about units, and bring the states to them."""
        self.states = {state.access.array: state for state in self.fact.states}
        running = {array: self.states[array] for array in sorted(self.fact.scanned)}
        if running and self.outer is not None:
            why = f"the loop {self.dim.name} inside looks at states in between"
            raise RunSerially(self.outer.path, why)
        self.scans = Scans(self.b, self.v, self.dim, self.path, self._mask)
        self.scans.find(self.body, running)
        self.base = len(self.b.guards)
        found = []
        for array, state in self.states.items():
            if array in running or is_taken_off_elements(self.b.program.body, self.body, array):
                continue
            if state.operator in ("max", "min") and state.is_plain:
                units = in_units(self.body, array, set(self.pure - self.b.kept))
                if units is not None:
                    found.append(array)
                    self.members |= units.members
                    self.folded |= units.folded
        self.v.log2 |= self.members
        self.kept_in_log2 = tuple(found)
        for array in found:
            if not self._begins_apart(array):
                self._rescaled(array, LOG2E, "in units of log2(e)")

    def leave(self) -> None:
        """Bring the states back to natural units where someone looks at them."""
        for array in self.kept_in_log2:
            if self._outside(array) or self._is_kept(array):
                self._rescaled(array, LN2, "back from units of log2(e)")
        self.v.log2 -= self.members
        for array in self.folded:
            self.v.scaled.pop(array, None)
        self.v.known.clear()

    def begin(self, part: Part) -> None:
        """Begin a run of blocks."""
        self.aliases = {a: a for a in self.states if a not in self.scans.running}
        self.newer = {}
        self.finite = {}
        self.attained = {}
        self.v.known.clear()
        self.masks = self.base + len(part.masks)
        self.scans.begin()

    def _outside(self, array: str) -> bool:
        """Tell whether the array is read anywhere but in the loop."""
        own = self.b.storage[array].sites
        return any(s.path[: len(self.path)] != self.path and not s.is_write for s in own)

    def _is_kept(self, array: str) -> bool:
        return array in self.b.kept or self.b.storage[array].scope != self.path[:-1]

    def _begins_apart(self, array: str) -> bool:
        """Tell whether the state begins with something that has no unit."""
        for op in reversed(self.b.frames[-1].ops):
            if isinstance(op, Let) and op.name == array:
                return isinstance(op.value, Number) and (
                    op.value.value == 0 or math.isinf(op.value.value)
                )
            if any(isinstance(each, Let) and each.name == array for each in ops_in((op,))):
                return False  # a loop before this one has set it
        return False

    def _rescaled(self, array: str, factor: Expr, note: str) -> None:
        name = self.b.values[array]
        self.b.emit(Let(array, times(name, factor), (), note, name.dims))

    # Statements

    def taken(self, array: str, value: Value) -> Expr | None:
        """Return the value a statement has for a whole block; None where it is as it is written."""
        if array in self.folded:
            return None
        if array in self.scans.running:
            return self.scans.taken(array)
        if array in self.states and self.states[array].pick is not None:
            return self._picked(array, value)
        return self._taken(array, value)

    def _picked(self, array: str, value: Value) -> Expr:
        """Return what a state is after a block that takes what attains an extremum."""
        state = self.states[array]
        pick = state.pick
        assert pick is not None
        of = next(a for a, each in self.states.items() if each.state.name == pick.of)
        match value:
            case Select(tested, chosen, otherwise):
                pass
            case _:
                raise self._one_by_one(array)
        while isinstance(tested, Not):
            tested = tested.part
        if of not in self.attained:
            offered: list[Value] = []
            match tested:
                case Data(Compare(_, left, right)):
                    sides = (left, right), (right, left)
                    offered = [one for one, other in sides if self._state(other) == of]
            if len(offered) != 1:
                raise self._one_by_one(array)
            self._attain(of, offered[0])
        term = chosen if self._state(otherwise) == array else otherwise
        found = self.attained[of][1]
        lowered = self.v.kept(term, array)
        return picked(
            self.b, found, pick, self.dim, lowered, self.v.kept(Read(state.access), array)
        )

    def _attain(self, of: str, offered: Value) -> None:
        """Work out the extremum of the block, where states are set to what attains it."""
        state = self.states[of]
        if of in self.attained and self.attained[of][0] == offered:
            return
        if of in self.attained or self._around(of):
            raise self._one_by_one(of)
        old = self.v.kept(Read(state.access), of)
        elements = self.v.kept(offered, of)
        picks = self._picks_from(of)
        if self._is_own(elements) and not self._is_guarded():
            elements = self._masked(elements, state.operator)
        found = attained(self.b, state, picks, self.dim, elements, old, self._mask())
        self.attained[of] = (offered, found)

    def _picks_from(self, of: str) -> list[Pick]:
        """Return when states are set to what attains an extremum."""
        name = self.states[of].state.name
        picks = [each.pick for each in self.states.values() if each.pick is not None]
        return [pick for pick in picks if pick.of == name]

    def _one_by_one(self, array: str) -> RunSerially:
        return RunSerially(self.path, f"{array} is not set in a way that is known of blocks")

    def _taken(self, array: str, value: Value) -> Expr | None:
        chosen, guard, old = self._unguarded(value)
        if guard is None:
            return self._joined(array, value)
        with_finite = self._finite_of(guard)
        if with_finite is not None and self._holds_at_bottom(array, chosen, with_finite[0]):
            name, finite = with_finite
            around = dict(self.v.instead)
            self.v.instead[name] = finite
            try:
                return self._taken(array, chosen)
            finally:
                self.v.instead = around
        found = self._taken(array, chosen)
        if found is None:
            return None
        assert old is not None
        return Where(self.b.condition(guard, self.v.truth_of), found, self.v.kept(old, array))

    def unit(self, array: str, value: Value) -> Expr | None:
        """Return the value of a name that is kept in units of log2(e), up to a factor."""
        if array not in self.folded:
            return None
        raw, factor = split(self.v.number(value))
        if factor is not None and is_positive(factor, self.b.positive):
            self.v.scaled[array] = self._outside_named(array, factor)
            return raw
        if factor is None:
            self.v.scaled[array] = None
            return raw
        inner, self.v.scaled[array] = self._by_sign(array, factor)
        return times(raw, inner)

    def _by_sign(self, stem: str, factor: Expr) -> tuple[Expr, Expr | None]:
        """Split a factor of any sign: what elements are multiplied by, and their maximum.

        Where the launcher finds the factor above zero the first is 1. Else the second is.
        """
        named = self._outside_named(stem, factor)
        reals = tuple(dict.fromkeys(p.name for p in walk(factor) if _is_real(p)))
        if not reals or not is_positive(factor, self.b.positive | set(reals)):
            return named, None
        frame = self.b.frames[0]
        sign, one = Sign(reals), Number(1.0)
        found: list[Name] = []
        for place, value, note in (
            ("inside", Where(sign, one, named), "for elements"),
            ("outside", Where(sign, named, one), "for their maximum"),
        ):
            if value not in frame.named:
                name = self.b.name(f"{stem}_{place}", (place, factor))
                frame.ops.append(Let(name, value, (), note))
                frame.named[value] = Name(name, ())
            found.append(frame.named[value])
        inner, outer = found
        self.b.positive |= {outer.name}
        return inner, outer

    def _outside_named(self, stem: str, factor: Expr) -> Expr:
        """Give a factor that is worked out a name before all loops."""
        if isinstance(factor, Number | Scalar):
            return factor
        if any(isinstance(part, Name | Position) for part in walk(factor)):
            return factor
        frame = self.b.frames[0]
        if factor not in frame.named:
            name = self.b.name(f"{stem}_scale", ("scale", factor))
            frame.ops.append(Let(name, factor, (), "in units of log2(e)"))
            frame.named[factor] = Name(name, ())
            if is_positive(factor, self.b.positive):
                self.b.positive |= {name}
        return frame.named[factor]

    def after(self, array: str, value: Value) -> None:
        """Take note of a statement that was lowered."""
        self.finite.pop(array, None)
        if isinstance(value, Read) and value.access.array in self.aliases:
            if array not in self.states:
                self.aliases[array] = self.aliases[value.access.array]
        elif array not in self.states:
            self.aliases.pop(array, None)

    def _unguarded(self, value: Value) -> tuple[Value, Data | None, Value | None]:
        """Take `x if c else s` apart, s a state and c the same for the whole block."""
        if (
            isinstance(value, Select)
            and isinstance(value.condition, Data)
            and self._state(value.otherwise) is not None
        ):
            condition = self.b.condition(value.condition, self.v.truth_of)
            if self.dim not in dims_of(condition):
                return value.chosen, value.condition, value.otherwise
        return value, None, None

    def _state(self, value: Value) -> str | None:
        if isinstance(value, Read):
            return self.aliases.get(value.access.array)
        return None

    def _finite_of(self, guard: Data) -> tuple[str, Name] | None:
        """Return, for a guard `t > -inf`, a name that is t where it holds and 0 elsewhere."""
        match guard.value:
            case Compare(">" | "!=", Read(access), Const(number)) if number == -math.inf:
                name = access.array
            case _:
                return None
        if name not in self.newer:
            return None
        if name not in self.finite:
            block = self.b.values[name]
            value = Where(Binary(">", block, Number(-math.inf)), block, Number(0.0))
            chosen = self.b.name(f"{name}_finite", ("finite", name))
            self.finite[name] = self.b.named(chosen, value, note="0 as long as nothing was seen")
            # What the maximum of other blocks was not below says nothing of these.
            kept = {(expr, other) for expr, other in self.b.nonpositive if other != chosen}
            self.b.nonpositive = kept | {(expr, chosen) for expr, other in kept if other == name}
        return name, self.finite[name]

    def _holds_at_bottom(self, array: str, update: Value, name: str) -> bool:
        """Tell whether an update with 0 for the maximum leaves what no element has moved."""
        state, term = self.newer[name]
        own = self.states.get(array)
        initial = own.state.initial if own is not None else None
        if not isinstance(initial, Const):
            return False
        bottom: dict[str, float] = {name: 0.0, state: -math.inf}
        bottom |= {alias: -math.inf for alias, of in self.aliases.items() if of == state}
        bottom[array] = float(initial.value)
        bottom |= {a: float(initial.value) for a, of in self.aliases.items() if of == array}
        try:
            return worked_out(update, bottom, term) == float(initial.value)
        except Unsure:
            return False

    def _joined(self, array: str, value: Value) -> Expr | None:
        match value:
            case source.Call("max" | "min" as function, arguments) if len(arguments) > 1:
                return self._extreme(array, function, arguments)
            case source.Binary("*"):
                found = self._multiplied(value)
                return found if found is not None else self._added(array, value)
            case source.Binary("+" | "-"):
                return self._added(array, value)
            case _:
                return None

    def _extreme(self, array: str, op: str, arguments: tuple[Value, ...]) -> Expr | None:
        own = [a for a in arguments if self._state(a) is not None]
        names = {self._state(a) for a in own}
        if len(own) != 1:
            return None
        state = next(iter(names))
        assert state is not None
        fact = self.states[state]
        if not fact.is_plain or fact.operator != op:
            return None
        found: Expr = self.v.kept(own[0], state)
        others = [a for a in arguments if a is not own[0]]
        if self._picks_from(state):
            if len(others) != 1:
                raise self._one_by_one(array)
            self._attain(state, others[0])
            self.newer[array] = (state, others[0])
            attained = self.attained[state][1]
            if op == "max" and self._is_least_outside(attained.elements):
                self.b.nonpositive.add((attained.elements, array))
            return Call(op, (found, attained.extremum))
        monoid: Monoid = "max" if op == "max" else "min"
        for other in others:
            found = Call(op, (found, self._greatest(array, state, monoid, other)))
        if len(others) == 1:
            self.newer[array] = (state, others[0])
        return found

    def _greatest(self, array: str, state: str, op: Monoid, value: Value) -> Expr:
        """Return the maximum of a value over the block, in the units of the state."""
        factor: Expr | None = None
        if state in self.kept_in_log2:
            expr, factor = self.v.raw_in_log2(value)
            if factor is not None and not is_positive(factor, self.b.positive):
                inner, factor = self._by_sign(array, factor)
                expr = times(expr, inner)
            expr = as_float(expr)
            if not isinstance(expr, Name | Cast) and self.dim in dims_of(expr):
                factor = None if factor is None else self._outside_named(array, factor)
                expr = self.b.named(self.b.name(_stem(expr), ("elements", value)), expr)
                expr = self._masked(expr, op)
                self.v.known[value] = (expr, factor)
            elif isinstance(expr, Name) and expr.holds is None and self._is_guarded():
                expr = self._seen(expr, op)
                self.v.known[value] = (expr, factor)
        else:
            expr = self.v.kept(value, state)
        if kind_of(expr) == "int":
            pass
        elif self._is_own(expr) and self._is_guarded():
            if isinstance(value, Read):
                expr = self.v.instead[value.access.array] = self._seen(expr, op)
        elif self._is_own(expr):
            expr = self._masked(expr, op)
        elif isinstance(expr, Cast) and isinstance(expr.operand, Name):
            load = self.b.read.get(expr.operand.name)
            if load is not None and set(conjuncts(self._mask())) <= set(conjuncts(load.mask)):
                self.b.with_other(expr.operand.name, identity(op, expr))
        scaled = expr if factor is None else times(expr, factor)
        if op == "max" and self._is_least_outside(expr):
            self.b.nonpositive.add((scaled, array))
        found = reduced(self.b, op, expr, self.dim, self._mask())
        for context in self._around(state):
            found = reduced(self.b, op, found, context.dim, context._mask())
        return found if factor is None else times(found, factor)

    def _seen(self, name: Name, op: Monoid) -> Name:
        """Mask a value inside of a guard; outside of that it may be asked for as it is."""
        return self._masked(name, op, self.b.name(f"{name.name}_seen", ("seen", name.name)))

    def _is_own(self, expr: Expr) -> TypeGuard[Name]:
        """Tell whether a value is what an iteration has worked out for itself."""
        return isinstance(expr, Name) and expr.name in self.pure and expr.holds is None

    def _around(self, state: str) -> list[Appending]:
        """Return the folds around this one that the state is carried by as well."""
        found = []
        context = self.outer
        while context is not None:
            if state in context.states:
                found.append(context)
            context = context.outer
        return found

    def outermost(self, array: str) -> int:
        """Return how many guards stand around all the folds that carry what a name holds."""
        state = self.aliases.get(array, array)
        return min(context.base for context in (self, *self._around(state)))

    def _mask(self) -> Expr | None:
        return both(self.b.inside((self.dim,)), *self.b.guards[self.base :])

    def _is_guarded(self) -> bool:
        """Tell whether a guard stands around the statement, inside of the loop."""
        return len(self.b.guards) != self.masks

    def _is_least_outside(self, expr: Expr) -> bool:
        """Tell whether a value is -inf in iterations that do not count."""
        name = expr.operand if isinstance(expr, Cast) else expr
        parts = conjuncts(self._mask())
        if not isinstance(name, Name):
            return not parts
        return all(known_where(self.b, part).get(name.name) == -math.inf for part in parts)

    def _masked(self, name: Name, op: Monoid, new: str | None = None) -> Name:
        """Mask a value once, where it is a name, so that all that follows from it is right."""
        if self.outer is not None:
            return name
        parts = conjuncts(self._mask())
        least = identity(op, name)
        needed = [c for c in parts if known_where(self.b, c).get(name.name) != least]
        condition = both(*needed)
        if condition is None:
            return name
        value = Where(condition, name, Number(least))
        dims = dims_of(value)
        known = {} if new else self.b.known.get(name.name, {})
        name = Name(new or name.name, dims)
        self.b.emit(Let(name.name, value, (), "outside: the least there is", dims))
        self.b.values[name.name] = name
        self.b.known[name.name] = known | dict.fromkeys(parts, least)
        return name

    def _multiplied(self, value: Value) -> Expr | None:
        parts = factors_of(value)
        own = [p for p in parts if self._state(p) is not None]
        if len(own) != 1:
            return None
        state = self._state(own[0])
        assert state is not None
        fact = self.states[state]
        if not fact.is_plain or fact.operator != "*":
            return None
        found = self.v.kept(own[0], state)
        for part in parts:
            if part is not own[0]:
                found = times(found, self._all(self.v.kept(part, state), "*", state))
        return found

    def _all(self, value: Expr, op: Monoid, state: str) -> Expr:
        found = reduced(self.b, op, value, self.dim, self._mask())
        for context in self._around(state):
            found = reduced(self.b, op, found, context.dim, context._mask())
        return found

    def _added(self, array: str, value: Value) -> Expr | None:
        terms = summands(value)
        mentioned = {
            s
            for _, term in terms
            for part in factors_of(term)
            if (s := self._state(part)) is not None and self.states[s].operator == "+"
        }
        if array in mentioned:
            mentioned = {array}
        if len(mentioned) != 1:
            return None
        state = next(iter(mentioned))
        carried: Expr | None = None
        offered: Expr | None = None
        for sign, term in terms:
            expr = self.v.kept(term, state)
            expr = expr if sign > 0 else negative(expr)
            if any(self._state(part) == state for part in factors_of(term)):
                if self.dim in dims_of(expr):
                    raise RunSerially(
                        self.path, f"what {array} is multiplied by differs for each {self.dim.name}"
                    )
                carried = expr if carried is None else plus(carried, expr)
            else:
                expr = self._with_numbers(state, expr)
                offered = expr if offered is None else plus(offered, expr)
        assert carried is not None
        if offered is None:
            return carried
        outer = self._around(state)
        if not outer:
            return summed(self.b, offered, self.dim, self._mask(), carried)
        found = summed(self.b, offered, self.dim, self._mask())
        for context in outer[:-1]:
            found = reduced(self.b, "+", found, context.dim, context._mask())
        return plus(carried, reduced(self.b, "+", found, outer[-1].dim, outer[-1]._mask()))

    def _with_numbers(self, state: str, term: Expr) -> Expr:
        """Leave out what is no number where an infinity is offered: exp(x - t) * x.

        The guard of the listing may pass by what comes before the first number of a block.
        """
        names = {each.state.name: array for array, each in self.states.items()}
        for name, bound in left_out(self.states[state], self.states.values()):
            given = list(dict.fromkeys(v for of, v in self.newer.values() if of == names[name]))
            if len(given) != 1:
                raise self._one_by_one(state)
            tested = Binary("!=", self.v.kept(given[0], state), Number(bound))
            inside: list[Expr] = []
            outside: list[Expr] = []
            for part in _multiplied_in(term):
                (inside if set(dims_of(part)) <= set(dims_of(tested)) else outside).append(part)
            if not inside:
                raise self._one_by_one(state)
            kept: Expr = Where(tested, reduce(times, inside), Number(0.0))
            term = reduce(times, outside, kept)
        return term


def _multiplied_in(expr: Expr) -> list[Expr]:
    if isinstance(expr, Binary) and expr.op == "*":
        return [*_multiplied_in(expr.left), *_multiplied_in(expr.right)]
    return [expr]


def _is_real(part: Expr) -> TypeGuard[Scalar]:
    return isinstance(part, Scalar) and part.kind == "float"


def _stem(expr: Expr) -> str:
    """Return a name for a value: the arrays it is made of, and its dimensions."""
    arrays = [p.holds for p in walk(expr) if isinstance(p, Name) and p.holds is not None]
    others = [p.name for p in walk(expr) if isinstance(p, Name) and p.dims]
    names = [dim.name for dim in dims_of(expr)]
    letters = "".join(names) if all(len(name) == 1 for name in names) else "_".join(names)
    stem = "".join(list(dict.fromkeys(arrays))[:2]) or (others[0] if others else "x")
    return f"{stem}_{letters}"
