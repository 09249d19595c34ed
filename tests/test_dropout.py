"""Random numbers in kernels: the executor's bits in both passes, whatever the blocks are."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

import looptrans  # noqa: E402
from looptrans.algebra.normal_forms.normal import equality  # noqa: E402
from looptrans.derivation.derive import derive  # noqa: E402
from looptrans.emit.listing import emitted  # noqa: E402
from looptrans.emit.runtime_text import FUNCTIONS  # noqa: E402
from looptrans.executor.inputs import prepare  # noqa: E402
from looptrans.executor.philox import uniform  # noqa: E402
from looptrans.ir.condition import Data  # noqa: E402
from looptrans.ir.listing import listing as show  # noqa: E402
from looptrans.ir.value import Binary, Compare, Const, Real, Select, Value  # noqa: E402
from looptrans.runtime.running.load import load_module  # noqa: E402
from tests.analysis import program, spec  # noqa: E402

SHELF = Path(__file__).resolve().parent.parent / "generated"
LENGTH, HEADS, CHANCE, SEED = 40, 2, 0.25, (3 << 33) + 5

HEAD = """\
def f(
    Q: Float[Array, "H M E"], K: Float[Array, "G N E"], V: Float[Array, "G N D"],{more}
    p: float, seed: int
):
    {assume}
    O = zeros((H, M, D))
    for h in range(0, H):
        for i in range(0, M):
            m = -inf
            for j in range(0, {stop}):
                m = max(m, {score})
            l = 0.0
            for j in range(0, {stop}):
                l = l + exp({score} - m)
            for j in range(0, {stop}):
{last}
    return O
"""
SCORE = "sum(Q[h, i, e] * K[h, j, e] for e in range(0, E))"
# One after the other: a factor, a guard, a number that is drawn first, and a sum of two parts.
WAYS = {
    "where": """\
                z = where(uniform(seed, h, i, j) >= p, 1.0 / (1.0 - p), 0.0)
                for d in range(0, D):
                    O[h, i, d] = O[h, i, d] + z * {weight} * V[h, j, d]""",
    "guard": """\
                if uniform(seed, h, i, j) >= p:
                    for d in range(0, D):
                        O[h, i, d] = O[h, i, d] + {weight} / (1.0 - p) * V[h, j, d]""",
    "ternary": """\
                u = uniform(seed, h, i, j)
                for d in range(0, D):
                    w = 0.0 if u < p else {weight} * V[h, j, d] / (1.0 - p)
                    O[h, i, d] = O[h, i, d] + w""",
}


def listing(
    last: str, *, stop: str = "N", score: str = SCORE, more: str = "", assume: str = ""
) -> str:
    weight = f"exp({score} - m) / l"
    text = HEAD.format(
        more=more, assume=assume, stop=stop, score=score, last=last.format(weight=weight)
    )
    return text if assume else text.replace("    \n", "", 1).replace('"G ', '"H ')


@pytest.fixture(scope="module")
def shelf() -> ModuleType:
    path = SHELF / "attention_dropout_backward.py"
    return load_module("test_dropout_shelf", path.read_text(encoding="utf-8"), path)


def kept(seed: int = SEED) -> Any:
    """Return what is kept, by the executor's definition: (1, H, N, N), nothing right of i."""
    found = np.zeros((1, HEADS, LENGTH, LENGTH), dtype=bool)
    for h in range(HEADS):
        for i in range(LENGTH):
            for j in range(i + 1):
                found[0, h, i, j] = uniform(seed, h, i, j) >= np.float32(CHANCE)
    return found


def arguments(p: float = CHANCE) -> tuple[Any, ...]:
    random = torch.Generator().manual_seed(3)
    shape = (1, HEADS, LENGTH, 16)
    queries, keys = (torch.randn(shape, generator=random) for _ in range(2))
    values = torch.eye(LENGTH).expand(1, HEADS, LENGTH, LENGTH)
    return queries, keys, values, 0.2, p, SEED


