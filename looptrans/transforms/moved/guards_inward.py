"""Guards between two loops, asked in each iteration of the loop inside.

    for b in range(B):                        for b in range(B):
        if on[b]:                                 for h in range(H):
            for h in range(H):         ->             if on[b]:
                …                                         …

Where both loops are free, they then stand one directly inside the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from looptrans.ir.index import Arith, Index, Opaque, walk
from looptrans.ir.listing import condition_text
from looptrans.ir.program import If, Loop, Program
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import loops_in, read_in, written_in
from looptrans.transforms.editing.substitute import without_binders
from looptrans.transforms.editing.tree import LoopPath, loop_paths, replace_at


@dataclass(frozen=True, slots=True)
class Asked:
    """A program that asks in the loop inside.

    Attributes:
        program: The program afterwards.
        condition: What it asks.
    """

    program: Program
    condition: str

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"ask {self.condition} in the loop inside"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "a condition asked again has the answer that it had before"
        reason = "nothing that it looks at is written in the loop inside"
        return Certificate("order", law, "legal", reason)


def with_guards_inward(
    program: Program, suits: Callable[[Program, LoopPath], bool]
) -> Asked | None:
    """Ask in a loop that holds loops what a guard around it asks, where that suits both loops.

    Args:
        program: The program.
        suits: Tells of a loop whether it does.

    Returns:
        The program afterwards; None where there is no such guard.
    """
    for path in loop_paths(program):
        match path.loop.body:
            case (If(condition, (Loop() as inner,), ()) as guard,):
                pass
            case _:
                continue
        if not loops_in(inner.body):
            continue
        # It may be that only the guard says that the ends can be worked out.
        if not all(map(_is_sure, inner.range.ends)):
            continue
        written = written_in(inner.body)
        looked_at = read_in((replace(guard, body=()),))
        place = LoopPath(inner, (*path.position, 0, 1, 0))
        if looked_at & written or not (suits(program, path) and suits(program, place)):
            continue
        asked = replace(guard, body=inner.body, leading=())
        again = replace(inner, body=(without_binders(program, asked, frozenset({inner.variable})),))
        after = replace_at(program, (*path.position, 0), (again,))
        return Asked(after, condition_text(condition))
    return None


def _is_sure(end: Index) -> bool:
    """Tell whether an index reads and divides nothing, so that no guard need come first."""
    return not any(
        isinstance(part, Opaque) or (isinstance(part, Arith) and part.op in ("//", "%"))
        for part in walk(end)
    )
