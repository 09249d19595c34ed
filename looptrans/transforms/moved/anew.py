"""Arrays that are made anew in each iteration, made once, with a part for each iteration.

    for i in range(0, M):                  s = zeros((M, N))
        s = zeros(N)                       for i in range(0, M):
        for j in range(0, N):      ->          for j in range(0, N):
            s[j] = s[j] + X[i, j]                  s[i, j] = s[i, j] + X[i, j]

No iteration sees what another one has left in such an array, since it is made before anything is
looked at: so all of them may have parts of one array, which is made before the first. Parts as long
as a block that a loop goes over lie one behind the other, as the blocks do:

    for t in range(0, N, 16):                        s = zeros(N)
        s = zeros(16)                                for t in range(0, N, 16):
        for j in range(t, min(t + 16, N)):    ->         for j in range(t, min(t + 16, N)):
            s[j - t] = X[j]                                  s[j] = X[j]

Iterations that hand something on, and of which it is not known how many there are, as of
`for t in range(n[b])`, share a part and set it to its first values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from looptrans.analysis.kept_flow import flow_of
from looptrans.ir.diagnostic import Mistake
from looptrans.ir.index import Int, Var
from looptrans.ir.program import Array, Assign, Declaration, Loop, Node, Program
from looptrans.ir.rewrite import rewritten, with_accesses
from looptrans.ir.value import Access, Binary, Const, Create, Range, Unary, Value, walk_value
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import Placed, inner_bodies, live_out, placed
from looptrans.transforms.editing.accesses import listed, require_no_index, sites_of
from looptrans.transforms.editing.errors import RangeNotFound
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.privacy import without_private
from looptrans.transforms.editing.tree import LoopPath, find_loop
from looptrans.transforms.moved.laid_out import Layout


@dataclass(frozen=True, slots=True)
class MadeOnce:
    """A program whose arrays are made before all loops.

    Attributes:
        program: The program afterwards.
        arrays: Those that were made in loops.
    """

    program: Program
    arrays: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"make {listed(self.arrays)} once, with a part for each iteration"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "no iteration looks at what another one has left there"
        return Certificate("storage", law, "legal", "each makes it anew before it looks at it")


def with_arrays_made_once(program: Program, *, tiles: bool = False) -> MadeOnce | None:
    """Make arrays before all loops that are made in some.

    All uses of such an array stand behind its creation, in the same block or deeper, and nobody
    sees it from outside; its first values are the same in every iteration.

    Args:
        program: The program.
        tiles: Whether only arrays are asked for whose parts lie one behind the other.

    Returns:
        The program afterwards; None where there is no such array.
    """
    made: list[str] = []
    for place in placed(program):
        array = _created(place)
        if array is None:
            continue
        try:
            program, changed = _made_once(program, array, tiles=tiles)
        except Mistake:
            continue
        if changed:
            made.append(array)
    return MadeOnce(program, tuple(made)) if made else None


def _created(place: Placed) -> str | None:
    """Return the array that a statement in a loop makes."""
    node = place.node
    if not (isinstance(node, Assign) and len(node.targets) == 1 == len(node.values)):
        return None
    (target,), (value,) = node.targets, node.values
    is_whole = target.rank == len(target.subscripts) > 0
    return target.array if is_whole and isinstance(value, Create) and place.loops else None


def _made_once(program: Program, array: str, *, tiles: bool) -> tuple[Program, bool]:
    """Make one array before all loops; tell whether that can be done.

    Raises:
        Mistake: How large it would be is not known, or an index expression looks at it.
    """
    first, *others = sites_of(program, array)
    block = first.place.position[:-1]
    creation = first.place.node
    assert isinstance(creation, Assign)
    value = creation.values[0]
    if (
        _created(first.place) != array
        or not isinstance(value, Create)
        or not _is_the_same_everywhere(value.fill)
        or array in live_out(program)
        or any(site.place.position[: len(block)] != block for site in others)
        or any(site.place.node is creation for site in others)
    ):
        return program, False
    require_no_index(program.body, array, f"make {array} once")
    known = program.array(array)
    paths = [
        find_loop(program, f"{loop.variable}@{first.place.label}") for loop in first.place.loops
    ]
    laid, all_apart = _laid_out(program, known, paths, tuple(site.access for site in others))
    if tiles and not laid.tiles:
        return program, False
    shape = laid.shape
    set_anew = () if all_apart else _filled(program, creation, value)

    def without(node: Node) -> tuple[Node, ...]:
        if node is creation:
            return set_anew
        is_declared = isinstance(node, Declaration) and node.array == array
        bodies = inner_bodies(node)
        is_left_empty = bodies and not any(bodies)
        return () if is_declared or is_left_empty else (node,)

    def at_its_part(access: Access) -> Access:
        if access.array != array:
            return access
        return laid.access(access)

    after = program
    for path in paths:
        after = without_private(after, path.position, (array,))
    body = with_accesses(rewritten(after.body, without), at_its_part)
    declared = Declaration(array, replace(value, shape=shape))
    grown = replace(known, rank=len(shape), shape=shape)
    arrays = tuple(grown if each.name == array else each for each in after.arrays)
    return replace(after, body=(declared, *body), arrays=arrays), True


def _laid_out(
    program: Program, array: Array, paths: Sequence[LoopPath], uses: Sequence[Access]
) -> tuple[Layout, bool]:
    """Return how parts lie, and whether each iteration has one.

    Those of inner loops share one where nothing says how many there are, and each waits for the one
    before anyway.

    Raises:
        RangeNotFound: How far the outermost loop runs, or how large a part is, is not known.
    """
    for count in range(len(paths), 0, -1):
        if count < len(paths) and not _hands_on(program, paths[count], array.name):
            break
        with contextlib.suppress(RangeNotFound):
            return Layout.of(program, array, paths[:count], uses), count == len(paths)
    return Layout.of(program, array, paths, uses), True


def _hands_on(program: Program, path: LoopPath, array: str) -> bool:
    """Tell whether iterations hand something on in other arrays than this one."""
    labels = {
        place.label
        for place in placed(program)
        if place.position[: len(path.position)] == path.position
    }
    return any(
        each.carried_by == path.variable and each.array != array and each.source in labels
        for each in flow_of(program).dependences
    )


def _filled(program: Program, creation: Assign, value: Create) -> tuple[Node, ...]:
    """Return the loops that set a part to its first values."""
    if value.function == "empty":
        return ()
    names: list[str] = []
    for _ in value.shape:
        names.append(fresh_name(program, "x", names))
    cell = Access(creation.targets[0].array, tuple(map(Var, names)))
    first = value.fill or Const(1.0 if value.function == "ones" else 0.0)
    node: Node = replace(creation, targets=(cell,), values=(first,))
    for name, extent in zip(reversed(names), reversed(value.shape), strict=True):
        node = Loop(name, Range(Int(0), extent), (node,))
    return (node,)


def _is_the_same_everywhere(fill: Value | None) -> bool:
    """Tell whether the first values are plainly the same in every iteration."""
    parts = () if fill is None else walk_value(fill)
    return all(isinstance(part, Const | Unary | Binary) for part in parts)
