"""What makes kernels fast, seen in the block IR and in the text of the module."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache

import pytest

from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Cast,
    Dim,
    Dot,
    Expr,
    Load,
    Name,
    Number,
    Reduce,
    Scalar,
    Unary,
    Where,
    dims_of,
    walk,
)
from looptrans.blocks.block_ir.ops import (
    Branch,
    Let,
    Op,
    RowBlock,
    Store,
    TileLoop,
    exprs_of,
    ops_in,
)
from looptrans.blocks.block_ir.program import Kernel
from looptrans.blocks.passes.sharing import needed
from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.listing import Emitted, emitted
from looptrans.ir.index import Int, Param
from tests.analysis import program, spec

ATTENTION = ("attention_naive", "flash_forward", "attention", "attention_causal", "attention_gqa")
DOT = "sum(Q[i, e] * K[j, e] for e in range(E))"


@cache
def made(name: str) -> Emitted:
    return emitted(spec(name))


@cache
def made_of(text: str) -> Emitted:
    return emitted(program(text))


def only_kernel(emitted_: Emitted) -> Kernel:
    (kernel,) = emitted_.blocks.kernels
    return kernel


def loops(kernel: Kernel, kind: str) -> list[TileLoop]:
    return [op for op in kernel.body if isinstance(op, TileLoop) and op.kind == kind]


def parts(ops: Iterable[Op]) -> Iterator[Expr]:
    """Yield every expression of some operations, and everything below it."""
    for op in ops_in(ops):
        for expr in exprs_of(op):
            yield from walk(expr)


def dots(ops: Iterable[Op]) -> list[Dot]:
    return [part for part in parts(ops) if isinstance(part, Dot)]


def exponentials(ops: Iterable[Op]) -> list[Call]:
    calls = (part for part in parts(ops) if isinstance(part, Call))
    return [call for call in calls if call.function.startswith("exp")]


def divisions(ops: Iterable[Op]) -> list[Expr]:
    return [part for part in parts(ops) if isinstance(part, Binary) and part.op == "/"]


def names_in(expr: Expr) -> set[str]:
    return {part.name for part in walk(expr) if isinstance(part, Name)}


@pytest.mark.parametrize("name", ATTENTION)
def test_the_loop_of_attention(name: str) -> None:
    kernel = only_kernel(made(name))
    (full,) = loops(kernel, "full")
    (boundary,) = loops(kernel, "boundary")
    for loop in (full, boundary):
        rows = [dim for dim in kernel.grid if dim.role == "rows"]
        scores = {*rows, loop.dim}
        first, second = dots(loop.body)
        assert first.accumulator is None
        assert {first.rows, first.columns} == scores == {*dims_of(first)}
        assert second.over == loop.dim
        assert second.accumulator is not None
        (kept,) = [op for op in loop.body if isinstance(op, Let) and op.value == second]
        assert kept.name in names_in(second.accumulator)
        # One for each score; the other moves what a row has so far to its new maximum.
        over = [set(dims_of(call)) for call in exponentials(loop.body)]
        assert sorted(over, key=len) == [set(rows), scores]
        assert {call.function for call in exponentials(loop.body)} == {"exp2"}
        assert not divisions(loop.body)
    loads = [part for part in parts(full.body) if isinstance(part, Load)]
    assert loads
    for load in loads:
        assert load.mask is None or full.dim not in dims_of(load.mask)
    assert not [p for p in parts(full.body) if isinstance(p, Where) and full.dim in dims_of(p)]
    end = kernel.body.index(boundary)
    assert kernel.body.index(full) < end
    (division,) = divisions(kernel.body[end:])
    assert full.dim not in dims_of(division)


@pytest.mark.parametrize("name", ATTENTION)
def test_the_text_of_attention(name: str) -> None:
    tree = _Plain().visit(ast.parse(made(name).text))
    (kernel,) = [f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f.decorator_list]
    full, boundary = (node for node in kernel.body if isinstance(node, ast.For))
    for loop in (full, boundary):
        calls = [ast.unparse(n.func) for n in ast.walk(loop) if isinstance(n, ast.Call)]
        assert calls.count("tl.dot") == calls.count("tl.exp2") == 2
        assert not {"tl.exp", "tl.div_rn", "tl.fdiv"} & set(calls)
        assert not [n for n in ast.walk(loop) if isinstance(n, ast.Div)]
        products = [n for n in ast.walk(loop) if isinstance(n, ast.Call) and _is_dot(n)]
        products.sort(key=lambda product: product.lineno)
        assert [len(product.args) for product in products] == [2, 3]
    first = full.target
    assert isinstance(first, ast.Name)
    tile = first.id.removesuffix("_first")
    masks = {
        keyword.arg: ast.unparse(keyword.value)
        for n in ast.walk(full)
        if isinstance(n, ast.Call) and ast.unparse(n.func) == "tl.load"
        for keyword in n.keywords
        if keyword.arg == "mask"
    }
    assert not [mask for mask in masks.values() if f"{tile}[" in mask]


class _Plain(ast.NodeTransformer):
    """Leaves the form that is the default: every product in its own block."""

    def visit_If(self, node: ast.If) -> ast.If | list[ast.stmt]:
        self.generic_visit(node)
        return node.orelse if ast.unparse(node.test) == "LATE" else node


def _is_dot(call: ast.Call) -> bool:
    return ast.unparse(call.func) == "tl.dot"


def test_the_loop_of_a_matrix_product() -> None:
    kernel = only_kernel(made("matmul"))
    assert kernel.grouped
    for kind in ("full", "boundary"):
        (loop,) = loops(kernel, kind)
        (dot,) = dots(loop.body)
        (kept,) = [op for op in loop.body if isinstance(op, Let) and op.value == dot]
        assert dot.accumulator == Name(kept.name, dims_of(dot))
        assert not [part for part in parts(loop.body) if isinstance(part, Cast | Where)]
        masked = [p for p in parts(loop.body) if isinstance(p, Load) and p.mask is not None]
        over = [load for load in masked if load.mask is not None and dot.over in dims_of(load.mask)]
        assert len(over) == (2 if kind == "boundary" else 0)


# P in 16 bits only where it is known to fit


def _weighted(weight: str, before: str = "") -> str:
    return f"""\
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], c: Float[Array, "M"]):
    O = zeros((M, D))
    for i in range(M):
{before}        for j in range(N):
            s = {DOT}
            for d in range(D):
                O[i, d] = O[i, d] + {weight} * V[j, d]
    return O
