"""Every dependence of every listing in specs/ and of hundreds of random nests, pair by pair."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pytest

from looptrans.analysis.budget import DEFAULT_SECONDS, BudgetExceeded
from looptrans.frontend import load
from tests.analysis import BASIC
from tests.oracle.compare import SECONDS, compare, weight
from tests.oracle.nests import made

CHUNK = 20
# What is heavier takes the analysis seconds; `make fuzz` has it, and LOOPTRANS_TEST_ALL=1 some.
LIGHT = 12
HEAVIEST = 200 if "LOOPTRANS_TEST_ALL" in os.environ else LIGHT
_COUNTS = {(False, False): 220, (True, False): 120, (False, True): 120, (True, True): 60}
CHUNKS = [
    pytest.param(
        *variant,
        chunk,
        id=f"{'guards-' * variant[0]}{'opaque-' * variant[1]}{chunk}",
    )
    for variant, count in _COUNTS.items()
    for chunk in range(count // CHUNK)
]


def sizes_to_try(names: list[str]) -> list[dict[str, int]]:
    """Return some sizes, zero and one extents among them, each extent in turn."""
    found = [dict.fromkeys(names, 2), {n: 2 + k % 3 for k, n in enumerate(names)}]
    found += [dict.fromkeys(names, 1), dict.fromkeys(names, 0)]
    for name, size in product(names, (0, 1, 4)):
        found.append({**dict.fromkeys(names, 2), name: size})
    return list({tuple(sizes.items()): sizes for sizes in found}.values())


@pytest.mark.parametrize("path", BASIC, ids=lambda path: path.stem)
def test_listings_of_specs(path: Path) -> None:
    names = [p.name for p in load(str(path)).parameters if p.is_integer]
    tried = sizes_to_try(names)
    # Rows of more than 512 would take minutes, and have no other dependences than short ones.
    text = path.read_text().replace("    assert F > 512\n", "")
    # Five loops, or a dozen statements, at four extents each would take minutes, and show nothing
    # that two do not.
    for sizes in tried[:4] if "H" in names or path.stem.startswith("flash") else tried:
        arrays = {}
        random = Random(0)
        if path.stem.endswith("cross_entropy"):
            labels = [random.randrange(max(sizes["V"], 1)) for _ in range(sizes["N"])]
            arrays = {"y": np.array(labels, np.int64)}
        if path.stem == "attention_lengths":
            lengths = [random.randrange(sizes["N"] + 1) for _ in range(sizes["B"])]
            arrays = {"n_kv": np.array(lengths, np.int64)}
        if "R" in names:
            sizes["H"] = sizes["G"] * sizes["R"]
        compare(
            text,
            sizes,
            arrays,
            frozenset(),
            witnesses=sizes["N"] == 2,
            seconds=DEFAULT_SECONDS,
        )


def test_at_least_five_hundred_nests() -> None:
    assert sum(count // CHUNK * CHUNK for count in _COUNTS.values()) >= 500


@pytest.mark.parametrize("data_guards, opaque, chunk", CHUNKS)
def test_random_nests(data_guards: bool, opaque: bool, chunk: int) -> None:
    random = Random(f"{data_guards} {opaque} {chunk}")
    slow = 0
    # To fork a process that holds all that the tests hold takes longer than such a nest does.
    seconds = SECONDS if HEAVIEST > LIGHT else DEFAULT_SECONDS
    for number in range(CHUNK):
        nest = made(random, data_guards=data_guards, opaque=opaque)
        while weight(nest.source) > HEAVIEST:
            nest = made(random, data_guards=data_guards, opaque=opaque)
        try:
            compare(
                nest.source,
                nest.sizes,
                nest.arrays,
                nest.features,
                witnesses=number % 10 == 0,
                seconds=seconds,
            )
        except BudgetExceeded:
            slow += 1
    # How many run out of time depends on the machine as well; three in one chunk are too many.
    assert slow <= 2, f"{slow} of {CHUNK} took too long"
