"""Splitting a reduction: blocks of a loop make partial results, which are then joined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from looptrans.analysis.budget import BudgetExceeded
from looptrans.analysis.cycles.iterations import Iterations, iterations_of
from looptrans.ir.affine import extremum, product, total
from looptrans.ir.index import Index, Int, Var, opaque_terms
from looptrans.ir.listing import assign_text
from looptrans.ir.operator import LEFT, OPERATORS, RIGHT, Operator
from looptrans.ir.program import Assign, Declaration, Loop, Node, Program
from looptrans.ir.rewrite import replaced, rewritten, with_accesses
from looptrans.ir.source import Span
from looptrans.ir.step import Step, same_names
from looptrans.ir.value import Access, Const, Create, Range, Read, Value
from looptrans.ir.verdict import Verdict
from looptrans.ir.walk import assignments, nodes, placed
from looptrans.transforms.editing.accesses import DTYPES, listed, place_of
from looptrans.transforms.editing.errors import (
    BadNumber,
    NothingToDo,
    RangeNotFound,
    TransformError,
)
from looptrans.transforms.editing.extents import blocks_of, extent, extreme
from looptrans.transforms.editing.finish import finished
from looptrans.transforms.editing.naming import fresh_label, fresh_name, with_array
from looptrans.transforms.editing.privacy import private_around
from looptrans.transforms.editing.tree import (
    LoopPath,
    find_loop,
    loop_name,
    loops_around,
    node_at,
    ranges_around,
    replace_at,
)
from looptrans.transforms.judging.contributions import check_split, is_update
from looptrans.transforms.steps.partials import Partials, partials_of


def split(program: Program, loop: str, size: int, operator: str | Operator | None = None) -> Step:
    """Compute a reduction in blocks of a loop, each into a partial result, and join these.

                                           s_part = empty((N + 63) // 64)
        for j in range(0, N):              for p in range(0, (N + 63) // 64):
            s = s + x[j]                       s_part[p] = 0.0
                                 ->            for j in range(64 * p, min(64 * p + 64, N)):
                                                   s_part[p] = s_part[p] + x[j]
                                           for q in range(0, (N + 63) // 64):
                                               s = s + s_part[q]

    All reductions of the loop are split together. It is legal if the operator is associative and
    commutative with that identity, and every value that was joined to a result still is, once. The
    results are then equal over the reals, and not always bit for bit.

    Args:
        program: The program.
        loop: The loop.
        size: How many iterations a block has.
        operator: What the results are joined by; by default what each of them is recognized to be
            reduced by. One with a proof of its own is for updates `cell = combine(cell, x)`.

    Raises:
        TransformError: There is no such loop, it carries no reduction, or more than reductions.
        BadNumber: The size is not above 0.
        RangeNotFound: How many blocks there can be cannot be said in terms of the parameters.
    """
    parts = [loop, str(size)]
    if operator is not None:
        parts.append(operator if isinstance(operator, str) else operator.name)
    called = f"split({', '.join(parts)})"
    if size < 1:
        raise BadNumber(f"the size {size} is not above 0", None, remedy="say split(j, 64)")
    path = find_loop(program, loop)
    if path.loop.execution == "parallel":
        raise TransformError(
            f"the loop {loop_name(program, path.position)} is parallel",
            place_of(path.loop),
            why="its iterations join their values as they come",
            remedy="split the loop first, and then run the blocks in parallel",
        )
    try:
        found = iterations_of(program, path.position)
    except BudgetExceeded as error:
        return Step(called, program, program, Verdict("unknown", reason=str(error)), {})
    plan = _plan(program, path, size, _operators(program, path, found, operator))
    after = _rewritten(program, path, plan)
    done, images = finished(after, same_names(program, after))
    verdict = check_split(program, done, images, plan.partial_of, plan.operators)
    if verdict.decision == "unknown":
        _require_recognized(path, found, plan)
    return Step(called, program, done, verdict, images)


def can_split(program: Program, path: LoopPath, found: Iterations) -> bool:
    """Tell whether partial results can be made of a loop, whose reductions are written as such."""
    try:
        plan = _plan(program, path, 2, _operators(program, path, found, None))
    except TransformError:
        return False
    operators = {label: each.operator for each in plan.partials for label in each.updates}
    return all(
        is_update(node, operators[node.label])
        for node in nodes(path.loop.body)
        if isinstance(node, Assign) and node.label in operators
    )


def _require_recognized(path: LoopPath, found: Iterations, plan: _Plan) -> None:
    """Require that all is written as updates, where it could not be shown that all is well."""
    folds = {(fold.array, fold.operator) for fold in found.folds}
    for each in plan.partials:
        name, array = each.operator.name, each.cell.array
        updates = assignments(path.loop.body)
        updates = [node for node in updates if node.label in each.updates]
        odd = [node for node in updates if not is_update(node, each.operator)]
        if name not in OPERATORS or not (odd or (array, name) not in folds):
            continue
        raise TransformError(
            f"{path.variable} is not recognized as a reduction by {name} into {array}",
            place_of((odd or updates)[0]),
            why=f"{assign_text(odd[0])} is not cell = cell op x, and no inputs show what else"
            if odd
            else f"other statements of the loop read or write {array}, and no inputs show a "
            "difference",
            remedy="write the update so, with one x that does not read the cell"
            if odd
            else f"leave the other uses of {array} to a loop of their own",
        )


# What is reduced, and by what


def _operators(
    program: Program, path: LoopPath, found: Iterations, given: str | Operator | None
) -> dict[str, Operator]:
    """Return the operator of each array that the loop reduces into."""
    loop = loop_name(program, path.position)
    arrays = tuple(dict.fromkeys(tie.array for tie in found.kept))
    if not arrays:
        raise NothingToDo(
            f"the loop {loop} carries no reduction",
            place_of(path.loop),
            why="no values pass from one iteration to another",
            remedy=f"strip_mine({loop}, SIZE) makes blocks of it",
        )
    recognized = {fold.array: fold.operator for fold in found.folds}
    if given is not None:
        chosen = _named(given)
        fitting = [array for array in arrays if recognized.get(array) == chosen.name]
        return dict.fromkeys(fitting or arrays, chosen)
    tie = next(iter(found.unexplained), None)
    if tie is not None:
        raise TransformError(
            f"{tie.array} is not reduced by {loop} in a way that is recognized",
            _place(program, tie.sink),
            why=f"the {tie.kind} dependence {tie.source} → {tie.sink} is carried by it, and is no "
            "part of a reduction by +, *, max or min",
            remedy="looptrans derive --to split looks for an operator that joins the whole state",
        )
    return {array: _named(recognized[array]) for array in arrays}


def _named(operator: str | Operator) -> Operator:
    if isinstance(operator, Operator):
        return operator
    if operator not in OPERATORS:
        raise TransformError(
            f"partial results cannot be joined by {operator}",
            None,
            remedy=f"the operators are {listed(tuple(OPERATORS))}",
        )
    return OPERATORS[operator]


def _place(program: Program, label: str) -> Span | None:
    return next((place_of(p.node) for p in placed(program) if p.label == label), None)


# What is made


@dataclass(frozen=True, slots=True)
class _Plan:
    """A loop in blocks.

    Attributes:
        blocks: How many there are.
        block: The variable of the loop over blocks.
        join: The variable of the loop that joins them.
        inner: The iterations of one block.
        partials: The partial results of each reduction.
    """

    blocks: Index
    block: str
    join: str
    inner: Range
    partials: tuple[Partials, ...]

    @property
    def partial_of(self) -> dict[str, str]:
        """The reduced array for each array of partial results."""
        return {each.array.name: each.cell.array for each in self.partials}

    @property
    def operators(self) -> dict[str, Operator]:
        """The operator for each reduced array."""
        return {each.cell.array: each.operator for each in self.partials}


def _plan(program: Program, path: LoopPath, size: int, operators: Mapping[str, Operator]) -> _Plan:
    bounds = path.loop.range
    blocks = blocks_of(bounds, size)
    around = ranges_around(program, path.position)
    most = extreme(blocks, around, "highest")
    if most is None:
        loop = loop_name(program, path.position)
        # Behind a guard that looks into a table, it is not seen who contributes.
        by_tables = any(opaque_terms(end) for end in bounds.ends)
        raise RangeNotFound(
            f"how many blocks the loop {loop} has is not known beforehand",
            place_of(path.loop),
            why="the partial results are created before the loops, with a shape in terms of sizes",
            remedy=f"phased_atomics({loop}) joins the iterations without partial results"
            if by_tables
            else "give the loop a bound of sizes and a guard",
        )
    block = fresh_name(program, "p")
    join = fresh_name(program, "q")
    stride = bounds.step * size
    start = total(bounds.start, product(stride, Var(block)))
    end = extremum("min" if stride > 0 else "max", (total(start, stride), bounds.stop))
    partials: list[Partials] = []
    grown = program
    for name, operator in operators.items():
        made = partials_of(grown, path, program.array(name), operator, extent(program, most))
        grown = replace(grown, arrays=(*grown.arrays, made.array))
        partials.append(made)
    return _Plan(blocks, block, join, Range(start, end, bounds.step), tuple(partials))


# The program with it


def _rewritten(program: Program, path: LoopPath, plan: _Plan) -> Program:
    after, position = program, path.position
    for each in plan.partials:
        shape = each.array.extents
        creation = Create("empty", shape, element=DTYPES[each.array.element])
        after, shift = with_array(after, each.array, Declaration(each.array.name, creation))
        position = (position[0] + shift, *position[1:])
    shared = [each.array.name for each in plan.partials if _is_shared(program, path, each)]
    after = private_around(after, position, shared)
    loop = node_at(after, position)
    assert isinstance(loop, Loop)
    number = int(fresh_label(program)[1:])
    labels = iter(f"S{number + n}" for n in range(2 * len(plan.partials)))
    starts = [_start(each, plan.block, next(labels)) for each in plan.partials]
    joins = [_join(each, plan.join, next(labels)) for each in plan.partials]
    inner = replace(loop, range=plan.inner, body=_updated(loop.body, plan), leading=())
    blocks = Range(Int(0), plan.blocks)
    made = (
        Loop(plan.block, blocks, (*starts, inner), leading=loop.leading),
        Loop(plan.join, blocks, tuple(joins)),
    )
    return replace_at(after, position, made)


def _is_shared(program: Program, path: LoopPath, each: Partials) -> bool:
    """Tell whether iterations of parallel loops around would use the same partial results."""
    own = [each.cell.subscripts[dimension] for dimension in each.kept]
    return any(
        around.loop.execution == "parallel" and Var(around.variable) not in own
        for around in loops_around(program, path.position)
    )


def _updated(body: tuple[Node, ...], plan: _Plan) -> tuple[Node, ...]:
    """Let the updates go into the partial results of their block."""

    def change(node: Node) -> tuple[Node, ...]:
        for each in plan.partials:
            if isinstance(node, Assign) and node.label in each.updates:
                cell = node.targets[0]
                return (_into(node, cell, each.at(plan.block, cell)),)
        return (node,)

    return rewritten(body, change)


def _into(node: Assign, cell: Access, partial: Access) -> Node:
    return with_accesses((node,), lambda access: partial if access == cell else access)[0]


def _start(each: Partials, block: str, label: str) -> Node:
    return _through(each, Assign(label, (each.at(block, each.cell),), (_identity(each),)))


def _join(each: Partials, block: str, label: str) -> Node:
    partial = Read(each.at(block, each.cell))
    operands: dict[Value, Value] = {LEFT: Read(each.cell), RIGHT: partial}
    value = replaced(each.operator.combine, operands.get)
    return _through(each, Assign(label, (each.cell,), (value,)))


def _through(each: Partials, node: Node) -> Node:
    for variable, bounds in reversed(each.loops):
        node = Loop(variable, bounds, (node,))
    return node


def _identity(each: Partials) -> Const:
    identity = each.operator.identity
    return Const(int(identity) if each.array.element == "int" else identity)