"""


@pytest.mark.parametrize(
    ("weight", "fits"),
    [
        ("exp(s)", False),
        ("exp(s - c[i])", False),
        ("exp(-s)", False),
        ("s", False),
        ("tanh(s)", True),
        ("(0.5 * sin(s) - 0.5)", True),
        ("(tanh(s) + 1.0)", False),
        ("(2.0 * cos(s))", True),  # the 2 stands outside the sum
        ("(cos(s) + sin(s))", False),
        ("exp(min(s, 0.0))", True),
        ("exp(max(s, 0.0))", False),
    ],
)
def test_16_bits_hold_only_what_fits(weight: str, fits: bool) -> None:
    """What is multiplied with V is made of V's type where its size is at most 1, else float32."""
    kernel = only_kernel(made_of(_weighted(weight)))
    for kind in ("full", "boundary"):
        (loop,) = loops(kernel, kind)
        _, second = dots(loop.body)
        casts = [part for part in walk(second) if isinstance(part, Cast)]
        if fits:
            assert [part.like for part in casts] == ["V"]
            assert casts == [second.left]
            assert isinstance(second.right, Name)
        else:
            assert {(part.like, part.to) for part in casts} == {(None, "float32")}
            assert second.right in casts


CLIPPED = """\
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((M, D)); z = zeros(M)
    for i in range(M):
        for j in range(N):
            w = sum({first} * {second} for e in range(E))
            z[i] = z[i] + w
            for d in range(D):
                O[i, d] = O[i, d] + w * V[j, d]
        for d in range(D):
            O[i, d] = O[i, d] / z[i]
    return O
"""


