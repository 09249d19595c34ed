"""A loop in parts: each part's result from the empty one on, then all of them joined in order.

for p in range(0, 4):
    m_part[p, i] = -inf                   ⊥
    for j in range(…):                    the iterations of part p
        m_part[p, i] = max(m_part[p, i], …)
for p in range(0, 4):
    m_ip = max(m[i], m_part[p, i])        state . part
    …
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from looptrans.derivation.one_loop.pieces import Pieces, pieces
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.affine import difference, extremum, product, quotient, total
from looptrans.ir.index import Arith, Index, Int, Var, opaque_terms, variables
from looptrans.ir.program import Declaration, Loop, Node, Program
from looptrans.ir.value import Range
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import loops as all_loops
from looptrans.transforms.editing.accesses import listed
from looptrans.transforms.editing.extents import declared_end, extreme
from looptrans.transforms.editing.tree import ranges_around


def in_parts(program: Program, loop: str, parts: int) -> DerivationStep:
    """Compute a loop in parts that know nothing of each other, and join their results in order.

    Args:
        program: The program.
        loop: The loop; it carries a fold with a proved operator.
        parts: How many parts there are; some may be empty.

    Raises:
        NotDone: There is no operator, or something could not be shown.
    """
    if parts < 1:
        raise NotDone(f"there cannot be {parts} parts")
    made = pieces(program, loop, parts)
    node, part = made.node, made.part
    outer = ranges_around(program, made.position)
    whole = _reach(program, node.range, outer)
    if whole is None and parts > 1:
        raise NotDone(f"no sizes say how far {loop} goes at most, so that it could be cut")
    bounds = part_range(node.range, Var(part), parts, whole)
    inner = replace(node, range=bounds, body=made.body, leading=())
    loops = (
        Loop(part, made.every, (*made.starts, inner), leading=node.leading),
        Loop(part, made.every, made.joined),
    )
    first = tuple(n for n in made.writer.program.body if isinstance(n, Declaration))
    final = made.placed(first, made.position, loops)
    again = made.partial_read(final, bounds)
    if parts == 1:
        # A loop that runs once carries nothing; its body is read in the company of a second part.
        twin = in_parts(program, loop, 2)
        if _bodies(twin.after, part)[-1] != _bodies(final, part)[-1]:
            raise NotDone("the joining of one part is not that of two")
        joining = twin.laws[-1]
    else:
        joining = made.joined_read(final)
    return DerivationStep(
        f"split {node.variable} into {parts} {'part' if parts == 1 else 'parts'}, each with its "
        f"own {listed(made.names)}, and join them in order",
        "parts",
        (loop, parts),
        program,
        final,
        order_of_parts(
            made,
            f"the first begins where {node.variable} does"
            + (" at the earliest" if whole != node.range else "")
            + f", and the length of a part is that of {node.variable}"
            + (" at the longest" if whole != node.range else "")
            + f" divided by {parts}, rounded up",
        ),
        (*made.laws(), again, joining),
        made.found,
    )


def _bodies(program: Program, variable: str) -> list[tuple[Node, ...]]:
    """Return the bodies of the loops with a variable, in order of the text."""
    return [node.body for node in all_loops(program) if node.variable == variable]


def _reach(program: Program, bounds: Range, outer: Mapping[str, Range]) -> Range | None:
    """Return the range that holds every range of a loop, over sizes alone; None if unknown."""
    if not any(variables(end) or opaque_terms(end) for end in bounds.ends):
        return bounds
    start = extreme(declared_end(program, bounds.start, "lowest"), outer, "lowest")
    stop = extreme(declared_end(program, bounds.stop, "highest"), outer, "highest")
    return None if start is None or stop is None else Range(start, stop)


def part_range(bounds: Range, part: Index, parts: int, whole: Range | None = None) -> Range:
    """Return the iterations of one part, all parts as long as the longest but the last ones.

    Args:
        bounds: The iterations.
        part: The number of the part.
        parts: How many there are.
        whole: A range that holds the iterations and is the same for all loops around, where theirs
            is not; it is what is cut.
    """
    if parts == 1:
        return bounds
    whole = whole or bounds
    length = difference(whole.stop, whole.start)
    each = quotient(total(length, parts - 1), parts)
    start, stop = _ahead(whole, part, each), _ahead(whole, total(part, 1), each)
    if bounds.start != whole.start:
        start = extremum("max", (start, bounds.start))
    return Range(start, extremum("min", (stop, bounds.stop)))


def _ahead(bounds: Range, part: Index, each: Index) -> Index:
    if isinstance(part, Int):
        return total(bounds.start, product(part.value, each))
    ahead: Index = Arith("*", part, each)
    return ahead if bounds.start == Int(0) else Arith("+", bounds.start, ahead)


def order_of_parts(made: Pieces, cuts: str) -> tuple[Certificate, ...]:
    """Say that the parts are the loop, in order, and that results are equal over the reals."""
    loop = made.node.variable
    return (
        Certificate(
            "order",
            f"the parts are the iterations of {loop}, in order, each in one part",
            "legal",
            f"part p ends where part p + 1 begins, {cuts}",
        ),
        Certificate(
            "rounding",
            "the results are equal over the reals, not bit for bit",
            "legal",
            "each part is summed up by itself",
        ),
    )
