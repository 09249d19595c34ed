"""Loops that add to cells which integer arrays choose, run in parallel.

for n in range(0, N):                  for n in parallel(0, N):
    s[x[n]] = s[x[n]] + v[n]    ->         with atomic():
                                               s[x[n]] = s[x[n]] + v[n]

No iteration has a cell to itself, as far as anybody can tell, and none looks at what is there but
to add to it. Integers, maxima and minima come out the same in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.algebra.free import Free, freed
from looptrans.derivation.joined.loops_as_sums import sum_loops
from looptrans.derivation.one_loop.writing import done
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.index import opaque_terms, variables
from looptrans.ir.monoids import Folding
from looptrans.ir.program import Assign, Atomic, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.value import Access, Whole
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import assignments, placed, written_in
from looptrans.transforms.editing.accesses import listed, sites_of
from looptrans.transforms.editing.tree import LoopPath, Position, loop_paths, node_at, replace_at


def scattering(program: Program) -> tuple[str, ...]:
    """Return the labels of statements that scatter, the first of each nest at the top."""
    found: dict[int, str] = {}
    for place in placed(program):
        node = place.node
        if isinstance(node, Assign) and any(
            loop.execution == "sequential" and _is_chosen(target, loop.variable)
            for target in node.targets
            for loop in place.loops
        ):
            found.setdefault(place.position[0], node.label)
    return tuple(found.values())


def scattered_sums(program: Program) -> tuple[str, ...]:
    """Return the labels of statements that scatter from a loop that adds to one cell."""
    return tuple(
        each.update.label
        for each in sum_loops(program)
        if any(
            _is_chosen(each.update.targets[0], path.variable)
            for path in loop_paths(program)
            if path.position == each.position[: len(path.position)]
        )
    )


def scatter(program: Program, label: str) -> DerivationStep:
    """Run the loops around a statement in parallel, atomic where they add to the same.

    Args:
        program: The program.
        label: The label of the statement, see `scattering`.

    Raises:
        NotDone: It does more than add to an array, or no loop around it may run in parallel.
    """
    place = next((p for p in placed(program) if p.label == label), None)
    if place is None or not place.loops:
        raise NotDone(f"there is no loop around a statement {label}", "illegal")
    top = place.position[:1]
    folds = dict(_gathered(program, top))
    loops: list[tuple[LoopPath, Free]] = []
    for path in loop_paths(program):
        if path.position[:1] != top or path.loop.execution != "sequential":
            continue
        free = freed(program, path, gathered=folds) if _scatters(path, folds) else None
        if free is not None:
            loops.append((path, free))
    if not loops:
        raise NotDone(f"what {label} adds to is needed by other iterations of the loops around it")
    shared = _shared(program, [path for path, _ in loops], folds)
    after = program
    for path, free in loops:
        loop = node_at(after, path.position)
        assert isinstance(loop, Loop)
        parallel = replace(loop, execution="parallel", private=free.private)
        after = replace_at(after, path.position, (parallel,))
    (nest,) = rewritten((node_at(after, top),), lambda node: (_atomic(node, shared),))
    after = done(replace_at(after, top, (nest,)))
    names = listed(tuple(dict.fromkeys(path.variable for path, _ in loops)))
    text = f"run {names} in parallel, {listed(shared)} added to in atomic parts"
    shown = _shown(program, [free for _, free in loops], {name: folds[name] for name in shared})
    return DerivationStep(text, "scatter", (label,), program, after, shown)


def _is_chosen(target: Access, variable: str) -> bool:
    """Tell whether an integer array says which cell it is, at a place that a variable says."""
    return any(
        variable in variables(term)
        for subscript in target.subscripts
        if not isinstance(subscript, Whole)
        for term in opaque_terms(subscript)
    )


def _gathered(program: Program, top: Position) -> Iterator[tuple[str, Folding]]:
    """Yield the arrays that a nest only adds to, or only takes maxima or minima in."""
    for array in program.arrays:
        found = {
            _folding(site.place.node, array.name)
            for site in sites_of(program, array.name)
            if site.place.position[:1] == top
        }
        if len(found) == 1 and array.element != "bool":
            (name,) = found
            if name is not None:
                yield array.name, name


def _folding(node: Node, array: str) -> Folding | None:
    """Return what a statement does with an array, where that is no more than to add to it."""
    if not isinstance(node, Assign) or len(node.targets) != 1 or node.targets[0].array != array:
        return None
    found = accumulation(node.targets[0], node.values[0])
    return None if found is None else found[0]


def _scatters(path: LoopPath, folds: dict[str, Folding]) -> bool:
    """Tell whether something in a loop adds to what is gathered, at a cell that is looked up."""
    return any(
        target.array in folds and any(opaque_terms(s) for s in target.indices)
        for node in assignments(path.loop.body)
        for target in node.targets
    )


def _shared(program: Program, paths: list[LoopPath], folds: dict[str, Folding]) -> tuple[str, ...]:
    """Return what iterations of loops add to and have not each to themselves, in order."""
    free = [freed(program, path, gathered=folds) for path in paths]
    own = [set(each.own) for each in free if each is not None]
    inside = [written_in(path.loop.body) for path in paths]
    return tuple(
        name
        for name in folds
        if any(name in arrays - mine for arrays, mine in zip(inside, own, strict=True))
    )


def _atomic(node: Node, arrays: tuple[str, ...]) -> Node:
    is_shared = isinstance(node, Assign) and any(t.array in arrays for t in node.targets)
    return Atomic((node,)) if is_shared else node


def _shown(
    program: Program, free: list[Free], shared: dict[str, Folding]
) -> tuple[Certificate, ...]:
    """Say what the text shows of the loops, and what order means to what they add to."""
    found = []
    private = tuple(dict.fromkeys(name for each in free for name in each.private))
    if private:
        law = "each iteration sets its private names before it reads them, and nobody else does"
        found.append(Certificate("storage", law, "legal", f"from the text: {listed(private)}"))
    parts = [
        f"each iteration of {each.path.variable} has its own part of {listed(each.own)}"
        for each in free
        if each.own
    ]
    parts.append(f"{listed(tuple(shared))} {_be(shared)} only added to, in atomic parts")
    leaning = tuple(dict.fromkeys(text for each in free for text in each.contracts))
    law = "every order of the iterations gives the same result"
    found.append(Certificate("order", law, "legal", "; ".join(parts), leaning))
    rounded = [
        name
        for name, folding in shared.items()
        if folding == "sum" and program.array(name).element == "float"
    ]
    if rounded:
        law = f"{listed(tuple(rounded))} {_be(rounded)} added up in no fixed order"
        reason = "equal over the reals; two runs may differ in the last bits"
        found.append(Certificate("rounding", law, "legal", reason))
    return tuple(found)


def _be(names: list[str] | dict[str, Folding]) -> str:
    return "is" if len(names) == 1 else "are"
