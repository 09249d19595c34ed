"""Launches in Triton's interpreter, watched: loads, stores and atomic updates are written down."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from looptrans.runtime.verifying.memory import SENTINEL
from looptrans.runtime.verifying.traffic import Launch, Numbers, Place


@contextmanager
def watched() -> Iterator[list[str]]:
    """Watch the launches of the interpreter for a while.

    Yields:
        What is left to chance in them, in words; filled as they end.
    """
    from triton.runtime import interpreter  # only now: where it runs has been decided

    problems: list[str] = []
    watch = _Watch(problems)
    builder, executor = interpreter.interpreter_builder, interpreter.GridExecutor
    names = ("create_masked_load", "create_masked_store", "create_atomic_rmw", "create_atomic_cas")
    own = {name: getattr(builder, name) for name in (*names, "create_barrier", "set_grid_idx")}
    before = {name: method for name, method in own.items() if name in vars(builder)}
    call = executor.__call__
    for name, method in own.items():
        setattr(builder, name, functools.partial(getattr(watch, name), method))
    executor.__call__ = lambda self, *args, **kwargs: watch.launch(call, self, args, kwargs)
    try:
        yield problems
    finally:
        executor.__call__ = call
        for name in own:
            delattr(builder, name)
        for name, method in before.items():
            setattr(builder, name, method)


class _Watch:
    """Stands between kernels and the interpreter's operations."""

    def __init__(self, problems: list[str]) -> None:
        self._problems = problems
        self._now = Launch("", ())
        self._is_first = True

    def launch(self, call: Callable[..., Any], executor: Any, args: Any, kwargs: Any) -> Any:
        handed = {**dict(zip(executor.arg_names, args, strict=False)), **kwargs}
        places = [
            Place(name, each.data_ptr(), each.element_size(), tuple(each.shape), each.stride())
            for name, each in handed.items()
            if isinstance(each, torch.Tensor)
        ]
        self._now, self._is_first = Launch(executor.fn.__name__, places), True
        result = call(executor, *args, **kwargs)
        self._now.end()
        self._problems += [
            text for text in self._now.problems.values() if text not in self._problems
        ]
        return result

    def set_grid_idx(self, method: Callable[..., Any], *index: int) -> None:
        if not self._is_first:
            self._now.end_program()
        self._is_first = False
        method(*index)

    def create_barrier(self, method: Callable[..., Any]) -> None:
        self._now.barrier()
        method()

    def create_masked_load(
        self, method: Callable[..., Any], pointers: Any, mask: Any, *rest: Any, **more: Any
    ) -> Any:
        result = method(pointers, mask, *rest, **more)
        where, found = _chosen(pointers.data, mask.data, result.data)
        self._now.touch("load", where)
        if found.itemsize > 1:
            self._now.unwritten(where[_bits(found) == SENTINEL[found.itemsize]])
        return result

    def create_masked_store(
        self, method: Callable[..., Any], pointers: Any, value: Any, mask: Any, *rest: Any
    ) -> Any:
        where, stored = _chosen(pointers.data, mask.data, value.data)
        lanes = np.arange(pointers.data.size).reshape(pointers.data.shape)
        lanes = lanes + (hash(pointers.data.shape) % 2**20 << 32)
        self._now.touch("store", where, _bits(stored), _chosen(pointers.data, mask.data, lanes)[1])
        return method(pointers, value, mask, *rest)

    def create_atomic_rmw(
        self,
        method: Callable[..., Any],
        operation: Any,
        pointers: Any,
        value: Any,
        mask: Any,
        *rest: Any,
    ) -> Any:
        self._now.touch("add", _chosen(pointers.data, mask.data, value.data)[0])
        self._now.narrow(value.data.itemsize)
        return method(operation, pointers, value, mask, *rest)

    def create_atomic_cas(self, method: Callable[..., Any], pointers: Any, *rest: Any) -> Any:
        self._now.touch("add", pointers.data.ravel())
        return method(pointers, *rest)


def _chosen(pointers: Numbers, mask: Numbers, values: Numbers) -> tuple[Numbers, Numbers]:
    """Return the addresses that are not masked, and the values there."""
    where = np.broadcast_to(np.asarray(mask, dtype=bool), pointers.shape)
    return pointers[where], np.broadcast_to(values, pointers.shape)[where]


def _bits(values: Numbers) -> Numbers:
    whole = np.ascontiguousarray(values)
    if whole.dtype == np.bool_:
        return whole.astype(np.int64)
    return whole.view({1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}[whole.itemsize])
