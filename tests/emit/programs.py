"""Block programs built by hand, as a lowering would build them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Cast,
    Dim,
    Dot,
    Edge,
    Expr,
    Load,
    Name,
    Number,
    Position,
    Reduce,
    Scalar,
    Unary,
    Where,
)
from looptrans.blocks.block_ir.ops import Branch, ElementLoop, Let, Op, Store, TileLoop
from looptrans.blocks.block_ir.program import (
    ArrayArgument,
    BlockProgram,
    Choice,
    Config,
    Filled,
    Kernel,
)
from looptrans.frontend.parse import parse
from looptrans.ir.index import Int, Param
from looptrans.ir.program import Program
from looptrans.ir.source import Source

INF = float("inf")


def listing(text: str) -> Program:
    return parse(Source("listing.py", text))


def binary(op: str, first: Expr, *others: Expr) -> Expr:
    for other in others:
        first = Binary(op, first, other)  # type: ignore[arg-type]
    return first


def both(*parts: Expr) -> Expr:
    return binary("and", *parts)


def below(dim: Dim, size: str) -> Expr:
    return Binary("<", Position(dim), Scalar(size))


def call(function: str, *arguments: Expr) -> Expr:
    return Call(function, arguments)


def full_stop(dim: Dim, size: str) -> Expr:
    assert dim.block is not None
    block = Scalar(dim.block)
    return Binary("*", Binary("//", Scalar(size), block), block)


def name(text: str, *dims: Dim) -> Name:
    return Name(text, dims)


def floats(array: str, *shape: str, access: str = "in", dtype: str | None = None) -> ArrayArgument:
    extents = tuple(Int(int(s)) if s.isdigit() else Param(s) for s in shape)
    return ArrayArgument(array, len(shape), "float", access, extents, dtype)  # type: ignore[arg-type]


def choice(blocks: dict[str, int], warps: int = 4, stages: int = 2) -> Choice:
    only = Config(blocks, warps, stages)
    return Choice(only, (only,))


def dim(text: str, role: str, size: str, order: int, *, dot: bool = False) -> Dim:
    block = f"BLOCK_{text.upper()}" if role in ("rows", "tile", "lanes") else None
    return Dim(text, role, Int(0), Param(size), order, block=block, contracted=dot)  # type: ignore[arg-type]


MATMUL = """\
def matmul(A: Float[Array, "M K"], B: Float[Array, "K N"], bias: Float[Array, "N"]):
    \"\"\"C = max(A @ B + bias, 0).\"\"\"
    C = zeros((M, N))
    for i in range(M):
        for j in range(N):
            for k in range(K):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]  # S1: a sum over k
            C[i, j] = max(C[i, j] + bias[j], 0.0)  # S2: the epilogue
    return C
"""


def matmul() -> BlockProgram:
    i = dim("i", "rows", "M", 0, dot=True)
    k = dim("k", "tile", "K", 1, dot=True)
    j = dim("j", "rows", "N", 2, dot=True)
    total = Name("C_ij", (i, j))

    def step(masked: bool) -> tuple[Op, ...]:
        at_i, at_j, at_k = below(i, "M"), below(j, "N"), below(k, "K")
        a = Load("A", (Position(i), Position(k)), both(at_i, at_k) if masked else at_i, 0.0)
        b = Load("B", (Position(k), Position(j)), both(at_k, at_j) if masked else at_j, 0.0)
        return (
            Let("a", a, ("S1",)),
            Let("b", b, ("S1",)),
            Let(
                "C_ij",
                Dot(Name("a", (i, k), holds="A"), Name("b", (k, j), holds="B"), i, j, k, total),
                ("S1",),
            ),
        )

    stop = full_stop(k, "K")
    row = Cast(Load("bias", (Position(j),), below(j, "N"), 0.0))
    body: tuple[Op, ...] = (
        Let("C_ij", Number(0.0), ("S1",), dims=(i, j)),
        TileLoop(k, Number(0), stop, "full", step(False), "Blocks of k that are whole"),
        TileLoop(k, stop, Scalar("K"), "boundary", step(True), "The last block of k"),
        Let("C_ij", call("max", Binary("+", total, row), Number(0.0)), ("S2",)),
        Store("C", (Position(i), Position(j)), total, both(below(i, "M"), below(j, "N")), ("S2",)),
    )
    default = Config({"BLOCK_I": 32, "BLOCK_J": 32, "BLOCK_K": 16}, 4, 3)
    tuned = tuple(
        Config({"BLOCK_I": m, "BLOCK_J": n, "BLOCK_K": 32}, w, s)
        for m in (64, 128)
        for n in (64, 128)
        for w in (4, 8)
        for s in (3, 4)
    )
    kernel = Kernel(
        "matmul_kernel",
        (i, j),
        (i, k, j),
        (
            floats("A", "M", "K"),
            floats("B", "K", "N"),
            floats("bias", "N"),
            floats("C", "M", "N", access="out"),
        ),
        (Scalar("M"), Scalar("N"), Scalar("K")),
        (),
        body,
        Choice(default, tuned),
        Choice(default, (default, Config({"BLOCK_I": 64, "BLOCK_J": 32, "BLOCK_K": 32}, 4, 2))),
        grouped=True,
    )
    program = listing(MATMUL)
    made = Filled("C", (Param("M"), Param("N")), None)
    steps = ("the sum over k is a matrix product",)
    return BlockProgram(program, program, (kernel,), (made,), ("C",), steps=steps)


SOFTMAX = """\
def softmax(X: Float[Array, "M N"]):
    Y = zeros((M, N))
    m = full(M, -inf, dtype=float32)
    for i in range(M):
        for j in range(N):
            m[i] = max(m[i], X[i, j])  # S1: the maximum
        l = 0.0  # S2: the sum
        for j in range(N):
            l = l + exp(X[i, j] - m[i])  # S3: the sum
        for j in range(N):
            Y[i, j] = exp(X[i, j] - m[i]) / l  # S4: the quotient
    return Y, m