def configured(
    module: ModuleType, rows: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, swapped in (("", False), ("_backward_dQ", False), ("_backward_dK_dV", True)):
        kernel = f"attention_dropout{name}_kernel"
        make = getattr(module, f"{kernel}_config")
        blocks = (columns, rows) if swapped else (rows, columns)
        late = (0,) if make.__code__.co_argcount == 5 else ()
        config = make(*blocks, *late, 4, 1)
        monkeypatch.setitem(getattr(module, f"{kernel}_default"), 4, config)


BLOCKS = [(16, 16), (16, 64), (64, 32)]


@pytest.mark.parametrize(("rows", "columns"), BLOCKS)
def test_both_passes_drop_what_the_executor_drops_whatever_the_blocks(
    rows: int, columns: int, shelf: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the identity for V, O is the dropped weights; with it for dO, dV is their transpose."""
    configured(shelf, rows, columns, monkeypatch)
    given = arguments()
    found, lse = shelf.attention_dropout_forward(*given, tune=False)
    mask = kept()
    assert np.array_equal(found.numpy() != 0, mask)
    gradients = shelf.attention_dropout_backward(
        *given, lse, found, given[2].contiguous(), wanted=["dV"], tune=False
    )
    again = gradients[2].transpose(2, 3)
    assert np.array_equal(again.numpy() != 0, mask)
    torch.testing.assert_close(again, found, rtol=1e-5, atol=1e-7)
    share = mask.sum() / (HEADS * LENGTH * (LENGTH + 1) / 2)
    assert abs(share - (1 - CHANCE)) < 0.04


def test_no_chance_is_plain_attention_and_a_sure_one_gives_nothing(shelf: ModuleType) -> None:
    queries, keys, _, scale, _, _ = given = arguments(0.0)
    found, _ = shelf.attention_dropout_forward(*given, tune=False)
    scores = (queries @ keys.transpose(2, 3) * scale).masked_fill(
        torch.ones(LENGTH, LENGTH).triu(1).bool(), -torch.inf
    )
    torch.testing.assert_close(found, torch.softmax(scores, -1), rtol=1e-5, atol=1e-6)
    found, _ = shelf.attention_dropout_forward(*arguments(1.0), tune=False)
    assert not found.any()


@pytest.mark.parametrize("seed", [1, -3, 1 << 31, -(1 << 40), (1 << 63) - 1])
def test_draws_have_the_bits_of_the_executor(seed: int) -> None:
    run = looptrans.compile("""\
def draw(X: Float[Array, "M N"], seed: int):
    Y = zeros((M, N), dtype=float32)
    for i in range(0, M):
        for j in range(0, N):
            Y[i, j] = uniform(seed, 2 * i, j - 1)
    return Y
""")
    found = run(torch.zeros(5, 37), seed).numpy()
    assert found.tolist() == [
        [float(uniform(seed, 2 * i, j - 1)) for j in range(37)] for i in range(5)
    ]


@pytest.mark.parametrize("way", WAYS)
def test_dropout_is_one_pass_however_it_is_written(way: str) -> None:
    found = derive(program(listing(WAYS[way])), "fold")
    kinds = list(dict.fromkeys(step.kind for step in found.steps))
    assert kinds == ["one pass", "guarded change of state", "parallel"]
    text = show(found.last)
    assert text.count("in range(0, N)") == 1
    assert not found.notes


def test_a_product_that_is_set_to_0_is_one_of_two_operands() -> None:
    text = emitted(
        program("""
def f(X: Float[Array, "M N"], V: Float[Array, "N D"], p: float):
    O = zeros((M, D))
    for i in range(M):
        for j in range(N):
            for d in range(D):
                O[i, d] += 0.0 if uniform(3, 0, i, j) < p else X[i, j] * V[j, d]
    return O
""")
    ).text
    assert "tl.dot(" in text
    assert "tl.sum(" not in text


def test_dropout_with_lengths_a_bias_and_grouped_heads_in_both_passes() -> None:
    run = looptrans.compile(
        listing(
            WAYS["guard"].replace("V[h,", "V[h // R,"),
            stop="n[h]",
            score=SCORE.replace("K[h,", "K[h // R,") + " + bias[i, j]",
            more=' bias: Float[Array, "M N"], n: Int[Array, "H", "0:N+1"],',
            assume="assert H == G * R",
        )
    )
    heads, groups, rows, columns, size = 4, 2, 19, 21, 16
    random = torch.Generator().manual_seed(5)
    shapes = [
        (heads, rows, size),
        (groups, columns, size),
        (groups, columns, size),
        (rows, columns),
    ]
    given = [torch.randn(shape, generator=random).requires_grad_() for shape in shapes]
    lengths = torch.tensor([21, 0, 7, 16])
    found = run(*given, lengths, CHANCE, SEED)
    incoming = torch.randn(found.shape, generator=random)
    gradients = torch.autograd.grad(found, given, incoming)

    queries, keys, values, bias = again = [
        each.detach().double().requires_grad_() for each in given
    ]
    scores = queries @ keys.repeat_interleave(2, 0).transpose(1, 2) + bias
    outside = torch.arange(columns) >= lengths[:, None, None]
    weights = torch.softmax(scores.masked_fill(outside, -1e30), -1).masked_fill(outside, 0.0)
    mask = torch.tensor(
        [
            [[float(uniform(SEED, h, i, j)) >= CHANCE for j in range(columns)] for i in range(rows)]
            for h in range(heads)
        ]
    )
    expected = weights * mask / (1 - CHANCE) @ values.repeat_interleave(2, 0)
    wanted = torch.autograd.grad(expected, again, incoming.double())
    for one, other in zip((found, *gradients), (expected, *wanted), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


def test_a_number_that_draws_are_compared_with_is_a_chance() -> None:
    reals = [prepare(spec("attention_dropout"), seed=seed).reals["p"] for seed in range(9)]
    assert all(0 < p < 0.5 and p * 16 == round(p * 16) for p in reals)
    assert len(set(reals)) > 1


# Choices against 0 in the algebra and in matrix products


def chosen(condition: str, value: Value) -> Value:
    return Select(Data(Compare(">", Real(condition), Const(0.0))), value, Const(0.0))


def test_a_choice_against_0_is_a_factor() -> None:
    x, y = Real("x1"), Real("x2")
    product = Binary("*", chosen("c", x), chosen("c", y))
    assert equality(product, chosen("c", Binary("*", x, y))).answer == "proved"
    both = chosen("c", chosen("e", x))
    assert equality(Binary("*", chosen("e", x), chosen("c", Const(1.0))), both).answer == "proved"
    assert equality(product, Binary("*", x, y)).answer == "refuted"
    assert equality(product, chosen("e", Binary("*", x, y))).answer == "refuted"
    other = Select(Data(Compare(">", Real("c"), Const(0.0))), Const(0.0), x)
    assert equality(Binary("+", chosen("c", x), other), x).answer == "proved"


def test_what_a_choice_leaves_out_need_be_no_number() -> None:
    run = looptrans.compile("""\
def entropies(P: Float[Array, "M N"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    for i in range(0, M):
        for j in range(0, N):
            for d in range(0, D):
                O[i, d] = O[i, d] + (P[i, j] * log(P[i, j]) * V[j, d] if P[i, j] > 0.0 else 0.0)
    return O
""")
    share = torch.rand(20, 33, generator=torch.Generator().manual_seed(0)).relu()
    share[::2, ::3] = 0.0
    values = torch.randn(33, 16, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(run(share, values), torch.xlogy(share, share) @ values)


@pytest.mark.parametrize("seed", [5, -5, 2**63 - 1, 2**64 - 1, -(2**63) - 1, np.int64(7), 3 << 80])
def test_a_seed_is_64_bits_whatever_integer_is_given(seed: Any) -> None:
    """`torch.initial_seed()` goes up to 2**64 - 1, and torch's operators take up to 2**63 - 1."""
    space: dict[str, Any] = {}
    exec(FUNCTIONS["_seed"], space)
    found = space["_seed"]("seed", seed)
    assert type(found) in (int, np.int64)
    assert -(2**63) <= found < 2**63
    assert (int(found) - int(seed)) % 2**64 == 0
    for wrong in (1.0, "1", None):
        with pytest.raises(ValueError, match="seed should be an int"):
            space["_seed"]("seed", wrong)


@pytest.mark.parametrize(("more", "is_key"), [("", True), (" + seed", False)])
def test_a_seed_that_is_a_number_too_keeps_its_value(more: str, is_key: bool) -> None:
    """As a key 2**64 - 5 has the bits of -5, as a number it is another one."""
    text = f"""
def f(X: Float[Array, "M"], seed: Seed):
    Y = zeros(M)
    for i in range(M):
        Y[i] = X[i] * uniform(seed, i){more}
    return Y
"""
    shown = emitted(program(text)).text
    assert ("seed = _seed(" in shown) == is_key
    assert ('_check_size("seed"' in shown) != is_key