@pytest.mark.parametrize(
    ("second", "fits"),
    [
        ("max(K[j, e], 0.0)", True),
        ("abs(min(K[j, e], 1.0))", True),
        ("(-K[j, e] if K[j, e] < 2.0 else 0.0)", True),
        ("max(K[j, e], 0.1)", False),  # 0.1 has other digits in 16 bits
        ("(max(K[j, e], 0.0) + 1.0)", False),
    ],
)
def test_what_has_the_digits_of_an_input_is_multiplied_in_its_type(second: str, fits: bool) -> None:
    text = CLIPPED.format(first="max(Q[i, e], 0.0)", second=second)
    (loop,) = loops(only_kernel(made_of(text)), "full")
    first, *_ = dots(loop.body)
    likes = {part.like for part in walk(first) if isinstance(part, Cast)}
    assert likes == ({None, "Q", "K"} if fits else {None})


QUANTIZED = """\
def f(X: Float[Array, "N F"], W: {type}, s: Float[Array, "P G"], z: Float[Array, "P G"]):
    Y = zeros((N, P))
    for n in range(N):
        for p in range(P):
            for f in range(F):
                Y[n, p] += X[n, f] * {weight}
    return Y
"""


@pytest.mark.parametrize(
    ("values", "weight", "fits"),
    [
        ('Int[Array, "P F", "-128:128"]', "W[p, f]", True),
        ('Int[Array, "P F", "-300:128"]', "W[p, f]", False),  # 299 has other digits in bfloat16
        ('Int[Array, "P F"]', "W[p, f]", False),
        ('Int[Array, "P F", "0:16"]', "(W[p, f] - z[p, f // 32]) * s[p, f // 32]", False),
        ('Float[Array, "P F"]', "(W[p, f] * s[p, f // 32])", False),
    ],
)
def test_weights_with_scales_are_an_operand_of_a_product(
    values: str, weight: str, fits: bool
) -> None:
    kernel = only_kernel(made_of(QUANTIZED.format(type=values, weight=weight)))
    for kind in ("full", "boundary"):
        (loop,) = loops(kernel, kind)
        (dot,) = dots(loop.body)
        assert {dot.rows.name, dot.columns.name} == {"n", "p"}
        casts = {part.like for part in walk(dot) if isinstance(part, Cast)}
        assert ("X" in casts) is fits


def test_products_of_a_backward_pass_with_choices_and_quotients() -> None:
    """dQ is chosen where Q is not clipped, behind the product; dw, over z, may not fit 16 bits."""
    text = CLIPPED.format(first="max(Q[i, e], 0.0)", second="max(K[j, e], 0.0)")
    kernels = emitted_with_backward(program(text)).backward.kernels
    rows = {k.name: k for k in kernels if any(isinstance(op, TileLoop) for op in ops_in(k.body))}
    rounded = {"dQ": [set(), set()], "dK_dV": [set(), {"K", "Q"}, set(), set()]}
    for name, wanted in rounded.items():
        (kernel,) = (k for n, k in rows.items() if n.endswith(f"{name}_kernel"))
        (loop,) = loops(kernel, "full")
        found = [
            {p.like for p in walk(dot) if isinstance(p, Cast) and p.like} for dot in dots(loop.body)
        ]
        assert found == wanted
        exprs = [e for op in ops_in(loop.body) for e in exprs_of(op)]
        assert not any(len(dims_of(part)) > 2 for e in exprs for part in walk(e))


@pytest.mark.parametrize("name", ATTENTION)
def test_the_weights_of_attention_fit(name: str) -> None:
    for kind in ("full", "boundary"):
        (loop,) = loops(only_kernel(made(name)), kind)
        _, second = dots(loop.body)
        assert isinstance(second.left, Cast)
        assert second.left.like == "V"
        assert isinstance(second.right, Name)
        assert second.right.holds == "V"


