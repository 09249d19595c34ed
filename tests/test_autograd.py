"""`looptrans.compile` in torch's autograd: gradients, operators, `torch.compile`, refusals."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import looptrans
from looptrans.emit.backward import FORMS, emitted_with_backward
from looptrans.frontend import load
from looptrans.runtime import compile as compiling
from looptrans.runtime.gradients import Differentiable
from looptrans.runtime.running.device import prepare_device
from looptrans.runtime.running.load import load_module
from tests.analysis import program

if TYPE_CHECKING:
    import torch

    from looptrans.runtime.compile import Compiled
else:
    torch = pytest.importorskip("torch")
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed", allow_module_level=True)

Tensors = list[torch.Tensor]
SPECS = Path(__file__).resolve().parent.parent / "specs"
REFERENCES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "attention_naive": (
        lambda q, k, v: torch.softmax(q @ k.T, -1) @ v,
        [(5, 4), (7, 4), (7, 3)],
    ),
    "softmax": (lambda x: torch.softmax(x, -1), [(5, 7)]),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), [(5, 7)]),
    "matmul": (lambda a, b, bias: torch.relu(a @ b + bias), [(5, 4), (4, 3), (3,)]),
    "layernorm": (
        lambda x, w, b: torch.nn.functional.layer_norm(x, (x.shape[1],), w, b, 0.01),
        [(5, 7), (7,), (7,)],
    ),
}
NO_BACKWARD = """\
def last(x: Float[Array, "M N"]):
    y = zeros(M)
    for i in range(0, M):
        for j in range(0, N):
            if x[i, j] > 0.5:
                y[i] = x[i, j]
    return y
"""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache for this file, so that each listing is derived once."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOPTRANS_CACHE_DIR", str(folder))
        yield folder


def compiled(name: str) -> Callable[..., Any]:
    """Return a listing of specs/ as a function of its tensors."""
    found = looptrans.compile(SPECS / f"{name}.py")
    return (lambda *tensors: found(*tensors, 0.01)) if name == "layernorm" else found


def inputs(name: str, dtype: torch.dtype = torch.float32) -> Tensors:
    """Return arguments that require gradients, every other one with its strides reversed."""
    made = torch.Generator().manual_seed(7)
    found = []
    for number, shape in enumerate(REFERENCES[name][1]):
        turned = shape[::-1] if number % 2 == 0 else shape
        x = torch.randn(turned, generator=made).to(dtype)
        found.append((x.T if number % 2 == 0 and x.ndim > 1 else x).requires_grad_())
    return found


def gradients(function: Callable[..., Any], tensors: Tensors, *, expanded: bool) -> Tensors:
    """Return gradients of a sum of outputs, whose own gradient is expanded, or of their squares."""
    y = function(*tensors)
    return list(torch.autograd.grad((y if expanded else y * y).sum(), tensors))


def module_of(function: Compiled) -> Any:
    """Return the module of a compiled listing with its backward pass."""
    derived = function._derived()
    assert isinstance(derived, Differentiable)
    return sys.modules[derived.function.__module__]


@pytest.mark.parametrize("name", REFERENCES)
def test_gradients_are_those_of_torch(name: str) -> None:
    """With incoming gradients that share one element, and with inputs of any strides."""
    function, tensors = compiled(name), inputs(name)
    for expanded in (False, True):
        found = gradients(function, tensors, expanded=expanded)
        exact = [t.detach().double().requires_grad_() for t in tensors]
        wanted = gradients(REFERENCES[name][0], exact, expanded=expanded)
        for x, mine, theirs in zip(tensors, found, wanted, strict=True):
            assert (mine.shape, mine.dtype) == (x.shape, x.dtype)
            torch.testing.assert_close(mine.double(), theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", REFERENCES)
def test_operators_pass_torch_s_own_checks(name: str) -> None:
    """Schema, fake tensors, registration, and ahead-of-time autograd with symbolic sizes."""
    found = looptrans.compile(SPECS / f"{name}.py")
    tensors = inputs(name)
    compiled(name)(*tensors)
    operator = getattr(module_of(found), f"_{name}_forward_operator")
    numbers = [0.01, None] if name == "layernorm" else []
    options = [True] * sum(a.name == "tune" for a in operator._opoverload._schema.arguments)
    assert set(torch.library.opcheck(operator, (*tensors, *numbers, *options)).values()) == {
        "SUCCESS"
    }


TWICE = """\
def twice(x: Float[Array, "N"]):
    y = zeros(N)
    for i in range(0, N):
        y[i] = x[i] * x[i]
    return y
