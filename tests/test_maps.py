"""The maps in the docstrings of the larger folders: every file stands in its folder's map, once."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "looptrans"
FOLDERS = (
    "ir",
    "frontend",
    "executor",
    "analysis",
    "transforms",
    "algebra",
    "adjoint",
    "derivation",
    "blocks",
    "emit",
    "runtime",
    "reports",
)


def named_in(docstring: str) -> tuple[list[str], list[str]]:
    """The files a map names, and the beginnings of names it speaks of (`files called verify_`)."""
    files: list[str] = []
    families: list[str] = []
    for line in docstring.splitlines()[1:]:
        column = line[26:] if re.match(r"(\S.*|) +$", line[:26]) else ""
        families += re.findall(r"files called (\w+_)", column)
        files += re.findall(r"\w+", re.sub(r"(and )?the files called \w+_", "", column))
    return files, families


ROOMS = tuple(str(path.parent.relative_to(ROOT)) for path in sorted(ROOT.glob("*/*/__init__.py")))


@pytest.mark.parametrize("folder", [*FOLDERS, *ROOMS])
def test_every_file_stands_in_the_map_of_its_folder_once(folder: str) -> None:
    module = ast.parse((ROOT / folder / "__init__.py").read_text())
    files, families = named_in(ast.get_docstring(module) or "")
    there = {path.stem for path in (ROOT / folder).glob("*.py")} - {"__init__"}
    there |= {path.parent.name for path in (ROOT / folder).glob("*/__init__.py")}
    of_a_family = {name for name in there if name.startswith(tuple(families))}

    assert sorted(files) == sorted(there - of_a_family)
