"""The module of a listing with its backward pass: what stands in it, and what can be left out."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from looptrans.adjoint.backward import backward
from looptrans.cli.main import main
from looptrans.emit.backward import EmittedBackward, emitted_backward
from looptrans.emit.needs import needs_of
from looptrans.frontend import parse
from looptrans.ir.source import Source
from tests.analysis import spec

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).resolve().parent.parent
SQUARES = """\
def {name}({x}: Float[Array, "M N"], {s}: float):
    {y} = zeros(M)
    for i in range(0, M):
        for j in range(0, N):
            {y}[i] = {y}[i] + {s} * {x}[i, j] * {x}[i, j]
    return {y}
"""


@pytest.fixture(scope="module")
def attention() -> EmittedBackward:
    return emitted_backward(backward(spec("attention_naive")))


def squares(name: str = "squares", x: str = "x", s: str = "s", y: str = "y") -> str:
    return SQUARES.format(name=name, x=x, s=s, y=y)


def test_one_module_that_stands_alone(attention: EmittedBackward) -> None:
    """Every function once, nothing imported but torch and triton."""
    tree = ast.parse(attention.text)
    defined = Counter(n.name for n in tree.body if isinstance(n, ast.FunctionDef))
    assert {name for name, count in defined.items() if count > 1} == {"_"}
    assert {"attention_naive", "attention_naive_forward", "attention_naive_backward"} <= set(
        defined
    )
    imported = {
        alias.name.partition(".")[0]
        for node in tree.body
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert imported == {"itertools", "torch", "triton"}
    assert max(map(len, attention.text.splitlines())) <= 100
    assert attention.name == "attention_naive_backward"


def test_the_same_text_every_time(attention: EmittedBackward) -> None:
    assert emitted_backward(attention.found).text == attention.text


def test_who_serves_which_gradient(attention: EmittedBackward) -> None:
    """delta is for dQ and dK; dV alone needs no dK, so its kernel may leave that out."""
    needs = needs_of(attention.backward)
    kernels = {
        frozenset(a.name for a in kernel.arrays if a.access != "in"): (served, optional)
        for kernel, served, optional in zip(
            attention.backward.kernels, needs.kernels, needs.optional, strict=True
        )
    }
    served, optional = kernels[frozenset({"dK", "dV"})]
    assert served == optional == {"dK", "dV"}
    assert kernels[frozenset({"dQ"})] == (frozenset({"dQ"}), frozenset())
    assert needs.arrays["delta"] == {"dQ", "dK", "dV"}
    assert needs.condition(needs.arrays["delta"]) is None
    assert needs.condition(needs.arrays["dQ"]) == '"dQ" in wanted'
    for array in ("dK", "dV"):
        assert f"    if {array}_ptr is not None:\n        tl.store(\n" in attention.text
    assert "if dQ_ptr is not None" not in attention.text


COMPILED = """\
import re, sys
import triton
from triton.compiler import ASTSource
from pathlib import Path
from looptrans.runtime.running.load import load_module
path = Path(sys.argv[1])
module = load_module("emitted", path.read_text(), path)
(kernel,) = (v for k, v in vars(module).items() if k == sys.argv[2])
constants = {"INDEX": triton.language.int32, "E": 16, "D": 16}
for without in ((), ("dK_ptr",), ("dV_ptr",)):
    known = {n: None for n in without} | {
        n: constants.get(n, 16) for n in kernel.arg_names if n in constants or "BLOCK" in n
    }
    kinds = {n: "*fp16" if n.endswith("_ptr") else "i32" for n in kernel.arg_names}
    kinds |= {n: "*fp32" for n in kinds if n in ("lse_ptr", "delta_ptr")}
    kinds |= dict.fromkeys(known, "constexpr")
    source = ASTSource(fn=kernel, signature=kinds, constexprs=known)
    target = triton.backends.compiler.GPUTarget("cuda", 90, 32)
    compiled = triton.compile(source, target=target, options={"num_warps": 1, "num_stages": 1})
    print(len(re.findall("tt.dot ", compiled.asm["ttgir"])))
"""


def test_triton_drops_what_is_only_for_a_gradient_left_out(
    attention: EmittedBackward, tmp_path: Path
) -> None:
    """Products in the two loops over blocks: dK takes S, dP and its own, dV takes S and its own."""
    pytest.importorskip("triton")
    path = tmp_path / "attention.py"
    path.write_text(attention.text)
    (name,) = (
        kernel.name
        for kernel in attention.backward.kernels
        if {"dK", "dV"} <= {a.name for a in kernel.arrays}
    )
    done = subprocess.run(
        [sys.executable, "-c", COMPILED, str(path), name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["8", "4", "6"]


@pytest.mark.parametrize("names", [("torch", "x", "s", "y"), ("found", "ctx", "wanted", "output")])
def test_a_listing_with_the_module_s_own_names(names: tuple[str, ...]) -> None:
    text = squares(*names)
    made = emitted_backward(backward(parse(Source("<listing>", text))))
    tree = ast.parse(made.text)
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    for function in functions:
        arguments = [a.arg for a in (*function.args.args, *function.args.kwonlyargs)]
        assert len(set(arguments)) == len(arguments)
    assert made.launcher not in ("torch", "triton", "tl")
    assert made.launcher in {function.name for function in functions}


def test_a_size_with_the_name_of_an_option_of_a_launch() -> None:
    """A kernel whose parameter is `num_warps` would be given two of them."""
    made = emitted_backward(backward(parse(Source("<listing>", squares()))))
    renamed = squares().replace("N", "num_warps")
    again = emitted_backward(backward(parse(Source("<listing>", renamed))))
    for text, own in ((made.text, "N"), (again.text, "num_warps_")):
        kernels = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
        named = {a.arg for k in kernels if k.name.endswith("_kernel") for a in k.args.args}
        assert own in named
        assert "num_warps" not in named


def test_emit_writes_one_module_for_both_passes(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "listing.py"
    path.write_text(squares())
    folder = tmp_path / "kernels"
    for which in ("backward", "both"):
        assert main(["emit", str(path), "--pass", which, "-o", str(folder)]) == 0
    assert [each.name for each in folder.iterdir()] == ["squares_backward.py"]
    assert main(["emit", str(path), "--pass", "backward", "--check", "-o", str(folder)]) == 0
    assert main(["emit", str(path), "--pass", "backward", "--of", "y"]) == 0
    printed = capsys.readouterr().out
    assert printed.endswith((folder / "squares_backward.py").read_text())


def test_emit_refuses_with_place_and_remedy(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "listing.py"
    path.write_text(squares())
    for arguments, said in (
        (["--pass", "backward", "--of", "z"], "error: squares has no output z; it has y\n"),
        (["--of", "y"], "error: --of and --form are about a backward pass: add --pass backward\n"),
    ):
        assert main(["emit", str(path), *arguments]) == 2
        assert capsys.readouterr() == ("", said)
    folder, name = tmp_path / "kernels", "flash_forward_as_printed"
    assert main(["emit", str(ROOT / f"specs/{name}.py"), "--pass", "both", "-o", str(folder)]) == 1
    printed = capsys.readouterr()
    assert f"error[E071]: cannot differentiate {name}\n" in printed.err
    assert f"{name}.py:20:17 | m_i = m[i]" in printed.err
    assert not folder.exists()
    assert main(["explain", "E071"]) == 0