# A factor moves through the maximum only where it is known to be positive


def _attention(score: str, more: str = "") -> str:
    return f"""\
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]{more}):
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(N):
            s = {score}
            t = max(m, s)
            l = l * exp(m - t) + exp(s - t)
            for d in range(D):
                O[i, d] = O[i, d] * exp(m - t) + exp(s - t) * V[j, d]
            m = t
        for d in range(D):
            O[i, d] = O[i, d] / l
    return O
"""


SCALE = ", scale: float"


@pytest.mark.parametrize(
    ("score", "more", "moves"),
    [
        (DOT, "", True),
        (f"0.125 * {DOT}", "", True),
        (f"{DOT} * 3", "", True),
        (f"{DOT} / sqrt(E)", "", True),
        (f"{DOT} * (1.0 / sqrt(E))", "", True),
        # The launcher tells which.
        (f"scale * {DOT}", SCALE, None),
        (f"{DOT} / scale", SCALE, None),
        (f"{DOT} * scale / sqrt(E)", SCALE, None),
        (f"-0.125 * {DOT}", "", False),
        (f"-({DOT})", "", False),
    ],
)
def test_where_the_score_is_scaled(score: str, more: str, moves: bool | None) -> None:
    kernel = only_kernel(made_of(_attention(score, more)))
    (loop,) = loops(kernel, "full")
    values = {op.name: op.value for op in loop.body if isinstance(op, Let)}
    (greatest,) = [
        (value, part)
        for value in values.values()
        for part in walk(value)
        if isinstance(part, Reduce) and part.op == "max"
    ]
    value, reduced = greatest
    assert isinstance(reduced.operand, Name)
    scores = values[reduced.operand.name]
    (weight,) = [call for call in exponentials(loop.body) if loop.dim in dims_of(call)]
    (difference,) = weight.arguments
    assert isinstance(difference, Binary)
    assert difference.op == "-"
    assert not [part for part in divisions(loop.body) if dims_of(part)]
    if moves is not False:
        # max(S) * c, and exp2(S * c - m), which is one multiply-add.
        if moves is None:
            assert isinstance(scores, Binary)
            scores = scores.left
        assert isinstance(scores, Dot)
        assert [p for p in walk(value) if isinstance(p, Binary) and p.left == reduced]
        assert isinstance(difference.left, Binary)
        assert difference.left.left == reduced.operand
    else:
        assert isinstance(scores, Binary)
        assert isinstance(scores.left, Dot)
        assert not [p for p in walk(value) if isinstance(p, Binary)]
        assert difference.left == reduced.operand


def test_an_element_is_compared_once_with_all_that_bounds_its_row() -> None:
    """Counted from the first of the block, so that nothing of the loop is compared."""
    text = made_of(_attention(DOT).replace("in range(N)", "in range(min(N, i + 1))")).text
    assert "tl.arange(0, BLOCK_J)[None, :] < tl.minimum(j_stop, i + 1)[:, None] - j_first" in text
    assert "tl.where(tl.where" not in text


# The order of independent statements

