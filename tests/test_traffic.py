"""Launches are watched: what a GPU may do in another order than the interpreter is found.

First operations told one by one, then emitted modules with faults planted in them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import pytest

from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.listing import emitted
from looptrans.frontend import parse
from looptrans.ir.source import Source
from looptrans.runtime.running.device import prepare_device
from looptrans.runtime.verifying.traffic import Kind, Launch, Place

torch = pytest.importorskip("torch")
prepare_device("cpu")

from looptrans.runtime.running.load import load_module  # noqa: E402  # it needs torch
from looptrans.runtime.verifying.call import guarding  # noqa: E402
from looptrans.runtime.verifying.memory import guarded  # noqa: E402
from looptrans.runtime.verifying.traffic_watch import watched  # noqa: E402

Event: TypeAlias = tuple[Kind, list[int], list[int]]


def launch(*programs: list[Event | None]) -> list[str]:
    """Return what is said of programs that touch elements of S; None is a barrier."""
    told = Launch("kernel", [Place("S", 1000, 4, (2, 8), (8, 1))])
    for program in programs:
        for event in program:
            if event is None:
                told.barrier()
            else:
                kind, elements, bits = event
                where = np.array(elements) * 4 + 1000
                told.touch(kind, where, np.array(bits) if bits else None)
        told.end_program()
    told.end()
    return list(told.problems.values())


def load(*elements: int) -> Event:
    return "load", list(elements), []


def store(*elements: int, bits: int = 7) -> Event:
    """Stores equal numbers, the first one by the first thread."""
    return "store", list(elements), [bits] * len(elements)


def add(*elements: int) -> Event:
    return "add", list(elements), []


def test_programs_that_keep_to_themselves_are_right() -> None:
    assert launch([load(0, 1), load(8)], [load(1), load(0)]) == []
    assert launch([load(8, 9), store(0, 1)], [load(8, 9), store(2, 3)]) == []
    assert launch([add(0, 1)], [add(1, 2)], [add(0)]) == []
    assert launch([store(0, 0)]) == []


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        ([[store(3)], [load(2), load(3)]], "program 0 stores S[0, 3] and program 1 loads it"),
        ([[load(9)], [store(9)]], "program 0 loads S[1, 1] and program 1 stores it"),
        ([[store(1)], [store(2)], [store(1, bits=8)]], "program 0 stores S[0, 1] and program 2"),
        ([[add(1)], [load(1)]], "program 0 adds to S[0, 1] and program 1 loads it"),
        ([[store(1)], [add(1)]], "program 0 stores S[0, 1] and program 1 adds to it"),
    ],
)
def test_two_programs_meet(programs: list[list[Event | None]], said: str) -> None:
    (problem,) = launch(*programs)
    assert problem.startswith("kernel: ")
    assert said in problem


def test_two_programs_may_store_the_same() -> None:
    assert launch([store(1)], [store(1)]) == []
    assert launch([store(1, bits=3), None, store(1, bits=4)], [store(1, bits=4)]) == []


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (store(5, 6), load(6), "stores S[0, 6] and then loads it"),
        (load(5, 6), store(5), "loads S[0, 5] and then stores it"),
        (store(5, 6), store(6), "stores S[0, 6] and then stores it"),
        (add(4), load(4), "adds to S[0, 4] and then loads it"),
    ],
)
def test_threads_of_a_program_meet_at_a_barrier(first: Event, second: Event, said: str) -> None:
    (problem,) = launch([first, load(12), second])
    assert said in problem
    assert launch([first, None, load(12), second]) == []
    assert launch([None, first, load(12)], [load(13)]) == []


def test_one_thread_stores_in_the_order_of_the_program() -> None:
    assert launch([store(5, 6, bits=1), store(5, bits=2)]) == []


def test_a_store_with_two_values_at_one_place() -> None:
    (problem,) = launch([("store", [4, 5, 4], [1, 2, 3])])
    assert problem.endswith("one store puts two values into S[0, 4]: either may stay")


def test_memory_that_is_nobodys() -> None:
    (problem,) = launch([load(0, 16)])
    assert problem.endswith("it loads something outside of every tensor")


# Kernels, with faults planted in what is emitted

THROUGH_MEMORY = """
import torch
import triton
import triton.language as tl


