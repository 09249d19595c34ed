"""Loops over blocks that end where a guard around all they hold lets nothing more through.

    for t in range(0, M, 16):               for t in range(0, min(M, i + 1), 16):
        if t <= i:                   ->         …
            …

What a block hands to the next one is then handed on by every block there is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.ir.affine import extremum
from looptrans.ir.condition import Condition, conjunction, conjuncts
from looptrans.ir.index import Index, opaque_terms
from looptrans.ir.program import If, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.verdict import Certificate
from looptrans.transforms.rows.ends_asked import end_of


@dataclass(frozen=True, slots=True)
class Ended:
    """A program whose loops over blocks end where their guards do.

    Attributes:
        program: The program afterwards.
        loops: Their variables.
    """

    program: Program
    loops: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"end {' and '.join(dict.fromkeys(self.loops))} where the guard inside ends"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "the iterations are the same, in the same order"
        reason = "the guard holds up to the new end, and nowhere behind it"
        return Certificate("order", law, "legal", reason)


def with_guarded_ends(program: Program) -> Ended | None:
    """Let loops over blocks end where a guard around all they hold does.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such guard.
    """
    loops: list[str] = []

    def change(node: Node) -> tuple[Node, ...]:
        match node:
            case Loop(variable, body=(If(condition, _, (), label=None) as guard,)) if (
                node.range.step > 1 and node.execution == "sequential"
            ):
                parts = conjuncts(condition)
                ends = {part: end for part in parts if (end := _fixed_end(part, variable))}
                if not ends:
                    return (node,)
                loops.append(variable)
                rest = tuple(part for part in parts if part not in ends)
                kept = (replace(guard, condition=conjunction(*rest)),) if rest else guard.body
                stop = extremum("min", (node.range.stop, *ends.values()))
                return (replace(node, range=replace(node.range, stop=stop), body=kept),)
            case _:
                return (node,)

    after = replace(program, body=rewritten(program.body, change))
    return Ended(after, tuple(loops)) if loops else None


def _fixed_end(condition: Condition, variable: str) -> Index | None:
    """Return where a loop ends because of a condition, if nothing in memory says so.

    What is in memory is read in the loop only: there it is known to be.
    """
    end = end_of(condition, variable)
    return None if end is None or opaque_terms(end) else end
