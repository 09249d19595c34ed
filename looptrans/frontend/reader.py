"""From a path on the command line to the text of a listing."""

from __future__ import annotations

import os
import sys

from looptrans.frontend.mistakes import UnreadableFile
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.source import Source, as_named

LARGEST = 1_000_000


def read_source(target: str) -> tuple[Source, str | None]:
    """Read the listing that `FILE`, `FILE::FUNCTION` or `-` names.

    Returns:
        The source, and the function's name where one is given.

    Raises:
        ListingError: The file is missing, no regular file, too large, or not UTF-8 text.
    """
    path, separator, function = target.partition("::")
    data = _standard_input() if path == "-" else _file(path)
    name = "<stdin>" if path == "-" else path
    if len(data) > LARGEST:
        raise _unreadable(name, "it is larger than 1 MB", "a listing is a short text file")
    if b"\0" in data:
        raise _unreadable(name, "it is a binary file", "a listing is Python text")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"it is not UTF-8 text (byte {error.start} is 0x{data[error.start]:02x})"
        raise _unreadable(name, where, "save the file as UTF-8") from None
    return Source(name, text), (as_named(function) if separator else None)


def _standard_input() -> bytes:
    try:
        return sys.stdin.buffer.read(LARGEST + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise _unreadable("<stdin>", reason, "pipe the listing into it") from None


def _file(path: str) -> bytes:
    try:
        if os.path.isdir(path):
            raise _unreadable(path, "it is a directory", "name a file in it")
        with open(path, "rb") as file:
            return file.read(LARGEST + 1)
    except FileNotFoundError:
        raise _unreadable(path, "there is no such file", "check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _unreadable(path, reason.lower(), "check the path and its permissions") from None


def _unreadable(name: str, reason: str, remedy: str) -> ListingError:
    mistake = UnreadableFile(f"cannot read {name or 'the listing'}: {reason}", None, remedy=remedy)
    return ListingError([mistake], Source("", ""))
