"""Random listings and their backward passes, from the text to gradients: right, or refused.

The backward listing is executed in float64 and compared with torch's autograd cell by cell; the
emitted kernels run in the interpreter, in float32, at sizes that leave blocks partial, and are
compared with torch's autograd over the listing's statements. Nothing of `looptrans.adjoint` says
what is right. LOOPTRANS_TEST_ALL=1 takes more listings.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace
from typing import Any

import pytest

from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.refusal import Refused
from looptrans.runtime.verification import Run
from tests.analysis import program
from tests.differentiable import Made
from tests.test_adjoint_listings import check

torch = pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

from looptrans.runtime.device import prepare_device  # noqa: E402  # it needs torch
from looptrans.runtime.verify_backward import (  # noqa: E402
    GradientLauncher,
    gradient_launcher,
    verify_gradients,
)
from looptrans.runtime.verify_sizes import SizeSet  # noqa: E402

ALL = "LOOPTRANS_TEST_ALL" in os.environ
LISTINGS = 300 if ALL else 50
MOST_STAGES = 4 if ALL else 3
# Partial blocks of rows and of elements. Where there are few, each gradient is also asked for alone
# and central differences are taken; at those of kind `one` strides have no pattern.
SIZES = (
    SizeSet("rows", {"M": 37, "N": 9, "K": 13}),
    SizeSet("one", {"M": 9, "N": 37, "K": 13}),
)
FEW = SizeSet("few", {"M": 9, "N": 37, "K": 5})
# The random listings for which there are no kernels.
REFUSED: frozenset[int] = frozenset()
WITH_ALL = 38  # every one of its arguments has a gradient


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.getbasetemp() / "kernels"
    monkeypatch.setenv("LOOPTRANS_CACHE_DIR", str(folder))


def verified(launcher: GradientLauncher, seed: int) -> Run:
    sizes = FEW if seed % 10 == 0 else SIZES[seed % 2]
    report = verify_gradients(launcher, [sizes], ("float32",), prepare_device("cpu"), seed)
    (run,) = report.runs
    assert [error.name for error in run.outputs] == [*launcher.found.gradients.values()]
    return run


@pytest.mark.parametrize("seed", range(LISTINGS))
def test_a_random_listing(seed: int) -> None:
    text = Made(seed, MOST_STAGES).text()
    listing = program(text)
    try:
        made = emitted_with_backward(listing)
    except Refused as refusal:
        assert refusal.reason
        assert seed in REFUSED or ALL, f"{text}\n{refusal.reason}"
        return
    assert seed not in REFUSED or ALL, text
    assert all(step.decision == "legal" for step in made.found.steps), text
    try:
        check(listing, made.found, times=1)
    except AssertionError as error:
        raise AssertionError(f"{text}\n{error}") from None
    run = verified(gradient_launcher(made), seed)
    assert run.passed, f"{text}\n{run}"


def test_at_most_a_fifth_is_refused() -> None:
    assert len(REFUSED) * 5 <= 50


@pytest.mark.parametrize("which", ["whole", "one element"])
def test_a_flipped_sign_is_noticed(which: str) -> None:
    """Of each gradient in turn, and of its largest element alone."""
    launcher = gradient_launcher(emitted_with_backward(program(Made(WITH_ALL).text())))
    assert verified(launcher, 1).passed

    def spoilt(place: int) -> GradientLauncher:
        def backward(*arguments: Any) -> tuple[Any, ...]:
            found = list(launcher.backward(*arguments))
            flat = found[place].flatten()
            chosen = slice(None) if which == "whole" else int(flat.abs().argmax())
            flat[chosen] = -flat[chosen]
            found[place] = flat.reshape(found[place].shape)
            return tuple(found)

        return replace(launcher, backward=backward)

    for place, name in enumerate(launcher.gradients):
        run = verified(spoilt(place), 1)
        assert [error.name for error in run.outputs if not error.passed] == [name]
