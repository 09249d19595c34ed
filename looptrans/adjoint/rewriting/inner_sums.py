"""Numbers that a loop adds up before they are looked at, written as sums.

    v = 0.0
    for c: v = v + X[j, c] * W[c, d]    ->    v = sum(X[j, c] * W[c, d] for c)

A sum is known where it stands: what an outer loop carries need not be told from what is in `v`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.algebra.positional.values import is_number
from looptrans.ir.condition import ALWAYS
from looptrans.ir.creation import in_16_bits
from looptrans.ir.program import Assign, Loop, Node, Program
from looptrans.ir.rewrite import with_blocks
from looptrans.ir.value import Generator, Reduce
from looptrans.ir.verdict import Certificate
from looptrans.transforms.editing.accesses import listed


@dataclass(frozen=True, slots=True)
class InnerSums:
    """A program with such numbers written as sums.

    Attributes:
        program: The program afterwards.
        names: The numbers.
    """

    program: Program
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"write {listed(self.names)} as sums"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "a sum is what a loop joins, one term after the other"
        return Certificate("order", law, "legal", "that is what it means")


def with_inner_sums(program: Program) -> InnerSums | None:
    """Write as sums the numbers that loops inside of others add up.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such number.
    """
    floats = {a.name for a in program.arrays if a.element == "float" and a.role == "local"}
    floats -= {*in_16_bits(program)}
    found: dict[str, None] = {}

    def within(body: tuple[Node, ...]) -> tuple[Node, ...]:
        made: list[Node] = []
        for node in with_blocks(body, within):
            summed = _summed(made[-1], node) if made else None
            if summed is not None and summed.targets[0].array in floats:
                made[-1] = summed
                found[summed.targets[0].array] = None
            else:
                made.append(node)
        return tuple(made)

    after = with_blocks(program.body, within)
    return InnerSums(replace(program, body=after), tuple(found)) if found else None


def _summed(first: Node, node: Node) -> Assign | None:
    """Return what sets a number at once that a statement sets and a loop behind it adds to."""
    match first, node:
        case (
            Assign(targets=(target,), values=(start,)),
            Loop(body=(Assign(targets=(added,), values=(value,)),)) as loop,
        ) if added == target and not target.subscripts and is_number(start, 0.0):
            term = accumulation(target, value)
            plain = loop.is_plain and loop.range.step == 1
            if term is None or not plain or (term[0], term[2]) != ("sum", ALWAYS):
                return None
            over = Generator(loop.variable, loop.range, ALWAYS)
            return replace(first, values=(Reduce("sum", (over,), term[1]),))
        case _:
            return None
