"""The steps of a backward derivation, each with its certificates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from looptrans.adjoint.equations.definitions import plain_name, refreshed
from looptrans.adjoint.equations.sums import Term, combined, expanded, times
from looptrans.adjoint.sweep.derivatives import used_derivatives
from looptrans.adjoint.sweep.vanishing import agree as written_out_agree
from looptrans.algebra.normal_forms.normal import Assumptions, Equality, equality
from looptrans.algebra.positional.cells import value_moved
from looptrans.algebra.positional.numbers import Domain
from looptrans.algebra.positional.values import ZERO, summands
from looptrans.ir.index import Index, Var
from looptrans.ir.listing import value_text
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Access, Call, Read, Real, Reduce, Value, free_variables, walk_value
from looptrans.ir.verdict import Certificate, Decision

if TYPE_CHECKING:
    from looptrans.adjoint.exponentials.statistics import LogSum
    from looptrans.adjoint.sweep.reverse import Reverse
    from looptrans.adjoint.sweep.simplifying import Finding
    from looptrans.adjoint.writing import Writer

MOST_OPENED = 12
MOST_DIVIDED = 4
_DECISIONS: dict[str, Decision] = {
    "proved": "legal",
    "refuted": "illegal",
    "unknown": "unknown",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a derivation.

    Attributes:
        name: What was done, as a phrase.
        certificates: What it leans on.
    """

    name: str
    certificates: tuple[Certificate, ...]

    @property
    def decision(self) -> Decision:
        """Whether every certificate was shown."""
        verdicts = {certificate.verdict for certificate in self.certificates}
        if "illegal" in verdicts:
            return "illegal"
        return "unknown" if "unknown" in verdicts else "legal"


def steps_of(reverse: Reverse, statistics: tuple[LogSum, ...], writer: Writer) -> tuple[Step, ...]:
    """Return the steps in order, what they lean on proved.

    Args:
        reverse: The sweep, which knows what it recognized and cancelled.
        statistics: The weights that are worked out from a saved number.
        writer: What is stored, saved and worked out again.
    """
    found = [_once(reverse), _reversed(reverse)]
    masks = _masked(reverse)
    if masks is not None:
        found.append(masks)
    for each in _distinct(reverse.found):
        if each.kind == "contraction":
            found.append(Step("reassociate a contraction", (_contraction(reverse, each),)))
        elif each.kind == "spread":
            found.append(Step("do a sum term by term", (_contraction(reverse, each),)))
        elif each.kind == "vanishes":
            found.append(Step(f"{each.of} vanishes", (_vanishing(reverse, each, statistics),)))
    found += [_statistic(reverse, each) for each in statistics]
    found.append(_storage(writer))
    return tuple(found)


def _distinct(findings: list[Finding]) -> list[Finding]:
    return list({(f.kind, f.law): f for f in findings}.values())


def _once(reverse: Reverse) -> Step:
    count = sum(d.origin != "adjoint" for d in reverse.system.definitions.values())
    law = "every read gets the value that was written last above it"
    reason = (
        f"{count} definitions: each loop around a write and a read is an index of the array, or "
        "sets it anew in every iteration, or is what a sum, maximum or minimum runs over"
    )
    return Step("define every array once", (Certificate("storage", law, "legal", reason),))


def _reversed(reverse: Reverse) -> Step:
    """Compare every derivative that was used with sympy's."""
    smooth, chosen, wrong = used_derivatives(
        d.value for d in reverse.system.definitions.values() if d.origin != "adjoint"
    )
    law = "the adjoint of a cell is the sum of what every read of it adds"
    parts = []
    if smooth:
        parts.append(f"the derivatives of {', '.join(smooth)} are those that sympy finds")
    if chosen:
        verb, who = ("give", "they choose") if len(chosen) > 1 else ("gives", "it chooses")
        parts.append(f"{', '.join(chosen)} {verb} a subgradient, that of what {who}")
    parts.append(
        "by the chain rule the reader's indices that the cell does not have are summed over, and "
        "subscripts are solved for the others"
    )
    if wrong:
        parts = [f"sympy finds another derivative of {', '.join(wrong)}"]
    decision: Decision = "unknown" if wrong else "legal"
    return Step("reverse mode", (Certificate("algebra", law, decision, "; ".join(parts)),))


