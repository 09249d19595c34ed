"""Emitted modules imported from files; the text imported is the one that was checked."""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import SourceLoader
from pathlib import Path
from types import ModuleType


class _Loader(SourceLoader):
    """Imports a text as the contents of a file, and leaves no bytecode behind."""

    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self._text = text

    def get_filename(self, fullname: str) -> str:
        return self._path

    def get_data(self, path: str | bytes) -> bytes:
        return self._text.encode("utf-8")


def load_module(name: str, text: str, path: Path) -> ModuleType:
    """Import an emitted module, once for each name.

    Args:
        name: What it is called among the modules of this process.
        text: The module.
        path: The file it lies in, where triton finds the source of its kernels.
    """
    if name in sys.modules:
        return sys.modules[name]
    loader = _Loader(str(path), text)
    spec = importlib.util.spec_from_loader(name, loader, origin=str(path))
    assert spec is not None
    spec.has_location = True
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
