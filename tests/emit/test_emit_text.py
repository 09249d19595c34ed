import ast
import io
import random
import re
import subprocess
import sys
import tokenize
from dataclasses import replace

import pytest

from looptrans import emit
from looptrans.blocks.block_ir.expr import Load, Number, Position, Scalar
from looptrans.blocks.block_ir.ops import Store, ops_in
from looptrans.emit.layout import COLUMNS, statement
from looptrans.emit.sizes import solved
from looptrans.frontend.parse import parse
from looptrans.ir.listing import index_text
from looptrans.ir.source import Source
from tests.emit.programs import ALL, attention, dim, renamed

ZEROS = (Number(0),) * 3
TEXTS = {name: emit.module(make(), version="0") for name, make in ALL.items()}


@pytest.mark.parametrize("name", ALL)
def test_the_text_is_python_of_at_most_100_columns_without_lint(name: str) -> None:
    assert max(map(len, TEXTS[name].splitlines())) <= 100
    rules = ["--isolated", "--no-cache", "--select", "E,F,W", "--line-length", "100"]
    command = [sys.executable, "-m", "ruff", "check", *rules, "-"]
    done = subprocess.run(command, input=TEXTS[name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def _kernels(name: str) -> dict[str, ast.FunctionDef]:
    wanted = emit.names(ALL[name]()).kernels
    return {
        node.name: node
        for node in ast.parse(TEXTS[name]).body
        if isinstance(node, ast.FunctionDef) and node.name in wanted
    }


@pytest.mark.parametrize("name", ALL)
def test_the_signature_is_that_of_the_text_and_every_argument_is_used(name: str) -> None:
    program = ALL[name]()
    for kernel, (_, node) in zip(program.kernels, _kernels(name).items(), strict=True):
        arguments = [argument.arg for argument in node.args.args]
        assert arguments == [argument.name for argument in emit.signature(kernel)]
        constexprs = [a.arg for a in node.args.args if a.annotation is not None]
        assert constexprs == [a.name for a in emit.signature(kernel) if emit.is_constexpr(a)]
        read = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        assert set(arguments) <= read
        assert read & set(arguments) <= emit.taken(kernel)


@pytest.mark.parametrize("name", ALL)
def test_every_variable_of_a_kernel_is_read(name: str) -> None:
    for node in _kernels(name).values():
        names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
        written = {n.id for n in names if isinstance(n.ctx, ast.Store)}
        read = {n.id for n in names if isinstance(n.ctx, ast.Load)}
        targets = [n.target for n in ast.walk(node) if isinstance(n, ast.For)]
        loops = {target.id for target in targets if isinstance(target, ast.Name)}
        assert written - loops <= read


@pytest.mark.parametrize("name", ALL)
def test_statements_carry_their_labels(name: str) -> None:
    labels = {
        label
        for kernel in ALL[name]().kernels
        for op in ops_in(kernel.body)
        for label in getattr(op, "labels", ())
    }
    for label in labels:
        assert re.search(rf"# (.*, )?{label}\b", TEXTS[name].partition("@triton.jit")[2])


def _tokens(text: str) -> list[tuple[int, str]]:
    """Return what means something to Python, f-strings apart: 3.12 takes them to pieces."""
    plain = re.sub(r'\bf"[^"]*"', '""', text)
    left_out = (tokenize.COMMENT, tokenize.NL, tokenize.STRING)
    tokens = tokenize.generate_tokens(io.StringIO(plain).readline)
    return [(token.type, token.string) for token in tokens if token.type not in left_out]


NAMES = {
    "Q": "queries",
    "K": "x9",
    "V": "w_w",
    "O": "A",
    "b": "zeta",
    "h": "g_",
    "i": "line",
    "j": "col9",
    "e": "k",
    "d": "c_1",
    "M": "rows",
    "scale": "s",
    "S3": "T1",
}


def test_renaming_changes_only_names() -> None:
    before = _tokens(TEXTS["attention"])
    after = _tokens(emit.module(renamed(attention(), NAMES), version="0"))
    assert [kind for kind, _ in before] == [kind for kind, _ in after]
    pairs = {(old, new) for (_, old), (_, new) in zip(before, after, strict=True)}
    assert len(pairs) == len({old for old, _ in pairs}) == len({new for _, new in pairs})
    assert ("stride_Q_i", "stride_queries_line") in pairs


def test_a_name_that_means_something_else_gets_an_underscore() -> None:
    text = emit.module(renamed(attention(), {"Q": "tl", "i": "pid", "M": "INDEX"}), version="0")
    (kernel,) = (n for n in ast.parse(text).body if getattr(n, "name", "") == "attention_kernel")
    assert isinstance(kernel, ast.FunctionDef)
    arguments = [argument.arg for argument in kernel.args.args]
    assert {"tl_ptr", "stride_tl_pid", "INDEX_", "INDEX"} <= set(arguments)
    assert re.search(r"^    pid_ = pid_first \+ tl.arange", text, re.MULTILINE)
    assert "def attention(tl_, K, V" in text


def test_what_a_kernel_is_not_handed_is_an_error() -> None:
    i = dim("i", "rows", "M", 0)
    wrong = Store("O", (Position(i), *ZEROS), Scalar("Z", "float"))
    kernel = replace(attention().kernels[0], grid=(i,), dims=(i,), body=(wrong,))
    with pytest.raises(ValueError, match="is not handed Z"):
        emit.signature(kernel)


def test_a_store_cannot_drop_a_dimension() -> None:
    i, j = dim("i", "rows", "M", 0), dim("j", "lanes", "N", 1)
    wrong = Store("O", (Position(i), *ZEROS), Load("O", (*ZEROS, Position(j))))
    kernel = replace(attention().kernels[0], grid=(i,), dims=(i, j), body=(wrong,))
    with pytest.raises(ValueError, match="what is stored in O has j"):
        emit.signature(kernel)


def _sizes(*arguments: str, known: tuple[str, ...] = ()) -> list[str]:
    text = f"def f({', '.join(arguments)}):\n    for i in range(M):\n        A[i] = 0.0\n"
    arrays = [a for a in parse(Source("f.py", text)).arrays if a.role == "input"]
    return [
        f"{s.name} = ({s.array}.{s.axis} - {s.less and index_text(s.less)})"
        f" / {s.divisor and index_text(s.divisor)}"
        for s in solved(arrays, known)
    ]


def test_sizes_are_solved_from_extents() -> None:
    assert _sizes('A: Float[Array, "M"]') == ["M = (A.0 - None) / None"]
    assert _sizes('A: Float[Array, "2*M+1"]') == ["M = (A.0 - 1) / 2"]
    assert _sizes('A: Float[Array, "M*R"]', 'B: Float[Array, "R"]') == [
        "R = (B.0 - None) / None",
        "M = (A.0 - None) / R",
    ]
    assert _sizes('A: Float[Array, "M*R"]') == []
    assert _sizes('A: Float[Array, "M*R"]', known=("R",)) == ["M = (A.0 - None) / R"]
    assert _sizes('A: Float[Array, "M//R"]', known=("R",)) == []


def _random_expression(rng: random.Random, depth: int) -> str:
    if depth == 0:
        return rng.choice(["x", "BLOCK_I", "a_rather_long_name", "1.0", 'f("a, b (c")'])
    parts = [_random_expression(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    return rng.choice(
        [
            " + ".join(f"({p})" for p in parts),
            " * ".join(f"g({p})" for p in parts),
            f"tl.where({', '.join(parts)})",
            f"({parts[0]})[:, None]",
            f"{parts[0]} < {parts[-1]}" if depth == 1 else f"h({parts[0]}, mask={parts[-1]})",
            f"tl.load({', '.join(parts)}, other=0.0).to(tl.float32)",
        ]
    )


def test_broken_lines_mean_the_same_and_fit() -> None:
    rng = random.Random(0)
    broken = 0
    for _ in range(400):
        text = f"value = {_random_expression(rng, rng.randint(1, 4))}"
        lines = statement(text, 1, "S1")
        assert lines[-1].endswith("  # S1")
        broken += len(lines) > 1
        assert ast.dump(ast.parse(text)) == ast.dump(ast.parse("\n".join(lines).strip()))
        assert max(map(len, lines)) <= COLUMNS or "(" not in text
    assert broken > 50


FOUR = [f"gradient_of_the_{which}_queries" for which in ("first", "second", "third", "fourth")]


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        (f"return {', '.join(FOUR)}", ["return (", FOUR[0] + ","]),
        (f"{', '.join(FOUR)} = found", ["(", FOUR[0] + ","]),
        (
            f"wanted = [name for name, each in zip(({', '.join(FOUR)}), given) if each]",
            ["wanted = [", "name", "for name, each in zip("],
        ),
        (
            f"x = a * exp({FOUR[0]}) + b * exp({FOUR[1]}) if {FOUR[2]} > -inf else c",
            ["x = (", f"a * exp({FOUR[0]}) + b * exp({FOUR[1]})", f"if {FOUR[2]} > -inf", "else c"],
        ),
    ],
)
def test_where_a_long_statement_is_broken(text: str, begins: list[str]) -> None:
    lines = statement(text, 0)
    assert [line.strip() for line in lines[: len(begins)]] == begins
    assert max(map(len, lines)) <= COLUMNS
    module = "def f():\n" + "\n".join("    " + line for line in lines)
    assert ast.dump(ast.parse(module)) == ast.dump(ast.parse(f"def f():\n    {text}"))
