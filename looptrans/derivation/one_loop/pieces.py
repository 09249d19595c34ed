"""What a loop becomes in parts: the loop of one, where its results are, and what joins them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite, isinf

from looptrans.algebra.certificate import OperatorCertificate
from looptrans.algebra.iterations.infinities import bottom_of
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.operators.laws import Law
from looptrans.algebra.operators.operator import Operator
from looptrans.derivation.one_loop.bodies import (
    flow,
    labels_of,
    position_of,
    ranges_in,
    rest_of,
    worked_out,
)
from looptrans.derivation.one_loop.guards import (
    conditions,
    masked,
    neutral,
    next_values,
    require_proved,
    unguarded,
)
from looptrans.derivation.one_loop.joining import (
    empty_side,
    join_updates,
    joined_cells,
    vector_extent,
)
from looptrans.derivation.one_loop.loop import expected, loop_read, operator_for
from looptrans.derivation.one_loop.reading import as_written
from looptrans.derivation.one_loop.writing import Update, Writer, done, inputs_written, suffix_of
from looptrans.derivation.step import NotDone
from looptrans.ir.condition import Condition, Relation
from looptrans.ir.index import Arith, Index, Int, Param, Var, opaque_terms, variables
from looptrans.ir.listing import access_text, value_text
from looptrans.ir.program import Contract, Declaration, If, Loop, Node, Parameter, Program
from looptrans.ir.value import Access, Const, Create, IndexValue, Range, Subscript, Value, Whole
from looptrans.transforms.editing.errors import RangeNotFound
from looptrans.transforms.editing.extents import (
    declared_range,
    extent_along,
    extents_of,
    is_never_negative,
)
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.tree import (
    LoopPath,
    Position,
    loops_around,
    replace_at,
    statements_in,
)
from looptrans.transforms.rows.segments import is_over_all, rows_of, segments_of


@dataclass(frozen=True, slots=True)
class Pieces:
    """What a loop becomes when it is computed in parts.

    Attributes:
        step: Its recurrence.
        found: The operator.
        guards: The guards of updates.
        left_out: Guards against a first element that changes nothing later on.
        unseen: That it changes nothing.
        position: The place of the loop.
        node: The loop as it was.
        writer: The program without the recurrence, with the names that the pieces use.
        part: The variable of parts.
        number: How many parts there are.
        declared: Where the results of parts live.
        partial: The recurrence of one part.
        starts: How a part begins.
        body: One iteration of a part.
        own: The label of the last statement in it.
        joined: What joins a part to the state.
        joins: The same as updates.
        given: What the names in them stand for.
        leaving: The arrays that the loop leaves something in, for others or for itself later.
    """

    step: Recurrence
    found: OperatorCertificate
    guards: dict[str, Condition]
    left_out: dict[str, Condition]
    unseen: Law
    position: tuple[int, ...]
    node: Loop
    writer: Writer
    part: str
    number: Index
    declared: tuple[Declaration, ...]
    partial: Recurrence
    starts: tuple[Node, ...]
    body: tuple[Node, ...]
    own: str
    joined: tuple[Node, ...]
    joins: tuple[Update, ...]
    given: dict[str, Value]
    leaving: frozenset[str]

    @property
    def every(self) -> Range:
        """The range of the loops over parts."""
        return Range(Int(0), self.number)

    @property
    def names(self) -> list[str]:
        """The cells of the state, as the listing writes them."""
        return [access_text(state.access) for state in self.step.states]

    def placed(self, first: tuple[Node, ...], at: Position, loops: tuple[Node, ...]) -> Program:
        """Return the program with loops in the place of a node, the declarations before it."""
        whole = replace_at(self.writer.program, at, loops)
        others = tuple(n for n in whole.body if not isinstance(n, Declaration))
        return done(replace(whole, body=(*first, *self.declared, *others)))

    def partial_read(self, program: Program, bounds: Range) -> Law:
        """Show that the loop of a part computes what it was written to compute."""
        return as_written(
            program,
            f"{self.step.loop}@{self.own}",
            expected(self.partial, self.guards | self.left_out),
            bounds=bounds,
            condition=self.step.condition,
        )

    def joined_read(self, program: Program) -> Law:
        """Show the same of the loop that joins the parts."""
        return as_written(
            program,
            f"{self.part}@{statements_in(self.joined)[-1]}",
            joined_cells(self.step, self.joins, self.given),
            bounds=self.every,
        )

    def laws(self) -> tuple[Law, ...]:
        """Show what is to be shown of empty parts."""
        operator = self.found.operator
        laws = []
        if self.guards:
            # Refuted, it only says that the empty part cannot be told apart in this way.
            law = neutral(self.partial, operator, self.guards)
            laws.append(require_proved(law, self.step, decisive=False))
        if self.left_out:
            laws.append(self.unseen)
        laws.append(require_proved(empty_side(self.step, operator), self.step))
        return tuple(laws)


def pieces(program: Program, loop: str, parts: int | str, *, kept: bool = False) -> Pieces:
    """Write what a loop becomes when it is computed in parts.

    Args:
        program: The program.
        loop: The loop; it carries a fold with a proved operator.
        parts: How many parts there are, or the name of a size that the listing is then given.
        kept: Whether each iteration of the loops around it has results of parts to itself.

    Raises:
        NotDone: There is no operator, or there is something that cannot be written.
    """
    step, guarded = unguarded(loop_read(program, loop))
    found = operator_for(program, loop, step)
    operator = found.operator
    if operator.is_extended or len(found.recurrence.states) != len(step.states):
        names = ", ".join(access_text(state.access) for state in step.states)
        raise NotDone(
            f"parts of {loop} can be joined, but only by more numbers than {names}, such as a "
            "product of factors; parts with results of that kind are not written"
        )
    if step.range.step != 1:
        raise NotDone(f"{loop} does not count by one")
    cells = tuple(state.access for state in step.states)
    rest = rest_of(program, loop, flow(program), cells, labels_of(step))
    position, node = position_of(program, loop)
    writer = Writer(replace_at(program, position, (replace(node, body=rest.body),)))
    number: Index = Int(parts) if isinstance(parts, int) else _size(writer, parts)
    part = fresh_name(writer.program, "p")
    ranges = ranges_in(program, labels_of(step))
    outer = loops_around(program, position)
    storage = _storage(
        program, writer, step, part, number, _rows_apart(program, outer) if kept else {}
    )
    whole = {a.name for a in writer.program.arrays if a.element == "int"}
    declared = tuple(
        Declaration(
            cell.array,
            Create("empty", shape, element="int64" if cell.array in whole else None),
        )
        for cell, shape in storage.values()
    )
    cells_of = {name: cell for name, (cell, _) in storage.items()}
    partial = _with_cells(step, operator, cells_of, whole)
    # A part begins with nothing, also where the loop begins with something.
    guards = conditions(next_values(partial), partial, operator)
    if guarded and set(guarded) != set(guards):
        raise NotDone("the empty prefix is guarded in another way")
    left_out, unseen = masked(partial, operator, guards)
    around = [path.variable for path in outer]
    starts: list[Node] = []
    for state in partial.states:
        start: Node = writer.assign(state.access, state.initial)
        for variable in reversed(state.over):
            start = Loop(variable, ranges[variable], (start,))
        starts.append(start)
    known = worked_out((rest,), rest.body, step.loop)
    updates = next_values(partial)
    extra, given, updates = inputs_written(partial, updates, known, writer, around)
    written: tuple[Node, ...] = writer.updates(
        tuple(
            Update(
                s.name,
                s.access,
                s.over,
                updates[s.name],
                s.statements[0],
                (guards | left_out).get(s.name),
            )
            for s in partial.states
        ),
        given,
        ranges,
        suffix_of(*around, step.loop),
    )
    made: tuple[Node, ...] = (*extra, *written)
    if step.condition is not None:
        made = (If(step.condition, made),)
    numbers = {c.state: n for n, c in enumerate(operator.components, 1)}
    places = {numbers[name]: cell for name, (cell, _) in storage.items()}
    inside = {path.variable: path.loop.range for path in outer} | {step.loop: step.range}
    joins, of_parts = join_updates(
        step,
        operator,
        places,
        guarded=True,
        empty=True,
        natural=lambda index: is_never_negative(program, index, inside),
    )
    joins = tuple(replace(update, label="") for update in joins)
    joined = writer.updates(joins, of_parts, ranges, suffix_of(*around, part))
    return Pieces(
        step=step,
        found=found,
        guards=guards,
        left_out=left_out,
        unseen=unseen,
        position=position,
        node=node,
        writer=writer,
        part=part,
        number=number,
        declared=declared,
        partial=partial,
        starts=tuple(starts),
        body=(*rest.body, *made),
        own=statements_in(made)[-1],
        joined=joined,
        joins=joins,
        given=of_parts,
        leaving=frozenset(e.array for e in rest.iteration.edges if e.kind in ("leaving", "outer")),
    )


def _as_integer(initial: Value, cell: Access) -> Value:
    """Return what a part of integers begins with: no integer is below the least of 64 bits.

    Raises:
        NotDone: It is no number.
    """
    match initial:
        case Const(number) if isinf(number):
            # A literal has 64 bits, its sign not counted.
            least = IndexValue(Arith("-", Int(1 - 2**63), Int(1)))
            return least if number < 0 else Const(2**63 - 1)
        case Const(number) if isfinite(number):
            return Const(int(number))
        case _:
            name = access_text(cell)
            raise NotDone(f"{name} is an integer, and no integer is {value_text(initial)}")


def _size(writer: Writer, wish: str) -> Param:
    """Add a size of at least 1 to the arguments of a program."""
    name = fresh_name(writer.program, wish)
    made = Parameter(name, "size", "int")
    least = Contract(Relation(">=", Param(name), Int(1)))
    writer.program = replace(
        writer.program,
        arguments=(*writer.program.arguments, name),
        parameters=(*writer.program.parameters, made),
        contracts=(*writer.program.contracts, least),
    )
    return Param(name)


def _storage(
    program: Program,
    writer: Writer,
    step: Recurrence,
    part: str,
    parts: Index,
    outer: Mapping[str, Index],
) -> dict[str, tuple[Access, tuple[Index, ...]]]:
    """Return where the results of parts live: an element of the state for each part.

    Each iteration of the loops of `outer` has elements of its own.
    """
    found: dict[str, tuple[Access, tuple[Index, ...]]] = {}
    for state in step.states:
        if state.access.rank:
            raise NotDone(f"{access_text(state.access)} is a whole row")
        array = program.array(state.access.array)
        try:
            own = extents_of(program, array)
        except RangeNotFound as error:
            raise NotDone(f"the extents of {array.name} are not known: {error}") from None
        inner = [
            (subscript, extent)
            for subscript, extent in zip(state.access.subscripts, own, strict=True)
            if not _is_told(subscript, outer)
        ]
        shape = (parts, *outer.values(), *(extent for _, extent in inner))
        places = (Var(part), *map(Var, outer), *(subscript for subscript, _ in inner))
        name = writer.array(f"{array.name.replace('.', '_')}_part", shape, array.element)
        found[state.name] = (Access(name, places), shape)
    return found


def _is_told(subscript: Subscript, outer: Mapping[str, Index]) -> bool:
    """Tell whether a subscript is the same throughout an iteration of loops."""
    if isinstance(subscript, Whole) or opaque_terms(subscript):
        return False
    found = variables(subscript)
    return bool(found) and all(name in outer for name in found)


def _rows_apart(program: Program, around: tuple[LoopPath, ...]) -> dict[str, Index]:
    """Return the variables that tell iterations of loops apart, with what each stays below.

    That of a loop over sequences does not belong to them, where their rows do.

    Raises:
        NotDone: It is not known how far a loop goes.
    """
    told = sequences(program, around)
    return {p.variable: _extent(program, p.loop) for p in around if p.variable not in told}


def sequences(program: Program, around: tuple[LoopPath, ...]) -> dict[str, tuple[str, ...]]:
    """Return the variables of loops over sequences no two of which have a row in common.

    Args:
        program: The program.
        around: Loops one inside the other; that over the rows is one of them.

    Returns:
        For each variable the contracts that say so.
    """
    known = segments_of(program)
    found = {}
    for path in around:
        rows = rows_of(path.loop.range, known)
        outer = next((p for p in around if rows is not None and p.variable == rows.sequence), None)
        if (
            rows is not None
            and outer is not None
            and is_over_all(outer.loop.range, known[rows.ends])
        ):
            found[outer.variable] = known[rows.ends].contracts
    return found


def _extent(program: Program, loop: Loop) -> Index:
    """Return how many elements an array needs that is indexed by a loop's variable.

    Raises:
        NotDone: That is not known.
    """
    if not opaque_terms(loop.range.start) and not opaque_terms(loop.range.stop):
        return vector_extent(loop.range)
    declared = declared_range(program, loop.range)
    ends = declared.ends
    known = not any(variables(end) or opaque_terms(end) for end in ends)
    if known and is_never_negative(program, declared.start, {}):
        return declared.stop
    written = extent_along(program, loop, writes=True)
    if written is None:
        raise NotDone(
            f"which iterations {loop.variable} has is read from memory, so it is not known how "
            "many results of parts there are"
        )
    return written


def _with_cells(
    step: Recurrence, operator: Operator, cells: dict[str, Access], whole: set[str]
) -> Recurrence:
    """Return the recurrence of one part: over cells of its own, from ⊥ on.

    Raises:
        NotDone: A cell holds integers, and ⊥ is none.
    """
    nothing = {c.state: c.identity for c in operator.components}
    states = []
    for state in step.states:
        cell, initial = cells[state.name], nothing[state.name]
        if cell.array in whole:
            initial = _as_integer(initial, cell)
        states.append(replace(state, access=cell, initial=initial, bottom=bottom_of(initial, {})))
    return replace(step, states=tuple(states))
