"""What holds for the whole run of the tests."""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from looptrans.analysis import budget

# Each test works in one of several processes: threads would wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Listings and facts are many small objects that stay: to look for cycles among them all the time
# costs a twentieth of the run, and finds nothing.
gc.set_threshold(100_000, 20, 100)

# What tests compile is theirs alone: neither found in the user's cache nor left there.
if "LOOPTRANS_CACHE_DIR" not in os.environ:
    os.environ["LOOPTRANS_CACHE_DIR"] = tempfile.mkdtemp(prefix="looptrans-tests-")
    atexit.register(shutil.rmtree, os.environ["LOOPTRANS_CACHE_DIR"], ignore_errors=True)

T = TypeVar("T")
LEAST_IN_PROCESS = 25.0
_forked = budget.within_budget


def _within_budget(work: Callable[[], T], seconds: float = budget.DEFAULT_SECONDS) -> T:
    """Work in a process of its own only where a test has set a budget that may run out.

    To fork a process that holds torch, and to copy the pages it touches, takes longer than most of
    the questions that tests ask. What `looptrans` itself runs, in tests of commands, always forks.
    """
    if budget.seconds_left(seconds) < LEAST_IN_PROCESS:
        return _forked(work, seconds)
    result: T = pickle.loads(pickle.dumps(budget.in_this_process(work)))
    return result


# Before anything else imports it by name.
budget.within_budget = _within_budget


THOROUGH = Path(__file__).with_name("thorough.txt")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `make test` leave out what takes longest."""
    parser.addoption("--usual", action="store_true", help=f"without the tests in {THOROUGH.name}")


class _NoTest(pytest.Item):
    """A line of the list that names no test: fails, and says so in every process alike."""

    def runtest(self) -> None:
        raise pytest.UsageError(f"{THOROUGH.name} names what is no test: {self.name}")

    def reportinfo(self) -> tuple[Path, None, str]:
        return THOROUGH, None, self.name


def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out, and count as such, the tests in the list, each of which has to be one."""
    if not config.getoption("--usual"):
        return
    lines = THOROUGH.read_text().splitlines()
    listed = {line for line in lines if not line.startswith("#")}
    left = [item for item in items if item.nodeid in listed]
    gone = {each for each in listed if not (config.rootpath / _file(each)).exists()}
    if not any("::" in each for each in config.args):  # then files are collected as wholes
        files = {_file(item.nodeid) for item in items}
        gone |= {each for each in listed if _file(each) in files}
        gone -= {item.nodeid for item in left}
    items[:] = [item for item in items if item.nodeid not in listed]
    items += [_NoTest.from_parent(session, name=name) for name in sorted(gone)]
    config.hook.pytest_deselected(items=left)


def _file(test: str) -> str:
    return test.partition("::")[0]
