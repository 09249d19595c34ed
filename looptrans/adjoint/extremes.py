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

from looptrans.adjoint.accumulating import accumulation, arrays_in
from looptrans.adjoint.printing import shape_text
from looptrans.adjoint.recurrences import again
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.algebra.values import ZERO, is_number
from looptrans.ir.condition import ALWAYS, Condition, Data, Relation
from looptrans.ir.index import Index, Int, Opaque, Var, lets, opaque_terms, variables
from looptrans.ir.program import Array, Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.value import (
    Access,
    Binary,
    Compare,
    Const,
    Create,
    IndexValue,
    Range,
    Read,
    Select,
    Unary,
    Value,
)
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import Placed, accesses, nodes, placed
from looptrans.transforms.naming import fresh_name


@dataclass(frozen=True, slots=True)
class PlacesKept:
    """A listing that is told where an extremum is attained.

    Attributes:
        listing: The listing.
        program: It, with the place as an argument.
        cell: The extremum.
        place: The array of places, one for each iteration around the loop; -1 where there is none.
        whole: For each node of the listing that is another one in the program, how to tell that
            one, and what stands for it in a forward pass that hands the place over.
        made: The array of places as the forward pass makes it.
    """

    listing: Program
    program: Program
    cell: str
    place: str
    whole: tuple[tuple[Node, tuple[Node, ...]], ...]
    made: tuple[Declaration, Array]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"let the forward pass say where {self.cell} is attained"

    @property
    def note(self) -> str:
        """What should be known."""
        return f"The adjoint of {self.cell} goes to the first that attains it."

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = f"{self.cell} is what is offered at {self.place}, where anything is"
        reason = "the place is set where the extremum moves, and nothing else sets either"
        return Certificate("storage", law, "legal", reason)

    def forward(self, program: Program) -> Program:
        """Return the listing that hands the place over, and what another one like `program` does.

        Args:
            program: The program, perhaps with more statements and outputs.

        Raises:
            NotDifferentiated: It works the extremum out of something else.
        """
        found = 0

        def change(node: Node) -> tuple[Node, ...]:
            nonlocal found
            for after, before in self.whole:
                if _is_same(node, after):
                    found += 1
                    return before
            return (node,)

        body = rewritten(program.body, change)
        if found != len(self.whole):
            raise NotDifferentiated(f"what {self.cell} is the largest or smallest of is kept")
        declaration, array = self.made
        more = tuple(o for o in program.outputs if o not in self.listing.outputs)
        arrays = tuple(each for each in program.arrays if each.name != self.place)
        return again(
            replace(
                program,
                body=(declaration, *body),
                arguments=self.listing.arguments,
                arrays=(*arrays, array),
                outputs=(*self.listing.outputs, self.place, *more),
            )
        )


def with_places_kept(program: Program, label: str) -> PlacesKept | None:
    """Let the place that attains an extremum be an argument.

    Args:
        program: The listing.
        label: The statement `m = max(m, V)` that works the extremum out.

    Returns:
        Both listings; None where the statement is another one, or its loop is none of a known
        form: rows of fixed lengths around a loop that `m` is set to a number before.
    """
    for site in placed(program):
        if site.label == label and isinstance(site.node, Assign) and site.loops:
            return _kept(program, site, site.node)
    return None


