"""Masks that leave several ranges of a loop, and masks written in other ways than as a guard.

A block is visited where a pair of it is in the mask, once; it has no mask of its own where all are.
Which pairs are in a mask is asked of the text of the mask, evaluated here. Numbers are compared
with NumPy's, in blocks so small that every kind of run occurs.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from looptrans.blocks import lower as lowering
from looptrans.blocks.block_ir.ops import TileLoop
from looptrans.blocks.block_ir.program import Choice, Config, Kernel
from looptrans.blocks.fitting.configs import choices
from looptrans.emit.backward import EmittedBackward, emitted_with_backward
from looptrans.emit.listing import lowered
from tests.analysis import program
from tests.visits import visits

HEAD = 'def f(X: Float[Array, "M N"], z: Float[Array, "N"], S: int, W: int):\n    y = zeros(M)\n'
GUARD = """\
    for i in range(M):
        for j in range(N):
            if {mask}:
                y[i] = y[i] + X[i, j] * z[j]
    return y
"""
SIZES = [{"M": m, "N": n, "S": 4, "W": 3} for m, n in ((13, 13), (7, 19), (19, 7))]
BLOCKS = [(1, 1), (4, 3), (3, 8)]


@cache
def made(text: str) -> EmittedBackward:
    return emitted_with_backward(program(HEAD + text))


def kernels(text: str) -> list[Kernel]:
    """Return the kernels for y, whose programs have rows i, and for dz, with rows j."""
    both = made(text)
    every = (*both.forward.kernels, *both.backward.kernels)
    written = [{a.name for a in kernel.arrays if a.access != "in"} for kernel in every]
    found = [k for k, names in zip(every, written, strict=True) if names & {"y", "dz"}]
    assert len(found) == 2
    return found


def pairs(mask: str, sizes: dict[str, int]) -> set[tuple[int, int]]:
    holds = compile(mask, "mask", "eval")
    every = product(range(sizes["M"]), range(sizes["N"]))
    return {(i, j) for i, j in every if eval(holds, {**sizes, "i": i, "j": j})}


def assert_visited(kernel: Kernel, mask: str) -> None:
    """Every block with a pair is visited once, no other is, and full ones have no mask."""
    (own,) = (dim.name for dim in kernel.grid if dim.role == "rows")
    for sizes, (rows, width) in product(SIZES, BLOCKS):
        asked = pairs(mask, sizes)
        asked = asked if own == "i" else {(j, i) for i, j in asked}
        blocks = {d.block or "": rows if d.role == "rows" else width for d in kernel.dims}
        met = 0
        for visit in visits(kernel, sizes, blocks):
            seen: set[int] = set()
            for block in visit.blocks:
                others = range(block.first, block.first + width)
                assert seen.isdisjoint(others), f"{block} is visited twice"
                seen |= set(others)
                within = [pair in asked for pair in product(visit.places[own], others)]
                assert any(within), f"{block} has no pair: {kernel.name} {sizes} {visit.places}"
                full = block.kind == "full"
                assert full == all(within), f"{block}: {kernel.name} {sizes} {visit.places}"
                met += sum(within)
        assert met == len(asked), "pairs are left out"


@pytest.mark.parametrize(
    ("mask", "loops"),
    [
        ("(j < S or i - W < j) and j <= i", (5, 3)),
        ("j < S and j <= i or i - W < j <= i", (5, 6)),
        ("j < S or i - j < W", (5, 2)),
        ("(j < S or i - j <= W) and (j <= i or j < S)", (5, 3)),
        ("abs(i - j) >= W", (5, 5)),
        ("j != i", (5, 5)),
        ("i // S == j // S", (3, 3)),
        ("not (i - W < j and j < i + 2)", (5, 5)),
        ("abs(i - j) <= W or j < S or j >= S + 5", (8, 3)),
        ("abs(i - j) < W or i >= S", (3, 6)),
        ("j != i and j != i + 5", (8, 8)),
        ("j <= i and i < S + 2", (2, 3)),
        ("2 * j <= i and j >= S - 3", (2, 3)),
    ],
)
def test_blocks_of_a_mask(mask: str, loops: tuple[int, int]) -> None:
    found = kernels(GUARD.format(mask=mask))
    runs = [sum(isinstance(op, TileLoop) for op in kernel.body) for kernel in found]
    for kernel in found:
        assert_visited(kernel, mask)
    assert tuple(runs) == loops


def test_more_ranges_than_have_loops_are_masked() -> None:
    mask = " and ".join(f"j != i + {3 * n}" for n in range(5))
    first, _ = kernels(GUARD.format(mask=mask))
    assert sum(isinstance(op, TileLoop) for op in first.body) == 11


WAYS = {
    "in a sum": """\
    for i in range(M):
        for j in range(N):
            y[i] = y[i] + (X[i, j] * z[j] if {mask} else 0.0)
    return y
