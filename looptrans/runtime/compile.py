"""From a listing to a function on torch tensors."""

from __future__ import annotations

import functools
import inspect
import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from looptrans.ir.diagnostic import ListingError
from looptrans.ir.source import Source
from looptrans.runtime.running.cache import Kept, cache_key, keep, read_kept
from looptrans.runtime.running.device import prepare_device
from looptrans.runtime.running.load import load_module

if TYPE_CHECKING:
    from looptrans.runtime.gradients import Derived, NoGradient

Listing: TypeAlias = str | os.PathLike[str] | Callable[..., Any]


class Compiled:
    """The launcher of an emitted module: call it with the listing's arguments, on torch tensors.

    Where an argument requires a gradient, so do the outputs that have one. The backward pass is
    derived at the first such call, under `torch.compile` at the first of any, and kept like the
    module; a listing that has none says why when a gradient is asked for.

    Attributes:
        source: The text of the module.
        path: The file it was imported from.
        listing: The text of the listing.
    """

    __name__: str

    def __init__(
        self,
        launcher: Callable[..., Any],
        source: str,
        path: Path,
        listing: str,
        derived: Callable[[], Derived],
        made_from: tuple[Source, str | None, bool],
    ) -> None:
        from looptrans.runtime.gradients import with_gradients

        functools.update_wrapper(self, launcher)  # name, docstring and signature are its own
        self._launcher = launcher
        self._derived = functools.cache(derived)
        self._function = with_gradients(launcher, self._derived, _own_options(launcher))
        self.source = source
        self.path = path
        self.listing = listing
        self._made_from = made_from

    def __reduce__(self) -> tuple[Callable[..., Compiled], tuple[Source, str | None, bool]]:
        """Pickle the listing, from which another process makes the kernels again."""
        return _compiled, self._made_from

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Run the kernels."""
        return self._function(*arguments, **options)

    @property
    def backward_source(self) -> str | None:
        """The text of the module with the backward pass, derived if need be; None without one."""
        return getattr(self._derived(), "source", None)

    @property
    def no_gradient(self) -> str | None:
        """Why there is no backward pass, once that was tried; None where there is one."""
        return getattr(self._derived(), "reason", None)

    def __repr__(self) -> str:
        return f"<looptrans kernel {self._launcher.__name__} from {self.path}>"


def _own_options(launcher: Callable[..., Any]) -> tuple[str, ...]:
    """Return the options that are about these kernels alone: into how many parts a loop is cut."""
    options = inspect.signature(launcher).parameters.values()
    none = [o.name for o in options if o.kind is o.KEYWORD_ONLY and o.default is None]
    return tuple(name for name in none if name != "out")


def compile_listing(
    listing: Listing, *, function: str | None = None, split: bool = False
) -> Compiled:
    """Return a function that runs a listing on torch tensors; see `looptrans.compile`.

    Raises:
        ListingError: The listing has mistakes.
        NotLowered: It cannot be run in blocks.
        NoDevice: Kernels cannot be run here.
    """
    try:
        source, function = _source(listing, function)
        return _compiled(source, function, split)
    except ListingError as error:
        error.add_note(error.render())
        raise


def _compiled(source: Source, function: str | None, split: bool) -> Compiled:
    """Return the function of a listing, from what was kept of it where there is something."""
    prepare_device()
    # Only the last part of a path can show in a module: bare loops are named after it.
    base = cache_key(source.text, function, source.name.rpartition("/")[2])
    key = f"{base}_split" if split else base
    kept = read_kept(key) or _emitted(key, source, function, split)
    module = load_module(f"looptrans_emitted_{key}", kept.text, kept.path)
    derived = functools.partial(_derived, base, source, function)
    made_from = source, function, split
    launcher = getattr(module, kept.name)
    return Compiled(launcher, kept.text, kept.path, source.text, derived, made_from)


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


def _emitted(key: str, source: Source, function: str | None, split: bool) -> Kept:
    from looptrans.emit.listing import emitted
    from looptrans.emit.split import emitted_split
    from looptrans.frontend import parse

    program = parse(source, function)
    made = emitted_split(program) if split else emitted(program)
    return keep(key, made.launcher, made.text)


def _derived(key: str, source: Source, function: str | None) -> Derived:
    """Return the backward pass of a listing, or why there is none."""
    from looptrans.runtime.gradients import Differentiable, NoGradient

    key = f"{key}_backward"
    kept = read_kept(key)
    if kept is None:
        answer = _emitted_backward(key, source, function)
        if isinstance(answer, NoGradient):
            return answer
        kept = answer
    module = load_module(f"looptrans_emitted_{key}", kept.text, kept.path)
    return Differentiable(getattr(module, kept.name), kept.text)


def _emitted_backward(key: str, source: Source, function: str | None) -> Kept | NoGradient:
    from looptrans.adjoint.backward import backward
    from looptrans.adjoint.refusal import NotDifferentiated
    from looptrans.blocks.block_ir.program import NotLowered
    from looptrans.emit.backward import emitted_backward
    from looptrans.frontend import parse
    from looptrans.ir.walk import live_out
    from looptrans.runtime.gradients import NoGradient
    from looptrans.transforms.steps.advice import say_that_rows_are_apart

    program = parse(source, function)
    try:
        made = emitted_backward(backward(program))
    except NotDifferentiated as refusal:
        parts = [str(refusal), refusal.remedy or say_that_rows_are_apart(program)]
    except NotLowered as refusal:
        reason = f"its backward pass cannot be run in blocks, since {refusal.reason}"
        parts = [reason, say_that_rows_are_apart(program)]
    else:
        return keep(key, made.launcher, made.text)
    return NoGradient("; ".join(part for part in parts if part), tuple(live_out(program)))