def _kept(program: Program, site: Placed, node: Assign) -> PlacesKept | None:
    (cell, *others), (value, *more) = node.targets, node.values
    found = None if others or more else accumulation(cell, value)
    if found is None or found[0] == "sum" or found[2] != ALWAYS:
        return None
    function, offered, _ = found
    loop, rows = site.loops[-1], site.loops[:-1]
    first = _set_before(program, cell, site.loop_positions[-1])
    extents = [_extent(row.range) for row in rows]
    if first is None or loop.range.step != 1 or None in extents:
        return None
    name = fresh_name(program, f"{cell.array}_at")
    here = tuple(Var(row.variable) for row in rows)
    place = Access(name, here)
    attained = Relation("==", Var(loop.variable), Opaque(name, here))
    is_max = function == "max"
    moves = Compare(">" if is_max else "<", offered, Read(cell))
    picks = _picks(node, loop, cell, (moves, Compare("<" if is_max else ">", Read(cell), offered)))
    if picks is None:
        return None
    pick = Select(Data(moves), IndexValue(Var(loop.variable)), Read(place))
    label = node.label
    before: tuple[Node, ...] = (Assign(label, (place,), (pick,)), node)
    added = Assign(label, (cell,), (Binary("+", Read(cell), offered),))
    none = Relation("<", Opaque(name, here), Int(0))
    old: Value = first.values[0]
    behind = None
    whole: list[tuple[Node, tuple[Node, ...]]] = [(If(attained, (added,)), before)]
    if not is_number(old, 0.0):
        behind = Assign(label, (cell,), (Select(none, old, Read(cell)),))
        whole += [(replace(first, values=(ZERO,)), (first,)), (behind, ())]
    new: dict[int, Node] = {id(each): _picking(each, attained) for each in picks}
    whole += [(new[id(each)], (each,)) for each in picks]
    if not _is_set_by(program, cell, (first, node)):
        return None
    new[id(node)] = whole[0][0]
    if behind is not None:
        new[id(first)] = whole[1][0]

    def change(each: Node) -> tuple[Node, ...]:
        if isinstance(each, Loop) and each.variable == loop.variable and behind is not None:
            return (each, behind) if whole[0][0] in nodes(each.body) else (each,)
        return (new.get(id(each), each),)

    changed = rewritten(program.body, change)
    shape = tuple(each for each in extents if each is not None)
    words = f'Int[Array, "{shape_text(shape)}"]'
    given = Array(name, len(here), "int", "input", shape, annotation=words)
    made = Create("full", shape, Const(-1), "int")
    return PlacesKept(
        program,
        again(
            replace(
                program,
                body=changed,
                arguments=(*program.arguments, name),
                arrays=(*program.arrays, given),
            )
        ),
        cell.array,
        name,
        tuple(whole),
        (Declaration(name, made), replace(given, role="local", annotation=None)),
    )


def _is_set_by(program: Program, cell: Access, known: tuple[Assign, ...]) -> bool:
    """Tell whether these statements alone set an array, in this order in the text."""
    setting = [
        node
        for node in nodes(program.body)
        if isinstance(node, Assign) and any(t.array == cell.array for t in node.targets)
    ]
    return list(map(id, setting)) == list(map(id, known))


def _picks(
    node: Assign, loop: Loop, cell: Access, tests: tuple[Compare, ...]
) -> tuple[Assign, ...] | None:
    """Return the statements in front of one in a loop that keep what goes with an extremum.

    Returns:
        Them, `k = X if V > m else k`; None where the extremum is read in another way.
    """
    found: list[Assign] = []
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
            case Assign(targets=(target,), values=(Select(Data(test), chosen, otherwise),)):
                apart = cell.array not in arrays_in(chosen)
                if is_before and otherwise == Read(target) and test in tests and apart:
                    found.append(each)
                    continue
        return None
    return tuple(found)


def _picking(node: Assign, attained: Condition) -> Assign:
    """Return a statement that keeps what goes with an extremum, told where it is attained."""
    (value,) = node.values
    assert isinstance(value, Select)
    return replace(node, values=(replace(value, condition=attained),))


def _set_before(program: Program, cell: Access, loop: tuple[int, ...]) -> Assign | None:
    """Return the statement in front of a loop, in the same block, that sets a cell to a number."""
    found = [
        site.node
        for site in placed(program)
        if site.position[:-1] == loop[:-1]
        and site.position < loop
        and isinstance(site.node, Assign)
        and site.node.targets == (cell,)
    ]
    match found:
        case [Assign(values=(value,)) as only] if _is_number(value):
            return only
        case _:
            return None


def _is_number(value: Value) -> bool:
    return isinstance(value, Const) or (
        isinstance(value, Unary) and isinstance(value.operand, Const)
    )


def _extent(of: Range) -> Index | None:
    """Return how many iterations a loop has that begins at 0 and goes to a size."""
    is_size = not variables(of.stop) and not opaque_terms(of.stop) and not lets(of.stop)
    return of.stop if of.start == Int(0) and of.step == 1 and is_size else None


def _is_same(node: Node, other: Node) -> bool:
    """Tell whether two nodes do the same, whatever their labels are."""
    match node, other:
        case Assign(), Assign():
            return node.targets == other.targets and node.values == other.values
        case If(), If():
            return (
                node.condition == other.condition
                and len(node.body) == len(other.body)
                and not (node.orelse or other.orelse)
                and all(map(_is_same, node.body, other.body))
            )
        case _:
            return False
