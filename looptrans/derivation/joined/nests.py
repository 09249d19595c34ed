"""The nests at the top of a listing, and which of them work out the same sums.

    for i: for j:  S = sum(Q[i, e] * K[j, e] for e)        gathers dQ[i, :]
    for j: for i:  T = sum(Q[i, e] * K[j, e] for e)        gathers dK[j, :]

Both have the same iterations, visited another way around: i of the one is i of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass

from looptrans.adjoint.equations.facts import Facts, bounds_of
from looptrans.algebra.positional.cells import condition_moved
from looptrans.ir.affine import is_same
from looptrans.ir.condition import Condition, Relation, conjuncts
from looptrans.ir.index import (
    Arith,
    Extremum,
    Index,
    Int,
    Let,
    Neg,
    Opaque,
    Param,
    Var,
    opaque_terms,
    variables,
)
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.value import Reduce, Value, has_reduction
from looptrans.transforms.editing.tree import statements_in

_INDICES = (Int, Var, Param, Arith, Neg, Extremum, Opaque, Let)


@dataclass(frozen=True, slots=True)
class Nest:
    """A loop at the top of a program, as far down as every block holds one loop or guard.

    Attributes:
        position: Which node of the program's body it is.
        way: The loops and guards, outermost first.
        block: What stands inside all of them.
    """

    position: int
    way: tuple[Loop | If, ...]
    block: tuple[Node, ...]

    @property
    def loops(self) -> tuple[Loop, ...]:
        """Its loops, outermost first."""
        return tuple(node for node in self.way if isinstance(node, Loop))

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What its guards say."""
        return tuple(node.condition for node in self.way if isinstance(node, If))

    @property
    def label(self) -> str:
        """The label of its first statement."""
        return statements_in(self.way[:1])[0]

    @property
    def scalars(self) -> dict[str, Value]:
        """What its block works out for the iteration, by name."""
        return {
            node.targets[0].array: node.values[0]
            for node in self.block
            if isinstance(node, Assign)
            and len(node.targets) == 1
            and not node.targets[0].subscripts
        }

    @property
    def sums(self) -> dict[str, Value]:
        """The scalars that are sums of their own."""
        return {name: value for name, value in self.scalars.items() if has_reduction(value)}


def nests_of(program: Program) -> tuple[Nest, ...]:
    """Return the nests at the top of a program, in the order of the text."""
    found = []
    for number, node in enumerate(program.body):
        if isinstance(node, Loop) and statements_in((node,)):
            way: list[Loop | If] = [node]
            while len(way[-1].body) == 1:
                (inner,) = way[-1].body
                if not isinstance(inner, Loop) and not (isinstance(inner, If) and not inner.orelse):
                    break
                way.append(inner)
            found.append(Nest(number, tuple(way), way[-1].body))
    return tuple(found)


def same_sums(guest: Nest, host: Nest) -> tuple[dict[str, str], int]:
    """Match sums that two nests work out.

    Returns:
        For loop variables of the one what they are in the other, and how many sums agree.
    """
    bound: dict[str, str] = {}
    count = 0
    for mine in guest.sums.values():
        for theirs in host.sums.values():
            tried = dict(bound)
            if _match(mine, theirs, tried):
                names = {loop.variable for loop in guest.loops}
                bound = {a: b for a, b in tried.items() if a in names}
                count += 1
                break
    return bound, count


def _match(a: object, b: object, bound: dict[str, str]) -> bool:
    """Tell whether values are alike but for the names of variables; indices may also differ."""
    if isinstance(a, Var) and isinstance(b, Var):
        if a.name not in bound and b.name in bound.values():
            return False
        return bound.setdefault(a.name, b.name) == b.name
    if isinstance(a, _INDICES) and isinstance(b, _INDICES):
        tried = dict(bound)
        if type(a) is type(b) and _alike(a, b, tried):
            bound |= tried
        # Whether others are equal is asked once the nests are one.
        return True
    return _alike(a, b, bound)


def _alike(a: object, b: object, bound: dict[str, str]) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(_match(x, y, bound) for x, y in zip(a, b, strict=True))
    if type(a) is not type(b) or not is_dataclass(a) or isinstance(a, type):
        return a == b
    if isinstance(a, Reduce) and isinstance(b, Reduce) and len(a.generators) == len(b.generators):
        for g, h in zip(a.generators, b.generators, strict=True):
            bound.pop(g.variable, None)
            if h.variable in bound.values():
                return False
            bound[g.variable] = h.variable
        found = all(
            _match(getattr(a, f.name), getattr(b, f.name), bound)
            for f in fields(a)
            if f.name != "generators"
        ) and all(
            _match((g.range, g.condition), (h.range, h.condition), bound)
            for g, h in zip(a.generators, b.generators, strict=True)
        )
        for g in a.generators:
            bound.pop(g.variable, None)
        return found
    return all(_match(getattr(a, f.name), getattr(b, f.name), bound) for f in fields(a))


