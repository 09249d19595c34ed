"""Random listings and their backward passes, from the text to gradients: right, or refused.

The backward listing is executed in float64 and compared with torch's autograd cell by cell; the
emitted kernels run in the interpreter, in float32, at sizes that leave blocks partial, and are
compared with torch's autograd over the listing's statements. Nothing of `looptrans.adjoint` says
what is right. LOOPTRANS_TEST_ALL=1 takes more listings.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

from looptrans.emit.backward import emitted_with_backward  # noqa: E402
from looptrans.emit.refusal import Refused  # noqa: E402
from looptrans.runtime.running.device import prepare_device  # noqa: E402  # it needs torch
from looptrans.runtime.verifying.backward import gradient_launcher, verify_gradients  # noqa: E402
from looptrans.runtime.verifying.gradient_run import GradientLauncher  # noqa: E402
from looptrans.runtime.verifying.sizes import SizeSet  # noqa: E402
from looptrans.runtime.verifying.verification import Run  # noqa: E402
from tests.analysis import program  # noqa: E402
from tests.differentiable import Made  # noqa: E402
from tests.test_adjoint_listings import check  # noqa: E402

ALL = "LOOPTRANS_TEST_ALL" in os.environ
LISTINGS = 300 if ALL else 11
# Partial blocks of rows and of elements, and few programs, as the interpreter runs them one by one;
# at those of kind `one` strides have no pattern.
SIZES = (
    SizeSet("rows", {"M": 13, "N": 7, "K": 45}),
    SizeSet("one", {"M": 5, "N": 37, "K": 22}),
)
# The random listings for which there are no kernels.
REFUSED: frozenset[int] = frozenset()
WITH_ALL = 58  # every one of its arguments has a gradient


def most_stages(seed: int) -> int:
    """Return how long a listing may be: short ones show nearly everything, and are soon done."""
    return 4 if ALL else 2 + (seed % 3 == 0)


def verified(launcher: GradientLauncher, seed: int) -> Run:
    sizes = SIZES[seed % 2]
    report = verify_gradients(launcher, [sizes], ("float32",), prepare_device("cpu"), seed)
    (run,) = report.runs
    assert [error.name for error in run.outputs] == [*launcher.found.gradients.values()]
    return run


@pytest.mark.parametrize("seed", range(LISTINGS))
def test_a_random_listing(seed: int) -> None:
    text = Made(seed, most_stages(seed)).text()
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
    assert len(REFUSED) * 5 <= LISTINGS


def test_a_flipped_sign_is_noticed() -> None:
    """Of the largest element of each gradient in turn."""
    prepare_device("cpu")  # before the kernels are imported
    launcher = gradient_launcher(emitted_with_backward(program(Made(WITH_ALL).text())))
    assert verified(launcher, 1).passed

    def spoilt(place: int) -> GradientLauncher:
        @functools.wraps(launcher.backward)
        def backward(*arguments: Any, **options: Any) -> tuple[Any, ...]:
            found = list(launcher.backward(*arguments, **options))
            flat = found[place].flatten()
            largest = int(flat.abs().argmax())
            flat[largest] = -flat[largest]
            found[place] = flat.reshape(found[place].shape)
            return tuple(found)

        return replace(launcher, backward=backward)

    for place, name in enumerate(launcher.gradients):
        run = verified(spoilt(place), 1)
        assert [error.name for error in run.outputs if not error.passed] == [name]
