"""`generated/` holds the module of every listing in `specs/`; `make generated` writes them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from looptrans.emit.listing import emitted, module_name
from looptrans.emit.refusal import Refused
from looptrans.frontend import load
from tests.analysis import SPECS

ROOT = Path(__file__).resolve().parent.parent
SHELF = ROOT / "generated"
REFUSED = "### Listings without a kernel\n"


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


def test_every_module_has_a_listing() -> None:
    names = {module_name(load(str(path))) for path in SPECS}
    assert {path.stem for path in SHELF.glob("*.py")} <= names


def _without_a_kernel() -> set[str]:
    """Return the listings that the README calls refused."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, _, after = text.partition(REFUSED)
    section, _, _ = after.partition("\n#")
    return set(re.findall(r"^- `(\w+)`", section, re.MULTILINE))
