"""Exact dependences of annotated loop nests, and the kernels that follow from them.

Importing the package loads nothing else; the folders below it are imported by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from looptrans.version import __version__

__all__ = ["__version__", "compile"]

if TYPE_CHECKING:
    from looptrans.runtime.compile import Compiled, Listing


def compile(listing: Listing, *, function: str | None = None, split: bool = False) -> Compiled:
    """Return a function on torch tensors that computes what a listing does.

        softmax = looptrans.compile("specs/softmax.py")
        y = softmax(x)

    It takes the listing's arguments in their order, and returns what the listing returns. The
    listing is read, never executed; its kernels are kept in the user's cache directory
    (LOOPTRANS_CACHE_DIR). Without a GPU they run in Triton's interpreter on CPU tensors.

    It takes part in autograd: where an argument requires a gradient, the backward pass is derived
    from the listing at the first call and kept, and under `torch.compile` it is one operation.

    Args:
        listing: A path (`FILE` or `FILE::FUNCTION`), a text with at least one line break, or a
            Python function, whose source is read.
        function: Which function of the file or text, where there are several.
        split: Whether a long loop of few rows is computed in parts, each in a program of its own,
            and joined with the derived operator. The launcher then chooses how many parts there
            are, from the sizes and the device, unless it is given `parts=`. Where a gradient is
            asked for, the forward kernels are those of the backward pass, without parts.

    Returns:
        The launcher, with the attributes `source` (the text of the emitted module), `path` (the
        file it was imported from), `listing` (the text of the listing), `backward_source` (the
        text of the module with the backward pass) and `no_gradient` (why there is none).

    Raises:
        ListingError: The listing has mistakes.
        NotLowered: It cannot be run in blocks, or with `split` in parts; the message names the
            statement and the reason.
        NoDevice: Torch or triton is missing, or triton was imported before it could be told to
            interpret.
    """
    from looptrans.runtime.compile import compile_listing

    return compile_listing(listing, function=function, split=split)
