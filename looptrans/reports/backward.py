"""What a derivation to backward says besides its steps: the listing, what is saved, ways to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from looptrans.ir.listing import listing
from looptrans.ir.program import Assign, Program
from looptrans.ir.walk import accesses, nodes
from looptrans.reports.style import paragraph

if TYPE_CHECKING:
    from looptrans.derivation.step import Alternative, Derivation, DerivationStep

Section = tuple[str, list[str]]

_ALLOWED = {"legal": "allowed", "illegal": "not allowed", "unknown": "not known"}


def backward_listing(step: DerivationStep) -> list[str] | None:
    """Return the backward listing with its comments, where a step leads to it.

    The comments say which loops a statement belongs to and what it reads and gathers; where the
    dependences cannot be found in time there are none.
    """
    if step.kind != "backward nest":
        return None
    from looptrans.analysis.api import annotated
    from looptrans.analysis.budget import BudgetExceeded

    try:
        return listing(annotated(step.after)).splitlines()
    except BudgetExceeded:
        return listing(step.after).splitlines()


def sections(derivation: Derivation) -> list[Section]:
    """Return what is handed over and how the nests may run, each under its heading."""
    found = derivation.backward
    if found is None:
        return []
    handed = [f"{each.name}: {_use(derivation, each.name)}" for each in found.saved]
    lines = [f"{name}: the gradient of {output}" for output, name in found.incoming.items()]
    back = [f"{gradient}: the gradient of {name}" for name, gradient in found.gradients.items()]
    ways = [
        f"{each.form}{' (as here)' if _is_here(derivation, each) else ''}, "
        f"{_ALLOWED[each.decision]}: {each.reason}."
        for each in derivation.alternatives
    ]
    return [
        ("What the backward pass is given", [*handed, *lines]),
        ("What it gives back", back),
        ("How its nests may run", ways),
    ]


def _is_here(derivation: Derivation, way: Alternative) -> bool:
    """Tell whether the derivation ends in nests that run this way."""
    taken = derivation.form if derivation.decision == "legal" else "kernels"
    return way.form == taken


def bullets(lines: list[str]) -> list[str]:
    """Return lines as bullets of a text."""
    return [line for each in lines for line in paragraph(each, "  * ")]


def _use(derivation: Derivation, name: str) -> str:
    """Say where something that is saved comes from, and which values are worked out from it."""
    found = derivation.backward
    assert found is not None
    own = name in found.listing.outputs
    origin = "an output" if own else "handed over besides the outputs"
    readers = _readers(found.program, name)
    return (
        f"{origin}; {', '.join(readers)} read it"
        if len(readers) > 1
        else (f"{origin}; {readers[0]} reads it" if readers else origin)
    )


def _readers(program: Program, name: str) -> list[str]:
    """Return what the statements that read an array set."""
    return list(
        dict.fromkeys(
            node.targets[0].array
            for node in nodes(program.body)
            if isinstance(node, Assign)
            and any(not r.is_write and r.access.array == name for r in accesses(node))
        )
    )
