"""Skew an inner loop by an outer one."""

from __future__ import annotations

from dataclasses import replace

from looptrans.ir.affine import product, shifted
from looptrans.ir.index import Arith, Index, Int, Var
from looptrans.ir.program import Loop, Program
from looptrans.ir.step import Image, Step, same_names
from looptrans.ir.value import Range
from looptrans.ir.walk import placed
from looptrans.transforms.editing.errors import BadNumber, NotNested
from looptrans.transforms.editing.substitute import substitute_variable
from looptrans.transforms.editing.tree import (
    LoopPath,
    find_loop,
    loop_name,
    loops_around,
    replace_at,
)
from looptrans.transforms.judging.check import reordered


def skew(program: Program, inner: str, outer: str, factor: int) -> Step:
    """Count an inner loop from `factor` times the outer variable on, so that it runs slantwise.

        for i in range(0, N):                     for i in range(0, N):
            for j in range(0, M):        ->           for j in range(i, i + M):
                S(i, j)                                   S(i, j - i)

    The iterations stay what they are and keep their order, so this is always legal by itself. A
    distance (x, y) becomes (x, y + factor * x), which is what makes an interchange legal that was
    not.

    Args:
        program: The program.
        inner: The loop that is skewed; its variable keeps its name.
        outer: A loop around it.
        factor: An integer other than 0.

    Raises:
        TransformError: The loops do not exist or are not nested so, or the factor is no such
            integer.
    """
    path, around = find_loop(program, inner), find_loop(program, outer)
    _require(path.loop, factor)
    if path.position[: len(around.position)] != around.position or path == around:
        raise NotNested(
            f"the loop {inner} does not stand inside the loop {outer}",
            path.loop.span,
            why="a loop is skewed by the variable of a loop around it",
            remedy=_around(program, path),
        )
    loop = path.loop
    shift = product(factor, Var(around.variable))
    limits = Range(shifted(loop.range.start, shift), shifted(loop.range.stop, shift))
    plain = _minus(loop.variable, around.variable, factor)
    body = tuple(substitute_variable(node, {loop.variable: plain}) for node in loop.body)
    skewed = replace(loop, range=replace(limits, step=loop.range.step), body=body)
    after = replace_at(program, path.position, (skewed,))
    images = dict(same_names(program, after))
    for place in placed(after):
        if path.position in place.loop_positions:
            image = images[place.label]
            depth = place.loop_positions.index(path.position)
            indices = (*image.indices[:depth], plain, *image.indices[depth + 1 :])
            images[place.label] = Image(image.statement, indices)
    return reordered(f"skew({inner}, {outer}, {factor})", program, after, images)


def _around(program: Program, path: LoopPath) -> str:
    """Say which loops a loop can be skewed by."""
    around = [loop_name(program, p.position) for p in loops_around(program, path.position)]
    name = loop_name(program, path.position)
    return f"name a loop around {name}: {', '.join(around)}" if around else "name an inner loop"


def _require(loop: Loop, factor: int) -> None:
    if isinstance(factor, bool) or not isinstance(factor, int) or factor == 0:
        raise BadNumber(
            f"a loop cannot be skewed by the factor {factor}",
            loop.span,
            why="the factor is an integer other than 0",
            remedy="give 1, -1, 2, …",
        )


def _minus(variable: str, outer: str, factor: int) -> Index:
    """Return `variable - factor * outer`."""
    times: Index = Var(outer) if abs(factor) == 1 else Arith("*", Int(abs(factor)), Var(outer))
    return Arith("-" if factor > 0 else "+", Var(variable), times)
