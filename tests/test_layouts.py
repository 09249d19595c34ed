"""Arrays as they lie: interleaved, heads behind positions, in pages; views as they are."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

from looptrans.adjoint.backward import backward  # noqa: E402
from looptrans.adjoint.refusal import NotDifferentiated  # noqa: E402
from looptrans.blocks.block_ir.ops import Store, TileLoop, has_products, ops_in  # noqa: E402
from looptrans.blocks.block_ir.program import Rounding  # noqa: E402
from looptrans.emit.backward import emitted_backward  # noqa: E402
from looptrans.emit.listing import emitted, lowered  # noqa: E402
from looptrans.ir.affine import is_same  # noqa: E402
from looptrans.ir.index import Arith, Param  # noqa: E402
from looptrans.ir.listing import listing  # noqa: E402
from looptrans.runtime.running.load import load_module  # noqa: E402
from looptrans.variants import Options, compose  # noqa: E402
from tests.analysis import SPECS, program, spec  # noqa: E402

SHELF = Path(__file__).resolve().parent.parent / "generated"


def shelf(name: str) -> ModuleType:
    path = SHELF / f"{name}.py"
    return load_module(f"test_layouts_{name}", path.read_text(encoding="utf-8"), path)


def numbers(*shape: int, seed: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def attention(q: Any, k: Any, v: Any, scale: float, *, causal: bool = False) -> Any:
    """Plain attention on (batch, head, position, dimension), in float64."""
    scores = scale * (q.double() @ k.double().transpose(-1, -2))
    if causal:
        outside = torch.ones(scores.shape[-2:]).triu(1).bool()
        scores = scores.masked_fill(outside, -torch.inf)
    return torch.softmax(scores, -1) @ v.double()


def agree(
    run: Callable[..., Any],
    plain: Callable[..., Any],
    views: list[Callable[[Any], Any]],
    given: Any,
) -> None:
    """Compare results and gradients, those of the tensors that views are views of."""
    mine = [each.clone().requires_grad_() for each in given]
    its = [each.clone().requires_grad_() for each in given]
    found = run(*(view(each) for view, each in zip(views, mine, strict=True)))
    expected = plain(*(view(each) for view, each in zip(views, its, strict=True)))
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)
    incoming = numbers(*found.shape, seed=9)
    found.backward(incoming)
    expected.backward(incoming.double())
    for one, other in zip(mine, its, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)


def test_interleaved_queries_keys_and_values_with_one_gradient() -> None:
    """The array is a view: every second position of one that lies (N, B, H, 3, E) in memory."""
    run = shelf("attention_qkv_backward").attention_qkv

    def view(whole: Any) -> Any:
        return whole[::2].permute(1, 0, 3, 2, 4)

    def plain(qkv: Any) -> Any:
        q, k, v = (qkv[:, :, n].transpose(1, 2) for n in range(3))
        return attention(q, k, v, 0.3, causal=True).transpose(1, 2)

    whole = numbers(74, 2, 3, 3, 16, seed=1)
    assert not view(whole).is_contiguous()
    agree(lambda qkv: run(qkv, 0.3), plain, [view], [whole])


def test_heads_behind_positions_and_transposed_inputs() -> None:
    run = shelf("attention_bshd_backward").attention_bshd

    def plain(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        return attention(q, k, v, 0.3).transpose(1, 2)

    given = [numbers(2, 3, 35, 16, seed=1), numbers(2, 50, 3, 16, seed=2)]
    given.append(numbers(16, 2, 3, 50, seed=3))
    views = [
        lambda each: each.transpose(1, 2),
        lambda each: each,
        lambda each: each.permute(1, 3, 2, 0),
    ]
    agree(lambda q, k, v: run(q, k, v, 0.3), plain, views, given)


def test_keys_that_lie_as_columns_are_read_as_they_lie() -> None:
    """Pointers to a first block have their dimensions in the order that the load has."""
    text = """
