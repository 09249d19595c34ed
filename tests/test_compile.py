"""`looptrans.compile`: from a path, a text or a function to a function on tensors."""

from __future__ import annotations

import importlib.util
import inspect
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import looptrans
from looptrans.blocks.block_ir.program import NotLowered
from looptrans.derivation.step import Derivation
from looptrans.emit import listing as emission
from looptrans.emit.listing import emitted
from looptrans.frontend import parse
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.source import Source
from looptrans.runtime.running.device import NoDevice, prepare_device

if TYPE_CHECKING:
    import torch

    from looptrans.runtime.compile import Compiled
else:
    torch = pytest.importorskip("torch")
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed", allow_module_level=True)

Patch = pytest.MonkeyPatch

ROOT = Path(__file__).resolve().parent.parent
TOTAL = """\
def total(x: Float[Array, "M N"]):
    t = zeros(M)
    for i in range(0, M):
        for j in range(0, N):
            t[i] = t[i] + x[i, j]  # S7: all of a row
    return t
"""
IN_A_MODULE = f'''\
"""Functions that must not run."""

from __future__ import annotations


def same(value):
    raise AssertionError("a listing is read, never executed")
    return 1


{TOTAL.replace("x[i, j]", "once(x[i, j])")}

def once(value):
    return value * ONE


ONE = 1.0


class Rows:
{"".join(f"    {line}" for line in TOTAL.splitlines(keepends=True))}

def made():
    if True:
{"".join(f"        {line}" for line in TOTAL.splitlines(keepends=True))}
    return total
'''


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache for this file, so that each listing is emitted once."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOPTRANS_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture
def compiled(cache: Path) -> Compiled:
    return looptrans.compile(TOTAL)


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    path = tmp_path / "functions.py"
    path.write_text(IN_A_MODULE)
    spec = importlib.util.spec_from_file_location("functions", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_total(compiled: Compiled) -> None:
    x = torch.linspace(-1, 3, 35, device=prepare_device()).reshape(5, 7)
    assert torch.allclose(compiled(x), x.sum(1), rtol=1e-6)
    assert torch.equal(compiled(x=x), compiled(x))


def python(code: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment |= {"LOOPTRANS_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_a_text(compiled: Compiled, cache: Path) -> None:
    assert_total(compiled)
    assert compiled.listing == TOTAL
    assert compiled.source == emitted(parse(Source("<listing>", TOTAL))).text
    assert compiled.path.parent == cache
    assert compiled.path.read_text().startswith(compiled.source)
    assert compiled.__name__ == "total"
    assert next(iter(inspect.signature(compiled).parameters)) == "x"


@pytest.mark.usefixtures("cache")
def test_a_path(tmp_path: Path) -> None:
    path = tmp_path / "rows.py"
    path.write_text(TOTAL)
    found = looptrans.compile(path)
    assert_total(found)
    assert found.listing == TOTAL
    assert looptrans.compile(str(path)).path == found.path
    path.write_text(IN_A_MODULE)
    assert_total(looptrans.compile(f"{path}::Rows.total"))
    assert looptrans.compile(path, function="Rows.total").__name__ == "Rows_total"


@pytest.mark.usefixtures("cache")
def test_a_function_is_read_and_never_executed(module: ModuleType) -> None:
    """Helpers and constants of its file belong to it; nothing of the file runs again."""
    assert_total(looptrans.compile(module.total))
    method = looptrans.compile(module.Rows().total)
    assert (method.__name__, method.listing) == ("Rows_total", IN_A_MODULE)
    assert_total(method)
    inner = looptrans.compile(module.made())
    assert inner.listing.strip() == TOTAL.strip()
    assert_total(inner)


@pytest.mark.usefixtures("cache")
def test_what_is_no_listing(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="not of type int"):
        looptrans.compile(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="source of len cannot be read"):
        looptrans.compile(len)
    with pytest.raises(ListingError, match="there is no such file"):
        looptrans.compile(tmp_path / "none.py")
    with pytest.raises(ListingError) as found:
        looptrans.compile(TOTAL.replace("x[i, j]", "x[i * j, j]"))
    (note,) = found.value.__notes__
    assert note.startswith("error[E012]")
    assert "<listing>:5:" in note


def test_a_refusal_says_where_and_why(cache: Path, monkeypatch: Patch) -> None:
    before = sorted(cache.iterdir())

    def refusing(_: Derivation, **_options: object) -> object:
        raise NotLowered("S7 looks at what a later row has left", "S7")

    monkeypatch.setattr(emission, "lower", refusing)
    with pytest.raises(NotLowered) as found:
        looptrans.compile(TOTAL.replace("total", "refused"))
    text = str(found.value)
    assert "cannot emit refused" in text
    assert "t[i] = t[i] + x[i, j]  # S7: all of a row" in text
    assert "S7 looks at what a later row has left" in text
    assert sorted(cache.iterdir()) == before


def test_what_is_kept_is_not_emitted_again(compiled: Compiled, monkeypatch: Patch) -> None:
    def fails(_: object) -> None:
        raise AssertionError("emitted again")

    monkeypatch.setattr(emission, "emitted", fails)
    again = looptrans.compile(TOTAL)
    assert (again.path, again.source) == (compiled.path, compiled.source)
    with pytest.raises(AssertionError, match="emitted again"):
        looptrans.compile(TOTAL + "\n")


def test_a_file_cut_short_is_written_again(compiled: Compiled) -> None:
    whole = compiled.path.read_bytes()
    compiled.path.write_bytes(whole[:100])
    assert_total(looptrans.compile(TOTAL))
    assert compiled.path.read_bytes() == whole


@pytest.mark.usefixtures("compiled")
def test_what_is_kept_needs_neither_isl_nor_a_parser(cache: Path, tmp_path: Path) -> None:
    """In a new process, which also finds that it has to interpret."""
    path = tmp_path / "total.py"
    path.write_text(TOTAL)
    looptrans.compile(path)
    done = python(
        "import sys, looptrans\n"
        "light = {name.partition('.')[0] for name in sys.modules}\n"
        f"total = looptrans.compile({str(path)!r})\n"
        "import torch\n"
        "x = torch.ones(3, 4, device='cuda' if torch.cuda.is_available() else 'cpu')\n"
        "heavy = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(light & {'islpy', 'networkx', 'numpy', 'sympy', 'torch', 'triton'}))\n"
        "print('islpy' in heavy, 'looptrans.frontend' in sys.modules)\n"
        "print(total(x).tolist())\n",
        cache,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "[]\nFalse False\n[4.0, 4.0, 4.0]\n"


@pytest.mark.skipif(torch.cuda.is_available(), reason="nothing is interpreted where a GPU is")
def test_triton_imported_too_early(cache: Path) -> None:
    done = python(f"import triton, looptrans\nlooptrans.compile({TOTAL!r})", cache)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "NoDevice: without a GPU kernels run in Triton's interpreter" in last
    assert "set TRITON_INTERPRET=1 before triton is first imported" in last


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there() -> None:
    assert prepare_device() == prepare_device("cpu") == "cpu"
    assert os.environ["TRITON_INTERPRET"] == "1"
    with pytest.raises(NoDevice, match="there is no GPU for the device 'cuda:1'"):
        prepare_device("cuda:1")


@pytest.mark.usefixtures("cache")
def test_the_interpreter_leaves_out_what_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers wrap around as before, and triton.language is afterwards what it was."""
    prepare_device("cpu")
    from triton import language
    from triton.runtime import interpreter

    assert not interpreter.interpreter_builder.options.sanitize_overflow
    prepared = interpreter._patch_lang
    patched: list[Any] = []
    patch = prepared._patch

    def counted(fn: Any) -> Any:
        patched.append(fn)
        return patch(fn)

    monkeypatch.setattr(prepared, "_patch", counted)

    def members() -> tuple[Any, ...]:
        return language.load, language.tensor.__add__, language.math.exp, language.core.reduce

    before = members()
    # Five rows are two programs, each of which calls `tl.sum`.
    found = looptrans.compile(TOTAL)(torch.ones(5, 7))
    assert torch.equal(found, torch.full((5,), 7.0))
    assert before == members()
    assert len(patched) == 2  # the module that the kernel sees, and the one that functions see


@pytest.mark.usefixtures("cache")
def test_a_name_that_the_module_needs_itself() -> None:
    """The launcher of a listing called torch cannot be called so."""
    found = looptrans.compile(TOTAL.replace("total", "torch"))
    assert found.__name__ != "torch"
    assert_total(found)


def test_a_factor_of_any_sign_goes_through_a_maximum() -> None:
    """A positive one is applied behind it, which the launcher tells the kernel."""
    compiled = looptrans.compile(ROOT / "specs" / "attention_causal.py")
    generator = torch.Generator().manual_seed(3)
    q, k, v = torch.randn((3, 1, 2, 21, 16), generator=generator).unbind()
    later = torch.ones(21, 21).triu(1).bool()
    for scale in (0.5, -0.5, 0.0):
        scores = (scale * q @ k.transpose(-1, -2)).masked_fill(later, -torch.inf)
        torch.testing.assert_close(compiled(q, k, v, scale), scores.softmax(-1) @ v)


def test_a_compiled_listing_can_be_sent_to_another_process() -> None:
    compiled = looptrans.compile(TOTAL)
    again = pickle.loads(pickle.dumps(compiled))
    assert (again.listing, again.source) == (compiled.listing, compiled.source)
    x = torch.ones(3, 5)
    torch.testing.assert_close(again(x), compiled(x))
