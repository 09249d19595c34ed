"""How much gradients move because what kernels hand over, and multiply, is rounded.

The backward listing is executed twice in float64: on what the forward listing computes in float64,
and on what the forward kernels returned, in 16 bits with operands of products rounded as matrix
instructions want them. The difference is no error of the backward kernels: where a sum of dS * K
nearly cancels, rounding dS is large beside it. It only widens a tolerance: what is right is said by
autograd alone, which has no part in this.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from looptrans.adjoint.derived import Backward
from looptrans.executor.errors import ExecutionError
from looptrans.executor.inputs import Inputs
from looptrans.ir.creation import in_16_bits
from looptrans.ir.program import Assign, Program
from looptrans.ir.value import Call, Select
from looptrans.ir.walk import nodes
from looptrans.runtime.executed.empty_rows import with_empty_rows
from looptrans.runtime.executed.reference import Outputs, Reference, known_reference_of
from looptrans.runtime.verifying.call import once_rounded
from looptrans.runtime.verifying.errors import DRAWS, ROUNDINGS, compared, too_large
from looptrans.runtime.verifying.memory import to_array
from looptrans.runtime.verifying.nearby import run_nearby
from looptrans.runtime.verifying.rounded import run_rounded, with_rounded_operands

Values = np.ndarray[Any, Any]


@dataclass(slots=True)
class HandedOver:
    """What moves at one set of inputs; nothing is executed before it is asked for.

    Attributes:
        found: The backward pass.
        inputs: What the listing starts from.
        incoming: Gradients of outputs.
        saved: What the forward kernels returned.
        dtype: The type of the floating-point inputs.
        nest: What the forward kernels compute, where that is known.
    """

    found: Backward
    inputs: Inputs
    incoming: Mapping[str, Values]
    saved: Mapping[str, torch.Tensor]
    dtype: str
    nest: Program | None = None
    _runs: tuple[Outputs, ...] | None = None
    _wrong: Outputs | None = None

    def of(self, argument: str, asked: Values) -> float:
        """Return how far the gradient of an argument moves, in the Frobenius norm.

        Args:
            argument: The argument.
            asked: Which elements of its gradient count.
        """
        self._runs = self._work_out() if self._runs is None else self._runs
        name = self.found.gradients[argument]
        if any(name not in run for run in self._runs):
            return 0.0
        one, saved, *others = (run[name][asked] for run in self._runs)
        if self.dtype == "float32":
            return max(_distance(one, each) for each in (saved, *others))
        # Kernels may round an operand before or after a factor: what they round moves as far from
        # what is rounded here as that does from what is not.
        return max(_distance(one, each) + 2 * _distance(saved, each) for each in others)

    def undefined(self, argument: str) -> Values:
        """Return which elements are no numbers because of what is saved in the listing itself.

        They are nan where that is nan, and perhaps infinite where it is too large for its type, or
        an operand of a product is that in 16 bits. Where outputs have no elements they are nan with
        what the listing never asks for, such as 0 / sqrt(E) for rows of no length.
        """
        if self._wrong is None:
            self._wrong = self._no_numbers()
        nothing = np.asarray(False)
        return self._wrong.get(self.found.gradients[argument], nothing)

    def _no_numbers(self) -> Outputs:
        """Return for each gradient what `undefined` says of its elements; nothing if unknown."""
        try:
            exact = self._exact(known_reference_of(self.found.forward))
            saved = {each.name: exact[each.name] for each in self.found.saved}
            kept = {key: self._as_kept(key, values) for key, values in saved.items()}
            if self.dtype != "float32":
                program = with_rounded_operands(self.found.program, self.dtype)
                return {n: _is_no_number(v) for n, v in self._gradients(program, kept).items()}
            overflows = any(kept[key] is not values for key, values in saved.items())
            asked = any(values.size for values in self.incoming.values())
            undefined = any(np.isnan(values).any() for values in saved.values())
            if asked and not overflows and not undefined:
                return {}
            wrong = _is_no_number if overflows else np.isnan
            return {n: wrong(v) for n, v in self._gradients(self.found.program, kept).items()}
        except ExecutionError:
            return {}

    def elsewhere(self) -> Outputs:
        """Return the gradients where kernels found extrema attained elsewhere than float64 does.

        Of values that differ by less than a rounding either may be the largest. Nothing is returned
        where all places are the same, and where what is offered there is not the extremum.
        """
        places = self._places()
        try:
            exact = self._exact(known_reference_of(self.found.forward)) if places else {}
            if all(np.array_equal(values, exact[name]) for name, values in places.items()):
                return {}
            if not self._attain(places, exact):
                return {}
            saved = {each.name: exact[each.name] for each in self.found.saved}
            return self._gradients(self.found.program, saved | places)
        except ExecutionError:
            return {}

    def _places(self) -> dict[str, Values]:
        """Return the integers that are handed over: where extrema are attained."""
        names = [each.name for each in self.found.saved if not each.is_output]
        found = {name: to_array(self.saved[name]) for name in names}
        return {name: values for name, values in found.items() if values.dtype.kind == "i"}

    def _attain(self, places: Mapping[str, Values], exact: Outputs) -> bool:
        """Tell whether the listing with what is offered at some places gives the same outputs."""
        if all(np.array_equal(values, exact[name]) for name, values in places.items()):
            return True
        seen, reference = self.found.seen, known_reference_of(self.found.forward)
        arrays = {**self.inputs.arrays, **places}
        taken = [a.name for a in seen.arrays if a.role == "input"] if seen is not None else []
        if seen is None or not set(taken) <= set(arrays):
            return False  # its recurrences were opened: it cannot be run
        outputs = known_reference_of(seen).run(replace(self.inputs, arrays=arrays))

        def plain(name: str, backwards: bool) -> Values:
            return reference.run(self.inputs, "float32", backwards=backwards)[name]

        def nearby(name: str, draw: int) -> Values:
            return run_nearby(reference, self.inputs, draw)[name]

        return all(
            compared(
                name,
                outputs[name],
                exact[name],
                functools.partial(plain, name),
                "float32",
                always_plain=False,
                nearby=functools.partial(nearby, name),
            ).passed
            for name in self.found.of
        )

    def _as_kept(self, name: str, values: Values) -> Values:
        """Return a saved array, with infinities where a number is too large for its type."""
        if values.dtype.kind != "f":
            return values
        large = too_large(values, str(self.saved[name].dtype).removeprefix("torch."))
        return np.where(large, np.copysign(np.inf, values), values) if large.any() else values

    def _exact(self, reference: Reference) -> Outputs:
        """Return what the forward listing gives in float64."""
        exact, _ = with_empty_rows(reference, self.inputs, reference.run(self.inputs))
        return exact

    def _work_out(self) -> tuple[Outputs, ...]:
        """Return the gradients: of exact values, of saved ones, and with rounded operands besides.

        Operands are rounded as they are and where they are a little larger, since how far off one
        of them is is luck. In float32 it is values that are each off by a rounding instead: one
        that the kernels have saved may by luck be off by much less, and what is worked out beside
        it not. There are none where those cannot be told.
        """
        nothing: tuple[Outputs, Outputs] = {}, {}
        try:
            reference = replace(known_reference_of(self.found.forward), nest=self.nest)
            exact = self._exact(reference)
            given = {s.name: to_array(self.saved[s.name]) for s in self.found.saved}
            if not self._are_right(reference, exact):
                return nothing
            program = self.found.program
            kept = {s.name: exact[s.name] for s in self.found.saved} | self._places()
            one = self._gradients(program, kept)
            saved = self._gradients(program, given)
            if self.dtype != "float32":
                scales = (1.0 + number / ROUNDINGS for number in range(DRAWS))
                # Kernels that give a number have rounded nothing to an infinity.
                rounded = (
                    with_rounded_operands(program, self.dtype, each, overflows=False)
                    for each in scales
                )
                return one, saved, *(self._gradients(each, given) for each in rounded)
            near = [self._gradients(program, _off_by_a_rounding(kept, n)) for n in range(DRAWS)]
        except ExecutionError:
            return nothing
        return one, saved, *near

    def _are_right(self, reference: Reference, exact: Outputs) -> bool:
        """Tell whether the forward kernels are off by rounding alone: what is wrong moves nothing.

        In 16 bits that of operands is in what they give in float32. Outputs among what is saved are
        compared, and reported, anyway.
        """
        places = self._places()
        names = [each.name for each in self.found.saved if not each.is_output]
        others = [name for name in names if name not in places]
        if places and not self._attain(places, exact):
            return False
        if not others:
            return True

        def plain(name: str, backwards: bool) -> Values:
            result = reference.run(self.inputs, "float32", backwards=backwards)[name]
            kept: Values = once_rounded(result, self.saved[name].dtype)
            return kept

        logarithms = _logarithms(reference.program)

        def number(name: str, values: Values) -> Values:
            # A logarithm is off by what the number is off by, however near to 1 that is.
            return np.asarray(np.exp(values, dtype=np.float64)) if name in logarithms else values

        def plain_number(name: str, backwards: bool) -> Values:
            return number(name, plain(name, backwards))

        def nearby(name: str, draw: int) -> Values:
            result = run_nearby(reference, self.inputs, draw)[name]
            return number(name, once_rounded(result, self.saved[name].dtype))

        def rounded(name: str, draw: int) -> Values:
            result = run_rounded(reference, self.inputs, self.dtype, draw)[name]
            return number(name, once_rounded(result, self.saved[name].dtype))

        is_stored = bool(in_16_bits(reference.program))
        return all(
            compared(
                name,
                number(name, to_array(self.saved[name])),
                number(name, exact[name]),
                functools.partial(plain_number, name),
                self.dtype,
                always_plain=False,
                nearby=functools.partial(nearby, name),
                rounded=functools.partial(rounded, name) if is_stored else None,
            ).passed
            for name in others
        )

    def _gradients(self, program: Program, saved: Mapping[str, Values]) -> Outputs:
        given = {self.found.incoming[name]: values for name, values in self.incoming.items()}
        arrays = {**self.inputs.arrays, **saved, **given}
        names = [array.name for array in program.arrays if array.role == "input"]
        inputs = replace(self.inputs, arrays={name: arrays[name] for name in names})
        return known_reference_of(program).run(inputs)


def _is_no_number(values: Values) -> Values:
    return ~np.isfinite(values)


def _logarithms(program: Program) -> frozenset[str]:
    """Return what is set to logarithms, perhaps where there is a number only."""
    found = set()
    for node in nodes(program.body):
        match node:
            case Assign(_, (target,), (Select(_, Call("log" | "log2"), _) | Call("log" | "log2"),)):
                found.add(target.array)
            case _:
                pass
    return frozenset(found)


def _off_by_a_rounding(saved: Mapping[str, Values], number: int) -> dict[str, Values]:
    """Return numbers half the distance of two neighbours in float32 above or below the given."""
    random = np.random.default_rng([number, 3])

    def moved(values: Values) -> Values:
        half = np.spacing(np.abs(values).astype(np.float32)).astype(np.float64) / 2
        signs = random.choice([-1.0, 1.0], values.shape)
        return np.where(np.isfinite(half), values + signs * half, values)

    return {n: moved(v) if v.dtype.kind == "f" else v for n, v in saved.items()}


def _distance(one: Values, other: Values) -> float:
    moved = (one - other)[np.isfinite(one) & np.isfinite(other)]
    return float(np.linalg.norm(moved))
