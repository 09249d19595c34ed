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

from looptrans.emit.listing import emitted
from looptrans.reports.verify import verification_text
from looptrans.runtime.verify import verify
from tests.analysis import program

Sizes = Sequence[Mapping[str, int]]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.getbasetemp() / "kernels"
    monkeypatch.setenv("LOOPTRANS_CACHE_DIR", str(folder))


def assert_right(text: str, sizes: Sizes) -> None:
    """Compare the kernel of a listing with the listing."""
    report = verify(program(text), sizes, ("float32",), "cpu")
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
