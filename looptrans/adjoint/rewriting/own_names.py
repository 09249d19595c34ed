"""Loops that use one name for things of their own, which get names of their own.

    for i: m = -inf                           for i: m = -inf
           for j: m = max(m, x[i, j])                for j: m = max(m, x[i, j])
    for j: m = -inf                   ->      for j: m0 = -inf
           for i: m = max(m, x[i, j])                for i: m0 = max(m0, x[i, j])

What is kept for a row of one loop has another place than what is kept for a row of the other. An
array that several loops make, each for a row, is made once for each of them, whatever its rows are.
So is one that a block makes again:

    S = zeros((M, N)); …                      S = zeros((M, N)); …
    S = zeros((M, P)); …              ->      S1 = zeros((M, P)); …
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from looptrans.adjoint.carried.recurrences import again
from looptrans.algebra.free import is_creation, is_made_anew, is_overwritten
from looptrans.ir.program import Assign, Declaration, Loop, Node, Program
from looptrans.ir.rewrite import rewritten, with_accesses
from looptrans.ir.value import Access, Create, Range, Read, walk_value
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import live_out, nodes
from looptrans.transforms.editing.accesses import AccessSite, listed, require_no_index, sites_of
from looptrans.transforms.editing.errors import TransformError
from looptrans.transforms.editing.finish import with_stated_label
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.tree import Position, node_at, replace_at

_Around = tuple[tuple[str, Range], ...]


@dataclass(frozen=True, slots=True)
class _Uses:
    """A loop and what it uses a name for.

    Attributes:
        position: The place of the loop.
        sites: Its accesses.
    """

    position: Position
    sites: tuple[AccessSite, ...]

    @property
    def around(self) -> _Around:
        """The loops around all accesses, outermost first."""
        first, *others = (site.place for site in self.sites)
        found = []
        for loop, position in zip(first.loops, first.loop_positions, strict=True):
            if any(position not in place.loop_positions for place in others):
                break
            found.append((loop.variable, loop.range))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class OwnNames:
    """A program whose loops have names of their own.

    Attributes:
        program: The program afterwards.
        names: Those that several loops used.
        made_again: Whether they are of arrays that were made several times.
    """

    program: Program
    names: tuple[str, ...]
    made_again: bool = False

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        if self.made_again:
            return f"give {listed(self.names)} another name each time it is made"
        return f"give each loop that uses {listed(self.names)} a name of its own for it"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        if self.made_again:
            law = f"nothing reads what {listed(self.names)} was before it was made again"
            return Certificate("storage", law, "legal", "what follows in the block has that name")
        law = f"no loop reads what another has left in {listed(self.names)}"
        reason = "each sets it in the block, or a block around it, in which it is read"
        return Certificate("storage", law, "legal", reason)


def with_own_names(program: Program, *, throughout: bool = False) -> OwnNames | None:
    """Give names that several loops use, each for rows of its own, another name in each.

    Args:
        program: The program.
        throughout: Whether loops over the same rows get names of their own for scalars as well.
    """
    made_again = _each_with_a_name(program)
    if made_again is not None:
        return made_again
    after, changed = program, []
    for name, loops in _shared(program, throughout):
        changed.append(name)
        apart = throughout or program.array(name).rank
        names: dict[_Around | Position, str] = {}
        for each in loops:
            new = name if not names else fresh_name(after, name, names.values())
            new = names.setdefault(each.position if apart else each.around, new)
            after = _renamed(after, each, name, new)
    return OwnNames(after, tuple(changed)) if changed else None


def _each_with_a_name(program: Program) -> OwnNames | None:
    """Give arrays that the listing makes several times another name each time.

    What is returned keeps the name of the last one. Nothing is made inside of a loop or a guard.
    """
    seen = live_out(program)
    for array in program.arrays:
        places = [n for n, node in enumerate(program.body) if _makes(node, array.name)]
        made = [program.body[place] for place in places]
        if not any(isinstance(node, Assign) for node in made):
            continue
        if array.role == "input" or not _is_made_only_there(program, array.name, len(made)):
            continue
        with suppress(TransformError):
            require_no_index(program.body, array.name, f"rename {array.name}")
            return _each_time(program, array.name, places, array.name in seen)
    return None


def _is_made_only_there(program: Program, array: str, times: int) -> bool:
    """Tell whether an array is made so many times in all, and from nothing that it held before."""
    made = [node for node in nodes(program.body) if _makes(node, array)]
    fills = [_creation(node).fill for node in made]
    return len(made) == times and all(
        not (isinstance(part, Read) and part.access.array == array)
        for fill in fills
        if fill is not None
        for part in walk_value(fill)
    )


def _makes(node: Node, array: str) -> bool:
    match node:
        case Declaration():
            return node.array == array
        case Assign(targets=(target,), values=(Create(),)):
            return target.array == array and target.rank == len(target.subscripts) > 0
        case _:
            return False


def _each_time(program: Program, array: str, places: list[int], is_seen: bool) -> OwnNames:
    """Give an array another name each time a listing makes it."""
    known = program.array(array)
    names: list[str] = []
    for number in range(len(places)):
        keeps = number == (len(places) - 1 if is_seen else 0)
        names.append(array if keeps else fresh_name(program, array, names))
    body: list[Node] = []
    arrays = {each.name: each for each in program.arrays}
    for place, node in enumerate(program.body):
        turn = max(bisect_right(places, place) - 1, 0)
        if place in places:
            creation = _creation(node)
            body.append(Declaration(names[turn], creation))
            own = replace(known, name=names[turn], shape=creation.shape, rank=len(creation.shape))
            arrays[own.name] = own if names[turn] == array else replace(own, role="local")
        else:
            body += with_accesses((node,), partial(Access.renamed, old=array, new=names[turn]))
    # A statement that has become a declaration has no label: the others keep theirs.
    stated = rewritten(tuple(body), lambda node: (with_stated_label(node),))
    after = again(replace(program, body=stated, arrays=tuple(arrays.values())))
    return OwnNames(after, (array,), made_again=True)


def _renamed(program: Program, loop: _Uses, old: str, new: str) -> Program:
    """Give an array another name in a loop, and the shape it is made with there."""
    node = node_at(program, loop.position)
    named = partial(Access.renamed, old=old, new=new)
    after = replace_at(program, loop.position, with_accesses((node,), named))
    made = {value.shape for site in loop.sites for value in _creations(site)}
    array = program.array(old)
    array = replace(array, name=new, shape=made.pop() if len(made) == 1 else array.shape)
    others = tuple(each for each in after.arrays if each.name != new)
    return replace(after, arrays=(*others, array))


def _shared(program: Program, throughout: bool) -> Iterator[tuple[str, tuple[_Uses, ...]]]:
    """Yield the locals that loops of one block use for rows of their own, with these loops."""
    outside = set(live_out(program))
    created = {node.array for node in nodes(program.body) if isinstance(node, Declaration)}
    for array in program.arrays:
        sites = sites_of(program, array.name)
        if array.role != "local" or array.name in outside | created or not sites:
            continue
        loops = _loops(program, sites)
        apart = throughout or array.rank
        ways = len(loops) if apart else len({each.around for each in loops})
        if ways < 2 or not all(map(_is_own, loops)):
            continue
        nests = tuple(node_at(program, each.position) for each in loops)
        with suppress(TransformError):  # a subscript keeps its name
            require_no_index(nests, array.name, f"rename {array.name}")
            yield array.name, loops


def _loops(program: Program, sites: tuple[AccessSite, ...]) -> tuple[_Uses, ...]:
    """Return the loops of one block that hold all accesses; none where one is in no loop."""
    depth = 0
    while len({site.place.position[: depth + 1] for site in sites}) == 1:
        if depth + 1 >= min(len(site.place.position) for site in sites):
            return ()
        depth += 1
    found: dict[Position, list[AccessSite]] = {}
    for site in sites:
        found.setdefault(site.place.position[: depth + 1], []).append(site)
    if not all(_is_loop(program, position) for position in found):
        return ()
    return tuple(_Uses(position, tuple(each)) for position, each in found.items())


def _is_loop(program: Program, position: Position) -> bool:
    try:
        node = node_at(program, position)
    except IndexError:
        return False
    return isinstance(node, Loop) and node.is_plain


def _is_own(loop: _Uses) -> bool:
    """Tell whether everything that is read in a loop has been set in it just before."""
    writes = [site for site in loop.sites if site.relation.is_write]
    return bool(writes) and all(
        any(is_overwritten(site, write) or is_made_anew(site, write) for write in writes)
        for site in loop.sites
        if not site.relation.is_write
    )


def _creation(node: Node) -> Create:
    if isinstance(node, Declaration):
        return node.creation
    assert isinstance(node, Assign) and isinstance(node.values[0], Create)
    return node.values[0]


def _creations(site: AccessSite) -> list[Create]:
    """Return the creation in a statement that makes an array."""
    node = site.place.node
    if not isinstance(node, Assign) or not is_creation(site):
        return []
    return [value for value in node.values if isinstance(value, Create)]
