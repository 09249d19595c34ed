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

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import islpy as isl

from looptrans.analysis.dependence.sources import Sources
from looptrans.analysis.isl_model.linear import Linear, linear
from looptrans.analysis.isl_model.model import Model, StatementModel
from looptrans.analysis.isl_model.relation import Relation
from looptrans.analysis.legality.between import keeps_values
from looptrans.analysis.legality.comparison import Comparison
from looptrans.analysis.legality.correspondence import (
    Correspondence,
    NotAStep,
    Pair,
    accesses_of,
    check_instances,
    check_opaque_constraints,
    check_statements,
    correspondence,
)
from looptrans.analysis.legality.explanation import most_telling
from looptrans.analysis.legality.grown import grown_locals, struck_out
from looptrans.analysis.legality.interference import interferences
from looptrans.analysis.legality.judging import judged
from looptrans.analysis.legality.one_iteration import OneIteration, one_iteration
from looptrans.analysis.legality.races import judge_races, open_updates
from looptrans.analysis.legality.reversals import reversed_pairs
from looptrans.analysis.legality.spare import check_extents, check_spare
from looptrans.analysis.legality.stages import changed_stages
from looptrans.analysis.legality.verdicts import Explainer
from looptrans.ir.creation import creation_of
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.program import Atomic, Barrier, BlockReduce, If, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.step import Image, Images, same_names
from looptrans.ir.value import Whole
from looptrans.ir.verdict import Certificate, CertificateKind, Verdict
from looptrans.ir.walk import live_out, nodes, placed

ORDER_LAW = "every dependence still runs forward"
STORAGE_LAW = "every read gets the value it got before"


def order_verdict(before: Program, after: Program, images: Images) -> Verdict:
    """Judge a step that only changes when instances run; see `transforms.judging.check`."""
    stages = changed_stages(before, after, images)
    relate = partial(correspondence, images=images)
    if stages is not None:
        alone = partial(correspondence, images=stages.images)
        if _agree(_check_interface, before, after) and _agree(_check_arrays, before, after):
            verdict = judged(_order, alone, stages.before, stages.after)
            if verdict.decision == "legal":
                return verdict
        relate = partial(relate, moved=frozenset(place.label for place in placed(stages.before)))
    elif _in_turn(before.body) == _in_turn(after.body) and images == same_names(before, after):
        # Nothing has another place: it is only asked what is at once.
        relate = partial(relate, moved=frozenset())
    return judged(_order, relate, before, after)


def storage_verdict(
    before: Program, after: Program, images: Images, *, created: bool = False
) -> Verdict:
    """Judge a step that changes where values live; see `transforms.judging.check`."""
    stages = None if created else changed_stages(before, after, images)
    if stages is not None and _agree(_check_interface, before, after):
        alone = partial(correspondence, images=stages.images)
        verdict = judged(_storage, alone, stages.before, stages.after)
        if verdict.decision == "legal":
            return verdict
    relate = partial(correspondence, images=images, created=created)
    return judged(_storage, relate, before, after)


def _agree(check: Callable[[Program, Program], None], before: Program, after: Program) -> bool:
    try:
        check(before, after)
    except NotAStep:
        return False
    return True


def _order(made: Correspondence) -> Verdict:
    try:
        return _order_as_it_stands(made)
    except NotAStep as difference:
        inner = None if made.is_affine else one_iteration(made)
        alone = None if inner is None else _alone(inner)
        if inner is None or alone is None or not _same_storage(made):
            raise
        verdict = _order_as_it_stands(alone)
        if verdict.decision == "illegal" and verdict.witness is not None:
            # What can be seen of one iteration need not be seen at the end: that is to be tried.
            tried = inner.supposed(verdict.witness)
            return Verdict("unknown", tried, str(difference))
        if verdict.decision != "legal":
            raise
    _check_interface(*_programs(made))
    _check_arrays(*_programs(made))
    return _unless_races(made, verdict.certificates[0])


