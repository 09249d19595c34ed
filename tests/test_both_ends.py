"""Masked blocks before and behind the full ones in one loop: where, and where not.

That every block is visited once then, and no full one masked, is in test_backward_blocks; that the
numbers are right, in the tests of the listings with windows.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from looptrans.blocks.block_ir.expr import Binary, Call, Dim, Name, Number, Scalar
from looptrans.blocks.block_ir.ops import Let, Op, Store, TileLoop, ops_in
from looptrans.emit.both_ends import both_ends
from looptrans.emit.listing import lowered
from looptrans.ir.index import Int, Param
from tests.analysis import program
from tests.test_backward_blocks import made, stored

J = Dim("j", "tile", Int(0), Param("N"), 1, block="BLOCK_J")
START, BEGUN, FULL, STOP = (
    Name(f"j_{end}", (), "int") for end in ("start", "begun", "full", "stop")
)
S, X = Name("s", ()), Name("x", ())


def three(masked: tuple[Op, ...], full: tuple[Op, ...] | None = None) -> tuple[Op, ...]:
    """Return a sum's start, its loops over blocks, and the store of what comes out."""
    before = TileLoop(J, START, Call("min", (BEGUN, STOP)), "boundary", masked, "not begun")
    between = TileLoop(J, BEGUN, FULL, "full", masked if full is None else full)
    behind = TileLoop(J, FULL, STOP, "boundary", masked, "ended")
    start = Let("s", Number(0.0))
    return (start, before, between, behind, Store("y", (), S))


def kinds(ops: tuple[Op, ...]) -> list[str]:
    return [
        op.kind + " with a pause" * bool(op.pause) for op in ops_in(ops) if isinstance(op, TileLoop)
    ]


ONE = Let("x", Scalar("a", "float"))
ADDED = Let("s", Binary("+", S, X))
SEPARATE = ["boundary", "full", "boundary"]
TOGETHER = ["full", "boundary with a pause"]


def test_sums_do_both_ends_together() -> None:
    """The masked blocks stand behind the full ones, and leave those out."""
    found = both_ends(three((ONE, ADDED)))
    assert kinds(found) == TOGETHER
    (joined,) = (op for op in found if isinstance(op, TileLoop) and op.pause)
    assert (joined.start, joined.stop, joined.pause) == (START, STOP, (BEGUN, FULL))
    assert joined.body == (ONE, ADDED)


@pytest.mark.parametrize(
    ("why", "body"),
    [
        ("the sum is looked at", (Let("x", S), ADDED)),
        ("what is added depends on it", (Let("s", Binary("+", S, S)),)),
        ("a factor in between", (ONE, Let("s", Binary("*", S, X)))),
        ("the sum on the right of a difference", (ONE, Let("s", Binary("-", X, S)))),
        ("set twice", (ONE, ADDED, Let("s", Binary("+", S, Number(1.0))))),
        ("a value of the iteration before", (ADDED, ONE)),
        ("a block that is stored", (ONE, ADDED, Store("z", (), X))),
        (
            "a sum inside of a loop inside",
            (ONE, TileLoop(J, Number(0), STOP, "full", (ADDED,))),
        ),
    ],
)
def test_what_depends_on_the_order_keeps_it(why: str, body: tuple[Op, ...]) -> None:
    assert kinds(both_ends(three(body)))[:1] == ["boundary"], why


def test_a_value_that_the_last_iteration_leaves_keeps_the_order() -> None:
    loops = three((ONE, ADDED))
    assert kinds(both_ends((*loops, Store("z", (), X)))) == SEPARATE
    assert kinds(both_ends((*loops, ONE, Store("z", (), X)))) == TOGETHER
    # The next iteration of a loop around looks at it.
    around = TileLoop(replace(J, name="i"), Number(0), STOP, "full", (Let("y", X), *loops))
    assert "boundary" in kinds(both_ends((ONE, around, Store("z", (), Name("y", ())))))


def test_full_blocks_must_add_as_well() -> None:
    inner = (ONE, Let("s", Binary("*", S, X)))
    assert kinds(both_ends(three((ONE, ADDED), inner))) == SEPARATE


def test_only_ends_that_meet() -> None:
    """Loops that visit something else, or do something else there, stay."""
    ops = three((ONE, ADDED))
    _, before, between, behind, _ = ops
    assert isinstance(before, TileLoop)
    assert isinstance(behind, TileLoop)
    others = [
        (replace(before, stop=BEGUN), between, behind),
        (before, between, replace(behind, start=BEGUN)),
        (before, between, replace(behind, body=(ADDED,))),
    ]
    for loops in others:
        assert kinds(both_ends((ops[0], *loops, ops[-1]))) == SEPARATE


@pytest.mark.parametrize("name", ["attention_causal", "attention_window", "attention_document"])
def test_kernels_of_gradients_have_two_loops(name: str) -> None:
    """Masks at both ends of a window, or of the rows that see a key, are in one loop."""
    kernels = [k for k in made(name).backward.kernels if "dK" in stored(k)]
    assert [kinds(both_ends(kernel.body)) for kernel in kernels] == [TOGETHER]


WINDOW = """
def f(X: Float[Array, "M N"], w: int):
    y = zeros((M,))
    for i in range(M):
        s = {start}
        for j in range(max(0, i - w), min(N, i + w + 1)):
            s = {step}
        y[i] = s
    return y
"""


@pytest.mark.parametrize(
    ("start", "step", "expected"),
    [
        ("0.0", "s + X[i, j]", TOGETHER),
        ("1.0", "0.5 * s + X[i, j]", []),
    ],
)
def test_from_a_listing(start: str, step: str, expected: list[str]) -> None:
    (kernel,) = lowered(program(WINDOW.format(start=start, step=step))).kernels
    assert kinds(both_ends(kernel.body)) == expected
