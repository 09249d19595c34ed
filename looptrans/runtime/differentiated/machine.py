"""A listing's statements run in torch, which differentiates them.

The loops are run as `looptrans.executor.vectors` runs them, and with its code: parallel ones as
axes, the others in turn. Integers, and with them bounds, subscripts and conditions, stay arrays of
NumPy; real numbers are torch tensors. Nothing of `looptrans.adjoint` is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from looptrans.executor.inputs import Inputs
from looptrans.executor.lanes import Lanes, spread
from looptrans.executor.roundings import is_rounded, roundings
from looptrans.executor.vector_machine import Vectors, iterations
from looptrans.executor.vector_operations import truth
from looptrans.executor.vectors import compile_node
from looptrans.ir.condition import Condition, Data
from looptrans.ir.program import Program
from looptrans.ir.walk import written
from looptrans.runtime.differentiated.store import GradientStore, Number, as_numbers, as_tensor
from looptrans.runtime.differentiated.values import compile_differentiable

if TYPE_CHECKING:
    from looptrans.ir.value import Value as Expression

TYPES = {"float64": torch.float64, "float32": torch.float32}
NUMPY_TYPES: dict[str, type[Any]] = {"float64": np.float64, "float32": np.float32}


@dataclass(frozen=True, slots=True)
class Differentiated:
    """What came back to the arguments.

    Attributes:
        gradients: Those of the float arrays and the real parameters, a number as an array without
            dimensions.
        tied: Whether a `max` or `min` was decided between equal numbers, so that there are several
            subgradients.
        terms: For each real parameter the sum of the absolute values of what comes back from each
            instance of each place it stands at; the gradient is their sum with signs.
    """

    gradients: dict[str, np.ndarray[Any, Any]]
    tied: bool
    terms: dict[str, float]


def differentiated(
    program: Program,
    inputs: Inputs,
    incoming: Mapping[str, np.ndarray[Any, Any]],
    dtype: str = "float64",
    *,
    last_at_ties: bool = False,
    absolute: bool = False,
    backwards: bool = False,
    random: np.random.Generator | None = None,
) -> Differentiated:
    """Run a program that is known to run on these inputs, and differentiate it.

    Args:
        program: A program whose parallel loops have no race.
        inputs: What it starts from.
        incoming: Gradients of outputs.
        dtype: The type of every real number: float64 or float32.
        last_at_ties: Whether of equal operands of `max` or `min` the last one has the derivative,
            and not the first one.
        absolute: Whether every derivative loses its sign on its way: what comes back are the sums
            of the absolute values of the terms whose sums the gradients are.
        backwards: Whether `sum(…)` and `@` add from right to left.
        random: Where given, each operation in float32 is off by a rounding that is drawn from it.

    Raises:
        NotVectorized: Something in it can only be run one iteration at a time.
    """
    machine = Gradients(
        program,
        inputs,
        NUMPY_TYPES[dtype],
        backwards,
        random,
        tensor_type=TYPES[dtype],
        last_at_ties=last_at_ties,
        absolute=absolute,
    )
    with np.errstate(all="ignore"):
        for step in [compile_node(machine, node, 0) for node in program.body]:
            step()
    results, given = [], []
    for name, gradient in incoming.items():
        result = machine.result(name)
        if result.requires_grad:
            results.append(result)
            seed = torch.tensor(np.abs(gradient) if absolute else gradient)
            given.append(seed.to(result.dtype).reshape(result.shape))
    if results:
        torch.autograd.backward(results, given)
    found = {}
    for name, leaf in machine.leaves.items():
        gradient_ = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        found[name] = gradient_.to(torch.float64).numpy()
    return Differentiated(found, machine.tied, machine.terms)


@dataclass(slots=True)
class Gradients(Vectors):
    """What the closures of one differentiated run share.

    Attributes:
        tensor_type: The type of real numbers.
        last_at_ties: Which of equal operands has the derivative; see `differentiated`.
        absolute: Whether derivatives lose their signs.
        leaves: The float arrays and real parameters that a gradient comes back to.
        tied: Whether a `max` or `min` was decided between equal numbers.
        terms: See `Differentiated`.
    """

    tensor_type: torch.dtype = torch.float64
    last_at_ties: bool = False
    absolute: bool = False
    leaves: dict[str, torch.Tensor] = field(default_factory=dict)
    tied: bool = False
    terms: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.inputs.reals.items():
            self.leaves[name] = self._leaf(value)
            self.terms[name] = 0.0
        Vectors.__post_init__(self)

    def _leaf(self, values: Any) -> torch.Tensor:
        return torch.tensor(np.asarray(values)).to(self.tensor_type).requires_grad_()

    def _store(self, name: str) -> GradientStore:
        array = self.program.array(name)
        is_fixed = array.role == "input" and name not in written(self.program)
        store = GradientStore(
            name,
            array.element,
            self.real,
            array.role == "local",
            array.rank == 0,
            tuple(self.lanes),
            tensor_type=self.tensor_type,
            is_fixed=is_fixed,
        )
        if array.role != "input":
            return store
        values = self.inputs.arrays[name]
        store.shape = values.shape
        if array.element != "float":
            own = np.array(values, dtype=np.bool_ if array.element == "bool" else np.int64)
            store.data = own.item() if array.rank == 0 else own.reshape(*store.lanes, *own.shape)
            return store
        leaf = self.leaves[name] = self._leaf(values)
        store.data = leaf if array.rank == 0 else leaf.reshape((*store.lanes, *leaf.shape))
        if not is_fixed:
            store.data = store.data.clone()
        return store

    def result(self, name: str) -> torch.Tensor:
        """Return what a store holds in the end."""
        store = self.stores[name]
        value = as_tensor(store.read_whole(None), self.tensor_type)
        return value.reshape(store.shape or ())

    def value(self, value: Expression) -> Callable[[], Number]:
        """Compile a value; see `looptrans.runtime.differentiated.values`."""
        code, random = compile_differentiable(self, value), self.random
        if random is None or not is_rounded(value):
            return code

        def off_by_a_rounding() -> Number:
            found = code()
            if not isinstance(found, torch.Tensor):
                return found
            return found * torch.from_numpy(roundings(random, tuple(found.shape)))

        return off_by_a_rounding

    def test(self, condition: Condition) -> Callable[[], Any]:
        """Compile a condition; it gives a bool or an array of them."""
        if not isinstance(condition, Data):
            return Vectors.test(self, condition)
        code = self.value(condition.value)
        return lambda: truth(as_numbers(code()))

    def real_parameter(self, name: str) -> torch.Tensor:
        """Return a real parameter, a number for each lane, so that each gets back its own term."""
        each = self.leaves[name].expand(tuple(self.lanes)).clone()

        def add(gradient: torch.Tensor) -> None:
            self.terms[name] += float(gradient.abs().sum())

        each.register_hook(add)  # type: ignore[no-untyped-call]  # torch has no types here
        return each

    def saw_tie(self, one: torch.Tensor, other: torch.Tensor) -> None:
        """Take note where two operands of a `max` are equal, and one of them has a derivative."""
        if self.tied or not (one.requires_grad or other.requires_grad):
            return
        equal = ((one == other) & one.isfinite()).numpy()
        self.tied = bool((equal if self.mask is None else equal & self.mask).any())

    def in_turn(self, start: Lanes, stop: Lanes, step: int) -> Iterator[tuple[Lanes, Any]]:
        """Yield a loop's iterations one after another, and in which lanes there is one."""
        if isinstance(start, int) and isinstance(stop, int):
            for number in range(start, stop, step):
                yield number, True
            return
        count, first = iterations(start, stop, step), spread(start)
        for number in range(self.most(count)):
            yield first + number * step, np.greater(count, number)

    def along(self, value: Number, axis: int) -> Number:
        """Return a value with the extent of an axis, also where it is the same all along it."""
        if not isinstance(value, torch.Tensor):
            value = np.asarray(value)
        if value.ndim == 0:
            value = value.reshape((1,) * len(self.lanes))
        shape = list(value.shape)
        shape[axis] = self.lanes[axis]
        if isinstance(value, torch.Tensor):
            return value.expand(shape)
        return np.broadcast_to(value, shape)