# The iterations of nests


@dataclass(frozen=True, slots=True)
class Quotient:
    """A loop that is two: `for g in range(0, G): for h in range(g * R, g * R + R)`.

    Attributes:
        outer: The variable that is `inner // divisor`.
        inner: The variable that runs from 0 to `stop`.
        divisor: How many iterations of the inner loop each of the outer one has.
        stop: Where the inner one ends in all.
        contract: The assumption that says so, `H == G * R`.
    """

    outer: str
    inner: str
    divisor: Index
    stop: Index
    contract: Condition


def quotients_of(program: Program, nest: Nest) -> tuple[Quotient, ...]:
    """Return the loops of a nest that are two."""
    loops = {loop.variable: loop for loop in nest.loops}
    found = []
    for loop in nest.loops:
        match loop.range.start:
            case Arith("*", Var(outer), divisor) if outer in loops and loop.range.step == 1:
                pass
            case _:
                continue
        around = loops[outer].range
        end = Arith("+", loop.range.start, divisor)
        if around.start != Int(0) or around.step != 1 or not is_same(loop.range.stop, end):
            continue
        for condition in program.stated:
            match condition:
                case Relation("==", stop, Arith("*", a, b)) | Relation(
                    "==", Arith("*", a, b), stop
                ):
                    if {a, b} == {around.stop, divisor}:
                        found.append(Quotient(outer, loop.variable, divisor, stop, condition))
                        break
                case _:
                    pass
    return tuple(found)


def same_iterations(program: Program, guest: Nest, host: Nest, names: Mapping[str, str]) -> bool:
    """Tell by what loops and guards say whether two nests have the same iterations.

    Args:
        program: The program.
        guest: The one nest.
        host: The other.
        names: What each loop variable of the guest is in the host.
    """
    quotients = quotients_of(program, host)
    gone = {q.outer for q in quotients}
    left = {loop.variable for loop in host.loops} - gone
    if set(names) != {loop.variable for loop in guest.loops} or set(names.values()) != left:
        return False
    moved = {mine: Var(theirs) for mine, theirs in names.items()}
    mine = [condition_moved(c, moved) for c in _said(guest)]
    theirs = [c for q in quotients for c in (_least(q), _most(q))]
    inner = {q.inner for q in quotients}
    theirs += [
        c for c in _said(host, without=gone | inner) if not set(_variables(c)) & (gone - left)
    ]
    if any(set(_variables(c)) & gone for c in host.conditions):
        return False
    known = _ranges(program, (*mine, *theirs))
    return all(Facts((*theirs, *known)).imply(c) for c in mine) and all(
        Facts((*mine, *known)).imply(c) for c in theirs
    )


def _least(quotient: Quotient) -> Condition:
    return Relation(">=", Var(quotient.inner), Int(0))


def _most(quotient: Quotient) -> Condition:
    return Relation("<", Var(quotient.inner), quotient.stop)


def _said(nest: Nest, without: set[str] | frozenset[str] = frozenset()) -> list[Condition]:
    """Return what loops and guards say, each a comparison where it is one."""
    found: list[Condition] = []
    for loop in nest.loops:
        if loop.variable not in without:
            found += bounds_of(loop.variable, loop.range)
    for condition in nest.conditions:
        found += conjuncts(condition)
    return found


def _ranges(program: Program, conditions: tuple[Condition, ...]) -> list[Condition]:
    """Return what is declared of the integers that conditions read."""
    ranges = {array.name: array.value_range for array in program.arrays}
    found: list[Condition] = []
    for condition in conditions:
        if not isinstance(condition, Relation):
            continue
        for term in (*opaque_terms(condition.left), *opaque_terms(condition.right)):
            declared = ranges.get(term.array)
            if declared is not None:
                found.append(Relation(">=", term, declared[0]))
                found.append(Relation("<", term, declared[1]))
    return list(dict.fromkeys(found))


def _variables(condition: Condition) -> tuple[str, ...]:
    if not isinstance(condition, Relation):
        return ()
    return (*variables(condition.left), *variables(condition.right))