""",
    "turned, in a factor": """\
    for i in range(M):
        for j in range(N):
            y[i] = y[i] + where(not ({mask}), 0.0, X[i, j]) * z[j]
    return y
""",
    "in a number": """\
    for i in range(M):
        for j in range(N):
            x = X[i, j] if {mask} else 0.0
            y[i] = y[i] + x * z[j]
    return y
""",
    "both sides of a guard": """\
    for i in range(M):
        for j in range(N):
            if {mask}:
                x = X[i, j]
            else:
                x = 0.0
            y[i] = y[i] + x * z[j]
    return y
""",
    "guards side by side": """\
    for i in range(M):
        for j in range(N):
            if {mask}:
                y[i] = y[i] + X[i, j] * z[j]
            if {mask}:
                y[i] = y[i] + 2.0 * z[j]
    return y
""",
    "of a sum": """\
    for i in range(M):
        y[i] = sum(X[i, j] * z[j] for j in range(N) if {mask})
    return y
""",
    "under a name": """\
    for i in range(M):
        for j in range(N):
            seen = {mask}
            y[i] = y[i] + (X[i, j] * z[j] if seen else 0.0)
    return y
""",
    "under two names": """\
    for i in range(M):
        p = i + W
        for j in range(N):
            hidden = not ({mask})
            p = j
            shown = not hidden
            if shown:
                y[i] = y[i] + X[i, p] * z[j]
    return y
""",
    "guards in guards": """\
    for i in range(M):
        for j in range(N):
            if {mask}:
                x = X[i, j]
                if i < M:
                    y[i] = y[i] + x * z[j]
    return y
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_write_a_mask(way: str) -> None:
    mask = "(j < S or i - W < j) and j <= i"
    for kernel in kernels(WAYS[way].format(mask=mask)):
        assert_visited(kernel, mask)


def test_masks_in_the_terms_of_three_passes_are_one_pass() -> None:
    text = """\
def f(X: Float[Array, "M N"], V: Float[Array, "N"], S: int, W: int):
    T = zeros((M, N))
    y = zeros(M)
    for i in range(M):
        m = -inf
        for j in range(N):
            T[i, j] = 2.0 * X[i, j]
            m = max(m, T[i, j] if {mask} else -inf)
        l = 0.0
        for j in range(N):
            l = l + (exp(T[i, j] - m) if {mask} else 0.0)
        for j in range(N):
            y[i] = y[i] + (exp(T[i, j] - m) if {mask} else 0.0) / l * V[j]
    return y
"""
    mask = "(j < S or i - W < j) and j <= i"
    (kernel,) = lowered(program(text.format(mask=mask))).kernels
    assert_visited(kernel, mask)


ONLINE = """\
def f(X: Float[Array, "M N"], V: Float[Array, "N"], pad: Bool[Array, "N"]):
    y = zeros(M)
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(N):
            if {mask}:
                s = 2.0 * X[i, j]
                t = max(m, s)
                l = l * exp(m - t) + exp(s - t)
                y[i] = y[i] * exp(m - t) + exp(s - t) * V[j]
                m = t
        y[i] = y[i] / l
    return y
"""


