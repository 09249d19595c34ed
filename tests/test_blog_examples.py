"""The pages of blog_examples: what they show is what the tool says, and their stages are attention.

LOOPTRANS_UPDATE_GOLDENS=1 rewrites the outputs, the stages and the pictures; it wants the pages in
order, so without `-n`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from looptrans.executor import RaceLog, execute
from looptrans.frontend import load
from looptrans.frontend.placement import annotated_placement
from looptrans.ir.listing import listing
from tests.pages import FOLDER, PAGES, ROOT, furnish, made_by, replay, stored
from tests.references import attention, stencil

Array = NDArray[Any]
UPDATE = bool(os.environ.get("LOOPTRANS_UPDATE_GOLDENS"))
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)[^)]*\)")
STAGES = ROOT / FOLDER / "stages"
STENCIL = ("4_interchanged", "4_skewed")
WRONG = ("1_listing", "5_as_printed")  # their pages say why
FORWARD = "11_forward"  # what the backward stages are handed
BACKWARD = ("11_backward", "12_one_nest", "12_interchanged", "13_two_nests", "13_atomics")
ATTENTION = sorted(
    {path.stem for path in STAGES.glob("[0-9]*.py")} - {*STENCIL, *WRONG, FORWARD, *BACKWARD}
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_what_its_commands_and_python_blocks_print(page: Path, tmp_path: Path) -> None:
    furnish(tmp_path, page)
    text = replay(page, tmp_path)
    if UPDATE:
        assert "PYTEST_XDIST_WORKER" not in os.environ, "update without -n: pages build on pages"
        page.write_text(text, encoding="utf-8")
        for name in made_by(page):
            shutil.copy(tmp_path / name, ROOT / name)
    assert page.read_text(encoding="utf-8") == text
    for name in made_by(page):
        assert (ROOT / name).read_text(encoding="utf-8") == (tmp_path / name).read_text(
            encoding="utf-8"
        ), f"{name} is not what {page.name} makes; LOOPTRANS_UPDATE_GOLDENS=1 rewrites it"


def test_replaying_puts_right_what_a_page_shows_wrongly(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ printf '1\\n2\\n3\\n4\\n'\n1\n...\n5\n$ false\n"
        "$ echo so \\\n  on\noff\n```\n\n"
        "```python\nx = 6\nprint(x * 7)\n```\n\n```text\n41\n```\n\n```python\nprint(x)\n```\n",
        encoding="utf-8",
    )
    assert replay(page, tmp_path) == (
        "```console\n$ printf '1\\n2\\n3\\n4\\n'\n1\n...\n4\n$ false\n(exit status 1)\n"
        "$ echo so \\\n  on\nso on\n```\n\n"
        "```python\nx = 6\nprint(x * 7)\n```\n\n```text\n42\n```\n\n"
        "```python\nprint(x)\n```\n\n```text\n6\n```\n"
    )


def test_every_stage_and_picture_is_made_by_one_page() -> None:
    made = Counter(name for page in PAGES for name in made_by(page))
    assert sorted(made) == stored()
    assert set(made.values()) == {1}
    for page in PAGES:
        number = page.name.split("_")[0].lstrip("0")
        assert {Path(name).name.split("_")[0] for name in made_by(page)} <= {number}


def test_every_link_and_picture_of_the_pages_exists() -> None:
    for page in (ROOT / FOLDER / "README.md", *PAGES):
        links = LINK.findall(page.read_text(encoding="utf-8"))
        assert links, page
        for link in links:
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_pages_are_a_chain_and_the_index_names_them_all() -> None:
    index = (ROOT / FOLDER / "README.md").read_text(encoding="utf-8")
    assert [link for link in LINK.findall(index) if link[0].isdigit()] == [p.name for p in PAGES]
    for page, following in pairwise(PAGES):
        assert LINK.findall(page.read_text(encoding="utf-8"))[-1] == following.name


def test_the_first_page_shows_the_file_that_later_pages_import() -> None:
    code = (ROOT / FOLDER / "softmax.py").read_text(encoding="utf-8")
    assert f"```python\n{code}```\n" in PAGES[0].read_text(encoding="utf-8")


def test_the_placed_stage_is_the_nest_of_the_mended_listing_of_specs() -> None:
    def bare(text: str) -> list[str]:
        nest = text[text.index("    for i in") :]
        code = (re.sub(r"\s*#.*", "", line) for line in nest.splitlines())
        return [line for line in code if line]

    by_hand = listing(load(str(ROOT / "specs" / "flash_forward.py")))
    assert bare((STAGES / "3_placed.py").read_text(encoding="utf-8")) == bare(by_hand)


def _error(stage: str, sizes: tuple[int, int, int, int], schedule: int | None) -> float:
    """Run a stage; return its largest error against softmax attention in float64."""
    M, N, E, D = sizes
    random = np.random.default_rng(sum(sizes))
    shapes = {"Q": (M, E), "K": (N, E), "V": (N, D)}
    inputs = {name: random.normal(size=shape) for name, shape in shapes.items()}
    races = RaceLog()
    program = load(str(STAGES / f"{stage}.py"))
    outputs = execute(program, inputs=inputs, schedule=schedule, races=races)
    assert not races.races
    wanted = attention(Q=inputs["Q"], K=inputs["K"], V=inputs["V"])
    return max(float(np.abs(values - wanted[name]).max()) for name, values in outputs.items())


@pytest.mark.parametrize("schedule", [None, 0, 1, 2, 3, 4])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (2, 3, 2, 2), (3, 5, 4, 2)])
@pytest.mark.parametrize("stage", ATTENTION)
def test_a_stage_computes_attention_without_a_race(
    stage: str, sizes: tuple[int, int, int, int], schedule: int | None
) -> None:
    assert _error(stage, sizes, schedule) < 1e-14


def _backward(Q: Array, K: Array, V: Array, dO: Array) -> dict[str, Array]:
    """Return the gradients of softmax attention by the formulas of page 11, matrix by matrix."""
    weights = np.exp(Q @ K.T)
    weights /= weights.sum(axis=1, keepdims=True)
    back = dO @ V.T
    scores = weights * (back - (weights * back).sum(axis=1, keepdims=True))
    return {"dQ": scores @ K, "dK": scores.T @ Q, "dV": weights.T @ dO}


@pytest.mark.parametrize("schedule", [None, 0, 1, 2])
@pytest.mark.parametrize("stage", BACKWARD)
def test_a_backward_stage_computes_the_gradients_without_a_race(
    stage: str, schedule: int | None
) -> None:
    M, N, E, D = 3, 5, 4, 2
    random = np.random.default_rng(0)
    shapes = {"Q": (M, E), "K": (N, E), "V": (N, D)}
    inputs = {name: random.normal(size=shape) for name, shape in shapes.items()}
    dO = random.normal(size=(M, D))
    forward = execute(load(str(STAGES / f"{FORWARD}.py")), inputs=inputs)
    assert np.allclose(forward["lse"], np.log(np.exp(inputs["Q"] @ inputs["K"].T).sum(axis=1)))
    given = {**inputs, "O": forward["O"], "lse": forward["lse"], "dO": dO}
    races = RaceLog()
    nest = load(str(STAGES / f"{stage}.py"))
    outputs = execute(nest, inputs=given, schedule=schedule, races=races)
    assert not races.races
    for name, gradient in _backward(**inputs, dO=dO).items():
        assert np.allclose(outputs[name], gradient, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("stage", WRONG)
def test_a_stage_that_a_page_calls_wrong_is_wrong(stage: str) -> None:
    assert _error(stage, (2, 3, 2, 2), None) > 1e-2


@pytest.mark.parametrize("stage", STENCIL)
def test_the_stencil_stages_are_the_stencil_bit_for_bit(stage: str) -> None:
    table = np.random.default_rng(0).normal(size=(7, 7))
    outputs = execute(load(str(STAGES / f"{stage}.py")), inputs={"A": table})
    assert np.array_equal(outputs["A"], stencil(A=table)["A"])


def test_s10_as_printed_is_wrong_by_itself() -> None:
    printed = annotated_placement(load(str(ROOT / "specs" / "flash_forward_as_printed.py")))
    random = np.random.default_rng(0)
    inputs = {n: random.normal(size=s) for n, s in {"Q": (2, 2), "K": (3, 2), "V": (3, 2)}.items()}
    outputs = execute(printed, inputs=inputs)
    wanted = attention(Q=inputs["Q"], K=inputs["K"], V=inputs["V"])
    assert np.abs(outputs["O"] - wanted["O"]).max() > 1e-2
    assert np.allclose(outputs["l"], wanted["l"], rtol=1e-14)
