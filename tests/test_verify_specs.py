"""The kernels of `specs/` against a float64 execution of the listings, at the usual shapes.

The variants of attention are verified in test_variants, test_dropout, test_layouts and test_ragged.
Every pair of a listing, lengths, a head size and a type occurs; `make verify-all` has the product.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from functools import cache

import pytest

from looptrans.blocks.block_ir.program import NotLowered
from looptrans.emit.listing import emitted
from looptrans.frontend import load
from looptrans.ir.program import Program
from looptrans.reports.verify import verification_text
from tests.analysis import BASIC
from tests.verify_all import DTYPES, HEADS, LENGTHS, pairs, product

pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

from looptrans.runtime.verifying import verify as verification  # it imports torch
from looptrans.runtime.verifying.inputs import KINDS


def quick(program: Program, sizes: list[Mapping[str, float]]) -> list[Mapping[str, float]]:
    """Leave out what takes minutes: contents of integer arrays are sought by walking the nest.

    `make verify-all` has them.
    """
    if not any(a.role == "input" and a.element == "int" for a in program.arrays):
        return sizes
    return [each for each in sizes if math.prod(max(1, v) for v in each.values()) < 2e6]


@pytest.mark.parametrize("number", range(len(BASIC)), ids=lambda number: BASIC[number].stem)
def test_a_listing_and_its_kernels_agree(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = load(str(BASIC[number]))
    monkeypatch.setattr(verification, "emitted", cache(emitted))
    # One kind of inputs for each listing in turn; `make verify-all` has them all.
    monkeypatch.setattr(verification, "KINDS", (KINDS[number % len(KINDS)],))
    for dtype, sizes in pairs(program, number).items():
        try:
            report = verification.verify(program, quick(program, sizes), (dtype,))
        except NotLowered as refusal:
            pytest.skip(f"refused: {refusal.reason}")
        assert report.passed, verification_text(report)


def test_every_pair_of_lengths_head_size_and_type_occurs() -> None:
    """Between the listings that have all of them; each has every one of them by itself."""
    both: set[tuple[object, object]] = set()
    for number, path in enumerate(BASIC):
        program = load(str(path))
        here = [
            ((each["M"], each["N"]), each["E"], dtype)
            for dtype, sizes in pairs(program, number).items()
            for each in sizes
            if {"M", "N", "E"} <= set(each)
        ]
        if here:
            assert {lengths for lengths, _, _ in here} == set(LENGTHS)
            assert {head for _, head, _ in here} == set(HEADS)
            assert {dtype for _, _, dtype in here} == set(DTYPES)
        both |= {pair for a, b, c in here for pair in ((a, b), (a, c), (b, c))}
    lengths, heads, types = len(LENGTHS), len(HEADS), len(DTYPES)
    assert len(both) == lengths * heads + lengths * types + heads * types


def test_the_product() -> None:
    program = load(str(next(path for path in BASIC if path.stem == "attention_naive")))
    assert len(product(program)) == len(LENGTHS) * len(HEADS)
