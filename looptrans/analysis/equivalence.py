"""Whether a rewritten program may stand for the one it came from.

A statement is an unknown function of its operands, so two programs agree where every operand gets
the value of the same write, or the same initial value, and so does every cell that can be seen
afterwards. What is proved is

    for all a stands for b:   source(a) stands for source(b),   or both are one initial cell

over all operand points, with the source of a copy `x = y` that only one of the programs has taken
to be the source of y. Order and storage are both covered: a reversed dependence and a clobbered
cell each give some operand another source. A cheaper criterion is tried first for reorderings:
where every dependence in memory still runs forward, no operand can have another source.

Where only the running program knows what is accessed, sources are not exact; that a dependence may
be reversed is then no proof that it is, and the answer is unknown.
"""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from looptrans.analysis.comparison import Comparison, creation_of
from looptrans.analysis.concurrency import Conflict, conflicts
from looptrans.analysis.correspondence import (
    Correspondence,
    NotAStep,
    Pair,
    accesses_of,
    check_instances,
    check_same_domains,
    check_statements,
    correspondence,
    domain,
)
from looptrans.analysis.dependences import analyse
from looptrans.analysis.explanation import most_telling
from looptrans.analysis.flow import affine_dependences
from looptrans.analysis.formula import FALSE, conjunction
from looptrans.analysis.graph import loop_order
from looptrans.analysis.interference import interferences
from looptrans.analysis.linear import Linear, linear
from looptrans.analysis.loops import may_be_private
from looptrans.analysis.model import AccessModel, Model, StatementModel, build_model
from looptrans.analysis.polyhedra import access_map, context_set
from looptrans.analysis.reductions import reductions_of
from looptrans.analysis.relation import Relation
from looptrans.analysis.reversals import reversed_pairs
from looptrans.analysis.sources import Sources
from looptrans.analysis.verdicts import Explainer
from looptrans.ir.index import variables
from looptrans.ir.listing import index_text
from looptrans.ir.program import Atomic, BlockReduce, If, Loop, Node, Program
from looptrans.ir.step import Images
from looptrans.ir.value import Binary, Whole, walk_value
from looptrans.ir.verdict import Certificate, CertificateKind, Verdict
from looptrans.ir.walk import live_out

ORDER_LAW = "every dependence still runs forward"
STORAGE_LAW = "every read gets the value it got before"
RACE = "nothing orders the two"
UNORDERED = "both are atomic, but nothing keeps their order, and it matters"


def order_verdict(before: Program, after: Program, images: Images) -> Verdict:
    """Judge a step that only changes when instances run; see `looptrans.transforms.check`."""
    try:
        made = correspondence(before, after, images)
        if made.added or made.removed:
            raise NotAStep("a reordering neither adds nor removes statements")
        if made.is_affine:
            check_instances(made, bijective=True)
        else:
            check_same_domains(made)
        check_statements(made, same_cells=True)
        _check_interface(made)
    except NotAStep as difference:
        return Verdict("unknown", reason=f"not a reordering: {difference}")
    reversed_ = list(reversed_pairs(made))
    if not reversed_ and _same_storage(made):
        certificate = Certificate("order", ORDER_LAW, "legal", "all dependences in memory, by isl")
        return _unless_races(made, certificate)
    if not made.is_affine:
        return _unsure(made, reversed_)
    return _by_sources(made, "order", ORDER_LAW)


def storage_verdict(before: Program, after: Program, images: Images) -> Verdict:
    """Judge a step that changes where values live; see `looptrans.transforms.check`."""
    try:
        made = correspondence(before, after, images)
        if not made.is_affine:
            return _without_sources(made)
        spare = check_instances(made, bijective=False)
        check_statements(made, same_cells=False)
        _check_interface(made)
        _check_spare(made, spare)
    except NotAStep as difference:
        return Verdict("unknown", reason=str(difference))
    return _by_sources(made, "storage", STORAGE_LAW)


def race_verdict(program: Program) -> Verdict:
    """Judge whether a program with parallel loops gives its sequential reading's result."""
    model = build_model(program)
    return judge_races(model, context_set(model))


def _check_interface(made: Correspondence) -> None:
    """Check that what can be seen from outside has the same names and first values."""
    one, other = made.before.program, made.after.program
    if set(live_out(one)) != set(live_out(other)) or one.outputs != other.outputs:
        raise NotAStep("the outputs are others")
    for name in live_out(one):
        if creation_of(one, name) != creation_of(other, name):
            raise NotAStep(f"{name} starts with other values")
    if one.contracts != other.contracts:
        raise NotAStep("the contracts are others")


