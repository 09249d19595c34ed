"""The accesses of a program, by array, and what they tell of an array."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from looptrans.frontend.appearance import names_at
from looptrans.frontend.elements import element_of
from looptrans.ir.index import Index, Let, Var, variables, walk
from looptrans.ir.program import Array, Assign, Declaration, Element, Loop, Node, Program
from looptrans.ir.rewrite import with_accesses
from looptrans.ir.source import Span
from looptrans.ir.value import Access
from looptrans.ir.walk import AccessRelation, Placed, accesses, nodes, placed, written_in
from looptrans.transforms.editing.errors import TransformError
from looptrans.transforms.editing.naming import binders
from looptrans.transforms.editing.substitute import substitute_variable
from looptrans.transforms.editing.tree import Position

# What a creation says of the numbers an array is to hold.
DTYPES: dict[Element, str | None] = {"float": None, "int": "int", "bool": "bool"}


@dataclass(frozen=True, slots=True)
class AccessSite:
    """An access and the statement it is made in."""

    place: Placed
    relation: AccessRelation

    @property
    def access(self) -> Access:
        """The access itself."""
        return self.relation.access


_LATEST: deque[tuple[Program, dict[str, list[AccessSite]]]] = deque(maxlen=4)


def find_array(program: Program, name: str) -> Array:
    """Find the array or scalar that an argument names.

    Raises:
        TransformError: There is none.
    """
    for array in program.arrays:
        if array.name == name:
            return array
    raise TransformError(
        f"there is no array or scalar {name}",
        None,
        why=f"the listing has {', '.join(array.name for array in program.arrays)}",
        remedy="name one of these",
    )


def sites_of(program: Program, name: str) -> tuple[AccessSite, ...]:
    """Return every access to an array or scalar, in textual order, reads before writes."""
    return tuple(_by_name(program).get(name, ()))


def _by_name(program: Program) -> dict[str, list[AccessSite]]:
    """Return all accesses; those of the last programs are kept, as many questions are about one."""
    for known, sites in _LATEST:
        if known is program:
            return sites
    found: dict[str, list[AccessSite]] = {}
    for place in placed(program):
        for relation in accesses(place.node):
            found.setdefault(relation.access.array, []).append(AccessSite(place, relation))
    _LATEST.appendleft((program, found))
    return found


def sites_outside(program: Program, name: str, loop: Position) -> tuple[AccessSite, ...]:
    """Return the accesses to an array or scalar that are not made in the loop at a position.

    Accesses to private copies that have nothing to do with the loop are left out.
    """
    return tuple(
        site
        for site in sites_of(program, name)
        if loop not in site.place.loop_positions
        and not any(
            name in around.private and loop[: len(position)] != position
            for around, position in zip(site.place.loops, site.place.loop_positions, strict=True)
        )
    )


def listed(names: Sequence[str]) -> str:
    """Return names as one says them: `a`, `a and b`, `a, b and c`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def require_no_index(body: tuple[Node, ...], name: str, what: str) -> None:
    """Require that an integer array or scalar stands in no bound, guard or subscript of a block.

    Args:
        body: The block.
        name: The array or scalar.
        what: What is to be done, as in `cannot …`.

    Raises:
        TransformError: It does.
    """
    node = use_as_index(body, name)
    if node is not None:
        raise TransformError(
            f"cannot {what}: {name} stands in a bound, guard or subscript",
            place_of(node),
            why="only an integer scalar may stand there, or an array that nothing writes",
            remedy=f"use another name for what is not an index, or leave {name} as it is",
        )


def use_as_index(body: tuple[Node, ...], name: str) -> Node | None:
    """Return where a name first stands in a bound, guard or subscript of a block, if it does."""

    def elsewhere(access: Access) -> Access:
        return Access("", access.subscripts) if access.array == name else access

    used = (
        node
        for node in nodes(with_accesses(body, elsewhere))
        if name in names_at(node) and not isinstance(node, Declaration)
    )
    return next(used, None)


def place_of(node: Node) -> Span | None:
    """Return where a node stands in the text; None for one that a transformation put in."""
    return node.span if node.span.line else None


def require_one_kind(program: Program, array: Array, body: tuple[Node, ...], what: str) -> None:
    """Require that what a block stores into an array or scalar is of the kind it holds.

    A scalar keeps the kind of its value, an array converts it, so that moving from the one to the
    other may change `0` to `0.0`.

    Raises:
        TransformError: An integer is stored into floats, say.
    """
    kinds = {each.name: each.element for each in program.arrays}
    for node in nodes(body):
        if not isinstance(node, Assign):
            continue
        for number, target in enumerate(node.targets):
            value = node.values[number if len(node.values) == len(node.targets) else 0]
            kind = element_of(value, kinds)
            if target.array == array.name and kind != array.element:
                raise TransformError(
                    f"cannot {what}: {node.label} stores {_ONE[kind]} into {array.name}, which "
                    f"holds {_MANY[array.element]}",
                    place_of(node),
                    why="an array holds numbers of one kind, and a scalar keeps the kind of its "
                    "value",
                    remedy="write 0.0 for 0, or float(…) around the value",
                )


_ONE = {"float": "a float", "int": "an integer", "bool": "a boolean"}
_MANY = {"float": "floats", "int": "integers", "bool": "booleans"}


def is_about(node: Node, variable: str) -> bool:
    """Tell whether a node, or something in it, mentions a variable that is bound around it.

    An integer scalar mentions what the index expression it stands for does.
    """
    return substitute_variable(node, {variable: Var("")}) != node


def varies(index: Index, loop: Loop) -> bool:
    """Tell whether an index expression may have another value later in a loop, or has none outside.

    It may where it mentions the loop's variable, one that is bound inside, or an integer scalar
    that is set inside.
    """
    inside = binders(loop)
    if any(name in inside for name in variables(index)):
        return True
    written = written_in(loop.body)
    return any(isinstance(part, Let) and part.name in written for part in walk(index))
