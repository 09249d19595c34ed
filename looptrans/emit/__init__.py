"""Triton source for block programs."""

from looptrans.emit.arguments import (
    Argument,
    BlockSize,
    IndexType,
    LaneCount,
    Pointer,
    RealNumber,
    Size,
    Stride,
    is_constexpr,
)
from looptrans.emit.module import Names, module, names, parameters, signature, taken
from looptrans.emit.parameters import Parameters

__all__ = [
    "Argument",
    "BlockSize",
    "IndexType",
    "LaneCount",
    "Names",
    "Parameters",
    "Pointer",
    "RealNumber",
    "Size",
    "Stride",
    "is_constexpr",
    "module",
    "names",
    "parameters",
    "signature",
    "taken",
]
