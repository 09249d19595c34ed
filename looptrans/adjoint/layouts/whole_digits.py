"""Loops over all of a dimension that is written by digits, seen as two loops, and made one again.

    Y[i, 2 * g] = …; Y[i, 2 * g + 1] = …
    … sum(Y[i, f] for f in range(F))    ->    … sum(Y[i, 2 * f + r] for f in range(G) for r in …)

So seen, all subscripts of the array are of two digits. Behind that, what asks of two such loops
only where in the dimension they are is one loop again.

    for p in range(16):                          for p in range(4): for q in range(4):
        Y[4 * w + p // 4, 4 * v + p % 4] = …   ->    Y[4 * w + p, 4 * v + q] = …

A loop whose variable is divided, and the rest is asked for as well, is two loops in the same way.

Where the last low digits end before the radix does, a guard inside the two loops says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.adjoint.layouts.views import Use, uses_of
from looptrans.ir.affine import difference, is_same, simplified, total
from looptrans.ir.condition import ALWAYS, Condition, Relation
from looptrans.ir.index import (
    Arith,
    Index,
    Int,
    Var,
    children,
    rebuild,
    substitute,
    variables,
    walk,
)
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import indices_changed, reductions_rewritten, rewritten, value_changed
from looptrans.ir.value import Generator, Range, Reduce, Value, Whole
from looptrans.ir.walk import written_in
from looptrans.transforms.editing.naming import binders, fresh_name
from looptrans.transforms.editing.substitute import substitute_variable
from looptrans.transforms.over_blocks.block_starts import says


@dataclass(frozen=True, slots=True)
class Pair:
    """What a loop over all of a dimension is as two.

    Attributes:
        whole: Its range.
        count: Where the high digit ends.
        radix: Where the low digit ends.
        is_divided: Whether that is because subscripts take the quotient and the rest.
        variable: What the loop is called, where it was made two.
    """

    whole: Range
    count: Index
    radix: Index
    is_divided: bool = False
    variable: str = ""

    def at(self, high: str, low: str) -> Index:
        """Return where in the dimension two digits are."""
        return total(Arith("*", Var(high), self.radix), Var(low))

    @property
    def is_ragged(self) -> bool:
        """Whether the last low digits end before the radix does, perhaps."""
        return is_covered(self.whole.stop, self.count, self.radix)

    def asked(self, high: str, low: str) -> Condition:
        """Return the condition under which two digits are those of a number of the range."""
        return Relation("<", self.at(high, low), self.whole.stop) if self.is_ragged else ALWAYS

    def is_asked(self, condition: Condition, high: str, low: str) -> bool:
        """Tell whether a condition is that one."""
        match condition:
            case Relation("<", left, right):
                found = is_same(left, self.at(high, low)) and is_same(right, self.whole.stop)
                return found and self.is_ragged
            case _:
                return condition == ALWAYS and not self.is_ragged


def is_covered(extent: Index, count: Index, radix: Index) -> bool:
    """Tell whether so many blocks cover an extent, the last perhaps in part."""
    if is_same(extent, simplified(Arith("*", count, radix))):
        return False
    ahead = difference(total(extent, radix), Int(1))
    return is_same(count, simplified(Arith("//", ahead, radix)))


Ways = Callable[[Use, Index, Index], list[tuple[Index, Index]]]
"""For a use, its subscript and the extent there: the counts and radices of its digits."""


def pairs_of(program: Program, is_extent: Callable[[Index, Index], bool], ways: Ways) -> list[Pair]:
    """Return what loops over all of a dimension are as two, where digits write the dimension.

    Args:
        program: The program.
        is_extent: Tells whether a loop ends at an extent.
        ways: How a subscript is read as digits.
    """
    found: list[Pair] = []
    uses = list(uses_of(program))
    made = written_in(program.body)
    for array in program.arrays:
        mine = [use for use in uses if use.access.array == array.name]
        known = array.element == "float" and array.name in made and mine
        if not known or any(u.access.rank or len(u.access.subscripts) != array.rank for u in mine):
            continue
        for number, extent in enumerate(array.shape):
            wholes: dict[Range, None] = {}
            digits: list[list[tuple[Index, Index]]] = []
            for use in mine:
                index = use.access.indices[number]
                bounds = use.around.get(index.name) if isinstance(index, Var) else None
                is_whole = bounds is not None and bounds.step == 1 and bounds.start == Int(0)
                if extent is None:
                    break
                if bounds is not None and is_whole and is_extent(bounds.stop, extent):
                    wholes[bounds] = None
                else:
                    digits.append(ways(use, index, extent))
            if not wholes or not digits:
                continue
            for count, radix in digits[0]:
                if all(any(_are(each, count, radix) for each in other) for other in digits):
                    found += [Pair(bounds, count, radix) for bounds in wholes]
                    break
    return found


def divided_pairs(program: Program) -> list[Pair]:
    """Return what loops are as two of whose variables subscripts take the quotient and the rest."""
    found: dict[tuple[str, Range, Index], set[str]] = {}
    for use in uses_of(program):
        for index in (s for s in use.access.subscripts if not isinstance(s, Whole)):
            for part in walk(index):
                match part:
                    case Arith("//" | "%" as op, Var(name), radix) if name in use.around:
                        found.setdefault((name, use.around[name], radix), set()).add(op)
                    case _:
                        pass
    return [
        Pair(bounds, count, radix, is_divided=True)
        for (_, bounds, radix), ops in found.items()
        if len(ops) == 2 and (count := _count(bounds, radix)) is not None
    ]


def _count(bounds: Range, radix: Index) -> Index | None:
    """Return how often a radix goes into a range from 0 on, where it does so without a rest."""
    if bounds.start != Int(0) or bounds.step != 1:
        return None
    match bounds.stop, radix:
        case Int(stop), Int(part) if part > 0 and stop % part == 0:
            return Int(stop // part)
        case Arith("*", left, right), _ if right == radix and not variables(bounds.stop):
            return left
        case Arith("*", left, right), _ if left == radix and not variables(bounds.stop):
            return right
        case _:
            return None


def _are(digits: tuple[Index, Index], count: Index, radix: Index) -> bool:
    return is_same(digits[0], count) and is_same(digits[1], radix)


@dataclass(slots=True)
class InTwo:
    """Makes loops over all of a dimension two.

    Attributes:
        program: The program before.
        pairs: What such loops are.
        made: The variables of the two loops, of each that was made two.
    """

    program: Program
    pairs: list[Pair]
    made: dict[tuple[str, str], Pair]

    def run(self) -> Program:
        """Return the program afterwards."""
        return replace(
            self.program, body=reductions_rewritten(self.program.body, self._node, self._reduction)
        )

    def _node(self, node: Node) -> tuple[Node, ...]:
        match node:
            case Loop() if (pair := self._pair(node.range)) is not None:
                high, low = self._named(pair, node.variable)
                here = {node.variable: pair.at(high, low)}
                body = tuple(substitute_variable(inner, here) for inner in node.body)
                body = indices_changed(body, lambda index: _told(index, pair, high, low))
                if pair.is_ragged:
                    body = (If(pair.asked(high, low), body),)
                inner = Loop(low, Range(Int(0), pair.radix), body)
                return (replace(node, variable=high, range=_up_to(pair.count), body=(inner,)),)
            case _:
                return (node,)

    def _reduction(self, value: Reduce) -> Reduce:
        first, *rest = value.generators
        pair = self._pair(first.range)
        if rest or first.condition != ALWAYS or pair is None:
            return value
        high, low = self._named(pair, first.variable)
        moved = _put(value.body, {first.variable: pair.at(high, low)})
        moved = value_changed(moved, lambda index: _told(index, pair, high, low))
        both = (
            Generator(high, _up_to(pair.count), ALWAYS),
            Generator(low, _up_to(pair.radix), pair.asked(high, low)),
        )
        return Reduce(value.function, both, moved)

    def _pair(self, bounds: Range) -> Pair | None:
        return next((pair for pair in self.pairs if pair.whole == bounds), None)

    def _named(self, pair: Pair, variable: str) -> tuple[str, str]:
        taken = {name for names in self.made for name in names}
        high = fresh_name(self.program, variable, taken)
        low = fresh_name(self.program, variable, {*taken, high})
        self.made[high, low] = replace(pair, variable=variable)
        return high, low


def as_before(body: tuple[Node, ...], made: Mapping[tuple[str, str], Pair]) -> tuple[Node, ...]:
    """Make loops that were made two one again, digits the quotient and the rest of its variable.

    Args:
        body: A block that has the loops as they were made.
        made: The pairs, by what their loops are called.
    """

    def node(node: Node) -> tuple[Node, ...]:
        match node:
            case Loop(high, body=(Loop(low) as inner,)) if own := made.get((high, low)):
                inside = _inside(own, high, inner)
                if inside is None or _binds(inside, own.variable):
                    return (node,)
                moved = indices_changed(inside, lambda i: _whole(i, own, high, low))
                return (replace(node, variable=own.variable, range=own.whole, body=moved),)
            case _:
                return (node,)

    def reduction(value: Reduce) -> Value:
        match value:
            case Reduce(function, (Generator(high), Generator(low) as last), inner):
                own = made.get((high, low))
                if own is None or not own.is_asked(last.condition, high, low):
                    return value
                if _binds((Assign("S", (), (inner,)),), own.variable):
                    return value
                moved = value_changed(inner, lambda i: _whole(i, own, high, low))
                return Reduce(function, (Generator(own.variable, own.whole, ALWAYS),), moved)
            case _:
                return value

    return reductions_rewritten(body, node, reduction)


def _inside(pair: Pair, high: str, inner: Loop) -> tuple[Node, ...] | None:
    """Return what the two loops of a pair hold for each number; None where not for each of them."""
    match inner.body:
        case (If(condition, body, ()),) if pair.is_ragged:
            return body if pair.is_asked(condition, high, inner.variable) else None
        case _:
            return None if pair.is_ragged else inner.body


def _binds(body: tuple[Node, ...], variable: str) -> bool:
    return any(variable in binders(node) for node in body)


def _whole(index: Index, pair: Pair, high: str, low: str) -> Index:
    """Return an index over digits as one over the variable of the loop that they are of."""
    if not {high, low} & {*variables(index)}:
        return index
    own = Var(pair.variable)
    moved = substitute(index, {low: difference(own, Arith("*", Var(high), pair.radix))})
    if high not in variables(moved := simplified(moved)):
        return moved
    if isinstance(index, Var):
        return Arith("//" if index.name == high else "%", own, pair.radix)
    return rebuild(index, tuple(_whole(part, pair, high, low) for part in children(index)))


def joined_again(body: tuple[Node, ...], made: Mapping[tuple[str, str], Pair]) -> tuple[Node, ...]:
    """Make pairs of loops one where nothing asks more of them than where in the dimension they are.

    Args:
        body: A block.
        made: The pairs, by the extents they have.
    """

    def pair(one: Range, other: Range) -> Pair | None:
        for each in made.values():
            if (one, other) == (_up_to(each.count), _up_to(each.radix)):
                return each
        return None

    def node(node: Node) -> tuple[Node, ...]:
        match node:
            case Loop(body=(Loop(body=(Assign() as added,)) as inner,)) if (
                not pair(node.range, inner.range)
                and pair(inner.range, node.range)
                and _is_sum(added)
            ):
                swapped = replace(inner, body=(replace(node, body=inner.body),))
                found = rewritten((swapped,), joined)
                return found if found != (swapped,) else (node,)
            case _:
                return joined(node)

    def joined(node: Node) -> tuple[Node, ...]:
        match node:
            case Loop(high, body=(Loop(low) as inner,)) if own := pair(node.range, inner.range):
                inside = _inside(own, high, inner)
                if inside is None:
                    return (node,)
                here = _merged(own, high, low)
                moved = tuple(substitute_variable(each, here) for each in inside)
                if says(moved, high):
                    return (node,)
                back = {low: Var(high)}
                moved = tuple(substitute_variable(each, back) for each in moved)
                return (replace(node, range=own.whole, body=moved),)
            case _:
                return (node,)

    def reduction(value: Reduce) -> Value:
        match value:
            case Reduce(function, (Generator(high) as one, Generator(low) as other), inner):
                own = pair(one.range, other.range)
                if own is None or one.condition != ALWAYS:
                    return value
                if not own.is_asked(other.condition, high, low):
                    return value
                moved = _put(inner, _merged(own, high, low))
                if says((Assign("S", (), (moved,)),), high):
                    return value
                moved = _put(moved, {low: Var(high)})
                return Reduce(function, (Generator(high, own.whole, ALWAYS),), moved)
            case _:
                return value

    return reductions_rewritten(body, node, reduction)


def _is_sum(node: Assign) -> bool:
    """Tell whether a statement adds to a cell, so that its loops may be in any order."""
    if len(node.targets) != 1:
        return False
    found = accumulation(node.targets[0], node.values[0])
    return found is not None and found[0] == "sum" and found[2] == ALWAYS


def _merged(pair: Pair, high: str, low: str) -> dict[str, Index]:
    """Return what the low digit is where its name says where in the dimension both are."""
    return {low: difference(Var(low), Arith("*", Var(high), pair.radix))}


def _put(value: Value, here: Mapping[str, Index]) -> Value:
    (found,) = substitute_variable(Assign("S", (), (value,)), here).values
    return found


def _told(index: Index, pair: Pair, high: str, low: str) -> Index:
    """Return an index in which digits stand for the quotient and the rest of where both are."""
    told = rebuild(index, tuple(_told(part, pair, high, low) for part in children(index)))
    match told:
        case Arith("//" | "%" as op, left, radix) if radix == pair.radix and is_same(
            left, pair.at(high, low)
        ):
            return Var(high if op == "//" else low)
        case _:
            return told if told == index else simplified(told)


def _up_to(extent: Index) -> Range:
    return Range(Int(0), simplified(extent))
