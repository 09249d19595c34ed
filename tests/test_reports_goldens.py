"""Goldens of the reports: `LOOPTRANS_UPDATE_GOLDENS=1` writes them, a missing one fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

GOLDENS = Path(__file__).parent / "goldens"


def check_golden(name: str, text: str) -> None:
    """Compare `text` with a golden file, byte for byte."""
    path = GOLDENS / name
    if os.environ.get("LOOPTRANS_UPDATE_GOLDENS") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode())
    if not path.exists():
        pytest.fail(f"{path} is missing; LOOPTRANS_UPDATE_GOLDENS=1 writes it")
    assert path.read_bytes().decode() == text


def test_a_missing_golden_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOOPTRANS_UPDATE_GOLDENS", raising=False)
    with pytest.raises(pytest.fail.Exception):
        check_golden("no_such_golden.txt", "")
