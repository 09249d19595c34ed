"""Weights from whose exponents the logarithm of their sum is taken off, divided by the sum instead.

    lse = m + log(l)                           lse = m + log(l)
    for j: p = exp(S[i, j] - lse)       ->     for j: p = exp(S[i, j] - m) / l

The loop need not wait then for a number that is known only once all weights are added up: it can
be one pass with those that find m and l. A sum that stands in the logarithm gets a name first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from looptrans.adjoint.carried.recurrences import again
from looptrans.adjoint.exponentials.totals import EXPONENTIALS
from looptrans.algebra.free import is_overwritten
from looptrans.algebra.positional.cells import value_moved
from looptrans.algebra.positional.values import add, summands
from looptrans.ir.creation import creation_of
from looptrans.ir.index import Index, Var
from looptrans.ir.index import variables as index_variables
from looptrans.ir.program import Assign, Declaration, Node, Program
from looptrans.ir.rewrite import replaced, replaced_part, rewritten
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Const,
    Create,
    Read,
    Reduce,
    Select,
    Unary,
    Value,
    walk_value,
)
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import Placed, placed
from looptrans.transforms.editing.accesses import AccessSite, listed, sites_of
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.tree import node_at, replace_at

_Signed = tuple[int, Value]
_Moved = dict[str, Index]


@dataclass(frozen=True, slots=True)
class Divided:
    """A program whose weights are divided by their sum.

    Attributes:
        program: The program afterwards.
        names: What was taken off exponents.
        sums: What is divided by.
    """

    program: Program
    names: tuple[str, ...]
    sums: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"divide by {listed(self.sums)} where {listed(self.names)} is taken off an exponent"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "exp(x - (m + log(l))) = exp(x - m) / l, where l is positive"
        reason = f"{listed(self.sums)} adds up exponentials, and is 0 where there are none"
        return Certificate("algebra", law, "legal", reason)


@dataclass(frozen=True, slots=True)
class _Logarithm:
    """A name that is set to a sum in which there is the logarithm of a sum of exponentials.

    Attributes:
        write: Where it is set.
        terms: The sum.
    """

    write: AccessSite
    terms: tuple[_Signed, ...]

    @property
    def accesses(self) -> tuple[Access, ...]:
        """What is read for it."""
        return tuple(
            part.access
            for _, term in self.terms
            for part in walk_value(term)
            if isinstance(part, Read)
        )

    def at(self, program: Program, read: Read, place: Placed) -> tuple[_Signed, ...] | None:
        """Return the sum by its names where it is read; None where it may be another one."""
        names = _still(program, self, read, place)
        if names is None:
            return None
        return tuple((sign, value_moved(term, names)) for sign, term in self.terms)


def with_weights_divided(program: Program) -> Divided | None:
    """Divide by sums of exponentials instead of taking their logarithms off exponents.

    Args:
        program: The program.
    """
    named = _with_sums_named(program)
    found = None if named is None else _divided(named)
    return found or _divided(program)


def _with_sums_named(program: Program) -> Program | None:
    """Give sums of exponentials in logarithms a name, in a cell for each cell of what is set.

    lse[i] = m + log(sum(exp(S[i, j] - m) for j))    ->    lse_sum[i] = sum(exp(S[i, j] - m) for j)
                                                           lse[i] = m + log(lse_sum[i])
    """
    taken: list[str] = []
    made: list[Node] = []

    def change(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Assign) or len(node.values) != 1 or len(node.targets) != 1:
            return (node,)
        (target,), (value,) = node.targets, node.values
        inside = [
            (part, part.arguments[0])
            for _, part in summands(value, 1)
            if isinstance(part, Call)
            and part.function in EXPONENTIALS.values()
            and isinstance(part.arguments[0], Reduce)
            and _is_never_negative(part.arguments[0], "")
        ]
        array = program.array(target.array)
        creation = creation_of(program, target.array)
        if len(inside) != 1 or array.role == "input" or target.rank:
            return (node,)
        if array.rank and creation is None:
            return (node,)
        ((logarithm, total),) = inside
        name = fresh_name(program, f"{target.array.replace('.', '_')}_sum", taken)
        taken.append(name)
        if creation is not None and array.rank:
            shape = Create("zeros", creation.shape, None, "float32")
            made.append(Declaration(name, shape))
        cell = Access(name, target.subscripts)
        rest = replaced_part(value, logarithm, Call(logarithm.function, (Read(cell),)))
        first = Assign("S", (cell,), (total,))
        return (first, replace(node, values=(rest,), augmented=False))

    body = rewritten(program.body, change)
    if not taken:
        return None
    return again(replace(program, body=(*made, *body)))


def _divided(program: Program) -> Divided | None:
    found = {array.name: _logarithm(program, array.name) for array in program.arrays}
    logarithms = {name: each for name, each in found.items() if each is not None}
    after, names, sums = program, dict[str, None](), dict[str, None]()
    for place in placed(program) if logarithms else ():
        if not isinstance(place.node, Assign):
            continue

        def change(part: Value, place: Placed = place) -> Value | None:
            match part:
                case Call("exp" | "exp2" as function, (exponent,)):
                    return divided(function, exponent, place)
                case _:
                    return None

        def divided(function: str, exponent: Value, place: Placed) -> Value | None:
            above: list[_Signed] = []
            below: list[Read] = []
            for sign, part in summands(exponent, 1):
                known = logarithms.get(part.access.array) if isinstance(part, Read) else None
                terms = None
                if sign < 0 and known is not None and isinstance(part, Read):
                    terms = known.at(program, part, place)
                if terms is None or not any(_sum_in(each, function) for _, each in terms):
                    above.append((sign, part))
                    continue
                assert isinstance(part, Read)
                names[part.access.array] = None
                for own, each in terms:
                    inside = _sum_in(each, function)
                    if inside is None:
                        above.append((-own, each))
                    else:
                        below.append(inside)
                        sums[inside.access.array] = None
            if not below:
                return None
            value: Value = Call(function, (add(*(_signed(each) for each in above)),))
            for each in below:
                value = Binary("/", value, each)
            return value

        values = tuple(replaced(value, change) for value in place.node.values)
        if values != place.node.values:
            node: Node = replace(place.node, values=values, augmented=False)
            assert isinstance(node_at(after, place.position), Assign)
            after = replace_at(after, place.position, (node,))
    return Divided(after, tuple(names), tuple(sums)) if names else None


def _signed(each: _Signed) -> Value:
    sign, part = each
    return part if sign > 0 else Unary("-", part)


def _logarithm(program: Program, name: str) -> _Logarithm | None:
    """Return where a name is set to such a sum, if that is all that is done to it."""
    writes = [site for site in sites_of(program, name) if site.relation.is_write]
    if len(writes) != 1:
        return None
    (write,) = writes
    node = write.place.node
    if not isinstance(node, Assign) or len(node.values) != 1 or len(node.targets) != 1:
        return None
    terms = summands(node.values[0], 1)
    sums = [inside for sign, part in terms for f in EXPONENTIALS if (inside := _sum_in(part, f))]
    if not sums or any(sign < 0 and _log(part) for sign, part in terms):
        return None
    if any(not isinstance(part, Read) and not _log(part) for _, part in terms):
        return None
    if any(not _adds_exponentials(program, each.access.array) for each in sums):
        return None
    known = _Logarithm(write, tuple(terms))
    # What it was before is lost once it is set: lse[i] += log(l[i]).
    return None if any(access.array == name for access in known.accesses) else known


def _log(part: Value) -> bool:
    return any(_sum_in(part, function) is not None for function in EXPONENTIALS)


def _sum_in(part: Value, function: str) -> Read | None:
    """Return what the logarithm is taken of that undoes an exponential."""
    match part:
        case Call(name, (Read() as inside,)) if name == EXPONENTIALS[function]:
            return inside
        case _:
            return None


def _adds_exponentials(program: Program, name: str) -> bool:
    """Tell whether nothing but what is never negative is added up in an array."""
    array, creation = program.array(name), creation_of(program, name)
    starts = creation is None or creation.fill is None or _is_never_negative(creation.fill, "")
    nodes = {
        site.place.label: site.place.node
        for site in sites_of(program, name)
        if site.relation.is_write
    }
    return (
        array.role == "local"
        and starts
        and bool(nodes)
        and all(
            isinstance(node, Assign)
            and len(node.values) == 1
            and _is_never_negative(node.values[0], name)
            for node in nodes.values()
        )
    )


def _is_never_negative(value: Value, name: str) -> bool:
    """Tell whether a value made of exponentials, and of what was added up, is never negative."""

    def every(parts: Iterable[Value]) -> bool:
        return all(_is_never_negative(part, name) for part in parts)

    match value:
        case Const(number):
            return isinstance(number, int | float) and number >= 0
        case Read(access):
            return access.array == name
        case Call("exp" | "exp2", _):
            return True
        case Binary("+" | "*", left, right):
            return every((left, right))
        case Select(_, chosen, otherwise):
            return every((chosen, otherwise))
        case Reduce("sum", body=inside):
            return every((inside,))
        case _:
            return False


def _still(program: Program, known: _Logarithm, read: Read, place: Placed) -> _Moved | None:
    """Return what names of the sum are called where it is read; None where it may be another."""
    sites = [
        site
        for site in sites_of(program, read.access.array)
        if site.place.position == place.position and not site.relation.is_write
    ]
    if sites and all(is_overwritten(site, known.write) for site in sites):
        return {} if _is_kept(program, known, place, sites) else None
    return _in_a_nest_before(program, known, read, place)


def _is_kept(program: Program, known: _Logarithm, place: Placed, sites: list[AccessSite]) -> bool:
    """Tell whether the sum is still the same where it is read behind it, in one block."""
    write = known.write.place
    block = write.position[:-1]
    inner = {loop.variable for loop in place.loops[len(write.loops) :]}
    inner |= {g.variable for site in sites for g in site.relation.generators}
    for access in known.accesses:
        if inner & access.variables:
            return False
        for site in sites_of(program, access.array):
            position = site.place.position
            behind = position[: len(block)] == block and position[len(block)] > write.position[-1]
            if site.relation.is_write and behind:
                return False
    return True


def _in_a_nest_before(
    program: Program, known: _Logarithm, read: Read, place: Placed
) -> _Moved | None:
    """Return which loops of the reader go over what loops of an earlier nest have gone over."""
    write, target = known.write.place, known.write.access
    pairs = enumerate(zip(write.position, place.position, strict=False))
    depth = next((n for n, (one, other) in pairs if one != other), None)
    if depth is None or write.position[depth] > place.position[depth] or write.branches:
        return None
    shared = sum(len(position) <= depth for position in write.loop_positions)
    mine = {loop.variable: loop for loop in write.loops[shared:]}
    theirs = {loop.variable: loop for loop in place.loops[shared:]}
    names: _Moved = {}
    for one, other in zip(target.indices, read.access.indices, strict=True):
        if isinstance(one, Var) and one.name in mine:
            if not isinstance(other, Var) or one.name in names or other.name not in theirs:
                return None
            if mine[one.name].range != theirs[other.name].range:
                return None
            names[one.name] = other
        elif one != other:
            return None
    outer = {loop.variable for loop in write.loops[:shared]}
    bound = {
        g.variable
        for site in sites_of(program, read.access.array)
        if site.place.position == place.position
        for g in site.relation.generators
    }
    if bound & {name for index in names.values() for name in index_variables(index)}:
        return None
    if names.keys() != mine.keys() or outer & theirs.keys() or outer & mine.keys():
        return None
    if len(mine) < len(write.loops) - shared or len(theirs) < len(place.loops) - shared:
        return None
    ends = [end for loop in mine.values() for end in loop.range.ends]
    if not {name for end in ends for name in index_variables(end)} <= outer:
        return None
    nest = write.position[: depth + 1]
    for access in known.accesses:
        for site in sites_of(program, access.array):
            position = site.place.position
            if not site.relation.is_write or position[:depth] != nest[:depth]:
                continue
            own = position[: depth + 1] == nest and (
                position < write.position
                and site.access == access
                and {i.name for i in access.indices if isinstance(i, Var)} >= mine.keys()
                and site.place.loop_positions[: len(write.loops)] == write.loop_positions
            )
            if position[depth] >= nest[depth] and not own:
                return None
    return names