"""


def test_a_module_that_is_loaded_twice_keeps_its_operators(tmp_path: Path) -> None:
    """Torch takes the operators of the first copy away when the second one has the same names."""
    path, text = tmp_path / "twice.py", emitted_with_backward(program(TWICE)).text
    path.write_text(text, "utf-8")
    prepare_device("cpu")
    copies = [load_module(f"copy_{n}_of_twice", text, path).twice for n in range(3)]
    names = {copy.__globals__["_twice_forward_operator"]._qualname for copy in copies}
    assert len(names) == len(copies)
    x = torch.randn(5, requires_grad=True)
    for copy in copies:
        (found,) = torch.autograd.grad(copy(x).sum(), x)
        assert torch.equal(found, 2 * x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", ["attention_naive", "layernorm"])
def test_torch_compile_finds_no_graph_break(name: str, backend: str) -> None:
    function, tensors = compiled(name), inputs(name)
    wanted = gradients(lambda *t: 2.0 * function(*t), tensors, expanded=False)
    torch.compiler.reset()
    whole = torch.compile(lambda *t: 2.0 * function(*t), fullgraph=True, backend=backend)
    found = gradients(whole, tensors, expanded=False)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    with torch.no_grad():
        assert not whole(*tensors).requires_grad


def test_half_precision() -> None:
    """Gradients have the inputs' type; what is saved besides the outputs is in float32."""
    function, tensors = compiled("attention_naive"), inputs("attention_naive", torch.float16)
    exact = [t.detach().double().requires_grad_() for t in tensors]
    wanted = gradients(REFERENCES["attention_naive"][0], exact, expanded=True)
    for mine, theirs in zip(gradients(function, tensors, expanded=True), wanted, strict=True):
        assert mine.dtype == torch.float16
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-2, atol=1e-2)
    output = function(*tensors)  # torch 2.11 lets go of what is saved along with the output
    saved = output.grad_fn.saved_tensors
    assert {t.dtype for t in saved if t.ndim == 1} == {torch.float32}


class Untouchable:
    """A kernel that must not be launched."""

    def __getitem__(self, grid: object) -> object:
        raise AssertionError("launched for a gradient that nobody asked for")


def test_no_work_for_gradients_that_nobody_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    function = looptrans.compile(SPECS / "attention_naive.py")
    q, k, v = (t.detach() for t in inputs("attention_naive"))
    module = module_of(function)
    source = function.backward_source or ""
    (mine,) = (n for n in vars(module) if n.endswith("_dQ_kernel"))
    assert "dQ_ptr" in source.partition(f"def {mine}(")[2].partition(")")[0]
    y = function(q, k, v.requires_grad_())
    monkeypatch.setattr(module, mine, Untouchable())
    (found,) = torch.autograd.grad(y.sum(), [v])
    weights = torch.softmax(q @ k.T, -1)
    torch.testing.assert_close(found, weights.sum(0)[:, None].expand_as(v), rtol=1e-5, atol=1e-6)
    with pytest.raises(AssertionError, match="nobody asked"):
        torch.autograd.grad(function(q.requires_grad_(), k, v).sum(), [q])


def test_what_is_saved_is_what_the_kernels_read() -> None:
    """The gradient of a softmax needs its result, not its argument."""
    (x,) = inputs("softmax")
    y = compiled("softmax")(x)
    (saved,) = y.grad_fn.saved_tensors
    assert saved.data_ptr() == y.data_ptr()


def test_an_output_without_a_gradient_of_its_own() -> None:
    """Of two outputs one alone may be used; an output that is saved besides shows nowhere."""
    function = looptrans.compile(SPECS / "attention.py")
    q, k, v = (torch.randn(1, 2, n, 4).requires_grad_() for n in (3, 5, 5))
    _, lse = function(q, k, v)
    found = torch.autograd.grad(lse.sum(), [q, k])
    exact = [t.detach().double().requires_grad_() for t in (q, k)]
    scores = exact[0] @ exact[1].transpose(-1, -2) / 2.0
    wanted = torch.autograd.grad(torch.logsumexp(scores, -1).sum(), exact)
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-5, atol=1e-6)


