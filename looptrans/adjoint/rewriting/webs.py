"""Arrays that nests overwrite one after the other, with a name for each web of writes and reads.

    for s: for e: x[s, e] = r[s, e]                 for s: for e: x1[s, e] = r[s, e]
    for s: for e: x[s, e] = x[s, e] + a[s, e]  ->   for s: for e: x2[s, e] = x1[s, e] + a[s, e]
    for s: for e: x[s, e] = x[s, e] + b[s, e]       for s: for e: x[s, e] = x2[s, e] + b[s, e]

A web is what hangs together by reads that get what a write has written. What a nest hands on to the
next is then an array made whole, which is kept: worked out again it would not be the same number,
and attention asks for the exponential of what differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from looptrans.analysis.api import groups
from looptrans.analysis.kept_flow import flow_of
from looptrans.ir.creation import creation_of
from looptrans.ir.index import Int, Var
from looptrans.ir.program import Assign, Declaration, If, Node, Program
from looptrans.ir.rewrite import rewritten, with_accesses
from looptrans.ir.step import same_names
from looptrans.ir.value import Range
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import live_out
from looptrans.transforms.editing.accesses import AccessSite, listed, sites_of
from looptrans.transforms.editing.finish import finished
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.judging.check import check_storage

# For each statement that accesses an array: the web of what it reads, and of what it writes.
_Webs = dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Webs:
    """A program with a name for each web.

    Attributes:
        program: The program afterwards.
        array: What was one array.
        names: What the others are called.
        reason: What shows that the two mean the same.
    """

    program: Program
    array: str
    names: tuple[str, ...]
    reason: str

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"call what {self.array} holds before it is overwritten {listed(self.names)}"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "each read gets what it got before, and each result what was written to it last"
        return Certificate("storage", law, "legal", self.reason)


def with_webs_named(program: Program) -> Webs | None:
    """Give the first array that nests overwrite one after the other a name for each web.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such array.
    """
    return next(each_with_webs_named(program), None)


def each_with_webs_named(program: Program, *, throughout: bool = False) -> Iterator[Webs]:
    """Yield the program with a name for each web of one array that is overwritten.

    Args:
        program: The program.
        throughout: Whether statements of one nest may overwrite it, too, and it may be a row.
    """
    for node in program.body:
        if isinstance(node, Declaration) and len(node.creation.shape) > 1 - throughout:
            array = program.array(node.array)
            webs = _webs(program, node.array, throughout) if array.element == "float" else {}
            found = _named(program, node.array, webs) if webs else None
            if found is not None:
                yield found


def _webs(program: Program, array: str, throughout: bool) -> _Webs:
    """Return the webs of an array, numbered as they begin; nothing where there is one.

    Each is written by nests of its own, if not throughout.
    """
    sites = sites_of(program, array)
    nests: dict[str, int] = {}
    for site in sites:
        if site.relation.is_write:
            if not _is_by_loops(site):
                return {}
            nests[site.place.label] = site.place.position[0]
    if len(set(nests.values())) < 2 and not throughout:
        return {}
    flow = flow_of(program, array=array)
    if flow.unknown is not None:
        return {}
    parts = dict.fromkeys((site.place.label, site.relation.is_write) for site in sites)
    number = {part: n for n, part in enumerate(parts)}
    edges = [
        pair
        for each in flow.dependences
        for one in [(number[each.source, True], number[each.sink, False])]
        for pair in (one, one[::-1])
    ]
    order = sorted(groups(len(parts), edges), key=min)
    names = list(parts)
    web = {names[n]: k for k, members in enumerate(order) for n in members}
    written = [
        {nests[label] for label, writes in parts if writes and web[label, writes] == k}
        for k in range(len(order))
    ]
    apart = sum(map(len, written)) == len(set(nests.values()))
    if len(order) < 2 or not (apart or throughout) or not all(written):
        return {}
    return {label: (web.get((label, False), -1), web.get((label, True), -1)) for label, _ in parts}


def _is_by_loops(site: AccessSite) -> bool:
    """Tell whether a statement sets a cell for each iteration of loops that go over them.

    States that are kept for every iteration are found in other ways as well.
    """
    node, cell = site.place.node, site.access.subscripts
    loops = {Var(loop.variable) for loop in site.place.loops}
    alone = isinstance(node, Assign) and len(node.targets) == 1
    return alone and len(set(cell)) == len(cell) and loops.issuperset(cell)


def _named(program: Program, array: str, webs: _Webs) -> Webs | None:
    """Name the webs of an array, the last one as it is; None where that may change a value."""
    last = [writes for _, writes in webs.values() if writes >= 0][-1]
    names = {last: array}
    for web in sorted({web for pair in webs.values() for web in pair} - {last, -1}):
        names[web] = fresh_name(program, f"{array}{len(names)}", names.values())
    others = tuple(name for name in names.values() if name != array)

    def change(node: Node) -> tuple[Node, ...]:
        match node:
            case Declaration() if node.array == array:
                return (*(replace(node, array=name) for name in others), node)
            case Assign() | If() if node.label in webs:
                reads, writes = (names.get(web, array) for web in webs[node.label])
                return (renamed(node, array, reads, writes),)
            case _:
                return (node,)

    own = replace(program.array(array), role="local", annotation=None)
    arrays = (*program.arrays, *(replace(own, name=name) for name in others))
    after = replace(program, body=rewritten(program.body, change), arrays=arrays)
    after, images = finished(after, same_names(program, after))
    verdict = check_storage(program, after, images, created=True, tried=False)
    if verdict.decision == "legal":
        return Webs(after, array, others, "by the dependences of both")
    if verdict.decision == "illegal" or not _ends_with(program, array, webs, last):
        return None
    # Guards that ask for data are followed in the listing alone; a run may show that it is wrong.
    if check_storage(program, after, images, created=True).decision == "illegal":
        return None
    reason = "what a read may get is written in its web, by the dependences of the listing"
    return Webs(after, array, others, reason)


def _ends_with(program: Program, array: str, webs: _Webs, last: int) -> bool:
    """Tell whether nobody sees an array in the end, or all of it is written by the last web."""
    if array not in live_out(program):
        return True
    creation = creation_of(program, array)
    shape = () if creation is None else creation.shape
    return any(
        site.relation.is_write
        and webs[site.place.label][1] == last
        and not site.place.conditions
        and len(site.place.loops) == len(shape)
        and {Var(loop.variable): loop.range for loop in site.place.loops}
        == {
            subscript: Range(Int(0), extent)
            for subscript, extent in zip(site.access.subscripts, shape, strict=True)
        }
        for site in sites_of(program, array)
    )


def renamed(node: Assign | If, array: str, reads: str, writes: str) -> Node:
    """Return a statement that finds an array under other names.

    Args:
        node: The statement, or the condition.
        array: The array.
        reads: What it is called where it is read.
        writes: What it is called where it is written.
    """
    if isinstance(node, If):
        bare = replace(node, body=(), orelse=())
        (asked,) = with_accesses((bare,), lambda access: access.renamed(array, reads))
        assert isinstance(asked, If)
        return replace(node, condition=asked.condition)
    (read,) = with_accesses((node,), lambda access: access.renamed(array, reads))
    assert isinstance(read, Assign)
    targets = tuple(target.renamed(array, writes) for target in node.targets)
    return replace(read, targets=targets, augmented=node.augmented and targets == read.targets)