@pytest.mark.parametrize("mask", ["not pad[j] and j <= i", "not (pad[j] or j > i)"])
def test_what_indices_say_is_a_bound_beside_data(mask: str) -> None:
    both = emitted_with_backward(program(ONLINE.format(mask=mask)))
    seen = 0
    for kernel in (*both.forward.kernels, *both.backward.kernels):
        if not any(isinstance(op, TileLoop) for op in kernel.body):
            continue
        (own,) = (dim.name for dim in kernel.grid if dim.role == "rows")
        blocks = {d.block or "": 4 for d in kernel.dims}
        for visit in visits(kernel, SIZES[1], blocks, {"pad": np.zeros(SIZES[1]["N"], np.bool_)}):
            for block in visit.blocks:
                others = range(block.first, block.first + 4)
                every = product(visit.places[own], others)
                assert any((j <= i if own == "i" else i <= j) for i, j in every), kernel.name
                seen += 1
    assert seen


# Random masks: the same things asked, and the numbers.

NUMBERS = st.integers(2, 5)
BAND = st.one_of(
    st.builds("i - j <= {}".format, NUMBERS),
    st.builds("j <= i + {}".format, NUMBERS),
    st.builds("abs(i - j) <= {}".format, NUMBERS),
    st.builds("abs(i - j) > {}".format, NUMBERS),
    st.builds("j != i + {}".format, NUMBERS),
    st.builds("not (i - {} <= j and j <= i + {})".format, NUMBERS, NUMBERS),
)
COLUMNS = st.one_of(
    st.builds("j < S + {}".format, NUMBERS),
    st.builds("j >= N - {}".format, NUMBERS),
    st.builds("i < {}".format, NUMBERS),
    st.builds("i >= M - {}".format, NUMBERS),
)
MASK = st.one_of(
    st.builds("{} or {}".format, BAND, COLUMNS),
    st.builds("({} or {}) and j <= i".format, COLUMNS, BAND),
    st.builds("{} and {}".format, BAND, COLUMNS),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], ModuleType]]:
    """Load emitted modules, in the interpreter."""
    pytest.importorskip("torch")
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    os.environ.setdefault("TRITON_INTERPRET", "1")
    folder = tmp_path_factory.mktemp("modules")

    def load(text: str) -> ModuleType:
        path = Path(folder, f"m{abs(hash(text))}.py")
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield load


def _small(*arguments: Any) -> tuple[Choice, Choice]:
    """Return blocks of 4 rows and 4 others."""

    def choice(given: Choice) -> Choice:
        default = given.default
        config = Config(dict.fromkeys(default.blocks, 4), default.warps, default.stages)
        return Choice(config, (config,))

    narrow, wide = choices(*arguments)
    return choice(narrow), choice(wide)


def assert_numbers(module: ModuleType, mask: str) -> None:
    import torch

    chance = np.random.default_rng(0)
    for sizes in SIZES:
        M, N = sizes["M"], sizes["N"]
        X, z, dy = (chance.normal(size=size) for size in ((M, N), N, M))
        seen: NDArray[np.float64] = np.zeros((M, N))
        for pair in pairs(mask, sizes):
            seen[pair] = 1.0
        given = [torch.tensor(each, dtype=torch.float32, requires_grad=True) for each in (X, z)]
        y = module.f(*given, sizes["S"], sizes["W"])
        y.backward(torch.tensor(dy, dtype=torch.float32))
        wanted = ((seen * X) @ z, seen * np.outer(dy, z), (seen * X).T @ dy)
        for found, exact in zip((y.detach(), *(g.grad for g in given)), wanted, strict=True):
            np.testing.assert_allclose(found.numpy(), exact, atol=1e-5)


@given(MASK)
@settings(max_examples=4, deadline=None, derandomize=True, phases=[Phase.generate])
def test_a_random_mask(run: Callable[[str], ModuleType], mask: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lowering, "choices", _small)
        text = GUARD.format(mask=mask)
        for kernel in kernels(text):
            assert_visited(kernel, mask)
        assert_numbers(run(made(text).text), mask)
