"""Sums in torch whose terms are added in the order that the executor adds them in.

What `torch.sum` gives depends on the shape of what it is given. A listing that compares two sums
of the same terms, as one does that asks which block has the largest score, finds them equal here,
as it does where NumPy executes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from looptrans.executor.vector_operations import ordered_sum


class _InOrder(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, total: torch.Tensor, parts: torch.Tensor, axis: int, real: type[Any]
    ) -> torch.Tensor:
        context.shapes, context.axis = (total.shape, parts.shape), axis
        return torch.from_numpy(ordered_sum(total.numpy(), parts.numpy(), axis, real))

    @staticmethod
    def backward(
        context: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        total, parts = context.shapes
        # The parts may be the same for several totals.
        each = [*parts]
        each[context.axis] = 1
        return gradient.sum_to_size(total), gradient.sum_to_size(each).expand(parts), None, None


def in_order(total: torch.Tensor, parts: torch.Tensor, axis: int, real: type[Any]) -> torch.Tensor:
    """Add the parts along an axis to a total, one after the other; the axis stays, of extent 1.

    Args:
        total: What is added to: a number, or one for each result.
        parts: The parts; there is at least one.
        axis: The axis.
        real: NumPy's name of their type.
    """
    apply: Callable[..., torch.Tensor] = _InOrder.apply
    return apply(total, parts, axis, real)
