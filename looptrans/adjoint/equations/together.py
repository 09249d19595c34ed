"""A number of a row that stands beside a sum of the row wherever that is read, taken into the sum.

    delta[i] = delta[i] + dO[i, d] * O[i, d]        delta[i] = delta[i] + dO[i, d] * O[i, d]
                                              ->    delta[i] = delta[i] - dlse[i]
    dS = P * (dP + dlse[i] - delta[i])              dS = P * (dP - delta[i])

That is one addition for a row in place of one for each of its elements, and one number to read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from looptrans.algebra.normal_forms.normal import equality
from looptrans.algebra.positional.values import add, subtract, summands
from looptrans.frontend import parse
from looptrans.ir.affine import is_same
from looptrans.ir.index import Index, Int, Var
from looptrans.ir.listing import listing, value_text
from looptrans.ir.program import Assign, Node, Program
from looptrans.ir.rewrite import replaced, rewritten, values_replaced
from looptrans.ir.source import Source
from looptrans.ir.value import Access, Binary, Read, Real, Unary, Value, value_children
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import Placed, written
from looptrans.transforms.editing.accesses import AccessSite, sites_of
from looptrans.transforms.editing.tree import node_at, replace_at

Terms = tuple[tuple[int, Value], ...]


@dataclass(frozen=True, slots=True)
class Together:
    """A listing in which a sum of a row contains what is added to it.

    Attributes:
        program: The listing.
        text: What was done, as a phrase.
        certificates: Why it means the same.
    """

    program: Program
    text: str
    certificates: tuple[Certificate, ...]


@dataclass(frozen=True, slots=True)
class _Beside:
    """What stands beside a sum: an array that is given, and whether their signs differ."""

    array: str
    opposite: bool


def with_rows_together(program: Program) -> Together | None:
    """Take what stands beside the sum of a row into it; None where there is nothing like that.

    Args:
        program: A listing, whose outputs stay what they are.
    """
    for array in program.arrays:
        own = array.role == "local" and array.element == "float"
        if own and array.rank and array.name not in program.outputs:
            found = _with(program, array.name)
            if found is not None:
                return found
    return None


def _with(program: Program, name: str) -> Together | None:
    sites = sites_of(program, name)
    writes = [site for site in sites if site.relation.is_write]
    if len(writes) != 1:
        return None
    place = writes[0].place
    behind = _end_of(program, place, writes[0].access)
    reads = [s for s in sites if not s.relation.is_write and s.place.position != place.position]
    if behind is None or any(s.place.position[0] <= behind[0] for s in reads):
        return None  # a read in the same nest may be of another row, which is not complete
    if not any(len(s.place.loops) > len(writes[0].access.indices) for s in reads):
        return None  # nothing that is done for each element of a row would be saved
    beside = _beside(program, name, reads)
    if beside is None:
        return None
    return _joined(program, writes[0].access, behind, beside)


def _end_of(program: Program, place: Placed, cell: Access) -> tuple[int, ...] | None:
    """Return the node behind which a cell is complete; None unless each is, once and for all.

    The outermost loops are those of the cell, and go over the whole array.
    """
    count = len(cell.indices)
    own = place.loops[:count]
    if place.conditions or place.sections or len(own) < count or cell.rank:
        return None
    extents: dict[Index, Index | None] = dict(
        zip(cell.indices, program.array(cell.array).shape, strict=True)
    )
    for loop in own:
        extent = extents.pop(Var(loop.variable), None)
        whole = extent is not None and is_same(loop.range.stop, extent)
        if not whole or not is_same(loop.range.start, Int(0)) or loop.range.step != 1:
            return None
    return place.position[: count + 1]


def _beside(program: Program, name: str, reads: list[AccessSite]) -> _Beside | None:
    """Return what stands beside every read of an array, the same for all."""
    shape = program.array(name).shape
    given = {
        a.name
        for a in program.arrays
        if a.role == "input" and a.element == "float" and _is_alike(a.shape, shape)
    }
    given -= written(program)
    found: list[list[_Beside]] = []
    for node in dict.fromkeys(site.place.node for site in reads):
        for value in node.values if isinstance(node, Assign) else ():
            for terms in _sums(value):
                at = _read_in(terms, name)
                if at is None:
                    continue
                sign, cell = at
                found.append(
                    [
                        _Beside(other.access.array, one != sign)
                        for one, other in terms
                        if isinstance(other, Read)
                        and other.access.array in given
                        and other.access.indices == cell.access.indices
                    ]
                )
    if len(found) != len(reads) or not found:
        return None
    return next((each for each in found[0] if all(each in others for others in found)), None)


def _is_alike(one: Sequence[Index | None], other: Sequence[Index | None]) -> bool:
    """Tell whether two arrays have the same extents, all of them known."""
    pairs = zip(one, other, strict=False)
    known = all(a is not None and b is not None and is_same(a, b) for a, b in pairs)
    return len(one) == len(other) and known


def _sums(value: Value) -> Iterator[Terms]:
    """Yield the terms of every sum in a value, none of them part of another sum."""
    terms = tuple(summands(value, 1))
    if len(terms) > 1:
        yield terms
    for _, term in terms:
        for child in value_children(term):
            yield from _sums(child)


def _read_in(terms: Terms, name: str) -> tuple[int, Read] | None:
    """Return the one term of a sum that reads an array, with its sign."""
    found = [(s, v) for s, v in terms if isinstance(v, Read) and v.access.array == name]
    return found[0] if len(terms) > 1 and len(found) == 1 else None


def _sum(terms: Terms) -> Value:
    (sign, first), *more = terms
    total = first if sign > 0 else Unary("-", first)
    for one, value in more:
        total = Binary("+" if one > 0 else "-", total, value)
    return total


def _joined(
    program: Program, cell: Access, behind: tuple[int, ...], beside: _Beside
) -> Together | None:
    laws: list[tuple[Terms, Terms]] = []

    def without(value: Value) -> Value | None:
        terms = tuple(summands(value, 1))
        at = _read_in(terms, cell.array)
        if at is None:
            return None
        sign, read = at
        gone = Read(replace(read.access, array=beside.array))
        number = terms.index((-sign if beside.opposite else sign, gone))
        kept = terms[:number] + terms[number + 1 :]
        laws.append((terms, kept))
        return _sum(tuple((one, replaced(term, without)) for one, term in kept))

    def change(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Assign) or cell in node.targets:
            return (node,)
        return (values_replaced(node, without),)

    added = Read(replace(cell, array=beside.array))
    last = Assign("S", (cell,), (Binary("-" if beside.opposite else "+", Read(cell), added),))
    body = rewritten(program.body, change)
    begun = replace(program, body=body)
    begun = replace_at(begun, behind, (node_at(begun, behind), last))
    after = parse(Source(program.source.name, listing(begun)))
    if not all(_is_same_sum(old, new, beside, cell.array) for old, new in laws):
        return None
    old, new = laws[0]
    put = f"{value_text(last.values[0])} for {cell.array}"
    law = f"{value_text(_sum(old))} = {value_text(_sum(new))} with {put}"
    reason = f"{beside.array} stands beside every read of {cell.array}, and all come behind the sum"
    return Together(
        after,
        f"take {beside.array} into {cell.array}",
        (
            Certificate("algebra", law, "legal", reason),
            Certificate(
                "rounding",
                f"{beside.array} is added to the sum first",
                "legal",
                "equal over the reals",
            ),
        ),
    )


def _is_same_sum(old: Terms, new: Terms, beside: _Beside, name: str) -> bool:
    """Prove that a sum is what it was, what stood beside the array being in the array."""
    names = {term: Real(f"x{number}") for number, (_, term) in enumerate(old)}

    def put(term: Value) -> Value:
        if not isinstance(term, Read) or term.access.array != name:
            return names[term]
        other = names[Read(replace(term.access, array=beside.array))]
        return subtract(names[term], other) if beside.opposite else add(names[term], other)

    before = _sum(tuple((sign, names[term]) for sign, term in old))
    after = _sum(tuple((sign, put(term)) for sign, term in new))
    return equality(before, after).answer == "proved"
