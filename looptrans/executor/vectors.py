"""A run of a Program with parallel loops in which their iterations are the elements of arrays.

A parallel loop is an axis: all its iterations take each statement together. Loops that are
sequential stay loops, guards and ternaries become masks, and where the iterations of a loop differ
in number between lanes, the shorter ones are masked out. Every operation and every sum is made in
the order of `looptrans.executor.run`, so that the results are the same bit for bit, except that
NumPy's transcendental functions may round an element of an array differently from a single number.

Right for programs without a race only: iterations that touch one cell are in no order here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from looptrans.executor.errors import FAILURES, InputMismatch, as_trap
from looptrans.executor.inputs import Inputs
from looptrans.executor.lanes import Lanes, spread
from looptrans.executor.run import DTYPES, output_names
from looptrans.executor.vector_machine import Vectors, iterations
from looptrans.executor.vector_store import NotVectorized, VectorStore
from looptrans.executor.vector_values import compile_write
from looptrans.ir.program import (
    Assign,
    Atomic,
    Barrier,
    BlockReduce,
    Declaration,
    If,
    Loop,
    Node,
    Program,
)
from looptrans.ir.walk import nodes

Step = Callable[[], None]


def execute_vectors(
    program: Program,
    inputs: Inputs,
    dtype: str = "float64",
    *,
    backwards: bool = False,
    random: np.random.Generator | None = None,
) -> dict[str, np.ndarray[Any, Any]]:
    """Run a program on complete inputs, the iterations of its parallel loops side by side.

    Args:
        program: A program whose parallel loops have no race.
        inputs: What it starts from.
        dtype: The type of every floating-point number: float64, float32 or float16.
        backwards: Whether `sum(…)` and `@` add from right to left, which is as good an order as any
            and shows how much the order matters. (Sums whose length differs between iterations
            stay as they are.)
        random: Where given, each operation in float32 is off by a rounding that is drawn from it.

    Returns:
        The returned names in their order, then the inputs that were written.

    Raises:
        NotVectorized: Something in it can only be run one iteration at a time.
        ExecutionError: A statement fails; the message does not name the iteration.
    """
    if dtype not in DTYPES:
        raise InputMismatch(f"there is no type {dtype!r} to compute in", None)
    real = DTYPES[dtype]
    for node in nodes(program.body):
        if isinstance(node, Atomic | BlockReduce | Barrier):
            raise NotVectorized("atomic parts, reducing blocks and barriers")
    machine = Vectors(program, inputs, real, backwards, random)
    with np.errstate(all="ignore"):
        for step in [compile_node(machine, node, 0) for node in program.body]:
            step()
        return {name: machine.output(name) for name in output_names(program)}


def compile_node(machine: Vectors, node: Node, depth: int) -> Step:
    """Compile a node that stands inside `depth` parallel loops."""
    match node:
        case Declaration():
            return _declaration(machine, node)
        case Assign():
            return _assign(machine, node)
        case If():
            return _guard(machine, node, depth)
        case Loop() if node.execution == "parallel":
            return _parallel(machine, node, depth)
        case Loop():
            return _sequential(machine, node, depth)
        case _:
            raise AssertionError(node)


def _body(machine: Vectors, body: tuple[Node, ...], depth: int) -> Step:
    steps = [compile_node(machine, node, depth) for node in body]

    def run() -> None:
        for step in steps:
            step()

    return run


def _declaration(machine: Vectors, declaration: Declaration) -> Step:
    store, creation = machine.stores[declaration.array], declaration.creation
    private = any(
        isinstance(node, Loop) and declaration.array in node.private
        for node in nodes(machine.program.body)
    )
    code = machine.value(creation)

    def run() -> None:
        try:
            made = code()
            if private:
                shape = np.shape(made)
                store.declared = shape[len(shape) - len(creation.shape) :]
            else:
                store.rename(made, len(creation.shape), machine.mask, tuple(machine.lanes))
        except FAILURES as failure:
            trap = as_trap(failure)
            raise trap.at(f"the creation of {store.name}", {}, declaration.span) from None

    return run


def _assign(machine: Vectors, statement: Assign) -> Step:
    codes = [machine.value(value) for value in statement.values]
    values = statement.values * (len(statement.targets) if len(statement.values) == 1 else 1)
    pairs = zip(statement.targets, values, strict=True)
    writes = [compile_write(machine, target, value) for target, value in pairs]
    spread_out = len(writes) if len(codes) == 1 else 1
    alone = len(writes) == 1

    def run() -> None:
        try:
            if alone:
                writes[0](codes[0]())
                return
            # A write must not change what another one is about to store.
            made = [code() for code in codes]
            kept = [np.array(v) if isinstance(v, np.ndarray) else v for v in made]
            for write, value in zip(writes, kept * spread_out, strict=True):
                write(value)
        except FAILURES as failure:
            raise as_trap(failure).at(statement.label, {}, statement.span) from None

    return run


def _guard(machine: Vectors, guard: If, depth: int) -> Step:
    test = machine.test(guard.condition)
    body, orelse = _body(machine, guard.body, depth), _body(machine, guard.orelse, depth)
    where = guard.label or "the condition of a guard"

    def run() -> None:
        try:
            holds = test()
        except FAILURES as failure:
            raise as_trap(failure).at(where, {}, guard.span) from None
        if np.ndim(holds) == 0:
            (body if holds else orelse)()
            return
        for part, condition in ((body, holds), (orelse, ~holds)):
            some, mask = machine.narrowed(condition)
            if some:
                with machine.under(mask):
                    part()

    return run


def _bounds(machine: Vectors, loop: Loop) -> Callable[[], tuple[Lanes, Lanes]]:
    start, stop = machine.index(loop.range.start), machine.index(loop.range.stop)

    def bounds() -> tuple[Lanes, Lanes]:
        try:
            return start(), stop()
        except FAILURES as failure:
            where = f"the bounds of loop {loop.variable}"
            raise as_trap(failure).at(where, {}, loop.span) from None

    return bounds


def _private(machine: Vectors, loop: Loop) -> list[VectorStore]:
    return [machine.stores[name] for name in dict.fromkeys(loop.private)]


def _sequential(machine: Vectors, loop: Loop, depth: int) -> Step:
    bounds, body = _bounds(machine, loop), _body(machine, loop.body, depth)
    private, name, step = _private(machine, loop), loop.variable, loop.range.step

    def once() -> None:
        kept = [store.begin(tuple(machine.lanes)) for store in private]
        body()
        for store, each in zip(private, kept, strict=True):
            store.end(each)

    inner = once if private else body

    def run() -> None:
        start, stop = bounds()
        if isinstance(start, int) and isinstance(stop, int):
            for machine.frame[name] in range(start, stop, step):
                inner()
            return
        count = iterations(start, stop, step)
        first = spread(start)
        for number in range(machine.most(count)):
            some, mask = machine.narrowed(np.greater(count, number))
            if some:
                machine.frame[name] = first + number * step
                with machine.under(mask):
                    inner()

    return run


def _parallel(machine: Vectors, loop: Loop, depth: int) -> Step:
    bounds, body = _bounds(machine, loop), _body(machine, loop.body, depth + 1)
    private, name, step = _private(machine, loop), loop.variable, loop.range.step
    axis = machine.reductions + depth

    def run() -> None:
        start, stop = bounds()
        for index, condition in machine.ramps(start, stop, step, axis):
            some, mask = machine.narrowed(condition)
            if not some:
                continue
            machine.frame[name] = index
            kept = [store.begin(tuple(machine.lanes)) for store in private]
            with machine.under(mask):
                body()
            for store, each in zip(private, kept, strict=True):
                store.end(each)

    return run