HEAD = """\
def f(
    X: Float[Array, "M N"], c: Float[Array, "M"], w: Float[Array, "N"], V: Float[Array, "N D"]
):"""
FOLDS = [
    ["    y = zeros(M)", "    z = full(M, -inf)"],
    ["    for i in range(M):\n        for j in range(N):"],
    [
        "            y[i] = y[i] + X[i, j] * w[j]",
        "            z[i] = max(z[i], X[i, j])",
    ],
    ["    return y, z"],
]
PASSES = [
    ["    y = zeros(M)", "    z = zeros(M)"],
    ["    for i in range(M):"],
    ["        m = -inf", "        a = c[i] * 2.0"],
    ["        for j in range(N):\n            m = max(m, X[i, j])"],
    [
        "        for j in range(N):\n            y[i] = y[i] + exp(X[i, j] - m)",
        "        for j in range(N):\n            z[i] = z[i] + a * X[i, j] * w[j]",
    ],
    ["    return y, z"],
]
NESTS = [
    ["    Y = zeros((M, D))", "    z = zeros(N)"],
    [
        "    for i in range(M):\n        for d in range(D):\n"
        "            Y[i, d] = sum(X[i, k] * V[k, d] for k in range(N))",
        "    for j in range(N):\n        z[j] = tanh(w[j])",
    ],
    ["    return Y, z"],
]
ONE_PASS = [
    ["    O = zeros((M, D))", "    p = zeros(M)"],
    ["    for i in range(M):"],
    ["        m = -inf", "        l = 0.0"],
    ["        for j in range(N):"],
    ["            s = X[i, j] - c[i]", "            u = c[i] * w[j]"],
    ["            t = max(m, s)"],
    [
        "            l = l * exp(m - t) + exp(s - t) * u",
        "            for d in range(D):\n"
        "                O[i, d] = O[i, d] * exp(m - t) + exp(s - t) * V[j, d]",
    ],
    ["            m = t"],
    ["        p[i] = m + log(l)", "        for d in range(D):\n            O[i, d] = O[i, d] / l"],
    ["    return O, p"],
]
GROUPS = {"folds": FOLDS, "passes": PASSES, "nests": NESTS, "one pass": ONE_PASS}


def _swaps() -> list[tuple[str, int]]:
    """Pair each listing with the places where parts may change their order."""
    found = []
    for name, groups in GROUPS.items():
        found += [(name, place) for place, group in enumerate(groups) if len(group) > 1]
    return found


def _text(groups: list[list[str]], turned: int | None = None) -> str:
    order = [g[::-1] if place == turned else g for place, g in enumerate(groups)]
    return "\n".join([HEAD, *(line for group in order for line in group), ""])


def operations(text: str) -> Counter[tuple[object, ...]]:
    """Count a listing's operations: what each one does, to which array, over which dimensions."""
    found: Counter[tuple[object, ...]] = Counter()
    for kernel in made_of(text).blocks.kernels:
        for op in ops_in(kernel.body):
            match op:
                case Store(array, subscripts):
                    found["store", array, tuple(map(_over, subscripts))] += 1
                case TileLoop(dim, _, _, kind):
                    found["loop", dim.name, kind] += 1
        for part in parts(kernel.body):
            match part:
                case Binary(what) | Call(what) | Unary(what) | Reduce(what) | Load(what):
                    found[type(part).__name__, what, _over(part)] += 1
                case Where() | Cast() | Dot():
                    found[type(part).__name__, "", _over(part)] += 1
    return found


def _over(expr: Expr) -> tuple[str, ...]:
    return tuple(dim.name for dim in dims_of(expr))


@pytest.mark.parametrize(("name", "place"), _swaps())
def test_order_changes_no_operation(name: str, place: int) -> None:
    before = operations(_text(GROUPS[name]))
    assert before
    assert operations(_text(GROUPS[name], place)) == before


J = Dim("j", "tile", Int(0), Param("N"), 0, block="BLOCK_J")
X, ZERO = Name("x", ()), Let("x", Number(0.0))
SET, SEEN = Let("x", Number(1.0)), Store("r", (), X)


def over(*body: Op) -> TileLoop:
    return TileLoop(J, Number(0), Scalar("N"), "full", body)


@pytest.mark.parametrize(
    ("ops", "kept"),
    [
        ((ZERO, over(SET, SEEN)), (over(SET, SEEN),)),
        ((ZERO, SET, SEEN), (SET, SEEN)),
        # A loop may have no iteration, and what one iteration sets the next one sees.
        ((ZERO, over(SET), SEEN), (ZERO, over(SET), SEEN)),
        ((ZERO, over(SEEN, SET)), (ZERO, over(SEEN, SET))),
        ((ZERO, RowBlock(J, Number(0), Scalar("N"), (SEEN,))),) * 2,
        ((ZERO, Branch(Scalar("N"), (SET,)), SEEN),) * 2,
    ],
)
def test_values_that_are_set_anew_before_they_are_seen(
    ops: tuple[Op, ...], kept: tuple[Op, ...]
) -> None:
    assert needed(ops) == kept


