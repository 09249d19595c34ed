"""Emitted modules kept in the user's cache directory, under a key of all they depend on.

    ~/.cache/looptrans/KEY.py     the module, and a last line with its launcher's name and a digest

A file appears whole under its name or not at all, and is believed only where the digest in its last
line is that of the rest: what a killed process or a full disk has left is written anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from looptrans.version import __version__

VARIABLE = "LOOPTRANS_CACHE_DIR"
FOLDER = "looptrans"
ABANDONED = 3600.0
"""After how many seconds a temporary file is taken to be one that a killed process has left."""

_LAST_LINE = re.compile(rb"# looptrans cache: (\S+) ([0-9a-f]{64})\n\Z")
_TEMPORARY = ".looptrans-"


@dataclass(frozen=True, slots=True)
class Kept:
    """A module in the cache.

    Attributes:
        name: What its launcher is called.
        text: The module, as it was emitted.
        path: The file it lies in, with one more line.
    """

    name: str
    text: str
    path: Path


def cache_folder() -> Path:
    """Return the directory that emitted modules are kept in; it need not be there.

    LOOPTRANS_CACHE_DIR, else `looptrans` in XDG_CACHE_HOME, else in LOCALAPPDATA on Windows, else
    in ~/.cache.

    Raises:
        RuntimeError: The user has no home directory.
    """
    own = os.environ.get(VARIABLE)
    if own:
        return Path(own).absolute()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(shared):  # the standard wants a path that is not absolute to be ignored
        shared = os.environ.get("LOCALAPPDATA", "") if os.name == "nt" else ""
    return (Path(shared) if shared else Path.home() / ".cache") / FOLDER


def cache_key(text: str, function: str | None, name: str) -> str:
    """Return the name under which the module of a listing is kept, without `.py`.

    Args:
        text: The listing.
        function: Which function of it, where one is named.
        name: What the text is called; bare loops are named after it.
    """
    digest = hashlib.sha256()
    for part in (__version__, _own_sources(), name, function or "", text):
        data = part.encode("utf-8", errors="surrogatepass")
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()


def _own_sources() -> str:
    """Return what changes whenever a file of this package does.

    Sizes and times stand for contents: reading them all would take longer than a kept module does.
    """
    package = str(Path(__file__).resolve().parents[2])
    return repr(sorted(_files(package, "")))


def _files(folder: str, prefix: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                state = entry.stat()
                yield prefix + entry.name, state.st_size, state.st_mtime_ns
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _files(entry.path, f"{prefix}{entry.name}/")


def read_kept(key: str) -> Kept | None:
    """Return the module kept under a key, or None where there is none that can be believed."""
    try:
        path = cache_folder() / f"{key}.py"
        data = path.read_bytes()
    except (OSError, RuntimeError):
        return None
    found = _LAST_LINE.search(data)
    if found is None:
        return None
    body = data[: found.start()]
    if _digest(found[1], body) != found[2]:
        return None
    return Kept(found[1].decode(), body.decode("utf-8"), path)


def keep(key: str, name: str, text: str) -> Kept:
    """Keep a module under a key; where the cache cannot be written, until this process ends."""
    body, title = text.encode("utf-8"), name.encode("utf-8")
    last = b"# looptrans cache: %s %s\n" % (title, _digest(title, body))
    try:
        folder = cache_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{key}.py"
        _write_whole(path, body + last)
        _remove_abandoned(folder)
    except (OSError, RuntimeError):
        path = _folder_of_this_process() / f"{key}.py"
        _write_whole(path, body + last)
    return Kept(name, text, path)


def _digest(name: bytes, body: bytes) -> bytes:
    return hashlib.sha256(name + b"\n" + body).hexdigest().encode()


def _write_whole(path: Path, data: bytes) -> None:
    """Write a file beside `path` and give it that name once it is complete."""
    handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _remove_abandoned(folder: Path) -> None:
    """Remove what processes that were killed while they wrote have left."""
    now = time.time()
    for left in folder.glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):
            if now - left.stat().st_mtime > ABANDONED:
                left.unlink()


def _folder_of_this_process() -> Path:
    """Return a new directory that is removed when the process ends."""
    import atexit
    import shutil

    folder = tempfile.mkdtemp(prefix="looptrans-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
