"""Triton's interpreter without what it works out in vain, a third of the time it takes.

Of each sum, difference and product of integers it works out whether it overflows, and then looks
at the answer only where it debugs, which nothing can ask of it. Before each launch it looks through
all that triton.language holds for what is to be interpreted, and that is always the same.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import replace
from typing import Any

_PARAMETERS = ["pkg", "builder", "scope"]


def without_vain_work() -> None:
    """Let the interpreter of this process leave out what has no effect."""
    from triton.runtime import interpreter  # only now: where it runs has been decided

    builder = interpreter.interpreter_builder
    options = builder.options
    if not options.debug and getattr(options, "sanitize_overflow", False):
        builder.options = replace(options, sanitize_overflow=False)
    patch = interpreter._patch_builtin
    if patch is not _patch_builtin and list(inspect.signature(patch).parameters) == _PARAMETERS:
        interpreter._patch_builtin = _patch_builtin


def _patch_builtin(pkg: Any, builder: Any, scope: Any) -> None:
    """Do what the interpreter's function of this name does."""
    from triton.runtime import interpreter

    for name, member in _builtins(pkg):
        interpreter._patch_attr(pkg, name, member, builder, scope)


@functools.cache
def _builtins(pkg: Any) -> tuple[tuple[str, Any], ...]:
    from triton.language import core

    return tuple(each for each in inspect.getmembers(pkg) if core.is_builtin(each[1]))
