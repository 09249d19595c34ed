"""The blocks of a loop: every one that has an iteration is visited once, full ones without a mask.

Compared with the domain, enumerated here from what the listing says; for two of the masks also by
isl, for all sizes at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product

import islpy as isl
import numpy as np
import pytest

from looptrans.blocks.block_ir.expr import Binary, Call, Edge, Expr, Name, Number, Scalar, kind_of
from looptrans.blocks.block_ir.ops import Let, Op, TileLoop
from looptrans.blocks.block_ir.program import Kernel
from looptrans.emit.listing import lowered
from tests.analysis import program
from tests.visits import Integers, Visit, visits

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Mask:
    """A listing and what it asks for.

    Attributes:
        text: The listing; its loop over elements is `j`.
        sizes: Sizes to try it on.
        domain: Whether row i of the listing asks for element j.
        is_tight: Whether no block without an iteration is visited, and no full one with a mask.
        element: What the iteration number of a row and of a j is called in the listing, where the
            loop was brought to steps of 1.
        memory: What the integer arrays hold.
    """

    text: str
    sizes: tuple[Sizes, ...]
    domain: Callable[[int, int, Sizes], bool]
    element: Callable[[int, int, Sizes], tuple[int, int]] = lambda i, j, n: (i, j)
    memory: Callable[[Sizes], dict[str, Integers]] = lambda n: {}
    is_tight: bool = True


def _sum(j: str, more: str = "", rows: str = "0, M") -> str:
    return f"""\
def f(X: Float[Array, "M N"]{more}):
    y = zeros(M)
    for i in range({rows}):
        for j in range({j}):
            y[i] = y[i] + X[i, j]
    return y
"""


def _guarded(*guards: str, more: str = "") -> str:
    ifs = "".join("    " * (3 + n) + f"if {guard}:\n" for n, guard in enumerate(guards))
    indent = "    " * (3 + len(guards))
    return f"""\
def f(X: Float[Array, "M N"]{more}):
    y = zeros(M)
    for i in range(M):
        for j in range(N):
{ifs}{indent}y[i] = y[i] + X[i, j]
    return y
"""


def _greatest(score: str, more: str = "") -> str:
    return f"""\
def f(X: Float[Array, "M N"]{more}):
    y = full(M, -inf)
    for i in range(M):
        for j in range(N):
            s = {score}
            y[i] = max(y[i], s)
    return y
"""


def _attention(j: str, score: str) -> str:
    return f"""\
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], X: Float[Array, "N D"], W: int):
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range({j}):
            s = {score}
            t = max(m, s)
            l = l * exp(m - t) + exp(s - t) if t > -inf else l
            for d in range(D):
                O[i, d] = O[i, d] * exp(m - t) + exp(s - t) * X[j, d] if t > -inf else O[i, d]
            m = t
        for d in range(D):
            O[i, d] = O[i, d] / l if l != 0.0 else 0.0
    return O
"""


def _passes(guard: str) -> str:
    score = f"            if {guard}:\n                s = {DOT}"
    return f"""\
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], X: Float[Array, "N D"], W: int):
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        for j in range(N):
{score}
                m = max(m, s)
        l = 0.0
        for j in range(N):
{score}
                l = l + exp(s - m)
        for j in range(N):
{score}
                for d in range(D):
                    O[i, d] = O[i, d] + exp(s - m) / l * X[j, d]
    return O
