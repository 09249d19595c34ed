"""`looptrans.attention` against torch's scaled_dot_product_attention, and what it adds to it."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

import looptrans  # noqa: E402
from looptrans.runtime import attention as own  # noqa: E402
from looptrans.variants import Conflict  # noqa: E402

CLOSE = {"rtol": 1e-5, "atol": 2e-6}
sdpa = torch.nn.functional.scaled_dot_product_attention
Shape = tuple[int, ...]


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOPTRANS_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
        own.compiled.cache_clear()
        yield
    own.compiled.cache_clear()


def tensors(*shapes: Shape, seed: int = 0) -> list[Any]:
    torch.manual_seed(seed)
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def compare(inputs: Sequence[Any], mine: Any, theirs: Any) -> None:
    """Compare outputs and the gradients of all inputs that have one."""
    torch.testing.assert_close(mine, theirs, **CLOSE)
    incoming = torch.randn_like(theirs)
    wanted = [each for each in inputs if each.requires_grad]
    found = torch.autograd.grad(mine, wanted, incoming)
    expected = torch.autograd.grad(theirs, wanted, incoming)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


def masked(*shape: int) -> Any:
    """Return an added mask in which one row hides every key."""
    values = torch.randn(shape)
    values[..., 1, :] = -torch.inf
    return values.requires_grad_()


SHAPES: list[tuple[str, tuple[Shape, Shape, Shape], dict[str, Any]]] = [
    ("2-D", ((5, 8), (7, 8), (7, 4)), {}),
    ("3-D, causal, scale", ((3, 9, 8), (3, 7, 8), (3, 7, 4)), {"is_causal": True, "scale": 0.3}),
    ("4-D", ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)), {}),
    ("5-D", ((2, 1, 3, 5, 8), (2, 1, 3, 7, 8), (2, 1, 3, 7, 8)), {}),
    ("heads shared", ((2, 3, 5, 8), (2, 1, 7, 8), (2, 1, 7, 8)), {"enable_gqa": True}),
    ("heads grouped", ((1, 4, 5, 8), (1, 2, 7, 8), (1, 2, 7, 4)), {"enable_gqa": True}),
    ("added, 2-D", ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)), {"attn_mask": masked(5, 7)}),
    ("added, 3-D", ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)), {"attn_mask": masked(3, 5, 7)}),
    (
        "boolean, 4-D",
        ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)),
        {"attn_mask": masked(2, 1, 5, 7).detach() > 0.0},
    ),
    ("no keys", ((2, 3, 5, 8), (2, 3, 0, 8), (2, 3, 0, 8)), {}),
]


@pytest.mark.parametrize(
    ("shapes", "options"), [case[1:] for case in SHAPES], ids=[case[0] for case in SHAPES]
)
def test_it_gives_what_torch_gives(
    shapes: tuple[Shape, Shape, Shape], options: dict[str, Any]
) -> None:
    inputs = tensors(*shapes)
    mask = options.get("attn_mask")
    more = [mask] if mask is not None else []
    compare([*inputs, *more], looptrans.attention(*inputs, **options), sdpa(*inputs, **options))


def test_more_options_at_once() -> None:
    query, key, value, slopes, sinks = tensors((2, 2, 5, 4), (2, 2, 7, 4), (2, 2, 7, 4), (2,), (2,))
    mine, lse = looptrans.attention(
        query,
        key,
        value,
        is_causal=True,
        window=(2, 0),
        alibi_slopes=slopes,
        sinks=sinks,
        return_lse=True,
    )
    i, j = torch.arange(5)[:, None], torch.arange(7)[None]
    seen = (j <= i) & (j >= i - 2)
    scores = query @ key.mT / 2.0 - slopes[:, None, None] * (i - j)
    scores = scores.masked_fill(~seen, -torch.inf)
    whole = torch.cat((scores, sinks[:, None, None].expand(2, 2, 5, 1)), dim=-1)
    torch.testing.assert_close(lse, torch.logsumexp(whole, dim=-1), **CLOSE)
    theirs = torch.softmax(whole, dim=-1)[..., :-1] @ value
    compare([query, key, value, slopes, sinks], mine, theirs)


def test_no_keys_and_several_batch_dimensions() -> None:
    """Sizes of 0 do not say what the others are."""
    query = torch.randn(3, 2, 2, 1, 8)
    found = looptrans.attention(query, torch.randn(1, 1, 2, 0, 8), torch.randn(1, 1, 2, 0, 4))
    torch.testing.assert_close(found, torch.zeros(3, 2, 2, 1, 4))


def test_calls_with_the_same_options_use_the_same_kernels() -> None:
    inputs = tensors((5, 8), (7, 8), (7, 4))
    looptrans.attention(*inputs)
    before = own.compiled.cache_info()
    looptrans.attention(*tensors((9, 4), (3, 4), (3, 2)))
    after = own.compiled.cache_info()
    assert (after.misses, after.hits) == (before.misses, before.hits + 1)


def test_what_does_not_fit_is_said() -> None:
    query, key, value = tensors((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8))
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("key should have the shape", {"key": key[..., :6]}),
        ("value should have the shape", {"value": value[:, :, :6]}),
        ("the same number of dimensions", {"key": key[0]}),
        ("there should be 4, 1, or a divisor of it with enable_gqa", {"key": key[:, :3]}),
        (r"expanded to \(2, 4, 5, 7\)", {"attn_mask": torch.zeros(5, 6)}),
        ("boolean or floating-point", {"attn_mask": torch.zeros(5, 7, dtype=torch.int32)}),
        (r"sinks should have the shape \(4,\)", {"sinks": torch.zeros(3)}),
        ("alibi_slopes should have the shape", {"alibi_slopes": torch.zeros(2)}),
        ("dropout_p should be from 0 to 1", {"dropout_p": 1.5}),
        ("key_lengths should be a tensor of shape", {"key_lengths": 3}),
        ("pair", {"window": 3}),
        (r"the shapes are \(8,\), \(2, 4, 7, 8\)", {"query": query[0, 0, 0]}),
        ("one dtype: query is torch.float32, key torch.float16", {"key": key.half()}),
        ("key_lengths should be torch.int32 or torch.int64", {"key_lengths": torch.ones(2)}),
        ("documents should be torch.int32 or", {"documents": (torch.ones(2, 5), torch.ones(2, 7))}),
        ("sinks should be a torch.Tensor, and is a list", {"sinks": [0.0] * 4}),
        ("attn_mask should be a torch.Tensor", {"attn_mask": [True]}),
    ]
    for message, options in wrong:
        with pytest.raises(ValueError, match=message):
            looptrans.attention(**{"query": query, "key": key, "value": value, **options})
    with pytest.raises(Conflict, match="causal=True and window_right"):
        looptrans.attention(query, key, value, is_causal=True, window=(2, 3))


def test_dropout_keeps_the_same_weights_in_both_passes() -> None:
    q, k = tensors((1, 2, 9, 8), (1, 2, 16, 8))
    v = torch.eye(16).expand(1, 2, 16, 16).clone().requires_grad_()  # shows the weights
    torch.manual_seed(5)
    out = looptrans.attention(q, k, v, dropout_p=0.25)
    weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1)
    assert isinstance(out, torch.Tensor)
    kept = out.detach() != 0
    assert 0.6 < kept.float().mean() < 0.9
    compare([q, k, v], out, (weights * kept / 0.75) @ v)
    torch.manual_seed(5)
    again, other = (looptrans.attention(q, k, v, dropout_p=0.25) for _ in range(2))
    assert torch.equal(torch.as_tensor(again), out)
    assert not torch.equal(torch.as_tensor(other), out)


def test_sequences_one_behind_the_other() -> None:
    q, k, v = tensors((11, 2, 8), (13, 1, 8), (13, 1, 5))
    of_q, of_k = torch.tensor([0, 4, 4, 11]), torch.tensor([0, 6, 9, 13])
    packed = {"query_starts": of_q, "key_starts": of_k}
    mine, lse = looptrans.attention(q, k, v, **packed, return_lse=True)
    assert lse.shape == (2, 11)
    rows, keys, values = (each.transpose(0, 1) for each in (q, k, v))
    parts = []
    for b in range(3):
        i, j = slice(of_q[b], of_q[b + 1]), slice(of_k[b], of_k[b + 1])
        weights = torch.softmax(rows[:, i] @ keys[:, j].mT / 8**0.5, -1)
        parts.append(weights @ values[:, j])
    compare([q, k, v], mine, torch.cat(parts, 1).transpose(0, 1))
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("should be given both", {"query_starts": of_q}),
        ("the same shape", packed | {"key_starts": of_k[1:]}),
        ("do not go together", packed | {"attn_mask": torch.ones(11, 13) > 0}),
        ("one sequence behind the other", packed | {"pages": of_q}),
        (r"should be tensors of shape \(B \+ 1,\)", packed | {"key_starts": [0, 13]}),
        (r"key should have the shape \(C, PAGE, G, E\)", {"pages": of_q, "query_starts": of_q}),
    ]
    for message, options in wrong:
        with pytest.raises(ValueError, match=message):
            looptrans.attention(q, k, v, **options)


def test_keys_in_pages() -> None:
    q, k, v = tensors((2, 2, 3, 8), (5, 4, 2, 8), (5, 4, 2, 6))
    pages, lengths = torch.tensor([[4, 0, 2], [3, 1, 1]]), torch.tensor([10, 7])
    mine = looptrans.attention(q, k, v, pages=pages, key_lengths=lengths)
    keys, values = (each[pages].flatten(1, 2).transpose(1, 2) for each in (k, v))
    sees = torch.arange(12) < lengths[:, None, None, None]
    compare([q, k, v], mine, sdpa(q, keys, values, attn_mask=sees))
    with pytest.raises(Conflict, match="pages=True and kv_lengths=False"):
        looptrans.attention(
            q[0].transpose(0, 1), k, v, pages=pages, query_starts=torch.tensor([0, 1, 3])
        )
    with pytest.raises(ValueError, match=r"pages should have the shape \(2, L\)"):
        looptrans.attention(q, k, v, pages=pages[:1])


def test_weights_that_a_mask_keeps() -> None:
    q, k, v = tensors((2, 1, 2, 3, 8), (2, 1, 2, 6, 8), (2, 1, 2, 6, 8))
    kept = torch.rand(2, 1, 2, 3, 6) > 0.3
    mine = looptrans.attention(q, k, v, dropout_p=0.3, dropout_mask=kept)
    compare([q, k, v], mine, (torch.softmax(q @ k.mT / 8**0.5, -1) * kept / 0.7) @ v)
    with pytest.raises(ValueError, match="dropout_mask should be boolean, of shape"):
        looptrans.attention(q, k, v, dropout_p=0.3, dropout_mask=kept[0])
