"""How arrays whose rows are packed are seen, and where a listing looks at them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from looptrans.adjoint.written.printing import shape_text
from looptrans.ir.affine import is_same
from looptrans.ir.condition import Condition
from looptrans.ir.index import Index, plain
from looptrans.ir.program import Array, Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.value import Access, Range
from looptrans.ir.walk import accesses, placed, read_by
from looptrans.transforms.rows.segments import Rows

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class View:
    """How an array with packed rows is seen.

    Attributes:
        ends: The array that says where sequences end.
        row: Which dimension is packed.
        order: The dimensions as they are seen; -1 is that of the sequence.
    """

    ends: str
    row: int
    order: tuple[int, ...]

    def seen(self, each: Sequence[T], batch: T) -> tuple[T, ...]:
        """Return subscripts or extents as they are seen."""
        return tuple(batch if n < 0 else each[n] for n in self.order)

    def taken_back(self, subscripts: Sequence[T]) -> tuple[T, ...]:
        """Return subscripts or extents that are seen as they are."""
        pairs = [(n, s) for n, s in zip(self.order, subscripts, strict=True) if n >= 0]
        return tuple(s for _, s in sorted(pairs, key=lambda pair: pair[0]))

    @property
    def places(self) -> tuple[int, int]:
        """Where the sequence and the row stand among the dimensions as they are seen."""
        return self.order.index(-1), self.order.index(self.row)


def is_same_shape(one: Array, other: Array) -> bool:
    """Tell whether two arrays have the same shape."""
    pairs = zip(one.shape, other.shape, strict=False)
    return one.rank == other.rank and all(
        a is not None and b is not None and is_same(a, b) for a, b in pairs
    )


def is_all_of(bounds: Range, wholes: Mapping[str, Rows], rows: Rows) -> bool:
    """Tell whether a range has all rows of a sequence."""
    whole = wholes[rows.ends].of(rows.sequence)
    ends = (plain(bounds.start), whole.start), (plain(bounds.stop), whole.stop)
    return all(is_same(one, other) for one, other in ends)


@dataclass(frozen=True, slots=True)
class Use:
    """An access, and what surrounds it.

    Attributes:
        access: The access.
        around: The ranges of the variables around it, outermost first.
        asked: The conditions under which it happens.
    """

    access: Access
    around: dict[str, Range]
    asked: tuple[Condition, ...] = ()


def uses_of(program: Program) -> Iterator[Use]:
    """Yield every access of a program."""
    for place in placed(program):
        loops = ranges_by_name(place.loops)
        for relation in accesses(place.node):
            inner = ranges_by_name(relation.generators)
            yield Use(relation.access, loops | inner, (*place.conditions, relation.condition))


def shaped(array: Array, shape: tuple[Index, ...] | None) -> Array:
    """Return an argument with another shape."""
    if shape is None or array.annotation is None:
        return array
    kind = array.annotation.partition("[")[0]
    annotation = f'{kind}[Array, "{shape_text(shape)}"]'
    return replace(array, rank=len(shape), shape=shape, annotation=annotation)


def created(body: tuple[Node, ...], shapes: Mapping[str, tuple[Index, ...]]) -> tuple[Node, ...]:
    """Return a block in which arrays are created with other shapes."""
    return tuple(
        replace(node, creation=replace(node.creation, shape=shapes[node.array]))
        if isinstance(node, Declaration) and node.array in shapes
        else node
        for node in body
    )


def sets_first(body: tuple[Node, ...], numbers: set[str]) -> bool:
    """Tell whether each of some numbers is surely set wherever it is looked at."""
    return _sets_first(body, numbers, set())


def _sets_first(body: tuple[Node, ...], numbers: set[str], known: set[str]) -> bool:
    for node in body:
        if isinstance(node, Assign | If) and not read_by(node) & numbers <= known:
            return False
        match node:
            case Assign():
                known |= {t.array for t in node.targets if not t.subscripts}
            case Loop():
                if not _sets_first(node.body, numbers, set(known)):
                    return False
            case If():
                for way in (node.body, node.orelse):
                    if not _sets_first(way, numbers, set(known)):
                        return False
            case _:
                return False
    return True
