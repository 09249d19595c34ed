"""Text files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import ClassVar

from looptrans.ir.diagnostic import ListingError, Mistake
from looptrans.ir.source import Source


class UnwritableFile(Mistake):
    """The file cannot be written.

    Name a file in a folder that exists and may be written. What was there before stays as it was
    until the new text is complete.
    """

    code: ClassVar[str] = "E060"
    title: ClassVar[str] = "cannot write the file"


FILE_REMEDY = "name a file in a folder that exists and may be written"
FOLDER_REMEDY = "name a folder that may be written; one that is not there is made"


def write_text(path: str, text: str, remedy: str = FILE_REMEDY) -> None:
    """Write a text to a file beside `path` and give it that name once it is complete.

    A link is followed; what is there already and is no file (a device, a pipe) is written to.

    Args:
        path: The file.
        text: The text.
        remedy: What to do where it cannot be written.

    Raises:
        ListingError: The file cannot be written.
    """
    target = os.path.realpath(path)
    try:
        if os.path.exists(target) and not os.path.isfile(target):
            with open(target, "w", encoding="utf-8") as stream:
                stream.write(text)
            return
        _replace(target, text)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        mistake = UnwritableFile(f"cannot write {path}: {reason}", None, remedy=remedy)
        raise ListingError([mistake], Source("", "")) from None


def _replace(target: str, text: str) -> None:
    handle, temporary = tempfile.mkstemp(prefix=".looptrans-", dir=os.path.dirname(target))
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _mode(target: str) -> int:
    """Return the permissions the file has, or those a new one would have."""
    if os.path.exists(target):
        return os.stat(target).st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
