"""What is told by least and greatest values never says more than the cells themselves do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from looptrans.executor import prepare
from looptrans.executor.boxes import Boxes
from looptrans.executor.contracts import Integers
from looptrans.executor.spans import stays_inside
from looptrans.ir.program import Program
from tests.analysis import program, spec

SPECS = sorted(path.stem for path in (Path(__file__).parent.parent / "specs").glob("*.py"))
Shapes = dict[str, tuple[int | None, ...]]


def touched(
    of: Program, sizes: dict[str, int], integers: dict[str, Integers]
) -> dict[str, list[int]]:
    boxes = Boxes(sizes, integers)
    boxes.run(of)
    return boxes.extents


@pytest.mark.parametrize("name", SPECS)
def test_never_more_than_the_cells_say(name: str) -> None:
    """Wherever an array that is touched is a row too short, it is not said to be long enough."""
    of = spec(name)
    for seed in (0, 1):
        made = prepare(of, seed=seed)
        sizes = dict(made.integers)
        integers = {
            array.name: np.asarray(made.arrays[array.name])
            for array in of.arrays
            if array.element == "int" and array.role == "input"
        }
        cells = touched(of, sizes, integers)
        whole: Shapes = {each: tuple(box) for each, box in cells.items() if each not in integers}
        for array, box in whole.items():
            for axis, extent in enumerate(box):
                if extent:
                    short: Shapes = {
                        **whole,
                        array: (*box[:axis], (extent or 0) - 1, *box[axis + 1 :]),
                    }
                    assert not stays_inside(of, sizes, integers, short), (array, axis)


@pytest.mark.parametrize(
    "name", ["attention_document", "attention_paged", "attention_relative", "attention_naive"]
)
def test_attention_is_seen_to_stay_inside(name: str) -> None:
    of = spec(name)
    made = prepare(of)
    shapes = {array: np.shape(values) for array, values in made.arrays.items()}
    integers = {
        array.name: np.asarray(made.arrays[array.name])
        for array in of.arrays
        if array.element == "int" and array.role == "input"
    }
    assert stays_inside(of, dict(made.integers), integers, shapes)


@pytest.mark.parametrize(
    ("loops", "read", "extent", "inside"),
    [
        ("for i in range(2, N):", "i", 8, True),
        ("for i in range(2, N):", "i + 1", 8, False),
        ("for i in range(2, N):", "i - 3", 8, False),
        ("for i in range(N - 1, -1, -1):", "i", 8, True),
        ("for i in range(N - 1, -1, -1):", "N - 1 - i", 8, True),
        ("for i in range(N):", "2 * i", 15, True),
        ("for i in range(N):", "2 * i", 14, False),
        ("for i in range(N):", "i // 3", 3, True),
        ("for i in range(N):", "i // 3", 2, False),
        ("for i in range(N):", "(i + 5) % 4", 4, True),
        ("for i in range(N):", "(i + 5) % 4", 3, False),
        ("for i in range(N):", "min(i + 3, N - 1)", 8, True),
        ("for i in range(N):", "a[i]", 6, True),
        ("for i in range(N):", "a[i]", 5, False),
        ("for i in range(N):", "a[i + 1]", 6, False),
        ("for i in range(a[N]):", "i", 9, False),
        ("for i in range(5, N - 3):", "i + 100", 8, True),
    ],
)
def test_what_is_plain(loops: str, read: str, extent: int, inside: bool) -> None:
    """With N = 8 and a = (0, 5, 3, …)."""
    text = 'def f(x: Float[Array, "K"], a: Int[Array, "N"]):\n    y = zeros((N,))\n'
    text += f"    {loops}\n        y[0] = y[0] + x[{read}]\n    return y\n"
    values = {"a": np.array([0, 5, 3, 1, 0, 2, 4, 5])}
    shapes: Shapes = {"x": (extent,), "y": (8,)}
    assert stays_inside(program(text), {"N": 8, "K": extent}, values, shapes) == inside


@pytest.mark.parametrize(
    "value",
    [
        "(x[0] if a[i + 1] == 0 else 0.0)",
        "sum(x[0] for k in range(3) if a[i + k] == 0)",
        "x[0] * a[i + 1]",
        "u[a[i + 1]]",
    ],
)
def test_integers_that_are_not_there(value: str) -> None:
    """Also where nobody knows how long the array is that they are subscripts of."""
    text = 'def f(x: Float[Array, "K"], a: Int[Array, "N"], u):\n    y = zeros((N,))\n'
    text += f"    for i in range(N):\n        y[i] = {value}\n    return y\n"
    values = {"a": np.zeros(8, np.int64)}
    shapes: Shapes = {"x": (3,), "y": (8,), "a": (8,)}
    assert not stays_inside(program(text), {"N": 8, "K": 3}, values, shapes)
    near = program(text.replace("a[i + 1]", "a[i]").replace("a[i + k]", "a[i]"))
    assert stays_inside(near, {"N": 8, "K": 3}, values, shapes)
