"""The block IR as text: dimensions, masks, loops, and only the parentheses that are needed."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
from looptrans.blocks.block_ir.ops import Branch, ElementLoop, Let, Store, TileLoop
from looptrans.blocks.block_ir.program import (
    ArrayArgument,
    BlockProgram,
    Choice,
    Config,
    Filled,
    Kernel,
)
from looptrans.blocks.block_ir.text import blocks_text, expr_text
from looptrans.ir.condition import Relation
from looptrans.ir.index import Int, Param
from tests.analysis import program

PRODUCT = program("""\
def product(A: Float[Array, "M K"], B: Float[Array, "K N"]):
    assert K >= 1
    C = zeros((M, N))
    for i in range(0, M):
        for j in range(0, N):
            for k in range(0, K):
                C[i, j] += A[i, k] * B[k, j]
    return C
""")
M, N, K = Param("M"), Param("N"), Param("K")
I = Dim("i", "rows", Int(0), M, 0, block="BLOCK_I", contracted=True)  # noqa: E741
J = Dim("j", "lanes", Int(0), N, 1, block="BLOCK_J", contracted=True)
T = Dim("k", "tile", Int(0), K, 2, block="BLOCK_K", contracted=True)
B = Dim("b", "program", Int(0), Param("H"), 3)
E = Dim("e", "element", Int(8), Int(0), 4, step=-2)
X, Y, Z = Scalar("x"), Scalar("y"), Scalar("z", "float")
INSIDE = Binary("<", Position(I), Scalar("M"))
A_IK, B_KJ, C_IJ = Name("A_ik", (I, T)), Name("B_kj", (T, J)), Name("C_ij", (I, J))


def kernel() -> Kernel:
    whole = Binary("*", Binary("//", Scalar("K"), Scalar("BLOCK_K")), Scalar("BLOCK_K"))
    load = Load("A", (Position(I), Position(T)), INSIDE, 0.0)
    right = Load("B", (Position(T), Position(J)))
    body = (
        Let("C_ij", Number(0.0), ("S1",), "the sum so far", (I, J)),
        TileLoop(
            T,
            Number(0),
            whole,
            "full",
            (
                Let("A_ik", load, ("S1",), dims=(I, T)),
                Let("B_kj", right, ("S1",), dims=(T, J)),
                Let("C_ij", Dot(A_IK, B_KJ, I, J, T, C_IJ), ("S1", "S2"), dims=(I, J)),
            ),
            "they end before K",
        ),
        ElementLoop(E, Number(8), Number(0), (Let("n", Position(E)),), "n is no fold"),
        Branch(Binary("==", Position(B), Number(0)), (Store("n", (), Number(1)),)),
        Store("C", (Position(I), Position(J)), C_IJ, INSIDE, ("S3",), "rounded"),
    )
    config = Config({"BLOCK_I": 64, "BLOCK_K": 32}, 4, 3)
    return Kernel(
        name="product_kernel",
        grid=(B, I),
        dims=(I, J, T, B, E),
        arrays=(
            ArrayArgument("A", 2, "float", "in", (M, K)),
            ArrayArgument("B", 2, "float", "in", (None, N)),
            ArrayArgument("C", 2, "float", "out", (M, N)),
            ArrayArgument("n", 0, "int", "inout", ()),
        ),
        scalars=(Scalar("M"), Scalar("N"), Scalar("K")),
        constants=("N",),
        body=body,
        narrow=Choice(config, (config, replace(config, warps=8))),
        wide=Choice(replace(config, stages=1), ()),
        grouped=True,
        restored=("n",),
    )


def test_a_program() -> None:
    blocks = BlockProgram(
        listing=PRODUCT,
        scheduled=PRODUCT,
        kernels=(kernel(),),
        made=(
            Filled("C", (M, N), None, "float32"),
            Filled("n", (), 3, element="int"),
        ),
        outputs=("C", "n"),
        assumptions=(Relation(">=", K, Int(1)),),
        notes=("a note",),
    )
    assert (
        blocks_text(blocks)
        == """\
product in blocks
  makes     C[M, N], of type float32
  makes     n, filled with 3, of type int
  returns   C, n
  assumes   K >= 1
  note      a note

kernel product_kernel
  grid      b, i, in groups that share operands
  rows      i in range(0, M), BLOCK_I at a time
  lanes     j in range(0, N), all in BLOCK_J
  tile      k in range(0, K), BLOCK_K at a time
  program   b in range(0, H)
  element   e in range(8, 0, -2)
  reads     A[M, K], B[?, N]
  writes    C[M, N]
  updates   n of type int
  restored  n
  numbers   M, N, K
  constant  N
  16 bits   BLOCK_I=64, BLOCK_K=32, 4 warps, 3 stages; 1 more tried on a GPU
  32 bits   BLOCK_I=64, BLOCK_K=32, 4 warps, 1 stage

  C_ij[i, j] = 0.0  # S1: the sum so far
  for k in blocks of BLOCK_K from 0 to K // BLOCK_K * BLOCK_K:  # full: they end before K
    A_ik[i, k] = load A[i, k] if i < M else 0.0  # S1
    B_kj[k, j] = load B[k, j]  # S1
    C_ij[i, j] = C_ij[i, j] + dot(A_ik[i, k], B_kj[k, j])  # S1, S2
  for e in range(8, 0, -2):  # one at a time: n is no fold
    n = e
  if b == 0:
    store n = 1
  store C[i, j] = C_ij[i, j] where i < M  # S3: rounded
"""
    )


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (Binary("-", X, Binary("-", Y, Z)), "x - (y - z)"),
        (Binary("-", Binary("-", X, Y), Z), "x - y - z"),
        (Binary("*", Binary("+", X, Y), Z), "(x + y) * z"),
        (Binary("//", X, Binary("*", Y, Number(2))), "x // (y * 2)"),
        (Unary("-", Binary("*", X, Y)), "-(x * y)"),
        (Unary("-", Unary("-", X)), "--x"),
        (Binary("*", X, Number(-2.0)), "x * -2.0"),
        (Unary("not", Binary("and", X, Y)), "not (x and y)"),
        (Binary("and", Binary("or", X, Y), Unary("not", Z)), "(x or y) and not z"),
        (Binary("<", Binary("==", X, Y), Z), "(x == y) < z"),
        (
            Binary("+", Load("A", (X,), INSIDE, float("-inf")), Y),
            "(load A[x] if i < M else -inf) + y",
        ),
        (Load("A", (X,), INSIDE), "load A[x] if i < M else ?"),
        (Reduce("max", T, Binary("+", A_IK, Y)), "max(A_ik[i, k] + y for k)"),
        (
            Reduce("*", T, Load("A", (Position(T),), INSIDE, 1.0)),
            "product((load A[k] if i < M else 1.0) for k)",
        ),
        (Cast(Cast(X, like="V"), "float32"), "float32(as_V(x))"),
        (Call("max", (X, Where(INSIDE, Y, Number(True)))), "max(x, where(i < M, y, True))"),
        (Binary("%", Edge(I, "first"), Edge(I, "last")), "first(i) % last(i)"),
        (
            Binary("*", Dot(A_IK, B_KJ, I, J, T, C_IJ), X),
            "(C_ij[i, j] + dot(A_ik[i, k], B_kj[k, j])) * x",
        ),
        (Binary("*", Dot(A_IK, B_KJ, I, J, T), X), "dot(A_ik[i, k], B_kj[k, j]) * x"),
    ],
)
def test_expressions(expr: Expr, text: str) -> None:
    assert expr_text(expr) == text
