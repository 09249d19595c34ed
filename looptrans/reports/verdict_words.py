"""What a verdict on a transformation says: the dependence, the example, and what would go wrong."""

from __future__ import annotations

from collections.abc import Iterator

from looptrans.ir.diagnostic import ListingError
from looptrans.ir.facts import Dependence
from looptrans.ir.program import Program
from looptrans.ir.step import Step
from looptrans.ir.verdict import Assignment, Seen, Verdict, Witness
from looptrans.ir.walk import loops
from looptrans.reports.style import printable
from looptrans.reports.words import assignments, carrier, listed, vector
from looptrans.transforms.catalogue import Entry, entry_of
from looptrans.transforms.script import Call, bound, parse_script

INITIAL = "the initial value"


def call_of(step: Step) -> tuple[Entry, Call] | None:
    """Return the transformation of a step as it was written, or None where it is no such call."""
    try:
        (call,) = parse_script(step.name)
    except (ListingError, ValueError):
        return None
    entry = entry_of(call.name)
    return None if entry is None else (entry, call)


def assumptions(verdict: Verdict) -> tuple[str, ...]:
    """Return the contracts a verdict and its certificates lean on, as written, each once."""
    found = [*verdict.assumptions]
    for certificate in verdict.certificates:
        found += certificate.assumptions
    return tuple(dict.fromkeys(found))


def refusal(step: Step) -> str:
    """Return what is said of a step that is not legal: `cannot interchange i and j`."""
    illegal = step.verdict.decision == "illegal"
    if not step.name:
        name = printable(step.before.name)
        if step.verdict.witness is not None and step.verdict.witness.kind in ("order", "numbers"):
            return f"the result of {name} depends on an order that nothing keeps"
        return f"{name} has a race" if illegal else f"cannot tell whether {name} has a race"
    return f"cannot {_wish(step)}" if illegal else f"cannot tell whether one may {_wish(step)}"


def _wish(step: Step) -> str:
    """Return what the step is about: `interchange i and j`."""
    found = call_of(step)
    if found is None:
        return f"apply {printable(step.name)}"
    entry, call = found
    words = {name: listed(texts) or "locals" for name, texts in bound(call, entry).items()}
    return entry.phrase.format(**words)


def afterwards(step: Step) -> str:
    """Return how the program is afterwards: `interchanged`."""
    found = call_of(step)
    return "afterwards" if found is None else found[0].done


def dependence_words(dependence: Dependence, program: Program) -> str:
    """Return `flow dependence S4 → S4 on A, distance (1, -1), direction (<, >), carried by i`."""
    kind = f"{dependence.kind} dependence{' (may)' if dependence.may else ''}"
    ends = f"{printable(dependence.source)} → {printable(dependence.sink)}"
    text = f"{kind} {ends} on {printable(dependence.array)}"
    if not dependence.loops:
        return text
    distance = ", ".join(map(printable, dependence.distance))
    text += f", distance ({distance}), direction ({', '.join(dependence.direction)})"
    names = [loop.variable for loop in loops(program)]
    carried = carrier(dependence, frozenset(name for name in names if names.count(name) > 1))
    return f"{text}, {'independent of any loop' if carried is None else f'carried by {carried}'}"


def instance(label: str, values: Assignment) -> str:
    """Return `S4(1,2)`, or `S4` of a statement in no loop."""
    name = printable(label)
    return f"{name}{vector(value for _, value in values)}" if values else name


def cell_name(verdict: Verdict) -> str:
    """Return `A[1,2]`, or `s` for a scalar."""
    name = printable(verdict.array)
    return f"{name}[{','.join(map(str, verdict.cell))}]" if verdict.cell else name


def sizes(witness: Witness) -> str:
    """Return the sizes and contents the example is for: `N=4 n[0]=1`."""
    parts = (assignments(witness.parameters), assignments(witness.elements))
    return " ".join(part for part in parts if part)


def example_words(step: Step) -> str:
    """Return the example of an illegal step as a sentence, or nothing where there is none."""
    verdict = step.verdict
    witness = verdict.witness
    if witness is None:
        return ""
    match witness.kind:
        case "order":
            told = _reversed(verdict, witness, afterwards(step))
        case "race":
            told = _raced(verdict, witness)
        case "storage":
            told = _read(verdict, witness, afterwards(step))
        case "numbers":
            told = "the results differ"
    given = sizes(witness)
    return f"for example {given}: {told}" if given else f"for example {told}"


def _reversed(verdict: Verdict, witness: Witness, then: str) -> str:
    first = instance(verdict.source, witness.source)
    second = instance(verdict.sink, witness.sink)
    cell = cell_name(verdict)
    if verdict.reason:  # what is wrong is not that the two are turned around for certain
        then = "nothing keeps this order" if then == "afterwards" else f"perhaps, {then}"
    match None if verdict.dependence is None else verdict.dependence.kind:
        case "flow":
            return f"{first} writes {cell}, which {second} reads; {then}, the read would come first"
        case "anti":
            told = f"{first} reads {cell}, which {second} overwrites"
            return f"{told}; {then}, the write would come first"
        case "output":
            told = f"{first} writes {cell}, which {second} overwrites"
            return f"{told}; {then}, the write of {first} would come last"
        case _:
            return f"{first} comes before {second}; {then}, it would come after it"


def _raced(verdict: Verdict, witness: Witness) -> str:
    first = instance(verdict.source, witness.source)
    second = instance(verdict.sink, witness.sink)
    told = f"{first} and {second} both touch {cell_name(verdict)}"
    match None if verdict.dependence is None else verdict.dependence.kind:
        case "flow":
            told = f"{first} writes {cell_name(verdict)}, which {second} reads"
        case "anti":
            told = f"{first} reads {cell_name(verdict)}, which {second} writes"
        case "output":
            told = f"{first} and {second} both write {cell_name(verdict)}"
    between = next(_differences(witness), None)
    if between is None:
        return f"{told}; nothing orders the two"
    loop, one, other = between
    return f"{told}; nothing orders the two: {loop}={one} and {loop}={other} may run in any order"


def _differences(witness: Witness) -> Iterator[tuple[str, int, int]]:
    """Yield the loops the two instances share and differ in, outermost first."""
    for (loop, one), (other_loop, other) in zip(witness.source, witness.sink, strict=False):
        if loop != other_loop:
            return
        if one != other:
            yield printable(loop), one, other


def _read(verdict: Verdict, witness: Witness, then: str) -> str:
    cell = cell_name(verdict)
    before = _seen(Seen(verdict.source or None, witness.source))
    now = "another value" if verdict.now is None else _seen(verdict.now)
    if not verdict.sink:
        return f"in the end {cell} holds {before}; {then}, it would hold {now}"
    reader = instance(verdict.sink, witness.sink)
    return f"{reader} reads {cell} and gets {before}; {then}, it would get {now}"


def _seen(seen: Seen) -> str:
    if seen.statement is None:
        return INITIAL
    return f"what {instance(seen.statement, seen.iteration)} wrote"
