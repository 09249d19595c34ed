"""Emitted kernels and what else the user could call, timed side by side.

For each set of sizes the arguments are made once, on the machine; every implementation gets the
same ones. What else there is was found by `bench_recipe` at small sizes and is compared with the
emitted kernels once more at the sizes themselves: with other numbers it gets no time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, TypeAlias

import torch

from looptrans.emit.parameters import launcher_parameters
from looptrans.runtime.benching.machine import GpuLost, Machine
from looptrans.runtime.benching.others import Arguments, NotOffered, Other, others
from looptrans.runtime.benching.plan import OURS, Plan, products
from looptrans.runtime.benching.recipe import Recipe, viewed
from looptrans.runtime.benching.results import NO_MEMORY, Case, Pass, Product, Row
from looptrans.runtime.benching.sizes import integers_of, shapes_of, shown

Progress: TypeAlias = Callable[[int, int, str], None]
Tensors: TypeAlias = dict[str, torch.Tensor]

# Two roundings of one result differ by less; a forgotten mask or factor makes more.
TOLERANCE = {"bfloat16": 5e-2, "float16": 1e-2, "float32": 5e-3}
PART = 1 << 26


def timed(
    plans: Sequence[Plan],
    passes: Sequence[Pass],
    dtype: str,
    machine: Machine,
    seed: int = 0,
    progress: Progress | None = None,
) -> Iterator[Case]:
    """Time plans one after the other, and yield each when it is done.

    Where the machine is lost, the case in which it was is the last one.

    Args:
        plans: What to time.
        passes: Which passes.
        dtype: The type of floating-point arrays.
        machine: What runs them.
        seed: Decides the random inputs.
        progress: Told how many of how many steps are done, and what comes next.
    """
    found = others(compiles=machine.compiles)
    every = [(plan, direction) for plan in plans for direction in plan.passes(passes)]
    total = sum(1 + len(found) * isinstance(plan.recipe, Recipe) for plan, _ in every)
    done = 0
    for plan, direction in every:
        case = _Case(plan, direction, dtype, machine, seed)
        rows: list[Row] = []
        for other in (None, *(found if isinstance(plan.recipe, Recipe) else ())):
            if progress is not None:
                name = OURS if other is None else other.name
                where = f"{plan.subject.program.name} {direction} {shown(plan.sizes)}"
                progress(done, total, f"{where}: {name}")
            rows.append(case.ours() if other is None else case.other(other))
            done += 1
            try:
                machine.release()
            except GpuLost as lost:
                reason = rows[-1].reason or str(lost)
                rows[-1] = replace(rows[-1], milliseconds=(), reason=reason)
                yield case.finished(rows)
                return
        yield case.finished(rows)


def ceiling(dtype: str, machine: Machine) -> Case:
    """Time a plain matrix product: what the others cannot pass."""
    extent = machine.ceiling

    def run(row: Row) -> Row:
        shape = (2, extent, extent)
        made = torch.randn(shape, device=machine.device).to(getattr(torch, dtype))
        return _timed(row, machine, lambda: made[0] @ made[1])

    sizes = {"M": extent, "N": extent, "K": extent}
    work = Product("torch.matmul", (), ("i", "j", "k"), extent**3)
    moved = 3 * extent**2 * getattr(torch, dtype).itemsize
    row = _tried(Row("torch.matmul", "ceiling"), run)
    return Case("matrix product", "forward", sizes, (work,), moved, (row,))


class _Case:
    """One listing at one set of sizes in one pass."""

    def __init__(
        self, plan: Plan, direction: Pass, dtype: str, machine: Machine, seed: int
    ) -> None:
        self.plan = plan
        self.direction: Pass = direction
        self.dtype = dtype
        self.machine = machine
        self.seed = seed
        self.arrays: Tensors = {}
        self.incoming: Tensors = {}
        self.expected: Tensors = {}
        self.moved = 0
        self.ready = False

    def finished(self, rows: Sequence[Row]) -> Case:
        """Return the case with its rows, and let its tensors go."""
        work = () if self.plan.problem else products(self.plan, self.direction, self.seed)
        self.arrays, self.incoming, self.expected = {}, {}, {}
        return Case(
            self.plan.subject.program.name,
            self.direction,
            self.plan.shown,
            work,
            self.moved,
            tuple(rows),
        )

    def ours(self) -> Row:
        """Run and time the emitted kernels."""

        def run(row: Row) -> Row:
            self._make()
            call = self._our_call()
            results = call.results(self.incoming)
            self.moved += sum(_bytes(each) for each in results.values())
            self.expected = {name: each.detach().clone() for name, each in results.items()}
            del results
            row = self._timed(row, call)
            return replace(row, configurations=_configurations(self.plan.subject.modules))

        row = Row(OURS, "emitted", reason=self.plan.problem)
        return row if row.reason else _tried(row, run)

    def other(self, other: Other) -> Row:
        """Run what else could be called, compare it, and time it."""

        def run(row: Row) -> Row:
            call = self._other_call(other)
            if self.expected:  # else the emitted kernels have failed: there is no more to ask
                results = call.results(self.incoming)
                pairs = [(each, self.expected[name]) for name, each in results.items()]
                apart = max(_difference(one, other) for one, other in pairs)
                del results, pairs
                row = replace(row, difference=apart)
                if not apart <= TOLERANCE[self.dtype]:
                    text = f"it gives other numbers at these sizes: relative difference {apart:.1e}"
                    return replace(row, reason=text)
            return self._timed(row, call)

        row = Row(other.name, "other", reason=self.plan.problem)
        if not row.reason and not self.ready:
            row = replace(row, reason="there are no arguments to call it with")
        return row if row.reason else _tried(row, run)

    def _make(self) -> None:
        """Make the arguments and incoming gradients: normal numbers, integers in their ranges."""
        program, device = self.plan.subject.program, self.machine.device
        whole = integers_of(program, self.plan.sizes, self.seed)
        random = torch.Generator(device=device).manual_seed(self.seed)

        def normal(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
            return torch.randn(tuple(shape), generator=random, device=device).to(dtype)

        for name, shape in shapes_of(program, self.plan.sizes).items():
            match program.array(name).element:
                case "int":
                    self.arrays[name] = torch.from_numpy(whole[name]).to(device)
                case "bool":
                    drawn = torch.randint(0, 2, shape, generator=random, device=device)
                    self.arrays[name] = drawn.to(torch.bool)
                case "float":
                    self.arrays[name] = normal(shape, getattr(torch, self.dtype))
        self.moved = sum(_bytes(each) for each in self.arrays.values())
        if self.direction == "backward":
            with torch.no_grad():
                for name, each in self._our_call().outputs().items():
                    self.incoming[name] = normal(each.shape, each.dtype)
                    self.moved += 2 * _bytes(each)
        self.ready = True

    def _leaves(self) -> Tensors:
        """Return the arrays that receive gradients: those every implementation has one for."""
        if self.direction == "forward":
            return {}
        names, recipe = self.plan.subject.gradients, self.plan.recipe
        if isinstance(recipe, Recipe):
            names = tuple(name for name in names if name in recipe.differentiable)
        arrays = {name: self.arrays[name] for name in names if name in self.arrays}
        return {name: each.detach().requires_grad_() for name, each in arrays.items()}

    def _our_call(self) -> _Call:
        subject, recipe, leaves = self.plan.subject, self.plan.recipe, self._leaves()
        launcher = subject.launcher if self.direction == "forward" else subject.differentiable
        values = {**self.plan.sizes, **self.plan.reals, **self.arrays, **leaves}
        arguments = [values[name] for name in launcher_parameters(subject.forward).names]
        names = subject.program.outputs

        def outputs() -> Tensors:
            assert launcher is not None
            result = launcher(*arguments)
            several = result if isinstance(result, tuple) else (result,)
            found: Tensors = dict(zip(names, several, strict=True))
            if isinstance(recipe, Recipe):
                return {recipe.output: viewed(found[recipe.output], recipe.layout)}
            if self.direction == "backward":
                return {name: found[name] for name in names if name in subject.of}
            return found

        return _Call(outputs, leaves)

    def _other_call(self, other: Other) -> _Call:
        recipe, leaves = self.plan.recipe, self._leaves()
        assert isinstance(recipe, Recipe)
        arrays = {**self.arrays, **leaves}
        made = other.make(recipe, Arguments(arrays, self.plan.reals, self.plan.sizes))
        return _Call(lambda: {recipe.output: made()}, leaves)

    def _timed(self, row: Row, call: _Call) -> Row:
        if self.direction == "forward":
            with torch.no_grad():
                return _timed(row, self.machine, call.outputs)
        outputs = call.outputs()
        return _timed(row, self.machine, lambda: call.gradients(outputs, self.incoming))


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of an implementation; attention's output is (batch, head, query, column).

    Attributes:
        outputs: Runs it.
        leaves: The arrays that receive gradients; none for the forward pass.
    """

    outputs: Callable[[], Tensors]
    leaves: Tensors

    def gradients(self, outputs: Tensors, incoming: Tensors) -> tuple[torch.Tensor, ...]:
        """Return the gradients of the leaves, in their order; the graph is kept.

        What torch compiles once for a graph that is let go refuses one that is kept, so that the
        trial keeps it like the calls that are timed.
        """
        return torch.autograd.grad(
            list(outputs.values()),
            list(self.leaves.values()),
            [incoming[name] for name in outputs],
            retain_graph=True,
        )

    def results(self, incoming: Tensors) -> Tensors:
        """Return the outputs, or the gradients where there are leaves."""
        if not self.leaves:
            with torch.no_grad():
                return self.outputs()
        found = self.gradients(self.outputs(), incoming)
        return dict(zip(self.leaves, found, strict=True))


