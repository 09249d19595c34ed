"""Triton source for block programs.

from a listing            listing, backward, split, refusal, notes, needs
a module                  module, header, layout, identifiers, facts
a kernel                  kernel, head, expressions, first_blocks, begun, beside, both_ends,
                          precision, mentions, functions, widths, grid, together
its launcher              launcher, parameters, arguments, sizes, checks, launches, configurations,
                          python_text, runtime_text
autograd                  autograd
"""

from looptrans.emit.arguments import (
    Argument,
    BlockSize,
    IndexType,
    LaneCount,
    Pointer,
    Positive,
    RealNumber,
    Size,
    Stride,
    is_constexpr,
)
from looptrans.emit.module import Names, module, names, signature, taken

__all__ = [
    "Argument",
    "BlockSize",
    "IndexType",
    "LaneCount",
    "Names",
    "Pointer",
    "Positive",
    "RealNumber",
    "Size",
    "Stride",
    "is_constexpr",
    "module",
    "names",
    "signature",
    "taken",
]
