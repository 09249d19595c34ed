"""One run of a backward pass: the forward kernels, the backward kernels, and what they should give.

As in a training step, what the forward kernels return is what the backward kernels are handed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import torch

from looptrans.adjoint.derived import Backward
from looptrans.executor.inputs import Inputs
from looptrans.ir.program import Program
from looptrans.runtime.differentiated.machine import Differentiated
from looptrans.runtime.differentiated.reference import GradientReference
from looptrans.runtime.executed.empty_rows import with_masked_rows
from looptrans.runtime.executed.reference import Outputs
from looptrans.runtime.verifying.call import (
    Strides,
    argument_type,
    called,
    element_type,
    guarded_arguments,
    guarding,
    laid_out,
    once_rounded,
    value_of,
    written_outside,
)
from looptrans.runtime.verifying.differences import (
    Differences,
    differences,
    has_differences,
    is_small,
)
from looptrans.runtime.verifying.divided import asked_for
from looptrans.runtime.verifying.errors import compared
from looptrans.runtime.verifying.gradients import Expected, compared_gradient
from looptrans.runtime.verifying.handed_over import HandedOver
from looptrans.runtime.verifying.inputs import InputKind
from looptrans.runtime.verifying.memory import Guarded, to_array, to_tensor
from looptrans.runtime.verifying.nearby import neighbours, roundings_of, run_nearby
from looptrans.runtime.verifying.rounded import rounds_operands, run_rounded
from looptrans.runtime.verifying.verification import OutputError, Run

Values: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class GradientLauncher:
    """Two functions that run the kernels of a backward pass, and how they are called.

    Attributes:
        found: The backward pass.
        forward: Returns the outputs and what is saved.
        forward_arguments: What its arguments are in the listing, in order.
        returned: What it returns, in order.
        backward: Returns the gradients; it may take `wanted`.
        backward_arguments: What its arguments are in the backward listing, in order.
        gradients: What it returns, in order: names of the backward listing.
        module: The module both are from, whose new tensors are watched; None where they have none.
        nest: What the forward kernels compute, where that is known.
    """

    found: Backward
    forward: Callable[..., Any]
    forward_arguments: tuple[str, ...]
    returned: tuple[str, ...]
    backward: Callable[..., Any]
    backward_arguments: tuple[str, ...]
    gradients: tuple[str, ...]
    module: ModuleType | None = None
    nest: Program | None = None


@dataclass(slots=True)
class Context:
    """What the runs of a backward pass share.

    Attributes:
        launcher: What runs the kernels.
        reference: The listing.
        device: Where the kernels run.
        seed: What decides random numbers.
        differed: What central differences have said so far.
        ambiguous: How many elements had several subgradients so far.
    """

    launcher: GradientLauncher
    reference: GradientReference
    device: str
    seed: int
    differed: Differences = field(default_factory=Differences)
    ambiguous: int = 0


@dataclass(slots=True)
class GradientRun:
    """One run: what it starts from, what is wrong with it, and what gradients should be."""

    context: Context
    inputs: Inputs
    dtype: str
    kind: InputKind
    strides: Strides
    problems: list[str] = field(default_factory=list)
    expected: dict[str, Expected] = field(default_factory=dict)

    @property
    def found(self) -> Backward:
        """The backward pass."""
        return self.context.launcher.found

    def run(self) -> Run:
        """Run the kernels, forward and backward, and compare.

        Raises:
            ExecutionError: The listing cannot be run.
        """
        program, device = self.found.listing, self.context.device
        reference = self.context.reference.reference
        exact, empty, masked = with_masked_rows(reference, self.inputs, reference.run(self.inputs))
        arguments = guarded_arguments(program, self.inputs, self.dtype, device, self.strides)
        saved = self._forward(arguments, exact, empty)
        errors: tuple[OutputError, ...] = ()
        if saved is not None:
            incoming = self._incoming(exact)
            results = self._backward(arguments, saved, incoming)
            came = {name: to_array(tensor) for name, tensor in incoming.items()}
            errors = self._compared(results, came, masked, saved)
            if self._is_looked_into() and results:
                self._check_wanted(arguments, saved, incoming, results)
                self._check_differences(results, came, exact, masked, errors)
        for name, tensor in arguments.items():
            if tensor.changed():
                self.problems.append(f"the input {name} is changed")
        sizes = dict(self.inputs.integers)
        problems = tuple(dict.fromkeys(self.problems))
        return Run(sizes, self.dtype, self.kind, self.strides, errors, problems)

    def _is_looked_into(self) -> bool:
        """Whether everything is tried here that costs several runs."""
        return self.kind == "normal" and is_small(self.inputs.integers)

    # The kernels

    def _call(
        self, what: str, run: Callable[..., Any], values: Sequence[Any], options: Mapping[str, Any]
    ) -> Any:
        with guarding(self.context.launcher.module) as made:
            result, problems = called(run, values, options, self.context.device)
        for tensor in made:
            problems += written_outside(f"a tensor of the {what} pass", tensor)
        self.problems += problems
        return result

    def _forward(
        self, arguments: Mapping[str, Guarded], exact: Outputs, empty: Mapping[str, Values]
    ) -> dict[str, torch.Tensor] | None:
        """Return the outputs and what is saved; None where the kernels fail."""
        launcher = self.context.launcher
        tensors = {name: each.tensor for name, each in arguments.items()}
        values = [value_of(name, tensors, self.inputs) for name in launcher.forward_arguments]
        result = self._call("forward", launcher.forward, values, {})
        returned = result if isinstance(result, tuple) else (result,)
        if result is None or len(returned) != len(launcher.returned):
            if result is not None:
                count = len(launcher.returned)
                self.problems.append(f"{len(returned)} values are returned, not {count}")
            return None
        saved = dict(zip(launcher.returned, returned, strict=True))
        for name in dict.fromkeys(self.found.listing.outputs):
            error = self._output(name, saved[name], exact[name], empty.get(name))
            if not error.passed:
                said = error.problem or f"an error of {error.error:.1e}, not {error.tolerance:.1e}"
                self.problems.append(f"the output {name} of the forward pass is wrong: {said}")
        return saved

    def _output(
        self, name: str, tensor: torch.Tensor, exact: Values, empty: Values | None
    ) -> OutputError:
        own = element_type(self.found.listing, name, self.dtype)

        reference = self.context.reference.reference

        def kept(result: Outputs) -> Values:
            rounded_: Values = once_rounded(result[name], own)
            return rounded_

        def plain(backwards: bool) -> Values:
            return kept(reference.run(self.inputs, "float32", backwards=backwards))

        def nearby(number: int) -> Values:
            return kept(run_nearby(reference, self.inputs, number))

        def rounded(number: int) -> Values:
            return kept(run_rounded(reference, self.inputs, self.dtype, number))

        found = to_array(tensor)
        is_short = own != torch.float32 or self.dtype == "float32"
        is_rounded = is_short and rounds_operands(self.found.listing, self.dtype)
        return compared(
            name,
            found,
            self._asked_for(exact, found),
            plain,
            str(own).removeprefix("torch."),
            always_plain=False,
            empty=empty,
            nearby=nearby,
            rounded=rounded if is_rounded else None,
        )

    def _incoming(self, exact: Outputs) -> dict[str, torch.Tensor]:
        """Make incoming gradients, random; expanded ones are the same along leading dimensions."""
        found = {}
        for number, name in enumerate(self.found.of):
            random = np.random.default_rng([self.context.seed, number, 1])
            shape = exact[name].shape
            own = element_type(self.found.listing, name, self.dtype)
            if self.strides == "expanded":
                kept = shape[-1:] if len(shape) > 1 else ()
                row = to_tensor(np.asarray(random.standard_normal(kept)), own)
                found[name] = row.to(self.context.device).expand(shape)
                continue
            values = to_tensor(np.asarray(random.standard_normal(shape)), own)
            odd = self.strides == "odd"
            found[name] = laid_out(values, self.context.device, number + 1, odd=odd).tensor
        return found

    def _backward(
        self,
        arguments: Mapping[str, Guarded],
        saved: Mapping[str, torch.Tensor],
        incoming: Mapping[str, torch.Tensor],
        wanted: tuple[str, ...] | None = None,
    ) -> dict[str, torch.Tensor | None]:
        """Return the gradients; nothing where the kernels fail."""
        launcher, found = self.context.launcher, self.found
        handed = {each.name: saved[each.name] for each in found.saved}
        if self.strides == "odd":
            handed = {
                name: laid_out(tensor, self.context.device, number, odd=True).tensor
                for number, (name, tensor) in enumerate(handed.items())
            }
        tensors = {name: each.tensor for name, each in arguments.items()}
        tensors |= handed | {found.incoming[name]: each for name, each in incoming.items()}
        before = {name: tensors[name].clone() for name in (*handed, *found.incoming.values())}
        values = [value_of(name, tensors, self.inputs) for name in launcher.backward_arguments]
        options = {} if wanted is None else {"wanted": wanted}
        result = self._call("backward", launcher.backward, values, options)
        for name, tensor in before.items():
            if not torch.equal(_bits(tensor), _bits(tensors[name])):
                self.problems.append(f"{name}, which is handed over, is changed")
        if result is None:
            return {}
        returned = result if isinstance(result, tuple) else (result,)
        if len(returned) != len(launcher.gradients):
            count = len(launcher.gradients)
            self.problems.append(f"{len(returned)} gradients are returned, not {count}")
            return {}
        return dict(zip(launcher.gradients, returned, strict=True))

    # What they should be

    def _expected(
        self,
        incoming: Mapping[str, Values],
        empty: Mapping[str, Values],
        saved: Mapping[str, torch.Tensor],
    ) -> Callable[[str], Expected]:
        reference = self.context.reference
        run = functools.partial(reference.run, self.inputs, incoming, empty)
        exact = run()
        other = run(last_at_ties=True) if exact.tied else None
        later: dict[str, Differentiated] = {}
        nest = self.context.launcher.nest
        shift = HandedOver(self.found, self.inputs, incoming, saved, self.dtype, nest)

        moved = shift.elsewhere()
        is_rounded = self.dtype != "float32" and rounds_operands(self.found.program, self.dtype)

        def once(what: str, **how: Any) -> Differentiated:
            if what not in later:
                later[what] = run(**how)
            return later[what]

        def beside(number: int) -> Differentiated:
            what = f"nearby {number}"
            if what not in later:
                near, random = neighbours(self.inputs, number), roundings_of(number)
                later[what] = reference.run(near, incoming, empty, "float32", random=random)
            return later[what]

        def expected(argument: str) -> Expected:
            def plain(backwards: bool) -> Values:
                what = "backwards" if backwards else "plain"
                values = once(what, dtype="float32", backwards=backwards).gradients[argument]
                rounded_: Values = once_rounded(values, self._type(argument))
                return rounded_

            def nearby(number: int) -> Values:
                own = self._type(argument)
                rounded_: Values = once_rounded(beside(number).gradients[argument], own)
                return rounded_

            return Expected(
                exact.gradients[argument],
                None if other is None else other.gradients[argument],
                plain,
                lambda: once("absolute", absolute=True).gradients[argument],
                exact.terms.get(argument),
                lambda asked: shift.of(argument, asked),
                nearby,
                lambda: shift.undefined(argument),
                is_rounded,
                moved.get(self.found.gradients[argument]),
            )

        return expected

    def _asked_for(self, exact: Values, found: Values) -> Values:
        return asked_for(self.found.listing, self.inputs.integers, exact, found)

    def _type(self, argument: str) -> torch.dtype:
        """Return the type that the gradient of an argument should have."""
        if argument not in self.inputs.arrays:
            return torch.float32
        return argument_type(self.found.listing, argument, self.dtype)

    def _compared(
        self,
        results: Mapping[str, torch.Tensor | None],
        incoming: Mapping[str, Values],
        empty: Mapping[str, Values],
        saved: Mapping[str, torch.Tensor],
    ) -> tuple[OutputError, ...]:
        if not results:
            return ()
        expected = self._expected(incoming, empty, saved)
        errors = []
        for argument, name in self.found.gradients.items():
            tensor, what = results.get(name), expected(argument)
            if tensor is None:
                errors.append(OutputError(name, np.inf, 0.0, problem="it is not returned"))
                continue
            if tensor.dtype != self._type(argument):
                asked = str(self._type(argument)).removeprefix("torch.")
                given = str(tensor.dtype).removeprefix("torch.")
                self.problems.append(f"{name} is in {given}, and {argument} in {asked}")
            values = to_array(tensor)
            what = replace(what, exact=self._asked_for(what.exact, values))
            errors.append(compared_gradient(name, values, what, self.dtype))
            self.expected[name] = what
            if what.other is not None or what.elsewhere is not None:
                self.context.ambiguous += errors[-1].skipped
        return tuple(errors)

    def _check_wanted(
        self,
        arguments: Mapping[str, Guarded],
        saved: Mapping[str, torch.Tensor],
        incoming: Mapping[str, torch.Tensor],
        results: Mapping[str, torch.Tensor | None],
    ) -> None:
        """Ask for each gradient alone: it is the same, and the others are None.

        The interpreter gives the same bits; a GPU other kernels, and sums in another order.
        """
        signature = inspect.signature(self.context.launcher.backward).parameters
        if "wanted" not in signature or len(results) < 2:
            return
        for name, whole in results.items():
            alone = self._backward(arguments, saved, incoming, (name,))
            mine = alone.get(name)
            if mine is None or whole is None or not self._is_same(name, mine, whole):
                self.problems.append(f"{name} is another one where it alone is wanted")
            others = [other for other, each in alone.items() if other != name and each is not None]
            if others:
                self.problems.append(f"{others[0]} is returned where {name} alone is wanted")

    def _is_same(self, name: str, mine: torch.Tensor, whole: torch.Tensor) -> bool:
        """Tell whether a gradient is the same; on a GPU, whether it is as right as the other."""
        if torch.equal(_bits(mine), _bits(whole)):
            return True
        if self.context.device == "cpu" or name not in self.expected:
            return False
        return compared_gradient(name, to_array(mine), self.expected[name], self.dtype).passed

    def _check_differences(
        self,
        results: Mapping[str, torch.Tensor | None],
        incoming: Mapping[str, Values],
        exact: Outputs,
        empty: Mapping[str, Values],
        errors: Sequence[OutputError],
    ) -> None:
        if self.dtype != "float32" or not has_differences(self.found.listing):
            return
        if any((np.isnan(exact[n]) & ~empty.get(n, np.False_)).any() for n in incoming):
            return  # a gradient came back to what has no differences
        came = {
            name: np.where(np.isfinite(exact[name]) & ~empty.get(name, np.False_), values, 0.0)
            for name, values in incoming.items()
        }
        gradients = {}
        arguments = {name: argument for argument, name in self.found.gradients.items()}
        for error in errors:
            tensor = results.get(error.name)
            if tensor is None or not error.passed or error.skipped:
                continue
            values = to_array(tensor)
            # What should be 0, and is nothing but rounding, was compared with its terms; the slopes
            # of a listing that does not move are rounding too.
            norm = float(np.linalg.norm(self.expected[error.name].exact))
            allowed = error.tolerance * norm if norm else 2 * float(np.linalg.norm(values))
            gradients[arguments[error.name]] = (error.name, values, allowed)
        said = differences(self.found.listing, self.inputs, came, gradients, self.context.seed)
        if any(
            (~np.isfinite(exact[name]) & ~empty.get(name, np.False_) & (values != 0)).any()
            for name, values in incoming.items()
        ):
            # What comes back where an output is infinite is nothing that differences know of.
            said = replace(said, unsure=said.unsure + len(said.problems), problems=())
        self.context.differed = self.context.differed.joined(said)
        self.problems += said.problems


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return what a tensor holds, bit for bit: a nan is equal to itself."""
    kept = tensor.detach().contiguous()
    types = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return kept if kept.dtype == torch.bool else kept.view(types[kept.element_size()])
