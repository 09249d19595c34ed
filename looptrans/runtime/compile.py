"""From a listing to a function on torch tensors."""

from __future__ import annotations

import functools
import inspect
import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from looptrans.ir.diagnostic import ListingError
from looptrans.ir.source import Source
from looptrans.runtime.cache import Kept, cache_key, keep, read_kept
from looptrans.runtime.device import prepare_device
from looptrans.runtime.load import load_module

Listing: TypeAlias = str | os.PathLike[str] | Callable[..., Any]


class Compiled:
    """The launcher of an emitted module: call it with the listing's arguments, on torch tensors.

    Attributes:
        source: The text of the module.
        path: The file it was imported from.
        listing: The text of the listing.
    """

    __name__: str

    def __init__(self, launcher: Callable[..., Any], source: str, path: Path, listing: str) -> None:
        functools.update_wrapper(self, launcher)  # name, docstring and signature are its own
        self._launcher = launcher
        self.source = source
        self.path = path
        self.listing = listing

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Run the kernels."""
        return self._launcher(*arguments, **options)

    def __repr__(self) -> str:
        return f"<looptrans kernel {self._launcher.__name__} from {self.path}>"


def compile_listing(listing: Listing, *, function: str | None = None) -> Compiled:
    """Return a function that runs a listing on torch tensors; see `looptrans.compile`.

    Raises:
        ListingError: The listing has mistakes.
        NotLowered: It cannot be run in blocks.
        NoDevice: Kernels cannot be run here.
    """
    try:
        source, function = _source(listing, function)
        prepare_device()
        # Only the last part of a path can show in a module: bare loops are named after it.
        key = cache_key(source.text, function, source.name.rpartition("/")[2])
        kept = read_kept(key) or _emitted(key, source, function)
    except ListingError as error:
        error.add_note(error.render())
        raise
    module = load_module(f"looptrans_emitted_{key}", kept.text, kept.path)
    return Compiled(getattr(module, kept.name), kept.text, kept.path, source.text)


def _source(listing: Listing, function: str | None) -> tuple[Source, str | None]:
    """Return the text of a listing, and the name of the function in it where there is one."""
    if isinstance(listing, str) and "\n" in listing:
        return Source("<listing>", listing), function
    if isinstance(listing, str | os.PathLike):
        source, named = _source_in_file(os.fspath(listing))
        return source, named or function
    if callable(listing):
        return _source_of_function(listing)
    raise TypeError(
        f"a listing is a path, a text or a function, and not of type {type(listing).__name__}"
    )


def _source_in_file(target: str) -> tuple[Source, str | None]:
    """Read the listing that `FILE` or `FILE::FUNCTION` names.

    The frontend, which says what is wrong with a file, takes longer to import than a kept module
    takes to load.
    """
    path, _, function = target.partition("::")
    try:
        return Source(path, Path(path).read_bytes().decode("utf-8-sig")), function or None
    except (OSError, ValueError):
        from looptrans.frontend.reader import read_source

        return read_source(target)


def _source_of_function(function: Callable[..., Any]) -> tuple[Source, str]:
    """Return the text of a Python function: its file, where helpers and constants stand too.

    A function inside another one is taken alone, at the line where it stands.
    """
    plain = inspect.unwrap(function)
    name = getattr(plain, "__qualname__", repr(function))
    try:
        path = inspect.getsourcefile(plain) or "<listing>"
        lines, first = inspect.getsourcelines(plain)
        if "<locals>" not in name:
            return Source(path, "".join(inspect.findsource(plain)[0])), name
    except (OSError, TypeError):
        raise TypeError(
            f"the source of {name} cannot be read: pass a function that is defined in a file, or "
            "the text of the listing"
        ) from None
    text = "\n" * (first - 1) + textwrap.dedent("".join(lines))
    return Source(path, text), name.rpartition(".")[2]


def _emitted(key: str, source: Source, function: str | None) -> Kept:
    from looptrans.emit.listing import emitted
    from looptrans.frontend import parse

    made = emitted(parse(source, function))
    return keep(key, made.launcher, made.text)
