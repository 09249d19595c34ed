"""Triton's interpreter, made to work with any NumPy, and without what it works out in vain.

What is in vain takes a third of its time, and more where kernels call functions. Of each sum,
difference and product of integers it works out whether it overflows, and then looks at the answer
only where it debugs, which nothing can ask of it. Before each launch it looks through all that
triton.language holds for what is to be interpreted, and that is always the same. At each call of a
function in a kernel, `tl.sum` among them, it puts all of that in place once more.

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
    patch = interpreter._patch_lang
    if not isinstance(patch, _PatchOnce) and _parameters(patch) == ["fn"]:
        interpreter._patch_lang = _PatchOnce(patch)
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


class _PatchOnce:
    """Does what the interpreter's function `_patch_lang` does, to each module once in a launch.

    The interpreter calls it before a launch, and undoes it afterwards; and at each call of a
    function inside, where it undoes nothing. Here all is undone when the launch has ended.
    """

    def __init__(self, patch: Callable[[Any], Any]) -> None:
        self._patch = patch
        self._modules: dict[Any, frozenset[str]] = {}
        self._done: set[str] = set()
        self._scopes: list[Any] = []

    def __call__(self, fn: Any) -> _PatchOnce | None:
        if fn not in self._modules:
            modules = (each.__name__ for each in fn.__globals__.values() if inspect.ismodule(each))
            self._modules[fn] = frozenset(modules) & _LANGUAGE
        missing = self._modules[fn] - self._done
        is_launch = not self._scopes
        if missing or is_launch:
            self._scopes.append(self._patch(fn))
            self._done |= missing
        return self if is_launch else None

    def restore(self) -> None:
        """Undo what was done in the launch that has ended."""
        while self._scopes:
            self._scopes.pop().restore()
        self._done.clear()


_LANGUAGE = frozenset({"triton.language", "triton.language.core"})


def _patch_tensor(patch: Callable[[Any, Any], None], tensor: Any, scope: Any) -> None:
    """Do what the interpreter's function of this name does, and let one element be an index."""
    patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


@functools.cache
def _builtins(pkg: Any) -> tuple[tuple[str, Any], ...]:
    from triton.language import core

    return tuple(each for each in inspect.getmembers(pkg) if core.is_builtin(each[1]))