def _masked(reverse: Reverse) -> Step | None:
    """Show that what is masked adds nothing."""
    if not reverse.prepared.masks:
        return None
    given = Assumptions(Domain(), frozenset({"x"}))
    proof = equality(Call("exp", (Real("x"),)), ZERO, given)
    arrays = ", ".join(reverse.prepared.masks)
    law = f"exp(x) = 0 where x = -inf: outside its condition {arrays} adds nothing"
    return Step("masks become conditions", (_certificate(law, proof),))


def _certificate(law: str, proof: Equality) -> Certificate:
    reason = f"{proof.left} on both sides" if proof.answer == "proved" else "; ".join(proof.tried)
    return Certificate("algebra", law, _DECISIONS[proof.answer], reason, proof.assumptions)


def _contraction(reverse: Reverse, finding: Finding) -> Certificate:
    """Prove two sums equal: every stored sum written out, they have the same terms."""
    proved = _agree(reverse, finding)
    how = "written out, both sides are the same sum of products, whatever the sizes"
    reason = f"{finding.reason}; {how}" if proved else "the two sides, written out, differ"
    return Certificate("algebra", finding.law, "legal" if proved else "unknown", reason)


def _agree(reverse: Reverse, finding: Finding) -> bool:
    """Write out all stored sums; where that is too much, the one that was recognized."""
    left = [t for term in finding.left for t in opened(reverse, term)]
    right = [t for term in finding.right for t in opened(reverse, term)]
    if not _gap(left, right):
        return True
    left = [t for term in finding.left for t in opened(reverse, term, adjoint_only=True)]
    names = {
        atom.access.array: None
        for term in finding.right
        for atom, _ in term.factors
        if isinstance(atom, Read)
    }
    for name in names:
        once = [t for term in finding.right for t in _once_opened(reverse, term, name)]
        if not _gap(left, once):
            return True
    return written_out_agree(reverse, finding.left, finding.right)


def _gap(left: list[Term], right: list[Term]) -> list[Term]:
    return combined([*left, *(replace(t, coefficient=-t.coefficient) for t in right)])


def _once_opened(reverse: Reverse, term: Term, name: str) -> list[Term]:
    """Write out one power of one array in a term, where it has any."""
    for number, (atom, exponent) in enumerate(term.factors):
        if exponent > 0 and isinstance(atom, Read) and atom.access.array == name:
            inner = _inside(reverse, atom)
            if inner is not None:
                rest = _less(term, number)
                return [reverse.counted(times(rest, t)) for t in inner]
    return [term]


def _less(term: Term, number: int) -> Term:
    """Take one power of a factor out of a term."""
    atom, exponent = term.factors[number]
    kept = ((atom, exponent - 1),) if exponent > 1 else ()
    return replace(term, factors=(*term.factors[:number], *kept, *term.factors[number + 1 :]))


def opened(
    reverse: Reverse,
    term: Term,
    *,
    adjoint_only: bool = False,
    weights: Mapping[str, Value] | None = None,
) -> list[Term]:
    """Write out what a term reads that is stored or worked out.

    Args:
        reverse: The definitions.
        term: The term.
        adjoint_only: Leave what the listing computes, and every sum, as it is.
        weights: Write out these weights too, as they are in the listing.
    """
    queue, found = [term], []
    for _ in range(MOST_OPENED):
        if not queue:
            break
        waiting, queue = queue, []
        for each in waiting:
            inner = _one_opened(reverse, each, adjoint_only, weights)
            if inner is None:
                found.append(each)
            else:
                queue += inner
    return [reverse.counted(each) for each in (*found, *queue)]


def _one_opened(
    reverse: Reverse, term: Term, adjoint_only: bool, weights: Mapping[str, Value] | None
) -> list[Term] | None:
    for number, (atom, exponent) in enumerate(term.factors):
        if exponent < 1 or not isinstance(atom, Read):
            continue
        definition = reverse.system.definitions.get(atom.access.array)
        if definition is None:
            continue
        if adjoint_only and (definition.origin != "adjoint" or definition.has_reduction):
            continue
        inner = _inside(reverse, atom, weights)
        if inner is not None:
            return [times(_less(term, number), t) for t in inner]
    return None