def f(Q: Float[Array, "M E"], K: Float[Array, "E N"], V: Float[Array, "D N"]):
    O = zeros((M, D))
    for i in range(M):
        for d in range(D):
            for j in range(N):
                O[i, d] = O[i, d] + exp(sum(Q[i, e] * K[e, j] for e in range(E))) * V[d, j]
    return O
"""
    source = emitted(program(text)).text
    assert "K_at = K_ptr + e[:, None]" in source
    made = load_module("test_layouts_columns", source, SHELF / "columns.py")
    q, k, v = (0.3 * numbers(*shape, seed=3) for shape in ((5, 16), (16, 70), (6, 70)))
    torch.testing.assert_close(made.f(q, k, v), torch.exp(q @ k) @ v.T, rtol=1e-5, atol=1e-5)


def test_parts_of_one_array_are_worked_out_where_they_share_work() -> None:
    """Two thirds of the gradient in one kernel, the other in one; none is gone over in vain."""
    found = lowered(backward(spec("attention_qkv")).program, rounded=Rounding())
    parts = [
        {
            str(op.subscripts[2])
            for op in ops_in(kernel.body)
            if isinstance(op, Store) and op.array == "dQKV"
        }
        for kernel in found.kernels
        if any(a.name == "dQKV" and a.access == "out" for a in kernel.arrays)
    ]
    assert sorted(map(len, parts)) == [1, 2]
    assert len(set().union(*parts)) == 3
    (made,) = [made for made in found.made if made.array == "dQKV"]
    assert made.fill is None


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_pages_in_any_order_shared_and_with_batches_of_no_keys(kind: Any) -> None:
    run = shelf("attention_paged").attention_paged
    heads, size, length = 2, 16, 8
    queries = numbers(3, heads, 5, size, seed=1)
    pool = numbers(2, 6, length, heads, size, seed=2)
    page = torch.tensor([[5, 0, 2, 2], [0, 5, 1, 3], [4, 4, 4, 4]], dtype=kind)
    lengths = torch.tensor([27, 8, 0], dtype=kind)
    # Pages that are transposed in memory.
    keys, values = (each.transpose(0, 1).contiguous().transpose(0, 1) for each in pool)
    found = run(queries, keys, values, page, lengths, 0.3, check=True)
    for b, count in enumerate(lengths.tolist()):
        rows = [pool[:, page[b]].flatten(1, 2)[n, :count].transpose(0, 1) for n in range(2)]
        expected = torch.zeros(heads, 5, size)
        if count:
            expected = attention(queries[b], rows[0], rows[1], 0.3)
        torch.testing.assert_close(found[b].double(), expected.double(), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="page should hold integers from 0"):
        run(queries, keys, values, page + 1, lengths, 0.3, check=True)


def test_a_page_gathers_from_the_batches_that_name_it() -> None:
    """The gradient of a page goes over those alone, and each product of blocks is done once."""
    shown = listing(backward(spec("attention_paged")).program)
    assert "for j_block in range(0, min((n_kv[b] + P - 1) // P, T)):" in shown
    assert "K[c, p, h, e]" in shown and "(j_block * P + p) //" not in shown
    module = shelf("attention_paged_backward")
    page = torch.tensor([[5, 0, 2], [0, 5, 1], [4, 4, 4]])
    lengths = torch.tensor([23, 5, 0])
    given = [numbers(3, 2, 5, 16, seed=1), *numbers(2, 6, 8, 2, 16, seed=2)]
    mine = [each.clone().requires_grad_() for each in given]
    exact = [each.double().requires_grad_() for each in given]
    found = module.attention_paged(*mine, page, lengths, 0.3)
    keys, values = (each[page].flatten(1, 2).transpose(1, 2) for each in exact[1:])
    rows = [
        attention(exact[0][b], keys[b, :, :count], values[b, :, :count], 0.3)
        for b, count in enumerate(lengths.tolist()[:2])
    ]
    wanted = torch.stack([*rows, exact[0][2] * 0])
    incoming = numbers(3, 2, 5, 16, seed=3)
    torch.autograd.backward([found, wanted], [incoming, incoming.double()])
    for one, other in zip(mine, exact, strict=True):
        assert one.grad is not None and other.grad is not None
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=1e-4, atol=1e-5)


def test_pages_that_are_rows_of_one_array_are_gone_over_as_pages() -> None:
    (path,) = (path for path in SPECS if path.stem == "attention_paged")
    text = path.read_text(encoding="utf-8").replace(", j % P, h, ", " * P + j % P, h, ")
    shown = listing(backward(program(text.replace('"C P H', '"C*P H'))).program)
    assert "if page[b, j_block] == c:" in shown
    assert "dK[c * P + p, h, e] = dK[c * P + p, h, e] + " in shown
    # Without a range it may be any row.
    bare = text.replace('"C P H', '"C*P H').replace(', "0:C"', "")
    assert "== x:" in listing(backward(program(bare)).program)


@pytest.mark.parametrize("q_lengths", [False, True])
def test_what_is_handed_over_is_worked_out_in_the_pass_over_all_keys(q_lengths: bool) -> None:
    options = Options(pages=True, heads="none", q_lengths=q_lengths)
    found = backward(program(compose(options).text))
    assert "for j in range(0, L * PAGE):" in listing(found.forward)
    (kernel,) = lowered(found.forward).kernels
    loops = sum(isinstance(op, TileLoop) for op in ops_in(kernel.body))
    assert loops == 2  # whole blocks, and the last one


def test_a_const_is_a_constant_of_the_kernel_and_a_size_is_not() -> None:
    text = """\
