"""Integer scalars in bounds and guards, after an edit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container
from dataclasses import replace

from looptrans.frontend.parse import parse
from looptrans.ir.affine import is_same
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.index import Index, Let, children, lets, plain, rebuild
from looptrans.ir.listing import listing
from looptrans.ir.program import If, Loop, Node, Program
from looptrans.ir.rewrite import condition_changed, indices_changed, range_changed, rewritten
from looptrans.ir.source import Source


def with_names_that_hold(program: Program) -> Program:
    """Write out the integer scalars that no longer hold what a bound or a guard means by them.

    for i in range(N):               for i in range(N):
        s = i                            s = i
        B[i] = 2                ->   for i in range(N):
        for j in range(s): …             for j in range(i): …

    Which iterations run is known by what such a scalar stands for, and no dependence says that its
    statement has to come before: so an edit may move the two apart. What statements read in their
    subscripts and values, dependences keep.

    Args:
        program: The program after the edit; where a scalar is mentioned, it is known what it means.
    """
    while lost := _lost(program):
        program = replace(program, body=_domains_changed(program.body, _without(lost)))
    return program


def with_names_known(program: Program) -> Program:
    """Write out the integer scalars of which the listing no longer tells what they are.

    for i in range(N):               for i in range(N):
        t = N - 1                        t = N - 1
        B[i] = 1.0             ->    for i in range(N):
        C[t] = 2.0                       C[N - 1] = 2.0

    Whoever reads the listing does not know that the first loop has an iteration.

    Args:
        program: The program after a step that is legal: dependences no longer have to say so.
    """
    if (named := _in_subscripts(program.body)) and not _reads_back(program):
        return replace(program, body=indices_changed(program.body, _without(named)))
    return program


def _in_subscripts(body: tuple[Node, ...]) -> set[str]:
    found: set[str] = set()

    def seen(index: Index) -> Index:
        found.update(let.name for let in lets(index))
        return index

    indices_changed(body, seen)
    return found


def _reads_back(program: Program) -> bool:
    try:
        parse(Source(program.name, listing(program)))
    except ListingError:
        return False
    return True


def _lost(program: Program) -> set[str]:
    """Return the integer scalars that mean something else, or nothing, in the printed listing."""
    meant = _meant(program.body)
    if not meant:
        return set()
    try:
        said = _meant(parse(Source(program.name, listing(program))).body)
    except ListingError:
        return set(meant)
    return {name for name, values in meant.items() if not _are_same(values, said.get(name, []))}


def _meant(body: tuple[Node, ...]) -> dict[str, list[Index]]:
    """Return what each integer scalar stands for, wherever a bound or a guard mentions it."""
    found: dict[str, list[Index]] = defaultdict(list)

    def seen(index: Index) -> Index:
        for let in lets(index):
            found[let.name].append(plain(let.value))
        return index

    _domains_changed(body, seen)
    return found


def _are_same(one: list[Index], other: list[Index]) -> bool:
    return len(one) == len(other) and all(map(is_same, one, other))


def _domains_changed(body: tuple[Node, ...], change: Callable[[Index], Index]) -> tuple[Node, ...]:
    """Change the index expressions that say which iterations run."""

    def changed(node: Node) -> tuple[Node, ...]:
        match node:
            case If(label=None):
                return (replace(node, condition=condition_changed(node.condition, change)),)
            case Loop():
                return (replace(node, range=range_changed(node.range, change)),)
            case _:  # a data-dependent condition is a statement, whose reads are known
                return (node,)

    return rewritten(body, changed)


def _without(names: Container[str]) -> Callable[[Index], Index]:
    def written_out(index: Index) -> Index:
        if isinstance(index, Let) and index.name in names:
            return written_out(index.value)
        parts = children(index)
        return rebuild(index, tuple(map(written_out, parts))) if parts else index

    return written_out
