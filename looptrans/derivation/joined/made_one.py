"""Two loops made one, where the text shows that iterations have nothing to do with each other.

    for i: t = x[i] * x[i]                 for i: t = x[i] * x[i]
           y[i] = t                 ->            y[i] = t
    for i: z[i] = y[i] + 1                        z[i] = y[i] + 1

Every iteration of the one loop touches cells that no other one touches, or sets what it looks at
first; and nothing of the latter kind goes from the one of the two loops to the other.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.algebra.free import Free, freed
from looptrans.ir.diagnostic import Mistake
from looptrans.ir.program import Program
from looptrans.ir.step import same_names
from looptrans.transforms.editing.accesses import sites_of
from looptrans.transforms.editing.finish import finished
from looptrans.transforms.editing.tree import LoopPath, loop_paths
from looptrans.transforms.script import parse_script
from looptrans.transforms.steps.fuse import MadeOne, made_one


def made_one_by_text(program: Program, call: str) -> tuple[Program, Free] | None:
    """Make one loop of two where the text shows that it is legal.

    Args:
        program: The program.
        call: The transformation as one writes it, `fuse(i@S1, i@S2)`.

    Returns:
        The program afterwards, and what makes its loop free; None where it is no such
        transformation, or the text does not show it.
    """
    if not call.startswith("fuse("):
        return None
    ((first, second),) = ([a.text for a in c.arguments] for c in parse_script(call))
    try:
        made = made_one(program, first, second)
    except Mistake:
        return None
    if made.one.loop.execution != "sequential":
        return None
    after, _ = finished(made.after, same_names(program, made.after))
    free = freed(after, _at(after, made))
    if free is None or not all(_is_of_one(program, name, made) for name in free.private):
        return None
    return after, replace(free, path=made.one)


def _at(after: Program, made: MadeOne) -> LoopPath:
    return next(path for path in loop_paths(after) if path.position == made.one.position)


def _is_of_one(program: Program, array: str, made: MadeOne) -> bool:
    """Tell whether only one of the two loops looks at an array."""
    return any(
        all(path.position in site.place.loop_positions for site in sites_of(program, array))
        for path in (made.one, made.other)
    )
