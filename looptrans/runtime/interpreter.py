"""Triton's interpreter, made to work with any NumPy, and without what it works out in vain.

What is in vain takes a third of its time. Of each sum, difference and product of integers it works
out whether it overflows, and then looks at the answer only where it debugs, which nothing can ask
of it. Before each launch it looks through all that triton.language holds for what is to be
interpreted, and that is always the same.

Triton 3.6 hands `range` the ends of loops by `int` of an array of one element, which NumPy takes
for a number up to 2.3 only.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

_PARAMETERS = ["pkg", "builder", "scope"]
_OF_TENSORS = ["tensor", "scope"]


def prepare_interpreter() -> None:
    """Let the interpreter of this process leave out what has no effect, and work with any NumPy."""
    from triton.runtime import interpreter  # only now: where it runs has been decided

    builder = interpreter.interpreter_builder
    options = builder.options
    if not options.debug and getattr(options, "sanitize_overflow", False):
        builder.options = replace(options, sanitize_overflow=False)
    patch = interpreter._patch_builtin
    if patch is not _patch_builtin and _parameters(patch) == _PARAMETERS:
        interpreter._patch_builtin = _patch_builtin
    patch = interpreter._patch_lang_tensor
    if not isinstance(patch, functools.partial) and _parameters(patch) == _OF_TENSORS:
        interpreter._patch_lang_tensor = functools.partial(_patch_tensor, patch)


def _parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def _patch_builtin(pkg: Any, builder: Any, scope: Any) -> None:
    """Do what the interpreter's function of this name does."""
    from triton.runtime import interpreter

    for name, member in _builtins(pkg):
        interpreter._patch_attr(pkg, name, member, builder, scope)


def _patch_tensor(patch: Callable[[Any, Any], None], tensor: Any, scope: Any) -> None:
    """Do what the interpreter's function of this name does, and let one element be an index."""
    patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


@functools.cache
def _builtins(pkg: Any) -> tuple[tuple[str, Any], ...]:
    from triton.language import core

    return tuple(each for each in inspect.getmembers(pkg) if core.is_builtin(each[1]))
