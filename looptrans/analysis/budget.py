"""A limit on time and memory for work that may take more of either than anyone wants to wait for.

isl cannot be interrupted, and its own operation counter does not follow the clock, so the work
runs in a forked process that is ended when its time is up.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
DEFAULT_SECONDS = 30.0
MEMORY_BYTES = 4 << 30
PATIENCE = 8
"""How many times its seconds a child may take that has to wait for others."""

_CHUNK = 1 << 16


@dataclass(slots=True)
class _Purse:
    """What several works share: the seconds they were given, and those that are left."""

    given: float
    left: float


_PURSE: ContextVar[_Purse | None] = ContextVar("purse", default=None)


class BudgetExceeded(Exception):
    """The work did not end within its budget; the message says which part of it ran out."""


def ran_out(seconds: float) -> BudgetExceeded:
    """Return what says that work took longer than its budget."""
    return BudgetExceeded(f"the budget of {seconds:g} s ran out")


@contextlib.contextmanager
def sharing(seconds: float | None) -> Iterator[None]:
    """Let all work that is begun inside take no longer than this together; None is no limit."""
    token = _PURSE.set(None if seconds is None else _Purse(seconds, seconds))
    try:
        yield
    finally:
        _PURSE.reset(token)


def seconds_left(seconds: float = DEFAULT_SECONDS) -> float:
    """Return how long work may take that is begun now, with what is left of what it shares."""
    purse = _PURSE.get()
    return seconds if purse is None else min(seconds, purse.left)


def in_this_process(work: Callable[[], T]) -> T:
    """Run `work` without a limit, and raise what one in a process of its own would."""
    try:
        return work()
    except Exception as error:
        reported = _reported(error)
        if reported is error:
            raise
        raise reported from error


def within_budget(work: Callable[[], T], seconds: float = DEFAULT_SECONDS) -> T:
    """Run `work` in a process of its own and return its result, which must be picklable.

    Args:
        work: What to do.
        seconds: How long it may work, or what is left of the seconds it shares, if that is less.

    Raises:
        BudgetExceeded: It took longer, or more memory than 4 GiB.
    """
    if not hasattr(os, "fork"):
        return in_this_process(work)
    purse, told = _PURSE.get(), seconds
    if purse is not None and purse.left < seconds:
        seconds, told = purse.left, purse.given
        if seconds <= 0:
            raise ran_out(told)
    begun = time.monotonic()
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work_in_child(work, writing)
    os.close(writing)
    try:
        data = _receive(reading, child, seconds)
        if data is None:
            raise ran_out(told)
    finally:
        if purse is not None:
            purse.left -= min(_worked(child), time.monotonic() - begun)
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if not data:
        raise BudgetExceeded(f"the analysis needed more than {MEMORY_BYTES >> 30} GiB of memory")
    # The bytes come from the child that this very process forked.
    failed, result = pickle.loads(data)
    if failed:
        raise result
    return result  # type: ignore[no-any-return]  # whatever work() returned


def _work_in_child(work: Callable[[], T], writing: int) -> None:
    """Do the work, send the result, and leave without running anyone's clean-up."""
    try:
        _limit_memory()
        # What the parent holds is none of the child's garbage: to look at it would copy its pages.
        gc.freeze()
        try:
            result: tuple[bool, object] = (False, work())
        except MemoryError:
            os._exit(1)
        except Exception as error:  # the parent raises it
            result = (True, _reported(error))
        data = pickle.dumps(result)
        while data:
            data = data[os.write(writing, data) :]
    finally:
        os._exit(0)


def _reported(error: Exception) -> Exception:
    """Return what the parent is to raise: isl giving up is a budget that ran out."""
    if type(error).__module__.startswith("islpy"):
        return BudgetExceeded(f"isl gave up: {str(error).partition(' in /')[0]}")
    return error


def _limit_memory() -> None:
    try:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, hard))
    except (ImportError, ValueError, OSError):
        # A system without such limits has only the time limit.
        pass


def _receive(reading: int, child: int, seconds: float) -> bytes | None:
    """Return what the child sends, or None when its time is up.

    On a busy machine a child waits more than it works, and an answer must not depend on that: what
    counts is the time it has had, as long as it gets some.
    """
    parts: list[bytes] = []
    begun = time.monotonic()
    deadline = begun + seconds
    while True:
        now = time.monotonic()
        if now >= deadline:
            left = seconds - _worked(child)
            if left <= 0 or now >= begun + PATIENCE * seconds:
                return None
            deadline = now + left
        ready, _, _ = select.select([reading], [], [], deadline - now)
        if not ready:
            continue
        part = os.read(reading, _CHUNK)
        if not part:
            return b"".join(parts)
        parts.append(part)


def _worked(child: int) -> float:
    """Return the seconds a process has worked; infinite where the system does not tell."""
    try:
        with open(f"/proc/{child}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return math.inf