def _inside(
    reverse: Reverse, atom: Read, weights: Mapping[str, Value] | None = None
) -> list[Term] | None:
    """Return the terms of a definition's cell; None where it is no sum of products."""
    definition = reverse.system.definitions.get(atom.access.array)
    if definition is None:
        return None
    if definition.name in reverse.prepared.weights:
        if weights is None:
            return None
        value = weights.get(definition.name, definition.value)
        own = dict(zip(definition.variables, atom.access.indices, strict=True))
        return expanded(refreshed(value_moved(value, own), reverse.names), reverse.names)
    if isinstance(definition.value, Reduce) and definition.value.function != "sum":
        return None
    value = reverse.system.instance(definition.name, atom.access.indices)
    inner = expanded(value, reverse.names)
    return None if any(dict(t.factors).get(atom) for t in inner) else inner


def _vanishing(reverse: Reverse, finding: Finding, statistics: tuple[LogSum, ...]) -> Certificate:
    """Prove that terms cancel: written out, times every sum that they divide by."""
    weights = {s.weight.name: s.before for s in statistics}
    terms = list(finding.left)
    for _ in range(MOST_DIVIDED):
        terms = [t for term in terms for t in opened(reverse, term, weights=weights)]
        lowest: dict[Value, int] = {}
        for term in terms:
            for atom, exponent in term.factors:
                # What differs between the terms of a sum does not divide the sum.
                if not term.bound.intersection(free_variables(atom)):
                    lowest[atom] = min(lowest.get(atom, 0), exponent)
        below = tuple((a, -p) for a, p in lowest.items() if p < 0 and isinstance(a, Read))
        terms = combined([times(term, Term(Fraction(1), below)) for term in terms])
        if not terms or not below:
            break
    how = "; written out, and times the sums that are divided by, nothing is left"
    if not terms:
        return Certificate("algebra", finding.law, "legal", f"{finding.reason}{how}")
    how = (
        "; every sum in them was put in as its own definition says, and like terms added up; "
        "written out in full the sums are too many to compare"
    )
    return Certificate("algebra", finding.law, "unknown", f"{finding.reason}{how}")


def _statistic(reverse: Reverse, statistic: LogSum) -> Step:
    """Prove that a weight is the exponential of its exponent less the saved logarithm."""
    system = reverse.system
    weight = statistic.weight
    names: dict[Access, str] = {}
    kept = {each.name: each.value for each in statistic.kept}
    # What the exponent is the sum of is taken as it is.
    terms = {part: f"e{k}" for k, (_, part) in enumerate(summands(weight.exponent, 1), 1)}

    def named(value: Value) -> Value:
        def change(part: Value) -> Value | None:
            if part in terms:
                return Real(terms[part])
            if not isinstance(part, Read):
                return None
            access = part.access
            if access.array in kept:
                return named(kept[access.array])
            return Real(names.setdefault(access, f"x{len(names) + 1}"))

        return replaced(value, change)

    after = next(
        p
        for p in (statistic.after, *_parts(statistic.after))
        if isinstance(p, Call) and p.function == weight.function
    )
    left, right = named(statistic.before), named(after)
    total = {names[a] for a in names if a.array == weight.total}
    proof = equality(left, right, Assumptions(Domain(positive=frozenset(total))))
    cell = system.definitions[weight.name].cell
    own = {v: Var(plain_name(v)) for v in system.definitions[weight.name].variables}
    law = f"{_shown(cell, own)} = {_shown(statistic.before, own)} = {_shown(after, own)}"
    what = " and ".join(f"{name} = {_shown(value, own)}" for name, value in kept.items())
    title = f"work {weight.name} out from {' and '.join(kept)}: keep {what} for each sum"
    return Step(title, (_certificate(law, proof),))


def _parts(value: Value) -> list[Value]:
    return list(walk_value(value))


def _shown(value: Value, names: Mapping[str, Index]) -> str:
    return value_text(value_moved(value, names))


def _storage(writer: Writer) -> Step:
    """Say what is saved, what is stored, and what is worked out again."""
    again = sorted({s.name for nest in writer.nests for s in nest.scalars})
    saved = [writer.shown.get(name, name) for name in writer.saved]
    parts = []
    if saved:
        parts.append(f"the forward hands over {', '.join(saved)}")
    if again:
        parts.append(f"{', '.join(again)} are worked out again where they are read")
    law = "a value worked out again is the value that was read before"
    reason = "; ".join(parts) or "only inputs are read"
    reason += "; each by the one expression that defines it, and no input is written"
    return Step(
        "store little, work out the rest again",
        (
            Certificate("storage", law, "legal", reason),
            Certificate(
                "rounding",
                "sums are done in another order than reverse mode on the listing would do them",
                "legal",
                "equal over the reals, not bit for bit",
            ),
        ),
    )
