"""Parallel loops, interleaved: every iteration is a task, and one statement is one step.

A scheduler picks at random which task takes the next step. What runs outside all parallel loops,
and what stands in an atomic block, uses the closures of `looptrans.executor.control`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Final, TypeAlias

from looptrans.executor.closures import Frame, Machine
from looptrans.executor.control import compile_node, compile_range, compile_test, private_stores
from looptrans.executor.private import Copy, PrivateStore
from looptrans.executor.reducing import Pending
from looptrans.executor.statements import Step
from looptrans.ir.program import Assign, Atomic, Barrier, BlockReduce, If, Loop, Node, Program
from looptrans.ir.walk import nodes

# How likely a task goes on after a step, by seed: from strict alternation to one task at a time.
PATIENCE: Final = (0.0, 0.5, 0.9, 1.0)

# A process is resumed for one step. It yields whether it can go on; where it cannot, something
# wakes it later.
Process: TypeAlias = Generator[bool, None, None]
Code: TypeAlias = Callable[["Task"], Process]
READY, BLOCKED = True, False


@dataclass(slots=True, eq=False)
class Task:
    """An iteration of a parallel loop, or the whole run.

    Attributes:
        frame: Its loop variables.
        copies: Its copies of the private names, in the order of the machine's.
        group: The iterations it is one of.
        number: Which of them, in the order of the loop.
        process: What it still has to do.
    """

    frame: Frame
    copies: list[Copy]
    group: Group | None = None
    number: int = 0
    process: Process = field(init=False)


@dataclass(slots=True, eq=False)
class Group:
    """The iterations of one execution of a parallel loop.

    Attributes:
        parent: The task that goes on when all have ended.
        alive: How many have not ended.
        waiting: Those at the barrier.
        turns: For each block that is gone through in turn, the number of the iteration that may.
        queues: Those that wait for their turn, by block and number.
        pending: Updates that wait for the end of the phase.
    """

    parent: Task
    alive: int
    waiting: list[Task] = field(default_factory=list)
    turns: dict[int, int] = field(default_factory=dict)
    queues: dict[tuple[int, int], Task] = field(default_factory=dict)
    pending: Pending = field(default_factory=Pending)


@dataclass(slots=True, eq=False)
class Scheduler:
    """Picks the task that takes the next step.

    Attributes:
        machine: What the closures share; before a step it is set to the task's iteration.
        stores: The private names.
        random: Decides.
        patience: How likely a task takes the next step as well.
        ready: The tasks that can take one.
        current: The task the machine is set to.
    """

    machine: Machine
    stores: list[PrivateStore]
    random: Random
    patience: float
    ready: list[Task] = field(default_factory=list)
    current: Task | None = None

    def run(self, task: Task) -> None:
        """Run a task to its end, and with it all that it starts, while everything else waits."""
        outside, before = self.ready, self.current
        self.ready = [task]
        ready, chance = self.ready, self.random.random
        at, going_on = 0, False
        while ready:
            if not going_on:
                at = int(chance() * len(ready))
            task = ready[at]
            if task is not self.current:
                self._enter(task)
            going_on = next(task.process, BLOCKED)
            if not going_on:
                # What the step woke stands behind it, so that `at` is still its place.
                ready[at] = ready[-1]
                ready.pop()
            elif self.patience < 1.0:
                going_on = chance() < self.patience
        self.ready = outside
        if before is not None:
            self._enter(before)

    def _enter(self, task: Task) -> None:
        self.machine.frame.update(task.frame)
        for store, copy in zip(self.stores, task.copies, strict=True):
            store.copy = copy
        self.machine.pending = None if task.group is None else task.group.pending
        self.current = task

    def end_phase(self, group: Group) -> None:
        """Join what the phase has reduced, and let the iterations at the barrier go on."""
        group.pending.join(self.random)
        self.ready.extend(group.waiting)
        group.waiting.clear()

    def end(self, group: Group) -> None:
        """Note the end of an iteration."""
        group.alive -= 1
        if len(group.waiting) == group.alive:
            self.end_phase(group)
        if group.alive == 0:
            self.ready.append(group.parent)


def run_interleaved(machine: Machine, program: Program, seed: int) -> None:
    """Run a program once, its parallel loops interleaved as a seed decides.

    Raises:
        ExecutionError: A statement fails.
    """
    random = Random(seed)
    stores = [store for store in machine.stores.values() if isinstance(store, PrivateStore)]
    scheduler = Scheduler(machine, stores, random, PATIENCE[int(random.random() * len(PATIENCE))])
    task = Task({}, [store.copy for store in stores])
    task.process = _Compiler(scheduler).body(program.body, (), None)(task)
    scheduler.run(task)


def _has_parallel(node: Node) -> bool:
    """Tell whether a node is or holds a parallel loop."""
    return any(isinstance(each, Loop) and each.execution == "parallel" for each in nodes((node,)))


def _variables(loops: tuple[Loop, ...]) -> tuple[str, ...]:
    return tuple(loop.variable for loop in loops)


@dataclass(slots=True)
class _Compiler:
    """Makes a process of every node that is not one step.

    Attributes:
        scheduler: What the processes use.
    """

    scheduler: Scheduler
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def machine(self) -> Machine:
        return self.scheduler.machine

    def body(self, body: tuple[Node, ...], loops: tuple[Loop, ...], operator: str | None) -> Code:
        """Compile a block.

        Args:
            body: Its nodes.
            loops: The loops around it, outermost first.
            operator: That of the reducing block around it, if it is in one.
        """
        parts: list[tuple[Step | None, Code | None]] = []
        for node in body:
            if self._is_step(node, loops):
                step = compile_node(self.machine, node, _variables(loops), operator)
                parts.append((step, None))
            else:
                parts.append((None, self._node(node, loops, operator)))

        def run(task: Task) -> Process:
            for step, code in parts:
                if step is not None:
                    yield READY
                    step()
                elif code is not None:
                    yield from code(task)

        return run

    def _is_step(self, node: Node, loops: tuple[Loop, ...]) -> bool:
        """Tell whether nothing comes between: a statement, an atomic block, or nobody is there."""
        if _has_parallel(node):
            return False
        if all(loop.execution == "sequential" for loop in loops):
            return True
        return isinstance(node, Assign) or (isinstance(node, Atomic) and node.turn is None)

    def _node(self, node: Node, loops: tuple[Loop, ...], operator: str | None) -> Code:
        match node:
            case Loop(execution="parallel"):
                return self._parallel(node, loops, operator)
            case Loop():
                return self._sequential(node, loops, operator)
            case If():
                return self._guard(node, loops, operator)
            case Atomic():
                return self._atomic(node, loops, operator)
            case BlockReduce():
                return self.body(node.body, loops, node.operator)
            case Barrier():
                return self._barrier()
            case _:
                raise AssertionError(f"{node} is one step")

    def _parallel(self, loop: Loop, loops: tuple[Loop, ...], operator: str | None) -> Code:
        iterations = compile_range(self.machine, loop, _variables(loops))
        body = self.body(loop.body, (*loops, loop), operator)
        scheduler, private = self.scheduler, self._private(loop)

        def iteration(task: Task, group: Group) -> Process:
            yield from body(task)
            scheduler.end(group)

        def run(task: Task) -> Process:
            values = iterations()
            if not values:
                return
            group = Group(task, len(values))
            for number, value in enumerate(values):
                child = Task({**task.frame, loop.variable: value}, list(task.copies), group, number)
                for at, store in private:
                    child.copies[at] = store.fresh()
                child.process = iteration(child, group)
                scheduler.ready.append(child)
            yield BLOCKED

        return run

    def _sequential(self, loop: Loop, loops: tuple[Loop, ...], operator: str | None) -> Code:
        iterations = compile_range(self.machine, loop, _variables(loops))
        body = self.body(loop.body, (*loops, loop), operator)
        frame, variable, private = self.machine.frame, loop.variable, self._private(loop)

        def run(task: Task) -> Process:
            outside = [task.copies[at] for at, _ in private]
            for value in iterations():
                task.frame[variable] = frame[variable] = value
                for at, store in private:
                    task.copies[at] = store.copy = store.fresh()
                yield from body(task)
            for (at, store), copy in zip(private, outside, strict=True):
                task.copies[at] = store.copy = copy

        return run

    def _private(self, loop: Loop) -> list[tuple[int, PrivateStore]]:
        """Return what a loop makes private, each with its place among the copies of a task."""
        mine = private_stores(self.machine, loop)
        return [
            (at, store)
            for at, store in enumerate(self.scheduler.stores)
            if any(store is each for each in mine)
        ]

    def _guard(self, guard: If, loops: tuple[Loop, ...], operator: str | None) -> Code:
        holds = compile_test(self.machine, guard, _variables(loops))
        body = self.body(guard.body, loops, operator)
        orelse = self.body(guard.orelse, loops, operator)

        def run(task: Task) -> Process:
            yield READY
            yield from body(task) if holds() else orelse(task)

        return run

    def _atomic(self, block: Atomic, loops: tuple[Loop, ...], operator: str | None) -> Code:
        """Compile an atomic block that has turns, or parallel loops inside."""
        scheduler, name = self.scheduler, next(self._numbers)
        alone = self._alone(block, loops, operator)
        in_turn = block.turn is not None and loops[-1].execution == "parallel"
        if in_turn:
            assert block.turn == loops[-1].variable, "a turn is taken in the body of its loop"

        def run(task: Task) -> Process:
            group = task.group
            if in_turn and group is not None and group.turns.get(name, 0) != task.number:
                group.queues[name, task.number] = task
                yield BLOCKED
            else:
                yield READY
            alone(task)
            if in_turn and group is not None:
                group.turns[name] = task.number + 1
                if (name, task.number + 1) in group.queues:
                    scheduler.ready.append(group.queues.pop((name, task.number + 1)))

        return run

    def _alone(
        self, block: Atomic, loops: tuple[Loop, ...], operator: str | None
    ) -> Callable[[Task], None]:
        """Compile the body of a block, which runs to its end before anything else goes on."""
        if not _has_parallel(block):
            step = compile_node(self.machine, block, _variables(loops), operator)
            return lambda task: step()
        body, scheduler = self.body(block.body, loops, operator), self.scheduler

        def run(task: Task) -> None:
            inside = Task(task.frame, task.copies, task.group, task.number)
            inside.process = body(inside)
            scheduler.run(inside)

        return run

    def _barrier(self) -> Code:
        scheduler = self.scheduler

        def run(task: Task) -> Process:
            group = task.group
            assert group is not None, "a barrier stands in the body of a parallel loop"
            group.waiting.append(task)
            if len(group.waiting) == group.alive:
                scheduler.end_phase(group)
            yield BLOCKED

        return run