"""


DOT = "sum(Q[i, e] * K[j, e] for e in range(E))"
SQUARES = [{"M": m, "N": n} for m, n in [(13, 13), (7, 24), (24, 7), (1, 16), (16, 1), (9, 0)]]
WIDE = [{"M": m, "N": n} for m, n in [(13, 13), (7, 24), (12, 12), (1, 16)]]
TOGETHER = [{**n, "E": 2, "D": 3} for n in SQUARES]
LENGTHS = [{"B": 4, "M": 9, "N": 11}, {"B": 1, "M": 5, "N": 3}]


def _with(name: str, *values: int, sizes: list[dict[str, int]] = SQUARES) -> tuple[Sizes, ...]:
    return tuple({**n, name: value} for n in sizes for value in values)


def _lengths(n: Sizes) -> dict[str, Integers]:
    some = np.array([5, 0, n["N"], 3] * n["M"])[: max(n["B"], n["M"])]
    return {"n": np.minimum(some, n["N"])}


WINDOW, BAND, PREFIX = (
    lambda i, j, n: i - n["W"] < j <= i,
    lambda i, j, n: abs(i - j) <= n["W"],
    lambda i, j, n: j < max(n["P"], i + 1),
)
CAUSAL: Callable[[int, int, Sizes], bool] = lambda i, j, n: j <= i  # noqa: E731
STRIDED: Callable[[int, int, Sizes], tuple[int, int]] = lambda i, j, n: (3 * i, j)  # noqa: E731

MASKS = {
    "all": Mask(_sum("0, N"), tuple(SQUARES), lambda i, j, n: True),
    "late": Mask(_sum("3, N"), tuple(SQUARES), lambda i, j, n: j >= 3),
    "top left": Mask(_sum("0, min(N, i + 1)"), tuple(SQUARES), CAUSAL),
    "bottom right": Mask(
        _sum("0, min(N, i + N - M + 1)"),
        tuple(SQUARES),
        lambda i, j, n: j <= i + n["N"] - n["M"],
    ),
    "window": Mask(
        _sum("max(0, i - W + 1), min(N, i + 1)", ", W: int"), _with("W", 1, 4, 40), WINDOW
    ),
    "band": Mask(_sum("max(0, i - W), min(N, i + W + 1)", ", W: int"), _with("W", 0, 5, 40), BAND),
    "prefix": Mask(_sum("0, min(N, max(P, i + 1))", ", P: int"), _with("P", 0, 6, 40), PREFIX),
    "from the diagonal": Mask(_sum("i, N"), tuple(SQUARES), lambda i, j, n: j >= i),
    "falling end": Mask(_sum("0, N - i"), tuple(SQUARES), lambda i, j, n: i + j < n["N"]),
    "falling start": Mask(
        _sum("max(0, N - i - 1), N"), tuple(SQUARES), lambda i, j, n: i + j >= n["N"] - 1
    ),
    "strided rows": Mask(
        _sum("0, min(N, i + 1)", rows="0, M, 3"), tuple(SQUARES), CAUSAL, element=STRIDED
    ),
    "rows backwards": Mask(
        _sum("0, min(N, i + 1)", rows="M - 1, -1, -1"),
        tuple(SQUARES),
        CAUSAL,
        element=lambda i, j, n: (n["M"] - 1 - i, j),
    ),
    "later rows": Mask(_sum("0, min(N, i + 1)", rows="2, M"), tuple(SQUARES), CAUSAL),
    "strided elements": Mask(
        _sum("1, N, 2"),
        tuple(SQUARES),
        lambda i, j, n: True,
        element=lambda i, j, n: (i, 2 * j + 1),
    ),
    "strided window": Mask(
        _sum("i, N, 2"), tuple(WIDE), lambda i, j, n: True, element=lambda i, j, n: (i, i + 2 * j)
    ),
    "steep": Mask(_sum("0, min(N, 2 * i + 1)"), tuple(SQUARES), lambda i, j, n: j <= 2 * i),
    "steep start": Mask(_sum("2 * i, N"), tuple(SQUARES), lambda i, j, n: j >= 2 * i),
    "blocks": Mask(
        _sum("0, min(N, i // 3 * 3 + 3)"), tuple(SQUARES), lambda i, j, n: j // 3 <= i // 3
    ),
    "remainder": Mask(_sum("0, min(N, i % 3 + 1)"), tuple(SQUARES), lambda i, j, n: j <= i % 3),
    "guard": Mask(_guarded("j <= i"), tuple(SQUARES), CAUSAL),
    "guard of two": Mask(
        _guarded("j <= i and i - j < W", more=", W: int"), _with("W", 1, 4, 40), WINDOW
    ),
    "ternary": Mask(_greatest("X[i, j] if j <= i else -inf"), tuple(SQUARES), CAUSAL),
    "ternary turned": Mask(_greatest("-inf if j > i else X[i, j]"), tuple(SQUARES), CAUSAL),
    "ternary of two": Mask(
        _greatest("X[i, j] if j <= i and i - j < W else -inf", ", W: int"),
        _with("W", 1, 4, 40),
        WINDOW,
    ),
    "where": Mask(_greatest("where(j <= i, X[i, j], -inf)"), tuple(SQUARES), CAUSAL),
    "attention, window": Mask(
        _attention("max(0, i - W + 1), min(N, i + 1)", DOT),
        _with("W", 1, 4, 40, sizes=TOGETHER),
        WINDOW,
    ),
    "attention, ternary window": Mask(
        _attention("N", f"{DOT} if j <= i and j > i - W else -inf"),
        _with("W", 1, 4, 40, sizes=TOGETHER),
        WINDOW,
    ),
    "lengths": Mask(
        """\
