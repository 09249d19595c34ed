"""Arrays in NumPy archives (`.npz`): read without pickles, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from looptrans.executor.errors import UnreadableInputs

Values = np.ndarray[Any, Any]

REMEDY = 'write it with numpy.savez("in.npz", Q=Q, K=K), plain arrays by argument name'


def read_archive(path: str) -> dict[str, Values]:
    """Read all arrays of an archive.

    Raises:
        UnreadableInputs: The file is missing, is no archive, or holds pickled objects.
    """
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise UnreadableInputs(f"{path} holds one array without a name", None, remedy=REMEDY)
        with loaded as archive:
            return {name: archive[name] for name in archive.files}
    except OSError as error:
        reason = error.strerror.lower() if error.strerror else "it is no archive"
        raise UnreadableInputs(f"cannot read {path}: {reason}", None, remedy=REMEDY) from None
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, MemoryError, TypeError) as error:
        reason = "it is no archive of plain arrays"
        if "Object arrays" in str(error):
            reason = "it holds pickled objects, which could run anything"
        raise UnreadableInputs(f"cannot read {path}: {reason}", None, remedy=REMEDY) from None


def write_archive(path: str, arrays: Mapping[str, Values]) -> None:
    """Write arrays to a file beside `path` and give it that name once it is complete.

    A link is followed; what is there already and is no file (a device, a pipe) stays.

    Raises:
        UnreadableInputs: The file cannot be written.
    """
    shown, path = path, os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        what = "is a directory" if os.path.isdir(path) else "is no regular file"
        raise _unwritable(shown, what)
    folder = os.path.dirname(os.path.abspath(path))
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=".looptrans-", suffix=".npz", dir=folder)
        with os.fdopen(handle, "wb") as file:
            _write(file, arrays)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        raise _unwritable(shown, (error.strerror or str(error)).lower()) from None
    except BaseException:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        raise


def _unwritable(path: str, reason: str) -> UnreadableInputs:
    return UnreadableInputs(
        f"cannot write {path}: {reason}",
        None,
        remedy="name a file in a folder that exists and may be written",
    )


def _write(file: IO[bytes], arrays: Mapping[str, Values]) -> None:
    """Write as `numpy.savez` does, but any name will do, and the time is not recorded."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, values in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")
            with archive.open(member, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asarray(values), allow_pickle=False)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
