"""Teaching pages that are run: Markdown whose commands and Python blocks give the output shown.

A `console` block holds commands, each after `$ `, and what each prints, standard error included; a
command that ends with a status other than 0 is followed by the line `(exit status 1)`. A `python`
block is executed, all blocks of a page one after the other as one program, and what it prints
stands in the `text` block right below it. A line `...` in an output stands for any further lines.

A `looptrans` that a command begins with runs in this process, what stands around it in bash.
A page is replayed in a folder of its own that holds `specs` and the files that earlier pages made;
so what a page shows cannot lean on a file that no page makes.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from looptrans.cli.main import main

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "blog_examples"
MADE = ("stages", "pictures")
PAGES = sorted((ROOT / FOLDER).glob("[0-9]*.md"))

_CONSOLE = re.compile(r"^```console\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
_PYTHON = re.compile(
    r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE
)
_BLOCK = re.compile(f"{_CONSOLE.pattern}|{_PYTHON.pattern}", re.DOTALL | re.MULTILINE)
_WRITES = re.compile(rf"(?:-o|--output|>)\s+({FOLDER}/(?:{'|'.join(MADE)})/[\w.]+)")
_OPENS = re.compile(rf'Path\("({FOLDER}/(?:{"|".join(MADE)})/[\w.]+)"\)\.write_text')
_OF_THE_SHELL = frozenset("|<>&;()")
_SHELL = "set -o pipefail; "
_RUNS = _SHELL + 'looptrans() { "$PYTHON" -m looptrans "$@"; }; '
_HAS_RUN = _SHELL + 'looptrans() { cat "$SAID.err" >&2; cat "$SAID.out"; return "$STATUS"; }; '


def made_by(page: Path) -> list[str]:
    """Return the files that a page makes, relative to the repository."""
    text = page.read_text(encoding="utf-8")
    return [*_WRITES.findall(text), *_OPENS.findall(text)]


def stored() -> list[str]:
    """Return the files of the folders that pages make, relative to the repository."""
    found = (each for folder in MADE for each in (ROOT / FOLDER / folder).iterdir())
    return sorted(str(each.relative_to(ROOT)) for each in found if each.name[0] not in "._")


def furnish(sandbox: Path, page: Path) -> None:
    """Put into an empty folder what a page may read."""
    (sandbox / "specs").symlink_to(ROOT / "specs")
    for folder in MADE:
        (sandbox / FOLDER / folder).mkdir(parents=True)
    for earlier in PAGES[: PAGES.index(page)]:
        for name in made_by(earlier):
            if (ROOT / name).exists():  # else the page that makes it fails
                shutil.copy(ROOT / name, sandbox / name)


def replay(page: Path, sandbox: Path) -> str:
    """Run a page in a folder and return its text with the outputs that came."""
    names: dict[str, object] = {"__name__": page.stem}
    text = page.read_text(encoding="utf-8")

    def block(found: re.Match[str]) -> str:
        console, code, shown = found.groups()
        if console is not None:
            return "```console\n" + "".join(_console(console, sandbox)) + "```\n"
        line = text.count("\n", 0, found.start(2))
        with _inside(sandbox), contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile("\n" * line + code, str(page), "exec"), names)
        printed = as_shown(out.getvalue(), shown or "")
        below = f"\n```text\n{printed}```\n" if printed else ""
        return f"```python\n{code}```\n{below}"

    return _BLOCK.sub(block, text)


def _console(text: str, sandbox: Path) -> Iterator[str]:
    for session in re.split(r"^(?=\$ )", text, flags=re.MULTILINE):
        if session:
            command, shown = _split(session)
            yield command + as_shown(_run(command.removeprefix("$ "), sandbox), shown)


def _split(session: str) -> tuple[str, str]:
    """Part a command, with the lines that a final backslash joins to it, from its output."""
    lines = session.splitlines(keepends=True)
    end = next(n for n, line in enumerate(lines, 1) if not line.endswith("\\\n"))
    return "".join(lines[:end]), "".join(lines[end:])


def _run(command: str, sandbox: Path) -> str:
    words, rest = _first(command.replace("\\\n", ""))
    if words[0] != "looptrans" or "looptrans" in rest:
        status, text = _by_bash(_RUNS + command, sandbox)
    else:
        with _inside(sandbox):
            status, out, err = said(words[1:])
        text = err + out  # as they come through one pipe
        if rest:
            with tempfile.TemporaryDirectory() as folder:
                kept = Path(folder) / "said"
                kept.with_suffix(".out").write_text(out, encoding="utf-8")
                kept.with_suffix(".err").write_text(err, encoding="utf-8")
                given = {"SAID": str(kept), "STATUS": str(status)}
                status, text = _by_bash(_HAS_RUN + command, sandbox, given)
    assert "Traceback" not in text, text
    printed = text.rstrip("\n") + "\n" if text.strip() else ""
    return printed + (f"(exit status {status})\n" if status else "")


def _first(command: str) -> tuple[list[str], list[str]]:
    """Return the words of the first command of a line, and what of the shell stands behind it."""
    read = shlex.shlex(command, posix=True, punctuation_chars=True)
    read.whitespace_split = True
    words = list(read)
    end = next((n for n, word in enumerate(words) if set(word) <= _OF_THE_SHELL), len(words))
    streams = words[end - 1].isdigit() and f"{words[end - 1]}>" in command  # as in `2> file`
    return words[: end - streams], words[end - streams :]


def said(arguments: list[str]) -> tuple[int, str, str]:
    """Return the exit status of a `looptrans` command, and what it prints: output and errors.

    It runs in this process, where everything is imported already: that takes longer than most
    commands do.
    """
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_COLOR", "1")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(arguments)
    return status, out.getvalue(), err.getvalue()


def _by_bash(command: str, sandbox: Path, given: Mapping[str, str] = {}) -> tuple[int, str]:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=sandbox,
        env={
            **os.environ,
            **given,
            "NO_COLOR": "1",
            "PYTHONUTF8": "1",
            "PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout


def as_shown(printed: str, shown: str) -> str:
    """Leave out of an output what the page leaves out with `...`."""
    before, dots, after = shown.rpartition("...\n")
    if not dots or (before and not before.endswith("\n")):
        return printed
    lines = printed.splitlines(keepends=True)
    head, tail = before.count("\n"), after.count("\n")
    if head + tail >= len(lines):
        return printed
    return "".join([*lines[:head], dots, *lines[len(lines) - tail :]])


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