def _order_as_it_stands(made: Correspondence) -> Verdict:
    if made.added or made.removed:
        raise NotAStep("a reordering neither adds nor removes statements")
    check_instances(made, bijective=True)
    check_opaque_constraints(made)
    check_statements(made, same_cells=True)
    _check_interface(*_programs(made))
    _check_arrays(*_programs(made))
    reversed_ = list(reversed_pairs(made))
    if _same_storage(made) and not _ordered(made, reversed_):
        certificate = Certificate("order", ORDER_LAW, "legal", "all dependences in memory, by isl")
        return _unless_races(made, certificate, reordered=bool(reversed_))
    if not made.is_affine:
        keeps = keeps_values(made, reversed_) if _same_storage(made) else _keeps_if_shared(made)
        if not keeps:
            return _unsure(made, reversed_)
        certificate = Certificate("order", ORDER_LAW, "legal", "value-based flow, by isl")
        return _unless_races(made, certificate)
    return _by_sources(made, "order", ORDER_LAW)


def _keeps_if_shared(made: Correspondence) -> bool:
    """Tell whether a step is right with private names that all iterations share, and without.

    Before, each copy is set before it is read, so that a shared one has the same value there; that
    it is so afterwards is shown.
    """
    # Seldom needed, and networkx takes a while to load.
    from looptrans.analysis.cycles.graph import loop_order
    from looptrans.analysis.cycles.loops import may_be_private
    from looptrans.analysis.dependence.dependences import analyse

    one, other = made.before.program, made.after.program
    if any(isinstance(n, Atomic | BlockReduce | Barrier) for n in nodes((*one.body, *other.body))):
        return False
    before, after = (replace(p, body=_in_turn(_shared(p.body))) for p in (one, other))
    images = {
        pair.after.label: Image(pair.before.label, tuple(pair.values.values()))
        for pair in made.pairs
    }
    if _order_as_it_stands(correspondence(before, after, images)).decision != "legal":
        return False
    names = {name for loop in loop_order(other).values() for name in loop.private}
    analysis = analyse(after, bases=("value",), arrays=names)
    return all(
        may_be_private(analysis, position, name)
        for position, loop in loop_order(other).items()
        for name in loop.private
    )


