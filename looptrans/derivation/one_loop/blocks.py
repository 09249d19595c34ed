"""A loop in blocks: each block's result at once, appended by the combine operator.

for j0 in range(0, N, 64):
    m_b = the maximum of the block        c1 = max_j x1
    l_b = the sum of the block            c2 = sum_j exp(x1 - c1)
    m_ij0 = max(m[i], m_b)                t1 = max(s1, b1)
    l[i] = l[i] * … + l_b * …             t2 = s2 * exp(s1 - t1) + b2 * exp(b1 - t1)
    m[i] = m_ij0
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.algebra.certificate import OperatorCertificate
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.normal_forms.normal import Assumptions, equality
from looptrans.algebra.operators.closed import BlockComponent, ClosedForm
from looptrans.algebra.operators.laws import Equation, Law, domain_of
from looptrans.algebra.operators.operator import Operator
from looptrans.algebra.positional.values import names_of, put
from looptrans.derivation.one_loop.bodies import (
    Kept,
    Rest,
    flow,
    kept_of,
    labels_of,
    position_of,
    ranges_in,
    rest_of,
    worked_out,
)
from looptrans.derivation.one_loop.guards import at_infinity, extrema, require_proved, unguarded
from looptrans.derivation.one_loop.joining import (
    empty_side,
    join_updates,
    joined_cells,
    vector_extent,
)
from looptrans.derivation.one_loop.loop import loop_read, operator_for
from looptrans.derivation.one_loop.reading import as_written
from looptrans.derivation.one_loop.writing import (
    Update,
    Writer,
    at_least_one,
    done,
    folded,
    suffix_of,
    tested_by_value,
)
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.affine import difference
from looptrans.ir.condition import Condition
from looptrans.ir.index import Index, Int, Var
from looptrans.ir.listing import access_text
from looptrans.ir.program import Assign, Declaration, Loop, Node, Program
from looptrans.ir.rewrite import with_accesses
from looptrans.ir.value import Access, Binary, Call, Create, Range, Read, Real, Select, Value
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import nodes, written_in
from looptrans.transforms.editing.accesses import listed
from looptrans.transforms.editing.extents import extent
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.tree import loops_around, replace_at, statements_in
from looptrans.transforms.steps.strip_mine import strip, strip_mine


def in_blocks(program: Program, loop: str, size: int) -> DerivationStep:
    """Append blocks of a loop instead of single iterations.

    Args:
        program: The program.
        loop: The loop; it carries a fold with a proved operator.
        size: How many iterations a block has.

    Raises:
        NotDone: There is no operator, no closed form of a block, or something could not be shown.
    """
    step, guards = unguarded(loop_read(program, loop))
    found = operator_for(program, loop, step)
    closed = found.closed
    if (
        closed is None
        or found.operator.is_extended
        or len(found.recurrence.states) != len(step.states)
    ):
        raise NotDone(f"there is no closed form of a block of {loop}")
    if step.range.step != 1:
        raise NotDone(f"{loop} does not count by one")
    work = _Blocks(program, loop, size, step, found, closed, bool(guards))
    return work.step()


@dataclass(frozen=True, slots=True)
class _Component:
    """A component of a block's result in the listing.

    Attributes:
        number: Its number.
        block: What the algebra says of it.
        cell: Where the block's result is gathered.
        over: The inner loops it is a vector over.
        pass_: The number of the loop over the block that gathers it.
        guard: What must hold for a term to count, over `c…`.
    """

    number: int
    block: BlockComponent
    cell: Access
    over: tuple[str, ...]
    pass_: int
    guard: Condition | None


@dataclass(slots=True)
class _Blocks:
    program: Program
    loop: str
    size: int
    recurrence: Recurrence
    found: OperatorCertificate
    closed: ClosedForm
    guarded: bool

    @property
    def operator(self) -> Operator:
        return self.found.operator

    def step(self) -> DerivationStep:
        step, program = self.recurrence, self.program
        cells = tuple(state.access for state in step.states)
        rest = rest_of(program, self.loop, flow(program), cells, labels_of(step))
        position, node = position_of(program, self.loop)
        writer = Writer(replace_at(program, position, (replace(node, body=rest.body),)))
        over = fresh_name(writer.program, f"{step.loop}0")
        writer.names.add(over)
        inner = replace(node, range=strip(node.range, over, self.size), leading=())
        ranges = ranges_in(program, labels_of(step))
        parts = self._components(writer, ranges)
        declared = self._declarations(parts, ranges)
        around = [path.variable for path in loops_around(program, position)]
        loops = self._gathered(writer, rest, inner, parts, ranges, over, around)
        joins, given = self._joins(parts)
        joined = writer.updates(joins, given, ranges, suffix_of(*around, step.loop))
        starts = tuple(self._start(writer, part, ranges) for part in parts)
        body = (*starts, *loops.nodes, *joined)
        bounds = Range(node.range.start, node.range.stop, self.size)
        outer = Loop(over, bounds, body, leading=node.leading)
        made = replace_at(writer.program, position, (outer,))
        made = replace(made, body=(*declared, *loops.declared, *made.body))
        final = done(_declarations_first(made))
        laws = [*self._laws(), *self._read_again(final, parts, loops, joined, inner, over, bounds)]
        order = strip_mine(program, self.loop, self.size).verdict
        shown = [
            *order.certificates,
            Certificate(
                "rounding",
                "the results are equal over the reals, not bit for bit",
                "legal",
                "the terms of a block are joined among themselves first",
            ),
        ]
        names = [access_text(state.access) for state in step.states]
        return DerivationStep(
            f"append blocks of {self.size} iterations of {step.loop} to {listed(names)}",
            "blocks",
            (self.loop, self.size),
            program,
            final,
            tuple(shown),
            tuple(laws),
            self.found,
        )

    # What a block's result is

    def _components(self, writer: Writer, ranges: dict[str, Range]) -> list[_Component]:
        found: list[_Component] = []
        known = {extremum.state: extremum for extremum in extrema(self.recurrence, self.operator)}
        for number, (block, component) in enumerate(
            zip(self.closed.components, self.operator.components, strict=True), 1
        ):
            assert component.state is not None
            state = self.recurrence.state(component.state)
            if ":" in state.over:
                raise NotDone(f"{access_text(state.access)} is a whole row")
            if block.value != Real(f"y{number}"):
                raise NotDone(f"the result of a block for {access_text(state.access)} is no fold")
            needs = {n for n in names_of(block.term) if n.startswith("c")}
            earlier = [c for c in found if f"c{c.number}" in needs]
            tests: list[tuple[str, float]] = []
            for part in earlier:
                name = self.operator.components[part.number - 1].state
                if name in known:
                    tests.append((f"c{part.number}", known[name].start))
            array = self.program.array(state.access.array)
            shape = [extent(self.program, vector_extent(ranges[v])) for v in state.over]
            name = writer.array(f"{array.name.replace('.', '_')}_b", tuple(shape), array.element)
            found.append(
                _Component(
                    number,
                    block,
                    Access(name, tuple(Var(v) for v in state.over)),
                    state.over,
                    1 + max((c.pass_ for c in earlier), default=0),
                    at_least_one(tests) if self.guarded else None,
                )
            )
        return found

    def _declarations(
        self, parts: list[_Component], ranges: dict[str, Range]
    ) -> tuple[Declaration, ...]:
        return tuple(
            Declaration(
                part.cell.array,
                Create(
                    "empty",
                    tuple(extent(self.program, vector_extent(ranges[v])) for v in part.over),
                ),
            )
            for part in parts
            if part.over
        )

    def _joins(self, parts: list[_Component]) -> tuple[tuple[Update, ...], dict[str, Value]]:
        """Return what joins a block to the state; all of it may be left out by a condition."""
        return join_updates(
            self.recurrence,
            self.operator,
            {c.number: c.cell for c in parts},
            guarded=self.guarded,
            empty=self.recurrence.condition is not None,
        )

    def _start(self, writer: Writer, part: _Component, ranges: dict[str, Range]) -> Node:
        identity = self.operator.components[part.number - 1].identity
        return _through(part.over, ranges, writer.assign(part.cell, identity))

    # The loops over a block

    def _gathered(
        self,
        writer: Writer,
        rest: Rest,
        inner: Loop,
        parts: list[_Component],
        ranges: dict[str, Range],
        over: str,
        around: list[str],
    ) -> _Loops:
        step = self.recurrence
        stays = kept_of(rest.body, step.condition)
        kept = stays.nodes
        known = worked_out((rest,), kept, step.loop)
        passes = max(part.pass_ for part in parts)
        declared: list[Declaration] = []
        if passes > 1:
            kept, known, declared = _stored(
                writer, kept, known, inner, over, self.size, suffix_of(*around, step.loop)
            )
        given: dict[str, Value] = {
            item.name: folded(item.value, known) for item in (*step.inputs, *step.parameters)
        }
        names = {item.value: Real(item.name) for item in (*step.inputs, *step.parameters)}
        there = {folded(tested_by_value(value), names): read for value, read in known.items()}
        there = {value: read for value, read in there.items() if not isinstance(value, Real)}
        given |= {f"c{part.number}": Read(part.cell) for part in parts}
        none = Kept((), (), step.condition)
        loops: list[Loop] = []
        cells: list[list[tuple[_Component, Value]]] = []
        for number in range(1, passes + 1):
            mine = [part for part in parts if part.pass_ == number]
            terms: list[tuple[_Component, Value]] = []
            written: list[Node] = []
            for part in mine:
                value = put(folded(_update(part), there), given | {"r": Read(part.cell)})
                plain = {item.name: item.value for item in (*step.inputs, *step.parameters)} | {
                    f"c{p.number}": Read(p.cell) for p in parts
                }
                terms.append((part, put(_update(part), plain | {"r": Read(part.cell)})))
                written.append(_through(part.over, ranges, writer.assign(part.cell, value)))
            count = len(stays.before)
            here = Kept(kept[:count], kept[count:], step.condition) if number == 1 else none
            loops.append(replace(inner, body=here.with_(tuple(written))))
            cells.append(terms)
        return _Loops(tuple(loops), tuple(declared), cells, known)

    # What is shown

    def _laws(self) -> list[Law]:
        step, operator = self.recurrence, self.operator
        proofs = tuple(
            Equation(f"c{n}", block.term, block.term, block.proof)
            for n, block in enumerate(self.closed.components, 1)
        )
        found = [Law("closed form", "a block at once is its iterations joined one by one", proofs)]
        if self.guarded:
            found.append(_neutral_terms(step, operator, self.closed))
            found.append(empty_side(step, operator))
        return [require_proved(law, step) for law in found]

    def _read_again(
        self,
        final: Program,
        parts: list[_Component],
        loops: _Loops,
        joined: tuple[Node, ...],
        inner: Loop,
        over: str,
        bounds: Range,
    ) -> list[Law]:
        step = self.recurrence
        found: list[Law] = []
        label = {
            part.number: next(
                n.label
                for loop in loops.nodes
                for n in nodes(loop.body)
                if isinstance(n, Assign) and n.targets[0] == part.cell
            )
            for part in parts
        }
        for terms in loops.terms:
            cells = tuple(
                (part.cell, self.operator.components[part.number - 1].identity, value)
                for part, value in terms
            )
            name = f"{step.loop}@{label[terms[0][0].number]}"
            found.append(
                as_written(
                    final,
                    name,
                    cells,
                    bounds=inner.range,
                    condition=step.condition,
                    standing=loops.stored,
                )
            )
        updates, given = self._joins(parts)
        name = f"{over}@{statements_in(joined)[-1]}"
        found.append(as_written(final, name, joined_cells(step, updates, given), bounds=bounds))
        return found


@dataclass(frozen=True, slots=True)
class _Loops:
    nodes: tuple[Loop, ...]
    declared: tuple[Declaration, ...]
    terms: list[list[tuple[_Component, Value]]]
    known: dict[Value, Value]

    @property
    def stored(self) -> dict[Value, Value]:
        """What an element that the first loop over a block stored stands for."""
        return {read: value for value, read in self.known.items()}


def _update(part: _Component) -> Value:
    """Return the update of a component, over `r` for itself."""
    mine, term = Real("r"), part.block.term
    value: Value
    if part.block.monoid in ("+", "*"):
        value = Binary("+" if part.block.monoid == "+" else "*", mine, term)
    else:
        value = Call(part.block.monoid, (mine, term))
    return value if part.guard is None else Select(part.guard, value, mine)


def _through(over: tuple[str, ...], ranges: dict[str, Range], node: Node) -> Node:
    for variable in reversed(over):
        node = Loop(variable, ranges[variable], (node,))
    return node


def _declarations_first(program: Program) -> Program:
    first = tuple(node for node in program.body if isinstance(node, Declaration))
    others = tuple(node for node in program.body if not isinstance(node, Declaration))
    return replace(program, body=(*first, *others))


def _stored(
    writer: Writer,
    kept: tuple[Node, ...],
    known: dict[Value, Value],
    inner: Loop,
    over: str,
    size: int,
    suffix: str,
) -> tuple[tuple[Node, ...], dict[Value, Value], list[Declaration]]:
    """Keep the scalars that an iteration works out for the later loops over its block."""
    declared: list[Declaration] = []
    place: Index = difference(Var(inner.variable), Var(over))
    for value, read in list(known.items()):
        if not isinstance(read, Read) or read.access.subscripts:
            continue
        scalar = read.access
        name = writer.array(f"{scalar.array.removesuffix('_' + suffix)}_b", (Int(size),))
        declared.append(Declaration(name, Create("empty", (Int(size),))))
        cell = Access(name, (place,))

        def change(access: Access, scalar: Access = scalar, cell: Access = cell) -> Access:
            return cell if access == scalar else access

        kept = with_accesses(kept, change)
        known[value] = Read(cell)
    shared = written_in(kept) - {d.array for d in declared}
    if any(not isinstance(n, Assign) for n in kept) and shared:
        # What inner loops leave in scalars is not kept for later loops.
        scalars = [a.name for a in writer.program.arrays if a.rank == 0 and a.name in shared]
        if scalars:
            raise NotDone(f"{scalars[0]} would have to be kept for a whole block")
    return kept, known, declared


def _neutral_terms(step: Recurrence, operator: Operator, closed: ClosedForm) -> Law:
    """Show that a term at the infinity adds nothing to a block that holds a number."""
    equations = []
    domain = domain_of(step, operator, operator.positive, operator.nonnegative)
    for number, block in enumerate(closed.components, 1):
        for extremum in extrema(step, operator):
            place = next(
                n for n, c in enumerate(operator.components, 1) if c.state == extremum.state
            )
            if f"c{place}" not in names_of(block.term):
                continue
            nothing = operator.components[number - 1].identity
            for value in at_infinity(block.term, extremum):
                proof = equality(value, nothing, Assumptions(domain))
                equations.append(Equation(f"c{number}", value, nothing, proof))
    return Law(
        "neutral", "a term as small as ⊥ adds nothing to a part that is not ⊥", tuple(equations)
    )