def _same_storage(made: Correspondence) -> bool:
    """Tell whether the private copies of the two programs are the same."""
    return all(
        _copies(made, pair, made.before, pair.before) == _copies(made, pair, made.after, pair.after)
        for pair in made.pairs
    )


def _copies(
    made: Correspondence, pair: Pair, model: Model, statement: StatementModel
) -> list[tuple[str, tuple[Linear, ...]]]:
    values = pair.values if model is made.before else {}
    return [
        (
            access.array,
            tuple(
                linear(subscript, model.normalizer, values)
                for subscript in access.subscripts[: access.private]
                if not isinstance(subscript, Whole)
            ),
        )
        for access in accesses_of(model, statement)
    ]


def _check_spare(made: Correspondence, spare: list[tuple[Pair, isl.Set]]) -> None:
    """Check that what runs more often than before cannot be noticed, as by a failing access.

    That nobody reads what it writes is seen elsewhere: every operand is compared.
    """
    extra = [(pair.after, more) for pair, more in spare]
    extra += [(statement, domain(made.after, statement, "t")) for statement in made.added]
    for statement, instances in extra:
        also = f"{statement.label} would also run where it did not"
        values = getattr(statement.place.node, "values", ())
        inner = [part for value in values for part in walk_value(value)]
        if any(isinstance(part, Binary) and part.op in ("//", "%") for part in inner):
            raise NotAStep(f"{also}, and may divide by 0")
        for access in accesses_of(made.after, statement):
            reached = _cells(made, access, instances)
            if not reached.is_subset(_existing(made, access)):
                raise NotAStep(f"{also}, and {access.array} may have no such element")


def _cells(made: Correspondence, access: AccessModel, instances: isl.Set) -> isl.Set:
    plain = replace(access, subscripts=access.subscripts[access.private :], private=0)
    touched = access_map(_public(made.after, access.array), plain, 0)
    chosen = instances.reset_tuple_id().set_tuple_name(f"s{access.statement.number}")
    return touched.intersect_domain(chosen).intersect_params(made.context).range()


def _existing(made: Correspondence, access: AccessModel) -> isl.Set:
    """Return the cells an array surely has: inside its extents, or accessed before."""
    shape = _public(made.after, access.array).shapes[access.array]
    dims = [f"x{number}" for number in range(len(shape))]
    notation = made.after.notation({})
    inside = [f"{dim} >= 0" for dim in dims]
    known = all(extent is not None and not variables(extent) for extent in shape)
    if known:
        inside += [
            f"{dim} < {notation.index(extent)}"
            for dim, extent in zip(dims, shape, strict=True)
            if extent is not None
        ]
    formula = conjunction(inside) if known else FALSE
    cells = isl.Set(f"{made.after.prefix}{{ a0[{', '.join(dims)}] : {formula} }}")
    for other in made.before.accesses:
        if other.array == access.array and not other.private and not other.is_may:
            cells = cells.union(access_map(made.before, other, 0).range())
    return cells


def _public(model: Model, array: str) -> Model:
    """Return the model with an array's extents as written, without those of its copies."""
    hidden = max((a.private for a in model.accesses if a.array == array), default=0)
    return replace(model, shapes={**model.shapes, array: model.shapes[array][hidden:]})


def _without_sources(made: Correspondence) -> Verdict:
    """Judge with opaque terms, where sources are not followed: new private names can be judged."""
    before, after = made.before.program, made.after.program
    if _shared(before.body) != _shared(after.body):
        reason = "where values live is not followed through opaque terms: " + _terms(made)
        return Verdict("unknown", reason=reason)
    analysis = analyse(before)
    loops = loop_order(before)
    for position, loop in loop_order(after).items():
        for name in loop.private:
            if name in loops[position].private:
                continue
            if not may_be_private(analysis, position, name):
                reason = f"it cannot be shown that each iteration sets its own {name}"
                return Verdict("unknown", reason=reason)
    law = "each iteration sets its private names before it reads them, and nobody else reads them"
    return Verdict("legal", certificates=(Certificate("storage", law, "legal", "by isl"),))