NESTED = """\
def f(X: Float[Array, "M N"]):
    Z = zeros(M); W = zeros(M)
    for i in range(M):
        for j in range(N):
            Z[i] = Z[i] + exp(tanh(X[i, j])) * tanh(X[i, j])
            W[i] = W[i] + exp(tanh(X[i, j]))
    return Z, W
"""


def test_a_function_inside_a_function_is_worked_out_once() -> None:
    kernel = only_kernel(made_of(NESTED))
    for kind in ("full", "boundary"):
        (loop,) = loops(kernel, kind)
        parts = [part for op in ops_in(loop.body) for e in exprs_of(op) for part in walk(e)]
        functions = [part.function for part in parts if isinstance(part, Call)]
        assert functions.count("tanh") == functions.count("exp") == 1


NEAREST = """
def f(X: Float[Array, "N D"], C: Float[Array, "K D"]):
    count = zeros(K)
    for n in range(N):
        least = inf
        for k in range(K):
            least = min(least, sum((X[n, d] - C[k, d]) ** 2 for d in range(D)))
        for k in range(K):
            count[k] += 1.0 if sum((X[n, d] - C[k, d]) ** 2 for d in range(D)) <= least else 0.0
    return count
"""


def test_a_sum_that_is_compared_with_the_least_is_worked_out_once() -> None:
    """So that the least is found to be it, whatever was rounded."""
    (loop,) = loops(only_kernel(made_of(NEAREST)), "full")
    parts = [part for op in ops_in(loop.body) for e in exprs_of(op) for part in walk(e)]
    assert sum(isinstance(p, Reduce) and p.over.name == "d" for p in parts) == 1


CAPPED = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], c: float):
    O = zeros((M, D))
    for i in range(M):
        for j in range(N):
            s = sum(Q[i, e] * K[j, e] for e in range(E)) * (1.0 / sqrt(E))
            w = c * tanh({given} / c)
            for d in range(D):
                O[i, d] = O[i, d] + w * V[j, d]
    return O
"""


@pytest.mark.parametrize("given", ["s", "(s * 2.0)"])
def test_numbers_meet_before_they_meet_elements(given: str) -> None:
    (loop,) = loops(only_kernel(made_of(CAPPED.format(given=given))), "full")
    parts = [p for op in loop.body for e in exprs_of(op) for p in walk(e)]
    many = [p for p in parts if isinstance(p, Binary) and p.op == "*" and len(dims_of(p)) == 2]
    assert len(many) == 1


def test_a_number_and_its_inverse_cancel() -> None:
    text = emitted_with_backward(program(CAPPED.format(given="s"))).text
    assert " dw * tanh_slope_w_in  #" in text  # dw * c * tanh_slope_w_in / c


GATED = """
def f(
    Q: Float[Array, "M E"], K: Float[Array, "N E"], X: Float[Array, "M D"],
    g: Float[Array, "M D"],
):
    O = zeros((N, D))
    for j in range(N):
        for i in range(j, M):
            s = exp(-abs(sum(Q[i, e] * K[j, e] for e in range(E))))
            for d in range(D):
                O[j, d] += s * X[i, d] / (1.0 + exp(-g[i, d]))
    return O
"""


def test_what_a_sigmoid_gates_is_an_operand_also_where_iterations_do_not_count() -> None:
    """1 + exp(-g) may be infinite, and x / inf is 0: the other operand is masked, this one not."""
    kernel = only_kernel(made_of(GATED))
    over = [op for op in ops_in(kernel.body) if isinstance(op, TileLoop) and op.dim.name == "i"]
    assert {op.kind for op in over} == {"full", "boundary"}
    for loop in over:
        assert len(dots(loop.body)) == 2
    assert max(len(dims_of(part)) for part in parts(kernel.body)) == 2
