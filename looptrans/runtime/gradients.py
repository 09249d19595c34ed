"""A launcher that takes part in torch's autograd, its backward pass derived when first needed.

Deriving a backward pass takes seconds, and who asks for no gradient does not wait for it. Where a
listing has none, its outputs are there all the same, and asking them for a gradient says why.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

Function: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Differentiable:
    """A backward pass that was derived.

    Attributes:
        function: The differentiable function.
        source: The text of its module.
    """

    function: Function
    source: str


@dataclass(frozen=True, slots=True)
class NoGradient:
    """Why there is none.

    Attributes:
        reason: A sentence without a full stop.
        written: The arguments that are changed in place.
    """

    reason: str
    written: tuple[str, ...] = ()


Derived: TypeAlias = Differentiable | NoGradient


_constant: Callable[[Function], Function] = torch.compiler.assume_constant_result


class _Held:
    """What a backward pass is called by, once it is derived."""

    function: Function | None = None


def with_gradients(
    launcher: Function, derived: Callable[[], Derived], own: tuple[str, ...] = ()
) -> Function:
    """Return a launcher that returns outputs with gradients where an argument requires one.

    Args:
        launcher: The launcher of the listing.
        derived: Returns its backward pass, or why there is none; called when first needed.
        own: Options that the launcher has and the differentiable function has not.
    """
    held = _Held()
    left_out = ("out", *own)

    # `torch.compile` does not look into this: it has it called, and takes the answer for granted.
    @_constant
    def derive() -> bool:
        if held.function is None:
            answer = derived()
            if isinstance(answer, Differentiable):
                held.function = answer.function
            else:
                held.function = _refusing(launcher, answer)
        return True

    def found() -> Function:
        derive()
        assert held.function is not None
        return held.function

    def run(*arguments: Any, **options: Any) -> Any:
        has_out = options.get("out") is not None
        if requires_gradient((*arguments, *options.values())):
            if has_out:
                raise RuntimeError(
                    "what is written to out has no gradient: leave out= away, or call under "
                    "torch.no_grad()"
                )
            options = {name: value for name, value in options.items() if name not in left_out}
            return found()(*arguments, **options)
        if torch.compiler.is_compiling() and not has_out:
            options = {name: value for name, value in options.items() if name not in left_out}
            return found()(*arguments, **options)
        return launcher(*arguments, **options)

    return run


def requires_gradient(values: Iterable[Any]) -> bool:
    """Tell whether autograd would record what is done with some of the values."""
    return torch.is_grad_enabled() and any(
        isinstance(value, torch.Tensor) and value.requires_grad for value in values
    )


class _Refused(torch.autograd.Function):
    """An output that has no gradient, though it hangs on arguments that ask for one."""

    @staticmethod
    def forward(ctx: Any, reason: str, output: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        ctx.reason = reason
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(ctx.reason)


_refuse: Function = _Refused.apply


def _refusing(launcher: Function, answer: NoGradient) -> Function:
    """Return a launcher whose outputs say why they have no gradient when they are asked for it."""
    reason = (
        f"{launcher.__name__} has no gradient: {answer.reason}; detach its arguments, or call it "
        "under torch.no_grad()"
    )

    def run(*arguments: Any, **options: Any) -> Any:
        values = (*arguments, *options.values())
        if not requires_gradient(values):
            return launcher(*arguments, **options)
        given = inspect.signature(launcher).bind(*arguments, **options).arguments
        for name in answer.written:
            if requires_gradient([given.get(name)]):
                raise RuntimeError(f"{name} is changed in place and requires a gradient; {reason}")
        inputs = [v for v in values if isinstance(v, torch.Tensor) and v.requires_grad]
        with torch.no_grad():
            outputs = launcher(*arguments, **options)
        if isinstance(outputs, tuple):
            return tuple(_marked(output, reason, values, inputs) for output in outputs)
        return _marked(outputs, reason, values, inputs)

    return run


def _marked(output: Any, reason: str, values: tuple[Any, ...], inputs: list[torch.Tensor]) -> Any:
    is_new = not any(output is value for value in values)
    if isinstance(output, torch.Tensor) and output.is_floating_point() and is_new:
        return _refuse(reason, output, *inputs)
    return output
