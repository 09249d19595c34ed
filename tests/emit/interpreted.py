"""Run emitted modules in Triton's interpreter; the findings go to stdout as JSON.

Run as a program of its own, since TRITON_INTERPRET has to be set before triton is imported.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from looptrans import emit
from looptrans.blocks.block_ir.program import BlockProgram
from looptrans.executor.philox import uniform
from tests.emit.programs import ALL, renamed

Error = tuple[str, float]

# Names that mean something in the emitted text, for loops, arrays and sizes.
AWKWARD = {
    "Q": "tl",
    "K": "torch",
    "V": "triton",
    "O": "out",
    "n_kv": "meta",
    "scale": "tune",
    "b": "pid",
    "h": "range",
    "i": "O_ptr",
    "j": "j_first",
    "e": "float",
    "d": "tl_ptr",
    "M": "INDEX",
    "N": "BLOCK_I",
    "H": "grid",
    "E": "E_in",
    "B": "index",
    "attention": "min",
}


def load(program: BlockProgram, folder: Path) -> Callable[..., Any]:
    """Write the module of a program to a file, import it, and return its launcher."""
    names = emit.names(program)
    path = folder / f"{names.file}.py"
    path.write_text(emit.module(program, version="0"))
    spec = importlib.util.spec_from_file_location(names.file, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    launcher: Callable[..., Any] = getattr(module, names.launcher)
    return launcher


def findings(folder: Path) -> Iterator[Error]:
    """Yield the relative error of each output, and whether each mistake is refused."""
    import torch

    torch.manual_seed(0)
    launchers = {name: load(make(), folder) for name, make in ALL.items()}
    awkward = load(renamed(ALL["attention"](), AWKWARD), folder)

    def strided(*shape: int, dtype: Any) -> Any:
        """Random numbers, every second element along each dimension; nan between them."""
        around = torch.full([2 * n + 1 for n in shape], math.nan, dtype=dtype)
        inner = around[tuple(slice(1, None, 2) for _ in shape)]
        return inner.copy_(torch.randn(*shape))

    def error(found: Any, wanted: Any) -> float:
        found, wanted = found.double(), wanted.double()
        if found.shape != wanted.shape:
            return math.inf
        largest = float(wanted.norm())
        return float((found - wanted).norm()) / largest if largest else float(found.norm())

    def attention(run: Callable[..., Any], sizes: tuple[int, ...], dtype: Any) -> float:
        b, g, r, m, n, e, d = sizes
        q = strided(b, g * r, m, e, dtype=dtype)
        k, v = strided(b, g, n, e, dtype=dtype), strided(b, g, n, d, dtype=dtype)
        lengths = torch.randint(0, n + 1, (b,), dtype=torch.int32)
        found = run(q, k, v, lengths, 0.3, check=True)
        scores = q.double() @ k.double().repeat_interleave(r, 1).mT * 0.3
        seen = torch.arange(n) <= torch.arange(m)[:, None]
        seen = seen & (torch.arange(n) < lengths[:, None, None, None])
        weights = scores.masked_fill(~seen, -math.inf).softmax(-1).nan_to_num(0)
        return error(found, weights @ v.double().repeat_interleave(r, 1))

    def refused(name: str, *arguments: Any, **options: Any) -> str:
        try:
            launchers[name](*arguments, **options)
        except ValueError as mistake:
            return str(mistake)
        return "accepted"

    for dtype in (torch.float32, torch.float16):
        kind = str(dtype).removeprefix("torch.")
        for m, n, k in ((37, 41, 19), (0, 5, 3), (4, 5, 0)):
            a, b, bias = (strided(*s, dtype=dtype) for s in ((m, k), (k, n), (n,)))
            wanted = (a.double() @ b.double() + bias.double()).clamp(min=0)
            yield f"matmul {kind}", error(launchers["matmul"](a, b, bias), wanted)
        x = strided(5, 35, dtype=dtype)
        y, m_ = launchers["softmax"](x)
        yield f"softmax {kind}", error(y, x.double().softmax(1))
        yield "softmax float32", error(m_, x.double().amax(1))
        for sizes in ((2, 1, 2, 37, 45, 20, 24), (1, 1, 1, 1, 7, 64, 16), (1, 1, 1, 0, 5, 8, 8)):
            yield f"attention {kind}", attention(launchers["attention"], sizes, dtype)
        yield f"awkward {kind}", attention(awkward, (2, 1, 2, 17, 19, 20, 24), dtype)
        x, y = strided(3, 13, dtype=dtype), strided(3, 13, dtype=dtype)
        wanted = y.double() + x.double() - x.double().mean(1, keepdim=True)
        yield "identity", 0.0 if launchers["centered"](x, y) is y else 1.0
        yield f"centered {kind}", error(y, wanted)
        x = strided(3, 13, dtype=dtype)
        wanted = torch.zeros(3, 13, dtype=torch.float64)
        for i in range(3):
            state = 1.0
            for t in range(13):
                state = math.tanh(0.7 * state) + float(x[i, t]) ** 2
                wanted[i, t] = state if state > 2 else 0.0
        yield f"recurrence {kind}", error(launchers["recurrence"](x, a=0.7), wanted)
        x = strided(21, dtype=dtype)
        flags, page = torch.rand(21) < 0.5, torch.randperm(21)
        out = tuple(torch.full((21,), math.nan) for _ in range(2))
        out += (strided(21, dtype=dtype), torch.ones(21, dtype=torch.bool), torch.ones(2))
        found = launchers["functions"](x, flags, page, 7, 1.5, out=out, check=True)
        yield "identity", 0.0 if all(map(lambda a, b: a is b, found, out)) else 1.0
        t, u, w, f, c = found
        x = x.double()
        yield "functions float32", error(t, x.tanh())
        random = [float(uniform(7, i, 3)) for i in range(21)]
        yield "identity", error(u, torch.tensor(np.array(random)))
        powers = torch.stack([x.abs() ** 1.5, x**3, (x - 1) ** 2, torch.full_like(x, 0.5)]).amax(0)
        yield f"functions {kind}", error(w[page], powers)
        yield "identity", 0.0 if bool((f == (flags & ~(x > 0.5))).all()) else 1.0
        yield "functions float32", error(c, torch.stack([torch.tensor(21.0), x.prod()]))
    small = torch.linspace(-1e-3, 1e-3, 21)
    t = launchers["functions"](small, flags, page, 7, 1.5)[0]
    yield "functions float32", error(t, small.double().tanh())

    a, b, bias = torch.ones(2, 3), torch.ones(3, 4), torch.ones(4)
    half = torch.float16
    for part, message in (
        ("torch.Tensor", refused("matmul", [1.0], b, bias)),
        ("2 dimensions", refused("matmul", a[0], b, bias)),
        ("resolve_neg", refused("matmul", torch._neg_view(a), b, bias)),
        ("to_dense", refused("matmul", a.to_sparse(), b, bias)),
        ("float64", refused("matmul", a.double(), b, bias)),
        ("one dtype", refused("matmul", a, b.to(half), bias)),
        ("(3, 4)", refused("matmul", a, torch.ones(5, 4), bias)),
        ("expanded", refused("centered", a, torch.ones(1, 3).expand(2, 3))),
        ("tuple of 2", refused("softmax", a, out=a)),
        ("float32", refused("matmul", a, b, bias, out=torch.ones(2, 4, dtype=half))),
        ("one device", refused("matmul", a, b.to("meta"), bias)),
        (
            "H == G * R; here H = 3, G = 2, R = 1",
            refused(
                "attention", torch.ones(1, 3, 2, 2), *[torch.ones(1, 2, 2, 2)] * 2, page[:1], 1.0
            ),
        ),
        (
            "n_kv should hold integers from 0",
            refused("attention", *[torch.ones(1, 1, 2, 2)] * 3, page[:1] * 0 - 1, 1.0, check=True),
        ),
        (
            "page[i] != page[j]",
            refused("functions", small, flags, page * 0, 7, 1.5, check=True),
        ),
    ):
        yield f"refusal: {part} in {message}", 0.0 if part in message else 1.0
    wide = launchers["matmul"].__globals__["_index_type"]
    yield "identity", 0.0 if str(wide(a)) == "int32" else 1.0
    yield "identity", 0.0 if str(wide(a, torch.ones(1).expand(2**31))) == "int64" else 1.0
    spread = torch.empty_strided((2, 2), (2**31, 1), device="meta")
    yield "identity", 0.0 if str(wide(spread)) == "int64" else 1.0


if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as directory:
        json.dump(list(findings(Path(directory))), sys.stdout)
