"""Random listings and mutants of those in specs/: the kernel is right, or there is none.

Each is emitted and run in the interpreter against its own float64 execution. A crash is neither,
and fails. LOOPTRANS_TEST_ALL=1 takes more listings, and every mutant: that takes long.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping, Sequence

import pytest

from looptrans.emit.listing import Emitted, emitted
from looptrans.emit.refusal import Refused
from looptrans.frontend import parse
from looptrans.ir.program import Program
from looptrans.ir.source import Source
from looptrans.reports.verify import verification_text
from tests.analysis import BASIC
from tests.listing_mutants import Mutant, mutants
from tests.listings import listing, sizes

pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

from looptrans.runtime.executed.reference import reference_of
from looptrans.runtime.running.device import prepare_device
from looptrans.runtime.verifying import verify as verification  # it imports torch
from looptrans.runtime.verifying.sizes import SizeSet

ALL = "LOOPTRANS_TEST_ALL" in os.environ
LISTINGS = 500 if ALL else 28
# Every which mutant of a listing is run: those with products take longest.
EVERY = {"matmul": 16, "logsumexp": 12, "softmax": 12, "rmsnorm": 18, "softmax_cross_entropy": 15}
EVERY |= {"layernorm": 28, "prefix_sum": 8, "stencil": 12}
SELDOM = 160
MUTANT_SIZES = {"M": 4, "N": 3, "K": 1, "E": 2, "D": 1, "V": 5, "B": 1, "H": 2, "G": 1, "R": 2}
MUTANT_SIZES_LARGE = MUTANT_SIZES | {"M": 37, "N": 70, "K": 19, "E": 5, "D": 6, "V": 70}


def program_of(text: str) -> Program:
    name = re.search(r"^def (\w+)", text, re.MULTILINE)
    assert name is not None
    return parse(Source("listing.py", text), name[1])


def made_of(program: Program) -> Emitted | None:
    """Return the module of a listing; None where it is refused, with a reason and a statement."""
    try:
        return emitted(program)
    except Refused as refusal:
        assert refusal.reason
        assert refusal.label is not None or "all iterations of" in refusal.reason, refusal.reason
        return None


def assert_follows(
    program: Program,
    made: Emitted,
    at: Sequence[Mapping[str, int]],
    dtype: str = "float32",
) -> None:
    """Compare a kernel with the listing; sizes at which the listing itself fails are left out."""
    names = {p.name for p in program.parameters if p.kind != "real"}
    sets = [SizeSet("one", {name: each[name] for name in each if name in names}) for each in at]
    device = prepare_device("cpu")
    report = verification.verify_launcher(
        reference_of(program),
        verification.launcher_of(made.text, made.launcher, made.blocks),
        sets,
        (dtype,),
        device,
    )
    assert all(run.passed for run in report.runs), verification_text(report)
    assert report.runs or report.notes


@pytest.mark.parametrize("seed", range(LISTINGS))
def test_a_random_listing(seed: int) -> None:
    text = listing(seed)
    program = program_of(text)
    made = made_of(program)
    assert (made is None) == (seed in REFUSED) or ALL, text
    if made is not None:
        dtype = "float16" if seed % 10 == 9 else "float32"
        assert_follows(program, made, sizes(text), dtype)


# The random listings for which there is no kernel.
REFUSED = frozenset((33, 40))


def test_at_most_a_fifth_is_refused() -> None:
    assert len(REFUSED) * 5 <= 50


def _mutants() -> list[tuple[str, Mutant]]:
    found = []
    for path in BASIC:
        text = path.read_text(encoding="utf-8")
        every = 1 if ALL else EVERY.get(path.stem, SELDOM)
        made = mutants(text[text.index("def ") :])
        found += [(path.stem, mutant) for mutant in made[every // 2 :: every]]
    return found


@pytest.mark.parametrize(("of", "mutant"), _mutants(), ids=lambda part: getattr(part, "what", part))
def test_the_kernel_follows_a_mutant(of: str, mutant: Mutant) -> None:
    program = program_of(mutant.text)
    made = made_of(program)
    if made is not None:
        assert_follows(program, made, (MUTANT_SIZES, MUTANT_SIZES_LARGE))
