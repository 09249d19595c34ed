"""Maxima and minima of what is worked out, with the place that attains each handed over.

    m = -inf                     m = -inf                                   m = 0.0
    for j:                       for j:                                     for j:
        m = max(m, V)    ->          m_at[i] = j if V > m else m_at[i]          if j == m_at[i]:
                                     m = max(m, V)                 seen as          m = m + V
                                                                            m = m if m_at[i] >= 0
                                                                                else -inf

Worked out again, a value need not be the same rounded number: which one was the largest is asked
of the forward pass. Its adjoint goes to the first that attains it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.adjoint.carried.recurrences import again
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.adjoint.rewriting.extents import extent_of
from looptrans.adjoint.written.printing import shape_text
from looptrans.algebra.positional.values import ZERO, is_number
from looptrans.ir.condition import (
    ALWAYS,
    MIRRORED,
    Comparison,
    Condition,
    Data,
    Relation,
    conjunction,
)
from looptrans.ir.creation import first_value
from looptrans.ir.index import Index, Int, Opaque, Var
from looptrans.ir.program import Array, Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.value import (
    Access,
    Binary,
    Compare,
    Const,
    Create,
    IndexValue,
    Read,
    Select,
    Unary,
    Value,
    arrays_read,
)
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import Placed, accesses, nodes, placed
from looptrans.transforms.editing.accesses import listed
from looptrans.transforms.editing.naming import fresh_name

BELOW_ALL: Final = -(2**31)
"""What is told instead of a place where nothing attains an extremum and -1 may be a place."""


@dataclass(frozen=True, slots=True)
class PlacesKept:
    """A listing that is told where an extremum is attained.

    Attributes:
        listing: The listing.
        program: It, with the places as arguments.
        cell: The extremum.
        places: For each loop that it is worked out over, the array of the iterations that attain
            it, one for each iteration of the loops around; of one element where there are none.
        nowhere: What is told where there is none.
        instead: The nodes of the program that others of the listing stand for, and what stands for
            each in a forward pass that hands the places over.
        is_last: Whether the last of several that attain it is told, as the listing tells it.
    """

    listing: Program
    program: Program
    cell: str
    places: tuple[Array, ...]
    nowhere: int
    instead: tuple[tuple[Node, tuple[Node, ...]], ...]
    is_last: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """What the places are called."""
        return tuple(place.name for place in self.places)

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"let the forward pass say where {self.cell} is attained"

    @property
    def note(self) -> str:
        """What should be known."""
        which = "last" if self.is_last else "first"
        return f"The adjoint of {self.cell} goes to the {which} that attains it."

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = f"{self.cell} is what is offered at {listed(self.names)}, where anything is"
        reason = "that is set where the extremum moves, and nothing else sets either"
        return Certificate("storage", law, "legal", reason)

    def forward(self, program: Program) -> Program:
        """Return the listing that hands the places over, and what another one like `program` does.

        Args:
            program: The program, perhaps with more statements and outputs.

        Raises:
            NotDifferentiated: It works the extremum out of something else.
        """
        found = 0

        def change(node: Node) -> tuple[Node, ...]:
            nonlocal found
            for after, before in self.instead:
                if _is_same(node, after):
                    found += 1
                    return before
            return (node,)

        body = rewritten(program.body, change)
        if found != len(self.instead):
            raise NotDifferentiated(f"what {self.cell} is the largest or smallest of is kept")
        shapes = [place.extents for place in self.places]
        made = [Create("full", shape, Const(self.nowhere), "int") for shape in shapes]
        own = [replace(place, role="local", annotation=None) for place in self.places]
        more = tuple(o for o in program.outputs if o not in self.listing.outputs)
        return again(
            replace(
                program,
                body=(*map(Declaration, self.names, made), *body),
                arguments=self.listing.arguments,
                arrays=(*(a for a in program.arrays if a.name not in self.names), *own),
                outputs=(*self.listing.outputs, *self.names, *more),
            )
        )


def with_places_kept(program: Program, label: str) -> PlacesKept:
    """Let the place that attains an extremum be an argument.

    Args:
        program: The listing.
        label: The statement `m = max(m, V)` that works the extremum out.

    Returns:
        Both listings.

    Raises:
        NotDifferentiated: The statement is another one, or its loops are none of a known form: rows
            of which it is known how many there are around loops that `m` is set before.
    """
    for site in placed(program):
        if site.label == label and isinstance(site.node, Assign):
            return _kept(program, site, site.node)
    raise NotDifferentiated("it is none of the statements of the listing", label)


def _kept(program: Program, site: Placed, node: Assign) -> PlacesKept:
    (cell, *others), (value, *more) = node.targets, node.values
    update = None if others or more else accumulation(cell, value)
    if update is None or update[0] == "sum" or update[2] != ALWAYS:
        raise NotDifferentiated(f"it does not have the form {cell.array} = max({cell.array}, …)")
    begun = _set_before(program, cell, site)
    if begun is None:
        raise NotDifferentiated(
            f"{cell.array} is not set in front of the loop to what stays the same in it, or it is "
            "looked at in between"
        )
    (function, offered, _), (first, old, depth) = update, begun
    rows, loops = site.loops[:depth], site.loops[depth:]
    extents = [extent_of(program, row) for row in rows]
    shape = tuple(extent for extent in extents if extent is not None)
    for row, extent in zip(rows, extents, strict=True):
        if extent is None:
            raise NotDifferentiated(
                f"it is not known how many rows {row.variable} may go over: say so in a contract"
            )
    picks = _picks(node, loops[0], cell, function, offered)
    known = (first, node) if isinstance(first, Assign) else (node,)
    if picks is None or not _is_set_by(program, cell, known):
        raise NotDifferentiated(f"{cell.array} is set or looked at by more statements of the loop")
    kept, test = picks
    here: tuple[Index, ...] = tuple(Var(row.variable) for row in rows)
    if not rows:
        here, shape = (Int(0),), (Int(1),)
    over = [f"_{loop.variable}" if len(loops) > 1 else "" for loop in loops]
    names: list[str] = []
    for suffix in over:
        names.append(fresh_name(program, f"{cell.array}_at{suffix}", names))
    pairs = list(zip(names, loops, strict=True))
    attained = conjunction(*(Relation("==", Var(p.variable), Opaque(n, here)) for n, p in pairs))
    cells = [Access(name, here) for name in names]
    taken = [
        Assign(
            node.label,
            (place,),
            (Select(Data(test), IndexValue(Var(loop.variable)), Read(place)),),
        )
        for place, loop in zip(cells, loops, strict=True)
    ]
    added = If(attained, (Assign(node.label, (cell,), (Binary("+", Read(cell), offered),)),))
    least, up = loops[0].range.start, loops[0].range.step > 0
    is_natural = up and isinstance(least, Int) and least.value >= 0
    nowhere = -1 if is_natural else BELOW_ALL
    none = (
        Relation("<", Opaque(names[0], here), Int(0))
        if is_natural
        else Relation("==", Opaque(names[0], here), Int(nowhere))
    )
    behind = Assign(node.label, (cell,), (Select(none, old, Read(cell)),))
    new: dict[int, Node] = {id(node): added}
    new |= {id(each): _picking(each, attained) for each in kept}
    instead: list[tuple[Node, tuple[Node, ...]]] = [(added, (*taken, node))]
    instead += [(new[id(each)], (each,)) for each in kept]
    ends = not is_number(old, 0.0)
    begins: tuple[Node, ...] = ()
    if ends and isinstance(first, Declaration) and not _goes_over_all(program, cell, rows):
        begins = (Assign(node.label, (cell,), (ZERO,)),)
        instead.append((begins[0], ()))
    elif ends:
        new[id(first)] = _zeroed(first)
        instead.append((new[id(first)], (first,)))
    if ends:
        instead.append((behind, ()))

    def change(each: Node) -> tuple[Node, ...]:
        if ends and isinstance(each, Loop) and each.variable == loops[0].variable:
            return (*begins, each, behind) if added in nodes(each.body) else (each,)
        return (new.get(id(each), each),)

    words = f'Int[Array, "{shape_text(shape)}"]'
    given = tuple(Array(n, len(here), "int", "input", shape, annotation=words) for n in names)
    changed = replace(
        program,
        body=rewritten(program.body, change),
        arguments=(*program.arguments, *names),
        arrays=(*program.arrays, *given),
    )
    is_last = test.op in (">=", "<=")
    return PlacesKept(program, again(changed), cell.array, given, nowhere, tuple(instead), is_last)


def _goes_over_all(program: Program, cell: Access, rows: tuple[Loop, ...]) -> bool:
    """Tell whether loops go over all cells of an array, which their variables are subscripts of."""
    shape = program.array(cell.array).shape
    plain = all(row.range.start == Int(0) and row.range.step == 1 for row in rows)
    return plain and tuple(row.range.stop for row in rows) == shape


def _is_set_by(program: Program, cell: Access, known: tuple[Assign, ...]) -> bool:
    """Tell whether these statements alone set an array, in this order in the text."""
    setting = [
        node
        for node in nodes(program.body)
        if isinstance(node, Assign) and any(t.array == cell.array for t in node.targets)
    ]
    return list(map(id, setting)) == list(map(id, known))


def _picks(
    node: Assign, loop: Loop, cell: Access, function: str, offered: Value
) -> tuple[tuple[Assign, ...], Compare] | None:
    """Return the statements in front of one in a loop that keep what goes with an extremum.

    Returns:
        Them, `k = X if V > m else k`, and the test that they share; None where the extremum is read
        in another way.
    """
    above: tuple[Comparison, ...] = (">", ">=") if function == "max" else ("<", "<=")
    old = Read(cell)
    tests = {Compare(MIRRORED[op], old, offered): Compare(op, offered, old) for op in above}
    tests |= {test: test for test in tests.values()}
    found: list[Assign] = []
    tested: dict[Compare, None] = {}
    is_before = True
    for each in nodes(loop.body):
        if each is node:
            is_before = False
            continue
        if not isinstance(each, Assign | If):
            continue
        if all(relation.access.array != cell.array for relation in accesses(each)):
            continue
        match each:
            case Assign(targets=(target,), values=(Select(Data(Compare() as test), new, kept),)):
                apart = cell.array not in arrays_read(new)
                if is_before and kept == Read(target) and test in tests and apart:
                    found.append(each)
                    tested[tests[test]] = None
                    continue
        return None
    if len(tested) > 1:
        return None
    return tuple(found), next(iter(tested), Compare(above[0], offered, old))


def _picking(node: Assign, attained: Condition) -> Assign:
    """Return a statement that keeps what goes with an extremum, told where it is attained."""
    (value,) = node.values
    assert isinstance(value, Select)
    return replace(node, values=(replace(value, condition=attained),))


def _set_before(
    program: Program, cell: Access, site: Placed
) -> tuple[Assign | Declaration, Value, int] | None:
    """Return what first sets a cell, in front of one of several loops, and how many it is in.

    Args:
        program: The program.
        cell: The cell.
        site: The statement that the loops are around.

    Returns:
        The statement, or the creation of an array whose cells are each of one row, and the number.
    """
    for depth, loop in enumerate(site.loop_positions):
        found = [
            (each.node, each.position)
            for each in placed(program)
            if each.position[:-1] == loop[:-1]
            and each.position < loop
            and isinstance(each.node, Assign)
            and each.node.targets == (cell,)
        ]
        match found:
            case [(Assign(values=(value,)) as only, begins)] if _stays(program, value, begins):
                is_seen = any(begins < each.position < loop for each in _reads(program, cell))
                return None if is_seen else (only, value, depth)
    depth = len(cell.subscripts)
    rows = site.loops[:depth]
    is_row = cell.subscripts == tuple(Var(row.variable) for row in rows)
    for made in program.body if is_row and depth < len(site.loops) else ():
        if isinstance(made, Declaration) and made.array == cell.array:
            filled = first_value(made.creation)
            if filled is not None and _is_number(filled):
                return (made, filled, depth) if _is_complete(program, cell, site, depth) else None
    return None


def _is_complete(program: Program, cell: Access, site: Placed, depth: int) -> bool:
    """Tell whether an extremum is worked out for each row before its cell is read elsewhere.

    Args:
        program: The program.
        cell: The cell, an element of an array.
        site: The statement that works the extremum out.
        depth: How many of the loops around it are those of rows.
    """
    loop = site.loop_positions[depth]
    if any(len(branch) <= len(loop) for branch in site.branches):
        return False
    for reader in _reads(program, cell):
        if reader.position[: len(loop)] == loop:
            continue
        shared = sum(row in reader.loop_positions for row in site.loop_positions[:depth])
        own = [r.access.subscripts for r in accesses(reader.node) if r.access.array == cell.array]
        if reader.position < loop or any(each[:shared] != cell.subscripts[:shared] for each in own):
            return False
    return True


def _reads(program: Program, cell: Access) -> list[Placed]:
    """Return the statements and conditions that read an array."""
    return [
        site
        for site in placed(program)
        if any(r.access.array == cell.array and not r.is_write for r in accesses(site.node))
    ]


def _zeroed(node: Assign | Declaration) -> Node:
    """Return what sets a cell, or makes an array, with 0 for what it has been."""
    if isinstance(node, Assign):
        return replace(node, values=(ZERO,))
    made = node.creation
    return replace(node, creation=replace(made, function="zeros", fill=None))


def _stays(program: Program, value: Value, position: tuple[int, ...]) -> bool:
    """Tell whether a value is the same behind a loop in front of which it is worked out.

    Args:
        program: The program.
        value: The value.
        position: The place in front of the loop.
    """
    for array in arrays_read(value):
        setting = [
            site.position
            for site in placed(program)
            if isinstance(site.node, Assign) and any(t.array == array for t in site.node.targets)
        ]
        if len(setting) > 1 or any(each >= position for each in setting):
            return False
    return True


def _is_number(value: Value) -> bool:
    return isinstance(value, Const) or (
        isinstance(value, Unary) and isinstance(value.operand, Const)
    )


def _is_same(node: Node, other: Node) -> bool:
    """Tell whether two nodes do the same, whatever their labels are."""
    match node, other:
        case Assign(), Assign():
            return node.targets == other.targets and node.values == other.values
        case Declaration(), Declaration():
            return (node.array, node.creation) == (other.array, other.creation)
        case If(), If():
            return (
                node.condition == other.condition
                and len(node.body) == len(other.body)
                and not (node.orelse or other.orelse)
                and all(map(_is_same, node.body, other.body))
            )
        case _:
            return False
