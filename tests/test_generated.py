"""`generated/` holds the modules of every listing in `specs/`; `make generated` writes them.

Each has one for the forward pass, and one with its backward pass where there is one; a few have one
that computes a loop in parts. Of the latter two kinds few are compared; with LOOPTRANS_TEST_ALL=1
all are, and `looptrans emit --check` does the same.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.listing import emitted, module_name
from looptrans.emit.refusal import Refused
from looptrans.emit.split import emitted_split
from looptrans.frontend import load
from tests.analysis import SPECS

ROOT = Path(__file__).resolve().parent.parent
SHELF = ROOT / "generated"
REFUSED = "### Listings without a kernel\n"
NO_BACKWARD = ("flash_forward_as_printed", "stencil")
FEW = ("attention_naive", "layernorm", "prefix_sum", "softmax_cross_entropy", *NO_BACKWARD)
IN_PARTS = sorted(path.stem.removesuffix("_split") for path in SHELF.glob("*_split.py"))
if "LOOPTRANS_TEST_ALL" not in os.environ:
    IN_PARTS = IN_PARTS[:1]
BACKWARD = [p for p in SPECS if p.stem in FEW or "LOOPTRANS_TEST_ALL" in os.environ]


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_the_module_is_what_its_listing_gives(path: Path) -> None:
    """Or the listing is refused, and the README says so with a reason."""
    program = load(str(path))
    there = SHELF / f"{module_name(program)}.py"
    try:
        text = emitted(program).text
    except Refused as refusal:
        assert not there.exists()
        assert refusal.reason
        assert path.stem in _without_a_kernel(), f"README: why {path.stem} is refused: {refusal}"
    else:
        assert path.stem not in _without_a_kernel()
        assert there.read_text(encoding="utf-8") == text, "make generated"


@pytest.mark.parametrize("path", BACKWARD, ids=lambda path: path.stem)
def test_the_module_with_the_backward_pass_is_what_its_listing_gives(path: Path) -> None:
    program = load(str(path))
    there = SHELF / f"{module_name(program)}_backward.py"
    try:
        text = emitted_with_backward(program).text
    except Refused:
        assert path.stem in NO_BACKWARD
        assert not there.exists()
    else:
        assert there.read_text(encoding="utf-8") == text, "make generated"


@pytest.mark.parametrize("name", IN_PARTS)
def test_the_module_in_parts_is_what_its_listing_gives(name: str) -> None:
    there = SHELF / f"{name}_split.py"
    program = load(str(ROOT / "specs" / f"{name}.py"))
    assert there.read_text(encoding="utf-8") == emitted_split(program).text, "make generated"


def test_every_module_has_a_listing_and_the_other_way_round() -> None:
    names = {module_name(load(str(path))) for path in SPECS}
    there = {path.stem for path in SHELF.glob("*.py")}
    assert there <= {name + suffix for name in names for suffix in ("", "_backward", "_split")}
    assert {name for name in names if f"{name}_backward" not in there} == set(NO_BACKWARD)


def _without_a_kernel() -> set[str]:
    """Return the listings that the README calls refused."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, _, after = text.partition(REFUSED)
    section, _, _ = after.partition("\n#")
    return set(re.findall(r"^- `(\w+)`", section, re.MULTILINE))
