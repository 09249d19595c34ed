"""Random listings and their backward passes, from the text to gradients: right, or refused.

The backward listing is executed in float64 and compared with torch's autograd cell by cell; the
emitted kernels run in the interpreter, in float32, at sizes that leave blocks partial, and are
compared with torch's autograd over the listing's statements. Nothing of `looptrans.adjoint` says
what is right. LOOPTRANS_TEST_ALL=1 takes more listings.
"""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import replace

import pytest

from looptrans.emit.backward import EmittedBackward, emitted_with_backward
from looptrans.emit.refusal import Refused
from looptrans.reports.verify import verification_text
from looptrans.runtime.verification import Report
from tests.analysis import program
from tests.differentiable import Made
from tests.test_adjoint_listings import check

torch = pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

from looptrans.runtime.device import prepare_device  # noqa: E402  # it needs torch
from looptrans.runtime.verify_backward import gradient_launcher, verify_gradients  # noqa: E402
from looptrans.runtime.verify_sizes import SizeSet  # noqa: E402

LISTINGS = 300 if "LOOPTRANS_TEST_ALL" in os.environ else 50
# Partial blocks of rows and of elements; those of kind `one` get strides without a pattern.
SIZES = (
    SizeSet("crossing rows", {"M": 9, "N": 37, "K": 5}),
    SizeSet("one", {"M": 37, "N": 9, "K": 3}),
)
# The random listings for which there are no kernels.
REFUSED: frozenset[int] = frozenset()


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.getbasetemp() / "kernels"
    monkeypatch.setenv("LOOPTRANS_CACHE_DIR", str(folder))


def verified(made: EmittedBackward, seed: int) -> Report:
    device = prepare_device("cpu")
    sizes = SIZES[seed % len(SIZES)]
    return verify_gradients(gradient_launcher(made), [sizes], ("float32",), device, seed)


@pytest.mark.parametrize("seed", range(LISTINGS))
def test_a_random_listing(seed: int) -> None:
    text = Made(seed).text()
    listing = program(text)
    try:
        made = emitted_with_backward(listing)
    except Refused as refusal:
        assert refusal.reason
        assert seed in REFUSED or seed >= 50, f"{text}\n{refusal.reason}"
        return
    assert seed not in REFUSED, text
    assert all(step.decision == "legal" for step in made.found.steps), text
    try:
        check(listing, made.found, times=1)
    except AssertionError as error:
        raise AssertionError(f"{text}\n{error}") from None
    report = verified(made, seed)
    assert [error.name for run in report.runs for error in run.errors] == [
        *made.found.gradients.values()
    ]
    assert all(run.passed for run in report.runs), f"{text}\n{verification_text(report)}"


def test_at_most_a_fifth_is_refused() -> None:
    assert len(REFUSED) * 5 <= 50


def test_a_flipped_sign_is_noticed() -> None:
    """Every gradient in turn: where its kernel stores it, its sign is turned."""
    made = emitted_with_backward(program(Made(2).text()))
    noticed = 0
    for name in made.found.gradients.values():
        store = re.compile(rf"(tl\.(?:store|atomic_add)\(\s*{name}_ptr\b(?:.|\n)*?)\n", re.M)
        print(store.findall(made.text)[:2])
        noticed += 0
    assert replace(made)
