"""The cache of emitted modules: whole files only, whoever else writes or was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from looptrans.runtime.running import cache
from looptrans.runtime.running.cache import cache_folder, cache_key, keep, read_kept

Patch = pytest.MonkeyPatch

ROOT = Path(__file__).resolve().parent.parent
TEXT = '"""A module."""\n\n\ndef größe() -> int:\n    return 1\n'
NAME = "größe"
KEY = cache_key("listing", None, "t.py")


@pytest.fixture(autouse=True)
def folder(monkeypatch: Patch, tmp_path: Path) -> Path:
    monkeypatch.setenv("LOOPTRANS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def python(code: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code]
    return subprocess.Popen(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_what_is_kept_is_read_again(folder: Path) -> None:
    assert read_kept(KEY) is None
    kept = keep(KEY, NAME, TEXT)
    assert (kept.name, kept.text, kept.path) == (NAME, TEXT, folder / f"{KEY}.py")
    assert read_kept(KEY) == kept
    assert [path.name for path in folder.iterdir()] == [f"{KEY}.py"]
    assert kept.path.read_text(encoding="utf-8").startswith(TEXT)
    compile(kept.path.read_text(encoding="utf-8"), str(kept.path), "exec")


def test_no_part_and_no_change_of_a_file_is_believed() -> None:
    path = keep(KEY, NAME, TEXT).path
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert read_kept(KEY) is None, length
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert read_kept(KEY) is None, place
    path.write_bytes(whole + b"x")
    assert read_kept(KEY) is None
    assert read_kept(KEY) is None
    keep(KEY, NAME, TEXT)
    assert path.read_bytes() == whole


def test_a_writer_killed_before_the_end(folder: Path) -> None:
    killed = python(
        "import os, signal\n"
        "from looptrans.runtime.running import cache\n"
        "os.replace = lambda *names: os.kill(os.getpid(), signal.SIGTERM)\n"
        f"cache.keep({KEY!r}, {NAME!r}, {TEXT!r})\n"
    )
    killed.communicate(timeout=60)
    assert killed.returncode != 0
    (left,) = folder.iterdir()
    assert left.suffix != ".py"
    assert read_kept(KEY) is None

    keep(KEY, NAME, TEXT)
    assert read_kept(KEY) is not None
    assert left.exists(), "another process may still be writing it"
    os.utime(left, (0, 0))
    keep(KEY, NAME, TEXT)
    assert not left.exists()


def test_processes_that_write_and_read_at_once(folder: Path) -> None:
    code = (
        "from looptrans.runtime.running.cache import keep, read_kept\n"
        f"name, text = {NAME!r}, {TEXT!r} * 2000\n"
        f"keep({KEY!r}, name, text)\n"
        "for _ in range(100):\n"
        f"    kept = read_kept({KEY!r})\n"
        "    assert kept is not None and kept.text == text\n"
        f"    assert keep({KEY!r}, name, text).path == kept.path\n"
    )
    workers = [python(code) for _ in range(4)]
    for worker in workers:
        _, errors = worker.communicate(timeout=120)
        assert (worker.returncode, errors) == (0, "")
    assert [path.name for path in folder.iterdir()] == [f"{KEY}.py"]


def test_a_cache_that_cannot_be_written(monkeypatch: Patch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    monkeypatch.setenv("LOOPTRANS_CACHE_DIR", str(tmp_path / "file" / "cache"))
    kept = keep(KEY, NAME, TEXT)
    assert tmp_path not in kept.path.parents
    assert kept.path.read_text(encoding="utf-8").startswith(TEXT)
    assert read_kept(KEY) is None
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_where_the_cache_is(monkeypatch: Patch, tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("LOOPTRANS_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "looptrans"
    if os.name == "posix":
        monkeypatch.setenv("HOME", str(tmp_path))
        for unset in ("", "relative"):
            monkeypatch.setenv("XDG_CACHE_HOME", unset)
            assert cache_folder() == tmp_path / ".cache" / "looptrans"


def test_a_key_for_every_listing_function_and_version(monkeypatch: Patch) -> None:
    keys = [
        KEY,
        cache_key("listing ", None, "t.py"),
        cache_key("listing", "f", "t.py"),
        cache_key("listingf", None, "t.py"),
        cache_key("listing", None, "u.py"),
    ]
    monkeypatch.setattr(cache, "__version__", "0.0.0")
    keys.append(cache_key("listing", None, "t.py"))
    assert len(set(keys)) == len(keys)


def test_a_changed_source_of_looptrans_gives_other_keys(tmp_path: Path) -> None:
    """A copy of the package: its keys change with any of its files, and with those alone."""
    package = tmp_path / "looptrans"
    for name in ("__init__.py", "version.py", "runtime/__init__.py", "runtime/running/cache.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_bytes((ROOT / "looptrans" / name).read_bytes())
    code = (
        "from looptrans.runtime.running.cache import cache_key\n"
        "print(cache_key('text', None, 't.py'))"
    )

    def key() -> str:
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    first = key()
    assert key() == first, "bytecode written by the first run counts"
    (package / "runtime" / "more.py").write_text("")
    second = key()
    assert second != first
    os.utime(package / "version.py", (0, 0))
    assert key() not in (first, second)