def _timed(row: Row, machine: Machine, call: Callable[[], object]) -> Row:
    peak = machine.peak(call)
    return replace(row, milliseconds=machine.times(call), peak_bytes=peak)


def _tried(row: Row, run: Callable[[Row], Row]) -> Row:
    """Run something, and turn what goes wrong into the reason why there are no times."""
    try:
        row = run(row)
    except torch.OutOfMemoryError:
        row = replace(row, milliseconds=(), reason=NO_MEMORY)
    except NotOffered as error:
        row = replace(row, reason=str(error))
    except Exception as error:  # a compiler or a kernel of somebody else: the run goes on
        text = " ".join(str(error).split())[:200]
        row = replace(row, milliseconds=(), reason=f"{type(error).__name__}: {text}")
    return row


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the relative Frobenius norm of a difference; inf where shapes or nans differ."""
    if found.shape != expected.shape:
        return math.inf
    size = apart = 0.0
    # A part at a time: in float32 a large result may not fit beside the others.
    flat: Any = found.reshape(-1)
    other_flat: Any = expected.reshape(-1)
    parts = zip(flat.split(PART), other_flat.split(PART), strict=True)
    for one, other in parts:
        size += other.float().square().sum().item()
        apart += (one.float() - other.float()).square().sum().item()
    if math.isnan(apart):
        return math.inf
    return math.sqrt(apart / size) if size else (math.inf if apart else 0.0)


def _configurations(modules: Sequence[ModuleType]) -> dict[str, str]:
    """Return what Triton's autotuner has chosen for each kernel it has timed."""
    found = {}
    for module in modules:
        for name, held in vars(module).items():
            choices = held.items() if isinstance(held, dict) else ((None, held),)
            for key, choice in choices:
                best = getattr(getattr(choice, "tuner", None), "best_config", None)
                if name.endswith("_tuned") and best is not None:
                    found[name if key is None else f"{name}[{key}]"] = str(best)
    return found
