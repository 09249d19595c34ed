"""Every `$ looptrans …` command of the README is run, and its output is the one shown.

A line `...` stands for any further lines. LOOPTRANS_UPDATE_GOLDENS=1 rewrites the outputs, keeping
as many lines before a `...` and after it as there are.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import as_shown, said

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"```console\n\$ looptrans ([^\n]*)\n(.*?)```", re.DOTALL)


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def _run(command: str) -> str:
    _, out, err = said(shlex.split(command))
    assert "Traceback" not in err
    return out


def _updated(found: re.Match[str]) -> str:
    printed = _run(found[1]).rstrip("\n") + "\n"
    return f"```console\n$ looptrans {found[1]}\n{as_shown(printed, found[2])}```"


def test_the_readme_shows_what_the_commands_print() -> None:
    text = README.read_text(encoding="utf-8")
    if os.environ.get("LOOPTRANS_UPDATE_GOLDENS"):
        README.write_text(BLOCK.sub(_updated, text), encoding="utf-8")
        text = README.read_text(encoding="utf-8")
    found = list(BLOCK.finditer(text))
    assert len(found) >= 8
    for each in found:
        assert each[0] == _updated(each), f"README: looptrans {each[1]}"


def test_the_readme_names_every_verb() -> None:
    text = README.read_text(encoding="utf-8")
    verbs = "show run deps ddg scc loops claims report check apply explain"
    for verb in verbs.split():
        assert f"looptrans {verb}" in text


def _section(title: str) -> str:
    text = README.read_text(encoding="utf-8")
    return re.split(r"^##+ ", text.partition(f"# {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def test_the_gradients_of_the_readme_are_those_of_torch(tmp_path: Path) -> None:
    code = _section("From PyTorch").partition("```python\n")[2].partition("```")[0]
    assert "assert_close" in code
    hidden = {"CUDA_VISIBLE_DEVICES": "", "LOOPTRANS_CACHE_DIR": str(tmp_path)}
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **hidden},
        check=True,
        timeout=120,
    )


def test_the_readme_says_which_listings_have_a_backward_pass() -> None:
    """The rows are the modules of the shelf, whose signatures say what is saved."""
    section = _section("Which listings have one")
    said: dict[str, tuple[list[str], set[str], set[str]]] = {}
    for line in section.splitlines():
        cells = [re.findall(r"`(\w+)`", cell) for cell in line.split("|")[1:-1]]
        for name in cells[0] if cells and cells[0] else []:
            said[name] = cells[1], set(cells[2]), set(cells[3])
    assert set(said) == {
        path.stem.removesuffix("_backward") for path in ROOT.glob("generated/*_backward.py")
    }
    for name, (gradients, outputs, besides) in said.items():
        text = (ROOT / "generated" / f"{name}_backward.py").read_text(encoding="utf-8")
        nodes = ast.parse(text).body
        functions = {each.name: each for each in nodes if isinstance(each, ast.FunctionDef)}
        plain, backward = functions[name], functions[f"{name}_backward"]
        arguments = [each.arg for each in plain.args.args]
        given = {each.arg for each in backward.args.args} - set(arguments)
        listing = (ROOT / "specs" / f"{name}.py").read_text(encoding="utf-8")
        returned = set(
            re.findall(r"\w+", re.findall(r"^    return (.*)", listing, re.MULTILINE)[-1])
        )
        made = re.search(r"_wanted\(wanted, \((.*?)\)\)", ast.unparse(backward))
        assert made and re.findall(r"\w+", made[1]) == gradients, name
        assert outputs == given & returned, name
        assert besides == given - returned - {f"d{each}" for each in returned}, name
    refused = set(re.findall(r"^- `(\w+)`:", section, re.MULTILINE))
    assert refused | set(said) == {path.stem for path in ROOT.glob("specs/*.py")}