def gather(K: Float[Array, "C*P"], page: Int[Array, "T", "0:C"], P: {kind}):
    Y = zeros(T * P)
    for j in range(0, T * P):
        Y[j] = 2.0 * K[page[j // P] * P + j % P]
    return Y
"""
    made = emitted(program(text.format(kind="Const")))
    assert made.blocks.kernels[0].constants == ("P",)
    assert emitted(program(text.format(kind="int"))).blocks.kernels[0].constants == ()
    module = load_module("test_layouts_gather", made.text, SHELF / "gather.py")
    rows, page = torch.arange(12.0), torch.tensor([2, 0, 2])
    assert torch.equal(module.gather(rows, page, 4), 2 * rows.view(3, 4)[page].flatten())


HEADS = """
def heads(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N E"], H: int):
    D = E // H
    # contract
    O = zeros((M, E))
    for h in range(H):
        for i in range(M):
            m = -inf
            l = 0.0
            for j in range(N):
                s = sum(Q[i, h * D + d] * K[j, h * D + d] for d in range(D)) / sqrt(D)
                top = max(m, s)
                l = l * exp(m - top) + exp(s - top)
                for d in range(D):
                    O[i, h * D + d] *= exp(m - top)
                    O[i, h * D + d] += exp(s - top) * V[j, h * D + d]
                m = top
            for d in range(D):
                O[i, h * D + d] /= l
    return O
"""


@pytest.mark.parametrize("contract", ["assert E % H == 0", "assert D * H == E"])
def test_heads_beside_each_other_in_a_row_have_gradients(contract: str, tmp_path: Path) -> None:
    """What D stands for is a size, and H * (E // H) is (E // H) * H."""
    text = HEADS.replace("# contract", contract)
    found = backward(program(text))
    made = emitted_backward(found)
    path = tmp_path / "heads.py"
    path.write_text(made.text)
    run = load_module(f"heads_{len(contract)}", made.text, path).heads

    def plain(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (each.unflatten(1, (3, 4)).transpose(0, 1) for each in (q, k, v))
        return attention(q, k, v, 0.5).transpose(0, 1).flatten(1)

    given = [numbers(9, 12, seed=1), numbers(20, 12, seed=2), numbers(20, 12, seed=3)]
    agree(lambda q, k, v: run(q, k, v, 3), plain, [lambda each: each] * 3, given)
    assert "delta[h, i]" in listing(found.program)


def test_heads_that_may_leave_elements_over_have_kernels_and_a_refusal_says_what_to_assert() -> (
    None
):
    assert len(lowered(program(HEADS)).kernels) == 1
    with pytest.raises(NotDifferentiated) as refused:
        backward(program(HEADS))
    assert refused.value.remedy == "say that nothing is left over, with assert E % H == 0"
    assert refused.value.label


def test_the_factors_of_a_product_of_sizes_have_no_order() -> None:
    rows, columns = Param("R"), Param("C")
    assert is_same(Arith("*", rows, columns), Arith("*", columns, rows))
    assert not is_same(Arith("*", rows, columns), Arith("*", rows, rows))


# Each window of 4 positions attends to itself; rows of a window are found by two digits.
IN_WINDOWS = """
def windows(Q: Float[Array, "T E"], K: Float[Array, "T E"], V: Float[Array, "T E"]):
    assert T % 4 == 0
    O = zeros((T, E))
    for w in range(T // 4):
        for p in range(4):
            m = -inf
            for r in range(4):
                m = max(m, Q[4 * w + p] @ K[4 * w + r])
            l = 0.0
            for r in range(4):
                l += exp(Q[4 * w + p] @ K[4 * w + r] - m)
            for r in range(4):
                for e in range(E):
                    O[4 * w + p, e] += exp(Q[4 * w + p] @ K[4 * w + r] - m) / l * V[4 * w + r, e]
    return O
"""


def test_a_number_of_each_row_of_a_window_is_kept() -> None:
    """Worked out again, each row of keys would be looked for among all windows."""
    made = emitted_backward(backward(program(IN_WINDOWS)))
    delta, queries, keys = made.backward.kernels
    assert any(isinstance(op, Store) and op.array == "delta" for op in ops_in(delta.body))
    assert has_products(queries.body)
    assert has_products(keys.body)


# Windows of 2 by 2 cells of an image, whose cells are counted through.
BY_QUOTIENT = """
def windows(x: Float[Array, "Y X"], k: Float[Array, "4 4"]):
    assert Y % 2 == 0
    assert X % 2 == 0
    y = zeros((Y, X))
    for v in range(Y // 2):
        for u in range(X // 2):
            for p in range(4):
                for r in range(4):
                    y[2 * v + p // 2, 2 * u + p % 2] += k[p, r] * x[2 * v + r // 2, 2 * u + r % 2]
    return y
"""


def test_what_is_written_by_quotient_and_rest_has_gradients(tmp_path: Path) -> None:
    made = emitted_backward(backward(program(BY_QUOTIENT)))
    path = tmp_path / "windows.py"
    path.write_text(made.text)
    run = load_module("windows_by_quotient", made.text, path).windows

    def plain(x: Any, k: Any) -> Any:
        cells = x.double().unflatten(1, (-1, 2)).unflatten(0, (-1, 2)).transpose(1, 2)
        found = (cells.flatten(2) @ k.double().T).unflatten(2, (2, 2))
        return found.transpose(1, 2).flatten(2).flatten(0, 1)

    agree(run, plain, [lambda each: each] * 2, [numbers(4, 6, seed=1), numbers(4, 4, seed=2)])


def test_cells_that_go_round_are_to_be_written_in_order() -> None:
    text = """
def rolled(x: Float[Array, "N"], shift: int):
    assert N % 4 == 0
    y = zeros(N)
    for w in range(N // 4):
        for p in range(4):
            y[(4 * w + p + shift) % N] = 2 * x[4 * w + p]
    return y
"""
    with pytest.raises(NotDifferentiated) as refused:
        backward(program(text))
    assert refused.value.remedy.startswith("write y in order, without the %")
    backward(program(text.replace("(4 * w + p + shift) % N]", "4 * w + p]")))