"""


def softmax() -> BlockProgram:
    i, j = dim("i", "rows", "M", 0), dim("j", "tile", "N", 1)
    mask = both(below(i, "M"), below(j, "N"))
    x = Cast(Load("X", (Position(i), Position(j)), mask, -INF))
    m, l_i = name("m_i", i), name("l_i", i)
    weight = call("exp", Binary("-", name("x", i, j), m))
    body: tuple[Op, ...] = (
        Let("m_i", Number(-INF), ("S1",), dims=(i,)),
        Let("l_i", Number(0.0), ("S2",), dims=(i,)),
        TileLoop(
            j,
            Number(0),
            Scalar("N"),
            "boundary",
            (
                Let("x", x, ("S1",)),
                Let("m_new", call("max", m, Reduce("max", j, name("x", i, j))), ("S1",)),
                Let(
                    "l_i",
                    Binary(
                        "+",
                        Binary("*", l_i, call("exp", Binary("-", m, name("m_new", i)))),
                        Reduce("+", j, call("exp", Binary("-", name("x", i, j), name("m_new", i)))),
                    ),
                    ("S3",),
                ),
                Let("m_i", name("m_new", i), ("S1",)),
            ),
        ),
        Store("m", (Position(i),), m, below(i, "M"), ("S1",)),
        TileLoop(
            j,
            Number(0),
            Scalar("N"),
            "boundary",
            (
                Let("x", x, ("S4",)),
                Store("Y", (Position(i), Position(j)), Binary("/", weight, l_i), mask, ("S4",)),
            ),
        ),
    )
    kernel = Kernel(
        "softmax_kernel",
        (i,),
        (i, j),
        (
            floats("X", "M", "N"),
            floats("Y", "M", "N", access="out"),
            floats("m", "M", access="out", dtype="float32"),
        ),
        (Scalar("M"), Scalar("N")),
        (),
        body,
        choice({"BLOCK_I": 4, "BLOCK_J": 16}),
        choice({"BLOCK_I": 4, "BLOCK_J": 16}),
    )
    program = listing(SOFTMAX)
    made = (
        Filled("Y", (Param("M"), Param("N")), None),
        Filled("m", (Param("M"),), None, "float32"),
    )
    return BlockProgram(program, program, (kernel,), made, ("Y", "m"))


ATTENTION = """\
def attention(
    Q: Float[Array, "B H M E"],
    K: Float[Array, "B G N E"],
    V: Float[Array, "B G N D"],
    n_kv: Int[Array, "B", "0:N+1"],
    scale: float,
    R,
):
    assert H == G * R
    O = zeros((B, H, M, D))
    for b in range(B):
        for h in range(H):
            for i in range(M):
                m = -inf  # S1
                l = 0.0  # S2
                for j in range(min(n_kv[b], i + 1)):
                    s = sum(Q[b, h, i, e] * K[b, h // R, j, e] for e in range(E)) * scale  # S3
                    m_new = max(m, s)  # S4
                    l = l * exp(m - m_new) + exp(s - m_new)  # S5
                    for d in range(D):
                        O[b, h, i, d] = (  # S6
                            O[b, h, i, d] * exp(m - m_new) + exp(s - m_new) * V[b, h // R, j, d]
                        )
                    m = m_new  # S7
                for d in range(D):
                    O[b, h, i, d] = O[b, h, i, d] / l  # S8
    return O
"""


def attention(narrow: Config | None = None) -> BlockProgram:
    """Causal attention with grouped heads and lengths, in one pass over j."""
    b, h = dim("b", "program", "B", 0), dim("h", "program", "H", 1)
    i, j = dim("i", "rows", "M", 2, dot=True), dim("j", "tile", "N", 3, dot=True)
    e, d = dim("e", "lanes", "E", 4, dot=True), dim("d", "lanes", "D", 5, dot=True)
    head = Binary("//", Position(h), Scalar("R"))
    length = Name("length", (), "int")
    block = Scalar("BLOCK_J")
    m, l_i, o = name("m", i), name("l", i), name("o", i, d)
    s, p, m_new = name("s", i, j), name("p", i, j), name("m_new", i)
    rescale = name("alpha", i)

    def step(masked: bool) -> tuple[Op, ...]:
        rows = Binary("<", Position(j), length)
        k_mask = both(rows, below(e, "E")) if masked else below(e, "E")
        v_mask = both(rows, below(d, "D")) if masked else below(d, "D")
        seen = both(rows, Binary("<=", Position(j), Position(i)))
        k = Load("K", (Position(b), head, Position(j), Position(e)), k_mask, 0.0)
        v = Load("V", (Position(b), head, Position(j), Position(d)), v_mask, 0.0)
        score = Binary(
            "*",
            Dot(Name("q", (i, e), holds="Q"), Name("k", (j, e), holds="K"), i, j, e),
            Name("c", ()),
        )
        safe = Where(Binary("==", m_new, Number(-INF)), Number(0.0), m_new)
        return (
            Let("k", k, ("S3",)),
            Let("v", v, ("S6",)),
            Let("s", score, ("S3",)),
            *((Let("s", Where(seen, s, Number(-INF)), ("S3",)),) if masked else ()),
            Let("m_new", call("max", m, Reduce("max", j, s)), ("S4",)),
            Let("m_safe", safe, note="0 where a row has seen nothing yet"),
            Let("alpha", call("exp2", Binary("-", m, name("m_safe", i))), ("S5", "S6")),
            Let("p", call("exp2", Binary("-", s, name("m_safe", i))), ("S5", "S6")),
            Let("l", binary("+", Binary("*", l_i, rescale), Reduce("+", j, p)), ("S5",)),
            Let(
                "o",
                Dot(
                    Cast(p, like="V"),
                    Name("v", (j, d), holds="V"),
                    i,
                    d,
                    j,
                    Binary("*", o, rescale),
                ),
                ("S6",),
            ),
            Let("m", m_new, ("S7",)),
        )

    seen_all = call("min", length, Edge(i, "first"))
    full = Binary("*", Binary("//", seen_all, block), block)
    stop = call("min", length, Binary("+", Edge(i, "last"), Number(1)))
    at = (Position(b), Position(h), Position(i))
    body: tuple[Op, ...] = (
        Let("length", Load("n_kv", (Position(b),), kind="int")),
        Let("c", Binary("*", Scalar("scale", "float"), Number(1.4426950408889634))),
        Let("q", Load("Q", (*at, Position(e)), both(below(i, "M"), below(e, "E")), 0.0), ("S3",)),
        Let("m", Number(-INF), ("S1",), dims=(i,)),
        Let("l", Number(0.0), ("S2",), dims=(i,)),
        Let("o", Number(0.0), ("S6",), dims=(i, d)),
        TileLoop(j, Number(0), full, "full", step(False), "Blocks before the diagonal"),
        TileLoop(j, full, stop, "boundary", step(True), "Blocks on the diagonal and at the end"),
        Let(
            "o",
            Where(Binary("==", l_i, Number(0.0)), Number(0.0), Binary("/", o, l_i)),
            ("S8",),
        ),
        Store("O", (*at, Position(d)), o, both(below(i, "M"), below(d, "D")), ("S8",)),
    )
    lengths = ArrayArgument("n_kv", 1, "int", "in", (Param("B"),))
    config = Config({"BLOCK_I": 32, "BLOCK_J": 16}, 4, 3)
    small = Choice(config, (config, Config({"BLOCK_I": 64, "BLOCK_J": 32}, 4, 3)))
    wide = Choice(narrow, (narrow,)) if narrow else small
    kernel = Kernel(
        "attention_kernel",
        (b, h, i),
        (b, h, i, j, e, d),
        (
            floats("Q", "B", "H", "M", "E"),
            floats("K", "B", "G", "N", "E"),
            floats("V", "B", "G", "N", "D"),
            lengths,
            floats("O", "B", "H", "M", "D", access="out"),
        ),
        (
            Scalar("H"),
            Scalar("M"),
            Scalar("E"),
            Scalar("D"),
            Scalar("scale", "float"),
            Scalar("R"),
            Scalar("N"),
        ),
        ("E", "D"),
        body,
        wide,
        small,
    )
    program = listing(ATTENTION)
    made = Filled("O", (Param("B"), Param("H"), Param("M"), Param("D")), None)
    return BlockProgram(program, program, (kernel,), (made,), ("O",))


RECURRENCE = """\
def recurrence(x: Float[Array, "M N"], a: float = 0.5):
    y = zeros((M, N))
    for i in range(M):
        s = 1.0  # S1
        for t in range(N):
            s = tanh(a * s) + x[i, t] ** 2  # S2
            if s > 2.0:
                y[i, t] = s  # S3
    return y
"""


def recurrence() -> BlockProgram:
    i = dim("i", "program", "M", 0)
    t = dim("t", "element", "N", 1)
    s, x = name("s"), name("x_it")
    square = call("pow", x, Number(2))
    body: tuple[Op, ...] = (
        Let("s", Number(1.0), ("S1",)),
        ElementLoop(
            t,
            Number(0),
            Scalar("N"),
            (
                Let("x_it", Cast(Load("x", (Position(i), Position(t)))), ("S2",)),
                Let(
                    "s",
                    Binary("+", call("tanh", Binary("*", Scalar("a", "float"), s)), square),
                    ("S2",),
                ),
                Branch(
                    Binary(">", s, Number(2.0)),
                    (Store("y", (Position(i), Position(t)), s, labels=("S3",)),),
                ),
            ),
            "t is sequential, and no fold is known for it",
        ),
    )
    kernel = Kernel(
        "recurrence_kernel",
        (i,),
        (i, t),
        (floats("x", "M", "N"), floats("y", "M", "N", access="out")),
        (Scalar("M"), Scalar("N"), Scalar("a", "float")),
        (),
        body,
        choice({}),
        choice({}),
    )
    program = listing(RECURRENCE)
    made = Filled("y", (Param("M"), Param("N")), 0.0)
    notes = ("the loop t runs one element at a time: its state has no combine operator",)
    return BlockProgram(program, program, (kernel,), (made,), ("y",), notes=notes)


CENTERED = """\
def centered(X: Float[Array, "M N"], Y: Float[Array, "M N"]):
    c = zeros(M, dtype=float32)
    for i in range(M):
        for j in range(N):
            c[i] = c[i] + X[i, j]  # S1
    for i in range(M):
        for j in range(N):
            Y[i, j] = Y[i, j] + X[i, j] - c[i] / N  # S2
    return Y
"""


def centered() -> BlockProgram:
    """Two kernels with a temporary between them; the second changes an argument."""
    i, j = dim("i", "rows", "M", 0), dim("j", "lanes", "N", 1)
    mask = both(below(i, "M"), below(j, "N"))
    x = Cast(Load("X", (Position(i), Position(j)), mask, 0.0))
    total = Reduce("+", j, x)
    first = Kernel(
        "centered_kernel_1",
        (i,),
        (i, j),
        (floats("X", "M", "N"), floats("c", "M", access="out", dtype="float32")),
        (Scalar("M"), Scalar("N")),
        ("N",),
        (Store("c", (Position(i),), total, below(i, "M"), ("S1",)),),
        choice({"BLOCK_I": 2}),
        choice({"BLOCK_I": 4}),
    )
    p = dim("i", "program", "M", 0)
    inside = below(j, "N")
    y = Cast(Load("Y", (Position(p), Position(j)), inside, 0.0))
    x = Cast(Load("X", (Position(p), Position(j)), inside, 0.0))
    mean = Binary("/", Load("c", (Position(p),)), Scalar("N"))
    value = Binary("-", Binary("+", y, x), mean)
    second = Kernel(
        "centered_kernel_2",
        (p,),
        (p, j),
        (
            floats("X", "M", "N"),
            floats("Y", "M", "N", access="inout"),
            floats("c", "M", dtype="float32"),
        ),
        (Scalar("M"), Scalar("N")),
        ("N",),
        (Store("Y", (Position(p), Position(j)), value, inside, ("S2",)),),
        Choice(Config({}, 4, 1), (Config({}, 4, 1), Config({}, 8, 1))),
        Choice(Config({}, 4, 1), (Config({}, 4, 1), Config({}, 8, 1))),
        restored=("Y",),
    )
    program = listing(CENTERED)
    made = (Filled("c", (Param("M"),), None, "float32"),)
    return BlockProgram(program, program, (first, second), made, ("Y",))


FUNCTIONS = """\
def functions(
    x: Float[Array, "N"], B: Bool[Array, "N"], page: Int[Array, "N", "0:N"], seed, p: float
):
    assert all(page[i] != page[j] for i in range(N) for j in range(i))
    t = zeros(N, dtype=float32)
    u = zeros(N, dtype=float32)
    w = zeros(N)
    f = zeros(N, dtype=bool)
    c = zeros(2, dtype=float32)
    for i in range(N):
        t[i] = tanh(x[i])  # S1
        u[i] = uniform(seed, i, 3)  # S2
        w[page[i]] = max(abs(x[i]) ** p, x[i] ** 3, (x[i] - 1.0) ** 2, 2.0 ** -1)  # S3
        f[i] = B[i] and not x[i] > 0.5  # S4
        c[0] = c[0] + 1  # S5
        c[1] = c[1] * x[i]  # S6
    return t, u, w, f, c
"""


def functions() -> BlockProgram:
    """Functions, integer and boolean arrays, a product, numbers in place of blocks."""
    i = dim("i", "lanes", "N", 0)
    inside = below(i, "N")
    at = (Position(i),)
    x = name("x_i", i)
    flag = Name("flag", (i,), "bool")
    powers = call(
        "max",
        call("pow", call("abs", x), Scalar("p", "float")),
        call("pow", x, Number(3)),
        call("pow", Binary("-", x, Number(1.0)), Number(2)),
        call("pow", Number(2.0), Number(-1)),
    )
    page = Load("page", at, inside, 0, "int")
    random = call("uniform", Scalar("seed"), Position(i), Number(3))
    count = Name("count", (), "int")
    body: tuple[Op, ...] = (
        Let("x_i", Cast(Load("x", at, inside, 1.0))),
        Store("t", at, call("tanh", x), inside, ("S1",)),
        Store("u", at, random, inside, ("S2",)),
        Store("w", (page,), powers, inside, ("S3",)),
        Let("flag", Load("B", at, inside, False, "bool"), ("S4",)),
        Store("f", at, both(flag, Unary("not", Binary(">", x, Number(0.5)))), inside, ("S4",)),
        Let("count", Number(0), ("S5",)),
        ElementLoop(
            Dim("k", "element", Int(0), Param("N"), 1),
            Number(0),
            Scalar("N"),
            (Let("count", Binary("+", count, Number(1)), ("S5",)),),
        ),
        Store("c", (Number(0),), count, labels=("S5",)),
        Store("c", (Number(1),), Reduce("*", i, Where(inside, x, Number(1.0))), labels=("S6",)),
    )
    kernel = Kernel(
        "functions_kernel",
        (),
        (i,),
        (
            floats("x", "N"),
            ArrayArgument("B", 1, "bool", "in", (Param("N"),)),
            ArrayArgument("page", 1, "int", "in", (Param("N"),)),
            floats("t", "N", access="out", dtype="float32"),
            floats("u", "N", access="out", dtype="float32"),
            floats("w", "N", access="out"),
            ArrayArgument("f", 1, "bool", "out", (Param("N"),)),
            floats("c", "2", access="out", dtype="float32"),
        ),
        (Scalar("N"), Scalar("seed"), Scalar("p", "float")),
        ("N",),
        body,
        choice({}),
        choice({}),
    )
    program = listing(FUNCTIONS)
    n = (Param("N"),)
    made = (
        Filled("t", n, None, "float32"),
        Filled("u", n, None, "float32"),
        Filled("w", n, 0.0),
        Filled("f", n, False, element="bool"),
        Filled("c", (Int(2),), 0.0, "float32"),
    )
    return BlockProgram(program, program, (kernel,), made, ("t", "u", "w", "f", "c"))


ALL: dict[str, Callable[[], BlockProgram]] = {
    "matmul": matmul,
    "softmax": softmax,
    "attention": attention,
    "recurrence": recurrence,
    "centered": centered,
    "functions": functions,
}


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Rename loops, arrays and sizes everywhere in a program, and what is made of the names."""
    if isinstance(value, str):
        stem = value.removeprefix("BLOCK_")
        for old, new in names.items():
            if stem != value and stem == old.upper():
                return f"BLOCK_{new.upper()}"
        return names.get(value, value)
    if isinstance(value, tuple):
        return tuple(renamed(part, names) for part in value)
    if isinstance(value, Mapping):
        return {renamed(key, names): part for key, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: renamed(getattr(value, f.name), names) for f in fields(value)}
        return type(value)(**parts)
    return value
