"""Loops, guards and blocks as Python closures, in the order of the sequential reading."""

from __future__ import annotations

from collections.abc import Callable

from looptrans.executor.closures import Machine, TestCode
from looptrans.executor.errors import FAILURES
from looptrans.executor.private import PrivateStore
from looptrans.executor.reducing import compile_update
from looptrans.executor.statements import Step, compile_assign, compile_declaration
from looptrans.ir.program import Assign, Atomic, Barrier, BlockReduce, Declaration, If, Loop, Node


def compile_body(
    machine: Machine,
    body: tuple[Node, ...],
    loops: tuple[str, ...] = (),
    operator: str | None = None,
) -> Step:
    """Compile the nodes of one block, which run in order.

    Args:
        machine: What the closures share.
        body: The nodes.
        loops: The variables of the loops around them, outermost first.
        operator: That of the reducing block around them, if they are in one.
    """
    steps = [compile_node(machine, node, loops, operator) for node in body]
    if len(steps) == 1:
        return steps[0]

    def run() -> None:
        for step in steps:
            step()

    return run


def compile_node(
    machine: Machine, node: Node, loops: tuple[str, ...], operator: str | None
) -> Step:
    """Compile one node and all it holds; the arguments are those of `compile_body`."""
    match node:
        case Assign():
            if operator is not None:
                return compile_update(machine, node, operator, loops)
            return compile_assign(machine, node, loops)
        case Loop():
            return _loop(machine, node, loops, operator)
        case If():
            return _guard(machine, node, loops, operator)
        case Atomic():
            return compile_body(machine, node.body, loops, operator)
        case BlockReduce():
            return compile_body(machine, node.body, loops, node.operator)
        case Declaration():
            return compile_declaration(machine, node)
        case Barrier():
            raise AssertionError("a barrier stands in the body of a parallel loop")


def compile_range(machine: Machine, loop: Loop, loops: tuple[str, ...]) -> Callable[[], range]:
    """Compile what gives the iterations of a loop."""
    machine.enter(None, loops)
    start, stop = machine.index(loop.range.start), machine.index(loop.range.stop)
    step, where = loop.range.step, f"the bounds of loop {loop.variable}"

    def iterations() -> range:
        try:
            return range(start(), stop(), step)
        except FAILURES as failure:
            raise machine.failed(failure, where, loops, loop.span) from None

    return iterations


def compile_test(machine: Machine, guard: If, loops: tuple[str, ...]) -> TestCode:
    """Compile the condition of a guard."""
    machine.enter(guard.label, loops)
    test = machine.test(guard.condition)
    where = guard.label or "the condition of a guard"

    def holds() -> bool:
        try:
            return test()
        except FAILURES as failure:
            raise machine.failed(failure, where, loops, guard.span) from None

    return holds


def _guard(machine: Machine, guard: If, loops: tuple[str, ...], operator: str | None) -> Step:
    holds = compile_test(machine, guard, loops)
    body = compile_body(machine, guard.body, loops, operator)
    orelse = compile_body(machine, guard.orelse, loops, operator)

    def run() -> None:
        if holds():
            body()
        else:
            orelse()

    return run


def _loop(machine: Machine, loop: Loop, loops: tuple[str, ...], operator: str | None) -> Step:
    iterations = compile_range(machine, loop, loops)
    frame, name = machine.frame, loop.variable
    phases = [compile_body(machine, phase, (*loops, name), operator) for phase in _phases(loop)]
    stores = private_stores(machine, loop)
    body = phases[0]

    def run() -> None:
        for frame[name] in iterations():
            body()

    def run_privately() -> None:
        outside = [store.copy for store in stores]
        for frame[name] in iterations():
            for store in stores:
                store.copy = store.fresh()
            body()
        for store, copy in zip(stores, outside, strict=True):
            store.copy = copy

    def run_in_phases() -> None:
        values = iterations()
        outside = [store.copy for store in stores]
        copies = [[store.fresh() for store in stores] for _ in values]
        for phase in phases:
            for frame[name], own in zip(values, copies, strict=True):
                for store, copy in zip(stores, own, strict=True):
                    store.copy = copy
                phase()
        for store, copy in zip(stores, outside, strict=True):
            store.copy = copy

    if len(phases) > 1:
        return run_in_phases
    return run_privately if stores else run


def _phases(loop: Loop) -> list[tuple[Node, ...]]:
    if loop.execution == "sequential":
        return [loop.body]
    phases: list[tuple[Node, ...]] = [()]
    for node in loop.body:
        if isinstance(node, Barrier):
            phases.append(())
        else:
            phases[-1] = (*phases[-1], node)
    return phases


def private_stores(machine: Machine, loop: Loop) -> list[PrivateStore]:
    """Return the names that a loop makes private."""
    stores = [machine.stores[name] for name in dict.fromkeys(loop.private)]
    return [store for store in stores if isinstance(store, PrivateStore)]
