"""Certificates: what was proved of a loop, to be read, kept and proved again.

A certificate holds the listing, the step as it was extracted, the operator, and every law with
its equations, normal forms and assumptions. `recheck` believes none of it: it reads the listing,
extracts the step afresh, takes the operator's formulas as a proposal, proves every law that an
operator of that kind must obey, and compares all of that with what the certificate says.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from looptrans.algebra.iterations.assembly import recurrence
from looptrans.algebra.iterations.edges import NoRecurrence
from looptrans.algebra.iterations.inputs import Input
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.operators.closed import ClosedForm, closed_form
from looptrans.algebra.operators.finding import Finding, with_counter
from looptrans.algebra.operators.laws import Law, completed, laws
from looptrans.algebra.operators.operator import Component, Operator
from looptrans.algebra.positional.trees import Malformed, Tree, tree_of, value_from
from looptrans.frontend import parse
from looptrans.ir import verdict
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.listing import access_text, listing, value_text
from looptrans.ir.program import Program
from looptrans.ir.source import Source
from looptrans.ir.value import Value

SCHEMA = "looptrans.certificate/1"
_OPTIONAL = ("coordinate", "contribution", "inverse")


@dataclass(frozen=True, slots=True)
class OperatorCertificate:
    """That a loop may be split, and by what.

    Attributes:
        program: The program.
        loop: The loop, as `recurrence` takes it.
        recurrence: The step.
        operator: The operator.
        laws: Its laws, decided.
    """

    program: Program
    loop: str
    recurrence: Recurrence
    operator: Operator
    laws: tuple[Law, ...]

    @property
    def closed(self) -> ClosedForm | None:
        """The closed form of a block, where there is one."""
        return closed_form(self.recurrence, self.operator)

    def text(self) -> str:
        """Return the certificate as one readable paragraph."""
        step = self.recurrence
        names = ", ".join(f"{s.name} = {access_text(s.access)}" for s in step.states)
        parts = [
            f"The loop {step.loop} of {self.program.name} may be split: with {names}, two parts "
            f"a and b of it are joined by {_formulas(self.operator)}."
        ]
        if step.is_scan:
            readers = ", ".join(step.read_inside)
            parts.append(f"It is split as a scan, since {readers} looks at the state in between.")
        for law in self.laws:
            parts.append(law_text(law))
        if step.assumptions:
            parts.append(f"The flow leans on {'; '.join(step.assumptions)}.")
        return " ".join(parts)

    def ir(self) -> tuple[verdict.Certificate, ...]:
        """Return the laws as certificates of a step."""
        return tuple(ir_certificate(law) for law in self.laws if law.is_required)

    def tree(self) -> dict[str, Tree]:
        """Return the certificate as a JSON tree."""
        document: dict[str, Tree] = {
            "schema": SCHEMA,
            "kind": "operator",
            "program": self.program.name,
            "listing": listing(self.program).splitlines(),
            "loop": self.loop,
            "verdict": "proved",
            "step": step_tree(self.recurrence),
            "operator": operator_tree(self.operator),
            "laws": [law_tree(law) for law in self.laws],
        }
        return document | {"digest": digest(document)}


def certificate_of(program: Program, loop: str, finding: Finding) -> OperatorCertificate:
    """Return the certificate of an operator that was found.

    Raises:
        ValueError: None was found.
    """
    if finding.operator is None:
        raise ValueError("no operator was found")
    return OperatorCertificate(program, loop, finding.recurrence, finding.operator, finding.laws)


def saved(certificate: OperatorCertificate) -> str:
    """Return a certificate as JSON text, the same each time."""
    return json.dumps(certificate.tree(), indent=1, ensure_ascii=False) + "\n"


def recheck(text: str) -> tuple[str, ...]:
    """Prove a saved certificate again.

    Returns:
        What is wrong with it, one sentence each; empty where every proof was found again and
        nothing differs from what the certificate says.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        return (f"it is no JSON: {error}",)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        return (f"it is no certificate of the schema {SCHEMA}",)
    try:
        return tuple(_problems(document))
    except Malformed as error:
        return (f"it is malformed: {error}",)
    except ListingError as error:
        return (f"its listing cannot be read: {error}",)
    except RecursionError:
        return ("it is malformed: it is nested too deeply",)
    except NoRecurrence as error:
        return (f"its loop is no recurrence: {error}",)


def _problems(document: dict[str, Tree]) -> list[str]:
    lines, loop = document.get("listing"), document.get("loop")
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise Malformed("the listing is a list of lines")
    if not isinstance(loop, str):
        raise Malformed("the loop is a name")
    program = parse(Source("<certificate>", "\n".join(lines) + "\n"))
    step = recurrence(program, loop)
    counted = with_counter(step)
    if counted is not None and step_tree(counted) == document.get("step"):
        step = counted
    operator = completed(step, _operator_from(document.get("operator"), step))
    proved = laws(step, operator)
    problems = [
        f"the law {law.name} is {law.answer}"
        for law in proved
        if law.is_required and law.answer != "proved"
    ]
    fresh = OperatorCertificate(program, loop, step, operator, proved).tree()
    for field in dict.fromkeys((*fresh, *document)):
        if field not in document:
            problems.append(f"{field} is missing")
        elif field not in fresh:
            problems.append(f"{field} does not belong there")
        elif not is_same_tree(document[field], fresh[field]):
            problems.append(f"{field} is not what was found again")
    return problems


