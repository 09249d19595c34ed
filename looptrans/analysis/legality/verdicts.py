"""Illegal verdicts: the smallest example of what went wrong, and the dependence it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import islpy as isl

from looptrans.analysis.dependence.pieces import Counts, pieces_of
from looptrans.analysis.isl_model.model import Model, StatementModel
from looptrans.analysis.isl_model.relation import Relation
from looptrans.analysis.isl_model.witness import smallest_pair
from looptrans.analysis.opaque_terms.supposed import with_supposed_elements
from looptrans.ir.evaluate import evaluate
from looptrans.ir.facts import Dependence
from looptrans.ir.verdict import Verdict, Witness, WitnessKind
from looptrans.ir.walk import accesses

NO_EXAMPLE = "isl finds no example of a reversed dependence"


@dataclass(frozen=True, slots=True)
class Explainer:
    """Finds the smallest examples in one program."""

    model: Model
    context: isl.Set

    def of_pairs(
        self, relation: Relation, chosen: isl.Map, kind: WitnessKind = "order", reason: str = ""
    ) -> Verdict:
        """Return the verdict that shows the smallest of some pairs of a dependence.

        Where only the running program knows whether they occur the verdict is `unknown`, with the
        pair as what there is to try.

        Args:
            relation: The dependence.
            chosen: Those of its pairs that go wrong.
            kind: How.
            reason: What goes wrong, in one sentence.
        """
        source = self.model.statements[relation.source]
        sink = self.model.statements[relation.sink]
        may = relation.may
        if relation.certain is not None:
            sure = chosen.intersect(relation.certain)
            if not sure.intersect_params(self.context).is_empty():
                chosen, may = sure, False
        witness = smallest_pair(self.model, source, sink, chosen, self.context, kind)
        if witness is None:
            return Verdict("unknown", reason=NO_EXAMPLE)
        if relation.supposed:
            witness = with_supposed_elements(self.model, relation, witness) or witness
        dependence = self._dependence(relation, source, sink, witness)
        verdict = Verdict(
            "illegal",
            witness,
            reason,
            source=source.label,
            sink=sink.label,
            array=relation.array,
            cell=self.cell(source, sink, relation, witness),
            dependence=dependence,
        )
        if may:
            doubt = "only the running program knows whether it happens"
            full = f"{reason}; {doubt}" if reason else doubt
            return replace(verdict, decision="unknown", reason=full)
        return verdict

    def _dependence(
        self, relation: Relation, source: StatementModel, sink: StatementModel, witness: Witness
    ) -> Dependence | None:
        """Describe the piece of the dependence that the example belongs to."""
        for piece in pieces_of(self.model, relation, Counts(self.model, self.context)):
            if self._holds(piece.pairs, witness):
                carrier = None if piece.carrier is None else piece.loops[piece.carrier]
                return Dependence(
                    relation.kind,
                    relation.basis,
                    piece.may,
                    source.label,
                    sink.label,
                    relation.array,
                    tuple(loop.variable for loop in piece.loops),
                    piece.distance,
                    piece.direction,
                    None if carrier is None else carrier.variable,
                    None if carrier is None else carrier.span.line,
                    replace(witness, kind="order"),
                    piece.distances,
                    within=piece.within,
                )
        return None

    def _holds(self, pairs: isl.Map, witness: Witness) -> bool:
        """Tell whether an example is one of the pairs."""
        sizes = dict(witness.parameters)
        for number, name in enumerate(self.model.parameters):
            if name in sizes:
                pairs = pairs.fix_val(isl.dim_type.param, number, isl.Val(sizes[name]))
        for kind, ends in ((isl.dim_type.in_, witness.source), (isl.dim_type.out, witness.sink)):
            for number, (_, value) in enumerate(ends):
                pairs = pairs.fix_val(kind, number, isl.Val(value))
        return not pairs.is_empty()

    def cell(
        self, source: StatementModel, sink: StatementModel, relation: Relation, witness: Witness
    ) -> tuple[int, ...]:
        """Return the cell two instances share; empty for a scalar, or where rows are accessed."""
        ends = []
        for statement, iteration, writes in (
            (source, witness.source, relation.kind != "anti"),
            (sink, witness.sink, relation.kind != "flow"),
        ):
            values = dict(witness.parameters) | dict(iteration)
            ends.append(list(_cells(statement, relation.array, writes, values)))
        one, other = ends
        shared = [cell for cell in one if cell in other]
        if not shared and len(one) + len(other) == 1:
            shared = one or other  # the other end is a sum or a row, over many cells
        return shared[0] if shared else ()


def _cells(
    statement: StatementModel, array: str, writes: bool, values: Mapping[str, int]
) -> list[tuple[int, ...]]:
    """Return the cells an instance accesses one by one."""
    found = []
    for each in accesses(statement.place.node):
        access = each.access
        if access.array != array or each.is_write != writes or access.rank or each.generators:
            continue
        cell = [evaluate(index, values) for index in access.indices]
        known = tuple(number for number in cell if number is not None)
        found += [known] if len(known) == len(cell) else []
    return found
