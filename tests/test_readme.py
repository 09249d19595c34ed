"""Every `$ looptrans …` command of the README is run, and its output is the one shown.

A line `...` stands for any further lines. LOOPTRANS_UPDATE_GOLDENS=1 rewrites the outputs, keeping
as many lines before a `...` as there are.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"```console\n\$ looptrans ([^\n]*)\n(.*?)```", re.DOTALL)


def _run(command: str) -> str:
    environment = dict(os.environ, NO_COLOR="1")
    done = subprocess.run(
        [sys.executable, "-m", "looptrans", *shlex.split(command)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.stdout


def _updated(found: re.Match[str]) -> str:
    lines = _run(found[1]).splitlines()
    shown = found[2].splitlines()
    if "..." in shown:
        lines = [*lines[: shown.index("...")], "..."]
    text = "\n".join(lines)
    return f"```console\n$ looptrans {found[1]}\n{text}\n```"


def test_the_readme_shows_what_the_commands_print() -> None:
    text = README.read_text(encoding="utf-8")
    if os.environ.get("LOOPTRANS_UPDATE_GOLDENS"):
        README.write_text(BLOCK.sub(_updated, text), encoding="utf-8")
        text = README.read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert len(blocks) >= 8
    for command, shown in blocks:
        expected = shown.rstrip("\n").split("\n")
        printed = _run(command).rstrip("\n").split("\n")
        if "..." in expected:
            cut = expected.index("...")
            expected, printed = expected[:cut], printed[:cut]
        assert printed == expected, f"README: looptrans {command}"


def test_the_readme_names_every_verb() -> None:
    text = README.read_text(encoding="utf-8")
    verbs = "show run deps ddg scc loops claims report check apply explain"
    for verb in verbs.split():
        assert f"looptrans {verb}" in text
