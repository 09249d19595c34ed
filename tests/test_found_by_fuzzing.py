"""Listings that random search has found wrong once, cut down to what matters.

Kernels run in Triton's interpreter, where `verify` watches what is left to chance on a GPU, what is
stored outside of arrays, and cells that nobody has written.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence

import pytest

pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.listing import emitted
from looptrans.reports.verify import verification_text
from looptrans.runtime.verify import verify
from looptrans.runtime.verify_backward import verify_backward
from tests.analysis import program

Sizes = Sequence[Mapping[str, int]]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.getbasetemp() / "kernels"
    monkeypatch.setenv("LOOPTRANS_CACHE_DIR", str(folder))


def assert_right(text: str, sizes: Sizes, *, backward: bool = False) -> None:
    """Compare the kernels of a listing, or of its backward pass, with the listing."""
    run = verify_backward if backward else verify
    report = run(program(text), sizes, ("float32",), "cpu")
    assert report.runs and all(run.passed for run in report.runs), verification_text(report)


# On antidiagonals another lane stores the element, one iteration later.
ANTIDIAGONALS = """
def antidiagonals(X: Float[Array, "M N"]):
    T = zeros(M + N - 1)
    for i in range(0, M):
        for j in range(0, N):
            T[i + j] = X[i, j]
    return T
"""


def test_threads_wait_where_another_one_stores_the_element_again() -> None:
    assert "tl.debug_barrier()  # all threads have stored" in emitted(program(ANTIDIAGONALS)).text
    assert_right(ANTIDIAGONALS, [{"M": 3, "N": 5}])


def test_threads_do_not_wait_where_each_stores_its_own_elements() -> None:
    """Neither where every element is stored once nor where the same lane stores it each time."""
    for cell in ("T[j]", "T[j * 2 + 1]", "T[N - 1 - j]", "T[i * N + j]"):
        text = ANTIDIAGONALS.replace("T[i + j]", cell).replace("M + N - 1", "M * N + 2 * N")
        assert "tl.debug_barrier" not in emitted(program(text)).text, cell


# Whether anything is stored hangs on a number: where nothing is, all is as it was created.
ONCE_OR_NEVER = """
def once_or_never(X: Float[Array, "N"], n: Int[Array, "B", "0:2"]):
    Y = full(N, 7.0)
    for s in range({start}, 1):
        for i in range(0, N):
            Y[i] = X[i]
    return Y
"""


@pytest.mark.parametrize("start", ["n[0]", "S"])
def test_what_may_not_be_stored_is_filled_before(start: str) -> None:
    text = ONCE_OR_NEVER.replace("{start}", start)
    if start == "S":
        text = text.replace('n: Int[Array, "B", "0:2"]', "S: int")
        assert_right(text, [{"N": 5, "S": 0}, {"N": 5, "S": 1}])
    else:
        made = emitted(program(text)).blocks.made
        assert [each.fill for each in made] == [7.0]


# Of what is kept for each iteration but the last there is nothing at N = 0.
ALL_BUT_THE_LAST = """
def all_but_the_last(X: Float[Array, "N M"], V: Float[Array, "M"]):
    T = zeros(N)
    for i in range(0, N - 1):
        a = 0.0
        for j in range(0, M):
            a += (X[i, j] * V[j]) ** 2
        T[i] = a * a
    return T
"""


def test_of_one_less_than_nothing_nothing_is_kept() -> None:
    made = emitted_with_backward(program(ALL_BUT_THE_LAST))
    assert 'a_kept: Float32[Array, "max(0,N-1)"]' in made.text
    assert "if max(0, N - 1) < N - 1" not in made.text  # there are always as many
    assert_right(ALL_BUT_THE_LAST, [{"N": n, "M": 3} for n in (0, 1, 4)], backward=True)
