"""A loop over numbers of two digits, seen as a loop for each digit.

    for h in range(0, H):                 H == G * R            for g in range(0, G):
      … Q[h, e] * K[h // R, j, e] …              ->               for r in range(0, R):
                                                                    … Q[g * R + r, e] * K[g, j, e] …

Seen so, the iterations that read the same K are those of one loop, and can be rows of one block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from looptrans.algebra.free import freed
from looptrans.derivation.one_loop.writing import done
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.condition import Relation
from looptrans.ir.diagnostic import Mistake
from looptrans.ir.index import Arith, Index, Int, Param, Var, children, rebuild, variables, walk
from looptrans.ir.listing import index_text
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import indices_changed
from looptrans.ir.value import Access, Range, Whole
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import accesses, loops_in, nodes
from looptrans.transforms.editing.naming import binders, fresh_name, names_used
from looptrans.transforms.editing.tree import (
    LoopPath,
    find_loop,
    loop_paths,
    replace_at,
    statements_in,
)

Factors = Counter[Index]


@dataclass(frozen=True, slots=True)
class Digits:
    """How the numbers of a loop are seen.

    Attributes:
        variable: The variable of the loop.
        radix: What the low digit stays below.
        count: What the high digit stays below.
        why: Why there are just as many pairs of digits as numbers.
    """

    variable: str
    radix: Index
    count: Index
    why: str

    def seen(self, index: Index, high: Index, low: Index) -> Index:
        """Return an index expression over the digits."""
        match index:
            case Var(name) if name == self.variable:
                return Arith("+", Arith("*", high, self.radix), low)
            case Arith("%", Var(name), divisor) if name == self.variable and divisor == self.radix:
                return low
            case Arith("//", Var(name), divisor) if name == self.variable:
                over = _over(divisor, self.radix)
                if over is not None:
                    return high if over == Int(1) else Arith("//", high, over)
            case _:
                pass
        operands = children(index)
        if not operands:
            return index
        return rebuild(index, tuple(self.seen(each, high, low) for each in operands))


def digit_loops(program: Program, loop: str, radix: str) -> DerivationStep:
    """See a loop over numbers of two digits as two.

    The loop over the digit that more is shared along is the outer one. Where that is the low one,
    numbers come in another order, and so it is required that they may.

    Args:
        program: The program.
        loop: The loop.
        radix: What the low digit stays below, as written.

    Raises:
        NotDone: Its numbers are not known to have two such digits.
    """
    path, digits = digits_of(program, loop, radix)
    variable = digits.variable
    high = _name(program, digits.count, f"{variable}_high")
    low = _name(program, digits.radix, f"{variable}_low", besides=high)
    body = indices_changed(path.loop.body, lambda i: digits.seen(i, Var(high), Var(low)))
    turned = _low_is_shared(path.loop, digits)
    inner, outer = (high, low) if turned else (low, high)
    ends = {high: digits.count, low: digits.radix}
    order = "the numbers come in the order they came in"
    if turned:
        free = freed(program, path)
        if free is None:
            raise NotDone(f"{loop} is not known to be free, so its order stays")
        order = f"iterations of {variable} touch no cell in common, so they may run in any order"
    loops = replace(
        path.loop,
        variable=outer,
        range=Range(Int(0), ends[outer]),
        body=(Loop(inner, Range(Int(0), ends[inner]), body),),
    )
    shown = Certificate(
        "order",
        f"{high} * {radix} + {low} is each number of {variable} once",
        "legal",
        f"{digits.why}; {order}",
    )
    after = done(replace_at(program, path.position, (loops,)))
    name = f"see {variable} as {outer} and {inner}, {variable} = {high} * {radix} + {low}"
    return DerivationStep(name, "digits", (loop, radix), program, after, (shown,))


def digits_of(program: Program, loop: str, radix: str) -> tuple[LoopPath, Digits]:
    """Return a loop and how its numbers have two digits.

    Args:
        program: The program.
        loop: The loop.
        radix: What the low digit stays below, as written.

    Raises:
        NotDone: They are not known to have two such digits.
    """
    try:
        path = find_loop(program, loop)
    except Mistake as error:
        raise NotDone(str(error)) from None
    digits = next((d for d in _possible(program, path) if index_text(d.radix) == radix), None)
    if digits is None:
        raise NotDone(f"{loop} is not known to go over numbers of two digits")
    return path, digits


def loops_of_digits(program: Program) -> Iterator[tuple[str, str]]:
    """Yield the arguments of such steps: for each loop the digits that most is shared along."""
    for path in loop_paths(program):
        found = list(_possible(program, path))
        if found:
            best = max(found, key=lambda digits: sum(_shares(path.loop, digits)))
            label = statements_in((path.loop,))[0]
            yield f"{path.variable}@{label}", index_text(best.radix)


def _name(program: Program, size: Index, otherwise: str, besides: str = "") -> str:
    """Return what a digit is called that stays below a size: g below G where that is free."""
    taken = names_used(program) | {besides}
    if isinstance(size, Param) and size.name.isupper() and size.name.lower() not in taken:
        return size.name.lower()
    return fresh_name(program, otherwise)


def _possible(program: Program, path: LoopPath) -> Iterator[Digits]:
    """Yield how the numbers of a loop can be seen, of what stands in it."""
    loop = path.loop
    bounds, variable = loop.range, loop.variable
    if loop.execution != "sequential" or bounds.start != Int(0) or bounds.step != 1:
        return
    if any(variable in binders(node) for node in loop.body):
        return
    seen = [
        index.right
        for index in _indices(loop.body)
        if isinstance(index, Arith) and index.op in ("//", "%") and index.left == Var(variable)
    ]
    for radix in dict.fromkeys(seen):
        found = _count(program, loop, radix)
        if found is not None:
            yield Digits(variable, radix, *found)


def _count(program: Program, loop: Loop, radix: Index) -> tuple[Index, str] | None:
    """Return what the high digit stays below, and why."""
    stop = loop.range.stop
    left = _over(stop, radix)
    if left is not None and left != Int(1):
        return left, f"{loop.variable} goes up to {index_text(stop)}"
    for condition in program.stated:
        match condition:
            case Relation("==", left_side, right_side):
                for one, other in ((left_side, right_side), (right_side, left_side)):
                    count = _over(other, radix) if one == stop else None
                    if count is not None and count != Int(1):
                        return count, f"{index_text(stop)} == {index_text(other)}"
            case _:
                pass
    match radix:
        # The last number has a high digit below G only where G divides H.
        case Arith("//", whole, Param() as groups) if whole == stop and _reads_along(
            program, loop, radix, groups
        ):
            digit = f"{loop.variable} // ({index_text(radix)})"
            return groups, f"{digit} stays below the extent {index_text(groups)} it is read along"
        case _:
            return None


def _reads_along(program: Program, loop: Loop, radix: Index, extent: Index) -> bool:
    """Tell whether an array of some extent is read along it at the high digit."""
    shapes = {array.name: array.shape for array in program.arrays}
    return any(
        subscript == Arith("//", Var(loop.variable), radix) and size == extent
        for access in _accesses(loop)
        for subscript, size in zip(access.subscripts, shapes[access.array], strict=True)
    )


def _factors(index: Index) -> Factors | None:
    match index:
        case Param():
            return Counter((index,))
        case Arith("//", Param(), Param()):
            return Counter((index,))
        case Arith("*", left, right):
            one, other = _factors(left), _factors(right)
            return None if one is None or other is None else one + other
        case _:
            return None


def _over(index: Index, divisor: Index) -> Index | None:
    """Return what a product of sizes is divided by another one; None where it is no factor."""
    whole, part = _factors(index), _factors(divisor)
    if whole is None or part is None or part - whole:
        return None
    found: Index | None = None
    for factor in (whole - part).elements():
        found = factor if found is None else Arith("*", found, factor)
    return Int(1) if found is None else found


def _shares(loop: Loop, digits: Digits) -> tuple[int, int]:
    """Return how many accesses within inner loops go along the high digit alone, and the low."""
    high, low = Var("high digit"), Var("low digit")
    inside = {node.variable for node in loops_in(loop.body)}
    found = [0, 0]
    for access in _accesses(loop):
        own = [s for s in access.subscripts if not isinstance(s, Whole)]
        if not any(inside & set(variables(subscript)) for subscript in own):
            continue
        seen = [digits.seen(subscript, high, low) for subscript in own]
        along = [any(part == digit for s in seen for part in walk(s)) for digit in (high, low)]
        if along[0] != along[1]:
            found[along.index(True)] += 1
    return found[0], found[1]


def _low_is_shared(loop: Loop, digits: Digits) -> bool:
    along_high, along_low = _shares(loop, digits)
    return along_low > along_high


def _accesses(loop: Loop) -> Iterator[Access]:
    for node in nodes(loop.body):
        if isinstance(node, Assign) or (isinstance(node, If) and node.label is not None):
            for relation in accesses(node):
                yield relation.access


def _indices(body: tuple[Node, ...]) -> tuple[Index, ...]:
    """Return the index expressions of a block and all below them."""
    found: dict[Index, None] = {}

    def seen(index: Index) -> Index:
        found.update(dict.fromkeys(walk(index)))
        return index

    indices_changed(body, seen)
    return tuple(found)