def _in_turn(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return a block whose loops are sequential."""

    def each(node: Node) -> tuple[Node, ...]:
        return (replace(node, execution="sequential") if isinstance(node, Loop) else node,)

    return rewritten(body, each)


def _ordered(
    made: Correspondence, reversed_: list[tuple[Relation, isl.Map]]
) -> list[tuple[Relation, isl.Map]]:
    """Return what the program before orders; iterations of a parallel loop come in any order."""
    if not reversed_:
        return []
    open_ = list(open_updates(made.before, made.context))
    found = []
    for relation, pairs in reversed_:
        left = pairs
        for conflict in open_:
            if _ends(conflict.relation) == _ends(relation):
                left = left.subtract(conflict.pairs)
        if not left.is_empty():
            found.append((relation, left))
    return found


def _ends(relation: Relation) -> tuple[str, str, int, int]:
    return relation.kind, relation.array, relation.source, relation.sink


def _storage(made: Correspondence) -> Verdict:
    if not made.is_affine:
        verdict = _without_sources(made)
        return verdict if verdict.decision == "legal" else _stored_alone(made, verdict)
    spare = check_instances(made, bijective=False)
    check_statements(made, same_cells=False)
    _check_interface(*_programs(made))
    check_extents(made)
    verdict = _by_sources(made, "storage", STORAGE_LAW)
    if verdict.decision == "legal":
        check_spare(made, spare)
    if verdict.decision == "unknown":
        # Sources know nothing of tests that are decided alike.
        other = _without_sources(made)
        return other if other.decision == "legal" else verdict
    return verdict


def _stored_alone(made: Correspondence, unknown: Verdict) -> Verdict:
    """Judge in one iteration of the loops that stay as they are.

    Args:
        made: The programs.
        unknown: What is known without that.
    """
    inner = one_iteration(made)
    if inner is None:
        return unknown
    try:
        _check_interface(*_programs(made))
        alone = _alone(inner)
        verdict = unknown if alone is None or not alone.is_affine else _storage(alone)
    except NotAStep:
        return unknown
    # What can be seen of one iteration need not be seen at the end.
    if verdict.decision != "legal":
        return unknown
    return _unless_races(made, verdict.certificates[0])


def _alone(inner: OneIteration) -> Correspondence | None:
    """Relate the two programs of one iteration; None where the loops around it have none."""
    try:
        return correspondence(inner.before, inner.after, inner.images)
    except ListingError:
        return None


def _programs(made: Correspondence) -> tuple[Program, Program]:
    return made.before.program, made.after.program


def _check_interface(one: Program, other: Program) -> None:
    """Check that what can be seen from outside has the same names and first values."""
    if set(live_out(one)) != set(live_out(other)) or one.outputs != other.outputs:
        raise NotAStep("the outputs are others")
    for name in live_out(one):
        if creation_of(one, name) != creation_of(other, name):
            raise NotAStep(f"{name} starts with other values")
    if one.contracts != other.contracts:
        raise NotAStep("the contracts are others")


def _check_arrays(one: Program, other: Program) -> None:
    """Check that every array has the same extents and first values."""
    if {array.name for array in one.arrays} != {array.name for array in other.arrays}:
        raise NotAStep("the arrays are others")
    for array in one.arrays:
        now = other.array(array.name)
        same = (array.rank, array.element, array.shape) == (now.rank, now.element, now.shape)
        if not same or creation_of(one, array.name) != creation_of(other, array.name):
            raise NotAStep(f"{array.name} is another array than before")


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


def _without_sources(made: Correspondence) -> Verdict:
    """Judge with opaque terms, where sources are not followed.

    New private names can be judged, and locals with an element for each iteration of a loop.
    """
    # Seldom needed, and networkx takes a while to load.
    from looptrans.analysis.cycles.graph import loop_order
    from looptrans.analysis.cycles.loops import may_be_private
    from looptrans.analysis.dependence.dependences import analyse

    before, after = made.before.program, made.after.program
    grown = grown_locals(before, after)
    if grown is None or _shared(
        struck_out(before.body, tuple(replace(each, more=0) for each in grown))
    ) != _shared(struck_out(after.body, grown)):
        reason = "where values live is not followed through opaque terms: " + _terms(made)
        return Verdict("unknown", reason=reason)
    earlier, now = loop_order(before), loop_order(after)
    # A creation that was put in moves what stands behind it.
    places = dict(zip(now, earlier, strict=True))
    own = [
        (places[position], name)
        for position, loop in now.items()
        for name in loop.private
        if name not in earlier[places[position]].private
    ]
    own += [(places[position], each.name) for each in grown for position in each.loops]
    analysis = analyse(before, bases=("value",), arrays={name for _, name in own})
    for position, name in own:
        if not may_be_private(analysis, position, name):
            reason = f"it cannot be shown that each iteration sets its own {name}"
            return Verdict("unknown", reason=reason)
    law = "each iteration sets its private names before it reads them, and nobody else reads them"
    certificate = Certificate("storage", law, "legal", "by isl")
    return (
        _unless_races(made, certificate) if grown else Verdict("legal", certificates=(certificate,))
    )


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
        model.normalizer.text(term)
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
    verdict = explainer.of_pairs(replace(relation, may=True, certain=None), left)
    terms = [t for each in relation.supposed for t in (*each.source_terms, *each.sink_terms)]
    if terms:
        names = ", ".join(dict.fromkeys(map(made.before.normalizer.text, terms)))
        return replace(verdict, reason=f"whether the two touch one cell depends on {names}")
    if relation.may:
        return verdict
    reason = f"whether a read gets another value by it is not followed through {_terms(made)}"
    return replace(verdict, reason=reason)


def _by_sources(made: Correspondence, kind: CertificateKind, law: str) -> Verdict:
    before = Sources.of(made.before, "b")
    if kind == "order" and _same_storage(made):
        differences = interferences(made, before)
    else:
        differences = Comparison(made, before, Sources.of(made.after, "a")).differences()
    worst = most_telling(made, before, differences)
    if worst is not None:
        return worst
    return _unless_races(made, Certificate(kind, law, "legal", "value-based flow, by isl"))


def _unless_races(
    made: Correspondence, certificate: Certificate, *, reordered: bool = False
) -> Verdict:
    """Answer for a step whose sequential reading is right: it must be the only one.

    Args:
        made: The programs.
        certificate: What shows that the sequential reading is right.
        reordered: Whether updates whose order was open have another order in it now.
    """
    races = judge_races(made.after, made.context)
    if races.decision != "legal":
        return races
    new = races.certificates
    if new and not reordered:
        # What the program leaned on before is not this step's doing.
        known = judge_races(made.before, made.context).certificates
        new = tuple(found for found in new if found not in known)
    return Verdict("legal", certificates=(certificate, *new))