def _shared(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return a block without what its loops make private."""
    found: list[Node] = []
    for node in body:
        match node:
            case Loop():
                found.append(replace(node, private=(), body=_shared(node.body)))
            case If():
                then, other = _shared(node.body), _shared(node.orelse)
                found.append(replace(node, body=then, orelse=other))
            case Atomic() | BlockReduce():
                found.append(replace(node, body=_shared(node.body)))
            case _:
                found.append(node)
    return tuple(found)


def _terms(made: Correspondence) -> str:
    found = [
        index_text(term)
        for model in (made.before, made.after)
        for access in model.accesses
        for term in access.all_terms
    ]
    return ", ".join(dict.fromkeys(found))


def _unsure(made: Correspondence, reversed_: list[tuple[Relation, isl.Map]]) -> Verdict:
    """Answer where sources are not exact: show the pair that may be reversed."""
    explainer = Explainer(made.before, made.context)
    if not reversed_:
        return Verdict("unknown", reason="what opaque terms make private is not followed")
    order = ("flow", "anti", "output")
    relation, left = min(reversed_, key=lambda each: order.index(each[0].kind))
    verdict = explainer.of_pairs(replace(relation, may=True), left)
    doubt = "whether the two touch one cell depends on the contents of integer arrays"
    return replace(verdict, reason=doubt)


def _by_sources(made: Correspondence, kind: CertificateKind, law: str) -> Verdict:
    before = Sources.of(made.before, "b")
    if kind == "order" and _same_storage(made):
        differences = interferences(made, before)
    else:
        differences = Comparison(made, before, Sources.of(made.after, "a")).differences()
    try:
        worst = most_telling(made, before, differences)
    except NotAStep as difference:
        return Verdict("unknown", reason=str(difference))
    if worst is not None:
        return worst
    return _unless_races(made, Certificate(kind, law, "legal", "value-based flow, by isl"))


def _unless_races(made: Correspondence, certificate: Certificate) -> Verdict:
    """Answer for a step whose sequential reading is right: it must be the only one."""
    races = judge_races(made.after, made.context)
    if races.decision != "legal":
        return races
    return Verdict("legal", certificates=(certificate, *races.certificates))


# Parallel loops: what may happen at once?


def judge_races(model: Model, context: isl.Set) -> Verdict:
    """Judge whether every execution of a program gives its sequential reading's result."""
    explainer = Explainer(model, context)
    open_: list[Conflict] = []
    doubtful: list[Verdict] = []
    for conflict in conflicts(model, context):
        if conflict.guarded:
            open_.append(conflict)
            continue
        relation, pairs = _valued(model, conflict)
        verdict = explainer.of_pairs(relation, pairs, "race", RACE)
        if verdict.decision == "illegal":
            return verdict
        doubtful.append(verdict)
    if doubtful:
        return doubtful[0]
    return _judge_updates(model, explainer, open_)


def _valued(model: Model, conflict: Conflict) -> tuple[Relation, isl.Map]:
    """Return the flow of values among some conflicting pairs where there is one, else the pairs."""
    relation = conflict.relation
    if relation.kind != "flow" or relation.supposed:
        return relation, conflict.pairs
    flows, _ = affine_dependences(model, [relation.array], ("value",))
    for flow in flows:
        if (flow.source, flow.sink) == (relation.source, relation.sink):
            pairs = flow.pairs.intersect(conflict.pairs)
            if not pairs.is_empty():
                return flow, pairs
    return relation, conflict.pairs


def _judge_updates(model: Model, explainer: Explainer, open_: list[Conflict]) -> Verdict:
    """Judge what is atomic or reduced: it must be updates whose order is of no account."""
    if not open_:
        return Verdict("legal", reason="nothing races")
    analysis = analyse(model.program)
    used: dict[tuple[str, str], None] = {}
    for conflict in open_:
        relation = conflict.relation
        first, second = (model.statements[n] for n in (relation.source, relation.sink))
        for level in range(first.shared_depth(second)):
            left = _differing_at(conflict.pairs, level)
            if left.is_empty() or first.loops[level].execution == "sequential":
                continue
            position = first.place.loop_positions[level]
            reduction = next(
                (
                    r
                    for r in reductions_of(analysis, position)
                    if r.array == relation.array
                    and {relation.source, relation.sink} <= r.statements
                ),
                None,
            )
            if reduction is None:
                return explainer.of_pairs(relation, left, "order", UNORDERED)
            used[reduction.array, reduction.operator] = None
    certificates = tuple(
        Certificate(
            "rounding",
            f"the updates of {array} by {operator} may come in any order",
            "legal",
            f"{operator} is associative and commutative over the reals"
            + ("" if operator in ("max", "min") else ", not bit for bit in floating point"),
        )
        for array, operator in used
    )
    return Verdict("legal", reason="nothing races", certificates=certificates)


def _differing_at(pairs: isl.Map, level: int) -> isl.Map:
    """Return the pairs that agree in the outer loops and differ in the one at a level."""
    for number in range(level):
        pairs = pairs.equate(isl.dim_type.in_, number, isl.dim_type.out, number)
    same = pairs.equate(isl.dim_type.in_, level, isl.dim_type.out, level)
    return pairs.subtract(same)
