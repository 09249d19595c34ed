"""The list of tests that `make test` leaves out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest


def test_a_line_of_the_list_that_names_no_test_fails(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = request.node.nodeid
    gone = [f"{own.partition('::')[0]}::test_renamed", "tests/test_moved.py::test_moved"]
    monkeypatch.setattr(conftest, "THOROUGH", tmp_path / "list.txt")
    conftest.THOROUGH.write_text("\n".join(["# What is left out.", own, *gone]))

    def collected(*args: str) -> list[pytest.Item]:
        items = [request.node]
        hook = SimpleNamespace(pytest_deselected=lambda items: None)
        config: Any = SimpleNamespace(
            getoption=lambda _: True, rootpath=request.config.rootpath, args=args, hook=hook
        )
        conftest.pytest_collection_modifyitems(request.session, config, items)
        return items

    assert [item.name for item in collected("tests")] == sorted(gone)
    for item in collected("tests"):
        with pytest.raises(pytest.UsageError, match="names what is no test"):
            item.runtest()
    # Of a file that is not collected as a whole it is not known.
    assert [item.name for item in collected(own)] == gone[1:]