def is_same_tree(a: Tree, b: Tree) -> bool:
    """Tell whether two trees are equal, types of numbers included."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def digest(document: dict[str, Tree]) -> str:
    """Return a checksum of a certificate, so that no change of it goes unnoticed."""
    text = json.dumps(document, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def step_tree(step: Recurrence) -> Tree:
    """Return a recurrence as a tree."""
    return {
        "loop": step.loop,
        "range": tree_of(step.range),
        "condition": tree_of(step.condition),
        "read_inside": list(step.read_inside),
        "assumptions": list(step.assumptions),
        "states": [
            {
                "name": state.name,
                "cell": tree_of(state.access),
                "over": list(state.over),
                "initial": tree_of(state.initial),
                "update": tree_of(state.update),
                "read_after": list(state.read_after),
            }
            for state in step.states
        ],
        "inputs": [_input_tree(given) for given in step.inputs],
        "parameters": [_input_tree(given) for given in step.parameters],
    }


def _input_tree(given: Input) -> Tree:
    return {
        "name": given.name,
        "value": tree_of(given.value),
        "over": list(given.over),
        "truth": given.is_truth,
        "nonnegative": given.is_nonnegative,
    }


def operator_tree(operator: Operator) -> Tree:
    """Return an operator as a tree."""
    return {
        "components": [
            {
                "state": component.state,
                "kind": component.kind,
                "unit": tree_of(component.unit),
                "combine": tree_of(component.combine),
                "identity": tree_of(component.identity),
                "monoid": component.monoid,
                **{name: tree_of(getattr(component, name)) for name in _OPTIONAL},
            }
            for component in operator.components
        ],
        "act": [[state, tree_of(formula)] for state, formula in operator.act],
        "guarded": operator.guarded,
        "positive": list(operator.positive),
        "nonnegative": list(operator.nonnegative),
    }


def _operator_from(tree: Tree, step: Recurrence) -> Operator:
    if not isinstance(tree, dict) or not isinstance(tree.get("components"), list):
        raise Malformed("the operator has components")
    components = tuple(_component_from(part) for part in tree["components"])
    pairs = tree.get("act")
    if not isinstance(pairs, list) or not all(isinstance(p, list) and len(p) == 2 for p in pairs):
        raise Malformed("act is a list of pairs")
    act = tuple((pair[0], value_from(pair[1])) for pair in pairs)
    states = [state.name for state in step.states]
    if sorted(str(state) for state, _ in act) != sorted(states):
        raise Malformed("act has one formula for each state")
    if sorted(str(c.state) for c in components if c.state is not None) != sorted(states):
        raise Malformed("the operator has one component for each state")
    return Operator(components, act)


def _component_from(tree: Tree) -> Component:
    wanted = {"state", "kind", "unit", "combine", "identity", "monoid", *_OPTIONAL}
    if not isinstance(tree, dict) or set(tree) != wanted:
        raise Malformed(f"a component has the fields {', '.join(sorted(wanted))}")
    state, kind, monoid = tree["state"], tree["kind"], tree["monoid"]
    if not (state is None or isinstance(state, str)) or not isinstance(kind, str):
        raise Malformed("a component has a state and a kind")
    if monoid not in ("", "+", "*", "max", "min"):
        raise Malformed("a component has a monoid")
    return Component(
        state,
        kind,
        value_from(tree["unit"]),
        value_from(tree["combine"]),
        value_from(tree["identity"]),
        _maybe(tree["coordinate"]),
        monoid,
        _maybe(tree["contribution"]),
        _maybe(tree["inverse"]),
    )


def _maybe(tree: Tree) -> Value | None:
    return None if tree is None else value_from(tree)


def law_tree(law: Law) -> Tree:
    """Return a law as a tree."""
    return {
        "name": law.name,
        "statement": law.statement,
        "required": law.is_required,
        "answer": law.answer,
        "by_definition": law.by_definition,
        "assumptions": list(law.assumptions),
        "equations": [
            {
                "of": equation.of,
                "left": tree_of(equation.left),
                "right": tree_of(equation.right),
                "answer": equation.proof.answer,
                "normal_forms": [equation.proof.left, equation.proof.right],
                "cases": equation.proof.cases,
                "numbers": [list(pair) for pair in equation.proof.numbers],
                "values": list(equation.proof.values or ()),
                "tried": list(equation.proof.tried),
            }
            for equation in law.equations
        ],
    }


def law_text(law: Law) -> str:
    """Return a law with both normal forms and assumptions, as a sentence or two."""
    if law.by_definition:
        return f"{law.name.capitalize()} ({law.statement}): {law.by_definition}."
    shown = []
    for equation in law.equations:
        proof = equation.proof
        if proof.answer == "proved":
            cases = f" in each of {proof.cases} orders" if proof.cases > 1 else ""
            shown.append(f"{equation.of} is {proof.left} on both sides{cases}")
        elif proof.answer == "refuted":
            at = ", ".join(f"{name} = {value}" for name, value in proof.numbers)
            values = " and ".join(proof.values or ())
            shown.append(f"{equation.of} differs: at {at} the sides are {values}")
        else:
            shown.append(f"{equation.of} is open: {'; '.join(proof.tried)}")
    taken = f", where {'; '.join(law.assumptions)}" if law.assumptions else ""
    what = f"{law.name.capitalize()} ({law.statement}) is {law.answer}"
    return f"{what}{taken}: {'; '.join(shown)}." if shown else f"{what}{taken}."


def ir_certificate(law: Law) -> verdict.Certificate:
    """Return a law as a certificate of a step."""
    decision: dict[str, verdict.Decision] = {
        "proved": "legal",
        "refuted": "illegal",
        "unknown": "unknown",
    }
    return verdict.Certificate(
        "algebra",
        f"{law.name}: {law.statement}",
        decision[law.answer],
        law_text(law),
        law.assumptions,
    )


def _formulas(operator: Operator) -> str:
    return ", ".join(
        f"c{number} = {value_text(component.combine)}"
        for number, component in enumerate(operator.components, 1)
    )