def f(X: Float[Array, "B M N"], n: Int[Array, "B", "0:N+1"]):
    y = zeros((B, M))
    for b in range(B):
        for i in range(M):
            for j in range(min(n[b], i + 1)):
                y[b, i] = y[b, i] + X[b, i, j]
    return y
""",
        tuple(LENGTHS),
        lambda i, j, n: j < min(_lengths(n)["n"][n["b"]], i + 1),
        memory=_lengths,
    ),
    "row lengths": Mask(
        _sum("n[i]", ', n: Int[Array, "M", "0:N+1"]'),
        tuple({**n, "B": 1} for n in SQUARES),
        lambda i, j, n: j < _lengths(n)["n"][i],
        memory=_lengths,
    ),
    "copy": Mask(
        """\
def f(X: Float[Array, "M N"], W: int):
    Y = zeros((M, N))
    for i in range(M):
        for j in range(max(0, i - W), min(N, i + W + 1)):
            Y[i, j] = 2.0 * X[i, j]
    return Y
""",
        _with("W", 0, 5, 40),
        BAND,
    ),
    # Rows far apart, empty rows, and masks that are no bounds: right, if with blocks to spare.
    "gaps": Mask(
        _sum("3 * i, min(N, 3 * i + 2)"),
        tuple(SQUARES),
        lambda i, j, n: 0 <= j - 3 * i < 2,
        is_tight=False,
    ),
    "ends before it begins": Mask(
        _sum("2 * i, min(N, i + 6)"),
        tuple(SQUARES),
        lambda i, j, n: 2 * i <= j < i + 6,
        is_tight=False,
    ),
    "no window": Mask(
        _sum("max(0, i - W + 1), min(N, i + 1)", ", W: int"),
        _with("W", 0),
        WINDOW,
        is_tight=False,
    ),
    "guard in a guard": Mask(
        _guarded("i - j < W", "j <= i", more=", W: int"),
        _with("W", 1, 4, 40),
        WINDOW,
    ),
    "either": Mask(_guarded("j <= i or j < P", more=", P: int"), _with("P", 0, 6, 40), PREFIX),
    "either, of a maximum": Mask(
        _guarded("j < max(i + 1, P)", more=", P: int"), _with("P", 0, 6, 40), PREFIX
    ),
    "either, ternary": Mask(
        _greatest("X[i, j] if j <= i or j < P else -inf", ", P: int"),
        _with("P", 0, 6, 40),
        PREFIX,
    ),
    "first rows are free": Mask(
        _guarded("j >= i or i < P", more=", P: int"),
        _with("P", 0, 6, 40),
        lambda i, j, n: j >= i or i < n["P"],
    ),
    "last rows are free": Mask(
        _guarded("P <= i or j <= i", more=", P: int"),
        _with("P", 0, 6, 40),
        lambda i, j, n: j <= i or i >= n["P"],
    ),
    "first rows go on": Mask(
        _guarded("j <= i or i < P", more=", P: int"),
        _with("P", 0, 6, 40),
        lambda i, j, n: j <= i or i < n["P"],
    ),
    "a gap": Mask(
        _guarded("j <= i or j > i + 3"),
        tuple(SQUARES),
        lambda i, j, n: j <= i or j > i + 3,
        is_tight=False,
    ),
    "attention, guarded": Mask(
        _passes("j <= i and j > i - W"), _with("W", 1, 4, 40, sizes=TOGETHER), WINDOW
    ),
    "some rows": Mask(_guarded("i >= 3"), tuple(SQUARES), lambda i, j, n: i >= 3, is_tight=False),
    "in the sum": Mask(
        _guarded("j < N").replace("X[i, j]\n", "(X[i, j] if j <= i else 0.0)\n"),
        tuple(SQUARES),
        CAUSAL,
        is_tight=False,
    ),
    "in the maximum": Mask(
        _greatest("0.0").replace("y[i], s", "y[i], X[i, j] if j <= i else -inf"),
        tuple(SQUARES),
        CAUSAL,
        is_tight=False,
    ),
}
BLOCKS = [(1, 1), (4, 3), (3, 8), (16, 4), (32, 32)]


@cache
def kernel(text: str) -> Kernel:
    (found,) = lowered(program(text)).kernels
    return found


def sizes_of_blocks(found: Kernel, rows: int, elements: int) -> dict[str, int]:
    size = {"rows": rows, "tile": elements, "lanes": 4}
    return {dim.block: size[dim.role] for dim in found.dims if dim.block is not None}


def check(visit: Visit, mask: Mask, sizes: Sizes, width: int) -> None:
    """Compare what a program visits with its part of the domain."""
    (rows,) = (own for name, own in visit.places.items() if name != "b")
    here = {**sizes, "b": visit.places["b"].start} if "b" in visit.places else sizes

    def inside(i: int, j: int) -> bool:
        row, element = mask.element(i, j, here)
        return 0 <= element < here["N"] and mask.domain(row, element, here)

    asked = {(i, j) for i in rows for j in range(100) if inside(i, j)}
    seen: set[int] = set()
    for block in visit.blocks:
        own = range(block.first, block.first + width)
        assert seen.isdisjoint(own), f"{block} is visited twice"
        seen |= set(own)
        within = [(i, j) in asked for i in rows for j in own]
        if mask.is_tight:
            assert any(within), f"{block} has no iteration"
            assert (block.kind == "full") == all(within), block
    assert {j for _, j in asked} <= seen
    elements = {mask.element(i, j, here) for i, j in asked}
    lead = (here["b"],) if "b" in here else ()
    if "M N" in mask.text:
        assert visit.elements("X") == {(*lead, *each) for each in elements}
    else:
        # K and X of attention are read for all rows at once.
        columns = {j for _, j in elements}
        assert columns <= {j for j, _ in visit.elements("X")} <= set(range(here["N"]))
    if "Y" in mask.text:
        assert visit.elements("Y", is_write=True) == elements


@pytest.mark.parametrize("name", MASKS)
def test_what_is_visited_is_the_domain(name: str) -> None:
    mask = MASKS[name]
    found = kernel(mask.text)
    programs = 0
    for sizes, (rows, elements) in product(mask.sizes, BLOCKS):
        blocks = sizes_of_blocks(found, rows, elements)
        for visit in visits(found, sizes, blocks, mask.memory(sizes)):
            check(visit, mask, sizes, elements)
            programs += 1
    assert programs


# For all sizes at once

WIDTHS = [(4, 8), (8, 3)]


class Bounds:
    """The bounds of loops as isl functions of p, the number of the block of rows."""

    def __init__(self, ops: tuple[Op, ...], blocks: Mapping[str, int], names: list[str]) -> None:
        self.blocks = blocks
        self.names = names
        space = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=["p"], params=names)
        self.space = isl.LocalSpace.from_space(space)
        self.named: dict[str, isl.PwAff] = {}
        for op in ops:
            if isinstance(op, Let) and kind_of(op.value) == "int":
                self.named[op.name] = self.of(op.value)

    def number(self, value: int) -> isl.PwAff:
        return isl.PwAff.from_aff(
            isl.Aff.zero_on_domain(self.space).set_constant_val(isl.Val(value))
        )

    def variable(self, kind: isl.dim_type, place: int) -> isl.PwAff:
        return isl.PwAff.from_aff(isl.Aff.var_on_domain(self.space, kind, place))

    def of(self, expr: Expr) -> isl.PwAff:
        match expr:
            case Number(value):
                return self.number(int(value))
            case Scalar(name) if name in self.blocks:
                return self.number(self.blocks[name])
            case Scalar(name):
                return self.variable(isl.dim_type.param, self.names.index(name))
            case Name(name):
                return self.named[name]
            case Edge(dim, which):
                assert dim.block is not None
                size = self.number(self.blocks[dim.block])
                first = self.variable(isl.dim_type.set, 0).mul(size)
                stop = self.variable(isl.dim_type.param, self.names.index("M"))
                return first if which == "first" else first.add(size).min(stop).sub(self.number(1))
            case Binary("//", left, right):
                return self.of(left).tdiv_q(self.of(right))
            case Binary("+", left, right):
                return self.of(left).add(self.of(right))
            case Binary("-", left, right):
                return self.of(left).sub(self.of(right))
            case Binary("*", left, right):
                return self.of(left).mul(self.of(right))
            case Call("max", (left, right)):
                return self.of(left).max(self.of(right))
            case Call("min", (left, right)):
                return self.of(left).min(self.of(right))
            case _:
                raise AssertionError(expr)


@pytest.mark.parametrize(("rows", "width"), WIDTHS)
@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("top left", "0 <= j < N and j <= i"),
        ("bottom right", "0 <= j < N and j <= i + N - M"),
        ("window", "0 <= j < N and i - W < j <= i"),
        ("band", "0 <= j < N and i - W <= j <= i + W"),
    ],
)
def test_what_is_visited_for_all_sizes(name: str, inside: str, rows: int, width: int) -> None:
    found = kernel(MASKS[name].text)
    names = ["M", "N", "W"]
    bounds = Bounds(found.body, sizes_of_blocks(found, rows, width), names)
    given = "[M, N, W] ->"
    exists = f"0 <= i < M and {rows} * p <= i < {rows} * p + {rows}"
    own = f"{exists} and f <= j < f + {width}"
    context = isl.Set(f"{given} {{ [p] : p >= 0 and {rows} * p < M and N >= 0 and W >= 1 }}")
    every = isl.Map(f"{given} {{ [s] -> [f] : exists k : k >= 0 and f = s + {width} * k }}")
    below = isl.Map(f"{given} {{ [t] -> [f] : f < t }}")
    some = isl.Map(f"{given} {{ [p] -> [f] : exists i, j : {own} and {inside} }}")
    not_all = isl.Map(f"{given} {{ [p] -> [f] : exists i, j : {own} and not ({inside}) }}")
    asked = isl.Map(f"{given} {{ [p] -> [j] : exists i : {exists} and {inside} }}")
    held = isl.Map(f"{given} {{ [f] -> [j] : f <= j < f + {width} }}")
    overlap = isl.Map(f"{given} {{ [f] -> [g] : f < g < f + {width} }}")

    loops = [op for op in found.body if isinstance(op, TileLoop)]
    none = isl.Map(f"{given} {{ [p] -> [f] : 1 = 0 }}")
    visited = {"full": none, "boundary": none}
    for loop in loops:
        start, stop = (isl.Map.from_pw_aff(bounds.of(end)) for end in (loop.start, loop.stop))
        blocks = start.apply_range(every).intersect(stop.apply_range(below))
        blocks = blocks.intersect_domain(context)
        assert blocks.intersect(visited["full"].union(visited["boundary"])).is_empty()
        visited[loop.kind] = visited[loop.kind].union(blocks)
    both = visited["full"].union(visited["boundary"])
    assert not both.is_empty()
    assert both.apply_range(overlap).intersect(both).is_empty()
    assert both.is_subset(some)
    assert asked.intersect_domain(context).is_subset(both.apply_range(held))
    assert visited["full"].is_equal(both.subtract(not_all))