def test_a_real_parameter_given_as_a_tensor() -> None:
    function = looptrans.compile(SPECS / "layernorm.py")
    x, w, b = inputs("layernorm")
    eps = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad((function(x, w, b, eps) ** 2).sum(), [eps])
    exact = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    d = [t.detach().double() for t in (x, w, b)]
    y = (d[0] - d[0].mean(1, keepdim=True)) / (
        d[0].var(1, correction=0, keepdim=True) + exact
    ).sqrt()
    (wanted,) = torch.autograd.grad(((y * d[1] + d[2]) ** 2).sum(), [exact])
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_an_argument_that_is_called_as_the_listing_is() -> None:
    function = looptrans.compile("""
def a(X: Float[Array, "M"], a: float):
    Y = zeros(M)
    for i in range(M):
        Y[i] = a * X[i]
    return Y
""")
    x, factor = torch.ones(3), torch.tensor(2.0, requires_grad=True)
    (found,) = torch.autograd.grad(function(x, factor).sum(), [factor])
    assert found == 3.0


def test_a_second_derivative_is_refused() -> None:
    (x,) = inputs("softmax")
    (found,) = torch.autograd.grad((compiled("softmax")(x) ** 2).sum(), [x], create_graph=True)
    with pytest.raises(RuntimeError, match="softmax has no second derivative"):
        torch.autograd.grad(found.sum(), [x])


def test_a_listing_without_a_backward_pass_says_why() -> None:
    function = looptrans.compile(NO_BACKWARD)
    x = torch.tensor([[0.2, 0.9, 0.1], [0.7, 0.1, 0.6]])
    assert function(x).tolist() == pytest.approx([0.9, 0.6])
    y = function(x.requires_grad_())
    assert y.tolist() == pytest.approx([0.9, 0.6])
    assert function.backward_source is None
    assert function.no_gradient
    with pytest.raises(RuntimeError, match="last has no gradient: ") as found:
        y.sum().backward()
    assert function.no_gradient in str(found.value)


PAIRS = """
def pairs(x: Float[Array, "E"]):
    y = zeros(E)
    for p in range(E // 2):
        y[2 * p] = x[2 * p + 1]
        y[2 * p + 1] = x[2 * p]
    return y
"""


def test_why_there_is_no_gradient_comes_with_what_to_do_about_it() -> None:
    """The command line has a line of its own for that; Python has the one sentence."""
    x = torch.arange(4.0, requires_grad=True)
    with pytest.raises(RuntimeError, match="nothing is left over, with assert E % 2 == 0; detach"):
        looptrans.compile(PAIRS)(x).sum().backward()
    said = PAIRS.replace("    y = ", "    assert E % 2 == 0\n    y = ", 1)
    looptrans.compile(said)(x)[0].backward()
    assert x.grad is not None and x.grad.tolist() == [0.0, 1.0, 0.0, 0.0]


def test_who_asks_for_no_gradient_waits_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    original = compiling._emitted_backward

    def counted(*arguments: Any) -> Any:
        asked.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(compiling, "_emitted_backward", counted)
    text = (SPECS / "softmax.py").read_text() + "\n# another text\n"
    function = looptrans.compile(text)
    (x,) = inputs("softmax")
    with torch.no_grad():
        function(x)
    function(x.detach(), out=torch.empty(5, 7))
    assert not asked
    with pytest.raises(RuntimeError, match="leave out= away"):
        function(x, out=torch.empty(5, 7))
    function(x)
    looptrans.compile(text)(x)
    assert len(asked) == 1, "derived once, then kept"


def test_two_roles_in_one_launch(tmp_path: Path) -> None:
    """The same numbers, to the bit: only which program does what is another."""
    program = load(str(SPECS / "attention_naive.py"))
    tensors = inputs("attention_naive")
    found = []
    for form in FORMS[:2]:
        made = emitted_with_backward(program, form=form)
        path = tmp_path / f"{form}.py"
        path.write_text(made.text)
        module = load_module(f"roles_{form}", made.text, path)
        assert ("_dQ_and_dK_dV_kernel" in made.text) == (form == "launch")
        found.append(gradients(getattr(module, made.launcher), tensors, expanded=True))
        outputs = getattr(module, made.forward_launcher)(*(t.detach() for t in tensors))
        rest = (outputs[1], outputs[0], torch.ones_like(outputs[0]))
        backward = getattr(module, made.backward_launcher)
        some = backward(*(t.detach() for t in tensors), *rest, wanted=["dV"])
        assert some[:2] == (None, None)
        assert torch.equal(some[2], found[-1][2])
        with pytest.raises(ValueError, match="wanted should name some of dQ, dK, dV"):
            backward(*(t.detach() for t in tensors), *rest, wanted=["dX"])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