@triton.jit
def turned(X, Y, N: tl.constexpr):
    n = tl.arange(0, N)
    tl.store(Y + n, tl.load(X + n))
    tl.store(Y + n, tl.load(Y + N - 1 - n) + 1.0)


def turn(X):
    Y = torch.empty(X.shape, dtype=X.dtype)
    turned[(2,)](X, Y, N=16)
    return Y
"""


@functools.cache
def attention() -> str:
    source = Source("attention_naive.py", Path("specs/attention_naive.py").read_text())
    return emitted_with_backward(parse(source), None, "atomics").text


def watched_run(text: str, folder: Path, step: Callable[[ModuleType], Any]) -> list[str]:
    """Return what is said of a step with a module's functions."""
    path = folder / "module.py"
    path.write_text(text)
    module = load_module(f"tests_traffic_{hash(text)}", text, path)
    with guarding(module), watched() as problems:
        step(module)
    return problems


def train(module: ModuleType) -> Any:
    """Run both passes of attention, sizes so that there are several programs."""
    random = torch.Generator().manual_seed(0)
    Q, K, V, dO = (
        guarded(shape, torch.float32, "cpu", "contiguous", torch.randn(shape, generator=random))
        for shape in ((70, 16), (40, 16), (40, 16), (70, 16))
    )
    given = Q.tensor, K.tensor, V.tensor
    out, lse = module.attention_naive_forward(*given)
    return module.attention_naive_backward(*given, lse, out, dO.tensor)


def test_what_is_emitted_leaves_nothing_to_chance(tmp_path: Path) -> None:
    assert watched_run(attention(), tmp_path, train) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tl.atomic_add(", "tl.store(", "program 0 stores dQ_ptr[0, 0] and program 1 stores it"),
        ("mask=(i[:, None] < M) & d_in", "mask=(i[:, None] <= M) & d_in", "it stores something"),
        ("mask=(j[:, None] < N) & e_in", "mask=(j[:, None] <= N) & e_in", "it loads something"),
        ("delta, mask=i < M)", "delta, mask=i < M - 1)", "loads delta_ptr[69], which nobody"),
        ("0.0, dtype=torch.float32", "0.0, dtype=torch.float16", "numbers of 2 bytes"),
    ],
)
def test_planted_faults_are_found(old: str, new: str, said: str, tmp_path: Path) -> None:
    text = attention()
    assert old in text
    text = text.replace(old, new)
    if "atomic_add" not in text:
        text = text.replace('sem="relaxed"', "")
    problems = watched_run(text, tmp_path, train)
    assert any(said in problem for problem in problems), problems


def test_values_that_go_from_thread_to_thread_through_memory_need_a_barrier(tmp_path: Path) -> None:
    def turn(module: ModuleType) -> Any:
        return module.turn(
            guarded((16,), torch.float32, "cpu", "contiguous", torch.zeros(16)).tensor
        )

    problems = watched_run(THROUGH_MEMORY, tmp_path, turn)
    assert any("stores Y[0] and then loads it, with no barrier" in each for each in problems)


IN_PLACE = """
def shifted(X: Float[Array, "M N"]):
    for i in range(M):
        m = -inf
        for j in range(N):
            m = max(m, X[i, j])
        for j in range(N):
            X[i, j] = X[i, j] - m
"""


def test_what_is_loaded_is_stored_behind_a_barrier(tmp_path: Path) -> None:
    text = emitted(parse(Source("shifted.py", IN_PLACE))).text

    def shift(module: ModuleType) -> Any:
        own = guarded((5, 40), torch.float32, "cpu", "contiguous", torch.zeros(5, 40))
        return module.shifted(own.tensor)

    assert watched_run(text, tmp_path, shift) == []
    barrier = "tl.debug_barrier()  # all threads have loaded"
    assert barrier in text
    (problem,) = watched_run(text.replace(barrier, ""), tmp_path, shift)
    assert "loads X_ptr[0, 0] and then stores it, with no barrier between" in problem
